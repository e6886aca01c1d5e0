"""The Extension page in a real browser: pictures on both themes and on a phone, hover, clicks, sliders, measuring."""

from __future__ import annotations

import math
from typing import Any

import pytest

PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2}
TOO_WIDE = """() => [document.documentElement, document.querySelector("[data-testid=stMain]")]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}`)"""
HEIGHTS = """() => [...document.querySelectorAll("[data-testid=stVegaLiteChart]")]
  .flatMap(e => [...e.querySelectorAll("canvas, svg")]).map(e => e.getBoundingClientRect().height)"""
LLAMA2 = "scheme=rope&d_head=128"


def metrics(app: Any) -> dict[str, str]:
    """Key numbers by name."""
    found = app.page.locator("[data-testid=stMetric]").all()
    return {
        m.locator("[data-testid=stMetricLabel]").inner_text(): m.locator("[data-testid=stMetricValue]").inner_text()
        for m in found
    }


@pytest.mark.parametrize("options", [{}, PHONE], ids=["light", "dark-phone"])
def test_every_picture_is_drawn_and_none_is_too_wide(visit: Any, options: dict[str, Any]) -> None:
    app = visit(**options).open(f"extension?{LLAMA2}")
    assert app.painted("beyond")
    assert app.painted("methods")
    app.wait_for("() => document.querySelectorAll('[data-testid=stVegaLiteChart]').length >= 12")
    assert all(height > 100 for height in app.page.evaluate(HEIGHTS))
    assert app.page.evaluate(TOO_WIDE) == []
    assert 3 <= app.page.locator("[data-testid=stMetric]").count() <= 5


def test_hovering_tells_how_far_a_pair_is_past_its_arc(app: Any) -> None:
    app.open(f"extension?{LLAMA2}&method=none")
    app.painted("beyond")
    tip = app.tip("beyond", 0.6, 0.72)
    pair, last = int(tip["row"]), (int(tip["col"]) + 1) * 128 - 1
    turns = 10_000 ** (-2 * pair / 128) * 8192 / (2 * math.pi)
    assert turns < 1, "the spot is on a pair that turned fully"
    value = float(tip["value"].removeprefix("≈").split()[0])
    assert value == pytest.approx(math.log2(last / 8192), abs=0.01)
    seen = app.tip("beyond", 0.6, 0.2)
    assert "every angle was seen" in seen["value"]


def test_a_click_on_a_small_map_shows_it_large(app: Any) -> None:
    app.open(f"extension?{LLAMA2}")
    app.painted("methods")
    assert metrics(app)["new angles"] == "0 of 64 pairs"
    app.map("methods").locator("canvas").first.click()
    app.wait_for_query(method="none")
    assert metrics(app)["new angles"] == "14 of 64 pairs"
    assert metrics(app)["first new angle"] == "8,192"
    assert app.shown("method") == "none"


def test_the_target_slider_moves_the_numbers(app: Any) -> None:
    app.open(f"extension?{LLAMA2}&method=none&target_length=16384")
    app.painted("beyond")
    before = metrics(app)["smallest base tried"]
    app.press("target_length", "ArrowRight")
    app.wait_for_query(target_length="32768")
    assert float(metrics(app)["smallest base tried"].replace(",", "")) > float(before.replace(",", ""))
    assert app.painted("beyond")


def test_the_advice_is_a_list_that_can_be_looked_at(app: Any) -> None:
    app.open(f"extension?{LLAMA2}&trained_length=4096&target_length=16384")
    app.painted("beyond")
    parts = app.page.locator("li", has_text="Against the others:")
    parts.wait_for()
    assert app.page.locator("li", has_text="For it:").bounding_box()["y"] < parts.bounding_box()["y"]


def test_the_link_to_the_models_own_trained_length(app: Any) -> None:
    app.open("extension?scheme=rope&scaling=yarn&factor=4&original_max_position_embeddings=4096")
    app.painted("beyond")
    app.page.get_by_text("Try 4,096 trained positions").click()
    app.wait_for_query(trained_length="4096")
    app.page.get_by_text("original_max_position_embeddings = 4,096").wait_for(state="detached")


def test_a_ten_million_position_link_draws(app: Any) -> None:
    app.open(f"extension?{LLAMA2}&target_length=10000000&method=ntk")
    assert app.painted("beyond")
    assert "never" not in metrics(app)["first new angle"]


def test_measuring_again_replaces_the_record(app: Any) -> None:
    app.open("extension")
    app.painted("beyond")
    assert app.page.get_by_text("Recorded: rope.safetensors").count() == 1
    app.page.get_by_role("button", name="Measure again").click()
    app.page.get_by_text("Measured here: rope.safetensors").wait_for(timeout=120_000)
    assert app.page.get_by_role("button", name="Stop").is_disabled()
