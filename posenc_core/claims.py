"""Claims that articles and papers repeat about positions, each with the experiment that measures it and a verdict.

Verdicts are computed from what was measured; nothing here is decided by hand but the rule.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from posenc_core.lab import Result, Run

Verdict = Literal["holds", "holds with a condition", "does not hold", "not measured"]
Source = Literal["paper", "article", "textbook", "folklore"]


@dataclass(frozen=True)
class Number:
    """One measured number: what it is, its value, its unit.

    spread: how far it differs where it was measured several times: largest less smallest of the seeds, whose mean the
    value is, or upper less lower quartile of a timing, as `apart` tells. claimed: the number that the claim gives for
    it, as it does.
    """

    name: str
    value: float
    unit: str = ""
    spread: float = 0.0
    claimed: str = ""
    apart: str = "seeds differ by"


@dataclass(frozen=True)
class Evidence:
    """What claims are judged by: the lab's results by key, and benchmark records as the benchmark writes them."""

    results: Mapping[str, Result]
    benchmark: Mapping[str, object] = field(default_factory=dict)

    def of(self, run: Run) -> Result | None:
        """The result of a run, None if it was not made."""
        return self.results.get(run.key)


@dataclass(frozen=True)
class Judgement:
    """The verdict, the measured numbers that it follows from, and why it is not simply "holds".

    `condition`: what a claim that holds with a condition hangs on, or the reason why one does not hold; else empty.
    """

    verdict: Verdict
    numbers: tuple[Number, ...]
    condition: str = ""


def decide(always: bool, sometimes: bool, numbers: Iterable[Number], *, condition: str = "", reason: str) -> Judgement:
    """The judgement on a claim that is true in all that was measured, in some of it, or in nothing.

    `condition` stands in the second case, `reason` in the third.
    """
    if always:
        return Judgement("holds", tuple(numbers))
    if sometimes:
        return Judgement("holds with a condition", tuple(numbers), condition)
    return Judgement("does not hold", tuple(numbers), reason)


ROUNDED_AWAY = 1e-9  # what is smaller is rounding of float64, as the judges have it
EXACT = 1e15  # from there on a number is written with an exponent


def amount(value: float, unit: str = "", spread: float = 0.0) -> str:
    """A number in at most four digits, with its unit and half of its spread: 1.902 ± 0.01 nats, 62,832, 7%.

    A share ("of the output") is written in percent; a count of so many ("of 9") is not. What is smaller than rounding
    is none, with the power of ten that it is below.
    """
    if 0 < abs(value) < ROUNDED_AWAY:
        return f"none (below 1e{math.floor(math.log10(abs(value))) + 1})"
    if unit.startswith("of ") and not re.match(r"of [\d.,]+( |$)", unit):
        value, spread, unit = 100 * value, 100 * spread, f"% {unit}"
    if not math.isfinite(value):
        text = "not a number" if math.isnan(value) else "infinite"
    elif abs(value) >= EXACT:
        text = f"{value:.4g}"
    elif value == int(value):
        text = f"{int(value):,}"
    elif abs(value) >= 1000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.2g}"
    text += f" ± {spread / 2:.2g}" if spread else ""
    return text + (unit if unit == "" or unit[0] in "%×" else f" {unit}")


def listed(words: Iterable[str]) -> str:
    """a, b and c; none for no words."""
    *most, last = tuple(words) or ("none",)
    return f"{', '.join(most)} and {last}" if most else last


@dataclass(frozen=True)
class Claim:
    """A claim in one sentence, where it stands (`source`, `reference`), and how it is tested.

    `experiment` says in a sentence what is measured. `page` and `query` are a link of the app that shows it. `runs` are
    the lab's runs that it needs. `judge` computes the judgement; "not measured" where a run is missing. `decided_at`:
    the training lengths that it is mainly judged at.
    """

    number: int
    name: str
    sentence: str
    source: Source
    reference: str
    experiment: str
    page: str
    query: Mapping[str, str]
    judge: Callable[[Evidence], Judgement]
    runs: Callable[[], list[Run]] = list
    decided_at: tuple[int, ...] = (16,)


if __name__ == "__main__":
    # by name: the table imports this module
    sys.exit(importlib.import_module("posenc_core.claims_table").main())
