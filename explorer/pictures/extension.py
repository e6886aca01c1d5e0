"""Pictures, key numbers and sentences of the Extension page: angles, frequencies, variants, the recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from explorer.charts import curves
from explorer.charts import extension as charts
from explorer.charts.curves import NOTE_COLOUR
from explorer.charts.heatmap import Axis, Guide, Heatmap
from explorer.charts.palette import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    POSITION_COLOUR,
    PURPLE,
    SKY,
    TRAINING_LENGTH_COLOUR,
    VERMILLION,
    YELLOW,
)
from explorer.compute import extension as compute
from explorer.compute.common import rope_of
from explorer.compute.extension import AS_IS, CHOSEN, SECOND, Setting
from explorer.facts import Fact
from explorer.pictures.common import Lines, spread
from explorer.text import SCHEME_TEXT, Try
from posenc_core import Spec
from posenc_core.cosine_sums import DENSITY
from posenc_core.extension import LONGEST, MAX_FACTOR, random_score_rms, stretch
from posenc_core.recommend import Numbers, Recommendation
from posenc_core.schemes.rope import KNOWS_ORIGINAL, RopeSpec

COLOURS: dict[str, str] = {
    "none": BLACK, "linear": VERMILLION, "ntk": ORANGE, "ntk_by_parts": YELLOW, "dynamic": PURPLE, "yarn": BLUE,
    "llama3": GREEN, "longrope": SKY, "proportional": VERMILLION, CHOSEN: SKY, SECOND: BLACK,
}  # fmt: skip
DIALS = 12
PARTS = {"for": "For it", "others": "Against the others", "against": "Against it", "open": "To keep in mind"}
SEEN, SEEN_SECOND = "seen in training", "seen by the second"
CRITERION = "Men et al. 2024"
DOUBLINGS = 4.0  # that take the strongest colour, at least
SAME = 1e-9  # relative: two implementations that agree


# ------------------------------------------------------------------ names


def name_of(made: Setting, method: str) -> str:
    """A method as the pictures call it."""
    if method == CHOSEN:
        return f"as chosen ({made.methods[CHOSEN].scaling})"
    if method != SECOND:
        return method
    second = made.methods[SECOND]
    base = f"base {exact(second.base)}" if second.base != made.base.base else ""
    scaling = "" if base and second.scaling == "none" else second.scaling
    return f"second ({', '.join(filter(None, (scaling, base)))})"


def chosen_as(made: Setting) -> str | None:
    """The derived method that the sidebar's own scaling is, if it is one."""
    same = (m for m in made.derived if made.methods[m] == made.base)
    return None if made.base.scaling == "none" else next(same, None)


def exact(value: float) -> str:
    """A base as it was given: 1.001, 1,942,040."""
    return f"{value:,.13g}"


def against(made: Setting, method: str) -> str:
    """Whose trained arcs a second scheme is measured against; nothing for the model's own."""
    if method != SECOND:
        return ""
    if made.arcs_of(method) is not made.base:
        return (
            f" It rotates {made.methods[method].rotated_pairs} pairs where the model rotates "
            f"{made.base.rotated_pairs}, so it is measured against arcs of its own over the same trained length."
        )
    return f" It is measured against the trained arcs of the model, base {exact(made.base.base)}."


def dynamic_note(made: Setting, method: str) -> str:
    """By how much dynamic NTK stretches at the target, where that is not its factor; else nothing."""
    spec = made.methods[method]
    found = stretch(spec, made.target)
    if spec.scaling != "dynamic" or abs(found / spec.factor - 1) < SAME:
        return ""
    return (
        f" With factor {spec.factor:g} dynamic NTK stretches by {found:,.6g} at {made.target:,} positions, s·L/L₀ - "
        "(s - 1); YaRN's section 3.3 has this formula at factor 1."
    )


