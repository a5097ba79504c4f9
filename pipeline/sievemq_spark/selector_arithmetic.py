"""Java's arithmetic in Spark SQL (D-01, D-02): the text for a result of one type. None of it can raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sievemq_core.selector.arithmetic import NUMBERS
from sievemq_spark.selector_values import DOUBLE, EXACT, FLOAT, INT, Value

__all__ = ["OPERATIONS", "kept", "negated"]


_MINUS_ONE: Final = "CAST(-1L AS BIGINT)"
_LOWEST: Final = "CAST('-9223372036854775808' AS BIGINT)"


def _wrap_int(sql: str) -> str:
    return f"shiftright(shiftleft({sql}, 32), 32)"


def _single(sql: str) -> str:
    return f"CAST(CAST({sql} AS FLOAT) AS DOUBLE)"


def _wrapped(symbol: str, a: str, b: str) -> str:
    """What is left of a result that does not fit a long."""
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
        return f"CASE WHEN {right.long} = {_MINUS_ONE} THEN {negated(kind, left)} ELSE {left.long} div {divisor} END"
    a, b = (left.as_double, right.as_double) if kind == DOUBLE else (left.as_single, right.as_single)
    if constant and kind == DOUBLE:
        return f"{a} / {b}"
    infinite = "CASE CAST({} AS STRING) WHEN '0.0' THEN {} WHEN '-0.0' THEN {} END".format(
        b, "CAST('Infinity' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)"
    )
    sql = f"coalesce(try_divide({a}, {b}), {a} * {infinite})"  # Spark's own quotient by zero is NULL
    return sql if kind == DOUBLE else _single(sql)


def negated(kind: int, value: Value) -> str:
    """``- value``."""
    if kind not in EXACT:
        return f"-({value.real})"
    simple = f"try_subtract(0L, {value.long})"
    return _wrap_int(simple) if kind == INT else f"coalesce({simple}, {value.long})"  # the lowest long stays


def kept(kind: int, value: Value) -> str:
    """``+ value``."""
    return value.long if kind in EXACT else value.real


#: Operator -> SQL for a kind of result and two operands.
OPERATIONS: Final[dict[str, Callable[[int, Value, Value], str]]] = {
    "+": _operation("try_add", "+"),
    "-": _operation("try_subtract", "-"),
    "*": _operation("try_multiply", "*"),
    "/": _quotient,
}
