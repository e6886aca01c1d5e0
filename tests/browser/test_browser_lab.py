"""The Extrapolation lab in a real browser: training live, stopped, left by closing the tab, and gone on with."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE = 120_000  # ms
SMALL = "train_length=16&width=16&schemes=rope"
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2}
TOO_WIDE = """() => [document.documentElement, document.querySelector("[data-testid=stMain]")]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}`)"""
STEP = re.compile(r"step ([\d,]+) of ([\d,]+)")


def click(app: Any, name: str) -> Any:
    app.page.get_by_role("button", name=name, exact=True).click()
    return app


def step(app: Any) -> int:
    """The step that the progress bar tells, once it is past the start."""
    bar = app.page.locator("[data-testid=stProgress]")
    bar.filter(has_text=STEP).wait_for(timeout=PATIENCE)
    found = STEP.search(bar.inner_text())
    assert found
    return int(found[1].replace(",", ""))


def left_at(app: Any) -> tuple[int, int]:
    """Where the page says that a run was stopped."""
    told = app.page.get_by_text("Start goes on from there")
    told.wait_for(timeout=PATIENCE)
    done, total = STEP.search(told.inner_text()).groups()  # type: ignore[union-attr]
    return int(done.replace(",", "")), int(total.replace(",", ""))


def test_training_is_live_can_be_stopped_and_goes_on(app: Any) -> None:
    app.open(f"lab?{SMALL}&steps=2000&seeds=101")
    query = app.query()
    assert app.page.get_by_role("button", name="Stop").is_disabled()
    click(app, "Start")
    first = step(app)
    chart = app.page.locator("[data-testid=stVegaLiteChart]").first
    chart.locator("canvas, svg").first.wait_for()
    app.page.wait_for_function(
        "n => Number((document.querySelector('[data-testid=stProgress]').innerText.match(/step ([\\d,]+)/) ?? [0, '0'])"
        "[1].replace(',', '')) > n",
        arg=first, timeout=PATIENCE,
    )  # fmt: skip
    assert app.page.get_by_role("button", name="Start").is_disabled()
    click(app, "Stop")
    done, total = left_at(app)
    assert first < done < total == 2000
    assert app.settle().query() == query
    click(app, "Start")
    assert step(app) >= done
    click(app, "Stop")
    assert left_at(app)[0] >= done


def test_closing_the_tab_keeps_what_was_trained_for_the_same_link(visit: Callable[..., Any]) -> None:
    link = f"lab?{SMALL}&steps=300&seeds=102"
    reader = visit().open(link)
    click(reader, "Start")
    seen = step(reader)
    reader.page.close()
    reader.page = visit().page  # so that the last look at exceptions has a page
    again = visit()
    for _ in range(20):  # the server notices a closed tab a moment later, then the step in progress ends
        again.open(link)
        if again.page.get_by_text("Start goes on from there").count():
            break
        again.page.wait_for_timeout(500)
    done, total = left_at(again)
    assert seen <= done < total
    click(again, "Start")
    again.page.get_by_text("Nothing is left to train: 1 of 1 run measured.").wait_for(timeout=PATIENCE)
    again.settle()
    again.page.get_by_text("Within 0.1 nats a byte").or_(again.page.get_by_text("No scheme stays")).first.wait_for()
    assert again.painted("attention_1")
    assert again.painted("attention_4")
    third = visit().open(link)  # and another reader sees it at once
    assert third.page.get_by_text("Nothing is left to train: 1 of 1 run measured.").count() == 1
    first = third.painted("heads_4")
    third.map("heads_4").locator("canvas").nth(2).click()
    third.wait_for_query(layer="0", head="2")
    assert third.painted("heads_4") != first or third.painted("attention_4")


def test_a_typed_scheme_is_taken(app: Any) -> None:
    app.open("lab?scheme=rope&base=500000&schemes=rope&seeds=0")
    box = app.widget("schemes").get_by_role("combobox")
    box.fill("rope(base=4321)")
    box.press("Enter")
    app.wait_for_query(schemes="rope, rope(base=4321)")
    app.page.wait_for_timeout(500)
    box.fill("rope(base=5)")
    box.press("Enter")
    app.wait_for_query(schemes="rope, rope(base=4321), rope(base=5)")
    box.fill("xpos")
    box.press("Enter")
    app.page.get_by_text("schemes: xpos.scheme = 'xpos' is not legal").wait_for()
    app.wait_for_query(schemes="rope, rope(base=4321), rope(base=5), xpos")


def test_ones_own_text_is_trained_on(app: Any) -> None:
    app.open(f"lab?{SMALL}&steps=10&seeds=103")
    app.page.get_by_text("Train on your own text").click()
    text = ("All work and no play makes Jack a dull boy. " * 30).encode()
    app.page.locator("input[type=file]").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": text})
    app.page.get_by_text("a.txt").first.wait_for()
    click(app.settle(), "Start")
    app.page.get_by_text("(yours)").wait_for(timeout=PATIENCE)
    assert "text" not in app.settle().query()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["light", "dark-phone"])
def test_nothing_is_too_wide_before_anything_is_measured(visit: Callable[..., Any], options: dict[str, Any]) -> None:
    app = visit(**options).open("lab?seeds=99&slope_training=dynamic&task=token_back")
    app.page.locator("[data-testid=stVegaLiteChart]").locator("canvas, svg").first.wait_for()
    app.page.get_by_text("Nothing of this setting is measured yet.").wait_for()
    assert app.page.evaluate(TOO_WIDE) == []
