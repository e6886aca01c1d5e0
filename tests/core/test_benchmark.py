"""The timing engine: what it counts, compares, refuses and skips. No test asserts a speed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from posenc_core import SCHEMES, SpecError, benchmark, parse_spec
from posenc_core.benchmark import Case, Config, Record, Step, estimated_bytes, run
from posenc_core.spec import Spec

NONE, ROPE, ALIBI = (parse_spec({"scheme": s}) for s in ("none", "rope", "alibi"))
WHATS = ("layer", "tables_built", "tables_cached")


def records(config: Config, should_stop: Callable[[], bool] = lambda: False) -> list[Record]:
    return [step.record for step in run(config, should_stop) if step.record is not None]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call of scheme s takes TAKES[s][i] seconds the i-th time it is sampled; returns the log of the calls."""
    takes = {"none": [2.0, 4.0, 3.0, 5.0, 1.0], "rope": [6.0, 8.0, 7.0, 9.0, 10.0], "alibi": [12.0] * 5}
    log: list[str] = []

    def parts(encoding: object, shared: object, case: Case) -> list[benchmark._Part]:
        times = iter([0.0] * 3 + takes[case.spec.scheme])

        def call() -> float:
            log.append(case.spec.scheme)
            return next(times)

        return [benchmark._Part(1.0, call)]

    monkeypatch.setitem(benchmark.PARTS, "layer", parts)
    monkeypatch.setattr(benchmark, "_seconds", lambda call, loops, device: call())
    monkeypatch.setattr(benchmark, "_loops", lambda seconds: 1)
    return log


def test_quartiles_are_interpolated() -> None:
    assert benchmark.quartiles([5, 1, 4, 2, 3]) == (2.0, 3.0, 4.0)
    assert benchmark.quartiles([1, 2, 3, 4]) == (1.75, 2.5, 3.25)


def test_median_quartiles_and_overhead_of_known_times(scripted: list[str]) -> None:
    none, rope, alibi = records(Config((NONE, ROPE, ALIBI), (16,), repetitions=5))
    assert (none.lower, none.median, none.upper, none.overhead) == (2.0, 3.0, 4.0, 1.0)
    assert (rope.lower, rope.median, rope.upper, rope.repetitions) == (7.0, 8.0, 9.0, 5)
    assert rope.overhead == pytest.approx(8 / 3)
    assert alibi.overhead == 4.0


def test_the_cases_of_a_length_take_turns(scripted: list[str]) -> None:
    records(Config((NONE, ROPE, ALIBI), (16,), repetitions=5))
    rounds = scripted[3 * benchmark.WARM_UP :]
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
    sampled = Counter(scripted[2 * benchmark.WARM_UP :])
    if after < 2 * (benchmark.WARM_UP + benchmark.FEWEST):
        assert found == []
    else:
        assert [r.repetitions for r in found] == [sampled["none"], sampled["rope"]]
        medians = {3: {"none": 3.0, "rope": 7.0}, 4: {"none": 3.5, "rope": 7.5}}
        assert [r.median for r in found] == [medians[r.repetitions][r.case.spec.scheme] for r in found]
        assert found[1].overhead == found[1].median / found[0].median


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
    assert 0 < layer.overhead < math.inf
    assert 32 * 32 * 4 * 4 <= layer.peak_bytes < 10 * 2**20
    assert "kernel" in layer.memory_method
    built, cached = found["tables_built", spec], found["tables_cached", spec]
    assert built.overhead is cached.overhead is None
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


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_estimate_of_bytes_is_not_below_what_is_measured(scheme: str, dtype: str, what: benchmark.What) -> None:
    config = Config((parse_spec({"scheme": scheme}),), (256,), dtypes=(dtype,), what=(what,), d_head=32, repetitions=3)
    (group,) = config.groups()
    case = group[-1]
    try:
        bench = benchmark._Bench(case, config, benchmark._Shared(case, config))
    except benchmark._Skip:
        return
    for stage in bench.warm_up()[:2]:
        stage()
    assert bench.peak_bytes <= estimated_bytes(case, config)


def test_peak_memory_of_known_allocations() -> None:
    x = torch.zeros(1000)

    def call() -> torch.Tensor:
        y = x.view(10, 100) + 1  # 4000 bytes; the view allocates nothing
        z = torch.cat([y, y]).t()  # 8000 more
        del y
        return z[:5].clone()  # 400 more, after 4000 are free again

    assert benchmark._peak_bytes(call, "cpu")[0] == 12000


def test_alibi_holds_its_bias_and_none_does_not() -> None:
    none, alibi = records(Config((ALIBI,), (256,), repetitions=3, heads=4))
    assert alibi.peak_bytes - none.peak_bytes > 4 * 256 * 256 * 4