def groups(made: Setting) -> list[tuple[str, str, list[str]]]:
    """(name, colour, methods) of methods with the same frequencies at the target, so that no line hides another."""
    out = []
    for names in made.alike:
        title = "every method" if names == made.derived else ", ".join(name_of(made, m) for m in names)
        out.append((title, COLOURS[names[-1]], list(names)))
    return out


def dashed(made: Setting) -> tuple[str, ...]:
    """Names of the lines that come from the sidebar as they are."""
    return tuple(name for name, _, methods in groups(made) if methods[0] in AS_IS)


def notes(chosen: Sequence[Spec], made: Setting, asked: tuple[int, int]) -> list[str]:
    """What the page had to take instead of what was asked for."""
    out = []
    if rope_of(chosen[0]) is None:
        name = SCHEME_TEXT[chosen[0].scheme].name
        out.append(
            f"{name} has no rotation to stretch, and extension stretches rotations: what follows is about RoPE with "
            f"base {exact(made.base.base)} and {made.base.d_head} features a head."
        )
    elif chosen[0].scheme == "hybrid":
        out.append("Of the layers, the first one with a rotation is extended here.")
    target = asked[1]
    if target > made.target:
        out.append(f"Shown up to {made.target:,} positions, {MAX_FACTOR:,} times the trained length.")
    if made.base.scaling == "proportional":
        out.append(
            "A p-RoPE spectrum has no slow pairs left to treat apart: dividing all by the factor is what is left."
        )
    return out


def other_length(made: Setting, method: str) -> tuple[str, list[Try]] | None:
    """Where the sidebar's own scaling was made for another trained length than the page's; None if it was not."""
    own = made.base.original_max_position_embeddings
    if made.base.scaling not in KNOWS_ORIGINAL or own == made.trained:
        return None
    said = (
        f"The model on the left has original_max_position_embeddings = {own:,}; this page takes {made.trained:,} "
        "trained positions."
    )
    changes = keep(made) | {"trained_length": str(own), "method": method}
    return said, [Try(f"{own:,} trained positions", changes)] if own <= LONGEST else []


def changed(made: Setting) -> list[str]:
    """Methods that give some pair another frequency than it was trained with."""
    return [m for m, found in made.arcs.items() if bool(((found.ratio - 1).abs() > SAME).any())]


