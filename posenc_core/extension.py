"""Context extension: what each scaling of RoPE does to a model trained at one length and run at a longer one.

    made = methods(RopeSpec(d_head=128), trained=8192, target=131072)
    reach = angles(made["yarn"], trained=8192, target=131072)

`python -m posenc_core.extension --json FILE` runs a trained toy model past its training length under every method, and
records the bound on the base of `posenc_core.cosine_sums`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor
from tqdm import tqdm

from posenc_core import cosine_sums
from posenc_core.frequencies import attention_scales, rope_frequencies
from posenc_core.model import load_checkpoint
from posenc_core.schemes.rope import KNOWS_ORIGINAL, SCALED, RopeSpec
from posenc_core.spec import SpecError
from posenc_core.tasks import english
from posenc_core.train import loss_by_position

LONGEST = 2**24
METHODS = ("none", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3")
MAX_FACTOR = 4096
ROUNDING = 1e-12  # relative, of a frequency: a position this close to the end of the trained arc is taken as its end


def methods(spec: RopeSpec, trained: int, target: int) -> dict[str, RopeSpec]:
    """Every scaling of `spec`'s model from `trained` to `target` positions, by its name.

    Each has the factor target/trained and the original length `trained`. Fields that `spec` gives its own scaling stay
    with that scaling. longrope is there where `spec` has its lists. A p-RoPE model can only be divided (proportional).
    Methods that its sizes do not allow are left out. ValueError for lengths that are not legal.
    """
    if not 2 <= trained <= target <= LONGEST or target > MAX_FACTOR * trained:
        raise ValueError(
            f"trained = {trained}, target = {target} is not legal; legal: 2 ≤ trained ≤ target ≤ {LONGEST:,} and a "
            f"target of at most {MAX_FACTOR:,} times trained"
        )
    names: tuple[str, ...] = METHODS
    if spec.scaling == "proportional":
        return {"none": spec.replace(factor=1.0), "proportional": spec.replace(factor=target / trained)}
    if spec.scaling == "longrope" and spec.long_factor:
        names = (*METHODS, "longrope")
    made = dict[str, RopeSpec]()
    for name in names:
        fields = _kept(spec, name)
        fields |= {"factor": target / trained} if name in SCALED else {}
        fields |= {"original_max_position_embeddings": trained} if name in KNOWS_ORIGINAL else {}
        try:
            made[name] = RopeSpec(**fields)
        except SpecError:  # NTK needs two pairs
            continue
    return made


def _kept(spec: RopeSpec, scaling: str) -> dict[str, Any]:
    """The fields of `spec` that another scaling of the same model shares with it."""
    values = {p.name: getattr(spec, p.name) for p in spec.params() if spec.applies(p)}
    if scaling != spec.scaling:
        values = {n: v for n, v in values.items() if spec.param(n).when is None}
    return values | {"scaling": scaling}


def original(spec: RopeSpec) -> Tensor:
    """Radians a position before the extension, float64 [rotary_dim/2]."""
    return unscaled(spec).inv_freq()


def unscaled(spec: RopeSpec) -> RopeSpec:
    """The model before its extension: no scaling, or p-RoPE without a factor."""
    if spec.scaling == "proportional":
        return spec.replace(factor=1.0)
    return RopeSpec(**_kept(spec, "none"))


# ------------------------------------------------------------------ arcs and angles that were never seen


class Angles(NamedTuple):
    """What each pair has seen in training and reaches at the target, all of length pairs, high to low frequency.

    seen, reached: turns over the trained and the target length. full: whether it turned fully in training, so that no
    angle is new to it. ratio: frequency beside the original one, NaN for a pair that never turns. first_bad: the first
    position whose angle lies past the trained arc, infinite for never.
    """

    seen: Tensor
    reached: Tensor
    full: Tensor
    ratio: Tensor
    first_bad: Tensor

    def bad(self, target: int) -> Tensor:
        """Whether a pair meets an angle past its trained arc before `target`."""
        return self.first_bad < target


def angles(spec: RopeSpec, trained: int, target: int, model: RopeSpec | None = None) -> Angles:
    """Arcs and first positions out of distribution, in closed form.

    The arcs are those that `model` was trained on, by default `spec` without its scaling: a new base is an extension
    of the model with the old one. ValueError for a model with another number of pairs.

    Training shows pair i the arc from 0 to trained·w_i, as position interpolation counts it ("[0, L)", Chen et al.
    2023). If that is a full turn, neighbouring trained angles are at most w_i apart all around, and no angle is new.
    Else position m is out of distribution when m·w'_i ≥ trained·w_i, w' the method's frequency. Angles are not
    wrapped: a pair past its arc counts as lost even where it comes round again.
    """
    before, after = original(model or spec), rope_frequencies(spec, target).inv_freq
    if len(before) != len(after):
        raise ValueError(f"a model with {len(before)} pairs is not legal; legal: {len(after)}, as many as the spec has")
    seen = before * trained / (2 * math.pi)
    full = seen >= 1
    ratio = after / before  # 0/0 is NaN: a pair that never turns
    first = (trained / ratio * (1 - ROUNDING)).ceil()
    first = first.masked_fill(full | ~(ratio > 0), torch.inf)
    return Angles(seen, after * target / (2 * math.pi), full, ratio, first)


def beyond(
    spec: RopeSpec, trained: int, target: int, columns: int, model: RopeSpec | None = None
) -> tuple[Tensor, int]:
    """How far each pair is past its trained arc, in doublings: float64 [pairs, at most `columns`], positions a column.

    log2(m·w'/(trained·w)) at the last position m of each column, where it is largest: negative within the arc, 0 at its
    end. NaN for pairs that have seen every angle. Only the columns are computed, whatever the target.
    """
    found = angles(spec, trained, target, model)
    step = max(1, -(-target // columns))
    last = (torch.arange(-(-target // step), dtype=torch.float64) * step + step - 1).clamp(max=target - 1)
    doublings = (last.clamp(min=0.5) / trained * found.ratio[:, None]).log2()
    return doublings.masked_fill(found.full[:, None] | found.ratio.isnan()[:, None], torch.nan), step


def neighbour_distance(inv_freq: Tensor) -> float:
    """|R_{m+1}x - R_m x| of the vector with ones everywhere, relative to none of its features: sqrt Σ (2 - 2cos w)."""
    return float((2 - 2 * inv_freq.cos()).sum().sqrt())


def resolution(spec: RopeSpec, target: int, model: RopeSpec | None = None) -> float:
    """How far apart a position and its neighbour are after rotation, beside training: 1 as trained, 1/s for PI.

    `model` as in `angles`.
    """
    return neighbour_distance(rope_frequencies(spec, target).inv_freq) / neighbour_distance(original(model or spec))


def stretch(spec: RopeSpec, length: int) -> float:
    """What the lowest frequency above zero is divided by in a sequence of `length`.

    The factor for most; s·L/L₀ - (s - 1) for dynamic NTK, which is s² - s + 1 at s times the original length. With
    factor 1 it is L/L₀, the form of YaRN's section 3.3 (Peng et al. 2023).
    """
    before, after = original(spec), rope_frequencies(spec, length).inv_freq
    return float((before / after)[after > 0][-1])


# ------------------------------------------------------------------ keys that were cached under other frequencies


def cache_error(spec: RopeSpec, cached: Tensor, now: Tensor, positions: Tensor) -> Tensor:
    """Root mean square error of a score, relative to the score's own: float64 [K].

    Keys at positions [K] were rotated with frequencies `cached` [K, pairs] or [pairs]; the query and a full
    recomputation use `now` [pairs]. For independent standard normal q and k every pair contributes
    2·|e^{i·a} - e^{i·b}|² = 2·(2 - 2cos δ), δ = (cached - now)·position, whatever the query's position. Fresh keys: 0;
    keys that have nothing to do with the right ones: √2.
    """
    delta = (cached - now) * positions.double()[:, None]
    scale, rotary = attention_scales(spec).tables ** 4, 2 * len(now)
    wrong = 2 * (2 - 2 * delta.cos()).sum(-1) * scale
    return (wrong / (rotary * scale + spec.d_head - rotary)).sqrt()


def frequencies_at(spec: RopeSpec, lengths: Sequence[int]) -> Tensor:
    """The frequencies of sequences of each length, float64 [len(lengths), pairs]."""
    return torch.stack([rope_frequencies(spec, n).inv_freq for n in lengths])


# ------------------------------------------------------------------ what the attention factor does to the softmax


class Sharpness(NamedTuple):
    """Means over the draws at each length, float64 [lengths]: entropy in nats without and with the factor, and the
    Kullback-Leibler divergence from the softmax without it to the one with it."""

    without: Tensor
    with_factor: Tensor
    divergence: Tensor


def sharpness(spec: RopeSpec, lengths: Sequence[int], draws: int = 32, seed: int = 0) -> Sharpness:
    """Softmax over as many random keys as each length, for independent standard normal q and k.

    A rotation changes no lengths and no angles between independent directions, so q·k/√d given q is normal with
    variance |q|²/d, the rotating features and the others apart: their scores are drawn, no vectors. The factor scales
    them as `attention_scales` says.
    """
    scales, rotary = attention_scales(spec), spec.rotary_dim
    generator = torch.Generator().manual_seed(seed)
    norms = torch.randn(draws, spec.d_head, generator=generator, dtype=torch.float64).square() / spec.d_head
    spread = torch.stack([norms[:, :rotary].sum(-1), norms[:, rotary:].sum(-1)]).sqrt()
    total = torch.zeros(3, len(lengths), dtype=torch.float64)
    for turning, still in spread.T.tolist():
        drawn = torch.randn(2, max(lengths), generator=generator, dtype=torch.float64)
        plain = turning * drawn[0] + still * drawn[1]
        scaled = (turning * scales.tables**2 * drawn[0] + still * drawn[1]) * scales.scores
        for i, length in enumerate(lengths):
            p, q = (s[:length].log_softmax(0) for s in (plain, scaled))
            total[:, i] += torch.stack([-(p.exp() * p).sum(), -(q.exp() * q).sum(), (p.exp() * (p - q)).sum()])
    return Sharpness(*(total / draws))


def random_score_rms(spec: RopeSpec) -> float:
    """Root mean square of q·k/√d for independent standard normal q and k: 1 without an attention factor."""
    scales, rotary = attention_scales(spec), spec.rotary_dim
    return math.sqrt((scales.tables**4 * rotary + spec.d_head - rotary) / spec.d_head) * scales.scores


def own_score(spec: RopeSpec, distances: Tensor, target: int) -> Tensor:
    """Mean of q·k/√d over standard normal q with k = q, at each distance: float64 [K] from distances [K]."""
    scales, rotary = attention_scales(spec), spec.rotary_dim
    inv_freq = rope_frequencies(spec, target).inv_freq
    turning = 2 * (distances.double()[:, None] * inv_freq).cos().sum(-1) * scales.tables**2
    return (turning + spec.d_head - rotary) / math.sqrt(spec.d_head) * scales.scores


# ------------------------------------------------------------------ the toy model past its training length

FACTORS = (2, 4, 8)
BIN = 8  # positions whose losses are averaged in the record
WINDOWS = 32
CHECKPOINT = Path(__file__).resolve().parents[1] / "assets" / "models" / "rope.safetensors"


@dataclass(frozen=True)
class ToyLoss:
    """Held-out loss in nats a byte, the mean of every BIN positions, of `factor` times the training length."""

    method: str
    factor: int
    loss: tuple[float, ...]

    def mean(self, start: int, stop: int) -> float:
        """Mean loss of the positions from start up to stop; multiples of BIN."""
        part = self.loss[start // BIN : stop // BIN]
        return sum(part) / len(part)


@dataclass(frozen=True)
class ToyRun:
    """Losses and what made them."""

    trained: int
    losses: tuple[ToyLoss, ...]

    def of(self, method: str, factor: int) -> ToyLoss | None:
        """One method at one factor, None if it was not measured."""
        return next((x for x in self.losses if (x.method, x.factor) == (method, factor)), None)

    def inside(self, method: str, factor: int) -> float:
        """Mean loss within the training length. KeyError for one that was not measured."""
        return self._known(method, factor).mean(0, self.trained)

    def past(self, method: str, factor: int) -> float:
        """Mean loss past the training length. KeyError for one that was not measured."""
        return self._known(method, factor).mean(self.trained, self.trained * factor)

    def _known(self, method: str, factor: int) -> ToyLoss:
        found = self.of(method, factor)
        if found is None:
            raise KeyError(f"{method} at {factor} times the training length was not measured")
        return found


def toy_losses(
    path: Path = CHECKPOINT, factors: Sequence[int] = FACTORS, count: int = WINDOWS,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[ToyLoss]:  # fmt: skip
    """Run a checkpoint at each factor times its training length under every method, without training.

    A window of L positions runs with the frequencies of length L at all of its positions (dynamic NTK too), as one
    forward pass over the whole text does. Stops between two of them once told to.
    """
    model, record = load_checkpoint(path)
    if not isinstance(record.spec, RopeSpec):
        raise TypeError(f"{path} holds a model with {record.spec.scheme}; only rope can be extended")
    text, trained = english().held_out, record.train_length
    for factor in factors:
        for name, spec in methods(record.spec, trained, factor * trained).items():
            if should_stop():
                return
            model.encoding = spec.build()
            loss = loss_by_position(model, text, factor * trained, count)
            yield ToyLoss(name, factor, tuple(round(x, 4) for x in loss.view(-1, BIN).mean(-1).tolist()))


def provenance(path: Path = CHECKPOINT, count: int = WINDOWS) -> dict[str, Any]:
    """What a record of toy losses was made with: plain values."""
    from posenc_core.benchmark import machine  # it knows this machine's names

    _, record = load_checkpoint(path)
    return {
        "machine": machine(), "checkpoint": path.name,
        "checkpoint_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "text_sha256": english().digest,
        "windows": count, "bin": BIN, "trained": record.train_length,
    }  # fmt: skip


ROTARY_DIMS = (16, 32, 48, 64, 80, 96, 128, 192, 256)  # of the recorded bound on the base


def recorded(path: Path, limit: int, progress: bool = True) -> dict[str, Any]:
    """The content of assets/extension.json."""
    made = provenance(path)
    total = len(FACTORS) * len(METHODS)
    losses = [asdict(x) for x in tqdm(toy_losses(path), total=total, disable=not progress, file=sys.stderr)]
    tried = cosine_sums.bases()
    reached = {
        str(dim): cosine_sums.reaches(dim, tried, limit)
        for dim in tqdm(ROTARY_DIMS, disable=not progress, file=sys.stderr)
    }
    return {
        "toy": made | {"losses": losses},
        "bases": {
            "limit": limit, "density": cosine_sums.DENSITY, "first": cosine_sums.EXPONENTS[0], "reached": reached,
        },
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m posenc_core.extension",
        description="Run a toy model past its training length under every scaling, without training, and search the "
        "smallest base for every length.",
    )
    parser.add_argument("--model", type=Path, default=CHECKPOINT, help="a checkpoint with RoPE")
    parser.add_argument("--limit", type=int, default=LONGEST, help="longest length of the bound on the base")
    parser.add_argument("--threads", type=int, default=None, help="torch threads")
    parser.add_argument("--json", type=Path, required=True, help="the file to write")
    args = parser.parse_args(arguments)
    if not 2 <= args.limit <= LONGEST:
        parser.error(f"--limit = {args.limit} is not legal; legal: 2 to {LONGEST:,}")
    if not args.json.parent.is_dir():
        parser.error(f"--json = {args.json}: there is no folder {args.json.parent}")
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        made = recorded(args.model, args.limit)
        args.json.write_text(json.dumps(made) + "\n")
    except (OSError, TypeError, SafetensorError) as error:
        parser.error(str(error))
    for loss in made["toy"]["losses"]:
        run = ToyLoss(**(loss | {"loss": tuple(loss["loss"])}))
        trained = made["toy"]["trained"]
        print(
            f"{run.factor} times, {run.method}: {run.mean(trained, trained * run.factor):.3f} nats/byte past {trained}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
