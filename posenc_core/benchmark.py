"""What a positional encoding costs: time and memory of a layer, of attention or a rotation alone, and of its tables.

`run(config)` measures the cases of one length in turn, round after round, so that noise hits all of them alike, and
yields a Step after every call. `python -m posenc_core.benchmark --schemes none,rope,alibi --lengths 128,512` prints a
table. A further implementation is a name in benchmark_cases.IMPLEMENTATIONS and a few lines in benchmark_parts; another
library's is a function in benchmark_peers.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch

from posenc_core.benchmark_cases import (
    ALL_IMPLEMENTATIONS,
    DEVICES,
    DTYPES,
    FEWEST,
    GIB,
    IMPLEMENTATIONS,
    MAX_LENGTH,
    Case,
    Config,
    Record,
    What,
)
from posenc_core.benchmark_exact import SANE
from posenc_core.benchmark_machine import devices, machine, machine_line
from posenc_core.benchmark_measure import loops, page_faults, peak_bytes, quartiles, timed
from posenc_core.benchmark_parts import PARTS, Shared
from posenc_core.benchmark_peers import Skip
from posenc_core.benchmark_sizes import estimated_bytes, work
from posenc_core.benchmark_text import bytes_text, command, label, markdown, page, table, time_text
from posenc_core.schemes import build
from posenc_core.schemes.base import PositionalEncoding
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.spec import Problem, Spec, SpecError

__all__ = [
    "ALL_IMPLEMENTATIONS", "DEVICES", "DTYPES", "IMPLEMENTATIONS", "Case", "Config", "Record", "Step", "What",
    "bytes_text", "command", "devices", "estimated_bytes", "label", "machine", "machine_line", "markdown", "page",
    "quartiles", "run", "table", "time_text", "to_mapping",
]  # fmt: skip
WARM_UP = 4  # untimed calls of a case: the first builds what is kept, then error, memory, and the loop count
OWN = ("copy", "copy_given", "fast", "eager", "in_place", "reference", "bias", "bias_cached")  # a fault is a fault
PAGE_PER_BYTES = 2**15  # bytes moved for each fresh page from which on they are told: half of those bytes are written
LAUNCHING = 0.9  # share of a sample spent on launches from which on it tells of them, not of the kernels


class Step(NamedTuple):
    """One step of a run. done and total are estimated work, so that done/total is the share of the time.

    Most steps carry no record: those of a length come when all its repetitions are done.
    """

    done: float
    total: float
    record: Record | None = None


def run(config: Config, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Step]:
    """Measure every case; a Step after every call, with the records of a length when it is complete.

    Ends within one call after should_stop() is true; cases with at least three samples by then still get their record.
    So they do after Ctrl-C, before KeyboardInterrupt goes on.
    """
    groups = [_Group(cases, config) for cases in config.groups()]
    total, done = sum(group.work for group in groups), 0.0
    while groups:
        if should_stop():
            return
        group, stopped, interrupt = groups.pop(0), False, None
        try:
            for part in group.calls():
                done += part
                yield Step(done, total)
                stopped = should_stop()
                if stopped:
                    break
        except KeyboardInterrupt as error:
            interrupt = error
        for record in group.records():
            yield Step(done, total, record)
        if interrupt is not None:
            raise interrupt
        if stopped:
            return


_REASONS = (Skip, SpecError, RuntimeError, MemoryError)  # these make a skipped record; anything else is a fault


def _reasons(case: Case) -> tuple[type[BaseException], ...]:
    """What makes a skipped record of a case: of other people's code, anything."""
    return _REASONS if case.implementation in OWN else (Exception, SystemExit)


