"""What reading a config gives: findings, and one encoding a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.spec import Spec


@dataclass(frozen=True)
class Finding:
    """What a reader of the config should know: what is the case, with the values, and what to do about it."""

    level: Literal["warning", "note"]
    code: str
    sentence: str
    action: str
    field: str = ""


@dataclass(frozen=True)
class LayerEncoding:
    """What one layer does with positions.

    `layer_type` is config.json's word, full_attention where it has none. `head_dim` is the whole head's; of an MLA
    head only the spec's d_head features rotate. `window` is the sliding window or the chunk, in tokens.
    """

    index: int
    layer_type: str
    spec: Spec
    head_dim: int
    window: int | None = None
    note: str = ""


@dataclass(frozen=True)
class ModelEncoding:
    """The effective positional parameters of a model.

    `fields` is what was read, a config that reads to the same. `counted`: whether the config says how many layers there
    are; else `layers` has one of each kind.
    """

    layers: tuple[LayerEncoding, ...]
    findings: tuple[Finding, ...]
    model_type: str
    max_position_embeddings: int | None
    original_max_position_embeddings: int | None
    n_heads: int | None
    n_kv_heads: int | None
    fields: Mapping[str, Any] = field(repr=False)
    counted: bool = True

    @property
    def kinds(self) -> tuple[tuple[LayerEncoding, tuple[int, ...]], ...]:
        """Each different (layer_type, spec, head_dim, window), with the indices of its layers."""
        groups: dict[tuple[Any, ...], tuple[LayerEncoding, list[int]]] = {}
        for layer in self.layers:
            key = (layer.layer_type, layer.spec, layer.head_dim, layer.window)
            groups.setdefault(key, (layer, []))[1].append(layer.index)
        return tuple((first, tuple(indices)) for first, indices in groups.values())

    @property
    def spec(self) -> Spec:
        """The one spec if all layers agree, else the hybrid of all layers. SpecError if no hybrid can hold them."""
        first = self.layers[0].spec
        if all(layer.spec is first or layer.spec == first for layer in self.layers):
            return first
        return HybridSpec(layers=tuple(layer.spec for layer in self.layers))
