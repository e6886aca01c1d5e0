"""Pictures, key numbers and sentences of the Porting page."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch

from explorer.charts import curves, wiring
from explorer.charts.curves import NOTE_COLOUR
from explorer.charts.heatmap import Axis, Guide, Heatmap
from explorer.charts.palette import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILLION, pair_colours
from explorer.compute import porting as compute
from explorer.compute.common import rope_of
from explorer.facts import Fact
from explorer.pictures.common import Lines, names_of
from explorer.text import SCHEME_TEXT, Try
from posenc_core import Spec, porting
from posenc_core.fingerprint import Candidate, Fingerprint
from posenc_core.fingerprint_words import describe
from posenc_core.frequencies import attention_scales, rope_frequencies
from posenc_core.rotary import apply_rotary, cos_sin
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.rope import RopeSpec

DRAWN = 128  # features of a wiring diagram that can be told apart
SMALL = 16  # features of the four small diagrams
FLOOR = 1e-9  # rad; smaller errors are drawn as this
LAYOUTS = {"half": "half-split", "interleaved": "interleaved"}
WHAT = {
    "all": "positions, frequencies and their product", "positions": "positions", "frequencies": "frequencies",
    "product": "the product of position and frequency", "cos_sin": "cos and sin",
}  # fmt: skip
INSTEAD = {
    "none": "compare the causal mask, and that nothing else adds positions",
    "integer": "compare the first and the last position's vector, and where counting starts",
    "sinusoidal": "compare the order of sines and cosines, and the exponent 2i/d against i/(d/2 - 1)",
    "learned": "compare a row of the table, the offset of the first position, and what happens past the last row",
    "alibi": "compare the slopes head by head, the sign of the bias, and whether it is divided by √d too",
    "t5": "compare the bucket of every distance, and in which layers the bias is shared",
}
FORMAT_COLOURS = {"bfloat16": VERMILLION, "float16": ORANGE, "float32": BLUE}


# ---------------------------------------------------------------- who is compared


@dataclass(frozen=True)
class Sides:
    """The model's rotation, the port's if there is a second one, what to say about the choice.

    layers: those that differ between two schemes of which one is a hybrid, None elsewhere.
    """

    model: RopeSpec
    port: RopeSpec | None
    notes: tuple[str, ...]
    layers: tuple[int, ...] | None = None


def layers_of(spec: Spec, count: int) -> tuple[Spec, ...]:
    """One spec a layer."""
    return spec.layers if isinstance(spec, HybridSpec) else (spec,) * count


def differing_layers(first: Spec, second: Spec) -> tuple[int, ...]:
    """Layers whose specs differ, and those that only one of two hybrids has."""
    count = max((len(s.layers) for s in (first, second) if isinstance(s, HybridSpec)), default=1)
    both = itertools.zip_longest(layers_of(first, count), layers_of(second, count))
    return tuple(i for i, (a, b) in enumerate(both) if a != b)


def sides(specs: Sequence[Spec]) -> Sides:
    """The model is the first scheme, the port the second, where they rotate; hybrids are taken layer by layer."""
    notes: list[str] = []
    layers: tuple[int, ...] | None = None
    first = specs[0]
    model, port = rope_of(first), rope_of(specs[1]) if len(specs) > 1 else None
    for spec in specs:
        if rope_of(spec) is None:
            what = INSTEAD.get(spec.scheme, "compare what it adds, position by position")
            notes.append(f"{SCHEME_TEXT[spec.scheme].name} rotates nothing: {what}. Below is the default RoPE.")
    hybrids = [s for s in specs if isinstance(s, HybridSpec)]
    if len(specs) > 1 and hybrids:
        layers = differing_layers(first, specs[1])
        count = min(len(s.layers) for s in hybrids)
        both = enumerate(zip(layers_of(first, count), layers_of(specs[1], count), strict=False))
        turning = [(i, a, b) for i, (a, b) in both if isinstance(a, RopeSpec) and isinstance(b, RopeSpec)]
        different = [found for found in turning if found[1] != found[2]]
        if turning:
            at, model, port = (different or turning)[0]
            which = "that rotates and differs" if different else "that rotates in both"
            notes.append(f"Layer {at} is shown, the first {which}.")
    elif hybrids and model is not None:
        notes.append(f"Of the hybrid, layer {hybrids[0].layers.index(model)} is shown, the first that rotates.")
    return Sides(model or RopeSpec(), port, tuple(dict.fromkeys(notes)), layers)


# ---------------------------------------------------------------- layout


@dataclass(frozen=True)
class Wiring:
    """A wiring diagram with its name; `every`: how many features one drawn feature stands for."""

    name: str
    data: pd.DataFrame
    d_head: int
    widest: float
    every: int


def layout_name(spec: RopeSpec) -> str:
    """half-split, 32 of 128 features."""
    name = LAYOUTS[spec.layout]
    if spec.scaling == "proportional":
        return f"{name}, p-RoPE: {spec.rotated_pairs} of {spec.d_head // 2} pairs turn"
    if spec.rotary_dim < spec.d_head:
        return f"{name}, partial: {spec.rotary_dim} of {spec.d_head} features rotate"
    return name


def reduced(spec: RopeSpec) -> tuple[RopeSpec, int]:
    """The spec with at most DRAWN features in the same proportions, and by how much it is smaller (1: as it is)."""
    turning = 2 * spec.rotated_pairs
    for every in range(1, spec.d_head // 2 + 1):
        sizes = (spec.d_head, spec.rotary_dim, turning)
        if SMALL <= spec.d_head / every <= DRAWN and all(n % (2 * every) == 0 for n in sizes):
            small = RopeSpec(d_head=spec.d_head // every, base=spec.base, layout=spec.layout, scaling=_kind(spec),
                             rotary_fraction=spec.rotary_fraction)  # fmt: skip
            if (small.rotary_dim * every, 2 * small.rotated_pairs * every) == (spec.rotary_dim, turning):
                return small, every
    return spec, 1


def _kind(spec: RopeSpec) -> Literal["proportional", "none"]:
    return "proportional" if spec.scaling == "proportional" else "none"


def wiring_of(spec: RopeSpec) -> Wiring:
    """Arcs between the two features of each pair."""
    small, every = reduced(spec)
    features = [(a, b) for a, b in porting.pair_features(small).tolist()]
    frequencies = compute.frequencies(small).tolist()
    turning = max(1, sum(w > 0 for w in frequencies))
    colours = pair_colours(turning) + [NOTE_COLOUR] * (len(frequencies) - turning)
    data = wiring.wiring_data(features, frequencies, colours, small.d_head)
    return Wiring(layout_name(spec), data, small.d_head, float(small.rotary_dim // 2), every)


def wirings(model: RopeSpec, port: RopeSpec | None) -> list[Wiring]:
    """The model's, and the port's or the other layout's."""
    if port is None or porting.pair_features(port).tolist() == porting.pair_features(model).tolist():
        port = model.replace(layout=porting.other_layout(model.layout))
    return [wiring_of(model), wiring_of(port)]


