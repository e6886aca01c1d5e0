import math
import re
import sys

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from support import SIZES, plain_schemes, recipe_slopes, reference, rotation_matrix, scales, sized, specs

from posenc_core import (
    SCHEMES,
    PositionalEncoding,
    SpecError,
    alibi_slopes,
    attention,
    build,
    parse_query,
    rope_frequencies,
)
from posenc_core.attention import attention_scores
from posenc_core.schemes import SIZES as SIZE_NAMES
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import Rope, RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec

schemes = pytest.mark.parametrize("cls", SCHEMES.values(), ids=SCHEMES)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------ every scheme


@schemes
def test_builds_by_default_and_by_sizes(cls):
    for encoding in (build(cls()), cls().build(), sized(cls)):
        assert isinstance(encoding, PositionalEncoding)
        assert type(encoding.spec) is cls
    spec = sized(cls).spec
    for layer in spec.layers if cls.hook == "layers" else [spec]:
        for p in layer.params():
            if p.name in SIZES and layer.applies(p):
                assert getattr(layer, p.name) == SIZES[p.name]


def test_a_size_that_is_not_read_is_left_alone():
    assert build(IntegerSpec(), max_position_embeddings=32, d_model=8).spec == IntegerSpec(d_model=8)


@schemes
def test_build_refuses_sizes_it_does_not_know(cls):
    with pytest.raises(TypeError, match="n_layers"):
        build(cls(), n_layers=2)
    assert set(SIZES) == set(SIZE_NAMES)


@schemes
def test_the_paper_is_on_line_one(cls):
    assert re.search(r"\b(19|20)\d\d\b", sys.modules[cls.__module__].__doc__.splitlines()[0])


@schemes
def test_every_hook_but_its_own_is_the_identity(cls):
    encoding, hook = sized(cls), cls.hook
    x, q, k, p = normal(2, 6, 32), normal(2, 4, 6, 16), normal(2, 2, 6, 16, seed=1), torch.arange(1, 7)
    if hook == "layers":
        assert len(encoding.layers) == len(encoding.spec.layers)
        for hooked in (lambda: encoding.rotate(q, k, p, p), lambda: encoding.bias(p, p)):
            with pytest.raises(TypeError, match="one encoding a layer"):
                hooked()
        return
    assert encoding.layers is None
    assert encoding.layer(0) is encoding.layer(5) is encoding
    turned = encoding.rotate(q, k, p, p)
    assert torch.equal(encoding.embed(x, p), x) == (hook != "embed")
    assert (torch.equal(turned[0], q) and torch.equal(turned[1], k)) == (hook != "rotate")
    assert (encoding.bias(p, p) is None) == (hook != "bias")


@schemes
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_hooks_keep_dtype_and_shape(cls, dtype):
    encoding = sized(cls)
    x, p = normal(2, 6, 32).to(dtype), torch.arange(6).expand(2, 6)
    embedded = encoding.embed(x, p)
    assert embedded.shape == x.shape
    assert embedded.dtype == dtype
    q, k = normal(2, 4, 6, 16).to(dtype), normal(2, 2, 6, 16).to(dtype)
    layer = encoding.layer(0)
    for made, given_ in zip(layer.rotate(q, k, p, p), (q, k), strict=True):
        assert (made.dtype, made.shape) == (dtype, given_.shape)
    bias = layer.bias(p, p, q, k)
    if bias is not None:
        assert (bias.dtype, bias.shape) == (dtype, (2, 4, 6, 6))


@schemes
def test_only_a_trained_table_is_in_the_state_dict(cls):
    assert set(sized(cls).state_dict()) == ({"table"} if cls is LearnedSpec else set())


@schemes
def test_numbers_do_not_follow_half_or_meta(cls):
    if cls is LearnedSpec:
        pytest.skip("a trained table is a parameter: it follows the module's dtype and device")
    x, p = normal(1, 4, 32), torch.tensor([0, 1, 5, 30])

    def numbers(encoding):
        layers = [encoding.layer(i) for i in range(len(encoding.layers or [0]))]
        q = normal(1, 4, 4, 16)
        return [encoding.embed(x, p), *(y.rotate(q, q, p, p)[0] for y in layers)] + [
            y.bias(p, p, q, q) for y in layers if y.bias(p, p) is not None
        ]

    expected = numbers(sized(cls))
    with torch.device("meta"):
        born = sized(cls)
    for other in (
        sized(cls).half(),
        sized(cls).to("meta").to_empty(device="cpu"),
        born.to_empty(device="cpu"),
    ):
        for a, b in zip(expected, numbers(other), strict=True):
            assert torch.equal(a, b)


