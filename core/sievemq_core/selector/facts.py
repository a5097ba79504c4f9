"""What must be true of every message that a selector matches: the raw material of an index.

Facts are *necessary* conditions, derived from the plan. An index that finds consumers by them may offer a consumer too
many messages, never too few; the selector's function decides.

How to look up. Java's ``=`` does not behave like a hash key: 5 equals 5.0, TRUE does not equal 1, and a large long
equals a double that Python calls different. So the sets in ``equalities`` hold *keys*: every key that a matching value
can have. For a message take ``message_key(name, properties, headers)``, or ``bucket_key(value)`` for a value at hand,
and see whether it is in the set. NULL has the key None, which is in no set. Constants for which no finite set of keys
would do (approximate ones beyond 2^53) simply give no fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sievemq_core.message.values import Float, PropertyValue
from sievemq_core.selector import plan
from sievemq_core.selector.arithmetic import to_float
from sievemq_core.selector.names import HEADERS, Headers, read
from sievemq_core.selector.shape import Parameter

__all__ = ["Facts", "FactsTemplate", "Key", "Range", "alternatives", "bucket_key", "derive", "message_key"]

Key = str | int | float | tuple[str, bool] | None
"""A hashable stand-in for a value; see :func:`bucket_key`."""

_TRUE, _FALSE = ("boolean", True), ("boolean", False)


def bucket_key(value: PropertyValue) -> Key:
    """The key of a value: the value itself, but booleans apart from 1 and 0, which they equal in Python."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    return value


def message_key(
    name: str, properties: Mapping[str, PropertyValue], headers: Headers, *, numeric_mode: bool = False
) -> Key:
    """The key of what a selector sees under `name` in a message; None for NULL. `numeric_mode` is the dialect's."""
    return bucket_key(read(name, properties, headers, numeric_mode=numeric_mode))


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that would triple the time to make one; nobody changes them
class Range:
    """A number that must lie between two bounds, both included: a strict bound is widened, which is still necessary.

    Bounds are doubles rounded outwards far enough that a comparison as floats holds for every matching value of any
    numeric type; compare with ``low <= value <= high``.
    """

    low: float = -inf
    high: float = inf


@dataclass(slots=True, unsafe_hash=True)
class Facts:
    """Necessary conditions. Header fields appear under their JMS names.

    Attributes:
        names: every header field and property that the selector names.
        uses_properties: a property is among them; if not, properties need not be decoded.
        equalities: name -> the keys one of which the value must have, sorted by name. An empty set means that no
            message can match, and then `never` is set as well.
        ranges: name -> bounds of the number it must be, sorted by name.
        prefixes: name -> texts one of which the value must begin with, sorted by name.
        present: names that must not be NULL.
        absent: names that must be NULL.
        never: no message can match.
        always: every message matches.
    """

    names: frozenset[str] = frozenset()
    uses_properties: bool = False
    equalities: tuple[tuple[str, frozenset[Key]], ...] = ()
    ranges: tuple[tuple[str, Range], ...] = ()
    prefixes: tuple[tuple[str, frozenset[str]], ...] = ()
    present: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    never: bool = False
    always: bool = False


@dataclass(slots=True)
class _Need:
    """What one name must be like, gathered so far."""

    keys: frozenset[Key] | None = None
    range: Range | None = None
    prefixes: frozenset[str] | None = None
    present: bool = False
    absent: bool = False

    @property
    def impossible(self) -> bool:
        """No value can satisfy it."""
        return (
            (self.present and self.absent)
            or (self.keys is not None and not self.keys)
            or (self.range is not None and self.range.low > self.range.high)
        )


@dataclass(slots=True)
class _Needs:
    by_name: dict[str, _Need]
    never: bool = False

    def of(self, name: str) -> _Need:
        """What is needed of a name, to add to it."""
        need = self.by_name.get(name)
        if need is None:
            need = self.by_name[name] = _Need()
        return need


def derive(test: plan.Test, names: Iterable[str]) -> Facts:
    """The facts of a plan.

    Args:
        test: the plan.
        names: every name in the selector's text.
    """
    return _facts(_needs(test), frozenset(names), always=isinstance(test, plan.Always) and test.value)


def alternatives(test: plan.Test) -> tuple[tuple[Facts, ...], ...]:
    """For every OR that must be TRUE for the selector to be: the facts of each of its branches that can be TRUE.

    ``a = 1 OR b = 2`` demands nothing of any one name, but every message it matches meets the facts of one branch. An
    index may file the selector under all branches of one OR, if each of them has a fact.

    Args:
        test: the plan.
    """
    found: list[tuple[Facts, ...]] = []
    for part in test.tests if isinstance(test, plan.All) else (test,):
        if isinstance(part, plan.Any):
            branches = [_needs(branch) for branch in part.tests]
            found.append(tuple(_facts(needs, frozenset(needs.by_name)) for needs in branches if not needs.never))
    return tuple(found)


