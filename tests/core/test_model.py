import json
import math

import pytest
import torch
from safetensors import safe_open
from support import SIZES

from posenc_core import SCHEMES, SpecError, parse_spec
from posenc_core.model import (
    VOCABULARY,
    Checkpoint,
    ModelSize,
    ToyModel,
    load_checkpoint,
    next_token_loss,
    read_record,
    save_checkpoint,
)
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec

schemes = pytest.mark.parametrize("cls", SCHEMES.values(), ids=SCHEMES)
SMALL = ModelSize(n_layers=2, n_heads=SIZES["n_heads"], d_model=SIZES["d_model"])


def model_of(spec, size=SMALL, seed=0):
    torch.manual_seed(seed)
    return ToyModel(spec, size).eval()


def tokens_of(batch=2, length=10, seed=0):
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


@schemes
def test_the_spec_takes_the_models_sizes(cls):
    spec = model_of(cls()).encoding.spec
    assert spec == SMALL.of(cls())
    sizes = {"d_model": 32, "d_head": 8, "n_heads": 4}
    for layer in spec.layers if cls.hook == "layers" else [spec]:
        assert all(getattr(layer, p.name) == sizes[p.name] for p in layer.params() if p.name in sizes)


def test_sizes_that_a_scheme_refuses():
    with pytest.raises(SpecError, match="d_head = 3 "):
        ToyModel(RopeSpec(), ModelSize(n_heads=4, d_model=12))


@schemes
def test_trace_and_forward_agree(cls):
    model, tokens, p = model_of(cls()), tokens_of(), torch.arange(10)
    logits, trace = model(tokens, p), model.trace(tokens, p)
    assert logits.shape == (2, 10, VOCABULARY)
    torch.testing.assert_close(trace.logits, logits, rtol=1e-4, atol=1e-4)
    assert [w.shape for w in trace.weights] == [(2, 4, 10, 10)] * 2
    assert [h.shape for h in trace.hidden] == [(2, 10, 32)] * 3


@schemes
def test_weights_are_causal_rows_that_sum_to_one(cls):
    for w in model_of(cls()).trace(tokens_of(), torch.arange(10)).weights:
        torch.testing.assert_close(w.sum(-1), torch.ones(2, 4, 10), rtol=0, atol=1e-5)
        assert torch.equal(w, w.tril())
        assert (w >= 0).all()


@schemes
def test_logits_do_not_see_the_future(cls):
    model, tokens, p = model_of(cls()), tokens_of(), torch.arange(10)
    before = model(tokens, p)
    tokens[:, 6:] = (tokens[:, 6:] + 1) % VOCABULARY
    after = model(tokens, p)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=1e-5)
    assert (after[:, 6:] - before[:, 6:]).abs().max() > 0.1


def test_without_the_causal_mask_the_future_is_seen():
    model, tokens, p = model_of(RopeSpec()), tokens_of(), torch.arange(10)
    before = model(tokens, p, causal=False)
    tokens[:, 9] = (tokens[:, 9] + 1) % VOCABULARY
    assert (model(tokens, p, causal=False)[:, 0] - before[:, 0]).abs().max() > 1e-4


def test_without_positions_and_mask_tokens_are_a_set():
    model, tokens, p = model_of(NoneSpec()), tokens_of(), torch.arange(10)
    order = torch.tensor([4, 2, 9, 0, 1, 8, 7, 3, 6, 5])
    plain, shuffled = model(tokens, p, causal=False), model(tokens[:, order], p, causal=False)
    torch.testing.assert_close(shuffled, plain[:, order], rtol=0, atol=1e-4)


@pytest.mark.parametrize("spec", [RopeSpec(), AlibiSpec(), NoneSpec(), HybridSpec()])
def test_an_offset_leaves_the_logits_of_relative_schemes(spec):
    model, tokens, p = model_of(spec), tokens_of(), torch.arange(10)
    torch.testing.assert_close(model(tokens, p + 5000), model(tokens, p), rtol=0, atol=1e-3)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "integer"])
def test_an_offset_changes_the_logits_of_absolute_schemes(scheme):
    model, tokens, p = model_of(SCHEMES[scheme]()), tokens_of(), torch.arange(10)
    assert (model(tokens, p + 50) - model(tokens, p)).abs().max() > 1e-2


@schemes
def test_batch_positions(cls):
    model, tokens = model_of(cls()), tokens_of()
    p = torch.tensor([list(range(10)), list(range(20, 30))])
    both = model(tokens, p)
    for b in range(2):
        torch.testing.assert_close(both[b : b + 1], model(tokens[b : b + 1], p[b]), rtol=0, atol=1e-4)


