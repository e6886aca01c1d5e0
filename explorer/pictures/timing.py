"""Pictures of the Timing page: benchmark records in, frames of charts and sentences out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from explorer.charts import curves
from explorer.charts.palette import BLUE, SCHEME_COLOURS, VERMILLION
from explorer.compute.timing import LONGEST_RUN, Live, Run
from explorer.pictures import common, timing_kernels
from explorer.pictures.common import Lines, names_of
from explorer.pictures.timing_kernels import Part, times
from explorer.text import SCHEME_TEXT, Try
from explorer.views import TimingView
from posenc_core import Problem, Spec, benchmark
from posenc_core.benchmark import Config, Record, bytes_text, time_text
from posenc_core.claims import listed
from posenc_core.schemes.none import NoneSpec

MIB = 2**20
WHAT = {"layer": "attention layer", "tables_built": "tables built", "tables_cached": "tables kept"}
BUILT, KEPT = "built", "kept"
BACKWARD = " + backward"  # after the name of a line
PHONE = 30  # characters of names that a phone shows beside each other
FAR = 2**17  # positions from which tables are too long for a layer to be timed beside them


@dataclass(frozen=True)
class Shown:
    """The part of a run that the pictures of layers and tables show: records of one device and dtype, names, colours.

    directions: forward (False), and forward and backward (True) where that is wanted and was measured.
    """

    records: tuple[Record, ...]
    specs: tuple[Spec, ...]
    series: tuple[tuple[str, str], ...]
    directions: tuple[bool, ...] = (False,)

    def name(self, spec: Spec) -> str:
        """What a scheme is called in every picture."""
        return self.series[self.specs.index(spec)][0]

    def of(self, spec: Spec, what: str, backward: bool = False) -> list[Record]:
        """The measured records of a scheme, short lengths first."""
        found = [r for r in self.records if r.case.spec == spec and r.case.what == what and r.median is not None]
        return sorted((r for r in found if r.case.backward == backward), key=lambda r: r.case.length)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths at which a layer was measured."""
        layers = (r for r in self.records if r.case.what == "layer" and r.median is not None)
        return tuple(sorted({r.case.length for r in layers}))

    @property
    def longest(self) -> int:
        """The longest length at which the first scheme's layer was measured, 0 if at none."""
        return max((r.case.length for r in self.of(self.main, "layer")), default=0)

    @property
    def main(self) -> Spec:
        """The scheme that the key numbers are about."""
        return self.specs[1] if len(self.specs) > 1 else self.specs[0]


def shown(run: Run, specs: Sequence[Spec], device: str, dtype: str, backward: bool = False) -> Shown:
    """Of a run: the wanted device and dtype, or its first ones; of a recorded one only the schemes of `specs`."""
    layers = [r for r in run.records if r.case.what in WHAT and r.case.implementation == "fast"]
    places = [(r.case.device, r.case.dtype) for r in layers]
    place = (device, dtype) if (device, dtype) in places or not places else places[0]
    records = [r for r in layers if (r.case.device, r.case.dtype) == place]
    measured = list(dict.fromkeys(r.case.spec for r in records))
    if run.recorded:
        # the very parameters where they were recorded, else the scheme with whichever there are
        exact = [s for s in measured if s in specs]
        rest = {s.scheme for s in specs} - {s.scheme for s in exact}
        measured = [s for s in measured if s in exact or s.scheme in rest]
    wanted = [s.scheme for s in specs]
    measured.sort(key=lambda s: wanted.index(s.scheme) if s.scheme in wanted else len(wanted))
    ordered = tuple(dict.fromkeys([NoneSpec(), *measured]))
    series = tuple(zip(names_of(ordered), colours(ordered), strict=True))
    kept = tuple(r for r in records if r.case.spec in ordered)
    both = backward and any(r.case.backward and r.median is not None for r in kept)
    return Shown(kept, ordered, series, (False, True) if both else (False,))


