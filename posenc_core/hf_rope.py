"""Config fields of RoPE: rope_parameters and rope_scaling, flat and by layer type, in every spelling."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from posenc_core.frequencies import rope_frequencies, yarn_mscale, yarn_range
from posenc_core.hf_fields import Fields, inactive, is_number, is_whole, touches_positions
from posenc_core.hf_sizes import (
    BASES,
    FRACTIONS,
    FULL,
    LAYER_TYPES,
    LENGTHS,
    LOCAL_BASES,
    MAX_HEAD_DIM,
    MAX_LAYERS,
    POSITIONLESS,
    SIZES,
    SLIDING,
    SizeReader,
    dict_text,
    short,
)
from posenc_core.hf_types import LayerEncoding
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import KNOWS_ORIGINAL, RopeSpec
from posenc_core.spec import Param, Problem, SpecError

# true says what is the case; false is refused
SWITCHES = ("use_rope", "use_rotary", "use_rotary_embeddings", "use_rotary_pos_emb", "rotary", "original_rope",
            "use_pos_enc")  # fmt: skip
ORIGINAL = "original_max_position_embeddings"

# rope_type as transformers names it -> RopeSpec.scaling
ROPE_TYPES = {
    "default": "none", "linear": "linear", "dynamic": "dynamic", "yarn": "yarn", "longrope": "longrope",
    "llama3": "llama3", "proportional": "proportional",
}  # fmt: skip
ROPE_TYPE_ALIASES = {"mrope": "default", "su": "longrope"}

# Which keys of a rope dict each type reads, beside those that every type reads.
_COMMON = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved",
           "interleaved", "max_position_embeddings", "llama_4_scaling_beta", "finetuned")  # fmt: skip
_READS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", "alpha", ORIGINAL),
    "yarn": ("factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("factor", ORIGINAL, "attention_factor", "short_factor", "long_factor", "short_mscale", "long_mscale"),
    "llama3": ("factor", ORIGINAL, "low_freq_factor", "high_freq_factor"),
    "proportional": ("factor",),
}
_KEYS = (*_COMMON, *dict.fromkeys(name for names in _READS.values() for name in names))
# RopeSpec's field -> config.json's, for problems that the spec itself finds
_NAMES = {"d_head": "head_dim", "base": "rope_theta", "rotary_fraction": "partial_rotary_factor"}


class RopeReader(SizeReader):
    """Layers that rotate, and what is worth knowing about their frequencies."""

    def rope_layers(self) -> list[LayerEncoding]:
        """One layer a layer: RoPE as its layer type has it, or none."""
        top, plan = self.top, self.plan()
        self.mla = top.given("qk_rope_head_dim") or self.arch.sizes.qk_rope_head_dim is not None
        head_dim, rotated = self._mla_dims() if self.mla else (self.head_dim(), None)
        wide = self._wide_heads()
        for name in SWITCHES:
            if not top.flag(name, True):
                top.refuse(name, "true, or no such field", "without its positions it is another model")
        if top.number("rotary_scaling_factor", low=1.0, high=1.0) is None and top.given("rotary_scaling_factor"):
            top.refuse(
                "rotary_scaling_factor", "1"
            )  # StableLM and nomic-embed write it; what it scales is their code's
        dicts = self._rope_dicts()
        layers: list[LayerEncoding] = []
        specs: dict[tuple[str, int], RopeSpec | None] = {}
        for index, (layer_type, has) in enumerate(plan or [(FULL, True)]):
            # After a problem any size does: the layers are not returned, only more problems are looked for.
            whole = wide.get(index, wide.get(layer_type, head_dim)) or 128
            rope, note = dicts.get(layer_type, dicts.get("")), self.remark(layer_type)
            if not has or (layer_type in dicts and rope is None):
                note = "no attention over positions" if layer_type in POSITIONLESS else "NoPE"
                layers.append(LayerEncoding(index, layer_type, NoneSpec(), whole, self.seen(layer_type), note))
                continue
            key = (layer_type, whole)
            if key not in specs:
                specs[key] = self._rope_spec(rope, layer_type, rotated or whole, whole)
            spec = specs[key]
            if spec is not None:
                layers.append(LayerEncoding(index, layer_type, spec, whole, self.seen(layer_type), note))
        if self.problems:
            self.refuse_unread()
            self.stop()
        self._unused(dicts, specs)
        return layers

    def _unused(self, dicts: Mapping[str, object], specs: Mapping[tuple[str, int], RopeSpec | None]) -> None:
        """What only some layers or some methods read, and none of this model's did."""
        types = {layer_type for layer_type, _ in specs}
        for name in [n for n in LOCAL_BASES if self.top.given(n) and SLIDING not in types]:
            self.warn("local-base-unread", f"{name} = {short(self.top.mapping[name])} is that of sliding layers, and "
                      "none slides.", "See whether the layer types are missing.", name)  # fmt: skip
        for name in [n for n, d in dicts.items() if isinstance(d, Fields) and d.mapping and n and n not in types]:
            self.warn("layer-type-unused", f"{self._rope_name()} has {name}, but no layer that rotates is one.",
                      "See whether the layer types are missing.", f"{self._rope_name()}.{name}")  # fmt: skip
        original = self.top.raw(ORIGINAL)
        if original not in (None, self.longest) and all(s and s.scaling not in KNOWS_ORIGINAL for s in specs.values()):
            self.warn("original-unread", f"{ORIGINAL} = {short(original)} is not read: no scaling needs it, and "
                      f"max_position_embeddings = {self.longest}.",
                      "See whether a rope_scaling is missing.", ORIGINAL)  # fmt: skip

    # -------------------------------------------------------------- heads

    def _mla_dims(self) -> tuple[int | None, int | None]:
        """(whole head, rotated part) of multi-head latent attention; head_dim says neither of the two for sure."""
        top, sizes = self.top, self.arch.sizes
        dims: dict[str, int | None] = {}
        for name, low in (("qk_rope_head_dim", 2), ("qk_nope_head_dim", 0)):
            dims[name] = top.whole(name, low=low, high=MAX_HEAD_DIM)
            if not top.given(name):
                dims[name] = self.default(name, getattr(sizes, name))
                if dims[name] is None:
                    top.refuse(name, f"a whole number from {low} to {MAX_HEAD_DIM:,}", "it is missing")
        rotated, plain = dims["qk_rope_head_dim"], dims["qk_nope_head_dim"]
        return (None if plain is None or rotated is None else plain + rotated), rotated

    def _wide_heads(self) -> dict[int | str, int]:
        """Head dims that differ by layer: Gemma 4's global_head_dim, or its per_layer_config by index."""
        top = self.top
        wide = top.whole("global_head_dim", low=2, high=MAX_HEAD_DIM)
        by_index = top.inner("per_layer_config")
        if by_index is not None:
            return {i: d for i, d in (self._layer_head(*item) for item in by_index.mapping.items()) if d is not None}
        if not top.given("global_head_dim"):
            wide = self.default("global_head_dim", self.arch.global_head_dim)
        return {} if wide is None else {FULL: wide}

    def _layer_head(self, key: object, value: object) -> tuple[int, int | None]:
        index = int(key) if isinstance(key, str) and re.fullmatch(r"\d{1,5}", key) else -1
        name = f"per_layer_config.{key}"
        fine = isinstance(value, Mapping) and not any(touches_positions(str(n)) for n in value)
        if not 0 <= index < MAX_LAYERS or not isinstance(value, Mapping) or not fine:
            self.problems.append(Problem(name, value, "a layer's index with a mapping such as {head_dim: 512}"))
            return index, None
        return index, Fields(value, f"{name}.", self.problems).whole("head_dim", low=2, high=MAX_HEAD_DIM)

    # -------------------------------------------------------------- where the fields stand

    def _rope_name(self) -> str:
        return self.top.name(self.top.first(("rope_parameters", "rope_scaling")))

    def _rope_dicts(self) -> dict[str, Fields | None]:
        """The rope dict of each layer type, or one under "" for all; None means no RoPE."""
        top, name = self.top, self._rope_name()
        merged: dict[str, Any] = {}
        for given in (top.inner("rope_parameters"), top.inner("rope_scaling")):
            for key, value in (given.mapping if given is not None else {}).items():
                if given is not None and None not in (value, merged.get(key)) and value != merged[key]:
                    given.refuse(key, "the same in rope_parameters and rope_scaling", "the two differ")
                merged[key] = merged.get(key) if merged.get(key) is not None else value
        if not merged and self.arch.rope is not None and not top.given("rope_parameters", "rope_scaling"):
            merged = copy.deepcopy(dict(self.arch.rope))
            self.warn("rope-default", "Neither rope_parameters nor rope_scaling is given, so the defaults of "
                      f"{self.model_type} hold: {dict_text(merged)}.",
                      "Write rope_parameters out.", "rope_parameters")  # fmt: skip
            if top.given(*BASES):  # a base beside it holds
                merged.pop("rope_theta", None)
        nested = [k for k in merged if k in LAYER_TYPES]
        self._spelling_unread(bool(nested))
        if not nested:
            return {"": Fields(merged, f"{name}.", self.problems)}
        dicts: dict[str, Fields | None] = {}
        for key, value in merged.items():
            path = f"{name}.{key}"
            if key not in LAYER_TYPES:
                self.problems.append(
                    Problem(path, value, f"inside the mapping of {' or '.join(nested)}", "it stands beside layer types")
                )
            elif value is None or isinstance(value, Mapping):
                dicts[key] = None if value is None else Fields(value, f"{path}.", self.problems)
            else:
                self.problems.append(Problem(path, value, "a mapping, or null for no RoPE"))
        if self.arch.local_base is not None or self.arch.scaled == "full":
            for kind in (FULL, SLIDING):  # Gemma 3, Olmo 3, ModernBERT fill a missing one with their defaults
                dicts.setdefault(kind, Fields({}, f"{name}.{kind}.", self.problems))
        return dicts

    def _spelling_unread(self, nested: bool) -> None:
        """Warn of a spelling that classes with a base of their own for sliding layers do not read.

        They read rope_parameters by layer type and rope_scaling flat.
        """
        top, arch = self.top, self.arch
        if not arch.local_bases and arch.scaled != "full":
            return
        name = "rope_scaling" if nested else "rope_parameters"
        given = top.mapping.get(name)
        if isinstance(given, Mapping) and given and nested == any(k in LAYER_TYPES for k in given):
            self.warn("spelling-unread", f"{name} = {short(given)} is {'nested by layer type' if nested else 'flat'}, "
                      f"and {self.model_type} in transformers does not read it so: its layers are unscaled then.",
                      "It is read here as it says; write rope_parameters with a mapping for each layer type.",
                      name)  # fmt: skip

    def _rope_type(self, rope: Fields) -> str | None:
        """transformers' name of the method, None after a problem; `type` and `rope_type` must mean the same."""
        legal = "one of " + ", ".join((*ROPE_TYPES, *ROPE_TYPE_ALIASES))
        texts = {n: rope.text(n) for n in ("rope_type", "type") if rope.given(n)}
        kinds = {n: ROPE_TYPE_ALIASES.get(t, t) for n, t in texts.items() if t is not None}
        for name, kind in kinds.items():
            if kind not in ROPE_TYPES:
                rope.refuse(name, legal)
        if len(set(kinds.values())) > 1:
            rope.refuse("type", f"the same as rope_type = {texts['rope_type']}", "type and rope_type conflict")
            return None
        if texts:
            kind = next(iter(kinds.values()), "")
            return kind if kind in ROPE_TYPES else None
        scaled = [k for k in rope.mapping if k in _KEYS and k not in _COMMON and rope.given(k)]
        if scaled:
            rope.refuse("rope_type", legal, f"{', '.join(scaled)} given without it")
        return None if scaled else "default"

    # -------------------------------------------------------------- one layer type

    def _rope_spec(self, rope: Fields | None, layer_type: str, d_head: int, whole: int) -> RopeSpec | None:
        """The RopeSpec of one layer type, for d_head features of the whole head; None after a problem."""
        top, flat = self.top, rope is not None and rope.path == f"{self._rope_name()}."
        if rope is None:
            self.problems.append(
                Problem(f"{self._rope_name()}.{layer_type}", None, "a mapping for each layer type", "it is missing")
            )
            return None
        for key, value in rope.mapping.items():
            if key not in _KEYS and not inactive(str(key), value):
                rope.refuse(key, "one of " + ", ".join(sorted(_KEYS)), "the name is not known")
        local = layer_type == SLIDING
        if flat and local and (self.arch.scaled == "full" or (not self.known and top.given(*LOCAL_BASES))):
            rope = Fields({}, rope.path, self.problems)  # a flat dict is that of the full layers: Gemma 3, Olmo 3
        rope_type = self._rope_type(rope)
        if rope_type is None:
            self._base(rope, local=local)
            self._fraction(rope, d_head, whole, "default")
            return None
        if self.model_type.startswith(("phi3", "phi4")) and rope_type == "yarn" and rope.given("short_factor"):
            rope_type = "longrope"
            self.note("phi3-yarn", "Early Phi-3 configs write yarn; the two lists tell that LongRoPE is meant.",
                      "Write longrope.", rope.name("type"))  # fmt: skip
        base, fraction = self._base(rope, local=local), self._fraction(rope, d_head, whole, rope_type)
        values = {"scaling": ROPE_TYPES[rope_type]} | self._method(rope_type, rope)
        values |= self._mrope(rope, d_head, fraction)
        self._unread(rope, rope_type)
        if base is None or fraction is None or self.problems:
            return None
        alpha, dim = values.pop("alpha", None), int(d_head * fraction)
        if alpha is not None and dim > 2:  # Hunyuan's, past the factor's range: NTK is a larger base
            base *= alpha ** (dim / (dim - 2))
        try:
            spec = RopeSpec(d_head=d_head, base=base, layout=self._layout(), rotary_fraction=fraction, **values)
        except SpecError as error:
            for p in error.problems:
                name = _NAMES.get(p.name, p.name)
                if name == "partial_rotary_factor" and not rope.given(name) and not top.given(*FRACTIONS, "rotary_dim"):
                    least = (
                        4 if values["scaling"] in ("ntk", "dynamic") else 2
                    )  # the whole head rotates: it is too small
                    p = Problem(
                        top.first(SIZES["head_dim"]), d_head, f"an even whole number of at least {least}", p.reason
                    )
                    name = p.name
                self.problems.append(replace(p, name=rope.name(name) if rope.given(name) else top.name(name)))
            return None
        return self._found_in(spec, rope)

    def _layout(self) -> Literal["half", "interleaved"]:
        """Which features form a pair; an MLA model's, unless its config says otherwise, are neighbours."""
        interleaved = self.arch.layout == "interleaved" or (self.mla and not self.known)
        for name in ("rope_interleave", "rotary_emb_interleaved"):
            interleaved = self.top.flag(name, interleaved)
        return "interleaved" if interleaved else "half"

    def _base(self, rope: Fields, *, local: bool) -> float | None:
        """theta: inside the rope dict, else beside it, else the architecture's default with a warning, else refused."""
        top, arch, high, sliding = self.top, self.arch, RopeSpec.param("base").maximum or 1e12, local
        local = local and (arch.local_base is not None or top.given(*LOCAL_BASES))
        both = {names: top.number(*names, low=1.0, high=high, above=True) for names in (BASES, LOCAL_BASES)}
        names = LOCAL_BASES if local else BASES
        inside, outside = rope.number("rope_theta", low=1.0, high=high, above=True), both[names]
        where = top.name(top.first(names))
        if self.attention is not None and not top.given(*names):  # DBRX
            outside, where = (
                self.attention.number("rope_theta", low=1.0, high=high, above=True),
                "attn_config.rope_theta",
            )
        if rope.given("rope_theta"):
            if None not in (inside, outside) and inside != outside:
                self.warn("base-twice", f"rope_theta is {inside:,.10g} in {rope.path[:-1]} and {outside:,.10g} in "
                          f"{where}.",
                          "The inner one is used; make them equal.", where)  # fmt: skip
            return inside
        if outside is not None and top.given(*names):
            self._base_unread(top.first(names), outside, sliding=sliding)
        if (
            outside is not None
            or top.given(*names)
            or (self.attention is not None and self.attention.given("rope_theta"))
        ):
            return outside
        if self.model_type == "chatglm":
            ratio = top.number("rope_ratio", low=0.01, high=1e6)
            base = 10_000 * (1.0 if ratio is None else ratio)
            self.note("rope-ratio", f"The base is 10,000 times rope_ratio = {1.0 if ratio is None else ratio:g}: "
                      f"{base:,.10g}. The code of some older ChatGLM checkpoints divides positions by it instead.",
                      "Compare with the checkpoint's code.",
                      "rope_ratio")  # fmt: skip
            return base
        default = arch.local_base if local else arch.base
        if default is None:
            who = f"model_type {self.model_type!r}" if self.model_type else "a config without model_type"
            top.refuse(
                names[0],
                f"a number above 1 and at most {high:,.10g}",
                f"it is missing, and {who} has no default that is known",
            )
            return None
        self.warn("base-missing", "No base is given for the "
                  f"{'sliding' if local else 'full' if arch.local_base else 'rotating'} layers; the default of "
                  f"{self.model_type} is {default:,.10g}.", "Write it out: checkpoints often have another.",
                  names[0])  # fmt: skip
        return default

    def _base_unread(self, name: str, base: float, *, sliding: bool) -> None:
        """Warn of a base beside the rope dict that the class in transformers does not read there."""
        top, arch = self.top, self.arch
        own = sliding and arch.local_bases is not None
        reads, used = arch.local_bases if own else arch.bases, (arch.local_base if own else None) or arch.base
        if arch.rope is not None and "rope_theta" in arch.rope and not top.given("rope_parameters", "rope_scaling"):
            reads, used = (), arch.rope["rope_theta"]
        if not self.known or reads is None or name in reads:
            return
        used = next((v for n in reads if is_number(v := top.mapping.get(n))), used)
        if used in (None, base):
            return
        self.warn("base-unread", f"{name} = {base:,.10g}, but {self.model_type} in transformers does not read it "
                  f"{'for sliding layers' if own else 'here'}: the base there is {used:,.10g}.",
                  f"Here it is {base:,.10g}; write rope_parameters out, or compare with the model's own code.",
                  name)  # fmt: skip

    def _fraction(self, rope: Fields, d_head: int, whole: int, rope_type: str) -> float | None:
        """The share of the head that rotates, from a fraction or a number of features; None after a problem."""
        top, arch, name = self.top, self.arch, "partial_rotary_factor"
        inside = rope.number(name, low=0.0, high=1.0, above=True)
        outside = top.number(*FRACTIONS, low=0.0, high=1.0, above=True)
        features = top.whole("rotary_dim", low=2, high=MAX_HEAD_DIM)
        if self.mla:  # d_head is the rotated part already: a fraction can only repeat that
            share = outside if inside is None else inside
            if features not in (None, d_head) or share not in (None, 1.0, d_head / whole):
                known = top if rope.mapping.get(name) is None else rope
                known.refuse(
                    known.first((name, "rotary_dim", *FRACTIONS)),
                    f"{d_head / whole:g} or 1",
                    "qk_rope_head_dim tells it",
                )
            return 1.0
        if (rope.given(name) and inside is None) or (top.given(*FRACTIONS) and outside is None):
            return None
        given = outside if inside is None else inside
        if None not in (inside, outside) and inside != outside:
            self.warn("fraction-twice", f"{name} is {inside:g} in {rope.path[:-1]} and {outside:g} beside it.",
                      "The inner one is used; make them equal.", name)  # fmt: skip
        if features is None and given is None and not top.given("rotary_dim"):
            features = self.default("rotary_dim", arch.rotary_dim)
        if features is not None:
            if features > d_head or features % 2:
                top.refuse("rotary_dim", f"an even whole number from 2 to the head dim, {d_head}")
                return None
            if given is not None and int(d_head * given) != features:
                top.refuse("rotary_dim", f"{int(d_head * given)}, {given:g} of the head dim", f"{name} says otherwise")
                return None
            return _share(features, d_head)
        if given is None and arch.fraction != 1.0 and rope_type != "proportional":
            return self.default(name, arch.fraction)
        self._fraction_unread(None if inside is not None else top.first(FRACTIONS), given, rope_type)
        return 1.0 if given is None else given

    def _fraction_unread(self, beside: str | None, given: float | None, rope_type: str) -> None:
        """Warn of a fraction that the class in transformers does not read: in the rope dict, or `beside` it."""
        arch = self.arch
        if given is None or not self.known or arch.reads_fraction is None or arch.bases is None:
            return
        used = arch.fraction if arch.reads_fraction else 1.0
        if given == used or ((arch.reads_fraction or rope_type != "default") and beside in (None, *arch.fractions)):
            return
        what = "the whole head" if used == 1.0 else f"{used:g} of the head"
        when = "" if arch.reads_fraction or beside not in (None, *arch.fractions) else " where rope_type is default"
        name = beside or "partial_rotary_factor"
        self.warn("fraction-unread", f"{name} = {given:g}, but {self.model_type} in transformers rotates {what}{when}.",
                  f"Here {given:g} of the head rotates; compare with the model's own code.",
                  name)  # fmt: skip

    def _mrope(self, rope: Fields, d_head: int, fraction: float | None) -> dict[str, Any]:
        """Sections of M-RoPE: given, or the architecture's where they fit."""
        pairs = int(d_head * (fraction or 1.0)) // 2
        sections = rope.items(
            "mrope_section", lambda v: is_whole(v) and 0 <= v <= 512, "a whole number from 0 to 512", 4
        )
        interleaved = rope.flag("interleaved", rope.flag("mrope_interleaved", self.arch.mrope_interleaved))
        if not rope.given("mrope_section"):
            if self.arch.mrope and sum(self.arch.mrope) == pairs:
                sections = self.default("mrope_section", list(self.arch.mrope))
            if self.top.flag("use_mrope", False) and not sections:
                self.top.refuse("use_mrope", "false, or true beside mrope_section", "no sections are given")
        self.top.raw("use_mrope")
        if not sections and interleaved and rope.given("interleaved", "mrope_interleaved"):
            rope.refuse(rope.first(("interleaved", "mrope_interleaved")), "true only beside mrope_section")
        return {"mrope_section": tuple(sections), "mrope_interleaved": interleaved} if sections else {}

    def _unread(self, rope: Fields, rope_type: str) -> None:
        """A known key that this method does not read: the commonest way to lose a factor."""
        known = {k: v for k, v in rope.mapping.items() if k in _KEYS and v is not None}
        unread = {k: v for k, v in known.items() if k not in (*_COMMON, *_READS[rope_type])}
        if unread:
            self.warn("not-read", f"rope_type {rope_type} does not read {dict_text(unread)}.",
                      f"Remove {'it' if len(unread) == 1 else 'them'}, or choose the method that reads "
                      f"{'it' if len(unread) == 1 else 'them'}.",
                      rope.name(next(iter(unread))))  # fmt: skip

    # -------------------------------------------------------------- what each method reads, as fields of RopeSpec

    def _method(self, rope_type: str, rope: Fields) -> dict[str, Any]:
        """The fields of RopeSpec that a method reads; missing ones are problems."""
        if rope_type == "linear":
            return {"factor": self._factor(rope)}
        if rope_type == "proportional":
            return {"factor": self._factor(rope) if rope.given("factor") else 1.0}
        methods = {"dynamic": self._dynamic, "yarn": self._yarn, "longrope": self._longrope, "llama3": self._llama3}
        return methods[rope_type](rope) if rope_type in methods else {}

    def _param(self, rope: Fields, name: str, *, needed: bool = False) -> Any:
        """A number in the range of the spec's field; the spec's default after a problem."""
        p: Param = RopeSpec.param(name)
        value = rope.number(name, low=p.minimum or 0.0, high=p.maximum or 0.0)
        if needed and not rope.given(name):
            rope.refuse(name, p.legal, "it is missing")
        return p.default if value is None else value

    def _factor(self, rope: Fields, ratio: float | None = None) -> float:
        """The factor; where the config leaves it out, the ratio of the lengths, if the method allows that."""
        factor = float(self._param(rope, "factor", needed=ratio is None))
        if ratio is None or rope.given("factor"):
            return factor
        made = min(max(ratio, 1.0), RopeSpec.param("factor").maximum or ratio)
        self.note("factor-from-lengths", "No factor is given: max_position_embeddings divided by the original length "
                  f"makes {made:g}.", "Write the factor out.", rope.name("factor"))  # fmt: skip
        return made

    def _original(self, rope: Fields, *, needed: bool = True) -> int | None:
        """The length of training, in the rope dict or beside it (Phi-3), which must agree; None after a problem."""
        top, p = self.top, RopeSpec.param(ORIGINAL)
        low, high = int(p.minimum or 0), int(p.maximum or 0)
        inside, outside = rope.whole(ORIGINAL, low=low, high=high), top.whole(ORIGINAL, low=low, high=high)
        if None not in (inside, outside) and inside != outside:
            rope.refuse(ORIGINAL, f"the same as {ORIGINAL} = {outside} beside {rope.path[:-1]}", "the two differ")
        if rope.given(ORIGINAL) or top.given(ORIGINAL):
            return outside if inside is None else inside
        if ORIGINAL in self.arch.also:
            return self.default(ORIGINAL, self.arch.also[ORIGINAL])
        if needed:
            rope.refuse(ORIGINAL, p.legal, "it is missing")
        return None

    def _lengths(self, rope: Fields, original: int | None) -> dict[str, Any]:
        """Original length, and the factor that is given or follows from it; a placeholder after a problem."""
        original = RopeSpec.param(ORIGINAL).default if original is None else original
        ratio = None if self.longest is None else self.longest / original
        return {ORIGINAL: original, "factor": self._factor(rope, ratio)}

    def _dynamic(self, rope: Fields) -> dict[str, Any]:
        if rope.given("alpha"):
            alpha = rope.number("alpha", low=1.0, high=1e9) or 1.0
            self.note("dynamic-alpha", f"alpha = {alpha:g} makes fixed frequencies of dynamic: the base is multiplied "
                      "by alpha^(d/(d-2)) for every length (Hunyuan), and the factor is not read.",
                      "Read it as NTK with this factor.",
                      rope.name("alpha"))  # fmt: skip
            if alpha > (RopeSpec.param("factor").maximum or 0.0):
                return {"scaling": "none", "alpha": alpha}
            return {"scaling": "ntk", "factor": alpha}
        factor, longest = self._factor(rope), self.longest
        if longest is None:
            self.top.refuse("max_position_embeddings", RopeSpec.param(ORIGINAL).legal, "dynamic NTK is measured by it")
            return {"factor": factor}
        if rope.given(ORIGINAL) and rope.mapping[ORIGINAL] != longest:
            self.warn("dynamic-original", f"{ORIGINAL} = {short(rope.mapping[ORIGINAL])} is given, but transformers "
                      f"measures dynamic NTK by max_position_embeddings = {longest:,}.",
                      "Set that one to the length of training.",
                      rope.name(ORIGINAL))  # fmt: skip
        return {"factor": factor, ORIGINAL: longest}

    def _llama3(self, rope: Fields) -> dict[str, Any]:
        original = self._original(rope)
        made = {
            ORIGINAL: RopeSpec.param(ORIGINAL).default if original is None else original,
            "factor": self._factor(rope),
        }
        return made | {n: self._param(rope, n, needed=True) for n in ("low_freq_factor", "high_freq_factor")}

    def _attention_factor(self, rope: Fields, *names: str) -> float:
        """An explicit attention factor; 0 where it is computed, which null means."""
        made = rope.number(*names, low=0.0, high=RopeSpec.param("attention_factor").maximum or 0.0, above=True)
        if made is None:
            return 0.0
        self.note("attention-factor-given", f"{' = '.join(n for n in names if rope.given(n))} = {made:.10g} is given, "
                  "not computed.",
                  "Nothing to do; null would mean computed.", rope.name(rope.first(names)))  # fmt: skip
        return made

    def _yarn(self, rope: Fields) -> dict[str, Any]:
        original, longest = self._original(rope, needed=False), self.longest
        if original is None and not rope.given(ORIGINAL) and not self.top.given(ORIGINAL):
            original = longest
            if longest is None:
                rope.refuse(ORIGINAL, RopeSpec.param(ORIGINAL).legal, "it is missing")
            else:
                self.warn("yarn-original-missing", f"YaRN without {ORIGINAL}: transformers takes "
                          f"max_position_embeddings = {longest:,} for it, and so does this reader.",
                          "Write the length of training out; if max_position_embeddings is the extended one, the ramp "
                          "is wrong.",
                          rope.name(ORIGINAL))  # fmt: skip
        made = self._lengths(rope, original)
        for name in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
            made[name] = self._param(rope, name)
        made["truncate"] = rope.flag("truncate", True)
        made["attention_factor"] = self._attention_factor(rope, "attention_factor")
        if made["mscale_all_dim"] and not self.mla:
            # Only MLA models multiply all scores by g(mscale_all_dim)²; others read the two for their quotient.
            if made["mscale"] and not made["attention_factor"]:
                top, bottom = (yarn_mscale(made["factor"], made[n]) for n in ("mscale", "mscale_all_dim"))
                made["attention_factor"] = top / bottom
            self.note("mscale-no-extra", f"mscale_all_dim = {made['mscale_all_dim']:g} multiplies the scores besides "
                      "in MLA models only; here it is read for the attention factor alone.", "Nothing to do.",
                      rope.name("mscale_all_dim"))  # fmt: skip
            made["mscale"] = made["mscale_all_dim"] = 0.0
        return made

    def _longrope(self, rope: Fields) -> dict[str, Any]:
        made, p = self._lengths(rope, self._original(rope)), RopeSpec.param("short_factor")
        low, high = p.minimum or 0.0, p.maximum or 0.0
        legal = f"a number from {low:g} to {high:,.10g}, one a pair"
        for name in ("short_factor", "long_factor"):
            values = rope.items(name, lambda v: is_number(v) and low <= v <= high, legal, p.max_length or 0)
            if not rope.given(name) or values == []:
                rope.refuse(name, f"a list, each {legal}", "LongRoPE needs both lists")
            made[name] = tuple(map(float, values or ()))
        explicit = self._attention_factor(rope, "attention_factor")
        # Phi-3.5-MoE's pair of factors, one for each list: RopeSpec has one.
        mscales = self._attention_factor(rope, "short_mscale", "long_mscale")
        if rope.given("short_mscale") != rope.given("long_mscale"):
            rope.refuse(
                rope.first(("short_mscale", "long_mscale")), "both of short_mscale and long_mscale, equal, or neither"
            )
        if explicit and mscales and explicit != mscales:
            rope.refuse("attention_factor", f"the same as short_mscale = {mscales:g}")
        return made | {"attention_factor": mscales or explicit}

    # -------------------------------------------------------------- findings

    def _found_in(self, spec: RopeSpec, rope: Fields) -> RopeSpec:
        """The spec, after noting what is worth knowing about it."""
        where, original = rope.path[:-1], spec.original_max_position_embeddings
        if spec.scaling in ("yarn", "llama3", "longrope"):
            self._length_findings(spec, rope)
        if spec.scaling == "yarn":
            self._yarn_findings(spec, rope)
        if spec.scaling == "longrope":
            self.note("longrope-switch", f"The short list holds for sequences of up to {original:,} tokens, the long "
                      "one past it. Keys that were cached before the crossing keep the short one.",
                      "Choose by the sequence's length, never by the cache's size; keep both lists.",
                      where)  # fmt: skip
        if spec.scaling in ("yarn", "longrope"):
            factor = rope_frequencies(spec).attention_factor
            self.note("attention-factor", f"cos and sin are multiplied by {factor:.6f}, so the scores of what rotates "
                      f"by {factor**2:.6f}.",
                      "Apply it once: on cos and sin, or its square on the scores.", where)  # fmt: skip
        if spec.scaling == "dynamic":
            self.warn("dynamic-two-definitions", "transformers makes dynamic NTK's frequencies anew from the length "
                      f"of each sequence; vLLM fixes them once, for {spec.factor:g} · {original:,} tokens in versions "
                      "until April 2026, for the served length since. Keys in a cache keep the frequencies that they "
                      "were written with.",
                      "Compare engines within one definition only.", where)  # fmt: skip
        if spec.scaling == "llama3" and spec.low_freq_factor == spec.high_freq_factor:
            self.note("llama3-no-ramp", f"low_freq_factor = high_freq_factor = {spec.low_freq_factor:g}: no pair is "
                      "ramped; the usual formula divides by zero.",
                      "Keep the pairs with at least that many turns, divide the others.",
                      where)  # fmt: skip
        if spec.scaling == "proportional":
            self.note("proportional", f"{spec.rotated_pairs} of {spec.d_head // 2} pairs turn, the slow ones have "
                      f"frequency 0; the exponent runs over the whole head, and pairs are (i, i + {spec.d_head // 2}).",
                      "Do not read it as partial rotation.", where)  # fmt: skip
        elif spec.rotary_fraction != 1.0:
            self.note("partial-rotation", f"{spec.rotary_dim} of {spec.d_head} features rotate; the exponent runs over "
                      f"{spec.rotary_dim}, the others pass unchanged.",
                      "Divide by the rotary dim, not by the head dim.",
                      "partial_rotary_factor")  # fmt: skip
        if spec.mrope_section:
            how = ", alternating" if spec.mrope_interleaved else ""
            self.note("mrope", f"M-RoPE: sections of {', '.join(map(str, spec.mrope_section))} pairs{how} turn by "
                      "time, height and width. For text alone the three agree, and it is plain RoPE.",
                      "Text needs nothing; images need their own position ids.", where)  # fmt: skip
        beta = rope.number("llama_4_scaling_beta", low=0.0, high=100.0)
        if beta:
            self.note("query-scaling", f"Queries are multiplied by 1 + {beta:g}·ln(1 + ⌊p/{original:,}⌋) besides: past "
                      "the original length scores grow with the position.",
                      "Port it too; it is not in the frequencies.",
                      rope.name("llama_4_scaling_beta"))  # fmt: skip
        inner = rope.raw("max_position_embeddings")
        if inner is not None and inner != self.longest:
            self.warn("lengths-differ", f"max_position_embeddings is {short(inner)} in {where} and {self.longest} "
                      "outside.",
                      "The outer one is used.", rope.name("max_position_embeddings"))  # fmt: skip
        return spec

    def _length_findings(self, spec: RopeSpec, rope: Fields) -> None:
        original, longest, name = spec.original_max_position_embeddings, self.longest, "max_position_embeddings"
        reached = spec.factor * original
        if longest is None or not self.top.given(*LENGTHS):  # a default says nothing about this model
            return
        if longest == original:
            self.note("length-original", f"{name} = {longest:,} is the original length; with factor {spec.factor:g} "
                      f"the model reaches {reached:,.10g}.",
                      f"Engines that stop at {name} need the longer one.", name)  # fmt: skip
        elif abs(reached - longest) <= 1:
            self.note("length-extended", f"{name} = {longest:,} is the extended one: {spec.factor:g} · {original:,}.",
                      f"Take {ORIGINAL} for the frequencies.", name)  # fmt: skip
        else:
            sentence = (
                f"Factor {spec.factor:g} times the original length {original:,} is {reached:,.10g}, but {name} = "
                f"{longest:,}."
            )
            if spec.scaling == "llama3":  # Llama 3.1 itself: 8 · 8,192 for 131,072
                self.note(
                    "factor-mismatch",
                    sentence,
                    "The factor divides frequencies here, and is used as it stands.",
                    rope.name("factor"),
                )
            else:
                self.warn(
                    "factor-mismatch",
                    sentence,
                    "The factor is used as it stands; make the three agree.",
                    rope.name("factor"),
                )

    def _yarn_findings(self, spec: RopeSpec, rope: Fields) -> None:
        if not spec.truncate:
            (low, high), whole = yarn_range(spec), yarn_range(spec.replace(truncate=True))
            self.note("truncate-false", f"truncate is false: the ramp runs from pair {low:.6f} to {high:.6f}; rounded "
                      f"it would from {whole[0]:g} to {whole[1]:g}.",
                      "Keep the ends unrounded. transformers 5.24 misses truncate in the dict of a layer type.",
                      rope.name("truncate"))  # fmt: skip
        if spec.mscale and not spec.mscale_all_dim:
            self.warn("mscale-alone", f"mscale = {spec.mscale:g} without mscale_all_dim: transformers does not read "
                      f"it, DeepSeek's code multiplies cos and sin by {yarn_mscale(spec.factor, spec.mscale):.6f}.",
                      "Write attention_factor out.",
                      rope.name("mscale"))  # fmt: skip
        if spec.mscale_all_dim:
            extra = yarn_mscale(spec.factor, spec.mscale_all_dim)
            self.note("mscale-all-dim", "The attention factor on cos and sin is "
                      f"{rope_frequencies(spec).attention_factor:.6f}; besides, all scores are multiplied by "
                      f"g(mscale_all_dim)² = {extra:.6f}² = {extra**2:.6f}.", "Apply both.",
                      rope.name("mscale_all_dim"))  # fmt: skip


def _share(features: int, d_head: int) -> float:
    """The fraction that makes int(d_head·fraction) = features; the quotient alone may come out one below."""
    made = features / d_head
    return made if int(d_head * made) == features else math.nextafter(made, 2.0)
