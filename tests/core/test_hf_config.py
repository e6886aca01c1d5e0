"""Reading config.json: against transformers' own numbers, and refusing what it does not know, by name."""

import copy
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reference, within

from explorer.words import plain
from posenc_core import SpecError, alibi_slopes, read_hf_config, rope_frequencies
from posenc_core.frequencies import attention_scales, pair_report, yarn_range
from posenc_core.hf_architectures import ARCHITECTURES
from posenc_core.hf_config import MAX_CHARACTERS, MAX_DEPTH, parse_config_text, positional_fields
from posenc_core.hf_fields import MOST_PROBLEMS
from posenc_core.hf_sizes import MOST_FINDINGS
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.schemes.t5 import T5Spec

MORE = reference("hf_more.json")
ENTRIES = reference("hf_rope.json")["entries"] + MORE["entries"]
FULL, SLIDING = "full_attention", "sliding_attention"


def llama(**changes):
    plain = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
             "max_position_embeddings": 131072, "rope_theta": 500000.0}  # fmt: skip
    return plain | changes


def scaled(**rope):
    return llama(rope_scaling=rope)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
GEMMA3 = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024,
          "rope_scaling": {"rope_type": "linear", "factor": 8.0}}  # fmt: skip
MLA = {"model_type": "deepseek_v3", "rope_theta": 1e4, "num_hidden_layers": 1}
LISTS = {"short_factor": [1.0] * 64, "long_factor": [4.0] * 64}


def codes(config):
    return {f.code: f for f in read_hf_config(config).findings}


def problems(config):
    with pytest.raises(SpecError) as caught:
        read_hf_config(config)
    return {p.name: p for p in caught.value.problems}


def spec_of(config):
    spec = read_hf_config(config).spec
    assert isinstance(spec, RopeSpec)
    return spec


# ------------------------------------------------------------------ transformers' numbers


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["name"])
def test_frequencies_layers_and_attention_factor_are_those_of_transformers(entry):
    model = read_hf_config(entry["config"])
    if "layer_types" in entry and "num_hidden_layers" in entry["config"]:
        assert [layer.layer_type for layer in model.layers] == entry["layer_types"]
    if "has_rope" in entry:
        assert [int(layer.spec.scheme == "rope") for layer in model.layers] == entry["has_rope"]
    for layer_type, rows in entry["layers"].items():
        specs = {la.spec for la in model.layers if layer_type in ("all", la.layer_type) and la.spec.scheme == "rope"}
        (spec,) = specs
        for row in rows:
            made, wanted = rope_frequencies(spec, row["seq_len"]), torch.tensor(row["inv_freq"], dtype=torch.float64)
            torch.testing.assert_close(made.inv_freq, wanted, rtol=2e-6, atol=0)
            assert made.attention_factor == pytest.approx(row["attention_factor"], rel=1e-6)


@pytest.mark.parametrize("entry", MORE["defaults"], ids=lambda e: e["config"]["model_type"])
def test_what_a_config_leaves_out_is_what_transformers_fills_in(entry):
    model = read_hf_config(entry["config"])
    if "layer_types" in entry:
        assert [layer.layer_type for layer in model.layers] == entry["layer_types"]
    if "has_rope" in entry:
        assert [int(layer.spec.scheme == "rope") for layer in model.layers] == entry["has_rope"]
    for layer_type, row in entry["layers"].items():
        rotating = [la.spec for la in model.layers if layer_type in ("all", la.layer_type) and la.spec.scheme == "rope"]
        for spec in set(rotating):
            made = rope_frequencies(spec)
            assert len(made.inv_freq) == row["pairs"]
            assert made.inv_freq[1].item() == pytest.approx(row["second"], rel=2e-6)
            assert made.inv_freq[-1].item() == pytest.approx(row["last"], rel=2e-6)
            assert made.attention_factor == pytest.approx(row["attention_factor"], rel=1e-6)
        assert rotating or layer_type not in ("all", FULL)
    assert {f.code for f in model.findings} >= {"default-used"}
    assert any(f.code in ("base-missing", "rope-default") for f in model.findings)


def test_known_numbers_of_public_models():
    report = pair_report(spec_of(scaled(**LLAMA3)))
    assert [report.count(a) for a in ("kept", "ramped", "divided")] == [29, 6, 29]
    scout = scaled(**(LLAMA3 | {"factor": 16.0, "high_freq_factor": 1.0}))
    report = pair_report(spec_of(scout))
    assert [report.count(a) for a in ("kept", "ramped", "divided")] == [35, 0, 29]
    assert "llama3-no-ramp" in codes(scout)
    gpt_oss = spec_of(next(e["config"] for e in ENTRIES if e["name"] == "gpt-oss-20b"))
    assert yarn_range(gpt_oss) == (pytest.approx(8.092779, abs=1e-6), pytest.approx(17.398025, abs=1e-6))
    assert rope_frequencies(gpt_oss).attention_factor == pytest.approx(1.346574, abs=1e-6)
    for name, scores in (("deepseek-v2-lite", 1.589626), ("deepseek-v3", 1.873854)):
        config = next(e["config"] for e in ENTRIES if e["name"] == name)
        model = read_hf_config(config)
        assert attention_scales(model.spec).scores == pytest.approx(scores, abs=1e-6)
        assert attention_scales(model.spec).attention_factor == 1.0
        finding = codes(config)["mscale-all-dim"]
        assert f"{scores:.6f}" in finding.sentence
        assert "1.000000" in finding.sentence
        assert {(la.spec.d_head, la.head_dim) for la in model.layers} == {(64, 192)}
        assert model.spec.layout == "interleaved"


# ------------------------------------------------------------------ spellings


def renamed(config, old, new):
    return {new if k == old else k: v for k, v in config.items()}


SAME = {
    "rope_scaling and rope_parameters": (scaled(**YARN), llama(rope_parameters=YARN)),
    "type and rope_type": (scaled(**YARN), scaled(**renamed(YARN, "type", "rope_type"))),
    "type and rope_type, both": (scaled(**YARN), scaled(**YARN, rope_type="yarn")),
    "base inside": (scaled(**YARN), {k: v for k, v in llama(rope_parameters=YARN | {"rope_theta": 500000.0}).items()
                                     if k != "rope_theta"}),
    "null base outside": (llama(), llama(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5})),
    "whole factor": (scaled(**LLAMA3), scaled(**LLAMA3 | {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})),
    "attention_factor null": (scaled(**YARN), scaled(**YARN, attention_factor=None)),
    "betas null": (scaled(**YARN), scaled(**YARN, beta_fast=None, beta_slow=None)),
    "factor left to the lengths": (scaled(**YARN), scaled(**{k: v for k, v in YARN.items() if k != "factor"})),
    "original length beside": (
        scaled(**YARN), llama(rope_scaling={"type": "yarn", "factor": 4.0}, original_max_position_embeddings=32768)),
    "su and longrope": (scaled(type="su", factor=4.0, original_max_position_embeddings=32768, **LISTS),
                        scaled(type="longrope", factor=4.0, original_max_position_embeddings=32768, **LISTS)),
    "mrope and default": (scaled(type="mrope", mrope_section=[16, 24, 24]),
                          scaled(rope_type="default", mrope_section=[16, 24, 24])),
    "mrope and default at once": (scaled(type="mrope", mrope_section=[16, 24, 24]),
                                  scaled(type="mrope", rope_type="default", mrope_section=[16, 24, 24])),
    "other size names": (llama(), {"model_type": "llama", "d_model": 4096, "n_heads": 32, "n_layers": 4,
                                   "max_seq_len": 131072, "rope_theta": 500000.0}),
    "nested": (llama(layer_types=[FULL] * 4), llama(layer_types=[FULL] * 4, rope_theta=None, rope_parameters={
        FULL: {"rope_type": "default", "rope_theta": 500000.0}})),
    "gemma3": (GEMMA3 | {"rope_theta": 1e6, "rope_local_base_freq": 1e4}, {k: v for k,
        v in GEMMA3.items() if k != "rope_scaling"} | {
        "rope_parameters": {FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                            SLIDING: {"rope_type": "default", "rope_theta": 1e4}}}),
    "pattern and list": (GEMMA3 | {"sliding_window_pattern": 6},
                         GEMMA3 | {"layer_types": [FULL if i % 6 == 5 else SLIDING for i in range(34)]}),
    "fraction": (llama(partial_rotary_factor=0.25), llama(rotary_pct=0.25)),
    "fraction inside": (llama(partial_rotary_factor=0.25), llama(rope_parameters={"rope_type": "default",
        "partial_rotary_factor": 0.25})),
    "fraction in features": (llama(partial_rotary_factor=0.25), llama(rotary_dim=32)),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_two_spellings_of_one_config_give_equal_layers(name):
    first, second = map(read_hf_config, SAME[name])
    assert first.layers == second.layers
    assert first.max_position_embeddings == second.max_position_embeddings


