"""Timing: what a scheme costs beside none at all, and what its operations cost beside what else there is."""

from collections.abc import Sequence

import streamlit as st

from explorer import show, state, widgets
from explorer.charts import bars, curves
from explorer.compute import timing as compute
from explorer.compute.timing import Live, Run
from explorer.pictures import claims as claim_pictures
from explorer.pictures import timing as pictures
from explorer.pictures import timing_articles as articles
from explorer.pictures import timing_kernels as kernels
from explorer.pictures.timing import Shown
from explorer.pictures.timing_kernels import Part
from explorer.views import TimingView
from posenc_core.benchmark import What

QUARTILES = ("lower quartile", "upper quartile")


def start_and_stop() -> Live | None:
    """The two buttons, and the reader's job if there is one."""
    live = compute.live()
    if live is None and not any(pictures.covers(run, chosen.specs) for run in compute.runs()):
        live = compute.start([compute.layers(chosen.specs, compute.QUICK)])
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Start", type="primary", icon=":material/play_arrow:"):
            live = compute.start(wanted)
        running = live is not None and not live.job.ended
        if st.button("Stop", icon=":material/stop:", disabled=not running) and live is not None:
            live.job.cancel()
        if "cuda" not in there:
            others = [d for d in there if d != "cpu"]
            st.caption(
                "No CUDA device on this machine: "
                + ("the CPU alone is compared." if not others else f"the CPU and {', '.join(others)} can be compared.")
            )
    return live


def follow(live: Live) -> None:
    """How far the job is; the page is drawn anew when there is more to show."""
    known, running = len(live.job.results), not live.job.ended

    def progress() -> None:
        note, share = pictures.progress(live)
        if share is not None:
            st.progress(share, text=note)
        elif note:
            st.caption(note)
        if running and (live.job.ended or len(live.job.results) > known):
            st.rerun()

    st.fragment(progress, run_every=0.5 if running else None)()


def layers(run: Run, part: Shown) -> None:
    """Time, overhead and memory of a layer against the length."""
    st.markdown("#### What a layer pays")
    lengths = part.lengths
    if not lengths:
        st.info("No layer was measured in this run." + (" Why is listed below." if part.records else ""))
        return
    axes = {
        "x_title": "tokens", "x_log": True, "x_ticks": lengths, "x_domain": pictures.around(lengths), "points": True,
    }  # fmt: skip
    time = pictures.time_lines(part)
    show.chart(
        curves.curves, time.data, name="time", alt_text="Time of an attention layer against length", height=420,
        y_title=time.y_title, series=time.series, dashed=pictures.dashed(time), y_log=True, bands=True,
        legend_columns=pictures.columns(time), low_high=QUARTILES,
        y_domain=pictures.around(time.data[["y", "low", "high"]].to_numpy().ravel()), **axes,
    )  # fmt: skip
    show.below(pictures.growth(part) or "Attention itself grows with the square of the length.",
               pictures.tries(chosen.specs, view.longest))  # fmt: skip
    st.caption(show.plain(pictures.origin(run, part)))
    left, right = st.columns(2)
    overhead = pictures.overhead_lines(part)
    if overhead.series:
        with left:
            show.chart(
                curves.curves, overhead.data, name="overhead", alt_text="Overhead over no position against length",
                y_title=overhead.y_title, series=overhead.series, dashed=pictures.dashed(overhead),
                height=pictures.height(overhead),
                legend_columns=pictures.columns(overhead), bands=True, low_high=QUARTILES, **axes,
            )  # fmt: skip
            show.below(
                "How much longer a layer takes than without position. Where the band holds zero, it is noise.",
                [kernels.other_format(view.dtype)],
            )
    memory = pictures.memory_lines(part)
    with right if overhead.series else left:
        if memory is None:
            st.caption("This device reports no peak of memory.")
        else:
            show.chart(
                curves.curves, memory.data, name="memory", alt_text="Peak memory against length",
                y_title=memory.y_title, series=memory.series, dashed=pictures.dashed(memory), y_log=True,
                height=pictures.height(memory),
                legend_columns=pictures.columns(memory),
                y_domain=pictures.around(memory.data["y"]), **axes,
            )  # fmt: skip
            show.below(
                "The most that one pass holds at a time: a line twice as steep grows with the square of the length.",
                [pictures.memory_try(chosen.specs)],
            )


def operation(what: What, part: Part | None, shown: Run) -> None:
    """One operation by itself, a bar an implementation; beside it the memory, where that is what differs."""
    if part is None:
        st.info(kernels.missing(what), icon=":material/timer_off:")
        return
    frame = kernels.ratio_bars(part)
    looks = {"name_title": "", "labels": True, "beside": False, "notes": kernels.NOTES,
             "label_limit": kernels.LONGEST_NAME}  # fmt: skip
    left, right = st.columns(2) if what == "attention" else (st.container(), None)
    if len(frame):
        with left:
            show.chart(
                bars.bars, frame, name=what, alt_text=kernels.ALT[what], value_title=kernels.AXIS[what],
                series=kernels.series(part, frame), domain=kernels.domain(frame["high"]), names=len(frame),
                low_high=QUARTILES, guide=(kernels.GUIDE[what], 1.0), legend=True, legend_columns=1, **looks,
            )  # fmt: skip
    memory = kernels.memory_bars(part)
    if right is not None and len(memory):
        with right:
            show.chart(
                bars.bars, memory, name=f"{what}_memory", alt_text="Peak memory by implementation",
                value_title="peak memory (MiB)", series=kernels.series(part, memory),
                domain=kernels.domain(memory["value"]), names=len(memory), **looks,
            )  # fmt: skip
    show.below(kernels.seen(part), kernels.tries(part, view.dtype))
    if told := kernels.wrong(part):
        st.caption(show.plain(told))
    if hangs := kernels.caveat(part):
        st.caption(show.plain(hangs))
    if part.run is not shown:
        st.caption(show.plain(f"Not in the run above; {pictures.title(part.run)}."))
    if told := kernels.not_measured(part):
        st.caption(show.plain(told))
    with st.expander(f"In numbers: {part.where}"):
        st.dataframe(kernels.table(part), hide_index=True)
        st.caption(show.plain(kernels.origin(part)))