def nothing_to_stretch(made: Setting, asked: int) -> tuple[str, list[Try]] | None:
    """Where the target is no longer than the training: that nothing is to be done, and a link to a longer one."""
    if made.target > made.trained:
        return None
    target = f"The target of {asked:,} is" + (" the trained length" if asked == made.trained else "")
    target = target if asked == made.trained else f"{target} within the {made.trained:,} positions of training"
    other = [name_of(made, m) for m in changed(made)]
    but = f"; only {', '.join(other)} would change some" if other else ""
    said = f"{target}: nothing is to be stretched, and with factor 1 the methods leave every pair as trained{but}."
    trained = min(made.trained, LONGEST // 4)
    changes = {"trained_length": str(trained), "target_length": str(4 * trained)}
    return said, [Try(f"a target of {4 * trained:,}, 4 times the trained length", changes)]


# ------------------------------------------------------------------ key numbers


def key_numbers(made: Setting, method: str) -> list[Fact]:
    """Five numbers about the method shown."""
    spec, name = made.methods[method], name_of(made, method)
    found, scales = compute.arcs(made, method), compute.scales(spec)
    bad = int(found.bad(made.target).sum())
    first = float(found.first_bad.min())
    return [
        ("new angles", f"{bad} of {len(found.full)} pairs",
         f"pairs that meet an angle past their trained arc before {made.target:,}, with {name}."
         f"{against(made, method)}"),
        ("first new angle", f"{first:,.0f}" if first < made.target else "never",
         "the first position at which a pair does"),
        ("neighbours", f"{compute.resolution(spec, made.target, made.arcs_of(method)):.3f}",
         f"how far apart neighbouring positions are after rotation, beside training: 1 keeps local order; the pair "
         f"slowed down most keeps {np.nanmin(found.ratio.numpy()):.3g} of its step"),
        ("score factor", f"{compute.score_factor(spec):.4g}",
         f"what the method multiplies scores of rotating features by: {scales.tables**2:.4g} through cos and sin of "
         f"both q and k, {scales.scores:.4g} on all scores"),
        base_fact(made),
    ]  # fmt: skip


def base_fact(made: Setting) -> Fact:
    """The smallest base tried that fits the target."""
    title = "smallest base tried"
    if made.base.scaling == "proportional":
        return (title, "–", "the bound is about a full spectrum")
    bound = compute.bound(made.base.rotary_dim, made.target)
    if bound is None:
        limit = compute.reaches(made.base.rotary_dim).limit
        return (title, "not searched", f"for this head bases were searched up to {limit:,} positions")
    if bound.smallest is None:
        return (title, "none", f"no base tried up to 10^12 keeps Σcos above zero for {made.target:,} positions")
    return (title, exact(bound.smallest), f"of {DENSITY} bases a decade the smallest, rounded up, that keeps "
            f"Σcos(m·w) ≥ 0 for all m below {made.target:,}, the criterion of {CRITERION}, which its authors call not "
            f"very strict; the sidebar's is {exact(made.base.base)}")  # fmt: skip


# ------------------------------------------------------------------ angles


def beyond_map(made: Setting, method: str) -> Heatmap:
    """The large map: pair down, position across, doublings past the trained arc."""
    spec = made.methods[method]
    values, step = compute.beyond(spec, made.trained, made.target, model=made.arcs_of(method))
    first = float(compute.arcs(made, method).first_bad.min())
    guides = [Guide("x", float(made.trained), f"trained: {made.trained:,}", TRAINING_LENGTH_COLOUR)]
    if first < made.target and first != made.trained:
        guides.append(Guide("x", first, f"first new angle: {first:,.0f}", POSITION_COLOUR))
    return _map(made, values, step, tuple(guides), name_of(made, method))


def small_maps(made: Setting) -> list[Heatmap]:
    """One small map a method."""
    out = []
    for method, spec in made.methods.items():
        values, step = compute.beyond(spec, made.trained, made.target, compute.SMALL_COLUMNS, made.arcs_of(method))
        out.append(_map(made, values, step, (), name_of(made, method)))
    return out


def _map(made: Setting, values: np.ndarray, step: int, guides: tuple[Guide, ...], title: str) -> Heatmap:
    high = max(DOUBLINGS, float(np.ceil(np.log2(made.factor))))
    return Heatmap(
        values, Axis("position", start=(step - 1) / 2, step=step), Axis("pair"), "past the trained arc", "doublings",
        "diverging", (-high, high), guides if made.target > made.trained else (), title, "every angle was seen",
    )  # fmt: skip


def seen_map(made: Setting, method: str) -> str:
    """One sentence on the map, with the definition."""
    found = compute.arcs(made, method)
    full, total, bad = int(found.full.sum()), len(found.full), int(found.bad(made.target).sum())
    clean = "so no position is out of distribution by angle"
    if bad:
        more = f"{bad} more are" if bad > 1 else "1 more is"
        what = f"; {more} past {'their' if bad > 1 else 'its'} arc (orange) from position "
        what += f"{float(found.first_bad.min()):,.0f} on"
    elif full < total:
        rest = f"the other {total - full} stay" if total - full > 1 else "the other one stays"
        what = f"; {rest} within {'their' if total - full > 1 else 'its'} trained arc, {clean}"
    else:
        what = f", {clean}"
    return (
        f"{name_of(made, method)}: {full} of {total} pairs turned fully in training and know every angle (hatched)"
        f"{what}.{against(made, method)}{dynamic_note(made, method)} A pair is past its "
        "arc where its angle exceeds trained length × its trained frequency, even where it comes round again; every "
        "column shows its last position."
    )


def dials(made: Setting, method: str) -> pd.DataFrame:
    """A dozen pairs as clock faces."""
    found = compute.arcs(made, method)
    pairs = spread(len(found.full), DIALS)
    return charts.dials_data(pairs, found.seen.numpy(), found.reached.numpy(), found.bad(made.target).numpy())


def seen_dials(made: Setting, method: str) -> str:
    """One sentence on the dials."""
    found = compute.arcs(made, method)
    slowest = float(found.seen[-1])
    total = len(found.full)
    drawn = f"{DIALS} of the {total} pairs are drawn" if total > DIALS else f"All {total} pairs are drawn"
    drawn = "The one pair is drawn" if total == 1 else drawn
    return (
        f"{drawn}; a full dial has been all around in training. The slowest of all saw {slowest:.3g} turns in "
        f"{made.trained:,} positions and with {name_of(made, method)} reaches {float(found.reached[-1]):.3g} at "
        f"{made.target:,}."
    )


def arc_lines(made: Setting) -> Lines:
    """Turns of every pair, seen and reached."""
    frames, series = [], []
    for name, colour, methods in groups(made):
        found = compute.arcs(made, methods[0])
        frames.append(curves.line(name, np.arange(len(found.full)), _positive(found.reached.numpy())))
        series.append((name, colour))
    if own_arcs(made):
        own = compute.arcs(made, SECOND).seen.numpy()
        frames.append(curves.line(SEEN_SECOND, np.arange(len(own)), _positive(own)))
        series.append((SEEN_SECOND, NOTE_COLOUR))
    seen = compute.arcs(made, "none").seen.numpy()
    frames += [curves.line(SEEN, np.arange(len(seen)), _positive(seen)), curves.guide("one full turn", y=1.0)]  # on top
    return Lines(curves.together(*frames), (*series, (SEEN, TRAINING_LENGTH_COLOUR)), "turns")


def own_arcs(made: Setting) -> bool:
    """Whether a second scheme is measured against arcs of its own."""
    return SECOND in made.methods and made.arcs_of(SECOND) is not made.base


def arc_dashes(made: Setting) -> tuple[str, ...]:
    """Names of the dashed lines of the arcs."""
    return (SEEN, *((SEEN_SECOND,) if own_arcs(made) else ()), *dashed(made))


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)


