"""What the measuring itself does: loops, launches, fresh pages, copies into given memory, the kernel that is warmed."""

from __future__ import annotations

import mmap

import pytest
import torch

from posenc_core import benchmark, benchmark_measure, benchmark_parts, build, parse_spec, rotary
from posenc_core.benchmark import Case, Config, Record, run
from posenc_core.benchmark_measure import Timed
from posenc_core.benchmark_parts import PARTS, Made, Part, Shared

ROPE = parse_spec({"scheme": "rope"})


def records(config: Config) -> list[Record]:
    return [step.record for step in run(config) if step.record is not None]


def test_the_loops_are_counted_from_calls_that_queue_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def timed(call: object, times: int, device: str) -> Timed:
        asked.append(times)
        return Timed(1e-3 if times == 1 else 2e-4)  # a call alone takes five times as long

    monkeypatch.setattr(benchmark, "timed", timed)
    monkeypatch.setattr(benchmark_measure, "SHORTEST", {"cpu": 4e-3})
    config = Config((ROPE,), (16,), what=("rotation",), heads=2, d_head=8, repetitions=3)
    case = Case(ROPE, 16, what="rotation")
    bench = benchmark._Bench(case, config, benchmark.Shared(case, config))
    bench._count_loops()
    assert asked == [1, 4]
    assert bench.loops == [20]
    monkeypatch.setattr(benchmark_measure, "SHORTEST", {"cpu": 1e-3})
    bench._count_loops()
    assert asked == [1, 4, 1]  # one is long enough
    assert bench.loops == [1]


class FakeGpu:
    """A host that launches kernels, and a GPU that runs one after another: torch.cuda's events, and the clock."""

    def __init__(self, launch: float, kernel: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launch, self.kernel, self.now, self.idle = launch, kernel, 0.0, 0.0
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = max(gpu.now, gpu.idle)

            def synchronize(self) -> None:
                gpu.now = max(gpu.now, self.at)

            def elapsed_time(self, end: Event) -> float:
                return (end.at - self.at) * 1e3

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: setattr(gpu, "now", max(gpu.now, gpu.idle)))
        monkeypatch.setattr(benchmark_measure.time, "perf_counter", lambda: gpu.now)

    def call(self) -> None:
        self.now += self.launch
        self.idle = max(self.now, self.idle) + self.kernel


@pytest.mark.parametrize(("launch", "kernel", "bounded"), [(1.0, 5.0, False), (4.0, 5.0, False), (5.0, 1.0, True)])
def test_a_sample_that_tells_of_launches_says_so(
    launch: float, kernel: float, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeGpu(launch, kernel, monkeypatch)
    taken = benchmark_measure.timed(gpu.call, 100, "cuda")
    assert taken.launched == pytest.approx(launch)
    assert taken.seconds == pytest.approx(max(launch, kernel), rel=0.02)
    config = Config((ROPE,), (16,), what=("tables_cached",), repetitions=3)
    case = Case(ROPE, 16, what="tables_cached")
    bench = benchmark._Bench(case, config, benchmark.Shared(case, config))
    bench.case = Case(ROPE, 16, "cuda", what="tables_cached")
    bench.parts, bench.loops = [Part(1.0, gpu.call)], [100]
    for _ in range(3):
        bench.sample()
    made = bench.record(None, None)
    assert made.note == ("bounded by the launches" if bounded else "")
    assert made.page_faults is None


def test_nothing_is_launched_on_a_cpu() -> None:
    assert benchmark_measure.timed(lambda: None, 10, "cpu").launched is None


@pytest.mark.skipif(benchmark_measure.resource is None, reason="this system does not count page faults")
def test_a_call_that_gets_fresh_pages_is_counted() -> None:
    page, size = mmap.PAGESIZE, 2**24
    before = benchmark_measure.page_faults("cpu")
    with mmap.mmap(-1, size) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for i in range(0, size, page):
            memory[i] = 1
        after = benchmark_measure.page_faults("cpu")
    assert size // page <= after - before < 1.5 * size // page
    assert benchmark_measure.page_faults("cuda") is None


@pytest.mark.parametrize(("a_call", "note"), [
    (16, ""), (17, "17 fresh pages a call, zeroed by the system, are in the time"),
    (2048, "2,048 fresh pages a call, zeroed by the system, are in the time"),
])  # fmt: skip
def test_fresh_pages_are_told_where_they_are_many(a_call: int, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    had = [1000]
    monkeypatch.setattr(benchmark, "page_faults", lambda device: had[0])

    def parts(encoding: object, shared: object, case: Case) -> Made:
        return Made([Part(1.0, lambda: had.__setitem__(0, had[0] + a_call))], 2**19)  # an output of 2**18 bytes

    monkeypatch.setitem(benchmark.PARTS, "rotation", parts)
    for r in records(Config((ROPE,), (16,), what=("rotation",), repetitions=3)):
        assert r.page_faults == a_call
        assert r.note == note


def test_where_page_faults_are_not_counted_there_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_measure, "resource", None)
    assert {r.page_faults for r in records(Config((ROPE,), (16,), what=("rotation",), repetitions=3))} == {None}


@pytest.mark.parametrize("backward", [False, True])
def test_a_copy_into_given_memory_writes_where_the_last_did(backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config((ROPE,), (16,), heads=2, d_head=8, repetitions=3)
    case = Case(ROPE, 16, what="rotation", implementation="copy_given", backward=backward)
    monkeypatch.setattr(benchmark_parts, "l2_bytes", lambda device: 2 * 2 * 16 * 8 * 4)
    shared = Shared(case, config)
    call = PARTS["rotation"](build(ROPE, d_head=8), shared, case).parts[0].call
    inputs = [shared.qkv(i) for i in ((0, 1, 3, 4) if backward else (0, 1))]
    assert {len(copies) for copies in inputs} == {2}
    for copies in inputs:
        copies[1].add_(1.0)
    made = [call() for _ in range(4)]
    for turn, outs in enumerate(made):
        assert len(outs) == len(inputs)
        assert all(torch.equal(out, copies[turn % 2]) for out, copies in zip(outs, inputs, strict=True))
    where = [[out.data_ptr() for out in outs] for outs in made]
    assert where[:2] == where[2:]
    assert not {*where[0], *where[1]} & {x.data_ptr() for copies in inputs for x in copies}


@pytest.mark.parametrize("what", ["layer", "attention", "rotation"])
def test_the_kernel_that_is_warmed_is_the_one_that_is_timed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused rotation gets tensors and tables of the same shapes, strides and dtypes in both."""
    kinds: list[tuple[bool | None, object]] = []
    rotated = rotary._rotated

    def look(xs, cos, sin, layout, backwards, fused):
        kinds.append((fused, [layout, *((t.shape, t.stride(), t.dtype) for t in (*xs, cos, sin))]))
        return rotated(xs, cos, sin, layout, backwards, fused)

    config = Config((ROPE,), (48,), dtypes=("bfloat16",), heads=3, d_head=16, batch=2, repetitions=3)
    case = Case(ROPE, 48, dtype="bfloat16", what=what)
    shared = Shared(case, config)
    monkeypatch.setattr(rotary, "warm_up", lambda device: True)
    monkeypatch.setattr(rotary, "_rotated", look)
    with torch.no_grad():
        made = PARTS[what](build(ROPE, d_head=16), shared, case)
        assert [fused for fused, _ in kinds] == [True]
        made.parts[0].call()
    (_, warmed), (_, timed) = kinds
    assert warmed == timed
