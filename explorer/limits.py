"""What the app shows of what the library allows: no link may make the server allocate without bound."""

from __future__ import annotations

from dataclasses import replace

from posenc_core import Param, Problem, Spec
from posenc_core.schemes.hybrid import HybridSpec

# A picture of more dimensions or rows shows nothing more; a table of a million rows and 16,384 columns takes 64 GiB.
MAXIMA: dict[str, int] = {"d_model": 1024, "max_position_embeddings": 4096}


def shown(p: Param) -> Param:
    """The Param with the app's own maximum."""
    if p.name not in MAXIMA or p.maximum is None:
        return p
    return replace(p, maximum=min(p.maximum, MAXIMA[p.name]))


def limited(spec: Spec) -> tuple[Spec, tuple[Problem, ...]]:
    """The spec within the app's limits, and what had to be replaced by its default."""
    if isinstance(spec, HybridSpec):
        problems = [
            replace(q, name=f"layers: {layer.scheme}.{q.name}", field="layers")
            for layer in dict.fromkeys(spec.layers)
            for q in limited(layer)[1]
        ]
        return (HybridSpec() if problems else spec), tuple(problems)
    over = [p for p in map(shown, spec.params()) if p.maximum is not None and _above(getattr(spec, p.name), p.maximum)]
    problems = [Problem(p.name, getattr(spec, p.name), p.legal, "more than this app shows") for p in over]
    return spec.replace(**{p.name: p.default for p in over}) if over else spec, tuple(problems)


def _above(value: object, maximum: float) -> bool:
    return isinstance(value, int | float) and value > maximum
