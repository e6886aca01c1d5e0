import hashlib
import platform
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc_core.tasks import (
    TASKS,
    TEXTS,
    Brackets,
    Copy,
    Corpus,
    Recall,
    ShortTexts,
    TextTask,
    TokenBack,
    encode,
    english,
    own_text,
    pieces,
    random_windows,
    windows,
)


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


def fresh_paragraphs(text, seen):
    kept = []
    for paragraph in text.split("\n\n"):
        if (key := " ".join(paragraph.split())) not in seen:
            seen.add(key)
            kept.append(paragraph.rstrip())
    return "\n\n".join(kept) + "\n\n"


@pytest.mark.skipif(platform.python_version() != "3.11.7", reason="the text is from the help topics of Python 3.11.7")
def test_the_text_is_made_of_pythons_help_topics():
    """Sorted topics without repeated paragraphs; one is held out while a tenth of all characters are not."""
    from pydoc_data.topics import topics

    seen, parts = set(), ([], [])
    for name in sorted(topics):
        text = fresh_paragraphs(topics[name], seen)
        train, held_out = (sum(map(len, part)) for part in parts)
        parts[held_out + len(text) <= 0.1 * (train + held_out + len(text))].append(text)
    assert english().train.tolist() == list("".join(parts[0]).encode())
    assert english().held_out.tolist() == list("".join(parts[1]).encode())


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


# ------------------------------------------------------------------ tasks: what is asked and answered


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(batch):
    """Plain Python: (tokens, targets, scored) of each example, scored as a list of bools."""
    scored = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.scored is None else batch.scored
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert batch.tokens.shape == batch.targets.shape == scored.shape
    assert scored.dtype == torch.bool
    assert 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) < 256
    return list(zip(batch.tokens.tolist(), batch.targets.tolist(), scored.tolist(), strict=True))


def copied(tokens):
    """{position: answer}: where a letter came before, what followed it the first time."""
    found = {}
    for i, token in enumerate(tokens):
        before = tokens.index(token)
        if before < i:
            found[i] = tokens[before + 1]
    return found


def looked_back(back):
    return lambda tokens: {i: tokens[i - back] for i in range(back, len(tokens))}


def closed(tokens):
    """{position of a closing sign: the bracket that it closes}, by a stack."""
    found, stack = {}, []
    for i, token in enumerate(tokens):
        if token in b"([{<":
            stack.append(token)
        else:
            assert token == ord("|")
            found[i] = stack.pop()
        assert len(stack) <= Brackets.deepest
    return found


def recalled(tokens):
    """{position of a question: its value}, from the pairs that the first tokens hold."""
    pairs = [divmod(t - 128, Recall.keys) for t in tokens[: Recall.keys]]
    assert sorted(key for key, _ in pairs) == list(range(Recall.keys))
    values = dict(pairs)
    later = list(enumerate(tokens))[Recall.keys :]
    return {i: ord("A") + values[t - ord("0")] for i, t in later if chr(t).isdigit()}


GAMES = {
    "copy": (Copy(), copied),
    "token_back 1": (TokenBack(1), looked_back(1)),
    "token_back 8": (TokenBack(8), looked_back(8)),
    "token_back 63": (TokenBack(63), looked_back(63)),
    "brackets": (Brackets(), closed),
    "recall": (Recall(), recalled),
}
games = pytest.mark.parametrize(("task", "answers"), GAMES.values(), ids=GAMES)


@games
@pytest.mark.parametrize("length", [64, 65, 97])
def test_answers_follow_from_the_tokens_alone(task, answers, length):
    """Scored are exactly the positions that have an answer, and the answer is right."""
    for batch in (task.batch(40, length, seeded()), task.held_out(40, length, 64)):
        assert batch.tokens.shape == (40, length)
        for tokens, targets, scored in rows(batch):
            assert {i: targets[i] for i in range(length) if scored[i]} == answers(tokens)


@games
def test_the_shortest_length_holds_a_question(task, answers):
    batch = task.batch(400, task.smallest, seeded())
    assert batch.scored.any()
    for tokens, targets, scored in rows(batch):
        assert {i: targets[i] for i in range(task.smallest) if scored[i]} == answers(tokens)


@games
def test_every_answer_is_asked_for_at_every_late_position(task, answers):
    scored = task.held_out(128, 1024, 64).scored
    assert (scored[:, 64:].sum(0) > 0).all()
    shares = scored[:, 64:].double().view(128, 15, 64).mean((0, 2))
    assert float(shares.max() - shares.min()) < 0.05  # as often far out as near


@pytest.mark.parametrize("name", TASKS)
def test_batches_follow_the_seed_and_held_out_examples_never_change(name):
    task, again = (TASKS[name](english(), 8) for _ in range(2))
    first = task.batch(8, 48, seeded(1))
    for a, b in zip(first, again.batch(8, 48, seeded(1)), strict=True):
        assert a is b is None or torch.equal(a, b)
    assert not torch.equal(first.tokens, task.batch(8, 48, seeded(2)).tokens)
    held_out = task.held_out(8, 96, 48)
    task.batch(8, 48, seeded(3))
    for a, b in zip(held_out, again.held_out(8, 96, 48), strict=True):
        assert a is b is None or torch.equal(a, b)
    if name not in TEXTS:
        assert len(held_out.tokens) == 8
        assert len({tuple(row) for row in held_out.tokens.tolist()}) == 8
        seen = {tuple(row) for seed in range(3) for row in task.batch(8, 96, seeded(seed)).tokens.tolist()}
        assert seen.isdisjoint(map(tuple, held_out.tokens.tolist()))


