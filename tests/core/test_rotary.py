import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import frequencies, length, needs_cxx, pairs, rotate_complex, rotation_matrix, scales, specs
from torch import nn

from posenc_core import apply_rotary
from posenc_core.rotary import cos_sin, interleaved_to_half, phases
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.rope import Rope, RopeSpec

layouts = pytest.mark.parametrize("layout", ["half", "interleaved"])
KINDS = [
    RopeSpec(d_head=8),
    RopeSpec(d_head=16, rotary_fraction=0.5),
    RopeSpec(d_head=8, scaling="linear", factor=4.0),
    RopeSpec(d_head=8, scaling="ntk", factor=4.0),
    RopeSpec(d_head=16, scaling="proportional", rotary_fraction=0.5),
    RopeSpec(d_head=2),
    RopeSpec(d_head=16, scaling="ntk_by_parts", factor=4.0, original_max_position_embeddings=256, ramp="rotations"),
    RopeSpec(d_head=8, scaling="dynamic", factor=4.0, original_max_position_embeddings=16),
    RopeSpec(d_head=8, scaling="dynamic", factor=4.0, original_max_position_embeddings=16, dynamic_length="maximum"),
    RopeSpec(d_head=16, rotary_fraction=0.5, scaling="yarn", factor=4.0, original_max_position_embeddings=256),
    RopeSpec(d_head=16, rotary_fraction=0.5, scaling="yarn", factor=8.0, attention_on="scores", truncate=False),
    RopeSpec(d_head=8, scaling="yarn", factor=40.0, mscale=1.0, mscale_all_dim=0.707),
    RopeSpec(d_head=8, scaling="longrope", factor=4.0, original_max_position_embeddings=16,
             short_factor=(1.0, 1.5, 2.0, 4.0), long_factor=(1.0, 3.0, 9.0, 0.5)),
    RopeSpec(d_head=16, base=100.0, scaling="llama3", factor=8.0, original_max_position_embeddings=64),
]  # fmt: skip
SPECS = [s.replace(layout=x) for s in KINDS for x in ("half", "interleaved")]
rope_specs = pytest.mark.parametrize(
    "spec", SPECS, ids=lambda s: "-".join([s.scaling, *list(s.to_query().values())[1:]])[:60]
)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def turn(encoding, x, positions):
    return encoding.rotate(x, x, positions, positions)[0]


# ------------------------------------------------------------------ the rotation itself


