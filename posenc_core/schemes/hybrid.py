"""Hybrids: one scheme a layer, such as NoPE every n-th layer (Yang et al. 2025, arXiv:2501.18795; Llama 4, SmolLM3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, ClassVar

from torch import Tensor, nn

from posenc_core.schemes.base import PositionalEncoding
from posenc_core.spec import Hook, Problem, Spec, SpecError, param

MAX_LAYERS = 128
MAX_TEXT = 4096
_ITEM = re.compile(r"\s*(?P<scheme>[a-z_]+)\s*(?:\((?P<fields>[^()]*)\))?\s*(?:\*\s*(?P<times>\d{1,3}))?\s*")


class HybridSpec(Spec):
    """A list of specs, the first for the first layer."""

    scheme: ClassVar[str] = "hybrid"
    hook: ClassVar[Hook] = "layers"

    layers: tuple[Spec, ...] = param((), "one scheme a layer, first layer first", max_length=MAX_LAYERS)

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**({"layers": default_layers()} | data))

    def build(self) -> Hybrid:
        return Hybrid(self)

    def with_sizes(self, **sizes: int) -> HybridSpec:
        return HybridSpec(layers=tuple(s.with_sizes(**sizes) for s in self.layers))

    def to_mapping(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "layers": [s.to_mapping() for s in self.layers]}

    def to_query(self) -> dict[str, str]:
        return {"scheme": self.scheme} | ({} if self == HybridSpec() else {"layers": self.field_text("layers")})

    def field_text(self, name: str) -> str:
        """alibi*2, rope(base=500000)*2: equal neighbours are counted."""
        items = []
        for spec, group in groupby(self.layers):
            fields = {k: v for k, v in spec.to_query().items() if k != "scheme"}
            inside = "(" + ", ".join(f"{k}={v}" for k, v in fields.items()) + ")" if fields else ""
            times = len(list(group))
            items.append(spec.scheme + inside + (f"*{times}" if times > 1 else ""))
        return ", ".join(items)

    @classmethod
    def parse_field(cls, name: str, text: str) -> tuple[Spec, ...]:
        """Layers from the notation of `field_text`. Raises SpecError listing every problem."""
        from posenc_core.schemes import parse_fields

        p, text = cls.param("layers"), text.strip().rstrip(",")
        if len(text) > MAX_TEXT:
            raise SpecError([Problem("layers", text, p.legal, f"longer than {MAX_TEXT:,} characters")])
        layers, problems, at = list[Spec](), list[Problem](), 0
        while at < len(text):
            item = _ITEM.match(text, at)
            if item is None or (item.end() < len(text) and text[item.end()] != ","):
                raise SpecError([Problem("layers", text[at:], p.legal, "cannot be read from here on")])
            at = item.end() + 1
            try:
                fields = _fields(item["fields"] or "", p.legal)
                times = int(item["times"] or 1)
                if not 1 <= times <= MAX_LAYERS - len(layers):
                    why = "no times" if times < 1 else f"more than {MAX_LAYERS} layers"
                    raise SpecError([Problem("layers", item[0].strip(), p.legal, why)])
                layers += [parse_fields(fields | {"scheme": item["scheme"]})] * times
            except SpecError as error:
                problems += [
                    q
                    if q.key == "layers"
                    else Problem(f"layers: {item['scheme']}.{q.name}", q.value, q.legal, q.reason, "layers")
                    for q in error.problems
                ]
        if problems:
            raise SpecError(problems)
        return tuple(layers)

    def _cross_checks(self) -> Iterable[Problem]:
        legal = self.param("layers").legal
        if not self.layers:
            yield Problem("layers", (), legal, "no layer is given")
        if any(s.hook == "layers" for s in self.layers):
            yield Problem("layers", self.field_text("layers"), legal, "a layer cannot be a hybrid itself")
        late = [s.scheme for s in self.layers[1:] if s.hook == "embed" and s != self.layers[0]]
        if late:
            yield Problem("layers", self.field_text("layers"), legal,
                          f"{late[0]} acts before layer 1, so it can only be the first layer's")  # fmt: skip


def _fields(text: str, legal: str) -> dict[str, str]:
    """{"slopes": "0.5,0.25", "n_heads": "2"} from 'slopes=0.5,0.25, n_heads=2'."""
    fields: dict[str, str] = {}
    last = ""
    for piece in filter(str.strip, text.split(",")):
        key, equals, value = piece.partition("=")
        last = key.strip() if equals else last
        if not last or last == "scheme":
            raise SpecError([Problem("layers", piece, legal, "a parameter is written name=value")])
        fields[last] = value.strip() if equals else f"{fields[last]},{piece.strip()}"
    return fields


def layers_of(spec: Spec) -> tuple[Spec, ...]:
    """A hybrid's specs, first layer first; any other spec alone."""
    return spec.layers if isinstance(spec, HybridSpec) else (spec,)


def default_layers() -> tuple[Spec, ...]:
    """ALiBi in the first layer, RoPE in the second."""
    from posenc_core.schemes.alibi import AlibiSpec
    from posenc_core.schemes.rope import RopeSpec

    return (AlibiSpec(), RopeSpec())


class Hybrid(PositionalEncoding):
    """Holds one encoding a layer; equal specs share one module. Only `embed` acts by itself, the first layer's."""

    spec: HybridSpec

    def __init__(self, spec: HybridSpec) -> None:
        super().__init__(spec)
        built = {s: s.build() for s in dict.fromkeys(spec.layers)}
        self._layers = nn.ModuleList([built[s] for s in spec.layers])

    @property
    def layers(self) -> Sequence[PositionalEncoding]:
        return list(self._layers)  # type: ignore[arg-type]

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.layers[0].embed(x, positions)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        raise TypeError("a hybrid has one encoding a layer: call .layer(index).rotate")

    def bias(
        self, q_positions: Tensor, k_positions: Tensor, q: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor | None:
        raise TypeError("a hybrid has one encoding a layer: call .layer(index).bias")
