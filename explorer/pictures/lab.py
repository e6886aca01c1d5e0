"""Pictures, table and sentences of the Extrapolation lab page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.charts import curves
from explorer.charts.palette import BLACK
from explorer.compute import claims
from explorer.compute.common import Array
from explorer.compute.lab import Asked, Work
from explorer.facts import Fact
from explorer.pictures.common import Lines, count
from explorer.pictures.lab_job import styles, time_text, unit
from explorer.views import LabView
from posenc_core import Spec, benchmark
from posenc_core.claims import Claim
from posenc_core.lab import BINS, MEASURED, TIMES, Metric, Result, Run, Setting, metric_of, scheme_text, setting_mapping
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import layers_of
from posenc_core.tasks import TEXTS

FLAT = (2, 4, 8)  # where a scheme has to stay near its value at 1
NEAR: dict[Metric, float] = {"loss": 0.1, "accuracy": 0.05}  # how near
DIGITS = 3
LETTER, LEAST_NAME, MOST_NAME = 8, 80, 330  # px of a letter, and of the table's names
CSV_DIGITS = 6  # means of values that are kept to four
METRICS: tuple[Metric, ...] = ("loss", "accuracy")
SAME_BYTES = (
    "Ups and downs within a training length are the text's: they are the same for every scheme and come again at each "
    "length, which asks for the same bytes. From twice the length on, a point is the mean of a whole length."
)


# ------------------------------------------------------------------ what is compared


@dataclass(frozen=True, eq=False)
class Side:
    """One line of the pictures: a scheme, with its extension; its results, one a seed."""

    label: str
    runs: tuple[Run, ...]
    results: tuple[Result, ...]
    colour: str
    dashed: bool

    def bins(self, metric: Metric) -> Array:
        """Held-out values [seeds, bins], NaN where nothing is defined or asked."""
        return np.array([getattr(r, metric) for r in self.results], dtype=np.float64)

    def values(self, times: int, metric: Metric) -> list[float]:
        """One a seed, at the end of a stretch of training lengths."""
        return [r.at(times, metric) for r in self.results]

    def at(self, times: int, metric: Metric) -> float:
        """Mean over the seeds; NaN where undefined."""
        return float(np.mean(self.values(times, metric)))

    def worse(self, times: int, metric: Metric) -> float:
        """How much worse than at the training length: a higher loss, a lower accuracy."""
        change = self.at(times, metric) - self.at(1, metric)
        return change if metric == "loss" else -change

    @property
    def trained(self) -> int:
        """Positions in training."""
        return self.runs[0].setting.train_length

    @property
    def measured(self) -> int:
        """Positions that the held-out examples have."""
        return len(self.results[0].loss) * self.trained // BINS

    @property
    def defined(self) -> int | None:
        """Positions after which nothing is defined up to the end, None if that is not so."""
        known = np.flatnonzero(np.isfinite(self.bins("loss")[0]))
        last = int(known[-1]) + 1 if len(known) else 0
        return None if last == len(self.results[0].loss) else last * self.trained // BINS


def sides(asked: Asked, made: Mapping[str, Result]) -> list[Side]:
    """The lines that have a result."""
    out, style = [], styles(asked.runs)
    for label, runs in asked.by_label.items():
        results = tuple(made[r.key] for r in runs if r.key in made)
        if results:
            out.append(Side(label, tuple(runs), results, *style[label]))
    return out


def shown_metric(view: LabView | Setting, wanted: str) -> Metric:
    """Loss or accuracy: as wanted, or what is natural for the task."""
    if wanted == "auto":
        return metric_of(view.task)
    return "loss" if wanted == "loss" else "accuracy"


def series(shown: Sequence[Side]) -> tuple[tuple[str, str], ...]:
    """Names with colours."""
    return tuple((s.label, s.colour) for s in shown)


def style(shown: Sequence[Side]) -> dict[str, tuple[object, ...]]:
    """What the charts of these lines share: names with colours, and which are dashed."""
    return {"series": series(shown), "dashed": tuple(s.label for s in shown if s.dashed)}


# ------------------------------------------------------------------ by position


def ticks(trained: int) -> tuple[int, ...]:
    """Powers of two of the training length on the axis of positions."""
    return tuple(trained * t // 4 for t in (1, 2, 4, 8, 16, 32, 64))


def domain(trained: int) -> tuple[float, float]:
    """Ends of that axis: half a bin to 16 training lengths."""
    return trained / (2 * BINS), float(TIMES * trained)


def thinned(side: Side, metric: Metric) -> tuple[Array, Array]:
    """Positions [points] and values [seeds, points]: every bin to twice the training length, then one point a length.

    Text answers for the same bytes at every training length, so whole lengths compare without the text's ups and downs.
    """
    values, width = side.bins(metric), side.trained / BINS
    near = 2 * BINS
    far = [values[:, i : i + BINS].mean(1) for i in range(near, values.shape[1] - BINS + 1, BINS)]
    x = [*((np.arange(min(near, values.shape[1])) + 0.5) * width), *((2.5 + np.arange(len(far))) * side.trained)]
    return np.array(x), np.column_stack([values[:, :near], *far])


def by_position(shown: Sequence[Side], metric: Metric, setting: Setting) -> Lines:
    """Mean over the seeds, and a band from the lowest to the highest."""
    frames = []
    for side in shown:
        x, values = thinned(side, metric)
        frames.append(curves.line(side.label, x, values.mean(0), values.min(0), values.max(0)))
        if len(values) > 1:
            known = np.isfinite(values).all(0)
            frames.append(curves.band(side.label, x[known], values[:, known].min(0), values[:, known].max(0)))
    frames.append(curves.guide(f"training length: {setting.train_length}", x=float(setting.train_length)))
    if setting.extension != "off":
        frames.append(curves.guide(f"extended to {setting.times} times", x=float(setting.train_length * setting.times)))
    what = f"loss ({unit(setting.task)})" if metric == "loss" else "accuracy (share of right answers)"
    return Lines(curves.together(*frames), series(shown), f"held-out {what}")


def seen(shown: Sequence[Side], metric: Metric) -> str:
    """Which stay near their value at the training length, which do not, and which end."""
    far = [t for t in FLAT if all(t * s.trained <= s.measured for s in shown)]
    if not far:
        return f"The held-out text ends after {shown[0].measured:,} positions: too short to tell."
    near, off = list[tuple[float, Side]](), list[tuple[float, Side]]()
    ended, odd = list[str](), list[str]()
    for side in shown:
        changes = [side.worse(t, metric) for t in far]
        worst = max(changes) if not any(map(math.isnan, changes)) else math.nan
        if side.defined is not None:
            ended.append(f"{side.label} (no rows past {side.defined:,})")
        elif math.isnan(worst):
            odd.append(side.label)
        else:
            (near if worst <= NEAR[metric] else off).append((worst, side))
    limit = NEAR[metric]
    near_by = f"{limit:g} {_unit(shown)} of the loss" if metric == "loss" else f"{100 * limit:g} points of the accuracy"
    parts = [
        f"{'Within' if near else 'No scheme stays within'} {near_by} at the training length, up to {far[-1]} times it"
        f"{f': {_told(near, metric)}' if near else ''}.",
        f"{'Higher' if metric == 'loss' else 'Lower'} by more, at worst: {_told(off, metric)}." if off else "",
        f"End at their table: {', '.join(ended)}." if ended else "",
        f"Asked nothing at some lengths: {', '.join(odd)}." if odd else "",
    ]
    return " ".join(filter(None, parts))


def _told(found: Sequence[tuple[float, Side]], metric: Metric) -> str:
    ranked = sorted(found, key=lambda x: (x[0], x[1].label))
    return ", ".join(
        f"{side.label} {value_text(side.at(1, metric), metric)} ({change_text(worst, metric)})"
        for worst, side in ranked
    )


def _unit(shown: Sequence[Side]) -> str:
    return unit(shown[0].runs[0].setting.task)


def change_text(worse: float, metric: Metric) -> str:
    """+0.04 for a loss that rose, −12 points for an accuracy that fell."""
    text = f"{worse:+.2f}" if metric == "loss" else f"{-100 * worse:+.0f}"
    text = text.replace("-", "−") if float(text) else text.lstrip("+-")
    return text if metric == "loss" else f"{text} points"


def value_text(value: float, metric: Metric) -> str:
    """A loss in nats or an accuracy in percent."""
    return f"{value:.{DIGITS}f}" if metric == "loss" else f"{value:.1%}"


# ------------------------------------------------------------------ training


def training(shown: Sequence[Side]) -> Lines:
    """Loss of every run while it trained."""
    frames = [
        curves.line(side.label, *zip(*result.curve, strict=True), strand=i)
        for side in shown
        for i, result in enumerate(side.results)
        if result.curve
    ]
    title = f"training loss ({_unit(shown)})"
    return Lines(curves.together(*frames, curves.guide("", y=math.nan)), series(shown), title)


def seen_training(shown: Sequence[Side]) -> str:
    """Where training ends, and that this says little about what comes after."""
    ends = sorted((float(np.mean([r.curve[-1][1] for r in s.results])), s.label) for s in shown if s.results[0].curve)
    if not ends:
        return "Nothing was trained: the extension only scales."
    (low, first), (high, last) = ends[0], ends[-1]
    if first == last:
        return f"{first} ends at {low:.{DIGITS}f} {_unit(shown)}."
    return (
        f"Lowest at the end: {first} ({low:.{DIGITS}f} {_unit(shown)}); highest: {last} ({high:.{DIGITS}f}). "
        "One line a seed; who trains best need not reach furthest."
    )


def slope_lines(shown: Sequence[Side]) -> Lines | None:
    """Slopes that training reached beside the recipe's; None where no run learned any."""
    frames, names = [], list[tuple[str, str]]()
    for side in shown:
        first = side.results[0]
        if first.setting.slope_training != "learned" or not first.slopes:
            continue
        start = recipe(first.spec)
        if not names:
            frames.append(curves.line("paper's recipe", range(len(start)), start))
            names.append(("paper's recipe", BLACK))
        for i, result in enumerate(side.results):
            frames.append(curves.line(side.label, range(len(result.slopes)), result.slopes, strand=i))
        names.append((side.label, side.colour))
    return Lines(curves.together(*frames), tuple(names), "slope") if frames else None


