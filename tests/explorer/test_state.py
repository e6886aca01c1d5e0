"""Links: what is read from a query, what is refused and how that is told, what a link inside the app carries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from explorer import show, state
from explorer.views import VIEWS, SharedView
from posenc_core import SCHEMES
from posenc_core.schemes.rope import SCALED


def read(page: str, **texts: str | list[str]) -> tuple[dict[str, Any], tuple[state.Rejected, ...]]:
    return state.read_link(page, {name: [text] if isinstance(text, str) else text for name, text in texts.items()})


def one(page: str, **texts: str | list[str]) -> tuple[dict[str, Any], state.Rejected]:
    values, rejected = read(page, **texts)
    assert len(rejected) == 1, rejected
    return values, rejected[0]


# ---------------------------------------------------------------- legal links


def test_an_empty_query_is_the_default_scheme_with_every_default() -> None:
    values, rejected = read("encodings")
    assert rejected == ()
    assert values["scheme"] == "rope"
    assert values["d_head"] == 64
    assert values["base"] == 10_000.0
    assert values["seq_len"] == 512
    assert values["position"] == 24
    assert not any(name.startswith("b_") for name in values)


def test_values_have_the_types_of_their_fields() -> None:
    values, rejected = read("encodings", scheme="sinusoidal", d_model="256", base="1e3", endpoint="true", position="7")
    assert rejected == ()
    assert (values["d_model"], values["base"], values["endpoint"], values["position"]) == (256, 1000.0, True, 7)
    assert isinstance(values["d_model"], int)
    assert isinstance(values["base"], float)


def test_lists_and_layers_stay_texts() -> None:
    values, rejected = read("encodings", scheme="alibi", n_heads="2", slopes="0.5, 0.25")
    assert rejected == ()
    assert values["slopes"] == "0.5,0.25"
    values, rejected = read("encodings", scheme="hybrid", layers="alibi, alibi, rope(base=5e5)")
    assert rejected == ()
    assert values["layers"] == "alibi*2, rope(base=500000)"


def test_the_second_scheme_has_its_own_values() -> None:
    values, rejected = read("decay", scheme="rope", base="500", b_scheme="rope", b_base="600", b_d_head="32")
    assert rejected == ()
    assert (values["base"], values["d_head"]) == (500.0, 64)
    assert (values["b_scheme"], values["b_base"], values["b_d_head"]) == ("rope", 600.0, 32)


def test_the_mark_of_the_apps_own_links_is_no_parameter() -> None:
    values, rejected = read("encodings", go="1", scheme="alibi")
    assert rejected == ()
    assert values["scheme"] == "alibi"
    assert "go" not in values


@pytest.mark.parametrize("page", VIEWS)
def test_every_page_reads_its_own_view_and_the_shared_one(page: str) -> None:
    values, rejected = read(page)
    assert rejected == ()
    assert {p.name for p in (*SharedView.params(), *VIEWS[page].params())} <= values.keys()


def test_no_name_means_two_things_on_one_page() -> None:
    of_schemes = {p.name for spec in SCHEMES.values() for p in spec.params()} | {"scheme", state.GO}
    for page, view in VIEWS.items():
        names = [p.name for p in (*SharedView.params(), *view.params())]
        assert len(names) == len(set(names)), page
        assert not of_schemes & set(names), page
        assert not [n for n in (*names, *of_schemes) if n.startswith(state.B)], page


# ---------------------------------------------------------------- illegal values


def bounds(legal: str) -> list[float]:
    """The numbers in a range in words."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*(?:e\+\d+)?", legal)]


BAD_NUMBERS = [
    "0",
    "-4",
    "1025",
    str(10**12),
    "9" * 400,
    "1e400",
    "nan",
    "inf",
    "-inf",
    "six",
    "",
    "0x10",
    "3.5",
    "true",
]


@pytest.mark.parametrize("text", BAD_NUMBERS)
def test_a_bad_whole_number_is_named_with_its_range_and_replaced(text: str) -> None:
    values, rejected = one("encodings", scheme="rope", d_head=text, base="500000")
    assert rejected.problem.name == "d_head"
    assert rejected.problem.legal == SCHEMES["rope"].param("d_head").legal
    assert bounds(rejected.problem.legal) == [2, 1024, 2]
    assert rejected.used == "64"
    assert values["d_head"] == 64
    assert values["base"] == 500_000.0  # the rest of the link holds


