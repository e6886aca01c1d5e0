"""Arrays of the Encodings page."""

from __future__ import annotations

import numpy as np
import streamlit as st
import torch
from torch import Tensor

from explorer.compute.common import HASHES, MAX_CELLS, Array, encoding, frozen, stride
from posenc_core import Spec, analysis
from posenc_core.schemes.base import VectorEncoding


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def vectors(spec: Spec, seq_len: int) -> tuple[Array, int]:
    """Position vectors [dimensions, positions] for 0 … seq_len - 1, NaN where undefined, and the stride of dimensions."""
    made = encoding(spec)
    assert isinstance(made, VectorEncoding)
    table = analysis.vectors_or_nan(made, torch.arange(seq_len))
    step = stride(seq_len, table.shape[1])
    return frozen(table[:, ::step].T.contiguous()), step


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def angles(spec: Spec, seq_len: int) -> Array:
    """Angles mod 2π of every pair, [pairs, positions]."""
    inv_freq = analysis.spectrum(spec)
    assert inv_freq is not None
    return frozen((inv_freq[:, None] * torch.arange(seq_len)).remainder(2 * torch.pi))


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def spectrum(spec: Spec) -> Array | None:
    """Radians a position of every pair, high to low; None for a scheme without frequencies."""
    inv_freq = analysis.spectrum(spec)
    return None if inv_freq is None else frozen(inv_freq)


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def bias(spec: Spec, seq_len: int, head: int) -> tuple[Array, int]:
    """The bias of one head, [queries, keys], and the stride of positions that keeps it within MAX_CELLS."""
    step = int(np.ceil(seq_len / np.sqrt(MAX_CELLS)))
    positions = torch.arange(0, seq_len, step)
    rows = [_bias(spec, p, positions)[head] for p in positions.split(64)]  # all heads at once would not be bounded
    return frozen(torch.cat(rows)), step


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def bias_rows(spec: Spec, seq_len: int, position: int) -> Array:
    """What every head adds to the scores of a query at `position`: [heads, keys], NaN where forbidden."""
    return frozen(_bias(spec, torch.tensor([position]), torch.arange(seq_len))[:, 0].nan_to_num(neginf=torch.nan))


def _bias(spec: Spec, queries: Tensor, keys: Tensor) -> Tensor:
    made = encoding(spec).bias(queries, keys)
    assert made is not None
    return made


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def similarity(spec: Spec, seq_len: int) -> tuple[Array, int]:
    """How alike positions are, [positions, positions], and the stride of positions.

    Cosine of the vectors; for a rotation the mean cosine over its pairs, which is the score of equal vectors.
    """
    step = int(np.ceil(seq_len / 512))
    positions = torch.arange(0, seq_len, step)
    made = encoding(spec)
    if isinstance(made, VectorEncoding):
        return frozen(analysis.cosine_similarity(analysis.vectors_or_nan(made, positions))), step
    inv_freq = analysis.spectrum(spec)
    assert inv_freq is not None
    distance = positions - positions[0]
    row = torch.cos(distance[:, None] * inv_freq).mean(-1)
    return frozen(row[(torch.arange(len(row))[:, None] - torch.arange(len(row))).abs()]), step
