"""What a positional encoding costs: time and memory of one attention layer and of the tables that a scheme needs.

`run(config)` measures the cases of one length in turn, round after round, so that noise hits all of them alike, and
yields a Step after every call. `python -m posenc_core.benchmark --schemes none,rope,alibi --lengths 128,512` prints a
table. A further implementation or quantity is a name in What and a function in PARTS.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from posenc_core.attention import attention
from posenc_core.schemes import build, parse_spec
from posenc_core.schemes.base import PositionalEncoding, VectorEncoding
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.spec import Problem, Spec, SpecError

What = Literal["layer", "tables_built", "tables_cached"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("cpu", "cuda", "mps")
MIN_LENGTH, MAX_LENGTH, MAX_LENGTHS, MAX_SPECS, MAX_WIDTH = 16, 16384, 8, 16, 8192
WARM_UP = 3  # untimed calls of a case: the first builds what is kept, one measures memory, one sets the loop count
FEWEST = 3  # samples without which a stopped case has no quartiles, so no record
SHORTEST = 100e-6  # seconds; a shorter call is looped until one sample lasts about as long
MAX_LOOPS = 1000
GIB = 2**30


@dataclass(frozen=True)
class Case:
    """One thing to time. device: cpu, cuda or mps; dtype: float32, bfloat16 or float16.

    what: "layer" is one forward pass of an attention layer; "tables_built" makes what the scheme needs for the length
    (cos and sin, a bias, vectors); "tables_cached" asks for the same a second time.
    """

    spec: Spec
    length: int
    device: str = "cpu"
    dtype: str = "float32"
    what: What = "layer"


@dataclass(frozen=True)
class Config:
    """What to time, and how. Raises SpecError listing every value that is not legal.

    The layer is H = heads, D = d_head, d_model = H·D, on inputs [batch, length, d_model], causal. A case whose
    estimated memory is above max_bytes is not run; its record says so. Scheme `none` is always timed with a layer,
    as the overhead is relative to it.
    """

    specs: tuple[Spec, ...]
    lengths: tuple[int, ...] = (128, 512, 2048)
    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[str, ...] = ("float32",)
    what: tuple[What, ...] = ("layer",)
    heads: int = 8
    d_head: int = 64
    batch: int = 1
    repetitions: int = 20
    max_bytes: int = 2 * GIB
    seed: int = 0

    def __post_init__(self) -> None:
        problems = [
            *_whole("heads", self.heads, 1, 256),
            *_whole("d_head", self.d_head, 2, 1024, step=2),
            *_whole("batch", self.batch, 1, 256),
            *_whole("repetitions", self.repetitions, FEWEST, 200),
            *_whole("max_bytes", self.max_bytes, 2**20, 2**40),
            *_count("specs", self.specs, MAX_SPECS),
            *(Problem("spec", s, "a Spec, such as parse_spec returns") for s in self.specs if not isinstance(s, Spec)),
            *_count("lengths", self.lengths, MAX_LENGTHS),
            *(p for n in self.lengths for p in _whole("length", n, MIN_LENGTH, MAX_LENGTH)),
            *_choices("device", self.devices, tuple(devices())),
            *_choices("dtype", self.dtypes, tuple(DTYPES)),
            *_choices("what", self.what, get_args(What)),
        ]
        if not problems and self.d_model > MAX_WIDTH:
            problems.append(Problem("heads × d_head", self.d_model, f"a width of at most {MAX_WIDTH}"))
        if problems:
            raise SpecError(problems)

    @property
    def d_model(self) -> int:
        """Width of the layer, H·D."""
        return self.heads * self.d_head

    def groups(self) -> list[list[Case]]:
        """The cases in the order they run; those of one list are interleaved and compared with each other."""
        specs = list(dict.fromkeys(self.specs))
        layer_specs = specs if NoneSpec() in specs else [NoneSpec(), *specs]
        return [
            [
                Case(spec, length, device, dtype, what)
                for what in dict.fromkeys(self.what)
                for spec in (layer_specs if what == "layer" else specs)
            ]
            for device in dict.fromkeys(self.devices)
            for dtype in dict.fromkeys(self.dtypes)
            for length in dict.fromkeys(self.lengths)
        ]


@dataclass(frozen=True)
class Record:
    """What one case cost. Where `skipped` holds a reason nothing was measured, and every figure is None.

    Seconds are of one call: median, lower and upper quartile over `repetitions` samples. peak_bytes is the most that
    one call had allocated at a time beyond its inputs and weights; memory_method says how it was found, or why not.
    overhead is this median over that of scheme `none` of the same length, device and dtype in this run (1: as fast).
    ratio, with its quartiles, is the median over the rounds of this sample over that of `none` in the same round: what
    else the machine does slows both down, so that it moves less than overhead on a busy machine.
    """

    case: Case
    median: float | None = None
    lower: float | None = None
    upper: float | None = None
    repetitions: int = 0
    peak_bytes: int | None = None
    memory_method: str = ""
    overhead: float | None = None
    ratio: float | None = None
    ratio_lower: float | None = None
    ratio_upper: float | None = None
    skipped: str = ""
    note: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON; the fields of the case come first."""
        case = {f: getattr(self.case, f) for f in ("length", "device", "dtype", "what")}
        return {"spec": self.case.spec.to_mapping()} | case | {k: v for k, v in vars(self).items() if k != "case"}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Record:
        """Reads what to_mapping wrote, also from JSON. Raises ValueError, KeyError or TypeError for anything else."""
        case = Case(parse_spec(mapping["spec"]), *(mapping[f] for f in ("length", "device", "dtype", "what")))
        legal = {"device": DEVICES, "dtype": tuple(DTYPES), "what": tuple(PARTS)}
        for name, names in legal.items():
            if getattr(case, name) not in names:
                raise ValueError(f"{name} = {getattr(case, name)!r} is not legal; legal: one of {', '.join(names)}")
        made = cls(case, **{k: v for k, v in mapping.items() if k != "spec" and not hasattr(case, k)})
        if type(case.length) is not int or case.length < 1:
            raise ValueError(f"length = {case.length!r} is not legal; legal: a whole number from 1")
        for name, value in vars(made).items():
            texts = name in ("memory_method", "skipped", "note")
            if isinstance(value, Case) or value is None or (texts and isinstance(value, str)):
                continue
            if texts or isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{name} = {value!r} is not legal; legal: a {'text' if texts else 'number from 0'}")
        if not made.skipped and None in (made.median, made.lower, made.upper):
            raise ValueError("a record that is not skipped needs median, lower and upper")
        return made


