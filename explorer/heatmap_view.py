"""Shows heatmaps on the page: one large map, or a grid of small ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import streamlit as st

from explorer.charts.heatmap import Heatmap, pack, payload

_CHARTS = Path(__file__).parent / "charts"
_canvas = st.components.v2.component(
    "posenc_heatmap",
    css=(_CHARTS / "heatmap.css").read_text(encoding="utf-8"),
    js=(_CHARTS / "heatmap.js").read_text(encoding="utf-8"),
)


def cell_of(click: Any, panels: Sequence[Heatmap]) -> tuple[int, float, float] | None:
    """A browser's click {panel, row, col} -> (panel, x, y) in axis units; None unless it names a cell."""
    if not isinstance(click, dict):
        return None
    place = [click.get(name) for name in ("panel", "row", "col")]
    if not all(type(i) is int for i in place):
        return None
    panel, row, col = cast("list[int]", place)
    if not 0 <= panel < len(panels):
        return None
    target = panels[panel]
    if not (0 <= row < target.rows and 0 <= col < target.cols):
        return None
    return panel, target.x.at(col), target.y.at(row)


def heatmap(
    panels: Heatmap | Sequence[Heatmap],
    *,
    key: str,
    height: int = 360,
    columns: int | None = None,
    selected: int | None = None,
    on_click: Callable[[int, float, float], None] | None = None,
    alt: str,
) -> None:
    """One panel fills the width at this height in px; several become thumbnails no taller than that.

    on_click gets the panel's index and the cell's x and y in axis units, before the page reruns.
    """
    shown = [panels] if isinstance(panels, Heatmap) else list(panels)
    content = payload(shown, alt=alt, height=height, columns=columns, selected=selected, clickable=on_click is not None)

    def clicked() -> None:
        cell = cell_of(st.session_state[key].get("click"), shown)
        if on_click is not None and cell is not None:
            on_click(*cell)

    _canvas(key=key, data=pack(content), on_click_change=clicked)
