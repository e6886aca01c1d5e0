"""Fingerprints: specs made into numbers, written as people write them, and recognised; faults of ports by name."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reference, within

from posenc_core import SpecError, apply_rotary, porting
from posenc_core.fingerprint import MOST_TELLING, fingerprint, fingerprint_of
from posenc_core.fingerprint_search import BASES, FITS, MOST_CHECKS
from posenc_core.fingerprint_words import describe
from posenc_core.frequencies import attention_scales, rope_frequencies
from posenc_core.pasted import MAX_CHARACTERS, MAX_NUMBERS, InvFreq, Rotated, Tables, read_pasted
from posenc_core.porting import rounded_phases
from posenc_core.readings import Reading, stored_format
from posenc_core.schemes.rope import RopeSpec

SPECS = {
    "plain": RopeSpec(d_head=128),
    "llama3": RopeSpec(d_head=128, base=500_000.0),
    "unusual base": RopeSpec(base=12_345.0),
    "linear": RopeSpec(d_head=128, scaling="linear", factor=4.0),
    "yarn": RopeSpec(d_head=128, scaling="yarn", factor=4.0, original_max_position_embeddings=4096),
    "yarn not truncated": RopeSpec(
        d_head=128, base=1e6, scaling="yarn", factor=4.0, original_max_position_embeddings=32_768, truncate=False
    ),
    "gpt-oss": RopeSpec(
        d_head=64, base=1.5e5, scaling="yarn", factor=32.0, original_max_position_embeddings=4096, truncate=False
    ),
    "yarn over turns": RopeSpec(
        d_head=128, scaling="yarn", factor=8.0, original_max_position_embeddings=4096, ramp="rotations"
    ),
    "llama3.1": RopeSpec(
        d_head=128, base=5e5, scaling="llama3", factor=8.0, original_max_position_embeddings=8192
    ),
    "llama4": RopeSpec(
        d_head=128, base=5e5, scaling="llama3", factor=16.0, original_max_position_embeddings=8192, high_freq_factor=1.0
    ),
    "p-RoPE": RopeSpec(d_head=256, base=1e6, scaling="proportional", rotary_fraction=0.25),
    "p-RoPE with factor": RopeSpec(
        d_head=256, base=1e6, scaling="proportional", rotary_fraction=0.25, factor=8.0
    ),
    "interleaved": RopeSpec(d_head=64, layout="interleaved"),
    "partial": RopeSpec(d_head=128, rotary_fraction=0.25),
    "phi": RopeSpec(d_head=80, rotary_fraction=0.4, layout="interleaved"),
}  # fmt: skip


def inv_freq(spec):
    return rope_frequencies(spec).inv_freq


def digits(values, count=4):
    return "[" + ", ".join(f"{v:.{count}g}" for v in values.tolist()) + "]"


def torch_print(tensor):
    torch.set_printoptions(threshold=10**7)
    return str(tensor)


WRITTEN = {
    "4 digits": lambda w: digits(w),
    "float32 list": lambda w: str(w.float().tolist()),
    "float32 print": lambda w: torch_print(w.float()),
    "float16 print": lambda w: torch_print(w.half()),
    "bfloat16, 4 digits": lambda w: digits(w.bfloat16().double()),
    "numpy": lambda w: repr(w.float().numpy()),
    "numpy scalars": lambda w: repr(list(w.float().numpy())),
    "json": lambda w: json.dumps({"inv_freq": w.tolist()}),
    "column": lambda w: "\n".join(f"{v:.5g}" for v in w.tolist()),
    "csv": lambda w: "pair,inv_freq\n" + "\n".join(f"{i},{v:.6e}" for i, v in enumerate(w.tolist())),
}


def vector(spec, position, *, shift=0, direction=1, layout=None, dtype=torch.float32, seed=0, phase=None):
    """(x, rotated x), the second by the spec's tables in float64, in a dtype."""
    x = torch.randn(1, spec.d_head, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    angle = direction * ((position + shift) * inv_freq(spec) if phase is None else phase)[None]
    size = attention_scales(spec).tables
    y = apply_rotary(x.double(), angle.cos() * size, angle.sin() * size, layout or spec.layout).to(dtype)
    return x[0], y[0]


def rotated_text(x, position, y):
    return f"x = {x.tolist()}\nposition = {position}\nrotated = {y.tolist()}"


def tables(spec, positions, *, shift=0, direction=1, rounded=None, decimals=None):
    phase = (
        (torch.tensor(positions)[:, None] + shift) * inv_freq(spec)
        if rounded is None
        else rounded_phases(inv_freq(spec), torch.tensor(positions), *rounded)
    )
    size = attention_scales(spec).tables
    cos, sin = phase.cos() * size, direction * phase.sin() * size
    made = [t if decimals is None else torch.round(t, decimals=decimals) for t in (cos, sin)]
    return json.dumps({"cos": made[0].tolist(), "sin": made[1].tolist(), "positions": list(positions)})


def like(found, spec, *, tables_too=True):
    """The best candidate turns as the spec does, with its scaling, and the layout where it is seen."""
    best = found.candidates[0]
    assert best.fits, found.sentence
    assert best.misfit <= FITS
    assert best.spec.scaling == spec.scaling
    torch.testing.assert_close(inv_freq(best.spec), inv_freq(spec), rtol=2e-3, atol=0)
    for name in ("truncate", "ramp", "factor", "high_freq_factor"):
        assert getattr(best.spec, name) == getattr(spec, name)
    if spec.base in BASES:
        assert best.spec.base == spec.base
    if tables_too:
        assert best.scale == pytest.approx(attention_scales(spec).tables, abs=1e-3)
    return best


# ------------------------------------------------------------------ inv_freq


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("name", SPECS)
def test_an_inv_freq_is_recognised_however_it_is_written(name, written):
    spec = SPECS[name]
    found = fingerprint(WRITTEN[written](inv_freq(spec)))
    assert found.kind == "inv_freq"
    like(found, spec, tables_too=False)
    assert found.candidates[0].layout is None
    assert "neither the layout nor an attention factor" in found.sentence
    expected = next((f for f in ("bfloat16", "float16") if f in written), "float32")
    assert found.format == expected


def test_every_reference_list_of_transformers_is_recognised():
    """Lists that other people's code made: plain, linear, YaRN, Llama 3, p-RoPE."""
    seen = set()
    for entry in reference("hf_rope.json")["entries"]:
        for values in entry["layers"].values():
            value = values[0]
            if value["rope_type"] not in ("default", "linear", "yarn", "llama3"):
                continue
            found = fingerprint(str(value["inv_freq"]))
            best = found.candidates[0]
            assert best.fits, entry["name"]
            kind = {"default": "none"}.get(value["rope_type"], value["rope_type"])
            assert best.spec.scaling == kind, entry["name"]
            torch.testing.assert_close(
                inv_freq(best.spec), torch.tensor(value["inv_freq"], dtype=torch.float64), rtol=3e-6, atol=0
            )
            seen.add(kind)
    assert seen == {"none", "linear", "yarn", "llama3"}


def test_what_cannot_be_told_apart_is_all_listed():
    found = fingerprint(digits(inv_freq(RopeSpec(d_head=128, scaling="ntk", factor=4.0))))
    assert found.fitting == 2
    assert "cannot tell them apart" in found.sentence
    assert [c.spec.scaling for c in found.candidates[:2]] == ["ntk", "none"]
    assert found.candidates[1].spec.base == pytest.approx(1e4 * 4 ** (128 / 126), rel=1e-3)
    few = fingerprint("[1.0, 0.01]")
    assert few.candidates[0].spec.base == 1e4
    assert "tell the base to" in few.sentence
    one = fingerprint("[1.0]")
    assert "any base" in one.sentence


DIVISORS = tuple(1 + 0.03 * i + 0.01 * (i % 3) for i in range(48))


def test_a_list_that_is_no_formula_is_no_finding():
    """A divisor for each pair explains any list: it is told, last, and does not count as a fit."""
    found = fingerprint(digits(1e4 ** (-torch.arange(48) / 48.0) / torch.tensor(DIVISORS), 6))
    last = found.candidates[-1]
    assert (last.spec.scaling, last.anything, last.fits) == ("longrope", True, False)
    assert last.spec.short_factor == pytest.approx(DIVISORS, rel=1e-4)
    assert "as any list allows" in last.sentence
    assert "base" not in last.sentence
    assert found.fitting == 0
    assert found.sentence.startswith("No method that was tried explains these numbers; as with any list")
    assert "the base cannot be told" in found.sentence


def test_a_list_of_divisors_that_is_known_is_a_finding():
    spec = RopeSpec(d_head=96, scaling="longrope", short_factor=DIVISORS)
    found = fingerprint(digits(inv_freq(spec), 6), known={"Phi": spec})
    assert found.fitting == 1
    assert found.candidates[0].names == ("Phi",)
    assert fingerprint(digits(inv_freq(spec), 6), expected=spec).candidates[0].spec == spec


@pytest.mark.parametrize("expected", [RopeSpec(d_head=128, base=5e5), RopeSpec(d_head=128), None], ids=str)
@pytest.mark.parametrize("ratios", [{20: 1.1}, {0: 1.25}, {63: 0.5}, {7: 0.9, 40: 1.2}, {11: 1.1, 12: 1.1}], ids=str)
def test_a_wrong_pair_of_a_known_spectrum_is_named(ratios, expected):
    w = inv_freq(RopeSpec(d_head=128, base=5e5))
    for pair, ratio in ratios.items():
        w[pair] *= ratio
    if expected is not None and expected.base != 5e5 and 11 in ratios:
        return  # two neighbours that are off together are told by what is expected only
    found = fingerprint(digits(w, 9), expected=expected or RopeSpec(d_head=128, base=5e5))
    best = found.candidates[0]
    assert best.fits
    assert best.spec.scaling == "none"
    assert best.spec.base == 5e5
    assert dict(best.outliers) == pytest.approx(ratios, rel=1e-6)
    for pair, ratio in ratios.items():
        assert f"but pair {pair} is {ratio:g} times as fast" in best.sentence
    torch.testing.assert_close(best.inv_freq, w, rtol=1e-8, atol=0)
    if expected is not None and expected.base == 5e5:
        assert best.first_pair == min(ratios)


def test_a_wrong_pair_of_a_scaled_spectrum_is_named():
    w = inv_freq(SPECS["yarn"])
    w[30] *= 1.5
    best = fingerprint(digits(w, 9)).candidates[0]
    assert best.fits
    assert (best.spec.scaling, best.spec.factor) == ("yarn", 4.0)
    assert "but pair 30 is 1.5 times as fast" in best.sentence


THIRDS = 131_072 / 6_144
ODD = {
    "linear": RopeSpec(d_head=128, scaling="linear", factor=THIRDS),
    "yarn": RopeSpec(d_head=128, scaling="yarn", factor=THIRDS, original_max_position_embeddings=6144),
    "llama3": RopeSpec(d_head=128, base=5e5, scaling="llama3", factor=8.0, original_max_position_embeddings=6000),
    "llama3, odd factor": RopeSpec(
        d_head=128, base=5e5, scaling="llama3", factor=7.3, original_max_position_embeddings=12_345
    ),
    "betas": RopeSpec(d_head=128, scaling="yarn", factor=4.0, original_max_position_embeddings=4096, beta_fast=20.0,
                      beta_slow=3.0),
    "betas, not truncated": RopeSpec(d_head=128, scaling="yarn", factor=4.0, original_max_position_embeddings=4096,
                                     beta_fast=20.0, beta_slow=3.0, truncate=False),
    "length": RopeSpec(d_head=128, scaling="yarn", factor=4.0, original_max_position_embeddings=5000, truncate=False),
}  # fmt: skip


@pytest.mark.parametrize("count", [8, 9])
@pytest.mark.parametrize("name", ODD)
def test_numbers_that_are_in_no_list_are_told_by_the_data(name, count):
    spec = ODD[name]
    best = fingerprint(digits(inv_freq(spec), count)).candidates[0]
    assert best.fits
    assert best.spec.scaling == spec.scaling
    assert best.spec.base == spec.base
    assert best.spec.factor == pytest.approx(spec.factor, rel=1e-5)
    torch.testing.assert_close(inv_freq(best.spec), inv_freq(spec), rtol=2e-6, atol=0)
    if name.startswith(("llama3", "length")):
        assert best.spec.original_max_position_embeddings == spec.original_max_position_embeddings
    if name.startswith("betas"):
        assert (best.spec.beta_fast, best.spec.beta_slow, best.spec.truncate) == (20.0, 3.0, spec.truncate)
        assert "betas 20 and 3" in best.sentence


@pytest.mark.parametrize("spec", [SPECS["plain"], SPECS["yarn"], SPECS["llama3.1"]], ids=["plain", "yarn", "llama3"])
@pytest.mark.parametrize(("times", "words"), [
    (1 / (2 * math.pi), "in turns instead of radians"), (180 / math.pi, "in degrees instead of radians"),
    (0.7, "all multiplied by 0.7"), (3.0, "all multiplied by 3"),
])  # fmt: skip
def test_a_multiple_of_a_spectrum_is_named(spec, times, words):
    found = fingerprint(digits(times * inv_freq(spec), 9), expected=spec)
    fitting = [c for c in found.candidates if c.fits]
    assert any(words in c.sentence and c.spec == spec for c in fitting) or (times == 0.7 and spec.scaling == "none")
    if times != 0.7:
        best = found.candidates[0]
        assert words in best.sentence
        torch.testing.assert_close(best.inv_freq, times * inv_freq(spec), rtol=1e-6, atol=0)
        assert best.first_pair == 0


@pytest.mark.parametrize("text", [str([1e-4] * 64), str([0.5] * 64), str([1e-4] * 9 + [1e-5] * 9)])
def test_a_flat_list_is_no_longrope(text):
    found = fingerprint(text)
    assert found.fitting == 0
    assert not any(c.fits for c in found.candidates)


@pytest.mark.parametrize(("base", "length"), [(1e4, 4096), (1e6, 32_768), (1e4, 5000), (5e5, 8192)])
def test_the_lengths_that_give_the_same_numbers_are_told(base, length):
    """Against a search of the neighbouring lengths one by one."""
    spec = RopeSpec(d_head=128, base=base, scaling="yarn", factor=4.0, original_max_position_embeddings=length)
    w = inv_freq(spec)

    def same(n):
        return torch.allclose(inv_freq(spec.replace(original_max_position_embeddings=n)), w, rtol=1e-9, atol=0)

    low = next(n for n in range(length, 0, -1) if not same(n - 1))
    high = next(n for n in range(length, 2 * length) if not same(n + 1))
    best = fingerprint(digits(w, 8)).candidates[0]
    assert best.lengths == (low, high)
    named = f"trained at {length:,} ({low:,} to {high:,} give the same numbers)"
    span = f"trained at {low:,} to {high:,}, which give the same numbers"
    assert (span if length == 5000 else named) in best.sentence


def test_a_length_that_the_numbers_tell_is_told_alone():
    best = fingerprint(digits(inv_freq(SPECS["yarn not truncated"]), 9)).candidates[0]
    assert best.lengths == (32_768, 32_768)
    assert "trained at 32,768, not truncated" in best.sentence


@pytest.mark.parametrize("base", [10.0, 100.0, 500.0, 707.0, 1000.0])
def test_a_short_base_comes_before_a_slip(base):
    found = fingerprint(digits(inv_freq(RopeSpec(d_head=128, base=base)), 6))
    best = found.candidates[0]
    assert (best.slip, best.spec.scaling, best.spec.base) == ("", "none", base)
    assert "()" not in found.sentence
    assert "differ in )" not in found.sentence
    if found.fitting > 1:
        assert "they differ in reading of the exponent" in found.sentence


def test_a_factor_set_by_hand_costs_rank():
    for seed in range(4):
        x, y = vector(SPECS["yarn"], 7, dtype=torch.bfloat16, seed=seed)
        found = fingerprint(rotated_text(x, 7, y))
        best = found.candidates[0]
        assert (best.spec.scaling, best.spec.factor, best.spec.attention_factor) == ("yarn", 4.0, 0.0)


def test_no_scaling_comes_before_a_model_of_a_scaling():
    row = inv_freq(RopeSpec(d_head=128, base=5e5)).cos()
    known = {"Llama": RopeSpec(d_head=128, base=5e5, scaling="llama3", factor=32.0,
                               original_max_position_embeddings=8192)}  # fmt: skip
    for text in (f"cos = {row.tolist()} position = 1", f"cos = {digits(row)} position = 1"):
        found = fingerprint(text, known=known)
        assert found.candidates[0].spec.scaling == "none", found.candidates[0].sentence
        assert found.candidates[0].spec.base == 5e5


def test_all_that_fit_are_counted():
    x, y = vector(RopeSpec(d_head=128, rotary_fraction=0.25, layout="interleaved"), 1, dtype=torch.bfloat16)
    found = fingerprint(rotated_text(x, 1, y))
    shown = sum(c.fits for c in found.candidates)
    assert found.fitting >= shown
    if found.fitting > shown:
        assert f"{found.fitting:,} candidates fit, the simplest {shown} are shown" in found.sentence


@pytest.mark.parametrize("count", [2, 3, 4, 6, 9])
@pytest.mark.parametrize("base", [12_345.0, 7_654_321.0])
def test_a_base_has_as_many_digits_as_the_numbers_tell(base, count):
    """The range of bases against those that the digits of every pair allow, by closed form."""
    text = digits(inv_freq(RopeSpec(d_head=64, base=base)), count)
    found = fingerprint(text)
    best = found.candidates[0]
    block = read_pasted(text).values
    index = torch.arange(1, 32, dtype=torch.float64) / 32
    slack = FITS * (block.resolution * 1.001 + 1e-6 * block.values)[1:]
    low, high = ((block.values[1:] + d) ** (-1 / index) for d in (slack, -slack))
    share = (high.min() / low.max() - 1).item()
    assert best.bases == pytest.approx((low.max().item(), high.min().item()), rel=0.1 * share)
    assert low.max() <= base <= high.min()
    said = best.sentence.split("base ")[1].removeprefix("about ").replace(",", "")
    assert low.max() <= float(said) <= high.min()
    unit = 10.0 ** (len(said) - len(said.rstrip("0")))
    assert unit >= 0.1 * (high.min() - low.max()).item()  # no digit more than the numbers tell
    assert ("about" in best.sentence) == ("allow any base from" in found.sentence)


# ------------------------------------------------------------------ lists that are not what they should be


@pytest.mark.parametrize(("dtype", "name", "first"), [
    (torch.bfloat16, "bfloat16", 56), (torch.float16, "float16", 610),
])  # fmt: skip
def test_a_list_rounded_to_a_format_is_off(dtype, name, first):
    """Against phases position by position; the first position is that of the issue."""
    spec = SPECS["llama3.1"]
    rounded = inv_freq(spec).to(dtype).double()
    best = fingerprint(str(rounded.tolist()), expected=spec).candidates[0]
    assert best.fits
    assert (best.stored, best.as_expected, best.spec) == (name, True, spec)
    off = torch.arange(1000)[:, None] * (rounded - inv_freq(spec)).abs() > 0.1
    assert int(off.any(-1).nonzero()[0]) == first
    assert best.first_position == first
    assert best.first_pair == int(off[first].nonzero()[0]) == 1


def test_a_rounded_list_of_another_scheme_is_off_by_its_own_numbers():
    expected = SPECS["llama3"]
    rounded = inv_freq(SPECS["llama3.1"]).bfloat16().double()
    best = fingerprint(str(rounded.tolist()), expected=expected).candidates[0]
    off = torch.arange(1000)[:, None] * (rounded - inv_freq(expected)).abs() > 0.1
    assert best.spec.scaling == "llama3"
    assert not best.as_expected
    assert best.first_position == int(off.any(-1).nonzero()[0])


@pytest.mark.parametrize("count", [4, 6, 9])
def test_digits_alone_are_no_fault(count):
    best = fingerprint(digits(inv_freq(SPECS["llama3.1"]), count), expected=SPECS["llama3.1"]).candidates[0]
    assert (best.stored, best.as_expected, best.first_pair, best.first_position) == ("", True, None, None)


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("written", ["4 digits", "float32 list", "bfloat16, 4 digits"])
@pytest.mark.parametrize("count", [32, 40, 63])
@pytest.mark.parametrize("name", ["llama3.1", "yarn", "llama3"])
def test_the_first_pairs_of_a_list_are_told(name, count, written, by_name):
    spec = SPECS[name]
    expected, known = (SPECS["p-RoPE"], {"the model": spec}) if by_name else (spec, {})
    best = fingerprint(WRITTEN[written](inv_freq(spec)[:count]), expected=expected, known=known).candidates[0]
    assert best.fits
    assert (best.spec, best.part, best.as_expected) == (spec, count, not by_name)
    assert best.sentence.startswith(f"the first {count} of 64 pairs: ")
    assert ("the model" in best.names) == by_name
    torch.testing.assert_close(best.inv_freq, inv_freq(spec)[:count])
    if not by_name and "bfloat16" not in written:
        assert (best.first_pair, best.first_position) == (None, None)


def test_a_whole_list_is_no_part_of_another():
    known = {"longer": RopeSpec(d_head=256), "same": SPECS["plain"]}
    for expected in (SPECS["plain"], RopeSpec(d_head=256)):
        best = fingerprint(digits(inv_freq(SPECS["plain"]), 6), expected=expected, known=known).candidates[0]
        assert (best.spec.rotary_dim, best.part, best.names) == (128, 0, ("same",))


@pytest.mark.parametrize("written", ["4 digits", "float32 list", "bfloat16, 4 digits", "numpy"])
@pytest.mark.parametrize(("layout", "words", "twice"), [
    ("half", "as cat([f, f]) does for the half-split layout", lambda w: torch.cat([w, w])),
    ("interleaved", "as repeat_interleave(f, 2) does for the interleaved layout", lambda w: w.repeat_interleave(2)),
])  # fmt: skip
@pytest.mark.parametrize("name", ["plain", "llama3.1", "yarn", "p-RoPE"])
def test_a_list_that_holds_every_frequency_twice_is_read_once(name, layout, words, twice, written):
    spec = SPECS[name]
    found = fingerprint(WRITTEN[written](twice(inv_freq(spec))), expected=spec.replace(layout=layout))
    best = like(found, spec, tables_too=False)
    assert (best.layout, best.spec.d_head, best.as_expected) == (layout, spec.d_head, True)
    assert words in found.sentence
    assert len(found.measured) == spec.d_head // 2
    other = fingerprint(WRITTEN[written](twice(inv_freq(spec))), expected=spec.replace(
        layout=porting.other_layout(layout)))  # fmt: skip
    assert (other.candidates[0].first_pair, other.candidates[0].first_position) == (0, 1.0)


def test_numbers_that_repeat_by_chance_are_not_halved():
    for text in ("[1, 1]", "[1.0, 0.1, 1.0, 0.1]", str([0.5] * 64), str([3.0] * 8 + [1.0] * 8)):
        values = read_pasted(text)
        assert values.layout is None
        assert len(values.values.values) == text.count(",") + 1


@pytest.mark.parametrize("count", [5, 9])
@pytest.mark.parametrize(("by", "words", "pair"), [
    (2 * math.pi, "these are wavelengths (2π/w), not frequencies", 0),
    (1.0, "these are reciprocals of frequencies (1/w), not frequencies", 1),
])  # fmt: skip
@pytest.mark.parametrize("name", ["plain", "llama3.1", "yarn", "linear"])
def test_wavelengths_and_reciprocals_are_recognised(name, by, words, pair, count):
    spec = SPECS[name]
    found = fingerprint(digits(by / inv_freq(spec), count), expected=spec)
    best = found.candidates[0]
    assert best.fits
    assert words in best.sentence
    assert (best.spec, best.inverse, best.as_expected) == (spec, True, True)
    torch.testing.assert_close(best.inv_freq, by / inv_freq(spec))
    assert (best.first_pair, best.first_position) == (0 if name == "linear" else pair, 1.0)


# ------------------------------------------------------------------ what a paste may cost

ONES = "[" + ", ".join(["1"] * 64) + "]"
WIDE = 44_000
ADVERSARIAL = {
    "two ones": "[1, 1]",
    "ones": ONES,
    "512 ones": "[" + ", ".join(["1"] * 512) + "]",
    "nearly ones": str([1.0 - 1e-3 * i for i in range(512)]),
    "flat": str([1e-4] * 512),
    "one digit": "[" + ", ".join(f"{v:.1g}" for v in 1e4 ** (-np.arange(512) / 512)) + "]",
    "steps": str([1.0] * 256 + [0.25] * 256),
    "tall cos": "cos = " + str([[round(math.cos(p), 1)] for p in range(WIDE // 2)]),
    "tall": "cos = " + str([[1, 0]] * 9000 + [[0, 1]]) + " sin = " + str([[0, 1]] * 9000 + [[1, 0]]),
    "wide": "cos = " + str([[1] * 512] * 30 + [[0.9] * 512]) + "sin = " + str([[0] * 512] * 30 + [[0.1] * 512]),
    "late": "cos = " + str([[1] * 64]) + " sin = " + str([[0.1] * 64]) + " position = 1000000",
    "hardly": f"x = {[1] * 512} position = 9 rotated = {[1] * 255 + [1.1] + [1] * 256}",
    "small": f"x = {[1] * 1024} position = 0.001 rotated = {[1.001] * 1024}",
    "zeros": f"x = {[0] * 1023 + [1]} position = 1 rotated = {[0] * 1023 + [1]}".replace("1]", "0.5]", 1),
    "rows": f"x = {[[1, 2] * 64] * 90} position = {list(range(1, 91))} rotated = {[[2, 1] * 64] * 90}",
}
KNOWN = {f"model {i}": s for i, s in enumerate(list(SPECS.values()) * 4)}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_cost_of_a_paste_is_bounded(name):
    """By counting what is made and compared, each at most a tenth of a millisecond or so."""
    try:
        found = fingerprint(ADVERSARIAL[name], expected=SPECS["yarn"], known=KNOWN)
    except SpecError:
        return
    assert 0 < found.checks <= MOST_CHECKS + MOST_TELLING
    assert found.candidates


def test_the_cost_counts_what_is_compared(monkeypatch):
    """Every comparison of a reading with a list of frequencies is paid for."""
    calls = []
    inner = Reading.__init__

    def counted(self, *args, **kwargs):
        inner(self, *args, **kwargs)
        check = self.check

        def counting(*a):
            calls.append(len(self.measured))
            return check(*a)

        object.__setattr__(self, "check", counting)

    monkeypatch.setattr(Reading, "__init__", counted)
    for name in ("ones", "two ones", "one digit", "tall cos"):
        calls.clear()
        found = fingerprint(ADVERSARIAL[name], expected=SPECS["yarn"])
        assert len(calls) <= found.checks + 8 * 4 * 2, name  # one candidate of each reading is shown in any case


@pytest.mark.parametrize("text", ["[5, 3, 2.2, 0.1]", "[3.0, 2.0, 1.0]", "[0.1, 0.2, 0.4]"])
def test_what_nothing_explains_is_said_so(text):
    found = fingerprint(text)
    assert found.fitting == 0
    assert found.sentence.startswith("Nothing that was tried")


SLIPS = {
    "(2i + 1)/R": (lambda i: 1e4 ** (-(2 * i + 1) / 128), "base 10,000"),
    "2(i + 1)/R": (lambda i: 1e4 ** (-(2 * i + 2) / 128), "base 10,000"),
    "i/R instead": (lambda i: 5e5 ** (-i / 128), "base 500,000"),
    "over the head dim": (lambda i: 1e4 ** (-2 * i[:16] / 128), "base 10,000"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_slips_of_the_exponent_are_named(name):
    formula, base = SLIPS[name]
    found = fingerprint(digits(formula(torch.arange(64, dtype=torch.float64)), 5))
    slips = [c.slip for c in found.candidates if c.fits]
    assert any(name in slip and base in slip for slip in slips), slips
    best = found.candidates[0]  # the plain spectrum of base 10 is simpler, and the square root of a base is two slips
    assert "exponent" in best.sentence or (name, best.spec.base) == ("over the head dim", 10.0)


def test_pie_602():
    expected = RopeSpec(d_head=128, rotary_fraction=0.25)
    found = fingerprint(digits(inv_freq(porting.over_head_dim(expected))), expected=expected)
    best = found.candidates[0]
    assert "exponent over the head dim, of which 0.25 rotates, base 10,000" in best.sentence
    assert best.first_pair == 1


# ------------------------------------------------------------------ cos and sin


ROWS = tuple(range(8))


@pytest.mark.parametrize(
    ("positions", "decimals"),
    [(ROWS, 4), (ROWS, None), ((1000, 1001), 4), ((1000, 1001), None), ((17,), None)],
    ids=str,
)
@pytest.mark.parametrize("name", [n for n in SPECS if n != "unusual base"])
def test_tables_are_recognised(name, positions, decimals):
    spec = SPECS[name]
    found = fingerprint(tables(spec, positions, decimals=decimals))
    assert found.kind == "cos_sin"
    fitting = [c.spec for c in found.candidates if c.fits]
    assert fitting, found.sentence
    if positions != (17,) and (decimals is None or positions == (1000, 1001)):
        like(found, spec)
    assert any(s.scaling == spec.scaling and s.factor == spec.factor and s.base == spec.base for s in fitting)


@pytest.mark.parametrize("part", ["cos", "sin"])
def test_one_of_both_tables_is_enough(part):
    spec = SPECS["yarn"]
    phase = torch.arange(12)[:, None] * inv_freq(spec)
    table = getattr(phase, part)() * attention_scales(spec).tables
    best = fingerprint(f"{part} = {table.tolist()}").candidates[0]
    assert best.fits
    assert (best.spec.scaling, best.spec.factor, best.spec.base) == ("yarn", 4.0, 1e4)


@pytest.mark.parametrize(
    ("layout", "doubled"),
    [("half", lambda t: torch.cat([t, t], -1)), ("interleaved", lambda t: t.repeat_interleave(2, -1))],
)
def test_doubled_tables_tell_the_layout(layout, doubled):
    phase = torch.arange(8)[:, None] * inv_freq(SPECS["llama3.1"])
    text = f"cos: {torch_print(doubled(phase.cos()).half())}\nsin: {torch_print(doubled(phase.sin()).half())}"
    found = fingerprint(text)
    best = like(found, SPECS["llama3.1"])
    assert best.layout == layout
    assert best.spec.layout == layout
    assert found.format == "float16"


def test_a_missing_attention_factor_is_seen():
    spec = SPECS["yarn"].replace(attention_factor=1.0)
    best = fingerprint(tables(spec, range(8)), expected=SPECS["yarn"]).candidates[0]
    assert "no attention factor" in best.sentence
    assert (best.first_pair, best.first_position) == (0, 0.0)
    phase = torch.arange(8)[:, None] * inv_freq(SPECS["plain"])
    rows = {"cos": (1.25 * phase.cos()).tolist(), "sin": (1.25 * phase.sin()).tolist()}
    scaled = fingerprint(json.dumps(rows)).candidates[0]
    assert scaled.fits
    assert "cos and sin scaled by 1.25" in scaled.sentence


DAMAGES = [(f, r) for f in ("bfloat16", "float16") for r in ("all", "positions", "frequencies", "product")]


@pytest.mark.parametrize("damage", DAMAGES, ids="-".join)
@pytest.mark.parametrize("name", ["plain", "yarn", "llama3.1"])
def test_damage_of_a_number_format_is_named(name, damage):
    spec = SPECS[name]
    found = fingerprint(tables(spec, (0, 1, 2, 5, 301, 999, 4001), rounded=damage), expected=spec)
    best = found.candidates[0]
    assert best.fits, found.sentence
    assert best.damage == damage
    assert f"computed in {damage[0]}" in best.sentence
    assert best.spec.scaling == spec.scaling
    first = porting.first_exceeding(inv_freq(spec), *damage, limit=0.1)
    assert best.first_position == first


def test_frequencies_in_bfloat16_are_named_without_an_expectation():
    spec = SPECS["llama3.1"]
    best = fingerprint(tables(spec, (0, 1, 7, 301), rounded=("bfloat16", "frequencies"))).candidates[0]
    assert best.damage == ("bfloat16", "frequencies")
    assert best.spec.scaling == "llama3"


@pytest.mark.parametrize("name", ["plain", "yarn", "llama3.1", "interleaved"])
@pytest.mark.parametrize(("fault", "change"), [
    ("sine with the wrong sign", {"direction": -1}), ("positions 1 too high", {"shift": 1}),
    ("positions 1 too low", {"shift": -1}),
])  # fmt: skip
def test_direction_and_offset_are_named(name, fault, change):
    spec = SPECS[name]
    x, y = vector(spec, 7, **change)
    for text in (tables(spec, range(1, 9), **change), rotated_text(x, 7, y)):
        best = fingerprint(text, expected=spec).candidates[0]
        assert best.fits
        assert fault in best.sentence
        assert best.spec.scaling == spec.scaling
        assert best.first_pair == 0


# ------------------------------------------------------------------ rotated vectors


@pytest.mark.parametrize("position", [1, 7, 100, 3000])
@pytest.mark.parametrize("name", [n for n in SPECS if n != "p-RoPE with factor"])
def test_a_rotated_vector_is_recognised(name, position):
    spec = SPECS[name]
    found = fingerprint(rotated_text(*(lambda x, y: (x, position, y))(*vector(spec, position))))
    best = like(found, spec)
    assert found.kind == "rotated"
    assert best.layout == spec.layout
    assert best.spec.rotary_dim == spec.rotary_dim
    assert best.spec.d_head == spec.d_head


@pytest.mark.parametrize("name", SPECS)
def test_float16_vectors_are_recognised(name):
    spec = SPECS[name]
    x, y = vector(spec, 7, dtype=torch.float16)
    found = fingerprint(rotated_text(x, 7, y))
    fitting = [c.spec for c in found.candidates if c.fits]
    assert found.candidates[0].layout == spec.layout
    assert any(s.scaling == spec.scaling for s in fitting)
    assert any(
        s.scaling == spec.scaling and torch.allclose(inv_freq(s), inv_freq(spec), rtol=0.01, atol=2e-4) for s in fitting
    )
    if len(fitting) > 1:
        assert "cannot tell them apart" in found.sentence


def test_the_sentence_of_the_issue():
    spec = SPECS["yarn"].replace(attention_factor=1.0)
    x, y = vector(spec, 7)
    best = fingerprint(rotated_text(x, 7, y)).candidates[0]
    assert best.sentence.startswith("half-split, YaRN factor 4, trained at 4,096 (4,081 to 4,128 give the same")
    assert "numbers), truncated, no attention factor, base 10,000" in best.sentence


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_hipfire_241(dtype):
    """Interleaved rotation on half-split weights is recognised from the numbers."""
    model = SPECS["llama3"]
    x, y = vector(model, 5, layout="interleaved", dtype=dtype)
    best = fingerprint(rotated_text(x, 5, y), expected=model).candidates[0]
    assert best.fits
    assert best.layout == "interleaved"
    assert best.sentence.startswith("interleaved, no scaling, base 500,000")
    assert (best.first_pair, best.first_position) == (0, 1.0)


@pytest.mark.parametrize(("layout", "words"), [
    ("interleaved", "an interleaved rotation with tables repeated for the half-split one"),
    ("half", "a half-split rotation with tables repeated for the interleaved one"),
])  # fmt: skip
def test_tables_of_one_layout_under_a_rotation_of_the_other(layout, words):
    spec = RopeSpec(d_head=128)
    x = torch.randn(128, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    phase = 7 * inv_freq(spec)
    wide = torch.cat([phase, phase]) if layout == "interleaved" else phase.repeat_interleave(2)
    quarters = {"interleaved": torch.stack([-x[1::2], x[::2]], -1).flatten(), "half": torch.cat([-x[64:], x[:64]])}
    quarter = quarters[layout]
    found = fingerprint(rotated_text(x, 7, x * wide.cos() + quarter * wide.sin()))
    assert found.candidates[0].fits
    assert words in found.candidates[0].sentence


def test_numbers_that_are_no_rotation():
    x, y = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
    found = fingerprint(rotated_text(x, 7, y))
    assert found.fitting == 0
    assert "comes near" in found.sentence


def test_a_bfloat16_position_is_said_to_be_rounded():
    spec = RopeSpec(d_head=128)
    x, y = vector(spec, 4001, phase=4000 * inv_freq(spec))
    best = fingerprint(rotated_text(x, 4001, y), expected=spec).candidates[0]
    assert "positions 1 too low (as bfloat16 or float16 rounds them)" in best.sentence


# ------------------------------------------------------------------ against the expected spec


def test_it_is_told_where_the_expected_spec_is_left():
    expected = SPECS["yarn"]
    found = fingerprint(digits(inv_freq(RopeSpec(d_head=128))), expected=expected)
    best = found.candidates[0]
    assert best.spec.scaling == "none"
    plain, mine = inv_freq(RopeSpec(d_head=128)), inv_freq(expected)
    assert best.first_pair == int((plain != mine).nonzero()[0])
    phases = torch.arange(2000)[:, None] * (plain - mine).abs()
    assert best.first_position == int((phases >= 0.1).any(-1).nonzero()[0])
    same = fingerprint(digits(inv_freq(expected)), expected=expected).candidates[0]
    assert (same.first_pair, same.first_position) == (None, None)
    assert same.spec == expected


def test_an_unusual_spec_is_recognised_by_expectation():
    spec = RopeSpec(d_head=96, base=7777.0, scaling="yarn", factor=7.3, original_max_position_embeddings=5000,
                    beta_fast=20.0, beta_slow=3.0)  # fmt: skip
    found = fingerprint(digits(inv_freq(spec)), expected=spec)
    assert found.candidates[0].spec == spec
    x, y = vector(spec, 7)
    assert fingerprint(rotated_text(x, 7, y), expected=spec).candidates[0].spec == spec


def test_known_models_are_named():
    known = {"Llama 3.1 8B": SPECS["llama3.1"], "Pythia": SPECS["partial"], "Other": SPECS["gpt-oss"]}
    best = fingerprint(digits(inv_freq(SPECS["llama3.1"])), known=known).candidates[0]
    assert best.names == ("Llama 3.1 8B",)
    assert best.sentence.endswith("(as Llama 3.1 8B)")
    x, y = vector(SPECS["partial"], 3)
    assert fingerprint(rotated_text(x, 3, y), known=known).candidates[0].names == ("Pythia",)
    x, y = vector(SPECS["partial"], 3, layout="interleaved")  # Pythia is half-split
    assert fingerprint(rotated_text(x, 3, y), known=known).candidates[0].names == ()


def test_describe_says_what_matters():
    assert describe(SPECS["gpt-oss"], "half", 1.346574) == (
        "half-split, YaRN factor 32, trained at 4,096, not truncated, attention factor 1.34657, base 150,000"
    )
    assert describe(SPECS["partial"], "interleaved", 1.0) == (
        "interleaved, no scaling, base 10,000, 32 of 128 features rotate"
    )


# ------------------------------------------------------------------ formats


def test_a_stored_format_is_no_guess():
    w = inv_freq(SPECS["plain"])
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16"), (torch.float32, "float32")):
        assert stored_format(read_pasted(str(w.to(dtype).tolist())).values) == name
    assert stored_format(read_pasted(digits(w)).values) == "float32"
    assert stored_format(read_pasted("[1, 0.5, 0.25, 0.125, 0.75, 1, 0.5]").values) == "float32"


# ------------------------------------------------------------------ reading


def test_shapes_and_names_tell_what_is_pasted():
    assert isinstance(read_pasted("1, 0.5, 0.25"), InvFreq)
    assert isinstance(read_pasted("1 0.5\n0.25 0.125"), InvFreq)  # one list over two lines
    rows = read_pasted("[[1, 1], [0.5, 0.9], [-0.4, 0.8]]")
    assert isinstance(rows, Tables)
    assert rows.sin is None
    assert rows.positions.tolist() == [0, 1, 2]
    sines = read_pasted("[[0, 0], [0.8, 0.1], [0.9, 0.2]]")
    assert isinstance(sines, Tables)
    assert sines.cos is None
    both = read_pasted("[[1., 1.], [0.5, 0.9]] [[0., 0.], [0.8, 0.1]]")
    assert isinstance(both, Tables)
    assert both.cos is not None
    assert both.sin is not None
    three = read_pasted("[1, 2, 3, 4]\n7\n[2, 1, 4, 3]")
    assert isinstance(three, Rotated)
    assert three.positions.tolist() == [7]
    assert isinstance(read_pasted("q: [1, 2] pos = 3 q_embed = [2, 1]"), Rotated)
    deep = read_pasted("torch.tensor([[[1.0, 1.0], [0.5, 0.9]]], dtype=torch.float16, device='cuda:0')")
    assert isinstance(deep, Tables)
    assert deep.cos is not None
    assert deep.cos.values.shape == (2, 2)


@pytest.mark.parametrize(("text", "resolution"), [
    ("[0.8660, 0.0123]", [5e-5, 5e-5]),  # decimals
    ("[8.660e-01, 1.230e-02]", [5e-5, 5e-6]),  # digits
    ("[0.86596, 0.012]", [5e-6, 5e-6]),  # round(x, 5), trailing zeros gone
    ("[0.8659643233600653, 0.01]", [5e-17, 5e-17]),
])  # fmt: skip
def test_how_exactly_a_number_is_written_is_kept(text, resolution):
    assert read_pasted(text).values.resolution.tolist() == pytest.approx(resolution, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["no numbers"]),
        ("hello", ["'hello'", "unknown word"]),
        ("<script>alert(1)</script>", ["cannot be read from here on"]),
        ("tensor([1.0000, 0.8660, ..., 0.0001])", ["leaves numbers out", "set_printoptions"]),
        ("[1, 2, [3]]", ["mixes numbers and lists"]),
        ("[[1, 2], [3]]", ["differ in length"]),
        ("[1, 2", ["not closed"]),
        ("1]", ["not opened"]),
        ("[nan, 1]", ["nan"]),
        ("[1e999]", ["1e999", "too large"]),
        ("[0.5+0.8j]", ["complex", ".real as cos"]),
        ("[-1, 2]", ["-1.0", "below zero"]),
        ("[0, 0]", ["nothing turns"]),
        ("x = [1, 2] rotated = [2, 1]", ["without position"]),
        ("x = [1, 2, 3] position = 1 rotated = [3, 2, 1]", ["3 features", "even"]),
        ("x = [1, 2] position = [1, 2] rotated = [3, 2]", ["2 positions", "1 rows"]),
        ("cos = [[1, 1], [1, 1]] sin = [[0, 0]]", ["same shape"]),
        ("cos = [1, 0.5]", ["its position is not given"]),
        ("cos = [[1, 500], [1, 2]]", ["500", "no cos or sin"]),
        ("cos = [1] cos = [2]", ["given twice"]),
        ("[[[1, 2], [3, 4]], [[1, 2], [3, 4]]]", ["2 × 2 × 2"]),
        ("[" * 9 + "1" + "]" * 9, ["nested deeper"]),
        ("[1, 2] [3, 4]", ["cannot be told", "name them"]),
        ("1 " * (MAX_NUMBERS + 1), ["200,000 characters"]),
        ("1," * 90_000, ["90000 numbers", "1 to 512"]),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(text, parts):
    with pytest.raises(SpecError) as error:
        read_pasted(text)
    for part in parts:
        assert part in str(error.value), str(error.value)
    assert all(p.name == "pasted" for p in error.value.problems)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x = [1, 2, 3, 4] position = 5 rotated = [1, 2, 3, 4]", "nothing turned"),
        ("x = [1, 2, 3, 4] position = 0 rotated = [2, 1, 3, 4]", "position is 0"),
        ("x = [0, 0] position = 5 rotated = [0, 0]", "nothing turned"),
        ("cos = [[1, 1], [1, 1]]", "every row alike"),
        ("cos = [0.5, 0.5] position = 0", "nothing turns"),
        ("cos = [[0, 0], [0, 0]] sin = [[0, 0], [0, 0]]", "no cos and sin"),
        (
            "cos = " + str([[0.5 - 0.0001 * i for i in range(1023)], [0.4 + 0.0001 * i for i in range(1023)]]),
            "1,023 pairs",
        ),
    ],
)
def test_numbers_in_which_nothing_turns_are_refused(text, part):
    with pytest.raises(SpecError, match=part):
        fingerprint(text)


@pytest.mark.parametrize("position", [1e-6, 1e9, 2**50, -3])
def test_odd_positions_take_no_long_time(position):
    x = torch.randn(256, generator=torch.Generator().manual_seed(2)).tolist()
    y = [v + 1e-3 for v in x]
    with within(30):
        found = fingerprint(json.dumps({"x": x, "position": position, "rotated": y}))
    assert found.candidates


@given(st.text(max_size=200) | st.text("[]()0123456789.,-+eE=: \ncosinxpr", max_size=200))
@settings(max_examples=300, deadline=None)
def test_no_text_crashes(text):
    try:
        found = fingerprint(text)
    except SpecError:
        return
    assert found.candidates
    assert found.sentence


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=12), st.sampled_from(["list", "tables", "x"]))
@settings(max_examples=25, deadline=None)
def test_no_numbers_crash(values, kind):
    text = {
        "list": str(values), "tables": json.dumps({"cos": [[v % 2 - 1 for v in values]] * 2, "positions": [3, 5]}),
        "x": json.dumps({"x": values * 2, "position": values[0], "rotated": values[::-1] * 2}),
    }[kind]  # fmt: skip
    try:
        found = fingerprint(text, expected=SPECS["yarn"])
    except SpecError:
        return
    assert all(math.isfinite(c.misfit) or c.misfit == math.inf for c in found.candidates)


def test_a_long_paste_is_bounded():
    phase = np.arange(30)[:, None] * inv_freq(RopeSpec(d_head=512)).numpy()
    text = json.dumps({"cos": np.round(np.cos(phase), 4).tolist(), "sin": np.round(np.sin(phase), 4).tolist()})
    assert len(text) <= MAX_CHARACTERS
    found = fingerprint_of(read_pasted(text))
    assert found.candidates[0].spec.base == 1e4
