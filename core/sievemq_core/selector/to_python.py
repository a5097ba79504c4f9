"""A plan as a Python function, built from syntax nodes and never from text.

What a user wrote gets into the code only as constants of ``ast.Constant``, so nothing can be injected and precedence
cannot go wrong. The code is made of plain expressions that cannot raise (D-14): ``type(v) in numbers`` stands in front
of every comparison that Python could refuse, and ``True == 1`` is false.

Each field is fetched once per call: where it is first needed, or at the top if several branches need it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeAlias, cast

from sievemq_core.message.values import INT_MAX, INT_MIN, Float, PropertyValue, letter_of
from sievemq_core.selector import arithmetic, plan, syntax
from sievemq_core.selector.like import LikePattern
from sievemq_core.selector.names import HEADERS, FieldType, Headers

Matcher = Callable[[Mapping[str, PropertyValue], Headers], bool]
"""``function(properties, headers)``: True only if the selector is TRUE."""

Hole: TypeAlias = tuple[str, str]
"""A name and the operator of the plan with which a constant is compared with it; ``IN`` for a list."""

_numbering = count(1)

#: Values of a list that the code has a copy of; a longer one it refers to.
_SHARED = 256

_EQ, _NOT_EQ, _IN, _NOT_IN, _IS, _IS_NOT = ast.Eq(), ast.NotEq(), ast.In(), ast.NotIn(), ast.Is(), ast.IsNot()
_OPERATORS: dict[str, ast.cmpop] = {
    "=": _EQ,
    "<>": _NOT_EQ,
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
}
_BINARY: dict[str, ast.operator] = {"+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "/": ast.Div()}
_ARITHMETIC = {"+": arithmetic.add, "-": arithmetic.subtract, "*": arithmetic.multiply, "/": arithmetic.divide}


def make_function(test: plan.Test) -> Matcher:
    """Compile a plan. Tracebacks and debuggers show the source of the function."""
    code = _Code({})
    return cast("Matcher", _executed("selector", code.function(test), code, test, {}))


def make_factory(test: plan.Test, holes: Mapping[Hole, str]) -> Callable[..., Matcher]:
    """Compile a plan for all selectors of its shape (shape.py).

    Args:
        holes: the comparisons whose constant is an argument, with its name ``p<n>``; n counts from 0.

    Returns:
        A function of the constants, in the order of their numbers, that makes the selector's function. All of these
        share their code.
    """
    code = _Code(holes)
    names = [f"p{number}" for number in range(len(set(holes.values())))]
    tree = syntax.factory("shape", names, code.function(test))
    return cast("Callable[..., Matcher]", _executed("shape", tree, code, test, holes))


def _executed(name: str, tree: ast.Module, code: _Code, test: plan.Test, holes: Mapping[Hole, str]) -> object:
    filename = f"sievemq-selector-{next(_numbering)}.py"
    namespace: dict[str, Any] = {**code.names, "__name__": "sievemq_selector", "__loader__": _Source(test, holes)}
    exec(compile(tree, filename, "exec"), namespace)  # noqa: S102  # built from nodes; user text is only ever a constant
    return namespace.pop(name)  # otherwise it would refer to itself, and wait for the garbage collector


def make_source(test: plan.Test, holes: Mapping[Hole, str] | None = None) -> str:
    """The Python text that the compiled function corresponds to: its head, and one line that does everything."""
    head, *body = ast.unparse(_Code(holes or {}).function(test)).splitlines()
    return f"{head}\n    {'; '.join(line.strip() for line in body)}\n"


class _Source:
    """The source for linecache, printed when a traceback or debugger needs it."""

    __slots__ = ("_holes", "_test")

    def __init__(self, test: plan.Test, holes: Mapping[Hole, str]) -> None:
        self._test = test
        self._holes = holes

    def get_source(self, _name: str) -> str:
        return make_source(self._test, self._holes)


# -- the code of a plan -------------------------------------------------------------------------------------------


class _Code:
    """Collects the parts of one function. ``names`` are its global names."""

    __slots__ = (
        "_bound", "_fetched", "_hoisted", "_holes", "_numeric", "_patterns", "_results", "_twice", "_variables",
        "names",
    )  # fmt: skip

    def __init__(self, holes: Mapping[Hole, str]) -> None:
        self.names: dict[str, object] = {}
        self._holes = holes
        self._numeric: set[str] = set()  # fields that certainly are numbers at this point of the evaluation
        self._variables: dict[str, str] = {}  # field -> local variable
        self._patterns: dict[LikePattern, str] = {}  # pattern -> global name
        self._results = 0  # computed values stored so far
        self._bound: set[str] = set()  # fields that certainly have been fetched at this point of the evaluation
        self._fetched: set[str] = set()  # fields with a fetch somewhere
        self._twice: set[str] = set()  # fields that would be fetched at a second place: they move to the top
        self._hoisted: list[plan.Field] = []

    def function(self, test: plan.Test) -> ast.Module:
        """``def selector(properties, headers): return …``"""
        expression = self._test(test)
        if self._twice:
            self._hoisted = [field for field in plan.fields_of(test) if field.name in self._twice]
            self._bound = set(self._twice)
            expression = self._test(test)
        body = [syntax.assign(self._variable(field), _fetch(field)) for field in self._hoisted]
        if not isinstance(test, plan.Always):
            # a third faster than the condition itself: CPython 3.11 has quick comparisons only in front of a jump
            expression = syntax.truth(expression)
        return syntax.function("selector", ["properties", "headers"], body, expression)

    # -- tests --------------------------------------------------------------------------------------------------

    # A field counts as fetched from its first use on. So each field that a method uses must get into the code, and a
    # value used twice must first appear where it is certain to be evaluated.

    def _test(self, test: plan.Test) -> ast.expr:
        return _TESTS[type(test)](self, test)

    def _always(self, test: plan.Always) -> ast.expr:
        return syntax.constant(test.value)

    def _missing(self, test: plan.Missing) -> ast.expr:
        return syntax.is_none(self._value(test.value), test.holds)

    def _truth(self, test: plan.Truth) -> ast.expr:
        return syntax.compare(self._value(test.field), _IS, syntax.constant(test.holds))

    def _comparable(self, test: plan.Comparable) -> ast.expr:
        operands = syntax.constant(test.op), self._value(test.left), self._value(test.right)
        return syntax.call(self._global("comparable", arithmetic.comparable), *operands)

    def _number_test(self, test: plan.IsNumber) -> ast.expr:
        return self._is_number(self._value(test.value))

    def _chain(self, test: plan.All | plan.Any) -> ast.expr:
        """The parts are evaluated in order, so a later one may rely on fields that earlier ones fetched. After the
        chain only the fields of its first part are certain to be fetched."""
        parts: list[ast.expr] = []
        certain: set[str] = set()
        proved: set[str] = set()
        for part in test.tests:
            parts.append(self._test(part))
            if len(parts) == 1:
                certain = set(self._bound)
            if isinstance(test, plan.All) and (name := _proves_number(part)) is not None and name not in self._numeric:
                proved.add(name)
                self._numeric.add(name)
        self._numeric -= proved
        self._bound = certain
        return syntax.both(*parts) if isinstance(test, plan.All) else syntax.either(*parts)

    def _relation(self, test: plan.Relation) -> ast.expr:
        if test.strict:
            return self._strict(test)
        if isinstance(test.right, plan.Constant) and not isinstance(test.left, plan.Constant):
            return self._against_constant(test.op, test.left, test.right.value, test.holds)
        decide = arithmetic.is_true if test.holds else arithmetic.is_false
        operands = self._value(test.left), self._value(test.right)
        return syntax.call(self._global(decide.__name__, decide), syntax.constant(test.op), *operands)

    def _against_constant(self, op: str, left: plan.Value, constant: PropertyValue, holds: bool) -> ast.expr:
        """``left op constant``, by the cheapest code that is correct for every value that `left` can have."""
        kind = left.type if isinstance(left, plan.Field) else None
        if isinstance(constant, str | bool):
            return self._against_plain(op, left, constant, holds)
        number = cast("int | float", constant)
        hole = self._hole(left, op)
        plain = hole or syntax.constant(float(number) if isinstance(number, float) else int(number))
        direct = _is_direct(number, exact_only=kind is FieldType.NUMBER)
        operator = _OPERATORS[op]
        if kind is FieldType.NUMBER and direct:
            comparison = syntax.compare(self._value(left), operator, plain)
            return comparison if holds else syntax.negated(comparison)
        if not direct:
            decide = arithmetic.is_true if holds else arithmetic.is_false
            return self._indirect(op, left, number, decide, hole)
        first, again = self._used_twice(left)
        if op == "=" and number not in (0, 1):  # no type test: only an equal number equals a number
            if holds:
                return syntax.compare(first, operator, plain)
            return syntax.both(syntax.is_none(first, False), syntax.compare(again, _NOT_EQ, plain))
        if op == "=" and holds:
            no_bool = syntax.compare(again, _IS_NOT, syntax.constant(number == 1))
            return syntax.both(syntax.compare(first, operator, plain), no_bool)
        if holds:
            if isinstance(left, plan.Field) and left.name in self._numeric:
                return syntax.compare(first, operator, plain)
            return syntax.both(self._is_number(first), syntax.compare(again, operator, plain))
        definite = syntax.both(self._is_number(again), syntax.compare(again, operator, plain))
        return syntax.both(syntax.is_none(first, False), syntax.negated(definite))

    def _against_plain(self, op: str, left: plan.Value, constant: str | bool, holds: bool) -> ast.expr:
        """A string or boolean constant; the plan holds no other operators for them than ``=`` and ``<>``."""
        first, again = self._used_twice(left)
        if isinstance(constant, str):
            equal, unequal, kind = _EQ, _NOT_EQ, "str"
        else:
            equal, unequal, kind = _IS, _IS_NOT, "bool"  # type: ignore[assignment]
        other = self._hole(left, op) or syntax.constant(constant)
        if op == "=":
            if holds:
                return syntax.compare(first, equal, other)
            return syntax.both(syntax.is_none(first, False), syntax.compare(again, unequal, other))
        if holds:
            return syntax.both(syntax.type_is(first, kind), syntax.compare(again, unequal, other))
        unlike = syntax.negated(syntax.type_is(again, kind))
        return syntax.both(syntax.is_none(first, False), syntax.either(unlike, syntax.compare(again, equal, other)))

    def _indirect(
        self,
        op: str,
        left: plan.Value,
        number: int | float,
        decide: Callable[[str, PropertyValue, PropertyValue], bool],
        hole: ast.expr | None,
    ) -> ast.expr:
        """Python's comparison would not be Java's for every type of number: fast for those it is right for."""
        function = self._global(decide.__name__, decide)
        whole = hole or self._number(number)
        if decide is arithmetic.is_true and isinstance(left, plan.Field) and isinstance(number, int):
            # an int against an int is exact; other types take the slow path
            first, again = self._used_twice(left)
            return syntax.if_else(
                syntax.type_is(first, "int"),
                syntax.compare(again, _OPERATORS[op], hole or syntax.constant(int(number))),
                syntax.call(function, syntax.constant(op), again, whole),
            )
        return syntax.call(function, syntax.constant(op), self._value(left), whole)

    def _strict(self, test: plan.Relation) -> ast.expr:
        """D-16: equal, and of one JMS type."""
        left, right = self._value(test.left), self._value(test.right)
        if isinstance(test.right, plan.Constant):
            number = test.right.value
            letter = plan.constant_letter(number)
            return syntax.call(
                self._global("strictly_equal_constant", _strictly_equal_constant),
                left,
                self._number(number) if isinstance(number, int | float) else right,
                syntax.constant(letter),
            )
        return syntax.call(self._global("strictly_equal", _strictly_equal), left, right)

    def _one_of(self, test: plan.OneOf) -> ast.expr:
        first, again = self._used_twice(test.field)
        single = len(test.values) == 1
        inside: tuple[ast.cmpop, ast.cmpop] = (_EQ, _NOT_EQ) if single else (_IN, _NOT_IN)
        if len(test.values) > _SHARED:
            values: ast.expr = self._global(f"values_{len(self.names)}", test.values)
        else:
            values = self._hole(test.field, "IN") or syntax.constant(next(iter(test.values)) if single else test.values)
        if test.holds and not test.negated:
            return syntax.compare(first, inside[0], values)
        if test.holds:
            return syntax.both(syntax.type_is(first, "str"), syntax.compare(again, inside[1], values))
        if not test.negated:
            return syntax.both(syntax.is_none(first, False), syntax.compare(again, inside[1], values))
        unlike = syntax.negated(syntax.type_is(again, "str"))
        return syntax.both(
            syntax.is_none(first, False), syntax.either(unlike, syntax.compare(again, inside[0], values))
        )

    def _equals_one(self, test: plan.EqualsOne) -> ast.expr:
        first, again = self._used_twice(test.field)
        equals = self._global(f"equals_{len(self.names)}", _EqualityTest(test).matches)
        found = syntax.call(equals, again)
        return syntax.both(syntax.is_none(first, False), found if test.holds else syntax.negated(found))

    def _matches(self, test: plan.Matches) -> ast.expr:
        first, again = self._used_twice(test.field)
        is_text = syntax.type_is(first, "str")
        match = self._pattern(test.pattern, again)
        if test.holds:
            if match is None:  # '%' alone
                return is_text
            return syntax.both(is_text, syntax.negated(match) if test.negated else match)
        # FALSE: not NULL, and not TRUE; for a value that is no string the operation is false, negated or not (D-04)
        present = syntax.is_none(first, False)
        unlike = syntax.negated(syntax.type_is(again, "str"))
        if match is None:
            return syntax.both(present, unlike)
        return syntax.both(present, syntax.either(unlike, match if test.negated else syntax.negated(match)))

    def _pattern(self, pattern: LikePattern, text: ast.expr) -> ast.expr | None:
        """Code that matches `text`, which is a str; None if every text matches (a plan has no NOT LIKE '%')."""
        if pattern.exact is not None:
            return syntax.compare(text, _EQ, syntax.constant(pattern.exact))
        plain = [segment.plain for segment in pattern.segments]
        match plain:
            case ["", ""]:
                return None
            case [str() as head, ""]:
                return syntax.method(text, "startswith", syntax.constant(head))
            case ["", str() as tail]:
                return syntax.method(text, "endswith", syntax.constant(tail))
            case ["", str() as part, ""]:
                return syntax.compare(syntax.constant(part), _IN, text)
            case [str() as head, str() as tail]:  # the length first: 'aba' must not match 'ab%ba'
                size = syntax.call(syntax.load("len"), text)
                return syntax.both(
                    syntax.compare(size, ast.GtE(), syntax.constant(pattern.minimum)),
                    syntax.method(text, "startswith", syntax.constant(head)),
                    syntax.method(text, "endswith", syntax.constant(tail)),
                )
        name = self._patterns.setdefault(pattern, f"pattern{len(self._patterns)}")
        return syntax.call(self._global(name, pattern.matches), text)

    # -- values -------------------------------------------------------------------------------------------------

    def _value(self, value: plan.Value) -> ast.expr:
        if isinstance(value, plan.Field):  # by far the most
            return self._field(value)
        if isinstance(value, plan.Constant):
            if isinstance(value.value, int | float) and not isinstance(value.value, bool):
                return self._number(value.value)
            return syntax.constant(value.value)
        if (quick := self._with_constant(value)) is not None:
            return quick
        operands = [self._value(operand) for operand in value.operands]
        if len(operands) == 1:
            function: Callable[..., object] = arithmetic.negate if value.op == "-" else arithmetic.promote
        else:
            function = _ARITHMETIC[value.op]
        return syntax.call(self._global(function.__name__, function), *operands)

    def _with_constant(self, value: plan.Compute) -> ast.expr | None:
        """A field and a constant, by Python's own operator where that computes as Java does: in double precision, and
        for ints whose result cannot wrap. None if there is no such pair."""
        match value.operands:
            case (plan.Field() as field, plan.Constant(value=number)):
                swapped = False
            case (plan.Constant(value=number), plan.Field() as field) if value.op in "+*":
                swapped = True
            case _:
                return None
        operator = _BINARY[value.op]
        if type(number) is float:
            if value.op == "/" and number == 0:
                return None
            first, again = self._used_twice(field)
            sides = (syntax.constant(number), again) if swapped else (again, syntax.constant(number))
            return syntax.if_else(
                self._is_number(first), syntax.binary(sides[0], operator, sides[1]), syntax.constant(None)
            )
        if type(number) is not int or value.op == "/" or not INT_MIN < number <= INT_MAX:
            return None
        most = INT_MAX // abs(number) if value.op == "*" and number else INT_MAX - abs(number)
        first, again = self._used_twice(field)
        constant = syntax.constant(number)
        left, right = (constant, again) if swapped else (again, constant)
        plain = syntax.either(
            syntax.both(syntax.type_is(first, "int"), syntax.within(-most, again, most)), syntax.type_is(again, "float")
        )
        function = _ARITHMETIC[value.op]
        slow = syntax.call(self._global(function.__name__, function), left, right)
        return syntax.if_else(plain, syntax.binary(left, operator, right), slow)

    def _field(self, field: plan.Field) -> ast.expr:
        """The field's variable; where it is not yet certain to be set, fetched into it."""
        variable = self._variable(field)
        if field.name in self._bound:
            return syntax.load(variable)
        if field.name in self._fetched:
            self._twice.add(field.name)
        self._fetched.add(field.name)
        self._bound.add(field.name)
        return syntax.named(variable, _fetch(field))

    def _used_twice(self, value: plan.Value) -> tuple[ast.expr, ast.expr]:
        """The value, and the same again for places that are evaluated later, without computing it again."""
        if isinstance(value, plan.Field):
            return self._field(value), syntax.load(self._variable(value))
        name = f"r{self._results}"
        self._results += 1
        return syntax.named(name, self._value(value)), syntax.load(name)

    def _variable(self, field: plan.Field) -> str:
        return self._variables.setdefault(field.name, f"v{len(self._variables)}")

    def _number(self, number: PropertyValue) -> ast.expr:
        """A number as a constant; wrappers that carry a JMS type become globals, since code can only contain plain
        constants."""
        if type(number) in (int, float):
            return syntax.constant(number)
        return self._global(f"{letter_of(number)}_{len(self.names)}", number)

    def _hole(self, left: plan.Value, op: str) -> ast.expr | None:
        """The argument that takes the place of the constant, if the shape has one there."""
        name = self._holes.get((left.name, op)) if isinstance(left, plan.Field) else None
        return None if name is None else syntax.load(name)

    def _is_number(self, subject: ast.expr) -> ast.expr:
        return syntax.compare(syntax.call(syntax.load("type"), subject), _IN, self._numbers())

    def _numbers(self) -> ast.expr:
        return self._global("numbers", arithmetic.NUMBERS)

    def _global(self, name: str, value: object) -> ast.expr:
        self.names[name] = value
        return syntax.load(name)


