"""Cases for the Triton kernel, for CUDA and for the interpreter, against complex multiplication in float64.

`python rotation.py` runs them on the CPU and prints {case: error} as JSON; it needs TRITON_INTERPRET=1.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from itertools import product
from unittest import mock

import torch

from posenc_core import rotary_triton

GUARD = 16  # elements around a tensor, and between its rows, that must stay as they are


@dataclass(frozen=True)
class Case:
    dtype: str = "float32"
    layout: str = "half"
    batch: int = 2
    heads: int = 3
    kv_heads: int | None = 1  # None: no k
    length: int = 5
    dim: int = 16
    pairs: int = 8
    storage: str = "heads first"
    out_storage: str = ""  # "": as storage
    tables: str = "shared"
    in_place: bool = False
    sign: int = 1
    programs: int = rotary_triton.PROGRAMS  # 1: heads share a load of the tables as in a long sequence

    def __str__(self):
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return " ".join(f"{name}={value}" for name, value in given.items()) or "plain"


STORAGES = ("heads first", "length first", "slice of qkv", "every second", "odd start", "backwards in memory")
TABLES = ("shared", "one row", "batch", "one for all", "wide", "different strides")
ALL = [
    *(Case(t, lay, in_place=i, sign=s) for t, lay, i, s in product(
        ("float32", "bfloat16", "float16", "float64"), ("half", "interleaved"), (False, True), (1, -1))),
    *(Case("bfloat16", lay, storage=s, in_place=i, dim=20, pairs=8) for s, lay, i in product(
        STORAGES, ("half", "interleaved"), (False, True))),
    *(Case("bfloat16", lay, storage=s, out_storage=o, dim=20, heads=6, programs=n) for s, o, lay, n in product(
        STORAGES[:3], STORAGES[::3], ("half", "interleaved"), (1, rotary_triton.PROGRAMS))),
    *(Case("bfloat16", lay, tables=t) for t, lay in product(TABLES, ("half", "interleaved"))),
    *(Case("bfloat16", lay, length=n, heads=h, kv_heads=kv, dim=d, pairs=p) for lay in ("half", "interleaved")
      for n, h, kv, d, p in (
        (1, 1, 1, 2, 1), (1, 32, 8, 128, 64), (7, 5, 2, 80, 40), (17, 9, 3, 72, 36), (33, 4, None, 64, 32),
        (70, 2, 1, 6, 3), (3, 2, 2, 256, 128), (5, 2, 1, 128, 16), (16, 13, 1, 24, 5), (5, 2, 1, 9, 4), (5, 2, 1, 7, 0),
        (2, 1, 1, 1040, 520), (0, 2, 1, 16, 8), (5, 0, 1, 16, 8), (5, 1, 0, 16, 8)
    )),
    *(Case(t, lay, tables=b, sign=s, dim=40, pairs=16) for t, lay, b, s in product(
        ("float32", "float64"), ("half", "interleaved"), ("batch", "one row"), (1, -1))),
    *(Case("bfloat16", lay, length=37, heads=h, kv_heads=kv, dim=80, pairs=p, programs=1, in_place=i)
      for lay, (h, kv), p, i in product(("half", "interleaved"), ((16, 8), (13, 3)), (40, 16), (False, True))),
]  # fmt: skip
CASES = list(dict.fromkeys(ALL))


def stored(case: Case, storage: str, heads: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor [B, heads, L, D] in that storage, and the buffer around it, full of a guard value."""
    shape, dtype = (case.batch, heads, case.length, case.dim), getattr(torch, case.dtype)
    b, h, n, d = shape
    strides = {
        "heads first": (h * n * d, n * d, d, 1),
        "length first": (n * h * d, d, h * d, 1),
        "slice of qkv": (n * 3 * h * d, d, 3 * h * d, 1),
        "every second": (2 * h * n * d, 2 * n * d, 2 * d, 2),
        "odd start": (h * n * d, n * d, d, 1),
        "backwards in memory": (1, b, b * h, b * h * n),
    }[storage]
    start = GUARD + (storage == "odd start")
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)
    buffer = torch.full((start + span + GUARD,), 7.0, dtype=dtype, device=device)
    return buffer.as_strided(shape, strides, start), buffer


