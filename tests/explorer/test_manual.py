"""The diagnosis manual: every entry is complete, its picture opens as linked, and known public reports are in it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from explorer import state
from explorer.manual import MANUAL, Entry, found
from explorer.views import VIEWS

# Faults that people reported in public, each of which an entry must explain.
REPORTED = [
    "transformers#25681", "gpt-neox#1003", "transformers#29285", "transformers#29496", "modalities#462",
    "candle#3520", "mlx-lm#1076", "kekzl/imp#1325", "transformers#46174", "transformers#45902",
    "neuronx-nemo-megatron#21", "transformers#27227", "transformers#25104", "transformers#33129",
    "foundation-model-stack#64", "vllm#33800", "nanochat#264", "transformers#34741", "transformers#40462",
    "transformers#39687", "hipfire#241", "llama.cpp#6033", "pie#602", "transformers#48652", "mlx-lm#1698",
    "coreai-models#66", "Megatron-Bridge#4195", "llama3#299", "llama3#319", "transformers#38224",
    "transformers#45887", "vllm#28244", "transformers#42189", "torchtitan#3787", "transformers#47435",
    "mobius#548", "Megatron-LM#1418", "llama.cpp#8995", "mlxcel#1358", "llama.cpp#8676", "mlx-vlm#1709",
    "ollama#13452", "vllm#42624", "DeepSpeed#8345", "airllm#369", "MarinFold#184", "vllm#3488",
    "transformers#43756", "executorch#22043", "mlx#3071", "aprender#2143", "Baichuan2#225", "attention-gym#86",
    "transformers#30123", "vllm#945", "llm-foundry#186", "BERT-pytorch#78", "pyaptamer#526", "LoFTR#41",
    "transformers#8518",
]  # fmt: skip
IDS = [entry.symptom[:40] for entry in MANUAL]


def test_there_are_enough_entries_and_no_symptom_twice() -> None:
    assert len(MANUAL) >= 24
    assert len({entry.symptom for entry in MANUAL}) == len(MANUAL)


@pytest.mark.parametrize("entry", MANUAL, ids=IDS)
def test_an_entry_is_complete(entry: Entry) -> None:
    assert 15 < len(entry.symptom) < 120
    assert not entry.symptom.endswith(".")
    for text in (entry.cause, entry.look, entry.fix):
        assert text.endswith("."), text
        assert len(text) < 320
    assert entry.reports
    for report in entry.reports:
        assert re.fullmatch(r"([\w.-]+/)?[\w.-]+#\d+", report), report
    shown = " ".join((entry.symptom, entry.cause, entry.look, entry.fix))
    assert not re.search(r"(?<!·)[$`<>\[\]|~]", shown), "a sign that Markdown would eat"


def test_known_reports_are_explained() -> None:
    told = {report for entry in MANUAL for report in entry.reports}
    assert set(REPORTED) <= told, sorted(set(REPORTED) - told)


@pytest.mark.parametrize("entry", MANUAL, ids=IDS)
def test_the_link_is_legal_and_sets_what_it_names(entry: Entry) -> None:
    assert entry.page in VIEWS
    values, rejected = state.read_link(entry.page, {name: [text] for name, text in entry.query.items()})
    assert rejected == ()
    assert entry.query.keys() <= values.keys()
    assert entry.query, "a link that shows nothing of its own proves nothing"


@pytest.mark.parametrize("entry", MANUAL, ids=IDS)
def test_the_view_opens_without_a_notice(opened: Any, entry: Entry) -> None:
    """Also what the page itself may have to tell of a value that does not go with the others."""
    at = opened(entry.page, urlencode(entry.query))
    assert not at.exception
    told = [w.value for w in at.warning if w.value.startswith("Some values of this link")]
    assert told == []
    assert not at.error


# ---------------------------------------------------------------- the filter


def test_no_words_find_everything() -> None:
    assert found("") == found("   ") == list(MANUAL)


@pytest.mark.parametrize(
    ("text", "symptom"),
    [
        ("bf16", "Fine in fp32, wrong in bf16"),
        ("POSITION 0 drift", "Agrees at position 0, drifts with the distance"),
        ("gemma sliding", "Gemma 3: the sliding-window layers diverge"),
        ("chinese", "Chinese text is fine, code breaks"),
        ("no_rope_layers", "Every 4th layer diverges"),
        ("transformers#25681", "Wrong after model.half()"),
        ("roberta 514", "RoBERTa or OPT: off by two"),
        ("longrope 4,096", "LongRoPE: right on short texts"),
        ("mscale_all_dim", "DeepSeek: exact at position 0"),
        ("wrong logits", "Norms are right"),
        ("gguf", "Norms are right"),
        ("gibberish", "Perplexity explodes"),
        ("garbage after 4096", "Garbage exactly from position 4,096"),
    ],
)
def test_words_find_their_entry(text: str, symptom: str) -> None:
    assert any(entry.symptom.startswith(symptom) for entry in found(text)), text
    assert len(found(text)) < len(MANUAL)


def test_every_word_has_to_be_there_if_that_is_possible() -> None:
    assert found("zebra") == []
    assert found("alibi heads zebra") == found("alibi heads")  # a word that is nowhere hides nothing
    assert found("ramp") != found("amp")  # words are found by their beginnings
    both = found("alibi heads")
    assert both
    assert all("alibi" in repr(e).casefold() and "heads" in repr(e).casefold() for e in both)
