"""Facts: conditions that hold for every message that a selector matches. An index is built from them.

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


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that would triple the time to make one; none is changed
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
    """The conditions on one name, gathered so far: two of them narrow each other."""

    keys: frozenset[Key] | None = None
    range: Range | None = None
    prefixes: frozenset[str] | None = None
    present: bool = False
    absent: bool = False

    @property
    def impossible(self) -> bool:
        return (
            (self.present and self.absent)
            or (self.keys is not None and not self.keys)
            or (self.range is not None and self.range.low > self.range.high)
        )

    def exist(self) -> _Need:
        """Must not be NULL; returns the need itself."""
        self.present = True
        return self

    def be_null(self, holds: bool) -> None:
        """Must be NULL, or must not."""
        if holds:
            self.absent = True
        else:
            self.present = True

    def be_among(self, keys: frozenset[Key]) -> None:
        self.keys = keys if self.keys is None else self.keys & keys

    def lie_between(self, low: float, high: float) -> None:
        known = self.range
        self.range = Range(low, high) if known is None else Range(max(known.low, low), min(known.high, high))

    def begin_with(self, prefixes: frozenset[str]) -> None:
        """Must begin with one of these texts; the first such demand is kept, for each of several is necessary."""
        self.prefixes = self.prefixes or prefixes

    def narrow(self, other: _Need) -> None:
        """Must satisfy the other need as well."""
        if other.keys is not None:
            self.be_among(other.keys)
        if other.range is not None:
            self.lie_between(other.range.low, other.range.high)
        if other.prefixes is not None:
            self.begin_with(other.prefixes)
        self.present = self.present or other.present
        self.absent = self.absent or other.absent


class _Needs:
    """The demands of tests on the names in them. Make it by :meth:`of_test`."""

    __slots__ = ("by_name", "never")

    def __init__(self) -> None:
        self.by_name: dict[str, _Need] = {}
        #: No message can satisfy it.
        self.never = False

    @classmethod
    def of_test(cls, test: plan.Test) -> _Needs:
        """Collect the demands of one test."""
        needs = cls()
        needs.demand(test)
        if not needs.never:
            for need in needs.by_name.values():
                if need.impossible:
                    needs.rule_out()
                    break
        return needs

    @classmethod
    def of_any(cls, tests: Iterable[plan.Test]) -> _Needs:
        """The condition that at least one of several tests requires: for a name, the widest of those of every possible
        test."""
        merged = cls()
        possible = [part for part in map(cls.of_test, tests) if not part.never]
        if not possible:
            merged.rule_out()
            return merged
        for name in set(possible[0].by_name).intersection(*(part.by_name for part in possible[1:])):
            merged.by_name[name] = _widest([part.by_name[name] for part in possible])
        return merged

    def rule_out(self) -> None:
        self.never = True

    def of(self, name: str) -> _Need:
        """The need of a name, to be extended."""
        need = self.by_name.get(name)
        if need is None:
            need = self.by_name[name] = _Need()
        return need

    def demand(self, test: plan.Test) -> None:
        """Add what a test demands."""
        kind = type(test)  # a chain of patterns would take twice as long
        if kind is plan.Relation:
            self._relation(test)  # type: ignore[arg-type]
        elif kind is plan.All:
            for part in test.tests:  # type: ignore[union-attr]
                self.demand(part)
        elif kind is plan.Any:
            self._also(_Needs.of_any(test.tests))  # type: ignore[union-attr]
        elif kind is plan.OneOf:
            self._list(test)  # type: ignore[arg-type]
        elif kind is plan.Matches:
            self._pattern(test)  # type: ignore[arg-type]
        else:
            self._rest(test)

    def _also(self, others: _Needs) -> None:
        self.never = self.never or others.never
        for name, need in others.by_name.items():
            self.of(name).narrow(need)

    def _list(self, test: plan.OneOf) -> None:
        need = self.of(test.field.name).exist()
        if test.holds and not test.negated:
            need.be_among(test.values)

    def _pattern(self, test: plan.Matches) -> None:
        need = self.of(test.field.name).exist()
        if test.holds and not test.negated:
            pattern = test.pattern
            if pattern.exact is not None:
                need.be_among(frozenset({pattern.exact}))
            elif pattern.prefix:
                need.begin_with(frozenset({pattern.prefix}))

    def _rest(self, test: plan.Test) -> None:
        match test:
            case plan.Always():
                self.never = self.never or not test.value
            case plan.EqualsOne():
                need = self.of(test.field.name).exist()
                if test.holds:
                    need.be_among(frozenset().union(test.texts, test.exact, test.doubles, test.floats))
            case plan.Truth(field=subject, holds=holds):
                self.of(subject.name).exist().be_among(frozenset({bucket_key(holds)}))
            case plan.Missing(value=plan.Field(name=name), holds=holds):
                self.of(name).be_null(holds)
            case plan.IsNumber(value=plan.Field(name=name)):
                self.of(name).exist()
            case _:
                pass

    def _relation(self, test: plan.Relation) -> None:
        """Both sides must be present for TRUE as for FALSE; a constant on the right gives more facts."""
        left, right = test.left, test.right
        if not isinstance(left, plan.Field) or not isinstance(right, plan.Constant):
            for part in plan.fields_of(test):
                self.of(part.name).exist()
            return
        need = self.of(left.name).exist()
        if not test.holds:
            return
        constant: Any = right.value
        op = test.op
        if op == "=":
            keys = _keys(constant)
            if keys is not None:
                need.be_among(keys)
        if op != "<>" and isinstance(constant, int | float) and not isinstance(constant, bool):
            low, high = _outwards(constant)
            if op in ("<", "<="):
                low = -inf
            elif op != "=":
                high = inf
            need.lie_between(low, high)
            self.never = self.never or constant != constant

    def facts(self, names: frozenset[str], *, always: bool = False) -> Facts:
        """The collected demands, as facts of a selector that names these."""
        equalities: list[tuple[str, frozenset[Key]]] = []
        ranges: list[tuple[str, Range]] = []
        prefixes: list[tuple[str, frozenset[str]]] = []
        present: list[str] = []
        absent: list[str] = []
        for name, need in sorted(self.by_name.items()):
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
            names=names,
            uses_properties=not names <= HEADERS.keys(),
            equalities=tuple(equalities),
            ranges=tuple(ranges),
            prefixes=tuple(prefixes),
            present=frozenset(present),
            absent=frozenset(absent),
            never=self.never,
            always=always,
        )


def _widest(needs: list[_Need]) -> _Need:
    """The narrowest need that covers several needs."""
    keys = [need.keys for need in needs if need.keys is not None]
    ranges = [need.range for need in needs if need.range is not None]
    prefixes = [need.prefixes for need in needs if need.prefixes is not None]
    whole = len(needs)
    return _Need(
        keys=frozenset[Key]().union(*keys) if len(keys) == whole else None,
        range=Range(min(r.low for r in ranges), max(r.high for r in ranges)) if len(ranges) == whole else None,
        prefixes=frozenset[str]().union(*prefixes) if len(prefixes) == whole else None,
        present=all(need.present for need in needs),
        absent=all(need.absent for need in needs),
    )


def derive(test: plan.Test, names: Iterable[str]) -> Facts:
    """The facts of a plan."""
    return _Needs.of_test(test).facts(frozenset(names), always=isinstance(test, plan.Always) and test.value)


def alternatives(test: plan.Test) -> tuple[tuple[Facts, ...], ...]:
    """For every OR that must be TRUE for the selector to be: the facts of each of its branches that can be TRUE.

    ``a = 1 OR b = 2`` demands nothing of any one name, but every message it matches meets the facts of one branch. An
    index may file the selector under all branches of one OR, if each of them has a fact.
    """
    found: list[tuple[Facts, ...]] = []
    for part in test.tests if isinstance(test, plan.All) else (test,):
        if isinstance(part, plan.Any):
            branches = [_Needs.of_test(branch) for branch in part.tests]
            found.append(tuple(needs.facts(frozenset(needs.by_name)) for needs in branches if not needs.never))
    return tuple(found)


class FactsTemplate:
    """The facts of all selectors of one shape: those of one of them, with the constants of another inserted.

    A parameter's name has no other condition (shape.py), so its facts depend on its own constants alone.
    """

    __slots__ = ("_equalities", "_facts", "_ranges")

    def __init__(self, facts: Facts, open_to: Iterable[Parameter]) -> None:
        places: dict[str, list[Parameter]] = {}
        for place in open_to:
            places.setdefault(place.name, []).append(place)
        self._facts = facts
        #: name, keys, and the constants to make keys of, if they are to be recreated
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
