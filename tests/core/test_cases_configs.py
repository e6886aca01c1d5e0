"""Faults that people reported in public, each as a test with the right value: configs, scalings, exports. The table of
all of them is tests/data/cases.tsv."""

from __future__ import annotations

import importlib
import json
import math
import re
from itertools import pairwise

import pytest
import torch
from support import DATA, ROOT, frequencies, reference

from posenc_core import SpecError, read_hf_config, rope_frequencies
from posenc_core.export import exports, llama_cpp, transformers, transformers_legacy, vllm
from posenc_core.frequencies import attention_scales, pair_report, yarn_range
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.t5 import T5Spec

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "rope_theta": 500000.0, "num_hidden_layers": 2,
}  # fmt: skip
LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
LISTS = {"short_factor": [1.0 + i / 64 for i in range(64)], "long_factor": [1.0 + i for i in range(64)]}
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rope_theta": 10000, "num_hidden_layers": 3,
}  # fmt: skip


def deepseek(mscale, **changes):
    rope = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": mscale, "mscale_all_dim": mscale,
            "original_max_position_embeddings": 4096}  # fmt: skip
    return DEEPSEEK | {"rope_scaling": rope} | changes


def llama(scaling=None, **changes):
    return LLAMA | ({} if scaling is None else {"rope_scaling": scaling}) | changes


def spec_of(config):
    return read_hf_config(config).layers[0].spec


def said(model, *words):
    """Findings that hold all the words, in field, sentence or action."""
    return [f for f in model.findings if all(w.lower() in f"{f.field} {f.sentence} {f.action}".lower() for w in words)]


def refusal(config):
    with pytest.raises(SpecError) as caught:
        read_hf_config(config)
    return str(caught.value)


def equal_frequencies(a, b, seq_lens=(None, 10**6)):
    for n in seq_lens:
        torch.testing.assert_close(rope_frequencies(a, n).inv_freq, rope_frequencies(b, n).inv_freq, rtol=1e-15, atol=0)
    assert attention_scales(a) == attention_scales(b)


# ------------------------------------------------------------------ layout


@pytest.mark.parametrize("model_type", ["cohere", "cohere2"])
def test_llama_cpp_6033_command_r_is_interleaved(model_type):
    model = read_hf_config(
        {"model_type": model_type, "rope_theta": 8e6, "hidden_size": 8192, "num_attention_heads": 64}
    )
    ropes = [layer.spec for layer in model.layers if isinstance(layer.spec, RopeSpec)]
    assert {s.layout for s in ropes} == {"interleaved"}
    assert ropes[0].base == 8e6
    assert said(model, "2i and 2i + 1")
    assert spec_of(llama()).layout == "half"


def test_llama_cpp_6033_the_presets_that_ship_say_so_too():
    """Which of the public models that the app offers pair neighbouring features."""
    entries = json.loads((ROOT / "assets" / "configs.json").read_text(encoding="utf-8"))
    layouts = {}
    for entry in entries:
        ropes = {s.layout for la in read_hf_config(entry["config"]).layers if isinstance(s := la.spec, RopeSpec)}
        assert len(ropes) <= 1, entry["name"]
        layouts[entry["name"]] = next(iter(ropes), "")
    interleaved = {"cohere", "cohere2", "gptj", "glm", "glm4", "chatglm", "llama4", "llama4_text", "deepseek_v2",
                   "deepseek_v3"}  # fmt: skip
    by_type = {e["name"]: e["config"]["model_type"] in interleaved for e in entries if layouts[e["name"]]}
    assert {name: layouts[name] == "interleaved" for name in by_type} == by_type
    assert any("command" in n.lower() and layouts[n] == "interleaved" for n in layouts)


# ------------------------------------------------------------------ spelling and values


@pytest.mark.parametrize("key", ["rope_type", "type"])
@pytest.mark.parametrize("factor", [8, 8.0])
def test_llama3_299_rope_type_or_type_and_integer_or_float_factor(key, factor):
    made = spec_of(llama({key: "llama3"} | LLAMA3 | {"factor": factor}))
    assert made == RopeSpec(d_head=128, base=5e5, scaling="llama3", factor=8.0)
    assert made.inv_freq().tolist() == pytest.approx(frequencies(made), rel=1e-12)