def four() -> list[Wiring]:
    """The four kinds at SMALL features."""
    plain = RopeSpec(d_head=SMALL)
    kinds = (
        plain.replace(layout="interleaved"), plain, plain.replace(rotary_fraction=0.5),
        plain.replace(scaling="proportional", rotary_fraction=0.5),
    )  # fmt: skip
    return [wiring_of(s) for s in kinds]


def moves_of(spec: RopeSpec) -> tuple[pd.DataFrame, int]:
    """Where each row of a head goes on the way to the other layout, and the features drawn."""
    small, _ = reduced(spec)
    to = porting.other_layout(small.layout)
    index = porting.layout_permutation(small.d_head, small.rotary_dim, to).tolist()
    turning = len(porting.pair_features(small))
    colours = dict.fromkeys(range(small.d_head), NOTE_COLOUR)
    pairs = dict.fromkeys(range(small.d_head), wiring.UNROTATED)
    for i, ((a, b), colour) in enumerate(
        zip(porting.pair_features(small.replace(layout=to)).tolist(), pair_colours(turning), strict=True)
    ):
        colours[a] = colours[b] = colour
        pairs[a] = pairs[b] = f"pair {i}"
    return wiring.moves_data(index, list(pairs.values()), list(colours.values())), small.d_head


def moved_rows(spec: RopeSpec) -> int:
    """Rows of a head that change their place."""
    to = porting.other_layout(spec.layout)
    index = porting.layout_permutation(spec.d_head, spec.rotary_dim, to)
    return int((index != torch.arange(spec.d_head)).sum())