def test_custom_slopes_survive_construction_on_meta():
    with torch.device("meta"):
        encoding = AlibiSpec(n_heads=2, slopes=(0.5, 0.25)).build()
    assert encoding.bias(torch.tensor([2]), torch.tensor([0])).flatten().tolist() == [-1.0, -0.5]


@pytest.mark.parametrize("cls", plain_schemes("none", "rotate", "bias"), ids=lambda c: c.scheme)
@given(data=st.data())
def test_what_is_legal_has_numbers(cls, data):
    spec = data.draw(specs(cls, d_head=8) if cls is RopeSpec else specs(cls))
    encoding, q, p = spec.build(), normal(1, getattr(spec, "n_heads", 2), 3, 8), torch.tensor([0, 5, 10**7])
    turned, bias = encoding.rotate(q, q, p, p)[0], encoding.bias(p, p, q, q)
    assert turned.isfinite().all()
    assert bias is None or bias.tril().nan_to_num(neginf=math.nan, posinf=math.nan).isfinite().all()


# ------------------------------------------------------------------ none


def permuted(encoding, causal):
    q, k, v, p = normal(1, 4, 6, 16), normal(1, 4, 6, 16, seed=1), normal(1, 4, 6, 16, seed=2), torch.arange(6)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    plain = attention(q, k, v, encoding, p, p, causal=causal)[0]
    shuffled = attention(q[:, :, order], k[:, :, order], v[:, :, order], encoding, p, p, causal=causal)[0]
    return float((shuffled - plain[:, :, order]).abs().max())


def test_without_positions_attention_is_permutation_equivariant():
    assert permuted(build(NoneSpec()), causal=False) < 1e-14


def test_the_causal_mask_breaks_the_equivariance():
    assert permuted(build(NoneSpec()), causal=True) > 0.1


@pytest.mark.parametrize("spec", [RopeSpec(d_head=16), AlibiSpec(n_heads=4, variant="symmetric")])
def test_relative_schemes_break_the_equivariance(spec):
    assert permuted(build(spec), causal=False) > 0.01


# ------------------------------------------------------------------ integer


def test_integer_variants():
    p = torch.tensor([0, 3, 100])
    assert IntegerSpec(d_model=2).build().vectors(p).tolist() == [[0, 0], [3, 3], [100, 100]]
    made = IntegerSpec(variant="normalized", d_model=2, max_position_embeddings=101).build().vectors(p)
    assert made.tolist() == [[0.0, 0.0], [0.03, 0.03], [1.0, 1.0]]
    hot = IntegerSpec(variant="one_hot", d_model=4, max_position_embeddings=4).build().vectors(torch.tensor([2, 0]))
    assert hot.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize(("rows", "d_model", "defined"), [(4, 8, 4), (8, 4, 4), (128, 128, 128)])
def test_one_hot_ends_with_the_table_and_the_width(rows, d_model, defined):
    encoding = IntegerSpec(variant="one_hot", d_model=d_model, max_position_embeddings=rows).build()
    assert encoding.defined == defined
    assert torch.equal(encoding.vectors(torch.arange(defined)), torch.eye(d_model, dtype=torch.float64)[:defined])
    for bad in (defined, -1, 0.5, 10**12, math.nan):
        with pytest.raises(SpecError, match=rf"positions = {bad}.*whole numbers from 0 to {defined - 1}"):
            encoding.vectors(torch.tensor([0, bad]))


def test_the_other_variants_have_no_end():
    for variant in ("raw", "normalized"):
        encoding = IntegerSpec(variant=variant).build()
        assert encoding.defined is None
        assert encoding.vectors(torch.tensor([10**9])).isfinite().all()


# ------------------------------------------------------------------ sinusoidal


