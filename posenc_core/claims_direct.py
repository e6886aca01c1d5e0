"""Judges of the claims that need no training: each computes its numbers in float64 in a fraction of a second.

Every judge takes the Evidence, as all do, and reads nothing of it. Thresholds stand above the rule that they decide.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from posenc_core import analysis, extension
from posenc_core.attention import attention, attention_scores
from posenc_core.claims import Evidence, Judgement, Number, decide, listed
from posenc_core.frequencies import geometric
from posenc_core.model import load_checkpoint
from posenc_core.rotary import phases
from posenc_core.schemes.alibi import AlibiSpec, alibi_slopes
from posenc_core.schemes.base import PositionalEncoding, VectorEncoding
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import Sinusoidal, SinusoidalSpec
from posenc_core.spec import Spec, SpecError

ROUNDING = 1e-9  # relative; float64 keeps 16 digits, phases of a million radians lose 6 of them
WIDTH, HEAD = 128, 64  # d_model and d_head where a claim leaves them open
TRAINED, FACTOR = 128, 4.0  # original length and factor of scalings
SCALED: dict[str, RopeSpec] = {
    "none": RopeSpec(d_head=HEAD),
    "linear": RopeSpec(d_head=HEAD, scaling="linear", factor=FACTOR),
    "ntk": RopeSpec(d_head=HEAD, scaling="ntk", factor=FACTOR),
    "proportional": RopeSpec(d_head=HEAD, scaling="proportional", rotary_fraction=0.5),
    **{
        name: RopeSpec(d_head=HEAD, scaling=name, factor=FACTOR, original_max_position_embeddings=TRAINED)
        for name in ("ntk_by_parts", "dynamic", "yarn", "longrope", "llama3")
    },
}  # fmt: skip
DYNAMIC = SCALED["dynamic"]


def _drawn(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal, float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _size(x: Tensor) -> float:
    return x.abs().max().item()


# ------------------------------------------------------------------ 1: permutation


def attend(encoding: PositionalEncoding, x: Tensor, causal: bool) -> Tensor:
    """One attention layer with fixed random projections on x [L, d_model] at positions 0 … L - 1: [L, HEAD]."""
    positions = torch.arange(len(x))
    q, k, v = (encoding.embed(x[None], positions) @ _drawn(3, x.shape[-1], HEAD) / x.shape[-1] ** 0.5).unsqueeze(1)
    y, _ = attention(q[None], k[None], v[None], encoding, positions, positions, causal=causal, need_weights=True)
    return y[0, 0]


def shuffle_change(encoding: PositionalEncoding, causal: bool, length: int = 64) -> float:
    """Largest |f(x[order]) - f(x)[order]| of one attention layer, relative to the largest |f(x)|."""
    x = _drawn(length, WIDTH, seed=1)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(2))
    straight = attend(encoding, x, causal)
    return _size(attend(encoding, x[order], causal) - straight[order]) / _size(straight)


def permutation(evidence: Evidence) -> Judgement:
    """Equivariant without mask up to rounding; under a causal mask too, or the mask is the condition."""
    unmasked, masked = (shuffle_change(NoneSpec().build(), causal) for causal in (False, True))
    rope = shuffle_change(RopeSpec(d_head=HEAD).build(), causal=False)
    return decide(
        max(unmasked, masked) < ROUNDING,
        unmasked < ROUNDING,
        (
            Number("change by shuffling, no mask", unmasked, "of the output"),
            Number("change by shuffling, causal mask", masked, "of the output"),
            Number("change by shuffling, RoPE, no mask", rope, "of the output"),
        ),
        condition="no causal mask: under it a token sees only what came before, so its output changes with the order",
        reason="the outputs change with the order even without a mask",
    )


# ------------------------------------------------------------------ 2, 3: sinusoidal vectors

UNIQUE_POSITIONS = 2**16
DISTINCT = 0.1  # of the largest possible distance 2·norm; float16 rounds a unit vector's features by 0.0005


def closest(spec: SinusoidalSpec, count: int) -> float:
    """Smallest distance of two of the first `count` position vectors, relative to their norm.

    |PE(p) - PE(p + k)|² = Σ (2 - 2cos(k·w)) hangs on k alone, so one row of k does for all pairs.
    """
    inv_freq, pairs = spec.inv_freq(), spec.d_model // 2
    least = min(
        (2 - 2 * phases(part, inv_freq).cos()).sum(-1).min().item()
        for part in torch.arange(1, count, dtype=torch.float64).split(2**13)
    )
    return math.sqrt(max(0.0, least) / pairs)


def sinusoidal_vectors(evidence: Evidence) -> Judgement:
    """Unique, bounded and linear under shifts: all three, or which one fails."""
    spec = SinusoidalSpec(d_model=WIDTH)
    made, positions = spec.build(), torch.arange(4096)
    near = closest(spec, UNIQUE_POSITIONS)
    largest = _size(made.vectors(positions))
    error = max(analysis.shift_map_error(made, k, positions) for k in (1, 100, 4096))
    true = [near > DISTINCT, largest <= 1 + ROUNDING, error < ROUNDING]
    names = ["unique", "bounded", "linear under shifts"]
    return decide(
        all(true),
        any(true),
        (
            Number("smallest distance of two vectors", near, f"norms, among {UNIQUE_POSITIONS:,} positions"),
            Number("largest feature", largest),
            Number("largest error of a linear shift", error),
        ),
        condition="only " + listed(n for n, t in zip(names, true, strict=True) if t),
        reason="they are not unique, not bounded and not linear under shifts",
    )


def wavelength_ends(evidence: Evidence) -> Judgement:
    """The first is 2π; the last is base·2π by the formula itself, or only with the exponent that ends at 1."""
    paper, narrow = SinusoidalSpec(d_model=512), SinusoidalSpec(d_model=WIDTH)
    ending = paper.replace(endpoint=True)
    ends = {s: analysis.wavelengths(s.inv_freq())[[0, -1]] / (2 * math.pi) for s in (paper, narrow, ending)}
    first = ends[paper][0].item()
    last, last_narrow, last_ending = (float(ends[s][1] / s.base) for s in (paper, narrow, ending))
    exact, exact_ending = abs(last - 1) < ROUNDING, abs(last_ending - 1) < ROUNDING
    starts = abs(first - 1) < ROUNDING
    return decide(
        starts and exact,
        starts and exact_ending,
        (
            Number("first wavelength", first, "of a full 2π"),
            Number("last wavelength, d_model 512", last, "of base·2π"),
            Number(f"last wavelength, d_model {WIDTH}", last_narrow, "of base·2π"),
            Number("last wavelength, exponent i/(d/2 - 1)", last_ending, "of base·2π"),
        ),
        condition="only nearly: the formula's last exponent is 1 - 2/d, so at 512 dimensions the last wavelength is "
        f"{last:.1%} of base·2π; it is exact with the exponent i/(d/2 - 1) of tensor2tensor (endpoint = true)",
        reason=f"the first is {first:.1%} of 2π, and the last {last_ending:.1%} of base·2π at best",
    )


# ------------------------------------------------------------------ 4, 5: indices and tables

BLOWN_UP = 10.0  # times a token embedding's norm: what is left of the token is then below a tenth


def integer_indices(evidence: Evidence) -> Judgement:
    """The index outgrows a token of unit variance ten times, and two tokens there can hardly be told apart."""
    last = torch.tensor([511])
    raw = IntegerSpec(d_model=WIDTH).build()
    normalized = IntegerSpec(variant="normalized", d_model=WIDTH, max_position_embeddings=512).build()
    one, other = _drawn(2, WIDTH)
    typical = math.sqrt(WIDTH)
    grown, kept = (e.vectors(last).norm().item() / typical for e in (raw, normalized))
    alike = torch.cosine_similarity(one + raw.vectors(last)[0], other + raw.vectors(last)[0], dim=0).item()
    before = torch.cosine_similarity(one, other, dim=0).item()
    return decide(
        grown > BLOWN_UP,
        False,
        (
            Number("index at position 511", grown, "× a token's norm"),
            Number("cosine of two tokens there", alike),
            Number("cosine of the same tokens without it", before),
            Number("index/(L-1) at position 511", kept, "× a token's norm"),
        ),
        reason=f"at position 511 it has {grown:.3g} times a token's norm, not {BLOWN_UP:g}",
    )


def _defined(encoding: VectorEncoding, position: int) -> bool:
    try:
        encoding.vectors(torch.tensor([position]))
    except SpecError:
        return False
    return True


def learned_table(evidence: Evidence) -> Judgement:
    """Every position of the table has a vector, and none past it."""
    made = LearnedSpec(max_position_embeddings=TRAINED, d_model=2).build()
    inside = sum(_defined(made, p) for p in range(TRAINED))
    past = [_defined(made, p) for p in range(TRAINED, 8 * TRAINED)]
    offset = analysis.defined_length(LearnedSpec(max_position_embeddings=514, d_model=2, offset=2).build())
    return decide(
        inside == TRAINED and not any(past),
        inside == TRAINED and not all(past),
        (
            Number("rows of the table", TRAINED),
            Number("positions of the table that have a vector", inside),
            Number("positions past it, to 8 times, that have one", sum(past)),
            Number("positions of RoBERTa's 514 rows, offset 2", float(offset or 0)),
        ),
        condition=f"{sum(past)} positions past it have one",
        reason=f"{inside} of its {TRAINED} positions have one, and {sum(past)} of {len(past)} past it",
    )


# ------------------------------------------------------------------ 7: projections of added vectors

KEPT = 0.5  # correlation with the undisturbed scores: a quarter of their variance
DRAWS = 16  # of random projections
CHECKPOINT = Path(__file__).resolve().parents[1] / "assets" / "models" / "sinusoidal.safetensors"


def within_rows(scores: Tensor) -> Tensor:
    """What causal softmax sees of scores [..., L, L]: entries with j ≤ i, each row less its mean, [..., L·(L + 1)/2].

    Scores of later keys are masked, so training never moves them; what a row has in common changes no weight.
    """
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    mean = scores.masked_fill(~seen, 0.0).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
    return (scores - mean)[..., seen]


def _correlation(scores: Tensor, plain: Tensor) -> Tensor:
    """Of scores [N, L, L] with plain [L, L] within rows: [N]."""
    return torch.cosine_similarity(within_rows(scores), within_rows(plain), dim=-1)


@cache
def _of_distance(length: int) -> Tensor:
    """Orthonormal columns that span, within rows, all functions of the distance: [L·(L + 1)/2, L - 1]."""
    distance = torch.arange(length)[:, None] - torch.arange(length)
    each = (distance == torch.arange(1, length)[:, None, None]).double()  # distance 0 is what the others leave
    return torch.linalg.qr(within_rows(each).T).Q


def by_distance(scores: Tensor) -> Tensor:
    """Share of the variance within rows of scores [N, L, L] that a function of i - j explains: [N]."""
    seen = within_rows(scores)
    return (seen @ _of_distance(scores.shape[-1])).square().sum(-1) / seen.square().sum(-1)


@cache
def _trained_scores(path: Path) -> tuple[Tensor, Tensor]:
    """Scores of a letter against itself in a trained first layer [H, L, L], and of its position vectors alone."""
    model, record = load_checkpoint(path)
    positions = torch.arange(record.train_length)
    nothing = torch.zeros(record.size.d_model, dtype=torch.float64)
    plain = analysis.unprojected_scores(model.encoding, nothing, positions)[0]
    return analysis.token_position_scores(model, model.encoding, ord("e"), positions), plain


def projections(evidence: Evidence) -> Judgement:
    """Random projections and those of every trained head leave a correlation of at most KEPT with the plain scores.

    Within rows and for keys up to the query, as a causal model sees them. Random ones: the median of their sizes.
    """
    made, positions = SinusoidalSpec(d_model=WIDTH).build(), torch.arange(TRAINED)
    nothing = torch.zeros(WIDTH, dtype=torch.float64)
    plain = analysis.unprojected_scores(made, nothing, positions)[0]
    weights = _drawn(DRAWS, 2, 1, HEAD, WIDTH) / WIDTH**0.5
    drawn = torch.cat([analysis.position_scores(made, nothing, w_q, w_k, positions) for w_q, w_k in weights])
    trained, plain_trained = _trained_scores(CHECKPOINT)
    random, heads = _correlation(drawn, plain).abs().median().item(), _correlation(trained, plain_trained)
    gone, kept = random <= KEPT, int((heads > KEPT).sum())
    back = f"training brings it back in {kept} of {len(heads)} heads"
    return decide(
        gone and not kept,
        gone or not kept,
        (
            Number("random projections: correlation with the plain decay", random),
            Number("random projections: variance that distance explains", by_distance(drawn).median().item()),
            Number("trained heads: smallest correlation with the plain decay", heads.min().item()),
            Number("trained heads: largest correlation with the plain decay", heads.max().item()),
            Number("trained heads: variance that distance explains", by_distance(trained).median().item()),
            Number("no projections: variance that distance explains", by_distance(plain[None]).item()),
        ),
        condition=f"random projections; {back}" if gone else "trained projections; random ones keep it",
        reason=f"random projections keep it, and {back}",
    )


# ------------------------------------------------------------------ 8, 9, 10: rotation

SHIFTS = (1, 1000, 1_000_000)


def _scores(spec: Spec, q: Tensor, k: Tensor, moved: int = 0) -> Tensor:
    positions = torch.arange(TRAINED) + moved
    return attention_scores(q, k, spec.build(), positions, positions)[0, 0]


def relative_only(evidence: Evidence) -> Judgement:
    """Diagonals are constant and moving all positions changes no score; frequencies by length are the condition."""
    q, k = _drawn(2, 1, 1, 1, HEAD).expand(-1, -1, -1, TRAINED, -1)
    share, change = dict[str, float](), dict[str, float]()
    for name, spec in SCALED.items():
        here = _scores(spec, q, k)
        share[name] = analysis.relative_residual(here).share
        change[name] = max(_size(_scores(spec, q, k, s) - here) for s in SHIFTS) / _size(here)
    odd = [name for name in SCALED if max(share[name], change[name]) >= ROUNDING]
    plain = "none" not in odd
    return decide(
        not odd,
        plain,
        (
            Number("variance not explained by m - n", share["none"], "of the scores'"),
            Number(f"positions moved by up to {SHIFTS[-1]:,}: change of a score", change["none"], "of the largest"),
            Number("scalings for which it is true as well", len(SCALED) - len(odd), f"of {len(SCALED)}"),
            *(Number(f"{name}, moved: change of a score", change[name], "of the largest") for name in odd),
        ),
        condition=f"frequencies that do not follow the length of the sequence: those of {listed(odd)} do",
        reason="scores of RoPE without any scaling change as well",
    )


def norms(evidence: Evidence) -> Judgement:
    """Norms change by rounding only; a scaling that multiplies cos and sin is a condition."""
    x, positions = _drawn(1, 1, 256, HEAD), torch.linspace(0, 1_000_000, 256, dtype=torch.float64).long()
    change = dict[str, float]()
    for name, spec in SCALED.items():
        turned, _ = spec.build().rotate(x, x, positions, positions)
        change[name] = _size(turned.norm(dim=-1) / x.norm(dim=-1) - 1)
    odd = [name for name, c in change.items() if c >= ROUNDING]
    plain = change["none"] < ROUNDING
    return decide(
        not odd,
        plain,
        (
            Number("largest relative change of a norm", change["none"]),
            *(Number(f"change under {name}, factor {FACTOR:g}", change[name]) for name in odd if name != "none"),
            Number("scalings that keep norms", len(SCALED) - len(odd), f"of {len(SCALED)}"),
        ),
        condition=f"the rotation does; {listed(odd)} also multiply cos and sin by an attention factor",
        reason="norms under RoPE without any scaling change as well",
    )


FALLEN = 0.5  # of the size nearby
NEAR, FAR = (0, 16), (256, 512)


def decay(evidence: Evidence) -> Judgement:
    """Scores far away are at most FALLEN of those nearby: of equal vectors, of independent ones, with a larger base.

    If only those of equal vectors are, equality, and the base if it decides, are conditions.
    """
    distances = torch.arange(FAR[1], dtype=torch.float64)
    near, far = slice(*NEAR), slice(*FAR)
    made = RopeSpec(d_head=HEAD).build()
    equal = analysis.equal_scores(made, HEAD, distances)[0]
    wide = RopeSpec(d_head=HEAD, base=500_000).build()
    large = analysis.equal_scores(wide, HEAD, distances)[0]
    ends = torch.cat([distances[near], distances[far.start :: 16]])
    sizes = analysis.random_scores(made, HEAD, ends, 256).square()
    random = math.sqrt(sizes[:, NEAR[1] :].mean() / sizes[:, : NEAR[1]].mean())
    fallen = (equal[far].mean() / equal[near].mean()).item()
    fallen_wide = (large[far].mean() / large[near].mean()).item()
    rising = (equal.diff() > 0).double().mean().item()
    conditions = ["on average over distances"]
    if random > FALLEN:
        conditions.append(f"equal (or similar) queries and keys: scores of independent ones keep {random:.0%} of their "
                          "size")  # fmt: skip
    if fallen_wide > FALLEN:
        conditions.append(
            f"base {made.spec.base:,.0f}: with {wide.spec.base:,.0f} even those of equal ones keep {fallen_wide:.0%}"
        )
    return decide(
        max(fallen, random, fallen_wide) <= FALLEN,
        fallen <= FALLEN,
        (
            Number("equal vectors: mean score at 256 to 511", fallen, "of that at 0 to 15"),
            Number("random vectors: size of scores at 256 to 511", random, "of that at 0 to 15"),
            Number(f"equal vectors, base {wide.spec.base:,.0f}", fallen_wide, "of that at 0 to 15"),
            Number("equal vectors: steps at which the score rises", rising, "of all"),
        ),
        condition="; ".join(conditions),
        reason=f"even scores of equal vectors keep {fallen:.0%} of what they are nearby",
    )


# ------------------------------------------------------------------ 18, 19: ALiBi


def slopes(evidence: Evidence) -> Judgement:
    """The authors' slopes, largest first, are halves of halves at 8 heads; at 12 too, or 8 heads are the condition."""

    def off(heads: int) -> float:
        return _size(
            alibi_slopes(heads).sort(descending=True).values - 0.5 ** torch.arange(1, heads + 1, dtype=torch.float64)
        )

    eight, twelve = off(8), off(12)
    halves = 0.5 ** torch.arange(1, 13, dtype=torch.float64)
    recipe = alibi_slopes(12)
    formula = 2 ** (-8 / 12 * torch.arange(1, 13, dtype=torch.float64))
    apart = _size(recipe.sort(descending=True).values - formula)
    return decide(
        max(eight, twelve) < ROUNDING,
        eight < ROUNDING,
        (
            Number("8 heads, sorted: largest difference from 1/2, 1/4, …", eight),
            Number("12 heads, sorted: largest difference from 1/2, 1/4, …", twelve),
            Number("12 heads: farthest head's 1/slope, authors' code", 1 / recipe.min().item(), "positions"),
            Number("12 heads: farthest head's 1/slope, 1/2, 1/4, …", 1 / halves.min().item(), "positions"),
            Number("12 heads: authors' code beside 2^(-8h/12), sorted", apart),
        ),
        condition="8 heads: for other powers of two the ratio is 2^(-8/n), and for 12 the authors take the slopes of "
        "8 and every other one of 16",
        reason="the authors' slopes are others for 8 heads too",
    )


