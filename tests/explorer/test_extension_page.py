"""The Extension page: frames and sentences that equal the core's numbers, odd settings, the toy model's job, bounds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
import test_pages
import torch
from streamlit.testing.v1 import AppTest

from explorer import state
from explorer.charts import curves, palette
from explorer.charts import extension as charts
from explorer.compute import common
from explorer.compute import extension as compute
from explorer.compute.common import MAX_CELLS
from explorer.pictures import extension as pictures
from explorer.pictures import extension_scores as scores
from explorer.pictures import extension_toy as toys
from explorer.text import Try
from posenc_core import SCHEMES, cosine_sums, extension, parse_query, parse_spec
from posenc_core.extension import LONGEST, METHODS
from posenc_core.frequencies import rope_frequencies
from posenc_core.recommend import recommend
from posenc_core.schemes.rope import RopeSpec

ROOT = Path(__file__).resolve().parents[2]
LLAMA2 = RopeSpec(d_head=128)
DEFAULT = compute.setting([LLAMA2], 8192, 131_072)
PATIENCE = 120.0


pytestmark = pytest.mark.usefixtures("own_jobs")


def button(at: AppTest, label: str) -> Any:
    return next(b for b in at.button if b.label == label)


def captions(at: AppTest) -> str:
    """Without their escapes."""
    return "\n".join(re.sub(r"\\(.)", r"\1", c.value) for c in at.caption)


def charts_of(at: AppTest) -> list[str]:
    return [c.proto.alt for c in at.get("vega_lite_chart")]


# ---------------------------------------------------------------- what is compared


def test_the_default_setting_compares_every_method() -> None:
    assert tuple(DEFAULT.methods) == METHODS == DEFAULT.derived
    assert DEFAULT.factor == 16


def test_a_scaling_of_the_sidebars_own_joins_as_chosen() -> None:
    mine = RopeSpec(d_head=128, scaling="llama3", factor=8.0)
    made = compute.setting([mine], 8192, 131_072)
    assert made.methods["chosen"] == mine
    assert made.methods["llama3"].factor == 16
    assert "chosen" not in made.derived
    assert pictures.name_of(made, "chosen") == "as chosen (llama3)"
    # the same scaling with the same factor is not there twice
    assert "chosen" not in compute.setting([mine.replace(factor=16.0)], 8192, 131_072).methods


def test_a_second_rotation_joins_and_other_schemes_do_not() -> None:
    other = RopeSpec(d_head=64, base=500_000.0)
    made = compute.setting([LLAMA2, other], 8192, 131_072)
    assert made.methods["second"] == other
    assert len(compute.angles(made.methods["second"], 8192, 131_072).full) == 32
    assert "second" not in compute.setting([LLAMA2, parse_spec({"scheme": "alibi"})], 8192, 131_072).methods
    assert "second" not in compute.setting([LLAMA2, LLAMA2], 8192, 131_072).methods


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_finds_a_rotation(scheme: str) -> None:
    spec = parse_spec({"scheme": scheme})
    made = compute.setting([spec], 8192, 131_072)
    assert isinstance(made.base, RopeSpec)
    notes = pictures.notes([spec], made, (8192, 131_072))
    assert len(notes) == (0 if scheme == "rope" else 1)


def test_a_hybrids_first_rotation_is_extended() -> None:
    spec = parse_spec({"scheme": "hybrid", "layers": [{"scheme": "none"}, {"scheme": "rope", "d_head": 32}]})
    assert compute.setting([spec], 8192, 131_072).base.d_head == 32
    assert common.rope_of(parse_spec({"scheme": "hybrid", "layers": [{"scheme": "none"}] * 2})) is None


@pytest.mark.parametrize(
    ("trained", "target", "shown", "said"),
    [
        (8192, 4096, 8192, "within the 8,192 positions of training: nothing is to be stretched"),
        (2, LONGEST, 8192, "Shown up to 8,192"),
        (64, 64, 64, "The target of 64 is the trained length: nothing is to be stretched"),
    ],
)
def test_targets_that_make_no_sense_are_moved_and_told(trained: int, target: int, shown: int, said: str) -> None:
    made = compute.setting([LLAMA2], trained, target)
    assert made.target == shown
    nothing = pictures.nothing_to_stretch(made, target)
    notes = [*pictures.notes([LLAMA2], made, (trained, target)), *([nothing[0]] if nothing else [])]
    assert len(notes) == 1
    assert said in notes[0]


# ---------------------------------------------------------------- pictures equal the core's numbers


@pytest.mark.parametrize("method", ["none", "ntk", "yarn"])
def test_the_large_map_is_the_cores(method: str) -> None:
    picture = pictures.beyond_map(DEFAULT, method)
    values, step = extension.beyond(DEFAULT.methods[method], 8192, 131_072, compute.COLUMNS)
    np.testing.assert_allclose(picture.values, values.numpy(), equal_nan=True)
    assert picture.x.at(0) == (step - 1) / 2
    assert picture.x.extent(picture.cols) == (-0.5, 131_072 - 0.5)
    first = float(compute.angles(DEFAULT.methods[method], 8192, 131_072).first_bad.min())
    assert [g.value for g in picture.guides] == ([8192, first] if 8192 < first < 131_072 else [8192])


def test_every_method_has_a_small_map_on_the_same_scale() -> None:
    made = pictures.small_maps(DEFAULT)
    assert [m.title for m in made] == list(METHODS)
    assert len({m.domain for m in made}) == 1
    assert {(m.rows, m.cols) for m in made} == {(64, compute.SMALL_COLUMNS)}


def test_the_largest_settings_stay_within_the_bounds() -> None:
    made = compute.setting([RopeSpec(d_head=1024)], 8192, LONGEST)
    picture = pictures.beyond_map(made, "yarn")
    assert picture.rows == 512
    assert picture.values.size <= MAX_CELLS
    assert compute.envelope(made.methods["yarn"], made.target).searched == compute.WORK // 512
    assert compute.negative(made.methods["linear"], made.target).searched == compute.WORK // 512
    assert len(scores.decay_lines(made, "yarn").data) < 10 * compute.BLOCKS
    assert "end at 2,097,152" in scores.seen_decay(made, "yarn")


def test_dials_show_the_arc_seen_and_the_arc_past_it() -> None:
    found = compute.angles(DEFAULT.methods["none"], 8192, 131_072)
    data = pictures.dials(DEFAULT, "none")
    seen, new = data[data["part"] == charts.SEEN], data[data["part"] == charts.NEW]
    assert len(seen) == pictures.DIALS
    pairs = seen["pair"].str.removeprefix("pair ").astype(int)
    np.testing.assert_allclose(seen["stop"], 2 * np.pi * found.seen.numpy()[pairs].clip(max=1))
    bad = [p for p in pairs if bool(found.bad(131_072)[p])]
    assert new["pair"].str.removeprefix("pair ").astype(int).tolist() == bad
    assert (new["stop"] <= 2 * np.pi).all()
    assert (new["start"] < new["stop"]).all()
    assert not (pictures.dials(DEFAULT, "linear")["part"] == charts.NEW).any()


def test_lines_that_would_hide_each_other_are_one() -> None:
    made = pictures.groups(DEFAULT)
    assert sorted(m for _, _, methods in made for m in methods) == sorted(METHODS)
    assert [name for name, _, methods in made if len(methods) > 1] == ["ntk_by_parts, yarn"]
    assert len({colour for _, colour, _ in made}) == len(made)


def test_turns_are_drawn_as_they_are() -> None:
    lines = pictures.arc_lines(DEFAULT)
    of = lines.data.set_index(["series", "x"])["y"]
    w = LLAMA2.inv_freq().numpy()
    np.testing.assert_allclose(of[pictures.SEEN].sort_index(), w * 8192 / (2 * np.pi))
    np.testing.assert_allclose(of["none"].sort_index(), w * 131_072 / (2 * np.pi))
    assert lines.data[lines.data["part"] == "level"]["y"].tolist() == [1.0]


def test_ratios_and_their_bands() -> None:
    data, series = pictures.ratio_lines(DEFAULT, "llama3")
    runs = data[data["part"] == "run"]
    low, high = runs["y"].max(), runs["y2"].min()
    report = compute.report(DEFAULT.methods["llama3"], 131_072)
    assert runs["action"].tolist() == ["kept", "ramped", "divided"]
    assert [int(n) for n in runs["pairs"]] == [report.count(a) for a in ("kept", "ramped", "divided")]
    assert runs["x"].iloc[1:].tolist() == runs["x2"].iloc[:-1].tolist()
    drawn = data[(data["part"] == "line") & (data["series"] == "llama3")]["y"].to_numpy()
    np.testing.assert_allclose(drawn, 1 / report.divided_by.numpy())
    lines = data[data["part"] == "line"]["y"]
    assert low < lines.min()
    assert lines.max() < high
    assert len(series) == len(pictures.groups(DEFAULT))


@pytest.mark.parametrize("method", METHODS)
def test_every_difference_of_implementations_is_drawn_with_its_size(method: str) -> None:
    for differs in pictures.variants_of(DEFAULT.methods[method]):
        both = pictures.variants(DEFAULT, method, differs, 32_768)
        names = pictures.VARIANT_NAMES[differs]
        one, two = (both.data[both.data["series"] == n]["y"].to_numpy() for n in names)
        assert len(one) == len(two) > 0
        gap = both.gap.data[both.gap.data["series"] == "difference"]["y"].to_numpy()
        if differs == "attention_on":
            assert "all 128 features" in both.sentence.lower()
            np.testing.assert_allclose(one, two)
            np.testing.assert_allclose(gap, two - one)
        else:
            np.testing.assert_allclose(gap, two / one - 1)
            worst = int(np.abs(one / two - 1).argmax())
            assert f"in pair {worst}" in both.sentence
            assert f"by {abs(one[worst] / two[worst] - 1):.3g} of its frequency" in both.sentence


def test_where_the_factor_acts_matters_for_partial_rotation() -> None:
    made = compute.setting([RopeSpec(d_head=128, rotary_fraction=0.5)], 8192, 131_072)
    both = pictures.variants(made, "yarn", "attention_on", 32_768)
    one, two = (both.data[both.data["series"] == n]["y"].to_numpy() for n in pictures.VARIANT_NAMES["attention_on"])
    assert f"scores differ by up to {np.abs(one - two).max():.3g}" in both.sentence
    assert "Of 128 features 64 rotate" in both.sentence
    same = pictures.variants(compute.setting([RopeSpec(rotary_fraction=0.5)], 64, 64), "yarn", "attention_on", 64)
    assert same.sentence == "The attention factor is 1 here, so both give the same scores."


def test_dynamic_ntk_is_as_long_as_the_sequence_or_as_long_as_it_gets() -> None:
    within = pictures.variants(DEFAULT, "dynamic", "dynamic_length", 8192)
    follows, maximum = (within.data[within.data["series"] == n]["y"] for n in pictures.VARIANT_NAMES["dynamic_length"])
    assert (follows == 1).all()
    assert maximum.iloc[-1] < 1 / 16
    assert "same frequencies" in pictures.variants(DEFAULT, "dynamic", "dynamic_length", 131_072).sentence


def test_decay_lines_are_means_within_the_range() -> None:
    lines = scores.decay_lines(DEFAULT, "llama3").data
    mean = lines[(lines["part"] == "line") & (lines["series"] == "llama3")]
    band = lines[lines["part"] == "band"]
    assert set(band["series"]) == {"llama3"}
    assert (band["low"].to_numpy() <= mean["y"].to_numpy() + 1e-12).all()
    assert (mean["y"].to_numpy() <= band["high"].to_numpy() + 1e-12).all()
    w = rope_frequencies(DEFAULT.methods["llama3"], 131_072).inv_freq
    first = compute.negative(DEFAULT.methods["llama3"], 131_072).distance
    assert first is not None
    assert (torch.arange(first, first + 1).double()[:, None] * w).cos().sum() < 0
    assert f"below zero at distance {first:,}" in scores.seen_decay(DEFAULT, "llama3")


def test_roformers_factor_starts_at_one_and_falls() -> None:
    found = compute.decay(LLAMA2, 131_072)
    assert found.bound[0] == pytest.approx(1, abs=0.05)
    assert found.bound[-1] < 0.3
    assert (found.bound > 0).all()


def test_the_recorded_bound_is_what_a_search_finds() -> None:
    for dim in (32, 128):
        table = compute.reaches(dim)
        assert table.recorded
        assert table.limit == LONGEST
        picked = [k for k in range(0, len(table.bases), 97)]
        again = cosine_sums.reaches(dim, [table.bases[k] for k in picked], 4096)
        assert again == [min(table.reached[k], 4096) for k in picked]


def test_a_width_without_record_is_searched_as_far_as_a_reader_waits() -> None:
    table = compute.reaches(8)
    assert not table.recorded
    assert table.limit * 4 <= compute.SEARCH
    assert table.bound(table.limit + 1) is None
    assert len(table.reached) == len(table.bases)


def test_the_curve_of_bases_and_its_sentence() -> None:
    lines = scores.base_lines(DEFAULT)
    assert lines is not None
    bound = compute.reaches(128).bound(131_072)
    assert bound is not None
    assert bound.smallest is not None
    said = scores.seen_base(DEFAULT)
    shown = compute.bound(128, 131_072)
    assert shown is not None
    assert f"rounded up, {shown.smallest:,.13g}, and" in said
    assert "10,000 does not fit: Σcos is below zero at distance 1,707" in said
    assert "every one tried from 32,400,000 on does" in said
    curve = lines.data[lines.data["series"] == scores.SMALLEST]
    assert curve["y"].is_monotonic_increasing
    at_target = curve[curve["x"] == 131_072]["y"].item()
    assert at_target == bound.smallest
    always = lines.data[lines.data["series"] == scores.ALWAYS]
    assert (always["y"].to_numpy() >= curve["y"].to_numpy())[~np.isnan(always["y"].to_numpy())].all()
    [link] = scores.base_try(DEFAULT)
    wanted = float(link.changes["base"])
    assert bound.always is not None
    assert bound.always <= wanted < 1.02 * bound.always
    better = compute.setting([LLAMA2.replace(base=wanted)], 8192, 131_072)
    assert f"{wanted:,.13g} fits" in scores.seen_base(better)


@pytest.mark.parametrize(
    ("base", "dim", "length", "fits"),
    [(1_942_040.0, 128, 32_768, False), (2_485_770.0, 128, 32_768, False), (100_101.0, 64, 4096, True),
     (84_000.0, 128, 8000, True)],
)  # fmt: skip
def test_advice_and_chart_agree_on_the_models_own_base(base: float, dim: int, length: int, fits: bool) -> None:
    """Bases that a grid misjudges: two above what all tried fit from, two below the smallest tried."""
    model = RopeSpec(d_head=dim, base=base)
    sums = (torch.arange(length).double()[:, None] * model.inv_freq()).cos().sum(-1)
    assert bool((sums >= 0).all()) == fits
    made = compute.setting([model], length, length)
    bound = compute.reaches(dim).bound(length)
    assert bound is not None
    assert bound.smallest is not None
    assert bound.always is not None
    assert base < bound.smallest if fits else base > bound.always
    [reason] = [r for r in recommend(compute.numbers(made, None)).reasons if r.kind == "base"]
    assert reason.part == ("for" if fits else "against")
    name = f"{base:,.13g}"
    assert f"{name} {'fits.' if fits else 'does not fit'}" in scores.seen_base(made)
    assert f"a base of {name} {'keeps' if fits else 'does not keep'} Σcos above zero" in reason.sentence


def test_a_link_to_a_base_leads_to_one_that_does_what_it_says() -> None:
    for spec, length in ((LLAMA2, 16_384), (LLAMA2.replace(base=1_942_040.0), 32_768), (LLAMA2, 1000)):
        made = compute.setting([spec], length, length)
        [link] = scores.base_try(made)
        other = spec.replace(base=float(link.changes["base"]))
        assert compute.fits(other, length) is not compute.fits(spec, length)
    assert scores.base_try(compute.setting([RopeSpec(rotary_fraction=0.25)], 8192, 131_072)) == []


def test_features_that_do_not_rotate_keep_the_score_up() -> None:
    """16 of 64 features rotate: their Σcos falls below zero at 91, and the score of equal vectors never does."""
    made = compute.setting([RopeSpec(rotary_fraction=0.25)], 8192, 131_072)
    spec = made.methods["llama3"]
    own = extension.own_score(spec, torch.arange(131_072), 131_072)
    assert own.min() > 4
    assert compute.negative(spec, 131_072).distance == 91
    assert compute.score_negative(spec, 131_072).distance is None
    said = scores.seen_decay(made, "llama3")
    assert "sum over the rotating pairs first falls below zero at distance 91" in said
    assert "48 still features add 24 to the sum: it stays above zero at all distances below 131,072" in said
    found = compute.numbers(made, compute.recorded_toy())
    assert found.fits
    assert {c.negative for c in found.candidates} == {None}
    assert "Train with" not in recommend(found).verdict
    assert "with the 24 that its 48 still features add it does" in scores.seen_base(made)


@pytest.mark.parametrize("scaling", ["none", "yarn"])
def test_the_first_negative_score_counts_every_feature_and_the_attention_factor(scaling: str) -> None:
    spec = RopeSpec(rotary_fraction=0.75, scaling=scaling) if scaling == "none" else RopeSpec(
        rotary_fraction=0.75, scaling=scaling, factor=2.0, attention_factor=3.0, original_max_position_embeddings=512
    )  # fmt: skip
    own = extension.own_score(spec, torch.arange(65_536), 65_536)
    first = int((own < 0).nonzero()[0])
    assert compute.score_negative(spec, 65_536).distance == first
    assert compute.negative(spec, 65_536).distance < first


def test_a_new_base_is_measured_against_the_arcs_of_the_model() -> None:
    """Base 10,000 trained at 4,096, run with 500,000 at 16,384: every arc fits."""
    made = compute.setting([LLAMA2, LLAMA2.replace(base=500_000.0)], 4096, 16_384)
    old, new = made.base.inv_freq(), made.methods["second"].inv_freq()
    past = (16_383 * new >= 4096 * old) & (4096 * old < 2 * np.pi)
    assert not past.any()
    found = compute.arcs(made, "second")
    assert not found.bad(16_384).any()
    torch.testing.assert_close(found.seen, old * 4096 / (2 * np.pi))
    torch.testing.assert_close(found.ratio, new / old)
    assert (extension.beyond(made.methods["second"], 4096, 16_384, 64, made.base)[0].nan_to_num(-1) < 0).all()
    assert "second (base 500,000)" in pictures.seen_arcs(made).split("pairs that do")[0]
    assert "against the trained arcs of the model, base 10,000" in pictures.seen_map(made, "second")
    assert pictures.key_numbers(made, "second")[0][1] == "0 of 64 pairs"
    assert pictures.arc_dashes(made) == (pictures.SEEN, "second (base 500,000)")
    data, _ = pictures.ratio_lines(made, "second")
    low = data[data["part"] == "run"]["y"].max()
    drawn = data[(data["part"] == "line") & (data["series"] == "second (base 500,000)")]["y"]
    np.testing.assert_allclose(drawn, (new / old).numpy())
    assert (low < drawn).all()
    assert "1 kept, 63 divided; the largest division is by 47.04" in pictures.seen_ratios(made, "second")
    smaller = compute.setting([LLAMA2, LLAMA2.replace(base=500.0)], 4096, 16_384)
    data, _ = pictures.ratio_lines(smaller, "second")
    assert data[data["part"] == "line"]["y"].max() < data[data["part"] == "run"]["y2"].min()


def test_a_second_head_of_another_size_has_arcs_of_its_own_and_its_own_dashes() -> None:
    made = compute.setting([LLAMA2, RopeSpec(d_head=64, base=500_000.0)], 4096, 16_384)
    own = made.methods["second"].inv_freq() * 4096 / (2 * np.pi)
    lines = pictures.arc_lines(made)
    drawn = lines.data[lines.data["series"] == pictures.SEEN_SECOND]["y"]
    np.testing.assert_allclose(drawn, own.numpy())
    assert pictures.SEEN_SECOND in pictures.arc_dashes(made)
    bad = int((own < 1).sum())
    assert bad == 16
    said = pictures.seen_arcs(made)
    assert f"second (base 500,000) {bad}." in said
    assert "The second scheme rotates 32 pairs where the model rotates 64" in said


DEEPSEEK = RopeSpec(
    layout="interleaved", scaling="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=1.0,
    mscale_all_dim=1.0,
)  # fmt: skip


def test_what_multiplies_which_scores() -> None:
    made = compute.setting([DEEPSEEK], 4096, 163_840)
    g2 = (0.1 * np.log(40) + 1) ** 2
    assert scores.seen_factors(made) == f"yarn multiplies all scores by {g2:.4g}, g(mscale_all_dim)²."
    name, value, said = pictures.key_numbers(made, "yarn")[3]
    assert (name, value) == ("score factor", f"{g2:.4g}")
    assert f"1 through cos and sin of both q and k, {g2:.4g} on all scores" in said
    on_tables = scores.seen_factors(compute.setting([RopeSpec()], 4096, 163_840))
    assert on_tables == f"yarn multiplies scores of rotating features by {g2:.4g}, the square of its attention factor."
    on_scores = RopeSpec(scaling="yarn", factor=40.0, original_max_position_embeddings=4096, attention_on="scores")
    said = scores.seen_factors(compute.setting([on_scores], 4096, 163_840))
    assert said == f"yarn multiplies all scores by {g2:.4g}, the square of its attention factor {g2**0.5:.4g}."
    assert scores.seen_factors(compute.setting([RopeSpec()], 64, 64)) == "No method here sharpens the scores."


@pytest.mark.parametrize(("target", "expected"), [(16_384, 0.157), (5000, 0.234)])
def test_roformers_factor_is_that_of_the_target(target: int, expected: float) -> None:
    """Against partial sums made one at a time."""
    made = compute.setting([LLAMA2], 4096, target)
    w = made.methods["none"].inv_freq().numpy()
    factor = np.abs(np.cumsum(np.exp(1j * target * w))).mean() / np.abs(np.cumsum(np.ones(len(w)))).mean()
    assert factor == pytest.approx(expected, abs=5e-4)
    assert compute.decay(made.methods["none"], target).at_target == pytest.approx(factor)
    assert f"{factor:.3g} unchanged" in scores.seen_bound(made, "none")


def test_dynamic_ntk_tells_how_far_it_stretches() -> None:
    for times in (4, 32):
        made = compute.setting([LLAMA2], 4096, 4096 * times)
        slowest = float(LLAMA2.inv_freq()[-1] / rope_frequencies(made.methods["dynamic"], made.target).inv_freq[-1])
        assert slowest == pytest.approx(times**2 - times + 1)
        said = f"stretches by {times**2 - times + 1} at {4096 * times:,} positions"
        assert said in pictures.seen_map(made, "dynamic")
        assert said in pictures.seen_table(compute.numbers(made, None))
        assert "stretches" not in pictures.seen_map(made, "ntk")
    assert "stretches" not in pictures.seen_table(compute.numbers(compute.setting([LLAMA2], 4096, 4096), None))
    toy = compute.recorded_toy()
    assert toy is not None
    assert "with factor 4 stretches by 13 there" in toys.seen(toy.run, 4)


def test_the_map_says_why_no_position_is_out_of_distribution() -> None:
    some = pictures.seen_map(compute.setting([LLAMA2], 4096, 16_384), "yarn")
    assert "46 of 64 pairs turned fully in training and know every angle (hatched); the other 18 stay within" in some
    every = pictures.seen_map(compute.setting([LLAMA2.replace(base=500.0)], 4096, 16_384), "none")
    assert "64 of 64 pairs turned fully in training and know every angle (hatched), so no position" in every


def test_a_scaling_made_for_another_length_is_told_with_a_link_to_it() -> None:
    made = compute.setting([DEEPSEEK], 8192, 131_072)
    found = pictures.other_length(made, "linear")
    assert found is not None
    said, [link] = found
    assert "original_max_position_embeddings = 4,096; this page takes 8,192" in said
    assert link.changes == {"trained_length": "4096", "target_length": "131072", "method": "linear"}
    assert pictures.other_length(compute.setting([DEEPSEEK], 4096, 131_072), "yarn") is None
    assert (
        pictures.other_length(compute.setting([RopeSpec(scaling="linear", factor=4.0)], 8192, 16_384), "none") is None
    )
    far = RopeSpec(scaling="llama3", factor=8.0, original_max_position_embeddings=2**30)
    assert pictures.other_length(compute.setting([far], 8192, 16_384), "none")[1] == []  # type: ignore[index]


def test_p_rope_has_no_bound_and_says_so() -> None:
    made = compute.setting([RopeSpec(scaling="proportional", rotary_fraction=0.75)], 8192, 131_072)
    assert scores.base_lines(made) is None
    assert pictures.base_fact(made)[1] == "–"
    assert compute.numbers(made, None).bound is None


def test_entropies_go_on_past_the_keys_that_are_drawn() -> None:
    found = compute.sharpness(DEFAULT.methods["yarn"], 131_072)
    assert found.lengths[-1] == 131_072
    drawn = int(np.searchsorted(found.lengths, compute.KEYS))
    for entropy in (found.without, found.with_factor):
        assert entropy[-1] - entropy[drawn] == pytest.approx(np.log(131_072 / compute.KEYS))
    assert found.divergence[-1] == found.divergence[drawn]
    made = extension.sharpness(DEFAULT.methods["yarn"], [n for n in found.lengths.astype(int) if n <= compute.KEYS])
    np.testing.assert_allclose(found.without[: drawn + 1], made.without.numpy())
    assert "multiplies no scores" in scores.seen_entropy(DEFAULT, "llama3")


def test_cached_keys_are_right_where_their_frequencies_are() -> None:
    specs = scores.cache_specs(DEFAULT)
    dynamic, longrope = (compute.cached(specs[n], 32_768, 131_072) for n in ("dynamic", "longrope"))
    assert dynamic.positions[0] == 0
    assert dynamic.positions[-1] == 131_071
    assert dynamic.one_by_one[[0, -1]].tolist() == [0, 0]
    late = longrope.positions >= 8192
    assert (longrope.one_by_one[late] == 0).all()
    assert (longrope.one_by_one[~late][1:] > 0).all()
    assert (longrope.prompt == 0).all()
    before = dynamic.positions < 32_768
    np.testing.assert_allclose(dynamic.prompt[~before], dynamic.one_by_one[~before])
    assert dynamic.prompt[before].max() < dynamic.one_by_one[before].max()
    lines = scores.cache_lines(DEFAULT, 32_768)
    assert lines is not None
    assert lines.data["y"].max() <= 2


def test_vllms_dynamic_ntk_has_no_error() -> None:
    made = compute.setting([RopeSpec(scaling="dynamic", factor=2.0, dynamic_length="maximum")], 8192, 131_072)
    found = compute.cached(made.methods["dynamic"], 32_768, 131_072)
    assert found.one_by_one.max() == 0


# ---------------------------------------------------------------- key numbers, table, recommendation


@pytest.mark.parametrize("method", METHODS)
def test_key_numbers_are_the_cores(method: str) -> None:
    facts = {name: value for name, value, _ in pictures.key_numbers(DEFAULT, method)}
    found = compute.angles(DEFAULT.methods[method], 8192, 131_072)
    assert facts["new angles"] == f"{int(found.bad(131_072).sum())} of 64 pairs"
    first = float(found.first_bad.min())
    assert facts["first new angle"] == (f"{first:,.0f}" if first < 131_072 else "never")
    assert facts["neighbours"] == f"{extension.resolution(DEFAULT.methods[method], 131_072):.3f}"


def test_the_table_and_the_paragraph_hold_the_numbers() -> None:
    found = compute.numbers(DEFAULT, compute.recorded_toy())
    table = pictures.side_by_side(DEFAULT, found).set_index("method")
    assert list(table.index) == list(METHODS)
    for c in found.candidates:
        assert table.loc[c.name, "new angles"] == c.bad
        assert table.loc[c.name, "toy loss"] == f"{c.toy:.2f}"
    advice = recommend(found)
    text = pictures.paragraph(advice)
    assert text.startswith(f"**{advice.verdict}**")
    assert all(r.sentence in text for r in advice.reasons)
    assert {r.part for r in advice.reasons} <= pictures.PARTS.keys()
    tries = pictures.advice_tries(DEFAULT, "yarn", advice)
    assert {t.changes["method"] for t in tries} == {"ntk_by_parts", "none", "linear"}
    assert text.count("\n- **") == len({r.part for r in advice.reasons})  # every part on a line of its own
    for c in found.candidates:
        assert table.loc[c.name, "score < 0"] == ("never" if c.negative is None else f"{c.negative:,}")


def test_without_a_measurement_the_recommendation_still_has_reasons() -> None:
    found = compute.numbers(DEFAULT, None)
    assert {c.toy for c in found.candidates} == {None}
    assert "–" in pictures.side_by_side(DEFAULT, found)["toy loss"].tolist()
    assert len(recommend(found).reasons) >= 4


@pytest.mark.parametrize("times", [2, 4, 8])
def test_toy_frames_are_the_recorded_losses(times: int) -> None:
    toy = compute.recorded_toy()
    assert toy is not None
    lines = toys.by_position(toy.run, times)
    assert {s for s, _ in lines.series} == set(METHODS)
    for method in METHODS:
        loss = toy.run.of(method, times)
        assert loss is not None
        drawn = lines.data[(lines.data["series"] == method) & (lines.data["part"] == "line")]
        assert drawn["y"].mean() == pytest.approx(np.mean(loss.loss))
        assert drawn["x"].max() < toy.run.trained * times
    assert f"linear {toy.run.past('linear', times):.2f}" in toys.seen(toy.run, times)
    assert "worse than leaving" in toys.seen(toy.run, times)
    summary = toys.summary(toy.run).data
    row = summary[(summary["series"] == "yarn") & (summary["x"] == times)]
    assert row["y"].item() == pytest.approx(toy.run.past("yarn", times))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"toy": 5}', '{"toy": {"losses": []}}', '{"toy": {"losses": [1]}}'])
def test_a_record_that_is_none_is_left_out(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    monkeypatch.setattr(compute, "RECORD", path)
    assert compute.recorded_toy() is None


# ---------------------------------------------------------------- the page

ODD = [
    "trained_length=2&target_length=2",
    "trained_length=2&target_length=16777216",
    "trained_length=16777216",
    "scheme=rope&d_head=2",
    "scheme=rope&base=1.001",
    "scheme=rope&base=1000000000000&d_head=128&target_length=10000000&method=dynamic&current_length=16777216",
    "scheme=rope&scaling=proportional&rotary_fraction=0.75",
    "scheme=rope&scaling=yarn&factor=8&attention_factor=100&ramp=rotations&method=chosen",
    "scheme=rope&d_head=4&scaling=longrope&factor=16&long_factor=1.5,16&short_factor=1,1.2&method=longrope",
    "scheme=rope&b_scheme=rope&b_d_head=128&b_scaling=llama3&b_factor=8&method=second",
    "scheme=hybrid&layers=alibi,none",
    "scheme=rope&base=50&trained_length=131072&target_length=262144",
    "scheme=rope&d_head=128&rotary_fraction=0.25&differs=attention_on",
]


@pytest.mark.parametrize("query", ODD)
def test_odd_settings_draw_the_page(opened: Any, query: str) -> None:
    at = opened("extension", query)
    assert not at.exception
    assert not at.error
    assert not at.warning
    assert 3 <= len(at.metric) <= 5
    assert all(m.value not in ("nan", "inf", "") for m in at.metric)
    assert "What to do" in "\n".join(m.value for m in at.markdown)
    assert len(charts_of(at)) >= 9


def test_every_method_can_be_shown(opened: Any) -> None:
    for method in METHODS:
        at = opened("extension", f"method={method}")
        assert not at.exception
        facts = {m.label: m.value for m in at.metric}
        expected = {n: v for n, v, _ in pictures.key_numbers(compute.setting([RopeSpec()], 8192, 131_072), method)}
        assert facts == expected


def test_a_method_that_is_not_there_is_told(opened: Any) -> None:
    at = opened("extension", "method=longrope")
    assert not at.exception
    assert "longrope is not among the methods here: none, linear" in captions(at)


def test_a_scheme_without_rotation_is_told_in_one_line(opened: Any) -> None:
    at = opened("extension", "scheme=alibi")
    assert len(re.findall("has no rotation to stretch", captions(at))) == 1


def test_every_link_keeps_the_lengths(opened: Any) -> None:
    at = opened("extension", "trained_length=4096&target_length=65536")
    here = [link.proto for link in at.get("page_link") if link.proto.page in ("extension", "")]
    assert len(here) >= 10
    for link in here:
        assert "trained_length=4096" in link.query_string, link.label


def test_a_step_that_changes_nothing_computes_nothing(open_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_app("extension", "target_length=10000000")

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    for module, name in (
        (cosine_sums, "first_negative"), (cosine_sums, "envelope"), (cosine_sums, "reaches"), (extension, "beyond"),
        (extension, "sharpness"), (extension, "cache_error"), (extension, "angles"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, forbidden)
    at.run()
    assert not at.exception


def test_the_measurement_runs_in_the_background_and_replaces_the_record(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = list(compute.recorded_toy().run.losses)  # type: ignore[union-attr]
    made = [extension.ToyLoss(x.method, x.factor, tuple(y + 0.25 for y in x.loss)) for x in recorded]
    monkeypatch.setattr(extension, "toy_losses", lambda should_stop: iter(made))
    at = open_app("extension")
    assert "Recorded: rope.safetensors" in captions(at)
    button(at, "Measure again").click().run()
    assert at.session_state[compute.LIVE].job.wait(PATIENCE)
    at.run()
    assert not at.exception
    assert "Measured here: rope.safetensors" in captions(at)
    past = extension.ToyRun(128, tuple(made)).past("linear", 4)
    assert any(f"linear {past:.2f}" in m.value for m in at.markdown)


def test_a_stopped_measurement_leaves_the_record(open_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = compute.recorded_toy()
    assert recorded is not None

    def endless(should_stop: Any) -> Iterator[extension.ToyLoss]:
        yield recorded.run.losses[0]
        while not should_stop():
            time.sleep(0.01)

    monkeypatch.setattr(extension, "toy_losses", endless)
    at = open_app("extension")
    assert button(at, "Stop").disabled
    button(at, "Measure again").click().run()
    button(at, "Stop").click().run()
    job = at.session_state[compute.LIVE].job
    assert job.wait(PATIENCE)
    assert job.state == "cancelled"
    at.run()
    assert "Recorded: rope.safetensors" in captions(at)
    assert "Stopped: the recorded losses stay." in captions(at)


def test_without_a_record_the_page_offers_to_measure(
    open_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "RECORD", tmp_path / "none.json")
    at = open_app("extension", "scheme=rope&d_head=4")  # a width that was never recorded
    assert not at.exception
    assert any("no recorded measurement" in i.value for i in at.info)
    assert "Held-out loss by position at 4 times the length" not in charts_of(at)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")
def test_the_largest_links_stay_within_the_bounds() -> None:
    queries = [
        "scheme=rope&d_head=1024&target_length=16777216",
        "scheme=rope&d_head=128&target_length=10000000&b_scheme=rope&b_d_head=1024",
    ]
    command = [sys.executable, "-c", test_pages.PROBE, str(ROOT / "explorer" / "app.py"), "extension", *queries]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for found in json.loads(done.stdout.splitlines()[-1]):
        assert found["faults"] == found["notices"] == []
        assert 0 < found["cells"] <= MAX_CELLS
        assert found["added"] < test_pages.MAX_BYTES


def test_tries_lead_to_what_they_name() -> None:
    assert pictures.to_method(DEFAULT, "none", {"none": "x", "yarn": "y"}) == [
        Try("yarn", pictures.keep(DEFAULT) | {"method": "yarn"}, "y")
    ]
    [other] = pictures.to_method(DEFAULT, "yarn", {"yarn": "y"})
    assert other.changes["method"] == "none"
    assert pictures.base_500k(compute.setting([RopeSpec(base=500_000.0)], 8192, 131_072))[0].changes["base"] == "10000"
    assert scores.factor_tries(compute.setting([LLAMA2], LONGEST, LONGEST)) == []


def links(at: AppTest) -> list[Any]:
    return [link.proto for link in at.get("page_link")]


def test_what_is_advised_can_be_taken_and_exported(opened: Any) -> None:
    at = opened("extension")
    take, export = (next(x for x in links(at) if part in x.label) for part in ("take it", "config.json"))
    assert take.label.endswith("take it: yarn, factor 16, original length 8,192")
    assert export.label.endswith("its config.json, vLLM and llama.cpp spellings")
    assert (take.page, export.page) == ("extension", "config")
    wanted = RopeSpec(scaling="yarn", factor=16.0, original_max_position_embeddings=8192)
    for link in (take, export):
        query = dict(parse_qsl(link.query_string))
        values, rejected = state.read_link(link.page, {n: [v] for n, v in query.items()})
        assert rejected == ()
        names = {p.name for p in RopeSpec.params()}
        assert parse_query({"scheme": "rope"} | {n: v for n, v in query.items() if n in names}) == (wanted, ())
    assert values["exported"] == "scheme"
    assert dict(parse_qsl(take.query_string))["method"] == "chosen"
    there = opened("extension", take.query_string)
    assert not there.exception
    assert next(s for s in there.selectbox if s.key == "method").value == "yarn"  # what is chosen, by its name
    assert "is not among the methods" not in captions(there)
    assert not there.warning
    assert not any("take it" in x.label for x in links(there))
    config = opened("config", export.query_string)
    assert not config.exception
    assert any('"factor": 16' in c.value for c in config.code)


def test_links_that_take_advice_keep_the_model() -> None:
    model = RopeSpec(d_head=128, base=500_000.0, layout="interleaved", rotary_fraction=0.5)
    made = compute.setting([model], 8192, 32_768)
    advice = recommend(compute.numbers(made, compute.recorded_toy()))
    query = {n: v for n, v in pictures.taken(made, advice)[0].changes.items() if n in {p.name for p in model.params()}}
    got, problems = parse_query({"scheme": "rope"} | query)
    assert problems == ()
    assert isinstance(got, RopeSpec)
    assert (got.d_head, got.base, got.layout, got.rotary_fraction) == (128, 500_000.0, "interleaved", 0.5)
    assert (got.scaling, got.factor) == (advice.method, 4)
    nothing = compute.setting([model], 8192, 8192)
    assert pictures.taken(nothing, recommend(compute.numbers(nothing, None))) == []


def test_with_nothing_to_stretch_the_page_says_so_once_and_claims_nothing(opened: Any) -> None:
    at = opened("extension", "trained_length=8192&target_length=8192&differs=ramp")
    assert not at.exception
    text = "\n".join(m.value for m in at.markdown) + captions(at)
    assert text.count("nothing is to be stretched") == 1
    for false in (
        "the others slow pairs down",
        "turn too far",
        "move together",
        "0.00 times",
        "never showed.",
        "Another place where",
    ):
        assert false not in text, false
    assert "yarn leaves all 32 pairs as trained; so does every method here." in text
    assert any("a target of 32,768, 4 times" in x.label for x in links(at))
    assert not any("neighbours move" in x.label for x in links(at))
    made = compute.setting([RopeSpec()], 8192, 8192)
    for method in METHODS:
        for differs in pictures.variants_of(made.methods[method]):
            both = pictures.variants(made, method, differs, 8192)
            assert both.domains[1] == (-1.0, 1.0)
            assert both.domains[0] == (None if differs == "attention_on" else (0.0, 1.1))
    chosen = compute.setting([RopeSpec(scaling="linear", factor=4.0)], 8192, 8192)
    said = pictures.nothing_to_stretch(chosen, 8192)
    assert said is not None
    assert "only as chosen (linear) would change some" in said[0]
    assert pictures.seen_ratios(chosen, "yarn").endswith("as trained; as chosen (linear) does not.")
    assert pictures.nothing_to_stretch(DEFAULT, 131_072) is None
    assert [name for name, _, _ in pictures.groups(made)] == ["every method"]
    base = scores.base_lines(made)
    assert base is not None
    assert base.data[base.data["part"] == "upright"]["series"].tolist() == ["trained, target"]
    far = pictures.nothing_to_stretch(compute.setting([LLAMA2], LONGEST, LONGEST), LONGEST)
    assert far is not None
    assert far[1][0].changes == {"trained_length": str(LONGEST // 4), "target_length": str(LONGEST)}


def test_the_smallest_base_shown_fits_as_it_is_shown() -> None:
    value = float(pictures.base_fact(DEFAULT)[1].replace(",", ""))
    assert compute.fits(LLAMA2.replace(base=value), 131_072)
    assert f"{value:,.13g}" in scores.seen_base(DEFAULT)
    bound = compute.numbers(DEFAULT, None).bound
    assert bound is not None
    assert bound.smallest == value


def test_the_sample_of_pairs_is_named_as_one() -> None:
    assert pictures.seen_dials(DEFAULT, "yarn").startswith("12 of the 64 pairs are drawn; a full dial")
    few = compute.setting([RopeSpec(d_head=8)], 8192, 131_072)
    assert pictures.seen_dials(few, "yarn").startswith("All 4 pairs are drawn; ")


def test_longrope_of_the_cache_is_named_where_it_is_no_method() -> None:
    said = scores.seen_cache(DEFAULT, 32_768)
    assert "longrope stands here for LongRoPE with the factor 16 for every pair past 8,192." in said
    spec = scores.cache_specs(DEFAULT)["longrope"]
    torch.testing.assert_close(rope_frequencies(spec, 131_072).inv_freq, LLAMA2.inv_freq() / 16)
    own = RopeSpec(d_head=4, scaling="longrope", factor=16.0, long_factor=(1.5, 16.0), short_factor=(1.0, 1.2))
    assert "stands here" not in scores.seen_cache(compute.setting([own], 8192, 131_072), 32_768)
    assert "no frequency moves" in scores.seen_cache(compute.setting([LLAMA2], 8192, 8192), 8192)


def test_no_two_methods_of_a_model_share_a_colour() -> None:
    used = [pictures.COLOURS[m] for m in METHODS]
    assert len(set(used)) == len(used)
    assert pictures.COLOURS["yarn"] == palette.BLUE
    assert pictures.COLOURS["llama3"] not in (palette.BLUE, palette.SKY)


def test_a_step_of_a_length_makes_no_new_template(open_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    drawn = curves.curves
    at = open_app("extension")

    def counted(data: Any, **options: Any) -> Any:
        made.append(str(options))
        return drawn(data, **options)

    monkeypatch.setattr(charts, "curves", counted)
    at.select_slider(key="target_length").set_value(65_536).run()
    assert not at.exception
    assert made == []