def test_a_generator_goes_on_and_does_not_repeat():
    for name in TASKS:
        task, generator = TASKS[name](english(), 8), seeded()
        a, b = (task.batch(4, 64, generator).tokens for _ in range(2))
        assert not torch.equal(a, b)


def periods(batch):
    """The length of each row's repeating string."""
    found = []
    for tokens, _, _ in rows(batch):
        first = next(i for i in range(1, len(tokens)) if tokens[i] == tokens[0])
        assert len(set(tokens[:first])) == first  # different letters
        assert all(tokens[i] == tokens[i % first] for i in range(len(tokens)))
        found.append(first)
    return found


@pytest.mark.parametrize("length", [16, 64])
def test_held_out_strings_are_as_long_as_those_of_training(length):
    trained = Counter(periods(Copy().batch(2000, length, seeded())))
    far = Counter(periods(Copy().held_out(2000, 8 * length, length)))
    assert min(trained) == min(far) == 2
    assert set(trained) == set(far)
    assert max(trained) <= length // 2
    assert all(abs(trained[n] - far[n]) < 0.5 * trained[n] for n in trained)  # uniform in both


@pytest.mark.parametrize("length", [4, 5, 6, 7, 9, 16])
def test_a_string_repeats_within_the_length(length):
    assert max(periods(Copy().batch(200, length, seeded()))) == length // 2


def test_copied_letters_differ_from_row_to_row():
    firsts = Counter(tokens[0] for tokens, _, _ in rows(Copy().batch(2000, 16, seeded())))
    assert len(firsts) > 10
    assert max(firsts.values()) < 3 * 2000 / len(firsts)


def test_random_letters_tell_nothing():
    tokens = TokenBack(8).batch(200, 100, seeded()).tokens
    counts = torch.bincount(tokens.flatten(), minlength=256)
    assert (counts > 0).nonzero().flatten().tolist() == list(range(ord("a"), ord("z") + 1))
    assert float(counts[97:123].double().std() / counts[97:123].double().mean()) < 0.1
    assert abs(float((tokens[:, 1:] == tokens[:, :-1]).double().mean()) - 1 / 26) < 0.01


def test_brackets_nest_to_the_greatest_depth_and_no_kind_is_rare():
    batch = Brackets().batch(200, 200, seeded())
    deepest, asked = 0, Counter()
    for tokens, targets, scored in rows(batch):
        depth = 0
        for token in tokens:
            depth += 1 if token in b"([{<" else -1
            deepest = max(deepest, depth)
        asked.update(t for t, s in zip(targets, scored, strict=True) if s)
    assert deepest == Brackets.deepest
    assert set(asked) == set(b"([{<")
    assert min(asked.values()) > 0.9 * max(asked.values())
    assert 0.4 < float(batch.scored.double().mean()) < 0.5


def test_recall_asks_every_key_and_pairs_come_in_any_order():
    batch = Recall().batch(500, 64, seeded())
    first, values, asked = Counter(), Counter(), Counter()
    for tokens, targets, scored in rows(batch):
        key, value = divmod(tokens[0] - 128, Recall.keys)
        first[key], values[value] = first[key] + 1, values[value] + 1
        asked.update(t for t, s in zip(targets, scored, strict=True) if s)
    assert set(first) == set(values) == set(range(Recall.keys))
    assert min(first.values()) > 30
    assert set(asked) == {ord("A") + v for v in range(Recall.keys)}
    assert not batch.scored[:, : Recall.keys].any()
    assert abs(float(batch.scored[:, Recall.keys :].double().mean()) - Recall.share) < 0.02


# ------------------------------------------------------------------ tasks: texts


def counting(n, held_out):
    """A corpus whose tokens name their place, below and from 100,000."""
    return Corpus(torch.arange(n), torch.arange(100_000, 100_000 + held_out), "")


def test_text_is_asked_for_its_next_byte_and_training_stays_in_its_part():
    task = TextTask(counting(300, 200))
    assert task.longest == 199
    batch = task.batch(500, 17, seeded())
    assert batch.scored is None
    starts = set()
    for tokens, targets, _ in rows_of_places(batch):
        assert tokens == list(range(tokens[0], tokens[0] + 17))
        assert targets == [t + 1 for t in tokens]
        starts.add(tokens[0])
    assert (min(starts), max(starts)) == (0, 300 - 18)


def rows_of_places(batch):
    return list(zip(batch.tokens.tolist(), batch.targets.tolist(), batch.tokens.tolist(), strict=True))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 50), st.integers(0, 39))
