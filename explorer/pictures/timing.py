"""Pictures of the Timing page: benchmark records in, frames of charts and sentences out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from explorer.charts import curves
from explorer.charts.palette import BLUE, SCHEME_COLOURS, VERMILLION
from explorer.compute.timing import LONGEST_RUN, Run
from explorer.jobs import Job
from explorer.pictures import common
from explorer.pictures.common import Lines, names_of
from explorer.text import SCHEME_TEXT, Try
from posenc_core import Problem, Spec, benchmark, parse_spec
from posenc_core.benchmark import Config, Record, bytes_text, time_text
from posenc_core.schemes.none import NoneSpec

MIB = 2**20
WHAT = {"layer": "attention layer", "tables_built": "tables built", "tables_cached": "tables kept"}
BUILT, KEPT = "built anew", "kept from before"


@dataclass(frozen=True)
class Shown:
    """The part of a run that the pictures show: records of one device and dtype, and the schemes' names and colours."""

    records: tuple[Record, ...]
    specs: tuple[Spec, ...]
    series: tuple[tuple[str, str], ...]

    def name(self, spec: Spec) -> str:
        """What a scheme is called in every picture."""
        return self.series[self.specs.index(spec)][0]

    def of(self, spec: Spec, what: str) -> list[Record]:
        """The measured records of a scheme, short lengths first."""
        found = [r for r in self.records if r.case.spec == spec and r.case.what == what and r.median is not None]
        return sorted(found, key=lambda r: r.case.length)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths at which something was measured."""
        return tuple(sorted({r.case.length for r in self.records if r.median is not None}))

    @property
    def longest(self) -> int:
        """The longest length at which the first scheme was measured, 0 if at none."""
        return max((r.case.length for r in self.of(self.main, "layer")), default=0)

    @property
    def main(self) -> Spec:
        """The scheme that the key numbers are about."""
        return self.specs[1] if len(self.specs) > 1 else self.specs[0]


def shown(run: Run, specs: Sequence[Spec], device: str, dtype: str) -> Shown:
    """Of a run: the wanted device and dtype, or its first ones; of a recorded one only the schemes of `specs`."""
    places = [(r.case.device, r.case.dtype) for r in run.records]
    place = (device, dtype) if (device, dtype) in places else places[0]
    records = [r for r in run.records if (r.case.device, r.case.dtype) == place]
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
    return Shown(tuple(r for r in records if r.case.spec in ordered), ordered, series)


def covers(run: Run, specs: Sequence[Spec]) -> bool:
    """Whether a run has something to say on the schemes of all these specs."""
    return {s.scheme for s in specs} <= {r.case.spec.scheme for r in run.records if r.median is not None}


def colours(specs: Sequence[Spec]) -> list[str]:
    """Each scheme's own colour; the second of a scheme gets another one."""
    out = list[str]()
    for spec in specs:
        own = SCHEME_COLOURS[spec.scheme]
        out.append(next(c for c in (own, VERMILLION, BLUE, *SCHEME_COLOURS.values()) if c not in out))
    return out


def time_lines(part: Shown) -> Lines:
    """Milliseconds of one forward pass against length: medians, and bands from quartile to quartile."""
    return _lines(part, "layer", "time of one forward pass (ms)",
                  lambda r: (1e3 * r.median, 1e3 * r.lower, 1e3 * r.upper))  # fmt: skip


def overhead_lines(part: Shown) -> Lines:
    """Percent over scheme `none` in the same round against length: median over the rounds, and its quartiles."""
    lines = _lines(
        Shown(part.records, part.specs[1:], part.series[1:]), "layer", "over no position (%)",
        lambda r: None if r.ratio is None else tuple(map(percent, (r.ratio, r.ratio_lower, r.ratio_upper))),
    )  # fmt: skip
    return Lines(curves.together(lines.data, curves.guide("", y=0)), lines.series, lines.y_title)


def memory_lines(part: Shown) -> Lines | None:
    """MiB at the peak of one forward pass against length; None where the device does not tell."""
    lines = _lines(part, "layer", "peak memory (MiB)",
                   lambda r: None if r.peak_bytes is None else (r.peak_bytes / MIB,) * 3, bands=False)  # fmt: skip
    return None if lines.data.empty else lines


def percent(ratio: float) -> float:
    """1.07 times the time is 7 percent more."""
    return 100 * (ratio - 1)


def _lines(part: Shown, what: str, title: str, values: Any, bands: bool = True) -> Lines:
    frames = [curves.line("", [], [])]
    for spec in part.specs:
        points = [(r.case.length, *v) for r in part.of(spec, what) if (v := values(r)) is not None]
        if points:
            x, middle, low, high = np.array(points, dtype=np.float64).T
            frames += [curves.band(part.name(spec), x, low, high)] if bands else []
            frames.append(curves.line(part.name(spec), x, middle, *((low, high) if bands else ())))
    data = curves.together(*[f for f in frames if len(f)]) if len(frames) > 1 else frames[0]
    drawn = set(data["series"])
    return Lines(data, tuple(s for s in part.series if s[0] in drawn), title)


def table_bars(part: Shown) -> pd.DataFrame:
    """Microseconds that tables take at the longest length, built and kept: columns name, value, series, text."""
    rows = []
    for what, name in (("tables_built", BUILT), ("tables_cached", KEPT)):
        for spec in part.specs:
            at = [r for r in part.of(spec, what) if r.case.length == part.longest]
            for r in at:
                if r.median is not None:
                    scheme = part.name(spec)
                    rows.append((name, 1e6 * r.median, scheme, f"{scheme}: {time_text(r.median)}"))
    return pd.DataFrame(rows, columns=["name", "value", "series", "text"])


