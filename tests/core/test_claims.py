"""Claims: direct ones against second routes and known values, rules on made-up results on both sides of thresholds."""

from __future__ import annotations

import cmath
import itertools
import json
import math

import pytest
import torch

from posenc_core import claims_direct, claims_lab, parse_query
from posenc_core.analysis import wavelengths
from posenc_core.claims import Evidence, Judgement, Number
from posenc_core.claims_direct import SCALED
from posenc_core.claims_lab import FLAT, PAST, SEEDS, LabJudge, NotMeasured, Sample, family, group
from posenc_core.claims_table import CLAIMS, main, needed_runs, number_text, recorded
from posenc_core.extension import sharpness
from posenc_core.frequencies import attention_scales
from posenc_core.lab import BINS, DEFAULT_SCHEMES, TIMES, Result, Run, Setting, parse_schemes, runs
from posenc_core.schemes import SCHEMES
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec

NOTHING = Evidence({})
BY_NUMBER = {c.number: c for c in CLAIMS}
LAB = [c for c in CLAIMS if isinstance(c.judge, LabJudge)]
DIRECT = [c for c in CLAIMS if c.judge.__module__ == claims_direct.__name__]
VERDICTS = ("holds", "holds with a condition", "does not hold")


def judged(number, evidence=NOTHING):
    return BY_NUMBER[number].judge(evidence)


def value(judgement, name):
    (found,) = (n.value for n in judgement.numbers if n.name == name)
    return found


# ------------------------------------------------------------------ the table


def test_the_claims_of_the_issue_and_two_slips_in_their_order():
    assert [c.number for c in CLAIMS] == list(range(1, 28))
    words = {
        1: "equivariant",
        5: "learned",
        12: "RoPE",
        16: "15%",
        18: "slopes",
        22: "converge",
        25: "cached",
        27: "√d",
    }
    for number, word in words.items():
        assert word in BY_NUMBER[number].sentence
    assert len(LAB) + len(DIRECT) + 2 == len(CLAIMS)  # and the two of the benchmark


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: str(c.number))
def test_every_claim_says_all_of_itself(claim):
    for text in (claim.name, claim.sentence, claim.reference, claim.experiment):
        assert text.strip() == text
        assert text
    assert (claim.source == "paper") == claim.reference.split(";")[0].strip()[-5:].isdigit()  # ends in an arXiv id
    assert claim.sentence.endswith(".")
    assert claim.experiment.endswith(".")


PAGES = {"encodings", "decay", "attention", "extension", "porting", "timing", "lab"}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: str(c.number))
def test_links_hold_legal_specs(claim):
    assert claim.page in PAGES
    query = dict(claim.query)
    assert all(isinstance(v, str) for v in query.values())
    if claim.page == "lab":
        return
    fields = {p.name for s in SCHEMES.values() for p in s.params()} | {"scheme"}
    for prefix in ("", "b_"):
        mine = {k.removeprefix(prefix): v for k, v in query.items() if k.startswith("b_") == bool(prefix)}
        spec, problems = parse_query({k: v for k, v in mine.items() if k in fields})
        assert not problems
        assert not mine or spec.scheme == mine["scheme"]


def lab_runs(query):
    """The runs that a link of the Lab page opens."""
    query = dict(query)
    schemes, seeds = parse_schemes(query.pop("schemes")), map(int, query.pop("seeds").split(","))
    setting = Setting(**{name: Setting.parse_field(name, text) for name, text in query.items()})
    made, problems = runs(schemes, setting, tuple(seeds))
    assert not problems
    return made


@pytest.mark.parametrize("claim", LAB, ids=lambda c: str(c.number))
def test_lab_links_open_runs_that_are_made_and_the_claim_reads(claim):
    keys, opened = {r.key for r in needed_runs()}, {r.key for r in lab_runs(claim.query)}
    assert claim.page == "lab"
    assert opened <= keys
    assert opened & {r.key for r in claim.runs()}


def test_needed_runs_are_each_once_with_those_before_them_and_few_enough():
    made = needed_runs()
    keys = [r.key for r in made]
    assert len(set(keys)) == len(keys)
    assert {r.base.key for r in made} <= set(keys)
    assert {r.key for c in CLAIMS for r in c.runs()} <= set(keys)
    default, _ = runs(parse_schemes(DEFAULT_SCHEMES), Setting(), SEEDS)
    assert {r.key for r in default} <= set(keys)
    trainings = [r for r in made if r.setting.extension == "off"]
    assert len(trainings) <= 150  # of about 20 s each; the others go on from these
    assert {r.seed for r in made} == set(SEEDS)


def test_the_link_of_the_missing_scale_multiplies_scores_as_leaving_it_out_does():
    spec, problems = parse_query({k: v for k, v in BY_NUMBER[27].query.items() if k != "method"})
    assert not problems
    assert attention_scales(spec).scores == pytest.approx(math.sqrt(spec.d_head), rel=1e-5)
    found = sharpness(spec, [512], draws=256)
    measured = judged(27)
    assert found.without.item() == pytest.approx(value(measured, "entropy with 1/√d"), abs=0.05)
    assert found.with_factor.item() == pytest.approx(value(measured, "entropy without"), abs=0.1)


# ------------------------------------------------------------------ direct claims


@pytest.mark.parametrize("claim", DIRECT, ids=lambda c: str(c.number))
def test_direct_claims_need_nothing_and_are_the_same_every_time(claim):
    first, second = claim.judge(NOTHING), claim.judge(NOTHING)
    assert (first.verdict, first.condition) == (second.verdict, second.condition)
    assert [n.name for n in first.numbers] == [n.name for n in second.numbers]
    # a library of linear algebra may round by where numbers lie in memory
    assert [n.value for n in first.numbers] == pytest.approx([n.value for n in second.numbers], rel=1e-9, abs=1e-12)
    assert first.verdict in VERDICTS
    assert first.numbers
    assert not claim.runs()
    assert all(math.isfinite(n.value) for n in first.numbers)
    assert bool(first.condition) == (first.verdict != "holds")


