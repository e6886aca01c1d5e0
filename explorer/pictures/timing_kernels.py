"""Pictures of the Timing page on one operation alone: the rotation, and attention with ALiBi, by implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from explorer.charts.palette import ORANGE, SCHEME_COLOURS
from explorer.compute.timing import MOST_ATTENDED, Run
from explorer.text import Try
from posenc_core import Spec
from posenc_core.benchmark import Case, Record, What, bytes_text, time_text
from posenc_core.claims import listed
from posenc_core.schemes.none import NoneSpec

MIB = 2**20
OURS, OTHERS, BASE = "this library", "other ways", "no bias"
NAMES: Mapping[What, Mapping[str, str]] = {
    "rotation": {
        "copy": "copy of q and k", "copy_given": "copy into given memory", "fast": "fast",
        "in_place": "fast, in place", "eager": "eager", "reference": "the formula",
        "transformers": "transformers", "rotary_embedding_torch": "rotary-embedding-torch", "torchtune": "torchtune",
        "flash_attn": "flash-attn", "liger": "Liger",
    },
    "attention": {
        "fast": "fast", "bias_cached": "bias kept", "bias": "bias made each call", "reference": "scores in plain sight",
        "flex_attention": "FlexAttention", "flash_attn": "flash-attn",
    },
}  # fmt: skip
COPIES = ("copy", "copy_given")  # what others are compared with: no bars of their own
PATHS = ("fast", "in_place", "eager")  # that this library takes; its formula and its biases are other ways
FUNCTIONS = {"transformers": "transformers' function", "reference": "the formula as it stands"}
FAR_KEYS = ("q, k and v are normal numbers; with larger scores fewer far keys can be left out, and with gradients "
            "none.")  # fmt: skip
SCHEME: Mapping[What, str] = {"rotation": "rope", "attention": "alibi"}
DIRECTIONS = {False: "forward", True: "forward and backward"}
NOTES = ("time", "error", "peak memory")  # columns that a bar tells on hover
LONGEST_NAME = 220  # px beside a bar
ROOM = 1.35  # of the longest bar: its label stands behind it, on a phone too
AXIS: Mapping[What, str] = {
    "rotation": "time, in copies of q and k", "attention": "time, in attentions without a bias"
}  # fmt: skip
GUIDE: Mapping[What, str] = {"rotation": "a copy", "attention": BASE}
ALT: Mapping[What, str] = {
    "rotation": "Time of the rotation by implementation, as a multiple of a copy of q and k",
    "attention": "Time of attention with ALiBi by implementation, as a multiple of attention without a bias",
}


@dataclass(frozen=True)
class Part:
    """The records of one operation at one length, device, dtype and direction.

    measured: one a bar, the fastest first; missing: what could not be measured. base: for ALiBi causal attention
    without a bias, for a rotation the copy of q and k into fresh memory. The ratios are over it; but where a copy into
    given memory was measured, that of a rotation in place is over this one, `given`.
    """

    run: Run
    case: Case
    measured: tuple[Record, ...]
    missing: tuple[Record, ...]
    base: Record | None
    given: Record | None = None

    def name(self, record: Record) -> str:
        """What an implementation is called; with the pairs' layout where it is not the one that is looked at."""
        name = NAMES[self.case.what][record.case.implementation]
        other = getattr(record.case.spec, "layout", "")
        return name if other == getattr(self.case.spec, "layout", "") else f"{name} ({other})"

    def of(self, implementation: str) -> Record | None:
        """The record of an implementation, in the layout that is looked at; None if it was not measured."""
        found = (r for r in self.measured if r.case.implementation == implementation)
        return next((r for r in found if r.case.spec == self.case.spec), None)

    def beside_given(self, record: Record) -> bool:
        """Whether a record's ratio is over the copy into given memory."""
        return record.case.implementation == "in_place" and self.given is not None

    def over_base(self, record: Record) -> tuple[float, float, float] | None:
        """`ratio` in units of the base, which all bars share."""
        found = ratio(record)
        if found is None or not self.beside_given(record):
            return found
        unit = self.given_in_copies
        return None if unit is None else (found[0] * unit, found[1] * unit, found[2] * unit)

    @property
    def given_in_copies(self) -> float | None:
        """Median time of a copy into given memory, over that of one into fresh memory."""
        if self.given is None or self.base is None or not self.given.median or not self.base.median:
            return None
        return self.given.median / self.base.median

    @property
    def where(self) -> str:
        """Length, dtype, device and direction in words."""
        c = self.case
        return f"{c.length:,} tokens, {c.dtype} on {c.device}, {DIRECTIONS[c.backward]}"


