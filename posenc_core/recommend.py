"""What to do about a context that has to grow, as reasons with their numbers: a pure function of what was computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from posenc_core.cosine_sums import BaseBound

Kind = Literal["fits", "angles", "resolution", "factor", "toy", "signal", "base"]
Part = Literal["for", "others", "against", "open"]  # for the choice, against its rivals, against it, left open
Training = Literal["none", "try without", "fine-tune", "in steps"]

LOCAL = 0.9  # of the trained distance between neighbours: above it, local order counts as kept
SMALL_RISE = 0.25  # nats a byte that the toy model may lose before training is called for


@dataclass(frozen=True)
class Candidate:
    """One method at the target. `bad`: pairs that meet a new angle; `first_bad`: the first position where one does.

    `resolution`: distance of neighbours beside training; `kept`: pairs that are left as trained; `negative`: first
    distance below `searched` at which Σcos falls below zero; `toy`: held-out loss of the toy model past its training
    length at `Numbers.toy_factor`. None: it does not happen, or was not measured.
    """

    name: str
    bad: int
    first_bad: int | None
    resolution: float
    kept: int
    negative: int | None
    searched: int
    toy: float | None


@dataclass(frozen=True)
class Numbers:
    """What a recommendation is made from. `full`: pairs that turned fully in training.

    `bound` is None where no bound was searched for this head and length. `toy_inside` is the toy model's loss within
    its training length, None if it was not measured, `toy_factor` the factor at which the candidates' losses were.
    """

    trained: int
    target: int
    pairs: int
    full: int
    base: float
    bound: BaseBound | None
    candidates: tuple[Candidate, ...]
    toy_factor: int
    toy_inside: float | None

    @property
    def factor(self) -> float:
        """Target over trained."""
        return self.target / self.trained

    def of(self, name: str) -> Candidate:
        """A candidate by name; KeyError if there is none."""
        return {c.name: c for c in self.candidates}[name]


@dataclass(frozen=True)
class Reason:
    """One number and what it says of the choice; `method` is the one that the sentence is about."""

    kind: Kind
    part: Part
    value: float
    sentence: str
    method: str = ""


@dataclass(frozen=True)
class Recommendation:
    """The method to start from, the training that it takes, one sentence that says so, and the reasons."""

    method: str
    training: Training
    verdict: str
    reasons: tuple[Reason, ...]


def recommend(numbers: Numbers) -> Recommendation:
    """Choose: as it is where that fits; else the method that meets the fewest new angles, keeps neighbours apart and
    lost least on the toy model, in this order."""
    n, plain = numbers, numbers.of("none")
    if n.target <= n.trained:
        why = Reason("fits", "for", n.target, f"all {n.target:,} positions lie within the {n.trained:,} of training")
        verdict = f"Change nothing: {n.target:,} positions are no more than the model was trained at."
        return Recommendation("none", "none", verdict, (why, *_base(n, plain)))
    if plain.bad == 0:
        said = f"all {n.full} pairs turned fully within {n.trained:,} positions, so no angle up to {n.target:,}"
        why = Reason("angles", "for", n.full, f"{said} is new", "none")
        verdict = (
            "Leave the frequencies as they are and measure: no pair meets a new angle, so stretching would only blur."
        )
        return Recommendation("none", "try without", verdict, (why, *_signal(n, plain), *_base(n, plain)))
    best = _choice(n)
    training = _training(n, best)
    reasons = (*_angles(n, plain, best), *_resolution(n, best), *_toy(n, best), *_signal(n, best), *_base(n, best))
    verdict = f"Start from {best.name} with factor {n.factor:g}, {_advice(n, best, training)}"
    return Recommendation(best.name, training, verdict, (reasons[0], _factor(n), *reasons[1:]))


def _choice(n: Numbers) -> Candidate:
    rivals = [c for c in n.candidates if c.name != "none"]
    return min(rivals, key=lambda c: (c.resolution < LOCAL and _sharp(n, c), c.bad, _rank(c), -c.resolution))


def _sharp(n: Numbers, c: Candidate) -> bool:
    """Whether another method, with no more new angles than this one, keeps neighbours apart."""
    return any(o.name != "none" and o.bad <= c.bad and o.resolution >= LOCAL for o in n.candidates)


def _rank(c: Candidate) -> float:
    return float("inf") if c.toy is None else c.toy


def _training(n: Numbers, best: Candidate) -> Training:
    if n.factor > n.toy_factor:
        return "in steps"
    rise = _rise(n, best)
    return "try without" if rise is not None and rise <= SMALL_RISE else "fine-tune"


def _rise(n: Numbers, c: Candidate) -> float | None:
    """Nats a byte that the toy model's loss grows past its training length."""
    return None if c.toy is None or n.toy_inside is None else c.toy - n.toy_inside


