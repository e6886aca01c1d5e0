"""The timing engine: what it counts, compares, refuses and skips. No test asserts a speed."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posenc_core import SCHEMES, SpecError, benchmark, benchmark_measure, parse_spec
from posenc_core.benchmark import ALL_IMPLEMENTATIONS, IMPLEMENTATIONS, Case, Config, Record, Step, run
from posenc_core.benchmark_measure import Timed
from posenc_core.benchmark_parts import Made, Part
from posenc_core.spec import Spec

NONE, ROPE, ALIBI = (parse_spec({"scheme": s}) for s in ("none", "rope", "alibi"))
WHATS = ("layer", "tables_built", "tables_cached")
CALLS = 3  # of a scripted case before it is sampled: the second of the four stages has nothing to check


def records(config: Config, should_stop: Callable[[], bool] = lambda: False) -> list[Record]:
    return [step.record for step in run(config, should_stop) if step.record is not None]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call of a case takes TAKES[its name][i] seconds the i-th time it is sampled; returns the log of the calls.

    The name is the scheme's, of a rotation the implementation's.
    """
    takes = {"none": [2.0, 4.0, 3.0, 5.0, 1.0], "rope": [6.0, 8.0, 7.0, 9.0, 10.0], "alibi": [12.0] * 5,
             "copy": [1.0, 2.0, 4.0, 2.0, 1.0], "fast": [2.0, 3.0, 4.0, 5.0, 6.0],
             "copy_given": [0.5, 1.0, 2.0, 1.0, 0.5], "in_place": [1.0, 1.0, 1.0, 1.0, 1.0]}  # fmt: skip
    log: list[str] = []

    def parts(encoding: object, shared: object, case: Case) -> Made:
        name = case.implementation if case.what == "rotation" else case.spec.scheme
        times = iter([0.0] * CALLS + takes[name])

        def call() -> float:
            log.append(name)
            return next(times)

        return Made([Part(1.0, call)])

    for what in ("layer", "attention", "rotation"):
        monkeypatch.setitem(benchmark.PARTS, what, parts)
    monkeypatch.setattr(benchmark, "timed", lambda call, times, device: Timed(call()))
    monkeypatch.setattr(benchmark, "loops", lambda taken, device: 1)
    return log


def test_quartiles_are_interpolated() -> None:
    assert benchmark.quartiles([5, 1, 4, 2, 3]) == (2.0, 3.0, 4.0)
    assert benchmark.quartiles([1, 2, 3, 4]) == (1.75, 2.5, 3.25)


def test_median_quartiles_and_ratio_of_known_times(scripted: list[str]) -> None:
    none, rope, alibi = records(Config((NONE, ROPE, ALIBI), (16,), repetitions=5))
    assert (none.lower, none.median, none.upper, none.ratio) == (2.0, 3.0, 4.0, 1.0)
    assert (rope.lower, rope.median, rope.upper, rope.repetitions) == (7.0, 8.0, 9.0, 5)
    # 6/2, 8/4, 7/3, 9/5 and 10/1 in the five rounds
    assert (rope.ratio_lower, rope.ratio, rope.ratio_upper) == pytest.approx((2.0, 7 / 3, 3.0))
    assert alibi.ratio == 4.0


def test_the_cases_of_a_length_take_turns(scripted: list[str]) -> None:
    records(Config((NONE, ROPE, ALIBI), (16,), repetitions=5))
    rounds = scripted[3 * CALLS :]
    assert all(Counter(rounds[i : i + 3]) == Counter(["none", "rope", "alibi"]) for i in range(0, 15, 3))
    assert len({tuple(rounds[i : i + 3]) for i in range(0, 15, 3)}) > 1


def test_none_is_timed_with_every_layer_and_duplicates_once(scripted: list[str]) -> None:
    found = records(Config((ROPE, ROPE), (16, 32, 16), repetitions=3))
    assert [(r.case.spec.scheme, r.case.length) for r in found] == [
        ("none", 16), ("rope", 16), ("none", 32), ("rope", 32)
    ]  # fmt: skip


