"""Extrapolation lab: small transformers trained at one length, on the spot, and run past it."""

import re

import streamlit as st

from explorer import show, state, widgets
from explorer.charts import curves
from explorer.charts.palette import TRAINING_LENGTH_COLOUR
from explorer.compute import lab as compute
from explorer.pictures import lab as pictures
from explorer.pictures import lab_attention as attention
from explorer.pictures import lab_job as words
from explorer.views import LabView
from posenc_core import Problem, lab
from posenc_core.lab import Run, Setting
from posenc_core.tasks import TEXTS

OWN, TYPED = "_lab_text", "_lab_typed"  # session keys of the reader's own text: kept over page switches; its box
OFFERED = (
    "rope(base=500000)", "rope(base=100)", "rope(rotary_fraction=0.75, scaling=proportional)",
    "rope(rotary_fraction=0.5)", "rope+none", "rope+alibi", "none+rope", "integer",
)  # fmt: skip

# ------------------------------------------------------------------ controls


def scheme_picker(sidebar: tuple[str, ...]) -> list[str]:
    """Schemes from a list, or typed; what the link names is on the list, and comes back even if it is too much."""
    p = LabView.param("schemes")
    asked = state.get("schemes", p.default)
    items = asked if isinstance(asked, list) else [s.strip() for s in re.split(r"[,;]" + lab.OUTSIDE, asked)]
    items = list(dict.fromkeys(filter(None, items)))
    items, too_many = items[: lab.MOST_SCHEMES], items[lab.MOST_SCHEMES :]
    options = list(dict.fromkeys([*items, *(s.strip() for s in p.default.split(",")), *OFFERED, *sidebar]))
    state.feed("schemes", items, tuple(options))
    made = st.multiselect(
        "schemes", options, key="schemes", accept_new_options=True, max_selections=lab.MOST_SCHEMES,
        placeholder="Pick schemes, or type one: rope(base=2000), alibi+rope",
        help=f"`schemes` · {p.meaning}. Legal: {p.legal}.",
    )  # fmt: skip
    state.take("schemes", made)
    return [*made, *too_many]


def options_of_articles() -> None:
    """The advanced fields, a line on each."""
    with st.expander("Options from articles", icon=":material/tune:"):
        for p in (p for p in Setting.params() if p.advanced):
            if p.when is None or view.values.get(p.when[0]) in p.when[1]:
                beside, control = st.columns([2, 1], vertical_alignment="center")
                beside.markdown(words.OPTIONS[p.name])
                with control:
                    view.field(p.name)


def own_text() -> str:
    """The reader's text, empty for the shipped one."""
    with st.expander("Train on your own text", icon=":material/article:"):
        if TYPED not in st.session_state:
            st.session_state[TYPED] = st.session_state.get(OWN, "")
        typed = st.text_area("your text", key=TYPED, max_chars=compute.MAX_BYTES, height=120)
        file = st.file_uploader("or a text file", max_upload_size=1, key="_lab_file")
        st.caption(
            "It is not in the link: who opens it trains on the shipped text. Results are kept on this server by the "
            "text's hash; the text itself is not."
        )
    st.session_state[OWN] = typed
    text = typed if file is None else file.getvalue().decode("utf-8", "replace")
    size = len(text.encode("utf-8", "replace"))
    if size > compute.MAX_BYTES:
        st.error(f"The text has {size:,} bytes; legal: at most {compute.MAX_BYTES:,}. The shipped text is used.")
        return ""
    return text


def line_picker(labels: list[str]) -> int:
    """Whose attention is shown, by its place among the lines."""
    p = LabView.param("map_scheme")
    wanted = state.get("map_scheme", p.default)
    index = widgets.legal(p, wanted, len(labels) - 1)
    if index != wanted:
        legal = f"a whole number from -1 to {len(labels) - 1}"
        state.reject(Problem("map_scheme", wanted, legal, "with the other values"), str(index))
    names = {-1: f"auto: {attention.chosen_line(asked.by_label, -1)}"} | dict(enumerate(labels))
    state.feed("map_scheme", index, tuple(labels))
    picked: int = st.selectbox(
        "map scheme", list(names), key="map_scheme", format_func=names.__getitem__,
        help=f"`map_scheme` · {p.meaning}. Legal: {p.legal}.",
    )  # fmt: skip
    state.take("map_scheme", picked)
    return picked


