"""Config: paste a model's config.json, and see what its layers really do with positions."""

from __future__ import annotations

import streamlit as st

from explorer import show, state, widgets
from explorer.charts import curves, strip
from explorer.charts.palette import TRAINING_LENGTH_COLOUR
from explorer.compute import config as compute
from explorer.manual import found
from explorer.models import MODELS, config_text
from explorer.pictures import config as pictures
from explorer.text import Try
from explorer.views import LLAMA31_CONFIG, ConfigView
from posenc_core import ModelEncoding, Problem, SpecError

REFUSED = "_config_refused"  # session key: what was wrong with the last upload, and the box's text beside it


def refused(problems: tuple[Problem, ...]) -> None:
    """Say what cannot be read."""
    lines = "\n".join(f"- {show.plain(str(p))}" for p in problems[: show.MOST_LINES])
    more = f"\n- and {len(problems) - show.MOST_LINES:,} more" if len(problems) > show.MOST_LINES else ""
    st.error(f"This config cannot be read:\n{lines}{more}", icon=":material/error:")


def encodable(text: str) -> str:
    """The text without halves of surrogate pairs, which cannot be sent to a browser."""
    return text.encode("utf-8", "replace").decode("utf-8")


def text_field(view: widgets.View[ConfigView], name: str, height: int) -> str:
    """A text field's widget at a height in px, or of one line at 0; `widgets` makes all of them three lines high."""
    p = view.view.param(name)
    asked = state.get(name, p.default)
    state.feed(name, encodable(asked) if isinstance(asked, str) else p.default)
    help_text = f"`{name}` · {p.meaning}. Legal: {p.legal}."
    title = widgets.label(name)
    made = (
        st.text_area(title, key=name, help=help_text, max_chars=p.max_length, height=height)
        if height
        else st.text_input(title, key=name, help=help_text, max_chars=p.max_length, placeholder="bf16, layer, drift …")
    )
    state.take(name, made)
    view.values[name] = made
    return made or ""


def picked() -> None:
    """A model of the list goes into the box."""
    name = st.session_state["_model"]
    st.session_state["_model"] = None
    if name is not None:
        state.put(config=config_text(name), kind=0, exported="config")


def uploaded() -> None:
    """The positional fields of a file go into the box; what is wrong with it is kept for the run."""
    st.session_state.pop(REFUSED, None)
    file = st.session_state.get("_upload")
    if file is None:
        return
    try:
        text = compute.reduced(file.getvalue())
        most = ConfigView.param("config").max_length or 0
        if len(text) > most:
            problem = Problem("file", f"{len(text):,} characters", f"positional fields of at most {most:,} characters")
            raise SpecError([problem])
    except SpecError as error:
        st.session_state[REFUSED] = error.problems, state.get("config", LLAMA31_CONFIG)
        return
    state.put(config=text, kind=0, exported="config")


chosen = widgets.chosen()
view = widgets.View(ConfigView)
show.titled("Config", chosen, "Paste a `config.json` and see what its layers really do with positions.")
answer = st.container()

box, picture = st.columns([2, 3])
with box:
    st.selectbox(
        "Public model", list(MODELS), index=None, key="_model", on_change=picked,
        placeholder="Pick one to fill the box…",
    )  # fmt: skip
    text = text_field(view, "config", 300)
    st.file_uploader(
        "Or a file", type=["json"], key="_upload", on_change=uploaded, max_upload_size=1,
        help="Only its positional fields are kept; nothing of it is executed. At most 1 MB.",
    )  # fmt: skip
made = compute.read(text)
with answer:
    problems, beside = st.session_state.get(REFUSED, ((), ""))
    if problems and beside == text:  # until the box changes
        refused(problems)
    if not isinstance(made, ModelEncoding):
        refused(made)
        if len(text) >= (ConfigView.param("config").max_length or 0):
            st.info("The box ends at 20,000 characters: upload the file instead.", icon=":material/upload_file:")
        st.caption("Shown instead: Llama 3.1 8B.")
        text = LLAMA31_CONFIG
        made = compute.read(text)
    assert isinstance(made, ModelEncoding)
    model = pictures.model(made)
    st.markdown(f"##### {pictures.answer(model)}")
    show.numbers(pictures.key_numbers(model))

