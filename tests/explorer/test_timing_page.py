"""The Timing page: a picture before anything was measured, runs in the background, frames that equal the records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from streamlit.testing.v1 import AppTest

from explorer import show
from explorer.compute import timing as compute
from explorer.jobs import Job, SessionJobs
from explorer.pictures import timing as pictures
from explorer.views import TimingView
from posenc_core import SCHEMES, benchmark, parse_spec
from posenc_core.benchmark import Case, Config, Record

APP = str(Path(__file__).resolve().parents[2] / "explorer" / "app.py")
PATIENCE = 60.0
ROPE, ALIBI, NONE = (parse_spec({"scheme": s}) for s in ("rope", "alibi", "none"))
MACHINE = benchmark.machine()


pytestmark = pytest.mark.usefixtures("own_jobs")


@pytest.fixture
def no_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(compute, "BENCHMARKS", tmp_path)
    return tmp_path


def page(**query: str) -> AppTest:
    at = AppTest.from_file(APP, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page("../pages/timing.py")
    at.run()
    assert not at.exception, at.exception
    return at


def charts(at: AppTest) -> list[Any]:
    return [c.proto for c in at.get("vega_lite_chart")]


def button(at: AppTest, label: str) -> Any:
    return next(b for b in at.button if b.label == label)


def metrics(at: AppTest) -> dict[str, str]:
    return {m.label: m.value for m in at.metric}


def settled(at: AppTest, job: Job[Any]) -> AppTest:
    assert job.wait(PATIENCE)
    at.run()
    assert not at.exception, at.exception
    return at


def job_of(at: AppTest) -> Job[Any]:
    live = at.session_state[compute.LIVE]
    return live.job


def record(spec: Any, length: int, median: float, **more: Any) -> Record:
    what = more.pop("what", "layer")
    if "ratio" in more:
        more = {"ratio_lower": more["ratio"] * 0.9, "ratio_upper": more["ratio"] * 1.1} | more
    return Record(
        Case(spec, length, what=what), median, median * 0.9, median * 1.2, 5,
        more.pop("peak_bytes", length * 1024), "counted", **more,
    )  # fmt: skip


def made_run(*records: Record, recorded: bool = False, config: Config | None = None) -> compute.Run:
    config = config or Config((ROPE, ALIBI), (128, 256))
    return compute.Run(benchmark.to_mapping(config, records, MACHINE), records, recorded)


RECORDS = (
    record(NONE, 128, 1e-3, ratio=1.0),
    record(NONE, 256, 3e-3, ratio=1.0),
    record(ROPE, 128, 1.1e-3, ratio=1.1, ratio_lower=0.99, ratio_upper=1.32),
    record(ROPE, 256, 4.5e-3, ratio=1.5, ratio_lower=1.4, ratio_upper=1.6),
    record(ROPE, 256, 2e-4, what="tables_built"),
    record(ROPE, 256, 4e-7, what="tables_cached"),
    record(ALIBI, 128, 2e-3, ratio=2.0),
    Record(Case(ALIBI, 256), skipped="needs too much"),
    Record(Case(ALIBI, 256, what="tables_cached"), skipped="nothing is kept"),
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_opens_with_a_picture(scheme: str) -> None:
    at = page(scheme=scheme)
    assert charts(at), "no picture"
    assert "Recorded, not measured here" in at.info[0].value
    assert len(at.metric) >= 3


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_recorded_runs_have_every_scheme(scheme: str) -> None:
    runs = compute.recorded_runs(compute.BENCHMARKS)
    assert any(pictures.covers(run, [SCHEMES[scheme]()]) for run in runs)


def test_recorded_files_are_what_the_engine_writes() -> None:
    for path in compute.BENCHMARKS.glob("*.json"):
        content = json.loads(path.read_text())
        assert {"machine", "config", "records"} <= set(content)
        written = json.loads(json.dumps([Record.from_mapping(r).to_mapping() for r in content["records"]]))
        for record, kept in zip(written, content["records"], strict=True):
            assert parse_spec(record.pop("spec")) == parse_spec(kept.pop("spec"))  # later parameters: their defaults
            assert record == kept


def test_a_file_that_is_no_run_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text('{"records": [{"spec": {"scheme": "nothing"}}], "machine": {}}')
    (tmp_path / "c.json").write_text("[]")
    assert compute.recorded_runs(tmp_path) == ()


def test_start_measures_and_shows_what_the_records_hold() -> None:
    at = page(scheme="rope", b_scheme="alibi", longest="256", repetitions="3")
    button(at, "Start").click().run()
    settled(at, job_of(at))
    run = at.session_state[compute.LIVE].run
    assert {r.case.spec for r in run.records} == {NONE, ROPE, ALIBI}
    assert {r.case.length for r in run.records} == {128, 256}
    at_longest = {(r.case.spec, r.case.what): r for r in run.records if r.case.length == 256}
    shown = metrics(at)
    assert shown["RoPE, 256 tokens"] == benchmark.time_text(at_longest[ROPE, "layer"].median)
    assert shown["ALiBi over none"] == f"{100 * (at_longest[ALIBI, 'layer'].ratio - 1):+.1f}%"
    assert not at.info
    assert not at.warning
    assert any("Measured on" in c.value and "torch threads\\: 1" in c.value for c in at.caption)
    assert all(b.label != "Stop" or b.disabled for b in at.button)


def test_results_outlive_a_page_switch_and_a_changed_parameter() -> None:
    at = page(scheme="rope", longest="128", repetitions="3")
    button(at, "Start").click().run()
    settled(at, job_of(at))
    before = metrics(at)
    at.switch_page("../pages/encodings.py").run()
    at.switch_page("../pages/timing.py").run()
    assert metrics(at) == before
    next(s for s in at.select_slider if s.key == "repetitions").set_value(5).run()
    assert not at.exception
    assert metrics(at) == before
    assert "repetitions 3, now 5" in at.warning[0].value
    button(at, "Start").click().run()
    settled(at, job_of(at))
    assert not at.warning
    assert at.session_state[compute.LIVE].run.settings["repetitions"] == 5


def test_stop_ends_the_job() -> None:
    at = page(scheme="alibi", longest="2048", repetitions="200")
    button(at, "Start").click().run()
    job = job_of(at)
    assert not job.ended
    button(at, "Stop").click().run()
    settled(at, job)
    assert job.state == "cancelled"
    assert any(c.value.startswith("Stopped at") for c in at.caption)
    assert charts(at)


def test_a_waiting_job_names_its_place(own_jobs: SessionJobs) -> None:
    other = own_jobs.start("other", lambda job: _until(job.cancelled))
    at = page(scheme="rope", longest="128", repetitions="3")
    button(at, "Start").click().run()
    assert pictures.progress(job_of(at)) == ("Waiting for another reader's job: number 1 in the queue.", 0.0)
    assert charts(at)
    other.cancel()
    settled(at, job_of(at))


def _until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.01)


def test_without_a_recorded_run_a_quick_one_starts_by_itself(no_recorded: Path) -> None:
    at = page(scheme="rope")
    assert not charts(at)
    settled(at, job_of(at))
    run = at.session_state[compute.LIVE].run
    assert max(r.case.length for r in run.records) == compute.QUICK.longest
    assert charts(at)
    assert "Measured with other parameters" in at.warning[0].value


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_link_to_cuda_without_cuda_says_so_and_uses_the_cpu() -> None:
    at = page(scheme="rope", device="cuda", longest="128", repetitions="3")
    assert "device = 'cuda' is not legal (this machine has none)" in at.warning[0].value
    assert "one of cpu" in at.warning[0].value
    assert "Used instead: cpu" in at.warning[0].value
    assert any("No CUDA device on this machine: the CPU alone is compared." in c.value for c in at.caption)
    button(at, "Start").click().run()
    assert at.session_state[compute.LIVE].config.devices == ("cpu",)
    settled(at, job_of(at))


def test_half_precision_on_a_cpu_says_so_and_uses_float32() -> None:
    at = page(scheme="rope", dtype="float16")
    assert "dtype = 'float16' is not legal" in at.warning[0].value
    assert "Used instead: float32" in at.warning[0].value


@pytest.mark.parametrize(
    ("name", "value"), [("longest", "1000000000000"), ("repetitions", "nan"), ("device", "tpu"), ("dtype", "int8")]
)
def test_a_bad_link_is_named_with_the_legal_range(name: str, value: str) -> None:
    at = page(scheme="rope", **{name: value})
    assert any(name in w.value and show.plain(TimingView.param(name).legal) in w.value for w in at.warning)
    assert charts(at)


@pytest.mark.parametrize(("longest", "expected"), [
    (128, (128,)), (1000, (128, 256, 512, 1000)), (8192, (128, 256, 512, 1024, 2048, 4096, 8192)),
])  # fmt: skip
def test_lengths_double_up_to_the_longest(longest: int, expected: tuple[int, ...]) -> None:
    assert compute.lengths(longest) == expected
    compute.config([ROPE], TimingView(longest=longest))


def test_a_run_that_takes_too_long_ends_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "LONGEST_RUN", 0.0)
    at = page(scheme="rope")
    button(at, "Start").click().run()
    settled(at, job_of(at))
    assert job_of(at).state == "done"
    assert pictures.progress(job_of(at))[0].startswith("Ended after")


def test_frames_equal_the_records() -> None:
    part = pictures.shown(made_run(*RECORDS), [ROPE, ALIBI], "cpu", "float32")
    assert [name for name, _ in part.series] == ["No position (NoPE)", "RoPE", "ALiBi"]
    assert len({colour for _, colour in part.series}) == 3
    time_data = pictures.time_lines(part).data
    lines, bands = (time_data[time_data["part"] == kind] for kind in ("line", "band"))
    assert dict(zip(zip(lines["series"], lines["x"], strict=True), lines["y"], strict=True)) == pytest.approx({
        ("No position (NoPE)", 128): 1, ("No position (NoPE)", 256): 3, ("RoPE", 128): 1.1, ("RoPE", 256): 4.5,
        ("ALiBi", 128): 2,
    })  # fmt: skip
    assert list(bands["low"]) == pytest.approx(list(lines["y"] * 0.9))
    assert list(bands["high"]) == pytest.approx(list(lines["y"] * 1.2))
    memory = pictures.memory_lines(part)
    assert memory is not None
    assert set(memory.data["y"]) == {128 * 1024 / 2**20, 256 * 1024 / 2**20}
    tables = pictures.table_bars(part)
    assert list(tables["name"]) == [pictures.BUILT, pictures.KEPT]
    assert list(tables["value"]) == pytest.approx([200, 0.4])
    ticks = pictures.decades(tables["value"])
    assert (ticks[0], ticks[-1]) == (0.1, 10_000)


def test_overhead_is_percent_over_none() -> None:
    lines = pictures.overhead_lines(pictures.shown(made_run(*RECORDS), [ROPE, ALIBI], "cpu", "float32"))
    data = lines.data[lines.data["part"] == "line"]
    assert [name for name, _ in lines.series] == ["RoPE", "ALiBi"]
    assert list(data["y"]) == pytest.approx([10, 50, 100])
    assert data["low"].iloc[0] == pytest.approx(-1)
    assert data["high"].iloc[0] == pytest.approx(32)


def test_key_numbers_are_those_of_the_longest_length() -> None:
    facts = {n: v for n, v, _ in pictures.key_numbers(pictures.shown(made_run(*RECORDS), [ROPE], "cpu", "float32"))}
    assert facts["RoPE, 256 tokens"] == "4.5 ms"
    assert facts["RoPE over none"] == "+50.0%"
    assert facts["tables"] == "200 µs → 0.4 µs"
    assert facts["peak memory"] == "256 KiB"


def test_what_was_skipped_is_listed_with_its_reason() -> None:
    missing = pictures.skipped(pictures.shown(made_run(*RECORDS), [ROPE, ALIBI], "cpu", "float32"))
    assert missing.values.tolist() == [
        ["ALiBi", "attention layer", "256", "needs too much"], ["ALiBi", "tables kept", "256", "nothing is kept"],
    ]  # fmt: skip


def test_of_a_recorded_run_only_the_chosen_schemes_are_shown() -> None:
    part = pictures.shown(made_run(*RECORDS, recorded=True), [ALIBI], "cpu", "float32")
    assert part.specs == (NONE, ALIBI)
    other = parse_spec({"scheme": "rope", "base": 500000})
    assert pictures.shown(made_run(*RECORDS, recorded=True), [other], "cpu", "float32").specs == (NONE, ROPE)


def test_two_of_a_scheme_get_two_colours_and_names() -> None:
    for first in (ROPE, ALIBI):
        field = {"base": 500000} if first is ROPE else {"n_heads": 12}
        second = parse_spec({"scheme": first.scheme} | field)
        records = (*RECORDS[:2], record(first, 128, 1e-3, ratio=1.0), record(second, 128, 2e-3, ratio=2.0))
        part = pictures.shown(made_run(*records), [first, second], "cpu", "float32")
        assert len({colour for _, colour in part.series}) == len({name for name, _ in part.series}) == 3


def test_noise_is_called_noise() -> None:
    text = pictures.growth(pictures.shown(made_run(*RECORDS), [ROPE], "cpu", "float32"))
    assert text == "RoPE over no position: +10% (within the noise) at 128 tokens, +50% at 256 tokens."


def test_the_json_of_a_run_reads_back_equal(no_recorded: Path) -> None:
    hybrid = record(SCHEMES["hybrid"](), 128, 1e-3)
    run = made_run(*RECORDS, hybrid)
    (no_recorded / "run.json").write_text(pictures.json_text(run))
    (back,) = compute.recorded_runs(no_recorded)
    assert back.records == run.records
    assert back.machine == run.machine
