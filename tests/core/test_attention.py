import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import plain_attention, plain_schemes, sized

from posenc_core import alibi_attention, alibi_slopes, attention, linear_bias
from posenc_core.attention import attention_scores
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec

MODULE = sys.modules["posenc_core.attention"]  # the package's name is the function's
EXTRA = [
    AlibiSpec(n_heads=4, variant="symmetric"),
    AlibiSpec(n_heads=4, slopes=(1.0, 0.3, 0.0, 2.0)),
    RopeSpec(d_head=16, layout="interleaved", rotary_fraction=0.5),
    RopeSpec(d_head=16, scaling="linear", factor=4.0),
    RopeSpec(d_head=16, scaling="ntk", factor=4.0),
    RopeSpec(d_head=16, scaling="proportional", rotary_fraction=0.25),
    RopeSpec(d_head=16, scaling="yarn", factor=8.0, original_max_position_embeddings=256),
    RopeSpec(d_head=16, rotary_fraction=0.5, scaling="yarn", factor=40.0, mscale=1.0, mscale_all_dim=0.707),
    RopeSpec(d_head=16, scaling="dynamic", factor=4.0, original_max_position_embeddings=4),
    RopeSpec(d_head=16, scaling="longrope", factor=8.0, original_max_position_embeddings=4, attention_on="scores"),
]
SPECS = [sized(cls).spec for cls in plain_schemes()] + EXTRA
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda s: "-".join(s.to_query().values()))
causality = pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])


def tensors(*, lq=6, lk=6, h=4, h_kv=4, batch=2, d=16, dtype=torch.float64, device="cpu"):
    made = torch.Generator().manual_seed(0)
    shapes = (batch, h, lq, d), (batch, h_kv, lk, d), (batch, h_kv, lk, d)
    return [torch.randn(*s, generator=made, dtype=torch.float64).to(device, dtype) for s in shapes]


def all_routes(spec, q, k, v, qp, kp, *, atol=1e-11, **options):
    """The fast path, the readable one and the loops of the test agree; returns output and weights."""
    fast, no_weights = attention(q, k, v, spec.build(), qp, kp, **options)
    plain, weights = attention(q, k, v, spec.build(), qp, kp, need_weights=True, **options)
    expected, expected_weights = plain_attention(spec, q, k, v, qp, kp, **options)
    assert no_weights is None
    torch.testing.assert_close(plain, expected, rtol=0, atol=atol)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=atol)
    torch.testing.assert_close(fast, expected, rtol=0, atol=atol)
    return fast, weights


@every_spec
@causality
def test_three_routes_agree(spec, causal):
    p = torch.arange(6)
    _, weights = all_routes(spec, *tensors(), p, p, causal=causal)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64), rtol=0, atol=1e-12)
    assert torch.equal(weights, weights.tril()) == (causal or getattr(spec, "variant", "") == "causal")


