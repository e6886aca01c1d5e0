"""Speed of the lab beside plain PyTorch, in one run: python tests/speed/lab_speed.py [--json FILE]

1. A training step (batch, forward, backward, clipping, AdamW) of each scheme at the default size and at the shipped
   checkpoints' size, beside two transformers of the same size without positions: PyTorch's own nn.TransformerEncoder,
   and the same blocks written out with scaled_dot_product_attention. Steps alternate.
2. The whole default run of each scheme: training and measuring.
3. Peak memory of a process that measures ALiBi and RoPE at 16 times 512 positions beside 16 times 64, and before that.

Machines are shared and noisy: read the ratios, not the milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from posenc_core.benchmark import machine, machine_line
from posenc_core.lab import DEFAULT_SCHEMES, Run, Setting, parse_schemes, perform
from posenc_core.tasks import TextTask, english
from posenc_core.train import Trainer, new_model

SIZES = ((64, 64), (128, 128))  # width, length
ROUNDS, WARM = 60, 5
MEMORY = """
import re, sys, torch
from posenc_core.lab import Run, Setting, measure, parse_schemes
from posenc_core.train import new_model
torch.set_num_threads(1)
run = Run(parse_schemes(sys.argv[1])[0], Setting(train_length=int(sys.argv[2]), task="token_back"))
model, task = new_model(run.config), run.setting.make_task(run.corpus)
def peak():  # Linux; ru_maxrss would be the parent's where that was larger
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
before = peak()
measure(run, model, task)
print(before, peak())
"""


class Stock(nn.Module):
    """nn.TransformerEncoder under a causal mask."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.body(self.embedding(tokens), self.mask, is_causal=True) @ self.embedding.weight.T


class PlainBlock(nn.Module):
    """The toy model's block, without a hook for positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norms[1](x))))


class Plain(nn.Module):
    """The toy model written out, without positions."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(256, width), nn.RMSNorm(width)
        self.blocks = nn.Sequential(*(PlainBlock(width) for _ in range(2)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.norm(self.blocks(self.embedding(tokens))) @ self.embedding.weight.T


def plain_step(model: nn.Module, length: int) -> Callable[[], object]:
    """A step as one writes it down."""
    optimizer, task = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True), TextTask(english())
    generator = torch.Generator().manual_seed(0)

    def step() -> float:
        tokens, targets, _ = task.batch(32, length, generator)
        loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def lab_step(scheme: str, width: int, length: int) -> Callable[[], object]:
    """A step of the lab."""
    run = Run(parse_schemes(scheme)[0], Setting(width=width, train_length=length))
    return Trainer(run.config, new_model(run.config), TextTask(run.corpus)).advance


def training_steps(rounds: int) -> list[dict[str, object]]:
    """Median seconds of a step, and the median and quartiles of its ratio to both plain models, round by round."""
    made = []
    for width, length in SIZES:
        steps = {"nn.TransformerEncoder": plain_step(Stock(width, length), length),
                 "written out": plain_step(Plain(width, length), length)}  # fmt: skip
        yardsticks = tuple(steps)
        steps |= {name: lab_step(name, width, length) for name in DEFAULT_SCHEMES.split(", ")}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for index in range(WARM + rounds):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                if index >= WARM:
                    times[name].append(time.perf_counter() - start)
        for name, seconds in times.items():
            ratios = {
                other: statistics.quantiles([a / b for a, b in zip(seconds, times[other], strict=True)], n=4)
                for other in yardsticks
            }
            made.append({"width": width, "length": length, "model": name,
                         "seconds": statistics.median(seconds), "ratios": ratios})  # fmt: skip
    return made


def whole_runs() -> list[dict[str, object]]:
    """Seconds of training, and of training and measuring, with the lab's defaults."""
    made = []
    for spec in parse_schemes(DEFAULT_SCHEMES):
        start = time.perf_counter()
        (result,) = perform([Run(spec)])
        made.append({"scheme": result.label, "training": result.seconds, "all": time.perf_counter() - start})
    return made


def memory() -> list[dict[str, object]]:
    """Peak of a fresh process in MiB, before and after measuring."""
    made = []
    for scheme in ("rope", "alibi"):
        for length in (64, 512):
            command = [sys.executable, "-c", MEMORY, scheme, str(length)]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            before, after = map(float, found.split())
            made.append({"scheme": scheme, "length": 16 * length, "before": before, "after": after})
    return made


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(machine_line(machine()))
    made = {"machine": machine(), "steps": training_steps(args.rounds)}
    print("training step: milliseconds, ratio to nn.TransformerEncoder and to the same blocks written out (quartiles)")
    for row in made["steps"]:
        ratios = "   ".join("{1:.3f} ({0:.3f} to {2:.3f})".format(*q) for q in row["ratios"].values())
        print(f"  {row['width']}×{row['length']:<4} {row['model']:22} {1e3 * row['seconds']:6.1f}   {ratios}")
    made["runs"] = whole_runs()
    print("default run: seconds of training, and with measuring")
    for row in made["runs"]:
        print(f"  {row['scheme']:22} {row['training']:6.1f} {row['all']:6.1f}")
    made["memory"] = memory()
    print("measuring: peak MiB of a process, before and after")
    for row in made["memory"]:
        print(f"  {row['scheme']:22} {row['length']:6} positions {row['before']:7.0f} {row['after']:7.0f}")
    if args.json:
        args.json.write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
