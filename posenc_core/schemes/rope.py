"""RoPE, rotary position embedding (Su et al. 2021, arXiv:2104.09864), with partial rotation and scalings."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from posenc_core.frequencies import Length, attention_scales, rope_frequencies
from posenc_core.rotary import apply_rotary, apply_rotary_qk, cos_sin, is_watched, wide_dtype
from posenc_core.schemes.base import PositionalEncoding, float64_device
from posenc_core.spec import Hook, Problem, Spec, param

SCALED = ("linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "longrope", "llama3", "proportional")
BY_PARTS = ("ntk_by_parts", "yarn")
KNOWS_ORIGINAL = ("ntk_by_parts", "dynamic", "yarn", "longrope", "llama3")
BY_LENGTH = ("dynamic", "longrope")  # frequencies depend on the length of the sequence
MAX_PAIRS = 512


class RopeSpec(Spec):
    """Rotates pairs of query and key features by an angle proportional to the position."""

    scheme: ClassVar[str] = "rope"
    hook: ClassVar[Hook] = "rotate"

    d_head: int = param(64, "features of one head", ge=2, le=1024, step=2, unit="features",
                        ticks=(2, 4, 8, 16, 32, 64, 80, 96, 128, 192, 256, 512))  # fmt: skip
    base: float = param(10_000.0, "theta: pair i turns by theta^(-2i/R) a position", ge=1.001, le=1e12,
                        ticks=(10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1.3e5, 1.5e5, 2.5e5, 5e5,
                               1e6, 5e6, 8e6, 1e7, 1e8))  # fmt: skip
    layout: Literal["half", "interleaved"] = param(
        "half", "half: feature i pairs with i + R/2 (transformers' Llama); interleaved: 2i with 2i + 1 (GPT-J)"
    )
    rotary_fraction: float = param(
        1.0, "share of the features (partial) or of the spectrum (scaling = proportional) that rotates",
        ge=0.01, le=1.0, ticks=(0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0),
    )  # fmt: skip
    scaling: Literal[
        "none", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "longrope", "llama3", "proportional"
    ] = param(
        "none", "linear: position interpolation; ntk: larger base; ntk_by_parts: slow pairs divided; dynamic: ntk "
        "that grows with the sequence; yarn: by parts, scores sharpened; longrope: a list of divisors; llama3: by "
        "wavelength; proportional: p-RoPE, lowest frequencies set to zero",
    )  # fmt: skip
    factor: float = param(1.0, "how many times longer than in training", ge=1.0, le=4096.0,
                          ticks=(1, 1.5, 2, 3, 4, 6, 8, 16, 32, 40, 64, 128), when=("scaling", SCALED))  # fmt: skip
    original_max_position_embeddings: int = param(
        8192, "length that the model was trained at, before the extension", ge=2, le=2**30, unit="positions",
        ticks=(128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144), when=("scaling", KNOWS_ORIGINAL),
    )  # fmt: skip
    low_freq_factor: float = param(
        1.0, "pairs with fewer turns in the original length are divided", ge=0.01, le=1024.0, unit="turns",
        ticks=(0.25, 0.5, 1, 2, 3, 4, 8), when=("scaling", ("llama3",)),
    )  # fmt: skip
    high_freq_factor: float = param(
        4.0, "pairs with more turns in the original length are kept", ge=0.01, le=1024.0, unit="turns",
        ticks=(0.25, 0.5, 1, 2, 3, 4, 8, 16, 32), when=("scaling", ("llama3",)),
    )  # fmt: skip
    beta_fast: float = param(
        32.0, "pairs with more turns in the original length are kept", ge=0.01, le=4096.0, unit="turns",
        ticks=(1, 2, 4, 8, 16, 32, 64, 128), when=("scaling", BY_PARTS),
    )  # fmt: skip
    beta_slow: float = param(
        1.0, "pairs with fewer turns in the original length are divided", ge=0.01, le=4096.0, unit="turns",
        ticks=(0.25, 0.5, 1, 2, 4, 8, 16), when=("scaling", BY_PARTS),
    )  # fmt: skip
    short_factor: tuple[float, ...] = param(
        (), "a divisor for each pair up to the original length; empty: 1 for all", ge=0.01, le=1e6,
        max_length=MAX_PAIRS, when=("scaling", ("longrope",)),
    )  # fmt: skip
    long_factor: tuple[float, ...] = param(
        (), "a divisor for each pair past the original length; empty: the factor for all", ge=0.01, le=1e6,
        max_length=MAX_PAIRS, when=("scaling", ("longrope",)),
    )  # fmt: skip
    attention_factor: float = param(
        0.0, "multiplies cos and sin; 0: what the method computes from the factor", ge=0.0, le=100.0,
        ticks=(0, 0.5, 0.8, 1, 1.1, 1.2, 1.5, 2), when=("scaling", ("yarn", "longrope")), advanced=True,
    )  # fmt: skip
    attention_on: Literal["cos_sin", "scores"] = param(
        "cos_sin", "cos_sin: the factor scales what rotates (transformers, vLLM); scores: its square scales the whole "
        "score (the paper's temperature)", when=("scaling", ("yarn", "longrope")), advanced=True,
    )  # fmt: skip
    ramp: Literal["index", "rotations"] = param(
        "index", "index: linear in the pair's index (the authors' code, transformers, vLLM); rotations: linear in the "
        "pair's turns (the paper's text)", when=("scaling", BY_PARTS), advanced=True,
    )  # fmt: skip
    truncate: bool = param(
        True, "the ends of the ramp are rounded to whole pairs", when=("ramp", ("index",)), advanced=True
    )
    mscale: float = param(
        0.0, "DeepSeek's g(mscale) = 0.1·mscale·ln(factor) + 1, divided by g(mscale_all_dim): read only if both are "
        "given; 0: not given", ge=0.0, le=10.0,
        ticks=(0, 0.5, 0.707, 1), when=("scaling", ("yarn",)), advanced=True,
    )  # fmt: skip
    mscale_all_dim: float = param(
        0.0, "DeepSeek's: g(mscale_all_dim) divides g(mscale) and, squared, multiplies all scores; 0: not "
        "given", ge=0.0, le=10.0, ticks=(0, 0.5, 0.707, 1), when=("scaling", ("yarn",)), advanced=True,
    )  # fmt: skip
    dynamic_length: Literal["sequence", "maximum"] = param(
        "sequence", "sequence: frequencies follow the length of the sequence (transformers); maximum: those of factor "
        "times the original length, always (older vLLM)", when=("scaling", ("dynamic",)), advanced=True,
    )  # fmt: skip
    mrope_section: tuple[int, ...] = param(
        (), "pairs for time, height and width (M-RoPE, Qwen2-VL); the same as RoPE where all three positions agree",
        ge=0, le=MAX_PAIRS, max_length=3, advanced=True,
    )  # fmt: skip
    mrope_interleaved: bool = param(
        False, "the sections' pairs alternate (Qwen3-VL) instead of following each other", advanced=True
    )

    @property
    def rotary_dim(self) -> int:
        """R, the features that take part in a pair: int(d_head·rotary_fraction), or d_head for p-RoPE."""
        return self.d_head if self.scaling == "proportional" else int(self.d_head * self.rotary_fraction)

    @property
    def rotated_pairs(self) -> int:
        """The pairs with a frequency above zero."""
        return int(self.d_head * self.rotary_fraction) // 2

    @property
    def by_length(self) -> bool:
        """Whether the frequencies depend on the length of the sequence."""
        return self.scaling in BY_LENGTH and self.dynamic_length == "sequence"

    def build(self) -> Rope:
        return Rope(self)

    def inv_freq(self, seq_len: int | None = None) -> Tensor:
        """Radians a position after scaling, float64 [rotary_dim/2], high to low; of a sequence of `seq_len`."""
        return rope_frequencies(self, seq_len).inv_freq

    def _cross_checks(self) -> Iterable[Problem]:
        rotary_dim, smallest = self.rotary_dim, 4 if self.scaling in ("ntk", "dynamic") else 2
        share, pairs = int(self.d_head * self.rotary_fraction), self.rotary_dim // 2
        if rotary_dim % 2 or rotary_dim < smallest or self.rotated_pairs < 1:
            yield Problem("rotary_fraction", self.rotary_fraction,
                          f"a share of d_head = {self.d_head} that makes an even rotary dim of at least {smallest}",
                          f"int({self.d_head} · {self.rotary_fraction:g}) = {share}")  # fmt: skip
        for below, above in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
            low, high = getattr(self, below), getattr(self, above)
            if self.applies(self.param(below)) and low > high:
                yield Problem(above, high, f"at least {below} = {low:g}", "the two are swapped")
        for name in ("short_factor", "long_factor"):
            values, p = getattr(self, name), self.param(name)
            if values and len(values) != pairs:
                yield Problem(name, values, f"{pairs} numbers, one a pair of rotary dim {rotary_dim}, or none",
                              f"{len(values)} given")  # fmt: skip
            if any(not p.minimum <= v <= p.maximum for v in values):
                yield Problem(name, values, p.legal)
        sections = self.mrope_section
        if sections and (len(sections) != 3 or sum(sections) != pairs or min(sections) < 0):
            negative = f"{min(sections)} is below 0"
            why = negative if min(sections) < 0 else f"{len(sections)} given, they sum to {sum(sections)}"
            yield Problem("mrope_section", sections, f"3 sections from 0 that sum to rotary_dim/2 = {pairs}", why)
        if self.mrope_interleaved and not sections:
            yield Problem("mrope_interleaved", True, "true only beside mrope_section", "no sections are given")


class _Tables:
    """cos and sin that the modules of equal specs share, for each device and dtype those of the last two calls.

    Two, as queries and cached keys take turns. They go when the last of the modules goes.
    """

    _shared: ClassVar[weakref.WeakValueDictionary[Spec, _Tables]] = weakref.WeakValueDictionary()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], list[_Kept]] = {}

    @classmethod
    def of(cls, spec: Spec) -> _Tables:
        """Those of the modules of this spec."""
        with cls._lock:
            return cls._shared.setdefault(spec, cls())

    def get(
        self,
        dtypes: tuple[torch.dtype | None, ...],
        positions: Tensor,
        inv_freq: Tensor,
        seq_len: int | None,
        make: Callable[[], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        """Tables in `dtypes` that are kept of these positions, frequencies and length, else those that make() makes."""
        key = (*dtypes, positions.dtype, positions.device)
        kept = self._kept.get(key, [])
        found = next((k for k in kept if k.fits(positions, inv_freq, seq_len)), None)
        if found is None:
            seen = weakref.ref(positions), positions._version, positions.clone(), inv_freq.clone(), seq_len
            found = _Kept(*seen, make())
        if not kept or kept[0] is not found:
            self._kept[key] = [found, *(k for k in kept if k is not found)][:2]
        return found.made


class _Kept(NamedTuple):
    """Tables, and what they were made from."""

    positions: weakref.ref[Tensor]
    version: int
    content: Tensor
    inv_freq: Tensor
    seq_len: int | None
    made: tuple[Tensor, Tensor]

    def fits(self, positions: Tensor, inv_freq: Tensor, seq_len: int | None) -> bool:
        """Whether they are the tables of these: equal numbers on a CPU; on a GPU, where looking makes one wait, the
        very same tensor.
        """
        if self.seq_len != seq_len or not torch.equal(self.inv_freq, inv_freq):
            return False
        if positions.device.type == "cpu":
            return torch.equal(self.content, positions)
        return self.positions() is positions and self.version == positions._version


class Rope(PositionalEncoding):
    """Rotates q and k. Frequencies are a plain float64 attribute on the CPU: not in state_dict(), deaf to .half().

    A scaling that depends on the length takes it from the positions of each call (the largest one, plus 1) and keeps
    nothing: a short sequence after a long one gets what a fresh module gives it. With `seq_len` the frequencies are
    those of a sequence of that length, whatever the positions. `inv_freq` are those, or without `seq_len` those of
    sequences within the original length. cos and sin are rounded to `table_dtype`, for experiments; set it first.
    """

    spec: RopeSpec

    def __init__(self, spec: RopeSpec, seq_len: int | None = None) -> None:
        super().__init__(spec)
        self.seq_len = seq_len
        self.inv_freq, self.attention_factor = rope_frequencies(spec, seq_len)
        self.scales = attention_scales(spec)
        self.table_dtype: torch.dtype | None = None
        self._tables = _Tables.of(spec)

    def tables(
        self, positions: Tensor, dtype: torch.dtype = torch.float32, seq_len: Length = None
    ) -> tuple[Tensor, Tensor]:
        """cos and sin, each [..., L, R/2], from positions [..., L] of a sequence of `seq_len` (None: they tell it).

        Those of the last positions are kept, for all modules of this spec, so that the layers of a model and its next
        pass find them: do not write to them.
        """
        seq_len = seq_len if seq_len is not None and self.spec.by_length else self.length(positions)
        # tables made in inference mode cannot be trained on; positions with a gradient need tables with one
        if torch.compiler.is_compiling() or positions.requires_grad or isinstance(seq_len, Tensor):
            return self.build_tables(positions, dtype, seq_len)
        if torch.is_inference_mode_enabled() or positions.is_inference() or self.inv_freq.requires_grad:
            return self.build_tables(positions, dtype, seq_len)
        if is_watched(positions):
            return self.build_tables(positions, dtype, seq_len)
        return self._tables.get(
            (dtype, self.table_dtype), positions, self.inv_freq, self.seq_len if seq_len is None else seq_len,
            lambda: self.build_tables(positions, dtype, seq_len),
        )  # fmt: skip

    def build_tables(
        self, positions: Tensor, dtype: torch.dtype = torch.float32, seq_len: Length = None
    ) -> tuple[Tensor, Tensor]:
        """As `tables`, but made anew and not kept."""
        seq_len = seq_len if seq_len is not None and self.spec.by_length else self.length(positions)
        inv_freq = self.inv_freq if seq_len is None else rope_frequencies(self.spec, seq_len).inv_freq
        kept = self.table_dtype or dtype
        cos, sin = cos_sin(positions, inv_freq, dtype=kept, attention_factor=self.scales.tables)
        return cos.to(dtype), sin.to(dtype)

    def length(self, *positions: Tensor) -> Length:
        """Largest position plus 1, where the frequencies depend on it, else None; on a GPU a tensor, so none waits."""
        if not self.spec.by_length or self.seq_len is not None:
            return None
        known = [p.detach().max() for p in positions if p.numel()]
        if not known:
            return None
        where = float64_device(known[0].device)
        # float64 first: 255 + 1 is 0 in uint8, and 256 + 1 is 256 in bfloat16
        last = torch.stack([p.to(where).double() for p in known]).max().floor() + 1
        return last if torch.compiler.is_compiling() or last.device.type != "cpu" else int(last)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        seq_len = self.length(q_positions, k_positions)
        cos, sin = self._spread(q, q_positions, seq_len)
        if k_positions is q_positions and k.dtype == q.dtype:
            q, k = apply_rotary_qk(q, k, cos, sin, self.spec.layout)
        else:
            q = apply_rotary(q, cos, sin, self.spec.layout)
            k = apply_rotary(k, *self._spread(k, k_positions, seq_len), self.spec.layout)
        return (q if self.scales.scores == 1 else q * self.scales.scores), k

    def _spread(self, x: Tensor, positions: Tensor, seq_len: Length) -> tuple[Tensor, Tensor]:
        """cos and sin that broadcast over the heads of x [B, H, L, D]."""
        cos, sin = self.tables(positions, wide_dtype(x.dtype), seq_len)
        return (cos, sin) if positions.dim() == 1 else (cos.unsqueeze(-3), sin.unsqueeze(-3))

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_tables": None}  # what is kept does not travel

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._tables = _Tables.of(self.spec)
