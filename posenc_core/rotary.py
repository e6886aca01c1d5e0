"""Rotation of feature pairs, for both pair layouts (Su et al. 2021, arXiv:2104.09864).

Phases are products of positions and frequencies in float64, reduced by cos and sin there, and only then cast: a
float32 product is off by a third of a turn at position ten million.

The rotation itself has three forms. _pure is the formula, which torch.compile fuses by itself and which tables with a
gradient need. Eager and fused have a gradient of their own, the rotation backwards; fused passes over memory once, by
a compiled kernel: rotary_cpu.py on CPUs, rotary_triton.py on CUDA.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from posenc_core import rotary_cpu

Layout = Literal["half", "interleaved"]
AT_ONCE = 1 << 20  # float64 phases that are held at a time
PART = 1 << 15  # numbers of a head from which the eager path takes heads one by one


def phases(positions: Tensor, inv_freq: Tensor) -> Tensor:
    """Angles in radians, float64 [..., L, R/2], from positions [..., L] and inv_freq [R/2] (radians a position).

    A device without float64 (mps) gets them computed on the CPU; the result then lies on the CPU. Moved first, cast
    then: one call for both would cast on the device.
    """
    where = torch.device("cpu") if positions.device.type == "mps" else positions.device
    return positions.to(where).double().unsqueeze(-1) * inv_freq.to(where).double()


def cos_sin(
    positions: Tensor, inv_freq: Tensor, *, dtype: torch.dtype = torch.float32, attention_factor: float = 1.0
) -> tuple[Tensor, Tensor]:
    """cos and sin of the phases times `attention_factor`, each [..., L, R/2] in `dtype` on the positions' device.

    Long tables are made piece by piece, so that float64 takes 24 MiB at most beside them.
    """
    rows = max(1, AT_ONCE // max(1, inv_freq.numel()))
    whole = positions.numel() <= rows or positions.dim() != 1 or torch.compiler.is_compiling()
    if whole or positions.requires_grad or inv_freq.requires_grad:
        angle = phases(positions, inv_freq)
        cos, sin = angle.cos() * attention_factor, angle.sin() * attention_factor
        return cos.to(dtype).to(positions.device), sin.to(dtype).to(positions.device)
    tables = [torch.empty(len(positions), inv_freq.numel(), dtype=dtype, device=positions.device) for _ in range(2)]
    for start in range(0, len(positions), rows):
        angle = phases(positions[start : start + rows], inv_freq)
        for table, function in zip(tables, (torch.cos, torch.sin), strict=True):
            table[start : start + rows] = (function(angle) * attention_factor).to(dtype)
    return tables[0], tables[1]


def apply_rotary(
    x: Tensor, cos: Tensor, sin: Tensor, layout: Layout = "half", fused: bool | None = None, inplace: bool = False
) -> Tensor:
    """Rotate the first R features of x [..., L, D]; the other D - R stay bit-identical. Returns x's dtype.

    cos, sin: [L, R/2] or broadcastable to [..., L, R/2]. layout "half" pairs feature i with i + R/2 (GPT-NeoX, Llama
    in transformers), "interleaved" pairs 2i with 2i + 1 (the paper, GPT-J). Half precision is rotated in float32.
    fused: True compiles the kernel on its first use (0.3 s on a CPU; without a C++ compiler it warns once and stays
    eager), False never uses it, None uses it where it is warm. On a CPU both round alike, so they give the same bits
    where PyTorch's kernels have fused multiply-adds (interleaved pairs: and R/2 is a multiple of 8). inplace: x is
    overwritten and returned, for inference. ValueError for a layout or sizes that do not fit, or for inplace where a
    gradient is wanted or numbers of x share memory.
    """
    (out,) = _apply([x], cos, sin, layout, fused, inplace)
    return out


def apply_rotary_qk(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: Layout = "half",
    fused: bool | None = None,
    inplace: bool = False,
) -> tuple[Tensor, Tensor]:
    """apply_rotary for queries [..., H, L, D] and keys [..., Hkv, L, D] of the same positions; one kernel on CUDA."""
    q, k = _apply([q, k], cos, sin, layout, fused, inplace)
    return q, k


def warm_up(device: str | torch.device = "cpu") -> bool:
    """Compile the fused rotation of a device now, if that can be done; whether it is warm then. Never raises.

    On CUDA that is a kernel for tensors of one kind only: it tells whether there can be one for others.
    """
    x, table = torch.zeros(1, 2, device=device), torch.ones(1, 1, device=device)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", RuntimeWarning)
        for layout in get_args(Layout):
            apply_rotary(x, table, table, layout, fused=True)
    return fused_is_warm(device)


def fused_is_warm(device: str | torch.device = "cpu") -> bool:
    """Whether the fused rotation has been compiled for the device; waits for nothing.

    On CUDA: for some kind of tensors, as each has its own kernel.
    """
    if torch.device(device).type == "cpu":
        return rotary_cpu.warm()
    loaded = sys.modules.get("posenc_core.rotary_triton")
    return torch.device(device).type == "cuda" and loaded is not None and loaded.is_warm()


def compiler() -> str | None:
    """Path of the C++ compiler that the fused rotation on CPUs uses, or None."""
    return rotary_cpu.compiler()


def _apply(
    xs: list[Tensor], cos: Tensor, sin: Tensor, layout: Layout, fused: bool | None, inplace: bool
) -> Sequence[Tensor]:
    for x in xs:
        _check(x, cos, sin, layout)
    plain = all(map(_is_plain, (*xs, cos, sin)))  # subclasses see only operations
    if not plain or traced() or any(map(_differentiated, (cos, sin))):
        if inplace and any(map(_differentiated, (cos, sin))):
            raise ValueError("inplace = True is not legal for tables with a gradient; legal: False")
        pure = [_pure(x, cos, sin, layout) for x in xs]
        return [x.copy_(new) for x, new in zip(xs, pure, strict=True)] if inplace else pure
    transformed = torch._C._are_functorch_transforms_active() or any(map(_has_tangent, xs))
    if inplace:
        for x in xs:
            _check_inplace(x, transformed)
        if len(xs) == 2 and xs[0].data_ptr() == xs[1].data_ptr() and xs[0].numel():
            raise ValueError(
                "inplace = True is not legal for a k that is q, which would be rotated twice; legal: False"
            )
        _run(xs, xs, cos, sin, layout, False, fused)
        return xs
    if transformed or (torch.is_grad_enabled() and any(x.requires_grad for x in xs)):
        made: tuple[Tensor, ...] = _Rotation.apply(cos, sin, layout, fused, *xs)
        return made
    return _rotated(xs, cos, sin, layout, False, fused)


def _check(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> None:
    if layout not in get_args(Layout):
        raise ValueError(f"layout = {layout!r} is not legal; legal: half, interleaved")
    if not x.dim() or not cos.dim():
        raise ValueError(f"x {tuple(x.shape)} and cos {tuple(cos.shape)}; legal: [..., D] and [..., D/2]")
    if not x.is_floating_point():
        raise ValueError(f"x has dtype {x.dtype}; a floating-point dtype is legal")
    if cos.shape != sin.shape or not _broadcasts(cos.shape[:-1], x.shape[:-1]):
        raise ValueError(
            f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} do not fit x {tuple(x.shape)}; legal: both alike and "
            f"broadcastable to {(*x.shape[:-1], x.shape[-1] // 2)}"
        )
    if 2 * cos.shape[-1] > x.shape[-1]:
        raise ValueError(
            f"cos and sin hold {cos.shape[-1]} pairs; x has {x.shape[-1]} features, {x.shape[-1] // 2} pairs; legal: "
            "one number a pair (transformers' tables have each twice: take the first half)"
        )


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    return len(shape) <= len(target) and all(s in (1, t) for s, t in zip(shape[::-1], target[::-1], strict=False))


def _check_inplace(x: Tensor, transformed: bool) -> None:
    if transformed or (torch.is_grad_enabled() and x.requires_grad):
        raise ValueError("inplace = True is not legal where a gradient or a transform of x is wanted; legal: False")
    if _overlaps(x):
        raise ValueError("inplace = True is not legal for an x whose numbers share memory; legal: False")


def _overlaps(x: Tensor) -> bool:
    """Whether numbers of x may share memory: by growing strides, each dimension must step past those before it."""
    reach = 0
    for stride, size in sorted((st, n) for st, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _is_plain(x: Tensor) -> bool:
    return type(x) in (Tensor, torch.nn.Parameter)


def traced() -> bool:
    """Whether somebody records the operations: a kernel called by its address would be missing from the record."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return proxies is not None and proxies.get_proxy_mode() is not None


