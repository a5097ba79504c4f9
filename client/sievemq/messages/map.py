"""MapMessage: named typed values (§3.11.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar

from sievemq.exceptions import MessageFormatException, MessageNotWriteableException
from sievemq.messages.base import MAX_REPR_BYTES, PENDING, Message, check_type
from sievemq.messages.bytes import Buffer, slice_of
from sievemq.messages.modes import BODY_READ_ONLY
from sievemq.messages.shown import not_set, short_mapping
from sievemq.messages.stream import _at
from sievemq.messages.xml import map_from_xml, map_to_xml
from sievemq_core.errors import FormatError
from sievemq_core.message.body import decode_map, encode_map
from sievemq_core.message.conversion import convert
from sievemq_core.message.envelope import BodyKind
from sievemq_core.message.values import BodyValue, FieldValue, PropertyValue, hold, normalise_field

T = TypeVar("T")


class MapMessage(Message):
    """A message whose body is named typed values. A read converts by the table of §3.11.3.

    Args:
        entries: set one by one as :meth:`set_object` does.
        properties: set one by one as ``set_object_property`` does.

    >>> message = MapMessage({"carrier": "UA", "delay": 12})
    >>> message.set_short("distance", 719)
    >>> message.get_long("distance"), message.get_string("delay"), message.get_string("gate")
    (719, '12', None)
    """

    __slots__ = ()
    _body_kind: ClassVar[int] = int(BodyKind.MAP)

    # _body: a dict of held values

    def __init__(
        self, entries: Mapping[str, FieldValue] | None = None, *, properties: Mapping[str, PropertyValue] | None = None
    ) -> None:
        Message.__init__(self)
        self._body = {}
        if entries is not None:
            for name, value in entries.items():
                self.set_object(name, value)
        if properties is not None:
            self._set_properties(properties)

    def clear_body(self) -> None:
        """Remove all entries and make the body writable (MSG-04, MOD-07)."""
        self._body = {}
        self._modes &= ~BODY_READ_ONLY

    def _entries(self) -> dict[str, BodyValue]:
        body = self._body
        if body is PENDING:
            packed = self._fields[12]
            try:
                body = {} if packed is None else decode_map(packed)
            except FormatError as error:
                raise MessageFormatException(str(error), error.code.name) from error
            self._body = body
        return body  # type: ignore[no-any-return]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _get(self, name: str, letter: str) -> Any:
        try:
            return convert(self._entries().get(name), letter)  # a name never set is a null (MAP-05)
        except FormatError as error:
            if name in self._entries():
                raise _at(f"entry {name!r:.60}", error) from error
            raise type(error)(f"entry {name!r:.60} {not_set(name, self._entries())} ({error})") from error

    def get_boolean(self, name: str) -> bool:
        """An entry as a boolean; False if null or never set (MAP-04).

        Raises:
            MessageFormatException: its type cannot be read as this one.
        """
        return self._get(name, "z")  # type: ignore[no-any-return]

    def get_byte(self, name: str) -> int:
        """An entry as a byte.

        Raises:
            MessageFormatException: its type cannot be read as this one.
            NumberFormatError: it is text that is no such number, null, or never set (NUL-02).
        """
        return self._get(name, "b")  # type: ignore[no-any-return]

    def get_short(self, name: str) -> int:
        """An entry as a short; errors as :meth:`get_byte`."""
        return self._get(name, "h")  # type: ignore[no-any-return]

    def get_char(self, name: str) -> str:
        """An entry as a char: only of a char (NUL-06); null is NullValueError (NUL-04)."""
        return self._get(name, "c")  # type: ignore[no-any-return]

    def get_int(self, name: str) -> int:
        """An entry as an int; errors as :meth:`get_byte`."""
        return self._get(name, "i")  # type: ignore[no-any-return]

    def get_long(self, name: str) -> int:
        """An entry as a long; errors as :meth:`get_byte`."""
        return self._get(name, "l")  # type: ignore[no-any-return]

    def get_float(self, name: str) -> float:
        """An entry as a float; null is NullValueError (NUL-03)."""
        return self._get(name, "f")  # type: ignore[no-any-return]

    def get_double(self, name: str) -> float:
        """An entry as a double; null is NullValueError (NUL-03)."""
        return self._get(name, "d")  # type: ignore[no-any-return]

    def get_string(self, name: str) -> str | None:
        """An entry as text; not of a byte[] (NUL-07)."""
        return self._get(name, "s")  # type: ignore[no-any-return]

    def get_bytes(self, name: str) -> bytes | None:
        """An entry as bytes: only of a byte[] (NUL-07)."""
        return self._get(name, "x")  # type: ignore[no-any-return]

    def get_object(self, name: str) -> BodyValue:
        """An entry in its own type: plain, or a wrapper where Python has no type for it; None if never set (NUL-11)."""
        return self._entries().get(name)

    def get_map_names(self) -> Iterator[str]:
        """The names of all entries, once, in no promised order; those with a null too (MAP-06)."""
        return iter(tuple(self._entries()))

    def item_exists(self, name: str) -> bool:
        """True if the entry was set, be it to a null (MAP-07)."""
        return name in self._entries()

    # -- writing ------------------------------------------------------------------------------------------------------

    def _writable(self, name: str) -> dict[str, BodyValue]:
        if self._modes & BODY_READ_ONLY:  # MAP-08
            raise MessageNotWriteableException(
                f"entry {name!r:.60} cannot be set: the body of a received message is read-only; clear_body() makes it "
                "empty and writable"
            )
        if not isinstance(name, str) or not name:  # MAP-01, MAP-11
            raise ValueError(f"an entry's name must be text and not empty, not {name!r:.60}")
        return self._body  # type: ignore[no-any-return]

    def _set(self, name: str, letter: str, value: object) -> None:
        entries = self._writable(name)
        try:
            entries[name] = hold(letter, value)
        except FormatError as error:
            raise _at(f"entry {name!r:.60}", error) from error

    def set_boolean(self, name: str, value: bool) -> None:
        """Set a boolean entry.

        Raises:
            MessageNotWriteableException: the message was received; call :meth:`clear_body` first (MAP-08).
            ValueError: the name is None, empty or no text (MAP-01).
            MessageFormatException: the value is of another type or out of range.
            NullValueError: the value is None.
        """
        self._set(name, "z", value)

    def set_byte(self, name: str, value: int) -> None:
        """Set a byte entry, -128 to 127; errors as :meth:`set_boolean`."""
        self._set(name, "b", value)

    def set_short(self, name: str, value: int) -> None:
        """Set a short entry, 16 bits signed (MAP-01)."""
        self._set(name, "h", value)

    def set_char(self, name: str, value: str) -> None:
        """Set a char entry: one UTF-16 code unit."""
        self._set(name, "c", value)

    def set_int(self, name: str, value: int) -> None:
        """Set an int entry, 32 bits signed (MAP-01)."""
        self._set(name, "i", value)

    def set_long(self, name: str, value: int) -> None:
        """Set a long entry, 64 bits signed (MAP-01)."""
        self._set(name, "l", value)

    def set_float(self, name: str, value: float) -> None:
        """Set a float entry, rounded to IEEE single (MAP-01)."""
        self._set(name, "f", value)

    def set_double(self, name: str, value: float) -> None:
        """Set a double entry (MAP-01)."""
        self._set(name, "d", value)

    def set_string(self, name: str, value: str | None) -> None:
        """Set a String entry; None is a null (MAP-01)."""
        self._set(name, "s", value)

    def set_bytes(self, name: str, value: Buffer | None, offset: int = 0, length: int | None = None) -> None:
        """Set a byte[] entry, a copy; None is a null (MAP-02).

        Raises:
            IndexError: offset and length do not lie within the data.
        """
        entries = self._writable(name)
        entries[name] = None if value is None else slice_of(value, offset, length)

    def set_object(self, name: str, value: FieldValue) -> None:
        """Set an entry of the type that the value has: bool, int, float, str, bytes, None or a wrapper (MAP-03)."""
        entries = self._writable(name)
        try:
            entries[name] = normalise_field(value)
        except FormatError as error:
            raised = _at(f"entry {name!r:.60}", error)
            if isinstance(value, (dict, list, tuple, set, frozenset)):
                text = f"{raised}. Nested data is sent as Json(…), or by create_object_message(…)"
                raised = MessageFormatException(text, error.code.name)
            raise raised from error

    # -- body as a whole ----------------------------------------------------------------------------------------------

    def get_body(self, body_type: type[T]) -> T | None:
        """All entries as a new ``dict`` (or ``object``) in their own types, ``{}`` without entries (MAP-09).

        Returns:
            None for another type if there are no entries (MSG-09).

        Raises:
            MessageFormatException: another type.
        """
        entries = self._entries()
        check_type(body_type)
        if issubclass(dict, body_type):
            return dict(entries)  # type: ignore[return-value]
        if not entries:
            return None
        raise MessageFormatException(f"the body of a MapMessage is a dict and not {body_type.__name__}")

    def is_body_assignable_to(self, body_type: type) -> bool:
        """True for ``dict`` and its bases, and without entries for every type (MSG-12)."""
        check_type(body_type)
        return not self._entries() or issubclass(dict, body_type)

    def to_xml(self) -> str:
        """The entries as ``<map><delay dt='i4'>12</delay>…</map>`` (D-20, XML-02).

        Raises:
            MessageFormatException: a name or text with a character that XML cannot carry.

        >>> MapMessage({"carrier": "UA", "delay": 12}).to_xml()
        "<map><carrier>UA</carrier><delay dt='i4'>12</delay></map>"
        """
        return map_to_xml(self._entries())

    @classmethod
    def from_xml(cls, text: str | bytes) -> Self:
        """A message of the entries of such a document (D-20). Safe with documents from strangers.

        Raises:
            MessageFormatException: the document is not well formed or not of that form.
        """
        message = cls()
        message._body.update(map_from_xml(text))
        return message

    def _encode_body(self) -> bytes | None:
        body = self._body
        if body is PENDING:
            return self._fields[12]  # type: ignore[no-any-return]
        try:
            return encode_map(body) if body else None
        except FormatError as error:
            raise MessageFormatException(str(error), error.code.name) from error

    def _body_repr(self) -> str:
        body = self._body
        if body is PENDING:
            packed = self._fields[12]
            if packed is None:
                return ""
            if len(packed) > MAX_REPR_BYTES:
                return f"<{len(packed)} bytes not decoded>"
            try:
                body = decode_map(packed)
            except FormatError:
                return f"<{len(packed)} bytes that cannot be decoded>"
        return short_mapping(body) if body else ""