def test_llama3_319_whole_numbers_everywhere():
    whole = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
             "original_max_position_embeddings": 8192}  # fmt: skip
    assert spec_of(llama(whole, rope_theta=500000)) == spec_of(llama({"rope_type": "llama3"} | LLAMA3))
    both = spec_of(llama({"rope_type": "llama3", "type": "llama3"} | LLAMA3))
    assert both == spec_of(llama(whole, rope_theta=500000))


@pytest.mark.parametrize("kind", ["yarn", "longrope"])
def test_transformers_38224_an_explicit_factor_wins_over_the_ratio_of_lengths(kind):
    more = LISTS if kind == "longrope" else {}
    scaling = {"rope_type": kind, "factor": 8.0, "original_max_position_embeddings": 32768} | more
    model = read_hf_config(llama(scaling))  # the lengths' ratio is 4
    spec = model.layers[0].spec
    assert spec.factor == 8.0
    (found,) = said(model, "262,144", "131,072")
    assert found.level == "warning"
    assert "factor" in found.field
    factor = 0.1 * math.log(8) + 1 if kind == "yarn" else math.sqrt(1 + math.log(8) / math.log(32768))
    assert rope_frequencies(spec).attention_factor == pytest.approx(factor, rel=1e-12)
    agreeing = read_hf_config(llama(scaling | {"factor": 4.0}))
    assert not [f for f in agreeing.findings if f.level == "warning"]
    without = read_hf_config(llama({k: v for k, v in scaling.items() if k != "factor"}))
    assert without.layers[0].spec.factor == 4.0
    assert said(without, "factor", "4")


GPT_OSS = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096,
    "truncate": False, "rope_theta": 150000,
}  # fmt: skip