def layout_numbers(spec: RopeSpec, kv_heads: int, queries_per_key: int) -> list[Fact]:
    """What the permutation does, in numbers."""
    proof = compute.proof(spec, kv_heads, queries_per_key)
    return [
        ("permuted", f"{proof.permuted:.1e}", "largest difference of a score between both layouts, weights permuted"),
        ("not permuted", f"{proof.unpermuted:.3g}", "the same with the weights as they are; scores have a standard "
         f"deviation of {proof.spread:.2g}"),
        ("rows that move", f"{moved_rows(spec)} of {spec.d_head}", "rows of each head of W_q and W_k, and entries of "
         "their biases; W_v and W_o stay"),
        ("turning pairs", f"{spec.rotated_pairs} of {spec.d_head // 2}", "pairs of a head with a frequency above zero"),
    ]  # fmt: skip


@dataclass(frozen=True)
class Bars:
    """A frame for charts.bars with its series, the number of names, and the axis' ends."""

    data: pd.DataFrame
    series: tuple[tuple[str, str], ...]
    names: int
    domain: tuple[float, float]


def proof_bars(spec: RopeSpec, kv_heads: int, queries_per_key: int) -> Bars:
    """Largest score difference with and without the permutation: grouped-query attention, MLA, learned norms."""
    made = (
        ("GQA", compute.proof(spec, kv_heads, queries_per_key), "as it is"),
        ("MLA", compute.mla_proof(spec), "as it is"),
        ("QK-norm", compute.norm_proof(spec), "norms as they are"),
    )
    rows = [
        {"name": f"{name}, {how}", "value": max(value, 1e-17), "series": "difference", "text": f"{value:.2g}"}
        for name, proof, left in made
        for how, value in (("permuted", proof.permuted), (left, proof.unpermuted))
    ]
    return Bars(pd.DataFrame(rows), (("difference", BLUE),), len(rows), (1e-17, 1e3))


def seen_proof(spec: RopeSpec, kv_heads: int, queries_per_key: int) -> str:
    """What the proof says."""
    proof, mla = compute.proof(spec, kv_heads, queries_per_key), compute.mla_proof(spec)
    norm = compute.norm_proof(spec)
    drawn = min(kv_heads, compute.HEADS), min(queries_per_key, compute.HEADS)
    part = (
        "" if drawn == (kv_heads, queries_per_key) else f", here of {drawn[0] * drawn[1]} and {drawn[0]} of the heads"
    )
    return (
        f"Random weights and inputs{part}: with permuted rows the {LAYOUTS[porting.other_layout(spec.layout)]} port "
        f"gives the model's scores up to {proof.permuted:.1e}; without, it is off by up to {proof.unpermuted:.3g}. "
        f"DeepSeek's attention, whose rotated features follow {compute.MLA_UNROTATED} unrotated ones: "
        f"{mla.permuted:.1e} and {mla.unpermuted:.3g}. A learned norm of q and k before the rotation (q_norm, k_norm "
        f"of Qwen3, Gemma 3, OLMo 2) is permuted too: {norm.permuted:.1e}; left as it is, {norm.unpermuted:.3g}."
    )


def code(spec: RopeSpec, kv_heads: int, queries_per_key: int) -> str:
    """PyTorch code that permutes projections of these sizes into the other layout."""
    to = porting.other_layout(spec.layout)
    return porting.permutation_code(kv_heads * queries_per_key, kv_heads, spec.d_head, spec.rotary_dim, to)


WIRING_TRIES = [
    Try(
        "a quarter of the head rotates (Pythia)", {"scheme": "rope", "d_head": "64", "rotary_fraction": "0.25"},
        "The grey tail stays where it is: only the first quarter moves.",
    ),
]  # fmt: skip
MOVES_TRIES = [Try("the way back", {"scheme": "rope", "layout": "interleaved"}, "The same lines, upside down.")]
PROOF_TRIES = [
    Try(
        "one key head for all queries", {"kv_heads": "1", "queries_per_key": "16"}, "The code permutes one head of W_k."
    )
]
KIND_TRIES = [
    Try(
        "p-RoPE, a quarter of the spectrum",
        {"scheme": "rope", "d_head": "64", "scaling": "proportional", "rotary_fraction": "0.25"},
        "Pairs still reach over half the head; the slow ones do not turn.",
    ),
]  # fmt: skip


# ---------------------------------------------------------------- precision