@pytest.mark.parametrize("text", ["1", "0", "-1", "1e13", "1e400", "nan", "inf", "-inf", "ten", "", "1,5"])
def test_a_bad_number_is_named_with_its_range_and_replaced(text: str) -> None:
    values, rejected = one("encodings", scheme="rope", base=text)
    assert rejected.problem.name == "base"
    assert rejected.problem.legal == SCHEMES["rope"].param("base").legal
    assert bounds(rejected.problem.legal) == [1.001, 1e12]
    assert rejected.used == "10000"
    assert values["base"] == 10_000.0


@pytest.mark.parametrize("text", ["1000000000000", "0", "7", "4097", "nan", "1e9", "8.5", "many"])
def test_the_shared_view_is_bounded(text: str) -> None:
    values, rejected = one("decay", seq_len=text)
    assert (rejected.problem.name, bounds(rejected.problem.legal)) == ("seq_len", [8, 4096])
    assert rejected.used == "512"
    assert values["seq_len"] == 512


def test_an_odd_dimension_is_the_wrong_step() -> None:
    values, rejected = one("encodings", scheme="sinusoidal", d_model="129")
    assert rejected.problem.value == 129
    assert bounds(rejected.problem.legal) == [2, 16384, 2]
    assert values["d_model"] == 128


def test_a_choice_is_named_with_all_choices() -> None:
    values, rejected = one("encodings", quantity="tan")
    assert (rejected.problem.name, rejected.problem.value) == ("quantity", "tan")
    assert rejected.problem.legal == "one of cos, sin, angle"
    assert rejected.used == "cos"
    assert values["quantity"] == "cos"


@pytest.mark.parametrize("text", ["yes", "2", "", "None"])
def test_a_switch_takes_true_or_false(text: str) -> None:
    values, rejected = one("encodings", scheme="sinusoidal", endpoint=text)
    assert rejected.problem.legal == "true or false"
    assert values["endpoint"] is False


@pytest.mark.parametrize("text", ["xpos", "", "ROPE", "rope ", "__class__", "0"])
def test_an_unknown_scheme_gives_the_default_scheme(text: str) -> None:
    values, rejected = one("encodings", scheme=text)
    assert (rejected.problem.name, rejected.problem.value) == ("scheme", text)
    assert rejected.problem.legal == "one of " + ", ".join(SCHEMES)
    assert rejected.used == "rope"
    assert values["scheme"] == "rope"


def test_unknown_names_are_each_named_once() -> None:
    _, rejected = read("encodings", theta="5", dhead="3", Scheme="rope", B_base="1")
    assert {r.problem.name for r in rejected} == {"theta", "dhead", "Scheme", "B_base"}
    assert len(rejected) == 4
    assert {r.problem.reason for r in rejected} == {"unknown name"}
    assert {r.used for r in rejected} == {"nothing"}


def test_a_name_of_another_scheme_is_refused_with_the_names_there_are() -> None:
    values, rejected = one("encodings", scheme="rope", n_heads="4")
    assert rejected.problem.name == "n_heads"
    assert "d_head" in rejected.problem.legal
    assert rejected.used == "nothing"
    assert "n_heads" not in values


def test_a_name_of_another_page_is_refused() -> None:
    _, rejected = one("decay", position="3")
    assert rejected.problem.name == "position"
    assert rejected.used == "nothing"


def test_a_repeated_key_is_refused_whatever_its_values() -> None:
    values, rejected = one("encodings", scheme="rope", base=["500", "500"])
    assert rejected.problem.name == "base"
    assert rejected.problem.value == ["500", "500"]
    assert rejected.problem.legal == "one value"
    assert rejected.used == "10000"
    assert values["base"] == 10_000.0


def test_a_repeated_view_parameter_is_refused() -> None:
    values, rejected = one("encodings", position=["5", "6"])
    assert rejected.used == "24"
    assert values["position"] == 24


def test_parameters_of_a_second_scheme_need_one() -> None:
    values, rejected = one("encodings", scheme="rope", b_base="500")
    assert rejected.problem.name == "b_base"
    assert rejected.problem.legal == "read only beside b_scheme"
    assert rejected.used == "nothing"
    assert not any(name.startswith("b_") for name in values)


def test_a_bad_value_of_the_second_scheme_leaves_the_first_alone() -> None:
    values, rejected = one("encodings", scheme="rope", base="700", b_scheme="rope", b_base="-1")
    assert rejected.problem.name == "b_base"
    assert rejected.used == "10000"
    assert (values["base"], values["b_base"]) == (700.0, 10_000.0)


