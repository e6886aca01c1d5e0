"""The extrapolation lab: a run trains a small transformer at one length and measures it up to 16 times that length.

`python -m posenc_core.lab` runs a sweep (see sweep.py). A run is a scheme, a Setting, a seed and a text; its key is the
hash of all of that, so equal runs are made once.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from posenc_core.analysis import defined_length
from posenc_core.benchmark import machine
from posenc_core.extension import methods
from posenc_core.model import ModelSize, ToyModel
from posenc_core.schemes import SIZES, parse_spec
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import MAX_TEXT, HybridSpec, layers_of
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import Problem, Spec, SpecError, param
from posenc_core.tasks import SHORTEST, TASKS, TEXTS, Batch, Corpus, Task, english, own_text, pieces
from posenc_core.train import MAX_LENGTH, TrainConfig, Trainer, alibis, by_position, new_model, set_table_format

RECIPE = 1  # raise it when the same run gives other numbers: its key then changes too
MEASURED = (1, 2, 4, 8, 16)  # training lengths at which numbers are told
TIMES = MEASURED[-1]  # training lengths that a run is measured up to
BINS = 8  # of a training length; positions in one are averaged
CURVE = 60  # points of a kept loss curve
EXAMPLES = 128  # held-out examples, fewer where they are long
TOKENS = 2**17  # of all held-out examples together
BATCH_TOKENS, BATCH_PAIRS = 2**14, 2**24  # held-out tokens, and pairs of them, that run at a time
HEADS, LAYERS = 4, 2
MAX_SEED = 2**31 - 1
FLOPS = 5e10  # a second, of one core on models of this size
FINETUNE_RATE = 1e-3
Metric = Literal["loss", "accuracy"]
DEFAULT_SCHEMES = "none, sinusoidal, learned, rope, alibi, alibi+rope"
MOST_SCHEMES = 16
LEGAL_SCHEMES = f"1 to {MOST_SCHEMES} schemes, such as rope, alibi, alibi+rope, rope(base=500000)"
OUTSIDE = r"(?![^()]*\))"  # parentheses


class Setting(Spec):
    """What all schemes of an experiment share. Options from articles are off by default."""

    task: Literal["text", "short_texts", "copy", "token_back", "brackets", "recall"] = param(
        "text",
        "text: next byte; short_texts: unrelated sentences; copy: a repeating string; token_back: the letter so "
        "many before; brackets: which one is closed; recall: a key's value, at any distance",
    )  # fmt: skip
    back: int = param(8, "how many positions before", ge=1, le=64, unit="positions", ticks=(1, 2, 4, 8, 16, 32, 64),
                      when=("task", ("token_back",)))  # fmt: skip
    train_length: int = param(64, f"positions in training; measured up to {TIMES} times", ge=16, le=512, step=8,
                              unit="positions", ticks=(16, 32, 64, 128, 256, 512))  # fmt: skip
    steps: int = param(600, "training steps of 32 examples", ge=10, le=20_000,
                       ticks=(50, 100, 200, 400, 600, 1000, 2000, 5000))  # fmt: skip
    width: int = param(64, "d_model of the 2 layers with 4 heads; the Attention page's models have 128", ge=16, le=256,
                       step=8, unit="dimensions", ticks=(32, 64, 128, 256))  # fmt: skip
    curriculum: Literal["fixed", "progressive"] = param(
        "fixed", "progressive: starts at an eighth of the length and doubles three times, each time with a new warm-up",
        advanced=True,
    )  # fmt: skip
    slope_training: Literal["fixed", "dynamic", "learned"] = param(
        "fixed", "ALiBi's slopes in training; dynamic: times 1 + alpha·log(step/steps); learned: trained", advanced=True
    )
    alpha: float = param(0.5, "strength of dynamic slopes", ge=0.0, le=2.0, step=0.05,
                         when=("slope_training", ("dynamic",)), advanced=True)  # fmt: skip
    position_gap: int = param(1, "training positions are drawn from so many times the length, sorted; 1: no gaps",
                              ge=1, le=16, ticks=(1, 2, 4, 8, 16), advanced=True)  # fmt: skip
    table_format: Literal["float32", "float16", "bfloat16"] = param(
        "float32", "what RoPE's cos and sin are rounded to; attention stays in float32", advanced=True
    )
    extension: Literal["off", "none", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3"] = param(
        "off", "after training, a scaling of RoPE for times the length; none: no scaling, only the fine-tuning",
        advanced=True,
    )  # fmt: skip
    times: int = param(
        2, "training lengths that it is extended to", ge=2, le=TIMES, ticks=(2, 4, 8, 16), advanced=True,
        when=("extension", ("none", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3")),
    )  # fmt: skip
    finetune_steps: int = param(
        0, "steps of fine-tuning at the new length", ge=0, le=2000, ticks=(0, 20, 50, 100, 200, 500), advanced=True,
        when=("extension", ("none", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3")),
    )  # fmt: skip

    def make_task(self, corpus: Corpus) -> Task:
        """The task on a text."""
        return TASKS[self.task](corpus, self.back)


def metric_of(task: str) -> Metric:
    """Loss for text, the share of right answers for the other tasks."""
    return "loss" if task in TEXTS else "accuracy"


def parse_schemes(text: str) -> tuple[Spec, ...]:
    """Specs from a text such as "rope, rope(base=500000), alibi+rope": + joins the layers of one hybrid.

    SpecError naming what cannot be read, or that there is none, or too many.
    """
    if len(text) > MAX_TEXT:
        raise SpecError([Problem("schemes", text, f"at most {MAX_TEXT:,} characters", f"{len(text):,} given")])
    made = dict[Spec, None]()
    for piece in filter(str.strip, re.split(r"[,;]" + OUTSIDE, text)):
        try:
            made[_parse_one(piece)] = None
        except SpecError:  # slopes for as many heads as the lab has, not as many as a spec has
            more = re.sub(r"alibi\s*\((?=[^()]*slopes)(?![^()]*n_heads)", f"alibi(n_heads={HEADS}, ", piece)
            try:
                made[_parse_one(more)] = None
            except SpecError as error:
                raise SpecError([_of_schemes(p, piece) for p in error.problems]) from None
    if not 1 <= len(made) <= MOST_SCHEMES:
        raise SpecError([Problem("schemes", text, LEGAL_SCHEMES, f"{len(made)} given")])
    return tuple(made)


def _parse_one(piece: str) -> Spec:
    layers = HybridSpec.parse_field("layers", re.sub(r"\+" + OUTSIDE, ",", piece))
    return layers[0] if len(set(layers)) == 1 else HybridSpec(layers=layers)


def _of_schemes(problem: Problem, piece: str) -> Problem:
    """A hybrid's problem in the words of a list of schemes."""
    if problem.name.startswith("layers: "):
        return replace(problem, name=f"schemes: {problem.name.removeprefix('layers: ')}", field="schemes")
    return Problem("schemes", piece.strip(), LEGAL_SCHEMES, problem.reason)


