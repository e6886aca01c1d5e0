"""Scaled dot-product attention with a positional encoding (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from posenc_core.linear_bias import (
    QUERIES,
    attention_by_channels,
    attention_by_distance,
    channels_are_best,
    distances,
    earlier,
    even_offset,
    parts,
)
from posenc_core.schemes.base import PositionalEncoding


def attention_scores(
    q: Tensor, k: Tensor, encoding: PositionalEncoding, q_positions: Tensor, k_positions: Tensor
) -> Tensor:
    """q·k/√d after the encoding's rotation, plus its bias: [B, H, Lq, Lk] from q [B, H, Lq, D], k [B, Hkv, Lk, D]."""
    q, k = encoding.rotate(q, k, q_positions, k_positions)
    k = _repeat_heads(k, q.shape[1])
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    bias = encoding.bias(q_positions, k_positions, q, k)
    if bias is None:
        return scores
    _check_heads(bias.shape[-3], q)
    return scores + bias


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionalEncoding,
    q_positions: Tensor,
    k_positions: Tensor,
    *,
    causal: bool = True,
    mask: Tensor | None = None,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention output [B, H, Lq, D] and, if asked for, the weights [B, H, Lq, Lk].

    q [B, H, Lq, D]; k, v [B, Hkv, Lk, D], Hkv a divisor of H; positions [L] or [B, L]. `causal` forbids keys that come
    later in the sequence (the last query meets the last key, so a cache needs no special case); `mask` is boolean,
    broadcastable to [B, H, Lq, Lk], True where attention is allowed. With need_weights the scores are made in plain
    sight (the reference); without, the same numbers come from PyTorch's fused kernel.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask has dtype {mask.dtype}; legal: torch.bool, True where attention is allowed")
    if need_weights:
        allowed = _allowed(q, k, causal, mask)
        scores = attention_scores(q, k, encoding, q_positions, k_positions)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights = scores.softmax(-1)
        if allowed is not None:  # a query that may see nothing gets nothing, as in the fused kernel
            weights = weights.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
        return weights @ _repeat_heads(v, q.shape[1]), weights
    q, k = encoding.rotate(q, k, q_positions, k_positions)
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    lq, lk = q.shape[-2], k.shape[-2]
    one_a_row = (q_positions.shape[-1], k_positions.shape[-1]) == (lq, lk)
    if lq > 1 and one_a_row and encoding.bias_by_distance(torch.empty(0, device="cpu")) is not None:
        offset = even_offset(q_positions, k_positions, q.dtype)
        if offset is not None:
            return _by_distance(q, k, v, encoding, offset, causal, mask), None
    if lq <= QUERIES or encoding.bias(q_positions[..., :1], k_positions[..., :1], q[..., :1, :], k[..., :1, :]) is None:
        return _fused(q, k, v, encoding, q_positions, k_positions, causal, mask), None
    outputs = []
    for start, stop in parts(lq, QUERIES):  # a bias for all queries at once would need H·Lq·Lk numbers
        rows, seen = slice(start, stop), slice(max(0, stop + lk - lq) if causal else lk)
        part = None if mask is None else mask.expand(*mask.shape[:-2], lq, lk)[..., rows, seen]
        outputs.append(_fused(q[..., rows, :], k[..., seen, :], v[..., seen, :], encoding, q_positions[..., rows],
                              k_positions[..., seen], causal, part))  # fmt: skip
    return torch.cat(outputs, dim=-2), None


def _by_distance(
    q: Tensor, k: Tensor, v: Tensor, encoding: PositionalEncoding, offset: float, causal: bool, mask: Tensor | None
) -> Tensor:
    """Attention of rotated q and k at even positions, the first query `offset` after the first key."""
    lq, lk, slopes = q.shape[-2], k.shape[-2], encoding.bias_slopes()
    if causal and slopes is not None and offset >= lk - lq and channels_are_best(q, k, slopes, mask):
        return attention_by_channels(q, k, v, slopes, mask)
    bias = encoding.bias_by_distance(distances(lq, lk, offset, q))
    assert bias is not None
    _check_heads(bias.shape[0], q)
    return attention_by_distance(q, k, v, bias, causal=causal, mask=mask)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, encoding: PositionalEncoding, q_positions: Tensor, k_positions: Tensor,
    causal: bool, mask: Tensor | None,
) -> Tensor:  # fmt: skip
    """Attention of rotated q and k by PyTorch's kernel, as many heads each."""
    bias = encoding.bias(q_positions, k_positions, q, k)
    if bias is not None:
        _check_heads(bias.shape[-3], q)
    if bias is None and mask is None and (q.shape[-2] == k.shape[-2] or not causal):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)
    allowed = _allowed(q, k, causal, mask)
    if bias is None:
        return scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    bias = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
    bias = bias if bias.dim() == 4 else bias[None]  # the kernel for CPUs takes two dimensions or four
    return scaled_dot_product_attention(q, k, v, attn_mask=bias)


def alibi_attention(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, causal: bool = True) -> Tensor:
    """Attention with ALiBi's bias (Press et al. 2022): q [B, H, Lq, D], k, v [B, Hkv, Lk, D], slopes [H] -> as q.

    Causal: -slope·(i - j) for keys up to the query. Otherwise -slope·|i - j| both ways. The last query meets the last
    key; Hkv divides H. No bias of [H, Lq, Lk] is made: see `linear_bias`. ValueError if slopes do not have one entry a
    head.
    """
    if not isinstance(slopes, Tensor) or slopes.shape != (q.shape[1],):
        given = f"have shape {tuple(slopes.shape)}" if isinstance(slopes, Tensor) else f"are a {type(slopes).__name__}"
        raise ValueError(f"slopes {given}; q has {q.shape[1]} heads, so a tensor ({q.shape[1]},) is legal")
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    if causal and channels_are_best(q, k, slopes, None):
        return attention_by_channels(q, k, v, slopes)
    lq, lk = q.shape[-2], k.shape[-2]
    distance = distances(lq, lk, lk - lq, q)
    bias = -slopes.to(distance.device, distance.dtype)[:, None] * distance.abs()
    return attention_by_distance(q, k, v, bias, causal=causal)


def _allowed(q: Tensor, k: Tensor, causal: bool, mask: Tensor | None) -> Tensor | None:
    if not causal:
        return mask
    seen = earlier(q.shape[-2], k.shape[-2], q.device)
    return seen if mask is None else seen & mask


def _check_heads(of_bias: int, q: Tensor) -> None:
    if of_bias not in (1, q.shape[1]):
        raise ValueError(f"q has {q.shape[1]} heads; legal: {of_bias}, as the encoding's bias has")


def _repeat_heads(x: Tensor, n_heads: int) -> Tensor:
    if n_heads % x.shape[1]:
        raise ValueError(f"k and v have {x.shape[1]} heads; legal: a divisor of q's {n_heads}")
    return x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], dim=1)
