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
from posenc_core.claims import Evidence, Judgement, Number, listed, verdict_of
from posenc_core.lab import Metric, Result, Run, Setting, parse_schemes, scheme_text
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.spec import Spec
from posenc_core.tasks import TEXTS
from posenc_core.train import slope_factor

SEEDS = (0, 1, 2)
PAST = (2, 4, 8, 16)  # training lengths
FLAT = 0.1  # nat; seeds differ by a few hundredths, a lost position costs more than 0.3
LOST = 0.1  # of the answers
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

    def past(self, metric: Metric = "loss") -> Sample:
        """Each seed's mean over 2, 4, 8 and 16 training lengths."""
        found = [self.at(times, metric).values for times in PAST]
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
    return [found.at(t).number(f"{name}: loss at {t} training length{'s' if t > 1 else ''}", "nat") for t in times]


# ------------------------------------------------------------------ 6, 12, 15: past the training length


def _flat(found: Group) -> list[int]:
    """The multiples of the training length up to which no seed's loss rises by more than FLAT."""
    flat = []
    for times in PAST:
        if max(found.rise(times).values) > FLAT:
            break
        flat.append(times)
    return flat


@lab(sinusoidal=_of("sinusoidal"))
def sinusoidal_extrapolates(found: dict[str, Group]) -> Judgement:
    """No seed's loss rises by more than FLAT up to 16 training lengths, or up to fewer of them."""
    made = found["sinusoidal"]
    flat = _flat(made)
    return Judgement(
        verdict_of(flat == list(PAST), bool(flat)),
        (
            *_losses(made, "sinusoidal"),
            made.rise(2).number("rise at 2 training lengths", "nat"),
            made.rise(16).number("rise at 16", "nat", "none"),
        ),
        f"up to {flat[-1]} training lengths" if flat and flat != list(PAST) else "",
    )


@lab(rope=_of("rope"))
def rope_degrades(found: dict[str, Group]) -> Judgement:
    """Every seed's loss at twice the training length is higher by more than FLAT."""
    made = found["rope"]
    rises = made.rise(2).values
    worse = sum(r > FLAT for r in rises)
    return Judgement(
        verdict_of(worse == len(rises), worse > 0),
        (made.rise(2).number("rise at 2 training lengths", "nat"), *_losses(made, "rope")),
        f"it depends on the seed: {worse} of {len(rises)} do" if 0 < worse < len(rises) else "",
    )


@lab(alibi=_of("alibi"), rope=_of("rope"), recall=_of("alibi", task="recall"))
def alibi_extrapolates(found: dict[str, Group]) -> Judgement:
    """Flat as above on text; what it then does not find at a distance is a condition."""
    made, recall = found["alibi"], found["recall"]
    flat = _flat(made)
    near, far = recall.at(1, "accuracy"), recall.at(16, "accuracy")
    lost = near.mean - far.mean > max(LOST, near.spread, far.spread)
    conditions = [f"up to {flat[-1]} training lengths"] if flat and flat != list(PAST) else []
    if lost:
        conditions.append(
            "the loss on text stays, not what is found far away: recall by content falls from "
            f"{near.mean:.0%} to {far.mean:.0%}"
        )
    return Judgement(
        verdict_of(flat == list(PAST) and not lost, bool(flat)),
        (
            made.rise(8).number("rise at 8 training lengths", "nat", f"within {FLAT}"),
            made.rise(16).number("rise at 16", "nat", f"within {FLAT}"),
            *_losses(made, "alibi", (1, 16)),
            *_losses(found["rope"], "rope", (1, 16)),
            near.number("alibi: recall at 1 training length", "of the answers"),
            far.number("alibi: recall at 16", "of the answers"),
        ),
        "; ".join(conditions) if flat else "",
    )


# ------------------------------------------------------------------ 13, 14: extension

TUNED = 50  # steps of fine-tuning, a twelfth of the training


