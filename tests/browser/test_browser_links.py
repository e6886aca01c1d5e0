"""Widgets and the address: each follows the other, links open the same picture, bad ones are told."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest


def test_a_slider_a_row_of_buttons_and_a_list_write_the_address(app: Any) -> None:
    app.open("encodings")
    assert app.query() == {}
    seen = {app.painted("encoding_0")}
    app.press("position", "ArrowRight")
    app.wait_for_query(scheme="rope", position="25")
    app.choose("quantity", "angle")
    app.wait_for_query(quantity="angle")
    seen.add(app.painted("encoding_0"))
    app.press("base", "ArrowRight", 2)
    app.wait_for_query(base="50000")
    seen.add(app.painted("encoding_0"))
    assert app.query() == {"scheme": "rope", "base": "50000", "position": "25", "quantity": "angle"}
    app.choose("scheme", "Sinusoidal")
    app.wait_for_query(scheme="sinusoidal")
    assert app.query() == {"scheme": "sinusoidal", "position": "25"}
    seen.add(app.painted("encoding_0"))
    assert len(seen) == 4
    app.choose("scheme", "ALiBi")
    app.wait_for_query(scheme="alibi", base="")
    assert app.query() == {"scheme": "alibi", "position": "25"}


WIDGETS = {"scheme", "d_head", "base", "layout", "seq_len", "b_scheme", "b_n_heads", "position", "distance", "quantity"}


def test_the_address_opens_the_same_in_a_clean_browser(app: Any, visit: Any) -> None:
    app.open("encodings")
    app.choose("_preset", "Llama 3 8B")
    app.wait_for_query(base="500000", d_head="128")
    app.choose("b_scheme", "ALiBi")
    app.press("b_n_heads", "ArrowRight")
    app.wait_for_query(b_scheme="alibi", b_n_heads="12")
    app.press("seq_len", "ArrowLeft")
    app.wait_for_query(seq_len="256")
    app.press("position", "PageUp")
    app.choose("quantity", "sin")
    app.wait_for_query(seq_len="256", quantity="sin")
    pictures = {name: app.painted(name) for name in ("encoding_0", "encoding_1", "similarity_0", "heads_1")}
    values = {name: app.shown(name) for name in WIDGETS}
    other = visit()
    other.page.goto(app.page.url)
    other.settle()
    assert {name: other.painted(name) for name in pictures} == pictures
    assert {name: other.shown(name) for name in WIDGETS} == values
    assert other.query() == app.query()
    app.page.reload()
    app.settle()
    assert {name: app.painted(name) for name in pictures} == pictures


def test_quick_presses_end_where_they_should(app: Any) -> None:
    app.open("encodings")
    app.painted("encoding_0")
    app.press("position", "ArrowRight", 15)
    app.wait_for_query(position="39")
    app.page.wait_for_timeout(500)
    app.settle()
    assert app.shown("position") == app.query()["position"] == "39"
    app.press("base", "ArrowRight", 6)
    app.press("base", "ArrowLeft", 2)
    app.wait_for_query(base="130000")
    app.page.wait_for_timeout(500)
    app.settle()
    assert app.shown("base") == "130,000"


def test_a_shorter_sequence_takes_the_position_with_it(app: Any) -> None:
    app.open("encodings?seq_len=4096&position=3000")
    app.painted("encoding_0")
    assert app.shown("position") == "3000"
    app.press("seq_len", "Home")
    app.wait_for_query(seq_len="8", position="7")
    assert app.shown("position") == "7"
    assert app.slider("position").get_attribute("max") == "7"


def test_a_fraction_between_the_stops_is_kept_and_its_slider_moves_on(app: Any) -> None:
    app.open("encodings?scheme=rope&d_head=80&rotary_fraction=0.4")
    picture = app.painted("encoding_0")
    assert float(app.shown("rotary_fraction")) == 0.4
    assert app.query()["rotary_fraction"] == "0.4"
    app.press("rotary_fraction", "ArrowRight")
    app.wait_for_query(rotary_fraction="0.5")
    assert app.painted("encoding_0") != picture
    assert app.page.locator("[data-testid=stAlert]").count() == 0


# ---------------------------------------------------------------- links on the page


def try_link(app: Any, label: str) -> Any:
    return app.page.locator("[data-testid=stPageLink] a", has_text=label)


def test_a_try_on_the_same_page_sets_its_parameters(app: Any) -> None:
    app.open("encodings?scheme=rope&d_head=32&seq_len=256&position=3")
    picture = app.painted("encoding_0")
    link = try_link(app, "base 500,000")
    asked = dict(parse_qsl(urlsplit(link.get_attribute("href")).query))
    assert asked.pop("go") == "1"
    assert asked.items() >= {"scheme": "rope", "base": "500000", "seq_len": "256"}.items()
    link.click()
    app.wait_for_query(**asked, go="", position="")
    assert app.query() == asked
    assert app.shown("base") == "500,000"
    assert app.shown("position") == "24"
    assert app.painted("encoding_0") != picture
    try_link(app, "p-RoPE").click()
    app.wait_for_query(scaling="proportional", rotary_fraction="0.75", seq_len="256", go="")
    assert app.shown("scaling") == "proportional"
    before = app.shown("d_head")
    app.press("d_head", "ArrowRight")  # widgets still work after a link
    app.wait_for("before => new URL(location.href).searchParams.get('d_head') !== null", before)
    assert app.query()["d_head"] == app.shown("d_head") != before
    assert app.query()["scaling"] == "proportional"


def test_a_try_on_another_page_and_a_step_of_the_story(app: Any) -> None:
    app.open("?scheme=alibi&n_heads=12&seq_len=256")
    app.painted("glance_0")
    try_link(app, "all pictures of this scheme").click()
    app.wait_for("() => location.pathname === '/encodings'")
    app.wait_for_query(scheme="alibi", n_heads="12", seq_len="256", go="")
    assert app.painted("encoding_0")
    app.page.go_back()
    app.wait_for("() => location.pathname === '/'")
    app.wait_for_query(scheme="alibi", n_heads="12", seq_len="256")
    try_link(app, "Base 10,000 against 500,000").click()
    app.wait_for("() => location.pathname === '/encodings'")
    app.wait_for_query(scheme="rope", b_scheme="rope", b_base="500000", go="")
    assert app.painted("encoding_0") != app.painted("encoding_1")


# ---------------------------------------------------------------- bad links

NOTICE = "[data-testid=stAlert]"


def test_a_bad_link_is_told_once_name_by_name(app: Any) -> None:
    app.open("encodings?scheme=rope&d_head=7&base=nan&seq_len=1000000000000&position=1&position=2&theta=3&b_d_head=8")
    assert app.painted("encoding_0")
    notice = app.page.locator(NOTICE)
    assert notice.count() == 1
    lines = notice.locator("li").all_inner_texts()
    assert sorted(line.split(" ")[0] for line in lines) == [
        "b_d_head", "base", "d_head", "position", "seq_len", "theta",
    ]  # fmt: skip
    assert all("legal: " in line and "Used instead: " in line for line in lines)
    app.wait_for_query(d_head="", base="", seq_len="", position="", theta="")
    app.page.get_by_role("button", name="Understood").click()
    notice.wait_for(state="detached")
    app.press("position", "ArrowRight")
    app.wait_for_query(position="25")
    assert notice.count() == 0


NASTY = [
    "<img src=x onerror=alert(1)><b>x</b>",
    "**bold** _thin_ ~~gone~~ `code`",
    "[click](https://e.com) ![p](https://e.com/a.png)",
    "https://example.com www.example.com a@example.com",
    "$x^2$ :red[red] :material/home: :smile:",
]


@pytest.mark.parametrize("place", ["value", "name"])
def test_a_strangers_text_is_shown_as_it_is(app: Any, place: str) -> None:
    texts = [f"{i} {text}" for i, text in enumerate(NASTY)]
    if place == "value":
        names = ("layout", "base", "d_head", "scaling", "seq_len")
        query = "&".join(f"{name}={quote(text)}" for name, text in zip(names, texts, strict=True))
    else:
        query = "&".join(f"{quote(text)}=1" for text in texts)
    app.open(f"encodings?{query}")
    assert app.painted("encoding_0")
    notice = app.page.locator(NOTICE)
    assert notice.locator("li").count() == len(NASTY)
    assert notice.locator("li").locator("b, strong, em, i, del, code, a, img, [role=img], .katex").count() == 0
    shown = notice.inner_text().replace("\u2060", "")  # the joiner that keeps bare words from becoming links
    for text in texts:
        assert text in shown


def test_what_is_typed_wrong_is_told_and_the_page_stays(app: Any) -> None:
    app.open("encodings?scheme=alibi")
    picture = app.painted("encoding_0")
    box = app.widget("slopes").get_by_role("textbox")
    box.fill("1,2,x")
    box.press("Enter")
    app.page.locator(NOTICE).wait_for()
    assert "1,2,x" in app.page.locator(NOTICE).inner_text()
    assert app.painted("encoding_0") == picture
    box.fill("8,7,6,5,4,3,2,1")
    box.press("Enter")
    app.wait_for_query(slopes="8,7,6,5,4,3,2,1")
    app.page.locator(NOTICE).wait_for(state="detached")
    assert app.painted("encoding_0") != picture