with picture:
    spectrum, slopes = pictures.spectrum_lines(model), pictures.slope_lines(model)
    if model.several or spectrum is None:
        cells, series = pictures.layer_strip(model)
        show.chart(
            strip.strip, cells, name="layers", alt_text="What every layer does", series=series,
            height=135 + 26 * len(series),
        )  # fmt: skip
        show.below(pictures.seen_strip(model), pictures.kind_tries(model))
    if spectrum is not None:
        lines, dashed = spectrum
        show.chart(
            curves.curves, lines.data, name="spectrum", alt_text="Wavelength of every pair, before and after scaling",
            x_title="pair (high to low frequency)", y_title=lines.y_title, series=lines.series, y_log=True,
            dashed=dashed, guide_colour=TRAINING_LENGTH_COLOUR, height=320, legend_columns=1,
        )  # fmt: skip
        below = st.container()  # its links carry the kind that is chosen further down
    if slopes is not None:
        show.chart(
            curves.curves, slopes.data, name="slopes", alt_text="Slope of every head", x_title="head", points=True,
            y_title=slopes.y_title, series=slopes.series, y_log=True, height=240,
        )  # fmt: skip
        show.below("Each point is a head: the steeper, the shorter-sighted.", pictures.uses(model))

for say, icon, level in ((st.warning, ":material/warning:", "warning"), (st.info, ":material/info:", "note")):
    if told := pictures.findings(model, level):
        say(told, icon=icon)

st.markdown("#### Effective parameters")
st.dataframe(pictures.table(model), hide_index=True, width="stretch")

if model.ropes:
    st.markdown("#### What a port has to compute")
    controls = st.columns([1, 1, 2])
    kind = 0
    with controls[0]:
        digits = view.field("digits")
    with controls[1]:
        if model.several:
            kind = view.field("kind", maximum=len(model.kinds) - 1)
    with below:
        show.below(pictures.seen_spectrum(model), pictures.uses(model, kind))
    rope = model.kinds[kind].rope
    if rope is None:
        st.caption(f"{show.plain(model.kinds[kind].name)}: no frequencies.")
    else:
        for name, listed in pictures.expected(rope, digits):
            st.caption(
                f"{name}, {rope.rotary_dim // 2} pairs, radians a position: {show.plain(model.kinds[kind].name)}"
            )
            st.code(listed, language="json", wrap_lines=True, height=130)
        with st.expander("First rows of cos and sin"):
            st.code(pictures.first_rows(rope, digits), language="text", wrap_lines=True, height=260)

st.markdown("#### In other words")
controls = st.columns([1, 1, 2])
with controls[0]:
    exported = view.field("exported")
with controls[1]:
    target = view.field("target")
of_config = exported == "config"
export = compute.exported_config(text, target) if of_config else compute.exported_scheme(chosen.spec, target)
for loss in export.losses:
    st.warning(show.plain(loss), icon=":material/warning:")
if isinstance(export.content, bytes):
    if export.content:
        st.download_button(
            f"Download NPZ ({len(export.content) / 1000:,.0f} kB)", data=export.content, file_name="posenc.npz",
            mime="application/octet-stream", icon=":material/download:", on_click="ignore",
        )  # fmt: skip
elif export.text:
    st.code(encodable(export.text), language=export.language, height=min(420, 60 + 22 * export.text.count("\n") + 22))
st.caption(f"{export.name}. {pictures.HOW[target]} What this target cannot say is told above it.")
with st.expander("The sidebar's scheme, which can be exported too", expanded=not of_config):
    show.formulae(chosen)

st.markdown("#### Diagnosis manual")
with st.container():
    symptom = text_field(view, "symptom", 0)
view.close()
entries = found(symptom)
if not entries:
    st.caption("No entry holds all of these words.")
columns = st.columns(2)
for index, entry in enumerate(entries):  # the first half on the left, so that a phone keeps the order
    with columns[index >= -(-len(entries) // 2)], st.expander(entry.symptom):
        st.markdown(f"**Likely cause.** {entry.cause}\n\n**Proof.** {entry.look}\n\n**Fix.** {entry.fix}")
        show.below(
            "Reported as " + ", ".join(entry.reports) + "." if entry.reports else "",
            [Try("see it", entry.query, page=entry.page)],
        )