@lab(
    rope=_of("rope"),
    **{f"pi {n}": _of("rope", extension="linear", times=n) for n in (2, 4)},
    **{f"pi {n} tuned": _of("rope", extension="linear", times=n, finetune_steps=TUNED) for n in (2, 4)},
    **{f"unscaled {n} tuned": _of("rope", extension="none", times=n, finetune_steps=TUNED) for n in (2, 4)},
)
def interpolation_repairs(found: dict[str, Group]) -> Judgement:
    """At 2 and 4 times, PI brings every seed to within FLAT of the loss before, at once.

    Conditions: at one of them, after fine-tuning, or not that far but lower than without it (plain beside plain,
    fine-tuned beside fine-tuned). If fine-tuning alone does as well, it is not PI that repairs.
    """
    before = found["rope"].at(1)

    def repaired(name: str, times: int) -> bool:
        return max((found[name].at(times) - before).values) <= FLAT

    at_once = [n for n in (2, 4) if repaired(f"pi {n}", n)]
    tuned = [n for n in (2, 4) if repaired(f"pi {n} tuned", n)]
    without = [n for n in (2, 4) if repaired(f"unscaled {n} tuned", n)]
    pairs = {n: [(f"pi {n}", "rope"), (f"pi {n} tuned", f"unscaled {n} tuned")] for n in (2, 4)}
    lower = [n for n, both in pairs.items() if any(found[a].at(n).below(found[b].at(n)) for a, b in both)]
    verdict = verdict_of(at_once == [2, 4], bool(at_once or tuned or lower))
    numbers = [before.number("rope: loss at the training length", "nat")]
    for n in (2, 4):
        numbers += [
            found["rope"].at(n).number(f"rope at {n} times", "nat"),
            found[f"pi {n}"].at(n).number(f"PI ×{n} at {n} times", "nat"),
            found[f"pi {n} tuned"].at(n).number(f"PI ×{n}, {TUNED} steps", "nat"),
            found[f"unscaled {n} tuned"].at(n).number(f"no scaling ×{n}, {TUNED} steps", "nat"),
        ]
    conditions = [f"without training only at {_times(at_once)}"] if at_once and verdict != "holds" else []
    if tuned and verdict != "holds":
        conditions.append(f"after {TUNED} steps of fine-tuning, at {_times(tuned)}")
        if without:
            conditions.append(f"at {_times(without)} the fine-tuning repairs it without any scaling as well")
    if lower and not at_once and not tuned:
        conditions.append(f"not to the loss before, but at {_times(lower)} lower than without it")
    return Judgement(verdict, tuple(numbers), "; ".join(conditions))


def _times(numbers: Iterable[int]) -> str:
    return listed(map(str, numbers)) + " times"


@lab(rope=_of("rope"), **{n: _of("rope", extension=n, times=2) for n in ("ntk", "dynamic", "yarn")})
def ntk_repairs(found: dict[str, Group]) -> Judgement:
    """At 2 times, untrained, NTK brings every seed to within FLAT of the loss before, or at least below plain RoPE."""
    before, plain, made = found["rope"].at(1), found["rope"].at(2), found["ntk"].at(2)
    left = made - before
    better = made.below(plain)
    share = (plain.mean - made.mean) / (plain.mean - before.mean) if plain.mean > before.mean else 0.0
    verdict = verdict_of(max(left.values) <= FLAT, better)
    return Judgement(
        verdict,
        (
            before.number("rope: loss at the training length", "nat"),
            plain.number("rope at 2 times", "nat"),
            *(found[n].at(2).number(f"{n} ×2 at 2 times", "nat") for n in ("ntk", "dynamic", "yarn")),
            found["ntk"].at(1).number("ntk ×2 at the training length", "nat"),
            Number("share of RoPE's rise that NTK takes away", share, "", 0.0, "all of it"),
        ),
        f"it takes away {share:.0%} of the rise; {left.mean:.2f} nat of it stay"
        if verdict == "holds with a condition"
        else "",
    )


# ------------------------------------------------------------------ 17: ALiBi at short lengths

ABOUT = (0.01, 0.05)  # what may still be called 2 to 3%
NEAR_TASKS = ("text", "short_texts", "token_back")


@lab(**{f"{s} {t}": _of(s, task=t) for s in ("alibi", "rope") for t in NEAR_TASKS})
def alibi_is_worse(found: dict[str, Group]) -> Judgement:
    """Worse than RoPE at the training length in all three tasks, by about what is claimed, or by how much else."""
    worse, sizes, numbers = list[str](), dict[str, float](), list[Number]()
    for task in NEAR_TASKS:
        metric: Metric = "loss" if task in TEXTS else "accuracy"
        alibi, rope = (found[f"{s} {task}"].at(1, metric) for s in ("alibi", "rope"))
        sizes[task] = abs(alibi.mean / rope.mean - 1) if rope.mean else math.inf
        if rope.below(alibi) if metric == "loss" else alibi.below(rope):
            worse.append(task)
        numbers += [
            (rope.number(f"{task}: rope's {metric}", "nat" if metric == "loss" else "of the answers")),
            (alibi.number(f"{task}: alibi's {metric}", "nat" if metric == "loss" else "of the answers")),
            Number(f"{task}: difference", sizes[task] * 100, "%", 0.0, "2–3%"),
        ]
    as_claimed = all(ABOUT[0] <= s <= ABOUT[1] for s in sizes.values())
    verdict = verdict_of(len(worse) == len(NEAR_TASKS) and as_claimed, bool(worse))
    return Judgement(
        verdict,
        tuple(numbers),
        "worse at " + listed(f"{t} by {sizes[t]:.0%}" for t in worse) if verdict == "holds with a condition" else "",
    )


