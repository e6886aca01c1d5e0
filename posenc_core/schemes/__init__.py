"""The schemes by id, and the two ways in: a mapping of values (parse_spec) and a mapping of texts (parse_query)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.base import PositionalEncoding
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.spec import Problem, Spec, SpecError

SCHEMES: dict[str, type[Spec]] = {
    "none": NoneSpec,
    "integer": IntegerSpec,
    "sinusoidal": SinusoidalSpec,
    "learned": LearnedSpec,
    "rope": RopeSpec,
    "alibi": AlibiSpec,
    "hybrid": HybridSpec,
}

SIZES = ("d_model", "d_head", "n_heads", "max_position_embeddings")


def _scheme(value: object) -> type[Spec]:
    if not isinstance(value, str) or value not in SCHEMES:
        raise SpecError([Problem("scheme", value, "one of " + ", ".join(SCHEMES))])
    return SCHEMES[value]


def _make(spec: type[Spec], fields: dict[str, Any], problems: list[Problem]) -> Spec:
    """The spec, unless something was wrong before or is wrong now; then everything at once."""
    try:
        made = spec(**fields)
    except SpecError as error:
        raise SpecError([*problems, *error.problems]) from None
    if problems:
        raise SpecError(problems)
    return made


def parse_spec(mapping: Mapping[str, Any]) -> Spec:
    """The Spec of {"scheme": id, field: value, …}. Raises SpecError listing every problem, unknown names included."""
    if not isinstance(mapping, Mapping):
        raise SpecError([Problem("spec", mapping, "a mapping with the key scheme")])
    spec = _scheme(mapping.get("scheme"))
    fields: dict[str, Any] = {}
    problems = [Problem(str(k), v, "names are texts") for k, v in mapping.items() if not isinstance(k, str)]
    for name, value in mapping.items():
        if name == "scheme" or not isinstance(name, str):
            continue
        if name == "layers" and spec is HybridSpec and isinstance(value, list | tuple):
            parsed = []
            for index, item in enumerate(value):
                try:
                    if isinstance(item, Mapping) and item.get("scheme") == "hybrid":
                        raise SpecError([Problem("scheme", "hybrid", "any other scheme", "a layer cannot be a hybrid")])
                    parsed.append(item if isinstance(item, Spec) else parse_spec(item))
                except SpecError as error:
                    problems += [
                        Problem(f"layers[{index}].{p.name}", p.value, p.legal, p.reason) for p in error.problems
                    ]
            value = tuple(parsed)
        fields[name] = tuple(value) if isinstance(value, list) else value
    return _make(spec, fields, problems)


def parse_fields(texts: Mapping[str, str]) -> Spec:
    """The Spec of {"scheme": id, field: text, …}, texts as in a URL. Raises SpecError listing every problem."""
    spec = _scheme(texts.get("scheme"))
    known = {p.name for p in spec.params()}
    fields: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, text in texts.items():
        if name == "scheme":
            continue
        try:
            fields[name] = spec.parse_field(name, text) if name in known else text
        except SpecError as error:
            problems += error.problems
    return _make(spec, fields, problems)


def parse_query(texts: Mapping[str, str], default: str = "rope") -> tuple[Spec, tuple[Problem, ...]]:
    """The nearest legal Spec of URL texts, and the problems: a rejected field takes its default instead.

    No text makes it raise, so that an old or damaged link still opens. Without a scheme, `default` is meant; SpecError
    if that is none.
    """
    _scheme(default)
    rest = {k: v for k, v in texts.items() if isinstance(v, str)}
    problems = {Problem(str(k), repr(v), "one text"): None for k, v in texts.items() if not isinstance(v, str)}
    rest.setdefault("scheme", default)
    while True:
        try:
            return parse_fields(rest), tuple(problems)
        except SpecError as error:
            problems |= dict.fromkeys(error.problems)
            bad = {p.key for p in error.problems}
            if "scheme" in bad:
                rest["scheme"] = default
            elif bad & rest.keys():
                rest = {k: v for k, v in rest.items() if k not in bad}
            else:  # the fault lies in a default that does not go with the other fields
                dropped = {k: v for k, v in rest.items() if k != "scheme"}
                problems |= dict.fromkeys(
                    Problem(k, v, "values that go together", "it does not go with the others")
                    for k, v in dropped.items()
                )
                rest = {"scheme": rest["scheme"]}


def build(spec: Spec, **sizes: int) -> PositionalEncoding:
    """The module of a spec. `sizes` (see SIZES) replace those that are fields of the spec.

    TypeError for another name; SpecError for a size that the scheme refuses.
    """
    unknown = set(sizes) - set(SIZES)
    if unknown:
        raise TypeError(f"build() knows the sizes {', '.join(SIZES)}, not {', '.join(sorted(unknown))}")
    return spec.with_sizes(**sizes).build()
