"""Exports: the same encoding in other programs' words, by a second reading of those words; what cannot be said is told.

vLLM and llama.cpp are read by short readers here, written from what those programs do; transformers' values are in
data/hf_export.json, computed by transformers from configs that this module wrote.
"""

from __future__ import annotations

import copy
import io
import json
import math
import shlex
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings

from posenc_core import SCHEMES, SpecError, build, export, export_config, parse_spec, read_hf_config, rope_frequencies
from posenc_core.export import EXPORTS, Export, exports
from posenc_core.frequencies import SCALINGS, attention_scales
from posenc_core.schemes.alibi import AlibiSpec, alibi_slopes
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.schemes.t5 import T5Spec
from tests.core import support

POSITIONS = torch.tensor([0, 1, 2, 17, 100, 4095, 20_000])
LONG = {"original_max_position_embeddings": 4096}
SCALED = {
    "none": {},
    "linear": {"factor": 4.0},
    "ntk": {"factor": 4.0},
    "ntk_by_parts": {"factor": 4.0, **LONG},
    "dynamic": {"factor": 2.0, **LONG},
    "yarn": {"factor": 16.0, **LONG},
    "longrope": {"factor": 8.0, **LONG},
    "llama3": {"factor": 8.0, **LONG},
    "proportional": {"factor": 2.0},
}
SPECS = [
    RopeSpec(d_head=64, base=1e5, scaling=scaling, rotary_fraction=fraction, layout=layout, **fields)
    for scaling, fields in SCALED.items()
    for fraction in (1.0, 0.5)
    for layout in ("half", "interleaved")
] + [
    RopeSpec(scaling="yarn", factor=4.0, ramp="rotations", **LONG),
    RopeSpec(scaling="yarn", factor=4.0, truncate=False, **LONG),
    RopeSpec(scaling="yarn", factor=40.0, mscale=0.707, mscale_all_dim=0.707, **LONG),
    RopeSpec(scaling="yarn", factor=4.0, attention_on="scores", **LONG),
    RopeSpec(scaling="dynamic", factor=4.0, dynamic_length="maximum", **LONG),
    RopeSpec(scaling="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0),
    RopeSpec(d_head=8, scaling="longrope", factor=4.0, short_factor=(1.0, 1.1, 1.2, 1.3),
             long_factor=(1.0, 2.0, 3.0, 4.0), attention_factor=1.25, **LONG),
]  # fmt: skip
IDS = [",".join(f"{k}={v}" for k, v in s.to_query().items() if k != "scheme") for s in SPECS]


def as_shell(text: str) -> list[str]:
    """The words that a shell makes of options on several lines."""
    return shlex.split(text.replace("\\\n", " "))


def losses_of(made: Export) -> str:
    return " ".join(made.losses)


def test_the_samples_hold_every_scaling() -> None:
    assert SCALED.keys() == SCALINGS.keys()


# ------------------------------------------------------------------ every target, every scheme


@pytest.mark.parametrize("target", EXPORTS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_written_or_told_why_not(scheme: str, target: str) -> None:
    made = EXPORTS[target](SCHEMES[scheme]())
    assert made.content or made.losses
    assert all(loss.strip() == loss and loss[-1] in ".)" for loss in made.losses)
    assert len(set(made.losses)) == len(made.losses)


@given(support.any_spec())
@settings(max_examples=60, deadline=None)
def test_no_spec_is_too_odd_to_export(spec) -> None:
    for made in exports(spec):
        assert made.content or made.losses


def test_names_differ_and_bytes_are_npz() -> None:
    made = exports(RopeSpec())
    assert len({e.name for e in made}) == len(EXPORTS)
    assert [e.language for e in made if isinstance(e.content, bytes)] == ["npz"]
    assert made[-1].text == ""


@pytest.mark.parametrize(
    ("spec", "target", "words"),
    [
        (RopeSpec(layout="interleaved"), "transformers", ["layout = interleaved"]),
        (RopeSpec(layout="interleaved"), "llama_cpp", ["layout = interleaved"]),
        (RopeSpec(scaling="ntk", factor=4.0), "transformers", ["scaling = ntk", "written as rope_theta"]),
        (RopeSpec(scaling="ntk", factor=4.0), "llama_cpp", ["scaling = ntk", "written as --rope-freq-base"]),
        (RopeSpec(scaling="ntk_by_parts", factor=4.0), "vllm", ["ntk_by_parts", "attention_factor = 1"]),
        (RopeSpec(scaling="yarn", factor=4.0, ramp="rotations"), "vllm", ["ramp = rotations", "%"]),
        (RopeSpec(scaling="yarn", factor=4.0, ramp="rotations"), "llama_cpp", ["ramp = rotations"]),
        (RopeSpec(scaling="yarn", factor=4.0, attention_on="scores"), "transformers", ["attention_on", "equal scores"]),
        (RopeSpec(scaling="yarn", factor=4.0, attention_on="scores", rotary_fraction=0.5), "transformers",
         ["attention_on", "32 features that do not turn", "scores differ"]),
        (RopeSpec(scaling="yarn", factor=4.0, truncate=False), "llama_cpp", ["truncate = false"]),
        (RopeSpec(scaling="dynamic", factor=2.0, dynamic_length="maximum"), "transformers", ["dynamic_length"]),
        (RopeSpec(scaling="dynamic", factor=2.0), "vllm", ["vllm-project/vllm#3488", "factor = 2"]),
        (RopeSpec(scaling="dynamic", factor=2.0), "llama_cpp", ["scaling = dynamic", "factor = 2"]),
        (RopeSpec(scaling="yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0), "transformers",
         ["mscale_all_dim = 1", "1.873854"]),
        (RopeSpec(scaling="yarn", factor=40.0, mscale=0.707, mscale_all_dim=0.707), "llama_cpp",
         ["mscale_all_dim = 0.707", "1.589626"]),
        (RopeSpec(scaling="longrope", factor=4.0), "transformers", ["short_factor and long_factor", "32 numbers"]),
        (RopeSpec(scaling="longrope", factor=4.0), "vllm", ["--max-model-len", "8,192"]),
        (RopeSpec(scaling="longrope", factor=4.0), "llama_cpp", ["longrope", "llama.cpp#8995"]),
        (RopeSpec(scaling="llama3", factor=8.0), "llama_cpp", ["llama3", "rope_freqs"]),
        (RopeSpec(scaling="proportional", factor=2.0, rotary_fraction=0.5), "vllm", ["factor = 2"]),
        (RopeSpec(scaling="proportional", rotary_fraction=0.5), "transformers_legacy", ["proportional", "version 5"]),
        (RopeSpec(rotary_fraction=0.25), "transformers", ["rotary_fraction", "Llama's code does not"]),
        (RopeSpec(rotary_fraction=0.25), "llama_cpp", ["rotary_fraction = 0.25", "dimension_count = 16"]),
        (RopeSpec(mrope_section=(8, 12, 12)), "pytorch", ["mrope_section = 8,12,12"]),
        (AlibiSpec(variant="symmetric"), "transformers", ["variant = symmetric"]),
        (AlibiSpec(n_heads=2, slopes=(1.0, 2.0)), "transformers", ["slopes = 1,2"]),
        (LearnedSpec(offset=1), "transformers", ["offset = 1"]),
        (LearnedSpec(), "npz", ["learned", "weights"]),
        (HybridSpec(), "transformers", ["alibi", "rope"]),
        (HybridSpec(layers=(RopeSpec(), NoneSpec())), "transformers", ["no_rope_layers", "1 means"]),
        (HybridSpec(layers=(RopeSpec(), NoneSpec())), "llama_cpp", ["layers without positions"]),
        (HybridSpec(layers=(RopeSpec(), RopeSpec(base=1e6))), "llama_cpp", ["2 different rotations"]),
        (HybridSpec(layers=(RopeSpec(), RopeSpec(d_head=128))), "transformers", ["d_head = 64, 128", "head_dim"]),
        (HybridSpec(layers=tuple(RopeSpec(base=b) for b in (1e3, 1e4, 1e5, 1e6))), "transformers", ["4 different"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_a_target_cannot_say_is_told_with_its_value(spec, target: str, words: list[str]) -> None:
    told = losses_of(EXPORTS[target](spec))
    for word in words:
        assert word in told, told


# ------------------------------------------------------------------ transformers


def as_config(made: Export, spec: RopeSpec) -> dict:
    """A llama's config.json with the exported fields in it."""
    fields = json.loads(made.text)
    plain = {
        "model_type": "llama", "hidden_size": 4 * spec.d_head, "num_attention_heads": 4, "num_hidden_layers": 1,
        "max_position_embeddings": 131_072,
    }  # fmt: skip
    return plain | fields


def in_config_words(spec: RopeSpec) -> RopeSpec:
    """What transformers can say of a spec that it can say: lists written out, one layout."""
    if spec.scaling == "longrope":
        pairs = spec.rotary_dim // 2
        spec = spec.replace(
            short_factor=spec.short_factor or (1.0,) * pairs,
            long_factor=spec.long_factor or (spec.factor,) * pairs,
        )
    return spec.replace(layout="half")


SAID = ("none", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")


def says(spec: RopeSpec) -> bool:
    """Whether transformers has words, in a Llama's config, for all of a spec but its layout."""
    usual = spec.ramp == "index" and spec.attention_on == "cos_sin" and spec.dynamic_length == "sequence"
    return spec.scaling in SAID and usual and not spec.mscale_all_dim  # which DeepSeek's models read


@pytest.mark.parametrize("target", ["transformers", "transformers_legacy"])
@given(spec=support.specs(RopeSpec))
@settings(max_examples=150, deadline=None)
def test_config_to_spec_to_config_is_lossless(target: str, spec: RopeSpec) -> None:
    assume(says(spec))
    made = EXPORTS[target](spec)
    read = read_hf_config(as_config(made, spec))
    assert read.layers[0].spec == in_config_words(spec)
    again = EXPORTS[target](read.layers[0].spec)
    assert again.text == made.text
    assert not any("written as" in loss for loss in made.losses)


@pytest.mark.parametrize("target", ["transformers", "transformers_legacy"])
@pytest.mark.parametrize(
    "spec",
    [
        RopeSpec(d_head=128, scaling="ntk", factor=4.0),
        RopeSpec(d_head=128, scaling="ntk_by_parts", factor=4.0, **LONG),
        RopeSpec(d_head=128, scaling="dynamic", factor=4.0, dynamic_length="maximum", **LONG),
        RopeSpec(d_head=128, scaling="ntk_by_parts", factor=4.0, rotary_fraction=0.5, truncate=False, **LONG),
    ],
    ids=lambda spec: spec.scaling,
)
def test_what_has_no_name_is_written_as_its_equal(target: str, spec: RopeSpec) -> None:
    made = EXPORTS[target](spec)
    assert "written as" in losses_of(made)
    read = read_hf_config(as_config(made, spec)).layers[0].spec
    assert read.scaling in ("none", "yarn")
    for length in (None, 4096, 100_000):
        ours, theirs = rope_frequencies(spec, length), rope_frequencies(read, length)
        torch.testing.assert_close(theirs.inv_freq, ours.inv_freq, rtol=1e-12, atol=0)
        assert theirs.attention_factor == ours.attention_factor == 1.0


@pytest.mark.parametrize(
    "spec",
    [
        LearnedSpec(max_position_embeddings=512, d_model=768),
        LearnedSpec(max_position_embeddings=514, d_model=1024, offset=2),
        AlibiSpec(n_heads=12),
        HybridSpec(layers=(AlibiSpec(n_heads=16),) * 3),
    ],
    ids=lambda spec: spec.scheme,
)
def test_schemes_without_rotation_read_the_same_after_a_round_trip(spec) -> None:
    made = export.transformers(spec)
    assert made.losses == ()
    layers = read_hf_config(json.loads(made.text)).layers
    assert {layer.spec for layer in layers} == set(getattr(spec, "layers", (spec,)))
    assert len(layers) == len(getattr(spec, "layers", (spec,)))


def test_the_difference_of_the_ramps_is_computed() -> None:
    spec = RopeSpec(d_head=128, scaling="yarn", factor=4.0, ramp="rotations", **LONG)
    told = losses_of(export.transformers(spec))
    ratio = rope_frequencies(spec).inv_freq / rope_frequencies(spec.replace(ramp="index")).inv_freq
    off = max(float(ratio.max()), 1 / float(ratio.min())) - 1
    assert f"{100 * off:.3g}%" in told


def test_layers_with_two_rotations_are_nested_by_layer_type() -> None:
    local, full = RopeSpec(d_head=256), RopeSpec(d_head=256, base=1e6, scaling="linear", factor=8.0)
    made = json.loads(export.transformers(HybridSpec(layers=(local, local, full))).text)
    types = made["layer_types"]
    assert types[0] == types[1] != types[2]
    assert made["rope_parameters"][types[0]] == {"rope_type": "default", "rope_theta": 1e4}
    assert made["rope_parameters"][types[2]] == {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}


def test_layers_without_rope_are_zeros() -> None:
    made = json.loads(export.transformers(HybridSpec(layers=(*[RopeSpec()] * 3, NoneSpec()))).text)
    assert made["no_rope_layers"] == [1, 1, 1, 0]


GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8, "head_dim": 256,
    "num_hidden_layers": 12, "max_position_embeddings": 131_072, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024, "sliding_window_pattern": 6,
}  # fmt: skip
PUBLIC = json.loads((support.ROOT / "assets" / "configs.json").read_text())
CONFIGS: dict[str, dict] = (
    {e["name"]: e["config"] for e in support.reference("hf_rope.json")["entries"]}
    | {e["name"]: e["config"] for e in PUBLIC}
    | {
        "glm": {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 2,
                "kv_channels": 128, "rope_ratio": 500, "seq_length": 131_072},
        "gpt-j": {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 2, "rotary_dim": 64},
        "multimodal": {"model_type": "gemma3", "text_config": GEMMA},
    }
)  # fmt: skip


def effective(config: dict) -> list:
    return [(x.spec, x.layer_type, x.window, x.head_dim) for x in read_hf_config(config).layers]


@pytest.mark.parametrize("target", ["transformers", "transformers_legacy"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_models_config_reads_the_same_after_a_round_trip(name: str, target: str) -> None:
    made = EXPORTS[target](read_hf_config(CONFIGS[name]))
    if target == "transformers_legacy" and CONFIGS[name]["model_type"].startswith("gemma4"):
        assert made.text == ""
        assert "differ by more than the base" in losses_of(made)
        return
    assert effective(json.loads(made.text)) == effective(CONFIGS[name])
    assert not any(word in losses_of(made) for word in ("layout", "without positions", "mscale_all_dim"))


def changed(config: dict, random: Random) -> dict:
    """A config with a few fields gone, replaced, or taken from another model."""
    made = copy.deepcopy(config)
    values = (0, 1, 2, 4, 8, 64, 128, 4096, 0.5, 1e6, None, True, False, "x", [], {}, {"type": "linear", "factor": 2})
    for _ in range(random.randint(1, 3)):
        other = random.choice(list(CONFIGS.values()))
        name, chance = random.choice(list(made)), random.random()
        if chance < 0.3 and len(made) > 1:
            made.pop(name)
        elif chance < 0.7:
            made[name] = random.choice(values)
        else:
            name = random.choice(list(other))
            made[name] = copy.deepcopy(other[name])
    return made


def test_a_changed_config_is_refused_or_exported_without_a_silent_loss() -> None:
    random, read = Random(0), 0
    for _ in range(200):
        config = changed(random.choice(list(CONFIGS.values())), random)
        try:
            encoding = read_hf_config(config)
        except SpecError:
            continue
        read += 1
        for target in EXPORTS.keys() - {"npz"}:
            made = EXPORTS[target](encoding)
            assert made.content or made.losses
            if made.text and target.startswith("transformers") and not made.losses:
                assert effective(json.loads(made.text)) == effective(config)
    assert read > 40


def test_old_names_stay_the_models_own() -> None:
    made = json.loads(export.transformers_legacy(read_hf_config(CONFIGS["pythia-6.9b"])).text)
    assert (made["rotary_pct"], made["rotary_emb_base"]) == (0.25, 10_000)
    assert not {"rope_theta", "partial_rotary_factor"} & made.keys()
    made = json.loads(export.transformers(read_hf_config(CONFIGS["gpt-j"])).text)
    assert made["rotary_dim"] == 64
    assert made["rope_parameters"] == {"rope_type": "default", "rope_theta": 10_000.0}


def test_a_multimodal_models_override_stands_under_text_config() -> None:
    override = json.loads(as_shell(export.vllm(read_hf_config(CONFIGS["multimodal"])).text)[1])
    assert override["text_config"]["rope_parameters"]["full_attention"]["factor"] == 8.0
    assert override.keys() == {"text_config"}


ORACLE = support.reference("hf_export.json")


@pytest.mark.parametrize("entry", ORACLE["entries"], ids=lambda e: e["name"])
def test_transformers_computes_the_same_from_what_was_written(entry) -> None:
    """The configs were written by this module and read by transformers; both ends are held."""
    spec = parse_spec(entry["spec"])
    assert as_config(export.transformers(spec), spec) == entry["config"]
    for made in entry["frequencies"]:
        ours = rope_frequencies(spec, made["seq_len"])
        theirs = torch.tensor(made["inv_freq"], dtype=torch.float64)
        torch.testing.assert_close(theirs, ours.inv_freq, rtol=2e-6, atol=0)
        assert made["attention_factor"] == pytest.approx(ours.attention_factor, abs=1e-6)


def test_the_oracle_covers_every_scaling() -> None:
    assert {e["spec"]["scaling"] for e in ORACLE["entries"]} == SCALINGS.keys()


# ------------------------------------------------------------------ what a spec does not hold

SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4, "max_position_embeddings": 262_144}
MINISTRAL3 = SIZES | {
    "model_type": "ministral3", "head_dim": 128, "num_key_value_heads": 8, "sliding_window": None,
    "rope_parameters": {
        "rope_type": "yarn", "type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16_384,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 1e6,
        "llama_4_scaling_beta": 0.1,
    },
}  # fmt: skip
LLAMA4 = SIZES | {"model_type": "llama4_text", "rope_theta": 5e5, "head_dim": 128, "attn_temperature_tuning": True,
                  "floor_scale": 4096, "attn_scale": 0.2}  # fmt: skip
HUNYUAN = SIZES | {
    "model_type": "hunyuan_v1_dense", "head_dim": 128, "rope_theta": 1e4,
    "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
                     "mscale": 1.0, "mscale_all_dim": 0.0},
}  # fmt: skip
GLM = {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 4, "kv_channels": 128,
       "rope_ratio": 500, "seq_length": 131_072, "original_rope": True}  # fmt: skip
DBRX = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 4, "max_seq_len": 32_768,
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500_000}}  # fmt: skip
MORE: dict[str, dict] = CONFIGS | {
    "ministral 3": MINISTRAL3,
    "ministral 3, by its defaults": {k: v for k, v in MINISTRAL3.items() if k != "rope_parameters"},
    "mistral 3, multimodal": {"model_type": "mistral3", "text_config": MINISTRAL3},
    "llama 4": LLAMA4,
    "llama 4, multimodal": {"model_type": "llama4", "text_config": LLAMA4},
    "hunyuan": HUNYUAN,
    "hunyuan, alpha past the range": HUNYUAN | {"rope_scaling": {"type": "dynamic", "alpha": 1e5, "factor": 1.0}},
    "glm-4-9b-chat": GLM,
    "chatglm without a ratio": {k: v for k, v in GLM.items() if k != "rope_ratio"},
    "dbrx": DBRX,
    "qwen3-vl": SIZES | {"model_type": "qwen3_vl_text", "head_dim": 128, "rope_theta": 5e6, "rope_scaling": {
        "rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True}},
    "qwen3-vl, not interleaved": SIZES | {"model_type": "qwen3_vl_text", "head_dim": 128, "rope_theta": 5e6,
        "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": False}},
    "phi-3.5-moe": SIZES | {"model_type": "phimoe", "rope_theta": 1e4, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0] * 64, "long_factor": [4.0] * 64, "short_mscale": 1.2,
        "long_mscale": 1.2, "original_max_position_embeddings": 4096}},
    "stablelm, the whole head": SIZES | {"model_type": "stablelm", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
    "gpt-oss, unscaled": SIZES | {"model_type": "gpt_oss", "head_dim": 64, "rope_theta": 1e4,
                                  "rope_scaling": {"rope_type": "default"}},
    "modernbert, one base": SIZES | {"model_type": "modernbert", "rope_parameters": {
        t: {"rope_type": "default", "rope_theta": 5e4} for t in ("full_attention", "sliding_attention")}},
}  # fmt: skip
# What an export mends by writing it out.
MENDED = {"base-missing", "default-used", "factor-from-lengths", "rope-default", "rope-ratio", "yarn-original-missing"}


def said(config: dict) -> set[tuple[str, str]]:
    """(code, field) of the findings on what a model does."""
    found = {(f.code, f.field.rsplit(".", 1)[-1]) for f in read_hf_config(config).findings}
    return {(c, "" if f.startswith("rope_") else f) for c, f in found if c not in MENDED}


def overridden(config: dict, override: dict) -> dict:
    """The config after vLLM has laid an override over it: the new spelling takes the old one's place."""
    old = {"rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq", "partial_rotary_factor"}
    gone = old if "rope_parameters" in override else set()
    made = {k: v for k, v in config.items() if k not in gone}
    for name, value in override.items():
        inside = isinstance(value, dict) and name in made
        made[name] = overridden(made[name], value) if inside else value
    return made


@pytest.mark.parametrize("target", ["transformers", "transformers_legacy", "vllm"])
@pytest.mark.parametrize("name", MORE)
def test_what_is_written_without_a_loss_says_all_that_the_config_said(name: str, target: str) -> None:
    config = MORE[name]
    made = EXPORTS[target](read_hf_config(config))
    assert "Read back" not in losses_of(made)
    if not made.text:
        assert made.losses
        return
    vllm = target == "vllm"
    written = overridden(config, json.loads(as_shell(made.text)[1])) if vllm else json.loads(made.text)
    assert effective(written) == effective(config)
    assert said(written) == said(config)


def rope_dict(target: str, config: dict) -> dict:
    made = json.loads(EXPORTS[target](read_hf_config(config)).text)
    made = made.get("text_config", made)
    return made["rope_scaling" if target == "transformers_legacy" else "rope_parameters"]


@pytest.mark.parametrize("target", ["transformers", "transformers_legacy"])
@pytest.mark.parametrize("name", [n for n in MORE if n.startswith(("ministral", "mistral 3"))])
def test_the_scaling_of_ministrals_queries_is_kept(name: str, target: str) -> None:
    made = rope_dict(target, MORE[name])
    assert made["llama_4_scaling_beta"] == 0.1
    assert (made["mscale"], made["mscale_all_dim"]) == (1.0, 1.0)
    assert "attention_factor" not in made


@pytest.mark.parametrize("target", ["transformers", "transformers_legacy"])
def test_hunyuan_keeps_its_alpha(target: str) -> None:
    for config in (HUNYUAN, MORE["hunyuan, alpha past the range"]):
        made = rope_dict(target, config)
        assert (made["rope_type"], made["alpha"]) == ("dynamic", config["rope_scaling"]["alpha"])
        assert EXPORTS[target](read_hf_config(config)).losses == ()
    assert rope_dict("transformers", HUNYUAN)["rope_theta"] == 1e4


@pytest.mark.parametrize(("ratio", "given"), [(500, {}), (1.0, {"rope_ratio": None}), (100, {"rope_theta": 1e6})])
def test_chatglm_keeps_rope_ratio_alone(ratio: float, given: dict) -> None:
    encoding = read_hf_config(GLM | given | ({"rope_ratio": None} if given else {}))
    for target in ("transformers", "transformers_legacy"):
        made = json.loads(EXPORTS[target](encoding).text)
        assert made["rope_ratio"] == ratio
        assert not {"rope_theta", "rope_parameters", "rope_scaling"} & made.keys()
    assert json.loads(as_shell(export.vllm(encoding).text)[1]) == {"rope_ratio": ratio}


def test_a_scaling_that_chatglm_cannot_have_is_a_loss() -> None:
    scaled = {"rope_scaling": {"type": "linear", "factor": 2.0}}
    for target in ("transformers", "transformers_legacy", "vllm"):
        assert "scaling = linear: ChatGLM's code" in losses_of(EXPORTS[target](read_hf_config(GLM | scaled)))


def test_dbrx_keeps_its_base_where_its_code_reads_it() -> None:
    encoding = read_hf_config(DBRX)
    new, old = (json.loads(make(encoding).text) for make in (export.transformers, export.transformers_legacy))
    assert new["rope_parameters"]["rope_theta"] == new["attn_config"]["rope_theta"] == 500_000
    assert old["attn_config"]["rope_theta"] == 500_000
    assert "rope_theta" not in old
    override = json.loads(as_shell(export.vllm(encoding).text)[1])
    assert override["attn_config"]["rope_theta"] == 500_000
    other = read_hf_config(DBRX | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7e5}})
    made = export.transformers_legacy(other)
    assert json.loads(made.text)["attn_config"]["rope_theta"] == 7e5
    for told in (made, export.vllm(other)):
        assert "scaling = linear" in losses_of(told)


@pytest.mark.parametrize("target", ["llama_cpp", "pytorch", "npz"])
@pytest.mark.parametrize(
    ("config", "words"),
    [(MINISTRAL3, ["llama_4_scaling_beta", "0.1", "16,384"]), (LLAMA4, ["attn_temperature_tuning", "0.2", "4,096"])],
    ids=["ministral3", "llama4"],
)
def test_targets_of_frequencies_alone_tell_what_happens_to_the_queries(config, words: list[str], target: str) -> None:
    told = losses_of(EXPORTS[target](read_hf_config(config)))
    assert all(word in told for word in words), told
    without = {k: v for k, v in config.items() if k not in ("attn_temperature_tuning", "rope_parameters")}
    without |= {"attn_temperature_tuning": False} if config is LLAMA4 else {"rope_parameters": {
        k: v for k, v in MINISTRAL3["rope_parameters"].items() if k != "llama_4_scaling_beta"}}  # fmt: skip
    assert words[0] not in losses_of(EXPORTS[target](read_hf_config(without)))


def test_an_override_holds_llama_4s_temperature() -> None:
    override = json.loads(as_shell(export.vllm(read_hf_config(MORE["llama 4, multimodal"])).text)[1])["text_config"]
    assert (override["attn_temperature_tuning"], override["floor_scale"], override["attn_scale"]) == (True, 4096, 0.2)


def test_a_field_lost_on_the_way_is_told() -> None:
    """The self-check sees findings, not layers alone."""
    encoding = read_hf_config(MINISTRAL3)
    written = json.loads(export.transformers(encoding).text)
    del written["rope_parameters"]["llama_4_scaling_beta"]
    assert export_config._differences(encoding, written) == [
        "Read back, these fields lose the finding query-scaling (rope_parameters.llama_4_scaling_beta)."
    ]
    assert export_config._differences(encoding, {}) != []


def test_a_type_that_transformers_does_not_hold_reads_the_old_spelling() -> None:
    encoding = read_hf_config(SIZES | {"model_type": "internlm2", "rope_theta": 1e6})
    assert "code beside the weights reads the old spelling" in losses_of(export.transformers(encoding))
    assert export.transformers_legacy(encoding).losses == ()


def test_old_names_are_those_of_the_class() -> None:
    new = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": 0.5}}
    made = json.loads(export.transformers_legacy(read_hf_config(SIZES | {"model_type": "gpt_neox"} | new)).text)
    assert (made["rotary_emb_base"], made["rotary_pct"]) == (5e4, 0.5)
    assert not {"rope_theta", "partial_rotary_factor"} & made.keys()
    made = json.loads(export.transformers_legacy(read_hf_config(MORE["modernbert, one base"])).text)
    assert (made["global_rope_theta"], made["local_rope_theta"]) == (5e4, 5e4)


def test_one_rotation_is_written_for_each_layer_type_where_the_class_reads_it_so() -> None:
    """Gemma 3 reads no flat rope_parameters; the old spelling has no scaled rotation for its sliding layers."""
    both = {t: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6} for t in ("full_attention",
                                                                                  "sliding_attention")}  # fmt: skip
    config = {k: v for k, v in GEMMA.items() if not k.startswith("rope_")} | {"rope_parameters": both}
    made = export.transformers(read_hf_config(config))
    assert (json.loads(made.text)["rope_parameters"], made.losses) == (both, ())
    assert "do not give the same layers" in losses_of(export.transformers_legacy(read_hf_config(config)))


def test_layers_with_two_rotations_have_no_old_spelling_where_the_class_has_one() -> None:
    types = ["sliding_attention", "full_attention"] * 2
    full = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "rope_theta": 5e5}
    for model_type, local, text in (("llama", 1e4, False), ("olmo3", 5e5, True), ("olmo3", 1e4, False)):
        both = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": local}}
        config = SIZES | {"model_type": model_type, "layer_types": types, "sliding_window": 4096,
                          "rope_parameters": both}  # fmt: skip
        made = export.transformers_legacy(read_hf_config(config))
        assert bool(made.text) == text
        assert (made.losses == ()) == text
        if text:
            assert effective(json.loads(made.text)) == effective(config)
            assert "rope_local_base_freq" not in made.text


@pytest.mark.parametrize("entry", ORACLE["models"], ids=lambda e: f"{e['name']}-{e['target']}")
def test_a_models_own_class_finds_what_it_reads(entry) -> None:
    """The configs were written by this module and read by the class of their model_type; both ends are held."""
    encoding = read_hf_config(entry["given"])
    assert json.loads(EXPORTS[entry["target"]](encoding).text) == entry["config"]
    spec = next(layer.spec for layer in encoding.layers if isinstance(layer.spec, RopeSpec))
    theirs = torch.tensor(entry["inv_freq"], dtype=torch.float64)
    torch.testing.assert_close(theirs, rope_frequencies(spec).inv_freq, rtol=2e-6, atol=0)
    assert entry["attention_factor"] == pytest.approx(attention_scales(spec).attention_factor, abs=1e-6)
    given = entry["given"] | entry["given"].get("rope_parameters", {}) | (entry["given"].get("rope_scaling") or {})
    assert entry["read"].items() <= given.items()
    assert entry["read"] or entry["name"] == "DBRX"


# ------------------------------------------------------------------ vLLM


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_vllm_gets_the_parameters_that_transformers_gets(spec: RopeSpec) -> None:
    words = as_shell(export.vllm(spec).text)
    assert words[0] == "--hf-overrides"
    override = json.loads(words[1])
    assert override == {"rope_parameters": json.loads(export.transformers(spec).text)["rope_parameters"]}
    options = dict(zip(words[2::2], words[3::2], strict=True))
    if spec.scaling in ("yarn", "llama3", "longrope", "dynamic", "ntk_by_parts"):
        assert options == {"--max-model-len": str(int(spec.factor * spec.original_max_position_embeddings))}


# ------------------------------------------------------------------ llama.cpp


def by_llama_cpp(flags: dict[str, str], pairs: int, *, since_18006: bool) -> tuple[list[float], float]:
    """(inv_freq, factor on cos and sin) that llama.cpp makes of its options: ggml's rope_yarn, in Python floats."""
    base, scale = float(flags["--rope-freq-base"]), 1 / float(flags.get("--rope-scale", 1))
    kind, dims = flags["--rope-scaling"], 2 * pairs
    if kind == "none":
        scale = 1.0
    plain = [base ** (-2 * i / dims) for i in range(pairs)]
    if kind != "yarn":
        return [w * scale for w in plain], 1.0
    context = int(flags["--yarn-orig-ctx"])
    own = 1 + 0.1 * math.log(1 / scale) if scale < 1 else 1.0
    attn = 1 / own * own if since_18006 else float(flags.get("--yarn-attn-factor", 1.0))

    def corr(turns: float) -> float:
        return dims * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(0.0, math.floor(corr(float(flags["--yarn-beta-fast"]))))
    high = min(dims - 1.0, math.ceil(corr(float(flags["--yarn-beta-slow"]))))
    made = []
    for i, w in enumerate(plain):
        ramp = 1 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))
        made.append(w * scale * (1 - ramp) + w * ramp)
    return made, attn * own


