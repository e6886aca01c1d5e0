"""What the Attention page measures, against a second route."""

import math

import pytest
import torch

from posenc_core import analysis, parse_spec
from posenc_core.model import ModelSize, ToyModel

SIZE = ModelSize(n_layers=2, n_heads=2, d_model=16)


def toy(scheme: str, **fields: object) -> ToyModel:
    torch.manual_seed(0)
    return ToyModel(parse_spec({"scheme": scheme} | fields), SIZE).requires_grad_(False)


@pytest.mark.parametrize("block", [1, 2, 3, 5, 16])
def test_pooled_is_the_largest_allowed_weight_of_each_square(block):
    length = 11
    weights = torch.rand(3, length, length, generator=torch.Generator().manual_seed(0)).tril()
    got = analysis.pooled(weights, block)
    side = math.ceil(length / block)
    assert got.shape == (3, side, side)
    for i in range(side):
        for j in range(side):
            cells = [
                weights[1, r, c].item()
                for r in range(i * block, min((i + 1) * block, length))
                for c in range(j * block, min((j + 1) * block, length))
                if c <= r
            ]
            assert got[1, i, j].item() == max(cells) if cells else got[1, i, j].isnan()


def test_drift_of_even_attention_is_known():
    model = toy("none")
    for block in model.blocks:
        block.qkv.weight.zero_()
    got = analysis.attention_drift(model, torch.randint(256, (3, 9)))
    assert got.entropy.shape == got.distance.shape == (2, 2, 9)
    n = torch.arange(9, dtype=torch.float64)
    torch.testing.assert_close(got.entropy, (n + 1).log().expand(2, 2, 9), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(got.distance, (n / 2).expand(2, 2, 9), rtol=1e-6, atol=1e-6)


def test_drift_is_the_mean_over_windows():
    model = toy("rope", d_head=8)
    tokens = torch.randint(256, (2, 12), generator=torch.Generator().manual_seed(1))
    both, first, second = (analysis.attention_drift(model, t) for t in (tokens, tokens[:1], tokens[1:]))
    torch.testing.assert_close(both.entropy, (first.entropy + second.entropy) / 2)
    torch.testing.assert_close(both.distance, (first.distance + second.distance) / 2)


def test_drift_ends_with_the_table():
    model = toy("learned", d_model=16, max_position_embeddings=7, offset=2)
    got = analysis.attention_drift(model, torch.randint(256, (1, 9)))
    assert got.entropy[..., :5].isfinite().all()
    assert got.entropy[..., 5:].isnan().all()
    assert got.distance[..., 5:].isnan().all()


def test_permutation_change_tells_who_uses_positions():
    tokens = torch.randint(256, (20,), generator=torch.Generator().manual_seed(2))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    assert analysis.permutation_change(toy("none"), tokens, order) < 1e-5
    for scheme in ("sinusoidal", "learned", "alibi"):
        assert analysis.permutation_change(toy(scheme), tokens, order) > 1e-3


def test_permutation_change_of_alibi_without_slopes_is_nothing_once_its_own_mask_is_off():
    tokens = torch.randint(256, (20,), generator=torch.Generator().manual_seed(2))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    flat = {"n_heads": 2, "slopes": [0.0, 0.0]}
    assert analysis.permutation_change(toy("alibi", variant="symmetric", **flat), tokens, order) < 1e-5
    assert analysis.permutation_change(toy("alibi", **flat), tokens, order) > 1e-3


def test_offset_change_is_small_where_scores_are_relative():
    tokens = torch.randint(256, (20,), generator=torch.Generator().manual_seed(4))
    for scheme in ("none", "rope", "alibi"):
        logit, loss = analysis.offset_change(toy(scheme), tokens, 1000)
        assert logit < 1e-4
        assert abs(loss) < 1e-5
    logit, _ = analysis.offset_change(toy("sinusoidal"), tokens, 1000)
    assert logit > 0.1