def paper(position, d_model, base):
    """PE(pos, 2i) = sin(pos / base^(2i/d_model)), PE(pos, 2i+1) = cos of the same."""
    out = []
    for i in range(d_model // 2):
        angle = position / base ** (2 * i / d_model)
        out += [math.sin(angle), math.cos(angle)]
    return out


@pytest.mark.parametrize("d_model", [2, 4, 6, 128, 512])
@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_sinusoidal_is_the_papers_formula(d_model, base):
    inter = SinusoidalSpec(d_model=d_model, base=base).build()
    concatenated = SinusoidalSpec(d_model=d_model, base=base, layout="concatenated").build()
    for position in (0, 1, 2, 3, 1000):
        expected = paper(position, d_model, base)
        p = torch.tensor([position])
        assert inter.vectors(p)[0].tolist() == pytest.approx(expected, abs=1e-12)
        assert concatenated.vectors(p)[0].tolist() == pytest.approx(expected[0::2] + expected[1::2], abs=1e-12)


def test_sinusoidal_by_value():
    made = SinusoidalSpec(d_model=4).build().vectors(torch.tensor([1]))[0].tolist()
    assert made == pytest.approx([0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004], abs=1e-10)


@pytest.mark.parametrize("endpoint", [False, True])
def test_the_longest_wavelength(endpoint):
    wavelengths = 2 * math.pi / SinusoidalSpec(d_model=128, endpoint=endpoint).inv_freq()
    assert float(wavelengths[0]) == pytest.approx(2 * math.pi, rel=1e-14)
    longest = 10_000 if endpoint else 10_000 ** (126 / 128)
    assert float(wavelengths[-1]) == pytest.approx(longest * 2 * math.pi, rel=1e-12)
    assert wavelengths.log().diff().std() < 1e-12


def test_endpoint_is_tensor2tensors_formula():
    """inv_timescales = exp(-i · log(base) / (num_timescales - 1)), sines then cosines."""
    step = math.log(10_000) / (8 - 1)
    angles = [5 * math.exp(-i * step) for i in range(8)]
    made = SinusoidalSpec(d_model=16, layout="concatenated", endpoint=True).build().vectors(torch.tensor([5]))
    assert made[0].tolist() == pytest.approx([math.sin(a) for a in angles] + [math.cos(a) for a in angles], abs=1e-12)
    assert SinusoidalSpec(d_model=2, endpoint=True).inv_freq().tolist() == [1.0]


@given(specs(SinusoidalSpec, d_model=16), st.floats(-1e7, 1e7))
def test_sinusoidal_is_bounded_and_has_a_fixed_norm(spec, position):
    made = spec.build().vectors(torch.tensor([position], dtype=torch.float64))
    assert made.abs().max() <= 1
    assert float(made.square().sum()) == pytest.approx(8, rel=1e-12)


def test_sinusoidal_vectors_are_unique():
    table = SinusoidalSpec(d_model=32).build().vectors(torch.arange(4096))
    assert float(torch.cdist(table, table).fill_diagonal_(torch.inf).min()) > 0.1


@given(specs(SinusoidalSpec, d_model=16), st.integers(0, 4096), st.integers(-4096, 4096))
def test_the_shift_map(spec, p, k):
    encoding = spec.build()
    here, there = encoding.vectors(torch.tensor([p, p + k]))
    moved = encoding.shift_map(k)
    torch.testing.assert_close(moved @ here, there, rtol=0, atol=4e-12)
    torch.testing.assert_close(moved @ moved.T, torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_shift_map_to_1e_12():
    encoding = SinusoidalSpec().build()
    for p, k in ((0, 1), (17, 5), (100, -30), (511, 512)):
        here, there = encoding.vectors(torch.tensor([p, p + k]))
        assert (encoding.shift_map(k) @ here - there).abs().max() < 1e-12


def test_the_dot_product_of_two_vectors_depends_on_the_distance_only():
    table = SinusoidalSpec(d_model=64).build().vectors(torch.arange(64))
    dots = table @ table.T
    w = SinusoidalSpec(d_model=64).inv_freq()
    for k in (0, 1, 20):
        expected = (k * w).cos().sum()
        torch.testing.assert_close(dots.diagonal(k), expected.expand(64 - k), rtol=0, atol=1e-11)


def test_sinusoidal_takes_fractions_batches_and_dtypes():
    encoding = SinusoidalSpec(d_model=8).build()
    assert encoding.vectors(torch.tensor([2.5]))[0].tolist() == pytest.approx(paper(2.5, 8, 1e4))
    p = torch.tensor([[0, 1], [7, 8]])
    x = torch.zeros(2, 2, 8)
    assert torch.equal(encoding.embed(x, p)[1], encoding.embed(x[:1], p[1])[0])
    assert encoding.embed(x.half(), p).dtype == torch.float16
    far = encoding.embed(torch.zeros(1, 1, 8), torch.tensor([10_000_000]))
    assert far.flatten().tolist() == pytest.approx(paper(10_000_000, 8, 1e4), abs=1e-7)


# ------------------------------------------------------------------ learned


def test_learned_adds_its_rows():
    encoding = LearnedSpec(max_position_embeddings=6, d_model=4).build()
    p = torch.tensor([[5, 0, 3], [1, 1, 2]])
    made = encoding.embed(torch.ones(2, 3, 4), p)
    for b in range(2):
        for i in range(3):
            assert torch.equal(made[b, i], 1 + encoding.table[p[b, i]])


def test_robertas_offset():
    encoding = LearnedSpec(max_position_embeddings=514, d_model=4, offset=2).build()
    assert encoding.defined == 512
    assert torch.equal(encoding.vectors(torch.tensor([0, 511])), encoding.table[[2, 513]])
    with pytest.raises(SpecError, match=r"positions = 512 .*512 rows.* 0 to 511"):
        encoding.vectors(torch.tensor([512]))


@pytest.mark.parametrize("bad", [128, 129, 10**12, -1, 0.5, math.nan, math.inf])
def test_past_a_learned_table_is_an_error_that_names_position_and_rows(bad):
    encoding = LearnedSpec(max_position_embeddings=128, d_model=4).build()
    with pytest.raises(SpecError) as caught:
        encoding.embed(torch.zeros(1, 3, 4), torch.tensor([[0, bad, 1]]))
    assert f"positions = {bad}" in str(caught.value)
    assert "128 rows" in str(caught.value)
    assert "from 0 to 127" in str(caught.value)


def test_a_learned_table_is_drawn_from_the_global_seed_and_trained():
    torch.manual_seed(3)
    a = LearnedSpec(max_position_embeddings=512, d_model=64).build()
    torch.manual_seed(3)
    b = LearnedSpec(max_position_embeddings=512, d_model=64).build()
    assert torch.equal(a.table, b.table)
    assert float(a.table.detach().std()) == pytest.approx(0.02, rel=0.05)
    a.embed(torch.zeros(1, 2, 64), torch.tensor([4, 4])).sum().backward()
    assert a.table.grad[4].tolist() == [2.0] * 64
    assert a.table.grad.count_nonzero() == 64


# ------------------------------------------------------------------ alibi

SLOPES = reference("alibi_slopes.json")["slopes"]


@pytest.mark.parametrize("n", SLOPES, ids=str)
def test_slopes_of_the_reference(n):
    made = alibi_slopes(int(n))
    assert made.dtype == torch.float64
    assert made.tolist() == pytest.approx(SLOPES[n], rel=1e-14)


def test_published_slopes():
    assert alibi_slopes(8).tolist() == [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    twelve = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
              0.7071067811865476, 0.35355339059327373, 0.17677669529663687, 0.08838834764831843]  # fmt: skip
    assert alibi_slopes(12).tolist() == pytest.approx(twelve, rel=1e-14)
    assert alibi_slopes(12).tolist() == pytest.approx(alibi_slopes(8).tolist() + alibi_slopes(16)[0:8:2].tolist())
    assert alibi_slopes(1).tolist() == [2.0**-8]


@given(st.integers(1, 256))
def test_slopes_follow_the_recipe(n):
    made = alibi_slopes(n)
    assert made.tolist() == pytest.approx(recipe_slopes(n), rel=1e-12)
    assert ((made > 0) & (made < 1)).all()
    assert made.unique().numel() == n
    assert bool((made.diff() < 0).all()) == (n & (n - 1) == 0)


@pytest.mark.parametrize("n", [0, -1, 2.0, "8", None, True])
def test_slopes_of_no_heads_are_refused(n):
    with pytest.raises(ValueError, match="n_heads = "):
        alibi_slopes(n)


def test_causal_bias_by_value():
    bias = AlibiSpec(n_heads=2, slopes=(0.5, 0.25)).build().bias(torch.arange(3), torch.arange(3))
    inf = math.inf
    assert bias.dtype == torch.float32
    assert bias.tolist() == [
        [[0, -inf, -inf], [-0.5, 0, -inf], [-1, -0.5, 0]],
        [[0, -inf, -inf], [-0.25, 0, -inf], [-0.5, -0.25, 0]],
    ]


def test_symmetric_bias_by_value():
    bias = AlibiSpec(n_heads=1, slopes=(0.5,), variant="symmetric").build().bias(torch.arange(3), torch.arange(3))
    assert bias.tolist() == [[[0, -0.5, -1], [-0.5, 0, -0.5], [-1, -0.5, 0]]]


@given(specs(AlibiSpec), st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_bias_is_slope_times_distance_and_never_above_zero(spec, positions):
    p = torch.tensor(positions)
    bias = spec.build().bias(p, p, q=torch.ones(1, dtype=torch.float64))
    assert bias.shape == (spec.n_heads, len(p), len(p))
    assert (bias <= 0).all()
    slopes = list(spec.slopes) or recipe_slopes(spec.n_heads)
    for h in (0, spec.n_heads - 1):
        for i, a in enumerate(positions):
            for j, b in enumerate(positions):
                expected = -math.inf if spec.variant == "causal" and b > a else -slopes[h] * abs(a - b)
                assert float(bias[h, i, j]) == pytest.approx(expected, rel=1e-12)


def test_batch_positions_give_a_bias_a_row():
    encoding, p = AlibiSpec(n_heads=3).build(), torch.tensor([[0, 1, 2], [4, 0, 9]])
    bias = encoding.bias(p, p)
    assert bias.shape == (2, 3, 3, 3)
    for b in range(2):
        assert torch.equal(bias[b], encoding.bias(p[b], p[b]))
    assert torch.equal(encoding.bias(p, torch.arange(3))[1], encoding.bias(p[1], torch.arange(3)))


def test_distances_are_taken_before_the_cast():
    encoding, q = AlibiSpec(n_heads=1, slopes=(1.0,)).build(), torch.ones(1, 1, 1, 8, dtype=torch.float16)
    bias = encoding.bias(torch.tensor([1_000_003]), torch.tensor([1_000_000, 1_000_003]), q, q)
    assert bias.dtype == torch.float16
    assert bias.flatten().tolist() == [-3.0, 0.0]


@pytest.mark.parametrize("variant", ["causal", "symmetric"])
def test_shifted_softmaxed_alibi_attention_is_unchanged(variant):
    encoding = AlibiSpec(n_heads=4, variant=variant).build()
    q, k, v, p = normal(1, 4, 6, 16), normal(1, 4, 6, 16, seed=1), normal(1, 4, 6, 16, seed=2), torch.arange(6)
    for shift in (1, 4096, 10**6):
        a = attention(q, k, v, encoding, p, p, causal=False, need_weights=True)
        b = attention(q, k, v, encoding, p + shift, p + shift, causal=False, need_weights=True)
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])
    assert torch.equal(a[1], a[1].tril()) == (variant == "causal")


# ------------------------------------------------------------------ relative and absolute


RELATIVE = [
    spec.replace(layout=layout)
    for layout in ("half", "interleaved")
    for spec in (
        RopeSpec(d_head=16),
        RopeSpec(d_head=16, rotary_fraction=0.5),
        RopeSpec(d_head=16, scaling="linear", factor=4.0),
        RopeSpec(d_head=16, scaling="ntk", factor=8.0),
        RopeSpec(d_head=16, scaling="proportional", rotary_fraction=0.5),
        RopeSpec(d_head=16, scaling="yarn", factor=8.0, original_max_position_embeddings=256),
        RopeSpec(d_head=16, rotary_fraction=0.5, scaling="yarn", factor=8.0, attention_on="scores"),
        RopeSpec(d_head=16, scaling="llama3", factor=8.0, original_max_position_embeddings=256),
        RopeSpec(d_head=16, scaling="dynamic", factor=8.0, dynamic_length="maximum"),
    )
] + [AlibiSpec(n_heads=4), AlibiSpec(n_heads=4, variant="symmetric"), NoneSpec()]


@pytest.mark.parametrize("spec", RELATIVE, ids=lambda s: "-".join(s.to_query().values()))
@given(shift=st.integers(-(10**6), 10**6), seed=st.integers(0, 1000))
def test_shifting_both_positions_leaves_scores(spec, shift, seed):
    encoding, q, k = spec.build(), normal(1, 4, 3, 16, seed=seed), normal(1, 4, 5, 16, seed=seed + 1)
    qp, kp = torch.tensor([2, 40, 1000]), torch.tensor([0, 1, 2, 500, 999])
    plain = attention_scores(q, k, encoding, qp, kp)
    moved = attention_scores(q, k, encoding, qp + shift, kp + shift)
    torch.testing.assert_close(moved, plain, rtol=0, atol=1e-8)


@given(specs(RopeSpec, d_head=16), st.integers(-(10**6), 10**6))
def test_shifting_leaves_scores_for_any_rope(spec, shift):
    tables, scores = scales(spec)
    assume(min(tables, scores) > 1e-6)
    q, k = normal(1, 1, 2, 16) / tables**2 / scores, normal(1, 1, 2, 16, seed=1)
    qp, kp = torch.tensor([7, 100]), torch.tensor([0, 90])
    encoding = Rope(spec, seq_len=20_000)  # a scaling by length is relative at one length only
    plain, moved = (attention_scores(q, k, encoding, qp + s, kp + s) for s in (0, shift))
    torch.testing.assert_close(moved, plain, rtol=0, atol=1e-8 * float(rope_frequencies(spec).inv_freq.max() + 1))


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_a_scaling_by_length_is_relative_only_while_the_length_stays(scaling):
    spec = RopeSpec(d_head=16, scaling=scaling, factor=4.0, original_max_position_embeddings=256)
    encoding, q, k, p = spec.build(), normal(1, 1, 4, 16), normal(1, 1, 4, 16, seed=1), torch.arange(4)
    scores = [attention_scores(q, k, encoding, p + shift, p + shift) for shift in (0, 252, 253, 1000)]
    torch.testing.assert_close(scores[1], scores[0], rtol=0, atol=1e-11)
    assert (scores[2] - scores[0]).abs().max() > 1e-4
    assert (scores[3] - scores[0]).abs().max() > 1e-3


def test_shifting_only_the_queries_changes_scores():
    q, k, p = normal(1, 4, 3, 16), normal(1, 4, 3, 16, seed=1), torch.arange(3)
    for spec in (RopeSpec(d_head=16), AlibiSpec(n_heads=4, variant="symmetric")):
        moved = attention_scores(q, k, spec.build(), p + 5, p)
        assert (moved - attention_scores(q, k, spec.build(), p, p)).abs().max() > 0.01


@pytest.mark.parametrize("spec", [SinusoidalSpec(d_model=16), IntegerSpec(d_model=16), LearnedSpec(d_model=16)])
def test_shifting_added_positions_changes_scores(spec):
    torch.manual_seed(0)
    encoding, none = spec.build(), NoneSpec().build()
    x, p = normal(1, 3, 16), torch.arange(3)
    w_q, w_k = normal(16, 16, seed=1) / 4, normal(16, 16, seed=2) / 4

    def scores(positions):
        y = encoding.embed(x, positions)
        return attention_scores((y @ w_q)[None], (y @ w_k)[None], none, positions, positions)

    assert (scores(p + 50) - scores(p)).abs().max() > 1e-3


def test_a_relative_score_is_the_rotation_by_the_distance():
    spec, q, k = RopeSpec(d_head=16), normal(1, 1, 1, 16), normal(1, 1, 1, 16, seed=1)
    made = attention_scores(q, k, spec.build(), torch.tensor([1234]), torch.tensor([1200]))
    expected = q.flatten() @ rotation_matrix(spec, -34) @ k.flatten() / 4
    assert float(made) == pytest.approx(float(expected), abs=1e-11)


# ------------------------------------------------------------------ hybrid


def test_layers_come_in_order_and_repeat():
    hybrid = HybridSpec(layers=(AlibiSpec(), RopeSpec(), NoneSpec())).build()
    assert [hybrid.layer(i).spec.scheme for i in range(7)] == ["alibi", "rope", "none"] * 2 + ["alibi"]
    assert [e.spec.scheme for e in hybrid.layers] == ["alibi", "rope", "none"]


def test_a_hybrid_embeds_with_its_first_layer():
    x, p = normal(1, 5, 8), torch.arange(5)
    first = SinusoidalSpec(d_model=8)
    hybrid = HybridSpec(layers=(first, RopeSpec())).build()
    assert torch.equal(hybrid.embed(x, p), first.build().embed(x, p))
    assert torch.equal(HybridSpec(layers=(RopeSpec(), NoneSpec())).build().embed(x, p), x)


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ((), "no layer is given"),
        ((HybridSpec(),), "cannot be a hybrid itself"),
        ((RopeSpec(), SinusoidalSpec()), "sinusoidal acts before layer 1"),
        ((RopeSpec(), LearnedSpec()), "learned acts before layer 1"),
        ((SinusoidalSpec(), SinusoidalSpec(base=100.0)), "sinusoidal acts before layer 1"),
        ((RopeSpec(),) * 129, "legal: 1 to 128 layers"),
    ],
)
def test_a_hybrid_refuses(layers, why):
    with pytest.raises(SpecError, match=why):
        HybridSpec(layers=layers)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("alibi*2, rope(base=500000)*2", (AlibiSpec(),) * 2 + (RopeSpec(base=500_000.0),) * 2),
        ("rope*3, none", (RopeSpec(),) * 3 + (NoneSpec(),)),
        ("alibi(n_heads=2, slopes=0.5,0.25)", (AlibiSpec(n_heads=2, slopes=(0.5, 0.25)),)),
        ("rope(scaling=linear, factor=8), rope", (RopeSpec(scaling="linear", factor=8.0), RopeSpec())),
        ("sinusoidal, none*2", (SinusoidalSpec(), NoneSpec(), NoneSpec())),
    ],
)
def test_the_notation(text, layers):
    assert HybridSpec.parse_field("layers", text) == layers
    assert HybridSpec(layers=layers).field_text("layers") == text
    assert parse_query({"scheme": "hybrid", "layers": text}) == (HybridSpec(layers=layers), ())


