"""Rotation of feature pairs, for both pair layouts (Su et al. 2021, arXiv:2104.09864).

Phases are products of positions and frequencies in float64, reduced by cos and sin there, and only then cast: a
float32 product is off by a third of a turn at position ten million.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

Layout = Literal["half", "interleaved"]


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
    """cos and sin of the phases times `attention_factor`, each [..., L, R/2] in `dtype` on the positions' device."""
    angle = phases(positions, inv_freq)
    cos, sin = angle.cos() * attention_factor, angle.sin() * attention_factor
    return cos.to(dtype).to(positions.device), sin.to(dtype).to(positions.device)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout = "half", fused: bool | None = None) -> Tensor:
    """Rotate the first R features of x [..., L, D]; the other D - R stay bit-identical. Returns x's dtype.

    cos, sin: [L, R/2] or broadcastable to [..., L, R/2]. layout "half" pairs feature i with i + R/2 (GPT-NeoX, Llama
    in transformers), "interleaved" pairs 2i with 2i + 1 (the paper, GPT-J). Half precision is rotated in float32.
    fused: True compiles the rotation on its first use (falls back to eager without a C++ compiler), False never uses
    the compiled one, None uses it where it is already warm. ValueError for a layout or sizes that do not fit.
    """
    if layout not in _ROTATE:
        raise ValueError(f"layout = {layout!r} is not legal; legal: half, interleaved")
    if not x.is_floating_point():
        raise ValueError(f"x has dtype {x.dtype}; a floating-point dtype is legal")
    if cos.shape != sin.shape or not _broadcasts(cos.shape[:-1], x.shape[:-1]):
        raise ValueError(
            f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} do not fit x {tuple(x.shape)}; legal: both alike and "
            f"broadcastable to {(*x.shape[:-1], x.shape[-1] // 2)}"
        )
    rotary_dim = 2 * cos.shape[-1]
    if rotary_dim > x.shape[-1]:
        raise ValueError(
            f"cos and sin hold {cos.shape[-1]} pairs; x has {x.shape[-1]} features, {x.shape[-1] // 2} pairs"
        )
    rotate = _choose(x, cos, sin, layout, fused)
    if rotary_dim == x.shape[-1]:
        return rotate(x, cos, sin)
    return torch.cat([rotate(x[..., :rotary_dim], cos, sin), x[..., rotary_dim:]], dim=-1)


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    return len(shape) <= len(target) and all(s in (1, t) for s, t in zip(shape[::-1], target[::-1], strict=False))


def _compute_dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype == torch.float64 else torch.float32


class _Rotation(torch.autograd.Function):
    """The rotation of x, and back of its gradient: nothing but the tables is kept in between."""

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
        return _into_new(x, cos, sin, layout)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, cos, sin, ctx.layout = inputs
        ctx.save_for_backward(cos, sin)
        ctx.save_for_forward(cos, sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        rotate = _Rotation.apply if torch.is_grad_enabled() else _into_new  # the gradient may want a gradient itself
        return rotate(gradient, cos, -sin, ctx.layout), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _Rotation.apply(tangent, *ctx.saved_tensors, ctx.layout)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, cos: Tensor, sin: Tensor, layout: Layout
    ) -> tuple[Tensor, int]:
        x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        tables = []
        for table, dim in ((cos, in_dims[1]), (sin, in_dims[2])):
            front = table if dim is None else table.movedim(dim, 0)
            tables.append(front if dim is None else front[(slice(None), *[None] * (x.dim() - front.dim()))])
        return _Rotation.apply(x, *tables, layout), 0


def _into_new(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """The rotation without a gradient, with two passes fewer."""
    if x.dtype != _compute_dtype(x):
        return _ROTATE[layout](x, cos, sin)
    cos, sin, out = cos.to(x.dtype), sin.to(x.dtype), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    (a, b), (to_a, to_b) = _pairs(x, layout), _pairs(out, layout)
    torch.mul(a, cos, out=to_a).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=to_b).addcmul_(a, sin)
    return out


def _pairs(x: Tensor, layout: Layout) -> tuple[Tensor, ...]:
    return x.chunk(2, dim=-1) if layout == "half" else x.unflatten(-1, (-1, 2)).unbind(-1)


def _rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.to(_compute_dtype(x))
    a, b = wide.chunk(2, dim=-1)
    cos, sin = cos.to(wide.dtype), sin.to(wide.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def _rotate_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.to(_compute_dtype(x)).unflatten(-1, (-1, 2))
    a, b = wide.unbind(-1)
    cos, sin = cos.to(wide.dtype), sin.to(wide.dtype)
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x.dtype)


def _apply(layout: str, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _Rotation.apply(x, cos, sin, layout)


Rotate = Callable[[Tensor, Tensor, Tensor], Tensor]
_ROTATE: dict[str, Rotate] = {"half": _rotate_half, "interleaved": _rotate_interleaved}
_EAGER: dict[str, Rotate] = {name: partial(_apply, name) for name in _ROTATE}
_COMPILED: dict[tuple[object, ...], Rotate] = {}
_COMPILING = threading.Lock()


def _choose(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, fused: bool | None) -> Rotate:
    if torch.compiler.is_compiling() or any(map(_differentiated, (cos, sin))):
        return _ROTATE[layout]
    if fused is False:
        return _EAGER[layout]
    key = (layout, x.dtype, x.device, x.dim(), x.is_contiguous(), x.requires_grad, torch.is_grad_enabled())
    if fused is None:
        return _COMPILED.get(key, _EAGER[layout])
    with _COMPILING:
        if key not in _COMPILED:
            _COMPILED[key] = _compile(layout)
    return _COMPILED[key]


def _differentiated(table: Tensor) -> bool:
    return table.requires_grad or forward_ad.unpack_dual(table).tangent is not None


def _compile(layout: Layout) -> Rotate:
    eager = _EAGER[layout]
    compiled = torch.compile(_ROTATE[layout], dynamic=True)

    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        nonlocal compiled
        try:
            return compiled(x, cos, sin)
        except Exception as error:  # no C++ compiler, or a backend that cannot compile: the eager result is the same
            if compiled is not eager:
                warnings.warn(f"the compiled rotation is not available: {error}", RuntimeWarning, stacklevel=2)
            compiled = eager
            return eager(x, cos, sin)

    return rotate


def interleaved_to_half(dim: int) -> Tensor:
    """Index [dim] with x_half = x_interleaved[..., index]: evens first, then odds. ValueError for an odd dim."""
    if dim < 2 or dim % 2:
        raise ValueError(f"dim = {dim} is not legal; legal: an even number from 2")
    return torch.arange(dim).view(-1, 2).T.reshape(-1)
