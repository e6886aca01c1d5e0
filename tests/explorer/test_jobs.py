"""Background jobs: queue, cancel, failure, release, and torch threads that stay with their job."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from streamlit.testing.v1 import AppTest

from explorer import jobs
from explorer.jobs import Job, Pool, SessionJobs

PATIENCE = 20.0  # seconds until a hanging test fails


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


class Gate:
    """Work that counts up once a millisecond until it is opened or cancelled."""

    def __init__(self) -> None:
        self.open, self.closed = threading.Event(), threading.Event()

    def __call__(self, job: Job[int]) -> Iterator[int]:
        try:
            n = 0
            while not self.open.wait(0.001):
                n += 1
                yield n
        finally:
            self.closed.set()


def submit(pool: Pool, work: Callable[[Job[int]], object], threads: int | None = None) -> Job[int]:
    job: Job[int] = Job(work, threads=threads)  # type: ignore[arg-type]
    pool.submit(job)
    return job


def test_results_progress_and_time_of_a_job() -> None:
    seen: list[tuple[float | None, str]] = []

    def work(job: Job[int]) -> Iterator[int]:
        for i in range(4):
            yield i * i
            job.report(i + 1, 4)
            seen.append((job.seconds_left, job.state))

    job = submit(Pool(1), work)
    assert job.wait(PATIENCE)
    assert (job.state, job.results, job.progress, job.error) == ("done", [0, 1, 4, 9], (4, 4), "")
    assert job.ended
    assert job.seconds > 0
    assert job.seconds == job.seconds
    assert job.seconds_left is None
    assert all(left is not None and left >= 0 and state == "running" for left, state in seen)
    assert seen[-1][0] == 0


def test_time_left_follows_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    job = submit(Pool(1), gate)
    assert until(lambda: bool(job.results))
    assert job.seconds_left is None
    monkeypatch.setattr(Job, "seconds", property(lambda self: 6.0))
    job.report(3, 4)
    assert job.seconds_left == 2.0
    job.report(5, 4)
    assert job.seconds_left == 0.0
    job.cancel()
    assert job.wait(PATIENCE)


def test_a_function_can_add_results_itself_also_after_the_cancel() -> None:
    def work(job: Job[str]) -> None:
        job.add("first")
        while not job.cancelled():
            time.sleep(0.001)
        job.add("what was measured so far")
        job.add("and the rest of it")

    job = submit(Pool(1), work)
    assert until(lambda: job.results == ["first"])
    job.cancel()
    assert job.wait(PATIENCE)
    assert job.state == "cancelled"
    assert job.results == ["first", "what was measured so far", "and the rest of it"]


def test_jobs_queue_in_order_and_show_their_place() -> None:
    pool, gates = Pool(1), [Gate() for _ in range(3)]
    a, b, c = (submit(pool, g) for g in gates)
    assert [j.state for j in (a, b, c)] == ["running", "queued", "queued"]
    assert [j.place for j in (a, b, c)] == [0, 1, 2]
    assert (b.seconds, b.seconds_left, b.progress) == (0, None, (0, 0))
    gates[0].open.set()
    assert until(lambda: b.state == "running")
    assert (a.state, c.place) == ("done", 1)
    b.cancel()
    assert until(lambda: c.state == "running")
    assert (b.state, c.place) == ("cancelled", 0)
    c.cancel()
    assert c.wait(PATIENCE)


def test_a_pool_of_two_runs_two() -> None:
    pool, gates = Pool(2), [Gate() for _ in range(3)]
    made = [submit(pool, g) for g in gates]
    assert until(lambda: bool(made[0].results and made[1].results))
    assert (made[2].state, made[2].results) == ("queued", [])
    for job in made:
        job.cancel()
    assert all(job.wait(PATIENCE) for job in made)


def test_cancel_ends_a_running_job_within_a_second_and_closes_its_generator() -> None:
    gate = Gate()
    job = submit(Pool(1), gate)
    assert until(lambda: len(job.results) >= 3)
    job.cancel()
    assert job.wait(1.0)
    assert job.state == "cancelled"
    assert gate.closed.wait(1.0)
    assert job.results == list(range(1, len(job.results) + 1))
    job.cancel()
    assert job.state == "cancelled"


def test_a_waiting_job_that_is_cancelled_never_begins() -> None:
    pool, gate, ran = Pool(1), Gate(), []
    first = submit(pool, gate)
    waiting = submit(pool, lambda job: ran.append(1))
    waiting.cancel()
    assert waiting.ended
    assert (waiting.state, waiting.place, waiting.seconds) == ("cancelled", 0, 0)
    first.cancel()
    assert first.wait(PATIENCE)
    assert submit(pool, lambda job: None).wait(PATIENCE)
    assert ran == []


def test_a_failure_is_one_line_of_text_keeps_the_results_and_frees_the_slot(caplog: pytest.LogCaptureFixture) -> None:
    def work(job: Job[int]) -> Iterator[int]:
        yield 7
        raise ValueError("steps = -1 is not legal;\n legal: 1 to 9")

    pool = Pool(1)
    job = submit(pool, work)
    assert job.wait(PATIENCE)
    assert (job.state, job.results) == ("failed", [7])
    assert job.error == "ValueError: steps = -1 is not legal; legal: 1 to 9"
    assert "Traceback" in caplog.text
    after = submit(pool, lambda job: [1])
    assert after.wait(PATIENCE)
    assert after.state == "done"


def test_a_job_runs_once() -> None:
    pool = Pool(1)
    job = submit(pool, lambda job: None)
    with pytest.raises(ValueError, match="a job runs once"):
        pool.submit(job)


def test_a_new_job_of_the_same_name_replaces_the_one_before() -> None:
    mine, gates = SessionJobs(Pool(1)), [Gate(), Gate()]
    first = mine.start("timing", gates[0], threads=None)
    assert mine.get("timing") is first
    assert mine.get("training") is None
    second = mine.start("timing", gates[1], threads=None)
    assert mine.get("timing") is second
    assert until(lambda: first.ended and second.state == "running")
    assert first.state == "cancelled"
    mine.release()
    assert second.wait(1.0)


def test_release_cancels_running_and_waiting_jobs_and_takes_no_more() -> None:
    pool, ran = Pool(1), []
    mine, other = SessionJobs(pool), SessionJobs(pool)
    running = mine.start("a", Gate(), threads=None)
    waiting = mine.start("b", Gate(), threads=None)
    others = other.start("a", lambda job: [1], threads=None)
    mine.release()
    assert running.wait(1.0)
    assert others.wait(PATIENCE)
    assert (running.state, waiting.state, others.state) == ("cancelled", "cancelled", "done")
    late = mine.start("c", lambda job: ran.append(1), threads=None)
    assert late.ended
    assert (late.state, ran) == ("cancelled", [])


def test_a_reader_keeps_the_job_over_reruns_and_takes_it_along(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(1)
    monkeypatch.setattr(jobs, "pool", lambda: pool)

    def page() -> None:
        import time

        import streamlit as st

        from explorer.jobs import session_jobs

        def count(job):
            while not job.cancelled():
                time.sleep(0.001)
                yield 1

        mine = session_jobs()
        job = mine.get("count") or mine.start("count", count)
        st.session_state["job"] = job
        if st.button("leave"):
            session_jobs.clear()

    app = AppTest.from_function(page, default_timeout=PATIENCE).run()
    job = app.session_state["job"]
    assert until(lambda: job.state == "running")
    app.run()
    assert app.session_state["job"] is job
    assert not job.ended
    app.button[0].click().run()
    assert not app.exception
    assert job.wait(1.0)
    assert job.state == "cancelled"
    again = AppTest.from_function(page, default_timeout=PATIENCE).run()
    assert again.session_state["job"] is not job
    again.button[0].click().run()
    assert again.session_state["job"].wait(1.0)


@pytest.mark.parametrize("value", ["0", "-1", "65", "many", ""])
def test_a_pool_size_that_is_not_legal_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jobs.VARIABLE, value)
    with pytest.raises(ValueError, match=f"POSENC_MAX_JOBS = '?{value}'? is not legal; legal: a whole number from 1"):
        jobs.pool.__wrapped__()


def test_the_pool_size_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jobs.VARIABLE, raising=False)
    assert jobs.pool.__wrapped__().size == 1
    monkeypatch.setenv(jobs.VARIABLE, "3")
    assert jobs.pool.__wrapped__().size == 3
    assert jobs.pool() is jobs.pool()


def test_a_job_with_few_torch_threads_leaves_those_of_all_others() -> None:
    code = """
import threading, torch
from explorer.jobs import Job, Pool
torch.set_num_threads(3)
seen = {}
inside, leave = threading.Event(), threading.Event()
def note(name): seen[name] = torch.get_num_threads()
def fresh(name):
    t = threading.Thread(target=note, args=(name,)); t.start(); t.join()
def work(job):
    note("job"); inside.set(); leave.wait(20); note("job later")
job = Job(work, threads=1); pool = Pool(1); pool.submit(job)
inside.wait(20)
note("main"); fresh("page during"); leave.set(); job.wait(20); fresh("page after")
everything = Job(lambda job: note("job with all"), threads=None); pool.submit(everything); everything.wait(20)
assert job.state == everything.state == "done", (job.error, everything.error)
assert seen == {"job": 1, "main": 3, "page during": 3, "job later": 1, "page after": 3, "job with all": 3}, seen
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
