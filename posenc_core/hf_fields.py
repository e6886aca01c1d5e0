"""Typed reading of a config's fields: every value is checked, every problem kept, every field that was read noted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posenc_core.spec import Problem

MOST_PROBLEMS = 50  # are told one by one
MOST_DIGITS = 4300  # of a whole number that Python prints and reads

# Names that say something about positions, in any of the spellings seen in public configs.
_TOUCHES = re.compile(
    r"rope|rotary|position|theta|alibi|yarn|ntk|mscale|nope|logn|log_scal|sinusoid|relative|xpos|scaling_beta"
    r"|temperature_tuning|rel_pos|fope|kerple|dual_chunk|(^|_)(pos|pe|ape|rpe)(_|$)",
    re.IGNORECASE,
)
# What only sounds like it: words, and whole names. They are cut out, so what stands beside them still counts.
_HARMLESS = re.compile(
    r"europe|propert(?:y|ies)|proper(?:ly)?(?=_|$)|(?:com|ex|dis|pro|super|de|im|op|trans)position|lognormal|exposed?(?=_|$)"
    r"|exposure|^(?:use_)?cache_position$|^max_position_id$|^relative_(?:path|dir|url)s?$|^position_id_per_seconds$"
    r"|^global_view_pos$|^(?:(?:bce|loss|cls|class)_)?pos_(?:weights?|labels?|tags?|token_id)$",
    re.IGNORECASE,
)
# Names that say which layers see what: not positions themselves, but what a reader needs to know of a layer.
_LAYERED = re.compile(
    r"sliding|window|swa_|attention_chunk|chunked_att|layer_types|block_type|attn_layer|attn_type_list|attn_idx|local_att|global_att",
    re.IGNORECASE,
)
# A false that turns an extra off is as good as absent; a false that turns positions themselves off is not.
_EXTRA = re.compile(
    r"alibi|yarn|ntk|logn|log_scal|xpos|mscale|relative|mrope|nope|temperature|scaling|dynamic", re.IGNORECASE
)


@dataclass(frozen=True)
class Sizes:
    """Defaults of a configuration class; qk_nope and qk_rope are the two parts of an MLA head."""

    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None


def touches_positions(name: str) -> bool:
    """Whether a field of this name can change what a model does with positions."""
    return bool(_TOUCHES.search(_HARMLESS.sub("-", name)))


def touches_layers(name: str) -> bool:
    """Whether a field of this name can say which layers see which part of the text."""
    return bool(_LAYERED.search(name))


def inactive(name: str, value: object) -> bool:
    """Whether a value is as good as absent: null, or a false that turns an extra off."""
    if value is None:
        return True
    if value is not False:
        return False
    return bool(_EXTRA.search(name)) or not re.match(
        r"(use|has|enable|enabled|apply|with|add|is|do)_|rope$|rotary$", name
    )


class Problems(list[Problem]):
    """What is wrong so far: one problem a field, and no more than are read; the others are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def append(self, problem: Problem) -> None:
        """Keep a problem with a field that has none yet."""
        if problem.name not in self.names and len(self) < MOST_PROBLEMS:
            super().append(problem)
        self.names.add(problem.name)

    def told(self) -> list[Problem]:
        """The problems that were kept, and how many there are besides."""
        more = len(self.names) - len(self)
        rest = Problem("config", f"{more:,} more fields", "values that are known", "they have problems too")
        return [*self, rest] if more else list(self)


