"""Arrays and searches of the Porting page."""

from __future__ import annotations

import functools

import streamlit as st
import torch

from explorer.compute.common import HASHES, Array, frozen
from explorer.models import MODELS
from posenc_core import Problem, SpecError, porting
from posenc_core.fingerprint import Fingerprint, fingerprint
from posenc_core.frequencies import rope_frequencies
from posenc_core.pasted import Kind
from posenc_core.schemes.rope import RopeSpec

HEADS = 4  # key heads, and query heads a key head, of the weights that prove a layout: more show nothing more
MLA_UNROTATED = 128  # features without position of a DeepSeek head (qk_nope_head_dim)
MLA_HEADS = 4
SEARCHED = 2**17  # distances at which scores are compared


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def proof(spec: RopeSpec, kv_heads: int, queries_per_key: int) -> porting.Proof:
    """Scores in both layouts, of at most HEADS key heads with HEADS query heads each."""
    kv, queries = min(kv_heads, HEADS), min(queries_per_key, HEADS)
    return porting.prove_layout(spec, kv * queries, kv)


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def norm_proof(spec: RopeSpec) -> porting.Proof:
    """The same with learned norms of q and k: all permuted, and the norms left as they were."""
    return porting.prove_layout(spec, HEADS, HEADS, norm=True)


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def mla_proof(spec: RopeSpec) -> porting.Proof:
    """The same for DeepSeek's attention: one rotated key for all heads, behind features without position."""
    return porting.prove_layout(spec, MLA_HEADS, MLA_HEADS, unrotated=MLA_UNROTATED)


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def error_map(spec: RopeSpec, number_format: str, rounded: str, longest: int) -> porting.ErrorMap:
    """Largest phase error of every pair over growing columns of positions."""
    return porting.error_map(rope_frequencies(spec).inv_freq, number_format, rounded, longest)


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def first_exceeding(spec: RopeSpec, number_format: str, rounded: str) -> int | None:
    """First position with a phase off by porting.LIMIT rad, None below porting.LONGEST."""
    return porting.first_exceeding(rope_frequencies(spec).inv_freq, number_format, rounded)


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def first_collision(spec: RopeSpec, number_format: str, rounded: str) -> int | None:
    """First position that rotates as the next one does."""
    return porting.first_collision(rope_frequencies(spec).inv_freq, number_format, rounded)


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def error_at(spec: RopeSpec, number_format: str, rounded: str, position: int) -> float:
    """Largest phase error of a pair at a position, rad; NaN past the format's largest number."""
    inv_freq = rope_frequencies(spec).inv_freq
    return porting.phase_error(inv_freq, torch.tensor([position]), number_format, rounded).max().item()


@functools.cache
def known() -> dict[str, RopeSpec]:
    """The rotations of public models, by name."""
    found: dict[str, RopeSpec] = {}
    for name, model in MODELS.items():
        kinds = {layer.spec: layer.layer_type for layer in model.encoding.layers if isinstance(layer.spec, RopeSpec)}
        for spec, layer_type in kinds.items():
            found[name if len(kinds) == 1 else f"{name}, {layer_type}"] = spec
    return found


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def fingerprints(text: str, kind: Kind, expected: RopeSpec) -> Fingerprint | tuple[Problem, ...]:
    """Ranked candidates for pasted numbers, or why they cannot be read."""
    try:
        return fingerprint(text, kind, expected, known())
    except SpecError as error:
        return error.problems


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def pairs(model: RopeSpec, port: RopeSpec, seq_len: int) -> porting.PairDifference:
    """Frequencies of both, pair by pair."""
    return porting.compare_pairs(model, port, seq_len)


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def scores(model: RopeSpec, port: RopeSpec, q_shift: int, direction: int, longest: int) -> porting.ScoreDifference:
    """Relative difference of the scores of random queries and keys, and where it first exceeds the limits."""
    return porting.score_difference(porting.Port(model), porting.Port(port, q_shift, direction), longest)


def frequencies(spec: RopeSpec) -> Array:
    """Radians a position of every pair."""
    return frozen(rope_frequencies(spec).inv_freq)
