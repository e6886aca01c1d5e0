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
from explorer.pictures.common import SHARES
from explorer.views import LabView
from posenc_core import Problem, lab
from posenc_core.lab import Run, Setting
from posenc_core.tasks import TEXTS

OWN, TYPED = "_lab_text", "_lab_typed"  # session keys of the reader's own text: kept over page switches; its box

# ------------------------------------------------------------------ controls


def task_picker() -> str:
    """The tasks with a gloss."""
    p = LabView.param("task")
    value = widgets.legal(p, state.get("task", p.default))
    picked = widgets.choice(
        "task", "task", p.choices, value, names=words.TASKS, help_text=f"`task` · {p.meaning}. Legal: {p.legal}."
    )
    view.values["task"] = picked
    return picked


def scheme_picker(sidebar: tuple[str, ...]) -> list[str]:
    """Schemes from a list, or typed; what the link names is on the list, and comes back even if it is too much."""
    p = LabView.param("schemes")
    asked = state.get("schemes", p.default)
    items = asked if isinstance(asked, list) else [s.strip() for s in re.split(r"[,;]" + lab.OUTSIDE, asked)]
    items = list(dict.fromkeys(filter(None, items)))
    items, too_many = items[: lab.MOST_SCHEMES], items[lab.MOST_SCHEMES :]
    # Enter takes the first option that begins with what was typed, so few have parameters: rope must not get any
    options = list(dict.fromkeys([*items, *(s.strip() for s in p.default.split(",")), "integer", *sidebar]))
    state.feed("schemes", items, tuple(options))
    made = st.multiselect(
        "schemes", options, key="schemes", accept_new_options=True, max_selections=lab.MOST_SCHEMES,
        filter_mode="prefix", select_all=False,  # else it takes rope(base=500000) for rope(base=500), or all that fit
        wrap=True, placeholder="Pick schemes, or type one: rope(base=2000), alibi+rope",
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
    try:
        text = typed if file is None else file.getvalue().decode("utf-8")
    except UnicodeDecodeError:
        st.error("The file is not UTF-8 text. The shipped text is used.")
        return ""
    size = len(text.encode("utf-8", "replace"))
    if size > compute.MAX_BYTES:
        st.error(f"The text has {size:,} bytes; legal: at most {compute.MAX_BYTES:,}. The shipped text is used.")
        return ""
    if file is not None and not text:
        st.error("The file is empty. The shipped text is used.")
    return text


def legal_line(lines: int) -> int:
    """Whose attention the link asks for, by its place among the lines."""
    p = LabView.param("map_scheme")
    wanted = state.get("map_scheme", p.default)
    index: int = widgets.legal(p, wanted, lines - 1)
    if index != wanted:
        legal = f"a whole number from -1 to {lines - 1}"
        state.reject(Problem("map_scheme", wanted, legal, "with the other values"), str(index))
    return index


def line_picker(labels: list[str]) -> int:
    """Whose attention is shown, by its place among the lines."""
    p, index = LabView.param("map_scheme"), legal_line(len(labels))
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


def no_map_controls(lines: int) -> None:
    """There is no map yet: what the link says of it waits."""
    view.values["map_scheme"] = legal_line(lines)
    for name in ("map_times", "layer", "head"):
        p = LabView.param(name)
        view.values[name] = widgets.legal(p, state.get(name, p.default))
    for name in ("map_scheme", "map_times", "layer", "head"):
        state.feed(name, view.values[name])


# ------------------------------------------------------------------ what is shown


def draw_picture() -> None:
    """The big picture with its sentence."""
    trained = setting.train_length
    lines = pictures.by_position(shown, metric, setting)
    show.chart(
        curves.curves, lines.data, name="by_position", alt_text=f"Held-out {metric} by position, past training",
        x_title="position (log scale)", y_title=lines.y_title, x_log=True, x_ticks=pictures.ticks(trained),
        x_domain=pictures.domain(trained), y_domain=SHARES if metric == "accuracy" else None, bands=True,
        low_high=("lowest seed", "highest seed"), guide_colour=TRAINING_LENGTH_COLOUR, height=420, **style,
    )  # fmt: skip
    show.below(show.plain(pictures.seen(shown, metric)), tries["by_position"])
    if setting.task == "text":
        st.caption(pictures.SAME_BYTES)
    draw_claims()


def draw_details() -> None:
    """The table, the training."""
    known = frozenset(key for key in made if compute.recorded(key))
    st.dataframe(
        pictures.table(shown, metric, known), hide_index=True,
        column_config={"scheme": st.column_config.TextColumn(width=pictures.name_width(shown))},
    )  # fmt: skip
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
                x_title="head", y_title=slopes.y_title, series=slopes.series, points=True, **pictures.slope_axes(shown),
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
    """The heads of one model at the training length and past it: all small, one large."""
    times, layer, head = int(looked_at.map_times), looked_at.layer, looked_at.head
    where = {1: "at the training length", times: f"at {times} times the training length"}
    for n, maps in zip(where, attention.small_maps(run, times), strict=True):
        st.markdown(f"**{show.plain(run.label)}, {where[n]}**")
        show.picture(
            maps, name=f"heads_{n}", height=110, columns=lab.HEADS, selected=layer * lab.HEADS + head,
            on_click=choose_head, alt_text=f"Attention of every head of {run.label}, {where[n]}: choose a head",
        )  # fmt: skip
    large = attention.large_maps(run, times, layer, head)
    for column, n, picture in zip(st.columns(2), where, large, strict=True):
        with column:
            st.markdown(f"**Layer {layer} head {head}, {where[n]}**")
            show.picture(
                picture, name=f"attention_{n}", height=400,
                alt_text=f"Attention weights of {run.label}, layer {layer}, head {head}, {where[n]}",
            )  # fmt: skip
    show.below(show.plain(attention.seen(run, times, layer, head)), words.other_maps(looked_at, labels, run.label, far))
    with st.expander("Every head in numbers"):
        st.dataframe(attention.drift_table(run, times), hide_index=True)


# ------------------------------------------------------------------ the page

chosen = widgets.chosen()
view = widgets.View(LabView)
show.titled(
    "Extrapolation lab", chosen,
    "Small transformers, trained here at one length and run past it. The sidebar's scheme is on the list of schemes.",
)  # fmt: skip
numbers = st.container()
sidebar, unfit = compute.runnable(chosen.specs)

left, middle, right = st.columns([4, 6, 4])
with left:
    if (task := task_picker()) == "token_back":
        view.field("back")
with middle:
    items = scheme_picker(sidebar)
with right:
    wanted_metric = view.field("metric")
told, action, picture = st.container(), st.container(), st.container()

st.markdown("#### What is trained")
for column, name in zip(st.columns(4), ("train_length", "steps", "width", "seeds"), strict=True):
    with column:
        view.field(name)
schemes, problems = compute.schemes_of(items)
view.values["schemes"], too_long = compute.fitting(items)
view.values["seeds"], bad_seeds = compute.seeds_of(view.values["seeds"])
options_of_articles()
setting = compute.setting_of(view.values)
text = own_text() if task in TEXTS else ""
asked = compute.asked(schemes, setting, view.values["seeds"], text)
made = compute.results(asked)
todo, most = compute.work(asked, made), compute.most_seconds()
over, live = todo.seconds > most, compute.live()
running = live is not None and not live.job.ended
busy = running and live is not None and {r.key for r in todo.runs} <= {r.key for r in live.runs}

with told:
    if options := words.options_set(setting):
        st.caption(f"Options set: {show.plain(options)}.")
    for problem in unfit:
        st.caption(show.plain(f"The sidebar's scheme cannot run here: {problem}."))
    for problem in [*problems, *too_long, *bad_seeds]:
        st.error(show.plain(f"{problem}."), icon=":material/error:")
    for problem in asked.problems:
        st.info(show.plain(f"Left out: {problem}."))


def progress() -> None:
    """Says how far the job is, with its loss curves; draws the page anew when there is more to show."""
    assert live is not None
    note, share = words.progress(live)
    if share is not None:
        st.progress(share, text=show.plain(note))
    elif note:
        st.caption(show.plain(note))
    if running:
        if (lines := words.live_lines(live)) is not None:
            show.chart(
                curves.curves, lines.data, name="live", alt_text="Training loss of the runs in progress",
                x_title="step", y_title=lines.y_title, series=lines.series, height=240, dashed=words.dashed(live.runs),
            )  # fmt: skip
        if live.job.ended or len(live.job.results) > known_results:
            st.rerun()


with action:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Start", type="primary", icon=":material/play_arrow:", disabled=over or busy or not todo.runs,
            on_click=compute.start, args=(todo,),
        )  # fmt: skip
        stoppable = running and live is not None and not live.job.cancelled()
        st.button("Stop", icon=":material/stop:", disabled=not stoppable, on_click=compute.stop)
        st.markdown(show.plain(words.plan(todo, asked, most, busy)))
    if over:
        st.code(words.command(setting, schemes, view.values["seeds"], text), language="sh", wrap_lines=True)
    if live is not None:
        known_results = len(live.job.results)
        st.fragment(progress, run_every=0.5 if running else None)()

