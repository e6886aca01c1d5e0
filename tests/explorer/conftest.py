"""Opens the whole app in process, as a link does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from explorer.jobs import Pool, SessionJobs

APP = Path(__file__).resolve().parents[2] / "explorer" / "app.py"

Opener = Callable[..., AppTest]


@pytest.fixture(scope="session")
def open_app() -> Opener:
    """open_app(page, query): the app after its first run; page is "" for the start page, query a mapping or a text."""

    def open_page(page: str = "", query: Mapping[str, Any] | str = "") -> AppTest:
        at = AppTest.from_file(APP, default_timeout=120)
        if page:
            at.switch_page(f"../pages/{page}.py")
        given = parse_qs(query, keep_blank_values=True) if isinstance(query, str) else query
        for name, value in given.items():
            at.query_params[name] = value
        return at.run()

    return open_page


@pytest.fixture(scope="session")
def opened(open_app: Opener) -> Opener:
    """opened(page, query): like open_app, but opened once for all tests that only look."""
    made: dict[tuple[str, str], AppTest] = {}

    def look(page: str = "", query: str = "") -> AppTest:
        if (page, query) not in made:
            made[page, query] = open_app(page, query)
        return made[page, query]

    return look


@pytest.fixture(scope="session")
def address() -> Callable[[AppTest], dict[str, str]]:
    """address(at): the query that the app wrote, or the one it was opened with if that stays."""

    def query(at: AppTest) -> dict[str, str]:
        found = {name: [value] if isinstance(value, str) else list(value) for name, value in at.query_params.items()}
        assert all(len(values) == 1 for values in found.values()), found
        return {name: value for name, [value] in found.items()}

    return query


@pytest.fixture
def own_jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionJobs]:
    """Jobs of this test alone, in the `compute` that its module imports: all AppTests share one session."""
    made = SessionJobs(Pool(1))
    monkeypatch.setattr(request.module.compute, "session_jobs", lambda: made)
    yield made
    made.release()


@pytest.fixture(autouse=True, scope="session")
def _no_cache_is_left_behind() -> Iterator[None]:
    yield
    st.cache_resource.clear()
