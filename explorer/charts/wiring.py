"""Which features make a pair, and where they move: arcs and lines over a row of features. Pure: data in, chart out."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from explorer.charts.curves import NOTE_COLOUR

STEPS = 17  # points of an arc
UNROTATED = "does not rotate"


def wiring_data(
    features: Sequence[tuple[int, int]], frequencies: Sequence[float], colours: Sequence[str], d_head: int
) -> pd.DataFrame:
    """An arc for each pair that turns, and a dot for each of d_head features; pairs of frequency 0 and the rest grey.

    features: the two features of a pair; frequencies: radians a position; colours: one a pair.
    """
    t = np.linspace(0.0, 1.0, STEPS)
    arcs = []
    dots: dict[int, tuple[str, str, float]] = dict.fromkeys(range(d_head), (UNROTATED, NOTE_COLOUR, 0.0))
    for pair, ((a, b), w, colour) in enumerate(zip(features, frequencies, colours, strict=True)):
        if w == 0:
            continue
        dots[a] = dots[b] = (f"pair {pair}", colour, w)
        arcs.append(
            pd.DataFrame(
                {
                    "part": "arc", "x": a + (b - a) * t, "y": 4 * t * (1 - t) * (b - a) ** 0.5, "pair": f"pair {pair}",
                    "colour": colour, "strand": pair, "joins": f"{a} and {b}", "frequency": w,
                }
            )
        )  # fmt: skip
    rows = [
        {
            "part": "feature",
            "x": float(i),
            "y": 0.0,
            "pair": p,
            "colour": c,
            "strand": -1,
            "joins": str(i),
            "frequency": w,
        }
        for i, (p, c, w) in dots.items()
    ]
    return pd.concat([*arcs, pd.DataFrame(rows)], ignore_index=True)


def moves_data(index: Sequence[int], pairs: Sequence[str], colours: Sequence[str]) -> pd.DataFrame:
    """A line for each row of a head from where it was to where it goes: index[new] = old; pairs and colours by new."""
    rows = []
    for new, old in enumerate(index):
        for y, x in ((1.0, old), (0.0, new)):
            rows.append(
                {
                    "x": float(x),
                    "y": y,
                    "strand": new,
                    "pair": pairs[new],
                    "colour": colours[new],
                    "old": old,
                    "new": new,
                }
            )
    return pd.DataFrame(rows)


def wiring(data: pd.DataFrame, *, d_head: int, widest: float, height: int = 170) -> alt.TopLevelMixin:
    """Arcs over a row of features. widest: features between those of the widest pair of charts that share a scale.

    An arc is as high as the root of its width, so that neighbours are seen beside wide pairs.
    """
    highest = widest**0.5
    x = alt.X(
        "x:Q", title="feature of the head", scale=alt.Scale(domain=[-0.8, d_head - 0.2], nice=False),
        axis=alt.Axis(grid=False, tickMinStep=1, tickCount=8),
    )  # fmt: skip
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.04 * highest, highest * 1.02], nice=False))
    colour = alt.Color("colour:N", scale=None)
    base = alt.Chart(data)
    tooltip = [
        alt.Tooltip("pair:N", title="pair"),
        alt.Tooltip("joins:N", title="features"),
        alt.Tooltip("frequency:Q", title="radians a position", format=".4~g"),
    ]
    arcs = (
        base.transform_filter("datum.part === 'arc'")
        .mark_line(strokeWidth=1.4, interpolate="monotone", opacity=0.9)
        .encode(x=x, y=y, color=colour, detail="strand:N", tooltip=tooltip)
    )
    size = 46 if d_head <= 32 else 26 if d_head <= 64 else 12
    dots = (
        base.transform_filter("datum.part === 'feature'")
        .mark_point(filled=True, size=size, opacity=1)
        .encode(x=x, y=y, color=colour, tooltip=tooltip)
    )
    return alt.layer(arcs, dots).properties(height=height)


def moves(data: pd.DataFrame, *, d_head: int, height: int = 130) -> alt.TopLevelMixin:
    """Lines from the rows of one layout, at the top, to those of the other."""
    x = alt.X(
        "x:Q", title="row of the head's weights: above before, below after",
        scale=alt.Scale(domain=[-0.8, d_head - 0.2], nice=False), axis=alt.Axis(grid=False, tickMinStep=1, tickCount=8),
    )  # fmt: skip
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.05, 1.05], nice=False))
    tooltip = [
        alt.Tooltip("pair:N", title="pair"),
        alt.Tooltip("old:Q", title="row before"),
        alt.Tooltip("new:Q", title="row after"),
    ]
    base = alt.Chart(data).encode(x=x, y=y, color=alt.Color("colour:N", scale=None), detail="strand:N", tooltip=tooltip)
    return alt.layer(
        base.mark_line(strokeWidth=1.3, opacity=0.85), base.mark_point(filled=True, size=18, opacity=1)
    ).properties(height=height)
