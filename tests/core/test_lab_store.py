import json
import math
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
import torch
from support import ROOT

from posenc_core import lab_store
from posenc_core.lab import Execution, Run, Setting, measure, parse_schemes
from posenc_core.lab_store import MOST_KEPT, RESULTS, STALE, Store

TINY = Setting(width=16, train_length=16, steps=12)
EXTENDED = {"extension": "yarn", "times": 2, "finetune_steps": 6}
RUNS = {
    "rope": Run(*parse_schemes("rope"), TINY),
    "learned": Run(*parse_schemes("learned"), TINY),
    "alibi, learned slopes": Run(*parse_schemes("alibi"), TINY.replace(slope_training="learned")),
    "alibi, dynamic slopes": Run(*parse_schemes("alibi"), TINY.replace(slope_training="dynamic")),
    "hybrid, extended": Run(*parse_schemes("alibi+rope"), TINY.replace(**EXTENDED)),
    "float16 tables": Run(*parse_schemes("rope"), TINY.replace(table_format="float16", task="recall")),
    "progressive, gaps": Run(*parse_schemes("rope"), TINY.replace(curriculum="progressive", position_gap=2)),
}
each = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
ROPE = RUNS["rope"]


@cache
def made(run):
    execution = Execution(run)
    for _ in execution:
        pass
    return execution


def plain(result):
    """What has to be the same wherever and whenever it is made."""
    return replace(result, seconds=0.0, machine={})


def measured(run, model):
    """Loss and accuracy as a result writes them."""
    found = measure(run, model, run.setting.make_task(run.corpus))
    return [tuple(None if x != x else round(x, 4) for x in t.tolist()) for t in found]


# ------------------------------------------------------------------ results and weights


@each
def test_what_is_put_is_found(run, tmp_path):
    store = Store(tmp_path / "new" / "folder", None)
    assert store.get(run.key) is None
    assert store.model(run) is None
    store.put(made(run).result, made(run).model)
    again = Store(tmp_path / "new" / "folder", None)
    assert again.get(run.key) == made(run).result
    model = again.model(run)
    assert measured(run, model) == [made(run).result.loss, made(run).result.accuracy]
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())


def test_the_weights_are_float16_and_small(tmp_path):
    Store(tmp_path, None).put(made(ROPE).result, made(ROPE).model)
    parameters = sum(p.numel() for p in made(ROPE).model.parameters())
    assert 0 <= (tmp_path / f"{ROPE.key}.safetensors").stat().st_size - 2 * parameters < 5000


