"""The Timing page: a picture before anything was measured, runs in the background, frames that equal the records."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from streamlit.testing.v1 import AppTest

from explorer import show
from explorer.charts import bars
from explorer.compute import claims, common
from explorer.compute import timing as compute
from explorer.jobs import Job, Pool, SessionJobs
from explorer.pictures import timing as pictures
from explorer.pictures import timing_articles as articles
from explorer.pictures import timing_kernels as kernels
from explorer.views import TimingView
from posenc_core import SCHEMES, benchmark, claims_lab, parse_query, parse_spec, rotary
from posenc_core.benchmark import Case, Config, Record

APP = str(Path(__file__).resolve().parents[2] / "explorer" / "app.py")
PATIENCE = 60.0
ROPE, ALIBI, NONE, SINUSOIDAL = (parse_spec({"scheme": s}) for s in ("rope", "alibi", "none", "sinusoidal"))
MACHINE = benchmark.machine()


pytestmark = pytest.mark.usefixtures("own_jobs")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Start does all that it does, but for what is compiled for seconds, and at few tokens."""
    monkeypatch.setattr(compute, "ROTATED", dict.fromkeys(compute.ROTATED, 256))
    slow = {"flex_attention"}
    alone = {what: tuple(n for n in names if n not in slow) for what, names in compute.ALONE.items()}
    monkeypatch.setattr(compute, "ALONE", alone)


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


def compute_live(at: AppTest) -> compute.Live:
    live = at.session_state[compute.LIVE]
    assert isinstance(live, compute.Live)
    return live


def job_of(at: AppTest) -> Job[Any]:
    return compute_live(at).job


def record(spec: Any, length: int, median: float, **more: Any) -> Record:
    case = {name: more.pop(name) for name in ("what", "implementation", "backward", "dtype", "device") if name in more}
    for name, low, high in (("ratio", "ratio_lower", "ratio_upper"), ("copy_ratio", "copy_lower", "copy_upper")):
        if name in more:
            more = {low: more[name] * 0.9, high: more[name] * 1.1} | more
    return Record(
        Case(spec, length, **case), median, median * 0.9, median * 1.2, 5,
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
            kept.pop("overhead", None)  # of older files
            assert {name: value for name, value in record.items() if name in kept} == kept
            later = {name: value for name, value in record.items() if name not in kept}
            assert later.items() <= Record(Case(ROPE, 128)).to_mapping().items()


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
    assert {r.case.spec for r in run.records if r.case.what == "layer"} == {NONE, ROPE, ALIBI}
    assert {r.case.length for r in run.records} == {128, 256}
    at_longest = {
        (r.case.spec, r.case.what): r for r in run.records if r.case.length == 256 and r.case.implementation == "fast"
    }
    shown = metrics(at)
    assert shown["RoPE, 256 tokens"] == benchmark.time_text(at_longest[ROPE, "layer"].median)
    assert shown["ALiBi over none"] == f"{100 * (at_longest[ALIBI, 'layer'].ratio - 1):+.1f}%"
    assert shown["attention with ALiBi"] == kernels.times(at_longest[ALIBI, "attention"].ratio) + " causal"
    if find_spec("transformers") is None:
        assert shown["rotation"] == kernels.times(at_longest[ROPE, "rotation"].copy_ratio) + " a copy"
        assert any("Not installed\\: " in c.value and "transformers" in c.value for c in at.caption)
    else:
        [peer] = [r for r in run.records if r.case.implementation == "transformers" and r.median is not None]
        gain = peer.copy_ratio / at_longest[ROPE, "rotation"].copy_ratio
        assert shown["rotation vs transformers"] == f"{gain:.1f}× faster"
    assert {c.alt for c in charts(at)} >= set(kernels.ALT.values())
    told = [m.value for m in at.markdown if m.value.startswith("The fast path takes ")]
    assert any(f"{at_longest[ALIBI, 'attention'].ratio:.2f} times causal attention" in text for text in told)
    assert any(
        f"{at_longest[ROPE, 'rotation'].copy_ratio:.2f} times a copy of q and k into fresh" in text for text in told
    )
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
    assert pictures.progress(compute_live(at)) == ("Waiting for another reader's job: number 1 in the queue.", 0.0)
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
    assert {c.devices for c in compute_live(at).asked} == {("cpu",)}
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
    asked = compute.config([ROPE], TimingView(longest=longest))
    assert sorted(n for c in asked if "layer" in c.what for n in c.lengths) == list(expected)


def test_a_run_that_takes_too_long_ends_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "LONGEST_RUN", 0.0)
    at = page(scheme="rope")
    button(at, "Start").click().run()
    settled(at, job_of(at))
    assert job_of(at).state == "done"
    assert pictures.progress(compute_live(at))[0].startswith("Ended after")


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
    assert list(tables["name"]) == ["256 tokens, built", "256 tokens, kept"]
    assert list(tables["value"]) == pytest.approx([200, 0.4])
    ticks = pictures.decades(tables["value"])
    assert (ticks[0], ticks[-1]) == (0.1, 100_000)


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


