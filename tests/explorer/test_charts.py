"""Charts as pure functions: a specification that does not depend on the data, axes, colours, files, rows, clocks."""

from __future__ import annotations

import inspect
import json
import math
import pkgutil
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest

import explorer.charts
from explorer import show
from explorer.charts import bars, curves, extension, spectrum, strip, verdicts, wiring
from explorer.charts.spectrum import CLOCKS_PER_ROW, STILL, TURNS

Make = Callable[..., Any]

LINES = curves.together(
    curves.line("a", np.arange(5), np.linspace(-1, 1, 5)),
    curves.line("b", np.arange(5), [1.0, np.nan, 0.5, 0.25, 0.125], low=0.1, high=2.0),
    curves.band("a", np.arange(5), np.full(5, -2.0), np.full(5, 2.0)),
    curves.guide("here", x=3.0),
    curves.guide("level", y=0.5),
)
BARS = pd.DataFrame(
    {"name": ["x", "y", "x", "y"], "value": [1.0, 2.0, 3.0, 4.0], "series": ["a", "a", "b", "b"], "text": list("1234")}
)
WAVELENGTHS = 2 * np.pi * 10_000.0 ** (np.arange(16) / 16)
SERIES = (("a", "#0072b2"), ("b", "#d55e00"))
LADDER = spectrum.ladder_data(WAVELENGTHS, 512, "a", [("positions shown", 512.0), ("training length", 128.0)])
LAYERS = pd.DataFrame({"layer": [0, 1, 2], "end": [1, 2, 3], "series": ["a", "b", "a"], "note": ["-", "x", "-"]})
CLOCKS = spectrum.clocks_data(2 * np.pi / WAVELENGTHS, list(range(8)), 24, 32)
DIALS = extension.dials_data(range(5), np.array([9, 1, 0.5, 0.25, 0.1]), np.arange(5, 0, -1.0), np.arange(5) > 1)
RATIOS = extension.ratios_data(
    [("a", np.array([1.0, 0.5, 0.25])), ("b", np.array([1.0, np.nan, 0.1]))],
    ["kept", "ramped", "ramped"],
    (0.05, 1.25),
)
ARCS = wiring.wiring_data([(0, 2), (1, 3)], [1.0, 0.0], ["#2f62d8", "#808080"], 6)
CLAIMS = pd.DataFrame(
    {"column": [0, 1], "row": [0, 0], "number": [1, 2], "sign": ["+", "-"], "series": ["a", "b"],
     "ink": ["#000000", "#ffffff"], "sentence": ["one", "two"], "fits": [True, False], "chosen": [False, True]}
)  # fmt: skip
MOVES = wiring.moves_data([0, 2, 1, 3], ["pair 0", "pair 1"] * 2, ["#2f62d8", "#c27612"] * 2)

EXAMPLES: list[tuple[Make, pd.DataFrame, dict[str, Any]]] = [
    (curves.curves, LINES, {"x_title": "position", "y_title": "score", "series": SERIES}),
    (
        curves.curves,
        LINES,
        {
            "x_title": "tokens", "y_title": "time (ms)", "series": SERIES, "x_log": True, "y_log": True,
            "x_domain": (1.0, 5.0), "y_domain": (0.1, 3.0), "bands": True, "points": True, "x_ticks": (1, 2, 4),
            "low_high": ("lower quartile", "upper quartile"), "guide_colour": "#123456", "height": 333,
            "dashed": ("b",),
        },
    ),
    (bars.bars, BARS, {"value_title": "share (%)", "name_title": "scheme", "series": SERIES, "names": 2}),
    (
        bars.bars,
        BARS,
        {
            "value_title": "time (µs)", "name_title": "tables", "series": SERIES, "names": 2, "log": True,
            "domain": (1.0, 100.0), "labels": True, "ticks": (1.0, 10.0, 100.0),
        },
    ),
    (spectrum.ladder, LADDER, {"series": SERIES, "guide_colour": "#cc79a7"}),
    (spectrum.clocks, CLOCKS, {"first_colour": "#d55e00", "second_colour": "#0072b2", "rows": 2}),
    (extension.dials, DIALS, {"rows": 2, "seen_colour": "#2f93c5", "new_colour": "#bb8000"}),
    (extension.against_length, LINES, {"x_title": "length", "y_title": "value", "series": SERIES, "height": 222}),
    (
        extension.ratios,
        RATIOS,
        {
            "series": SERIES, "y_title": "ratio", "dashed": ("b",), "height": 222, "legend_columns": 1,
        },
    ),
    (strip.strip, LAYERS, {"series": SERIES, "height": 187}),
    (verdicts.verdicts, CLAIMS, {"series": SERIES, "rows": 1}),
    (wiring.wiring, ARCS, {"d_head": 6, "widest": 2.0, "height": 111}),
    (wiring.moves, MOVES, {"d_head": 4, "height": 99}),
]  # fmt: skip
IDS = [f"{make.__name__}-{index}" for index, (make, _, _) in enumerate(EXAMPLES)]


