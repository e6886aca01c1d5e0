"""Sinusoidal encoding (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from posenc_core.frequencies import geometric
from posenc_core.rotary import phases
from posenc_core.schemes.base import VectorEncoding
from posenc_core.spec import Hook, Spec, param


class SinusoidalSpec(Spec):
    """A sine and a cosine of the position for each of d_model/2 frequencies."""

    scheme: ClassVar[str] = "sinusoidal"
    hook: ClassVar[Hook] = "embed"

    d_model: int = param(128, "width of the token embeddings", ge=2, le=16384, step=2, unit="dimensions",
                         ticks=(2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024))  # fmt: skip
    base: float = param(10_000.0, "theta: pair i turns by theta^(-2i/d) a position", ge=1.001, le=1e12,
                        ticks=(10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 5e5, 1e6))  # fmt: skip
    layout: Literal["interleaved", "concatenated"] = param(
        "interleaved", "interleaved: sin and cos alternate (the paper); concatenated: all sines, then all cosines"
    )
    endpoint: bool = param(
        False,
        "exponent i/(d/2 - 1) as in tensor2tensor and Whisper: from 4 dimensions, the longest wavelength is base·2π",
    )

    def build(self) -> Sinusoidal:
        return Sinusoidal(self)

    def inv_freq(self) -> Tensor:
        """Radians a position, float64 [d_model/2], high to low."""
        pairs = self.d_model // 2
        if self.endpoint and pairs > 1:
            return self.base ** -(torch.arange(pairs, dtype=torch.float64, device="cpu") / (pairs - 1))
        return geometric(self.base, self.d_model)


class Sinusoidal(VectorEncoding):
    """Adds [sin(p·w_0), cos(p·w_0), sin(p·w_1), …]; defined for every real position."""

    spec: SinusoidalSpec

    def vectors(self, positions: Tensor) -> Tensor:
        """[..., d_model] float64, within [-1, 1]."""
        angle = phases(positions, self.spec.inv_freq())
        if self.spec.layout == "concatenated":
            return torch.cat([angle.sin(), angle.cos()], dim=-1)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)

    def shift_map(self, k: float) -> Tensor:
        """M_k, float64 [d_model, d_model], with PE(p + k) = M_k PE(p) for every p: one rotation a frequency."""
        spec, pairs = self.spec, self.spec.d_model // 2
        index = torch.arange(pairs)
        sines, cosines = (index, index + pairs) if spec.layout == "concatenated" else (2 * index, 2 * index + 1)
        angle = k * spec.inv_freq()
        out = torch.zeros(spec.d_model, spec.d_model, dtype=torch.float64)
        out[sines, sines] = out[cosines, cosines] = angle.cos()
        out[sines, cosines] = angle.sin()
        out[cosines, sines] = -angle.sin()
        return out
