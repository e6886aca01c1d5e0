"""Runs of the extrapolation lab: found in the store, made in a background job, and looked into."""

from __future__ import annotations

import logging
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import streamlit as st

from explorer.jobs import Job, session_jobs
from explorer.views import LabView
from posenc_core import Problem, Spec, SpecError, lab
from posenc_core.lab import Execution, Progress, Result, Run, Setting
from posenc_core.lab_store import SHIPPED, Store
from posenc_core.model import ToyModel

FOLDER, MINUTES = "POSENC_LAB_DIR", "POSENC_LAB_MINUTES"  # environment variables
DEFAULT_MINUTES = 30
JOB = "lab"
LIVE = "_lab"  # session key of the reader's latest start
MAX_BYTES = 2**20  # of the reader's own text
_log = logging.getLogger(__name__)
SAVE_SECONDS = 30.0  # after which a run in progress is kept: a server that is restarted loses no more


# ------------------------------------------------------------------ where results are kept


def store() -> Store:
    """The results of this server: shipped ones, and those in the folder that POSENC_LAB_DIR names."""
    return _store(_folder(os.environ.get(FOLDER, ""), os.environ.get("XDG_CACHE_HOME", "")), SHIPPED)


@lru_cache(maxsize=8)
def _store(folder: Path, shipped: Path) -> Store:
    return Store(folder, shipped)


@cache
def _folder(given: str, caches: str) -> Path:
    """The folder of that name, else one among the user's caches, else a temporary one: whichever can be written."""
    home = Path(caches) if caches else Path.home() / ".cache"
    for path in filter(None, [Path(given) if given else None, home / "posenc-explorer" / "lab"]):
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                return path
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="posenc-lab-"))


def most_seconds() -> float:
    """How long one start may train, from POSENC_LAB_MINUTES. ValueError for anything but a number above 0."""
    text = os.environ.get(MINUTES, str(DEFAULT_MINUTES))
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise ValueError(f"{MINUTES} = {text!r} is not legal; legal: a number above 0")
    return 60 * minutes


# ------------------------------------------------------------------ what is asked for, and what of it is there


def setting_of(values: Mapping[str, Any]) -> Setting:
    """The lab's setting among the values of the page's view."""
    return Setting(**{p.name: values[p.name] for p in Setting.params() if p.name in values})


def schemes_of(items: Sequence[str]) -> tuple[tuple[Spec, ...], tuple[Problem, ...]]:
    """Specs of what was picked or typed, each once, and why some cannot be read."""
    made, problems = dict[Spec, None](), list[Problem]()
    for item in items:
        try:
            made |= dict.fromkeys(lab.parse_schemes(item))
        except SpecError as error:
            problems += error.problems
    if len(made) > lab.MOST_SCHEMES:
        left_out = ", ".join(map(lab.scheme_text, list(made)[lab.MOST_SCHEMES :]))
        problems.append(Problem("schemes", left_out, f"at most {lab.MOST_SCHEMES} schemes", "left out"))
    return tuple(made)[: lab.MOST_SCHEMES], tuple(problems)


def fitting(items: Sequence[str]) -> tuple[str, tuple[Problem, ...]]:
    """The schemes as the link holds them, without the last ones where they are too long for it."""
    param, kept = LabView.param("schemes"), list(items)
    assert param.max_length is not None
    while len(", ".join(kept)) > param.max_length:
        kept.pop()
    problems = [Problem("schemes", ", ".join(items), param.legal, "the link leaves out the last")]
    return ", ".join(kept), tuple(problems if len(kept) < len(items) else ())


def runnable(specs: Sequence[Spec]) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """The sidebar's schemes as they are picked here, and why some cannot run."""
    texts, problems = list[str](), list[Problem]()
    for spec in specs:
        try:
            Run(spec)
            text = lab.scheme_text(spec)
            lab.parse_schemes(text)
            texts.append(text)
        except SpecError as error:
            problems += error.problems
    return tuple(texts), tuple(problems)


def seeds_of(text: str) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """The seeds in a text, else the default ones with the reason."""
    param = LabView.param("seeds")
    try:
        seeds = LabView(seeds=LabView.parse_field("seeds", text)).seeds
        if not seeds:
            raise SpecError([Problem("seeds", text, param.legal, "none is given")])
    except SpecError as error:
        return param.default, error.problems
    return seeds, ()


@dataclass(frozen=True)
class Asked:
    """The runs that the page asks for, by the label of their line, the base of an extension before it."""

    runs: tuple[Run, ...]
    problems: tuple[Problem, ...]

    @property
    def by_label(self) -> dict[str, list[Run]]:
        """Every line's runs, one a seed."""
        made = dict[str, list[Run]]()
        for run in self.runs:
            made.setdefault(run.label, []).append(run)
        return made


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs={Setting: lambda s: s.to_query()})
def _asked(schemes: tuple[str, ...], setting: Setting, seeds: tuple[int, ...], text: str) -> Asked:
    runs, problems = lab.runs([lab.parse_schemes(s)[0] for s in schemes], setting, seeds, text)
    return Asked(tuple(runs), tuple(problems))


def asked(schemes: Sequence[Spec], setting: Setting, seeds: Sequence[int], text: str = "") -> Asked:
    """The runs of every scheme and seed."""
    return _asked(tuple(map(lab.scheme_text, schemes)), setting, tuple(seeds), text)


class Absent(LookupError):
    """Nothing was kept; raised so that its absence is not."""


@lru_cache(maxsize=2048)  # Streamlit's own takes 0.5 ms a look, and a page looks at hundreds
def _result(folder: Path, key: str) -> Result:
    if (found := store().get(key)) is None:
        raise Absent(key)
    return found


def result(key: str) -> Result | None:
    """The result of a run, None if it was not made."""
    try:
        return _result(_place(), key)
    except Absent:
        return None