def positions_text(found: int | None, longest: int = porting.LONGEST) -> str:
    """A position, or that there is none."""
    return f"{found:,}" if found is not None else f"none below {longest:,}"


def precision_numbers(spec: RopeSpec, number_format: str, rounded: str, position: int) -> list[Fact]:
    """Where a number format goes wrong."""
    exceeding = compute.first_exceeding(spec, number_format, rounded)
    collision = compute.first_collision(spec, number_format, rounded)
    error, tables = (compute.error_at(spec, number_format, r, position) for r in (rounded, "cos_sin"))
    together = "none" if collision is None else f"{collision:,} and {collision + 1:,}"
    return [
        ("first past 0.003 rad", positions_text(exceeding), "first position at which the phase of a pair is off by "
         f"more than {porting.LIMIT:g} rad, or is no number"),
        ("first two alike", together, "first neighbours that rotate in the same way in every pair"),
        (f"error at {position:,}", _radians(error), "largest phase error of a pair there"),
        (f"cos and sin only, at {position:,}", _radians(tables), "largest error of the angle there if the phase is "
         f"float64 and only cos and sin are cast to {number_format}"),
    ]  # fmt: skip


def _radians(error: float) -> str:
    return "not a number" if math.isnan(error) else f"{error:.2g} rad"


def precision_map(spec: RopeSpec, number_format: str, rounded: str, longest: int, position: int) -> Heatmap:
    """log10 of the largest phase error, pairs down, log2 of the position across."""
    made = compute.error_map(spec, number_format, rounded, longest)
    values = np.log10(np.maximum(made.values.numpy(), FLOOR))
    guides: tuple[Guide, ...] = ()
    if 0 < position < longest:
        guides = (Guide("x", math.log2(position), f"p = {position:,}", VERMILLION),)
    return Heatmap(
        values, Axis("log2 of the position", start=made.step / 2, step=made.step),
        Axis("pair (high to low frequency)"), "log10 of the phase error", "rad", "sequential",
        (math.log10(FLOOR), 0.5), guides, undefined_label=f"too large for {number_format}",
    )  # fmt: skip


def precision_lines(spec: RopeSpec, number_format: str, rounded: str, longest: int) -> tuple[Lines, tuple[str, ...]]:
    """Largest error of all pairs against the position, for the three formats; and for cos and sin only, dashed."""
    frames, series = [], []
    for name, colour in FORMAT_COLOURS.items():
        made = compute.error_map(spec, name, rounded, longest)
        frames.append(_worst(name, made))
        series.append((name, colour))
    dashed: tuple[str, ...] = ()
    if rounded != "cos_sin":
        label = f"only cos and sin in {number_format}"
        frames.append(_worst(label, compute.error_map(spec, number_format, "cos_sin", longest)))
        series.append((label, GREEN))
        dashed = (label,)
    frames.append(curves.guide(f"{porting.LIMIT:g} rad", y=porting.LIMIT))
    return Lines(curves.together(*frames), tuple(series), "largest phase error (rad)"), dashed


def _worst(name: str, made: porting.ErrorMap) -> pd.DataFrame:
    worst = np.maximum(made.values.numpy().max(0), FLOOR)  # NaN, past the format's range, leaves a gap
    return curves.line(name, made.ends, worst)


def seen_map(spec: RopeSpec, number_format: str, rounded: str, longest: int) -> str:
    """What the map shows."""
    made = compute.error_map(spec, number_format, rounded, longest)
    values = made.values.numpy()
    past = np.nanmax(values, axis=1) > porting.LIMIT
    overflow = bool(np.isnan(values).any())
    lost = f" Hatched: past {porting_range(number_format):,.0f}, {number_format} has no number." if overflow else ""
    return (
        f"With {WHAT[rounded]} in {number_format}, {int(past.sum())} of {len(values)} pairs are off by more than "
        f"{porting.LIMIT:g} rad somewhere below {longest:,} positions. Each column tells the largest error among up to "
        f"{2 * porting.SAMPLES + 1} of its positions.{lost}"
    )


def porting_range(number_format: str) -> float:
    """The largest number of a format."""
    return float(torch.finfo(porting.FORMATS[number_format]).max)


