import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache

import pytest
from support import ROOT, within

from posenc_core import sweep
from posenc_core.lab import DEFAULT_SCHEMES, Run, Setting, groups, measure, parse_schemes, perform, runs
from posenc_core.lab_store import Store
from posenc_core.spec import SpecError
from posenc_core.sweep import ResultFile, RunFailed, main, table

TINY = Setting(width=16, train_length=16, steps=10)
SIZES = ("--width", "16", "--steps", "10", "--lengths", "16")
SEEDS = ",".join(map(str, range(12)))
EXTENDED = TINY.replace(extension="yarn", times=2, finetune_steps=5)
WANTED = [
    *runs(parse_schemes("alibi"), TINY, [1])[0],
    *runs(parse_schemes("rope"), EXTENDED, [1])[0],
    *runs(parse_schemes("none"), TINY.replace(task="recall"), [1])[0],
]


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard():
    """A shell's background jobs ignore it, and so would all that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@cache
def direct(run):
    """The run by `perform`, without what differs from one time to the next."""
    return plain(perform([run])[0])


def plain(result):
    return replace(result, seconds=0.0, machine={})


@contextmanager
def threads(count):
    with ThreadPoolExecutor(count) as executor:
        yield executor


class AtOnce(Executor):
    """Works while submitting: everything is done before the first result is looked at."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_running_or_notify_cancel()
        future.set_result(fn(*args, **kwargs))
        return future


class Never(Executor):
    """Takes work, starts none."""

    def __init__(self):
        self.futures = []

    def submit(self, fn, /, *args, **kwargs):
        self.futures.append(Future())
        return self.futures[-1]


@pytest.fixture
def here(monkeypatch):
    """The command line works in this process, in threads."""
    monkeypatch.setattr(sweep, "processes", threads)


def lines_of(path):
    assert path.read_bytes().endswith(b"\n")
    return [json.loads(line) for line in path.read_text().splitlines()]


def keys_of(path):
    return [line["key"] for line in lines_of(path)]


def keys(schemes, setting, seeds):
    return {r.key for r in runs(parse_schemes(schemes), setting, seeds)[0]}


# ------------------------------------------------------------------ executors


KINDS = {"at once": AtOnce, "threads": lambda: threads(3), "processes": lambda: sweep.processes(1)}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_executor_makes_what_perform_makes(kind):
    shuffled = random.Random(1).sample(WANTED, len(WANTED))
    made = []
    with kind() as executor:
        sweep.sweep(shuffled, executor, made.append)
    assert sorted(len(group) for group in made) == [1, 1, 2]  # the extension with the training it starts from
    found = {r.key: plain(r) for group in made for r in group}
    assert found == {r.key: direct(r) for r in WANTED}
    assert multiprocessing.active_children() == []


def test_long_runs_start_first():
    executor, started = AtOnce(), []
    executor.submit = lambda fn, group, *_: started.append([r.key for r in group]) or Future()
    wanted = [Run(r.spec, r.setting.replace(train_length=n), r.seed) for n in (16, 64, 32) for r in WANTED[:2]]
    with pytest.raises(TimeoutError), within(1):
        sweep.sweep(wanted, executor, print)
    lengths = {r.key: r.setting.train_length for r in wanted}
    assert [lengths[group[0]] for group in started] == [64, 64, 32, 32, 16, 16]


def test_what_is_made_is_handed_over_when_the_sweep_is_interrupted():
    made = []

    def interrupted(results):
        made.extend(results)
        if len(made) < 2:
            raise KeyboardInterrupt

    alone = [g[0] for g in groups(WANTED)]
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(alone, AtOnce(), interrupted)
    assert {r.key for r in made} == {r.key for r in alone}


def test_what_waits_is_cancelled_when_the_sweep_is_interrupted():
    executor = Never()

    def interrupt():
        while len(executor.futures) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(WANTED, executor, print)
    thread.join()
    assert [f.cancelled() for f in executor.futures] == [True] * 3


