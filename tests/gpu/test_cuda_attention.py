"""Attention on CUDA, of every scheme and of ALiBi by each of its ways, against plain scores in float64."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from device import DEVICE, cuda_only, marks, normal, peak
from torch.nn.attention import SDPBackend, sdpa_kernel

from posenc_core import SCHEMES, alibi_attention, alibi_slopes, attention, build, linear_bias
from posenc_core.linear_bias import alibi_flex_attention, attention_by_channels
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.rope import RopeSpec

pytestmark = marks
SIZES = {"d_model": 64, "d_head": 16, "n_heads": 4, "max_position_embeddings": 2048}
SPECS = [
    *(cls() for cls in SCHEMES.values()),
    AlibiSpec(n_heads=4, variant="symmetric"),
    AlibiSpec(n_heads=4, slopes=(1.0, 0.3, 0.0, 2.0)),
    RopeSpec(d_head=16, layout="interleaved", rotary_fraction=0.5),
    RopeSpec(d_head=16, scaling="yarn", factor=8.0, original_max_position_embeddings=256),
    RopeSpec(d_head=16, scaling="dynamic", factor=4.0, original_max_position_embeddings=4),
]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda s: "-".join(s.to_query().values()) or s.scheme)
causality = pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def encodings(spec):
    """The scheme's module, or those of a hybrid's layers, each on the CPU and on the device."""
    fields = {p.name for p in spec.params()}
    sizes = {k: v for k, v in SIZES.items() if k in fields or spec.hook == "layers"}
    if getattr(spec, "slopes", ()):
        sizes.pop("n_heads")
    built = build(spec, **sizes).requires_grad_(False)
    for one in dict.fromkeys(built.layers or [built]):
        yield one, build(one.spec).to(DEVICE)


def qkv(*, batch=2, heads=4, kv_heads=4, lq=70, lk=70, d=16, dtype=torch.float32):
    shapes = (batch, heads, lq, d), (batch, kv_heads, lk, d), (batch, kv_heads, lk, d)
    return [normal(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]


def plain_alibi(q, k, v, slopes, causal, rows=slice(None)):
    """Some rows of the output in float64, from scores in plain sight."""
    lq, lk = q.shape[-2], k.shape[-2]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    queries = torch.arange(lk - lq, lk, device=q.device)[rows, None]
    distance = queries - torch.arange(lk, device=q.device)
    scores = q[:, :, rows] @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores - slopes.to(q.device).double()[:, None, None] * distance.abs()
    return (scores.masked_fill(distance < 0, -math.inf) if causal else scores).softmax(-1) @ v


@every_spec
@causality
@dtypes
@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "weights"])
def test_every_scheme(spec, causal, dtype, need_weights):
    p = torch.arange(1000, 1070)
    for one, there in encodings(spec):
        q, k, v = qkv(dtype=dtype)
        with torch.no_grad():
            right, _ = attention(*(x.cpu().double() for x in (q, k, v)), one, p, p, causal=causal, need_weights=True)
            out, _ = attention(q, k, v, there, p.to(DEVICE), p.to(DEVICE), causal=causal, need_weights=need_weights)
        assert out.dtype == dtype
        assert out.device.type == DEVICE
        assert float((out.cpu().double() - right).abs().max()) < 2 * ROUNDING[dtype]


@pytest.mark.parametrize("spec", [RopeSpec(d_head=16), AlibiSpec(n_heads=4)], ids=lambda s: s.scheme)
@pytest.mark.parametrize(
    "case", ["grouped heads", "one query", "few queries", "rows of a batch", "a mask", "a mask of rows", "uneven"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_ways_to_ask(spec, case, dtype):
    q, k, v = qkv(kv_heads=1 if case == "grouped heads" else 4, dtype=dtype)
    qp = kp = torch.arange(70)
    mask = None
    if case in ("one query", "few queries"):
        n = 1 if case == "one query" else 7
        q, qp = q[..., -n:, :], qp[-n:]
    if case == "rows of a batch":
        qp = kp = torch.stack([kp, kp + 500])
    if case == "a mask":
        mask = (torch.arange(70) < torch.tensor([[70], [41]]))[:, None, None]
    if case == "a mask of rows":
        mask = torch.rand(2, 4, 70, 70, generator=torch.Generator().manual_seed(5)) < 0.7
        mask |= torch.eye(70, dtype=torch.bool)
    if case == "uneven":
        qp = kp = torch.arange(70) * 3 // 2
    right, _ = attention(*(x.cpu().double() for x in (q, k, v)), spec.build(), qp, kp, mask=mask, need_weights=True)
    out, _ = attention(q, k, v, spec.build().to(DEVICE), qp.to(DEVICE), kp.to(DEVICE),
                       mask=None if mask is None else mask.to(DEVICE))  # fmt: skip
    assert float((out.cpu().double() - right).abs().max()) < 2 * ROUNDING[dtype]


@causality
@dtypes
@pytest.mark.parametrize(
    ("lq", "lk", "kv_heads"), [(1, 1, 4), (1, 300, 1), (7, 300, 4), (300, 300, 2), (513, 1030, 4), (1030, 1030, 4)]
)
def test_alibi(causal, dtype, lq, lk, kv_heads):
    q, k, v = qkv(lq=lq, lk=lk, kv_heads=kv_heads, d=64, dtype=dtype)
    slopes = alibi_slopes(4)
    out = alibi_attention(q, k, v, slopes, causal)
    assert out.dtype == dtype
    right = plain_alibi(q, k, v, slopes, causal)
    assert float((out.double() - right).abs().max()) < ROUNDING[dtype]


@dtypes
@pytest.mark.parametrize("slopes", ["the recipe's", "steep"])
def test_alibi_of_16384_positions_without_a_bias(dtype, slopes):
    """Large distances do not show in half precision, and no array of heads × positions × positions is made."""
    heads, length = (8, 16_384) if DEVICE == "cuda" else (2, 1024)
    slopes = alibi_slopes(heads) if slopes == "the recipe's" else torch.linspace(0.001, 16, heads, dtype=torch.float64)
    q, k, v = qkv(batch=1, heads=heads, kv_heads=heads, lq=length, lk=length, d=64, dtype=dtype)
    if DEVICE == "cuda":
        alibi_attention(q[..., -256:, :], k, v, slopes)  # what a first call loads is not counted
        out, allocated = peak(lambda: alibi_attention(q, k, v, slopes))
        assert allocated < heads * length**2 * dtype.itemsize / 4
        if dtype in (torch.bfloat16, torch.float16):
            assert allocated < 16 * q.nbytes
    else:
        out = alibi_attention(q, k, v, slopes)
    rows = torch.tensor([0, 1, 63, 64, 255, 256, length // 2 - 1, length // 2, length - 130, length - 1], device=DEVICE)
    right = plain_alibi(q, k, v, slopes, True, rows)
    assert float((out[:, :, rows].double() - right).abs().max()) < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_alibi_is_no_less_exact_than_with_a_bias_in_memory(dtype):
    length = 2048 if DEVICE == "cuda" else 300
    q, k, v = qkv(batch=1, heads=8, kv_heads=8, lq=length, lk=length, d=64, dtype=dtype)
    slopes = alibi_slopes(8)
    right = plain_alibi(q, k, v, slopes, True)
    positions = torch.arange(length, device=DEVICE)
    distance = positions[:, None] - positions
    bias = (-slopes.to(DEVICE)[:, None, None] * distance).masked_fill(distance < 0, -math.inf).to(dtype)
    eager = ((q @ k.transpose(-1, -2)) / 8 + bias).softmax(-1) @ v
    errors = [float((x.double() - right).square().mean().sqrt()) for x in (alibi_attention(q, k, v, slopes), eager)]
    # in float32 PyTorch's fused kernel for CUDA may multiply in several passes of less precision
    assert errors[0] <= (2 if dtype == torch.float32 else 1.1) * errors[1]


@causality
@dtypes
@pytest.mark.parametrize("length", [70, 600])
def test_gradients_of_alibi(causal, dtype, length):
    leaves = [x.requires_grad_() for x in qkv(lq=length, lk=length, kv_heads=2, d=32, dtype=dtype)]
    given = normal(2, 4, length, 32, dtype=dtype, seed=9)
    slopes = alibi_slopes(4)
    made = torch.autograd.grad(alibi_attention(*leaves, slopes, causal), leaves, given)
    wide = [x.detach().double().requires_grad_() for x in leaves]
    right = torch.autograd.grad(plain_alibi(*wide, slopes, causal), wide, given.double())
    for mine, exact in zip(made, right, strict=True):
        assert float((mine.double() - exact).abs().max()) < 4 * ROUNDING[dtype] * float(exact.abs().max())


@pytest.mark.parametrize("spec", [RopeSpec(d_head=32), RopeSpec(d_head=32, layout="interleaved")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_through_the_rotation(spec, dtype):
    p = torch.arange(70)
    leaves = [x.requires_grad_() for x in qkv(kv_heads=2, d=32, dtype=dtype)]
    given = normal(2, 4, 70, 32, dtype=dtype, seed=9)
    out, _ = attention(*leaves, spec.build(), p.to(DEVICE), p.to(DEVICE))
    made = torch.autograd.grad(out, leaves, given)
    wide = [x.detach().cpu().double().requires_grad_() for x in leaves]
    right, _ = attention(*wide, spec.build(), p, p, need_weights=True)
    for mine, exact in zip(made, torch.autograd.grad(right, wide, given.cpu().double()), strict=True):
        assert float((mine.cpu().double() - exact).abs().max()) < 4 * ROUNDING[dtype] * float(exact.abs().max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("lq", "lk"), [(100, 100), (70, 900), (2500, 2500)])
def test_the_bias_as_features_is_no_less_exact(dtype, lq, lk):
    q, k, v = qkv(lq=lq, lk=lk, d=64, dtype=dtype)
    slopes = torch.tensor([64.0, 1.0, 0.3, 0.0], dtype=torch.float64)
    right = plain_alibi(q, k, v, slopes, True)
    distance = torch.arange(lk - lq, lk, device=DEVICE)[:, None] - torch.arange(lk, device=DEVICE)
    bias = (-slopes.to(DEVICE)[:, None, None] * distance).masked_fill(distance < 0, -math.inf).to(dtype)
    eager = ((q @ k.transpose(-1, -2)) / 8 + bias).softmax(-1) @ v
    found = [(x.double() - right).square().mean().sqrt() for x in (attention_by_channels(q, k, v, slopes), eager)]
    assert float(found[0]) <= 1.1 * float(found[1])


@cuda_only
@causality
@pytest.mark.parametrize(("lq", "kv_heads"), [(512, 4), (130, 2)])
def test_flex_attention_gives_the_same(causal, lq, kv_heads):
    q, k, v = qkv(lq=lq, lk=512, kv_heads=kv_heads, d=64, dtype=torch.bfloat16)
    slopes = alibi_slopes(4)
    out = alibi_flex_attention(q, k, v, slopes, causal)
    assert float((out.double() - plain_alibi(q, k, v, slopes, causal)).abs().max()) < ROUNDING[torch.bfloat16]


@cuda_only
def test_the_layers_of_a_model_ask_the_gpu_once_for_the_positions():
    q, k, v = qkv(dtype=torch.bfloat16)
    encoding, p = AlibiSpec(n_heads=4).build().to(DEVICE), torch.arange(70, device=DEVICE)
    with mock.patch.object(linear_bias, "_measure", wraps=linear_bias._measure) as asked:
        for _ in range(3):
            attention(q, k, v, encoding, p, p)
        assert asked.call_count == 1
        p.mul_(2)
        attention(q, k, v, encoding, p, p)
        assert asked.call_count == 2


@cuda_only
def test_a_layer_makes_no_bias_either():
    """At 8,192 tokens and 8 heads one in bfloat16 would take 1 GiB."""
    q, k, v = qkv(batch=1, heads=8, kv_heads=8, lq=8192, lk=8192, d=64, dtype=torch.bfloat16)
    encoding, p = AlibiSpec(n_heads=8).build().to(DEVICE), torch.arange(8192, device=DEVICE)
    attention(q, k, v, encoding, p, p)
    _, allocated = peak(lambda: attention(q, k, v, encoding, p, p))
    assert allocated < 12 * q.nbytes


@cuda_only
def test_half_precision_takes_a_kernel_that_sees_no_bias():
    """What makes ALiBi about as cheap as no bias there: every call of the fused kernel is without a mask."""
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no flash kernel")
    q, k, v = qkv(batch=1, heads=8, kv_heads=8, lq=4096, lk=4096, d=64, dtype=torch.bfloat16)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any bias
        out = alibi_attention(q, k, v, alibi_slopes(8))
    assert bool(out.isfinite().all())
