"""Integer positions: raw index, index/(L-1) or one-hot; the starting point that Vaswani et al. 2017 improve on."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from posenc_core.schemes.base import VectorEncoding, float64_device
from posenc_core.spec import Hook, Problem, Spec, SpecError, param


class IntegerSpec(Spec):
    """The index itself as encoding."""

    scheme: ClassVar[str] = "integer"
    hook: ClassVar[Hook] = "embed"

    variant: Literal["raw", "normalized", "one_hot"] = param(
        "raw", "raw: the index in every dimension; normalized: index/(L-1); one_hot: a 1 in dimension p"
    )
    d_model: int = param(128, "width of the token embeddings", ge=2, le=16384, step=2, unit="dimensions",
                         ticks=(2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024))  # fmt: skip
    max_position_embeddings: int = param(
        128, "length L of the table or of the normalisation", ge=2, le=1_048_576, unit="positions",
        ticks=(8, 16, 32, 64, 128, 256, 512, 1024), when=("variant", ("normalized", "one_hot")),
    )  # fmt: skip

    def build(self) -> Integer:
        return Integer(self)


class Integer(VectorEncoding):
    """Adds the index in one of three codings. The one-hot coding has no value from min(L, d_model) on."""

    spec: IntegerSpec

    @property
    def defined(self) -> int | None:
        """The number of positions that have a value; None if all have."""
        spec = self.spec
        return min(spec.max_position_embeddings, spec.d_model) if spec.variant == "one_hot" else None

    def vectors(self, positions: Tensor) -> Tensor:
        """[..., d_model] float64. SpecError for a one-hot position outside the table or between two of its rows."""
        spec = self.spec
        p = positions.to(float64_device(positions.device)).double().unsqueeze(-1)
        if self.defined is not None:
            check_table_positions(positions, self.defined, "one-hot table")
            return (p == torch.arange(spec.d_model, device=p.device, dtype=p.dtype)).to(p.dtype)
        if spec.variant == "normalized":
            p = p / (spec.max_position_embeddings - 1)
        return p.expand(*positions.shape, spec.d_model)


def check_table_positions(positions: Tensor, rows: int, what: str) -> None:
    """SpecError naming the first position that is no row of a table. Nothing is known on the meta device."""
    if positions.is_meta:
        return
    positions = positions if positions.is_floating_point() else positions.long()  # uint8 has no 256, bool no floor
    bad = (positions < 0) | (positions >= rows)
    if positions.is_floating_point():
        bad = bad | (positions != positions.floor())
    if bool(bad.any()):
        value = positions[bad].flatten()[0].item()
        raise SpecError([Problem("positions", value, f"whole numbers from 0 to {rows - 1:,}",
                                 f"the {what} has {rows:,} rows")])  # fmt: skip
