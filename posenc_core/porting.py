"""Where ports of rotary models go wrong: pair layouts, number formats, and two specs against each other.

Layouts are permutations of the rows of W_q and W_k; a score is the same in both once queries and keys are permuted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posenc_core.attention import attention_scores
from posenc_core.frequencies import attention_scales, rope_frequencies
from posenc_core.rotary import Layout
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import SpecError

CHUNK = 2**20  # cells of an array that a search makes at once

# ------------------------------------------------------------------ layouts


def pair_features(spec: RopeSpec) -> Tensor:
    """The two features of every pair, int64 [R/2, 2]; pairs of p-RoPE whose frequency is zero are among them."""
    pairs = torch.arange(spec.rotary_dim // 2)
    if spec.layout == "half":
        return torch.stack([pairs, pairs + spec.rotary_dim // 2], dim=1)
    return torch.stack([2 * pairs, 2 * pairs + 1], dim=1)


def layout_permutation(d_head: int, rotary_dim: int, to: Layout, start: int = 0) -> Tensor:
    """Index [d_head] with x_to = x_from[..., index], from the other layout into `to`.

    Features start … start + rotary_dim - 1 rotate and move; the others stay (start > 0: DeepSeek's MLA, whose
    rotating features stand last). ValueError for sizes that do not fit.
    """
    if to not in ("half", "interleaved"):
        raise ValueError(f"to = {to!r} is not legal; legal: half, interleaved")
    if rotary_dim < 2 or rotary_dim % 2 or start < 0 or start + rotary_dim > d_head:
        raise ValueError(
            f"rotary_dim = {rotary_dim} from feature {start} is not legal; legal: an even number from 2 that ends "
            f"within d_head = {d_head}"
        )
    index = torch.arange(d_head)
    shape = (-1, 2) if to == "half" else (2, -1)
    index[start : start + rotary_dim] = index[start : start + rotary_dim].view(shape).T.reshape(-1)
    return index


def permute_weights(weight: Tensor, n_heads: int, rotary_dim: int, to: Layout, start: int = 0) -> Tensor:
    """The rows of a q or k projection [n_heads·D, …], or its bias [n_heads·D], from the other layout into `to`.

    For grouped-query attention call it with n_heads for q and n_kv_heads for k; v and o stay as they are. The inverse
    is the other `to`. ValueError for a weight whose rows are not n_heads heads.
    """
    if n_heads < 1 or weight.dim() < 1 or len(weight) % n_heads:
        raise ValueError(f"weight of shape {tuple(weight.shape)} has no rows for {n_heads} heads alike")
    index = layout_permutation(len(weight) // n_heads, rotary_dim, to, start)
    return weight.unflatten(0, (n_heads, -1))[:, index].flatten(0, 1)


def permute_norm(weight: Tensor, d_head: int, rotary_dim: int, to: Layout, start: int = 0) -> Tensor:
    """The weight or bias of a norm of q or k before the rotation, from the other layout into `to`.

    Shape [D] (one for all heads: Qwen3, Gemma 3), [H·D] (over all heads: OLMo 2) or [H, D] (one a head). The features
    that the norm scales move with the rows of the projection, so its entries do too. ValueError for another size.
    """
    if weight.dim() < 1 or weight.shape[-1] == 0 or weight.shape[-1] % d_head:
        raise ValueError(f"norm of shape {tuple(weight.shape)} is no norm of heads of {d_head} features")
    index = layout_permutation(d_head, rotary_dim, to, start)
    return weight.unflatten(-1, (-1, d_head))[..., index].flatten(-2)


def permutation_code(n_heads: int, n_kv_heads: int, d_head: int, rotary_dim: int, to: Layout, start: int = 0) -> str:
    """PyTorch code that permutes q and k projections of these sizes, and their norms, into `to`; needs torch only."""
    shape = "(-1, 2)" if to == "half" else "(2, -1)"
    other = "interleaved" if to == "half" else "half-split"
    goal = "half-split" if to == "half" else "interleaved"
    end = start + rotary_dim
    rotating = f"{start}:{end}"
    stays = "" if rotary_dim == d_head else f"  # features outside {start} ... {end - 1} do not rotate and stay"
    return f'''import torch

N_HEADS, N_KV_HEADS, D_HEAD = {n_heads}, {n_kv_heads}, {d_head}

# {other} -> {goal}: where each new row of a head comes from
index = torch.arange(D_HEAD){stays}
index[{rotating}] = index[{rotating}].view{shape}.T.reshape(-1)


def permute(weight, n_heads):
    """Rows of a [n_heads * D_HEAD, d_in] projection, or of its bias."""
    return weight.unflatten(0, (n_heads, D_HEAD))[:, index].flatten(0, 1)


def permute_norm(weight):
    """A norm of q or k before the rotation: [D_HEAD], [n_heads * D_HEAD] or [n_heads, D_HEAD]."""
    return weight.unflatten(-1, (-1, D_HEAD))[..., index].flatten(-2)


def convert(state_dict, q="q_proj", k="k_proj", norms=("q_norm", "k_norm")):
    """A copy with every q and k projection, and every norm of q and k, permuted; v and o stay."""
    made = dict(state_dict)
    for name, w in state_dict.items():
        parts = name.split(".")
        if q in parts:
            made[name] = permute(w, N_HEADS)
        elif k in parts:
            made[name] = permute(w, N_KV_HEADS)
        elif any(norm in parts for norm in norms):
            made[name] = permute_norm(w)
    return made


back = index.argsort()  # the way back: weight.unflatten(0, (n_heads, D_HEAD))[:, back].flatten(0, 1)
'''


class Proof(NamedTuple):
    """Scores of one model in both layouts, float64.

    scores: the model as it is, [H, L, L]. permuted, unpermuted: largest |difference| of the other layout's scores with
    and without permuted weights. spread: standard deviation of the scores.
    """

    scores: Tensor
    permuted: float
    unpermuted: float
    spread: float


def other_layout(layout: Layout) -> Layout:
    """The layout that `layout` is not."""
    return "interleaved" if layout == "half" else "half"


def prove_layout(
    spec: RopeSpec, n_heads: int, n_kv_heads: int, *, d_in: int = 32, length: int = 12, seed: int = 0,
    unrotated: int = 0, norm: bool = False,
) -> Proof:  # fmt: skip
    """Run random weights with biases in the spec's layout, and in the other one with and without permuted rows.

    Grouped-query attention with n_heads query and n_kv_heads key heads. unrotated > 0: DeepSeek's MLA, whose heads have
    that many features without position before the rotated ones, and one rotated key for all heads (arXiv:2405.04434).
    norm: q and k pass an RMSNorm with random weights over the head before the rotation (Qwen3, Gemma 3); `unpermuted`
    then has permuted rows and the norms as they were.
    """
    total = unrotated + spec.d_head
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, positions = random(length, d_in), torch.arange(length)
    w_q, w_k = random(n_heads * total, d_in) / d_in**0.5, random(n_kv_heads * total, d_in) / d_in**0.5
    b_q, b_k = random(n_heads * total), random(n_kv_heads * total)
    if unrotated:  # the rotated part of the key is one for all heads
        parts, bias = w_k.unflatten(0, (n_kv_heads, total)), b_k.unflatten(0, (n_kv_heads, total))
        parts[:, unrotated:], bias[:, unrotated:] = parts[:1, unrotated:].clone(), bias[:1, unrotated:].clone()
    norms = 1 + 0.5 * random(2, total) if norm else None

    def scores(layout: Layout, weights: list[Tensor], norms: Tensor | None) -> Tensor:
        w_q, b_q, w_k, b_k = weights
        encoding = spec.replace(layout=layout).build()
        q = (x @ w_q.T + b_q).unflatten(-1, (n_heads, total)).transpose(0, 1)[None]
        k = (x @ w_k.T + b_k).unflatten(-1, (n_kv_heads, total)).transpose(0, 1)[None]
        if norms is not None:
            q, k = (torch.nn.functional.rms_norm(v, (total,), w) for v, w in zip((q, k), norms, strict=True))
        k = k.repeat_interleave(n_heads // n_kv_heads, dim=1)
        rotated = attention_scores(q[..., unrotated:], k[..., unrotated:], encoding, positions, positions)
        plain = q[..., :unrotated] @ k[..., :unrotated].transpose(-1, -2)
        return ((rotated * spec.d_head**0.5 + plain) / total**0.5)[0]

    to = other_layout(spec.layout)
    weights, heads = [w_q, b_q, w_k, b_k], (n_heads, n_heads, n_kv_heads, n_kv_heads)
    moved = [permute_weights(w, n, spec.rotary_dim, to, unrotated) for w, n in zip(weights, heads, strict=True)]
    turned = None if norms is None else permute_norm(norms, total, spec.rotary_dim, to, unrotated)
    here, there = scores(spec.layout, weights, norms), scores(to, moved, turned)
    wrong = scores(to, weights if norms is None else moved, norms)
    return Proof(here, (there - here).abs().max().item(), (wrong - here).abs().max().item(), here.std().item())


# ------------------------------------------------------------------ precision

Format = Literal["bfloat16", "float16", "float32"]
Rounded = Literal["all", "positions", "frequencies", "product", "cos_sin"]
FORMATS: dict[str, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
LIMIT = 3e-3  # radians that people found to matter (transformers#29496, modalities#462)
LONGEST = 2**24  # positions that a search looks at
SAMPLES = 32  # positions of a column of an error map


def cast(values: Tensor, number_format: str) -> Tensor:
    """float64 values rounded to a format and back."""
    return values.to(FORMATS[number_format]).double() if number_format in FORMATS else values


def rounded_phases(inv_freq: Tensor, positions: Tensor, number_format: str, rounded: str) -> Tensor:
    """Phases [L, pairs] float64 as a program gets them that keeps what `rounded` names in the format.

    positions, frequencies: that factor. product: the exact product. all: both factors and their product, as after
    `.half()`. Infinite or NaN where a number is too large for the format. cos_sin leaves the phases exact.
    """
    p, w = positions.double(), inv_freq.double()
    if rounded in ("positions", "all"):
        p = cast(p, number_format)
    if rounded in ("frequencies", "all"):
        w = cast(w, number_format)
    phase = p[..., None] * w
    return cast(phase, number_format) if rounded in ("product", "all") else phase


def phase_error(inv_freq: Tensor, positions: Tensor, number_format: str, rounded: str) -> Tensor:
    """|phase in the format - phase in float64| in radians, 0 … π [L, pairs]; NaN where the format overflows.

    cos_sin: the phase is exact, and the error is that of the angle of the rounded cos and sin.
    """
    exact = positions.double()[..., None] * inv_freq.double()
    if rounded == "cos_sin":
        cos, sin = cast(exact.cos(), number_format), cast(exact.sin(), number_format)
        difference = torch.atan2(sin, cos) - exact
    else:
        difference = rounded_phases(inv_freq, positions, number_format, rounded) - exact
    turned = (difference + math.pi).remainder(2 * math.pi) - math.pi
    return turned.abs()


def spacing(values: Tensor, number_format: str) -> Tensor:
    """The distance between neighbouring numbers of the format at |values|."""
    info = torch.finfo(FORMATS[number_format])
    exponent = torch.floor(torch.log2(values.abs().clamp(min=info.tiny)))
    return torch.exp2(exponent) * info.eps


def _error_bound(inv_freq: Tensor, position: float, number_format: str, rounded: str) -> Tensor:
    """No error of a pair up to `position` is larger than this [pairs]; infinite past the format's largest number."""
    last = torch.tensor([position], dtype=torch.float64)
    inside = position < torch.finfo(FORMATS[number_format]).max
    if rounded == "cos_sin":
        return torch.full_like(inv_freq, 0.36 * torch.finfo(FORMATS[number_format]).eps)  # ε/4 in cos, ε/4 in sin
    bound = torch.zeros_like(inv_freq)
    if rounded in ("positions", "all"):
        gap = spacing(last, number_format)  # up to 1, whole numbers are exact
        bound = bound + 1.01 * inv_freq * torch.where(gap > 1, gap / 2, 0.0)
    if rounded in ("frequencies", "all"):
        bound = bound + 1.01 * position * (cast(inv_freq, number_format) - inv_freq).abs()
    if rounded in ("product", "all"):
        bound = bound + spacing(1.01 * position * inv_freq, number_format) / 2
    return bound if inside or rounded == "frequencies" else torch.full_like(bound, torch.inf)