def map_controls(labels: list[str], far: list[str]) -> None:
    """Which attention is shown."""
    st.markdown("#### Attention before and past the training length")
    columns = st.columns(4)
    wanted = state.get("map_times", LabView.param("map_times").default)
    with columns[0]:
        view.values["map_scheme"] = line_picker(labels)
    with columns[1]:
        times = view.field("map_times", options=far)
    with columns[2]:
        view.field("layer")
    with columns[3]:
        view.field("head")
    if times != wanted:
        st.caption(f"{wanted} training lengths are too long for a map: at most {far[-1]} here.")


# ------------------------------------------------------------------ what is shown


def draw_results() -> None:
    """The big picture, the table, the training."""
    metric, trained = pictures.metric_of(setting, looked_at.metric), setting.train_length
    known = frozenset(key for key in made if compute.recorded(key))
    style = {"series": pictures.series(shown), "dashed": pictures.dashed(shown)}
    lines = pictures.by_position(shown, metric, setting)
    show.chart(
        curves.curves, lines.data, name="by_position", alt_text=f"Held-out {metric} by position, past training",
        x_title="position (log scale)", y_title=lines.y_title, x_log=True, x_ticks=pictures.ticks(trained),
        x_domain=pictures.domain(trained), y_domain=(0.0, 1.02) if metric == "accuracy" else None, bands=True,
        low_high=("lowest seed", "highest seed"), guide_colour=TRAINING_LENGTH_COLOUR, height=440, **style,
    )  # fmt: skip
    show.below(show.plain(pictures.seen(shown, metric)), tries["by_position"])
    if setting.task == "text":
        st.caption(pictures.SAME_BYTES)
    draw_claims()
    st.dataframe(pictures.table(shown, metric, known), hide_index=True)
    st.download_button(
        "Every run as CSV", data=lambda: pictures.runs_csv(shown), file_name="lab.csv", mime="text/csv",
        icon=":material/download:", on_click="ignore", type="tertiary",
    )  # fmt: skip
    show.below(pictures.table_note(setting), tries["table"])
    st.caption(show.plain(pictures.origin(shown, known)))
    lines, slopes = pictures.training(shown), pictures.slope_lines(shown)
    columns = st.columns(1 if slopes is None else 2)
    with columns[0]:
        show.chart(
            curves.curves, lines.data, name="training", alt_text="Loss of every run while it trained", x_title="step",
            y_title=lines.y_title, **style,
        )  # fmt: skip
        show.below(show.plain(pictures.seen_training(shown)), tries["training"])
    if slopes is not None:
        with columns[1]:
            show.chart(
                curves.curves, slopes.data, name="slopes", alt_text="Learned slopes beside the recipe's",
                x_title="head", y_title=slopes.y_title, series=slopes.series, points=True,
            )  # fmt: skip
            show.below(show.plain(pictures.seen_slopes(shown)))


def draw_claims() -> None:
    """Links to the claims that the shown results are evidence for."""
    found = pictures.claims_of(frozenset(made))
    if found:
        st.markdown("Claims measured here:")
        with st.container(horizontal=True):
            for claim in found:
                st.page_link(
                    st.session_state[show.PAGES]["claims"], label=f"{claim.number} · {show.plain(claim.name)}",
                    icon=":material/fact_check:", query_params=state.link({"claim": str(claim.number)}),
                )  # fmt: skip


def draw_factor() -> None:
    """Dynamic slopes over training, with the sign they take at first."""
    lines = words.factor_lines(setting)
    show.chart(
        curves.curves, lines.data, name="factor", alt_text="Factor of dynamic slopes over training", x_title="step",
        y_title=lines.y_title, series=lines.series, height=220,
    )  # fmt: skip
    show.below(show.plain(words.seen_factor(setting)))