def test_1_attention_is_softmax_of_products_and_only_the_mask_tells_order():
    x = torch.randn(6, claims_direct.WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    w = claims_direct._drawn(3, claims_direct.WIDTH, claims_direct.HEAD) / claims_direct.WIDTH**0.5
    q, k, v = (x @ m for m in w)
    for causal in (False, True):
        got = claims_direct.attend(NoneSpec().build(), x, causal)
        for i in range(6):
            seen = range(i + 1) if causal else range(6)
            odds = [math.exp((q[i] @ k[j]).item() / claims_direct.HEAD**0.5) for j in seen]
            wanted = sum(o * v[j] for o, j in zip(odds, seen, strict=True)) / sum(odds)
            torch.testing.assert_close(got[i], wanted, rtol=1e-12, atol=1e-12)
    found = judged(1)
    assert found.verdict == "holds with a condition"
    assert value(found, "change by shuffling, no mask") < 1e-12
    assert value(found, "change by shuffling, causal mask") > 0.1
    assert claims_direct.shuffle_change(SinusoidalSpec(d_model=claims_direct.WIDTH).build(), False) > 0.1


@pytest.mark.parametrize(
    ("unmasked", "masked", "verdict"),
    [(1e-10, 1e-10, VERDICTS[0]), (1e-10, 1e-8, VERDICTS[1]), (1e-8, 1e-8, VERDICTS[2])],
)
def test_1_rule(monkeypatch, unmasked, masked, verdict):
    monkeypatch.setattr(claims_direct, "shuffle_change", lambda e, causal: masked if causal else unmasked)
    assert judged(1).verdict == verdict


def test_2_smallest_distance_is_that_of_all_pairs():
    for d_model in (2, 16):
        spec = SinusoidalSpec(d_model=d_model)
        vectors = spec.build().vectors(torch.arange(400))
        apart = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
        wanted = apart.min().item() / (d_model / 2) ** 0.5
        assert claims_direct.closest(spec, 400) == pytest.approx(wanted, rel=1e-6)
    # 710 radians are nearly 113 turns: 710/113 approximates 2π
    assert claims_direct.closest(SinusoidalSpec(d_model=2), 711) == pytest.approx(abs(710 - 226 * math.pi), rel=1e-4)


def test_2_rule(monkeypatch):
    assert judged(2).verdict == "holds"
    near = value(judged(2), "smallest distance of two vectors")
    monkeypatch.setattr(claims_direct, "DISTINCT", near + 1e-6)
    assert judged(2).condition == "only bounded and linear under shifts"
    monkeypatch.setattr(claims_direct, "DISTINCT", near - 1e-6)
    assert judged(2).verdict == "holds"


def test_3_last_wavelength_in_closed_form():
    found = judged(3)
    assert found.verdict == "holds with a condition"
    assert value(found, "first wavelength") == pytest.approx(1)
    assert value(found, "last wavelength, d_model 512") == pytest.approx(10_000 ** (-2 / 512), rel=1e-12)
    assert value(found, "last wavelength, d_model 128") == pytest.approx(10_000 ** (-2 / 128), rel=1e-12)
    assert value(found, "last wavelength, exponent i/(d/2 - 1)") == pytest.approx(1, rel=1e-12)
    assert "96.5%" in found.condition


def test_3_rule(monkeypatch):
    monkeypatch.setattr(SinusoidalSpec, "inv_freq", lambda s: s.base ** -torch.linspace(0, 1, 8, dtype=torch.float64))
    assert judged(3).verdict == "holds"
    monkeypatch.setattr(SinusoidalSpec, "inv_freq", lambda s: 2 * s.base ** -torch.linspace(0, 1, 8).double())
    assert judged(3).verdict == "does not hold"
    assert wavelengths(torch.ones(1)).item() == pytest.approx(2 * math.pi)


def test_4_numbers_and_rule(monkeypatch):
    found = judged(4)
    assert value(found, "index at position 511") == pytest.approx(511)
    assert value(found, "index/(L-1) at position 511") == pytest.approx(1)
    assert value(found, "cosine of two tokens there") > 0.9999
    assert found.verdict == "holds"
    monkeypatch.setattr(claims_direct, "BLOWN_UP", 511.5)
    assert judged(4).verdict == "does not hold"


@pytest.mark.parametrize(
    ("rows", "verdict"), [(128, VERDICTS[0]), (129, VERDICTS[1]), (127, VERDICTS[2]), (9999, VERDICTS[2])]
)
def test_5_rule(monkeypatch, rows, verdict):
    assert value(judged(5), "positions past it, to 8 times, that have one") == 0
    assert value(judged(5), "positions of the table that have a vector") == 128
    monkeypatch.setattr(claims_direct, "_defined", lambda encoding, position: position < rows)
    assert judged(5).verdict == verdict


def pearson(pairs):
    """Correlation of (group, a, b) within groups, by plain sums."""
    sums = {}
    for g, a, b in pairs:
        n, x, y = sums.get(g, (0, 0.0, 0.0))
        sums[g] = (n + 1, x + a, y + b)
    apart = [(a - sums[g][1] / sums[g][0], b - sums[g][2] / sums[g][0]) for g, a, b in pairs]
    cross, aa, bb = (sum(p * q for p, q in pick) for pick in (
        apart, [(a, a) for a, _ in apart], [(b, b) for _, b in apart]))  # fmt: skip
    return cross / math.sqrt(aa * bb)


def test_7_correlation_is_within_rows_of_keys_up_to_the_query():
    trained, plain = claims_direct._trained_scores(claims_direct.CHECKPOINT)
    length = len(plain)
    wanted = [
        pearson([(i, s[i, j].item(), plain[i, j].item()) for i in range(length) for j in range(i + 1)]) for s in trained
    ]
    found = judged(7)
    assert value(found, "trained heads: smallest correlation with the plain decay") == pytest.approx(min(wanted))
    assert value(found, "trained heads: largest correlation with the plain decay") == pytest.approx(max(wanted))
    assert min(wanted) > 0.8
    assert value(found, "random projections: correlation with the plain decay") < 0.2
    assert value(found, "no projections: variance that distance explains") == pytest.approx(1)


def test_7_what_a_causal_model_cannot_see_changes_nothing():
    _, plain = claims_direct._trained_scores(claims_direct.CHECKPOINT)
    noise = claims_direct._drawn(*plain.shape)
    unseen = plain + noise.triu(1) * 100 + noise[:, :1] * 100  # keys to come, and what all keys of a query share
    assert claims_direct._correlation(unseen[None], plain).item() == pytest.approx(1)
    assert claims_direct.by_distance(unseen[None]).item() == pytest.approx(1)
    both = claims_direct._correlation(torch.stack([-plain, noise]), plain)
    assert both[0].item() == pytest.approx(-1)
    assert abs(both[1].item()) < 0.05
    functions = plain.shape[-1] - 1  # of noise with n entries, m functions explain m/n
    assert claims_direct.by_distance(noise[None]).item() == pytest.approx(functions / noise.numel() * 2, rel=0.3)


def test_7_rule(monkeypatch):
    found = judged(7)
    assert found.condition == "random projections; training brings it back in 4 of 4 heads"
    monkeypatch.setattr(claims_direct, "KEPT", 1.0)
    assert judged(7).verdict == "holds"
    monkeypatch.setattr(claims_direct, "KEPT", 0.01)
    assert judged(7).verdict == "does not hold"


def test_7_projections_of_identity_would_keep_the_decay(monkeypatch):
    eye = torch.eye(claims_direct.WIDTH, dtype=torch.float64).expand(claims_direct.DRAWS, 2, 1, -1, -1)
    monkeypatch.setattr(claims_direct, "_drawn", lambda *shape, seed=0: eye * claims_direct.WIDTH**0.5)
    found = judged(7)
    assert value(found, "random projections: correlation with the plain decay") == pytest.approx(1)
    assert found.verdict == "does not hold"
    trained, plain = claims_direct._trained_scores(claims_direct.CHECKPOINT)
    monkeypatch.setattr(claims_direct, "_trained_scores", lambda path: (trained * 0 + trained.flip(-1), plain))
    assert judged(7).condition == "trained projections; random ones keep it"


def rotated(x, positions, inv_freq):
    """Features i and i + R/2 as one complex number, times e^{i·p·w}."""
    half = len(inv_freq)
    out = [[complex(a, b) * cmath.exp(1j * p * w) for a, b, w in zip(r[:half], r[half:], inv_freq, strict=True)]
           for r, p in zip(x.tolist(), positions, strict=True)]  # fmt: skip
    return torch.tensor([[z.real for z in r] + [z.imag for z in r] for r in out], dtype=torch.float64)


def test_8_and_9_with_complex_numbers():
    x = claims_direct._drawn(5, 64, seed=7)
    w = RopeSpec(d_head=64).inv_freq().tolist()
    assert (rotated(x, range(0, 5000, 1000), w).norm(dim=-1) - x.norm(dim=-1)).abs().max() < 1e-12
    q, k = x[:1], x[1:2]
    here = (rotated(q, [100], w) * rotated(k, [60], w)).sum()
    there = (rotated(q, [1_000_100], w) * rotated(k, [1_000_060], w)).sum()
    assert here.item() == pytest.approx(there.item(), rel=1e-8)
    assert value(judged(8), "positions moved by up to 1,000,000: change of a score") < 1e-9
    assert value(judged(9), "change under yarn, factor 4") == pytest.approx(0.1 * math.log(4), rel=1e-12)
    wanted = math.sqrt(1 + math.log(4) / math.log(128)) - 1
    assert value(judged(9), "change under longrope, factor 4") == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("number", "names"), [(8, ("dynamic", "longrope")), (9, ("yarn", "longrope")), (25, ("dynamic", "longrope"))]
)
def test_8_9_25_the_condition_is_the_scalings_that_break_it(monkeypatch, number, names):
    found = judged(number)
    assert found.verdict == "holds with a condition"
    assert all(name in found.condition for name in names)
    others = [name for name in SCALED if name not in names]
    assert not any(f" {name}" in found.condition for name in others if name != "none")
    monkeypatch.setattr(claims_direct, "SCALED", {n: SCALED[n] for n in others})
    assert judged(number).verdict == "holds"


