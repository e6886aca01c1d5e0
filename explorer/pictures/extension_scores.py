"""Pictures of the Extension page about scores: decay, the bound on the base, the softmax, cached keys."""

from __future__ import annotations

import numpy as np
import pandas as pd

from explorer.charts import curves
from explorer.charts.palette import BLACK, BLUE, GREEN, VERMILLION
from explorer.compute import extension as compute
from explorer.compute.extension import Setting
from explorer.facts import short
from explorer.pictures.common import Lines
from explorer.pictures.extension import COLOURS, SAME, groups, keep, name_of, whole
from explorer.text import Try
from posenc_core.cosine_sums import DENSITY, BaseBound
from posenc_core.extension import LONGEST
from posenc_core.schemes.rope import RopeSpec

FIT = (0.0424, 1.628)  # y = a·x^b, figure 1 of Men et al. 2024
FIT_NAME = "fit, Men et al. 2024"
BASE_LENGTHS, BASES = (64.0, float(LONGEST)), (10.0, 1e12)  # drawn
SMALLEST, ALWAYS = "smallest that fits", "all fit above"
WITHOUT, WITH, UNIFORM = "without the factor", "with it", "uniform: ln L"


# ------------------------------------------------------------------ decay


def decay_lines(made: Setting, method: str) -> Lines:
    """Mean of Σcos/pairs in blocks of distances for all methods; every value's range for the one shown."""
    frames, series = [], []
    for name, colour, methods in groups(made):
        found = compute.decay(made.methods[methods[0]], made.target)
        if method in methods:
            around = compute.envelope(made.methods[method], made.target)
            frames.append(curves.band(name, around.distances, around.low, around.high))
        frames.append(curves.line(name, found.distances, found.means))
        series.append((name, colour))
    frames += [curves.guide("", y=0.0), curves.guide(f"trained: {made.trained:,}", x=float(made.trained))]
    return Lines(curves.together(*frames), tuple(series), "mean of cos(m·w) over the pairs")


def seen_decay(made: Setting, method: str) -> str:
    """Where equal vectors first score below zero."""
    first = compute.negative(made.methods[method], made.target)
    around = compute.envelope(made.methods[method], made.target)
    lowest = int(around.low.argmin())
    cut = f" The band and the search end at {around.searched:,}." if around.searched < made.target else ""
    where = (
        f"stays above zero up to {first.searched:,}"
        if first.distance is None
        else f"first falls below zero at distance {first.distance:,}"
    )
    return (
        f"Lines are exact means of blocks of distances; the band holds every value of {name_of(made, method)}, whose "
        f"score of equal vectors {where} and goes down to {around.low[lowest]:.2f} near "
        f"{short(around.distances[lowest])}.{cut}"
    )


def bound_lines(made: Setting) -> Lines:
    """RoFormer's bound factor, scaled to 1 at distance 0."""
    frames, series = [], []
    for name, colour, methods in groups(made):
        found = compute.decay(made.methods[methods[0]], made.target)
        frames.append(curves.line(name, found.distances, found.bound))
        series.append((name, colour))
    return Lines(curves.together(*frames), tuple(series), "bound factor ÷ its value at 0")


def seen_bound(made: Setting, method: str) -> str:
    """One sentence on RoFormer's factor."""
    shown, plain = (compute.decay(made.methods[m], made.target).bound[-1] for m in (method, "none"))
    return (
        f"RoFormer's factor, mean |S_j|: at the target it is {shown:.3g} with {name_of(made, method)} and {plain:.3g} "
        "unchanged. It bounds scores only together with the size of q and k."
    )


# ------------------------------------------------------------------ the smallest base


def base_lines(made: Setting) -> Lines | None:
    """Length against the smallest base that keeps Σcos above zero; None for a spectrum the bound is not about."""
    if made.base.scaling == "proportional":
        return None
    table = compute.reaches(made.base.rotary_dim)
    lengths = compute.bound_lengths(table.limit)
    bounds = [table.bound(n) or BaseBound(None, None) for n in lengths]
    x = np.array(lengths, dtype=np.float64)
    values = {SMALLEST: [b.smallest for b in bounds], ALWAYS: [b.always for b in bounds]}
    frames = [curves.line(name, x, np.array(y, dtype=np.float64)) for name, y in values.items()]
    frames += [
        curves.line(FIT_NAME, x, FIT[0] * x ** FIT[1]),
        curves.guide(f"base {made.base.base:,.6g}", y=made.base.base),
        curves.guide("trained", x=float(made.trained)), curves.guide("target", x=float(made.target)),
    ]  # fmt: skip
    return Lines(curves.together(*frames), ((SMALLEST, BLUE), (ALWAYS, GREEN), (FIT_NAME, BLACK)), "base")