@rope_specs
def test_equals_the_rotation_matrix(spec):
    positions = torch.tensor([0.0, 1.0, 7.0, 1000.0, -3.0, 2.5], dtype=torch.float64)
    x = normal(2, 3, 6, spec.d_head)
    made, keys = spec.build().rotate(x, x, positions, positions)
    for i, p in enumerate(positions.tolist()):
        expected = x[:, :, i] @ rotation_matrix(spec, p, 1001).T
        torch.testing.assert_close(keys[:, :, i], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(made[:, :, i], expected * scales(spec)[1], rtol=0, atol=1e-12)


@rope_specs
def test_equals_complex_multiplication(spec):
    x = normal(1, 1, 4, spec.d_head, seed=1)
    positions = torch.tensor([3, 0, 11, 500])
    made = spec.build().rotate(x, x, positions, positions)[1]
    for i, p in enumerate([3, 0, 11, 500]):
        expected = torch.tensor(rotate_complex(spec, x[0, 0, i].tolist(), p, 501), dtype=torch.float64)
        torch.testing.assert_close(made[0, 0, i], expected, rtol=0, atol=1e-12)


def test_by_hand():
    cos, sin = torch.tensor([[0.6, 0.0]]), torch.tensor([[0.8, 1.0]])
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert apply_rotary(x, cos, sin)[0].tolist() == pytest.approx([1 * 0.6 - 3 * 0.8, -4.0, 3 * 0.6 + 1 * 0.8, 2.0])
    assert apply_rotary(x, cos, sin, "interleaved")[0].tolist() == pytest.approx([-1.0, 2.0, -4.0, 3.0])


@rope_specs
@pytest.mark.parametrize("last", [(19, 4), (9, 19)], ids=["query", "key"])
def test_queries_and_keys_turn_by_their_own_positions(spec, last):
    rope, q, k = spec.build(), normal(1, 2, 3, spec.d_head), normal(1, 1, 5, spec.d_head, seed=1)
    qp, kp = torch.tensor([7, 8, last[0]]), torch.tensor([0, 1, 2, 3, last[1]])
    made_q, made_k = rope.rotate(q, k, qp, kp)  # the longest of both is the length of the sequence
    for x, made, positions, scale in ((q, made_q, qp, scales(spec)[1]), (k, made_k, kp, 1.0)):
        assert made.shape == x.shape
        for i, p in enumerate(positions.tolist()):
            expected = scale * x[:, :, i] @ rotation_matrix(spec, p, 20).T
            torch.testing.assert_close(made[:, :, i], expected, rtol=0, atol=1e-12)
    assert not torch.equal(made_q, turn(rope, q, torch.arange(3)))


@given(st.data(), st.floats(-1e6, 1e6), st.integers(0, 1000))
def test_norms_are_kept_up_to_the_attention_factor(data, position, seed):
    spec = data.draw(specs(RopeSpec, d_head=16))
    x, positions = normal(1, 1, 1, 16, seed=seed), torch.tensor([position], dtype=torch.float64)
    tables, scores = scales(spec)
    for made, scale in zip(spec.build().rotate(x, x, positions, positions), (scores, 1.0), strict=True):
        tail = [i for i in range(16) if all(i not in pair for pair, _ in pairs(spec))]
        torch.testing.assert_close(made[..., tail], x[..., tail] * scale, rtol=1e-15, atol=0)
        for (a, b), _ in pairs(spec):
            expected = float(x[..., [a, b]].norm()) * tables * scale
            assert float(made[..., [a, b]].norm()) == pytest.approx(expected, rel=1e-12)


@given(st.sampled_from([4, 8, 16]), st.integers(0, 100), st.integers(0, 100_000))
def test_layouts_are_equal_up_to_a_permutation(dim, seed, position):
    index = interleaved_to_half(dim)
    half, inter = RopeSpec(d_head=dim).build(), RopeSpec(d_head=dim, layout="interleaved").build()
    q, k = normal(1, 1, 2, dim, seed=seed), normal(1, 1, 2, dim, seed=seed + 1)
    p = torch.tensor([position, position + 3])
    a_q, a_k = inter.rotate(q, k, p, p)
    b_q, b_k = half.rotate(q[..., index], k[..., index], p, p)
    torch.testing.assert_close(a_q[..., index], b_q, rtol=0, atol=1e-12)
    torch.testing.assert_close(a_q @ a_k.mT, b_q @ b_k.mT, rtol=0, atol=1e-11)


def test_layouts_differ_without_the_permutation():
    x, p = normal(1, 1, 4, 8), torch.arange(4)
    assert (turn(RopeSpec(d_head=8).build(), x, p) - turn(RopeSpec(d_head=8, layout="interleaved").build(), x, p)).abs(
    ).max() > 0.1  # fmt: skip


def test_interleaved_to_half_is_evens_then_odds():
    assert interleaved_to_half(8).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    for bad in (0, 1, 7, -2):
        with pytest.raises(ValueError, match=f"dim = {bad} "):
            interleaved_to_half(bad)


@layouts
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_tail_stays_bit_identical(layout, dtype):
    x = normal(2, 2, 5, 16, dtype=dtype)
    made = turn(RopeSpec(d_head=16, rotary_fraction=0.25, layout=layout).build(), x, torch.arange(100, 105))
    assert torch.equal(made[..., 4:], x[..., 4:])
    assert all(not torch.equal(made[..., i], x[..., i]) for i in range(4))


@layouts
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_unrotated_pairs_of_p_rope_stay_bit_identical(layout, dtype):
    x = normal(1, 1, 5, 16, dtype=dtype)
    spec = RopeSpec(d_head=16, rotary_fraction=0.5, scaling="proportional", layout=layout)
    made = turn(spec.build(), x, torch.arange(100, 105))
    turned = [0, 1, 2, 3, 8, 9, 10, 11] if layout == "half" else list(range(8))
    for i in range(16):
        assert torch.equal(made[..., i], x[..., i]) == (i not in turned)


@rope_specs
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_output_dtype_is_input_dtype_and_right_to_its_rounding(spec, dtype):
    x, p = normal(1, 2, 4, spec.d_head, dtype=dtype), torch.tensor([0, 5, 1857, 100_003])
    made = turn(spec.build(), x, p)
    assert made.dtype == dtype
    assert made.shape == x.shape
    exact = turn(spec.build(), x.double(), p)
    ulps = 0.5 if spec.build().scales.scores == 1 else 1.1  # the scale of the scores rounds once more
    slack = 1e-12 if dtype == torch.float64 else 1e-6
    assert ((made.double() - exact).abs() <= ulps * torch.finfo(dtype).eps * exact.abs() + slack).all()


@rope_specs
def test_batch_positions_are_rows(spec):
    rope, x = spec.build(), normal(3, 2, 4, spec.d_head)
    positions = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8], [0, 0, 9, 1]])
    made = turn(rope, x, positions)
    rows = spec.build().rotate  # one sequence length for the whole batch, as in transformers
    for b in range(3):
        alone = rows(x[b : b + 1], x[b : b + 1], positions[b], torch.tensor([length(positions) - 1]).expand(4))[0]
        torch.testing.assert_close(made[b : b + 1], alone, rtol=0, atol=0)