def test_progress_grows_to_the_total(scripted: list[str]) -> None:
    steps = list(run(Config((ROPE,), (16, 256), repetitions=3)))
    done = [s.done for s in steps]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(steps[0].total)
    assert {s.total for s in steps} == {steps[0].total}
    assert len(steps) == 2 * 2 * (benchmark.WARM_UP + 3) + 4


@pytest.mark.parametrize("after", [0, 1, 7, 13, 14])
def test_a_stop_ends_within_one_call_and_keeps_what_was_measured(scripted: list[str], after: int) -> None:
    found = records(Config((NONE, ROPE), (16, 32), repetitions=5), lambda: len(scripted) >= after)
    assert len(scripted) == after
    sampled = Counter(scripted[2 * CALLS :])
    if after < 2 * (CALLS + benchmark.FEWEST):
        assert found == []
    else:
        assert [r.repetitions for r in found] == [sampled["none"], sampled["rope"]]
        medians = {3: {"none": 3.0, "rope": 7.0}, 4: {"none": 3.5, "rope": 7.5}}
        assert [r.median for r in found] == [medians[r.repetitions][r.case.spec.scheme] for r in found]
        assert found[1].ratio == pytest.approx({3: 7 / 3, 4: (2 + 7 / 3) / 2}[min(r.repetitions for r in found)])


def test_an_interrupt_keeps_what_was_measured(
    scripted: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = benchmark.PARTS["layer"]

    def parts(encoding, shared, case: Case) -> Made:
        (part,) = made(encoding, shared, case).parts

        def call() -> float:
            if len(scripted) == 2 * CALLS + 8:
                raise KeyboardInterrupt
            return part.call()

        return Made([Part(1.0, call)])

    monkeypatch.setitem(benchmark.PARTS, "layer", parts)
    found: list[Record] = []
    steps = run(Config((ROPE,), (16, 32), repetitions=5))
    with pytest.raises(KeyboardInterrupt):
        found.extend(step.record for step in steps if step.record)
    assert [(r.case.length, r.case.spec.scheme, r.repetitions) for r in found] == [(16, "none", 4), (16, "rope", 4)]
    scripted.clear()
    assert benchmark.main(["--schemes", "rope", "--lengths", "16,32", "--what", "layer", "--quiet"]) == 130
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[4] for line in lines[1:-1]] == ["none", "rope"]


def test_leaving_the_loop_leaves_no_inference_mode_behind() -> None:
    for step in run(Config((ROPE,), (16,), repetitions=3)):
        assert isinstance(step, Step)
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_gives_finite_records(scheme: str) -> None:
    spec = parse_spec({"scheme": scheme})
    config = Config((spec,), (32,), what=WHATS, heads=2, d_head=16, repetitions=3)
    found = {(r.case.what, r.case.spec): r for r in records(config)}
    layer = found["layer", spec]
    assert layer.skipped == ""
    assert layer.repetitions == 3
    assert layer.median is not None
    assert 0 < layer.lower <= layer.median <= layer.upper < math.inf
    assert 0 < layer.ratio < math.inf
    assert 32 * 32 * 4 * 4 <= layer.peak_bytes < 10 * 2**20
    assert "kernel" in layer.memory_method
    built, cached = found["tables_built", spec], found["tables_cached", spec]
    assert built.ratio is cached.ratio is None
    if scheme == "none":
        assert built.skipped == cached.skipped == "this scheme needs no tables"
    else:
        assert built.skipped == ""
        assert 0 < built.median < math.inf
        assert built.peak_bytes > 0
    if scheme == "rope":
        assert cached.median > 0
        assert cached.peak_bytes == 0
    elif scheme != "none":
        assert "nothing is kept between two calls" in cached.skipped


def test_peak_memory_of_known_allocations() -> None:
    x = torch.zeros(1000)

    def call() -> torch.Tensor:
        y = x.view(10, 100) + 1  # 4000 bytes; the view allocates nothing
        z = torch.cat([y, y]).t()  # 8000 more
        del y
        return z[:5].clone()  # 400 more, after 4000 are free again

    assert benchmark_measure.peak_bytes(call, "cpu")[0] == 12000


