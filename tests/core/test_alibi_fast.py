"""ALiBi without a bias in memory: every fast path against loops or float64, and what it allocates."""

import math
import shutil
import sys

import pytest
import torch
from support import plain_attention
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posenc_core import PositionalEncoding, alibi_attention, alibi_slopes, attention, linear_bias
from posenc_core.linear_bias import (
    LONGEST,
    NEAR_FROM,
    STEEPEST,
    alibi_flex_attention,
    attention_by_channels,
    attention_by_distance,
    distances,
    even_offset,
)
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec

MODULE = sys.modules["posenc_core.attention"]  # the package's name is the function's
causality = pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
variants = pytest.mark.parametrize("variant", ["causal", "symmetric"])
HALF = [torch.bfloat16, torch.float16]
STEEP = torch.tensor([2.0**-0.5, 2.0**-2, 2.0**-5, 2.0**-8], dtype=torch.float64)


def tensors(lq, lk=None, *, h=4, h_kv=None, batch=1, d=16, dtype=torch.float64, seed=0):
    made, lk, h_kv = torch.Generator().manual_seed(seed), lk or lq, h_kv or h
    shapes = (batch, h, lq, d), (batch, h_kv, lk, d), (batch, h_kv, lk, d)
    return [torch.randn(*s, generator=made, dtype=torch.float64).to(dtype) for s in shapes]


def formula(q, k, v, slopes, *, dtype=torch.float64, causal=True, mask=None):
    """Softmax of q·k/√d - slope·|i - j| as models compute it, one head at a time, everything in one dtype."""
    lq, lk, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    distance = torch.arange(lk - lq, lk)[:, None] - torch.arange(lk)
    forbidden = (distance < 0) if causal else torch.zeros_like(distance, dtype=torch.bool)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    outs = []
    for h in range(q.shape[1]):
        x, y, z = q[:, h].to(dtype), k[:, h // group].to(dtype), v[:, h // group].to(dtype)
        bias = (-slopes[h].to(wide) * distance.abs()).to(dtype)
        scores = x @ y.mT / math.sqrt(q.shape[-1]) + bias
        hidden = forbidden if mask is None else forbidden | ~mask.expand(q.shape[0], q.shape[1], lq, lk)[:, h]
        outs.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ z)
    return torch.stack(outs, 1)


def errors(made, exact):
    """Largest and root mean square difference."""
    gap = made.double() - exact
    return float(gap.abs().max()), float(gap.square().mean().sqrt())


class Allocated(TorchDispatchMode):
    """Adds up the bytes of all storages that operations make, and keeps the largest."""

    def __init__(self):
        super().__init__()
        self.total = self.largest = 0
        self._known = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for leaf in tree_leaves((args, kwargs)):
            self._add(leaf, new=False)
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            self._add(leaf, new=True)
        return out

    def _add(self, leaf, *, new):
        if isinstance(leaf, torch.Tensor) and id(leaf.untyped_storage()) not in self._known:
            storage = leaf.untyped_storage()
            self._known[id(storage)] = storage  # kept, so that no id is used twice
            if new:
                self.total += storage.nbytes()
                self.largest = max(self.largest, storage.nbytes())


@pytest.fixture
def no_whole_bias(monkeypatch):
    """The scheme's own bias of [H, Lq, Lk] may not be asked for."""

    def refuse(*_):
        raise AssertionError("a whole bias was made")

    monkeypatch.setattr("posenc_core.schemes.alibi.Alibi.bias", refuse)


# ------------------------------------------------------------------ numbers


@causality
@variants
@pytest.mark.parametrize(("lq", "lk", "h_kv"), [(1, 1, 4), (2, 2, 1), (5, 5, 2), (5, 12, 4), (12, 5, 4), (33, 33, 2)])
@pytest.mark.parametrize("start", [0, 10**6, 0.25])
def test_equals_the_loops(variant, causal, lq, lk, h_kv, start):
    spec, (q, k, v) = AlibiSpec(n_heads=4, variant=variant), tensors(lq, lk, h_kv=h_kv, batch=2)
    p = torch.arange(max(lq, lk), dtype=torch.float64) + start
    qp, kp = p[-lq:], p[-lk:]
    made, _ = attention(q, k, v, spec.build(), qp, kp, causal=causal)
    if lq <= lk:
        expected, _ = plain_attention(spec, q, k, v, qp, kp, causal=causal)
    else:  # some queries meet no key, which the loops do not know
        expected, _ = attention(q, k, v, spec.build(), qp, kp, causal=causal, need_weights=True)
        expected = expected.nan_to_num(0.0)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


