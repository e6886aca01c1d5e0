"""A rotation in the words of config.json: transformers' two spellings, and vLLM's option that overrides them.

Names and meanings as of transformers 5.24 (modeling_rope_utils.py) and vLLM in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from posenc_core.export_model import Export, Kind, Model, State, by_layer, model_of, told_of
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
RESPELLED = ("rope_type", "type", "rope_theta", "partial_rotary_factor")  # of a rope dictionary: written anew
QUERY_FIELDS = ("attn_temperature_tuning", "floor_scale", "attn_scale")  # Llama 4's, which belong to no rotation
# What the class of a model_type in transformers 4 reads for rope_theta, rope_local_base_freq, partial_rotary_factor.
OLD_NAMES = {
    "gpt_neox": ("rotary_emb_base", "rotary_pct"), "gpt_neox_japanese": ("rotary_emb_base", "rotary_pct"),
    "modernbert": ("global_rope_theta", "local_rope_theta"),
    "modernbert-decoder": ("global_rope_theta", "local_rope_theta"),
}  # fmt: skip
# Types that transformers 5.24 does not hold: the code beside the weights reads the old spelling.
OWN_CODE = ("internlm2", "minicpm", "baichuan", "kimi_k2", "RefinedWeb", "RefinedWebModel", "stablelm_epoch")
# Findings that an export mends: it writes out a default or a missing value, of two values the one that acts, and leaves
# out what nothing reads. A new one is none of the config's, and is told.
MENDED = (
    "base-missing", "base-twice", "default-used", "factor-from-lengths", "fraction-twice", "layer-type-unused",
    "local-base-unread", "outer-unread", "phi3-yarn", "rope-default", "rope-ratio", "yarn-original-missing",
)  # fmt: skip
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
    made = _config("transformers 5 (rope_parameters)", state, _nested, _by_type)
    model_type = state.model_type if isinstance(state, ModelEncoding) else ""
    if model_type not in OWN_CODE or not made.text:
        return made
    why = (
        f"model_type = {model_type}: transformers 5 does not hold it, and the code beside the weights reads the old "
        "spelling (rope_theta, rope_scaling)."
    )
    return replace(made, losses=(*made.losses, why))


def transformers_legacy(state: State) -> Export:
    """Fields of config.json as transformers 4 writes them: rope_theta, partial_rotary_factor, rope_scaling."""
    return _config("transformers 4 (rope_scaling)", state, _flat)


_Made = tuple[dict[str, Any], list[str]]


def _config(name: str, state: State, *forms: Callable[[Model], _Made | str]) -> Export:
    model = model_of(state)
    made = _elsewhere(model) or _chosen(state, model, (_by_ratio,) if model.model_type == "chatglm" else forms)
    if isinstance(made, str):
        return Export(name, "json", "", (made,))
    fields, losses = made
    return Export(name, "json", json_text(fields), told_of(losses, model))


def _chosen(state: State, model: Model, forms: Iterable[Callable[[Model], _Made | str]]) -> _Made | str:
    """The form that reads back to the model with the fewest differences, the first of equals, with these as losses."""
    made = [form(model) for form in forms]
    written = [m for m in made if not isinstance(m, str)]
    if not written or not isinstance(state, ModelEncoding):
        return written[0] if written else made[0]
    checked = [(fields, losses, _differences(state, fields)) for fields, losses in written]
    fields, losses, differences = min(checked, key=lambda m: len(m[2]))
    return fields, [*losses, *differences]


def _differences(state: ModelEncoding, fields: Mapping[str, Any]) -> list[str]:
    """What is not the same again when the fields are read."""
    try:
        read = read_hf_config(fields)
    except SpecError as error:
        return [f"Read back, these fields are refused: {'; '.join(map(str, error.problems[:3]))}.", "No layer is sure."]
    told = list[str]()
    if _layers(read) != _layers(state):
        told.append("Read back, these fields do not give the same layers again.")
    before, after = _found(state), _found(read)
    lost = {c: name for c, name in before.items() if c not in after and c[0] not in MENDED}
    added = {c: name for c, name in after.items() if c not in before and c[0] != "rope-ratio"}  # ChatGLM's one spelling
    for words, names in (("lose", lost), ("add", added)):
        told += [f"Read back, these fields {words} the finding {name}." for _, name in sorted(names.items())]
    return told


def _layers(encoding: ModelEncoding) -> list[tuple[Any, ...]]:
    return [(x.spec, x.layer_type, x.window, x.head_dim) for x in encoding.layers]


def _found(encoding: ModelEncoding) -> dict[tuple[str, str], str]:
    """(code, field) of each finding -> a name; a rope dictionary has one place in all spellings."""
    made = dict[tuple[str, str], str]()
    for finding in encoding.findings:
        last = finding.field.rsplit(".", 1)[-1]
        place = "rope_parameters" if last in OWN or last.endswith("_attention") else last
        made[finding.code, place] = f"{finding.code} ({finding.field})" if finding.field else finding.code
    return made


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


def _words(model: Model, kind: Kind) -> tuple[dict[str, Any], Sequence[str]]:
    """rope_parameters of layers that rotate: a config's own keys and numbers where it has them, the spec's elsewhere.

    A spec does not hold all that a dictionary says: llama_4_scaling_beta, Hunyuan's alpha, the two mscales outside MLA.
    """
    assert isinstance(kind.spec, RopeSpec)
    made, told = rope_parameters(kind.spec)
    architecture = ARCHITECTURES.get(model.model_type)
    if architecture is not None and architecture.fraction != 1:  # left out, the whole head would be that part again
        made.setdefault("partial_rotary_factor", 1.0)
    own = _own_words(model, kind.layer_type)
    kept = {k: v for k, v in own.items() if k not in RESPELLED}
    if "alpha" in own and "dynamic" in (own.get("rope_type"), own.get("type")):  # the spec has another base for it
        beside = _inner(model.fields or {}, _path(model.fields or {}))
        default = None if architecture is None else architecture.base
        bases = (own.get("rope_theta"), *map(beside.get, BASES), default)
        made = {k: v for k, v in made.items() if k not in ("rope_type", "rope_theta")}
        made = {"rope_type": "dynamic", "rope_theta": next(b for b in bases if b is not None)} | made
        told = ()
    if "attention_factor" not in own and ("mscale" in own or "short_mscale" in own):
        made.pop("attention_factor", None)  # it follows from them
    return made | kept, told


def _own_words(model: Model, layer_type: str) -> dict[str, Any]:
    """The keys with a value of the rope dictionary that the reader read for a layer type."""
    if model.fields is None:
        return {}
    inner, architecture = _inner(model.fields, _path(model.fields)), ARCHITECTURES.get(model.model_type)
    given = [inner[n] for n in ("rope_scaling", "rope_parameters") if isinstance(inner.get(n), Mapping)]
    if not given and architecture is not None and architecture.rope is not None:
        given = [architecture.rope]
    merged = {k: v for d in given for k, v in d.items() if v is not None}
    if any(isinstance(v, Mapping) for v in merged.values()):
        merged = dict(merged.get(layer_type, {}))
    elif layer_type == "sliding_attention" and (
        any(inner.get(n) is not None for n in LOCAL_BASES) if architecture is None else architecture.scaled == "full"
    ):
        merged = {}  # a flat dictionary is that of the full layers
    return {k: v for k, v in merged.items() if v is not None}


def _by_ratio(model: Model) -> _Made:
    """ChatGLM's code, and vLLM's class for it, read rope_ratio, a multiple of the base 10,000, and nothing else."""
    losses = list[str]()
    fields, spec = _base_fields(model, losses), model.specs[0]
    given = _inner(model.fields or {}, _path(model.fields or {})).get("rope_ratio")
    fields["rope_ratio"] = given if given is not None and 10_000 * given == spec.base else spec.base / 10_000
    if spec.scaling != "none":
        losses.append(f"scaling = {spec.scaling}: ChatGLM's code reads rope_ratio alone, so it is left out.")
    return _placed(fields, model), losses


def _nested(model: Model) -> _Made | str:
    """New spelling: one dictionary, or one a layer type if there are several rotations."""
    if len(model.specs) > 1:
        return _by_type(model)
    losses = list[str]()
    fields = _base_fields(model, losses)
    made, told = _words(model, model.ropes[0])
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
        made[name], told = _words(model, kind)
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
    losses, architecture = list[str](), ARCHITECTURES.get(model.model_type)
    fields = _base_fields(model, losses)
    acting = model.ropes[0]
    if len(model.specs) > 1:
        kinds = {k.layer_type: k for k in model.ropes}
        types = {name: k.spec for name, k in kinds.items()}
        local, full = types.get("sliding_attention"), types.get("full_attention")
        if len(model.ropes) != 2 or not isinstance(local, RopeSpec) or not isinstance(full, RopeSpec):
            return f"{len(model.specs)} different rotations: the old spelling has one for all layers."
        if (local.d_head, local.rotary_fraction, local.scaling) != (full.d_head, full.rotary_fraction, "none"):
            return (
                "Layer types that differ by more than the base: the old spelling has rope_local_base_freq (Gemma 3) "
                "for an unscaled local base and nothing else."
            )
        if architecture is None or architecture.local_base is not None:
            fields[_spelled(model, LOCAL_BASES)] = local.base
        elif architecture.scaled != "full" or local.base != full.base:  # Olmo 3 scales full layers only, of one base
            return f"{len(model.specs)} different rotations: {model.model_type}'s class has one for all layers."
        acting = kinds["full_attention"]
    made, told = _words(model, acting)
    losses += told
    base = made.pop("rope_theta")
    if "rope_theta" not in fields.get("attn_config", {}):  # DBRX's class reads that one
        fields[_spelled(model, BASES)] = base
    _rotated(fields, model, made.pop("partial_rotary_factor", None), _spelled(model, FRACTIONS))
    kind = made.pop("rope_type")
    slides = any(k.layer_type == "sliding_attention" for k in model.ropes)
    if architecture is not None and architecture.local_base is not None and len(model.specs) == 1 and slides:
        fields[_spelled(model, LOCAL_BASES)] = base  # left out, the sliding layers would have their default again
    if kind != "default" or made or (architecture is not None and architecture.rope is not None):
        fields["rope_scaling"] = {"rope_type": kind, "type": kind} | made  # older readers know only `type`
    else:
        fields["rope_scaling"] = None
    if "rope_theta" in fields.get("attn_config", {}) and fields["rope_scaling"] is not None:
        losses.append(f"scaling = {kind}: DBRX's class in transformers 4 reads attn_config.rope_theta alone.")
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
        kept = {k: v for k, v in _inner(model.fields, _path(model.fields)).items() if k not in REPLACED}
        if model.model_type == "dbrx":  # its code keeps the base here, in version 5 beside rope_parameters
            attention, base = kept.get("attn_config") or {}, model.specs[0].base
            if attention.get("rope_theta") != base:
                kept["attn_config"] = {**attention, "rope_theta": base}
        return kept
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
    """The spelling that the config has, which its model's code reads; else that of its class, or the usual one."""
    read = _inner(model.fields, _path(model.fields)) if model.fields is not None else {}
    old = OLD_NAMES.get(model.model_type, ())
    return next((n for n in names if read.get(n) is not None), next((n for n in old if n in names), names[0]))