# ------------------------------------------------------------------ 20, 24: other ways to train

TIMES_BETTER = 0.2  # of the rise; 30% that a reader may still recognise


def _gain(plain: Group, other: Group) -> float:
    """The share of plain's rise past the training length that `other` takes away; negative if it adds to it."""
    before, past = plain.at(1).mean, plain.past().mean
    return (past - other.past().mean) / (past - before)


@lab(**{f"{s} {c}": _of(s, curriculum=c) for s in ("rope", "alibi", "sinusoidal") for c in ("fixed", "progressive")})
def progressive_length(found: dict[str, Group]) -> Judgement:
    """It takes a fifth or more off the rise of every scheme whose loss rises, beyond what seeds do; or of some."""
    helped, could, numbers = list[str](), list[str](), list[Number]()
    for scheme in ("rope", "alibi", "sinusoidal"):
        fixed, progressive = (found[f"{scheme} {c}"] for c in ("fixed", "progressive"))
        numbers += [
            fixed.past().number(f"{scheme}: loss past the training length, fixed", "nat"),
            progressive.past().number(f"{scheme}: the same, progressive", "nat"),
        ]
        if fixed.past().mean - fixed.at(1).mean <= FLAT:
            continue  # no rise, nothing to take away
        could.append(scheme)
        gain = _gain(fixed, progressive)
        numbers.append(Number(f"{scheme}: share of the rise that it takes away", gain * 100, "%", 0.0, "30%"))
        if gain >= TIMES_BETTER and progressive.past().below(fixed.past()):
            helped.append(scheme)
    return Judgement(
        verdict_of(bool(could) and helped == could, bool(helped)),
        tuple(numbers),
        f"{listed(helped)}, not {listed(s for s in could if s not in helped)}" if helped and helped != could else "",
    )


GAP = 4


@lab(**{f"{s} {g}": _of(s, position_gap=g) for s in ("rope", "sinusoidal") for g in (1, GAP)})
def perturbed_positions(found: dict[str, Group]) -> Judgement:
    """Training on gaps lowers the loss past the training length beyond what seeds do; a price within is a condition."""
    helped, paid, numbers = list[str](), list[str](), list[Number]()
    for scheme in ("rope", "sinusoidal"):
        plain, gaps = (found[f"{scheme} {g}"] for g in (1, GAP))
        numbers += [
            plain.past().number(f"{scheme}: loss past the training length", "nat"),
            gaps.past().number(f"{scheme}, gaps: the same", "nat"),
            (gaps.at(1) - plain.at(1)).number(f"{scheme}, gaps: change at the training length", "nat"),
        ]
        if gaps.past().below(plain.past()):
            helped.append(scheme)
            if plain.at(1).below(gaps.at(1)):
                paid.append(scheme)
    conditions = [f"{listed(helped)} only"] if len(helped) == 1 else []
    if paid:
        price = listed(f"{s} {(found[f'{s} {GAP}'].at(1) - found[f'{s} 1'].at(1)).mean:+.2f} nat" for s in paid)
        conditions.append(f"at the training length it costs: {price}")
    return Judgement(verdict_of(len(helped) == 2 and not paid, bool(helped)), tuple(numbers), "; ".join(conditions))


# ------------------------------------------------------------------ 21: ALiBi early, RoPE late