@causality
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [127, 129, 513, 1000])
@pytest.mark.parametrize("start", [0, 10**6])
def test_error_is_no_worse_than_that_of_a_whole_bias(dtype, length, start, causal, no_whole_bias):
    q, k, v = tensors(length, d=32, dtype=dtype, h_kv=2)
    spec = AlibiSpec(n_heads=4, slopes=tuple(STEEP.tolist()), variant="causal" if causal else "symmetric")
    p = torch.arange(length) + start
    exact = formula(q, k, v, STEEP, causal=causal)
    for made in (
        attention(q, k, v, spec.build(), p, p, causal=causal)[0],
        alibi_attention(q, k, v, STEEP, causal=causal),
    ):
        assert made.dtype == dtype
        worst, typical = errors(made, exact)
        if dtype == torch.float64:
            assert worst < 1e-13
            continue
        eager_worst, eager_typical = errors(formula(q, k, v, STEEP, dtype=dtype, causal=causal), exact)
        assert worst < 1.3 * eager_worst
        assert typical < 1.1 * eager_typical


@pytest.mark.parametrize("dtype", HALF)
def test_the_bias_is_not_rounded_to_half_precision(dtype):
    q, k, v = tensors(1000, d=32, dtype=dtype)
    slopes = torch.tensor([0.03, 0.01, 0.003, 0.001], dtype=torch.float64)
    exact, distance = formula(q, k, v, slopes), torch.arange(1000)[:, None] - torch.arange(1000)
    bias = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -torch.inf)
    whole = [scaled_dot_product_attention(q, k, v, attn_mask=bias[None].to(t)) for t in (torch.float32, dtype)]
    kept, rounded = (errors(w, exact)[1] for w in whole)
    assert kept < 0.95 * rounded
    assert errors(alibi_attention(q, k, v, slopes), exact)[1] < 1.02 * kept


