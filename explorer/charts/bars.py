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
    legend: bool | None = None,
    low_high: tuple[str, str] | None = None,
    guide: tuple[str, float] | None = None,
    notes: Sequence[str] = (),
    beside: bool = True,
    label_limit: int = 140,
    legend_columns: int = 3,
) -> alt.TopLevelMixin:
    """Horizontal bars of columns name, value, series, in the order of the rows; `names` is how many names there are.

    With labels, a column text stands at the end of each bar, and no legend unless `legend` asks for one. `low_high`
    are the names of columns low and high, drawn as a whisker; `guide` is a label and the value at which a dashed line
    stands, and the labels of shorter bars stand behind it; `notes` are further columns of text that a bar tells on
    hover. Without `beside` a name has one bar, whatever its series. Names longer than `label_limit` px are cut; a
    phone that shows long ones has no room for a legend of more than one of the `legend_columns`.
    """
    many = beside and len(series) > 1
    shown = not labels if legend is None else legend
    scale = alt.Scale(type="log" if log else "linear", domain=list(domain) if domain else alt.Undefined)
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=[s[0] for s in series], range=[s[1] for s in series]),
        legend=alt.Legend(orient="top", title=None, columns=legend_columns) if len(series) > 1 and shown else None,
    )
    axis = alt.Axis(tickCount=6, values=list(ticks) or alt.Undefined, labelFlush=20)
    x = alt.X("value:Q", title=value_title, scale=scale, axis=axis)
    y = alt.Y("name:N", title=name_title, sort=None, axis=alt.Axis(labelLimit=label_limit, labelOverlap=False))
    offset = alt.YOffset("series:N", sort=[s[0] for s in series]) if many else alt.Undefined
    ends = low_high or ()
    tooltip = [
        alt.Tooltip("series:N", title="what"),
        alt.Tooltip("name:N", title=name_title),
        alt.Tooltip("value:Q", title=value_title, format=value_format),
        *(alt.Tooltip(f"{f}:Q", title=t, format=value_format) for f, t in zip(("low", "high"), ends, strict=False)),
        *(alt.Tooltip(f"{note}:N") for note in notes),
    ]
    base = alt.Chart(data)
    drawn = base.mark_bar(cornerRadiusEnd=2).encode(
        x=x,
        x2=alt.X2Datum(domain[0]) if log and domain else alt.Undefined,  # there is no zero to start at
        y=y,
        yOffset=offset,
        color=colour,
        tooltip=tooltip,
    )
    bar = 17 if labels and many else 10
    lines = -(-len(series) // legend_columns)
    above = (22 + 18 * lines if labels and legend else 0) + (15 if guide else 0)
    height = 50 + above + names * (14 + bar * (len(series) if beside else 1))  # 50 for the axis, which counts
    layers: list[alt.Chart] = [drawn]
    if low_high:
        whisker = base.mark_rule(strokeWidth=2, color=NOTE_COLOUR)
        low = alt.X("low:Q", title=value_title, scale=scale, axis=axis)
        layers.append(whisker.encode(x=low, x2="high:Q", y=y, yOffset=offset, tooltip=tooltip))
    if guide:
        once = base.transform_aggregate(rows="count()")  # one row, so that its marks are drawn once
        at = alt.X(datum=guide[1], type="quantitative", title=value_title, scale=scale, axis=axis)
        layers.append(once.mark_rule(strokeDash=[5, 4], color=NOTE_COLOUR).encode(x=at))
        told = once.mark_text(align="left", baseline="bottom", dx=-2, fontSize=11, color=NOTE_COLOUR)
        layers.append(told.encode(x=at, y=alt.value(-3), text=alt.value(guide[0])))
    if labels:
        down = bar * 0.42 if many else 0  # an offset puts text at the edge of its bar
        text = base.mark_text(align="left", baseline="middle", dx=4, dy=down, fontSize=11, color=NOTE_COLOUR)
        field = "high" if low_high else "value"
        if guide:
            text, field = text.transform_calculate(behind=f"max(datum.{field}, {guide[1]})"), "behind"
        end = alt.X(f"{field}:Q", title=value_title, scale=scale, axis=axis)
        layers.append(text.encode(x=end, y=y, yOffset=offset, text="text:N"))
    return (alt.layer(*layers) if len(layers) > 1 else drawn).properties(height=height)
