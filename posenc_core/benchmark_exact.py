"""What a timed call should have given: the formulas in float64 on a CPU, of a part of its output.

Looked at are at most ROWS positions, spread evenly and the last one among them, of the first sequence of the batch; of
a rotation ROTATED_ROWS, of the last sequence too. All heads are looked at, and there are fewer rows where they and the
length are many (SCORES). A layer is looked at in its first positions, as many as cost WORK multiplications a
projection; being causal, it does not see the later ones. So time grows with the length, not with its square: a layer of
16,384 tokens and a width of 512 takes about a second and 250 MiB, attention less.

Gradients are those of a gradient of the output that is zero but in these rows. Only these rows then count, and the
gradients of q, k, v (or of the layer's x) are compared whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from posenc_core.schemes.base import PositionalEncoding, VectorEncoding
from posenc_core.schemes.rope import Rope

ROWS, ROTATED_ROWS = 64, 1024
SCORES = 2**21  # float64 scores, of all heads, that are held at a time
WORK = 2**31
SANE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}  # a larger error is no rounding: other numbers

Tensors = Sequence[Tensor]


class Worst:
    """The largest difference of each of several tensors, over the largest number that it should hold."""

    def __init__(self) -> None:
        self._differences: dict[str, float] = {}
        self._sizes: dict[str, float] = {}

    def look(self, name: str, got: Tensor, exact: Tensor) -> None:
        """At one piece of the tensor of this name."""
        difference = _largest(got.detach().cpu().double() - exact)
        self._differences[name] = max(self._differences.get(name, 0.0), difference)
        self._sizes[name] = max(self._sizes.get(name, 0.0), _largest(exact))

    @property
    def error(self) -> float:
        """The largest quotient; infinite where numbers are not finite, or should all be 0 and are not."""
        return max(map(_quotient, self._differences.values(), self._sizes.values()))


def _quotient(difference: float, size: float) -> float:
    if difference == 0:
        return 0.0
    return difference / size if size else math.inf


def _largest(x: Tensor) -> float:
    largest = float(x.detach().abs().max())
    return largest if math.isfinite(largest) else math.inf


def spread(n: int, most: int) -> Tensor:
    """At most so many of the indices 0 to n - 1, evenly, the last one always among them."""
    return torch.linspace(n - 1, 0, min(n, most), dtype=torch.float64).round().long().flip(0)


def turned(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """x [..., L, D], its R first features as complex numbers times cos + i·sin [L, R/2]; all float64.

    Another route than the rotations that are timed.
    """
    rotary_dim = 2 * cos.shape[-1]
    pairs, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    half = layout == "half"
    z = torch.complex(*(pairs.chunk(2, -1) if half else (pairs[..., 0::2], pairs[..., 1::2]))) * torch.complex(cos, sin)
    made = torch.cat([z.real, z.imag], -1) if half else torch.view_as_real(z).flatten(-2)
    return torch.cat([made, rest], -1)


def rotation_error(encoding: Rope, given: Tensors, got: Tensors, backward: bool) -> float:
    """Error of q and k [B, H, L, D] rotated; with backward that of their gradients, where `given` are the outputs'."""
    length = given[0].shape[-2]
    rows, worst = spread(length, ROTATED_ROWS), Worst()
    cos, sin = encoding.build_tables(rows, torch.float64, length)
    for name, x, out in zip("qk", given, got, strict=True):
        for sequence in {0, len(x) - 1}:
            exact = turned(_rows(x[sequence], rows), cos, -sin if backward else sin, encoding.spec.layout)
            worst.look(name, _rows(out[sequence], rows), exact)
    return worst.error


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    """Those of x [..., L, D], float64 on the CPU."""
    return x.detach().index_select(-2, rows.to(x.device)).cpu().double()


