"""Σcos over many distances against the plain sum, and the bound on the base against the published figures."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc_core.cosine_sums import (
    CHUNK,
    FIRST,
    BaseBound,
    base_bound,
    bases,
    block_means,
    cosine_sums,
    envelope,
    first_negative,
    log_edges,
    reaches,
    written,
)
from posenc_core.frequencies import geometric

WITH_ZERO = torch.cat([geometric(10_000.0, 16), torch.zeros(2, dtype=torch.float64)])


def plainly(inv_freq: torch.Tensor, start: int, count: int) -> torch.Tensor:
    return (torch.arange(start, start + count, dtype=torch.float64)[:, None] * inv_freq).cos().sum(-1)


@pytest.mark.parametrize(
    "inv_freq", [geometric(10_000.0, 128), geometric(2.0, 6), WITH_ZERO], ids=["128", "6", "zeros"]
)
@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 2), (5, 3), (7, 1023), (100, 4097), (10_000_000, 333)])
def test_the_product_is_the_sum(inv_freq: torch.Tensor, start: int, count: int) -> None:
    made = cosine_sums(inv_freq, start, count)
    assert made.shape == (count,)
    torch.testing.assert_close(made, plainly(inv_freq, start, count), rtol=0, atol=1e-7)


@given(st.floats(1.5, 1e9), st.integers(1, 40), st.integers(0, 10**6), st.integers(1, 300))
def test_the_product_is_the_sum_for_any_base(base: float, pairs: int, start: int, count: int) -> None:
    inv_freq = geometric(base, 2 * pairs)
    torch.testing.assert_close(cosine_sums(inv_freq, start, count), plainly(inv_freq, start, count), rtol=0, atol=1e-7)


@pytest.mark.parametrize("base", [3.0, 50.0, 1000.0, 10_000.0])
@pytest.mark.parametrize("dim", [2, 8, 64, 128])
def test_the_first_negative_distance(base: float, dim: int) -> None:
    inv_freq, length = geometric(base, dim), 3 * FIRST
    below = (plainly(inv_freq, 0, length) < 0).nonzero().flatten()
    expected = int(below[0]) if len(below) else None
    assert first_negative(inv_freq, length) == expected
    if expected is not None:
        assert first_negative(inv_freq, expected) is None
        assert first_negative(inv_freq, expected + 1) == expected


@pytest.mark.parametrize(("dim", "plus"), [(16, 0.5), (16, 4.0), (16, 7.9), (16, 8.0), (128, 8.0), (2, 0.99)])
def test_features_that_do_not_rotate_add_to_every_distance(dim: int, plus: float) -> None:
    inv_freq, length = geometric(10_000.0, dim), 3 * FIRST
    below = (plainly(inv_freq, 0, length) + plus < 0).nonzero().flatten()
    assert first_negative(inv_freq, length, plus) == (int(below[0]) if len(below) else None)


def test_frequencies_of_zero_never_fall_below_zero() -> None:
    assert first_negative(torch.zeros(3, dtype=torch.float64), CHUNK + 5) is None


@pytest.mark.parametrize(("length", "blocks"), [(1, 5), (2, 5), (3, 100), (1000, 40), (2**24, 96)])
def test_edges_run_from_one_to_the_length(length: int, blocks: int) -> None:
    edges = log_edges(length, blocks)
    assert (int(edges[0]), int(edges[-1])) == (1, length)
    assert bool((edges.diff() > 0).all())
    assert len(edges) <= blocks + 1


@pytest.mark.parametrize("inv_freq", [geometric(10_000.0, 128), WITH_ZERO], ids=["128", "zeros"])
def test_block_means_and_envelopes_hold_every_distance(inv_freq: torch.Tensor) -> None:
    length = 5000
    edges, values = log_edges(length, 50), plainly(inv_freq, 0, length) / len(inv_freq)
    means, (low, high) = block_means(inv_freq, edges), envelope(inv_freq, edges)
    for i, (a, b) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        part = values[a:b]
        assert means[i].item() == pytest.approx(part.mean().item(), abs=1e-12)
        assert low[i].item() == pytest.approx(part.min().item(), abs=1e-12)
        assert high[i].item() == pytest.approx(part.max().item(), abs=1e-12)


def test_the_envelope_of_many_distances_is_made_in_pieces() -> None:
    inv_freq, edges = geometric(10_000.0, 32), torch.tensor([0, 10, CHUNK + 7, 2 * CHUNK])
    low, high = envelope(inv_freq, edges)
    values = plainly(inv_freq, 0, 2 * CHUNK) / 16
    for i, (a, b) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        assert low[i].item() == pytest.approx(values[a:b].min().item(), abs=1e-9)
        assert high[i].item() == pytest.approx(values[a:b].max().item(), abs=1e-9)


def test_a_block_of_ten_million_distances_has_its_mean() -> None:
    inv_freq, edges = geometric(10_000.0, 8), torch.tensor([1, 10_000_001])
    total = sum(cosine_sums(inv_freq, 1 + k * 10**6, 10**6).sum().item() for k in range(10))
    assert block_means(inv_freq, edges).item() == pytest.approx(total / 10**7 / 4, abs=1e-10)


# ---------------------------------------------------------------- the bound on the base


def test_bases_rise_by_a_hundred_a_decade() -> None:
    made = bases()
    assert made == sorted(made)
    assert made[0] < 2
    assert made[-1] == pytest.approx(1e12)
    assert made[100] / made[0] == pytest.approx(10)


def test_reaches_are_first_negative_distances_and_stop_when_told() -> None:
    tried = [10.0, 100.0, 1e4, 1e6]
    expected = [first_negative(geometric(b, 64), 5000) for b in tried]
    assert reaches(64, tried, 5000) == [5000 if e is None else e for e in expected]
    assert None in expected
    asked = iter([False, False, True])
    assert reaches(64, tried, 5000, lambda: next(asked)) == [e for e in expected[:2]]


def test_the_bound_tells_the_first_that_fits_from_the_first_of_all_that_do() -> None:
    tried, reached = [1.0, 2.0, 3.0, 4.0, 5.0], [10, 50, 20, 60, 100]
    assert base_bound(tried, reached, 10) == BaseBound(1.0, 1.0)
    assert base_bound(tried, reached, 11) == BaseBound(2.0, 2.0)
    assert base_bound(tried, reached, 21) == BaseBound(2.0, 4.0)
    assert base_bound(tried, reached, 51) == BaseBound(4.0, 4.0)
    assert base_bound(tried, reached, 100) == BaseBound(5.0, 5.0)
    assert base_bound(tried, reached, 101) == BaseBound(None, None)
    assert base_bound(tried, [10, 90, 20, 60, 30], 50) == BaseBound(2.0, None)


# Men et al. 2024, table of lower bounds: head dim 128, thousands of positions, the smallest base in two digits.
PUBLISHED = {1: 4.3e3, 2: 1.6e4, 4: 2.7e4, 8: 8.4e4, 16: 3.1e5, 32: 6.4e5, 64: 2.1e6, 128: 7.8e6}


@pytest.mark.parametrize(("thousands", "base"), PUBLISHED.items())
def test_a_base_within_two_percent_of_the_published_one_fits(thousands: int, base: float) -> None:
    near = [base * (0.98 + 0.0004 * i) for i in range(101)]
    assert any(first_negative(geometric(b, 128), 1000 * thousands) is None for b in near)


@pytest.fixture(scope="module")
def reached() -> list[int]:
    return reaches(128, [b for b in bases() if b < 1e8], 128_000)


@pytest.mark.parametrize(("thousands", "base"), PUBLISHED.items())
def test_the_smallest_base_is_about_the_published_one(reached: list[int], thousands: int, base: float) -> None:
    """A base fits only in narrow windows near the bound, so what is found depends on the bases that are tried."""
    smallest, always = base_bound(bases()[: len(reached)], reached, 1000 * thousands)
    assert smallest is not None
    assert always is not None
    assert 0.7 * base < smallest < 1.2 * base
    assert smallest <= always < 5 * base


@pytest.mark.parametrize("base", [1_942_040.0, 2_485_770.0])
def test_above_always_lie_bases_that_do_not_fit(base: float) -> None:
    """The grid says nothing of what lies between: `always` is about the bases that were tried."""
    tried = [b for b in bases() if 1e6 < b < 1e7]
    always = base_bound(tried, reaches(128, tried, 32_768), 32_768).always
    assert always is not None
    assert always < base
    assert first_negative(geometric(base, 128), 32_768) is not None


def test_below_smallest_lie_bases_that_fit() -> None:
    """Men et al. 2024, table 2, has 8.4e4 for 8,000 positions; the grid's smallest lies above it."""
    tried = [b for b in bases() if 1e4 < b < 1e6]
    smallest = base_bound(tried, reaches(128, tried, 8000), 8000).smallest
    assert smallest is not None
    assert smallest > 84_000
    assert first_negative(geometric(84_000.0, 128), 8000) is None


