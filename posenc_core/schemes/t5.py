"""Relative position buckets of T5 (Raffel et al. 2020, arXiv:1910.10683, section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from posenc_core.schemes.base import PositionalEncoding
from posenc_core.spec import Hook, Problem, Spec, param


def t5_buckets(distance: Tensor, *, bidirectional: bool = True, buckets: int = 32, max_distance: int = 128) -> Tensor:
    """The bucket of each distance k - q (key's position minus query's), int64 [...] from 0 to buckets - 1.

    The near half of the buckets holds one distance each, the far half holds logarithmically wider ranges up to
    max_distance, past which all distances share the last bucket. Bidirectional: keys after the query have the upper
    half of the buckets; else they share bucket 0 with the query's own position.

    The logarithm is rounded to float32 at each step, as in the authors' code: a boundary that falls on a whole number
    is otherwise put into the bucket next to it.
    """
    distance = distance.long()
    shift = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        shift = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    near = buckets // 2
    ratio = (distance.clamp(min=1).float() / near).log() / math.log(max_distance / near)
    far = (near + (ratio * (buckets - near)).long()).clamp(max=buckets - 1)
    return shift + torch.where(distance < near, distance, far)


class T5Spec(Spec):
    """One trained scalar a bucket of distances and a head, added to the scores of self-attention.

    config.json's T5 models are read into this spec. It is not in SCHEMES: the app has no trained model, picture or
    words for it. The first layer holds the table and all layers of a stack use it (each its own in umT5);
    cross-attention has no position at all.
    """

    scheme: ClassVar[str] = "t5"
    hook: ClassVar[Hook] = "bias"

    n_heads: int = param(
        8, "attention heads", ge=1, le=256, step=1, unit="heads", ticks=(1, 2, 4, 6, 8, 12, 16, 32, 64)
    )
    relative_attention_num_buckets: int = param(
        32, "buckets of the table, for both directions together", ge=4, le=4096, unit="buckets",
        ticks=(4, 8, 16, 32, 64, 128),
    )  # fmt: skip
    relative_attention_max_distance: int = param(
        128, "distances from here on share the last bucket", ge=2, le=2**20, unit="positions",
        ticks=(8, 16, 32, 64, 128, 256, 512, 1024),
    )  # fmt: skip
    bidirectional: bool = param(True, "encoder: keys before and after the query differ; decoder: only keys before")

    def build(self) -> T5:
        return T5(self)

    def _cross_checks(self) -> Iterable[Problem]:
        buckets, sides = self.relative_attention_num_buckets, 2 if self.bidirectional else 1
        if buckets % sides:
            yield Problem("relative_attention_num_buckets", buckets, "an even whole number while bidirectional is true")
        near = buckets // sides // 2
        if self.relative_attention_max_distance <= near:
            yield Problem("relative_attention_max_distance", self.relative_attention_max_distance,
                          f"a whole number above {near}, the distances that have a bucket of their own")  # fmt: skip


class T5(PositionalEncoding):
    """Adds table[bucket(k - q), head] to the scores; the table [buckets, heads] is trainable, N(0, 1) at first.

    Scores of T5 are not divided by √d. Initialised from the global generator.
    """

    spec: T5Spec

    def __init__(self, spec: T5Spec) -> None:
        super().__init__(spec)
        self.table = nn.Parameter(torch.randn(spec.relative_attention_num_buckets, spec.n_heads))

    def bias(
        self, q_positions: Tensor, k_positions: Tensor, q: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor:
        """[H, Lq, Lk], or [B, H, Lq, Lk] if a position tensor has a batch row each; in q's dtype if q is given.

        Positions are whole numbers; the distance of fractional ones is rounded towards zero.
        """
        spec, device = self.spec, self.table.device
        distance = k_positions.unsqueeze(-2) - q_positions.unsqueeze(-1)
        bucket = t5_buckets(
            distance.to(device),
            bidirectional=spec.bidirectional,
            buckets=spec.relative_attention_num_buckets,
            max_distance=spec.relative_attention_max_distance,
        )
        bias = self.table[bucket].movedim(-1, -3)
        return bias if q is None else bias.to(q.dtype)
