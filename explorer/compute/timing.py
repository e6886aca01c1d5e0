"""Runs of the Timing page: the reader's own, measured in a background job, and recorded ones from assets/benchmarks."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from explorer.compute.common import ASSETS
from explorer.jobs import Job, session_jobs
from explorer.views import TimingView
from posenc_core import Spec, SpecError, benchmark
from posenc_core.benchmark import IMPLEMENTATIONS, Config, Record, What
from posenc_core.benchmark_sizes import work as work_of
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import layers_of
from posenc_core.schemes.rope import RopeSpec

BENCHMARKS = ASSETS / "benchmarks"
JOB = "timing"
LIVE = "_timing"  # session key of the reader's latest start
LONGEST_RUN = 180.0  # seconds after which a run ends with what it has: readers of a hosted app share one queue
MAX_BYTES = 2**30  # of one case; a longer one is not run
QUICK = TimingView(longest=512, repetitions=5)  # measured unasked where nothing else can be shown
SOON = 1024  # tokens up to which layers are measured before what else there is: they are the page's first picture
ROTATED = {"cpu": 8192, "mps": 16_384, "cuda": 65_536}  # tokens: q and k then are larger than the usual cache
ALONE: Mapping[What, tuple[str, ...]] = {what: IMPLEMENTATIONS[what] for what in ("rotation", "attention")}
WIDTH = Config.heads * Config.d_head  # of a layer, or a little less
MOST_ATTENDED = 2048  # tokens; some ways to ALiBi hold a number for every pair of them and head

S = TypeVar("S", bound=Spec)
Found = Mapping[str, Any]  # what benchmark.machine() says

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Records that belong together; `content` is the whole run as plain values, as its file holds it.

    `asked` is what the reader asked for, where the run is the reader's own.
    """

    content: Mapping[str, Any]
    records: tuple[Record, ...]
    recorded: bool
    asked: tuple[Config, ...] = ()

    @property
    def machine(self) -> Found:
        """What the machine said of itself."""
        return dict(self.content["machine"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The configuration as plain values."""
        return dict(self.content["config"])


@dataclass
class Live:
    """The reader's latest start, and the run that was shown before it. `now`: which of `asked` is being measured.

    `late`: the run met LONGEST_RUN and ended with what it had.
    """

    asked: tuple[Config, ...]
    before: Run | None
    now: int = 0
    late: bool = False
    job: Job[Record | Found] = field(init=False)

    @property
    def run(self) -> Run | None:
        """What is measured so far; None before the first length is done."""
        records = tuple(r for r in self.job.results if isinstance(r, Record))
        measured = any(r.median is not None for r in records)
        if not records or not (measured or self.job.state == "done"):  # a stopped job knows what it would have skipped
            return None
        found = self.job.results[0]
        assert not isinstance(found, Record)
        content = benchmark.to_mapping(together(self.asked), records, dict(found))
        return Run(content, records, recorded=False, asked=self.asked)


def lengths(longest: int) -> tuple[int, ...]:
    """128 and its doublings, and the longest itself."""
    doubled = [128 << i for i in range(16)]
    return (*(n for n in doubled if n < longest), longest)


def layers(specs: Sequence[Spec], view: TimingView) -> Config:
    """Layers and tables of the schemes, at all lengths."""
    d_head = _d_head(specs)
    return Config(
        tuple(dict.fromkeys(specs)), lengths(view.longest), (view.device,), (view.dtype,),
        ("layer", "tables_built", "tables_cached"), heads=max(1, WIDTH // d_head), d_head=d_head,
        repetitions=view.repetitions, max_bytes=MAX_BYTES,
        backward=(False, True) if view.direction == "both" else (False,),
    )  # fmt: skip


def _d_head(specs: Iterable[Spec]) -> int:
    """The usual size of a head, or the first rotation's own where that rotation cannot be of another size."""
    for spec in (s for each in specs for s in layers_of(each)):
        if isinstance(spec, RopeSpec):
            try:
                spec.with_sizes(d_head=Config.d_head)
            except SpecError:
                return spec.d_head
    return Config.d_head


def config(specs: Sequence[Spec], view: TimingView) -> tuple[Config, ...]:
    """What the page's controls ask for, in the order that it is measured in.

    Layers of few tokens, then the rotation and ALiBi's attention by themselves in all implementations, then longer
    layers, which take longest and may meet the limit of time.
    """
    whole = layers(specs, view)
    rope, alibi = _first(RopeSpec, specs), _first(AlibiSpec, specs)
    other = rope.replace(layout="interleaved" if rope.layout == "half" else "half")  # some libraries have only one

    def alone(what: What, specs: tuple[Spec, ...], length: int) -> Config:
        return replace(whole, specs=specs, lengths=(length,), what=(what,), implementations=ALONE[what])

    parts = [
        alone("rotation", (rope, other), ROTATED[view.device]),
        alone("attention", (alibi,), min(view.longest, MOST_ATTENDED)),
    ]
    first, later = ([n for n in whole.lengths if (n <= SOON) == soon] for soon in (True, False))
    rest = [replace(whole, lengths=tuple(later))] if later else []
    return (replace(whole, lengths=tuple(first)), *parts, *rest)


def _first(kind: type[S], specs: Iterable[Spec]) -> S:
    """The first spec of a kind among the schemes and their layers, else the kind's default."""
    return next((s for spec in specs for s in layers_of(spec) if isinstance(s, kind)), kind())


def together(asked: Sequence[Config]) -> Config:
    """One configuration that names all that is asked for; what else they hold is the same in all of them."""

    def every(name: str) -> Any:
        return tuple(dict.fromkeys(value for c in asked for value in getattr(c, name)))

    return replace(
        asked[0], specs=every("specs"), lengths=every("lengths"), what=every("what"),
        implementations=every("implementations"),
    )  # fmt: skip


@st.cache_resource(show_spinner=False)
def devices() -> dict[str, str]:
    """The devices of this machine, id -> name."""
    return benchmark.devices()


def live() -> Live | None:
    """The reader's latest start, if any."""
    made: Live | None = st.session_state.get(LIVE)
    return made


def start(asked: Sequence[Config]) -> Live:
    """Measure in the background; what was measured before stays until the first length is done."""
    last = live()
    made = Live(tuple(asked), None if last is None else last.run or last.before)

    def work(job: Job[Record | Found]) -> None:
        def over() -> bool:
            made.late = job.seconds > LONGEST_RUN
            return job.cancelled() or made.late

        job.add(benchmark.machine())
        sizes = [sum(work_of(case, c) for group in c.groups() for case in group) for c in made.asked]
        for index, each in enumerate(made.asked):
            made.now = index
            for step in benchmark.run(each, over):
                job.report(sum(sizes[:index]) + sizes[index] * step.done / step.total, sum(sizes))
                if step.record is not None:
                    job.add(step.record)

    made.job = session_jobs().start(JOB, work, threads=1)
    st.session_state[LIVE] = made
    return made


def runs() -> list[Run]:
    """What can be shown, the newest of the reader's own first."""
    mine = live()
    own = None if mine is None else mine.run or mine.before
    return [*([own] if own else []), *recorded_runs(BENCHMARKS)]


@st.cache_resource(max_entries=4, show_spinner=False)
def recorded_runs(folder: Path) -> tuple[Run, ...]:
    """The runs in a folder's JSON files; a file that is no run is left out."""
    out = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text())
            records = tuple(map(Record.from_mapping, content["records"]))
            benchmark.machine_line(content["machine"])
            config = content.get("config")
            if not records or not isinstance(config, dict):
                raise ValueError("no records, or no config")
            for name in ("heads", "d_head", "batch", "repetitions"):
                if type(config.get(name)) is not int:
                    raise ValueError(f"{name} = {config.get(name)!r} is not legal; legal: a whole number")
            out.append(Run(content, records, recorded=True))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("%s is no recorded run: %s", path, error)
    return tuple(out)