def chart_functions() -> set[str]:
    """Every public function of explorer.charts that turns a data frame into a chart."""
    found = set()
    for info in pkgutil.iter_modules(explorer.charts.__path__):
        module = import_module(f"explorer.charts.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            public = not name.startswith("_") and function.__module__ == module.__name__
            if public and next(iter(inspect.signature(function).parameters), "") == "data":
                found.add(f"{module.__name__}.{name}")
    return found


def spec_of(make: Make, data: pd.DataFrame, options: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = make(data, **options).to_dict()
    return made


def nodes(spec: Any) -> list[dict[str, Any]]:
    """Every mapping inside a specification."""
    if isinstance(spec, list):
        return [found for item in spec for found in nodes(item)]
    if not isinstance(spec, dict):
        return []
    return [spec, *(found for value in spec.values() for found in nodes(value))]


def encodings(spec: dict[str, Any], channel: str) -> list[dict[str, Any]]:
    return [n[channel] for n in nodes(spec) if channel in n and isinstance(n[channel], dict) and "mark" not in n]


def test_every_chart_function_is_tested_here() -> None:
    assert chart_functions() == {f"{make.__module__}.{make.__name__}" for make, _, _ in EXAMPLES}


# ---------------------------------------------------------------- the contract of show.chart


@pytest.mark.parametrize(("make", "data", "options"), EXAMPLES, ids=IDS)
def test_the_specification_does_not_depend_on_the_data(make: Make, data: pd.DataFrame, options: dict[str, Any]) -> None:
    full, empty = spec_of(make, data, options), spec_of(make, data.iloc[:0], options)
    bare = spec_of(make, pd.DataFrame(columns=list(data.columns)), options)
    assert len(full.pop("datasets")) == 1
    full.pop("data")
    for spec in (empty, bare):
        spec.pop("datasets", None)
        spec.pop("data", None)
        assert spec == full
    assert "data" not in {key for node in nodes(full) for key in node}  # no layer brings rows of its own


@pytest.mark.parametrize(("make", "data", "options"), EXAMPLES, ids=IDS)
def test_the_kept_template_is_that_specification(make: Make, data: pd.DataFrame, options: dict[str, Any]) -> None:
    name = f"test.{make.__module__}.{make.__name__}.{len(options)}"
    kept = show._template(make, name, tuple(data.columns), show._frozen(options))
    expected = spec_of(make, data, options)
    del expected["data"], expected["datasets"]
    assert kept == expected
    json.dumps(kept, allow_nan=False)


@pytest.mark.parametrize(("make", "data", "options"), EXAMPLES, ids=IDS)
def test_fields_of_the_chart_are_columns_of_the_data(make: Make, data: pd.DataFrame, options: dict[str, Any]) -> None:
    fields = {node["field"] for node in nodes(spec_of(make, data, options)) if isinstance(node.get("field"), str)}
    assert fields
    assert fields <= set(data.columns)


# ---------------------------------------------------------------- files


def png_size(data: bytes) -> tuple[int, int]:
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize(("make", "data", "options"), EXAMPLES, ids=IDS)
def test_a_chart_becomes_a_png_and_an_svg(make: Make, data: pd.DataFrame, options: dict[str, Any]) -> None:
    width, height = png_size(show._to_png(make(data, **options)))
    assert width > 2 * 300
    assert height > 2 * 60
    svg = show._to_svg(make(data, **options))
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    for title in (options.get("x_title"), options.get("y_title"), options.get("value_title")):
        assert title is None or title in svg
    assert "NaN" not in svg


# ---------------------------------------------------------------- curves


@pytest.mark.parametrize(("make", "data", "options"), EXAMPLES[:2], ids=IDS[:2])
def test_curves_have_the_titles_scales_and_colours_asked_for(
    make: Make, data: pd.DataFrame, options: dict[str, Any]
) -> None:
    spec = spec_of(make, data, options)
    for channel in ("x", "y"):
        quantities = [e for e in encodings(spec, channel) if e.get("field") == channel]
        assert {e["title"] for e in quantities} == {options[f"{channel}_title"]}
        assert {e["scale"]["type"] for e in quantities} == {"log" if options.get(f"{channel}_log") else "linear"}
        domain = options.get(f"{channel}_domain")
        assert {tuple(e["scale"].get("domain", ())) for e in quantities} == {domain or ()}
    colours = [e for e in encodings(spec, "color") if "scale" in e]
    assert colours
    assert all(e["scale"] == {"domain": ["a", "b"], "range": ["#0072b2", "#d55e00"]} for e in colours)


def test_options_of_curves_reach_the_chart() -> None:
    make, data, options = EXAMPLES[1]
    spec = spec_of(make, data, options)
    assert spec["height"] == 333
    assert {tuple(a["values"]) for a in encodings(spec, "axis") if "values" in a} == {(1, 2, 4)}
    assert [e["scale"]["range"] for e in encodings(spec, "strokeDash")] == [[[1, 0], [5, 3]]]
    titles = [t["title"] for node in nodes(spec) for t in node.get("tooltip", []) if isinstance(t, dict)]
    assert titles == ["what", "tokens", "time (ms)", "lower quartile", "upper quartile"]
    guides = [n["mark"] for n in nodes(spec) if isinstance(n.get("mark"), dict) and n["mark"]["type"] == "rule"]
    assert [g["color"] for g in guides] == ["#123456"] * 2


def test_one_line_needs_no_legend_two_do() -> None:
    one = spec_of(curves.curves, LINES, {"x_title": "x", "y_title": "y", "series": SERIES[:1]})
    two = spec_of(curves.curves, LINES, {"x_title": "x", "y_title": "y", "series": SERIES})
    assert {e["legend"] is None for e in encodings(one, "color")} == {True}
    assert any(e["legend"] for e in encodings(two, "color"))


def test_rows_of_a_line() -> None:
    rows = curves.line("name", [0, 1, 2], [5.0, np.nan, 7.0], low=1.0, high=[8.0, 9.0, 10.0])
    assert list(rows.columns) == list(curves.COLUMNS)
    assert rows["part"].tolist() == ["line"] * 3
    assert rows["series"].tolist() == ["name"] * 3
    assert rows["x"].tolist() == [0.0, 1.0, 2.0]
    assert rows["y"].fillna(-1).tolist() == [5.0, -1.0, 7.0]
    assert rows["low"].tolist() == [1.0] * 3
    assert rows["high"].tolist() == [8.0, 9.0, 10.0]
    assert curves.line("n", [0], [1])[["low", "high"]].isna().all(axis=None)


def test_rows_of_a_band() -> None:
    rows = curves.band("b", [0, 1], [-1, -2], [1, 2])
    assert rows["part"].tolist() == ["band"] * 2
    assert rows["low"].tolist() == [-1.0, -2.0]
    assert rows["high"].tolist() == [1.0, 2.0]
    assert rows["y"].isna().all()


def test_rows_of_guides() -> None:
    upright, level = curves.guide("p = 3", x=3), curves.guide("half", y=0.5)
    assert (upright["part"].item(), upright["x"].item(), upright["series"].item()) == ("upright", 3.0, "p = 3")
    assert math.isnan(upright["y"].item())
    assert (level["part"].item(), level["y"].item(), level["series"].item()) == ("level", 0.5, "half")
    assert math.isnan(level["x"].item())
    assert curves.guide("zero", x=0.0)["part"].item() == "upright"


@pytest.mark.parametrize("n", [1, 399, 400, 401, 4096])
def test_hover_points_are_few_and_start_with_the_first(n: int) -> None:
    hover = curves.line("n", np.arange(n), np.zeros(n))["hover"].to_numpy()
    assert 1 <= hover.sum() <= curves.HOVER_POINTS
    assert hover[0]
    assert hover.all() == (n <= curves.HOVER_POINTS)
    assert len(set(np.diff(np.flatnonzero(hover)))) <= 1  # evenly spaced


def test_together_keeps_every_row() -> None:
    assert len(LINES) == 5 + 5 + 5 + 1 + 1
    assert LINES.index.tolist() == list(range(17))


# ---------------------------------------------------------------- bars


@pytest.mark.parametrize(("make", "data", "options"), EXAMPLES[2:4], ids=IDS[2:4])
def test_bars_have_the_titles_scale_and_colours_asked_for(
    make: Make, data: pd.DataFrame, options: dict[str, Any]
) -> None:
    spec = spec_of(make, data, options)
    assert {e["title"] for e in encodings(spec, "x")} == {options["value_title"]}
    assert {e["title"] for e in encodings(spec, "y")} == {options["name_title"]}
    assert {e["scale"]["type"] for e in encodings(spec, "x")} == {"log" if options.get("log") else "linear"}
    assert {tuple(e["scale"].get("domain", ())) for e in encodings(spec, "x")} == {options.get("domain", ())}
    assert {e["sort"] for e in encodings(spec, "y")} == {None}  # the order of the rows
    [colour] = [e for e in encodings(spec, "color") if "scale" in e]
    assert colour["scale"] == {"domain": ["a", "b"], "range": ["#0072b2", "#d55e00"]}
    assert (colour["legend"] is None) == bool(options.get("labels"))


def test_more_bars_are_higher() -> None:
    def height(names: int, series: int) -> int:
        options = {"value_title": "v", "name_title": "n", "series": SERIES[:series], "names": names}
        result: int = spec_of(bars.bars, BARS, options)["height"]
        return result

    assert height(1, 1) < height(2, 1) < height(2, 2)
    assert height(4, 1) - height(3, 1) == height(3, 1) - height(2, 1)


# ---------------------------------------------------------------- the ladder


def test_rungs_of_the_ladder() -> None:
    rungs = LADDER[LADDER["part"] == "rung"]
    assert rungs["pair"].tolist() == list(range(16))
    np.testing.assert_allclose(rungs["wavelength"], WAVELENGTHS)
    np.testing.assert_allclose(rungs["turns"], 512 / WAVELENGTHS)
    assert rungs["full"].tolist() == [TURNS if w <= 512 else STILL for w in WAVELENGTHS]
    guides = LADDER[LADDER["part"] == "guide"]
    assert guides["wavelength"].tolist() == [512.0, 128.0]
    assert guides["series"].tolist() == ["positions shown", "training length"]


def test_pairs_that_stand_still_have_no_rung() -> None:
    rungs = spectrum.ladder_data(np.array([6.0, 60.0, np.inf]), 512, "a", [])
    assert rungs["pair"].tolist() == [0, 1]
    assert np.isfinite(rungs["wavelength"]).all()


def test_the_ladder_has_a_log_axis_in_positions() -> None:
    make, data, options = EXAMPLES[4]
    spec = spec_of(make, data, options)
    wavelengths = [e for e in encodings(spec, "y") if e.get("field") == "wavelength"]
    assert {e["title"] for e in wavelengths} == {"wavelength (positions)"}
    assert {e["scale"]["type"] for e in wavelengths} == {"log"}
    assert [e["title"] for e in encodings(spec, "x") if e.get("field") == "pair"] == ["pair (high to low frequency)"]


# ---------------------------------------------------------------- clocks

FREQUENCIES = 2 * np.pi / WAVELENGTHS


def test_clocks_stand_in_rows_of_four() -> None:
    made = spectrum.clocks_data(FREQUENCIES, list(range(6)), 0, 1)
    assert list(zip(made["row"], made["column"], strict=True)) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert made["pair"].tolist() == [f"pair {i}" for i in range(6)]
    assert CLOCKS_PER_ROW == 4


def test_at_position_zero_every_hand_points_right() -> None:
    made = spectrum.clocks_data(FREQUENCIES, [0, 5, 15], 0, 0)
    assert made["first"].tolist() == [0.0] * 3
    assert made["first_degrees"].tolist() == [90.0] * 3  # an upright shape turned 90 degrees clockwise
    assert made["between"].tolist() == [0.0] * 3


def test_hands_turn_left_by_frequency_times_position() -> None:
    made = spectrum.clocks_data(np.array([np.pi / 2, 0.001]), [0, 1], 1, 3)
    np.testing.assert_allclose(made["first"], [np.pi / 2, 0.001])
    np.testing.assert_allclose(made["second"], [3 * np.pi / 2, 0.003])
    np.testing.assert_allclose(made["first_degrees"], [0.0, 90 - math.degrees(0.001)], atol=1e-12)
    np.testing.assert_allclose(made["second_degrees"], [-180.0, 90 - math.degrees(0.003)], atol=1e-12)
    np.testing.assert_allclose(made["between"], [np.pi, 0.002])


@pytest.mark.parametrize("shift", [1, 7, 500, 4000])
def test_the_same_distance_has_the_same_angle_between_the_hands(shift: int) -> None:
    here = spectrum.clocks_data(FREQUENCIES, list(range(16)), 24, 32)
    there = spectrum.clocks_data(FREQUENCIES, list(range(16)), 24 + shift, 32 + shift)
    apart = np.abs(here["between"] - there["between"])
    assert (np.minimum(apart, 2 * np.pi - apart) < 1e-9).all()
    turned = (here["second"] - here["first"]) % (2 * np.pi)
    np.testing.assert_allclose(np.cos(turned), np.cos(here["between"]), atol=1e-12)
    assert not np.allclose(here["first"], there["first"])


def test_hands_are_drawn_in_the_colours_of_their_positions() -> None:
    make, data, options = EXAMPLES[5]
    spec = spec_of(make, data, options)
    hands = {
        node["encoding"]["angle"]["field"]: node["mark"] for node in nodes(spec) if "angle" in node.get("encoding", {})
    }
    assert hands.keys() == {"first_degrees", "second_degrees"}
    assert hands["first_degrees"]["color"] == "#d55e00"
    assert hands["second_degrees"]["color"] == "#0072b2"
    assert hands["first_degrees"]["shape"] == hands["second_degrees"]["shape"] == "M0,0L0,-1"
    assert spec["height"] == 2 * 104
