"""RoPE, rotary position embedding (Su et al. 2021, arXiv:2104.09864), with partial rotation and scalings."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from posenc_core.frequencies import rope_frequencies
from posenc_core.rotary import apply_rotary, cos_sin
from posenc_core.schemes.base import PositionalEncoding
from posenc_core.spec import Hook, Problem, Spec, param

SCALED = ("linear", "ntk", "proportional")


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
    scaling: Literal["none", "linear", "ntk", "proportional"] = param(
        "none", "linear: position interpolation; ntk: larger base; proportional: p-RoPE, lowest frequencies set to zero"
    )
    factor: float = param(1.0, "how many times longer than in training", ge=1.0, le=4096.0,
                          ticks=(1, 1.5, 2, 3, 4, 6, 8, 16, 32, 64, 128), when=("scaling", SCALED))  # fmt: skip

    @property
    def rotary_dim(self) -> int:
        """R, the features that take part in a pair: int(d_head·rotary_fraction), or d_head for p-RoPE."""
        return self.d_head if self.scaling == "proportional" else int(self.d_head * self.rotary_fraction)

    @property
    def rotated_pairs(self) -> int:
        """The pairs with a frequency above zero."""
        return int(self.d_head * self.rotary_fraction) // 2

    def build(self) -> Rope:
        return Rope(self)

    def inv_freq(self) -> Tensor:
        """Radians a position after scaling, float64 [rotary_dim/2], high to low."""
        return rope_frequencies(self).inv_freq

    def _cross_checks(self) -> Iterable[Problem]:
        rotary_dim, smallest = self.rotary_dim, 4 if self.scaling == "ntk" else 2
        share = int(self.d_head * self.rotary_fraction)
        if rotary_dim % 2 or rotary_dim < smallest or self.rotated_pairs < 1:
            yield Problem("rotary_fraction", self.rotary_fraction,
                          f"a share of d_head = {self.d_head} that makes an even rotary dim of at least {smallest}",
                          f"int({self.d_head} · {self.rotary_fraction:g}) = {share}")  # fmt: skip


class _Last(NamedTuple):
    """The tables made last, and what they were made from."""

    positions: weakref.ref[Tensor]
    version: int
    content: Tensor
    inv_freq: Tensor
    dtype: torch.dtype
    made: tuple[Tensor, Tensor]

    def fits(self, positions: Tensor, inv_freq: Tensor, dtype: torch.dtype) -> bool:
        """Whether they are the tables of these; content is compared on the CPU only, since a GPU makes one wait."""
        same = self.positions() is positions and self.version == positions._version
        if not same or self.dtype != dtype or self.inv_freq is not inv_freq:
            return False
        return positions.device.type != "cpu" or torch.equal(self.content, positions)


class Rope(PositionalEncoding):
    """Rotates q and k. Frequencies are a plain float64 attribute on the CPU: not in state_dict(), deaf to .half()."""

    spec: RopeSpec

    def __init__(self, spec: RopeSpec) -> None:
        super().__init__(spec)
        self.inv_freq, self.attention_factor = rope_frequencies(spec)
        self._last: _Last | None = None

    def tables(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """cos and sin, each [..., L, R/2], from positions [..., L].

        Kept for the last positions tensor, so that the layers of one forward pass build them once: do not write to
        them.
        """
        # tables made in inference mode cannot be trained on; positions with a gradient need tables with one
        if torch.compiler.is_compiling() or positions.requires_grad:
            return self._make(positions, dtype)
        if torch.is_inference_mode_enabled() or positions.is_inference():
            return self._make(positions, dtype)
        last = self._last
        if last is not None and last.fits(positions, self.inv_freq, dtype):
            return last.made
        made = self._make(positions, dtype)
        self._last = _Last(weakref.ref(positions), positions._version, positions.clone(), self.inv_freq, dtype, made)
        return made

    def _make(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return cos_sin(positions, self.inv_freq, dtype=dtype, attention_factor=self.attention_factor)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        return self._rotate(q, q_positions), self._rotate(k, k_positions)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.tables(positions, torch.float64 if x.dtype == torch.float64 else torch.float32)
        if positions.dim() > 1:
            cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)  # [B, 1, L, R/2] against x [B, H, L, D]
        return apply_rotary(x, cos, sin, self.spec.layout)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_last": None}  # weak references do not pickle