def test_a_worker_where_runs_have_other_keys_makes_nothing(monkeypatch):
    monkeypatch.setattr(sweep, "perform", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(sweep.OtherWorker, match="has another version of posenc_core"):
        sweep.make([WANTED[0]], [WANTED[1].key], 1, None)


# ------------------------------------------------------------------ the command line


def test_a_sweep_and_its_table(here, tmp_path, capsys):
    path = tmp_path / "new" / "folder" / "out.jsonl"
    assert main(["--json", str(path), "--schemes", "rope,alibi,learned", "--seeds", "0,1", *SIZES]) == 0
    assert {line["key"] for line in lines_of(path)} == keys("rope,alibi,learned", TINY, [0, 1])
    assert len(lines_of(path)) == 6
    out, err = capsys.readouterr()
    assert "6/6" in err
    heading, columns, *rows = out.splitlines()
    assert heading == "text, length 16, steps 10, width 16: loss in nats a byte at times the length"
    assert columns.split() == ["1×", "2×", "4×", "8×", "16×", "seconds", "seeds"]
    assert {row.split()[0] for row in rows} == {"rope", "alibi", "learned"}
    for row in rows:
        name, *numbers, seconds, count = row.split()
        same = [line for line in lines_of(path) if line["spec"]["scheme"] == name]
        assert len(same) == int(count) == 2
        for number, times in zip(numbers, (1, 2, 4, 8, 16), strict=True):
            last = [x for line in same for x in line["loss"][8 * times - 4 : 8 * times]]  # bins of an eighth
            if name == "learned" and times > 1:
                assert number == "–"
            else:
                assert float(number) == pytest.approx(sum(last) / len(last), abs=6e-4)
        assert float(seconds) == pytest.approx(sum(line["seconds"] for line in same) / 2, abs=0.06)


def test_what_is_there_is_not_made_again_and_other_runs_join(here, tmp_path, capsys, monkeypatch):
    path = tmp_path / "out.jsonl"
    assert main(["--json", str(path), "--schemes", "rope", "--seeds", "0,1", "--quiet", *SIZES]) == 0
    before = path.read_bytes()
    performed = []
    monkeypatch.setattr(sweep, "perform", lambda group, threads: performed.extend(group) or perform(group, threads))
    assert main(["--json", str(path), "--schemes", "rope", "--seeds", "1,0,1", "--quiet", *SIZES]) == 0
    assert (path.read_bytes(), performed) == (before, [])
    assert main(["--json", str(path), "--schemes", "alibi,rope", "--seeds", "1,2", *SIZES]) == 0
    assert path.read_bytes().startswith(before)
    assert {r.key for r in performed} == keys("alibi", TINY, [1, 2]) | keys("rope", TINY, [2])
    assert sorted(keys_of(path)) == sorted(keys("rope", TINY, [0, 1, 2]) | keys("alibi", TINY, [1, 2]))
    assert "25%" in capsys.readouterr().err  # one of four was there


def test_an_extension_alone_is_made_when_its_base_is_there(here, tmp_path, capsys):
    path = tmp_path / "out.jsonl"
    more = ["--extension", "yarn", "--finetune-steps", "5"]
    assert main(["--json", str(path), "--schemes", "rope", "--seeds", "1", "--quiet", *SIZES]) == 0
    assert main(["--json", str(path), "--schemes", "rope", "--seeds", "1", "--quiet", *SIZES, *more]) == 0
    with ResultFile(path) as file:
        assert {key: plain(r) for key, r in file.results.items()} == {r.key: direct(r) for r in WANTED[1:3]}
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert [row.rpartition(" steps ")[0] or row.split()[0] for row in rows] == ["rope", "rope, yarn ×2, 5"]


def test_several_lengths_and_tasks(here, tmp_path, capsys):
    path = tmp_path / "out.jsonl"
    arguments = ["--json", str(path), "--schemes", "none", "--seeds", "0", "--width", "16", "--steps", "10"]
    more = ["--lengths", "16, 24", "--task", "token_back,text", "--back", "3", "--quiet"]
    assert main(arguments + more) == 0
    wanted = [
        Run(*parse_schemes("none"), Setting(width=16, steps=10, train_length=length, task=task, **fields))
        for length in (16, 24)
        for task, fields in (("text", {}), ("token_back", {"back": 3}))
    ]
    assert sorted(keys_of(path)) == sorted(r.key for r in wanted)
    headings = [line for line in capsys.readouterr().out.splitlines() if "length" in line]
    assert [h.partition(":")[0] for h in headings] == [
        f"{task}, length {length}, steps 10, width 16" for task in ("token_back 3", "text") for length in (16, 24)
    ]
    assert ["accuracy" in h for h in headings] == [True, True, False, False]


def wanted_of(*arguments):
    return sweep._wanted(sweep._parser().parse_args(["--json", "x", *arguments]))


def test_the_defaults_are_the_lab_pages():
    assert {r.key for r in wanted_of()} == keys(DEFAULT_SCHEMES, Setting(), [0, 1, 2])
    every = {r.setting.task for r in wanted_of("--task", "all")}
    assert every == set(Setting.param("task").choices)


FIELDS = [p for p in Setting.params() if p.name not in ("task", "train_length")]


@pytest.mark.parametrize("p", FIELDS, ids=lambda p: p.name)  # fmt: skip
def test_every_field_is_an_option(p):
    value = next(str(v) for v in (*p.choices, *p.ticks, 1.5) if v not in (p.default, "none"))
    needs = {"back": ("--task", "token_back"), "alpha": ("--slope-training", "dynamic")}
    needs |= dict.fromkeys(("times", "finetune_steps"), ("--extension", "ntk"))
    made = wanted_of("--schemes", "alibi+rope", "--" + p.name.replace("_", "-"), value, *needs.get(p.name, ()))
    assert {str(getattr(r.setting, p.name)) for r in made} - {str(p.default)} == {value}
    assert p.meaning.split()[0] in sweep._parser().format_help()


def test_own_text(here, tmp_path):
    text, path = tmp_path / "own.txt", tmp_path / "out.jsonl"
    text.write_text("The sea — it is wide, and nobody knows how deep it is. " * 40, encoding="utf-8")
    assert main(["--json", str(path), "--text", str(text), "--schemes", "rope", "--seeds", "0", "--quiet", *SIZES]) == 0
    run = Run(*parse_schemes("rope"), TINY, text=text.read_text(encoding="utf-8"))
    with ResultFile(path) as file:
        assert {key: plain(r) for key, r in file.results.items()} == {run.key: direct(run)}


def test_the_weights_are_those_of_the_results(here, tmp_path):
    path, weights = tmp_path / "out.jsonl", tmp_path / "weights"
    arguments = ["--schemes", "rope", "--extension", "yarn", "--finetune-steps", "5", "--seeds", "1", "--quiet"]
    assert main(["--json", str(path), "--weights", str(weights), *arguments, *SIZES]) == 0
    with ResultFile(path) as file:
        assert {key: plain(r) for key, r in file.results.items()} == {r.key: direct(r) for r in WANTED[1:3]}
        assert sorted(p.name for p in weights.iterdir()) == sorted(f"{key}.safetensors" for key in file.results)
        for run in WANTED[1:3]:
            loss, _ = measure(run, Store(weights, None).model(run), run.setting.make_task(run.corpus))
            assert tuple(round(x, 4) for x in loss.tolist()) == file.results[run.key].loss


def test_the_claims_bring_their_runs():
    table = pytest.importorskip("posenc_core.claims_table")
    assert {r.key for r in wanted_of("--claims")} == {r.key for r in table.needed_runs()}


# ------------------------------------------------------------------ arguments that are refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--schemes rpoe", "'rpoe'"),
        ("--schemes rope(base=0)", "base = 0.0 is not legal; legal: a number from 1.001 to 1e+12"),
        ("--schemes ,", "schemes = ',' is not legal (0 given); legal: 1 to 16 schemes"),
        ("--schemes rope+alibi+none", "schemes = 'rope+alibi+none' is not legal; legal: at most 2 layers"),
        ("--lengths 15", "lengths = 15 is not legal; legal: a whole number from 16 to 512 in steps of 8"),
        ("--lengths 64,1024", "lengths = 1024 is not legal; legal: a whole number from 16 to 512"),
        ("--lengths 64,abc", "lengths = 'abc' is not legal; legal: a whole number from 16 to 512"),
        ("--lengths ,", "lengths = ',' is not legal; legal: a length"),
        ("--seeds -1", "seeds = -1 is not legal; legal: whole numbers from 0 to 2,147,483,647"),
        ("--seeds 1,x", "seeds = 'x' is not legal; legal: whole numbers from 0 to 2,147,483,647"),
        ("--seeds=", "seeds = '' is not legal; legal: a seed"),
        ("--task texts", "task = 'texts' is not legal; legal: one of text, short_texts"),
        ("--task text,all", "task = 'all' is not legal; legal: one of text, short_texts"),
        ("--steps 5", "steps = 5 is not legal; legal: a whole number from 10 to 20,000"),
        ("--steps nan", "steps = 'nan' is not legal; legal: a whole number from 10 to 20,000"),
        ("--width 17", "width = 17 is not legal; legal: a whole number from 16 to 256 in steps of 8"),
        ("--back 4", "back = 4 is not legal (task is text); legal: read only while task is token_back"),
        ("--task token_back --back 99", "back = 99 is not legal; legal: a whole number from 1 to 64"),
        ("--alpha 0.7", "alpha = 0.7 is not legal (slope_training is fixed); legal: read only while"),
        ("--extension rope", "extension = 'rope' is not legal; legal: one of off, none, linear"),
        ("--extension yarn --schemes rope,learned --finetune-steps 5", "learned has no rows past the training length"),
        ("--times 4", "times = 4 is not legal (extension is off); legal: read only while"),
        ("--workers 0", "argument --workers: '0' is not legal; legal: a whole number from 1 to 1,024"),
        ("--workers many", "argument --workers: 'many' is not legal; legal: a whole number from 1"),
        ("--threads 99999999999", "argument --threads: '99999999999' is not legal; legal: a whole number from 1"),
        ("--text missing.txt", "text = 'missing.txt' is not legal (No such file or directory); legal: a text file"),
        ("--text .", "text = '.' is not legal (Is a directory); legal: a text file"),
        ("--text empty.txt", "text = 'empty.txt' is not legal (it is empty); legal: a text file"),
        ("--text short.txt", "is not legal (it has 10); legal: at least 1,290 bytes"),
        ("--text latin.txt", "text = 'latin.txt' is not legal (it is not UTF-8); legal: a text file"),
        ("--text short.txt --task copy,recall", "legal: left out, or a task that reads it: text, short_texts"),
        ("--claims --steps 20 --schemes rope", "claims = True is not legal; legal: without --schemes, --steps"),
        ("--dask tcp://127.0.0.1:9 --workers 2", "workers = '2' is not legal; legal: left out with --dask"),
        ("--dask tcp://127.0.0.1:9 --weights w", "weights = 'w' is not legal; legal: left out with --dask"),
        ("--dask nonsense://x", "dask = 'nonsense://x' is not legal"),
        ("--step 20", "unrecognized arguments: --step 20"),
    ],
)
def test_arguments_that_are_refused(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "sweep", lambda *_: pytest.fail("it began"))
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("0123456789")
    (tmp_path / "latin.txt").write_bytes("ä".encode("latin-1"))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as caught:
        main(["--json", "out/x.jsonl", *arguments.split()])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count(" is not legal") <= 1  # said once, not once a scheme and seed
    assert sorted(tmp_path.iterdir()) == before