# ---------------------------------------------------------------- what a Start measures


def test_what_start_measures_and_in_which_order() -> None:
    asked = compute.config([ROPE, ALIBI], TimingView(longest=4096, repetitions=9, direction="both"))
    assert [c.what[0] for c in asked] == ["layer", "rotation", "attention", "layer"]
    assert [c.lengths for c in asked] == [(128, 256, 512, 1024), (256,), (compute.MOST_ATTENDED,), (2048, 4096)]
    assert {c.repetitions for c in asked} == {9}
    assert {c.backward for c in asked} == {(False, True)}
    assert {c.max_bytes for c in asked} == {compute.MAX_BYTES}
    assert {s.layout for s in asked[1].specs} == {"half", "interleaved"}
    assert asked[1].specs[0] == ROPE
    assert [c.what[0] for c in compute.config([NONE], TimingView(longest=512))] == ["layer", "rotation", "attention"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_operations_are_of_the_chosen_schemes_or_of_the_default_ones(scheme: str) -> None:
    _, rotation, attention = compute.config([SCHEMES[scheme]()], TimingView(longest=128))
    assert rotation.specs[0] == ROPE
    assert attention.specs == (ALIBI,)


def test_the_operations_take_the_parameters_of_a_chosen_scheme_and_of_a_hybrids_layer() -> None:
    rope = parse_spec({"scheme": "rope", "base": 500000, "layout": "interleaved"})
    hybrid = parse_spec({"scheme": "hybrid", "layers": [{"scheme": "none"}, rope.to_mapping()]})
    for spec in (rope, hybrid):
        _, rotation, _ = compute.config([NONE, spec], TimingView(longest=128))
        assert rotation.specs == (rope, rope.replace(layout="half"))


@pytest.mark.parametrize("query", [
    {"rotary_fraction": "0.4", "d_head": "80"}, {"mrope_section": "16,24,24", "d_head": "128"}, {"d_head": "128"},
])  # fmt: skip
def test_a_rotation_that_fits_no_usual_head_gets_heads_of_its_own_size(query: dict[str, str]) -> None:
    spec, problems = parse_query({"scheme": "rope"} | query)
    assert not problems
    asked = compute.config([spec], TimingView(longest=128, repetitions=3))
    assert {(c.heads, c.d_head) for c in asked} == (
        {(8, 64)} if len(query) == 1 else {(512 // spec.d_head, spec.d_head)}
    )
    records = [step.record for step in benchmark.run(asked[0]) if step.record]
    assert all(r.median for r in records if r.case.what == "layer")


def test_the_json_of_a_page_has_the_shape_of_the_command_lines(tmp_path: Path) -> None:
    at = page(scheme="rope", longest="128", repetitions="3")
    button(at, "Start").click().run()
    settled(at, job_of(at))
    mine = json.loads(pictures.json_text(compute_live(at).run))
    file = tmp_path / "run.json"
    command = "--schemes rope --lengths 128 --what layer,rotation --implementations all --repetitions 3 --quiet --json"
    assert benchmark.main([*command.split(), str(file)]) == 0
    theirs = json.loads(file.read_text())
    assert mine.keys() == theirs.keys()
    assert mine["config"].keys() == theirs["config"].keys()
    assert mine["machine"].keys() == theirs["machine"].keys()
    assert {frozenset(r) for r in mine["records"]} == {frozenset(r) for r in theirs["records"]}
    assert set(mine["config"]["what"]) == {r["what"] for r in mine["records"]}
    assert set(mine["config"]["lengths"]) == {r["length"] for r in mine["records"]}


def test_forward_and_backward_are_measured_and_drawn() -> None:
    at = page(scheme="rope", longest="128", repetitions="3", direction="both")
    assert any("This run has no backward pass." in c.value for c in at.caption) or "backward" in str(charts(at)[0])
    button(at, "Start").click().run()
    settled(at, job_of(at))
    run = compute_live(at).run
    assert run is not None
    for what in ("layer", "rotation", "attention"):
        done = {r.case.backward for r in run.records if r.case.what == what and r.median is not None}
        assert done == {False, True}, what
    assert "RoPE + backward" in charts(at)[0].spec
    expected = kernels.part(run, "rotation", [ROPE], "cpu", "float32", True)
    assert expected is not None
    assert expected.case.backward
    assert any(e.label == f"In numbers: {expected.where}" for e in at.expander)


def test_progress_says_what_is_measured() -> None:
    asked = compute.config([ROPE], TimingView(longest=128))
    assert [pictures.called(c) for c in asked] == [
        "layers, 128 tokens", "the rotation, 256 tokens", "attention with ALiBi, 128 tokens",
    ]  # fmt: skip
    longer = compute.config([ROPE], TimingView(longest=2048))
    assert pictures.called(longer[0]) == "layers, 128 to 1,024 tokens"
    seen = list[tuple[str, float | None]]()

    def work(job: Job[Any]) -> None:
        live.now = 1
        job.report(1, 4)
        seen.append(pictures.progress(live))
        job.cancel()
        seen.append(pictures.progress(live))

    live = compute.Live(asked, None)
    live.job = Job(work)
    Pool(1).submit(live.job)
    assert live.job.wait(PATIENCE)
    (during, share), (stopping, _) = seen
    assert "Now: the rotation, 256 tokens." in during
    assert share == 0.25
    assert stopping == "Stopping: the present call ends first."


def test_the_fused_rotation_is_compiled_at_boot_and_no_page_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    called, gate = threading.Event(), threading.Event()

    def warm_up(device: str) -> bool:
        assert device == "cpu"
        called.set()
        return gate.wait(30)

    monkeypatch.setattr(rotary, "warm_up", warm_up)
    common.boot.clear()
    page(scheme="rope")
    assert called.wait(10)
    assert not gate.is_set()
    gate.set()


# ---------------------------------------------------------------- one operation by itself

OTHER = parse_spec({"scheme": "rope", "layout": "interleaved"})
ROTATIONS = (
    record(ROPE, 4096, 2e-3, what="rotation", implementation="copy", copy_ratio=1.0, bytes_moved=2**26),
    record(ROPE, 4096, 9e-3, what="rotation", implementation="eager", copy_ratio=4.0, error=2e-7),
    record(ROPE, 4096, 2.5e-3, what="rotation", copy_ratio=1.25, error=1e-7, peak_bytes=2**20, bytes_moved=2**26),
    record(ROPE, 4096, 16e-3, what="rotation", implementation="reference", copy_ratio=8.0, peak_bytes=2**22),
    record(ROPE, 4096, 20e-3, what="rotation", implementation="transformers", copy_ratio=10.0, peak_bytes=2**23),
    Record(Case(ROPE, 4096, what="rotation", implementation="torchtune"), skipped="it has one layout only"),
    Record(Case(ROPE, 4096, what="rotation", implementation="liger"), skipped="its kernel runs on CUDA only"),
    Record(Case(ROPE, 4096, what="rotation", implementation="flash_attn"), skipped="its kernel runs on CUDA only"),
    Record(Case(ROPE, 4096, what="rotation", implementation="rotary_embedding_torch"),
           skipped="rotary-embedding-torch is not installed"),
    record(OTHER, 4096, 2e-3, what="rotation", implementation="copy", copy_ratio=1.0),
    record(OTHER, 4096, 2.2e-3, what="rotation", copy_ratio=1.1),
    record(OTHER, 4096, 6e-3, what="rotation", implementation="torchtune", copy_ratio=3.0),
    record(ROPE, 512, 1e-3, what="rotation", copy_ratio=2.0),
    record(ROPE, 4096, 5e-3, what="rotation", copy_ratio=1.5, backward=True),
    record(ROPE, 4096, 1e-3, what="rotation", copy_ratio=1.75, dtype="bfloat16"),
)  # fmt: skip
ATTENTIONS = (
    record(NONE, 1024, 10e-3, what="attention", ratio=1.0, peak_bytes=2**21),
    record(ALIBI, 1024, 11e-3, what="attention", ratio=1.1, peak_bytes=2**23, error=2e-7),
    record(ALIBI, 1024, 44e-3, what="attention", implementation="bias", ratio=4.4, peak_bytes=2**26),
    record(ALIBI, 1024, 22e-3, what="attention", implementation="bias_cached", ratio=2.2, peak_bytes=2**21),
    record(ALIBI, 1024, 110e-3, what="attention", implementation="reference", ratio=11.0, peak_bytes=2**27),
)


def part_of(records: tuple[Record, ...], what: Any, specs: Any = (ROPE,), dtype: str = "float32",
            backward: bool = False) -> kernels.Part:  # fmt: skip
    found = kernels.part(made_run(*records), what, specs, "cpu", dtype, backward)
    assert found is not None
    return found


def test_rotation_bars_equal_the_records_and_the_fastest_is_first() -> None:
    p = part_of(ROTATIONS, "rotation")
    frame = kernels.ratio_bars(p)
    assert list(frame["name"]) == ["fast", "torchtune (interleaved)", "eager", "the formula", "transformers"]
    assert list(frame["value"]) == [1.25, 3.0, 4.0, 8.0, 10.0]
    np.testing.assert_allclose(frame["low"], frame["value"] * 0.9)
    np.testing.assert_allclose(frame["high"], frame["value"] * 1.1)
    assert list(frame["series"]) == [kernels.OURS, kernels.OTHERS, kernels.OURS, kernels.OTHERS, kernels.OTHERS]
    assert frame["time"][0] == "2.5 ms"
    assert frame["error"][0] == "1.0e-07"
    assert frame["peak memory"][0] == "1 MiB"
    assert [name for name, _ in kernels.series(p, frame)] == [kernels.OURS, kernels.OTHERS]


def test_which_rotation_is_shown() -> None:
    def ratio(**wanted: Any) -> float | None:
        fast = part_of(ROTATIONS, "rotation", **wanted).of("fast")
        return fast and fast.copy_ratio

    assert ratio() == 1.25  # the longest of the default layout
    assert ratio(specs=(OTHER,)) == 1.1
    assert ratio(backward=True) == 1.5
    assert ratio(dtype="bfloat16") == 1.75
    assert ratio(dtype="float16") == 1.25  # which nobody measured
    assert kernels.part(made_run(*RECORDS), "rotation", [ROPE], "cpu", "float32", False) is None
    only_copy = made_run(ROTATIONS[0])
    assert kernels.part(only_copy, "rotation", [ROPE], "cpu", "float32", False) is None
    runs = [made_run(*RECORDS), only_copy, made_run(*ROTATIONS, recorded=True)]
    found = kernels.first(runs, "rotation", [ROPE], "cpu", "float32", False)
    assert found is not None
    assert found.run is runs[2]


def test_what_is_not_measured_is_named_with_its_reason() -> None:
    text = kernels.not_measured(part_of(ROTATIONS, "rotation"))
    assert text == "Not measured. Its kernel runs on CUDA only: Liger and flash-attn. Not installed: " \
                   "rotary-embedding-torch."  # fmt: skip
    assert kernels.not_measured(part_of(ATTENTIONS, "attention")) == ""


def test_how_much_faster_is_a_quotient_of_one_run() -> None:
    p = part_of(ROTATIONS, "rotation")
    assert kernels.faster(p, "transformers") == pytest.approx(20e-3 / 2.5e-3)  # all rounds are alike here
    assert kernels.faster(p, "reference") == pytest.approx(16e-3 / 2.5e-3)
    assert kernels.faster(p, "liger") is None
    assert kernels.faster(p, "torchtune") is None  # of the other layout
    text = kernels.seen(p)
    assert "The fast path takes 1.25 times a copy of q and k into fresh memory" in text
    assert "8.0 times faster than transformers' function and 6.4 times faster than the formula" in text
    without = part_of(tuple(r for r in ROTATIONS if r.case.implementation != "transformers"), "rotation")
    assert "transformers" not in kernels.seen(without)
    numbers = {name: value for name, value, _ in pictures.key_numbers(layers_only(), p)}
    assert numbers["rotation vs transformers"] == "8.0× faster"
    numbers = {name: value for name, value, _ in pictures.key_numbers(layers_only(), without)}
    assert numbers["rotation"] == "1.25× a copy"


def layers_only() -> pictures.Shown:
    return pictures.shown(made_run(*RECORDS), [ROPE], "cpu", "float32")


def test_attention_bars_equal_the_records() -> None:
    p = part_of(ATTENTIONS, "attention", specs=(ALIBI,))
    times = kernels.ratio_bars(p)
    assert list(times["value"]) == [1.1, 2.2, 4.4, 11.0]
    assert list(times["name"]) == ["fast", "bias kept", "bias made each call", "scores in plain sight"]
    memory = kernels.memory_bars(p)
    assert list(memory["value"]) == [8, 2, 64, 128, 2]  # as the records have it
    assert list(memory["name"]) == [*times["name"], kernels.BASE]
    assert list(memory["series"])[-1] == kernels.BASE
    text = kernels.seen(p)
    assert text == (
        "The fast path takes 1.10 times causal attention without a bias and holds 8 MiB instead of 2 MiB; with a bias "
        "made in every call it is 4.0 times as long, with 64 MiB."
    )
    numbers = {name: value for name, value, _ in pictures.key_numbers(layers_only(), None, p)}
    assert numbers["attention with ALiBi"] == "1.10× causal"


def test_the_table_has_the_base_and_every_implementation_in_numbers() -> None:
    table = kernels.table(part_of(ROTATIONS, "rotation"))
    assert list(table["implementation"])[:2] == ["copy of q and k", "fast"]
    assert list(table["of a copy"])[:2] == ["1.00×", "1.25×"]
    assert table["GB/s"][0] == f"{2**26 / 2e-3 / 1e9:.3g}"
    assert table["error"][0] == "–"
    assert len(table) == 6
    assert kernels.table(part_of(ATTENTIONS, "attention"))["implementation"][0] == "causal attention, no bias"


GIVEN = (
    record(ROPE, 4096, 1.6e-3, what="rotation", implementation="copy_given", copy_ratio=1.0),
    record(ROPE, 4096, 1.9e-3, what="rotation", implementation="in_place", copy_ratio=1.2, peak_bytes=0),
)


def test_a_rotation_in_place_is_beside_a_copy_into_given_memory_where_that_was_measured() -> None:
    old = part_of((*ROTATIONS, GIVEN[1]), "rotation")
    assert "given" not in kernels.seen(old)
    assert dict(zip(*(kernels.ratio_bars(old)[c] for c in ("name", "value")), strict=True))["fast, in place"] == 1.2
    new = part_of((*ROTATIONS, *GIVEN), "rotation")
    assert kernels.seen(new).endswith(" In place it takes 1.20 times a copy into given memory.")
    frame = kernels.ratio_bars(new)  # which counts all in copies into fresh memory
    assert list(frame["name"])[:2] == ["fast, in place", "fast"]
    assert frame["value"][0] == pytest.approx(1.2 * 1.6 / 2.0)
    assert frame["high"][0] == pytest.approx(1.2 * 1.1 * 1.6 / 2.0)
    table = kernels.table(new).set_index("implementation")["of a copy"]
    assert list(table.index)[:3] == [
        "copy of q and k", "copy into given memory", "fast, in place, of a copy into given memory"
    ]  # fmt: skip
    assert list(table)[:3] == ["1.00×", "0.80×", "1.20×"]
    missing = replace(GIVEN[0].case, backward=True)
    backward = part_of((*ROTATIONS, Record(missing, skipped="no gradient")), "rotation", backward=True)
    assert backward.given is None
    assert "No gradient: copy into given memory" in kernels.not_measured(backward)


def test_what_alibis_figures_hang_on_is_said_beside_them() -> None:
    p = part_of(ATTENTIONS, "attention", specs=(ALIBI,))
    assert kernels.caveat(p) == kernels.FAR_KEYS
    helps = {name: meaning for name, _, meaning in pictures.key_numbers(layers_only(), None, p)}
    assert kernels.FAR_KEYS in helps["attention with ALiBi"]
    assert kernels.caveat(replace(p, case=replace(p.case, device="cuda"))) == ""  # where all keys are read
    assert kernels.caveat(part_of(ROTATIONS, "rotation")) == ""
    assert any(c.value == show.plain(kernels.FAR_KEYS) for c in page(scheme="alibi").caption)


def test_how_the_memory_was_found_is_told_with_the_name_where_it_differs() -> None:
    kept = [replace(r, memory_method="with the bias that is kept") if r.case.implementation == "bias_cached" else r
            for r in ATTENTIONS]  # fmt: skip
    text = kernels.origin(part_of(tuple(kept), "attention", specs=(ALIBI,)))
    assert "Memory: counted; bias kept: with the bias that is kept." in text


def test_at_most_five_numbers_and_at_least_three() -> None:
    both = (part_of(ROTATIONS, "rotation"), part_of(ATTENTIONS, "attention"))
    for specs in ([ROPE], [ROPE, ALIBI], [NONE]):
        for parts in (both, (None, None)):
            numbers = pictures.key_numbers(pictures.shown(made_run(*RECORDS), specs, "cpu", "float32"), *parts)
            assert 3 <= len(numbers) <= 5
            assert len({name for name, _, _ in numbers}) == len(numbers)


def test_what_no_run_holds_says_how_to_measure_it(no_recorded: Path) -> None:
    (no_recorded / "run.json").write_text(pictures.json_text(made_run(*RECORDS)))
    at = page(scheme="rope")
    texts = [i.value for i in at.info]
    for what in ("rotation", "attention"):
        [text] = [t for t in texts if f"--what {what} --implementations all" in t]
        command = re.search(r"python -m posenc_core.benchmark ([^`]*)`", text)
        assert command is not None
        arguments = command[1].replace("--implementations all", "--implementations fast")  # FlexAttention takes long
        assert benchmark.main([*arguments.split(), "--lengths", "16", "--repetitions", "3", "--quiet"]) == 0


# ---------------------------------------------------------------- forward and backward, tables


def test_alibis_tables_are_one_number_a_head_and_distance() -> None:
    seen = 0
    for run in compute.recorded_runs(compute.BENCHMARKS):
        part = pictures.shown(run, [ALIBI], "cpu", "float32")
        built = [r for r in part.records if r.case.spec == ALIBI and r.case.what == "tables_built"]
        assert {r.bytes_moved for r in built} == {run.settings["heads"] * (2 * r.case.length - 1) * 4 for r in built}
        seen += len(built)
        if built:
            text = "ALiBi's bar is its bias, one number a head and distance, made in every layer; no matrix is made."
            assert pictures.tables_seen(part) == text
    assert seen


def test_alibis_line_of_memory_stays_beside_ropes() -> None:
    assert "no bias for every pair is held" in pictures.memory_try([ROPE]).then
    seen = 0
    for run in compute.recorded_runs(compute.BENCHMARKS):
        part = pictures.shown(run, [ROPE, ALIBI], "cpu", "float32")
        for rope, alibi in zip(part.of(ROPE, "layer"), part.of(ALIBI, "layer"), strict=True):
            pairs = run.settings["heads"] * rope.case.length**2 * 4
            assert alibi.peak_bytes is not None
            assert rope.peak_bytes is not None
            assert abs(alibi.peak_bytes - rope.peak_bytes) < pairs / 4
            seen += 1
    assert seen


def test_lines_of_both_directions() -> None:
    records = (*RECORDS, record(ROPE, 128, 3.3e-3, ratio=1.1, backward=True),
               record(NONE, 128, 3e-3, ratio=1.0, backward=True))  # fmt: skip
    run = made_run(*records)
    forward = pictures.time_lines(pictures.shown(run, [ROPE], "cpu", "float32"))
    assert pictures.dashed(forward) == ()
    both = pictures.time_lines(pictures.shown(run, [ROPE], "cpu", "float32", backward=True))
    assert set(pictures.dashed(both)) == {"No position (NoPE) + backward", "RoPE + backward"}
    colours = dict(both.series)
    assert colours["RoPE"] == colours["RoPE + backward"]
    line = both.data[(both.data["part"] == "line") & (both.data["series"] == "RoPE + backward")]
    assert list(line["y"]) == pytest.approx([3.3])
    without = pictures.shown(made_run(*RECORDS), [ROPE], "cpu", "float32", backward=True)
    assert without.directions == (False,)


def test_tables_of_a_million_positions_are_further_bars() -> None:
    far = made_run(record(ROPE, 2**20, 0.85, what="tables_built", peak_bytes=2**29),
                   record(ROPE, 2**20, 6e-4, what="tables_cached"), recorded=True,
                   config=Config((ROPE,), (2**20,), what=("tables_built",), d_head=128))  # fmt: skip
    part = layers_only()
    assert pictures.far_run([made_run(*RECORDS), far], part) is far
    assert pictures.far_run([made_run(*RECORDS)], part) is None
    frame = pictures.table_bars(part, far)
    assert list(frame["name"])[-2:] == ["1,048,576 × 128, built", "1,048,576 × 128, kept"]
    assert list(frame["value"])[-2:] == pytest.approx([0.85e6, 600])
    text = pictures.far_seen(far, part)
    assert text.startswith("RoPE's tables of 1,048,576 × 128 take 850 ms, with 512 MiB in memory at most (float32 on")
    alibi = pictures.shown(made_run(*RECORDS), [ALIBI], "cpu", "float32")
    other = replace(far, records=far.records[1:])
    assert pictures.far_run([far], replace(alibi, specs=(NONE, ALIBI))) is None or ROPE in alibi.specs
    assert pictures.far_seen(other, part) == ""


def test_a_recorded_run_of_a_gpu_without_layers_can_be_shown(no_recorded: Path) -> None:
    (no_recorded / "cpu.json").write_text(pictures.json_text(made_run(*RECORDS)))
    on_gpu = tuple(replace(r, case=replace(r.case, device="cuda")) for r in (*ROTATIONS, *ATTENTIONS))
    content = made_run(*on_gpu).content | {
        "machine": MACHINE | {"gpu": "NVIDIA Made-up", "date": "2026-01-02T03:04:05"}
    }
    (no_recorded / "cuda.json").write_text(json.dumps(content))
    at = page(scheme="rope")
    threads = "1 thread" if MACHINE["torch_threads"] == 1 else f"{MACHINE['torch_threads']} threads"
    where = f"recorded on NVIDIA Made-up, {threads}, 2026-01-02\\: rotation, attention"
    assert any(where in c.value for c in at.caption)
    assert not [s for s in at.selectbox if s.label == "Run shown"]  # only one can be shown as a whole
    (no_recorded / "cpu.json").unlink()
    compute.recorded_runs.clear()
    at = page(scheme="rope")
    assert not at.exception
    assert metrics(at) == {
        "rotation vs transformers": "8.0× faster", "attention with ALiBi": "1.10× causal",
        "rotated a second": benchmark.bytes_text(2**26 / 2.5e-3),
    }  # fmt: skip
    assert any("No layer was measured in this run." in i.value for i in at.info)


# ---------------------------------------------------------------- what articles say


def answers(*records: Record, rotation: kernels.Part | None = None) -> dict[int, Any]:
    found = articles.answers(made_run(*records), rotation)
    assert [a.claim for a in found] == [11, 16, 0]
    return {a.claim: a for a in found}


def tight(*ratios: float) -> list[Record]:
    lengths = [128 << i for i in range(len(ratios))]
    return [record(ROPE, n, 1e-3, ratio=r, ratio_lower=r, ratio_upper=r)
            for n, r in zip(lengths, ratios, strict=True)]  # fmt: skip


def test_ropes_share_of_a_layer() -> None:
    assert answers(*tight(1.3, 1.2))[11].verdict == "does not hold"
    partly = answers(*tight(1.3, 1.07))[11]
    assert partly.said == "RoPE adds about 7% compute"
    assert partly.verdict == "holds with a condition"
    assert "7.0% to 30.0%" in partly.measured
    assert "about 7% at 256 tokens only" in partly.measured
    assert partly.query is None


def test_what_holds_is_told_in_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_lab, "rotation_share", lambda d_model, length: 0.065)
    found = answers(*tight(1.07, 1.06))[11]
    assert found.verdict == "holds"
    assert found.measured.startswith("Time that it adds to a layer of 128 tokens: 7")


@pytest.mark.parametrize("other", [{"dtype": "bfloat16"}, {"device": "cuda"}, {"backward": True}])
def test_other_layers_than_those_that_are_judged_say_how_to_measure(other: dict[str, Any]) -> None:
    found = answers(record(ROPE, 2048, 1e-3, ratio=1.07, **other), record(ALIBI, 2048, 1e-3, **other))
    for number, query in ((11, {"scheme": "rope"}), (16, None)):
        assert found[number].verdict == "not measured"
        assert "float32 on the CPU" in found[number].measured
        assert found[number].query == query


@pytest.mark.parametrize(("alibi", "verdict", "told"), [
    (80, "holds", "beside RoPE: 0.8"), (130, "holds with a condition", "1.3 times as much as with RoPE"),
])  # fmt: skip
def test_alibis_memory(alibi: int, verdict: str, told: str) -> None:
    layers = [record(spec, 2048, 1e-3, peak_bytes=n) for spec, n in ((ALIBI, alibi), (ROPE, 100), (SINUSOIDAL, 100))]
    found = answers(*layers)[16]
    assert found.verdict == verdict
    assert told in found.measured
    assert answers(*layers[:2])[16].verdict == "not measured"


def test_the_command_beside_alibis_memory_measures_it(tmp_path: Path) -> None:
    unknown = answers(record(ALIBI, 1024, 1e-3))[16]
    arguments = unknown.command.removeprefix("python -m posenc_core.benchmark ").split()
    file = tmp_path / "run.json"
    assert benchmark.main([*arguments, "--what", "layer", "--repetitions", "3", "--quiet", "--json", str(file)]) == 0
    (run,) = compute.recorded_runs(tmp_path)
    assert {a.claim: a for a in articles.answers(run, None)}[16].verdict != "not measured"


def test_a_fused_rotation_beside_what_articles_call_naive() -> None:
    found = answers(*RECORDS, rotation=part_of(ROTATIONS, "rotation"))[0]
    assert found.verdict == "holds"
    assert found.measured == "8.0 times faster than transformers' function, 88% less memory (1 MiB and 8 MiB)."
    assert "4,096 tokens, float32 on cpu, forward" in found.where
    without = tuple(r for r in ROTATIONS if r.case.implementation != "transformers")
    formula = answers(*RECORDS, rotation=part_of(without, "rotation"))[0]
    assert formula.measured == "6.4 times faster than the formula as it stands, 75% less memory (1 MiB and 4 MiB)."
    same = tuple(replace(r, peak_bytes=2**20) if r.peak_bytes else r for r in ROTATIONS)
    half = answers(*RECORDS, rotation=part_of(same, "rotation"))[0]
    assert half.verdict == "holds with a condition"
    assert "so much as to time only" in half.measured
    assert answers(*RECORDS)[0].verdict == "not measured"


def test_the_shown_run_is_judged_as_on_the_claims_page() -> None:
    seen = 0
    for run in compute.recorded_runs(compute.BENCHMARKS):
        found = {a.claim: a for a in articles.answers(run, None)}
        if any(r.case.what == "layer" for r in run.records):
            for number in (11, 16):
                shown = claims.judgement_of(number).judgement
                assert found[number].verdict == shown.verdict != "not measured"
                assert shown.condition.lower().startswith(found[number].measured.lower().rstrip("."))
                seen += 1
    assert seen


# ---------------------------------------------------------------- bars with quartiles and a limit


def test_bars_with_whiskers_a_guide_and_notes() -> None:
    frame = pd.DataFrame(
        [("a", 1.0, 0.9, 1.2, "x", "1×", "why")], columns=["name", "value", "low", "high", "series", "text", "note"]
    )
    options = {"value_title": "v", "name_title": "n", "series": (("x", "#0072b2"), ("y", "#d55e00")), "names": 1}
    made = bars.bars(
        frame, **options, labels=True, legend=True, beside=False, low_high=("low q", "high q"), guide=("limit", 1.0),
        notes=("note",), label_limit=250,
    ).to_dict()  # fmt: skip
    layers = {layer["mark"]["type"] + str(i): layer["encoding"] for i, layer in enumerate(made["layer"])}
    bar, whisker, line, told, text = layers.values()
    assert [t["field"] for t in bar["tooltip"]] == ["series", "name", "value", "low", "high", "note"]
    assert bar["color"]["legend"] is not None
    assert "yOffset" not in bar
    assert (whisker["x"]["field"], whisker["x2"]["field"]) == ("low", "high")
    assert line["x"]["datum"] == told["x"]["datum"] == 1.0
    assert told["text"] == {"value": "limit"}
    assert text["x"]["field"] == "behind"  # the whisker, and the line that a shorter bar's label would stand on
    assert made["layer"][-1]["transform"] == [{"calculate": "max(datum.high, 1.0)", "as": "behind"}]
    assert bar["y"]["axis"]["labelLimit"] == 250
    tall = bars.bars(frame, **options, labels=True, legend=True, legend_columns=1).to_dict()
    assert tall["layer"][0]["encoding"]["color"]["legend"]["columns"] == 1
    assert tall["height"] > bars.bars(frame, **options, labels=True, legend=True).to_dict()["height"]
    plain_height = bars.bars(frame, **options, labels=True, beside=False).to_dict()["height"]
    assert made["height"] > plain_height