def choose_head(panel: int, _x: float, _y: float) -> None:
    """A click on a small map."""
    state.put(layer=panel // lab.HEADS, head=panel % lab.HEADS)


def draw_maps(run: Run, labels: list[str], far: list[str]) -> None:
    """The heads of one model at the training length and past it, side by side."""
    times, layer, head = int(looked_at.map_times), looked_at.layer, looked_at.head
    for column, n in zip(st.columns(2), (1, times), strict=True):
        where = "at the training length" if n == 1 else f"at {n} times the training length"
        with column:
            st.markdown(f"**{show.plain(run.label)}, {where}**")
            show.picture(
                attention.small_maps(run, n), name=f"heads_{n}", height=110, columns=lab.HEADS,
                selected=layer * lab.HEADS + head, on_click=choose_head,
                alt_text=f"Attention of every head of {run.label}, {where}: choose a head",
            )  # fmt: skip
            show.picture(
                attention.large_map(run, n, layer, head), name=f"attention_{n}", height=400,
                alt_text=f"Attention weights of {run.label}, layer {layer}, head {head}, {where}",
            )  # fmt: skip
    show.below(show.plain(attention.seen(run, times, layer, head)), words.other_maps(looked_at, labels, run.label, far))
    with st.expander("Every head in numbers"):
        st.dataframe(attention.drift_table(run, times), hide_index=True)


# ------------------------------------------------------------------ the page

chosen = widgets.chosen()
view = widgets.View(LabView)
show.heading("Extrapolation lab", chosen, "Small transformers are trained at one length, here, and run past it.")
numbers = st.container()
sidebar, unfit = compute.runnable(chosen.specs)

left, right = st.columns([1, 3])
with left:
    if (task := view.field("task")) == "token_back":
        view.field("back")
with right:
    items = scheme_picker(sidebar)
for column, name in zip(st.columns(4), ("train_length", "steps", "width", "seeds"), strict=True):
    with column:
        view.field(name)
schemes, problems = compute.schemes_of(items)
view.values["schemes"], too_long = compute.fitting(items)
view.values["seeds"], bad_seeds = compute.seeds_of(view.values["seeds"])
options_of_articles()
setting = compute.setting_of(view.values)
if options := words.options_set(setting):
    st.caption(f"Options set: {show.plain(options)}.")
text = own_text() if task in TEXTS else ""
asked = compute.asked(schemes, setting, view.values["seeds"], text)
for problem in unfit:
    st.caption(show.plain(f"The sidebar's scheme cannot run here: {problem}."))
for problem in [*problems, *too_long, *bad_seeds]:
    st.error(show.plain(f"{problem}."), icon=":material/error:")
for problem in asked.problems:
    st.info(show.plain(f"Left out: {problem}."))

made = compute.results(asked)
todo, most = compute.work(asked, made), compute.most_seconds()
over, live = todo.seconds > most, compute.live()
running = live is not None and not live.job.ended
busy = running and live is not None and {r.key for r in todo.runs} <= {r.key for r in live.runs}
with st.container(horizontal=True, vertical_alignment="center"):
    st.button(
        "Start", type="primary", icon=":material/play_arrow:", disabled=over or busy or not todo.runs,
        on_click=compute.start, args=(todo,),
    )  # fmt: skip
    st.button("Stop", icon=":material/stop:", disabled=not running, on_click=compute.stop)
    st.markdown(show.plain(words.plan(todo, asked, most)))
if over:
    st.code(words.command(setting, schemes, view.values["seeds"], text), language="sh", wrap_lines=True)


def progress() -> None:
    """Says how far the job is, with its loss curves; draws the page anew when there is more to show."""
    assert live is not None
    note, share = words.progress(live)
    if share is not None:
        st.progress(share, text=show.plain(note))
    elif note:
        st.caption(show.plain(note))
    if running:
        lines = words.live_lines(live)
        show.chart(
            curves.curves, lines.data, name="live", alt_text="Training loss of the runs in progress",
            x_title="step", y_title=lines.y_title, series=lines.series, height=240, dashed=words.dashed(live.runs),
        )  # fmt: skip
        if live.job.ended or len(live.job.results) > known:
            st.rerun()


if live is not None:
    known = len(live.job.results)
    st.fragment(progress, run_every=0.5 if running else None)()

results, maps = st.container(), st.container()
shown, labels = pictures.sides(asked, made), list(asked.by_label)
far = attention.lengths(setting.train_length, LabView.param("map_times").choices)
with results:
    view.field("metric")
with maps:
    if labels:
        map_controls(labels, far)
looked_at = view.close()
with numbers:
    show.numbers(pictures.key_numbers(shown, asked, todo, pictures.metric_of(setting, looked_at.metric), most))
tries = words.tries(looked_at, schemes, sidebar)
with results:
    if shown:
        draw_results()
    else:
        nothing = "Nothing of this setting is measured yet. Start trains it; every run appears as soon as it is done."
        show.below(nothing, tries["by_position"])
    if setting.slope_training == "dynamic":
        draw_factor()
with maps:
    if labels:
        label = attention.chosen_line(asked.by_label, looked_at.map_scheme)
        run = attention.with_weights(asked.by_label[label])
        if run is None:
            st.caption(
                show.plain(f"No weights of {label} are kept on this server, so there is no map of its attention.")
            )
        else:
            draw_maps(run, labels, far)
