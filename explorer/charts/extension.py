"""Charts of the Extension page: dials with the arc that was seen, and frequency ratios over what was done to each pair.

Pure: data frame in, chart out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from explorer.charts.curves import NOTE_COLOUR, curves
from explorer.charts.palette import GREEN, ORANGE, SKY, VERMILLION

DIALS_PER_ROW = 4
SEEN, NEW = "seen in training", "new at the target"
ACTIONS: dict[str, str] = {"kept": GREEN, "ramped": ORANGE, "divided": VERMILLION, "zero": SKY}
FULL = 2 * np.pi
HALF_LABEL = 24  # px: half the width of 1,000,000 on an axis


def against_length(data: pd.DataFrame, **options: Any) -> alt.TopLevelMixin:
    """`curves` on a log axis of x that begins and ends with the data, so that its specification stays when a length
    changes; numbers near its ends are moved inwards."""
    made = curves(data, x_log=True, **options)
    assert isinstance(made, alt.LayerChart)
    for layer in made["layer"]:
        x = layer["encoding"]["x"]
        if isinstance(x, alt.X):
            x["scale"] = alt.Scale(type="log", nice=False)
            x["axis"]["labelFlush"] = HALF_LABEL
    return made


def dials_data(
    pairs: Sequence[int], seen: NDArray[np.float64], reached: NDArray[np.float64], bad: NDArray[np.bool_]
) -> pd.DataFrame:
    """Two arcs a pair from turns: what was seen, and where `bad` what is reached past it, at most one turn in all."""
    rows = []
    for index, pair in enumerate(pairs):
        end = min(seen[pair], 1.0)
        arcs = [(SEEN, 0.0, end)]
        if bad[pair]:
            arcs.append((NEW, end, min(reached[pair], 1.0)))
        for part, start, stop in arcs:
            rows.append(
                {
                    "part": part, "column": index % DIALS_PER_ROW, "row": index // DIALS_PER_ROW, "start": start * FULL,
                    "stop": stop * FULL, "pair": f"pair {pair}", "seen": seen[pair], "reached": reached[pair],
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def dials(data: pd.DataFrame, *, rows: int, seen_colour: str, new_colour: str) -> alt.TopLevelMixin:
    """Dials in rows of four, turning clockwise from the top: the arc seen filled, the arc reached past it in another
    colour."""
    tooltip = [
        alt.Tooltip("pair:N"),
        alt.Tooltip("part:N", title="arc"),
        alt.Tooltip("seen:Q", title="turns in training", format=",.4~g"),
        alt.Tooltip("reached:Q", title="turns at the target", format=",.4~g"),
    ]
    base = alt.Chart(data).encode(
        x=alt.X("column:O", axis=None, scale=_grid(DIALS_PER_ROW)), y=alt.Y("row:O", axis=None, scale=_grid(rows))
    )
    face = base.mark_point(size=4200, strokeWidth=1.2, color=NOTE_COLOUR, fill="transparent")
    arcs = base.mark_arc(outerRadius=35, innerRadius=7).encode(
        theta=alt.Theta("start:Q", scale=None, stack=None), theta2="stop:Q", tooltip=tooltip,
        color=alt.Color(
            "part:N", scale=alt.Scale(domain=[SEEN, NEW], range=[seen_colour, new_colour]),
            legend=alt.Legend(orient="top", title=None, symbolType="circle"),
        ),
    )  # fmt: skip
    label = base.mark_text(dy=47, fontSize=11, color=NOTE_COLOUR).encode(text="pair:N")
    return alt.layer(face, arcs, label).properties(height=rows * 108 + 56)  # the legend counts


def _grid(count: int) -> alt.Scale:
    return alt.Scale(domain=list(range(count)), paddingInner=0, paddingOuter=0)


def ratios_data(
    lines: Sequence[tuple[str, NDArray[np.float64]]], actions: Sequence[str], span: tuple[float, float]
) -> pd.DataFrame:
    """One row a pair and line, and one a run of pairs with the same action: from x to x2, and over the whole `span`
    from y to y2."""
    frames = [
        pd.DataFrame({"part": "line", "x": np.arange(len(y)), "y": y, "series": name, "action": None})
        for name, y in lines
    ]
    starts = [i for i, action in enumerate(actions) if i == 0 or actions[i - 1] != action]
    ends = [*starts[1:], len(actions)]
    runs = pd.DataFrame(
        {
            "part": "run", "x": np.array(starts) - 0.5, "x2": np.array(ends) - 0.5, "y": span[0], "y2": span[1],
            "action": [actions[i] for i in starts], "pairs": np.array(ends) - np.array(starts),
        }
    )  # fmt: skip
    return pd.concat([runs, *frames], ignore_index=True)


def ratios(
    data: pd.DataFrame, *, series: Sequence[tuple[str, str]], y_title: str, dashed: Sequence[str] = (),
    legend_columns: int = 2, height: int = 380,
) -> alt.TopLevelMixin:  # fmt: skip
    """Ratios on a log axis over the pairs, with ticks at powers of two; behind them what was done to the pairs of one
    method, over the whole height."""
    base, names = alt.Chart(data), [s[0] for s in series]
    scale = alt.Scale(type="log", base=2, nice=False)
    x = alt.X("x:Q", title="pair (high to low frequency)", scale=alt.Scale(zero=False, nice=False),
              axis=alt.Axis(grid=False, tickMinStep=1))  # fmt: skip
    y = alt.Y("y:Q", title=y_title, scale=scale, axis=alt.Axis(tickCount=6, format=".3~g"))
    fill = alt.Fill(
        "action:N", scale=alt.Scale(domain=list(ACTIONS), range=list(ACTIONS.values())),
        legend=alt.Legend(orient="bottom", title=None, symbolType="square", symbolOpacity=0.4),
    )  # fmt: skip
    runs = base.transform_filter("datum.part === 'run'").mark_rect(opacity=0.2).encode(
        x=x, x2="x2:Q", y=y, y2="y2:Q", fill=fill,
        tooltip=[alt.Tooltip("action:N"), alt.Tooltip("pairs:Q")],
    )  # fmt: skip
    lines = base.transform_filter("datum.part === 'line'")
    colour = alt.Color(
        "series:N", scale=alt.Scale(domain=names, range=[s[1] for s in series]),
        legend=alt.Legend(orient="top", title=None, labelLimit=240, columns=legend_columns, symbolType="stroke"),
    )  # fmt: skip
    dash = alt.StrokeDash(
        "series:N", scale=alt.Scale(domain=names, range=[[5, 3] if n in dashed else [1, 0] for n in names]), legend=None
    )
    drawn = lines.mark_line(strokeWidth=1.8, clip=True).encode(x=x, y=y, color=colour, strokeDash=dash)
    dots = lines.mark_point(size=60, opacity=0, filled=True, clip=True).encode(
        x=x, y=y, color=colour,
        tooltip=[
            alt.Tooltip("series:N", title="what"), alt.Tooltip("x:Q", title="pair"),
            alt.Tooltip("y:Q", title=y_title, format=",.6~g"),
        ],
    )  # fmt: skip
    return alt.layer(runs, drawn, dots).properties(height=height)
