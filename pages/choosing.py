"""Choosing: what a model is wanted for, and the schemes ranked for it, every reason with what measured it."""

import streamlit as st

from explorer import show, state, widgets
from explorer.charts import bars
from explorer.compute import claims as compute
from explorer.pictures import choosing as pictures
from explorer.pictures import claims as claim_pictures
from explorer.views import ChoosingView
from posenc_core.choosing import Reason


def links(reason: Reason) -> None:
    """To what measured it, and to the claim that it bears on."""
    pages = st.session_state[show.PAGES]
    if not reason.page and reason.claim is None:
        return
    with st.container(horizontal=True, gap="medium"):
        if reason.page:
            page = pages[reason.page]
            st.page_link(
                page, label=f"See it: {page.title}", icon=":material/science:",
                query_params=claim_pictures.experiment(reason.query, state.link({})),
            )  # fmt: skip
        if reason.claim is not None:
            st.page_link(
                pages["claims"], label=f"Claim {reason.claim}: {compute.BY_NUMBER[reason.claim].name}",
                icon=":material/fact_check:", query_params=state.link({"claim": str(reason.claim)}),
            )  # fmt: skip


chosen = widgets.chosen()
view = widgets.View(ChoosingView)
show.titled("Choosing", chosen, "Say what a model is wanted for; the schemes are ranked by what the lab measured.")
numbers, names = st.container(), [p.name for p in ChoosingView.params()]
for row in (names[:3], names[3:]):  # rows, which a phone shows one below the other
    for column, name in zip(st.columns(3), row, strict=True):
        with column:
            view.field(name)
need = view.close()
made = compute.ranked(need)
with numbers:
    show.numbers(pictures.key_numbers(need, made.choices))
frame = pictures.bars(made.choices, chosen.specs)
show.chart(
    bars.bars, frame, name="ranking", alt_text="The schemes, best first", name_title="scheme",
    value_title=pictures.axis(need), series=pictures.SERIES,
    domain=pictures.DOMAIN, ticks=pictures.TICKS, names=len(frame), labels=True,
)  # fmt: skip
show.below(pictures.verdict(need, made.choices), pictures.tries(need))
st.caption(show.plain(pictures.meaning(need)))
if told := pictures.words(frame):
    st.caption(show.plain(told))
st.caption(show.plain(claim_pictures.recorded(made.results, made.runs, made.here)))

st.markdown("#### Why")
for index, choice in enumerate(made.choices, 1):
    with st.expander(pictures.title(index, choice), expanded=index == 1):
        for reason in choice.reasons:
            st.markdown(pictures.told(reason))
            links(reason)
show.formulae(chosen)