def test_the_published_fit_runs_along_the_curve(reached: list[int]) -> None:
    """y = 0.0424·x^1.628, figure 1 of Men et al. 2024."""
    for thousands in PUBLISHED:
        smallest, _ = base_bound(bases()[: len(reached)], reached, 1000 * thousands)
        assert smallest is not None
        assert abs(math.log(smallest / (0.0424 * (1000 * thousands) ** 1.628))) < math.log(2)


def test_the_reach_of_a_base_is_not_monotonic(reached: list[int]) -> None:
    """The honest part: above a base that fits lie bases that do not."""
    smallest, always = base_bound(bases()[: len(reached)], reached, 16_000)
    assert smallest is not None
    assert always is not None
    assert smallest < always


@pytest.mark.parametrize(("dim", "length"), [(128, 131_072), (128, 32_768), (64, 4096), (32, 1000)])
def test_a_base_that_is_written_fits_as_written(dim: int, length: int) -> None:
    tried = [b for b in bases() if 1e3 < b < 1e8]
    smallest = base_bound(tried, reaches(dim, tried, length), length).smallest
    assert smallest is not None
    found = written(smallest, dim, length)
    assert smallest <= found < 1.01 * smallest
    assert float(f"{found:.13g}") == found
    w = found ** -(torch.arange(0, dim, 2).double() / dim)
    chunks = torch.arange(length).double().split(8192)
    assert min(float((m[:, None] * w).cos().sum(-1).min()) for m in chunks) >= 0


def test_fewer_digits_are_not_enough_where_the_sum_dips() -> None:
    """At 131,072 positions 8,910,000 does not fit and 8,912,509 does."""
    assert first_negative(geometric(8_910_000.0, 128), 131_072) is not None
    found = written(10**6.95, 128, 131_072)
    assert first_negative(geometric(found, 128), 131_072) is None
    assert 10**6.95 <= found < 8_930_000
