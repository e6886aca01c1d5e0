"""The rotation on CUDA, by the kernel and eagerly, against float64 on the CPU."""

from __future__ import annotations

import os
import warnings
from unittest import mock

import pytest
import torch
from device import DEVICE, cuda_only, marks, normal, peak
from rotation import CASES, Case, expected, worst

from posenc_core import apply_rotary, rotary, rotary_triton
from posenc_core.rotary import apply_rotary_qk, cos_sin
from posenc_core.schemes.rope import RopeSpec

pytestmark = marks
kernel_runs = pytest.mark.skipif(
    (not rotary_triton.is_available() and torch.cuda.is_available())
    or (DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1"),
    reason="triton is not there: the kernel is not run",
)
layouts = pytest.mark.parametrize("layout", ["half", "interleaved"])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
ways = pytest.mark.parametrize("fused", [True, False], ids=["fused", "eager"])
FREQUENCIES = 10_000.0 ** -(torch.arange(0, 32, dtype=torch.float64) / 32)


@pytest.fixture(autouse=True)
def _no_falling_back():
    """A fused rotation that warns has taken the eager way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def near(got, x, cos, sin, layout, sign=1):
    """Whether got is x rotated by these tables, as nearly as its dtype allows, and its other features are x's."""
    case = Case(str(got.dtype).removeprefix("torch."), layout, pairs=cos.shape[-1], sign=sign)
    right, bound = expected(x.cpu(), cos.cpu(), sin.cpu(), case, interpreted=False)
    rotated = got.cpu()[..., : 2 * case.pairs].double()
    # eager rounds each product; the bound of `expected` is that of the kernel, which rounds sums alone
    return bool(((rotated - right).abs() <= 2 * bound).all()) and torch.equal(
        got.cpu()[..., 2 * case.pairs :], x.cpu()[..., 2 * case.pairs :].to(got.dtype)
    )


def tables(positions, dtype, pairs=32):
    return cos_sin(
        positions.to(DEVICE), FREQUENCIES[:pairs], dtype=torch.float64 if dtype == torch.float64 else torch.float32
    )


@kernel_runs
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernel_is_as_near_to_float64_as_its_dtype_allows(case):
    assert worst(case, DEVICE) <= 1


@kernel_runs
@cuda_only
@layouts
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "length", "dim"),
    [(1, 32, 32, 8192, 128), (2, 7, 1, 100_003, 64), (300, 32, 8, 1, 128)],
)
def test_the_kernel_at_the_sizes_of_models(layout, batch, heads, kv_heads, length, dim):
    case = Case("bfloat16", layout, batch, heads, kv_heads, length, dim, dim // 2, storage="length first")
    assert worst(case, DEVICE) <= 1


@kernel_runs
@cuda_only
@layouts
def test_more_than_2_to_the_31_numbers(layout):
    length = 2**24 + 5
    if torch.cuda.get_device_properties(0).total_memory < 30 * 2**30:
        pytest.skip("needs 20 GB on the GPU")
    q = torch.randn(1, 2, length, 64, device=DEVICE, dtype=torch.bfloat16)
    angle = torch.rand(length, 32, device=DEVICE) * 6.3
    cos, sin = angle.cos(), angle.sin_()
    out = torch.full_like(q, torch.nan)
    rotary_triton.rotate(q, None, cos, sin, layout, 1.0, out, None)
    for rows in (slice(0, 70), slice(length // 2, length // 2 + 70), slice(-70, None)):
        assert near(out[:, :, rows], q[:, :, rows], cos[rows], sin[rows], layout)
    assert not bool(out.isnan().any())


@layouts
@dtypes
@ways
@pytest.mark.parametrize("offset", [0, 131_071, 10_000_000])
def test_positions_far_out(layout, dtype, fused, offset):
    q, k, p = normal(2, 4, 37, 64, dtype=dtype), normal(2, 2, 37, 64, dtype=dtype, seed=1), torch.arange(37) + offset
    cos, sin = tables(p, dtype)
    exact = cos_sin(p, FREQUENCIES, dtype=torch.float64)
    for x, out in zip((q, k), apply_rotary_qk(q, k, cos, sin, layout, fused=fused), strict=True):
        assert out.device.type == DEVICE
        assert out.dtype == dtype
        assert near(out, x, cos, sin, layout)
        assert near(apply_rotary(x, cos, sin, layout, fused=fused), x, cos, sin, layout)
    torch.testing.assert_close(cos.cpu().double(), exact[0], rtol=0, atol=2e-7)
    torch.testing.assert_close(sin.cpu().double(), exact[1], rtol=0, atol=2e-7)


@layouts
@ways
@pytest.mark.parametrize(
    "shape", ["rows of a batch", "one for each head", "one row", "partly", "no heads", "in a model"]
)
def test_shapes(layout, fused, shape):
    """Those that the kernel takes, and those for which the eager way steps in."""
    q, k, p, pairs = normal(3, 4, 9, 64), normal(3, 2, 9, 64, seed=1), torch.arange(9), 32
    if shape == "rows of a batch":
        p = torch.stack([p, p + 1000, p * 3])[:, None]
    if shape == "one for each head":
        p, k = torch.stack([p + 10 * h for h in range(4)]), k.repeat(1, 2, 1, 1)
    if shape == "one row":
        p = p[5:6]
    if shape == "partly":
        pairs = 8
    if shape == "no heads":
        q, k = q[:, 0], k[:, 0]
    if shape == "in a model":  # q and k as slices of one projection, heads inside
        both = normal(3, 9, 6, 64).transpose(1, 2)
        q, k = both[:, :4], both[:, 4:]
    cos, sin = tables(p, torch.float32, pairs)
    for x, out in zip((q, k), apply_rotary_qk(q, k, cos, sin, layout, fused=fused), strict=True):
        assert near(out, x, cos, sin, layout)


@layouts
@dtypes
@ways
def test_in_place(layout, dtype, fused):
    q, k = normal(2, 9, 4, 80, dtype=dtype).transpose(1, 2), normal(2, 9, 1, 80, dtype=dtype, seed=1).transpose(1, 2)
    before = [q.clone(), k.clone()]
    cos, sin = tables(torch.arange(9), dtype)
    out = apply_rotary_qk(q, k, cos, sin, layout, fused=fused, inplace=True)
    assert out[0] is q
    assert out[1] is k
    assert near(q, before[0], cos, sin, layout)
    assert near(k, before[1], cos, sin, layout)


@layouts
@dtypes
@ways
def test_gradients_are_the_rotation_backwards(layout, dtype, fused):
    q, k = normal(2, 4, 9, 80, dtype=dtype), normal(2, 1, 9, 80, dtype=dtype, seed=1)
    given = normal(2, 9, 4, 80, dtype=dtype, seed=2).transpose(1, 2), normal(2, 1, 9, 80, dtype=dtype, seed=3)
    cos, sin = tables(torch.arange(9) + 77, dtype)
    leaves = [q.requires_grad_(), k.requires_grad_()]
    made = torch.autograd.grad(apply_rotary_qk(*leaves, cos, sin, layout, fused=fused), leaves, given)
    for gradient, back in zip(given, made, strict=True):
        assert near(back, gradient, cos, sin, layout, sign=-1)


@layouts
@ways
def test_a_gradient_of_a_gradient(layout, fused):
    x = normal(1, 2, 3, 10, dtype=torch.float64).requires_grad_()
    cos, sin = tables(torch.arange(3), torch.float64, pairs=4)
    function = lambda t: apply_rotary(t, cos, sin, layout, fused=fused)  # noqa: E731
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


@kernel_runs
@cuda_only
def test_q_and_k_share_one_launch():
    q, k = normal(1, 4, 9, 64, dtype=torch.bfloat16), normal(1, 2, 9, 64, dtype=torch.bfloat16)
    cos, sin = tables(torch.arange(9), torch.bfloat16)
    with mock.patch.object(rotary_triton, "rotate", wraps=rotary_triton.rotate) as launched:
        apply_rotary_qk(q, k, cos, sin, fused=True)
    assert launched.call_count == 1
    assert rotary.fused_is_warm(DEVICE)


@kernel_runs
@cuda_only
@layouts
def test_it_allocates_nothing_but_its_results(layout):
    q, k = (normal(1, 8, 4096, 128, dtype=torch.bfloat16, seed=s) for s in (0, 1))
    cos, sin = cos_sin(torch.arange(4096, device=DEVICE), 10_000.0 ** -(torch.arange(64.0, dtype=torch.float64) / 64))
    apply_rotary_qk(q, k, cos, sin, layout, fused=True)
    kept, allocated = peak(lambda: apply_rotary_qk(q, k, cos, sin, layout, fused=True))
    assert allocated <= sum(t.nbytes for t in kept) + 2**20
    _, allocated = peak(lambda: apply_rotary_qk(q, k, cos, sin, layout, fused=True, inplace=True))
    assert allocated <= 2**20


@kernel_runs
@cuda_only
@layouts
def test_it_does_not_wait_for_the_gpu_and_fits_a_graph(layout):
    q, k = normal(2, 4, 64, 64, dtype=torch.bfloat16), normal(2, 2, 64, 64, dtype=torch.bfloat16, seed=1)
    cos, sin = tables(torch.arange(64), torch.bfloat16)
    right = apply_rotary_qk(q, k, cos, sin, layout, fused=True)
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        apply_rotary_qk(q, k, cos, sin, layout, fused=True)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = apply_rotary_qk(q, k, cos, sin, layout, fused=True)
    q.copy_(2 * q)  # a power of two changes no rounding
    graph.replay()
    assert torch.equal(out[0], 2 * right[0])
    assert torch.equal(out[1], right[1])


@dtypes
@pytest.mark.parametrize(
    "spec",
    [
        RopeSpec(d_head=16), RopeSpec(d_head=16, layout="interleaved"), RopeSpec(d_head=20, rotary_fraction=0.4),
        RopeSpec(d_head=16, scaling="yarn", factor=8.0, original_max_position_embeddings=256),
        RopeSpec(d_head=16, scaling="llama3", factor=8.0),
    ],
    ids=lambda s: "-".join(s.to_query().values()),
)  # fmt: skip
def test_a_scheme_gives_what_it_gives_on_the_cpu(spec, dtype):
    p = torch.tensor([0, 1, 4096, 131_071, 10_000_000])
    q, k = normal(2, 2, 5, spec.d_head, dtype=dtype), normal(2, 1, 5, spec.d_head, dtype=dtype, seed=1)
    made = spec.build().rotate(q, k, p.to(DEVICE), p.to(DEVICE))
    right = spec.build().rotate(q.cpu().double(), k.cpu().double(), p, p)
    for got, exact in zip(made, right, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.cpu().double(), exact, rtol=torch.finfo(dtype).eps,
                                   atol=1e-12 if dtype == torch.float64 else 4e-6)  # fmt: skip
