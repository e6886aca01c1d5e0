"""A small decoder-only transformer over bytes that calls a scheme's three hooks and nothing else of it."""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import gelu

from posenc_core.attention import attention
from posenc_core.schemes import build, parse_spec
from posenc_core.schemes.base import PositionalEncoding
from posenc_core.spec import Spec

VOCABULARY = 256
_SEEDING = threading.Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """First weights from this seed. They come from torch's generator, of which a process has one: one at a time."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True)
class ModelSize:
    """Layers, heads and widths; d_head = d_model / n_heads."""

    n_layers: int = 2
    n_heads: int = 4
    d_model: int = 128

    def __post_init__(self) -> None:
        for name, low, high in (("n_layers", 1, 128), ("n_heads", 1, 256), ("d_model", 2, 16384)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} = {getattr(self, name)} is not legal; legal: {low} to {high:,}")
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model = {self.d_model} is not legal; legal: a multiple of n_heads = {self.n_heads}")

    @property
    def d_head(self) -> int:
        """Features of one head."""
        return self.d_model // self.n_heads

    def of(self, spec: Spec) -> Spec:
        """The spec with this model's sizes. SpecError where its own parameters do not allow them."""
        return spec.with_sizes(d_model=self.d_model, d_head=self.d_head, n_heads=self.n_heads)


class Trace(NamedTuple):
    """One forward pass in the open: logits [B, L, 256], weights of each layer [B, H, L, L], hidden states [B, L, d]."""

    logits: Tensor
    weights: list[Tensor]
    hidden: list[Tensor]


class Block(nn.Module):
    """Pre-norm attention and a two-layer perceptron of four times the width."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.n_heads, d = size.n_heads, size.d_model
        self.attention_norm, self.mlp_norm = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        for inward in (self.qkv, self.up):
            nn.init.normal_(inward.weight, std=d**-0.5)
        for outward in (self.out, self.down):  # residual branches start small, so that depth does not blow up the sum
            nn.init.normal_(outward.weight, std=0.02)

    def forward(
        self, x: Tensor, encoding: PositionalEncoding, positions: Tensor, causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """x [B, L, d_model] -> the same shape, and the weights [B, H, L, L] if asked for."""
        q, k, v = (
            t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for t in self.qkv(self.attention_norm(x)).chunk(3, -1)
        )
        y, weights = attention(q, k, v, encoding, positions, positions, causal=causal, need_weights=need_weights)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.mlp_norm(x)))), weights


class ToyModel(nn.Module):
    """Bytes in, next-byte logits out. The same weights run under any encoding of the same sizes: set `.encoding`."""

    def __init__(self, spec: Spec, size: ModelSize = ModelSize()) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(VOCABULARY, size.d_model)
        self.encoding = build(size.of(spec))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.n_layers))
        self.norm = nn.RMSNorm(size.d_model)
        nn.init.normal_(self.embedding.weight, std=size.d_model**-0.5)

    def forward(self, tokens: Tensor, positions: Tensor, *, causal: bool = True) -> Tensor:
        """Logits [B, L, 256] from token ids int64 [B, L] and positions [L] or [B, L]."""
        return self._run(tokens, positions, causal, need_weights=False).logits

    def trace(self, tokens: Tensor, positions: Tensor, *, causal: bool = True) -> Trace:
        """The same forward pass with every layer's attention weights and hidden states kept."""
        return self._run(tokens, positions, causal, need_weights=True)

    def _run(self, tokens: Tensor, positions: Tensor, causal: bool, need_weights: bool) -> Trace:
        x = self.embedding(tokens) * self.size.d_model**0.5
        x = self.encoding.embed(x, positions)
        weights, hidden = [], [x]
        for index, block in enumerate(self.blocks):
            x, w = block(x, self.encoding.layer(index), positions, causal, need_weights)
            if w is not None:
                weights.append(w)
                hidden.append(x)
        return Trace(self.norm(x) @ self.embedding.weight.T, weights, hidden)


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross entropy in nats of each next token: [B, L - 1] from logits [B, L, 256] and tokens [B, L]."""
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(
        len(tokens), -1
    )


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint records about itself. `held_out_loss[i]` is nats at position i, None where undefined."""

    spec: Spec
    size: ModelSize
    seed: int
    steps: int
    train_length: int
    held_out_loss: list[float | None] = field(default_factory=list)
    text_sha256: str = ""
    torch_version: str = torch.__version__
    python_version: str = platform.python_version()

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"spec": self.spec.to_mapping()}


def save_checkpoint(model: ToyModel, record: Checkpoint, path: Path) -> None:
    """Weights in float16 and the record, in one safetensors file."""
    tensors = {name: t.detach().to(torch.float16).contiguous() for name, t in model.state_dict().items()}
    save_file(tensors, path, metadata={"posenc": json.dumps(record.to_mapping())})


def read_record(path: Path) -> Checkpoint:
    """The record of a checkpoint, its weights unread."""
    with safe_open(path, framework="pt") as file:
        data = json.loads(file.metadata()["posenc"])
    return Checkpoint(**(data | {"spec": parse_spec(data["spec"]), "size": ModelSize(**data["size"])}))


def load_checkpoint(path: Path) -> tuple[ToyModel, Checkpoint]:
    """A model in float32 and evaluation mode, and its record."""
    record = read_record(path)
    model = ToyModel(record.spec, record.size)
    with safe_open(path, framework="pt") as file:
        model.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
    return model.eval(), record
