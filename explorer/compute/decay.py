"""Arrays of the Decay page. Work is split so that no step holds more than a few times WORK numbers."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import streamlit as st
import torch
from torch import Tensor

from explorer.compute.common import HASHES, Array, checkpoint, checkpoint_name, encoding, frozen, one_head, records
from posenc_core import PositionalEncoding, Spec, SpecError, analysis
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.base import VectorEncoding
from posenc_core.schemes.rope import RopeSpec

WORK = 2**20
HEAD_DIM = 64  # of schemes that do not say
MODEL_DIM = 128  # of schemes that do not say, as in the toy models
MATRIX = 256  # positions of a score matrix: the first ones
TOKEN = ord("e")  # whose embedding the trained projections read
RANDOM_POINTS = 2**21  # draws x distances x features
VECTOR_POINTS = 2**22  # distances x features
W_DRAWS = (4, 16)  # random projections behind a share: fewest for wide vectors, most
W_FEATURES = 2**15  # draws x features of a position vector
SMOOTH_POINTS = 512  # of a curve that does not oscillate


class Draws(NamedTuple):
    """Scores of random q and k at some distances: their mean and the range of the middle 80%, each [K]."""

    distances: Array
    mean: Array
    low: Array
    high: Array


class Dots(NamedTuple):
    """PE(p)·PE(p + k)/√d for a few p at some distances: [P, K], NaN where undefined."""

    positions: tuple[int, ...]
    distances: Array
    scores: Array


class Biases(NamedTuple):
    """What a few heads add to a score at some distances: [H, K]."""

    heads: tuple[int, ...]
    distances: Array
    scores: Array


class Matrix(NamedTuple):
    """Scores [L, L], how much of their variance more than m - n explains, and that part in standard deviations.

    `used` is the spec behind it: with trained projections, the one that fits the toy model's sizes.
    """

    scores: Array
    share: float
    residual: Array
    used: Spec


class Share(NamedTuple):
    """How much of the scores' variance more than m - n explains: the median over draws of W, lowest, highest."""

    median: float
    low: float
    high: float
    draws: int


def head_dim(spec: Spec) -> int:
    """Features of one head."""
    return int(getattr(spec, "d_head", HEAD_DIM))