def test_too_much_memory_is_skipped_with_both_numbers() -> None:
    config = Config(
        (ALIBI,),
        (512,),
        repetitions=3,
        max_bytes=18 * 2**20,
        what=("attention", "layer"),
        implementations=("fast", "bias"),
    )
    found = {(r.case.what, r.case.spec.scheme, r.case.implementation): r for r in records(config)}
    assert found["layer", "none", "fast"].skipped == ""
    built = found["attention", "alibi", "bias"]
    assert built.skipped.startswith("needs up to")
    assert "more than the limit of 18 MiB" in built.skipped
    assert built.median is built.ratio is built.peak_bytes is built.error is built.bytes_moved is None


def test_float16_on_the_cpu_is_skipped_and_bfloat16_is_not() -> None:
    found = records(Config((NONE,), (16,), dtypes=("float16", "bfloat16"), repetitions=3))
    assert [(r.case.dtype, r.skipped == "") for r in found] == [("float16", False), ("bfloat16", True)]
    assert found[0].skipped.startswith("float16 is not timed on a CPU")


def test_a_table_grows_to_the_length_and_a_one_hot_table_cannot() -> None:
    learned = parse_spec({"scheme": "learned", "max_position_embeddings": 20, "offset": 2})
    one_hot = parse_spec({"scheme": "integer", "variant": "one_hot", "max_position_embeddings": 20})
    config = Config((learned, one_hot), (64,), heads=2, d_head=16, repetitions=3)
    _, grown, refused = records(config)
    assert grown.note == "table of 66 rows instead of 20"
    assert grown.case.spec == learned
    assert "one-hot table" in refused.skipped


def test_sizes_that_a_scheme_refuses_are_a_reason_not_a_crash() -> None:
    slopes = parse_spec({"scheme": "alibi", "n_heads": 2, "slopes": [0.5, 0.25]})
    _, alibi = records(Config((slopes,), (16,), heads=4, repetitions=3))
    assert "slopes" in alibi.skipped
    assert "4 numbers" in alibi.skipped


def test_a_failing_case_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = benchmark.PARTS["layer"]

    def parts(encoding, shared, case: Case) -> Made:
        def fail() -> None:
            raise torch.OutOfMemoryError("out of memory\nsecond line")

        return Made([Part(1.0, fail)]) if case.spec == ROPE else made(encoding, shared, case)

    monkeypatch.setitem(benchmark.PARTS, "layer", parts)
    none, rope, alibi = records(Config((NONE, ROPE, ALIBI), (16,), repetitions=3))
    assert rope.skipped == "OutOfMemoryError: out of memory"
    assert none.repetitions == alibi.repetitions == 3


def test_a_fault_of_another_library_is_a_reason_and_one_of_this_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made = benchmark.PARTS["rotation"]
    culprit = "transformers"

    def parts(encoding, shared, case: Case) -> Made:
        def fail() -> None:
            raise AssertionError("no such size")

        return Made([Part(1.0, fail)]) if case.implementation == culprit else made(encoding, shared, case)

    monkeypatch.setitem(benchmark.PARTS, "rotation", parts)
    config = Config((ROPE,), (16,), what=("rotation",), implementations=("eager", "transformers"), repetitions=3)
    copied, eager, other = records(config)
    assert other.skipped == "AssertionError: no such size"
    assert copied.repetitions == eager.repetitions == 3
    culprit = "eager"
    with pytest.raises(AssertionError):
        records(config)


def test_a_rotation_is_held_against_the_copy_of_its_round(scripted: list[str]) -> None:
    copied, fast = records(Config((ROPE,), (16,), what=("rotation",), repetitions=5))
    assert (copied.copy_ratio, copied.copy_lower, copied.copy_upper) == (1.0, 1.0, 1.0)
    assert (fast.copy_lower, fast.copy_ratio, fast.copy_upper) == (1.5, 2.0, 2.5)  # of 2, 1.5, 1, 2.5, 6
    assert fast.median == 4.0
    assert fast.ratio is copied.ratio is None


