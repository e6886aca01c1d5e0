"""A rotation in the words of config.json: transformers' two spellings, and vLLM's option that overrides them.

Names and meanings as of transformers 5.24 (modeling_rope_utils.py) and vLLM in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from posenc_core.export_model import Export, Model, State, by_layer, model_of, told_of
from posenc_core.frequencies import attention_scales, rope_frequencies, yarn_mscale
from posenc_core.hf_architectures import ARCHITECTURES
from posenc_core.hf_config import ModelEncoding, read_hf_config
from posenc_core.hf_sizes import BASES, FRACTIONS, LOCAL_BASES, TEXT_CONFIGS
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import Spec, SpecError

ROPE_TYPES = {"none": "default", "ntk": "default", "ntk_by_parts": "yarn"}  # of scalings with another name in configs
LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")  # to tell a hybrid's layers apart by
# Fields that say what rope_parameters says: an export writes them anew.
OWN = ("rope_parameters", "rope_scaling", "rope_type", "rope_ratio", "rotary_dim")
REPLACED = (*OWN, *BASES, *LOCAL_BASES, *FRACTIONS)
IN_TRANSFORMERS = "transformers does that in DeepSeek's attention and what follows it (Mistral 4), not in Llama's"

# ------------------------------------------------------------------ transformers


def rope_parameters(spec: RopeSpec) -> tuple[dict[str, Any], tuple[str, ...]]:
    """transformers 5's rope_parameters of a rotation, and what they cannot say or say in other words."""
    spec, losses = in_config_words(spec)
    out: dict[str, Any] = {"rope_type": ROPE_TYPES.get(spec.scaling, spec.scaling), "rope_theta": spec.base}
    if spec.rotary_fraction != 1:
        out["partial_rotary_factor"] = spec.rotary_fraction
    named = (
        "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "short_factor", "long_factor",
        "attention_factor", "truncate", "mscale", "mscale_all_dim",
    )  # fmt: skip
    always = ("factor", "low_freq_factor", "high_freq_factor")
    for name in named:
        p, value = spec.param(name), getattr(spec, name)
        said = value != p.default or (name in always and spec.scaling != "proportional")
        if spec.applies(p) and said:
            out[name] = list(value) if isinstance(value, tuple) else value
    if spec.scaling in ("yarn", "longrope", "llama3"):  # dynamic reads max_position_embeddings
        out["original_max_position_embeddings"] = spec.original_max_position_embeddings
    if spec.mrope_section:
        out["mrope_section"] = list(spec.mrope_section)
    if spec.mrope_interleaved:
        out["mrope_interleaved"] = True
    return out, losses


def in_config_words(spec: RopeSpec) -> tuple[RopeSpec, tuple[str, ...]]:
    """The nearest rotation that a config can name, and what that took."""
    losses = list[str]()
    dim = spec.rotary_dim
    if spec.layout == "interleaved":
        losses.append(
            "layout = interleaved: no field says it; the model's architecture decides how features pair "
            "(GPT-J, Cohere and GLM interleave, Llama does not)."
        )
        spec = spec.replace(layout="half")
    if spec.scaling == "ntk":
        stretched = spec.base * spec.factor ** (dim / (dim - 2))
        losses.append(
            f"scaling = ntk, factor = {spec.factor:g}: written as rope_theta = {stretched:.10g}, "
            f"{spec.base:g}·{spec.factor:g}^({dim}/{dim - 2}): the same frequencies from another base."
        )
        spec = _unscaled(spec, stretched)
    elif spec.scaling == "dynamic" and spec.dynamic_length == "maximum":
        stretch = spec.factor**2 - (spec.factor - 1)
        stretched = spec.base * stretch ** (dim / (dim - 2))
        losses.append(
            f"dynamic_length = maximum, factor = {spec.factor:g}: written as rope_theta = {stretched:.10g}: "
            "frequencies that never change with the length are those of another base."
        )
        spec = _unscaled(spec, stretched)
    elif spec.scaling == "ntk_by_parts":
        losses.append(
            "scaling = ntk_by_parts: written as yarn with attention_factor = 1: the same frequencies, scores as they "
            "are."
        )
        spec = spec.replace(scaling="yarn", attention_factor=1.0)
    if spec.ramp == "rotations":
        other = spec.replace(ramp="index")
        ratio = rope_frequencies(spec).inv_freq / rope_frequencies(other).inv_freq
        off = float(torch.maximum(ratio, 1 / ratio).max() - 1)
        losses.append(
            f"ramp = rotations: written as the ramp over the pair's index, which transformers and vLLM have; a "
            f"frequency differs by up to {100 * off:.3g}%."
        )
        spec = other
    if spec.attention_on == "scores":
        whole = "equal scores, since the whole head turns" if dim == spec.d_head else (
            f"the {spec.d_head - dim} features that do not turn are not scaled then, so scores differ"
        )  # fmt: skip
        factor = attention_scales(spec).attention_factor
        losses.append(
            f"attention_on = scores, attention factor {factor:.7g}: written as a factor on cos and sin: {whole}."
        )
        spec = spec.replace(attention_on="cos_sin")
    if spec.scaling == "longrope" and not (spec.short_factor and spec.long_factor):
        pairs = dim // 2
        absent = " and ".join(n for n in ("short_factor", "long_factor") if not getattr(spec, n))
        losses.append(
            f"{absent} = none given: written out, {pairs} numbers of 1 (short) or {spec.factor:g} (long), since "
            "transformers needs both lists."
        )
        short, long = spec.short_factor or (1.0,) * pairs, spec.long_factor or (spec.factor,) * pairs
        spec = spec.replace(short_factor=short, long_factor=long)
    return spec, tuple(losses)