@pytest.mark.parametrize("entry", [*ENTRIES, *MORE["defaults"]], ids=lambda e: e.get("name", e["config"]["model_type"]))
def test_the_positional_fields_are_a_config_that_reads_the_same(entry):
    noise = {"vocab_size": 1000, "torch_dtype": "bfloat16", "architectures": ["X"], "quantization_config": {"rope": 3}}
    model = read_hf_config(entry["config"] | noise)
    fields = positional_fields(entry["config"] | noise)
    assert json.loads(json.dumps(fields)) == fields
    assert not noise.keys() & fields.keys()
    again = read_hf_config(fields)
    assert (again.layers, again.findings) == (model.layers, model.findings)


def test_rotary_dims_survive_the_fraction_that_states_them():
    for d_head in range(2, 513, 2):
        for features in range(2, d_head + 1, 2):
            share = features / d_head
            if int(d_head * share) != features:  # the quotient alone would lose a feature here
                config = llama(hidden_size=d_head * 4, num_attention_heads=4, rotary_dim=features)
                assert spec_of(config).rotary_dim == features
                return
    pytest.fail("no quotient rounds down")


# ------------------------------------------------------------------ layers


def test_smollm3_has_no_rope_in_every_fourth_layer():
    config = {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 36,
              "rope_theta": 5e6, "no_rope_layers": [1, 1, 1, 0] * 9}  # fmt: skip
    model = read_hf_config(config)
    assert [la.index for la in model.layers if isinstance(la.spec, NoneSpec)] == list(range(3, 36, 4))
    assert read_hf_config({k: v for k, v in config.items() if k != "no_rope_layers"}).layers == model.layers
    assert "9 of 36" in codes(config)["nope-layers"].sentence
    assert model.spec.scheme == "hybrid"
    assert [spec.scheme for spec in model.spec.layers[:5]] == ["rope", "rope", "rope", "none", "rope"]


def test_llama4_reads_chunks_nope_and_temperature():
    text = {"model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
            "head_dim": 128, "num_hidden_layers": 48, "rope_theta": 5e5, "no_rope_layers": [],
            "attention_chunk_size": 8192, "max_position_embeddings": 10485760,
            "attn_temperature_tuning": 4, "rope_scaling": LLAMA3 | {"factor": 16.0,
                "high_freq_factor": 1.0}}  # fmt: skip
    config = {"model_type": "llama4", "text_config": text, "vision_config": {"rope_theta": 1, "rope_bar": 2}}
    model = read_hf_config(config)
    kinds = [(k.layer_type, k.spec.scheme, k.window, len(i)) for k, i in model.kinds]
    assert kinds == [("chunked_attention", "rope", 8192, 36), (FULL, "none", None, 12)]
    assert [la.index for la in model.layers if la.spec.scheme == "none"] == list(range(3, 48, 4))
    assert model.layers[0].spec.layout == "interleaved"
    assert {"temperature-tuning", "nope-layers", "layout-interleaved", "llama3-no-ramp"} <= codes(config).keys()
    assert "temperature-tuning" not in codes(config | {"text_config": text | {"attn_temperature_tuning": False}})


def test_cohere2_rotates_in_sliding_layers_only():
    config = {"model_type": "cohere2", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 8,
              "rope_theta": 5e4, "sliding_window": 4096, "position_embedding_type": "rope_gptj",
                  "rotary_pct": 1.0}  # fmt: skip
    model = read_hf_config(config)
    assert [la.spec.scheme for la in model.layers] == ["rope", "rope", "rope", "none"] * 2
    assert [la.window for la in model.layers] == [4096, 4096, 4096, None] * 2


def test_exaone4_has_full_rope_layers_only_without_a_window():
    config = {
        "model_type": "exaone4",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 8,
        "rope_theta": 1e6,
    }
    assert [la.spec.scheme for la in read_hf_config(config | {"sliding_window": 4096}).layers] == (
        ["rope"] * 3 + ["none"]
    ) * 2
    letters = read_hf_config(config | {"sliding_window": 4096, "sliding_window_pattern": "LLLG"})
    assert letters.layers == read_hf_config(config | {"sliding_window": 4096}).layers
    off = read_hf_config(config | {"sliding_window": None})
    assert {(la.layer_type, la.spec.scheme) for la in off.layers} == {(FULL, "rope")}


def test_gemma3_scales_the_global_layers_only_and_knows_both_bases():
    for config in (GEMMA3, GEMMA3 | {"rope_theta": 1e6, "rope_local_base_freq": 1e4}):
        model = read_hf_config(config)
        (local, first), (full, second) = model.kinds
        assert (local.layer_type, local.spec.scaling, local.spec.base, local.window) == (SLIDING, "none", 1e4, 1024)
        assert (full.layer_type, full.spec.scaling, full.spec.factor, full.spec.base) == (FULL, "linear", 8.0, 1e6)
        assert (second, len(first)) == ((5, 11, 17, 23, 29), 29)
        assert full.window is None
        assert full.head_dim == 256
    assert "base-missing" in codes(GEMMA3)
    assert "base-missing" not in codes(GEMMA3 | {"rope_theta": 1e6, "rope_local_base_freq": 1e4})


def test_gemma4_has_wider_heads_in_the_global_layers():
    for config in ({"model_type": "gemma4_text", "num_hidden_layers": 12},
                   {"model_type": "gemma4_text", "num_hidden_layers": 12, "head_dim": 256,
                    "per_layer_config": {"5": {"head_dim": 512}, "11": {"head_dim": 512}}}):  # fmt: skip
        (local, _), (full, indices) = read_hf_config(config).kinds
        assert (local.head_dim, local.spec.scaling, full.head_dim, full.spec.scaling) == (
            256,
            "none",
            512,
            "proportional",
        )
        assert full.spec.rotated_pairs == 64
        assert indices == (5, 11)