@layouts
@pytest.mark.parametrize("rotary_dim", [4, 8])
def test_gradients(layout, rotary_dim):
    cos, sin = cos_sin(torch.arange(3), RopeSpec(d_head=rotary_dim).inv_freq(), dtype=torch.float64)
    x = normal(2, 3, 8).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: apply_rotary(t, cos, sin, layout), (x,))
    apply_rotary(x, cos, sin, layout).sum().backward()
    assert x.grad.shape == x.shape


def test_the_gradient_is_the_inverse_rotation():
    spec, p = RopeSpec(d_head=8), torch.tensor([1, 2, 300])
    x, g = normal(1, 1, 3, 8).requires_grad_(), normal(1, 1, 3, 8, seed=1)
    turn(spec.build(), x, p).backward(g)
    torch.testing.assert_close(x.grad, turn(spec.build(), g, -p), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", ["Half", "neox", "", None, 1])
def test_an_unknown_layout_names_the_known(layout):
    cos = torch.ones(3, 4)
    with pytest.raises(ValueError, match="legal: half, interleaved") as caught:
        apply_rotary(torch.ones(3, 8), cos, cos, layout)
    assert repr(layout) in str(caught.value)


def test_too_many_pairs_are_refused():
    with pytest.raises(ValueError, match="hold 5 pairs; x has 8 features"):
        apply_rotary(torch.ones(3, 8), torch.ones(3, 5), torch.ones(3, 5))


# ------------------------------------------------------------------ precision


def test_phases_are_float64_products():
    made = phases(torch.tensor([10_000_000, 3]), torch.tensor([0.1, 1.0], dtype=torch.float64))
    assert made.dtype == torch.float64
    assert made.tolist() == [[10_000_000 * 0.1, 10_000_000.0], [3 * 0.1, 3.0]]
    odd = torch.tensor([2**24 + 1, 2**31 + 1, 2**53 - 1])  # no float32 holds them
    assert phases(odd, torch.tensor([1.0])).flatten().tolist() == odd.tolist()
    assert phases(torch.tensor([0.1], dtype=torch.float64), torch.tensor([1.0])).item() == 0.1


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float64])
@pytest.mark.parametrize("position", [4096, 131_071, 10_000_000])
def test_cos_and_sin_far_out(position, dtype):
    spec = RopeSpec(d_head=128)
    cos, sin = spec.build().tables(torch.tensor([position], dtype=dtype))
    assert cos.dtype == sin.dtype == torch.float32
    for i, w in enumerate(frequencies(spec)):
        assert float(cos[0, i]) == pytest.approx(math.cos(position * w), abs=1e-7)
        assert float(sin[0, i]) == pytest.approx(math.sin(position * w), abs=1e-7)


def test_float32_phases_would_be_wrong_there():
    w = RopeSpec(d_head=128).inv_freq()
    naive = (torch.tensor([1e7]) * w.float()).cos()
    assert (naive.double() - (1e7 * w).cos()).abs().max() > 0.1


def test_an_attention_factor_scales_both():
    cos, sin = cos_sin(torch.tensor([0, 2]), torch.tensor([1.0], dtype=torch.float64), attention_factor=1.5)
    assert cos.flatten().tolist() == pytest.approx([1.5, 1.5 * math.cos(2)])
    assert sin.flatten().tolist() == pytest.approx([0.0, 1.5 * math.sin(2)])


