"""Config fields of the encodings other than RoPE: ALiBi, learned and sinusoidal tables, Whisper, T5, none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from posenc_core.hf_fields import Fields
from posenc_core.hf_sizes import FULL, LENGTHS, MAX_LAYERS, SIZES, SizeReader
from posenc_core.hf_types import LayerEncoding
from posenc_core.schemes.alibi import MAX_HEADS, AlibiSpec, alibi_slopes
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.schemes.t5 import T5Spec
from posenc_core.spec import Spec, SpecError

FALCON = ("falcon", "RefinedWeb", "RefinedWebModel")
_ROPE = ("rope_theta", "rope_scaling", "rope_parameters")  # left over in configs of models that have another encoding


class TableReader(SizeReader):
    """Layers whose positions are in a bias, or in a table that is added to the embeddings."""

    def _spec(self, spec: type[Spec], names: Mapping[str, str], **values: Any) -> Any:
        """A spec; raises its problems under the config's names, with all others, since no layer can be made then."""
        if all(v is not None for v in values.values()):
            try:
                return spec(**values)
            except SpecError as error:
                for p in error.problems:
                    self.problems.append(replace(p, name=self.top.name(names.get(p.name, p.name))))
        self.refuse_unread()
        raise SpecError(self.problems.told())

    def _layers(self, spec: Spec, types: Sequence[str], head_dim: int | None, first: int = 0) -> list[LayerEncoding]:
        """One layer a type; raises what was found so far, since the sizes cannot be told then."""
        if head_dim is None or self.problems:
            self.refuse_unread()
            raise SpecError(self.problems.told())
        return [LayerEncoding(first + i, t, spec, head_dim, self.seen(t), self.remark(t)) for i, t in enumerate(types)]

    def _types(self) -> list[str]:
        return [t for t, _ in self.plan()]

    def _leftovers(self, why: str) -> None:
        for name in _ROPE:
            if self.top.given(name):
                self.top.raw(name)
                self.warn("rope-unread", f"{name} is not read: {why}.", "Remove it.", name)

    # -------------------------------------------------------------- ALiBi

    def alibi_layers(self) -> list[LayerEncoding]:
        """ALiBi's slopes, as each architecture scales and orders them."""
        top, heads, head_dim, types = self.top, self.heads, self.head_dim(), self._types()
        if self.model_type == "bloom":
            top.raw("offset_alibi")  # written in its configs, read by no code
        name = top.first(SIZES["num_attention_heads"])
        slopes: tuple[float, ...] = ()
        if heads is not None and heads > MAX_HEADS:
            top.refuse(name, f"a whole number from 1 to {MAX_HEADS} for ALiBi")
        elif heads is not None and self.model_type in FALCON and head_dim is not None:
            slopes = self._falcon_slopes(heads, head_dim)
        elif heads is not None and self.attention is not None:
            slopes = self._mpt_slopes(self.attention, heads)
        spec = self._spec(AlibiSpec, {"n_heads": name}, n_heads=heads, slopes=slopes)
        used = spec.slope_tensor()
        if bool((used[1:] > used[:-1]).any()):
            lower = 2 ** int(math.log2(spec.n_heads))
            self.note("alibi-not-monotonic", f"The slopes of {heads} heads rise again after the first {lower}: the "
                      f"authors' recipe takes the slopes of {lower} heads, then every other one of {2 * lower} heads.",
                      "This is right; do not sort them.", name)  # fmt: skip
        return self._layers(spec, types, head_dim)

    def _falcon_slopes(self, heads: int, head_dim: int) -> tuple[float, ...]:
        plain = alibi_slopes(heads)
        slopes = tuple((plain / math.sqrt(head_dim)).tolist())
        self.note("alibi-scaled", "Falcon adds its bias before the division by √head_dim, so the slopes that act on "
                  f"the scores are the recipe's divided by √{head_dim} = {math.sqrt(head_dim):.6g}: {slopes[0]:.6g} "
                  f"for the first head, not {float(plain[0]):.6g}. transformers makes the bias in bfloat16.",
                  "Divide the slopes, or add the bias before the scaling.", "alibi")  # fmt: skip
        self._leftovers("alibi is true")
        return slopes

    def _mpt_slopes(self, attention: Fields, heads: int) -> tuple[float, ...]:
        """2^(-b·i/n) for the next power of two n, b = alibi_bias_max; of other counts every second one goes first."""
        if not attention.flag("alibi", True):
            attention.refuse("alibi", "true", "MPT without ALiBi is not read")
        if attention.flag("rope", False):
            attention.refuse("rope", "false", "MPT with RoPE is not read")
        for name in ("rope_theta", "rope_impl", "rope_dail_config", "rope_hf_config"):  # MPT reads them only with rope
            attention.raw(name)
        if self.top.flag("learned_pos_emb", False):
            self.note("learned-unread", "learned_pos_emb is true, but with ALiBi MPT adds no learned positions.",
                      "Nothing to do.", "learned_pos_emb")  # fmt: skip
        largest = attention.number("alibi_bias_max", low=0.01, high=1024.0)
        if largest is None or largest == 8.0:
            return ()  # the recipe's slopes, in the recipe's order
        n = 2 ** math.ceil(math.log2(heads))
        made = [2.0 ** (-largest * (i + 1) / n) for i in range(n)]
        return tuple(made if n == heads else [*made[1::2], *made[0::2]][:heads])

    # -------------------------------------------------------------- tables

    def _stacks(self) -> tuple[int, int]:
        """Layers of the encoder and of the decoder, one each where the counts are unknown."""
        top = self.top
        general = top.whole("num_hidden_layers", "num_layers", low=1, high=MAX_LAYERS)
        encoder = top.whole("encoder_layers", low=1, high=MAX_LAYERS) or general
        self._count(encoder)
        encoder = encoder or 1
        return encoder, top.whole("decoder_layers", "num_decoder_layers", low=1, high=MAX_LAYERS) or encoder

    def _both(self, encoder: Spec, decoder: Spec, head_dim: int | None) -> list[LayerEncoding]:
        first, second = self._stacks()
        return [
            *self._layers(encoder, ["encoder"] * first, head_dim),
            *self._layers(decoder, ["decoder"] * second, head_dim, first),
        ]

    def table_layers(self) -> list[LayerEncoding]:
        """A learned table, of one stack or of an encoder and a decoder that have the same."""
        top, arch, head_dim = self.top, self.arch, self.head_dim()
        width = self.width()
        self._static(False)
        if "embedding_size" in arch.also:  # ELECTRA, ALBERT
            given = top.whole("embedding_size", low=1, high=2**20)
            width = (
                given if top.given("embedding_size") else self.default("embedding_size", arch.also["embedding_size"])
            )
        name, offset = top.first(LENGTHS), self._offset()
        if self.longest is None and not top.given(*LENGTHS):
            top.refuse(name, LearnedSpec.param("max_position_embeddings").legal, "it is missing")
        rows = None if self.longest is None else self.longest + arch.extra_rows
        names = {"d_model": top.first(SIZES["hidden_size"]), "max_position_embeddings": name, "offset": "pad_token_id"}
        spec = self._spec(LearnedSpec, names, max_position_embeddings=rows, d_model=width, offset=offset)
        known = spec.max_position_embeddings - offset
        if offset:
            self.note("learned-offset", f"Position 0 is row {offset} of {spec.max_position_embeddings:,}, so {known:,} "
                      "positions have a row.", "Add the offset to the positions before the look-up.", name)  # fmt: skip
        self.note(
            "learned-end",
            f"Past {known:,} positions a learned table has nothing.",
            "Longer texts need a longer table, trained.",
            name,
        )
        if arch.encoder_decoder:
            return self._both(spec, spec, head_dim)
        return self._layers(spec, self._types(), head_dim)

    def _static(self, fixed: bool) -> None:
        """Marian's and Bart's words for what their classes do in any case."""
        top, rows = self.top, self.arch.extra_rows
        if top.flag("static_position_embeddings", fixed) != fixed:
            top.refuse("static_position_embeddings", "true" if fixed else "false", f"{self.model_type} has it so")
        if top.whole("extra_pos_embeddings", low=0, high=64) not in (None, rows):
            top.refuse("extra_pos_embeddings", str(rows), f"{self.model_type} has it so")

    def _offset(self) -> int:
        """The row of position 0; RoBERTa counts from pad_token_id + 1."""
        if self.arch.offset != "pad":
            return self.arch.offset
        pad = self.top.whole("pad_token_id", low=0, high=63)
        return (self.default("pad_token_id", 1) if pad is None else pad) + 1

    def sinusoidal_layers(self) -> list[LayerEncoding]:
        """Fixed sinusoids, in the order of each architecture."""
        head_dim, layout = self.head_dim(), "interleaved" if self.model_type == "distilbert" else "concatenated"
        names = {"d_model": self.top.first(SIZES["hidden_size"])}
        self._static(True)
        spec = self._spec(SinusoidalSpec, names, d_model=self.width(), layout=layout, endpoint=self.arch.endpoint)
        self._sinusoidal_note(spec, self._offset())
        if self.arch.encoder_decoder:
            return self._both(spec, spec, head_dim)
        return self._layers(spec, self._types(), head_dim)

    def _sinusoidal_note(self, spec: SinusoidalSpec, offset: int = 0) -> None:
        order = "all sines, then all cosines" if spec.layout == "concatenated" else "sine and cosine alternate"
        ends = "i/(d/2 - 1), as in tensor2tensor" if spec.endpoint else "2i/d, as in the paper"
        start = f" Position 0 is row {offset} of the table." if offset else ""
        self.note(
            "sinusoidal-layout",
            f"Sinusoids: {order}; the exponent is {ends}.{start}",
            "Keep the order and the exponent.",
        )

    def whisper_layers(self) -> list[LayerEncoding]:
        """Sinusoids in the encoder, a learned table in the decoder."""
        top, head_dim, width = self.top, self.head_dim(), self.width()
        lengths = {n: top.whole(n, low=2, high=2**20) for n in ("max_source_positions", "max_target_positions")}
        for name, value in lengths.items():
            if not top.given(name):
                lengths[name] = self.default(name, self.arch.also[name])
            elif value is None:
                self._spec(NoneSpec, {}, missing=None)
        names = {"d_model": top.first(SIZES["hidden_size"])}
        encoder = self._spec(SinusoidalSpec, names, d_model=width, layout="concatenated", endpoint=True)
        decoder = self._spec(LearnedSpec, names, max_position_embeddings=lengths["max_target_positions"], d_model=width)
        self._sinusoidal_note(encoder)
        self.note("encoder-decoder", f"The encoder sees {lengths['max_source_positions']:,} frames, with fixed "
                  f"sinusoids; the decoder at most {lengths['max_target_positions']:,} tokens, with a learned table.",
                  "Convert each table on its own.")  # fmt: skip
        self.longest = lengths["max_target_positions"]
        return self._both(encoder, decoder, head_dim)

    def t5_layers(self) -> list[LayerEncoding]:
        """Buckets of distances in self-attention, both ways in the encoder, backwards in the decoder."""
        top, head_dim, names = (
            self.top,
            self.head_dim(),
            ("relative_attention_num_buckets", "relative_attention_max_distance"),
        )
        values = {
            n: top.whole(n, low=int(T5Spec.param(n).minimum or 0), high=int(T5Spec.param(n).maximum or 0))
            for n in names
        }
        for name in names:
            if not top.given(name):
                values[name] = self.default(name, T5Spec.param(name).default)
        heads = {"n_heads": top.first(SIZES["num_attention_heads"])}
        encoder = self._spec(T5Spec, heads, n_heads=self.heads, **values, bidirectional=True)
        decoder = self._spec(T5Spec, heads, n_heads=self.heads, **values, bidirectional=False)
        own = self.model_type == "umt5"
        if self.longest is not None:
            self.note("t5-no-end", f"{top.first(LENGTHS)} = {self.longest:,} is the length of training and ends "
                      "nothing: the last bucket holds every longer distance.", "Nothing to do.",
                      top.first(LENGTHS))  # fmt: skip
            self.longest = None
        self.note("t5-self-attention", f"{encoder.relative_attention_num_buckets} buckets for distances up to "
                  f"{encoder.relative_attention_max_distance}, in self-attention only; cross-attention has no "
                  "position. "
                  f"{'Each layer has its own table' if own else 'The first layer of a stack holds the table of all'}. "
                  "Scores are not divided by √head_dim.", "Add no bias in cross-attention.", names[0])  # fmt: skip
        return self._both(encoder, decoder, head_dim)

    def none_layers(self) -> list[LayerEncoding]:
        """No positions at all."""
        self._leftovers("this model has no positional encoding")
        types, head_dim = self._types(), self.head_dim()
        return self._layers(NoneSpec(), types or [FULL], head_dim)
