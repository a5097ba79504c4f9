"""Typed values as JSON, both ways.

JSON has one kind of number and no bytes; JMS has six kinds of numbers. A value in an answer names its type. A value in
a request may be plain, if its form determines the type (text, boolean, int or long by size, double), or name it."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, cast

from sievemq_broker.server.http.api.answers import Value
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.tasks import each
from sievemq_broker.server.server import Server
from sievemq_core.errors import FormatError
from sievemq_core.message.values import PLAIN_NAMES, BodyValue, PropertyValue, hold, letter_of, normalise_field

_LETTERS: Final = {name: letter for letter, name in PLAIN_NAMES.items()}
_EXACT: Final = 2**53  # larger integers do not all survive a reader that only has doubles
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def show_value(value: BodyValue) -> Value:
    """A held value, for JSON."""
    letter = letter_of(value)
    shown: Any = value
    if letter in "bhi":
        shown = int(cast("int", value))
    elif letter == "l":
        number = int(cast("int", value))
        shown = number if -_EXACT < number < _EXACT else str(number)
    elif letter in "fd":
        number_ = float(cast("float", value))
        shown = number_ if math.isfinite(number_) else "NaN" if number_ != number_ else f"{number_:+}"
        shown = {"+inf": "Infinity", "-inf": "-Infinity"}.get(shown, shown) if isinstance(shown, str) else shown
    elif letter == "x":
        shown = b64encode(cast("bytes", value)).decode()
    elif letter in "cs" and value is not None:
        shown = str.__str__(cast("str", value))
    return Value(type=PLAIN_NAMES[letter], value=shown)  # type: ignore[arg-type]


def read_value(given: Any, where: str) -> BodyValue:
    """A value as it is held.

    Args:
        given: from JSON: plain, or an object with `type` and `value`.
        where: how it is named in errors.

    Raises:
        ApiError: 422, it is none.
    """
    if not isinstance(given, dict):
        return _plain(given, where)
    unknown = given.keys() - {"type", "value"}
    if unknown or "type" not in given:
        raise unusable(
            f'{where}: a typed value is {{"type": …, "value": …}}'
            + (f"; {sorted(unknown)[0]!r} is neither" if unknown else "; the type is missing"),
            where,
        )
    name, value = given["type"], given.get("value")
    letter = _LETTERS.get(name) if isinstance(name, str) else None
    if letter is None:
        raise unusable(f"{where}: there is no type {str(name)[:40]!r}; {', '.join(_LETTERS)} are", where)
    return _typed(letter, value, where)


def read_properties(given: Mapping[str, Any]) -> dict[str, PropertyValue]:
    """The properties of a message; ``{"amount": 5, "size": {"type": "short", "value": 3}}``.

    Raises:
        ApiError: 422, one of them cannot be a property.
    """
    found: dict[str, PropertyValue] = {}
    for name, value in given.items():
        held = read_value(value, f"properties.{name[:100]}")
        if held is not None and letter_of(held) in "cx":
            raise unusable(f"properties.{name[:100]}: a property has no {PLAIN_NAMES[letter_of(held)]} (PRP-02)", name)
        found[name] = cast("PropertyValue", held)
    return found


async def read_fields(server: Server, given: Mapping[str, Any] | list[Any]) -> list[BodyValue]:
    """The values of a MAP or STREAM body, in order."""
    pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
    return await each(server, pairs, lambda pair: read_value(pair[1], f"body.{str(pair[0])[:100]}"), 1)


def unusable(text: str, field: str) -> ApiError:
    """422 for a value that cannot be what it is given for."""
    return ApiError(422, "MESSAGE_FORMAT", text, {"field": field})


def _plain(given: Any, where: str) -> BodyValue:
    if isinstance(given, list):
        raise unusable(f"{where}: an array is no value", where)
    try:
        return normalise_field(given)
    except FormatError as error:
        raise unusable(f"{where}: {error.text}", where) from None


def _typed(letter: str, value: Any, where: str) -> BodyValue:
    if letter == "x" and isinstance(value, str):
        value = from_base64(value, where)
    elif letter == "l" and isinstance(value, str):
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise unusable(f"{where}: {value[:40]!r} is no long", where)
        value = int(value)
    elif letter in "fd" and isinstance(value, str):
        if value not in _SPECIAL:
            raise unusable(f"{where}: {value[:40]!r} is no number; NaN, Infinity and -Infinity are", where)
        value = _SPECIAL[value]
    try:
        return hold(letter, value)
    except FormatError as error:
        raise unusable(f"{where}: {error.text}", where) from None


def from_base64(text: str, where: str) -> bytes:
    """Bytes from base64.

    Raises:
        ApiError: 422, it is none.
    """
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise unusable(f"{where}: not base64: {error}", where) from None
