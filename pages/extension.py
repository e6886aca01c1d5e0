"""Extension: what a model trained at one length meets at a longer one, under every scaling of RoPE."""

import numpy as np
import streamlit as st

from explorer import show, state, widgets
from explorer.charts import bars, curves
from explorer.charts import extension as charts
from explorer.charts.palette import ORANGE, SKY, TRAINING_LENGTH_COLOUR
from explorer.compute import extension as compute
from explorer.pictures import extension as pictures
from explorer.pictures import extension_scores as scores
from explorer.pictures import extension_toy as toys
from explorer.text import Try
from explorer.views import ExtensionView
from posenc_core.recommend import recommend

PAIR, DISTANCE = "pair (high to low frequency)", "distance m (positions)"

chosen = widgets.chosen()
view = widgets.View(ExtensionView)
show.heading("Extension", chosen)
facts, controls = st.container(), st.columns(4)

asked = state.get("method", "")
with controls[0]:
    trained = view.field("trained_length")
with controls[1]:
    target = view.field("target_length")
made = compute.setting(chosen.specs, trained, target)
names = list(made.methods)
if asked == compute.CHOSEN and (same := pictures.chosen_as(made)) is not None:  # the sidebar holds one of the methods
    state.put(method=same)
    asked = same
with controls[2]:
    method = view.field("method", options=names if "yarn" in names else names[::-1])
with controls[3]:
    current = min(view.field("current_length"), made.target)
for note in pictures.notes(chosen.specs, made, (trained, target)):
    st.caption(note)
if asked and asked not in names:
    st.caption(f"{asked} is not among the methods here: {', '.join(names)}.")
nothing = pictures.nothing_to_stretch(made, target)
if nothing is not None:
    show.below(*nothing)
other_length = pictures.other_length(made, method)
if other_length is not None:
    show.below(*other_length)
keep, dashed = pictures.keep(made), pictures.dashed(made)
with facts:
    show.numbers(pictures.key_numbers(made, method))


def to_method(wanted: dict[str, str]) -> list[Try]:
    """A link to the first of these methods that is there and not shown, with what will be seen."""
    return pictures.to_method(made, method, wanted)


# ------------------------------------------------------------------ angles that training never showed

large, beside = st.columns([3, 2])
with large:
    show.picture(
        pictures.beyond_map(made, method), name="beyond", height=380,
        alt_text=f"Doublings past the trained arc, pair against position, with {method}",
    )  # fmt: skip
    show.below(
        pictures.seen_map(made, method),
        to_method({"none": "Orange is what training never showed.", "linear": "Every arc fits."}),
    )
with beside:
    dials = pictures.dials(made, method)
    show.chart(
        charts.dials, dials, name="dials", alt_text="Arcs seen in training and reached at the target",
        rows=int(dials["row"].max()) + 1, seen_colour=SKY, new_colour=ORANGE,
    )  # fmt: skip
    show.below(
        pictures.seen_dials(made, method),
        to_method({"ntk": "Its slow pairs turn too far, but the slowest.", "yarn": "No dial has a second colour."}),
    )

small = pictures.small_maps(made)
show.picture(
    small, name="methods", alt_text="The map of new angles for every method", height=120, columns=4,
    selected=names.index(method), on_click=lambda panel, x, y: state.put(method=names[panel]),
)  # fmt: skip
show.below(
    "The map of every method on one scale; click one to see it large.",
    to_method(
        {"linear": "Nothing is new, and all neighbours move together.", "ntk": "The slow pairs leave their arcs."}
    ),
)

st.markdown("#### What to do")
measured = compute.toy()
found = compute.numbers(made, measured)
advice = recommend(found)
with st.container(border=True):
    show.below(
        pictures.paragraph(advice), [*pictures.taken(made, advice), *pictures.advice_tries(made, method, advice)]
    )
st.dataframe(pictures.side_by_side(made, found), hide_index=True)
st.caption(pictures.seen_table(found))

