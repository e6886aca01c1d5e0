"""Pictures of the Extension page about scores: decay, the bound on the base, the softmax, cached keys."""

from __future__ import annotations

import numpy as np
import pandas as pd

from explorer.charts import curves
from explorer.charts.palette import BLACK, BLUE, GREEN, VERMILLION
from explorer.compute import extension as compute
from explorer.compute.extension import Negative, Setting
from explorer.facts import short
from explorer.pictures.common import Lines
from explorer.pictures.extension import COLOURS, CRITERION, SAME, exact, groups, keep, name_of
from explorer.text import Try
from posenc_core import extension
from posenc_core.cosine_sums import DENSITY, BaseBound
from posenc_core.extension import LONGEST
from posenc_core.schemes.rope import RopeSpec

FIT = (0.0424, 1.628)  # y = a·x^b, figure 1 of Men et al. 2024
FIT_NAME = f"fit, {CRITERION}"
BASE_LENGTHS, BASES = (64.0, float(LONGEST)), (10.0, 1e12)  # drawn
SMALLEST, ALWAYS = "smallest tried that fits", "all tried from here fit"
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
    """Where Σcos first falls below zero, and with it or not the score of a vector of ones with itself."""
    spec = made.methods[method]
    first, whole_head = compute.negative(spec, made.target), compute.score_negative(spec, made.target)
    still = spec.d_head - spec.rotary_dim
    around = compute.envelope(made.methods[method], made.target)
    lowest = int(around.low.argmin())
    cut = f" The band and the search end at {around.searched:,}." if around.searched < made.target else ""
    more = (
        f" So does the score of a vector of ones with itself once its {still} still features add {still / 2:g} to the "
        f"sum: it {_falls(whole_head)}."
        if still
        else " It is the score of a vector of ones with itself, and the mean score of random vectors with themselves."
    )
    if still and (first.distance is None) != (whole_head.distance is None):
        more = more.replace(" So does the score", " Not so the score")
    return (
        f"Lines are exact means of blocks of distances; the band holds every value of {name_of(made, method)}, whose "
        f"sum over the rotating pairs {_falls(first)}; its mean goes down to {around.low[lowest]:.2f} near "
        f"{short(around.distances[lowest])}.{more}{cut}"
    )


def _falls(found: Negative) -> str:
    if found.distance is None:
        return f"stays above zero at all distances below {found.searched:,}"
    return f"first falls below zero at distance {found.distance:,}"


def bound_lines(made: Setting) -> Lines:
    """RoFormer's bound factor, scaled to 1 at distance 0."""
    frames, series = [], []
    for name, colour, methods in groups(made):
        found = compute.decay(made.methods[methods[0]], made.target)
        frames.append(curves.line(name, found.distances, found.bound))
        series.append((name, colour))
    frames.append(curves.guide("trained", x=float(made.trained)))
    return Lines(curves.together(*frames), tuple(series), "bound factor ÷ its value at 0")


def seen_bound(made: Setting, method: str) -> str:
    """One sentence on RoFormer's factor."""
    shown, plain = (compute.decay(made.methods[m], made.target).at_target for m in (method, "none"))
    return (
        f"RoFormer's factor, mean |S_j|: at distance {made.target:,} it is {shown:.3g} of its value at 0 with "
        f"{name_of(made, method)} and {plain:.3g} unchanged. It bounds scores only together with the size of q and k."
    )


# ------------------------------------------------------------------ the smallest base


def base_lines(made: Setting) -> Lines | None:
    """Length against the smallest base tried that keeps Σcos above zero; None for a spectrum the bound is not about."""
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
        curves.guide(f"base {exact(made.base.base)}", y=made.base.base),
    ]  # fmt: skip
    lengths_shown = {"trained": made.trained, "target": made.target}
    if made.target == made.trained:
        lengths_shown = {"trained, target": made.target}
    frames += [curves.guide(name, x=float(length)) for name, length in lengths_shown.items()]
    return Lines(curves.together(*frames), ((SMALLEST, BLUE), (ALWAYS, GREEN), (FIT_NAME, BLACK)), "base")


def seen_base(made: Setting) -> str:
    """The bound at the target beside the base that is used."""
    bound = compute.bound(made.base.rotary_dim, made.target)
    how = f"{DENSITY} bases a decade were tried, every distance of each"
    if bound is None:
        limit = compute.reaches(made.base.rotary_dim).limit
        return f"For {made.base.rotary_dim} rotating features bases were searched up to {limit:,} positions ({how})."
    if bound.smallest is None:
        return (
            f"No base tried up to 10^12 keeps Σcos ≥ 0 for {made.target:,} positions with {made.base.rotary_dim} "
            "rotating features."
        )
    enough = "" if bound.always is None else f", and every one tried from {exact(bound.always)} on does"
    return (
        f"For {made.target:,} positions the smallest base tried that keeps Σcos of the rotating pairs above zero is, "
        f"rounded up, {exact(bound.smallest)}{enough} ({how}); below, between and above, bases that were not tried may "
        f"do otherwise. {_own_base(made)} It is the criterion of [{CRITERION}](https://arxiv.org/abs/2405.14591) for "
        "training at that length, which they call not very strict: with smaller bases they found low perplexity and "
        "failed retrieval."
    )


def _own_base(made: Setting) -> str:
    """Whether the model's own base fits, which no base beside it can tell."""
    spec, still = extension.unscaled(made.base), made.base.d_head - made.base.rotary_dim
    name, found = f"The model's {exact(made.base.base)}", compute.negative(spec, made.target)
    if found.distance is None:
        return f"{name} fits." if found.searched >= made.target else f"{name} fits up to {found.searched:,}."
    if still and compute.fits(made.base, made.target):
        return (
            f"{name} does not fit by its rotating pairs (distance {found.distance:,}), but with the {still / 2:g} that "
            f"its {still} still features add it does."
        )
    return f"{name} does not fit: Σcos is below zero at distance {found.distance:,}."


