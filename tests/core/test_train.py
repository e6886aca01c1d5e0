import io
import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import groupby, islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import ROOT

from posenc_core import SCHEMES, parse_spec
from posenc_core.model import ModelSize, ToyModel, load_checkpoint, read_record
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.tasks import (
    Batch,
    Brackets,
    Copy,
    Corpus,
    Recall,
    ShortTexts,
    Task,
    TextTask,
    TokenBack,
    encode,
    english,
    windows,
)
from posenc_core.train import (
    EVALUATE_TIMES,
    STAGES,
    TrainConfig,
    Trainer,
    alibis,
    by_position,
    loss_by_position,
    main,
    new_model,
    slope_factor,
    stage_of,
    train,
    train_checkpoint,
)

SMALL = ModelSize(n_layers=1, n_heads=2, d_model=16)
TEXT = encode("the quick brown fox jumps over the lazy dog. " * 40)
TASK = TextTask(Corpus(TEXT, TEXT, ""))
schemes = pytest.mark.parametrize("cls", SCHEMES.values(), ids=SCHEMES)


def config_of(spec, **changes):
    return TrainConfig(**{"spec": spec, "size": SMALL, "length": 16, "steps": 5, "batch": 4} | changes)


def trained(config):
    torch.manual_seed(config.seed)
    model = ToyModel(config.spec, config.size)
    return model, list(train(config, model, TASK))


@schemes
def test_the_same_seed_gives_the_same_model(cls):
    (a, records), (b, again) = trained(config_of(cls(), seed=1)), trained(config_of(cls(), seed=1))
    c, _ = trained(config_of(cls(), seed=2))
    assert [r.loss for r in records] == [r.loss for r in again]
    for name, t in a.state_dict().items():
        assert torch.equal(t, b.state_dict()[name])
    assert any(not torch.equal(t, c.state_dict()[n]) for n, t in a.state_dict().items())


def test_the_seed_chooses_the_windows_too():
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        losses.append([r.loss for r in train(config_of(NoneSpec(), seed=seed), ToyModel(NoneSpec(), SMALL), TASK)])
    assert losses[0] == losses[1] != losses[2]


def test_records_count_steps_and_time():
    _, records = trained(config_of(RopeSpec()))
    assert [r.step for r in records] == [1, 2, 3, 4, 5]
    assert all(math.isfinite(r.loss) for r in records)
    assert [r.seconds for r in records] == sorted(r.seconds for r in records)
    assert records[0].seconds > 0


@schemes
def test_loss_falls(cls):
    config = config_of(cls(), size=ModelSize(1, 2, 32), length=32, steps=40, batch=8, learning_rate=1e-2, warmup=5)
    _, records = trained(config)
    first, last = (sum(r.loss for r in part) / 5 for part in (records[:5], records[-5:]))
    assert last < first - 1.0
    assert last < math.log(256)


