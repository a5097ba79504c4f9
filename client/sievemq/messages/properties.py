"""Property names and values at the API: what may be set, and reading as another type (§3.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from sievemq.exceptions import MessageFormatException, MessageNotWriteableException
from sievemq.messages.headers import Headers
from sievemq.messages.modes import BODY_READ_ONLY, HAS_ON_RECEIVE, HAS_TYPED, PROPERTIES_READ_ONLY, SLOW_TO_SEND
from sievemq.messages.shown import not_set
from sievemq_core.errors import FormatError, NullValueError, NumberFormatError, ProtocolError
from sievemq_core.limits import MAX_NAME_CHARS
from sievemq_core.message.conversion import convert
from sievemq_core.message.envelope import pack_properties, unpack_properties
from sievemq_core.message.headers import DELIVERY_COUNT, HEADERS, JMSX, ON_RECEIVE
from sievemq_core.message.values import AMBIGUOUS, LONG_MAX, LONG_MIN, PropertyValue, hold, normalise
from sievemq_core.selector.dialect import RESERVED
from sievemq_core.selector.lexer import is_property_name

#: Names that passed :func:`check_property_name` and are not checked again: a program sets the same few on each message.
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
    if not is_property_name(name):
        raise ValueError(
            f"{name!r:.60} is a reserved word of the selector language and cannot name a property"
            if name.upper() in RESERVED
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
    """The stored form of a value that names its own type (PRP-02).

    Raises:
        MessageFormatException: it is of a type that a property cannot have.
    """
    try:
        return normalise(value)
    except FormatError as error:
        raise MessageFormatException(f"property {name!r}: {error}", error.code.name) from error


def to_typed_property(name: str, letter: str, value: object) -> PropertyValue:
    """The stored form of a value whose type the setter names (PRP-01).

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
    except (NumberFormatError, NullValueError) as error:
        if name in properties:
            raise type(error)(f"property {name!r}: {error}") from error
        ours = [each for each in properties if not each.startswith("JMS")]
        raise type(error)(f"property {name!r:.60} {not_set(name, ours)} ({error})") from error
    except FormatError as error:
        raise MessageFormatException(f"property {name!r}: {error}", error.code.name) from error


