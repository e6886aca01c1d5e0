"""Sweeps of the lab: many runs on any concurrent.futures.Executor, kept in a file that survives an interruption.

    python -m posenc_core.lab --schemes rope,alibi --lengths 64,128 --seeds 0,1,2 --json out.jsonl

Linux and macOS.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm

from posenc_core.lab import (
    DEFAULT_SCHEMES,
    MAX_SEED,
    MEASURED,
    Result,
    Run,
    Setting,
    groups,
    metric_of,
    parse_schemes,
    perform,
    runs,
)
from posenc_core.lab_store import Store, read_result
from posenc_core.spec import Param, Problem, SpecError
from posenc_core.tasks import TASKS, TEXTS

MOST = 1024  # processes, or threads
START = b'{"key": "'  # of every line of a result file
CONNECT_SECONDS = 10
ELSEWHERE = ("task", "train_length", "back", "extension", "times", "finetune_steps")  # in a table's words and labels
OWN_OPTIONS = {"task": "--task", "train_length": "--lengths"}  # fields that take several values


class RunFailed(RuntimeError):
    """A run raised an error, which is the cause."""


class OtherWorker(RuntimeError):
    """A worker that would make other results than these runs have."""


# ------------------------------------------------------------------ anywhere


def sweep(
    wanted: Sequence[Run],
    executor: Executor,
    on_results: Callable[[list[Result]], None],
    threads: int = 1,
    weights: Path | None = None,
) -> None:
    """Make runs on an executor; `on_results` gets, here, those that shared a training, as soon as they are made.

    Long ones start first. `threads` is torch's of a run. `weights`: a folder where the workers keep what they trained.
    The first error ends the sweep: what waits is cancelled (a pool of processes is shut down for that), what is made
    is handed over, then it is raised.
    RunFailed, OtherWorker; BrokenExecutor or CancelledError where the executor loses runs.
    """
    waiting: dict[Future[list[Result]], list[Run]] = {}
    try:
        with _deaf_children():
            for group in sorted(groups(wanted), key=_seconds, reverse=True):
                waiting[executor.submit(make, group, [r.key for r in group], threads, weights)] = group
        for future in as_completed(list(waiting)):
            group = waiting.pop(future)
            try:
                results = future.result()
            except (BrokenExecutor, CancelledError, OtherWorker):
                raise
            except Exception as error:
                first, last = group[0], group[-1]
                name = f"{first.label}, {first.setting.task}, length {first.setting.train_length}, seed {first.seed}"
                also = f" (with {last.label})" if last is not first else ""
                what = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise RunFailed(f"{name}{also}: {what}") from error
            on_results(results)
    except BaseException:
        if isinstance(executor, ProcessPoolExecutor):  # its own thread trips over futures that others cancel
            executor.shutdown(wait=False, cancel_futures=True)
        else:
            for future in waiting:
                future.cancel()
        for future in waiting:
            if future.done() and not future.cancelled() and future.exception() is None:
                on_results(future.result())
        raise


def make(group: Sequence[Run], keys: Sequence[str], threads: int, weights: Path | None) -> list[Result]:
    """In a worker: `perform`. OtherWorker if the runs have other keys here than where the sweep was started."""
    if [r.key for r in group] != list(keys):
        raise OtherWorker(
            f"the worker on {platform.node()} has another version of posenc_core: its results would not be those of "
            "these runs"
        )
    if weights is None:
        return perform(group, threads)
    store = Store(weights, None)
    return perform(group, threads, lambda run, model: store.put_weights(run.key, model))


def _seconds(group: Sequence[Run]) -> float:
    return sum(r.seconds for r in {group[0].base, *group})


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes that start in here never see Ctrl-C, which a terminal sends them too: this one ends them in order."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def processes(count: int) -> Iterator[Executor]:
    """Processes on this machine. They end at once, whatever they do, when the block raises or this process dies."""
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(count, mp_context=context, initializer=_follow_parent) as executor:
        try:
            yield executor
        except BaseException:
            for child in multiprocessing.active_children():
                if child not in others:
                    child.terminate()
            raise


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """An existing Dask cluster, by its scheduler's address. What it still does is cancelled at the end of the block.

    SpecError where there is no such scheduler, or Dask is not installed.
    """
    try:
        from distributed import Client
    except ImportError:
        legal = "left out, or Dask installed: pip install '.[dask]'"
        raise SpecError([Problem("dask", address, legal, "there is no package distributed")]) from None
    legal = "the address of a running scheduler, such as tcp://127.0.0.1:8786"
    if not re.fullmatch(r"(tcp|tls|ws|wss|ucx)://\S+:\d+", address):
        raise SpecError([Problem("dask", address, legal)])
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SpecError([Problem("dask", address, legal, str(error) or type(error).__name__)]) from None
    with client:
        executor = client.get_executor(pure=False)  # a run is told apart by its key here already
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


# ------------------------------------------------------------------ the file


class ResultFile:
    """JSON lines on disk, a Result a line; each is on the disk once `add` returns. `results` has them by key.

    A last line that a kill left half written is cut off. SpecError for a file that is something else, that another
    sweep is writing, or that cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results: dict[str, Result] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError:
            self._file.close()
            raise self._refused("another sweep is writing it") from None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, results: Sequence[Result]) -> None:
        """Append what is not there yet."""
        fresh = {r.key: r for r in results if r.key not in self.results}
        self._file.write(b"".join(json.dumps(r.to_mapping()).encode() + b"\n" for r in fresh.values()))
        self._file.flush()
        self.results |= fresh
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        *lines, last = data.split(b"\n")
        for number, line in enumerate([*lines, last], 1):
            result = read_result(line)
            if result is not None:
                self.results.setdefault(result.key, result)
            elif line.strip() and not (number > len(lines) and (line.startswith(START) or START.startswith(line))):
                raise self._refused(f"its line {number} is no result of the lab")
        if read_result(last) is not None:
            self._file.write(b"\n")
        elif last:
            self._file.truncate(len(data) - len(last))

    def _refused(self, reason: str) -> SpecError:
        legal = "a file that a sweep of this version wrote, or a new one in a folder that can be written"
        return SpecError([Problem("json", str(self._path), legal, reason)])


