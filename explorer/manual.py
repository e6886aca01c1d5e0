"""The diagnosis manual: what one sees, what causes it, the picture that proves it, and what mends it.

Drawn from faults that people reported in public. A report is repository#number; where two repositories share the name,
the owner stands before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True, eq=False)
class Entry:
    """One symptom. `page` and `query` open the view that proves the cause, `look` says what to see there."""

    symptom: str
    cause: str
    look: str
    page: str
    query: dict[str, str] = field(default_factory=dict)
    fix: str = ""
    reports: tuple[str, ...] = ()
    also: str = ""  # further words by which one may look for it


ROPE = {"scheme": "rope", "d_head": "128"}
LLAMA3 = ROPE | {"base": "500000"}
LLAMA31 = LLAMA3 | {"scaling": "llama3", "factor": "8"}
GPT_OSS = {"scheme": "rope", "base": "150000", "scaling": "yarn", "factor": "32",
           "original_max_position_embeddings": "4096"}  # fmt: skip


def _against(first: dict[str, str], second: dict[str, str]) -> dict[str, str]:
    return first | {f"b_{name}": value for name, value in second.items()}


MANUAL: tuple[Entry, ...] = (
    # ------------------------------------------------------------ length
    Entry(
        "Perplexity explodes past N tokens; the text turns to word salad there",
        "Past the training length the slow pairs reach angles that the model never saw. Nothing is broken.",
        "The pairs that pass the end of their trained arc, and from which position.",
        "extension", ROPE | {"trained_length": "4096", "target_length": "16384"},
        "Stay within the trained length, or scale the frequencies (YaRN, llama3) and train a little at the new length.",
        ("h2ogpt#910",),
        also="gibberish garbage loop repeats nonsense long context needle retrieval",
    ),
    Entry(
        "Fine to the original length, garbage past it, although config.json names a scaling",
        "The loader dropped the scaling: the port runs with the plain base.",
        "The frequencies with and without the scaling: the fast pairs agree, the slow ones are 8 times too fast.",
        "porting", LLAMA31 | {"part": "compare", "mistake": "scaling"},
        "Compare the port's inv_freq with the list on this page; a port must refuse a scaling that it does not know.",
        ("llama.cpp#8676", "llama3#299", "llama3#319"),
        also="gibberish garbage long context",
    ),
    Entry(
        "Garbage exactly from position 4,096 (or another power of two) on, without an error",
        "The table of cos and sin has that many rows, and a kernel reads past its end.",
        "cos is defined at every position: nothing in the formula ends there.",
        "encodings", ROPE | {"seq_len": "4096", "position": "4000"},
        "Build the table as long as the longest context, or compute cos and sin from the positions.",
        ("pegainfer#220",),
        also="crash nan out of bounds gibberish",
    ),
    Entry(
        "LongRoPE: right on short texts, wrong after the generation crosses 4,096",
        "The long list of divisors takes over at the crossing, and the cache still holds keys turned by the short one.",
        "The score error of cached keys at the crossing.",
        "extension", ROPE | {"scaling": "longrope", "factor": "32", "original_max_position_embeddings": "4096",
                             "trained_length": "4096", "target_length": "131072"},
        "Recompute the cache at the crossing, or choose the list once for the whole request.",
        ("unsloth#1199", "transformers#33129"),
    ),
    Entry(
        "LongRoPE: short prompts are worse when the context size is set to 128k",
        "The list was chosen by the size of the context or cache, not by the length of the sequence.",
        "The same head at 512 positions under both lists: the compared scheme acts as the long list does.",
        "encodings", _against(ROPE | {"scaling": "longrope", "factor": "32",
                                      "original_max_position_embeddings": "4096"},
                              ROPE | {"scaling": "linear", "factor": "32"}),
        "Choose short or long by the sequence's length; both lists must be in the file.",
        ("llama.cpp#8995", "mlxcel#1358"),
    ),
    Entry(
        "A short prompt after a long one gives other logits than in a fresh process",
        "Dynamic NTK (or LongRoPE) kept the base of the longest sequence so far in a buffer.",
        "Wavelengths of dynamic NTK: they follow the number of positions shown, up and down.",
        "encodings", ROPE | {"scaling": "dynamic", "factor": "4", "original_max_position_embeddings": "1024",
                             "seq_len": "4096"},
        "Compute the frequencies from each call's length and keep nothing.",
        ("transformers#27227",),
    ),
    Entry(
        "Dynamic NTK: the answer with a KV cache differs from the one without",
        "Keys cached while the sequence was short keep the base of that length; new queries use another.",
        "The score error of cached keys against a full recompute.",
        "extension", ROPE | {"scaling": "dynamic", "factor": "4", "original_max_position_embeddings": "4096",
                             "trained_length": "4096", "target_length": "16384"},
        "Cache keys before the rotation, or fix the length per request.",
        ("transformers#25104",),
    ),
    Entry(
        "The same dynamic-NTK config gives other logits in vLLM than in transformers",
        "They define it differently: transformers by each sequence's length, vLLM (until April 2026) one "
        "base for all lengths, later that of the served length.",
        "The two readings side by side.",
        "encodings", _against(
            ROPE | {"scaling": "dynamic", "factor": "2", "original_max_position_embeddings": "2048"},
            ROPE | {"scaling": "dynamic", "factor": "2", "original_max_position_embeddings": "2048",
                    "dynamic_length": "maximum"}),
        "Serve with a fixed base (scaling = ntk) in both, or accept the difference; the exports below say which.",
        ("vllm#3488", "vllm#41236"),
    ),
    Entry(
        "The extended model thinks its context is the old one, or twice the new one",
        "max_position_embeddings and original_max_position_embeddings were taken for the same field, or a factor does "
        "not match their ratio.",
        "How far the factor really reaches from the trained length.",
        "extension", LLAMA31 | {"trained_length": "8192", "target_length": "65536"},
        "original_max_position_embeddings is the trained length; the explicit factor wins over the ratio.",
        ("Megatron-LM#1418", "transformers#38224"),
    ),
    # ------------------------------------------------------------ frequencies
    Entry(
        "Agrees at position 0, drifts with the distance",
        "The frequencies differ: base, exponent, or a scaling. At position 0 every angle is 0, so nothing shows.",
        "The first pair and the first position at which two specs part.",
        "porting", LLAMA3 | {"part": "compare", "mistake": "base"},
        "Compare inv_freq number by number; then base, rotary dim in the exponent, scaling, in this order.",
        ("MarinFold#184", "vllm#42624"),
        also="wrong logits port mismatch",
    ),
    Entry(
        "Everything is a little wrong from the first tokens on; the model was trained with another base",
        "The config has no rope_theta where the loader looks, and the loader takes 10,000 without a word.",
        "Base 10,000 against 500,000: only the fastest pair agrees.",
        "encodings", _against(ROPE, LLAMA3),
        "Read the nested rope_theta first, then the outer one, then the architecture's documented default, and say so.",
        ("vllm#42624", "DeepSpeed#8345", "airllm#369"),
        also="wrong logits gibberish port",
    ),
    Entry(
        "The old config.json works and the converted one does not (or the other way round)",
        "rope_scaling with type, rope_scaling with rope_type and rope_parameters are three spellings; the loader knows "
        "some of them.",
        "Paste both, one after the other: equal lists are equal models.",
        "config", {"target": "transformers_legacy"},
        "Write both type and rope_type for old readers; the exports below give either spelling.",
        ("llama3#299", "llama3#319", "MarinFold#184"),
    ),
    Entry(
        "Partial rotation: the fast pairs agree, the slow ones are off",
        "The exponent was divided by the head dim instead of the rotary dim.",
        "A quarter of the head by both divisors, pair by pair.",
        "porting", ROPE | {"rotary_fraction": "0.25", "part": "compare", "mistake": "exponent"},
        "Partial rotation divides 2i by the rotary dim; only p-RoPE (proportional) divides by the head dim.",
        ("pie#602",),
    ),
    Entry(
        "p-RoPE (Gemma 4's global layers): pairs and zeros are in the wrong places",
        "It was built as partial rotation: its pairs are (i, i + head_dim/2), the exponent runs over the head dim, and "
        "the slow pairs are zeros at the end.",
        "The wiring of the pairs.",
        "porting", ROPE | {"d_head": "512", "base": "1000000", "scaling": "proportional", "rotary_fraction": "0.25",
                           "part": "layout"},
        "Make head_dim/2 frequencies, zeros included, and rotate the whole head.",
        ("coreai-models#66", "Megatron-Bridge#4195"),
    ),
    Entry(
        "YaRN: errors only in the pairs in the middle",
        "The ends of the ramp were rounded where the config says truncate = false (gpt-oss), or the ramp runs over "
        "turns instead of indices.",
        "Both ramps: only the pairs in the middle differ.",
        "porting", GPT_OSS | {"truncate": "false", "part": "compare", "mistake": "truncate"},
        "Honour truncate, also where it is nested under a layer type.",
        ("vllm#28244", "transformers#42189", "transformers#45887"),
    ),
    Entry(
        "YaRN: the fast pairs are divided and the slow ones kept",
        "beta_fast and beta_slow are swapped.",
        "Which pairs are kept: beta_fast = 32 turns is the fast end.",
        "extension", ROPE | {"scaling": "yarn", "factor": "4", "original_max_position_embeddings": "8192",
                             "trained_length": "8192", "target_length": "32768"},
        "beta_fast must be the larger one; refuse the config otherwise.",
        ("torchtitan#3787",),
    ),
    # ------------------------------------------------------------ layers
    Entry(
        "Every 4th layer diverges, the others agree",
        "no_rope_layers was ignored, so that every layer rotates. Read the wrong way round (1 means that the layer has "
        "RoPE) it breaks all layers.",
        "Layer 3 of four has no rotation, layers 0 to 2 have.",
        "encodings", {"scheme": "hybrid", "layers": "rope*3, none", "layer": "3"},
        "Rotate where the list says 1; in SmolLM3 layers 3, 7, … 35 have no position.",
        ("transformers#43756", "executorch#22043"),
    ),
    Entry(
        "Gemma 3: the sliding-window layers diverge, the global ones agree (or the other way round)",
        "Global layers use base 1,000,000 with linear factor 8, local ones base 10,000 unscaled; one set was used for "
        "all.",
        "Both sets: no pair agrees; the fastest is 8 times slower in the global layers.",
        "encodings", _against(
            {"scheme": "rope", "d_head": "256", "base": "1000000", "scaling": "linear", "factor": "8"},
            {"scheme": "rope", "d_head": "256"}),
        "Take rope_local_base_freq (or the nested sliding_attention entry) for the sliding layers, without the factor.",
        ("mlx-vlm#1709", "ollama#13452"),
    ),
    # ------------------------------------------------------------ scores
    Entry(
        "Scores are too flat or too sharp by the same factor everywhere",
        "An attention factor is missing or applied twice: YaRN's 0.1·ln(factor) + 1, on cos and sin of q and of k.",
        "The same frequencies with and without the factor: scores differ by its square at every distance.",
        "porting", GPT_OSS | {"part": "compare", "mistake": "attention_factor"},
        "Multiply cos and sin once; gpt-oss has 1.346574. llama.cpp multiplies its own factor in: see the exports.",
        ("llama.cpp#18006",),
        also="wrong logits temperature",
    ),
    Entry(
        "DeepSeek: exact at position 0, off by up to 90% later",
        "The softmax scale lacks g(mscale_all_dim)². With one key the softmax is 1 whatever the scale, so position 0 "
        "cannot show it.",
        "Scores with and without it: the same share is missing at every distance.",
        "porting", {"scheme": "rope", "layout": "interleaved", "scaling": "yarn", "factor": "40", "mscale": "0.707",
                    "mscale_all_dim": "0.707", "original_max_position_embeddings": "4096", "part": "compare",
                    "mistake": "softmax_scale"},
        "Apply both: the ratio of the two on cos and sin, and g² on all scores (V2: 1.589626, V3: 1.873854).",
        ("transformers#47435", "mobius#548"),
    ),
    # ------------------------------------------------------------ layout
    Entry(
        "Norms are right, every rotated vector is wrong from position 1 on",
        "Half-split rotation on interleaved weights, or the reverse.",
        "The wiring of both, and the permutation that turns one into the other.",
        "porting", ROPE | {"part": "layout"},
        "Permute the rows of W_q and W_k once when converting, or rotate in the weights' own layout; never both.",
        ("nanochat#264", "transformers#34741", "transformers#40462", "transformers#39687", "hipfire#241",
         "llama.cpp#6033"),
        also="wrong logits gibberish port convert gguf ggml permute half-split interleaved",
    ),
    Entry(
        "Half of the features are off, rotated vectors change their norm, scores change when all positions shift",
        "The table of cos and sin repeats its columns in one layout (cat) and the rotation pairs features in the other "
        "(repeat_interleave), so the two members of a pair turn by different angles.",
        "Which two features make a pair; both turn by the same angle.",
        "porting", ROPE | {"layout": "interleaved", "part": "layout"},
        "(a, b) becomes (a·cos - b·sin, b·cos + a·sin) with one angle; check one pair at position 1 by hand.",
        ("vjepa2#15", "ERNIE-Image#6"),
    ),
    Entry(
        "The part of the head that should not rotate changes too",
        "The unrotated tail was multiplied by a padded cos (or cast back and forth) instead of being copied.",
        "A quarter of the head is wired, the rest passes straight.",
        "porting", ROPE | {"rotary_fraction": "0.25", "part": "layout"},
        "Split, rotate, concatenate: the tail must be bit-identical.",
        ("transformers#48652", "mlx-lm#1698"),
    ),
    # ------------------------------------------------------------ precision
    Entry(
        "Fine in fp32, wrong in bf16; the longer the text, the worse",
        "Positions or frequencies are held in bf16: from 257 on, neighbouring positions become the same number.",
        "The first position that collides, and the phase error over pairs.",
        "porting", LLAMA3 | {"part": "precision", "rounded": "positions", "checked_position": "257"},
        "Keep positions as integers and frequencies in float32 or better; cast cos and sin, nothing before them.",
        ("candle#3520", "mlx-lm#1076", "modalities#462", "transformers#29496", "Megatron-LM#535"),
    ),
    Entry(
        "Wrong after model.half() or .to(bfloat16)",
        "inv_freq is a buffer and was cast with the weights; cos and sin are computed from the rounded numbers.",
        "The phase error of frequencies held in fp16, at position 1,857.",
        "porting", ROPE | {"part": "precision", "number_format": "float16", "rounded": "frequencies",
                           "checked_position": "1857"},
        "Hold the frequencies outside the buffers, or rebuild them in float32 after the cast.",
        ("transformers#25681", "gpt-neox#1003"),
        also="wrong logits fp16",
    ),
    Entry(
        "Results differ inside and outside autocast",
        "The product of positions and frequencies ran in the autocast type.",
        "What bf16 does to the product.",
        "porting", ROPE | {"part": "precision", "rounded": "product"},
        "Disable autocast around the phases, or compute them in float64.",
        ("transformers#29285",),
    ),
    Entry(
        "Garbage after loading through the meta device, to_empty() or low_cpu_mem_usage",
        "inv_freq is in no checkpoint; to_empty() gave it uninitialised memory and nobody rebuilt it.",
        "Paste the model's inv_freq: it fits no spectrum.",
        "porting", ROPE | {"part": "fingerprint"},
        "Recompute the frequencies after the weights are in place.",
        ("transformers#45902",),
    ),
    Entry(
        "Loading an old checkpoint complains of rotary_emb.inv_freq, or a new one lacks it",
        "One version saves the frequencies in state_dict, the other does not.",
        "The numbers that the config alone determines; no checkpoint needs them.",
        "config", {"digits": "full"},
        "Drop the key when loading; make the buffer non-persistent.",
        ("neuronx-nemo-megatron#21",),
    ),
    Entry(
        "A kernel is right on short texts and off at position 100,000",
        "The phase is a float32 product, which at 131,071 keeps two digits after the point.",
        "The phase error of float32 at position 131,071.",
        "porting", LLAMA31 | {"part": "precision", "number_format": "float32", "rounded": "product",
                              "checked_position": "131071"},
        "Take the phase in float64 and reduce it mod 2π before the cast.",
        ("kekzl/imp#1325",),
    ),
    Entry(
        "Chinese text is fine, code breaks (or the other way round)",
        "No positional fault knows a language. Texts differ in tokens a page and in what they need: code copies exact "
        "neighbours over a distance and is often longer, so it meets rounded positions or a length limit first.",
        "The first colliding position of a number format; then compare both texts at equal numbers of tokens.",
        "porting", LLAMA3 | {"part": "precision", "number_format": "float16", "rounded": "positions"},
        "Count the tokens at which it breaks: near 257 or 2,049 it is bf16 or fp16 positions, near the trained length "
        "a missing scaling, anywhere else look at the tokenizer.",
        ("candle#3520", "transformers#29496"),
    ),
    Entry(
        "float64 error on Apple's GPU",
        "The tables were made as float64 on mps, which has none.",
        "float32 phases are good enough to some length only: see which.",
        "porting", ROPE | {"part": "precision", "number_format": "float32"},
        "Make the tables on the CPU in float64 and move cos and sin.",
        ("transformers#46174",),
    ),
    Entry(
        "torch.compile breaks the graph in the rotary module, or recompiles for every length",
        "forward() writes a buffer or branches on the length.",
        "Time of tables that are kept and tables that are built.",
        "timing", {"scheme": "rope", "b_scheme": "none"},
        "Make forward() a pure function of positions; choose by length with torch.where.",
        ("foundation-model-stack#64", "vllm#33800"),
    ),
    # ------------------------------------------------------------ positions
    Entry(
        "The first generated token is right, everything after is garbage",
        "The decoding step starts its positions at 0 again (or a layer counts the new token twice), while the cached "
        "keys have theirs from the prompt.",
        "Queries one position late: no pair differs in frequency, and every score is wrong.",
        "porting", ROPE | {"part": "compare", "mistake": "q_late"},
        "Positions of a step are the cache's length onwards; compare prefill and decode of the same text.",
        ("mlx-vlm#1983", "flash-linear-attention#766"),
        also="wrong logits gibberish loop repeats generation",
    ),
    Entry(
        "In a left-padded batch the shorter prompts come out wrong",
        "All rows share one list of positions. RoPE and ALiBi see only differences, so a constant shift is harmless; "
        "learned tables, a mask that lets padding in, or decode steps with another offset are not.",
        "Shift every position by 1,000: with RoPE the maps stay.",
        "attention", {"scheme": "rope", "shift": "1000"},
        "position_ids = cumsum(attention_mask) - 1, in decoding too.",
        ("unsloth#3699", "vllm#945", "llm-foundry#186"),
    ),
    Entry(
        "RoBERTa or OPT: off by two, or an index error at 513 tokens",
        "Their tables start at row 2: 514 rows hold 512 positions.",
        "The table with offset 2 ends two positions early.",
        "encodings", {"scheme": "learned", "max_position_embeddings": "514", "offset": "2", "seq_len": "1024"},
        "Add the offset (padding_idx + 1) to the position; the longest text is rows minus offset.",
        ("fairseq#1187", "transformers#1363"),
    ),
    # ------------------------------------------------------------ biases and absolute encodings
    Entry(
        "An ALiBi port with 12 (or 40, 71, 112) heads differs",
        "The slopes of a number of heads that is no power of two were interpolated as 2^(-8i/n), or i counts from 0.",
        "12 heads: eight slopes of the 8-head list, then every other one of the 16-head list.",
        "encodings", {"scheme": "alibi", "n_heads": "12"},
        "Take the lower power of two's list, then every other slope of the next one's.",
        ("mlx#3071", "aprender#2143"),
    ),
    Entry(
        "ALiBi slopes go down and then up again: is the model broken?",
        "No: with 40 heads the last eight start again, steeper. So the authors' recipe has it.",
        "The slopes of 40 heads.",
        "encodings", {"scheme": "alibi", "n_heads": "40", "head": "39"},
        "Nothing to mend.",
        ("Baichuan2#225",),
    ),
    Entry(
        "ALiBi: far keys get more weight than near ones, or the future leaks in",
        "The bias has the wrong sign, or it replaced the causal mask.",
        "The bias is at most 0 everywhere and forbids keys after the query.",
        "decay", {"scheme": "alibi"},
        "Add -slope·distance and keep the mask.",
        ("attention-gym#86", "transformers#30123"),
    ),
    Entry(
        "A sinusoidal port is close and never equal",
        "The exponent is 2i/d; i/d (a slip of / and //), or i/(d/2 - 1) as in tensor2tensor, give another spectrum.",
        "Both exponents side by side.",
        "encodings", _against({"scheme": "sinusoidal"}, {"scheme": "sinusoidal", "endpoint": "true"}),
        "Compare the second frequency: base^(-2/d). Sines and cosines alternate in the paper, follow in tensor2tensor.",
        ("LoFTR#41", "BERT-pytorch#78", "pyaptamer#526"),
    ),
    Entry(
        "T5: the encoder agrees, the decoder's cross attention does not",
        "The relative bias was added in cross attention, where T5 has none.",
        "Attention without any position, as cross attention has it.",
        "decay", {"scheme": "none"},
        "Add the bias in self-attention only, computed once and shared by the layers.",
        ("transformers#8518",),
    ),
)  # fmt: skip


def found(text: str) -> list[Entry]:
    """The entries in which every word of a text begins a word; if there are none, those that hold the most of them."""
    words = [re.escape(w) for w in _plain(text).split()]
    counts = [sum(bool(re.search(rf"(?<![a-z0-9]){w}", _words(e))) for w in words) for e in MANUAL]
    most = max(counts)
    return list(MANUAL) if not words else [e for e, n in zip(MANUAL, counts, strict=True) if n == most > 0]


def _plain(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d)", "", text.casefold())


@cache
def _words(entry: Entry) -> str:
    texts = (entry.symptom, entry.cause, entry.look, entry.fix, entry.also, *entry.reports, *entry.query.values())
    return _plain(" ".join(texts))