@every_spec
@pytest.mark.parametrize("h_kv", [1, 2])
def test_grouped_queries(spec, h_kv):
    p = torch.arange(6)
    q, k, v = tensors(h_kv=h_kv)
    grouped, _ = all_routes(spec, q, k, v, p, p)
    wide = [t.repeat_interleave(4 // h_kv, dim=1) for t in (k, v)]
    torch.testing.assert_close(grouped, attention(q, *wide, spec.build(), p, p)[0], rtol=0, atol=1e-12)


@every_spec
@pytest.mark.parametrize("lq", [1, 2])
def test_decoding_with_a_cache_equals_the_last_rows(spec, lq):
    q, k, v = tensors()
    p = torch.arange(6) + 10
    full, _ = attention(q, k, v, spec.build(), p, p)
    step, _ = all_routes(spec, q[:, :, -lq:], k, v, p[-lq:], p)
    torch.testing.assert_close(step, full[:, :, -lq:], rtol=0, atol=1e-12)


@every_spec
@causality
def test_a_mask_forbids(spec, causal):
    mask = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    mask[0, 0, 1:, 0] = mask[1, 0, 4, 2] = False
    p = torch.arange(6)
    _, weights = all_routes(spec, *tensors(), p, p, causal=causal, mask=mask)
    assert (weights[0, :, 1:, 0] == 0).all()
    assert (weights[1, :, 4, 2] == 0).all()
    assert (weights[1, :, 1:, 0] > 0).all()


@every_spec
@causality
def test_batch_positions(spec, causal):
    p = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 5, 9, 10, 40]])
    q, k, v = tensors()
    out, _ = all_routes(spec, q, k, v, p, p, causal=causal)
    one_length = getattr(spec, "by_length", False)  # the whole batch has the longest row's, as in transformers
    for b in (1,) if one_length else range(2):
        row = slice(b, b + 1)
        alone, _ = attention(q[row], k[row], v[row], spec.build(), p[b], p[b], causal=causal)
        torch.testing.assert_close(out[row], alone, rtol=0, atol=1e-12)


@every_spec
def test_left_padding_changes_nothing(spec):
    q, k, v = tensors(batch=1)
    pads = 2
    padded = [torch.cat([torch.full((1, 4, pads, 16), 9.0, dtype=t.dtype), t], dim=2) for t in (q, k, v)]
    positions = torch.cat([torch.zeros(pads, dtype=torch.long), torch.arange(6)])
    mask = (torch.arange(6 + pads) >= pads).expand(6 + pads, -1) | torch.eye(6 + pads, dtype=torch.bool)
    expected, _ = attention(q, k, v, spec.build(), torch.arange(6), torch.arange(6))
    for need_weights in (True, False):
        out, _ = attention(*padded, spec.build(), positions, positions, mask=mask, need_weights=need_weights)
        torch.testing.assert_close(out[:, :, pads:], expected, rtol=0, atol=1e-12)


@every_spec
def test_packed_documents_do_not_see_each_other(spec):
    q, k, v = tensors(batch=1)
    document = torch.tensor([0, 0, 1, 1, 1, 1])
    positions = torch.tensor([0, 1, 0, 1, 2, 3])
    mask = document[:, None] == document
    for need_weights in (True, False):
        out, _ = attention(q, k, v, spec.build(), positions, positions, mask=mask, need_weights=need_weights)
        for part in (slice(0, 2), slice(2, 6)):
            p = positions[part]
            alone, _ = attention(q[:, :, part], k[:, :, part], v[:, :, part], spec.build(), p, p)
            torch.testing.assert_close(out[:, :, part], alone, rtol=0, atol=1e-12)


@every_spec
def test_the_future_has_no_influence(spec):
    q, k, v = tensors()
    p = torch.arange(6)
    before, _ = attention(q, k, v, spec.build(), p, p)
    k[:, :, 4:], v[:, :, 4:] = 7.0, -7.0
    after, _ = attention(q, k, v, spec.build(), p, p)
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.allclose(before[:, :, 4:], after[:, :, 4:])


@every_spec
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_stays_near_float64(spec, dtype):
    p = torch.arange(100, 106)
    q, k, v = tensors(dtype=dtype)
    expected, _ = attention(q.double(), k.double(), v.double(), spec.build(), p, p)
    for need_weights in (True, False):
        out, weights = attention(q, k, v, spec.build(), p, p, need_weights=need_weights)
        assert out.dtype == dtype
        assert weights is None or weights.dtype == dtype
        assert (out.double() - expected).abs().max() < 16 * torch.finfo(dtype).eps


@pytest.mark.parametrize("spec", [NoneSpec(), AlibiSpec(n_heads=4), RopeSpec(d_head=16)])
def test_a_row_without_any_allowed_key_is_equal_both_ways(spec):
    q, k, v = tensors(batch=1)
    p, mask = torch.arange(6), (torch.arange(6) >= 2).expand(6, 6)
    fast = attention(q, k, v, spec.build(), p, p, mask=mask)[0]
    plain = attention(q, k, v, spec.build(), p, p, mask=mask, need_weights=True)[0]
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-12)


