"""The Claims page in a real browser: hover, filters, one claim from its sentence to the experiment and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from explorer import state
from posenc_core.claims_table import CLAIMS

BY_NUMBER = {claim.number: claim for claim in CLAIMS}
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2}
TOO_WIDE = """() => [document.documentElement, document.querySelector("[data-testid=stMain]")]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}`)"""


def main(app: Any) -> str:
    text: str = app.page.locator("[data-testid=stMain]").inner_text()
    return text.replace("\u2060", "")


def link(app: Any, label: str) -> Any:
    return app.page.locator("[data-testid=stMain] [data-testid=stPageLink] a", has_text=label)


def headline(app: Any) -> str:
    """The claim that is shown large."""
    text: str = app.page.locator("[data-testid=stMain] h3").first.inner_text()
    return text.replace("\u2060", "")


def opened(page: str, query: Mapping[str, str]) -> dict[str, Any]:
    """What a query opens, defaults included."""
    values, rejected = state.read_link(page, {name: [text] for name, text in query.items()})
    assert rejected == ()
    return values


def wait_for_path(app: Any, path: str) -> None:
    app.wait_for("path => location.pathname === '/' + path", path)


def test_a_cell_tells_its_claim(app: Any) -> None:
    app.open("claims")
    chart = app.page.locator("[data-testid=stVegaLiteChart]").locator("canvas, svg").first
    chart.wait_for()
    box = chart.bounding_box()
    tip = app.page.locator("#vg-tooltip-element")
    for step in range(40):  # the first cell stands at the left, below the legend
        app.page.mouse.move(box["x"] + 20, box["y"] + 30 + step * 4)
        app.page.wait_for_timeout(30)
        if tip.count() and CLAIMS[0].sentence in tip.inner_text():
            return
    pytest.fail(f"no cell told {CLAIMS[0].sentence!r}")


@pytest.mark.parametrize("options", [{}, PHONE | {"has_touch": True}], ids=["click", "tap"])
def test_a_cell_opens_its_claim_again_and_again(visit: Any, options: dict[str, Any]) -> None:
    app = visit(**options).open("claims?words=o")
    for _ in range(2):
        chart = app.page.locator("[data-testid=stVegaLiteChart]").locator("canvas, svg").last
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        at = (box["x"] + box["width"] / 18, box["y"] + box["height"] - 38)  # on the words of the last row's first cell
        (app.page.touchscreen.tap if options else app.page.mouse.click)(*at)
        app.wait_for_query(claim="19", words="o")
        assert headline(app) == f"19. {BY_NUMBER[19].sentence}"
        link(app, "Close").click()
        app.wait_for_query(claim="", words="o", go="")


def test_a_filter_leaves_its_claims_and_stands_in_the_address(app: Any) -> None:
    app.open("claims")
    app.widget("source_kind").get_by_role("combobox").wait_for()
    app.choose("source_kind", "paper")
    app.wait_for_query(source_kind="paper")
    papers = [claim for claim in CLAIMS if claim.source == "paper"]
    assert f"{len(papers)} of {len(CLAIMS)} claims" in main(app)
    for claim in CLAIMS:
        assert (f"{claim.number}. {claim.sentence}" in main(app)) == (claim in papers)
    box = app.widget("words").get_by_role("textbox")
    box.fill("zzzz")
    box.press("Enter")
    app.wait_for_query(words="zzzz", source_kind="paper")
    assert "No claim fits" in main(app)
    app.page.get_by_role("button", name="All claims").last.click()
    app.wait_for_query(words="", source_kind="")
    assert f"{len(CLAIMS)} claims" in main(app)


@pytest.mark.parametrize("options", [{}, PHONE], ids=["light", "dark-phone"])
@pytest.mark.parametrize("number", [10, 15])
def test_from_the_sentence_to_the_experiment_and_back(visit: Any, options: dict[str, Any], number: int) -> None:
    claim = BY_NUMBER[number]
    app = visit(**options).open("claims")
    assert app.page.locator("[data-testid=stMain] h3").count() == 0
    link(app, "All of it").nth(list(BY_NUMBER).index(number)).click()
    app.wait_for_query(claim=str(number), go="")
    assert headline(app) == f"{number}. {claim.sentence}"
    app.wait_for(
        "() => document.querySelector('[data-testid=stMain] h3').getBoundingClientRect().top < innerHeight / 2"
    )
    assert app.page.evaluate("document.querySelector('[data-testid=stMain] h3').getBoundingClientRect().top") > 0
    assert claim.reference in main(app)
    assert app.page.evaluate(TOO_WIDE) == []
    link(app, "Open the experiment").first.click()
    wait_for_path(app, claim.page)
    app.wait_for_query(go="")
    assert opened(claim.page, app.query()) == opened(claim.page, claim.query)
    assert app.page.get_by_text("Some values of this link").count() == 0
    if options:
        app.page.get_by_test_id("stExpandSidebarButton").click()
    app.page.locator("[data-testid=stSidebarNavLink]", has_text="Claims").click()
    wait_for_path(app, "claims")
    app.wait_for_query(claim=str(number))
    assert headline(app) == f"{number}. {claim.sentence}"


def test_a_closed_claim_leaves_the_filters(app: Any) -> None:
    app.open("claims?claim=10&verdict=any&words=rope")
    assert headline(app) == f"10. {BY_NUMBER[10].sentence}"
    link(app, "Close").click()
    app.wait_for_query(claim="", words="rope", go="")
    assert app.page.locator("[data-testid=stMain] h3").count() == 0
