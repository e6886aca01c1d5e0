"""Numbers as people paste them: Python lists, prints of torch and numpy, JSON, CSV, bare columns. Nothing is executed.

What cannot be read is refused by name; every number keeps how exactly it was written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from posenc_core.rotary import Layout
from posenc_core.spec import Problem, SpecError

MAX_CHARACTERS = 200_000
MAX_NUMBERS = 2**17
MAX_DEPTH = 6
LEAST_DOUBLED = 8  # numbers of a list in which each stands twice by intention
MAX_POSITION = 2**53
Kind = Literal["auto", "inv_freq", "cos_sin", "rotated"]

_NAMES = {  # what people call things -> what is meant
    "inv_freq": "inv_freq", "inv_freqs": "inv_freq", "freqs": "inv_freq", "theta": "inv_freq", "thetas": "inv_freq",
    "cos": "cos", "cosine": "cos", "sin": "sin", "sine": "sin",
    "position": "position", "positions": "position", "position_ids": "position", "pos": "position",
    "x": "x", "q": "x", "k": "x", "rotated": "rotated", "y": "rotated", "q_embed": "rotated", "k_embed": "rotated",
    "x_rotated": "rotated", "q_rotated": "rotated", "k_rotated": "rotated",
}  # fmt: skip
_WRAPPERS = {"tensor", "array", "torch", "np", "numpy", "Parameter", "containing", "list", "tuple", "jnp", "Array"}
_VALUE = r"(?:torch\.Size\(\[[^\]]*\]\)|\([^)]*\)|<[^>]*>|'[^']*'|\"[^\"]*\"|[\w.]+)"
_SUFFIX = re.compile(rf"\b(?:dtype|device|requires_grad|grad_fn|size|shape|weak_type)\s*=\s*{_VALUE}")
_SCALAR = re.compile(r"\b(?:np|numpy|jnp)\.(?:float|int)\d+\(([^()]*)\)")
_TOKEN = re.compile(
    r"(?P<dots>\.\.\.+|…)"
    r"|(?P<complex>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[jJ]\b)"
    r"|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w]))"
    r"|(?P<word>[A-Za-z_][\w]*)"
    r"|(?P<open>[\[(])|(?P<close>[\])])|(?P<line>[\r\n]+)|(?P<means>[=:])"
    r"|(?P<between>[\s,;|\"'{}]+|\.(?=[A-Za-z]))"
)
LEGAL = (
    "inv_freq as a list of numbers; rows of cos and sin; or x = […], position = 7, rotated = […]; as Python lists, "
    "prints of torch or numpy, JSON or CSV"
)


@dataclass(frozen=True)
class Block:
    """Numbers of one shape, float64; `resolution`: half a unit of the last digit written, same shape."""

    values: Tensor
    resolution: Tensor


@dataclass(frozen=True)
class InvFreq:
    """inv_freq [pairs]. layout: that of a list in which each frequency stood twice, None where it stood once."""

    values: Block
    layout: Layout | None = None


@dataclass(frozen=True)
class Tables:
    """cos and sin [positions, width]; either may be missing. positions [N], numbered from 0 where none were given."""

    positions: Tensor
    cos: Block | None
    sin: Block | None
    numbered: bool = False


@dataclass(frozen=True)
class Rotated:
    """Vectors [N, d_head] before and after the rotation at positions [N]."""

    positions: Tensor
    x: Block
    rotated: Block


Pasted = InvFreq | Tables | Rotated


def refuse(value: object, reason: str, legal: str = LEGAL) -> SpecError:
    """The error for something pasted that cannot be read."""
    return SpecError([Problem("pasted", value, legal, reason)])


@dataclass
class _Number:
    value: float
    last: int  # power of ten of the last digit written
    digits: int  # significant digits written


@dataclass
class _Node:
    items: list[Any] = field(default_factory=list)


def read_pasted(text: str, kind: Kind = "auto") -> Pasted:
    """What the text holds. Raises SpecError, naming what cannot be read and why."""
    if len(text) > MAX_CHARACTERS:
        raise refuse(f"{len(text):,} characters", "too long", f"at most {MAX_CHARACTERS:,} characters")
    named, unnamed = _blocks(text)
    if "inv_freq" in named and kind in ("auto", "inv_freq"):
        return _inv_freq(named["inv_freq"])
    if {"x", "rotated"} & named.keys() and kind in ("auto", "rotated"):
        return _rotated(named)
    if {"cos", "sin"} & named.keys() and kind in ("auto", "cos_sin"):
        return _tables(named.get("cos"), named.get("sin"), named.get("position"))
    if named.keys() - {"position"}:
        raise refuse(", ".join(named), f"that is not {kind}")
    return _guess(unnamed, named.get("position"), kind)


def _guess(blocks: list[Block], positions: Block | None, kind: str) -> Pasted:
    shapes = [b.values.dim() for b in blocks]
    if not blocks:
        raise refuse("the text", "it holds no numbers")
    flat = blocks[0].values.flatten()
    if shapes == [2] and kind in ("auto", "inv_freq") and (_falls(flat) or doubled(flat) is not None):
        return _inv_freq(blocks[0])  # one list over several lines
    if shapes == [1] and kind in ("auto", "inv_freq") and positions is None:
        return _inv_freq(blocks[0])
    if all(d == 2 for d in shapes) and len(shapes) <= 2 and kind in ("auto", "cos_sin"):
        first = blocks[0].values[0]
        if len(blocks) == 1 and bool((first.abs() < 1e-9).all()):
            return _tables(None, blocks[0], positions)
        return _tables(blocks[0], blocks[1] if len(blocks) == 2 else None, positions)
    if len(blocks) == 3 and kind in ("auto", "rotated"):
        scalars = [b for b in blocks if b.values.numel() == 1]
        vectors = [b for b in blocks if b.values.numel() > 1]
        if len(scalars) == 1:
            return _rotated({"x": vectors[0], "rotated": vectors[1], "position": scalars[0]})
    if len(blocks) == 2 and positions is not None and kind in ("auto", "rotated"):
        return _rotated({"x": blocks[0], "rotated": blocks[1], "position": positions})
    found = ", ".join(" × ".join(map(str, b.values.shape)) for b in blocks)
    legal = "names such as inv_freq = […], cos = [[…]], sin = [[…]], x = […], position = 7, rotated = […]"
    raise refuse(f"{len(blocks)} blocks of numbers ({found})", "what they are cannot be told: name them", legal)


def _falls(values: Tensor) -> bool:
    return bool((values[1:] < values[:-1]).all()) and bool((values >= 0).all())


def doubled(values: Tensor) -> Layout | None:
    """How a list holds each frequency twice: cat([f, f]) is "half", repeat_interleave(f, 2) "interleaved"."""
    n = len(values) // 2
    if len(values) < LEAST_DOUBLED or len(values) % 2:
        return None
    ways: tuple[tuple[Layout, Tensor, Tensor], ...] = (
        ("half", values[:n], values[n:]), ("interleaved", values[::2], values[1::2]),
    )  # fmt: skip
    for layout, once, again in ways:
        step = once.diff()
        turning = once[once > 0]
        # a list whose slow end is written in few digits repeats some numbers too
        if (
            bool((once == again).all()) and (bool((step <= 0).all()) or bool((step >= 0).all()))
            and 2 * len(turning.unique()) > max(len(turning), 2)
        ):  # fmt: skip
            return layout
    return None


def _inv_freq(block: Block) -> InvFreq:
    values, resolution = block.values.flatten(), block.resolution.flatten()
    layout = doubled(values)
    if layout is not None:
        once = slice(len(values) // 2) if layout == "half" else slice(None, None, 2)
        values, resolution = values[once], resolution[once]
    if not 1 <= len(values) <= 512:
        raise refuse(f"{len(values)} numbers", "no list of frequencies is that long", "1 to 512 frequencies")
    if bool((values < 0).any()):
        raise refuse(float(values.min()), "a frequency below zero", "frequencies from 0")
    if not bool((values > 0).any()):
        raise refuse("zeros only", "nothing turns", "at least one frequency above 0")
    return InvFreq(Block(values, resolution), layout)


def _matrix(block: Block) -> Block:
    if block.values.dim() >= 2:
        return block
    return Block(block.values[None], block.resolution[None])


def _tables(cos: Block | None, sin: Block | None, positions: Block | None) -> Tables:
    parts = [_matrix(b) for b in (cos, sin) if b is not None]
    shapes = {tuple(p.values.shape) for p in parts}
    if len(shapes) > 1:
        raise refuse(f"cos and sin of shapes {sorted(shapes)}", "they differ", "cos and sin of the same shape")
    rows, width = parts[0].values.shape
    if rows == 1 and positions is None:
        raise refuse("one row", "its position is not given", "position = … beside it, or rows for positions 0, 1, 2 …")
    numbers = _positions(positions, rows) if positions is not None else torch.arange(rows, dtype=torch.float64)
    if width > 1024:
        raise refuse(f"rows of {width:,} numbers", "no head is that wide", "rows of 1 to 1,024 numbers")
    for part in parts:
        if bool((part.values.abs() > 100).any()):
            raise refuse(float(part.values.abs().max()), "no cos or sin, scaled or not, is that large")
    held = iter(parts)
    return Tables(numbers, next(held) if cos is not None else None, next(held) if sin is not None else None,
                  positions is None)  # fmt: skip


def _rotated(named: dict[str, Block]) -> Rotated:
    missing = [n for n in ("x", "position", "rotated") if n not in named]
    if missing:
        raise refuse(", ".join(named), f"without {' and '.join(missing)}", "x, position and rotated together")
    x, y = _matrix(named["x"]), _matrix(named["rotated"])
    if x.values.shape != y.values.shape:
        raise refuse(f"x of {tuple(x.values.shape)}, rotated of {tuple(y.values.shape)}", "they differ",
                     "x and rotated of the same shape")  # fmt: skip
    rows, width = x.values.shape
    if width < 2 or width % 2 or width > 1024:
        raise refuse(f"vectors of {width} features", "", "an even number of features from 2 to 1,024")
    return Rotated(_positions(named["position"], rows), x, y)


def _positions(block: Block, rows: int) -> Tensor:
    values = block.values.flatten()
    if len(values) != rows:
        raise refuse(f"{len(values)} positions", f"there are {rows} rows", "one position a row")
    if bool((values.abs() > MAX_POSITION).any()):
        raise refuse(float(values.abs().max()), "not a position", f"positions up to {MAX_POSITION:,}")
    return values


# ------------------------------------------------------------------ text to blocks


def _blocks(text: str) -> tuple[dict[str, Block], list[Block]]:
    """Named and unnamed blocks, in order."""
    table = _csv(text)
    if table is not None:
        return table, []
    text = _SCALAR.sub(r"\1", _SUFFIX.sub(" ", text))
    named: dict[str, Block] = {}
    unnamed: list[Block] = []
    stack: list[_Node] = []
    rows: list[list[_Number]] = [[]]  # numbers outside brackets, by line
    name: str | None = None
    count, at = 0, 0

    def put(block: Block | None) -> None:
        nonlocal name
        if block is None:
            return
        if name is None:
            unnamed.append(block)
        elif name in named:
            raise refuse(name, "given twice", "each name once")
        else:
            named[name] = block
        name = None

    def flush() -> None:
        nonlocal rows
        lines = [r for r in rows if r]
        rows = [[]]
        put(_of_lines(lines) if lines else None)

    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise refuse(text[at : at + 24], "cannot be read from here on")
        at, what, raw = token.end(), token.lastgroup, token[0]
        if what == "dots":
            raise refuse("…", "the print leaves numbers out",
                         "a full print: torch.set_printoptions(threshold=1_000_000) or numpy.set_printoptions("
                         "threshold=1_000_000) first, or .tolist()")  # fmt: skip
        if what == "complex":
            raise refuse(raw, "complex numbers", "their .real as cos and their .imag as sin")
        if what == "number":
            count += 1
            if count > MAX_NUMBERS:
                raise refuse(f"more than {MAX_NUMBERS:,} numbers", "too many", f"at most {MAX_NUMBERS:,} numbers")
            (stack[-1].items if stack else rows[-1]).append(_number(raw))
        elif what == "word":
            following = text[at:].lstrip("\"' \t")[:1]
            if following in ("=", ":") and raw.lower() in _NAMES:
                if not stack:
                    flush()
                name = _NAMES[raw.lower()]
            elif raw in ("nan", "NaN", "inf", "Infinity"):
                raise refuse(raw, "not a number to compare with", "finite numbers")
            elif raw not in _WRAPPERS:
                raise refuse(raw, "unknown word", "the names " + ", ".join(dict.fromkeys(_NAMES.values())))
        elif what == "line":
            if not stack:
                rows.append([])
        elif what == "open":
            if not stack:
                flush()
            if len(stack) >= MAX_DEPTH:
                raise refuse("brackets", f"nested deeper than {MAX_DEPTH}", f"at most {MAX_DEPTH} levels")
            node = _Node()
            if stack:
                stack[-1].items.append(node)
            stack.append(node)
        elif what == "close":
            if not stack:
                raise refuse(raw, "a bracket that was not opened")
            node = stack.pop()
            if not stack:
                put(_of_node(node))
    if stack:
        raise refuse("the text", "a bracket is not closed")
    flush()
    if not named and not unnamed:
        raise refuse("the text", "it holds no numbers")
    return named, unnamed


def _csv(text: str) -> dict[str, Block] | None:
    """A table with a heading: pair, inv_freq; None if the text is no such table."""
    lines = [line for line in text.splitlines() if line.strip()]
    heads = [h.strip().strip("\"'").lower() for h in re.split(r"[,;\t]", lines[0])] if lines else []
    if not any(h in _NAMES for h in heads) or not all(re.fullmatch(r"[a-z_ ]+|", h) for h in heads) or len(lines) < 2:
        return None
    made: dict[str, Block] = {}
    cells = [re.split(r"[,;\t]", line) for line in lines[1:]]
    if len(lines) - 1 > MAX_NUMBERS or any(len(row) != len(heads) for row in cells):
        return None
    for column, head in enumerate(heads):
        if head in _NAMES:
            numbers = [_number(row[column].strip()) for row in cells]
            made[_NAMES[head]] = _block(numbers, (len(numbers),))
    return made


def _number(raw: str) -> _Number:
    try:
        value = float(raw)
    except ValueError:
        raise refuse(raw, "not a number") from None
    if not math.isfinite(value):
        raise refuse(raw, "too large", "finite numbers")
    mantissa, _, exponent = raw.lower().lstrip("+-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    return _Number(value, int(exponent or 0) - len(fraction), len(digits))


def _of_lines(lines: list[list[_Number]]) -> Block:
    """A column, a row, or a matrix; lines of different length are one list that was wrapped."""
    flat = [n for line in lines for n in line]
    widths = {len(line) for line in lines}
    if len(lines) > 1 and len(widths) == 1 and len(lines[0]) > 1:
        return _block(flat, (len(lines), len(lines[0])))
    return _block(flat, (len(flat),))


def _of_node(node: _Node) -> Block | None:
    """Nested lists as a vector or a matrix; dimensions of size 1 in front are dropped. None for an empty bracket."""
    while len(node.items) == 1 and isinstance(node.items[0], _Node):
        node = node.items[0]
    if not node.items:
        return None
    flat: list[_Number] = []
    shape = _shape(node, flat)
    if len(shape) > 2:
        raise refuse(f"a block of {' × '.join(map(str, shape))}", "it has more than rows and columns",
                     "a list, or rows of numbers")  # fmt: skip
    return _block(flat, shape)


def _shape(node: _Node, flat: list[_Number]) -> tuple[int, ...]:
    if all(isinstance(i, _Number) for i in node.items):
        flat += node.items
        return (len(node.items),)
    if not all(isinstance(i, _Node) for i in node.items):
        raise refuse("a list", "it mixes numbers and lists", "a list of numbers, or of rows alike")
    shapes = {_shape(i, flat) for i in node.items}
    if len(shapes) > 1:
        lengths = ", ".join(str(s[0]) for s in sorted(shapes)[:2])
        raise refuse(f"rows of {lengths} numbers", "they differ in length", "rows of the same length")
    return (len(node.items), *shapes.pop())


def _block(numbers: Sequence[_Number], shape: tuple[int, ...]) -> Block:
    """Values and their resolution, from how the whole block is written.

    A print rounds to decimals or to significant digits; numbers that are exact lose trailing zeros. So the number
    written with the most tells what the others were rounded to.
    """
    values = torch.tensor([n.value for n in numbers], dtype=torch.float64)
    decimals, digits = min(n.last for n in numbers), max(n.digits for n in numbers)
    magnitude = torch.where(values == 0, -400.0, torch.floor(torch.log10(values.abs().clamp(min=1e-300))))
    resolution = 0.5 * torch.maximum(torch.full_like(values, 10.0**decimals), 10.0 ** (magnitude + 1 - max(digits, 1)))
    return Block(values.view(shape), resolution.view(shape))
