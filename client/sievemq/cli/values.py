"""Values on the command line: typed properties, durations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import typer

from sievemq_core.errors import FormatError
from sievemq_core.message.values import Byte, Float, Int, Long, PropertyValue, Short


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("is not true or false") from None


def _finite(number: float, text: str) -> float:
    """The number, unless digits became an infinity: `inf` says that it means one."""
    if math.isinf(number) and any(map(str.isdigit, text)):
        raise ValueError("is too large")
    return number


_TYPES: dict[str, Callable[[str], PropertyValue]] = {
    "boolean": _boolean,
    "byte": lambda text: Byte(int(text)),
    "short": lambda text: Short(int(text)),
    "int": lambda text: Int(int(text)),
    "long": lambda text: Long(int(text)),
    "float": lambda text: _finite(Float(float(text)), text),
    "double": lambda text: _finite(float(text), text),
    "string": str,
}

#: What other languages call these types; no text that is a value ends like this by chance.
_FOREIGN = frozenset({"bool", "str", "integer"})

_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_FLOATING = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)


def parse_property(text: str) -> tuple[str, PropertyValue]:
    """A property from ``name=value`` or ``name=value:type``.

    Without a type, ``true`` and ``false`` are booleans, digits an int (or long), digits with a point or exponent a
    double, anything else a string. What stands behind the last colon is a type only if it is the name of one:
    ``at=12:30`` is a text. A word there that was meant as one is refused: behind a number, a true or a false, and where
    it is a type's name in other letters or another language's.

    Raises:
        typer.BadParameter: no name, a type that there is not, or a value that its type does not have.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form name=value or name=value:type")
    before, colon, kind = name.rpartition(":")
    if colon and kind in _TYPES:
        raise typer.BadParameter(f"the type follows the value: {before}={value}:{kind}, not {text!r}")
    front, colon, kind = value.rpartition(":")
    if colon and kind in _TYPES:
        try:
            return name, _TYPES[kind](front)
        except (ValueError, FormatError) as error:
            raise typer.BadParameter(f"{front!r} of property {name!r} is no {kind}: {error}") from None
    if colon and _is_meant_as_type(kind, front):
        raise typer.BadParameter(
            f"{kind!r} of property {name!r} is not a type; the types are {', '.join(_TYPES)}. "
            f"If all of {value!r} is a text, write {name}={value}:string"
        )
    if value in ("true", "false"):
        return name, value == "true"
    if _INTEGER.match(value):
        number = int(value)
        if not -(2**63) <= number < 2**63:
            raise typer.BadParameter(f"{value} of property {name!r} does not fit a long; {value}:double or :string do")
        return name, number
    if _FLOATING.match(value):
        if math.isinf(float(value)):
            raise typer.BadParameter(f"{value} of property {name!r} does not fit a double; {value}:string does")
        return name, float(value)
    return name, value


def _is_meant_as_type(word: str, front: str) -> bool:
    """True if a word behind a value's last colon, which names no type, was meant to name one."""
    if not (word.isascii() and word.isalpha()):
        return False
    plain = front in ("true", "false") or _INTEGER.match(front) or _FLOATING.match(front)
    return bool(plain) or word.lower() in _TYPES or word.lower() in _FOREIGN


def typed_value(value: object, kind: str) -> PropertyValue:
    """A property's value from JSON, as the type that is named.

    Raises:
        ValueError: there is no such type, or it does not have the value.
    """
    if kind not in _TYPES:
        raise ValueError(f"{kind!r} is not a type; the types are {', '.join(_TYPES)}")
    return _TYPES[kind](str(value))


_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?\Z", re.ASCII)


def parse_duration(text: str) -> int:
    """Milliseconds from ``5``, ``5s``, ``250ms``, ``1.5m``, ``2h``, ``7d``; without a unit they are seconds.

    Raises:
        typer.BadParameter: anything else.
    """
    match = _DURATION.match(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration; write 5, 5s, 250ms, 1.5m, 2h or 7d")
    return round(float(match[1]) * _UNITS[match[2] or "s"])