def _refuse(case: Case, config: Config) -> None:
    if case.device == "cpu" and case.dtype == "float16":
        raise Skip("float16 is not timed on a CPU: most have no arithmetic for it, so it would be emulated")
    if case.device == "cuda" and case.dtype == "bfloat16" and not torch.cuda.is_bf16_supported(False):
        raise Skip("this GPU has no bfloat16 arithmetic")
    if case.length > MAX_LENGTH[case.what]:
        raise Skip(f"{case.what} is timed up to {MAX_LENGTH[case.what]:,} positions")
    needed = estimated_bytes(case, config)
    if needed > config.max_bytes:
        raise Skip(f"needs up to {bytes_text(needed)}, more than the limit of {bytes_text(config.max_bytes)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, Skip | SpecError):
        return "; ".join(str(error).splitlines())
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"


class _Bench:
    """One case: warm_up() first, each of its stages once; then every call of sample() adds a measurement."""

    def __init__(self, case: Case, config: Config, shared: Shared) -> None:
        self.case = case
        self.samples: list[float] = []
        self.launched: list[float] = []  # seconds a call, of each sample, until its last launch had returned
        self.page_faults: list[float] = []  # a call, of each sample; both stay empty where they are not known
        encoding, note = _build(case, config)
        encoding = encoding.requires_grad_(False).to(torch.device(case.device), DTYPES[case.dtype])
        with torch.no_grad():
            self.parts, self.bytes_moved, more, self.kept = PARTS[case.what](encoding, shared, case)
        self.notes = [n for n in (note, more) if n]
        self.loops = [1] * len(self.parts)
        self.peak_bytes: int | None = None
        self.memory_method = ""
        self.error: float | None = None

    def warm_up(self) -> tuple[Callable[[], None], ...]:
        """WARM_UP stages of one untimed call each."""
        return self._call, self._check, self._weigh, self._count_loops

    def sample(self) -> None:
        """Time every part, as many calls in a row as its loops."""
        taken = launched = faults = 0.0
        for part, n in zip(self.parts, self.loops, strict=True):
            before = page_faults(self.case.device)
            one = timed(part.call, n, self.case.device)
            after = page_faults(self.case.device)
            taken += part.weight * one.seconds
            launched += part.weight * (one.launched or 0.0)
            faults += part.weight * ((after or 0) - (before or 0)) / n
        self.samples.append(taken)
        if one.launched is not None:
            self.launched.append(launched)
        if after is not None:
            self.page_faults.append(faults)

    def record(self, none: Sequence[float] | None, copied: Sequence[float] | None) -> Record:
        """The samples as a record; `none` are those of scheme none, `copied` those of the copy of q and k."""
        lower, median, upper = quartiles(self.samples)
        faults = quartiles(self.page_faults)[1] if self.page_faults else None
        notes = list(self.notes)
        if self.launched and quartiles(self.launched)[1] >= LAUNCHING * median:
            notes.append("bounded by the launches")
        if faults and self.bytes_moved and faults * PAGE_PER_BYTES > self.bytes_moved:
            notes.append(f"{faults:,.0f} fresh pages a call, zeroed by the system, are in the time")
        made = Record(
            self.case, median, lower, upper, len(self.samples), self.peak_bytes, self.memory_method,
            note="; ".join(notes), bytes_moved=self.bytes_moved, error=self.error, page_faults=faults,
        )  # fmt: skip
        if none is not None:
            low, mid, high = self._beside(none)
            made = replace(made, ratio=mid, ratio_lower=low, ratio_upper=high)
        if copied is not None:
            low, mid, high = self._beside(copied)
            made = replace(made, copy_ratio=mid, copy_lower=low, copy_upper=high)
        return made

    def _beside(self, others: Sequence[float]) -> tuple[float, float, float]:
        """Quartiles of this over the other in the same round."""
        return quartiles([mine / other for mine, other in zip(self.samples, others, strict=False)])

    def _call(self) -> None:
        for part in self.parts:
            timed(part.call, 1, self.case.device)

    def _check(self) -> None:
        with torch.no_grad():
            errors = [part.check() for part in self.parts if part.check is not None]
        if not errors:
            return
        error = max(errors)
        self.error = error if math.isfinite(error) else None
        # a layer may round more than that by itself: raw integers beside the embeddings make large scores
        if error > SANE[DTYPES[self.case.dtype]] and self.case.what != "layer":
            told = f"error {error:.1e}" if math.isfinite(error) else "some are not finite"
            self.notes.append(f"gives other numbers: {told}")

    def _weigh(self) -> None:
        if self.case.implementation == "flex_attention" and self.case.device != "cuda":
            self.memory_method = "not known: watched call by call, it would not be compiled"
            return
        weighed = [peak_bytes(part.call, self.case.device) for part in self.parts]
        self.peak_bytes, self.memory_method = max(weighed, key=lambda w: w[0] or 0)
        if self.kept and self.peak_bytes is not None:
            self.peak_bytes += self.kept
            self.memory_method += "; with the bias that is kept"

    def _count_loops(self) -> None:
        self.loops = [self._loops(part.call) for part in self.parts]

    def _loops(self, call: Callable[[], object]) -> int:
        """Counted twice: on a GPU a call alone takes longer than one of many that queue up."""
        n = loops(timed(call, 1, self.case.device).seconds, self.case.device)
        return n if n == 1 else loops(timed(call, n, self.case.device).seconds, self.case.device)


class _Group:
    """The cases of one device, dtype and length: measured in turns, compared with each other."""

    def __init__(self, cases: Sequence[Case], config: Config) -> None:
        self.cases, self.config = cases, config
        self.work = sum((WARM_UP + config.repetitions) * work(case, config) for case in cases)
        self._benches: dict[Case, _Bench] = {}
        self._skipped: dict[Case, str] = {}

    def calls(self) -> Iterator[float]:
        """One call of one case at a time; yields the work that is done with it."""
        shared: Shared | None = None
        for case in self.cases:
            each = work(case, self.config)
            try:
                _refuse(case, self.config)
                shared = shared or Shared(case, self.config)
                self._benches[case] = _Bench(case, self.config, shared)
            except _reasons(case) as error:
                self._skipped[case] = _reason(error)
                yield (WARM_UP + self.config.repetitions) * each
                continue
            for stage in self._benches[case].warm_up():
                self._attempt(case, stage)
                yield each
        # a new order each round, so that no case always runs in the caches that the same other one left
        shuffle = random.Random(self.config.seed)
        for _ in range(self.config.repetitions):
            for case in shuffle.sample(self.cases, len(self.cases)):
                if case in self._benches:
                    self._attempt(case, self._benches[case].sample)
                    yield work(case, self.config)

    def records(self) -> Iterator[Record]:
        """Those of the skipped cases, and of the measured ones that have enough samples."""
        enough = {case: bench for case, bench in self._benches.items() if len(bench.samples) >= FEWEST}

        def samples(case: Case) -> list[float] | None:
            return enough[case].samples if case in enough else None

        for case in self.cases:
            if case in self._skipped:
                yield Record(case, skipped=self._skipped[case])
            elif case in enough:
                none = samples(replace(case, spec=NoneSpec(), implementation="fast"))
                beside = "copy_given" if case.implementation == "in_place" else "copy"  # neither gets fresh memory
                copied = samples(replace(case, implementation=beside))
                yield enough[case].record(none if case.what in ("layer", "attention") else None, copied)

    def _attempt(self, case: Case, call: Callable[[], None]) -> None:
        if case not in self._benches:
            return
        try:
            call()
        except _reasons(case) as error:
            self._skipped[case] = _reason(error)
            del self._benches[case]


def _build(case: Case, config: Config) -> tuple[PositionalEncoding, str]:
    """The encoding in the layer's sizes, and a note. A table shorter than the length grows to it: rows cost alike."""
    sizes = {"d_model": config.d_model, "d_head": config.d_head, "n_heads": config.heads}
    encoding = build(case.spec, **sizes)
    notes = []
    if encoding.layers is not None:
        n = len(encoding.layers)
        notes.append(
            f"mean over {n} layers" if case.what in ("layer", "attention") else "of its distinct layers together"
        )
    outer = encoding.layer(0)
    missing = case.length - (getattr(outer, "defined", None) or case.length)
    rows = getattr(outer.spec, "max_position_embeddings", None)
    if missing > 0 and rows is not None:
        encoding = build(case.spec, **sizes, max_position_embeddings=rows + missing)
        notes.append(f"table of {rows + missing} rows instead of {rows}")
    return encoding, "; ".join(notes)


def to_mapping(config: Config, records: Iterable[Record], found: dict[str, Any]) -> dict[str, Any]:
    """A run as plain values for JSON: machine, config, records. `found` is what machine() said."""
    plain = {k: v for k, v in vars(config).items() if k != "specs"}
    return {
        "machine": found,
        "config": plain | {"specs": [s.to_mapping() for s in config.specs]},
        "records": [r.to_mapping() for r in records],
    }


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (t.strip() for t in text.split(","))))


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(map(int, _names(text)))


