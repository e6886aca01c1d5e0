"""The public models of assets/configs.json: they read, link, and have the numbers that are known of them."""

import json

import pytest
import torch

from explorer.models import FILE, MODELS, config_text, query_of
from posenc_core import alibi_slopes, parse_query, read_hf_config, rope_frequencies
from posenc_core.frequencies import attention_scales, pair_report, yarn_range
from posenc_core.hf_config import parse_config_text
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.learned import LearnedSpec

NAMES = list(MODELS)
LOCAL = {
    "gemma3_text": "rope_local_base_freq",
    "gemma3n_text": "rope_local_base_freq",
    "modernbert": "local_rope_theta",
}
FULL, SLIDING = "full_attention", "sliding_attention"


def test_there_are_at_least_25_models_each_once_with_a_source():
    entries = parse_config_text('{"all": ' + FILE.read_text() + "}")["all"]
    assert len({e["name"] for e in entries}) == len(entries) == len(MODELS) >= 25
    assert all(e.keys() == {"name", "config", "source", "context"} and len(e["source"]) > 8 for e in entries)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_reads_without_a_problem_and_as_its_text(name):
    model = MODELS[name]
    encoding = model.encoding
    assert encoding.layers
    assert read_hf_config(parse_config_text(config_text(name))) == encoding
    assert json.loads(config_text(name)) == model.config
    codes = {f.code for f in encoding.findings}
    assert not codes & {
        "architecture-unknown",
        "base-missing",
        "not-read",
        "outer-unread",
        "layers-unread",
        "fraction-unread",
    }
    if model.context is not None and name != "Command R":  # whose config promises less than its makers do
        known = encoding.max_position_embeddings
        assert known == (514 if name == "RoBERTa base" else model.context)


@pytest.mark.parametrize("name", NAMES)
def test_the_query_reads_back_to_the_models_spec(name):
    query = query_of(name)
    if query is None:
        assert name in ("T5 small", "Whisper tiny")
        return
    assert parse_query(query) == (MODELS[name].encoding.spec, ())


def new_spelling(config):
    """The same config as transformers 5 writes it: all of RoPE in rope_parameters."""
    config = dict(config)
    model_type = config["model_type"]
    base = next(k for k in ("rope_theta", "rotary_emb_base", "global_rope_theta") if k in config)
    rope = {"rope_type": "default"} | config.pop("rope_scaling", {}) | {"rope_theta": config.pop(base)}
    for name in ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"):
        if name in config:
            rope["partial_rotary_factor"] = config.pop(name)
    if "type" in rope:
        rope["rope_type"] = rope.pop("type")
    if model_type in LOCAL:
        local = {"rope_type": "default", "rope_theta": config.pop(LOCAL[model_type])}
        return config | {"rope_parameters": {FULL: rope, SLIDING: local}}
    return config | {"rope_parameters": rope}


@pytest.mark.parametrize("name", NAMES)
def test_old_and_new_spelling_give_equal_layers(name):
    config = MODELS[name].config
    inner = config.get("text_config", config)
    if not {"rope_theta", "rotary_emb_base", "global_rope_theta"} & inner.keys():
        assert MODELS[name].encoding.layers[0].spec.scheme != "rope" or name in ("Gemma 4", "GLM-4 9B chat")
        return
    new = new_spelling(inner)
    assert "rope_theta" not in new
    outer = {"model_type": config["model_type"], "text_config": new} if "text_config" in config else new
    assert read_hf_config(outer).layers == MODELS[name].encoding.layers


def spec_of(name, layer=0):
    return MODELS[name].encoding.layers[layer].spec


def counts(spec):
    report = pair_report(spec)
    return [report.count(action) for action in ("kept", "ramped", "divided")]


def test_llama3_pairs():
    assert counts(spec_of("Llama 3.1 8B")) == [29, 6, 29]
    assert counts(spec_of("Llama 4 Scout")) == [35, 0, 29]