def test_without_dask_installed_the_option_says_how_to_get_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SystemExit) as caught:
        main(["--json", str(tmp_path / "x"), "--dask", "tcp://127.0.0.1:1"])
    assert caught.value.code == 2
    assert "pip install '.[dask]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the file


@cache
def two_lines():
    return [json.dumps(direct(r).to_mapping()).encode() + b"\n" for r in WANTED[:2]]


def test_a_last_line_that_was_cut_is_cut_off(tmp_path):
    path, (first, second) = tmp_path / "out.jsonl", two_lines()
    for end in [*range(1, 20), len(second) // 2, len(second) - 2]:
        path.write_bytes(first + second[:end])
        with ResultFile(path) as file:
            assert set(file.results) == {WANTED[0].key}
            assert path.read_bytes() == first
            file.add([direct(WANTED[1]), direct(WANTED[0])])
        assert path.read_bytes() == first + second


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path):
    path, (first, second) = tmp_path / "out.jsonl", two_lines()
    path.write_bytes(first + second[:-1])
    with ResultFile(path) as file:
        assert set(file.results) == {r.key for r in WANTED[:2]}
    assert path.read_bytes() == first + second


def test_reading_gives_what_was_added(tmp_path):
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as file:
        file.add([direct(r) for r in WANTED])
        assert len(lines_of(path)) == len(WANTED)  # before it is closed
    with ResultFile(path) as file:
        assert file.results == {r.key: direct(r) for r in WANTED}
    path.write_bytes(path.read_bytes() * 2 + b"\n \n")
    with ResultFile(path) as file:
        assert file.results == {r.key: direct(r) for r in WANTED}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"my notes", 1),
        (b"my notes\n", 1),
        (b'{"key": "half a line\n', 1),
        (b'{"key": "x"}\n', 1),
        (b"[1, 2]\n", 1),
        (b"[" * 100_000 + b"\n", 1),
        (b"\x89PNG\r\n\x1a\n\0\0\xff", 1),
        (b"GOOD\nmy notes\n", 2),
        (b"GOOD\nmy notes", 2),
        (b"GOOD\n{\nGOOD\n", 2),
    ],
    ids=lambda x: repr(x)[:20],
)
def test_a_file_that_is_something_else_is_refused_and_left_alone(content, line, tmp_path, capsys):
    path = tmp_path / "notes.txt"
    content = content.replace(b"GOOD\n", two_lines()[0])
    path.write_bytes(content)
    with pytest.raises(SystemExit) as caught:
        main(["--json", str(path), "--schemes", "none"])
    assert caught.value.code == 2
    assert (
        f"is not legal (its line {line} is no result of the lab); legal: a file that a sweep" in capsys.readouterr().err
    )
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_written_is_refused(tmp_path, capsys):
    (tmp_path / "file").touch()
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "file" / "x", "Not a directory|File exists")):
        with pytest.raises(SpecError, match=rf"json = .* is not legal \(({reason})\); legal: "):
            ResultFile(path)


