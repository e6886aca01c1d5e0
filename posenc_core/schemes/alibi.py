"""ALiBi, attention with linear biases (Press et al. 2022, arXiv:2108.12409)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor

from posenc_core.rotary import wide_dtype
from posenc_core.schemes.base import PositionalEncoding
from posenc_core.spec import Hook, Problem, Spec, param

MAX_HEADS = 256


def alibi_slopes(n_heads: int) -> Tensor:
    """Slopes by the authors' recipe, float64 [n_heads].

    For a power of two, as in the paper: 2^(-8/n), 2^(-16/n), … Else, as in the authors' code, the list of the next
    lower power of two, then every other slope of the next higher one; so they are not monotonic. ValueError for fewer
    than one head.
    """
    if not isinstance(n_heads, int) or isinstance(n_heads, bool) or n_heads < 1:
        raise ValueError(f"n_heads = {n_heads!r} is not legal; legal: a whole number from 1")
    lower = 2 ** int(math.log2(n_heads))
    slopes = _power_of_two(lower)
    if lower < n_heads:
        slopes = torch.cat([slopes, _power_of_two(2 * lower)[0::2][: n_heads - lower]])
    return slopes


def _power_of_two(n: int) -> Tensor:
    return 2.0 ** (-8.0 / n * torch.arange(1, n + 1, dtype=torch.float64, device="cpu"))


class AlibiSpec(Spec):
    """Subtracts slope times distance from every score; each head has its slope."""

    scheme: ClassVar[str] = "alibi"
    hook: ClassVar[Hook] = "bias"

    n_heads: int = param(8, "attention heads", ge=1, le=MAX_HEADS, step=1, unit="heads",
                         ticks=(1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 112))  # fmt: skip
    variant: Literal["causal", "symmetric"] = param(
        "causal", "causal: keys after the query are forbidden; symmetric: -slope·|i - j| both ways, for encoders"
    )
    slopes: tuple[float, ...] = param(
        (), "one slope a head; empty: the authors' recipe", ge=0.0, le=64.0, unit="score per position",
        max_length=MAX_HEADS,
    )  # fmt: skip

    def build(self) -> Alibi:
        return Alibi(self)

    def slope_tensor(self) -> Tensor:
        """float64 [n_heads]."""
        return (
            torch.tensor(self.slopes, dtype=torch.float64, device="cpu") if self.slopes else alibi_slopes(self.n_heads)
        )

    def _cross_checks(self) -> Iterable[Problem]:
        p = self.param("slopes")
        if self.slopes and len(self.slopes) != self.n_heads:
            yield Problem("slopes", self.slopes, f"{self.n_heads} numbers, one a head, or none",
                          f"{len(self.slopes)} given")  # fmt: skip
        if any(not p.minimum <= s <= p.maximum for s in self.slopes):  # type: ignore[operator]
            yield Problem("slopes", self.slopes, p.legal)


class Alibi(PositionalEncoding):
    """Adds -slope·(i - j) to the scores; the causal variant puts -inf where a key lies after its query."""

    spec: AlibiSpec

    def __init__(self, spec: AlibiSpec) -> None:
        super().__init__(spec)
        self.slopes = spec.slope_tensor()

    def bias(
        self, q_positions: Tensor, k_positions: Tensor, q: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor:
        """[H, Lq, Lk], or [B, H, Lq, Lk] if a position tensor has a batch row each; at most 0 everywhere.

        In q's dtype if q is given (differences are taken before the cast), else float32.
        """
        wide = torch.float32 if q_positions.device.type == "mps" else torch.float64
        distance = q_positions.to(wide).unsqueeze(-1) - k_positions.to(wide).unsqueeze(-2)
        dtype = torch.float32 if q is None else q.dtype
        narrow = wide_dtype(dtype)  # H times the memory hangs on it
        slopes = self.slopes.to(distance.device, narrow)[:, None, None]
        bias = -slopes * distance.abs().to(narrow).unsqueeze(-3)
        if self.spec.variant == "causal":
            bias.masked_fill_((distance < 0).unsqueeze(-3), -torch.inf)
        return bias.to(dtype)

    def bias_by_distance(self, distance: Tensor) -> Tensor:
        bias = -self.slopes.to(distance.device, distance.dtype)[:, None] * distance.abs()
        return bias.masked_fill(distance < 0, -torch.inf) if self.spec.variant == "causal" else bias

    def bias_slopes(self) -> Tensor:
        return self.slopes