class Properties(Headers):
    """The properties of a message; of a received one they are decoded from its envelope when they are first needed."""

    __slots__ = ("_count", "_modes", "_properties")

    _count: int
    _modes: int
    _properties: dict[str, PropertyValue] | None  # None: received and not decoded yet; then they are read-only

    def clear_properties(self) -> None:
        """Remove all properties and make them writable; headers and body stay (MSG-05)."""
        if self._properties is None:
            self._properties = {}
        else:
            self._properties.clear()
        self._modes &= BODY_READ_ONLY

    def _set_properties(self, properties: Mapping[str, PropertyValue]) -> None:
        for name, value in properties.items():
            self.set_object_property(name, value)

    # -- set ----------------------------------------------------------------------------------------------------------
    # A known name costs one set lookup; the straight path of each setter holds the value without a further call.

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set a boolean property.

        Raises:
            MessageNotWriteableException: the message was received; call :meth:`clear_properties` first (PRP-10).
            ValueError: the name is not allowed (PRP-07, PRP-08, PRP-12).
            MessageFormatException: the value is not a bool.
        """
        self._set_typed(name, "z", value)

    def set_byte_property(self, name: str, value: int) -> None:
        """Set a byte property, -128 to 127 (PRP-01); errors as for the others, MessageFormatException out of range."""
        self._set_typed(name, "b", value)

    def set_short_property(self, name: str, value: int) -> None:
        """Set a short property, 16 bits signed (PRP-01)."""
        self._set_typed(name, "h", value)

    def set_int_property(self, name: str, value: int) -> None:
        """Set an int property, 32 bits signed (PRP-01)."""
        if (
            type(value) is int
            and -0x80000000 <= value <= 0x7FFFFFFF
            and name in KNOWN_NAMES
            and self._modes < PROPERTIES_READ_ONLY
        ):
            self._properties[name] = value  # type: ignore[index]  # writable ones are never None
        else:
            self._set_typed(name, "i", value)

    def set_long_property(self, name: str, value: int) -> None:
        """Set a long property, 64 bits signed (PRP-01)."""
        self._set_typed(name, "l", value)

    def set_float_property(self, name: str, value: float) -> None:
        """Set a float property; the value is rounded to IEEE single (PY-09)."""
        self._set_typed(name, "f", value)

    def set_double_property(self, name: str, value: float) -> None:
        """Set a double property (PRP-01)."""
        if type(value) is float and name in KNOWN_NAMES and self._modes < PROPERTIES_READ_ONLY:
            self._properties[name] = value  # type: ignore[index]
        else:
            self._set_typed(name, "d", value)

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set a String property; None is a null String, and the property then exists (PRP-05)."""
        if type(value) is str and name in KNOWN_NAMES and self._modes < PROPERTIES_READ_ONLY:
            self._properties[name] = value  # type: ignore[index]
        else:
            self._set_typed(name, "s", value)

    def set_object_property(self, name: str, value: PropertyValue) -> None:
        """Set a property of the type that the value has: bool, int, float, str, None, or a wrapper Byte … Double.

        A plain int is an int if it fits 32 bits, else a long; a plain float is a double.

        Raises:
            MessageFormatException: the value is of another type (PRP-02), or beyond 64 bits.
        """
        kind = type(value)
        if (
            (kind is str or kind is bool or kind is float or (kind is int and LONG_MIN <= value <= LONG_MAX))  # type: ignore[operator]
            and type(name) is str
            and name in KNOWN_NAMES
            and self._modes < PROPERTIES_READ_ONLY
        ):
            self._properties[name] = value  # type: ignore[index]
            return
        self._check_settable(name)
        held = to_property(name, value)
        if type(held) in AMBIGUOUS:
            self._modes |= HAS_TYPED
        self._properties[name] = held  # type: ignore[index]

    def _set_typed(self, name: str, letter: str, value: object) -> None:
        self._check_settable(name)
        held = to_typed_property(name, letter, value)
        if type(held) in AMBIGUOUS:
            self._modes |= HAS_TYPED
        self._properties[name] = held  # type: ignore[index]

    def _check_settable(self, name: str) -> None:
        if self._modes & PROPERTIES_READ_ONLY:
            raise MessageNotWriteableException(
                f"property {name!r:.60} cannot be set: the properties of a received message are read-only; "
                "clear_properties() makes them writable"
            )
        if type(name) is not str or name not in KNOWN_NAMES:
            check_property_name(name)
            if name in ON_RECEIVE:
                self._modes |= HAS_ON_RECEIVE

    # -- get ----------------------------------------------------------------------------------------------------------

    def get_boolean_property(self, name: str) -> bool:
        """A property as a boolean: of a boolean or of text; an absent one is False (CNV-01, CNV-07).

        Raises:
            MessageFormatException: the property's type cannot be read as this one (PRP-03).
        """
        return read_property(self._property_values(), name, "z")  # type: ignore[no-any-return]

    def get_byte_property(self, name: str) -> int:
        """A property as a byte: of a byte or of text.

        Raises:
            MessageFormatException: the property's type cannot be read as this one (PRP-03).
            NumberFormatError: it is text that is no such number, null or absent (CNV-02, CNV-08).
        """
        return read_property(self._property_values(), name, "b")  # type: ignore[no-any-return]

    def get_short_property(self, name: str) -> int:
        """A property as a short: of a byte, a short or of text; errors as :meth:`get_byte_property`."""
        return read_property(self._property_values(), name, "h")  # type: ignore[no-any-return]

    def get_int_property(self, name: str) -> int:
        """A property as an int: of a byte, a short, an int or of text; errors as :meth:`get_byte_property`."""
        return read_property(self._property_values(), name, "i")  # type: ignore[no-any-return]

    def get_long_property(self, name: str) -> int:
        """A property as a long: of any integer type or of text; errors as :meth:`get_byte_property`."""
        return read_property(self._property_values(), name, "l")  # type: ignore[no-any-return]

    def get_float_property(self, name: str) -> float:
        """A property as a float: of a float or of text.

        Raises:
            MessageFormatException: the property's type cannot be read as this one (PRP-03).
            NumberFormatError: it is text that is no such number (CNV-03).
            NullValueError: it is null or absent (CNV-09).
        """
        return read_property(self._property_values(), name, "f")  # type: ignore[no-any-return]

    def get_double_property(self, name: str) -> float:
        """A property as a double: of a float, a double or of text; errors as :meth:`get_float_property`."""
        return read_property(self._property_values(), name, "d")  # type: ignore[no-any-return]

    def get_string_property(self, name: str) -> str | None:
        """A property as text, whatever its type; None if null or absent (CNV-04 to CNV-06, CNV-10)."""
        value = self._property_values().get(name)
        return value if type(value) is str else read_property(self._property_values(), name, "s")

    def get_object_property(self, name: str) -> PropertyValue:
        """A property in its own type: plain, or a wrapper where Python has no type for it; None if absent (PRP-04)."""
        return self._property_values().get(name)

    def property_exists(self, name: str) -> bool:
        """True if the property was set, be it to a null String (PRP-05)."""
        return name in self._property_values()

    def get_property_names(self) -> Iterator[str]:
        """The names of all properties, once, in no promised order (PRP-06). Headers are not among them."""
        return iter(tuple(self._property_values()))

    @property
    def properties(self) -> Mapping[str, PropertyValue]:
        """All properties by name in their own types: a read-only view that follows later changes (PRP-06)."""
        return MappingProxyType(self._property_values())

    def _property_values(self) -> dict[str, PropertyValue]:
        """The properties to read; decoded here on a received message."""
        properties = self._properties
        if properties is None:
            try:
                properties = unpack_properties(self._fields)
            except ProtocolError as error:
                raise MessageFormatException(str(error)) from error
            if self._count:
                properties[DELIVERY_COUNT] = self._count  # JSX-01
            self._modes |= SLOW_TO_SEND
            self._properties = properties
        return properties


def packed_properties(properties: dict[str, PropertyValue]) -> tuple[bytes | None, str | None]:
    if not ON_RECEIVE.isdisjoint(properties):
        properties = {name: value for name, value in properties.items() if name not in ON_RECEIVE}  # JSX-11
    try:
        return pack_properties(properties)
    except FormatError as error:
        raise MessageFormatException(str(error), error.code.name) from error