def test_a_rotation_in_place_is_held_against_a_copy_into_given_memory(scripted: list[str]) -> None:
    config = Config((ROPE,), (16,), what=("rotation",), implementations=("in_place", "fast"), repetitions=5)
    found = {r.case.implementation: r for r in records(config)}
    assert set(found) == {"copy", "copy_given", "in_place", "fast"}
    assert found["in_place"].copy_ratio == 1.0  # of 2, 1, 0.5, 1, 2
    assert found["copy_given"].copy_ratio == 0.5
    assert found["fast"].copy_ratio == 2.0


def test_fresh_pages_are_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter(range(0, 10**6, 500))  # 500 in each call
    monkeypatch.setattr(benchmark, "page_faults", lambda device: next(faults))
    monkeypatch.setattr(benchmark, "loops", lambda taken, device: 1)
    config = Config((ROPE,), (16, 8192), what=("rotation",), implementations=("copy",), repetitions=3)
    small, large = records(config)
    assert small.page_faults == large.page_faults == 500
    assert small.note.endswith("500 fresh pages a call, zeroed by the system, are in the time")
    assert "fresh pages" not in large.note  # 64 MiB are moved
    monkeypatch.setattr(benchmark, "page_faults", lambda device: None)
    assert records(config)[0].page_faults is None


def test_samples_that_only_launch_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config((ROPE,), (16,), what=("rotation",), implementations=("copy",), repetitions=3)
    for taken, told in ((Timed(1e-5, 0.95e-5), True), (Timed(1e-5, 0.5e-5), False)):
        monkeypatch.setattr(benchmark, "timed", lambda call, times, device, taken=taken: taken)
        (record,) = records(config)
        assert ("bounded by the launches" in record.note) == told


def test_layer_and_attention_are_each_held_against_none_in_their_direction(scripted: list[str]) -> None:
    found = records(Config((ROPE,), (16,), what=("layer", "attention"), backward=(False, True), repetitions=5))
    assert [(r.case.what, r.case.backward, r.case.spec.scheme) for r in found] == [
        (what, backward, scheme)
        for what in ("layer", "attention") for backward in (False, True) for scheme in ("none", "rope")
    ]  # fmt: skip
    assert [r.ratio for r in found] == pytest.approx([1.0, 7 / 3] * 4)
    assert {r.copy_ratio for r in found} == {None}


def cases(**changes: object) -> list[tuple[str, str, str, bool]]:
    config = Config(**({"specs": (ROPE, ALIBI), "lengths": (16,)} | changes))
    return [(c.what, c.spec.scheme, c.implementation, c.backward) for c in config.groups()[0]]


def test_each_quantity_takes_its_own_of_the_implementations() -> None:
    names = ("fast", "eager", "bias")
    assert cases(what=("layer",), implementations=names) == [
        ("layer", "none", "fast", False), ("layer", "rope", "fast", False), ("layer", "alibi", "fast", False)
    ]  # fmt: skip
    assert cases(what=("attention",), implementations=("bias",), specs=(ALIBI,)) == [
        ("attention", "none", "fast", False), ("attention", "alibi", "bias", False)
    ]  # fmt: skip
    assert cases(what=("rotation",), implementations=names) == [
        ("rotation", "rope", "copy", False), ("rotation", "rope", "fast", False), ("rotation", "rope", "eager", False),
        ("rotation", "alibi", "fast", False),
    ]  # fmt: skip
    assert cases(what=("tables_built",), backward=(False, True)) == [
        ("tables_built", "rope", "fast", False), ("tables_built", "alibi", "fast", False)
    ]  # fmt: skip


def test_all_implementations_are_cases_of_their_quantity() -> None:
    for what, names in IMPLEMENTATIONS.items():
        found = cases(what=(what,), implementations=ALL_IMPLEMENTATIONS, specs=(ROPE,))
        assert [name for _, scheme, name, _ in found if scheme == "rope"] == list(names)