def test_gpt_oss_ramp_and_factor():
    spec = spec_of("gpt-oss")
    assert yarn_range(spec) == (pytest.approx(8.092779, abs=1e-6), pytest.approx(17.398025, abs=1e-6))
    assert rope_frequencies(spec).attention_factor == pytest.approx(1.346574, abs=1e-6)


def test_deepseek_scores():
    for name, scores in (("DeepSeek-V2 Lite", 1.589626), ("DeepSeek-V3", 1.873854)):
        assert attention_scales(spec_of(name)).scores == pytest.approx(scores, abs=1e-6)
        assert (spec_of(name).d_head, MODELS[name].encoding.layers[0].head_dim) == (64, 192)


def test_layers_without_positions():
    for name, step in (("SmolLM3 3B", 4), ("Llama 4 Scout", 4), ("Cohere2", 4)):
        layers = MODELS[name].encoding.layers
        assert [la.index for la in layers if la.spec.scheme == "none"] == list(range(step - 1, len(layers), step))


def test_local_and_global_layers():
    for name, local_base, full_base, indices in (
        ("Gemma 3 4B", 1e4, 1e6, range(5, 34, 6)),
        ("Gemma 3n", 1e4, 1e6, range(4, 35, 5)),
        ("Gemma 4", 1e4, 1e6, range(5, 30, 6)),
        ("ModernBERT base", 1e4, 1.6e5, range(0, 22, 3)),
    ):
        kinds = {la.layer_type: (la.spec, found) for la, found in MODELS[name].encoding.kinds}
        assert (kinds[SLIDING][0].base, kinds[SLIDING][0].scaling) == (local_base, "none")
        assert kinds[FULL][0].base == full_base
        assert kinds[FULL][1] == tuple(indices)
    assert spec_of("Gemma 3 4B", 5).factor == 8.0
    assert (spec_of("Gemma 4", 5).d_head, spec_of("Gemma 4", 5).rotated_pairs) == (512, 64)


def test_rotary_dims_and_layouts():
    dims = {
        "Phi-2": 32,
        "Pythia 6.9B": 32,
        "GPT-J 6B": 64,
        "StableLM 3B 4e1t": 20,
        "GLM-4 9B chat": 64,
        "Falcon 7B": 64,
    }
    assert {name: spec_of(name).rotary_dim for name in dims} == dims
    interleaved = {n for n in NAMES if getattr(spec_of(n), "layout", "") == "interleaved"}
    assert interleaved == {
        "Llama 4 Scout", "DeepSeek-V2 Lite", "DeepSeek-V3", "GPT-J 6B", "GLM-4 9B chat", "Command R",
            "Cohere2"}  # fmt: skip
    assert spec_of("GLM-4 9B chat").base == 5e6
    assert spec_of("Qwen2-VL").mrope_section == (16, 24, 24)


def test_longrope_lists():
    spec = spec_of("Phi-3 vision 128k")
    assert (len(spec.short_factor), len(spec.long_factor), spec.factor) == (48, 48, 32.0)
    short, long = rope_frequencies(spec, 4096).inv_freq, rope_frequencies(spec, 4097).inv_freq
    ratio = torch.tensor(spec.long_factor, dtype=torch.float64) / torch.tensor(spec.short_factor, dtype=torch.float64)
    torch.testing.assert_close(short / long, ratio, rtol=1e-12, atol=0)


def test_other_encodings():
    assert spec_of("Baichuan2 13B") == AlibiSpec(n_heads=40)
    slopes = alibi_slopes(40)
    assert (slopes[1:] > slopes[:-1]).nonzero().flatten().tolist() == [31]
    assert spec_of("RoBERTa base") == LearnedSpec(max_position_embeddings=514, d_model=768, offset=2)
    assert [la.layer_type for la, _ in MODELS["Whisper tiny"].encoding.kinds] == ["encoder", "decoder"]
    assert spec_of("T5 small").relative_attention_num_buckets == 32


def test_unknown_names_are_key_errors():
    for ask in (query_of, config_text):
        with pytest.raises(KeyError):
            ask("GPT-5")