def test_too_much_memory_is_skipped_with_both_numbers() -> None:
    config = Config((ALIBI,), (16384,), repetitions=3)
    (none, alibi) = config.groups()[0]
    assert estimated_bytes(none, config) < config.max_bytes
    assert estimated_bytes(alibi, config) > 8 * 16384**2 * 4
    found = records(Config((ALIBI,), (512,), repetitions=3, max_bytes=2**24))
    assert found[0].skipped == ""
    assert found[1].skipped.startswith("needs up to")
    assert "more than the limit of 16 MiB" in found[1].skipped
    assert found[1].median is found[1].overhead is found[1].peak_bytes is None


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

    def parts(encoding: object, shared: object, case: Case) -> list[benchmark._Part]:
        def fail() -> None:
            raise torch.OutOfMemoryError("out of memory\nsecond line")

        return [benchmark._Part(1.0, fail)] if case.spec == ROPE else made(encoding, shared, case)

    monkeypatch.setitem(benchmark.PARTS, "layer", parts)
    none, rope, alibi = records(Config((NONE, ROPE, ALIBI), (16,), repetitions=3))
    assert rope.skipped == "OutOfMemoryError: out of memory"
    assert none.repetitions == alibi.repetitions == 3


def test_a_hybrid_is_the_mean_of_its_layers() -> None:
    spec = SCHEMES["hybrid"](layers=(parse_spec({"scheme": "learned"}), ROPE, ROPE, ALIBI))
    config = Config((spec,), (16,), heads=2, d_head=16, repetitions=3)
    case = config.groups()[0][-1]
    bench = benchmark._Bench(case, config, benchmark._Shared(case, config))
    assert sorted(p.weight for p in bench.parts) == [0.25, 0.25, 0.25, 0.5]  # the fourth is the embedding, once
    assert bench.note == "mean over 4 layers"


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
        ({"what": ("speed",)}, "what = 'speed' is not legal; legal: one of layer, tables_built, tables_cached"),
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


def test_the_table_shows_units_reasons_and_no_invented_figure() -> None:
    rope: Spec = parse_spec({"scheme": "rope", "base": 500_000.0})
    text = benchmark.table(
        [
            Record(Case(rope, 128), 2e-3, 1.5e-3, 2.5, 3, 3 * 2**20, "", 1.25),
            Record(Case(ALIBI, 128), skipped="too large"),
        ]
    ).splitlines()
    assert text[1].split() == [
        "cpu", "float32", "128", "layer", "rope(base=500000)", "2", "ms", "1.5", "ms", "to", "2.5", "s", "1.25×", "3",
        "MiB",
    ]  # fmt: skip
    assert text[2].endswith("-  skipped: too large")
    assert text[0].index("median") + len("median") == text[1].index("2 ms") + len("2 ms")


def test_the_command_writes_json_and_a_table(tmp_path) -> None:
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "posenc_core.benchmark", "--schemes", "rope(layout=interleaved), alibi",
         "--lengths", "16,32", "--repetitions", "3", "--heads", "2", "--d-head", "8", "--json", str(out)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    layers = [r for r in data["records"] if r["what"] == "layer"]
    assert [(r["spec"]["scheme"], r["length"]) for r in layers] == [
        ("none", 16), ("rope", 16), ("alibi", 16), ("none", 32), ("rope", 32), ("alibi", 32)
    ]  # fmt: skip
    assert layers[1]["spec"]["layout"] == "interleaved"
    assert all(r["median"] > 0 and r["overhead"] > 0 for r in layers)
    assert data["machine"]["torch"] == torch.__version__
    assert data["config"]["heads"] == 2
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + len(data["records"]) + 1
    assert "rope(layout=interleaved)" in done.stdout
    assert data["machine"]["cpu"] in lines[-1]
    assert "100%" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--schemes", "rpe"], "legal: one of none, integer"),
        (["--schemes", "rope(base=x)"], "schemes: rope.base = 'x' is not legal"),
        (["--lengths", "8"], "length = 8 is not legal"),
        (["--max-gib", "inf"], "max_bytes = 0 is not legal"),
        (["--threads", "0"], "threads = 0 is not legal"),
    ],
)
def test_the_command_refuses_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        benchmark.main(arguments)
    assert error.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: not run on CUDA")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_records_on_cuda(dtype: str) -> None:
    specs = tuple(parse_spec({"scheme": s}) for s in SCHEMES)
    found = records(Config(specs, (64,), devices=("cuda",), dtypes=(dtype,), what=WHATS, repetitions=3))
    layers = [r for r in found if r.case.what == "layer"]
    assert [r.skipped for r in layers] == [""] * len(SCHEMES)
    assert all(0 < r.median < math.inf and r.peak_bytes > 0 and r.overhead > 0 for r in layers)
    assert "max_memory_allocated" in layers[0].memory_method


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length", "128"), ("length", -5), ("length", None), ("median", "fast"), ("median", -1.0),
        ("median", float("nan")), ("lower", None), ("peak_bytes", "x"), ("what", "zzz"), ("device", None),
        ("dtype", "int4"), ("note", 3),
    ],
)  # fmt: skip
def test_a_foreign_record_is_refused(name, value):
    spec = parse_spec({"scheme": "rope"})
    good = Record(Case(spec, 128), median=1.0, lower=0.5, upper=2.0, repetitions=3, peak_bytes=10).to_mapping()
    assert Record.from_mapping(good).median == 1.0
    with pytest.raises((ValueError, TypeError)):
        Record.from_mapping(good | {name: value})
