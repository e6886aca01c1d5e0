"""The Porting page in the browser: parts by link, a paste becomes an answer, a hover tells a position's error."""

from __future__ import annotations

import math
from typing import Any

import pytest

from explorer.pictures import porting as pictures
from posenc_core import porting
from posenc_core.frequencies import rope_frequencies
from posenc_core.schemes.rope import RopeSpec

ROPE = RopeSpec()


def metric(app: Any, label: str) -> str:
    found = app.page.locator("[data-testid=stMetric]").filter(has_text=label)
    result: str = found.locator("[data-testid=stMetricValue]").first.inner_text()
    return result


def test_a_part_is_chosen_and_is_in_the_address(app: Any) -> None:
    app.open("porting")
    assert app.query() == {}
    assert metric(app, "rows that move") == "62 of 64"
    app.choose("part", "precision").wait_for_query(part="precision")
    app.painted("precision")
    app.choose("part", "compare").wait_for_query(part="compare")
    assert metric(app, "first pair that differs") == "none"
    app.choose("mistake", "base").wait_for_query(mistake="base")
    assert metric(app, "first pair that differs") == "1"
    app.choose("part", "layout").wait_for_query(part="", mistake="")


def test_a_paste_becomes_an_answer(app: Any) -> None:
    app.open("porting?scheme=rope&d_head=128&part=fingerprint")
    box = app.widget("pasted").get_by_role("textbox")
    box.fill(pictures.sample_inv_freq(RopeSpec(d_head=128, base=500_000.0)))
    box.press("Control+Enter")
    app.settle()
    app.page.get_by_text("No scaling, base 500,000", exact=False).first.wait_for()
    assert metric(app, "first pair off") == "1"
    assert app.query()["pasted"].startswith("[1, 0.8146")
    box.fill("[1, 0.5, ..., 0.1]")
    box.press("Control+Enter")
    app.settle()
    app.page.get_by_text("leaves numbers out", exact=False).wait_for()
    assert metric(app, "first pair off") == "–"


def test_a_sample_is_one_click(app: Any) -> None:
    app.open("porting?part=fingerprint")
    app.page.get_by_role("button", name="interleaved rotation on half-split weights").click()
    app.settle()
    app.page.get_by_role("heading", name="Interleaved, no scaling, base 10,000").wait_for()
    assert metric(app, "first position off") == "1"
    assert app.shown("pasted").startswith('{"x": [')


def test_hovering_the_map_tells_the_error(app: Any) -> None:
    app.open("porting?part=precision&rounded=frequencies&longest=16384")
    app.painted("precision")
    made = porting.error_map(rope_frequencies(ROPE).inv_freq, "bfloat16", "frequencies", 16_384)
    for x, y in ((0.5, 0.4), (0.7, 0.8), (0.85, 0.2)):
        tip = app.tip("precision", x, y)
        row, col = int(tip["row"]), int(tip["col"])
        value = max(made.values[row, col].item(), pictures.FLOOR)
        assert float(tip["value"].removeprefix("≈").removesuffix("rad")) == pytest.approx(math.log10(value), abs=2e-3)
        position = float(tip["text"].split("log2 of the position: ")[1].split("\n")[0])
        assert made.starts[col] <= 2**position + 1
        assert made.ends[col] >= 2**position - 1
        assert f"pair (high to low frequency): {row}" in tip["text"]


@pytest.mark.parametrize("part", ["layout", "precision", "fingerprint", "compare"])
@pytest.mark.parametrize(
    "options", [{}, {"viewport": {"width": 390, "height": 844}}, {"color_scheme": "dark"}], ids=str
)
def test_every_part_draws_without_an_error(visit: Any, part: str, options: dict[str, Any]) -> None:
    app = visit(**options).open(f"porting?part={part}")
    charts = app.page.locator("[data-testid=stVegaLiteChart], .st-key-map_precision canvas")
    charts.nth(1).wait_for(state="attached")
    width = app.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    assert width, "the page is wider than the window"
