"""The heatmap: quantisation, payload bytes, colours, the Altair twin, exports, the Streamlit wrapper."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from explorer.charts.heatmap import (
    Axis,
    Guide,
    Heatmap,
    colour_index,
    dequantise,
    pack,
    payload,
    quantise,
    raster,
    to_altair,
    to_csv,
    to_png,
    to_svg,
    value_ticks,
)
from explorer.charts.palette import lut


def make(values: Any, **changes: Any) -> Heatmap:
    given: dict[str, Any] = {
        "x": Axis("dimension"),
        "y": Axis("position", "tokens"),
        "value_title": "encoding",
        "palette": "diverging",
        "domain": (-1.0, 1.0),
    }
    return Heatmap(np.asarray(values, dtype=float), **{**given, **changes})


def unpacked(data: bytes) -> dict[str, Any]:
    """What the browser reads: the header, with every blob as a uint8 array."""
    length = int.from_bytes(data[:4], "little")
    assert length % 4 == 0

    def fill(node: dict[str, Any]) -> Any:
        if "$offset" not in node:
            return node
        assert node["$offset"] % 4 == 0
        start = 4 + length + node["$offset"]
        return np.frombuffer(data[start : start + node["$length"]], dtype=np.uint8)

    result: dict[str, Any] = json.loads(data[4 : 4 + length], object_hook=fill)
    return result


# ---------------------------------------------------------------- validation


@pytest.mark.parametrize(
    ("values", "changes", "named"),
    [
        (np.zeros(3), {}, r"\(3,\)"),
        (np.zeros((0, 3)), {}, r"\(0, 3\)"),
        (np.zeros((2, 2)), {"domain": (1.0, 1.0)}, r"\(1\.0, 1\.0\)"),
        (np.zeros((2, 2)), {"domain": (0.0, math.inf), "palette": "sequential"}, "inf"),
        (np.zeros((2, 2)), {"domain": (-1.0, 2.0)}, r"symmetric about 0, got \(-1\.0, 2\.0\)"),
        (np.zeros((2, 2)), {"palette": "jet"}, "jet"),
        (np.zeros((2, 2)), {"x": Axis("key", labels=("a",))}, "x axis needs 2 labels, got 1"),
        (np.zeros((2, 3)), {"y": Axis("query", labels=("a", "b", "c"))}, "y axis needs 2 labels, got 3"),
    ],
)
def test_bad_input_is_named(values: Any, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make(values, **changes)


def test_bad_axis_and_guide_are_named() -> None:
    with pytest.raises(ValueError, match="0"):
        Axis("position", step=0)
    with pytest.raises(ValueError, match="nan"):
        Axis("position", start=math.nan)
    with pytest.raises(ValueError, match="z"):
        Guide("z", 1.0, "label", "#000000")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="teal"):
        Guide("x", 1.0, "label", "teal")


# ---------------------------------------------------------------- quantisation


@pytest.mark.parametrize(("lo", "hi"), [(-1.0, 1.0), (0.0, 1e-30), (-3e5, 7.0), (-1e308, 1e308)])
def test_quantised_values_are_within_half_a_step(lo: float, hi: float) -> None:
    u = np.random.default_rng(0).random((64, 64))
    values = lo * (1 - u) + hi * u
    values[0, 0], values[0, 1] = lo, hi
    back = dequantise(quantise(values, lo, hi), lo, hi)
    bound = (hi / 65534 - lo / 65534) / 2
    assert np.abs(back - values).max() <= bound * (1 + 1e-9)
    assert (back[0, 0], back[0, 1]) == (lo, hi)


def test_values_outside_the_range_clip() -> None:
    codes = quantise(np.array([-5.0, 5.0]), -1.0, 1.0)
    assert codes.tolist() == [0, 65534]


def test_nan_and_infinities_are_undefined() -> None:
    codes = quantise(np.array([np.nan, -np.inf, np.inf, 0.0]), -1.0, 1.0)
    assert codes.tolist() == [65535, 65535, 65535, 32767]
    np.testing.assert_array_equal(dequantise(codes, -1.0, 1.0), [np.nan, np.nan, np.nan, 0.0])


def test_a_constant_survives_exactly() -> None:
    np.testing.assert_array_equal(dequantise(quantise(np.full((2, 2), 0.3), 0.3, 0.3), 0.3, 0.3), 0.3)


# ---------------------------------------------------------------- payload


def test_large_panel_keeps_true_values_beyond_the_domain() -> None:
    values = np.array([[-4.0, 0.5], [np.nan, 3.0]])
    sent = unpacked(pack(payload([make(values)], exact_cells=0)))["panels"][0]
    assert (sent["encoding"], sent["lo"], sent["hi"]) == ("u16", -4.0, 3.0)
    back = dequantise(sent["data"].view("<u2").reshape(2, 2), sent["lo"], sent["hi"])
    np.testing.assert_allclose(back, values, atol=7 / 65534 / 2)
    assert sent["value"]["domain"] == [-1.0, 1.0]
    assert sent["decimals"] == 3  # one level is 1.07e-4
    assert sent["undefined"] is True


def test_small_panel_is_exact_to_six_digits() -> None:
    values = np.cos(np.arange(12.0).reshape(3, 4))
    values[1, 2] = -np.inf
    sent = unpacked(pack(payload([make(values)])))["panels"][0]
    assert (sent["encoding"], sent["decimals"]) == ("f32", None)
    back = sent["data"].view("<f4").reshape(3, 4)
    assert math.isnan(back[1, 2])
    np.testing.assert_allclose(back, np.where(np.isfinite(values), values, np.nan), rtol=1e-7)


def test_values_too_large_for_float32_are_quantised() -> None:
    sent = payload([make([[1e300, -1e300]])])["panels"][0]
    assert (sent["encoding"], sent["lo"], sent["hi"]) == ("u16", -1e300, 1e300)


@pytest.mark.parametrize("value", [0.25, np.nan])
@pytest.mark.parametrize("exact_cells", [0, 10])
def test_one_by_one(value: float, exact_cells: int) -> None:
    sent = unpacked(pack(payload([make([[value]])], exact_cells=exact_cells)))["panels"][0]
    assert (sent["rows"], sent["cols"]) == (1, 1)
    assert sent["undefined"] is math.isnan(value)
    assert sent["lo"] == sent["hi"] == (0.0 if math.isnan(value) else 0.25)


def test_several_panels_share_tables_and_keep_their_order() -> None:
    panels = [make([[0.1 * i]], title=f"Head {i}") for i in range(3)]
    sent = unpacked(pack(payload(panels, selected=1, columns=2, clickable=True, alt="Three heads")))
    assert [p["title"] for p in sent["panels"]] == ["Head 0", "Head 1", "Head 2"]
    assert (sent["selected"], sent["columns"], sent["clickable"], sent["alt"]) == (1, 2, True, "Three heads")
    assert list(sent["luts"]) == ["diverging"]
    np.testing.assert_array_equal(sent["luts"]["diverging"]["dark"].reshape(256, 3), lut("diverging", dark=True))


def test_version_follows_the_content() -> None:
    first, again, other = (payload([make([[v]])])["version"] for v in (0.1, 0.1, 0.2))
    assert first == again != other


@pytest.mark.parametrize("bad", [{"selected": 1}, {"selected": -1}, {"columns": 0}, {"height": 10}])
def test_bad_payload_options_are_named(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(bad.values())))):
        payload([make([[0.0]])], **bad)  # type: ignore[arg-type]


def test_no_panels_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        payload([])


# ---------------------------------------------------------------- colours


def test_colours_clip_at_the_domain_and_zero_is_neutral() -> None:
    heatmap = make([[-9.0, -1.0, 0.0, 1.0, 9.0, np.nan]])
    assert colour_index(heatmap).tolist() == [[0, 0, 128, 255, 255, -1]]
    neutral = raster(heatmap, 10, 10)[0, 2]
    assert neutral.tolist() == [243, 242, 240, 255]


def test_undefined_is_transparent() -> None:
    assert raster(make([[np.nan]]), 4, 4)[0, 0, 3] == 0


def test_cyclic_wraps() -> None:
    tau = 2 * math.pi
    heatmap = make([[0.0, tau, 3 * tau, -tau / 4, 3 * tau / 4]], palette="cyclic", domain=(0.0, tau))
    index = colour_index(heatmap)[0]
    assert index[:3].tolist() == [0, 0, 0]
    assert index[3] == index[4] == 192


def test_shrinking_averages_colours() -> None:
    rows = np.tile([[-1.0], [1.0]], (50, 3))
    small = raster(make(rows), 3, 10)
    assert small.shape == (10, 3, 4)
    expected = np.rint((lut("diverging")[0].astype(float) + lut("diverging")[255]) / 2)
    np.testing.assert_allclose(small[4, 1, :3], expected, atol=1)


def test_shrinking_over_gaps_keeps_the_hue_and_thins_the_alpha() -> None:
    small = raster(make([[1.0], [np.nan], [1.0], [np.nan]]), 1, 1)
    assert small[0, 0, :3].tolist() == lut("diverging")[255].tolist()
    assert small[0, 0, 3] == 128


def test_value_ticks() -> None:
    assert value_ticks(make([[0.0]])) == [(-1.0, "-1"), (-0.5, "-0.5"), (0.0, "0"), (0.5, "0.5"), (1.0, "1")]
    angle = make([[0.0]], palette="cyclic", domain=(0.0, 2 * math.pi))
    assert [label for _, label in value_ticks(angle)] == ["0", "π/2", "π", "3π/2", "2π"]
    signed = make([[0.0]], palette="cyclic", domain=(-math.pi, math.pi))
    assert [label for _, label in value_ticks(signed)] == ["-π", "-π/2", "0", "π/2", "π"]
    for domain in [(0.0, 1e-9), (-7.3, 7.3), (-1e12, 1e12)]:
        values = [v for v, _ in value_ticks(make([[0.0]], palette="sequential", domain=domain))]
        assert 3 <= len(values) <= 7
        assert all(domain[0] - 1e-9 <= v <= domain[1] * (1 + 1e-9) for v in values)


# ---------------------------------------------------------------- Altair twin


def layers_of(heatmap: Heatmap, **size: int) -> list[dict[str, Any]]:
    spec = to_altair(heatmap, **size).to_dict()
    return list(spec["layer"])


def test_twin_has_real_axes_and_a_legend_with_the_domain() -> None:
    heatmap = make(np.zeros((4, 3)), x=Axis("dimension", start=10, step=2), value_unit="rad")
    layers = layers_of(heatmap)
    image, legend = layers[0], layers[-1]
    assert image["mark"]["type"] == "image"
    assert image["encoding"]["x"]["scale"]["domain"] == [9, 15]
    assert image["encoding"]["y"]["scale"]["domain"] == [-0.5, 3.5]
    assert image["encoding"]["y"]["scale"]["reverse"] is True
    assert image["encoding"]["x"]["axis"]["title"] == "dimension"
    assert image["encoding"]["y"]["axis"]["title"] == "position (tokens)"
    assert legend["encoding"]["color"]["scale"]["domain"] == [-1.0, 1.0]
    assert legend["encoding"]["color"]["legend"]["title"] == "encoding (rad)"


def test_twin_hatches_undefined_cells_and_says_so() -> None:
    heatmap = make([[0.0, np.nan]], undefined_label="masked")
    spec = to_altair(heatmap).to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["image", "image", "point"]
    assert spec["title"]["subtitle"] == ["hatched: masked"]
    assert [layer["mark"]["type"] for layer in layers_of(make([[0.0, 1.0]]))] == ["image", "point"]


def test_twin_draws_guides_inside_only() -> None:
    guides = (
        Guide("y", 2, "position A", "#d55e00"),
        Guide("x", 1, "pair", "#0072b2"),
        Guide("y", 99, "far", "#0072b2"),
    )
    layers = layers_of(make(np.zeros((4, 3)), guides=guides))
    rules = [layer["mark"]["color"] for layer in layers if layer["mark"]["type"] == "rule"]
    assert rules == ["#ffffff", "#d55e00", "#ffffff", "#0072b2"]


def test_twin_names_tokens_only_where_they_fit() -> None:
    tokens = tuple(f"t{i}" for i in range(20))
    heatmap = make(np.zeros((20, 20)), x=Axis("key", labels=tokens), y=Axis("query", labels=tokens))
    roomy = layers_of(heatmap, width=400, height=400)[0]["encoding"]["y"]["axis"]
    assert '"t19"' in roomy["labelExpr"]
    assert len(roomy["values"]) == 20
    assert "labelExpr" not in layers_of(heatmap, width=100, height=100)[0]["encoding"]["y"]["axis"]


# ---------------------------------------------------------------- exports


def test_csv_round_trip_keeps_full_precision() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3))
    values[2, 1] = np.nan
    heatmap = make(values, x=Axis("dimension", start=0.1, step=0.1), y=Axis("position", start=100, step=10))
    text = to_csv(heatmap)
    assert text.splitlines()[0] == "x,y,value"
    frame = pd.read_csv(io.StringIO(text))
    np.testing.assert_array_equal(frame["value"].to_numpy().reshape(5, 3), values)
    assert frame["y"].tolist()[:4] == [100, 100, 100, 110]
    assert frame["x"].tolist()[:3] == [0.1, 0.1 + 0.1, 0.1 + 0.2]


def test_csv_adds_labels() -> None:
    heatmap = make([[1.0, -np.inf]], x=Axis("key", labels=("a,b", "c")))
    assert to_csv(heatmap) == 'x,y,value,x_label\n0,0,1.0,"a,b"\n1,0,,c\n'


@pytest.mark.parametrize("dark", [False, True])
def test_png_is_rendered_in_the_asked_size_with_the_palette(dark: bool) -> None:
    data = to_png(make(np.full((8, 8), -1.0), title="Encoding"), 300, 200, dark=dark)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    image = Image.open(io.BytesIO(data)).convert("RGB")
    assert image.width > 600
    assert image.height > 400
    deepest = lut("diverging", dark=dark)[0]
    assert (np.asarray(image) == deepest).all(axis=-1).sum() > 0.95 * 600 * 400


def test_svg_is_rendered_with_titles() -> None:
    text = to_svg(make([[0.0, np.nan]], title="Encoding", guides=(Guide("x", 1, "pair 1", "#0072b2"),)), 200, 100)
    assert text.startswith("<svg")
    for word in ("Encoding", "position (tokens)", "dimension", "encoding", "hatched: undefined", "pair 1"):
        assert word in text


# ---------------------------------------------------------------- the Streamlit wrapper


def test_a_click_becomes_axis_units_and_nonsense_is_ignored() -> None:
    from explorer.heatmap_view import cell_of

    panels = [make(np.zeros((4, 3))), make(np.zeros((4, 3)), x=Axis("dimension", start=10, step=2))]
    assert cell_of({"panel": 1, "row": 3, "col": 2}, panels) == (1, 14, 3)
    for bad in (
        None,
        "click",
        {},
        {"panel": 2, "row": 0, "col": 0},
        {"panel": 0, "row": 4, "col": 0},
        {"panel": 0, "row": -1, "col": 0},
        {"panel": True, "row": 0, "col": 0},
        {"panel": 0, "row": "0", "col": 0},
        {"panel": 0, "row": 0.5, "col": 0},
    ):
        assert cell_of(bad, panels) is None


def test_two_heatmaps_on_a_page_survive_a_rerun() -> None:
    from streamlit.testing.v1 import AppTest

    def page() -> None:
        import numpy as np
        import streamlit as st

        from explorer.charts.heatmap import Axis, Heatmap
        from explorer.heatmap_view import heatmap

        shift = st.slider("shift", 0, 10, 0)
        one = Heatmap(np.full((2, 2), shift / 10), Axis("x"), Axis("y"), "value")
        heatmap(one, key="one", alt="One panel")
        heatmap([one, one], key="two", alt="Two panels", selected=1, on_click=lambda panel, x, y: None)

    app = AppTest.from_function(page).run()
    assert not app.exception
    first = [element.proto.bytes for element in app.get("bidi_component")]
    ids = [element.proto.id for element in app.get("bidi_component")]
    app.slider[0].set_value(5).run()
    assert not app.exception
    second = [element.proto.bytes for element in app.get("bidi_component")]
    assert [element.proto.id for element in app.get("bidi_component")] == ids
    assert len(unpacked(first[1])["panels"]) == 2
    assert unpacked(second[0])["panels"][0]["data"].view("<f4")[0] == 0.5
