"""A spec, or a model's encoding, in the words of other programs; what a target cannot say is told, never dropped."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from posenc_core import snippet
from posenc_core.export_config import in_config_words, json_text, reach_of, transformers, transformers_legacy, vllm
from posenc_core.export_model import Export, State, beside, by_layer, model_of, told_of
from posenc_core.frequencies import attention_scales, rope_frequencies, yarn_mscale
from posenc_core.rotary import cos_sin
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.base import VectorEncoding
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.t5 import T5Spec
from posenc_core.spec import Spec, number_text

MAX_POSITIONS = 4096  # of a table
MAX_CELLS = 2**18  # of all tables of cos together

__all__ = [
    "EXPORTS", "Export", "State", "arrays", "exports", "json_text", "llama_cpp", "pytorch", "tables", "transformers",
    "transformers_legacy", "vllm",
]  # fmt: skip


# ------------------------------------------------------------------ llama.cpp


def llama_cpp(state: State) -> Export:
    """Options of llama-cli and llama-server. A GGUF file holds the rest: head, rotary dim, layout, tables."""
    name = "llama.cpp (options)"
    model = model_of(state)
    others = [k.spec.scheme for k in model.kinds if not isinstance(k.spec, RopeSpec | NoneSpec)]
    if others:
        return Export(name, "bash", "", (f"scheme = {others[0]}: the GGUF file decides it; no option sets it.",))
    if not model.ropes:
        return Export(name, "bash", "", ("scheme = none: no option turns the rotation off.",))
    if len(model.specs) > 1:
        why = f"{len(model.specs)} different rotations: the options act on all layers; the GGUF file holds the others."
        return Export(name, "bash", "", (why,))
    made = _flags(model.specs[0])
    if isinstance(made, str):
        return Export(name, "bash", "", (made,))
    flags, losses = made
    if len(model.kinds) > len(model.ropes):
        losses.append("layers without positions: the architecture decides which they are; no option sets them.")
    losses += beside(model, "the GGUF file or its architecture holds it; no option sets it")
    return Export(name, "bash", " \\\n".join(f"{k} {v}" for k, v in flags.items()), told_of(losses, model))


def _flags(spec: RopeSpec) -> tuple[dict[str, str], list[str]] | str:
    tables = {
        "llama3": "the converter writes its divisors into the GGUF file (rope_freqs)",
        "longrope": "the converter writes both lists into the GGUF file (rope_factors_short, rope_factors_long), and "
        "the size of the context decides which acts, not the sequence's length (ggml-org/llama.cpp#8995)",
        "proportional": "the converter writes its zeros into the GGUF file (rope_freqs)",
    }
    if spec.scaling in tables:
        return f"scaling = {spec.scaling}: no option holds it; {tables[spec.scaling]}."
    if spec.scaling == "dynamic" and spec.dynamic_length == "sequence":
        return (
            f"scaling = dynamic, factor = {spec.factor:g}: llama.cpp has no scaling that follows the sequence's "
            "length; for one length it is another base (scaling = ntk)."
        )
    flags, losses = dict[str, str](), list[str]()
    if spec.rotary_fraction != 1:
        losses.append(
            f"rotary_fraction = {spec.rotary_fraction:g}: the GGUF file says how many features turn "
            f"(rope.dimension_count = {spec.rotary_dim}); no option sets it."
        )
    if spec.layout == "interleaved":
        losses.append("layout = interleaved: the GGUF file's architecture decides it; no option sets it.")
    if spec.mrope_section:
        shown = spec.field_text("mrope_section")
        losses.append(f"mrope_section = {shown}: the GGUF file holds it (rope.dimension_sections).")
    if spec.scaling in ("yarn", "ntk_by_parts"):
        flags |= _yarn_flags(spec, losses)
    else:
        plain, told = in_config_words(spec.replace(layout="half"))
        losses += [s.replace("rope_theta", "--rope-freq-base") for s in told]
        flags["--rope-scaling"] = "linear" if plain.scaling == "linear" else "none"
        if plain.scaling == "linear":
            flags["--rope-scale"] = number_text(spec.factor)
        spec = plain
    flags["--rope-freq-base"] = number_text(spec.base)
    return flags, losses


def _yarn_flags(spec: RopeSpec, losses: list[str]) -> dict[str, str]:
    """YaRN. --rope-scale s is --rope-freq-scale 1/s; cos and sin get attn_factor·(1 + 0.1 ln s) from it."""
    flags = {
        "--rope-scaling": "yarn",
        "--rope-scale": number_text(spec.factor),
        "--yarn-orig-ctx": str(spec.original_max_position_embeddings),
        "--yarn-beta-fast": number_text(spec.beta_fast),
        "--yarn-beta-slow": number_text(spec.beta_slow),
    }
    factor, own = attention_scales(spec).attention_factor, yarn_mscale(spec.factor)
    if spec.mscale_all_dim:
        losses.append(
            f"mscale_all_dim = {spec.mscale_all_dim:g}: the GGUF file of a DeepSeek model holds it "
            f"(rope.scaling.yarn_log_multiplier), and llama.cpp then makes the attention factor and the score factor "
            f"{yarn_mscale(spec.factor, spec.mscale_all_dim) ** 2:.7g} itself; no option sets it."
        )
    elif abs(factor - own) > 1e-6 * own:
        flags["--yarn-attn-factor"] = number_text(round(factor / own, 9))
        losses.append(
            f"attention factor = {factor:.7g}: written as --yarn-attn-factor {factor / own:.7g}, which multiplies "
            f"llama.cpp's own 0.1·ln({spec.factor:g}) + 1 = {own:.7g}; builds since ggml-org/llama.cpp#18006 compute "
            "it themselves while YaRN acts and overwrite the option."
        )
    if spec.ramp == "rotations":
        losses.append("ramp = rotations: llama.cpp ramps over the pair's index.")
    elif not spec.truncate:
        losses.append("truncate = false: llama.cpp rounds the ends of the ramp to whole pairs, always.")
    if spec.attention_on == "scores":
        losses.append("attention_on = scores: llama.cpp scales cos and sin, so only features that turn.")
    return flags


# ------------------------------------------------------------------ PyTorch


def pytorch(state: State) -> Export:
    """A module of functions that needs only torch and gives posenc_core's numbers."""
    name, model = "PyTorch", model_of(state)
    losses = [
        f"mrope_section = {s.field_text('mrope_section')}: the code takes one position a token, as text has it."
        for s in model.specs
        if s.mrope_section
    ]
    losses += beside(model, "the code here does not")
    specs = list(dict.fromkeys(k.spec for k in model.kinds))
    parts, names = list[str](), dict[Spec, str]()
    for index, spec in enumerate(specs):
        names[spec] = f"_{index}" if len(specs) > 1 else ""
        made = snippet.source(spec, names[spec])
        if made is None:
            why = f"scheme = {spec.scheme}: there is no code for it here yet."
            return Export(name, "python", "", (why,))
        parts.append(made)
    code = "\n\n".join(parts)
    if len(specs) > 1:
        layers = [specs.index(spec) for spec in by_layer(model)]
        code += f"\n\nlayers = {layers}  # layer -> the number behind the functions that act in it\n"
    title = _title(specs)
    uses_math = "import math\n\n" if "math." in code else ""
    return Export(name, "python", f'"""{title}"""\n\n{uses_math}import torch\n\n\n{code}', told_of(losses, model))