def seen_arcs(made: Setting) -> str:
    """One sentence on the arcs of all methods."""
    counts = {m: int(compute.arcs(made, m).bad(made.target).sum()) for m in made.methods}
    clean = [name_of(made, m) for m, n in counts.items() if not n]
    rest = [f"{name_of(made, m)} {n}" for m, n in counts.items() if n]
    said = f"No pair leaves its trained arc with {', '.join(clean)}" if clean else "Every method leaves trained arcs"
    more = against(made, SECOND).replace(" It ", " The second scheme ") if SECOND in made.methods else ""
    return (
        f"Dashed is what training showed; a pair below one full turn there is safe as long as a method's line stays on "
        f"or under it. {said}" + (f"; pairs that do: {', '.join(rest)}." if rest else ".") + more
    )


# ------------------------------------------------------------------ frequencies


def ratio_lines(made: Setting, method: str) -> tuple[pd.DataFrame, tuple[tuple[str, str], ...]]:
    """Frequency beside the original one, and the bands of the method shown, a little higher than all lines."""
    lines, series, low, high = [], [], 1.0, 1.0
    for name, colour, methods in groups(made):
        ratio = _positive(compute.arcs(made, methods[0]).ratio.numpy())
        lines.append((name, ratio))
        series.append((name, colour))
        low, high = min(low, float(np.nanmin(ratio))), max(high, float(np.nanmax(ratio)))
    return charts.ratios_data(lines, compute.actions(made, method), (low / 1.25, 1.25 * high)), tuple(series)


