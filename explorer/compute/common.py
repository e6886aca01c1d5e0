"""What every page computes with: start-up, checkpoints, encodings, limits."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc_core import SCHEMES, PositionalEncoding, Spec, SpecError, build, rotary
from posenc_core.model import Checkpoint, ToyModel, load_checkpoint, read_record, seeded
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec, layers_of
from posenc_core.schemes.learned import Learned, LearnedSpec
from posenc_core.schemes.rope import Rope, RopeSpec

ASSETS = Path(__file__).resolve().parents[2] / "assets"
MAX_CELLS = 2**20  # of any array sent to the browser
TRAIN_LENGTH = 128  # of the shipped toy models, checked against their records in the tests

Array = NDArray[np.float64]


def spec_key(spec: Spec) -> tuple[tuple[str, str], ...]:
    """What a cache tells specs apart by."""
    return tuple(spec.to_query().items())


HASHES: dict[Any, Any] = {spec: spec_key for spec in SCHEMES.values()}


@st.cache_resource(show_spinner=False)
def boot() -> None:
    """Once a process: take what is imported out of the garbage collection that follows every rerun (174 -> 8 ms).

    The fused rotation is compiled beside that; until it is there, pages rotate with PyTorch's own operations.
    """
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))  # leave room for the other readers
    gc.collect()
    gc.freeze()
    threading.Thread(target=rotary.warm_up, args=("cpu",), name="posenc-warm-up", daemon=True).start()


def frozen(tensor: Tensor) -> Array:
    """A tensor as a read-only float64 array."""
    array = tensor.detach().double().numpy()
    array.setflags(write=False)
    return array


def model_files() -> list[Path]:
    """The shipped checkpoints."""
    return sorted((ASSETS / "models").glob("*.safetensors"))


@st.cache_resource(show_spinner=False)
def records() -> dict[str, Checkpoint]:
    """What each shipped checkpoint says of itself, by file stem."""
    return {path.stem: read_record(path) for path in model_files()}


def checkpoint_name(spec: Spec) -> str:
    """The shipped checkpoint of the spec's scheme whose parameters differ in the fewest fields."""
    candidates = {n: r for n, r in records().items() if r.spec.scheme == spec.scheme}

    def differing(name: str) -> tuple[int, int]:
        trained = candidates[name].spec
        if isinstance(spec, HybridSpec) and isinstance(trained, HybridSpec):
            pairs = zip(spec.layers, trained.layers, strict=False)
            return sum(a.scheme != b.scheme for a, b in pairs), len(name)
        sizes = candidates[name].size
        try:
            mine = spec.with_sizes(d_model=sizes.d_model, d_head=sizes.d_head)
        except SpecError:  # a rotary_fraction that leaves no whole pair at the toy's size
            mine = spec
        return sum(getattr(mine, p.name) != getattr(trained, p.name) for p in spec.params()), len(name)

    return min(candidates, key=differing)


@st.cache_resource(max_entries=16, show_spinner=False)
def checkpoint(name: str) -> tuple[ToyModel, Checkpoint]:
    """A trained toy model with the encoding it was trained with. Do not change it: readers share it."""
    model, record = load_checkpoint(ASSETS / "models" / f"{name}.safetensors")
    return model.requires_grad_(False), record


def encoding(spec: Spec, seq_len: int | None = None) -> PositionalEncoding:
    """The spec's module. A learned table of the toy model's width holds its trained rows, and no others.

    With `seq_len`, a rotation whose frequencies depend on the length is that of a sequence of this length.
    """
    return _encoding(spec, seq_len if isinstance(spec, RopeSpec) and spec.by_length else None)


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def _encoding(spec: Spec, seq_len: int | None) -> PositionalEncoding:
    if isinstance(spec, RopeSpec):
        return Rope(spec, seq_len)
    if isinstance(spec, LearnedSpec):
        trained = checkpoint(checkpoint_name(spec))[0].encoding
        assert isinstance(trained, Learned)
        if spec.d_model == trained.spec.d_model:
            rows = min(spec.max_position_embeddings, trained.spec.max_position_embeddings)
            table = Learned(spec.replace(max_position_embeddings=max(rows, spec.offset + 1)))
            table.table.data = trained.table.data[: table.spec.max_position_embeddings].clone()
            return table.requires_grad_(False)
        with seeded(0):
            return build(spec).requires_grad_(False)
    return build(spec)


def rope_of(spec: Spec) -> RopeSpec | None:
    """The rotation that a spec holds: itself, or a hybrid's first rope layer."""
    return next((s for s in layers_of(spec) if isinstance(s, RopeSpec)), None)


def one_head(spec: Spec, head: int) -> Spec:
    """ALiBi with the chosen head only, so that a matrix for 256 heads need not be made."""
    if not isinstance(spec, AlibiSpec):
        return spec
    slopes = spec.slope_tensor().tolist()
    return spec.replace(n_heads=1, slopes=(slopes[min(head, len(slopes) - 1)],))


def trained_table(spec: Spec) -> bool:
    """Whether a learned table has trained rows to show."""
    return isinstance(spec, LearnedSpec) and spec.d_model == checkpoint(checkpoint_name(spec))[1].size.d_model


def stride(length: int, width: int) -> int:
    """Every how manieth of `width` columns to keep so that `length` times them fits into MAX_CELLS."""
    return max(1, -(-length * width // MAX_CELLS))