def _unscaled(spec: RopeSpec, base: float) -> RopeSpec:
    """The same head unscaled, with another base; model_construct, since the base may pass the spec's own maximum."""
    kept = {n: getattr(spec, n) for n in ("d_head", "layout", "rotary_fraction", "mrope_section", "mrope_interleaved")}
    plain = RopeSpec(**kept)
    return plain.model_copy(update={"base": base})


def _softmax_loss(specs: Iterable[RopeSpec], target: str) -> list[str]:
    found = {s.mscale_all_dim: s for s in specs if s.mscale_all_dim}
    return [
        f"mscale_all_dim = {value:g}: besides the attention factor it multiplies all scores by "
        f"{yarn_mscale(spec.factor, value) ** 2:.7g}; {target}."
        for value, spec in found.items()
    ]


def transformers(state: State) -> Export:
    """Fields of config.json with transformers 5's `rope_parameters`, nested by layer type where layer types differ."""
    return _config("transformers 5 (rope_parameters)", state, _nested, _by_type)


def transformers_legacy(state: State) -> Export:
    """Fields of config.json as transformers 4 writes them: rope_theta, partial_rotary_factor, rope_scaling."""
    return _config("transformers 4 (rope_scaling)", state, _flat)


_Made = tuple[dict[str, Any], list[str]]


def _config(name: str, state: State, *forms: Callable[[Model], _Made | str]) -> Export:
    model = model_of(state)
    made = _elsewhere(model) or _chosen(state, model, forms)
    if isinstance(made, str):
        return Export(name, "json", "", (made,))
    fields, losses = made
    return Export(name, "json", json_text(fields), told_of(losses, model))


def _chosen(state: State, model: Model, forms: Iterable[Callable[[Model], _Made | str]]) -> _Made | str:
    """The first form that reads back to the same model; if none does, the first one with that as a loss."""
    made = [form(model) for form in forms]
    written = [m for m in made if not isinstance(m, str)]
    if not written or not isinstance(state, ModelEncoding):
        return written[0] if written else made[0]
    same = (m for m in written if _effective(m[0]) == _layers(state))
    fields, losses = written[0]
    return next(same, (fields, [*losses, "Read back, these fields do not give the same layers again."]))


