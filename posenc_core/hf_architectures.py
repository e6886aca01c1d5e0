"""What a config.json leaves unsaid, by `model_type`: layout, defaults, layer patterns.

The facts are those of the configuration and modelling classes of Hugging Face transformers 5.24; for architectures that
transformers does not hold (baichuan, chatglm, internlm2, minicpm), those of the model's own public code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from posenc_core.hf_fields import Sizes

Scheme = Literal["rope", "alibi", "learned", "sinusoidal", "none", "whisper", "t5"]


@dataclass(frozen=True)
class Architecture:
    """One model_type. Sizes are the defaults of its configuration class, which config.json leaves out when equal.

    base: theta; local_base: that of sliding layers, which are then unscaled where `scaled` is "full". fraction: of the
    head that rotates; reads_fraction: whether the class reads `partial_rotary_factor` (None: not in transformers).
    pattern: (period, most layers, the period's last layer), or with `first` its first layer. nope: which layers have
    no position at all (interval: every 4th; beside sliding: full ones while others slide). window: tokens a sliding
    layer sees; windows: which layers slide (late: from max_window_layers on, even: every other one before it, switch:
    all; these three where use_sliding_window is true). chunk: tokens of a chunk. rope: the rope_parameters of a config
    that has none; a base inside it hides rope_theta. bases, local_bases, fractions: the fields beside the rope dict
    that the class reads, for sliding layers local_bases unless None; bases None: not in transformers, nothing to
    compare with. period: the field that it reads the pattern's period from. bidirectional: windows are halved, to each
    side, where use_bidirectional_attention says so. mrope: default sections. offset: of a learned or sinusoidal table,
    "pad" is pad_token_id + 1; extra_rows: of a learned table beside max_position_embeddings. also: other defaults.
    """

    sizes: Sizes = Sizes()
    scheme: Scheme = "rope"
    layout: Literal["half", "interleaved"] = "half"
    base: float | None = None
    local_base: float | None = None
    scaled: Literal["all", "full"] = "all"
    bases: tuple[str, ...] | None = ("rope_theta",)
    local_bases: tuple[str, ...] | None = None
    fractions: tuple[str, ...] = ("partial_rotary_factor",)
    fraction: float = 1.0
    reads_fraction: bool | None = False
    rotary_dim: int | None = None
    pattern: tuple[int, str, str] | None = None
    first: bool = False
    period: str = ""
    bidirectional: bool = False
    nope: Literal["", "full", "beside sliding", "interval"] = ""
    windows: Literal["none", "all", "late", "even", "switch", "pattern"] = "none"
    window: int | None = None
    chunk: int | None = None
    rope: Mapping[str, Any] | None = None
    global_head_dim: int | None = None
    mrope: tuple[int, ...] = ()
    mrope_interleaved: bool = False
    offset: int | Literal["pad"] = 0
    extra_rows: int = 0
    encoder_decoder: bool = False
    endpoint: bool = False
    note: str = ""
    also: Mapping[str, Any] = field(default_factory=dict)


def _rope(
    hidden: int, heads: int, kv: int, head_dim: int | None, longest: int, base: float, **rest: Any
) -> Architecture:
    return Architecture(Sizes(hidden, heads, kv, head_dim, longest), base=base, **rest)


def _mla(hidden: int, heads: int, nope: int, rotated: int, longest: int, base: float, **rest: Any) -> Architecture:
    sizes = Sizes(hidden, heads, heads, None, longest, nope, rotated)
    return Architecture(sizes, base=base, reads_fraction=None, **({"layout": "interleaved"} | rest))


def _learned(hidden: int, heads: int, longest: int | None, head_dim: int | None = None, **rest: Any) -> Architecture:
    return Architecture(Sizes(hidden, heads, heads, head_dim, longest), **({"scheme": "learned"} | rest))


_MISTRAL3: dict[str, Any] = {
    "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
    "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "rope_theta": 1e6,
}  # fmt: skip
_MISTRAL4: dict[str, Any] = _MISTRAL3 | {
    "factor": 128.0, "original_max_position_embeddings": 8192, "rope_theta": 1e4,
}  # fmt: skip
_GPT_OSS: Mapping[str, Any] = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
_GEMMA4: Mapping[str, Any] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


def _llama3(base: float, factor: float) -> Mapping[str, Any]:
    return {"rope_type": "llama3", "rope_theta": base, "factor": factor, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip


_SLIDING, _FULL, _LINEAR = "sliding_attention", "full_attention", "linear_attention"
_INTERLEAVED: dict[str, Any] = {"layout": "interleaved"}
_LOCAL4: dict[str, Any] = {"pattern": (4, _SLIDING, _FULL), "windows": "pattern"}
_LOCAL6: dict[str, Any] = {"pattern": (6, _SLIDING, _FULL), "windows": "pattern"}
_LOCAL2: dict[str, Any] = {"pattern": (2, _SLIDING, _FULL), "windows": "pattern"}
_INDEXED: dict[str, Any] = {"pattern": (1, "indexed_attention", "indexed_attention")}
_PARTIAL: dict[str, Any] = {"reads_fraction": True}
_BART: dict[str, Any] = {"offset": 2, "extra_rows": 2}
_ENCODER_DECODER: dict[str, Any] = {"encoder_decoder": True}
_OWN_CODE: dict[str, Any] = {"bases": None, "reads_fraction": None}
_NEOX: dict[str, Any] = {"bases": ("rotary_emb_base",), "fractions": ("rotary_pct",), **_PARTIAL}
_GEMMA: dict[str, Any] = {"scaled": "full", "local_base": 1e4, "local_bases": ("rope_local_base_freq",)}
_MODERN: dict[str, Any] = {
    "windows": "pattern", "pattern": (3, _SLIDING, _FULL), "first": True, "period": "global_attn_every_n_layers",
    "window": 128, "local_base": 1e4, "bases": ("global_rope_theta",), "local_bases": ("local_rope_theta",),
}  # fmt: skip
_PERIOD: dict[str, Any] = {"period": "sliding_window_pattern"}
_INTERVAL: dict[str, Any] = {"pattern": (4, _LINEAR, _FULL), "period": "full_attention_interval", **_PARTIAL}
_LATE: dict[str, Any] = {"windows": "late", "window": 4096, "also": {"max_window_layers": 28}}
_LATE_VL: dict[str, Any] = _LATE | {"also": {"max_window_layers": 80}}

ARCHITECTURES: dict[str, Architecture] = {
    # ---- RoPE, half-split
    "llama": _rope(4096, 32, 32, None, 2048, 1e4),
    "mistral": _rope(4096, 32, 8, None, 131072, 1e4, windows="all", window=4096),
    "mixtral": _rope(4096, 32, 8, None, 131072, 1e6, windows="all"),
    "ministral": _rope(4096, 32, 8, None, 131072, 1e4, windows="all", window=4096),
    "ministral3": _rope(4096, 32, 8, 128, 262144, 1e4, windows="all", rope=_MISTRAL3),
    "qwen2": _rope(4096, 32, 32, None, 32768, 1e4, **_LATE),
    "qwen2_moe": _rope(2048, 16, 16, None, 32768, 1e4, **_LATE | {"windows": "even"}),
    "qwen3": _rope(4096, 32, 32, 128, 32768, 1e4, **_LATE),
    "qwen3_moe": _rope(2048, 32, 4, None, 32768, 1e4, windows="switch", window=4096),
    "qwen3_next": _rope(2048, 16, 2, 256, 32768, 1e4, fraction=0.25, **_INTERVAL),
    "qwen3_5_text": _rope(4096, 16, 4, 256, 32768, 1e4, fraction=0.25, mrope=(11, 11, 10), mrope_interleaved=True,
                          **_INTERVAL),
    "qwen3_5_moe_text": _rope(2048, 16, 2, 256, 32768, 1e4, fraction=0.25, mrope=(11, 11, 10), mrope_interleaved=True,
                              **_INTERVAL),
    "qwen2_vl_text": _rope(8192, 64, 8, None, 32768, 1e6, **_LATE_VL),
    "qwen2_5_vl_text": _rope(8192, 64, 8, None, 32768, 1e6, **_LATE_VL),
    "qwen2_5_omni_text": _rope(3584, 28, 4, None, 32768, 1e6, **_LATE | {"window": 32768}),
    "qwen3_vl_text": _rope(4096, 32, 32, 128, 128000, 5e5, mrope=(24, 20, 20), mrope_interleaved=True),
    "qwen3_vl_moe_text": _rope(2048, 16, 16, 128, 128000, 5e5, mrope=(24, 20, 20), mrope_interleaved=True),
    "gemma": _rope(3072, 16, 16, 256, 8192, 1e4),
    "gemma2": _rope(2304, 8, 4, 256, 8192, 1e4, window=4096, **_LOCAL2),
    "gemma3_text": _rope(2304, 8, 4, 256, 131072, 1e6, window=4096, bidirectional=True, **_GEMMA, **_LOCAL6, **_PERIOD),
    "gemma3n_text": _rope(2048, 8, 2, 256, 32768, 1e6, window=512, windows="pattern", pattern=(5, _SLIDING, _FULL),
                          **_GEMMA),
    "gemma4_text": _rope(2304, 8, 4, 256, 131072, 1e6, window=512, rope=_GEMMA4, global_head_dim=512, bases=(),
                         reads_fraction=None, bidirectional=True, **_GEMMA | {"local_bases": ()}, **_LOCAL6),
    "vaultgemma": _rope(2304, 8, 4, 256, 8192, 1e4, window=4096, **_LOCAL2),
    "phi": _rope(2048, 32, 32, None, 2048, 1e4, fraction=0.5, **_PARTIAL),
    "phi3": _rope(3072, 32, 32, None, 4096, 1e4, windows="all",
                  also={"original_max_position_embeddings": 4096}, **_PARTIAL),
    "phi4_multimodal": _rope(3072, 32, 8, None, 131072, 1e4, windows="all",
                             also={"original_max_position_embeddings": 4096}, **_PARTIAL),
    "phimoe": _rope(4096, 32, 8, None, 131072, 1e6, windows="all"),
    "stablelm": _rope(2560, 32, 32, None, 4096, 1e4, fraction=0.25, **_PARTIAL),
    "gpt_neox": _rope(6144, 64, 64, None, 2048, 1e4, fraction=0.25, **_NEOX),
    "gpt_neox_japanese": _rope(2560, 32, 32, None, 2048, 1e4, **_NEOX),
    "falcon": _rope(4544, 71, 71, None, 2048, 1e4),
    "olmo": _rope(4096, 32, 32, None, 2048, 1e4),
    "olmo2": _rope(4096, 32, 32, None, 2048, 1e4),
    "olmo3": _rope(4096, 32, 32, None, 2048, 5e5, scaled="full", local_bases=(), window=4096, **_LOCAL4),
    "olmoe": _rope(2048, 16, 16, None, 4096, 1e4),
    "flex_olmo": _rope(4096, 32, 32, None, 4096, 5e5),
    "starcoder2": _rope(3072, 24, 2, None, 4096, 1e4, windows="all"),
    "granite": _rope(4096, 32, 32, None, 2048, 1e4),
    "granitemoe": _rope(4096, 32, 32, None, 2048, 1e4),
    "granitemoeshared": _rope(4096, 32, 32, None, 2048, 1e4),
    "granitemoehybrid": _rope(4096, 32, 32, None, 2048, 1e4, pattern=(1, _LINEAR, _LINEAR)),
    "internlm2": _rope(4096, 32, 32, None, 2048, 1e4, **_OWN_CODE),
    "internlm3": _rope(4096, 32, 2, 128, 32768, 1e4),
    "minicpm": _rope(4096, 32, 32, None, 2048, 1e4, **_OWN_CODE),
    "baichuan": _rope(4096, 32, 32, None, 4096, 1e4, **_OWN_CODE),
    "dbrx": _rope(2048, 16, 1, None, 2048, 1e4),
    "persimmon": _rope(4096, 64, 64, None, 16384, 1e4, fraction=0.5, **_PARTIAL),
    "nemotron": _rope(6144, 48, 48, None, 4096, 1e4, fraction=0.5, **_PARTIAL),
    "arcee": _rope(2560, 32, 32, None, 4096, 1e4),
    "apertus": _rope(4096, 32, 32, None, 65536, 1.2e7, rope=_llama3(1.2e7, 8.0)),
    "cwm": _rope(6144, 48, 8, 128, 131072, 1e6, rope=_llama3(1e6, 16.0), window=8192, windows="pattern",
                 pattern=(4, _SLIDING, _FULL), first=True),
    "seed_oss": _rope(4096, 80, 8, 128, 524288, 1e4),
    "dots1": _rope(4608, 32, 32, None, 2048, 1e4,
                   **_LATE | {"also": {"use_sliding_window": True, "max_window_layers": 62}}),
    "exaone": _rope(4096, 32, 8, None, 4096, 5e5),
    "exaone4": _rope(4096, 32, 32, None, 2048, 1e4, window=4096, nope="beside sliding", **_LOCAL4, **_PERIOD),
    "exaone_moe": _rope(4096, 32, 32, None, 2048, 1e4, window=4096, nope="beside sliding", **_LOCAL4, **_PERIOD),
    "afmoe": _rope(2048, 16, 16, 128, 16384, 1e4, window=1024, nope="full", period="global_attn_every_n_layers",
                   **_LOCAL4),
    "smollm3": _rope(2048, 16, 4, None, 32768, 2e6, nope="interval"),
    "minimax_m2": _rope(3072, 48, 8, 128, 196608, 5e6, **_PARTIAL),
    "gpt_oss": _rope(2880, 64, 8, 64, 131072, 1.5e5, rope=_GPT_OSS, window=128, **_LOCAL2),
    "hunyuan_v1_dense": _rope(4096, 32, 32, None, 2048, 1e4),
    "hunyuan_v1_moe": _rope(4096, 32, 32, None, 2048, 1e4),
    "jais2": _rope(3328, 26, 26, 128, 8192, 1e4),
    "bitnet": _rope(2560, 20, 5, None, 2048, 5e5),
    "nanochat": _rope(768, 6, 6, None, 2048, 1e4, note="turns by -p·w: the scores are the same"),
    "diffllama": _rope(2048, 32, 32, None, 2048, 1e4),
    "lfm2": _rope(2560, 32, 8, None, 128000, 1e6),
    "lfm2_moe": _rope(2048, 32, 8, None, 128000, 1e6),
    "mllama_text_model": _rope(4096, 32, 8, None, 131072, 5e5),
    "nomic_bert": _rope(768, 12, 12, None, 2048, 1e3),
    "modernbert": _rope(768, 12, 12, None, 8192, 1.6e5, note="window: half to each side", **_MODERN),
    "modernbert-decoder": _rope(768, 12, 12, None, 8192, 1.6e5, note="window: the nearer half, causal", **_MODERN),
    "eurobert": _rope(768, 12, 12, 64, 8192, 1e4),
    "glm4_moe": _rope(4096, 96, 8, None, 131072, 1e4, fraction=0.5, **_PARTIAL),
    "glm4v_moe_text": _rope(4096, 96, 8, None, 65536, 1e4, fraction=0.5, **_PARTIAL),
    # ---- RoPE, interleaved
    "cohere": _rope(8192, 64, 64, None, 8192, 5e5, **_INTERLEAVED),
    "cohere2": _rope(8192, 64, 64, None, 8192, 1e4, window=4096, nope="full", **_LOCAL4, **_PERIOD, **_INTERLEAVED),
    "glm": _rope(4096, 32, 2, 128, 131072, 1e4, fraction=0.5, **_PARTIAL, **_INTERLEAVED),
    "glm4": _rope(4096, 32, 2, 128, 131072, 1e4, fraction=0.5, **_PARTIAL, **_INTERLEAVED),
    "glm4v_text": _rope(4096, 32, 2, None, 32768, 1e4, **_PARTIAL, **_INTERLEAVED),
    "chatglm": _rope(4096, 32, 32, 128, 2048, 1e4, fraction=0.5, **_OWN_CODE, **_INTERLEAVED),
    "ernie4_5": _rope(1024, 16, 2, 128, 131072, 5e5, **_INTERLEAVED),
    "ernie4_5_moe": _rope(2560, 20, 4, None, 131072, 5e5, **_INTERLEAVED),
    "helium": _rope(2560, 20, 20, 128, 4096, 1e5, **_INTERLEAVED),
    "gptj": _rope(4096, 16, 16, None, 2048, 1e4, rotary_dim=64, **_OWN_CODE, **_INTERLEAVED),
    "codegen": _rope(4096, 16, 16, None, 2048, 1e4, rotary_dim=64, **_OWN_CODE, **_INTERLEAVED),
    "llama4_text": _rope(5120, 40, 8, 128, 131072, 5e5, nope="interval", chunk=8192, **_INTERLEAVED),
    # ---- RoPE on a part of the head of its own (MLA)
    "deepseek_v2": _mla(4096, 32, 128, 64, 2048, 1e4),
    "deepseek_v3": _mla(7168, 128, 128, 64, 4096, 1e4),
    "deepseek_v32": _mla(7168, 128, 128, 64, 163840, 1e4, **_INDEXED),
    "glm4_moe_lite": _mla(2048, 20, 192, 64, 202752, 1e4),
    "glm_moe_dsa": _mla(6144, 64, 192, 64, 202752, 1e4, **_INDEXED),
    "longcat_flash": _mla(6144, 64, 128, 64, 131072, 1e7),
    "youtu": _mla(2048, 16, 128, 64, 131072, 1e4),
    "mistral4": _mla(4096, 32, 64, 64, 1048576, 1e4, rope=_MISTRAL4),
    "minicpm3": _mla(2560, 40, 64, 32, 32768, 1e4, layout="half"),
    # ---- ALiBi
    "bloom": _learned(64, 8, None, scheme="alibi"),
    "mpt": _learned(2048, 16, 2048, scheme="alibi"),
    # ---- learned tables
    "gpt2": _learned(768, 12, 1024),
    "gpt_bigcode": _learned(768, 12, 1024),
    "gpt_neo": _learned(2048, 16, 2048, windows="pattern", window=256, pattern=(2, _FULL, _SLIDING)),
    "bert": _learned(768, 12, 512),
    "electra": _learned(256, 4, 512, also={"embedding_size": 128}),
    "albert": _learned(4096, 64, 512, also={"embedding_size": 128}),
    "distilbert": _learned(768, 12, 512),
    "roberta": _learned(768, 12, 512, offset="pad"),
    "xlm-roberta": _learned(768, 12, 512, offset="pad"),
    "camembert": _learned(768, 12, 512, offset="pad"),
    "esm": _learned(768, 12, 1026, offset="pad", base=1e4),
    "opt": _learned(768, 12, 2048, **_BART),
    "biogpt": _learned(1024, 16, 1024, **_BART),
    "bart": _learned(1024, 16, 1024, **_BART, **_ENCODER_DECODER),
    "mbart": _learned(1024, 16, 1024, **_BART, **_ENCODER_DECODER),
    # ---- sinusoidal
    "marian": _learned(1024, 16, 1024, scheme="sinusoidal", **_ENCODER_DECODER),
    "pegasus": _learned(1024, 16, 1024, scheme="sinusoidal", **_ENCODER_DECODER),
    "m2m_100": _learned(1024, 16, 1024, scheme="sinusoidal", offset="pad", endpoint=True, **_ENCODER_DECODER),
    "xglm": _learned(1024, 16, 2048, scheme="sinusoidal", offset=2, endpoint=True),
    "whisper": _learned(384, 6, None, scheme="whisper", encoder_decoder=True,
                        also={"max_source_positions": 1500, "max_target_positions": 448}),
    # ---- buckets, nothing
    "t5": _learned(512, 8, None, head_dim=64, scheme="t5"),
    "mt5": _learned(512, 6, None, head_dim=64, scheme="t5"),
    "umt5": _learned(512, 6, None, head_dim=64, scheme="t5"),
    "jamba": _learned(4096, 32, 262144, scheme="none", also={"attn_layer_period": 8, "attn_layer_offset": 4}),
}  # fmt: skip

# The same architecture under another model_type: a multimodal model's outer name, a checkpoint with its own code.
_ALIASES = {
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "llama4": "llama4_text",
    "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "glm4v": "glm4v_text", "glm4v_moe": "glm4v_moe_text", "mllama": "mllama_text_model", "kimi_k2": "deepseek_v3",
}  # fmt: skip
_OWN_CODES = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon", "stablelm_epoch": "stablelm"}
ARCHITECTURES |= {alias: replace(ARCHITECTURES[name]) for alias, name in _ALIASES.items()}
ARCHITECTURES |= {alias: replace(ARCHITECTURES[name], bases=None) for alias, name in _OWN_CODES.items()}

REFUSED = {
    "deberta": "disentangled relative attention", "deberta-v2": "disentangled relative attention",
    "nemotron_h": "layers named by hybrid_override_pattern", "kimi_linear": "MLA without rotation",
    "zamba2": "shared attention layers with RoPE by switch",
    "xlnet": "relative attention of Transformer-XL", "transfo-xl": "relative attention of Transformer-XL",
    "mpnet": "a learned table and relative buckets together", "ernie4_5_vl_moe": "sections in an order of its own",
    "ernie4_5_vl_moe_text": "sections in an order of its own", 
    "deepseek_v4": "compressed layers with RoPE of their own",
}  # fmt: skip