def decades(values: Iterable[float]) -> list[float]:
    """Powers of ten from 0.1 or less past the largest value: the start that bars share, and room for a label."""
    logs = np.log10(list(values))
    low, high = min(-1, int(np.floor(logs.min() - 0.3))), int(np.ceil(logs.max() + 1))
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
            lines.setdefault((part.name(r.case.spec), WHAT[r.case.what], r.skipped), []).append(r.case.length)
    rows = [(name, what, ", ".join(f"{n:,}" for n in ns), reason) for (name, what, reason), ns in lines.items()]
    return pd.DataFrame(rows, columns=["scheme", "what", "length", "reason"])


def key_numbers(part: Shown) -> list[tuple[str, str, str]]:
    """Name, value, meaning of the main scheme's cost at its longest length, and the second's overhead."""
    main, at = part.main, part.longest
    record = _at(part, main, "layer", at)
    if record is None or record.median is None:
        return []
    name = SCHEME_TEXT[main.scheme].name
    out = [(f"{name}, {at:,} tokens", time_text(record.median), "median of one forward pass of one attention layer")]
    for spec in part.specs[1:3]:
        one = _at(part, spec, "layer", at)
        if one is not None and one.ratio is not None:
            out.append((f"{SCHEME_TEXT[spec.scheme].name} over none", f"{percent(one.ratio):+.1f}%",
                        "its time over that of no position in the same round, median over the rounds"))  # fmt: skip
    if record.peak_bytes is not None:
        out.append(("peak memory", bytes_text(record.peak_bytes), record.memory_method))
    built, kept = (_at(part, main, what, at) for what in ("tables_built", "tables_cached"))
    if built is not None and built.median is not None:
        value = time_text(built.median)
        if kept is not None and kept.median is not None:
            value += f" → {time_text(kept.median)}"
        out.append(("tables", value, "built anew → asked for again, where they are kept"))
    half = _at(part, main, "layer", at // 2)
    if len(out) < 4 and half is not None and half.median is not None:
        out.append(("twice the length", f"{record.median / half.median:.1f}× time",
                    f"from {at // 2:,} to {at:,} tokens"))  # fmt: skip
    return out


def _at(part: Shown, spec: Spec, what: str, length: int) -> Record | None:
    return next((r for r in part.of(spec, what) if r.case.length == length), None)


def title(run: Run) -> str:
    """What a run is called where one is chosen."""
    date = str(run.machine["date"])
    if run.recorded:
        return f"recorded on {run.machine['gpu'] or run.machine['cpu']}, {date[:10]}"
    return f"measured here, {date[11:19]} UTC"


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


def recorded_note(run: Run, part: Shown) -> str:
    """What a recorded run is, where its own description stands first."""
    names = ", ".join(name for name, _ in part.series)
    return (f"Recorded, not measured here: {names} on {run.machine['gpu'] or run.machine['cpu']}, "
            f"{str(run.machine['date'])[:10]}. Start measures the parameters above on this machine.")  # fmt: skip


def progress(job: Job[Any]) -> tuple[str, float | None]:
    """A sentence on a job, and the share that is done while it lives; nothing to say on one that is complete."""
    done, total = job.progress
    share = min(1.0, done / total) if total > 0 else 0.0
    if job.state == "cancelled":
        return f"Stopped at {share:.0%}: lengths without three passes of every scheme are missing.", None
    if job.state == "done" and share < 0.999:
        return f"Ended after {LONGEST_RUN:.0f} s, the limit, at {share:.0%}: the longest lengths are incomplete.", None
    return common.progress(job)


def tables_seen(part: Shown) -> str:
    """One sentence on the bars."""
    kept = [r for r in part.of(part.main, "tables_cached") if r.case.length == part.longest]
    name = part.name(part.main)
    if kept:
        return f"{name} builds its tables once a length and finds them again in every layer after."
    if part.main.hook == "layers":
        return "At least one of its layers keeps nothing between two calls, and pays for its part again in every call."
    return f"{name} keeps nothing between two calls: the whole bar is paid again in every call."


def table_try(part: Shown) -> Try:
    """A link that changes the bars."""
    if part.main.scheme == "rope":
        return Try("tables of a hybrid", {"scheme": "hybrid"}, "The bar holds a bias and a rotation together.")
    return Try("RoPE, which keeps its tables", {"scheme": "rope"}, "A second, much shorter bar appears.")


def differences(run: Run, wanted: Config) -> str:
    """How a run of the reader's own differs from what the controls ask for now; empty if in nothing."""
    was, now = run.settings, benchmark.to_mapping(wanted, (), {})["config"]
    texts = {
        "schemes": [_schemes(m["specs"]) for m in (was, now)],
        "longest": [f"{max(m['lengths']):,}" for m in (was, now)],
        "device": [", ".join(m["devices"]) for m in (was, now)],
        "dtype": [", ".join(m["dtypes"]) for m in (was, now)],
        "repetitions": [str(m["repetitions"]) for m in (was, now)],
    }
    return "; ".join(f"{name} {a}, now {b}" for name, (a, b) in texts.items() if a != b)


def _schemes(specs: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join(benchmark.label(parse_spec(s)) for s in specs)


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
        then = "A second curve: a bias grows with the square of the length, a rotation with the length."
        return [Try(f"against {SCHEME_TEXT[other].name}", {"b_scheme": other}, then)]
    further = "4096" if longest < 4096 else "1024"
    then = "Then Start: where a case needs more memory than allowed, its line ends and the reason is listed."
    return [Try(f"up to {int(further):,} tokens", {"longest": further}, then)]