def slope_axes(shown: Sequence[Side]) -> dict[str, tuple[float, ...]]:
    """Whole heads, with room around the first and the last point and above the largest slope."""
    learned = [r for s in shown for r in s.results if r.setting.slope_training == "learned" and r.slopes]
    heads = max(len(r.slopes) for r in learned)
    top = max(x for r in learned for x in (*r.slopes, *recipe(r.spec)))
    low = min(x for r in learned for x in (*r.slopes, 0.0))
    room = 0.05 * (top - low)
    return {
        "x_ticks": tuple(range(heads)), "x_domain": (-0.3, heads - 0.7), "y_domain": (low - room, top + room),
    }  # fmt: skip


def recipe(spec: Spec) -> list[float]:
    """The slopes that the ALiBi layers of a spec start with, each different layer's in turn."""
    layers = dict.fromkeys(s for s in layers_of(spec) if isinstance(s, AlibiSpec))
    return [x for s in layers for x in s.slope_tensor().tolist()]


def seen_slopes(shown: Sequence[Side]) -> str:
    """How far learning moved them."""
    parts = []
    for side in shown:
        first = side.results[0]
        if first.setting.slope_training == "learned" and first.slopes:
            ratios = np.array([r.slopes for r in side.results]) / np.array(recipe(first.spec))
            parts.append(f"{side.label}: {ratios.min():.2f} to {ratios.max():.2f} times the recipe's")
    return "Learned slopes of " + "; ".join(parts) + "."


