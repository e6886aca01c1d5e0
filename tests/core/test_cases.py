"""Faults that people reported in public, each as a test with the right value: precision, caches, devices, layouts,
biases, refusals. tests/data/cases.tsv is the table of all of them."""

from __future__ import annotations

import copy
import math
import shutil
from itertools import pairwise

import pytest
import torch
from support import attention_factor, frequencies, pairs, recipe_slopes, rotate_complex, rotation_matrix, scales
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posenc_core import SCHEMES, SpecError, alibi_attention, alibi_slopes, apply_rotary, attention, parse_spec
from posenc_core.attention import attention_scores
from posenc_core.extension import cache_error, frequencies_at
from posenc_core.fingerprint import fingerprint
from posenc_core.porting import layout_permutation, permute_weights, prove_layout
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.rope import Rope, RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec

HEAD = 64
TRAINED = 2048
SHORT = tuple(1 + i / 31 for i in range(32))
LONG = tuple(1 + i for i in range(32))
EVERY = {
    "none": RopeSpec(d_head=HEAD),
    "partial": RopeSpec(d_head=HEAD, rotary_fraction=0.5),
    "linear": RopeSpec(d_head=HEAD, scaling="linear", factor=4.0),
    "ntk": RopeSpec(d_head=HEAD, scaling="ntk", factor=4.0),
    "ntk_by_parts": RopeSpec(
        d_head=HEAD, scaling="ntk_by_parts", factor=4.0, original_max_position_embeddings=TRAINED, ramp="rotations"
    ),
    "dynamic": RopeSpec(d_head=HEAD, scaling="dynamic", factor=4.0, original_max_position_embeddings=TRAINED),
    "yarn": RopeSpec(
        d_head=HEAD, scaling="yarn", factor=8.0, original_max_position_embeddings=TRAINED, mscale=1.0,
        mscale_all_dim=0.707,
    ),
    "longrope": RopeSpec(
        d_head=HEAD, scaling="longrope", factor=4.0, original_max_position_embeddings=TRAINED, short_factor=SHORT,
        long_factor=LONG,
    ),
    "llama3": RopeSpec(d_head=HEAD, scaling="llama3", factor=8.0, original_max_position_embeddings=TRAINED),
    "proportional": RopeSpec(d_head=HEAD, scaling="proportional", factor=8.0, rotary_fraction=0.25),
}  # fmt: skip
every_rope = pytest.mark.parametrize("spec", EVERY.values(), ids=EVERY)
BY_LENGTH = ("dynamic", "longrope")
by_length = pytest.mark.parametrize("spec", [EVERY[n] for n in BY_LENGTH], ids=BY_LENGTH)
layouts = pytest.mark.parametrize("layout", ["half", "interleaved"])
CXX = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def turn(rope, x, positions):
    return rope.rotate(x, x, positions, positions)[0]


def exact_tables(spec, position, seq_len):
    """cos and sin by Python's math, attention factor included."""
    scale, w = scales(spec)[0], frequencies(spec, seq_len)
    return [scale * math.cos(position * x) for x in w], [scale * math.sin(position * x) for x in w]


class Model(nn.Module):
    """What `.half()`, `state_dict()` and `to_empty()` are called on."""

    def __init__(self, spec):
        super().__init__()
        self.q_proj = nn.Linear(spec.d_head, spec.d_head, bias=False)
        self.rotary_emb = spec.build()


# ------------------------------------------------------------------ precision, caches, devices


@every_rope
@pytest.mark.parametrize("cast", ["half", "bfloat16"])
def test_transformers_25681_cos_sin_from_float32_after_half(spec, cast):
    model = getattr(Model(spec), cast)()
    assert model.q_proj.weight.dtype != torch.float32
    for position in (1857, 4095, 131_071):
        made = model.rotary_emb.tables(torch.tensor([position]))
        for table, exact in zip(made, exact_tables(spec, position, position + 1), strict=True):
            assert table.dtype == torch.float32
            assert table[0].tolist() == pytest.approx(exact, abs=2e-7)
            fp16 = table.half().double()[0].tolist()
            assert fp16 == pytest.approx(exact, abs=2.0**-11 * max(1, attention_factor(spec)))


def test_gpt_neox_1003_half_precision_frequencies_would_be_wrong_at_1857():
    """The fault itself: cos(1857·w) from fp16 frequencies and positions is off by more than 1 in some pair."""
    w = EVERY["none"].inv_freq()
    faulty = (torch.tensor([1857]).half() * w.half()).float().cos().double()
    exact = torch.tensor(exact_tables(EVERY["none"], 1857, None)[0], dtype=torch.float64)
    assert (faulty - exact).abs().max() > 0.5
    x = torch.cat([torch.ones(1, 1, 1, 32), torch.zeros(1, 1, 1, 32)], -1).half()
    made = turn(Model(EVERY["none"]).half().rotary_emb, x, torch.tensor([1857]))[0, 0, 0, :32]
    assert made.double().tolist() == pytest.approx(exact.tolist(), abs=2.0**-11)


