"""Pictures, key numbers and sentences of the Decay page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from explorer.charts import curves, maps
from explorer.charts.heatmap import Axis, Heatmap
from explorer.charts.palette import BLACK, BLUE, HEAD_COLOURS, SCHEME_COLOURS, SKY, VERMILLION
from explorer.compute import decay as compute
from explorer.compute.common import TRAIN_LENGTH, Array
from explorer.facts import Fact, short
from explorer.pictures.common import Lines, spread
from explorer.text import SCHEME_TEXT, Try
from posenc_core import SCHEMES, Spec
from posenc_core.schemes.alibi import AlibiSpec

PROJECTIONS: dict[str, str] = {"identity": "positions alone", "random": "random W", "trained": "trained W"}
MAX_HEADS = 8  # drawn as lines
FLOOR = 10.0  # score below which a key is as good as gone: weight 5e-5
THUMBNAIL = 128  # cells on a side
RESIDUAL_LIMIT = 2.0  # standard deviations that take the strongest colour
ROUNDING = 1e-12  # of a share
DRAWN = f"Random W: median of {compute.W_DRAWS[1]} draws (fewer for wide vectors), lowest to highest."
FLAT = 1e-9  # scores that differ by less are the same
NEAR_ZERO = 0.25  # of the standard deviation of a random pair's score, which is 1
BOUND = "bound factor"
BOUND_MEANING = "mean |S_j| scaled to 1 at distance 0: the shape of the bound; scores can lie above it"
Unit = Literal["relative", "score", "weight"]
TINTS = ("ff", "a6", "66")  # opacity of the curves of one scheme from several positions


@dataclass(frozen=True)
class Score(Lines):
    """Score against distance, with the options that its chart needs."""

    bands: bool = False
    y_domain: tuple[float, float] | None = None
    dashed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curve:
    """One line: a label, distances, values."""

    label: str
    x: Array
    y: Array


def percent(share: float) -> str:
    """A share of the variance, 0% where it is rounding."""
    return "0%" if share < ROUNDING else f"{100 * share:.3g}%"


def percents(share: compute.Share) -> str:
    """A share of the variance, with the range over the draws where it is one: 86.3% (80–98%)."""
    shown = percent(share.median)
    return (
        shown
        if percent(share.low) == percent(share.high)
        else f"{shown} ({100 * share.low:.0f}–{100 * share.high:.0f}%)"
    )


def colours(specs: Sequence[Spec]) -> list[str]:
    """The schemes' colours; the second of two that cannot be told apart takes another."""
    made = [SCHEME_COLOURS[s.scheme] for s in specs]
    if len(set(made)) < len(specs) or set(made) == {BLUE, SKY}:
        made[1] = BLUE if made[0] == VERMILLION else VERMILLION
    return made


def heads_of(spec: Spec, projection: str) -> int:
    """Heads to choose from."""
    return compute.model_heads(spec) if projection == "trained" else compute.head_count(spec)


# ---------------------------------------------------------------- score against distance


def curves_of(spec: Spec, seq_len: int, unit: Unit) -> list[Curve]:
    """Scores against distance by position alone.

    relative: divided by the score at distance 0; score: minus it; weight: exp of that. A bias is 0 at distance 0, so
    `relative` gives it as it is.
    """
    if spec.hook == "bias":
        heads = tuple(spread(compute.head_count(spec), MAX_HEADS))
        made = compute.biases(spec, seq_len, heads)
        return [
            Curve(f"head {h}", made.distances, np.exp(y) if unit == "weight" else y)
            for h, y in zip(heads, made.scores, strict=True)
        ]
    x: Array = np.arange(seq_len, dtype=np.float64)
    if spec.hook == "embed":
        dots = compute.dots(spec, seq_len)
        x = dots.distances
        named = [(f"from p = {p}", y) for p, y in zip(dots.positions, dots.scores, strict=True)]
        named = [("from every p", named[0][1])] if spec.scheme == "sinusoidal" else named
    else:
        named = [("equal vectors", compute.equal(spec, seq_len))]
    return [Curve(label, x, _from_zero(y, unit)) for label, y in named]


def _from_zero(y: Array, unit: Unit) -> Array:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        made: Array = {"relative": lambda: y / y[0], "score": lambda: y - y[0], "weight": lambda: np.exp(y - y[0])}[
            unit
        ]()
    return np.where(np.isfinite(made), made, np.nan)


