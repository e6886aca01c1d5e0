"""Pictures of the toy model past its training length on the Extension page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.charts import curves
from explorer.compute.extension import Toy
from explorer.jobs import Job
from explorer.pictures import common
from explorer.pictures.common import Lines
from explorer.pictures.extension import COLOURS
from explorer.text import Try
from posenc_core import benchmark
from posenc_core.extension import FACTORS, ToyRun, stretch
from posenc_core.schemes.rope import RopeSpec

POINTS = 32  # of a loss curve
ATTENTION = (
    Try(
        "what the heads of this model do there", {"scheme": "rope", "source": "held_out", "length": "512"},
        page="attention",
    ),
)  # fmt: skip


def by_position(run: ToyRun, times: int) -> Lines:
    """Held-out loss by position of every method."""
    frames, series = [], []
    for loss in (x for x in run.losses if x.factor == times):
        values = np.array(loss.loss)
        points = values.reshape(min(POINTS, len(values)), -1).mean(-1)
        width = run.trained * times / len(points)
        frames.append(curves.line(loss.method, (np.arange(len(points)) + 0.5) * width, points))
        series.append((loss.method, COLOURS[loss.method]))
    frames.append(curves.guide(f"training length: {run.trained}", x=float(run.trained)))
    return Lines(curves.together(*frames), tuple(series), "held-out loss (nats a byte)")


def summary(run: ToyRun) -> Lines:
    """Mean loss past the training length against the factor."""
    frames, series = [], []
    factors = [f for f in FACTORS if run.of("none", f)]
    for method in dict.fromkeys(x.method for x in run.losses):
        known = [f for f in factors if run.of(method, f)]
        frames.append(curves.line(method, known, [run.past(method, f) for f in known]))
        series.append((method, COLOURS[method]))
    inside = run.inside("none", factors[0])
    frames.append(curves.guide(f"within: {inside:.2f}", y=inside))
    return Lines(curves.together(*frames), tuple(series), "loss past training (nats a byte)")


def seen(run: ToyRun, times: int) -> str:
    """The ranking at one factor, in numbers."""
    ranked = sorted((run.past(x.method, times), x.method) for x in run.losses if x.factor == times)
    plain, linear = run.past("none", times), run.past("linear", times)
    order = ", ".join(f"{name} {loss:.2f}" for loss, name in ranked)
    side = "worse than" if linear > plain else "better than"
    dynamic = RopeSpec(scaling="dynamic", factor=float(times), original_max_position_embeddings=run.trained)
    return (
        f"Past {run.trained} positions, untrained, at {times} times the training length: {order} (nats a byte; "
        f"{run.inside('none', times):.2f} within it, unchanged). Position interpolation without fine-tuning is {side} "
        "leaving the frequencies alone. Every window runs with the frequencies of its whole length, dynamic NTK too, "
        f"which with factor {times} stretches by {stretch(dynamic, times * run.trained):.4g} there."
    )


def seen_summary(run: ToyRun) -> str:
    """The best at each factor."""
    best = []
    for times in FACTORS:
        loss, name = min((run.past(x.method, times), x.method) for x in run.losses if x.factor == times)
        best.append(f"{times}×: {name} ({loss:.2f})")
    said = f"Lowest loss past the training length: {', '.join(best)}."
    return f"{said} A toy of two layers: the order counts, not the numbers."


def origin(toy: Toy) -> str:
    """Where the losses come from."""
    content: Mapping[str, Any] = toy.content
    what = "Recorded" if toy.recorded else "Measured here"
    return (
        f"{what}: {content['checkpoint']} (SHA-256 {content['checkpoint_sha256'][:12]}…), {content['windows']} windows "
        f"of held-out text a length, {benchmark.machine_line(content['machine'])}"
    )


def progress(job: Job[Any]) -> tuple[str, float | None]:
    """A sentence on the measurement, and the share that is done while it lives; nothing on one that is complete."""
    return ("Stopped: the recorded losses stay.", None) if job.state == "cancelled" else common.progress(job)


def tries(times: int, keep: Mapping[str, str]) -> list[Try]:
    """Another factor."""
    other = "8" if times != 8 else "2"
    return [Try(f"{other} times the training length", {**keep, "toy_times": other}, "The curves part further out.")]
