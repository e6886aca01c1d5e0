"""Train the toy model: a generator of records, and `python -m posenc_core.train --scheme rope`."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from posenc_core.analysis import defined_length
from posenc_core.model import Checkpoint, ModelSize, ToyModel, save_checkpoint, seeded
from posenc_core.schemes import SCHEMES, parse_fields
from posenc_core.schemes.alibi import Alibi
from posenc_core.schemes.rope import Rope
from posenc_core.spec import Spec
from posenc_core.tasks import Batch, Task, TextTask, english, windows

MAX_LENGTH = 4096  # positions of a training example
EVALUATE_TIMES = 8  # held-out loss is recorded up to this many training lengths


Curriculum = Literal["fixed", "progressive"]
SlopeTraining = Literal["fixed", "dynamic", "learned"]
TableFormat = Literal["float32", "float16", "bfloat16"]
STAGES = 4  # of progressive length, each twice as long as the one before


@dataclass(frozen=True)
class TrainConfig:
    """All that determines a run beside its task. The options come from articles; their defaults are plain training.

    curriculum: "progressive" starts at length/8 and doubles three times, as many tokens a step as ever; each stage
    warms up anew, for a time proportional to its length. slope_training: ALiBi's slopes times 1 + alpha·log(t/steps)
    at step t ("dynamic"), or trained ("learned"). position_gap: positions are drawn without repetition from so many
    times the length and sorted (Ruoss et al. 2023, arXiv:2305.16843). table_format: cos and sin are rounded to it,
    attention stays in float32.
    """

    spec: Spec
    size: ModelSize = ModelSize()
    length: int = 128
    steps: int = 1000
    batch: int = 32
    learning_rate: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.1
    seed: int = 0
    curriculum: Curriculum = "fixed"
    slope_training: SlopeTraining = "fixed"
    alpha: float = 0.5
    position_gap: int = 1
    table_format: TableFormat = "float32"

    def __post_init__(self) -> None:
        for name, low, high in (("length", 2, MAX_LENGTH), ("steps", 1, 1_000_000), ("batch", 1, 4096)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} = {getattr(self, name)} is not legal; legal: {low} to {high:,}")


@dataclass(frozen=True)
class TrainRecord:
    """One step: mean loss in nats a token, seconds since the start."""

    step: int
    loss: float
    seconds: float


def slope_factor(step: int, steps: int, alpha: float) -> float:
    """What dynamic slopes are multiplied by at a step from 1: negative while step < steps·e^(-1/alpha)."""
    return 1 + alpha * math.log(step / steps)


def new_model(config: TrainConfig) -> ToyModel:
    """An untrained model from the seed, with the options that change modules."""
    with seeded(config.seed):
        model = ToyModel(config.spec, config.size)
    for alibi in alibis(model) if config.slope_training == "learned" else ():
        alibi.slopes = torch.nn.Parameter(alibi.slopes.float())
    set_table_format(model, config.table_format)
    return model


def alibis(model: ToyModel) -> list[Alibi]:
    """The model's ALiBi encodings, each once."""
    return [m for m in model.encoding.modules() if isinstance(m, Alibi)]


def set_table_format(model: ToyModel, name: TableFormat) -> None:
    """Round cos and sin of every rotation to this format. Call before the model's first use."""
    for module in model.encoding.modules():
        if isinstance(module, Rope) and name != "float32":  # rounded to float32 they are in any case
            module.table_dtype = getattr(torch, name)