def _advice(n: Numbers, best: Candidate, training: Training) -> str:
    short = n.bound is not None and n.bound.smallest is not None and n.base < n.bound.smallest
    base = " Train with a larger base if far keys have to be found." if short and best.negative is not None else ""
    return {
        "try without": f"first without training, and measure.{base}",
        "fine-tune": f"and fine-tune at the target length.{base}",
        "in steps": f"and fine-tune, doubling the length in steps: this is more than was measured here.{base}",
        "none": "",
    }[training]


def _angles(n: Numbers, plain: Candidate, best: Candidate) -> list[Reason]:
    out = [
        Reason("angles", "others", plain.bad, f"unchanged, {_of(plain.bad, n.pairs)} meet angles that training never "
               f"showed, from position {plain.first_bad:,} on", "none"),
    ]  # fmt: skip
    if best.bad:
        out.append(Reason("angles", "open", best.bad, f"with {best.name} {_of(best.bad, n.pairs)} still do, from "
                          f"position {best.first_bad:,} on", best.name))  # fmt: skip
    else:
        out.append(Reason("angles", "for", 0, f"with {best.name} no pair meets a new angle", best.name))
    return out


def _resolution(n: Numbers, best: Candidate) -> list[Reason]:
    kept = (
        f"it keeps {_of(best.kept, n.pairs)} as trained, and {best.resolution:.0%} of the distance between neighbours"
    )
    out = [Reason("resolution", "for" if best.resolution >= LOCAL else "against", best.resolution, kept, best.name)]
    worst = min((c for c in n.candidates if c.name != "none"), key=lambda c: c.resolution)
    if worst.resolution < LOCAL and worst is not best:
        said = f"{worst.name} keeps {worst.resolution:.0%} of the distance between neighbours"
        out.append(Reason("resolution", "others", worst.resolution, said, worst.name))
    return out


def _factor(n: Numbers) -> Reason:
    if n.factor <= n.toy_factor:
        said = f"the factor {n.factor:g} is no more than the {n.toy_factor} that the toy model was run at"
        return Reason("factor", "for", n.factor, said)
    said = f"the factor {n.factor:g} is past the {n.toy_factor} that the toy model was run at"
    return Reason("factor", "open", n.factor, said)


def _toy(n: Numbers, best: Candidate) -> list[Reason]:
    rise = _rise(n, best)
    if rise is None:
        return []
    side = "worse" if rise >= 0 else "better"
    said = f"with {best.name} a toy model at {n.toy_factor} times its training length, untrained for it, is "
    said = f"{said}{abs(rise):.2f} nats a byte {side} than within it"
    out = [Reason("toy", "for" if rise <= SMALL_RISE else "against", rise, said, best.name)]
    winner = min(n.candidates, key=_rank)
    behind = _rank(best) - _rank(winner)
    if behind > 0:
        out.append(
            Reason("toy", "open", behind, f"on the toy model {winner.name} did {behind:.2f} better", winner.name)
        )
    plain = _rise(n, n.of("none"))
    if plain is not None and plain > rise:
        out.append(
            Reason("toy", "others", plain, f"with unchanged frequencies the toy model is {plain:.2f} worse", "none")
        )
    return out


def _signal(n: Numbers, best: Candidate) -> list[Reason]:
    name = "these frequencies" if best.name == "none" else best.name
    if best.negative is None:
        said = f"under {name} the score of equal vectors stays above zero up to distance {best.searched:,}"
        return [Reason("signal", "for", best.searched, said, best.name)]
    said = f"under {name} the score of equal vectors first falls below zero at distance {best.negative:,}"
    return [Reason("signal", "against", best.negative, said, best.name)]


def _base(n: Numbers, best: Candidate) -> list[Reason]:
    if n.bound is None:
        return [Reason("base", "open", n.base, f"no bound on the base was searched for {n.target:,} positions")]
    smallest, always = n.bound
    if smallest is None:
        said = f"no base up to 10^12 keeps Σcos above zero for {n.target:,} positions"
        return [Reason("base", "against", n.base, said)]
    said = f"a base of {_round(n.base)} is"
    if n.base < smallest:
        said = (
            f"{said} below {_round(smallest)}, the smallest that keeps Σcos above zero for {n.target:,} positions (Men "
        )
        said = f"{said}et al. 2024)"
        if best.name != "none" and best.negative is None:
            return [Reason("base", "open", smallest, f"unstretched, {said}; stretched by {best.name} it does")]
        return [Reason("base", "against", smallest, said)]
    if always is None or n.base < always:
        said = (
            f"{said} past {_round(smallest)}, the first that fits {n.target:,} positions, but some larger ones do not"
        )
        return [Reason("base", "open", smallest, said)]
    said = f"{said} past {_round(always)}, from where every base fits {n.target:,} positions"
    return [Reason("base", "for", always, said)]


def _of(count: int, total: int) -> str:
    return f"{count} of {total} pairs"


def _round(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}"
