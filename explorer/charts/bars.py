"""Bars: a number for each of a few names. Pure: data frame in, chart out."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from explorer.charts.curves import NOTE_COLOUR


def bars(
    data: pd.DataFrame,
    *,
    value_title: str,
    name_title: str,
    series: Sequence[tuple[str, str]],
    log: bool = False,
    domain: tuple[float, float] | None = None,
    names: int,
    value_format: str = ",.4~g",
    labels: bool = False,
    ticks: Sequence[float] = (),
) -> alt.TopLevelMixin:
    """Horizontal bars of columns name, value, series, in the order of the rows; `names` is how many names there are.

    With labels, a column text stands at the end of each bar instead of a legend.
    """
    scale = alt.Scale(type="log" if log else "linear", domain=list(domain) if domain else alt.Undefined)
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=[s[0] for s in series], range=[s[1] for s in series]),
        legend=alt.Legend(orient="top", title=None) if len(series) > 1 and not labels else None,
    )
    axis = alt.Axis(tickCount=6, values=list(ticks) or alt.Undefined)
    x = alt.X("value:Q", title=value_title, scale=scale, axis=axis)
    y = alt.Y("name:N", title=name_title, sort=None, axis=alt.Axis(labelLimit=140, labelOverlap=False))
    offset = alt.YOffset("series:N", sort=[s[0] for s in series]) if len(series) > 1 else alt.Undefined
    drawn = (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=x,
            x2=alt.X2Datum(domain[0]) if log and domain else alt.Undefined,  # there is no zero to start at
            y=y,
            yOffset=offset,
            color=colour,
            tooltip=[
                alt.Tooltip("series:N", title="what"),
                alt.Tooltip("name:N", title=name_title),
                alt.Tooltip("value:Q", title=value_title, format=value_format),
            ],
        )
    )
    bar = 17 if labels and len(series) > 1 else 10
    height = 50 + names * (14 + bar * len(series))  # 50 for the axis, which counts
    if not labels:
        return drawn.properties(height=height)
    down = bar * 0.42 if len(series) > 1 else 0  # an offset puts text at the edge of its bar
    ends = alt.Chart(data).mark_text(align="left", baseline="middle", dx=4, dy=down, fontSize=11, color=NOTE_COLOUR)
    return alt.layer(drawn, ends.encode(x=x, y=y, yOffset=offset, text="text:N")).properties(height=height)