def seen_base(made: Setting) -> str:
    """The bound at the target beside the base that is used."""
    table = compute.reaches(made.base.rotary_dim)
    bound = table.bound(made.target)
    how = f"{DENSITY} bases a decade were tried, every distance of each"
    if bound is None:
        return (
            f"For {made.base.rotary_dim} rotating features bases were searched up to {table.limit:,} positions ({how})."
        )
    if bound.smallest is None:
        return f"No base up to 10^12 keeps Σcos ≥ 0 for {made.target:,} positions with {made.base.rotary_dim} features."
    enough = "" if bound.always is None else f", and from {whole(bound.always)} on all do"
    verdict = (
        "is below"
        if made.base.base < bound.smallest
        else "fits"
        if compute.fits(made.base, made.target)
        else "does not fit"
    )
    return (
        f"For {made.target:,} positions the smallest base that fits is {whole(bound.smallest)}{enough} ({how}); "
        f"between the two some fit and some do not. The model's {made.base.base:,.6g} {verdict}. It is a bound for "
        "training at that length ([Men et al. 2024](https://arxiv.org/abs/2405.14591)): below it they found low "
        "perplexity and failed retrieval."
    )


def base_try(made: Setting) -> list[Try]:
    """The base that fits, as a link."""
    bound = None if made.base.scaling == "proportional" else compute.reaches(made.base.rotary_dim).bound(made.target)
    wanted = bound and (bound.always or bound.smallest)
    if not wanted or made.base.base >= wanted:
        return [
            Try("a base of 10,000", {"scheme": "rope", "d_head": str(made.base.d_head)} | keep(made), "Below the line.")
        ]
    rounded = float(f"{wanted * 1.005:.3g}")
    changes = {"scheme": "rope", "d_head": str(made.base.d_head), "base": f"{rounded:.10g}"} | keep(made)
    return [Try(f"a base of {rounded:,.10g}", changes, "The dashed line moves onto the curve of bases that all fit.")]


# ------------------------------------------------------------------ softmax


def factor_bars(made: Setting) -> pd.DataFrame:
    """What each method multiplies scores by."""
    values = [(name_of(made, m), compute.attention_factor(s) ** 2) for m, s in made.methods.items()]
    return pd.DataFrame(
        {
            "name": [n for n, _ in values], "value": [v for _, v in values], "series": "score factor",
            "text": [f"{v:.4g}" for _, v in values],
        }
    )  # fmt: skip


def seen_factors(made: Setting) -> str:
    """One sentence on the attention factors."""
    above = [name_of(made, m) for m, s in made.methods.items() if abs(compute.attention_factor(s) - 1) > SAME]
    if not above:
        return "No method here sharpens the scores."
    return f"{', '.join(above)} multiplies scores of rotated features by the square of its attention factor."


def factor_tries(made: Setting) -> list[Try]:
    """A smaller or larger factor."""
    times = 4 if made.factor != 4 else 2
    if made.trained * times > LONGEST:
        return []
    changes = {"trained_length": str(made.trained), "target_length": str(times * made.trained)}
    return [Try(f"{times} times the trained length", changes, "The factor follows the logarithm.")]


def partial_tries(made: Setting, method: str) -> list[Try]:
    """The head that rotates whole, or half."""
    share, name = (
        ("0.5", "half of the head rotates") if made.base.rotary_fraction != 0.5 else ("1", "the whole head rotates")
    )
    changes = {"scheme": "rope", "d_head": str(made.base.d_head), "rotary_fraction": share, "method": "yarn"}
    return [Try(name, keep(made) | changes, "On cos and sin the factor reaches rotated features only.")]


def entropy_lines(made: Setting, method: str) -> Lines:
    """Entropy of the softmax over random keys against their number."""
    found = compute.sharpness(made.methods[method], made.target)
    frames = [
        curves.line(UNIFORM, found.lengths, np.log(found.lengths)),
        curves.line(WITHOUT, found.lengths, found.without), curves.line(WITH, found.lengths, found.with_factor),
        curves.guide("trained", x=float(made.trained)),
    ]  # fmt: skip
    return Lines(curves.together(*frames), ((WITHOUT, VERMILLION), (WITH, BLUE), (UNIFORM, BLACK)), "entropy (nats)")