def unit_of(specs: Sequence[Spec], curve: str) -> Unit:
    """What the curves are drawn in: a bias and a score relative to distance 0 have the score itself in common."""
    if not any(s.hook == "bias" for s in specs):
        return "relative"
    return "weight" if curve == "weight" else "score"


def score_lines(specs: Sequence[Spec], names: Sequence[str], seq_len: int, draws: int, curve: str) -> Score:
    """The one large picture."""
    unit = unit_of(specs, curve)
    rises = any(s.scheme in ("integer", "learned") for s in specs)
    title, domain = {
        "relative": ("score relative to distance 0", (0.0, 1.1) if {s.hook for s in specs} == {"none"} else None),
        "score": ("score minus score at distance 0", (-FLOOR, FLOOR if rises else 0.25)),
        "weight": ("attention weight relative to distance 0", (0.0, 1.03)),
    }[unit]
    rotation = len(specs) == 1 and specs[0].hook == "rotate"
    if len(specs) > 1:
        frames, series, dashed = _compared(specs, names, seq_len, unit)
    elif rotation:
        frames, series, dashed = _rotation(specs[0], seq_len, draws)
    else:
        frames, series, dashed = _alone(specs[0], seq_len, unit)
    if seq_len > TRAIN_LENGTH:
        frames = [*frames, curves.guide(f"training length of the toy models ({TRAIN_LENGTH})", x=TRAIN_LENGTH)]
    return Score(curves.together(*frames), series, title, rotation, domain, dashed)


_Made = tuple[list[pd.DataFrame], tuple[tuple[str, str], ...], tuple[str, ...]]


def _alone(spec: Spec, seq_len: int, unit: Unit) -> _Made:
    lines = curves_of(spec, seq_len, unit)
    colour = SCHEME_COLOURS[spec.scheme]
    hues = list(HEAD_COLOURS) if spec.hook == "bias" else [colour + t for t in TINTS] if len(lines) > 1 else [colour]
    series = tuple((c.label, hue) for c, hue in zip(lines, hues, strict=False))
    return [curves.line(c.label, c.x, c.y) for c in lines], series, ()


def _rotation(spec: Spec, seq_len: int, draws: int) -> _Made:
    colour = SCHEME_COLOURS[spec.scheme]
    (equal,), (x, bound) = curves_of(spec, seq_len, "relative"), compute.bound(spec, seq_len)
    random = compute.random(spec, seq_len, draws)
    upper, noise = _bound_name(spec), "random q, k"
    frames = [
        curves.band(noise, random.distances, random.low, random.high),
        curves.line(noise, random.distances, random.mean),
        curves.line(upper, x, bound), curves.line(equal.label, equal.x, equal.y),
    ]  # fmt: skip
    return frames, ((equal.label, colour), (upper, colour), (noise, BLACK)), (upper,)


def _bound_name(spec: Spec) -> str:
    pairs, total = len(compute.rotating(spec)), compute.head_dim(spec) // 2
    return f"RoFormer's {BOUND}" + (f" ({pairs} rotating pairs)" if pairs < total else "")


def _compared(specs: Sequence[Spec], names: Sequence[str], seq_len: int, unit: Unit) -> _Made:
    frames, series, dashed = list[pd.DataFrame](), list[tuple[str, str]](), list[str]()
    for spec, name, colour in zip(specs, names, colours(specs), strict=True):
        frames += [curves.line(name, c.x, c.y, strand=i) for i, c in enumerate(curves_of(spec, seq_len, unit))]
        series.append((name, colour))
        if spec.hook == "rotate" and unit == "relative":
            upper = _bound_name(spec).removeprefix("RoFormer's ") + f", {name}"
            frames.append(curves.line(upper, *compute.bound(spec, seq_len)))
            series.append((upper, colour))
            dashed.append(upper)
    return frames, tuple(series), tuple(dashed)


def half_distance(spec: Spec, seq_len: int) -> int | None:
    """The distance at which the (first) curve falls below half of its value at 0; None if it does not."""
    curve = curves_of(spec, seq_len, "relative")[0]
    below = np.flatnonzero(curve.y < 0.5)
    return int(curve.x[below[0]]) if len(below) else None


