"""Which RoPE made these numbers: candidates for a pasted inv_freq, cos and sin, or one rotated vector, best first.

A candidate fits where no number differs by more than its digits and its format allow. Candidates that fit alike cannot
be told apart by these numbers, and are all given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from posenc_core.frequencies import attention_scales, geometric, rope_frequencies
from posenc_core.pasted import InvFreq, Kind, Pasted, Rotated, Tables, read_pasted
from posenc_core.porting import compare_pairs, first_exceeding, layout_permutation, phase_error
from posenc_core.readings import (
    FLOAT32,
    FRACTIONS,
    Damage,
    Reading,
    formats_of,
    readings,
    stored_format,
    tolerance_of,
    with_rounded_frequencies,
)
from posenc_core.rotary import Layout, apply_rotary
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import SpecError

BASES = (1e4, 5e5, 1e6, 1e7, 1.5e5, 1.3e5, 2.5e5, 5e6, 8e6, 1e3, 1.6e5, 5e4, 2e6, 1e5, 2e5, 4e6, 1e8, 1e9, 1e11, 1e2)
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0, 1.5, 2.5, 3.0, 5.0, 6.0, 10.0, 12.0, 20.0, 24.0, 48.0, 128.0, 256.0)
LENGTHS = (4096, 8192, 32768, 2048, 16384, 1024, 65536, 131072, 262144, 512, 40960, 10240, 163840)
BETAS = ((32.0, 1.0), (32.0, 2.0), (64.0, 1.0), (16.0, 1.0), (8.0, 1.0), (32.0, 4.0), (128.0, 2.0), (4.0, 1.0))
TURNS = ((1.0, 4.0), (1.0, 1.0), (1.0, 2.0), (1.0, 8.0), (2.0, 4.0), (1.0, 32.0))  # llama3's low and high
FITS = 1.05  # times what digits and format allow
KEPT = 12  # candidates returned
NAMED = 3  # models that a sentence names
LOOSE = 0.02  # of the base, from which its error is told
OFF = 0.1  # radians by which a phase is called off
LAST = 20.0  # rank of candidates that can explain anything
MOST_CHECKS = 3000  # of one reading: numbers that tell little allow everything
FAR = 1e3  # times what is allowed: not even near

# ------------------------------------------------------------------ what is returned


@dataclass(frozen=True, eq=False)
class Candidate:
    """A spec that may have made the numbers.

    layout: as seen in the numbers, None where they do not show it. misfit: the largest difference over what digits and
    format allow, up to 1 where it fits. residual: the largest difference itself, relative for inv_freq. per_pair and
    misfits: residual and misfit of every pair. names: known models. slip: an exponent written wrongly, of which the
    spec has the effect. damage: a number format, and what it rounded. faults: all that no spec can say, in words.
    scale: what multiplies cos and sin, None where the numbers do not show it. first_pair, first_position: where it
    leaves the expected spec, None if nowhere.
    """

    spec: RopeSpec
    layout: Layout | None
    misfit: float
    residual: float
    per_pair: Tensor
    misfits: Tensor
    sentence: str
    rank: float
    faults: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    slip: str = ""
    damage: Damage = None
    scale: float | None = None
    first_pair: int | None = None
    first_position: float | None = None

    @property
    def fits(self) -> bool:
        """Whether digits and format explain every difference."""
        return self.misfit <= FITS


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The ranked candidates, and what was measured.

    kind: inv_freq, cos_sin or rotated. measured, tolerance: radians a position [pairs], infinite tolerance where a
    pair's turns cannot be counted. format: the number format that the numbers look like. sentence: the verdict.
    """

    kind: str
    candidates: tuple[Candidate, ...]
    measured: Tensor
    tolerance: Tensor
    format: str
    sentence: str

    @property
    def fitting(self) -> int:
        """How many candidates fit."""
        return sum(c.fits for c in self.candidates)


# ------------------------------------------------------------------ candidates of one reading


