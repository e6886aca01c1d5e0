"""Reads the positional fields of a model's config.json (Hugging Face's format) into specs, layer by layer.

Nothing is guessed: a value out of range, a missing value that no architecture defines, and a field that touches
positions but is not known are refused by name. What is legal but worth knowing is a Finding.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from posenc_core.hf_architectures import REFUSED
from posenc_core.hf_fields import Fields, Problems, illegible, inactive, touches_positions, utf8
from posenc_core.hf_rope import RopeReader
from posenc_core.hf_sizes import POSITIONLESS, SWITCHED, TEXT_CONFIGS, cut, dict_text, indices, short
from posenc_core.hf_tables import FALCON, TableReader
from posenc_core.hf_types import Finding, LayerEncoding, ModelEncoding
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import KNOWS_ORIGINAL, RopeSpec
from posenc_core.spec import Problem, SpecError, number_text

__all__ = ["Finding", "LayerEncoding", "ModelEncoding", "parse_config_text", "positional_fields", "read_hf_config"]

MAX_CHARACTERS = 1_000_000
MAX_DEPTH = 32


def parse_config_text(text: str) -> dict[str, Any]:
    """The object that a config.json's text holds. SpecError for text that is too long or too deep, or not plain JSON.

    Depth is counted before the parser runs, which is recursive. Names given twice, NaN or infinite numbers and halves
    of surrogate pairs, which Python's parser lets pass, are refused.
    """
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        size = len(text) if isinstance(text, str) else 0
        raise SpecError([Problem("config", f"{size} characters", f"a text of at most {MAX_CHARACTERS:,} characters")])
    depth = deepest = 0
    for token in re.finditer(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', text, re.DOTALL):
        depth += (token[0] in "[{") - (token[0] in "]}") if len(token[0]) == 1 and token[0] != '"' else 0
        deepest = max(depth, deepest)
    if deepest > MAX_DEPTH:
        raise SpecError([Problem("config", f"{deepest} levels", f"at most {MAX_DEPTH} levels of nesting")])
    try:
        made = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
        )
    except SpecError:
        raise
    except json.JSONDecodeError as error:
        where = f"{error.msg} in line {error.lineno}, column {error.colno}"
        raise SpecError([Problem("config", text, "a JSON object", where)]) from None
    except ValueError:  # Python reads no whole number of more than 4,300 digits
        raise SpecError([Problem("config", text, "numbers that can be read", "a number is too long")]) from None
    if not isinstance(made, dict):
        raise SpecError([Problem("config", made, "a JSON object, {…}")])
    _refuse_illegible(made)
    return made


def _refuse_illegible(value: object, *, finite: bool = False) -> None:
    problems = Problems()
    for problem in illegible(value, finite=finite):
        problems.append(problem)
    if problems:
        raise SpecError(problems.told())


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise SpecError([Problem(utf8(name), value, "each name once", "the name is given twice")])
        made[name] = value
    return made


def _constant(text: str) -> float:
    raise SpecError([Problem("config", text, "finite numbers")])


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _constant(text)


def read_hf_config(mapping: Mapping[str, Any]) -> ModelEncoding:
    """The effective positional parameters of a config.json's mapping, layer by layer.

    Old and new spellings (rope_scaling, rope_parameters flat or nested by layer type), multimodal configs (the text
    model inside). Without num_hidden_layers there is one layer of each kind. Raises SpecError listing every problem,
    each with field, value and legal values; no other exception for anything that JSON can hold.
    """
    if not isinstance(mapping, Mapping):
        raise SpecError([Problem("config", mapping, "a mapping of names to values")])
    _refuse_illegible(mapping)
    try:
        return _Reader(mapping).model()
    except RecursionError:  # a mapping that was made by hand can be deeper than any text that parses
        raise SpecError([Problem("config", "too deep", f"at most {MAX_DEPTH} levels of nesting")]) from None


def positional_fields(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config that the reader used: plain, small, and read to equal layers. SpecError.

    To equal findings too, but for fields that are not read: of these the first 50 of a kind are kept, and no long ones.
    """
    return dict(read_hf_config(mapping).fields)


