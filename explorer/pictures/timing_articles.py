"""The Timing page's answers to the numbers that articles give, computed from the records that the page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from explorer.compute.timing import Run
from explorer.pictures import timing_kernels as kernels
from explorer.pictures.timing_kernels import Part
from posenc_core.benchmark import bytes_text
from posenc_core.claims import Evidence, Verdict
from posenc_core.claims_lab import SAVED_AT
from posenc_core.claims_table import CLAIMS, number_text

FUSED_SPEED, FUSED_SAVING = 1.8, 0.4  # what articles say of a fused rotation beside a naive one
NAIVE = ("transformers", "reference")  # what they call naive is transformers' function


@dataclass(frozen=True)
class Answer:
    """What articles say, what was measured, where, and what follows. claim: its number on the Claims page, 0 for none.

    Where nothing was measured, `measured` says how to; `query` is a link and `command` a command line that does.
    """

    said: str
    measured: str
    verdict: Verdict
    where: str = ""
    claim: int = 0
    query: Mapping[str, str] | None = None
    command: str = ""


def answers(run: Run, rotation: Part | None) -> list[Answer]:
    """One for each number. `rotation` is the part that the page shows, which may be of another run."""
    command = f"python -m posenc_core.benchmark --schemes alibi,rope,sinusoidal --lengths {SAVED_AT}"
    return [
        _claim(11, run, Answer("", "Start measures it with RoPE chosen.", "not measured", query={"scheme": "rope"})),
        _claim(16, run, Answer("", "It takes layers with ALiBi, RoPE and sinusoidal vectors in one run:",
                               "not measured", command=command)),
        _fused(rotation),
    ]  # fmt: skip


def _claim(number: int, run: Run, unknown: Answer) -> Answer:
    """A claim as the Claims page judges it, by this run; what to do where the run holds nothing that it is judged by.

    That is layers in float32 on a CPU, of schemes with their default parameters.
    """
    claim = next(c for c in CLAIMS if c.number == number)
    said, judged = claim.sentence.rstrip("."), claim.judge(Evidence({}, run.content))
    if judged.verdict == "not measured":
        measured = f"Judged in float32 on the CPU, with default parameters. {unknown.measured}"
        return Answer(said, measured, "not measured", claim=number, query=unknown.query, command=unknown.command)
    told = judged.condition or "; ".join(map(number_text, judged.numbers))
    return Answer(said, f"{told[0].upper()}{told[1:]}.", judged.verdict, "layers in float32 on the CPU", number)


def _fused(rotation: Part | None) -> Answer:
    """At least as much faster and smaller as is said, beside transformers' function or else the formula; or one."""
    said = f"A fused rotation is {FUSED_SPEED:g} times faster than a naive one and takes {FUSED_SAVING:.0%} less memory"
    gains = {} if rotation is None else {name: gain for name in NAIVE if (gain := kernels.faster(rotation, name))}
    if rotation is None or not gains:
        return Answer(said, "Start measures it: the rotation by itself comes with every run.", "not measured")
    name, gain = next(iter(gains.items()))
    fast, naive = (None if r is None else r.peak_bytes for r in map(rotation.of, ("fast", name)))
    text, enough = f"{gain:.1f} times faster than {kernels.FUNCTIONS[name]}", [gain >= FUSED_SPEED]
    if fast is not None and naive:
        share = fast / naive
        less = f"{abs(1 - share):.0%} {'less' if share <= 1 else 'more'}"
        text += f", {less} memory ({bytes_text(fast)} and {bytes_text(naive)})"
        enough.append(1 - share >= FUSED_SAVING)
        if enough[0] != enough[1]:
            text += f"; so much as to {'time' if enough[0] else 'memory'} only"
    verdict: Verdict = "holds" if all(enough) else "holds with a condition" if any(enough) else "does not hold"
    return Answer(said, f"{text}.", verdict, f"the rotation, {rotation.where}")
