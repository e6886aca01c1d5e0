"""Every page with every scheme: the skeleton that all share, bad links, and how much a link can make the app hold."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from explorer import limits, widgets
from explorer.compute.common import MAX_CELLS
from explorer.text import COMPARISONS, SCHEME_TEXT, formula_of
from explorer.views import VIEWS
from posenc_core import SCHEMES, parse_query
from posenc_core.spec import number_text

ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 2**30  # that opening any link may add to the memory of the process


def maps(at: Any) -> list[Any]:
    return [b.proto for b in at.get("bidi_component") if b.proto.component_name == "posenc_heatmap"]


def notices(at: Any) -> list[str]:
    """The notices about a link, without their escapes."""
    texts = [re.sub(r"\\(.)", r"\1", w.value) for w in at.warning]
    return [text for text in texts if text.startswith("Some values of this link")]


def title(at: Any) -> str:
    headings: list[str] = [m.value for m in at.main.markdown if m.value.startswith("## ")]
    return headings[0]


def assert_complete(at: Any, schemes: list[str]) -> None:
    """The skeleton: title with the schemes, their formulae, three to five numbers, a picture, words, a link to try."""
    assert not at.exception
    for scheme in schemes:
        assert SCHEME_TEXT[scheme].name in title(at)
    specs = at.session_state[widgets.CHOSEN].specs
    assert [spec.scheme for spec in specs] == schemes
    formulae = [item.value.strip("$\n ") for item in at.get("latex")]
    for spec in specs:
        assert formula_of(spec) in formulae
    numbers = [m for m in at.metric if m.label != "closest two positions"]  # which stands beside its picture
    assert 3 <= len(numbers) <= 5
    assert len({m.label for m in numbers}) == len(numbers)
    for metric in numbers:
        assert metric.proto.help, metric.label
        assert metric.value not in ("", "nan", "inf"), metric.label
    pictures = maps(at) + [c.proto for c in at.get("vega_lite_chart")]
    assert pictures
    for picture in at.get("vega_lite_chart"):
        assert picture.proto.alt
    assert len(at.get("page_link")) >= 1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("page", VIEWS)
def test_every_page_shows_every_scheme(opened: Any, page: str, scheme: str) -> None:
    at = opened(page, f"scheme={scheme}")
    assert_complete(at, [scheme])
    assert not notices(at)
    assert not at.error
    assert at.session_state[widgets.CHOSEN].spec == SCHEMES[scheme]()


PAIRS = [
    *COMPARISONS.values(),
    {"scheme": "sinusoidal", "b_scheme": "learned"},
    {"scheme": "none", "b_scheme": "hybrid"},
]
COMPARED = [page for page in VIEWS if page]


@pytest.mark.parametrize("query", PAIRS, ids=urlencode)
@pytest.mark.parametrize("page", COMPARED)
def test_every_page_compares_two_schemes(opened: Any, page: str, query: dict[str, str]) -> None:
    at = opened(page, urlencode(query))
    schemes = [query["scheme"], query["b_scheme"]]
    assert_complete(at, schemes)
    assert not notices(at)
    expected, problems = parse_query({k[2:]: v for k, v in query.items() if k.startswith("b_")})
    assert not problems
    assert at.session_state[widgets.CHOSEN].second == expected
    if page in ("encodings", "attention"):
        assert len(maps(at)) >= 2
    assert " against " in title(at)


@pytest.mark.parametrize("page", ["encodings", "attention"])
def test_two_of_a_kind_come_with_their_difference(opened: Any, page: str) -> None:
    at = opened(page, urlencode(COMPARISONS["RoPE base 10,000 against 500,000"]))
    keys = [m.id.rsplit("-", 1)[1] for m in maps(at)]
    assert "map_difference" in keys
    shapes = [panel["rows"] for m in maps(at) for panel in header(m)["panels"]]
    assert min(shapes) > 0


# ---------------------------------------------------------------- bad links

BAD = {
    "huge": "seq_len=1000000000000",
    "not numbers": "scheme=rope&base=nan&d_head=inf&rotary_fraction=-inf",
    "unknown": "scheme=xpos&theta=5&b_scheme=yarn",
    "repeated": "scheme=rope&scheme=alibi&seq_len=16&seq_len=32",
    "odd": "scheme=sinusoidal&d_model=7&layout=half",
    "layers": "scheme=hybrid&layers=" + "rope(base=1)*2,".replace(",", "%2C") * 40,
    "markup": "scheme=%3Cscript%3E&%24x%24=1&**a**=2",
    "beside": "b_base=3&b_scheme=rope&b_d_head=5",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("page", VIEWS)
def test_a_bad_link_is_told_once_and_the_page_still_draws(open_app: Any, page: str, name: str) -> None:
    at = open_app(page, BAD[name])
    assert not at.exception
    [notice] = notices(at)
    for parameter, _ in parse_qsl(BAD[name]):
        good = {"scheme": {"rope", "sinusoidal", "hybrid"}, "b_scheme": {"rope"}, "b_base": {"3"}}
        if dict(parse_qsl(BAD[name]))[parameter] not in good.get(parameter, ()):
            assert f"- {parameter}" in notice
    assert notice.count("\n- ") == notice.count("Used instead: ")
    assert maps(at) or at.get("vega_lite_chart")


@pytest.mark.parametrize("page", [page for page in VIEWS if VIEWS[page].params()])
def test_a_bad_value_of_a_pages_own_is_told_too(open_app: Any, page: str) -> None:
    param = VIEWS[page].params()[0]
    at = open_app(page, {param.name: "\u0663x"})
    assert not at.exception
    [notice] = notices(at)
    assert f"{param.name} = '\u0663x' is not legal; legal: {param.legal}. Used instead: {param.default}." in notice


# ---------------------------------------------------------------- bounds

LIMITS = {name: number_text(most) for name, most in limits.MAXIMA.items()}
EXTREMES = [
    "scheme=rope&d_head=1024&seq_len=4096",
    f"scheme=sinusoidal&d_model={LIMITS['d_model']}&seq_len=4096",
    f"scheme=integer&variant=one_hot&seq_len=4096&d_model={LIMITS['d_model']}"
    f"&max_position_embeddings={LIMITS['max_position_embeddings']}",
    "scheme=alibi&n_heads=256&seq_len=4096",
    f"scheme=learned&seq_len=4096&d_model={LIMITS['d_model']}"
    f"&max_position_embeddings={LIMITS['max_position_embeddings']}",
    "scheme=hybrid&layers=rope(d_head=1024)*128&seq_len=4096",
]

# The kernel counts memory in a process of its own, whose data are limited so that a fault cannot fill the machine.
PROBE = """
import json, resource, sys
from urllib.parse import parse_qs
import torch
from streamlit.testing.v1 import AppTest
resource.setrlimit(resource.RLIMIT_DATA, (6 * 2**30, 6 * 2**30))