class Holder(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.rope, self.linear = spec.build(), nn.Linear(4, 4)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double"])
def test_tables_do_not_follow_the_modules_dtype(cast):
    spec = RopeSpec(d_head=64)
    module = getattr(Holder(spec), cast)()
    assert module.linear.weight.dtype != torch.float32
    cos, _ = module.rope.tables(torch.tensor([1857]))
    assert cos.dtype == torch.float32
    assert cos[0].tolist() == pytest.approx([math.cos(1857 * w) for w in frequencies(spec)], abs=1e-7)
    assert module.rope.inv_freq.dtype == torch.float64


def test_an_fp16_model_is_right_at_position_1857():
    spec = RopeSpec(d_head=64)
    x = torch.cat([torch.ones(1, 1, 1, 32), torch.zeros(1, 1, 1, 32)], -1).half()
    made = turn(Holder(spec).half().rope, x, torch.tensor([1857]))[0, 0, 0]
    assert made[:32].tolist() == pytest.approx([math.cos(1857 * w) for w in frequencies(spec)], abs=2.0**-11)


@pytest.mark.parametrize(
    ("dtype", "a", "b"), [(torch.bfloat16, 15962, 15968), (torch.float16, 262_145, 262_146), (torch.bfloat16, 256, 257)]
)
def test_near_positions_far_out_differ_in_half_precision(dtype, a, b):
    rope, x = RopeSpec(d_head=64).build().to(dtype), torch.ones(1, 1, 1, 64, dtype=dtype)
    made = [turn(rope, x, torch.tensor([p])) for p in (a, b)]
    exact = [turn(rope, x.double(), torch.tensor([p])) for p in (a, b)]
    assert (made[0] - made[1]).abs().max() > 0.1
    for m, e in zip(made, exact, strict=True):
        assert (m.double() - e).abs().max() <= torch.finfo(dtype).eps


def test_equal_inside_and_outside_autocast():
    rope, x, p = RopeSpec(d_head=16).build(), normal(1, 2, 6, 16, dtype=torch.float32), torch.arange(4090, 4096)
    outside = turn(rope, x, p)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = turn(RopeSpec(d_head=16).build(), x, p)
        again = turn(rope, x, p)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)
    assert torch.equal(again, outside)


# ------------------------------------------------------------------ nothing persistent, nothing stale


def test_state_dict_is_empty():
    rope = RopeSpec().build()
    rope.tables(torch.arange(8))
    assert rope.state_dict() == {}
    assert list(rope.buffers()) == []
    module = Holder(RopeSpec())
    assert set(module.state_dict()) == {"linear.weight", "linear.bias"}
    module.load_state_dict(module.state_dict())


@pytest.mark.parametrize("spec", [*KINDS, RopeSpec(d_head=8, scaling="linear", factor=2.0, layout="interleaved")])
def test_right_after_meta_and_to_empty(spec):
    x, p = normal(1, 1, 3, spec.d_head), torch.tensor([1, 2, 300])
    expected = turn(spec.build(), x, p)
    moved = spec.build()
    moved.tables(p)
    moved = moved.to("meta").to_empty(device="cpu")
    with torch.device("meta"):
        born = spec.build()
    for rope in (moved, born.to_empty(device="cpu")):
        assert torch.equal(turn(rope, x, p), expected)


def right(rope, positions):
    cos, sin = rope.tables(positions)
    angle = positions.double().unsqueeze(-1) * rope.inv_freq
    return torch.equal(cos, angle.cos().float()) and torch.equal(sin, angle.sin().float())


def test_tables_follow_an_in_place_edit():
    rope, p = RopeSpec(d_head=8).build(), torch.arange(5)
    assert right(rope, p)
    p += 3
    assert right(rope, p)
    p[0] = 99
    assert right(rope, p)


def test_tables_follow_another_tensor_and_a_shorter_one():
    rope = RopeSpec(d_head=8).build()
    for p in (torch.arange(5), torch.arange(5) + 1, torch.arange(500), torch.arange(3), torch.arange(3).float()):
        assert right(rope, p)
        del p


def test_tables_follow_the_dtype():
    rope, p = RopeSpec(d_head=8).build(), torch.arange(5)
    assert rope.tables(p)[0].dtype == torch.float32
    wide = rope.tables(p, torch.float64)[0]
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide, (p.double()[:, None] * rope.inv_freq).cos(), rtol=0, atol=0)