def test_each_layer_gets_its_own_scheme():
    tokens, p = tokens_of(), torch.arange(10)
    mixed = model_of(HybridSpec(layers=(AlibiSpec(), NoneSpec())))
    alibi, none = model_of(AlibiSpec()), model_of(NoneSpec())
    for model in (alibi, none):
        model.load_state_dict(mixed.state_dict())
    made = mixed.trace(tokens, p)
    assert torch.equal(made.weights[0], alibi.trace(tokens, p).weights[0])
    assert not torch.allclose(made.weights[0], none.trace(tokens, p).weights[0])
    _, second = none.blocks[1](made.hidden[1], none.encoding, p, True, True)
    assert torch.equal(made.weights[1], second)
    assert not torch.allclose(made.weights[1], alibi.trace(tokens, p).weights[1])
    swapped = model_of(HybridSpec(layers=(NoneSpec(), AlibiSpec())))
    swapped.load_state_dict(mixed.state_dict())
    assert torch.equal(swapped.trace(tokens, p).weights[0], none.trace(tokens, p).weights[0])


def test_the_encoding_can_be_exchanged_under_the_weights():
    model, tokens, p = model_of(RopeSpec()), tokens_of(), torch.arange(10)
    before = model(tokens, p)
    model.encoding = SMALL.of(RopeSpec(base=500.0)).build()
    assert (model(tokens, p) - before).abs().max() > 1e-3
    model.encoding = SMALL.of(RopeSpec()).build()
    assert torch.equal(model(tokens, p), before)


def test_next_token_loss_by_hand():
    logits, tokens = torch.randn(2, 4, VOCABULARY, generator=torch.Generator().manual_seed(0)), tokens_of(2, 4)
    made = next_token_loss(logits, tokens)
    assert made.shape == (2, 3)
    for b in range(2):
        for i in range(3):
            row = logits[b, i].double()
            total = math.log(sum(math.exp(x) for x in row.tolist()))
            assert float(made[b, i]) == pytest.approx(total - float(row[tokens[b, i + 1]]), abs=1e-5)


@pytest.mark.parametrize("d_model", [32, 128])
def test_an_untrained_model_is_worse_than_chance_but_finite(d_model):
    """Chance is log 256 = 5.5 nats; the tied, unscaled embedding makes each byte guess itself at first."""
    model, tokens = model_of(RopeSpec(), ModelSize(d_model=d_model)), tokens_of(4, 64)
    loss = float(next_token_loss(model(tokens, torch.arange(64)), tokens).mean().detach())
    assert math.log(VOCABULARY) < loss < math.log(VOCABULARY) + math.sqrt(d_model)


@pytest.mark.parametrize("length", [1, 2])
def test_one_token_is_enough(length):
    assert model_of(RopeSpec())(tokens_of(1, length), torch.arange(length)).isfinite().all()


# ------------------------------------------------------------------ checkpoints


@schemes
def test_a_checkpoint_reads_back(cls, tmp_path):
    model, path = model_of(cls()), tmp_path / "model.safetensors"
    record = Checkpoint(
        spec=model.encoding.spec, size=SMALL, seed=7, steps=3, train_length=16, held_out_loss=[1.5, None],
        text_sha256="x",
    )  # fmt: skip
    save_checkpoint(model, record, path)
    loaded, found = load_checkpoint(path)
    assert found == record == read_record(path)
    assert loaded.encoding.spec == record.spec
    assert not loaded.training
    assert set(loaded.state_dict()) == set(model.state_dict())
    for name, t in loaded.state_dict().items():
        assert t.dtype == torch.float32
        torch.testing.assert_close(t, model.state_dict()[name], rtol=2.0**-11, atol=1e-7)
    tokens, p = tokens_of(), torch.arange(10)
    for q in model.parameters():
        q.data = q.data.half().float()
    assert torch.equal(loaded(tokens, p), model(tokens, p))


def test_a_checkpoint_holds_half_precision_and_json(tmp_path):
    model, path = model_of(RopeSpec()), tmp_path / "model.safetensors"
    record = Checkpoint(spec=model.encoding.spec, size=SMALL, seed=0, steps=0, train_length=8)
    save_checkpoint(model, record, path)
    with safe_open(path, framework="pt") as file:
        assert {file.get_tensor(n).dtype for n in file.keys()} == {torch.float16}  # noqa: SIM118
        data = json.loads(file.metadata()["posenc"])
    assert data == json.loads(json.dumps(record.to_mapping()))
    assert parse_spec(data["spec"]) == record.spec
    assert data["torch_version"] == torch.__version__
