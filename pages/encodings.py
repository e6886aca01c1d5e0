"""Encodings: what a scheme gives to each position."""

import streamlit as st

from explorer import facts, show, widgets
from explorer.charts import curves, maps, spectrum
from explorer.charts.palette import POSITION_COLOUR, SKY, TRAINING_LENGTH_COLOUR, VERMILLION
from explorer.compute.common import encoding
from explorer.pictures import encodings as pictures
from explorer.pictures.common import layer_spec, short_name
from explorer.show import Try
from explorer.views import EncodingsView

chosen = widgets.chosen()
seq_len = chosen.seq_len
view = widgets.View(EncodingsView)
show.heading("Encodings", chosen)

layer = 0
if any(s.scheme == "hybrid" for s in chosen.specs):
    layer = view.field("layer", maximum=max(len(getattr(s, "layers", ())) for s in chosen.specs) - 1)
specs = [layer_spec(s, layer) for s in chosen.specs]
names = (
    [f"{'first' if i == 0 else 'second'}: {short_name(s)}" for i, s in enumerate(specs)]
    if len(specs) > 1
    else [short_name(specs[0])]
)
show.numbers(facts.key_numbers(chosen.spec, encoding(chosen.spec), seq_len))

controls = st.columns(4)
with controls[0]:
    position = view.field("position", maximum=seq_len - 1)
with controls[1]:
    second = position + view.field("distance", maximum=seq_len - 1 - position)
quantity, head = "cos", 0
with controls[2]:
    if any(s.hook == "rotate" for s in specs):
        quantity = view.field("quantity")
    if any(s.hook == "bias" for s in specs):
        head = view.field("head", maximum=max(pictures.heads_of(s) for s in specs) - 1)
with controls[3]:
    waves = view.field("waves")
view.close()

guides = maps.position_guides(position, second)
large = [pictures.encoding_picture(s, seq_len, quantity, head, guides) for s in specs]
for column, spec, name, picture in zip(st.columns(len(specs)), specs, names, large, strict=True):
    with column:
        if len(specs) > 1:
            st.caption(name)
        show.picture(
            picture, name=f"encoding_{name[:6]}", alt_text=f"Encoding of {seq_len} positions: {name}", height=420
        )
show.below(pictures.SEEN[specs[0].hook], [Try("base 500,000", {"base": "500000"}, "the lower half slows down")])
if len(large) == 2 and (difference := pictures.difference_picture(*large)) is not None:
    show.picture(difference, name="difference", alt_text="First scheme minus second", height=300)
    show.below("First minus second: white where both agree.")

left, right = st.columns(2)
with left:
    for spec, name in zip(specs, names, strict=True):
        lines = pictures.waves(spec, seq_len, quantity, waves, position, second)
        if lines is not None:
            show.chart(
                curves.curves, lines.data, name=f"waves_{name[:6]}", alt_text=f"Waves of {name}", x_title="position",
                y_title=lines.y_title, series=lines.series, guide_colour=POSITION_COLOUR,
            )  # fmt: skip
    show.below("Each curve is one row of the picture above, around the marked position.")
with right:
    ladder = pictures.ladder(list(zip(specs, names, strict=True)), seq_len)
    if ladder is not None:
        show.chart(
            spectrum.ladder, ladder, name="ladder", alt_text="Wavelength of every pair",
            series=tuple(zip(names, (SKY, VERMILLION), strict=False)), guide_colour=TRAINING_LENGTH_COLOUR,
        )  # fmt: skip
        show.below(
            "Pairs above a dashed line never finish a turn within that length, so part of their angles is never seen."
        )