def part(run: Run, what: What, specs: Sequence[Spec], device: str, dtype: str, backward: bool) -> Part | None:
    """Of a run the records of an operation: of the wanted place, direction and spec where it has them, else of others.

    None if nothing of it was measured.
    """
    mine = [r for r in run.records if r.case.what == what and r.case.spec.scheme == SCHEME[what]]
    measured = [r for r in mine if r.median is not None and r.case.implementation not in COPIES]
    if not measured:
        return None

    def fits(r: Record) -> tuple[bool, bool, bool, bool, int]:
        c = r.case
        return c.device == device, c.dtype == dtype, c.backward == backward, c.spec in specs, c.length

    case = max(measured, key=fits).case
    same = [r for r in run.records if _alike(r.case, case)]
    own = {r.case.implementation for r in same if r.case.spec == case.spec and r.median is not None}
    # a library that has the other layout of pairs only is measured with that
    others = [r for r in same if r.case.spec != case.spec and r.case.implementation not in own]
    shown = [r for r in measured if r in same and (r.case.spec == case.spec or r in others)]
    named = {r.case.implementation for r in shown}
    missing = [r for r in same if r.case.spec == case.spec and r.skipped and r.case.implementation not in named]
    done = {(r.case.spec, r.case.implementation): r for r in same if r.median is not None}
    base = done.get((case.spec, "copy") if what == "rotation" else (NoneSpec(), "fast"))
    made = Part(run, case, tuple(shown), tuple(missing), base, done.get((case.spec, "copy_given")))
    shown.sort(key=lambda r: found[0] if (found := made.over_base(r)) else float("inf"))
    return replace(made, measured=tuple(shown))


def first(
    runs: Sequence[Run], what: What, specs: Sequence[Spec], device: str, dtype: str, backward: bool
) -> Part | None:
    """`part` of the first run that has one."""
    found = (part(run, what, specs, device, dtype, backward) for run in runs)
    return next((p for p in found if p is not None), None)


def _alike(a: Case, b: Case) -> bool:
    return all(getattr(a, f) == getattr(b, f) for f in ("what", "length", "device", "dtype", "backward"))


def ratio(r: Record) -> tuple[float, float, float] | None:
    """Time over that of the base in the same round: median, lower and upper quartile; None where it has none."""
    if r.case.what == "rotation":
        found = (r.copy_ratio, r.copy_lower, r.copy_upper)
    else:
        found = (r.ratio, r.ratio_lower, r.ratio_upper)
    middle, low, high = found
    return None if middle is None or low is None or high is None else (middle, low, high)


def ratio_bars(p: Part) -> pd.DataFrame:
    """Times the base, with quartiles: a row an implementation, the fastest first."""
    rows = [
        (p.name(r), *b, _series(r), times(b[0]) + (", wrong" if _is_wrong(r) else ""), *_notes(r))
        for r in p.measured if (b := p.over_base(r))
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["name", "value", "low", "high", "series", "text", *NOTES])


def _is_wrong(r: Record) -> bool:
    """Whether the engine found other numbers than rounding could give."""
    return "gives other numbers" in r.note