@lab(**{f"{s} {t}": _of(s, task=t) for s in ("alibi+rope", "rope", "alibi") for t in TASKS})
def hybrid_beats_both(found: dict[str, Group]) -> Judgement:
    """In each of the tasks, within and past the training length: better than both somewhere, and worse nowhere."""
    won, lost = list[str](), list[str]()
    for task in TASKS:
        metric: Metric = "loss" if task in TEXTS else "accuracy"
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
        sample.number(f"text, {scheme}: loss {where} the training length", "nat")
        for scheme in ("alibi+rope", "rope", "alibi")
        for where, sample in (("at", found[f"{scheme} text"].at(1)), ("past", found[f"{scheme} text"].past()))
    ]
    cases = 2 * len(TASKS)
    return Judgement(
        verdict_of(bool(won) and not lost, bool(won)),
        (
            *numbers,
            Number("better than both", len(won), f"of {cases}"),
            Number("worse than one", len(lost), f"of {cases}"),
        ),
        f"better than both at {listed(won)}; worse than one of them at {listed(lost)}" if won and lost else "",
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
    return Judgement(
        verdict_of(faster and not higher, faster or lower),
        (
            steps.number("fixed: steps to its loss of the last quarter", "steps"),
            *times,
            Number("seeds in which dynamic slopes reach it", sum(map(math.isfinite, steps_dynamic.values)),
                   f"of {len(SEEDS)}"),
            fixed.at(1).number("fixed: held-out loss at the training length", "nat"),
            dynamic.at(1).number("dynamic: held-out loss at the training length", "nat"),
            Number("steps with negative slopes", negative, f"of {setting.steps}"),
        ),
        "; ".join(conditions),
    )  # fmt: skip


# ------------------------------------------------------------------ 23: p-RoPE


@lab(**{s: _of(s, task="recall") for s in (P_ROPE, PARTIAL, "rope", "none")})
def proportional_keeps_content(found: dict[str, Group]) -> Judgement:
    """Past the training length p-RoPE recalls more than RoPE; that it loses some on the way to 16 is a condition."""
    names = {P_ROPE: "p-RoPE, half", PARTIAL: "partial RoPE, half", "rope": "rope", "none": "none"}
    near, far = (found[P_ROPE].at(t, "accuracy") for t in (1, 16))
    better = found["rope"].past("accuracy").below(found[P_ROPE].past("accuracy"))
    kept = max((near - far).values) <= LOST
    return Judgement(
        verdict_of(better and kept, better),
        tuple(
            found[s].at(t, "accuracy").number(f"{names[s]}: recall at {t} training length{'s' if t > 1 else ''}",
                                              "of the answers")
            for s in names
            for t in (1, 4, 16)
        ),
        f"more than RoPE, but it falls from {near.mean:.0%} to {far.mean:.0%}" if better and not kept else "",
    )  # fmt: skip


# ------------------------------------------------------------------ 11, 16: from the benchmark

ROPE_COST, COST_MARGIN = 0.07, 0.02  # 7%, give or take 2 points
ALIBI_SAVING, SAVING_MARGIN = 0.15, 0.05
SAVED_AT = 2048  # tokens


def records(evidence: Evidence) -> list[Record]:
    """The layers timed on the CPU in float32. NotMeasured if there are none, or what there is cannot be read."""
    listed: Any = evidence.benchmark.get("records", [])
    try:
        made = [Record.from_mapping(r) for r in listed]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotMeasured from None
    found = [r for r in made if r.case.what == "layer" and r.case.device == "cpu" and not r.skipped]
    found = [r for r in found if r.case.dtype == "float32"]
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
    """At every length timed the quartiles of the layer's time beside none's meet 7 ± 2%; or at some lengths."""
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
    about = [n for n, (lower, _, upper) in costs.items() if lower <= high and upper >= low]
    longest = max(costs)
    arithmetic = rotation_share(heads * d_head, longest)
    return Judgement(
        verdict_of(len(about) == len(costs), bool(about)),
        (
            *(
                Number(f"time that it adds to a layer of {n:,} tokens", cost * 100, "%", (upper - lower) * 100,
                       "about 7%")
                for n, (lower, cost, upper) in costs.items()
            ),
            Number(f"arithmetic that it adds, {longest:,} tokens", arithmetic * 100, "%"),
        ),
        f"{listed(f'{n:,}' for n in about)} tokens" if about and len(about) < len(costs) else "",
    )  # fmt: skip


def rotation_share(d_model: int, length: int) -> float:
    """Multiplications and additions of RoPE beside those of an attention layer without it.

    A token: 3 for each of 2·d features rotated; 8·d² for the four projections and 2·d·L for scores and weighted sum
    over half of the L keys.
    """
    return 6 * d_model / (8 * d_model**2 + 2 * d_model * length)


def alibi_saves(evidence: Evidence) -> Judgement:
    """No parameters, and a layer at 2,048 tokens takes 10% less than with vectors and with rotation; or one of both."""
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
    saved, saved_rope = 1 - alibi / sinusoidal, 1 - alibi / rope
    none, less = parameters == 0, min(saved, saved_rope) >= ALIBI_SAVING - SAVING_MARGIN
    verdict = verdict_of(none and less, none or less)
    halves = {
        "parameters": f"only its first half: where a bias is made, a layer takes {alibi / rope:.0f} times as much as "
        "with RoPE; a kernel that takes the slopes needs no bias",
        "memory": "only its second half",
    }  # fmt: skip
    return Judgement(
        verdict,
        (
            Number("ALiBi's parameters", parameters, "", 0.0, "none"),
            Number(f"those of a learned table of {SAVED_AT:,} rows", table),
            Number(f"memory saved at {SAVED_AT:,} tokens, beside sinusoidal", saved * 100, "%", 0.0, "about 15%"),
            Number(f"memory saved at {SAVED_AT:,} tokens, beside RoPE", saved_rope * 100, "%", 0.0, "about 15%"),
            Number("ALiBi's layer", alibi / 2**20, "MiB"),
            Number("RoPE's layer", rope / 2**20, "MiB"),
        ),
        halves["parameters" if none else "memory"] if verdict == "holds with a condition" else "",
    )


def _parameters(spec: Spec) -> int:
    return sum(p.numel() for p in spec.build().parameters())
