"""The URL is the state: links are read once before the widgets, and the URL is rewritten after each run.

Streamlit's own widget binding writes 500000.0 for 500000, drops bad values without a word and does not take a link to
the page the reader is on; so the values live in one session dict, widgets are fed from it, and a link made by this app
carries the marker `go`, by which it is told from a widget's change that still has the old URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from explorer.limits import limited
from explorer.views import VIEWS, SharedView
from posenc_core import SCHEMES, Problem, Spec, SpecError, parse_query
from posenc_core.spec import LISTS

GO = "go"
B = "b_"  # prefix of the second scheme's parameters
DEFAULT_SCHEME = "rope"
REMEMBERED_WRITES = 200


@dataclass(frozen=True)
class Rejected:
    """A value of a link that is not legal, and what is shown in its place."""

    problem: Problem
    used: str


@dataclass
class _State:
    """Kept in the session. `values`: by URL name; numbers, choices and bools as such, lists and texts as text.

    It holds the fields of the scheme and of the page that are shown; those of others are put aside in `memory`, since
    one name can mean different things there.
    """

    values: dict[str, Any]
    rejected: tuple[Rejected, ...]
    writes: list[dict[str, list[str]]]
    shapes: dict[str, object]
    memory: dict[tuple[str, str], dict[str, Any]]
    shown: dict[str, str]  # prefix -> the scheme whose fields `values` holds
    live: tuple[str, frozenset[str]] = ("", frozenset())
    kept: frozenset[str] = frozenset()
    page: str = ""
    query: dict[str, list[str]] | None = None
    external: bool = False
    used: dict[str, str] | None = None  # URL name -> text, of what this run shows and is not the default
    seen: set[str] | None = None


def _state() -> _State:
    if "_state" not in st.session_state:
        st.session_state["_state"] = _State({}, (), [], {}, {}, {})
    return st.session_state["_state"]


def begin(page: str) -> None:
    """Call after st.navigation and before any widget: takes over a link, or what the widgets changed."""
    state, query = _state(), {name: st.query_params.get_all(name) for name in st.query_params}
    first = state.query is None
    changed = {
        key: st.session_state[key]
        for key in state.values
        if key in st.session_state and st.session_state[key] != state.values[key]
    }
    state.values |= changed
    if changed or page != state.page:
        state.rejected = ()
    if page != state.page:
        _swap(state, ("page", state.page), ("page", page), _names(VIEWS.get(state.page, Spec)))
    back = bool(getattr(get_script_run_ctx(), "is_history_navigation", False))
    # A query that this app wrote itself earlier is a browser that lags behind, not a link.
    state.external = first or back or GO in query or (bool(query) and query not in state.writes)
    if state.external:
        _take_link(state, page, query, keep_text=GO in query)
        if back:  # what comes back was written by this app, perhaps by another of its pages
            state.rejected = ()
    if state.external or state.live[0] != page:
        state.live = ("", frozenset())
    state.kept, state.page, state.query, state.used, state.seen = state.live[1], page, query, {}, set()


def _names(view: type[Spec]) -> set[str]:
    return {p.name for p in view.params()}


def _swap(state: _State, old: tuple[str, str], new: tuple[str, str], names: set[str]) -> None:
    """Put the values of `names` aside under `old`, and take out those that were put aside under `new`."""
    state.memory[old] = {n: state.values.pop(n) for n in names if n in state.values}
    state.values |= state.memory.get(new, {})


def enter_scheme(prefix: str, scheme: str) -> None:
    """Call when the scheme is known: a scheme that was shown before gets its values back, a new one its defaults."""
    state = _state()
    shown = state.shown.get(prefix)
    if shown is not None and shown != scheme:
        names = {prefix + n for n in (_names(SCHEMES[shown]) if shown in SCHEMES else set())}
        _swap(state, (prefix, shown), (prefix, scheme), names)
    state.shown[prefix] = scheme


def _take_link(state: _State, page: str, query: Mapping[str, list[str]], keep_text: bool) -> None:
    values, rejected = read_link(page, query)
    texts = {p.name for view in VIEWS.values() for p in view.params() if p.kind == "text"}
    kept = {k: v for k, v in state.values.items() if keep_text and k in texts and k not in query}
    state.values, state.rejected = kept | {k: v for k, v in values.items() if k not in kept}, rejected
    state.shown = {prefix: values[prefix + "scheme"] for prefix in ("", B) if prefix + "scheme" in values}


def read_link(page: str, query: Mapping[str, list[str]]) -> tuple[dict[str, Any], tuple[Rejected, ...]]:
    """Values by URL name from a page's query, and what was rejected. Never raises."""
    query = {n: v for n, v in query.items() if n != GO}
    problems = [Problem(n, v, "one value", "it stands there more than once") for n, v in query.items() if len(v) > 1]
    texts = {name: v[0] for name, v in query.items() if len(v) == 1}
    values: dict[str, Any] = {}
    names = set[str]()
    for view in (SharedView, VIEWS.get(page, Spec)):
        mine = {n: t for n, t in texts.items() if n in _names(view)}
        names |= _names(view)
        made, view_problems = _parse_view(view, mine)
        problems += view_problems
        values |= field_values(made)
    known = set[str]().union(*map(_names, SCHEMES.values()))
    rest = {n: t for n, t in texts.items() if n not in names}
    unknown = {n: t for n, t in rest.items() if n.removeprefix(B) not in known | {"scheme"}}
    for prefix in ("", B):
        mine = {
            n.removeprefix(prefix): t for n, t in rest.items() if n not in unknown and n.startswith(B) == bool(prefix)
        }
        if prefix and "scheme" not in mine:
            problems += [Problem(B + n, t, "read only beside b_scheme") for n, t in mine.items()]
            continue
        if prefix and mine["scheme"] not in SCHEMES:
            problems.append(Problem(B + "scheme", mine["scheme"], "one of " + ", ".join(SCHEMES)))
            continue
        spec, found = parse_query(mine, DEFAULT_SCHEME)
        spec, over = limited(spec)
        found += over
        problems += [replace(p, name=prefix + p.name, field=prefix + p.key) for p in found]
        values |= {prefix + n: v for n, v in ({"scheme": spec.scheme} | field_values(spec)).items()}
    legal = ", ".join(["scheme", *sorted(known), *sorted(names)]) + f"; with {B} in front for the second scheme"
    for name, text in unknown.items():
        problems.append(Problem(name, text, legal, "unknown name"))
        legal = "the names above"
    return values, tuple(Rejected(p, _used_instead(p.key, values)) for p in problems)