# ------------------------------------------------------------------ the toy model

st.markdown("#### Measured: a trained toy model past its training length, without training")
with st.container(horizontal=True, vertical_alignment="bottom"):
    times = int(view.field("toy_times"))
    live = compute.live()
    if st.button("Measure again", icon=":material/play_arrow:"):
        live = compute.start()
    running = live is not None and not live.job.ended
    if st.button("Stop", icon=":material/stop:", disabled=not running) and live is not None:
        live.job.cancel()


def progress() -> None:
    """Says how far the measurement is; draws the page anew when it has ended."""
    assert live is not None
    note, share = toys.progress(live.job)
    if share is not None:
        st.progress(share, text=note)
    elif note:
        st.caption(show.plain(note))
    if running and live.job.ended:
        st.rerun()


if live is not None:
    st.fragment(progress, run_every=0.5 if running else None)()
if measured is None:
    st.info("There is no recorded measurement; Measure again makes one in about ten seconds.")
else:
    left, right = st.columns([3, 2])
    lines = toys.by_position(measured.run, times)
    with left:
        show.chart(
            curves.curves, lines.data, name="toy", alt_text=f"Held-out loss by position at {times} times the length",
            x_title="position", y_title=lines.y_title, series=lines.series, legend_columns=3, height=360,
            guide_colour=TRAINING_LENGTH_COLOUR, x_domain=(0, measured.run.trained * times),
        )  # fmt: skip
        show.below(toys.seen(measured.run, times), toys.tries(times, keep))
    lines = toys.summary(measured.run)
    with right:
        show.chart(
            curves.curves, lines.data, name="toy_summary", alt_text="Loss past training against the factor",
            x_title="target ÷ trained", y_title=lines.y_title, series=lines.series, legend_columns=3, height=360,
            x_log=True, x_ticks=(2, 4, 8), x_domain=(1.0, 9.0), points=True,
        )  # fmt: skip
        show.below(toys.seen_summary(measured.run), toys.ATTENTION)
    st.caption(show.plain(toys.origin(measured)))

# ------------------------------------------------------------------ frequencies

st.markdown("#### Every method, pair by pair")
left, right = st.columns(2)
lines = pictures.arc_lines(made)
with left:
    show.chart(
        curves.curves, lines.data, name="arcs", alt_text="Turns of every pair in training and at the target",
        x_title=PAIR, y_title=lines.y_title, series=lines.series, y_log=True, height=380, legend_columns=2,
        dashed=pictures.arc_dashes(made),
    )  # fmt: skip
    show.below(pictures.seen_arcs(made), pictures.base_500k(made))
data, series = pictures.ratio_lines(made, method)
with right:
    show.chart(
        charts.ratios, data, name="ratios", alt_text="Frequency beside the original one for every pair", series=series,
        y_title="frequency ÷ original", dashed=dashed,
    )  # fmt: skip
    show.below(
        pictures.seen_ratios(made, method), to_method({"llama3": "The ramp is shorter.", "yarn": "The ramp is longer."})
    )

st.markdown("#### Where implementations differ")
options = pictures.variants_of(made.methods[method])
if options:
    both = pictures.variants(made, method, view.field("differs", options=options), current)
    left, right = st.columns(2)
    parts = (both, both.gap), ("variants", "difference"), both.domains
    for column, lines, name, domain in zip((left, right), *parts, strict=True):
        with column:
            show.chart(
                curves.curves, lines.data, name=name, alt_text=f"Two implementations of one method: {name}",
                x_title=both.x_title, y_title=lines.y_title, series=lines.series, x_log=both.x_log, legend_columns=2,
                y_domain=domain,
            )  # fmt: skip
    show.below(both.sentence, pictures.variant_tries(made, method, both.differs, current))
else:
    show.below(
        f"No difference between implementations of {pictures.name_of(made, method)} is known here.",
        to_method({"dynamic": "Here transformers and vLLM differ.", "yarn": "Here the ramp and the factor differ."}),
    )

