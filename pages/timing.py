"""Timing: what a scheme costs beside none at all, measured here, and recorded elsewhere."""

import streamlit as st

from explorer import show, state, widgets
from explorer.charts import bars, curves
from explorer.compute import timing as compute
from explorer.pictures import timing as pictures
from explorer.text import Try
from explorer.views import TimingView

chosen = widgets.chosen()
view = widgets.View(TimingView)
show.heading("Timing", chosen)
numbers, controls = st.container(), st.columns(4)

asked = {name: state.get(name, "") for name in ("device", "dtype")}
there = list(compute.devices())
with controls[0]:
    view.field("longest")
with controls[1]:
    device = view.field("device", options=there)
formats = [d for d in TimingView.param("dtype").choices if device != "cpu" or d != "float16"]
with controls[2]:
    view.field("dtype", options=formats)
with controls[3]:
    view.field("repetitions")
wanted = compute.config(chosen.specs, view.close())

if asked["device"] and asked["device"] not in there:
    st.warning(pictures.absent("device", asked["device"], there, "this machine has none"))
if asked["dtype"] and asked["dtype"] not in formats:
    st.warning(pictures.absent("dtype", asked["dtype"], formats, "a CPU would have to emulate it"))

live = compute.live()
if live is None and not any(pictures.covers(run, chosen.specs) for run in compute.runs()):
    live = compute.start(compute.config(chosen.specs, compute.QUICK))
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
if live is not None:
    known = len(live.job.results)

    def progress() -> None:
        """Says how far the job is; draws the page anew when there is more to show."""
        assert live is not None
        note, share = pictures.progress(live.job)
        if share is not None:
            st.progress(share, text=note)
        elif note:
            st.caption(note)
        if running and (live.job.ended or len(live.job.results) > known):
            st.rerun()

    st.fragment(progress, run_every=0.5 if running else None)()

runs = sorted(compute.runs(), key=lambda run: run.recorded and not pictures.covers(run, chosen.specs))
if runs:
    which = 0
    if len(runs) > 1:
        titles = [pictures.title(run) for run in runs]
        which = st.selectbox("Run shown", range(len(runs)), format_func=titles.__getitem__, width=420)
    run = runs[which]
    part = pictures.shown(run, chosen.specs, wanted.devices[0], wanted.dtypes[0])
    with numbers:
        show.numbers(pictures.key_numbers(part))
    if run.recorded:
        st.info(pictures.recorded_note(run, part), icon=":material/history:")
    elif changed := pictures.differences(run, wanted):
        st.warning(f"Measured with other parameters: {show.plain(changed)}. Start measures the present ones.")

    lengths = part.lengths
    ends = pictures.around(lengths)
    axes = {"x_title": "tokens", "x_log": True, "x_ticks": lengths, "x_domain": ends, "points": True}
    quartiles = ("lower quartile", "upper quartile")
    time = pictures.time_lines(part)
    if lengths:
        show.chart(
            curves.curves, time.data, name="time", alt_text="Time of an attention layer against length", height=420,
            y_title=time.y_title, series=time.series, y_log=True, bands=True, low_high=quartiles,
            y_domain=pictures.around(time.data[["y", "low", "high"]].to_numpy().ravel()), **axes,
        )  # fmt: skip
    else:
        st.info("Nothing could be measured; the reasons are listed below.")
    show.below(pictures.growth(part) or "Attention itself grows with the square of the length.",
               pictures.tries(chosen.specs, wanted.lengths[-1]))  # fmt: skip
    st.caption(show.plain(pictures.origin(run, part)))

    left, right = st.columns(2)
    overhead = pictures.overhead_lines(part)
    if overhead.series:
        with left:
            show.chart(
                curves.curves, overhead.data, name="overhead", alt_text="Overhead over no position against length",
                y_title=overhead.y_title, series=overhead.series, height=280, bands=True, low_high=quartiles, **axes,
            )  # fmt: skip
            show.below(
                "How much longer a layer takes than without position. Where the band holds zero, it is noise.",
                [Try("in bfloat16", {"dtype": "bfloat16"}, "Then Start: half the bytes move; what is computed stays.")],
            )
    memory = pictures.memory_lines(part)
    with right if overhead.series else left:
        if memory is None:
            st.caption("This device reports no peak of memory.")
        else:
            show.chart(
                curves.curves, memory.data, name="memory", alt_text="Peak memory against length",
                y_title=memory.y_title, series=memory.series, y_log=True, height=280,
                y_domain=pictures.around(memory.data["y"]), **axes,
            )  # fmt: skip
            show.below(
                "The most that one pass holds at a time: a line twice as steep grows with the square of the length.",
                [
                    Try(
                        "ALiBi and RoPE",
                        {"scheme": "alibi", "b_scheme": "rope"},
                        "A bias holds a number for every pair.",
                    )
                ],
            )
    tables = pictures.table_bars(part)
    if len(tables):
        ticks = tuple(pictures.decades(tables["value"]))
        show.chart(
            bars.bars, tables, name="tables", alt_text="Time to build tables, and to get kept ones",
            value_title=f"time at {part.longest:,} tokens (µs)", name_title="tables",
            series=tuple(s for s in part.series if s[0] in set(tables["series"])), log=True,
            domain=(ticks[0], ticks[-1]), ticks=ticks, names=tables["name"].nunique() + 1, labels=True,
        )  # fmt: skip
        show.below(pictures.tables_seen(part), [pictures.table_try(part)])
    missing = pictures.skipped(part)
    if len(missing):
        with st.expander(f"Not measured, and why ({len(missing)})", expanded=not lengths):
            st.dataframe(missing, hide_index=True)
    st.download_button(
        "Whole run as JSON", data=lambda: pictures.json_text(run), file_name="timing.json", mime="application/json",
        icon=":material/download:", on_click="ignore", type="tertiary",
    )  # fmt: skip