def results(asked: Asked) -> dict[str, Result]:
    """What is measured of it, by key; of this reader's own job also what could not be kept."""
    made = live()
    own = {} if made is None else {r.key: r for r in made.job.results}
    return {run.key: found for run in asked.runs if (found := result(run.key) or own.get(run.key)) is not None}


def recorded(key: str) -> bool:
    """Whether the result came with the app."""
    return key in store().shipped


def _place() -> Path:
    folder = store().folder
    assert folder is not None
    return folder


# ------------------------------------------------------------------ what is missing


@dataclass(frozen=True)
class Left:
    """A run that was left: steps done of all its steps."""

    run: Run
    step: int
    total: int


@dataclass(frozen=True)
class Work:
    """The runs still to make, in order: a base before its extensions. `left` are those that were begun.

    weights_only: keys of bases whose results are there, but not the weights that an extension needs.
    """

    runs: tuple[Run, ...]
    left: tuple[Left, ...]
    seconds: float
    weights_only: frozenset[str]


def work(asked: Asked, made: Mapping[str, Result]) -> Work:
    """What Start would do."""
    needed = dict[str, Run]()
    for run in (run for run in asked.runs if run.key not in made):
        if run.setting.extension != "off" and weights(base := run.base) is None:
            needed.setdefault(base.key, base)
        needed.setdefault(run.key, run)
    ordered = tuple(run for group in lab.groups(list(needed.values())) for run in group)
    left = tuple(found for run in ordered if (found := _left(run)) is not None)
    begun = {x.run.key: 1 - x.step / x.total for x in left}
    seconds = sum(run.seconds * begun.get(run.key, 1.0) for run in ordered)
    return Work(ordered, left, seconds, frozenset(r.key for r in ordered if r.key in made))


def _left(run: Run) -> Left | None:
    state = store().state(run.key)
    return None if state is None else Left(run, len(state["losses"]), state["total"])


# ------------------------------------------------------------------ the job


@dataclass
class Live:
    """The reader's latest start. `now` is the run in progress, with its losses so far."""

    runs: tuple[Run, ...]
    now: Run | None = None
    progress: Progress | None = None
    losses: list[float] = field(default_factory=list)
    job: Job[Result] = field(init=False)


def live() -> Live | None:
    """The reader's latest start, if any."""
    made: Live | None = st.session_state.get(LIVE)
    return made


def start(todo: Work) -> None:
    """Make the runs in the background. Every one is kept as soon as it is measured, and one that is left half-way."""
    made, kept = Live(todo.runs), store()

    def train(job: Job[Result]) -> None:
        make(made, job, kept, todo)

    made.job = session_jobs().start(JOB, train, threads=1)
    st.session_state[LIVE] = made


def stop() -> None:
    """End the reader's job after the step it is at; what was measured and how far it came is kept."""
    made = live()
    if made is not None:
        made.job.cancel()


def make(live: Live, job: Job[Result], kept: Store, todo: Work) -> None:
    """The work of the job; ends within a step once the job is cancelled."""
    trained: tuple[str, ToyModel] | None = None  # the last model, which the next run may extend
    job.report(0.0, todo.seconds)
    for run in todo.runs:
        before, first = job.progress[0], 0.0
        found = None if run.key in todo.weights_only else kept.get(run.key)  # another reader may have made it meanwhile
        if found is None:
            base = None if run.setting.extension == "off" else _base(kept, run, trained)
            if (state := kept.state(run.key)) is not None:  # another reader may have come further meanwhile
                first = len(state["losses"]) / state["total"]
            execution = Execution(run, base, state)
            for progress in _steps(job, kept, execution):
                live.now, live.progress, live.losses = run, progress, execution.losses
                share = progress.step / max(1, progress.total)
                job.report(before + run.seconds * max(0.0, share - first), todo.seconds)
            if (found := execution.result) is None:
                return
            trained = run.key, execution.model
            with _kept_if_possible():
                kept.put(found, execution.model)
        job.report(before + run.seconds * (1 - first), todo.seconds)
        job.add(found)
        if job.cancelled():
            return


@contextmanager
def _kept_if_possible() -> Iterator[None]:
    """A full disk costs what it cannot hold, not the training."""
    try:
        yield
    except OSError:
        _log.exception("the lab's folder cannot be written")


def _steps(job: Job[Result], kept: Store, execution: Execution) -> Iterator[Progress]:
    """The steps of a run, whose state is kept when it is left, now and then, and before it is measured."""
    key, saved = execution.run.key, time.monotonic()
    try:
        for progress in execution.steps(job.cancelled):
            trained, stopping = progress.phase != "measuring" and progress.step == progress.total, job.cancelled()
            if stopping or trained or time.monotonic() > saved + SAVE_SECONDS:
                with _kept_if_possible():
                    kept.save_state(key, execution.state_dict())
                saved = time.monotonic()
            yield progress
            if stopping:
                return
    except Exception:
        kept.drop_state(key)  # a state that cannot be gone on from must not fail again
        raise


def _base(kept: Store, run: Run, trained: tuple[str, ToyModel] | None) -> ToyModel | None:
    key = run.base.key
    return trained[1] if trained is not None and trained[0] == key else kept.model(run.base)


# ------------------------------------------------------------------ trained models


def weights(run: Run) -> ToyModel | None:
    """The trained model of a run, shared: do not change it. None where its weights were not kept."""
    try:
        return _weights(_place(), run)
    except Absent:
        return None


RUN: dict[Any, Any] = {Run: lambda run: run.key}  # what caches tell runs apart by


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=RUN)
def _weights(folder: Path, run: Run) -> ToyModel:
    if (model := store().model(run)) is None:
        raise Absent(run.key)
    return model
