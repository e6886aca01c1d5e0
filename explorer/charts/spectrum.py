"""Pictures of rotation frequencies: the ladder of wavelengths and the clock hands. Pure: data frame in, chart out."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from explorer.charts.curves import NOTE_COLOUR

CLOCKS_PER_ROW = 4
TURNS, STILL = "turns fully", "never turns fully"


def ladder_data(
    wavelengths: NDArray[np.float64], length: float, series: str, guides: Sequence[tuple[str, float]]
) -> pd.DataFrame:
    """One rung a pair: its wavelength in positions, and whether it turns fully within `length`; then the guides."""
    turning = wavelengths[np.isfinite(wavelengths)]
    rungs = pd.DataFrame(
        {
            "part": "rung",
            "pair": np.arange(len(turning)),
            "wavelength": turning,
            "series": series,
            "full": np.where(turning <= length, TURNS, STILL),
            "turns": length / turning,
        }
    )
    marks = pd.DataFrame(
        {"part": "guide", "pair": 0, "wavelength": [g[1] for g in guides], "series": [g[0] for g in guides]}
    )
    return pd.concat([rungs, marks], ignore_index=True)


def ladder(
    data: pd.DataFrame, *, series: Sequence[tuple[str, str]], guide_colour: str, height: int = 260
) -> alt.TopLevelMixin:
    """Wavelength of every pair on a log axis, with dashed lines at lengths worth comparing with."""
    base = alt.Chart(data)
    y = alt.Y("wavelength:Q", title="wavelength (positions)", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=6))
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=[s[0] for s in series], range=[s[1] for s in series]),
        legend=alt.Legend(orient="top", title=None) if len(series) > 1 else None,
    )
    rungs = (
        base.transform_filter("datum.part === 'rung'")
        .mark_point(filled=True, size=40)
        .encode(
            x=alt.X("pair:Q", title="pair (high to low frequency)", axis=alt.Axis(grid=False, tickMinStep=1)),
            y=y,
            color=colour,
            opacity=alt.Opacity("full:N", scale=alt.Scale(domain=[TURNS, STILL], range=[1, 0.4]), legend=None),
            tooltip=[
                alt.Tooltip("series:N", title="what"),
                alt.Tooltip("pair:Q", title="pair"),
                alt.Tooltip("wavelength:Q", title="wavelength (positions)", format=",.6~g"),
                alt.Tooltip("turns:Q", title="turns over the length shown", format=",.4~g"),
            ],
        )
    )
    marks = base.transform_filter("datum.part === 'guide'")
    rules = marks.mark_rule(strokeDash=[5, 4], color=guide_colour).encode(y=y)
    labels = marks.mark_text(align="left", baseline="bottom", dx=4, dy=-2, color=guide_colour, fontSize=11).encode(
        y=y, x=alt.value(0), text="series:N"
    )
    return alt.layer(rungs, rules, labels).properties(height=height)


def clocks_data(inv_freq: NDArray[np.float64], pairs: Sequence[int], position: float, second: float) -> pd.DataFrame:
    """A clock for each chosen pair with a hand for each position: angles in radians from the x axis, turned left."""
    rows = []
    for index, pair in enumerate(pairs):
        first, other = (float(inv_freq[pair] * p) for p in (position, second))
        rows.append(
            {
                "column": index % CLOCKS_PER_ROW,
                "row": index // CLOCKS_PER_ROW,
                "pair": f"pair {pair}",
                "first": first % (2 * np.pi),
                "second": other % (2 * np.pi),
                # a point mark's angle counts clockwise in degrees from its upright shape
                "first_degrees": 90 - np.degrees(first % (2 * np.pi)),
                "second_degrees": 90 - np.degrees(other % (2 * np.pi)),
                "between": (other - first) % (2 * np.pi),
            }
        )
    return pd.DataFrame(rows)


def clocks(data: pd.DataFrame, *, first_colour: str, second_colour: str, rows: int) -> alt.TopLevelMixin:
    """Clock faces in rows of four: the hand of the position, the hand of the second position."""
    x = alt.X(
        "column:O", axis=None, scale=alt.Scale(domain=list(range(CLOCKS_PER_ROW)), paddingInner=0, paddingOuter=0)
    )
    y = alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(rows)), paddingInner=0, paddingOuter=0))
    tooltip = [
        alt.Tooltip("pair:N"),
        alt.Tooltip("first:Q", title="angle (rad)", format=".4f"),
        alt.Tooltip("second:Q", title="angle of the second (rad)", format=".4f"),
        alt.Tooltip("between:Q", title="from the first to the second (rad)", format=".4f"),
    ]
    base = alt.Chart(data).encode(x=x, y=y, tooltip=tooltip)
    face = base.mark_point(size=3600, strokeWidth=1.5, color=NOTE_COLOUR, fill="transparent")
    hand = "M0,0L0,-1"
    layers: list[alt.Chart] = [face]
    for name, colour, width in (("second", second_colour, 2.5), ("first", first_colour, 3.5)):
        layers.append(
            base.mark_point(shape=hand, size=3000, strokeWidth=width, color=colour, strokeCap="round").encode(
                angle=alt.Angle(f"{name}_degrees:Q", scale=None)
            )
        )
    label = base.mark_text(dy=44, fontSize=11, color=NOTE_COLOUR).encode(text="pair:N")
    return alt.layer(*layers, label).properties(height=rows * 104)