def test_two_sweeps_do_not_write_one_file(tmp_path):
    with ResultFile(tmp_path / "out") as file:
        with pytest.raises(SpecError, match="another sweep is writing it"):
            ResultFile(tmp_path / "out")
        file.add([direct(WANTED[0])])
    with ResultFile(tmp_path / "out") as file:
        assert set(file.results) == {WANTED[0].key}


def test_an_empty_table():
    assert table([]) == ""


# ------------------------------------------------------------------ what goes wrong on the way


def test_a_run_that_fails_is_named_and_the_others_are_kept(here, tmp_path, capsys, monkeypatch):
    def failing(group, threads):
        if group[0].label == "alibi":
            raise MemoryError("no memory for\n8 GiB")
        return perform(group, threads)

    monkeypatch.setattr(sweep, "perform", failing)
    path, arguments = tmp_path / "out.jsonl", ["--schemes", "rope,alibi", "--seeds", "0", "--quiet", "--workers", "1"]
    assert main(["--json", str(path), *arguments, *SIZES]) == 1
    error = capsys.readouterr().err.splitlines()
    assert error[-1] == (
        "alibi, text, length 16, seed 0: MemoryError: no memory for 8 GiB: "
        "1 of 2 runs done, run the same command to go on"
    )
    assert set(keys_of(path)) == keys("rope", TINY, [0])
    monkeypatch.setattr(sweep, "perform", perform)
    assert main(["--json", str(path), *arguments, *SIZES]) == 0
    assert sorted(keys_of(path)) == sorted(keys("rope,alibi", TINY, [0]))


