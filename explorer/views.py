"""What each page adds to the schemes' parameters: validated and written to the URL by the same rules as a Spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from posenc_core.choosing import Need
from posenc_core.lab import DEFAULT_SCHEMES, MAX_SEED, Setting
from posenc_core.spec import Problem, Spec, param

SAMPLE = "The for statement runs over a list. The while stateme"  # short enough for readable token labels
MAX_TEXT = 10_000


class SharedView(Spec):
    """Set in the sidebar, the same on all pages."""

    seq_len: int = param(512, "positions shown", ge=8, le=4096, unit="positions",
                         ticks=(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096))  # fmt: skip


class EncodingsView(Spec):
    """The Encodings page."""

    position: int = param(24, "the position that all pictures mark", ge=0, le=4095, unit="position")
    distance: int = param(8, "from there to the second position", ge=0, le=4095, unit="positions")
    quantity: Literal["cos", "sin", "angle"] = param("cos", "what is drawn of a rotation: cos, sin or angle mod 2π")
    waves: int = param(4, "dimensions drawn as waves, spread over the spectrum", ge=1, le=12, unit="waves")
    head: int = param(0, "head, from 0", ge=0, le=255)
    layer: int = param(0, "layer of a hybrid, from 0", ge=0, le=127)


class DecayView(Spec):
    """The Decay page."""

    curve: Literal["score", "weight"] = param("score", "what a bias is drawn as: score, or attention weight exp(score)")
    draws: int = param(
        256, "random pairs of query and key", ge=8, le=512, unit="pairs", ticks=(8, 16, 32, 64, 128, 256, 512)
    )
    projection: Literal["identity", "random", "trained"] = param(
        "random", "what stands between position and score: nothing, random W_q and W_k, those of the toy model"
    )
    head: int = param(0, "head, from 0", ge=0, le=255)
    layer: int = param(0, "layer of a hybrid, from 0", ge=0, le=127)


class AttentionView(Spec):
    """The Attention page."""

    source: Literal["text", "held_out"] = param("text", "your text, or English that the model was not trained on")
    text: str = param(SAMPLE, "the text that the model reads, as UTF-8 bytes", max_length=MAX_TEXT)
    length: int = param(
        256, "tokens of held-out text; the toy models were trained at 128", ge=16, le=1024, unit="tokens",
        ticks=(16, 32, 64, 128, 256, 512, 1024), when=("source", ("held_out",)),
    )  # fmt: skip
    order: Literal["written", "shuffled"] = param("written", "order of the tokens")
    shift: int = param(0, "added to every position", ge=0, le=100_000, unit="positions",
                        ticks=(0, 1, 2, 8, 32, 128, 512, 1000, 10_000, 100_000))  # fmt: skip
    layer: int = param(1, "layer of the large map, from 0", ge=0, le=1)
    head: int = param(0, "head of the large map, from 0", ge=0, le=3)
    query: int = param(-1, "token whose guesses for the next one are shown; -1: the last", ge=-1, le=1023)


class TimingView(Spec):
    """The Timing page."""

    longest: int = param(1024, "longest sequence; shorter ones are measured too", ge=128, le=8192, unit="tokens",
                         ticks=(128, 256, 512, 1024, 2048, 4096, 8192))  # fmt: skip
    dtype: Literal["float32", "bfloat16", "float16"] = param("float32", "number format of the layer")
    device: Literal["cpu", "cuda", "mps"] = param("cpu", "where it runs")
    repetitions: int = param(15, "timed runs of each case", ge=3, le=200, ticks=(3, 5, 9, 15, 25, 51, 101, 200))
    direction: Literal["forward", "both"] = param(
        "forward", "what is timed: the forward pass, or forward and backward too, as in training"
    )


class ExtensionView(Spec):
    """The Extension page."""

    trained_length: int = param(
        8192, "positions that the model was trained at", ge=2, le=2**24, unit="positions",
        ticks=(128, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144),
    )  # fmt: skip
    target_length: int = param(
        131_072, "positions that it has to reach", ge=2, le=2**24, unit="positions",
        ticks=(1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576, 2_097_152,
               4_194_304, 8_388_608, 16_777_216),
    )  # fmt: skip
    method: Literal[
        "yarn", "none", "linear", "ntk", "ntk_by_parts", "dynamic", "llama3", "longrope", "proportional", "chosen",
        "second",
    ] = param(
        "yarn", "the method shown large; chosen: the sidebar's own scaling; second: the one to compare with"
    )  # fmt: skip
    current_length: int = param(
        32_768, "positions of the sequence so far, for what depends on it: dynamic NTK, LongRoPE, cached keys", ge=1,
        le=2**24, unit="positions",
        ticks=(1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 1_048_576),
    )  # fmt: skip
    differs: Literal["truncate", "ramp", "attention_on", "dynamic_length"] = param(
        "truncate", "where implementations differ: ends of the ramp, its axis, where the attention factor acts, "
        "dynamic NTK's length",
    )  # fmt: skip
    toy_times: Literal["2", "4", "8"] = param("4", "times the training length at which the toy model is run")


LLAMA31_CONFIG = """{
  "model_type": "llama",
  "hidden_size": 4096,
  "num_hidden_layers": 32,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "max_position_embeddings": 131072,
  "rope_theta": 500000.0,
  "rope_scaling": {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192
  }
}"""


class ConfigView(Spec):
    """The Config page."""

    exported: Literal["config", "scheme"] = param("config", "what is exported: this config, or the sidebar's scheme")
    config: str = param(LLAMA31_CONFIG, "a model's config.json, pasted", max_length=20_000)
    kind: int = param(0, "kind of layers whose numbers are listed, from 0", ge=0, le=255)
    digits: Literal["4", "8", "full"] = param("8", "digits of listed numbers; full: as many as read back the same")
    target: Literal["transformers", "transformers_legacy", "vllm", "llama_cpp", "pytorch", "npz"] = param(
        "transformers", "in whose words"
    )
    symptom: str = param("", "words that an entry of the manual has to hold", max_length=80)


class PortingView(Spec):
    """The Porting page."""

    part: Literal["layout", "precision", "fingerprint", "compare"] = param(
        "layout", "what is looked for: the pairs, rounding, who made these numbers, where two specs part"
    )
    kv_heads: int = param(8, "key heads of the projections that are permuted", ge=1, le=128, unit="heads",
                          ticks=(1, 2, 4, 8, 16, 32, 64))  # fmt: skip
    queries_per_key: int = param(4, "query heads that share a key head", ge=1, le=128, unit="heads",
                                 ticks=(1, 2, 4, 5, 6, 7, 8, 16, 32))  # fmt: skip
    number_format: Literal["bfloat16", "float16", "float32"] = param(
        "bfloat16", "number format that rounds", when=("part", ("precision",))
    )
    rounded: Literal["all", "positions", "frequencies", "product", "cos_sin"] = param(
        "all", "what is rounded: positions, frequencies, their product, all three (as after .half()), or cos and sin "
        "only", when=("part", ("precision",)),
    )  # fmt: skip
    checked_position: int = param(
        4096, "position at which errors are told", ge=0, le=2**24 - 1, unit="position",
        ticks=(0, 256, 257, 1024, 1857, 2049, 4096, 8192, 15_962, 32_768, 65_536, 131_071, 262_145, 1_000_000,
               10_000_000),
        when=("part", ("precision",)),
    )  # fmt: skip
    longest: int = param(
        131_072, "positions looked at", ge=16, le=2**24, unit="positions",
        ticks=(256, 1024, 4096, 16_384, 32_768, 65_536, 131_072, 262_144, 1_048_576, 4_194_304, 16_777_216),
        when=("part", ("precision", "compare")),
    )  # fmt: skip
    pasted: str = param(
        "", "inv_freq, rows of cos and sin, or x, position and rotated x; empty: the inv_freq of the sidebar's scheme "
        "in 4 digits", max_length=MAX_TEXT, when=("part", ("fingerprint",)),
    )  # fmt: skip
    numbers_are: Literal["auto", "inv_freq", "cos_sin", "rotated"] = param(
        "auto", "what the numbers are; auto: told from their shape and names", when=("part", ("fingerprint",))
    )
    mistake: Literal[
        "layout", "base", "q_late", "direction", "scaling", "attention_factor", "softmax_scale", "truncate", "exponent",
        "proportional",
    ] = param("layout", "fault of the port that is compared with", when=("part", ("compare",)))  # fmt: skip


class ClaimsView(Spec):
    """The Claims page."""

    claim: int = param(0, "number of the claim that is shown large; 0: none", ge=0, le=99)
    verdict: Literal["any", "holds", "holds with a condition", "does not hold", "not measured"] = param(
        "any", "only claims with this verdict"
    )
    source_kind: Literal["any", "paper", "article", "textbook", "folklore"] = param(
        "any", "only claims from this kind of source"
    )
    about: Literal["all", "chosen"] = param("all", "all claims, or those about the sidebar's schemes")
    words: str = param("", "words that a claim has to hold", max_length=80)


class ChoosingView(Need):
    """The Choosing page."""


class LabView(Setting):
    """The Extrapolation lab page: the lab's setting, which schemes and seeds, and what is looked at.

    Smaller models than the command line allows: a step of theirs is short, so that Stop is obeyed within a second.
    """

    train_length: int = param(64, Setting.param("train_length").meaning, ge=16, le=256, step=8, unit="positions",
                              ticks=(16, 32, 64, 128, 256))  # fmt: skip
    width: int = param(64, Setting.param("width").meaning, ge=16, le=128, step=8, unit="dimensions",
                       ticks=(32, 64, 128))  # fmt: skip
    schemes: str = param(
        DEFAULT_SCHEMES, "what is trained: schemes with parameters, such as rope(base=500000); + joins the layers of a "
        "hybrid, such as alibi+rope", max_length=400,
    )  # fmt: skip
    seeds: tuple[int, ...] = param((0, 1, 2), "every scheme is trained once with each", ge=0, le=MAX_SEED, max_length=8)
    metric: Literal["auto", "loss", "accuracy"] = param(
        "auto", "what is drawn by position; auto: loss for text, accuracy for the other tasks"
    )
    map_scheme: int = param(
        -1, "line of the big picture whose attention is shown, from 0; -1: the first with a rotation, else the first",
        ge=-1, le=31,
    )  # fmt: skip
    map_times: Literal["2", "4", "8", "16"] = param("4", "training lengths of the long example in the attention maps")
    layer: int = param(1, "layer of the large map, from 0", ge=0, le=1)
    head: int = param(0, "head of the large map, from 0", ge=0, le=3)

    def _cross_checks(self) -> Iterable[Problem]:
        legal = self.param("seeds").legal
        if bad := [n for n in self.seeds if not 0 <= n <= MAX_SEED]:
            yield Problem("seeds", bad[0], legal)
        if not self.seeds:
            yield Problem("seeds", "", legal, "none is given")


VIEWS: dict[str, type[Spec]] = {
    "": Spec,
    "encodings": EncodingsView,
    "decay": DecayView,
    "attention": AttentionView,
    "config": ConfigView,
    "extension": ExtensionView,
    "porting": PortingView,
    "timing": TimingView,
    "lab": LabView,
    "claims": ClaimsView,
    "choosing": ChoosingView,
}
