"""The layers of a model as a row of cells. Pure: data frame in, chart out."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from explorer.charts.curves import NOTE_COLOUR


def strip(data: pd.DataFrame, *, series: Sequence[tuple[str, str]], height: int = 120) -> alt.TopLevelMixin:
    """One cell a layer, of columns layer (from 0), end (layer + 1), series and note, coloured by series.

    The height holds the axis and the legend, one row a series, too.
    """
    names, colours = [s[0] for s in series], [s[1] for s in series]
    return (
        alt.Chart(data)
        .mark_rect(stroke=NOTE_COLOUR, strokeWidth=0.6)
        .encode(
            x=alt.X(
                "layer:Q",
                title="layer",
                scale=alt.Scale(nice=False, zero=False),
                axis=alt.Axis(grid=False, tickMinStep=1, format="d"),
            ),
            x2="end:Q",
            color=alt.Color(
                "series:N",
                scale=alt.Scale(domain=names, range=colours),
                legend=alt.Legend(
                    orient="top",
                    title=None,
                    columns=1,
                    labelLimit=560,
                    symbolType="square",
                    symbolStrokeWidth=0,
                    offset=6,
                ),
            ),
            tooltip=[
                alt.Tooltip("layer:Q", title="layer"),
                alt.Tooltip("series:N", title="kind"),
                alt.Tooltip("note:N", title="note"),
            ],
        )
        .properties(height=height)
    )
