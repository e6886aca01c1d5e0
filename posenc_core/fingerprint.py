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
from posenc_core.porting import compare_frequencies, first_exceeding, layout_permutation, phase_error
from posenc_core.readings import (
    FLOAT32,
    FRACTIONS,
    Damage,
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

BASES = (1e4, 5e5, 1e6, 1e7, 1.5e5, 1.3e5, 2.5e5, 5e6, 8e6, 1e3, 1.6e5, 5e4, 2e6, 1e5, 2e5, 4e6, 1e8, 1e9, 1e11, 1e2)
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0, 1.5, 2.5, 3.0, 5.0, 6.0, 10.0, 12.0, 20.0, 24.0, 48.0, 128.0, 256.0)
RATIOS = tuple(2.0**n / 3 for n in range(3, 13)) + tuple(
    2.0**n / 5 for n in range(4, 12)
)  # of lengths: 131,072 / 6,144
LENGTHS = (4096, 8192, 32768, 2048, 16384, 1024, 65536, 131072, 262144, 512, 40960, 10240, 163840)
BETAS = ((32.0, 1.0), (32.0, 2.0), (64.0, 1.0), (16.0, 1.0), (8.0, 1.0), (32.0, 4.0), (128.0, 2.0), (4.0, 1.0))
TURNS = ((1.0, 4.0), (1.0, 1.0), (1.0, 2.0), (1.0, 8.0), (2.0, 4.0), (1.0, 32.0))  # llama3's low and high
FITS = 1.05  # times what digits and format allow
KEPT = 12  # candidates returned
NAMED = 3  # models that a sentence names
LOOSE = 0.02  # of the base, from which its error is told
OFF = 0.1  # radians by which a phase is called off
LAST = 20.0  # rank of candidates that can explain anything
OUTLIERS = 2  # pairs that may be wrong in a list that is otherwise explained, of at least EIGHT
EIGHT = 8
MULTIPLES = {1 / (2 * math.pi): "in turns instead of radians (divided by 2π)",
             math.pi / 180: "as if given in degrees (multiplied by π/180)",
             180 / math.pi: "in degrees instead of radians (multiplied by 180/π)",
             2 * math.pi: "multiplied by 2π"}  # fmt: skip
INVERSES = {2 * math.pi: "these are wavelengths (2π/w), not frequencies",
            1.0: "these are reciprocals of frequencies (1/w), not frequencies"}  # fmt: skip
LEAST_PART = 4  # numbers that may be the first ones of a longer list
MOST_TELLING = 1500  # checks that tell which lengths and bases give the same numbers
MOST_CHECKS = 6000  # of one paste: numbers that tell little allow everything
SHARE = 0.4  # of what is left, that one reading may take
CELLS = 1024  # numbers that are compared as fast as a spec is made
FAR = 1e3  # times what is allowed: not even near

# ------------------------------------------------------------------ what is returned