#: By the type of the test; a chain of patterns would take twice as long.
_TESTS: dict[type, Callable[..., ast.expr]] = {
    plan.Relation: _Code._relation,
    plan.All: _Code._chain,
    plan.Any: _Code._chain,
    plan.Always: _Code._always,
    plan.OneOf: _Code._one_of,
    plan.EqualsOne: _Code._equals_one,
    plan.Matches: _Code._matches,
    plan.Missing: _Code._missing,
    plan.Truth: _Code._truth,
    plan.Comparable: _Code._comparable,
    plan.IsNumber: _Code._number_test,
}


def _proves_number(test: plan.Test) -> str | None:
    """The field that is a number if the test holds."""
    if type(test) is not plan.Relation or not test.holds or test.strict:
        return None
    left, right = test.left, test.right
    if type(left) is plan.Field and type(right) is plan.Constant:
        constant = right.value
        return left.name if isinstance(constant, int | float) and not isinstance(constant, bool) else None
    return None


def _fetch(field: plan.Field) -> ast.expr:
    if field.type is FieldType.PROPERTY:
        return syntax.method(syntax.load("properties"), "get", syntax.constant(field.name))
    header = syntax.item(syntax.load("headers"), HEADERS[field.name][0])
    if field.type is FieldType.MODE:
        persistent = syntax.compare(header, _EQ, syntax.constant(2))
        return syntax.if_else(persistent, syntax.constant("PERSISTENT"), syntax.constant("NON_PERSISTENT"))
    if field.name == "JMSCorrelationID":  # one set as bytes has no text: NULL
        named = syntax.named("c", header)
        return syntax.if_else(syntax.type_is(named, "str"), syntax.load("c"), syntax.constant(None))
    return header