shown, labels = pictures.sides(asked, made), list(asked.by_label)
metric, style = pictures.shown_metric(setting, wanted_metric), pictures.style(shown)
far = attention.lengths(setting.train_length, LabView.param("map_times").choices)
with_maps = any(attention.with_weights(runs) for runs in asked.by_label.values())
details, maps = st.container(), st.container()
with maps:
    if with_maps:
        map_controls(labels, far)
    else:
        no_map_controls(len(labels))
looked_at = view.close()
with numbers:
    show.numbers(pictures.key_numbers(shown, asked, todo, metric, most, busy))
tries = words.tries(looked_at, schemes, sidebar)
with picture:
    if shown:
        draw_picture()
    else:
        show.below(words.nothing_yet(live, asked), tries["by_position"])
with details:
    if setting.slope_training == "dynamic":
        draw_factor()
    if shown:
        draw_details()
with maps:
    if with_maps:
        label = attention.chosen_line(asked.by_label, looked_at.map_scheme)
        if (run := attention.with_weights(asked.by_label[label])) is not None:
            draw_maps(run, labels, far)
        else:
            st.caption(show.plain(f"No weights of {label} are kept on this server: pick another line for its maps."))
    elif shown:
        st.caption("No weights of these runs are kept on this server, so there are no maps of their attention.")
show.formulae(chosen)
