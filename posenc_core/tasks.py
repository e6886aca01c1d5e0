"""What the toy model is trained on: text as bytes, and small tasks that need one ability each.

The shipped text is the English of Python's own help. Tasks: recall by content after Zoology
(Arora et al. 2023, arXiv:2312.04927), induction (Olsson et al. 2022, arXiv:2209.11895), brackets as in Dyck languages.
"""

from __future__ import annotations

import hashlib
import lzma
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

TEXT = Path(__file__).with_name("english.txt.xz")


@dataclass(frozen=True)
class Corpus:
    """Bytes as token ids, uint8 [n]; `digest` is the SHA-256 of both parts."""

    train: Tensor
    held_out: Tensor
    digest: str


@cache
def english() -> Corpus:
    """The help topics of Python 3.11.7 (pydoc_data.topics), in the order of their names; a tenth is held out.

    Topics quote each other, so a paragraph that came before is left out: else held-out text would be trained on. The
    text is kept here, since every Python words it a little differently. Copyright: docs/NOTICE.md.
    """
    text = lzma.decompress(TEXT.read_bytes())
    train, held = (torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in text.split(b"\0"))
    return Corpus(train, held, hashlib.sha256(text).hexdigest())


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


# ------------------------------------------------------------------ tasks


class Batch(NamedTuple):
    """Token ids int64 [N, L], the answer wanted at each position [N, L], and where it counts, bool [N, L].

    `scored` None: everywhere.
    """

    tokens: Tensor
    targets: Tensor
    scored: Tensor | None = None


HELD_OUT_SEED = 2**32 - 1  # no seed of training; a CPU generator reads 32 bits only


class Task(ABC):
    """Examples of L tokens, at positions 0 to L - 1."""

    smallest = 2  # the shortest length that holds a question
    longest: int | None = None  # the longest held-out example there is; None: no end

    @abstractmethod
    def batch(self, count: int, length: int, generator: torch.Generator) -> Batch:
        """`count` random examples of `length` tokens for training."""

    def held_out(self, count: int, length: int, trained: int) -> Batch:
        """The same examples every time, at most `count`, of `length` tokens; training used `trained` tokens.

        What is asked is the same at all positions; only the text before it grows (in recall the way back as well).
        """
        return self.batch(count, length, torch.Generator().manual_seed(HELD_OUT_SEED))