class Trainer:
    """Trains `model` in place, one step a call. Its state can be saved, and training goes on as if never stopped."""

    def __init__(self, config: TrainConfig, model: ToyModel, task: Task) -> None:
        self.config, self.model, self.task, self.step = config, model, task, 0
        self.generator = torch.Generator().manual_seed(config.seed)
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=config.learning_rate, betas=(0.9, 0.95), fused=True,
        )  # fmt: skip
        self._slopes = [(a, a.slopes) for a in alibis(model)] if config.slope_training == "dynamic" else []
        self._positions = torch.arange(config.length)  # one tensor, so that tables are built once

    def advance(self) -> float:
        """One step; returns its mean loss in nats a token."""
        config, stage = self.config, stage_of(self.step, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * _warmth(self.step, stage, config) * _cosine(self.step, config)
        self.step += 1
        for alibi, slopes in self._slopes:
            alibi.slopes = slopes * slope_factor(self.step, config.steps, config.alpha)
        length = max(stage.length, min(self.task.smallest, config.length))
        batch = self.task.batch(config.batch * config.length // length, length, self.generator)
        logits = self.model(batch.tokens, self._drawn(length)).flatten(0, 1)
        loss = cross_entropy(*_counted(logits, batch))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def _drawn(self, length: int) -> Tensor:
        if self.config.position_gap == 1:
            return self._positions[:length] if length < self.config.length else self._positions
        drawn = torch.randperm(self.config.position_gap * length, generator=self.generator)[:length]
        return drawn.sort().values

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values: all that `load_state_dict` of a new Trainer needs."""
        return {
            "step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])


class Stage(NamedTuple):
    """A part of the training with one length: its first step and the length."""

    start: int
    length: int


def stage_of(step: int, config: TrainConfig) -> Stage:
    """The stage of a step from 0."""
    if config.curriculum == "fixed":
        return Stage(0, config.length)
    index = min(STAGES - 1, step * STAGES // config.steps)
    return Stage(-(-index * config.steps // STAGES), max(2, config.length >> (STAGES - 1 - index)))


def _warmth(step: int, stage: Stage, config: TrainConfig) -> float:
    warmup = config.warmup * stage.length / config.length
    return min(1.0, (step - stage.start + 1) / max(1.0, warmup))


def _cosine(step: int, config: TrainConfig) -> float:
    done = max(0, step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))


def _counted(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    targets = batch.targets.flatten()
    if batch.scored is None:
        return logits, targets
    where = batch.scored.flatten()
    return logits[where], targets[where]


def train(config: TrainConfig, model: ToyModel, task: Task) -> Iterator[TrainRecord]:
    """Train `model` in place; yields a record a step.

    Stop by leaving the loop: the model then is as far as the last record says.
    """
    trainer, start = Trainer(config, model, task), time.perf_counter()
    while trainer.step < config.steps:
        loss = trainer.advance()
        yield TrainRecord(trainer.step, loss, time.perf_counter() - start)


@torch.no_grad()
def loss_by_position(model: ToyModel, text: Tensor, length: int, count: int = 32, batch: int = 4) -> Tensor:
    """Mean next-byte loss in nats at each position, float64 [length], over `count` windows of `text`.

    NaN from the position where the encoding ends (a learned table, a one-hot table).
    """
    tokens = windows(text, length, count)
    return by_position(model, Batch(tokens[:, :-1], tokens[:, 1:]), batch).loss


class ByPosition(NamedTuple):
    """Means at each position over the examples that count there, float64 [L]; NaN where none does or none can."""

    loss: Tensor
    accuracy: Tensor


@torch.no_grad()
def by_position(
    model: ToyModel, examples: Batch, batch: int = 4, should_stop: Callable[[], bool] = lambda: False
) -> ByPosition:
    """Loss in nats and share of right answers at each position; `batch` examples at a time bound the memory.

    NaN from the position where the encoding ends. Once told to stop, the means of the examples so far.
    """
    length = examples.tokens.shape[-1]
    seen = length if (defined := defined_length(model.encoding)) is None else min(length, defined)
    sums, counts = torch.zeros(2, seen, dtype=torch.float64), torch.zeros(seen, dtype=torch.float64)
    positions = torch.arange(seen)
    for start in range(0, len(examples.tokens), batch):
        if should_stop():
            break
        tokens, targets = (t[start : start + batch, :seen] for t in examples[:2])
        logits = model(tokens, positions)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        right = logits.argmax(-1) == targets
        scored = torch.ones_like(right) if examples.scored is None else examples.scored[start : start + batch, :seen]
        sums += torch.stack([(loss * scored).double().sum(0), (right & scored).double().sum(0)])
        counts += scored.sum(0)
    made = torch.nn.functional.pad(sums / counts, (0, length - seen), value=torch.nan)
    return ByPosition(made[0], made[1])


def train_checkpoint(config: TrainConfig, path: Path, progress: bool = True) -> tuple[Checkpoint, list[TrainRecord]]:
    """Train from the seed, evaluate on held-out text, save; the recorded losses are those of the float16 weights."""
    text = english()
    longest = (len(text.held_out) - 1) // EVALUATE_TIMES
    if config.length > longest:
        raise ValueError(
            f"length = {config.length} is not legal; legal: 2 to {longest:,}, since held-out text is evaluated at "
            f"{EVALUATE_TIMES} times it"
        )
    model = new_model(config)
    records = []
    with tqdm(train(config, model, TextTask(text)), total=config.steps, disable=not progress, file=sys.stderr) as bar:
        for record in bar:
            records.append(record)
            if record.step % 10 == 0:
                bar.set_postfix_str(f"loss {record.loss:.3f} nats/byte")
    for p in model.parameters():
        p.data = p.data.half().float()
    losses = loss_by_position(model, text.held_out, EVALUATE_TIMES * config.length)
    checkpoint = Checkpoint(
        spec=model.encoding.spec, size=config.size, seed=config.seed, steps=config.steps, train_length=config.length,
        held_out_loss=[None if math.isnan(x) else round(x, 4) for x in losses.tolist()], text_sha256=text.digest,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(model, checkpoint, path)
    return checkpoint, records


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m posenc_core.train", description="Train one toy model from a seed.")
    parser.add_argument("--scheme", required=True, choices=list(SCHEMES))
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the scheme")
    parser.add_argument("--length", type=int, default=TrainConfig.length, help="training length in bytes")
    parser.add_argument("--steps", type=int, default=TrainConfig.steps)
    parser.add_argument("--seed", type=int, default=TrainConfig.seed)
    parser.add_argument("--d-model", type=int, default=ModelSize.d_model)
    parser.add_argument("--layers", type=int, default=ModelSize.n_layers)
    parser.add_argument("--heads", type=int, default=ModelSize.n_heads)
    parser.add_argument("--threads", type=int, default=None, help="torch threads")
    parser.add_argument("--out", type=Path, default=None, help="default: SCHEME.safetensors here")
    parser.add_argument("--json", type=Path, default=None, help="also write the record of every step")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args(arguments)
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        spec = parse_fields({"scheme": args.scheme} | dict(pair.partition("=")[::2] for pair in args.set))
        size = ModelSize(args.layers, args.heads, args.d_model)
        config = TrainConfig(spec=size.of(spec), size=size, length=args.length, steps=args.steps, seed=args.seed)
        out = args.out or Path(f"{args.scheme}.safetensors")
        checkpoint, records = train_checkpoint(config, out, progress=not args.quiet)
    except ValueError as error:
        parser.error(str(error))
    loss = torch.tensor([math.nan if x is None else x for x in checkpoint.held_out_loss])
    inside, last = loss[args.length // 2 : args.length].mean(), loss[-args.length :].mean()
    print(f"{out}: held-out {inside:.3f} nats/byte at the end of the training length, "
          f"{last:.3f} at {EVALUATE_TIMES} times it, {records[-1].seconds:.0f} s")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(checkpoint.to_mapping() | {"records": [vars(r) for r in records]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