def _effective(fields: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    try:
        return _layers(read_hf_config(fields))
    except SpecError:
        return []


def _layers(encoding: ModelEncoding) -> list[tuple[Any, ...]]:
    return [(x.spec, x.layer_type, x.window, x.head_dim) for x in encoding.layers]


def _elsewhere(model: Model) -> _Made | str | None:
    """Fields of a model that does not rotate, or why there are none; None for one that rotates in some layer."""
    others = [k.spec for k in model.kinds if not isinstance(k.spec, RopeSpec | NoneSpec)]
    if model.ropes:
        if not others:
            return None
        return (
            f"scheme = {others[0].scheme} beside rope: no config mixes them; which layer does what is the code of a "
            "model."
        )
    if model.fields is not None:
        return dict(model.fields), []
    spec = model.kinds[0].spec
    if len(model.kinds) > 1:
        return "A hybrid without RoPE: no config has layers of different schemes; it is the code of a model."
    if isinstance(spec, LearnedSpec):
        losses = [
            f"offset = {spec.offset}: no field says it; RoBERTa and OPT start at row 2, BERT and GPT-2 at row 0."
        ] if spec.offset not in (0, 2) else []  # fmt: skip
        kind = {"model_type": "roberta", "pad_token_id": 1} if spec.offset == 2 else {"model_type": "bert"}
        width = spec.d_model
        heads = next((h for h in range(-(-width // 128), width) if width % h == 0), 1)  # of at most 128 features
        sizes = {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": model.count}
        rows = {"max_position_embeddings": spec.max_position_embeddings, "position_embedding_type": "absolute"}
        return kind | sizes | rows, losses
    if isinstance(spec, AlibiSpec):
        losses = []
        if spec.slopes:
            losses.append(f"slopes = {spec.field_text('slopes')}: no field says them; BLOOM's are the authors' recipe.")
        if spec.variant == "symmetric":
            losses.append("variant = symmetric: no field says it; BLOOM is causal.")
        sizes = {"hidden_size": 64 * spec.n_heads, "n_head": spec.n_heads, "n_layer": model.count}
        return {"model_type": "bloom"} | sizes, losses
    why = {
        "none": "no field turns positions off; it is an architecture (SmolLM3 and Llama 4 have no_rope_layers for some "
        "of their layers)",
        "sinusoidal": "no field sets its base or layout; it is an architecture (Whisper's encoder, Marian)",
        "integer": "nobody's model adds plain indices",
    }
    return f"scheme = {spec.scheme}: {why.get(spec.scheme, 'it is written here by no exporter yet')}."


def _nested(model: Model) -> _Made | str:
    """New spelling: one dictionary, or one a layer type if there are several rotations."""
    if len(model.specs) > 1:
        return _by_type(model)
    losses = list[str]()
    fields = _base_fields(model, losses)
    made, told = rope_parameters(model.specs[0])
    losses += told
    architecture = ARCHITECTURES.get(model.model_type)
    if architecture is not None and architecture.rotary_dim is not None:
        _rotated(fields, model, made.pop("partial_rotary_factor", None))
    fields["rope_parameters"] = made
    _dynamic_length(fields, model, losses)
    losses += _softmax_loss(model.specs, IN_TRANSFORMERS)
    return _placed(fields, model), losses


def _by_type(model: Model) -> _Made | str:
    """New spelling, one dictionary a layer type; null for a type without positions."""
    types = _types(model)
    if isinstance(types, str):
        return types
    losses = list(types[1])
    fields = _base_fields(model, losses)
    if model.fields is None:
        fields["layer_types"] = [types[0][i] for i in range(model.count)]
    made: dict[str, Any] = {}
    for kind in model.kinds:
        name = types[0][kind.layers[0]]
        if not isinstance(kind.spec, RopeSpec):
            made.setdefault(name, None)
            continue
        made[name], told = rope_parameters(kind.spec)
        losses += told
        if not made[name].get("truncate", True):
            losses.append(
                "truncate = false under a layer type: transformers up to 5.24 reads it only from the outer "
                "dictionary and rounds the ramp there."
            )
    fields["rope_parameters"] = made
    _dynamic_length(fields, model, losses)
    losses += _softmax_loss(model.specs, IN_TRANSFORMERS)
    return _placed(fields, model), losses


def _types(model: Model) -> tuple[dict[int, str], list[str]] | str:
    """Layer -> layer type, so that each type has one rotation; or why that cannot be."""
    named = {i: k.layer_type for k in model.kinds for i in k.layers}
    losses = list[str]()
    if not all(named.values()):
        if len(model.specs) > len(LAYER_TYPES):
            return (
                f"{len(model.specs)} different rotations: a config tells layers apart by layer type, of which "
                f"{len(LAYER_TYPES)} can carry a rotation."
            )
        types: dict[Spec, str] = dict(zip(model.specs, LAYER_TYPES, strict=False))
        named = {i: types.get(spec, LAYER_TYPES[0]) for i, spec in enumerate(by_layer(model))}
        losses.append(
            "layers = several rotations: written by layer type, which also says which layers attend to a window; "
            "the names here only tell them apart."
        )
    for name in dict.fromkeys(named.values()):
        specs = {k.spec for k in model.ropes if named[k.layers[0]] == name}
        if len(specs) > 1:
            return f"Layers of type {name} have {len(specs)} different rotations: a config has one a layer type."
    return named, losses


def _flat(model: Model) -> _Made | str:
    """Old spelling: one rotation for all layers, or Gemma 3's pair of bases."""
    losses = list[str]()
    fields = _base_fields(model, losses)
    spec = model.specs[0]
    if len(model.specs) > 1:
        types = {k.layer_type: k.spec for k in model.ropes}
        local, full = types.get("sliding_attention"), types.get("full_attention")
        if len(model.ropes) != 2 or not isinstance(local, RopeSpec) or not isinstance(full, RopeSpec):
            return f"{len(model.specs)} different rotations: the old spelling has one for all layers."
        if (local.d_head, local.rotary_fraction, local.scaling) != (full.d_head, full.rotary_fraction, "none"):
            return (
                "Layer types that differ by more than the base: the old spelling has rope_local_base_freq (Gemma 3) "
                "for an unscaled local base and nothing else."
            )
        fields[_spelled(model, LOCAL_BASES)], spec = local.base, full
    made, told = rope_parameters(spec)
    losses += told
    fields[_spelled(model, BASES)] = made.pop("rope_theta")
    _rotated(fields, model, made.pop("partial_rotary_factor", None), _spelled(model, FRACTIONS))
    kind = made.pop("rope_type")
    if kind != "default" or made:
        fields["rope_scaling"] = {"rope_type": kind, "type": kind} | made  # older readers know only `type`
    else:
        fields["rope_scaling"] = None
    if kind == "proportional":
        losses.append("scaling = proportional: transformers knows it from version 5 on only.")
    if made.get("truncate") is False:
        losses.append("truncate = false: transformers before 4.55 does not read it and rounds the ramp.")
    if kind == "dynamic":
        _dynamic_length(fields, model, losses)
    losses += _softmax_loss(model.specs, IN_TRANSFORMERS)
    return _placed(fields, model), losses


def _base_fields(model: Model, losses: list[str]) -> dict[str, Any]:
    """What stands beside the rotation: the config's other fields, or the head and the layers without positions."""
    if model.fields is not None:
        return {k: v for k, v in _inner(model.fields, _path(model.fields)).items() if k not in REPLACED}
    heads = list(dict.fromkeys(s.d_head for s in model.specs))
    if len(heads) > 1:
        losses.append(
            f"d_head = {', '.join(map(str, heads))}: a config has one head_dim (Gemma 4 alone has a second, "
            f"global_head_dim); written with {heads[0]}."
        )
    if any(s.rotary_fraction != 1 and s.scaling in ("none", "ntk") for s in model.specs):
        losses.append(
            "rotary_fraction below 1: Phi, GPT-NeoX, StableLM and GLM read partial_rotary_factor; Llama's code does "
            "not while rope_type is default, and turns the whole head."
        )
    fields: dict[str, Any] = {"head_dim": heads[0]}
    if model.count > 1:
        fields["num_hidden_layers"] = model.count
    without = [i for k in model.kinds if isinstance(k.spec, NoneSpec) for i in k.layers]
    if without:
        fields["no_rope_layers"] = [int(i not in without) for i in range(model.count)]
        losses.append(
            "layers without positions: written as no_rope_layers, where 1 means that the layer has RoPE; SmolLM3 and "
            "Llama 4 read it, other models ignore it."
        )
    return fields


def _dynamic_length(fields: dict[str, Any], model: Model, losses: list[str]) -> None:
    """Dynamic NTK takes the original length from max_position_embeddings."""
    spec = next((s for s in model.specs if s.scaling == "dynamic" and s.dynamic_length == "sequence"), None)
    if spec is None:
        return
    before, trained = fields.get("max_position_embeddings"), spec.original_max_position_embeddings
    fields["max_position_embeddings"] = trained
    if before not in (None, trained):
        losses.append(
            f"original_max_position_embeddings = {trained:,}: dynamic NTK reads it from max_position_embeddings, which "
            f"was {before:,}."
        )


def _path(fields: Mapping[str, Any]) -> list[str]:
    """The names under which a multimodal config holds its text model; empty for a text model."""
    found = next((n for n in TEXT_CONFIGS if isinstance(fields.get(n), Mapping)), None)
    return [] if found is None else [found, *_path(fields[found])]


def _inner(fields: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    for name in path:
        fields = fields[name]
    return fields


def _placed(fields: dict[str, Any], model: Model) -> dict[str, Any]:
    """The fields where the config has them."""
    outer = model.fields or {}
    for name in reversed(_path(outer)):
        path = _path(outer)
        around = _inner(outer, path[: path.index(name)])
        fields = {k: v for k, v in around.items() if k != name} | {name: fields}
    return fields


def _spelled(model: Model, names: Sequence[str]) -> str:
    """The spelling that the config has, which its model's code reads; else the usual one."""
    read = _inner(model.fields, _path(model.fields)) if model.fields is not None else {}
    return next((n for n in names if read.get(n) is not None), names[0])


def _rotated(fields: dict[str, Any], model: Model, share: float | None, name: str = "partial_rotary_factor") -> None:
    """How much of a head turns, where no rope dictionary says it: a fraction, or GPT-J's rotary_dim."""
    architecture = ARCHITECTURES.get(model.model_type)
    if architecture is not None and architecture.rotary_dim is not None:
        fields["rotary_dim"] = model.specs[0].rotary_dim
    elif share is not None:
        fields[name] = share


def json_text(value: Any) -> str:
    """JSON as one writes it by hand: indented, a list of numbers or names on one line."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    lists = dict.fromkeys(_lists(value))
    for items in lists:
        wide = json.dumps(list(items), indent=2)
        for depth in range(1, 5):
            text = text.replace(wide.replace("\n", "\n" + "  " * depth), json.dumps(list(items)))
    return text


def _lists(value: Any) -> Iterable[tuple[Any, ...]]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _lists(item)
    elif isinstance(value, list) and value and not any(isinstance(i, Mapping | list) for i in value):
        yield tuple(value)


# ------------------------------------------------------------------ vLLM


def vllm(state: State) -> Export:
    """The options of `vllm serve` that put a rotation in place of the model's own."""
    name = "vLLM (--hf-overrides)"
    model = model_of(state)
    made = _elsewhere(model)
    if model.ropes and made is None:
        made = _chosen(state, model, (_nested, _by_type))
    else:
        schemes = ", ".join(dict.fromkeys(k.spec.scheme for k in model.kinds))
        made = f"scheme = {schemes}: vLLM takes it from the model; no option sets it."
    if isinstance(made, str):
        return Export(name, "bash", "", (made,))
    fields, losses = made
    inner = _inner(fields, _path(fields))
    losses = [s for s in losses if not s.startswith(("mscale_all_dim", "layers without positions", "truncate"))]
    override: dict[str, Any] = {"rope_parameters": inner["rope_parameters"]}
    if model.fields is None and "layer_types" in inner:
        override["layer_types"] = inner["layer_types"]
    for outer in reversed(_path(fields)):
        override = {outer: override}
    losses += [loss for spec in model.specs for loss in _vllm_losses(spec)]
    losses += _softmax_loss(model.specs, "vLLM does that in DeepSeek's attention, not in Llama's")
    if any(isinstance(k.spec, NoneSpec) for k in model.kinds):
        losses.append("layers without positions: the model's code decides which they are; no option sets them.")
    lines = [f"--hf-overrides {_quoted(override)}"]
    if reach := max(map(reach_of, model.specs)):
        lines.append(f"--max-model-len {max(reach, model.longest or 0)}")
    return Export(name, "bash", " \\\n".join(lines), told_of(losses, model))


def reach_of(spec: RopeSpec) -> int:
    """The length that a scaling is meant for; 0 where the spec does not say."""
    if not spec.applies(spec.param("original_max_position_embeddings")):
        return 0
    return int(spec.factor * spec.original_max_position_embeddings)


def _quoted(value: Any) -> str:
    return "'" + json.dumps(value).replace("'", "'\\''") + "'"


def _vllm_losses(spec: RopeSpec) -> Iterable[str]:
    if spec.scaling == "dynamic" and spec.dynamic_length == "sequence":
        yield (
            f"scaling = dynamic, factor = {spec.factor:g}: transformers and vLLM mean different things by it. "
            "transformers follows the length of each sequence; vLLM uses one base for all lengths, until #41277 that "
            "of factor² - factor + 1, since then that of the served length (vllm-project/vllm#3488, #41236)."
        )
    if spec.scaling == "longrope":
        yield (
            f"scaling = longrope: vLLM takes the long list whenever --max-model-len is above "
            f"{spec.original_max_position_embeddings:,}, for short sequences too, and computes the attention factor "
            "from the two lengths, not from factor or attention_factor."
        )
    if spec.scaling == "ntk_by_parts" or spec.attention_factor or (spec.mscale and spec.mscale_all_dim):
        shown = attention_scales(spec).attention_factor
        yield (
            f"attention factor = {shown:.7g}: older vLLM reads neither attention_factor nor, outside DeepSeek's "
            f"models, mscale; it has 0.1·ln(factor) + 1 = {yarn_mscale(spec.factor):.7g} times its own attn_factor."
        )
    if spec.scaling == "proportional" and spec.factor != 1:
        yield f"factor = {spec.factor:g}: vLLM's proportional rotation (Gemma 4's) does not read it."