def _is_direct(number: int | float, *, exact_only: bool) -> bool:
    """True if Python's exact comparison with this constant equals Java's promoted one for every type of the other side.

    A whole number that a float can hold is compared exactly whatever it meets. An approximate one below 2^53 (a float:
    2^24) is too small for the rounding of a long (an int) to matter. NaN and the infinities are beyond rounding.

    Args:
        exact_only: the other side is an int or long.
    """
    if isinstance(number, int):
        return exact_only or -(2**24) <= number <= 2**24 or arithmetic.to_float(number) == number
    if number != number or abs(number) == float("inf"):
        return True
    return abs(number) < (2**24 if type(number) is Float else 2**53)


class _EqualityTest:
    """Whether a value equals one of many constants, in one look-up: as Java compares it with each of them (D-01)."""

    __slots__ = ("_approximate", "_doubles", "_exact", "_floats", "_texts")

    def __init__(self, test: plan.EqualsOne) -> None:
        self._texts = test.texts
        self._exact = test.exact
        self._approximate = test.approximate
        self._doubles = test.doubles
        self._floats = test.floats

    def matches(self, value: PropertyValue) -> bool:
        """True if it does; the value is not NULL."""
        if isinstance(value, str):
            return value in self._texts
        if isinstance(value, bool):
            return False
        if isinstance(value, float):
            return value in (self._floats if type(value) is Float else self._doubles)
        return value in self._exact or (bool(self._approximate) and float(cast("int", value)) in self._approximate)


def _strictly_equal_constant(value: PropertyValue, constant: PropertyValue, letter: str) -> bool:
    return value is not None and letter_of(value) == letter and value == constant


def _strictly_equal(left: PropertyValue, right: PropertyValue) -> bool:
    return left is not None and right is not None and letter_of(left) == letter_of(right) and left == right
