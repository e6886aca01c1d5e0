"""What the benchmark times: PARTS makes, for every `what`, the calls of a case, and how far off their results are.

q, k, v are normal numbers [B, H, L, D], contiguous for this library and for transformers, else as a peer wants them
(benchmark_peers); in a model they come as views of what a projection gave, [B, L, H, D] transposed, and so they do in a
layer. On CUDA several copies of them take turns, together twice the L2 cache or more, so that no call finds its inputs
there; a CPU's caches are left to do what they do. With a direction backward, the call is the function and
torch.autograd.grad for a given gradient of its output, of x or of q, k and v; weights have no gradient.

layer: fast; reference has the scores in plain sight.
attention: fast and reference as in a layer; bias adds a bias [H, L, L] that is made in every call, as most models do,
bias_cached one that is kept, both by scaled_dot_product_attention; flex_attention is PyTorch's compiler's, flash_attn
has ALiBi's slopes in its kernel.
rotation: fast is one compiled kernel, in_place the same over q and k themselves, eager PyTorch's own kernels, reference
the formula as it is written; copy is q.clone(), k.clone() (backward: of the gradients too), into fresh memory, which
the system may have to zero before, copy_given is a.copy_(q), b.copy_(k), into memory that is there; then the peers.
in_place is held against copy_given, all others against copy.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils import skip_init
from torch.utils._pytree import tree_leaves

from posenc_core import rotary
from posenc_core.attention import attention
from posenc_core.benchmark_cases import DTYPES, Case, Config, What
from posenc_core.benchmark_exact import (
    attention_error,
    attention_rows,
    layer_error,
    layer_rows,
    rotation_error,
)
from posenc_core.benchmark_machine import cpu_cache_bytes, l2_bytes
from posenc_core.benchmark_peers import PEERS, Given, Operation, Skip, flash_attention, heads_first
from posenc_core.benchmark_sizes import hooks
from posenc_core.benchmark_text import bytes_text
from posenc_core.frequencies import rope_frequencies
from posenc_core.linear_bias import alibi_flex_attention, distances
from posenc_core.rotary import apply_rotary_qk
from posenc_core.schemes.base import PositionalEncoding, VectorEncoding
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import Rope

Tensors = tuple[Tensor, ...]


class Part(NamedTuple):
    """A call that is timed on its own, how often it counts in the sum, and what tells its error if there is one."""

    weight: float
    call: Callable[[], object]
    check: Callable[[], float] | None = None


class Made(NamedTuple):
    """The calls of a case, the bytes that they must move, what is to be said of them, and the bytes kept for them."""

    parts: list[Part]
    bytes_moved: int | None = None
    note: str = ""
    kept: int = 0


class Shared:
    """What the cases of one group have in common, made when it is first asked for.

    Numbers are drawn on the CPU, so that every device and dtype gets the same.
    """

    def __init__(self, case: Case, config: Config) -> None:
        self.config, self.length = config, case.length
        self.device, self.dtype = torch.device(case.device), DTYPES[case.dtype]
        # not an inference tensor: those have no version counter, so that nothing may be kept for them
        self.positions = torch.arange(case.length, device=self.device)
        pair = 2 * config.batch * case.length * config.d_model * self.dtype.itemsize
        self.copies = max(1, math.ceil(2 * l2_bytes(case.device) / pair))
        self._drawn: dict[object, Any] = {}

    def qkv(self, index: int) -> list[Tensor]:
        """q, k, v for 0, 1, 2, and gradients for 3, 4: all copies, each [B, H, L, D]."""
        c = self.config
        return self._copies(index, (c.batch, c.heads, self.length, c.d_head))

    def x(self, index: int) -> list[Tensor]:
        """A layer's input for 5, its output's gradient for 6: all copies, each [B, L, d_model]."""
        return self._copies(index, (self.config.batch, self.length, self.config.d_model))

    @property
    def layer(self) -> Layer:
        """The layer, without gradients."""
        if "layer" not in self._drawn:
            layer = Layer(self.config.heads, self.config.d_model, self._generator(7))
            self._drawn["layer"] = layer.requires_grad_(False).to(self.device, self.dtype)
        return cast(Layer, self._drawn["layer"])

    def forget_compiled(self) -> None:
        """Have PyTorch's compiler start anew, once a group: after eight kinds of inputs it compiles no more."""
        if "forgotten" not in self._drawn:
            self._drawn["forgotten"] = True
            torch.compiler.reset()

    def _copies(self, index: int, shape: tuple[int, ...]) -> list[Tensor]:
        if index not in self._drawn:
            first = torch.randn(shape, generator=self._generator(index)).to(self.device, self.dtype)
            self._drawn[index] = [first, *(first.clone() for _ in range(self.copies - 1))]
        return cast(list[Tensor], self._drawn[index])

    def _generator(self, index: int) -> torch.Generator:
        return torch.Generator().manual_seed(self.config.seed + index)