class FactsTemplate:
    """The facts of all selectors of one shape: those of one of them, with the constants of another put in.

    A parameter's name has no other condition (shape.py), so its facts are made of its own constants alone.

    Args:
        facts: of one selector.
        open_to: its parameters.
    """

    __slots__ = ("_equalities", "_facts", "_ranges")

    def __init__(self, facts: Facts, open_to: Iterable[Parameter]) -> None:
        places: dict[str, list[Parameter]] = {}
        for place in open_to:
            places.setdefault(place.name, []).append(place)
        self._facts = facts
        #: name, keys, and the constants to make keys of, if they are to be made anew
        self._equalities = [
            (name, keys, places[name][0].indexes if name in places else None) for name, keys in facts.equalities
        ]
        #: name, bounds, and the constants to make them of
        self._ranges: list[tuple[str, Range, int | None, int | None]] = []
        for name, bounds in facts.ranges:
            low = high = None
            for place in places.get(name, ()):
                if bounds.low != -inf and place.ops[0] in ("=", ">", ">="):
                    low = place.indexes[0]
                if bounds.high != inf and place.ops[0] in ("=", "<", "<="):
                    high = place.indexes[0]
            self._ranges.append((name, bounds, low, high))

    def fill(self, values: Sequence[Any]) -> Facts:
        """The facts of the selector with these constants."""
        known = self._facts
        equalities, ranges = known.equalities, known.ranges
        if equalities:
            equalities = tuple(
                [
                    (name, keys if indexes is None else _of_all(values, indexes))
                    for name, keys, indexes in self._equalities
                ]
            )
        if ranges:
            ranges = tuple([(name, _moved(bounds, values, low, high)) for name, bounds, low, high in self._ranges])
        return Facts(
            known.names,
            known.uses_properties,
            equalities,
            ranges,
            known.prefixes,
            known.present,
            known.absent,
            known.never,
            known.always,
        )


def _of_all(values: Sequence[Any], indexes: tuple[int, ...]) -> frozenset[Key]:
    if len(indexes) == 1:
        # a constant of a parameter has keys, as that of the first selector had
        return _keys(values[indexes[0]]) or frozenset()
    return frozenset([values[index] for index in indexes])  # of a list: strings


def _moved(bounds: Range, values: Sequence[Any], low: int | None, high: int | None) -> Range:
    if low is None and high is None:
        return bounds
    return Range(
        bounds.low if low is None else _outwards(values[low])[0],
        bounds.high if high is None else _outwards(values[high])[1],
    )


def _facts(needs: _Needs, everything: frozenset[str], *, always: bool = False) -> Facts:
    equalities: list[tuple[str, frozenset[Key]]] = []
    ranges: list[tuple[str, Range]] = []
    prefixes: list[tuple[str, frozenset[str]]] = []
    present: list[str] = []
    absent: list[str] = []
    for name, need in sorted(needs.by_name.items()):
        if need.keys is not None:
            equalities.append((name, need.keys))
        if need.range is not None:
            ranges.append((name, need.range))
        if need.prefixes is not None:
            prefixes.append((name, need.prefixes))
        if need.present:
            present.append(name)
        if need.absent:
            absent.append(name)
    return Facts(
        names=everything,
        uses_properties=not everything <= HEADERS.keys(),
        equalities=tuple(equalities),
        ranges=tuple(ranges),
        prefixes=tuple(prefixes),
        present=frozenset(present),
        absent=frozenset(absent),
        never=needs.never,
        always=always,
    )


def _needs(test: plan.Test) -> _Needs:
    """What a test demands."""
    needs = _Needs({})
    _demand(test, needs)
    if not needs.never:
        for need in needs.by_name.values():
            if need.impossible:
                needs.never = True
                break
    return needs


def _demand(test: plan.Test, needs: _Needs) -> None:
    """Add what a test demands to what others do; two demands on one name narrow each other."""
    kind = type(test)  # a chain of patterns would take twice as long
    if kind is plan.Relation:
        _of_relation(test, needs)  # type: ignore[arg-type]
    elif kind is plan.All:
        for part in test.tests:  # type: ignore[union-attr]
            _demand(part, needs)
    elif kind is plan.Any:
        _also(needs, _some([_needs(part) for part in test.tests]))  # type: ignore[union-attr]
    elif kind is plan.OneOf:
        _of_list(test, needs)  # type: ignore[arg-type]
    elif kind is plan.Matches:
        _of_pattern(test, needs)  # type: ignore[arg-type]
    else:
        _of_rest(test, needs)


def _of_list(test: plan.OneOf, needs: _Needs) -> None:
    need = needs.of(test.field.name)
    need.present = True
    if test.holds and not test.negated:
        need.keys = test.values if need.keys is None else need.keys & test.values
        needs.never = needs.never or not test.values


def _of_pattern(test: plan.Matches, needs: _Needs) -> None:
    need = needs.of(test.field.name)
    need.present = True
    if test.holds and not test.negated:
        pattern = test.pattern
        if pattern.exact is not None:
            keys = frozenset({pattern.exact})
            need.keys = keys if need.keys is None else need.keys & keys
        elif pattern.prefix:
            need.prefixes = need.prefixes or frozenset({pattern.prefix})  # either is necessary


