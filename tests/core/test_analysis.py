"""The analyses, each against a second route: loops, closed forms, explicit matrices, values by hand."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import pairs, rotation_matrix

from posenc_core import SCHEMES, analysis, build
from posenc_core.model import ModelSize, ToyModel
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec

F64 = torch.float64
ROPES = [
    RopeSpec(d_head=16),
    RopeSpec(d_head=16, layout="interleaved", base=100.0),
    RopeSpec(d_head=16, rotary_fraction=0.5),
    RopeSpec(d_head=16, rotary_fraction=0.75, scaling="proportional"),
    RopeSpec(d_head=16, scaling="linear", factor=4.0),
]
DISTANCES = torch.tensor([0.0, 1.0, 2.0, 7.0, 100.0, 4095.0], dtype=F64)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(torch.as_tensor(a, dtype=F64), torch.as_tensor(b, dtype=F64), rtol=0, atol=tolerance)


# ------------------------------------------------------------------ spectrum, wavelengths, turns


def test_spectrum_is_that_of_the_spec_and_none_without_one():
    close(analysis.spectrum(RopeSpec(d_head=8)), [10_000 ** (-i / 4) for i in range(4)])
    assert all(analysis.spectrum(s()) is None for s in (NoneSpec, IntegerSpec, LearnedSpec, AlibiSpec, HybridSpec))


def test_wavelengths_run_from_two_pi_and_are_infinite_for_a_still_pair():
    inv_freq = analysis.spectrum(RopeSpec(d_head=8, rotary_fraction=0.5, scaling="proportional"))
    wavelengths = analysis.wavelengths(inv_freq)
    close(wavelengths[:2], [2 * math.pi, 2 * math.pi * 10])
    assert wavelengths[2:].isinf().all()


def test_turns_count_full_wavelengths():
    inv_freq = torch.tensor([1.0, 0.25, 0.0], dtype=F64)
    close(analysis.turns(inv_freq, 4 * math.pi), [2.0, 0.5, 0.0])


# ------------------------------------------------------------------ vectors


def test_defined_length_is_the_number_of_rows():
    assert analysis.defined_length(build(LearnedSpec(max_position_embeddings=10, offset=2))) == 8
    assert analysis.defined_length(build(IntegerSpec(variant="one_hot", d_model=6))) == 6
    assert analysis.defined_length(build(SinusoidalSpec())) is None
    assert analysis.defined_length(build(HybridSpec(layers=(LearnedSpec(max_position_embeddings=9), NoneSpec())))) == 9


def test_vectors_are_nan_exactly_where_the_table_has_no_row():
    table = build(LearnedSpec(max_position_embeddings=5, d_model=4, offset=1))
    found = analysis.vectors_or_nan(table, torch.tensor([3, 4, 0, -1]))
    close(found[[0, 2]], table.table.detach()[[4, 1]].double())
    assert found[[1, 3]].isnan().all()
    assert found.dtype == F64
    assert not found.requires_grad


def test_vectors_of_a_scheme_without_rows_are_all_there_and_none_inside_is_no_error():
    close(
        analysis.vectors_or_nan(build(SinusoidalSpec(d_model=2)), torch.tensor([0.5])), [[math.sin(0.5), math.cos(0.5)]]
    )
    assert analysis.vectors_or_nan(build(IntegerSpec(variant="one_hot", d_model=4)), torch.tensor([9])).isnan().all()


def test_cosine_similarity_by_hand():
    found = analysis.cosine_similarity(torch.tensor([[1.0, 0.0], [3.0, 3.0], [-2.0, 0.0], [0.0, 0.0]], dtype=F64))
    close(found[:3, :3], [[1, 0.5**0.5, -1], [0.5**0.5, 1, -(0.5**0.5)], [-1, -(0.5**0.5), 1]])
    assert found[3].isnan().all()


def test_shift_map_moves_every_position_and_its_error_is_rounding():
    for spec in (SinusoidalSpec(d_model=8), SinusoidalSpec(d_model=8, layout="concatenated", base=50.0)):
        encoding, positions = build(spec), torch.arange(50)
        assert analysis.shift_map_error(encoding, 17, positions) < 1e-13
        assert analysis.shift_map_error(encoding, -2.5, positions) < 1e-13


def test_shift_map_error_sees_a_wrong_map(monkeypatch):
    encoding = build(SinusoidalSpec(d_model=8))
    monkeypatch.setattr(encoding, "shift_map", lambda k: torch.eye(8, dtype=F64))
    moved = encoding.vectors(torch.tensor([17.0])) - encoding.vectors(torch.tensor([0.0]))
    close(analysis.shift_map_error(encoding, 17, torch.tensor([0])), moved.abs().max())


def test_probe_gradient_norms_are_the_norms_of_the_vectors():
    vectors = build(IntegerSpec(d_model=4)).vectors(torch.arange(6))
    close(analysis.probe_gradient_norms(vectors), [2.0 * p for p in range(6)])
    vectors = build(SinusoidalSpec(d_model=10)).vectors(torch.arange(6))
    close(analysis.probe_gradient_norms(vectors), [5**0.5] * 6)


@pytest.mark.parametrize("at", [0.0, 3.0, 1000.0])
def test_sinusoidal_dot_product_is_a_sum_of_cosines_whatever_p(at):
    spec = SinusoidalSpec(d_model=12, base=200.0)
    expected = [sum(math.cos(k * 200 ** (-i / 6)) for i in range(6)) for k in DISTANCES.tolist()]
    close(analysis.dot_against_distance(build(spec), DISTANCES, at), expected, 1e-9)


def test_learned_dot_product_is_undefined_past_the_table():
    table = build(LearnedSpec(max_position_embeddings=6, d_model=4))
    found = analysis.dot_against_distance(table, torch.tensor([0.0, 1.0, 2.0]), 4.0)
    rows = table.table.detach().double()
    close(found[:2], [rows[4] @ rows[4], rows[4] @ rows[5]])
    assert found[2].isnan()


# ------------------------------------------------------------------ scores against distance


@pytest.mark.parametrize("spec", ROPES)
def test_equal_scores_are_a_sum_of_cosines_over_the_whole_head(spec):
    still = spec.d_head - 2 * len(pairs(spec))
    expected = [
        (still + 2 * sum(math.cos(k * w) for _, w in pairs(spec))) / spec.d_head**0.5 for k in DISTANCES.tolist()
    ]
    close(analysis.equal_scores(build(spec), spec.d_head, DISTANCES)[0], expected)


@pytest.mark.parametrize("spec", ROPES)
def test_equal_scores_agree_with_explicit_rotation_matrices(spec):
    ones = torch.ones(spec.d_head, dtype=F64)
    expected = [ones @ rotation_matrix(spec, k) @ ones / spec.d_head**0.5 for k in DISTANCES.tolist()]
    close(analysis.equal_scores(build(spec), spec.d_head, DISTANCES)[0], torch.stack(expected))


def test_equal_scores_of_biases_have_a_row_a_head():
    found = analysis.equal_scores(build(AlibiSpec(n_heads=2, slopes=(0.5, 2.0))), 4, torch.tensor([0.0, 3.0]), 2)
    close(found, [[2.0, 0.5], [2.0, -4.0]])


@given(st.integers(0, 2**31), st.sampled_from(ROPES))
def test_scores_against_distance_are_rotated_dot_products(seed, spec):
    q, k = torch.randn(2, 3, 1, spec.d_head, generator=torch.Generator().manual_seed(seed), dtype=F64)
    found = analysis.scores_against_distance(build(spec), q, k, DISTANCES)
    assert found.shape == (3, 1, len(DISTANCES))
    for draw in range(3):
        expected = [(rotation_matrix(spec, d) @ q[draw, 0]) @ k[draw, 0] / spec.d_head**0.5 for d in DISTANCES.tolist()]
        close(found[draw, 0], torch.stack(expected))


def test_random_scores_have_mean_zero_and_variance_one_at_every_distance():
    scores = analysis.random_scores(build(RopeSpec(d_head=32)), 32, DISTANCES, draws=4000)
    assert scores.shape == (4000, len(DISTANCES))
    assert scores.mean(0).abs().max() < 5 / 4000**0.5
    close(scores.var(0), torch.ones(len(DISTANCES)), 0.12)
    low, high = scores.quantile(torch.tensor([0.1, 0.9], dtype=F64), dim=0)
    close(low, torch.full_like(low, -1.2816), 0.1)
    close(high, torch.full_like(high, 1.2816), 0.1)


def test_random_scores_keep_q_and_k_over_distances_and_repeat_by_seed():
    still = analysis.random_scores(build(NoneSpec()), 8, DISTANCES, draws=5)
    close(still, still[:, :1].expand_as(still))
    rope = build(RopeSpec(d_head=8))
    whole = analysis.random_scores(rope, 8, DISTANCES, draws=5, seed=3)
    close(torch.cat([analysis.random_scores(rope, 8, part, 5, 3) for part in DISTANCES.split(2)], dim=1), whole)
    assert not torch.equal(analysis.random_scores(rope, 8, DISTANCES, 5, 4), whole)


def complex_bound(frequencies, distance):
    """Mean over j of |S_j| as the paper writes it, S_j = Σ_{i<j} e^{i·k·θ_i}, in Python complex numbers."""
    total, sizes = 0j, []
    for w in frequencies:
        total += cmath.exp(1j * distance * w)
        sizes.append(abs(total))
    return sum(sizes) / len(sizes)


@pytest.mark.parametrize("dim", [2, 16, 128])
def test_roformer_bound_is_the_papers_sum(dim):
    frequencies = [10_000 ** (-2 * i / dim) for i in range(dim // 2)]
    found = analysis.roformer_bound(torch.tensor(frequencies, dtype=F64), DISTANCES)
    close(found, [complex_bound(frequencies, k) for k in DISTANCES.tolist()], 1e-10)


def test_roformer_bound_starts_at_the_mean_of_one_to_the_pairs():
    close(analysis.roformer_bound(torch.tensor([1.0, 0.1, 0.01], dtype=F64), torch.zeros(1)), [2.0])


@given(st.integers(0, 2**31), st.integers(0, 5000))
def test_roformer_bound_bounds_the_score(seed, distance):
    """|Σ h_i e^{ikθ_i}| <= (max |h_{i+1} - h_i|) Σ |S_j|, equation 37 of the paper."""
    spec = RopeSpec(d_head=16, layout="interleaved")
    q, k = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(seed), dtype=F64)
    at = torch.tensor([float(distance)], dtype=F64)
    score = analysis.scores_against_distance(build(spec), q, k, at).item() * 4
    h = torch.view_as_complex(q.view(8, 2)) * torch.view_as_complex(k.view(8, 2)).conj()
    step = torch.cat([h, torch.zeros(1, dtype=h.dtype)]).diff().abs().max().item()
    assert abs(score) <= step * 8 * analysis.roformer_bound(spec.inv_freq(), at).item() + 1e-9


# ------------------------------------------------------------------ relative-only residual


def toeplitz(length, seed=0):
    by_distance = torch.randn(2 * length - 1, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return by_distance[torch.arange(length)[:, None] - torch.arange(length) + length - 1]


def test_residual_of_a_toeplitz_matrix_is_nothing():
    share, matrix = analysis.relative_residual(toeplitz(7))
    assert share < 1e-28
    close(matrix, torch.zeros(7, 7))


def test_residual_of_constant_scores_is_exactly_zero():
    assert analysis.relative_residual(torch.full((4, 4), 0.1, dtype=F64)).share == 0.0
    assert analysis.relative_residual(torch.zeros(4, 4)).share == 0.0


def test_residual_by_hand():
    """Diagonals (1, 3), (2), (6): means 2, 2, 6. Residuals ∓1 of squares 2; scores of mean 3 and squares 14."""
    share, matrix = analysis.relative_residual(torch.tensor([[1.0, 2.0], [6.0, 3.0]], dtype=F64))
    close(matrix, [[-1.0, 0.0], [0.0, 1.0]])
    assert share == pytest.approx(2 / 14)


@pytest.mark.filterwarnings("error")
def test_residual_leaves_out_what_is_not_finite():
    """Diagonals (1, 3, 5) of mean 3, (0, 4) of mean 2 and (5): mean 3, squares 22, residuals 8 + 8."""
    scores = torch.tensor([[1.0, -math.inf, -math.inf], [0.0, 3.0, -math.inf], [5.0, 4.0, 5.0]], dtype=F64)
    share, matrix = analysis.relative_residual(scores)
    assert matrix.isnan().equal(scores.isinf())
    close(matrix[scores.isfinite()], [-2.0, -2.0, 0.0, 0.0, 2.0, 2.0])
    assert share == pytest.approx(16 / 22)
    nothing = analysis.relative_residual(torch.full((2, 2), math.nan))
    assert nothing.share == 0.0
    assert nothing.matrix.isnan().all()


@pytest.mark.parametrize("length", [1, 2, 7])
def test_residual_takes_off_the_mean_of_each_diagonal(length):
    scores = torch.randn(length, length, generator=torch.Generator().manual_seed(length), dtype=F64)
    matrix = analysis.relative_residual(scores).matrix
    for k in range(1 - length, length):
        close(matrix.diagonal(k), scores.diagonal(k) - scores.diagonal(k).mean())


def test_residual_of_noise_is_about_all_of_it():
    noise = torch.randn(200, 200, generator=torch.Generator().manual_seed(0), dtype=F64)
    assert analysis.relative_residual(noise).share == pytest.approx(0.99, abs=0.01)


def test_residual_is_all_of_it_where_diagonals_average_to_nothing():
    scores = torch.tensor([[1.0, 1.0, 0.0], [-1.0, 0.0, -1.0], [0.0, 1.0, -1.0]], dtype=F64)
    assert analysis.relative_residual(scores).share == pytest.approx(1.0)


@given(st.integers(0, 1000), st.floats(0.01, 100), st.floats(-100, 100))
def test_residual_does_not_depend_on_scale_or_offset(seed, scale, offset):
    scores = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed), dtype=F64)
    share = analysis.relative_residual(scores).share
    assert analysis.relative_residual(scores * scale + offset).share == pytest.approx(share, rel=1e-6)
    assert 0 <= share <= 1


# ------------------------------------------------------------------ scores of positions


def loop_scores(spec, content, w_q, w_k, positions):
    """One token against itself, by loops over heads, queries and keys."""
    heads, d, _ = w_q.shape
    out = torch.zeros(heads, len(positions), len(positions), dtype=F64)
    for h in range(heads):
        for i, m in enumerate(positions):
            for j, n in enumerate(positions):
                x, y = content, content
                if spec.hook == "embed":
                    table = build(spec).vectors
                    x, y = (content + table(torch.tensor([p]))[0].double() for p in (m, n))
                q, k = w_q[h] @ x, w_k[h] @ y
                if spec.hook == "rotate":
                    q, k = rotation_matrix(spec, m) @ q, rotation_matrix(spec, n) @ k
                out[h, i, j] = q @ k / d**0.5
                if spec.hook == "bias":
                    out[h, i, j] += -spec.slopes[h] * (m - n) if n <= m else -math.inf
    return out


@pytest.mark.parametrize(
    "spec",
    [NoneSpec(), IntegerSpec(d_model=6), SinusoidalSpec(d_model=6), RopeSpec(d_head=4, base=10.0),
     AlibiSpec(n_heads=2, slopes=(0.5, 0.125))],
)  # fmt: skip
def test_position_scores_are_what_a_loop_gives(spec):
    generator = torch.Generator().manual_seed(1)
    content = torch.randn(6, generator=generator, dtype=F64)
    w_q, w_k = torch.randn(2, 2, 4, 6, generator=generator, dtype=F64)
    positions = [0, 1, 5, 9]
    found = analysis.position_scores(build(spec), content, w_q, w_k, torch.tensor(positions))
    close(found, loop_scores(spec, content, w_q, w_k, positions), 1e-10)


def test_position_scores_of_a_hybrid_are_its_first_layers():
    content, w = torch.ones(4), torch.eye(4).unsqueeze(0)
    hybrid = build(HybridSpec(layers=(RopeSpec(d_head=4), NoneSpec())))
    first = build(RopeSpec(d_head=4))
    close(*(analysis.position_scores(e, content, w, w, torch.arange(5)) for e in (hybrid, first)))


@pytest.mark.parametrize("spec", [NoneSpec(), SinusoidalSpec(d_model=8), RopeSpec(d_head=8), AlibiSpec(n_heads=1)])
def test_unprojected_scores_are_position_scores_with_the_identity(spec):
    content, identity = torch.randn(8, generator=torch.Generator().manual_seed(0)), torch.eye(8).unsqueeze(0)
    expected = analysis.position_scores(build(spec), content, identity, identity, torch.arange(6))
    close(analysis.unprojected_scores(build(spec), content, torch.arange(6)), expected)


def test_adding_loses_and_rotating_keeps_the_distance_under_random_projections():
    generator = torch.Generator().manual_seed(0)
    content, positions = torch.randn(32, generator=generator, dtype=F64), torch.arange(40)
    w_q, w_k = torch.randn(2, 1, 16, 32, generator=generator, dtype=F64) / 32**0.5
    shares = {
        spec.scheme: analysis.relative_residual(
            analysis.position_scores(build(spec), content, w_q, w_k, positions)[0]
        ).share
        for spec in (SinusoidalSpec(d_model=32), RopeSpec(d_head=16), AlibiSpec(n_heads=1), NoneSpec())
    }
    assert shares["sinusoidal"] > 0.3
    assert max(shares[s] for s in ("rope", "alibi", "none")) < 1e-24
    bare = analysis.unprojected_scores(build(SinusoidalSpec(d_model=32)), torch.zeros(32), positions)[0]
    assert analysis.relative_residual(bare).share < 1e-24


@pytest.mark.parametrize("scheme", SCHEMES)
def test_token_position_scores_are_those_of_the_models_first_layer(scheme):
    torch.manual_seed(0)
    model = ToyModel(SCHEMES[scheme](), ModelSize(n_layers=1, n_heads=2, d_model=32))
    torch.nn.init.uniform_(model.blocks[0].attention_norm.weight, 0.5, 2.0)
    positions = torch.arange(9)
    scores = analysis.token_position_scores(model, model.encoding, 101, positions)
    assert scores.shape == (2, 9, 9)
    later = positions[:, None] < positions
    with torch.no_grad():
        weights = model.trace(torch.full((1, 9), 101), positions).weights[0][0]
    close(scores.masked_fill(later, -math.inf).softmax(-1), weights.double(), 1e-5)