def is_watched(x: Tensor) -> bool:
    """Whether what is made of x must not be kept for others: it is traced, transformed, faked or has a tangent."""
    faked = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return traced() or faked or torch._C._are_functorch_transforms_active() or not _is_plain(x) or _has_tangent(x)


def _differentiated(table: Tensor) -> bool:
    return table.requires_grad or _has_tangent(table)


def _has_tangent(x: Tensor) -> bool:
    return forward_ad.unpack_dual(x).tangent is not None


class _Rotation(torch.autograd.Function):
    """The rotation of all xs, and back of their gradients: nothing but the tables is kept in between."""

    @staticmethod
    def forward(cos: Tensor, sin: Tensor, layout: Layout, fused: bool | None, *xs: Tensor) -> tuple[Tensor, ...]:
        return tuple(_rotated(xs, cos, sin, layout, False, fused))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        cos, sin, ctx.layout, ctx.fused, *_ = inputs
        ctx.save_for_backward(cos, sin)
        ctx.save_for_forward(cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient may want a gradient itself
            return None, None, None, None, *_Rotation.apply(cos, -sin, ctx.layout, ctx.fused, *gradients)
        return None, None, None, None, *_rotated(gradients, cos, sin, ctx.layout, True, ctx.fused)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        made: tuple[Tensor, ...] = _Rotation.apply(*ctx.saved_tensors, ctx.layout, ctx.fused, *tangents[4:])
        return made

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], cos: Tensor, sin: Tensor, layout: Layout, fused: bool | None,
        *xs: Tensor,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:  # fmt: skip
        front = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(xs, in_dims[4:], strict=True)
        ]
        tables = []
        for table, dim in ((cos, in_dims[0]), (sin, in_dims[1])):
            moved = table if dim is None else table.movedim(dim, 0)
            tables.append(moved if dim is None else moved[(slice(None), *[None] * (front[0].dim() - moved.dim()))])
        tables = torch.broadcast_tensors(*tables)  # where one of them is the same for all
        return _Rotation.apply(*tables, layout, fused, *front), (0,) * len(xs)