def seen_ratios(made: Setting, method: str) -> str:
    """One sentence on kept, ramped and divided pairs."""
    actions = compute.actions(made, method)
    if actions.count("kept") == len(actions):
        others = [name_of(made, m) for m in changed(made) if m != method]
        rest = f"{', '.join(others)} do not" if len(others) > 1 else f"{''.join(others)} does not"
        return f"{name_of(made, method)} leaves all {len(actions)} pairs as trained; " + (
            f"{rest}." if others else "so does every method here."
        )
    parts = [f"{actions.count(a)} {a}" for a in charts.ACTIONS if a in actions]
    ratio = compute.arcs(made, method).ratio.numpy()
    most = 1 / float(np.nanmin(ratio[ratio > 0]))
    return (
        f"Behind the lines, what {name_of(made, method)} does to the pairs: {', '.join(parts)}; the largest division "
        f"is by {most:.4g}.{against(made, method)}"
    )


# ------------------------------------------------------------------ where implementations differ


@dataclass(frozen=True)
class Variants(Lines):
    """Two implementations of one method as lines, and what to say of them."""

    gap: Lines
    differs: str
    x_title: str
    x_log: bool
    sentence: str
    domains: tuple[tuple[float, float] | None, tuple[float, float] | None] = (None, None)  # of y, and of the gap's


VARIANT_NAMES: dict[str, tuple[str, str]] = {
    "truncate": ("ends rounded (truncate)", "ends as they fall"),
    "ramp": ("ramp over the index", "ramp over the turns"),
    "attention_on": ("factor on cos and sin", "factor on scores"),
    "dynamic_length": ("follows the length (transformers)", "always the maximum (older vLLM)"),
}

VARIANT_VALUES: dict[str, tuple[object, object]] = {
    "truncate": (True, False), "ramp": ("index", "rotations"), "attention_on": ("cos_sin", "scores"),
    "dynamic_length": ("sequence", "maximum"),
}  # fmt: skip


def variants_of(spec: RopeSpec) -> tuple[str, ...]:
    """Where implementations of a spec's scaling differ."""
    by_parts = ("truncate", "ramp") if spec.ramp == "index" else ("ramp",)
    return {
        "ntk_by_parts": by_parts, "yarn": (*by_parts, "attention_on"), "longrope": ("attention_on",),
        "dynamic": ("dynamic_length",),
    }.get(spec.scaling, ())  # fmt: skip


def variants(made: Setting, method: str, differs: str, current: int) -> Variants:
    """The two implementations of what differs."""
    spec, names = made.methods[method], VARIANT_NAMES[differs]
    # truncate is read only with ramp = index, and both ramps are compared as they come by default
    given = spec.replace(truncate=True) if differs == "ramp" else spec
    both = [given.replace(**{differs: value}) for value in VARIANT_VALUES[differs]]
    series = tuple(zip(names, (BLUE, VERMILLION), strict=True))
    if differs == "attention_on":
        return _score_variants(made, both, series)
    length = current if differs == "dynamic_length" else made.target
    ratios = [_positive(compute.angles(s, made.trained, length).ratio.numpy()) for s in both]
    frames = [curves.line(n, np.arange(len(r)), r) for n, r in zip(names, ratios, strict=True)]
    gap = ratios[1] / ratios[0] - 1
    flat = all(np.nanmax(np.abs(r - 1)) < SAME for r in ratios)
    off = np.abs(ratios[0] / ratios[1] - 1)
    worst = int(off.argmax())
    where = f" in a sequence of {length:,}" if differs == "dynamic_length" else ""
    said = f"Both give the same frequencies{where}."
    if off[worst] >= SAME:
        angle = abs(float(np.subtract(*(compute.inv_freq(s, length)[worst] for s in both)))) * length
        said = (
            f"The two differ most in pair {worst}{where}: by {off[worst]:.3g} of its frequency, which makes "
            f"{angle:.3g} rad at position {length:,}."
        )
    title, x_title = "frequency ÷ original", "pair (high to low frequency)"
    between = _gap(np.arange(len(gap)), gap, "second ÷ first - 1")
    # rounding is no picture: an axis fitted to it reads 0.9999999999999999
    domains = ((0.0, 1.1) if flat else None, (-1.0, 1.0) if off.max() < SAME else None)
    return Variants(curves.together(*frames), series, title, between, differs, x_title, False, said, domains)