class Layer(nn.Module):
    """Attention as in a transformer layer: one projection to q, k and v, attention, one projection back."""

    def __init__(self, heads: int, d_model: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        # skip_init: the default draws from the global generator, which a training in another thread may be using
        self.qkv = skip_init(nn.Linear, d_model, 3 * d_model, bias=False)
        self.out = skip_init(nn.Linear, d_model, d_model, bias=False)
        for linear in (self.qkv, self.out):
            nn.init.normal_(linear.weight, std=d_model**-0.5, generator=generator)

    def forward(self, x: Tensor, encoding: PositionalEncoding, positions: Tensor, reference: bool = False) -> Tensor:
        """x [B, L, d_model] -> the same shape."""
        q, k, v = self.split(self.qkv(x))
        y, _ = attention(q, k, v, encoding, positions, positions, need_weights=reference)
        return cast(Tensor, self.out(y.transpose(1, 2).flatten(2)))

    def split(self, projected: Tensor) -> Tensors:
        """q, k, v [B, H, L, D] as views of [B, L, 3·d_model]."""
        return tuple(t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in projected.chunk(3, -1))


# ------------------------------------------------------------------ calls, forward and backward


def gradients(function: Callable[..., Tensors], inputs: Sequence[Tensor], given: Sequence[Tensor]) -> Tensors:
    """Those of the inputs, for given ones of the function's outputs. Nothing is left in .grad."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        return torch.autograd.grad(function(*leaves), leaves, list(given))


def in_turn(
    operation: Operation, inputs: Sequence[Sequence[Tensor]], given: Sequence[Sequence[Tensor]] | None
) -> Callable[[], object]:
    """A call of the operation, or its gradients for the given ones of its outputs; each takes the next copy.

    inputs and given: for each tensor all copies.
    """

    def own(tensors: Sequence[Sequence[Tensor]]) -> list[Tensors]:
        copied = torch.clone if operation.overwrites else heads_first
        return [tuple(operation.prepare(copied(t)) for t in one) for one in zip(*tensors, strict=True)]

    if given is None:
        turn = cycle(own(inputs))
        return lambda: operation.function(*next(turn))
    turns = cycle(list(zip(own(inputs), own(given), strict=True)))
    return lambda: gradients(operation.function, *next(turns))


def result(operation: Operation, inputs: Sequence[Tensor], given: Sequence[Tensor] | None) -> Tensors:
    """What one such call gives, [B, H, L, D] each; the tensors stay what they are."""
    prepared = [operation.prepare(x.clone()) for x in inputs]
    if given is None:
        out = operation.function(*prepared)
    else:
        out = gradients(operation.function, prepared, [operation.prepare(g.clone()) for g in given])
    return tuple(map(operation.finish, out))


def only(gradient: Tensor, rows: Tensor) -> Tensor:
    """A gradient [B, ..., L, D] that is zero but in these rows of the first sequence."""
    out, rows = torch.zeros_like(gradient), rows.to(gradient.device)
    out[0].index_copy_(-2, rows, gradient[0].index_select(-2, rows))
    return out


def on_cpu(encoding: PositionalEncoding, device: torch.device) -> PositionalEncoding:
    """The encoding, or a copy of it on the CPU."""
    return encoding if device.type == "cpu" else copy.deepcopy(encoding).cpu()


def warm(encoding: PositionalEncoding, shared: Shared, q: Tensor, k: Tensor) -> str:
    """Compile the fused rotation for q, k [B, H, L, D] as they will come; a note where that cannot be done."""
    ropes = [e for e in distinct(encoding) if isinstance(e, Rope)]
    if not ropes:
        return ""
    if not rotary.warm_up(shared.device):
        return "without the fused rotation, which cannot be compiled here"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for rope in ropes:  # on CUDA there is a kernel for each kind of tensor, by its strides too
            apply_rotary_qk(q, k, *rope.tables(shared.positions), rope.spec.layout, fused=True)
    return ""


def distinct(encoding: PositionalEncoding) -> dict[PositionalEncoding, int]:
    """The encodings of the layers, and how many layers each has; one that is no hybrid alone."""
    counts: dict[PositionalEncoding, int] = {}
    for each in [encoding] if encoding.layers is None else encoding.layers:
        counts[each] = counts.get(each, 0) + 1
    return counts


# ------------------------------------------------------------------ layer


def _layer_parts(encoding: PositionalEncoding, shared: Shared, case: Case) -> Made:
    """Projection, encoding, attention, projection. For a hybrid the mean over its layers, each distinct one timed."""
    layer, positions, reference = shared.layer, shared.positions, case.implementation == "reference"
    x = shared.x(5)[0]
    note = "" if reference else warm(encoding, shared, *layer.split(x.repeat(1, 1, 3))[:2])
    counts = distinct(encoding)
    n = sum(counts.values())
    given = [shared.x(6)] if case.backward else None
    hybrid = encoding.layers is not None

    def part(each: PositionalEncoding, count: int) -> Part:
        def forward(x: Tensor) -> Tensors:
            return (layer(x if hybrid else each.embed(x, positions), each, positions, reference),)

        def check() -> float:
            c = shared.config
            gradient = only(shared.x(6)[0], layer_rows(c.d_model, c.heads, case.length)[1]) if case.backward else None
            (got,) = result(Operation(forward), [x], None if gradient is None else [gradient])
            weights = layer.qkv.weight, layer.out.weight
            return layer_error(on_cpu(each, shared.device), not hybrid, weights, c.heads, x, got, gradient)

        return Part(count / n, in_turn(Operation(forward), [shared.x(5)], given), check)

    parts = [part(*item) for item in counts.items()]
    if hybrid and "embed" in hooks(case.spec):
        parts.append(Part(1 / n, in_turn(Operation(lambda x: (encoding.embed(x, positions),)), [shared.x(5)], given)))
    moved = (4 if case.backward else 2) * x.nbytes + layer.qkv.weight.nbytes + layer.out.weight.nbytes
    return Made(parts, moved, note)


# ------------------------------------------------------------------ attention


def _attention_parts(encoding: PositionalEncoding, shared: Shared, case: Case) -> Made:
    inputs = [shared.qkv(i) for i in range(3)]
    q, k = inputs[0][0], inputs[1][0]
    note = warm(encoding, shared, q, k) if case.implementation == "fast" else ""
    given = [shared.qkv(3)] if case.backward else None
    counts = distinct(encoding)
    n = sum(counts.values())
    cached = case.implementation == "bias_cached" and case.spec.hook == "bias"
    kept = _bias(encoding, shared.positions, q) if cached else None

    def part(each: PositionalEncoding, count: int) -> Part:
        operation = _attention(each, shared, case, kept)

        def check() -> float:
            c, qkv = shared.config, [copies[0] for copies in inputs]
            gradient = only(shared.qkv(3)[0], attention_rows(c.heads, case.length)) if case.backward else None
            got = result(operation, qkv, None if gradient is None else [gradient])
            return attention_error(on_cpu(each, shared.device), qkv, got, gradient)

        return Part(count / n, in_turn(operation, inputs, given), check)

    moved = (8 if case.backward else 4) * q.nbytes
    held = 0 if kept is None else kept.untyped_storage().nbytes()
    return Made([part(*item) for item in counts.items()], moved, note, held)


def _attention(encoding: PositionalEncoding, shared: Shared, case: Case, kept: Tensor | None) -> Operation:
    name, positions = case.implementation, shared.positions
    if name in ("fast", "reference"):
        reference = name == "reference"
        return Operation(
            lambda q, k, v: (attention(q, k, v, encoding, positions, positions, need_weights=reference)[0],)
        )
    if name == "flash_attn" and case.spec == NoneSpec():
        return flash_attention(None, shared.dtype, case.device)
    if case.spec.hook != "bias":
        raise Skip("this scheme adds no bias to the scores")
    if name in ("bias", "bias_cached"):
        return Operation(lambda q, k, v: _with_bias(q, k, v, _bias(encoding, positions, q) if kept is None else kept))
    slopes = encoding.bias_slopes()
    if slopes is None:
        raise Skip("this scheme's bias is not linear in the distance")
    slopes = slopes.to(shared.device, torch.float32)
    if name == "flash_attn":
        return flash_attention(slopes, shared.dtype, case.device)
    if case.backward and case.device == "cpu":  # asking for it would leave the forward pass uncompiled too
        raise Skip("PyTorch's flex_attention has no gradient on a CPU")
    shared.forget_compiled()
    return Operation(lambda q, k, v: (alibi_flex_attention(q, k, v, slopes),))


def _bias(encoding: PositionalEncoding, positions: Tensor, q: Tensor) -> Tensor:
    """[1, H, L, L] in q's dtype, -inf where a key comes later."""
    bias = encoding.bias(positions, positions, q.detach())
    assert bias is not None
    if getattr(encoding.spec, "variant", "") != "causal":
        bias = bias.masked_fill(positions > positions[:, None], -torch.inf)
    return bias[None]


def _with_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensors:
    return (scaled_dot_product_attention(q, k, v, attn_mask=bias),)


# ------------------------------------------------------------------ rotation


def _rotation_parts(encoding: PositionalEncoding, shared: Shared, case: Case) -> Made:
    if not isinstance(encoding, Rope):
        raise Skip("this scheme rotates nothing by itself" if encoding.layers else "this scheme rotates nothing")
    inputs = [shared.qkv(i) for i in (0, 1)]
    given = [shared.qkv(i) for i in (3, 4)] if case.backward else None
    moved = (2 if case.backward else 1) * 4 * inputs[0][0].nbytes
    if case.implementation in ("copy", "copy_given"):
        call = _copying([*inputs, *(given or [])], given_memory=case.implementation == "copy_given")
        return Made([Part(1.0, call)], moved, _cached_note(shared, moved))
    cos, sin = encoding.tables(shared.positions)
    inv_freq = rope_frequencies(encoding.spec, case.length if encoding.spec.by_length else None).inv_freq
    tables = Given(encoding.spec, cos, sin, inv_freq, shared.config.d_head, shared.dtype)
    operation, note = _rotation(case, tables, encoding, shared)
    timed = operation
    if operation.overwrites and tables.scaled:  # repeated, the factor would let the numbers grow past all bounds
        timed, _ = _rotation(case, tables._replace(cos=cos / cos[0, 0], sin=sin / cos[0, 0]), encoding, shared)

    def check() -> float:
        q_k = [copies[0] for copies in inputs]
        gradient = None if given is None else [copies[0] for copies in given]
        got = result(operation, q_k, gradient)
        return rotation_error(encoding, gradient or q_k, got, case.backward)

    if operation.overwrites:  # the features that do not rotate stay where they are
        moved = moved * 2 * cos.shape[-1] // shared.config.d_head
    moved += (2 if case.backward else 1) * (cos.nbytes + sin.nbytes)
    return Made([Part(1.0, in_turn(timed, inputs, given), check)], moved, note)


def _rotation(case: Case, given: Given, encoding: Rope, shared: Shared) -> tuple[Operation, str]:
    name, cos, sin, layout = case.implementation, given.cos, given.sin, encoding.spec.layout
    if name in PEERS:
        return PEERS[name](given), ""
    if name == "reference":
        return Operation(lambda *xs: tuple(rotary._pure(x, cos, sin, layout) for x in xs)), ""
    if name == "eager":
        return Operation(lambda q, k: apply_rotary_qk(q, k, cos, sin, layout, fused=False)), ""
    if name == "in_place" and case.backward:
        raise Skip("a rotation in place has no gradient")
    note = warm(encoding, shared, shared.qkv(0)[0], shared.qkv(1)[0])
    inplace = name == "in_place"
    rotate = partial(apply_rotary_qk, cos=cos, sin=sin, layout=layout, fused=not note, inplace=inplace)
    return Operation(lambda q, k: rotate(q, k), overwrites=inplace), note


def _copying(tensors: Sequence[Sequence[Tensor]], given_memory: bool) -> Callable[[], object]:
    """A call that copies each of the tensors, of which all copies take turns, as does the memory where it is given."""
    if not given_memory:
        turn = cycle(list(zip(*tensors, strict=True)))
        return lambda: [x.clone() for x in next(turn)]
    turns = cycle([[(x.clone(), x) for x in one] for one in zip(*tensors, strict=True)])
    return lambda: [to.copy_(x) for to, x in next(turns)]


def _cached_note(shared: Shared, moved: int) -> str:
    cache = cpu_cache_bytes() if shared.device.type == "cpu" else 0
    return f"all of it fits in this CPU's last cache ({bytes_text(cache)})" if moved <= cache else ""


# ------------------------------------------------------------------ tables


def _built_parts(encoding: PositionalEncoding, shared: Shared, case: Case) -> Made:
    """Building anew: every call gets a new tensor object of the same positions."""

    def build_anew(make: Make) -> object:
        return make(shared.positions.detach())

    parts, moved = [], 0
    for make in _makers(encoding, shared, kept=False):
        call = partial(build_anew, make)
        made = call()
        if _same(made, call()):
            raise Skip("what is built is kept for equal positions, so building cannot be timed")
        moved += sum(t.nbytes for t in tree_leaves(made) if isinstance(t, Tensor))
        parts.append(Part(1.0, call))
    return Made(parts, moved)


def _cached_parts(encoding: PositionalEncoding, shared: Shared, case: Case) -> Made:
    parts = []
    for make in _makers(encoding, shared, kept=True):
        if not _same(make(shared.positions), make(shared.positions)):
            raise Skip("nothing is kept between two calls: every call builds it anew")
        parts.append(Part(1.0, partial(make, shared.positions)))
    return Made(parts)


Make = Callable[[Tensor], object]


def _makers(encoding: PositionalEncoding, shared: Shared, kept: bool) -> list[Make]:
    """What the distinct layers of an encoding need for positions [L], as functions of the positions."""
    makers: list[Make] = []
    q = torch.empty(1, 1, 1, 1, dtype=shared.dtype, device=shared.device)  # a bias reads its dtype and device

    def vectors(each: VectorEncoding, positions: Tensor) -> Tensor:
        return each.vectors(positions).to(shared.dtype).to(positions.device)

    def bias(each: PositionalEncoding, positions: Tensor) -> Tensor | None:
        by_distance = each.bias_by_distance(distances(shared.length, shared.length, 0, q))
        return each.bias(positions, positions, q) if by_distance is None else by_distance.to(shared.dtype)

    for each in distinct(encoding):
        if isinstance(each, Rope):
            makers.append(each.tables if kept else each.build_tables)
        elif isinstance(each, VectorEncoding):
            makers.append(partial(vectors, each))
        elif each.spec.hook == "bias":
            makers.append(partial(bias, each))
    if not makers:
        raise Skip("this scheme needs no tables")
    return makers


def _same(a: Any, b: Any) -> bool:
    return all(x is y for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True))


Parts = Callable[[PositionalEncoding, Shared, Case], Made]
PARTS: dict[What, Parts] = {
    "layer": _layer_parts, "attention": _attention_parts, "rotation": _rotation_parts, "tables_built": _built_parts,
    "tables_cached": _cached_parts,
}  # fmt: skip