class TextTask(Task):
    """The next byte of a text, at every position."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.longest = len(corpus.held_out) - 1

    def batch(self, count: int, length: int, generator: torch.Generator) -> Batch:
        return _next_token(random_windows(self.corpus.train, length, count, generator))

    def held_out(self, count: int, length: int, trained: int) -> Batch:
        """Windows that start `trained` bytes apart, in a ring.

        So every stretch of `trained` positions answers for exactly the same bytes, and only what lies before them
        differs: where the loss rises from one stretch to the next, it is not that the text was harder.
        """
        text = self.corpus.held_out
        count = max(-(-(length + 1) // trained), min(count, len(text) // trained))
        ring = min(count * trained, len(text))  # no window meets its own start
        starts = (torch.arange(count) * trained)[:, None]
        return _next_token(text[(starts + torch.arange(length + 1)) % ring].long())


class ShortTexts(Task):
    """The next byte of short texts in random order: only what lies near can help."""

    def __init__(self, corpus: Corpus) -> None:
        self.train, self.test = (pieces(t) for t in (corpus.train, corpus.held_out))

    def batch(self, count: int, length: int, generator: torch.Generator) -> Batch:
        return _next_token(_shuffled(self.train, count, length, generator))

    def held_out(self, count: int, length: int, trained: int) -> Batch:
        return _next_token(_shuffled(self.test, count, length, torch.Generator().manual_seed(HELD_OUT_SEED)))


class Copy(Task):
    """The next letter of a repeating string of 2 to 12 different letters: find it further back, take what followed.

    The letter seen longest ago is right as well. The shortest strings are few, so held-out ones come in training too.
    """

    smallest, longest_string = 4, 12

    def batch(self, count: int, length: int, generator: torch.Generator) -> Batch:
        return self._examples(count, length, length, generator)

    def held_out(self, count: int, length: int, trained: int) -> Batch:
        return self._examples(count, length, trained, torch.Generator().manual_seed(HELD_OUT_SEED))

    def _examples(self, count: int, length: int, longest: int, generator: torch.Generator) -> Batch:
        """Strings of 2 to 12 letters, at most half of `longest`, so that held-out ones are as long as in training."""
        most = min(longest // 2, self.longest_string)
        periods = torch.randint(2, most + 1, (count, 1), generator=generator)
        letters = torch.rand(count, self.longest_string, generator=generator).argsort(-1)
        at = torch.arange(length + 1)
        made = _next_token(LETTERS[letters.gather(-1, at % periods)])
        return made._replace(scored=at[:-1] >= periods)  # the first letter again tells that it repeats


class TokenBack(Task):
    """The letter `back` positions before: random letters, so nothing but the position tells it."""

    def __init__(self, back: int = 8) -> None:
        self.back, self.smallest = back, back + 1

    def batch(self, count: int, length: int, generator: torch.Generator) -> Batch:
        tokens = LETTERS[torch.randint(26, (count, length), generator=generator)]
        scored = (torch.arange(length) >= self.back).expand(count, length)
        return Batch(tokens, tokens.roll(self.back, -1), scored)


class Brackets(Task):
    """Which bracket does this one close? Four kinds open, one sign closes all; nested up to eight deep.

    Most pairs are short: the kind opened last is right in about two of three.
    """

    smallest, deepest = 4, 8
    opening, closing = torch.tensor(list(b"([{<")), ord("|")

    def batch(self, count: int, length: int, generator: torch.Generator) -> Batch:
        kinds = self.opening[torch.randint(4, (count, length), generator=generator)]
        wish = torch.rand(count, length, generator=generator) < 0.5
        tokens, targets = kinds.clone(), kinds.clone()
        stack, depth = torch.zeros(count, self.deepest + 1, dtype=torch.long), torch.zeros(count).long()
        rows = torch.arange(count)
        for i in range(length):
            opens = (wish[:, i] | (depth == 0)) & (depth < self.deepest)
            stack[rows[opens], depth[opens]] = kinds[opens, i]
            depth = depth + torch.where(opens, 1, -1)
            targets[~opens, i] = stack[rows[~opens], depth[~opens]]
            tokens[~opens, i] = self.closing
        return Batch(tokens, targets, tokens == self.closing)


class Recall(Task):
    """Eight keys get a value each at the start; anywhere later a key asks for its value.

    Between them letters that mean nothing. The pair is found by its content, at whatever distance. Simpler than in
    Zoology: key and value are one token, so one look-up is enough.
    """

    smallest, keys, share = 16, 8, 0.25

    def batch(self, count: int, length: int, generator: torch.Generator) -> Batch:
        order = torch.rand(count, self.keys, generator=generator).argsort(-1)
        values = torch.randint(self.keys, (count, self.keys), generator=generator)  # of each key
        tokens = LETTERS[torch.randint(26, (count, length), generator=generator)]
        asked = torch.randint(self.keys, (count, length), generator=generator)
        scored = torch.rand(count, length, generator=generator) < self.share
        scored[:, : self.keys] = False
        tokens = torch.where(scored, asked + ord("0"), tokens)
        tokens[:, : self.keys] = 128 + self.keys * order + values.gather(-1, order)  # one token a pair
        return Batch(tokens, values.gather(-1, asked) + ord("A"), scored)


LETTERS = torch.tensor(list(b"abcdefghijklmnopqrstuvwxyz"))
TASKS: dict[str, Callable[[Corpus, int], Task]] = {
    "text": lambda corpus, back: TextTask(corpus),
    "short_texts": lambda corpus, back: ShortTexts(corpus),
    "copy": lambda corpus, back: Copy(),
    "token_back": lambda corpus, back: TokenBack(back),
    "brackets": lambda corpus, back: Brackets(),
    "recall": lambda corpus, back: Recall(),
}
TEXTS = ("text", "short_texts")  # tasks that read a text


@lru_cache(maxsize=4)
def own_text(text: str) -> Corpus:
    """A reader's text as a corpus: its last tenth is held out."""
    tokens = encode(text)
    cut = len(tokens) - len(tokens) // 10
    return Corpus(tokens[:cut], tokens[cut:], hashlib.sha256(bytes(tokens.tolist())).hexdigest())


def _next_token(tokens: Tensor) -> Batch:
    return Batch(tokens[:, :-1], tokens[:, 1:])


SHORTEST, LONGEST = 16, 64  # bytes of a short text


def pieces(tokens: Tensor) -> list[Tensor]:
    """Sentences of 16 to 64 bytes, without line breaks but the one that ends each; longer ones are cut."""
    text = bytes(tokens.tolist()).decode("utf-8", "replace")
    made = []
    for sentence in re.split(r"(?<=[.:;!?])\s+|\n\s*\n", text):
        line = encode(" ".join(sentence.split()))
        made += [p for p in line.split(LONGEST) if len(p) >= SHORTEST]
    return [torch.cat([p, torch.tensor([10], dtype=torch.uint8)]) for p in made]


def _shuffled(pieces: list[Tensor], count: int, length: int, generator: torch.Generator) -> Tensor:
    rows = torch.empty(count, length + 1, dtype=torch.long)
    for row in rows:
        filled = 0
        while filled <= length:
            piece = pieces[int(torch.randint(len(pieces), (1,), generator=generator))][: length + 1 - filled]
            row[filled : filled + len(piece)] = piece
            filled += len(piece)
    return rows
