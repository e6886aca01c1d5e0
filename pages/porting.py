"""Porting: why a port gives wrong logits. Pair layouts, rounding, a fingerprint of its numbers, two specs."""

from __future__ import annotations

import streamlit as st

from explorer import show, state, widgets
from explorer.charts import bars, curves, wiring
from explorer.charts.palette import TRAINING_LENGTH_COLOUR
from explorer.compute import porting as compute
from explorer.pictures import porting as pictures
from explorer.views import MAX_TEXT, PortingView
from posenc_core.fingerprint import Fingerprint
from posenc_core.pasted import MAX_CHARACTERS
from posenc_core.porting import mistakes

PLACEHOLDER = "inv_freq = […]\nor  cos = [[…]]  sin = [[…]]  positions = […]\nor  x = […]  position = 7  rotated = […]"


def layout(view: widgets.View[PortingView], sides: pictures.Sides, place: st.delta_generator.DeltaGenerator) -> None:
    """Which features make a pair, and the permutation that turns one layout into the other."""
    model = sides.model
    left, right = st.columns(2)
    with left:
        kv_heads = view.field("kv_heads")
    with right:
        queries = view.field("queries_per_key")
    view.close()
    with place:
        show.numbers(pictures.layout_numbers(model, kv_heads, queries))
    made = pictures.wirings(model, sides.port)
    for column, which, one in zip(st.columns(2), ("model", "port"), made, strict=True):
        with column:
            st.caption(f"{which}: {one.name}")
            show.chart(
                wiring.wiring, one.data, name=f"wiring_{which}", alt_text=f"Pairs of features, {one.name}",
                d_head=one.d_head, widest=max(m.widest for m in made),
            )  # fmt: skip
    drawn = "" if made[0].every == 1 else f" Drawn with {made[0].d_head} of {model.d_head} features, in proportion."
    show.below(
        "An arc joins the two features of a pair, from the fastest (blue) to the slowest (amber); grey features do not "
        f"turn.{drawn}",
        pictures.WIRING_TRIES,
    )
    rows, d_head = pictures.moves_of(model)
    show.chart(wiring.moves, rows, name="moves", alt_text="Where each row of a head goes", d_head=d_head)
    show.below(
        f"The permutation of every head's rows of W_q and W_k, here from {pictures.LAYOUTS[model.layout]}: "
        f"{pictures.moved_rows(model)} of {model.d_head} move, and with them the entries of biases and of learned "
        "norms of q and k. The way back is the inverse; W_v and W_o stay.",
        pictures.MOVES_TRIES,
    )
    proof = pictures.proof_bars(model, kv_heads, queries)
    show.chart(
        bars.bars, proof.data, name="proof", alt_text="Score differences with and without the permutation",
        value_title="largest score difference", name_title="", series=proof.series, log=True, domain=proof.domain,
        names=proof.names, labels=True, ticks=(1e-16, 1e-12, 1e-8, 1e-4, 1),
    )  # fmt: skip
    show.below(pictures.seen_proof(model, kv_heads, queries), pictures.PROOF_TRIES)
    st.code(pictures.code(model, kv_heads, queries), language="python", height=320)
    st.markdown("#### The four kinds of wiring")
    for column, one in zip(st.columns(4), pictures.four(), strict=True):
        with column:
            st.caption(one.name)
            show.chart(
                wiring.wiring, one.data, name=f"kind_{one.name[:20]}", alt_text=f"Pairs of features, {one.name}",
                d_head=one.d_head, widest=float(pictures.SMALL // 2), height=110,
            )  # fmt: skip
    show.below(
        "Partial rotation pairs within the first features; p-RoPE keeps the pairs of the head and stops the slow ones.",
        pictures.KIND_TRIES,
    )


def precision(view: widgets.View[PortingView], sides: pictures.Sides, place: st.delta_generator.DeltaGenerator) -> None:
    """What a number format does to positions and frequencies."""
    model = sides.model
    columns = st.columns([5, 3, 4, 4])
    with columns[0]:
        number_format = view.field("number_format")
    with columns[1]:
        rounded = view.field("rounded")
    with columns[2]:
        longest = view.field("longest")
    with columns[3]:
        position = view.field("checked_position")
    view.close()
    with place:
        show.numbers(pictures.precision_numbers(model, number_format, rounded, position))
    show.picture(
        pictures.precision_map(model, number_format, rounded, longest, position), name="precision",
        alt_text=f"Phase error of every pair in {number_format}", height=380,
    )  # fmt: skip
    show.below(pictures.seen_map(model, number_format, rounded, longest), pictures.PRECISION_TRIES)
    lines, dashed = pictures.precision_lines(model, number_format, rounded, longest)
    show.chart(
        curves.curves, lines.data, name="worst", alt_text="Largest phase error against the position",
        x_title="position", y_title=lines.y_title, series=lines.series, x_log=True, y_log=True, dashed=dashed,
        x_domain=(1, longest), y_domain=(pictures.FLOOR, 4.0), legend_columns=2, height=320,
    )  # fmt: skip
    show.below(pictures.seen_lines(model, number_format, rounded), pictures.LINE_TRIES)


def paste_box(view: widgets.View[PortingView]) -> str:
    """The box for pasted numbers: longer than what an address can carry, so only a short text becomes a link."""
    p = PortingView.param("pasted")
    asked = state.get("pasted", p.default)
    state.feed("pasted", asked if isinstance(asked, str) else p.default)
    text = st.text_area(
        "pasted", key="pasted", height=210, max_chars=MAX_CHARACTERS,
        placeholder=PLACEHOLDER,
        help=f"`pasted` · {p.meaning}. Prints of torch and numpy, Python lists, JSON, CSV; at most {MAX_CHARACTERS:,} "
        f"characters, of which up to {MAX_TEXT:,} are kept in the address.",
    )  # fmt: skip
    state.take("pasted", text)
    view.values["pasted"] = text if len(text) <= MAX_TEXT else ""
    return text


def fingerprint(
    view: widgets.View[PortingView], sides: pictures.Sides, place: st.delta_generator.DeltaGenerator
) -> None:
    """Who made these numbers."""
    model = sides.model
    left, right = st.columns([3, 2])
    with left:
        text = paste_box(view)
    with right:
        kind = view.field("numbers_are")
        st.caption("Try with an example:")
        for name, sample in pictures.samples(model).items():
            st.button(name, key=f"_sample_{name}", on_click=state.put, kwargs={"pasted": sample, "numbers_are": "auto"},
                      icon=":material/content_paste:", type="tertiary")  # fmt: skip
    view.close()
    if len(text) > MAX_TEXT:
        st.caption(f"These {len(text):,} characters are not in the address: a link to this page leaves them out.")
    if not text.strip():
        st.caption("Nothing is pasted; shown is the inv_freq of the sidebar's scheme in 4 digits.")
        text, kind = pictures.sample_inv_freq(model), "auto"
    found = compute.fingerprints(text, kind, model)
    if not isinstance(found, Fingerprint):
        with place:
            show.numbers(pictures.fingerprint_numbers(None))
        st.error("These numbers cannot be read:\n" + "\n".join(f"- {show.plain(str(p))}" for p in found),
                 icon=":material/error:")  # fmt: skip
        return
    with place:
        show.numbers(pictures.fingerprint_numbers(found))
    st.markdown(f"##### {show.plain(pictures.answer(found))}")
    st.markdown(show.plain(pictures.seen_answer(found, model)))
    ratio = pictures.ratio_lines(found, model)
    left, right = st.columns(2) if ratio is not None else (st.container(), st.container())
    with left:
        lines = pictures.misfit_lines(found, model)
        show.chart(
            curves.curves, lines.data, name="misfit", alt_text="Difference over what is allowed, for every pair",
            x_title="pair (high to low frequency)", y_title=lines.y_title, series=lines.series, y_log=True,
            legend_columns=1, height=300,
        )  # fmt: skip
        show.below(
            "A candidate fits where its line stays below the dashed one: digits and number format explain the rest.",
            pictures.MISFIT_TRIES,
        )
    if ratio is not None:
        with right:
            show.chart(
                curves.curves, ratio.data, name="ratio", alt_text="Measured frequencies over the sidebar's",
                x_title="pair (high to low frequency)", y_title=ratio.y_title, series=ratio.series, points=True,
                y_domain=pictures.ratio_domain(ratio), height=300,
            )  # fmt: skip
            show.below(pictures.seen_ratio(found, model), pictures.RATIO_TRIES)
    st.dataframe(pictures.table(found), column_config={"candidate": st.column_config.Column(width=400)})
    show.below("Ranked: what fits comes first, the simplest before the others.", pictures.FINGERPRINT_TRIES)


def compare(view: widgets.View[PortingView], sides: pictures.Sides, place: st.delta_generator.DeltaGenerator) -> None:
    """Where two specs part."""
    left, right = st.columns(2)
    mistake = "layout"
    with left:
        if sides.port is None:
            mistake = view.field("mistake", options=list(mistakes(sides.model)))
        else:
            st.caption("The model is the first scheme of the sidebar, the port is the second.")
    with right:
        longest = view.field("longest", maximum=compute.SEARCHED)
    view.close()
    made = pictures.compared(sides.model, sides.port, mistake)
    with place:
        show.numbers(pictures.compare_numbers(made, longest))
    st.caption(show.plain(made.names))
    if sides.layers is not None:
        st.markdown(pictures.layer_sentence(sides.layers))
    left, right = st.columns(2)
    with left:
        ratio, wide = pictures.ratio_pairs(made, longest)
        show.chart(
            curves.curves, ratio.data, name="pairs", alt_text="Frequency of the port over that of the model",
            x_title="pair (high to low frequency)", y_title=ratio.y_title, series=ratio.series, y_log=wide, points=True,
            height=320,
        )  # fmt: skip
        show.below(pictures.seen_pairs(made, longest), pictures.COMPARE_TRIES)
    with right:
        if not pictures.same_head(made):
            st.info(
                f"Heads of {made.model.d_head} and {made.port.d_head} features take no common queries and keys: scores "
                "cannot be compared.", icon=":material/straighten:",
            )  # fmt: skip
            return
        scores = pictures.score_lines(made, longest)
        show.chart(
            curves.curves, scores.data, name="score_difference", alt_text="Relative score difference against distance",
            x_title="distance (positions)", y_title=scores.y_title, series=scores.series, x_log=True, y_log=True,
            x_domain=(1, longest), guide_colour=TRAINING_LENGTH_COLOUR, height=320,
        )  # fmt: skip
        show.below(pictures.seen_scores(made, longest), pictures.SCORE_TRIES)


chosen = widgets.chosen()
view = widgets.View(PortingView)
show.heading("Porting", chosen, "A port gives wrong logits: find the pair and the position where it leaves the model.")
sides = pictures.sides(chosen.specs)
part = view.field("part")
for note in sides.notes:
    st.caption(show.plain(note))
numbers = st.container()
{"layout": layout, "precision": precision, "fingerprint": fingerprint, "compare": compare}[part](view, sides, numbers)
