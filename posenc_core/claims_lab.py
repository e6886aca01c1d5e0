"""Judges of the claims that are measured in the lab or by the benchmark.

Lab claims are judged on three seeds. A claim about one scheme has to be true for every seed; a difference between two
is one only if it is larger than what the seeds differ by among themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from posenc_core.benchmark import Record
from posenc_core.claims import Evidence, Judgement, Number, decide, listed
from posenc_core.lab import Metric, Result, Run, Setting, metric_of, parse_schemes, scheme_text
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import Spec
from posenc_core.train import slope_factor

SEEDS = (0, 1, 2)
PAST = (2, 4, 8, 16)  # training lengths
LOSS_UNIT = "nats a byte"
FLAT = 0.1  # nats a byte; seeds differ by a few hundredths, a lost position costs more than 0.3
LOST = 0.1  # of the answers
REPAIRED = 0.5  # of the rise: most of it
P_ROPE, PARTIAL = "rope(rotary_fraction=0.5, scaling=proportional)", "rope(rotary_fraction=0.5)"
TASKS = ("text", "short_texts", "copy", "token_back", "brackets", "recall")


class NotMeasured(Exception):
    """A run or a record that a judge needs was not made."""


# ------------------------------------------------------------------ samples over seeds


@dataclass(frozen=True)
class Sample:
    """One number a seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return sum(self.values) / len(self.values)

    @property
    def spread(self) -> float:
        """Largest less smallest."""
        return max(self.values) - min(self.values)

    def __sub__(self, other: Sample) -> Sample:
        return Sample(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def below(self, other: Sample) -> bool:
        """Whether it is lower by more than either differs among its seeds."""
        return other.mean - self.mean > max(self.spread, other.spread)

    def number(self, name: str, unit: str = "", claimed: str = "") -> Number:
        """The mean as a Number with the spread."""
        return Number(name, self.mean, unit, self.spread, claimed)


@cache
def family(scheme: str, **options: Any) -> tuple[Run, ...]:
    """The runs of one scheme under one setting, one a seed."""
    (spec,) = parse_schemes(scheme)
    return tuple(Run(spec, Setting(**options), seed) for seed in SEEDS)


@dataclass(frozen=True)
class Group:
    """The results of a family."""

    results: tuple[Result, ...]

    def at(self, times: int, metric: Metric = "loss") -> Sample:
        """Each seed's `Result.at`. NotMeasured where that is nothing."""
        found = tuple(r.at(times, metric) for r in self.results)
        if any(map(math.isnan, found)):
            raise NotMeasured
        return Sample(found)

    def past(self, metric: Metric = "loss", lengths: Iterable[int] = PAST) -> Sample:
        """Each seed's mean over these multiples of the training length."""
        found = [self.at(times, metric).values for times in lengths]
        return Sample(tuple(sum(one) / len(one) for one in zip(*found, strict=True)))

    def rise(self, times: int) -> Sample:
        """How much higher the loss is than at the training length."""
        return self.at(times) - self.at(1)


def group(evidence: Evidence, scheme: str, **options: Any) -> Group:
    """The results of `family`. NotMeasured if one is missing."""
    found = [evidence.of(run) for run in family(scheme, **options)]
    if None in found:
        raise NotMeasured
    return Group(tuple(r for r in found if r is not None))


Wanted = tuple[str, dict[str, Any]]  # a scheme, and the fields of its Setting that are not defaults


@dataclass(frozen=True)
class LabJudge:
    """A rule over groups of results; "not measured" as long as one of their runs is missing."""

    rule: Callable[[dict[str, Group]], Judgement]
    wanted: Mapping[str, Wanted]

    def __call__(self, evidence: Evidence) -> Judgement:
        try:
            return self.rule({n: group(evidence, scheme, **o) for n, (scheme, o) in self.wanted.items()})
        except NotMeasured:
            return Judgement("not measured", ())

    def runs(self) -> list[Run]:
        """The runs that it needs."""
        return [run for scheme, options in self.wanted.values() for run in family(scheme, **options)]


def lab(**wanted: Wanted) -> Callable[[Callable[[dict[str, Group]], Judgement]], LabJudge]:
    """Make a LabJudge of a rule that takes these groups by name."""
    return lambda rule: LabJudge(rule, wanted)


def _of(scheme: str, **options: Any) -> Wanted:
    return scheme, options


def _losses(found: Group, name: str, times: Iterable[int] = (1, *PAST)) -> list[Number]:
    return [found.at(t).number(f"{name}: loss at {t} training length{'s' if t > 1 else ''}", LOSS_UNIT) for t in times]


# ------------------------------------------------------------------ 6, 12, 15: past the training length


def _flat(found: Group) -> list[int]:
    """The multiples of the training length up to which no seed's loss rises by more than FLAT."""
    flat = []
    for times in PAST:
        if max(found.rise(times).values) > FLAT:
            break
        flat.append(times)
    return flat


def _up_to(flat: list[int]) -> str:
    return f"up to {flat[-1]} training lengths" if flat and flat != list(PAST) else ""


def _rises(found: Group) -> str:
    return f"at twice the training length the loss is {found.rise(2).mean:.2f} nats higher already"


@lab(sinusoidal=_of("sinusoidal"))
def sinusoidal_extrapolates(found: dict[str, Group]) -> Judgement:
    """No seed's loss rises by more than FLAT up to 16 training lengths, or up to fewer of them."""
    made = found["sinusoidal"]
    flat = _flat(made)
    return decide(
        flat == list(PAST),
        bool(flat),
        (
            *_losses(made, "sinusoidal"),
            made.rise(2).number("rise at 2 training lengths", LOSS_UNIT),
            made.rise(16).number("rise at 16", LOSS_UNIT, "none"),
        ),
        condition=_up_to(flat),
        reason=_rises(made),
    )


@lab(rope=_of("rope"))
def rope_degrades(found: dict[str, Group]) -> Judgement:
    """Every seed's loss at twice the training length is higher by more than FLAT."""
    made = found["rope"]
    rises = made.rise(2).values
    worse = sum(r > FLAT for r in rises)
    return decide(
        worse == len(rises),
        worse > 0,
        (made.rise(2).number("rise at 2 training lengths", LOSS_UNIT), *_losses(made, "rope")),
        condition=f"it depends on the seed: {worse} of {len(rises)} do",
        reason=f"no seed's loss rises by more than {FLAT:g} nats there; on average by {made.rise(2).mean:.2f}",
    )


@lab(alibi=_of("alibi"), rope=_of("rope"), **{f"{s} recall": _of(s, task="recall") for s in ("alibi", "rope", "none")})
def alibi_extrapolates(found: dict[str, Group]) -> Judgement:
    """No seed's loss on text rises by more than FLAT up to 16 training lengths, or up to fewer of them.

    What is then not found at a distance is a condition.
    """
    made, flat = found["alibi"], _flat(found["alibi"])
    near, far = (found["alibi recall"].at(t, "accuracy") for t in (1, 16))
    lost = near.mean - far.mean > max(LOST, near.spread, far.spread)
    others = {s: found[f"{s} recall"].at(16, "accuracy").mean for s in ("rope", "none")}
    conditions = [c for c in [_up_to(flat)] if c]
    if lost:
        conditions.append(
            "the loss on text stays, not what is found far away: recall by content falls from "
            f"{near.mean:.0%} to {far.mean:.0%}, RoPE's to {others['rope']:.0%}, without positions to "
            f"{others['none']:.0%}"
        )
    return decide(
        flat == list(PAST) and not lost,
        bool(flat),
        (
            made.rise(8).number("rise at 8 training lengths", LOSS_UNIT, f"within {FLAT}"),
            made.rise(16).number("rise at 16", LOSS_UNIT, f"within {FLAT}"),
            *_losses(made, "alibi", (1, 16)),
            *_losses(found["rope"], "rope", (1, 16)),
            *(
                found[f"{s} recall"].at(t, "accuracy").number(
                    f"{s}: recall at {t} training length{'s' if t > 1 else ''}", "of the answers"
                )
                for s in ("alibi", "rope", "none")
                for t in (1, 16)
            ),
        ),
        condition="; ".join(conditions),
        reason=_rises(made),
    )  # fmt: skip


# ------------------------------------------------------------------ 13, 14: extension

TUNED = 50  # steps of fine-tuning, a twelfth of the training


@lab(
    rope=_of("rope"),
    **{f"pi {n}": _of("rope", extension="linear", times=n) for n in (2, 4)},
    **{f"pi {n} tuned": _of("rope", extension="linear", times=n, finetune_steps=TUNED) for n in (2, 4)},
    **{f"unscaled {n} tuned": _of("rope", extension="none", times=n, finetune_steps=TUNED) for n in (2, 4)},
)
def interpolation_repairs(found: dict[str, Group]) -> Judgement:
    """At 2 and 4 times, PI and TUNED steps lead back to within FLAT of the loss before, and lower than without PI.

    Within as far as seeds tell: farther by no more than they differ. Lower than after as much fine-tuning without PI by
    more than they differ: else it is not PI alone that repairs. Not as far as before, but lower, is a condition; so is
    that as much fine-tuning does as well without PI, if PI takes away more than REPAIRED of the rise at both.
    """
    before = found["rope"].at(1)
    left, left_without = ({n: found[f"{name} {n} tuned"].at(n) - before for n in (2, 4)} for name in ("pi", "unscaled"))
    near = [n for n, d in left.items() if d.mean - FLAT <= d.spread]
    lower = [n for n in left if found[f"pi {n} tuned"].at(n).below(found[f"unscaled {n} tuned"].at(n))]
    repaired = [n for n in near if n in lower]
    rises = {n: found["rope"].at(n) - before for n in (2, 4)}
    most = all(
        d.mean < (1 - REPAIRED) * rises[n].mean and found[f"pi {n} tuned"].at(n).below(found["rope"].at(n))
        for n, d in left.items()
    )
    numbers = [before.number("rope: loss at the training length", LOSS_UNIT)]
    for n in (2, 4):
        numbers += [
            found["rope"].at(n).number(f"rope at {n} times", LOSS_UNIT),
            found[f"pi {n}"].at(n).number(f"PI (linear) ×{n} at {n} times", LOSS_UNIT),
            found[f"pi {n} tuned"].at(n).number(f"PI (linear) ×{n}, {TUNED} steps", LOSS_UNIT),
            found[f"unscaled {n} tuned"].at(n).number(f"unscaled ×{n}, {TUNED} steps", LOSS_UNIT),
        ]
    told = listed(f"{left_without[n].mean:+.2f} against {left[n].mean:+.2f} nats at {n} times" for n in (2, 4))
    conditions = [f"at {_times(repaired)}"] if repaired else []
    if farther := [n for n in lower if n not in near]:
        conditions.append(f"not to the loss before, but lower than without it at {_times(farther)}")
    if others := [n for n in (2, 4) if n not in lower]:
        conditions.append(f"at {_times(others)}, fine-tuning without it does as well")
    if not lower and most:
        gone = [" and ".join(f"{1 - d[n].mean / rises[n].mean:.0%}" for n in (2, 4)) for d in (left, left_without)]
        better = all(found[f"unscaled {n} tuned"].at(n).below(found[f"pi {n} tuned"].at(n)) for n in (2, 4))
        conditions = [
            f"it repairs most ({gone[0]} of the rise at 2 and 4 times), but as much fine-tuning without PI repairs "
            f"{'more' if better else 'as much'} ({gone[1]}): {told} above the loss before"
        ]
    return decide(
        repaired == [2, 4],
        bool(lower) or most,
        numbers,
        condition="; ".join(conditions),
        reason=f"{TUNED} steps of fine-tuning without PI do as well, and with PI less than {REPAIRED:.0%} of the rise "
        f"goes away: {told} above the loss before",
    )


def _times(numbers: Iterable[int]) -> str:
    return listed(map(str, numbers)) + " times"


@lab(rope=_of("rope"), **{n: _of("rope", extension=n, times=2) for n in ("ntk", "dynamic", "yarn")})
def ntk_repairs(found: dict[str, Group]) -> Judgement:
    """At 2 times, untrained, NTK brings every seed to within FLAT of the loss before, or at least below plain RoPE."""
    before, plain, made = found["rope"].at(1), found["rope"].at(2), found["ntk"].at(2)
    left = made - before
    better = made.below(plain)
    share = (plain.mean - made.mean) / (plain.mean - before.mean) if plain.mean > before.mean else 0.0
    stretched = {n: _stretch(family("rope", extension=n, times=2)[0]) for n in ("ntk", "dynamic")}
    return decide(
        max(left.values) <= FLAT,
        better,
        (
            before.number("rope: loss at the training length", LOSS_UNIT),
            plain.number("rope at 2 times", LOSS_UNIT),
            *(found[n].at(2).number(f"{n} ×2 at 2 times", LOSS_UNIT) for n in ("ntk", "dynamic", "yarn")),
            found["ntk"].at(1).number("ntk ×2 at the training length", LOSS_UNIT),
            Number("share of RoPE's rise that NTK takes away", share, "of it", 0.0, "all of it"),
            *(Number(f"{n} ×2 there: longest wavelength", x, "× RoPE's") for n, x in stretched.items()),
        ),
        condition=f"it takes away {share:.0%} of the rise; {left.mean:.2f} nats of it stay",
        reason=f"there its loss is {made.mean:.2f} nats, and without it {plain.mean:.2f}: not lower by more than seeds "
        "differ",
    )


def _stretch(run: Run) -> float:
    """How much longer an extended RoPE's longest wavelength is at the length that it is extended to."""
    plain, extended = run.sized, run.extended
    assert isinstance(plain, RopeSpec)
    assert isinstance(extended, RopeSpec)
    return (plain.inv_freq()[-1] / extended.inv_freq(run.setting.times * run.setting.train_length)[-1]).item()


# ------------------------------------------------------------------ 17: ALiBi at short lengths

CLAIMED = "2–3%"
ABOUT = (0.01, 0.05)  # what may still be called 2 to 3%: of the loss, or of all answers
NEAR_TASKS = ("text", "short_texts", "token_back")


@lab(**{f"{s} {t}": _of(s, task=t) for s in ("alibi", "rope") for t in NEAR_TASKS})
def alibi_is_worse(found: dict[str, Group]) -> Judgement:
    """Worse than RoPE at the training length in all three tasks, by about what is claimed, or by how much else.

    Losses are compared as a share of RoPE's, right answers by how many of all answers are fewer.
    """
    worse, sizes, numbers = dict[str, str](), list[float](), list[Number]()
    for task in NEAR_TASKS:
        metric = metric_of(task)
        alibi, rope = (found[f"{s} {task}"].at(1, metric) for s in ("alibi", "rope"))
        if metric == "loss":
            is_worse, size, unit = rope.below(alibi), alibi.mean / rope.mean - 1, "% of rope's loss"
        else:
            is_worse, size, unit = alibi.below(rope), rope.mean - alibi.mean, "% of all answers"
        sizes.append(size)
        if is_worse:
            worse[task] = f"{task} by {size * 100:.0f}{unit}"
        numbers += [
            rope.number(f"{task}: rope's {metric}", LOSS_UNIT if metric == "loss" else "of the answers"),
            alibi.number(f"{task}: alibi's {metric}", LOSS_UNIT if metric == "loss" else "of the answers"),
            Number(f"{task}: alibi is worse by", size * 100, unit, 0.0, CLAIMED),
        ]
    as_claimed = all(ABOUT[0] <= s <= ABOUT[1] for s in sizes)
    tested = found["rope text"].results[0].setting.train_length
    told = f"the direction holds, the size does not: {_range(sizes, '.0%')}, not {CLAIMED}"
    if as_claimed or len(worse) < len(NEAR_TASKS):
        told = ""
    parts = f"worse at {listed(worse.values())}"
    if better := [t for t in NEAR_TASKS if t not in worse]:
        parts += f", not at {listed(better)}"
    where = f"at {tested} tokens, the only length tested"
    return decide(
        len(worse) == len(NEAR_TASKS) and as_claimed,
        bool(worse),
        numbers,
        condition=f"{f'{told} ({parts})' if told else parts}; {where}",
        reason=f"{where}, it is in no task worse by more than seeds differ",
    )


# ------------------------------------------------------------------ 20, 24: other ways to train

TIMES_BETTER = 0.2  # of the rise; 30% that a reader may still recognise


def _gain(plain: Group, other: Group) -> float:
    """The share of plain's rise past the training length that is gone in `other`; negative if `other` rises more."""
    rise, rise_other = (g.past().mean - g.at(1).mean for g in (plain, other))
    return 1 - rise_other / rise


@lab(**{f"{s} {c}": _of(s, curriculum=c) for s in ("rope", "alibi", "sinusoidal") for c in ("fixed", "progressive")})
def progressive_length(found: dict[str, Group]) -> Judgement:
    """TIMES_BETTER or more of the rise is gone and the loss past the training length lower, beyond what seeds do.

    For every scheme whose loss rises by more than FLAT; or for some of them, or at a price at the training length.
    """
    helped, could, paid, shares, others = list[str](), list[str](), list[str](), list[str](), list[str]()
    numbers = list[Number]()
    for scheme in ("rope", "alibi", "sinusoidal"):
        fixed, progressive = (found[f"{scheme} {c}"] for c in ("fixed", "progressive"))
        numbers += [
            sample.number(f"{scheme}, {name}: loss {where} the training length", LOSS_UNIT)
            for name, g in (("fixed", fixed), ("progressive", progressive))
            for where, sample in (("at", g.at(1)), ("past", g.past()))
        ]
        change = progressive.past() - fixed.past()
        numbers.append(change.number(f"{scheme}: change of the loss past the training length", LOSS_UNIT))
        if fixed.past().mean - fixed.at(1).mean <= FLAT:  # no rise, nothing to take away
            beyond = fixed.past().below(progressive.past()) or progressive.past().below(fixed.past())
            way, sure = "worse" if change.mean > 0 else "better", "" if beyond else ", less than seeds differ"
            others.append(
                f"{scheme}, which hardly rises, gets {way} ({fixed.past().mean:.3f} → {progressive.past().mean:.3f} "
                f"nats{sure})"
            )
            continue
        could.append(scheme)
        gain = _gain(fixed, progressive)
        numbers.append(Number(f"{scheme}: share of the rise that goes away", gain * 100, "%", 0.0, "30%"))
        shares.append(f"{gain:.0%} of {scheme}'s rise ({change.mean:+.2f} nats)")
        if gain >= TIMES_BETTER and progressive.past().below(fixed.past()):
            helped.append(scheme)
        if fixed.at(1).below(progressive.at(1)):
            paid.append(f"{scheme} {progressive.at(1).mean - fixed.at(1).mean:+.2f} nats")
    gone = "; ".join([f"past the training length it takes away {listed(shares)}", *others])
    return decide(
        bool(could) and helped == could and not paid,
        bool(helped),
        numbers,
        condition=gone + (f"; at the training length it costs: {listed(paid)}" if paid else ""),
        reason=f"{gone}; or seeds differ by as much as the loss falls"
        if could
        else "no loss rises past the training length, so there is nothing to take away",
    )


GAP = 4


@lab(**{f"{s} {g}": _of(s, position_gap=g) for s in ("rope", "sinusoidal") for g in (1, GAP)})
def perturbed_positions(found: dict[str, Group]) -> Judgement:
    """Training on gaps lowers the loss past the training length beyond what seeds do; a price within is a condition.

    The mean at those lengths whose positions came in training, up to GAP times the training length.
    """
    helped, paid, numbers, change = list[str](), list[str](), list[Number](), list[str]()
    reached = [t for t in PAST if t <= GAP]
    for scheme in ("rope", "sinusoidal"):
        plain, gaps = (found[f"{scheme} {g}"] for g in (1, GAP))
        before, after = (g.past(lengths=reached) for g in (plain, gaps))
        numbers += [
            before.number(f"{scheme}: loss, mean at {_times(reached)}", LOSS_UNIT),
            after.number(f"{scheme}, gaps: the same", LOSS_UNIT),
            (gaps.at(1) - plain.at(1)).number(f"{scheme}, gaps: change at the training length", LOSS_UNIT),
            *(
                g.at(t).number(f"{name}: loss at {t} times, beyond the positions of training", LOSS_UNIT)
                for t in PAST
                if t > GAP
                for name, g in ((scheme, plain), (f"{scheme}, gaps", gaps))
            ),
        ]
        change.append(f"{scheme} {after.mean - before.mean:+.2f} nats")
        if after.below(before):
            helped.append(scheme)
            if plain.at(1).below(gaps.at(1)):
                paid.append(scheme)
    conditions = [f"{listed(helped)} only"] if len(helped) == 1 else []
    if paid:
        price = listed(f"{s} {(found[f'{s} {GAP}'].at(1) - found[f'{s} 1'].at(1)).mean:+.2f} nats" for s in paid)
        conditions.append(f"at the training length it costs: {price}")
    return decide(
        len(helped) == 2 and not paid,
        bool(helped),
        numbers,
        condition="; ".join(conditions),
        reason=f"the loss is not lower by more than seeds differ: {listed(change)}",
    )


# ------------------------------------------------------------------ 21: ALiBi early, RoPE late


@lab(**{f"{s} {t}": _of(s, task=t) for s in ("alibi+rope", "rope", "alibi") for t in TASKS})
def hybrid_beats_both(found: dict[str, Group]) -> Judgement:
    """In each of the tasks, within and past the training length: better than both somewhere, and worse nowhere."""
    won, lost = list[str](), list[str]()
    for task in TASKS:
        metric = metric_of(task)
        for where in ("within", "past"):
            made, *single = (
                g.at(1, metric) if where == "within" else g.past(metric)
                for g in (found[f"{s} {task}"] for s in ("alibi+rope", "rope", "alibi"))
            )
            case = f"{task} {where}"
            if all(_better(made, one, metric) for one in single):
                won.append(case)
            elif any(_better(one, made, metric) for one in single):
                lost.append(case)
    numbers = [
        sample.number(f"text, {scheme}: loss {where} the training length", LOSS_UNIT)
        for scheme in ("alibi+rope", "rope", "alibi")
        for where, sample in (("at", found[f"{scheme} text"].at(1)), ("past", found[f"{scheme} text"].past()))
    ]
    cases = 2 * len(TASKS)
    return decide(
        bool(won) and not lost,
        bool(won),
        (
            *numbers,
            Number("better than both", len(won), f"of {cases}"),
            Number("worse than one", len(lost), f"of {cases}"),
        ),
        condition=f"better than both at {listed(won)}; worse than one of them at {listed(lost)}",
        reason=f"it is better than both nowhere, and worse than one of them at {listed(lost)}",
    )


def _better(a: Sample, b: Sample, metric: Metric) -> bool:
    return a.below(b) if metric == "loss" else b.below(a)


# ------------------------------------------------------------------ 22: dynamic slopes

REACHED = 0.75  # of the steps: the level is what fixed slopes' loss is on average from there on


def _level(result: Result) -> float:
    """Mean training loss of the last quarter of the steps."""
    last = [loss for step, loss in result.curve if step > REACHED * result.setting.steps]
    if not last:
        raise NotMeasured
    return sum(last) / len(last)


def _steps_to(result: Result, level: float) -> float:
    """The first kept step at which the training loss is no higher; infinite for never."""
    return next((float(step) for step, loss in result.curve if loss <= level), math.inf)


@lab(fixed=_of("alibi"), dynamic=_of("alibi", slope_training="dynamic"))
def dynamic_slopes(found: dict[str, Group]) -> Judgement:
    """All seeds reach fixed slopes' late loss, in fewer steps by more than seeds differ; or they only end lower."""
    fixed, dynamic = found["fixed"], found["dynamic"]
    levels = [_level(r) for r in fixed.results]
    steps, steps_dynamic = (
        Sample(tuple(_steps_to(r, level) for r, level in zip(g.results, levels, strict=True))) for g in (fixed, dynamic)
    )
    reached = all(map(math.isfinite, steps_dynamic.values))
    faster = reached and steps_dynamic.below(steps)
    lower, higher = dynamic.at(1).below(fixed.at(1)), fixed.at(1).below(dynamic.at(1))
    setting = dynamic.results[0].setting
    negative = sum(slope_factor(step, setting.steps, setting.alpha) < 0 for step in range(1, setting.steps + 1))
    times = [steps_dynamic.number("dynamic: steps to the same loss", "steps")] if reached else []
    conditions = ["sooner there, but the final loss is higher"] if faster and higher else []
    conditions += ["it ends lower, but gets there no sooner"] if lower and not faster else []
    return decide(
        faster and not higher,
        faster or lower,
        (
            steps.number("fixed: steps to its loss of the last quarter", "steps"),
            *times,
            Number("seeds in which dynamic slopes reach it", sum(map(math.isfinite, steps_dynamic.values)),
                   f"of {len(SEEDS)}"),
            fixed.at(1).number("fixed: held-out loss at the training length", LOSS_UNIT),
            dynamic.at(1).number("dynamic: held-out loss at the training length", LOSS_UNIT),
            Number("steps with negative slopes", negative, f"of {setting.steps}"),
        ),
        condition="; ".join(conditions),
        reason=f"they get there no sooner by more than seeds differ ({steps_dynamic.mean:,.0f} steps, fixed ones "
        f"{steps.mean:,.0f})"
        if reached
        else f"fixed slopes' loss is reached in {sum(map(math.isfinite, steps_dynamic.values))} of {len(SEEDS)} seeds",
    )  # fmt: skip


# ------------------------------------------------------------------ 23: p-RoPE


@lab(**{s: _of(s, task="recall") for s in (P_ROPE, PARTIAL, "rope", "none")})
def proportional_keeps_content(found: dict[str, Group]) -> Judgement:
    """Past the training length p-RoPE recalls more than RoPE; that it loses some on the way to 16 is a condition."""
    names = {P_ROPE: "p-RoPE, half", PARTIAL: "partial RoPE, half", "rope": "rope", "none": "none"}
    near, far = (found[P_ROPE].at(t, "accuracy") for t in (1, 16))
    past, past_rope = (found[s].past("accuracy") for s in (P_ROPE, "rope"))
    better, kept = past_rope.below(past), max((near - far).values) <= LOST
    return decide(
        better and kept,
        better,
        tuple(
            found[s].at(t, "accuracy").number(f"{names[s]}: recall at {t} training length{'s' if t > 1 else ''}",
                                              "of the answers")
            for s in names
            for t in (1, 4, 16)
        ),
        condition=f"more than RoPE, but it falls from {near.mean:.0%} to {far.mean:.0%}, without positions to "
        f"{found['none'].at(16, 'accuracy').mean:.0%}",
        reason=f"past the training length it recalls {past.mean:.0%}, RoPE {past_rope.mean:.0%}: not more by more than "
        "seeds differ",
    )  # fmt: skip


# ------------------------------------------------------------------ 11, 16: from the benchmark

ROPE_COST, COST_MARGIN = 0.07, 0.02  # 7%, give or take 2 points
ALIBI_SAVING, SAVING_MARGIN = 0.15, 0.05
SAVED_AT = 2048  # tokens


def records(evidence: Evidence, what: str = "layer", implementation: str = "fast") -> list[Record]:
    """What was timed on the CPU in float32, forward. NotMeasured if nothing was, or what there is cannot be read."""
    listed: Any = evidence.benchmark.get("records", [])
    try:
        made = [Record.from_mapping(r) for r in listed]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotMeasured from None
    found = [r for r in made if (r.case.what, r.case.device, r.case.dtype) == (what, "cpu", "float32")]
    found = [r for r in found if r.case.implementation == implementation and not r.case.backward and not r.skipped]
    if not found:
        raise NotMeasured
    return found


def _layer(evidence: Evidence) -> tuple[int, int]:
    """Heads and d_head of the timed layer."""
    config: Any = evidence.benchmark.get("config", {})
    try:
        return int(config["heads"]), int(config["d_head"])
    except (KeyError, TypeError, ValueError):
        raise NotMeasured from None


def rope_cost(evidence: Evidence) -> Judgement:
    """7 ± 2% of a layer's arithmetic and of its time (median beside none's) at all lengths; or of one, or at some.

    The layer is one of attention without MLP, run eagerly but for the rotation, which is compiled.
    """
    try:
        found = sorted(
            (r for r in records(evidence) if scheme_text(r.case.spec) == "rope"), key=lambda r: r.case.length
        )
        heads, d_head = _layer(evidence)
    except NotMeasured:
        return Judgement("not measured", ())
    costs = dict[int, tuple[float, float, float]]()
    for r in found:
        if r.ratio is not None and r.ratio_lower is not None and r.ratio_upper is not None:
            costs[r.case.length] = (r.ratio_lower - 1, r.ratio - 1, r.ratio_upper - 1)
    if not costs:
        return Judgement("not measured", ())
    low, high = ROPE_COST - COST_MARGIN, ROPE_COST + COST_MARGIN
    about = [n for n, (_, cost, _) in costs.items() if low <= cost <= high]
    arithmetic = {n: rotation_share(heads * d_head, n) for n in costs}
    counted = all(low <= a <= high for a in arithmetic.values())
    times = [cost for _, cost, _ in costs.values()]
    told = (
        f"as time it is {_range(times, '.1%')} of one attention layer without MLP, the rotation compiled, on a CPU; as "
        f"arithmetic {_range(arithmetic.values(), '.2%')}"
    )
    some = f", about 7% at {listed(f'{n:,}' for n in about)} tokens only" if about and len(about) < len(costs) else ""
    return decide(
        len(about) == len(costs) and counted,
        bool(about) or counted,
        (
            *(
                Number(f"time that it adds to a layer of {n:,} tokens", cost * 100, "%", (upper - lower) * 100,
                       "about 7%", "quartiles differ by")
                for n, (lower, cost, upper) in costs.items()
            ),
            *(
                Number(f"arithmetic that it adds to a layer of {n:,} tokens", arithmetic[n] * 100, "%", 0.0, "about 7%")
                for n in sorted({min(costs), max(costs)})
            ),
        ),
        condition=told + some,
        reason=told,
    )  # fmt: skip


def _range(values: Iterable[float], form: str) -> str:
    """Smallest to largest, one of them if they are written alike."""
    values = list(values)
    return " to ".join(dict.fromkeys((format(min(values), form), format(max(values), form))))


def rotation_share(d_model: int, length: int) -> float:
    """Multiplications and additions of RoPE beside those of an attention layer without it.

    A token: 3 for each of 2·d features rotated; 8·d² for the four projections and 2·d·L for scores and weighted sum
    over half of the L keys.
    """
    return 6 * d_model / (8 * d_model**2 + 2 * d_model * length)


def alibi_saves(evidence: Evidence) -> Judgement:
    """No parameters, and a layer of SAVED_AT tokens takes 15 ± 5% less than with vectors and with rotation; or one."""
    try:
        found = {scheme_text(r.case.spec): r.peak_bytes for r in records(evidence) if r.case.length == SAVED_AT}
        heads, d_head = _layer(evidence)
        alibi, *others = (found.get(s) for s in ("alibi", "rope", "sinusoidal"))
        rope, sinusoidal = others
        if not alibi or not rope or not sinusoidal:
            raise NotMeasured
    except NotMeasured:
        return Judgement("not measured", ())
    parameters = _parameters(AlibiSpec(n_heads=heads))
    table = _parameters(LearnedSpec(d_model=heads * d_head, max_position_embeddings=SAVED_AT))
    beside, beside_rope = alibi / sinusoidal, alibi / rope
    none, less = parameters == 0, max(beside, beside_rope) <= 1 - ALIBI_SAVING + SAVING_MARGIN
    claimed = f"about {1 - ALIBI_SAVING:g}"
    told = (
        f"with a bias that is read by distance a layer of {SAVED_AT:,} tokens takes {beside_rope:.1f} times as much as "
        f"with RoPE and {beside:.1f} times as much as with sinusoidal vectors"
    )
    with_matrix = _beside_none(evidence, "bias")
    if with_matrix is not None:
        told += f"; attention alone with a bias made in memory takes {with_matrix:.0f} times as much as without"
    return decide(
        none and less,
        none or less,
        (
            Number("ALiBi's parameters", parameters, "", 0.0, "none"),
            Number(f"those of a learned table of {SAVED_AT:,} rows", table),
            Number(f"memory at {SAVED_AT:,} tokens, beside sinusoidal", beside, "×", 0.0, claimed),
            Number(f"memory at {SAVED_AT:,} tokens, beside RoPE", beside_rope, "×", 0.0, claimed),
            Number("ALiBi's layer", alibi / 2**20, "MiB"),
            Number("RoPE's layer", rope / 2**20, "MiB"),
            *(
                [Number("attention with a bias made in memory, beside none", with_matrix, "×")]
                if with_matrix is not None
                else []
            ),
        ),
        condition=f"only its first half: {told}" if none else f"only its second half: it has {parameters} parameters",
        reason=f"it has {parameters} parameters, and {told}",
    )


def _beside_none(evidence: Evidence, implementation: str) -> float | None:
    """Memory of ALiBi's attention of SAVED_AT tokens by an implementation, beside attention without a bias."""
    peaks = list[int | None]()
    for scheme, name in (("alibi", implementation), ("none", "fast")):
        try:
            found = records(evidence, "attention", name)
        except NotMeasured:
            return None
        peaks += [r.peak_bytes for r in found if (scheme_text(r.case.spec), r.case.length) == (scheme, SAVED_AT)]
    alibi, none = peaks if len(peaks) == 2 else (None, None)
    return alibi / none if alibi and none else None


def _parameters(spec: Spec) -> int:
    return sum(p.numel() for p in spec.build().parameters())
