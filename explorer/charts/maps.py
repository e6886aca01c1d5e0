"""Arrays of the pages as heatmaps: axes, colours and guides. Pure: arrays in, Heatmap out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from explorer.charts.heatmap import Axis, Guide, Heatmap
from explorer.charts.palette import POSITION_B_COLOUR, POSITION_COLOUR

Array = NDArray[np.float64]


def position_guides(position: float, second: float | None, axis: str = "x") -> tuple[Guide, ...]:
    """The marks of the position and of the second position."""
    guides = [Guide(axis, position, f"p = {position:g}", POSITION_COLOUR)]  # type: ignore[arg-type]
    if second is not None and second != position:
        guides.append(Guide(axis, second, f"p + k = {second:g}", POSITION_B_COLOUR))  # type: ignore[arg-type]
    return tuple(guides)


def across(guides: tuple[Guide, ...]) -> tuple[Guide, ...]:
    """The same marks on the y axis."""
    return tuple(replace(g, axis="y") for g in guides)


def symmetric(values: Array) -> tuple[float, float]:
    """A domain about zero that holds all finite values."""
    finite = values[np.isfinite(values)]
    high = float(np.abs(finite).max()) if finite.size else 1.0
    return (-high, high) if high > 0 else (-1.0, 1.0)


def vectors_map(values: Array, stride: int, guides: tuple[Guide, ...]) -> Heatmap:
    """Position vectors [dimensions, positions]."""
    return Heatmap(
        values, Axis("position"), Axis("dimension", step=stride), "value", palette="diverging",
        domain=symmetric(values), guides=guides, undefined_label="no row in the table",
    )  # fmt: skip


def rotation_map(angles: Array, stride: int, quantity: str, guides: tuple[Guide, ...]) -> Heatmap:
    """cos, sin or angle of every pair, [pairs, positions]."""
    x, y = Axis("position"), Axis("pair", step=stride)
    if quantity == "angle":
        return Heatmap(angles, x, y, "angle mod 2π", "rad", "cyclic", (0.0, 2 * np.pi), guides)
    values = np.cos(angles) if quantity == "cos" else np.sin(angles)
    return Heatmap(values, x, y, f"{quantity} of the angle", palette="diverging", domain=(-1.0, 1.0), guides=guides)


def bias_map(values: Array, step: int, head: int, guides: tuple[Guide, ...] = ()) -> Heatmap:
    """The bias of one head, [queries, keys]; -inf is where a key is forbidden."""
    finite = values[np.isfinite(values)]
    low = float(finite.min()) if finite.size and finite.min() < 0 else -1.0
    return Heatmap(
        values, Axis("key position", step=step), Axis("query position", step=step), f"bias of head {head}", "score",
        "sequential", (low, 0.0), guides, undefined_label="forbidden by the causal mask",
    )  # fmt: skip


def similarity_map(values: Array, step: int, title: str, guides: tuple[Guide, ...] = ()) -> Heatmap:
    """How alike positions are, [positions, positions], -1 to 1."""
    axis = Axis("position", step=step)
    return Heatmap(values, axis, axis, title, palette="diverging", domain=(-1.0, 1.0), guides=guides,
                   undefined_label="no direction")  # fmt: skip


def scores_map(values: Array, title: str, domain: tuple[float, float], diverging: bool = True) -> Heatmap:
    """Scores [queries, keys]."""
    return Heatmap(values, Axis("key position n"), Axis("query position m"), title, "score",
                   "diverging" if diverging else "sequential", domain)  # fmt: skip