@dataclass
class _Search:
    """Collects the specs that may explain one reading, checks each once, keeps all."""

    reading: Reading
    expected: RopeSpec | None
    found: dict[object, Candidate] = field(default_factory=dict)
    checks: int = 0

    def __post_init__(self) -> None:
        reading, expected = self.reading, self.expected
        rotary = 2 * reading.pairs
        d_head = reading.d_head or rotary
        fits = expected is not None and expected.rotary_dim == rotary and expected.scaling != "proportional"
        if reading.d_head is None and fits and expected is not None:
            d_head = expected.d_head
        fraction = rotary / d_head
        fraction = fraction if int(d_head * fraction) == rotary else (rotary + 0.5) / d_head
        layout = reading.layout or (expected.layout if expected is not None else "half")
        self.d_head, self.rotary = d_head, rotary
        self.fields: dict[str, Any] = {"d_head": d_head, "rotary_fraction": fraction, "layout": layout}

    # -------------------------------------------------------- checking

    def make(self, **fields: Any) -> RopeSpec | None:
        """The spec, None if it is not legal."""
        try:
            return RopeSpec(**(self.fields | fields))
        except SpecError:
            return None

    def roughly(self, spec: RopeSpec | None) -> bool:
        """Whether the measured frequencies allow the spec, and the numbers themselves where they are few."""
        if (
            spec is None
            or len(w := rope_frequencies(spec).inv_freq) != self.reading.pairs
            or self.checks >= MOST_CHECKS
        ):
            return False
        self.checks += 1
        reading, known = self.reading, self.reading.known
        off = (w - reading.measured).abs()[known] / (reading.tolerance + FLOAT32 * w)[known]
        if not bool((off <= 3.0).all()):
            return False
        return bool(known.all()) or bool((reading.check(w, reading.scale or 1.0, None)[0] <= 3.0).all())

    def add(self, spec: RopeSpec | None, rank: float, *, slip: str = "", damage: Damage = None) -> bool:
        """Check a spec and keep it; whether it fits."""
        reading = self.reading
        if spec is None or len(w := rope_frequencies(spec).inv_freq) != reading.pairs:
            return False
        if reading.layout is not None and spec.layout != reading.layout:
            spec = spec.replace(layout=reading.layout)
        share = spec.rotary_dim / spec.d_head  # an eighth of the head, or two fifths: what models rotate
        rank += 0.0 if share * 8 % 1 == 0 or share in FRACTIONS else 0.5
        spec, size, scaled = self.with_scale(spec)
        misfit, residual = reading.check(w, 1.0 if size is None else size, damage)
        faults = [*reading.faults, *([scaled] if scaled else [])]
        damage = damage or reading.damage
        if damage is not None:
            what = {"all": "phases", "product": "products"}.get(damage[1], damage[1])
            faults.append(f"{what} computed in {damage[0]}")
        made = Candidate(
            spec, reading.layout, misfit.max().item(), residual.max().item(), residual, misfit, "", rank + len(faults),
            tuple(faults), (), slip, damage, size,
        )  # fmt: skip
        key = (tuple(sorted(spec.to_query().items())), made.faults, slip)
        if key not in self.found or self.found[key].rank > rank:
            self.found[key] = made
        return made.fits

    def with_scale(self, spec: RopeSpec) -> tuple[RopeSpec, float | None, str]:
        """The spec with the attention factor that the numbers show; that factor; a fault where no spec can say it."""
        scale = self.reading.scale
        if scale is None:
            return spec, None, ""
        tolerance = 1.5 * self.reading.scale_tolerance
        fine = max(0.2 * self.reading.scale_tolerance, 2e-7)
        natural = attention_scales(spec).tables
        if abs(scale - natural) <= tolerance:
            return spec, natural, ""
        if spec.scaling in ("yarn", "longrope"):
            kept = 1.0 if abs(scale - 1) <= tolerance else _shortest(scale, fine)
            return spec.replace(attention_factor=kept, mscale=0.0, mscale_all_dim=0.0), kept, ""
        if abs(scale - 1) <= tolerance:
            return spec, 1.0, ""
        kept = _shortest(scale, fine)
        return spec, kept, f"cos and sin scaled by {kept:.6g}"

    # -------------------------------------------------------- families

    def run(self, known: Mapping[str, RopeSpec]) -> None:
        """All families, simple ones first."""
        expected = self.expected
        if expected is not None:
            self.add(self.fitted(expected), 0.0)
        self.geometric()
        self.zeros()
        if not self.fits:
            self.by_parts(BETAS[:1], TURNS[:2])
        if not self.fits:
            self.by_parts(BETAS[1:], TURNS[2:])
        if not self.fits:
            self.refined()
        self.named(known)
        if not self.found:  # something to show how far the numbers are from
            for base in BASES[:4]:
                self.add(self.make(base=base), 2.0)

    @property
    def fits(self) -> bool:
        """Whether anything fits yet."""
        return any(c.fits for c in self.found.values())

    def fitted(self, spec: RopeSpec) -> RopeSpec | None:
        """A spec of the head size and layout that the numbers show."""
        if self.reading.d_head is None or spec.d_head == self.reading.d_head:
            return spec
        return None

    def named(self, known: Mapping[str, RopeSpec]) -> None:
        """Models of these numbers: their names beside the candidate that turns as they do, or a candidate each."""
        for name, spec in known.items():
            mine = self.fitted(spec)
            if mine is None or self.reading.layout not in (None, mine.layout) or not self.roughly(mine):
                continue
            w = rope_frequencies(mine).inv_freq
            if not any(self._is(candidate, mine, w) for candidate in self.found.values()):
                self.add(mine, 1.0)
            for key, candidate in self.found.items():
                if self._is(candidate, mine, w):
                    rank = min(candidate.rank, 1.0 + len(candidate.faults))
                    self.found[key] = replace(candidate, names=(*candidate.names, name), rank=rank)

    def _is(self, candidate: Candidate, spec: RopeSpec, inv_freq: Tensor) -> bool:
        """Whether a candidate is this spec, as far as the numbers show: a list of frequencies shows no head dim."""
        if candidate.slip or (self.reading.d_head is not None and candidate.spec.d_head != spec.d_head):
            return False
        return torch.allclose(rope_frequencies(candidate.spec).inv_freq, inv_freq, rtol=1e-9, atol=0.0)

    def zeros(self) -> None:
        """p-RoPE: pairs at the end that do not turn at all."""
        w = self.reading.measured
        still = int((w == 0).sum())
        turning = len(w) - still
        if not still or not turning or bool((w[turning:] != 0).any()) or self.d_head != self.rotary:
            return
        base, factor = self.line(turning)
        unknown = not bool(self.reading.known[:turning].any())
        for b in BASES if unknown else self.bases(base):
            for s in (1.0, *FACTORS) if unknown else self.factors(factor) if factor > 1.01 else (1.0,):
                fraction = (turning + 0.25) / len(w)
                nice = next((f for f in (turning / len(w),) if int(self.d_head * f) // 2 == turning), fraction)
                spec = self.make(base=b, scaling="proportional", rotary_fraction=nice, factor=s)
                odd = turning / len(w) * 8 % 1 != 0
                if self.roughly(spec) and not (odd and self.fits):  # slow pairs can look as if they stood still
                    self.add(spec, 3.0 + (b not in BASES) + odd)

    def line(self, turning: int | None = None, through_one: bool = False) -> tuple[float, float]:
        """(base, factor) of the geometric series nearest to the first `turning` measured frequencies.

        Where turns cannot be counted, the series found so far counts those of the next faster pair, again and again.
        """
        reading = self.reading
        last = reading.pairs if turning is None else turning
        w, tolerance = reading.measured, reading.tolerance
        index = torch.arange(reading.pairs, dtype=torch.float64)
        use = reading.known & (index < last) & (w > 4 * tolerance) & ((index > 0) | (not through_one))
        while int(use.sum()) >= (1 if through_one else 2):
            weight = (w[use] / (tolerance[use] + FLOAT32 * w[use])).clamp(max=1e6)
            columns = [index[use]] if through_one else [index[use], torch.ones_like(index[use])]
            design = torch.stack(columns, 1) * weight[:, None]
            normal = torch.linalg.pinv(design.T @ design)
            solution = normal @ (design.T @ (w[use].log() * weight))
            slope, start = solution[0].item(), 0.0 if through_one else solution[1].item()
            following = int(use.nonzero()[0]) - 1
            if reading.phases is not None and following >= int(through_one):
                row = torch.tensor([float(following), 1.0][: len(columns)], dtype=torch.float64)
                made = math.exp(min(start + slope * following, 50.0))
                error = 2 * (row @ normal @ row).clamp(min=0).sqrt().item() * made * reading.position
                if error < 2.0:
                    use = use | (index == following)
                    w, tolerance = self._lift(w, tolerance, following, made)
                    continue
            return math.exp(min(-slope * reading.pairs, 60.0)), math.exp(min(-start, 30.0))
        return 1e4, 1.0

    def _lift(self, w: Tensor, tolerance: Tensor, pair: int, near: float) -> tuple[Tensor, Tensor]:
        """One more pair read as the number of turns nearest to a frequency."""
        phase, error, position = self.reading.phases, self.reading.error, self.reading.position
        assert phase is not None
        assert error is not None
        turns = torch.round((position * near - phase[pair]) / (2 * math.pi))
        w, tolerance = w.clone(), tolerance.clone()
        w[pair] = (phase[pair] + 2 * math.pi * turns) / position
        tolerance[pair] = error[pair] / position
        return w, tolerance

    def bases(self, near: float) -> list[float]:
        """Bases worth a check: the expected one, known ones nearby, the shortest number near the measured one."""
        wide = 0.05
        listed = [b for b in BASES if abs(math.log(b / near)) < wide] if near > 1 else []
        if self.expected is not None and abs(math.log(self.expected.base / near)) < wide:
            listed.insert(0, self.expected.base)
        return list(dict.fromkeys([*listed, *_shorter(near)]))

    def factors(self, near: float, wide: float = 0.01) -> list[float]:
        """Factors worth a check."""
        listed = [s for s in FACTORS if abs(s / near - 1) < wide]
        if self.expected is not None and abs(self.expected.factor / near - 1) < wide and self.expected.factor > 1:
            listed.insert(0, self.expected.factor)
        return list(dict.fromkeys(listed or _shorter(near)[:4]))

    def geometric(self) -> None:
        """A plain, linearly scaled or NTK spectrum, and the slips of exponents that look like one."""
        w, tolerance = self.reading.measured, self.reading.tolerance
        if bool(((w == 0) & (tolerance < 1e-30)).any()) or int((w > 0).sum()) == 0:
            return
        for b in self.bases(self.line(through_one=True)[0]):
            spec = self.make(base=b)
            if self.roughly(spec) and self.add(spec, 2.0 if b in BASES else 4.0):
                self.readings_of(b)
                return
        base, factor = self.line()
        if factor > 1.0005:
            for b, s in product(self.bases(base), self.factors(factor)):
                spec = self.make(base=b, scaling="linear", factor=s)
                if self.roughly(spec):
                    self.add(spec, 3.0 if b in BASES and s in FACTORS else 5.0)
            for by, name in ((1, "(2i + 1)/R instead of 2i/R"), (2, "2(i + 1)/R instead of 2i/R")):
                for b in self.bases(base):
                    s = b ** (by / self.rotary)
                    spec = self.make(base=b, scaling="linear", factor=s) if s >= 1 else None
                    if b in BASES and self.roughly(spec):
                        self.add(spec, 2.5, slip=f"exponent {name}, base {b:,.7g}")

    def refined(self) -> None:
        """A plain or linear spectrum of no usual base: the base with the least misfit, and the shortest that fits."""
        base, factor = self.line()
        plain = self.line(through_one=True)[0]
        for near, s in ((plain, 1.0), *((base, s) for s in self.factors(factor)[:2] if factor > 1.0005)):

            def off(value: float, s: float = s) -> float:
                made = geometric(value, self.rotary) / s
                return self.reading.check(made, self.reading.scale or 1.0, None)[0].square().mean().item()

            low, high = near * 0.98, near * 1.02
            for _ in range(60):
                left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
                low, high = (low, right) if off(left) < off(right) else (left, high)
            for b in _shorter((low + high) / 2):
                fields = {"scaling": "linear", "factor": s} if s > 1 else {}
                spec = self.make(base=b, **fields)
                if self.roughly(spec) and self.add(spec, 4.0 + (s > 1)):
                    break

    def readings_of(self, base: float) -> None:
        """Other ways to get the plain spectrum of a base: NTK from a known base, and slips of the exponent."""
        if self.rotary >= 4:
            power = self.rotary / (self.rotary - 2)
            for b, s in product(BASES[:8], FACTORS):
                if abs(math.log(b * s**power / base)) < 0.02:
                    spec = self.make(base=b, scaling="ntk", factor=s)
                    if self.roughly(spec):
                        self.add(spec, 3.5 if base not in BASES else 8.0)
        if base in BASES[:4]:
            return
        shares = [self.rotary / self.d_head] if self.d_head > self.rotary else list(FRACTIONS)
        for share in shares:
            for b in BASES[:8]:
                if abs(math.log(b) * share - math.log(base)) < 0.02:
                    slip = f"exponent over the head dim, of which {share:g} rotates, base {b:,.7g}"
                    self.add(self.make(base=b**share), 3.6, slip=slip)
        for b in BASES[:8]:
            if abs(math.log(b) / 2 - math.log(base)) < 0.02:
                self.add(self.make(base=math.sqrt(b)), 3.6, slip=f"exponent i/R instead of 2i/R, base {b:,.7g}")

    def by_parts(self, betas: Iterable[tuple[float, float]], turns: Iterable[tuple[float, float]]) -> None:
        """YaRN and Llama 3: the head of the spectrum tells the base, the tail the factor, the ramp the rest."""
        reading, known = self.reading, self.reading.known
        allowed = 3.0 * (reading.tolerance + FLOAT32 * reading.measured)[known]
        for base in self.head_bases():
            plain = geometric(base, self.rotary)
            factors = self.tail_factors(base)
            near = dict.fromkeys(n for s in factors for n in self.ramp_length(base, s))
            ramps = list(self.ramps(base, near, betas, turns)) if factors else []
            if not ramps:
                continue
            # how much of the division each pair gets does not depend on the factor
            specs = [rope_frequencies(spec).inv_freq for spec, _ in ramps]
            share = 2 * (1 - torch.stack(specs) / plain)
            for s in factors:
                made = plain * (1 - share * (1 - 1 / s))
                close = ((made - reading.measured).abs()[:, known] <= allowed).all(-1)
                for at in close.nonzero().flatten().tolist():
                    spec, rank = ramps[at]
                    spec = spec.replace(factor=s)
                    if self.roughly(spec):
                        self.add(spec, rank + (s not in FACTORS))

    def ramps(
        self, base: float, near: Iterable[int], betas: Iterable[tuple[float, float]],
        turns: Iterable[tuple[float, float]],
    ) -> Iterator[tuple[RopeSpec, float]]:  # fmt: skip
        """Specs by parts of factor 2, and how unusual each is."""
        lengths, betas, turns = list(LENGTHS), list(betas), list(turns)
        if self.expected is not None:
            if self.expected.applies(self.expected.param("original_max_position_embeddings")):
                lengths.insert(0, self.expected.original_max_position_embeddings)
            betas.insert(0, (self.expected.beta_fast, self.expected.beta_slow))
            turns.insert(0, (self.expected.low_freq_factor, self.expected.high_freq_factor))
        common = {"base": base, "factor": 2.0}
        rank = 4.0 + (base not in BASES)
        for length in dict.fromkeys([*lengths, *near]):
            fields = common | {"original_max_position_embeddings": length}
            odd = rank + (length not in LENGTHS)
            for fast, slow in dict.fromkeys(betas):
                for more, extra in (({}, 0.0), ({"truncate": False}, 0.2), ({"ramp": "rotations"}, 0.4)):
                    spec = self.make(scaling="yarn", beta_fast=fast, beta_slow=slow, **fields, **more)
                    if spec is not None:
                        yield spec, odd + extra + ((fast, slow) != BETAS[0])
            for low, high in dict.fromkeys(turns):
                spec = self.make(scaling="llama3", low_freq_factor=low, high_freq_factor=high, **fields)
                if spec is not None:
                    yield spec, odd + 0.1 + ((low, high) != TURNS[0])

    def head_bases(self) -> list[float]:
        """Bases whose first pairs are the measured ones."""
        w, tolerance = self.reading.measured, self.reading.tolerance
        known = self.reading.known
        count = max(2, self.reading.pairs // 16)
        head = known & (torch.arange(len(w)) < count + 1)
        fitted = []
        index = torch.arange(len(w), dtype=torch.float64)
        for upto in (count + 1, 2 * count + 1):
            use = known & (index > 0) & (index < upto) & (w > 0)
            if bool(use.any()):
                weight = (w[use] / tolerance[use].clamp(min=1e-12)) ** 2
                slope = (weight * index[use] * w[use].log()).sum() / (weight * index[use].square()).sum()
                fitted.append(math.exp(min(-slope.item() * self.reading.pairs, 60.0)))
        listed = list(BASES) + [b for f in fitted for b in _shorter(f)]
        if self.expected is not None:
            listed.insert(0, self.expected.base)

        def allowed(base: float) -> bool:
            made = geometric(base, self.rotary)
            if not bool(head.any()):
                misfit = self.reading.check(made, self.reading.scale or 1.0, None)[0]
                return bool((misfit[: count + 1] <= 3).all())
            return bool(((made - w).abs()[head] <= 3 * tolerance[head] + FLOAT32).all())

        return [b for b in dict.fromkeys(listed) if 1.001 <= b <= 1e12 and allowed(b)][:6]

    def tail_factors(self, base: float) -> list[float]:
        """Factors by which the slow end is divided; all that can be, where the digits hardly show the slow end."""
        w, tolerance = self.reading.measured, self.reading.tolerance
        plain = geometric(base, self.rotary)
        least = torch.where(self.reading.known, plain / (w + 2 * tolerance), 1.0)
        most = torch.where(self.reading.known & (w > 2 * tolerance), plain / (w - 2 * tolerance), torch.inf)
        end = slice(-max(2, self.reading.pairs // 8), None)
        low, high = least[end].max().item(), most[end].min().item()
        if high < 1.05 or low > 1.02 * high:
            return []
        if high < 1.1 * low:
            return self.factors((low + min(high, 1.1 * low)) / 2, max(0.01, high / low - 1))[:4]
        listed = [s for s in FACTORS if 0.99 * low <= s <= 1.01 * high]
        if self.expected is not None and low <= self.expected.factor <= high:
            listed.insert(0, self.expected.factor)
        return listed[:14]

    def ramp_length(self, base: float, s: float) -> list[int]:
        """Original lengths from where the ramp of an untruncated YaRN (32/1) would start; none for a ragged ramp."""
        w, tolerance = self.reading.measured, self.reading.tolerance
        plain = geometric(base, self.rotary)
        share = (1 - w / plain) / (1 - 1 / s)
        inside = tolerance.isfinite() & (share > 0.05) & (share < 0.95)
        if int(inside.sum()) < 2:
            return []
        index = torch.arange(len(w), dtype=torch.float64)
        design = torch.stack([torch.ones(int(inside.sum()), dtype=torch.float64), index[inside]], 1)
        start, slope = torch.linalg.lstsq(design, share[inside]).solution.tolist()
        if slope <= 0:
            return []
        length = 2 * math.pi * 32 * base ** (2 * (-start / slope) / self.rotary)
        if not 2 <= length <= 2**30:
            return []
        return [n for n in dict.fromkeys((round(length / 1024) * 1024, round(length))) if 2 <= n <= 2**30]

    def divisors(self) -> None:
        """LongRoPE: any divisor of at least 1 for each pair; that always fits, so it comes last."""
        w, tolerance = self.reading.measured, self.reading.tolerance
        if not bool(tolerance.isfinite().all()) or bool((w <= 0).any()):
            return
        bases = [1e4, *BASES] if self.expected is None else [self.expected.base, 1e4, *BASES]
        for base in dict.fromkeys(bases):
            divisor = geometric(base, self.rotary) / self.sharpened()
            if bool((divisor > 0.99).all()) and bool((divisor < 1e6).all()) and divisor.max() > 1.01:
                values = tuple(float(f"{max(v, 1.0):.9g}") for v in divisor.tolist())
                spec = self.make(base=base, scaling="longrope", short_factor=values, factor=1.0)
                self.add(spec, LAST)
                return

    def sharpened(self) -> Tensor:
        """The measured frequencies, moved within their tolerance to where the numbers are met best, pair by pair."""
        reading = self.reading
        if reading.scale is None:
            return reading.measured
        _, size, _ = self.with_scale(RopeSpec(**self.fields, scaling="longrope"))
        low = (reading.measured - 2 * reading.tolerance).clamp(min=1e-300)
        high = reading.measured + 2 * reading.tolerance
        for _ in range(40):
            left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
            less = reading.check(left, size or 1.0, None)[0] < reading.check(right, size or 1.0, None)[0]
            low, high = torch.where(less, low, left), torch.where(less, right, high)
        return (low + high) / 2

    def damaged(self) -> None:
        """Whether a number format explains what no spec does: the likely specs, computed in bfloat16 or float16."""
        likely = sorted(self.found.values(), key=lambda c: c.misfit)[:6]
        specs = [c.spec for c in likely] + [s for b in BASES[:4] if (s := self.make(base=b)) is not None]
        for spec, name, rounded in product(
            dict.fromkeys(specs), ("bfloat16", "float16"), ("all", "positions", "frequencies", "product")
        ):
            self.add(spec, 5.0 + (rounded == "all") * -0.5, damage=(name, rounded))


def _shorter(value: float) -> list[float]:
    """Numbers near a value, of 1 to 7 digits, the shortest first."""
    if not (math.isfinite(value) and value > 0):
        return []
    return list(dict.fromkeys(float(f"{value:.{n}g}") for n in range(1, 8)))


def _shortest(value: float, tolerance: float) -> float:
    """The number of the fewest digits within the tolerance."""
    return next((v for v in _shorter(value) if abs(v - value) <= tolerance), value)


# ------------------------------------------------------------------ in the open


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
    formats = formats_of(data)
    for number_format in formats:
        found = _found(data, kind, number_format, expected, known or {})
        if any(c.fits for c, _ in found):
            break
    else:  # nothing fits: told for the likeliest format
        number_format = formats[0]
        found = _found(data, kind, number_format, expected, known or {}) if len(formats) > 1 else found
    found.sort(key=lambda f: (not f[0].fits, f[0].rank + f[0].misfit / 2 if f[0].fits else f[0].misfit))
    stored = number_format if kind == "inv_freq" and number_format != "float32" else ""
    best = tuple(_told(c, stored, expected) for c in _without_neighbours([c for c, _ in found], expected)[:KEPT])
    reading = found[0][1]
    unknown = torch.full((best[0].spec.rotary_dim // 2,), torch.inf, dtype=torch.float64)
    measured, tolerance = (unknown, unknown) if reading is None else (reading.measured, reading.tolerance)
    verdict = _verdict(best, kind) + (_about_base(measured, tolerance) if best[0].fits else "")
    return Fingerprint(kind, best, measured, tolerance, number_format, verdict)


def _found(
    data: Pasted, kind: str, number_format: str, expected: RopeSpec | None, known: Mapping[str, RopeSpec]
) -> list[tuple[Candidate, Reading | None]]:
    """All candidates with the reading that they explain: right rotations first, faults only where none of them fits."""
    searches: list[_Search] = []

    def search(found: Iterable[Reading]) -> bool:
        """Whether one of these readings has a candidate that fits."""
        made = [_Search(reading, expected) for reading in found]
        for one in made:
            one.run(known)
        searches.extend(made)
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
    for one in searches[: len(straight)] if not done else ():
        one.divisors()
    found: list[tuple[Candidate, Reading | None]] = [(c, one.reading) for one in searches for c in one.found.values()]
    if isinstance(data, Rotated) and not any(c.fits for c, _ in found):
        found += [(c, None) for c in _mixed(data, expected)]
    return found


def _about_base(measured: Tensor, tolerance: Tensor) -> str:
    """How well the digits tell the base, where they tell it badly."""
    index = torch.arange(len(measured), dtype=torch.float64)
    use = tolerance.isfinite() & (measured > 0) & (index > 0)
    if len(measured) < 2:
        return " One pair turns by 1 rad under any base."
    if not bool(use.any()):
        return ""
    error = ((tolerance / measured)[use] * len(measured) / index[use]).min().item()
    return f" These digits tell the base to {100 * error:.2g}% only." if error > LOOSE else ""


def _without_neighbours(found: list[Candidate], expected: RopeSpec | None) -> list[Candidate]:
    """Without the candidates that differ from a better one only by numbers that nobody chooses (base 9,999.98)."""
    kept: list[Candidate] = []
    families: set[object] = set()
    for candidate in found:
        spec = candidate.spec
        family = (
            spec.scaling,
            spec.truncate,
            spec.ramp,
            candidate.layout,
            spec.rotary_dim,
            candidate.faults,
            candidate.slip,
        )
        if family not in families or candidate.names or _usual(spec, expected):
            kept.append(candidate)
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


_LAYOUT_WORDS: dict[str | None, str] = {"half": "half-split", "interleaved": "interleaved", None: ""}


def describe(
    spec: RopeSpec, layout: Layout | None, scale: float | None, faults: Iterable[str] = (), slip: str = ""
) -> str:
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
        parts.append(f"trained at {spec.original_max_position_embeddings:,}")
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
    parts.append(f"base {spec.base:,.7g}")
    if spec.rotary_dim < spec.d_head:
        parts.append(f"{spec.rotary_dim} of {spec.d_head} features rotate")
    return ", ".join([p for p in parts if p] + list(faults))


def _told(candidate: Candidate, stored: str, expected: RopeSpec | None) -> Candidate:
    """The candidate with its sentence, and where it leaves the expected spec."""
    faults = (*candidate.faults, *((f"stored in {stored}",) if stored else ()))
    sentence = describe(candidate.spec, candidate.layout, candidate.scale, faults, candidate.slip)
    if candidate.names:
        more = f" and {len(candidate.names) - NAMED} more" if len(candidate.names) > NAMED else ""
        sentence += f" (as {', '.join(candidate.names[:NAMED])}{more})"
    made = replace(candidate, sentence=sentence)
    if expected is None:
        return made
    pair, position = divergence(made, expected)
    return replace(made, first_pair=pair, first_position=position)


def divergence(candidate: Candidate, expected: RopeSpec) -> tuple[int | None, float | None]:
    """The first pair that differs, and the first position at which a phase is off by OFF rad; None, None if none is.

    Another layout or direction is wrong from position 1 on; shifted positions and another scale at position 0.
    """
    faults = [f for f in candidate.faults if " computed in " not in f]
    scaled = candidate.scale is not None and abs(candidate.scale - attention_scales(expected).tables) > 1e-4
    if scaled or any(f.startswith("positions") for f in faults):
        return 0, 0.0
    if faults or (candidate.layout is not None and candidate.layout != expected.layout):
        return 0, 1.0
    found = compare_pairs(expected, candidate.spec, phase=OFF, rtol=1e-6 if candidate.rank < LAST else 1e-3)
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


def _verdict(candidates: tuple[Candidate, ...], kind: str) -> str:
    """What can be said of the ranking in one or two sentences."""
    if not candidates:
        return (
            "No rotation of pairs gives these numbers: in neither layout does every pair keep its length. Check that x "
            "and rotated belong together."
        )
    fits = [c for c in candidates if c.fits]
    if not fits and candidates[0].misfit > FAR:
        return "Nothing that was tried comes near these numbers."
    if not fits:
        return (
            f"Nothing that was tried fits: the nearest, {candidates[0].sentence}, is off by "
            f"{candidates[0].misfit:,.3g} times what the digits allow."
        )
    hidden = " An inv_freq shows neither the layout nor an attention factor." if kind == "inv_freq" else ""
    if len(fits) == 1:
        return f"One candidate fits, and the others that were tried do not.{hidden}"
    differ = [p.name.replace("_", " ") for p in RopeSpec.params() if len({getattr(c.spec, p.name) for c in fits}) > 1]
    if len({c.faults for c in fits}) > 1:
        differ.append("faults")
    return (
        f"{len(fits)} candidates fit: these digits cannot tell them apart (they differ in {', '.join(differ)}). "
        f"The simplest comes first.{hidden}"
    )