def _title(specs: Iterable[Spec]) -> str:
    shown = [" ".join([s.scheme, *(f"{k}={v}" for k, v in s.to_query().items() if k != "scheme")]) for s in specs]
    text = "; ".join(s if len(s) <= 90 else s[:89] + "…" for s in shown)
    return f"{text}.\n\nPhases are float64 and cast afterwards. Needs only torch.\n"


# ------------------------------------------------------------------ NPZ


def tables(state: State, positions: int | None = None) -> Export:
    """Frequencies and tables as NumPy's npz, float64: what `arrays` gives, by name. None: as many positions as fit."""
    losses, model = list[str](), model_of(state)
    made = arrays(state, positions, losses)
    losses += beside(model, "the tables do not hold it")
    if not made:
        losses.append("There is no table to write.")
        return Export("NPZ of the tables", "npz", b"", told_of(losses, model))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **made)  # type: ignore[arg-type]
    return Export("NPZ of the tables", "npz", buffer.getvalue(), told_of(losses, model))


Arrays = dict[str, np.ndarray[Any, Any]]


def arrays(state: State, positions: int | None = None, losses: list[str] | None = None) -> Arrays:
    """Arrays by name. With several kinds of layers a name ends in _0, _1 …, and `layers` says which acts where.

    rope: inv_freq [R/2], cos and sin [positions, R/2] (attention factor included) of a sequence as long as the table,
    attention_factor, score_factor, and for frequencies that follow the length inv_freq_long, past the original length.
    alibi: slopes [H]. Vector schemes but learned: vectors [positions, d_model].
    """
    told = [] if losses is None else losses
    model = model_of(state)
    specs = list(dict.fromkeys(k.spec for k in model.kinds))
    out: Arrays = {}
    for index, spec in enumerate(specs):
        end = f"_{index}" if len(specs) > 1 else ""
        made = _arrays(spec, positions, MAX_CELLS // len(specs), told)
        out |= {name + end: array for name, array in made.items()}
    if len(specs) > 1:
        out["layers"] = np.array([specs.index(spec) for spec in by_layer(model)])
    return out


def _arrays(spec: Spec, positions: int | None, cells: int, losses: list[str]) -> Arrays:
    if isinstance(spec, RopeSpec):
        length = max(1, min(positions or MAX_POSITIONS, MAX_POSITIONS, cells // (spec.rotary_dim // 2)))
        if positions and length < positions:
            losses.append(f"positions = {positions:,}: tables hold the first {length:,}; inv_freq makes the rest.")
        scales = attention_scales(spec)
        inv_freq = rope_frequencies(spec, length).inv_freq
        cos, sin = cos_sin(torch.arange(length), inv_freq, dtype=torch.float64, attention_factor=scales.tables)
        made = {
            "inv_freq": inv_freq.numpy(), "cos": cos.numpy(), "sin": sin.numpy(),
            "attention_factor": np.float64(scales.attention_factor), "score_factor": np.float64(scales.scores),
        }  # fmt: skip
        if spec.by_length:
            made["inv_freq_long"] = rope_frequencies(spec, reach_of(spec) + 1).inv_freq.numpy()
        if spec.mrope_section:
            made["mrope_section"] = np.array(spec.mrope_section)
        return made  # type: ignore[return-value]
    if isinstance(spec, AlibiSpec):
        return {"slopes": spec.slope_tensor().numpy()}
    if isinstance(spec, LearnedSpec | T5Spec):
        rows = spec.max_position_embeddings if isinstance(spec, LearnedSpec) else spec.relative_attention_num_buckets
        losses.append(f"scheme = {spec.scheme}, {rows:,} rows: the table is trained, so the model's weights hold it.")
        return {}
    if isinstance(spec, NoneSpec):
        return {}
    encoding = spec.build()
    if isinstance(encoding, VectorEncoding):
        width = int(getattr(spec, "d_model", 1))
        defined = getattr(encoding, "defined", None) or MAX_POSITIONS
        length = max(1, min(positions or MAX_POSITIONS, defined, MAX_POSITIONS, cells // width))
        if positions and length < positions:
            losses.append(f"positions = {positions:,}: the table holds the first {length:,}.")
        return {"vectors": encoding.vectors(torch.arange(length)).numpy().copy()}
    losses.append(f"scheme = {spec.scheme}: there is no table of it here yet.")
    return {}


EXPORTS: dict[str, Callable[[State], Export]] = {
    "transformers": transformers,
    "transformers_legacy": transformers_legacy,
    "vllm": vllm,
    "llama_cpp": llama_cpp,
    "pytorch": pytorch,
    "npz": tables,
}


def exports(state: State) -> tuple[Export, ...]:
    """The state in the words of every target."""
    return tuple(make(state) for make in EXPORTS.values())