def test_a_length_that_one_quantity_takes_and_another_does_not() -> None:
    config = Config((NONE,), (2**17,), what=("layer", "tables_built"), repetitions=3)
    layer, built = records(config)
    assert layer.skipped == "layer is timed up to 16,384 positions"
    assert built.skipped == "this scheme needs no tables"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"lengths": (15,)}, "length = 15 is not legal; legal: a whole number from 16 to 16384"),
        ({"lengths": (32, 10**12)}, "length = 1000000000000 is not legal; legal: a whole number from 16 to 16384"),
        ({"lengths": (32.0,)}, "length = 32.0 is not legal"),
        ({"lengths": tuple(range(16, 25))}, "lengths = 9 is not legal (that many given); legal: 1 to 8 of them"),
        ({"lengths": ()}, "lengths = 0 is not legal"),
        ({"specs": ()}, "specs = 0 is not legal"),
        ({"specs": ("rope",)}, "spec = 'rope' is not legal; legal: a Spec"),
        ({"repetitions": 2}, "repetitions = 2 is not legal; legal: a whole number from 3 to 200"),
        ({"repetitions": 201}, "repetitions = 201 is not legal"),
        ({"repetitions": True}, "repetitions = True is not legal"),
        ({"heads": 0}, "heads = 0 is not legal; legal: a whole number from 1 to 256"),
        ({"d_head": 63}, "d_head = 63 is not legal; legal: a whole number from 2 to 1024 in steps of 2"),
        ({"heads": 256, "d_head": 64}, "heads × d_head = 16384 is not legal; legal: a width of at most 8192"),
        ({"batch": float("nan")}, "batch = nan is not legal"),
        ({"dtypes": ("float64",)}, "dtype = 'float64' is not legal; legal: one of float32, bfloat16, float16"),
        ({"devices": ("tpu",)}, "device = 'tpu' is not legal; legal: one of cpu"),
        ({"devices": ()}, "legal: at least one of cpu"),
        ({"what": ("speed",)}, "what = 'speed' is not legal; legal: one of layer, attention, rotation, tables_built"),
        (
            {"lengths": (2**21,), "what": ("tables_built",)},
            "length = 2097152 is not legal; legal: a whole number from 16 to 1048576",
        ),
        (
            {"lengths": (2**17,), "what": ("rotation",)},
            "length = 131072 is not legal; legal: a whole number from 16 to 65536",
        ),
        ({"implementations": ("best",)}, "implementation = 'best' is not legal; legal: one of fast, reference, bias"),
        ({"implementations": ()}, "legal: at least one of fast"),
        (
            {"implementations": ("eager", "liger")},
            "implementation = 'eager, liger' is not legal (layer has no such "
            "implementation); legal: one of fast, reference",
        ),
        ({"backward": (1,)}, "backward = 1 is not legal; legal: one of False, True"),
        ({"backward": ()}, "legal: at least one of False, True"),
        ({"max_bytes": 0}, "max_bytes = 0 is not legal"),
    ],
)
def test_a_config_names_the_value_and_the_legal_range(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(SpecError) as error:
        Config(**({"specs": (ROPE,)} | changes))
    assert sentence in str(error.value)


def test_a_config_lists_every_problem() -> None:
    with pytest.raises(SpecError) as error:
        Config((ROPE,), (1, 2), repetitions=1, heads=0)
    assert [p.name for p in error.value.problems] == ["heads", "repetitions", "length", "length"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_an_absent_device_is_refused_as_absent() -> None:
    with pytest.raises(SpecError, match="device = 'cuda' is not legal \\(this machine has none\\)"):
        Config((ROPE,), devices=("cuda",))


def test_machine_and_devices_name_what_there_is() -> None:
    found = benchmark.machine()
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["torch_threads"] == torch.get_num_threads()
    assert found["torch"] == torch.__version__
    assert found["date"].endswith("+00:00")
    assert next(iter(benchmark.devices())) == "cpu"
    assert found["cpu"] in benchmark.machine_line(found)
    json.dumps(found)
    assert found["numpy"]
    assert found["compiler"] is None or found["compiler"].strip()
    assert set(found["fused_warm"]) <= set(benchmark.devices())
    assert all(isinstance(v, str) for v in found["peers"].values())


def test_an_old_description_of_a_machine_is_still_told() -> None:
    new = {"numpy", "cuda", "driver", "triton", "compiler", "fused_warm", "peers"}
    found = {k: v for k, v in benchmark.machine().items() if k not in new}
    assert found["cpu"] in benchmark.machine_line(found)
    told = benchmark.machine_line(found | {"gpu": "A GPU", "cuda": "12.8", "driver": "570.1"})
    assert told.startswith("A GPU, CUDA 12.8, driver 570.1, ")


def test_the_table_shows_units_reasons_and_no_invented_figure() -> None:
    rope: Spec = parse_spec({"scheme": "rope", "base": 500_000.0})
    text = benchmark.table(
        [
            Record(Case(rope, 128), 2e-3, 1.5e-3, 2.5, 3, 3 * 2**20, "", ratio=1.25, bytes_moved=2048, error=1.25e-7),
            Record(Case(ALIBI, 128), skipped="too large"),
            Record(Case(rope, 128, what="rotation", implementation="eager", backward=True), 2e-3, 2e-3, 2e-3, 3,
                   bytes_moved=2**20, copy_ratio=3.14159, note="careful"),
        ]
    ).splitlines()  # fmt: skip
    assert text[1].split() == [
        "cpu", "float32", "128", "layer", "rope(base=500000)", "fast", "forward", "2", "ms", "1.5", "ms", "to", "2.5",
        "s", "1.25×", "-", "3", "MiB", "2", "KiB", "1.2e-07",
    ]  # fmt: skip
    assert text[2].endswith("-  skipped: too large")
    assert text[3].split()[5:] == [
        "eager", "forward", "+", "backward", "2", "ms", "2", "ms", "to", "2", "ms", "-", "3.14×", "-", "1", "MiB", "at",
        "0.524", "GB/s", "-", "careful",
    ]  # fmt: skip
    assert text[0].index("median") + len("median") == text[1].index("2 ms") + len("2 ms")


def test_the_markdown_has_the_command_every_row_and_every_reason() -> None:
    def rotation(name: str, length: int, **more: object) -> Record:
        return Record(Case(ROPE, length, what="rotation", implementation=name), **more)

    def beside(ratio: float) -> dict[str, float]:
        return {"copy_ratio": ratio, "copy_lower": ratio, "copy_upper": ratio}

    times = {"median": 1e-3, "lower": 9e-4, "upper": 2e-3}
    config = Config((ROPE, ALIBI), (128, 256), what=("rotation",), implementations=benchmark.ALL_IMPLEMENTATIONS)
    found = benchmark.machine() | {"torch_threads": 3}
    made = benchmark.to_mapping(config, [
        rotation("copy", 128, **times), rotation("fast", 128, **times, **beside(1.5), note="a|b"),
        rotation("liger", 128, skipped="not there"), rotation("flash_attn", 128, skipped="not there"),
        rotation("fast", 256, **times, **beside(1.25)), rotation("eager", 256, skipped="too large"),
    ], found)  # fmt: skip
    text = benchmark.markdown(json.loads(json.dumps(made)))
    lines = text.splitlines()
    assert lines[0] == (
        "`python -m posenc_core.benchmark --schemes rope,alibi --what rotation --implementations all --lengths 128,256 "
        "--device cpu --dtype float32 --heads 8 --d-head 64 --batch 1 --repetitions 20 --max-gib 2 --threads 3`"
    )
    assert found["cpu"] in lines[2]
    assert lines[4] == "All rows: device cpu, dtype float32, what rotation, scheme rope, direction forward."
    assert lines[6:9] == [
        "| length | implementation | median | quartiles | of copy | note |", "| ---: | --- | ---: | --- | ---: | --- |",
        "| 128 | copy | 1 ms | 900 µs to 2 ms | - |  |",
    ]  # fmt: skip
    assert lines[9] == r"| 128 | fast | 1 ms | 900 µs to 2 ms | 1.50× | a\|b |"
    assert lines[-2:] == [
        "- rotation, liger, flash_attn of rope; 128: not there", "- rotation, eager of rope; 256: too large"
    ]  # fmt: skip


RECORDED = sorted((Path(benchmark.__file__).parents[1] / "assets" / "benchmarks").glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_the_command_of_a_recorded_run_asks_for_what_was_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, asked = json.loads(path.read_text()), []
    if not {*recorded["config"]["devices"]} <= {*benchmark.devices()}:
        pytest.skip(f"recorded on {recorded['machine']['gpu']}, which is not here")
    monkeypatch.setattr(benchmark, "run", lambda config: asked.append(config) or iter(()))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: asked.append(n))
    assert benchmark.main(shlex.split(benchmark.command(recorded))[3:]) == 0
    assert asked[0] == recorded["machine"]["torch_threads"]
    assert json.loads(json.dumps(benchmark.to_mapping(asked[1], [], {})))["config"] == recorded["config"]


def test_the_page_of_recorded_timings_is_made_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--recorded", *map(str, RECORDED)]) == 0
    shown = capsys.readouterr().out
    assert (RECORDED[0].parents[2] / "docs" / "BENCHMARKS.md").read_text() == shown
    for path in RECORDED:
        measured = [r for r in json.loads(path.read_text())["records"] if not r["skipped"]]
        rows = shown.split(f"## {path.name}\n")[1].split("\n## ")[0].count("\n| ") - 2
        assert rows == len(measured)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"records": [{}], "config": {}, "machine": {}}', '{"records": 3}'])
def test_what_is_no_recorded_run_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(SystemExit) as error:
        benchmark.main(["--recorded", str(tmp_path / "run.json")])
    assert error.value.code == 2
    assert "no recorded run" in capsys.readouterr().err


def run_command(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "posenc_core.benchmark", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


def test_the_command_writes_json_and_a_table(tmp_path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    done = run_command(
        "--schemes", "rope(layout=interleaved), alibi", "--lengths", "16,32", "--repetitions", "3", "--heads", "2",
        "--d-head", "8", "--json", str(out), "--markdown", str(page),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    layers = [r for r in data["records"] if r["what"] == "layer"]
    assert [(r["spec"]["scheme"], r["length"]) for r in layers] == [
        ("none", 16), ("rope", 16), ("alibi", 16), ("none", 32), ("rope", 32), ("alibi", 32)
    ]  # fmt: skip
    assert layers[1]["spec"]["layout"] == "interleaved"
    assert all(r["median"] > 0 and r["ratio"] > 0 and r["error"] < 1e-5 for r in layers)
    assert {(r["implementation"], r["backward"]) for r in data["records"]} == {("fast", False)}
    assert data["machine"]["torch"] == torch.__version__
    assert data["config"]["heads"] == 2
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + len(data["records"]) + 1
    assert "rope(layout=interleaved)" in done.stdout
    assert data["machine"]["cpu"] in lines[-1]
    assert "100%" in done.stderr
    assert "--schemes 'rope(layout=interleaved),alibi' --what layer,tables_built,tables_cached" in page.read_text()


def test_the_command_times_all_implementations_in_both_directions(tmp_path) -> None:
    out = tmp_path / "out.json"
    done = run_command(
        "--schemes", "rope", "--lengths", "16", "--repetitions", "3", "--heads", "2", "--d-head", "8", "--what",
        "rotation", "--implementations", "all", "--backward", "--quiet", "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [(r["implementation"], r["backward"]) for r in json.loads(out.read_text())["records"]]
    assert found == [(name, b) for b in (False, True) for name in IMPLEMENTATIONS["rotation"]]
    assert done.stderr == ""


def test_the_command_runs_with_torch_numpy_and_pydantic_alone(tmp_path) -> None:
    for name in ("tqdm", "safetensors", "pandas", "streamlit", "altair"):
        (tmp_path / f"{name}.py").write_text("raise ModuleNotFoundError('not here', name=__name__)\n")
    root = str(Path(benchmark.__file__).parents[1])
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])}
    done = run_command("--schemes", "rope,alibi,learned", "--lengths", "16", "--repetitions", "3", env=path)
    assert done.returncode == 0, done.stderr
    assert "100%" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--schemes", "rpe"], "legal: one of none, integer"),
        (["--schemes", "rope(base=x)"], "schemes: rope.base = 'x' is not legal"),
        (["--lengths", "8"], "length = 8 is not legal"),
        (["--max-gib", "inf"], "max_bytes = 0 is not legal"),
        (["--threads", "0"], "threads = 0 is not legal"),
        (["--implementations", "all,fast"], "implementation = 'all' is not legal"),
        (["--implementations", "liger"], "layer has no such implementation"),
    ],
)
def test_the_command_refuses_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        benchmark.main(arguments)
    assert error.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length", "128"), ("length", -5), ("length", None), ("median", "fast"), ("median", -1.0),
        ("median", float("nan")), ("lower", None), ("peak_bytes", "x"), ("what", "zzz"), ("device", None),
        ("dtype", "int4"), ("note", 3), ("implementation", "liger"), ("implementation", None), ("backward", 1),
        ("backward", "yes"), ("error", float("inf")), ("copy_ratio", "1"), ("bytes_moved", True), ("colour", "red"),
        ("median", 0), ("lower", 0.0), ("lower", 1.5), ("upper", 0.9), ("peak_bytes", 10**400), ("length", 2**21),
        ("ratio", 1.0), ("copy_lower", 1.0), ("skipped", "and yet measured"), ("repetitions", 2**61),
    ],
)  # fmt: skip
def test_a_foreign_record_is_refused(name, value):
    spec = parse_spec({"scheme": "rope"})
    good = Record(Case(spec, 128), median=1.0, lower=0.5, upper=2.0, repetitions=3, peak_bytes=10).to_mapping()
    assert Record.from_mapping(good).median == 1.0
    with pytest.raises((ValueError, TypeError)):
        Record.from_mapping(good | {name: value})