@pytest.mark.parametrize("table_dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@rope_specs
def test_tables_rounded_to_another_format(spec, dtype, table_dtype):
    """Once, from float64: the phases and the attention factor are not rounded before."""
    positions, rope = torch.tensor([0, 1, 7, 1000, 10_000]), spec.build()
    rope.table_dtype = table_dtype
    made = rope.tables(positions, dtype)
    factor, w = scales(spec)[0], frequencies(spec, 10_001)
    for table, function in zip(made, (math.cos, math.sin), strict=True):
        exact = torch.tensor([[factor * function(p * x) for x in w] for p in positions.tolist()], dtype=torch.float64)
        assert table.dtype == dtype
        torch.testing.assert_close(table, exact.to(table_dtype).to(dtype), rtol=0, atol=2e-11)


@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("table_dtype", [torch.float16, torch.bfloat16])
def test_rotation_by_rounded_tables_keeps_its_own_dtype(layout, dtype, table_dtype):
    spec, positions = RopeSpec(d_head=8, layout=layout), torch.tensor([0, 3, 900])
    rope, x = spec.build(), normal(1, 2, 3, 8, dtype=dtype)
    rope.table_dtype = table_dtype
    made = turn(rope, x, positions)
    assert made.dtype == dtype
    for i, p in enumerate(positions.tolist()):
        for (a, b), w in pairs(spec):
            c, s = (float(torch.tensor(f(p * w), dtype=torch.float64).to(table_dtype)) for f in (math.cos, math.sin))
            expected = torch.stack([x[..., i, a] * c - x[..., i, b] * s, x[..., i, b] * c + x[..., i, a] * s])
            torch.testing.assert_close(made[..., i, [a, b]].movedim(-1, 0), expected, rtol=0, atol=1e-6)
    exact = turn(spec.build(), x, positions)
    assert torch.equal(made[..., 0, :], x[..., 0, :])  # 1 and 0 are exact
    assert 0 < float((made - exact).abs().max()) < 8 * torch.finfo(table_dtype).eps


def test_table_dtype_is_none_unless_set():
    rope = RopeSpec(d_head=8).build()
    assert rope.table_dtype is None
    rope.half()
    assert rope.table_dtype is None
    rope.table_dtype = torch.float16
    assert copy.deepcopy(rope).table_dtype == pickle.loads(pickle.dumps(rope)).table_dtype == torch.float16


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_tables_follow_the_length_of_the_sequence(scaling):
    spec = RopeSpec(d_head=8, scaling=scaling, factor=4.0, original_max_position_embeddings=16)
    rope, p, scale = spec.build(), torch.arange(5), scales(spec)[0]
    for seq_len in (None, 17, 16, 400, None, 17):
        cos, sin = rope.tables(p, torch.float64, seq_len)
        for table, f in ((cos, math.cos), (sin, math.sin)):
            expected = [scale * f(4 * w) for w in frequencies(spec, seq_len or 5)]
            assert table[4].tolist() == pytest.approx(expected, abs=1e-14)
    given = torch.tensor(400)  # a length on a device, changed in place
    far = rope.tables(p, torch.float64, given)[0]
    given.fill_(5)
    assert not torch.equal(rope.tables(p, torch.float64, given)[0], far)
    assert torch.equal(rope.tables(p, torch.float64, given)[0], rope.tables(p, torch.float64, 5)[0])
    x = normal(1, 1, 5, 8)
    for longest in (4, 40, 400, 4):  # the same queries beside longer keys
        made = rope.rotate(x, x, p, torch.tensor([0, 1, 2, 3, longest]))[0]
        expected = x[:, :, 4] @ rotation_matrix(spec, 4, longest + 1).T
        torch.testing.assert_close(made[:, :, 4], expected, rtol=0, atol=1e-12)


def test_tables_are_built_once_for_one_positions_tensor():
    rope, p = RopeSpec(d_head=8).build(), torch.arange(5)
    assert rope.tables(p)[0] is rope.tables(p)[0]


def test_tables_in_inference_mode():
    rope, outside = RopeSpec(d_head=8).build(), torch.arange(5)
    with torch.inference_mode():
        p = torch.arange(5)
        assert right(rope, p)
        p += 7
        assert right(rope, p)
        assert right(rope, outside)
        outside += 2
        assert right(rope, outside)
    assert right(rope, outside)


def test_training_after_inference_mode_with_the_same_positions():
    rope, p = RopeSpec(d_head=8).build(), torch.arange(5)
    with torch.inference_mode():
        turn(rope, torch.ones(1, 1, 5, 8), p)
    x = torch.ones(1, 1, 5, 8, requires_grad=True)
    turn(rope, x, p).sum().backward()
    assert x.grad is not None


def test_gradients_reach_positions_after_no_grad():
    rope, p, x = RopeSpec(d_head=8).build(), torch.arange(5.0, requires_grad=True), torch.ones(1, 1, 5, 8)
    with torch.no_grad():
        turn(rope, x, p)
    turn(rope, x, p).square().sum().backward()
    assert p.grad is not None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_works_after_use(copied):
    rope, p = RopeSpec(d_head=8, layout="interleaved").build(), torch.arange(5)
    rope.tables(p)
    again = copied(rope)
    assert isinstance(again, Rope)
    assert again.spec == rope.spec
    assert right(again, p)
    assert right(again, p + 1)
    assert torch.equal(turn(again, normal(1, 1, 5, 8), p), turn(rope, normal(1, 1, 5, 8), p))


def test_layers_of_a_hybrid_with_equal_specs_share_a_module():
    hybrid = HybridSpec(layers=(RopeSpec(), RopeSpec(base=5e5), RopeSpec())).build()
    assert hybrid.layer(0) is hybrid.layer(2)
    assert hybrid.layer(0) is not hybrid.layer(1)


# ------------------------------------------------------------------ compiled


@layouts
def test_one_graph_in_torch_compile(layout):
    rope = RopeSpec(d_head=8, rotary_fraction=0.5, layout=layout).build()
    compiled = torch.compile(lambda q, k, p: rope.rotate(q, k, p, p), fullgraph=True, backend="aot_eager")
    q, k = normal(1, 2, 4, 8), normal(1, 1, 4, 8, seed=1)
    for p in (torch.arange(4), torch.arange(4) + 100):
        for made, expected in zip(compiled(q, k, p), rope.rotate(q, k, p, p), strict=True):
            torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


@needs_cxx
def test_torch_compile_with_the_default_backend():
    rope, p = RopeSpec(d_head=8).build(), torch.arange(4)
    compiled = torch.compile(lambda q, k, p: rope.rotate(q, k, p, p), fullgraph=True)
    q, k = normal(1, 2, 4, 8, dtype=torch.float32), normal(1, 1, 4, 8, seed=1, dtype=torch.float32)
    for made, expected in zip(compiled(q, k, p), rope.rotate(q, k, p, p), strict=True):
        torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)