def seen_lines(spec: RopeSpec, number_format: str, rounded: str) -> str:
    """What the lines show."""
    found = {f: compute.first_exceeding(spec, f, rounded) for f in FORMAT_COLOURS}
    told = ", ".join(f"{f} {positions_text(n)}" for f, n in found.items())
    cast = compute.first_exceeding(spec, number_format, "cos_sin")
    late = "never passes it" if cast is None else f"passes it at {cast:,}"
    return (
        f"First position past {porting.LIMIT:g} rad: {told}. A table whose phase is float64 and whose cos and sin are "
        f"cast to {number_format} afterwards {late}: its error does not grow with the position."
    )


PRECISION_TRIES = [
    Try("float16", {"part": "precision", "number_format": "float16", "longest": "131072"},
        "Past 65,504 there is no position left."),
    Try("only the frequencies in bfloat16", {"part": "precision", "rounded": "frequencies"},
        "The error grows with the position, in all pairs but the first."),
]  # fmt: skip
LINE_TRIES = [
    Try("float32 up to sixteen million", {"part": "precision", "number_format": "float32", "longest": "16777216"},
        "Even float32 leaves 0.003 rad within the lengths that models reach now."),
]  # fmt: skip


# ---------------------------------------------------------------- fingerprint


def sample_inv_freq(spec: RopeSpec) -> str:
    """The spec's inv_freq in 4 significant digits."""
    return "[" + ", ".join(f"{w:.4g}" for w in rope_frequencies(spec).inv_freq.tolist()) + "]"


def sample_rotated(spec: RopeSpec, position: int, dtype: torch.dtype = torch.float32, digits: int = 5) -> str:
    """A random vector before and after the rotation at a position."""
    x = torch.randn(1, spec.d_head, generator=torch.Generator().manual_seed(1)).to(dtype)
    cos, sin = cos_sin(
        torch.tensor([position]), rope_frequencies(spec).inv_freq, attention_factor=attention_scales(spec).tables
    )
    y = apply_rotary(x, cos, sin, spec.layout)
    numbers = [[float(f"{v:.{digits}g}") for v in row[0].tolist()] for row in (x, y)]
    return json.dumps({"x": numbers[0], "position": position, "rotated": numbers[1]})


def sample_tables(spec: RopeSpec, number_format: str, positions: Sequence[int]) -> str:
    """Rows of cos and sin whose phases were computed in a format."""
    inv_freq = rope_frequencies(spec).inv_freq
    phase = porting.rounded_phases(inv_freq, torch.tensor(positions), number_format, "all")
    rows = {n: [[float(f"{v:.5f}") for v in row] for row in t.tolist()]
            for n, t in (("cos", phase.cos()), ("sin", phase.sin()))}  # fmt: skip
    return json.dumps(rows | {"positions": list(positions)})


def samples(model: RopeSpec) -> dict[str, str]:
    """Numbers to try, made from specs."""
    yarn = RopeSpec(d_head=64, scaling="yarn", factor=4.0, original_max_position_embeddings=4096, truncate=False)
    wrong = model.replace(layout=porting.other_layout(model.layout))
    small = model if model.d_head <= 128 else RopeSpec()
    return {
        "YaRN ×4, not truncated, in float16": sample_rotated(yarn, 7, torch.float16),
        f"{LAYOUTS[wrong.layout]} rotation on {LAYOUTS[model.layout]} weights": sample_rotated(wrong, 7),
        "tables computed in bfloat16": sample_tables(small, "bfloat16", (0, 1, 2, 301, 999)),
        "inv_freq of Llama 3.1, 4 digits": sample_inv_freq(
            RopeSpec(d_head=128, base=500_000.0, scaling="llama3", factor=8.0, original_max_position_embeddings=8192)
        ),
    }  # fmt: skip


def fingerprint_numbers(found: Fingerprint | None) -> list[Fact]:
    """The answer in numbers; dashes where nothing could be read."""
    best = None if found is None else found.candidates[0]
    more = "" if found is None or not found.at_least else "at least "
    fits = "–" if found is None else f"{more}{found.fitting:,}"
    fit = best if best is not None and best.fits else None
    residual = "–" if best is None else f"{best.residual:.1e}"
    unit = "relative, of a frequency" if found is not None and found.kind == "inv_freq" else "of a number pasted"
    return [
        ("fitting", fits, "candidates within what digits and number format allow; a list of divisors, "
         "which any numbers allow, is none"),
        ("largest difference", residual, f"of the best candidate, {unit}"),
        ("first pair off", "–" if fit is None else _none(fit.first_pair), "first pair in which the best candidate, or "
         "a list in a coarse number format as it stands, differs from the sidebar's scheme"),
        ("first position off", "–" if fit is None else _none(fit.first_position), "first position at which a phase "
         "is off by 0.1 rad from the sidebar's scheme, or scores by the scale"),
    ]  # fmt: skip


