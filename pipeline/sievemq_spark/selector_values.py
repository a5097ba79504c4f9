"""An operand of a selector's operation, as SQL: for every type that it can have, a condition and a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sievemq_core.message.values import INT_MAX, INT_MIN, PropertyValue, letter_of
from sievemq_core.selector.arithmetic import NUMBERS, to_float
from sievemq_core.selector.names import FieldType, field_type
from sievemq_spark.columns import TYPES

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
NO_LONG: Final = "CAST(NULL AS BIGINT)"
NO_DOUBLE: Final = "CAST(NULL AS DOUBLE)"


def quote_text(text: str) -> str:
    """A string literal that means the same whatever Spark's settings for literals are."""
    if text.isascii() and text.isprintable() and "'" not in text and "\\" not in text:
        return f"'{text}'"
    return f"CAST(X'{text.encode('utf-8', 'surrogatepass').hex()}' AS STRING)"


def quote_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _double(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
    if math.copysign(1.0, value) < 0 and value == 0:
        return "CAST('-0.0' AS DOUBLE)"
    return f"{value!r}D"


def _long(value: int) -> str:
    return f"CAST({value}L AS BIGINT)" if value < 0 else f"{value}L"


def any_of(*conditions: str | None) -> str | None:
    """OR of conditions of a WHEN; None is a condition that never holds."""
    found = [condition for condition in conditions if condition is not None]
    if "TRUE" in found:
        return "TRUE"
    return either(found) if found else None


def either(conditions: list[str]) -> str:
    """OR of conditions, as calls of the function `or`, which takes two.

    A condition is never put in parentheses: Spark's parser must read to the end of a pair before it knows what it is,
    again at every level.
    """
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return f"`or`({either(conditions[:half])}, {either(conditions[half:])})"


def all_of(*conditions: str | None) -> str | None:
    if None in conditions:
        return None
    found = [condition for condition in conditions if condition is not None and condition != "TRUE"]
    return " AND ".join(found) if found else "TRUE"


def case(branches: list[tuple[str | None, str]], otherwise: str) -> str:
    """CASE over the branches that can be reached."""
    whens = []
    for condition, result in branches:
        if condition is None:
            continue
        if condition == "TRUE":
            otherwise = result
            break
        whens.append(f"WHEN {condition} THEN {result}")
    return f"CASE {' '.join(whens)} ELSE {otherwise} END" if whens else otherwise


@dataclass(frozen=True, slots=True)
class Value:
    """An operand as SQL, for each type that it can have. None: it never has that type.

    Attributes:
        kinds: numeric types that it can be.
        integer, exact, double, numeric: conditions: it is an int, an int or long, a double, any number.
        long, real: its value as BIGINT where exact, as DOUBLE (a float widened) where not; NULL elsewhere.
        text, boolean: its value as STRING, as BOOLEAN; NULL elsewhere.
        null: condition: it is NULL.
        fatal: condition: it makes the whole selector false.
        letter: the JMS type as a dialect with strict numbers sees it; a constant in quotes.
        constant: its value if the text shows it.
        otherwise: of a property, what an operation gives where the field that it reads is NULL: for one on a number or
            boolean, FALSE if the value is of another type and NULL if there is none.
        otherwise_text: the same for an operation on text.
    """

    kinds: frozenset[int] = frozenset()
    integer: str | None = None
    exact: str | None = None
    double: str | None = None
    numeric: str | None = None
    long: str = NO_LONG
    real: str = NO_DOUBLE
    text: str | None = None
    boolean: str | None = None
    null: str | None = None
    fatal: str | None = None
    letter: str = "NULL"
    constant: PropertyValue = None
    otherwise: str | None = None
    otherwise_text: str | None = None

    @property
    def other(self) -> str | None:
        return any_of(self.has(self.text), self.has(self.boolean))

    def has(self, sql: str | None) -> str | None:
        """Condition: the value that `sql` (text or boolean) reads is not NULL."""
        if sql is None:
            return None
        return "TRUE" if self.null is None else f"{sql} IS NOT NULL"

    @property
    def as_double(self) -> str:
        if type(self.constant) in NUMBERS:
            return _double(float(self.constant))  # type: ignore[arg-type]  # a number, as just tested
        return self._floating(f"CAST({self.long} AS DOUBLE)")

    @property
    def as_single(self) -> str:
        if type(self.constant) in NUMBERS:
            return _double(to_float(self.constant))  # type: ignore[arg-type]
        # + 0: without it Spark's optimizer takes long -> float -> double for long -> double
        return self._floating(f"CAST(CAST({self.long} AS FLOAT) + CAST(0 AS FLOAT) AS DOUBLE)")

    def _floating(self, from_long: str) -> str:
        if not self.kinds & EXACT:
            return self.real
        return from_long if self.kinds <= EXACT else f"coalesce({self.real}, {from_long})"


def constant(value: PropertyValue, letter: str) -> Value:
    """A value that the text shows, and its letter as a dialect with strict numbers sees it."""
    if value is None:
        return Value(null="TRUE")
    if isinstance(value, bool):
        return Value(boolean=str(value).upper(), letter=f"'{letter}'", constant=value)
    if isinstance(value, str):
        return Value(text=quote_text(value), letter=f"'{letter}'", constant=value)
    kind = _NUMERIC[letter_of(value)]
    exact = kind in EXACT
    return Value(
        kinds=frozenset({kind}),
        integer="TRUE" if kind == INT else None,
        exact="TRUE" if exact else None,
        double="TRUE" if kind == DOUBLE else None,
        numeric="TRUE",
        long=_long(int(value)) if exact else NO_LONG,
        real=NO_DOUBLE if exact else _double(float(value)),
        letter=f"'{letter}'",
        constant=value,
    )


def from_property(name: str) -> Value:
    """A property out of the map of typed values."""
    item = f"properties[{quote_text(name)}]"
    return Value(
        kinds=_ALL,
        integer=f"{item}.t IN ('b', 'h', 'i')",
        exact=f"{item}.l IS NOT NULL",
        double=f"{item}.t = 'd'",
        numeric=f"`or`({item}.l IS NOT NULL, {item}.d IS NOT NULL)",
        long=f"{item}.l",
        real=f"{item}.d",
        text=f"{item}.s",
        boolean=f"{item}.b",
        null=f"coalesce({item}.t, 's') = 's' AND {item}.s IS NULL",
        letter=f"{item}.t",
        otherwise=f"IF({item}.t <> 's' OR {item}.s IS NOT NULL, FALSE, NULL)",
        otherwise_text=f"IF({item}.t <> 's', FALSE, NULL)",
    )


def from_column(column: str, kind: str) -> Value:
    """A value out of a column of one type."""
    letter = TYPES[kind]
    there, null = f"{column} IS NOT NULL", f"{column} IS NULL"
    if letter == "s":
        return Value(text=column, null=null, letter="'s'")
    if letter == "z":
        return Value(boolean=column, null=null, letter="'z'")
    number = _NUMERIC[letter]
    exact = number in EXACT
    return Value(
        kinds=frozenset({number}),
        integer=there if number == INT else None,
        exact=there if exact else None,
        double=there if number == DOUBLE else None,
        numeric=there,
        long=f"CAST({column} AS BIGINT)" if exact else NO_LONG,
        real=NO_DOUBLE if exact else f"CAST({column} AS DOUBLE)",
        null=null,
        letter=f"'{letter}'",
    )


def from_header(name: str, *, numeric_mode: bool = False) -> Value:
    column = HEADER_COLUMNS[name]
    match field_type(name, numeric_mode=numeric_mode):
        case FieldType.MODE:  # D-13
            return Value(
                text=f"CASE WHEN {column} = 2 THEN 'PERSISTENT' ELSE 'NON_PERSISTENT' END",
                letter="'s'",
            )
        case FieldType.TEXT:
            return from_column(column, "string")
        case _:  # a number of the type that its value needs, as for a plain int among the properties
            value = f"CAST({column} AS BIGINT)"
            return Value(
                kinds=EXACT,
                integer=f"{value} BETWEEN {INT_MIN} AND {INT_MAX}",
                exact=f"{value} IS NOT NULL",
                numeric=f"{value} IS NOT NULL",
                long=value,
                null=f"{value} IS NULL",
            )


def from_variable(variable: str, kinds: frozenset[int], can_be_fatal: bool) -> Value:
    """A computed number in a variable: struct<k, l, d>."""
    return Value(
        kinds=kinds,
        integer=f"{variable}.k = {INT}" if INT in kinds else None,
        exact=f"{variable}.l IS NOT NULL" if kinds & EXACT else None,
        double=f"{variable}.k = {DOUBLE}" if DOUBLE in kinds else None,
        numeric=f"{variable}.k <= {DOUBLE}",
        long=f"{variable}.l",
        real=f"{variable}.d",
        null=f"{variable}.k IS NULL",
        fatal=f"{variable}.k = {FATAL}" if can_be_fatal else None,
    )


def let(variable: str, value: str, body: str) -> str:
    """`body` with a variable for `value`, which is evaluated once."""
    return f"transform(array({value}), {variable} -> {body})[0]"
