"""Which RoPE made these numbers: candidates for a pasted inv_freq, cos and sin, or one rotated vector, best first.

A candidate fits where no number differs by more than its digits and its format allow. Candidates that fit alike cannot
be told apart by these numbers, and are all given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from posenc_core.fingerprint_search import (
    BASES,
    CELLS,
    EIGHT,
    FACTORS,
    FITS,
    LEAST_PART,
    LENGTHS,
    Budget,
    Candidate,
    Search,
    shortest,
)
from posenc_core.fingerprint_words import about_base, verdict, with_sentence
from posenc_core.frequencies import attention_scales, rope_frequencies
from posenc_core.pasted import InvFreq, Kind, Pasted, Rotated, Tables, read_pasted
from posenc_core.porting import layout_permutation
from posenc_core.readings import (
    FLOAT32,
    Reading,
    formats_of,
    inverted,
    multiplied,
    readings,
    stored_format,
    tolerance_of,
    with_rounded_frequencies,
    without,
)
from posenc_core.rotary import Layout, apply_rotary
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import SpecError

__all__ = ["Candidate", "Fingerprint", "fingerprint", "fingerprint_of"]

KEPT = 12  # candidates returned
MULTIPLES = {1 / (2 * math.pi): "in turns instead of radians (divided by 2π)",
             math.pi / 180: "as if given in degrees (multiplied by π/180)",
             180 / math.pi: "in degrees instead of radians (multiplied by 180/π)",
             2 * math.pi: "multiplied by 2π"}  # fmt: skip
INVERSES = {2 * math.pi: "these are wavelengths (2π/w), not frequencies",
            1.0: "these are reciprocals of frequencies (1/w), not frequencies"}  # fmt: skip
MOST_TELLING = 1500  # checks that tell which lengths and bases give the same numbers


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The ranked candidates, and what was measured.

    kind: inv_freq, cos_sin or rotated. measured, tolerance: radians a position [pairs], infinite tolerance where a
    pair's turns cannot be counted. digits: the tolerance of a list without that of its number format. format: the
    number format that the numbers look like. sentence: the verdict. fitting: how many candidates fit, of which the
    simplest are kept; at_least: the search ended before all were tried. checks: what it cost, in specs made and
    compared.
    """

    kind: str
    candidates: tuple[Candidate, ...]
    measured: Tensor
    tolerance: Tensor
    digits: Tensor
    format: str
    sentence: str
    fitting: int
    at_least: bool
    checks: int


def fingerprint(
    text: str, kind: Kind = "auto", expected: RopeSpec | None = None, known: Mapping[str, RopeSpec] | None = None
) -> Fingerprint:
    """Ranked candidates for pasted numbers. Raises SpecError for what cannot be read.

    expected: the spec that should have made them. known: models by name that are tried too.
    """
    return fingerprint_of(read_pasted(text, kind), expected, known)


