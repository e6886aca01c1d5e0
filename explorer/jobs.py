"""Long work beside the pages: a Job runs in a daemon thread that never calls Streamlit; a page only reads it.

    job = session_jobs().start("timing", work, threads=None)   # work(job) yields results
    job.state, job.progress, job.results, job.seconds_left, job.place, job.error

Few jobs run at a time in the whole process (environment variable POSENC_MAX_JOBS, default 1); the others queue. A
reader who leaves takes their jobs along.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Generic, Literal, TypeVar

import streamlit as st
import torch

T = TypeVar("T")
State = Literal["queued", "running", "done", "cancelled", "failed"]
VARIABLE = "POSENC_MAX_JOBS"
MOST_JOBS = 64

_log = logging.getLogger(__name__)


class Job(Generic[T]):
    """One piece of work. `results` only grows; `progress` is (done, total) in the work's own unit, (0, 0) at first.

    `work(job)` returns an iterable, whose items become the results and which is left once the job is cancelled; or it
    does everything itself with job.add(), ends soon after job.cancelled() is true (with a last result, if it likes)
    and returns None. Either way job.report() tells how far it is. `error` is one line once the state is "failed".

    `threads` is how many torch threads the work gets: 1 leaves the other cores to the pages, None takes all.
    """

    def __init__(self, work: Callable[[Job[T]], Iterable[T] | None], *, threads: int | None = 1) -> None:
        self.results: list[T] = []
        self.progress: tuple[float, float] = (0, 0)
        self.state: State = "queued"
        self.error = ""
        self._work, self._threads = work, threads
        self._cancel, self._ended = threading.Event(), threading.Event()
        self._pool: Pool | None = None
        self._began = self._took = 0.0

    def add(self, result: T) -> None:
        """Append a result; for the work."""
        self.results.append(result)

    def report(self, done: float, total: float) -> None:
        """Set the progress; for the work."""
        self.progress = (done, total)

    def cancelled(self) -> bool:
        """Whether the work is to end; fits as the `should_stop` of a long computation."""
        return self._cancel.is_set()

    def cancel(self) -> None:
        """Ask the work to end. A queued job ends at once; an ended one stays as it is."""
        self._cancel.set()
        if self._pool is not None:
            self._pool.withdraw(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the job ended within `timeout` seconds (None: however long it takes)."""
        return self._ended.wait(timeout)

    @property
    def ended(self) -> bool:
        """Whether nothing more will change."""
        return self._ended.is_set()

    @property
    def place(self) -> int:
        """1 for the next in the queue, 0 for a job that does not wait."""
        return 0 if self._pool is None else self._pool.place(self)

    @property
    def seconds(self) -> float:
        """How long the work has run, or ran; 0 while it waits."""
        return time.monotonic() - self._began if self.state == "running" else self._took

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None where that cannot be said."""
        done, total = self.progress
        if self.state != "running" or done <= 0 or total <= 0:
            return None
        return self.seconds * max(0.0, total - done) / done

    def _run(self) -> None:
        end: State = "failed"
        try:
            if not self.cancelled():
                self._work_through()
            end = "cancelled" if self.cancelled() else "done"
        except BaseException as error:  # a thread has nobody else to tell
            self.error = ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())]))
            _log.exception("a job failed")
        self._end(end)

    def _work_through(self) -> None:
        if self._threads is not None:
            limit_torch_threads(self._threads)
        for item in self._work(self) or ():
            self.results.append(item)
            if self.cancelled():
                break

    def _end(self, state: State) -> None:
        self._took = time.monotonic() - self._began if self._began else 0.0
        self.state = state
        self._work = _nothing  # what it holds on to (a model, a text) can be freed while the results are still shown
        self._ended.set()


class Pool:
    """Runs at most `size` jobs at a time, first come, first served. ValueError for a size outside 1 to 64."""

    def __init__(self, size: int) -> None:
        if not 1 <= size <= MOST_JOBS:
            raise ValueError(f"{VARIABLE} = {size} is not legal; legal: a whole number from 1 to {MOST_JOBS}")
        self.size = size
        self._lock = threading.RLock()
        self._waiting: list[Job[Any]] = []
        self._running = 0

    def submit(self, job: Job[Any]) -> None:
        """Run the job in a thread of its own, now or when its turn comes. ValueError for a job submitted before."""
        with self._lock:
            if job._pool is not None:
                raise ValueError("a job runs once; make a new one")
            job._pool = self
            self._waiting.append(job)
            if job.cancelled():
                self.withdraw(job)
            self._start()

    def withdraw(self, job: Job[Any]) -> None:
        """Take a waiting job out of the queue; without effect on any other."""
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                job._end("cancelled")

    def place(self, job: Job[Any]) -> int:
        """1 for the next one, 0 for a job that does not wait."""
        with self._lock:
            return self._waiting.index(job) + 1 if job in self._waiting else 0

    def _start(self) -> None:
        while self._waiting and self._running < self.size:
            job = self._waiting.pop(0)
            job.state = "running"
            job._began = time.monotonic()
            self._running += 1
            threading.Thread(target=self._run, args=(job,), name="posenc-job", daemon=True).start()

    def _run(self, job: Job[Any]) -> None:
        try:
            job._run()
        finally:
            with self._lock:
                self._running -= 1
                self._start()


@cache
def pool() -> Pool:
    """The pool of this process; its size is read from POSENC_MAX_JOBS once. ValueError if that is no legal size."""
    text = os.environ.get(VARIABLE, "1")
    try:
        size = int(text)
    except ValueError:
        raise ValueError(f"{VARIABLE} = {text!r} is not legal; legal: a whole number from 1 to {MOST_JOBS}") from None
    return Pool(size)


class SessionJobs:
    """The jobs of one reader, by name: a new one replaces the one before. Once released, it cancels all of them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._jobs: dict[str, Job[Any]] = {}
        self._released = False
        self._lock = threading.Lock()

    def start(self, name: str, work: Callable[[Job[T]], Iterable[T] | None], *, threads: int | None = 1) -> Job[T]:
        """Queue new work under a name; the job that had the name is cancelled."""
        job: Job[T] = Job(work, threads=threads)
        with self._lock:
            before = self._jobs.get(name)
            self._jobs[name] = job
            if self._released:  # a script run can outlive its reader by a moment
                job.cancel()
        if before is not None:
            before.cancel()
        self._pool.submit(job)
        return job

    def get(self, name: str) -> Job[Any] | None:
        """The latest job of that name, if any."""
        return self._jobs.get(name)

    def release(self) -> None:
        """Cancel all jobs, now and from now on."""
        with self._lock:
            self._released = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()


@st.cache_resource(scope="session", show_spinner=False, on_release=SessionJobs.release)
def session_jobs() -> SessionJobs:
    """This reader's jobs: kept over page switches, cancelled when the tab is closed or reloaded.

    Outside a script run Streamlit raises its own error.
    """
    return SessionJobs(pool())


def limit_torch_threads(count: int) -> None:
    """Let the calling thread compute with `count` torch threads, and no other thread.

    Found on torch 2.13 with OpenMP: set_num_threads holds for the calling thread (MKL and oneDNN included), but also
    for every thread whose first torch call comes after it, and each Streamlit script run is a new thread. Threads that
    have computed before keep their number. So a bare set_num_threads(1) in a job would leave all later pages with one
    thread. Hence: set it here, then set the previous number from a short-lived thread, which resets what new threads
    get and leaves this one alone. get_num_threads comes first because a thread's first torch call overwrites its own
    number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    reset = threading.Thread(target=torch.set_num_threads, args=(before,))
    reset.start()
    reset.join()


def _nothing(job: Job[Any]) -> None:
    return None
