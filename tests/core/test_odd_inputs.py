"""Inputs that once slipped through: stale tables, narrow integers, shapes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from posenc_core import SpecError, apply_rotary, attention, build, parse_query, parse_spec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.rope import RopeSpec


def rotated(rope, positions):
    q = torch.ones(1, 1, len(positions), 8, dtype=torch.float64)
    return rope.rotate(q, q, positions, positions)[0]


def fresh(positions, spec=None):
    return rotated((spec or RopeSpec(d_head=8)).build(), positions.clone())


def test_positions_changed_through_shared_memory_get_their_own_tables():
    array = np.arange(5)
    positions, rope = torch.from_numpy(array), RopeSpec(d_head=8).build()
    rotated(rope, positions)
    array += 7
    torch.testing.assert_close(rotated(rope, positions), fresh(torch.arange(7, 12)), rtol=0, atol=0)


def test_positions_changed_through_data_get_their_own_tables():
    positions, rope = torch.arange(5), RopeSpec(d_head=8).build()
    rotated(rope, positions)
    positions.data.add_(7)
    torch.testing.assert_close(rotated(rope, positions), fresh(torch.arange(7, 12)), rtol=0, atol=0)


def test_new_frequencies_get_their_own_tables():
    positions, rope = torch.arange(5), RopeSpec(d_head=8).build()
    rotated(rope, positions)
    rope.inv_freq = rope.inv_freq / 4
    scaled = RopeSpec(d_head=8, scaling="linear", factor=4.0)
    torch.testing.assert_close(rotated(rope, positions), fresh(positions, scaled), rtol=1e-12, atol=1e-12)


def test_positions_made_in_inference_mode_rotate_outside_of_it():
    with torch.inference_mode():
        positions = torch.arange(5)
    torch.testing.assert_close(rotated(RopeSpec(d_head=8).build(), positions), fresh(torch.arange(5)), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool, torch.int32, torch.float64])
def test_narrow_positions_find_their_row(dtype):
    learned = LearnedSpec(max_position_embeddings=256, d_model=4).build()
    positions = torch.tensor([0, 1]).to(dtype)
    torch.testing.assert_close(learned.vectors(positions), learned.table[:2], rtol=0, atol=0)


def test_uint8_positions_past_the_table_are_refused():
    with pytest.raises(SpecError, match="positions = 200"):
        LearnedSpec(max_position_embeddings=128, d_model=4).build().vectors(torch.tensor([200], dtype=torch.uint8))


@pytest.mark.parametrize(
    ("x", "cos", "sin"),
    [
        ((2, 3, 8), (3, 1), (3, 4)),
        ((2, 1, 8), (5, 4), (5, 4)),
        ((2, 3, 8), (2, 2, 3, 4), (2, 2, 3, 4)),
        ((2, 3, 8), (2, 4), (2, 4)),
    ],
)
def test_tables_that_do_not_fit_are_refused(x, cos, sin):
    with pytest.raises(ValueError, match="do not fit x"):
        apply_rotary(torch.ones(x), torch.ones(cos), torch.ones(sin))


def test_whole_numbers_are_not_rotated():
    with pytest.raises(ValueError, match="floating-point"):
        apply_rotary(torch.ones(3, 8, dtype=torch.int64), torch.ones(3, 4), torch.ones(3, 4))


def test_heads_that_do_not_divide_and_masks_of_numbers_are_refused():
    q, k, positions = torch.ones(1, 4, 2, 8), torch.ones(1, 3, 2, 8), torch.arange(2)
    encoding = build(parse_spec({"scheme": "none"}))
    with pytest.raises(ValueError, match="a divisor of q's 4"):
        attention(q, k, k, encoding, positions, positions)
    with pytest.raises(ValueError, match=r"legal: torch\.bool"):
        attention(q, q, q, encoding, positions, positions, mask=torch.ones(2, 2))


def test_an_unknown_default_scheme_is_refused_and_lists_are_no_texts():
    with pytest.raises(SpecError, match="bogus"):
        parse_query({}, default="bogus")
    spec, problems = parse_query({"scheme": "rope", "base": ["1", "2"], "d_head": "32"})
    assert spec == RopeSpec(d_head=32)
    assert [p.name for p in problems] == ["base"]


def test_nested_layers_under_another_scheme_are_an_unknown_name():
    nested = {"scheme": "rope"}
    for _ in range(3000):
        nested = {"scheme": "rope", "layers": [nested]}
    with pytest.raises(SpecError, match="layers"):
        parse_spec(nested)


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
@pytest.mark.parametrize(
    ("dtype", "last"), [(torch.uint8, 255), (torch.int8, 127), (torch.bfloat16, 256), (torch.float16, 2048)]
)
def test_the_length_of_narrow_positions_does_not_wrap_or_round(scaling, dtype, last):
    spec = RopeSpec(d_head=8, scaling=scaling, factor=4.0, original_max_position_embeddings=last)
    rope, positions = spec.build(), torch.tensor([0, last]).to(dtype)
    assert rope.length(positions) == last + 1
    torch.testing.assert_close(rope.tables(positions), rope.tables(torch.tensor([0, last])), rtol=0, atol=0)
    assert not torch.equal(spec.inv_freq(last + 1), spec.inv_freq(last))


def test_fractional_positions_count_as_the_position_they_lie_in():
    rope = RopeSpec(d_head=8, scaling="dynamic", factor=4.0, original_max_position_embeddings=8).build()
    assert [rope.length(torch.tensor([p])) for p in (7.0, 7.5, 7.999, 8.0)] == [8, 8, 8, 9]
    assert rope.length(torch.tensor([])) is None
    assert rope.length(torch.tensor([]), torch.tensor([4])) == 5


def test_no_length_is_looked_up_where_frequencies_do_not_depend_on_it():
    """A maximum over the positions would make a GPU wait in every layer."""
    for spec in (RopeSpec(), RopeSpec(scaling="yarn"), RopeSpec(scaling="dynamic", dynamic_length="maximum")):
        assert spec.build().length(torch.arange(10)) is None
