"""The skeleton that every page shares: title with formula, key numbers, pictures with a sentence each, links to try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from explorer import state
from explorer.charts import heatmap as heatmaps
from explorer.charts.heatmap import Heatmap
from explorer.heatmap_view import heatmap as draw_heatmap
from explorer.scaling_text import SCALING_TEXT, scaling_note
from explorer.text import SCHEME_TEXT, Try, formula_of
from explorer.widgets import Chosen
from explorer.words import plain
from posenc_core.claims_table import CLAIMS
from posenc_core.schemes.rope import RopeSpec

MOST_LINES = 20  # of a notice
FIRST_STAND_IN = 0xE000  # a private character that no name holds
PAGES = "_pages"  # session key: id -> st.Page, set by the entry file so that links find their page


def heading(title: str, chosen: Chosen, lead: str = "") -> None:
    """Page title with the scheme's name, a lead, and the formula with its paper."""
    titled(title, chosen, lead)
    formulae(chosen)


def titled(title: str, chosen: Chosen, lead: str = "") -> None:
    """Page title with the scheme's name, and a lead."""
    names = " against ".join(SCHEME_TEXT[s.scheme].name for s in chosen.specs)
    st.markdown(f"## {title}: {names}")
    if lead:
        st.markdown(lead)


def formulae(chosen: Chosen) -> None:
    """The schemes' formulae with their papers."""
    for column, spec in zip(st.columns(len(chosen.specs)), chosen.specs, strict=True):
        text = SCHEME_TEXT[spec.scheme]
        with column:
            st.latex(formula_of(spec))
            scaling = getattr(spec, "scaling", "none")
            scaled = f" Scaling: {SCALING_TEXT[scaling][1]}." if scaling != "none" else ""
            if isinstance(spec, RopeSpec):
                scaled += " " + scaling_note(spec, chosen.seq_len)
            st.caption(f"{text.sentence} {text.paper.markdown}.{scaled}")


def notice() -> None:
    """What a link asked for and could not get, once, in full."""
    rejected = state.rejected()
    if not rejected:
        return
    lines = [f"- {plain(f'{r.problem}. Used instead: {r.used}.')}" for r in rejected[:MOST_LINES]]
    if len(rejected) > MOST_LINES:
        lines.append(f"- and {len(rejected) - MOST_LINES:,} more")
    st.warning("Some values of this link are not legal:\n" + "\n".join(lines), icon=":material/link_off:")
    st.button("Understood", on_click=state.dismiss, key="_dismiss")


def numbers(items: Sequence[tuple[str, str, str]]) -> None:
    """Three to five key numbers: name, value, meaning."""
    with st.container(horizontal=True, gap="medium"):
        for name, value, meaning in items:
            st.metric(name, value, help=meaning, width="content")


def chart(
    make: Callable[..., alt.TopLevelMixin], data: pd.DataFrame, *, name: str, alt_text: str, **options: Any
) -> None:
    """Draw a chart of explorer.charts and offer it as a file. `make` must not look into the data.

    Options are those of `make`; on_select is called once what a reader's click selects stands in the session at `key`.
    """
    select = {n: options.pop(n) for n in ("key", "on_select") if n in options}
    # names of series hold parameters and change with every step: they are put into the template afterwards
    stands_for = {chr(FIRST_STAND_IN + i): name for i, (name, _) in enumerate(options.get("series", ()))}
    stand_in = {name: mark for mark, name in stands_for.items()}
    known = _frozen({k: _renamed(v, stand_in) for k, v in options.items()})
    template = _template(make, f"{make.__module__}.{make.__qualname__}", tuple(data.columns), known)
    drawn = _renamed(template, stands_for)
    st.vega_lite_chart(data, drawn, width="stretch", alt=alt_text, **select)
    _files(
        name,
        png=lambda: _to_png(make(data, **options)),
        svg=lambda: _to_svg(make(data, **options)),
        csv=lambda: data.to_csv(index=False),
    )


def picture(
    panels: Heatmap | Sequence[Heatmap], *, name: str, alt_text: str, height: int = 360, columns: int | None = None,
    selected: int | None = None, on_click: Callable[[int, float, float], None] | None = None,
) -> None:  # fmt: skip
    """Draw one map, or a grid of small ones, and offer it as a file."""
    draw_heatmap(
        panels, key=f"map_{name}", height=height, columns=columns, selected=selected, on_click=on_click, alt=alt_text
    )
    single = panels if isinstance(panels, Heatmap) else panels[selected or 0]
    _files(
        name,
        png=lambda: heatmaps.to_png(single),
        svg=lambda: heatmaps.to_svg(single),
        csv=lambda: heatmaps.to_csv(single),
    )


def below(seen: str, tries: Sequence[Try] = ()) -> None:
    """One sentence on what is seen, and links to try."""
    st.markdown(seen)
    for item in tries:
        page = st.session_state[PAGES][state.page() if item.page is None else item.page]
        st.page_link(
            page,
            label=f"**Try** {item.label}",
            icon=":material/arrow_forward:",
            query_params=state.link(item.changes),
        )
        if item.then:
            st.caption(item.then)


def claims_here() -> None:
    """Links to the claims that the page shows. The Lab page tells those of what it measured itself."""
    found = [claim for claim in CLAIMS if claim.page == state.page() != "lab"]
    if found:
        st.markdown("Claims about what is shown here:")
        with st.container(horizontal=True):
            for claim in found:
                st.page_link(
                    st.session_state[PAGES]["claims"], label=f"{claim.number} · {plain(claim.name)}",
                    icon=":material/fact_check:", query_params=state.link({"claim": str(claim.number)}),
                )  # fmt: skip


def _files(name: str, **makers: Callable[[], bytes | str]) -> None:
    mime = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv"}
    with st.popover("Save", icon=":material/download:", type="tertiary"):
        for kind, make in makers.items():
            st.download_button(
                kind.upper(), data=make, file_name=f"{name}.{kind}", mime=mime[kind], key=f"save_{name}_{kind}",
                on_click="ignore", type="tertiary",
            )  # fmt: skip


def _to_png(made: alt.TopLevelMixin) -> bytes:
    import vl_convert  # only when a reader saves: it costs 100 ms to import

    return vl_convert.vegalite_to_png(_sized(made), scale=2)


def _to_svg(made: alt.TopLevelMixin) -> str:
    import vl_convert

    return vl_convert.vegalite_to_svg(_sized(made))


def _sized(made: alt.TopLevelMixin) -> dict[str, Any]:
    return {"width": 720, "background": "white"} | made.to_dict()


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A copy with every text that is a key of `names` replaced, however deep."""
    if isinstance(value, dict):
        return {k: _renamed(v, names) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed(v, names) for v in value)
    return names.get(value, value) if isinstance(value, str) else value


def _frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(options.items()))


@st.cache_resource(max_entries=512)
def _template(
    _make: Callable[..., alt.TopLevelMixin], name: str, columns: tuple[str, ...], options: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    """A chart's specification without data: making one costs 40 ms, sending data to a known one 2 ms."""
    spec = _make(pd.DataFrame(columns=list(columns)), **dict(options)).to_dict()
    spec.pop("data", None)
    spec.pop("datasets", None)
    return spec