# ------------------------------------------------------------------ transforms of torch.func


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("width", [8, 12])  # all features rotate, or 8 of 12
def test_gradients_of_all_orders(layout, width):
    """The rotation is linear: the tangent turns as x does, the gradient turns back, the Jacobian is the matrix."""
    cos, sin = RopeSpec(d_head=8).build().tables(torch.arange(3) + 5, torch.float64)
    x, t = normal(2, 3, width), normal(2, 3, width)

    def turned(x):
        return apply_rotary(x, cos, sin, layout)

    assert torch.autograd.gradcheck(turned, x.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda x: turned(x).square(), x)
    value, tangent = torch.func.jvp(turned, (x.detach(),), (t,))
    torch.testing.assert_close(tangent, turned(t))
    torch.testing.assert_close(value, turned(x.detach()))
    _, by_table = torch.func.jvp(lambda c: apply_rotary(x.detach(), c, sin, layout), (cos,), (sin,))
    torch.testing.assert_close(by_table[..., :8], apply_rotary(x.detach(), sin, torch.zeros_like(sin), layout)[..., :8])
    jacobian = torch.func.jacrev(turned)(x.detach()).reshape(6 * width, 6 * width)
    torch.testing.assert_close(jacobian, torch.func.jacfwd(turned)(x.detach()).reshape(6 * width, 6 * width))
    torch.testing.assert_close(jacobian @ jacobian.T, torch.eye(6 * width, dtype=torch.float64))


def test_vmap_over_any_dimension_and_over_positions():
    tables = [RopeSpec(d_head=8).build().tables(torch.arange(3) + shift, torch.float64) for shift in (0, 7)]
    x = normal(4, 2, 3, 8)
    expected = torch.stack([apply_rotary(x[:, i], *tables[0]) for i in range(2)], 1)
    torch.testing.assert_close(torch.vmap(apply_rotary, (1, None, None), 1)(x, *tables[0]), expected)
    both = [torch.stack(part) for part in zip(*tables, strict=True)]
    shifted = torch.stack([apply_rotary(x[:, i], *tables[i]) for i in range(2)], 1)
    torch.testing.assert_close(torch.vmap(apply_rotary, (1, 0, 0), 1)(x, *both), shifted)
    still = torch.stack([apply_rotary(x, *t) for t in tables])
    torch.testing.assert_close(torch.vmap(apply_rotary, (None, 0, 0))(x, *both), still)
