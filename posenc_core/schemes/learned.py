"""Learned absolute positions: one trained vector a position (Gehring et al. 2017, arXiv:1705.03122; BERT, GPT-2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from posenc_core.schemes.base import VectorEncoding
from posenc_core.schemes.integer import check_table_positions
from posenc_core.spec import Hook, Problem, Spec, param


class LearnedSpec(Spec):
    """A table with one row a position; past its last row there is nothing."""

    scheme: ClassVar[str] = "learned"
    hook: ClassVar[Hook] = "embed"

    max_position_embeddings: int = param(
        128, "rows of the table, the offset's rows included", ge=2, le=1_048_576, unit="rows",
        ticks=(8, 16, 32, 64, 128, 256, 512, 514, 1024, 2048),
    )  # fmt: skip
    d_model: int = param(128, "width of the token embeddings", ge=2, le=16384, step=2, unit="dimensions",
                         ticks=(2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024))  # fmt: skip
    offset: int = param(0, "row of position 0; RoBERTa and OPT use 2", ge=0, le=64, unit="rows")

    def build(self) -> Learned:
        return Learned(self)

    def _cross_checks(self) -> Iterable[Problem]:
        if self.offset >= self.max_position_embeddings:
            yield Problem("offset", self.offset, f"a whole number from 0 to {self.max_position_embeddings - 1}",
                          f"the table has {self.max_position_embeddings} rows")  # fmt: skip


class Learned(VectorEncoding):
    """Adds row p + offset of a trainable table, initialised N(0, 0.02²) from the global generator."""

    spec: LearnedSpec

    def __init__(self, spec: LearnedSpec) -> None:
        super().__init__(spec)
        self.table = nn.Parameter(torch.randn(spec.max_position_embeddings, spec.d_model) * 0.02)

    @property
    def defined(self) -> int:
        """The number of positions that have a row."""
        return self.spec.max_position_embeddings - self.spec.offset

    def vectors(self, positions: Tensor) -> Tensor:
        """[..., d_model]. SpecError for a position that has no row."""
        if not torch.compiler.is_compiling():
            check_table_positions(positions, self.defined, "learned table")
        return self.table[positions.long() + self.spec.offset]