def _rotated(fields: dict[str, Any], model: Model, share: float | None, name: str = "partial_rotary_factor") -> None:
    """How much of a head turns, where no rope dictionary says it: a fraction, or GPT-J's rotary_dim."""
    architecture = ARCHITECTURES.get(model.model_type)
    if architecture is not None and architecture.rotary_dim is not None:
        fields["rotary_dim"] = model.specs[0].rotary_dim
    elif share is not None:
        fields[name] = share


def json_text(value: Any) -> str:
    """JSON as one writes it by hand: indented, a list of numbers or names on one line. It can be encoded as UTF-8."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair as \\ud800, as JSON writes it
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
        made = _chosen(state, model, (_by_ratio,) if model.model_type == "chatglm" else (_nested, _by_type))
    else:
        schemes = ", ".join(dict.fromkeys(k.spec.scheme for k in model.kinds))
        made = f"scheme = {schemes}: vLLM takes it from the model; no option sets it."
    if isinstance(made, str):
        return Export(name, "bash", "", (made,))
    fields, losses = made
    inner = _inner(fields, _path(fields))
    losses = [s for s in losses if not s.startswith(("mscale_all_dim", "layers without positions", "truncate"))]
    # what vLLM's class of the model reads, and only that
    read = {"chatglm": "rope_ratio", "dbrx": "attn_config"}.get(model.model_type, "rope_parameters")
    override: dict[str, Any] = {n: inner[n] for n in (read, "rotary_dim", *QUERY_FIELDS) if n in inner}
    if model.fields is None and "layer_types" in inner:
        override["layer_types"] = inner["layer_types"]
    for outer in reversed(_path(fields)):
        override = {outer: override}
    if read == "attn_config" and model.specs[0].scaling != "none":
        losses.append(f"scaling = {model.specs[0].scaling}: vLLM's DBRX reads attn_config.rope_theta alone.")
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