@every_rope
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_29285_equal_inside_and_outside_autocast(spec, dtype):
    q, k, p = normal(1, 2, 6, HEAD, dtype=dtype), normal(1, 1, 6, HEAD, seed=1, dtype=dtype), torch.arange(4090, 4096)
    outside = [*spec.build().rotate(q, k, p, p), *spec.build().tables(p)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = [*spec.build().rotate(q, k, p, p), *spec.build().tables(p)]
    for a, b in zip(inside, outside, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("spec", [SinusoidalSpec(d_model=32), IntegerSpec(d_model=32), AlibiSpec(n_heads=4)])
def test_transformers_29285_other_schemes_too(spec):
    p = torch.arange(4090, 4096)

    def numbers():
        encoding = spec.build()
        return encoding.bias(p, p) if spec.hook == "bias" else encoding.embed(torch.zeros(1, 6, 32), p)

    outside = numbers()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(numbers(), outside)


@every_rope
def test_transformers_29496_inverse_frequencies_never_in_bfloat16(spec):
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = Model(spec).to(torch.bfloat16)
        cos, sin = model.rotary_emb.tables(torch.tensor([4096]))
    finally:
        torch.set_default_dtype(torch.float32)
    assert model.rotary_emb.inv_freq.dtype == torch.float64
    exact = torch.tensor([4096 * w for w in frequencies(spec, 4097)], dtype=torch.float64)
    assert phase_distance(torch.atan2(sin.double(), cos.double())[0], exact).max() < 3e-3


def test_modalities_462_frequencies_in_bfloat16_would_be_off_by_radians():
    w = EVERY["none"].inv_freq()
    assert phase_distance(4096 * w.bfloat16().double(), 4096 * w).max() > 1
    scaled = EVERY["linear"].inv_freq()
    assert phase_distance(4096 * (w.bfloat16() / 4).double(), 4096 * scaled).max() > 0.4


def phase_distance(a, b):
    return ((a - b + math.pi).remainder(2 * math.pi) - math.pi).abs()


@every_rope
@pytest.mark.parametrize(
    ("dtype", "a", "b"),
    [
        (torch.bfloat16, 15962, 15968),
        (torch.bfloat16, 256, 257),
        (torch.float16, 2048, 2049),
        (torch.float16, 262_144, 262_145),
        (torch.float16, 999_999, 1_000_000),
    ],
)
def test_candle_3520_positions_far_out_stay_apart(spec, dtype, a, b):
    rope, x = Model(spec).to(dtype).rotary_emb, torch.ones(1, 1, 1, HEAD, dtype=dtype)
    p = torch.tensor([a, b])
    made = rope.rotate(x.expand(1, 1, 2, HEAD), x, p, p[1:])[0][0, 0].double()
    extra = scales(spec)[1]
    exact = torch.tensor([rotate_complex(spec, [1.0] * HEAD, n, b + 1) for n in (a, b)], dtype=torch.float64) * extra
    eps = torch.finfo(dtype).eps
    assert (made - exact).abs().max() <= 1.2 * eps * exact.abs().max()
    assert (made[0] - made[1]).abs().max() > 0.1


def test_mlx_lm_1076_positions_in_half_precision_would_collide():
    """bfloat16 counts in steps of 64 there, float16 ends at 65504."""
    near = torch.arange(15_969, 16_032).bfloat16()
    assert near.unique().tolist() == [16_000.0]
    assert abs(float(torch.tensor(15_962).bfloat16()) - 15_962) == 26
    assert torch.tensor([262_144, 262_145]).half().isinf().all()


@every_rope
@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_imp_1325_kernels_agree_with_float64_at_131071(spec, layout, dtype):
    spec, p = spec.replace(layout=layout), torch.tensor([131_071, 131_070, 0])
    x = normal(1, 2, 3, HEAD, dtype=dtype)
    made = spec.build().rotate(x, x, p, p)[1]
    for i, position in enumerate(p.tolist()):
        exact = x[:, :, i].double() @ rotation_matrix(spec, position, 131_072).T
        bound = torch.finfo(dtype).eps / 2 * exact.abs() + 2e-6
        assert ((made[:, :, i].double() - exact).abs() <= bound).all()


@pytest.mark.skipif(CXX is None, reason="no C++ compiler: the compiled rotation cannot be built")
@layouts
def test_imp_1325_the_compiled_kernel_too(layout):
    spec, p = EVERY["llama3"].replace(layout=layout), torch.tensor([131_071, 1])
    x = normal(1, 2, 2, HEAD, dtype=torch.float32)
    made = apply_rotary(x, *spec.build().tables(p), layout=layout, fused=True)
    for i, position in enumerate(p.tolist()):
        exact = x[:, :, i].double() @ rotation_matrix(spec, position).T
        torch.testing.assert_close(made[:, :, i].double(), exact, rtol=0, atol=2e-6)


class Watch(TorchDispatchMode):
    """Notes every operation that makes float64 on a device without it, or casts to float64 on its way from there."""

    def __init__(self):
        super().__init__()
        self.faults, self.seen = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sources = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.device.type == "mps"]
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self.seen += x.device.type == "mps"
                here = x.device.type == "mps" or any(s.dtype != x.dtype for s in sources)
                if x.dtype == torch.float64 and here:
                    self.faults.append(str(func))
        return out


class Views(TorchFunctionMode):
    """Indexing by views: PyTorch's own asks the driver of the device, which a faked device has not."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return view(*args) if func is torch.Tensor.__getitem__ else func(*args, **(kwargs or {}))


def view(x, index):
    """x[index] for an index of slices, None and one ellipsis."""
    dim = 0
    index = index if isinstance(index, tuple) else (index,)
    for i, item in enumerate(index):
        if item is Ellipsis:
            dim = x.dim() - sum(later is not None for later in index[i + 1 :])
        elif item is None:
            x, dim = x.unsqueeze(dim), dim + 1
        else:
            start, stop, step = item.indices(x.shape[dim])
            assert step == 1
            x, dim = x.narrow(dim, start, stop - start), dim + 1
    return x


FAKED = EVERY | {
    "alibi": AlibiSpec(), "symmetric": AlibiSpec(variant="symmetric"), "sinusoidal": SinusoidalSpec(),
    "integer": IntegerSpec(),
}  # fmt: skip


@pytest.mark.parametrize("spec", FAKED.values(), ids=FAKED)
def test_transformers_46174_no_float64_on_a_device_without_it(spec):
    """Tensors of Apple's GPU, faked: shapes, dtypes and devices without values, so the length is given."""
    with FakeTensorMode(allow_non_fake_inputs=True), Views():
        p = torch.arange(4, device="mps")
        q = torch.empty(1, 8, 4, HEAD, device="mps", dtype=torch.bfloat16)
        x = torch.empty(1, 4, 128, device="mps")
        encoding = Rope(spec, seq_len=4096) if spec.scheme == "rope" else spec.build()
        with Watch() as watch:
            if spec.hook == "rotate":
                made = encoding.rotate(q, q, p, p)
            else:
                made = (encoding.bias(p, p, q, q) if spec.hook == "bias" else encoding.embed(x, p),)
        assert all(t.device.type == "mps" for t in made)
        assert all(t.dtype == (x if spec.hook == "embed" else q).dtype for t in made)
    assert watch.seen > 0
    assert watch.faults == []


def test_transformers_46174_the_watch_sees_a_fault():
    with FakeTensorMode(), Watch() as watch:
        torch.arange(4, device="mps").to("cpu", torch.float64)
        torch.arange(4, device="mps") * torch.ones(4, device="mps", dtype=torch.float64)
    assert len(watch.faults) == 3


@by_length
def test_transformers_46174_the_length_is_looked_up_without_float64_there(spec):
    with FakeTensorMode(allow_non_fake_inputs=True), Watch() as watch:
        p = torch.arange(4, device="mps")
        with pytest.raises(Exception, match=r"_local_scalar_dense"):  # a fake tensor has no value to look up
            spec.build().length(p)
    assert watch.seen > 0
    assert watch.faults == []


@every_rope
def test_transformers_45902_right_after_to_empty_from_meta(spec):
    x, p = normal(1, 1, 3, HEAD), torch.tensor([1, 2, 5000])
    expected = turn(spec.build(), x, p)
    with torch.device("meta"):
        born = Model(spec)
    used = Model(spec)
    used.rotary_emb.tables(p)
    for model in (born, used.to("meta")):
        rope = model.to_empty(device="cpu").rotary_emb
        assert torch.equal(turn(rope, x, p), expected)
        assert rope.inv_freq.tolist() == pytest.approx(frequencies(spec), rel=1e-12)


@every_rope
def test_neuronx_nemo_megatron_21_tables_are_not_saved_and_old_checkpoints_load(spec):
    model = Model(spec)
    model.rotary_emb.tables(torch.arange(4))
    assert list(model.state_dict()) == ["q_proj.weight"]
    old = model.state_dict() | {
        "rotary_emb.inv_freq": torch.full((HEAD // 2,), 7.0).bfloat16(),
        "rotary_emb.cos_cached": torch.full((4, HEAD), torch.nan),
    }
    assert model.load_state_dict(old, strict=False).missing_keys == []
    exact = exact_tables(spec, 3, 4)
    for table, values in zip(model.rotary_emb.tables(torch.arange(4)), exact, strict=True):
        assert table[3].tolist() == pytest.approx(values, abs=1e-7)
    with pytest.raises(RuntimeError, match=r"rotary_emb\.inv_freq"):  # strict: named, not loaded
        model.load_state_dict(old)


@by_length
def test_transformers_27227_short_after_long_equals_a_fresh_module(spec):
    used, x = spec.build(), normal(1, 1, 8, HEAD)
    short, long = torch.arange(8), torch.arange(8) + 3 * TRAINED
    fresh = turn(spec.build(), x, short)
    for positions in (short, long, short, long + TRAINED, long, short):
        assert torch.equal(turn(used, x, positions), turn(spec.build(), x, positions))
    assert torch.equal(turn(used, x, short), fresh)
    assert torch.equal(turn(copy.deepcopy(used), x, short), fresh)
    assert not torch.equal(turn(spec.build(), x, short), Rope(spec, seq_len=3 * TRAINED).rotate(x, x, short, short)[0])


def decoded(spec, q, k, start):
    """Last-query scores of a decoder that caches rotated keys: a prompt of `start` tokens, then one at a time."""
    rope, n = spec.build(), k.shape[-2]
    cache = rope.rotate(q[..., :start, :], k[..., :start, :], torch.arange(start), torch.arange(start))[1]
    for i in range(start, n):
        p = torch.tensor([i])
        query, key = rope.rotate(q[..., i : i + 1, :], k[..., i : i + 1, :], p, p)
        cache = torch.cat([cache, key], dim=-2)
    return (query @ cache.mT)[..., 0, :] / math.sqrt(HEAD)


def recomputed(spec, q, k):
    n = k.shape[-2]
    return attention_scores(q[..., -1:, :], k, spec.build(), torch.tensor([n - 1]), torch.arange(n))[..., 0, :]


@every_rope
def test_transformers_25104_cached_keys_keep_the_old_frequencies(spec):
    """Exact for every static scaling; else the error of rms √(2·Σ(2 - 2cos δ)/D), δ = (w_then - w_now)·position."""
    spec = spec.replace(original_max_position_embeddings=48) if spec.by_length else spec
    n, start = 64, 32
    q, k = normal(400, 1, n, HEAD), normal(400, 1, n, HEAD, seed=1)
    error = (decoded(spec, q, k, start) - recomputed(spec, q, k)).square().mean((0, 1)).sqrt().tolist()
    if not spec.by_length:
        assert max(error) < 1e-12
        return
    now = frequencies(spec, n)
    for position in range(n):
        then = frequencies(spec, max(start, position + 1))
        turned = [2 - 2 * math.cos((a - b) * position) for a, b in zip(then, now, strict=True)]
        expected = math.sqrt(2 * sum(turned) / HEAD) * scales(spec)[0] ** 2
        assert error[position] == pytest.approx(expected, rel=0.15, abs=1e-12)
    assert max(error[:48]) > 0.1
    assert max(error[48:]) < max(error[:48])


@by_length
def test_transformers_33129_the_analysis_gives_that_error(spec):
    lengths = [max(1024, p + 1) for p in range(0, 3 * TRAINED, 501)]
    cached, positions = frequencies_at(spec, lengths), torch.arange(0, 3 * TRAINED, 501)
    now = spec.inv_freq(3 * TRAINED)
    made = cache_error(spec, cached, now, positions)
    for error, length, position in zip(made.tolist(), lengths, positions.tolist(), strict=True):
        then = frequencies(spec, length)
        turned = [2 - 2 * math.cos((a - b) * position) for a, b in zip(then, now.tolist(), strict=True)]
        assert error == pytest.approx(math.sqrt(2 * sum(turned) / HEAD), rel=1e-9)
    assert float(made.max()) > 0.5
    assert float(made[0]) == 0


def test_transformers_33129_no_error_under_the_fixed_variant():
    spec = EVERY["dynamic"].replace(dynamic_length="maximum", original_max_position_embeddings=48)
    q, k = normal(2, 1, 64, HEAD), normal(2, 1, 64, HEAD, seed=1)
    torch.testing.assert_close(decoded(spec, q, k, 32), recomputed(spec, q, k), rtol=0, atol=1e-12)


@every_rope
def test_foundation_model_stack_64_one_graph_and_nothing_mutated(spec):
    torch.compiler.reset()
    rope = spec.replace(layout="interleaved").build()
    before = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in vars(rope).items()}
    compiled = torch.compile(lambda q, k, p: rope.rotate(q, k, p, p), fullgraph=True, backend="eager", dynamic=True)
    for start in (0, 3 * TRAINED, 5):  # past the trained length and back
        q, k, p = normal(1, 2, 4, HEAD), normal(1, 1, 4, HEAD, seed=1), torch.arange(start, start + 4)
        expected = spec.replace(layout="interleaved").build().rotate(q, k, p, p)
        for made, right in zip(compiled(q, k, p), expected, strict=True):
            torch.testing.assert_close(made, right, rtol=0, atol=1e-12)
    assert list(rope.buffers()) == []
    for name, value in before.items():
        now = vars(rope)[name]
        assert torch.equal(now, value) if isinstance(value, torch.Tensor) else now == value, name


@by_length
def test_vllm_33800_the_graph_holds_no_write(spec):
    """In the traced graph no input is written to, and the length stays a tensor, so the CPU need not wait for it."""
    torch.compiler.reset()
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph.forward

    rope = spec.build()
    compiled = torch.compile(lambda q, p: rope.rotate(q, q, p, p)[0], fullgraph=True, backend=keep)
    compiled(normal(1, 1, 4, HEAD), torch.arange(4))
    targets = {getattr(n.target, "__name__", str(n.target)) for n in graphs[0].graph.nodes if n.op.startswith("call")}
    assert {"cos", "sin", "max"} <= targets
    assert not {t for t in targets if t.endswith("_") and not t.endswith("__")}
    assert not targets & {"item", "copy_", "setitem"}
    assert len(graphs) == 1


# ------------------------------------------------------------------ layout and partial rotation


def evens_then_odds(dim):
    return [2 * i for i in range(dim // 2)] + [2 * i + 1 for i in range(dim // 2)]


@every_rope
def test_transformers_34741_both_layouts_give_the_same_scores_once_permuted(spec):
    half, inter, p = spec.build(), spec.replace(layout="interleaved").build(), torch.tensor([0, 3, 4, 5000])
    q, k = normal(1, 2, 4, HEAD), normal(1, 2, 4, HEAD, seed=1)
    index = evens_then_odds(spec.rotary_dim) + list(range(spec.rotary_dim, HEAD))
    expected = attention_scores(q, k, inter, p, p)
    torch.testing.assert_close(attention_scores(q[..., index], k[..., index], half, p, p), expected, rtol=0, atol=1e-11)
    assert (attention_scores(q, k, half, p, p) - expected).abs().max() > 0.1
    back = torch.tensor(index).argsort()
    torch.testing.assert_close(
        attention_scores(q[..., index][..., back], k[..., index][..., back], inter, p, p), expected, rtol=0, atol=0
    )


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 1), (6, 2)])
def test_nanochat_264_the_proof_holds_for_weights_of_grouped_queries(heads, kv_heads):
    spec = RopeSpec(d_head=16, layout="interleaved", rotary_fraction=0.5)
    proof = prove_layout(spec, heads, kv_heads)
    assert proof.permuted < 1e-11 * proof.spread
    assert proof.unpermuted > 0.1 * proof.spread
    weight = normal(heads * 16, 8)
    moved = permute_weights(weight, heads, 8, "half")
    index = [0, 2, 4, 6, 1, 3, 5, 7, *range(8, 16)]
    for h in range(heads):
        assert torch.equal(moved[16 * h : 16 * h + 16], weight[16 * h : 16 * h + 16][index])


def test_transformers_40462_swapped_halves_are_not_the_paper():
    """By hand: (1, 2, 3, 4) turned by 90° in both pairs, each layout with its own pairs and sign."""
    cos, sin, x = torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert apply_rotary(x, cos, sin, "half").tolist() == [[-3.0, -4.0, 1.0, 2.0]]
    assert apply_rotary(x, cos, sin, "interleaved").tolist() == [[-2.0, 1.0, -4.0, 3.0]]


def test_transformers_39687_deepseeks_interleaved_weights_equal_the_permuted_half_split():
    """MLA: 128 features without positions, then 64 that rotate; only those are permuted."""
    spec = RopeSpec(d_head=64, scaling="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=1.0,
                    mscale_all_dim=1.0, layout="interleaved")  # fmt: skip
    q, k, p = normal(1, 2, 5, 192), normal(1, 2, 5, 192, seed=1), torch.tensor([0, 1, 7, 4096, 100_000])

    def scores(q, k, layout):
        rope = spec.replace(layout=layout).build()
        turned = rope.rotate(q[..., 128:], k[..., 128:], p, p)
        return q[..., :128] @ k[..., :128].mT * rope.scales.scores + turned[0] @ turned[1].mT

    expected = scores(q, k, "interleaved")
    index = [*range(128), *(128 + i for i in evens_then_odds(64))]
    assert layout_permutation(192, 64, "half", start=128).tolist() == index
    torch.testing.assert_close(scores(q[..., index], k[..., index], "half"), expected, rtol=0, atol=1e-10)
    assert (scores(q, k, "half") - expected).abs().max() > 1
    for i in (0, 4):
        a, b = ([*rotate_complex(spec, x[0, 0, i, 128:].tolist(), int(p[i]))] for x in (q, k))
        dot = sum(x * y for x, y in zip(a, b, strict=True)) + float(q[0, 0, i, :128] @ k[0, 0, i, :128])
        g = 0.1 * math.log(40) + 1
        assert float(expected[0, 0, i, i]) == pytest.approx(dot * g**2, rel=1e-12)


@pytest.mark.parametrize("turned", ["interleaved", "half"])
@pytest.mark.parametrize("form", ["4 decimals", "float16"])
def test_hipfire_241_the_wrong_layout_is_recognised_from_the_numbers(form, turned):
    """One vector before and after the rotation at position 7, by a model whose weights want half-split."""
    model = RopeSpec(d_head=128, base=5e5, scaling="llama3", factor=8.0)
    x = normal(128)
    x = x.half().double() if form == "float16" else x
    made = torch.tensor(rotate_complex(model.replace(layout=turned), x.tolist(), 7, 8), dtype=torch.float64)
    made = made.half() if form == "float16" else made
    digits = 8 if form == "float16" else 4
    texts = (f"[{', '.join(f'{v:.{digits}f}' for v in values.tolist())}]" for values in (x, made))
    found = fingerprint(f"x = {next(texts)}\nposition = 7\nrotated = {next(texts)}", expected=model)
    best = found.candidates[0]
    assert found.kind == "rotated"
    assert best.fits
    assert best.layout == turned
    assert (best.spec.base, best.spec.d_head) == (5e5, 128)
    assert ("interleaved" in best.sentence.lower()) == (turned == "interleaved")
    assert not [c for c in found.candidates if c.fits and c.layout != turned]


@pytest.mark.parametrize(("d_head", "fraction", "rotary_dim"), [(128, 0.25, 32), (80, 0.4, 32), (64, 0.5, 32)])
def test_pie_602_partial_rotation_divides_the_exponent_by_the_rotary_dim(d_head, fraction, rotary_dim):
    made = RopeSpec(d_head=d_head, rotary_fraction=fraction).inv_freq().tolist()
    assert made == pytest.approx([10_000 ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)], rel=1e-14)
    assert made[1] != pytest.approx(10_000 ** (-2 / d_head), rel=0.1)
    for spec in (EVERY["yarn"], EVERY["llama3"], EVERY["dynamic"]):
        partial = spec.replace(d_head=d_head, rotary_fraction=fraction).inv_freq(9000).tolist()
        assert partial == pytest.approx(spec.replace(d_head=rotary_dim).inv_freq(9000).tolist(), rel=1e-14)


