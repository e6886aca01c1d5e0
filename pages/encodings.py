"""Encodings: what a scheme gives to each position."""

import streamlit as st

from explorer import facts, show, state, widgets
from explorer.charts import curves, maps, spectrum
from explorer.charts.palette import (
    POSITION_B_COLOUR,
    POSITION_COLOUR,
    SCHEME_COLOURS,
    TRAINING_LENGTH_COLOUR,
    VERMILLION,
)
from explorer.compute import encodings as compute
from explorer.compute.common import trained_table
from explorer.pictures import encodings as pictures
from explorer.pictures.common import layer_spec, names_of
from explorer.text import ENCODING_SEEN, ENCODING_TRIES, Try
from explorer.views import EncodingsView
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec

chosen = widgets.chosen()
seq_len = chosen.seq_len
view = widgets.View(EncodingsView)
show.heading("Encodings", chosen)
show.numbers(compute.key_numbers(chosen.spec, seq_len))

controls = st.columns(4)
with controls[0]:
    position = view.field("position", maximum=seq_len - 1)
with controls[1]:
    second = min(position + view.field("distance", maximum=seq_len - 1), seq_len - 1)
layer = 0
with controls[3]:
    waves = view.field("waves")
    if any(s.scheme == "hybrid" for s in chosen.specs):
        layer = view.field("layer", maximum=max(len(getattr(s, "layers", ())) for s in chosen.specs) - 1)
specs = [layer_spec(s, layer) for s in chosen.specs]
names = names_of(specs)
quantity, head = "cos", 0
with controls[2]:
    if any(s.hook == "rotate" for s in specs):
        quantity = view.field("quantity")
    if any(s.hook == "bias" for s in specs):
        head = view.field("head", maximum=max(pictures.heads_of(s) for s in specs) - 1)
view.close()

guides = maps.position_guides(position, second)
large = [pictures.encoding_picture(s, seq_len, quantity, head, guides) for s in specs]
large = pictures.same_scale(large)
for column, name, picture in zip(st.columns(len(specs)), names, large, strict=True):
    with column:
        if len(specs) > 1:
            st.caption(name)
        show.picture(
            picture,
            name=f"encoding_{names.index(name)}",
            alt_text=f"Encoding of {seq_len} positions: {name}",
            height=420,
            on_click=lambda panel, x, y: state.put(position=int(min(x, seq_len - 1))),
        )
seen = ENCODING_SEEN[specs[0].hook] + " Click the picture to move the mark."
if isinstance(chosen.spec, LearnedSpec) and not trained_table(chosen.spec):
    seen = "This width was never trained, so the table is as it was initialised. " + seen
show.below(seen, ENCODING_TRIES[chosen.spec.scheme])
if len(large) == 2 and (difference := pictures.difference_picture(*large)) is not None:
    show.picture(difference, name="difference", alt_text="First scheme minus second", height=300)
    show.below(
        "First minus second: no colour where both agree.",
        [Try("the first alone", {"b_scheme": ""}, "One large picture instead of two.")],
    )

colours = [SCHEME_COLOURS[s.scheme] for s in specs]
series = tuple(zip(names, [colours[0], *(VERMILLION if c == colours[0] else c for c in colours[1:])], strict=True))
left, right = st.columns(2)
with left:
    for index, spec in enumerate(specs):
        lines = pictures.waves(spec, seq_len, quantity, waves, position, second)
        if lines is not None:
            if len(specs) > 1:
                st.caption(names[index])
            show.chart(
                curves.curves, lines.data, name=f"waves_{index}", alt_text=f"Waves of {names[index]}",
                x_title="position", y_title=lines.y_title, series=lines.series, guide_colour=POSITION_COLOUR,
            )  # fmt: skip
    if any(s.hook != "none" for s in specs):
        show.below(
            "Each curve is one row of the large picture, around the marked position.",
            [Try("twelve waves", {"waves": "12"}, "The rows between them join in.")],
        )
