"""What the pages show, as numbers: tensors in, tensors out, through the three hooks only."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posenc_core.attention import attention_scores
from posenc_core.model import Block, ToyModel, next_token_loss
from posenc_core.schemes.base import PositionalEncoding, VectorEncoding
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import Sinusoidal, SinusoidalSpec
from posenc_core.spec import Spec

Content = Literal["equal", "random"]


def spectrum(spec: Spec, seq_len: int | None = None) -> Tensor | None:
    """Radians a position of every pair, float64 [pairs], high to low; None for a scheme without frequencies.

    Of a sequence of `seq_len`, where the frequencies depend on it; None: a length within the original one.
    """
    if isinstance(spec, RopeSpec):
        return spec.inv_freq(seq_len)
    return spec.inv_freq() if isinstance(spec, SinusoidalSpec) else None


def wavelengths(inv_freq: Tensor) -> Tensor:
    """Positions a full turn takes, 2π/inv_freq; infinite where a pair does not turn."""
    return 2 * math.pi / inv_freq


def defined_length(encoding: PositionalEncoding) -> int | None:
    """The number of positions that have an encoding (a table's rows), None if all have."""
    return getattr(encoding.layer(0), "defined", None)


def vectors_or_nan(encoding: VectorEncoding, positions: Tensor) -> Tensor:
    """Position vectors [L, d_model] float64, NaN where the table has no row for a position."""
    out = torch.full((len(positions), encoding.spec.d_model), torch.nan, dtype=torch.float64)  # type: ignore[attr-defined]
    rows = defined_length(encoding)
    inside = torch.ones_like(positions, dtype=torch.bool) if rows is None else (positions >= 0) & (positions < rows)
    if bool(inside.any()):
        with torch.no_grad():
            out[inside] = encoding.vectors(positions[inside]).double()
    return out


def turns(inv_freq: Tensor, length: float) -> Tensor:
    """Full turns of each pair over `length` positions."""
    return inv_freq * length / (2 * math.pi)


def cosine_similarity(vectors: Tensor) -> Tensor:
    """Cosines of all pairs of rows, [L, L] from [L, d]; NaN for a zero or undefined row."""
    unit = vectors / vectors.norm(dim=-1, keepdim=True)
    return unit @ unit.T


def dot_against_distance(encoding: VectorEncoding, distances: Tensor, at: float = 0.0) -> Tensor:
    """PE(at)·PE(at + k) for each distance k, float64 [K]; NaN where undefined."""
    start = vectors_or_nan(encoding, torch.tensor([at], dtype=torch.float64))
    return (vectors_or_nan(encoding, distances + at) @ start.T).squeeze(-1)


def scores_against_distance(encoding: PositionalEncoding, q: Tensor, k: Tensor, distances: Tensor) -> Tensor:
    """Score of a query at position `distance` with a key at 0: [N, H, K] from q, k [N, H, D] and distances [K]."""
    queries = q.unsqueeze(-2).expand(*q.shape[:-1], len(distances), q.shape[-1])
    scores = attention_scores(queries, k.unsqueeze(-2), encoding, distances, torch.zeros(1, dtype=distances.dtype))
    return scores.squeeze(-1)


def equal_scores(encoding: PositionalEncoding, d_head: int, distances: Tensor, n_heads: int = 1) -> Tensor:
    """Scores of equal vectors (all ones, q = k), float64 [H, K]: what RoFormer's decay argument is about."""
    ones = torch.ones(1, n_heads, d_head, dtype=torch.float64)
    return scores_against_distance(encoding, ones, ones, distances)[0]


def random_scores(encoding: PositionalEncoding, d_head: int, distances: Tensor, draws: int, seed: int = 0) -> Tensor:
    """Scores of independent standard normal q and k, float64 [draws, K]; a draw keeps its q and k at all distances."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, draws, 1, d_head, generator=generator, dtype=torch.float64)
    return scores_against_distance(encoding, q, k, distances)[:, 0]


def roformer_bound(inv_freq: Tensor, distances: Tensor) -> Tensor:
    """RoFormer's "relative upper bound", mean over j of |S_j| with S_j = Σ_{i<j} e^{i·k·w_i}: float64 [K].

    Su et al. 2021, section 3.4.3 and figure 2 (j = 1 … R/2). It bounds no score by itself: a score is at most
    max |h_{i+1} - h_i| · Σ_j |S_j|, where h holds the products of q's and k's pairs.
    """
    angle = distances.to(torch.float64).unsqueeze(-1) * inv_freq
    return torch.polar(torch.ones_like(angle), angle).cumsum(-1).abs().mean(-1)


class Residual(NamedTuple):
    """How far scores depend on more than m - n: share of their variance, and the part itself [L, L]."""

    share: float
    matrix: Tensor


def relative_residual(scores: Tensor) -> Residual:
    """What remains of scores [L, L] after every diagonal's mean is taken off; entries that are not finite are left out.

    share is 0 for scores that depend on m - n only (and for constant scores), about 1 for noise.
    """
    finite = scores.isfinite()
    if not bool(finite.any()):
        return Residual(0.0, torch.full_like(scores, torch.nan, dtype=torch.float64))
    wide = scores.double()
    count = _diagonal_sums(finite.double()).clamp(min=1)
    mean = _diagonal_sums(wide.masked_fill(~finite, 0.0)) / count
    distance = torch.arange(len(scores))[:, None] - torch.arange(len(scores)) + len(scores) - 1
    matrix = torch.where(finite, scores - mean[distance], torch.nan)
    known = wide[finite]
    variance = known.var(correction=0)
    if variance <= (1e-12 * known.abs().max()) ** 2:
        return Residual(0.0, matrix)
    return Residual((matrix[finite].double().square().mean() / variance).item(), matrix)


def _diagonal_sums(square: Tensor) -> Tensor:
    """Sums over m - n = -(L - 1) … L - 1: [2L - 1] from [L, L]. Each row is moved by its number, then columns add."""
    length = len(square)
    moved = torch.nn.functional.pad(square.flip(-1), (0, length)).flatten()[:-length]
    return moved.view(length, 2 * length - 1).sum(0)


def position_scores(
    encoding: PositionalEncoding, content: Tensor, w_q: Tensor, w_k: Tensor, positions: Tensor
) -> Tensor:
    """Scores of one token against itself everywhere: float64 [H, L, L].

    content [d_model] is the same at every position; w_q and w_k [H, D, d_model] project it as the first layer does. So
    only positions can make a difference.
    """
    x = content.expand(1, len(positions), len(content)).double()
    with torch.no_grad():
        x = encoding.embed(x, positions)
        q, k = (torch.einsum("bld,hed->bhle", x, w.double()) for w in (w_q, w_k))
        return attention_scores(q, k, encoding.layer(0), positions, positions)[0]


def shift_map_error(encoding: Sinusoidal, k: float, positions: Tensor) -> float:
    """Largest |M_k PE(p) - PE(p + k)| over the positions: rounding only, if shifts are linear."""
    return (encoding.vectors(positions) @ encoding.shift_map(k).T - encoding.vectors(positions + k)).abs().max().item()


def probe_gradient_norms(vectors: Tensor) -> Tensor:
    """Norm of dloss/dw of a linear probe w·PE(p) with loss (w·PE(p) - 1)²/2 at w = 0: [L] from vectors [L, d]."""

    def loss(w: Tensor, vector: Tensor) -> Tensor:
        return 0.5 * (w @ vector - 1).square()

    start = torch.zeros(vectors.shape[-1], dtype=vectors.dtype)
    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(start, vectors).norm(dim=-1)


def permutation_change(model: ToyModel, tokens: Tensor, order: Tensor) -> float:
    """How far unmasked attention is from permutation equivariance, relative to the size of its output.

    Runs tokens [L] and tokens[order] without causal mask at the same positions 0 … L-1 and compares each token's last
    hidden state in both runs: max |f(x[order]) - f(x)[order]| / max |f(x)|. 0 up to rounding without positions.
    A causal bias stays causal: for ALiBi, give a model with the symmetric variant.
    """
    positions = torch.arange(len(tokens))
    with torch.no_grad():
        straight = model.trace(tokens[None], positions, causal=False).hidden[-1][0]
        shuffled = model.trace(tokens[order][None], positions, causal=False).hidden[-1][0]
    return ((shuffled - straight[order]).abs().max() / straight.abs().max()).item()


def offset_change(model: ToyModel, tokens: Tensor, offset: float) -> tuple[float, float]:
    """(largest change of a logit, change of the mean loss in nats) when all positions of tokens [L] move."""
    positions = torch.arange(len(tokens))
    with torch.no_grad():
        here, there = (model(tokens[None], p) for p in (positions, positions + offset))
    change = (next_token_loss(there, tokens[None]).mean() - next_token_loss(here, tokens[None]).mean()).item()
    return (there - here).abs().max().item(), change


def attention_entropy(weights: Tensor) -> Tensor:
    """Entropy in nats of every query's weights: [..., Lq] from [..., Lq, Lk]."""
    return torch.special.entr(weights).sum(-1)


def attention_distance(weights: Tensor, positions: Tensor) -> Tensor:
    """Mean distance in positions that a query looks back: [..., L] from weights [..., L, L] and positions [L]."""
    distance = (positions[:, None] - positions).abs().to(weights.dtype)
    return (weights * distance).sum(-1)


def unprojected_scores(encoding: PositionalEncoding, content: Tensor, positions: Tensor) -> Tensor:
    """`position_scores` with W_q = W_k = identity, without making them: float64 [H, L, L] from content [D]."""
    x = content.expand(1, len(positions), len(content)).double()
    with torch.no_grad():
        x = encoding.embed(x, positions).unsqueeze(1)
        return attention_scores(x, x, encoding.layer(0), positions, positions)[0]


def token_position_scores(model: ToyModel, encoding: PositionalEncoding, token: int, positions: Tensor) -> Tensor:
    """Scores of one token against itself everywhere in a model's first layer, without mask: float64 [H, L, L].

    As the model does it: scaled embedding, positions, norm, projections, rotation and bias; only in float64.
    """
    block = model.blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad():
        x = model.embedding.weight[token].double() * model.size.d_model**0.5
        x = encoding.embed(x.expand(1, len(positions), -1), positions)
        norm = block.attention_norm.weight.double()
        x = torch.nn.functional.rms_norm(x, norm.shape, norm, torch.finfo(torch.float32).eps)
        q, k, _ = (x @ block.qkv.weight.double().T).unflatten(-1, (3, block.n_heads, -1)).permute(2, 0, 3, 1, 4)
        return attention_scores(q, k, encoding.layer(0), positions, positions)[0]


def pooled(weights: Tensor, block: int) -> Tensor:
    """Largest weight of each block × block square on and below the diagonal: [..., n, n] from [..., L, L].

    n = ceil(L / block); NaN in squares above the diagonal, where causal attention has no key to look at.
    """
    length = weights.shape[-1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    padding = -length % block
    filled = torch.nn.functional.pad(weights.masked_fill(~causal, -1), (0, padding, 0, padding), value=-1)
    squares = filled.unflatten(-2, (-1, block)).unflatten(-1, (-1, block)).amax((-3, -1))
    return squares.masked_fill(squares < 0, torch.nan)


class Drift(NamedTuple):
    """Of every head and query position: entropy in nats and mean distance looked back, float64 [layers, H, L]."""

    entropy: Tensor
    distance: Tensor


def attention_drift(model: ToyModel, tokens: Tensor) -> Drift:
    """Mean entropy and distance over the rows of tokens [N, L]; NaN from the position where a table ends."""
    length = tokens.shape[-1]
    defined = defined_length(model.encoding)
    seen = length if defined is None else min(length, defined)
    positions = torch.arange(seen)
    total = torch.zeros(2, model.size.n_layers, model.size.n_heads, seen, dtype=torch.float64)
    with torch.no_grad():
        for row in tokens[:, :seen].split(1):  # one at a time: the weights of a long row are large
            for layer, weights in enumerate(model.trace(row, positions).weights):
                total[0, layer] += attention_entropy(weights[0])
                total[1, layer] += attention_distance(weights[0], positions)
    mean = torch.nn.functional.pad(total / len(tokens), (0, length - seen), value=torch.nan)
    return Drift(mean[0], mean[1])
