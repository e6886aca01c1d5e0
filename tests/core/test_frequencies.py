import pytest
import torch
from hypothesis import given
from support import frequencies, reference, specs

from posenc_core import SCHEMES, rope_frequencies
from posenc_core.frequencies import SCALINGS, geometric
from posenc_core.schemes.rope import RopeSpec

RTOL = 2e-6  # the reference values were made in float32


def spec_of(config, layer_type):
    """A config.json's positional fields as a spec; None where its scaling is not known to RopeSpec."""
    scaling = dict(config.get("rope_scaling") or {})
    kind = scaling.get("rope_type", scaling.get("type", "none"))
    base = float(config.get("rope_theta", config.get("rotary_emb_base", 0)))
    if layer_type == "sliding_attention" and "rope_local_base_freq" in config:
        base, kind = config["rope_local_base_freq"], "none"
    if kind not in ("none", "linear"):
        return None
    return RopeSpec(
        d_head=config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]),
        base=base,
        rotary_fraction=config.get("rotary_pct", config.get("partial_rotary_factor", 1.0)),
        scaling=kind,
        **({"factor": scaling["factor"]} if kind == "linear" else {}),
    )


def cases():
    for entry in reference("hf_rope.json")["entries"]:
        for layer_type, values in entry["layers"].items():
            for value in values:
                if value["rope_type"] in ("default", "linear"):
                    name = f"{entry['name']}-{layer_type}"
                    yield pytest.param(spec_of(entry["config"], layer_type), value, id=name)


def test_the_reference_has_the_expected_cases():
    names = {c.id for c in cases()}
    assert len(names) == 11
    assert {"gemma-3-4b-text-sliding_attention", "gemma-3-4b-text-full_attention", "pythia-6.9b-all", "phi-2-all",
            "linear-4x-all"} <= names  # fmt: skip


@pytest.mark.parametrize(("spec", "value"), list(cases()))
def test_equals_transformers(spec, value):
    inv_freq, attention_factor = rope_frequencies(spec)
    assert inv_freq.dtype == torch.float64
    expected = torch.tensor(value["inv_freq"], dtype=torch.float64)
    torch.testing.assert_close(inv_freq, expected, rtol=RTOL, atol=0)
    assert attention_factor == pytest.approx(value["attention_factor"], rel=RTOL)


@pytest.mark.parametrize("entry", reference("hf_proportional.json")["entries"], ids=lambda e: f"d{e['head_dim']}")
def test_p_rope_equals_transformers(entry):
    p = entry["rope_parameters"]
    spec = RopeSpec(
        d_head=entry["head_dim"], base=p["rope_theta"], rotary_fraction=p["partial_rotary_factor"],
        scaling="proportional", factor=p["factor"],
    )  # fmt: skip
    inv_freq, attention_factor = rope_frequencies(spec)
    torch.testing.assert_close(inv_freq, torch.tensor(entry["inv_freq"], dtype=torch.float64), rtol=RTOL, atol=0)
    assert attention_factor == entry["attention_factor"]


def test_every_scaling_is_a_choice_of_the_spec():
    assert set(SCALINGS) == set(RopeSpec.param("scaling").choices)


@given(specs(RopeSpec))
def test_equals_the_papers_formulas(spec):
    inv_freq, attention_factor = rope_frequencies(spec)
    assert inv_freq.tolist() == pytest.approx(frequencies(spec), rel=1e-12, abs=0)
    assert attention_factor == 1.0
    assert torch.equal(spec.inv_freq(), inv_freq)


@given(specs(RopeSpec))
def test_shape_order_and_range(spec):
    inv_freq = rope_frequencies(spec).inv_freq
    assert inv_freq.shape == (spec.rotary_dim // 2,)
    assert (inv_freq.diff() <= 0).all()
    assert 0 <= float(inv_freq.min()) <= float(inv_freq.max()) <= 1
    assert int((inv_freq > 0).sum()) == spec.rotated_pairs


@pytest.mark.parametrize("seq_len", [None, 1, 10**6])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_these_scalings_ignore_the_sequence_length(scaling, seq_len):
    spec = RopeSpec(scaling=scaling)
    assert torch.equal(rope_frequencies(spec, seq_len).inv_freq, rope_frequencies(spec).inv_freq)


def test_the_exponent_is_2i_over_d():
    assert geometric(10_000.0, 8).tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001], rel=1e-14)
    assert geometric(10_000.0, 8, 4).tolist() == pytest.approx([1.0, 0.1], rel=1e-14)
    assert RopeSpec(d_head=4, base=100.0).inv_freq().tolist() == pytest.approx([1.0, 0.1], rel=1e-14)


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0, 40.0])
def test_linear_divides_every_frequency(factor):
    plain, scaled = RopeSpec(), RopeSpec(scaling="linear", factor=factor)
    torch.testing.assert_close(scaled.inv_freq() * factor, plain.inv_freq(), rtol=1e-14, atol=0)


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0, 40.0])
@pytest.mark.parametrize(("d_head", "fraction"), [(128, 1.0), (64, 0.5), (4, 1.0)])
def test_ntk_keeps_the_highest_and_divides_the_lowest(d_head, fraction, factor):
    plain = RopeSpec(d_head=d_head, rotary_fraction=fraction).inv_freq()
    spec = RopeSpec(d_head=d_head, rotary_fraction=fraction, scaling="ntk", factor=factor)
    assert spec.inv_freq()[0] == 1.0
    assert float(plain[-1] / spec.inv_freq()[-1]) == pytest.approx(factor, rel=1e-12)
    ratio = plain / spec.inv_freq()
    assert (ratio.diff() >= 0).all()
    d = spec.rotary_dim
    changed = RopeSpec(d_head=d_head, rotary_fraction=fraction, base=10_000.0 * factor ** (d / (d - 2)))
    torch.testing.assert_close(spec.inv_freq(), changed.inv_freq(), rtol=1e-14, atol=0)


def test_partial_and_proportional_differ():
    partial = RopeSpec(d_head=64, rotary_fraction=0.5)
    proportional = RopeSpec(d_head=64, rotary_fraction=0.5, scaling="proportional")
    assert float(partial.inv_freq()[1]) == pytest.approx(10_000 ** (-2 / 32))
    assert float(proportional.inv_freq()[1]) == pytest.approx(10_000 ** (-2 / 64))
    assert torch.equal(proportional.inv_freq()[:16], RopeSpec(d_head=64).inv_freq()[:16])
    assert proportional.inv_freq()[16:].tolist() == [0.0] * 16


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "rope"])
def test_only_rope_has_rope_frequencies(scheme):
    with pytest.raises(TypeError, match=scheme):
        rope_frequencies(SCHEMES[scheme]())
