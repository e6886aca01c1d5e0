"""Words and formulae of RoPE's scalings, with the values that a spec gives them."""

from __future__ import annotations

from posenc_core.frequencies import attention_scales, yarn_range
from posenc_core.schemes.rope import RopeSpec

YARN_PAPER = "[Peng et al. 2023](https://arxiv.org/abs/2309.00071)"

# scaling: (formula of the frequencies, where it comes from). R, P, l, h and the powers' dimensions are filled in.
SCALING_TEXT: dict[str, tuple[str, str]] = {
    "none": (r"\omega_i = \theta^{-2i/R}", "the spectrum as trained"),
    "linear": (
        r"\omega_i = \theta^{-2i/R} / s",
        "position interpolation, [Chen et al. 2023](https://arxiv.org/abs/2306.15595)",
    ),
    "ntk": (
        r"\omega_i = \theta'^{\,-2i/R} \\ \theta' = \theta\, s^{R/(R-2)}",
        f"NTK-aware base, bloc97 2023; written up in {YARN_PAPER}",
    ),
    "ntk_by_parts": (
        r"\omega_i = \left(1 - \gamma_i + \gamma_i/s\right)\theta^{-2i/R} \\ \gamma_i = GAMMA",
        f"NTK by parts, {YARN_PAPER}, section 3.2",
    ),
    "dynamic": (
        r"\omega_i = \theta'^{\,-2i/R} \\ \theta' = \theta \left(s\,L/L_0 - (s - 1)\right)^{R/(R-2)} \\ LENGTH",
        f"dynamic NTK, emozilla 2023; written up in {YARN_PAPER}, section 3.3",
    ),
    "yarn": (
        r"\omega_i = \left(1 - \gamma_i + \gamma_i/s\right)\theta^{-2i/R} \\ \gamma_i = GAMMA \\ SCALE",
        f"YaRN, {YARN_PAPER}",
    ),
    "longrope": (
        r"\omega_i = \theta^{-2i/R} / \lambda_i \\ \lambda = \begin{cases} \mathrm{short} & L \le L_0 \\ "
        r"\mathrm{long} & L > L_0 \end{cases} \\ SCALE",
        "LongRoPE, [Ding et al. 2024](https://arxiv.org/abs/2402.13753)",
    ),
    "llama3": (
        r"\omega_i = \left(k_i + (1 - k_i)/s\right)\theta^{-2i/R} \\ "
        r"k_i = KEPT",
        "Llama 3.1's, from [Meta's code](https://github.com/meta-llama/llama-models); the models: "
        "[Grattafiori et al. 2024](https://arxiv.org/abs/2407.21783)",
    ),
    "proportional": (
        r"\omega_i = \theta^{-2i/d}/s \text{ for } i < \lfloor p\,d/2 \rfloor \text{, else } 0 \\ p = P",
        "p-RoPE, [Barbero et al. 2024](https://arxiv.org/abs/2410.06205)",
    ),
}

# symbol in the formula: the spec's field
SYMBOLS: dict[str, str] = {
    r"\theta": "base", "s": "factor", "L_0": "original_max_position_embeddings", r"\alpha": "beta_slow",
    r"\beta": "beta_fast", "r_l": "low_freq_factor", "r_h": "high_freq_factor",
}  # fmt: skip


def scaling_formula(spec: RopeSpec) -> str:
    """The frequencies' formula with the spec's values, in LaTeX rows that fit a phone."""
    text = SCALING_TEXT[spec.scaling][0]
    text = (
        text.replace("GAMMA", _gamma(spec))
        .replace("KEPT", _kept(spec))
        .replace("SCALE", _scale(spec))
        .replace("LENGTH", _length(spec))
    )
    text = text.replace("R", str(spec.rotary_dim)).replace("P", f"{spec.rotary_fraction:g}")
    rows, row = list[str](), list[str]()
    for name in (n for n, field in SYMBOLS.items() if spec.applies(spec.param(field))):
        value = getattr(spec, SYMBOLS[name])
        row.append(f"{name} = {value:,.10g}".replace(",", "{,}"))
        if len(row) == 3:
            rows, row = [*rows, r",\ ".join(row)], []
    return r" \\ ".join([text, *rows, *filter(None, [r",\ ".join(row)])])


def scaling_note(spec: RopeSpec, seq_len: int) -> str:
    """What a scaling that depends on the length does at `seq_len`, and where YaRN's clamp misleads; mostly empty."""
    if spec.scaling in ("ntk_by_parts", "yarn") and spec.ramp == "index":
        low, high = yarn_range(spec)
        if low > high >= 0:
            return (
                f"Every pair makes more than beta_fast = {spec.beta_fast:g} turns within the original length, but the "
                f"clamp of the authors' code ends the ramp at {high:g}, before its start at {low:g}: all are divided."
            )
    if not spec.by_length:
        return ""
    original = f"original length of {spec.original_max_position_embeddings:,}"
    if seq_len <= spec.original_max_position_embeddings:
        return f"The {seq_len:,} positions shown lie within the {original}, so nothing is stretched yet."
    return f"The {seq_len:,} positions shown go past the {original}: the frequencies are those of this length."


def _gamma(spec: RopeSpec) -> str:
    if spec.scaling not in ("ntk_by_parts", "yarn"):
        return ""
    if spec.ramp == "rotations" and spec.beta_fast == spec.beta_slow:
        return r"1 \text{ if } L_0\,\theta^{-2i/R}/2\pi < \alpha \text{, else } 0"
    if spec.ramp == "rotations":
        return r"\left[\frac{\beta - L_0\,\theta^{-2i/R}/2\pi}{\beta - \alpha}\right]_0^1"
    low, high = yarn_range(spec)
    if high < 0 or low == high:
        return "0" if high < 0 else rf"1 \text{{ if }} i > {low:.6g} \text{{, else }} 0"
    return rf"\left[\frac{{i - {low:.6g}}}{{{high:.6g} - {low:.6g}}}\right]_0^1"


def _kept(spec: RopeSpec) -> str:
    turns = r"L_0\,\theta^{-2i/R}/2\pi"
    if spec.low_freq_factor == spec.high_freq_factor:
        return rf"1 \text{{ if }} {turns} \ge r_l \text{{, else }} 0"
    return rf"\left[\frac{{{turns} - r_l}}{{r_h - r_l}}\right]_0^1"


def _scale(spec: RopeSpec) -> str:
    if spec.scaling not in ("yarn", "longrope"):
        return ""
    scales = attention_scales(spec)
    given = "" if spec.attention_factor else (r" = \sqrt{1 + \ln s/\ln L_0}" if spec.scaling == "longrope" else "")
    if spec.scaling == "yarn" and not spec.attention_factor:
        both = spec.mscale and spec.mscale_all_dim
        given = rf" = \frac{{g({spec.mscale:g})}}{{g({spec.mscale_all_dim:g})}}" if both else r" = 0.1 \ln s + 1"
    where = r"\cos, \sin \times f" if spec.attention_on == "cos_sin" else r"\text{scores} \times f^2"
    rows = [rf"{where},\ f{given} = {scales.attention_factor:.6g}"]
    if spec.mscale_all_dim:
        extra = attention_scales(spec.replace(attention_on="cos_sin")).scores
        rows.append(rf"\text{{scores}} \times g({spec.mscale_all_dim:g})^2 = {extra:.6g}")
    return r" \\ ".join(rows)


def _length(spec: RopeSpec) -> str:
    if spec.scaling != "dynamic":
        return ""
    return r"L = \max(L_0, \text{length})" if spec.dynamic_length == "sequence" else r"L = s\,L_0 \text{ always}"