# ------------------------------------------------------------------ scores

st.markdown("#### Scores at the target")
left, right = st.columns(2)
lines = scores.decay_lines(made, method)
with left:
    show.chart(
        charts.against_length, lines.data, name="decay", alt_text="Mean cosine of the pairs against distance",
        bands=True, x_title=DISTANCE, y_title=lines.y_title, series=lines.series, height=380, legend_columns=2,
        y_domain=(-0.5 if lines.data["low"].min() >= -0.5 else -1.0, 1.0), dashed=dashed,
    )  # fmt: skip
    show.below(
        scores.seen_decay(made, method),
        to_method({"linear": "The whole curve moves to the right.", "none": "The curve as trained."}),
    )
lines = scores.bound_lines(made)
with right:
    show.chart(
        charts.against_length, lines.data, name="bound", alt_text="RoFormer's bound factor against distance",
        x_title=DISTANCE, y_title=lines.y_title, series=lines.series, height=380, legend_columns=2,
        y_domain=(0.0, 1.0), dashed=dashed,
    )  # fmt: skip
    show.below(scores.seen_bound(made, method), [Try("the same for one scheme", {}, page="decay")])
base = scores.base_lines(made)
if base is not None:
    show.chart(
        curves.curves, base.data, name="base", alt_text="Smallest base tried that fits a length", y_title=base.y_title,
        x_title="context length (positions)", series=base.series, x_log=True, y_log=True, height=320,
        dashed=(scores.FIT_NAME,), legend_columns=2, guide_colour=TRAINING_LENGTH_COLOUR, x_domain=scores.BASE_LENGTHS,
        y_domain=scores.BASES,
    )  # fmt: skip
    show.below(scores.seen_base(made), scores.base_try(made))

st.markdown("#### The attention factor and the softmax")
left, middle, right = st.columns(3)
factors = scores.factor_bars(made)
with left:
    show.chart(
        bars.bars, factors, name="factors", alt_text="What each method multiplies scores by", name_title="",
        value_title="score factor", series=(("score factor", SKY),), names=len(factors), labels=True,
        domain=(0.0, float(np.ceil(1.3 * factors["value"].max()))), ticks=(0, 1),  # few, so that templates stay
    )  # fmt: skip
    show.below(scores.seen_factors(made), scores.factor_tries(made))
lines = scores.entropy_lines(made, method)
with middle:
    show.chart(
        charts.against_length, lines.data, name="entropy", alt_text="Softmax entropy against length",
        x_title="random keys", y_title=lines.y_title, series=lines.series, height=300, legend_columns=1,
        dashed=(scores.UNIFORM,),
    )  # fmt: skip
    show.below(
        scores.seen_entropy(made, method), to_method({"yarn": "Two lines part.", "none": "The two lines are one."})
    )
lines = scores.divergence_lines(made, method)
with right:
    show.chart(
        charts.against_length, lines.data, name="divergence", height=300, x_title="random keys",
        alt_text="Divergence of the softmax with and without the factor", y_title=lines.y_title, series=lines.series,
        y_domain=None if scores.sharpens(made.methods[method]) else (0.0, 1.0),
    )  # fmt: skip
    show.below(scores.seen_divergence(made, method), scores.partial_tries(made, method))

st.markdown("#### Keys cached under other frequencies")
cache = scores.cache_lines(made, current)
if cache is None:
    st.caption("No method here has frequencies that move with the length.")
else:
    show.chart(
        charts.against_length, cache.data, name="cache", alt_text="Score error of cached keys", y_title=cache.y_title,
        x_title="position of the key, from 1", series=cache.series, height=320, legend_columns=2, y_domain=(0.0, 2.0),
    )  # fmt: skip
    show.below(scores.seen_cache(made, current), scores.cache_tries(made, current))
view.close()