def test_scores_are_dot_products_over_root_d():
    q, k = torch.tensor([[[[1.0, 2, 3, 4]]]]), torch.tensor([[[[1.0, 1, 1, 1], [0, 0, 0, 2]]]])
    p = torch.tensor([0])
    assert attention_scores(q, k, NoneSpec().build(), p, torch.arange(2)).flatten().tolist() == [5.0, 4.0]
    alibi = AlibiSpec(n_heads=1, slopes=(0.5,)).build()
    assert attention_scores(q, k, alibi, p + 1, torch.arange(2)).flatten().tolist() == [4.5, 4.0]


def test_gradients_agree_on_both_paths():
    p = torch.arange(6)
    for spec in (RopeSpec(d_head=16), AlibiSpec(n_heads=4), NoneSpec()):
        grads = []
        for need_weights in (True, False):
            inputs = [t.requires_grad_() for t in tensors()]
            attention(*inputs, spec.build(), p, p, need_weights=need_weights)[0].square().sum().backward()
            grads.append([t.grad for t in inputs])
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


# ------------------------------------------------------------------ more queries than one bias is made for

PARTS = [7, 16, 20, 39]  # queries at a time, of 40
BIASED = [
    AlibiSpec(n_heads=4),
    AlibiSpec(n_heads=4, variant="symmetric"),
    AlibiSpec(n_heads=4, slopes=(1.0, 0.3, 0.0, 2.0)),
]
biased = pytest.mark.parametrize("spec", BIASED, ids=lambda s: "-".join(s.to_query().values()))


@pytest.fixture(params=PARTS)
def parts(request, monkeypatch):
    """Sets how many queries get a bias at a time; `parts.whole()` is attention in one pass."""

    def set_rows(context, rows):
        context.setattr(MODULE, "QUERIES", rows)
        context.setattr(linear_bias, "_rows", lambda q, mask: rows)

    def whole(*arguments, **options):
        with pytest.MonkeyPatch.context() as context:
            set_rows(context, 10**9)
            return attention(*arguments, **options)[0]

    set_rows(monkeypatch, request.param)
    return whole


def long_masks(lq, lk):
    made = torch.Generator().manual_seed(1)
    some = torch.rand(2, 1, lq, lk, generator=made) < 0.7
    return {"none": None, "rows": some, "heads": torch.rand(2, 4, lq, lk, generator=made) < 0.7,
            "keys": some[0, 0, 0], "one": some[0, 0], "padding": some[:, :, :1]}  # fmt: skip


@biased
@causality
@pytest.mark.parametrize("mask", long_masks(1, 1))
@pytest.mark.parametrize(("lq", "lk", "h_kv"), [(40, 40, 4), (40, 40, 2), (40, 64, 4), (41, 90, 1)])
@pytest.mark.parametrize("step", [1, 2])
def test_parts_equal_one_pass_and_the_reference(spec, causal, mask, lq, lk, h_kv, step, parts):
    """Positions that go up by one, whose bias is a view, and by two, whose bias is made."""
    q, k, v = tensors(lq=lq, lk=lk, h_kv=h_kv)
    positions, allowed = step * torch.arange(lk) + 3, long_masks(lq, lk)[mask]
    arguments = (q, k, v, spec.build(), positions[lk - lq :], positions)
    made, no_weights = attention(*arguments, causal=causal, mask=allowed)
    assert no_weights is None
    expected, _ = attention(*arguments, causal=causal, mask=allowed, need_weights=True)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(made, parts(*arguments, causal=causal, mask=allowed), rtol=0, atol=1e-12)


