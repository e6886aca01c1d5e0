"""Rotary frequencies and their scalings: pure functions, float64. A new scaling is one function and one dict entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from posenc_core.schemes.rope import RopeSpec


class Frequencies(NamedTuple):
    """inv_freq: float64 [pairs], radians a position, high to low. attention_factor multiplies cos and sin."""

    inv_freq: Tensor
    attention_factor: float


def geometric(base: float, dim: int, rotary_dim: int | None = None) -> Tensor:
    """base^(-2i/dim) for i < rotary_dim/2, float64 (Su et al. 2021, section 3.2.2)."""
    exponent = torch.arange(0, dim if rotary_dim is None else rotary_dim, 2, dtype=torch.float64, device="cpu") / dim
    return base**-exponent


def none(spec: RopeSpec, seq_len: int | None = None) -> Frequencies:
    """The spectrum as trained; the exponent runs over the rotary dim (GPT-NeoX's partial rotation)."""
    return Frequencies(geometric(spec.base, spec.rotary_dim), 1.0)


def linear(spec: RopeSpec, seq_len: int | None = None) -> Frequencies:
    """Position interpolation: every frequency divided by the factor (Chen et al. 2023, arXiv:2306.15595)."""
    return Frequencies(geometric(spec.base, spec.rotary_dim) / spec.factor, 1.0)


def ntk(spec: RopeSpec, seq_len: int | None = None) -> Frequencies:
    """NTK-aware: base·s^(d/(d-2)) divides the lowest frequency by s and keeps the highest (bloc97 2023)."""
    dim = spec.rotary_dim
    return Frequencies(geometric(spec.base * spec.factor ** (dim / (dim - 2)), dim), 1.0)


def proportional(spec: RopeSpec, seq_len: int | None = None) -> Frequencies:
    """p-RoPE: exponent over the head dim, the lowest (1 - rotary_fraction) of the spectrum set to zero.

    Barbero et al. 2024, arXiv:2410.06205; with a factor as in Gemma 4.
    """
    kept = geometric(spec.base, spec.d_head)[: spec.rotated_pairs] / spec.factor
    return Frequencies(torch.nn.functional.pad(kept, (0, spec.d_head // 2 - len(kept))), 1.0)


SCALINGS: dict[str, Callable[[RopeSpec, int | None], Frequencies]] = {
    "none": none,
    "linear": linear,
    "ntk": ntk,
    "proportional": proportional,
}


def rope_frequencies(spec: RopeSpec, seq_len: int | None = None) -> Frequencies:
    """(inv_freq float64 [rotary_dim/2], attention_factor) of a RopeSpec.

    `seq_len` matters only to scalings that depend on the length of the sequence. TypeError for another scheme's spec.
    """
    if not hasattr(spec, "rotary_dim"):
        raise TypeError(f"rope_frequencies needs a rope spec, not {spec.scheme}")
    return SCALINGS[spec.scaling](spec, seq_len)
