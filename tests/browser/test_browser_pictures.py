"""Pictures in the browser: hover tells the true value, clicks set the state, comparing, saving."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SPOTS = [(0.12, 0.1), (0.3, 0.2), (0.45, 0.31), (0.5, 0.55), (0.77, 0.7), (0.85, 0.05)]


def rope(base: float, d_head: int, pairs: Any, positions: Any) -> Any:
    return np.cos(np.outer(base ** (-2.0 * np.asarray(pairs) / d_head), positions))


def sinusoidal(base: float, d_model: int, dimensions: Any, positions: Any) -> Any:
    dimensions = np.asarray(dimensions)
    angle = np.outer(base ** (-2.0 * (dimensions // 2) / d_model), positions)
    return np.where((dimensions % 2 == 0)[:, None], np.sin(angle), np.cos(angle))


CASES = {
    "scheme=rope&d_head=64&base=10000": ("pair", lambda row, col: rope(1e4, 64, [row], [col]).item()),
    "scheme=rope&d_head=128&base=500000&seq_len=2048": ("pair", lambda row, col: rope(5e5, 128, [row], [col]).item()),
    "scheme=sinusoidal&d_model=64&base=1000": ("dimension", lambda row, col: sinusoidal(1e3, 64, [row], [col]).item()),
}


@pytest.mark.parametrize("query", CASES)
def test_hovering_tells_the_value_of_the_cell(app: Any, query: str) -> None:
    app.open(f"encodings?{query}")
    app.painted("encoding_0")
    name, expected = CASES[query]
    cells = set()
    for x, y in SPOTS:
        tip = app.tip("encoding_0", x, y)
        row, col = int(tip["row"]), int(tip["col"])
        cells.add((row, col))
        assert re.search(rf"^{name}: {row}\b", tip["text"], re.MULTILINE)
        assert f"position: {col}\n" in tip["text"]
        assert tip["text"].endswith(tip["value"])
        assert float(tip["value"].removeprefix("≈")) == pytest.approx(expected(row, col), abs=1e-4)
    assert len(cells) == len(SPOTS)


def test_hovering_a_bias_and_what_is_forbidden(app: Any) -> None:
    app.open("encodings?scheme=alibi&n_heads=4&head=1&seq_len=64")
    app.painted("encoding_0")
    below, above = app.tip("encoding_0", 0.2, 0.7), app.tip("encoding_0", 0.7, 0.2)
    distance = int(below["row"]) - int(below["col"])
    assert distance > 10
    assert float(below["value"].removeprefix("≈").removesuffix("score")) == pytest.approx(-distance / 16, abs=1e-3)
    assert int(above["col"]) > int(above["row"])
    assert "forbidden" in above["value"]


def test_the_keyboard_moves_between_cells(app: Any) -> None:
    app.open("encodings?scheme=rope&d_head=64")
    app.painted("encoding_0")
    panel = app.map("encoding_0").locator(".panel")
    panel.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        panel.press(key)
    tip = app.map("encoding_0").locator(".tip")
    assert (tip.get_attribute("data-row"), tip.get_attribute("data-col")) == ("2", "3")
    value = float(tip.get_attribute("data-value").removeprefix("≈"))
    assert value == pytest.approx(rope(1e4, 64, [2], [3]).item(), abs=1e-4)
    panel.press("Enter")
    app.wait_for_query(position="3")
    assert app.shown("position") == "3"


def test_a_click_moves_the_position_everywhere(app: Any) -> None:
    app.open("encodings")
    before = {name: app.painted(name) for name in ("encoding_0", "similarity_0")}
    tip = app.tip("encoding_0", 0.6, 0.4)
    assert tip["col"] != "24"
    app.page.mouse.down()
    app.page.mouse.up()
    app.wait_for_query(position=tip["col"])
    assert app.shown("position") == tip["col"]
    assert (
        f"at position {tip['col']} (orange) and {int(tip['col']) + 8} (blue)"
        in app.page.locator("[data-testid=stMain]").inner_text()
    )
    for name, picture in before.items():
        assert app.painted(name) != picture


def test_a_click_on_a_thumbnail_chooses_the_head(app: Any) -> None:
    app.open("encodings?scheme=alibi")
    large = app.painted("encoding_0")
    app.painted("heads_0")
    panels = app.map("heads_0").locator(".panel")
    assert panels.count() == 8
    assert [panels.nth(i).get_attribute("aria-pressed") for i in range(8)] == ["true"] + ["false"] * 7
    panels.nth(5).click()
    app.wait_for_query(head="5")
    assert app.shown("head") == "5"
    assert app.painted("encoding_0") != large
    assert [panels.nth(i).get_attribute("aria-pressed") for i in range(8)] == ["false"] * 5 + ["true"] + ["false"] * 2


def test_comparing_shows_both_and_their_difference(app: Any) -> None:
    app.open("encodings")
    app.page.get_by_role("button", name="RoPE base 10,000 against 500,000").click()
    app.wait_for_query(scheme="rope", b_scheme="rope", b_base="500000")
    assert len({app.painted(name) for name in ("encoding_0", "encoding_1", "difference")}) == 3
    for x, y in SPOTS[:4]:
        tip = app.tip("difference", x, y)
        row, col = int(tip["row"]), int(tip["col"])
        expected = (rope(1e4, 64, [row], [col]) - rope(5e5, 64, [row], [col])).item()
        assert float(tip["value"].removeprefix("≈")) == pytest.approx(expected, abs=2e-4)
    app.page.get_by_role("button", name="RoPE against ALiBi").click()
    app.wait_for_query(scheme="rope", b_scheme="alibi", b_base="")
    app.painted("heads_1")
    assert app.map("difference").count() == 0


# ---------------------------------------------------------------- files


def saved(app: Any, place: int, name: str, kind: str, folder: Path) -> bytes:
    """Open the nth Save menu and get one of its files."""
    app.page.get_by_role("button", name="Save").nth(place).click()
    button = app.widget(f"save_{name}_{kind}").get_by_role("button")
    with app.page.expect_download() as waiting:
        button.click()
    assert waiting.value.suggested_filename == f"{name}.{kind}"
    waiting.value.save_as(folder / f"{name}.{kind}")
    app.page.keyboard.press("Escape")
    app.page.wait_for_timeout(300)
    return (folder / f"{name}.{kind}").read_bytes()


def test_a_picture_is_saved_as_png_svg_and_csv(app: Any, tmp_path: Path) -> None:
    app.open("encodings?scheme=rope&d_head=16&seq_len=32")
    app.painted("encoding_0")
    png = saved(app, 0, "encoding_0", "png", tmp_path)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(png) > 2000
    svg = saved(app, 0, "encoding_0", "svg", tmp_path).decode()
    assert svg.startswith("<svg")
    assert "cos of the angle" in svg
    rows = list(csv.DictReader(io.StringIO(saved(app, 0, "encoding_0", "csv", tmp_path).decode())))
    values = {(float(row["y"]), float(row["x"])): float(row["value"]) for row in rows}
    assert sorted(values) == [(pair, position) for pair in range(8) for position in range(32)]
    for (pair, position), value in values.items():
        assert value == pytest.approx(rope(1e4, 16, [pair], [position]).item(), abs=1e-9)


def test_a_chart_is_saved_as_png_svg_and_csv(app: Any, tmp_path: Path) -> None:
    app.open("encodings?scheme=rope&d_head=16&seq_len=32")
    app.painted("encoding_0")
    assert saved(app, 1, "waves_0", "png", tmp_path)[:8] == b"\x89PNG\r\n\x1a\n"
    svg = saved(app, 1, "waves_0", "svg", tmp_path).decode()
    assert svg.startswith("<svg")
    assert "position" in svg
    rows = list(csv.DictReader(io.StringIO(saved(app, 1, "waves_0", "csv", tmp_path).decode())))
    lines = [row for row in rows if row["part"] == "line"]
    assert {row["series"] for row in lines} == {"pair 0", "pair 2", "pair 5", "pair 7"}
    assert len(lines) == 4 * 32
    for row in lines:
        pair = int(row["series"].split()[1])
        assert float(row["y"]) == pytest.approx(rope(1e4, 16, [pair], [float(row["x"])]).item(), abs=1e-6)