def _rotated(
    xs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout, backwards: bool, fused: bool | None
) -> list[Tensor]:
    outs = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in xs]
    _run(xs, outs, cos, sin, layout, backwards, fused)
    return outs


_warned: set[str] = set()


def _run(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout, backwards: bool,
    fused: bool | None,
) -> None:  # fmt: skip
    """Rotate xs into outs by the fused kernel where it may be used, else eagerly. An out may be its x."""
    if fused is not False and all(x.numel() for x in xs):
        kind = xs[0].device.type
        try:
            if kind == "cpu" and _cpu(xs, outs, cos, sin, layout, backwards, fused):
                return
            if kind == "cuda" and _cuda(xs, outs, cos, sin, layout, backwards, fused):
                return
        except (OSError, RuntimeError) as error:  # no compiler, or one that fails: the eager result is the same
            if kind not in _warned:
                _warned.add(kind)
                warnings.warn(f"the fused rotation is not available: {error}", RuntimeWarning, stacklevel=2)
    for x, out in zip(xs, outs, strict=True):
        _eager(x, out, cos, sin, layout, backwards)


def _cpu(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout, backwards: bool,
    fused: bool | None,
) -> bool:  # fmt: skip
    if not (fused or rotary_cpu.warm()) or not all(map(rotary_cpu.fits, (*xs, *outs))):
        return False
    if any(x.dtype != xs[0].dtype for x in xs) or not all(map(rotary_cpu.is_readable, (*xs, cos, sin))):
        return False
    rotary_cpu.load()
    wide = wide_dtype(xs[0].dtype)
    rotary_cpu.rotate(xs, outs, cos.to(wide), sin.to(wide), layout, backwards)
    _written(xs, outs)
    return True


def _cuda(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout, backwards: bool,
    fused: bool | None,
) -> bool:  # fmt: skip
    if not (fused or "posenc_core.rotary_triton" in sys.modules):
        return False
    tables = [_of_heads(table, xs[0]) for table in (cos, sin)]
    if tables[0] is None or tables[1] is None or any(x.dim() > 4 or x.dtype != xs[0].dtype for x in xs):
        return False
    from posenc_core import rotary_triton

    if not rotary_triton.is_available():
        raise RuntimeError("triton is not installed")
    (q, *k), (q_out, *k_out) = ([x[(None,) * (4 - x.dim())] for x in each] for each in (xs, outs))
    if any((x.shape[0], *x.shape[2:]) != (q.shape[0], *q.shape[2:]) for x in k):
        return False
    done = rotary_triton.rotate(
        q, k[0] if k else None, tables[0], tables[1], layout, -1.0 if backwards else 1.0, q_out,
        k_out[0] if k else None, may_compile=bool(fused),
    )  # fmt: skip
    if done:
        _written(xs, outs)
    return done


