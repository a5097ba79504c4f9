"""A checked selector as Spark SQL text: what the broker answers for a message, for a row of it (docs/pipeline.md).

A message's row has its properties in a map of typed values (schema.py), so that an int, a long, a float and a String of
the same look stay apart. Every operation becomes a CASE over the types that its operands can have:

    numbers     Java's promotion and wrap-around (D-01, D-02); Spark's own + would raise, its / would give a double
    NaN         is unequal to everything; Spark has it equal to itself and greater than all
    unlike      FALSE (D-04), or in a dialect that says so the whole selector is (D-15, D-16)
    NULL        UNKNOWN (D-05): Spark's AND, OR and NOT are three-valued as well

Nothing in the text can raise an error for any row, whether ANSI mode is on or off. Values that are computed are bound
to a variable (`let`), so that the text grows with the selector and not with its depth. The text of a condition can be
an operand of AND and the argument of a function, without parentheses: OR and NOT are functions (`either`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.arithmetic import NUMBERS, to_float
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
    Node,
    Not,
    Or,
    Unary,
    walk,
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.evaluate import is_approximate, strict_letter, value_of, zero_id
from sievemq_core.selector.like import LikePattern, parse_pattern
from sievemq_core.selector.names import HEADERS
from sievemq_spark.selector_values import (
    DOUBLE,
    EXACT,
    FATAL,
    FLOAT,
    INT,
    LONG,
    NO_DOUBLE,
    NO_LONG,
    Value,
    all_of,
    any_of,
    case,
    constant,
    either,
    from_column,
    from_header,
    from_property,
    from_variable,
    let,
    quote_name,
    quote_text,
)


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
    return f"CASE WHEN {either(compiler.fatal)} THEN FALSE ELSE {truth} END"


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
                return " AND ".join(self.condition(operand) for operand in node.operands)
            case Or():
                return either([self.condition(operand) for operand in node.operands])
            case Not():
                return f"`not`({self.condition(node.operand)})"
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
            case In(equals=True):
                return self._decide(self._equals_one(node))
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
                return f"`not`({null})" if node.negated else null
            case _:
                value = self._leaf(node)  # D-07: as a condition, a value that is not a boolean is UNKNOWN
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
        self.fatal.append(f"{result} <=> {FATAL}")
        return f"{result} = 1"

    def _about_text(self, operand: Node, test: str, negated: bool) -> str:
        value = self._leaf(operand)
        null = (value.null, self._unknown)
        if value.otherwise_text is not None and not self._codes:
            return f"coalesce({'NOT ' if negated else ''}{value.text} {test}, {value.otherwise_text})"
        if value.text is None:
            return case([null], self._unlike)
        truth = self._truth(f"{'NOT ' if negated else ''}{value.text} {test}")
        return case([(value.has(value.text), truth), null], self._unlike)

    def _equals_one(self, node: In) -> str:
        """``name = 1 OR name = 'a' OR …``: a list for each type that the value can have (D-01, D-04)."""
        value = self._leaf(node.operand)
        constants = [item.value for item in node.items]
        texts = [each for each in constants if isinstance(each, str)]
        exact = [each for each in constants if isinstance(each, int)]
        real = [each for each in constants if isinstance(each, float)]
        if self.dialect.unlike_is_fatal and texts and len(texts) < len(constants):
            return case([(value.null, self._unknown)], self._unlike)  # whatever it is, it is unlike one of them
        doubles = [constant(float(each), "d").as_double for each in exact + real]
        floats = [constant(each, "").as_single for each in exact]
        branches: list[tuple[str | None, str]] = [(value.fatal, str(FATAL))]
        if texts:
            found = _one_of(value.text or "", list(map(quote_text, texts)))
            branches.append((value.has(value.text), self._truth(found)))
        if len(texts) < len(constants):
            longs = _one_of(value.long, [constant(each, "l").long for each in exact]) if exact else "FALSE"
            if real:
                wide = _one_of(f"CAST({value.long} AS DOUBLE)", [constant(each, "d").as_double for each in real])
                longs = either([longs, wide])
            branches.append((value.exact, self._truth(longs)))
            branches.append((value.double, self._truth(_one_of(value.real, doubles))))
            if FLOAT in value.kinds:
                found = _one_of(value.real, [*floats, *(constant(each, "d").as_double for each in real)])
                branches.append((value.numeric, self._truth(found)))
        branches.append((value.null, self._unknown))
        return case(branches, self._unlike)

    def _between(self, node: Between, operand: Value, low: Value, high: Value) -> str:
        """D-05: ``x >= low AND x <= high``; negated ``x < low OR x > high``."""
        ops = ("<", ">") if node.negated else (">=", "<=")
        first = self._compare(ops[0], node.operand, node.low, operand, low)
        second = self._compare(ops[1], node.operand, node.high, operand, high)
        if not self._codes:
            return either([first, second]) if node.negated else f"{first} AND {second}"
        wins = 1 if node.negated else 0
        both = (
            f"CASE WHEN {first} = {FATAL} OR {second} = {FATAL} THEN {FATAL} "
            f"WHEN {first} = {wins} OR {second} = {wins} THEN {wins} "
            f"WHEN {first} IS NULL OR {second} IS NULL THEN NULL ELSE {1 - wins} END"
        )
        if not self.dialect.null_between_is_false:
            return both
        values = (operand, low, high)
        with_null = case([(any_of(*(value.other for value in values)), str(FATAL))], self._result(node.negated))
        return case(
            [
                (any_of(*(value.fatal for value in values)), str(FATAL)),
                (any_of(*(value.null for value in values)), with_null),
            ],
            both,
        )

    def _compare(self, op: str, left_node: Node, right_node: Node, left: Value, right: Value) -> str:
        short = None
        if not self._codes:
            short = _short(op, left, right) or _short(MIRRORED[op], right, left)
        if short is not None:
            return short
        branches: list[tuple[str | None, str]] = [(any_of(left.fatal, right.fatal), str(FATAL))]
        if self.dialect.strict_numbers and self._beside_header(left_node, right_node):
            if is_approximate(left_node) or is_approximate(right_node):
                branches.append((all_of(left.numeric, right.numeric), self._unlike))
        elif self.dialect.strict_numbers:
            differ = "TRUE" if left.letter == "NULL" or right.letter == "NULL" else f"{left.letter} <> {right.letter}"
            branches.append((all_of(left.numeric, right.numeric, differ), self._unlike))
        branches.append((all_of(left.exact, right.exact), self._truth(f"{left.long} {op} {right.long}")))
        doubles = all_of(left.numeric, right.numeric, any_of(left.double, right.double))
        singles = None
        if (FLOAT in left.kinds and right.kinds) or (FLOAT in right.kinds and left.kinds):
            singles = all_of(left.numeric, right.numeric)
        if doubles is not None:
            # a constant that is the same as a float and as a double needs one comparison for both
            if singles is not None and self._same_either_way(left, right):
                doubles, singles = singles, None
            branches.append((doubles, self._truth(_compare_floating(op, left, right, single=False))))
        branches.append((singles, self._truth(_compare_floating(op, left, right, single=True))))
        if op in ("=", "<>"):
            for one, other in ((left.text, right.text), (left.boolean, right.boolean)):
                branches.append((all_of(left.has(one), right.has(other)), self._truth(f"{one} {op} {other}")))
        branches.append((any_of(left.null, right.null), self._unknown))
        return case(branches, self._unlike)

    @staticmethod
    def _beside_header(left: Node, right: Node) -> bool:
        return any(isinstance(node, Identifier) and node.name in HEADERS for node in (left, right))

    @staticmethod
    def _same_either_way(left: Value, right: Value) -> bool:
        for value in (left, right):
            if type(value.constant) in NUMBERS and FLOAT not in value.kinds:
                number: int | float = value.constant  # type: ignore[assignment]  # as just tested
                return float(number) == to_float(number)
        return False

    # -- values -------------------------------------------------------------------------------------------------------

    def _with(self, nodes: tuple[Node, ...], body: Callable[[list[Value]], str]) -> str:
        """`body` with the values of some nodes; those that are computed are bound to variables."""
        values: list[Value] = []
        bindings: list[tuple[str, str]] = []
        for node in nodes:
            if self._is_computed(node):
                self._variables += 1
                variable = f"_number{self._variables}"
                sql, kinds = self._number(node)
                bindings.append((variable, sql))
                values.append(from_variable(variable, kinds, self.dialect.null_arithmetic_is_fatal))
            else:
                values.append(self._leaf(node))
        result = body(values)
        for variable, sql in reversed(bindings):
            result = let(variable, sql, result)
        return result

    @staticmethod
    def _is_computed(node: Node) -> bool:
        return isinstance(node, Unary | Arithmetic) and any(isinstance(part, Identifier) for part in walk(node))

    def _leaf(self, node: Node) -> Value:
        if isinstance(node, Identifier):
            if node.name in HEADERS:
                return from_header(node.name, numeric_mode=self.dialect.numeric_mode)
            if node.name in self.columns:
                return from_column(quote_name(node.name), self.columns[node.name])
            return from_property(node.name)
        value = value_of(node, self.dialect, {}, ())  # a constant, or computed from constants alone
        if value is None and self.dialect.null_arithmetic_is_fatal and self._gives_up(node):
            return Value(fatal="TRUE")
        return constant(value, strict_letter(node, value) or "s")

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

        def unary(values: list[Value]) -> str:
            assert isinstance(node, Unary)
            kinds.append(values[0].kinds)
            return self._struct(
                values, lambda kind: _negated(kind, values[0]) if node.op == "-" else _kept(kind, values[0])
            )

        def binary(values: list[Value]) -> str:
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

    def _struct(self, values: list[Value], compute: Callable[[int], str], zero: str | None = None) -> str:
        """A result for every type that it can have.

        Args:
            zero: an exact divisor; where it is 0, the result of an exact division is NULL (D-02).
        """
        bad = f"CAST({FATAL} AS INT)" if self.dialect.null_arithmetic_is_fatal else "CAST(NULL AS INT)"
        if not all(value.kinds for value in values):  # a string or boolean is among them
            return f"named_struct('k', {bad}, 'l', {NO_LONG}, 'd', {NO_DOUBLE})"
        possible = {max(each) for each in product(*(value.kinds for value in values))}
        integer, exact, number = (
            all_of(*(getattr(value, name) for value in values)) for name in ("integer", "exact", "numeric")
        )
        double = any_of(*(value.double for value in values))
        conditions = {INT: integer, LONG: exact, DOUBLE: all_of(number, double), FLOAT: number}
        no_result = None if zero is None else all_of(exact, f"{zero} = 0L")
        kinds: list[tuple[str | None, str]] = [(no_result, "CAST(NULL AS INT)")]
        kinds += [(condition, str(kind)) for kind, condition in conditions.items() if kind in possible]

        def one_of(condition: str | None, first: int, second: int, neither: str) -> str:
            """A computation is NULL by itself where an operand is not of its kind."""
            found = [compute(kind) for kind in (first, second) if kind in possible]
            return case([(condition, found[0])], found[1]) if len(found) == 2 else found[0] if found else neither

        longs = one_of(integer, INT, LONG, NO_LONG)
        reals = one_of(double, DOUBLE, FLOAT, NO_DOUBLE)
        if possible & EXACT and possible - EXACT:
            reals = case([(exact, NO_DOUBLE)], reals)
        return f"named_struct('k', {case(kinds, bad)}, 'l', {longs}, 'd', {reals})"


def _short(op: str, value: Value, other: Value) -> str | None:
    """A property or header compared with a constant, which is most of what selectors do; None if it is not that.

    Each field of a property is compared by itself, and at most one of them is not NULL. A header has one type.
    """
    constant = other.constant
    if constant is None or value.constant is not None:
        return None
    if value.otherwise is None:
        if isinstance(constant, str) and value.text is not None and op in ("=", "<>"):
            return f"{value.text} {op} {other.text}"
        alike = value.kinds == EXACT and bool(other.kinds) and other.kinds <= EXACT
        return f"{value.long} {op} {other.long}" if alike else None
    if isinstance(constant, str):
        return f"coalesce({value.text} {op} {other.text}, {value.otherwise_text})" if op in ("=", "<>") else None
    if isinstance(constant, bool):
        return f"coalesce({value.boolean} {op} {other.boolean}, {value.otherwise})" if op in ("=", "<>") else None
    if constant != constant or (other.kinds <= EXACT and float(constant) != to_float(constant)):
        return None  # a float and a double of the same value compare differently with it
    if other.kinds <= EXACT:
        exact = f"{value.long} {op} {other.long}"
    elif FLOAT in other.kinds:
        exact = f"CAST(CAST({value.long} AS FLOAT) + CAST(0 AS FLOAT) AS DOUBLE) {op} {other.as_single}"  # as as_single
    else:
        exact = f"CAST({value.long} AS DOUBLE) {op} {other.as_double}"
    real = f"{value.real} {op} {other.as_double}"
    if op in (">", ">="):
        real = f"NOT isnan({value.real}) AND {real}"
    return f"coalesce({exact}, {real}, {value.otherwise})"


def _one_of(sql: str, values: list[str]) -> str:
    return f"{sql} IN ({', '.join(values)})"


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


def _compare_floating(op: str, left: Value, right: Value, *, single: bool) -> str:
    a, b = (left.as_single, right.as_single) if single else (left.as_double, right.as_double)
    plain = f"{a} {op} {b}"
    for value, sql, sees in ((left, b, MIRRORED[op]), (right, a, op)):
        if type(value.constant) in NUMBERS and value.constant == value.constant:
            # `sees` has the other side on the left: NaN is greater than this constant, which only > and >= show
            return f"NOT isnan({sql}) AND {plain}" if sees in (">", ">=") else plain
    if op == "<>":
        return either([f"isnan({a})", plain])
    return f"NOT isnan({a}) AND NOT isnan({b}) AND {plain}"


_MINUS_ONE: Final = "CAST(-1L AS BIGINT)"
_LOWEST: Final = "CAST('-9223372036854775808' AS BIGINT)"


def _wrap_int(sql: str) -> str:
    return f"shiftright(shiftleft({sql}, 32), 32)"


def _single(sql: str) -> str:
    return f"CAST(CAST({sql} AS FLOAT) AS DOUBLE)"


def _wrapped(symbol: str, a: str, b: str) -> str:
    """The result of an operation that does not fit a long, wrapped around."""
    if symbol == "*":
        half, whole = "9223372036854775808BD", "18446744073709551616BD"
        product = f"CAST({a} AS DECIMAL(20, 0)) * CAST({b} AS DECIMAL(20, 0))"
        return f"CAST(pmod({product} + {half}, {whole}) - {half} AS BIGINT)"
    # an operand with its highest bit turned is half of all longs away: with both turned the result is in range
    function = "try_add" if symbol == "+" else "try_subtract"
    return f"{function}({a} ^ {_LOWEST}, {b} ^ {_LOWEST})"


def _operation(function: str, symbol: str) -> Callable[[int, Value, Value], str]:
    def compute(kind: int, left: Value, right: Value) -> str:
        if kind == DOUBLE:
            return f"{left.as_double} {symbol} {right.as_double}"
        if kind == FLOAT:  # one rounding more is harmless: a double has more than twice a float's bits
            return _single(f"{left.as_single} {symbol} {right.as_single}")
        simple = f"{function}({left.long}, {right.long})"
        return _wrap_int(simple) if kind == INT else f"coalesce({simple}, {_wrapped(symbol, left.long, right.long)})"

    return compute


def _quotient(kind: int, left: Value, right: Value) -> str:
    constant = type(right.constant) in NUMBERS and right.constant not in (0, -1)
    if kind in EXACT:
        if constant:
            return f"{left.long} div {right.long}"
        divisor = f"nullif(nullif({right.long}, 0L), {_MINUS_ONE})"
        return f"CASE WHEN {right.long} = {_MINUS_ONE} THEN {_negated(kind, left)} ELSE {left.long} div {divisor} END"
    a, b = (left.as_double, right.as_double) if kind == DOUBLE else (left.as_single, right.as_single)
    if constant and kind == DOUBLE:
        return f"{a} / {b}"
    infinite = "CASE CAST({} AS STRING) WHEN '0.0' THEN {} WHEN '-0.0' THEN {} END".format(
        b, "CAST('Infinity' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)"
    )
    sql = f"coalesce(try_divide({a}, {b}), {a} * {infinite})"  # Spark's own quotient by zero is NULL
    return sql if kind == DOUBLE else _single(sql)


def _negated(kind: int, value: Value) -> str:
    """``- value``."""
    if kind not in EXACT:
        return f"negative({value.real})"
    simple = f"try_subtract(0L, {value.long})"
    return _wrap_int(simple) if kind == INT else f"coalesce({simple}, {value.long})"  # the lowest long stays


def _kept(kind: int, value: Value) -> str:
    """``+ value``."""
    return value.long if kind in EXACT else value.real


#: Operator -> SQL for a kind of result and two operands.
_OPERATIONS: Final[dict[str, Callable[[int, Value, Value], str]]] = {
    "+": _operation("try_add", "+"),
    "-": _operation("try_subtract", "-"),
    "*": _operation("try_multiply", "*"),
    "/": _quotient,
}
