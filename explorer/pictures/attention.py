"""Pictures, numbers and sentences of the Attention page."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.charts import curves, maps
from explorer.charts.heatmap import Axis, Guide, Heatmap
from explorer.charts.palette import HEAD_COLOURS, ORANGE, POSITION_COLOUR, SCHEME_COLOURS, TRAINING_LENGTH_COLOUR
from explorer.compute import attention as compute
from explorer.compute.attention import MAX_TOKENS, Fit, Run
from explorer.compute.common import TRAIN_LENGTH, Array
from explorer.facts import Fact, short
from explorer.pictures.common import Lines, layer_spec
from explorer.text import SCHEME_TEXT, Try
from explorer.views import SAMPLE, AttentionView
from posenc_core import Spec
from posenc_core.tasks import encode

GUESSES = 8
LOSS_POINTS = 256  # more tokens than this are averaged in blocks, to stay readable
BIN = 32  # positions averaged into one point past the training length
UNIFORM = "even"  # attention spread evenly over all keys
CONTINUATION = "·"
EQUIVARIANT = 1e-4  # relative change of the outputs that rounding may cause
BLIND_GUESS = math.log(256)
INSIDE = slice(TRAIN_LENGTH // 2, TRAIN_LENGTH)  # positions that stand for the training length
OUTSIDE = slice(MAX_TOKENS - TRAIN_LENGTH, MAX_TOKENS)  # and for the end of the curves
_SEEN = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}


@dataclass(frozen=True)
class Referenced(Lines):
    """Lines of which those named in `dashed` are there to compare with."""

    dashed: tuple[str, ...] = ()


# ---------------------------------------------------------------- tokens


def visible(character: str) -> str:
    """A character that can be seen: blanks get a symbol, combining marks a circle, other invisible ones their code."""
    if character in _SEEN:
        return _SEEN[character]
    category = unicodedata.category(character)
    if category[0] == "M":
        return "◌" + character
    return f"U+{ord(character):04X}" if category[0] in "CZ" else character


def token_labels(data: bytes) -> tuple[str, ...]:
    """One label a byte: its character on the first byte, a dot on the others, hexadecimal where none begins."""
    labels: list[str] = []
    for character in data.decode("utf-8", "surrogateescape"):
        if 0xDC80 <= ord(character) <= 0xDCFF:
            labels.append(byte_name(ord(character) - 0xDC00))
        else:
            labels += [visible(character), *[CONTINUATION] * (len(character.encode()) - 1)]
    return tuple(labels)


def byte_name(byte: int) -> str:
    """A byte by itself: its ASCII character, or hexadecimal."""
    return visible(chr(byte)) if byte < 128 and (chr(byte).isprintable() or chr(byte) in _SEEN) else f"0x{byte:02X}"


@dataclass(frozen=True)
class Reading:
    """What the models read: bytes in the order shown and as written, a label a byte, what was done to the text."""

    data: bytes
    written: bytes
    labels: tuple[str, ...]
    notice: str = ""

    @property
    def shuffled(self) -> bool:
        """Whether the order is not the written one."""
        return self.data != self.written

    def passage(self, stop: int, length: int = 16) -> str:
        """The last tokens before `stop`."""
        return "".join(self.labels[max(0, stop - length) : stop])


def reading(source: str, text: str, length: int, order: str) -> Reading:
    """The bytes to run: of the text or of the held-out English, at most MAX_TOKENS, shuffled if asked for."""
    notice = ""
    if source == "held_out":
        data = compute.held_out(length)
    else:
        data = bytes(encode(text or SAMPLE).tolist())
        if not text:
            notice = "The text is empty, so the sample sentence is read instead."
        elif len(data) > MAX_TOKENS:
            notice = f"The text has {len(data):,} bytes; the first {MAX_TOKENS:,} are read."
    data = data[:MAX_TOKENS]
    labels = token_labels(data)
    if order == "written":
        return Reading(data, data, labels, notice)
    places = compute.permutation(len(data))
    return Reading(bytes(data[i] for i in places), data, tuple(labels[i] for i in places), notice)


# ---------------------------------------------------------------- the sides of a comparison


@dataclass(frozen=True, eq=False)
class Side:
    """One scheme on the page: its name and colour, how it fits the weights, and its pass over the text."""

    name: str
    colour: str
    fit: Fit
    shift: int
    run: Run

    @property
    def rows(self) -> int | None:
        """Positions that its encoding has, None if all."""
        return compute.defined(self.fit.spec)


def sides(specs: Sequence[Spec], data: bytes, shift: int) -> list[Side]:
    """The one or two schemes of the page, run on the bytes."""
    fits = [compute.fit(s) for s in specs]
    made = []
    for fit, name, colour in zip(fits, _names(fits), _colours(specs), strict=True):
        possible = compute.possible_shift(fit.spec, len(data), shift)
        made.append(Side(name, colour, fit, possible, compute.run(fit.spec, data, possible)))
    return made


def _names(fits: Sequence[Fit]) -> list[str]:
    """Different names: the scheme's, with what differs from the trained parameters."""
    names = []
    for fit in fits:
        changes = ", ".join(f"{name} {_value(run)}" for name, _, run in fit.changed)
        scheme = SCHEME_TEXT[fit.spec.scheme].name
        names.append(f"{scheme} ({changes})" if changes else scheme)
    return [f"{n} ({i + 1})" for i, n in enumerate(names)] if len(set(names)) < len(names) else names