def test_leaving_the_loop_stops_the_training():
    config = config_of(RopeSpec())
    torch.manual_seed(0)
    model = ToyModel(config.spec, config.size)
    assert [r.step for r in islice(train(config, model, TASK), 2)] == [1, 2]
    torch.manual_seed(0)
    shorter = ToyModel(config.spec, config.size)
    records = train(config, shorter, TASK)
    next(records), next(records)
    for a, b in zip(model.parameters(), shorter.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_learned_table_is_trained():
    torch.manual_seed(0)
    model = ToyModel(LearnedSpec(), SMALL)
    before = model.encoding.table.detach().clone()
    list(train(config_of(LearnedSpec()), model, TASK))
    moved = (model.encoding.table.detach() - before).abs().amax(-1)
    assert (moved[:16] > 1e-4).all()


# ------------------------------------------------------------------ new models, the schedule


@schemes
def test_a_new_model_is_that_of_the_seed(cls):
    made, again, other = (new_model(config_of(cls(), seed=n)) for n in (3, 3, 4))
    torch.manual_seed(3)
    plain = ToyModel(cls(), SMALL)
    for name, t in plain.state_dict().items():
        assert torch.equal(t, made.state_dict()[name])
        assert torch.equal(t, again.state_dict()[name])
    assert not torch.equal(made.embedding.weight, other.embedding.weight)


class Spy:
    """A Trainer that keeps what each step used: learning rate, batch shape, positions, slopes."""

    def __init__(self, config, task=TASK):
        self.rates, self.shapes, self.positions, self.slopes, self.losses = [], [], [], [], []
        self.model = new_model(config)
        self.trainer = Trainer(config, self.model, task)
        self.model.register_forward_pre_hook(self._seen)
        while self.trainer.step < config.steps:
            self.losses.append(self.trainer.advance())
            self.rates += {group["lr"] for group in self.trainer.optimizer.param_groups}

    def _seen(self, _, arguments):
        self.shapes.append(tuple(arguments[0].shape))
        self.positions.append(arguments[1].tolist())
        self.slopes.append([a.slopes.detach().clone() for a in alibis(self.model)])


def earlier_rate(step, config):
    """The rate of a step from 0 as the first version of this module computed it, with a scheduler."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))


@pytest.mark.parametrize(("steps", "warmup"), [(20, 5), (20, 0), (7, 7), (3, 50), (1, 1)])
def test_the_schedule_warms_up_and_falls_to_a_tenth(steps, warmup):
    config = config_of(NoneSpec(), steps=steps, warmup=warmup)
    expected = [3e-3 * earlier_rate(i, config) for i in range(steps)]
    assert Spy(config).rates == pytest.approx(expected, rel=1e-12)


@schemes
def test_training_equals_a_loop_written_out(cls):
    """The loop as it was before there were options: same windows, optimizer and losses."""
    config = config_of(cls(), steps=6, warmup=3, seed=5)
    torch.manual_seed(5)
    model = ToyModel(config.spec, config.size)
    parts = [[p for p in model.parameters() if (p.dim() > 1) == more] for more in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": parts[0], "weight_decay": 0.1}, {"params": parts[1], "weight_decay": 0.0}],
        lr=3e-3, betas=(0.9, 0.95),
    )  # fmt: skip
    generator, losses = torch.Generator().manual_seed(5), []
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * earlier_rate(step, config)
        starts = torch.randint(len(TEXT) - 16, (4,), generator=generator).tolist()
        tokens = torch.stack([TEXT[a : a + 17] for a in starts]).long()
        logits = model(tokens[:, :-1], torch.arange(16))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    made = new_model(config)
    assert [r.loss for r in train(config, made, TASK)] == pytest.approx(losses, abs=1e-6)
    for name, t in model.state_dict().items():
        torch.testing.assert_close(made.state_dict()[name], t, rtol=0, atol=1e-5)


# ------------------------------------------------------------------ progressive length


@given(st.integers(1, 500), st.sampled_from([16, 24, 64, 128, 512]))
def test_stages_are_quarters_of_the_steps_and_double(steps, length):
    config = config_of(NoneSpec(), steps=steps, length=length, curriculum="progressive")
    stages = [stage_of(i, config) for i in range(steps)]
    if steps >= STAGES:
        assert [n for n, _ in groupby(s.length for s in stages)] == [length // 8, length // 4, length // 2, length]
    assert stages[-1].length == length or steps < STAGES
    for stage, part in groupby(enumerate(stages), key=lambda pair: pair[1]):
        first, *rest = [i for i, _ in part]
        assert first == stage.start
        assert abs(1 + len(rest) - steps / 4) < 1
    fixed = replace(config, curriculum="fixed")
    assert {stage_of(i, fixed) for i in range(steps)} == {(0, length)}


def test_progressive_training_by_hand():
    """Lengths, tokens a step, positions from 0, and a warm-up proportional to the length in each stage."""
    config = config_of(NoneSpec(), length=64, batch=4, steps=40, warmup=8, curriculum="progressive")
    spy = Spy(config)
    assert spy.shapes == [(32, 8)] * 10 + [(16, 16)] * 10 + [(8, 32)] * 10 + [(4, 64)] * 10
    assert spy.positions == [list(range(shape[1])) for shape in spy.shapes]
    warmth = []
    for warmup in (1, 2, 4, 8):
        warmth += [min(1.0, (i + 1) / warmup) for i in range(10)]
    cosine = [0.1 + 0.45 * (1 + math.cos(math.pi * max(0, i - 8) / 32)) for i in range(40)]
    assert spy.rates == pytest.approx([3e-3 * a * b for a, b in zip(warmth, cosine, strict=True)], rel=1e-12)


@pytest.mark.parametrize(("task", "lengths"), [(TokenBack(8), [9, 9, 9, 16]), (Copy(), [4, 4, 8, 16]),
                                               (Recall(), [16] * 4), (Brackets(), [4, 4, 8, 16])])  # fmt: skip
def test_no_stage_is_too_short_for_a_question(task, lengths):
    spy = Spy(config_of(NoneSpec(), length=16, batch=32, steps=8, curriculum="progressive"), task)
    assert [shape[1] for shape in spy.shapes[::2]] == lengths
    assert all(math.isfinite(x) for x in spy.losses)


# ------------------------------------------------------------------ slopes


@pytest.mark.parametrize("alpha", [0.25, 0.5, 1.0, 2.0])
def test_dynamic_slopes_by_hand(alpha):
    """In step t they are those of the spec times 1 + alpha·log(t/T): negative until T·e^(-1/alpha), 1 at the end."""
    spec = HybridSpec(layers=(AlibiSpec(n_heads=2, slopes=(0.5, 0.125)), RopeSpec()))
    spy = Spy(config_of(spec, steps=20, slope_training="dynamic", alpha=alpha, size=ModelSize(2, 2, 16)))
    for step, (seen,) in enumerate(spy.slopes, 1):
        factor = 1 + alpha * (math.log(step) - math.log(20))
        assert seen.tolist() == pytest.approx([0.5 * factor, 0.125 * factor], abs=1e-12)
        assert (factor < 0) == (step < 20 * math.exp(-1 / alpha)) == bool((seen < 0).all())
    assert spy.slopes[-1][0].tolist() == [0.5, 0.125]  # to the last bit
    (alibi,) = alibis(spy.model)
    assert alibi.slopes.tolist() == [0.5, 0.125]
    assert not list(alibi.parameters())


def test_a_factor_changes_its_sign_where_the_article_says_nothing_of_it():
    assert slope_factor(600, 600, 0.5) == 1.0
    assert slope_factor(81, 600, 0.5) < 0 < slope_factor(82, 600, 0.5)  # 600·e^-2 = 81.2
    assert slope_factor(1, 600, 0.5) == pytest.approx(1 - 0.5 * math.log(600))


def test_dynamic_slopes_with_alpha_0_are_fixed_ones():
    fixed, dynamic = (Spy(config_of(AlibiSpec(), slope_training=how, alpha=0.0)) for how in ("fixed", "dynamic"))
    assert fixed.losses == dynamic.losses


def test_learned_slopes_are_trained_without_decay_and_kept():
    config = config_of(HybridSpec(layers=(AlibiSpec(), RopeSpec())), steps=10, size=ModelSize(2, 2, 16),
                       slope_training="learned", warmup=1)  # fmt: skip
    spy = Spy(config)
    start = AlibiSpec(n_heads=2).slope_tensor()
    assert spy.slopes[0][0].tolist() == pytest.approx(start.tolist(), rel=1e-6)
    (alibi,) = alibis(spy.model)
    assert isinstance(alibi.slopes, torch.nn.Parameter)
    assert (alibi.slopes.grad != 0).all()
    assert ((alibi.slopes.detach() - start).abs() > 1e-3).all()
    kept = [t for name, t in spy.trainer.state_dict()["model"].items() if name.endswith("slopes")]
    assert len(kept) == 1
    assert torch.equal(kept[0], alibi.slopes.detach())
    decays = [
        g["weight_decay"] for g in spy.trainer.optimizer.param_groups if any(p is alibi.slopes for p in g["params"])
    ]
    assert decays == [0.0]


def test_the_gradient_of_a_learned_slope_is_the_difference_quotient():
    model = new_model(config_of(AlibiSpec(), slope_training="learned"))
    tokens, (alibi,) = TEXT[None, :33].long(), alibis(model)

    def loss():
        return torch.nn.functional.cross_entropy(model(tokens[:, :-1], torch.arange(32))[0], tokens[0, 1:])

    loss().backward()
    model.double()
    for head in range(2):
        ends = []
        for step in (1e-4, -1e-4):
            with torch.no_grad():
                alibi.slopes[head] += step
                ends.append(float(loss()))
                alibi.slopes[head] -= step
        assert float(alibi.slopes.grad[head]) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-2, abs=1e-6)


# ------------------------------------------------------------------ position gaps


def test_positions_with_gaps_are_sorted_different_and_within_the_range():
    runs = [Spy(config_of(RopeSpec(), steps=40, position_gap=4, seed=n)).positions for n in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    for drawn in runs[0]:
        assert len(set(drawn)) == 16
        assert drawn == sorted(drawn)
        assert 0 <= drawn[0] <= drawn[-1] < 64
    seen = Counter(p for drawn in runs[0] for p in drawn)
    assert len(seen) == 64  # every position is drawn at times
    assert len({tuple(d) for d in runs[0]}) == 40  # and every step draws anew


def test_gaps_follow_the_length_of_the_stage():
    spy = Spy(config_of(RopeSpec(), length=64, steps=40, position_gap=2, curriculum="progressive"))
    for shape, drawn in zip(spy.shapes, spy.positions, strict=True):
        assert len(drawn) == shape[1]
        assert drawn[-1] < 2 * shape[1]


def test_without_gaps_positions_count():
    assert Spy(config_of(RopeSpec())).positions == [list(range(16))] * 5


# ------------------------------------------------------------------ tables in fewer bits


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_tables_are_rounded_and_attention_is_float32(name, monkeypatch):
    spec = HybridSpec(layers=(AlibiSpec(), RopeSpec(base=500.0)))
    config = config_of(spec, table_format=name, size=ModelSize(2, 2, 16), length=64)
    model, seen = new_model(config), []

    def kernel(q, k, v, **options):
        seen.append({t.dtype for t in (q, k, v)})
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    for module in ("attention", "linear_bias"):
        monkeypatch.setattr(sys.modules[f"posenc_core.{module}"], "scaled_dot_product_attention", kernel)
    list(train(replace(config, steps=1), model, TASK))
    assert seen == [{torch.float32}] * 2
    rope = model.encoding.layers[1]
    dtype = getattr(torch, name)
    assert rope.table_dtype == dtype
    for made, function in zip(rope.tables(torch.arange(64)), (math.cos, math.sin), strict=True):
        assert made.dtype == torch.float32
        assert torch.equal(made, made.to(dtype).float())
        exact = torch.tensor([[function(p * 500.0 ** (-2 * i / 8)) for i in range(4)] for p in range(64)]).double()
        assert float((made - exact).abs().max()) <= torch.finfo(dtype).eps / 4 * 1.01
        if dtype == torch.float16:
            assert made.tolist() == np.float16(exact.numpy()).astype(float).tolist()


def test_the_format_changes_the_losses_and_float32_is_the_default():
    losses = {name: Spy(config_of(RopeSpec(), table_format=name)).losses for name in ("float32", "float16", "bfloat16")}
    assert losses["float32"] == Spy(config_of(RopeSpec())).losses
    assert losses["float16"] != losses["float32"]
    assert losses["float16"] == pytest.approx(losses["float32"], abs=0.02)
    assert losses["bfloat16"] == pytest.approx(losses["float32"], abs=0.1)
    assert new_model(config_of(RopeSpec())).encoding.table_dtype is None


# ------------------------------------------------------------------ going on

OPTIONS = {
    "plain": (AlibiSpec(), TASK, {}),
    "learned table": (LearnedSpec(), TASK, {}),
    "progressive": (RopeSpec(), TASK, {"curriculum": "progressive"}),
    "dynamic slopes": (AlibiSpec(), TASK, {"slope_training": "dynamic"}),
    "learned slopes": (AlibiSpec(), TASK, {"slope_training": "learned"}),
    "gaps": (RopeSpec(), TASK, {"position_gap": 4}),
    "float16": (RopeSpec(), TASK, {"table_format": "float16"}),
    "all": (
        HybridSpec(layers=(AlibiSpec(), RopeSpec())),
        Recall(),
        {"curriculum": "progressive", "slope_training": "dynamic", "position_gap": 2, "table_format": "bfloat16"},
    ),
    "copy": (NoneSpec(), Copy(), {}),
    "token_back": (RopeSpec(), TokenBack(3), {}),
    "brackets": (NoneSpec(), Brackets(), {}),
    "short texts": (RopeSpec(), ShortTexts(english()), {}),
}


@pytest.mark.parametrize("stop", [1, 5])
@pytest.mark.parametrize(("spec", "task", "options"), OPTIONS.values(), ids=OPTIONS)
def test_training_goes_on_as_if_never_stopped(spec, task, options, stop):
    config = config_of(spec, steps=8, length=24, batch=8, warmup=2, size=ModelSize(2, 2, 16), **options)
    whole = Trainer(config, new_model(config), task)
    losses = [whole.advance() for _ in range(8)]
    begun = Trainer(config, new_model(config), task)
    assert [begun.advance() for _ in range(stop)] == losses[:stop]
    file = io.BytesIO()
    torch.save(begun.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other = Trainer(config, new_model(replace(config, seed=77)), task)
    other.load_state_dict(state)
    assert other.step == stop
    assert [other.advance() for _ in range(stop, 8)] == losses[stop:]
    for (name, a), b in zip(whole.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    for a, b in zip(alibis(whole.model), alibis(other.model), strict=True):
        assert torch.equal(a.slopes, b.slopes)


# ------------------------------------------------------------------ loss and accuracy by position


def by_hand(model, batch):
    """Means over the examples that count at each position, one log-probability at a time, in Python."""
    scored = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.scored is None else batch.scored
    losses, rights = [], []
    with torch.no_grad():
        logits = [model(row[None], torch.arange(len(row)))[0].double() for row in batch.tokens]
    for i in range(batch.tokens.shape[1]):
        rows = [n for n in range(len(batch.tokens)) if scored[n, i]]
        picked = [(logits[n][i], int(batch.targets[n, i])) for n in rows]
        losses.append(-sum(float(x.log_softmax(-1)[t]) for x, t in picked) / len(rows) if rows else math.nan)
        rights.append(sum(int(x.argmax()) == t for x, t in picked) / len(rows) if rows else math.nan)
    return losses, rights


@pytest.mark.parametrize("batch", [1, 3, 7, 100])
@pytest.mark.parametrize("task", [TASK, Recall(), Copy(), TokenBack(5), Brackets()], ids=lambda t: type(t).__name__)
def test_by_position_by_hand(task, batch):
    config = config_of(AlibiSpec(), length=32, steps=15, batch=16, learning_rate=2e-2, warmup=1)
    model = new_model(config)
    list(train(config, model, task))
    examples = task.held_out(7, 40, 32)
    made = by_position(model, examples, batch)
    losses, rights = by_hand(model, examples)
    assert made.loss.dtype == made.accuracy.dtype == torch.float64
    assert made.loss.tolist() == pytest.approx(losses, abs=1e-4, nan_ok=True)
    assert made.accuracy.tolist() == pytest.approx(rights, abs=1e-12, nan_ok=True)
    assert made.loss.isnan().tolist() == made.accuracy.isnan().tolist()
    assert not made.loss.requires_grad


def test_positions_where_nothing_counts_are_nan():
    tokens = torch.arange(12).view(2, 6)
    scored = torch.tensor([[0, 0, 1, 0, 1, 0], [0, 1, 1, 0, 0, 0]]).bool()
    made = by_position(new_model(config_of(NoneSpec())), Batch(tokens, tokens, scored))
    assert made.loss.isnan().tolist() == made.accuracy.isnan().tolist() == [True, False, False, True, False, True]


def test_a_model_that_answers_right_has_accuracy_1():
    """The embedding is its own inverse: a model of zero layers' effect repeats its token."""
    model = new_model(config_of(NoneSpec()))
    with torch.no_grad():
        for block in model.blocks:
            block.out.weight.zero_()
            block.down.weight.zero_()
        model.embedding.weight[:4] = 9 * torch.eye(4, 16)
    tokens = torch.tensor([[0, 1, 2, 3], [3, 3, 1, 0]])
    targets = torch.tensor([[0, 1, 2, 0], [3, 0, 1, 0]])
    assert by_position(model, Batch(tokens, targets)).accuracy.tolist() == [1.0, 0.5, 1.0, 0.5]


@pytest.mark.parametrize("rows", [4, 8, 12])
def test_past_a_table_both_are_nan(rows):
    model = new_model(config_of(LearnedSpec(max_position_embeddings=rows)))
    made = by_position(model, TokenBack(2).held_out(40, 12, 12))
    assert made.loss.isnan().tolist() == [not 2 <= i < rows for i in range(12)]
    assert made.accuracy.isnan().tolist() == [not 2 <= i < rows for i in range(12)]


def test_told_to_stop_the_means_are_those_of_the_examples_so_far():
    model, examples = new_model(config_of(RopeSpec())), TokenBack(3).held_out(10, 12, 12)
    calls = iter([False, False, True])
    made = by_position(model, examples, 2, lambda: next(calls))
    part = by_position(model, Batch(*(t[:4] for t in examples)), 4)
    assert made.loss.tolist() == pytest.approx(part.loss.tolist(), abs=1e-6, nan_ok=True)
    assert made.accuracy.tolist() == pytest.approx(part.accuracy.tolist(), nan_ok=True)
    assert by_position(model, examples, 2, lambda: True).loss.isnan().all()


class Fixed(Task):
    """Always the same examples."""

    def __init__(self, batch):
        self.examples = batch

    def batch(self, count, length, generator):
        return self.examples


def test_the_loss_of_a_step_counts_scored_positions_only():
    tokens = torch.arange(24).view(2, 12)
    scored = torch.zeros(2, 12, dtype=torch.bool)
    scored[0, 3] = scored[1, 7] = scored[1, 11] = True
    config = config_of(RopeSpec(), length=12)
    model = new_model(config)
    with torch.no_grad():
        chance = model(tokens, torch.arange(12)).double().log_softmax(-1)
    expected = -sum(float(chance[n, i, tokens[n, i] + 100]) for n, i in ((0, 3), (1, 7), (1, 11))) / 3
    targets = torch.where(scored, tokens + 100, 255)
    loss = Trainer(config, model, Fixed(Batch(tokens, targets, scored))).advance()
    assert loss == pytest.approx(expected, abs=1e-5)


# ------------------------------------------------------------------ loss by position


def losses_by_hand(model, tokens):
    """Mean loss at each position from log-probabilities picked one at a time: tokens [B, L + 1] -> [L]."""
    with torch.no_grad():
        logits = model(tokens[:, :-1], torch.arange(tokens.shape[1] - 1)).double()
    picked = logits.log_softmax(-1)
    return [
        -sum(float(picked[b, i, tokens[b, i + 1]]) for b in range(len(tokens))) / len(tokens)
        for i in range(tokens.shape[1] - 1)
    ]


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_loss_by_position_by_hand(batch):
    torch.manual_seed(0)
    model = ToyModel(AlibiSpec(), SMALL)
    made = loss_by_position(model, TEXT, 12, count=5, batch=batch)
    assert made.dtype == torch.float64
    assert made.tolist() == pytest.approx(losses_by_hand(model, windows(TEXT, 12, 5)), abs=1e-4)


@pytest.mark.parametrize(
    ("spec", "defined"),
    [
        (LearnedSpec(max_position_embeddings=8), 8),
        (LearnedSpec(max_position_embeddings=8, offset=2), 6),
        (IntegerSpec(variant="one_hot", max_position_embeddings=5), 5),
        (HybridSpec(layers=(LearnedSpec(max_position_embeddings=8), NoneSpec())), 8),
        (RopeSpec(), 12),
    ],
)
def test_loss_is_nan_past_a_table(spec, defined):
    torch.manual_seed(0)
    model = ToyModel(spec, SMALL)
    made = loss_by_position(model, TEXT, 12, count=4)
    assert made.shape == (12,)
    assert made.isnan().tolist() == [i >= defined for i in range(12)]
    expected = losses_by_hand(model, windows(TEXT, 12, 4)[:, : defined + 1])
    assert made[:defined].tolist() == pytest.approx(expected, abs=1e-4)


def test_text_shorter_than_a_window_is_refused():
    with pytest.raises(ValueError, match="length = 100 "):
        loss_by_position(ToyModel(NoneSpec(), SMALL), TEXT[:50], 100)


# ------------------------------------------------------------------ checkpoints and the command line


@pytest.mark.parametrize("spec", [RopeSpec(), LearnedSpec(max_position_embeddings=16)])
def test_a_checkpoint_records_the_losses_of_its_weights(spec, tmp_path):
    path = tmp_path / "sub" / "model.safetensors"
    config = config_of(spec, steps=3)
    record, records = train_checkpoint(config, path, progress=False)
    model, found = load_checkpoint(path)
    assert found == record
    assert (found.steps, found.seed, found.train_length, len(records)) == (3, 0, 16, 3)
    assert found.spec == SMALL.of(spec)
    assert found.text_sha256 == english().digest
    expected = loss_by_position(model, english().held_out, EVALUATE_TIMES * 16)
    assert [x is None for x in found.held_out_loss] == expected.isnan().tolist()
    assert len(found.held_out_loss) == EVALUATE_TIMES * 16
    for a, b in zip(found.held_out_loss, expected.tolist(), strict=True):
        assert a is None or a == pytest.approx(b, abs=2e-3)


def test_the_command_line_trains(tmp_path):
    out, records = tmp_path / "rope.safetensors", tmp_path / "rope.json"
    made = subprocess.run(
        [sys.executable, "-m", "posenc_core.train", "--scheme", "rope", "--set", "base=500", "--steps", "3",
         "--d-model", "32", "--length", "16", "--seed", "4", "--out", str(out), "--json", str(records)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "nats/byte" in made.stdout
    record, data = read_record(out), json.loads(records.read_text())
    assert record.spec == RopeSpec(base=500.0, d_head=8)
    assert (record.seed, record.steps, record.train_length) == (4, 3, 16)
    assert parse_spec(data["spec"]) == record.spec
    assert [r["step"] for r in data["records"]] == [1, 2, 3]
    assert data["held_out_loss"] == record.held_out_loss


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheme", "rope", "--set", "base=0.5"], "base = 0.5 is not legal; legal: a number from 1.001"),
        (["--scheme", "rope", "--set", "nonsense=1"], "nonsense = '1' is not legal (unknown name)"),
        (["--scheme", "rope", "--set", "base"], "base = '' is not legal"),
        (["--scheme", "rope", "--d-model", "36", "--heads", "4"], "d_head = 9 is not legal"),
        (["--scheme", "rpoe"], "invalid choice: 'rpoe'"),
    ],
)
def test_the_command_line_refuses(arguments, message, capsys, tmp_path):
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--steps", "1", "--out", str(tmp_path / "x")])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "arguments",
    [["--length", "100000000"], ["--length", "4000"], ["--length", "0"], ["--steps", "0"], ["--d-model", "33"],
     ["--heads", "0"], ["--layers", "-1"]],
    ids=" ".join,
)  # fmt: skip
def test_the_command_line_refuses_sizes(arguments, monkeypatch, tmp_path):
    def no_training(*_):
        raise AssertionError("training began")

    monkeypatch.setattr("posenc_core.train.train", no_training)
    with pytest.raises(SystemExit) as caught:
        main(["--scheme", "none", "--out", str(tmp_path / "x"), "--quiet", *arguments])
    assert caught.value.code == 2


