"""Runs of the toy models under the reader's parameters: weights, losses, guesses, and what moving positions changes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import streamlit as st
import torch
from numpy.typing import NDArray

from explorer.compute.common import HASHES, TRAIN_LENGTH, Array, checkpoint, checkpoint_name, frozen, records
from posenc_core import Spec, SpecError, analysis
from posenc_core.model import Checkpoint, ModelSize, ToyModel, Trace, next_token_loss
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.learned import Learned, LearnedSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.tasks import english, windows
from posenc_core.train import loss_by_position

MAX_TOKENS = 1024  # run at once; attention weights grow with the square
THUMBNAIL = 128  # cells of a thumbnail's side
RECORDED_WINDOWS = 32  # of held-out text, behind the losses that a checkpoint records
LOSS_WINDOWS = 8  # of held-out text, behind every curve where one has to be computed
DRIFT_WINDOWS = 1
PERMUTED = 256  # tokens on which permutation equivariance is measured

Fitted = tuple[Spec, tuple[str, ...]]


@dataclass(frozen=True)
class Fit:
    """A sidebar's spec on trained weights: what runs, whose weights, and what had to be done to make it fit."""

    spec: Spec
    record: Checkpoint
    notes: tuple[str, ...]

    @property
    def changed(self) -> tuple[tuple[str, str, str], ...]:
        """(field, as trained, as run) of every parameter that differs."""
        trained, run = self.record.spec, self.spec
        names = [p.name for p in run.params() if getattr(run, p.name) != getattr(trained, p.name)]
        return tuple((n, _text(trained, n), _text(run, n)) for n in names)


def _text(spec: Spec, name: str) -> str:
    """A field as text; a hybrid's layers without the sizes, which are the model's."""
    text = spec.field_text(name)
    return re.sub(r"\b(n_heads|d_head|d_model)=\d+(, )?", "", text).replace("()", "") if name == "layers" else text


def has_model(spec: Spec) -> bool:
    """Whether there are trained weights for the spec: of its scheme, and of every table that it holds."""
    trained = {r.spec.scheme for r in records().values()}
    tables = {s.scheme for s in getattr(spec, "layers", ()) if isinstance(s, LearnedSpec)}
    return {spec.scheme} | tables <= trained


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def fit(spec: Spec) -> Fit:
    """The spec with a toy model's sizes, and the weights nearest to it; only where `has_model`."""
    recorded = [r for r in records().values() if r.spec.scheme == spec.scheme]
    try:
        fitted, notes = _fitted(spec, recorded[0].size)
    except SpecError as error:
        fitted, notes = recorded[0].spec, (f"{error.problems[0]} for this model, so it runs as it was trained.",)
    return Fit(fitted, records()[checkpoint_name(fitted)], notes)


def _fitted(spec: Spec, size: ModelSize) -> Fitted:
    if isinstance(spec, HybridSpec):
        return _fitted_hybrid(spec, size)
    if isinstance(spec, AlibiSpec) and spec.slopes and len(spec.slopes) != size.n_heads:
        given, heads = len(spec.slopes), size.n_heads
        slopes = spec.slopes[:heads] if given > heads else ()
        done = f"the first {heads} act" if slopes else f"the paper's slopes for {heads} heads act instead"
        note = f"{given} slopes are given and the toy model has {heads} heads: {done}."
        return spec.replace(n_heads=heads, slopes=slopes), (note,)
    if isinstance(spec, RopeSpec):
        return _fitted_rope(spec, size)
    if isinstance(spec, LearnedSpec):
        rows = next(r.spec for r in records().values() if isinstance(r.spec, LearnedSpec)).max_position_embeddings
        note = (
            f"The trained table has {rows:,} rows; max_position_embeddings = {spec.max_position_embeddings:,} "
            "does not change that."
        )
        notes = (note,) if spec.max_position_embeddings != rows else ()
        offset = min(spec.offset, rows - 1)
        return LearnedSpec(max_position_embeddings=rows, d_model=size.d_model, offset=offset), notes
    return size.of(spec), ()


def _fitted_hybrid(spec: HybridSpec, size: ModelSize) -> Fitted:
    given, n = len(spec.layers), size.n_layers
    notes: tuple[str, ...] = ()
    if given != n:
        done = f"the first {n} of the list act, in order" if given > n else "the list repeats"
        notes = (f"{given} layer{'s are' if given > 1 else ' is'} given and the toy model has {n}: {done}.",)
    layers = []
    for index in range(n):
        layer, more = _fitted(spec.layers[index % given], size)
        layers.append(layer)
        notes += more
    return HybridSpec(layers=tuple(layers)), tuple(dict.fromkeys(notes))


