"""What to do about a context that has to grow, as reasons with their numbers: a pure function of what was computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from posenc_core.cosine_sums import BaseBound

Kind = Literal["fits", "angles", "resolution", "factor", "toy", "signal", "base"]
Part = Literal["for", "others", "against", "open"]  # for the choice, against its rivals, against it, left open
Training = Literal["none", "try without", "fine-tune", "in steps"]

LOCAL = 0.9  # of the trained distance between neighbours: above it, local order counts as kept
SMALL_RISE = 0.25  # nats a byte that the toy model may lose before training is called for
CLOSE = 0.15  # nats a byte: methods that are no further apart on the toy model are named together
CRITERION = "the criterion of Men et al. 2024"


@dataclass(frozen=True)
class Candidate:
    """One method at the target. `bad`: pairs that meet a new angle; `first_bad`: the first position where one does.

    `resolution`: distance of neighbours beside training; `kept`: pairs that are left as trained; `negative`: first
    distance below `searched` at which the score of a vector of ones with itself, over all features of the head, falls
    below zero; `toy`: held-out loss of the toy model past its training length at `Numbers.toy_factor`; `stretch`: what
    the lowest frequency is divided by. None: it does not happen, or was not measured.
    """

    name: str
    bad: int
    first_bad: int | None
    resolution: float
    kept: int
    negative: int | None
    searched: int
    toy: float | None
    stretch: float


@dataclass(frozen=True)
class Numbers:
    """What a recommendation is made from. `full`: pairs that turned fully in training; `still`: features of the head
    that do not rotate.

    `fits`: whether the model's own base, unstretched, keeps the score of a vector of ones with itself from falling
    below zero at every distance below the target; None if not all were searched. `bound`: what was found for other
    bases by the rotating features alone, as it is to be written; None where none was searched for this head and
    length. `toy_inside` is the toy model's loss within its training length, None if it was not measured, `toy_factor`
    the factor at which the candidates' losses were.
    """

    trained: int
    target: int
    pairs: int
    full: int
    still: int
    base: float
    fits: bool | None
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
    """The method to start from, the training that it takes, one sentence that says so, and the reasons.

    `peers`: methods that the numbers do not tell from it, named in the sentence as well.
    """

    method: str
    training: Training
    verdict: str
    reasons: tuple[Reason, ...]
    peers: tuple[str, ...] = ()


def recommend(numbers: Numbers) -> Recommendation:
    """Choose: as it is where that fits; else the method that meets the fewest new angles, keeps neighbours apart and
    lost least on the toy model, in this order. Those that lost as little, up to CLOSE, are named with it."""
    n, plain = numbers, numbers.of("none")
    if n.target <= n.trained:
        why = Reason("fits", "for", n.target, f"all {n.target:,} positions lie within the {n.trained:,} of training")
        verdict = f"Change nothing: {n.target:,} positions are no more than the model was trained at."
        return Recommendation("none", "none", verdict, (why, *_base(n, plain)))
    if plain.bad == 0:
        return _as_it_is(n, plain)
    best = _choice(n)
    peers, training = _peers(n, best), _training(n, best)
    named = [best, *peers]
    verdict = f"Start from {_or(named)} with factor {n.factor:g}, {_advice(n, best, training)}"
    reasons = (
        *_angles(n, plain, best), _factor(n), *_stretches(n, named), *_resolution(n, best), *_toy(n, best),
        *_close(n, best, peers), *_signal(n, best), *_base(n, best),
    )  # fmt: skip
    return Recommendation(best.name, training, verdict, reasons, tuple(c.name for c in peers))


def _as_it_is(n: Numbers, plain: Candidate) -> Recommendation:
    turned = f"all {n.full} pairs" if n.full == n.pairs else _of(n.full, n.pairs)
    rest = "" if n.full == n.pairs else ", and the others stay within their trained arc"
    said = f"{turned} turned fully within {n.trained:,} positions{rest}, so no angle up to {n.target:,} is new"
    why = Reason("angles", "for", n.full, said, "none")
    verdict = "Leave the frequencies as they are and measure"
    if n.fits is False:
        small = n.bound is not None and n.bound.smallest is not None and n.base < n.bound.smallest
        verdict = (
            f"{verdict} retrieval, not perplexity alone: no pair meets a new angle, but a base of {_exact(n.base)} is "
            f"{'too small' if small else 'none that fits'} for {n.target:,} positions by {CRITERION}.{_other_base(n)}"
        )
    else:
        verdict = f"{verdict}: no pair meets a new angle, so stretching would only blur."
    return Recommendation("none", "try without", verdict, (why, *_signal(n, plain), *_base(n, plain)))


def _rivals(n: Numbers) -> list[Candidate]:
    return [c for c in n.candidates if c.name != "none"]


def _choice(n: Numbers) -> Candidate:
    return min(_rivals(n), key=lambda c: (_blurs(n, c), c.bad, _rank(c), -c.resolution))


def _peers(n: Numbers, best: Candidate) -> list[Candidate]:
    """The methods that the toy model does not tell from the best, in its order."""
    if best.toy is None:
        return []
    alike = [c for c in _rivals(n) if c is not best and (_blurs(n, c), c.bad) == (_blurs(n, best), best.bad)]
    return sorted((c for c in alike if _rank(c) - best.toy <= CLOSE), key=_rank)


def _blurs(n: Numbers, c: Candidate) -> bool:
    """Whether it moves neighbours together, while another with no more new angles keeps them apart."""
    return c.resolution < LOCAL and any(o.bad <= c.bad and o.resolution >= LOCAL for o in _rivals(n))


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
    base = _other_base(n) if n.fits is False and best.negative is not None else ""
    return {
        "try without": f"first without training, and measure.{base}",
        "fine-tune": f"and fine-tune at the target length.{base}",
        "in steps": f"and fine-tune, doubling the length in steps: this is more than was measured here.{base}",
        "none": "",
    }[training]


def _other_base(n: Numbers) -> str:
    """The advice to train with another base, where one that was tried fits."""
    if n.bound is None or n.bound.smallest is None:
        return ""
    which = "a larger" if n.base < (n.bound.always or n.bound.smallest) else "another"
    return f" Train with {which} base if far keys have to be found."


def _angles(n: Numbers, plain: Candidate, best: Candidate) -> list[Reason]:
    out = [
        Reason("angles", "others", plain.bad, f"unchanged, {_of(plain.bad, n.pairs)} "
               f"{'meets' if plain.bad == 1 else 'meet'} angles that training never showed, from position "
               f"{plain.first_bad:,} on", "none"),
    ]  # fmt: skip
    if best.bad:
        out.append(
            Reason("angles", "open", best.bad, f"with {best.name} {_of(best.bad, n.pairs)} still "
                   f"{'does' if best.bad == 1 else 'do'}, from position {best.first_bad:,} on", best.name)
        )  # fmt: skip
    else:
        out.append(Reason("angles", "for", 0, f"with {best.name} no pair meets a new angle", best.name))
    return out


def _resolution(n: Numbers, best: Candidate) -> list[Reason]:
    kept = (
        f"it keeps {_of(best.kept, n.pairs)} as trained, and {best.resolution:.0%} of the distance between neighbours"
    )
    out = [Reason("resolution", "for" if best.resolution >= LOCAL else "against", best.resolution, kept, best.name)]
    worst = min(_rivals(n), key=lambda c: c.resolution)
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


def _stretches(n: Numbers, named: Sequence[Candidate]) -> list[Reason]:
    """Of the methods named, dynamic NTK stretches by more than the factor."""
    return [
        Reason("factor", "open", c.stretch, f"{c.name} with factor {n.factor:g} stretches by {c.stretch:,.6g} at "
               f"{n.target:,} positions", c.name)
        for c in named if c.stretch > 1.01 * n.factor
    ]  # fmt: skip


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
        said = (
            f"on the toy model {winner.name} did {behind:.2f} nats a byte better at {n.toy_factor} times its training "
            "length"
        )
        out.append(Reason("toy", "open", behind, said, winner.name))
    plain = _rise(n, n.of("none"))
    if plain is not None and plain > rise:
        said = (
            f"with unchanged frequencies the toy model at {n.toy_factor} times its training length is {plain:.2f} nats "
            "a byte worse than within it"
        )
        out.append(Reason("toy", "others", plain, said, "none"))
    return out


def _close(n: Numbers, best: Candidate, peers: Sequence[Candidate]) -> list[Reason]:
    if not peers:
        return []
    apart = _rank(peers[-1]) - _rank(best)
    said = (
        f"at {n.toy_factor} times the toy model puts {_and([best, *peers])} within {max(apart, 0.01):.2f} nats a byte "
        "of each other, too close to choose by"
    )
    return [Reason("toy", "open", apart, said, best.name)]


def _signal(n: Numbers, best: Candidate) -> list[Reason]:
    name = "these frequencies" if best.name == "none" else best.name
    who = f"under {name} all-ones vectors"
    if n.still:
        who = f"{who}, {n.still} still features included,"
    if best.negative is None:
        said = f"{who} score above zero at all distances below {best.searched:,}"
        return [Reason("signal", "for", best.searched, said, best.name)]
    return [
        Reason("signal", "against", best.negative, f"{who} first score below zero at distance {best.negative:,}",
               best.name)
    ]  # fmt: skip


def _base(n: Numbers, best: Candidate) -> list[Reason]:
    """The model's own base decides for or against; what was tried besides is told with it."""
    total = "Σcos" if not n.still else f"Σcos and the {n.still / 2:g} of its {n.still} still features"
    what, base = f"{total} above zero for {n.target:,} positions, {CRITERION}", _exact(n.base)
    if n.fits is None:
        return [Reason("base", "open", n.base, f"whether a base of {base} keeps {what}, was not searched that far")]
    if n.fits:
        return [Reason("base", "for", n.base, f"a base of {base} keeps {what}{_tried(n)}")]
    said = f"a base of {base} does not keep {what}, which they call not very strict{_tried(n)}"
    if best.name != "none" and best.negative is None:
        return [Reason("base", "open", n.base, f"unstretched, {said}; stretched by {best.name} it does")]
    return [Reason("base", "against", n.base, said)]


def _tried(n: Numbers) -> str:
    """What was found among the bases that were tried, by the rotating features alone."""
    if n.bound is None:
        return ""
    alone = " by the rotating features alone" if n.still else ""
    if n.bound.smallest is None:
        return f" (no base tried up to 10^12 does{alone})"
    all_do = "" if n.bound.always is None else f", and all from {_exact(n.bound.always)} on do"
    return f" (of the bases tried besides, the smallest that does{alone} is {_exact(n.bound.smallest)}{all_do})"


def _of(count: int, total: int) -> str:
    return f"{count} of {total} pairs"


def _or(named: Sequence[Candidate]) -> str:
    return _listed(named, "or")


def _and(named: Sequence[Candidate]) -> str:
    return _listed(named, "and")


def _listed(named: Sequence[Candidate], word: str) -> str:
    *most, last = (c.name for c in named)
    return f"{', '.join(most)} {word} {last}" if most else last


def _exact(value: float) -> str:
    return f"{value:,.13g}"