def _positions(distance: float | None, seq_len: int) -> str:
    if distance is None:
        return f"not within {seq_len:,}"
    return f"{short(distance)} position{'' if distance == 1 else 's'}"


def reaches(spec: AlibiSpec) -> Array:
    """Distance at which each head's weight has fallen to 1/e; infinite for a slope of 0."""
    return (1 / spec.slope_tensor()).numpy()


def _reach(distance: float) -> str:
    return "never" if np.isinf(distance) else f"{short(distance)} position{'' if distance == 1 else 's'}"


@dataclass(frozen=True)
class Ends:
    """(distance, value) of a curve's lowest and last point."""

    lowest: tuple[int, float]
    last: tuple[int, float]


def _ends(spec: Spec, seq_len: int) -> Ends | None:
    """Of the (first) curve relative to distance 0; None if it has no value."""
    curve = curves_of(spec, seq_len, "relative")[0]
    known = np.flatnonzero(np.isfinite(curve.y))
    if not len(known):
        return None
    low, last = known[curve.y[known].argmin()], known[-1]
    return Ends((int(curve.x[low]), float(curve.y[low])), (int(curve.x[last]), float(curve.y[last])))


def start_difference(spec: Spec, seq_len: int) -> float | None:
    """The largest difference between the curves from different positions; None if none share a distance."""
    dots = compute.dots(spec, seq_len)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = dots.scores[:, 1:] / dots.scores[:, :1]
    shared = relative[:, np.isfinite(relative).all(0)]
    return float(np.ptp(shared, axis=0).max()) if len(shared) > 1 and shared.size else None


# ---------------------------------------------------------------- key numbers


def key_numbers(specs: Sequence[Spec], seq_len: int, draws: int, head: int, projection: str) -> list[Fact]:
    """Three to five numbers; two of each scheme where two are compared."""
    if len(specs) > 1:
        return [
            (f"{which}: {name}", value, meaning)
            for which, spec in zip(("first", "second"), specs, strict=True)
            for name, value, meaning in (
                _first_number(spec, seq_len, head),
                _share_number(spec, projection, head, seq_len),
            )
        ]
    (spec,) = specs
    more = {"rotate": _rotation_numbers, "embed": _vector_numbers, "bias": _bias_numbers}.get(spec.hook, _last_number)
    return [
        _first_number(spec, seq_len, head),
        *more(spec, seq_len, draws),
        _share_number(spec, projection, head, seq_len),
    ]


def _first_number(spec: Spec, seq_len: int, head: int) -> Fact:
    if isinstance(spec, AlibiSpec):
        head = min(head, spec.n_heads - 1)
        reach = float(reaches(spec)[head])
        return (f"1/e in head {head}", _reach(reach),
                "distance at which the weight of a key has fallen to 1/e, all else equal")  # fmt: skip
    what = "PE(p)·PE(p + k)" if spec.hook == "embed" else "the score of equal vectors"
    return ("below half", _positions(half_distance(spec, seq_len), seq_len),
            f"distance at which {what} first falls below half of its value at 0")  # fmt: skip


def _share_number(spec: Spec, projection: str, head: int, seq_len: int) -> Fact:
    share = compute.share(spec, projection, head, seq_len)
    if share is None:
        return ("beyond m - n", "no model", "no toy model was trained with this scheme")
    drawn = f" (median of {share.draws} draws, lowest to highest)" if share.draws > 1 else ""
    return ("beyond m - n", percents(share),
            f"share of the scores' variance that the distance does not explain, {PROJECTIONS[projection]}{drawn}; "
            f"computed: {share.median:.1e}")  # fmt: skip


def _rotation_numbers(spec: Spec, seq_len: int, draws: int) -> list[Fact]:
    random, (_, bound) = compute.random(spec, seq_len, draws), compute.bound(spec, seq_len)
    return [
        (f"{BOUND} at {seq_len - 1:,}", short(float(bound[-1])), f"RoFormer's {BOUND} there, {BOUND_MEANING}"),
        ("random mean", f"{random.mean.mean():.2f}", f"mean q·k/√d of {draws} random pairs over all distances"),
        ("random 80%", f"{random.low.mean():.2f} … {random.high.mean():.2f}",
         "the middle 80% of the random pairs, averaged over all distances; a normal distribution has ±1.28"),
    ]  # fmt: skip