def _of_heads(table: Tensor, x: Tensor) -> Tensor | None:
    """A table as [B or 1, 1, L, R/2], the heads of x [..., L, D] sharing it; None where they have one each."""
    table = table[(None,) * (4 - table.dim())] if table.dim() <= 4 else table
    if table.dim() > 4 or table.shape[1] != 1 or x.dim() < 2:
        return None
    return table.expand(-1, -1, x.shape[-2], -1)


def _written(xs: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
    """Tell autograd of a kernel that has written to its inputs, which a kernel itself does not."""
    for x, out in zip(xs, outs, strict=True):
        if out is x and not x.is_inference():
            increment_version(x)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """What numbers of a dtype are computed in: float64 in itself, all others in float32."""
    return dtype if dtype == torch.float64 else torch.float32


def _eager(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, layout: Layout, backwards: bool) -> None:
    """Rotate x into `out` by PyTorch's own kernels, with as few passes as they allow."""
    rotary_dim = 2 * cos.shape[-1]
    if rotary_dim < x.shape[-1]:
        if out is not x:
            out[..., rotary_dim:] = x[..., rotary_dim:]
        x, out = x[..., :rotary_dim], (x if out is x else out)[..., :rotary_dim]
    wide = wide_dtype(x.dtype)
    cos, sin = cos.to(wide), (-sin if backwards else sin).to(wide)
    if layout == "half":
        turn: Callable[..., None] = _turn_halves
        tables = [torch.cat([cos, cos], dim=-1), sin]
    else:
        turn = _turn_numbers
        tables = [torch.complex(cos, sin)]
    several = layout == "half" or x.dtype != wide  # passes
    for part, to, *own in _heads([x, out, *tables]) if several else [[x, out, *tables]]:
        if x.dtype == wide:
            turn(part, to, *own)
        else:
            turned = part.to(wide)
            turn(turned, turned, *own)
            to.copy_(turned)


def _heads(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """x, its out and tables as they are; of long sequences on a CPU a head at a time, which stays in the cache."""
    x = tensors[0]
    if x.device.type != "cpu" or x.dim() < 3 or x.shape[-2] * x.shape[-1] < PART:
        yield tensors
        return
    for h in range(x.shape[-3]):
        yield [t.select(-3, h if t.shape[-3] > 1 else 0) if t.dim() > 2 else t for t in tensors]


def _turn_halves(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
    """cos [..., R], the same for both halves; sin [..., R/2]."""
    (a, b), (to_a, to_b) = x.chunk(2, dim=-1), out.chunk(2, dim=-1)
    if x.data_ptr() == out.data_ptr():
        of_a, of_b = cos.chunk(2, dim=-1)
        new_a = torch.mul(a, of_a).addcmul_(b, sin, value=-1)
        to_b.mul_(of_b).addcmul_(a, sin)
        to_a.copy_(new_a)
    else:  # whole rows first: halves are shorter runs of memory, and slower
        torch.mul(x, cos, out=out)
        to_a.addcmul_(b, sin, value=-1)
        to_b.addcmul_(a, sin)


def _turn_numbers(x: Tensor, out: Tensor, turns: Tensor) -> None:
    """Each pair is a complex number, and its rotation one multiplication."""
    if _pairs_are_numbers(x) and _pairs_are_numbers(out):
        torch.mul(_complex(x), turns, out=_complex(out))
    else:
        out.copy_(torch.view_as_real(_complex(x.clone(memory_format=torch.contiguous_format)) * turns).flatten(-2))


def _complex(x: Tensor) -> Tensor:
    """x [..., R] as complex numbers [..., R/2] in the same memory."""
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _pairs_are_numbers(x: Tensor) -> bool:
    return x.stride(-1) == 1 and not x.storage_offset() % 2 and not any(stride % 2 for stride in x.stride()[:-1])


def _pure(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """The formula, in operations that trace and differentiate also in the tables."""
    rotary_dim, wide = 2 * cos.shape[-1], wide_dtype(x.dtype)
    turned, cos, sin = x[..., :rotary_dim].to(wide), cos.to(wide), sin.to(wide)
    if layout == "half":
        a, b = turned.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    else:
        a, b = turned.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    turned = turned.to(x.dtype)
    return turned if rotary_dim == x.shape[-1] else torch.cat([turned, x[..., rotary_dim:]], dim=-1)


def interleaved_to_half(dim: int) -> Tensor:
    """Index [dim] with x_half = x_interleaved[..., index]: evens first, then odds. ValueError for an odd dim."""
    if dim < 2 or dim % 2:
        raise ValueError(f"dim = {dim} is not legal; legal: an even number from 2")
    return torch.arange(dim).view(-1, 2).T.reshape(-1)
