"""The claims judged by what is there: computed now, or read from results of the lab and from recorded timings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from explorer.compute import lab
from explorer.compute.timing import BENCHMARKS, recorded_runs
from posenc_core import choosing
from posenc_core.choosing import Choice, Need
from posenc_core.claims import Claim, Evidence, Judgement
from posenc_core.claims_table import CLAIMS, timings
from posenc_core.lab import Result, Run

BY_NUMBER: Mapping[int, Claim] = {claim.number: claim for claim in CLAIMS}


@dataclass(frozen=True)
class Judged:
    """A claim, what follows from the evidence, the results that were there, and the runs that it needs.

    `here` are the keys of results that this server made; the others came with the app. `timed` is the machine of the
    recorded timings, if the claim was judged by them.
    """

    claim: Claim
    judgement: Judgement
    results: tuple[Result, ...]
    runs: tuple[Run, ...]
    here: frozenset[str]
    timed: Mapping[str, object] | None


class _Timings(Mapping[str, object]):
    """Recorded timings that know whether they were looked at."""

    def __init__(self, content: Mapping[str, object]) -> None:
        self.content, self.read = content, False

    def __getitem__(self, name: str) -> object:
        self.read = True
        return self.content[name]

    def __iter__(self) -> Iterator[str]:
        self.read = True
        return iter(self.content)

    def __len__(self) -> int:
        self.read = True
        return len(self.content)


def judged() -> tuple[Judged, ...]:
    """Every claim. Each is judged anew only when one of its runs was made since."""
    return tuple(judgement_of(number) for number in BY_NUMBER)


def judgement_of(number: int) -> Judged:
    """One claim by its number; KeyError if there is none."""
    return _judge(number, tuple(_results(number)))


@dataclass(frozen=True)
class Ranked:
    """The schemes for a need, best first; the results that were there of the runs that it reads, as in Judged."""

    choices: tuple[Choice, ...]
    results: tuple[Result, ...]
    runs: tuple[Run, ...]
    here: frozenset[str]


def ranked(need: Need) -> Ranked:
    """The schemes for a need, by what is measured now."""
    runs = choosing.needed()
    results = _made(runs)
    task_runs = tuple(run for run in runs if run.setting.task in _tasks(need))
    read = tuple(results[run.key] for run in task_runs if run.key in results)
    return Ranked(tuple(choosing.rank(need, Evidence(results))), read, task_runs, _here(r.key for r in read))


def _tasks(need: Need) -> tuple[str, ...]:
    return (need.task, "token_back") if need.precise_positions else (need.task,)


@st.cache_resource(max_entries=256, show_spinner=False)
def _judge(number: int, keys: tuple[str, ...]) -> Judged:
    claim, results, timings = BY_NUMBER[number], _results(number), _timings()
    judgement = claim.judge(Evidence({key: results[key] for key in keys}, timings))
    machine = timings.content.get("machine") if timings.read else None
    timed = machine if isinstance(machine, Mapping) else None
    return Judged(claim, judgement, tuple(results[key] for key in keys), runs_of(number), _here(keys), timed)


def _here(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key for key in keys if not lab.recorded(key))


@st.cache_resource(max_entries=256, show_spinner=False)
def runs_of(number: int) -> tuple[Run, ...]:
    """The lab's runs that a claim needs."""
    return tuple(BY_NUMBER[number].runs())


def _results(number: int) -> dict[str, Result]:
    """Those of a claim's runs that were made."""
    return _made(runs_of(number))


def _made(runs: Sequence[Run]) -> dict[str, Result]:
    return {run.key: found for run in runs if (found := lab.result(run.key)) is not None}


def _timings() -> _Timings:
    return _Timings(timings([run.content for run in recorded_runs(BENCHMARKS)]))