def attention_rows(heads: int, length: int) -> Tensor:
    """The queries that are looked at."""
    return spread(length, max(1, min(ROWS, SCORES // (heads * length))))


class _Head:
    """Attention of one head in float64, of some of the queries; what the scheme does is prepared for all heads."""

    def __init__(self, encoding: PositionalEncoding, heads: int, rows: Tensor, keys: int, length: int) -> None:
        self.rows, self.encoding = rows, encoding
        positions = torch.arange(keys)
        self.late = positions > rows[:, None]
        self.tables = encoding.build_tables(positions, torch.float64, length) if isinstance(encoding, Rope) else None
        wide = torch.empty(1, heads, 1, 1, dtype=torch.float64)
        bias = None if self.tables else encoding.bias(rows, positions, wide, wide)
        self.bias = None if bias is None else bias.detach().expand(heads, -1, -1)

    def __call__(self, head: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[R, D] from q of the rows [R, D] and k, v of the keys [N, D]."""
        scale = 1.0
        if self.tables is not None and isinstance(self.encoding, Rope):
            (cos, sin), layout = self.tables, self.encoding.spec.layout
            q, k = turned(q, cos[self.rows], sin[self.rows], layout), turned(k, cos, sin, layout)
            scale = self.encoding.scales.scores
        scores = scale / math.sqrt(q.shape[-1]) * q @ k.T
        if self.bias is not None:
            scores = scores + self.bias[head]
        return scores.masked_fill(self.late, -torch.inf).softmax(-1) @ v


def attention_error(encoding: PositionalEncoding, qkv: Tensors, got: Tensors, gradient: Tensor | None) -> float:
    """Error of causal attention [B, H, L, D] of q, k, v; with the output's gradient, that of the three gradients.

    The encoding is on the CPU. The gradient is zero but in attention_rows of the first sequence.
    """
    _, heads, length, _ = qkv[0].shape
    rows, worst = attention_rows(heads, length), Worst()
    one = _Head(encoding, heads, rows, length, length)
    for head in range(heads):
        q, k, v = (x[0, head].detach().cpu().double() for x in qkv)
        if gradient is None:
            worst.look("out", got[0][0, head].detach().cpu()[rows], one(head, q[rows], k, v))
            continue
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        with torch.enable_grad():
            out = one(head, q[rows], k, v)
            exact = torch.autograd.grad(out, (q, k, v), _rows(gradient[0, head], rows))
        for name, mine, right in zip("qkv", got, exact, strict=True):
            worst.look(name, mine[0, head], right)
    return worst.error


def layer_rows(d_model: int, heads: int, length: int) -> tuple[int, Tensor]:
    """How many of the first positions a layer is looked at in, and the rows among them."""
    seen = max(1, min(length, WORK // d_model**2))
    return seen, attention_rows(heads, seen)


def layer_error(
    encoding: PositionalEncoding, embeds: bool, weights: tuple[Tensor, Tensor], heads: int, x: Tensor, got: Tensor,
    gradient: Tensor | None,
) -> float:  # fmt: skip
    """Error of a layer's output [B, L, d_model] of x; with the output's gradient, that of x's gradient.

    weights: [3·d_model, d_model] of q, k and v, and [d_model, d_model] of the output. The encoding is on the CPU; what
    it adds to x counts if it `embeds`. The gradient is zero but in layer_rows of the first sequence.
    """
    _, length, width = x.shape
    seen, rows = layer_rows(width, heads, length)
    one, worst = _Head(encoding, heads, rows, seen, length), Worst()
    inputs = x[0, :seen].detach().cpu().double().requires_grad_(gradient is not None)
    with torch.set_grad_enabled(gradient is not None):
        embedded = inputs
        if embeds and isinstance(encoding, VectorEncoding):
            embedded = inputs + encoding.vectors(torch.arange(seen)).detach().double()
        out = torch.zeros(len(rows), width, dtype=torch.float64)
        for head in range(heads):
            out = out + _projected_head(one, head, heads, embedded, rows, weights)
        if gradient is None:
            worst.look("out", got[0].detach().cpu()[rows], out)
        else:
            (exact,) = torch.autograd.grad(out, inputs, _rows(gradient[0], rows))
            worst.look("x", got[0, :seen], exact)
    return worst.error


def _projected_head(
    one: Callable[[int, Tensor, Tensor, Tensor], Tensor], head: int, heads: int, x: Tensor, rows: Tensor,
    weights: tuple[Tensor, Tensor],
) -> Tensor:  # fmt: skip
    """What one head adds to the layer's output [R, d_model]."""
    width = x.shape[-1]
    part = slice(head * width // heads, (head + 1) * width // heads)
    w_q, w_k, w_v = (w[part].detach().cpu().double() for w in weights[0].chunk(3))
    made = one(head, x[rows] @ w_q.T, x @ w_k.T, x @ w_v.T)
    return made @ weights[1][:, part].detach().cpu().double().T
