"""Positional encodings for attention, with numbers that are checked against the papers.

Shapes, everywhere: B batch, H heads, L sequence length (Lq queries, Lk keys), D features of a head (d_head), R rotary
dim (features that rotate, R <= D), d_model = H·D. Angles are in radians, positions in tokens, losses in nats.
"""

from posenc_core.attention import alibi_attention, attention
from posenc_core.frequencies import rope_frequencies
from posenc_core.hf_config import Finding, LayerEncoding, ModelEncoding, read_hf_config
from posenc_core.rotary import apply_rotary, apply_rotary_qk
from posenc_core.schemes import SCHEMES, build, parse_query, parse_spec
from posenc_core.schemes.alibi import alibi_slopes
from posenc_core.schemes.base import PositionalEncoding
from posenc_core.spec import Param, Problem, Spec, SpecError

__all__ = [
    "SCHEMES", "Finding", "LayerEncoding", "ModelEncoding", "Param", "PositionalEncoding", "Problem", "Spec",
    "SpecError", "alibi_attention", "alibi_slopes", "apply_rotary", "apply_rotary_qk", "attention", "build",
    "parse_query", "parse_spec", "read_hf_config", "rope_frequencies",
]  # fmt: skip