def test_8_9_25_do_not_hold_once_plain_rope_breaks(monkeypatch):
    broken = {**SCALED, "none": SCALED["dynamic"]}
    monkeypatch.setattr(claims_direct, "SCALED", broken)
    assert judged(8).verdict == judged(25).verdict == "does not hold"
    monkeypatch.setattr(claims_direct, "SCALED", {**SCALED, "none": SCALED["yarn"]})
    assert judged(9).verdict == "does not hold"


def test_10_scores_of_equal_vectors_are_sums_of_cosines():
    w = [10_000 ** (-i / 32) for i in range(32)]
    sums = [sum(math.cos(k * x) for x in w) for k in range(512)]
    wanted = (sum(sums[256:]) / 256) / (sum(sums[:16]) / 16)
    found = judged(10)
    assert value(found, "equal vectors: mean score at 256 to 511") == pytest.approx(wanted, rel=1e-9)
    rising = sum(b > a for a, b in itertools.pairwise(sums)) / 511
    assert value(found, "equal vectors: steps at which the score rises") == pytest.approx(rising)
    assert value(found, "random vectors: size of scores at 256 to 511") == pytest.approx(1, abs=0.05)


def test_10_rule(monkeypatch):
    equal = value(judged(10), "equal vectors: mean score at 256 to 511")
    for fallen, verdict in ((1.1, VERDICTS[0]), (equal + 1e-6, VERDICTS[1]), (equal - 1e-6, VERDICTS[2])):
        monkeypatch.setattr(claims_direct, "FALLEN", fallen)
        assert judged(10).verdict == verdict


def test_10_the_base_is_a_condition_where_it_decides(monkeypatch):
    w = [500_000 ** (-i / 32) for i in range(32)]
    sums = [sum(math.cos(k * x) for x in w) for k in range(512)]
    wanted = (sum(sums[256:]) / 256) / (sum(sums[:16]) / 16)
    found = judged(10)
    assert value(found, "equal vectors, base 500,000") == pytest.approx(wanted, rel=1e-9)
    assert wanted > claims_direct.FALLEN
    assert f"base 10,000: with 500,000 even those of equal ones keep {wanted:.0%}" in found.condition
    assert "independent ones keep 99% of their size" in found.condition
    monkeypatch.setattr(claims_direct, "FALLEN", wanted + 1e-6)
    assert "base" not in judged(10).condition


def test_18_slopes_of_12_heads_as_the_authors_code_gives_them(monkeypatch):
    # get_slopes(12) of github.com/ofirpress/attention_with_linear_biases
    twelve = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
              0.7071067811865476, 0.35355339059327384, 0.17677669529663692, 0.08838834764831849]  # fmt: skip
    found = judged(18)
    assert found.verdict == "holds with a condition"
    wanted = max(abs(s - 0.5 ** (h + 1)) for h, s in enumerate(sorted(twelve, reverse=True)))
    assert wanted < 0.3 < max(abs(s - 0.5 ** (h + 1)) for h, s in enumerate(twelve))  # the order decides much of it
    assert value(found, "12 heads, sorted: largest difference from 1/2, 1/4, …") == pytest.approx(wanted, rel=1e-12)
    assert value(found, "8 heads, sorted: largest difference from 1/2, 1/4, …") == 0
    assert value(found, "12 heads: farthest head's 1/slope, authors' code") == 256
    halves = lambda n: 0.5 ** torch.arange(1, n + 1, dtype=torch.float64)  # noqa: E731
    monkeypatch.setattr(claims_direct, "alibi_slopes", halves)
    assert judged(18).verdict == "holds"
    monkeypatch.setattr(claims_direct, "alibi_slopes", lambda n: halves(n) + 1e-6)
    assert judged(18).verdict == "does not hold"


