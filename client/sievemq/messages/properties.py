"""Property names and values at the API: what may be set, and reading as another type (§3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from sievemq.exceptions import MessageFormatException
from sievemq_core.errors import FormatError, NullValueError, NumberFormatError
from sievemq_core.limits import MAX_NAME_CHARS
from sievemq_core.message.conversion import convert
from sievemq_core.message.headers import HEADERS, JMSX, ON_RECEIVE
from sievemq_core.message.values import PropertyValue, hold, normalise
from sievemq_core.selector.dialect import JAKARTA
from sievemq_core.selector.lexer import is_identifier

__all__ = ["KNOWN_NAMES", "check_property_name", "read_property", "to_property", "to_typed_property"]

#: Names that passed :func:`check_property_name` and need no look again: a program sets the same few on every message.
#: Bounded, since names can be made from data. Names in ON_RECEIVE never enter, so setting one always takes the slow
#: path.
KNOWN_NAMES: Final[set[str]] = set()
_MAX_KNOWN_NAMES = 4096


def check_property_name(name: str) -> None:
    """Refuse a name that a property must not have.

    Raises:
        ValueError: not text, empty (PRP-07), not a selector identifier or a reserved word (PRP-08), or a name
            beginning with JMS that is neither one of the nine JMSX properties nor ``JMS_<vendor>…`` (PRP-12).
    """
    if type(name) is not str:
        if not isinstance(name, str):
            raise ValueError(f"a property's name must be text, not {name!r:.60}")
        name = str.__str__(name)
    if not name:
        raise ValueError("a property's name must not be empty")
    if len(name) > MAX_NAME_CHARS:
        raise ValueError(f"a property's name may have {MAX_NAME_CHARS} characters, this one has {len(name)}")
    if not is_identifier(name, JAKARTA):
        raise ValueError(
            f"{name!r:.60} is a reserved word of the selector language and cannot name a property"
            if name.upper() in JAKARTA.reserved
            else f"{name!r:.60} cannot name a property: a name begins with a letter, '_' or '$' and goes on with these "
            "and digits, as in a selector"
        )
    if name.startswith("JMS") and name not in JMSX and not name.startswith("JMS_"):
        raise ValueError(_reserved(name))
    if name not in ON_RECEIVE and len(KNOWN_NAMES) < _MAX_KNOWN_NAMES:
        KNOWN_NAMES.add(name)


def _reserved(name: str) -> str:
    if name in HEADERS:
        return f"{name} is a header field and not a property"
    near = get_close_matches(name, JMSX, 1)
    hint = f"; did you mean {near[0]}?" if near else "; providers use 'JMS_<vendor>…'"
    return f"the property name {name!r:.60} is not free: names beginning with JMS belong to the standard{hint}"


def to_property(name: str, value: object) -> PropertyValue:
    """What is held for a value that names its own type (PRP-02).

    Raises:
        MessageFormatException: it is of a type that a property cannot have.
    """
    try:
        return normalise(value)
    except FormatError as error:
        raise MessageFormatException(f"property {name!r}: {error}", error.code.name) from error


def to_typed_property(name: str, letter: str, value: object) -> PropertyValue:
    """What is held for a value whose type the setter names (PRP-01).

    Raises:
        MessageFormatException: it is of another type, or out of range (PY-08).
        NullValueError: it is None and the type has no null.
    """
    try:
        return hold(letter, value)  # type: ignore[return-value]  # only a byte[] is held as bytes
    except NullValueError:
        raise
    except FormatError as error:
        raise MessageFormatException(f"property {name!r}: {error}", error.code.name) from error


def read_property(properties: Mapping[str, PropertyValue], name: str, letter: str) -> Any:
    """A property read as another type, by the conversion table (PRP-03). An absent one is a null.

    Raises:
        MessageFormatException: the table does not allow it.
        NumberFormatError: text or null that is not a number of the type.
        NullValueError: null as a float or double.
    """
    try:
        return convert(properties.get(name), letter)
    except NumberFormatError as error:
        raise NumberFormatError(f"property {name!r}: {error}") from error
    except NullValueError as error:
        raise NullValueError(f"property {name!r}: {error}") from error
    except FormatError as error:
        raise MessageFormatException(f"property {name!r}: {error}", error.code.name) from error