def _gap(x: ArrayLike, y: ArrayLike, title: str) -> Lines:
    """The difference of two variants as one line."""
    data = curves.together(curves.line("difference", x, y), curves.guide("", y=0))
    return Lines(data, (("difference", PURPLE),), title)


def _score_variants(made: Setting, both: list[RopeSpec], series: tuple[tuple[str, str], ...]) -> Variants:
    found = [compute.own_score(s, made.target) for s in both]
    frames = [curves.line(name, x, y) for (name, _), (x, y) in zip(series, found, strict=True)]
    off = np.abs(found[0][1] - found[1][1])
    rms = [random_score_rms(s) for s in both]
    total, turning = both[0].d_head, both[0].rotary_dim
    said = (
        f"All {total} features rotate, so both give the same scores."
        if turning == total
        else "The attention factor is 1 here, so both give the same scores."
    )
    if off.max() >= SAME:
        said = (
            f"Of {total} features {turning} rotate; on the scores the factor reaches the others too: scores differ by "
            f"up to {off.max():.3g}, and those of random pairs are {rms[1] / rms[0]:.3f} times as large."
        )
    title, x_title = "mean score of a random vector with itself", "distance (positions)"
    between = _gap(found[0][0], found[1][1] - found[0][1], "second - first")
    domains = (None, (-1.0, 1.0) if off.max() < SAME else None)
    return Variants(curves.together(*frames), series, title, between, "attention_on", x_title, True, said, domains)


# ------------------------------------------------------------------ the recommendation


def paragraph(advice: Recommendation) -> str:
    """Verdict, and the reasons as a short list."""
    parts = [f"**{advice.verdict}**\n"]
    for part, word in PARTS.items():
        said = [r.sentence for r in advice.reasons if r.part == part]
        if said:
            parts.append(f"- **{word}:** {'; '.join(said)}.")
    return "\n".join(parts)


def side_by_side(made: Setting, found: Numbers) -> pd.DataFrame:
    """One row a derived method: the numbers behind the recommendation."""
    rows = []
    for c in found.candidates:
        spec = made.methods[c.name]
        report = compute.report(spec, made.target)
        row: dict[str, object] = {
            "method": c.name, "new angles": c.bad, "from": _distance(c.first_bad),
            "kept": c.kept, "ramped": report.count("ramped"), "divided": report.count("divided"),
            "neighbours": f"{c.resolution:.3f}", "score ×": f"{compute.score_factor(spec):.3f}",
            "score < 0": _distance(c.negative), "toy loss": "–" if c.toy is None else f"{c.toy:.2f}",
        }  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows)


def _distance(value: int | None) -> str:
    return "never" if value is None else f"{value:,}"


def seen_table(found: Numbers) -> str:
    """What the columns hold."""
    dynamic = {c.name: c.stretch for c in found.candidates}.get("dynamic", found.factor)
    more = (
        f"; dynamic, whose formula is s·L/L₀ - (s - 1), stretches by {dynamic:,.6g} at {found.target:,} positions"
        if abs(dynamic / found.factor - 1) > SAME
        else ""
    )
    still = f" ({found.still} still features included)" if found.still else ""
    return (
        f"All with factor {found.factor:g}{more}. New angles: pairs that meet one, and from which position. "
        "Neighbours: their distance after rotation, beside training. Score ×: what the method multiplies scores of "
        f"rotating features by. Score < 0: the first distance at which all-ones vectors{still} score below zero, and "
        "random vectors with themselves on average. Toy loss: nats a byte past the training length, "
        f"untrained, at {found.toy_factor} times it"
        + ("." if found.toy_inside is None else f"; within it {found.toy_inside:.2f}.")
        + " On a narrow screen the table scrolls sideways."
    )


