"""Java's arithmetic in Spark SQL (D-01, D-02): the text for a result of one type. None of it can raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sievemq_core.selector.arithmetic import NUMBERS
from sievemq_spark.selector_values import DOUBLE, EXACT, FLOAT, INT, Value, let

__all__ = ["OPERATIONS", "kept", "negated"]


def _wrap_int(sql: str) -> str:
    return f"shiftright(shiftleft({sql}, 32), 32)"


def _wrap_long(sql: str) -> str:
    """A decimal of up to 38 digits as Java's long."""
    body = (
        "CAST(CASE WHEN _wide >= 9223372036854775808BD THEN _wide - 18446744073709551616BD "
        "WHEN _wide < -9223372036854775808BD THEN _wide + 18446744073709551616BD ELSE _wide END AS BIGINT)"
    )
    return let("_wide", f"({sql}) % 18446744073709551616BD", body)


def _single(sql: str) -> str:
    return f"CAST(CAST({sql} AS FLOAT) AS DOUBLE)"


def _operation(function: str, symbol: str) -> Callable[[int, Value, Value], str]:
    def compute(kind: int, left: Value, right: Value) -> str:
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


def _quotient(kind: int, left: Value, right: Value) -> str:
    constant = type(right.constant) in NUMBERS and right.constant not in (0, -1)
    if kind in EXACT:
        if constant:
            return f"{left.long} div {right.long}"
        divisor = f"nullif(nullif({right.long}, 0L), CAST(-1L AS BIGINT))"
        return f"CASE WHEN {right.long} = -1 THEN {negated(kind, left)} ELSE {left.long} div {divisor} END"
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
