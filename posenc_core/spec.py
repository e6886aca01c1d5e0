"""Spec: the one place where a scheme's parameters, their ranges, units and meanings are written down."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticUndefined

if TYPE_CHECKING:
    from posenc_core.schemes.base import PositionalEncoding

Kind = Literal["int", "float", "bool", "choice", "text", "ints", "floats", "layers"]
Hook = Literal["none", "embed", "rotate", "bias", "layers"]
LISTS: tuple[Kind, ...] = ("ints", "floats", "layers")  # kinds that are written as text
SHOWN = 60  # characters of a rejected name or value that a message repeats


@dataclass(frozen=True)
class Problem:
    """One rejected parameter: its name, the value given, and the values that would have been legal.

    `field` is the field of the spec that it is about, where the name says more (a layer of a hybrid).
    """

    name: str
    value: object
    legal: str
    reason: str = ""
    field: str = ""

    @property
    def key(self) -> str:
        """The spec's field, or the unknown name."""
        return self.field or self.name

    def __str__(self) -> str:
        try:
            shown = repr(self.value)
        except (ValueError, RecursionError):  # Python prints no whole number of more than 4,300 digits, no deep nest
            shown = "a value too long to print"
        why = f" ({self.reason})" if self.reason else ""
        return f"{_cut(self.name)} = {_cut(shown)} is not legal{why}; legal: {self.legal}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