def _used_instead(key: str, values: Mapping[str, Any]) -> str:
    if key not in values:
        return "nothing"
    value = values[key]
    return (str(value) if not isinstance(value, float) else f"{value:g}") or "none"


def _parse_view(view: type[Spec], texts: Mapping[str, str]) -> tuple[Spec, list[Problem]]:
    fields: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, text in texts.items():
        try:
            fields[name] = view.parse_field(name, text)
            view(**{name: fields[name]} | {p.when[0]: p.when[1][0] for p in [view.param(name)] if p.when})
        except SpecError as error:
            problems += error.problems
            fields.pop(name, None)
    try:
        return view(**fields), problems
    except SpecError as error:
        bad = {p.name for p in error.problems}
        return view(**{n: v for n, v in fields.items() if n not in bad}), problems + list(error.problems)


def field_values(spec: Spec) -> dict[str, Any]:
    """A spec's fields as the state keeps them."""
    return {p.name: spec.field_text(p.name) if p.kind in LISTS else getattr(spec, p.name) for p in spec.params()}


def get(key: str, default: Any) -> Any:
    """The value of a URL name."""
    return _state().values.get(key, default)


def put(**values: Any) -> None:
    """Set values from a callback; the widgets of the next run show them."""
    state = _state()
    state.values |= values
    state.shown |= {prefix: values[prefix + "scheme"] for prefix in ("", B) if prefix + "scheme" in values}
    for key, value in values.items():
        if key in st.session_state:
            st.session_state[key] = value


def feed(key: str, value: Any, shape: object = None) -> None:
    """Call before the widget `key`: gives it the value, unless the browser already has it.

    Giving it again would overwrite what the reader did meanwhile; but a widget whose `shape` (bounds, options) has
    changed is a new one to Streamlit, which would start at its default.
    """
    state = _state()
    assert state.seen is not None
    same = key in state.kept and state.shapes.get(key) == shape
    if not same or key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value
    state.shapes[key] = shape
    state.values[key] = value
    state.seen.add(key)


def take(key: str, value: Any) -> None:
    """Call after the widget `key` with what it returned."""
    _state().values[key] = value


def show(texts: Mapping[str, str]) -> None:
    """Name what the URL of this run has to carry."""
    used = _state().used
    assert used is not None
    used.update(texts)


def end() -> None:
    """Call after the page: writes the URL. Not after an interrupted run, which has not seen all its widgets."""
    state = _state()
    assert state.used is not None
    assert state.seen is not None
    wanted = {name: [text] for name, text in state.used.items()}
    if wanted == {"scheme": [DEFAULT_SCHEME]}:
        wanted = {}
    _tell_unread(state)
    # the browser may still show what an earlier run wrote, or what Streamlit did not hand on
    if state.external or state.query != wanted or state.writes[-1:] != [wanted]:
        st.query_params.from_dict(wanted)
    state.writes = [*state.writes, wanted][-REMEMBERED_WRITES:]
    state.live = (state.page, frozenset(state.seen))


def page() -> str:
    """The id of the page that this run shows."""
    return _state().page


def reject(problem: Problem, used: str) -> None:
    """Tell that a value of this run's link does not go with what is shown; nothing if it came from no link."""
    state = _state()
    if state.external and problem.name in (state.query or {}):
        state.rejected += (Rejected(problem, used),)


def _tell_unread(state: _State) -> None:
    """What a link named and nothing of this run reads, such as the text where held-out text is shown."""
    assert state.seen is not None
    told = {r.problem.key for r in state.rejected} | {r.problem.name for r in state.rejected}
    for name, texts in (state.query or {}).items():
        if state.external and name not in state.seen | told | {GO}:
            reject(Problem(name, texts[0], "what goes with the other values", "nothing here reads it"), "nothing")


def rejected() -> tuple[Rejected, ...]:
    """What the last link had to have replaced."""
    return _state().rejected


def dismiss() -> None:
    """Forget what was rejected."""
    _state().rejected = ()


def link(changes: Mapping[str, str]) -> dict[str, str]:
    """The query of a link that shows the current state with `changes` made.

    A changed scheme drops the old one's parameters. The shared view stays; the page's own values do not.
    """
    used = _state().used or {}
    out = {n: t for n, t in used.items() if n in _names(SharedView)}
    for prefix in ("", B):
        mine = {n: t for n, t in used.items() if n.startswith(B) == bool(prefix) and _is_scheme_name(n)}
        if prefix + "scheme" in changes:
            mine = {}
        out |= mine
    return {GO: "1"} | out | {n: t for n, t in changes.items() if t != ""}


def _is_scheme_name(name: str) -> bool:
    name = name.removeprefix(B)
    return name == "scheme" or any(name in _names(spec) for spec in SCHEMES.values())
