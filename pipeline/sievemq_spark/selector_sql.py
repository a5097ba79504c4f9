"""A checked selector as Spark SQL text: what the broker answers for a message, for a row of it (docs/pipeline.md).

A message's row has its properties in a map of typed values (schema.py), so that an int, a long, a float and a String of
the same look stay apart. Every operation becomes a CASE over the types that its operands can have:

    numbers     Java's promotion and wrap-around (D-01, D-02); Spark's own + would raise, its / would give a double
    NaN         is unequal to everything; Spark has it equal to itself and greater than all
    unlike      FALSE (D-04), or in a dialect that says so the whole selector is (D-15, D-16)
    NULL        UNKNOWN (D-05): Spark's AND, OR and NOT are three-valued as well

Nothing in the text can raise an error for any row, whether ANSI mode is on or off. Values that are computed are bound
to a variable (`_let`), so that the text grows with the selector and not with its depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sievemq_core.message.values import INT_MAX, INT_MIN, PropertyValue, letter_of
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.arithmetic import NUMBERS, to_float
from sievemq_core.selector.ast import (
    And,
    Arithmetic,
    Between,
    Compare,
    Identifier,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
    Unary,
    walk,
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.evaluate import strict_letter, value_of, zero_id
from sievemq_core.selector.like import LikePattern, parse_pattern
from sievemq_core.selector.names import HEADERS, FieldType
from sievemq_spark.columns import TYPES

__all__ = ["quote_name", "quote_text", "selector_sql"]

#: Header field -> column of a message's row.
HEADER_COLUMNS: Final = {
    "JMSMessageID": "message_id",
    "JMSCorrelationID": "correlation_id",
    "JMSType": "type",
    "JMSTimestamp": "timestamp",
    "JMSPriority": "priority",
    "JMSDeliveryMode": "delivery_mode",
}

# Java's numeric types in the order of promotion; the greater of two is the type of the result.
INT, LONG, FLOAT, DOUBLE = 1, 2, 3, 4
EXACT: Final = frozenset({INT, LONG})
FATAL: Final = 9
"""Marks a value or a result that makes the whole selector false."""

_NUMERIC: Final = {"b": INT, "h": INT, "i": INT, "l": LONG, "f": FLOAT, "d": DOUBLE}
_ALL: Final = frozenset({INT, LONG, FLOAT, DOUBLE})
_NO_LONG: Final = "CAST(NULL AS BIGINT)"
_NO_DOUBLE: Final = "CAST(NULL AS DOUBLE)"
_FLIPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def selector_sql(selector: CompiledSelector, columns: Mapping[str, str] | None = None) -> str:
    """The selector as a boolean expression of Spark SQL over a message's row; NULL is UNKNOWN.

    Args:
        selector: a checked selector.
        columns: properties that are read from a column of their own, name -> Spark type (columns.py); all others are
            read from the map ``properties``.
    """
    compiler = _Compiler(selector.dialect, columns or {})
    truth = compiler.condition(selector.ast)
    if not compiler.fatal:
        return truth
    return f"CASE WHEN {' OR '.join(compiler.fatal)} THEN FALSE ELSE {truth} END"


def quote_text(text: str) -> str:
    """A string literal that means the same whatever Spark's settings for literals are."""
    if text.isascii() and text.isprintable() and "'" not in text and "\\" not in text:
        return f"'{text}'"
    return f"CAST(X'{text.encode('utf-8', 'surrogatepass').hex()}' AS STRING)"


def quote_name(name: str) -> str:
    """A column's name in backticks."""
    return f"`{name.replace('`', '``')}`"


