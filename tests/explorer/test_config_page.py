"""The Config page: what it says of known configs, and that no config makes it crash, lie or run markup."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pandas as pd
import pytest
import torch

from explorer import state
from explorer.compute import config as compute
from explorer.models import MODELS, config_text
from explorer.pictures import config as pictures
from explorer.views import LLAMA31_CONFIG, ConfigView
from posenc_core import ModelEncoding, SpecError, export, read_hf_config, rope_frequencies
from posenc_core.export import EXPORTS
from posenc_core.schemes.rope import RopeSpec

LLAMA = json.loads(LLAMA31_CONFIG)
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "num_hidden_layers": 34, "max_position_embeddings": 131_072, "rope_theta": 1e6,
    "rope_local_base_freq": 1e4, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    "sliding_window_pattern": 6,
}  # fmt: skip
BLOOM = {"model_type": "bloom", "n_embed": 768, "n_head": 12, "n_layer": 3}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024}
PHI3 = {
    "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_hidden_layers": 2,
    "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096, "rope_theta": 10_000.0,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [4.0] * 48},
}  # fmt: skip


def page(config: Any, **query: str) -> str:
    text = config if isinstance(config, str) else json.dumps(config)
    return urlencode({"config": text} | query)


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text).replace("\u2060", "")


def answer(at: Any) -> str:
    [line] = [m.value for m in at.main.markdown if m.value.startswith("##### ")]
    return unescaped(line)


def listed(at: Any) -> list[list[float]]:
    """The lists of frequencies on the page."""
    return [json.loads(c.value) for c in at.main.code if c.value.startswith("[")]


def model(config: dict[str, Any]) -> pictures.Model:
    return pictures.model(read_hf_config(config))


# ---------------------------------------------------------------- the answer


def test_it_opens_with_an_answer(opened: Any) -> None:
    at = opened("config")
    assert answer(at) == (
        "##### **llama**: 32 layers, all RoPE, base 500,000, llama3 factor 8: 29 pairs kept, 6 ramped, 29 divided."
    )
    assert {m.label: m.value for m in at.metric} == {
        "layers": "32", "kinds of layers": "1", "longest context": "131,072", "before scaling": "8,192",
        "slowest pair": f"{2 * torch.pi * 8 * 500_000 ** (126 / 128):,.0f}",
    }  # fmt: skip


def test_layers_that_differ_are_told_and_drawn(opened: Any) -> None:
    at = opened("config", page(GEMMA))
    assert not at.exception
    assert "29 × sliding_attention (RoPE, base 10,000, window 1,024)" in answer(at)
    assert "5 × full_attention (RoPE, base 1,000,000, linear factor 8: 128 pairs divided)" in answer(at)
    assert len(at.get("vega_lite_chart")) == 2
    cells, series = pictures.layer_strip(model(GEMMA))
    assert len(series) == 2
    assert (cells["end"] - cells["layer"] == 1).all()
    full = cells[cells["series"].str.startswith("full_attention")]
    assert full["layer"].tolist() == [5, 11, 17, 23, 29]
    assert len(set(dict(series).values())) == 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (BLOOM, "3 layers, all ALiBi, 12 heads"),
        (GPT2, "12 layers, all learned table, 1,024 rows"),
        (GPT2 | {"model_type": "roberta", "hidden_size": 768, "num_attention_heads": 12, "pad_token_id": 1,
                 "num_hidden_layers": 12, "max_position_embeddings": 514}, "514 rows, row 2 first"),
        ({"model_type": "t5", "d_model": 512, "num_heads": 8, "d_kv": 64, "num_layers": 6},
         "6 × encoder (T5, 32 buckets up to 128 apart)"),
        (PHI3, "longrope factor 32: 48 pairs divided past 4,096 positions"),
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 4096},
         "dynamic factor 2: 1 pairs kept, 62 ramped, 1 divided past 4,096 positions"),
    ],
    ids=["alibi", "learned", "offset", "t5", "longrope", "dynamic"],
)  # fmt: skip
def test_other_models_have_an_answer_and_a_picture(opened: Any, config: dict[str, Any], words: str) -> None:
    if config.get("model_type") == "roberta":
        config = {k: v for k, v in config.items() if not k.startswith("n_")}
    at = opened("config", page(config))
    assert not at.exception
    assert not at.error
    assert words in answer(at)
    assert at.get("vega_lite_chart")
    assert 3 <= len(at.metric) <= 5


# ---------------------------------------------------------------- numbers to copy


@pytest.mark.parametrize(("digits", "rtol"), [("4", 5e-4), ("8", 5e-8), ("full", 0.0)])
def test_the_list_is_the_expected_one(opened: Any, digits: str, rtol: float) -> None:
    at = opened("config", page(LLAMA, digits=digits))
    [made] = listed(at)
    ours = read_hf_config(LLAMA).layers[0].spec.inv_freq()  # type: ignore[attr-defined]
    torch.testing.assert_close(torch.tensor(made, dtype=torch.float64), ours, rtol=rtol, atol=0)


def test_a_kind_has_its_own_list(opened: Any) -> None:
    for kind, spec in ((0, RopeSpec(d_head=256, base=1e6, scaling="linear", factor=8.0)), (1, RopeSpec(d_head=256))):
        [made] = listed(opened("config", page(GEMMA, digits="full", kind=str(kind))))
        assert made == spec.inv_freq().tolist()


def test_frequencies_that_follow_the_length_are_listed_for_both_ends(opened: Any) -> None:
    made = listed(opened("config", page(PHI3, digits="full")))
    spec = read_hf_config(PHI3).layers[0].spec
    assert made == [rope_frequencies(spec, 4096).inv_freq.tolist(), rope_frequencies(spec, 131_072).inv_freq.tolist()]


def test_first_rows_are_cos_and_sin_with_the_attention_factor() -> None:
    spec = RopeSpec(d_head=8, scaling="yarn", factor=4.0)
    rows = dict(line.split(" = ") for line in pictures.first_rows(spec, "full").splitlines())
    factor = 0.1 * torch.log(torch.tensor(4.0, dtype=torch.float64)) + 1
    for p in pictures.FIRST_ROWS:
        for name, function in (("cos", torch.cos), ("sin", torch.sin)):
            expected = function(p * spec.inv_freq()) * factor
            torch.testing.assert_close(torch.tensor(json.loads(rows[f"{name}[{p}]"]), dtype=torch.float64), expected)


def test_the_table_has_the_effective_parameters() -> None:
    made = pictures.table(model(GEMMA))
    assert made["layers"].tolist() == ["5, 11, 17, 23, 29", "0-4, 6-10, 12-16, 18-22, 24-28, 30-33"]
    assert made["base"].tolist() == ["1,000,000", "10,000"]
    assert made["window"].tolist() == ["", "1,024"]
    assert made["pairs"].tolist() == ["128 pairs divided", ""]
    assert "note" not in made or isinstance(made, pd.DataFrame)
    deepseek = {
        "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 2,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "max_position_embeddings": 163_840, "rope_theta": 10_000,
        "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32,
                         "beta_slow": 1, "original_max_position_embeddings": 4096},
    }  # fmt: skip
    row = pictures.table(model(deepseek)).iloc[0]
    assert (row["attention factor"], row["score factor"]) == ("1", "1.873854")


@pytest.mark.parametrize(
    ("indices", "text"), [([0], "0"), ([0, 1, 2], "0-2"), ([0, 2, 3, 9], "0, 2-3, 9"), (range(0, 200, 2), "…")]
)
def test_indices_as_ranges(indices: Any, text: str) -> None:
    made = pictures.span(list(indices))
    assert made == text or (text == "…" and made.endswith("…") and len(made) <= pictures.MAX_LAYERS_TEXT)


def test_the_spectrum_holds_both_lines_and_both_marks() -> None:
    lines, dashed = pictures.spectrum_lines(model(LLAMA)) or pytest.fail("no lines")
    assert [name for name, _ in lines.series] == ["before scaling", "llama3 factor 8"]
    assert dashed == ("before scaling",)
    marks = lines.data[lines.data["part"] == "level"]
    assert marks["y"].tolist() == [8192, 131_072]
    drawn = {name: part["y"].to_numpy() for name, part in lines.data[lines.data["part"] == "line"].groupby("series")}
    ratio = drawn["llama3 factor 8"] / drawn["before scaling"]
    assert ratio[:29] == pytest.approx(1.0)
    assert ratio[-29:] == pytest.approx(8.0)
    assert "29 of 64 pairs" in pictures.seen_spectrum(model(LLAMA))


# ---------------------------------------------------------------- exports and links


def test_what_a_target_cannot_say_is_a_warning(open_app: Any) -> None:
    at = open_app("config", page(GEMMA, target="llama_cpp"))
    assert [unescaped(w.value) for w in at.warning if "different rotations" in w.value]
    at = open_app("config", page(LLAMA, target="vllm"))
    assert any("--hf-overrides" in c.value and "--max-model-len 131072" in c.value for c in at.main.code)
    assert not at.warning
    at = open_app("config", "scheme=rope&scaling=ntk&factor=4&exported=scheme")
    assert any("written as rope_theta" in unescaped(w.value) for w in at.warning)


def test_tables_are_a_download(open_app: Any) -> None:
    at = open_app("config", page(LLAMA, target="npz"))
    assert not at.exception
    assert any("Download NPZ" in b.proto.label for b in at.get("download_button"))


def test_the_encoding_goes_to_the_sidebar_and_the_other_pages() -> None:
    tries = {t.page: t.changes for t in pictures.uses(model(LLAMA))}
    spec = RopeSpec(d_head=128, base=5e5, scaling="llama3", factor=8.0)
    assert tries["encodings"] == spec.to_query()
    assert tries["extension"].items() >= {"trained_length": "8192", "target_length": "131072"}.items()
    assert tries["extension"]["method"] == "chosen"
    assert tries["porting"] == {f"b_{k}": v for k, v in spec.to_query().items()} | {"part": "compare"}
    [port, _] = [t.changes for t in pictures.uses(model(LLAMA)) if t.page == "porting"]
    assert port == spec.to_query() | {"part": "fingerprint"}
    assert [t.changes for t in pictures.kind_tries(model(GEMMA))] == [
        RopeSpec(d_head=256, base=1e6, scaling="linear", factor=8.0).to_query(),
        RopeSpec(d_head=256).to_query(),
    ]


def test_a_factor_reaches_past_the_original_length_that_the_config_gives() -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    qwen = model(LLAMA | {"model_type": "qwen2", "max_position_embeddings": 32_768, "rope_scaling": yarn})
    assert {name: value for name, value, _ in pictures.key_numbers(qwen)}["longest context"] == "131,072"
    [reach] = [t.changes for t in pictures.uses(qwen) if t.page == "extension"]
    assert (reach["trained_length"], reach["target_length"]) == ("32768", "131072")


def test_every_target_says_what_to_do_with_it() -> None:
    assert pictures.HOW.keys() == EXPORTS.keys()


def linked(at: Any, label: str) -> dict[str, str]:
    """The parameters of the page's link whose label holds the words."""
    [found] = [e.proto.query_string for e in at.main.get("page_link") if label in e.proto.label]
    return dict(parse_qsl(found))