# ------------------------------------------------------------------ the checkpoints that ship

SHIPPED = sorted((ROOT / "assets" / "models").glob("*.safetensors"))
shipped = pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)


@pytest.mark.shipped
def test_every_scheme_has_a_shipped_checkpoint():
    count = Counter(read_record(p).spec.scheme for p in SHIPPED)
    assert set(count) == set(SCHEMES)


def test_shipped_checkpoints_are_small():
    assert sum(p.stat().st_size for p in SHIPPED) < 10_000_000


@shipped
def test_a_shipped_checkpoint_loads_and_says_what_it_is(path):
    model, record = load_checkpoint(path)
    assert parse_spec(record.spec.to_mapping()) == record.spec == record.size.of(record.spec)
    assert record.steps > 0
    assert len(record.held_out_loss) == EVALUATE_TIMES * record.train_length
    assert model.trace(encode("Hello").long()[None], torch.arange(5)).logits.isfinite().all()


@shipped
def test_a_shipped_checkpoint_has_the_loss_it_records(path):
    """The record's windows, cut after the training length: a causal model's losses there do not see the rest."""
    model, record = load_checkpoint(path)
    text = english()
    assert record.text_sha256 == text.digest
    length = record.train_length
    tokens = windows(text.held_out, EVALUATE_TIMES * length, 32)[:, : length + 1]
    made = losses_by_hand(model, tokens)
    assert made == pytest.approx(record.held_out_loss[:length], abs=0.02)


@shipped
def test_a_shipped_checkpoint_has_learned_english(path):
    model, record = load_checkpoint(path)
    held_out = encode("The following sections describe the standard types that are built into the interpreter. " * 2)
    made = loss_by_position(model, held_out, min(64, record.train_length), count=2)
    assert float(made[32:].nanmean()) < 2.8


@shipped
def test_a_shipped_record_shows_the_known_picture(path):
    """At the training length every scheme with positions beats none; far past it ALiBi holds and RoPE does not."""
    record = read_record(path)
    length, losses = record.train_length, [math.nan if x is None else x for x in record.held_out_loss]
    inside, far = (sum(part) / len(part) for part in (losses[length // 2 : length], losses[-length:]))
    assert inside < {"none": 2.6, "integer": 2.8}.get(record.spec.scheme, 1.6)
    if record.spec.scheme == "alibi":
        assert far < inside + 0.1
    if record.spec.scheme in ("rope", "sinusoidal"):
        assert far > inside + 1.0
    if record.spec.scheme == "learned":
        assert [math.isnan(x) for x in losses] == [i >= model_rows(record.spec) for i in range(len(losses))]


def model_rows(spec):
    return spec.max_position_embeddings - spec.offset