@layouts
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("scaling", ["none", "linear", "dynamic", "yarn", "llama3"])
def test_transformers_48652_the_unrotated_tail_is_bit_identical(scaling, dtype, layout):
    spec = RopeSpec(d_head=HEAD, rotary_fraction=0.25, scaling=scaling, layout=layout,
                    **({} if scaling == "none" else {"factor": 8.0}))  # fmt: skip
    x = normal(2, 2, 5, HEAD, dtype=dtype)
    for made in spec.build().rotate(x, x, torch.arange(9000, 9005), torch.arange(9000, 9005)):
        assert torch.equal(made[..., 16:], x[..., 16:])
        assert all(not torch.equal(made[..., i], x[..., i]) for i in range(16))


def test_mlx_lm_1698_no_feature_of_the_tail_leaks_into_the_head():
    spec = RopeSpec(d_head=HEAD, rotary_fraction=0.25)
    x = normal(1, 1, 3, HEAD)
    other = torch.cat([x[..., :16], normal(1, 1, 3, HEAD - 16, seed=5)], dim=-1)
    assert torch.equal(
        turn(spec.build(), x, torch.arange(3))[..., :16], turn(spec.build(), other, torch.arange(3))[..., :16]
    )


@pytest.mark.parametrize(("head_dim", "fraction"), [(512, 0.25), (64, 0.5), (8, 0.25)])
def test_coreai_models_66_proportional_has_the_head_dims_exponent_zeros_and_pairs_across_the_head(head_dim, fraction):
    spec = RopeSpec(d_head=head_dim, base=1e6, scaling="proportional", rotary_fraction=fraction)
    turning = int(head_dim * fraction) // 2
    made = spec.inv_freq().tolist()
    assert made[:turning] == pytest.approx([1e6 ** (-2 * i / head_dim) for i in range(turning)], rel=1e-14)
    assert made[turning:] == [0.0] * (head_dim // 2 - turning)
    x = normal(1, 1, 1, head_dim, dtype=torch.float32)
    turned = turn(spec.build(), x, torch.tensor([7]))
    moved = {i for i in range(head_dim) if not torch.equal(turned[..., i], x[..., i])}
    assert moved == {i + half for i in range(turning) for half in (0, head_dim // 2)}
    assert [p for p, _ in pairs(spec)][:2] == [(0, head_dim // 2), (1, 1 + head_dim // 2)]


def test_megatron_bridge_4195_proportional_is_not_partial():
    partial, proportional = (RopeSpec(d_head=64, rotary_fraction=0.25, scaling=s) for s in ("none", "proportional"))
    x, p = normal(1, 1, 1, 64), torch.tensor([7])
    assert partial.inv_freq().shape == (8,)
    assert proportional.inv_freq().shape == (32,)
    assert (turn(partial.build(), x, p) - turn(proportional.build(), x, p)).abs().max() > 0.1


# ------------------------------------------------------------------ biases and absolute encodings


def test_mlx_3071_slopes_of_12_heads_are_the_papers():
    eight = [2.0**-i for i in range(1, 9)]
    sixteen = [2.0 ** (-i / 2) for i in range(1, 17)]
    assert alibi_slopes(12).tolist() == pytest.approx(eight + sixteen[0:8:2], rel=1e-14)
    interpolated = [2.0 ** (-8 * i / 12) for i in range(1, 13)]  # the fault: the power-of-two rule for 12 heads
    assert max(abs(a - b) for a, b in zip(alibi_slopes(12).tolist(), interpolated, strict=True)) > 0.1


@pytest.mark.parametrize("n", [1, 2, 3, 6, 12, 20, 24, 40, 48, 71, 96, 112, 256])
def test_aprender_2143_slopes_of_any_number_of_heads(n):
    assert alibi_slopes(n).tolist() == pytest.approx(recipe_slopes(n), rel=1e-12)


def test_baichuan2_225_slopes_of_40_heads_rise_again_after_the_32nd():
    slopes = alibi_slopes(40).tolist()
    assert slopes == pytest.approx(recipe_slopes(40), rel=1e-13)
    falls = [b < a for a, b in pairwise(slopes)]
    assert [i for i, f in enumerate(falls) if not f] == [31]
    assert slopes[:32] == pytest.approx([2 ** (-8 * i / 32) for i in range(1, 33)], rel=1e-13)
    assert slopes[32:] == pytest.approx([2 ** (-8 * i / 64) for i in range(1, 17, 2)], rel=1e-13)


@pytest.mark.parametrize("variant", ["causal", "symmetric"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_attention_gym_86_the_bias_is_never_above_zero(variant, dtype):
    p, q = torch.tensor([0, 1, 1, 5, 100_000, 7]), torch.zeros(1, dtype=dtype)
    bias = AlibiSpec(n_heads=12, variant=variant).build().bias(p, p, q, q)
    assert not bias.isnan().any()
    assert (bias <= 0).all()
    assert (bias[:, 1, 2] == 0).all()


@pytest.mark.parametrize("need_weights", [True, False])
def test_transformers_30123_alibi_keeps_the_causal_mask(need_weights):
    q, k, v, p = normal(1, 8, 6, 16), normal(1, 8, 6, 16, seed=1), normal(1, 8, 6, 16, seed=2), torch.arange(6)
    later = torch.cat([v[..., :4, :], normal(1, 8, 2, 16, seed=9)], dim=-2)
    for variant in ("causal", "symmetric"):
        encoding = AlibiSpec(n_heads=8, variant=variant).build()
        out, weights = attention(q, k, v, encoding, p, p, causal=True, need_weights=need_weights)
        changed, _ = attention(q, k, later, encoding, p, p, causal=True, need_weights=need_weights)
        torch.testing.assert_close(out[..., :4, :], changed[..., :4, :], rtol=0, atol=1e-12)
        assert (out[..., 4:, :] - changed[..., 4:, :]).abs().max() > 0.01
        if need_weights:
            assert torch.equal(weights, weights.tril())
    plain = alibi_attention(q, k, v, alibi_slopes(8))
    torch.testing.assert_close(plain[..., :4, :], alibi_attention(q, k, later, alibi_slopes(8))[..., :4, :])


@pytest.mark.parametrize("shift", [1, 4096, 10**6])
def test_vllm_945_shifting_all_positions_leaves_causal_alibi_attention_unchanged(shift):
    q, k, v, p = normal(1, 12, 6, 16), normal(1, 12, 6, 16, seed=1), normal(1, 12, 6, 16, seed=2), torch.arange(6)
    encoding = AlibiSpec(n_heads=12).build()
    expected = attention(q, k, v, encoding, p, p)[0]
    assert torch.equal(attention(q, k, v, encoding, p + shift, p + shift)[0], expected)
    padded = torch.tensor([0, 0, 0, 1, 2, 3]) + shift  # left padding: positions start at the first token
    mask = torch.tensor([False, False, True, True, True, True])
    out = attention(q, k, v, encoding, padded, padded, mask=mask)[0]
    alone = attention(q[..., 2:, :], k[..., 2:, :], v[..., 2:, :], encoding, p[:4], p[:4])[0]
    torch.testing.assert_close(out[..., 2:, :], alone, rtol=0, atol=1e-12)


def test_llm_foundry_186_a_bias_of_key_positions_alone_is_the_same_after_the_softmax():
    """-slope·(i - j) and slope·j differ by a constant a row, so causal attention does not tell them apart."""
    scores, j = normal(8, 6, 6), torch.arange(6)
    bias = AlibiSpec().build().bias(j, j, scores)
    keys_only = (alibi_slopes(8)[:, None, None] * j).expand(8, 6, 6).masked_fill(bias.isinf(), -torch.inf)
    torch.testing.assert_close((scores + bias).softmax(-1), (scores + keys_only).softmax(-1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", [SinusoidalSpec, LearnedSpec, IntegerSpec])
@pytest.mark.parametrize("d_model", [2, 6, 130])
def test_pyaptamer_526_an_even_d_model_that_is_no_multiple_of_4_works(cls, d_model):
    encoding, x = cls(d_model=d_model).build(), torch.zeros(1, 5, d_model)
    made = encoding.embed(x, torch.arange(5))
    assert made.shape == x.shape
    assert made.isfinite().all()
    with pytest.raises(SpecError, match="in steps of 2"):
        cls(d_model=d_model + 1)


@pytest.mark.parametrize("cls", [SinusoidalSpec, LearnedSpec, IntegerSpec])
@pytest.mark.parametrize("d_model", [1, 3, 65, 511])
def test_bert_pytorch_78_an_odd_d_model_is_refused_with_a_clear_message(cls, d_model):
    with pytest.raises(SpecError) as caught:
        cls(d_model=d_model)
    assert f"d_model = {d_model} is not legal" in str(caught.value)
    assert "from 2 to 16,384 in steps of 2" in str(caught.value)


def test_loftr_41_the_exponent_is_2i_over_d():
    """2i//d, i/d·2//1 and the like give other numbers: values for d = 6, by hand from 10000^(-1/3) = 0.0464…"""
    third = 10_000 ** (1 / 3)
    expected = [1.0, 1 / third, 1 / third**2]
    assert SinusoidalSpec(d_model=6).inv_freq().tolist() == pytest.approx(expected, rel=1e-14)
    assert RopeSpec(d_head=6).inv_freq().tolist() == pytest.approx(expected, rel=1e-14)
    made = SinusoidalSpec(d_model=6).build().vectors(torch.tensor([2]))[0].tolist()
    assert made == pytest.approx([f(2 * w) for w in expected for f in (math.sin, math.cos)], rel=1e-13)


# ------------------------------------------------------------------ refused, and accepted


REFUSED = {
    "odd rotary dim 65": ({"d_head": 65}, "d_head", "65", "in steps of 2"),
    "odd rotary dim from a fraction": (
        {"d_head": 130, "rotary_fraction": 0.5}, "rotary_fraction", "65", "even rotary dim",
    ),
    "base 1": ({"base": 1.0}, "base", "1.0", "from 1.001"),
    "base 0": ({"base": 0.0}, "base", "0.0", "from 1.001"),
    "base -10000": ({"base": -10_000.0}, "base", "-10000.0", "from 1.001"),
    "base nan": ({"base": math.nan}, "base", "nan", "from 1.001"),
    "fraction 0": ({"rotary_fraction": 0.0}, "rotary_fraction", "0.0", "to 1"),
    "fraction -0.5": ({"rotary_fraction": -0.5}, "rotary_fraction", "-0.5", "to 1"),
    "fraction 1.5": ({"rotary_fraction": 1.5}, "rotary_fraction", "1.5", "to 1"),
    "unknown scaling": ({"scaling": "mystery"}, "scaling", "mystery", "linear"),
    "factor text": ({"scaling": "linear", "factor": "8"}, "factor", "'8'", "from 1 to 4,096"),
    "factor nan": ({"scaling": "yarn", "factor": math.nan}, "factor", "nan", "from 1 to 4,096"),
    "factor infinity": ({"scaling": "dynamic", "factor": math.inf}, "factor", "inf", "from 1 to 4,096"),
    "factor below 1": ({"scaling": "llama3", "factor": 0.5}, "factor", "0.5", "from 1 to 4,096"),
    "factor 0": ({"scaling": "ntk", "factor": 0}, "factor", "0", "from 1 to 4,096"),
    "swapped betas": (
        {"scaling": "yarn", "beta_fast": 1.0, "beta_slow": 32.0}, "beta_fast", "1.0", "at least beta_slow = 32",
    ),
    "swapped low and high": (
        {"scaling": "llama3", "low_freq_factor": 4.0, "high_freq_factor": 1.0}, "high_freq_factor", "1.0", "at least",
    ),
    "short list": ({"scaling": "longrope", "short_factor": (1.0,) * 31}, "short_factor", "31 given", "32 numbers"),
    "long list": ({"scaling": "longrope", "long_factor": (1.0,) * 33}, "long_factor", "33 given", "32 numbers"),
    "list of the head dim": (
        {"scaling": "longrope", "rotary_fraction": 0.5, "long_factor": (1.0,) * 32}, "long_factor", "32 given",
        "16 numbers",
    ),
    "sections": ({"mrope_section": (16, 24, 24)}, "mrope_section", "sum to 64", "rotary_dim/2 = 32"),
    "dynamic with rotary dim 2": ({"scaling": "dynamic", "d_head": 2}, "rotary_fraction", "= 2", "at least 4"),
    "dynamic with a rotary dim of 2": (
        {"scaling": "dynamic", "d_head": 8, "rotary_fraction": 0.25}, "rotary_fraction", "= 2", "at least 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "name", "value", "legal"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize(
    "make", [lambda f: RopeSpec(**f), lambda f: parse_spec({"scheme": "rope"} | f)], ids=["class", "parse"]
)
def test_refused_names_the_value_and_the_legal_range(make, fields, name, value, legal):
    with pytest.raises(SpecError) as caught:
        make(fields)
    (problem,) = caught.value.problems
    assert problem.name == name
    assert value in str(problem)
    assert legal in problem.legal


def test_refused_an_unknown_scaling_lists_the_known_ones():
    with pytest.raises(SpecError) as caught:
        parse_spec({"scheme": "rope", "scaling": "default"})
    assert all(s in str(caught.value) for s in RopeSpec.param("scaling").choices)
    with pytest.raises(SpecError) as caught:
        parse_spec({"scheme": "rope2"})
    assert all(s in str(caught.value) for s in SCHEMES)


def test_accepted_llama3_with_equal_thresholds():
    """Llama 4 Scout: 35 pairs kept, 29 divided, no NaN from a division by zero."""
    spec = RopeSpec(d_head=128, base=5e5, scaling="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0)
    ratio = (RopeSpec(d_head=128, base=5e5).inv_freq() / spec.inv_freq()).tolist()
    assert ratio == pytest.approx([1.0] * 35 + [16.0] * 29, rel=1e-14)


@pytest.mark.parametrize("scaling", ["linear", "yarn", "dynamic", "llama3", "longrope"])
def test_accepted_an_integer_factor(scaling):
    integer, number = RopeSpec(scaling=scaling, factor=8), RopeSpec(scaling=scaling, factor=8.0)
    assert integer == number
    assert torch.equal(integer.inv_freq(9000), number.inv_freq(9000))


@pytest.mark.parametrize("truncate", [True, False])
def test_accepted_truncate(truncate):
    spec = RopeSpec(scaling="yarn", factor=8.0, truncate=truncate)
    assert spec.truncate is truncate
    assert spec.inv_freq().tolist() == pytest.approx(frequencies(spec), rel=1e-12)
