"""Params -> widgets fed from the URL -> validated Specs. Every range, step and meaning comes from the Param."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar

import streamlit as st

from explorer import limits, state
from explorer.models import MODELS, query_of
from explorer.text import COMPARISONS, PRESETS, SCHEME_TEXT
from explorer.views import SharedView
from explorer.words import plain
from posenc_core import SCHEMES, Param, Problem, Spec, parse_query
from posenc_core.spec import LISTS, number_text

V = TypeVar("V", bound=Spec)
NO_SECOND = "off"
MAX_LIST = 16_000  # characters of a list: 512 numbers in full
CHOSEN = "_chosen"  # session key of what the sidebar says, set by the entry file


@dataclass(frozen=True)
class Chosen:
    """What the sidebar says: the scheme, a second one to compare with, the positions shown."""

    spec: Spec
    second: Spec | None
    seq_len: int

    @property
    def specs(self) -> list[Spec]:
        """One or two."""
        return [self.spec] if self.second is None else [self.spec, self.second]


def chosen() -> Chosen:
    """What the sidebar of this run says."""
    made = st.session_state[CHOSEN]
    assert isinstance(made, Chosen)
    return made


def label(name: str) -> str:
    """A field name as it stands on a widget: the name itself, readable and searchable."""
    return name.replace("_", " ")


def sidebar() -> Chosen:
    """Draw the shared controls and return what they say. Call inside `with st.sidebar`."""
    _presets()
    spec = _scheme("", "Scheme", list(SCHEMES))
    shared = View(SharedView)
    seq_len = shared.field("seq_len")
    second = _scheme(state.B, "Compare with", [NO_SECOND, *SCHEMES])
    for name, query in COMPARISONS.items():
        st.button(
            name, key=f"_compare_{name}", on_click=_apply, args=(query,), type="tertiary", icon=":material/compare:"
        )
    shared.close()
    assert spec is not None
    return Chosen(spec, second, seq_len)


def _presets() -> None:
    def picked() -> None:
        name = st.session_state["_preset"]
        st.session_state["_preset"] = None
        if name is not None:
            _apply(presets()[name])

    st.selectbox(
        "Preset", list(presets()), index=None, key="_preset", on_change=picked, placeholder="Type a model or scheme…",
        help="Public models by the positional fields of their config.json, and examples of the schemes.",
    )  # fmt: skip


@cache
def presets() -> dict[str, dict[str, str]]:
    """Public models that the app has schemes for, then examples of schemes: name -> query."""
    return {name: query for name in MODELS if (query := query_of(name)) is not None} | PRESETS


def _apply(query: Mapping[str, str]) -> None:
    """Set the scheme, and the second one if the query has one."""
    for prefix in ("", state.B):
        mine = {k.removeprefix(prefix): v for k, v in query.items() if k.startswith(state.B) == bool(prefix)}
        if mine:
            spec, _ = parse_query(mine)
            state.put(**{prefix + k: v for k, v in ({"scheme": spec.scheme} | state.field_values(spec)).items()})


def _scheme(prefix: str, title: str, options: Sequence[str]) -> Spec | None:
    key = prefix + "scheme"
    scheme = choice(key, title, options, state.get(key, options[0] if prefix else state.DEFAULT_SCHEME),
                    names={s: t.name for s, t in SCHEME_TEXT.items()} | {NO_SECOND: "nothing"})  # fmt: skip
    state.enter_scheme(prefix, scheme)
    if scheme == NO_SECOND:
        return None
    spec_type = SCHEMES[scheme]
    texts: dict[str, str] = {}
    values: dict[str, Any] = {}
    place = st.container()
    fine = [p for p in spec_type.params() if p.advanced]
    rest = st.expander("Fine points", icon=":material/tune:") if fine else place
    for p in map(limits.shown, spec_type.params()):
        if p.when is not None and values.get(p.when[0]) not in p.when[1]:
            continue
        with rest if p.advanced else place:
            values[p.name] = param_widget(p, prefix + p.name)
        texts[p.name] = as_text(values[p.name])
    spec, problems = parse_query({"scheme": scheme} | texts)
    spec, over = limits.limited(spec)
    problems += over
    for problem in problems:
        shown = (spec.field_text(problem.key) if problem.key in texts else "") or "none"
        st.error(plain(f"{problem}. Shown instead: {shown}."), icon=":material/error:")
    state.show({prefix + n: t for n, t in spec.to_query().items()})
    return spec


def as_text(value: Any) -> str:
    """A widget's value as the URL writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else number_text(value)