def table(results: Sequence[Result]) -> str:
    """Means over the seeds: loss (accuracy, for tasks that are no text) at 1 to 16 training lengths, training seconds.

    A part for every setting.
    """
    parts = dict[str, dict[str, list[Result]]]()
    for r in results:
        parts.setdefault(_heading(r.setting), {}).setdefault(r.label, []).append(r)
    wide = max((len(r.label) for r in results), default=0)
    ends = "".join(f"{n:>7}×" for n in MEASURED)
    lines = list[str]()
    for heading, rows in parts.items():
        lines += ["", heading, f"{'':{wide}}{ends}{'seconds':>9}{'seeds':>7}"]
        for label, same in rows.items():
            metric = metric_of(same[0].setting.task)
            means = [_mean([r.at(n, metric) for r in same]) for n in MEASURED]
            shown = "".join(f"{'–' if math.isnan(x) else format(x, '.3f'):>8}" for x in means)
            lines.append(f"{label:{wide}}{shown}{_mean([r.seconds for r in same]):>9.1f}{len(same):>7}")
    return "\n".join(lines[1:])


def _heading(setting: Setting) -> str:
    task = f"{setting.task} {setting.back}" if setting.task == "token_back" else setting.task
    metric = "loss in nats a byte" if setting.task in TEXTS else "accuracy"
    changed = [f"{name} {value}" for name, value in setting.to_query().items() if name not in ELSEWHERE]
    return ", ".join([task, f"length {setting.train_length}", *changed]) + f": {metric} at times the length"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# ------------------------------------------------------------------ the command line


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status. The table goes to stdout, everything else to stderr."""
    parser = _parser()
    args = parser.parse_args(arguments)
    held: dict[str, Result] = {}
    status, why = 0, ""
    try:
        wanted = _wanted(args)
        with _executor(args) as executor, ResultFile(args.json) as file:
            held = file.results
            left = [r for r in wanted if r.key not in held or not _weights_are_there(args.weights, r)]
            with tqdm(total=len(wanted), initial=len(wanted) - len(left), unit="run", disable=args.quiet) as bar:

                def keep(results: list[Result]) -> None:
                    file.add(results)
                    bar.update(len(results))

                sweep(left, executor, keep, args.threads, args.weights)
    except SpecError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        status, why = 130, "interrupted"
    except BrokenExecutor:
        status, why = 1, "a worker process died"
    except CancelledError:
        status, why = 1, "the cluster lost its scheduler, or somebody cancelled a run there"
    except RunFailed as error:
        traceback.print_exception(error.__cause__)
        status, why = 1, str(error)
    except (OtherWorker, OSError) as error:
        status, why = 1, str(error)
    made = [held[r.key] for r in wanted if r.key in held]
    if made:
        print(table(made))
    if why:
        print(f"{why}: {len(made)} of {len(wanted)} runs done, run the same command to go on", file=sys.stderr)
    return status


def _weights_are_there(folder: Path | None, run: Run) -> bool:
    """Whether nothing has to be made again for its weights."""
    return folder is None or (folder / f"{run.key}.safetensors").exists()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_core.lab", allow_abbrev=False,
        description="Train small transformers at one length, measure them up to 16 times that length. "
        "What is in the result file is not made again.",
    )  # fmt: skip
    add = parser.add_argument
    add("--json", type=Path, required=True, metavar="FILE", help="result file: JSON lines, one result a line")
    add("--schemes", help=f"such as rope(base=500000),alibi,alibi+rope; default: {DEFAULT_SCHEMES}")
    add("--seeds", metavar="N,N…", help=f"whole numbers from 0 to {MAX_SEED:,}; default: 0,1,2")
    for p in Setting.params():
        if p.name == "task":
            add("--task", metavar="NAME,NAME…", help=f"one or several, or all. {_help(p)}")
        elif p.name == "train_length":
            add("--lengths", metavar="N,N…", help=f"one or several. {_help(p)}")
        else:
            add(_option(p), metavar=p.kind.upper(), help=_help(p))
    add("--text", type=Path, metavar="FILE", help="train on this text (UTF-8) instead of the shipped one")
    add("--claims", action="store_true", help="instead of the options above: all runs that the claims are judged by")
    add("--workers", type=_count, metavar="N", help="processes on this machine; default: one a core")
    add("--threads", type=_count, default=1, metavar="N", help="torch threads of a run; default: %(default)s")
    add("--dask", metavar="URL", help="run on this Dask cluster instead, such as tcp://127.0.0.1:8786; workers with "
        "one thread each do best (dask worker --nthreads 1)")  # fmt: skip
    add("--weights", type=Path, metavar="DIR", help="also keep the trained weights there, float16")
    add("--quiet", action="store_true", help="no progress bar")
    return parser


def _option(p: Param) -> str:
    return OWN_OPTIONS.get(p.name, "--" + p.name.replace("_", "-"))


def _help(p: Param) -> str:
    return f"{p.meaning}. {p.legal[0].upper()}{p.legal[1:]}; default: {p.default}".replace("%", "%%")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not legal; legal: a whole number from 1 to {MOST:,}")
    return int(text)


def _executor(args: argparse.Namespace) -> Any:
    if args.weights is not None and args.dask is None:
        try:
            args.weights.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=args.weights).close()
        except OSError as error:
            legal = "a folder that can be written"
            raise SpecError([Problem("weights", str(args.weights), legal, error.strerror or str(error))]) from None
    if args.dask is None:
        return processes(args.workers or os.cpu_count() or 1)
    for name, why in (("workers", "the cluster has its own"), ("weights", "the cluster's disks are not this one")):
        if getattr(args, name) is not None:
            raise SpecError([Problem(name, str(getattr(args, name)), f"left out with --dask; {why}")])
    return cluster(args.dask)


def _wanted(args: argparse.Namespace) -> list[Run]:
    """The runs that the arguments ask for. SpecError."""
    values = {p.name: getattr(args, _option(p)[2:].replace("-", "_")) for p in Setting.params()}
    given = {name: value for name, value in values.items() if value is not None}
    if args.claims:
        extra = [f"--{name}" for name in ("schemes", "seeds", "text") if getattr(args, name) is not None]
        extra += [_option(Setting.param(name)) for name in given]
        if extra:
            raise SpecError([Problem("claims", True, f"without {', '.join(extra)}; the claims bring their own runs")])
        from posenc_core.claims_table import needed_runs

        return list({r.key: r for r in needed_runs()}.values())
    try:
        return _experiment(args, given)
    except SpecError as error:  # in the words of the command line
        problems = [replace(p, name="lengths") if p.name == "train_length" else p for p in error.problems]
        raise SpecError(problems) from None


def _experiment(args: argparse.Namespace, given: dict[str, str]) -> list[Run]:
    default = Setting()
    tasks = _pieces("task", given.pop("task", default.task), "a task")
    tasks = list(TASKS) if tasks == ["all"] else tasks
    lengths = _pieces("lengths", given.pop("train_length", str(default.train_length)), "a length")
    seeds = [_seed(piece) for piece in _pieces("seeds", "0,1,2" if args.seeds is None else args.seeds, "a seed")]
    schemes = parse_schemes(DEFAULT_SCHEMES if args.schemes is None else args.schemes)
    text = "" if args.text is None else _text(args.text, tasks)
    made, problems = dict[str, Run](), dict[Problem, None]()
    for task in tasks:
        for length in lengths:
            texts = {"task": task, "train_length": length} | _read_by(task, tasks, given)
            try:
                setting = Setting(**{name: Setting.parse_field(name, value) for name, value in texts.items()})
            except SpecError as error:
                problems |= dict.fromkeys(error.problems)
                continue
            found, bad = runs(schemes, setting, seeds, text)
            made |= {r.key: r for r in found}
            problems |= dict.fromkeys(bad)
    if problems:
        raise SpecError(list(problems))
    return list(made.values())


def _pieces(name: str, text: str, what: str) -> list[str]:
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if not pieces:
        raise SpecError([Problem(name, text, f"{what}, or several with commas between")])
    return pieces


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SpecError([Problem("seeds", text, f"whole numbers from 0 to {MAX_SEED:,}")]) from None


def _read_by(task: str, tasks: Sequence[str], given: dict[str, str]) -> dict[str, str]:
    """What is given, without the fields that only others of these tasks read."""
    made = {}
    for name, value in given.items():
        other, values = Setting.param(name).when or ("", ())
        if other != "task" or task in values or not set(values) & set(tasks):
            made[name] = value
    return made


def _text(path: Path, tasks: Sequence[str]) -> str:
    if not set(tasks) & set(TEXTS):
        raise SpecError([Problem("text", str(path), f"left out, or a task that reads it: {', '.join(TEXTS)}")])
    try:
        text = path.read_bytes().decode("utf-8")  # line ends as they are: they are part of the run's key
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecError([Problem("text", str(path), "a text file that can be read", reason or "")]) from None
    if not text:
        raise SpecError([Problem("text", str(path), "a text file", "it is empty")])
    return text
