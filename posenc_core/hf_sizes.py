"""Sizes of a model and the kind of each of its layers, as config.json spells them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from posenc_core.hf_architectures import ARCHITECTURES, Architecture
from posenc_core.hf_fields import Fields, Problems, inactive, is_whole, touches_layers, touches_positions
from posenc_core.hf_types import Finding
from posenc_core.spec import Problem, SpecError

MAX_LAYERS = 10_000
MAX_HEAD_DIM = 1024
MAX_LENGTH = 2**40
MOST_FINDINGS = 50  # of one kind are told one by one
MOST_KEPT = 2_000  # characters of a field that is not read, as JSON: longer ones are told, not kept

FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
CROSS = "cross_attention"
# config.json's words for layers. Those that attend to no positions have no positional encoding.
POSITIONLESS = (LINEAR, "mamba", "conv", "recurrent", "moe", "mlp", CROSS)
LAYER_TYPES = (FULL, SLIDING, CHUNKED, "indexed_attention", "attention", "hybrid", *POSITIONLESS)

SIZES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "kv_channels", "d_kv"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
}
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "max_sequence_length",
           "seq_length", "n_ctx", "max_trained_positions")  # fmt: skip
TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")
PERIODS = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", "full_attention_interval")
WINDOWS = ("sliding_window", "local_attention", "window_size")
BASES = ("rope_theta", "rotary_emb_base", "global_rope_theta")
LOCAL_BASES = ("rope_local_base_freq", "local_rope_theta")
FRACTIONS = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_emb_fraction")
READ_LATER = (*BASES, *LOCAL_BASES, *FRACTIONS, "rope_parameters", "rope_scaling", "rope_ratio", "rotary_dim",
              "rope_interleave", "rotary_emb_interleaved", "original_max_position_embeddings")  # fmt: skip
SWITCHED = ("attention_chunk_size", "sliding_window")  # a null turns the default of these off
# Mappings of a config that are no part of the text model's attention.
_ELSEWHERE = re.compile(
    r"vision|visual|image|video|audio|speech|talker|token2wav|tts|vocoder|codec|quant|auto_map|label|generation|specific"
    r"|pruned|projector|adapter|lora|architectures",
    re.IGNORECASE,
)


class SizeReader:
    """The text model of a config, its sizes and its layers; problems and findings are gathered on the way."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        self.problems = Problems()
        self.findings: dict[Finding, None] = {}
        self.told: dict[str, int] = {}  # findings of each code, with those past the most that are kept
        self.defaults: dict[str, object] = {}
        self.nulls = set(SWITCHED)  # fields whose null says something
        self.counted = True
        self.outer: list[tuple[Fields, str]] = []  # the mappings around the text model's, each with its name for it
        top = Fields(mapping, "", self.problems)
        while len(self.outer) < 3:
            inside = [n for n in TEXT_CONFIGS if top.given(n)]
            if len(inside) > 1:
                top.refuse(inside[1], f"one of {', '.join(TEXT_CONFIGS)}", "the config has two text models")
            inner = top.inner(inside[0]) if inside else None
            if inner is None:
                break
            self.outer.append((top, inside[0]))
            top = inner
        self.top = top
        self.model_type = top.text("model_type") or next(
            (t for t in (f.text("model_type") for f, _ in self.outer) if t), ""
        )
        self.known = self.model_type in ARCHITECTURES
        self.arch = ARCHITECTURES.get(self.model_type, Architecture(reads_fraction=None))
        self.attention = top.inner("attn_config")
        self.heads, self.kv_heads = self._heads()
        self.longest = self._longest()

    def stop(self) -> None:
        """Raise what was found so far."""
        if self.problems:
            raise SpecError(self.problems.told())

    def note(self, code: str, sentence: str, action: str, name: str = "") -> None:
        """A finding that needs no hurry."""
        self._found("note", code, sentence, action, name)

    def warn(self, code: str, sentence: str, action: str, name: str = "") -> None:
        """A finding that can make the numbers wrong."""
        self._found("warning", code, sentence, action, name)

    def _found(self, level: Literal["warning", "note"], code: str, sentence: str, action: str, name: str) -> None:
        made = Finding(level, code, sentence, action, cut(name))
        if made not in self.findings:
            self.told[code] = self.told.get(code, 0) + 1
            if self.told[code] <= MOST_FINDINGS:
                self.findings[made] = None

    def _tell_unread(self, fields: Fields, key: str, code: str, sentence: str, action: str, name: str = "") -> None:
        """Warn of a field that is not read. It is kept, so that the config that is kept warns of it too."""
        self.warn(code, sentence, action, name or key)
        if self.told[code] <= MOST_FINDINGS and _is_short(fields.mapping[key]):
            fields.raw(key)

    def all_findings(self) -> tuple[Finding, ...]:
        """Every finding that was kept, and how many there are besides."""
        rest = [
            Finding(f.level, code, f"And {n - MOST_FINDINGS:,} more of this kind.", f.action)
            for code, n in self.told.items()
            if n > MOST_FINDINGS
            for f in [next(f for f in self.findings if f.code == code)]
        ]
        return (*self.findings, *rest)

    def default(self, name: str, value: Any) -> Any:
        """The architecture's default, noted as taken."""
        if value is not None:
            self.defaults[name] = value
        return value

    # -------------------------------------------------------------- sizes

    def width(self) -> int | None:
        """hidden_size; a problem where it is missing."""
        top = self.top
        names = SIZES["hidden_size"] if top.given(*SIZES["hidden_size"]) else ("dim",)
        width = top.whole(*names, low=1, high=2**20)
        if width is None and not top.given(*names):
            width = self.default("hidden_size", self.arch.sizes.hidden_size)
            if width is None:
                top.refuse("hidden_size", "a whole number from 1 to 1,048,576", "it is missing")
        return width

    def _heads(self) -> tuple[int | None, int | None]:
        """Attention heads, and heads of the keys."""
        top, sizes = self.top, self.arch.sizes
        names = SIZES["num_attention_heads"]
        names += ("encoder_attention_heads",) if self.arch.encoder_decoder else ()
        heads = top.whole(*names, low=1, high=65536)
        if not top.given(*names):
            heads = self.default("num_attention_heads", sizes.num_attention_heads)
            kv_default = sizes.num_key_value_heads
        else:  # a class whose default is one key head a query head means that for every number of heads
            kv_default = None if sizes.num_key_value_heads == sizes.num_attention_heads else sizes.num_key_value_heads
        kv = top.whole(*SIZES["num_key_value_heads"], low=1, high=65536)
        if kv is None and self.attention is not None:
            kv = self.attention.whole("kv_n_heads", low=1, high=65536)
        if kv is None and top.flag("multi_query_attention", False):  # ChatGLM
            kv = top.whole("multi_query_group_num", low=1, high=65536)
        if kv is None and top.flag("multi_query", False) and not top.flag("new_decoder_architecture", False):  # Falcon
            kv = 1
        reason = ""
        if kv is None and kv_default is not None and self._null("num_key_value_heads"):
            self._null_note("num_key_value_heads", kv_default, heads)
        elif kv is None and kv_default is not None:
            kv, reason = self.default("num_key_value_heads", kv_default), f"{self.model_type}'s default"
        if heads is not None and kv is not None and heads % kv:
            name = top.name(top.first(SIZES["num_key_value_heads"]))
            self.problems.append(Problem(name, kv, f"a divisor of the {heads} attention heads", reason))
        return heads, heads if kv is None else kv

    def _null(self, name: str) -> bool:
        """Whether a field is null, which means its derived value, not the class's default as where it is left out."""
        if name not in self.top.mapping or self.top.mapping[name] is not None:
            return False
        self.nulls.add(name)
        return True

    def _null_note(self, name: str, default: int, derived: int | None) -> None:
        if derived not in (None, default):
            self.note("null-derived", f"{name} is null, so it is {derived}, not {default} as where it is left out.",
                      "Write the number out.", name)  # fmt: skip

    def _longest(self) -> int | None:
        """The length that the config promises."""
        top = self.top
        found = {n: top.whole(n, low=1, high=MAX_LENGTH) for n in LENGTHS if top.given(n)}
        values = {n: v for n, v in found.items() if v is not None}
        if not found:
            return self.default("max_position_embeddings", self.arch.sizes.max_position_embeddings)
        first = next(iter(values), None)
        if first is None:
            return None
        others = {n: v for n, v in values.items() if v != values[first]}
        if others:
            listed = ", ".join(f"{n} = {v:,}" for n, v in others.items())
            self.note("lengths-differ", f"{first} = {values[first]:,}, but {listed}.",
                      f"{first} is used here; one of them is often the length of training.", first)  # fmt: skip
        return values[first]

    def head_dim(self) -> int | None:
        """The whole head's features; a problem where the width does not divide by the heads."""
        top = self.top
        given = top.whole(*SIZES["head_dim"], low=2, high=MAX_HEAD_DIM)
        if given is not None or top.given(*SIZES["head_dim"]):
            return given
        default = self.arch.sizes.head_dim
        if default is not None and not self._null("head_dim"):
            return self.default("head_dim", default)
        hidden, heads, name = self.width(), self.heads, top.first(SIZES["num_attention_heads"])
        if heads is None:
            top.refuse(name, "a whole number from 1 to 65,536", "" if top.given(name) else "it is missing")
        if hidden is None or heads is None:
            return None
        if hidden % heads or not 2 <= hidden // heads <= MAX_HEAD_DIM:
            legal = f"a divisor of hidden_size = {hidden} that makes heads of 2 to 1,024 features"
            self.problems.append(Problem(top.name(name), heads, legal))
            return None
        if default is not None:
            self._null_note("head_dim", default, hidden // heads)
        return hidden // heads

    # -------------------------------------------------------------- which layer is what

    def plan(self) -> list[tuple[str, bool]]:
        """(layer type, whether it has a position) of each layer; one of each kind where the count is unknown.

        Empty after a problem.
        """
        top, nope = self.top, self.arch.nope
        for name in (*WINDOWS, "max_window_layers"):  # read below where a layer slides
            top.raw(name)
        count = top.whole(*SIZES["num_hidden_layers"], low=1, high=MAX_LAYERS)
        if count is None and top.given(*SIZES["num_hidden_layers"]):
            return []
        types = self._layer_types(count)
        ropes = self._rope_switches(len(types) if types else count)
        known = count or len(types or ropes or ())
        step = top.whole("no_rope_layer_interval", low=1, high=MAX_LAYERS)
        period = self._period()
        self._count(known)
        late = self._late() or 0
        length = known or max(48, step or 0, period or 0, late + 1)  # long enough to meet every kind of every pattern
        if ropes is None and (step or nope == "interval"):
            step = self.default("no_rope_layer_interval", 4) if step is None else step
            ropes = [bool((i + 1) % step) for i in range(length)]
        if types is None:
            types = self._pattern(length, period, ropes)
        if ropes is None and (nope == "full" or (nope == "beside sliding" and self.window())):
            ropes = [t != FULL for t in types]
        for index in top.items("cross_attention_layers", _is_index, "a layer's index") or []:
            if index < len(types):
                types[index] = CROSS
        plan = [(t, (ropes is None or ropes[i]) and t not in POSITIONLESS) for i, t in enumerate(types)]
        return plan if known else list(dict.fromkeys(plan))

    def _count(self, known: object) -> None:
        """Note where a config does not say how many layers there are."""
        self.counted = bool(known)
        if not known:
            self.note("layers-unknown", "num_hidden_layers is not given: one layer of each kind is shown.",
                      "Write it out to see every layer.", "num_hidden_layers")  # fmt: skip

    def _layer_types(self, count: int | None) -> list[str] | None:
        """The list of layer types that the config gives, in its own words; None where it gives none."""
        top = self.top
        name = top.first(("layer_types", "layers_block_type"))
        types = top.items(name, lambda v: isinstance(v, str) and v in LAYER_TYPES, "one of " + ", ".join(LAYER_TYPES))
        if types is None and top.given("attention_layers", "attention_types"):
            types, name = self._neo_types(), top.first(("attention_layers", "attention_types"))
        if types is None and top.given("full_attn_idxs"):
            full, name = set(top.items("full_attn_idxs", _is_index, "a layer's index") or []), "full_attn_idxs"
            types = [FULL if i in full else "conv" for i in range(count)] if count else None
        if types is None:
            return None
        if not types or (count is not None and len(types) != count):
            top.refuse(name, f"{count or 'at least 1'} layer types, one a layer", f"{len(types)} given")
            return None
        if name != "full_attn_idxs" and top.given("full_attn_idxs"):  # LFM2 writes both
            full = set(top.items("full_attn_idxs", _is_index, "a layer's index") or [])
            if full != {i for i, t in enumerate(types) if t == FULL}:
                self.warn("pattern-differs", f"{name} and full_attn_idxs name different layers.",
                          f"{name} is used; remove the other one.", name)  # fmt: skip
        period = self._period() if not isinstance(top.raw("sliding_window_pattern"), str) else None
        if period is not None and SLIDING in types and not self.arch.first:
            implied = [SLIDING if (i + 1) % period else FULL for i in range(len(types))]
            if implied != types:
                self.warn("pattern-differs", f"layer_types and {top.first(PERIODS)} = {period} name different layers.",
                          "layer_types is used; remove the other one.", "layer_types")  # fmt: skip
        return types

    def _neo_types(self) -> list[str] | None:
        """GPT-Neo: attention_layers is a list of words, attention_types is [[[words], times], …]."""
        top, words = self.top, {"global": FULL, "local": SLIDING}
        legal = f"a list of [[global or local, …], times] for at most {MAX_LAYERS:,} layers"
        layers = top.items("attention_layers", lambda v: isinstance(v, str) and v in words, "global or local")
        kinds = top.raw("attention_types")
        if layers is None and kinds is not None:
            layers = []
            group: Any
            times: Any
            for item in kinds if isinstance(kinds, list) else [kinds]:
                group, times = item if isinstance(item, list) and len(item) == 2 else (None, None)
                good = isinstance(group, list) and all(isinstance(w, str) and w in words for w in group)
                if not good or not _is_index(times) or len(layers) + len(group) * times > MAX_LAYERS:
                    top.refuse("attention_types", legal)
                    return None
                layers += group * times
        return None if layers is None else [words[w] for w in layers]

    def _rope_switches(self, count: int | None) -> list[bool] | None:
        """no_rope_layers: 1 means that the layer HAS RoPE, as Llama 4 and SmolLM3 write it."""
        top = self.top
        flags = top.items("no_rope_layers", lambda v: is_whole(v) and v in (0, 1), "1 (the layer has RoPE) or 0 (none)")
        if not flags:  # Llama 4 writes an empty list for its default
            return None
        if count is not None and len(flags) != count:
            top.refuse("no_rope_layers", f"{count} numbers, one a layer", f"{len(flags)} given")
            return None
        return [bool(v) for v in flags]

    def _period(self) -> int | None:
        """Every how many layers the rarer kind comes."""
        if isinstance(self.top.mapping.get("sliding_window_pattern"), str):
            return None
        return self.top.whole(*PERIODS, low=1, high=MAX_LAYERS)

    def _pattern(self, length: int, period: int | None, ropes: list[bool] | None) -> list[str]:
        """Layer types where no list is given: from a period, else as the architecture has it."""
        top, arch = self.top, self.arch
        if self.model_type == "jamba":
            return self._jamba(length)
        letters, name = top.raw("sliding_window_pattern"), top.first(PERIODS)
        if self.known and name != arch.period and (period is not None or isinstance(letters, str)):
            if period is None or arch.pattern is None or period != arch.pattern[0]:
                own = f"one layer in {arch.pattern[0]} is {arch.pattern[2]}" if arch.pattern else "it has no pattern"
                self.warn("pattern-unread", f"{name} = {short(top.mapping[name])} is not read by {self.model_type} in "
                          f"transformers: {own}.",
                          "Write layer_types out.", name)  # fmt: skip
            letters = period = None
        if isinstance(letters, str):  # EXAONE 4 writes LLLG: local, local, local, global
            if not re.fullmatch(r"[LG]{1,64}", letters):
                top.refuse("sliding_window_pattern", "a whole number, or letters L (local) and G (global)")
            return [SLIDING if letters[i % len(letters)] == "L" else FULL for i in range(length)] if letters else []
        chunk = self.chunk()
        if chunk is not None:
            return [CHUNKED if rope else FULL for rope in ropes or [True] * length]
        step, most, last = arch.pattern or (1, SLIDING, FULL)
        if period is not None:
            most = LINEAR if top.given("full_attention_interval") else most
            if not self.known:
                self.warn("pattern-assumed", f"{top.first(PERIODS)} = {period}: one layer in {period} is read as "
                          f"{last}, the others as {most}.",
                          "Compare with the model's own code.", top.first(PERIODS))  # fmt: skip
        elif arch.pattern is not None:
            period = step
            self.default("layer_types", f"{last} for one layer in {step}" if step > 1 else last)
        if period is not None and (most != SLIDING or self.window()):
            return [most if (i if arch.first else i + 1) % period else last for i in range(length)]
        return self._sliding(length, ropes)

    def _jamba(self, length: int) -> list[str]:
        """Jamba: one layer in attn_layer_period has attention, the others are Mamba's."""
        numbers: dict[str, int] = {}
        for name in ("attn_layer_period", "attn_layer_offset"):
            given = self.top.whole(name, low=0, high=MAX_LAYERS)
            numbers[name] = given if given is not None else self.default(name, self.arch.also[name])
        period, offset = numbers.values()
        if offset >= period:
            self.top.refuse("attn_layer_offset", f"a whole number below attn_layer_period = {period}")
        return ["attention" if i % max(period, 1) == offset else "mamba" for i in range(length)]

    def _late(self) -> int | None:
        """The first sliding layer (late) or the first that never slides (even); None without such a rule."""
        default = self.arch.also.get("max_window_layers")
        given = self.top.whole("max_window_layers", low=0, high=MAX_LAYERS)
        return default if given is None else given

    def _sliding(self, length: int, ropes: list[bool] | None) -> list[str]:
        """Layer types of a model whose sliding layers follow from its architecture and its switches."""
        top, rule = self.top, self.arch.windows
        use = top.flag("use_sliding_window", bool(self.arch.also.get("use_sliding_window", False)))
        window, late = self.window(), self._late()
        if not window or (rule in ("late", "even", "switch") and not use):
            return [FULL] * length
        if late is None:
            late = length
        elif not top.given("max_window_layers"):
            self.default("max_window_layers", late)
        if rule == "late":
            return [SLIDING if i >= late else FULL for i in range(length)]
        if rule == "even":
            return [SLIDING if i % 2 == 0 and i < late else FULL for i in range(length)]
        if self.arch.nope == "interval" and use and ropes:
            return [FULL if rope else SLIDING for rope in ropes]
        if not self.known and top.mapping.get("use_sliding_window") is not False:
            self.warn("window-assumed", f"{top.first(WINDOWS)} = {window:,}, and nothing says which layers slide.",
                      "Every layer is read as sliding; compare with the model's own code.",
                      top.first(WINDOWS))  # fmt: skip
            return [SLIDING] * length
        if rule == "none" and self.known and top.given("sliding_window"):
            self.warn("window-unread", f"sliding_window = {window:,} is not read by {self.model_type} in transformers.",
                      "Other engines may slide; make sure that they agree.", "sliding_window")  # fmt: skip
        return [SLIDING if rule in ("all", "switch") else FULL] * length

    def window(self, *, used: bool = False) -> int | None:
        """Tokens of the sliding window; None where the config turns it off by null, 0 or -1."""
        top = self.top
        value = top.whole(*WINDOWS, low=-1, high=MAX_LENGTH)
        if top.given(*WINDOWS) or ("sliding_window" in top.mapping):
            value = value if value is not None and value > 0 else None
        else:
            value = self.default("sliding_window", self.arch.window) if used else self.arch.window
        if value is None or not self._bidirectional():
            return value
        made = value // 2 + 1
        if used:
            self.note("bidirectional-window", f"use_bidirectional_attention makes {made:,} of sliding_window = "
                      f"{value:,}: half of it, and one. A token sees those nearer than {made:,}, on both sides.",
                      "Halve the window for the mask.", "use_bidirectional_attention")  # fmt: skip
        return made

    def _bidirectional(self) -> bool:
        return self.arch.bidirectional and self.top.raw("use_bidirectional_attention") in (True, "all")

    def chunk(self) -> int | None:
        """Tokens of a chunk, where layers see chunks."""
        top, name = self.top, "attention_chunk_size"
        value = top.whole(name, low=1, high=MAX_LENGTH)
        return value if name in top.mapping else self.default(name, self.arch.chunk)

    def seen(self, layer_type: str) -> int | None:
        """The window or chunk of a layer of this type."""
        if layer_type == CHUNKED:
            return self.chunk()
        return self.window(used=True) if layer_type == SLIDING else None

    def remark(self, layer_type: str) -> str:
        """What is to be said of a layer of this type in this architecture."""
        if layer_type == SLIDING and self._bidirectional():
            return "window: to each side"
        return self.arch.note if self.arch.window is None or layer_type == SLIDING else ""

    # -------------------------------------------------------------- what is left

    def refuse_unread(self) -> None:
        """Every field that touches positions and was not read is refused by name; one of layers is a warning.

        After a problem the reading may have stopped before the names that every reader reads.
        """
        who = self.model_type or "a config without model_type"
        later = READ_LATER if self.problems else ()
        for fields in filter(None, (self.top, self.attention)):
            for key, value in fields.mapping.items():
                if not isinstance(key, str):
                    self.problems.append(Problem(fields.path + str(key), value, "names that are texts"))
                elif key in fields.read or key in later or inactive(key, value):
                    continue
                elif key == "dual_chunk_attention_config" and isinstance(value, Mapping):
                    if value:
                        self._dual_chunk(fields, key, value)
                elif touches_positions(key):
                    fields.refuse(key, "no such field, or null", f"it touches positions and is not read for {who}")
                elif touches_layers(key) and not isinstance(value, bool) and not self._says_nothing(key, value):
                    self._tell_unread(fields, key, "layers-unread", f"{cut(key)} = {short(value)} is not read; it may "
                                      "say which layers differ.",
                                      "Compare the layers with the model's own code.")  # fmt: skip
                elif isinstance(value, Mapping) and fields is self.top and not _ELSEWHERE.search(key):
                    self._nested(key, value)

    def _says_nothing(self, key: str, value: object) -> bool:
        """A second spelling of the window that agrees (Gemma 2), a list that says that all layers attend (MiniMax)."""
        if key == "sliding_window_size":
            return value == self.top.mapping.get("sliding_window")
        return key == "attn_type_list" and isinstance(value, list) and all(is_whole(v) and v == 1 for v in value)

    def _dual_chunk(self, fields: Fields, key: str, value: Mapping[str, Any]) -> None:
        size = value.get("chunk_size")
        where = f" of {size:,} tokens" if isinstance(size, int) and 0 < size < MAX_LENGTH else ""
        self._tell_unread(fields, key, "dual-chunk", "Dual chunk attention maps the positions of tokens past a "
                          f"chunk{where} onto smaller ones, so distances between chunks are not those shown here.",
                          "The frequencies hold as they are; engines that do not know the field leave the map out.",
                          )  # fmt: skip

    def _nested(self, key: str, value: Mapping[str, Any]) -> None:
        """Names that touch positions one or two levels inside a mapping that is not read."""
        for name, inside in value.items():
            levels = {f"{name}.{n}": (n, v) for n, v in inside.items()} if isinstance(inside, Mapping) else {}
            for path, (last, found) in {str(name): (name, inside), **levels}.items():
                if isinstance(last, str) and touches_positions(last) and not inactive(last, found):
                    self._tell_unread(self.top, key, "nested-unread", f"{cut(f'{key}.{path}')} = {short(found)} is "
                                      "not read; it may change positions.",
                                      "Compare with the model's own code.", f"{key}.{path}")  # fmt: skip


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_LAYERS


def _is_short(value: object) -> bool:
    try:
        return len(json.dumps(value)) <= MOST_KEPT
    except (TypeError, ValueError):  # no JSON, or a list that holds itself
        return False


def cut(text: str) -> str:
    """The first 60 characters of a text."""
    return text if len(text) <= 60 else text[:59] + "…"


def short(value: object) -> str:
    """A value as JSON, cut to one line."""
    try:
        return cut(json.dumps(value, default=str))
    except ValueError:  # Python prints no whole number of more than 4,300 digits
        return "a value too long to print"


def dict_text(values: Mapping[str, Any]) -> str:
    """name = value, …"""
    return ", ".join(f"{k} = {v if isinstance(v, str) else short(v)}" for k, v in values.items())


def indices(values: Sequence[int], most: int = 12) -> str:
    """A list of numbers, cut in its middle."""
    head = ", ".join(map(str, values[:most]))
    return head if len(values) <= most else f"{head}, … {values[-1]}"