def _colours(specs: Sequence[Spec]) -> list[str]:
    colours = [SCHEME_COLOURS[s.scheme] for s in specs]
    return [colours[0], ORANGE] if len(specs) == 2 and colours[0] == colours[1] else colours


def _value(text: str) -> str:
    try:
        return f"{float(text):,.10g}"
    except ValueError:
        return text.replace("_", " ") or "the paper's"


def has_alibi(spec: Spec) -> bool:
    """Whether ALiBi acts in any layer."""
    return any(s.scheme == "alibi" for s in getattr(spec, "layers", (spec,)))


def with_model(specs: Sequence[Spec]) -> list[Spec]:
    """Those that a toy model was trained with."""
    return [s for s in specs if compute.has_model(s)]


def without_model(specs: Sequence[Spec]) -> str:
    """A sentence on the schemes that no toy model was trained with; empty if all have one."""
    missing = dict.fromkeys(SCHEME_TEXT[s.scheme].name for s in specs if not compute.has_model(s))
    return (
        f"No toy model was trained with {' or '.join(missing)}: no weights that could read a text." if missing else ""
    )


def weights_sentence(fit: Fit) -> str:
    """What the weights were trained with, and what runs instead."""
    size, record = fit.record.size, fit.record
    shape = f"{size.n_layers} layers × {size.n_heads} heads of {size.d_head} features"
    where = f"{shape}, trained at length {record.train_length}"
    name = SCHEME_TEXT[fit.spec.scheme].name
    if not fit.changed:
        return f"{name}: {where}, run with the parameters it was trained with."
    trained = ", ".join(f"{n.replace('_', ' ')} {_value(t)}" for n, t, _ in fit.changed)
    now = ", ".join(f"{n.replace('_', ' ')} {_value(r)}" for n, _, r in fit.changed)
    return f"{name}: {where} with {trained}; run with {now}."


def notes(shown: Sequence[Side], shift: int) -> list[str]:
    """What could not be done as asked, a sentence each."""
    out: list[str] = []
    for side in shown:
        out += side.fit.notes
        if side.rows is None:
            continue
        length, rows = side.run.length, side.rows
        if shift != side.shift:
            room = f"can move by at most {rows - length}" if length < rows else "fill it, so none can move"
            out.append(
                f"{side.name}: no shift by {shift:,}. Its table ends after {rows:,} positions; these {length:,} tokens "
                f"{room}. Shown at shift 0."
            )
        if length > rows:
            out.append(f"{side.name}: no position past {rows - 1:,}, so tokens from there on are not read (hatched).")
    return list(dict.fromkeys(out))


# ---------------------------------------------------------------- key numbers