def _specs(text: str) -> tuple[Spec, ...]:
    try:
        return HybridSpec.parse_field("layers", text)
    except SpecError as error:
        problems = [Problem(p.name.replace("layers", "schemes", 1), p.value, p.legal, p.reason) for p in error.problems]
        raise SpecError(problems) from None


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[float], object]]:
    """Takes the share that is done; draws a bar on stderr where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda share: None
        return
    shape = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, disable=quiet, file=sys.stderr, bar_format=shape) as bar:
        yield lambda share: bar.update(share - bar.n)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_core.benchmark",
        description="Time positional encodings: in an attention layer, in attention or a rotation alone, their tables; "
        "by this library's implementations and other libraries'. Times are medians of interleaved rounds.",
        epilog="implementations: " + "; ".join(f"{what}: {', '.join(names)}" for what, names in IMPLEMENTATIONS.items())
        + ". Longest: " + ", ".join(f"{what} {n:,}" for what, n in MAX_LENGTH.items()) + ".",
    )  # fmt: skip
    parser.add_argument(
        "--schemes", default="none,rope,alibi", help="such as none,rope(layout=interleaved),alibi; default: %(default)s"
    )
    parser.add_argument(
        "--lengths", type=_lengths, default=Config.lengths, metavar="N,N…", help="default: 128,512,2048"
    )
    parser.add_argument("--device", type=_names, default=Config.devices, help=f"of {', '.join(DEVICES)}; default: cpu")
    parser.add_argument("--dtype", type=_names, default=Config.dtypes, help=f"of {', '.join(DTYPES)}; default: float32")
    parser.add_argument(
        "--what", type=_names, default=("layer", "tables_built", "tables_cached"),
        help=f"of {', '.join(get_args(What))}; default: layer,tables_built,tables_cached",
    )  # fmt: skip
    parser.add_argument(
        "--implementations", type=_names, default=Config.implementations,
        help="names as below, of which each --what takes its own, or all; default: fast",
    )  # fmt: skip
    parser.add_argument("--backward", action="store_true", help="time forward with backward too, beside forward alone")
    parser.add_argument("--heads", type=int, default=Config.heads, help="default: %(default)s")
    parser.add_argument("--d-head", type=int, default=Config.d_head, help="features of a head; default: %(default)s")
    parser.add_argument("--batch", type=int, default=Config.batch, help="default: %(default)s")
    parser.add_argument(
        "--repetitions", type=int, default=Config.repetitions, help="samples of a case; default: %(default)s"
    )
    parser.add_argument(
        "--max-gib", type=float, default=Config.max_bytes / GIB,
        help="a case that may need more memory is skipped; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=None, help="torch threads; default: as torch chooses")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="write machine, config and records")
    parser.add_argument("--markdown", type=Path, default=None, metavar="FILE", help="write the table for a page")
    parser.add_argument(
        "--recorded", type=Path, nargs="+", metavar="FILE", help="time nothing; the tables of what --json wrote before"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status. The table goes to stdout, the progress to stderr."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.recorded:
        try:
            text = page({path.name: json.loads(path.read_text()) for path in args.recorded})
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"no recorded run: {type(error).__name__}: {error}")
        print(text, end="", file=args.markdown.open("w") if args.markdown else sys.stdout)
        return 0
    if args.threads is not None and args.threads < 1:
        parser.error(f"threads = {args.threads} is not legal; legal: a whole number from 1")
    try:
        config = Config(
            _specs(args.schemes), args.lengths, args.device, args.dtype, args.what, args.heads, args.d_head,
            args.batch, args.repetitions, round(args.max_gib * GIB) if math.isfinite(args.max_gib) else 0,
            implementations=ALL_IMPLEMENTATIONS if args.implementations == ("all",) else args.implementations,
            backward=(False, True) if args.backward else (False,),
        )  # fmt: skip
    except SpecError as error:
        parser.error(str(error))
    for path in (args.json, args.markdown):
        if path is not None and not path.parent.is_dir():
            parser.error(f"{path}: there is no folder {path.parent}")
    if args.threads:
        torch.set_num_threads(args.threads)
    records, found, status = list[Record](), machine(), 0
    with _progress(args.quiet) as report:
        try:
            for step in run(config):
                report(min(1.0, step.done / step.total))
                if step.record:
                    records.append(step.record)
        except KeyboardInterrupt:
            status = 130
    found["fused_warm"] = machine()["fused_warm"]  # the run compiled what it could
    made = to_mapping(config, records, found)
    if args.json:
        args.json.write_text(json.dumps(made, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(markdown(made))
    print(table(records))
    print(machine_line(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