def divergence_lines(made: Setting, method: str) -> Lines:
    """What the factor changes at each length."""
    found = compute.sharpness(made.methods[method], made.target)
    frames = [
        curves.line("divergence", found.lengths, found.divergence),
        curves.guide("trained", x=float(made.trained)),
    ]
    return Lines(curves.together(*frames), (("divergence", COLOURS[method]),), "KL divergence (nats)")


def seen_entropy(made: Setting, method: str) -> str:
    """The factor's effect at the target and on a short text."""
    found, name = compute.sharpness(made.methods[method], made.target), name_of(made, method)
    factor = compute.attention_factor(made.methods[method])
    if abs(factor - 1) < SAME:
        return f"{name} has no attention factor: both lines are one."
    gain = found.without[-1] - found.with_factor[-1]
    grown = found.lengths[-1]
    more = f" Past {compute.KEYS:,} keys the lines are continued by ln L." if grown > compute.KEYS else ""
    return (
        f"With random q and k, {name} takes {gain:.2f} nats off the entropy at {grown:,.0f} keys: as sharp as without "
        f"the factor over {grown * np.exp(-gain):,.0f}.{more}"
    )


def seen_divergence(made: Setting, method: str) -> str:
    """What it costs on short texts."""
    found, name = compute.sharpness(made.methods[method], made.target), name_of(made, method)
    if abs(compute.attention_factor(made.methods[method]) - 1) < SAME:
        return f"Nothing changes on short texts with {name}."
    short_text = int(np.searchsorted(found.lengths, min(made.trained, found.lengths[-1])))
    return (
        f"The price on short texts: the factor of {name} is there at every length, and moves the softmax over "
        f"{found.lengths[short_text]:,.0f} keys by {found.divergence[short_text]:.3f} nats, over "
        f"{found.lengths[0]:,.0f} by {found.divergence[0]:.3f}."
    )


# ------------------------------------------------------------------ cached keys


def cache_specs(made: Setting) -> dict[str, RopeSpec]:
    """The two methods whose frequencies move with the length; LongRoPE with the sidebar's lists where it has some."""
    out = {m: made.methods[m] for m in ("dynamic",) if m in made.methods}
    base = made.methods.get("longrope") or made.methods["none"]
    if base.scaling == "none":
        fields = {"scaling": "longrope", "factor": made.factor, "original_max_position_embeddings": made.trained}
        base = base.replace(**fields)
    return out | ({"longrope": base} if base.scaling == "longrope" else {})


def cache_lines(made: Setting, current: int) -> Lines | None:
    """Error of a key's score against its position; None where no method's frequencies move."""
    frames, series = [], []
    for name, spec in cache_specs(made).items():
        found = compute.cached(spec, current, made.target)
        x = found.positions + 1
        for label, values, colour in (
            (f"{name}, one by one", found.one_by_one, COLOURS[name]),
            (f"{name}, prompt", found.prompt, COLOURS[name] + "99"),
        ):
            frames.append(curves.line(label, x, values))
            series.append((label, colour))
    if not frames:
        return None
    frames += [
        curves.guide("trained", x=float(made.trained)),
        curves.guide("unrelated angles", y=(2 * made.base.rotary_dim / made.base.d_head) ** 0.5),
    ]
    return Lines(curves.together(*frames), tuple(series), "score error ÷ score (rms)")


def seen_cache(made: Setting, current: int) -> str:
    """The cache semantics, and the worst key."""
    said = []
    for name, spec in cache_specs(made).items():
        found = compute.cached(spec, current, made.target)
        worst = int(found.one_by_one.argmax())
        said.append(f"{name} {found.one_by_one[worst]:.2f} times (key {found.positions[worst]:,.0f})")
    return (
        f"A cache that keeps rotated keys: the scores of a query at {made.target:,} with keys that were turned by the "
        f"frequencies of an earlier length are off by {', '.join(said)}, against recomputing all. One by one: every "
        f"key rotated when it came; prompt: the first {current:,} rotated together. A cache of unrotated keys has no "
        "error, nor have frequencies that never move (vLLM's dynamic NTK)."
    )


def cache_tries(made: Setting, current: int) -> list[Try]:
    """Another prompt."""
    longer = min(made.target, 2 * made.trained if current != 2 * made.trained else 4 * made.trained)
    if longer == current:
        return []
    changes = keep(made) | {"current_length": str(longer)}
    return [Try(f"a prompt of {longer:,}", changes, "Its keys share one set of frequencies.")]