def test_a_record_survives_json_and_an_old_one_has_the_defaults() -> None:
    case = Case(ROPE, 128, dtype="bfloat16", what="rotation", implementation="liger", backward=True)
    made = Record(
        case, 1.0, 0.5, 2.0, 3, 10, "counted", note="said", bytes_moved=7, copy_ratio=1.5, copy_lower=1.25,
        copy_upper=1.75, error=1e-7,
    )  # fmt: skip
    written = json.loads(json.dumps(made.to_mapping()))
    assert Record.from_mapping(written) == made
    new = ("implementation", "backward", "bytes_moved", "copy_ratio", "copy_lower", "copy_upper", "error")
    layer = Record(Case(ROPE, 128), 1.0, 0.5, 2.0, 3)
    assert Record.from_mapping({k: v for k, v in layer.to_mapping().items() if k not in new}) == layer


def test_a_rate_is_told_where_memory_is_the_limit() -> None:
    rotation, layer = Case(ROPE, 128, what="rotation"), Case(ROPE, 128)
    assert Record(rotation, 2.0, 1.0, 3.0, bytes_moved=10).bytes_per_second == 5.0
    assert Record(layer, 2.0, 1.0, 3.0, bytes_moved=10).bytes_per_second is None
    assert Record(rotation, skipped="why").bytes_per_second is None