def test_a_share_that_makes_an_odd_rotary_dim_is_refused() -> None:
    values, rejected = one("encodings", scheme="rope", d_head="6", rotary_fraction="0.5")
    assert rejected.problem.name == "rotary_fraction"
    assert "d_head = 6" in rejected.problem.legal
    assert rejected.used == "1"
    assert (values["d_head"], values["rotary_fraction"]) == (6, 1.0)


def test_a_factor_without_scaling_is_refused() -> None:
    values, rejected = one("encodings", scheme="rope", factor="4")
    assert rejected.problem.legal == "read only while scaling is " + " or ".join(SCALED)
    assert values["factor"] == 1.0


def test_slopes_have_one_number_a_head() -> None:
    values, rejected = one("encodings", scheme="alibi", n_heads="4", slopes="1,2,3")
    assert rejected.problem.name == "slopes"
    assert rejected.problem.legal == "4 numbers, one a head, or none"
    assert (values["n_heads"], values["slopes"]) == (4, "")


@pytest.mark.parametrize(
    ("layers", "part"),
    [
        ("rope*129", "128 layers"),
        ("rope*", "cannot be read"),
        ("", "no layer"),
        ("rope(base=1)", "a number from 1.001"),
        ("xpos", "one of none"),
        ("rope, sinusoidal", "first layer"),
        ("hybrid", "hybrid itself"),
        ("rope(500)", "name=value"),
        ("rope(" * 50, "cannot be read"),
    ],
)
def test_faults_of_a_layer_list_are_explained(layers: str, part: str) -> None:
    values, rejected = one("encodings", scheme="hybrid", layers=layers)
    assert rejected.problem.name.startswith("layers")
    assert part in str(rejected.problem)
    assert rejected.used == "alibi, rope"
    assert values["layers"] == "alibi, rope"


def test_two_faults_in_one_layer_list_are_both_told() -> None:
    _, rejected = read("encodings", scheme="hybrid", layers="rope(base=1), alibi(n_heads=0)")
    assert [r.problem.name for r in rejected] == ["layers: rope.base", "layers: alibi.n_heads"]
    assert {r.used for r in rejected} == {"alibi, rope"}


@pytest.mark.parametrize("scheme", ["integer", "sinusoidal", "learned"])
def test_what_the_library_takes_and_the_app_cannot_hold_is_refused(scheme: str) -> None:
    for prefix in ("", "b_"):
        first = {} if not prefix else {"scheme": "rope"}
        values, rejected = one("encodings", **first, **{prefix + "scheme": scheme, prefix + "d_model": "16384"})
        assert rejected.problem.name == prefix + "d_model"
        assert bounds(rejected.problem.legal) == [2, 1024, 2]
        assert rejected.used == "128"
        assert values[prefix + "d_model"] == 128
    values, rejected = one("encodings", scheme="hybrid", layers=f"{scheme}(d_model=16384), rope")
    assert rejected.problem.name == f"layers: {scheme}.d_model"
    assert rejected.used == "alibi, rope"
    assert values["layers"] == "alibi, rope"


def test_many_faults_are_all_told_at_once() -> None:
    values, rejected = read(
        "encodings",
        scheme="rope",
        d_head="7",
        base="x",
        layout="none",
        seq_len="1e12",
        position="-1",
        waves="0",
        zz="1",
    )
    assert {r.problem.name for r in rejected} == {"d_head", "base", "layout", "seq_len", "position", "waves", "zz"}
    assert len(rejected) == 7
    assert values == read("encodings")[0]


def test_a_long_value_is_shown_shortened() -> None:
    _, rejected = one("encodings", base="9" * 5000 + "x")
    assert len(str(rejected.problem)) < 300


# ---------------------------------------------------------------- the notice


def unescaped(markdown: str) -> str:
    """What is left of a Markdown text without escaped characters."""
    return re.sub(r"\\.", "", markdown)


NASTY = [
    "<img src=x onerror=alert(1)>",
    "**bold** and _thin_",
    "[click](https://example.com)",
    "![picture](https://example.com/a.png)",
    "$x^2$ and `code`",
    ":red[red] :smile: :material/home:",
    "a|b|c~~d~~",
    "\\*not\\*",
]


@pytest.mark.parametrize("text", NASTY)
def test_nothing_of_a_strangers_link_becomes_markup(open_app: Any, text: str) -> None:
    at = open_app("encodings", {"layout": text, text: "1"})
    notice = at.warning[0].value
    lines = [line for line in notice.split("\n") if line.startswith("- ")]
    assert len(lines) == 2
    for line in lines:
        assert not re.search(r"[<>\[\]*_`$|~:!#]", unescaped(line[2:])), line