def test_links_carry_the_kind_that_reaches_furthest_or_the_chosen_one(opened: Any) -> None:
    full = {"base": "1000000", "scaling": "linear", "factor": "8"}
    cases: list[tuple[dict[str, Any], str, dict[str, str], tuple[int, int]]] = [
        (GEMMA, "0", full, (16_384, 131_072)),  # factor 8
        (GEMMA, "1", {"base": "10000", "scaling": "none"}, (1024, 131_072)),  # the window
        (GEMMA | {"rope_scaling": None}, "0", {"base": "1000000"}, (131_072, 524_288)),
        (PHI3, "0", {"scaling": "longrope"}, (4096, 131_072)),
        (GEMMA, "255", {"base": "10000"}, (1024, 131_072)),
    ]
    for config, kind, words, (trained, target) in cases:
        at = opened("config", page(config, kind=kind))
        assert not at.exception
        for label in ("Extension", "compare a port"):
            query = linked(at, label)
            defaults = RopeSpec().to_query() | {"scaling": "none", "base": "10000"}
            assert (defaults | query).items() >= words.items(), label
        query = {"trained_length": "8192", "target_length": "131072"} | linked(at, "Extension")
        assert (query["trained_length"], query["target_length"]) == (str(trained), str(target))


def test_layers_that_do_not_rotate_have_no_links_of_their_own(opened: Any) -> None:
    """The kind that is chosen has no frequencies: the links carry one that has."""
    smollm = {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4,
              "num_hidden_layers": 8, "rope_theta": 5e6}  # fmt: skip
    assert linked(opened("config", page(smollm, kind="1")), "compare a port")["base"] == "5000000"


