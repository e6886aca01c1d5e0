"""Arrays of the Encodings page."""

from __future__ import annotations

import numpy as np
import streamlit as st
import torch
from torch import Tensor

from explorer import facts
from explorer.compute.common import HASHES, MAX_CELLS, Array, encoding, frozen, one_head, stride
from posenc_core import Spec, analysis, build
from posenc_core.schemes.base import VectorEncoding
from posenc_core.schemes.integer import Integer, IntegerSpec
from posenc_core.schemes.sinusoidal import Sinusoidal, SinusoidalSpec

SEARCHED = 1024  # positions among which the closest two are looked for


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs=HASHES)
def vectors(spec: Spec, seq_len: int) -> tuple[Array, int]:
    """Position vectors [dimensions, positions], NaN where undefined, and the stride of dimensions."""
    made = encoding(spec)
    assert isinstance(made, VectorEncoding)
    table = analysis.vectors_or_nan(made, torch.arange(seq_len))
    step = stride(seq_len, table.shape[1])
    return frozen(table[:, ::step].T.contiguous()), step


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs=HASHES)
def angles(spec: Spec, seq_len: int) -> tuple[Array, int]:
    """Angles mod 2π, [pairs, positions], and the stride of pairs that keeps them within MAX_CELLS."""
    inv_freq = analysis.spectrum(spec, seq_len)
    assert inv_freq is not None
    step = stride(seq_len, len(inv_freq))
    return frozen((inv_freq[::step, None] * torch.arange(seq_len)).remainder(2 * torch.pi)), step


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def spectrum(spec: Spec, seq_len: int) -> Array | None:
    """Radians a position of every pair of a sequence, high to low; None for a scheme without frequencies."""
    inv_freq = analysis.spectrum(spec, seq_len)
    return None if inv_freq is None else frozen(inv_freq)


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def bias(spec: Spec, seq_len: int, head: int) -> tuple[Array, int]:
    """The bias of one head, [queries, keys], and the stride of positions that keeps it within MAX_CELLS."""
    step = int(np.ceil(seq_len / np.sqrt(MAX_CELLS)))
    positions = torch.arange(0, seq_len, step)
    return frozen(_bias(one_head(spec, head), positions, positions)[0]), step


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def bias_rows(spec: Spec, seq_len: int, position: int) -> Array:
    """What every head adds to the scores of a query at `position`: [heads, keys], NaN where forbidden."""
    return frozen(_bias(spec, torch.tensor([position]), torch.arange(seq_len))[:, 0].nan_to_num(neginf=torch.nan))


def _bias(spec: Spec, queries: Tensor, keys: Tensor) -> Tensor:
    made = build(spec).bias(queries, keys)
    assert made is not None
    return made


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def similarity(spec: Spec, seq_len: int) -> tuple[Array, int]:
    """How alike positions are, [positions, positions], and the stride of positions.

    Cosine of the vectors; for a rotation the score of equal vectors, 1 at distance 0.
    """
    step = int(np.ceil(seq_len / 512))
    positions = torch.arange(0, seq_len, step)
    made = encoding(spec, seq_len)
    if isinstance(made, VectorEncoding):
        return frozen(analysis.cosine_similarity(analysis.vectors_or_nan(made, positions))), step
    row = analysis.equal_scores(made, spec.d_head, positions)[0]  # type: ignore[attr-defined]
    row = row / row[0]
    return frozen(row[(torch.arange(len(row))[:, None] - torch.arange(len(row))).abs()]), step


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def shift_map(spec: SinusoidalSpec, k: int) -> Array:
    """M_k of a sinusoidal encoding, its first 64 dimensions at most: [to, from]."""
    return frozen(Sinusoidal(spec).shift_map(k)[:64, :64].clone())


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def shift_error(spec: SinusoidalSpec, k: int) -> float:
    """Largest |M_k PE(p) - PE(p + k)| over the first 512 positions."""
    return analysis.shift_map_error(Sinusoidal(spec), k, torch.arange(512))


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def integer_faults(spec: IntegerSpec, seq_len: int) -> tuple[Array, Array]:
    """Distance of every position's vector from position 0's, and the gradient norm of a linear probe: [positions]."""
    table = analysis.vectors_or_nan(Integer(spec), torch.arange(seq_len))
    return frozen((table - table[0]).norm(dim=-1)), frozen(analysis.probe_gradient_norms(table))


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def closest_pair(spec: Spec, seq_len: int) -> float:
    """The smallest distance between the vectors of two of the first SEARCHED positions, NaN with fewer than two."""
    made = encoding(spec)
    assert isinstance(made, VectorEncoding)
    table = analysis.vectors_or_nan(made, torch.arange(min(seq_len, SEARCHED)))
    table = table[table.isfinite().all(-1)]
    return torch.pdist(table).min().item() if len(table) > 1 else float("nan")


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def key_numbers(spec: Spec, seq_len: int) -> list[facts.Fact]:
    """The scheme's key numbers."""
    return facts.key_numbers(spec, encoding(spec), seq_len)
