"""The recommendation: every branch is reached, and every sentence says the number it was made from."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from posenc_core.cosine_sums import BaseBound
from posenc_core.recommend import CLOSE, LOCAL, SMALL_RISE, Candidate, Numbers, Reason, Recommendation, recommend


def candidate(
    name: str, bad: int = 0, resolution: float = 1.0, toy: float | None = 1.5, **more: int | None
) -> Candidate:
    first = 8192 if bad else None
    stretch = float(more.get("stretch") or 16)
    return Candidate(
        name, bad, first, resolution, int(more.get("kept") or 20), more.get("negative"), 131_072, toy, stretch
    )


NONE = candidate("none", bad=14, toy=3.5, negative=1707)
LINEAR = candidate("linear", resolution=1 / 16, toy=4.3)
NTK = candidate("ntk", bad=13, resolution=0.893, toy=2.6)
YARN = candidate("yarn", toy=1.99, negative=8887)
LLAMA3 = candidate("llama3", toy=2.23)
DEFAULT = Numbers(
    8192, 131_072, 64, 50, 0, 10_000.0, False, BaseBound(9e6, 3e7), (NONE, LINEAR, NTK, YARN, LLAMA3), 8, 1.29
)  # fmt: skip


def kinds(advice: Recommendation, part: str) -> set[str]:
    return {r.kind for r in advice.reasons if r.part == part}


def one(advice: Recommendation, kind: str, part: str) -> Reason:
    [reason] = [r for r in advice.reasons if (r.kind, r.part) == (kind, part)]
    return reason


def test_the_usual_case() -> None:
    advice = recommend(DEFAULT)
    assert (advice.method, advice.training) == ("yarn", "in steps")
    assert advice.verdict.startswith("Start from yarn with factor 16,")
    assert advice.peers == ()
    assert "larger base" in advice.verdict
    assert one(advice, "angles", "others").value == 14
    assert "from position 8,192 on" in one(advice, "angles", "others").sentence
    assert one(advice, "angles", "for").value == 0
    assert one(advice, "resolution", "others").method == "linear"
    assert one(advice, "toy", "against").value == pytest.approx(1.99 - 1.29)
    assert (
        "at 8 times its training length, untrained for it, is 0.70 nats a byte worse"
        in one(advice, "toy", "against").sentence
    )
    assert one(advice, "signal", "against").value == 8887
    assert one(advice, "base", "against").value == 10_000
    assert one(advice, "factor", "open").value == 16


def test_a_target_within_the_training_length_needs_nothing() -> None:
    advice = recommend(replace(DEFAULT, target=8192))
    assert (advice.method, advice.training) == ("none", "none")
    assert advice.verdict.startswith("Change nothing")
    assert one(advice, "fits", "for").value == 8192


def test_where_every_pair_turned_fully_the_frequencies_stay() -> None:
    advice = recommend(replace(DEFAULT, full=64, candidates=(replace(NONE, bad=0, first_bad=None), LINEAR, YARN)))
    assert (advice.method, advice.training) == ("none", "try without")
    assert "all 64 pairs turned fully" in one(advice, "angles", "for").sentence
    assert one(advice, "signal", "against").value == 1707


def test_the_toy_model_decides_among_methods_that_are_as_safe() -> None:
    assert recommend(replace(DEFAULT, candidates=(NONE, YARN, replace(LLAMA3, toy=1.9)))).method == "llama3"
    unmeasured = tuple(replace(c, toy=None) for c in (NONE, replace(YARN, resolution=0.95), LLAMA3))
    advice = recommend(replace(DEFAULT, candidates=unmeasured, toy_inside=None))
    assert advice.method == "llama3"  # then the one that keeps neighbours apart
    assert "toy" not in {r.kind for r in advice.reasons}


def test_fewer_new_angles_come_before_the_toy_model() -> None:
    advice = recommend(replace(DEFAULT, candidates=(NONE, replace(YARN, bad=2, first_bad=9000, toy=1.3), LLAMA3)))
    assert advice.method == "llama3"
    assert one(advice, "toy", "open").method == "yarn"
    assert "yarn did 0.93 nats a byte better at 8 times its training length" in one(advice, "toy", "open").sentence


def test_losses_have_a_unit_and_what_they_are_beside() -> None:
    said = one(recommend(DEFAULT), "toy", "others").sentence
    assert said.endswith("at 8 times its training length is 2.21 nats a byte worse than within it")


@pytest.mark.parametrize(("bad", "met", "still"), [(1, "1 of 64 pairs meets", "does"), (2, "2 of 64 pairs meet", "do")])
def test_one_pair_meets_and_two_meet(bad: int, met: str, still: str) -> None:
    stays = candidate("yarn", bad=bad, resolution=0.95)
    advice = recommend(replace(DEFAULT, candidates=(candidate("none", bad=bad, toy=3.5), stays)))
    assert f"unchanged, {met} angles that" in one(advice, "angles", "others").sentence
    assert f"{bad} of 64 pairs still {still}, from" in one(advice, "angles", "open").sentence


def test_a_method_that_blurs_is_taken_only_where_nothing_sharp_is_as_safe() -> None:
    assert recommend(replace(DEFAULT, candidates=(NONE, replace(LINEAR, toy=1.3), LLAMA3))).method == "llama3"
    advice = recommend(replace(DEFAULT, candidates=(NONE, LINEAR, NTK)))
    assert advice.method == "linear"
    assert one(advice, "resolution", "against").value == 1 / 16


def test_new_angles_that_stay_are_told() -> None:
    advice = recommend(replace(DEFAULT, candidates=(NONE, replace(NTK, resolution=0.95))))
    assert advice.method == "ntk"
    assert one(advice, "angles", "open").value == 13


@pytest.mark.parametrize(
    ("target", "times", "toy", "training"),
    [(16_384, 2, 1.3, "try without"), (16_384, 2, 1.29 + SMALL_RISE + 0.01, "fine-tune"), (65_536, 8, 2.0, "fine-tune"),
     (131_072, 8, 1.3, "in steps"), (16_384, 2, None, "fine-tune")],
)  # fmt: skip
def test_training_follows_the_factor_and_the_toy_model(
    target: int, times: int, toy: float | None, training: str
) -> None:
    advice = recommend(replace(DEFAULT, target=target, toy_factor=times, candidates=(NONE, replace(YARN, toy=toy))))
    assert advice.training == training
    assert ("factor" in kinds(advice, "for")) == (target <= 8192 * times)


@pytest.mark.parametrize(
    ("base", "fits", "bound", "part", "said", "advised"),
    [
        (1e4, False, BaseBound(9e6, 3e7), "against", "does not keep Σcos above zero", " Train with a larger base"),
        (1e4, False, BaseBound(9e6, 3e7), "against", "the criterion of Men et al. 2024, which they call not very", ""),
        # above all that were tried, and it does not fit: the model's own base decides, not the grid
        (4e7, False, BaseBound(9e6, 3e7), "against", "does not keep Σcos above zero", " Train with another base"),
        (1e7, False, BaseBound(9e6, 3e7), "against", "does not keep Σcos above zero", " Train with a larger base"),
        (8e6, True, BaseBound(9e6, 3e7), "for", "the smallest that does is 9,000,000, and all from 30,000,000", ""),
        (4e7, True, BaseBound(9e6, None), "for", "tried besides, the smallest that does is 9,000,000)", ""),
        (1e4, False, BaseBound(None, None), "against", "no base tried up to 10^12 does", ""),
        (1e4, False, None, "against", "a base of 10,000 does not keep", ""),
        (1.001, None, None, "open", "whether a base of 1.001 keeps Σcos above zero for 131,072 positions", ""),
    ],
)  # fmt: skip
def test_the_models_own_base_decides_and_what_was_tried_is_told(
    base: float, fits: bool | None, bound: BaseBound | None, part: str, said: str, advised: str
) -> None:
    advice = recommend(replace(DEFAULT, base=base, fits=fits, bound=bound))
    [reason] = [r for r in advice.reasons if r.kind == "base"]
    assert (reason.part, reason.value) == (part, base)
    assert said in reason.sentence
    assert "every base fits" not in reason.sentence
    assert "below 9,000,000" not in reason.sentence
    assert advised in advice.verdict
    assert ("Train with" in advice.verdict) == (fits is False and bound is not None and bound.smallest is not None)


def test_features_that_do_not_rotate_are_part_of_the_score() -> None:
    advice = recommend(replace(DEFAULT, still=48, fits=True, candidates=(NONE, LLAMA3)))
    assert "all-ones vectors, 48 still features included, score above zero" in one(advice, "signal", "for").sentence
    said = one(advice, "base", "for").sentence
    assert "keeps Σcos and the 24 of its 48 still features above zero" in said
    assert "by the rotating features alone is 9,000,000" in said
    assert "Train with" not in advice.verdict


def test_a_score_that_stays_above_zero_speaks_for_it() -> None:
    advice = recommend(replace(DEFAULT, candidates=(NONE, LLAMA3)))
    assert one(advice, "signal", "for").sentence.endswith("above zero at all distances below 131,072")
    # stretched it meets the criterion, so a larger base is not called for
    assert one(advice, "base", "open").sentence.endswith("stretched by llama3 it does")
    assert "larger base" not in advice.verdict


def test_methods_that_the_toy_model_does_not_tell_apart_are_named_together() -> None:
    near, far = replace(LLAMA3, toy=1.99 + CLOSE - 0.01), replace(LLAMA3, toy=1.99 + CLOSE + 0.01)
    advice = recommend(replace(DEFAULT, candidates=(NONE, LINEAR, YARN, near)))
    assert advice.peers == ("llama3",)
    assert advice.verdict.startswith("Start from yarn or llama3 with factor 16,")
    assert "puts yarn and llama3 within 0.14 nats a byte" in one(advice, "toy", "open").sentence
    assert recommend(replace(DEFAULT, candidates=(NONE, LINEAR, YARN, far))).peers == ()
    # as good on the toy model, but with new angles or with neighbours moved together: not named
    worse = (replace(near, bad=3, first_bad=9000), replace(near, name="b", resolution=0.5))
    assert recommend(replace(DEFAULT, candidates=(NONE, LINEAR, YARN, *worse))).peers == ()


def test_a_method_that_stretches_by_more_than_its_factor_is_told_where_it_is_named() -> None:
    dynamic = candidate("dynamic", toy=2.0, stretch=241)
    advice = recommend(replace(DEFAULT, candidates=(NONE, YARN, dynamic)))
    assert advice.peers == ("dynamic",)
    [said] = [r.sentence for r in advice.reasons if r.kind == "factor" and r.method == "dynamic"]
    assert said == "dynamic with factor 16 stretches by 241 at 131,072 positions"


def test_a_base_too_small_is_not_praised_for_its_arcs() -> None:
    """Base 500: no angle is new, and no key is found (Men et al. 2024, section 3)."""
    safe = (replace(NONE, bad=0, first_bad=None), LINEAR, YARN)
    advice = recommend(replace(DEFAULT, full=64, base=500.0, candidates=safe))
    assert "blur" not in advice.verdict
    assert "retrieval, not perplexity alone" in advice.verdict
    assert "a base of 500 is too small for 131,072 positions by the criterion" in advice.verdict
    assert "Train with a larger base" in advice.verdict
    assert "would only blur" in recommend(replace(DEFAULT, full=64, fits=True, candidates=safe)).verdict
    some = recommend(replace(DEFAULT, full=60, fits=True, candidates=safe))
    assert "60 of 64 pairs turned fully within 8,192 positions, and the others stay within" in some.reasons[0].sentence


def test_no_numbers_make_a_bare_verdict_or_a_sentence_without_a_number() -> None:
    """A grid over what can differ: reasons for every verdict, a legal method, and no branch that fails."""
    met, trainings = set(), set()
    grid = product(
        (4096, 8192, 16_384, 131_072), (0, 3), (0, 3), (0.05, LOCAL, 1.0), (None, 1.3, 2.5), (1e4, 1e9),
        (None, BaseBound(None, None), BaseBound(1e6, None), BaseBound(1e6, 1e8)), (None, 100),
        (None, False, True), (0, 8),
    )  # fmt: skip
    for target, plain, bad, sharp, toy, base, bound, negative, fits, still in grid:
        pair = (
            candidate("none", bad=plain, toy=toy and toy + 0.5, negative=negative),
            candidate("linear", bad=bad, resolution=0.1, toy=toy),
            candidate("yarn", bad=bad, resolution=sharp, toy=toy),
        )  # fmt: skip
        inside = None if toy is None else 1.2
        advice = recommend(Numbers(8192, target, 64, 50, still, base, fits, bound, pair, 8, inside))
        assert advice.method in {c.name for c in pair}
        assert advice.verdict.endswith(".")
        assert len(advice.reasons) >= 2
        for reason in advice.reasons:
            assert any(c.isdigit() for c in reason.sentence) or reason.kind == "angles"
            assert reason.method in {"", *(c.name for c in pair)}
            met.add((reason.kind, reason.part))
        trainings.add(advice.training)
    assert trainings == {"none", "try without", "fine-tune", "in steps"}
    assert met == {
        ("fits", "for"), ("angles", "for"), ("angles", "others"), ("angles", "open"), ("resolution", "for"),
        ("resolution", "against"), ("resolution", "others"), ("factor", "for"), ("factor", "open"), ("toy", "for"),
        ("toy", "against"), ("toy", "others"), ("toy", "open"), ("signal", "for"), ("signal", "against"),
        ("base", "for"), ("base", "open"), ("base", "against"),
    }  # fmt: skip