def test_transformers_45887_yarn_nested_under_a_layer_type_works_its_truncate_too():
    nested = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": GPT_OSS}
    config = llama(rope_parameters=nested, layer_types=["sliding_attention", "full_attention"], head_dim=64)
    config.pop("rope_theta")
    made = {layer.layer_type: layer.spec for layer in read_hf_config(config).layers}
    assert made["sliding_attention"] == RopeSpec(d_head=64)
    full = made["full_attention"]
    assert (full.scaling, full.truncate, full.base) == ("yarn", False, 150000.0)
    value = next(e for e in reference("hf_rope.json")["entries"] if e["name"] == "gpt-oss-20b")["layers"]["all"][0]
    expected = torch.tensor(value["inv_freq"], dtype=torch.float64)
    torch.testing.assert_close(full.inv_freq(), expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
def test_vllm_28244_gpt_oss_ramp_and_attention_factor(spelling):
    spec = spec_of({"model_type": "gpt_oss", "head_dim": 64, "rope_theta": 150000, spelling: GPT_OSS})
    assert yarn_range(spec) == pytest.approx((8.092779, 17.398025), abs=5e-7)
    assert rope_frequencies(spec).attention_factor == pytest.approx(1.346574, abs=5e-7)
    report = pair_report(spec)
    assert (report.count("kept"), report.count("ramped"), report.count("divided")) == (9, 9, 14)


def test_transformers_42189_a_dropped_truncate_changes_the_ramp():
    spec = spec_of({"model_type": "gpt_oss", "head_dim": 64, "rope_theta": 150000, "rope_scaling": GPT_OSS})
    rounded = spec_of(
        {"model_type": "gpt_oss", "head_dim": 64, "rope_theta": 150000, "rope_scaling": GPT_OSS | {"truncate": True}}
    )
    assert yarn_range(rounded) == (8, 18)
    assert (spec.inv_freq() / rounded.inv_freq() - 1).abs().max() > 0.05


@pytest.mark.parametrize(("fast", "slow"), [(1.0, 32.0), (1, 2), (0.5, None)])
def test_torchtitan_3787_beta_fast_below_beta_slow_is_refused(fast, slow):
    scaling = {"rope_type": "yarn", "beta_fast": fast} | ({} if slow is None else {"beta_slow": slow}) | YARN
    message = refusal(llama(scaling))
    assert "beta_fast" in message
    assert f"at least beta_slow = {1 if slow is None else slow:g}" in message
    assert spec_of(llama({"rope_type": "yarn", "beta_fast": 2.0, "beta_slow": 2.0} | YARN)).beta_fast == 2.0


@pytest.mark.parametrize(("mscale", "scores"), [(0.707, 1.589626), (1.0, 1.873854)])
def test_transformers_47435_deepseeks_attention_factor_and_softmax_scale_are_both_reported(mscale, scores):
    model = read_hf_config(deepseek(mscale))
    made = attention_scales(model.layers[0].spec)
    assert made == pytest.approx((1.0, 1.0, scores), abs=5e-7)
    assert made.scores == pytest.approx((0.1 * mscale * math.log(40) + 1) ** 2, rel=1e-12)
    assert said(model, f"{scores:.6f}", "1.000000")
    assert (model.layers[0].spec.d_head, model.layers[0].head_dim) == (64, 192)


def test_mobius_548_the_two_scales_differ_where_the_mscales_do():
    config = deepseek(1.0)
    config["rope_scaling"]["mscale_all_dim"] = 0.707
    spec = spec_of(config)
    up, down = 0.1 * math.log(40) + 1, 0.0707 * math.log(40) + 1
    assert attention_scales(spec) == pytest.approx((up / down, up / down, down**2), rel=1e-12)
    for made in (transformers(spec), vllm(spec)):
        assert any("mscale_all_dim" in loss and f"{down**2:.6f}" in loss for loss in made.losses)


def test_transformers_47435_only_such_attention_has_the_extra_scale():
    """Llama's attention in transformers multiplies no scores, whatever mscale_all_dim says; cos and sin get g/g."""
    spec = spec_of(llama({"rope_type": "yarn", "mscale": 1.0, "mscale_all_dim": 0.707} | YARN))
    factor = (0.1 * math.log(4) + 1) / (0.0707 * math.log(4) + 1)
    assert attention_scales(spec) == pytest.approx((factor, factor, 1.0), rel=1e-12)


@pytest.mark.parametrize("kind", ["llama3", "yarn", "longrope"])
def test_megatron_lm_1418_the_two_lengths_are_two_fields(kind):
    """One is what the model reaches, the other what it was trained at; only the latter enters the frequencies."""
    more = {"llama3": LLAMA3, "yarn": YARN, "longrope": YARN | LISTS}[kind]
    made = read_hf_config(llama({"rope_type": kind} | more))
    assert (made.max_position_embeddings, made.original_max_position_embeddings) == (
        131072, more["original_max_position_embeddings"],
    )  # fmt: skip
    longer = spec_of(llama({"rope_type": kind} | more, max_position_embeddings=262144))
    equal_frequencies(longer, made.layers[0].spec)
    shorter = spec_of(llama({"rope_type": kind} | more | {"original_max_position_embeddings": 2048}))
    assert (shorter.inv_freq(4096) - made.layers[0].spec.inv_freq(4096)).abs().max() > 0


def test_llama_cpp_8995_longrope_chooses_by_the_sequence_never_by_the_cache():
    spec = spec_of(llama({"rope_type": "longrope"} | YARN | LISTS))
    rope, plain = spec.build(), RopeSpec(d_head=128, base=5e5).inv_freq()
    for last, divisors in (
        (0, "short_factor"),
        (32767, "short_factor"),
        (32768, "long_factor"),
        (131071, "long_factor"),
    ):
        cos = rope.tables(torch.tensor([1, last]), torch.float64)[0][0]
        expected = (plain / torch.tensor(LISTS[divisors], dtype=torch.float64)).cos() * rope.scales.tables
        torch.testing.assert_close(cos, expected, rtol=0, atol=1e-12)
    assert rope.attention_factor == pytest.approx(math.sqrt(1 + math.log(4) / math.log(32768)), rel=1e-12)


@pytest.mark.parametrize("absent", ["short_factor", "long_factor"])
@pytest.mark.parametrize("how", ["missing", "null", "empty"])
def test_mlxcel_1358_longrope_needs_both_lists(absent, how):
    scaling = {"rope_type": "longrope"} | YARN | LISTS
    if how == "missing":
        del scaling[absent]
    else:
        scaling[absent] = None if how == "null" else []
    assert absent in refusal(llama(scaling))


def test_llama_cpp_8676_llama3_keeps_29_ramps_6_and_divides_29():
    spec = spec_of(llama({"rope_type": "llama3"} | LLAMA3))
    report = pair_report(spec)
    assert report.action == ("kept",) * 29 + ("ramped",) * 6 + ("divided",) * 29
    by = report.divided_by.tolist()
    assert by[:29] == [1.0] * 29
    assert by[35:] == pytest.approx([8.0] * 29, rel=1e-12)
    assert all(1 < a < b < 8 for a, b in pairwise(by[29:35]))
    assert [w for w, d in zip(frequencies(spec), by, strict=True) if d == 1.0] == frequencies(
        RopeSpec(d_head=128, base=5e5)
    )[:29]


def test_mlx_vlm_1709_gemma_3_scales_its_global_layers_only():
    config = {
        "model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "num_hidden_layers": 34, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024, "sliding_window_pattern": 6,
    }  # fmt: skip
    new = {k: v for k, v in config.items() if not k.startswith("rope")} | {
        "layer_types": ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(34)],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    }
    new.pop("sliding_window_pattern")
    for one in (config, new, {"model_type": "gemma3", "text_config": config, "vision_config": {"hidden_size": 1152}}):
        layers = read_hf_config(one).layers
        assert len(layers) == 34
        for i, layer in enumerate(layers):
            if i % 6 == 5:
                assert layer.spec == RopeSpec(d_head=256, base=1e6, scaling="linear", factor=8.0)
                assert layer.layer_type == "full_attention"
            else:
                assert layer.spec == RopeSpec(d_head=256, base=1e4)
                assert layer.layer_type == "sliding_attention"