def memory_bars(p: Part) -> pd.DataFrame:
    """MiB at the peak: a row an implementation in the order of ratio_bars, after them one without a bias."""
    records = [*p.measured, *([p.base] if p.base else [])]
    rows = [
        (BASE if r is p.base else p.name(r), held / MIB, BASE if r is p.base else _series(r), bytes_text(held),
         *_notes(r))
        for r in records if (held := r.peak_bytes) is not None
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["name", "value", "series", "text", *NOTES])


def domain(values: Iterable[float]) -> tuple[float, float]:
    """Ends of an axis of bars with labels."""
    return 0.0, ROOM * max(values)


def _series(r: Record) -> str:
    return OURS if r.case.implementation in PATHS else OTHERS


def series(p: Part, frame: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    """The frame's series with their colours: this library's is the scheme's own."""
    colours = {OURS: SCHEME_COLOURS[SCHEME[p.case.what]], OTHERS: ORANGE, BASE: SCHEME_COLOURS["none"]}
    return tuple((name, colour) for name, colour in colours.items() if name in set(frame["series"]))


def _notes(r: Record) -> tuple[str, ...]:
    return _told(time_text, r.median), _told(_error, r.error), _told(bytes_text, r.peak_bytes)


def _told(form: Callable[[float], str], value: float | None) -> str:
    return "–" if value is None else form(value)


def _error(value: float) -> str:
    return f"{value:.1e}"


def times(value: float) -> str:
    """How many times: 1.06×, 12×."""
    return f"{value:.2f}×" if value < 9.95 else f"{value:.0f}×"


def table(p: Part) -> pd.DataFrame:
    """The records in numbers: what they are compared with first, then one row an implementation."""
    over = "of a copy" if p.case.what == "rotation" else f"of {BASE}"
    rows = []
    for r in [*filter(None, (p.base, p.given)), *p.measured]:
        name = f"causal attention, {BASE}" if r.case.spec == NoneSpec() else p.name(r)
        if p.beside_given(r):
            name += ", of a copy into given memory"
        middle, low, high = (p.given_in_copies, None, None) if r is p.given else ratio(r) or (None, None, None)
        quartiles = "–" if low is None or high is None else f"{times(low)} to {times(high)}"
        rows.append({
            "implementation": name, "time": _told(time_text, r.median),
            over: _told(times, middle), "quartiles": quartiles, "peak memory": _told(bytes_text, r.peak_bytes),
            "GB/s": _told(lambda value: f"{value / 1e9:.3g}", r.bytes_per_second),
            "error": _told(_error, r.error), "repetitions": r.repetitions,
        })  # fmt: skip
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[name for name in frame if (frame[name] == "–").all()])


def wrong(p: Part) -> str:
    """Which implementations give other numbers, in one line; empty if none does."""
    found = [f"{p.name(r)} (error {_told(_error, r.error)})" for r in p.measured if _is_wrong(r)]
    return f"Wrong numbers, whatever the time: {listed(found)}." if found else ""


def not_measured(p: Part) -> str:
    """Which implementations are missing and why, in one line; empty if none is."""
    reasons: dict[str, list[str]] = {}
    for r in p.missing:
        name = p.name(r)
        reasons.setdefault(r.skipped.removeprefix(f"{name} is ").rstrip("."), []).append(name)
    told = [f"{reason}: {listed(names)}" for reason, names in reasons.items()]
    return f"Not measured. {'. '.join(t[0].upper() + t[1:] for t in told)}." if told else ""


def faster(p: Part, than: str) -> float | None:
    """How many times as fast as an implementation the fast one is: a quotient of medians over the same rounds."""
    mine, other = p.of("fast"), p.of(than)
    a, b = (None if r is None else ratio(r) for r in (mine, other))
    return None if a is None or b is None else b[0] / a[0]


def seen(p: Part) -> str:
    """One sentence on the bars."""
    return _rotation_seen(p) if p.case.what == "rotation" else _attention_seen(p)


