"""Claims: what articles and papers say about positions, each measured, with a verdict that follows from the numbers."""

import streamlit as st

from explorer import scroll, show, state, widgets
from explorer.charts import curves, verdicts
from explorer.charts.palette import TRAINING_LENGTH_COLOUR
from explorer.compute import claims as compute
from explorer.compute.claims import Judged
from explorer.pictures import claims as pictures
from explorer.views import ClaimsView
from posenc_core.lab import MEASURED


def chosen_claim(view: widgets.View[ClaimsView]) -> int:
    """The list of claims; 0 for none."""
    names = {0: "none"} | {number: f"{number}. {c.sentence}" for number, c in compute.BY_NUMBER.items()}
    p = ClaimsView.param("claim")
    asked = state.get("claim", p.default)
    value = asked if asked in names else p.default
    if value != asked:
        state.reject(pictures.no_claim(asked, list(compute.BY_NUMBER)), str(value))
    state.feed("claim", value)
    made = st.selectbox(
        "claim", list(names), key="claim", format_func=names.__getitem__, help=f"`claim` · {p.meaning}."
    )
    state.take("claim", made)
    view.values["claim"] = made
    return made


def words_field(view: widgets.View[ClaimsView]) -> None:
    """A box of one line; `widgets` makes boxes three lines high."""
    p = ClaimsView.param("words")
    asked = state.get("words", p.default)
    state.feed("words", asked if isinstance(asked, str) else p.default)
    made = st.text_input(
        "words", key="words", help=f"`words` · {p.meaning}. Legal: {p.legal}.", max_chars=p.max_length,
        placeholder="decay, slopes, cache …",
    )  # fmt: skip
    state.take("words", made)
    view.values["words"] = made


def experiment_link(judged: Judged) -> None:
    """Opens the page that shows what was measured, or the main part of it."""
    page = st.session_state[show.PAGES][judged.claim.page]
    st.page_link(
        page, label=f"Open the experiment: {page.title}", icon=":material/science:",
        query_params=pictures.experiment(judged.claim.query, state.link({})),
    )  # fmt: skip


def other_experiments(judged: Judged) -> None:
    """Opens each of the settings that a claim is measured by."""
    main, *others = pictures.experiments(judged)
    if not others:
        return
    st.caption(f"That is {show.plain(main[0])}. The other numbers are measured in:")
    page = st.session_state[show.PAGES][judged.claim.page]
    with st.container(horizontal=True, gap="small"):
        for name, query in others:
            st.page_link(
                page, label=show.plain(name), icon=":material/science:",
                query_params=pictures.experiment(query, state.link({})),
            )  # fmt: skip


def open_cell() -> None:
    """A click on a cell opens its claim."""
    for cell in st.session_state[cells_key()].selection.get(verdicts.CELLS, []):
        state.put(claim=int(cell["number"]))


def cells_key() -> str:
    """A chart of its own for each claim that is open: a cell that was clicked can be clicked again after closing."""
    return f"_cells_{state.get('claim', 0)}"


def claim_link(label: str, claim: int, icon: str) -> None:
    """Shows another claim large, or none; the filters stay."""
    query = state.link(wanted.replace(claim=claim).to_query())
    st.page_link(st.session_state[show.PAGES]["claims"], label=label, icon=icon, query_params=query)


def everything(key: str) -> None:
    """Takes the filters away. Not a link, since a link that leaves a text out keeps it."""
    unfiltered = {p.name: p.default for p in ClaimsView.params() if p.name != "claim"}
    st.button("All claims", key=key, icon=":material/filter_alt_off:", on_click=state.put, kwargs=unfiltered)


def row(judged: Judged) -> None:
    """A claim as one row: what is said, what was measured, the verdict, and links."""
    claim = judged.claim
    with st.container(border=True):
        left, right = st.columns([3, 2])
        left.markdown(pictures.statement(claim))
        right.markdown(pictures.findings(judged))
        with left, st.container(horizontal=True, gap="medium"):
            experiment_link(judged)
            claim_link("All of it", claim.number, ":material/open_in_full:")


def large(judged: Judged) -> None:
    """A claim with all its numbers, its rule, its picture and where the numbers come from."""
    claim = judged.claim
    st.markdown(f"### {claim.number}. {show.plain(claim.sentence)}")
    st.markdown(pictures.verdict_line(judged))
    panels = pictures.panels(judged)
    drawn, told = st.columns([3, 2]) if panels else (None, st.container())
    with told:
        st.markdown(pictures.details(judged))
        experiment_link(judged)
        other_experiments(judged)
        with st.container(horizontal=True, gap="medium"):
            for label, other in pictures.neighbours(judged, list(compute.BY_NUMBER)):
                claim_link(label, other, ":material/arrow_forward:")
            claim_link("Close", 0, ":material/close:")
    if drawn is not None:
        for panel in panels:
            with drawn:
                show.chart(
                    curves.curves, panel.lines.data, name=f"claim_{claim.number}_{panel.task}",
                    alt_text=f"{panel.lines.y_title} by training lengths, task {panel.task}",
                    x_title="training lengths", y_title=panel.lines.y_title, series=panel.lines.series, x_log=True,
                    x_ticks=MEASURED, x_domain=(0.9, 18.0), y_domain=pictures.axis(panel.task), bands=True,
                    points=True, dashed=panel.dashed, low_high=("lowest seed", "highest seed"),
                    guide_colour=TRAINING_LENGTH_COLOUR, legend_columns=panel.columns, height=panel.height,
                )  # fmt: skip
                st.caption(pictures.seen_panel(panel))
    st.caption(show.plain(pictures.origin(judged)))


chosen = widgets.chosen()
view = widgets.View(ClaimsView)
show.titled("Claims", chosen, "What articles and papers repeat about positions, each measured. Open any of them.")
top, picture, filters = st.container(), st.container(), st.columns([3, 2, 2, 2, 2])

with filters[0]:
    number = chosen_claim(view)
with filters[1]:
    view.field("verdict")
with filters[2]:
    view.field("source_kind")
with filters[3]:
    view.field("about")
with filters[4]:
    words_field(view)
wanted = view.close()
judged = compute.judged()
fits = pictures.fitting(judged, wanted, chosen.specs)

with top:
    scroll.to(str(number or ""))
    if number:
        with st.container(border=True):
            large(compute.judgement_of(number))
with picture:
    show.numbers(pictures.key_numbers(judged))
    cells, rows = pictures.cells(judged, fits, number)
    show.chart(
        verdicts.verdicts, cells, name="claims", alt_text="Every claim with its verdict", series=pictures.SERIES,
        rows=rows, key=cells_key(), on_select=open_cell,
    )  # fmt: skip
    show.below(pictures.summary(judged), pictures.tries(judged, wanted))
    if wanted != ClaimsView(claim=number):
        everything("_all_above")

with st.container(horizontal=True, vertical_alignment="center"):
    st.markdown(f"#### {pictures.how_many(fits, judged)}")
    st.download_button(
        "Table as CSV", data=lambda: pictures.table(fits).to_csv(index=False), file_name="claims.csv", mime="text/csv",
        icon=":material/download:", on_click="ignore", type="tertiary",
    )  # fmt: skip
for each in fits:
    row(each)
if not fits:
    st.markdown("No claim fits all of the filters.")
    everything("_all_below")
show.formulae(chosen)