def test_ollama_13452_the_values_are_transformers():
    entry = next(e for e in reference("hf_rope.json")["entries"] if e["name"] == "gemma-3-4b-text")
    made = {layer.layer_type: layer.spec for layer in read_hf_config(entry["config"]).layers}
    assert set(made) == set(entry["layers"])
    for layer_type, (value,) in entry["layers"].items():
        expected = torch.tensor(value["inv_freq"], dtype=torch.float64)
        torch.testing.assert_close(made[layer_type].inv_freq(), expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize(
    ("model_type", "default"), [("llama", 1e4), ("gpt_oss", 150_000.0), ("mixtral", 1e6), ("cohere", 500_000.0)]
)
def test_vllm_42624_a_missing_base_is_the_architectures_default_with_a_finding(model_type, default):
    config = {k: v for k, v in LLAMA.items() if k != "rope_theta"} | {"model_type": model_type}
    model = read_hf_config(config)
    assert {layer.spec.base for layer in model.layers} == {default}
    told = [f for f in model.findings if f.level == "warning" and f.field in ("rope_theta", "rope_parameters")]
    assert any(f"{default:.0f}" in f.sentence.replace(",", "") for f in told), model.findings


@pytest.mark.parametrize("base", [20000.0, None])
def test_deepspeed_8345_a_nested_base_wins(base):
    outside = {"rope_theta": base}
    model = read_hf_config(LLAMA | outside | {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})
    assert model.layers[0].spec.base == 500000.0
    assert bool(said(model, "rope_theta", "20,000", "500,000")) == (base is not None)


@pytest.mark.parametrize("model_type", ["", "brandnew"])
def test_airllm_369_without_a_base_and_without_an_architecture_nothing_is_guessed(model_type):
    config = {k: v for k, v in LLAMA.items() if k not in ("rope_theta", "model_type")}
    assert "rope_theta" in refusal(config | ({"model_type": model_type} if model_type else {}))


OLD_AND_NEW = {
    "linear": ({"type": "linear", "factor": 8.0}, {"rope_type": "linear", "factor": 8.0}),
    "dynamic": ({"type": "dynamic", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0}),
    "yarn": ({"type": "yarn"} | YARN, {"rope_type": "yarn"} | YARN),
    "llama3": ({"type": "llama3"} | LLAMA3, {"rope_type": "llama3"} | LLAMA3),
    "longrope": ({"type": "su"} | YARN | LISTS, {"rope_type": "longrope"} | YARN | LISTS),
}


@pytest.mark.parametrize(("old", "new"), OLD_AND_NEW.values(), ids=OLD_AND_NEW)
def test_marinfold_184_old_and_new_spellings_give_equal_frequencies(old, new):
    a = spec_of(llama(old))
    config = {k: v for k, v in LLAMA.items() if k != "rope_theta"} | {"rope_parameters": new | {"rope_theta": 500000.0}}
    b = spec_of(config)
    assert a == b
    equal_frequencies(a, b)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 10000},
         {"model_type": "gpt_neox", "rope_parameters": {"rope_type": "default", "rope_theta": 10000,
                                                        "partial_rotary_factor": 0.25}}),
        ({"model_type": "phi", "partial_rotary_factor": 0.5, "rope_theta": 10000.0},
         {"model_type": "phi", "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    ],
)  # fmt: skip
def test_marinfold_184_old_and_new_names_of_partial_rotation(old, new):
    sizes = {"hidden_size": 2048, "num_attention_heads": 16}
    a, b = (spec_of(sizes | c) for c in (old, new))
    assert a == b
    assert a.rotary_dim == 128 * a.rotary_fraction


def test_vllm_3488_exports_say_where_two_engines_define_a_method_differently():
    spec = RopeSpec(d_head=128, scaling="dynamic", factor=4.0, original_max_position_embeddings=4096)
    made = vllm(spec)
    assert any("dynamic" in loss and "transformers" in loss and "vLLM" in loss for loss in made.losses)
    assert '"dynamic"' in made.text
    assert any("dynamic" in loss for loss in llama_cpp(spec).losses)
    assert llama_cpp(spec).text == ""
    assert said(read_hf_config(llama({"rope_type": "dynamic", "factor": 4.0})), "dynamic", "vllm", "transformers")
    plain = vllm(RopeSpec(d_head=128, scaling="linear", factor=4.0))
    assert plain.losses == ()
    fixed, sequence = spec.replace(dynamic_length="maximum"), spec
    assert fixed.inv_freq(1)[1] != sequence.inv_freq(1)[1]


def test_vllm_3488_the_fixed_variant_is_written_as_the_base_it_is():
    spec = RopeSpec(d_head=128, scaling="dynamic", factor=4.0, original_max_position_embeddings=4096,
                    dynamic_length="maximum")  # fmt: skip
    made = json.loads(transformers(spec).text)
    base = 10_000 * 13 ** (128 / 126)  # s² - s + 1 = 13
    assert made["rope_parameters"]["rope_theta"] == pytest.approx(base, rel=1e-9)
    assert transformers(spec).losses
    plain = RopeSpec(d_head=128, base=base)
    torch.testing.assert_close(spec.inv_freq(7), plain.inv_freq(), rtol=1e-12, atol=0)


def test_transformers_43756_no_rope_layers_1_means_the_layer_has_rope():
    config = {
        "model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4,
        "num_hidden_layers": 36, "rope_theta": 5e6, "no_rope_layers": [1, 1, 1, 0] * 9,
    }  # fmt: skip
    layers = read_hf_config(config).layers
    assert [i for i, layer in enumerate(layers) if layer.spec == NoneSpec()] == [3, 7, 11, 15, 19, 23, 27, 31, 35]
    assert all(layer.spec == RopeSpec(d_head=128, base=5e6) for i, layer in enumerate(layers) if i % 4 != 3)
    other = read_hf_config(config | {"no_rope_layers": [0, 1] + [1] * 34}).layers
    assert [i for i, layer in enumerate(other) if layer.spec == NoneSpec()] == [0]


def test_executorch_22043_the_interval_does_the_same_where_no_list_is_given():
    config = {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 36,
              "rope_theta": 5e6}  # fmt: skip
    for more in ({}, {"no_rope_layer_interval": 4}):
        layers = read_hf_config(config | more).layers
        assert [i for i, layer in enumerate(layers) if layer.spec == NoneSpec()] == list(range(3, 36, 4))
    llama4 = read_hf_config({"model_type": "llama4_text", "num_hidden_layers": 48, "rope_theta": 5e5})
    assert [i for i, layer in enumerate(llama4.layers) if layer.spec == NoneSpec()] == list(range(3, 48, 4))


# ------------------------------------------------------------------ biases


def test_transformers_8518_t5_has_no_bias_in_cross_attention():
    model = read_hf_config({"model_type": "t5", "num_layers": 2, "num_decoder_layers": 2, "num_heads": 8})
    kinds = {layer.layer_type: layer.spec for layer in model.layers}
    assert {k for k, s in kinds.items() if isinstance(s, T5Spec)} == {"encoder", "decoder"}
    assert said(model, "cross-attention", "no position")
    assert not [layer for layer in model.layers if "cross" in layer.layer_type and layer.spec != NoneSpec()]
    assert kinds["encoder"].bidirectional
    assert not kinds["decoder"].bidirectional


def test_baichuan2_225_the_app_says_why_40_slopes_are_not_monotonic():
    model = read_hf_config({"model_type": "baichuan", "hidden_size": 5120, "num_attention_heads": 40})
    assert model.layers[0].spec == AlibiSpec(n_heads=40)
    words = " ".join(f"{f.sentence} {f.action}" for f in model.findings)
    assert "40" in words
    assert any(w in words for w in ("not fall", "rise", "monoton", "power of two", "powers of two"))


# ------------------------------------------------------------------ refused and accepted


REFUSED = {
    "odd rotary dim": (llama(head_dim=65), "head_dim", "65"),
    "odd rotary dim from a fraction": (
        llama(head_dim=130, partial_rotary_factor=0.5, model_type="phi"), "partial_rotary_factor", "65",
    ),
    "base 1": (llama(rope_theta=1.0), "rope_theta", "1.0"),
    "base 0": (llama(rope_theta=0), "rope_theta", "0"),
    "base text": (llama(rope_theta="500000"), "rope_theta", "'500000'"),
    "fraction 0": (llama(partial_rotary_factor=0.0, model_type="phi"), "partial_rotary_factor", "0.0"),
    "fraction 1.5": (llama(partial_rotary_factor=1.5, model_type="phi"), "partial_rotary_factor", "1.5"),
    "unknown rope_type": (llama({"rope_type": "ntk", "factor": 8.0}), "rope_type", "'ntk'"),
    "conflict": (llama({"rope_type": "linear", "type": "yarn", "factor": 8.0}), "type", "yarn"),
    "factor text": (llama({"rope_type": "linear", "factor": "8"}), "factor", "'8'"),
    "factor nan": (llama({"rope_type": "linear", "factor": math.nan}), "factor", "nan"),
    "factor infinity": (llama({"rope_type": "linear", "factor": math.inf}), "factor", "inf"),
    "factor below 1": (llama({"rope_type": "linear", "factor": 0.5}), "factor", "0.5"),
    "factor true": (llama({"rope_type": "linear", "factor": True}), "factor", "True"),
    "factor missing": (llama({"rope_type": "linear"}), "factor", "missing"),
    "swapped betas": (llama({"rope_type": "yarn", "beta_fast": 1, "beta_slow": 32} | YARN), "beta_fast", "1"),
    "swapped thresholds": (
        llama({"rope_type": "llama3"} | LLAMA3 | {"low_freq_factor": 4.0, "high_freq_factor": 1.0}), "high_freq_factor",
        "1.0",
    ),
    "short list": (
        llama({"rope_type": "longrope"} | YARN | LISTS | {"short_factor": [1.0] * 63}), "short_factor", "63 given",
    ),
    "sections": (
        llama({"rope_type": "default", "mrope_section": [16, 24, 23]}, model_type="qwen2_vl"), "mrope_section", "63",
    ),
    "dynamic with rotary dim 2": (llama({"rope_type": "dynamic", "factor": 2.0}, head_dim=2), "", "at least 4"),
}  # fmt: skip


@pytest.mark.parametrize(("config", "name", "value"), REFUSED.values(), ids=REFUSED)
def test_refused_configs_name_the_field_and_the_value(config, name, value):
    with pytest.raises(SpecError) as caught:
        read_hf_config(config)
    assert any(name in p.name and value in str(p) and p.legal for p in caught.value.problems), caught.value


def test_refused_an_unknown_rope_type_lists_the_known_ones():
    message = refusal(llama({"rope_type": "ntk", "factor": 8.0}))
    assert all(t in message for t in ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"))


def test_refused_a_value_has_no_effect_on_other_complaints():
    """One fault, one problem: fields that were not reached are not called unknown."""
    for config, *_ in REFUSED.values():
        with pytest.raises(SpecError) as caught:
            read_hf_config(config)
        assert len(caught.value.problems) == 1, caught.value


def test_accepted_configs():
    scout = spec_of(llama({"rope_type": "llama3"} | LLAMA3 | {"factor": 16.0, "high_freq_factor": 1.0}))
    report = pair_report(scout)
    assert (report.count("kept"), report.count("ramped"), report.count("divided")) == (35, 0, 29)
    assert scout.inv_freq().isfinite().all()
    assert spec_of(llama({"type": "linear", "factor": 8})) == RopeSpec(
        d_head=128, base=5e5, scaling="linear", factor=8.0
    )
    for truncate in (True, False):
        assert spec_of(llama({"rope_type": "yarn", "truncate": truncate} | YARN)).truncate is truncate


# ------------------------------------------------------------------ a spec in every target's words comes back


@pytest.mark.parametrize("write", [transformers, transformers_legacy])
@pytest.mark.parametrize("old", [o for o, _ in OLD_AND_NEW.values()], ids=OLD_AND_NEW)
def test_what_was_read_is_written_and_read_again(old, write):
    model = read_hf_config(llama(old))
    again = read_hf_config(json.loads(write(model).text))
    assert [layer.spec for layer in again.layers] == [layer.spec for layer in model.layers]


def test_every_target_takes_or_refuses_every_scaling():
    for old, _ in OLD_AND_NEW.values():
        for made in exports(read_hf_config(llama(old))):
            assert made.content or made.losses, made.name


# ------------------------------------------------------------------ the table is complete


MODULES = ("test_cases", "test_cases_configs")


def named_tests():
    modules = [importlib.import_module(m) for m in MODULES]
    return {name: value for m in modules for name, value in vars(m).items() if name.startswith("test_")}


def table():
    rows = [line.split("\t") for line in (DATA / "cases.tsv").read_text(encoding="utf-8").splitlines()]
    assert rows[0] == ["report", "what must hold", "test"]
    return rows[1:]


def prefix(report):
    """test_llama_cpp_8676_ of llama.cpp#8676; test_refused_ and test_accepted_ of what is no report."""
    repository, _, number = report.partition("#")
    return f"test_{re.sub(r'[^a-z0-9]', '_', repository.split('/')[-1].lower())}_" + (f"{number}_" if number else "")


def test_every_report_of_the_table_has_its_test():
    rows, found = table(), named_tests()
    assert len({report for report, _, _ in rows if "#" in report}) == 60
    assert len([report for report, _, _ in rows if "#" not in report]) == 14
    for report, holds, test in rows:
        assert callable(found.get(test)), f"{report} has no test {test}"
        assert test.startswith(prefix(report.partition(":")[0])), f"{test} does not say {report}"
        assert len(holds.split()) >= 5, report


def test_every_test_of_a_report_is_in_the_table():
    prefixes = tuple(prefix(report.partition(":")[0]) for report, _, _ in table())
    strangers = [name for name in named_tests() if not name.startswith(prefixes)]
    assert strangers == [
        "test_what_was_read_is_written_and_read_again",
        "test_every_target_takes_or_refuses_every_scaling",
        "test_every_report_of_the_table_has_its_test",
        "test_every_test_of_a_report_is_in_the_table",
    ]