def test_a_failing_extension_is_named_with_its_base():
    executor = AtOnce()

    def submit(fn, /, *args):
        future = Future()
        future.set_exception(ValueError("x"))
        return future

    executor.submit = submit
    with pytest.raises(RunFailed, match=r"^rope, text, .* \(with rope, yarn ×2, 5 steps\): ValueError: x"):
        sweep.sweep(WANTED[1:3], executor, print)


def test_runs_that_the_executor_cancels(tmp_path, capsys, monkeypatch):
    """As Dask does once its scheduler is gone."""

    class Gone(Never):
        def submit(self, fn, /, *args, **kwargs):
            future = super().submit(fn, *args, **kwargs)
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    monkeypatch.setattr(sweep, "processes", lambda count: nullcontext(Gone()))
    assert main(["--json", str(tmp_path / "x"), "--schemes", "none", "--seeds", "0,1", "--quiet", *SIZES]) == 1
    assert "lost its scheduler, or somebody cancelled a run there: 0 of 2 runs done" in capsys.readouterr().err


def test_a_disk_that_takes_no_more_is_said(here, tmp_path, capsys):
    path, limits = tmp_path / "out.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(two_lines()[0]) + 500, limits[1]))
    try:
        status = main(["--json", str(path), "--schemes", "none", "--seeds", "0,1", "--quiet", "--workers", "1", *SIZES])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 1
    assert "File too large: 1 of 2 runs done, run the same command to go on" in capsys.readouterr().err
    assert main(["--json", str(path), "--schemes", "none", "--seeds", "0,1", "--quiet", *SIZES]) == 0
    assert set(keys_of(path)) == keys("none", TINY, [0, 1])