@pytest.mark.parametrize("text", ["a\n\n# Title", "a\n- another item", "a\n\n1. one\n\n    code", "a\r\n---\r\n"])
def test_a_line_break_in_a_name_makes_no_line_of_its_own(open_app: Any, text: str) -> None:
    at = open_app("encodings", {text: "1"})
    assert not at.exception
    assert len(at.warning[0].value.splitlines()) == 2, at.warning[0].value


def test_the_notice_names_value_range_and_replacement_of_each_fault_and_goes_when_told(
    open_app: Any, address: Any
) -> None:
    at = open_app("encodings", "scheme=rope&d_head=7&seq_len=1000000000000")
    assert len(at.warning) == 1
    notice = re.sub(r"\\(.)", r"\1", at.warning[0].value)
    legal = SCHEMES["rope"].param("d_head").legal
    assert f"d_head = 7 is not legal; legal: {legal}. Used instead: 64." in notice
    assert (
        f"seq_len = 1000000000000 is not legal; legal: {SharedView.param('seq_len').legal}. Used instead: 512."
        in notice
    )
    assert address(at) == {}  # and the address now says what is shown
    at.button(key="_dismiss").click().run()
    assert not at.warning
    assert not at.exception


def test_plain_escapes_only_markup() -> None:
    assert show.plain("a*b_c`d") == r"a\*b\_c\`d"
    assert show.plain("0.5, 12 (θ) 语言") == "0.5, 12 (θ) 语言"


# ---------------------------------------------------------------- links inside the app


def links() -> None:  # runs as a script of its own
    import streamlit as st

    from explorer import state

    state.begin(st.session_state["page"])
    state.show(st.session_state["shown"])
    st.session_state["made"] = [state.link(changes) for changes in st.session_state["asked"]]
    state.end()


def made(shown: dict[str, str], *asked: dict[str, str], page: str = "encodings") -> list[dict[str, str]]:
    at = AppTest.from_function(links)
    for name, value in {"page": page, "shown": shown, "asked": asked}.items():
        at.session_state[name] = value
    at.run()
    assert not at.exception
    result: list[dict[str, str]] = at.session_state["made"]
    return result


SHOWN = {"scheme": "rope", "base": "500000", "seq_len": "1024", "b_scheme": "alibi", "b_n_heads": "4", "position": "9"}


def test_a_link_keeps_the_schemes_and_the_shared_view_but_not_the_pages_own_values() -> None:
    [link] = made(SHOWN, {"d_head": "128"})
    assert link == {
        "go": "1", "scheme": "rope", "base": "500000", "seq_len": "1024", "b_scheme": "alibi", "b_n_heads": "4",
        "d_head": "128",
    }  # fmt: skip


def test_a_changed_scheme_drops_its_old_parameters_only() -> None:
    first, second = made(SHOWN, {"scheme": "sinusoidal"}, {"b_scheme": "rope", "b_base": "100"})
    assert first == {
        "go": "1", "seq_len": "1024", "b_scheme": "alibi", "b_n_heads": "4", "scheme": "sinusoidal",
    }  # fmt: skip
    assert second == {
        "go": "1", "scheme": "rope", "base": "500000", "seq_len": "1024", "b_scheme": "rope", "b_base": "100",
    }  # fmt: skip


def test_an_empty_change_takes_a_parameter_away() -> None:
    [link] = made(SHOWN, {"b_scheme": ""})
    assert link == {"go": "1", "scheme": "rope", "base": "500000", "seq_len": "1024"}


@pytest.mark.parametrize("page", VIEWS)
def test_the_mark_of_a_link_never_stays_in_the_address(open_app: Any, address: Any, page: str) -> None:
    at = open_app(page, "go=1&scheme=sinusoidal&base=500&seq_len=128")
    assert not at.exception
    assert address(at) == {"scheme": "sinusoidal", "base": "500", "seq_len": "128"}


def test_links_on_a_page_never_carry_the_mark_twice_nor_what_a_page_does_not_know(open_app: Any) -> None:
    at = open_app("encodings", "scheme=alibi&n_heads=12&seq_len=256&head=3")
    queries = [link.proto.query_string for link in at.get("page_link")]
    assert queries
    for query in queries:
        assert query.count("go=1") == 1
        assert "seq_len=256" in query