def covers(run: Run, specs: Sequence[Spec]) -> bool:
    """Whether a run has layers of the schemes of all these specs."""
    layers = (r for r in run.records if r.case.what == "layer" and r.median is not None)
    return {s.scheme for s in specs} <= {r.case.spec.scheme for r in layers}


def colours(specs: Sequence[Spec]) -> list[str]:
    """Each scheme's own colour; the second of a scheme gets another one."""
    out = list[str]()
    for spec in specs:
        own = SCHEME_COLOURS[spec.scheme]
        out.append(next(c for c in (own, VERMILLION, BLUE, *SCHEME_COLOURS.values()) if c not in out))
    return out


def time_lines(part: Shown) -> Lines:
    """Milliseconds of one pass against length: medians, and bands from quartile to quartile."""
    return _lines(part, "layer", f"time of one {'pass' if len(part.directions) > 1 else 'forward pass'} (ms)",
                  lambda r: (1e3 * r.median, 1e3 * r.lower, 1e3 * r.upper))  # fmt: skip


def overhead_lines(part: Shown) -> Lines:
    """Percent over scheme `none` in the same round against length: median over the rounds, and its quartiles."""
    lines = _lines(
        replace(part, specs=part.specs[1:], series=part.series[1:]), "layer", "over no position (%)",
        lambda r: None if r.ratio is None else tuple(map(percent, (r.ratio, r.ratio_lower, r.ratio_upper))),
    )  # fmt: skip
    return Lines(curves.together(lines.data, curves.guide("", y=0)), lines.series, lines.y_title)


def memory_lines(part: Shown) -> Lines | None:
    """MiB at the peak of one pass against length; None where the device does not tell."""
    lines = _lines(part, "layer", "peak memory (MiB)",
                   lambda r: None if r.peak_bytes is None else (r.peak_bytes / MIB,) * 3, bands=False)  # fmt: skip
    return None if lines.data.empty else lines


def percent(ratio: float) -> float:
    """1.07 times the time is 7 percent more."""
    return 100 * (ratio - 1)


def _lines(part: Shown, what: str, title: str, values: Any, bands: bool = True) -> Lines:
    frames, series = [curves.line("", [], [])], list[tuple[str, str]]()
    for backward in part.directions:
        for spec, (name, colour) in zip(part.specs, part.series, strict=True):
            found = part.of(spec, what, backward)
            points = [(r.case.length, *v) for r in found if (v := values(r)) is not None]
            if points:
                x, middle, low, high = np.array(points, dtype=np.float64).T
                name += BACKWARD if backward else ""
                frames += [curves.band(name, x, low, high)] if bands else []
                frames.append(curves.line(name, x, middle, *((low, high) if bands else ())))
                series.append((name, colour))
    data = curves.together(*[f for f in frames if len(f)]) if len(frames) > 1 else frames[0]
    return Lines(data, tuple(series), title)


def dashed(lines: Lines) -> tuple[str, ...]:
    """The lines of forward and backward together."""
    return tuple(name for name, _ in lines.series if name.endswith(BACKWARD))


def columns(lines: Lines) -> int:
    """Of a legend, such that a phone shows the longest names."""
    return 1 if dashed(lines) else 2 if sum(len(name) for name, _ in lines.series) > PHONE else 3


def height(lines: Lines) -> int:
    """Of a small chart in px; a legend of one column is high."""
    return 280 + (22 * (len(lines.series) - 1) if dashed(lines) else 0)


def table_bars(part: Shown, far: Run | None = None) -> pd.DataFrame:
    """Microseconds that tables take at the longest length, built and kept: columns name, value, series, text.

    `far` is a run with tables of very many positions; theirs are further bars.
    """
    made = [r for r in part.records if r.case.what != "layer" and r.case.length == part.longest]
    rows = _bars(part, made, f"{part.longest:,} tokens")
    if far is not None:
        rows += _bars(part, far_records(far, part), far_name(far, part))
    return pd.DataFrame(rows, columns=["name", "value", "series", "text"])