def made_tables(case: Case, generator: torch.Generator, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    front = {"batch": (case.batch, 1), "one for all": (1, 1)}.get(case.tables, ())
    shape = (*front, case.length, case.pairs)
    angle = torch.rand(shape, generator=generator, dtype=torch.float64) * 6.3
    if case.tables == "one row":
        angle = angle[:1].expand(shape) if case.length else angle
    table = torch.float64 if case.dtype == "float64" else torch.float32
    cos, sin = angle.cos().to(table).to(device), angle.sin().to(table).to(device)
    if case.tables == "one row" and case.length:
        cos, sin = cos[:1].expand(shape), sin[:1].expand(shape)
    if case.tables == "wide":  # the rows of a table that is twice as wide and twice as long
        cos, sin = (torch.cat([x, x], -1).repeat_interleave(2, -2)[::2, : case.pairs] for x in (cos, sin))
    if case.tables == "different strides":
        sin = sin.T.contiguous().T
    return cos, sin


def expected(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, case: Case, interpreted: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rotation in float64 by complex numbers, and how large an error rounding explains, both [B, heads, L, D]."""
    x, turn = x.double(), torch.complex(cos.double(), case.sign * sin.double())
    a, b = (x[..., : case.pairs], x[..., case.pairs : 2 * case.pairs]) if case.layout == "half" else (
        x[..., 0 : 2 * case.pairs : 2], x[..., 1 : 2 * case.pairs : 2])  # fmt: skip
    turned = torch.complex(a.contiguous(), b.contiguous()) * turn
    parts = [turned.real, turned.imag]
    out = torch.cat(parts, -1) if case.layout == "half" else torch.stack(parts, -1).flatten(-2)
    size = torch.cat([a.abs() + b.abs()] * 2, -1) if case.layout == "half" else (
        (a.abs() + b.abs()).repeat_interleave(2, -1))  # fmt: skip
    wide = torch.float64 if case.dtype == "float64" else torch.float32
    bound = 1.5 * torch.finfo(wide).eps * size
    if case.dtype != "float64":
        rounding = 1.002 if interpreted and case.dtype == "bfloat16" else 0.501  # Triton's interpreter cuts off there
        bound = bound + torch.finfo(getattr(torch, case.dtype)).eps * rounding * out.abs()
    return out, bound


def worst(case: Case, device: str) -> float:
    """The largest error as a share of what rounding explains; 1 or less is right. AssertionError for foreign writes."""
    generator = torch.Generator().manual_seed(len(str(case)))
    cos, sin = made_tables(case, generator, device)
    inputs, outputs, buffers = [], [], []
    for heads in (case.heads, case.kv_heads):
        if heads is None:
            continue
        x, _ = stored(case, case.storage, heads, device)
        x.copy_(torch.randn(x.shape, generator=generator, dtype=torch.float64).mul(3).to(x.dtype))
        if case.dim > 2 * case.pairs:
            x[..., 2 * case.pairs] = math.nan  # is copied, and must not come near the others
        out, buffer = stored(case, case.out_storage or case.storage, heads, device)
        out.copy_(x if case.in_place else torch.full_like(x, math.inf))
        inputs.append(x.clone())
        outputs.append(out)
        buffers.append(buffer)
        if not case.in_place:
            inputs[-1] = x
    q, k = (*(outputs if case.in_place else inputs), None)[:2]
    rotary_triton._plan.cache_clear()
    with mock.patch.object(rotary_triton, "PROGRAMS", case.programs):
        rotary_triton.rotate(q, k, cos, sin, case.layout, float(case.sign), *(*outputs, None)[:2])
    found = 0.0
    for x, out, buffer in zip(inputs, outputs, buffers, strict=True):
        right, bound = expected(x.cpu(), cos.cpu(), sin.cpu(), case, device == "cpu")
        rotated, rest = out.cpu()[..., : 2 * case.pairs].double(), out.cpu()[..., 2 * case.pairs :]
        assert same_bits(rest, x.cpu()[..., 2 * case.pairs :]), f"{case}: features that do not rotate have changed"
        if rotated.numel():
            error = (rotated - right).abs() / bound.clamp(min=1e-300)
            found = max(found, math.inf if error.isnan().any() else float(error.max()))
        out.fill_(7.0)
        assert bool((buffer == 7.0).all()), f"{case}: written beside the output"
    return found


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.equal(x.contiguous().view(whole), y.contiguous().view(whole))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({str(case): worst(case, "cpu") for case in CASES}))