@pytest.mark.parametrize("heads", [3, 12])
@pytest.mark.parametrize("length", [70, 600])
def test_other_numbers_of_heads(heads, length, no_whole_bias):
    q, k, v = tensors(length, h=heads, h_kv=1 if heads == 3 else 6, batch=2)
    p = torch.arange(length)
    made, _ = attention(q, k, v, AlibiSpec(n_heads=heads).build(), p, p)
    torch.testing.assert_close(made, formula(q, k, v, alibi_slopes(heads)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
def test_slopes_of_0_and_the_steepest(dtype):
    q, k, v = tensors(300, d=16, dtype=dtype, h=2)
    slopes = torch.tensor([0.0, STEEPEST], dtype=torch.float64)
    made = alibi_attention(q, k, v, slopes)
    plain = scaled_dot_product_attention(q[:, :1], k[:, :1], v[:, :1], is_causal=True)
    torch.testing.assert_close(made[:, :1], plain, rtol=0, atol=2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(made[:, 1:], v[:, 1:], rtol=0, atol=torch.finfo(dtype).eps)


def test_values_of_another_width():
    q, k, _ = tensors(300)
    v = torch.randn(1, 4, 300, 5, dtype=torch.float64)
    torch.testing.assert_close(alibi_attention(q, k, v, STEEP), formula(q, k, v, STEEP), rtol=0, atol=1e-13)
    p, mask = torch.arange(300), torch.arange(300) > 3
    made, _ = attention(q, k, v, AlibiSpec(n_heads=4).build(), p, p, mask=mask)
    expected, _ = attention(q, k, v, AlibiSpec(n_heads=4).build(), p, p, mask=mask, need_weights=True)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-13)


def test_nothing_to_attend():
    q, k, v = (t[:, :, :0] for t in tensors(3))
    for c in (True, False):
        assert alibi_attention(q, k, v, STEEP, causal=c).shape == (1, 4, 0, 16)
        assert not alibi_attention(tensors(3)[0], k, v, STEEP, causal=c).any()


# ------------------------------------------------------------------ masks


def masks(batch, h, lq, lk):
    made = torch.Generator().manual_seed(1)

    def some(*shape):
        return torch.rand(*shape, generator=made) < 0.7

    padding = torch.ones(batch, 1, 1, lk, dtype=torch.bool)
    padding[1, ..., : lk // 3] = False
    return {"padding": padding, "keys": some(lk), "a row": some(1, lk), "heads' keys": some(batch, h, 1, lk),
            "pairs": some(lq, lk), "rows": some(batch, 1, lq, lk), "heads": some(batch, h, lq, lk),
            "queries": some(batch, 1, lq, 1)}  # fmt: skip


@causality
@variants
@pytest.mark.parametrize("mask", masks(2, 1, 1, 1))
@pytest.mark.parametrize(("lq", "lk"), [(9, 90), (130, 130), (70, 300), (600, 600)])
def test_masks(variant, causal, mask, lq, lk, no_whole_bias):
    q, k, v = tensors(lq, lk, h_kv=2, batch=2)
    allowed, p = masks(2, 4, lq, lk)[mask], torch.arange(lk) + 7
    encoding = AlibiSpec(n_heads=4, variant=variant).build()
    made, _ = attention(q, k, v, encoding, p[lk - lq :], p, causal=causal, mask=allowed)
    hidden = allowed if variant == "symmetric" or causal else allowed & torch.ones(lq, lk).tril(lk - lq).bool()
    expected = formula(q, k, v, alibi_slopes(4), causal=causal or variant == "causal", mask=hidden)
    torch.testing.assert_close(made, expected.nan_to_num(0.0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_padding_in_lower_precision(dtype):
    q, k, v = tensors(200, batch=2, dtype=dtype)
    p, padding = torch.arange(200), masks(2, 4, 200, 200)["padding"]
    made, _ = attention(q, k, v, AlibiSpec(n_heads=4).build(), p, p, mask=padding)
    exact = formula(q, k, v, alibi_slopes(4), mask=padding).nan_to_num(0.0)
    eager = formula(q, k, v, alibi_slopes(4), mask=padding, dtype=dtype).nan_to_num(0.0)
    assert errors(made, exact)[1] < 1.1 * errors(eager, exact)[1]
    assert (made[1, :, :66] == 0).all()  # queries before the first key that may be seen


# ------------------------------------------------------------------ decoding


@pytest.mark.parametrize("h_kv", [1, 4])
def test_token_by_token_with_a_cache(h_kv):
    q, k, v = tensors(70, h_kv=h_kv)
    p, encoding = torch.arange(70) + 10**6, AlibiSpec(n_heads=4).build()
    full, _ = attention(q, k, v, encoding, p, p)
    for i in range(70):
        seen, one = slice(i + 1), slice(i, i + 1)
        step, _ = attention(q[:, :, one], k[:, :, seen], v[:, :, seen], encoding, p[one], p[seen])
        torch.testing.assert_close(step, full[:, :, one], rtol=0, atol=1e-13)


@pytest.mark.parametrize("chunk", [2, 100, 257])
def test_chunks_with_a_cache(chunk, no_whole_bias):
    q, k, v = tensors(2600, d=8)
    p, encoding = torch.arange(2600), AlibiSpec(n_heads=4).build()
    full, _ = attention(q, k, v, encoding, p, p)
    for stop in (chunk, 700, 2600):
        rows, seen = slice(stop - chunk, stop), slice(stop)
        part, _ = attention(q[:, :, rows], k[:, :, seen], v[:, :, seen], encoding, p[rows], p[seen])
        torch.testing.assert_close(part, full[:, :, rows], rtol=0, atol=1e-13)


# ------------------------------------------------------------------ gradients


@causality
@variants
@pytest.mark.parametrize("mask", ["none", "padding", "rows"])
def test_gradients_by_differences(variant, causal, mask, monkeypatch):
    monkeypatch.setattr(linear_bias, "_rows", lambda q, mask: 4)
    p, encoding = torch.arange(9), AlibiSpec(n_heads=2, variant=variant).build()
    allowed = masks(2, 2, 9, 9).get(mask)
    inputs = [t.requires_grad_() for t in tensors(9, h=2, batch=2, d=3)]
    assert torch.autograd.gradcheck(
        lambda q, k, v: attention(q, k, v, encoding, p, p, causal=causal, mask=allowed)[0], inputs
    )


def gradients(call, q, k, v, weights):
    inputs = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    (call(*inputs).double() * weights).sum().backward()
    return [t.grad for t in inputs]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
@pytest.mark.parametrize("mask", ["none", "padding", "rows"])
def test_gradients_are_no_worse_than_those_of_a_whole_bias(dtype, mask, no_whole_bias):
    q, k, v = tensors(600, batch=2, dtype=dtype)
    weights = torch.randn(q.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    allowed = masks(2, 4, 600, 600).get(mask)
    if allowed is not None:
        allowed[..., 0] = True  # the formula knows no query without a key
    p, encoding = torch.arange(600), AlibiSpec(n_heads=4, slopes=tuple(STEEP.tolist())).build()
    exact = gradients(lambda *x: formula(*x, STEEP, mask=allowed), *(t.double() for t in (q, k, v)), weights)
    made = gradients(lambda *x: attention(*x, encoding, p, p, mask=allowed)[0], q, k, v, weights)
    eager = gradients(lambda *x: formula(*x, STEEP, mask=allowed, dtype=dtype), q, k, v, weights)
    for mine, theirs, true in zip(made, eager, exact, strict=True):
        assert mine.dtype == dtype
        if dtype == torch.float64:
            assert errors(mine, true)[0] < 1e-12
        else:
            assert errors(mine, true)[1] < 2 * errors(theirs, true)[1]  # the kernel's own, with a whole bias too


def test_a_gradient_of_slopes():
    q, k, v = tensors(100)
    slopes = [STEEP.clone().requires_grad_() for _ in range(2)]
    for call, m in zip((alibi_attention, formula), slopes, strict=True):
        call(q, k, v, m).square().sum().backward()
    torch.testing.assert_close(slopes[0].grad, slopes[1].grad, rtol=0, atol=1e-10)


# ------------------------------------------------------------------ memory


@causality
@pytest.mark.parametrize("length", [1024, NEAR_FROM])
@pytest.mark.parametrize("mask", ["none", "padding"])
def test_memory_grows_with_the_length_only(length, causal, mask):
    """Whatever is made on the way, added up: a few times q. The bias alone would be L/D times q, 32 or 64."""
    q, k, v = tensors(length, d=32, dtype=torch.float32, batch=2)
    p, encoding = torch.arange(length), AlibiSpec(n_heads=4, variant="causal" if causal else "symmetric").build()
    allowed = masks(2, 4, 1, length).get(mask)
    with torch.no_grad(), Allocated() as made:
        attention(q, k, v, encoding, p, p, causal=causal, mask=allowed)
    assert 0 < made.largest < 1.2 * q.nbytes
    assert made.total < 14 * q.nbytes


def test_a_mask_of_pairs_makes_a_bias_for_few_queries_at_a_time():
    q, k, v = tensors(1024, dtype=torch.float32, batch=2)
    p, allowed = torch.arange(1024), masks(2, 4, 1024, 1024)["rows"]
    with torch.no_grad(), Allocated() as made:
        attention(q, k, v, AlibiSpec(n_heads=4).build(), p, p, mask=allowed)
    assert made.largest <= 2 * 4 * 64 * 1024 * 4


def test_training_keeps_no_bias():
    """What the backward pass waits for is a view of one vector."""
    q, k, v = (t.requires_grad_() for t in tensors(2048, d=32, dtype=torch.float32))
    kept = {}

    def keep(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        alibi_attention(q, k, v, STEEP)
    assert q.nbytes < sum(kept.values()) < 8 * q.nbytes


# ------------------------------------------------------------------ even positions


@pytest.mark.parametrize(
    ("q", "k", "dtype", "offset"),
    [
        (torch.arange(5), None, torch.float64, 0),
        (torch.arange(5) + 10**9, None, torch.float64, 0),
        (torch.arange(5, dtype=torch.uint8) + 200, None, torch.float32, 0),
        (torch.arange(7, 9), torch.arange(2, 9), torch.float64, 5),
        (torch.tensor([6]), torch.arange(7), torch.float64, 6),
        (torch.arange(5) + 0.5, torch.arange(5), torch.float64, 0.5),
        (torch.arange(5).expand(3, 5) + torch.tensor([[0], [7], [-2]]), None, torch.float64, 0),
        (torch.arange(5).expand(3, 5) + 2, torch.arange(5), torch.float64, 2),
        (torch.arange(5000, dtype=torch.float64)[-9:] + 0.3, torch.arange(5000, dtype=torch.float64) + 0.3,
         torch.float32, 4991),
        (torch.arange(5000, dtype=torch.float64) + 0.3, None, torch.float64, None),  # steps are rounded
        (torch.arange(5000, dtype=torch.float32) + 0.3, None, torch.float32, None),
        (torch.arange(5000, dtype=torch.float32) + 0.3, None, torch.bfloat16, None),
        (torch.arange(500, dtype=torch.float32) + 0.3, None, torch.bfloat16, 0),
        (2 * torch.arange(5), None, torch.float64, None),
        (-torch.arange(5), None, torch.float64, None),
        (torch.zeros(5), None, torch.float64, None),
        (torch.tensor([0, 1, 0, 1]), None, torch.float64, None),
        (torch.tensor([[0, 1, 2], [0, 0, 1]]), None, torch.float64, None),
        (torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.arange(3), torch.float64, None),
        (torch.tensor([0.0, math.nan]), None, torch.float32, None),
        (torch.tensor([math.inf, math.inf]), None, torch.float32, None),
        (torch.arange(0), None, torch.float32, None),
        (torch.arange(3, device="meta"), None, torch.float32, None),
        (torch.arange(3.0).requires_grad_(), None, torch.float32, None),
    ],
)  # fmt: skip
def test_even_offset(q, k, dtype, offset):
    assert even_offset(q, q if k is None else k, dtype) == offset


def test_rounded_steps_hide_no_key_from_its_query(no_whole_bias):
    """0.3 + 491 - 0.3 is a little less than 491 in float32: the last key must not seem to be after its query."""
    q, k, v = tensors(9, 500, dtype=torch.bfloat16)
    p = torch.arange(500) + torch.tensor(0.3)
    assert p[-9].double() - p[0].double() < 491
    made, _ = attention(q, k, v, AlibiSpec(n_heads=4).build(), p[-9:], p)
    exact, eager = (formula(q, k, v, alibi_slopes(4), dtype=d) for d in (torch.float64, torch.bfloat16))
    assert errors(made, exact)[1] < errors(eager, exact)[1]


@variants
def test_rows_of_a_batch_that_are_even_each(variant, no_whole_bias):
    q, k, v = tensors(70, batch=3)
    p = torch.arange(70) + torch.tensor([[0], [5], [10**6]])
    made, _ = attention(q, k, v, AlibiSpec(n_heads=4, variant=variant).build(), p, p)
    torch.testing.assert_close(made, formula(q, k, v, alibi_slopes(4)), rtol=0, atol=1e-13)


@causality
@variants
@pytest.mark.parametrize("shift", [-70, -3, 0.5, 4])
def test_queries_that_lie_elsewhere_than_their_keys(variant, causal, shift, no_whole_bias):
    """As many queries as keys, but their positions are shifted: the mask goes by place, the bias by position."""
    q, k, v = tensors(70)
    p, encoding = torch.arange(70.0), AlibiSpec(n_heads=4, variant=variant).build()
    made, _ = attention(q, k, v, encoding, p + shift, p, causal=causal)
    distance = (p + shift)[:, None] - p
    hidden = (distance < 0) if variant == "causal" else torch.zeros(70, 70, dtype=torch.bool)
    hidden = hidden | (torch.ones(70, 70).triu(1).bool() if causal else False)
    scores = q @ k.mT / 4 - alibi_slopes(4)[:, None, None] * distance.abs()
    expected = (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).nan_to_num(0.0)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


def test_other_schemes_are_not_asked_for_even_positions(monkeypatch):
    monkeypatch.setattr(MODULE, "even_offset", None)
    p = torch.arange(6)
    for spec in (NoneSpec(), RopeSpec(d_head=16)):
        encoding = spec.build()
        assert encoding.bias_by_distance(torch.zeros(3)) is encoding.bias_slopes() is None
        attention(*tensors(6), encoding, p, p)


@variants
def test_the_hook_gives_the_numbers_of_the_bias(variant):
    encoding = AlibiSpec(n_heads=6, variant=variant).build()
    p = torch.arange(5)
    table = encoding.bias_by_distance(torch.arange(-4, 5, dtype=torch.float64))
    bias = encoding.bias(p, p, torch.empty(0, dtype=torch.float64))
    for i in range(5):
        assert torch.equal(bias[:, i], table[:, 4 + i - p])
    assert torch.equal(encoding.bias_slopes(), alibi_slopes(6))


class Windowed(PositionalEncoding):
    """A scheme that the library does not know: steps of 2 a doubling, and nothing beyond 40 tokens either way."""

    def bias_by_distance(self, distance):
        steps = -2.0 * (1 + distance.abs()).log2().floor()
        return steps.masked_fill(distance.abs() > 40, -torch.inf).expand(4, -1)

    def bias(self, q_positions, k_positions, q=None, k=None):
        distance = q_positions.double()[:, None] - k_positions.double()
        return self.bias_by_distance(distance.flatten()).unflatten(1, distance.shape)


@causality
@pytest.mark.parametrize("length", [100, NEAR_FROM])
def test_any_scheme_with_the_hook(causal, length):
    p, encoding = torch.arange(length), Windowed(NoneSpec())
    q, k, v = tensors(length, d=8)
    made, _ = attention(q, k, v, encoding, p, p, causal=causal)
    expected, _ = attention(q, k, v, encoding, p, p, causal=causal, need_weights=True)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-13)


# ------------------------------------------------------------------ keys too far to count


@pytest.fixture
def left_out(monkeypatch):
    """The heads and reaches of each call that asked which keys count."""
    calls, ask = [], linear_bias._reaches
    monkeypatch.setattr(linear_bias, "_reaches", lambda *a: calls.append(ask(*a)) or calls[-1])
    return calls


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
@pytest.mark.parametrize(("lq", "lk", "batch"), [(2048, 2048, 1), (2100, 2111, 2), (64, 2048, 1), (99, 2300, 2)])
def test_leaving_far_keys_out_costs_no_accuracy(dtype, lq, lk, batch, left_out, monkeypatch):
    q, k, v = tensors(lq, lk, h_kv=2, batch=batch, dtype=dtype)
    made = alibi_attention(q, k, v, STEEP)
    assert set(left_out[0]) >= {0, 1}
    assert max(left_out[0].values()) < lk // 2
    exact = formula(q, k, v, STEEP)
    monkeypatch.setattr(linear_bias, "_reaches", lambda *a: None)
    worst, typical = errors(alibi_attention(q, k, v, STEEP), exact)
    small = 1e-15 if dtype == torch.float64 else 0.0
    assert errors(made, exact)[0] < 1.2 * worst + small
    assert errors(made, exact)[1] < 1.02 * typical + small


def test_a_far_key_that_outweighs_its_distance_is_kept(left_out):
    """Key 100 meets every query so well that even the steepest head finds it from 2,000 tokens away."""
    q, k, v = tensors(2200, h=2, d=16)
    q[..., 0] = 40.0
    k[..., 0] = 0.0
    k[:, :, 100, 0] = 120.0  # adds 1,200 to a score
    made = alibi_attention(q, k, v, torch.tensor([0.5, 1 / 64]))
    torch.testing.assert_close(made, formula(q, k, v, torch.tensor([0.5, 1 / 64]).double()), rtol=0, atol=1e-12)
    torch.testing.assert_close(made[:, :, -1], v[:, :, 100], rtol=0, atol=1e-12)
    assert left_out == [{}]


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e12])
def test_far_values_of_any_size_cost_no_accuracy(size, left_out):
    """What is left out is held against what the near keys add, not against the largest value."""
    q, k, v = (t.float() for t in tensors(128, 4096, h=2, d=8))
    q.zero_()
    v[:, :, :3929] *= size
    slopes = torch.tensor([0.5, 1 / 64])
    exact = formula(q, k, v, slopes.double())
    difference = (alibi_attention(q, k, v, slopes).double() - exact).abs().amax(-1) / exact.abs().amax(-1)
    assert difference.max() < 4e-6
    assert 0 in left_out[0]  # 27 more in the exponent are 55 tokens more


def test_what_counts_is_asked_of_every_batch_row_and_of_the_own_key(left_out):
    """A row of large norms, or queries that their own key repels, need keys from farther away."""
    q, k, v = tensors(2100, batch=2, h=1, d=16)
    slopes = torch.tensor([0.5])
    reaches = []
    for scales in ((1.0, 1.0), (1.0, 3.0), (3.0, 1.0)):
        scale = torch.tensor(scales, dtype=torch.float64)[:, None, None, None]
        made = alibi_attention(scale * q, scale * k, v, slopes)
        torch.testing.assert_close(made, formula(scale * q, scale * k, v, slopes.double()), rtol=0, atol=1e-13)
        reaches.append(left_out[-1][0])
    assert min(reaches[1:]) > reaches[0] + 50
    alibi_attention(q, q, v, slopes)
    drawn = left_out[-1][0]
    alibi_attention(q, -q, v, slopes)  # the own score falls by 2·q·q/√d
    assert left_out[-1][0] > drawn + 20
    torch.testing.assert_close(
        alibi_attention(q, -q, v, slopes), formula(q, -q, v, slopes.double()), rtol=0, atol=1e-13
    )


def test_gradients_of_slopes_alone_read_every_key(left_out):
    q, k, v = tensors(2048, h=1, d=8)
    slopes = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    (made,) = torch.autograd.grad(alibi_attention(q, k, v, slopes).square().sum(), slopes)
    assert left_out == [None]
    (expected,) = torch.autograd.grad(formula(q, k, v, slopes).square().sum(), slopes)
    torch.testing.assert_close(made, expected)


def test_an_infinite_far_value_is_kept(left_out):
    q, k, v = tensors(2100, h=2, d=8)
    v[0, 0, 0, 0] = math.inf
    made = alibi_attention(q, k, v, torch.tensor([0.5, 0.5]))
    assert set(left_out[0]) == {1}
    assert not made[0, 0, :, 0].isfinite().any()
    assert made[0, 1].isfinite().all()


def test_a_trace_holds_for_other_numbers():
    """Scores six times as large let fewer keys be left out."""
    q, k, v = tensors(2048, h=2, d=8)
    slopes = torch.tensor([0.5, 0.5])
    traced = make_fx(lambda q, k, v: alibi_attention(q, k, v, slopes))(q, k, v)
    torch.testing.assert_close(traced(6 * q, 6 * k, v), alibi_attention(6 * q, 6 * k, v, slopes), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_leave_nothing_out(bad, left_out):
    q, k, v = tensors(2100, h=2, d=8)
    k[0, 0, 7, 0] = bad
    made = alibi_attention(q, k, v, torch.tensor([0.5, 0.5]))
    assert set(left_out[0]) == {1}
    assert bool(made[0, 0, 7:].isnan().any())
    assert not made[0, 1].isnan().any()


def test_all_keys_count_where_a_gradient_is_wanted(left_out):
    q, k, v = tensors(2048, h=1, d=8)
    k.requires_grad_()
    out = alibi_attention(q, k, v, torch.tensor([1 / 16]))
    with torch.no_grad():
        alibi_attention(q, k, v, torch.tensor([1 / 16]))
    assert left_out[0] is None
    assert set(left_out[1]) == {0}
    out[0, 0, -1].sum().backward()
    assert bool((k.grad[0, 0, :1900] != 0).all(-1).all())


# ------------------------------------------------------------------ compiled, traced, mapped


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@causality
def test_compiled(backend, causal):
    q, k, v = tensors(70)
    p, encoding = torch.arange(70), AlibiSpec(n_heads=4).build()
    for call in (
        lambda *x: alibi_attention(*x, STEEP, causal=causal),
        lambda *x: attention(*x, encoding, p, p, causal=causal)[0],
    ):
        torch._dynamo.reset()
        compiled = torch.compile(call, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(q, k, v), call(q, k, v), rtol=0, atol=1e-13)
        weights = torch.randn(q.shape, dtype=torch.float64)
        pairs = zip(gradients(compiled, q, k, v, weights), gradients(call, q, k, v, weights), strict=True)
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_trace_holds_for_other_positions():
    q, k, v = tensors(6)
    encoding, p = AlibiSpec(n_heads=4).build(), torch.arange(6)
    traced = torch.jit.trace(lambda p: attention(q, k, v, encoding, p, p)[0], p)
    for other in (p + 5, 2 * p):
        torch.testing.assert_close(traced(other), attention(q, k, v, encoding, other, other)[0], rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("length", "dim"), [(6, None), (6, 0), (NEAR_FROM, None)])
def test_vmap(length, dim):
    """Over q, k, v, and over positions (dim 0) or not."""
    q, k, v = (torch.stack([t, t / 2]) for t in tensors(length, d=4, h=2))
    encoding, p = AlibiSpec(n_heads=2).build(), torch.stack([torch.arange(length), torch.arange(length) * 2])

    def call(q, k, v, p):
        return attention(q, k, v, encoding, p, p)[0]

    made = torch.func.vmap(call, (0, 0, 0, dim))(q, k, v, p[0] if dim is None else p)
    for i in range(2):
        one = call(q[i], k[i], v[i], p[0] if dim is None else p[i])
        torch.testing.assert_close(made[i], one, rtol=0, atol=1e-12)


# ------------------------------------------------------------------ a bias in further features of q and k


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("lq", "lk"), [(1, 1), (5, 5), (129, 129), (513, 1000), (1, 3000), (3000, 3000)])
def test_channels_in_half_precision(dtype, lq, lk):
    q, k, v = tensors(lq, lk, d=32, h=5, dtype=dtype)
    slopes = torch.tensor([*STEEP.tolist(), STEEPEST], dtype=torch.float64)
    exact = formula(q, k, v, slopes)
    made = attention_by_channels(q, k, v, slopes)
    assert made.dtype == dtype
    worst, typical = errors(formula(q, k, v, slopes, dtype=dtype), exact)
    assert errors(made, exact)[0] <= 1.1 * worst
    assert errors(made, exact)[1] <= typical
    if lk > 1:  # as with a bias in float32
        kept = errors(attention_by_distance(q, k, v, -slopes[:, None] * distances(lq, lk, lk - lq, q)), exact)
        assert errors(made, exact)[1] < 1.02 * kept[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_channels_in_full_precision(dtype):
    """Not made for these; but the formula is right, and what a block is off by does not grow with the length."""
    q, k, v = tensors(2000, d=32, h=2, dtype=dtype)
    made = attention_by_channels(q, k, v, torch.tensor([0.5, 0.25]))
    assert errors(made, formula(q, k, v, torch.tensor([0.5, 0.25]).double()))[0] < 64 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("d", [16, 64, 128])
def test_the_features_multiply_to_the_bias(dtype, d):
    """To 2^-24 of it, over all keys that are legal; in float16, whose smallest step is 2^-24, to 2^-13/√d besides."""
    slopes = torch.cat([alibi_slopes(12), torch.tensor([STEEPEST, 1e-5, 0.0], dtype=torch.float64)])
    like = torch.empty(1, d, dtype=dtype)
    for centre in (0, 1, LONGEST // 3, LONGEST - 64, LONGEST - 1):
        mine = linear_bias._key_features(LONGEST, centre, like)
        assert mine.dtype == dtype
        made = linear_bias._slope_features(slopes, like)[:, :6].double() @ mine.double().T / math.sqrt(d)
        exact = slopes[:, None] * (torch.arange(LONGEST) - centre)
        slack = 2.0**-13 / math.sqrt(d) if dtype == torch.float16 else 0.0
        assert bool(((made - exact).abs() <= 2.0**-24 * exact.abs() + slack).all())


@pytest.mark.parametrize("dtype", HALF)
def test_float32_sums_of_the_features_stay_within_the_bound(dtype):
    """The sum over features in the worst order, each step in float32, at the largest distances of a block."""
    d, slopes = 64, torch.tensor([2.0**-0.5, 1.0, 8.0], dtype=torch.float64)
    for m in slopes:
        rows = linear_bias._block_rows(m[None], dtype)
        like = torch.empty(1, d, dtype=dtype)
        ours = linear_bias._slope_features(m[None], like)[0, :6].float()
        keys = linear_bias._key_features(rows, rows // 2, like).float()
        for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 4, 1, 5, 2]):
            total = torch.full((rows,), 11.0)
            for channel in order:
                total = total + ours[channel] * keys[:, channel]
            made = (total * d**-0.5).double() - 11 / math.sqrt(d)
            gap = (made - m * (torch.arange(rows) - rows // 2)).abs().max()
            assert gap <= torch.finfo(dtype).eps / 2


def test_blocks_of_queries_follow_from_the_steepest_slope():
    rows = linear_bias._block_rows
    assert rows(torch.tensor([1.0, 0.1]), torch.bfloat16) == 8192
    assert rows(torch.tensor([0.5]), torch.float16) == 2048
    assert rows(torch.tensor([STEEPEST]), torch.float16) == rows(torch.tensor([1.0]), torch.float32) == 128
    assert rows(torch.tensor([0.0]), torch.float16) == 2**20


@pytest.mark.parametrize("mask", ["padding", "keys", "a row", "heads' keys"])
@pytest.mark.parametrize(("lq", "lk"), [(300, 300), (70, 300)])
def test_channels_with_a_mask_of_keys(mask, lq, lk):
    q, k, v = tensors(lq, lk, batch=2)
    allowed = masks(2, 4, lq, lk)[mask]
    expected = formula(q, k, v, STEEP, mask=allowed).nan_to_num(0.0)
    torch.testing.assert_close(attention_by_channels(q, k, v, STEEP, allowed), expected, rtol=0, atol=1e-11)
    for dtype in HALF:
        made = attention_by_channels(*(t.to(dtype) for t in (q, k, v)), STEEP, allowed)
        torch.testing.assert_close(made.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("mask", ["none", "keys"])
def test_gradients_through_channels(mask):
    q, k, v = tensors(300)
    allowed, weights = masks(2, 4, 300, 300).get(mask), torch.randn(q.shape, dtype=torch.float64)
    if allowed is not None:
        allowed[0] = True
    made = gradients(lambda *x: attention_by_channels(*x, STEEP, allowed), q, k, v, weights)
    exact = gradients(lambda *x: formula(*x, STEEP, mask=allowed), q, k, v, weights)
    for mine, theirs in zip(made, exact, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)


def test_what_channels_cannot_do_is_refused():
    q, k, v = tensors(5)
    with pytest.raises(ValueError, match="5 queries and 3 keys"):
        attention_by_channels(q, k[:, :, :3], v[:, :, :3], STEEP)
    with pytest.raises(ValueError, match=r"mask has shape \(5, 5\)"):
        attention_by_channels(q, k, v, STEEP, torch.ones(5, 5, dtype=torch.bool))
    long = torch.empty(1, 1, LONGEST + 1, 1)
    with pytest.raises(ValueError, match="at most 65536 keys"):
        attention_by_channels(long, long, long, STEEP[:1])


def test_attention_takes_channels_where_they_are_best(monkeypatch):
    """The way for CUDA, walked on any device: only where the bias is linear over all keys that are allowed."""
    q, k, v = tensors(40, 70, h_kv=2)
    expected = formula(q, k, v, alibi_slopes(4))
    p, calls = torch.arange(70) + 3, []
    monkeypatch.setattr(MODULE, "channels_are_best", lambda *a: calls.append(1) or True)
    monkeypatch.setattr(MODULE, "attention_by_distance", None)
    for variant in ("causal", "symmetric"):
        encoding = AlibiSpec(n_heads=4, variant=variant).build()
        for later in (0, 2):  # further away than in the mask: the bias differs by a constant a row
            made, _ = attention(q, k, v, encoding, p[30:] + later, p)
            torch.testing.assert_close(made, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(alibi_attention(q, k, v, alibi_slopes(4)), expected, rtol=0, atol=1e-11)
    assert len(calls) == 5
    monkeypatch.undo()
    monkeypatch.setattr(MODULE, "channels_are_best", lambda *a: True)
    monkeypatch.setattr(MODULE, "attention_by_channels", None)
    encoding = AlibiSpec(n_heads=4).build()
    attention(q, k, v, encoding, p[30:] - 1, p)  # the last key that the mask allows lies after its query
    attention(q, k, v, encoding, p[30:], p, causal=False)
    alibi_attention(q, k, v, STEEP, causal=False)


def test_channels_are_not_for_cpus():
    q, k, _ = tensors(100, dtype=torch.bfloat16)
    assert not linear_bias.channels_are_best(q, k, STEEP, None)


# ------------------------------------------------------------------ FlexAttention


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@causality
@pytest.mark.parametrize(("lq", "lk", "h_kv"), [(40, 40, 4), (128, 200, 2), (1, 33, 1)])
def test_flex_attention_uncompiled(causal, lq, lk, h_kv):
    q, k, v = tensors(lq, lk, h_kv=h_kv, batch=2)
    made = alibi_flex_attention(q, k, v, STEEP, causal, compiled=False)
    torch.testing.assert_close(made, formula(q, k, v, STEEP, causal=causal), rtol=0, atol=1e-13)


@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++ compiler")
def test_flex_attention_compiled():
    q, k, v = tensors(200, dtype=torch.float32)
    with torch.no_grad():
        made = alibi_flex_attention(q, k, v, STEEP)
    assert errors(made, formula(q, k, v, STEEP))[0] < 1e-5
