"""Runs of the Timing page: the reader's own, measured in a background job, and recorded ones from assets/benchmarks."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import streamlit as st

from explorer.compute.common import ASSETS
from explorer.jobs import Job, session_jobs
from explorer.views import TimingView
from posenc_core import Spec, benchmark
from posenc_core.benchmark import Config, Record

BENCHMARKS = ASSETS / "benchmarks"
JOB = "timing"
LIVE = "_timing"  # session key of the reader's latest start
LONGEST_RUN = 180.0  # seconds after which a run ends with what it has: readers of a hosted app share one queue
MAX_BYTES = 2**30  # of one case; a longer one is not run
QUICK = TimingView(longest=512, repetitions=5)  # measured unasked where nothing else can be shown

Found = Mapping[str, Any]  # what benchmark.machine() says

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Records that belong together; `content` is the whole run as plain values, as its file holds it."""

    content: Mapping[str, Any]
    records: tuple[Record, ...]
    recorded: bool

    @property
    def machine(self) -> Found:
        """What the machine said of itself."""
        return dict(self.content["machine"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The configuration as plain values."""
        return dict(self.content["config"])


@dataclass
class Live:
    """The reader's latest start, and the run that was shown before it."""

    config: Config
    job: Job[Record | Found]
    before: Run | None

    @property
    def run(self) -> Run | None:
        """What is measured so far; None before the first length is done."""
        records = tuple(r for r in self.job.results if isinstance(r, Record))
        measured = any(r.median is not None for r in records)
        if not records or not (measured or self.job.state == "done"):  # a stopped job knows what it would have skipped
            return None
        found = self.job.results[0]
        assert not isinstance(found, Record)
        return Run(benchmark.to_mapping(self.config, records, dict(found)), records, recorded=False)


def lengths(longest: int) -> tuple[int, ...]:
    """128 and its doublings, and the longest itself."""
    doubled = [128 << i for i in range(16)]
    return (*(n for n in doubled if n < longest), longest)


def config(specs: Sequence[Spec], view: TimingView) -> Config:
    """What the page's controls ask for."""
    return Config(
        tuple(dict.fromkeys(specs)), lengths(view.longest), (view.device,), (view.dtype,), get_args(benchmark.What),
        repetitions=view.repetitions, max_bytes=MAX_BYTES,
    )  # fmt: skip


@st.cache_resource(show_spinner=False)
def devices() -> dict[str, str]:
    """The devices of this machine, id -> name."""
    return benchmark.devices()


def live() -> Live | None:
    """The reader's latest start, if any."""
    made: Live | None = st.session_state.get(LIVE)
    return made


def start(wanted: Config) -> Live:
    """Measure in the background; what was measured before stays until the first length is done."""

    def work(job: Job[Record | Found]) -> None:
        job.add(benchmark.machine())
        for step in benchmark.run(wanted, lambda: job.cancelled() or job.seconds > LONGEST_RUN):
            job.report(step.done, step.total)
            if step.record is not None:
                job.add(step.record)

    last = live()
    before = None if last is None else last.run or last.before
    made = Live(wanted, session_jobs().start(JOB, work, threads=1), before)
    st.session_state[LIVE] = made
    return made


def runs() -> list[Run]:
    """What can be shown, the newest of the reader's own first."""
    mine = live()
    own = None if mine is None else mine.run or mine.before
    return [*([own] if own else []), *recorded_runs(BENCHMARKS)]


@st.cache_resource(max_entries=4, show_spinner=False)
def recorded_runs(folder: Path) -> tuple[Run, ...]:
    """The runs in a folder's JSON files; a file that is no run is left out."""
    out = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text())
            records = tuple(map(Record.from_mapping, content["records"]))
            benchmark.machine_line(content["machine"])
            if not records or not isinstance(content.get("config"), dict):
                raise ValueError("no records, or no config")
            out.append(Run(content, records, recorded=True))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("%s is no recorded run: %s", path, error)
    return tuple(out)