def test_19_numbers_and_rule(monkeypatch):
    found = judged(19)
    assert found.verdict == "holds with a condition"
    assert [n.value for n in found.numbers[:2]] == [8, 0]
    assert found.numbers[2].value < 1e-12
    negative = lambda self: -torch.ones(8, dtype=torch.float64)  # noqa: E731
    monkeypatch.setattr(claims_direct.AlibiSpec, "slope_tensor", negative)  # then both formulas favour the wrong end
    assert judged(19).verdict == "does not hold"


def test_25_dynamic_keys_by_complex_numbers():
    spec, n = SCALED["dynamic"], 256
    x = claims_direct._drawn(n + 1, 64)[:n]
    made = [rotated(x, range(n), spec.inv_freq(length).tolist()) for length in (n, n + 1)]
    wanted = (made[1] - made[0]).abs().max() / made[0].abs().max()
    assert claims_direct.cache_change(spec, n) == pytest.approx(wanted.item(), rel=1e-9)
    assert claims_direct.cache_change(spec, 64) == 0  # well within the original length
    assert claims_direct.cache_change(SCALED["longrope"], 256) == 0  # its list changes at the original length only


def test_26_the_slip_by_its_own_formula(monkeypatch):
    d, base = claims_direct.WIDTH, 10_000

    def slipped(p):
        return [math.sin(p / base ** (i / d)) if i % 2 == 0 else math.cos(p / base ** (i / d)) for i in range(d)]

    made = claims_direct.SlippedSinusoidal(SinusoidalSpec(d_model=d)).vectors(torch.tensor([0, 3, 1000]))
    torch.testing.assert_close(made, torch.tensor([slipped(p) for p in (0, 3, 1000)], dtype=torch.float64))
    found = judged(26)
    norms = [math.hypot(*slipped(p)) / math.sqrt(d / 2) for p in range(4096)]
    assert value(found, "shortest vector") == pytest.approx(min(norms), rel=1e-9)
    assert value(found, "longest vector") == pytest.approx(max(norms), rel=1e-9)
    assert found.verdict == "does not hold"
    assert all(word in found.condition for word in ("norms", "dot products", "linear"))
    (shift,) = (n for n in found.numbers if n.name == "best linear shift by 64: error of a feature")
    positions = torch.randint(2**20, (1024,), generator=torch.Generator().manual_seed(0)).tolist()
    size = math.sqrt(sum(x * x for p in positions for x in slipped(p + 64)) / 1024 / d)
    assert shift.unit == f"of {size:.2f}, root mean squares over positions below 1,048,576"
    monkeypatch.setattr(claims_direct, "SlippedSinusoidal", lambda spec: spec.build())
    assert judged(26).verdict == "holds"


def test_27_entropy_of_normal_scores(monkeypatch):
    found = judged(27)
    assert value(found, "entropy with 1/√d") == pytest.approx(math.log(512) - 0.5, abs=0.05)  # scores of variance 1
    assert value(found, "entropy without, queries drawn √d smaller (T5)") == value(found, "entropy with 1/√d")
    assert found.verdict == "holds with a condition"
    assert "queries drawn √d smaller, as in T5" in found.condition
    assert not any("gradient" in n.name for n in found.numbers)
    monkeypatch.setattr(claims_direct, "DIFFERENT", 5.0)
    assert judged(27).verdict == "holds"
    monkeypatch.setattr(claims_direct, "DIFFERENT", -1.0)
    assert judged(27).verdict == "does not hold"


# ------------------------------------------------------------------ rules on made-up results


def result(run: Run, loss=2.0, accuracy=0.5, curve=((600, 1.0),)) -> Result:
    """A made-up result: numbers at 1, 2, 4, 8 and 16 training lengths, or one for all."""

    def bins(numbers):
        numbers = numbers if isinstance(numbers, dict) else dict.fromkeys((1, *PAST), numbers)
        return tuple(numbers[min(t for t in numbers if BINS * t > i)] for i in range(BINS * TIMES))

    return Result(run.key, run.sized, run.setting, run.seed, curve, bins(loss), bins(accuracy), (), 1.0, {})


def rising(start, **rises):
    """Losses that rise by so much at 2, 4, …: later ones keep the last rise."""
    made, last = {1: start}, 0.0
    for times in PAST:
        last = rises.get(f"at{times}", last)
        made[times] = start + last
    return made


def evidence(number, made):
    """Evidence for a claim's runs from `made(run)` -> the arguments of `result`."""
    return Evidence({r.key: result(r, **made(r)) for r in BY_NUMBER[number].runs()})


def scheme(run):
    return {"AlibiSpec": "alibi", "RopeSpec": "rope", "SinusoidalSpec": "sinusoidal", "NoneSpec": "none",
            "HybridSpec": "hybrid"}[type(run.spec).__name__]  # fmt: skip


def test_made_up_results_say_what_they_were_made_of():
    (run, *_) = family("rope")
    made = result(run, loss=rising(1.5, at2=0.1, at8=1.0), accuracy={1: 1.0, 2: 0.5, 4: 0.5, 8: 0.2, 16: 0.1})
    assert [made.at(t) for t in (1, 2, 4, 8, 16)] == pytest.approx([1.5, 1.6, 1.6, 2.5, 2.5])
    assert [made.at(t, "accuracy") for t in (1, 2, 4, 8, 16)] == pytest.approx([1.0, 0.5, 0.5, 0.2, 0.1])
    assert Result.from_mapping(json.loads(json.dumps(made.to_mapping()))) == made


@pytest.mark.parametrize("claim", LAB, ids=lambda c: str(c.number))
def test_a_missing_run_leaves_a_claim_unmeasured(claim):
    full = evidence(claim.number, lambda run: {})
    assert claim.judge(full).verdict in VERDICTS
    for run in claim.runs():
        rest = {k: r for k, r in full.results.items() if k != run.key}
        assert claim.judge(Evidence(rest)) == Judgement("not measured", ())
    assert claim.judge(NOTHING).verdict == "not measured"