class SpecError(ValueError):
    """Raised for parameters that are not legal; `.problems` lists every one of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class Param:
    """What a widget, a URL, a message or a table needs to know about one field.

    `ticks` are values worth a stop on a slider; every value from `minimum` to `maximum` is legal.
    `when=(other, values)`: the field is read only while the field `other` is read and has one of `values`.
    `advanced`: a point where implementations differ, or that few readers change.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    unit: str = ""
    ticks: tuple[float, ...] = ()
    choices: tuple[str, ...] = ()
    when: tuple[str, tuple[str, ...]] | None = None
    max_length: int | None = None
    advanced: bool = False

    @property
    def legal(self) -> str:
        """The legal values in words."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "text":
            return f"text of at most {self.max_length:,} characters" if self.max_length else "text"
        if self.kind == "layers":
            return f"1 to {self.max_length} layers, such as alibi*2, rope(base=500000)*2"
        what = "a whole number" if self.kind == "int" else "a number"
        if self.kind in ("ints", "floats"):
            kind = "whole numbers" if self.kind == "ints" else "numbers"
            what = f"at most {self.max_length} {kind} separated by commas, each"
        if self.minimum is not None and self.maximum is not None:
            what += f" from {self.minimum:,.10g} to {self.maximum:,.10g}"
        if self.kind == "int" and self.step and self.step != 1:
            what += f" in steps of {number_text(self.step)}"
        return what


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number: 500000, 0.25, 1e+20."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(float(value))


def param(
    default: Any,
    meaning: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    step: float | None = None,
    unit: str = "",
    ticks: Sequence[float] = (),
    when: tuple[str, tuple[str, ...]] | None = None,
    max_length: int | None = None,
    advanced: bool = False,
) -> Any:
    """Declare a Spec field. Bounds of a list field hold for each of its items; `step` of a whole number is binding."""
    bounds: dict[str, Any] = {"max_length": max_length} if max_length is not None else {}
    if isinstance(default, int | float) and not isinstance(default, bool):
        bounds |= {"ge": ge, "le": le}
        if isinstance(default, int) and step and step != 1:
            bounds["multiple_of"] = int(step)
    extra: dict[str, Any] = {
        "minimum": ge, "maximum": le, "step": step, "unit": unit, "ticks": tuple(ticks), "when": when,
        "max_length": max_length, "advanced": advanced,
    }  # fmt: skip
    return Field(default=default, description=meaning, json_schema_extra=extra, **bounds)


def _kind(annotation: Any) -> tuple[Kind, tuple[str, ...]]:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return "choice", tuple(typing.get_args(annotation))
    if origin is tuple:
        items: dict[Any, Kind] = {float: "floats", int: "ints"}
        return items.get(typing.get_args(annotation)[0], "layers"), ()
    if origin in (typing.Union, types.UnionType):
        raise TypeError(f"a Spec field has one type, not {annotation}")
    kinds: dict[Any, Kind] = {bool: "bool", int: "int", float: "float", str: "text"}
    return kinds[annotation], ()


class Spec(BaseModel):
    """Frozen, validated parameters. Subclass it, set `scheme`, declare fields with `param`.

    Strict: a text is no number, a bool is no number, NaN and infinities are refused, unknown names are refused.
    Raises SpecError listing every problem at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False)

    scheme: ClassVar[str] = ""
    hook: ClassVar[Hook] = "none"

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            first = {e["loc"][:1]: e for e in reversed(error.errors())}  # a list of wrong items is one problem
            raise SpecError([_problem(type(self), e) for e in reversed(first.values())]) from None
        problems = [*self._inapplicable(), *self._cross_checks()]
        if problems:
            raise SpecError(problems)

    @classmethod
    @cache
    def params(cls) -> tuple[Param, ...]:
        """One Param a field, in the order of declaration."""
        out = []
        for name, field in cls.model_fields.items():
            kind, choices = _kind(field.annotation)
            extra = typing.cast(dict[str, Any], field.json_schema_extra)
            default = None if field.default is PydanticUndefined else field.default
            out.append(Param(name, kind, default, field.description or "", choices=choices, **extra))
        return tuple(out)

    @classmethod
    def param(cls, name: str) -> Param:
        """The Param of one field; KeyError if there is none."""
        return {p.name: p for p in cls.params()}[name]

    def applies(self, param: Param) -> bool:
        """Whether the field is read, given the other fields."""
        if param.when is None:
            return True
        other, values = param.when
        return self.applies(self.param(other)) and getattr(self, other) in values

    def replace(self, **changes: Any) -> Self:
        """A validated copy with some fields changed."""
        return type(self)(**({p.name: getattr(self, p.name) for p in self.params()} | changes))

    def with_sizes(self, **sizes: int) -> Self:
        """A copy that takes those of `sizes` (d_model, d_head, n_heads …) which are fields of this spec."""
        names = {p.name for p in self.params() if self.applies(p)}
        return self.replace(**{k: v for k, v in sizes.items() if k in names})

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, defaults included; `parse_spec` reads it back to an equal spec."""
        return {"scheme": self.scheme} | {p.name: getattr(self, p.name) for p in self.params() if self.applies(p)}

    def to_query(self) -> dict[str, str]:
        """Text values for a URL, defaults left out; `parse_query` reads it back to an equal spec."""
        texts = {p.name: self.field_text(p.name) for p in self.params() if getattr(self, p.name) != p.default}
        return ({"scheme": self.scheme} if self.scheme else {}) | texts

    def field_text(self, name: str) -> str:
        """One field as the URL writes it."""
        value = getattr(self, name)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(map(number_text, value))
        return value if isinstance(value, str) else number_text(value)

    @classmethod
    def parse_field(cls, name: str, text: str) -> Any:
        """The value of one field from its URL text. Raises SpecError."""
        p = cls.param(name)
        try:
            value = _from_text(p, text)
        except ValueError:
            raise SpecError([Problem(name, text, p.legal)]) from None
        return value

    def build(self) -> PositionalEncoding:
        """The module of this scheme."""
        raise NotImplementedError

    def _inapplicable(self) -> Iterable[Problem]:
        for p in self.params():
            if not self.applies(p) and getattr(self, p.name) != p.default:
                assert p.when is not None
                other, values = p.when
                unread = not self.applies(self.param(other))
                yield Problem(p.name, getattr(self, p.name), f"read only while {other} is {' or '.join(values)}",
                              f"{other} is {'not read' if unread else getattr(self, other)}")  # fmt: skip

    def _cross_checks(self) -> Iterable[Problem]:
        """Problems that involve more than one field."""
        return ()


def _from_text(p: Param, text: str) -> Any:
    if p.kind == "bool":
        words = {"true": True, "1": True, "false": False, "0": False}
        if text.strip().lower() not in words:
            raise ValueError(text)
        return words[text.strip().lower()]
    if p.kind == "int":
        try:
            return int(text)
        except ValueError:
            number = float(text)  # "1e4" is a whole number too
            if not number.is_integer():
                raise
            return int(number)
    if p.kind == "float":
        return float(text)
    if p.kind in ("ints", "floats"):
        item = int if p.kind == "ints" else float
        return tuple(map(item, text.split(","))) if text.strip() else ()
    return text


def _problem(spec: type[Spec], error: Any) -> Problem:
    name = str(error["loc"][0]) if error["loc"] else spec.scheme
    known = {p.name: p for p in spec.params()}
    if name not in known:
        names = ", ".join(known) or "no parameters"
        return Problem(name, error["input"], f"{spec.scheme or spec.__name__} has {names}", "unknown name")
    value = error["input"]
    return Problem(name, value, known[name].legal)