def test_every_stretch_answers_for_the_same_bytes(trained, stretches, extra, rest):
    """The text holds a ring of at least one stretch more than the window: then the same bytes, exactly."""
    length, count = trained * stretches, stretches + 1 + extra % 20
    text = (stretches + 1 + extra) * trained + rest % trained
    batch = TextTask(counting(2, text)).held_out(count, length, trained)
    assert len(batch.tokens) <= count
    asked = [
        Counter(t for row in batch.targets[:, s * trained : (s + 1) * trained].tolist() for t in row)
        for s in range(stretches)
    ]
    assert all(a == asked[0] for a in asked)
    assert set(asked[0].values()) == {1}  # no byte twice
    assert len(asked[0]) == len(batch.tokens) * trained
    ring = len(asked[0])
    for tokens, targets, _ in rows_of_places(batch):
        places = [t - 100_000 for t in [*tokens, targets[-1]]]
        assert places == [(places[0] + i) % ring for i in range(length + 1)]
        assert len(set(places)) == length + 1  # no window meets its own start
        assert tokens[1:] == targets[:-1]
    assert batch.tokens.min() >= 100_000


@settings(deadline=None)
@given(st.integers(8, 64), st.data())
def test_a_text_of_any_length_is_asked_up_to_its_longest(trained, data):
    """Where the text has no whole number of stretches left, a byte may be asked for twice, none is left out."""
    text = data.draw(st.integers(2 * trained + 1, 6 * trained))
    task = TextTask(counting(2, text))
    batch = task.held_out(128, task.longest, trained)
    assert batch.tokens.shape[1] == text - 1
    for tokens, targets, _ in rows_of_places(batch):
        assert len({*tokens, *targets}) == text
    for end in range(trained, text - 1, trained):
        asked = Counter(batch.targets[:, end - trained : end].flatten().tolist())
        assert len(asked) == text
        assert set(asked.values()) <= {1, 2}


def test_held_out_english_is_held_out():
    task, text = TextTask(english()), bytes(english().held_out.tolist())
    batch = task.held_out(20, 1024, 64)
    assert len(batch.tokens) == 20
    assert bytes(batch.tokens[0].tolist()) == text[:1024]
    assert bytes(batch.tokens[1].tolist()) == text[64 : 64 + 1024]
    wanted = (text[: 20 * 64] * 2)[19 * 64 : 19 * 64 + 1025]
    assert bytes(batch.tokens[19].tolist()) + bytes([int(batch.targets[19, -1])]) == wanted


def test_pieces_are_sentences_of_16_to_64_bytes():
    text = "Short. This one is long enough!\n\nA heading without an end\n\nBroken\nover a line; yes: " + "x" * 150
    made = [bytes(p.tolist()).decode() for p in pieces(encode(text))]
    assert made == ["This one is long enough!\n", "A heading without an end\n", "Broken over a line;\n",
                    "x" * 64 + "\n", "x" * 64 + "\n", "x" * 22 + "\n"]  # fmt: skip


def test_the_shortest_piece_has_16_bytes():
    assert [len(p) for p in pieces(encode("fifteen bytes.. sixteen bytes... " + "é" * 8 + ". " + "x" * 80))] == [
        17,
        18,
        65,
        17,
    ]


@pytest.mark.parametrize("text", ["", " \n ", "a. b. c.", "one two three"])
def test_a_text_without_sentences_has_no_pieces(text):
    assert pieces(encode(text)) == []


def test_short_texts_are_pieces_of_their_part_in_random_order():
    text = english()
    kept = {name: Counter(bytes(p.tolist()) for p in pieces(part))
            for name, part in (("train", text.train), ("held_out", text.held_out))}  # fmt: skip
    assert len(kept["held_out"]) > 100
    for made in kept.values():
        assert all(17 <= len(p) <= 65 and p.endswith(b"\n") and b"\n" not in p[:-1] for p in made)
    task = ShortTexts(text)
    batches = {"train": task.batch(30, 200, seeded()), "held_out": task.held_out(30, 200, 64)}
    for name, batch in batches.items():
        assert batch.scored is None
        starts = set()
        for tokens, targets, _ in rows(batch):
            assert targets[:-1] == tokens[1:]
            *whole, rest = bytes([*tokens, targets[-1]]).split(b"\n")
            assert len(whole) >= 3
            assert all(p + b"\n" in kept[name] for p in whole)
            assert any(p.startswith(rest) for p in kept[name])
            starts.add(whole[0])
        assert len(starts) > 25


@pytest.mark.parametrize("length", [2, 16, 64, 65, 130])
def test_short_texts_fill_any_length(length):
    assert ShortTexts(own_text("A sentence of some words. " * 50)).batch(3, length, seeded()).tokens.shape == (
        3,
        length,
    )


@given(st.text(max_size=300))
def test_own_text_holds_out_its_last_tenth(text):
    made, data = own_text(text), text.encode()
    assert bytes(made.train.tolist()) + bytes(made.held_out.tolist()) == data
    assert len(made.held_out) == len(data) // 10
    assert made.digest == hashlib.sha256(data).hexdigest()