def test_a_worker_process_that_is_killed(tmp_path, capsys, monkeypatch):
    path, add = tmp_path / "out.jsonl", ResultFile.add

    def add_and_kill(file, results):
        add(file, results)
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)

    monkeypatch.setattr(ResultFile, "add", add_and_kill)
    arguments = ["--json", str(path), "--schemes", "rope", "--seeds", SEEDS, "--quiet", "--workers", "1", *SIZES]
    assert main(arguments) == 1
    done = len(lines_of(path))
    assert 1 <= done < 12
    assert f"a worker process died: {done} of 12 runs done, run the same command to go on" in capsys.readouterr().err
    wait_for(lambda: not multiprocessing.active_children())


def start(*arguments):
    """The command as a shell starts it: a group of processes of its own, which a terminal's Ctrl-C goes to."""
    return subprocess.Popen(
        [sys.executable, "-m", "posenc_core.lab", *arguments], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def complete_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def gone(group):
    """Whether no process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_interrupted_then_killed_then_finished(here, tmp_path, capsys):
    path = tmp_path / "out.jsonl"
    arguments = ["--json", str(path), "--schemes", "none", "--seeds", SEEDS, "--workers", "1", *SIZES]
    command = start(*arguments)
    wait_for(lambda: complete_lines(path) >= 1)
    os.killpg(command.pid, signal.SIGINT)
    out, err = command.communicate(timeout=30)
    done = complete_lines(path)
    assert (command.returncode, done < 12) == (130, True), err
    assert f"interrupted: {done} of 12 runs done, run the same command to go on" in err
    assert "Traceback" not in err
    assert sum(int(row.split()[-1]) for row in out.splitlines()[2:]) == done
    wait_for(lambda: gone(command.pid))

    before = path.read_bytes()
    command = start(*arguments)
    wait_for(lambda: complete_lines(path) >= done + 1)
    os.kill(command.pid, signal.SIGKILL)
    command.communicate(timeout=30)
    wait_for(lambda: gone(command.pid))  # its workers follow
    assert path.read_bytes().startswith(before)

    with path.open("ab") as file:
        file.write(two_lines()[0][:-40])  # as if it had been killed while it wrote
    assert main(arguments) == 0
    assert "12/12" in capsys.readouterr().err
    assert len(lines_of(path)) == 12
    wanted = runs(parse_schemes("none"), TINY, range(12))[0]
    with ResultFile(path) as file:
        assert {key: plain(r) for key, r in file.results.items()} == {r.key: direct(r) for r in wanted}


# ------------------------------------------------------------------ Dask


class Cluster:
    """A scheduler on loopback, and workers as processes that a kill kills."""

    def __init__(self, folder):
        self.folder, self.running, self.workers = folder, [], []
        self._start("scheduler", "--port", "0", "--scheduler-file", str(folder / "scheduler.json"))
        wait_for(lambda: (folder / "scheduler.json").exists() and (folder / "scheduler.json").read_text().endswith("}"))
        self.address = json.loads((folder / "scheduler.json").read_text())["address"]

    def _start(self, what, *arguments, path=(ROOT,)):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + what, *arguments, "--host", "127.0.0.1", "--no-dashboard"],
            cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.running.append(process)
        return process

    def worker(self, name, **more):
        made = self._start("worker", self.address, "--no-nanny", "--nthreads", "1", "--name", name,
                           "--local-directory", str(self.folder), **more)  # fmt: skip
        self.workers.append(made)
        return made

    def close(self):
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("distributed")
    made = Cluster(tmp_path_factory.mktemp("dask"))
    made.worker("first")
    made.worker("second")
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore")
def test_dask_loses_nothing_when_a_worker_is_killed(cluster, tmp_path, monkeypatch, capsys):
    from distributed import Client

    path, add, killed = tmp_path / "out.jsonl", ResultFile.add, []

    def add_and_kill(file, results):
        add(file, results)
        doing = [len(tasks) for tasks in client.processing().values()]
        if not killed and min(doing) > 0:  # both are at work
            killed.append((len(file.results), doing))
            cluster.workers[0].kill()
            cluster.workers[0].wait()

    monkeypatch.setattr(ResultFile, "add", add_and_kill)
    arguments = ["--json", str(path), "--schemes", "rope,alibi", "--seeds", "0,1,2", "--dask", cluster.address]
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=30)
        assert main([*arguments, *SIZES]) == 0
        deadline = time.monotonic() + 30  # the client learns of a lost worker a moment later
        while len(client.scheduler_info()["workers"]) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(client.scheduler_info()["workers"]) == 1
    [(done, doing)] = killed
    assert len(doing) == 2
    assert done + sum(doing) <= 6
    assert done <= 4
    wanted = runs(parse_schemes("rope,alibi"), TINY, [0, 1, 2])[0]
    assert len(lines_of(path)) == 6
    with ResultFile(path) as file:
        assert {key: plain(r) for key, r in file.results.items()} == {r.key: direct(r) for r in wanted}
    assert "6/6" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_dask_refuses_a_worker_with_another_version(cluster, tmp_path, capsys):
    """One whose recipe is another."""
    from distributed import Client

    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import posenc_core.lab\nposenc_core.lab.RECIPE += 1\n")
    with Client(cluster.address, set_as_default=False) as client:
        for worker in cluster.workers:
            worker.kill()
            worker.wait()
        cluster.worker("other", path=(other, ROOT))
        client.wait_for_workers(1, timeout=30)
    path = tmp_path / "out.jsonl"
    arguments = ["--json", str(path), "--schemes", "none", "--seeds", "0,1", "--dask", cluster.address]
    assert main([*arguments, *SIZES, "--quiet"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "has another version of posenc_core" in error
    assert error.endswith("0 of 2 runs done, run the same command to go on")
    assert path.read_bytes() == b""


def test_dask_where_there_is_none(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(sweep, "CONNECT_SECONDS", 0.5)
    with pytest.raises(SystemExit) as caught:
        main(["--json", str(tmp_path / "x"), "--dask", "tcp://127.0.0.1:9"])
    assert caught.value.code == 2
    assert "dask = 'tcp://127.0.0.1:9' is not legal" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["bogus", "http://x:1", "tcp://host", "tcp://a b:1"])
def test_an_address_that_is_none_is_refused_at_once(address, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--schemes", "none", "--seeds", "0", *SIZES, "--json", str(tmp_path / "out.jsonl"), "--dask", address])
    assert caught.value.code == 2
    assert "is not legal; legal: the address of a running scheduler" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_a_folder_for_weights_that_is_a_file_is_refused_before_training(tmp_path, capsys):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(SystemExit) as caught:
        main(
            [
                "--schemes",
                "none",
                "--seeds",
                "0",
                *SIZES,
                "--json",
                str(tmp_path / "out.jsonl"),
                "--weights",
                str(tmp_path / "taken"),
            ]
        )
    assert caught.value.code == 2
    assert "weights = " in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_weights_that_are_missing_are_made_though_the_result_is_there(tmp_path):
    out, folder = tmp_path / "out.jsonl", tmp_path / "weights"
    assert main(["--schemes", "none", "--seeds", "0", *SIZES, "--json", str(out), "--quiet"]) == 0
    before = out.read_bytes()
    assert (
        main(["--schemes", "none", "--seeds", "0", *SIZES, "--json", str(out), "--quiet", "--weights", str(folder)])
        == 0
    )
    assert out.read_bytes() == before
    keys = {json.loads(line)["key"] for line in before.splitlines()}
    assert {p.stem for p in folder.glob("*.safetensors")} == keys


def test_line_ends_of_a_text_are_part_of_it(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"one line\r\n" * 200)
    assert sweep._text(path, ["text"]) == "one line\r\n" * 200
