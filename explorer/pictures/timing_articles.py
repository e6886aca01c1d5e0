"""The Timing page's answers to the numbers that articles give, computed from the records that the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.compute.timing import Run
from explorer.pictures import timing_kernels as kernels
from explorer.pictures.timing_kernels import Part
from posenc_core import SCHEMES, Spec
from posenc_core.benchmark import Record, bytes_text
from posenc_core.claims import Verdict, listed
from posenc_core.claims_lab import ALIBI_SAVING, COST_MARGIN, ROPE_COST, SAVED_AT, SAVING_MARGIN, rotation_share

FUSED_SPEED, FUSED_SAVING = 1.8, 0.4  # what articles say of a fused rotation beside a naive one
PLACES = ("device", "dtype")


@dataclass(frozen=True)
class Answer:
    """What articles say, what was measured, where, and what follows. claim: its number on the Claims page, 0 for none.

    Where nothing was measured, `measured` says how to, and `query` is a link that does.
    """

    said: str
    measured: str
    verdict: Verdict
    where: str = ""
    claim: int = 0
    query: Mapping[str, str] | None = None


def answers(run: Run, specs: Sequence[Spec], device: str, dtype: str, rotation: Part | None) -> list[Answer]:
    """One for each number; layers of the wanted device and dtype where the run has them, else of its first ones.

    `rotation` is the part that the page shows, which may be of another run.
    """
    measured = (r for r in run.records if r.median is not None and r.case.what == "layer")
    layers = [r for r in measured if r.case.implementation == "fast" and not r.case.backward]
    places = [(r.case.device, r.case.dtype) for r in layers]
    place = (device, dtype) if (device, dtype) in places else next(iter(places), (device, dtype))
    layers = [r for r in layers if (r.case.device, r.case.dtype) == place]
    found = {scheme: _of(layers, scheme, specs) for scheme in ("rope", "alibi", "sinusoidal")}
    where = f"layers in {place[1]} on {place[0]}"
    return [
        _rope_cost(found["rope"], run.settings, where),
        _alibi_memory(found, where),
        _fused(rotation),
    ]


def _of(layers: Iterable[Record], scheme: str, specs: Sequence[Spec]) -> dict[int, Record]:
    """A scheme's records by length: of the chosen parameters, else of the default ones, else of the first."""
    mine = [r for r in layers if r.case.spec.scheme == scheme]
    measured = [r.case.spec for r in mine]
    spec = next((s for s in [*specs, SCHEMES[scheme](), *measured] if s in measured), None)
    return {r.case.length: r for r in sorted(mine, key=lambda r: r.case.length) if r.case.spec == spec}


def _verdict(always: bool, sometimes: bool) -> Verdict:
    return "holds" if always else "holds with a condition" if sometimes else "does not hold"


def _rope_cost(rope: Mapping[int, Record], settings: Mapping[str, Any], where: str) -> Answer:
    """As claim 11 is judged: a cost within the margin at all lengths, in time and in arithmetic; or in some of them."""
    said = f"RoPE adds about {ROPE_COST:.0%} to a layer's compute"
    costs = {
        n: (r.ratio_lower - 1, r.ratio - 1, r.ratio_upper - 1)
        for n, r in rope.items()
        if r.ratio is not None and r.ratio_lower is not None and r.ratio_upper is not None
    }
    if not costs:
        return Answer(said, "Start measures it with RoPE chosen.", "not measured", claim=11, query={"scheme": "rope"})
    low, high = ROPE_COST - COST_MARGIN, ROPE_COST + COST_MARGIN
    about = [n for n, (lower, _, upper) in costs.items() if lower <= high and upper >= low]
    arithmetic = {n: rotation_share(settings["heads"] * settings["d_head"], n) for n in costs}
    counted = [low <= share <= high for share in arithmetic.values()]
    ends = sorted({min(costs), max(costs)})
    time = listed(f"{costs[n][1]:+.1%} at {n:,} tokens" for n in ends)
    shares = " to ".join(dict.fromkeys(f"{arithmetic[n]:.2%}" for n in reversed(ends)))
    some = f", about {ROPE_COST:.0%} at {listed(f'{n:,}' for n in about)} tokens only" if about else ""
    return Answer(
        said, f"{time} in time{some if len(about) < len(costs) else ''}; {shares} in multiplications and additions.",
        _verdict(len(about) == len(costs) and all(counted), bool(about) or all(counted)), where, 11,
    )  # fmt: skip


def _alibi_memory(found: Mapping[str, Mapping[int, Record]], where: str) -> Answer:
    """As the second half of claim 16 is judged: less by the share that is said, give or take, beside all others."""
    said = f"ALiBi takes about {ALIBI_SAVING:.0%} less memory at {SAVED_AT:,} tokens"
    peaks = {scheme: r.peak_bytes for scheme, each in found.items() if (r := each.get(SAVED_AT)) and r.peak_bytes}
    alibi, others = peaks.pop("alibi", None), peaks
    if not alibi or not others:
        how = f"Start measures it with ALiBi and RoPE chosen, up to {SAVED_AT:,} tokens."
        query = {"scheme": "alibi", "b_scheme": "rope", "longest": str(SAVED_AT)}
        return Answer(said, how, "not measured", claim=16, query=query)
    shares = {scheme: alibi / other for scheme, other in others.items()}
    names = {"rope": "RoPE", "sinusoidal": "sinusoidal vectors"}
    told = listed(f"{_less(share)} than with {names[s]} ({bytes_text(others[s])})" for s, share in shares.items())
    enough = [share <= 1 - ALIBI_SAVING + SAVING_MARGIN for share in shares.values()]
    return Answer(
        said, f"A layer with ALiBi holds {bytes_text(alibi)} at most: {told}.", _verdict(all(enough), any(enough)),
        where, 16,
    )  # fmt: skip


def _fused(rotation: Part | None) -> Answer:
    """At least as much faster and smaller as is said, beside the formula as it is written; or one of both."""
    said = f"A fused rotation is {FUSED_SPEED:g} times faster than a naive one and takes {FUSED_SAVING:.0%} less memory"
    fast, naive = (None if rotation is None else rotation.of(name) for name in ("fast", "reference"))
    gain = None if rotation is None else kernels.faster(rotation, "reference")
    if rotation is None or fast is None or naive is None or gain is None:
        return Answer(said, "Start measures it: the rotation by itself comes with every run.", "not measured")
    text, enough = f"{gain:.1f} times faster than the formula as it is written", [gain >= FUSED_SPEED]
    if fast.peak_bytes is not None and naive.peak_bytes:
        share = fast.peak_bytes / naive.peak_bytes
        text += f", {_less(share)} memory ({bytes_text(fast.peak_bytes)} and {bytes_text(naive.peak_bytes)})"
        enough.append(1 - share >= FUSED_SAVING)
        if enough[0] != enough[1]:
            text += f"; so much as to {'time' if enough[0] else 'memory'} only"
    return Answer(said, f"{text}.", _verdict(all(enough), any(enough)), f"the rotation, {rotation.where}")


def _less(share: float) -> str:
    """A share of something as more or less of it: 18% less."""
    return f"{abs(1 - share):.0%} {'less' if share <= 1 else 'more'}"