def _of_rest(test: plan.Test, needs: _Needs) -> None:
    match test:
        case plan.Always():
            needs.never = needs.never or not test.value
        case plan.EqualsOne():
            need = needs.of(test.field.name)
            need.present = True
            if test.holds:
                keys: frozenset[Key] = frozenset().union(test.texts, test.exact, test.doubles, test.floats)
                need.keys = keys if need.keys is None else need.keys & keys
        case plan.Truth(field=subject, holds=holds):
            need = needs.of(subject.name)
            keys = frozenset({bucket_key(holds)})
            need.present, need.keys = True, keys if need.keys is None else need.keys & keys
        case plan.Missing(value=plan.Field(name=name), holds=holds):
            need = needs.of(name)
            need.present, need.absent = need.present or not holds, need.absent or holds
        case plan.IsNumber(value=plan.Field(name=name)):
            needs.of(name).present = True
        case _:
            pass


def _of_relation(test: plan.Relation, needs: _Needs) -> None:
    """Both sides must be there, whether TRUE or FALSE is asked; a constant on the right says more."""
    left, right = test.left, test.right
    if not isinstance(left, plan.Field) or not isinstance(right, plan.Constant):
        for part in plan.fields_of(test):
            needs.of(part.name).present = True
        return
    need = needs.of(left.name)
    need.present = True
    if not test.holds:
        return
    constant: Any = right.value
    op = test.op
    if op == "=":
        keys = _keys(constant)
        if keys is not None:
            need.keys = keys if need.keys is None else need.keys & keys
    if op != "<>" and isinstance(constant, int | float) and not isinstance(constant, bool):
        low, high = _outwards(constant)
        if op in ("<", "<="):
            low = -inf
        elif op != "=":
            high = inf
        known = need.range
        need.range = Range(low, high) if known is None else Range(max(known.low, low), min(known.high, high))
        needs.never = needs.never or constant != constant


def _keys(constant: str | bool | int | float) -> frozenset[Key] | None:
    """Every key of a value that equals the constant (Java promotion); None if they cannot be listed."""
    if isinstance(constant, str | bool):
        return frozenset({bucket_key(constant)})
    if isinstance(constant, int):  # an int or long equals it, or the double or float nearest to it
        if -(2**24) <= constant <= 2**24:
            return frozenset({int(constant)})
        return frozenset({int(constant), float(constant), to_float(constant)})
    if constant != constant:
        return frozenset()
    if abs(constant) < (2**24 if type(constant) is Float else 2**53) or abs(constant) == inf:
        return frozenset({float(constant)})
    return None  # every long that rounds to it


def _outwards(constant: int | float) -> tuple[float, float]:
    """Bounds around a number that cover every rounding to a double or float."""
    middle = float(constant)
    if abs(middle) < 2**24 or abs(middle) == inf:
        return middle, middle
    slack = abs(middle) * 2**-22
    return middle - slack, middle + slack


def _also(needs: _Needs, others: _Needs) -> None:
    """All of these as well."""
    needs.never = needs.never or others.never
    for name, need in others.by_name.items():
        known = needs.by_name.get(name)
        if known is None:
            needs.by_name[name] = need
            continue
        known.keys = _narrowed(known.keys, need.keys)
        known.range = _overlap(known.range, need.range)
        known.prefixes = known.prefixes or need.prefixes  # either is necessary
        known.present = known.present or need.present
        known.absent = known.absent or need.absent


def _narrowed(one: frozenset[Key] | None, other: frozenset[Key] | None) -> frozenset[Key] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _overlap(one: Range | None, other: Range | None) -> Range | None:
    if one is None or other is None:
        return one or other
    return Range(max(one.low, other.low), min(one.high, other.high))


def _some(parts: list[_Needs]) -> _Needs:
    """At least one of them: only what every possible branch demands of a name, and the widest of it."""
    possible = [part for part in parts if not part.never]
    if not possible:
        return _Needs({}, never=True)
    merged = _Needs({})
    shared = set(possible[0].by_name)
    for part in possible[1:]:
        shared &= part.by_name.keys()
    for name in shared:
        needs = [part.by_name[name] for part in possible]
        keys = [need.keys for need in needs if need.keys is not None]
        ranges = [need.range for need in needs if need.range is not None]
        prefixes = [need.prefixes for need in needs if need.prefixes is not None]
        whole = len(needs)
        merged.by_name[name] = _Need(
            keys=frozenset[Key]().union(*keys) if len(keys) == whole else None,
            range=Range(min(r.low for r in ranges), max(r.high for r in ranges)) if len(ranges) == whole else None,
            prefixes=frozenset[str]().union(*prefixes) if len(prefixes) == whole else None,
            present=all(need.present for need in needs),
            absent=all(need.absent for need in needs),
        )
    return merged