def _rotation_seen(p: Part) -> str:
    fast = p.of("fast")
    found = None if fast is None else ratio(fast)
    if found is None:
        return "The fast rotation was not measured."
    than = [f"{gain:.1f} times faster than {name}" for name, gain in _gains(p, ("transformers", "reference"))]
    text = (
        f"The fast path takes {found[0]:.2f} times a copy of q and k into fresh memory, which reads and writes what a "
        "rotation must" + (f": {listed(than)}." if than else ".")
    )
    in_place = p.of("in_place")
    if in_place is not None and p.beside_given(in_place) and (found := ratio(in_place)):
        text += f" In place it takes {found[0]:.2f} times a copy into given memory."
    return text


def _gains(p: Part, others: Sequence[str]) -> list[tuple[str, float]]:
    return [(FUNCTIONS[other], gain) for other in others if (gain := faster(p, other))]


def _attention_seen(p: Part) -> str:
    fast = p.of("fast")
    found = None if fast is None else ratio(fast)
    if fast is None or found is None:
        return "The fast path was not measured."
    text = f"The fast path takes {found[0]:.2f} times causal attention without a bias"
    if fast.peak_bytes is not None and p.base is not None and p.base.peak_bytes is not None:
        text += f" and holds {bytes_text(fast.peak_bytes)} instead of {bytes_text(p.base.peak_bytes)}"
    made = p.of("bias")
    slower = faster(p, "bias")
    if made is not None and slower:
        memory = "" if made.peak_bytes is None else f", with {bytes_text(made.peak_bytes)}"
        text += f"; with a bias made in every call it is {slower:.1f} times as long{memory}"
    return text + "."


def caveat(p: Part) -> str:
    """What else the figures hang on; empty if on nothing."""
    return FAR_KEYS if p.case.what == "attention" and p.case.device == "cpu" else ""


def missing(what: What) -> str:
    """What is said where no run holds the operation."""
    command = f"python -m posenc_core.benchmark --schemes {SCHEME[what]} --what {what} --implementations all"
    return f"No run here holds this. Start measures it, and so does `{command}`."


def tries(p: Part, dtype: str) -> list[Try]:
    """A link that changes the bars, from where `dtype` is chosen."""
    if p.case.what == "rotation":
        other = "interleaved" if getattr(p.case.spec, "layout", "half") == "half" else "half"
        then = "Then Start: pairs side by side, or half a head apart; the fast path moves the same bytes."
        return [Try(f"layout {other}", {"scheme": "rope", "layout": other}, then)]
    if 2 * p.case.length <= MOST_ATTENDED:
        then = "Then Start: a bias in memory grows four times, the fast path's memory far less."
        return [Try("twice the length", {"longest": str(2 * p.case.length)}, then)]
    return [other_format(dtype)]


def other_format(dtype: str) -> Try:
    """A link to the number format that is not looked at."""
    if dtype == "float32":
        return Try("in bfloat16", {"dtype": "bfloat16"}, "Then Start: half the bytes move, and errors are larger.")
    return Try("in float32", {"dtype": "float32"}, "Then Start: more bytes move, and errors are smaller.")


def origin(p: Part) -> str:
    """The caption: sizes, place, and what the error is."""
    c = p.run.settings
    counts = sorted({r.repetitions for r in p.measured})
    rounds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    records = [*filter(None, (p.base, p.given)), *p.measured]
    notes = [f"{BASE if r.case.spec == NoneSpec() else p.name(r)}: {r.note}" for r in records if r.note]
    methods = dict[str, str]()
    for r in records:
        methods.setdefault(r.memory_method, p.name(r))  # what differs is told with its name
    methods.pop("", None)
    memory = "; ".join(f"{name}: {method}" if i else method for i, (method, name) in enumerate(methods.items()))
    return (
        f"Batch {c['batch']}, {c['heads']} heads × {c['d_head']}, {p.where}; medians of {rounds} rounds in which all "
        "take turns, whiskers: quartiles. Error: largest difference to float64, over the largest number."
        + (f" Memory: {memory}." if memory else "")
        + (f" {'; '.join(notes)}." if notes else "")
    )