def tables(part: Shown, runs: Sequence[Run]) -> None:
    """Tables built anew and kept, at a layer's length and at a million positions."""
    far = pictures.far_run(runs, part)
    frame = pictures.table_bars(part, far)
    if not len(frame):
        st.info("The chosen scheme keeps and builds no tables.")
        return
    ticks = tuple(pictures.decades(frame["value"]))
    show.chart(
        bars.bars, frame, name="tables", alt_text="Time to build tables, and to get kept ones",
        value_title="time (µs)", name_title="",
        series=tuple(s for s in part.series if s[0] in set(frame["series"])), log=True, legend=True,
        domain=(ticks[0], ticks[-1]), ticks=ticks, names=frame["name"].nunique() + 1, labels=True,
        value_format=",.4~r",
    )  # fmt: skip
    show.below(pictures.tables_seen(part), [pictures.table_try(part)])
    if far is not None and (told := pictures.far_seen(far, part)):
        st.caption(show.plain(told))


def article(answer: articles.Answer) -> None:
    """What articles say, the verdict, and what was measured."""
    with st.container(border=True):
        st.markdown(f"**{show.plain(answer.said)}?** {claim_pictures.badge(answer.verdict)}")
        where = f" :gray[{show.plain(answer.where)}]" if answer.where else ""
        st.markdown(f"{show.plain(answer.measured)}{where}")
        if answer.command:
            st.code(answer.command, language="bash", wrap_lines=True)
        pages = st.session_state[show.PAGES]
        with st.container(horizontal=True, gap="medium"):
            if answer.query is not None:
                st.page_link(
                    pages["timing"], label="Choose that", icon=":material/arrow_forward:",
                    query_params=state.link(answer.query),
                )  # fmt: skip
            if answer.claim:
                st.page_link(
                    pages["claims"], label=f"Claim {answer.claim}", icon=":material/fact_check:",
                    query_params=state.link({"claim": str(answer.claim)}),
                )  # fmt: skip


chosen = widgets.chosen()
fields = widgets.View(TimingView)
show.heading("Timing", chosen)
numbers, controls = st.container(), st.columns([3, 2, 3, 3, 3])

asked = {name: state.get(name, "") for name in ("device", "dtype")}
there = list(compute.devices())
with controls[0]:
    fields.field("longest")
with controls[1]:
    device = fields.field("device", options=there)
formats = [d for d in TimingView.param("dtype").choices if device != "cpu" or d != "float16"]
with controls[2]:
    fields.field("dtype", options=formats)
with controls[3]:
    fields.field("repetitions")
with controls[4]:
    fields.field("direction")
view = fields.close()
wanted = compute.config(chosen.specs, view)

if asked["device"] and asked["device"] not in there:
    st.warning(pictures.absent("device", asked["device"], there, "this machine has none"))
if asked["dtype"] and asked["dtype"] not in formats:
    st.warning(pictures.absent("dtype", asked["dtype"], formats, "a CPU would have to emulate it"))

live = start_and_stop()
if live is not None:
    follow(live)

runs = sorted(compute.runs(), key=lambda run: run.recorded and not pictures.covers(run, chosen.specs))
if runs:
    which, whole = 0, pictures.with_layers(runs)
    if len(whole) > 1:
        titles = [pictures.title(run) for run in whole]
        which = st.selectbox("Run shown", range(len(whole)), format_func=titles.__getitem__, width=420)
    run = whole[which]
    others = [run, *(r for r in runs if r is not run)]
    place = view.device, view.dtype, view.direction == "both"
    part = pictures.shown(run, chosen.specs, *place)
    rotation, attention = (kernels.first(others, what, chosen.specs, *place) for what in ("rotation", "attention"))
    with numbers:
        show.numbers(pictures.key_numbers(part, rotation, attention))
    if run.recorded:
        st.info(pictures.recorded_note(run, part, chosen.specs, view), icon=":material/history:")
    elif changed := pictures.differences(run, wanted):
        st.warning(f"Measured with other parameters: {show.plain(changed)}. Start measures the present ones.")
    layers(run, part)
    if view.direction == "both" and part.directions == (False,):
        st.caption("This run has no backward pass.")
    st.markdown("#### The rotation by itself")
    operation("rotation", rotation, run)
    st.markdown("#### Attention with ALiBi by itself")
    operation("attention", attention, run)
    st.markdown("#### Tables")
    tables(part, others)
    st.markdown("#### What articles say")
    for answer in articles.answers(run, rotation):
        article(answer)
    missing = pictures.skipped(part)
    if len(missing):
        with st.expander(f"Layers and tables not measured, and why ({len(missing)})", expanded=not part.lengths):
            st.dataframe(missing, hide_index=True)
    st.download_button(
        "Whole run as JSON", data=lambda: pictures.json_text(run), file_name="timing.json", mime="application/json",
        icon=":material/download:", on_click="ignore", type="tertiary",
    )  # fmt: skip
