"""The benchmark's engine on CUDA: every record is finite, and says what it was told to say."""

from __future__ import annotations

import json
import math

import pytest
import torch
from device import DEVICE, cuda_only, marks

from posenc_core import SCHEMES, benchmark, parse_spec
from posenc_core.benchmark import Config, run
from posenc_core.benchmark_cases import IMPLEMENTATIONS

pytestmark = marks
OURS = {"copy", "copy_given", "fast", "eager", "in_place", "reference", "bias", "bias_cached"}
ROPE, ALIBI = (parse_spec({"scheme": s}) for s in ("rope", "alibi"))
SANE = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}  # of the largest number


def records(specs, **options):
    options = {"lengths": (64,), "devices": (DEVICE,), "heads": 4, "d_head": 32, "repetitions": 3} | options
    return [step.record for step in run(Config(tuple(specs), **options)) if step.record]


def right(record):
    figures = record.median, record.lower, record.upper
    return (
        not record.skipped
        and all(math.isfinite(x) and x > 0 for x in figures)
        and record.lower <= record.median <= record.upper
        and (DEVICE != "cuda" or "max_memory_allocated" in record.memory_method)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", *(["float16"] if DEVICE == "cuda" else [])])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_a_layer_of_every_scheme(dtype, backward):
    specs = [parse_spec({"scheme": s}) for s in SCHEMES]
    found = records(
        specs, dtypes=(dtype,), what=("layer",), backward=(backward,), implementations=("fast", "reference")
    )
    assert {r.case.spec for r in found} == set(specs)
    for r in found:
        assert right(r), r
        assert r.ratio > 0
        assert r.peak_bytes > 0
        # raw integers make scores of hundreds, of which half precision keeps little
        assert 0 < r.error < SANE[dtype] or r.case.spec.scheme == "integer", r


@pytest.mark.parametrize(
    ("what", "dtype"), [("rotation", "float32"), ("rotation", "bfloat16"), ("attention", "bfloat16")]
)
def test_every_implementation_runs_or_says_why_not(what, dtype):
    names = IMPLEMENTATIONS[what]
    spec = ROPE if what == "rotation" else ALIBI
    found = records([spec], dtypes=(dtype,), what=(what,), implementations=names, backward=(False, True))
    assert {r.case.implementation for r in found} == set(names)
    for r in found:
        if r.skipped:
            assert r.case.implementation not in OURS or (r.case.implementation, r.case.backward) == (
                "in_place",
                True,
            ), r
            continue
        assert right(r), r
        if r.case.implementation in OURS:
            assert "other numbers" not in r.note, r
            assert r.error is None or r.error < SANE[dtype], r
        if what == "rotation":
            assert r.copy_ratio > 0
            assert r.bytes_moved > 0


def test_tables():
    specs = [parse_spec({"scheme": s}) for s in SCHEMES]
    found = records(specs, what=("tables_built", "tables_cached"))
    assert any(not r.skipped for r in found if r.case.what == "tables_built")
    assert all(r.skipped or right(r) for r in found)


@cuda_only
def test_fast_is_the_kernel_and_takes_no_more_memory_than_its_result():
    found = records([ROPE], what=("rotation",), implementations=("fast", "copy"), dtypes=("bfloat16",), lengths=(4096,))
    fast, copied = (next(r for r in found if r.case.implementation == name) for name in ("fast", "copy"))
    assert "cannot be compiled" not in fast.note
    assert fast.peak_bytes <= copied.peak_bytes + 2**20


def test_the_command(tmp_path, capsys):
    out = tmp_path / "run.json"
    assert benchmark.main(["--schemes", "rope", "--lengths", "64", "--device", DEVICE, "--what", "rotation",
                           "--repetitions", "3", "--json", str(out), "--quiet"]) == 0  # fmt: skip
    assert "rope" in capsys.readouterr().out
    made = json.loads(out.read_text())
    if DEVICE == "cuda":
        assert made["machine"]["gpu"] == torch.cuda.get_device_name()
    assert all(math.isfinite(r["median"]) for r in made["records"])