def key_numbers(shown: Sequence[Side], read: Reading, shift: int) -> list[Fact]:
    """Three to five numbers: losses, and what shuffling or shifting changes."""
    several = len(shown) > 1
    facts: list[Fact] = []
    for side in [] if several and read.shuffled and shift else shown:  # two numbers a side are enough
        what = f", {side.name}" if several else ""
        facts.append((f"loss{what}", _nats(side.run.mean_loss),
                      f"mean cost of the next byte; a blind guess among 256 costs {BLIND_GUESS:.2f}"))  # fmt: skip
    for side in shown:
        what = f", {side.name}" if several else ""
        if read.shuffled and not several:
            before = compute.run(side.fit.spec, read.written, side.shift).mean_loss
            facts.append(("loss as written", _nats(before), "the same bytes in the order they were written"))
        if read.shuffled:
            change = compute.permutation_change(side.fit.spec, read.written)
            both_ways = ", and with ALiBi's distances counted both ways" if has_alibi(side.fit.spec) else ""
            facts.append((f"change without mask{what}", _ratio(change),
                          f"without a causal mask{both_ways}: how far each token's output changes when the first "
                          f"{min(side.run.seen, compute.PERMUTED)} tokens are shuffled, relative to the largest; 0 up "
                          "to rounding if positions play no part"))  # fmt: skip
        if side.shift:
            logit, loss = compute.shift_change(side.fit.spec, read.data, side.shift)
            facts.append((f"logits move{what}", _small(logit),
                          f"largest change of a logit when {side.shift:,} is added to all positions"))  # fmt: skip
            if not several:
                moved = "–" if math.isnan(loss) else f"{loss:+.4f}"
                facts.append(("loss moves", moved, "change of the mean loss in nats, from shift 0"))
        elif shift:
            facts.append((f"logits move{what}", "undefined", "the table has no rows there"))
    if not several and len(facts) < 4:
        facts.insert(1, ("right guesses", _hits(shown[0].run, read.data), "how often the likeliest byte came next"))
    if len(facts) < 5:
        facts.append(("tokens", f"{shown[0].run.length:,}", "bytes of UTF-8, one token each"))
    return facts


def _nats(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f} nats"


