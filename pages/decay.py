"""Decay: what is left of a score when distance grows, and whether only distance counts."""

import streamlit as st

from explorer import show, widgets
from explorer.charts import bars, curves
from explorer.charts.palette import TRAINING_LENGTH_COLOUR
from explorer.pictures import decay as pictures
from explorer.pictures.common import layer_spec, names_of
from explorer.views import DecayView

chosen = widgets.chosen()
seq_len = chosen.seq_len
view = widgets.View(DecayView)
show.heading("Decay", chosen)
facts = st.container()

controls = st.columns([3, 2, 2, 2])
layer, keep = 0, dict[str, str]()
with controls[3]:
    if any(s.scheme == "hybrid" for s in chosen.specs):
        layer = view.field("layer", maximum=max(len(getattr(s, "layers", ())) for s in chosen.specs) - 1)
        keep = {"layer": str(layer)}
specs = [layer_spec(s, layer) for s in chosen.specs]
names = names_of(specs)
draws, curve, head = DecayView.param("draws").default, "score", 0
with controls[0]:
    projection = view.field("projection")
with controls[1]:
    if len(specs) == 1 and specs[0].hook == "rotate":
        draws = view.field("draws")
    if any(s.hook == "bias" for s in specs):
        curve = view.field("curve")
with controls[2]:
    heads = max(pictures.heads_of(s, projection) for s in specs)
    if heads > 1:
        head = view.field("head", maximum=heads - 1)
view.close()
with facts:
    show.numbers(pictures.key_numbers(specs, seq_len, draws, head, projection))

panels = pictures.matrices(specs, names, projection, head, seq_len)
single = len(specs) == 1
large, beside = st.columns([3, 2]) if single else (st.container(), st.container())
with large:
    score = pictures.score_lines(specs, names, seq_len, draws, curve)
    show.chart(
        curves.curves, score.data, name="decay", alt_text=f"Score against distance: {' against '.join(names)}",
        x_title="distance k (positions)", y_title=score.y_title, series=score.series, bands=score.bands,
        x_domain=(0, seq_len - 1), y_domain=score.y_domain, dashed=score.dashed,
        legend_columns=4 if len(score.series) > 4 else 2, guide_colour=TRAINING_LENGTH_COLOUR,
        height=400,
    )  # fmt: skip
    show.below(
        pictures.seen_lines(specs, names, seq_len, draws, curve),
        pictures.try_lines(specs, seq_len) if chosen.spec.scheme != "hybrid" else [],
    )
with beside:
    difference = pictures.difference(panels)
    places = [st.container()] if difference is None else st.columns([2, 1])
    if panels:
        with places[0]:
            show.picture(
                panels if len(panels) > 1 else panels[0], name="scores", alt_text="Score of every query with every key",
                height=400 if single else 300, columns=len(panels),
            )  # fmt: skip
    if difference is not None:
        with places[1]:
            show.picture(difference, name="difference", alt_text="First scores minus second", height=355)
    show.below(
        pictures.seen_matrix(specs, names, projection, head, seq_len, panels),
        pictures.try_projection(specs, projection, head, seq_len, keep),
    )

st.markdown("#### Does anything but the distance count?")
residuals = pictures.residuals(specs, names, head, seq_len)
show.picture(residuals, name="residuals", alt_text="What the distance does not explain", height=190, columns=3)
show.below(pictures.seen_residuals(specs, names, head, seq_len))
shares = pictures.shares(specs, names, head, seq_len)
show.chart(
    bars.bars, shares.data, name="shares", alt_text="Residual share of every scheme and projection",
    value_title="variance that m - n does not explain (%)", name_title="", series=shares.series, domain=(0, 175),
    ticks=(0, 20, 40, 60, 80, 100), names=len(pictures.PROJECTIONS), labels=True,
)  # fmt: skip
show.below(pictures.seen_shares(shares.data), pictures.try_shares(specs))
