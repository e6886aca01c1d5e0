"""Line charts of the app: one function, told by its options what the axes mean. Pure: data frame in, chart out.

The chart never looks into the data (limits and names come as options), so that its specification can be kept while a
slider moves and only the data travels to the browser.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

COLUMNS = ("part", "x", "y", "low", "high", "series", "strand", "hover")
HOVER_POINTS = 400
NOTE_COLOUR = "#808080"  # readable on light and dark

alt.data_transformers.disable_max_rows()


def line(
    series: str, x: ArrayLike, y: ArrayLike, low: ArrayLike = np.nan, high: ArrayLike = np.nan, *, strand: int = 0
) -> pd.DataFrame:
    """Rows of one line; NaN leaves a gap. low and high are only told on hover, if the chart has names for them.

    A series may have several lines, each with its own `strand`.
    """
    x, y = np.asarray(x), np.asarray(y)
    low, high = np.broadcast_to(low, x.shape), np.broadcast_to(high, x.shape)
    return _rows("line", series, strand, x=x, y=y, low=low, high=high)


def band(series: str, x: ArrayLike, low: ArrayLike, high: ArrayLike) -> pd.DataFrame:
    """Rows of a filled band from low to high."""
    return _rows("band", series, x=x, low=low, high=high)


def guide(label: str, *, x: float | None = None, y: float | None = None) -> pd.DataFrame:
    """One dashed line across the plot with a label: vertical at x or horizontal at y."""
    part = "upright" if x is not None else "level"
    return _rows(part, label, x=[np.nan if x is None else x], y=[np.nan if y is None else y])


def _rows(part: str, series: str, strand: int = 0, **columns: ArrayLike) -> pd.DataFrame:
    values = {name: np.asarray(value, dtype=np.float64) for name, value in columns.items()}
    n = len(next(iter(values.values())))
    stride = max(1, -(-n // HOVER_POINTS))
    numbers = {name: values.get(name, np.full(n, np.nan)) for name in ("x", "y", "low", "high")}
    names = {"part": part, "series": series, "strand": strand, "hover": np.arange(n) % stride == 0}
    return pd.DataFrame(numbers | names, columns=COLUMNS)


def together(*frames: pd.DataFrame) -> pd.DataFrame:
    """All rows in one frame."""
    return pd.concat(frames, ignore_index=True)


def curves(
    data: pd.DataFrame,
    *,
    x_title: str,
    y_title: str,
    series: Sequence[tuple[str, str]],
    x_log: bool = False,
    y_log: bool = False,
    x_domain: tuple[float, float] | None = None,
    y_domain: tuple[float, float] | None = None,
    bands: bool = False,
    points: bool = False,
    x_ticks: Sequence[float] = (),
    low_high: tuple[str, str] | None = None,
    guide_colour: str = NOTE_COLOUR,
    height: int = 260,
    dashed: Sequence[str] = (),
    legend_columns: int = 3,
    note: str | None = None,
) -> alt.TopLevelMixin:
    """Lines, bands and guides made by `line`, `band` and `guide`; `series` are names with their colours.

    `dashed` are some of those names.
    """
    names, colours = [s[0] for s in series], [s[1] for s in series]
    x = alt.X(
        "x:Q", title=x_title, scale=_scale(x_log, x_domain),
        axis=alt.Axis(grid=False, tickCount=8, labelFlush=True, labelOverlap=True,
                      values=list(x_ticks) if x_ticks else alt.Undefined,
                      format=",.10~g" if x_ticks else alt.Undefined),
    )  # fmt: skip
    y = alt.Y("y:Q", title=y_title, scale=_scale(y_log, y_domain), axis=alt.Axis(tickCount=6))
    shape = {"symbolType": "stroke", "symbolSize": 300, "symbolStrokeWidth": 2} if dashed else {"symbolSize": 60}
    shown = alt.Legend(orient="top", title=None, labelLimit=240, columns=legend_columns, symbolOpacity=1, **shape)
    legend = shown if len(names) > 1 else None
    colour = alt.Color("series:N", scale=alt.Scale(domain=names, range=colours), legend=legend)
    base = alt.Chart(data)
    # only points tell: Streamlit's own tooltip would call a band's lower end y, and a line's first point all of it
    tooltip = [
        alt.Tooltip("series:N", title="what"),
        alt.Tooltip("x:Q", title=x_title, format=",.6~g"),
        alt.Tooltip("y:Q", title=y_title, format=",.6~g"),
    ]
    if note is not None:  # a column that says more of each point
        tooltip.append(alt.Tooltip(f"{note}:N", title=note))
    for field, title in zip(("low", "high"), low_high or (), strict=False):
        tooltip.append(alt.Tooltip(f"{field}:Q", title=title, format=",.6~g"))
    layers: list[alt.Chart] = []
    if bands:
        layers.append(
            base.transform_filter("datum.part === 'band'")
            .mark_area(opacity=0.22)
            .encode(x=x, y=alt.Y("low:Q", title=y_title), y2="high:Q", color=colour, tooltip=alt.value(None))
        )
    lines = base.transform_filter("datum.part === 'line'")
    patterns = [[5, 3] if name in dashed else [1, 0] for name in names]
    dash = alt.StrokeDash("series:N", scale=alt.Scale(domain=names, range=patterns), legend=None)
    layers.append(
        lines.mark_line(strokeWidth=1.6, clip=True).encode(
            x=x,
            y=y,
            color=colour,
            strokeDash=dash if dashed else alt.Undefined,
            detail="strand:N",
            tooltip=alt.value(None),
        )
    )
    dots = base.transform_filter("datum.part === 'line' && datum.hover && isValid(datum.y)")
    layers.append(
        dots.mark_point(filled=True, size=45 if points else 90, opacity=1 if points else 0, clip=True).encode(
            x=x, y=y, color=colour, tooltip=tooltip
        )
    )
    for part, channel in (("upright", "x"), ("level", "y")):
        marks = base.transform_filter(f"datum.part === '{part}'")
        where = {channel: x if channel == "x" else y}
        layers.append(marks.mark_rule(strokeDash=[5, 4], color=guide_colour, clip=True).encode(**where))
        text = (
            marks.mark_text(align="left", baseline="top", dx=4, dy=3, color=guide_colour, fontSize=11, clip=True)
            if part == "upright"
            else marks.mark_text(align="left", baseline="bottom", dx=4, dy=-2, color=guide_colour)
        )
        other = {"y": alt.value(0)} if part == "upright" else {"x": alt.value(0)}
        layers.append(text.encode(**where, **other, text="series:N"))
    return alt.layer(*layers).properties(height=height)


def _scale(log: bool, domain: tuple[float, float] | None) -> alt.Scale:
    return alt.Scale(
        type="log" if log else "linear",
        zero=alt.Undefined if log else False,
        domain=alt.Undefined if domain is None else list(domain),
        nice=domain is None,
    )
