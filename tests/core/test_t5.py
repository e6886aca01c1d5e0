"""T5's relative buckets: transformers' values, and the module's bias by explicit loops."""

import pytest
import torch
from support import reference

from posenc_core import SCHEMES, SpecError, attention
from posenc_core.schemes.t5 import T5Spec, t5_buckets

ENTRIES = reference("t5_buckets.json")["entries"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e['bidirectional']}-{e['num_buckets']}-{e['max_distance']}")
def test_buckets_are_those_of_transformers(entry):
    made = t5_buckets(
        torch.tensor(entry["distance"]), bidirectional=entry["bidirectional"], buckets=entry["num_buckets"],
        max_distance=entry["max_distance"],
    )  # fmt: skip
    assert made.tolist() == entry["bucket"]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 64), (6, 9)])
def test_near_distances_have_a_bucket_each_and_far_ones_share_the_last(bidirectional, buckets, max_distance):
    side = buckets // 2 if bidirectional else buckets
    near = side // 2
    before = t5_buckets(
        -torch.arange(4 * max_distance), bidirectional=bidirectional, buckets=buckets, max_distance=max_distance
    )
    assert before[:near].tolist() == list(range(near))
    assert (before[max_distance:] == side - 1).all()
    assert (before.diff() >= 0).all()
    after = t5_buckets(
        torch.arange(1, 4 * max_distance), bidirectional=bidirectional, buckets=buckets, max_distance=max_distance
    )
    assert after.tolist() == ((before[1:] + side).tolist() if bidirectional else [0] * (4 * max_distance - 1))


def test_bias_reads_the_table_by_bucket():
    torch.manual_seed(0)
    for bidirectional in (True, False):
        t5 = T5Spec(
            n_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=20, bidirectional=bidirectional
        ).build()
        q_positions, k_positions = torch.tensor([0, 5, 40]), torch.tensor([0, 3, 4, 5, 6, 90])
        bias = t5.bias(q_positions, k_positions)
        assert bias.shape == (3, 3, 6)
        for i, q in enumerate(q_positions.tolist()):
            for j, k in enumerate(k_positions.tolist()):
                bucket = t5_buckets(torch.tensor(k - q), bidirectional=bidirectional, buckets=8, max_distance=20)
                assert torch.equal(bias[:, i, j], t5.table[bucket])


def test_bias_depends_on_the_distance_only_and_takes_batches():
    t5 = T5Spec(n_heads=2).build()
    positions = torch.arange(6)
    assert torch.equal(t5.bias(positions, positions), t5.bias(positions + 1000, positions + 1000))
    batch = torch.stack([positions, positions * 3])
    bias = t5.bias(batch, batch)
    assert bias.shape == (2, 2, 6, 6)
    assert torch.equal(bias[0], t5.bias(positions, positions))
    assert torch.equal(bias[1], t5.bias(positions * 3, positions * 3))
    q = torch.zeros(1, 2, 6, 4, dtype=torch.float64)
    assert t5.bias(positions, positions, q).dtype == torch.float64


def test_the_table_is_trained():
    t5 = T5Spec(n_heads=2).build()
    assert [tuple(p.shape) for p in t5.parameters()] == [(32, 2)]
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    positions = torch.arange(5)
    attention(q, k, v, t5, positions, positions)[0].sum().backward()
    used = t5_buckets(-positions).unique()
    assert t5.table.grad is not None
    rows = t5.table.grad.abs().sum(1).nonzero().flatten()
    assert set(rows.tolist()) <= set(used.tolist())
    assert len(rows) > 1


def test_bad_parameters_are_refused_with_the_legal_values():
    with pytest.raises(SpecError, match="even whole number"):
        T5Spec(relative_attention_num_buckets=5)
    assert T5Spec(relative_attention_num_buckets=5, bidirectional=False).relative_attention_num_buckets == 5
    with pytest.raises(SpecError, match="above 8"):
        T5Spec(relative_attention_max_distance=8)
    with pytest.raises(SpecError, match="n_heads = 0"):
        T5Spec(n_heads=0)


def test_it_is_not_a_scheme_of_the_app():
    assert T5Spec.scheme not in SCHEMES
    assert "not in SCHEMES" in (T5Spec.__doc__ or "")