# ------------------------------------------------------------------ links to try


def keep(made: Setting) -> dict[str, str]:
    """The lengths, which a link would drop."""
    return {"trained_length": str(made.trained), "target_length": str(made.target)}


def base_500k(made: Setting) -> list[Try]:
    """Llama 3's base, or Llama 2's where that is the one shown."""
    base, name = ("10000", "base 10,000") if made.base.base == 500_000 else ("500000", "base 500,000")
    then = "Fewer pairs turn fully in training." if base == "500000" else "More pairs turn fully in training."
    return [Try(name, keep(made) | {"scheme": "rope", "d_head": str(made.base.d_head), "base": base}, then)]


def to_method(made: Setting, method: str, wanted: Mapping[str, str]) -> list[Try]:
    """A link to the first of the wanted methods that is there and not shown, with what will be seen; none where no
    method has anything to do."""
    if made.factor == 1:
        return []
    name = next((m for m in wanted if m in made.methods and m != method), None)
    if name is not None:
        return [Try(name_of(made, name), keep(made) | {"method": name}, wanted[name])]
    other = [m for m in made.methods if m != method]
    return [Try(name_of(made, m), keep(made) | {"method": m}) for m in other[:1]]


def advice_tries(made: Setting, method: str, advice: Recommendation) -> list[Try]:
    """Links to what the reasons are about: the method named, and those it was chosen over; none with nothing to do."""
    if made.factor == 1:
        return []
    wanted = [advice.method, *advice.peers, *(r.method for r in advice.reasons if r.part == "others" and r.method)]
    names = [n for n in dict.fromkeys(wanted) if n in made.methods and n != method] or [
        n for n in made.methods if n != method
    ]
    words = {"linear": "neighbours move together", "none": "what training never showed"}
    return [
        Try(name_of(made, n) + (f": {words[n]}" if n in words else ""), keep(made) | {"method": n}) for n in names[:3]
    ]


def taken(made: Setting, advice: Recommendation) -> list[Try]:
    """Links that do what is advised: put the method into the sidebar, and see it as a config. None for no method."""
    if advice.method == "none":
        return []
    spec = made.methods[advice.method]
    query = spec.to_query()
    length = spec.original_max_position_embeddings
    original = f", original length {length:,}" if spec.scaling in KNOWS_ORIGINAL else ""
    out = [Try("its config.json, vLLM and llama.cpp spellings", query | {"exported": "scheme"}, page="config")]
    if spec == made.base:
        return out
    return [Try(f"take it: {spec.scaling}, factor {spec.factor:g}{original}",
                keep(made) | query | {"method": CHOSEN}), *out]  # fmt: skip


def variant_tries(made: Setting, method: str, differs: str, current: int) -> list[Try]:
    """A link to another difference, where there is something to stretch."""
    if made.factor == 1:
        return []
    options = variants_of(made.methods[method])
    other = next((o for o in options if o != differs), None)
    if differs == "attention_on" and made.base.rotary_fraction == 1:
        changes = keep(made) | {"scheme": "rope", "rotary_fraction": "0.5", "method": "yarn", "differs": differs}
        return [Try("half of the head rotates", changes, "Now it matters where the factor acts.")]
    if differs == "dynamic_length":
        length = made.trained if current != made.trained else made.target
        changes = keep(made) | {"method": method, "current_length": str(length)}
        return [Try(f"a sequence of {length:,}", changes, "The line that follows the length moves.")]
    if other is None:
        return to_method(made, method, {"yarn": "Implementations differ in more places."})
    return [
        Try(
            other.replace("_", " "), keep(made) | {"method": method, "differs": other}, "Another place where they part."
        )
    ]
