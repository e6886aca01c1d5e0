"""Numbers of the Extension page: bounded work for any length up to 2^24 positions and any head up to 1,024 features."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import streamlit as st
import torch

from explorer.compute.common import ASSETS, HASHES, MAX_CELLS, Array, frozen, rope_of
from explorer.jobs import Job, session_jobs
from posenc_core import Spec, analysis, cosine_sums, extension
from posenc_core.cosine_sums import BaseBound
from posenc_core.extension import FACTORS, LONGEST, MAX_FACTOR, Angles, ToyLoss, ToyRun
from posenc_core.frequencies import Action, AttentionScales, PairReport, attention_scales, pair_report, rope_frequencies
from posenc_core.recommend import Candidate, Numbers
from posenc_core.schemes.rope import RopeSpec

RECORD = ASSETS / "extension.json"
JOB = "extension"
LIVE = "_extension"  # session key of the reader's latest start
COLUMNS = 1024  # of the large map
SMALL_COLUMNS = 160  # of the small ones
WORK = 2**30  # pairs x distances that one exact search or envelope may look at
SEARCH = 2**23  # pairs x distances up to which a base is searched while the reader waits
BLOCKS = 96  # of distances on a log axis
BOUND_DRAWS = 16  # distances of a block at which RoFormer's factor is taken
KEYS = 2**16  # random keys behind the softmax
CACHE_POINTS = 240
CHOSEN, SECOND = "chosen", "second"  # the sidebar's own scaling; the scheme it is compared with
AS_IS = (CHOSEN, SECOND)  # not derived from the lengths: drawn dashed

_log = logging.getLogger(__name__)


# ------------------------------------------------------------------ what is compared


@dataclass(frozen=True)
class Setting:
    """The model that is extended, from where to where, and the methods by name, in the order shown.

    `derived` are those with the factor target/trained; the others come from the sidebar as they are.
    """

    base: RopeSpec
    trained: int
    target: int
    methods: Mapping[str, RopeSpec]
    derived: tuple[str, ...]

    @property
    def factor(self) -> float:
        """Target over trained."""
        return self.target / self.trained

    def arcs_of(self, method: str) -> RopeSpec:
        """The model whose trained arcs a method is measured against: the one that is extended.

        A second scheme that rotates other pairs cannot be: it has arcs of its own.
        """
        spec = self.methods[method]
        alike = (spec.rotary_dim, spec.rotated_pairs) == (self.base.rotary_dim, self.base.rotated_pairs)
        return self.base if method != SECOND or alike else spec

    def other_base(self, method: str) -> bool:
        """Whether a method is measured against arcs of another base than its own."""
        return bool(self.methods[method].base != self.arcs_of(method).base)

    @cached_property
    def arcs(self) -> Mapping[str, Angles]:
        """Arcs and first positions out of distribution, by method."""
        return {m: angles(spec, self.trained, self.target, self.arcs_of(m)) for m, spec in self.methods.items()}

    @cached_property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Methods with the same frequencies at the target together; the sidebar's own stand alone."""
        found = list[tuple[list[str], bytes]]()
        for method, spec in self.methods.items():
            key = inv_freq(spec, self.target).tobytes()
            same = next((names for names, k in found if k == key and method not in AS_IS), None)
            if same is None:
                found.append(([method], key))
            else:
                same.append(method)
        return tuple(tuple(names) for names, _ in found)


def setting(specs: Sequence[Spec], trained: int, target: int) -> Setting:
    """What the page compares. A target below the trained length, or past MAX_FACTOR times it, is moved there."""
    return _setting(tuple(specs), trained, target)


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def _setting(specs: tuple[Spec, ...], trained: int, target: int) -> Setting:
    base = rope_of(specs[0]) or RopeSpec()
    target = min(max(target, trained), MAX_FACTOR * trained, LONGEST)
    methods = extension.methods(base, trained, target)
    derived = tuple(methods)
    if rope_of(specs[0]) is not None and base.scaling != "none" and base not in methods.values():
        methods[CHOSEN] = base
    second = rope_of(specs[1]) if len(specs) > 1 else None
    if second is not None and second not in methods.values():
        methods[SECOND] = second
    return Setting(base, trained, target, methods, derived)


# ------------------------------------------------------------------ arcs, maps, ratios


@st.cache_resource(max_entries=256, show_spinner=False, hash_funcs=HASHES)
def angles(spec: RopeSpec, trained: int, target: int, model: RopeSpec | None = None) -> Angles:
    """Arcs and first positions out of distribution; the arcs of `model`, if given."""
    return extension.angles(spec, trained, target, model)


