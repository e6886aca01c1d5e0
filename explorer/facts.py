"""Key numbers of a scheme: (name, value, meaning), computed from its spec. No streamlit."""

from __future__ import annotations

import torch

from posenc_core import PositionalEncoding, Spec, analysis
from posenc_core.frequencies import Action, attention_scales, pair_report
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.base import VectorEncoding
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import Sinusoidal

Fact = tuple[str, str, str]
SHIFT = 17  # positions, of the shift whose linear map is checked


def short(value: float) -> str:
    """A number in few digits: 62,832 or 0.00391."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def key_numbers(spec: Spec, encoding: PositionalEncoding, seq_len: int) -> list[Fact]:
    """Three to five numbers that tell the most about a scheme, for sequences of `seq_len` positions."""
    if isinstance(spec, HybridSpec):
        schemes = [s.scheme for s in spec.layers]
        return [
            ("layers", str(len(schemes)), "layers in the list"),
            ("different", str(len(set(spec.layers))), "different specs among them"),
            ("without position", str(schemes.count("none")), "layers with no encoding at all"),
        ]
    facts = _spectrum_facts(spec, seq_len)
    if isinstance(spec, RopeSpec) and spec.scaling != "none":
        facts += _scaling_facts(spec, seq_len)
    if isinstance(encoding, VectorEncoding):
        facts += _vector_facts(spec, encoding, seq_len)
    if isinstance(spec, AlibiSpec):
        slopes = spec.slope_tensor()
        facts += [
            ("steepest slope", short(slopes.max().item()), "score lost per position in the shortest-sighted head"),
            ("gentlest slope", short(slopes.min().item()), "score lost per position in the farthest-sighted head"),
        ]
        if slopes.min() > 0:
            reach = f"{short(1 / slopes.min().item())} positions"
            facts.append(("reach", reach, "distance at which the gentlest head's weight falls to 1/e, all else equal"))
    defined = analysis.defined_length(encoding)
    facts.append(
        ("defined for", "every position" if defined is None else f"{defined:,} positions", "how far it has a value")
    )
    parameters = sum(p.numel() for p in encoding.parameters())
    facts.append(("parameters", f"{parameters:,}", "trained numbers that the scheme adds"))
    if len(facts) < 3:
        facts.append(("hook", spec.hook, "place where the scheme acts on attention"))
    return facts[:5]


def _spectrum_facts(spec: Spec, seq_len: int) -> list[Fact]:
    inv_freq = analysis.spectrum(spec, seq_len)
    if inv_freq is None:
        return []
    wavelengths = analysis.wavelengths(inv_freq)
    turning = wavelengths[wavelengths.isfinite()]
    full = int((wavelengths <= seq_len).sum())
    return [
        ("wavelengths", f"{short(turning.min().item())} … {short(turning.max().item())}",
         "positions that the fastest and the slowest pair take for a full turn"),
        ("full turns", f"{full} of {len(inv_freq)} pairs", f"pairs that turn fully within {seq_len:,} positions"),
    ]  # fmt: skip


def _scaling_facts(spec: RopeSpec, seq_len: int) -> list[Fact]:
    report, scales = pair_report(spec, seq_len), attention_scales(spec, seq_len)
    words: dict[Action, str] = {"kept": "as trained", "ramped": "between", "divided": "slowed in full", "zero": "still"}
    counts = {action: report.count(action) for action in words if report.count(action)}
    meaning = f"pairs by what the scaling does to them: {', '.join(words[a] for a in counts)}"
    facts = [(" / ".join(counts), " / ".join(map(str, counts.values())), meaning)]
    grown = scales.tables**2 * scales.scores
    if grown != 1:
        facts.append(("scores", f"× {short(grown)}", "factor that the method puts on the scores of rotated features"))
    return facts


def _vector_facts(spec: Spec, encoding: VectorEncoding, seq_len: int) -> list[Fact]:
    vectors = analysis.vectors_or_nan(encoding, torch.arange(seq_len))
    norms = vectors.norm(dim=-1)
    norms = norms[norms.isfinite()]
    values = vectors[vectors.isfinite()].abs()
    facts = [("largest value", short(values.max().item()), "largest |value| of an encoding among the positions shown")]
    if isinstance(encoding, Sinusoidal):
        error = analysis.shift_map_error(encoding, SHIFT, torch.arange(min(seq_len, 512)))
        meaning = f"largest |M·PE(p) - PE(p + {SHIFT})|: a shift is a linear map"
        facts.append((f"shift error, k = {SHIFT}", f"{error:.1e}", meaning))
    elif not isinstance(spec, IntegerSpec):  # there the gradient below is the same number
        facts.append(("longest vector", short(norms.max().item()), "largest norm among the positions shown"))
    if isinstance(spec, IntegerSpec):
        gradient = analysis.probe_gradient_norms(vectors[vectors.isfinite().all(-1)]).max().item()
        facts.append(("largest gradient", short(gradient), "of a linear probe that reads the encoding"))
    return facts
