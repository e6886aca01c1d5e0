import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from support import attention_factor, frequencies, reference, scales, specs

from posenc_core import SCHEMES, rope_frequencies
from posenc_core.frequencies import (
    SCALINGS,
    attention_scales,
    geometric,
    pair_report,
    yarn_mscale,
    yarn_ramp,
    yarn_range,
)
from posenc_core.schemes.rope import RopeSpec

RTOL = 2e-6  # the reference values were made in float32
LLAMA3_8B = RopeSpec(d_head=128, base=500_000.0, scaling="llama3", factor=8.0)
GPT_OSS = RopeSpec(
    d_head=64, base=150_000.0, scaling="yarn", factor=32.0, original_max_position_embeddings=4096, truncate=False
)
DEEPSEEK = RopeSpec(d_head=64, scaling="yarn", factor=40.0, original_max_position_embeddings=4096)
LONGROPE = RopeSpec(
    d_head=8, scaling="longrope", factor=4.0, original_max_position_embeddings=1000, short_factor=(1.0, 1.5, 2.0, 4.0),
    long_factor=(1.0, 3.0, 9.0, 0.5),
)  # fmt: skip


# ------------------------------------------------------------------ values made by other people's code


def spec_of(config, layer_type="all"):
    """A config.json's positional fields, or a rope_parameters with its head_dim, as a spec."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = rope.pop("rope_type", rope.pop("type", "none"))
    base = rope.pop("rope_theta", config.get("rope_theta", config.get("rotary_emb_base")))
    if layer_type == "sliding_attention" and "rope_local_base_freq" in config:
        base, kind, rope = config["rope_local_base_freq"], "none", {}
    fraction = rope.pop("partial_rotary_factor", config.get("rotary_pct", config.get("partial_rotary_factor", 1.0)))
    if kind == "dynamic":
        rope["original_max_position_embeddings"] = config["max_position_embeddings"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    lists = {k: tuple(map(float, v)) for k, v in rope.items() if isinstance(v, list)}
    return RopeSpec(d_head=head_dim, base=base, rotary_fraction=fraction, scaling=kind, **rope | lists)


def cases():
    for entry in reference("hf_rope.json")["entries"]:
        for layer_type, values in entry["layers"].items():
            for value in values:
                name = f"{entry['name']}-{layer_type}-{value['seq_len']}"
                yield pytest.param(spec_of(entry["config"], layer_type), value, id=name)
    for entry in reference("hf_scalings.json")["entries"]:
        for value in entry["values"]:
            yield pytest.param(spec_of(entry), value, id=f"{entry['name']}-{value['seq_len']}")


def test_the_references_hold_every_scaling_that_transformers_has():
    models, scalings = (reference(name)["entries"] for name in ("hf_rope.json", "hf_scalings.json"))
    assert len(models) == 15
    assert len(scalings) == 38
    assert len(list(cases())) == 19 + 78
    assert {"gpt-oss-20b-all-None", "dynamic-ntk-2x-all-16384", "gemma-3-4b-text-sliding_attention-None",
            "gemma-3-4b-text-full_attention-None", "llama-3.2-1b-all-None"} <= {c.id for c in cases()}  # fmt: skip
    assert {c.values[0].scaling for c in cases()} == set(SCALINGS) - {"ntk", "ntk_by_parts", "proportional"}


@pytest.mark.parametrize(("spec", "value"), list(cases()))
def test_equals_transformers(spec, value):
    inv_freq, factor = rope_frequencies(spec, value["seq_len"])
    assert inv_freq.dtype == torch.float64
    expected = torch.tensor(value["inv_freq"], dtype=torch.float64)
    torch.testing.assert_close(inv_freq, expected, rtol=RTOL, atol=0)
    assert factor == pytest.approx(value["attention_factor"], rel=1e-6)


@pytest.mark.parametrize("entry", reference("hf_proportional.json")["entries"], ids=lambda e: f"d{e['head_dim']}")
def test_p_rope_equals_transformers(entry):
    spec = spec_of(entry)
    assert (spec.scaling, spec.factor) == ("proportional", entry["rope_parameters"]["factor"])
    inv_freq, factor = rope_frequencies(spec)
    torch.testing.assert_close(inv_freq, torch.tensor(entry["inv_freq"], dtype=torch.float64), rtol=RTOL, atol=0)
    assert factor == entry["attention_factor"]


# ------------------------------------------------------------------ the papers' formulas


def test_every_scaling_is_a_choice_of_the_spec():
    assert list(SCALINGS) == list(RopeSpec.param("scaling").choices)


def lengths(spec):
    """Sequence lengths within the original one, just around it and past it."""
    trained = spec.original_max_position_embeddings
    return st.sampled_from([None, 1, trained - 1, trained, trained + 1, 3 * trained]) | st.integers(1, 2**31)


def well_conditioned(spec):
    """A ramp between thresholds that are almost equal magnifies the rounding of any route."""
    for low, high in ((spec.beta_slow, spec.beta_fast), (spec.low_freq_factor, spec.high_freq_factor)):
        if low != high and high / low < 1.01:
            return False
    return True


@pytest.mark.parametrize("scaling", SCALINGS)
@given(data=st.data())
def test_equals_the_papers_formulas(scaling, data):
    spec = data.draw(specs(RopeSpec, scaling=scaling))
    assume(well_conditioned(spec))
    seq_len = data.draw(lengths(spec))
    inv_freq, factor = rope_frequencies(spec, seq_len)
    rel = 1e-9 if scaling in ("llama3", "yarn", "ntk_by_parts") else 1e-12
    assert inv_freq.tolist() == pytest.approx(frequencies(spec, seq_len), rel=rel, abs=0)
    assert factor == pytest.approx(attention_factor(spec), rel=1e-12)
    assert torch.equal(spec.inv_freq(seq_len), inv_freq)
    if seq_len is not None:
        tensor = rope_frequencies(spec, torch.tensor(seq_len)).inv_freq
        torch.testing.assert_close(tensor, inv_freq, rtol=1e-15, atol=0)


@pytest.mark.parametrize("scaling", SCALINGS)
@given(data=st.data())
def test_shape_order_and_range(scaling, data):
    spec = data.draw(specs(RopeSpec, scaling=scaling))
    inv_freq = rope_frequencies(spec, data.draw(lengths(spec))).inv_freq
    assert inv_freq.shape == (spec.rotary_dim // 2,)
    assert inv_freq.dtype == torch.float64
    assert inv_freq.device.type == "cpu"
    assert inv_freq.isfinite().all()
    assert int((inv_freq > 0).sum()) == spec.rotated_pairs
    if not (spec.short_factor or spec.long_factor):
        assert (inv_freq.diff() <= 0).all()
        assert 0 <= float(inv_freq.min()) <= float(inv_freq.max()) <= 1
    if scaling != "proportional" and not (spec.short_factor or spec.long_factor):
        assert (inv_freq <= spec.replace(**CLEARED).inv_freq() * (1 + 1e-12)).all()


CLEARED = {p.name: p.default for p in RopeSpec.params() if p.when} | {"scaling": "none"}


@pytest.mark.parametrize("seq_len", [None, 1, 10**6])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_only_dynamic_and_longrope_follow_the_sequence_length(scaling, seq_len):
    spec = RopeSpec(scaling=scaling, factor=1.0 if scaling == "none" else 4.0)
    follows = scaling in ("dynamic", "longrope") and seq_len == 10**6
    assert spec.by_length == (scaling in ("dynamic", "longrope"))
    assert torch.equal(rope_frequencies(spec, seq_len).inv_freq, rope_frequencies(spec).inv_freq) != follows


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_made_on_the_cpu_whatever_the_default_device(scaling, device):
    spec = RopeSpec(d_head=8, scaling=scaling)
    with torch.device(device):
        inv_freq, report = rope_frequencies(spec, 10**5).inv_freq, pair_report(spec, 10**5)
    assert inv_freq.device.type == report.share.device.type == "cpu"


@pytest.mark.parametrize(("d_head", "fraction", "whole"), [(80, 0.4, 32), (64, 0.5, 32), (128, 0.75, 96), (4, 1.0, 4)])
@pytest.mark.parametrize("scaling", [s for s in SCALINGS if s != "proportional"])
def test_partial_rotation_is_the_same_scaling_of_a_smaller_head(scaling, d_head, fraction, whole):
    """The exponent, YaRN's ramp and NTK's base all count the rotary dim, not the head dim."""
    more = {} if scaling == "none" else {"factor": 4.0}
    more |= {"original_max_position_embeddings": 512} if scaling in ("dynamic", "yarn", "ntk_by_parts") else {}
    partial = RopeSpec(d_head=d_head, rotary_fraction=fraction, scaling=scaling, **more)
    small = RopeSpec(d_head=whole, scaling=scaling, **more)
    for seq_len in (None, 10**5):
        assert torch.equal(rope_frequencies(partial, seq_len).inv_freq, rope_frequencies(small, seq_len).inv_freq)
        assert rope_frequencies(partial, seq_len).attention_factor == rope_frequencies(small).attention_factor
        assert pair_report(partial, seq_len).action == pair_report(small, seq_len).action


@pytest.mark.parametrize("scaling", [s for s in SCALINGS if s not in ("none", "longrope")])
def test_a_factor_of_one_changes_nothing(scaling):
    spec = RopeSpec(scaling=scaling, factor=1.0)
    for seq_len in (None, 8192) if scaling == "dynamic" else (None, 8192, 10**6):
        torch.testing.assert_close(spec.inv_freq(seq_len), RopeSpec().inv_freq(), rtol=1e-15, atol=0)
        assert rope_frequencies(spec, seq_len).attention_factor == 1.0
        assert pair_report(spec, seq_len).action == ("kept",) * 32


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


# ------------------------------------------------------------------ dynamic


def test_dynamic_is_ntk_with_the_factor_that_the_length_needs():
    spec = RopeSpec(d_head=128, scaling="dynamic", factor=2.0, original_max_position_embeddings=4096)
    plain = RopeSpec(d_head=128).inv_freq()
    for seq_len in (None, 1, 4095, 4096):
        torch.testing.assert_close(spec.inv_freq(seq_len), plain, rtol=1e-15, atol=0)
    for seq_len, needed in ((8192, 3.0), (6144, 2.0), (16384, 7.0)):  # s·L/L₀ - (s - 1)
        ntk = RopeSpec(d_head=128, scaling="ntk", factor=needed).inv_freq()
        torch.testing.assert_close(spec.inv_freq(seq_len), ntk, rtol=1e-13, atol=0)


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_the_maximum_variant_is_that_of_the_longest_sequence_always(factor):
    spec = RopeSpec(scaling="dynamic", factor=factor, original_max_position_embeddings=1000, dynamic_length="maximum")
    longest = spec.replace(dynamic_length="sequence").inv_freq(int(factor * 1000))
    assert not spec.by_length
    for seq_len in (None, 1, 1000, 4000, 10**6):
        torch.testing.assert_close(spec.inv_freq(seq_len), longest, rtol=1e-15, atol=0)
    needed = factor**2 - factor + 1
    assert float(RopeSpec().inv_freq()[-1] / spec.inv_freq()[-1]) == pytest.approx(needed, rel=1e-12)


# ------------------------------------------------------------------ yarn


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (8.092779, 17.398025)),  # gpt-oss
        ({"truncate": True}, (8, 18)),
        ({"beta_slow": 0.01}, (8.092779, 29.762567)),
        ({"beta_slow": 0.01, "base": 100.0}, (20.944482, 63)),  # 77.03: no further than dim - 1
        ({"original_max_position_embeddings": 64}, (0, 6.231730)),  # -3.07: no lower than 0
        ({"original_max_position_embeddings": 64, "truncate": True}, (0, 7)),
    ],
)
def test_the_ends_of_the_ramp(changes, expected):
    assert yarn_range(GPT_OSS.replace(**changes)) == pytest.approx(expected, abs=5e-7)


def test_gpt_oss_keeps_9_pairs_and_divides_14():
    report = pair_report(GPT_OSS)
    assert (report.count("kept"), report.count("ramped"), report.count("divided")) == (9, 9, 14)
    assert rope_frequencies(GPT_OSS).attention_factor == pytest.approx(1.346574, abs=5e-7)
    low, high = yarn_range(GPT_OSS)
    assert report.share.tolist() == pytest.approx([min(max((i - low) / (high - low), 0), 1) for i in range(32)])


def test_a_pair_at_the_end_of_the_ramp_makes_beta_turns():
    low, high = yarn_range(GPT_OSS)
    for index, turns in ((low, 32.0), (high, 1.0)):
        assert 4096 * 150_000 ** (-2 * index / 64) / (2 * math.pi) == pytest.approx(turns, rel=1e-12)


@given(specs(RopeSpec, scaling="yarn"))
def test_yarn_is_ntk_by_parts_with_an_attention_factor(spec):
    fields = {n: getattr(spec, n) for n in ("d_head", "base", "rotary_fraction", "factor", "beta_fast", "beta_slow",
                                            "original_max_position_embeddings", "ramp", "truncate")}  # fmt: skip
    by_parts = RopeSpec(scaling="ntk_by_parts", **fields)
    assert torch.equal(by_parts.inv_freq(), spec.inv_freq())
    assert rope_frequencies(by_parts).attention_factor == 1.0


def test_the_ramp_over_turns_is_the_papers_equation_18():
    spec = RopeSpec(d_head=128, scaling="ntk_by_parts", factor=16.0, original_max_position_embeddings=4096,
                    ramp="rotations")  # fmt: skip
    inv_freq = RopeSpec(d_head=128).inv_freq().tolist()
    for w, share in zip(inv_freq, yarn_ramp(spec).tolist(), strict=True):
        turns = 4096 * w / (2 * math.pi)
        gamma = 0 if turns < 1 else 1 if turns > 32 else (turns - 1) / 31
        assert share == pytest.approx(1 - gamma, abs=1e-12)


def test_the_two_ramps_differ_by_more_than_a_third():
    by_index = RopeSpec(d_head=128, scaling="yarn", factor=16.0, original_max_position_embeddings=4096)
    difference = yarn_ramp(by_index.replace(ramp="rotations")) - yarn_ramp(by_index)
    assert float(difference.max()) == pytest.approx(0.3672, abs=5e-5)
    assert int((difference.abs() > 0).sum()) == 25  # of the pairs between 20 and 46


def test_equal_betas_make_a_step():
    spec = RopeSpec(scaling="yarn", factor=4.0, beta_fast=4.0, beta_slow=4.0)
    for changed in (spec.replace(truncate=False), spec.replace(ramp="rotations")):
        turns = RopeSpec().inv_freq() * 8192 / (2 * math.pi)
        assert yarn_ramp(changed).tolist() == (turns < 4).double().tolist()


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 1.0), (2.0, 1.0693147180559945), (16.0, 1.2772588722239782),
                                                  (32.0, 1.3465735902799727), (40.0, 1.3688879454113936)])  # fmt: skip
def test_the_published_attention_factor(factor, expected):
    """sqrt(1/t) = 0.1 ln s + 1, equation 22 of the YaRN paper."""
    spec = RopeSpec(scaling="yarn", factor=factor)
    assert rope_frequencies(spec).attention_factor == pytest.approx(expected, rel=1e-14)
    assert yarn_mscale(factor) == pytest.approx(expected, rel=1e-14)
    assert yarn_mscale(0.5) == 1.0


# ------------------------------------------------------------------ where the attention factor acts


@pytest.mark.parametrize(
    ("spec", "factor", "scores"),
    [
        (DEEPSEEK.replace(mscale=0.707, mscale_all_dim=0.707), 1.0, 1.5896261),  # DeepSeek-V2
        (DEEPSEEK.replace(mscale=1.0, mscale_all_dim=1.0), 1.0, 1.8738542),  # DeepSeek-V3
        (DEEPSEEK, 1.3688879, 1.0),
        (DEEPSEEK.replace(mscale=1.0, mscale_all_dim=0.707), 1.3688879 / 1.2608037, 1.5896261),
        (DEEPSEEK.replace(mscale=0.707), 1.3688879, 1.0),
        (DEEPSEEK.replace(mscale_all_dim=0.707), 1.3688879, 1.5896261),
        (DEEPSEEK.replace(attention_factor=1.25), 1.25, 1.0),
        (LLAMA3_8B, 1.0, 1.0),
        (RopeSpec(), 1.0, 1.0),
        (LONGROPE, 1.0957585, 1.0),  # sqrt(1 + ln 4 / ln 1000)
        (LONGROPE.replace(attention_factor=1.19), 1.19, 1.0),
    ],
    ids=lambda x: x.scaling if isinstance(x, RopeSpec) else f"{x:.3f}",
)
def test_attention_scales(spec, factor, scores):
    made = attention_scales(spec)
    assert made == pytest.approx((factor, factor, scores), rel=1e-6)
    assert (made.tables, made.scores) == pytest.approx(scales(spec), rel=1e-12)
    if spec.scaling in ("yarn", "longrope"):
        on_scores = attention_scales(spec.replace(attention_on="scores"))
        assert on_scores == pytest.approx((factor, 1.0, scores * factor**2), rel=1e-6)


@given(specs(RopeSpec))
def test_attention_scales_by_another_route(spec):
    assert attention_scales(spec)[1:] == pytest.approx(scales(spec), rel=1e-12)


# ------------------------------------------------------------------ longrope and llama3


@pytest.mark.parametrize(
    ("seq_len", "list_"), [(None, "short"), (1, "short"), (1000, "short"), (1001, "long"), (4000, "long")]
)
def test_longrope_takes_its_list_by_the_sequence_length(seq_len, list_):
    plain, made = RopeSpec(d_head=8).inv_freq(), LONGROPE.inv_freq(seq_len)
    assert (plain / made).tolist() == pytest.approx(getattr(LONGROPE, f"{list_}_factor"), rel=1e-14)


@pytest.mark.parametrize(
    ("given_", "short", "long"),
    [
        ({}, [1, 1, 1, 1], [4, 4, 4, 4]),
        ({"short_factor": (2.0, 2.0, 2.0, 3.0)}, [2, 2, 2, 3], [4, 4, 4, 4]),
        ({"long_factor": (2.0, 2.0, 2.0, 3.0)}, [1, 1, 1, 1], [2, 2, 2, 3]),
    ],
)
def test_a_list_that_is_not_given(given_, short, long):
    spec = RopeSpec(d_head=8, scaling="longrope", factor=4.0, **given_)
    assert pair_report(spec, 8192).divided_by.tolist() == pytest.approx(short)
    assert pair_report(spec, 8193).divided_by.tolist() == pytest.approx(long)


def test_llama3_turns_decide():
    report = pair_report(LLAMA3_8B)
    turns = (report.original * 8192 / (2 * math.pi)).tolist()
    for t, action, share in zip(turns, report.action, report.share.tolist(), strict=True):
        assert action == ("kept" if t >= 4 else "divided" if t <= 1 else "ramped")
        assert (1 - share) + share / 8 == pytest.approx(min(max((t - 1) / 3, 0), 1) * (1 - 1 / 8) + 1 / 8)


def test_a_pair_exactly_at_equal_thresholds_is_kept():
    """The ramp's formula is 0/0 there: NaN in other people's code."""
    turns = 64 / (2 * math.pi)  # of pair 0
    spec = RopeSpec(d_head=8, scaling="llama3", factor=8.0, original_max_position_embeddings=64, low_freq_factor=turns,
                    high_freq_factor=turns)  # fmt: skip
    assert spec.inv_freq().tolist() == pytest.approx([1.0, 0.1 / 8, 0.01 / 8, 0.001 / 8], rel=1e-14)


# ------------------------------------------------------------------ what was done to each pair


@pytest.mark.parametrize(
    ("spec", "seq_len", "counts"),
    [
        (LLAMA3_8B, None, (29, 6, 29, 0)),
        (LLAMA3_8B.replace(factor=16.0, high_freq_factor=1.0), None, (35, 0, 29, 0)),  # Llama 4 Scout
        (RopeSpec(), None, (32, 0, 0, 0)),
        (RopeSpec(scaling="linear", factor=4.0), None, (0, 0, 32, 0)),
        (RopeSpec(scaling="ntk", factor=4.0), None, (1, 30, 1, 0)),
        (RopeSpec(scaling="dynamic", factor=4.0), 8192, (32, 0, 0, 0)),
        (RopeSpec(scaling="dynamic", factor=4.0), 16384, (1, 30, 1, 0)),
        (RopeSpec(scaling="dynamic", factor=4.0, dynamic_length="maximum"), 1, (1, 30, 1, 0)),
        (GPT_OSS, None, (9, 9, 14, 0)),
        (GPT_OSS.replace(truncate=True), None, (9, 9, 14, 0)),
        (RopeSpec(d_head=64, rotary_fraction=0.25, scaling="proportional"), None, (8, 0, 0, 24)),
        (RopeSpec(d_head=64, rotary_fraction=0.25, scaling="proportional", factor=8.0), None, (0, 0, 8, 24)),
        (LONGROPE, 1000, (1, 0, 3, 0)),
        (LONGROPE, 1001, (1, 0, 3, 0)),
    ],
    ids=lambda x: x.scaling if isinstance(x, RopeSpec) else "",
)
def test_how_many_pairs_were_kept_ramped_divided_or_set_to_zero(spec, seq_len, counts):
    report = pair_report(spec, seq_len)
    assert tuple(report.count(a) for a in ("kept", "ramped", "divided", "zero")) == counts


def test_rounding_is_no_division():
    """s·L/L - (s - 1) is 3e-14 above 1 here: frequencies move in their last digits, and nothing is divided."""
    spec = RopeSpec(scaling="dynamic", factor=241.4, original_max_position_embeddings=38_148)
    assert not torch.equal(spec.inv_freq(), RopeSpec().inv_freq())
    report = pair_report(spec)
    assert report.action == ("kept",) * 32
    assert report.share.tolist() == [0.0] * 32


@pytest.mark.parametrize("scaling", SCALINGS)
@given(data=st.data())
def test_a_pair_report_adds_up(scaling, data):
    spec = data.draw(specs(RopeSpec, scaling=scaling))
    seq_len = data.draw(lengths(spec))
    report = pair_report(spec, seq_len)
    assert report.scaled.tolist() == spec.inv_freq(seq_len).tolist()
    plain = spec.replace(**CLEARED | {"rotary_fraction": 1.0} if scaling == "proportional" else CLEARED).inv_freq()
    assert torch.equal(report.original, plain)
    assert len(report.action) == len(report.share) == len(report.divided_by) == len(report.scaled)
    assert ((report.share >= 0) & (report.share <= 1)).all()
    for original, scaled, by, share, action in zip(*(x.tolist() for x in report[:4]), report.action, strict=True):
        if action == "zero":
            assert (scaled, by) == (0.0, math.inf)
            continue
        assert scaled * by == pytest.approx(original, rel=1e-12)
        assert (action == "kept") == (by == pytest.approx(1, abs=1e-9))
        if scaling not in ("dynamic", "longrope", "none"):  # the share is the share of the division by the factor
            assert original * (1 - share) + original / spec.factor * share == pytest.approx(scaled, rel=1e-6)
        if action == "divided" and scaling not in ("dynamic", "longrope", "ntk"):
            assert by == pytest.approx(spec.factor, rel=1e-6)


@pytest.mark.parametrize("function", [rope_frequencies, attention_scales, pair_report])
@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "rope"])
def test_only_rope_has_rope_frequencies(scheme, function):
    with pytest.raises(TypeError, match=scheme):
        function(SCHEMES[scheme]())