def test_a_number_of_layers_that_nobody_gives_is_not_made_up(opened: Any) -> None:
    llava = {"model_type": "llava", "text_config": {"model_type": "llama", "max_position_embeddings": 4096}}
    for config, given in ((llava, "not given"), (GEMMA | {"num_hidden_layers": None}, "not given"), (GEMMA, "34")):
        at = opened("config", page(config))
        assert not at.exception
        assert {m.label: m.value for m in at.metric}["layers"] == given
        assert ("number of layers not given" in answer(at)) == (given == "not given")
    assert "full_attention: RoPE" in pictures.answer(model(GEMMA | {"num_hidden_layers": None})).replace("\\", "")


def test_what_the_sidebar_cannot_hold_has_no_link() -> None:
    many = GEMMA | {"num_hidden_layers": 400}
    assert all(t.changes.get("scheme") != "hybrid" for t in pictures.uses(model(many)))
    t5 = {"model_type": "t5", "d_model": 512, "num_heads": 8, "d_kv": 64, "num_layers": 6}
    for item in pictures.uses(model(t5)) + pictures.kind_tries(model(t5)):
        assert state.read_link(item.page or "", {k: [v] for k, v in item.changes.items()})[1] == ()


@pytest.mark.parametrize("name", MODELS)
def test_a_public_model_fills_the_box(open_app: Any, name: str) -> None:
    at = open_app("config")
    at.selectbox(key="_model").set_value(name).run()
    assert not at.exception
    assert not at.error
    assert at.text_area(key="config").value == config_text(name)
    made = compute.read(config_text(name))
    assert isinstance(made, ModelEncoding)
    assert answer(at) == unescaped(f"##### {pictures.answer(pictures.model(made))}")