@pytest.mark.parametrize("claim", LAB, ids=lambda c: str(c.number))
def test_conditions_are_said_and_only_where_there_are_any(claim):
    """Random losses and accuracies, so that every rule meets every side."""
    generator = torch.Generator().manual_seed(claim.number)

    def made(run):
        draw = torch.rand(12, generator=generator, dtype=torch.float64).tolist()
        wide = draw[10] < 0.5
        return {
            "loss": {t: 1.5 + x * (0.09 if wide else 1.0) for t, x in zip((1, *PAST), draw, strict=False)},
            "accuracy": dict(zip((1, *PAST), draw[5:10], strict=False)),
            "curve": tuple((10 * i, 3 - 0.01 * i + draw[11] * (i % 2) * 0.1) for i in range(1, 61)),
        }

    for _ in range(30):
        found = claim.judge(evidence(claim.number, made))
        assert found.verdict in VERDICTS
        assert bool(found.condition) == (found.verdict != "holds")
        assert found.numbers


@pytest.mark.parametrize(
    ("rises", "verdict"),
    [
        ({"at2": FLAT - 1e-3}, VERDICTS[0]),
        ({"at2": 0.0, "at16": FLAT + 1e-3}, VERDICTS[1]),
        ({"at2": 0.0, "at4": FLAT + 1e-3, "at8": 0.0}, VERDICTS[1]),
        ({"at2": FLAT + 1e-3}, VERDICTS[2]),
        ({"at2": -1.0}, VERDICTS[0]),
    ],
)
def test_6_and_15_flat_up_to(rises, verdict):
    for number in (6, 15):
        found = judged(number, evidence(number, lambda run: {"loss": rising(1.5, **rises)}))
        assert found.verdict == verdict
        assert value(found, "rise at 16") == pytest.approx(rising(0.0, **rises)[16])


def test_6_one_seed_that_rises_is_enough():
    made = lambda run: {"loss": rising(1.5, at16=FLAT * 1.01 if run.seed == 1 else 0.0)}  # noqa: E731
    assert judged(6, evidence(6, made)).condition == "up to 8 training lengths"


@pytest.mark.parametrize(("rises", "verdict"), [((0.11,) * 3, 0), ((0.11, 0.09, 0.2), 1), ((0.09,) * 3, 2)])
def test_12_rope_degrades(rises, verdict):
    found = judged(12, evidence(12, lambda run: {"loss": rising(1.5, at2=rises[run.seed])}))
    assert found.verdict == VERDICTS[verdict]
    assert value(found, "rise at 2 training lengths") == pytest.approx(sum(rises) / 3)
    assert found.numbers[0].spread == pytest.approx(max(rises) - min(rises))


@pytest.mark.parametrize(("far", "verdict"), [(0.81, 0), (0.79, 1)])
def test_15_recall_that_falls_is_a_condition(far, verdict):
    accuracy = {1: 0.9, 2: 0.9, 4: 0.9, 8: 0.9, 16: far}
    found = judged(15, evidence(15, lambda run: {"accuracy": accuracy if scheme(run) == "alibi" else 0.4}))
    assert found.verdict == VERDICTS[verdict]
    assert not verdict or "falls from 90% to 79%, RoPE's to 40%, without positions to 40%" in found.condition
    assert value(found, "alibi: recall at 16 training lengths") == pytest.approx(far)
    assert value(found, "rope: recall at 16 training lengths") == pytest.approx(0.4)
    assert value(found, "none: recall at 16 training lengths") == pytest.approx(0.4)


def extended(base=1.5, plain=2.5, pi=2.5, tuned=2.5, unscaled=2.5):
    def made(run):
        s = run.setting
        now = {"off": plain, "linear": tuned if s.finetune_steps else pi, "none": unscaled}[s.extension]
        return {"loss": {1: base, 2: now, 4: now, 8: now, 16: now}}

    return made


@pytest.mark.parametrize(
    ("losses", "verdict", "word"),
    [
        ({"tuned": 1.59}, 0, ""),
        (
            {"tuned": 1.59, "unscaled": 1.58},
            1,
            "without PI repairs more (92% and 92%): +0.08 against +0.09 nats at 2 times",
        ),
        ({"tuned": 1.59, "unscaled": 1.59}, 1, "without PI repairs as much (91% and 91%)"),
        ({"tuned": 1.61}, 1, "not to the loss before, but lower than without it at 2 and 4 times"),
        ({"pi": 1.5, "tuned": 1.7, "unscaled": 1.6}, 1, "it repairs most (80% and 80% of the rise at 2 and 4 times)"),
        ({"tuned": 1.99, "unscaled": 1.6}, 1, "it repairs most (51% and 51% of the rise"),
        ({"tuned": 2.01, "unscaled": 1.6}, 2, "+0.10 against +0.51 nats at 2 times"),
        ({"plain": 1.5, "tuned": 1.6, "unscaled": 1.5}, 2, "less than 50% of the rise goes away"),
    ],
)
def test_13_interpolation(losses, verdict, word):
    found = judged(13, evidence(13, extended(**losses)))
    assert found.verdict == VERDICTS[verdict]
    assert word in found.condition


@pytest.mark.parametrize(("tuned", "verdict"), [(0.0999, 0), (0.1001, 0), (0.119, 0), (0.141, 1)])
def test_13_hangs_on_the_seeds_not_on_a_ten_thousandth(tuned, verdict):
    """PI ends `tuned` above the loss before, with seeds 0.02 apart on either side of it."""

    def made(run):
        return extended(tuned=1.5 + tuned + 0.02 * (run.seed - 1), unscaled=2.0)(run)

    assert judged(13, evidence(13, made)).verdict == VERDICTS[verdict]


@pytest.mark.parametrize(("apart", "verdict"), [(0.05, 0), (0.03, 1)])
def test_13_lower_than_without_it_means_by_more_than_seeds_differ(apart, verdict):
    def made(run):
        return extended(tuned=1.55 + 0.02 * (run.seed - 1), unscaled=1.55 + apart)(run)

    assert judged(13, evidence(13, made)).verdict == VERDICTS[verdict]


def test_13_one_length_of_two_is_a_condition():
    def made(run):
        losses = extended(tuned=1.55, unscaled=1.7)(run)["loss"]
        return {"loss": losses | ({4: 1.55} if run.setting.times == 4 else {})}

    assert judged(13, evidence(13, made)).condition == "at 2 times; at 4 times, fine-tuning without it does as well"


@pytest.mark.parametrize(
    ("ntk", "verdict"),
    [
        (lambda seed: 1.59, 0),
        (lambda seed: 1.61, 1),
        (lambda seed: 2.0, 1),
        (lambda seed: 2.0 + seed * 0.3, 2),  # half of the rise, but seeds differ by more
        (lambda seed: 2.6, 2),
    ],
)
def test_14_ntk(ntk, verdict):
    made = lambda run: {"loss": rising(1.5, at2=(ntk(run.seed) if run.setting.extension == "ntk" else 2.5) - 1.5)}  # noqa: E731
    found = judged(14, evidence(14, made))
    assert found.verdict == VERDICTS[verdict]
    wanted = (2.5 - sum(map(ntk, SEEDS)) / 3) / 1.0
    assert value(found, "share of RoPE's rise that NTK takes away") == pytest.approx(wanted)
    assert value(found, "ntk ×2 there: longest wavelength") == pytest.approx(2)
    assert value(found, "dynamic ×2 there: longest wavelength") == pytest.approx(2 * 128 / 64 - (2 - 1))  # HF's formula


