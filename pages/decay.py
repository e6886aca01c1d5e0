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

controls = st.columns(4)
layer, keep = 0, dict[str, str]()
with controls[3]:
    if any(s.scheme == "hybrid" for s in chosen.specs):
        layer = view.field("layer", maximum=max(len(getattr(s, "layers", ())) for s in chosen.specs) - 1)
        keep = {"layer": str(layer)}
specs = [layer_spec(s, layer) for s in chosen.specs]
names = names_of(specs)
draws, curve, head = 64, "score", 0
with controls[0]:
    projection = view.field("projection")
with controls[1]:
    if len(specs) == 1 and specs[0].hook == "rotate":
        draws = view.field("draws")
    if all(s.hook == "bias" for s in specs):
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
        x_domain=(0, seq_len - 1), y_domain=score.y_domain, dashed=score.dashed, guide_colour=TRAINING_LENGTH_COLOUR,
        height=400,
    )  # fmt: skip
    show.below(
        pictures.seen_lines(specs, names, seq_len, draws, curve),
        [t for t in pictures.try_lines(specs, seq_len)] if chosen.spec.scheme != "hybrid" else [],
    )
with beside:
    difference = pictures.difference(panels)
    shown = panels if difference is None else [*panels, difference]
    if shown:
        show.picture(
            shown[0] if len(shown) == 1 else shown, name="scores", alt_text="Score of every query with every key",
            height=400 if single else 360, columns=len(shown),
        )  # fmt: skip
    show.below(
        pictures.seen_matrix(specs, names, projection, head, seq_len, panels),
        pictures.try_projection(specs, projection, head, seq_len, keep),
    )

st.markdown("#### Does anything but the distance count?")
left, right = st.columns([3, 2])
with left:
    residuals = pictures.residuals(specs, names, head, seq_len)
    show.picture(
        residuals, name="residuals", alt_text="What the distance does not explain", height=260, columns=3
    )
    show.below(pictures.seen_residuals(specs, names, head, seq_len))
with right:
    shares = pictures.shares(specs, names, head, seq_len)
    show.chart(
        bars.bars, shares.data, name="shares", alt_text="Residual share of every scheme and projection",
        value_title="variance that m - n does not explain (%)", name_title="", series=shares.series, domain=(0, 105),
        names=len(pictures.PROJECTIONS), labels=True,
    )  # fmt: skip
    show.below(pictures.seen_shares(shares.data))
