"""What the benchmark can time, how it is asked to, and what it answers: Case, Config, Record, all plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from posenc_core.benchmark_machine import devices
from posenc_core.schemes import parse_spec
from posenc_core.schemes.none import NoneSpec
from posenc_core.spec import Problem, Spec, SpecError

What = Literal["layer", "attention", "rotation", "tables_built", "tables_cached"]
IMPLEMENTATIONS: dict[What, tuple[str, ...]] = {
    "layer": ("fast", "reference"),
    "attention": ("fast", "reference", "bias", "bias_cached", "flex_attention", "flash_attn"),
    "rotation": ("copy", "copy_given", "fast", "eager", "in_place", "reference", "transformers",
                 "rotary_embedding_torch", "torchtune", "flash_attn", "liger"),
    "tables_built": ("fast",),
    "tables_cached": ("fast",),
}  # fmt: skip
ALL_IMPLEMENTATIONS = tuple(dict.fromkeys(name for names in IMPLEMENTATIONS.values() for name in names))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("cpu", "cuda", "mps")
MIN_LENGTH, MAX_LENGTHS, MAX_SPECS, MAX_WIDTH = 16, 8, 16, 8192
MAX_LENGTH: dict[What, int] = {
    "layer": 16_384, "attention": 16_384, "rotation": 65_536, "tables_built": 2**20, "tables_cached": 2**20
}  # fmt: skip
FEWEST = 3  # samples without which a stopped case has no quartiles, so no record
GIB = 2**30


@dataclass(frozen=True)
class Case:
    """One thing to time. device: cpu, cuda or mps; dtype: float32, bfloat16 or float16.

    what: "layer" is an attention layer, projections included; "attention" is attention of given q, k, v, with what the
    scheme does to them; "rotation" rotates given q and k by given tables (rope alone); "tables_built" makes what the
    scheme needs for the length (cos and sin, a bias, vectors); "tables_cached" asks for the same a second time.

    implementation: "fast" is what this library would use; the others stand in IMPLEMENTATIONS and are described where
    they are made, in benchmark_parts. backward: the gradient of the inputs is made too, in the same call.
    """

    spec: Spec
    length: int
    device: str = "cpu"
    dtype: str = "float32"
    what: What = "layer"
    implementation: str = "fast"
    backward: bool = False


CASE_FIELDS = ("length", "device", "dtype", "what", "implementation", "backward")  # of a Case, beside the spec


@dataclass(frozen=True)
class Config:
    """What to time, and how. Raises SpecError listing every value that is not legal.

    Heads H = heads, D = d_head, d_model = H·D, batch B; everything is causal. A case whose estimated memory is above
    max_bytes is not run; its record says so. Of `implementations` each `what` takes those that it has. What the others
    are compared with is timed always: scheme `none` beside layer and attention, a copy of q and k beside a rotation
    (and one into given memory beside a rotation in place).
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
    implementations: tuple[str, ...] = ("fast",)
    backward: tuple[bool, ...] = (False,)

    def __post_init__(self) -> None:
        problems = [
            *_whole("heads", self.heads, 1, 256),
            *_whole("d_head", self.d_head, 2, 1024, step=2),
            *_whole("batch", self.batch, 1, 256),
            *_whole("repetitions", self.repetitions, FEWEST, 200),
            *_whole("max_bytes", self.max_bytes, 2**20, 2**40),
            *_count("specs", self.specs, MAX_SPECS),
            *(Problem("spec", s, "a Spec, such as parse_spec returns") for s in self.specs if not isinstance(s, Spec)),
            *_choices("device", self.devices, tuple(devices())),
            *_choices("dtype", self.dtypes, tuple(DTYPES)),
            *_choices("what", self.what, get_args(What)),
            *_choices("implementation", self.implementations, ALL_IMPLEMENTATIONS),
            *_choices("backward", self.backward, (False, True)),
            *_count("lengths", self.lengths, MAX_LENGTHS),
        ]
        longest = max((MAX_LENGTH[w] for w in self.what if w in MAX_LENGTH), default=max(MAX_LENGTH.values()))
        problems += [p for n in self.lengths for p in _whole("length", n, MIN_LENGTH, longest)]
        if not problems:
            if self.d_model > MAX_WIDTH:
                problems.append(Problem("heads × d_head", self.d_model, f"a width of at most {MAX_WIDTH}"))
            for what in dict.fromkeys(self.what):
                if not set(self.implementations) & set(IMPLEMENTATIONS[what]):
                    names = ", ".join(IMPLEMENTATIONS[what])
                    problems.append(Problem("implementation", ", ".join(self.implementations), f"one of {names}",
                                            f"{what} has no such implementation"))  # fmt: skip
        if problems:
            raise SpecError(problems)

    @property
    def d_model(self) -> int:
        """Width of the layer, H·D."""
        return self.heads * self.d_head

    def groups(self) -> list[list[Case]]:
        """The cases in the order they run; those of one list are interleaved and compared with each other."""
        return [
            [
                Case(spec, length, device, dtype, what, name, backward)
                for what in dict.fromkeys(self.what)
                for backward in self._directions(what)
                for spec, name in self._rows(what)
            ]
            for device in dict.fromkeys(self.devices)
            for dtype in dict.fromkeys(self.dtypes)
            for length in dict.fromkeys(self.lengths)
        ]

    def _directions(self, what: What) -> tuple[bool, ...]:
        """Tables have no gradient."""
        return tuple(dict.fromkeys(self.backward)) if what in ("layer", "attention", "rotation") else (False,)

    def _rows(self, what: What) -> list[tuple[Spec, str]]:
        """Scheme and implementation of every case of a direction; those that others are compared with come first."""
        specs = list(dict.fromkeys(self.specs))
        names = [n for n in IMPLEMENTATIONS[what] if n in self.implementations]
        if what in ("layer", "attention"):
            rows = [(NoneSpec(), "fast"), *((s, n) for s in [NoneSpec(), *specs] for n in names)]
            rows = [row for row in rows if row[0] in specs or row[1] == "fast"]
        elif what == "rotation":
            # a scheme that does not rotate gets one record, which says so
            one = ["fast"] if "fast" in names else names[:1]
            copies = ["copy", "copy_given"] if "in_place" in names else ["copy"]
            rows = [(s, n) for s in specs for n in ([*copies, *names] if s.hook == "rotate" else one)]
        else:
            rows = [(s, n) for s in specs for n in names]
        return list(dict.fromkeys(rows))