class Fields:
    """One mapping of a config. `path` goes before the names in messages; problems of all levels share one list."""

    def __init__(self, mapping: Mapping[str, Any], path: str = "", problems: Problems | None = None) -> None:
        self.mapping, self.path = mapping, path
        self.problems = Problems() if problems is None else problems
        self.read: dict[str, None] = {}

    def name(self, name: str) -> str:
        """The field's name with its path."""
        return f"{self.path}{name}"

    def refuse(self, name: str, legal: str, reason: str = "") -> None:
        """Note a problem with the field's value."""
        self.problems.append(Problem(self.name(name), self.mapping.get(name), legal, reason))

    def raw(self, name: str) -> Any:
        """The value as it stands, None where there is none; marks the field as read."""
        self.read[name] = None
        return self.mapping.get(name)

    def first(self, names: Sequence[str]) -> str:
        """The first of the names that has a value, else the first name."""
        return next((n for n in names if self.mapping.get(n) is not None), names[0])

    def given(self, *names: str) -> bool:
        """Whether one of the names has a value."""
        return any(self.mapping.get(n) is not None for n in names)

    def number(self, *names: str, low: float, high: float, above: bool = False) -> float | None:
        """A number from low to high, or above low. The names are spellings of one field, which must agree."""
        legal = f"a number {'above' if above else 'from'} {low:,.10g} {'and at most' if above else 'to'} {high:,.10g}"

        def good(value: object) -> float | None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            try:
                number = float(value)
            except OverflowError:
                return None
            fits = low <= number <= high and not (above and number == low)
            return number if math.isfinite(number) and fits else None

        return self._agreed(names, good, legal)

    def whole(self, *names: str, low: int, high: int) -> int | None:
        """A whole number from low to high; 4096.0 is one."""

        def good(value: object) -> int | None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                return None
            return int(value) if value == int(value) else None

        return self._agreed(names, good, f"a whole number from {low:,} to {high:,}")

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
            return default
        return value

    def text(self, *names: str) -> str | None:
        """A text."""
        return self._agreed(names, lambda v: v if isinstance(v, str) else None, "a text")

    def items(self, name: str, good: Any, legal: str, longest: int = 10_000) -> list[Any] | None:
        """A list whose items `good` accepts, of at most `longest`."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) > longest or not all(map(good, value)):
            self.refuse(name, f"a list of at most {longest:,} items, each {legal}")
            return None
        return list(value)

    def inner(self, name: str) -> Fields | None:
        """A mapping inside this one."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.refuse(name, "a mapping of names to values, or null")
            return None
        return Fields(value, f"{self.name(name)}.", self.problems)

    def _agreed(self, names: Sequence[str], good: Any, legal: str) -> Any:
        found: dict[str, Any] = {}
        for name in names:
            value = self.raw(name)
            if value is None:
                continue
            made = good(value)
            if made is None:
                self.refuse(name, legal)
            else:
                found[name] = made
        first = next(iter(found), None)
        for name, value in found.items():
            if first is not None and value != found[first]:
                self.refuse(name, f"the same as {self.name(first)}, {found[first]}", "two spellings of one field")
        return None if first is None else found[first]


def illegible(value: object, *, finite: bool = False) -> Iterable[Problem]:
    """What no page and no file can show: texts that are not UTF-8 (halves of surrogate pairs), endless whole numbers.

    With `finite` also NaN and infinities. Goes through what is nested, each mapping and list once.
    """
    stack: list[tuple[str, object]] = [("", value)]
    seen: set[int] = set()
    while stack:
        name, value = stack.pop()
        if isinstance(value, str) and not _is_utf8(value):
            yield Problem(name or "config", value, "text in UTF-8", "half a surrogate pair is no character")
        elif isinstance(value, int) and value.bit_length() > 14_000 and abs(value) >= 10**MOST_DIGITS:
            yield Problem(name or "config", value, f"a number of at most {MOST_DIGITS:,} digits")
        elif finite and isinstance(value, float) and not math.isfinite(value):
            yield Problem(name or "config", value, "a finite number")
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            if not isinstance(value, Mapping):
                stack += [(name, item) for item in value]
                continue
            for key, item in value.items():
                inner = f"{name}.{key}" if name and len(name) < 200 else str(key)
                if not _is_utf8(inner):
                    inner = utf8(inner)
                    yield Problem(inner, item, "a name in UTF-8", "half a surrogate pair is no character")
                stack.append((inner, item))


def _is_utf8(text: str) -> bool:
    return text.isascii() or not re.search("[\ud800-\udfff]", text)


def utf8(text: str) -> str:
    """The text with a sign for each half of a surrogate pair."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def is_whole(value: object) -> bool:
    """A whole number that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """A finite number that is no bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