@pytest.mark.parametrize(
    ("text", "short", "back", "noise", "verdict"),
    [
        (1.03, 1.02, 0.975, 0.0, 0),
        (1.049, 1.011, 0.951, 0.0, 0),
        (1.06, 1.02, 0.975, 0.0, 1),
        (1.03, 1.02, 0.2, 0.0, 1),
        (1.03, 1.02, 1.0, 0.0, 1),
        (1.03, 1.02, 0.94, 0.0, 0),  # 6% of RoPE's right answers, which are 4.2% of all
        (1.03, 1.02, 0.9, 0.0, 1),
        (0.97, 0.98, 1.0, 0.0, 2),
        (1.03, 1.02, 0.975, 0.1, 2),
    ],
)
def test_17_alibi_is_worse(text, short, back, noise, verdict):
    def made(run):
        alibi = scheme(run) == "alibi"
        factor = {"text": text, "short_texts": short, "token_back": back}[run.setting.task] if alibi else 1.0
        return {"loss": 1.5 * factor + noise * run.seed, "accuracy": 0.7 * factor - noise * run.seed}

    found = judged(17, evidence(17, made))
    assert found.verdict == VERDICTS[verdict]
    if not noise:
        assert value(found, "text: alibi is worse by") == pytest.approx((text - 1) * 100)
        assert value(found, "token_back: alibi is worse by") == pytest.approx(0.7 * (1 - back) * 100)


def test_17_says_which_difference_and_where_it_was_tested():
    def made(run):
        alibi = scheme(run) == "alibi"
        return {"loss": 1.8 if alibi else 1.5, "accuracy": 0.2 if alibi else 1.0}

    found = judged(17, evidence(17, made))
    assert found.condition == (
        "the direction holds, the size does not: 20% to 80%, not 2–3% (worse at text by 20% of rope's loss, "
        "short_texts by 20% of rope's loss and token_back by 80% of all answers); at 64 tokens, the only length tested"
    )


def trained_otherwise(other, gains, noise=0.0, inside=0.0):
    """A rise of 1 nat by default, less the gain of the scheme for runs trained in the other way."""

    def made(run):
        changed = other(run)
        past = 2.5 - (gains[scheme(run)] if changed else 0.0) + noise * run.seed
        return {"loss": {1: 1.5 + (inside if changed else 0.0), **dict.fromkeys(PAST, past)}}

    return made


@pytest.mark.parametrize(
    ("gains", "noise", "verdict"),
    [((0.21, 0.21, 0.21), 0, 0), ((0.21, 0.19, 0.21), 0, 1), ((0.19, 0.19, 0.19), 0, 2), ((0.21,) * 3, 0.11, 2)],
)
def test_20_progressive_length(gains, noise, verdict):
    gains = dict(zip(("rope", "alibi", "sinusoidal"), gains, strict=True))
    made = trained_otherwise(lambda run: run.setting.curriculum == "progressive", gains, noise)
    found = judged(20, evidence(20, made))
    assert found.verdict == VERDICTS[verdict]
    share = value(found, "rope: share of the rise that goes away")
    assert value(found, "rope, progressive: loss past the training length") == pytest.approx(
        2.5 - gains["rope"] + noise
    )
    assert share == pytest.approx(100 * gains["rope"] / (1 + noise))  # the mean rise is that much larger


def test_20_a_scheme_that_does_not_rise_has_nothing_to_gain():
    def made(run):
        changed = run.setting.curriculum == "progressive"
        rise = (0.09 if changed else 0.05) if scheme(run) == "alibi" else 0.5 if changed else 1.0
        return {"loss": rising(1.5, at2=rise)}

    found = judged(20, evidence(20, made))
    assert found.verdict == "holds"
    assert not any(n.name == "alibi: share of the rise that goes away" for n in found.numbers)
    assert value(found, "alibi: change of the loss past the training length") == pytest.approx(0.04)
    assert value(found, "rope: change of the loss past the training length") == pytest.approx(-0.5)


def test_20_says_how_much_the_loss_changes_and_names_what_gets_worse():
    def made(run):
        changed, s = run.setting.curriculum == "progressive", scheme(run)
        rise = (0.09 if changed else 0.05) if s == "alibi" else 0.5 if changed and s == "rope" else 1.0
        return {"loss": rising(1.5, at2=rise)}

    assert judged(20, evidence(20, made)).condition == (
        "past the training length it takes away 50% of rope's rise (-0.50 nats) and 0% of sinusoidal's rise "
        "(+0.00 nats); alibi, which hardly rises, gets worse (1.550 → 1.590 nats)"
    )


def test_20_without_any_rise_there_is_nothing_to_judge():
    assert judged(20, evidence(20, lambda run: {})).verdict == "does not hold"


@pytest.mark.parametrize(("inside", "share", "verdict"), [(0.3, 60, 1), (0.0, 30, 0), (-0.3, 0, 2)])
def test_20_the_rise_is_from_its_own_loss_at_the_training_length(inside, share, verdict):
    """It rises by 1 nat plain, and ends 0.3 lower with progressive length, which changes where it starts as well."""
    made = trained_otherwise(lambda run: run.setting.curriculum == "progressive",
                             dict.fromkeys(("rope", "alibi", "sinusoidal"), 0.3), inside=inside)  # fmt: skip
    found = judged(20, evidence(20, made))
    assert found.verdict == VERDICTS[verdict]
    assert value(found, "rope: share of the rise that goes away") == pytest.approx(share)
    assert value(found, "rope, progressive: loss at the training length") == pytest.approx(1.5 + inside)
    if verdict == 1:  # part of what goes away is a worse start
        assert found.condition == (
            "past the training length it takes away 60% of rope's rise (-0.30 nats), 60% of alibi's rise (-0.30 nats) "
            "and 60% of sinusoidal's rise (-0.30 nats); at the training length it costs: rope +0.30 nats, alibi +0.30 "
            "nats and sinusoidal +0.30 nats"
        )


