"""The checked tree as a two-valued plan of when the selector is TRUE.

A consumer only asks "is it TRUE?". Over Kleene's logic, with T for "is TRUE" and F for "is FALSE":

    T(a AND b) = T(a) and T(b)      F(a AND b) = F(a) or F(b)      T(NOT a) = F(a)
    T(a OR b)  = T(a) or T(b)       F(a OR b)  = F(a) and F(b)     F(NOT a) = T(a)

so NOT disappears, UNKNOWN never has to be represented, and short-circuit evaluation is exact. Only the tests at the
leaves come in two forms: ``holds=True`` asks whether the operation is TRUE, ``holds=False`` whether it is FALSE, which
is never the case when NULL is involved.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from dataclasses import field as derived
from typing import Any as Anything
from typing import TypeVar

from sievemq_core.message.values import PropertyValue, letter_of
from sievemq_core.selector.arithmetic import OPERATIONS, comparable, is_true, negate, promote, to_float
from sievemq_core.selector.ast import (
    MIRRORED,
    And,
    Arithmetic,
    Between,
    Compare,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Unary,
    type_key,
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.evaluate import zero_id
from sievemq_core.selector.like import LikePattern, parse_pattern
from sievemq_core.selector.names import MODES, FieldType, field_type

__all__ = [
    "All",
    "Always",
    "Any",
    "Comparable",
    "Compute",
    "Constant",
    "EqualsOne",
    "Field",
    "IsNumber",
    "Matches",
    "Missing",
    "OneOf",
    "Relation",
    "Test",
    "Truth",
    "Value",
    "constant_letter",
    "effort_of",
    "field_type",
    "fields_of",
    "make_plan",
]


# -- values -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Constant:
    """A value known before any message; None is NULL (such as ``1 / 0``, D-02)."""

    value: PropertyValue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and type_key(self.value) == type_key(other.value)

    def __hash__(self) -> int:
        return hash(type_key(self.value))


@dataclass(slots=True, unsafe_hash=True)
class Field:
    """A header field or property."""

    name: str
    type: FieldType = field(compare=False)  # the name determines it; hashing a member of an Enum is slow


@dataclass(slots=True, unsafe_hash=True)
class Compute:
    """Arithmetic; one operand for a sign. Its result is a number or NULL."""

    op: str
    operands: tuple[Value, ...]


Value = Constant | Field | Compute


# -- tests ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, unsafe_hash=True)
class Always:
    """A test whose result no message changes."""

    value: bool


@dataclass(slots=True, unsafe_hash=True)
class All:
    """Every one of two or more tests; none of them an All."""

    tests: tuple[Test, ...]


@dataclass(slots=True, unsafe_hash=True)
class Any:
    """At least one of two or more tests; none of them an Any."""

    tests: tuple[Test, ...]


@dataclass(slots=True, unsafe_hash=True)
class Relation:
    """A comparison is TRUE (``holds``) or FALSE. A constant is on the right unless both sides are fields.

    ``strict``: numbers compare only if their JMS types are the same (D-16)."""

    op: str
    left: Value
    right: Value
    holds: bool
    strict: bool = False


@dataclass(slots=True, unsafe_hash=True)
class OneOf:
    """``field [NOT] IN values`` is TRUE or FALSE."""

    field: Field
    values: frozenset[str]
    negated: bool
    holds: bool


@dataclass(slots=True, unsafe_hash=True)
class EqualsOne:
    """``field = 1 OR field = 'a' OR …`` of numbers, or numbers and texts, is TRUE or FALSE.

    A number of the message is compared in the type to which Java promotes both (D-01): ``doubles`` and ``floats`` are
    the numbers converted for one of these types."""

    field: Field
    texts: frozenset[str]
    exact: frozenset[int]
    approximate: frozenset[float]
    holds: bool
    doubles: frozenset[float] = derived(init=False, compare=False)
    floats: frozenset[float] = derived(init=False, compare=False)

    def __post_init__(self) -> None:
        self.doubles = self.approximate | frozenset(map(float, self.exact))
        # a double holds each of these exactly, so that the array rounds once, as to_float() does
        near: Collection[int] = self.exact
        far: list[float] = []
        if near and not -(2**53) < min(near) <= max(near) < 2**53:
            near = [number for number in self.exact if -(2**53) < number < 2**53]
            far = [to_float(number) for number in self.exact if not -(2**53) < number < 2**53]
        self.floats = self.approximate.union(array("f", near), far)

    @property
    def constants(self) -> list[str | int | float]:
        return [*sorted(self.texts), *sorted(self.exact), *sorted(self.approximate)]


@dataclass(slots=True, unsafe_hash=True)
class Matches:
    """``field [NOT] LIKE pattern`` is TRUE or FALSE."""

    field: Field
    pattern: LikePattern
    negated: bool
    holds: bool


@dataclass(slots=True, unsafe_hash=True)
class Missing:
    """The value is NULL (``holds``) or is not."""

    value: Value
    holds: bool


@dataclass(slots=True, unsafe_hash=True)
class Truth:
    """A boolean property as a condition is TRUE or FALSE; a value of any other type is neither (D-07)."""

    field: Field
    holds: bool


@dataclass(slots=True, unsafe_hash=True)
class Comparable:
    """The two values are of types that `op` compares, or one is NULL (the guard of D-15)."""

    op: str
    left: Value
    right: Value


@dataclass(slots=True, unsafe_hash=True)
class IsNumber:
    """The value is a number, not NULL (the guard of D-15)."""

    value: Value


Test = Always | All | Any | Relation | OneOf | EqualsOne | Matches | Missing | Truth | Comparable | IsNumber


def make_plan(node: Node, dialect: Dialect) -> Test:
    """Plan the condition under which the selector is TRUE."""
    planner = _Planner(dialect)
    wanted = planner.test(node, True)
    if dialect.unlike_is_fatal and not dialect.operators_minimal:
        # With AND alone a false comparison makes the whole selector false anyway (D-16).
        return _all([*planner.guards(node, needed=False), wanted])
    return wanted


class _Planner:
    __slots__ = ("_dialect",)

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def test(self, node: Node, holds: bool) -> Test:
        """`node` is TRUE if `holds`, else it is FALSE."""
        return _TESTS[type(node)](self, node, holds)  # the checker lets no value stand for a condition

    def _and(self, node: And, holds: bool) -> Test:
        tests = [self.test(operand, holds) for operand in node.operands]
        return _all(tests) if holds else _any(tests)

    def _or(self, node: Or, holds: bool) -> Test:
        tests = [self.test(operand, holds) for operand in node.operands]
        return _any(tests) if holds else _all(tests)

    def _not(self, node: Not, holds: bool) -> Test:
        return self.test(node.operand, not holds)

    def _compare(self, node: Compare, holds: bool) -> Test:
        if self._dialect.zero_id_matches_any and zero_id(node):
            return Always(holds)
        return self._relation(node.op, self._value(node.left), self._value(node.right), holds)

    def _value(self, node: Node) -> Value:
        found = value(node)
        if self._dialect.numeric_mode and isinstance(found, Field) and found.type is FieldType.MODE:
            return Field(found.name, FieldType.NUMBER)
        return found

    def _in(self, node: In, holds: bool) -> Test:
        if node.equals:
            return _equals_one(_field(node.operand), [item.value for item in node.items], holds)
        values = frozenset([str(item.value) for item in node.items])
        return _one_of(_field(node.operand), values, node.negated, holds)

    def _like(self, node: Like, holds: bool) -> Test:
        escape = None if node.escape is None else str(node.escape.value)
        pattern = parse_pattern(str(node.pattern.value), escape)
        subject = _field(node.operand)
        if subject.type is FieldType.MODE:
            return _one_of(subject, frozenset(filter(pattern.matches, MODES.values())), node.negated, holds)
        if subject.type is FieldType.NUMBER:
            return Always(not holds)
        if node.negated and pattern.matches_all:  # FALSE on every text and, by D-04, on everything else
            return Always(False) if holds else _missing(subject, False)
        return Matches(subject, pattern, node.negated, holds)

    def _null(self, node: IsNull, holds: bool) -> Test:
        return _missing(_field(node.operand), holds is not node.negated)

    def _name(self, node: Identifier, holds: bool) -> Test:
        subject = _field(node)
        return Truth(subject, holds) if subject.type is FieldType.PROPERTY else Always(False)

    def _literal(self, node: Literal, holds: bool) -> Test:
        return Always(node.value is holds)

    def _between(self, node: Between, holds: bool) -> Test:
        operand, low, high = value(node.operand), value(node.low), value(node.high)
        if node.negated:  # §3.8.1.3: x < low OR x > high
            outside = [self._relation("<", operand, low, holds), self._relation(">", operand, high, holds)]
            result = _any(outside) if holds else _all(outside)
        else:
            inside = [self._relation(">=", operand, low, holds), self._relation("<=", operand, high, holds)]
            result = _all(inside) if holds else _any(inside)
        if self._dialect.null_between_is_false:  # D-15: never UNKNOWN
            nulls = [_missing(part, True) for part in (operand, low, high)]
            if holds is node.negated:
                return _any([*nulls, result])
            return _all([*(_missing(part, False) for part in (operand, low, high)), result])
        return result

    def _relation(self, op: str, left: Value, right: Value, holds: bool) -> Test:
        strict = self._dialect.strict_numbers
        if isinstance(left, Constant) and isinstance(right, Constant):
            truth = _compared(op, left.value, right.value, strict)
            return Always(truth is holds)
        if isinstance(left, Constant):
            op, left, right = MIRRORED[op], right, left
        if isinstance(right, Constant):
            if right.value is None:
                return Always(False)
            if isinstance(left, Field) and left.type is FieldType.MODE:  # D-13: two values, so a set of them
                return _one_of(left, _modes(op, right.value), False, holds)
            if _is_never_true(op, left, right.value):
                return Always(False) if holds else _missing(left, False)
            if strict and isinstance(left, Field) and left.type is not FieldType.PROPERTY:
                if isinstance(right.value, float):
                    return Always(not holds)
                strict = False  # D-16: beside a header field an exact literal takes the field's type
        else:
            strict = strict and not any(
                isinstance(side, Field) and side.type is not FieldType.PROPERTY for side in (left, right)
            )
        return Relation(op, left, right, holds, strict)

    def guards(self, node: Node, *, needed: bool) -> list[Test]:
        """D-15: what must hold of every comparison for the selector to have a chance.

        Args:
            needed: False as long as only ANDs stand above: there the comparison itself demands as much.
        """
        found: list[Test] = []
        match node:
            case And():
                for operand in node.operands:
                    found += self.guards(operand, needed=needed)
            case Or():
                for operand in node.operands:
                    found += self.guards(operand, needed=True)
            case Not():
                found += self.guards(node.operand, needed=True)
            case Compare():
                if zero_id(node):
                    return []
                if needed:
                    found.append(_comparable(node.op, value(node.left), value(node.right)))
                    found += _numbers(node.left) + _numbers(node.right)
            case Between():
                for part in (value(node.operand), value(node.low), value(node.high)):
                    found.append(_comparable("<", part, part))  # an order: each must be a number or NULL
                found += _numbers(node.operand) + _numbers(node.low) + _numbers(node.high)
            case In(equals=True):
                kinds = {isinstance(item.value, str) for item in node.items}
                if needed or len(kinds) > 1:  # of two kinds one is unlike
                    subject = _field(node.operand)
                    found += [_comparable("=", subject, Constant("" if text else 0)) for text in sorted(kinds)]
            case In() | Like():
                if needed:
                    found.append(_comparable("=", _field(node.operand), Constant("")))
            case _:
                pass
        return [guard for guard in found if guard != Always(True)]


#: By the type of the node; a chain of patterns would take twice as long.
_TESTS: dict[type, Callable[..., Test]] = {
    And: _Planner._and,
    Or: _Planner._or,
    Not: _Planner._not,
    Compare: _Planner._compare,
    Between: _Planner._between,
    In: _Planner._in,
    Like: _Planner._like,
    IsNull: _Planner._null,
    Identifier: _Planner._name,
    Literal: _Planner._literal,
}


def fields_of(test: Test) -> tuple[Field, ...]:
    """Every field of the plan once, in the order of the text."""
    found: dict[Field, None] = {}
    stack: list[object] = [test]
    while stack:
        part = stack.pop()
        match part:
            case All() | Any():
                stack.extend(reversed(part.tests))
            case Field():
                found[part] = None
            case Compute():
                stack.extend(reversed(part.operands))
            case Relation() | Comparable():
                stack.extend((part.right, part.left))
            case OneOf() | EqualsOne() | Matches() | Truth():
                stack.append(part.field)
            case Missing() | IsNumber():
                stack.append(part.value)
            case _:
                pass
    return tuple(found)


def effort_of(test: Test) -> tuple[int, int]:
    """The maximum cost of evaluating a plan: its tests and values, and searches through a text."""
    parts = searches = 0
    stack: list[object] = [test]
    while stack:
        part = stack.pop()
        parts += 1
        match part:
            case All() | Any():
                stack.extend(part.tests)
            case Compute():
                stack.extend(part.operands)
            case Relation() | Comparable():
                stack += part.left, part.right
            case Missing() | IsNumber():
                stack.append(part.value)
            case Matches():
                searches += part.pattern.searches
            case _:
                pass
    return parts, searches


# -- building values and tests, folding what is constant ----------------------------------------------------------


def value(node: Node) -> Value:
    """A value of the tree, folded where no field is in it."""
    if type(node) is Identifier:  # by far the most
        return Field(node.name, field_type(node.name))
    match node:
        case Literal():
            return Constant(node.value)
        case Unary():
            operand = value(node.operand)
            if isinstance(operand, Constant):
                return Constant((negate if node.op == "-" else promote)(operand.value))
            return Compute(node.op, (operand,))
        case Arithmetic():
            left, right = value(node.left), value(node.right)
            if isinstance(left, Constant) and isinstance(right, Constant):
                return Constant(OPERATIONS[node.op](left.value, right.value))
            return Compute(node.op, (left, right))
    raise AssertionError(node)  # the checker lets no condition stand for a value


def _field(node: Node) -> Field:
    assert isinstance(node, Identifier)  # the checker saw to it (D-06)
    return Field(node.name, field_type(node.name))


def _compared(op: str, left: PropertyValue, right: PropertyValue, strict: bool) -> bool | None:
    """Two constants compared; None is UNKNOWN."""
    if left is None or right is None:
        return None
    if strict and constant_letter(left) != constant_letter(right):
        return False
    return is_true(op, left, right)


def _is_never_true(op: str, left: Value, constant: PropertyValue) -> bool:
    """True if the types alone make the comparison FALSE, unless NULL is involved (D-04)."""
    is_number = not isinstance(constant, str | bool)
    if not is_number and op not in ("=", "<>"):
        return True  # the checker refuses it; strings and booleans have no order
    if isinstance(left, Compute):
        return not is_number
    return isinstance(left, Field) and (
        (left.type is FieldType.NUMBER and not is_number)
        or (left.type is FieldType.TEXT and not isinstance(constant, str))
    )


def _modes(op: str, other: PropertyValue) -> frozenset[str]:
    return frozenset(mode for mode in MODES.values() if _compared(op, mode, other, False))


def _one_of(subject: Field, values: frozenset[str], negated: bool, holds: bool) -> Test:
    if subject.type is FieldType.NUMBER:
        return Always(not holds)  # D-04: false on what is no string, negated or not
    if subject.type is FieldType.MODE:  # two values and never NULL: every condition is a set of them
        wanted = frozenset(mode for mode in MODES.values() if ((mode in values) is not negated) is holds)
        return Always(bool(wanted)) if len(wanted) != 1 else OneOf(subject, wanted, False, True)
    return OneOf(subject, values, negated, holds)


def _equals_one(subject: Field, constants: list[Anything], holds: bool) -> Test:
    texts: list[str] = [each for each in constants if isinstance(each, str)]
    if len(texts) == len(constants):
        return _one_of(subject, frozenset(texts), False, holds)
    exact: list[int] = [each for each in constants if isinstance(each, int)]
    approximate: list[float] = []
    if len(exact) < len(constants):
        approximate = [each for each in constants if isinstance(each, float)]
    return EqualsOne(subject, frozenset(texts), frozenset(exact), frozenset(approximate), holds)


def _missing(subject: Value, holds: bool) -> Test:
    if isinstance(subject, Constant):
        return Always((subject.value is None) is holds)
    if isinstance(subject, Field) and subject.type in (FieldType.NUMBER, FieldType.MODE):
        return Always(not holds)
    return Missing(subject, holds)


def _comparable(op: str, left: Value, right: Value) -> Test:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Always(comparable(op, left.value, right.value))
    return Comparable(op, left, right)


def _numbers(node: Node) -> list[Test]:
    """Every operand of arithmetic below `node` is a number."""
    found: list[Test] = []
    operands: tuple[Node, ...] = ()
    if isinstance(node, Arithmetic | Unary):
        operands = (node.operand,) if isinstance(node, Unary) else (node.left, node.right)
    for operand in operands:
        operand_value = value(operand)
        if isinstance(operand_value, Constant):
            if operand_value.value is None:
                found.append(Always(False))
        else:
            found.append(IsNumber(operand_value))
        found += _numbers(operand)
    return found


_T = TypeVar("_T", All, Any)
#: What a chain of tests takes up or leaves out.
_JOINING = frozenset({Always, All, Any})


def _all(tests: list[Test]) -> Test:
    return _joined(tests, All, absorbing=False)


def _any(tests: list[Test]) -> Test:
    return _joined(_merged_equalities(tests), Any, absorbing=True)


def _joined(tests: list[Test], kind: Callable[[tuple[Test, ...]], _T], absorbing: bool) -> Test:
    """Flatten, drop repetitions and what changes nothing; stop where one test decides."""
    if len(tests) == 2:
        one, other = tests
        if type(one) not in _JOINING and type(other) not in _JOINING and one != other:
            return kind((one, other))
    flat: dict[object, Test] = {}  # chains by identity: hashing them again at every level would cost their size
    for test in tests:
        parts = test.tests if isinstance(test, All | Any) and type(test) is kind else (test,)
        for part in parts:
            if isinstance(part, Always):
                if part.value is absorbing:
                    return part
            else:
                flat[id(part) if isinstance(part, All | Any) else part] = part
    if not flat:
        return Always(not absorbing)
    if len(flat) == 1:
        return next(iter(flat.values()))
    return kind(tuple(flat.values()))


def _merged_equalities(tests: list[Test]) -> list[Test]:
    """``a = 'x' OR a = 'y'`` is ``a IN ('x', 'y')``: one look-up instead of a chain."""
    groups: dict[Field, list[Test]] = {}
    count = 0
    for test in tests:
        if (subject := _equal_to_text(test)) is not None:
            groups.setdefault(subject, []).append(test)
            count += 1
    if count == len(groups):
        return tests
    merged: list[Test] = []
    done: set[Field] = set()
    for test in tests:
        subject = _equal_to_text(test)
        if subject is None or len(groups[subject]) == 1:
            merged.append(test)
        elif subject not in done:
            done.add(subject)
            values: set[str] = set()
            for member in groups[subject]:
                if isinstance(member, OneOf):
                    values |= member.values
                elif isinstance(member, Relation) and isinstance(member.right, Constant):
                    values.add(str(member.right.value))
            merged.append(OneOf(subject, frozenset(values), False, True))
    return merged


def _equal_to_text(test: Test) -> Field | None:
    """The field, if the test is TRUE exactly for certain texts of it."""
    if not isinstance(test, OneOf | Relation):
        return None
    match test:
        case OneOf(field=subject, negated=False, holds=True):
            return subject
        case Relation(op="=", left=Field() as subject, right=Constant(value=str()), holds=True):
            return subject
    return None


def constant_letter(constant: PropertyValue) -> str:
    """The JMS type of a constant as the dialect mqe sees it: exact is long, approximate is double (D-16)."""
    letter = letter_of(constant)
    return {"i": "l", "f": "d"}.get(letter, letter)