def fingerprint_of(
    data: Pasted, expected: RopeSpec | None = None, known: Mapping[str, RopeSpec] | None = None
) -> Fingerprint:
    """Like `fingerprint`, of numbers that were read."""
    kind = "inv_freq" if isinstance(data, InvFreq) else "cos_sin" if isinstance(data, Tables) else "rotated"
    formats, budget = formats_of(data), Budget()
    tried = []
    for number_format in formats:
        found = _found(data, kind, number_format, expected, known or {}, budget)
        tried.append((number_format, found))
        if any(c.fits for c, _ in found):
            break
    else:  # nothing fits: told for the likeliest format
        number_format, found = tried[0]
    found.sort(key=lambda f: _order(f[0]))
    best, fitting, cost = _best(_without_neighbours(found, expected), expected)
    reading = found[0][1]
    measured = tolerance = digits = torch.full((best[0].spec.rotary_dim // 2,), torch.inf, dtype=torch.float64)
    if isinstance(data, InvFreq):
        measured, slack = data.values.values, FLOAT32 * data.values.values
        tolerance, digits = (tolerance_of(data.values, f) + slack for f in (number_format, "float32"))
    elif reading is not None:
        measured, tolerance, digits = reading.measured, reading.tolerance, reading.tolerance
    stored = number_format if isinstance(data, InvFreq) and number_format != "float32" else ""
    told = tuple(with_sentence(c, stored, expected, measured, digits) for c in best)
    about = about_base(best[0], measured, tolerance, expected) if best[0].fits else ""
    layout = data.layout if isinstance(data, InvFreq) else None
    sentence = verdict(told, fitting, budget.refused, kind, layout) + about
    return Fingerprint(
        kind, told, measured, tolerance, digits, number_format, sentence, fitting, budget.refused, budget.spent + cost
    )


# ------------------------------------------------------------------ ranking


def _order(candidate: Candidate) -> tuple[bool, bool, float]:
    """What fits comes first, the simplest before the others; what would explain any numbers is last."""
    c = candidate
    return c.anything, not c.fits, c.rank + c.misfit / 2 if c.fits else c.misfit


def _best(found: list[tuple[Candidate, Reading | None]], expected: RopeSpec | None) -> tuple[list[Candidate], int, int]:
    """The candidates to show, how many fit, and checks spent: with ranges of length and base for the first ones.

    One that lies within the range of lengths of a better one is the same candidate.
    """
    budget, fitting = Budget(MOST_TELLING), 0
    best: list[Candidate] = []
    for candidate, reading in found:
        spec = candidate.spec
        if any(
            c.lengths and c.lengths[0] <= spec.original_max_position_embeddings <= c.lengths[1]
            and c.spec.replace(original_max_position_embeddings=spec.original_max_position_embeddings) == spec
            and (c.faults, c.slip) == (candidate.faults, candidate.slip)
            for c in best
        ):  # fmt: skip
            continue
        fitting += candidate.fits
        if len(best) == KEPT:
            continue
        if candidate.fits and reading is not None and not candidate.part:
            candidate = replace(
                candidate, lengths=_lengths_of(candidate, reading, budget),
                bases=_bases_of(candidate, reading, budget, expected),
            )  # fmt: skip
        best.append(candidate)
    return best, fitting, budget.spent


def _fits(candidate: Candidate, reading: Reading, budget: Budget, **fields: Any) -> bool | None:
    """Whether the candidate fits with other fields too; None where that cannot be looked at any more."""
    if not budget.pay(2 + reading.cells // CELLS):
        return None
    try:
        w = rope_frequencies(candidate.spec.replace(**fields)).inv_freq
    except SpecError:
        return False
    damage = candidate.damage if reading.damage is None else None
    misfit = reading.check(w, 1.0 if candidate.scale is None else candidate.scale, damage)[0].max().item()
    return misfit <= max(FITS, candidate.misfit)


def _lengths_of(candidate: Candidate, reading: Reading, budget: Budget) -> tuple[int, int] | None:
    """Shortest and longest original length that fits as well."""
    spec = candidate.spec
    if spec.scaling not in ("yarn", "ntk_by_parts", "llama3"):
        return None
    ends = []
    for way in (-1, 1):
        inside, step = 0, 1  # it fits at `inside` away from the length, and not at `step`
        while ok := _fits(
            candidate,
            reading,
            budget,
            original_max_position_embeddings=spec.original_max_position_embeddings + way * step,
        ):
            inside, step = step, 2 * step
        while ok is not None and step - inside > 1:
            middle = (inside + step) // 2
            ok = _fits(
                candidate,
                reading,
                budget,
                original_max_position_embeddings=spec.original_max_position_embeddings + way * middle,
            )
            inside, step = (middle, step) if ok else (inside, middle)
        if ok is None:
            return None
        ends.append(spec.original_max_position_embeddings + way * inside)
    return ends[0], ends[1]


def _bases_of(
    candidate: Candidate, reading: Reading, budget: Budget, expected: RopeSpec | None
) -> tuple[float, float] | None:
    """Smallest and largest base that fits as well, for one that is not usual."""
    base = candidate.spec.base
    if candidate.slip or base in BASES or (expected is not None and base == expected.base):
        return None
    ends = []
    for way in (-1, 1):
        inside, step = 0.0, 1e-7  # of ln(base)
        while (ok := _fits(candidate, reading, budget, base=base * math.exp(way * step))) and step < 8:
            inside, step = step, 4 * step
        for _ in range(5):
            middle = (inside + step) / 2
            ok = None if ok is None else _fits(candidate, reading, budget, base=base * math.exp(way * middle))
            inside, step = (middle, step) if ok else (inside, middle)
        if ok is None:
            return None
        ends.append(base * math.exp(way * inside))
    return ends[0], ends[1]


def _without_neighbours(
    found: list[tuple[Candidate, Reading | None]], expected: RopeSpec | None
) -> list[tuple[Candidate, Reading | None]]:
    """Without the candidates that differ from a better one only by numbers that nobody chooses (base 9,999.98)."""
    kept: list[tuple[Candidate, Reading | None]] = []
    families: set[object] = set()
    for candidate, reading in found:
        spec = candidate.spec
        family = (
            spec.scaling,
            spec.truncate,
            spec.ramp,
            candidate.layout,
            spec.rotary_dim,
            candidate.faults,
            candidate.slip,
            candidate.part,
        )
        if family not in families or candidate.names or _usual(spec, expected):
            kept.append((candidate, reading))
        families.add(family)
    return kept


def _usual(spec: RopeSpec, expected: RopeSpec | None) -> bool:
    """Whether all numbers are such as models have."""
    choices = {"base": BASES, "factor": (1.0, *FACTORS), "original_max_position_embeddings": LENGTHS}
    return all(
        getattr(spec, name) in listed or (expected is not None and getattr(spec, name) == getattr(expected, name))
        for name, listed in choices.items()
        if spec.applies(spec.param(name))
    )


# ------------------------------------------------------------------ all readings


def _found(
    data: Pasted, kind: str, number_format: str, expected: RopeSpec | None, known: Mapping[str, RopeSpec],
    budget: Budget,
) -> list[tuple[Candidate, Reading | None]]:  # fmt: skip
    """All candidates with the reading that they explain: right rotations first, faults only where none of them fits."""
    searches: list[Search] = []

    def search(found: Iterable[Reading], **fault: Any) -> bool:
        """Whether one of these readings has a candidate that fits."""
        made = []
        for reading in found:
            one = Search(reading, expected, budget, **fault)
            one.run(known)
            made.append(one)
        searches.extend(one for one in made if one.fits or not fault)
        return any(one.fits for one in made)

    dim = None if expected is None else expected.rotary_dim
    straight = list(readings(data, number_format, 0, dim))
    done = search(straight)
    if kind != "inv_freq":
        done = done or search(r for r in map(with_rounded_frequencies, straight) if r is not None)
        shifted = () if done else (r for offset in (1, -1) for r in readings(data, number_format, offset, dim))
        done = search(shifted) or done
        for one in searches[: len(straight)] if not done else ():
            one.damaged()
            done = done or one.fits
    if kind == "inv_freq":
        for by, fault in _multiples(straight[0], done):
            done = search([multiplied(straight[0], by, fault)], times=by) or done
        first = straight[0].measured[0].item()
        likely = sorted(INVERSES.items(), key=lambda i: abs(first - i[0]))  # pair 0 turns by 1 rad
        for by, fault in likely if not done and _rises(straight[0]) else ():
            done = done or search([inverted(straight[0], by, fault)], times=by, inverse=True)
    plain = searches[: len(straight)]
    for one in plain if not done else ():
        for pairs in one.suspects(known):
            done = done or search([without(one.reading, pairs)], outliers=pairs)
    for one in plain if not done else ():
        one.divisors()
    found: list[tuple[Candidate, Reading | None]] = [(c, one.reading) for one in searches for c in one.found.values()]
    if isinstance(data, Rotated) and not any(c.fits for c, _ in found):
        found += [(c, None) for c in _mixed(data, expected)]
    return found


def _rises(reading: Reading) -> bool:
    """Whether the numbers may be wavelengths: all above 0, and longer from pair to pair."""
    w = reading.measured
    return reading.pairs >= LEAST_PART and bool((w > 0).all()) and bool((w.diff() >= 0).all()) and bool(w[-1] > w[0])


def _multiples(reading: Reading, done: bool) -> Iterator[tuple[float, str]]:
    """What every frequency may have been multiplied by, told by the first pair, which turns by 1 rad; in words."""
    first, tolerance = reading.measured[0].item(), reading.tolerance[0].item()
    if first <= 0 or reading.pairs < 3 or abs(first - 1) <= tolerance:
        return
    for by, words in MULTIPLES.items():
        if abs(first - by) <= tolerance:
            yield by, words
            return
    if not done and reading.pairs >= EIGHT:
        by = shortest(first, tolerance)
        yield by, f"all multiplied by {by:.7g}"


def _mixed(data: Rotated, expected: RopeSpec | None) -> Iterator[Candidate]:
    """Tables repeated for one layout under a rotation of the other: no rotation at all, and often met."""
    d_head = data.x.values.shape[1]
    specs = [RopeSpec(d_head=d_head, base=b) for b in BASES[:4]]
    if expected is not None and expected.d_head == d_head:
        specs.insert(0, expected)
    tolerance = tolerance_of(data.rotated, stored_format(data.rotated))
    tolerance = tolerance + 2 * tolerance_of(data.x, stored_format(data.x)) + 2e-6
    layouts: tuple[Layout, ...] = ("half", "interleaved")
    for spec, layout in product(dict.fromkeys(specs), layouts):
        dim, scale = spec.rotary_dim, attention_scales(spec).tables
        phase = data.positions[:, None] * rope_frequencies(spec).inv_freq
        wide = torch.cat([phase, phase], -1) if layout == "interleaved" else phase.repeat_interleave(2, -1)
        x = data.x.values[:, :dim]
        quarter = torch.ones(1, dim // 2, dtype=torch.float64)  # a quarter turn gives what the sine multiplies
        turned = apply_rotary(x, 0 * quarter, quarter, layout)
        made = torch.cat([(x * wide.cos() + turned * wide.sin()) * scale, data.x.values[:, dim:]], -1)
        difference = (made - data.rotated.values).abs()
        order = layout_permutation(dim, dim, "half") if layout == "interleaved" else torch.arange(dim)
        per_pair = difference[:, order].amax(0).view(2, -1).amax(0)
        fault = (
            "an interleaved rotation with tables repeated for the half-split one"
            if layout == "interleaved"
            else "a half-split rotation with tables repeated for the interleaved one"
        )
        misfits = (difference / tolerance)[:, order].amax(0).view(2, -1).amax(0)
        yield Candidate(
            spec.replace(layout=layout), layout, misfits.max().item(), per_pair.max().item(), per_pair, misfits, "",
            6.0, (fault,), scale=scale,
        )  # fmt: skip