@biased
@causality
def test_parts_with_positions_of_their_own_in_each_row(spec, causal, parts):
    q, k, v = tensors(lq=40, lk=50)
    positions = torch.stack([torch.arange(50), torch.arange(50) * 3 + 7])
    arguments = (q, k, v, spec.build(), positions[:, 10:], positions)
    made, _ = attention(*arguments, causal=causal)
    expected, _ = attention(*arguments, causal=causal, need_weights=True)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


@causality
def test_parts_where_early_queries_meet_no_key(causal, parts):
    """More queries than keys: the last query meets the last key, so causal ones before the first key get nothing."""
    q, k, v = tensors(lq=40, lk=12)
    spec = AlibiSpec(n_heads=4, variant="symmetric")
    arguments = (q, k, v, spec.build(), torch.arange(40), torch.arange(28, 40))
    made, _ = attention(*arguments, causal=causal)
    expected, _ = attention(*arguments, causal=causal, need_weights=True)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)
    assert bool((made[:, :, :28] == 0).all()) == causal


@biased
@pytest.mark.parametrize("step", [1, 2])
def test_gradients_in_parts(spec, step, parts):
    p, grads = step * torch.arange(40), []
    for route in (attention, parts, None):
        encoding = spec.build()
        encoding.slopes = torch.nn.Parameter(encoding.slopes)
        inputs = [t.requires_grad_() for t in tensors(lq=40, lk=40)]
        if route is None:
            out = attention(*inputs, encoding, p, p, need_weights=True)[0]
        else:
            out = route(*inputs, encoding, p, p)
            out = out[0] if isinstance(out, tuple) else out
        out.square().sum().backward()
        grads.append([t.grad for t in (*inputs, encoding.slopes)])
    for made in grads[:2]:
        for a, b in zip(made, grads[2], strict=True):
            assert bool((a != 0).any())
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_no_bias_is_made_for_more_than_its_queries(monkeypatch):
    """At uneven positions, and the size that the module has: at most QUERIES rows, no key after the last query."""
    length, shapes = 2 * MODULE.QUERIES + 5, []
    encoding = AlibiSpec(n_heads=1, slopes=(0.01,)).build()
    made = encoding.bias
    monkeypatch.setattr(encoding, "bias", lambda *a: shapes.append(made(*a).shape[-2:]) or made(*a))
    q, k, v = tensors(lq=length, lk=length, h=1, h_kv=1, batch=1, d=4)
    p = torch.arange(length) + (torch.arange(length) > 7)
    out, _ = attention(q, k, v, encoding, p, p)
    n = MODULE.QUERIES
    assert [tuple(s) for s in shapes if s != (1, 1)] == [(n, n), (n, 2 * n), (5, length)]
    expected, _ = attention(q, k, v, encoding, p, p, need_weights=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@every_spec
@causality
def test_without_a_bias_there_is_one_pass(spec, causal, monkeypatch):
    monkeypatch.setattr(MODULE, "QUERIES", 2)
    calls, kernel = [], MODULE.scaled_dot_product_attention
    monkeypatch.setattr(MODULE, "scaled_dot_product_attention", lambda *a, **o: calls.append(1) or kernel(*a, **o))
    p = 2 * torch.arange(6)
    made, _ = attention(*tensors(), spec.build(), p, p, causal=causal)
    expected, _ = attention(*tensors(), spec.build(), p, p, causal=causal, need_weights=True)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)
    assert len(calls) == (3 if spec.hook == "bias" else 1)


# ------------------------------------------------------------------ alibi_attention


@given(st.integers(1, 12), st.integers(1, 5), st.booleans())
def test_alibi_attention_equals_the_loops(heads, length, causal):
    q, k, v = tensors(h=heads, h_kv=heads, lq=length, lk=length, batch=1, d=4)
    spec = AlibiSpec(n_heads=heads, variant="causal" if causal else "symmetric")
    expected, _ = plain_attention(spec, q, k, v, torch.arange(length), torch.arange(length), causal=causal)
    made = alibi_attention(q, k, v, alibi_slopes(heads), causal=causal)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)