def test_numbers_that_are_not_those_are_told_and_not_silently_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, error, note in (
        (1e-6, 1e-6, ""), (0.5, 0.5, "gives other numbers: error 5.0e-01"),
        (math.inf, None, "gives other numbers: some are not finite"),
    ):  # fmt: skip
        made = Made([Part(1.0, lambda: None, lambda found=found: found)])
        monkeypatch.setitem(benchmark.PARTS, "tables_built", lambda *_, made=made: made)
        (record,) = records(Config((ROPE,), (16,), what=("tables_built",), repetitions=3))
        assert (record.error, record.note) == (error, note)


def test_a_layer_whose_scheme_makes_large_scores_gives_no_other_numbers() -> None:
    raw = parse_spec({"scheme": "integer", "variant": "raw"})
    none, found = records(Config((raw,), (2048,), heads=2, d_head=32, backward=(True,), repetitions=3))
    assert found.error > 0.01 > none.error
    assert found.note == ""


def test_a_sample_lasts_long_enough_and_not_forever() -> None:
    assert benchmark_measure.loops(1.0, "cpu") == benchmark_measure.loops(1.0, "cuda") == 1
    assert benchmark_measure.loops(1e-5, "cpu") == 10
    assert benchmark_measure.loops(1e-5, "cuda") == 500
    assert benchmark_measure.loops(0.0, "cuda") == benchmark_measure.MAX_LOOPS
