import json
import math
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest
import torch
from support import ROOT

from posenc_core import SCHEMES, parse_spec
from posenc_core.model import ModelSize, ToyModel, load_checkpoint, read_record
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.tasks import encode, english, windows
from posenc_core.train import EVALUATE_TIMES, TrainConfig, loss_by_position, main, train, train_checkpoint

SMALL = ModelSize(n_layers=1, n_heads=2, d_model=16)
TEXT = encode("the quick brown fox jumps over the lazy dog. " * 40)
schemes = pytest.mark.parametrize("cls", SCHEMES.values(), ids=SCHEMES)


def config_of(spec, **changes):
    return TrainConfig(**{"spec": spec, "size": SMALL, "length": 16, "steps": 5, "batch": 4} | changes)


def trained(config):
    torch.manual_seed(config.seed)
    model = ToyModel(config.spec, config.size)
    return model, list(train(config, model, TEXT))


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
        losses.append([r.loss for r in train(config_of(NoneSpec(), seed=seed), ToyModel(NoneSpec(), SMALL), TEXT)])
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
    assert [r.step for r in islice(train(config, model, TEXT), 2)] == [1, 2]
    torch.manual_seed(0)
    shorter = ToyModel(config.spec, config.size)
    records = train(config, shorter, TEXT)
    next(records), next(records)
    for a, b in zip(model.parameters(), shorter.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_learned_table_is_trained():
    torch.manual_seed(0)
    model = ToyModel(LearnedSpec(), SMALL)
    before = model.encoding.table.detach().clone()
    list(train(config_of(LearnedSpec()), model, TEXT))
    moved = (model.encoding.table.detach() - before).abs().amax(-1)
    assert (moved[:16] > 1e-4).all()


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
    if record.text_sha256 != text.digest:
        pytest.skip("another Python's help topics: not the text of the record")
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