def flags_of(text: str) -> dict[str, str]:
    words = as_shell(text)
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    "spec",
    [s for s in SPECS if s.scaling in ("none", "linear", "ntk", "yarn", "ntk_by_parts") and s.ramp == "index"
     and s.truncate and not s.mscale_all_dim]
    + [RopeSpec(scaling="dynamic", factor=4.0, dynamic_length="maximum", **LONG),
       RopeSpec(d_head=128, scaling="yarn", factor=4.0, attention_factor=1.5, **LONG)],
    ids=lambda s: f"{s.scaling}-{s.layout}-{s.rotary_fraction}",
)  # fmt: skip
def test_llama_cpp_computes_the_same_from_its_options(spec: RopeSpec) -> None:
    flags = flags_of(export.llama_cpp(spec).text)
    inv_freq, factor = by_llama_cpp(flags, spec.rotary_dim // 2, since_18006=False)
    torch.testing.assert_close(torch.tensor(inv_freq, dtype=torch.float64), rope_frequencies(spec).inv_freq,
                               rtol=1e-9, atol=0)  # fmt: skip
    assert factor == pytest.approx(attention_scales(spec).attention_factor, rel=1e-7)


def test_an_attention_factor_of_its_own_is_told_to_be_overwritten() -> None:
    plain = export.llama_cpp(RopeSpec(scaling="yarn", factor=4.0))
    assert "--yarn-attn-factor" not in plain.text
    assert plain.losses == ()
    own = export.llama_cpp(RopeSpec(scaling="yarn", factor=4.0, attention_factor=1.0))
    assert float(flags_of(own.text)["--yarn-attn-factor"]) == pytest.approx(1 / (1 + 0.1 * math.log(4)), rel=1e-8)
    assert "ggml-org/llama.cpp#18006" in losses_of(own)


def test_deepseeks_factors_are_the_files() -> None:
    made = export.llama_cpp(RopeSpec(scaling="yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0, **LONG))
    assert "--yarn-attn-factor" not in made.text
    assert "yarn_log_multiplier" in losses_of(made)


@pytest.mark.parametrize("scaling", ["llama3", "longrope", "proportional", "dynamic"])
def test_what_llama_cpp_has_no_option_for_is_no_option(scaling: str) -> None:
    made = export.llama_cpp(RopeSpec(scaling=scaling, **SCALED[scaling]))
    assert made.text == ""
    assert f"scaling = {scaling}" in losses_of(made)


# ------------------------------------------------------------------ PyTorch


def run(code: str) -> dict:
    names: dict = {}
    exec(compile(code, "exported", "exec"), names)
    return names


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_the_code_gives_the_same_numbers(spec: RopeSpec) -> None:
    code = export.pytorch(spec).text
    assert "posenc" not in code
    names, rope = run(code), build(spec)
    for length in (None, 4096, 20_001):
        torch.testing.assert_close(names["inv_freq"](length), rope_frequencies(spec, length).inv_freq,
                                   rtol=1e-12, atol=0)  # fmt: skip
    q, k = torch.randn(2, 1, 2, len(POSITIONS), spec.d_head, dtype=torch.float64)
    turned = names["rotate"](q, POSITIONS) * names["score_factor"], names["rotate"](k, POSITIONS)
    torch.testing.assert_close(turned, rope.rotate(q, k, POSITIONS, POSITIONS), rtol=1e-9, atol=1e-9)
    half = names["rotate"](q.half(), POSITIONS)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.double(), names["rotate"](q, POSITIONS), rtol=0, atol=2e-2)


@given(spec=support.specs(RopeSpec))
@settings(max_examples=60, deadline=None)
def test_the_code_of_any_rotation_gives_the_same_frequencies(spec: RopeSpec) -> None:
    names = run(export.pytorch(spec).text)
    for length in (None, 3 * spec.original_max_position_embeddings):
        ours = rope_frequencies(spec, length).inv_freq
        torch.testing.assert_close(names["inv_freq"](length), ours, rtol=1e-12, atol=1e-300)
    assert names["attention_factor"] == attention_scales(spec).tables


@pytest.mark.parametrize(
    "spec", [AlibiSpec(), AlibiSpec(n_heads=12), AlibiSpec(n_heads=3, variant="symmetric", slopes=(0.5, 0.0, 2.0))]
)
def test_the_code_of_a_bias_gives_the_same_bias(spec: AlibiSpec) -> None:
    names = run(export.pytorch(spec).text)
    q, k = torch.arange(5, 9), torch.arange(12)
    torch.testing.assert_close(names["bias"](q, k).float(), build(spec).bias(q, k))
    torch.testing.assert_close(names["slopes"](), spec.slope_tensor())


@pytest.mark.parametrize(
    "spec",
    [SinusoidalSpec(d_model=d, layout=layout, endpoint=e) for d in (2, 64) for layout in ("interleaved", "concatenated")
     for e in (False, True)] + [IntegerSpec(d_model=16)]
    + [IntegerSpec(variant=v, d_model=16, max_position_embeddings=32) for v in ("normalized", "one_hot")],
    ids=lambda s: ",".join(map(str, s.to_query().values())),
)  # fmt: skip
def test_the_code_of_vectors_gives_the_same_vectors(spec) -> None:
    names, positions = run(export.pytorch(spec).text), torch.arange(16)
    torch.testing.assert_close(names["vectors"](positions), build(spec).vectors(positions).clone())
    x = torch.randn(2, 16, spec.d_model)
    torch.testing.assert_close(names["embed"](x, positions), build(spec).embed(x, positions))


@pytest.mark.parametrize("spec", [T5Spec(), T5Spec(n_heads=3, bidirectional=False, relative_attention_max_distance=64)])
def test_the_code_of_buckets_gives_the_same_bias(spec: T5Spec) -> None:
    names, module = run(export.pytorch(spec).text), build(spec)
    names["table"].data = module.table.data
    q, k = torch.arange(150, 300), torch.arange(400)
    torch.testing.assert_close(names["bias"](q, k), module.bias(q, k))


def test_the_code_of_a_table_is_a_table_of_its_size() -> None:
    names = run(export.pytorch(LearnedSpec(max_position_embeddings=20, d_model=6, offset=2)).text)
    assert names["table"].shape == (20, 6)
    torch.testing.assert_close(names["vectors"](torch.tensor([0, 3])), names["table"][[2, 5]])
    with pytest.raises(IndexError):
        names["vectors"](torch.tensor([18]))


def test_the_code_of_a_hybrid_says_which_function_acts_where() -> None:
    rope, other = RopeSpec(d_head=16), RopeSpec(d_head=16, base=1e6, scaling="yarn", factor=4.0)
    spec = HybridSpec(layers=(rope, other, rope, NoneSpec(), AlibiSpec(n_heads=4)))
    names = run(export.pytorch(spec).text)
    assert names["layers"] == [0, 1, 0, 2, 3]
    torch.testing.assert_close(names["inv_freq_0"](), rope.inv_freq())
    torch.testing.assert_close(names["inv_freq_1"](), other.inv_freq())
    torch.testing.assert_close(names["slopes_3"](), alibi_slopes(4))


# ------------------------------------------------------------------ NPZ


def load(content: bytes) -> dict:
    with np.load(io.BytesIO(content), allow_pickle=False) as made:
        return {name: made[name] for name in made.files}


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_the_tables_are_those_of_the_module(spec: RopeSpec) -> None:
    made = load(export.tables(spec, 300).content)
    cos, sin = build(spec).tables(torch.arange(300), torch.float64)
    np.testing.assert_allclose(made["cos"], cos.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(made["sin"], sin.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(made["inv_freq"], spec.inv_freq(300).numpy())
    assert made["inv_freq"].dtype == np.float64
    assert made["attention_factor"] == attention_scales(spec).attention_factor
    assert made["score_factor"] == attention_scales(spec).scores
    if spec.by_length:
        past = int(spec.factor * spec.original_max_position_embeddings) + 1
        np.testing.assert_array_equal(made["inv_freq_long"], spec.inv_freq(past).numpy())


def test_other_tables() -> None:
    np.testing.assert_array_equal(load(export.tables(AlibiSpec(n_heads=12)).content)["slopes"], alibi_slopes(12))
    made = load(export.tables(SinusoidalSpec(d_model=8), 10).content)["vectors"]
    np.testing.assert_array_equal(made, build(SinusoidalSpec(d_model=8)).vectors(torch.arange(10)))
    hybrid = load(export.tables(HybridSpec(layers=(RopeSpec(), NoneSpec(), RopeSpec(base=1e6))), 4).content)
    assert hybrid["layers"].tolist() == [0, 1, 2]
    assert {"inv_freq_0", "inv_freq_2", "cos_0", "sin_2"} <= hybrid.keys()


def test_tables_are_bounded_and_say_so() -> None:
    made = export.tables(RopeSpec(d_head=1024), 10**9)
    assert "positions = 1,000,000,000" in losses_of(made)
    assert load(made.content)["cos"].size <= export.MAX_CELLS
    assert len(made.content) < 8 * 2**20
    many = HybridSpec(layers=tuple(RopeSpec(d_head=1024, base=1e4 + i) for i in range(128)))
    assert len(export.tables(many).content) < 8 * 2**20
    assert export.tables(RopeSpec(d_head=1024)).losses == ()