# ---------------------------------------------------------------- files


def upload(open_app: Any, content: bytes) -> Any:
    at = open_app("config")
    at.file_uploader[0].set_value(("config.json", content, "application/json")).run()
    return at


def test_an_uploaded_file_is_reduced_and_shown(open_app: Any) -> None:
    at = upload(
        open_app, json.dumps(GEMMA | {"vocab_size": 1, "torch_dtype": "bfloat16", "pad": "x" * 50_000}).encode()
    )
    assert not at.exception
    assert not at.error
    box = json.loads(at.text_area(key="config").value)
    assert "pad" not in box
    assert box["rope_local_base_freq"] == 1e4
    assert "29 × sliding_attention" in answer(at)


def test_half_a_surrogate_pair_is_refused_or_shown_and_never_crashes(open_app: Any) -> None:
    content = json.dumps(LLAMA | {"rope_scaling": None, "model_type": "a\ud800b"}).encode()
    at = upload(open_app, content)
    assert not at.exception
    assert at.error or "�" in answer(at)
    for text in [at.text_area(key="config").value, *(e.value for e in (*at.main.markdown, *at.error, *at.main.code))]:
        text.encode("utf-8")
    odd = {"a\ud800b": "\udfff", "ü🦙": ["é"]}
    assert json.loads(export.json_text(odd).encode("utf-8")) == odd
    at = open_app("config")
    at.text_area(key="config").set_value('{"rope_theta": "\\ud800"}').run()
    assert not at.exception


def test_the_box_and_the_code_are_encodable_whatever_comes(open_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "reduced", lambda data: json.dumps(LLAMA) + " \udc00")
    monkeypatch.setattr(compute, "exported_config", lambda text, target: export.Export("x", "json", '"\ud800"', ()))
    at = upload(open_app, b"{}")
    assert not at.exception
    assert at.text_area(key="config").value == json.dumps(LLAMA) + " ?"
    assert '"?"' in [c.value for c in at.main.code]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00{", "UTF-8"),
        (b"[1, 2]", "cannot be read"),
        (b"{", "cannot be read"),
        (b"", "cannot be read"),
        (b"{" + b'"a":' * 10 + b"1}", "cannot be read"),
        (json.dumps(PHI3 | {"head_dim": 1024, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0123456789012345] * 512, "long_factor": [4.0123456789012345] * 512}})
         .encode(), "20,000 characters"),
    ],
    ids=["binary", "list", "open", "empty", "garbage", "long"],
)  # fmt: skip
def test_a_bad_file_is_told_and_the_page_stays(open_app: Any, content: bytes, words: str) -> None:
    at = upload(open_app, content)
    assert not at.exception
    assert any(words in unescaped(e.value) for e in at.error)
    assert "29 pairs kept" in answer(at)
    at.text_area(key="config").set_value(json.dumps(GEMMA)).run()
    assert not at.error


def test_a_file_past_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(SpecError, match="1,048,576"):
        compute.reduced(b"{" + b" " * compute.MAX_UPLOAD + b"}")


# ---------------------------------------------------------------- what cannot be read