def _split(distances: Tensor, width: int, make: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.cat([make(part) for part in distances.split(max(1, WORK // width))], dim=-1)


def _smooth(seq_len: int) -> Tensor:
    """Distances that are enough for a smooth curve: all near ones, then every few."""
    step = max(1, seq_len // SMOOTH_POINTS)
    near = torch.arange(min(seq_len, 64))
    return torch.cat([near, torch.arange(64, max(64, seq_len), step)]).to(torch.float64)


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def equal(spec: Spec, seq_len: int) -> Array:
    """Scores of equal vectors at distances 0 … seq_len - 1."""
    made, width = encoding(spec, seq_len), head_dim(spec)
    distances = torch.arange(seq_len, dtype=torch.float64)
    return frozen(_split(distances, width, lambda part: analysis.equal_scores(made, width, part)[0]))


def rotating(spec: Spec, seq_len: int | None = None) -> Tensor:
    """Frequencies above zero of a sequence, high to low."""
    inv_freq = analysis.spectrum(spec, seq_len)
    assert inv_freq is not None
    return inv_freq[inv_freq > 0]


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def bound(spec: Spec, seq_len: int) -> tuple[Array, Array]:
    """Distances, and the factor mean |S_j| of RoFormer's bound for the pairs that rotate, scaled to 1 at distance 0."""
    inv_freq, distances = rotating(spec, seq_len), torch.arange(seq_len, dtype=torch.float64)
    values = _split(distances, len(inv_freq), lambda part: analysis.roformer_bound(inv_freq, part))
    return frozen(distances), frozen(values / values[0])


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def random(spec: Spec, seq_len: int, draws: int) -> Draws:
    """Scores of standard normal q and k."""
    made, width = encoding(spec, seq_len), head_dim(spec)
    step = -(-seq_len // max(1, RANDOM_POINTS // (draws * width)))
    distances = torch.arange(0, seq_len, step, dtype=torch.float64)
    scores = _split(distances, draws * width, lambda part: analysis.random_scores(made, width, part, draws))
    low, high = scores.quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), dim=0)
    return Draws(frozen(distances), frozen(scores.mean(0)), frozen(low), frozen(high))


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def dots(spec: Spec, seq_len: int) -> Dots:
    """Scores of position vectors alone, from three positions early, further on and in the middle."""
    made = encoding(spec)
    assert isinstance(made, VectorEncoding)
    rows = min(seq_len, analysis.defined_length(made) or seq_len)
    positions = tuple(sorted({max(1, rows // 32), max(1, rows // 8), rows // 2}))
    width = int(getattr(spec, "d_model", MODEL_DIM))
    distances = torch.arange(0, seq_len, -(-seq_len * width // VECTOR_POINTS), dtype=torch.float64)
    scores = [
        _split(distances, width, lambda part, p=p: analysis.dot_against_distance(made, part, float(p)))  # type: ignore[misc]
        for p in positions
    ]
    return Dots(positions, frozen(distances), frozen(torch.stack(scores) / width**0.5))


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def biases(spec: Spec, seq_len: int, heads: tuple[int, ...]) -> Biases:
    """What the heads add to the score of a key `distance` positions back."""
    made, distances = encoding(spec), _smooth(seq_len)
    nothing = torch.zeros(1, head_count(spec), 1, dtype=torch.float64)
    scores = analysis.scores_against_distance(made, nothing, nothing, distances)[0]
    return Biases(heads, frozen(distances), frozen(scores[list(heads)]))


def head_count(spec: Spec) -> int:
    """Heads that differ by their position: ALiBi's, else one."""
    return spec.n_heads if isinstance(spec, AlibiSpec) else 1


def has_model(spec: Spec) -> bool:
    """Whether a toy model was trained with the spec's scheme."""
    return any(record.spec.scheme == spec.scheme for record in records().values())


def model_heads(spec: Spec) -> int:
    """Heads of the toy model of the spec's scheme."""
    return records()[checkpoint_name(spec)].size.n_heads if has_model(spec) else 1


def matrix(spec: Spec, projection: str, head: int, seq_len: int) -> Matrix | None:
    """One token against itself at positions 0 … min(seq_len, MATRIX) - 1; None if no toy model has the projections.

    identity: no projections; nothing but the position vectors, or equal vectors for a rotation. random: normal W_q, W_k
    of variance 1/d_model and one normal content vector everywhere. trained: a toy model's first layer reading TOKEN.
    """
    if projection == "trained" and not has_model(spec):
        return None
    return _matrix(spec, projection, head, _matrix_length(spec, seq_len))


def _matrix_length(spec: Spec, seq_len: int) -> int:
    """The sequence's length where frequencies follow it, else the matrix's own, which is one key for all lengths."""
    return seq_len if isinstance(spec, RopeSpec) and spec.by_length else min(seq_len, MATRIX)


@st.cache_resource(max_entries=96, show_spinner=False, hash_funcs=HASHES)
def _matrix(spec: Spec, projection: str, head: int, seq_len: int) -> Matrix:
    if projection == "trained":
        model = checkpoint(checkpoint_name(spec))[0]
        spec = _fitting(spec)
    made = encoding(one_head(spec, head) if projection != "trained" else spec, seq_len)
    positions = torch.arange(min(seq_len, MATRIX))
    rows = min(len(positions), analysis.defined_length(made) or len(positions))
    inside = positions[:rows]
    if projection == "trained":
        found = analysis.token_position_scores(model, made, TOKEN, inside)[min(head, model.size.n_heads - 1)]
    elif projection == "random":
        found = _drawn_scores(spec, made, inside, torch.Generator().manual_seed(0))
    else:
        width = int(getattr(spec, "d_model", head_dim(spec)))
        content = torch.full((width,), float(spec.hook == "rotate"), dtype=torch.float64)
        found = analysis.unprojected_scores(made, content, inside)[0]
    scores = torch.full((len(positions), len(positions)), torch.nan, dtype=torch.float64)
    scores[:rows, :rows] = found
    share, residual = analysis.relative_residual(scores)
    spread = scores[scores.isfinite()].std(correction=0) if share > 0 else 1.0
    return Matrix(frozen(scores), share, frozen(residual / spread), spec)


def _drawn_scores(spec: Spec, made: PositionalEncoding, positions: Tensor, generator: torch.Generator) -> Tensor:
    width = int(getattr(spec, "d_model", MODEL_DIM))
    content = torch.randn(width, generator=generator, dtype=torch.float64)
    w_q, w_k = torch.randn(2, 1, head_dim(spec), width, generator=generator, dtype=torch.float64) / width**0.5
    return analysis.position_scores(made, content, w_q, w_k, positions)[0]


def share(spec: Spec, projection: str, head: int, seq_len: int) -> Share | None:
    """The share of `matrix`; for random projections over several draws, of which the matrix shows the first."""
    if projection == "random":
        return _drawn_share(spec, head, _matrix_length(spec, seq_len))
    made = matrix(spec, projection, head, seq_len)
    return None if made is None else Share(made.share, made.share, made.share, 1)


@st.cache_resource(max_entries=96, show_spinner=False, hash_funcs=HASHES)
def _drawn_share(spec: Spec, head: int, seq_len: int) -> Share:
    made, generator = encoding(one_head(spec, head), seq_len), torch.Generator().manual_seed(0)
    inside = torch.arange(min(seq_len, MATRIX, analysis.defined_length(made) or MATRIX))
    fewest, most = W_DRAWS
    draws = min(most, max(fewest, W_FEATURES // int(getattr(spec, "d_model", MODEL_DIM))))
    found = [analysis.relative_residual(_drawn_scores(spec, made, inside, generator)).share for _ in range(draws)]
    return Share(median(found), min(found), max(found), draws)


def _fitting(spec: Spec) -> Spec:
    """The spec at the sizes of its toy model; where its parameters do not allow them, the one it was trained with."""
    record = records()[checkpoint_name(spec)]
    try:
        return record.size.of(spec)
    except SpecError:
        return record.size.of(record.spec)