def _none(value: float | None) -> str:
    return "none" if value is None or math.isinf(value) else f"{value:,.0f}"


def answer(found: Fingerprint) -> str:
    """The best candidate in words."""
    best = found.candidates[0]
    return (best.sentence[:1].upper() + best.sentence[1:]) if best.fits else "No method that was tried fits"


def seen_answer(found: Fingerprint, expected: RopeSpec) -> str:
    """How sure it is, and where it leaves the sidebar's scheme."""
    best = found.candidates[0]
    mine = describe(expected, expected.layout, attention_scales(expected).tables)
    if not best.fits:
        return found.sentence
    scheme = f"the sidebar's scheme ({mine})"
    if best.part and best.as_expected:
        scheme = f"the first {best.part} of the sidebar's {len(compute.frequencies(expected))} pairs ({mine})"
    verb = "They are" if best.part and best.as_expected else "It is"
    if best.inverse and best.as_expected:
        told = (
            f"Turned back into frequencies, {verb.lower()} {scheme}; used as they are, they are off from pair "
            f"{best.first_pair}, position {best.first_position:,.0f}."
        )
    elif best.first_pair is None:
        told = f"{verb} {scheme}{': at these digits nothing is off' if found.kind == 'inv_freq' else ''}."
    elif best.stored and best.as_expected:
        told = (
            f"{verb} {scheme}, stored in {best.stored}: off by more than 0.1 rad from pair {best.first_pair}, position "
            f"{best.first_position:,.0f}."
        )
    elif math.isinf(best.first_position or 0.0):
        told = f"The sidebar says: {mine}. They part from pair {best.first_pair} on, by less than 0.1 rad anywhere."
    else:
        told = (
            f"The sidebar says: {mine}. They part from pair {best.first_pair} on, and from position "
            f"{best.first_position:,.0f} on."
        )
    return f"{found.sentence} {told}"


def table(found: Fingerprint) -> pd.DataFrame:
    """The ranking."""
    return pd.DataFrame(
        {
            "candidate": [c.sentence for c in found.candidates],
            "fits": ["yes" if c.fits else "any list does" if c.anything else "no" for c in found.candidates],
            "misfit": [f"{c.misfit:,.3g}" for c in found.candidates],
            "difference": [f"{c.residual:.2g}" for c in found.candidates],
            "pair": [_none(c.first_pair) if c.fits else "–" for c in found.candidates],
            "position": [_none(c.first_position) if c.fits else "–" for c in found.candidates],
        },
        index=pd.RangeIndex(1, len(found.candidates) + 1, name="rank"),
    )


CANDIDATE_COLOURS = (BLUE, GREEN, PURPLE)
SIDEBAR = "the sidebar's scheme"


def misfit_lines(found: Fingerprint, expected: RopeSpec) -> Lines:
    """For every pair, the difference over what is allowed: the first candidates, and the sidebar's scheme."""
    frames, series = [], []
    mine = next((c for c in found.candidates if c.spec.inv_freq().equal(expected.inv_freq()) and not c.faults), None)
    shown: list[tuple[str, Candidate, str]] = [
        (f"{i + 1}. {SIDEBAR if c is mine else _cut(c.sentence)}", c, colour)
        for i, (c, colour) in enumerate(zip(found.candidates, CANDIDATE_COLOURS, strict=False))
    ]
    if mine is not None and not any(c is mine for _, c, _ in shown):
        shown.append((SIDEBAR, mine, BLACK))
    for name, candidate, colour in shown:
        values = np.clip(candidate.misfits.numpy(), 1e-4, 1e9)
        frames.append(curves.line(name, np.arange(len(values)), values))
        series.append((name, colour))
    frames.append(curves.guide("what digits and format allow", y=1.0))
    return Lines(curves.together(*frames), tuple(series), "difference / allowed")


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def ratio_lines(found: Fingerprint, expected: RopeSpec) -> Lines | None:
    """Measured frequencies over the sidebar's, pair by pair, and the best candidate's; None for another pair count."""
    mine = compute.frequencies(expected)[: found.candidates[0].part or None]
    best = found.candidates[0].inv_freq.numpy()
    if len(mine) != len(found.measured):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        measured = np.where(np.isfinite(found.tolerance.numpy()), found.measured.numpy() / mine, np.nan)
        made = np.where(mine > 0, best / mine, np.nan) if len(best) == len(mine) else np.full(len(mine), np.nan)
    pair = np.arange(len(mine))
    frames = [curves.line("best candidate", pair, made), curves.line("measured", pair, measured)]
    return Lines(
        curves.together(*frames), (("measured", VERMILLION), ("best candidate", BLUE)), "frequency / the sidebar's"
    )


