"""Attention: a trained toy model reads the reader's own text."""

import streamlit as st

from explorer import show, state, widgets
from explorer.charts import bars, curves
from explorer.charts.palette import TRAINING_LENGTH_COLOUR
from explorer.pictures import attention as pictures
from explorer.views import SAMPLE, AttentionView
from posenc_core import Spec


def draw(specs: list[Spec], view: widgets.View[AttentionView]) -> None:
    """Everything below the heading, for schemes that have trained weights."""
    numbers = st.container()

    left, right = st.columns([2, 1])
    with left:
        source = view.field("source")
        text = view.field("text") if source == "text" else SAMPLE
        length = view.field("length") if source == "held_out" else 0
    with right:
        order = view.field("order")
        shift = view.field("shift")
    read = pictures.reading(source, text, length, order)
    sides = pictures.sides(specs, read.data, shift)
    heads = sides[0].run.small.shape[1]
    st.caption(show.plain(" ".join(pictures.weights_sentence(side.fit) for side in sides)))
    for note in filter(None, [read.notice, *pictures.notes(sides, shift)]):
        st.info(show.plain(note))
    with numbers:
        show.numbers(pictures.key_numbers(sides, read, shift))

    def choose_head(panel: int, _x: float, _y: float) -> None:
        """A click on a thumbnail."""
        state.put(layer=panel // heads, head=panel % heads)

    def choose_query(_panel: int, _x: float, y: float) -> None:
        """A click on a large map."""
        state.put(query=int(y))

    strips = [st.container() for _ in sides]
    controls = st.columns(3)
    with controls[0]:
        layer = view.field("layer")
    with controls[1]:
        head = view.field("head")
    with controls[2]:
        query = view.field("query", maximum=len(read.data) - 1)
    query = pictures.marked_query(sides, query)
    made = view.close()

    for index, (place, side) in enumerate(zip(strips, sides, strict=True)):
        with place:
            if len(sides) > 1:
                st.markdown(f"**{show.plain(side.name)}**")
            show.picture(
                pictures.thumbnails(side, read), name=f"heads_{index}", height=150, columns=8,
                selected=layer * heads + head, on_click=choose_head,
                alt_text=f"Attention of {side.name}: choose a head",
            )  # fmt: skip
    large = pictures.large_maps(sides, read, layer, head, query)
    for index, (column, side, picture) in enumerate(zip(st.columns(len(sides)), sides, large, strict=True)):
        with column:
            if len(sides) > 1:
                st.markdown(f"**{show.plain(side.name)}**")
            show.picture(
                picture, name=f"attention_{index}", height=pictures.map_height(len(read.data)), on_click=choose_query,
                alt_text=f"Attention weights of {side.name}, layer {layer}, head {head}",
            )  # fmt: skip
    show.below("Each row is a token looking back; click a row to see what it guesses.", pictures.map_tries(specs, made))
    if len(sides) == 2:
        show.picture(
            pictures.difference_map(large, sides), name="difference", alt_text="First minus second", height=420
        )
        show.below("First minus second: neutral where both look at the same tokens.")

    left, right = st.columns([3, 2])
    with left:
        lines = pictures.loss_lines(sides, read)
        if lines is not None:
            show.chart(
                curves.curves, lines.data, name="loss", alt_text="Loss of each token", x_title="token", note="token",
                y_title=lines.y_title, series=lines.series, guide_colour=TRAINING_LENGTH_COLOUR,
                points=len(read.data) < 65,
            )  # fmt: skip
        show.below(show.plain(pictures.loss_sentence(sides, read)), [pictures.shuffle_try(made)])
    with right:
        guesses = pictures.guesses(sides, read, query)
        if guesses.names:
            show.chart(
                bars.bars, guesses.data, name="guesses", alt_text="Likeliest next bytes", value_title="probability",
                name_title="next byte", series=tuple((s.name, s.colour) for s in sides), names=guesses.names,
                domain=(0.0, 1.0), labels=True,
            )  # fmt: skip
        show.below(show.plain(guesses.sentence))

    st.markdown("#### Past the training length")
    lines = pictures.held_out_lines(sides)
    show.chart(
        curves.curves, lines.data, name="held_out", alt_text="Held-out loss by position", x_title="position",
        x_domain=(0, pictures.MAX_TOKENS), y_title=lines.y_title, series=lines.series, dashed=lines.dashed,
        guide_colour=TRAINING_LENGTH_COLOUR,
    )  # fmt: skip
    show.below(show.plain(pictures.held_out_sentence(sides)), [pictures.past_try(specs[0], made)])
    for column, quantity in zip(st.columns(2), ("entropy", "distance"), strict=True):
        with column:
            lines = pictures.drift_lines(sides, layer, head, quantity)
            show.chart(
                curves.curves, lines.data, name=quantity, alt_text=f"Attention {quantity} by position",
                x_title="position", x_domain=(0, pictures.MAX_TOKENS), y_title=lines.y_title, series=lines.series,
                dashed=lines.dashed, guide_colour=TRAINING_LENGTH_COLOUR, height=220,
            )  # fmt: skip
    show.below(show.plain(pictures.drift_sentence(sides, layer, head)))


chosen = widgets.chosen()
asked = widgets.View(AttentionView)
show.heading("Attention", chosen)
if without := pictures.without_model(chosen.specs):
    st.info(show.plain(without))
if readers := pictures.with_model(chosen.specs):
    draw(readers, asked)
else:
    asked.close()
