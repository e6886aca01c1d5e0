"""One server for the session, a clean browser context for each test, and what tests do with a page."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
REQUIRED = "POSENC_REQUIRE_BROWSER"  # set to 1: a missing browser fails instead of skipping
PATIENCE = 30_000  # ms


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)


def unavailable(reason: str) -> None:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running app."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [
        sys.executable, "-m", "streamlit", "run", "explorer/app.py", "--server.headless", "true", "--server.port",
        str(port), "--server.address", "127.0.0.1", "--server.fileWatcherType", "none",
        "--browser.gatherUsageStats", "false",
    ]  # fmt: skip
    own = os.environ | {"POSENC_LAB_DIR": str(log.parent / "lab")}  # not the results of whoever runs the tests
    with log.open("w") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=own) as process:
        try:
            address, until = f"http://127.0.0.1:{port}", time.monotonic() + 120
            while True:
                try:
                    urllib.request.urlopen(f"{address}/_stcore/health", timeout=5).close()
                    break
                except (urllib.error.URLError, OSError):
                    assert process.poll() is None, log.read_text()[-2000:]
                    assert time.monotonic() < until, "the server did not start in two minutes"
                    time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium: Debian's, else one on the path, else Playwright's own."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        unavailable("playwright is not installed")
    places = [Path("/usr/bin/chromium"), *(Path(found) for name in NAMES if (found := shutil.which(name)))]
    found = [str(place) for place in dict.fromkeys(places) if place.exists()]
    with sync_playwright() as playwright:
        faults = []
        for executable in (*found, None):
            try:
                made = playwright.chromium.launch(executable_path=executable, args=FLAGS, timeout=PATIENCE)
                break
            except Error as error:
                faults.append(f"{executable or 'the one of Playwright'}: {str(error).splitlines()[0]}")
        else:
            unavailable("no Chromium can be launched: " + "; ".join(faults))
        yield made
        made.close()


class App:
    """A browser page with the app in it. Widgets are found by their URL name."""

    def __init__(self, page: Any, server: str) -> None:
        self.page, self.server = page, server

    def open(self, path: str = "") -> App:
        """Go to a page and query, such as "encodings?scheme=alibi"."""
        self.page.goto(f"{self.server}/{path}")
        return self.settle()

    def settle(self) -> App:
        """Wait until the script has run and nothing new starts."""
        for _ in range(2):
            self.page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=PATIENCE)
            self.page.wait_for_timeout(150)
        return self

    def wait_for(self, expression: str, argument: Any = None) -> App:
        """Wait until a JavaScript expression is true."""
        self.page.wait_for_function(expression, arg=argument, timeout=PATIENCE)
        return self.settle()

    def query(self) -> dict[str, str]:
        """The query of the address; every name stands in it once."""
        pairs = self.page.evaluate("[...new URL(location.href).searchParams]")
        assert len({name for name, _ in pairs}) == len(pairs), pairs
        return dict(pairs)

    def wait_for_query(self, **expected: str) -> App:
        """Wait until the address says this of these names; "" for a name that is not there."""
        return self.wait_for(
            "e => Object.entries(e).every(([k, v]) => (new URL(location.href).searchParams.get(k) ?? '') === v)",
            expected,
        )

    def path(self) -> str:
        """The page of the address."""
        result: str = self.page.evaluate("location.pathname.slice(1)")
        return result

    def widget(self, name: str) -> Any:
        return self.page.locator(f".st-key-{name}")

    def slider(self, name: str) -> Any:
        return self.widget(name).get_by_role("slider")

    def press(self, name: str, key: str, times: int = 1) -> None:
        """Press a key on a slider."""
        slider = self.slider(name)
        slider.focus()
        for _ in range(times):
            slider.press(key)

    def choose(self, name: str, option: str) -> App:
        """Click one of a row of buttons, or pick from a list."""
        widget = self.widget(name)
        if widget.get_by_role("combobox").count():
            box = widget.get_by_role("combobox")
            box.scroll_into_view_if_needed()
            self.page.wait_for_timeout(300)  # a list that opens while its place still scrolls closes at once
            box.click()
            self.page.get_by_role("option", name=option, exact=True).click()
        else:
            widget.get_by_role("radio", name=option, exact=True).or_(
                widget.get_by_role("button", name=option, exact=True)
            ).first.click()
        return self.settle()

    def shown(self, name: str) -> str:
        """What a widget says its value is."""
        widget = self.widget(name)
        if widget.get_by_role("slider").count():
            slider = widget.get_by_role("slider")
            return slider.get_attribute("aria-valuetext") or slider.input_value()
        if widget.get_by_role("combobox").count():
            return widget.get_by_role("combobox").input_value() or widget.inner_text()
        if widget.get_by_role("textbox").count():
            return widget.get_by_role("textbox").input_value()
        checked = widget.locator("[aria-checked=true], [aria-pressed=true], [kind$=Active]")
        return checked.first.inner_text()

    def map(self, name: str) -> Any:
        """A picture by the name of its file."""
        return self.page.locator(f".st-key-map_{name} [data-testid=heatmap]")

    def painted(self, name: str) -> str:
        """Wait for a picture to be painted; which one it is."""
        self.page.locator(f".st-key-map_{name} [data-testid=heatmap][data-painted]").wait_for(timeout=PATIENCE)
        result: str = self.settle().map(name).get_attribute("data-painted")
        return result

    def tip(self, name: str, x: float, y: float) -> dict[str, str]:
        """Hover a picture at a share of its size: row, column and value of the cell, and all that is told."""
        picture = self.map(name)
        picture.scroll_into_view_if_needed()
        box = picture.locator("canvas").first.bounding_box()
        at = box["x"] + x * box["width"], box["y"] + y * box["height"]
        self.page.mouse.move(*at)
        tip = picture.locator(".tip")
        tip.wait_for()
        mark = picture.locator(".cell").bounding_box()
        inside = (
            mark["x"] - 2 <= at[0] <= mark["x"] + mark["width"] + 2
            and mark["y"] - 2 <= at[1] <= mark["y"] + mark["height"] + 2
        )
        assert inside, "the marked cell is not under the mouse"
        found = {key: tip.get_attribute(f"data-{key}") for key in ("row", "col", "value")}
        return found | {"text": tip.inner_text()}

    def exceptions(self) -> list[str]:
        """Texts of the boxes that Streamlit draws for an exception."""
        result: list[str] = self.page.locator("[data-testid=stException]").all_inner_texts()
        return result


@pytest.fixture
def visit(browser: Any, server: str) -> Iterator[Callable[..., App]]:
    """visit(**options): the app in a clean context; options are those of a Playwright context, such as color_scheme.

    Errors of the console, of scripts and of the app fail the test at its end.
    """
    contexts, apps, errors = list[Any](), list[App](), list[str]()

    def of_console(message: Any) -> None:
        # A deep link asks for two files under the page's own path first, which are not there; Streamlit then goes on.
        missing = message.location.get("url", "").endswith(("/_stcore/health", "/_stcore/host-config"))
        if message.type == "error" and not missing:
            errors.append(f"{message.text} {message.location.get('url', '')}")

    def new(**options: Any) -> App:
        context = browser.new_context(accept_downloads=True, **({"viewport": {"width": 1280, "height": 900}} | options))
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", of_console)
        page.on("pageerror", lambda error: errors.append(str(error)))
        apps.append(App(page, server))
        return apps[-1]

    yield new
    try:
        assert [box for made in apps for box in made.exceptions()] == []
        assert errors == []
    finally:
        for context in contexts:
            context.close()


@pytest.fixture
def app(visit: Callable[..., App]) -> App:
    """The app in one clean context."""
    return visit()