def ratio_domain(lines: Lines) -> tuple[float, float]:
    """Ends of the axis: wide enough that rounding looks like rounding."""
    y = lines.data["y"].to_numpy()
    y = y[np.isfinite(y)]
    return (min(0.9, float(y.min()) * 0.95), max(1.1, float(y.max()) * 1.05)) if y.size else (0.9, 1.1)


def seen_ratio(found: Fingerprint, expected: RopeSpec) -> str:
    """How many pairs differ."""
    best = found.candidates[0]
    known = np.isfinite(found.tolerance.numpy())
    mine = compute.frequencies(expected)[: best.part or None]
    off = np.abs(found.measured.numpy() - mine) > 1.05 * found.digits.numpy()
    hidden = int((~known).sum())
    more = f" The turns of {hidden} pairs cannot be counted at this position." if hidden else ""
    why = f", because they were rounded to {best.stored}" if best.fits and best.stored and best.as_expected else ""
    why = "" if best.inverse or not (off & known).any() else why
    count = int((off & known).sum())
    return f"{count} of {len(mine)} pairs turn at another speed than the sidebar's scheme says{why}.{more}"


# ---------------------------------------------------------------- two specs


@dataclass(frozen=True)
class Compared:
    """Model and port, and what they are called."""

    model: RopeSpec
    port: RopeSpec
    names: str
    q_shift: int = 0
    direction: int = 1


def compared(model: RopeSpec, port: RopeSpec | None, mistake: str) -> Compared:
    """The second scheme, or the model with a common fault."""
    if port is not None:
        first, second = names_of([model, port])
        return Compared(model, port, f"model: {first}; port: {second}")
    found = porting.mistakes(model)[mistake]
    return Compared(model, found.port.spec, f"port: {found.name}", found.port.q_shift, found.port.direction)


def wiring_differs(made: Compared) -> bool:
    """Whether the same two features make another pair, or turn the other way."""
    a, b = (porting.pair_features(s).tolist() for s in (made.model, made.port))
    count = min(len(a), len(b))
    return made.direction < 0 or a[:count] != b[:count]


def same_head(made: Compared) -> bool:
    """Whether the same queries and keys can be put through both."""
    return made.model.d_head == made.port.d_head


def compare_numbers(made: Compared, longest: int) -> list[Fact]:
    """Where they part."""
    pairs = compute.pairs(made.model, made.port, longest)
    first = pairs.first_position.min().item()
    scores = compute.scores(made.model, made.port, made.q_shift, made.direction, longest) if same_head(made) else None
    facts = [
        ("first pair that differs", _none(pairs.first_pair), "first pair whose frequency is another"),
        ("phase off from", _none(first), "first position at which a pair's phase is off by 0.1 rad"),
    ]
    if made.q_shift:
        facts[1] = ("phase off from", "0", f"queries are {made.q_shift} position late at every position")
    elif wiring_differs(made):
        facts[1] = ("phase off from", "1", "other features are paired, or they turn the other way, at every position")
    for limit in (1e-3, 1e-2):
        found = None if scores is None else scores.first[limit]
        value = "–" if scores is None else "none" if found is None else f"{found:,}"
        facts.append((f"scores off by {100 * limit:g}% from", value, "first distance at which the root mean square "
                      f"difference of random scores exceeds that share of theirs, below {longest:,}"))  # fmt: skip
    return facts


