"""Claims that articles and papers repeat about positions, each with the experiment that measures it and a verdict.

Verdicts are computed from what was measured; nothing here is decided by hand but the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from posenc_core.lab import Result, Run

Verdict = Literal["holds", "holds with a condition", "does not hold", "not measured"]
Source = Literal["paper", "article", "textbook", "folklore"]


@dataclass(frozen=True)
class Number:
    """One measured number: what it is, its value, its unit."""

    name: str
    value: float
    unit: str = ""


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
    """The measured numbers, the verdict that follows from them, and the condition it hangs on, if any, in a sentence."""

    verdict: Verdict
    numbers: tuple[Number, ...]
    condition: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim in one sentence, where it stands (`source`, `reference`), and how it is tested.

    `experiment` says in a sentence what is measured. `page` and `query` are a link of the app that shows it. `runs` are
    the lab's runs that it needs. `judge` computes the judgement; "not measured" where a run is missing.
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