def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

def open_page(page, query):
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the peak starts anew
    before = peak()
    at = AppTest.from_file(sys.argv[1], default_timeout=300)
    at.switch_page(f"../pages/{page}.py")
    for name, value in parse_qs(query).items():
        at.query_params[name] = value
    at.run()
    cells, kept = 0, 0
    for item in at.get("bidi_component"):
        if item.proto.component_name == "posenc_heatmap":
            data = item.proto.bytes
            panels = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])["panels"]
            cells = max(cells, *(p["rows"] * p["cols"] for p in panels))
            kept += len(data)
    return {"added": peak() - before, "cells": cells, "sent": kept, "notices": [w.value for w in at.warning],
            "faults": [e.message for e in at.exception]}

open_page("encodings", "")
print(json.dumps([open_page(sys.argv[2], query) for query in sys.argv[3:]]))
"""


def header(component: Any) -> Any:
    data = component.bytes
    return json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])


@pytest.fixture(scope="module")
def extremes() -> dict[str, dict[str, Any]]:
    """What opening each of EXTREMES on the Encodings page costs."""
    command = [sys.executable, "-c", PROBE, str(ROOT / "explorer" / "app.py"), "encodings", *EXTREMES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(EXTREMES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")
@pytest.mark.parametrize("query", EXTREMES)
def test_the_largest_legal_parameters_stay_within_the_bounds(extremes: Any, query: str) -> None:
    found = extremes[query]
    assert found["faults"] == []
    assert found["notices"] == []
    assert 0 < found["cells"] <= MAX_CELLS
    assert found["sent"] < 8 * MAX_CELLS
    assert found["added"] < MAX_BYTES