def test_weights_alone(tmp_path):
    store = Store(tmp_path, None)
    store.put_weights(ROPE.key, made(ROPE).model)
    assert [p.name for p in tmp_path.iterdir()] == [f"{ROPE.key}.safetensors"]
    assert store.get(ROPE.key) is None
    assert measured(ROPE, store.model(ROPE))[0] == made(ROPE).result.loss


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store(None, None)
    store.put(made(ROPE).result, made(ROPE).model)
    store.put_weights(ROPE.key, made(ROPE).model)
    store.save_state(ROPE.key, {"step": 1})
    store.drop_state(ROPE.key)
    assert (store.get(ROPE.key), store.model(ROPE), store.state(ROPE.key)) == (None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_shipped_comes_before_own(tmp_path):
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    Store(shipped, None).put_weights(ROPE.key, made(ROPE).model)
    lines = [made(r).result.to_mapping() for r in (ROPE, RUNS["learned"])]
    (shipped / RESULTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = replace(made(ROPE).result, seconds=123.0)
    Store(own, None).put(other, Execution(ROPE).model)
    assert Store(own, None).get(ROPE.key) == other
    both = Store(own, shipped)
    assert both.get(ROPE.key) == made(ROPE).result
    assert measured(ROPE, both.model(ROPE))[0] == made(ROPE).result.loss
    assert set(both.shipped) == {ROPE.key, RUNS["learned"].key}
    assert both.get(RUNS["learned"].key) == made(RUNS["learned"]).result
    assert both.model(RUNS["learned"]) is None  # its weights were not shipped
    before = sorted(p.name for p in shipped.iterdir())
    both.put(made(RUNS["learned"]).result, made(RUNS["learned"]).model)
    assert sorted(p.name for p in shipped.iterdir()) == before


def test_a_broken_shipped_line_takes_no_other_along(tmp_path):
    lines = ["{", json.dumps(made(ROPE).result.to_mapping()), '{"key": "x"}', ""]
    (tmp_path / RESULTS).write_text("\n".join(lines))
    assert set(Store(None, tmp_path).shipped) == {ROPE.key}


# ------------------------------------------------------------------ what cannot be read is absent


def spoiled(data, count):
    """Cut, changed and foreign versions of a file."""
    draw = random.Random(0)
    yield from (b"", b"\0" * 100, b"[]", b"null", b"{}", b"[" * 100_000, b"\xff\xfe hello", b"80\x04.")
    for _ in range(count):
        yield data[: draw.randrange(len(data))]
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(min(len(data), 2000))] = draw.randrange(256)
        yield bytes(changed)


def test_broken_results_are_absent(tmp_path):
    store, result = Store(tmp_path, None), made(ROPE).result
    store.put(result, made(ROPE).model)
    path = tmp_path / f"{ROPE.key}.json"
    good, absent = path.read_bytes(), 0
    for data in spoiled(good, 100):
        path.write_bytes(data)
        found = store.get(ROPE.key)
        assert found is None or found.key == ROPE.key
        absent += found is None
    assert absent > 150
    for wrong in ({"key": "of another"}, {"spec": 1}, {"spec": {"scheme": ["rope"]}}, {"setting": {"steps": 1}},
                  {"loss": 1}, {"curve": [[1]]}, {"unknown": 1}):  # fmt: skip
        path.write_text(json.dumps(json.loads(good) | wrong))
        assert store.get(ROPE.key) is None
    path.write_bytes(good)
    assert store.get(ROPE.key) == result


def test_broken_weights_are_absent(tmp_path):
    store = Store(tmp_path, None)
    store.put(made(ROPE).result, made(ROPE).model)
    path, absent = tmp_path / f"{ROPE.key}.safetensors", 0
    for data in spoiled(path.read_bytes(), 20):
        path.write_bytes(data)
        absent += store.model(ROPE) is None
    assert absent > 30
    wider = Run(ROPE.spec, TINY.replace(width=24))
    store.put_weights(ROPE.key, Execution(wider).model)
    assert store.model(ROPE) is None
    path.unlink()
    path.mkdir()
    assert store.model(ROPE) is None


@pytest.mark.filterwarnings("ignore")  # torch warns of the nonsense it reads
def test_broken_states_are_absent(tmp_path):
    store, execution = Store(tmp_path, None), Execution(ROPE)
    list(islice(execution, 2))
    store.save_state(ROPE.key, execution.state_dict())
    path, absent = tmp_path / f"{ROPE.key}.state", 0
    for data in spoiled(path.read_bytes(), 100):
        path.write_bytes(data)
        absent += store.state(ROPE.key) is None
    assert absent > 150


def test_broken_weights_of_the_own_folder_give_way_to_none_and_shipped_ones_to_own(tmp_path):
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    for folder in (shipped, own):
        Store(folder, None).put(made(ROPE).result, made(ROPE).model)
    (shipped / f"{ROPE.key}.safetensors").write_bytes(b"broken")
    assert measured(ROPE, Store(own, shipped).model(ROPE))[0] == made(ROPE).result.loss


# ------------------------------------------------------------------ runs that were left


def left_at(run, step, base=None):
    execution = Execution(run, base)
    for progress in execution.steps():
        if progress.step == step:
            break
    return execution


@each
@pytest.mark.parametrize("step", [1, 7])
def test_a_run_that_was_left_goes_on_to_the_same_result(run, step, tmp_path):
    store = Store(tmp_path, None)
    store.save_state(run.key, left_at(run, step).state_dict())
    torch.manual_seed(99)  # another process would not be where this one is
    execution = Execution(run, state=store.state(run.key))
    steps = [p.step for p in execution if p.phase != "measuring"]
    assert steps[0] == step + 1
    assert plain(execution.result) == plain(made(run).result)
    for name, value in made(run).model.state_dict().items():
        assert torch.equal(value, execution.model.state_dict()[name]), name


@pytest.mark.parametrize("with_base", [False, True])
def test_a_run_left_in_its_fine_tuning_goes_on_too(with_base, tmp_path):
    run = RUNS["hybrid, extended"]
    base = made(run.base).model if with_base else None
    step = 3 if with_base else TINY.steps + 3
    left, store = left_at(run, step, base), Store(tmp_path, None)
    store.save_state(run.key, left.state_dict())
    assert store.state(run.key)["phase"] == "fine-tuning"
    execution = Execution(run, state=store.state(run.key))
    phases = [(p.phase, p.step) for p in execution]
    assert phases == [("fine-tuning", step + 1 + i) for i in range(3)] + [("measuring", step + 3)]
    assert plain(execution.result) == plain(made(run).result)


def test_a_state_goes_once_the_result_is_there_or_it_is_dropped(tmp_path):
    store, state = Store(tmp_path, None), left_at(ROPE, 2).state_dict()
    store.save_state(ROPE.key, state)
    store.put(made(ROPE).result, made(ROPE).model)
    assert store.state(ROPE.key) is None
    store.save_state(ROPE.key, state)
    store.drop_state(ROPE.key)
    store.drop_state(ROPE.key)
    assert store.state(ROPE.key) is None
    store.save_state(ROPE.key, {})  # nothing to keep before the first step
    assert not (tmp_path / f"{ROPE.key}.state").exists()


# ------------------------------------------------------------------ bounds and many writers


def test_the_ones_not_read_for_longest_go_first(tmp_path):
    store, now = Store(tmp_path, None), time.time()
    for i in range(MOST_KEPT):
        for ending in ("json", "safetensors", "state") if i % 2 else ("state",):
            path = tmp_path / f"{i:032x}.{ending}"
            path.touch()
            os.utime(path, (now - 10_000 + i,) * 2)
    (tmp_path / "readme.txt").touch()
    os.utime(tmp_path / "readme.txt", (0, 0))
    store.put(made(ROPE).result, made(ROPE).model)
    assert {p.stem for p in tmp_path.iterdir()} == {f"{i:032x}" for i in range(1, MOST_KEPT)} | {ROPE.key, "readme"}
    os.utime(tmp_path / f"{ROPE.key}.safetensors", (0, 0))
    os.utime(tmp_path / f"{ROPE.key}.json", (0, 0))
    assert store.get(ROPE.key) == made(ROPE).result  # which makes it the newest
    learned = RUNS["learned"]
    store.put(made(learned).result, made(learned).model)
    assert not list(tmp_path.glob(f"{1:032x}.*"))
    assert {p.stem for p in tmp_path.iterdir()} >= {f"{2:032x}", ROPE.key, learned.key}


def test_files_that_a_killed_writer_left_go_too(tmp_path):
    for name, age in (("new-old", STALE + 60), ("new-young", 60)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    Store(tmp_path, None).put(made(ROPE).result, made(ROPE).model)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [f"{ROPE.key}.json", f"{ROPE.key}.safetensors", "new-young"]
    )


def test_a_writer_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    store = Store(tmp_path, None)
    store.put(made(ROPE).result, made(ROPE).model)

    def full(data, path):
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr("posenc_core.lab_store.save_file", full)
    with pytest.raises(OSError, match="no space"):
        store.put(made(ROPE).result, made(ROPE).model)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([f"{ROPE.key}.json", f"{ROPE.key}.safetensors"])
    assert measured(ROPE, store.model(ROPE))[0] == made(ROPE).result.loss


def test_writers_and_readers_at_once(tmp_path):
    """Two processes write the same two runs again and again while this one reads: it never sees half a file."""
    runs = [ROPE, RUNS["learned"]]
    store = Store(tmp_path, None)
    for run in runs:
        store.put(made(run).result, made(run).model)
    code = (
        "import sys; from pathlib import Path; from posenc_core.lab import Run, parse_schemes, Setting; "
        "from posenc_core.lab_store import Store; s = Store(Path(sys.argv[1]), None); "
        f"runs = [Run(*parse_schemes(n), Setting(width=16, train_length=16, steps={TINY.steps})) "
        "for n in ('rope', 'learned')]; both = [(s.get(r.key), s.model(r)) for r in runs]; print('go', flush=True); "
        "[s.put(*pair) for _ in range(100) for pair in both]"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [w.stdout.readline() for w in writers] == ["go\n"] * 2
    reads = 0
    while any(w.poll() is None for w in writers):
        for run in runs:
            assert store.get(run.key) == made(run).result
            assert store.model(run) is not None
        reads += 1
    assert [w.wait(60) for w in writers] == [0, 0]
    assert reads > 1
    assert {p.stem for p in tmp_path.iterdir()} == {r.key for r in runs}


# ------------------------------------------------------------------ files of other people, broken files, limits


def test_other_files_in_the_folder_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(lab_store, "MOST_KEPT", 2)
    foreign = [tmp_path / name for name in ("mine.safetensors", "notes.json", "run1.state", "abc.txt")]
    for path in foreign:
        path.write_text("mine")
        os.utime(path, (1, 1))
    store = Store(tmp_path, None)
    for seed in range(4):
        store.save_state(f"{seed:032x}", {name: 0 for name in lab_store.STATE})
        os.utime(tmp_path / f"{seed:032x}.state", (100 + seed, 100 + seed))
    assert all(path.read_text() == "mine" for path in foreign)
    assert len([p for p in tmp_path.glob("*.state") if lab_store.KEY.fullmatch(p.stem)]) == 2


def test_states_are_bounded_by_their_size_too(tmp_path, monkeypatch):
    store, state = Store(tmp_path, None), {name: torch.zeros(1000) for name in lab_store.STATE}
    store.save_state("0" * 32, state)
    os.utime(tmp_path / f"{'0' * 32}.state", (1, 1))
    monkeypatch.setattr(lab_store, "MOST_BYTES", 2.5 * (tmp_path / f"{'0' * 32}.state").stat().st_size)
    for seed in range(1, 5):
        store.save_state(f"{seed:032x}", state)
        os.utime(tmp_path / f"{seed:032x}.state", (100 + seed, 100 + seed))
    assert sorted(int(p.stem, 16) for p in tmp_path.glob("*.state")) == [3, 4]


def test_a_state_of_something_else_is_none(tmp_path):
    torch.save({"step": 3}, tmp_path / f"{'a' * 32}.state")
    torch.save([1], tmp_path / f"{'b' * 32}.state")
    assert Store(tmp_path, None).state("a" * 32) is None
    assert Store(tmp_path, None).state("b" * 32) is None


@pytest.mark.parametrize(
    "change",
    [{"loss": ["a"] * 128}, {"loss": [1.0]}, {"loss": [math.nan] * 128}, {"accuracy": [0.5] * 127}, {"machine": None},
     {"loss": [1.0] * 129, "accuracy": [1.0] * 129}, {"slopes": ["x"]}, {"curve": [[1]]}],
    ids=str,
)  # fmt: skip
def test_a_result_of_something_else_is_none(change):
    data = next(iter(Store(None).shipped.values())).to_mapping()
    assert lab_store.read_result(json.dumps(data)) is not None
    assert lab_store.read_result(json.dumps(data | change)) is None


# ------------------------------------------------------------------ what ships

SHIPPED = Store(None).shipped


def shipped_run(result):
    return Run(result.spec, result.setting, result.seed)


def test_every_shipped_result_stands_under_its_runs_key():
    assert len(SHIPPED) > 150
    for key, result in SHIPPED.items():
        run = shipped_run(result)
        assert run.key == key == result.key


@pytest.mark.parametrize(
    ("scheme", "task"), [("rope", "text"), ("rope(rotary_fraction=0.5)", "recall"), ("alibi", "token_back")]
)
def test_shipped_weights_have_the_losses_that_are_recorded(scheme, task):
    run = Run(parse_schemes(scheme)[0], Setting(task=task))
    result, model = Store(None).get(run.key), Store(None).model(run)
    assert result is not None
    assert model is not None
    loss, accuracy = measure(run, model, run.setting.make_task(run.corpus))
    for found, recorded in ((loss, result.loss), (accuracy, result.accuracy)):
        expected = [math.nan if x is None else x for x in recorded]
        assert found.tolist() == pytest.approx(expected, abs=2e-3, nan_ok=True)


def test_what_ships_is_small():
    assert sum(p.stat().st_size for p in (ROOT / "assets" / "lab").iterdir()) < 5_000_000
