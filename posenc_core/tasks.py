"""Text for the toy model: bytes of the English that ships with every Python (pydoc_data.topics)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

HELD_OUT_SHARE = 0.1


@dataclass(frozen=True)
class Corpus:
    """Bytes as token ids, uint8 [n]; `digest` is the SHA-256 of both parts."""

    train: Tensor
    held_out: Tensor
    digest: str


@cache
def english() -> Corpus:
    """Python's own help topics without their repetitions, in the order of their names; a tenth is held out.

    Topics quote each other, so a paragraph that came before is left out: else held-out text would be trained on.
    """
    from pydoc_data.topics import topics

    seen = set[str]()
    parts: tuple[list[str], list[str]] = ([], [])
    for name in sorted(topics):
        text = _fresh_paragraphs(topics[name], seen)
        sizes = [sum(map(len, part)) for part in parts]
        held_out = sizes[1] + len(text) <= HELD_OUT_SHARE * (sum(sizes) + len(text))
        parts[held_out].append(text)
    train, held = ("".join(part) for part in parts)
    digest = hashlib.sha256(f"{train}\0{held}".encode()).hexdigest()
    return Corpus(encode(train), encode(held), digest)


def _fresh_paragraphs(text: str, seen: set[str]) -> str:
    kept = []
    for paragraph in text.split("\n\n"):
        key = " ".join(paragraph.split())
        if key not in seen:
            seen.add(key)
            kept.append(paragraph.rstrip())
    return "\n\n".join(kept) + "\n\n"


def encode(text: str) -> Tensor:
    """UTF-8 bytes as token ids, uint8 [n]; half of a surrogate pair becomes a question mark."""
    data = bytearray(text.encode("utf-8", "replace"))
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def windows(tokens: Tensor, length: int, count: int) -> Tensor:
    """`count` windows of `length` + 1 tokens, evenly spread and the same every time: int64 [count, length + 1].

    ValueError if the text is shorter than one window.
    """
    if len(tokens) <= length:
        raise ValueError(
            f"length = {length} is not legal; legal: 1 to {len(tokens) - 1}, the text has {len(tokens)} bytes"
        )
    starts = torch.linspace(0, len(tokens) - length - 1, count).long()
    return tokens[starts[:, None] + torch.arange(length + 1)].long()


def random_windows(tokens: Tensor, length: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` windows of `length` + 1 tokens at random places: int64 [count, length + 1]."""
    starts = torch.randint(len(tokens) - length, (count,), generator=generator)
    return tokens[starts[:, None] + torch.arange(length + 1)].long()
