"""What the pictures of several pages share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from explorer.jobs import Job
from explorer.text import SCHEME_TEXT
from posenc_core import Spec
from posenc_core.schemes.hybrid import HybridSpec

SHARES = (0.0, 1.07)  # ends of the axis of accuracies: above 1, room for what a guide is called


@dataclass(frozen=True)
class Lines:
    """A frame for charts.curves, its series with their colours, and the y axis' title."""

    data: pd.DataFrame
    series: tuple[tuple[str, str], ...]
    y_title: str


def count(n: int, what: str) -> str:
    """1 run, 2 runs."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def layer_spec(spec: Spec, layer: int) -> Spec:
    """The spec that acts in one layer."""
    return spec.layers[min(layer, len(spec.layers) - 1)] if isinstance(spec, HybridSpec) else spec


def short_name(spec: Spec) -> str:
    """The scheme's name with what differs from its defaults."""
    changed = ", ".join(f"{k}={v}" for k, v in spec.to_query().items() if k != "scheme")
    name = SCHEME_TEXT[spec.scheme].name
    return f"{name} ({changed})" if changed else name


def names_of(specs: Sequence[Spec]) -> list[str]:
    """Different names for the specs of a page, also where both are the same; a single one needs no parameters in it.

    A name that stays lets the browser keep a chart while a slider moves and take only its new data.
    """
    if len(specs) == 1:
        return [SCHEME_TEXT[specs[0].scheme].name]
    names = [short_name(s) for s in specs]
    return [f"{n} ({i + 1})" for i, n in enumerate(names)] if len(set(names)) < len(names) else names


def spread(total: int, count: int) -> list[int]:
    """`count` indices spread evenly from 0 to total - 1."""
    return sorted({round(i) for i in np.linspace(0, total - 1, min(count, total))})


def progress(job: Job[Any]) -> tuple[str, float | None]:
    """A sentence on a job and the share that is done while it lives; what an ended one says is up to its page."""
    done, total = job.progress
    share = min(1.0, done / total) if total > 0 else 0.0
    if job.state == "queued":
        return f"Waiting for another reader's job: number {job.place} in the queue.", 0.0
    if job.state == "running":
        left = job.seconds_left
        return f"Measuring: {share:.0%}" + ("" if left is None else f", about {max(1, round(left))} s left"), share
    return (f"Failed: {job.error}" if job.state == "failed" else ""), None