@pytest.mark.parametrize(("hybrid", "verdict", "won"), [(0.01, 0, 12), (0.0, 2, 0), (-0.01, 2, 0)])
def test_21_hybrid(hybrid, verdict, won):
    def made(run):
        gain = hybrid if scheme(run) == "hybrid" else 0.0
        return {"loss": 1.5 - gain, "accuracy": 0.5 + gain}

    found = judged(21, evidence(21, made))
    assert found.verdict == VERDICTS[verdict]
    assert value(found, "better than both") == won
    assert value(found, "worse than one") == (12 if hybrid < 0 else 0)


def test_21_better_here_and_worse_there_is_a_condition():
    def made(run):
        gain = (0.1 if run.setting.task == "text" else -0.1 if run.setting.task == "copy" else 0) * (
            scheme(run) == "hybrid"
        )
        return {"loss": 1.5 - gain, "accuracy": 0.5 + gain}

    found = judged(21, evidence(21, made))
    assert found.verdict == "holds with a condition"
    assert "text within and text past" in found.condition
    assert "copy within and copy past" in found.condition


@pytest.mark.parametrize(
    ("steps", "final", "verdict"), [(400, 1.5, 0), (400, 1.6, 1), (550, 1.5, 2), (550, 1.4, 1), (None, 1.6, 2)]
)
def test_22_dynamic_slopes(steps, final, verdict):
    """Fixed slopes reach 1.0 at step 500 and stay; dynamic ones at `steps`."""

    def made(run):
        dynamic = run.setting.slope_training == "dynamic"
        at = steps if dynamic else 500
        curve = tuple((s, 1.0 if at and s >= at else 2.0) for s in range(10, 601, 10))
        return {"loss": final if dynamic else 1.5, "curve": curve}

    found = judged(22, evidence(22, made))
    assert found.verdict == VERDICTS[verdict]
    assert value(found, "steps with negative slopes") == math.ceil(600 * math.exp(-2)) - 1  # 1 + 0.5·ln(t/600) < 0
    assert value(found, "seeds in which dynamic slopes reach it") == (3 if steps else 0)
    assert value(found, "fixed: steps to its loss of the last quarter") == 500


def test_22_faster_by_less_than_seeds_differ_is_no_faster():
    def made(run):
        at = 400 + 60 * run.seed if run.setting.slope_training == "dynamic" else 500
        return {"curve": tuple((s, 1.0 if s >= at else 2.0) for s in range(10, 601, 10))}

    assert judged(22, evidence(22, made)).verdict == "does not hold"


@pytest.mark.parametrize(
    ("near", "far", "rope", "verdict"), [(0.9, 0.85, 0.5, 0), (0.9, 0.7, 0.5, 1), (0.9, 0.85, 0.95, 2)]
)
def test_23_p_rope(near, far, rope, verdict):
    def made(run):
        proportional = scheme(run) == "rope" and run.spec.scaling == "proportional"
        return {"accuracy": {1: near, **dict.fromkeys(PAST, far)} if proportional else rope}

    found = judged(23, evidence(23, made))
    assert found.verdict == VERDICTS[verdict]
    assert value(found, "p-RoPE, half: recall at 16 training lengths") == pytest.approx(far)


@pytest.mark.parametrize(
    ("gains", "inside", "noise", "verdict"),
    [
        ((0.1, 0.1), 0, 0, 0),
        ((0.1, 0.1), 0.05, 0, 1),
        ((0.1, -0.1), 0, 0, 1),
        ((0, -0.1), 0, 0, 2),
        ((0.1, 0.1), 0, 0.06, 2),
    ],
)
def test_24_perturbed_positions(gains, inside, noise, verdict):
    gains = dict(zip(("rope", "sinusoidal"), gains, strict=True))
    made = trained_otherwise(lambda run: run.setting.position_gap == 4, gains, noise, inside)
    assert judged(24, evidence(24, made)).verdict == VERDICTS[verdict]


@pytest.mark.parametrize(("near", "far", "verdict"), [(0.1, -1.0, 0), (0.0, 1.0, 2)])
def test_24_only_lengths_whose_positions_came_in_training_are_judged(near, far, verdict):
    def made(run):
        gain = dict.fromkeys((2, 4), near) | dict.fromkeys((8, 16), far)
        gaps = run.setting.position_gap > 1
        return {"loss": {1: 1.5} | {t: 2.5 - (g if gaps else 0.0) for t, g in gain.items()}}

    found = judged(24, evidence(24, made))
    assert found.verdict == VERDICTS[verdict]
    assert value(found, "rope, gaps: the same") == pytest.approx(2.5 - near)
    assert value(found, "rope, gaps: loss at 16 times, beyond the positions of training") == pytest.approx(2.5 - far)


def test_samples():
    a, b = Sample((1.0, 2.0, 3.0)), Sample((4.0, 4.0, 4.5))
    assert a.mean == 2
    assert a.spread == 2
    assert a.below(b)
    assert not a.below(Sample((4.0, 4.0, 4.0)))  # 2 apart, and 2 among seeds
    assert (b - a).values == (3, 2, 1.5)
    assert a.number("x", "nat", "5%") == Number("x", 2, "nat", 2, "5%")


def test_groups_ask_for_every_seed_and_refuse_what_is_undefined():
    made = family("rope", task="copy")
    assert [r.seed for r in made] == list(SEEDS)
    full = {r.key: result(r) for r in made}
    assert group(Evidence(full), "rope", task="copy").at(4).values == (2.0, 2.0, 2.0)
    cut = {k: result(r, loss={1: 1.0, 2: None, 16: None}) for k, r in zip(full, made, strict=True)}
    with pytest.raises(NotMeasured):
        group(Evidence(cut), "rope", task="copy").at(2)
    with pytest.raises(NotMeasured):
        group(Evidence({}), "rope")


# ------------------------------------------------------------------ 11, 16: from the benchmark


def record(name, length=2048, ratio=None, peak=None, what="layer", **more):
    spec = next(iter(parse_schemes(name)))
    ratios = {"ratio": ratio, "ratio_lower": ratio, "ratio_upper": ratio} | more if ratio else more
    return {"spec": spec.to_mapping(), "length": length, "device": "cpu", "dtype": "float32", "what": what,
            "median": 1.0, "lower": 1.0, "upper": 1.0, "repetitions": 5, "peak_bytes": peak, **ratios}  # fmt: skip


def timed(*made):
    return Evidence({}, {"config": {"heads": 8, "d_head": 64}, "records": list(made)})