class View(Generic[V]):
    """The fields of a page's own view; `field` draws one, `close` puts them into the URL and returns the view."""

    def __init__(self, view: type[V]) -> None:
        self.view, self.values = view, dict[str, Any]()

    def field(self, name: str, maximum: float | None = None, options: Sequence[str] = ()) -> Any:
        """Draw a field's widget where the caller stands; `maximum` may be less than the field's own."""
        p = self.view.param(name)
        self.values[name] = param_widget(p, name, maximum=maximum, options=options)
        return self.values[name]

    def close(self) -> V:
        """The validated view."""
        made = self.view(**self.values)
        state.show(made.to_query())
        return made


def legal(p: Param, value: Any, maximum: float | None = None) -> Any:
    """The nearest legal value: a number clamped, anything else its default."""
    if p.kind == "choice":
        return value if value in p.choices else p.default
    if p.kind in ("int", "float") and isinstance(value, int | float) and not isinstance(value, bool):
        assert p.minimum is not None
        assert p.maximum is not None
        high = p.maximum if maximum is None else min(p.maximum, maximum)
        value = min(max(value, p.minimum), high)
        return int(value // (p.step or 1) * (p.step or 1)) if p.kind == "int" else float(value)
    kind = str if p.kind in ("text", *LISTS) else bool
    return value if isinstance(value, kind) else p.default


def param_widget(p: Param, key: str, *, maximum: float | None = None, options: Sequence[str] = ()) -> Any:
    """Draw the widget of a field and return its value; lists come back as the text in the box."""
    title, help_text = label(p.name), f"`{key}` · {p.meaning}. Legal: {p.legal}."
    default = field_default(p)
    asked = state.get(key, default)
    value = legal(p, asked, maximum) if isinstance(asked, str | int | float) else default
    if value != asked:
        high = p.maximum if p.maximum is None or maximum is None else min(p.maximum, maximum)
        state.reject(Problem(key, asked, replace(p, maximum=high).legal, "with the other values"), as_text(value))
    if p.kind == "choice":
        return choice(key, title, options or p.choices, value, help_text=help_text)
    if p.kind in LISTS:
        value = value if isinstance(value, str) else default
        state.feed(key, value)
        made: Any = st.text_input(title, key=key, help=help_text, max_chars=MAX_LIST)
    elif p.kind == "text":
        state.feed(key, value)
        made = st.text_area(title, key=key, help=help_text, max_chars=p.max_length)
    elif p.kind == "bool":
        state.feed(key, value)
        made = st.toggle(title, key=key, help=help_text)
    else:
        made = _number(p, key, title, help_text, value, maximum)
    state.take(key, made)
    return made


def field_default(p: Param) -> Any:
    """A field's default as the state keeps it."""
    if p.kind in ("ints", "floats"):
        return ",".join(map(number_text, p.default))
    return SCHEMES["hybrid"]().field_text(p.name) if p.kind == "layers" else p.default


def _number(p: Param, key: str, title: str, help_text: str, value: Any, maximum: float | None) -> Any:
    number = int if p.kind == "int" else float
    assert p.minimum is not None
    assert p.maximum is not None
    high = number(p.maximum if maximum is None else min(p.maximum, maximum))
    if number(p.minimum) >= high:  # nothing to choose
        return number(p.minimum)
    if p.ticks:
        stops = sorted({number(t) for t in p.ticks if p.minimum <= t <= high} | {value})
        if len(stops) > 1:
            state.feed(key, value, tuple(stops))
            return st.select_slider(title, stops, key=key, help=help_text, format_func=shown_number)
    state.feed(key, value, high)
    return st.slider(title, number(p.minimum), high, step=number(p.step or 1), key=key, help=help_text)


def shown_number(value: float) -> str:
    """A number on a slider: 500,000."""
    return f"{value:,.10g}"


def choice(
    key: str, title: str, options: Sequence[str], value: str, *, names: Mapping[str, str] | None = None,
    help_text: str | None = None,
) -> str:  # fmt: skip
    """A choice of few as buttons side by side, of many as a list."""
    state.feed(key, value if value in options else options[0], tuple(options))
    names = names or {}
    made: str | None
    if len(options) <= 4 and not names:
        made = st.segmented_control(title, options, key=key, help=help_text, required=True)
    else:
        made = st.selectbox(title, options, key=key, help=help_text, format_func=lambda s: names.get(s, s))
    result = made if made is not None and made in options else options[0]
    state.take(key, result)
    return result
