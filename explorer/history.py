"""Keeps the browser's history to the reader's own steps: pages and links, not every position of a slider."""

from __future__ import annotations

import streamlit as st

# Streamlit pushes an entry for every write of the query. Its own widget binding replaces the entry instead, which is
# what a reader expects; there is no option for it, so a push that changes only the query becomes a replacement, unless
# the reader has just followed a link to the page shown. On the way to another page it can push the new page's query
# onto the old page's path first; that one is dropped, else Back would open the old page with the new page's query.
_JS = """
export default function () {
  if (history.posencReplaces) return;
  history.posencReplaces = true;
  const push = history.pushState.bind(history);
  let followed = null, when = 0;
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-testid=stPageLink] a");
    if (link) [followed, when] = [link.pathname, Date.now()];
  }, true);
  history.pushState = (state, title, url) => {
    const path = new URL(url ?? location.href, location.href).pathname;
    const link = Date.now() - when < 10000 ? followed : null;
    const stays = path === location.pathname;
    if (stays && link !== null && link !== path) return;
    if (stays && link === null) history.replaceState(state, title, url);
    else push(state, title, url);
    followed = null;
  };
}
"""
_component = st.components.v2.component("posenc_history", js=_JS)


def keep_short() -> None:
    """Mount once in every run; draws nothing."""
    _component(key="_history", height=1)
