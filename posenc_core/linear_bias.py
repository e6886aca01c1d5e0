"""Attention whose bias depends on the distance of query and key alone, such as ALiBi's, without a bias in memory.

Such a bias has Lq + Lk - 1 numbers a head, not Lq·Lk. `attention_by_distance` hands the fused kernel a strided view of
them, which a CPU takes as it is, and CUDA copies for a block of queries at a time; `attention_by_channels` lets a
linear one ride in a few more features of q and k, for kernels that take no bias; `alibi_flex_attention` has a kernel
compiled that works it out. ALiBi: Press et al. 2022, arXiv:2108.12409.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from posenc_core.rotary import traced, wide_dtype

if TYPE_CHECKING:  # torch.nn.attention.* take seconds to import, so each is imported where it is used
    from torch.nn.attention.flex_attention import BlockMask

QUERIES = 512  # rows of a bias that are made at a time where it has to be made
STEEPEST = 64.0  # the largest slope a position that is legal
SPARE = 8  # kernels for GPUs want a multiple of this many features
NEAR_ROWS = 64  # queries that share a window of keys
NEAR_FROM = 2048  # keys; with fewer, finding out which of them count costs what it saves
FORBIDDEN = 2**15  # its square is what a mask takes off in further features: far more than any bias, exact in halves
LONGEST = 2**16  # keys whose numbers two factors of bfloat16 can hold


def attention_by_distance(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, causal: bool = True, mask: Tensor | None = None
) -> Tensor:
    """Attention [B, H, Lq, D] of q [B, H, Lq, D], k, v [B, H, Lk, D], rotated, with as many heads each.

    bias [H, Lq + Lk - 1] holds at Lq - 1 - i + j what is added to the score of query i and key j, so that the last
    query meets the first key at 0. On a CPU neither a bias of [H, Lq, Lk] nor a part of it is made: with the queries in
    reverse, r = Lq - 1 - i, it is bias[r + j], a view of the vector with strides (1, 1). `causal` and `mask` as in
    `attention`; a mask that is the same for all queries costs a further feature of q and k on a CPU, any other one a
    bias for few queries at a time. On a CPU, without a mask and gradients, keys too far to count are left out
    (`_reaches`).
    """
    bias = bias.to(_bias_dtype(q))
    if not causal:
        return _all_keys(q, k, v, bias, causal, mask)
    bias = bias.masked_fill(torch.arange(bias.shape[-1], device=q.device) >= k.shape[-2], -torch.inf)
    heads = _reaches(q, k, v, bias) if mask is None else None
    if not heads:
        return _all_keys(q, k, v, bias, causal, mask)
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    for first, stop, reach in _runs(heads, q.shape[1]):
        some = slice(first, stop)  # neighbours, so that nothing is copied
        of_some = q[:, some], k[:, some], v[:, some], bias[some]
        out[:, some] = _all_keys(*of_some, causal, mask) if reach is None else _near_keys(*of_some, reach)
    return out


def _runs(reaches: Mapping[int, int], n_heads: int) -> list[tuple[int, int, int | None]]:
    """(first head, head after the last, reach): each head that has a reach alone, and neighbours without together."""
    runs: list[tuple[int, int, int | None]] = []
    for h in range(n_heads):
        if h not in reaches and runs and runs[-1][2] is None:
            runs[-1] = runs[-1][0], h + 1, None
        else:
            runs.append((h, h + 1, reaches.get(h)))
    return runs


def _all_keys(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, causal: bool, mask: Tensor | None) -> Tensor:
    """attention_by_distance with every key; bias is -inf where `causal` forbids, which here says which keys to skip."""
    lq, lk, width, features = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
    if mask is not None and q.device.type == "cpu" and lq > width and _of_keys(mask):
        blocked = torch.zeros(mask.shape, dtype=k.dtype).masked_fill(~mask, -torch.inf)
        q, k, v, mask = pad(q, (0, 1), value=1.0), _join(k, _by_key(blocked, k)), pad(v, (0, 1)), None
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], lq, lk)
    outputs = []
    for start, stop in parts(lq, _rows(q, mask)):  # counted from the last query
        rows = slice(lq - stop, lq - start)
        seen = max(0, lk - start) if causal else lk
        part = _view(bias, stop - start, seen, start)
        if mask is not None:
            part = part.masked_fill(~mask[..., rows, :seen].flip(-2), -torch.inf)
        out = scaled_dot_product_attention(
            q[..., rows, :].flip(-2), k[..., :seen, :], v[..., :seen, :], attn_mask=part, scale=width**-0.5
        )
        outputs.append(out[..., :features].flip(-2))
    return torch.cat(outputs[::-1], dim=-2)


def _near_keys(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, reach: int) -> Tensor:
    """Causal attention_by_distance of one head [B, 1, L, D], each query with its nearest `reach` keys or some more.

    Blocks of NEAR_ROWS queries see windows of equally many keys at equal distances: they are heads of one call that
    share a bias, and their windows are one strided view of k. The first queries, with fewer keys before them than a
    window has, see all.
    """
    lq, lk, rows = q.shape[-2], k.shape[-2], NEAR_ROWS
    window = reach + rows - 1
    blocks = min(lq // rows, (lk - window) // rows + 1)
    lead = lq - blocks * rows
    first = lk - window - (blocks - 1) * rows  # of the keys of the first block
    late = q[:, 0, lead:].unflatten(1, (blocks, rows)).flip(-2)
    keys, values = (t[:, 0, first:].unfold(1, window, rows).transpose(-1, -2) for t in (k, v))
    out = scaled_dot_product_attention(late, keys, values, attn_mask=_view(bias, rows, window, lk - window))
    out = out.flip(-2).flatten(1, 2).unsqueeze(1)
    if not lead:
        return out
    seen = lk - lq + lead
    early = _all_keys(q[..., :lead, :], k[..., :seen, :], v[..., :seen, :], bias[:, lq - lead :], True, None)
    return torch.cat([early, out], dim=-2)


def _reaches(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> dict[int, int] | None:
    """How many of the nearest keys count, for the heads where that is few enough to gain by it; None if not known.

    Of query i let o be its own key, the last that it may see. A key j has at most the weight of o times
    exp(|q_i| max|k| / √d - q_i·k_o / √d + bias_j - bias_o), by Cauchy and Schwarz. So with the largest such difference
    of scores over all queries, S, and of sizes, V = max|v| / min|v_o|, the keys beyond a distance together have less
    than a share ε of what o adds to the output, and so of Σ p|v|, if
    logsumexp(their bias) <= bias_o - S - log V + log ε. Leaving them out moves an output by less than 2ε Σ p|v|. With ε
    an eighth of the eps of the bias's dtype (float32 for half precision) that is below the rounding of the sum itself.
    Not under autograd, where gradients of far keys would be 0 instead of small.
    """
    lq, lk = q.shape[-2], k.shape[-2]
    if q.device.type != "cpu" or lq > lk or lq < NEAR_ROWS or lk < NEAR_FROM or traced():
        return None
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, bias)):
        return None
    wide = bias.dtype
    spreads = []
    for i in range(q.shape[1]):  # a head at a time: products of all would take as much as q
        own = (q[:, i].to(wide) * k[:, i, lk - lq :].to(wide)).sum(-1)
        q_norm, k_norm = (torch.linalg.vector_norm(t[:, i], dim=-1, dtype=wide) for t in (q, k))
        spread = (q_norm * k_norm.amax(-1, keepdim=True) - own).amax() * q.shape[-1] ** -0.5
        sizes = v[:, i].abs().amax(-1).to(wide)
        spreads.append(spread + (sizes.amax() / sizes[:, lk - lq :].amin()).log())
    limit = bias[:, lk - 1] - torch.stack(spreads) + math.log(torch.finfo(wide).eps / 8)
    far = (bias[:, :lk].logcumsumexp(-1) <= limit[:, None]).sum(-1)
    try:
        found = (lk - far).clamp(min=1).tolist()
    except RuntimeError:  # under vmap there are no numbers to ask for
        return None
    return {h: reach for h, reach in enumerate(found) if reach + NEAR_ROWS <= lk // 2}


def _view(bias: Tensor, rows: int, keys: int, start: int) -> Tensor:
    """[1, H, rows, keys] with bias[h, start + row + key], of the memory of bias [H, N]."""
    return bias.unfold(-1, keys, 1)[None, :, start : start + rows]


def _bias_dtype(q: Tensor) -> torch.dtype:
    """The kernel for CPUs adds a float32 bias to the float32 scores of half precision; others want q's dtype."""
    return torch.float32 if q.device.type == "cpu" and q.dtype != torch.float64 else q.dtype