def _vector_numbers(spec: Spec, seq_len: int, draws: int) -> list[Fact]:
    differ = start_difference(spec, seq_len)
    return [
        ("depends on p", "–" if differ is None else f"{differ:.2g}",
         "largest difference between the curves from different positions"),
        *_last_number(spec, seq_len, draws),
    ]  # fmt: skip


def _last_number(spec: Spec, seq_len: int, draws: int) -> list[Fact]:
    ends = _ends(spec, seq_len)
    if ends is None:
        return []
    return [(f"at {ends.last[0]:,}", short(ends.last[1]), "relative score at the farthest distance that has a value")]


def _bias_numbers(spec: Spec, seq_len: int, draws: int) -> list[Fact]:
    assert isinstance(spec, AlibiSpec)
    reach = reaches(spec)
    return [
        ("shortest reach", _reach(float(reach.min())), "1/e distance of the steepest head"),
        ("longest reach", _reach(float(reach.max())), "1/e distance of the gentlest head"),
        ("heads that see all", f"{int((reach > seq_len - 1).sum())} of {len(reach)}",
         f"heads whose weight is still above 1/e at distance {seq_len - 1:,}"),
    ]  # fmt: skip


# ---------------------------------------------------------------- score matrices


def matrices(specs: Sequence[Spec], names: Sequence[str], projection: str, head: int, seq_len: int) -> list[Heatmap]:
    """Scores of one token against itself, query position down, key position across, on one scale.

    The scale is the smaller of two schemes' ranges, so that one that falls without limit leaves the other its colours.
    """
    made = [compute.matrix(s, projection, head, seq_len) for s in specs]
    found = [(m, n, s) for m, n, s in zip(made, names, specs, strict=True) if m is not None]
    values = [_from_diagonal(m.scores) for m, _, _ in found]
    domain = _domain(values)
    return [
        replace(
            maps.scores_map(v, "score minus the diagonal's mean", domain), title=n if len(specs) > 1 else "",
            value_unit="", undefined_label=undefined_label(s),
        )
        for v, (_, n, s) in zip(values, found, strict=True)
    ]  # fmt: skip


def _from_diagonal(scores: Array) -> Array:
    diagonal = np.diag(scores)
    values: Array = scores - diagonal[np.isfinite(diagonal)].mean()
    return values


def undefined_label(spec: Spec) -> str:
    """Why a score is missing."""
    return "forbidden by the causal mask" if spec.hook == "bias" else "no row in the table"


def _domain(values: Sequence[Array]) -> tuple[float, float]:
    limits = [high for v in values if (high := np.abs(v[np.isfinite(v)]).max(initial=0.0)) > FLAT]
    high = float(min(limits, default=1.0))
    return -high, high


def clipped(panels: Sequence[Heatmap]) -> bool:
    """Whether some scores lie outside the common scale."""
    return any(max(abs(v) for v in p.data_range()) > p.domain[1] * (1 + 1e-9) for p in panels)


def difference(panels: Sequence[Heatmap]) -> Heatmap | None:
    """First minus second on the same scale; None unless there are two."""
    if len(panels) != 2:
        return None
    first, second = panels
    with np.errstate(invalid="ignore"):
        values = first.values - second.values
    return replace(first, values=values, value_title="first minus second", title="first minus second",
                   undefined_label="missing in one of them")  # fmt: skip


# ---------------------------------------------------------------- relative-only residual