@pytest.mark.parametrize("text", ["  rope ( base = 500000 ) * 2 ,none ", "rope(base=500000),rope(base=5e5)*1,none"])
def test_the_notation_is_lenient(text):
    assert HybridSpec.parse_field("layers", text) == (RopeSpec(base=500_000.0),) * 2 + (NoneSpec(),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rope(base=1)", "rope.base"),
        ("rope(nonsense=1)", "rope.nonsense"),
        ("rpoe", "scheme"),
        ("rope alibi", "cannot be read from here on"),
        ("rope(", "cannot be read from here on"),
        ("rope*", "cannot be read from here on"),
        (", rope", "cannot be read from here on"),
        ("rope(500000)", "name=value"),
        ("none*129", "more than 128"),
        ("none*999, none*999", "more than 128"),
    ],
)
def test_the_notation_refuses(text, named):
    with pytest.raises(SpecError, match=named.replace(".", r"\.")):
        HybridSpec.parse_field("layers", text)


def test_the_notation_lists_every_problem():
    with pytest.raises(SpecError) as caught:
        HybridSpec.parse_field("layers", "rope(base=1, d_head=3), alibi(n_heads=0)")
    names = [p.name for p in caught.value.problems]
    assert names == ["layers: rope.d_head", "layers: rope.base", "layers: alibi.n_heads"]


def test_hybrid_layers_of_every_plain_scheme():
    for cls in plain_schemes():
        hybrid = HybridSpec(layers=(cls(), RopeSpec())).build()
        assert hybrid.layer(0).spec == cls()