@dataclass(frozen=True, eq=False)
class Candidate:
    """A spec that may have made the numbers.

    layout: as seen in the numbers, None where they do not show it. misfit: the largest difference over what digits and
    format allow, up to 1 where it fits. residual: the largest difference itself, relative for inv_freq. per_pair and
    misfits: residual and misfit of every pair. names: known models. slip: an exponent written wrongly, of which the
    spec has the effect. damage: a number format, and what it rounded. faults: all that no spec can say, in words.
    scale: what multiplies cos and sin, None where the numbers do not show it. anything: whether it could explain any
    list, which makes it no finding. outliers: (pair, times too fast) of pairs that it does not explain. times: what
    multiplied every frequency; inverse: the numbers are `times` over the frequencies. bases, lengths: the ends of what
    gives the same numbers up to their digits, None where that was not looked for. part: how many of the spec's pairs,
    from the first on, the numbers are, 0 where they are all. stored: the number format of a list of frequencies that
    is coarser than its digits. first_pair, first_position: where it leaves the expected spec, None if nowhere; where
    `stored`, of the numbers as they are. as_expected: whether the spec turns as the expected one does.
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
    anything: bool = False
    outliers: tuple[tuple[int, float], ...] = ()
    times: float = 1.0
    bases: tuple[float, float] | None = None
    lengths: tuple[int, int] | None = None
    first_pair: int | None = None
    first_position: float | None = None
    inverse: bool = False
    part: int = 0
    stored: str = ""
    as_expected: bool = False

    @property
    def fits(self) -> bool:
        """Whether digits and format explain every difference, and would not explain any other numbers as well."""
        return self.misfit <= FITS and not self.anything

    @property
    def inv_freq(self) -> Tensor:
        """Radians a position [pairs] as the program turned, with what no spec can say."""
        w = rope_frequencies(self.spec).inv_freq[: self.part or None]
        w = self.times / w if self.inverse else w * self.times
        for pair, ratio in self.outliers:
            w[pair] *= ratio
        return w


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


# ------------------------------------------------------------------ candidates of one reading


@dataclass
class _Budget:
    """How many checks a paste may still cost."""

    left: int = MOST_CHECKS
    spent: int = 0
    refused: bool = False

    def pay(self, cost: int) -> bool:
        """Whether it can be afforded."""
        if cost > self.left:
            self.refused = True
            return False
        self.left -= cost
        self.spent += cost
        return True


@dataclass
class _Search:
    """Collects the specs that may explain one reading, checks each once, keeps all."""

    reading: Reading
    expected: RopeSpec | None
    budget: _Budget
    found: dict[object, Candidate] = field(default_factory=dict)
    times: float = 1.0
    inverse: bool = False
    outliers: tuple[int, ...] = ()

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
        self.mine = _Budget(int(SHARE * self.budget.left))
        self.fields: dict[str, Any] = {"d_head": d_head, "rotary_fraction": fraction, "layout": layout}

    # -------------------------------------------------------- checking

    def pay(self, checks: int = 1) -> bool:
        """Whether so many checks of all numbers can be afforded, or of a spec alone."""
        if not self.mine.pay(checks):
            self.budget.refused = True
            return False
        return self.budget.pay(checks)

    def pay_check(self, times: int = 1) -> bool:
        """Whether comparing all numbers with a spec can be afforded."""
        return self.pay(times * (1 + self.reading.cells // CELLS))

    def check(self, w: Tensor, damage: Damage = None) -> Tensor:
        """Misfit of each pair under a frequency list, before a spec says what scales cos and sin."""
        return self.reading.check(w, self.reading.scale or 1.0, damage)[0]

    def make(self, **fields: Any) -> RopeSpec | None:
        """The spec, None if it is not legal or no more can be tried."""
        if not self.pay():
            return None
        try:
            return RopeSpec(**(self.fields | fields))
        except SpecError:
            return None

    def roughly(self, spec: RopeSpec | None) -> bool:
        """Whether the measured frequencies allow the spec, and the numbers themselves where they are few."""
        if spec is None or not self.pay() or len(w := rope_frequencies(spec).inv_freq) != self.reading.pairs:
            return False
        reading, known = self.reading, self.reading.known
        off = (w - reading.measured).abs()[known] / (reading.tolerance + FLOAT32 * w)[known]
        if not bool((off <= 3.0).all()):
            return False
        return bool(known.all()) or (self.pay_check() and bool((self.check(w) <= 3.0).all()))

    def add(
        self, spec: RopeSpec | None, rank: float, *, slip: str = "", damage: Damage = None, anything: bool = False
    ) -> bool:
        """Check a spec and keep it; whether it fits."""
        reading = self.reading
        if spec is None or len(w := rope_frequencies(spec).inv_freq) != reading.pairs:
            return False
        if self.found and not (self.pay(4) and self.pay_check()):  # one is always shown
            return False
        if reading.layout is not None and spec.layout != reading.layout:
            spec = spec.replace(layout=reading.layout)
        share = spec.rotary_dim / spec.d_head  # an eighth of the head, or two fifths: what models rotate
        rank += 0.0 if share * 8 % 1 == 0 or share in FRACTIONS else 0.5
        natural = attention_scales(spec).tables
        spec, size, scaled = self.with_scale(spec)
        if size is not None and not scaled and size != natural:
            rank += 0.3 if size == 1 else 1.5  # a factor set by hand is rarer than one that is left out
        misfit, residual = reading.check(w, 1.0 if size is None else size, damage)
        faults = [*reading.faults, *([scaled] if scaled else [])]
        damage = damage or reading.damage
        if damage is not None:
            what = {"all": "phases", "product": "products"}.get(damage[1], damage[1])
            faults.append(f"{what} computed in {damage[0]}")
        ratios = reading.measured / w.clamp(min=1e-300)
        outliers = tuple((pair, ratios[pair].item()) for pair in self.outliers)
        faults += [f"but pair {pair} is {ratio:.4g} times as fast" for pair, ratio in outliers]
        made = Candidate(
            spec, reading.layout, misfit.max().item(), residual.max().item(), residual, misfit, "", rank + len(faults),
            tuple(faults), (), slip, damage, size, anything, outliers, self.times, inverse=self.inverse,
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
            self.first_of("", expected, 1.0)
        self.geometric()
        self.zeros()
        for name, spec in known.items():
            self.first_of(name, spec, 2.2)  # likelier than a base that nobody chooses
        if not self.fits:
            self.by_parts(BETAS[:1], TURNS[:2])
        if not self.fits:
            self.by_parts(BETAS[1:], TURNS[2:])
        if not self.fits:
            self.by_parts((), (), unusual=True)
        if not self.fits:
            self.refined()
        self.mine.left = self.budget.left  # names cost little, and are always looked for
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
            if not self._alike(mine, w):
                self.add(mine, 2.0 if mine.scaling == "none" else 4.0)
            for key in self._alike(mine, w):
                candidate = self.found[key]
                self.found[key] = replace(candidate, names=(*candidate.names, name))

    def first_of(self, name: str, spec: RopeSpec, rank: float) -> None:
        """A longer list of which the numbers are the first ones; the same list of another name only adds the name."""
        reading = self.reading
        w = rope_frequencies(spec).inv_freq
        count, one_list = reading.pairs, reading.scale is None and not self.outliers
        if not one_list or not LEAST_PART <= count < len(w) or not self.pay(1) or not self.pay_check():
            return
        misfit, residual = reading.check(w[:count], 1.0, None)
        if misfit.max() > FITS:
            return
        if reading.layout is not None:
            spec = spec.replace(layout=reading.layout)
        for key, held in self.found.items():
            if held.part and self.pay(1):
                other = rope_frequencies(held.spec).inv_freq
                if len(other) == len(w) and torch.allclose(other, w, rtol=1e-9, atol=0.0):
                    self.found[key] = replace(held, names=(*held.names, name))
                    return
        self.found["first", tuple(sorted(spec.to_query().items()))] = Candidate(
            spec, reading.layout, misfit.max().item(), residual.max().item(), residual, misfit, "",
            rank + len(reading.faults), reading.faults, (name,) if name else (), times=self.times,
            inverse=self.inverse, part=count,
        )  # fmt: skip

    def _alike(self, spec: RopeSpec, inv_freq: Tensor) -> list[object]:
        """Keys of candidates that are this spec, as far as the numbers show: a list shows no head dim."""
        head = self.reading.d_head
        held = [
            k
            for k, c in self.found.items()
            if not (c.slip or c.part) and (head is None or c.spec.d_head == spec.d_head)
        ]
        if not held or not self.pay(1 + len(held) // 8):
            return []
        made = torch.stack([rope_frequencies(self.found[k].spec).inv_freq for k in held])
        same = torch.isclose(made, inv_freq, rtol=1e-9, atol=0.0).all(-1)
        return [k for k, s in zip(held, same.tolist(), strict=True) if s]

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
                    self.add(spec, 3.0 + (b not in BASES) + odd + (s not in (1.0, *FACTORS)))

    def line(self, turning: int | None = None, through_one: bool = False) -> tuple[float, float]:
        """(base, factor) of the geometric series nearest to the first `turning` measured frequencies.

        Where turns cannot be counted, the series found so far counts those of the next faster pair, again and again.
        """
        reading = self.reading
        last = reading.pairs if turning is None else turning
        w, tolerance = reading.measured, reading.tolerance
        index = torch.arange(reading.pairs, dtype=torch.float64)
        use = reading.known & (index < last) & (w > 4 * tolerance) & ((index > 0) | (not through_one))
        while int(use.sum()) >= (1 if through_one else 2) and self.pay(2):
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
            # far from any base, but never so far that it is 0 or infinite
            return math.exp(max(-60.0, min(-slope * reading.pairs, 60.0))), math.exp(max(-60.0, min(-start, 30.0)))
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

    def rarity(self, base: float) -> float:
        """Rank of a plain spectrum: usual bases, then short ones, then those that nobody chooses."""
        if base in BASES or (self.expected is not None and base == self.expected.base):
            return 2.0
        return 2.5 if base == float(f"{base:.3g}") else 4.0

    def factors(self, near: float, wide: float = 0.01) -> list[float]:
        """Factors worth a check."""
        listed = [s for s in FACTORS if abs(s / near - 1) < wide]
        if self.expected is not None and abs(self.expected.factor / near - 1) < wide and self.expected.factor > 1:
            listed.insert(0, self.expected.factor)
        listed += [s for s in RATIOS if abs(s / near - 1) < min(wide, 1e-3)]
        # of a few positions, a factor of many digits would explain a shifted position too
        return list(dict.fromkeys([*listed, *_shorter(near)[: 7 if self.reading.scale is None else 4]]))

    def geometric(self) -> None:
        """A plain, linearly scaled or NTK spectrum, and the slips of exponents that look like one."""
        w, tolerance = self.reading.measured, self.reading.tolerance
        if bool(((w == 0) & (tolerance < 1e-30)).any()) or int((w > 0).sum()) == 0:
            return
        for b in self.bases(self.line(through_one=True)[0]):
            spec = self.make(base=b)
            if self.roughly(spec) and self.add(spec, self.rarity(b)):
                self.readings_of(b)
                return
        base, factor = self.line()
        if factor > 1.0005:
            for b, s in product(self.bases(base), self.factors(factor)):
                spec = self.make(base=b, scaling="linear", factor=s)
                if self.roughly(spec):
                    self.add(spec, 3.0 + (b not in BASES) + (0 if s in FACTORS else 0.5 if s in RATIOS else 1))
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
            if not self.pay_check(80):
                return

            def off(value: float, s: float = s) -> float:
                return self.check(geometric(value, self.rotary) / s).max().item()

            low, high = near * 0.98, near * 1.02
            for _ in range(40):
                left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
                low, high = (low, right) if off(left) < off(right) else (left, high)
            for b in _shorter((low + high) / 2):
                fields = {"scaling": "linear", "factor": s} if s > 1 else {}
                spec = self.make(base=b, **fields)
                if self.roughly(spec) and self.add(spec, self.rarity(b) + (s > 1) * (1 + (s not in FACTORS))):
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
                    self.add(self.make(base=b**share), self.slipped(b, share), slip=slip)
        for b in BASES[:8]:
            if abs(math.log(b) / 2 - math.log(base)) < 0.02:
                self.add(self.make(base=math.sqrt(b)), 3.6, slip=f"exponent i/R instead of 2i/R, base {b:,.7g}")

    def slipped(self, base: float, share: float) -> float:
        """Rank of an exponent over the head dim: likely where that base and share are expected, else an odd thing."""
        e = self.expected
        meant = e is not None and e.base == base and abs(e.rotary_dim / e.d_head - share) < 1e-9 and share < 1
        return 1.0 if meant else 3.6

    def by_parts(
        self, betas: Iterable[tuple[float, float]], turns: Iterable[tuple[float, float]], *, unusual: bool = False
    ) -> None:
        """YaRN and Llama 3: the head of the spectrum tells the base, the tail the factor, the ramp the rest."""
        reading, known = self.reading, self.reading.known
        allowed = 3.0 * (reading.tolerance + FLOAT32 * reading.measured)[known]
        for base in self.head_bases():
            plain = geometric(base, self.rotary)
            factors = self.tail_factors(base)
            derived = [d for s in factors[:3] for d in self.derived(base, s, unusual)]
            listed = () if unusual else self.ramps(base, betas, turns)
            ramps = [*self.ramps_of(base, derived), *listed] if factors else []
            if not ramps or not self.pay(len(ramps)):
                continue
            # how much of the division each pair gets does not depend on the factor
            specs = [rope_frequencies(spec).inv_freq for spec, _ in ramps]
            share = 2 * (1 - torch.stack(specs) / plain)
            for s in factors:
                if not self.pay(1 + len(ramps) * self.reading.pairs // (8 * CELLS)):
                    return
                made = plain * (1 - share * (1 - 1 / s))
                close = ((made - reading.measured).abs()[:, known] <= allowed).all(-1)
                for at in close.nonzero().flatten().tolist():
                    spec, rank = ramps[at]
                    spec = spec.replace(factor=s)
                    if self.roughly(spec):
                        self.add(spec, rank + (0 if s in FACTORS else 0.5 if s in RATIOS else 1))

    def ramps_of(
        self, base: float, derived: Iterable[tuple[dict[str, Any], float]]
    ) -> Iterator[tuple[RopeSpec, float]]:
        """Specs of factor 2 with fields that the numbers told, and how unusual each is."""
        for fields, extra in derived:
            spec = self.make(base=base, factor=2.0, **fields)
            if spec is not None:
                yield spec, 4.0 + (base not in BASES) + extra

    def ramps(
        self, base: float, betas: Iterable[tuple[float, float]], turns: Iterable[tuple[float, float]]
    ) -> Iterator[tuple[RopeSpec, float]]:
        """Specs by parts of factor 2, and how unusual each is."""
        lengths, betas, turns = list(LENGTHS), list(betas), list(turns)
        if self.expected is not None:
            if self.expected.applies(self.expected.param("original_max_position_embeddings")):
                lengths.insert(0, self.expected.original_max_position_embeddings)
            betas.insert(0, (self.expected.beta_fast, self.expected.beta_slow))
            turns.insert(0, (self.expected.low_freq_factor, self.expected.high_freq_factor))
        common = {"base": base, "factor": 2.0}
        rank = 4.0 + (base not in BASES)
        for length in dict.fromkeys(lengths):
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
                fitted.append(math.exp(max(-60.0, min(-slope.item() * self.reading.pairs, 60.0))))
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

    def derived(self, base: float, s: float, unusual: bool) -> Iterator[tuple[dict[str, Any], float]]:
        """YaRN and Llama 3 specs from where the ramp lies, and how unusual each is: their fields but base and factor.

        A ramp tells two numbers; of length and two turn counts the third is free. So the counts are taken as usual, or,
        where those fail (unusual), a usual length gives them.
        """
        w, tolerance, known = self.reading.measured, self.reading.tolerance, self.reading.known
        plain = geometric(base, self.rotary)
        share = (1 - w / plain) / (1 - 1 / s)
        error = tolerance / plain / (1 - 1 / s)
        inside = known & (share > 0.02) & (share < 0.98) & (error < 0.2)
        if not bool(inside.any()):
            return
        at = inside.nonzero().flatten()
        turns_list = dict.fromkeys([*TURNS, *self.expected_turns()])
        sharpest = int(at[error[at].argmin()])
        kept = 1 - share[sharpest].item()
        for low, high in () if unusual else turns_list:
            length = 2 * math.pi * (kept * (high - low) + low) / plain[sharpest].item()
            for n, extra in _lengths(length):
                yield (
                    {"scaling": "llama3", "original_max_position_embeddings": n, "low_freq_factor": low,
                     "high_freq_factor": high}, 0.1 + extra + ((low, high) != TURNS[0])
                )  # fmt: skip
        if len(at) < 2:
            return
        slope = (share[at[-1]] - share[at[0]]).item() / int(at[-1] - at[0])
        if slope <= 0:
            return
        start = at[0].item() - share[at[0]].item() / slope
        end = start + 1 / slope
        step = 2 * math.log(base) / self.rotary  # of ln(turns) from pair to pair

        def turns(index: float, length: float) -> float:
            return length * math.exp(-step * index) / (2 * math.pi)

        for n, extra in () if unusual else _lengths(2 * math.pi * 32 * math.exp(step * start)):
            yield {"scaling": "yarn", "original_max_position_embeddings": n, "truncate": False}, 0.2 + extra
        first, last = round(start), round(end)
        # the lengths of which a truncated ramp with the usual betas lies from `first` to `last`
        least, most = (2 * math.pi * b * math.exp(step * i) for b, i in ((32, first), (32, first + 1)))
        least = max(least, 2 * math.pi * math.exp(step * (last - 1)))
        most = min(most, 2 * math.pi * math.exp(step * last))
        if least < most and not unusual:
            for n, extra in _lengths((least + most) / 2):
                yield {"scaling": "yarn", "original_max_position_embeddings": n}, extra
        mine = [] if self.expected is None else [self.expected.original_max_position_embeddings]
        for n in dict.fromkeys([*mine, *LENGTHS[:4]]) if unusual else ():
            for truncate, (fast, slow) in (
                (True, (_rounded_between(turns(first + 1, n), turns(first, n)),
                        _rounded_between(turns(last, n), turns(last - 1, n)))),
                (False, (_shortest(turns(start, n), 2e-4 * turns(start, n)),
                         _shortest(turns(end, n), 2e-4 * turns(end, n)))),
            ):  # fmt: skip
                odd = sum(b != float(f"{b:.2g}") for b in (fast, slow))
                yield (
                    {"scaling": "yarn", "original_max_position_embeddings": n, "beta_fast": fast, "beta_slow": slow,
                     "truncate": truncate}, 1.5 + odd + 0.5 * (not truncate)
                )  # fmt: skip

    def expected_turns(self) -> list[tuple[float, float]]:
        """Llama 3's low and high of the expected spec."""
        return [] if self.expected is None else [(self.expected.low_freq_factor, self.expected.high_freq_factor)]

    def divisors(self) -> None:
        """LongRoPE: any divisor of at least 1 for each pair; that always fits, so it comes last."""
        w, tolerance = self.reading.measured, self.reading.tolerance
        if (
            not bool(tolerance.isfinite().all())
            or bool((w <= 0).any())
            or not self.budget.pay(5 if self.reading.scale is None else 90 * (1 + self.reading.cells // CELLS))
        ):
            return
        bases = [1e4, *BASES] if self.expected is None else [self.expected.base, 1e4, *BASES]
        for base in dict.fromkeys(bases):
            divisor = geometric(base, self.rotary) / self.sharpened()
            if bool((divisor > 0.99).all()) and bool((divisor < 1e6).all()) and divisor.max() > 1.01:
                values = tuple(float(f"{max(v, 1.0):.9g}") for v in divisor.tolist())
                spec = self.make(base=base, scaling="longrope", short_factor=values, factor=1.0)
                self.add(spec, LAST, anything=True)
                return

    def suspects(self, known: Mapping[str, RopeSpec]) -> Iterator[tuple[int, ...]]:
        """Pairs that may alone be wrong: where a known list differs in few, and where the spectrum has a kink."""
        reading = self.reading
        if reading.pairs < EIGHT or not bool(reading.known.all()) or bool((reading.measured <= 0).any()):
            return
        told: list[tuple[int, ...]] = []
        likely = [c.misfits for c in self.found.values()]
        for spec in known.values():
            w = rope_frequencies(spec).inv_freq
            if len(w) == reading.pairs and self.pay_check():
                likely.append(self.check(w))
        for misfits in likely:
            off = (misfits > FITS).nonzero().flatten().tolist()
            if 1 <= len(off) <= OUTLIERS:
                told.append(tuple(off))
        log, found = reading.measured.log(), []
        for _ in range(OUTLIERS):
            middle = torch.cat([(2 * log[1] - log[2])[None], (log[:-2] + log[2:]) / 2, (2 * log[-2] - log[-3])[None]])
            at = int((log - middle).abs().argmax())
            found.append(at)
            log = torch.where(torch.arange(len(log)) == at, middle, log)
            told.append(tuple(sorted(set(found))))
        yield from dict.fromkeys(told)

    def sharpened(self) -> Tensor:
        """The measured frequencies, moved within their tolerance to where the numbers are met best, pair by pair."""
        reading = self.reading
        if reading.scale is None:
            return reading.measured
        size = self.with_scale(RopeSpec(**self.fields, scaling="longrope"))[1]
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


def _lengths(near: float) -> list[tuple[int, float]]:
    """Original lengths near one: known ones within a thousandth, whole thousands of bytes, the number itself."""
    if not 2 <= near <= 2**30:
        return []
    listed = [(n, 0.0) for n in LENGTHS if abs(n / near - 1) < 1e-3]
    made = [(n, e) for n, e in ((round(near / 1024) * 1024, 1.0), (round(near), 1.2)) if 2 <= n <= 2**30]
    return list({n: (n, e) for n, e in reversed([*listed, *made])}.values())[::-1]


def _rounded_between(low: float, high: float) -> float:
    """The number of the fewest digits in (low, high]."""
    for digits in range(1, 12):
        unit = 10.0 ** (math.floor(math.log10(max(high, 1e-300))) + 1 - digits)
        made = math.floor(high / unit * (1 + 1e-12)) * unit
        if made > low:
            return float(f"{made:.12g}")
    return high


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
    formats, budget = formats_of(data), _Budget()
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
    told = tuple(_told(c, stored, expected, measured, digits) for c in best)
    about = _about_base(best[0], measured, tolerance, expected) if best[0].fits else ""
    layout = data.layout if isinstance(data, InvFreq) else None
    verdict = _verdict(told, fitting, budget.refused, kind, layout) + about
    return Fingerprint(
        kind, told, measured, tolerance, digits, number_format, verdict, fitting, budget.refused, budget.spent + cost
    )


def _order(candidate: Candidate) -> tuple[bool, bool, float]:
    """What fits comes first, the simplest before the others; what would explain any numbers is last."""
    c = candidate
    return c.anything, not c.fits, c.rank + c.misfit / 2 if c.fits else c.misfit


def _best(found: list[tuple[Candidate, Reading | None]], expected: RopeSpec | None) -> tuple[list[Candidate], int, int]:
    """The candidates to show, how many fit, and checks spent: with ranges of length and base for the first ones.

    One that lies within the range of lengths of a better one is the same candidate.
    """
    budget, fitting = _Budget(MOST_TELLING), 0
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


def _fits(candidate: Candidate, reading: Reading, budget: _Budget, **fields: Any) -> bool | None:
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


def _lengths_of(candidate: Candidate, reading: Reading, budget: _Budget) -> tuple[int, int] | None:
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
    candidate: Candidate, reading: Reading, budget: _Budget, expected: RopeSpec | None
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


def _found(
    data: Pasted, kind: str, number_format: str, expected: RopeSpec | None, known: Mapping[str, RopeSpec],
    budget: _Budget,
) -> list[tuple[Candidate, Reading | None]]:  # fmt: skip
    """All candidates with the reading that they explain: right rotations first, faults only where none of them fits."""
    searches: list[_Search] = []

    def search(found: Iterable[Reading], **fault: Any) -> bool:
        """Whether one of these readings has a candidate that fits."""
        made = []
        for reading in found:
            one = _Search(reading, expected, budget, **fault)
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
        by = _shortest(first, tolerance)
        yield by, f"all multiplied by {by:.7g}"


def _about_base(best: Candidate, measured: Tensor, tolerance: Tensor, expected: RopeSpec | None) -> str:
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


def _told(candidate: Candidate, stored: str, expected: RopeSpec | None, measured: Tensor, digits: Tensor) -> Candidate:
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


def _verdict(candidates: tuple[Candidate, ...], fitting: int, at_least: bool, kind: str, doubled: Layout | None) -> str:
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