ladder = pictures.ladder(list(zip(specs, names, strict=True)), seq_len)
if ladder is not None:
    with right:
        show.chart(
            spectrum.ladder, ladder, name="ladder", alt_text="Wavelength of every pair", series=series,
            guide_colour=TRAINING_LENGTH_COLOUR,
        )  # fmt: skip
        show.below(
            "Pairs above a dashed line never finish a turn within that length.",
            [Try("4,096 positions", {"seq_len": "4096"}, "The upper line rises: more pairs turn fully.")],
        )

for index, spec in enumerate(specs):
    if len(specs) > 1 and spec.hook != "none":
        st.markdown(f"#### {names[index]}")
    left, right = st.columns(2)
    clocks = pictures.clocks(spec, seq_len, position, second)
    if clocks is not None:
        with left:
            show.chart(
                spectrum.clocks, clocks, name=f"clocks_{index}", alt_text="Clock hands of pairs",
                first_colour=POSITION_COLOUR, second_colour=POSITION_B_COLOUR, rows=int(clocks["row"].max()) + 1,
            )  # fmt: skip
            show.below(
                f"The hands of {len(clocks)} pairs at position {position} (orange) and {second} (blue): move both by "
                "the same amount, and the angle between the two hands of a clock stays.",
                [
                    Try(
                        "move both by 5",
                        {"position": str(min(position + 5, seq_len - 1)), "distance": str(second - position)},
                        "All hands turn, and the angles between them stay.",
                    )
                ],
            )
    similar = pictures.similarity_picture(spec, seq_len, guides)
    if similar is not None:
        with right if clocks is not None else left:
            show.picture(similar, name=f"similarity_{index}", alt_text="Similarity of all positions", height=300)
            show.below("How alike any two positions are.", [pictures.similarity_try(spec)])
    if spec.hook == "bias":
        heads = pictures.head_pictures(spec, seq_len)
        show.picture(
            heads, name=f"heads_{index}", alt_text="Bias of every head", height=120, columns=8,
            selected=min(head, len(heads) - 1), on_click=lambda panel, x, y: state.put(head=panel),
        )  # fmt: skip
        show.below(
            f"{len(heads)} of {pictures.heads_of(spec)} heads over the first {heads[0].cols} positions, on one scale; "
            "the steeper, the shorter-sighted. Click one to enlarge it.",
            [Try("the last head", {"head": str(len(heads) - 1)}, "Its bias fills the large picture.")],
        )
    if isinstance(spec, SinusoidalSpec):
        with left:
            shift = pictures.shift_picture(spec, second - position)
            show.picture(shift, name=f"shift_{index}", alt_text="The linear map that shifts positions", height=300)
            show.below(
                f"One matrix moves every position by {second - position}: |M·PE(p) - PE(p + k)| is at most "
                f"{compute.shift_error(spec, second - position):.1e}.",
                [Try("a shift of 64", {"position": "0", "distance": "64"}, "Every pair of dimensions turns further.")],
            )
    if spec.hook == "embed":
        with right:
            closest = compute.closest_pair(spec, seq_len)
            st.metric(
                "closest two positions",
                facts.short(closest),
                help=f"smallest distance between the vectors of two of the first {compute.SEARCHED:,} positions shown",
            )
    if isinstance(spec, IntegerSpec):
        for column, lines in zip(st.columns(2), pictures.integer_faults(spec, seq_len), strict=True):
            with column:
                show.chart(
                    curves.curves, lines.data, name=f"fault_{lines.y_title[:8]}_{index}", alt_text=lines.y_title,
                    x_title="position", y_title=lines.y_title, series=lines.series,
                )  # fmt: skip
        show.below(
            "Three faults: one-hot positions are all equally far apart, a table has no value past its end, and what "
            "the raw index does to a gradient grows with the position.",
            [Try("the waves that came instead", {"scheme": "sinusoidal"}, "Every value stays between -1 and 1.")],
        )
