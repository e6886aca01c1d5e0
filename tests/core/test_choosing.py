"""Choosing: ranks follow from measured numbers, reasons repeat them, and no need makes it raise."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import values

from posenc_core import SpecError
from posenc_core.attention import attention
from posenc_core.choosing import (
    HEADS,
    MEASURED,
    SAMPLES,
    SCHEMES,
    Candidate,
    Need,
    candidates,
    needed,
    position_bytes,
    rank,
    relative,
    size_text,
)
from posenc_core.claims import Evidence
from posenc_core.claims_lab import P_ROPE, SEEDS, Sample
from posenc_core.claims_table import BENCHMARKS, CLAIMS, needed_runs
from posenc_core.lab import BINS, TIMES, Result, Setting, parse_schemes, runs, scheme_text
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.tasks import TASKS


def result(run, loss, accuracy):
    """A made-up result: numbers at 1, 2, 4, 8 and 16 training lengths; a table has none past the first."""

    def bins(numbers):
        made = [numbers[min(t for t in MEASURED if BINS * t > i)] for i in range(BINS * TIMES)]
        return tuple(made[:BINS] + [None] * (len(made) - BINS)) if isinstance(run.spec, LearnedSpec) else tuple(made)

    return Result(run.key, run.sized, run.setting, run.seed, ((600, 1.0),), bins(loss), bins(accuracy), (), 1.0, {})


LEVELS = {"none": 2.2, "sinusoidal": 2.1, "learned": 1.7, "rope": 1.5, "alibi": 1.8, "alibi+rope": 1.6, P_ROPE: 1.55}


def evidence(change=lambda run, times, level: level):
    """A level a scheme, which `change` may move; loss is the level, accuracy 1/level."""
    made = {}
    for run in needed():
        level = LEVELS[scheme_text(run.spec)]
        losses = {t: change(run, t, level) for t in MEASURED}
        made[run.key] = result(run, losses, {t: 1 / x for t, x in losses.items()})
    return Evidence(made)


FULL = evidence()


def order(need, found=FULL):
    return [c.scheme for c in rank(need, found)]


# ------------------------------------------------------------------ needs


def test_a_need_lists_the_tasks_of_the_lab():
    assert Need.param("task").choices == tuple(TASKS) == Setting.param("task").choices


@pytest.mark.parametrize(
    ("target", "measured"),
    [(10, 1), (100, 1), (101, 2), (141, 2), (200, 2), (201, 4), (400, 4), (401, 8), (801, 16), (1600, 16), (9999, 16)],
)
def test_the_next_measured_length_that_reaches_the_target(target, measured):
    need = Need(trained_length=100, target_length=target)
    assert need.measured == measured
    assert need.ratio == target / 100


@pytest.mark.parametrize(
    ("trained", "target", "condition"),
    [
        (100, 110, "the length: 1.1 training lengths are needed, 2 measured"),
        (100, 625, "the length: 6.25 training lengths are needed, 8 measured"),
        (100, 25, "the length: 0.25 training lengths are needed, 1 measured"),
        (16_000_000, 16_000_001, "the length: 1.00000006 training lengths are needed, 2 measured"),
        (2**20, 2, "the length: less than 0.01 training lengths are needed, 1 measured"),
        (100, 5000, "what comes past 16 training lengths, which was not measured: 50 are needed"),
        (100, 10**6, "what comes past 16 training lengths, which was not measured: 10,000 are needed"),
        (100, 800, ""),
        (100, 100, ""),
    ],
)
def test_where_another_length_was_measured_than_is_needed_it_says_both(trained, target, condition):
    for choice in rank(Need(trained_length=trained, target_length=target), FULL):
        if choice.score is not None:
            assert choice.reasons[0].condition == condition


def test_nothing_past_the_training_length_is_ranked_by_what_holds_within():
    """RoPE is best within and worst past: a little past, it must not come first."""

    def change(run, times, level):
        return 9.0 if scheme_text(run.spec) == "rope" and times > 1 else level

    found = evidence(change)
    assert order(Need(trained_length=8192, target_length=8192), found)[0] == "rope"
    assert "rope" in order(Need(trained_length=8192, target_length=8193), found)[-3:]


def test_scripts_make_a_text_longer():
    factors = {s: Need(languages=s).bytes_per_character for s in SAMPLES}
    assert factors["latin"] == 1
    assert factors["latin"] < factors["cyrillic"] < 2 < factors["devanagari"] < factors["cjk"] == 3
    assert Need(languages="mixed").bytes_per_character == 3
    letters = sum(c.isalpha() for c in SAMPLES["cyrillic"])
    assert factors["cyrillic"] == pytest.approx(1 + letters / len(SAMPLES["cyrillic"]))  # a space has one byte
    need = Need(trained_length=1000, target_length=1000, languages="cjk")
    assert need.target == 3000
    assert need.measured == 4


def test_a_script_moves_the_rank_and_says_what_it_depends_on():
    def change(run, times, level):
        return level + (0.5 * math.log2(times) if scheme_text(run.spec) == "rope" else 0)

    found = evidence(change)
    latin, cjk = (Need(trained_length=1000, target_length=1000, languages=s) for s in ("latin", "cjk"))
    assert order(latin, found)[0] == "rope"
    assert order(cjk, found)[0] != "rope"
    (reason,) = (r for r in rank(cjk, found)[0].reasons if "characters" in r.text)
    assert "3,000 bytes" in reason.text
    assert "tokenizer" in reason.condition
    assert not any("characters" in r.text for r in rank(latin, found)[0].reasons)


@pytest.mark.parametrize(
    "bad", [{"task": "chess"}, {"trained_length": 1}, {"memory": -1}, {"precise_positions": "yes"}]
)
def test_other_needs_are_refused(bad):
    with pytest.raises(SpecError):
        Need(**bad)


# ------------------------------------------------------------------ ranks


def test_rank_is_that_of_the_measured_numbers():
    need = Need(trained_length=100, target_length=100)
    assert order(need) == sorted(LEVELS, key=LEVELS.__getitem__)
    assert [c.score for c in rank(need, FULL)] == pytest.approx([math.exp(1.5 - x) for x in sorted(LEVELS.values())])
    recall = rank(Need(task="recall", trained_length=100, target_length=100), FULL)
    assert [c.score for c in recall] == pytest.approx([1.5 / x for x in sorted(LEVELS.values())])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
def test_a_changed_number_changes_the_rank(scheme, task):
    """Best at one length of one task only: first there, and where it was elsewhere."""

    def change(run, times, level):
        return 1.1 if scheme_text(run.spec) == scheme and run.setting.task == task and times == 1 else level

    found = evidence(change)
    assert order(Need(task=task, trained_length=100, target_length=100), found)[0] == scheme
    other = Need(task="copy" if task != "copy" else "recall", trained_length=100, target_length=100)
    assert order(other, found) == order(other)
    longer = Need(task=task, trained_length=100, target_length=200)
    assert order(longer, found) == order(longer)


def test_a_table_is_not_ranked_past_its_end():
    inside, past = (rank(Need(trained_length=100, target_length=n), FULL) for n in (100, 200))
    assert next(c for c in inside if c.scheme == "learned").score is not None
    last = past[-1]
    assert (last.scheme, last.score) == ("learned", None)
    assert "no value past its training length" in last.reasons[0].text
    assert last.reasons[0].claim == 5


@pytest.mark.parametrize(("target", "times"), [(200, 2), (400, 4), (800, 8), (1600, 16)])
def test_extended_rope_is_read_at_the_length_it_was_extended_to(target, times):
    def change(run, at, level):
        return 1.2 if run.setting.extension == "yarn" and run.setting.times == at == times else level

    found = rank(Need(trained_length=100, target_length=target), evidence(change))
    assert found[0].scheme == f"rope, yarn ×{times}"
    assert found[0].reasons[0].query["times"] == str(times)
    assert found[0].reasons[0].claim is None  # 14 is about NTK
    assert not any("yarn" in c.scheme for c in rank(Need(trained_length=100, target_length=100), FULL))


def test_an_extension_that_was_measured_shorter_says_so():
    made = rank(Need(task="copy", trained_length=100, target_length=1600), FULL)
    extended = next(c for c in made if "yarn" in c.scheme)
    assert extended.scheme == "rope, yarn ×4"
    assert "an extension for 4 training lengths" in extended.reasons[0].condition


def test_past_sixteen_lengths_it_says_that_nothing_was_measured():
    for choice in rank(Need(trained_length=100, target_length=5000), FULL):
        if choice.score is not None:
            assert "past 16 training lengths" in choice.reasons[0].condition
            assert "50 are needed" in choice.reasons[0].condition
    assert not rank(Need(trained_length=100, target_length=1600), FULL)[0].reasons[0].condition


def test_precise_positions_multiply_the_score_by_what_was_measured_of_them():
    def change(run, times, level):
        return 10.0 if run.setting.task == "token_back" and scheme_text(run.spec) == "rope" else level

    need, found = Need(trained_length=100, target_length=100), evidence(change)
    precise = need.replace(precise_positions=True)
    assert order(need, found)[0] == "rope"
    assert order(precise, found)[-1] == "rope"
    rope = rank(precise, found)[-1]
    assert rope.score == pytest.approx(LEVELS[P_ROPE] / 10)  # 1/10 of the answers beside the best's 1/1.55
    assert [r.query["task"] for r in rope.reasons[:2]] == ["text", "token_back"]
    alibi = next(c for c in rank(precise, found) if c.scheme == "alibi")
    assert [r.claim for r in alibi.reasons[:2]] == [17, 17]  # 15 is about what lies past the training length
    longer = next(c for c in rank(precise.replace(target_length=200), found) if c.scheme == "alibi")
    assert [r.claim for r in longer.reasons[:2]] == [15, 17]
    for choice in rank(need, found):
        assert choice.reasons[0].claim == {"alibi": 17, "alibi+rope": 21}.get(choice.scheme)


def test_a_difference_within_the_seeds_is_said_to_depend_on_the_seed():
    def change(run, times, level):
        return level + {"alibi+rope": 0.2, "none": 0.01}.get(scheme_text(run.spec), 0) * (run.seed - 1)

    made = {c.scheme: c.reasons[0] for c in rank(Need(trained_length=100, target_length=100), evidence(change))}
    assert made["alibi+rope"].condition == (
        "the seed: the best is 0.100 away, among seeds it differs by 0.400, so they cannot be told apart by "
        f"{len(SEEDS)} seeds"
    )
    assert not made["none"].condition  # 0.7 away
    assert not made["rope"].condition


def test_the_memory_limit_comes_before_the_score():
    small = Need(trained_length=2**16, target_length=2**16, memory=8)
    made = rank(small, FULL)
    over = {c.scheme: c.reasons[-1] for c in made if not c.fits}
    # 8 heads × (2·65,536 - 1) × 4 bytes and 65,536 × 32 × 2 × 4 bytes; the latter; 65,536 × 512 × 4 bytes
    sizes = {"alibi+rope": 20, "rope": 16, "rope(rotary_fraction=0.5, scaling=proportional)": 16, "sinusoidal": 128,
             "learned": 128}  # fmt: skip
    assert {s: reason.text.split(" in a model")[0] for s, reason in over.items()} == {
        s: f"Positions take {size} MiB" for s, size in sizes.items()
    }
    assert [c.fits for c in made] == [True] * (len(made) - len(sizes)) + [False] * len(sizes)
    assert "more than 8 MiB" in over["rope"].text
    assert "the bias as one number a head and distance" in over["alibi+rope"].text
    assert over["alibi+rope"].condition.endswith("for every query and key needs 128 GiB")
    assert over["alibi+rope"].claim == 16
    assert all(c.fits for c in rank(small.replace(memory=128), FULL))


def test_bytes_beside_what_the_benchmark_saw_allocated():
    """Peaks hold what is kept and what it was made from, in float64: a few times as much, never less."""
    found = json.loads((BENCHMARKS / "cpu.json").read_text())
    assert (found["config"]["heads"], found["config"]["d_head"]) == (HEADS, 64)
    for record in found["records"]:
        if record["what"] != "tables_built" or record["length"] < 1024 or not record["peak_bytes"]:
            continue
        spec = record["spec"]["scheme"]
        if spec in ("rope", "sinusoidal", "learned"):
            made = position_bytes(parse_schemes(spec)[0], record["length"])
            assert made <= record["peak_bytes"] <= 6 * made
    assert position_bytes(parse_schemes("none")[0], 4096) == 0
    tables = 100 * 2 * 32 * 4  # cos and sin of 32 pairs, once for all layers
    assert position_bytes(parse_schemes("rope")[0], 100) == tables
    assert position_bytes(parse_schemes("rope(rotary_fraction=0.5)")[0], 100) == tables / 2
    assert position_bytes(parse_schemes("alibi+rope")[0], 100) == HEADS * 199 * 4 + tables
    assert position_bytes(parse_schemes("rope+rope(base=500000)+rope")[0], 100) == 2 * tables
    assert position_bytes(parse_schemes("sinusoidal")[0], 100) == 100 * 8 * 64 * 4


@pytest.mark.parametrize("length", [300, 512, 1536])
def test_bytes_of_the_bias_are_the_largest_that_attention_makes(length):
    made, (spec,) = [], parse_schemes("alibi")
    encoding = spec.with_sizes(n_heads=HEADS).build()
    bias = encoding.bias_by_distance
    encoding.bias_by_distance = lambda *args: made.append(bias(*args)) or made[-1]
    x, positions = torch.zeros(1, HEADS, length, 2), torch.arange(length)
    attention(x, x, x, encoding, positions, positions)
    assert position_bytes(spec, length) == max(b.numel() for b in made) * 4


# ------------------------------------------------------------------ reasons


@pytest.mark.parametrize("task", TASKS)
def test_links_open_runs_that_are_made_and_claims_exist(task):
    keys, numbers = {r.key for r in needed_runs()}, {c.number for c in CLAIMS}
    for target in (64, 128, 256, 512, 1024, 4096):
        need = Need(task=task, trained_length=64, target_length=target, precise_positions=True, languages="cyrillic")
        for reason in (r for c in rank(need, FULL) for r in c.reasons):
            assert reason.claim is None or reason.claim in numbers
            assert reason.text.endswith(".")
            assert not reason.condition.endswith(".")
            if reason.page != "lab":
                assert (reason.page, reason.query) == ("", {})
                continue
            query = dict(reason.query)
            schemes, seeds = parse_schemes(query.pop("schemes")), tuple(map(int, query.pop("seeds").split(",")))
            setting = Setting(**{k: Setting.parse_field(k, v) for k, v in query.items()})
            opened, problems = runs(schemes, setting, seeds)
            assert not problems
            assert {r.key for r in opened} <= keys


def test_reasons_repeat_the_numbers():
    first = rank(Need(trained_length=100, target_length=200), FULL)[1]
    assert first.scheme in ("rope", "rope, yarn ×2")
    assert (
        "1.50 nats a byte at 2 training lengths, 100% of the best's probability for the right byte"
        in first.reasons[0].text
    )
    recall = rank(Need(task="recall", trained_length=100, target_length=100), FULL)[-1]
    assert "45% right at its training length, 68% of the best" in recall.reasons[0].text
    assert str(recall.reasons[0]) == recall.reasons[0].text


def test_without_runs_nothing_is_ranked():
    made = rank(Need(), Evidence({}))
    assert len(made) == len(candidates("text", 16))
    assert all(c.score is None and "not measured" in c.reasons[0].text for c in made)


def test_one_missing_seed_leaves_one_scheme_out():
    gone = Candidate("rope").runs("text")[1].key
    made = rank(
        Need(trained_length=100, target_length=100), Evidence({k: r for k, r in FULL.results.items() if k != gone})
    )
    assert (made[-1].scheme, made[-1].score) == ("rope", None)
    assert made[0].scheme == P_ROPE
    assert made[0].score == 1  # the best of those that are known


def test_needed_runs_hold_all_schemes_and_tasks():
    made = {(scheme_text(r.spec), r.setting.task, r.seed) for r in needed() if r.setting.extension == "off"}
    assert made == {(s, t, seed) for s in SCHEMES for t in TASKS for seed in SEEDS}
    assert {r.key for r in needed()} <= {r.key for r in needed_runs()}


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries({p.name: values(p) for p in Need.params()}),
    st.sets(st.sampled_from(sorted(FULL.results)), max_size=40),
)
def test_no_need_makes_it_raise(need, gone):
    need = Need(**need)
    made = rank(need, Evidence({k: r for k, r in FULL.results.items() if k not in gone}))
    assert len({c.scheme for c in made}) == len(made) == len(candidates(need.task, need.measured))
    scores = [c.score for c in made if c.score is not None]
    assert all(0 < s <= 1 for s in scores)
    fitting = [c.score for c in made if c.fits and c.score is not None]
    assert fitting == sorted(fitting, reverse=True)
    assert all(c.reasons and all(r.text for r in c.reasons) for c in made)


def test_relative_and_sizes():
    one, two = Sample((1.0, 1.2)), Sample((2.1, 2.1))
    assert relative(two, one, "loss") == pytest.approx(math.exp(-1.0))
    assert relative(one, two, "accuracy") == pytest.approx(1.1 / 2.1)
    assert relative(Sample((0.0,)), Sample((0.0,)), "accuracy") == 1
    assert [size_text(n) for n in (0, 32, 1024, 3 * 2**19, 2**30)] == [
        "0 bytes",
        "32 bytes",
        "1 KiB",
        "1.5 MiB",
        "1 GiB",
    ]
    assert size_text(2000 * 2**30) == "2,000 GiB"


@pytest.mark.parametrize("best", ["alibi", "rope, yarn ×2", "alibi+rope"])
def test_a_link_shows_a_scheme_beside_the_best_where_one_setting_can(best):
    def change(run, times, level):
        return 1.0 if run.label == best else level

    made = rank(Need(trained_length=100, target_length=200), evidence(change))
    assert made[0].scheme == best
    for choice in made:
        query = dict(choice.reasons[0].query)
        schemes, seeds = parse_schemes(query.pop("schemes")), tuple(map(int, query.pop("seeds").split(",")))
        setting = Setting(**{k: Setting.parse_field(k, v) for k, v in query.items()})
        shown, problems = runs(schemes, setting, seeds)
        assert not problems
        labels = {run.label for run in shown}
        assert choice.scheme in labels
        other = {choice.scheme, best}
        apart = "rope, yarn ×2" in other and other & {"alibi+rope", P_ROPE}
        assert (best in labels) != bool(apart)