@dataclass(frozen=True)
class Record:
    """What one case cost. Where `skipped` holds a reason nothing was measured, and every figure is None.

    Seconds are of one call: median, lower and upper quartile over `repetitions` samples. peak_bytes is the most that
    one call had allocated at a time beyond its inputs and weights, with a bias that is kept; memory_method says how it
    was found, or why not.

    ratio, with its quartiles, is the median over the rounds of this sample over that of scheme `none`, implementation
    fast, of the same what and direction, in the same round (1: as fast): what else the machine does slows both down. Of
    layer and attention only. copy_ratio and its quartiles are the same over a copy of q and k (forward and backward: of
    the gradients too), which reads and writes what a rotation must; of rotation only. The copy is one into fresh memory
    (implementation copy), but for in_place one into given memory (copy_given), as neither gets new pages; runs recorded
    without a copy_given have it over copy.

    page_faults is how many pages one call got fresh from the system, median over the samples; None where that is not
    known. Large memory may go back to the system when it is freed and come zeroed with the next call, which can take as
    long as what is timed; the note tells where that is much.

    bytes_moved is what must be read and written at least once. Rotation: q and k in and out, cos and sin; a copy: q and
    k in and out; attention: q, k, v in, the output out; layer: input and weights in, output out; tables_built: the
    tables. Forward and backward: for each input and output its gradient besides. None where nothing has to be moved.

    error is max |out - exact| / max |exact|, the largest over the outputs (with backward: over the gradients), against
    float64 arithmetic on a CPU from the same inputs; benchmark_exact says which part of a long output is looked at.
    """

    case: Case
    median: float | None = None
    lower: float | None = None
    upper: float | None = None
    repetitions: int = 0
    peak_bytes: int | None = None
    memory_method: str = ""
    ratio: float | None = None
    ratio_lower: float | None = None
    ratio_upper: float | None = None
    skipped: str = ""
    note: str = ""
    bytes_moved: int | None = None
    copy_ratio: float | None = None
    copy_lower: float | None = None
    copy_upper: float | None = None
    error: float | None = None
    page_faults: float | None = None

    @property
    def bytes_per_second(self) -> float | None:
        """The bandwidth that was reached at least; None for layer and attention, where arithmetic is the limit."""
        if self.bytes_moved is None or not self.median or self.case.what in ("layer", "attention"):
            return None
        return self.bytes_moved / self.median

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON; the fields of the case come first."""
        case = {f: getattr(self.case, f) for f in CASE_FIELDS}
        return {"spec": self.case.spec.to_mapping()} | case | {k: v for k, v in vars(self).items() if k != "case"}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Record:
        """Reads what to_mapping wrote, also from JSON, also before there were implementations and directions.

        Left out is `overhead`, a quotient of medians that older files have. Raises ValueError, KeyError or TypeError
        for anything else.
        """
        old = {"implementation": "fast", "backward": False}
        fields: dict[str, Any] = {f: mapping[f] if f in mapping or f not in old else old[f] for f in CASE_FIELDS}
        case = Case(parse_spec(mapping["spec"]), **fields)
        legal: dict[str, tuple[object, ...]] = {
            "device": DEVICES, "dtype": tuple(DTYPES), "what": tuple(IMPLEMENTATIONS),
            "implementation": IMPLEMENTATIONS.get(case.what, ()), "backward": (False, True),
        }  # fmt: skip
        for name, names in legal.items():
            if getattr(case, name) not in names:
                listed = ", ".join(map(str, names))
                raise ValueError(f"{name} = {getattr(case, name)!r} is not legal; legal: one of {listed}")
        if type(case.backward) is not bool:
            raise ValueError(f"backward = {case.backward!r} is not legal; legal: one of False, True")
        made = cls(case, **{k: v for k, v in mapping.items() if k not in ("spec", "overhead", *CASE_FIELDS)})
        longest = max(MAX_LENGTH.values())
        if type(case.length) is not int or not 1 <= case.length <= longest:
            raise ValueError(f"length = {case.length!r} is not legal; legal: a whole number from 1 to {longest:,}")
        for name, value in vars(made).items():
            texts = name in ("memory_method", "skipped", "note")
            if isinstance(value, Case) or value is None or (texts and isinstance(value, str)):
                continue
            if texts or isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2**60:
                what = "text" if texts else "number from 0 to 2^60"
                raise ValueError(f"{name} = {str(value)[:40]} is not legal; legal: a {what}")
        for names in (("lower", "median", "upper"), ("ratio_lower", "ratio", "ratio_upper"),
                      ("copy_lower", "copy_ratio", "copy_upper")):  # fmt: skip
            values = [getattr(made, name) for name in names]
            given = [v for v in values if v is not None]
            if given and (len(given) < 3 or given != sorted(given) or not given[0] > 0):
                raise ValueError(f"{', '.join(names)} = {values} are not legal; legal: none, or growing from above 0")
        if (made.median is None) != bool(made.skipped):
            raise ValueError("legal: either figures or why the case was skipped")
        return made


def _whole(name: str, value: object, low: int, high: int, step: int = 1) -> Iterator[Problem]:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high or value % step:
        steps = f" in steps of {step}" if step > 1 else ""
        yield Problem(name, value, f"a whole number from {low} to {high}{steps}")


def _count(name: str, values: Sequence[object], most: int) -> Iterator[Problem]:
    if not 1 <= len(values) <= most:
        yield Problem(name, len(values), f"1 to {most} of them", "that many given")


def _choices(name: str, values: Sequence[object], legal: Sequence[object]) -> Iterator[Problem]:
    listed = ", ".join(map(str, legal))
    if not values:
        yield Problem(name, (), f"at least one of {listed}")
    for value in values:
        if value not in legal or type(value) is not type(legal[0]):
            reason = "this machine has none" if name == "device" and value in DEVICES else ""
            yield Problem(name, value, f"one of {listed}", reason)