def arcs(made: Setting, method: str) -> Angles:
    """Those of a method of the page."""
    return made.arcs[method]


class Beyond(NamedTuple):
    """Doublings past the trained arc [pairs, columns], and positions a column."""

    doublings: Array
    step: int


@st.cache_resource(max_entries=48, show_spinner=False, hash_funcs=HASHES)
def beyond(spec: RopeSpec, trained: int, target: int, columns: int = COLUMNS, model: RopeSpec | None = None) -> Beyond:
    """The map of angles that were never seen; at most MAX_CELLS cells."""
    columns = min(columns, MAX_CELLS // max(1, spec.rotary_dim // 2))
    doublings, step = extension.beyond(spec, trained, target, columns, model)
    return Beyond(frozen(doublings), step)


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def report(spec: RopeSpec, length: int) -> PairReport:
    """What a scaling did to each pair, for a sequence of `length`."""
    return pair_report(spec, length)


def actions(made: Setting, method: str) -> tuple[Action, ...]:
    """What a method does to each pair of the model: another base divides all but the first."""
    if not made.other_base(method):
        return report(made.methods[method], made.target).action
    ratio = arcs(made, method).ratio.tolist()
    return tuple("zero" if not r > 0 else "kept" if abs(r - 1) < 1e-9 else "divided" for r in ratio)


@st.cache_resource(max_entries=256, show_spinner=False, hash_funcs=HASHES)
def inv_freq(spec: RopeSpec, length: int) -> Array:
    """Radians a position in a sequence of `length`."""
    return frozen(rope_frequencies(spec, length).inv_freq)


@st.cache_resource(max_entries=256, show_spinner=False, hash_funcs=HASHES)
def resolution(spec: RopeSpec, target: int, model: RopeSpec | None = None) -> float:
    """Distance of neighbours beside training."""
    return extension.resolution(spec, target, model)


def scales(spec: RopeSpec) -> AttentionScales:
    """What multiplies cos and sin, and what multiplies all scores besides."""
    return attention_scales(spec)


def score_factor(spec: RopeSpec) -> float:
    """What the scores of rotating features are multiplied by."""
    return scales(spec).tables ** 2 * scales(spec).scores


# ------------------------------------------------------------------ variants


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def own_score(spec: RopeSpec, target: int) -> tuple[Array, Array]:
    """Distances, and the mean score of a random vector with itself at each."""
    distances = cosine_sums.log_edges(target, BLOCKS)
    return frozen(distances), frozen(extension.own_score(spec, distances, target))


# ------------------------------------------------------------------ decay and the bound on the base


class Decay(NamedTuple):
    """Against distance: the middles of blocks of distances, the mean of Σcos/pairs in each, and of RoFormer's factor,
    scaled to 1 at distance 0, over BOUND_DRAWS distances in each. at_target: that factor at the target itself."""

    distances: Array
    means: Array
    bound: Array
    at_target: float


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def decay(spec: RopeSpec, target: int) -> Decay:
    """Exact means of blocks of distances up to the target."""
    edges = cosine_sums.log_edges(target, BLOCKS)
    if len(edges) < 2:
        edges = torch.tensor([1, 2])
    frequencies = rope_frequencies(spec, target).inv_freq
    middle = (edges[:-1] + edges[1:] - 1).double() / 2
    along = torch.linspace(0, 1, BOUND_DRAWS, dtype=torch.float64)
    inside = edges[:-1, None] + ((edges[1:] - edges[:-1] - 1)[:, None] * along).round()
    bound = analysis.roformer_bound(frequencies, inside.flatten()).view(inside.shape).mean(-1)
    ends = analysis.roformer_bound(frequencies, torch.tensor([0, target]))
    means = cosine_sums.block_means(frequencies, edges)
    return Decay(frozen(middle), frozen(means), frozen(bound / ends[0]), float(ends[1] / ends[0]))


class Range(NamedTuple):
    """Lowest and highest value in blocks of distances, of which the last ends at `searched`."""

    distances: Array
    low: Array
    high: Array
    searched: int


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def envelope(spec: RopeSpec, target: int) -> Range:
    """Over every distance, as far as WORK allows."""
    frequencies = rope_frequencies(spec, target).inv_freq
    searched = max(2, min(target, WORK // len(frequencies)))
    edges = cosine_sums.log_edges(searched, BLOCKS)
    low, high = cosine_sums.envelope(frequencies, edges)
    return Range(frozen((edges[:-1] + edges[1:] - 1).double() / 2), frozen(low), frozen(high), searched)


class Negative(NamedTuple):
    """The first distance with a sum below zero, None if there is none below `searched`."""

    distance: int | None
    searched: int


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def negative(spec: RopeSpec, target: int) -> Negative:
    """Of Σcos over the rotating pairs: exact, as far as WORK allows."""
    frequencies = rope_frequencies(spec, target).inv_freq
    searched = min(target, WORK // len(frequencies))
    return Negative(cosine_sums.first_negative(frequencies, searched), searched)


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs=HASHES)
def score_negative(spec: RopeSpec, target: int) -> Negative:
    """Of the score of a vector of ones with itself, and so of the mean score of random vectors with themselves: Σcos
    over the rotating pairs, and one half for every feature that does not rotate."""
    turning, still = negative(spec, target), spec.d_head - spec.rotary_dim
    if turning.distance is None or not still:
        return turning
    plus = still / 2 / scales(spec).tables ** 2
    found = cosine_sums.first_negative(rope_frequencies(spec, target).inv_freq, turning.searched, plus)
    return Negative(found, turning.searched)


class Reaches(NamedTuple):
    """Bases, and the first distance at which each has a negative Σcos; `limit` if none below it."""

    bases: tuple[float, ...]
    reached: tuple[int, ...]
    limit: int
    recorded: bool

    def bound(self, length: int) -> BaseBound | None:
        """The smallest base tried that fits a length; None past the limit."""
        return cosine_sums.base_bound(self.bases, self.reached, length) if length <= self.limit else None


@st.cache_resource(max_entries=16, show_spinner=False)
def reaches(rotary_dim: int) -> Reaches:
    """From the record where it holds this width, else searched now, as far as a reader waits for."""
    bases, kept = tuple(cosine_sums.bases()), _content().get("bases", {})
    found = kept.get("reached", {}).get(str(rotary_dim))
    if found and len(found) == len(bases):
        return Reaches(bases, tuple(found), kept["limit"], recorded=True)
    limit = min(LONGEST, SEARCH // max(1, rotary_dim // 2))
    return Reaches(bases, tuple(cosine_sums.reaches(rotary_dim, bases, limit)), limit, recorded=False)


@st.cache_resource(max_entries=64, show_spinner=False)
def bound(rotary_dim: int, length: int) -> BaseBound | None:
    """The smallest base tried that fits a length, and the one from which all tried do, as they are written; None past
    the limit of the search. The first fits as it is written. No base was tried between the second and what is written.
    """
    found = reaches(rotary_dim).bound(length)
    if found is None or found.smallest is None:
        return found
    always = None if found.always is None else float(f"{found.always:.3g}")
    return BaseBound(cosine_sums.written(found.smallest, rotary_dim, length), always)


def bound_lengths(limit: int) -> list[int]:
    """Lengths at which the curve of smallest bases is drawn: four an octave."""
    return sorted({round(2 ** (k / 4)) for k in range(4 * 6, 4 * limit.bit_length()) if round(2 ** (k / 4)) <= limit})


# ------------------------------------------------------------------ softmax and cached keys


class Sharp(NamedTuple):
    """At each length: mean entropy in nats without and with the factor, and the divergence between the two."""

    lengths: Array
    without: Array
    with_factor: Array
    divergence: Array


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def sharpness(spec: RopeSpec, target: int) -> Sharp:
    """Random keys up to KEYS; past that both entropies grow by ln(length/KEYS), and the divergence stays."""
    doubled = [1 << i for i in range(1, 25) if 1 << i < target]
    lengths = [*doubled, target]
    drawn = [n for n in lengths if n <= KEYS] or [min(target, KEYS)]
    made = extension.sharpness(spec, drawn)
    more = [n for n in lengths if n > drawn[-1]]
    grow = [np.log(n / drawn[-1]) for n in more]
    without, with_factor = (np.append(e.numpy(), [e[-1].item() + g for g in grow]) for e in made[:2])
    divergence = np.append(made.divergence.numpy(), [made.divergence[-1].item()] * len(more))
    return Sharp(np.array([*drawn, *more], dtype=np.float64), without, with_factor, divergence)


class Cached(NamedTuple):
    """Positions of keys, and the error of their scores: rotated when they came, or with the prompt they came in."""

    positions: Array
    one_by_one: Array
    prompt: Array


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def cached(spec: RopeSpec, current: int, target: int) -> Cached:
    """For a query in a sequence of `target`. one_by_one: key j rotated with the frequencies of length j + 1; prompt:
    keys before `current` with those of length `current`, later ones when they came."""
    positions = (
        torch.logspace(0, np.log10(max(2, target)), CACHE_POINTS, dtype=torch.float64).round().long().unique() - 1
    )
    now = rope_frequencies(spec, target).inv_freq
    own = extension.frequencies_at(spec, [int(p) + 1 for p in positions])
    at_prompt = rope_frequencies(spec, current).inv_freq
    both = torch.where((positions < current)[:, None], at_prompt, own)
    one, prompt = (extension.cache_error(spec, f, now, positions) for f in (own, both))
    return Cached(frozen(positions), frozen(one), frozen(prompt))


# ------------------------------------------------------------------ the toy model


@dataclass(frozen=True)
class Toy:
    """Losses of the toy model, and what they were made with."""

    run: ToyRun
    content: Mapping[str, Any]
    recorded: bool


@dataclass
class Live:
    """The reader's latest start."""

    job: Job[ToyLoss]

    @property
    def toy(self) -> Toy | None:
        """All that was asked for, once it is there."""
        if self.job.state != "done" or len(self.job.results) < total_runs():
            return None
        made = extension.provenance()
        return Toy(ToyRun(made["trained"], tuple(self.job.results)), made, recorded=False)


def total_runs() -> int:
    """Forward passes of a full measurement."""
    return len(FACTORS) * len(extension.METHODS)


@st.cache_resource(max_entries=2, show_spinner=False)
def _read(path: Path, changed: float) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise ValueError("no mapping")
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("%s is no record: %s", path, error)
        return {}
    return content


def _content() -> dict[str, Any]:
    return _read(RECORD, RECORD.stat().st_mtime if RECORD.exists() else 0.0)


def recorded_toy() -> Toy | None:
    """What assets/extension.json holds; None if it holds nothing that fits."""
    kept = _content().get("toy", {})
    try:
        losses = tuple(
            ToyLoss(str(x["method"]), int(x["factor"]), tuple(map(float, x["loss"]))) for x in kept["losses"]
        )
        return Toy(ToyRun(int(kept["trained"]), losses), kept, recorded=True) if losses else None
    except (TypeError, KeyError, ValueError) as error:
        _log.warning("%s holds no losses: %s", RECORD, error)
        return None


def live() -> Live | None:
    """The reader's latest start, if any."""
    made: Live | None = st.session_state.get(LIVE)
    return made


def start() -> Live:
    """Measure again in the background."""

    def work(job: Job[ToyLoss]) -> None:
        for loss in extension.toy_losses(should_stop=job.cancelled):
            job.add(loss)
            job.report(len(job.results), total_runs())

    made = Live(session_jobs().start(JOB, work, threads=1))
    st.session_state[LIVE] = made
    return made


def toy() -> Toy | None:
    """The reader's own measurement once it is complete, else the recorded one."""
    mine = live()
    return (mine.toy if mine is not None else None) or recorded_toy()


# ------------------------------------------------------------------ what a recommendation is made from


def toy_factor(factor: float) -> int:
    """The measured factor next above a factor, or the largest."""
    return next((f for f in FACTORS if f >= factor), FACTORS[-1])


def numbers(made: Setting, measured: Toy | None) -> Numbers:
    """The numbers behind the recommendation."""
    factor = toy_factor(made.factor)
    candidates = []
    for name in made.derived:
        spec = made.methods[name]
        found, first = arcs(made, name), score_negative(spec, made.target)
        bad = found.bad(made.target)
        loss = None if measured is None or measured.run.of(name, factor) is None else measured.run.past(name, factor)
        candidates.append(
            Candidate(
                name, int(bad.sum()), int(found.first_bad.min()) if bool(bad.any()) else None,
                resolution(spec, made.target), report(spec, made.target).count("kept"), first.distance, first.searched,
                loss, extension.stretch(spec, made.target),
            )
        )  # fmt: skip
    plain = arcs(made, "none")
    found_bound = None if made.base.scaling == "proportional" else bound(made.base.rotary_dim, made.target)
    inside = (
        None if measured is None or measured.run.of("none", factor) is None else measured.run.inside("none", factor)
    )
    return Numbers(
        made.trained, made.target, int((plain.seen > 0).sum()), int(plain.full.sum()),
        made.base.d_head - made.base.rotary_dim, made.base.base, fits(made.base, made.target), found_bound,
        tuple(candidates), factor, inside,
    )  # fmt: skip


def fits(spec: RopeSpec, length: int) -> bool | None:
    """Whether the model's own base, unscaled, keeps the score of a vector of ones with itself from falling below zero
    at all distances below `length`: the criterion of Men et al. 2024. None where not all could be searched."""
    found = score_negative(extension.unscaled(spec), length)
    if found.distance is None and found.searched < length:
        return None
    return found.distance is None
