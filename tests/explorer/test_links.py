"""Links that were shared once open what they opened then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from explorer import state, widgets
from explorer.views import VIEWS
from posenc_core import SCHEMES, parse_spec

FILE = Path(__file__).resolve().parents[1] / "data" / "links.txt"
LINKS = [
    line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
]


def plain(mapping: Any) -> Any:
    """A mapping as its JSON reads."""
    return json.loads(json.dumps(mapping))


def holds(mapping: Any, promised: Any) -> bool:
    """Whether a spec's mapping has all that was promised, in every layer too."""
    if isinstance(promised, list) and promised and isinstance(promised[0], dict):
        return len(mapping) == len(promised) and all(map(holds, mapping, promised))
    if isinstance(promised, dict):
        return all(name in mapping and holds(mapping[name], value) for name, value in promised.items())
    return bool(mapping == promised)


@pytest.mark.parametrize(("link", "promise"), LINKS, ids=[link for link, _ in LINKS])
def test_a_link_opens_what_it_promised(open_app: Any, address: Any, link: str, promise: str) -> None:
    page, _, query = link.partition("?")
    promised = json.loads(promise)
    at = open_app(page, query)
    assert not at.exception
    assert not at.error
    assert not at.warning
    chosen = at.session_state[widgets.CHOSEN]
    # A parameter that came later stands at its default: it is in the spec's mapping and not in the promise.
    assert holds(plain(chosen.spec.to_mapping()), promised["spec"])
    assert chosen.spec == parse_spec(promised["spec"])
    assert chosen.second == (parse_spec(promised["second"]) if promised["second"] else None)
    assert chosen.seq_len == promised["seq_len"]
    values = at.session_state["_state"].values
    assert {name: values[name] for name in promised["view"]} == promised["view"]
    # What the app writes instead opens the same again.
    written, rejected = state.read_link(page, {name: [text] for name, text in address(at).items()})
    asked, _ = state.read_link(page, {name: [text] for name, text in parse_qsl(query, keep_blank_values=True)})
    assert rejected == ()
    assert written == asked


def test_the_list_covers_every_page_and_scheme_and_repeats_nothing() -> None:
    assert len(LINKS) >= 31
    assert len({link for link, _ in LINKS}) == len(LINKS)
    assert {link.partition("?")[0] for link, _ in LINKS} == VIEWS.keys()
    promises = [json.loads(promise) for _, promise in LINKS]
    assert {p["spec"]["scheme"] for p in promises} == SCHEMES.keys()
    assert sum(p["second"] is not None for p in promises) >= 5
