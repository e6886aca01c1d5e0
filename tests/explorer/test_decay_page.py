"""The Decay page: frames equal the analyses, matrices and residuals are right, links reach the widgets."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from explorer.charts.palette import SCHEME_COLOURS, VERMILLION
from explorer.compute import decay as compute
from explorer.compute.common import encoding
from explorer.pictures import decay as pictures
from explorer.pictures.common import names_of
from explorer.text import SCHEME_TEXT
from explorer.views import DecayView
from posenc_core import SCHEMES, analysis, build, parse_spec

PROJECTIONS = DecayView.param("projection").choices
PLAIN = [s for s in SCHEMES if s != "hybrid"]
DEFAULTS = {s: spec() for s, spec in SCHEMES.items()}
ROPE, ALIBI, SINUSOIDAL, NONE = (DEFAULTS[s] for s in ("rope", "alibi", "sinusoidal", "none"))
LONG = parse_spec({"scheme": "rope", "base": 500_000.0})


def lines_of(score, series):
    rows = score.data[(score.data["part"] == "line") & (score.data["series"] == series)]
    return [strand for _, strand in rows.groupby("strand")]


def only(score, series):
    (found,) = lines_of(score, series)
    return found


def single(spec, seq_len=200, draws=64, curve="score"):
    return pictures.score_lines([spec], ["x"], seq_len, draws, curve)


# ------------------------------------------------------------------ the large picture


def test_equal_vectors_are_drawn_relative_to_distance_zero():
    score = single(ROPE)
    drawn = only(score, "equal vectors")
    expected = [sum(math.cos(k * 10_000 ** (-i / 32)) for i in range(32)) / 32 for k in range(200)]
    np.testing.assert_allclose(drawn["y"], expected, atol=1e-12)
    np.testing.assert_array_equal(drawn["x"], np.arange(200))


def test_the_bound_is_the_analysis_relative_to_distance_zero_and_dashed():
    score = single(ROPE, 300)
    drawn = only(score, "RoFormer's bound factor")
    raw = analysis.roformer_bound(ROPE.inv_freq(), torch.tensor(drawn["x"].to_numpy()))
    np.testing.assert_allclose(drawn["y"], raw / 16.5, rtol=1e-12)  # mean of 1 … 32 at distance 0
    assert score.dashed == ("RoFormer's bound factor",)


def test_the_bound_factor_is_not_called_a_bound_of_the_scores():
    """Scores of equal vectors lie above it at most distances, so it must not be said to bound them."""
    score = single(ROPE, 512)
    above = only(score, "equal vectors")["y"].to_numpy() > only(score, "RoFormer's bound factor")["y"].to_numpy() + 1e-9
    assert above.mean() > 0.5
    (name, _, meaning) = pictures.key_numbers([ROPE], 512, 8, 0, "random")[1]
    assert name == "bound factor at 511"
    said = [meaning, pictures.seen_lines([ROPE], ["x"], 512, 8, "score")]
    said.append(pictures.seen_lines([ROPE, LONG], ["a", "b"], 512, 8, "score"))
    assert all("the shape of the bound; scores can lie above it" in text for text in said)


def test_random_vectors_are_drawn_as_mean_and_middle_80_percent():
    score = single(ROPE, 200, draws=32)
    drawn = only(score, "random q, k")
    raw = analysis.random_scores(build(ROPE), 64, torch.tensor(drawn["x"].to_numpy()), 32).numpy()
    np.testing.assert_allclose(drawn["y"], raw.mean(0), atol=1e-12)
    band = score.data[score.data["part"] == "band"]
    assert score.bands
    np.testing.assert_allclose(band["low"], np.quantile(raw, 0.1, axis=0), atol=1e-12)
    np.testing.assert_allclose(band["high"], np.quantile(raw, 0.9, axis=0), atol=1e-12)


def test_random_vectors_stay_near_zero_and_the_caption_says_so():
    random = compute.random(ROPE, 512, 512)
    assert np.abs(random.mean).max() < 0.25
    assert abs(random.low.mean() + 1.28) < 0.1
    assert abs(random.high.mean() - 1.28) < 0.1
    seen = pictures.seen_lines([ROPE], ["RoPE"], 512, 512, "score")
    assert f"{random.low.mean():.2f} to {random.high.mean():.2f}, a mean over all distances" in seen
    assert "near 0" in seen
    few = compute.random(ROPE, 512, 8)
    assert np.abs(few.mean).max() > 0.25
    seen = pictures.seen_lines([ROPE], ["RoPE"], 512, 8, "score")
    assert f"averages {few.mean.min():.2f} to {few.mean.max():.2f}, and" in seen
    assert "near 0" not in seen


@pytest.mark.parametrize("fields", [{}, {"base": 1.001}, {"rotary_fraction": 0.25}])
def test_the_caption_says_what_the_curve_of_equal_vectors_does(fields):
    spec = parse_spec({"scheme": "rope"} | fields)
    curve = compute.equal(spec, 400) / compute.equal(spec, 400)[0]
    seen = pictures.seen_lines([spec], ["x"], 400, 8, "score")
    assert f"lowest at {curve.argmin()} ({curve.min():.3g}) and {curve[-1]:.3g} at 399" in seen
    assert "decay" not in seen
    assert ("stays above half" in seen) == (curve.min() >= 0.5)


def test_heavy_random_draws_are_thinned_out_not_left_out():
    random = compute.random(parse_spec({"scheme": "rope", "d_head": 1024}), 4096, 512)
    assert 2 <= len(random.distances) <= 64
    assert random.distances[0] == 0


@pytest.mark.parametrize(
    ("fields", "still", "rotating"),
    [({"rotary_fraction": 0.25}, 48, 8), ({"rotary_fraction": 0.75, "scaling": "proportional"}, 16, 24)],
)
def test_features_that_do_not_rotate_are_a_constant_and_outside_the_bound(fields, still, rotating):
    spec = parse_spec({"scheme": "rope"} | fields)
    score = single(spec)
    inv_freq = spec.inv_freq()[:rotating]
    x = torch.arange(200, dtype=torch.float64)
    expected = (still + 2 * torch.cos(x[:, None] * inv_freq).sum(-1)) / 64
    np.testing.assert_allclose(only(score, "equal vectors")["y"], expected, atol=1e-12)
    bound = only(score, f"RoFormer's bound factor ({rotating} rotating pairs)")
    raw = analysis.roformer_bound(inv_freq, torch.tensor(bound["x"].to_numpy()))
    np.testing.assert_allclose(bound["y"], raw / raw[0], rtol=1e-12)
    assert f"{still} features" in pictures.seen_lines([spec], ["x"], 200, 8, "score")


def test_sinusoidal_is_one_curve_from_every_p():
    score = single(SINUSOIDAL)
    expected = [sum(math.cos(k * 10_000 ** (-i / 64)) for i in range(64)) / 64 for k in range(200)]
    np.testing.assert_allclose(only(score, "from every p")["y"], expected, atol=1e-9)
    assert score.series == (("from every p", SCHEME_COLOURS["sinusoidal"]),)
    assert pictures.start_difference(SINUSOIDAL, 200) < 1e-13


def test_raw_integers_grow_from_each_position():
    score = single(DEFAULTS["integer"], 64)
    for p in (2, 8, 32):
        np.testing.assert_allclose(only(score, f"from p = {p}")["y"], [(p + k) / p for k in range(64)], rtol=1e-12)
    assert "grows" in pictures.seen_lines([DEFAULTS["integer"]], ["x"], 64, 8, "score")
    assert pictures.start_difference(DEFAULTS["integer"], 64) == pytest.approx(63 / 2 - 63 / 32)


def test_learned_curves_end_where_the_table_does():
    spec = DEFAULTS["learned"]
    table = encoding(spec).table.double()
    score = single(spec, 300)
    for p in (4, 16, 64):
        drawn = only(score, f"from p = {p}")["y"].to_numpy()
        expected = (table[p:] @ table[p] / (table[p] @ table[p])).numpy()
        np.testing.assert_allclose(drawn[: 128 - p], expected, rtol=1e-6)
        assert np.isnan(drawn[128 - p :]).all()


@pytest.mark.parametrize("curve", ["score", "weight"])
def test_alibi_has_a_line_a_head(curve):
    score = single(ALIBI, 200, curve=curve)
    assert [s[0] for s in score.series] == [f"head {i}" for i in range(8)]
    for head in range(8):
        drawn = only(score, f"head {head}")
        bias = -(2.0 ** -(head + 1)) * drawn["x"]
        np.testing.assert_allclose(drawn["y"], np.exp(bias) if curve == "weight" else bias, atol=1e-12)


def test_no_position_is_flat():
    assert (only(single(NONE), "equal vectors")["y"] == 1).all()


def test_the_training_length_is_marked_only_where_it_is_on_the_axis():
    assert 128 in single(ROPE, 129).data.query("part == 'upright'")["x"].to_list()
    assert single(ROPE, 128).data.query("part == 'upright'").empty


@pytest.mark.parametrize("scheme", PLAIN)
@pytest.mark.parametrize("seq_len", [8, 4096])
def test_frames_stay_light(scheme, seq_len):
    assert len(single(DEFAULTS[scheme], seq_len, draws=512).data) <= 3.2 * 4096


def test_wide_vectors_are_thinned_out():
    dots = compute.dots(parse_spec({"scheme": "sinusoidal", "d_model": 16384}), 4096)
    assert dots.scores.shape == (3, 256)
    assert dots.distances[1] == 16


# ------------------------------------------------------------------ two schemes


def two(first, second, curve="score", seq_len=200):
    specs = [first, second]
    return pictures.score_lines(specs, names_of(specs), seq_len, 64, curve)


def test_two_ropes_differ_in_colour_and_have_a_dashed_bound_each():
    score = two(ROPE, LONG)
    assert dict(score.series)["RoPE"] == SCHEME_COLOURS["rope"]
    assert dict(score.series)["RoPE (base=500000)"] == VERMILLION
    assert score.dashed == ("bound factor, RoPE", "bound factor, RoPE (base=500000)")
    np.testing.assert_array_equal(only(score, "RoPE")["y"], only(single(ROPE), "equal vectors")["y"])
    np.testing.assert_array_equal(only(score, "RoPE (base=500000)")["y"], only(single(LONG), "equal vectors")["y"])


def test_rope_and_alibi_are_drawn_in_scores_or_weights():
    score = two(ROPE, ALIBI)
    equal = compute.equal(ROPE, 200)
    np.testing.assert_array_equal(only(score, "RoPE")["y"], equal - equal[0])
    assert len(lines_of(score, "ALiBi")) == 8
    np.testing.assert_allclose(lines_of(score, "ALiBi")[2]["y"], -lines_of(score, "ALiBi")[2]["x"] / 8)
    np.testing.assert_array_equal(only(two(ROPE, ALIBI, "weight"), "RoPE")["y"], np.exp(equal - equal[0]))


@pytest.mark.parametrize("first", PLAIN)
@pytest.mark.parametrize("second", PLAIN)
def test_any_two_schemes_can_be_compared(first, second):
    specs = [DEFAULTS[first], DEFAULTS[second]]
    names = names_of(specs)
    for curve in ("score", "weight"):
        score = pictures.score_lines(specs, names, 64, 8, curve)
        assert set(score.data.query("part == 'line'")["series"]) == {s[0] for s in score.series}
        assert np.isfinite(score.data.query("part == 'line'")["y"]).any()
        assert pictures.seen_lines(specs, names, 64, 8, curve)
    assert len(set(pictures.colours(specs))) == 2
    assert 3 <= len(pictures.key_numbers(specs, 64, 8, 0, "random")) <= 5
    panels = pictures.matrices(specs, names, "identity", 0, 64)
    assert panels[0].domain == panels[1].domain
    assert pictures.difference(panels).values.shape == (64, 64)


def test_the_promise_of_a_projection_is_the_larger_change_of_two_schemes():
    (t,) = pictures.try_projection([ROPE, SINUSOIDAL], "identity", 0, 64, {})
    share = compute.share(SINUSOIDAL, "random", 0, 64).median
    assert t.changes == {"projection": "random"}
    assert t.then == f"Beyond m - n: {100 * share:.3g}%, not 0%."


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_rounding_is_not_drawn_as_a_picture(projection):
    (panel,) = pictures.matrices([NONE], ["x"], projection, 0, 256)
    assert panel.domain == (-1.0, 1.0)
    assert np.abs(panel.values).max() < 1e-12


def test_the_difference_is_first_minus_second_and_missing_where_either_is():
    panels = pictures.matrices([ROPE, ALIBI], ["a", "b"], "identity", 0, 32)
    values = pictures.difference(panels).values
    later = np.triu(np.ones((32, 32), bool), 1)
    assert (~np.isfinite(values[later])).all()
    np.testing.assert_allclose(values[~later], (panels[0].values - panels[1].values)[~later])


def test_a_scheme_that_falls_without_limit_leaves_the_other_its_colours():
    panels = pictures.matrices([ROPE, ALIBI], ["a", "b"], "identity", 0, 256)
    assert panels[1].domain[1] == pytest.approx(np.abs(panels[0].values).max())
    assert pictures.clipped(panels)
    assert "end colour" in pictures.seen_matrix([ROPE, ALIBI], ["a", "b"], "identity", 0, 256, panels)


# ------------------------------------------------------------------ matrices and residuals


def test_identity_matrix_of_a_rotation_is_the_curve_of_equal_vectors():
    scores = compute.matrix(ROPE, "identity", 0, 100).scores
    distance = np.abs(np.subtract.outer(np.arange(100), np.arange(100)))
    np.testing.assert_allclose(scores, compute.equal(ROPE, 100)[distance], atol=1e-9)


def test_identity_matrix_of_vectors_is_their_dot_products():
    vectors = build(SINUSOIDAL).vectors(torch.arange(50))
    np.testing.assert_allclose(compute.matrix(SINUSOIDAL, "identity", 0, 50).scores, vectors @ vectors.T / 128**0.5)


def test_matrices_are_the_first_256_positions_at_most():
    assert compute.matrix(ROPE, "random", 0, 4096).scores.shape == (256, 256)
    assert compute.matrix(ROPE, "random", 0, 8).scores.shape == (8, 8)
    assert "the first 256 positions" in pictures.seen_matrix(
        [ROPE], ["x"], "random", 0, 4096, pictures.matrices([ROPE], ["x"], "random", 0, 4096)
    )


@pytest.mark.parametrize("scheme", ["none", "rope", "alibi"])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_rotations_and_biases_leave_no_residual(scheme, projection):
    made = compute.matrix(DEFAULTS[scheme], projection, 1, 200)
    assert made.share < 1e-24
    assert pictures.percent(made.share) == "0%"
    assert np.nanmax(np.abs(made.residual)) < 1e-9


def test_added_vectors_leave_a_residual_as_soon_as_there_are_projections():
    shares = {p: compute.matrix(SINUSOIDAL, p, 0, 200).share for p in PROJECTIONS}
    assert shares["identity"] < 1e-24
    assert shares["random"] > 0.3
    assert shares["trained"] > 0.3


@pytest.mark.parametrize("head", range(8))
def test_a_head_of_alibi_is_computed_alone_with_its_slope(head):
    scores = compute.matrix(ALIBI, "identity", head, 16).scores
    m, n = np.indices((16, 16))
    np.testing.assert_allclose(scores[m >= n], (-(2.0 ** -(head + 1)) * (m - n))[m >= n])
    assert np.isinf(scores[m < n]).all()


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_positions_without_a_row_are_hatched(projection):
    spec = DEFAULTS["learned"]
    made = compute.matrix(spec, projection, 0, 256)
    assert np.isfinite(made.scores[:128, :128]).all()
    assert np.isnan(made.scores[128:]).all()
    assert np.isnan(made.scores[:, 128:]).all()
    (panel,) = pictures.matrices([spec], ["x"], projection, 0, 256)
    assert panel.undefined_label == "no row in the table"


def test_trained_projections_read_the_readers_parameters_where_sizes_allow():
    assert compute.matrix(LONG, "trained", 0, 64).used.base == 500_000
    assert not np.allclose(compute.matrix(LONG, "trained", 0, 64).scores, compute.matrix(ROPE, "trained", 0, 64).scores)
    narrow = parse_spec({"scheme": "rope", "rotary_fraction": 0.1})  # 3 of the toy's 32 features: no whole pair
    assert compute.matrix(narrow, "trained", 0, 64).used.rotary_fraction == 1.0
    odd = parse_spec({"scheme": "alibi", "n_heads": 2, "slopes": [1.0, 2.0]})  # the toy model has four heads
    assert compute.matrix(odd, "trained", 0, 64).used.n_heads == 4


def test_a_scheme_without_a_toy_model_still_has_its_page(monkeypatch):
    monkeypatch.setattr(compute, "records", dict)
    assert compute.matrix(ROPE, "trained", 0, 32) is None
    assert pictures.matrices([ROPE], ["x"], "trained", 0, 32) == []
    assert "no toy model" in pictures.seen_matrix([ROPE], ["x"], "trained", 0, 32, [])
    assert len(pictures.residuals([ROPE], ["x"], 0, 32)) == 2
    assert pictures.key_numbers([ROPE], 32, 8, 0, "trained")[-1][1] == "no model"
    assert pictures.seen_shares(pictures.shares([ROPE], ["RoPE"], 0, 32).data)


def test_residual_panels_share_one_scale_and_name_their_share():
    panels = pictures.residuals([ROPE, SINUSOIDAL], ["a", "b"], 0, 200)
    assert len({p.domain for p in panels}) == 1
    assert [p.title.split(", ")[1] for p in panels] == ["a"] * 3 + ["b"] * 3
    share = compute.matrix(SINUSOIDAL, "random", 0, 200).share
    assert panels[4].title == f"random W (one of 16): {100 * share:.3g}%, b"
    assert max(p.rows for p in panels) <= pictures.THUMBNAIL


def test_a_random_share_is_the_median_of_draws_and_the_matrix_is_the_first_of_them():
    generator, shares = torch.Generator().manual_seed(0), []
    vectors = build(SINUSOIDAL).vectors(torch.arange(100))
    for _ in range(16):
        x = torch.randn(128, generator=generator, dtype=torch.float64) + vectors
        w_q, w_k = torch.randn(2, 1, 64, 128, generator=generator, dtype=torch.float64)[:, 0] / 128**0.5
        shares.append(analysis.relative_residual((x @ w_q.T) @ (x @ w_k.T).T / 8).share)
    found = compute.share(SINUSOIDAL, "random", 0, 100)
    assert found == pytest.approx((np.median(shares), min(shares), max(shares), 16))
    assert compute.matrix(SINUSOIDAL, "random", 0, 100).share == pytest.approx(shares[0])
    assert found.low < found.high - 0.05
    whole = f"{100 * found.median:.3g}% ({100 * found.low:.0f}–{100 * found.high:.0f}%)"
    _, value, meaning = pictures.key_numbers([SINUSOIDAL], 100, 8, 0, "random")[-1]
    assert value == whole
    assert "median of 16 draws" in meaning
    panels = pictures.matrices([SINUSOIDAL], ["a"], "random", 0, 100)
    assert f"median of 16: {whole}" in pictures.seen_matrix([SINUSOIDAL], ["a"], "random", 0, 100, panels)
    assert whole in pictures.seen_residuals([SINUSOIDAL], ["a"], 0, 100)


def test_draws_are_fewer_for_wide_vectors_and_one_without_random_projections():
    assert compute.share(parse_spec({"scheme": "sinusoidal", "d_model": 8192}), "random", 0, 16).draws == 4
    share = compute.share(SINUSOIDAL, "trained", 0, 64)
    assert share.draws == 1
    assert share.low == share.median == share.high == compute.matrix(SINUSOIDAL, "trained", 0, 64).share
    assert pictures.percents(compute.share(ROPE, "random", 0, 64)) == "0%"


def test_residuals_are_in_standard_deviations_so_that_their_square_is_the_share():
    made = compute.matrix(SINUSOIDAL, "random", 0, 128)
    assert np.square(made.residual).mean() == pytest.approx(made.share)


def test_shares_hold_every_scheme_and_projection_with_the_chosen_one_in_full_colour():
    shares = pictures.shares([LONG], ["RoPE (base=500000)"], 0, 64)
    assert shares.series[0] == ("RoPE (base=500000)", SCHEME_COLOURS["rope"])
    assert all(colour.endswith("66") for _, colour in shares.series[1:])
    assert [n for n, _ in shares.series[1:]] == [SCHEME_TEXT[s].name for s in PLAIN if s != "rope"]
    row = shares.data.query("name == 'random W' and series == 'Sinusoidal'").iloc[0]
    share = compute.share(SINUSOIDAL, "random", 0, 64)
    assert row["value"] == pytest.approx(100 * share.median)
    assert row["text"] == f"Sinusoidal {row['value']:.3g}% ({100 * share.low:.0f}–{100 * share.high:.0f}%)"


# ------------------------------------------------------------------ numbers


def test_half_distance_is_the_first_below_half():
    curve = compute.equal(ROPE, 512) / compute.equal(ROPE, 512)[0]
    half = pictures.half_distance(ROPE, 512)
    assert curve[half] < 0.5
    assert (curve[:half] >= 0.5).all()
    assert pictures.half_distance(NONE, 512) is None
    assert pictures.half_distance(LONG, 512) > half


def test_key_numbers_of_alibi_are_its_reaches():
    facts = {name: value for name, value, _ in pictures.key_numbers([ALIBI], 512, 8, 3, "random")}
    assert facts["1/e in head 3"] == "16 positions"
    assert (facts["shortest reach"], facts["longest reach"]) == ("2 positions", "256 positions")
    assert facts["heads that see all"] == "0 of 8"
    at_the_end = {name: value for name, value, _ in pictures.key_numbers([ALIBI], 257, 8, 3, "random")}
    assert at_the_end["heads that see all"] == "0 of 8"  # exactly 1/e is not above it
    flat = parse_spec({"scheme": "alibi", "n_heads": 1, "slopes": [0.0]})
    assert [value for _, value, _ in pictures.key_numbers([flat], 512, 8, 0, "random")][:3] == ["never"] * 3


def test_a_slope_of_zero_never_reaches_1_over_e():
    some = parse_spec({"scheme": "alibi", "n_heads": 3, "slopes": [0.0, 1.0, 0.5]})
    none = parse_spec({"scheme": "alibi", "n_heads": 1, "slopes": [0.0]})
    said = [
        pictures.seen_lines([some], ["x"], 512, 8, "score"),
        pictures.seen_lines([none], ["x"], 512, 8, "score"),
        pictures.seen_lines([ALIBI, some], ["a", "b"], 512, 8, "score"),
    ]
    assert "after 1 position in head 1 and never in head 0" in said[0]
    assert "no weight ever falls" in said[1]
    assert "2 to 256 positions against 1 position to never" in said[2]
    assert not any("inf" in text for text in said)
    assert "-0 " not in pictures.seen_lines([ROPE, none], ["a", "b"], 512, 8, "score").replace(".", " ")


def test_one_hot_positions_do_not_depend_on_the_start():
    spec = parse_spec({"scheme": "integer", "variant": "one_hot"})
    seen = pictures.seen_lines([spec], ["x"], 512, 8, "score")
    assert "does not depend on p: the curves from p = 4, 16, 64 are the same" in seen
    assert "first falls below half at distance 1" in seen


def test_a_table_too_short_for_two_starts_claims_nothing_about_them():
    spec = parse_spec({"scheme": "learned", "max_position_embeddings": 2})
    assert pictures.start_difference(spec, 8) is None
    assert "no other p" in pictures.seen_lines([spec], ["x"], 8, 8, "score")
    assert dict(f[:2] for f in pictures.key_numbers([spec], 8, 8, 0, "random"))["depends on p"] == "–"


@pytest.mark.parametrize("scheme", PLAIN)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_three_to_five_key_numbers(scheme, projection):
    for seq_len in (8, 512):
        assert 3 <= len(pictures.key_numbers([DEFAULTS[scheme]], seq_len, 8, 0, projection)) <= 5


@pytest.mark.parametrize("scheme", PLAIN)
def test_tries_change_only_what_exists(scheme):
    spec = DEFAULTS[scheme]
    tries = [
        *pictures.try_lines([spec], 64), *pictures.try_shares([spec]),
        *pictures.try_projection([spec], "random", 0, 64, {}),
    ]  # fmt: skip
    names = {p.name for s in SCHEMES.values() for p in s.params()} | {"scheme", "projection"}
    for t in tries:
        assert t.changes
        assert {n.removeprefix("b_") for n in t.changes} <= names
        assert t.then or scheme in ("integer", "hybrid")


# ------------------------------------------------------------------ the page


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_page_of_every_scheme_and_projection(open_app, scheme, projection):
    at = open_app("decay", {"scheme": scheme, "projection": projection})
    assert not at.exception
    assert not at.warning
    assert len(at.get("vega_lite_chart")) == 2
    assert 3 <= len(at.metric) <= 5
    assert not at.error


@pytest.mark.parametrize(
    "query",
    ["scheme=rope&b_scheme=rope&b_base=500000", "scheme=rope&b_scheme=alibi", "scheme=hybrid&b_scheme=learned",
     "scheme=rope&rotary_fraction=0.1", "scheme=learned&max_position_embeddings=2&seq_len=8",
     "scheme=integer&variant=one_hot&seq_len=256", "scheme=rope&seq_len=4096&draws=512",
     "scheme=alibi&n_heads=1&slopes=0&seq_len=8", "scheme=sinusoidal&d_model=2&seq_len=4096"],
)  # fmt: skip
def test_page_of_links(open_app, query):
    at = open_app("decay", query)
    assert not at.exception
    assert not at.warning
    assert len(at.get("vega_lite_chart")) == 2


def test_link_reaches_the_widgets_and_comes_back(open_app, address):
    query = {"scheme": "alibi", "projection": "trained", "curve": "weight", "head": "3", "seq_len": "1024"}
    at = open_app("decay", query)
    assert at.slider(key="head").value == 3
    assert at.select_slider(key="seq_len").value == 1024
    assert {b.key: b.value for b in at.button_group}["projection"] == "trained"
    assert {b.key: b.value for b in at.button_group}["curve"] == "weight"
    assert address(at) == query


def test_layer_of_a_hybrid_is_what_is_drawn(open_app):
    layers = "rope, alibi"
    first, second = (open_app("decay", {"scheme": "hybrid", "layers": layers, "layer": n}) for n in ("0", "1"))
    assert first.metric[0].label == "below half"
    assert second.metric[0].label == "1/e in head 0"


def test_axis_and_legend_of_the_page(open_app):
    at = open_app("decay", {"scheme": "rope", "seq_len": "256"})
    spec = json.loads(at.get("vega_lite_chart")[0].proto.spec)
    line = next(
        layer for layer in spec["layer"] if layer["mark"].get("type") == "line" and "strokeDash" in layer["encoding"]
    )
    assert line["encoding"]["x"]["scale"]["domain"] == [0, 255]
    assert line["encoding"]["color"]["scale"]["domain"] == ["equal vectors", "RoFormer's bound factor", "random q, k"]
    assert line["encoding"]["y"]["title"] == "score relative to distance 0"


def test_illegal_values_are_named_and_the_page_still_draws(open_app):
    at = open_app("decay", {"scheme": "rope", "draws": "1000000", "projection": "guess", "head": "-1"})
    (warning,) = at.warning
    for word in ("draws", "1000000", "projection", "guess", "head"):
        assert word in warning.value
    assert len(at.get("vega_lite_chart")) == 2
    assert at.select_slider(key="draws").value == DecayView.param("draws").default
