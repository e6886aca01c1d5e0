"""Σ_i cos(m·w_i), half the score of a vector of ones with itself m positions away, for any number of distances.

RoFormer's decay (Su et al. 2021, arXiv:2104.09864) and the bound on the base of Men et al. 2024 (arXiv:2405.14591,
"Base of RoPE Bounds Context Length") are statements about this sum. For independent
features of variance σ², σ² times it is half of the expected score of a vector with itself. Memory is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_CEILING, Context
from typing import NamedTuple

import torch
from torch import Tensor

from posenc_core.frequencies import geometric

FIRST, CHUNK = 2**12, 2**18  # distances made at a time: few at first, since most searches end early
DENSITY = 100  # bases a decade on which the smallest one is searched
EXPONENTS = range(30, 1201)  # of 10^(k/DENSITY): from 2 to 10^12
DIGITS = range(3, 14)  # in which a base is written


def cosine_sums(inv_freq: Tensor, start: int, count: int) -> Tensor:
    """Σ_i cos(m·w_i) for m = start … start + count - 1: float64 [count] from inv_freq [pairs].

    cos((a + j)·w) = cos aw·cos jw - sin aw·sin jw, so all of them are one matrix product of two small tables, exact up
    to rounding.
    """
    width = 1 << (max(1, count) - 1).bit_length() // 2  # a square of rows and columns needs the fewest cosines
    rows = torch.arange(-(-count // width), dtype=torch.float64) * width + start
    a, j = rows[:, None] * inv_freq, torch.arange(width, dtype=torch.float64)[:, None] * inv_freq
    return (a.cos() @ j.cos().T - a.sin() @ j.sin().T).flatten()[:count]


def _chunks(length: int) -> Iterator[tuple[int, int]]:
    start, size = 0, FIRST
    while start < length:
        count = min(size, length - start)
        yield start, count
        start, size = start + count, min(2 * size, CHUNK)


def first_negative(inv_freq: Tensor, length: int, plus: float = 0.0) -> int | None:
    """The smallest distance m < length at which the sum and `plus` are below zero together, None if there is none.

    plus: what features that do not rotate add at every distance, one half for each.
    """
    if plus >= len(inv_freq):
        return None  # no cosine is below -1
    for start, count in _chunks(length):
        below = (cosine_sums(inv_freq, start, count) < -plus).nonzero()
        if len(below):
            return start + int(below[0])
    return None


def log_edges(length: int, blocks: int) -> Tensor:
    """Whole numbers from 1 to `length`, evenly spread on a log axis, each once: int64 [at most blocks + 1]."""
    return torch.logspace(0, math.log10(length), blocks + 1, dtype=torch.float64).round().long().unique()


def block_means(inv_freq: Tensor, edges: Tensor) -> Tensor:
    """Mean over the pairs and over the distances edges[k] … edges[k+1] - 1, float64 [len(edges) - 1].

    In closed form, so a block of millions costs no more than a block of two:
    Σ_{m=a}^{b-1} cos mw = sin((b - a)w/2) / sin(w/2) · cos((a + b - 1)w/2), and b - a where w = 0.
    """
    half, low, high = inv_freq / 2, edges[:-1, None].double(), edges[1:, None].double()
    still = half.sin() == 0
    ratio = ((high - low) * half).sin() / half.sin().masked_fill(still, 1.0)
    ratio = torch.where(still, high - low, ratio)
    return (ratio * ((low + high - 1) * half).cos() / (high - low)).mean(-1)


class Envelope(NamedTuple):
    """The lowest and highest mean over the pairs among the distances of each block, float64 [blocks]."""

    low: Tensor
    high: Tensor


def envelope(inv_freq: Tensor, edges: Tensor) -> Envelope:
    """Over every distance edges[k] … edges[k+1] - 1: none is skipped, and CHUNK of them are held at a time."""
    blocks, first, last = len(edges) - 1, int(edges[0]), int(edges[-1])
    low, high = torch.full((blocks,), torch.inf, dtype=torch.float64), torch.full((blocks,), -torch.inf).double()
    for start, count in _chunks(last - first):
        sums = cosine_sums(inv_freq, first + start, count)
        block = torch.bucketize(torch.arange(first + start, first + start + count), edges, right=True) - 1
        low.scatter_reduce_(0, block, sums, "amin")
        high.scatter_reduce_(0, block, sums, "amax")
    return Envelope(low / len(inv_freq), high / len(inv_freq))


# ------------------------------------------------------------------ the smallest base tried that fits a length


def bases() -> list[float]:
    """The bases that are tried: 10^(k/DENSITY)."""
    return [10 ** (k / DENSITY) for k in EXPONENTS]


def reaches(
    rotary_dim: int, tried: Sequence[float], limit: int, should_stop: Callable[[], bool] = lambda: False
) -> list[int]:
    """For each base the first distance with a negative sum, `limit` if none is below it. Ends early if told to."""
    found = list[int]()
    for base in tried:
        if should_stop():
            break
        first = first_negative(geometric(base, rotary_dim), limit)
        found.append(limit if first is None else first)
    return found


class BaseBound(NamedTuple):
    """Bases with Σ cos(m·w_i) ≥ 0 for all m < a length. None: no base that was tried.

    smallest: the smallest that was tried and fits. always: from this one on every one that was tried fits. Both depend
    on what was tried, and neither is a bound on bases that were not: the reach of a base jumps, since a dip of the sum
    may just touch zero or just miss it, so bases below `smallest` fit and bases above `always` do not.
    """

    smallest: float | None
    always: float | None


def base_bound(tried: Sequence[float], reached: Sequence[int], length: int) -> BaseBound:
    """From bases in rising order and what `reaches` says of them; `length` is at most its limit."""
    fits = [r >= length for r in reached]
    if not any(fits):
        return BaseBound(None, None)
    smallest = tried[fits.index(True)]
    if not fits[-1]:
        return BaseBound(smallest, None)
    after = len(fits) - next((i for i, fit in enumerate(reversed(fits)) if not fit), len(fits))
    return BaseBound(smallest, tried[after])


def written(base: float, rotary_dim: int, length: int) -> float:
    """A base that fits a length, rounded up to as few digits as it takes to fit as written; itself if none does."""
    for digits in DIGITS:
        rounded = float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(base))
        if first_negative(geometric(rounded, rotary_dim), length) is None:
            return rounded
    return base