def ratio_pairs(made: Compared, longest: int) -> tuple[Lines, bool]:
    """Frequency of the port over that of the model, pair by pair, and whether it needs a log axis."""
    pairs = compute.pairs(made.model, made.port, longest)
    ratio = np.where(pairs.ratio.isfinite(), pairs.ratio.numpy(), np.nan)
    lines = curves.line("port / model", np.arange(len(ratio)), ratio)
    positive = ratio[np.isfinite(ratio)]
    wide = positive.size > 0 and positive.min() > 0 and positive.max() / positive.min() > 10
    return Lines(lines, (("port / model", BLUE),), "frequency of the port / of the model"), wide


def seen_pairs(made: Compared, longest: int) -> str:
    """Which pairs differ, and by how much."""
    pairs = compute.pairs(made.model, made.port, longest)
    differ = pairs.first_position.isfinite()
    count = int(differ.sum())
    shift = f" Queries are {made.q_shift} position late." if made.q_shift else ""
    other = " But other features are paired." if wiring_differs(made) and made.direction > 0 else ""
    other = " But the port turns the other way." if made.direction < 0 else other
    if not count:
        return f"Every pair has the same frequency.{shift}{other}"
    ratio = pairs.ratio[differ & pairs.ratio.isfinite()]
    span = f"{ratio.min():.4g} to {ratio.max():.4g} times the model's" if len(ratio) else "zero in the model"
    return f"{count} of {len(differ)} pairs differ: the port's frequencies are {span}.{shift}{other}"


def score_lines(made: Compared, longest: int) -> Lines:
    """Relative score difference against distance."""
    scores = compute.scores(made.model, made.port, made.q_shift, made.direction, longest)
    x, y = scores.distances.numpy().astype(float), scores.relative.numpy()
    inside = x > 0
    frames = [
        curves.line("difference", x[inside], np.maximum(y[inside], 1e-16)), curves.guide("0.1%", y=1e-3),
        curves.guide("1%", y=1e-2),
    ]  # fmt: skip
    return Lines(curves.together(*frames), (("difference", VERMILLION),), "score difference / score (RMS)")


def seen_scores(made: Compared, longest: int) -> str:
    """From which distance scores differ."""
    scores = compute.scores(made.model, made.port, made.q_shift, made.direction, longest)
    a, b = scores.first[1e-3], scores.first[1e-2]
    if a is None:
        return f"Scores agree to 0.1% at every distance below {longest:,}."
    later = f"by 1% from {b:,} on" if b is not None else f"by 1% nowhere below {longest:,}"
    last = f"{100 * scores.relative[-1].item():.3g}%"
    return f"Scores are off by 0.1% from distance {a:,} on, {later}; at the farthest one drawn by {last}."


def layer_sentence(layers: tuple[int, ...]) -> str:
    """Which layers of two hybrids differ."""
    if not layers:
        return "All layers are the same in both."
    shown = ", ".join(map(str, layers[:16])) + (" …" if len(layers) > 16 else "")
    return f"Layers that differ: {len(layers)} ({shown})."


YARN = {"scaling": "yarn", "factor": "4", "original_max_position_embeddings": "4096"}
COMPARE_TRIES = [
    Try("the YaRN scaling dropped", {"scheme": "rope", "d_head": "128", "part": "compare", "mistake": "scaling"} | YARN,
        "Fast pairs agree; the slow ones turn four times too fast, and every score lacks the attention factor."),
]  # fmt: skip
SCORE_TRIES = [
    Try("a base of 10,000 for 500,000", {"scheme": "rope", "d_head": "128", "base": "500000", "part": "compare",
                                         "mistake": "base"},
        "Pair 0 agrees, all others turn faster."),
]  # fmt: skip
MISFIT_TRIES = [
    Try(
        "a base of 10,000 where 500,000 is expected",
        {"scheme": "rope", "d_head": "32", "base": "500000", "part": "fingerprint",
         "pasted": sample_inv_freq(RopeSpec(d_head=32))},
        "The base is named, and the pair and position from which it matters.",
    )
]  # fmt: skip
RATIO_TRIES = [
    Try(
        "a list to which linear scaling was applied",
        {"scheme": "rope", "d_head": "32", "part": "fingerprint",
         "pasted": sample_inv_freq(RopeSpec(d_head=32, scaling="linear", factor=4.0))},
        "All pairs lie at a quarter.",
    )
]  # fmt: skip
FINGERPRINT_TRIES = [
    Try("what the Config page expects", {}, "Paste the frequencies of a port here, those of a config there.",
        page="config"),
]  # fmt: skip