# ------------------------------------------------------------------ table


def table(shown: Sequence[Side], metric: Metric, known: frozenset[str]) -> pd.DataFrame:
    """Mean ± half of the spread over the seeds, at 1 to 16 times.

    `known`: keys of results that came with the app; who made a line is told where lines differ in it.
    """
    rows, mixed = [], len({r.key in known for s in shown for r in s.results}) > 1
    for side in shown:
        row: dict[str, object] = {"scheme": side.label}
        row |= {f"{t}×": _cell(side, t, metric) for t in MEASURED}
        row["seeds"] = ", ".join(str(r.seed) for r in side.results)
        row["seconds"] = round(float(np.mean([r.seconds for r in side.results])), 1)
        shipped = sum(r.key in known for r in side.results)
        here = len(side.results) - shipped
        if mixed:
            row["made"] = "recorded" if not here else "here" if not shipped else f"{here} here"
        rows.append(row)
    return pd.DataFrame(rows)


def name_width(shown: Sequence[Side]) -> int:
    """Of the table's first column, in px: the longest name in full."""
    return min(MOST_NAME, max(LEAST_NAME, LETTER * (2 + max(len(s.label) for s in shown))))


def table_note(setting: Setting) -> str:
    """What the numbers of the table are."""
    same = ", where the text asks for the same bytes at every length" if setting.task == "text" else ""
    spread = "± is half of the spread over the seeds; seconds: of a run"
    return f"Means of the last half of each training length{same}; {spread}."


