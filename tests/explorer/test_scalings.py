"""RoPE's scalings in the app: their numbers, what depends on the length, and how they come to the toy model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from explorer.compute import attention, decay, encodings
from explorer.compute.common import TRAIN_LENGTH, encoding
from explorer.facts import key_numbers
from explorer.scaling_text import SYMBOLS, scaling_formula, scaling_note
from posenc_core import Spec, rope_frequencies
from posenc_core.frequencies import SCALINGS
from posenc_core.schemes.rope import KNOWS_ORIGINAL, RopeSpec

LLAMA31 = RopeSpec(d_head=128, base=500_000.0, scaling="llama3", factor=8.0)
DYNAMIC = RopeSpec(scaling="dynamic", factor=2.0, original_max_position_embeddings=512)


def scaled(scaling: str, **fields: Any) -> RopeSpec:
    return RopeSpec(scaling=scaling, **({} if scaling == "none" else {"factor": 4.0}), **fields)


def facts(spec: Spec, seq_len: int = 512) -> dict[str, str]:
    return {name: value for name, value, _ in key_numbers(spec, encoding(spec), seq_len)}


def test_the_pairs_of_llama_31() -> None:
    assert facts(LLAMA31)["kept / ramped / divided"] == "29 / 6 / 29"


def test_the_scores_of_yarn_grow_by_the_square_of_its_factor() -> None:
    spec = scaled("yarn")
    assert facts(spec)["scores"] == f"× {(0.1 * math.log(4) + 1) ** 2:.3g}"
    assert facts(spec.replace(attention_on="scores"))["scores"] == facts(spec)["scores"]
    assert "scores" not in facts(LLAMA31)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_scaling_has_three_to_five_numbers(scaling: str) -> None:
    assert 3 <= len(facts(scaled(scaling))) <= 5


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_formula_names_each_symbol_that_acts_with_its_value(scaling: str) -> None:
    spec = scaled(scaling)
    formula = scaling_formula(spec)
    for symbol, field in SYMBOLS.items():
        value = f"{getattr(spec, field):,.10g}".replace(",", "{,}")
        assert (f"{symbol} = {value}" in formula) == spec.applies(spec.param(field))
    assert not {"GAMMA", "SCALE", "LENGTH"} & set(formula.replace("\\", " ").split())


def test_pictures_follow_the_length_shown() -> None:
    short, long = encodings.spectrum(DYNAMIC, 512), encodings.spectrum(DYNAMIC, 2048)
    assert short is not None
    assert long is not None
    assert np.array_equal(short, RopeSpec().inv_freq().numpy())
    base = 10_000 * (2 * 2048 / 512 - 1) ** (64 / 62)
    assert long == pytest.approx(base ** -(np.arange(32) / 32), rel=1e-12)
    angles, _ = encodings.angles(DYNAMIC, 2048)
    assert angles[-1, -1] == pytest.approx(long[-1] * 2047, rel=1e-12)


def test_a_curve_in_parts_has_one_spectrum() -> None:
    """The curve of 2,048 distances is computed in parts; each part alone would be a shorter sequence."""
    spec = DYNAMIC.replace(d_head=1024)
    curve = decay.equal(spec, 4096)
    inv_freq = rope_frequencies(spec, 4096).inv_freq
    for distance in (1, 100, 600, 3000, 4095):
        expected = 2 * torch.cos(distance * inv_freq).sum().item() / math.sqrt(1024)
        assert curve[distance] == pytest.approx(expected, abs=1e-9)


def test_the_heading_says_whether_the_length_matters() -> None:
    assert "nothing is stretched" in scaling_note(DYNAMIC, 512)
    assert "of this length" in scaling_note(DYNAMIC, 513)
    assert scaling_note(DYNAMIC.replace(dynamic_length="maximum"), 513) == ""
    assert scaling_note(LLAMA31, 4096) == ""


def test_the_heading_says_where_the_clamp_inverts_the_ramp() -> None:
    inverted = scaled("yarn", d_head=128, base=10.0, original_max_position_embeddings=131_072)
    assert facts(inverted)["divided"] == "64"
    assert "all are divided" in scaling_note(inverted, 512)
    assert scaling_note(inverted.replace(ramp="rotations"), 512) == ""
    assert facts(inverted.replace(ramp="rotations"))["kept"] == "64"
    assert scaling_note(scaled("yarn"), 512) == ""
    short = scaled("yarn", original_max_position_embeddings=4)  # the ramp ends before pair 0: all are kept
    assert facts(short)["kept"] == "32"
    assert scaling_note(short, 512) == ""


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({"scaling": "llama3", "factor": 16.0, "high_freq_factor": 1.0}, r"k_i = 1 \text{ if }"),
        ({"scaling": "yarn", "factor": 4.0, "original_max_position_embeddings": 6}, r"\gamma_i = 1 \text{ if } i > 0"),
        ({"scaling": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}, r"\gamma_i = 0 "),
        ({"scaling": "yarn", "factor": 4.0, "ramp": "rotations", "beta_fast": 1.0}, r"\gamma_i = 1 \text{ if } L_0"),
    ],
)
def test_a_ramp_without_width_is_a_threshold(fields: dict[str, Any], row: str) -> None:
    formula = scaling_formula(RopeSpec(**fields))
    assert row in formula
    assert "0}\right]" not in formula


@pytest.mark.parametrize("scaling", KNOWS_ORIGINAL)
def test_the_toy_model_has_an_original_length_of_its_own(scaling: str) -> None:
    fit = attention.fit(scaled(scaling))
    assert isinstance(fit.spec, RopeSpec)
    assert (fit.spec.scaling, fit.spec.factor) == (scaling, 4.0)
    assert fit.spec.original_max_position_embeddings == TRAIN_LENGTH
    assert f"original_max_position_embeddings = {TRAIN_LENGTH} acts" in fit.notes[0]
    assert attention.fit(fit.spec).notes == ()


def test_lists_are_thinned_to_the_toy_models_pairs() -> None:
    lists = {"short_factor": tuple(1.0 + i for i in range(64)), "long_factor": tuple(2.0 + i for i in range(64))}
    fit = attention.fit(scaled("longrope", d_head=128, **lists))
    assert isinstance(fit.spec, RopeSpec)
    assert fit.spec.short_factor == tuple(1.0 + i for i in range(0, 64, 4))
    assert fit.spec.long_factor == tuple(2.0 + i for i in range(0, 64, 4))
    assert any("16 pairs" in note for note in fit.notes)


def test_sections_do_not_act_on_text() -> None:
    fit = attention.fit(RopeSpec(d_head=128, mrope_section=(16, 24, 24)))
    assert isinstance(fit.spec, RopeSpec)
    assert fit.spec.mrope_section == ()
    assert any("mrope_section" in note for note in fit.notes)


@pytest.mark.parametrize("page", ["", "encodings", "decay", "attention", "timing"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_page_shows_every_scaling(opened: Any, page: str, scaling: str) -> None:
    at = opened(page, f"scheme=rope&scaling={scaling}" + ("" if scaling == "none" else "&factor=4"))
    assert not at.exception
    assert not at.warning
    assert not at.error