def _bars(part: Shown, records: Sequence[Record], where: str) -> list[tuple[str, float, str, str]]:
    names = {spec.scheme: name for spec, (name, _) in zip(part.specs, part.series, strict=True)}
    rows = []
    for what, how in (("tables_built", BUILT), ("tables_cached", KEPT)):
        for r in records:
            if r.case.what == what and r.median is not None:
                name = names[r.case.spec.scheme] if r.case.spec not in part.specs else part.name(r.case.spec)
                rows.append((f"{where}, {how}", 1e6 * r.median, name, time_text(r.median)))
    return rows


def far_run(runs: Iterable[Run], part: Shown) -> Run | None:
    """The first run that has tables of very many positions for one of the schemes."""
    return next((run for run in runs if far_records(run, part)), None)


def far_records(run: Run, part: Shown) -> list[Record]:
    """Measured tables of any of the schemes: of the most positions, FAR at least; of one device and dtype."""
    schemes = {s.scheme for s in part.specs}
    found = [r for r in run.records if r.case.what in ("tables_built", "tables_cached") and r.median is not None]
    found = [r for r in found if r.case.length >= FAR and r.case.spec.scheme in schemes]
    longest = max((r.case.length for r in found), default=0)
    found = [r for r in found if r.case.length == longest]
    return [r for r in found if (r.case.device, r.case.dtype) == (found[0].case.device, found[0].case.dtype)]


def far_name(run: Run, part: Shown) -> str:
    """How large the far tables are: 1,048,576 × 128."""
    return f"{far_records(run, part)[0].case.length:,} × {run.settings['d_head']}"


def far_seen(run: Run, part: Shown) -> str:
    """One sentence on the far tables, with where they were measured."""
    built = [r for r in far_records(run, part) if r.case.what == "tables_built"]
    if not built:
        return ""
    r = built[0]
    held = "" if r.peak_bytes is None else f", with {bytes_text(r.peak_bytes)} in memory at most"
    name = SCHEME_TEXT[r.case.spec.scheme].name
    return (f"{name}'s tables of {far_name(run, part)} take {time_text(r.median or 0.0)}{held} ({r.case.dtype} on "
            f"{r.case.device}, {title(run)}).")  # fmt: skip


def decades(values: Iterable[float]) -> list[float]:
    """Powers of ten from 0.1 or less past the largest value: the start that bars share, and room for a label."""
    logs = np.log10(list(values))
    low, high = min(-1, int(np.floor(logs.min() - 0.3))), int(np.ceil(logs.max() + 2))
    return [float(10**n) if n >= 0 else float(f"1e{n}") for n in range(low, high + 1)]


def around(values: Iterable[float]) -> tuple[float, float]:
    """Ends of a logarithmic axis: a little less than the smallest positive value, a little more than the largest."""
    finite = [v for v in values if np.isfinite(v) and v > 0]
    return (min(finite) / 1.15, max(finite) * 1.15) if finite else (1.0, 10.0)


def skipped(part: Shown) -> pd.DataFrame:
    """What was not measured and why, one line a scheme, quantity and reason."""
    lines: dict[tuple[str, str, str], list[int]] = {}
    for r in part.records:
        if r.skipped:
            what = WHAT[r.case.what] + (BACKWARD if r.case.backward else "")
            lines.setdefault((part.name(r.case.spec), what, r.skipped), []).append(r.case.length)
    rows = [(name, what, ", ".join(f"{n:,}" for n in ns), reason) for (name, what, reason), ns in lines.items()]
    return pd.DataFrame(rows, columns=["scheme", "what", "length", "reason"])


MOST_NUMBERS = 5


