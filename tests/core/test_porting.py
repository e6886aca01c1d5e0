"""Layouts, number formats and two specs: against public formulas, brute force, and what people reported."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rotation_matrix, specs

from posenc_core import apply_rotary, porting
from posenc_core.analysis import scores_against_distance
from posenc_core.attention import attention_scores
from posenc_core.frequencies import attention_scales, geometric, rope_frequencies
from posenc_core.porting import (
    FORMATS,
    LIMIT,
    Port,
    columns_of,
    compare_pairs,
    error_map,
    first_collision,
    first_exceeding,
    layout_permutation,
    mistakes,
    pair_features,
    permutation_code,
    permute_norm,
    permute_weights,
    phase_error,
    prove_layout,
    rounded_phases,
    score_difference,
)
from posenc_core.rotary import cos_sin
from posenc_core.schemes.rope import RopeSpec

ROUNDED = ("all", "positions", "frequencies", "product", "cos_sin")
PLAIN = RopeSpec()
PARTIAL = RopeSpec(d_head=64, rotary_fraction=0.25)
PROPORTIONAL = RopeSpec(d_head=64, scaling="proportional", rotary_fraction=0.25)
YARN = RopeSpec(d_head=64, scaling="yarn", factor=4.0, original_max_position_embeddings=4096)
SPECS = [PLAIN, PARTIAL, PROPORTIONAL, YARN, RopeSpec(d_head=32, layout="interleaved", base=100.0)]


def named(spec):
    return " ".join(f"{k}={v}" for k, v in spec.to_query().items())


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------ layouts


def convert_llama_weights_to_hf(weight, n_heads):
    """transformers' published permutation of Meta's weights: w.view(h, d // 2, 2, in).transpose(1, 2)."""
    rows, columns = weight.shape
    return weight.view(n_heads, rows // n_heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def llama_cpp_permute(weight, n_heads):
    """llama.cpp's published permutation of transformers' weights: reshape(h, 2, d // 2, …).swapaxes(1, 2)."""
    return (
        weight.reshape(n_heads, 2, len(weight) // n_heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


@pytest.mark.parametrize(("n_heads", "n_kv_heads", "d_head"), [(32, 8, 128), (8, 1, 64), (4, 4, 6), (1, 1, 2)])
def test_weights_are_permuted_as_public_converters_do(n_heads, n_kv_heads, d_head):
    for heads in (n_heads, n_kv_heads):
        weight = torch.arange(heads * d_head * 3).view(-1, 3)
        half = permute_weights(weight, heads, d_head, "half")
        assert torch.equal(half, convert_llama_weights_to_hf(weight, heads))
        assert torch.equal(permute_weights(weight, heads, d_head, "interleaved"), llama_cpp_permute(weight, heads))
        assert torch.equal(permute_weights(half, heads, d_head, "interleaved"), weight)
        bias = torch.arange(heads * d_head)
        assert torch.equal(
            permute_weights(bias, heads, d_head, "half"), convert_llama_weights_to_hf(bias[:, None], heads)[:, 0]
        )


@given(st.integers(1, 20), st.integers(0, 10), st.integers(0, 10), st.sampled_from(["half", "interleaved"]))
def test_only_the_rotated_features_move_and_the_inverse_undoes_it(pairs, before, after, to):
    d_head = before + 2 * pairs + after
    index = layout_permutation(d_head, 2 * pairs, to, before)
    back = layout_permutation(d_head, 2 * pairs, "half" if to == "interleaved" else "interleaved", before)
    assert torch.equal(index[back], torch.arange(d_head))
    assert torch.equal(index.argsort(), back)
    still = [*range(before), *range(before + 2 * pairs, d_head)]
    assert index[still].tolist() == still
    x = normal(d_head)
    assert torch.equal(permute_weights(x, 1, 2 * pairs, to, before), x[index])


@pytest.mark.parametrize("spec", SPECS, ids=named)
def test_pairs_are_the_features_that_a_rotation_mixes(spec):
    features = pair_features(spec).tolist()
    inv_freq = rope_frequencies(spec).inv_freq
    matrix = rotation_matrix(spec, 1) if spec.scaling in ("none", "proportional") else None
    cos, sin = cos_sin(torch.tensor([1]), inv_freq, dtype=torch.float64)
    turned = apply_rotary(torch.eye(spec.d_head, dtype=torch.float64), cos, sin, spec.layout)
    for (a, b), w in zip(features, inv_freq.tolist(), strict=True):
        assert turned[a, b] == pytest.approx(math.sin(w), abs=1e-15)
        assert turned[b, a] == pytest.approx(-math.sin(w), abs=1e-15)
        if matrix is not None:
            assert matrix[b, a].item() == pytest.approx(math.sin(w), abs=1e-15)
    mixed = {frozenset(p) for p in (turned.abs() > 1e-12).nonzero().tolist() if p[0] != p[1]}
    assert mixed == {frozenset(p) for p, w in zip(features, inv_freq.tolist(), strict=True) if w > 0}


def test_coreai_models_66_and_megatron_bridge_4195():
    """p-RoPE: exponent over the head dim, zeros to head_dim/2, pairs (i, i + head_dim/2)."""
    assert pair_features(PROPORTIONAL).tolist() == [[i, i + 32] for i in range(32)]
    inv_freq = rope_frequencies(PROPORTIONAL).inv_freq
    assert inv_freq[:8].tolist() == pytest.approx([1e4 ** (-2 * i / 64) for i in range(8)], rel=1e-12)
    assert not bool(inv_freq[8:].any())


@pytest.mark.parametrize("spec", SPECS, ids=named)
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (4, 4), (6, 1)])
def test_nanochat_264_transformers_34741_transformers_40462(spec, heads, kv_heads):
    """Half-split and interleaved are both right: the same scores once q and k are permuted, and only then."""
    proof = prove_layout(spec, heads, kv_heads)
    assert proof.scores.shape == (heads, 12, 12)
    assert proof.permuted < 1e-13 * proof.scores.abs().max()
    assert proof.unpermuted > 0.5 * proof.spread


def test_the_scores_of_the_proof_are_those_of_plain_attention():
    spec, d_in, length = PARTIAL, 32, 12
    proof = prove_layout(spec, 2, 1, seed=5)
    generator = torch.Generator().manual_seed(5)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, w_q, w_k = random(length, d_in), random(128, d_in) / d_in**0.5, random(64, d_in) / d_in**0.5
    b_q, b_k = random(128), random(64)
    for head in range(2):
        for m in range(length):
            for n in range(length):
                q = rotation_matrix(spec, m) @ (
                    w_q[64 * head : 64 * head + 64] @ x[m] + b_q[64 * head : 64 * head + 64]
                )
                k = rotation_matrix(spec, n) @ (w_k @ x[n] + b_k)
                assert proof.scores[head, m, n].item() == pytest.approx((q @ k).item() / 8, rel=1e-9, abs=1e-12)


def test_transformers_39687():
    """DeepSeek: interleaved weights against permuted half-split ones, as its public code permutes activations."""
    spec = RopeSpec(d_head=64, layout="interleaved")
    proof = prove_layout(spec, 4, 4, unrotated=128)
    assert proof.permuted < 1e-13
    assert proof.unpermuted > 0.5 * proof.spread
    q_pe, k_pe, positions = normal(1, 4, 9, 64, seed=1), normal(1, 1, 9, 64, seed=2), torch.arange(9)
    here = attention_scores(q_pe, k_pe.expand(1, 4, 9, 64), spec.build(), positions, positions)

    def rearranged(x):  # modeling_deepseek.py: view(…, d // 2, 2).transpose(4, 3).reshape(…, d)
        return x.unflatten(-1, (32, 2)).transpose(-1, -2).reshape(x.shape)

    half = spec.replace(layout="half").build()
    there = attention_scores(rearranged(q_pe), rearranged(k_pe).expand(1, 4, 9, 64), half, positions, positions)
    torch.testing.assert_close(there, here, rtol=0, atol=1e-13)
    assert torch.equal(rearranged(q_pe), q_pe[..., layout_permutation(64, 64, "half")])


@pytest.mark.parametrize("to", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("heads", "kv", "d_head", "rotary", "start"), [(8, 2, 64, 64, 0), (4, 1, 80, 32, 0), (2, 2, 192, 64, 128)]
)
def test_the_code_runs_and_permutes(to, heads, kv, d_head, rotary, start):
    space: dict[str, object] = {}
    exec(permutation_code(heads, kv, d_head, rotary, to, start), space)
    w_q, w_k, other = normal(heads * d_head, 5), normal(kv * d_head, 5), normal(5, 5)
    one, every, each = normal(d_head), normal(heads * d_head, seed=3), normal(kv, d_head, seed=4)
    state = {"layers.0.q_proj.weight": w_q, "layers.0.k_proj.weight": w_k, "layers.0.k_proj.bias": w_k[:, 0],
             "layers.0.v_proj.weight": other, "layers.0.q_norm.weight": one, "layers.1.q_norm.weight": every,
             "layers.0.k_norm.weight": each, "norm.weight": other}  # fmt: skip
    made = space["convert"](state)
    assert torch.equal(made["layers.0.q_proj.weight"], permute_weights(w_q, heads, rotary, to, start))
    assert torch.equal(made["layers.0.k_proj.weight"], permute_weights(w_k, kv, rotary, to, start))
    assert torch.equal(made["layers.0.k_proj.bias"], permute_weights(w_k[:, 0], kv, rotary, to, start))
    assert made["layers.0.v_proj.weight"] is made["norm.weight"] is other
    assert torch.equal(made["layers.0.q_norm.weight"], one[layout_permutation(d_head, rotary, to, start)])
    assert torch.equal(made["layers.1.q_norm.weight"], permute_weights(every, heads, rotary, to, start))
    assert torch.equal(
        made["layers.0.k_norm.weight"], permute_weights(each.flatten(), kv, rotary, to, start).view(kv, -1)
    )
    for norm in (one, every, each):
        assert torch.equal(space["permute_norm"](norm), permute_norm(norm, d_head, rotary, to, start))
    assert torch.equal(w_q.unflatten(0, (heads, d_head))[:, space["index"]][:, space["back"]].flatten(0, 1), w_q)


@pytest.mark.parametrize("spec", SPECS, ids=named)
@pytest.mark.parametrize("over", ["head", "all heads", "each head"])
def test_a_learned_norm_before_the_rotation_is_permuted_by_the_code(spec, over):
    """Qwen3 and Gemma 3 (one norm for all heads), OLMo 2 (over all heads): scores of both layouts, by plain loops."""
    heads, length, d = 2, 5, spec.d_head
    x = normal(length, 7)
    size = {"head": (d,), "all heads": (heads * d,), "each head": (heads, d)}[over]
    state = {"attn.q_proj.weight": normal(heads * d, 7, seed=1), "attn.k_proj.weight": normal(heads * d, 7, seed=2),
             "attn.q_norm.weight": 1 + normal(*size, seed=3) / 2,
             "attn.k_norm.weight": 1 + normal(*size, seed=4) / 2}  # fmt: skip

    def scores(state, layout):
        turned = []
        for name in ("q", "k"):
            v, weight = x @ state[f"attn.{name}_proj.weight"].T, state[f"attn.{name}_norm.weight"]
            if over == "all heads":
                v = v / v.square().mean(-1, keepdim=True).sqrt() * weight
            v = v.view(length, heads, d)
            if over != "all heads":
                v = v / v.square().mean(-1, keepdim=True).sqrt() * weight
            angle = torch.arange(length, dtype=torch.float64)[:, None, None] * rope_frequencies(spec).inv_freq
            turned.append(apply_rotary(v, angle.cos(), angle.sin(), layout))
        return torch.einsum("mhd,nhd->hmn", *turned) / d**0.5

    to = porting.other_layout(spec.layout)
    space: dict[str, object] = {}
    exec(permutation_code(heads, heads, d, spec.rotary_dim, to), space)
    here, made = scores(state, spec.layout), space["convert"](state)
    torch.testing.assert_close(scores(made, to), here, rtol=0, atol=1e-12)
    half_done = made | {name: state[name] for name in state if "norm" in name}
    assert (scores(half_done, to) - here).abs().max() > 0.01 * here.std()


@pytest.mark.parametrize("spec", SPECS, ids=named)
def test_the_proof_with_norms(spec):
    proof = prove_layout(spec, 4, 2, norm=True)
    assert proof.permuted < 1e-13 * proof.scores.abs().max()
    assert proof.unpermuted > 0.02 * proof.spread
    assert not torch.equal(proof.scores, prove_layout(spec, 4, 2).scores)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: permute_norm(torch.zeros(10), 8, 8, "half"), "no norm of heads of 8"),
        (lambda: layout_permutation(8, 3, "half"), "rotary_dim = 3"),
        (lambda: layout_permutation(8, 10, "half"), "rotary_dim = 10"),
        (lambda: layout_permutation(8, 4, "half", 6), "from feature 6"),
        (lambda: layout_permutation(8, 4, "neox"), "legal: half, interleaved"),
        (lambda: permute_weights(torch.zeros(10, 3), 3, 2, "half"), "no rows for 3 heads"),
        (lambda: columns_of(2, 8), "legal: from 3"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, part):
    with pytest.raises(ValueError, match=part):
        call()


# ------------------------------------------------------------------ precision


def brute_error(spec, name, rounded, position):
    """Largest phase error at one position, with Python floats and one cast at a time."""

    def cast(value):
        return torch.tensor(value, dtype=torch.float64).to(FORMATS[name]).double().item()

    worst = 0.0
    for w in rope_frequencies(spec).inv_freq.tolist():
        p, f = float(position), w
        if rounded in ("positions", "all"):
            p = cast(p)
        if rounded in ("frequencies", "all"):
            f = cast(f)
        phase = p * f
        if rounded in ("product", "all"):
            phase = cast(phase)
        if rounded == "cos_sin":
            phase = math.atan2(cast(math.sin(position * w)), cast(math.cos(position * w)))
        difference = phase - position * w
        worst = max(worst, abs(math.atan2(math.sin(difference), math.cos(difference))))
    return worst


@pytest.mark.parametrize("rounded", ROUNDED)
@pytest.mark.parametrize("name", FORMATS)
def test_the_phase_error_is_that_of_single_casts(name, rounded):
    spec = RopeSpec(d_head=16)
    positions = [0, 1, 3, 255, 257, 1857, 4097, 60_001]
    made = phase_error(rope_frequencies(spec).inv_freq, torch.tensor(positions), name, rounded)
    assert made.amax(-1).tolist() == pytest.approx([brute_error(spec, name, rounded, p) for p in positions], abs=1e-9)


@pytest.mark.parametrize("rounded", ROUNDED)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("spec", [PLAIN, PROPORTIONAL, RopeSpec(d_head=8, scaling="linear", factor=40.0)], ids=named)
def test_the_first_position_past_a_limit_is_that_of_a_full_search(spec, name, rounded):
    inv_freq, longest = rope_frequencies(spec).inv_freq, 140_000
    for limit in (1e-4, LIMIT, 0.1):
        wrong = torch.cat([
            ~(phase_error(inv_freq, positions, name, rounded) <= limit).all(-1)
            for positions in torch.arange(longest).split(20_000)
        ])  # fmt: skip
        found = wrong.nonzero()
        expected = int(found[0]) if len(found) else None
        assert first_exceeding(inv_freq, name, rounded, limit, longest) == expected


def test_positions_first_repeat_at_257_2049_and_16777217():
    inv_freq = rope_frequencies(PLAIN).inv_freq
    assert first_collision(inv_freq, "bfloat16", "positions") == 256
    assert first_collision(inv_freq, "float16", "positions") == 2048
    assert first_collision(inv_freq, "float32", "positions") == 2**24
    for name, first in (("bfloat16", 256), ("float16", 2048)):
        cast = torch.arange(4096.0).to(FORMATS[name])
        assert int((cast[1:] == cast[:-1]).nonzero()[0]) == first


@pytest.mark.parametrize("rounded", ROUNDED)
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("spec", [PLAIN, PROPORTIONAL, RopeSpec(d_head=8, scaling="linear", factor=4096.0)], ids=named)
def test_the_first_two_alike_are_those_of_a_full_search(spec, name, rounded):
    inv_freq, longest = rope_frequencies(spec).inv_freq, 20_000
    turning = inv_freq[inv_freq > 0]
    positions = torch.arange(longest + 1)
    if rounded == "cos_sin":
        phase = positions.double()[:, None] * turning
        table = torch.cat([phase.cos(), phase.sin()], -1).to(FORMATS[name])
    else:
        table = rounded_phases(turning, positions, name, rounded)
    same = (table[1:] == table[:-1]).all(-1).nonzero()
    assert first_collision(inv_freq, name, rounded, longest) == (int(same[0]) if len(same) else None)


@pytest.mark.parametrize("rounded", ROUNDED)
@pytest.mark.parametrize("name", FORMATS)
def test_a_map_holds_the_largest_error_of_its_columns(name, rounded):
    inv_freq, longest = rope_frequencies(PLAIN).inv_freq, 30_000
    made = error_map(inv_freq, name, rounded, longest, columns=64)
    assert made.values.shape == (32, 64)
    assert made.starts[0] == 1
    assert made.ends[-1] == longest - 1
    assert all(a <= b for a, b in zip(made.starts, made.ends, strict=True))
    assert made.step * 64 == pytest.approx(math.log2(longest))
    covered = {p for a, b in zip(made.starts, made.ends, strict=True) for p in range(a, b + 1)}
    assert covered == set(range(1, longest))
    every = phase_error(inv_freq, torch.arange(longest), name, rounded)
    for i, (a, b) in enumerate(zip(made.starts, made.ends, strict=True)):
        largest = every[a : b + 1].amax(0)
        assert bool((made.values[:, i] <= largest).all())
        if b - a < 2 * porting.SAMPLES:
            assert torch.equal(made.values[:, i], largest)
        elif rounded != "cos_sin":  # a sample can miss the few positions past a power of two
            assert made.values[:, i].max() >= 0.5 * largest.max()


def test_past_the_largest_float16_there_is_no_phase():
    error = phase_error(rope_frequencies(PLAIN).inv_freq, torch.tensor([65_504, 70_000]), "float16", "positions")
    assert bool(error[0].isfinite().all())
    assert bool(error[1].isnan().any())
    flat = RopeSpec(d_head=2, scaling="linear", factor=1.0)
    assert first_exceeding(flat.inv_freq(), "float16", "positions", 10.0) == 65_520  # rounds to infinity


def test_candle_3520_and_mlx_lm_1076():
    """Positions 15962 and 15968 differ in a bf16 model; neighbours past 262144 differ in an fp16 one."""
    rope = RopeSpec(d_head=128).build()
    for dtype, positions in ((torch.bfloat16, (15_962, 15_968)), (torch.float16, (262_145, 262_146))):
        x = normal(1, 1, 1, 128).to(dtype)
        made = [rope.rotate(x, x, torch.tensor([p]), torch.tensor([p]))[0] for p in positions]
        assert made[0].dtype == dtype
        assert not torch.equal(*made)
        exact = [rope.rotate(x.double(), x.double(), *[torch.tensor([p])] * 2)[0] for p in positions]
        for got, want in zip(made, exact, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=0, atol=8 * torch.finfo(dtype).eps)
    # positions that were cast themselves are 64 apart there, and past 65,504 there are none in float16
    cast = torch.tensor([15_962.0, 15_963.0]).bfloat16()
    assert cast[0] == cast[1] == 15_936 + 0
    assert bool(torch.tensor(262_145.0).half().isinf())


def test_transformers_29496_and_modalities_462():
    """Frequencies in bf16 are off by far more than 3e-3 rad at position 4096; in float32 they are not."""
    inv_freq = rope_frequencies(RopeSpec(d_head=128)).inv_freq
    at = torch.tensor([4096])
    assert phase_error(inv_freq, at, "bfloat16", "frequencies").max() > 1
    assert phase_error(inv_freq, at, "float32", "all").max() < LIMIT
    assert phase_error(inv_freq, torch.arange(4097), "float32", "all").max() < LIMIT


def test_transformers_25681_and_gpt_neox_1003():
    """At position 1857 tables that are cast last are right to fp16 rounding; phases in fp16 are not."""
    inv_freq = rope_frequencies(RopeSpec(d_head=128)).inv_freq
    at = torch.tensor([1857])
    assert phase_error(inv_freq, at, "float16", "cos_sin").max() < torch.finfo(torch.float16).eps
    assert phase_error(inv_freq, at, "float16", "all").max() > 0.1


def test_imp_1325():
    """Tables agree with float64 at position 131071; float32 phases are off by more than 3e-3 rad before that."""
    inv_freq = rope_frequencies(RopeSpec(d_head=128)).inv_freq
    exact = 131_071 * inv_freq
    cos, sin = cos_sin(torch.tensor([131_071]), inv_freq)
    torch.testing.assert_close(cos[0].double(), exact.cos(), rtol=0, atol=6e-8)
    torch.testing.assert_close(sin[0].double(), exact.sin(), rtol=0, atol=6e-8)
    first = first_exceeding(inv_freq, "float32", "all")
    assert first is not None
    assert first < 131_071


# ------------------------------------------------------------------ two specs


def test_pairs_are_compared_by_closed_form():
    made = compare_pairs(PLAIN, RopeSpec(base=500_000.0))
    assert made.first_pair == 1
    for i in range(32):
        a, b = 1e4 ** (-i / 32), 5e5 ** (-i / 32)
        assert made.ratio[i].item() == pytest.approx(b / a, rel=1e-12)
        first = next((p for p in range(200_000) if abs(p * a - p * b) >= 0.1), None) if i else None
        assert made.first_position[i].item() == (math.inf if first is None else first)


def test_pairs_that_are_missing_do_not_turn():
    made = compare_pairs(PARTIAL, PLAIN)
    assert len(made.model) == 32
    assert not bool(made.model[8:].any())
    assert made.ratio[8:].isinf().all()
    same = compare_pairs(PARTIAL, PARTIAL)
    assert same.first_pair is None
    assert same.first_position.isinf().all()
    assert torch.equal(same.ratio, torch.ones(8, dtype=torch.float64))


PAIRS = [
    (PLAIN, Port(RopeSpec(base=500_000.0))),
    (YARN, Port(YARN.replace(attention_factor=1.0))),
    (YARN, Port(YARN.replace(layout="interleaved"))),
    (PARTIAL, Port(PROPORTIONAL)),
    (PLAIN, Port(PLAIN, q_shift=1)),
    (PLAIN, Port(PLAIN, direction=-1)),
    (YARN.replace(mscale=0.7, mscale_all_dim=1.0), Port(YARN)),
    (RopeSpec(scaling="dynamic", factor=4.0, original_max_position_embeddings=64), Port(PLAIN)),
]


@pytest.mark.parametrize(("model", "port"), PAIRS, ids=range(len(PAIRS)))
def test_score_differences_are_those_of_rotated_vectors(model, port):
    longest, draws = 300, 16
    made = score_difference(Port(model), port, longest)
    q, k = torch.randn(2, draws, model.d_head, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = torch.arange(longest)

    def scores(side):
        """Rotation by the explicit tables of this length."""
        inv_freq = rope_frequencies(side.spec, longest).inv_freq
        scales = attention_scales(side.spec, longest)

        def turn(x, position):
            angle = side.direction * position * inv_freq
            return apply_rotary(x[None], (angle.cos() * scales.tables)[None], (angle.sin() * scales.tables)[None],
                                side.spec.layout)[0]  # fmt: skip

        made = [
            torch.stack([turn(a, d + side.q_shift) @ turn(b, 0) for d in distances.tolist()])
            for a, b in zip(q, k, strict=True)
        ]
        return torch.stack(made) * scales.scores / model.d_head**0.5

    a, b = scores(Port(model)), scores(port)
    relative = (b - a).square().mean(0).sqrt() / a.square().mean(0).sqrt()
    assert made.relative.tolist() == pytest.approx(relative[made.distances].tolist(), rel=1e-9, abs=1e-12)
    for limit, first in made.first.items():
        over = (relative > limit).nonzero()
        assert first == (int(over[0]) if len(over) else None)


def test_scores_agree_with_the_modules_own_rotation():
    q, k = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = torch.arange(200)
    sides = [
        scores_against_distance(s.build(), q[:, None], k[:, None], distances)[:, 0]
        for s in (YARN, porting.unscaled(YARN))
    ]
    relative = (sides[1] - sides[0]).square().mean(0).sqrt() / sides[0].square().mean(0).sqrt()
    made = score_difference(Port(YARN), mistakes(YARN)["scaling"].port, 200)
    assert made.relative.tolist() == pytest.approx(relative[made.distances].tolist(), rel=1e-9)


def test_equal_specs_have_equal_scores_and_different_heads_are_refused():
    made = score_difference(Port(PLAIN), Port(PLAIN), 2**17)
    assert made.first == {1e-3: None, 1e-2: None}
    assert not bool(made.relative.any())
    with pytest.raises(ValueError, match="d_head = 128"):
        score_difference(Port(PLAIN), Port(RopeSpec(d_head=128)), 64)


def test_a_small_difference_is_found_far_out():
    made = score_difference(Port(PLAIN), Port(RopeSpec(base=10_000.05)), 2**14)
    assert made.first[1e-3] is not None
    assert 100 < made.first[1e-3] < 2**14
    assert made.first[1e-2] is None or made.first[1e-2] > made.first[1e-3]


@pytest.mark.parametrize(
    "spec",
    [
        *SPECS,
        YARN.replace(mscale=1.0, mscale_all_dim=0.5),
        RopeSpec(scaling="longrope", factor=8.0),
        RopeSpec(base=500_000.0),
    ],
    ids=named,
)
def test_every_mistake_makes_a_difference(spec):
    found = mistakes(spec)
    assert {"layout", "base", "q_late", "direction"} <= found.keys()
    for name, mistake in found.items():
        if name == "truncate" and spec.truncate == mistake.port.spec.truncate:
            continue
        made = score_difference(Port(spec), mistake.port, 2**17)
        assert made.first[1e-3] is not None, name


def test_pie_602():
    """Partial rotary divides the exponent by the rotary dim; over the head dim it is another spectrum."""
    wrong = porting.over_head_dim(PARTIAL)
    expected = [1e4 ** (-2 * i / 64) for i in range(8)]
    assert rope_frequencies(wrong).inv_freq.tolist() == pytest.approx(expected, rel=1e-12)
    assert rope_frequencies(PARTIAL).inv_freq.tolist() == pytest.approx(geometric(1e4, 16).tolist(), rel=1e-15)
    assert mistakes(PARTIAL)["exponent"].port.spec == wrong


@settings(max_examples=30, deadline=None)
@given(specs(RopeSpec))
def test_every_legal_spec_has_mistakes_and_a_proof(spec):
    for mistake in mistakes(spec).values():
        assert mistake.name
        assert mistake.port.spec.d_head == spec.d_head
    if spec.d_head <= 128:
        proof = prove_layout(spec, 2, 1)
        assert proof.permuted <= 1e-9 * max(1.0, proof.scores.abs().max().item())