def test_linear_attention_layers_have_no_position():
    config = {"model_type": "qwen3_next", "num_hidden_layers": 8, "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    model = read_hf_config(config)
    assert [la.layer_type for la in model.layers] == (["linear_attention"] * 3 + [FULL]) * 2
    assert [la.spec.scheme for la in model.layers] == (["none"] * 3 + ["rope"]) * 2
    assert "6 of 8" in codes(config)["no-attention-layers"].sentence
    assert "nope-layers" not in codes(config)


def test_cross_attention_layers_do_not_rotate():
    model = read_hf_config({"model_type": "mllama_text_model", "num_hidden_layers": 6, "rope_theta": 5e5,
                            "cross_attention_layers": [3]})  # fmt: skip
    assert [(la.layer_type, la.spec.scheme) for la in model.layers][2:5] == [
        (FULL, "rope"), ("cross_attention", "none"), (FULL, "rope")]  # fmt: skip


def test_without_a_count_there_is_one_layer_of_each_kind():
    assert len(read_hf_config({k: v for k, v in llama().items() if k != "num_hidden_layers"}).layers) == 1
    model = read_hf_config({k: v for k, v in GEMMA3.items() if k != "num_hidden_layers"})
    assert [la.layer_type for la in model.layers] == [SLIDING, FULL]
    assert [la.index for la in model.layers] == [0, 1]


def test_windows_follow_the_switches_of_each_architecture():
    qwen = {
        "model_type": "qwen2",
        "num_hidden_layers": 4,
        "rope_theta": 1e6,
        "sliding_window": 4096,
        "max_window_layers": 3,
    }
    assert {la.window for la in read_hf_config(qwen).layers} == {None}
    assert [la.window for la in read_hf_config(qwen | {"use_sliding_window": True}).layers] == [None, None, None, 4096]
    mistral = {"model_type": "mistral", "num_hidden_layers": 2, "rope_theta": 1e4, "sliding_window": 4096}
    assert {la.window for la in read_hf_config(mistral).layers} == {4096}
    for off in (None, 0, -1):
        assert {la.window for la in read_hf_config(mistral | {"sliding_window": off}).layers} == {None}
    assert "window-unread" in codes(llama(sliding_window=4096))


def test_nested_null_means_no_rope_and_a_missing_layer_type_is_refused():
    types = [SLIDING, FULL]
    nested = {SLIDING: {"rope_type": "default", "rope_theta": 1e4}}
    config = llama(num_hidden_layers=2, layer_types=types, sliding_window=64, rope_parameters=nested | {FULL: None})
    assert [la.spec.scheme for la in read_hf_config(config).layers] == ["rope", "none"]
    assert problems(config | {"rope_parameters": nested})["rope_parameters.full_attention"].reason == "it is missing"


def test_truncate_of_one_layer_type_is_honoured():
    nested = {FULL: YARN | {"rope_theta": 150000.0, "truncate": False}}
    config = llama(num_hidden_layers=1, layer_types=[FULL], rope_parameters=nested)
    spec = spec_of(config)
    assert not spec.truncate
    low, high = yarn_range(spec)
    assert f"{low:.6f}" in codes(config)["truncate-false"].sentence
    assert f"{high:.6f}" in codes(config)["truncate-false"].sentence


# ------------------------------------------------------------------ other encodings


def test_learned_tables_and_their_offsets():
    gpt2 = read_hf_config(
        {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "n_ctx": 1024}
    )
    assert gpt2.spec == LearnedSpec(max_position_embeddings=1024, d_model=768)
    assert len(gpt2.layers) == 12
    assert gpt2.layers[0].head_dim == 64
    bert = {"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 512}
    assert read_hf_config(bert | {"position_embedding_type": "absolute"}).spec == LearnedSpec(
        max_position_embeddings=512, d_model=768
    )
    assert "absolute" in problems(bert | {"position_embedding_type": "relative_key"})["position_embedding_type"].legal
    for model_type in ("roberta", "xlm-roberta", "camembert"):
        roberta = bert | {"model_type": model_type, "max_position_embeddings": 514, "pad_token_id": 1}
        assert read_hf_config(roberta).spec == LearnedSpec(max_position_embeddings=514, d_model=768, offset=2)
        assert "512 positions" in codes(roberta)["learned-offset"].sentence
    opt = read_hf_config(bert | {"model_type": "opt", "max_position_embeddings": 2048})
    assert opt.spec == LearnedSpec(max_position_embeddings=2050, d_model=768, offset=2)
    assert opt.max_position_embeddings == 2048
    neo = read_hf_config({"model_type": "gpt_neo", "hidden_size": 2048, "num_heads": 16, "num_layers": 4,
                          "attention_types": [[["global", "local"], 2]], "window_size": 256})  # fmt: skip
    assert [la.window for la in neo.layers] == [None, 256, None, 256]
    electra = read_hf_config(
        {"model_type": "electra", "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4}
    )
    assert electra.spec.d_model == 128


def test_sinusoids_in_each_order():
    whisper = read_hf_config({"model_type": "whisper", "d_model": 384, "encoder_layers": 4, "decoder_layers": 3,
                              "encoder_attention_heads": 6, "max_source_positions": 1500,
                                  "max_target_positions": 448})  # fmt: skip
    assert [la.layer_type for la in whisper.layers] == ["encoder"] * 4 + ["decoder"] * 3
    assert whisper.layers[0].spec == SinusoidalSpec(d_model=384, layout="concatenated", endpoint=True)
    assert whisper.layers[4].spec == LearnedSpec(max_position_embeddings=448, d_model=384)
    assert [la.index for la in whisper.layers] == list(range(7))
    with pytest.raises(SpecError):  # two tables of two stacks are no hybrid of one stack
        _ = whisper.spec
    sizes = {
        "d_model": 512,
        "encoder_attention_heads": 8,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_position_embeddings": 512,
    }
    for model_type, endpoint in (("marian", False), ("pegasus", False), ("m2m_100", True)):
        model = read_hf_config(sizes | {"model_type": model_type})
        assert model.spec == SinusoidalSpec(d_model=512, layout="concatenated", endpoint=endpoint)
    assert problems(sizes | {"model_type": "marian", "static_position_embeddings": False})


def test_alibi_of_each_architecture():
    bloom = read_hf_config({"model_type": "bloom", "n_embed": 14336, "n_head": 112, "n_layer": 70})
    assert bloom.spec == AlibiSpec(n_heads=112)
    mpt = {
        "model_type": "mpt",
        "d_model": 4096,
        "n_heads": 32,
        "n_layers": 2,
        "attn_config": {"alibi": True, "alibi_bias_max": 8},
    }
    assert read_hf_config(mpt).spec == AlibiSpec(n_heads=32)
    baichuan = {"model_type": "baichuan", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 40}
    assert read_hf_config(baichuan).spec == AlibiSpec(n_heads=40)
    assert "32" in codes(baichuan)["alibi-not-monotonic"].sentence
    seven = {"model_type": "baichuan", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
    assert spec_of(seven).base == 1e4
    assert "5120" in problems(seven | {"hidden_size": 2048})["hidden_size"].legal


def mpt_slopes(heads, largest):
    """MPT's own code in Python floats: slopes of the next power of two, every second one first."""
    n = 1
    while n < heads:
        n *= 2
    made = [1.0 / math.pow(2, (i + 1) * (largest / n)) for i in range(n)]
    return (made if n == heads else (made[1::2] + made[::2]))[:heads]


@pytest.mark.parametrize("heads", [8, 12, 32, 40])
@pytest.mark.parametrize("largest", [8, 16, 4])
def test_mpt_slopes_are_those_of_its_code(heads, largest):
    config = {"model_type": "mpt", "d_model": 64 * heads, "n_heads": heads, "attn_config": {"alibi_bias_max": largest}}
    wanted = torch.tensor(mpt_slopes(heads, largest), dtype=torch.float64)
    torch.testing.assert_close(read_hf_config(config).spec.slope_tensor(), wanted, rtol=1e-12, atol=0)


def test_falcon_divides_its_slopes_by_the_root_of_the_head_dim():
    config = {
        "model_type": "falcon",
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_hidden_layers": 2,
        "alibi": True,
    }
    slopes = read_hf_config(config).spec.slope_tensor()
    torch.testing.assert_close(slopes * 8, alibi_slopes(32), rtol=1e-12, atol=0)
    assert "0.105112" in codes(config)["alibi-scaled"].sentence
    assert "rope-unread" in codes(config | {"rope_theta": 10000.0})
    rope = read_hf_config(config | {"alibi": False, "rope_theta": 10000.0, "multi_query": True})
    assert rope.spec.scheme == "rope"
    assert rope.n_kv_heads == 1


def test_t5_has_buckets_in_self_attention():
    config = {"model_type": "t5", "d_model": 512, "num_heads": 8, "d_kv": 64, "num_layers": 2, "num_decoder_layers": 3}
    model = read_hf_config(config)
    assert [la.layer_type for la in model.layers] == ["encoder"] * 2 + ["decoder"] * 3
    assert model.layers[0].spec == T5Spec(n_heads=8)
    assert model.layers[2].spec == T5Spec(n_heads=8, bidirectional=False)
    assert "cross-attention has no position" in codes(config)["t5-self-attention"].sentence


def test_models_without_positions():
    granite = {"model_type": "granitemoehybrid", "hidden_size": 1536, "num_attention_heads": 12, "rope_theta": 10000,
               "layer_types": ["mamba", "attention"]}  # fmt: skip
    assert read_hf_config(granite | {"position_embedding_type": "nope"}).spec == NoneSpec()
    rope = read_hf_config(granite | {"position_embedding_type": "rope"})
    assert [la.spec.scheme for la in rope.layers] == ["none", "rope"]


# ------------------------------------------------------------------ what surrounds the text model


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
def test_the_text_model_inside_is_read_and_nothing_else(name):
    inner = llama(rope_scaling=YARN)
    outer = {"model_type": "some_vl", name: inner, "vision_config": {"rope_theta": "x", "rope_type": "axial"}}
    assert read_hf_config(outer).layers == read_hf_config(inner).layers
    assert problems({"model_type": "x", name: inner | {"rope_theta": 1}}).keys() == {f"{name}.rope_theta"}
    differing = outer | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    assert read_hf_config(differing).layers == read_hf_config(inner).layers
    assert codes(differing)["outer-unread"].field == "rope_scaling"
    assert "outer-unread" not in codes(outer | {"rope_theta": 500000.0})
    assert read_hf_config(read_hf_config(differing).fields).findings == read_hf_config(differing).findings


def test_thinker_config_holds_a_text_config():
    inner = {"model_type": "qwen2_5_omni_text", "num_hidden_layers": 2, "rope_theta": 1e6}
    assert read_hf_config({"thinker_config": {"text_config": inner}}).layers == read_hf_config(inner).layers


def test_an_outer_model_type_names_an_inner_one_without():
    inner = {k: v for k, v in GEMMA3.items() if k != "model_type"}
    assert read_hf_config({"model_type": "gemma3", "text_config": inner}).layers == read_hf_config(GEMMA3).layers


# ------------------------------------------------------------------ refused, by name, with the legal values


REFUSED = {
    "unknown rope_type": (scaled(type="ntk", factor=2.0), "rope_scaling.type", "linear"),
    "conflict": (scaled(type="linear", rope_type="yarn", factor=2.0), "rope_scaling.type", "rope_type = yarn"),
    "no rope_type": (scaled(factor=2.0), "rope_scaling.rope_type", "llama3"),
    "factor text": (scaled(type="linear", factor="8"), "rope_scaling.factor", "from 1"),
    "factor true": (scaled(type="linear", factor=True), "rope_scaling.factor", "from 1"),
    "factor NaN": (scaled(type="linear", factor=math.nan), "rope_scaling.factor", "from 1"),
    "factor infinite": (scaled(type="linear", factor=math.inf), "rope_scaling.factor", "from 1"),
    "factor below 1": (scaled(type="linear", factor=0.5), "rope_scaling.factor", "from 1"),
    "factor huge": (scaled(type="linear", factor=10**400), "rope_scaling.factor", "from 1"),
    "factor missing": (scaled(type="linear"), "rope_scaling.factor", "from 1"),
    "a fraction of an MLA head": (MLA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor", "or 1"),
    "a rotary_dim of an MLA head": (MLA | {"rotary_dim": 32}, "rotary_dim", "or 1"),
    "interleaved without sections": (scaled(type="default", mrope_interleaved=True),
                                     "rope_scaling.mrope_interleaved", "beside mrope_section"),
    "betas swapped": (scaled(**YARN, beta_fast=1, beta_slow=32), "rope_scaling.beta_fast", "beta_slow"),
    "llama3 factors swapped": (scaled(**LLAMA3 | {"low_freq_factor": 4.0, "high_freq_factor": 1.0}),
                               "rope_scaling.high_freq_factor", "low_freq_factor"),
    "llama3 incomplete": (scaled(type="llama3", factor=8.0), "rope_scaling.low_freq_factor", "number"),
    "longrope list too short": (scaled(type="longrope", factor=4.0, original_max_position_embeddings=4096,
                                       **LISTS | {"long_factor": [4.0] * 63}), "rope_scaling.long_factor",
                                           "64 numbers"),
    "longrope list missing": (scaled(type="longrope", factor=4.0, original_max_position_embeddings=4096,
                                     long_factor=[4.0] * 64), "rope_scaling.short_factor", "list"),
    "longrope list of texts": (scaled(type="longrope", factor=4.0, original_max_position_embeddings=4096,
                                      **LISTS | {"long_factor": ["4"] * 64}), "rope_scaling.long_factor", "number"),
    "longrope without length": (scaled(type="longrope", factor=4.0, **LISTS),
                                "rope_scaling.original_max_position_embeddings", "whole number"),
    "mscales that differ": (scaled(type="longrope", factor=4.0, original_max_position_embeddings=4096, short_mscale=1.1,
                                   long_mscale=1.2, **LISTS), "rope_scaling.long_mscale", "same as"),
    "mrope sections": (scaled(type="default", mrope_section=[16, 24, 23]), "rope_scaling.mrope_section", "64"),
    "mrope of texts": (scaled(type="default", mrope_section=["a"]), "rope_scaling.mrope_section", "whole number"),
    "dynamic with one pair": (llama(head_dim=2, rope_scaling={"type": "dynamic", "factor": 2.0}), "head_dim", ""),
    "attention factor 0": (scaled(**YARN, attention_factor=0.0), "rope_scaling.attention_factor", "above 0"),
    "truncate as a number": (scaled(**YARN, truncate=0), "rope_scaling.truncate", "true or false"),
    "base 1": (llama(rope_theta=1.0), "rope_theta", "above 1"),
    "base text": (llama(rope_theta="10000"), "rope_theta", "above 1"),
    "base true": (llama(rope_theta=True), "rope_theta", "above 1"),
    "two bases": (llama(rotary_emb_base=10000), "rotary_emb_base", "same as rope_theta"),
    "fraction 0": (llama(partial_rotary_factor=0.0), "partial_rotary_factor", "above 0"),
    "fraction above 1": (llama(partial_rotary_factor=1.5), "partial_rotary_factor", "at most 1"),
    "odd rotary dim": (llama(partial_rotary_factor=0.51), "partial_rotary_factor", "even"),
    "rotary_dim odd": (llama(rotary_dim=65), "rotary_dim", "even"),
    "rotary_dim too large": (llama(rotary_dim=256), "rotary_dim", "128"),
    "head dim odd": (llama(head_dim=65), "head_dim", "steps of 2"),
    "head dim huge": (llama(head_dim=4096), "head_dim", "1,024"),
    "heads do not divide": (llama(num_attention_heads=33), "num_attention_heads", "divisor of hidden_size = 4096"),
    "key heads do not divide": (llama(num_key_value_heads=5), "num_key_value_heads", "divisor of the 32"),
    "layers absurd": (llama(num_hidden_layers=10**9), "num_hidden_layers", "from 1 to 10,000"),
    "layers as text": (llama(num_hidden_layers="32"), "num_hidden_layers", "from 1 to 10,000"),
    "layer types too few": (llama(layer_types=[FULL]), "layer_types", "4 layer types"),
    "layer types unknown": (llama(layer_types=["magic"] * 4), "layer_types", FULL),
    "no_rope_layers too few": (llama(no_rope_layers=[1, 0]), "no_rope_layers", "4 numbers"),
    "no_rope_layers as bools": (llama(no_rope_layers=[True] * 4), "no_rope_layers", "1 (the layer has RoPE)"),
    "rope_scaling as text": (llama(rope_scaling="yarn"), "rope_scaling", "mapping"),
    "unknown key in the rope dict": (scaled(type="linear", factor=2.0, betafast=3), "rope_scaling.betafast",
        "beta_fast"),
    "even a null's sister": (scaled(type="linear", factor=2.0, foo="bar"), "rope_scaling.foo", "factor"),
    "both dicts differ": (llama(rope_scaling={"type": "linear", "factor": 2.0},
        rope_parameters={"type": "linear", "factor": 4.0}),
                          "rope_scaling.factor", "same in rope_parameters and rope_scaling"),
    "original lengths differ": (llama(rope_scaling=YARN, original_max_position_embeddings=4096),
                                "rope_scaling.original_max_position_embeddings", "4096"),
    "flat beside nested": (llama(layer_types=[FULL] * 4, rope_parameters={FULL: {"rope_type": "default"},
        "factor": 2.0}),
                           "rope_parameters.factor", FULL),
    "refused architecture": ({"model_type": "deberta-v2"}, "model_type", "architecture"),
    "two text models": ({"text_config": llama(), "llm_config": llama()}, "llm_config", "text_config"),
    "text model as text": ({"text_config": "llama"}, "text_config", "mapping"),
    "mpt without alibi": ({"model_type": "mpt", "attn_config": {"alibi": False}}, "attn_config.alibi", "true"),
    "mpt with rope": ({"model_type": "mpt", "attn_config": {"rope": True}}, "attn_config.rope", "false"),
    "too many alibi heads": ({"model_type": "bloom", "n_embed": 40960, "n_head": 320}, "n_head", "256"),
    "no sizes": ({"model_type": "unheard-of", "rope_theta": 1e4}, "hidden_size", "whole number"),
    "learned table odd": ({"model_type": "gpt2", "n_embd": 36, "n_head": 12, "n_positions": 1}, "n_positions",
        "from 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_value_is_refused_with_its_name_and_the_legal_range(name):
    config, field, legal = REFUSED[name]
    found = problems(config)
    assert field in found, found.keys()
    assert legal in found[field].legal or legal in found[field].reason


def test_every_problem_is_told_at_once():
    config = llama(num_attention_heads=33, rope_theta=1, rope_scaling={"type": "yarn", "factor": "8"},
        partial_rotary_factor=2,
                   alibi=True, rope_foo=1, num_hidden_layers=0)  # fmt: skip
    assert problems(config).keys() >= {
        "num_attention_heads", "rope_theta", "rope_scaling.factor", "partial_rotary_factor", "alibi", "rope_foo",
        "num_hidden_layers"}  # fmt: skip


def test_a_missing_base_is_never_a_silent_10000():
    bare = {k: v for k, v in llama().items() if k != "rope_theta"}
    assert "10,000" in codes(bare)["base-missing"].sentence
    assert codes(bare)["base-missing"].level == "warning"
    assert spec_of(bare | {"model_type": "smollm3", "no_rope_layers": [1] * 4}).base == 2e6
    for model_type in ("unheard-of", None):
        found = problems(bare | {"model_type": model_type})
        assert "no default that is known" in found["rope_theta"].reason
    assert "base-twice" in codes(llama(rope_parameters={"rope_type": "default", "rope_theta": 1e6}))
    assert spec_of(llama(rope_parameters={"rope_type": "default", "rope_theta": 1e6})).base == 1e6


UNKNOWN = ["rope_foo", "my_rotary_thing", "position_offset", "use_alibi_slopes", "yarn_beta", "ntk_factor",
    "attn_mscale",
           "theta", "relative_attention", "nope_interval", "use_logn_attn", "log_scaling", "sinusoidal",
               "pos_emb", "xpos",
           "rel_pos_bins", "abs_pos"]  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("value", [True, 1, 0.5, "yes", [1], {"a": 1}, 0])
def test_unknown_fields_that_touch_positions_are_refused_by_name(name, value):
    assert "touches positions" in problems(llama(**{name: value}))[name].reason
    nested = {"model_type": "mpt", "attn_config": {name: value}}
    assert f"attn_config.{name}" in problems(nested)


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_null_is_as_good_as_absent(name):
    assert read_hf_config(llama(**{name: None})).layers == read_hf_config(llama()).layers


@pytest.mark.parametrize(
    "name", ["use_rope", "use_rotary", "use_position_embeddings", "apply_rope", "rotary", "has_rotary"]
)
def test_a_false_that_turns_positions_off_is_not_ignored(name):
    assert name in problems(llama(**{name: False}))


@pytest.mark.parametrize(
    "name", ["alibi", "use_mrope", "use_dynamic_ntk", "use_logn_attn", "position_encoding_2d", "use_xpos"]
)
def test_a_false_that_turns_an_extra_off_is_as_good_as_absent(name):
    assert read_hf_config(llama(**{name: False})).layers == read_hf_config(llama()).layers


def test_fields_of_another_architecture_are_refused_not_ignored():
    assert "rope_ratio" in problems(llama(rope_ratio=500))
    assert "attn_temperature_tuning" in problems(llama(attn_temperature_tuning=True))
    assert "rope_theta" in problems({"model_type": "gpt2", "rope_theta": 1e4})
    assert "qk_nope_head_dim" in problems(llama(qk_rope_head_dim=64))


def test_names_that_only_sound_like_positions_are_let_pass():
    harmless = {
        "properties": 1,
        "decomposition": 2,
        "hidden_act": "silu",
        "europe": None,
        "score_composition": 3,
        "chunk_size": 5,
    }
    assert read_hf_config(llama(**harmless)).findings == read_hf_config(llama()).findings


def test_unread_fields_of_layers_are_a_warning():
    finding = codes(llama(swa_pattern=[1, 0]))["layers-unread"]
    assert (finding.level, finding.field) == ("warning", "swa_pattern")


FULL_CONFIGS = {
    "modernbert": ({"model_type": "modernbert", "position_embedding_type": "absolute", "global_rope_theta": 1.6e5,
                    "local_rope_theta": 1e4, "deterministic_flash_attn": False, "num_hidden_layers": 3}, "rope"),
    "bloom": ({"model_type": "bloom", "n_head": 16, "n_embed": 1024, "n_layer": 2, "offset_alibi": 100,
               "apply_residual_connection_post_layernorm": False, "seq_length": 2048}, "alibi"),
    "hunyuan": ({"model_type": "hunyuan_v1_dense", "rope_theta": 1e4, "use_rotary_pos_emb": True, "num_layers": 2,
                 "position_embedding_xdrope": False, "max_position_embeddings": 32768}, "rope"),
    "stablelm": ({"model_type": "stablelm_epoch", "rope_pct": 0.25, "rope_theta": 10000, "rotary_scaling_factor": 1.0,
                  "num_heads": 32, "num_hidden_layers": 2, "hidden_size": 2560}, "rope"),
    "gptj": ({"model_type": "gptj", "rotary": True, "rotary_dim": 64, "n_embd": 4096, "n_head": 16, "n_layer": 2,
              "rope_theta": 1e4, "scale_attn_weights": True, "n_positions": 2048}, "rope"),
    "exported": (llama(chunk_size_feed_forward=0, cross_attention_hidden_size=None, task_specific_params=None,
                       pruned_heads={}, is_decoder=False, pretraining_tp=1, rope_scaling=None), "rope"),
    "kimi": ({"model_type": "kimi_k2", "hidden_size": 7168, "num_attention_heads": 64, "num_hidden_layers": 2,
              "rope_theta": 50000.0, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "moe_layer_freq": 1,
              "max_position_embeddings": 131072,
              "rope_scaling": {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0,
                               "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}}, "rope"),
}  # fmt: skip


@pytest.mark.parametrize("name", FULL_CONFIGS)
def test_what_configs_carry_beside_positions_does_not_hinder(name):
    config, scheme = FULL_CONFIGS[name]
    model = read_hf_config(config)
    assert {la.spec.scheme for la in model.layers} == {scheme}
    assert not {f.code for f in model.findings} & {"layers-unread", "base-missing", "not-read", "architecture-unknown"}


def test_a_rotary_scaling_factor_other_than_1_is_refused():
    assert "1" in problems(llama(rotary_scaling_factor=2.0))["rotary_scaling_factor"].legal


def test_mrope_without_sections_is_refused():
    assert "use_mrope" in problems(llama(use_mrope=True))


# ------------------------------------------------------------------ findings


FOUND = {
    "factor-mismatch": scaled(**YARN | {"factor": 2.0}),
    "length-original": llama(max_position_embeddings=32768, rope_scaling=YARN),
    "length-extended": scaled(**YARN),
    "yarn-original-missing": scaled(type="yarn", factor=4.0),
    "factor-from-lengths": scaled(type="yarn", original_max_position_embeddings=32768),
    "attention-factor": scaled(**YARN),
    "attention-factor-given": scaled(**YARN, attention_factor=1.5),
    "mscale-alone": scaled(**YARN, mscale=0.707),
    "mscale-no-extra": scaled(**YARN, mscale=1.0, mscale_all_dim=1.0),
    "dynamic-two-definitions": scaled(type="dynamic", factor=2.0),
    "dynamic-original": scaled(type="dynamic", factor=2.0, original_max_position_embeddings=4096),
    "dynamic-alpha": scaled(type="dynamic", factor=1.0, alpha=1000.0),
    "longrope-switch": scaled(type="longrope", factor=4.0, original_max_position_embeddings=32768, **LISTS),
    "not-read": scaled(type="linear", factor=2.0, beta_fast=32),
    "architecture-unknown": llama(model_type="unheard-of"),
    "layout-interleaved": llama(model_type="cohere"),
    "partial-rotation": llama(model_type="stablelm", partial_rotary_factor=0.25),
    "fraction-unread": llama(partial_rotary_factor=0.5),
    "fraction-twice": llama(partial_rotary_factor=0.5, rope_parameters={"rope_type": "default",
        "partial_rotary_factor": 0.25}),
    "gqa": llama(num_key_value_heads=8),
    "mrope": scaled(type="mrope", mrope_section=[16, 24, 24]),
    "query-scaling": scaled(**YARN, llama_4_scaling_beta=0.1),
    "local-base-unread": llama(rope_local_base_freq=1e4),
    "layer-type-unused": llama(layer_types=[FULL] * 4, rope_parameters={FULL: YARN, SLIDING: {"rope_type": "default"}}),
    "original-unread": llama(original_max_position_embeddings=4096),
    "window-assumed": llama(model_type="unheard-of", sliding_window=64),
    "pattern-assumed": llama(model_type="unheard-of", sliding_window=64, sliding_window_pattern=2),
    "pattern-differs": GEMMA3 | {"sliding_window_pattern": 2, "layer_types": [SLIDING] * 34},
    "lengths-differ": llama(model_max_length=4096),
}  # fmt: skip


@pytest.mark.parametrize("code", FOUND)
def test_what_is_worth_knowing_is_a_finding_with_something_to_do(code):
    found = codes(FOUND[code])
    assert code in found
    assert code not in codes(llama(num_key_value_heads=32))
    assert found[code].sentence.endswith(".")
    assert found[code].action
    assert found[code].level in ("warning", "note")


def test_an_explicit_factor_wins_over_the_ratio_of_lengths():
    config = scaled(**YARN | {"factor": 2.0})
    assert spec_of(config).factor == 2.0
    assert "65,536" in codes(config)["factor-mismatch"].sentence
    assert "131,072" in codes(config)["factor-mismatch"].sentence


def test_two_lengths_have_two_meanings():
    model = read_hf_config(scaled(**YARN))
    assert (model.max_position_embeddings, model.original_max_position_embeddings) == (131072, 32768)
    missing = read_hf_config(scaled(type="yarn", factor=4.0))
    assert (missing.max_position_embeddings, missing.original_max_position_embeddings) == (131072, 131072)
    assert read_hf_config(llama()).original_max_position_embeddings is None


def test_mscales_outside_mla_make_the_attention_factor_only():
    """transformers multiplies the scores by g(mscale_all_dim)² in its MLA models and in no other."""
    spec = spec_of(scaled(**YARN, mscale=1.0, mscale_all_dim=0.5))
    wanted = (0.1 * math.log(4) + 1) / (0.1 * 0.5 * math.log(4) + 1)
    scales = attention_scales(spec)
    assert scales.attention_factor == pytest.approx(wanted)
    assert scales.scores == 1.0


def test_phimoe_reads_its_pair_of_attention_factors():
    config = scaled(type="longrope", original_max_position_embeddings=4096, short_mscale=1.243163121016122,
                    long_mscale=1.243163121016122, **LISTS) | {"model_type": "phimoe"}  # fmt: skip
    assert rope_frequencies(spec_of(config)).attention_factor == 1.243163121016122


def test_an_mla_model_that_is_not_known_is_read_as_interleaved():
    config = llama(model_type="unheard-of", qk_rope_head_dim=64, qk_nope_head_dim=128)
    assert spec_of(config).layout == "interleaved"
    assert "interleaved" in codes(config)["architecture-unknown"].sentence
    assert spec_of(config | {"rope_interleave": False}).layout == "half"


# ------------------------------------------------------------------ text


def test_config_text_reads_plain_json():
    assert parse_config_text('\ufeff{"rope_theta": 1e6, "text": "[[[[{{{ \\" }"}') == {
        "rope_theta": 1e6,
        "text": '[[[[{{{ " }',
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "levels"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "levels"),
        ("[" * 900_000, "levels"),
        (" " * (MAX_CHARACTERS + 1), "characters"),
        ('{"a": 1, "a": 2}', "given twice"),
        ('{"b": {"rope_theta": 1, "rope_theta": 2}}', "rope_theta"),
        ('{"a": NaN}', "finite"),
        ('{"a": -Infinity}', "finite"),
        ('{"a": 1e999}', "finite"),
        ('{"a": ' + "9" * 5000 + "}", "too long"),
        ("[1, 2]", "object"),
        ("3", "object"),
        ("", "JSON object"),
        ('{"a": ', "line 1"),
        ("{'a': 1}", "line 1"),
        ('{"a": "\\ud8', "line 1"),
        ('"' + "\\" * 500_000, "JSON object"),
    ],
)  # fmt: skip
def test_other_text_is_refused_with_a_reason(text, words):
    with within(5), pytest.raises(SpecError, match=words):
        parse_config_text(text)


def test_the_deepest_text_that_is_read_is_32_levels():
    text = '{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH
    assert parse_config_text(text)["a"]


# ------------------------------------------------------------------ bounds, strangers


def test_ten_million_positions_and_ten_thousand_layers_are_read_at_once():
    with within(5):
        model = read_hf_config(llama(max_position_embeddings=10_485_760, num_hidden_layers=10_000))
        assert len(model.layers) == 10_000
        assert len(model.kinds) == 1
        assert model.spec.scheme == "rope"
    with pytest.raises(SpecError):  # more layers than a hybrid holds
        _ = read_hf_config(llama(num_hidden_layers=200, no_rope_layers=[1, 0] * 100)).spec


def test_a_mapping_deeper_than_any_text_is_refused():
    deep = []
    for _ in range(50_000):
        deep = [deep]
    for config in (llama(rope_scaling={"type": deep}), scaled(type="longrope", short_factor=deep),
        llama(foo_window=deep),
                   llama(rope_scaling={"type": "linear", "factor": deep},
                       rope_parameters={"factor": deep})):  # fmt: skip
        with pytest.raises(SpecError):
            read_hf_config(config)


@pytest.mark.parametrize("config", [None, [], "llama", 3, {1: 2}, {"model_type": ["llama"]}, {"model_type": None}])
def test_what_is_no_config_is_refused(config):
    with pytest.raises(SpecError):
        read_hf_config(config)


def scalars():
    numbers = st.sampled_from([0, 1, 2, 3, 8, 64, 96, 128, 4096, 131072, 0.25, 0.5, 1.5, 1e6, -1, 2**70, 10**400])
    words = st.sampled_from(["yarn", "linear", "llama3", "longrope", "default", "x", FULL, SLIDING, "nope", "absolute"])
    return st.none() | st.booleans() | numbers | words | st.floats()


NAMES = sorted({
    *(name for entry in ENTRIES for name in entry["config"]), "text_config", "attn_config", "layer_types", "rope_ratio",
    "rope_parameters", "qk_nope_head_dim", "no_rope_layers", "attention_types", "cross_attention_layers",
        "alibi", "type",
    "per_layer_config", "pad_token_id", "rotary_dim", "rope_type", "factor", "mrope_section", "alpha", "short_factor",
    "position_embedding_type", "full_attn_idxs", "use_rope", "embedding_size", "max_source_positions",
        "rope_interleave",
})  # fmt: skip


def jsons():
    return st.recursive(
        scalars(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner,
            max_size=4),
        max_leaves=12,
    )  # fmt: skip


def attempt(config):
    """The model, or None where it is refused with problems that have a name, legal values and a text."""
    try:
        return read_hf_config(config)
    except SpecError as error:
        refused = error
    assert refused.problems
    assert all(p.name and p.legal and str(p) for p in refused.problems)
    return None


@given(
    st.sampled_from([*ARCHITECTURES, "unheard-of", None]), st.dictionaries(st.sampled_from(NAMES), jsons(), max_size=6)
)
@settings(max_examples=300, deadline=None)
def test_any_mapping_gives_layers_or_a_spec_error(model_type, config):
    config = {"model_type": model_type} | config
    before = copy.deepcopy(config)
    model = attempt(config)
    assert repr(config) == repr(before)
    if model is None:
        return
    assert model.layers
    assert [la.index for la in model.layers] == list(range(len(model.layers)))
    assert sorted(i for _, indices in model.kinds for i in indices) == list(range(len(model.layers)))
    again = read_hf_config(model.fields)
    assert (again.layers, again.findings) == (model.layers, model.findings)


@given(st.sampled_from(ENTRIES), st.data())
@settings(max_examples=300, deadline=None)
def test_a_real_config_with_a_changed_field_gives_layers_or_a_spec_error(entry, data):
    config = copy.deepcopy(entry["config"])
    where = config
    while True:
        name = data.draw(st.sampled_from(sorted(where)))
        if not isinstance(where[name], dict) or not where[name]:
            break
        where = where[name]
    where[name] = data.draw(jsons())
    model = attempt(config)
    assert model is None or all(
        la.spec == read_hf_config(model.fields).layers[la.index].spec for la in model.layers[:3]
    )


# ------------------------------------------------------------------ what strangers write


HALF = "\ud800"  # half of a surrogate pair: JSON can write it, UTF-8 cannot


@pytest.mark.parametrize(
    "config",
    [llama(model_type=HALF), llama(**{f"rope_{HALF}x": 1}), llama(**{f"window_{HALF}x": 1}),
     llama(name=["a", {"b": HALF}]), {"model_type": "x", "text_config": llama(**{HALF: 1})},
     llama(rope_scaling={HALF: 1})],
)  # fmt: skip
def test_half_a_surrogate_pair_is_refused_in_words_that_a_page_can_show(config):
    text = json.dumps(config)
    assert "\\ud800" in text
    for read in (lambda: parse_config_text(text), lambda: read_hf_config(config)):
        with pytest.raises(SpecError) as caught:
            read()
        assert "UTF-8" in str(caught.value)
        for problem in caught.value.problems:
            assert str(problem).encode()
            assert problem.name.encode()
    twice = '{"\\ud800": 1, "\\ud800": 2}'
    with pytest.raises(SpecError) as caught:
        parse_config_text(twice)
    assert str(caught.value).encode()


def test_the_words_of_a_page_hold_no_half_of_a_pair():
    assert plain(f"a{HALF}b\udfff😀").encode().decode() == "a\ufffdb\ufffd😀"


def test_a_whole_surrogate_pair_is_read():
    assert parse_config_text(json.dumps({"name": "\U0001f600"})) == {"name": "\U0001f600"}


def test_many_unknown_fields_cost_little_and_are_counted():
    crowd = {f"window{i}": i for i in range(20_000)}
    with within(10):
        model = read_hf_config(llama(**crowd))
    told = [f for f in model.findings if f.code == "layers-unread"]
    assert len(told) == MOST_FINDINGS + 1
    assert told[-1].sentence == f"And {len(crowd) - MOST_FINDINGS:,} more of this kind."
    assert len(model.fields) <= len(llama()) + MOST_FINDINGS
    assert read_hf_config(model.fields).layers == model.layers
    with within(10), pytest.raises(SpecError) as caught:
        read_hf_config(llama(**{f"rope{i}": 0 for i in range(20_000)}))
    assert len(caught.value.problems) == MOST_PROBLEMS + 1
    assert f"{20_000 - MOST_PROBLEMS:,} more fields" in str(caught.value.problems[-1])
    outer = {"model_type": "x", "text_config": llama(), **{f"rope{i}": 0 for i in range(2_000)}}
    assert len(read_hf_config(outer).fields) <= MOST_FINDINGS + 2


def test_a_long_field_that_is_not_read_is_told_and_not_kept():
    config = llama(my_window=list(range(10_000)), **{"window_" + "x" * 5_000: 1})
    model = read_hf_config(config)
    assert [f.code for f in model.findings if f.code == "layers-unread"] == ["layers-unread"] * 2
    assert "my_window" not in model.fields
    assert all(len(f.sentence) < 300 and len(f.field) <= 60 for f in model.findings)


@pytest.mark.parametrize(
    "config",
    [{"model_type": "llama4_text", "num_hidden_layers": 4, "attn_temperature_tuning": 10**5000},
     {"model_type": "esm", "num_hidden_layers": 1, "rope_theta": 10**5000},
     {"model_type": "bloom", "n_head": 8, "offset_alibi": 10**5000},
     {"model_type": "gpt2", "rope_scaling": {"factor": [10**5000]}},
     {"model_type": "mpt", "attn_config": {"rope_theta": 10**5000}},
     {"model_type": "mpt", "attn_config": {"rope_theta": math.nan}}],
)  # fmt: skip
def test_numbers_that_no_file_can_hold_are_refused_where_their_value_does_not_matter(config):
    (problem,) = problems(config).values()
    assert "number" in problem.legal
    assert str(problem)


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "name", ["pos_weight", "max_position_id", "relative_path", "europe_region", "use_cache_position", "cache_position",
             "proper_nouns", "superposition", "exposure", "pos_token_id", "position_id_per_seconds", "global_view_pos"]
)  # fmt: skip
def test_names_that_sound_like_positions_pass(name):
    assert read_hf_config(llama(**{name: 3})) == read_hf_config(llama())


@pytest.mark.parametrize(
    "name", ["rope_x", "xrope", "europe_rope", "use_relative_attention", "relative_path_bias", "pos_embed_type",
             "pos_weight_rope", "cache_position_offset", "max_position_ids_scale", "prope", "drope_fraction",
             "composition_rope", "propertheta", "num_position_embeddings", "dual_chunk_attention"]
)  # fmt: skip
def test_real_names_beside_harmless_ones_are_still_refused(name):
    assert "touches positions" in problems(llama(**{name: 3}))[name].reason


def test_lfm2_says_that_it_has_positions():
    full = [2, 5]
    config = {"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 6, "rope_theta": 1e6, "use_pos_enc": True,
              "full_attn_idxs": full,
              "layer_types": [FULL if i in full else "conv" for i in range(6)]}  # fmt: skip
    assert [la.index for la in read_hf_config(config).layers if la.spec.scheme == "rope"] == full
    assert not {"pattern-differs", "layers-unread"} & codes(config).keys()
    assert "pattern-differs" in codes(config | {"full_attn_idxs": [0]})
    assert "use_pos_enc" in problems(config | {"use_pos_enc": False})


def test_dual_chunk_attention_is_told():
    config = llama(model_type="qwen2", dual_chunk_attention_config={"chunk_size": 262144, "local_size": 8192,
                   "original_max_position_embeddings": 262144})  # fmt: skip
    finding = codes(config)["dual-chunk"]
    assert finding.level == "warning"
    assert "262,144" in finding.sentence
    assert codes(read_hf_config(config).fields)["dual-chunk"] == finding
    assert "dual-chunk" not in codes(llama(dual_chunk_attention_config={}))
    assert "dual_chunk_attention_config" in problems(llama(dual_chunk_attention_config=True))


def test_names_that_touch_positions_inside_unknown_mappings_are_told():
    config = llama(sparse_config={"use_nope": True, "kernel_size": 32, "inner": {"rope_x": 1, "size": 3}})
    told = [f for f in read_hf_config(config).findings if f.code == "nested-unread"]
    assert [f.field for f in told] == ["sparse_config.use_nope", "sparse_config.inner.rope_x"]
    assert all(f.level == "warning" and f.field in f.sentence for f in told)
    assert "nested-unread" not in codes(llama(sparse_config={"use_nope": False, "kernel_size": 32}))
    elsewhere = ("vision_config", "audio_config", "quantization_config", "auto_map", "talker_config")
    assert read_hf_config(llama(**{n: {"rope_theta": 3} for n in elsewhere})) == read_hf_config(llama())


# ------------------------------------------------------------------ what each class reads, and what it does not


def odd_config(row, **changes):
    """The defaults of a class, all of them, with a change; 12 layers that rotate, or some of them."""
    fits = {name: {"head_dim": 128} for name in ("glm4_moe", "glm4v_moe_text")}  # whose defaults do not divide
    fits["granitemoehybrid"] = {"position_embedding_type": "rope", "layer_types": ["attention"] * 12}
    return {"model_type": row["model_type"], "num_hidden_layers": 12} | fits.get(row["model_type"], {}) | changes


@pytest.mark.parametrize("row", MORE["reads"], ids=lambda r: r["model_type"])
def test_a_field_that_transformers_ignores_is_never_believed_silently(row):
    """`reads`: which fields change the frequencies of transformers' class (by layer type), and its layer types."""
    names = ("rope_theta", "rotary_emb_base", "global_rope_theta", "rope_local_base_freq", "local_rope_theta")
    for name in names:
        model = read_hf_config(odd_config(row, **{name: 54321.0}))
        told = any(f.code in ("base-unread", "base-twice", "local-base-unread") for f in model.findings)
        for layer in model.layers:
            read = row["bases"].get(layer.layer_type, row["bases"].get("all", ()))
            if isinstance(layer.spec, RopeSpec):
                assert (layer.spec.base == 54321.0) == (name in read) or told, (name, layer)
        if told:
            assert not all(name in read for read in row["bases"].values())
    for name in ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_emb_fraction"):
        if read_hf_config(odd_config(row)).layers[0].spec.scheme != "rope" or "qk_rope" in str(codes(odd_config(row))):
            break  # an MLA head has no fraction
        assert ("fraction-unread" in codes(odd_config(row, **{name: 0.75}))) == (name not in row["fractions"]) or (
            row["model_type"] == "gemma4_text"
        )
    plain = [la.layer_type for la in read_hf_config(odd_config(row)).layers]
    periods = (
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "global_attn_every_n_layers",
        "full_attention_interval",
    )
    for name in periods:
        config = odd_config(row, **{name: 7})
        types = [la.layer_type for la in read_hf_config(config).layers]
        assert (types != plain) == (name in row["periods"]), name
        assert ("pattern-unread" in codes(config)) == (name not in row["periods"] and "layer_types" not in config)


def test_unread_bases_are_told_with_both_values():
    finding = codes({"model_type": "gpt_neox", "rope_theta": 5e4})["base-unread"]
    assert "50,000" in finding.sentence
    assert "10,000" in finding.sentence
    apertus = codes({"model_type": "apertus", "rope_theta": 5e4})["base-unread"]
    assert "12,000,000" in apertus.sentence
    for quiet in ({"model_type": "gpt_neox", "rope_theta": 1e4}, {"model_type": "gpt_neox", "rotary_emb_base": 5e4},
                  {"model_type": "apertus", "rope_theta": 5e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
                  {"model_type": "stablelm_epoch", "rope_pct": 0.5, "rope_theta": 5e4},
                  {"model_type": "modernbert", "global_rope_theta": 5e4}, llama()):  # fmt: skip
        assert not {"base-unread", "fraction-unread"} & codes(quiet).keys()


@pytest.mark.parametrize("model_type", ["gemma3_text", "gemma3n_text", "olmo3"])
def test_a_spelling_that_transformers_does_not_read_is_told(model_type):
    """Its classes take flat rope_parameters for nested ones without a layer type, and merge rope_scaling as flat."""
    flat = {"rope_type": "linear", "factor": 4.0, "rope_theta": 6e4}
    assert "spelling-unread" in codes({"model_type": model_type, "rope_parameters": flat})
    assert "spelling-unread" not in codes({"model_type": model_type, "rope_scaling": flat})
    nested = {FULL: flat, SLIDING: {"rope_type": "default", "rope_theta": 1e4}}
    assert "spelling-unread" not in codes({"model_type": model_type, "rope_parameters": nested})
    assert "spelling-unread" in codes({"model_type": model_type, "rope_scaling": nested})


@pytest.mark.parametrize(
    ("model_type", "layers", "slide"),
    [("qwen2", 32, range(28, 32)), ("qwen3", 32, range(28, 32)), ("qwen2_5_omni_text", 32, range(28, 32)),
     ("qwen2_vl_text", 82, range(80, 82)), ("qwen2_5_vl_text", 82, range(80, 82)), ("dots1", 64, range(62, 64)),
     ("qwen2_moe", 32, range(0, 28, 2))],
)  # fmt: skip
def test_which_layers_slide_without_max_window_layers(model_type, layers, slide):
    """As transformers 5.24 makes layer_types for these configs."""
    config = {"model_type": model_type, "num_hidden_layers": layers, "use_sliding_window": True}
    model = read_hf_config(config)
    assert [la.index for la in model.layers if la.layer_type == SLIDING] == list(slide)
    assert "max_window_layers" in codes(config)["default-used"].sentence
    del config["num_hidden_layers"]
    assert {la.layer_type for la in read_hf_config(config).layers} == {FULL, SLIDING}


def test_embedding_gemma_sees_half_the_window_to_each_side():
    config = {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 512, "rope_theta": 1e6,
              "use_bidirectional_attention": True}  # fmt: skip
    model = read_hf_config(config)
    assert [la.window for la in model.layers] == [257] * 5 + [None]
    assert "each side" in model.layers[0].note
    assert "257" in codes(config)["bidirectional-window"].sentence
    assert read_hf_config(model.fields).layers == model.layers
    assert {la.window for la in read_hf_config(config | {"use_bidirectional_attention": False}).layers} == {512, None}
    other = config | {"model_type": "gemma3n_text"}  # whose class has no such switch
    assert {la.window for la in read_hf_config(other).layers} == {512, None}


@pytest.mark.parametrize(
    ("config", "head_dim", "kv"),
    [({"model_type": "ernie4_5"}, 64, 16), ({"model_type": "qwen2_vl_text"}, 128, 64),
     ({"model_type": "smollm3"}, 128, 16), ({"model_type": "bitnet"}, 128, 20), ({"model_type": "glm4v_text"}, 128, 32),
     ({"model_type": "seed_oss", "hidden_size": 5120}, 64, 80), ({"model_type": "qwen2_5_omni_text"}, 128, 28)],
)  # fmt: skip
def test_null_means_derived_and_not_the_default(config, head_dim, kv):
    """Numbers of transformers 5.24's classes for explicit nulls."""
    nulls = config | {"head_dim": None, "num_key_value_heads": None, "num_hidden_layers": 1}
    model = read_hf_config(nulls)
    assert (model.layers[0].head_dim, model.n_kv_heads) == (head_dim, kv)
    left_out = read_hf_config(config | {"num_hidden_layers": 1})
    assert (left_out.layers[0].head_dim, left_out.n_kv_heads) != (head_dim, kv)
    assert "null-derived" in codes(nulls)
    again = read_hf_config(model.fields)
    assert (again.layers, again.n_kv_heads, again.findings) == (model.layers, kv, model.findings)


def test_a_config_that_does_not_count_its_layers_says_so():
    for config in (llama(), GEMMA3, {"model_type": "gpt2", "n_layer": 2}, {"model_type": "t5", "num_layers": 2}):
        assert read_hf_config(config).counted
        bare = {k: v for k, v in config.items() if k not in ("num_hidden_layers", "n_layer", "num_layers")}
        model = read_hf_config(bare)
        assert not model.counted
        assert codes(bare)["layers-unknown"].field == "num_hidden_layers"
        assert not read_hf_config(model.fields).counted
        assert "layers-unknown" not in codes(config)
    assert read_hf_config({"model_type": "llama", "layer_types": [FULL] * 3}).counted


# ------------------------------------------------------------------ nothing said where there is nothing to say


def test_stock_configs_are_quiet():
    gemma2 = {"model_type": "gemma2", "num_hidden_layers": 2, "sliding_window": 4096, "sliding_window_size": 4096}
    assert "layers-unread" not in codes(gemma2)
    assert "layers-unread" in codes(gemma2 | {"sliding_window_size": 1024})
    minimax = {"model_type": "minimax_m2", "num_hidden_layers": 2, "attn_type_list": [1, 1], "rotary_dim": 64}
    assert "layers-unread" not in codes(minimax)
    assert "layers-unread" in codes(minimax | {"attn_type_list": [0, 1]})
    outer = {"model_type": "x", "position_id_per_seconds": 25, "global_view_pos": "head", "text_config": llama()}
    assert "outer-unread" not in codes(outer)
    hunyuan = llama(model_type="hunyuan_v1_moe", rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0,
                    "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0})  # fmt: skip
    (told,) = [f for f in read_hf_config(hunyuan).findings if f.code == "not-read"]
    assert all(f"{n} = " in told.sentence for n in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim"))


def test_jamba_attends_in_one_layer_of_eight():
    config = {"model_type": "jamba", "num_hidden_layers": 32, "attn_layer_period": 8, "attn_layer_offset": 4}
    model = read_hf_config(config)
    assert [la.index for la in model.layers if la.layer_type == "attention"] == [4, 12, 20, 28]
    assert {la.layer_type for la in model.layers} == {"attention", "mamba"}
    assert model.spec == NoneSpec()
    assert "layers-unread" not in codes(config)
    assert read_hf_config({"model_type": "jamba", "num_hidden_layers": 32}).layers == model.layers
    assert "attn_layer_offset" in problems(config | {"attn_layer_offset": 8})


def test_t5_has_no_end():
    config = {"model_type": "t5", "num_layers": 2, "n_positions": 512}
    model = read_hf_config(config)
    assert model.max_position_embeddings is None
    assert "512" in codes(config)["t5-no-end"].sentence
    assert read_hf_config(model.fields).findings == model.findings


def test_a_value_that_is_no_json_is_not_kept():
    loop = []
    loop.append(loop)
    model = read_hf_config(llama(my_window=loop, other_window=object()))
    assert [f.code for f in model.findings].count("layers-unread") == 2
    assert not {"my_window", "other_window"} & model.fields.keys()
