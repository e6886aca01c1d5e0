"""Records of the benchmark for people: a plain table for a terminal, a Markdown one for a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posenc_core.benchmark_cases import ALL_IMPLEMENTATIONS, GIB, Record
from posenc_core.benchmark_machine import machine_line
from posenc_core.schemes import parse_spec
from posenc_core.spec import Spec

COLUMNS = ("device", "dtype", "length", "what", "scheme", "implementation", "direction", "median", "quartiles",
           "of none", "of copy", "peak memory", "moved", "error", "")  # fmt: skip
NUMBERS = (2, 7, 9, 10, 11, 12, 13)  # these columns are flush right


def label(spec: Spec) -> str:
    """A scheme with what differs from its defaults: rope(base=500000)."""
    fields = ", ".join(f"{k}={v}" for k, v in spec.to_query().items() if k != "scheme")
    return f"{spec.scheme}({fields})" if fields else spec.scheme


def bytes_text(n: float) -> str:
    """Bytes for people: 24 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.3g} {unit}"
        n /= 1024
    return f"{n:,.2f} GiB"


def time_text(seconds: float) -> str:
    """Seconds for people: 3.38 ms."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def table(records: Iterable[Record]) -> str:
    """Records as a plain aligned table, one line a record."""
    rows = [list(COLUMNS), *(_names(r) + _figures(r) for r in records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (c.rjust(w) if i in NUMBERS else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def command(run: Mapping[str, Any]) -> str:
    """The command line that times what a run, as plain values, has timed; on its number of threads."""
    config, threads = run["config"], run["machine"]["torch_threads"]
    texts = {
        "schemes": ",".join(label(parse_spec(spec)) for spec in config["specs"]),
        "what": ",".join(config["what"]),
        "implementations": _listed(config.get("implementations", ["fast"]), ALL_IMPLEMENTATIONS),
        "lengths": ",".join(map(str, config["lengths"])),
        "device": ",".join(config["devices"]),
        "dtype": ",".join(config["dtypes"]),
        "heads": config["heads"],
        "d-head": config["d_head"],
        "batch": config["batch"],
        "repetitions": config["repetitions"],
        "max-gib": f"{config['max_bytes'] / GIB:g}",
        "threads": threads,
    }
    given = [f"--{name} {shlex.quote(str(text))}" for name, text in texts.items()]
    backward = ["--backward"] if True in config.get("backward", ()) else []
    return " ".join(["python -m posenc_core.benchmark", *given, *backward])


def _listed(names: Sequence[str], everything: Sequence[str]) -> str:
    return "all" if set(names) == set(everything) else ",".join(names)


def page(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Recorded runs as plain values, by name, as one page. ValueError, KeyError or TypeError for what is no run."""
    made = "python -m posenc_core.benchmark --recorded assets/benchmarks/*.json --markdown docs/BENCHMARKS.md"
    lines = [
        "# Recorded timings",
        "",
        f"This page is made by `{made}`; each table's numbers were made by the command above it.",
        "Times are medians of rounds in which all rows of a length take turns, ratios medians over those rounds.",
        "*of copy* is over `q.clone(), k.clone()`, a copy into fresh memory (of *in_place*: over *copy_given*,",
        "`a.copy_(q), b.copy_(k)`), *of none* over the same without positions. *error* is the largest difference to",
        "float64, over the largest number. *moved* is what must be read and written at least once.",
    ]
    for name, run in runs.items():
        lines += ["", f"## {name}", "", markdown(run).rstrip()]
    return "\n".join(lines) + "\n"


def markdown(run: Mapping[str, Any]) -> str:
    """A run as plain values as a Markdown table, with the command that makes it and the machine.

    Columns in which all records agree are said once, above the table; what was skipped stands below. ValueError,
    KeyError or TypeError for what is no run.
    """
    records = list(map(Record.from_mapping, run["records"]))
    measured = [r for r in records if not r.skipped]
    rows = [_names(r) + _figures(r) for r in measured]
    same = [i for i in range(7) if len({row[i] for row in rows}) == 1]
    shown = [i for i in range(len(COLUMNS)) if i not in same and any(row[i] not in ("", "-") for row in rows)]
    lines = [f"`{command(run)}`", "", f"{machine_line(run['machine'])}."]
    if same:
        lines += ["", "All rows: " + ", ".join(f"{COLUMNS[i]} {rows[0][i]}" for i in same) + "."]
    if rows:
        heads = [COLUMNS[i] or "note" for i in shown]
        rules = ["---:" if i in NUMBERS else "---" for i in shown]
        cells = [[row[i].replace("|", "\\|") for i in shown] for row in rows]
        lines += ["", *("| " + " | ".join(line) + " |" for line in (heads, rules, *cells))]
    missing = _missing(records)
    if missing:
        lines += ["", "Not measured:", "", *(f"- {line}" for line in missing)]
    return "\n".join(lines) + "\n"


def _missing(records: Sequence[Record]) -> list[str]:
    """What was skipped and why, one line a reason and quantity."""
    everything = [set(column) for column in zip(*map(_names, records), strict=True)]
    groups: dict[tuple[str, str], list[list[str]]] = {}
    for r in records:
        if r.skipped:
            groups.setdefault((r.skipped, r.case.what), []).append(_names(r))
    lines = []
    for (reason, what), rows in groups.items():
        found = [list(dict.fromkeys(column)) for column in zip(*rows, strict=True)]
        # device, dtype, length and direction are told where they are not all that there are
        told = [", ".join(found[i]) for i in (0, 1, 2, 6) if set(found[i]) != everything[i]]
        lines.append(f"{what}, {', '.join(found[5])} of {'; '.join([', '.join(found[4]), *told])}: {reason}")
    return lines


def _names(r: Record) -> list[str]:
    c = r.case
    direction = "forward + backward" if c.backward else "forward"
    return [c.device, c.dtype, str(c.length), c.what, label(c.spec), c.implementation, direction]


def _figures(r: Record) -> list[str]:
    if r.median is None or r.lower is None or r.upper is None:
        return [*["-"] * 7, f"skipped: {r.skipped}"]
    rate = r.bytes_per_second
    moved = "-" if r.bytes_moved is None else bytes_text(r.bytes_moved)
    moved += "" if rate is None else f" at {rate / 1e9:.3g} GB/s"
    return [
        time_text(r.median),
        f"{time_text(r.lower)} to {time_text(r.upper)}",
        *("-" if x is None else f"{x:.2f}×" for x in (r.ratio, r.copy_ratio)),
        "-" if r.peak_bytes is None else bytes_text(r.peak_bytes),
        moved,
        "-" if r.error is None else f"{r.error:.1e}",
        r.note,
    ]
