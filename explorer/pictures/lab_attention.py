"""Attention of a trained lab model at its training length and past it: maps, numbers, sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from explorer.charts.heatmap import Axis, Guide, Heatmap
from explorer.charts.palette import TRAINING_LENGTH_COLOUR
from explorer.compute import lab_attention as compute
from explorer.compute.common import Array
from explorer.compute.lab import weights
from explorer.compute.lab_attention import MAX_TOKENS, Attention
from posenc_core.lab import Run
from posenc_core.schemes.rope import RopeSpec


def lengths(trained: int, choices: Sequence[str]) -> list[str]:
    """How many training lengths can be shown: attention weights grow with the square."""
    return [c for c in choices if int(c) * trained <= MAX_TOKENS]


def chosen_line(by_label: dict[str, list[Run]], index: int) -> str:
    """The label of a line by its index; -1: the first with a rotation, else the first."""
    labels = list(by_label)
    if index >= 0:
        return labels[min(index, len(labels) - 1)]
    turning = (n for n, runs in by_label.items() if any(isinstance(s, RopeSpec) for s in runs[0].layer_specs))
    return next(turning, labels[0])


def with_weights(runs: Sequence[Run]) -> Run | None:
    """The first of a line's runs whose weights are kept."""
    return next((run for run in runs if weights(run) is not None), None)


def small_maps(run: Run, times: int) -> tuple[list[Heatmap], list[Heatmap]]:
    """Every head at the training length, and at so many times it; each head has one colour scale for both."""
    pair = _pair(run, times)
    out: tuple[list[Heatmap], list[Heatmap]] = ([], [])
    for layer, head in np.ndindex(*pair[0].small.shape[:2]):
        top = max(_top(found.small[layer, head]) for found in pair)
        for found, maps in zip(pair, out, strict=True):
            key, query = (Axis(t, start=(found.block - 1) / 2, step=found.block) for t in ("key", "query"))
            maps.append(Heatmap(found.small[layer, head], key, query, "attention weight", domain=(0.0, top),
                                title=f"layer {layer} head {head}", undefined_label=_hatched(run)))  # fmt: skip
    return out


def large_maps(run: Run, times: int, layer: int, head: int) -> tuple[Heatmap, Heatmap]:
    """One head at the training length, and at so many times it with the training length marked; one colour scale."""
    trained = run.setting.train_length
    pair = [compute.head_weights(run, n * trained, layer, head) for n in (1, times)]
    top = max(map(_top, pair))
    guides = tuple(Guide(axis, trained, "training length", TRAINING_LENGTH_COLOUR) for axis in ("x", "y"))
    first, last = (
        Heatmap(values, Axis("key", "token"), Axis("query", "token"), "attention weight", domain=(0.0, top),
                guides=marks, undefined_label=_hatched(run))
        for values, marks in zip(pair, ((), guides), strict=True)
    )  # fmt: skip
    return first, last


def _top(values: Array) -> float:
    """Upper end of a colour scale: few cells lie above it, so that faint heads keep their pattern."""
    finite = values[np.isfinite(values)]
    return max(float(np.quantile(finite, 0.99)), 1e-6) if finite.size else 1.0


def _hatched(run: Run) -> str:
    rows = compute.rows(run)
    return "later than the query" + ("" if rows is None else f", or past the table's {rows} rows")


def _pair(run: Run, times: int) -> tuple[Attention, Attention]:
    trained = run.setting.train_length
    return compute.attention(run, trained), compute.attention(run, times * trained)


def drift_table(run: Run, times: int) -> pd.DataFrame:
    """Entropy and mean distance of every head, in the last half of the training length and of the long example."""
    stretch, (short, long) = run.setting.train_length, _pair(run, times)
    columns = {}
    for quantity, unit in (("entropy", "nats"), ("distance", "positions")):
        for n, found in ((1, short), (times, long)):
            columns[f"{quantity} at {n}× ({unit})"] = found.at_end(quantity, stretch).ravel().round(2)
    layers, heads = short.entropy.shape[:2]
    names = [f"layer {i} head {j}" for i in range(layers) for j in range(heads)]
    return pd.DataFrame({"head": names} | columns)


def seen(run: Run, times: int, layer: int, head: int) -> str:
    """What the large head does, and all heads in the mean, before and past the training length."""
    stretch, found = run.setting.train_length, _pair(run, times)
    tokens = [math.exp(x.at_end("entropy", stretch)[layer, head]) for x in found]
    back = [x.at_end("distance", stretch)[layer, head] for x in found]
    name = f"{run.label}, layer {layer} head {head}"
    if math.isnan(tokens[1]):
        return f"{name} spreads over {tokens[0]:.1f} tokens at the training length; past it the table has no rows."
    mean = [float(x.at_end("entropy", stretch).mean()) for x in found]
    return (
        f"{name}: at the training length it spreads over about {tokens[0]:.1f} tokens (e to its entropy) and looks "
        f"{back[0]:.1f} back; at {times} times over {tokens[1]:.1f} and {back[1]:.1f} back. Mean entropy of all heads: "
        f"{mean[0]:.2f} nats, then {mean[1]:.2f}."
    )
