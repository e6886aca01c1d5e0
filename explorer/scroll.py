"""Brings a place of the page into sight, which Streamlit does only when the page changes."""

from __future__ import annotations

import streamlit as st

_JS = """
export default function ({ data, parentElement }) {
  const before = window.posencShown;
  window.posencShown = data.shown;
  if (!data.shown || before === undefined || before === data.shown) return;
  const place = parentElement.host ?? parentElement;
  place.style.scrollMarginTop = "5rem"; // the app's own bar
  place.scrollIntoView({ block: "start" });
}
"""
_component = st.components.v2.component("posenc_scroll", js=_JS)


def to(shown: str) -> None:
    """Mount where the reader is to look; draws nothing. Scrolls there when `shown` becomes another text, not empty.

    Nothing moves when the app is opened, as its title comes first.
    """
    _component(key="_scroll", data={"shown": shown}, height=1)