def causal_mask(evidence: Evidence) -> Judgement:
    """Without mask the heads of -slope·(i - j) look at the last key there is; -slope·|i - j| may be the way out."""
    heads, length = 8, 64
    spec, positions = AlibiSpec(n_heads=heads), torch.arange(length)
    signed = -spec.slope_tensor()[:, None] * (length // 2 - positions).double()  # of the query in the middle
    symmetric = spec.replace(variant="symmetric").build()
    nothing = torch.empty(0, dtype=torch.float64)
    both = symmetric.bias(positions[length // 2, None], positions, nothing)[:, 0]
    last, last_both = ((b.argmax(-1) == length - 1).sum().item() for b in (signed, both))
    x = _drawn(1, heads, length, HEAD)
    out, back = (
        attention(t, t, t, symmetric, positions, positions, causal=False, need_weights=True)[0] for t in (x, x.flip(-2))
    )
    mirrored = _size(back.flip(-2) - out) / _size(out)
    needed, way_out = last == heads, last_both == 0
    return decide(
        needed and not way_out,
        needed,
        (
            Number("-slope·(i - j), no mask: heads that look at the last key most", last, f"of {heads}"),
            Number("-slope·|i - j|, no mask: heads that look at the last key most", last_both, f"of {heads}"),
            Number("-slope·|i - j|, no mask: change when the text is reversed", mirrored, "of the output"),
        ),
        condition="the formula -slope·(i - j), which rewards keys to come; -slope·|i - j| works without a mask, but "
        "cannot tell before from after",
        reason=f"under -slope·(i - j) only {last} of {heads} heads look at the last key most",
    )


# ------------------------------------------------------------------ 25: cached keys


def _keys(encoding: PositionalEncoding, x: Tensor, length: int, count: int) -> Tensor:
    """The first `count` keys as they are cached in a sequence of `length` tokens x [L, d]."""
    positions = torch.arange(length)
    x = encoding.embed(x[None, :length], positions)[:, None]
    _, k = encoding.rotate(x, x, positions, positions)
    return k[0, 0, :count]


def cache_change(spec: Spec, length: int) -> float:
    """Largest change of a cached key's feature when one token follows `length`, relative to the largest feature."""
    with torch.no_grad():
        made, x = spec.build(), _drawn(length + 1, HEAD)
        before, after = (_keys(made, x, n, length) for n in (length, length + 1))
    return _size(after - before) / _size(before)


def cached_keys(evidence: Evidence) -> Judgement:
    """Keys stay as they were for every scheme and scaling, at and past the original length; else those that change."""
    others: dict[str, Spec] = {
        "none": NoneSpec(), "integer": IntegerSpec(d_model=HEAD), "sinusoidal": SinusoidalSpec(d_model=HEAD),
        "learned": LearnedSpec(d_model=HEAD, max_position_embeddings=4 * TRAINED), "alibi": AlibiSpec(n_heads=1),
    }  # fmt: skip
    ropes: dict[str, Spec] = {f"rope, {name}" if name != "none" else "rope": s for name, s in SCALED.items()}
    fixed = DYNAMIC.replace(dynamic_length="maximum")
    all_specs = others | ropes | {"rope, dynamic at a fixed length": fixed}
    at, past = ({n: cache_change(s, length) for n, s in all_specs.items()} for length in (TRAINED, 2 * TRAINED))
    worst = {name: max(at[name], past[name]) for name in all_specs}
    odd = [name for name, c in worst.items() if c > 0]
    # index/(L-1) is a table for one length; where L is the length of the text, every token changes it
    grown = abs(1 / TRAINED - 1 / (TRAINED - 1)) * (TRAINED - 1)
    early, late = extension.frequencies_at(DYNAMIC, [TRAINED, 8 * TRAINED])
    stale = extension.cache_error(DYNAMIC, early, late, torch.arange(TRAINED)).mean().item()
    return decide(
        not odd,
        worst["rope"] == 0,
        (
            Number("schemes and scalings whose cached keys stay", len(all_specs) - len(odd), f"of {len(all_specs)}"),
            Number("rope: change of a cached key", worst["rope"]),
            *(Number(f"{name}: change of a cached key", worst[name], "of the largest feature") for name in odd),
            Number("dynamic: error of scores with keys kept to 8 times", stale, "of a score"),
            Number("index/(L-1) with L the text's length: change of an index", grown),
        ),
        condition=f"frequencies that do not follow the length: the keys of {listed(odd)} change, unless they are "
        "cached unrotated",
        reason="keys of RoPE without any scaling change as well",
    )


# ------------------------------------------------------------------ 26, 27: formula slips


class SlippedSinusoidal(Sinusoidal):
    """sin(p·base^(-2i/d)) beside cos(p·base^(-(2i+1)/d)): the cosine with its own exponent."""

    def vectors(self, positions: Tensor) -> Tensor:
        own = self.spec.base ** (-(torch.arange(1, self.spec.d_model, 2, dtype=torch.float64) / self.spec.d_model))
        sines = phases(positions, geometric(self.spec.base, self.spec.d_model)).sin()
        return torch.stack([sines, phases(positions, own).cos()], dim=-1).flatten(-2)


SPREAD_OVER = 2**20  # positions; the slowest pair of 128 dimensions turns 19 times in them


def _shift_residual(made: Sinusoidal, shift: int) -> tuple[float, float]:
    """What the best linear map from PE(p) to PE(p + shift) leaves, and PE(p + shift): root mean squares of a feature.

    Over 1,024 random positions p below SPREAD_OVER.
    """
    positions = torch.randint(SPREAD_OVER, (1024,), generator=torch.Generator().manual_seed(0))
    here, there = made.vectors(positions), made.vectors(positions + shift)
    left = here @ torch.linalg.lstsq(here, there).solution - there
    return left.square().mean().sqrt().item(), there.square().mean().sqrt().item()


def cosine_exponent(evidence: Evidence) -> Judgement:
    """The same in all that is claimed of the encoding: constant norms, dot products by distance, linear shifts."""
    right, slipped = SinusoidalSpec(d_model=WIDTH).build(), SlippedSinusoidal(SinusoidalSpec(d_model=WIDTH))
    positions, nothing = torch.arange(512), torch.zeros(WIDTH, dtype=torch.float64)
    lengths = slipped.vectors(torch.arange(4096)).norm(dim=-1) / math.sqrt(WIDTH / 2)
    share, share_right = (
        analysis.relative_residual(analysis.unprojected_scores(e, nothing, positions)[0]).share
        for e in (slipped, right)
    )
    (shifted, size), (shifted_right, _) = (_shift_residual(e, 64) for e in (slipped, right))
    wrong = {
        "the vectors' norms differ": (lengths - 1).abs().max().item(),
        "dot products hang on more than the distance": share,
        "shifts are not linear": shifted,
    }
    scale = f"of {size:.2f}, root mean squares over positions below {SPREAD_OVER:,}"
    return decide(
        max(wrong.values()) < ROUNDING,
        False,
        (
            Number("frequency of a sine beside its cosine's", right.spec.base ** (1 / WIDTH)),
            Number("shortest vector", lengths.min().item(), "of the right one"),
            Number("longest vector", lengths.max().item(), "of the right one"),
            Number("dot products of positions 0 to 511: variance not explained by distance", share),
            Number("the same of the right formula", share_right),
            Number("best linear shift by 64: error of a feature", shifted, scale),
            Number("the same of the right formula", shifted_right, scale),
        ),
        reason=listed(what for what, error in wrong.items() if error >= ROUNDING),
    )


DIFFERENT = 0.1  # nats


def unscaled_scores(evidence: Evidence) -> Judgement:
    """Softmax without 1/√d has the entropy of that with it, within DIFFERENT; or only if queries are drawn smaller."""
    keys, queries, count = _drawn(512, HEAD), _drawn(256, HEAD, seed=1), 512
    raw = queries @ keys.T
    with_scale, without = ((raw * s).softmax(-1) for s in (HEAD**-0.5, 1.0))
    small = (queries * HEAD**-0.5 @ keys.T).softmax(-1)  # W_q drawn 1/√d smaller, as T5 does
    entropy, entropy_raw, entropy_small = (
        analysis.attention_entropy(w).mean().item() for w in (with_scale, without, small)
    )
    same, same_small = (abs(entropy - e) <= DIFFERENT for e in (entropy_raw, entropy_small))
    return decide(
        same,
        same_small,
        (
            Number("entropy with 1/√d", entropy, f"nats, at most {math.log(count):.2f}"),
            Number("entropy without", entropy_raw, "nats"),
            Number("largest weight with 1/√d", with_scale.amax(-1).mean().item()),
            Number("largest weight without", without.amax(-1).mean().item()),
            Number("entropy without, queries drawn √d smaller (T5)", entropy_small, "nats"),
        ),
        condition="queries drawn √d smaller, as in T5; else the weights are far sharper: an entropy of "
        f"{entropy_raw:.2f} nats, with the division {entropy:.2f}",
        reason=f"the entropy is {entropy_raw:.2f} nats instead of {entropy:.2f}, and {entropy_small:.2f} with queries "
        "drawn √d smaller",
    )