def _rows(q: Tensor, mask: Tensor | None) -> int:
    """Queries at a time: as measured. Fewer skip more of the keys that none of them sees, more mean fewer calls."""
    if q.device.type != "cpu":
        return QUERIES
    return 64 if q.shape[-2] <= 512 or mask is not None else 256


def parts(length: int, rows: int) -> list[tuple[int, int]]:
    """(start, stop) of each part; one that is empty if there is nothing."""
    return [(start, min(start + rows, length)) for start in range(0, max(length, 1), rows)]


def _join(x: Tensor, value: Tensor) -> Tensor:
    """x [B, H, L, D] with value [B, H, L] as one more feature."""
    return torch.cat([x, value.unsqueeze(-1)], dim=-1)


def _by_key(mask: Tensor, k: Tensor) -> Tensor:
    """[B, H, Lk] from a mask that is the same for all queries: [..., 1, Lk] or [Lk]."""
    return (mask if mask.dim() < 2 else mask.squeeze(-2)).expand(k.shape[:-1])


def attention_by_channels(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, mask: Tensor | None = None) -> Tensor:
    """Causal attention with the bias -slope·(i - j), for kernels that take no bias; arguments as above, Lq <= Lk.

    As -m(i - j) is m(j - c) plus what all keys of a query share, and softmax removes that, the bias can be added by
    the product of q and k: 6 of SPARE more features hold j - c = 256a + b as 16a and b/16, and 16·m·√d as the sum
    of three numbers of the dtype. Each factor is exact (|a| <= 2^8, |b| <= 2^7; the sum of three up to 2^-24 of it,
    or in float16 up to 2^-25), so is their product in float32. What is left is the error of at most 8 float32
    operations on numbers up to m·|j - c| (2·m·|j - c| below 256): 2^-20·m·|j - c|, even where a kernel cuts off
    instead of rounding. c is the middle of a block of queries, whose rows are so many as keep that within the
    dtype's own rounding for keys of the block; but not fewer than 128, so that in float16 slopes above 8 may cost
    up to m·2^-14. Keys before the block, x = m·(i - j) from their query, have a further error of 2^-20·x, and e^-x
    of the weight. A bias that is itself in half precision is off by up to 2^-8·x (bfloat16) or 2^-11·x (float16).
    In float32 no block is small enough: there attention_by_distance has the smaller error.

    `mask` [..., 1, Lk] or [Lk], True for keys that may be seen, takes one more feature. slopes [H] are best on the CPU,
    since the largest is read. ValueError for more than LONGEST keys, for more queries than keys, or another mask.
    """
    lq, lk, width = q.shape[-2], k.shape[-2], q.shape[-1]
    if lk > LONGEST or lq > lk:
        raise ValueError(f"{lq} queries and {lk} keys; legal: no more queries than keys, and at most {LONGEST} keys")
    if mask is not None and not _of_keys(mask):
        raise ValueError(f"mask has shape {tuple(mask.shape)}; legal: [..., 1, Lk] or [Lk], the same for all queries")
    q = torch.cat([q, _slope_features(slopes, q)[:, None].expand(*q.shape[:-1], SPARE)], dim=-1)
    v, seen_keys = pad(v, (0, SPARE)), None if mask is None else _by_key(mask, k)
    outputs = []
    for start, stop in parts(lq, _block_rows(slopes, q.dtype)):
        seen = lk - lq + stop
        features = k.new_zeros(*k.shape[:-2], seen, SPARE)
        features[..., :6] = _key_features(seen, seen - (stop - start) // 2, k)
        if seen_keys is not None:
            features[..., 6] = seen_keys[..., :seen].logical_not() * -FORBIDDEN
        keys = torch.cat([k[..., :seen, :], features], dim=-1)
        outputs.append(_causal(q[..., start:stop, :], keys, v[..., :seen, :], width**-0.5)[..., : v.shape[-1] - SPARE])
    out = torch.cat(outputs, dim=-2)
    if seen_keys is None:
        return out
    some = seen_keys.cumsum(-1)[..., lk - lq :] > 0  # a query that may see no key gets nothing
    return out.masked_fill(~some.unsqueeze(-1), 0.0)


def channels_are_best(q: Tensor, k: Tensor, slopes: Tensor, mask: Tensor | None) -> bool:
    """Whether attention_by_channels is the way to go: half precision on CUDA, whose flash kernel takes no bias.

    Decided by what the kernels take; not yet measured on a GPU.
    """
    lq, lk = q.shape[-2], k.shape[-2]
    if not q.is_cuda or q.dtype not in (torch.float16, torch.bfloat16) or traced():
        return False
    # for few queries the copies of k and v cost more than a bias; flash kernels go to 256 features
    return (
        64 <= lq <= lk <= LONGEST
        and q.shape[-1] + SPARE <= 256
        and not slopes.requires_grad
        and (mask is None or _of_keys(mask))
    )


def _of_keys(mask: Tensor) -> bool:
    """Whether a mask is the same for all queries."""
    return mask.dim() < 2 or mask.shape[-2] == 1


def _slope_features(slopes: Tensor, like: Tensor) -> Tensor:
    """[H, SPARE]: 16·m·√d as the sum of three numbers of the dtype, twice; then a factor for the mask, and 0."""
    rest = slopes.detach().double() * (16 * math.sqrt(like.shape[-1]))
    pieces = []
    for _ in range(3):
        pieces.append(rest.to(like.dtype))
        rest = rest - pieces[-1].double()
    masked, zero = torch.full_like(pieces[0], FORBIDDEN), torch.zeros_like(pieces[0])
    return torch.stack([*pieces, *pieces, masked, zero], dim=-1).to(like.device)


def _key_features(keys: int, centre: int, like: Tensor) -> Tensor:
    """[keys, 6]: what the first six of _slope_features are multiplied with, to add up to m·√d·(j - centre)."""
    places = torch.arange(keys, device=like.device) - centre
    coarse = (places + 128) // 256
    both = torch.stack([16 * coarse, (places - 256 * coarse) / 16], dim=-1)
    return both.repeat_interleave(3, dim=-1).to(like.dtype)


def _block_rows(slopes: Tensor, dtype: torch.dtype) -> int:
    """Queries a block such that 2^-20·m·rows/2 is at most the dtype's rounding, eps/2, for the steepest slope m."""
    steepest = max(float(slopes.detach().abs().max()), 2.0**-10)
    return max(128, int(torch.finfo(dtype).eps * 2**20 / steepest) // 128 * 128)


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Attention where the last query meets the last key."""
    lq, lk = q.shape[-2], k.shape[-2]
    if lq == lk:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    if q.is_cuda:
        from torch.nn.attention.bias import causal_lower_right

        return scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(lq, lk), scale=scale)
    return scaled_dot_product_attention(q, k, v, attn_mask=earlier(lq, lk, q.device), scale=scale)


def earlier(lq: int, lk: int, device: torch.device) -> Tensor:
    """[Lq, Lk]: True for keys that are not after their query, where the last query meets the last key."""
    return torch.ones(lq, lk, dtype=torch.bool, device=device).tril(lk - lq)


def alibi_flex_attention(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, causal: bool = True, *, compiled: bool = True
) -> Tensor:
    """`alibi_attention` by PyTorch's FlexAttention: q [B, H, Lq, D], k, v [B, Hkv, Lk, D], slopes [H] -> as q.

    Compiled, the bias is worked out inside the kernel; the first call takes seconds, and on a CPU there is no gradient.
    Uncompiled, all scores are made in plain sight, to test against.
    """
    lq, lk = q.shape[-2], k.shape[-2]
    steep = slopes.to(q.device, wide_dtype(q.dtype))

    def add_bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - steep[h] * (i + (lk - lq) - j).abs()

    seen = _seen(lq, lk, q.device) if causal else None
    attend = _flex_attention(compiled)
    return attend(q, k, v, score_mod=add_bias, block_mask=seen, enable_gqa=q.shape[1] != k.shape[1])


@lru_cache(maxsize=2)
def _flex_attention(compiled: bool) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    # a kernel for each length: that for all lengths is slower, and torch 2.13 writes C++ for it that does not compile
    return cast(Callable[..., Tensor], torch.compile(flex_attention, dynamic=False) if compiled else flex_attention)


@lru_cache(maxsize=8)
def _seen(lq: int, lk: int, device: torch.device) -> BlockMask:
    """Which blocks of keys the blocks of queries see; making it costs more than attention over short sequences."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda b, h, i, j: j <= i + (lk - lq), None, None, lq, lk, device=str(device))


class _Read(NamedTuple):
    """What was read from positions on a device that makes one wait for it, and of which tensors."""

    q_positions: weakref.ref[Tensor]
    k_positions: weakref.ref[Tensor]
    versions: tuple[int, int]
    found: tuple[float, float]

    def fits(self, q_positions: Tensor, k_positions: Tensor, versions: tuple[int, int]) -> bool:
        """Whether it was read from these, as they are now."""
        return self.q_positions() is q_positions and self.k_positions() is k_positions and self.versions == versions


_read: _Read | None = None


def even_offset(q_positions: Tensor, k_positions: Tensor, dtype: torch.dtype) -> float | None:
    """q_positions[0] - k_positions[0] where both go up by one at each step, in every batch row alike; else None.

    Positions [L] or [B, L]. Steps may be off by what no score in `dtype` could show. None also where the numbers cannot
    be asked for: while a graph is traced or captured, under vmap, or where they have a gradient. A GPU makes one wait
    for an answer, so the last one is kept: the layers of one forward pass ask once.
    """
    if traced() or q_positions.requires_grad or k_positions.requires_grad:
        return None
    if not q_positions.numel() or not k_positions.numel():
        return None
    try:
        error, offset = _measured(q_positions, k_positions)
    except (RuntimeError, NotImplementedError):
        return None
    tolerance = torch.finfo(dtype).eps / STEEPEST
    if not error <= tolerance:  # so that NaN is not even
        return None
    whole = round(offset)
    return whole if abs(offset - whole) <= tolerance else offset  # a key as late as its query must not seem later


def _measured(q_positions: Tensor, k_positions: Tensor) -> tuple[float, float]:
    """(how far the positions are from even, the offset), in tokens."""
    global _read
    if q_positions.device.type == "cpu":
        return _measure(q_positions, k_positions)
    if q_positions.is_inference() or k_positions.is_inference():  # these do not tell whether they were written to
        return _measure(q_positions, k_positions)
    versions = q_positions._version, k_positions._version
    last = _read
    if last is not None and last.fits(q_positions, k_positions, versions):
        return last.found
    if q_positions.is_cuda and torch.cuda.is_current_stream_capturing():
        return math.inf, 0.0
    found = _measure(q_positions, k_positions)
    _read = _Read(weakref.ref(q_positions), weakref.ref(k_positions), versions, found)
    return found


def _measure(q_positions: Tensor, k_positions: Tensor) -> tuple[float, float]:
    firsts, errors = [], []
    for positions in (q_positions,) if k_positions is q_positions else (q_positions, k_positions):
        exact = positions.to(_wide(positions))
        steps = torch.arange(positions.shape[-1], dtype=exact.dtype, device=positions.device)
        firsts.append(exact[..., :1])
        errors.append((exact - firsts[-1] - steps).abs().max())
    if k_positions is q_positions:
        return errors[0].item(), 0.0
    offsets = (firsts[0] - firsts[1]).flatten()
    errors.append((offsets - offsets[0]).abs().max())
    error, offset = torch.stack([torch.stack(errors).max(), offsets[0]]).tolist()
    return error, offset


def distances(lq: int, lk: int, offset: float, like: Tensor) -> Tensor:
    """[Lq + Lk - 1]: query position less key position, in the order of `attention_by_distance`'s bias.

    float64, on the device of `like`, whose first query lies `offset` after its first key.
    """
    return offset + lq - 1 - torch.arange(max(0, lq + lk - 1), dtype=_wide(like), device=like.device)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64
