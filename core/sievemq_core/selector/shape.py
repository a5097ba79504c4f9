"""Selectors that differ only in the values of their constants share their check, plan and code: a shape.

``JMSCorrelationID = 'x17'`` and ``JMSCorrelationID = 'x18'`` are one shape with one parameter. A text is taken apart
into what stands between its strings and plain numbers, and the constants with their kinds; if that outline is known,
nothing has to be parsed. What a constant's value may decide stays out of the parameters or is part of its kind:

* A parameter is compared with one name, which occurs nowhere else in the selector: so it can neither contradict nor
  repeat another term, nor change the order of the canonical text. Every other constant must be the same (``fixed``).
* 0, 1 and numbers beyond what every number type holds exactly mean other code, so they are other kinds.
* Where the values could still matter (bounds in the wrong order, a repeated string in a list) nothing is shared.

Dialects other than jakarta are not taken apart: their rules depend on values (D-15, D-16).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from sievemq_core.selector.arithmetic import to_float
from sievemq_core.selector.ast import MIRRORED, Between, Compare, Identifier, In, Literal, Node, walk
from sievemq_core.selector.cache import MAX_CHARS
from sievemq_core.selector.names import FieldType, field_type
from sievemq_core.selector.source import Span

#: Outlines that are cached; the least recently used one is evicted first. A shape takes some 10 KB with its code.
MAX_SHAPES = 512

# What makes a number beside it another token; written as what does not: a set that reaches to U+10FFFF takes
# milliseconds to compile.
_BESIDE = r"[^\x00-#%-\-/:-@\[-^`{-\x7f]"
#: A string, or a plain decimal number that no character beside it makes another token.
_CONSTANT = re.compile(
    r"('[^']*+(?:''[^']*+)*+'"
    rf"|(?<!{_BESIDE})(?:0|[1-9][0-9]{{0,17}}+)(?:\.[0-9]{{1,9}}+)?+(?!{_BESIDE}))"
)

#: Below this every number type holds whole numbers exactly; below the other, a double does.
_EXACT, _DOUBLE = 2**24, 2**53

#: How a constant's value affects the code and the facts; any other kind is the constant itself.
_KINDS = frozenset({"text", "int", "float", "double", "even", "long"})

Outline: TypeAlias = "tuple[tuple[str, ...], list[str], list[str | int | float]]"
"""The text between the constants, with a kind in place of each; the constants' texts; their values."""


def outline(text: str) -> Outline | None:
    """Take a text apart; None if it has no constants, or is none that could be shared."""
    # with an odd number of quotes there is a mistake, and the expression could scan the text once per quote
    if len(text) > MAX_CHARS or text.count("'") & 1 or "\0" in text:
        return None
    parts = _CONSTANT.split(text)
    if len(parts) == 1:
        return None
    raws = parts[1::2]
    values: list[str | int | float] = []
    for number, raw in enumerate(raws):
        value: str | int | float
        if raw[0] == "'":
            value = raw[1:-1]
            if "''" in value:
                value = value.replace("''", "'")
            kind = "text"
        elif "." in raw:
            value = float(raw)
            kind = raw if value in (0, 1) else "float" if value < _EXACT else "double" if value < _DOUBLE else raw
        else:
            value = int(raw)
            kind = raw if value < 2 else "int" if value < _EXACT else "even" if to_float(value) == value else "long"
        values.append(value)
        parts[2 * number + 1] = kind
    return tuple(parts), raws, values


class Parameter(NamedTuple):
    """A place of a shape where constants may change.

    Attributes:
        name: the header field or property they are compared with.
        ops: the operator with the name on its left, as the plan has it; of a bound of BETWEEN also that of NOT BETWEEN;
            ``IN`` for a list.
        indexes: the constant of the outline; several for a list.
        spans: where they stand.
        above: the constant that must be smaller, for the upper bound of BETWEEN.
    """

    name: str
    ops: tuple[str, ...]
    indexes: tuple[int, ...]
    spans: tuple[Span, ...]
    above: int | None = None


