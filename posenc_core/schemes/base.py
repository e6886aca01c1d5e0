"""PositionalEncoding: the three places where a scheme can act on attention, each the identity by default."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from posenc_core.spec import Spec


class PositionalEncoding(nn.Module):
    """A scheme as a module. Positions are tensors [L] or [B, L], whole or fractional, never a length."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings [B, L, d_model] with positions [L] or [B, L], before the first layer."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [B, H, Lq, D] and keys [B, Hkv, Lk, D], in every layer."""
        return q, k

    def bias(
        self, q_positions: Tensor, k_positions: Tensor, q: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor | None:
        """What is added to the scores after 1/√d: None, or [H, Lq, Lk] or [B, H, Lq, Lk]; -inf forbids."""
        return None

    def bias_by_distance(self, distance: Tensor) -> Tensor | None:
        """The same bias [H, N] from distances q_position - k_position [N], where it depends on nothing else; else None.

        In distance's dtype, which is float64 (float32 on a device without).
        """
        return None

    def bias_slopes(self) -> Tensor | None:
        """[H], where the bias of every key that is not after its query is -slope·distance; else None."""
        return None

    @property
    def layers(self) -> Sequence[PositionalEncoding] | None:
        """One encoding a layer for a hybrid, else None (every layer uses this one)."""
        return None

    def layer(self, index: int) -> PositionalEncoding:
        """The encoding of layer `index`, from 0."""
        return self if self.layers is None else self.layers[index % len(self.layers)]


class VectorEncoding(PositionalEncoding):
    """A scheme that adds one vector a position to the token embeddings."""

    def vectors(self, positions: Tensor) -> Tensor:
        """[..., d_model] float64 (float32 for trained tables), from positions [...]."""
        raise NotImplementedError

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.vectors(positions).to(x.dtype).to(x.device)


def float64_device(device: torch.device) -> torch.device:
    """The device itself, or the CPU for a device without float64."""
    return torch.device("cpu") if device.type == "mps" else device
