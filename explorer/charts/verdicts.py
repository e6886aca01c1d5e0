"""Claims as a grid of cells, each with its number and the sign of its verdict. Pure: data frame in, chart out."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from explorer.charts.curves import NOTE_COLOUR

COLUMNS = 9
CELL = 46  # px, the height of a row
LEGEND = 92  # px that it takes of the height
CELLS = "cell"  # the selection: a click on a cell tells its claim's number


def verdicts(data: pd.DataFrame, *, series: Sequence[tuple[str, str]], rows: int) -> alt.TopLevelMixin:
    """One cell a claim, of columns column, row, number, sign, series, ink, sentence, fits (bool) and chosen (bool).

    Cells that do not fit are pale, a chosen one has a frame; `series` are the verdicts with their colours, `ink` is
    that of the text on a cell.
    """
    base = alt.Chart(data).encode(
        x=alt.X("column:O", axis=None, scale=alt.Scale(domain=list(range(COLUMNS)), paddingInner=0.06)),
        y=alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(rows)), paddingInner=0.08)),
        opacity=alt.condition("datum.fits", alt.value(1.0), alt.value(0.25)),
    )
    tooltip = [
        alt.Tooltip("number:Q", title="claim"),
        alt.Tooltip("series:N", title="verdict"),
        alt.Tooltip("sentence:N", title="says"),
    ]
    cells = (
        base.mark_rect(cornerRadius=4)
        .encode(
            color=alt.Color(
                "series:N",
                scale=alt.Scale(domain=[s[0] for s in series], range=[s[1] for s in series]),
                legend=alt.Legend(orient="top", title=None, columns=2, symbolType="square", labelLimit=240),
            ),
            stroke=alt.condition("datum.chosen", alt.value(NOTE_COLOUR), alt.value(None)),
            strokeWidth=alt.value(4),
            tooltip=tooltip,
        )
        .properties(name="cells")  # else named by a hash of the data
        .add_params(alt.selection_point(name=CELLS, fields=["number"], toggle=False, clear=False))
    )
    texts = [
        base.mark_text(dy=dy, fontSize=size, baseline="middle", fontWeight="bold").encode(
            text=text, tooltip=tooltip, color=alt.Color("ink:N", scale=None, legend=None)
        )
        for text, size, dy in (("number:Q", 13, -10), ("sign:N", 18, 10))
    ]
    return alt.layer(cells, *texts).properties(height=rows * CELL + LEGEND)
