"""Start: what this is, the chosen scheme at a glance, and the story of positional encodings."""

import streamlit as st

from explorer import show, state, widgets
from explorer.compute.encodings import key_numbers
from explorer.pictures import encodings as pictures
from explorer.pictures.common import layer_spec, names_of
from explorer.text import ENCODING_SEEN, INTRODUCTION, STORY, Try

chosen = widgets.chosen()
show.heading("Positional Encoding Explorer", chosen, INTRODUCTION)
show.numbers(key_numbers(chosen.spec, chosen.seq_len))
specs = [layer_spec(s, 0) for s in chosen.specs]
large = pictures.same_scale([pictures.encoding_picture(s, chosen.seq_len, "cos", 0, ()) for s in specs])
for index, (column, name, picture) in enumerate(zip(st.columns(len(specs)), names_of(specs), large, strict=True)):
    with column:
        if len(specs) > 1:
            st.caption(name)
        show.picture(picture, name=f"glance_{index}", alt_text=f"{name} at a glance", height=380)
show.below(
    ENCODING_SEEN[specs[0].hook],
    [Try("all pictures of this scheme", {}, "The encoding as waves, clock hands and similarity.", page="encodings")],
)

st.markdown("### Why each scheme came after the last")
for first in range(0, len(STORY), 2):
    for column, (number, step) in zip(st.columns(2), list(enumerate(STORY, 1))[first : first + 2], strict=False):
        with column, st.container(border=True, height="stretch"):
            st.markdown(f"**{number}. {step.title}**  \n{step.sentence}")
            st.page_link(
                st.session_state[show.PAGES][step.page],
                label=step.link,
                icon=":material/arrow_forward:",
                query_params={state.GO: "1"} | step.query,
            )