def _octaves(longest: int) -> Iterator[tuple[int, int]]:
    yield 0, min(2, longest)
    low = 2
    while low < longest:
        yield low, min(2 * low, longest)
        low *= 2


def first_exceeding(
    inv_freq: Tensor, number_format: str, rounded: str, limit: float = LIMIT, longest: int = LONGEST
) -> int | None:
    """The first position from 0 to longest - 1 at which a pair's phase error exceeds `limit` rad, or is not a number.

    None if there is none. Exact: octaves and pairs in which no error can be that large are passed over.
    """
    for low, high in _octaves(longest):
        bound = _error_bound(inv_freq, float(high - 1), number_format, rounded)
        suspects = inv_freq[bound > limit]
        if not len(suspects):
            continue
        step = max(1, CHUNK // len(suspects))
        for start in range(low, high, step):
            positions = torch.arange(start, min(start + step, high))
            wrong = ~(phase_error(suspects, positions, number_format, rounded) <= limit)
            found = wrong.any(-1).nonzero()
            if len(found):
                return start + int(found[0])
    return None


def first_collision(inv_freq: Tensor, number_format: str, rounded: str, longest: int = LONGEST + 2) -> int | None:
    """The first position p whose rotation is the same as that of p + 1 in every pair; None below `longest`.

    bfloat16 positions: 256; float16: 2,048; float32: 16,777,216.
    """
    turning = inv_freq[inv_freq > 0]
    if not len(turning):
        return 0
    eps = torch.finfo(FORMATS[number_format]).eps
    fastest = turning.max()
    if rounded == "frequencies" and bool(cast(fastest, number_format) > 0):
        return None
    if rounded == "cos_sin" and fastest > 4 * eps:
        return None
    exact = rounded == "cos_sin"
    for start in range(0, longest, CHUNK):
        positions = torch.arange(start, min(start + CHUNK, longest) + 1)
        if exact and start > 0:
            return None
        same = _same_as_next(fastest[None], positions, number_format, rounded)
        for candidate in same.nonzero().flatten().tolist():
            both = torch.tensor([start + candidate, start + candidate + 1])
            if bool(_same_as_next(turning, both, number_format, rounded)[0]):
                return start + candidate
    return None


def _same_as_next(inv_freq: Tensor, positions: Tensor, number_format: str, rounded: str) -> Tensor:
    if rounded == "cos_sin":
        phase = positions.double()[:, None] * inv_freq
        cos, sin = cast(phase.cos(), number_format), cast(phase.sin(), number_format)
        return ((cos[1:] == cos[:-1]) & (sin[1:] == sin[:-1])).all(-1)
    phase = rounded_phases(inv_freq, positions, number_format, rounded)
    return ((phase[1:] == phase[:-1]) | ~phase[1:].isfinite()).all(-1)


class ErrorMap(NamedTuple):
    """Largest phase error a column of positions: values [pairs, columns] rad; column i is starts[i] … ends[i].

    Columns are as wide as each other in log2 of the position: column i lies at (i + 0.5)·step.
    """

    values: Tensor
    starts: list[int]
    ends: list[int]
    step: float


def columns_of(longest: int, columns: int) -> tuple[list[int], list[int]]:
    """First and last position of columns of equal width in log2, from 1 to longest - 1; narrow ones repeat a position.

    ValueError for less than 3 positions.
    """
    if longest < 3:
        raise ValueError(f"longest = {longest} is not legal; legal: from 3")
    edges = torch.logspace(0, math.log2(longest), columns + 1, 2.0, dtype=torch.float64)
    lows = [int(e) for e in torch.floor(edges + 1e-9)]
    starts = [min(low, longest - 1) for low in lows[:-1]]
    return starts, [max(start, min(low, longest) - 1) for start, low in zip(starts, lows[1:], strict=True)]


def error_map(
    inv_freq: Tensor, number_format: str, rounded: str, longest: int, columns: int = 192, samples: int = SAMPLES
) -> ErrorMap:
    """The largest error among positions of each column, all of it up to 2·samples: bounded memory for any length.

    Of longer columns, samples at golden-section steps, which avoid the multiples of two that a format holds exactly;
    the positions near them that lie half way between two numbers of the format; and the last position.
    """
    starts, ends = columns_of(longest, columns)
    values = torch.empty(len(inv_freq), len(starts), dtype=torch.float64)
    share = (torch.arange(samples, dtype=torch.float64) * 0.6180339887498949).remainder(1)
    for i, (first, last) in enumerate(zip(starts, ends, strict=True)):
        inside = last - first + 1
        if inside <= 2 * samples:
            positions = torch.arange(first, last + 1)
        else:
            some = first + (share * inside).floor()
            gap = spacing(some, number_format).clamp(min=1)
            half_way = ((some / gap).floor() + 0.5) * gap
            end = torch.tensor([last], dtype=torch.float64)
            positions = torch.cat([some, half_way, end]).long().clamp(first, last)
        values[:, i] = phase_error(inv_freq, positions, number_format, rounded).amax(0)
    return ErrorMap(values, starts, ends, math.log2(longest) / columns)


# ------------------------------------------------------------------ two specs side by side


@dataclass(frozen=True)
class Port:
    """A rotation as a program does it: the spec, and faults that no spec can say.

    q_shift is added to the positions of queries only; direction -1 turns the other way.
    """

    spec: RopeSpec
    q_shift: int = 0
    direction: int = 1


@dataclass(frozen=True)
class Mistake:
    """A common fault of ports: what it is called, and the model as it then runs."""

    name: str
    port: Port


def unscaled(spec: RopeSpec) -> RopeSpec:
    """The spec with its scaling dropped."""
    return RopeSpec(d_head=spec.d_head, base=spec.base, layout=spec.layout, rotary_fraction=spec.rotary_fraction)


def over_head_dim(spec: RopeSpec) -> RopeSpec:
    """Partial rotation whose exponent is divided by the head dim: the same as the base to the power R/D."""
    return spec.replace(base=max(spec.base ** (spec.rotary_dim / spec.d_head), 1.001))


def mistakes(spec: RopeSpec) -> dict[str, Mistake]:
    """The common faults that make a difference for this spec, by id."""
    made = {
        "layout": Mistake("the other layout", Port(spec.replace(layout=other_layout(spec.layout)))),
        "base": Mistake(
            "base 10,000" if spec.base != 1e4 else "base 500,000",
            Port(spec.replace(base=1e4 if spec.base != 1e4 else 5e5)),
        ),
        "q_late": Mistake("queries one position late", Port(spec, q_shift=1)),
        "direction": Mistake("sine with the wrong sign", Port(spec, direction=-1)),
    }  # fmt: skip
    if spec.scaling not in ("none", "proportional"):
        made["scaling"] = Mistake("the scaling dropped", Port(unscaled(spec)))
    if attention_scales(spec).attention_factor != 1 and spec.scaling in ("yarn", "longrope"):
        made["attention_factor"] = Mistake(
            "the attention factor dropped", Port(spec.replace(attention_factor=1.0, attention_on="cos_sin"))
        )
    if spec.mscale_all_dim:
        made["softmax_scale"] = Mistake("the extra softmax scale dropped", Port(_without_softmax_scale(spec)))
    if spec.applies(spec.param("truncate")):
        made["truncate"] = Mistake(
            f"truncate = {'false' if spec.truncate else 'true'}", Port(spec.replace(truncate=not spec.truncate))
        )
    if spec.rotary_dim < spec.d_head:
        made["exponent"] = Mistake("exponent over the head dim", Port(over_head_dim(spec)))
    confused = _confused(spec)
    if confused is not None:
        name = "p-RoPE taken for partial" if spec.scaling == "proportional" else "partial taken for p-RoPE"
        made["proportional"] = Mistake(name, Port(confused))
    return made


def _without_softmax_scale(spec: RopeSpec) -> RopeSpec:
    """mscale_all_dim off, with cos and sin as they were."""
    tables = rope_frequencies(spec).attention_factor
    return spec.replace(mscale_all_dim=0.0, mscale=0.0, attention_factor=tables)


def _confused(spec: RopeSpec) -> RopeSpec | None:
    """Partial rotation for p-RoPE and the reverse; None where all rotates or a share leaves half a pair."""
    if spec.rotary_fraction == 1 or spec.scaling not in ("none", "linear", "proportional"):
        return None
    factor = spec.factor if spec.scaling != "none" else 1.0
    fields = {"scaling": "linear" if factor != 1 else "none", "factor": factor}
    if spec.scaling != "proportional":
        fields = {"scaling": "proportional", "factor": factor}
    try:
        return spec.replace(**fields)
    except SpecError:
        return None


class PairDifference(NamedTuple):
    """Frequencies of both, radians a position [pairs] (0 where a pair does not turn); their ratio, port / model.

    first_position: where the phases of the pair differ by `phase` rad, infinite where never. first_pair: the first
    pair that differs at all, None if none does.
    """

    model: Tensor
    port: Tensor
    ratio: Tensor
    first_position: Tensor
    first_pair: int | None


def compare_pairs(
    model: RopeSpec, port: RopeSpec, seq_len: int | None = None, *, phase: float = 0.1, rtol: float = 1e-6
) -> PairDifference:
    """Pair by pair, by index; a side with fewer pairs does not turn the others. rtol: what counts as equal."""
    a, b = (rope_frequencies(s, seq_len).inv_freq for s in (model, port))
    return compare_frequencies(a, b, phase=phase, rtol=rtol)


def compare_frequencies(a: Tensor, b: Tensor, *, phase: float = 0.1, rtol: float = 1e-6) -> PairDifference:
    """The same for frequencies of model and port, radians a position."""
    pairs = max(len(a), len(b))
    a, b = (torch.nn.functional.pad(w, (0, pairs - len(w))) for w in (a, b))
    ratio = torch.where((a == 0) & (b == 0), 1.0, b / a)
    difference = (b - a).abs()
    differs = difference > rtol * torch.maximum(a, b)
    first = torch.where(differs, torch.ceil(phase / difference), torch.inf)
    found = differs.nonzero()
    return PairDifference(a, b, ratio, first, int(found[0]) if len(found) else None)


class ScoreDifference(NamedTuple):
    """At distances [K]: the RMS difference of the scores of random queries and keys, over their RMS in the model.

    first: the first distance at which it exceeds each limit, None where it does not before `longest`.
    """

    distances: Tensor
    relative: Tensor
    first: dict[float, int | None]


def _terms(port: Port, q: Tensor, k: Tensor, seq_len: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [N] at distance d are Re Σ_i c_i e^{i·d·w_i} + rest: c complex [N, pairs], w [pairs], rest [N]."""
    spec = port.spec
    features, scales = pair_features(spec), attention_scales(spec, seq_len)
    w = rope_frequencies(spec, seq_len).inv_freq * port.direction
    a, b = features.unbind(-1)
    c = torch.complex(q[:, a], q[:, b]) * torch.complex(k[:, a], -k[:, b]) * scales.tables**2
    c = c * torch.polar(torch.ones_like(w), port.q_shift * w)
    rest = (q[:, spec.rotary_dim :] * k[:, spec.rotary_dim :]).sum(-1)
    size = scales.scores / spec.d_head**0.5
    return c * size, w, rest * size


def score_difference(
    model: Port, port: Port, longest: int, *, limits: tuple[float, ...] = (1e-3, 1e-2), draws: int = 16, seed: int = 0,
    shown: int = 256,
) -> ScoreDifference:  # fmt: skip
    """Compare scores of the same random queries and keys at every distance from 0 to longest - 1.

    For scalings that follow the length, the sequence has `longest` positions. ValueError for head dims that differ.
    """
    if model.spec.d_head != port.spec.d_head:
        raise ValueError(f"d_head = {port.spec.d_head} of the port is not the model's {model.spec.d_head}")
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, draws, model.spec.d_head, generator=generator, dtype=torch.float64)
    sides = [_terms(side, q, k, longest) for side in (model, port)]

    step = max(1, min(longest, CHUNK // max(len(w) for _, w, _ in sides)))
    turns = [torch.arange(step, dtype=torch.float64)[:, None] * w for _, w, _ in sides]
    waves = [(angle.cos(), angle.sin()) for angle in turns]

    def relative(start: int, width: int) -> Tensor:
        """At `width` distances from `start` on: the coefficients are turned there, so that the same waves serve all."""
        scores = []
        for (c, w, rest), (cos, sin) in zip(sides, waves, strict=True):
            there = c * torch.polar(torch.ones_like(w), start * w)
            scores.append(cos[:width] @ there.real.T - sin[:width] @ there.imag.T + rest)
        return (scores[1] - scores[0]).square().mean(-1).sqrt() / scores[0].square().mean(-1).sqrt()

    first: dict[float, int | None] = dict.fromkeys(limits)
    same = all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(*sides, strict=True))
    start, width = 0, 64
    while not same and start < longest and None in first.values():
        values = relative(start, min(width, longest - start))
        for limit in limits:
            over = (values > limit).nonzero()
            if first[limit] is None and len(over):
                first[limit] = start + int(over[0])
        start, width = start + width, min(2 * width, step)
    distances = torch.tensor(sorted({0, *columns_of(longest, shown)[0]}))
    drawn = torch.stack([relative(d, 1)[0] for d in distances.tolist()])
    return ScoreDifference(distances, drawn, first)
