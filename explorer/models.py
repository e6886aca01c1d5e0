"""Public models by name: the positional fields of their config.json, read once from assets/configs.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc_core import SCHEMES, ModelEncoding, SpecError, read_hf_config

FILE = Path(__file__).parents[1] / "assets" / "configs.json"


@dataclass(frozen=True)
class Model:
    """A public model. `context`: the length that it is said to reach, in tokens, None where it has none."""

    name: str
    config: Mapping[str, Any]
    source: str
    context: int | None

    @property
    def encoding(self) -> ModelEncoding:
        """What the config says, layer by layer."""
        return read_hf_config(self.config)


MODELS: dict[str, Model] = {entry["name"]: Model(**entry) for entry in json.loads(FILE.read_text())}


def query_of(name: str) -> dict[str, str] | None:
    """The URL query of a model's spec. None if the app has no scheme for it: T5, Whisper's two stacks. KeyError."""
    encoding = MODELS[name].encoding
    if any(layer.spec.scheme not in SCHEMES for layer in encoding.layers):
        return None
    try:
        return encoding.spec.to_query()
    except SpecError:
        return None


def config_text(name: str) -> str:
    """The positional fields as config.json writes them. KeyError for an unknown name."""
    return json.dumps(MODELS[name].config, indent=2)