def key_numbers(part: Shown, rotation: Part | None = None, attention: Part | None = None) -> list[tuple[str, str, str]]:
    """Name, value, meaning of at most five numbers: the layer's, the schemes' overhead, the two operations', tables."""
    main, at = part.main, part.longest
    out = list[tuple[str, str, str]]()
    record = _at(part, main, "layer", at)
    if record is not None and record.median is not None:
        name = f"{SCHEME_TEXT[main.scheme].name}, {at:,} tokens"
        out.append((name, time_text(record.median), "median of one forward pass of one attention layer"))
    for spec in part.specs[1:3]:
        one = _at(part, spec, "layer", at)
        if one is not None and one.ratio is not None:
            out.append((f"{SCHEME_TEXT[spec.scheme].name} over none", f"{percent(one.ratio):+.1f}%",
                        "its time over that of no position in the same round, median over the rounds"))  # fmt: skip
    out += _of_operations(rotation, attention)
    built, kept = (_at(part, main, what, at) for what in ("tables_built", "tables_cached"))
    if built is not None and built.median is not None:
        value = time_text(built.median)
        if kept is not None and kept.median is not None:
            value += f" → {time_text(kept.median)}"
        out.append(("tables", value, "built anew → asked for again, where they are kept"))
    if record is not None and record.peak_bytes is not None:
        out.append(("peak memory", bytes_text(record.peak_bytes), record.memory_method))
    half = _at(part, main, "layer", at // 2)
    if record is not None and record.median is not None and half is not None and half.median is not None:
        out.append(("twice the length", f"{record.median / half.median:.1f}× time",
                    f"from {at // 2:,} to {at:,} tokens"))  # fmt: skip
    fast = None if rotation is None else rotation.of("fast")
    if rotation is not None and fast is not None and fast.bytes_per_second is not None:
        out.append(("rotated a second", f"{bytes_text(fast.bytes_per_second)}",
                    f"bytes that the fast rotation must read and write, over its time: {rotation.where}"))  # fmt: skip
    return out[:MOST_NUMBERS]


def _of_operations(rotation: Part | None, attention: Part | None) -> list[tuple[str, str, str]]:
    """The fast rotation beside transformers' function, or beside a copy if that is missing; ALiBi beside no bias."""
    out = []
    if rotation is not None and (gain := timing_kernels.faster(rotation, "transformers")):
        out.append(("rotation vs transformers", f"{gain:.1f}× faster",
                    f"than transformers' function, measured in the same rounds: {rotation.where}"))  # fmt: skip
    elif rotation is not None and (fast := rotation.of("fast")) and (found := timing_kernels.ratio(fast)):
        out.append(("rotation", f"{times(found[0])} a copy",
                    f"its time over that of a copy of q and k into fresh memory: {rotation.where}"))  # fmt: skip
    if attention is not None and (fast := attention.of("fast")) and (found := timing_kernels.ratio(fast)):
        meaning = f"its time over that of causal attention without a bias: {attention.where}"
        if hangs := timing_kernels.caveat(attention):
            meaning += f". {hangs}"
        out.append(("attention with ALiBi", f"{times(found[0])} causal", meaning))
    return out


def _at(part: Shown, spec: Spec, what: str, length: int) -> Record | None:
    return next((r for r in part.of(spec, what) if r.case.length == length), None)


def title(run: Run) -> str:
    """What a run is called where one is chosen."""
    date = str(run.machine["date"])
    if not run.recorded:
        return f"measured here, {date[11:19]} UTC"
    whats = dict.fromkeys(r.case.what for r in run.records)
    held = "" if "layer" in whats else f": {', '.join(dict.fromkeys(w.split('_')[0] for w in whats))}"
    threads = run.machine["torch_threads"]
    return f"recorded on {place_of(run)}, {threads} thread{'s' if threads != 1 else ''}, {date[:10]}{held}"


def with_layers(runs: Sequence[Run]) -> list[Run]:
    """The runs that can be shown as a whole; the others hold one operation, which is shown where it belongs."""
    return [run for run in runs if not run.recorded or any(r.case.what == "layer" for r in run.records)] or [*runs]


def place_of(run: Run) -> str:
    """The GPU if the run used one, else the CPU."""
    used = any(r.case.device != "cpu" for r in run.records)
    return str((run.machine["gpu"] if used else None) or run.machine["cpu"])


def origin(run: Run, part: Shown) -> str:
    """The caption: what was measured, on which machine, how."""
    c, case = run.settings, part.records[0].case
    counts = sorted({r.repetitions for r in part.records if r.median is not None}) or [c["repetitions"]]
    count = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    methods = list(dict.fromkeys(r.memory_method for r in part.records if r.memory_method))
    lines = [
        ("Recorded on " if run.recorded else "Measured on ") + benchmark.machine_line(dict(run.machine)) + ".",
        f"One causal attention layer of {c['heads']} heads × {c['d_head']}, batch {c['batch']}, {case.dtype} on "
        f"{case.device}; a scheme's own sizes give way to the layer's.",
        f"Median of {count} passes after warm-up, band = quartiles. The schemes take turns in every round, and the "
        "percentages compare times of one round, so that other load on the machine hits all alike.",
        *(["Memory: " + "; ".join(methods) + "."] if methods else []),
        *(dict.fromkeys(f"{part.name(r.case.spec)}: {r.note}." for r in part.records if r.note)),
    ]
    return " ".join(lines)


def recorded_note(run: Run, part: Shown, specs: Sequence[Spec], view: TimingView) -> str:
    """What a recorded run is, where its own description stands first, and what of the wanted it does not hold."""
    names = ", ".join(name for name, _ in part.series)
    place = {(r.case.device, r.case.dtype) for r in part.records}
    other = [] if (view.device, view.dtype) in place else [" and ".join(f"{dtype} on {on}" for on, dtype in place)]
    if any(s not in part.specs for s in specs):
        other.append("the schemes with other parameters")
    told = f" It holds {listed(other)}, not what is chosen." if other else ""
    return (f"Recorded, not measured here: {names} on {place_of(run)}, {str(run.machine['date'])[:10]}.{told} "
            "Start measures the parameters above on this machine.")  # fmt: skip


def progress(live: Live) -> tuple[str, float | None]:
    """A sentence on a job, and the share that is done while it lives; nothing to say on one that is complete."""
    job = live.job
    done, total = job.progress
    share = min(1.0, done / total) if total > 0 else 0.0
    if job.state == "cancelled":
        return f"Stopped at {share:.0%}: some of it is missing.", None
    if job.state == "done" and live.late:
        return (
            f"Ended after {LONGEST_RUN:.0f} s, the limit, at {share:.0%}: some of it is missing.",
            None,
        )
    text, done_share = common.progress(job)
    if job.state == "running" and job.cancelled():
        text = "Stopping: the present call ends first."
    elif job.state == "running":
        text += f". Now: {called(live.asked[live.now])}."
    return text, done_share


CALLED = {"rotation": "the rotation", "attention": "attention with ALiBi", "layer": "layers"}


def called(config: Config) -> str:
    """What a configuration measures, in words: the rotation, 8,192 tokens."""
    short, long = (f"{n:,}" for n in (min(config.lengths), max(config.lengths)))
    return f"{CALLED[config.what[0]]}, {short if short == long else f'{short} to {long}'} tokens"


def tables_seen(part: Shown) -> str:
    """One sentence on the bars."""
    kept = [r for r in part.of(part.main, "tables_cached") if r.case.length == part.longest]
    name = part.name(part.main)
    if part.main.hook == "bias":
        return f"{name}'s bar is its bias, one number a head and distance, made in every layer; no matrix is made."
    if kept:
        return f"{name} builds its tables once a length and finds them again in every layer after."
    if part.main.hook == "layers":
        return "What is built for its distinct layers together."
    return f"{name} keeps nothing between two calls: the whole bar is paid again in every call."


def memory_try(specs: Sequence[Spec]) -> Try:
    """A link that changes the lines of memory."""
    if {s.scheme for s in specs} == {"alibi", "rope"}:
        then = "Vectors are added once; a rotation makes a new q and k in every layer."
        return Try("sinusoidal vectors and RoPE", {"scheme": "sinusoidal", "b_scheme": "rope"}, then)
    then = "ALiBi's line stays beside RoPE's: no bias for every pair is held."
    return Try("ALiBi and RoPE", {"scheme": "alibi", "b_scheme": "rope"}, then)


def table_try(part: Shown) -> Try:
    """A link that changes the bars."""
    if part.main.scheme == "rope":
        return Try("tables of a hybrid", {"scheme": "hybrid"}, "The bar holds a bias and a rotation together.")
    return Try("RoPE, which keeps its tables", {"scheme": "rope"}, "A second, much shorter bar appears.")


def differences(run: Run, wanted: Sequence[Config]) -> str:
    """How a run of the reader's own differs from what the controls ask for now; empty if in nothing."""
    texts = {name: (a, b) for (name, a), b in zip(_told(run.asked).items(), _told(wanted).values(), strict=True)}
    return "; ".join(f"{name} {a}, now {b}" for name, (a, b) in texts.items() if a != b)


def _told(asked: Sequence[Config]) -> dict[str, str]:
    """What is asked for, by the names of the controls; every configuration has the same but for schemes and lengths."""
    layers = [c for c in asked if "layer" in c.what]
    first = layers[0]
    return {
        "schemes": " and ".join(map(benchmark.label, first.specs)),
        "longest": f"{max(n for c in layers for n in c.lengths):,}",
        "device": ", ".join(first.devices),
        "dtype": ", ".join(first.dtypes),
        "repetitions": str(first.repetitions),
        "direction": "both" if True in first.backward else "forward",
    }


def json_text(run: Run) -> str:
    """The whole run, as `python -m posenc_core.benchmark --json` writes it."""
    return json.dumps(run.content, indent=1) + "\n"


def absent(name: str, value: str, legal: Sequence[str], reason: str) -> str:
    """The notice on a value that is legal, but not on this machine."""
    return f"{Problem(name, value, 'one of ' + ', '.join(legal), reason)}. Used instead: {legal[0]}."


def growth(part: Shown) -> str:
    """One sentence on how the gap between the schemes changes with the length; empty if that cannot be said."""
    points = [r for r in part.of(part.main, "layer") if r.ratio is not None]
    if part.main == NoneSpec() or len(points) < 2:
        return ""
    first, last = (f"{_percent_text(r)} at {r.case.length:,} tokens" for r in (points[0], points[-1]))
    return f"{part.name(part.main)} over no position: {first}, {last}."


def _percent_text(record: Record) -> str:
    if record.ratio is None or record.ratio_lower is None or record.ratio_upper is None:
        return "unknown"
    noise = " (within the noise)" if record.ratio_lower <= 1 <= record.ratio_upper else ""
    return f"{percent(record.ratio):+.0f}%{noise}"


def tries(specs: Sequence[Spec], longest: int) -> list[Try]:
    """One link that fits what is chosen."""
    schemes = [s.scheme for s in specs]
    if len(schemes) == 1:
        other = "rope" if schemes[0] == "alibi" else "alibi"
        then = "A second curve: a rotation touches every q and k, a bias every score."
        return [Try(f"against {SCHEME_TEXT[other].name}", {"b_scheme": other}, then)]
    further = "4096" if longest < 4096 else "1024"
    then = "Then Start: where a case needs more memory than allowed, its line ends and the reason is listed."
    return [Try(f"up to {int(further):,} tokens", {"longest": further}, then)]