def _cell(side: Side, times: int, metric: Metric) -> str:
    values = side.values(times, metric)
    if not any(map(math.isnan, values)):
        mean, half = float(np.mean(values)), (max(values) - min(values)) / 2
        return value_text(mean, metric) + (f" ± {value_text(half, metric)}" if len(values) > 1 else "")
    if side.defined is not None and times * side.trained > side.defined:
        return f"no rows past {side.defined:,}"
    return "the text ends before" if times * side.trained > side.measured else "nothing asked"


def runs_csv(shown: Sequence[Side]) -> str:
    """A line a run: what it was, with its whole setting, and its numbers to the digits that are kept of them."""
    rows = []
    for side in shown:
        for result in side.results:
            row: dict[str, object] = {"scheme": scheme_text(result.spec), "seed": result.seed}
            row |= setting_mapping(result.setting)
            if result.setting.task in TEXTS:
                row["text"] = side.runs[0].corpus.digest
            row |= {"key": result.key, "seconds": result.seconds}
            for metric in METRICS:
                row |= {f"{metric}_at_{t}": round(result.at(t, metric), CSV_DIGITS) for t in MEASURED}
            rows.append(row)
    return pd.DataFrame(rows).to_csv(index=False)


# ------------------------------------------------------------------ words


def key_numbers(
    shown: Sequence[Side], asked: Asked, todo: Work, metric: Metric, most: float, busy: bool = False
) -> list[Fact]:
    """Runs, work, and the best lines. busy: the runs are being made, and the bar tells how long that takes."""
    made = len(asked.runs) - len({r.key for r in todo.runs} & {r.key for r in asked.runs})
    facts = [
        ("runs measured", f"{made} of {len(asked.runs)}", "runs of these schemes and seeds that have a result"),
        (
            "still to train",
            "nothing" if not todo.runs else count(len(todo.runs), "run") if busy else time_text(todo.seconds),
            f"an estimate for one core; one start may take {time_text(most)} on this server",
        ),
    ]
    if metric == "loss" and asked.runs and asked.runs[0].setting.task in TEXTS:
        flat = [(s.worse(8, metric), s.label) for s in shown if not math.isnan(s.worse(8, metric))]
        steady = min(flat, key=lambda x: abs(x[0])) if flat else None
        said = f"{steady[1]} {change_text(steady[0], metric)}" if steady else "none yet"
        facts.append(("flattest at 8 times", said, "the line whose loss changes least from 1 to 8 training lengths"))
    else:  # a line at chance is flat
        facts.append(_best(shown, 8, metric))
    return [*facts, _best(shown, 16, metric)]


def _best(shown: Sequence[Side], times: int, metric: Metric) -> Fact:
    found = [(s.at(times, metric), s.label) for s in shown if not math.isnan(s.at(times, metric))]
    best = (min(found) if metric == "loss" else max(found)) if found else None
    order = f"lowest held-out loss, in {_unit(shown)}" if metric == "loss" and shown else f"best held-out {metric}"
    said = f"{best[1]} {value_text(best[0], metric)}" if best else "none yet"
    return f"best at {times} times", said, f"{order}, at the end of {times} training lengths"


def claims_of(keys: frozenset[str]) -> list[Claim]:
    """The claims that these results are evidence for."""
    return [claim for n, claim in claims.BY_NUMBER.items() if any(run.key in keys for run in claims.runs_of(n))]


def origin(shown: Sequence[Side], known: frozenset[str]) -> str:
    """Where the results were made, and of which text."""
    results = [r for s in shown for r in s.results]
    recorded = [r for r in results if r.key in known]
    here = [r for r in results if r.key not in known]
    parts = []
    for what, some in (("Recorded", recorded), ("Made on this server", here)):
        machines = dict.fromkeys(_machine(r) for r in some)
        if machines:
            first, last = min(str(r.machine["date"])[:10] for r in some), max(str(r.machine["date"])[:10] for r in some)
            dates = first if first == last else f"{first} to {last}"
            parts.append(f"{what}: {count(len(some), 'run')}, {dates}, {'; '.join(list(machines)[:3])}")
    run = shown[0].runs[0]
    text = f" Text: SHA-256 {run.corpus.digest[:12]}…" if run.setting.task in TEXTS else ""
    own = " (yours)" if run.text else ""
    return f"{'. '.join(parts)}; {time_text(sum(r.seconds for r in results))} of training in all.{text}{own}"


def _machine(result: Result) -> str:
    found = {k: v for k, v in result.machine.items() if k not in ("load",)} | {"load": None}
    return benchmark.machine_line(found).rsplit(", ", 1)[0]  # without the date
