"""Every page in a real browser: a picture in light and dark, nothing too wide for a phone, history, live pages."""

from __future__ import annotations

import re
from typing import Any

import pytest

PAGES = {"": "Start", "encodings": "Encodings", "decay": "Decay", "attention": "Attention", "config": "Config",
         "extension": "Extension", "porting": "Porting", "timing": "Timing", "lab": "Extrapolation lab",
         "claims": "Claims", "choosing": "Choosing"}  # fmt: skip
PICTURES = {"": "glance_0", "encodings": "encoding_0", "decay": "scores", "attention": "attention_0"}
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2}
COLOURS_IN = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""
LIGHTNESS = """() => {
  const [r, g, b] = getComputedStyle(document.querySelector("[data-testid=stApp]")).backgroundColor.match(/\\d+/g);
  return (0.299 * r + 0.587 * g + 0.114 * b) / 255;
}"""
TOO_WIDE = """() => [document.documentElement, document.querySelector("[data-testid=stMain]")]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}`)"""


def go(app: Any, title: str) -> Any:
    """Click a page in the navigation."""
    app.page.locator("[data-testid=stSidebarNavLink]", has_text=title).click()
    app.page.wait_for_function(
        "path => location.pathname === '/' + path",
        arg=next(path for path, name in PAGES.items() if name == title),
    )
    return app.settle()


def assert_drawn(app: Any, page: str) -> None:
    if page in PICTURES:
        assert app.painted(PICTURES[page])
        assert app.map(PICTURES[page]).locator("canvas").first.evaluate(COLOURS_IN) > 10
    else:
        chart = app.page.locator("[data-testid=stVegaLiteChart]").locator("canvas, svg").first
        chart.wait_for()
        assert chart.bounding_box()["height"] > 100


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_its_picture_on_a_light_screen(app: Any, page: str) -> None:
    app.open(page)
    assert_drawn(app, page)
    assert app.page.evaluate(LIGHTNESS) > 0.9
    assert "RoPE" in app.page.locator("h2").first.inner_text()
    assert app.page.locator(".katex").count() >= 1
    assert 3 <= app.page.locator("[data-testid=stMetric]").count() <= 5
    assert app.page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_its_picture_on_a_dark_phone_without_scrolling_sideways(visit: Any, page: str) -> None:
    app = visit(**PHONE).open(page)
    assert_drawn(app, page)
    assert app.page.evaluate(LIGHTNESS) < 0.2
    assert app.page.evaluate(TOO_WIDE) == []


def test_comparing_on_a_phone_does_not_scroll_sideways(visit: Any) -> None:
    app = visit(**PHONE).open("encodings?scheme=rope&d_head=128&b_scheme=alibi&b_n_heads=12")
    app.painted("encoding_0")
    app.painted("encoding_1")
    assert app.page.evaluate(TOO_WIDE) == []


# ---------------------------------------------------------------- state and history


def test_state_survives_page_switches(app: Any) -> None:
    app.open("encodings?scheme=rope&base=500000&seq_len=256&b_scheme=alibi&b_n_heads=4&position=9")
    first = app.painted("encoding_0")
    shared = {"scheme": "rope", "base": "500000", "seq_len": "256", "b_scheme": "alibi", "b_n_heads": "4"}
    for title in ("Timing", "Decay", "Start"):
        go(app, title)
        app.wait_for_query(**shared)
        assert app.query() == shared  # and nothing of the page before
        assert app.shown("base") == "500,000"
        assert app.shown("b_n_heads") == "4"
    go(app, "Encodings")
    app.wait_for_query(**shared)
    assert app.shown("position") == app.query().get("position", "24")
    app.slider("position").focus()
    app.slider("position").press("Home")
    app.wait_for_query(position="0")
    assert app.painted("encoding_0") != first


def test_back_leads_to_the_page_before_and_slider_moves_make_no_steps(app: Any) -> None:
    app.open("?scheme=sinusoidal&base=500")
    app.painted("glance_0")
    go(app, "Encodings")
    app.wait_for_query(scheme="sinusoidal", base="500")
    length = app.page.evaluate("history.length")
    app.press("position", "ArrowRight", 5)
    app.wait_for_query(position="29")
    app.press("d_model", "ArrowRight")
    app.wait_for_query(d_model="256")
    assert app.page.evaluate("history.length") == length
    here = app.query()
    app.page.go_back()
    app.wait_for("() => location.pathname === '/'")
    app.wait_for_query(scheme="sinusoidal", base="500", position="")
    app.painted("glance_0")
    assert app.shown("scheme") == "Sinusoidal"
    app.page.go_forward()
    app.wait_for("() => location.pathname === '/encodings'")
    app.wait_for_query(**here)
    assert app.shown("position") == "29"
    assert app.page.get_by_text("Some values of this link").count() == 0


# ---------------------------------------------------------------- the live pages

TEXTS = {
    "Chinese": "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。",
    "emoji": "🦜👩‍👩‍👧‍👦🏳️‍🌈 👍🏽🇨🇳",
    "one letter": "a",
    "empty": "",
    "long": "The quick brown fox jumps over the lazy dog. " * 222 + "0123456789",
}


def test_any_text_can_be_pasted(app: Any) -> None:
    assert len(TEXTS["long"]) == 10_000
    app.open("attention")
    pictures = {app.painted("attention_0")}
    box = app.widget("text").get_by_role("textbox")
    for name, text in TEXTS.items():
        box.fill(text)
        box.press("Control+Enter")
        app.page.wait_for_timeout(300)
        app.settle()
        assert app.exceptions() == [], name
        picture = app.painted("attention_0")
        assert picture not in pictures or name == "empty", name
        pictures.add(picture)
        assert box.input_value() == text, name
    assert app.shown("text") == TEXTS["long"]


def test_a_text_is_part_of_its_link(app: Any, visit: Any) -> None:
    app.open("attention?scheme=alibi")
    box = app.widget("text").get_by_role("textbox")
    box.fill("你好 & 100% = 1/2 #?")
    box.press("Control+Enter")
    app.wait_for_query(text="你好 & 100% = 1/2 #?")
    picture = app.painted("attention_0")
    other = visit()
    other.page.goto(app.page.url)
    assert other.painted("attention_0") == picture
    assert other.shown("text") == "你好 & 100% = 1/2 #?"


def test_a_click_on_a_row_of_attention_chooses_the_token(app: Any) -> None:
    app.open("attention?scheme=rope&text=hello")
    app.painted("attention_0")
    tip = app.tip("attention_0", 0.3, 0.45)
    app.page.mouse.down()
    app.page.mouse.up()
    app.wait_for_query(query=tip["row"])
    assert app.shown("query") == tip["row"]


def test_a_measurement_starts_and_stops(app: Any) -> None:
    app.open("timing?longest=8192&repetitions=200")
    start, stop = (app.page.get_by_role("button", name=name, exact=True) for name in ("Start", "Stop"))
    assert stop.is_disabled()
    start.click()
    app.page.wait_for_function(
        "() => document.querySelector('[data-testid=stProgress]')?.innerText.includes('Now: layers, 128 to')"
    )
    app.page.wait_for_timeout(1000)
    assert stop.is_enabled()
    stop.click()
    app.page.wait_for_function("() => !document.querySelector('[data-testid=stProgress]')")
    app.settle()
    assert stop.is_disabled()
    assert re.search(r"stopped|cancel", app.page.locator("[data-testid=stMain]").inner_text(), re.IGNORECASE)
    assert_drawn(app, "timing")