class Step(NamedTuple):
    """One step of a run. done and total are estimated work, so that done/total is the share of the time.

    Most steps carry no record: those of a length come when all its repetitions are done.
    """

    done: float
    total: float
    record: Record | None = None


def devices() -> dict[str, str]:
    """The devices there are, id -> name for people; cpu is always the first."""
    found = {"cpu": f"CPU, {_cpu_name()}"}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU (MPS)"
    return found


def machine() -> dict[str, Any]:
    """Where a run happens: cpu, cores, load, torch_threads (of the calling thread), torch, gpu or None, python, system,
    date. `load` is how many processes wanted a core on average over the last minute, None where that is not known.

    Call it in the thread that measures: threads can have different numbers of torch threads.
    """
    names = devices()
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _cpu_name(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "torch_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "gpu": names.get("cuda") or names.get("mps"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine_line(found: dict[str, Any]) -> str:
    """`machine()` in one line, for a caption."""
    gpu = f"{found['gpu']}, " if found["gpu"] else ""
    load = f" under a load of {found['load']}" if found.get("load") is not None else ""
    return (f"{gpu}{found['cpu']}, {found['cores']} cores{load}, torch threads: {found['torch_threads']}, "
            f"torch {found['torch']}, Python {found['python']}, {found['system']}, {found['date']}")  # fmt: skip


def label(spec: Spec) -> str:
    """A scheme with what differs from its defaults: rope(base=500000)."""
    fields = ", ".join(f"{k}={v}" for k, v in spec.to_query().items() if k != "scheme")
    return f"{spec.scheme}({fields})" if fields else spec.scheme


def estimated_bytes(case: Case, config: Config) -> int:
    """An upper estimate of the bytes that a case has allocated at a time, inputs and weights included."""
    n, d, item = case.length, config.d_model, DTYPES[case.dtype].itemsize
    hooks = _hooks(case.spec)
    total = 2**20  # scratch of kernels
    if hooks & {"embed", "layers"}:
        total += 24 * n * d  # float64 phases and their sines
    if hooks & {"rotate", "layers"}:
        total += 24 * n * config.d_head
    if "bias" in hooks:
        total += (12 * config.heads + 24) * n * n  # float32 a head, cast, and once more under the causal mask
    if case.what == "layer":
        total += 4 * d * d * item + 8 * config.batch * n * d * item + 3 * n * n  # 3·n·n: the causal mask in bytes
        if hooks & {"rotate", "layers"}:
            total += 12 * config.batch * n * d  # float32 products and the joined result
    return total


def run(config: Config, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Step]:
    """Measure every case; a Step after every call, with the records of a length when it is complete.

    Ends within one call after should_stop() is true; cases with at least three samples by then still get their record.
    """
    groups = [_Group(cases, config) for cases in config.groups()]
    total, done = sum(group.work for group in groups), 0.0
    while groups:
        if should_stop():
            return
        group, stopped = groups.pop(0), False
        for work in group.calls():
            done += work
            yield Step(done, total)
            stopped = should_stop()
            if stopped:
                break
        for record in group.records():
            yield Step(done, total, record)
        if stopped:
            return


class _Skip(Exception):
    """A case that cannot be measured, and why."""


_REASONS = (_Skip, SpecError, RuntimeError, MemoryError)  # these make a skipped record; anything else is a fault


def _refuse(case: Case, config: Config) -> None:
    if case.device == "cpu" and case.dtype == "float16":
        raise _Skip("float16 is not timed on a CPU: most have no arithmetic for it, so it would be emulated")
    if case.device == "cuda" and case.dtype == "bfloat16" and not torch.cuda.is_bf16_supported(False):
        raise _Skip("this GPU has no bfloat16 arithmetic")
    needed = estimated_bytes(case, config)
    if needed > config.max_bytes:
        raise _Skip(f"needs up to {bytes_text(needed)}, more than the limit of {bytes_text(config.max_bytes)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, _Skip | SpecError):
        return "; ".join(str(error).splitlines())
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"


class _Layer(nn.Module):
    """Attention as in a transformer layer: one projection to q, k and v, attention, one projection back."""

    def __init__(self, heads: int, d_model: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        # skip_init: the default draws from the global generator, which a training in another thread may be using
        self.qkv = skip_init(nn.Linear, d_model, 3 * d_model, bias=False)
        self.out = skip_init(nn.Linear, d_model, d_model, bias=False)
        for linear in (self.qkv, self.out):
            nn.init.normal_(linear.weight, std=d_model**-0.5, generator=generator)

    def forward(self, x: Tensor, encoding: PositionalEncoding, positions: Tensor) -> Tensor:
        """x [B, L, d_model] -> the same shape."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y, _ = attention(q, k, v, encoding, positions, positions)
        return cast(Tensor, self.out(y.transpose(1, 2).flatten(2)))


class _Shared:
    """What the cases of one group have in common: input [B, L, d_model], positions [L] and the layer's weights."""

    def __init__(self, case: Case, config: Config) -> None:
        device, dtype = torch.device(case.device), DTYPES[case.dtype]
        # drawn on the CPU, so that every device and dtype gets the same numbers
        generator = torch.Generator().manual_seed(config.seed)
        self.layer = _Layer(config.heads, config.d_model, generator).requires_grad_(False).to(device, dtype)
        self.x = torch.randn(config.batch, case.length, config.d_model, generator=generator).to(device, dtype)
        # not an inference tensor: those have no version counter, so that nothing may be kept for them
        self.positions = torch.arange(case.length, device=device)


class _Part(NamedTuple):
    """A call that is timed on its own, and how often it counts in the sum."""

    weight: float
    call: Callable[[], object]


def _layer_parts(encoding: PositionalEncoding, shared: _Shared, case: Case) -> list[_Part]:
    """Projection, encoding, attention, projection. For a hybrid the mean over its layers, each distinct one timed."""
    x, positions, layer = shared.x, shared.positions, shared.layer
    if encoding.layers is None:
        return [_Part(1.0, lambda: layer(encoding.embed(x, positions), encoding, positions))]
    n = len(encoding.layers)
    counts: dict[PositionalEncoding, int] = {}
    for each in encoding.layers:
        counts[each] = counts.get(each, 0) + 1
    parts = [_Part(count / n, partial(layer, x, each, positions)) for each, count in counts.items()]
    if "embed" in _hooks(case.spec):
        parts.append(_Part(1 / n, partial(encoding.embed, x, positions)))
    return parts


def _built_parts(encoding: PositionalEncoding, shared: _Shared, case: Case) -> list[_Part]:
    """Building anew: every call gets a new tensor object of the same positions, which no cache knows."""

    def build_anew(make: Make) -> object:
        return make(shared.positions.detach())

    parts = []
    for make in _makers(encoding, shared, case):
        call = partial(build_anew, make)
        if _same(call(), call()):
            raise _Skip("what is built is kept for equal positions, so building cannot be timed")
        parts.append(_Part(1.0, call))
    return parts


def _cached_parts(encoding: PositionalEncoding, shared: _Shared, case: Case) -> list[_Part]:
    parts = []
    for make in _makers(encoding, shared, case):
        if not _same(make(shared.positions), make(shared.positions)):
            raise _Skip("nothing is kept between two calls: every call builds it anew")
        parts.append(_Part(1.0, partial(make, shared.positions)))
    return parts


Make = Callable[[Tensor], object]
Parts = Callable[[PositionalEncoding, _Shared, Case], list[_Part]]
PARTS: dict[What, Parts] = {"layer": _layer_parts, "tables_built": _built_parts, "tables_cached": _cached_parts}


def _makers(encoding: PositionalEncoding, shared: _Shared, case: Case) -> list[Make]:
    """What the distinct layers of an encoding need for positions [L], as functions of the positions."""
    makers: list[Make] = []
    dtype, q = DTYPES[case.dtype], shared.x[:, None, :1]  # a bias of positions reads only q's dtype and device

    def vectors(each: VectorEncoding, positions: Tensor) -> Tensor:
        return each.vectors(positions).to(dtype).to(positions.device)

    def bias(each: PositionalEncoding, positions: Tensor) -> Tensor | None:
        return each.bias(positions, positions, q)

    for each in dict.fromkeys([encoding] if encoding.layers is None else encoding.layers):
        tables = getattr(each, "tables", None)
        if callable(tables):
            makers.append(tables)
        elif isinstance(each, VectorEncoding):
            makers.append(partial(vectors, each))
        elif each.spec.hook == "bias":
            makers.append(partial(bias, each))
    if not makers:
        raise _Skip("this scheme needs no tables")
    return makers


def _same(a: Any, b: Any) -> bool:
    return all(x is y for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True))


class _Bench:
    """One case: warm_up() first, each of its stages once; then every call of sample() adds a measurement."""

    def __init__(self, case: Case, config: Config, shared: _Shared) -> None:
        self.case = case
        self.samples: list[float] = []
        encoding, self.note = _build(case, config)
        encoding = encoding.requires_grad_(False).to(torch.device(case.device), DTYPES[case.dtype])
        with torch.no_grad():
            self.parts = PARTS[case.what](encoding, shared, case)
        self.loops = [1] * len(self.parts)
        self.peak_bytes: int | None = None
        self.memory_method = ""

    def warm_up(self) -> tuple[Callable[[], None], ...]:
        """WARM_UP stages of one untimed call each."""
        return self._call, self._weigh, self._count_loops

    def sample(self) -> None:
        """Time one call of every part."""
        pairs = zip(self.parts, self.loops, strict=True)
        self.samples.append(sum(part.weight * _seconds(part.call, n, self.case.device) for part, n in pairs))

    def record(self, base: Sequence[float] | None) -> Record:
        """The samples as a record; `base` are those of scheme `none`."""
        lower, median, upper = quartiles(self.samples)
        made = Record(
            self.case, median, lower, upper, len(self.samples), self.peak_bytes, self.memory_method, note=self.note
        )
        if base is None or self.case.what != "layer":
            return made
        low, mid, high = quartiles([mine / other for mine, other in zip(self.samples, base, strict=False)])
        return replace(made, overhead=median / quartiles(base)[1], ratio=mid, ratio_lower=low, ratio_upper=high)

    def _call(self) -> None:
        for part in self.parts:
            _seconds(part.call, 1, self.case.device)

    def _weigh(self) -> None:
        weighed = [_peak_bytes(part.call, self.case.device) for part in self.parts]
        self.peak_bytes, self.memory_method = max(weighed, key=lambda w: w[0] or 0)

    def _count_loops(self) -> None:
        self.loops = [_loops(_seconds(part.call, 1, self.case.device)) for part in self.parts]


class _Group:
    """The cases of one device, dtype and length: measured in turns, compared with each other."""

    def __init__(self, cases: Sequence[Case], config: Config) -> None:
        self.cases, self.config = cases, config
        self.work = sum((WARM_UP + config.repetitions) * _work(case, config) for case in cases)
        self._benches: dict[Case, _Bench] = {}
        self._skipped: dict[Case, str] = {}

    def calls(self) -> Iterator[float]:
        """One call of one case at a time; yields the work that is done with it."""
        shared: _Shared | None = None
        for case in self.cases:
            work = _work(case, self.config)
            try:
                _refuse(case, self.config)
                shared = shared or _Shared(case, self.config)
                self._benches[case] = _Bench(case, self.config, shared)
            except _REASONS as error:
                self._skipped[case] = _reason(error)
                yield (WARM_UP + self.config.repetitions) * work
                continue
            for stage in self._benches[case].warm_up():
                self._attempt(case, stage)
                yield work
        # a new order each round, so that no case always runs in the caches that the same other one left
        shuffle = random.Random(self.config.seed)
        for _ in range(self.config.repetitions):
            for case in shuffle.sample(self.cases, len(self.cases)):
                if case in self._benches:
                    self._attempt(case, self._benches[case].sample)
                    yield _work(case, self.config)

    def records(self) -> Iterator[Record]:
        """Those of the skipped cases, and of the measured ones that have enough samples."""
        enough = {case: bench for case, bench in self._benches.items() if len(bench.samples) >= FEWEST}
        base = next((bench.samples for case, bench in enough.items()
                     if case.what == "layer" and case.spec == NoneSpec()), None)  # fmt: skip
        for case in self.cases:
            if case in self._skipped:
                yield Record(case, skipped=self._skipped[case])
            elif case in enough:
                yield enough[case].record(base)

    def _attempt(self, case: Case, call: Callable[[], None]) -> None:
        if case not in self._benches:
            return
        try:
            call()
        except _REASONS as error:
            self._skipped[case] = _reason(error)
            del self._benches[case]


def _build(case: Case, config: Config) -> tuple[PositionalEncoding, str]:
    """The encoding in the layer's sizes, and a note. A table shorter than the length grows to it: rows cost alike."""
    sizes = {"d_model": config.d_model, "d_head": config.d_head, "n_heads": config.heads}
    encoding = build(case.spec, **sizes)
    notes = []
    if encoding.layers is not None:
        n = len(encoding.layers)
        notes.append(f"mean over {n} layers" if case.what == "layer" else "of its distinct layers together")
    outer = encoding.layer(0)
    missing = case.length - (getattr(outer, "defined", None) or case.length)
    rows = getattr(outer.spec, "max_position_embeddings", None)
    if missing > 0 and rows is not None:
        encoding = build(case.spec, **sizes, max_position_embeddings=rows + missing)
        notes.append(f"table of {rows + missing} rows instead of {rows}")
    return encoding, "; ".join(notes)


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile, interpolated linearly."""
    low, mid, high = np.quantile(np.asarray(samples, dtype=np.float64), [0.25, 0.5, 0.75]).tolist()
    return low, mid, high


def _seconds(call: Callable[[], Any], loops: int, device: str) -> float:
    """Seconds a call, over `loops` calls in a row. Not in inference mode: there a scheme may keep no tables."""
    with torch.no_grad():
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            begin.record()
            for _ in range(loops):
                call()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / 1e3 / loops
        if device == "mps":
            torch.mps.synchronize()
        start = time.perf_counter()
        for _ in range(loops):
            call()
        if device == "mps":
            torch.mps.synchronize()
        return (time.perf_counter() - start) / loops


def _loops(seconds: float) -> int:
    return min(MAX_LOOPS, max(1, math.ceil(SHORTEST / max(seconds, 1e-9))))


def _peak_bytes(call: Callable[[], Any], device: str) -> tuple[int | None, str]:
    """Peak of the bytes that an untimed call allocates, and how that was found."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.no_grad():
            kept = call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del kept
        return peak, "torch.cuda.max_memory_allocated, one untimed call"
    if device == "mps":
        return None, "MPS reports no peak"
    # no_grad: in inference mode composite operations, and with them their temporaries, are not seen one by one
    with torch.no_grad(), _Allocations() as allocations:
        call()
    return allocations.peak, "sizes of all tensors alive in one untimed call; scratch inside a kernel is not seen"


class _Allocations(TorchDispatchMode):
    """Adds up the storages that operations of this thread create, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor):
                self._add(leaf, is_new=False)
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._add(leaf, is_new=True)
        self.peak = max(self.peak, self._now)
        return out

    def _add(self, tensor: Tensor, is_new: bool) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes() if is_new else 0

        def freed(_: object) -> None:
            self._now -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, freed)
        self._now += size


def _hooks(spec: Spec) -> set[str]:
    return {s.hook for s in spec.layers} if isinstance(spec, HybridSpec) else {spec.hook}


def _work(case: Case, config: Config) -> float:
    """Roughly the operations of one call; only their proportions matter, for the progress."""
    n, d = case.length, config.d_model
    work = 1e7 + 100 * n * d + (500 * config.heads * n * n if "bias" in _hooks(case.spec) else 0)
    return work + (config.batch * n * d * (8 * d + 2 * n) + 5 * n * n if case.what == "layer" else 0)


def _whole(name: str, value: object, low: int, high: int, step: int = 1) -> Iterator[Problem]:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high or value % step:
        steps = f" in steps of {step}" if step > 1 else ""
        yield Problem(name, value, f"a whole number from {low} to {high}{steps}")


def _count(name: str, values: Sequence[object], most: int) -> Iterator[Problem]:
    if not 1 <= len(values) <= most:
        yield Problem(name, len(values), f"1 to {most} of them", "that many given")


def _choices(name: str, values: Sequence[str], legal: tuple[str, ...]) -> Iterator[Problem]:
    if not values:
        yield Problem(name, (), "at least one of " + ", ".join(legal))
    for value in values:
        if value not in legal:
            reason = "this machine has none" if name == "device" and value in DEVICES else ""
            yield Problem(name, value, "one of " + ", ".join(legal), reason)


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        found = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        if found.stdout.strip():
            return found.stdout.strip()
    return platform.processor() or platform.machine()


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
    rows = [["device", "dtype", "length", "what", "scheme", "median", "quartiles", "of none", "peak memory", ""]]
    for r in records:
        row = [r.case.device, r.case.dtype, str(r.case.length), r.case.what, label(r.case.spec)]
        if r.median is None or r.lower is None or r.upper is None:
            rows.append([*row, "-", "-", "-", "-", f"skipped: {r.skipped}"])
            continue
        overhead = "-" if r.overhead is None else f"{r.overhead:.2f}×"
        peak = "-" if r.peak_bytes is None else bytes_text(r.peak_bytes)
        rows.append(
            [*row, time_text(r.median), f"{time_text(r.lower)} to {time_text(r.upper)}", overhead, peak, r.note]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = {2, 5, 7, 8}
    lines = []
    for row in rows:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


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


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status. The table goes to stdout, the progress to stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m posenc_core.benchmark", description="Time positional encodings in an attention layer."
    )
    parser.add_argument("--schemes", default="none,rope,alibi", help="such as none,rope(layout=interleaved),alibi")
    parser.add_argument("--lengths", type=_lengths, default=Config.lengths, metavar="N,N…")
    parser.add_argument("--device", type=_names, default=Config.devices, help=", ".join(DEVICES))
    parser.add_argument("--dtype", type=_names, default=Config.dtypes, help=", ".join(DTYPES))
    parser.add_argument("--what", type=_names, default=get_args(What), help=", ".join(get_args(What)))
    parser.add_argument("--heads", type=int, default=Config.heads)
    parser.add_argument("--d-head", type=int, default=Config.d_head)
    parser.add_argument("--batch", type=int, default=Config.batch)
    parser.add_argument("--repetitions", type=int, default=Config.repetitions)
    parser.add_argument("--max-gib", type=float, default=Config.max_bytes / GIB, help="memory above which to skip")
    parser.add_argument("--threads", type=int, default=None, help="torch threads")
    parser.add_argument("--json", type=Path, default=None, help="also write machine, config and records")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args(arguments)
    if args.threads is not None and args.threads < 1:
        parser.error(f"threads = {args.threads} is not legal; legal: a whole number from 1")
    try:
        config = Config(
            _specs(args.schemes), args.lengths, args.device, args.dtype, args.what, args.heads, args.d_head,
            args.batch, args.repetitions, round(args.max_gib * GIB) if math.isfinite(args.max_gib) else 0,
        )  # fmt: skip
    except SpecError as error:
        parser.error(str(error))
    if args.threads:
        torch.set_num_threads(args.threads)
    records, found, status = list[Record](), machine(), 0
    shape = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, disable=args.quiet, file=sys.stderr, bar_format=shape) as bar:
        try:
            for step in run(config):
                bar.update(step.done / step.total - bar.n)
                if step.record:
                    records.append(step.record)
        except KeyboardInterrupt:
            status = 130
    if args.json:
        args.json.write_text(json.dumps(to_mapping(config, records, found), indent=1) + "\n")
    print(table(records))
    print(machine_line(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