def _double(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
    if math.copysign(1.0, value) < 0 and value == 0:
        return "CAST('-0.0' AS DOUBLE)"
    return f"{value!r}D"


def _long(value: int) -> str:
    return f"CAST({value}L AS BIGINT)" if value < 0 else f"{value}L"


def _any(*conditions: str | None) -> str | None:
    """OR of conditions that stand in a WHEN; None is one that never holds."""
    found = [condition for condition in conditions if condition is not None]
    if "TRUE" in found:
        return "TRUE"
    return " OR ".join(found) if found else None


def _all(*conditions: str | None) -> str | None:
    """AND of conditions that stand in a WHEN."""
    if None in conditions:
        return None
    found = [f"({condition})" for condition in conditions if condition != "TRUE"]
    return " AND ".join(found) if found else "TRUE"


def _case(branches: list[tuple[str | None, str]], otherwise: str) -> str:
    """CASE over the branches that can be reached."""
    whens = []
    for condition, result in branches:
        if condition is None:
            continue
        if condition == "TRUE":
            otherwise = result
            break
        whens.append(f"WHEN {condition} THEN {result}")
    return f"CASE {' '.join(whens)} ELSE {otherwise} END" if whens else f"({otherwise})"


@dataclass(frozen=True, slots=True)
class _Value:
    """What an operation sees of an operand: SQL for each type that it can have. None: it never has.

    Attributes:
        kinds: numeric types that it can be.
        kind: INT … DOUBLE, NULL where it is no number, FATAL.
        exact, double, numeric: conditions: it is an int or long, a double, any number.
        long, real: its value as BIGINT where exact, as DOUBLE (a float widened) where not; NULL elsewhere.
        text, boolean: its value as STRING, as BOOLEAN; NULL elsewhere.
        null: condition: it is NULL.
        fatal: condition: it makes the whole selector false.
        letter: the JMS type as a dialect with strict numbers sees it; a constant in quotes.
        constant: its value if the text shows it.
    """

    kinds: frozenset[int] = frozenset()
    kind: str = "CAST(NULL AS INT)"
    exact: str | None = None
    double: str | None = None
    numeric: str | None = None
    long: str = _NO_LONG
    real: str = _NO_DOUBLE
    text: str | None = None
    boolean: str | None = None
    null: str | None = None
    fatal: str | None = None
    letter: str = "NULL"
    constant: PropertyValue = None

    @property
    def other(self) -> str | None:
        """Condition: it has a value which is no number."""
        return _any(self.has(self.text), self.has(self.boolean))

    def has(self, sql: str | None) -> str | None:
        """Condition: what `sql` (text or boolean) reads is there."""
        if sql is None:
            return None
        return "TRUE" if self.null is None else f"{sql} IS NOT NULL"

    @property
    def as_double(self) -> str:
        """A number as a double."""
        if type(self.constant) in NUMBERS:
            return _double(float(self.constant))  # type: ignore[arg-type]  # a number, as just tested
        return self._floating(f"CAST({self.long} AS DOUBLE)")

    @property
    def as_single(self) -> str:
        """A number that is no double as a float, widened again."""
        if type(self.constant) in NUMBERS:
            return _double(to_float(self.constant))  # type: ignore[arg-type]
        # + 0: without it Spark's optimizer takes long -> float -> double for long -> double
        return self._floating(f"CAST(CAST({self.long} AS FLOAT) + CAST(0 AS FLOAT) AS DOUBLE)")

    def _floating(self, from_long: str) -> str:
        if not self.kinds & EXACT:
            return self.real
        return from_long if self.kinds <= EXACT else f"coalesce({self.real}, {from_long})"


def _constant(value: PropertyValue, letter: str) -> _Value:
    if value is None:
        return _Value(null="TRUE")
    if isinstance(value, bool):
        return _Value(boolean=str(value).upper(), letter=f"'{letter}'", constant=value)
    if isinstance(value, str):
        return _Value(text=quote_text(value), letter=f"'{letter}'", constant=value)
    kind = _NUMERIC[letter_of(value)]
    exact = kind in EXACT
    return _Value(
        kinds=frozenset({kind}),
        kind=str(kind),
        exact="TRUE" if exact else None,
        double="TRUE" if kind == DOUBLE else None,
        numeric="TRUE",
        long=_long(int(value)) if exact else _NO_LONG,
        real=_NO_DOUBLE if exact else _double(float(value)),
        letter=f"'{letter}'",
        constant=value,
    )


def _property(name: str) -> _Value:
    """A property out of the map of typed values."""
    item = f"properties[{quote_text(name)}]"
    return _Value(
        kinds=_ALL,
        kind=f"CASE WHEN {item}.t IN ('b', 'h', 'i') THEN 1 WHEN {item}.t = 'l' THEN 2 WHEN {item}.t = 'f' THEN 3 "
        f"WHEN {item}.t = 'd' THEN 4 END",
        exact=f"{item}.l IS NOT NULL",
        double=f"{item}.t = 'd'",
        numeric=f"{item}.l IS NOT NULL OR {item}.d IS NOT NULL",
        long=f"{item}.l",
        real=f"{item}.d",
        text=f"{item}.s",
        boolean=f"{item}.b",
        null=f"{item}.t IS NULL OR ({item}.t = 's' AND {item}.s IS NULL)",
        letter=f"{item}.t",
    )


def _column(column: str, kind: str) -> _Value:
    """A value out of a column of one type."""
    letter = TYPES[kind]
    there, null = f"{column} IS NOT NULL", f"{column} IS NULL"
    if letter == "s":
        return _Value(text=column, null=null, letter="'s'")
    if letter == "z":
        return _Value(boolean=column, null=null, letter="'z'")
    number = _NUMERIC[letter]
    exact = number in EXACT
    return _Value(
        kinds=frozenset({number}),
        kind=f"CASE WHEN {there} THEN {number} END",
        exact=there if exact else None,
        double=there if number == DOUBLE else None,
        numeric=there,
        long=f"CAST({column} AS BIGINT)" if exact else _NO_LONG,
        real=_NO_DOUBLE if exact else f"CAST({column} AS DOUBLE)",
        null=null,
        letter=f"'{letter}'",
    )


def _header(name: str) -> _Value:
    column = HEADER_COLUMNS[name]
    match HEADERS[name][1]:
        case FieldType.MODE:  # D-13
            return _Value(
                text=f"CASE WHEN {column} = 2 THEN 'PERSISTENT' ELSE 'NON_PERSISTENT' END",
                letter="'s'",
            )
        case FieldType.TEXT:
            return _column(column, "string")
        case _:  # a number of the type that its value needs, as for a plain int among the properties
            value = f"CAST({column} AS BIGINT)"
            return _Value(
                kinds=EXACT,
                kind=f"CASE WHEN {value} BETWEEN {INT_MIN} AND {INT_MAX} THEN 1 WHEN {value} IS NOT NULL THEN 2 END",
                exact=f"{value} IS NOT NULL",
                numeric=f"{value} IS NOT NULL",
                long=value,
                null=f"{value} IS NULL",
            )


def _bound(variable: str, kinds: frozenset[int], can_be_fatal: bool) -> _Value:
    """A computed number in a variable: struct<k, l, d>."""
    return _Value(
        kinds=kinds,
        kind=f"{variable}.k",
        exact=f"{variable}.l IS NOT NULL" if kinds & EXACT else None,
        double=f"{variable}.k = {DOUBLE}" if DOUBLE in kinds else None,
        numeric=f"{variable}.k <= {DOUBLE}",
        long=f"{variable}.l",
        real=f"{variable}.d",
        null=f"{variable}.k IS NULL",
        fatal=f"{variable}.k = {FATAL}" if can_be_fatal else None,
    )


def _let(variable: str, value: str, body: str) -> str:
    """`body` with a variable for `value`, which is evaluated once."""
    return f"transform(array({value}), {variable} -> {body})[0]"


@dataclass(slots=True)
class _Compiler:
    dialect: Dialect
    columns: Mapping[str, str]
    fatal: list[str] = field(default_factory=list)  # conditions under which the whole selector is false
    _variables: int = 0

    # -- conditions ---------------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> str:
        match node:
            case And():
                return f"({' AND '.join(self.condition(operand) for operand in node.operands)})"
            case Or():
                return f"({' OR '.join(self.condition(operand) for operand in node.operands)})"
            case Not():
                return f"(NOT {self.condition(node.operand)})"
            case Compare():
                if self.dialect.zero_id_matches_any and zero_id(node):
                    return "TRUE"  # D-15
                return self._decide(
                    self._with(
                        (node.left, node.right), lambda values: self._compare(node.op, node.left, node.right, *values)
                    )
                )
            case Between():
                return self._decide(
                    self._with((node.operand, node.low, node.high), lambda values: self._between(node, *values))
                )
            case In():
                items = ", ".join(quote_text(str(item.value)) for item in node.items)
                return self._decide(self._about_text(node.operand, f"IN ({items})", node.negated))
            case Like():
                escape = None if node.escape is None else str(node.escape.value)
                pattern = parse_pattern(str(node.pattern.value), escape)
                return self._decide(self._about_text(node.operand, _like(pattern), node.negated))
            case IsNull():
                null = self._leaf(node.operand).null
                if null is None:
                    return "TRUE" if node.negated else "FALSE"
                return f"(NOT ({null}))" if node.negated else f"({null})"
            case _:
                value = self._leaf(node)  # D-07: what is no boolean is UNKNOWN as a condition
                return f"{value.boolean}" if value.boolean is not None else "CAST(NULL AS BOOLEAN)"

    @property
    def _codes(self) -> bool:
        """True if an operation can make the whole selector false; then its result is 1, 0, NULL or FATAL."""
        return self.dialect.unlike_is_fatal or self.dialect.null_arithmetic_is_fatal

    def _truth(self, sql: str) -> str:
        return f"CASE WHEN {sql} THEN 1 ELSE 0 END" if self._codes else sql

    def _result(self, value: bool) -> str:
        return str(int(value)) if self._codes else str(value).upper()

    @property
    def _unknown(self) -> str:
        return "CAST(NULL AS INT)" if self._codes else "CAST(NULL AS BOOLEAN)"

    @property
    def _unlike(self) -> str:
        """D-04, D-15, D-16."""
        return str(FATAL) if self.dialect.unlike_is_fatal else self._result(False)

    def _decide(self, result: str) -> str:
        """The truth value of an operation's result."""
        if not self._codes:
            return result
        self.fatal.append(f"({result}) <=> {FATAL}")
        return f"(({result}) = 1)"

    def _about_text(self, operand: Node, test: str, negated: bool) -> str:
        value = self._leaf(operand)
        null = (value.null, self._unknown)
        if value.text is None:
            return _case([null], self._unlike)
        truth = self._truth(f"{'NOT ' if negated else ''}({value.text} {test})")
        return _case([(value.has(value.text), truth), null], self._unlike)

    def _between(self, node: Between, operand: _Value, low: _Value, high: _Value) -> str:
        """D-05: ``x >= low AND x <= high``; negated ``x < low OR x > high``."""
        ops = ("<", ">") if node.negated else (">=", "<=")
        first = self._compare(ops[0], node.operand, node.low, operand, low)
        second = self._compare(ops[1], node.operand, node.high, operand, high)
        if not self._codes:
            return f"({first} {'OR' if node.negated else 'AND'} {second})"
        wins = 1 if node.negated else 0
        both = (
            f"CASE WHEN ({first}) = {FATAL} OR ({second}) = {FATAL} THEN {FATAL} "
            f"WHEN ({first}) = {wins} OR ({second}) = {wins} THEN {wins} "
            f"WHEN ({first}) IS NULL OR ({second}) IS NULL THEN NULL ELSE {1 - wins} END"
        )
        if not self.dialect.null_between_is_false:
            return both
        values = (operand, low, high)
        with_null = _case([(_any(*(value.other for value in values)), str(FATAL))], self._result(node.negated))
        return _case(
            [
                (_any(*(value.fatal for value in values)), str(FATAL)),
                (_any(*(value.null for value in values)), with_null),
            ],
            both,
        )

    def _compare(self, op: str, left_node: Node, right_node: Node, left: _Value, right: _Value) -> str:
        branches: list[tuple[str | None, str]] = [(_any(left.fatal, right.fatal), str(FATAL))]
        if self.dialect.strict_numbers and not self._beside_header(left_node, right_node):
            differ = "TRUE" if left.letter == "NULL" or right.letter == "NULL" else f"{left.letter} <> {right.letter}"
            branches.append((_all(left.numeric, right.numeric, differ), self._unlike))
        branches.append((_all(left.exact, right.exact), self._truth(f"{left.long} {op} {right.long}")))
        doubles = _all(left.numeric, right.numeric, _any(left.double, right.double))
        singles = None
        if (FLOAT in left.kinds and right.kinds) or (FLOAT in right.kinds and left.kinds):
            singles = _all(left.numeric, right.numeric)
        if doubles is not None:
            # a constant that is the same as a float and as a double needs one comparison for both
            if singles is not None and self._same_either_way(left, right):
                doubles, singles = singles, None
            branches.append((doubles, self._truth(_compare_floating(op, left, right, single=False))))
        branches.append((singles, self._truth(_compare_floating(op, left, right, single=True))))
        if op in ("=", "<>"):
            for one, other in ((left.text, right.text), (left.boolean, right.boolean)):
                branches.append((_all(left.has(one), right.has(other)), self._truth(f"{one} {op} {other}")))
        branches.append((_any(left.null, right.null), self._unknown))
        return _case(branches, self._unlike)

    @staticmethod
    def _beside_header(left: Node, right: Node) -> bool:
        return any(isinstance(node, Identifier) and node.name in HEADERS for node in (left, right))

    @staticmethod
    def _same_either_way(left: _Value, right: _Value) -> bool:
        for value in (left, right):
            if type(value.constant) in NUMBERS and FLOAT not in value.kinds:
                number: int | float = value.constant  # type: ignore[assignment]  # as just tested
                return float(number) == to_float(number)
        return False

    # -- values -------------------------------------------------------------------------------------------------------

    def _with(self, nodes: tuple[Node, ...], body: Callable[[list[_Value]], str]) -> str:
        """`body` with the values of some nodes; those that are computed are bound to variables."""
        values: list[_Value] = []
        bindings: list[tuple[str, str]] = []
        for node in nodes:
            if self._is_computed(node):
                self._variables += 1
                variable = f"_number{self._variables}"
                sql, kinds = self._number(node)
                bindings.append((variable, sql))
                values.append(_bound(variable, kinds, self.dialect.null_arithmetic_is_fatal))
            else:
                values.append(self._leaf(node))
        result = body(values)
        for variable, sql in reversed(bindings):
            result = _let(variable, sql, result)
        return result

    @staticmethod
    def _is_computed(node: Node) -> bool:
        return isinstance(node, Unary | Arithmetic) and any(isinstance(part, Identifier) for part in walk(node))

    def _leaf(self, node: Node) -> _Value:
        if isinstance(node, Identifier):
            if node.name in HEADERS:
                return _header(node.name)
            if node.name in self.columns:
                return _column(quote_name(node.name), self.columns[node.name])
            return _property(node.name)
        value = value_of(node, self.dialect, {}, ())  # a constant, or computed from constants alone
        if value is None and self.dialect.null_arithmetic_is_fatal and self._gives_up(node):
            return _Value(fatal="TRUE")
        return _constant(value, strict_letter(node, value) or "s")

    def _gives_up(self, node: Node) -> bool:
        """True if arithmetic on constants meets a NULL, which only a division by zero inside of it can make (D-15)."""
        operands = (
            (node.left, node.right)
            if isinstance(node, Arithmetic)
            else (node.operand,)
            if isinstance(node, Unary)
            else ()
        )
        return any(value_of(operand, self.dialect, {}, ()) is None for operand in operands)

    def _number(self, node: Node) -> tuple[str, frozenset[int]]:
        """Arithmetic as struct<k, l, d>, and the types that its result can have."""
        kinds: list[frozenset[int]] = []

        def unary(values: list[_Value]) -> str:
            assert isinstance(node, Unary)
            kinds.append(values[0].kinds)
            return self._struct(
                values, lambda kind: _negated(kind, values[0]) if node.op == "-" else _kept(kind, values[0])
            )

        def binary(values: list[_Value]) -> str:
            assert isinstance(node, Arithmetic)
            left, right = values
            kinds.append(frozenset(max(one, other) for one in left.kinds for other in right.kinds))
            zero = right.long if node.op == "/" and right.kinds & EXACT and right.constant in (None, 0) else None
            return self._struct(values, lambda kind: _OPERATIONS[node.op](kind, left, right), zero)

        if isinstance(node, Unary):
            sql = self._with((node.operand,), unary)
        else:
            assert isinstance(node, Arithmetic)
            sql = self._with((node.left, node.right), binary)
        return sql, kinds[0]

    def _struct(self, values: list[_Value], compute: Callable[[int], str], zero: str | None = None) -> str:
        """A result for every type that it can have.

        Args:
            zero: an exact divisor; where it is 0, the result of an exact division is NULL (D-02).
        """
        possible = {max(kinds) for kinds in _products([value.kinds for value in values])}
        bad = f"CAST({FATAL} AS INT)" if self.dialect.null_arithmetic_is_fatal else "CAST(NULL AS INT)"
        if not all(value.kinds for value in values):  # a string or boolean is among them
            return f"named_struct('k', {bad}, 'l', {_NO_LONG}, 'd', {_NO_DOUBLE})"
        unsure = [value.kind for value in values if value.constant is None]
        greatest = values[0].kind if len(values) == 1 else f"greatest({', '.join(value.kind for value in values)})"
        nulls = " OR ".join(f"({kind}) IS NULL" for kind in unsure)
        kind = f"CASE WHEN {nulls} THEN {bad} ELSE {greatest} END" if unsure else greatest
        self._variables += 1
        k = f"_kind{self._variables}"
        result_kind = (
            k if zero is None else f"CASE WHEN {k} <= {LONG} AND {zero} = 0 THEN CAST(NULL AS INT) ELSE {k} END"
        )
        exact = _case([(f"{k} = {kind}", compute(kind)) for kind in sorted(possible & EXACT)], _NO_LONG)
        real = _case([(f"{k} = {kind}", compute(kind)) for kind in sorted(possible - EXACT)], _NO_DOUBLE)
        return _let(k, kind, f"named_struct('k', {result_kind}, 'l', {exact}, 'd', {real})")


def _products(sets: list[frozenset[int]]) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = [()]
    for choice in sets:
        rows = [(*row, one) for row in rows for one in choice]
    return [row for row in rows if row]


def _like(pattern: LikePattern) -> str:
    """A pattern with the backslash as escape character, which is Spark's own."""
    if pattern.exact is not None:
        return f"= {quote_text(pattern.exact)}"
    segments = []
    for segment in pattern.segments:
        characters = ["_"] * segment.length
        for offset, run in segment.runs:
            characters[offset : offset + len(run)] = [f"\\{c}" if c in "\\%_" else c for c in run]
        segments.append("".join(characters))
    return f"LIKE {quote_text('%'.join(segments))}"


def _compare_floating(op: str, left: _Value, right: _Value, *, single: bool) -> str:
    a, b = (left.as_single, right.as_single) if single else (left.as_double, right.as_double)
    plain = f"{a} {op} {b}"
    for value, sql, sees in ((left, b, _FLIPPED[op]), (right, a, op)):
        if type(value.constant) in NUMBERS and value.constant == value.constant:
            # `sees` has the other side on the left: NaN is greater than this constant, which only > and >= show
            return f"NOT isnan({sql}) AND {plain}" if sees in (">", ">=") else plain
    if op == "<>":
        return f"isnan({a}) OR {plain}"
    return f"NOT isnan({a}) AND NOT isnan({b}) AND {plain}"


# -- arithmetic: SQL for a result of one type -----------------------------------------------------------------------


def _wrap_int(sql: str) -> str:
    return f"shiftright(shiftleft({sql}, 32), 32)"


def _wrap_long(sql: str) -> str:
    """A decimal of up to 38 digits as Java's long."""
    body = (
        "CAST(CASE WHEN _wide >= 9223372036854775808BD THEN _wide - 18446744073709551616BD "
        "WHEN _wide < -9223372036854775808BD THEN _wide + 18446744073709551616BD ELSE _wide END AS BIGINT)"
    )
    return _let("_wide", f"({sql}) % 18446744073709551616BD", body)


def _single(sql: str) -> str:
    return f"CAST(CAST({sql} AS FLOAT) AS DOUBLE)"


def _operation(function: str, symbol: str) -> Callable[[int, _Value, _Value], str]:
    def compute(kind: int, left: _Value, right: _Value) -> str:
        if kind == DOUBLE:
            return f"{left.as_double} {symbol} {right.as_double}"
        if kind == FLOAT:  # one rounding more is harmless: a double has more than twice a float's bits
            return _single(f"{left.as_single} {symbol} {right.as_single}")
        simple = f"{function}({left.long}, {right.long})"
        if kind == INT:
            return _wrap_int(simple)
        wide = f"CAST({left.long} AS DECIMAL(20, 0)) {symbol} CAST({right.long} AS DECIMAL(20, 0))"
        return f"coalesce({simple}, {_wrap_long(wide)})"

    return compute


def _quotient(kind: int, left: _Value, right: _Value) -> str:
    constant = type(right.constant) in NUMBERS and right.constant not in (0, -1)
    if kind in EXACT:
        if constant:
            return f"{left.long} div {right.long}"
        divisor = f"nullif(nullif({right.long}, 0L), CAST(-1L AS BIGINT))"
        return f"CASE WHEN {right.long} = -1 THEN {_negated(kind, left)} ELSE {left.long} div {divisor} END"
    a, b = (left.as_double, right.as_double) if kind == DOUBLE else (left.as_single, right.as_single)
    if constant and kind == DOUBLE:
        return f"{a} / {b}"
    by_zero = (
        f"CASE WHEN isnan({a}) OR {a} = 0D THEN CAST('NaN' AS DOUBLE) "
        f"WHEN ({a} < 0D) = (CAST({b} AS STRING) = '-0.0') THEN CAST('Infinity' AS DOUBLE) "
        f"ELSE CAST('-Infinity' AS DOUBLE) END"
    )
    sql = f"CASE WHEN {b} = 0D THEN {by_zero} ELSE {a} / nullif({b}, 0D) END"
    return sql if kind == DOUBLE else _single(sql)


def _negated(kind: int, value: _Value) -> str:
    if kind not in EXACT:
        return f"-({value.real})"
    simple = f"try_subtract(0L, {value.long})"
    return _wrap_int(simple) if kind == INT else f"coalesce({simple}, {value.long})"  # the lowest long stays


def _kept(kind: int, value: _Value) -> str:
    return value.long if kind in EXACT else value.real


_OPERATIONS: Final[dict[str, Callable[[int, _Value, _Value], str]]] = {
    "+": _operation("try_add", "+"),
    "-": _operation("try_subtract", "-"),
    "*": _operation("try_multiply", "*"),
    "/": _quotient,
}
