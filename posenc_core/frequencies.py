"""Rotary frequencies and their scalings: pure functions, float64. A new scaling is one function and one dict entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from posenc_core.schemes.rope import RopeSpec

Length = int | Tensor | None
Action = Literal["kept", "ramped", "divided", "zero"]


class Frequencies(NamedTuple):
    """inv_freq: float64 [pairs], radians a position, high to low. attention_factor multiplies cos and sin."""

    inv_freq: Tensor
    attention_factor: float


def geometric(base: float | Tensor, dim: int, rotary_dim: int | None = None) -> Tensor:
    """base^(-2i/dim) for i < rotary_dim/2, float64 (Su et al. 2021, section 3.2.2)."""
    device = base.device if isinstance(base, Tensor) else "cpu"
    exponent = torch.arange(0, dim if rotary_dim is None else rotary_dim, 2, dtype=torch.float64, device=device) / dim
    return base**-exponent


def none(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """The spectrum as trained; the exponent runs over the rotary dim (GPT-NeoX's partial rotation)."""
    return Frequencies(geometric(spec.base, spec.rotary_dim), 1.0)


def linear(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """Position interpolation: every frequency divided by the factor (Chen et al. 2023, arXiv:2306.15595)."""
    return Frequencies(geometric(spec.base, spec.rotary_dim) / spec.factor, 1.0)


def ntk(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """NTK-aware: base·s^(d/(d-2)) divides the lowest frequency by s and keeps the highest (bloc97 2023)."""
    dim = spec.rotary_dim
    return Frequencies(geometric(spec.base * spec.factor ** (dim / (dim - 2)), dim), 1.0)


def ntk_by_parts(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """Fast pairs kept, slow pairs divided, a ramp between (Peng et al. 2023, section 3.2, arXiv:2309.00071)."""
    inv_freq, share = geometric(spec.base, spec.rotary_dim), yarn_ramp(spec)
    return Frequencies(inv_freq * (1 - share) + inv_freq / spec.factor * share, 1.0)


def dynamic(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """NTK-aware with a base that grows with the sequence (emozilla 2023; transformers' and vLLM's formula).

    At L positions the base is base·(s·L/L₀ - (s - 1))^(d/(d-2)), L₀ the original length, and as trained for L ≤ L₀ or
    no L. With s = 1 the slowest pair is stretched by L/L₀, as in Peng et al. 2023, section 3.3; with s = L/L₀ by
    s² - s + 1, more than the length needs. `dynamic_length = maximum` takes L = s·L₀ always, as vLLM did. Keys that a
    cache holds from a shorter sequence keep the frequencies of that length, unless the cache stores them unrotated.
    """
    dim, trained = spec.rotary_dim, spec.original_max_position_embeddings
    if spec.dynamic_length == "maximum":
        seq_len = spec.factor * trained  # type: ignore[assignment]
    if not isinstance(seq_len, Tensor):
        seq_len = torch.tensor(trained if seq_len is None else seq_len, dtype=torch.float64, device="cpu")
    length = seq_len.double().clamp(min=trained)
    stretch = spec.factor * length / trained - (spec.factor - 1)
    return Frequencies(geometric(spec.base * stretch ** (dim / (dim - 2)), dim), 1.0)


def yarn(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """NTK-by-parts, and scores sharpened by the attention factor (Peng et al. 2023, arXiv:2309.00071).

    The attention factor is g(s) = 0.1 ln s + 1, or g(mscale)/g(mscale_all_dim) where both are given (DeepSeek-V2).
    """
    factor = spec.attention_factor
    if not factor:
        both = spec.mscale and spec.mscale_all_dim
        factor = (
            yarn_mscale(spec.factor, spec.mscale) / yarn_mscale(spec.factor, spec.mscale_all_dim)
            if both
            else yarn_mscale(spec.factor)
        )
    return Frequencies(ntk_by_parts(spec).inv_freq, factor)


def longrope(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """A divisor a pair found by search, one list up to the original length, one past it (Ding et al. 2024).

    arXiv:2402.13753; the lists are chosen by the sequence's length, never by the cache's size. Without lists: 1 for
    every pair up to the original length, the factor past it. The attention factor is sqrt(1 + ln s / ln L₀).
    """
    inv_freq = geometric(spec.base, spec.rotary_dim)
    trained, pairs = spec.original_max_position_embeddings, len(inv_freq)
    short = torch.tensor(spec.short_factor or (1.0,) * pairs, dtype=torch.float64, device="cpu")
    long = torch.tensor(spec.long_factor or (spec.factor,) * pairs, dtype=torch.float64, device="cpu")
    if isinstance(seq_len, Tensor):
        divisor = torch.where(seq_len > trained, long.to(seq_len.device), short.to(seq_len.device))
    else:
        divisor = long if seq_len is not None and seq_len > trained else short
    computed = math.sqrt(1 + math.log(spec.factor) / math.log(trained))
    return Frequencies(inv_freq.to(divisor.device) / divisor, spec.attention_factor or computed)


def llama3(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """Kept above high_freq_factor turns within the original length, divided below low_freq_factor, a ramp between.

    Meta's code of Llama 3.1 (github.com/meta-llama/llama-models; the models: Grattafiori et al. 2024, arXiv:2407.21783,
    which has no formula for it). Equal factors: no ramp.
    """
    inv_freq = geometric(spec.base, spec.rotary_dim)
    turns = inv_freq * spec.original_max_position_embeddings / (2 * math.pi)
    low, high = spec.low_freq_factor, spec.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1) if high > low else (turns >= high).double()
    return Frequencies(inv_freq * kept + inv_freq / spec.factor * (1 - kept), 1.0)


def proportional(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """p-RoPE: exponent over the head dim, the lowest (1 - rotary_fraction) of the spectrum set to zero.

    Barbero et al. 2024, arXiv:2410.06205; with a factor as in Gemma 4.
    """
    kept = geometric(spec.base, spec.d_head)[: spec.rotated_pairs] / spec.factor
    return Frequencies(torch.nn.functional.pad(kept, (0, spec.d_head // 2 - len(kept))), 1.0)


SCALINGS: dict[str, Callable[[RopeSpec, Length], Frequencies]] = {
    "none": none,
    "linear": linear,
    "ntk": ntk,
    "ntk_by_parts": ntk_by_parts,
    "dynamic": dynamic,
    "yarn": yarn,
    "longrope": longrope,
    "llama3": llama3,
    "proportional": proportional,
}


def rope_frequencies(spec: RopeSpec, seq_len: Length = None) -> Frequencies:
    """(inv_freq float64 [rotary_dim/2], attention_factor) of a RopeSpec.

    `seq_len` matters only to scalings that depend on the length of the sequence (dynamic, longrope); None is a length
    within the original one. TypeError for another scheme's spec.
    """
    _needs_rope(spec, "rope_frequencies")
    return SCALINGS[spec.scaling](spec, seq_len)


def _needs_rope(spec: RopeSpec, who: str) -> None:
    if not hasattr(spec, "rotary_dim"):
        raise TypeError(f"{who} needs a rope spec, not {spec.scheme}")


# ------------------------------------------------------------------ YaRN's parts


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """g(s) = 0.1·mscale·ln s + 1 for s > 1, else 1 (Peng et al. 2023, equation 22; mscale as in DeepSeek-V2)."""
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def yarn_range(spec: RopeSpec) -> tuple[float, float]:
    """(low, high): the pair indices between which YaRN's ramp runs, clamped to 0 and R - 1 as in the authors' code.

    Pair i turns beta_fast times within the original length at i = low, beta_slow times at i = high. `truncate` rounds
    them outwards.
    """
    dim, trained = spec.rotary_dim, spec.original_max_position_embeddings

    def index(rotations: float) -> float:
        return dim * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(spec.base))

    low, high = index(spec.beta_fast), index(spec.beta_slow)
    if spec.truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, dim - 1)


def yarn_ramp(spec: RopeSpec) -> Tensor:
    """How much of each pair is interpolated, float64 [R/2]: 0 kept, 1 divided by the factor.

    ramp = index: linear in the pair's index (the authors' code, transformers, vLLM); rotations: linear in the turns
    that the pair makes within the original length (the paper's text, equation 18).
    """
    pairs = spec.rotary_dim // 2
    if spec.ramp == "rotations":
        turns = geometric(spec.base, spec.rotary_dim) * spec.original_max_position_embeddings / (2 * math.pi)
        width = max(spec.beta_fast - spec.beta_slow, 1e-9)
        return 1 - ((turns - spec.beta_slow) / width).clamp(0, 1)
    low, high = yarn_range(spec)
    high = high if high != low else high + 0.001  # as in the authors' code
    return ((torch.arange(pairs, dtype=torch.float64, device="cpu") - low) / (high - low)).clamp(0, 1)


# ------------------------------------------------------------------ where the attention factor acts


class AttentionScales(NamedTuple):
    """attention_factor as the method computes it; what multiplies cos and sin; what multiplies the scores besides."""

    attention_factor: float
    tables: float
    scores: float


def attention_scales(spec: RopeSpec, seq_len: Length = None) -> AttentionScales:
    """Where a spec's attention factor acts.

    On cos and sin (transformers, vLLM) it scales the rotated features of q and of k, so rotated scores grow by its
    square; on the scores (the paper's 1/√t) unrotated features grow too. mscale_all_dim multiplies the scores by
    g(mscale_all_dim)² besides (DeepSeek-V2's softmax scale, arXiv:2405.04434). TypeError for another scheme's spec.
    """
    factor = rope_frequencies(spec, seq_len).attention_factor
    scores = yarn_mscale(spec.factor, spec.mscale_all_dim) ** 2 if spec.mscale_all_dim else 1.0
    if spec.attention_on == "scores":
        return AttentionScales(factor, 1.0, scores * factor**2)
    return AttentionScales(factor, factor, scores)


# ------------------------------------------------------------------ what a scaling did to each pair


class PairReport(NamedTuple):
    """What a scaling does to each pair, all of length pairs.

    original, scaled: radians a position, float64. divided_by: original/scaled, infinite for a zero. share: how much of
    the division by the factor a pair got, 0 … 1. action: kept, ramped (a share between), divided, zero.
    """

    original: Tensor
    scaled: Tensor
    divided_by: Tensor
    share: Tensor
    action: tuple[Action, ...]

    def count(self, action: Action) -> int:
        """Pairs with this action."""
        return self.action.count(action)


def pair_report(spec: RopeSpec, seq_len: Length = None) -> PairReport:
    """Per pair: kept, ramped by how much, or divided by how much. TypeError for another scheme's spec.

    The division by which a share is measured is the spec's factor; for dynamic the largest division of a pair at this
    length. LongRoPE divides every pair by its own number: such a pair is divided, not ramped.
    """
    scaled = rope_frequencies(spec, seq_len).inv_freq
    original = geometric(spec.base, spec.rotary_dim)
    divided_by = original / scaled
    finite = divided_by[divided_by.isfinite()]
    most = float(finite.max()) if spec.scaling == "dynamic" else spec.factor
    nothing = torch.zeros_like(divided_by)
    share = ((1 - 1 / divided_by) / (1 - 1 / most)).clamp(0, 1) if most > 1 + 1e-9 else nothing
    if spec.scaling == "longrope":
        share = (divided_by != 1).double()
    actions = tuple(_action(d, s) for d, s in zip(divided_by.tolist(), share.tolist(), strict=True))
    return PairReport(original, scaled, divided_by, share, actions)


def _action(divided_by: float, share: float) -> Action:
    if math.isinf(divided_by):
        return "zero"
    if abs(divided_by - 1) < 1e-9:
        return "kept"
    return "divided" if share > 1 - 1e-9 else "ramped"