def _fitted_rope(spec: RopeSpec, size: ModelSize) -> Fitted:
    spec, notes = _at_toy_scale(spec, size)
    try:
        return size.of(spec), notes
    except SpecError as error:
        if {p.name for p in error.problems} != {"rotary_fraction"}:
            raise
    legal = []
    for pairs in range(1, size.d_head // 2 + 1):
        try:
            legal.append(spec.replace(d_head=size.d_head, rotary_fraction=2 * pairs / size.d_head))
        except SpecError:
            continue
    nearest = min(legal, key=lambda s: abs(s.rotary_fraction - spec.rotary_fraction))
    note = (
        f"rotary_fraction = {spec.rotary_fraction:g} makes no even number of the toy model's {size.d_head} features a "
        f"head: {nearest.rotary_fraction:g} acts instead."
    )
    return nearest, (*notes, note)


def _at_toy_scale(spec: RopeSpec, size: ModelSize) -> tuple[RopeSpec, tuple[str, ...]]:
    """What belongs to a real model's length and pairs, brought to the toy model's; what was done, in sentences."""
    changes, notes = dict[str, object](), []
    original = "original_max_position_embeddings"
    if spec.applies(spec.param(original)) and getattr(spec, original) != TRAIN_LENGTH:
        changes[original] = TRAIN_LENGTH
        notes.append(f"{original} = {TRAIN_LENGTH} acts, since the toy model was trained at {TRAIN_LENGTH} tokens.")
    if spec.d_head != size.d_head and (spec.short_factor or spec.long_factor):
        pairs = int(size.d_head * spec.rotary_fraction) // 2
        for name in ("short_factor", "long_factor"):
            given = getattr(spec, name)
            if given:
                changes[name] = tuple(given[i * len(given) // pairs] for i in range(pairs))
        notes.append(f"The lists of divisors are thinned to the toy model's {pairs} pairs.")
    if spec.d_head != size.d_head and spec.mrope_section:
        changes |= {"mrope_section": (), "mrope_interleaved": False}
        notes.append("Text has one position a token, so mrope_section does not act.")
    return spec.replace(**changes, d_head=size.d_head) if changes else spec, tuple(notes)


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def model(spec: Spec) -> ToyModel:
    """The trained weights, shared, under the encoding of a fitted spec. Trained tables stay as trained."""
    trained, record = checkpoint(checkpoint_name(spec))
    if spec == record.spec:
        return trained
    made = ToyModel(spec, record.size)
    made.embedding, made.blocks, made.norm = trained.embedding, trained.blocks, trained.norm
    for layer in [made.encoding] if made.encoding.layers is None else made.encoding.layers:
        if isinstance(layer, Learned):
            source = checkpoint(checkpoint_name(layer.spec))[0].encoding
            assert isinstance(source, Learned)
            layer.table = source.table
    return made.requires_grad_(False).eval()


def defined(spec: Spec) -> int | None:
    """How many positions the encoding has, None if all."""
    return analysis.defined_length(model(spec).encoding)


def possible_shift(spec: Spec, length: int, shift: int) -> int:
    """The shift itself, or 0 where it would move tokens past the end of a table."""
    rows = defined(spec)
    return shift if rows is None or shift + min(length, rows) <= rows else 0


def held_out(length: int) -> bytes:
    """The first bytes of the English that no model was trained on."""
    return bytes(english().held_out[:length].tolist())


@dataclass(frozen=True, eq=False)
class Run:
    """A pass over `length` tokens, of which the first `seen` have a position.

    loss [length]: nats that each token cost, NaN for the first and for those without a position. log_probabilities
    [seen, 256]: of the token after each. small [layers, heads, n, n]: weights, the largest of each block × block.
    """

    length: int
    seen: int
    loss: Array
    log_probabilities: NDArray[np.float32]
    small: Array
    block: int

    @property
    def mean_loss(self) -> float:
        """Nats a byte, NaN for a text of one token."""
        known = self.loss[np.isfinite(self.loss)]
        return float(known.mean()) if known.size else float("nan")


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs=HASHES)
def _trace(spec: Spec, data: bytes, shift: int) -> Trace:
    # At 1,024 tokens the weights are 34 MB, so few are kept: enough for both sides of a comparison and its predecessor.
    tokens = _tokens(spec, data)
    with torch.no_grad():
        trace = model(spec).trace(tokens[None], torch.arange(len(tokens)) + shift)
    return Trace(trace.logits, trace.weights, [])


def _tokens(spec: Spec, data: bytes) -> torch.Tensor:
    rows = defined(spec)
    return torch.frombuffer(bytearray(data[:rows]), dtype=torch.uint8).long()


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def run(spec: Spec, data: bytes, shift: int) -> Run:
    """What the model makes of at least one byte, at positions shift, shift + 1, …"""
    trace, tokens = _trace(spec, data, shift), _tokens(spec, data)
    length, seen = len(data), len(tokens)
    loss = torch.full((length,), torch.nan)
    loss[1:seen] = next_token_loss(trace.logits, tokens[None])[0]
    block = -(-length // THUMBNAIL)
    small = analysis.pooled(torch.stack([w[0] for w in trace.weights]), block)
    side = -(-length // block) - small.shape[-1]
    small = torch.nn.functional.pad(small, (0, side, 0, side), value=torch.nan)
    log_probabilities = trace.logits[0].log_softmax(-1).numpy()
    log_probabilities.setflags(write=False)
    return Run(length, seen, frozen(loss), log_probabilities, frozen(small), block)


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=HASHES)
def head_weights(spec: Spec, data: bytes, shift: int, layer: int, head: int) -> Array:
    """One head's weights [length, length], NaN above the diagonal and where a token has no position."""
    weights = _trace(spec, data, shift).weights[layer][0, head].numpy()
    out = np.full((len(data), len(data)), np.nan)
    out[: len(weights), : len(weights)] = np.where(np.tri(len(weights), dtype=bool), weights, np.nan)
    out.setflags(write=False)
    return out


def permutation(length: int) -> list[int]:
    """A shuffled order, the same every time."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(0)).tolist()


def unmasked(spec: Spec) -> Spec:
    """The spec without a causal mask of its own: ALiBi's distances count both ways, in every layer that has them."""
    if isinstance(spec, HybridSpec):
        return HybridSpec(layers=tuple(unmasked(s) for s in spec.layers))
    return spec.replace(variant="symmetric") if isinstance(spec, AlibiSpec) else spec


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def permutation_change(spec: Spec, data: bytes) -> float:
    """How far each token's output moves, relative to the largest, when unmasked attention reads a shuffled text."""
    tokens = _tokens(spec, data)[:PERMUTED]
    return analysis.permutation_change(model(unmasked(spec)), tokens, torch.tensor(permutation(len(tokens))))


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def shift_change(spec: Spec, data: bytes, shift: int) -> tuple[float, float]:
    """Largest change of a logit and change of the mean loss when all positions move by `shift`."""
    return analysis.offset_change(model(spec), _tokens(spec, data), shift)


@st.cache_resource(max_entries=16, show_spinner=False)
def recorded_loss(name: str) -> Array:
    """Held-out loss by position that a checkpoint records, NaN where it has none."""
    values = records()[name].held_out_loss
    return frozen(torch.tensor([np.nan if x is None else x for x in values], dtype=torch.float64))


def as_recorded(spec: Spec) -> bool:
    """Whether a checkpoint records the losses of a fitted spec."""
    record = records()[checkpoint_name(spec)]
    return spec == record.spec and len(record.held_out_loss) == MAX_TOKENS


def loss_past_training(spec: Spec, count: int) -> Array:
    """Held-out loss at each of MAX_TOKENS positions, over `count` windows: read where recorded, else computed.

    Texts differ by more than parameters do, so what stands side by side must share its windows.
    """
    if count == RECORDED_WINDOWS and as_recorded(spec):
        return recorded_loss(checkpoint_name(spec))
    return _computed_loss(spec, count)


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def _computed_loss(spec: Spec, count: int) -> Array:
    return frozen(loss_by_position(model(spec), english().held_out, MAX_TOKENS, count))


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=HASHES)
def drift(spec: Spec) -> tuple[Array, Array]:
    """Entropy and mean distance of attention at each of MAX_TOKENS positions of held-out text: [layers, heads, L]."""
    tokens = windows(english().held_out, MAX_TOKENS, DRIFT_WINDOWS)[:, :MAX_TOKENS]
    made = analysis.attention_drift(model(spec), tokens)
    return frozen(made.entropy), frozen(made.distance)