@pytest.mark.parametrize(
    ("ratios", "arithmetic", "verdict"),
    [
        ((1.07, 1.089), 0.07, 0),
        ((1.051, 1.07), 0.051, 0),
        ((1.07, 1.07), 0.001, 1),
        ((1.091, 1.07), 0.07, 1),
        ((1.2, 1.3), 0.07, 1),
        ((1.2, 1.3), 0.1, 2),
        ((1.049, 1.02), 0.001, 2),
    ],
)
def test_11_rule(monkeypatch, ratios, arithmetic, verdict):
    monkeypatch.setattr(claims_lab, "rotation_share", lambda d_model, length: arithmetic)
    made = [record("rope", n, r) for n, r in zip((128, 512), ratios, strict=True)]
    found = judged(11, timed(record("none", 128, 1.0), *made, record("rope", 256, 9.0, what="tables_built")))
    assert found.verdict == VERDICTS[verdict]
    if verdict:
        low, high = (100 * (f(ratios) - 1) for f in (min, max))
        wanted = f"{low:.1f}% to {high:.1f}%" if high > low else f"{low:.1f}%"
        assert f"as time it is {wanted} of one attention layer without MLP, the rotation compiled" in found.condition
        assert f"as arithmetic {100 * arithmetic:.2f}%" in found.condition
    assert value(found, "time that it adds to a layer of 128 tokens") == pytest.approx(100 * (ratios[0] - 1))


def test_11_quartiles_do_not_count_and_arithmetic_is_that_of_a_counted_layer():
    wide, narrow = record("rope", 512, 1.2, ratio_lower=1.08), record("rope", 512, 1.2)
    assert [judged(11, timed(r)).verdict for r in (wide, narrow)] == ["does not hold"] * 2  # noise is no agreement
    # multiplications and additions of one token: 4 projections; scores and sum over half the keys; 3 a rotated feature
    d, length = 512, 2048
    layer = 4 * d * 2 * d + 2 * (length / 2) * 2 * d
    assert claims_lab.rotation_share(d, length) == pytest.approx(2 * d * 3 / layer)


@pytest.mark.parametrize(("alibi", "parameters", "verdict"), [(89, 0, 0), (91, 0, 1), (89, 8, 1), (300, 8, 2)])
def test_16_rule(monkeypatch, alibi, parameters, verdict):
    real = claims_lab._parameters
    monkeypatch.setattr(claims_lab, "_parameters", lambda s: parameters if s.scheme == "alibi" else real(s))
    made = timed(record("alibi", peak=alibi), record("rope", peak=100), record("sinusoidal", peak=100))
    found = judged(16, made)
    assert found.verdict == VERDICTS[verdict]
    assert value(found, "memory at 2,048 tokens, beside RoPE") == pytest.approx(alibi / 100)
    assert not any(n.value < 0 for n in found.numbers)
    assert value(found, "those of a learned table of 2,048 rows") == 2048 * 512


@pytest.mark.parametrize("mib", [404, 81])
def test_16_tells_how_many_times_as_much_it_takes(mib):
    """As it was with the bias in full, and as it is with rows of it at a time."""
    made = timed(record("alibi", peak=mib * 2**20), record("rope", peak=24 * 2**20), record("sinusoidal", peak=2**24))
    found = judged(16, made)
    assert found.verdict == "holds with a condition"
    assert f"takes {mib / 24:.1f} times as much as with RoPE and {mib / 16:.1f} times" in found.condition


def test_16_tells_what_a_bias_in_memory_takes_and_leaves_other_implementations_out():
    made = [record("alibi", peak=24), record("rope", peak=24), record("sinusoidal", peak=24)]
    others = [record("alibi", peak=999, implementation="reference"), record("rope", peak=1, backward=True)]
    alone = record("none", peak=8, what="attention"), record("alibi", peak=80, what="attention", implementation="bias")
    plain, full = (judged(16, timed(*made, *others, *more)) for more in ((), alone))
    assert [value(f, "memory at 2,048 tokens, beside RoPE") for f in (plain, full)] == [1, 1]
    assert value(full, "attention with a bias made in memory, beside none") == 10
    assert "a bias made in memory takes 10 times as much as without" in full.condition
    assert "made in memory" not in plain.condition


@pytest.mark.parametrize("number", [11, 16])
@pytest.mark.parametrize(
    "benchmark", [{}, {"records": []}, {"records": [{}]}, {"records": 7}, {"records": [record("none", ratio=1.0)]}]
)
def test_11_and_16_without_records_are_not_measured(number, benchmark):
    assert judged(number, Evidence({}, benchmark)).verdict == "not measured"


def test_11_and_16_are_judged_from_the_recorded_run():
    found = recorded()
    (wanted,) = (
        r["ratio"] - 1 for r in found.benchmark["records"]
        if r["spec"]["scheme"] == "rope" and r["length"] == 2048 and r["what"] == "layer"
        and r.get("implementation", "fast") == "fast" and not r.get("backward")
    )  # fmt: skip
    assert value(judged(11, found), "time that it adds to a layer of 2,048 tokens") == pytest.approx(100 * wanted)
    assert judged(16, found).verdict in VERDICTS


# ------------------------------------------------------------------ command line


def test_command_line_prints_and_writes_all_claims(tmp_path, capsys):
    runs_12 = BY_NUMBER[12].runs()
    sweep = tmp_path / "results.jsonl"
    sweep.write_text("\n".join(json.dumps(result(r, loss=rising(1.5, at2=0.25)).to_mapping()) for r in runs_12) + "\n")
    assert main(["--results", str(sweep), "--json", str(tmp_path / "claims.json")]) == 0
    printed = capsys.readouterr().out
    made = json.loads((tmp_path / "claims.json").read_text())
    assert [c["number"] for c in made] == list(range(1, 28))
    for claim in made:
        assert claim["sentence"] in printed
        assert claim["verdict"] in printed
    degrades = made[11]
    assert degrades["verdict"] == "holds"
    assert degrades["numbers"][0]["value"] == pytest.approx(0.25)
    assert degrades["runs"] == [r.key for r in runs_12]
    assert "rise at 2 training lengths: 0.25 nats a byte" in printed


@pytest.mark.parametrize("bad", ["missing", "text"])
def test_command_line_refuses_what_are_no_results(tmp_path, capsys, bad):
    path = tmp_path / "x.jsonl"
    if bad == "text":
        path.write_text("no json\n")
    with pytest.raises(SystemExit):
        main(["--results", str(path)])
    assert "these are no results" in capsys.readouterr().err


def test_numbers_in_words():
    assert number_text(Number("loss", 1.23456, "nats", 0.02, "2%")) == "loss: 1.235 ± 0.01 nats (claimed: 2%)"
    assert number_text(Number("kept", 0.25, "of the answers", 0.02)) == "kept: 25 ± 1% of the answers"
    assert number_text(Number("rows", 128.0)) == "rows: 128"