def scheme_text(spec: Spec) -> str:
    """The scheme as `parse_schemes` reads it, without the sizes, which are the lab's."""
    return "+".join(HybridSpec(layers=(_unsized(s),)).field_text("layers") for s in layers_of(spec))


def _unsized(spec: Spec) -> Spec:
    try:
        return spec.with_sizes(**{p.name: p.default for p in spec.params() if p.name in SIZES})
    except SpecError:  # a list with one number a head or a pair fits its own size only
        return spec


@dataclass(frozen=True)
class Run:
    """One training and one measurement: all that determines a result. Raises SpecError for what does not go together.

    `text` is the reader's own, empty for the shipped one. Options of the setting that cannot act on the scheme are put
    back to their defaults, so that the same work has the same key.
    """

    spec: Spec
    setting: Setting = Setting()
    seed: int = 0
    text: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise SpecError([Problem("seeds", self.seed, f"whole numbers from 0 to {MAX_SEED:,}")])
        if isinstance(self.spec, HybridSpec) and len(self.spec.layers) > LAYERS:
            raise SpecError([Problem("schemes", scheme_text(self.spec), f"at most {LAYERS} layers, as the model has")])
        asked = self.setting.extension
        object.__setattr__(self, "setting", _acting(self.setting, self.spec))
        if self.setting.task not in TEXTS:
            object.__setattr__(self, "text", "")
        if self.setting.task == "token_back" and self.setting.back >= self.setting.train_length:
            legal = f"a whole number from 1 to {self.setting.train_length - 1}, below train_length"
            raise SpecError([Problem("back", self.setting.back, legal)])
        _ = self.sized, self.corpus  # both may refuse
        if self.setting.extension != "off":
            self._check_extension(asked)

    def _check_extension(self, name: str) -> None:
        scheme, s = scheme_text(self.spec), self.setting
        if s.finetune_steps and s.train_length * s.times > MAX_LENGTH:
            why = f"fine-tuning takes at most {MAX_LENGTH:,} positions, train_length is {s.train_length}"
            raise SpecError([Problem("times", s.times, f"2 to {MAX_LENGTH // s.train_length}", why)])
        if defined_length(self.sized.build()) is not None:
            raise SpecError([Problem("extension", name, "off", f"{scheme} has no rows past the training length")])
        missing = [s for s in self.layer_specs if isinstance(s, RopeSpec) and name not in self._methods(s)]
        if missing:
            legal = [n for n in Setting.param("extension").choices if n == "off" or n in self._methods(missing[0])]
            raise SpecError([Problem("extension", name, ", ".join(legal), scheme)])

    @property
    def layer_specs(self) -> tuple[Spec, ...]:
        """One spec a kind of layer, with the model's sizes."""
        return layers_of(self.sized)

    @property
    def size(self) -> ModelSize:
        """The model's sizes."""
        return ModelSize(LAYERS, HEADS, self.setting.width)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is cached: the text is large

    @cached_property
    def sized(self) -> Spec:
        """The spec with the model's sizes, a table as long as the positions of training."""
        offset = max(getattr(s, "offset", 0) for s in layers_of(self.spec))
        rows = self.setting.position_gap * self.setting.train_length + offset
        made = self.size.of(self.spec.with_sizes(max_position_embeddings=rows))
        return made.layers[0] if isinstance(made, HybridSpec) and len(set(made.layers)) == 1 else made

    @property
    def extended(self) -> Spec:
        """The spec that is measured: with the scaling that is put on after training."""
        name = self.setting.extension
        if name in ("off", "none"):
            return self.sized
        layers = tuple(self._methods(s)[name] if isinstance(s, RopeSpec) else s for s in self.layer_specs)
        return HybridSpec(layers=layers) if isinstance(self.sized, HybridSpec) else layers[0]

    def _methods(self, spec: RopeSpec) -> dict[str, RopeSpec]:
        trained = self.setting.train_length
        return methods(spec, trained, trained * self.setting.times)

    @property
    def config(self) -> TrainConfig:
        """How it is trained."""
        s = self.setting
        return TrainConfig(
            spec=self.sized, size=self.size, length=s.train_length, steps=s.steps, warmup=min(50, s.steps // 4),
            seed=self.seed, curriculum=s.curriculum, slope_training=s.slope_training, alpha=s.alpha,
            position_gap=s.position_gap, table_format=s.table_format,
        )  # fmt: skip

    @property
    def finetuning(self) -> TrainConfig:
        """How it is fine-tuned: longer, with as many tokens a step."""
        s, config = self.setting, self.config
        return replace(
            config, spec=self.extended, length=s.train_length * s.times, steps=s.finetune_steps, warmup=10,
            batch=max(1, config.batch // s.times), learning_rate=FINETUNE_RATE, curriculum="fixed", position_gap=1,
            slope_training="fixed",
        )  # fmt: skip

    @property
    def base(self) -> Run:
        """The run before its extension."""
        return replace(self, setting=self.setting.replace(extension="off", times=2, finetune_steps=0))

    @cached_property
    def corpus(self) -> Corpus:
        """The text. SpecError for one of the reader's that is too short."""
        if not self.text:
            return english()
        made, need = own_text(self.text), self.setting.train_length * 2 + 1
        if min(len(made.train), len(made.held_out)) < need:
            found = len(made.train) + len(made.held_out)
            raise SpecError([Problem("text", self.text, f"at least {10 * need:,} bytes", f"it has {found:,}")])
        if self.setting.task == "short_texts" and not (pieces(made.train) and pieces(made.held_out)):
            legal = f"sentences of {SHORTEST} bytes or more, in its last tenth too"
            raise SpecError([Problem("text", self.text, legal)])
        return made

    @cached_property
    def key(self) -> str:
        """The hash of everything that determines the result."""
        data = {
            "recipe": RECIPE, "spec": self.sized.to_mapping(), "setting": setting_mapping(self.setting),
            "seed": self.seed, "text": self.corpus.digest if self.setting.task in TEXTS else "",
        }  # fmt: skip
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def total(self) -> int:
        """Steps of its own; those of its base are not among them."""
        return self.setting.steps if self.setting.extension == "off" else self.setting.finetune_steps

    @property
    def seconds(self) -> float:
        """About how long it takes on one core, its base not included."""
        s, parameters = self.setting, 12 * LAYERS * self.setting.width**2 + 256 * self.setting.width
        tokens = self.config.batch * s.train_length * self.total
        attention = 12 * LAYERS * s.width * s.train_length * s.times
        measured = 2 * TOKENS * (parameters + 2 * LAYERS * s.width * TIMES * s.train_length)
        return (tokens * (6 * parameters + attention) + measured) / FLOPS

    @property
    def label(self) -> str:
        """Scheme and extension in words: rope, yarn ×4, 50 steps."""
        return label(self.spec, self.setting)


def setting_mapping(setting: Setting) -> dict[str, Any]:
    """Plain values of the fields that are read."""
    return {p.name: getattr(setting, p.name) for p in setting.params() if setting.applies(p)}


def _acting(setting: Setting, spec: Spec) -> Setting:
    """The setting without what cannot act on this scheme."""
    kinds = {type(s) for s in layers_of(spec)}
    changes: dict[str, Any] = {}
    if AlibiSpec not in kinds:
        changes |= {"slope_training": "fixed", "alpha": Setting.param("alpha").default}
    if RopeSpec not in kinds:
        changes |= {"table_format": "float32"}
        if setting.extension != "off":
            changes |= {"extension": "none"}
    if kinds == {NoneSpec}:
        changes |= {"position_gap": 1}
    if changes.get("extension", setting.extension) == "none" and not setting.finetune_steps:
        changes |= {"extension": "off", "times": Setting.param("times").default}
    return setting.replace(**changes)


def runs(
    schemes: Sequence[Spec], setting: Setting, seeds: Sequence[int], text: str = ""
) -> tuple[list[Run], list[Problem]]:
    """Every scheme with every seed, and why some cannot run. Equal work is listed once.

    A run with an extension brings the run before it along.
    """
    made, problems = dict[str, Run](), dict[Problem, None]()
    for spec in schemes:
        for seed in seeds:
            try:
                run = Run(spec, setting, seed, text)
                for each in (run.base, run):
                    made.setdefault(each.key, each)
            except SpecError as error:
                problems |= dict.fromkeys(error.problems)
    return list(made.values()), list(problems)


def label(spec: Spec, setting: Setting) -> str:
    """Scheme and extension in words: rope, yarn ×4, 50 steps."""
    name = scheme_text(spec)
    if setting.extension == "off":
        return name
    tuned = f", {setting.finetune_steps} steps" if setting.finetune_steps else ""
    return f"{name}, {'unscaled' if setting.extension == 'none' else setting.extension} ×{setting.times}{tuned}"


@dataclass(frozen=True)
class Result:
    """What a run measured.

    curve: (step, mean loss of the steps since the point before), nats a token. loss, accuracy: held-out means of each
    bin of train_length/8 positions, up to 16 training lengths; None where nothing is defined or asked. slopes: of
    ALiBi's heads after training, where they were not those of the spec. seconds: of training. machine: where.
    """

    key: str
    spec: Spec
    setting: Setting
    seed: int
    curve: tuple[tuple[int, float], ...]
    loss: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    slopes: tuple[float, ...]
    seconds: float
    machine: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Scheme and extension in words: rope, yarn ×4, 50 steps."""
        return label(self.spec, self.setting)

    def at(self, times: int, metric: Metric = "loss") -> float:
        """Mean of the second half of the stretch that ends at `times` training lengths; NaN where undefined.

        Text answers for the same bytes there at every `times`.
        """
        part = getattr(self, metric)[BINS * times - BINS // 2 : BINS * times]
        return sum(part) / len(part) if len(part) == BINS // 2 and None not in part else math.nan

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return vars(self) | {
            "spec": self.spec.to_mapping(), "setting": setting_mapping(self.setting), "machine": dict(self.machine)
        }  # fmt: skip

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Result:
        """The result of `to_mapping`, from JSON too. KeyError, TypeError or ValueError for anything else."""
        made = cls(**{
            **data, "spec": parse_spec(data["spec"]), "setting": Setting(**data["setting"]),
            "curve": tuple((int(a), float(b)) for a, b in data["curve"]),
            "machine": dict(data["machine"]), "slopes": tuple(map(float, data["slopes"])),
            **{name: tuple(None if x is None else float(x) for x in data[name]) for name in ("loss", "accuracy")},
        })  # fmt: skip
        bins, numbers = len(made.loss), [x for x in (*made.loss, *made.accuracy, *made.slopes) if x is not None]
        if len(made.accuracy) != bins or not BINS <= bins <= TIMES * BINS or not all(map(math.isfinite, numbers)):
            raise ValueError(f"a result with {bins} losses and {len(made.accuracy)} accuracies is none of the lab")
        return made


Phase = Literal["training", "fine-tuning", "measuring"]


class Progress(NamedTuple):
    """How far a run is: steps done of all training steps, and the loss of the last one in nats a token."""

    phase: Phase
    step: int
    total: int
    loss: float


class Execution:
    """A run being made. Iterate it; once the iteration ends by itself, `result` and `model` are there.

    `base` is the model of run.base, if it was trained before: then only the fine-tuning is left. With `state` (of
    `state_dict` of an execution that was left) it goes on from there, to the same result.
    """

    def __init__(self, run: Run, base: ToyModel | None = None, state: Mapping[str, Any] | None = None) -> None:
        self.run, self.model = run, new_model(run.config) if base is None else copy.deepcopy(base).requires_grad_()
        self.result: Result | None = None
        self.losses: list[float] = []
        self._phase: Phase = "training" if base is None else "fine-tuning"
        self._total = run.total + (run.base.total if base is None and run.base != run else 0)
        self._seconds, self._state = 0.0, state
        self._trainer: Trainer | None = None
        if state is not None:
            self.losses, self._seconds, self._phase = list(state["losses"]), state["seconds"], state["phase"]
            self._total = state["total"]

    def __iter__(self) -> Iterator[Progress]:
        return self.steps()

    def steps(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Progress]:
        """One Progress a training step. Measuring ends early, without a result, once told to stop."""
        run, task = self.run, self.run.setting.make_task(self.run.corpus)
        if self._phase == "training":
            yield from self._train(run.config, task)
            round_to_half(self.model)
            self._phase = "fine-tuning"
            if run.setting.extension != "off":
                self._seconds = 0.0  # those of its own
        if run.setting.extension != "off":
            extend(self.model, run)
            if run.setting.finetune_steps:
                yield from self._train(run.finetuning, task)
                round_to_half(self.model)
        self._phase = "measuring"
        yield self._progress()
        found = measure(run, self.model, task, should_stop)
        if found is not None:
            self.result = self._result(*found)

    def _train(self, config: TrainConfig, task: Task) -> Iterator[Progress]:
        trainer = self._trainer = Trainer(config, self.model, task)
        if self._state is not None:
            trainer.load_state_dict(self._state["trainer"])
            self._state = None
        while trainer.step < config.steps:
            start = time.perf_counter()
            self.losses.append(trainer.advance())
            self._seconds += time.perf_counter() - start
            yield self._progress()

    def _progress(self) -> Progress:
        return Progress(self._phase, len(self.losses), self._total, self.losses[-1] if self.losses else math.nan)

    def state_dict(self) -> dict[str, Any]:
        """All that going on needs; for torch.save. Empty before the first step and while it is measured."""
        if self._trainer is None or self._phase == "measuring":
            return {}
        return {
            "phase": self._phase, "losses": self.losses, "seconds": self._seconds, "total": self._total,
            "trainer": self._trainer.state_dict(),
        }  # fmt: skip

    def _result(self, loss: Tensor, accuracy: Tensor) -> Result:
        run = self.run
        changed = run.setting.slope_training != "fixed"
        slopes = [round(x, 6) for a in alibis(self.model) for x in a.slopes.tolist()] if changed else []
        return Result(
            key=run.key, spec=run.sized, setting=run.setting, seed=run.seed,
            curve=curve(self.losses[len(self.losses) - run.total :]),  # without the base's
            loss=_plain(loss), accuracy=_plain(accuracy), slopes=tuple(slopes), seconds=round(self._seconds, 2),
            machine=machine(),
        )  # fmt: skip


def curve(losses: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """At most CURVE points: (step, mean loss of the steps since the point before)."""
    each = -(-len(losses) // CURVE) or 1
    parts = [(min(i + each, len(losses)), losses[i : i + each]) for i in range(0, len(losses), each)]
    return tuple((end, round(sum(part) / len(part), 4)) for end, part in parts)


def extend(model: ToyModel, run: Run) -> None:
    """Give a trained model the encoding that the run measures it with; learned slopes stay."""
    before = alibis(model)
    model.encoding = run.extended.build()
    for old, new in zip(before, alibis(model), strict=True):
        new.slopes = old.slopes
    set_table_format(model, run.setting.table_format)


def round_to_half(model: ToyModel) -> None:
    """The weights as a file keeps them: what is measured is what is kept."""
    for p in model.parameters():
        p.data = p.data.half().float()


def measure(
    run: Run, model: ToyModel, task: Task, should_stop: Callable[[], bool] = lambda: False
) -> tuple[Tensor, Tensor] | None:
    """Held-out loss and accuracy of every bin, float64 [≤ 16·8] each, in memory that does not grow with the length.

    A scaling that depends on the length (dynamic NTK) is measured in windows of 1, 2, 4, 8 and 16 training lengths,
    each position in the shortest that holds it; else one window has them all. None once told to stop.
    """
    trained = run.setting.train_length
    longest = min(TIMES * trained, task.longest or TIMES * trained) // (trained // BINS) * (trained // BINS)
    by_length = any(isinstance(s, RopeSpec) and s.by_length for s in layers_of(run.extended))
    ends = [trained * n for n in MEASURED if trained * n < longest] if by_length else []
    loss, accuracy = torch.full((2, longest), torch.nan, dtype=torch.float64)
    start, count = 0, max(TIMES + 1, min(EXAMPLES, TOKENS // longest))
    whole = task.held_out(count, longest, trained)
    for end in [*ends, longest]:
        scored = None if whole.scored is None else whole.scored[:, :end]
        examples = Batch(whole.tokens[:, :end], whole.targets[:, :end], scored)
        found = by_position(model, examples, max(1, min(BATCH_TOKENS // end, BATCH_PAIRS // end**2)), should_stop)
        if should_stop():
            return None
        loss[start:end], accuracy[start:end] = found.loss[start:], found.accuracy[start:]
        start = end
    made = torch.stack([loss, accuracy]).view(2, -1, trained // BINS)
    return made[0].nanmean(-1), made[1].nanmean(-1)


def _plain(values: Tensor) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(x) else round(x, 4) for x in values.tolist())


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs by their training, the one before its extension first."""
    made = dict[str, list[Run]]()
    for run in sorted(runs, key=lambda r: r.setting.extension != "off"):
        made.setdefault(run.base.key, []).append(run)
    return list(made.values())


def perform(
    runs: Sequence[Run], threads: int = 1, keep: Callable[[Run, ToyModel], None] = lambda run, model: None
) -> list[Result]:
    """Make runs that share their training (one of `groups`), which is done once. `keep` gets each run's model."""
    torch.set_num_threads(threads)
    made, trained = [], None
    for run in dict.fromkeys([runs[0].base, *runs]):
        execution = Execution(run, trained)
        for _ in execution:
            pass
        trained = trained or execution.model
        if run in runs:
            assert execution.result is not None
            made.append(execution.result)
            keep(run, execution.model)
    return made


if __name__ == "__main__":
    from posenc_core.sweep import main

    sys.exit(main())