def parameters(tree: Node, text: str, known: Outline) -> tuple[Parameter, ...]:
    """The constants of a valid selector that may change without a change of the generated code."""
    parts, _, values = known
    at = {match.span(): index for index, match in enumerate(_CONSTANT.finditer(text))}
    seen: dict[str, int] = {}
    found: list[tuple[Parameter, ...]] = []
    for node in walk(tree):
        match node:
            case Identifier(name=name):
                seen[name] = seen.get(name, 0) + 1
            case Compare(op=op, left=Identifier(name=name), right=Literal(span=span)) if span in at:
                found.append((Parameter(name, (op,), (at[span],), (span,)),))
            case Compare(op=op, left=Literal(span=span), right=Identifier(name=name)) if span in at:
                found.append((Parameter(name, (MIRRORED[op],), (at[span],), (span,)),))
            case Between(operand=Identifier(name=name), low=Literal(span=low), high=Literal(span=high)):
                # BETWEEN 9 AND 5 is a range without numbers: another plan
                if low in at and high in at and values[at[low]] < values[at[high]]:  # type: ignore[operator]  # numbers
                    above = Parameter(name, ("<=", ">"), (at[high],), (high,), at[low])
                    found.append((Parameter(name, (">=", "<"), (at[low],), (low,)), above))
            case In(operand=Identifier(name=name), items=items, equals=False) if all(item.span in at for item in items):
                indexes = tuple(at[item.span] for item in items)
                if len({values[index] for index in indexes}) == len(indexes):
                    found.append((Parameter(name, ("IN",), indexes, tuple(item.span for item in items)),))
            case _:
                pass
    return tuple(
        place
        for places in found
        if seen[places[0].name] == 1 and all(_is_open(place, parts) for place in places)
        for place in places
    )


def _is_open(place: Parameter, parts: tuple[str, ...]) -> bool:
    """True if no value of these kinds decides anything beside the comparison itself."""
    kinds = {parts[2 * index + 1] for index in place.indexes}
    if not kinds <= _KINDS:
        return False
    match field_type(place.name):
        case FieldType.MODE:  # two values, so the plan is a set of them (D-13)
            return False
        case FieldType.NUMBER:  # JMSPriority > 9 can never be
            return place.name != "JMSPriority" and "text" not in kinds
        case FieldType.TEXT:
            return kinds == {"text"}
        case FieldType.PROPERTY:
            return True


_T = TypeVar("_T")


class _Variant:
    """The selectors of one outline with the same fixed constants.

    Attributes:
        known: what was learned of them.
    """

    __slots__ = ("known",)

    def __init__(self, *_key: object) -> None:
        self.known: object = None

    def learn(self, known: object) -> None:
        self.known = known


class _Family(_Variant):
    """The selectors of one outline; its own `known` counts if no constant is fixed.

    Attributes:
        fixed: constants that must be the same; None as long as nothing was learned.
    """

    __slots__ = ("_seen", "fixed")

    def __init__(self, *_key: object) -> None:
        super().__init__()
        self.fixed: tuple[int, ...] | None = None
        self._seen = False

    def meet(self) -> bool:
        seen, self._seen = self._seen, True
        return seen

    def fix(self, fixed: tuple[int, ...]) -> bool:
        if self.fixed is None:
            self.fixed = fixed
        return self.fixed == fixed


class Shapes(Generic[_T]):
    """A bounded cache of outlines. Threads may share it."""

    __slots__ = ("_family", "_variant")

    def __init__(self, maximum: int = MAX_SHAPES) -> None:
        self._family = lru_cache(maximum)(_Family)
        self._variant = lru_cache(maximum)(_Variant)

    def find(self, given: Outline) -> _T | None:
        """The shape of selectors with this outline and the same fixed constants."""
        key, _, values = given
        family = self._family(key)
        fixed = family.fixed
        if fixed is None:
            return None
        of = self._variant(key, tuple([values[index] for index in fixed])) if fixed else family
        return of.known  # type: ignore[return-value]  # learn() put it there

    def is_known(self, given: Outline) -> bool:
        """True if selectors of this outline were compiled before: to learn from one takes half as long again."""
        return self._family(given[0]).meet()

    def learn(self, given: Outline, open_to: tuple[Parameter, ...], known: _T) -> None:
        """Remember something for all selectors that differ from this one in the parameters only.

        Args:
            open_to: its parameters; at least one.
        """
        key, raws, values = given
        changing = {index for parameter in open_to for index in parameter.indexes}
        fixed = tuple(index for index in range(len(raws)) if index not in changing)
        family = self._family(key)
        if family.fix(fixed):  # else a fixed value decided what may change: too special to be shared
            (self._variant(key, tuple([values[index] for index in fixed])) if fixed else family).learn(known)

    def clear(self) -> None:
        self._family.cache_clear()
        self._variant.cache_clear()

    def __len__(self) -> int:
        """Outlines remembered."""
        return self._family.cache_info().currsize