class _Reader(RopeReader, TableReader):
    """The whole of one config."""

    def model(self) -> ModelEncoding:
        """Everything that the config says about positions; raises every problem at once."""
        top = self.top
        if self.model_type in REFUSED:
            top.refuse("model_type", "an architecture that this reader knows", REFUSED[self.model_type])
            self.stop()
        readers: dict[str, Callable[[], list[LayerEncoding]]] = {
            "rope": self.rope_layers, "alibi": self.alibi_layers, "learned": self.table_layers, "t5": self.t5_layers,
            "sinusoidal": self.sinusoidal_layers, "whisper": self.whisper_layers, "none": self.none_layers,
        }  # fmt: skip
        layers = readers[self._scheme()]()
        self._findings(layers)
        self.refuse_unread()
        self.stop()
        fields = self._fields()
        _refuse_illegible(fields, finite=True)
        if self.defaults:
            self.note("default-used", f"Not given, so the defaults of {self.model_type} hold: "
                      f"{dict_text(self.defaults)}.",
                      "Write them out where they matter.")  # fmt: skip
        originals = [s.original_max_position_embeddings for s in _ropes(layers) if s.scaling in KNOWS_ORIGINAL]
        return ModelEncoding(
            tuple(layers), self.all_findings(), self.model_type, self.longest, originals[0] if originals else None,
            self.heads, self.kv_heads, fields, self.counted,
        )  # fmt: skip

    def _scheme(self) -> str:
        """Which encoding the architecture has, given its switches."""
        top, scheme = self.top, self.arch.scheme
        if self.model_type in FALCON:
            return "alibi" if top.flag("alibi", False) else "rope"
        if self.model_type == "distilbert":
            return "sinusoidal" if top.flag("sinusoidal_pos_embds", False) else "learned"
        if self.model_type == "baichuan":  # both sizes have one model_type and one class
            width = self.width()
            if width not in (4096, 5120):
                top.refuse(
                    "hidden_size",
                    "4096 (7B, RoPE) or 5120 (13B, ALiBi)",
                    "the size tells which encoding a Baichuan has",
                )
            return "alibi" if width == 5120 else "rope"
        kind = top.text("position_embedding_type")
        legal: tuple[str, ...]
        if self.model_type == "granitemoehybrid":
            legal, scheme = ("rope", "nope"), "rope" if kind == "rope" else "none"
        elif self.model_type == "esm":
            top.raw("rope_theta")  # written out beside a learned table too
            legal, scheme = ("rotary", "absolute"), "rope" if kind == "rotary" else "learned"
        elif self.model_type.startswith("modernbert"):
            legal = ("absolute", "rope")  # a leftover of BERT's that its class does not read
        else:  # rope_gptj is Cohere's word
            legal = ("rope", "rotary", "rope_gptj") if scheme == "rope" else ("absolute",)
        if kind is not None and kind not in legal:
            top.refuse("position_embedding_type", " or ".join(legal), f"for {self.model_type or 'this config'}")
        return scheme

    # -------------------------------------------------------------- findings

    def _findings(self, layers: Sequence[LayerEncoding]) -> None:
        """What concerns the model and not one of its layer types."""
        top, ropes = self.top, _ropes(layers)
        if not self.known:
            who = f"model_type {self.model_type!r} is not known here" if self.model_type else "No model_type is given"
            self.warn("architecture-unknown", f"{who}: the layout is assumed to be "
                      f"{ropes[0].layout if ropes else 'half'}, and no default fills a missing field.",
                      "See in the model's code which features form a pair and which layers rotate.",
                      "model_type")  # fmt: skip
        if ropes and ropes[0].layout == "interleaved":
            self.note("layout-interleaved", "Features 2i and 2i + 1 form a pair, in the weights too.",
                      "For half-split code, permute the rows of q and k.", "model_type")  # fmt: skip
        if ropes and self.mla:
            self.note("mla", f"Multi-head latent attention: {ropes[0].d_head} of the {layers[0].head_dim} features of "
                      "a head are a part of their own that rotates, the others never do.",
                      "Rotate qk_rope_head_dim features only.",
                      "qk_rope_head_dim")  # fmt: skip
        bare = [la.index for la in layers if isinstance(la.spec, NoneSpec) and la.layer_type not in POSITIONLESS]
        if bare and ropes:
            name = "no_rope_layers" if top.given("no_rope_layers") else "layer_types"
            self.note("nope-layers", f"{len(bare)} of {len(layers)} layers have no positional encoding: "
                      f"{indices(bare)}.",
                      "Skip the rotation there.", name)  # fmt: skip
        others = [la for la in layers if la.layer_type in POSITIONLESS]
        if others and ropes:
            kinds = ", ".join(dict.fromkeys(la.layer_type for la in others))
            self.note("no-attention-layers", f"{len(others)} of {len(layers)} layers are {kinds}, and rotate nothing.",
                      "Positions enter in the other layers.", "layer_types")  # fmt: skip
        if len(set(ropes)) > 1:
            kinds_of = dict.fromkeys((la.layer_type, la.spec) for la in layers if isinstance(la.spec, RopeSpec))
            self.note("layers-differ", "; ".join(f"{t}: {_spec_text(s)}" for t, s in kinds_of) + ".",
                      "Keep one table a layer type.", self._rope_name())  # fmt: skip
        if ropes and self.heads != self.kv_heads and not self.mla:
            self.note("gqa", f"{self.heads} query heads share {self.kv_heads} of keys and values.",
                      "Permute q and k each by its own number of heads.", "num_key_value_heads")  # fmt: skip
        self._temperature(bare)
        self._outside()

    def _temperature(self, bare: Sequence[int]) -> None:
        """Llama 4 lets queries grow with the position in the layers that have no RoPE."""
        top = self.top
        if not self.model_type.startswith("llama4"):
            return
        tuning = top.raw("attn_temperature_tuning")
        floor, scale = top.number("floor_scale", low=1.0, high=1e12), top.number("attn_scale", low=0.0, high=100.0)
        floor, scale = 8192.0 if floor is None else floor, 0.1 if scale is None else scale
        if bare and tuning not in (False, 0):
            self.note("temperature-tuning", "In the layers without RoPE queries are multiplied by "
                      f"1 + {scale:g}·ln(1 + ⌊(p + 1)/{floor:,.10g}⌋).",
                      "Port it too: scores there depend on the position after all.",
                      "attn_temperature_tuning")  # fmt: skip

    def _outside(self) -> None:
        """Positional fields beside the text model's mapping are not read; where they differ from it, that is told."""
        for outer, name in self.outer:
            for key, value in outer.mapping.items():
                if (
                    not isinstance(key, str)
                    or key in TEXT_CONFIGS
                    or not touches_positions(key)
                    or inactive(key, value)
                ):
                    continue
                if self.top.mapping.get(key) != value:
                    self._tell_unread(outer, key, "outer-unread", f"{cut(key)} = {short(value)} stands beside {name}, "
                                      "and the text model reads its own fields.",
                                      f"Move it into {name} if it is meant.")  # fmt: skip

    def _fields(self) -> dict[str, Any]:
        """What was read, as a config of the same form."""
        made = _kept(self.top, self.nulls)
        for outer, name in reversed(self.outer):
            made = _kept(outer) | {name: made}
        return made


def _kept(fields: Fields, nulls: Container[str] = SWITCHED) -> dict[str, Any]:
    kept = {k: v for k, v in fields.mapping.items() if k in fields.read and (v is not None or k in nulls)}
    return copy.deepcopy(kept)


def _ropes(layers: Sequence[LayerEncoding]) -> list[RopeSpec]:
    return [layer.spec for layer in layers if isinstance(layer.spec, RopeSpec)]


def _spec_text(spec: RopeSpec) -> str:
    factor = f" {number_text(spec.factor)}" if spec.scaling not in ("none", "proportional") else ""
    scaling = "unscaled" if spec.scaling == "none" else spec.scaling + factor
    return f"base {spec.base:,.10g}, {scaling}, head dim {spec.d_head}"
