import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc_core.tasks import encode, english, random_windows, windows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("ab", [97, 98]),
        ("é", [0xC3, 0xA9]),
        ("位置", [0xE4, 0xBD, 0x8D, 0xE7, 0xBD, 0xAE]),
        ("🙂", [0xF0, 0x9F, 0x99, 0x82]),
        ("\x00\n", [0, 10]),
        ("a\ud83db", [97, 63, 98]),
        ("\udc00", [63]),
    ],
)
def test_encode(text, expected):
    made = encode(text)
    assert made.dtype == torch.uint8
    assert made.tolist() == expected


@given(st.text(max_size=50))
def test_encode_is_utf8(text):
    assert bytes(encode(text).tolist()).decode() == text


def test_encode_of_10_000_characters():
    assert encode("位" * 10_000).shape == (30_000,)


def test_the_text_is_english_and_split():
    text = english()
    assert text is english()
    assert len(text.train) > 300_000
    assert 5_000 < len(text.held_out) < len(text.train)
    train, held_out = (bytes(t.tolist()) for t in (text.train, text.held_out))
    assert b"the" in held_out
    train.decode(), held_out.decode()
    assert text.digest == hashlib.sha256(train + b"\0" + held_out).hexdigest()


def test_held_out_text_is_never_in_the_training_text():
    text = english()
    train, held_out = (bytes(t.tolist()) for t in (text.train, text.held_out))
    seen = [i for i in range(0, len(held_out) - 129, 129) if held_out[i : i + 129] in train]
    assert seen == []


def test_windows_by_value():
    tokens = torch.arange(10, dtype=torch.uint8)
    made = windows(tokens, 3, 3)
    assert made.dtype == torch.int64
    assert made.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert windows(tokens, 9, 2).tolist() == [list(range(10))] * 2
    assert windows(tokens, 3, 1).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("length", [10, 11, 10**12])
def test_windows_longer_than_the_text_are_refused(length):
    with pytest.raises(ValueError, match=f"length = {length} is not legal; legal: 1 to 9"):
        windows(torch.arange(10, dtype=torch.uint8), length, 2)


def test_random_windows_are_pieces_of_the_text_and_reach_both_ends():
    tokens = torch.arange(10, dtype=torch.uint8)
    made = random_windows(tokens, 3, 200, torch.Generator().manual_seed(0))
    assert made.shape == (200, 4)
    assert (made.diff() == 1).all()
    assert set(made[:, 0].tolist()) == set(range(7))
    assert torch.equal(made, random_windows(tokens, 3, 200, torch.Generator().manual_seed(0)))
    assert not torch.equal(made, random_windows(tokens, 3, 200, torch.Generator().manual_seed(1)))