@causality
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_alibi_attention_equals_attention_with_alibi(causal, dtype):
    q, k, v = tensors(dtype=dtype, lq=40, lk=40)
    p, spec = torch.arange(40), AlibiSpec(n_heads=4, variant="causal" if causal else "symmetric")
    made = alibi_attention(q, k, v, alibi_slopes(4), causal=causal)
    assert made.dtype == dtype
    expected, _ = attention(q, k, v, spec.build(), p, p, causal=causal)
    torch.testing.assert_close(made, expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_alibi_attention_is_float64_in_float64():
    q, k, v = tensors(h=12, h_kv=12, lq=64, lk=64)
    made = alibi_attention(q, k, v, alibi_slopes(12))
    expected, _ = attention(q, k, v, AlibiSpec(n_heads=12).build(), torch.arange(64), torch.arange(64))
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


def test_alibi_attention_keeps_the_causal_mask():
    q, k, v = tensors()
    before = alibi_attention(q, k, v, alibi_slopes(4))
    k[:, :, 3:], v[:, :, 3:] = 5.0, 5.0
    assert torch.equal(alibi_attention(q, k, v, alibi_slopes(4))[:, :, :3], before[:, :, :3])
    assert not torch.allclose(alibi_attention(q, k, v, alibi_slopes(4), causal=False)[:, :, :3], before[:, :, :3])


def test_alibi_attention_of_the_last_query_equals_the_last_row():
    q, k, v = tensors()
    full = alibi_attention(q, k, v, alibi_slopes(4))
    last = alibi_attention(q[:, :, -1:], k, v, alibi_slopes(4))
    torch.testing.assert_close(last, full[:, :, -1:], rtol=0, atol=1e-12)


def test_slopes_of_zero_are_plain_attention():
    q, k, v = tensors()
    p = torch.arange(6)
    expected, _ = attention(q, k, v, NoneSpec().build(), p, p)
    torch.testing.assert_close(alibi_attention(q, k, v, torch.zeros(4)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(3,), (5,), (4, 1), ()])
def test_slopes_that_do_not_fit_are_refused(shape):
    q, k, v = tensors()
    with pytest.raises(ValueError, match=r"\(4,\) is legal"):
        alibi_attention(q, k, v, torch.ones(shape))


def test_one_token():
    q, k, v = tensors(lq=1, lk=1)
    for spec in SPECS:
        out, weights = all_routes(spec, q, k, v, torch.tensor([0]), torch.tensor([0]))
        torch.testing.assert_close(out, v, rtol=0, atol=1e-12)
        assert weights.flatten().tolist() == [1.0] * 8


def test_a_large_slope_looks_at_itself_only():
    q, k, v = tensors()
    p = torch.arange(6)
    out, weights = attention(q, k, v, AlibiSpec(n_heads=4, slopes=(64.0,) * 4).build(), p, p, need_weights=True)
    torch.testing.assert_close(out, v, rtol=0, atol=1e-9)
    assert float(weights.diagonal(dim1=-2, dim2=-1).min()) > 1 - 1e-12


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("positions", [torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 9])])
def test_heads_that_do_not_fit_the_bias_are_refused(need_weights, positions):
    q, k, v = tensors()
    with pytest.raises(ValueError, match="q has 4 heads; legal: 8, as the encoding's bias has"):
        attention(q, k, v, AlibiSpec(n_heads=8).build(), positions, positions, need_weights=need_weights)


def test_slopes_that_are_no_tensor_are_refused():
    q, k, v = tensors()
    with pytest.raises(ValueError, match="slopes are a list; q has 4 heads, so a tensor \\(4,\\) is legal"):
        alibi_attention(q, k, v, [0.5, 0.25, 0.125, 0.0625])