def residuals(specs: Sequence[Spec], names: Sequence[str], head: int, seq_len: int) -> list[Heatmap]:
    """What the distance does not explain, in standard deviations: a row a scheme, a column a projection."""
    panels = []
    for spec, name in zip(specs, names, strict=True):
        for projection, words in PROJECTIONS.items():
            made = compute.matrix(spec, projection, head, seq_len)
            if made is None:
                continue
            step = -(-len(made.residual) // THUMBNAIL)
            share = compute.share(spec, projection, head, seq_len)
            drawn = f" (one of {share.draws})" if share is not None and share.draws > 1 else ""
            title = f"{words}{drawn}: {percent(made.share)}"
            panels.append(
                Heatmap(
                    made.residual[::step, ::step],
                    Axis("key position n", step=step),
                    Axis("query position m", step=step),
                    "residual",
                    "standard deviations",
                    "diverging",
                    (-RESIDUAL_LIMIT, RESIDUAL_LIMIT),
                    title=f"{title}, {name}" if len(specs) > 1 else title,
                    undefined_label=undefined_label(spec),
                )
            )
    return panels


@dataclass(frozen=True)
class Shares:
    """Residual shares in percent for charts.bars, and the bars' names with their colours."""

    data: pd.DataFrame
    series: tuple[tuple[str, str], ...]


def shares(specs: Sequence[Spec], names: Sequence[str], head: int, seq_len: int) -> Shares:
    """Every scheme under every projection; the chosen ones as they are set and in full colour, the others as usual."""
    chosen = dict(zip(names, zip(specs, colours(specs), strict=True), strict=True))
    shown = [s.scheme for s in specs]
    rest = {
        SCHEME_TEXT[n].name: (made(), SCHEME_COLOURS[n] + "66")
        for n, made in SCHEMES.items()
        if made.hook != "layers" and n not in shown
    }
    rows = [
        {"name": words, "series": name, "value": 100 * share.median, "text": f"{name} {percents(share)}"}
        for projection, words in PROJECTIONS.items()
        for name, (spec, _) in (chosen | rest).items()
        if (share := compute.share(spec, projection, head if name in chosen else 0, seq_len)) is not None
    ]
    series = tuple((name, colour) for name, (_, colour) in (chosen | rest).items())
    return Shares(pd.DataFrame(rows), series)


# ---------------------------------------------------------------- sentences


def seen_lines(specs: Sequence[Spec], names: Sequence[str], seq_len: int, draws: int, curve: str) -> str:
    """What the large picture shows."""
    if len(specs) > 1:
        return _seen_two(specs, names, seq_len, unit_of(specs, curve))
    (spec,) = specs
    if isinstance(spec, AlibiSpec):
        return _seen_heads(reaches(spec))
    if spec.hook == "rotate":
        return _seen_rotation(spec, seq_len, draws)
    if spec.hook == "embed":
        return _seen_vectors(spec, seq_len)
    return "Distance changes nothing: a key scores the same wherever it stands."


def _seen_heads(reach: Array) -> str:
    near, far = int(reach.argmin()), int(reach.argmax())
    ends = [
        f"never in head {h}" if np.isinf(reach[h]) else f"after {_reach(float(reach[h]))} in head {h}"
        for h in dict.fromkeys((near, far))
    ]
    falls = "no weight ever falls" if np.isinf(reach[near]) else f"a weight is down to 1/e {' and '.join(ends)}"
    return f"Every head subtracts its slope times the distance: {falls}."


def _falls(spec: Spec, seq_len: int) -> str:
    """Where the (first) curve falls below half, or how far it does not."""
    half, ends = half_distance(spec, seq_len), _ends(spec, seq_len)
    if half is not None:
        return f"first falls below half at distance {half:,}"
    return "has no value" if ends is None else f"stays above half up to {ends.last[0]:,}"


def _seen_rotation(spec: Spec, seq_len: int, draws: int) -> str:
    random, ends, still = compute.random(spec, seq_len, draws), _ends(spec, seq_len), still_features(spec)
    assert ends is not None
    (low_at, low), (last_at, last) = ends.lowest, ends.last
    share = still / compute.head_dim(spec)
    constant = f" The {still} features that do not rotate hold it up by {share:.0%}." if still else ""
    near = "near 0, " if max(abs(random.mean.min()), abs(random.mean.max())) < NEAR_ZERO else ""
    width = random.high - random.low
    return (
        f"The score of equal vectors (q = k) {_falls(spec, seq_len)}; it is lowest at {low_at:,} ({short(low)}) and "
        f"{short(last)} at {last_at:,}.{constant} Of {draws} random pairs, q·k/√d averages {random.mean.min():.2f} to "
        f"{random.mean.max():.2f}, {near}and the middle 80% (shaded) span {random.low.mean():.2f} to "
        f"{random.high.mean():.2f}, a mean over all distances: {width[0]:.2f} wide at 0, {width[-1]:.2f} at "
        f"{random.distances[-1]:,.0f}. Dashed: RoFormer's {BOUND}, {BOUND_MEANING}."
    )


def _seen_vectors(spec: Spec, seq_len: int) -> str:
    differ, positions = start_difference(spec, seq_len), compute.dots(spec, seq_len).positions
    falls = "grows with the distance: farther tokens score higher" if _grows(spec, seq_len) else _falls(spec, seq_len)
    if differ is None:
        return f"From p = {positions[0]}, PE(p)·PE(p + k) {falls}; no other p has values at the same distances."
    if differ < FLAT:
        starts = f"from p = {', '.join(map(str, positions))}"
        same = f"{starts} the curves differ by at most {differ:.0e}" if differ else f"the curves {starts} are the same"
        return f"PE(p)·PE(p + k) {falls}, and it does not depend on p: {same}."
    return f"The curve depends on where it starts, by up to {short(differ)}; from p = {positions[0]} the score {falls}."


def _grows(spec: Spec, seq_len: int) -> bool:
    y = curves_of(spec, seq_len, "relative")[0].y
    y = y[np.isfinite(y)]
    return len(y) > 1 and bool((np.diff(y) > 0).all())


def _seen_two(specs: Sequence[Spec], names: Sequence[str], seq_len: int, unit: Unit) -> str:
    if unit == "relative":
        parts = [f"{n}: {_positions(half_distance(s, seq_len), seq_len)}" for s, n in zip(specs, names, strict=True)]
        rotates = any(s.hook == "rotate" for s in specs)
        bounds = f" Dashed: RoFormer's {BOUND}, {BOUND_MEANING}." if rotates else ""
        return f"Distance at which the score first falls below half: {'; '.join(parts)}.{bounds}"
    if all(s.hook == "bias" for s in specs):
        first, second = map(_reach_range, specs)
        return f"Every line is a head. Distance at which a weight is down to 1/e: {first} against {second}."
    distance = seq_len // 2
    parts = []
    for spec, name in zip(specs, names, strict=True):
        ends = [float(np.interp(distance, c.x, c.y)) for c in curves_of(spec, seq_len, "score")]
        low, high = short(min(ends) + 0.0), short(max(ends) + 0.0)  # no minus before a zero
        parts.append(f"{name} {low}" + (f" to {high}" if high != low else ""))
    rotated = " A bias holds for every content, the curve of a rotation only for equal vectors."
    return f"In scores, the unit that both have: at distance {distance:,}, {' and '.join(parts)}." + (
        rotated if any(s.hook == "rotate" for s in specs) else ""
    )


def _reach_range(spec: Spec) -> str:
    assert isinstance(spec, AlibiSpec)
    reach = reaches(spec)
    near, far = float(reach.min()), float(reach.max())
    if near == far:
        return _reach(near)
    return f"{_reach(near)} to never" if np.isinf(far) else f"{short(near)} to {_reach(far)}"


def try_lines(specs: Sequence[Spec], seq_len: int) -> list[Try]:
    """What to change for another large picture, with the number that will change."""
    spec = specs[0]
    if len(specs) > 1:
        return [Try("without the second scheme", {"b_scheme": ""}, "The first one alone, with all its curves.")]
    if spec.scheme == "rope":
        base = "500000" if getattr(spec, "base", 0) != 500_000 else "10000"
        other = spec.replace(base=float(base))
        before, after = (_positions(half_distance(s, seq_len), seq_len) for s in (spec, other))
        query = {f"b_{k}": v for k, v in other.to_query().items()}
        return [
            Try(f"base {float(base):,.0f} beside it", query, f"Below half: {after} instead of {before}."),
            Try("ALiBi beside it", {"b_scheme": "alibi"}, "Its weights fall for every content."),
        ]
    if spec.scheme == "sinusoidal":
        other = spec.replace(base=100.0)
        before, after = (_positions(half_distance(s, seq_len), seq_len) for s in (spec, other))
        return [Try("base 100", {"base": "100"}, f"Below half: {after} instead of {before}.")]
    if isinstance(spec, AlibiSpec):
        return [Try("RoPE beside it", {"b_scheme": "rope"}, "Its equal vectors fall and come back, in waves.")]
    if spec.scheme == "integer" and getattr(spec, "variant", "") != "one_hot":
        return [Try("one-hot positions", {"variant": "one_hot"}, "All distances but 0 become the same.")]
    return [Try("sinusoidal beside it", {"b_scheme": "sinusoidal"}, "One curve for every position, and it falls.")]


def seen_matrix(
    specs: Sequence[Spec], names: Sequence[str], projection: str, head: int, seq_len: int, panels: Sequence[Heatmap]
) -> str:
    """What the score matrix shows."""
    n = min(seq_len, compute.MATRIX)
    which = "all" if n == seq_len else "the first"
    read = {
        "identity": "position vectors alone, or equal vectors where they rotate",
        "random": "random W_q and W_k of variance 1/d, one random content everywhere",
        "trained": f"first layer of the toy model, head {head}, reading “{chr(compute.TOKEN)}” everywhere",
    }[projection]
    parts = []
    for spec, name in zip(specs, names, strict=True):
        made = compute.matrix(spec, projection, head, seq_len)
        if made is None:
            parts.append(f"{name}: no toy model was trained with this scheme")
        else:
            share = compute.share(spec, projection, head, seq_len)
            several = share is not None and percents(share) != percent(share.median)
            drawn = (
                f" in this draw; median of {share.draws}: {percents(share)}" if share is not None and several else ""
            )
            parts.append(f"{name}: {percent(made.share)} of the variance is not explained by m - n{drawn}")
    limit = f" Scores beyond ±{short(panels[0].domain[1])} take the end colour." if clipped(panels) else ""
    return f"One token against itself at {which} {n} positions ({read}). {'; '.join(parts)}.{limit}"


def try_projection(specs: Sequence[Spec], projection: str, head: int, seq_len: int, keep: dict[str, str]) -> list[Try]:
    """The other projections, with what becomes of the share."""
    order = list(PROJECTIONS)
    other = order[(order.index(projection) + 1) % len(order)]
    pairs = [[compute.share(s, p, head, seq_len) for p in (projection, other)] for s in specs]
    known = [(a.median, b.median) for a, b in pairs if a is not None and b is not None]
    if not known:
        return [Try(PROJECTIONS[other], keep | {"projection": other})]
    largest = max(known, key=lambda k: abs(k[1] - k[0]))
    before, after = percent(largest[0]), percent(largest[1])
    then = f"Still {after} beyond m - n." if after == before else f"Beyond m - n: {after}, not {before}."
    return [Try(PROJECTIONS[other], keep | {"projection": other}, then)]


def seen_residuals(specs: Sequence[Spec], names: Sequence[str], head: int, seq_len: int) -> str:
    """What the residuals show."""
    parts = []
    for spec, name in zip(specs, names, strict=True):
        found = [m for p in PROJECTIONS if (m := compute.share(spec, p, head, seq_len)) is not None]
        most = max(m.high for m in found)
        parts.append(
            f"{name}: nothing remains but rounding, whatever W is (at most {most:.0e} of the variance)"
            if most < ROUNDING
            else f"{name}: {', '.join(map(percents, found))} of the variance depends on where, not on how far"
        )
    return f"Scores minus the mean of their diagonal, in standard deviations. {'; '.join(parts)}. {DRAWN}"


def seen_shares(data: pd.DataFrame) -> str:
    """Why adding loses what rotating keeps, in numbers."""

    def share(series: str, projection: str) -> float | None:
        found = data[(data["series"].str.startswith(series)) & (data["name"] == PROJECTIONS[projection])]["value"]
        return float(found.iloc[0]) / 100 if len(found) else None

    added = [share(SCHEME_TEXT["sinusoidal"].name, p) for p in PROJECTIONS]
    rotated = [share(SCHEME_TEXT["rope"].name, p) for p in PROJECTIONS]
    words = [", ".join("no model" if v is None else percent(v) for v in values) for values in (added, rotated)]
    return (
        f"Added positions go through W_q and W_k with the content and lose their distance: sinusoidal {words[0]} "
        f"({', '.join(PROJECTIONS.values())}). Rotations come after the projections and keep it: RoPE {words[1]}. "
        f"{DRAWN}"
    )


def try_shares(specs: Sequence[Spec]) -> list[Try]:
    """The other way to inject a position beside the chosen one."""
    if len(specs) > 1:
        return []
    other, then = (
        ("rope", "Its residuals are blank under every W.") if specs[0].hook == "embed"
        else ("sinusoidal", "Its residual appears as soon as there are projections.")
    )  # fmt: skip
    return [Try(f"{SCHEME_TEXT[other].name} beside it", {"b_scheme": other}, then)]


def still_features(spec: Spec) -> int:
    """Features of a head that do not rotate."""
    return compute.head_dim(spec) - 2 * len(compute.rotating(spec)) if spec.hook == "rotate" else 0
