"""NoPE: no positional encoding (Haviv et al. 2022, arXiv:2203.16634; Kazemnejad et al. 2023, arXiv:2305.19466)."""

from __future__ import annotations

from typing import ClassVar

from posenc_core.schemes.base import PositionalEncoding
from posenc_core.spec import Spec


class NoneSpec(Spec):
    """Nothing: attention sees a set of tokens; only a causal mask tells early from late."""

    scheme: ClassVar[str] = "none"

    def build(self) -> PositionalEncoding:
        return PositionalEncoding(self)
