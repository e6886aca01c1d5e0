"""What the exports share: a result that tells its losses, and a spec or a model's encoding as kinds of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from posenc_core.hf_config import Finding, ModelEncoding
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import Spec

# Losses of a bare spec that are none for a model: its architecture, which the config names, does it.
KNOWN_TO_THE_MODEL = ("layout", "rotary_fraction", "layers without positions", "mscale_all_dim")

# Findings on what a model does with positions besides its spec's frequencies.
BESIDE = ("query-scaling", "temperature-tuning")

State = Spec | ModelEncoding


@dataclass(frozen=True)
class Export:
    """A state in one target's words. `language` is that of a code block, npz for bytes.

    `losses` are sentences on what the target cannot say, with field and value, and on what was written in other words.
    An empty content has a loss that says why.
    """

    name: str
    language: str
    content: str | bytes
    losses: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The content of a text; empty for bytes."""
        return self.content if isinstance(self.content, str) else ""


@dataclass(frozen=True)
class Kind:
    """Layers with one spec; `layer_type` is empty where nothing says it."""

    spec: Spec
    layer_type: str
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """What is exported: the kinds of layers, and the config fields that it came from with its findings, if it did."""

    kinds: tuple[Kind, ...]
    fields: Mapping[str, Any] | None = None
    model_type: str = ""
    longest: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def count(self) -> int:
        """Layers."""
        return sum(len(k.layers) for k in self.kinds)

    @property
    def ropes(self) -> list[Kind]:
        """The kinds that rotate."""
        return [k for k in self.kinds if isinstance(k.spec, RopeSpec)]

    @property
    def specs(self) -> list[RopeSpec]:
        """The different rotations."""
        return list(dict.fromkeys(k.spec for k in self.kinds if isinstance(k.spec, RopeSpec)))


def model_of(state: State) -> Model:
    """The layers of a state by kind."""
    if isinstance(state, ModelEncoding):
        kinds = dict[tuple[Spec, str], list[int]]()
        for layer in state.layers:
            kinds.setdefault((layer.spec, layer.layer_type), []).append(layer.index)
        made = tuple(Kind(spec, name, tuple(indices)) for (spec, name), indices in kinds.items())
        return Model(made, state.fields, state.model_type, state.max_position_embeddings, state.findings)
    if isinstance(state, HybridSpec):
        different = dict.fromkeys(state.layers)
        indices = {s: tuple(i for i, layer in enumerate(state.layers) if layer == s) for s in different}
        return Model(tuple(Kind(s, "", indices[s]) for s in different))
    return Model((Kind(state, "", (0,)),))


def by_layer(model: Model) -> list[Spec]:
    """The spec of each layer, first layer first."""
    found = {i: k.spec for k in model.kinds for i in k.layers}
    return [found[i] for i in sorted(found)]


def beside(model: Model, where: str) -> list[str]:
    """Losses of a target that holds frequencies only: what the model does to its queries besides, and where that is."""
    return [
        f"{f.field.rsplit('.', 1)[-1]}: {f.sentence[:1].lower()}{f.sentence[1:-1]}; {where}."
        for f in model.findings
        if f.code in BESIDE
    ]


def told_of(losses: Iterable[str], model: Model) -> tuple[str, ...]:
    """The losses, each once, and of a model's config only those that its architecture does not make good."""
    known = KNOWN_TO_THE_MODEL if model.fields is not None else ()
    return tuple(dict.fromkeys(loss for loss in losses if not known or not loss.startswith(known)))