BELOW = (10_000.0, 500.0, 10.0)  # bases of a link to what does not fit


def base_try(made: Setting) -> list[Try]:
    """A base that fits, or one that does not where the model's own fits."""
    bound = None if made.base.scaling == "proportional" else compute.reaches(made.base.rotary_dim).bound(made.target)
    if bound is None or bound.smallest is None:
        return []
    common = {"scheme": "rope", "d_head": str(made.base.d_head)} | keep(made)
    if compute.fits(made.base, made.target):
        below = next((b for b in BELOW if compute.fits(made.base.replace(base=b), made.target) is False), None)
        return [] if below is None else [Try(f"a base of {exact(below)}", common | {"base": f"{below:.13g}"},
                                             "The dashed line falls below the curves.")]  # fmt: skip
    wanted = bound.always or bound.smallest
    # a base that was tried fits; written in few digits it is another one
    written = (float(f"{wanted * 1.005:.{digits}g}") for digits in (2, 3, 4))
    fitting = next((b for b in written if b >= wanted and compute.fits(made.base.replace(base=b), made.target)), wanted)
    then = "The dashed line moves onto the curve of bases from which all tried fit."
    return [Try(f"a base of {exact(fitting)}", common | {"base": f"{fitting:.17g}"}, then if bound.always else "")]


# ------------------------------------------------------------------ softmax


def factor_bars(made: Setting) -> pd.DataFrame:
    """What each method multiplies scores by."""
    values = [(name_of(made, m), compute.score_factor(s)) for m, s in made.methods.items()]
    return pd.DataFrame(
        {
            "name": [n for n, _ in values], "value": [v for _, v in values], "series": "score factor",
            "text": [f"{v:.4g}" for _, v in values],
        }
    )  # fmt: skip


def seen_factors(made: Setting) -> str:
    """What part of each method's factor acts on what."""
    said = []
    for method, spec in made.methods.items():
        factor, tables, on_all = compute.scales(spec)
        parts = []
        if abs(tables - 1) > SAME:
            parts.append(f"scores of rotating features by {tables**2:.4g}, the square of its attention factor")
        if abs(on_all - 1) > SAME:
            own = factor**2 / tables**2  # on_all = own·g²
            names = [f"the square of its attention factor {factor:.4g}"] if abs(own - 1) > SAME else []
            names += ["g(mscale_all_dim)²"] if abs(on_all / own - 1) > SAME else []
            parts.append(f"all scores by {on_all:.4g}, {' times '.join(names)}")
        if parts:
            said.append(f"{name_of(made, method)} multiplies {', and '.join(parts)}")
    return f"{'; '.join(said)}." if said else "No method here sharpens the scores."


def sharpens(spec: RopeSpec) -> bool:
    """Whether a method multiplies any scores."""
    scales = compute.scales(spec)
    return abs(scales.tables - 1) > SAME or abs(scales.scores - 1) > SAME


def factor_tries(made: Setting) -> list[Try]:
    """A smaller or larger factor."""
    times = 4 if made.factor != 4 else 2
    if made.trained * times > LONGEST:
        return []
    changes = {"trained_length": str(made.trained), "target_length": str(times * made.trained)}
    return [Try(f"{times} times the trained length", changes, "The factor follows the logarithm.")]


def partial_tries(made: Setting, method: str) -> list[Try]:
    """The head that rotates whole, or half, where there is a factor."""
    if made.factor == 1:
        return []
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
    if not sharpens(made.methods[method]):
        return f"{name} multiplies no scores: both lines are one."
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
    if not sharpens(made.methods[method]):
        return f"Nothing changes on short texts with {name}."
    short_text = int(np.searchsorted(found.lengths, min(made.trained, found.lengths[-1])))
    return (
        f"The price on short texts: the factor of {name} is there at every length, and moves the softmax over "
        f"{found.lengths[short_text]:,.0f} keys by {found.divergence[short_text]:.3f} nats, over "
        f"{found.lengths[0]:,.0f} by {found.divergence[0]:.3f}."
    )


# ------------------------------------------------------------------ cached keys


def cache_specs(made: Setting) -> dict[str, RopeSpec]:
    """The two methods whose frequencies move with the length; LongRoPE with the sidebar's lists where it has some, else
    with the factor for every pair."""
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
        if found.one_by_one[worst] > SAME:
            said.append(f"{name} {found.one_by_one[worst]:.2f} times (key {found.positions[worst]:,.0f})")
    stands = (
        ""
        if "longrope" in made.methods
        else f" longrope stands here for LongRoPE with the factor {made.factor:g} for every pair past {made.trained:,}."
    )
    off = (
        f"are off by {', '.join(said)}, against recomputing all"
        if said
        else "are as if all were recomputed, since no frequency moves up to there"
    )
    return (
        f"A cache that keeps rotated keys: the scores of a query at {made.target:,} with keys that were turned by the "
        f"frequencies of an earlier length {off}.{stands} One by one: every key rotated when it came; prompt: the "
        f"first {current:,} rotated together. A cache of unrotated keys has no error, nor have frequencies that never "
        "move (vLLM's dynamic NTK)."
    )


def cache_tries(made: Setting, current: int) -> list[Try]:
    """Another prompt."""
    longer = min(made.target, 2 * made.trained if current != 2 * made.trained else 4 * made.trained)
    if longer == current:
        return []
    changes = keep(made) | {"current_length": str(longer)}
    return [Try(f"a prompt of {longer:,}", changes, "Its keys share one set of frequencies.")]