def _ratio(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.005 else f"{value:.0e}"


def _small(value: float) -> str:
    return short(value) if value == 0 or value >= 0.01 else f"{value:.0e}"


def _hits(run: Run, data: bytes) -> str:
    if run.seen < 2:
        return "–"
    best = run.log_probabilities[:-1].argmax(-1)
    return f"{100 * float(np.mean(best == np.frombuffer(data[1 : run.seen], np.uint8))):.0f} %"


# ---------------------------------------------------------------- maps


def thumbnails(side: Side, read: Reading) -> list[Heatmap]:
    """One small map a head, layer by layer, each on its own colour scale."""
    layers, heads = side.run.small.shape[:2]
    block, spec = side.run.block, side.fit.spec
    names = read.labels if block == 1 else None
    out = []
    for layer in range(layers):
        extra = f" {layer_spec(spec, layer).scheme}" if spec.hook == "layers" else ""
        for head in range(heads):
            values = side.run.small[layer, head]
            key, query = (Axis(t, start=(block - 1) / 2, step=block, labels=names) for t in ("key", "query"))
            title = f"layer {layer} head {head}{extra}"
            out.append(Heatmap(values, key, query, "attention weight", domain=(0.0, _top(values)), title=title,
                               undefined_label=_hatched([side])))  # fmt: skip
    return out


def large_maps(shown: Sequence[Side], read: Reading, layer: int, head: int, query: int) -> list[Heatmap]:
    """The chosen head of every side, full resolution, on one colour scale, with the query marked."""
    values = [compute.head_weights(s.fit.spec, read.data, s.shift, layer, head) for s in shown]
    top = max(_top(v) for v in values)
    guides = [Guide("y", query, f"query {query}", POSITION_COLOUR)]
    if len(read.data) > TRAIN_LENGTH:
        guides.append(Guide("x", TRAIN_LENGTH, "training length", TRAINING_LENGTH_COLOUR))
        guides.append(Guide("y", TRAIN_LENGTH, "training length", TRAINING_LENGTH_COLOUR))
    x, y = (Axis(t, "token", labels=read.labels) for t in ("key", "query"))
    return [
        Heatmap(v, x, y, "attention weight", domain=(0.0, top), guides=tuple(guides), undefined_label=_hatched([s]))
        for v, s in zip(values, shown, strict=True)
    ]


def difference_map(maps_shown: Sequence[Heatmap], shown: Sequence[Side]) -> Heatmap:
    """Weights of the first side minus the second's."""
    first, second = maps_shown
    values = first.values - second.values
    return Heatmap(values, first.x, first.y, "weight, first minus second", "", "diverging", maps.symmetric(values),
                   first.guides, undefined_label=_hatched(shown))  # fmt: skip


def marked_query(shown: Sequence[Side], query: int) -> int:
    """The query itself, or for -1 the last token that any side reads."""
    return query if query >= 0 else max(s.run.seen for s in shown) - 1


def map_height(length: int) -> int:
    """Pixels of a large map: enough for one label a row where a screen can hold them."""
    return min(680, max(420, 9 * length + 110)) if length <= 60 else 520


def _top(values: Array) -> float:
    """Upper end of a colour scale: few cells lie above it, so that faint heads keep their pattern."""
    finite = values[np.isfinite(values)]
    return max(float(np.quantile(finite, 0.99)), 1e-6) if finite.size else 1.0


def _hatched(shown: Sequence[Side]) -> str:
    table = any(s.run.seen < s.run.length for s in shown)
    return "later than the query" + (", or past the end of the table" if table else "")


# ---------------------------------------------------------------- loss and guesses


def loss_lines(shown: Sequence[Side], read: Reading) -> Lines | None:
    """What each token cost, one line a side; None for a text of one token."""
    length = len(read.data)
    if length < 2:
        return None
    block = -(-length // LOSS_POINTS)
    starts = range(1, length, block)
    x = np.array([(start + min(start + block, length) - 1) / 2 for start in starts])
    notes_shown = ["".join(read.labels[start : start + block]) for start in starts]
    frames = [
        curves.line(s.name, x, [_mean(s.run.loss[start : start + block]) for start in starts]).assign(token=notes_shown)
        for s in shown
    ]
    if length > TRAIN_LENGTH:
        frames.append(curves.guide("training length", x=TRAIN_LENGTH))
    title = "loss (nats)" if block == 1 else f"loss, mean of {block} tokens (nats)"
    return Lines(curves.together(*frames), tuple((s.name, s.colour) for s in shown), title)


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def loss_sentence(shown: Sequence[Side], read: Reading) -> str:
    """Which token surprised the first side most; or, shuffled, what the order means to each side."""
    if read.shuffled:
        parts = []
        for side in shown:
            change = compute.permutation_change(side.fit.spec, read.written)
            means = "its positions" if change > EQUIVARIANT else "the causal mask alone"
            parts.append(f"{side.name} knows the order by {means} (without a mask outputs move by {_ratio(change)})")
        return f"{'; '.join(parts)}."
    loss = shown[0].run.loss
    if not np.isfinite(loss).any():
        return "One token alone has nothing before it that could predict it."
    worst = int(np.nanargmax(loss))
    return f"Token {worst}, {read.labels[worst]}, surprised {shown[0].name} most: {loss[worst]:.1f} nats."


@dataclass(frozen=True, eq=False)
class Guesses:
    """Bars of the likeliest next bytes, how many names they have, and the sentence below."""

    data: pd.DataFrame
    names: int
    sentence: str


def guesses(shown: Sequence[Side], read: Reading, query: int) -> Guesses:
    """The likeliest bytes after the token `query`; with two sides the likeliest of either."""
    rows = [np.exp(s.run.log_probabilities[query].astype(np.float64)) if query < s.run.seen else None for s in shown]
    known = [r for r in rows if r is not None]
    best = [int(b) for b in np.argsort(-np.max(known, axis=0), kind="stable")[:GUESSES]] if known else []
    frame = pd.DataFrame(
        [
            {
                "name": byte_name(b),
                "value": float(row[b]),
                "series": side.name,
                "text": f"{row[b]:.2f}" if row[b] >= 0.005 else "<0.01",
            }
            for b in best
            for side, row in zip(shown, rows, strict=True)
            if row is not None
        ],
        columns=["name", "value", "series", "text"],
    )
    return Guesses(frame, len(best), _guess_sentence(shown, rows, read, query))


def _guess_sentence(shown: Sequence[Side], rows: Sequence[Array | None], read: Reading, query: int) -> str:
    after = f"After “{read.passage(query + 1)}”"
    missing = [s.name for s, r in zip(shown, rows, strict=True) if r is None]
    none = f" {', '.join(missing)} has no position {query:,} and guesses nothing." if missing else ""
    if query + 1 >= len(read.data):
        return f"{after} the text ends; these bytes would be likeliest.{none}"
    target = read.data[query + 1]
    given = ", ".join(f"{s.name} {r[target]:.2g}" for s, r in zip(shown, rows, strict=True) if r is not None)
    return f"{after} comes {read.labels[query + 1]}; probability given to it: {given or 'none'}.{none}"


# ---------------------------------------------------------------- past the training length


def loss_windows(shown: Sequence[Side]) -> int:
    """Held-out windows behind the losses by position: those recorded, or fewer where a curve must be computed."""
    recorded = all(compute.as_recorded(s.fit.spec) for s in shown)
    return compute.RECORDED_WINDOWS if recorded else compute.LOSS_WINDOWS


def _references(shown: Sequence[Side]) -> list[tuple[str, Spec]]:
    """(name, spec) of the trained parameters, for every side that runs with others and does not face them already."""
    faced = [s.fit.spec for s in shown]
    trained = list(dict.fromkeys(s.fit.record.spec for s in shown if s.fit.changed and s.fit.record.spec not in faced))
    if len(shown) == 1:
        return [("as trained", spec) for spec in trained]
    names = [f"{SCHEME_TEXT[spec.scheme].name} as trained" for spec in trained]
    if len(set(names)) < len(names):  # two variants of one scheme, each with weights of its own
        names = [f"{name} ({i + 1})" for i, name in enumerate(names)]
    return list(zip(names, trained, strict=True))


def held_out_lines(shown: Sequence[Side]) -> Referenced:
    """Held-out loss by position, one line a side, and as trained where parameters were changed: all on one text."""
    count, references = loss_windows(shown), _references(shown)
    frames = [_binned(s.name, compute.loss_past_training(s.fit.spec, count)) for s in shown]
    frames += [_binned(name, compute.loss_past_training(spec, count)) for name, spec in references]
    frames.append(curves.guide("training length", x=TRAIN_LENGTH))
    series = [(s.name, s.colour) for s in shown] + [(name, curves.NOTE_COLOUR) for name, _ in references]
    dashed = tuple(name for name, _ in references)
    return Referenced(curves.together(*frames), tuple(series), "held-out loss (nats)", dashed)


def drift_lines(shown: Sequence[Side], layer: int, head: int, quantity: str) -> Referenced:
    """Entropy or mean distance of the chosen head by position, beside attention that spreads evenly."""
    positions = np.arange(MAX_TOKENS)
    even = np.log(positions + 1) if quantity == "entropy" else positions / 2
    frames, series = [_binned(UNIFORM, even)], [(UNIFORM, curves.NOTE_COLOUR)]
    for side in shown:
        entropy, distance = compute.drift(side.fit.spec)
        alone = len(shown) == 1
        name = f"layer {layer} head {head}" if alone else side.name
        frames.append(_binned(name, (entropy if quantity == "entropy" else distance)[layer, head]))
        series.append((name, HEAD_COLOURS[head] if alone else side.colour))
    frames.append(curves.guide("training length", x=TRAIN_LENGTH))
    title = "entropy (nats)" if quantity == "entropy" else "mean distance (positions)"
    return Referenced(curves.together(*frames), tuple(series), title, (UNIFORM,))


def _binned(name: str, values: Array) -> pd.DataFrame:
    bins = values[: len(values) // BIN * BIN].reshape(-1, BIN)
    return curves.line(name, np.arange(len(bins)) * BIN + (BIN - 1) / 2, [_mean(b) for b in bins])


def _stretch(part: slice) -> str:
    return f"{part.start:,} to {part.stop - 1:,}"


def drift_sentence(shown: Sequence[Side], layer: int, head: int) -> str:
    """How the chosen head's attention changes from the end of the training length to the end of the curve."""
    parts = []
    for side in shown:
        both = [(_mean(q[layer, head, INSIDE]), _mean(q[layer, head, OUTSIDE])) for q in compute.drift(side.fit.spec)]
        (entropy, entropy_end), (distance, distance_end) = both
        if math.isnan(entropy):
            parts.append(f"{side.name} has no such positions")
        elif math.isnan(entropy_end):
            parts.append(f"{side.name} entropy {entropy:.2f} nats, distance {distance:,.0f}, then its table ends")
        else:
            parts.append(f"{side.name} entropy {entropy:.2f} → {entropy_end:.2f} nats, "
                         f"distance {distance:,.0f} → {distance_end:,.0f} positions")  # fmt: skip
    return (
        f"Layer {layer}, head {head}, on one passage of {MAX_TOKENS:,} held-out bytes: mean at positions "
        f"{_stretch(INSIDE)} → mean at {_stretch(OUTSIDE)}. {'; '.join(parts)}. Dashed: attention spread evenly."
    )


def held_out_sentence(shown: Sequence[Side]) -> str:
    """Held-out loss at the end of the training length and at the end of the curve, of every line in the picture."""
    count, parts = loss_windows(shown), []
    for name, spec in [*((s.name, s.fit.spec) for s in shown), *_references(shown)]:
        loss = compute.loss_past_training(spec, count)
        inside, last = _mean(loss[INSIDE]), _mean(loss[OUTSIDE])
        if math.isnan(inside):
            parts.append(f"{name}: no such positions")
        else:
            parts.append(f"{name}: {inside:.2f} → " + ("its table ends" if math.isnan(last) else f"{last:.2f}"))
    return (
        f"Loss in nats, the mean of {count} passages of held-out text, at positions {_stretch(INSIDE)} → at "
        f"{_stretch(OUTSIDE)}. {'; '.join(parts)}."
    )


# ---------------------------------------------------------------- links


def _try(view: AttentionView, label: str, changes: dict[str, str], then: str) -> Try:
    """A link that keeps what the page shows, but for `changes`; the text is kept by the session."""
    kept = {n: t for n, t in view.to_query().items() if n not in ("scheme", "text")}
    return Try(label, kept | changes, then)


def map_tries(specs: Sequence[Spec], view: AttentionView) -> tuple[Try, ...]:
    """What to try below the large map."""
    first = specs[0]
    other = "rope" if first.scheme == "alibi" else "alibi"
    if len(specs) > 1:
        compare = _try(view, f"{SCHEME_TEXT[first.scheme].name} alone", {"b_scheme": ""}, "One large map.")
    else:
        then = "The same head of both, and their difference."
        compare = _try(view, f"{SCHEME_TEXT[other].name} beside it", {"b_scheme": other}, then)
    if view.shift:
        return compare, _try(view, "positions from 0 again", {"shift": "0"}, "As in training.")
    thens = dict(zip(_names([compute.fit(s) for s in specs]), map(_shift_then, specs), strict=True))
    same = len(set(thens.values())) == 1
    then = thens.popitem()[1] if same else " ".join(f"{name}: {text}" for name, text in thens.items())
    return compare, _try(view, "add 1,000 to all positions", {"shift": "1000"}, then)


def _shift_then(spec: Spec) -> str:
    """What a shift of all positions does: decided by what is added before the first layer, if anything is."""
    if compute.defined(compute.fit(spec).spec) is not None:
        return _SHIFT_THEN["learned"]
    first = layer_spec(spec, 0)
    if first.hook == "embed":
        trained = spec.hook == "embed"  # what a hybrid's loss does depends on the weights it borrows
        return _SHIFT_THEN[first.scheme] if trained else "The picture changes: the first layer adds other vectors."
    positionless = all(s.hook == "none" for s in getattr(spec, "layers", (spec,)))
    return _SHIFT_THEN["none"] if positionless else "The picture stays: scores see distances only."


_SHIFT_THEN = {
    "none": "Nothing changes: positions are not looked at.",
    "sinusoidal": "The loss rises: these vectors were never seen in training.",
    "integer": "The loss rises: such large numbers were never seen in training.",
    "learned": "Refused: the table has no such rows.",
}


def shuffle_try(view: AttentionView) -> Try:
    """The link below the loss curve."""
    if view.order == "shuffled":
        return _try(view, "the written order", {"order": "written"}, "The loss falls back.")
    return _try(view, "shuffle the tokens", {"order": "shuffled"}, "Does their order matter to it?")


def past_try(spec: Spec, view: AttentionView) -> Try:
    """The link below the held-out losses."""
    changes: dict[str, dict[str, str]] = {
        "rope": {"base": "500000"},
        "sinusoidal": {"base": "100000"},
        "alibi": {"n_heads": "4", "slopes": "0,0,0,0"},
        "learned": {"offset": "2"},
    }
    changed = any(name in spec.to_query() for name in changes.get(spec.scheme, ()) if name != "n_heads")
    if spec.scheme == "rope" and changed:
        return _try(view, "linear scaling by 8", {"scheme": "rope", "scaling": "linear", "factor": "8"},
                    "Positions are squeezed into the trained range.")  # fmt: skip
    if spec.scheme in changes and not changed:
        wanted = {n: v for n, v in changes[spec.scheme].items() if n != "n_heads"}
        label = " and ".join(f"{n} {v if ',' in v else _value(v)}" for n, v in wanted.items())
        return _try(view, f"{label} under the trained weights", changes[spec.scheme],
                    "A second curve shows what the change costs.")  # fmt: skip
    return _try(view, "RoPE against ALiBi", {"scheme": "rope", "b_scheme": "alibi"}, "One climbs, the other stays.")
