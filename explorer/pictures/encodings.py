"""Pictures of the Encodings page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from explorer.charts import curves, maps
from explorer.charts.heatmap import Axis, Guide, Heatmap
from explorer.charts.palette import CATEGORICAL, HEAD_COLOURS, pair_colours
from explorer.charts.spectrum import clocks_data, ladder_data
from explorer.compute import encodings as compute
from explorer.compute.common import TRAIN_LENGTH, encoding
from explorer.pictures.common import Lines, spread
from explorer.text import Try
from posenc_core import Spec, analysis, parse_spec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec

CLOCKS = 8
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
) -> Heatmap:
    """The one large picture of a scheme: its vectors, its rotations or its bias."""
    if spec.hook == "embed":
        values, stride = compute.vectors(spec, seq_len)
        return maps.vectors_map(values, stride, guides)
    if spec.hook == "rotate":
        angles, stride = compute.angles(spec, seq_len)
        return maps.rotation_map(angles, stride, quantity, guides)
    if spec.hook == "bias":
        head = min(head, heads_of(spec) - 1)
        values, step = compute.bias(spec, seq_len, head)
        return maps.bias_map(values, step, head, maps.across(guides))
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
    with np.errstate(invalid="ignore"):  # forbidden on both sides: -inf less -inf is undefined, and drawn so
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
        rows, stride = compute.angles(spec, seq_len)
        picked = spread(len(rows), count)
        turns: dict[str, Callable[[maps.Array], maps.Array]] = {"cos": np.cos, "sin": np.sin, "angle": np.array}
        turn = turns[quantity]
        lines = [(f"pair {i * stride}", turn(rows[i, start:stop])) for i in picked]
        colours, title = pair_colours(len(picked)), "angle mod 2π (rad)" if quantity == "angle" else quantity
    elif spec.hook == "bias":
        picked = spread(heads_of(spec), count)
        bias = compute.bias_rows(spec, seq_len, position)
        lines = [(f"head {i}", bias[i, start:stop]) for i in picked]
        colours, title = (
            [HEAD_COLOURS[n % len(HEAD_COLOURS)] for n in range(len(picked))],
            "bias (score)",
        )
    else:
        return None
    frames = [curves.line(name, x, y) for name, y in lines]
    frames += [curves.guide(f"p = {position}", x=position)]
    if start <= second < stop and second != position:
        apart = second - position > WINDOW / 6  # else the labels would lie on each other
        frames.append(curves.guide(f"p + k = {second}" if apart else "", x=second))
    return Lines(curves.together(*frames), tuple(zip([n for n, _ in lines], colours, strict=True)), title)


def ladder(specs: list[tuple[Spec, str]], seq_len: int) -> pd.DataFrame | None:
    """Wavelengths of the specs that have a spectrum, named, with the lengths worth marking; None without any."""
    frames: list[pd.DataFrame] = []
    for spec, name in specs:
        inv_freq = compute.spectrum(spec, seq_len)
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
    title = "cosine similarity" if spec.hook == "embed" else "score of equal vectors, 1 at distance 0"
    return maps.similarity_map(values, step, title, guides + maps.across(guides))


def clocks(spec: Spec, seq_len: int, position: int, second: int) -> pd.DataFrame | None:
    """Clock faces of eight pairs spread over the spectrum; None without a spectrum."""
    inv_freq = compute.spectrum(spec, seq_len)
    return None if inv_freq is None else clocks_data(inv_freq, spread(len(inv_freq), CLOCKS), position, second)


def head_pictures(spec: Spec, seq_len: int) -> list[Heatmap]:
    """The bias of every head, small, on one scale; at most 32 heads."""
    length = min(seq_len, 64)
    values = [compute.bias(spec, length, head)[0] for head in range(min(heads_of(spec), 32))]
    low = min(float(v[np.isfinite(v)].min()) for v in values) or -1.0
    return [
        replace(maps.bias_map(v, 1, head), title=f"head {head}", value_title="bias", domain=(low, 0.0))
        for head, v in enumerate(values)
    ]


def shift_picture(spec: SinusoidalSpec, k: int) -> Heatmap:
    """The map M_k that shifts every position by k, its first 64 dimensions."""
    return Heatmap(
        compute.shift_map(spec, k), Axis("from dimension"), Axis("to dimension"), f"M_k, k = {k}",
        palette="diverging", domain=(-1.0, 1.0),
    )  # fmt: skip


def integer_faults(spec: IntegerSpec, seq_len: int) -> tuple[Lines, Lines]:
    """Distance from position 0, and gradient of a linear probe, against position, for all three variants."""
    distances, gradients = [], []
    variants = IntegerSpec.param("variant").choices
    for variant in variants:
        sizes = {} if variant == "raw" else {"max_position_embeddings": spec.max_position_embeddings}
        one = parse_spec({"scheme": "integer", "variant": variant, "d_model": spec.d_model} | sizes)
        assert isinstance(one, IntegerSpec)
        from_zero, gradient = compute.integer_faults(one, seq_len)
        distances.append(curves.line(variant, np.arange(seq_len), from_zero))
        gradients.append(curves.line(variant, np.arange(seq_len), gradient))
    series = tuple(zip(variants, CATEGORICAL, strict=False))
    return (
        Lines(curves.together(*distances), series, "distance of its vector from position 0's"),
        Lines(curves.together(*gradients), series, "gradient norm of a linear probe"),
    )


def same_scale(pictures: list[Heatmap]) -> list[Heatmap]:
    """Two pictures of the same quantity and palette on the wider of their two domains."""
    if len({(p.palette, p.value_title.split(" of ")[0]) for p in pictures}) != 1:
        return pictures
    domain = min(p.domain[0] for p in pictures), max(p.domain[1] for p in pictures)
    return [replace(p, domain=domain) for p in pictures]


def similarity_try(spec: Spec) -> Try:
    """What to change beside a similarity map."""
    if spec.hook == "rotate":
        return Try("a base of 100", {"scheme": spec.scheme, "base": "100"}, "The slow pairs turn too: more stripes.")
    return Try("RoPE's", {"scheme": "rope"}, "Every diagonal has one colour: only the distance counts.")
