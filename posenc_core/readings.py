"""What pasted numbers say of a rotation under one assumption on layout, rotary dim, direction and offset.

A reading holds the frequencies as far as turns can be counted, and a check of given frequencies against the numbers
themselves, with what their digits and their number format allow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posenc_core.pasted import Block, InvFreq, Pasted, Rotated, Tables, refuse
from posenc_core.porting import cast, rounded_phases, spacing
from posenc_core.rotary import Layout
from posenc_core.schemes.rope import MAX_PAIRS

FRACTIONS = (0.25, 0.5, 0.4, 0.75, 0.125)  # shares of a head that models rotate
LAYOUTS: tuple[Layout, ...] = ("half", "interleaved")
MOST_READINGS = 8  # of one rotated vector: numbers that hardly turn could be read in hundreds of ways
MOST_ROWS = 256  # rows that frequencies are read from; all are compared
FLOAT32 = 1e-6  # relative error of an inv_freq computed in float32
CERTAIN = 2.5  # radians; the slow pairs up to here have not turned round
NEARLY = 2e-3  # relative
CHANCE = 1e-4  # that numbers of no format look like those of one

# ------------------------------------------------------------------ digits and formats


def half_spacing(values: Tensor, number_format: str) -> Tensor:
    """How far rounding to a format moves numbers at most."""
    return spacing(values, number_format) / 2


def may_be(name: str, *blocks: Block) -> bool:
    """Whether every number could be one of a format, as far as its digits tell."""
    return all(
        bool(((cast(b.values, name) - b.values).abs() <= 1.001 * b.resolution + 1e-9 * b.values.abs()).all())
        for b in blocks
    )


def stored_format(*blocks: Block) -> str:
    """bfloat16 or float16 if every number could be one of it and that is no chance, else float32."""
    values = torch.cat([b.values.flatten() for b in blocks])
    resolution = torch.cat([b.resolution.flatten() for b in blocks])
    for name in ("bfloat16", "float16"):
        likely = (resolution / half_spacing(values, name)).clamp(max=1.0)
        # trailing zeros of a short binary fraction prove nothing: 1, 0.5, 0.75 are in every format
        short = torch.round(values * 64) == values * 64
        log = torch.log(likely.clamp(min=1e-3)).masked_fill(short, 0.0).sum()
        if may_be(name, *blocks) and log.item() < math.log(CHANCE):
            return name
    return "float32"


def tolerance_of(block: Block, number_format: str) -> Tensor:
    """What a number may be off by: its last digit, and its format."""
    extra = 1.01 * half_spacing(block.values, number_format) if number_format != "float32" else 0.0
    return block.resolution * 1.001 + extra


# ------------------------------------------------------------------ one way to take the numbers

Damage = tuple[str, str] | None  # (number format, what is rounded)
Check = Callable[[Tensor, float, Damage], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Reading:
    """The numbers under one assumption on layout, rotary dim, direction and offset.

    layout: where the numbers show it. d_head: where they show it. measured: radians a position [pairs]; tolerance: how
    far they may be off, infinite where turns cannot be counted. check(inv_freq, scale, damage): the misfit of each
    pair, up to 1 where digits and format explain it, and the largest difference itself. scale multiplies cos and sin,
    None where the numbers do not show it. damage: what a number format did, in this reading. phases, error, position:
    of the only row, if there is only one. cells: numbers that a check looks at.
    """

    layout: Layout | None
    d_head: int | None
    measured: Tensor
    tolerance: Tensor
    check: Check
    scale: float | None = None
    scale_tolerance: float = 0.0
    direction: int = 1
    offset: int = 0
    faults: tuple[str, ...] = ()
    damage: Damage = None
    phases: Tensor | None = None
    error: Tensor | None = None
    position: float = 0.0
    cells: int = 0

    @property
    def known(self) -> Tensor:
        """Pairs whose turns can be counted."""
        return self.tolerance.isfinite()

    @property
    def pairs(self) -> int:
        """Pairs that rotate."""
        return len(self.measured)


def readings(data: Pasted, number_format: str, offset: int = 0, rotary_dim: int | None = None) -> Iterator[Reading]:
    """All readings that the numbers allow; for a rotated vector none where no pairing keeps every pair's length.

    number_format: that of the numbers. offset: what the program added to the positions by mistake. rotary_dim: one
    that is likely. Raises SpecError for numbers in which nothing turns.
    """
    if isinstance(data, InvFreq):
        yield _of_inv_freq(data, number_format)
    elif isinstance(data, Tables):
        yield from _of_tables(data, number_format, offset)
    else:
        yield from _of_rotated(data, number_format, offset, rotary_dim)


def formats_of(data: Pasted) -> tuple[str, ...]:
    """The number formats that pasted numbers can have, the likeliest first."""
    if isinstance(data, InvFreq):
        blocks = [data.values]
    elif isinstance(data, Tables):
        blocks = [b for b in (data.cos, data.sin) if b is not None]
    else:
        blocks = [data.rotated]
    likely = stored_format(*blocks)
    return tuple(dict.fromkeys([likely, *(name for name in ("float16", "bfloat16") if may_be(name, *blocks))]))


def with_rounded_frequencies(reading: Reading) -> Reading | None:
    """The reading for a program that kept inv_freq in half precision, None if the measured ones look like no such."""
    known = reading.known
    if not bool(known.any()):
        return None
    name = stored_format(Block(reading.measured[known], reading.tolerance[known]))
    if name == "float32":
        return None

    def check(inv_freq: Tensor, size: float, damage: Damage) -> tuple[Tensor, Tensor]:
        return reading.check(cast(inv_freq, name), size, damage)

    wider = reading.tolerance + 1.01 * half_spacing(reading.measured, name)
    return replace(reading, check=check, tolerance=wider, damage=(name, "frequencies"))


def multiplied(reading: Reading, by: float, fault: str) -> Reading:
    """The reading for a program that multiplied every frequency; measured and check are those before that."""

    def check(inv_freq: Tensor, size: float, damage: Damage) -> tuple[Tensor, Tensor]:
        return reading.check(inv_freq * by, size, damage)

    return replace(
        reading, measured=reading.measured / by, tolerance=reading.tolerance / by, check=check,
        faults=(*reading.faults, fault), phases=None,
    )  # fmt: skip


def inverted(reading: Reading, by: float, fault: str) -> Reading:
    """The reading of a list of by / inv_freq; measured and check are those of inv_freq."""

    def check(inv_freq: Tensor, size: float, damage: Damage) -> tuple[Tensor, Tensor]:
        return reading.check(by / inv_freq.clamp(min=1e-300), size, damage)

    pasted = reading.measured
    return replace(
        reading, measured=by / pasted, tolerance=reading.tolerance * by / pasted.square(), check=check,
        faults=(*reading.faults, fault), phases=None,
    )  # fmt: skip


def without(reading: Reading, pairs: tuple[int, ...]) -> Reading:
    """The reading as if nothing were known of these pairs."""
    hidden = torch.zeros(reading.pairs, dtype=torch.bool)
    hidden[list(pairs)] = True

    def check(inv_freq: Tensor, size: float, damage: Damage) -> tuple[Tensor, Tensor]:
        misfit, residual = reading.check(inv_freq, size, damage)
        return misfit.masked_fill(hidden, 0.0), residual.masked_fill(hidden, 0.0)

    return replace(reading, tolerance=reading.tolerance.masked_fill(hidden, torch.inf), check=check)


def _faults(direction: int, offset: int, positions: Tensor) -> tuple[str, ...]:
    """What is wrong in a reading, in words."""
    made = []
    if direction < 0:
        made.append("turned backwards (sine with the wrong sign)")
    if offset:
        fault = f"positions {abs(offset)} too {'high' if offset > 0 else 'low'}"
        formats = [n for n in ("bfloat16", "float16") if torch.equal(cast(positions, n), positions + offset)]
        made.append(fault + (f" (as {' or '.join(formats)} rounds them)" if formats else ""))
    return tuple(made)


def _scale_of(ratios: Tensor, errors: Tensor) -> tuple[float, float]:
    """The scale that all ratios allow, each within its error, and how far it may be off."""
    low, high = (ratios - errors).max().item(), (ratios + errors).min().item()
    if low <= high:
        return (low + high) / 2, max((high - low) / 2, 3e-7)
    return ratios.mean().item(), max(errors.mean().item(), 3e-7)


def _of_inv_freq(data: InvFreq, number_format: str) -> Reading:
    values = data.values.values
    tolerance = tolerance_of(data.values, number_format) + FLOAT32 * values

    def check(inv_freq: Tensor, scale: float, damage: Damage) -> tuple[Tensor, Tensor]:
        difference = (values - inv_freq).abs()
        return difference / tolerance, difference / torch.maximum(values, inv_freq).clamp(min=1e-300)

    return Reading(data.layout, None, values, tolerance, check, cells=len(values))


def _phase_slack(phase: Tensor) -> Tensor:
    """Radians that a program in float32 may be off by at a phase."""
    return 3e-7 + 6e-7 * phase.abs()


def _predicted_phase(inv_freq: Tensor, positions: Tensor, damage: Damage) -> Tensor:
    if damage is None:
        return positions[:, None] * inv_freq
    return rounded_phases(inv_freq, positions, *damage)


def _of_tables(data: Tables, number_format: str, offset: int) -> Iterator[Reading]:
    blocks = [b for b in (data.cos, data.sin) if b is not None]
    layout, columns = _table_layout(blocks)
    cos, sin = (
        None if b is None else Block(b.values[:, columns], b.resolution[:, columns]) for b in (data.cos, data.sin)
    )
    if len(columns) > MAX_PAIRS:
        raise refuse(f"{len(columns):,} pairs", "no head has as many", f"1 to {MAX_PAIRS} pairs")
    rows = torch.cat([b.values for b in blocks], -1)
    if not bool(rows.any()):
        raise refuse("zeros only", "that is no cos and sin")
    if not bool(data.positions.any()) or (len(rows) > 1 and bool((rows == rows[0]).all())):
        raise refuse("every row alike", "nothing turns at position 0, or from row to row", "rows of other positions")
    positions = data.positions + offset
    errors = [tolerance_of(b, number_format) for b in (cos, sin) if b is not None]
    if cos is not None and sin is not None:
        size = (cos.values.square() + sin.values.square()).sqrt().clamp(min=1e-9)
        loose = (cos.values.abs() * errors[0] + sin.values.abs() * errors[1]) / size + 3e-7
        scale, scale_tolerance = _scale_of(size, loose)
        phases = torch.atan2(sin.values, cos.values)
        error = torch.stack(errors).amax(0) / max(scale, 1e-9) * 1.5 + 1e-7
        branches = [phases]
    else:
        (only,) = [b for b in (cos, sin) if b is not None]
        still = only.values[positions == 0] if cos is not None else only.values[:0]
        scale = still.mean().item() if still.numel() else max(1.0, only.values.abs().max().item())
        scale = 1.0 if abs(scale - 1) < 2 * float(errors[0].max()) else scale
        # without a row of position 0 the largest number is only nearly the scale
        scale_tolerance = max(float(errors[0].max()), 1e-6 if still.numel() else NEARLY)
        inside = (only.values / scale).clamp(-1, 1)
        phases = torch.acos(inside) if cos is not None else torch.asin(inside)
        other = -phases if cos is not None else math.pi - phases
        slope = (1 - inside.square()).clamp(min=0).sqrt()
        step = errors[0] / scale + 1e-7 + (0.0 if still.numel() else NEARLY * inside.abs())
        error = torch.minimum(step / slope.clamp(min=1e-9), torch.sqrt(2 * step)) * 1.5
        branches = [phases, other]
    for direction in _directions(phases, error, positions) if sin is not None else (1,):
        turned = [direction * b for b in branches]
        measured, tolerance = _frequencies_of(*_with_step(turned, error, positions))
        check = _table_check(cos, sin, positions, number_format, direction)
        faults = _faults(direction, offset, data.positions)
        cells = sum(b.values.numel() for b in (cos, sin) if b is not None)
        yield Reading(
            layout, None, measured, tolerance, check, scale, scale_tolerance, direction, offset, faults, cells=cells
        )


def _table_check(cos: Block | None, sin: Block | None, positions: Tensor, number_format: str, direction: int) -> Check:
    """Compares tables with those of given frequencies."""
    parts = [(name, b, tolerance_of(b, number_format)) for name, b in (("cos", cos), ("sin", sin)) if b is not None]

    def check(inv_freq: Tensor, size: float, damage: Damage) -> tuple[Tensor, Tensor]:
        phase = _predicted_phase(inv_freq, positions, damage)
        slack = size * _phase_slack(phase) if damage is None else size * 3e-7
        misfit = torch.zeros(len(inv_freq), dtype=torch.float64)
        residual = torch.zeros(len(inv_freq), dtype=torch.float64)
        for name, block, allowed in parts:
            made = phase.cos() * size if name == "cos" else phase.sin() * size * direction
            difference = (made - block.values).abs().nan_to_num(torch.inf)
            misfit = torch.maximum(misfit, (difference / (allowed + slack)).amax(0))
            residual = torch.maximum(residual, difference.amax(0))
        return misfit, residual

    return check


def _table_layout(blocks: list[Block]) -> tuple[Layout | None, Tensor]:
    """How a table repeats each pair, and the columns that hold every pair once."""
    width = blocks[0].values.shape[1]
    every = torch.arange(width)
    if width % 2:
        return None, every
    half, even = every[: width // 2], every[::2]
    if all(_alike(b, half, half + width // 2) for b in blocks):
        return "half", half
    if all(_alike(b, even, even + 1) for b in blocks):
        return "interleaved", even
    return None, every


def _alike(block: Block, first: Tensor, second: Tensor) -> bool:
    """Whether the columns are the same up to their digits."""
    allowed = block.resolution[:, first] + block.resolution[:, second] + 1e-6
    return bool(((block.values[:, first] - block.values[:, second]).abs() <= allowed).all())


def _directions(phases: Tensor, error: Tensor, positions: Tensor) -> tuple[int, ...]:
    """(1,) or (-1,) where the slow pairs tell which way they turn, else both.

    The slowest pairs that turn at all have not turned round if they turn further the faster they are.
    """
    ahead = torch.where(positions > 0, positions, torch.inf)
    row = int(ahead.argmin())
    turning = [(i, phases[row, i].item()) for i in range(phases.shape[1]) if phases[row, i].abs() > 3 * error[row, i]]
    if not turning or not math.isfinite(ahead[row].item()):
        return (1, -1) if turning else (1,)
    slowest = [phase for _, phase in turning[-3:]]
    if ahead[row] <= 3:
        return (1,) if sum(math.copysign(1, phase) for phase in slowest) > 0 else (-1,)
    growing = all(abs(a) > abs(b) for a, b in itertools.pairwise(slowest))
    if max(map(abs, slowest)) < CERTAIN and growing and len({phase > 0 for phase in slowest}) == 1:
        return (1,) if slowest[0] > 0 else (-1,)
    return 1, -1


def _with_step(branches: list[Tensor], error: Tensor, positions: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """With the turn between the two nearest rows as a row of its own, where that is less than any row's position."""
    order = torch.argsort(positions)
    gaps = positions[order][1:] - positions[order][:-1]
    ahead = positions[positions > 0]
    if len(branches) > 1 or not len(gaps) or not bool((gaps > 0).any()) or not len(ahead):
        return branches, error, positions
    at = int(torch.where(gaps > 0, gaps, torch.inf).argmin())
    if gaps[at] >= ahead.min():
        return branches, error, positions
    low, high = order[at], order[at + 1]
    turn = (branches[0][high] - branches[0][low] + math.pi).remainder(2 * math.pi) - math.pi
    return (
        [torch.cat([branches[0], turn[None]])],
        torch.cat([error, (error[low] + error[high])[None]]),
        torch.cat([positions, gaps[at : at + 1]]),
    )


