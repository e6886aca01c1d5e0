# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def"
"""The rotation of q and k on CUDA: one Triton kernel, one launch, each number read once and written once.

A program takes a block of positions, loads its cos and sin, and rotates several heads of q or of k with them, so that
the tables cost little beside the data. Without triton this module still imports; `is_available()` is then False.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import lru_cache
from subprocess import SubprocessError
from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
    from triton.errors import TritonError
except ImportError:
    triton = None

# A program of 128 threads takes four heads at a time, BLOCK bytes of the first half of each and as much of the second:
# eight reads of 16 bytes a thread are under way at once. HEADS heads share one load of cos and sin where that leaves
# at least PROGRAMS programs, enough for the largest GPUs; otherwise four do.
BLOCK, HEADS, PROGRAMS = 2048, 8, 2048


_COMPILED: set[tuple[object, ...]] = set()  # what a kernel has been compiled for


def is_available() -> bool:
    """Whether triton can be imported."""
    return triton is not None


def is_warm() -> bool:
    """Whether a kernel has been compiled, for whatever tensors."""
    return bool(_COMPILED)


def rotate(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, layout: str, sign: float, q_out: Tensor,
    k_out: Tensor | None, may_compile: bool = True,
) -> bool:  # fmt: skip
    """Write the rotation of q [B, H, L, D] and k [B, Hkv, L, D] into q_out and k_out, of the same shapes.

    False, and nothing is written, where this kind of tensors needs a kernel that is not compiled yet, and it may not
    be: there is one for each dtype, layout, D, P and alignment, and others for single tokens and in place.

    cos, sin: [L, P] or [B or 1, 1, L, P] with P <= D/2 pairs; features from 2P on are copied bit for bit. layout: half
    or interleaved. sign = -1 rotates back, which is the gradient. q_out may be q itself, and k_out k. All of one dtype
    but the tables; computes in float32, float64 in float64. Any strides will do; contiguous features are fast.
    ValueError for tensors that do not fit each other, as the kernel would read beside them; RuntimeError where triton
    cannot compile.
    """
    if cos.stride() != sin.stride():
        cos, sin = cos.contiguous(), sin.contiguous()
    with_k = k is not None
    if k is None or k_out is None:
        if k is not k_out:
            raise ValueError("k and k_out are legal together only")
        k, k_out = q, q_out
    in_place = _is(q_out, q) and _is(k_out, k)
    tensors = (q, q_out, k, k_out, cos, sin)
    plan = _plan(tuple((x.shape, x.stride(), x.dtype) for x in tensors), with_k, layout, in_place)
    if plan is None:
        return True
    kind = (*plan.kind, q.device, *(t.data_ptr() % 16 == 0 for t in tensors))
    if not may_compile and kind not in _COMPILED:
        return False
    try:
        with torch.cuda.device(q.device) if q.is_cuda else nullcontext():
            _rotate_block[(plan.programs,)](*tensors, sign, *plan.numbers, **plan.constants)
    except (TritonError, SubprocessError) as error:
        raise RuntimeError(f"triton could not compile the rotation: {error}") from error
    _COMPILED.add(kind)
    return True


def _is(out: Tensor, x: Tensor) -> bool:
    return out.data_ptr() == x.data_ptr() and out.stride() == x.stride()


class _Plan(NamedTuple):
    """How many programs a launch has, and what they are told besides the tensors; kind: what is compiled for."""

    programs: int
    numbers: tuple[int, ...]
    constants: dict[str, Any]
    kind: tuple[object, ...]


@lru_cache(maxsize=1024)
def _plan(
    given: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...], with_k: bool, layout: str, in_place: bool
) -> _Plan | None:
    """For q, q_out, k, k_out, cos, sin, each as shape, strides and dtype; None if they are empty. Kept for the next."""
    *xs, (table, table_strides, _), (sin_shape, _, _) = given
    (batch, n_q, length, dim), _, dtype = given[0]
    n_k, pairs = given[2][0][1] if with_k else 0, table[-1]
    for (shape, _, of_x), (out_shape, _, of_out) in (xs[:2], xs[2:]):
        if (shape[0], *shape[2:]) != (batch, length, dim) or out_shape != shape or not dtype == of_x == of_out:
            raise ValueError(
                f"{of_x} {tuple(shape)} with an output {of_out} {tuple(out_shape)} does not fit q, {dtype} "
                f"{(batch, n_q, length, dim)}; legal: one dtype, and [B, heads, L, D] with q's B, L and D"
            )
    legal = ((length, pairs), (1, 1, length, pairs), (batch, 1, length, pairs))
    if sin_shape != table or table not in legal or 2 * pairs > dim:
        raise ValueError(
            f"cos {tuple(table)} and sin {tuple(sin_shape)} do not fit q {(batch, n_q, length, dim)}; legal: [L, P] or "
            "[B, 1, L, P], both alike, with P at most D/2"
        )
    if not batch * (n_q + n_k) * length * dim:
        return None
    # how far it is to a second one, where there is none, must not count
    strides = [n if size > 1 else 0 for shape, way, _ in xs for size, n in zip(shape[:-1], way[:-1], strict=True)]
    by_batch = table_strides[0] if len(table) == 4 and table[0] > 1 else 0
    # what divides all strides: where the compiler knows that rows start at multiples of 16 bytes, it moves 16 at once
    unit, table_unit = math.gcd(16, *strides), math.gcd(16, by_batch, table_strides[-2])
    rest = 0 if in_place else dim - 2 * pairs
    padded, rest_padded = triton.next_power_of_2(max(1, pairs)), triton.next_power_of_2(max(1, rest))
    row = dtype.itemsize * max(padded, rest_padded // 2)
    rows = 1 if length == 1 else max(1, BLOCK // row)
    blocks = batch * triton.cdiv(length, rows)
    heads = HEADS if blocks * (n_q + n_k) >= HEADS * PROGRAMS else 4
    numbers = (
        length, n_q, n_k, heads, *(n // unit for n in strides), by_batch // table_unit, table_strides[-2] // table_unit,
        *(way[-1] for _, way, _ in xs), table_strides[-1],
    )  # fmt: skip
    constants = {
        "UNIT": unit, "TABLE_UNIT": table_unit, "ROWS": rows, "PAIRS": pairs, "PADDED": padded, "REST": rest,
        "REST_PADDED": rest_padded, "INTERLEAVED": layout == "interleaved",
        "WIDE": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": max(1, min(4, 4 * rows * row // BLOCK)),
    }  # fmt: skip
    adjacent = tuple(way[-1] == 1 for _, way, _ in xs)
    kind = (dtype, given[-1][2], given[-2][2], adjacent, table_strides[-1] == 1, *map(str, constants.values()))
    return _Plan(blocks * (triton.cdiv(n_q, heads) + triton.cdiv(n_k, heads)), numbers, constants, kind)


if triton is not None:
    # Of a stride only its unit matters to the code that is compiled, and of the last ones whether they are 1.
    _NAMES = [f"{x}_{axis}" for x in ("q", "q_out", "k", "k_out", "table") for axis in "bhl"]

    @triton.jit(do_not_specialize=["length", "n_q", "n_k", "heads", *_NAMES])
    def _rotate_block(
        q, q_out, k, k_out, cos, sin, sign, length, n_q, n_k, heads,
        q_b, q_h, q_l, q_out_b, q_out_h, q_out_l, k_b, k_h, k_l, k_out_b, k_out_h, k_out_l, table_b, table_l,
        q_d, q_out_d, k_d, k_out_d, table_d,
        UNIT: tl.constexpr, TABLE_UNIT: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr, PADDED: tl.constexpr,
        REST: tl.constexpr, REST_PADDED: tl.constexpr, INTERLEAVED: tl.constexpr, WIDE: tl.constexpr,
    ):  # fmt: skip
        """One block of ROWS positions of up to `heads` heads of q or of k."""
        q_groups = tl.cdiv(n_q, heads)
        groups = q_groups + tl.cdiv(n_k, heads)
        program = tl.program_id(0)
        group, block = program % groups, program // groups  # neighbours share rows of the tables, which are then cached
        blocks = tl.cdiv(length, ROWS)
        batch = (block // blocks).to(tl.int64)
        rows = ((block % blocks) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        there = rows < length
        columns = tl.arange(0, PADDED).to(tl.int64)[None, :]
        at = batch * table_b * TABLE_UNIT + rows * table_l * TABLE_UNIT + columns * table_d
        c = tl.load(cos + at, mask=there & (columns < PAIRS)).to(WIDE)
        s = tl.load(sin + at, mask=there & (columns < PAIRS)).to(WIDE) * sign
        if group < q_groups:
            first = group * heads
            _rotate_heads(
                q + batch * q_b * UNIT, q_out + batch * q_out_b * UNIT, first, tl.minimum(first + heads, n_q),
                q_h, q_l, q_d, q_out_h, q_out_l, q_out_d, rows, there, c, s,
                UNIT, PAIRS, REST, REST_PADDED, INTERLEAVED,
            )  # fmt: skip
        else:
            first = (group - q_groups) * heads
            _rotate_heads(
                k + batch * k_b * UNIT, k_out + batch * k_out_b * UNIT, first, tl.minimum(first + heads, n_k),
                k_h, k_l, k_d, k_out_h, k_out_l, k_out_d, rows, there, c, s,
                UNIT, PAIRS, REST, REST_PADDED, INTERLEAVED,
            )  # fmt: skip

    @triton.jit
    def _rotate_heads(
        x, out, first, end, x_h, x_l, x_d, out_h, out_l, out_d, rows, there, c, s,
        UNIT: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr, REST_PADDED: tl.constexpr,
        INTERLEAVED: tl.constexpr,
    ):  # fmt: skip
        """Rows [ROWS, 1] of the heads first to end - 1 of one batch row; c and s are [ROWS, PADDED]."""
        x_h, out_h = x_h.to(tl.int64) * UNIT, out_h.to(tl.int64) * UNIT
        x += first * x_h + rows * x_l * UNIT
        out += first * out_h + rows * out_l * UNIT
        columns = tl.arange(0, 2 * c.shape[1] if INTERLEAVED else c.shape[1]).to(tl.int64)[None, :]
        half = tl.full((), PAIRS, tl.int64)
        kept = there & (columns < (2 * PAIRS if INTERLEAVED else PAIRS))
        source, target = x + columns * x_d, out + columns * out_d
        for head in range(first, end, 4):  # all four are read before one is written, so that all are under way
            a0, b0 = _read(source, half * x_d, kept, INTERLEAVED)
            a1, b1 = _read(source + x_h, half * x_d, kept & (head + 1 < end), INTERLEAVED)
            a2, b2 = _read(source + 2 * x_h, half * x_d, kept & (head + 2 < end), INTERLEAVED)
            a3, b3 = _read(source + 3 * x_h, half * x_d, kept & (head + 3 < end), INTERLEAVED)
            _write(target, half * out_d, kept, a0, b0, c, s, INTERLEAVED)
            _write(target + out_h, half * out_d, kept & (head + 1 < end), a1, b1, c, s, INTERLEAVED)
            _write(target + 2 * out_h, half * out_d, kept & (head + 2 < end), a2, b2, c, s, INTERLEAVED)
            _write(target + 3 * out_h, half * out_d, kept & (head + 3 < end), a3, b3, c, s, INTERLEAVED)
            source += 4 * x_h
            target += 4 * out_h
        if REST:
            columns = 2 * PAIRS + tl.arange(0, REST_PADDED).to(tl.int64)[None, :]
            kept = there & (columns < 2 * PAIRS + REST)
            source, target = x + columns * x_d, out + columns * out_d
            for _ in range(first, end):
                tl.store(target, tl.load(source, mask=kept), mask=kept)
                source += x_h
                target += out_h

    @triton.jit
    def _read(at, half, kept, INTERLEAVED: tl.constexpr):
        """The first and second numbers of the pairs at `at`: [ROWS, 2·PADDED] features, or half of them."""
        if INTERLEAVED:  # read side by side, 16 bytes at a time, and taken apart in registers
            return tl.split(tl.reshape(tl.load(at, mask=kept), (at.shape[0], at.shape[1] // 2, 2)))
        else:
            return tl.load(at, mask=kept), tl.load(at + half, mask=kept)

    @triton.jit
    def _write(at, half, kept, a, b, c, s, INTERLEAVED: tl.constexpr):
        a, b = a.to(c.dtype), b.to(c.dtype)
        first = tl.fma(-b, s, a * c).to(at.dtype.element_ty)
        second = tl.fma(a, s, b * c).to(at.dtype.element_ty)
        if INTERLEAVED:
            tl.store(at, tl.reshape(tl.join(first, second), at.shape), mask=kept)
        else:
            tl.store(at, first, mask=kept)
            tl.store(at + half, second, mask=kept)
