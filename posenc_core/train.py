"""Train the toy model: a generator of records, and `python -m posenc_core.train --scheme rope`."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from posenc_core.model import Checkpoint, ModelSize, ToyModel, save_checkpoint
from posenc_core.schemes import SCHEMES, parse_fields
from posenc_core.spec import Spec
from posenc_core.tasks import english, random_windows, windows

EVALUATE_TIMES = 8  # held-out loss is recorded up to this many training lengths


@dataclass(frozen=True)
class TrainConfig:
    """All that determines a run."""

    spec: Spec
    size: ModelSize = ModelSize()
    length: int = 128
    steps: int = 1000
    batch: int = 32
    learning_rate: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (("length", 2, 4096), ("steps", 1, 1_000_000), ("batch", 1, 4096)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} = {getattr(self, name)} is not legal; legal: {low} to {high:,}")


@dataclass(frozen=True)
class TrainRecord:
    """One step: mean loss in nats a byte, seconds since the start."""

    step: int
    loss: float
    seconds: float


def train(config: TrainConfig, model: ToyModel, text: Tensor) -> Iterator[TrainRecord]:
    """Train `model` in place on random windows of `text` (uint8 [n]); yields a record a step.

    Stop by leaving the loop: the model then is as far as the last record says.
    """
    generator = torch.Generator().manual_seed(config.seed)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=config.learning_rate, betas=(0.9, 0.95),
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate(step, config))
    positions = torch.arange(config.length)
    start = time.perf_counter()
    for step in range(1, config.steps + 1):
        tokens = random_windows(text, config.length, config.batch, generator)
        logits = model(tokens[:, :-1], positions)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield TrainRecord(step, loss.item(), time.perf_counter() - start)


def _learning_rate(step: int, config: TrainConfig) -> float:
    if step < config.warmup:
        return (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))


@torch.no_grad()
def loss_by_position(model: ToyModel, text: Tensor, length: int, count: int = 32, batch: int = 4) -> Tensor:
    """Mean next-byte loss in nats at each position, float64 [length], over `count` windows of `text`.

    NaN from the position where the encoding ends (a learned table, a one-hot table).
    """
    defined = getattr(model.encoding.layer(0), "defined", None)
    seen = length if defined is None else min(length, defined)
    total = torch.zeros(seen, dtype=torch.float64)
    positions = torch.arange(seen)
    for tokens in windows(text, length, count).split(batch):
        logits = model(tokens[:, :seen], positions)
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1 : seen + 1].flatten(), reduction="none"
        )
        total += loss.view(len(tokens), seen).double().sum(0)
    return torch.nn.functional.pad(total / count, (0, length - seen), value=torch.nan)


def train_checkpoint(config: TrainConfig, path: Path, progress: bool = True) -> tuple[Checkpoint, list[TrainRecord]]:
    """Train from the seed, evaluate on held-out text, save; the recorded losses are those of the float16 weights."""
    text = english()
    longest = (len(text.held_out) - 1) // EVALUATE_TIMES
    if config.length > longest:
        raise ValueError(
            f"length = {config.length} is not legal; legal: 2 to {longest:,}, since held-out text is evaluated at "
            f"{EVALUATE_TIMES} times it"
        )
    torch.manual_seed(config.seed)
    model = ToyModel(config.spec, config.size)
    records = []
    with tqdm(train(config, model, text.train), total=config.steps, disable=not progress, file=sys.stderr) as bar:
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
