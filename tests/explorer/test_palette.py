"""The colour language: readable on both backgrounds, ordered, symmetric, closed."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.charts import palette as p

LINES = {
    **{f"scheme {name}": colour for name, colour in p.SCHEME_COLOURS.items()},
    **{f"head {i}": colour for i, colour in enumerate(p.HEAD_COLOURS)},
    **{f"pair {i}": colour for i, colour in enumerate(p.pair_colours(64))},
    **{f"categorical {i}": colour for i, colour in enumerate(p.CATEGORICAL)},
    "position": p.POSITION_COLOUR,
    "position b": p.POSITION_B_COLOUR,
    "training length": p.TRAINING_LENGTH_COLOUR,
}


@pytest.mark.parametrize("background", [p.LIGHT_BACKGROUND, p.DARK_BACKGROUND])
@pytest.mark.parametrize("name", LINES)
def test_every_line_colour_has_3_to_1_on_both_backgrounds(name: str, background: str) -> None:
    assert p.contrast(LINES[name], background) >= 3.0


def test_contrast_of_black_on_white_is_21() -> None:
    assert p.contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert p.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_oklab_reference_values_and_round_trip() -> None:
    np.testing.assert_allclose(p.rgb_to_oklab(p.hex_to_rgb("#ffffff")), [1, 0, 0], atol=1e-4)
    np.testing.assert_allclose(p.rgb_to_oklab(p.hex_to_rgb("#ff0000")), [0.6280, 0.2249, 0.1258], atol=1e-3)
    rgb = np.random.default_rng(0).integers(0, 256, size=(500, 3), dtype=np.uint8)
    np.testing.assert_array_equal(p.oklab_to_rgb(p.rgb_to_oklab(rgb)), rgb)


@pytest.mark.parametrize("palette", p.PALETTES)
@pytest.mark.parametrize("dark", [False, True])
def test_lookup_tables_are_256_rgb_and_read_only(palette: str, dark: bool) -> None:
    table = p.lut(palette, dark=dark)
    assert table.shape == (256, 3)
    assert table.dtype == np.uint8
    assert not table.flags.writeable


@pytest.mark.parametrize("dark", [False, True])
def test_sequential_lightness_rises_evenly(dark: bool) -> None:
    lightness = p.rgb_to_oklab(p.lut("sequential", dark=dark))[:, 0]
    steps = np.diff(lightness)
    assert (steps >= 0).all()
    assert (steps == 0).sum() <= 2  # neighbours that 8 bits cannot tell apart
    assert steps.max() < 3 * steps.mean()
    assert lightness[-1] - lightness[0] > 0.6


@pytest.mark.parametrize("dark", [False, True])
def test_diverging_centre_is_neutral_and_both_sides_match_in_lightness(dark: bool) -> None:
    table = p.lut("diverging", dark=dark)
    np.testing.assert_array_equal(table[127], table[128])
    lab = p.rgb_to_oklab(table)
    assert np.hypot(lab[128, 1], lab[128, 2]) < 0.02
    assert abs(lab[:128, 0] - lab[:127:-1, 0]).max() < 0.06
    background = p.rgb_to_oklab(p.hex_to_rgb(p.DARK_BACKGROUND if dark else p.LIGHT_BACKGROUND))[0]
    assert abs(lab[128, 0] - background) < 0.12
    assert lab[0, 2] < -0.05 < 0.05 < lab[-1, 2]  # blue below zero, orange above


def test_cyclic_closes_without_a_jump() -> None:
    table = p.lut("cyclic")
    np.testing.assert_array_equal(table[0], table[-1])
    around = np.linalg.norm(np.diff(p.rgb_to_oklab(table), axis=0), axis=1)
    assert around.max() < 0.015


def test_pair_colours_run_from_blue_to_amber() -> None:
    assert p.pair_colours(1) == ["#2f62d8"]
    colours = p.pair_colours(32)
    assert len(set(colours)) == 32
    assert (colours[0], colours[-1]) == ("#2f62d8", "#c27612")
    with pytest.raises(ValueError, match="0"):
        p.pair_colours(0)


def test_roles_are_complete_and_distinct() -> None:
    assert set(p.SCHEME_COLOURS) == {"none", "integer", "sinusoidal", "learned", "rope", "alibi", "hybrid"}
    assert len(set(p.SCHEME_COLOURS.values())) == 7
    assert len(set(p.HEAD_COLOURS)) == 8
    assert len({p.POSITION_COLOUR, p.POSITION_B_COLOUR, p.TRAINING_LENGTH_COLOUR}) == 3


@pytest.mark.parametrize("bad", ["red", "#12345", "123456"])
def test_a_bad_colour_is_named(bad: str) -> None:
    with pytest.raises(ValueError, match=bad):
        p.hex_to_rgb(bad)


def test_an_unknown_palette_is_named() -> None:
    with pytest.raises(ValueError, match="jet"):
        p.lut("jet")
