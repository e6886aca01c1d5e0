"""The Porting page: pictures equal the core's numbers, parts are linked, pastes are read, refused and kept."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from explorer.charts.palette import pair_colours
from explorer.compute import porting as compute
from explorer.compute.common import MAX_CELLS, rope_of
from explorer.pictures import porting as pictures
from explorer.text import Try
from explorer.views import MAX_TEXT, PortingView
from posenc_core import SCHEMES, parse_spec, porting
from posenc_core.fingerprint import Fingerprint, fingerprint
from posenc_core.frequencies import rope_frequencies
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec

ROPE = RopeSpec()
PARTIAL = RopeSpec(d_head=64, rotary_fraction=0.25)
PROPORTIONAL = RopeSpec(d_head=64, scaling="proportional", rotary_fraction=0.25)
YARN = RopeSpec(d_head=128, scaling="yarn", factor=4.0, original_max_position_embeddings=4096)
PARTS = PortingView.param("part").choices


def named(spec: RopeSpec) -> str:
    return " ".join(f"{k}={v}" for k, v in spec.to_query().items())


def numbers(at: Any) -> dict[str, str]:
    return {m.label: m.value for m in at.metric}


def texts(at: Any) -> str:
    return " ".join(m.value for m in [*at.markdown, *at.caption]).replace("\\", "")


# ---------------------------------------------------------------- every part, every scheme


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_whole_for_every_scheme(open_app: Any, part: str, scheme: str) -> None:
    at = open_app("porting", {"scheme": scheme, "part": part})
    assert not at.exception
    assert not at.warning
    assert not at.error
    assert 3 <= len(at.metric) <= 5
    assert all(m.proto.help and m.value not in ("", "nan") for m in at.metric)
    assert at.get("vega_lite_chart")
    assert at.get("page_link")
    spec = parse_spec({"scheme": scheme})
    if rope_of(spec) is None:
        assert "rotates nothing" in texts(at)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "query",
    [
        {"d_head": "2"}, {"d_head": "1024"}, {"d_head": "1020", "rotary_fraction": "0.5"},
        {"d_head": "6", "rotary_fraction": "0.5", "scaling": "proportional"}, {"base": "1.001"}, {"base": "1e12"},
        {"scaling": "longrope", "factor": "8"}, {"scaling": "dynamic", "factor": "4"},
        {"scaling": "yarn", "factor": "40", "mscale": "1", "mscale_all_dim": "1", "layout": "interleaved"},
        {"b_scheme": "rope", "b_d_head": "128"}, {"b_scheme": "hybrid"},
    ],
    ids=str,
)  # fmt: skip
def test_odd_specs_do_not_crash(open_app: Any, part: str, query: dict[str, str]) -> None:
    at = open_app("porting", {"scheme": "rope", "part": part} | query)
    assert not at.exception
    assert not at.warning
    assert at.get("vega_lite_chart")


def tries() -> list[Try]:
    lists = [v for k, v in vars(pictures).items() if k.endswith("_TRIES")]
    assert len(lists) >= 8
    return [item for made in lists for item in made]


@pytest.mark.parametrize("item", tries(), ids=lambda t: t.label)
def test_links_to_try_open_and_show_something_else(open_app: Any, item: Try) -> None:
    at = open_app(item.page or "porting", dict(item.changes))
    assert not at.exception
    assert not at.warning
    assert not at.error


# ---------------------------------------------------------------- sides


def test_the_model_is_the_first_scheme_and_the_port_the_second() -> None:
    made = pictures.sides([ROPE, YARN])
    assert (made.model, made.port, made.layers) == (ROPE, YARN, None)
    assert pictures.sides([ROPE]).port is None
    alibi = parse_spec({"scheme": "alibi"})
    made = pictures.sides([alibi])
    assert made.model == ROPE
    assert "slopes" in made.notes[0]
    assert pictures.sides([ROPE, alibi]).port is None


def test_hybrids_are_taken_layer_by_layer() -> None:
    first = HybridSpec(layers=(ROPE, ROPE, NoneSpec(), ROPE))
    second = HybridSpec(layers=(ROPE, YARN, NoneSpec(), NoneSpec()))
    made = pictures.sides([first, second])
    assert made.layers == (1, 3)
    assert (made.model, made.port) == (ROPE, YARN)
    assert made.notes == ("Layer 1 is shown, the first that rotates and differs.",)
    assert pictures.layer_sentence(made.layers) == "Layers that differ: 2 (1, 3)."
    assert pictures.layer_sentence(()) == "All layers are the same in both."
    alone = pictures.sides([HybridSpec(layers=(NoneSpec(), YARN))])
    assert alone.model == YARN
    assert "layer 1" in alone.notes[0]
    assert pictures.sides([first, ROPE]).layers == (2,)
    assert pictures.sides([first, HybridSpec(layers=(*first.layers, ROPE))]).layers == (4,)


# ---------------------------------------------------------------- layout


@pytest.mark.parametrize("spec", [ROPE, PARTIAL, PROPORTIONAL, ROPE.replace(layout="interleaved")], ids=named)
def test_arcs_join_the_features_that_turn_together(spec: RopeSpec) -> None:
    made = pictures.wiring_of(spec)
    arcs = made.data[made.data["part"] == "arc"].groupby("strand")
    found = {(int(a["x"].iloc[0]), int(a["x"].iloc[-1])) for _, a in arcs}
    inv_freq = rope_frequencies(spec).inv_freq
    expected = [tuple(p) for p, w in zip(porting.pair_features(spec).tolist(), inv_freq.tolist(), strict=True) if w > 0]
    assert found == set(expected)
    assert all(a["y"].iloc[0] == 0 and a["y"].max() > 0 for _, a in arcs)
    colours = {int(strand): a["colour"].iloc[0] for strand, a in arcs}
    assert list(colours.values()) == pair_colours(len(expected))
    dots = made.data[made.data["part"] == "feature"]
    assert len(dots) == spec.d_head
    grey = set(dots[dots["frequency"] == 0]["x"].astype(int))
    assert grey == set(range(spec.d_head)) - {f for pair in expected for f in pair}


@pytest.mark.parametrize("spec", [
    RopeSpec(d_head=1024), RopeSpec(d_head=512, rotary_fraction=0.25), RopeSpec(d_head=256, scaling="proportional",
                                                                               rotary_fraction=0.25),
])  # fmt: skip
def test_large_heads_are_drawn_in_proportion(spec: RopeSpec) -> None:
    small, every = pictures.reduced(spec)
    assert every > 1
    assert small.d_head * every == spec.d_head
    assert small.rotary_dim * every == spec.rotary_dim
    assert small.rotated_pairs * every == spec.rotated_pairs
    assert small.d_head <= pictures.DRAWN
    odd = RopeSpec(d_head=1018)
    assert pictures.reduced(odd) == (odd, 1)


def test_the_port_stands_beside_the_model() -> None:
    assert [w.name for w in pictures.wirings(ROPE, None)] == ["half-split", "interleaved"]
    assert [w.name for w in pictures.wirings(ROPE, YARN.replace(d_head=64))] == ["half-split", "interleaved"]
    names = [w.name for w in pictures.wirings(ROPE, PARTIAL)]
    assert names == ["half-split", "half-split, partial: 16 of 64 features rotate"]
    assert [w.name.split(",")[0] for w in pictures.four()] == ["interleaved", "half-split", "half-split", "half-split"]


@pytest.mark.parametrize("spec", [ROPE, PARTIAL, ROPE.replace(layout="interleaved")], ids=named)
def test_lines_lead_each_row_to_its_place(spec: RopeSpec) -> None:
    data, d_head = pictures.moves_of(spec)
    before, after = data[data["y"] == 1].set_index("strand"), data[data["y"] == 0].set_index("strand")
    weight = torch.arange(d_head)
    moved = porting.permute_weights(weight, 1, spec.rotary_dim, porting.other_layout(spec.layout))
    assert before["x"].tolist() == moved.tolist()
    assert after["x"].tolist() == list(range(d_head))
    assert pictures.moved_rows(spec) == int((moved != weight).sum())


def test_the_proof_and_its_code(open_app: Any) -> None:
    at = open_app("porting", {"scheme": "rope", "kv_heads": "2", "queries_per_key": "3"})
    proof = porting.prove_layout(ROPE, 6, 2)
    assert numbers(at)["permuted"] == f"{proof.permuted:.1e}"
    assert numbers(at)["not permuted"] == f"{proof.unpermuted:.3g}"
    bars = pictures.proof_bars(ROPE, 2, 3)
    assert bars.data["value"].tolist() == pytest.approx(
        [proof.permuted, proof.unpermuted, *compute.mla_proof(ROPE)[1:3], *compute.norm_proof(ROPE)[1:3]], rel=1e-9
    )
    assert "learned norm of q and k" in texts(at)
    assert f"left as it is, {compute.norm_proof(ROPE).unpermuted:.3g}" in texts(at)
    (code,) = [c.value for c in at.code]
    space: dict[str, Any] = {}
    exec(code, space)
    assert (space["N_HEADS"], space["N_KV_HEADS"], space["D_HEAD"]) == (6, 2, 64)
    weight = torch.randn(2 * 64, 3)
    assert torch.equal(space["permute"](weight, 2), porting.permute_weights(weight, 2, 64, "interleaved"))


# ---------------------------------------------------------------- precision


def test_the_map_is_the_logarithm_of_the_error() -> None:
    made = pictures.precision_map(ROPE, "bfloat16", "all", 4096, 300)
    core = porting.error_map(rope_frequencies(ROPE).inv_freq, "bfloat16", "all", 4096)
    assert made.values.shape == core.values.shape
    assert made.values.size <= MAX_CELLS
    np.testing.assert_allclose(10**made.values, np.maximum(core.values.numpy(), pictures.FLOOR), rtol=1e-9)
    for column in (100, 150, 191):
        low, high = made.x.at(column) - made.x.step / 2, made.x.at(column) + made.x.step / 2
        assert core.starts[column] <= 2**high
        assert core.ends[column] >= 2**low - 1
    (mark,) = made.guides
    assert mark.value == pytest.approx(math.log2(300))


def test_key_numbers_are_the_searches(open_app: Any) -> None:
    at = open_app("porting", {"scheme": "rope", "part": "precision", "rounded": "positions", "checked_position": "257"})
    assert numbers(at) == {
        "first past 0.003 rad": "257", "first two alike": "256 and 257", "error at 257": "1 rad",
        "cos and sin only, at 257": pictures._radians(compute.error_at(ROPE, "bfloat16", "cos_sin", 257)),
    }  # fmt: skip
    at = open_app(
        "porting", {"scheme": "rope", "part": "precision", "number_format": "float16", "rounded": "positions"}
    )
    assert numbers(at)["first two alike"] == "2,048 and 2,049"
    at = open_app(
        "porting",
        {"scheme": "rope", "part": "precision", "number_format": "float16", "checked_position": "262145",
         "longest": "16777216"},
    )  # fmt: skip
    assert numbers(at)["error at 262,145"] == "not a number"
    assert "float16 has no number" in texts(at)


def test_lines_hold_three_formats_and_the_tables_way() -> None:
    lines, dashed = pictures.precision_lines(ROPE, "bfloat16", "all", 4096)
    assert [name for name, _ in lines.series] == ["bfloat16", "float16", "float32", *dashed]
    assert dashed == ("only cos and sin in bfloat16",)
    rows = lines.data[(lines.data["part"] == "line") & (lines.data["series"] == dashed[0])]
    assert rows["y"].max() < porting.LIMIT
    worst = lines.data[(lines.data["part"] == "line") & (lines.data["series"] == "bfloat16")]
    core = porting.error_map(rope_frequencies(ROPE).inv_freq, "bfloat16", "all", 4096)
    np.testing.assert_allclose(worst["y"], np.maximum(core.values.amax(0).numpy(), pictures.FLOOR))
    assert pictures.precision_lines(ROPE, "float16", "cos_sin", 4096)[1] == ()


# ---------------------------------------------------------------- fingerprint


def test_nothing_pasted_shows_the_sidebars_own_numbers(open_app: Any) -> None:
    at = open_app("porting", {"scheme": "rope", "part": "fingerprint", "base": "500000", "d_head": "128"})
    assert numbers(at)["first pair off"] == "none"
    assert "It is the sidebar's scheme" in texts(at)
    assert "base 500,000" in texts(at)


@pytest.mark.parametrize("name", list(pictures.samples(ROPE)))
def test_samples_are_pasted_and_recognised(open_app: Any, name: str) -> None:
    at = open_app("porting", {"scheme": "rope", "part": "fingerprint"})
    at.button(key=f"_sample_{name}").click().run()
    assert not at.exception
    assert not at.error
    text = pictures.samples(ROPE)[name]
    assert at.text_area(key="pasted").value == text
    found = fingerprint(text, "auto", ROPE, compute.known())
    best = found.candidates[0]
    assert best.fits
    assert best.sentence[1:] in texts(at)
    told = {
        "YaRN": "half-split, YaRN factor 4, trained at 4,096", "inte": "interleaved, no scaling",
        "tabl": "computed in bfloat16", "inv_": "Llama 3 scaling, factor 8",
    }  # fmt: skip
    assert told[name[:4]] in best.sentence


def test_a_short_paste_is_in_the_address_and_a_long_one_is_not(open_app: Any, address: Any) -> None:
    at = open_app("porting", {"scheme": "rope", "part": "fingerprint"})
    short = pictures.sample_inv_freq(YARN)
    at.text_area(key="pasted").set_value(short).run()
    assert address(at)["pasted"] == short
    phase = torch.arange(24)[:, None] * rope_frequencies(ROPE).inv_freq
    long = json.dumps({"cos": phase.cos().tolist(), "sin": phase.sin().tolist()})
    assert MAX_TEXT < len(long) < 200_000
    at.text_area(key="pasted").set_value(long).run()
    assert not at.exception
    assert "pasted" not in address(at)
    assert "are not in the address" in texts(at)
    assert at.text_area(key="pasted").value == long
    assert "no scaling, base 10,000" in texts(at).lower()
    at.run()
    assert at.text_area(key="pasted").value == long  # it stays while other things change


def test_a_list_of_no_method_is_told_and_is_no_finding(open_app: Any) -> None:
    text = "[" + ", ".join(f"{1e4 ** (-i / 48) / (1 + 0.03 * i + 0.01 * (i % 3)):.6g}" for i in range(48)) + "]"
    at = open_app("porting", {"scheme": "rope", "part": "fingerprint", "pasted": text})
    assert not at.exception
    assert "No method that was tried fits" in texts(at)
    assert "as with any list, a divisor for each pair can" in texts(at)
    assert numbers(at)["fitting"] == "0"
    assert numbers(at)["first pair off"] == numbers(at)["first position off"] == "–"
    found = fingerprint(text, "auto", ROPE, compute.known())
    rows = pictures.table(found)
    assert rows["fits"].tolist() == ["no"] * (len(rows) - 1) + ["any list does"]


def test_a_wrong_pair_is_named(open_app: Any) -> None:
    w = rope_frequencies(RopeSpec(d_head=32, base=500_000.0)).inv_freq
    w[9] *= 1.1
    text = "[" + ", ".join(f"{v:.9g}" for v in w.tolist()) + "]"
    at = open_app(
        "porting", {"scheme": "rope", "d_head": "32", "base": "500000", "part": "fingerprint", "pasted": text}
    )
    assert not at.exception
    assert "but pair 9 is 1.1 times as fast" in texts(at)
    assert "1 of 16 pairs turn at another speed" in texts(at)
    assert numbers(at) | {"fitting": "1", "first pair off": "9"} == numbers(at)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1, 0.5, ..., 0.1]", "leaves numbers out"),
        ("<b>1</b>", "cannot be read from here on"),
        ("x**2 _a_", "unknown"),
    ],
)
def test_what_cannot_be_read_is_told_and_nothing_crashes(open_app: Any, text: str, told: str) -> None:
    at = open_app("porting", {"scheme": "rope", "part": "fingerprint", "pasted": text})
    assert not at.exception
    (error,) = at.error
    assert told in error.value.replace("\\", "")
    assert set(numbers(at).values()) == {"–"}


def test_lines_are_the_candidates_misfits() -> None:
    found = compute.fingerprints(pictures.sample_inv_freq(RopeSpec(base=500_000.0)), "auto", ROPE)
    assert isinstance(found, Fingerprint)
    lines = pictures.misfit_lines(found, ROPE)
    first = lines.data[(lines.data["part"] == "line") & (lines.data["series"] == lines.series[0][0])]
    np.testing.assert_allclose(first["y"], np.clip(found.candidates[0].misfits.numpy(), 1e-4, 1e9))
    assert first["y"].max() <= 1.05
    assert lines.series[1][0] == f"2. {pictures.SIDEBAR}"
    assert lines.data[lines.data["series"] == lines.series[1][0]]["y"].max() > 1e3
    ratio = pictures.ratio_lines(found, ROPE)
    assert ratio is not None
    measured = ratio.data[(ratio.data["part"] == "line") & (ratio.data["series"] == "measured")]
    np.testing.assert_allclose(measured["y"], (5e5 / 1e4) ** (-np.arange(32) / 32), rtol=1e-3)
    assert pictures.ratio_lines(found, YARN) is None
    assert len(pictures.table(found)) == len(found.candidates)


def test_models_of_the_app_are_known_by_name() -> None:
    known = compute.known()
    assert len(known) >= 20
    found = compute.fingerprints(pictures.samples(ROPE)["inv_freq of Llama 3.1, 4 digits"], "auto", ROPE)
    assert isinstance(found, Fingerprint)
    assert any("Llama 3.1" in name for name in found.candidates[0].names)


LLAMA = RopeSpec(d_head=128, base=500_000.0, scaling="llama3", factor=8.0, original_max_position_embeddings=8192)
TURNS = rope_frequencies(LLAMA).inv_freq


def pasted(values: torch.Tensor, expected: RopeSpec = LLAMA, digits: int = 7) -> dict[str, str]:
    text = "[" + ", ".join(f"{v:.{digits}g}" for v in values.tolist()) + "]"
    assert len(text) <= MAX_TEXT
    return {"part": "fingerprint", "pasted": text} | expected.to_query()


@pytest.mark.parametrize(("name", "first"), [("bfloat16", 56), ("float16", 610)])
def test_a_rounded_list_is_not_cleared(open_app: Any, name: str, first: int) -> None:
    rounded = TURNS.to(getattr(torch, name)).double()
    at = open_app("porting", pasted(rounded))
    assert not at.exception
    assert numbers(at)["first pair off"] == "1"
    assert numbers(at)["first position off"] == str(first)
    assert f"stored in {name}: off by more than 0.1 rad from pair 1, position {first}." in texts(at)
    assert "nothing is off" not in texts(at)
    changed = int(((rounded - TURNS).abs() > 2e-6 * TURNS).sum())
    assert f"{changed} of 64 pairs turn at another speed" in texts(at)
    assert f"because they were rounded to {name}" in texts(at)


def test_digits_alone_are_no_fault(open_app: Any) -> None:
    at = open_app("porting", pasted(TURNS, digits=4))
    assert numbers(at)["first pair off"] == numbers(at)["first position off"] == "none"
    assert "It is the sidebar's scheme" in texts(at)
    assert "at these digits nothing is off" in texts(at)
    assert "0 of 64 pairs turn at another speed" in texts(at)


def test_the_first_frequencies_are_told(open_app: Any) -> None:
    at = open_app("porting", pasted(TURNS[:40]))
    assert not at.exception
    assert "The first 40 of 64 pairs" in texts(at)
    assert "They are the first 40 of the sidebar's 64 pairs" in texts(at)
    assert "0 of 40 pairs turn at another speed" in texts(at)
    assert "3,646" not in texts(at)


def test_a_doubled_list_is_read_once(open_app: Any) -> None:
    at = open_app("porting", pasted(torch.cat([TURNS, TURNS]), digits=5))
    assert not at.exception
    assert "listed twice, as cat([f, f]) does for the half-split layout" in texts(at)
    assert "It is the sidebar's scheme" in texts(at)


@pytest.mark.parametrize(("by", "told"), [(2 * math.pi, "these are wavelengths"), (1.0, "these are reciprocals")])
def test_wavelengths_are_no_frequencies(open_app: Any, by: float, told: str) -> None:
    at = open_app("porting", pasted(by / TURNS))
    assert not at.exception
    assert told in texts(at)
    assert "Turned back into frequencies, it is the sidebar's scheme" in texts(at)
    assert numbers(at)["first position off"] == "1"


def test_where_nothing_fits_nothing_is_cleared(open_app: Any) -> None:
    at = open_app("porting", pasted(torch.arange(1, 65).double() ** 2))
    assert numbers(at)["first pair off"] == numbers(at)["first position off"] == "–"
    found = compute.fingerprints(pasted(torch.arange(1, 65).double() ** 2)["pasted"], "auto", LLAMA)
    assert isinstance(found, Fingerprint)
    rows = pictures.table(found)
    assert set(rows["pair"]) == set(rows["position"]) == {"–"}


# ---------------------------------------------------------------- two specs


def test_a_mistake_stands_for_the_port(open_app: Any) -> None:
    query = {"scheme": "rope", "part": "compare"} | {k: v for k, v in YARN.to_query().items() if k != "scheme"}
    at = open_app("porting", query | {"mistake": "scaling"})
    made = porting.compare_pairs(YARN, porting.unscaled(YARN), 2**17)
    shown = numbers(at)
    assert shown["first pair that differs"] == str(made.first_pair)
    assert shown["phase off from"] == f"{made.first_position.min():,.0f}"
    assert "the scaling dropped" in texts(at)
    plain = open_app("porting", {"scheme": "rope", "part": "compare", "mistake": "scaling"})
    assert not plain.exception  # there is none to drop: another fault is shown
    assert "the other layout" in texts(plain)


def test_the_second_scheme_is_the_port(open_app: Any) -> None:
    at = open_app("porting", {"scheme": "rope", "part": "compare", "b_scheme": "rope", "b_base": "10000.05"})
    made = porting.score_difference(porting.Port(ROPE), porting.Port(RopeSpec(base=10_000.05)), 2**17)
    first = made.first[1e-3]
    assert first is not None
    assert numbers(at)["scores off by 0.1% from"] == f"{first:,}"
    assert "from position" not in texts(at)
    assert "mistake" not in [w.key for w in at.selectbox]
    same = open_app("porting", {"scheme": "rope", "part": "compare", "b_scheme": "rope"})
    assert numbers(same)["first pair that differs"] == "none"
    assert numbers(same)["phase off from"] == "none"
    assert "Scores agree" in texts(same)


def test_heads_of_different_size_have_no_common_scores(open_app: Any) -> None:
    at = open_app("porting", {"scheme": "rope", "part": "compare", "b_scheme": "rope", "b_d_head": "128"})
    assert not at.exception
    assert numbers(at)["scores off by 1% from"] == "–"
    assert "no common queries" in at.info[0].value


def test_ratios_and_scores_are_the_cores() -> None:
    made = pictures.compared(YARN, None, "scaling")
    lines, wide = pictures.ratio_pairs(made, 1024)
    expected = porting.unscaled(YARN).inv_freq() / YARN.inv_freq()
    np.testing.assert_allclose(lines.data["y"], expected, rtol=1e-12)
    assert not wide
    scores = pictures.score_lines(made, 1024)
    core = porting.score_difference(porting.Port(YARN), porting.Port(porting.unscaled(YARN)), 1024)
    drawn = scores.data[scores.data["part"] == "line"]
    np.testing.assert_allclose(drawn["y"], core.relative[core.distances > 0], rtol=1e-12)
    assert set(scores.data[scores.data["part"] == "level"]["series"]) == {"0.1%", "1%"}


@pytest.mark.parametrize(("mistake", "told"), [
    ("layout", "other features are paired"), ("direction", "turns the other way"), ("q_late", "one position late"),
])  # fmt: skip
def test_faults_that_no_frequency_shows_are_told(mistake: str, told: str) -> None:
    made = pictures.compared(ROPE, None, mistake)
    assert told in f"{made.names} {pictures.seen_pairs(made, 1024)}"
    facts = dict((f[0], f[1]) for f in pictures.compare_numbers(made, 1024))
    assert facts["first pair that differs"] == "none"
    assert facts["phase off from"] in ("0", "1")


def test_layers_of_two_hybrids_are_told(open_app: Any) -> None:
    at = open_app("porting", {
        "scheme": "hybrid", "layers": "rope*3, none", "b_scheme": "hybrid",
        "b_layers": "rope*2, rope(base=500000), none", "part": "compare",
    })  # fmt: skip
    assert not at.exception
    assert "Layers that differ: 1 (2)." in texts(at)
    assert numbers(at)["first pair that differs"] == "1"