BAD = {
    "no json": "hello",
    "nothing": "{}",
    "list": "[]",
    "text": '"x"',
    "number": "1e999",
    "nan": json.dumps(LLAMA | {"rope_theta": float("nan")}),
    "infinity": json.dumps(LLAMA | {"rope_theta": float("inf")}),
    "text base": json.dumps(LLAMA | {"rope_theta": "500000"}),
    "no sizes": json.dumps({"model_type": "unheard_of", "rope_theta": 1e4}),
    "negative": json.dumps(LLAMA | {"num_hidden_layers": -3}),
    "too many layers": json.dumps(LLAMA | {"num_hidden_layers": 10**9}),
    "huge head": json.dumps(LLAMA | {"head_dim": 10**12}),
    "huge number": json.dumps(LLAMA | {"head_dim": 7}).replace("7", "7" * 5000),
    "odd head": json.dumps(LLAMA | {"head_dim": 65}),
    "bool": json.dumps(LLAMA | {"hidden_size": True}),
    "unknown type": json.dumps(LLAMA | {"rope_scaling": {"rope_type": "ntk", "factor": 4}}),
    "list scaling": json.dumps(LLAMA | {"rope_scaling": [1, 2]}),
    "text scaling": json.dumps(LLAMA | {"rope_scaling": "llama3"}),
    "swapped": json.dumps(LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 32,
                                                    "original_max_position_embeddings": 4096}}),
    "unknown field": json.dumps(LLAMA | {"rope_wobble": 3}),
    "deep": "[" * 4000 + "]" * 4000,
    "deep objects": '{"a":' * 2000 + "1" + "}" * 2000,
    "emoji": json.dumps(LLAMA | {"model_type": "🦙", "rope_scaling": {"rope_type": "🌀"}}),
    "markup": json.dumps(LLAMA | {"rope_scaling": {"rope_type": "<img src=x onerror=alert(1)> **b** [x](https://e.c)"}}),
    "twice": '{"model_type": "llama", "rope_theta": 1, "rope_theta": 2}',
    "surrogate": '{"model_type": "\\ud800", "hidden_size": 64, "num_attention_heads": 1}',
    "layer types": json.dumps(GEMMA | {"layer_types": ["sliding_attention", 3, None]}),
    "long lists": json.dumps(LLAMA | {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 900,
                                                       "long_factor": [1.0] * 3, "factor": 2.0,
                                                       "original_max_position_embeddings": 4096}}),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_config_is_told_and_the_page_still_draws(open_app: Any, name: str) -> None:
    at = open_app("config", {"config": BAD[name]})
    assert not at.exception
    [told] = [e.value for e in at.error]
    assert told.startswith("This config cannot be read:\n- ")
    assert len(told) < 20_000
    assert not re.search(r"(?<!\\)[*\[\]<>$`]", told.removeprefix("This config cannot be read:")), told
    assert at.text_area(key="config").value == BAD[name]  # what was pasted stays, to be mended
    assert "29 pairs kept" in answer(at)
    assert any("Shown instead: Llama 3.1 8B." in c.value for c in at.caption)
    assert at.get("vega_lite_chart")


def test_a_text_that_fills_the_box_is_told_to_be_uploaded(open_app: Any) -> None:
    most = ConfigView.param("config").max_length or 0
    cut = (json.dumps(LLAMA | {"pad": "x" * most}))[:most]
    at = open_app("config", {"config": cut})
    assert not at.exception
    assert any("upload the file" in i.value for i in at.info)
    at = open_app("config", {"config": cut + "x"})
    assert any("at most 20,000 characters" in unescaped(w.value) for w in at.warning)
    assert "29 pairs kept" in answer(at)


NASTY = "<img src=x onerror=alert(1)> **bold** `code` [click](https://e.com) $x$ :red[r] www.e.com"


def test_a_strangers_words_are_shown_as_they_are(open_app: Any) -> None:
    """Names that a config makes up must not become markup anywhere on the page."""
    at = open_app(
        "config", {"config": json.dumps({"model_type": NASTY} | {k: v for k, v in LLAMA.items() if k != "model_type"})}
    )
    assert not at.exception
    for element in [*at.main.markdown, *at.error, *at.warning, *at.info, *at.caption]:
        if "onerror" in element.value:
            assert not re.search(r"(?<!\\)[*\[\]<>$`]", element.value.replace("**", "")), element.value


def test_ten_thousand_layers_are_as_easy_as_ten() -> None:
    encoding = read_hf_config(LLAMA | {"num_hidden_layers": 10_000})
    made = pictures.model(encoding)
    cells, series = pictures.layer_strip(made)
    assert len(cells) == pictures.MAX_CELLS
    assert len(series) == 1
    assert "of 10,000 layers" in pictures.seen_strip(made)
    assert len(pictures.answer(made)) < 200
