"""Attention of the lab's trained models on held-out examples of their task."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import streamlit as st
import torch

from explorer.compute.common import Array, frozen
from explorer.compute.lab import RUN, weights
from posenc_core import analysis
from posenc_core.lab import Run

MAX_TOKENS = 1024  # attention weights grow with the square
THUMBNAIL = 64  # cells of a small map's side
DRIFT_EXAMPLES = 4


def rows(run: Run) -> int | None:
    """Positions that have an encoding, None if all; only for a run whose weights are kept."""
    model = weights(run)
    assert model is not None
    return analysis.defined_length(model.encoding)


class Attention(NamedTuple):
    """A model on held-out examples of `length` tokens.

    small: weights of one example [layers, heads, n, n], the largest of each block × block. entropy (nats) and distance
    (positions): means over examples at each position [layers, heads, length]. Undefined past the end of a table.
    """

    length: int
    block: int
    small: Array
    entropy: Array
    distance: Array

    def at_end(self, quantity: str, stretch: int) -> Array:
        """Mean over the last half of a stretch of positions, [layers, heads]; NaN where undefined."""
        values = getattr(self, quantity)
        return np.asarray(values[..., self.length - stretch // 2 :].mean(-1))


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=RUN)
def _examples(run: Run, length: int) -> torch.Tensor:
    task = run.setting.make_task(run.corpus)
    return task.held_out(DRIFT_EXAMPLES, length, run.setting.train_length).tokens[:DRIFT_EXAMPLES]


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=RUN)
def attention(run: Run, length: int) -> Attention:
    """What the heads do; only for a run whose weights are kept."""
    tokens, block = _examples(run, length), -(-length // THUMBNAIL)
    traced = _traced(run, length)
    small = analysis.pooled(traced, block)
    side = -(-length // block) - small.shape[-1]
    small = torch.nn.functional.pad(small, (0, side, 0, side), value=torch.nan)
    model = weights(run)
    assert model is not None
    drift = analysis.attention_drift(model, tokens)
    return Attention(length, block, frozen(small), frozen(drift.entropy), frozen(drift.distance))


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs=RUN)
def _traced(run: Run, length: int) -> torch.Tensor:
    """Weights [layers, heads, n, n] of the first example, as far as positions are defined."""
    model = weights(run)
    assert model is not None
    seen = min(length, rows(run) or length)
    with torch.no_grad():
        trace = model.trace(_examples(run, length)[:1, :seen], torch.arange(seen))
    return torch.stack([w[0] for w in trace.weights])


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=RUN)
def head_weights(run: Run, length: int, layer: int, head: int) -> Array:
    """One head's weights [length, length], NaN above the diagonal and where a token has no position."""
    found = _traced(run, length)[layer, head].double().numpy()
    out = np.full((length, length), np.nan)
    out[: len(found), : len(found)] = np.where(np.tri(len(found), dtype=bool), found, np.nan)
    out.setflags(write=False)
    return out
