"""Entry file: the table of pages and the shared sidebar."""

import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:  # `streamlit run` puts only this file's folder there
    sys.path.insert(0, ROOT)
os.environ.setdefault("PYTHONPATH", ROOT)

import streamlit as st  # noqa: E402

from explorer import history, show, state, widgets  # noqa: E402
from explorer.compute.common import boot  # noqa: E402

st.set_page_config(page_title="Positional Encoding Explorer", page_icon=f"{ROOT}/assets/icon.png", layout="wide")
boot()

PAGES = {
    "": st.Page(f"{ROOT}/pages/start.py", title="Start", icon=":material/home:", default=True),
    "encodings": st.Page(f"{ROOT}/pages/encodings.py", title="Encodings", icon=":material/gradient:"),
    "decay": st.Page(f"{ROOT}/pages/decay.py", title="Decay", icon=":material/trending_down:"),
    "attention": st.Page(f"{ROOT}/pages/attention.py", title="Attention", icon=":material/grid_on:"),
    "config": st.Page(f"{ROOT}/pages/config.py", title="Config", icon=":material/data_object:"),
    "extension": st.Page(f"{ROOT}/pages/extension.py", title="Extension", icon=":material/open_in_full:"),
    "porting": st.Page(f"{ROOT}/pages/porting.py", title="Porting", icon=":material/build:"),
    "timing": st.Page(f"{ROOT}/pages/timing.py", title="Timing", icon=":material/timer:"),
    "lab": st.Page(f"{ROOT}/pages/lab.py", title="Extrapolation lab", icon=":material/science:"),
    "claims": st.Page(f"{ROOT}/pages/claims.py", title="Claims", icon=":material/fact_check:"),
    "choosing": st.Page(f"{ROOT}/pages/choosing.py", title="Choosing", icon=":material/alt_route:"),
}
st.session_state[show.PAGES] = PAGES
page = st.navigation(list(PAGES.values()))
state.begin(page.url_path)
with st.sidebar:
    st.session_state[widgets.CHOSEN] = widgets.sidebar()
    history.keep_short()
notice = st.container()  # filled last: the page's own widgets may have had to replace values too
try:
    page.run()
    show.claims_here()
except Exception:  # the URL of what led here is worth having; an interrupted run must not write its half of it
    state.end()
    raise
state.end()
with notice:
    show.notice()