def _frequencies_of(branches: list[Tensor], error: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Radians a position [pairs] from phases mod 2π [N, pairs], and how far they may be off (infinite: unknown).

    branches: the phases that a row allows (a cosine alone allows two). Rows are taken from the smallest position on;
    each sharpens what the smaller ones gave, as long as its turns can be counted.
    """
    pairs = branches[0].shape[1]
    measured, tolerance = torch.zeros(pairs, dtype=torch.float64), torch.full((pairs,), torch.inf, dtype=torch.float64)
    order = [i for i in torch.argsort(positions).tolist() if positions[i] > 0]
    if (
        len(order) > MOST_ROWS
    ):  # the first ones, and the rest in equal steps up to the last: what is left out is checked
        rest = torch.linspace(MOST_ROWS // 2, len(order) - 1, MOST_ROWS // 2).round().int().tolist()
        order = order[: MOST_ROWS // 2] + [order[i] for i in rest]
    for rank, row in enumerate(order):
        p = positions[row].item()
        rows = [b[row] for b in branches]
        if rank == 0:
            measured, tolerance = _first_row(rows, error[row], p)
            continue
        known = tolerance.isfinite() & (p * tolerance < 1.0)
        expected = p * measured
        options = torch.stack([b + 2 * math.pi * torch.round((expected - b) / (2 * math.pi)) for b in rows])
        nearest = options.gather(0, (options - expected).abs().argmin(0, keepdim=True))[0]
        better = known & (error[row] / p < tolerance)
        measured = torch.where(better, nearest / p, measured)
        tolerance = torch.where(better, error[row] / p, tolerance)
    return measured.clamp(min=0), tolerance


def _first_row(rows: list[Tensor], error: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """From the smallest position alone. Past 3, only slow pairs are known: those before the phases reach CERTAIN."""
    phases = rows[0]
    # a pair hardly turns backwards: a phase just below zero is rounding
    phases = torch.where(phases < -4 * error, phases + 2 * math.pi, phases)
    if p <= 3:
        return phases / p, error / p
    fast = (phases > CERTAIN) & (phases < 2 * math.pi)
    fast[:-1] |= phases[:-1] < phases[1:] - 4 * error[1:]  # it has turned round to less than the next slower one
    slow = torch.arange(len(phases)) > (int(fast.nonzero()[-1]) if bool(fast.any()) else -1)
    return phases / p, torch.where(slow, error / p, torch.inf)


def _features(pairs: int, layout: Layout) -> tuple[Tensor, Tensor]:
    index = torch.arange(pairs)
    return (index, index + pairs) if layout == "half" else (2 * index, 2 * index + 1)


def _of_rotated(data: Rotated, number_format: str, offset: int, likely_dim: int | None) -> Iterator[Reading]:
    x, y = data.x, data.rotated
    d_head = x.values.shape[1]
    tol_x, tol_y = tolerance_of(x, stored_format(x)), tolerance_of(y, number_format)
    changed = ((x.values - y.values).abs() > tol_x + tol_y).any(0).nonzero()
    if not len(changed) or not bool(data.positions.any()):
        raise refuse("x and rotated", "nothing turned: they are the same, or the position is 0", "a position from 1")
    least = max(int(changed[-1]) + 1, -(-d_head // 100), 2)
    least += least % 2
    shares = {int(d_head * f) for f in FRACTIONS} | {d_head * k // 8 for k in range(1, 9)}
    # in the half-split layout only one rotary dim fits; interleaved, slow pairs at its end look like unrotated ones
    likely = [d for d in (likely_dim or d_head, d_head, least, *sorted(shares)) if least <= d <= d_head and d % 2 == 0]
    sizes: list[tuple[Layout, int]] = [(layout, d) for d in dict.fromkeys(likely) for layout in LAYOUTS]
    sizes += [("half", d) for d in range(d_head, least - 1, -2)]
    made = (
        reading for layout, d in dict.fromkeys(sizes) for reading in _of_pairs(data, tol_x, tol_y, d, layout, offset)
    )
    yield from itertools.islice(made, MOST_READINGS)


def _of_pairs(
    data: Rotated, tol_x: Tensor, tol_y: Tensor, rotary_dim: int, layout: Layout, offset: int
) -> Iterator[Reading]:
    """Readings of this layout and rotary dim; none where a pair's length changes: then it is no pair that turned."""
    a, b = _features(rotary_dim // 2, layout)
    x, y = data.x.values, data.rotated.values
    first, second = torch.complex(x[:, a], x[:, b]), torch.complex(y[:, a], y[:, b])
    error_x, error_y = tol_x[:, a] + tol_x[:, b], tol_y[:, a] + tol_y[:, b]
    before, after = first.abs(), second.abs()
    moved = before > 0
    if not bool(moved.any()):
        return
    mean = (after[moved].square().sum() / before[moved].square().sum()).sqrt().item()
    allowed = error_y + mean * error_x + 2e-6 * after
    if bool(((after - mean * before).abs() > 1.5 * allowed + 1e-12).any()):
        return
    scale, scale_tolerance = _scale_of((after / before)[moved], (allowed / before)[moved])
    positions = data.positions + offset
    phases = torch.angle(second * first.conj())
    error = (error_y / max(scale, 1e-9) + error_x) / before.clamp(min=1e-9) + 5e-7
    for direction in _directions(phases, error, positions):
        turned = direction * phases
        measured, tolerance = _frequencies_of([turned], error, positions)
        check = _pair_check(first, second, error_x, error_y, positions, direction)
        made = Reading(
            layout, x.shape[1], measured, tolerance, check, scale, scale_tolerance, direction, offset,
            _faults(direction, offset, data.positions), cells=2 * first.numel(),
        )  # fmt: skip
        single = len(x) == 1
        yield replace(made, phases=turned[0], error=error[0], position=positions[0].item()) if single else made


def _pair_check(
    first: Tensor, second: Tensor, error_x: Tensor, error_y: Tensor, positions: Tensor, direction: int
) -> Check:
    """Compares pairs after the rotation with those that given frequencies would have made."""

    def check(inv_freq: Tensor, size: float, damage: Damage) -> tuple[Tensor, Tensor]:
        phase = _predicted_phase(inv_freq, positions, damage)
        made = first * torch.polar(torch.full_like(phase, size), direction * phase)
        slack = _phase_slack(phase) if damage is None else 3e-7
        allowed = error_y + size * error_x + size * first.abs() * slack
        difference = (made - second).abs().nan_to_num(torch.inf)
        return (difference / allowed).amax(0), difference.amax(0)

    return check
