"""Keeps the browser's history to the reader's own steps: pages and links, not every position of a slider."""

from __future__ import annotations

import streamlit as st

# Streamlit pushes an entry for every write of the query. Its own widget binding replaces the entry instead, which is
# what a reader expects; there is no option for it, so a push that changes only the query becomes a replacement, unless
# the reader has just followed a link to the page shown.
_JS = """
export default function () {
  if (history.posencReplaces) return;
  history.posencReplaces = true;
  const push = history.pushState.bind(history);
  let followed = false;
  document.addEventListener("click", (event) => {
    if (event.target.closest?.('[data-testid="stPageLink"]')) followed = true;
  }, true);
  history.pushState = (state, title, url) => {
    const target = new URL(url ?? location.href, location.href);
    if (target.pathname === location.pathname && !followed) history.replaceState(state, title, url);
    else push(state, title, url);
    followed = false;
  };
}
"""
_component = st.components.v2.component("posenc_history", js=_JS)


def keep_short() -> None:
    """Mount once in every run; draws nothing."""
    _component(key="_history", height=1)
