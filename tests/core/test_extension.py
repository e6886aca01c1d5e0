"""Context extension against brute force, sampled vectors and the modules that really rotate."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc_core import extension
from posenc_core.attention import attention_scores
from posenc_core.extension import (
    BIN,
    FACTORS,
    LONGEST,
    METHODS,
    ToyLoss,
    ToyRun,
    angles,
    beyond,
    cache_error,
    frequencies_at,
    methods,
    original,
    own_score,
    random_score_rms,
    resolution,
    sharpness,
    stretch,
    toy_losses,
    unscaled,
)
from posenc_core.frequencies import attention_scales, rope_frequencies
from posenc_core.model import load_checkpoint
from posenc_core.rotary import apply_rotary, cos_sin
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.tasks import english
from posenc_core.train import loss_by_position

LLAMA2 = RopeSpec(d_head=128)
ASSET = Path(__file__).parents[2] / "assets" / "extension.json"


# ---------------------------------------------------------------- the methods that are compared


def test_methods_stretch_the_same_model_by_the_same_factor() -> None:
    made = methods(RopeSpec(d_head=80, base=500_000.0, rotary_fraction=0.5, layout="interleaved"), 4096, 65_536)
    assert tuple(made) == METHODS
    for name, spec in made.items():
        assert spec.scaling == name
        assert (spec.d_head, spec.base, spec.rotary_dim, spec.layout) == (80, 500_000.0, 40, "interleaved")
        assert name == "none" or spec.factor == 16
        if name in ("ntk_by_parts", "dynamic", "yarn", "llama3"):
            assert spec.original_max_position_embeddings == 4096
    torch.testing.assert_close(made["none"].inv_freq(), original(made["yarn"]), rtol=0, atol=0)


def test_a_specs_own_fields_stay_with_its_own_scaling() -> None:
    mine = RopeSpec(scaling="yarn", factor=4.0, beta_fast=16.0, truncate=False, attention_factor=1.3)
    made = methods(mine, 8192, 65_536)
    assert made["yarn"] == mine.replace(factor=8.0)
    assert made["ntk_by_parts"].beta_fast == 32.0
    assert made["none"] == RopeSpec() == unscaled(mine)


def test_longrope_comes_with_its_lists_only() -> None:
    lists = {"short_factor": (1.0, 2.0), "long_factor": (4.0, 8.0)}
    made = methods(RopeSpec(d_head=4, scaling="longrope", factor=2.0, **lists), 1024, 8192)
    assert made["longrope"].long_factor == (4.0, 8.0)
    assert made["longrope"].factor == 8
    assert "longrope" not in methods(RopeSpec(d_head=4, scaling="longrope", factor=2.0), 1024, 8192)


def test_a_p_rope_model_can_only_be_divided() -> None:
    mine = RopeSpec(d_head=64, scaling="proportional", rotary_fraction=0.75, factor=2.0)
    made = methods(mine, 1024, 8192)
    assert tuple(made) == ("none", "proportional")
    assert made["none"] == unscaled(mine)
    torch.testing.assert_close(made["proportional"].inv_freq() * 8, made["none"].inv_freq())
    found = angles(made["proportional"], 1024, 8192)
    assert bool(found.ratio[24:].isnan().all())
    assert not bool(found.bad(8192).any())


def test_methods_that_need_two_pairs_are_left_out_of_one() -> None:
    assert set(METHODS) - set(methods(RopeSpec(d_head=2), 64, 128)) == {"ntk", "dynamic"}


@pytest.mark.parametrize(("trained", "target"), [(1, 8), (16, 8), (8192, LONGEST + 1), (2, 2 * 4096 + 1)])
def test_lengths_that_are_not_legal_are_named(trained: int, target: int) -> None:
    with pytest.raises(ValueError, match=f"trained = {trained}, target = {target} is not legal"):
        methods(LLAMA2, trained, target)


# ---------------------------------------------------------------- angles that were never seen


def brute_force(spec: RopeSpec, trained: int, target: int) -> tuple[list[bool], list[float]]:
    """Full turns and first bad positions by walking over all positions."""
    before, after = original(spec).tolist(), rope_frequencies(spec, target).inv_freq.tolist()
    full, first = [], []
    for w, v in zip(before, after, strict=True):
        gaps = sorted(m * w % (2 * math.pi) for m in range(trained))
        # the arc is closed if no gap between neighbouring trained angles is wider than one step
        widest = max([b - a for a, b in pairwise(gaps)] + [2 * math.pi - gaps[-1]])
        full.append(widest <= w * (1 + 1e-9))
        bad = (m for m in range(target) if m * v >= trained * w * (1 - 1e-12))
        first.append(math.inf if full[-1] else next(bad, math.inf))
    return full, first


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("trained", "target"), [(16, 16), (16, 64), (100, 1234), (512, 2048)])
@pytest.mark.parametrize("spec", [RopeSpec(d_head=16), RopeSpec(d_head=32, base=500.0)], ids=["1e4", "500"])
def test_first_bad_positions_are_those_of_a_walk(method: str, trained: int, target: int, spec: RopeSpec) -> None:
    made = methods(spec, trained, target)[method]
    found = angles(made, trained, target)
    full, first = brute_force(made, trained, target)
    assert found.full.tolist() == full
    within = [f if f < target else math.inf for f in found.first_bad.tolist()]
    assert within == first
    assert found.bad(target).tolist() == [f < target for f in first]


def test_a_new_base_is_an_extension_of_the_old_one() -> None:
    model, spec, trained, target = RopeSpec(d_head=16), RopeSpec(d_head=16, base=500.0), 64, 256
    found = angles(spec, trained, target, model)
    old, new = model.inv_freq(), spec.inv_freq()
    for i, (a, b) in enumerate(zip(old.tolist(), new.tolist(), strict=True)):
        past = [m for m in range(target) if m * b >= trained * a * (1 - 1e-12)]
        full = trained * a >= 2 * math.pi
        assert bool(found.full[i]) == full
        assert found.bad(target)[i] == (bool(past) and not full)
        assert not found.bad(target)[i] or found.first_bad[i] == past[0]
    assert found.bad(target).any()
    doublings, _ = beyond(spec, trained, target, target, model)
    assert ((doublings >= -1e-9).any(-1) == found.bad(target)).all()
    turned = torch.stack([torch.polar(torch.ones(8).double(), w) - 1 for w in (new, old)]).abs().norm(dim=-1)
    assert resolution(spec, target, model) == pytest.approx(float(turned[0] / turned[1]))
    with pytest.raises(ValueError, match="a model with 8 pairs is not legal; legal: 4"):
        angles(RopeSpec(d_head=8), trained, target, model)


@pytest.mark.parametrize(("name", "divided"), [("linear", 4), ("ntk", 4), ("yarn", 4), ("dynamic", 13), ("none", 1)])
def test_the_slowest_pair_is_stretched(name: str, divided: float) -> None:
    assert stretch(methods(RopeSpec(), 4096, 16_384)[name], 16_384) == pytest.approx(divided)


def test_dynamic_ntk_with_factor_one_is_the_papers() -> None:
    """Section 3.3 of Peng et al. 2023: s = max(1, L/L₀)."""
    spec = RopeSpec(scaling="dynamic", factor=1.0, original_max_position_embeddings=4096)
    assert [stretch(spec, n) for n in (1024, 4096, 16_384)] == pytest.approx([1, 1, 4])
    assert stretch(RopeSpec(scaling="proportional", rotary_fraction=0.5, factor=8.0), 64) == pytest.approx(8)


def test_what_each_method_is_known_for() -> None:
    trained, target = 8192, 131_072
    made = {name: angles(s, trained, target) for name, s in methods(LLAMA2, trained, target).items()}
    bad = {name: int(a.bad(target).sum()) for name, a in made.items()}
    never_full = int((made["none"].seen < 1).sum())
    assert bad["none"] == never_full == 14
    assert made["none"].first_bad.min() == trained
    # PI keeps every angle inside; NTK only the slowest pair's, so the others leave their arcs (bloc97's trade)
    assert bad["linear"] == bad["ntk_by_parts"] == bad["yarn"] == bad["llama3"] == 0
    assert bad["ntk"] == never_full - 1
    assert not bool(made["ntk"].bad(target)[-1])
    torch.testing.assert_close(made["linear"].reached, made["none"].seen)
    torch.testing.assert_close(made["none"].reached, made["none"].seen * 16)


@pytest.mark.parametrize("method", ["none", "ntk", "yarn"])
def test_the_map_holds_each_columns_last_position(method: str) -> None:
    trained, target, columns = 100, 1234, 50
    spec = methods(RopeSpec(d_head=16), trained, target)[method]
    values, step = beyond(spec, trained, target, columns)
    found = angles(spec, trained, target)
    assert step == math.ceil(target / columns)
    assert values.shape == (8, math.ceil(target / step))
    before, after = original(spec), rope_frequencies(spec, target).inv_freq
    for column in range(values.shape[1]):
        last = min((column + 1) * step, target) - 1
        expected = torch.log2(last * after / (trained * before)).masked_fill(found.full, torch.nan)
        torch.testing.assert_close(values[:, column], expected, equal_nan=True)
        past = values[:, column] >= 0
        assert past.tolist() == [last >= f for f in found.first_bad.tolist()]


def test_the_map_of_the_longest_target_is_as_small_as_any() -> None:
    spec = methods(RopeSpec(d_head=1024), 8192, LONGEST)["yarn"]
    values, step = beyond(spec, 8192, LONGEST, 1024)
    assert values.shape == (512, 1024)
    assert step * 1024 == LONGEST
    assert not bool(values.isinf().any())


def test_a_map_of_two_positions() -> None:
    values, step = beyond(RopeSpec(d_head=8), 2, 2, 1024)
    assert (values.shape, step) == ((4, 2), 1)
    assert bool(values.isfinite().all())


def test_resolution_is_the_distance_of_neighbours() -> None:
    made = methods(LLAMA2, 8192, 131_072)
    x = torch.ones(1, 2, 128, dtype=torch.float64)

    def apart(spec: RopeSpec) -> float:
        cos, sin = cos_sin(torch.tensor([7, 8]), rope_frequencies(spec, 131_072).inv_freq, dtype=torch.float64)
        return (apply_rotary(x, cos, sin)[0].diff(dim=0) / math.sqrt(2)).norm().item()

    for name, spec in made.items():
        # ones in both features of a pair: |rotated difference|² is 2·(2 - 2cos w)
        assert resolution(spec, 131_072) == pytest.approx(apart(spec) / apart(made["none"]), rel=1e-9), name
    assert resolution(made["none"], 131_072) == 1
    assert resolution(made["linear"], 131_072) == pytest.approx(1 / 16, rel=0.05)
    assert resolution(made["yarn"], 131_072) > 0.999


# ---------------------------------------------------------------- cached keys


@pytest.mark.parametrize(
    "spec",
    [
        RopeSpec(d_head=32, scaling="dynamic", factor=8.0, original_max_position_embeddings=64),
        RopeSpec(d_head=32, scaling="longrope", factor=8.0, original_max_position_embeddings=64, rotary_fraction=0.5),
    ],
    ids=["dynamic", "longrope-partial"],
)
def test_cache_errors_are_those_of_sampled_vectors(spec: RopeSpec) -> None:
    """A key rotated in a sequence of 60, a query at 500: against rotating both in a sequence of 501."""
    generator = torch.Generator().manual_seed(0)
    key_at, query_at = 59, 500
    q, k = torch.randn(2, 20_000, 1, spec.d_head, generator=generator, dtype=torch.float64)
    old, now = frequencies_at(spec, [key_at + 1, query_at + 1])
    factor = attention_scales(spec).tables

    def turned(x: torch.Tensor, position: int, inv_freq: torch.Tensor) -> torch.Tensor:
        cos, sin = cos_sin(torch.tensor([position]), inv_freq, dtype=torch.float64, attention_factor=factor)
        return apply_rotary(x, cos, sin)

    query = turned(q, query_at, now)
    right, wrong = ((query * turned(k, key_at, f)).sum(-1) for f in (now, old))
    measured = ((right - wrong).square().mean() / right.square().mean()).sqrt().item()
    closed = cache_error(spec, old, now, torch.tensor([key_at])).item()
    assert closed == pytest.approx(measured, rel=0.02)
    assert closed > 0.1


def test_a_fresh_key_has_no_error_and_the_module_agrees() -> None:
    spec = RopeSpec(d_head=32, scaling="dynamic", factor=8.0, original_max_position_embeddings=64)
    now = frequencies_at(spec, [500])[0]
    assert cache_error(spec, now, now, torch.arange(500)).abs().max() == 0
    rope, positions = spec.build(), torch.arange(500)
    q, k = torch.randn(2, 1, 1, 500, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    fresh = attention_scores(q, k, rope, positions, positions)[0, 0, -1]
    cos, sin = cos_sin(positions, now, dtype=torch.float64)
    again = (apply_rotary(k, cos, sin)[0, 0] @ apply_rotary(q, cos, sin)[0, 0, -1]) / math.sqrt(32)
    torch.testing.assert_close(fresh, again)


def test_vllms_dynamic_ntk_never_moves() -> None:
    spec = RopeSpec(scaling="dynamic", factor=8.0, original_max_position_embeddings=64, dynamic_length="maximum")
    made = frequencies_at(spec, [1, 64, 65, 512])
    assert made.unique(dim=0).shape[0] == 1


# ---------------------------------------------------------------- the softmax


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("where", ["cos_sin", "scores"])
def test_entropies_are_those_of_real_vectors(share: float, where: str) -> None:
    """Scores of drawn vectors, rotated and scaled by the module itself, against the scores that are drawn directly."""
    spec = RopeSpec(
        d_head=32, scaling="yarn", factor=64.0, original_max_position_embeddings=64, rotary_fraction=share,
        attention_on=where,
    )  # fmt: skip
    length, generator, rope, plain = 400, torch.Generator().manual_seed(5), spec.build(), NoneSpec().build()
    q = torch.randn(1, 1, 300, 32, generator=generator, dtype=torch.float64)
    k = torch.randn(1, 1, length, 32, generator=generator, dtype=torch.float64)
    positions = torch.arange(length)
    entropies = [
        torch.special.entr(attention_scores(q, k, e, torch.full((300,), length - 1), positions).softmax(-1))
        .sum(-1)
        .mean()
        for e in (plain, rope)
    ]
    made = sharpness(spec, [2, length], draws=300)
    assert made.without[-1].item() == pytest.approx(entropies[0].item(), abs=0.05)
    assert made.with_factor[-1].item() == pytest.approx(entropies[1].item(), abs=0.05)


def test_a_factor_sharpens_and_costs_and_none_costs_nothing() -> None:
    lengths = [2, 64, 4096]
    yarn = sharpness(methods(LLAMA2, 8192, 131_072)["yarn"], lengths)
    assert bool((yarn.with_factor < yarn.without).all())
    assert bool((yarn.divergence > 0).all())
    assert bool((yarn.without < torch.tensor(lengths).log()).all())
    plain = sharpness(LLAMA2, lengths)
    torch.testing.assert_close(plain.without, plain.with_factor)
    assert plain.divergence.abs().max() < 1e-12
    # scores with variance 1: ln L - 1/2 for many keys
    assert plain.without[-1].item() == pytest.approx(math.log(4096) - 0.5, abs=0.05)


def test_a_huge_factor_does_not_overflow() -> None:
    spec = RopeSpec(scaling="yarn", factor=2.0, attention_factor=100.0)
    made = sharpness(spec, [2, 1000])
    assert all(bool(t.isfinite().all()) for t in made)
    assert made.with_factor[-1] < 0.1


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("where", ["cos_sin", "scores"])
def test_scores_of_random_vectors_are_those_of_the_module(share: float, where: str) -> None:
    spec = RopeSpec(
        d_head=16, scaling="yarn", factor=64.0, original_max_position_embeddings=64, rotary_fraction=share,
        attention_on=where,
    )  # fmt: skip
    generator, rope = torch.Generator().manual_seed(2), spec.build()
    q, k = torch.randn(2, 1, 40_000, 1, 16, generator=generator, dtype=torch.float64)
    distances = torch.tensor([0, 3, 50])
    for distance, mean in zip(distances.tolist(), own_score(spec, distances, 4096).tolist(), strict=True):
        here, there = torch.tensor([distance]), torch.tensor([0])
        assert attention_scores(q, q, rope, here, there).mean().item() == pytest.approx(mean, abs=0.05)
        rms = attention_scores(q, k, rope, here, there).square().mean().sqrt().item()
        assert rms == pytest.approx(random_score_rms(spec), rel=0.02)


# ---------------------------------------------------------------- the toy model


def test_toy_losses_are_those_of_the_model_under_each_scaling() -> None:
    made = list(toy_losses(factors=[2], count=2))
    assert [x.method for x in made] == list(METHODS)
    model, record = load_checkpoint(extension.CHECKPOINT)
    assert isinstance(record.spec, RopeSpec)
    model.encoding = record.spec.replace(scaling="ntk", factor=2.0).build()
    expected = loss_by_position(model, english().held_out, 2 * record.train_length, 2)
    ntk = made[2]
    assert (ntk.method, ntk.factor, len(ntk.loss)) == ("ntk", 2, 2 * record.train_length // BIN)
    torch.testing.assert_close(
        torch.tensor(ntk.loss, dtype=torch.float64), expected.view(-1, BIN).mean(-1), rtol=0, atol=6e-5
    )
    run = ToyRun(record.train_length, tuple(made))
    assert run.past("ntk", 2) == pytest.approx(expected[record.train_length :].mean().item(), abs=6e-5)
    assert run.inside("ntk", 2) == pytest.approx(expected[: record.train_length].mean().item(), abs=6e-5)


def test_toy_losses_stop_when_told() -> None:
    asked = iter([False, False, True])
    assert len(list(toy_losses(factors=[2], count=1, should_stop=lambda: next(asked)))) == 2


def test_a_loss_that_was_not_measured_is_named() -> None:
    run = ToyRun(16, (ToyLoss("none", 2, (1.0, 2.0, 3.0, 4.0)),))
    assert (run.inside("none", 2), run.past("none", 2)) == (1.5, 3.5)
    with pytest.raises(KeyError, match="yarn at 2 times"):
        run.past("yarn", 2)


def test_a_model_without_rope_cannot_be_extended() -> None:
    with pytest.raises(TypeError, match="alibi; only rope"):
        next(toy_losses(extension.CHECKPOINT.with_name("alibi.safetensors")))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(ASSET.read_text())
    return content


def run_of(content: dict[str, Any]) -> ToyRun:
    losses = tuple(ToyLoss(x["method"], x["factor"], tuple(x["loss"])) for x in content["toy"]["losses"])
    return ToyRun(content["toy"]["trained"], losses)


def test_the_record_is_of_the_shipped_checkpoint_and_complete(recorded: dict[str, Any]) -> None:
    assert recorded["toy"]["text_sha256"] == english().digest
    expected = extension.provenance()
    assert {k: v for k, v in recorded["toy"].items() if k not in ("machine", "losses")} == {
        k: v for k, v in expected.items() if k != "machine"
    }
    assert {"cpu", "cores", "torch_threads", "torch", "python", "date"} <= recorded["toy"]["machine"].keys()
    assert recorded["toy"]["machine"].keys() <= expected["machine"].keys()
    run = run_of(recorded)
    assert [(x.factor, x.method) for x in run.losses] == [(f, m) for f in FACTORS for m in METHODS]


def test_the_recorded_losses_come_out_again(recorded: dict[str, Any]) -> None:
    assert recorded["toy"]["text_sha256"] == english().digest
    run = run_of(recorded)
    for loss in toy_losses(factors=[2]):
        again = run.of(loss.method, 2)
        assert again is not None
        assert loss.loss == pytest.approx(again.loss, abs=2e-3)


def test_what_the_recorded_losses_say(recorded: dict[str, Any]) -> None:
    run = run_of(recorded)
    for factor in FACTORS:
        # position interpolation needs fine-tuning; everything else is better than nothing past the training length
        assert run.past("linear", factor) > run.past("none", factor) > run.past("ntk", factor)
        for method in ("ntk_by_parts", "dynamic", "yarn", "llama3"):
            assert run.past(method, factor) < run.past("ntk", factor)
    assert run.past("ntk", 2) - run.inside("none", 2) < 0.25
    assert run.past("linear", 2) > run.inside("none", 2) + 1


def test_the_command_line_writes_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(extension, "FACTORS", (2,))
    monkeypatch.setattr(extension, "ROTARY_DIMS", (4, 8))
    path = tmp_path / "out.json"
    assert extension.main(["--json", str(path), "--limit", "100"]) == 0
    content = json.loads(path.read_text())
    assert content["bases"]["limit"] == 100
    assert {len(x) for x in content["bases"]["reached"].values()} == {len(extension.cosine_sums.bases())}
    run = run_of(content)
    assert f"2 times, yarn: {run.past('yarn', 2):.3f} nats/byte past 128" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--limit", "1"], ["--model", "nowhere.safetensors"], ["--model", str(ASSET)]],
    ids=["limit", "none", "json"],
)
def test_the_command_line_refuses(arguments: list[str], tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        extension.main(["--json", str(tmp_path / "x.json"), *arguments])
    assert "error: " in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_the_command_line_asks_for_a_folder_before_it_starts(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        extension.main(["--json", str(tmp_path / "nowhere" / "x.json")])
    assert "there is no folder" in capsys.readouterr().err
