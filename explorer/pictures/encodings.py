"""Pictures of the Encodings page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from explorer.charts import curves, maps
from explorer.charts.heatmap import Axis, Guide, Heatmap
from explorer.charts.palette import HEAD_COLOURS, pair_colours
from explorer.charts.spectrum import ladder_data
from explorer.compute import encodings as compute
from explorer.compute.common import TRAIN_LENGTH, encoding
from explorer.pictures.common import Lines, spread
from posenc_core import Spec, analysis

WINDOW = 128  # positions of a wave that can be told apart on a screen


def heads_of(spec: Spec) -> int:
    """Heads whose pictures differ, 1 if none do."""
    bias = encoding(spec).bias(torch.zeros(1), torch.zeros(1)) if spec.hook == "bias" else None
    return 1 if bias is None else bias.shape[-3]


def encoding_picture(
    spec: Spec,
    seq_len: int,
    quantity: str,
    head: int,
    guides: tuple[Guide, ...],
    domain: tuple[float, float] | None = None,
) -> Heatmap:
    """The one large picture of a scheme: its vectors, its rotations or its bias."""
    if spec.hook == "embed":
        values, stride = compute.vectors(spec, seq_len)
        return maps.vectors_map(values, stride, guides, domain)
    if spec.hook == "rotate":
        return maps.rotation_map(compute.angles(spec, seq_len), quantity, guides)
    if spec.hook == "bias":
        head = min(head, heads_of(spec) - 1)
        values, step = compute.bias(spec, seq_len, head)
        return maps.bias_map(values, step, head, tuple(Guide("y", g.value, g.label, g.colour) for g in guides))
    zeros = np.zeros((min(seq_len, 64), min(seq_len, 64)))
    return Heatmap(
        zeros, Axis("key position"), Axis("query position"), "added to the score", "score", "diverging", (-1, 1)
    )


def difference_picture(first: Heatmap, second: Heatmap) -> Heatmap | None:
    """First minus second where their shapes and meanings agree, else None."""
    if (
        first.values.shape != second.values.shape
        or first.value_title.split(" of ")[0] != second.value_title.split(" of ")[0]
    ):
        return None
    values = first.values - second.values
    if first.palette == "cyclic":
        values = (values + np.pi) % (2 * np.pi) - np.pi
    return Heatmap(
        values,
        first.x,
        first.y,
        "first minus second",
        first.value_unit,
        "diverging",
        maps.symmetric(values),
        first.guides,
    )


def waves(spec: Spec, seq_len: int, quantity: str, count: int, position: int, second: int) -> Lines | None:
    """Chosen dimensions, pairs or heads as curves over the positions around `position`; None if there are none."""
    start = max(0, min(position - WINDOW // 2, seq_len - WINDOW))
    stop = min(seq_len, start + WINDOW)
    x = np.arange(start, stop)
    if spec.hook == "embed":
        rows, stride = compute.vectors(spec, seq_len)
        picked = spread(len(rows), count)
        lines = [(f"dimension {i * stride}", rows[i, start:stop]) for i in picked]
        colours, title = pair_colours(len(picked)), "value"
    elif spec.hook == "rotate":
        rows = compute.angles(spec, seq_len)
        picked = spread(len(rows), count)
        turn = {"cos": np.cos, "sin": np.sin, "angle": lambda a: a}[quantity]
        lines = [(f"pair {i}", turn(rows[i, start:stop])) for i in picked]
        colours, title = pair_colours(len(picked)), "angle mod 2π (rad)" if quantity == "angle" else quantity
    elif spec.hook == "bias":
        picked = spread(heads_of(spec), count)
        bias = compute.bias_rows(spec, seq_len, position)
        lines = [(f"head {i}", bias[i, start:stop]) for i in picked]
        colours, title = (
            [HEAD_COLOURS[n % len(HEAD_COLOURS)] for n in range(len(picked))],
            f"bias seen from {position} (score)",
        )
    else:
        return None
    frames = [curves.line(name, x, y) for name, y in lines]
    frames += [curves.guide(f"p = {position}", x=position)] if start <= position < stop else []
    frames += [curves.guide(f"p + k = {second}", x=second)] if start <= second < stop and second != position else []
    return Lines(curves.together(*frames), tuple(zip([n for n, _ in lines], colours, strict=True)), title)


def ladder(specs: list[tuple[Spec, str]], seq_len: int) -> pd.DataFrame | None:
    """Wavelengths of the specs that have a spectrum, named, with the lengths worth marking; None without any."""
    frames = []
    for spec, name in specs:
        inv_freq = compute.spectrum(spec)
        if inv_freq is not None:
            wavelengths = analysis.wavelengths(torch.tensor(inv_freq)).numpy()
            guides = (
                [] if frames else [("positions shown", seq_len), ("training length of the toy models", TRAIN_LENGTH)]
            )
            frames.append(ladder_data(wavelengths, seq_len, name, guides))
    return pd.concat(frames, ignore_index=True) if frames else None


def similarity_picture(spec: Spec, seq_len: int, guides: tuple[Guide, ...]) -> Heatmap | None:
    """How alike all positions are; None for a scheme without vectors or rotations."""
    if spec.hook not in ("embed", "rotate"):
        return None
    values, step = compute.similarity(spec, seq_len)
    title = "cosine similarity" if spec.hook == "embed" else "score of equal vectors"
    both = guides + tuple(Guide("y", g.value, g.label, g.colour) for g in guides)
    return maps.similarity_map(values, step, title, both)


SEEN: dict[str, str] = {
    "none": "Nothing is added anywhere: every position looks the same to attention.",
    "embed": "Each column is the vector that is added to the token at that position.",
    "rotate": "Each row is one pair of features turning: fast at the top, slow at the bottom.",
    "bias": "Each row is a query: the farther back the key, the more is taken off its score.",
}
