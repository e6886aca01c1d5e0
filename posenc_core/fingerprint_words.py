"""What a fingerprint says: a candidate in words, where it leaves the expected spec, and the verdict on a ranking."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from posenc_core.fingerprint_search import LENGTHS, Candidate
from posenc_core.frequencies import attention_scales, rope_frequencies
from posenc_core.porting import compare_frequencies, first_exceeding, phase_error
from posenc_core.rotary import Layout
from posenc_core.schemes.rope import RopeSpec

NAMED = 3  # models that a sentence names
LOOSE = 0.02  # of the base, from which its error is told
OFF = 0.1  # radians by which a phase is called off
FAR = 1e3  # times what is allowed: not even near

_LAYOUT_WORDS: dict[str | None, str] = {"half": "half-split", "interleaved": "interleaved", None: ""}


def describe(
    spec: RopeSpec, layout: Layout | None, scale: float | None, faults: Iterable[str] = (), slip: str = "",
    base: str = "", trained: str = "",
) -> str:  # fmt: skip
    """half-split, YaRN factor 4, trained at 4,096, truncated, no attention factor, base 10,000."""
    if slip:
        return ", ".join([p for p in (_LAYOUT_WORDS[layout], "no scaling", slip, *faults) if p])
    s = f"factor {spec.factor:.6g}"
    parts = [_LAYOUT_WORDS[layout]]
    parts.append({
        "none": "no scaling", "linear": f"linear (PI) {s}", "ntk": f"NTK {s}", "dynamic": f"dynamic NTK {s}",
        "ntk_by_parts": f"NTK by parts {s}", "yarn": f"YaRN {s}", "longrope": "LongRoPE, a divisor for each pair",
        "llama3": f"Llama 3 scaling, {s}",
        "proportional": f"p-RoPE, {spec.rotary_fraction:.4g} of the spectrum"
                        + (f", {s}" if spec.factor != 1 else ""),
    }[spec.scaling])  # fmt: skip
    if spec.scaling in ("yarn", "ntk_by_parts", "llama3"):
        parts.append(trained or f"trained at {spec.original_max_position_embeddings:,}")
    if spec.applies(spec.param("beta_fast")) and (spec.beta_fast, spec.beta_slow) != (32.0, 1.0):
        parts.append(f"betas {spec.beta_fast:g} and {spec.beta_slow:g}")
    if spec.scaling == "llama3" and (spec.low_freq_factor, spec.high_freq_factor) != (1.0, 4.0):
        parts.append(f"low and high {spec.low_freq_factor:g} and {spec.high_freq_factor:g}")
    if spec.applies(spec.param("ramp")):
        parts.append(
            "ramp over turns" if spec.ramp == "rotations" else "truncated" if spec.truncate else "not truncated"
        )
    if scale is not None and spec.scaling in ("yarn", "longrope"):
        parts.append("no attention factor" if abs(scale - 1) < 1e-9 else f"attention factor {scale:.6g}")
    parts.append(base or f"base {_grouped(spec.base, 7)}")
    if spec.rotary_dim < spec.d_head:
        parts.append(f"{spec.rotary_dim} of {spec.d_head} features rotate")
    return ", ".join([p for p in parts if p] + list(faults))


def with_sentence(
    candidate: Candidate, stored: str, expected: RopeSpec | None, measured: Tensor, digits: Tensor
) -> Candidate:
    """The candidate with its sentence, and where it leaves the expected spec.

    stored: the number format of a list `measured` [pairs], whose digits alone may be off by `digits`.
    """
    faults = (*candidate.faults, *((f"stored in {stored}",) if stored else ()))
    value, about = _shown(candidate)
    base = f"base {'about ' if about else ''}{_grouped(value, 7)}"
    sentence = describe(
        candidate.spec, candidate.layout, candidate.scale, faults, candidate.slip, base, _trained(candidate, expected)
    )
    if candidate.anything:
        sentence = ", ".join(["a divisor for each pair, as any list allows (LongRoPE's form)", *faults])
    if candidate.part:
        whole = len(rope_frequencies(candidate.spec).inv_freq)
        sentence = f"the first {candidate.part} of {whole} pairs: {sentence}"
    if candidate.names:
        more = f" and {len(candidate.names) - NAMED} more" if len(candidate.names) > NAMED else ""
        sentence += f" (as {', '.join(candidate.names[:NAMED])}{more})"
    made = replace(candidate, sentence=sentence, stored=stored)
    if expected is None:
        return made
    pair, position = divergence(made, expected)
    mine, other = (rope_frequencies(s).inv_freq[: made.part or None] for s in (expected, made.spec))
    same_layout = made.layout in (None, expected.layout)
    same = compare_frequencies(mine, other).first_pair is None and same_layout and not made.outliers
    if stored and made.fits and same_layout and len(mine) == len(measured):
        pair, position = _rounded_off(mine, measured, digits, pair)
    return replace(made, first_pair=pair, first_position=position, as_expected=same)


def _rounded_off(
    expected: Tensor, measured: Tensor, digits: Tensor, pair: int | None
) -> tuple[int | None, float | None]:
    """First pair and position off, of the numbers as they are: their format is coarser than the digits that show it.

    pair: the first that differs but for rounding. Where rounding is all, the pair is the one that is off first.
    """
    difference = (measured - expected).abs()
    off = difference > digits
    if not bool(off.any()):
        return None, None
    positions = torch.where(off, torch.ceil(OFF / difference), torch.inf)
    first = int(positions.argmin()) if pair is None else int(off.nonzero()[0])
    return first, positions.min().item()


def _trained(candidate: Candidate, expected: RopeSpec | None) -> str:
    """The original length, and the lengths that give the same numbers."""
    n = candidate.spec.original_max_position_embeddings
    if candidate.lengths is None or candidate.lengths[0] == candidate.lengths[1]:
        return ""
    low, high = candidate.lengths
    if n in LENGTHS or (expected is not None and n == expected.original_max_position_embeddings):
        return f"trained at {n:,} ({low:,} to {high:,} give the same numbers)"
    return f"trained at {low:,} to {high:,}, which give the same numbers"


def divergence(candidate: Candidate, expected: RopeSpec) -> tuple[int | None, float | None]:
    """The first pair that differs, and the first position at which a phase is off by OFF rad; None, None if none is.

    Another layout or direction is wrong from position 1 on; shifted positions and another scale at position 0.
    """
    told = len(candidate.outliers) + (candidate.times != 1 or candidate.inverse)  # what the frequencies show
    faults = [f for f in candidate.faults if " computed in " not in f][told:]
    scaled = candidate.scale is not None and abs(candidate.scale - attention_scales(expected).tables) > 1e-4
    if scaled or any(f.startswith("positions") for f in faults):
        return 0, 0.0
    if faults or (candidate.layout is not None and candidate.layout != expected.layout):
        return 0, 1.0
    mine, other = rope_frequencies(expected).inv_freq[: candidate.part or None], candidate.inv_freq
    found = compare_frequencies(mine, other, phase=OFF, rtol=1e-3 if candidate.anything else 1e-6)
    pair = found.first_pair
    position = math.inf if pair is None else found.first_position.min().item()
    if candidate.damage is not None:
        w = rope_frequencies(candidate.spec).inv_freq
        damaged = first_exceeding(w, *candidate.damage, limit=OFF)
        if damaged is not None and damaged < position:
            position = float(damaged)
            error = phase_error(w, torch.tensor([damaged]), *candidate.damage)[0]
            pair = int((~(error <= OFF)).nonzero()[0])
    return (None, None) if pair is None else (pair, position)


def verdict(candidates: tuple[Candidate, ...], fitting: int, at_least: bool, kind: str, doubled: Layout | None) -> str:
    """What can be said of the ranking in one or two sentences."""
    if not candidates:
        return (
            "No rotation of pairs gives these numbers: in neither layout does every pair keep its length. Check that x "
            "and rotated belong together."
        )
    fits = [c for c in candidates if c.fits]
    if not fits and any(c.anything for c in candidates):
        return (
            "No method that was tried explains these numbers; as with any list, a divisor for each pair can "
            "(LongRoPE's form; the base cannot be told)."
        )
    if not fits and candidates[0].misfit > FAR:
        return "Nothing that was tried comes near these numbers."
    if not fits:
        return (
            f"Nothing that was tried fits: the nearest, {candidates[0].sentence}, is off by "
            f"{candidates[0].misfit:,.3g} times what the digits allow."
        )
    hidden = " An inv_freq shows neither the layout nor an attention factor." if kind == "inv_freq" else ""
    if doubled is not None:
        how = "cat([f, f])" if doubled == "half" else "repeat_interleave(f, 2)"
        hidden = (
            f" Each frequency is listed twice, as {how} does for the {_LAYOUT_WORDS[doubled]} layout; an attention "
            "factor is not shown."
        )
    if fitting == 1:
        return f"One candidate fits, and the others that were tried do not.{hidden}"
    differ = [
        p.name.replace("_", " ") for p in RopeSpec.params()
        if len({getattr(c.spec, p.name) for c in fits if c.spec.applies(p) and not c.slip}) > 1
    ]  # fmt: skip
    if len({c.slip for c in fits}) > 1:
        differ.append("reading of the exponent")
    if len({c.faults for c in fits}) > 1:
        differ.append("faults")
    apart = f" (they differ in {', '.join(differ)})" if differ else ""
    count = f"{'At least ' if at_least else ''}{fitting:,} candidates fit"
    shown = f", the simplest {len(fits)} are shown" if fitting > len(fits) else ""
    return f"{count}{shown}: these digits cannot tell them apart{apart}. The simplest comes first.{hidden}"


def about_base(best: Candidate, measured: Tensor, tolerance: Tensor, expected: RopeSpec | None) -> str:
    """How well the digits tell the base, where they tell it badly or it is not a usual one."""
    index = torch.arange(len(measured), dtype=torch.float64)
    use = tolerance.isfinite() & (measured > 0) & (index > 0)
    if len(measured) < 2:
        return " One pair turns by 1 rad under any base."
    if best.bases is not None and _shown(best)[1]:
        low, high = best.bases
        digits = 2 + math.floor(math.log10(best.spec.base)) - math.floor(math.log10(high - low))
        return f" These digits allow any base from {_grouped(low, digits)} to {_grouped(high, digits)}."
    if not bool(use.any()):
        return ""
    pairs = best.spec.rotary_dim // 2 if best.part else len(measured)
    error = ((tolerance / measured)[use] * pairs / index[use]).min().item()
    return f" These digits tell the base to {100 * error:.2g}% only." if error > LOOSE else ""


def _shown(candidate: Candidate) -> tuple[float, bool]:
    """The base in as few digits as what the numbers allow, and whether they allow the next number of as many too."""
    base = candidate.spec.base
    if candidate.bases is None:
        return base, False
    low, high = candidate.bases
    middle = (low + high) / 2
    for digits in range(1, 8):
        made = next((b for b in (base, middle) if low <= float(f"{b:.{digits}g}") <= high), None)
        if made is not None:
            unit = 10.0 ** (math.floor(math.log10(base)) + 1 - digits)
            return float(f"{made:.{digits}g}"), high - low >= unit
    return base, False


def _grouped(value: float, digits: int) -> str:
    """12,300 for 12,345 in 3 digits."""
    return f"{float(f'{value:.{digits}g}'):,.13g}"
