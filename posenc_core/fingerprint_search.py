"""Which specs may have made one reading of pasted numbers: each is made, checked once and kept, within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from posenc_core.frequencies import attention_scales, geometric, rope_frequencies
from posenc_core.readings import FLOAT32, FRACTIONS, Damage, Reading
from posenc_core.rotary import Layout
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
LAST = 20.0  # rank of candidates that can explain anything
OUTLIERS = 2  # pairs that may be wrong in a list that is otherwise explained, of at least EIGHT
EIGHT = 8
LEAST_PART = 4  # numbers that may be the first ones of a longer list
MOST_CHECKS = 6000  # of one paste: numbers that tell little allow everything
SHARE = 0.4  # of what is left, that one reading may take
CELLS = 1024  # numbers that are compared as fast as a spec is made


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


# ------------------------------------------------------------------ checking


@dataclass
class Budget:
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
class _Trials:
    """Makes specs that may explain one reading, checks each once, keeps all."""

    reading: Reading
    expected: RopeSpec | None
    budget: Budget
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
        self.mine = Budget(int(SHARE * self.budget.left))
        self.fields: dict[str, Any] = {"d_head": d_head, "rotary_fraction": fraction, "layout": layout}

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
            kept = 1.0 if abs(scale - 1) <= tolerance else shortest(scale, fine)
            return spec.replace(attention_factor=kept, mscale=0.0, mscale_all_dim=0.0), kept, ""
        if abs(scale - 1) <= tolerance:
            return spec, 1.0, ""
        kept = shortest(scale, fine)
        return spec, kept, f"cos and sin scaled by {kept:.6g}"

    @property
    def fits(self) -> bool:
        """Whether anything fits yet."""
        return any(c.fits for c in self.found.values())

    # -------------------------------------------------------- numbers worth a check

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
        listed += [s for s in RATIOS if abs(s / near - 1) < min(wide, 1e-3)]
        # of a few positions, a factor of many digits would explain a shifted position too
        return list(dict.fromkeys([*listed, *_shorter(near)[: 7 if self.reading.scale is None else 4]]))


# ------------------------------------------------------------------ families


class _ByParts(_Trials):
    """The families that divide slow pairs and keep fast ones."""

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
                (False, (shortest(turns(start, n), 2e-4 * turns(start, n)),
                         shortest(turns(end, n), 2e-4 * turns(end, n)))),
            ):  # fmt: skip
                odd = sum(b != float(f"{b:.2g}") for b in (fast, slow))
                yield (
                    {"scaling": "yarn", "original_max_position_embeddings": n, "beta_fast": fast, "beta_slow": slow,
                     "truncate": truncate}, 1.5 + odd + 0.5 * (not truncate)
                )  # fmt: skip

    def expected_turns(self) -> list[tuple[float, float]]:
        """Llama 3's low and high of the expected spec."""
        return [] if self.expected is None else [(self.expected.low_freq_factor, self.expected.high_freq_factor)]


class Search(_ByParts):
    """Collects the specs that may explain one reading: of all families, and what stands in for them where none fits."""

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

    def rarity(self, base: float) -> float:
        """Rank of a plain spectrum: usual bases, then short ones, then those that nobody chooses."""
        if base in BASES or (self.expected is not None and base == self.expected.base):
            return 2.0
        return 2.5 if base == float(f"{base:.3g}") else 4.0

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


# ------------------------------------------------------------------ numbers near a measured one


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


def shortest(value: float, tolerance: float) -> float:
    """The number of the fewest digits within the tolerance."""
    return next((v for v in _shorter(value) if abs(v - value) <= tolerance), value)
