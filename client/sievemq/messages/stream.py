"""StreamMessage: a sequence of typed fields, written and read with a pointer (§3.11.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast

from sievemq.exceptions import (
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
)
from sievemq.messages.base import MAX_REPR_BYTES, PENDING, Message, check_type
from sievemq.messages.bytes import Buffer, slice_of, writable_buffer
from sievemq.messages.modes import BODY_READ_ONLY
from sievemq.messages.shown import short
from sievemq.messages.xml import stream_from_xml, stream_to_xml
from sievemq_core.errors import FormatError, NumberFormatError
from sievemq_core.message.body import decode_stream, encode_stream
from sievemq_core.message.conversion import convert
from sievemq_core.message.envelope import BodyKind
from sievemq_core.message.values import BodyValue, FieldValue, PropertyValue, hold, normalise_field

T = TypeVar("T")


class StreamMessage(Message):
    """A message whose body is a sequence of typed fields.

    It is write-only while it is being made and read-only, from the start, after :meth:`reset` and on receipt. A read
    converts the next field by the table of §3.11.3; a failed one leaves the pointer where it is (STR-14).

    Args:
        values: fields to begin with, as :meth:`write_object` takes them; more can be written behind them.
        properties: set one by one as ``set_object_property`` does.

    >>> message = StreamMessage([1, "two"])
    >>> message.write_double(3.0)
    >>> message.reset()
    >>> message.read_string(), message.read_string(), message.read_string()
    ('1', 'two', '3.0')
    """

    __slots__ = ("_index", "_part")
    _body_kind: ClassVar[int] = int(BodyKind.STREAM)

    _index: int  # of the next field
    _part: int  # bytes read of a byte[] field that is not finished; -1 if there is none

    # _body: a list of held values

    def __init__(
        self, values: Iterable[FieldValue] | None = None, *, properties: Mapping[str, PropertyValue] | None = None
    ) -> None:
        Message.__init__(self)
        self._body = []
        self._index = 0
        self._part = -1
        if values is not None:
            for value in values:
                self.write_object(value)
        if properties is not None:
            self._set_properties(properties)

    # -- modes (MOD-01 to MOD-03) -------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Make the body read-only and put the pointer at its start (STR-17).

        Raises:
            MessageFormatException: the body that arrived cannot be decoded (MOD-10).
        """
        self._modes |= BODY_READ_ONLY
        self._fields_to_read()
        self._index = 0
        self._part = -1

    def clear_body(self) -> None:
        """Make the body empty and write-only (MSG-04, MOD-02)."""
        self._body = []
        self._index = 0
        self._part = -1
        self._modes &= ~BODY_READ_ONLY

    def _fields_to_read(self) -> list[BodyValue]:
        if not self._modes & BODY_READ_ONLY:
            raise MessageNotReadableException("the body is write-only; reset() makes it readable")  # STR-15
        body = self._body
        if body is PENDING:
            packed = self._fields[12]
            try:
                body = [] if packed is None else decode_stream(packed)
            except FormatError as error:
                raise MessageFormatException(str(error), error.code.name) from error
            self._body = body
            self._index = 0
            self._part = -1
        return body  # type: ignore[no-any-return]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _next(self) -> BodyValue:
        """The field under the pointer, which stays."""
        fields = self._fields_to_read()
        if self._part >= 0:  # STR-11
            raise MessageFormatException(
                f"field {self._index} is a byte[] that read_bytes has read in part; read it until it returns -1 or "
                "less than the buffer holds"
            )
        if self._index >= len(fields):
            raise MessageEOFException(f"the stream has {len(fields)} fields and all have been read")  # STR-04
        return fields[self._index]

    def _read(self, letter: str) -> Any:
        value = self._next()
        try:
            value = convert(value, letter)
        except FormatError as error:
            raise _at(f"field {self._index}", error) from error  # STR-14: the pointer stays
        self._index += 1
        return value

    def read_boolean(self) -> bool:
        """Read the next field as a boolean.

        Raises:
            MessageFormatException: its type cannot be read as this one, or a byte[] field is read in part (STR-11).
            MessageEOFException: all fields have been read.
            MessageNotReadableException: the body is write-only.
        """
        return self._read("z")  # type: ignore[no-any-return]

    def read_byte(self) -> int:
        """Read the next field as a byte.

        Raises:
            NumberFormatError: it is text that is no such number, or null (NUL-02); further as :meth:`read_boolean`.
        """
        return self._read("b")  # type: ignore[no-any-return]

    def read_short(self) -> int:
        """Read the next field as a short; errors as :meth:`read_byte`."""
        return self._read("h")  # type: ignore[no-any-return]

    def read_char(self) -> str:
        """Read the next field as a char: only of a char (NUL-06); null is NullValueError (NUL-04)."""
        return self._read("c")  # type: ignore[no-any-return]

    def read_int(self) -> int:
        """Read the next field as an int; errors as :meth:`read_byte`."""
        return self._read("i")  # type: ignore[no-any-return]

    def read_long(self) -> int:
        """Read the next field as a long; errors as :meth:`read_byte`."""
        return self._read("l")  # type: ignore[no-any-return]

    def read_float(self) -> float:
        """Read the next field as a float; null is NullValueError (NUL-03)."""
        return self._read("f")  # type: ignore[no-any-return]

    def read_double(self) -> float:
        """Read the next field as a double; null is NullValueError (NUL-03)."""
        return self._read("d")  # type: ignore[no-any-return]

    def read_string(self) -> str | None:
        """Read the next field as text; not of a byte[] (NUL-07)."""
        return self._read("s")  # type: ignore[no-any-return]

    def read_object(self) -> BodyValue:
        """Read the next field in its own type (STR-05): plain, or a wrapper where Python has no type for it."""
        value = self._next()
        self._index += 1
        return value

    def read_bytes(self, buffer: bytearray | memoryview) -> int:
        """Read part of a byte[] field into a buffer (STR-06).

        Less than the buffer holds means that the field is finished (STR-07); as much as it holds means that another
        call is needed, which gives the rest or -1 (STR-08). No other read is allowed in between (STR-11).

        Returns:
            The number of bytes read; 0 for an empty field (STR-09); -1 for a null or when the field is used up.

        Raises:
            MessageFormatException: the field is no byte[] (STR-12).
        """
        fields = self._fields_to_read()
        view = writable_buffer(buffer)
        part = self._part
        if part < 0:
            value = self._next()
            if value is None:  # STR-10
                self._index += 1
                return -1
            if type(value) is not bytes:
                raise MessageFormatException(f"field {self._index} is no byte[] but holds {short(value)}")
            part = 0
            if not value:
                self._index += 1
                return 0
        else:
            value = cast("bytes", fields[self._index])
            if part >= len(value):
                self._index += 1
                self._part = -1
                return -1
        chunk = value[part : part + len(view)]
        count = len(chunk)
        view[:count] = chunk
        if count < len(view):
            self._index += 1
            self._part = -1
        else:
            self._part = part + count
        return count

    # -- writing ------------------------------------------------------------------------------------------------------

    def _writable(self) -> list[BodyValue]:
        if self._modes & BODY_READ_ONLY:  # STR-16
            raise MessageNotWriteableException("the body is read-only; clear_body() makes it empty and writable")
        return self._body  # type: ignore[no-any-return]

    def _write(self, letter: str, value: object) -> None:
        fields = self._writable()
        try:
            fields.append(hold(letter, value))
        except FormatError as error:
            raise _at(f"field {len(fields)}", error) from error

    def write_boolean(self, value: bool) -> None:
        """Append a boolean field (STR-01).

        Raises:
            MessageNotWriteableException: the body is read-only.
            MessageFormatException: the value is of another type or out of range.
            NullValueError: the value is None.
        """
        self._write("z", value)

    def write_byte(self, value: int) -> None:
        """Append a byte field, -128 to 127; errors as :meth:`write_boolean`."""
        self._write("b", value)

    def write_short(self, value: int) -> None:
        """Append a short field, 16 bits signed (STR-01)."""
        self._write("h", value)

    def write_char(self, value: str) -> None:
        """Append a char field: one UTF-16 code unit."""
        self._write("c", value)

    def write_int(self, value: int) -> None:
        """Append an int field, 32 bits signed (STR-01)."""
        self._write("i", value)

    def write_long(self, value: int) -> None:
        """Append a long field, 64 bits signed (STR-01)."""
        self._write("l", value)

    def write_float(self, value: float) -> None:
        """Append a float field, rounded to IEEE single (STR-01)."""
        self._write("f", value)

    def write_double(self, value: float) -> None:
        """Append a double field (STR-01)."""
        self._write("d", value)

    def write_string(self, value: str | None) -> None:
        """Append a String field; None is a null (STR-01)."""
        self._write("s", value)

    def write_bytes(self, data: Buffer | None, offset: int = 0, length: int | None = None) -> None:
        """Append a byte[] field, a copy; two writes are two fields, None is a null (STR-02).

        Raises:
            IndexError: offset and length do not lie within the data.
        """
        self._writable().append(None if data is None else slice_of(data, offset, length))

    def write_object(self, value: FieldValue) -> None:
        """Append a field of the type that the value has: bool, int, float, str, bytes, None or a wrapper (STR-03)."""
        fields = self._writable()
        try:
            fields.append(normalise_field(value))
        except FormatError as error:
            raise _at(f"field {len(fields)}", error) from error

    # -- body as a whole ----------------------------------------------------------------------------------------------

    def get_body(self, body_type: type[T]) -> NoReturn:
        """Not for a StreamMessage.

        Raises:
            MessageFormatException: always (STR-18, MSG-07).
        """
        check_type(body_type)
        raise MessageFormatException("a StreamMessage has no body as a whole; read its fields")

    def is_body_assignable_to(self, body_type: type) -> bool:
        """Always False (MSG-12)."""
        check_type(body_type)
        return False

    def to_xml(self) -> str:
        """The fields as ``<stream><elt dt='i4'>7</elt>…</stream>``, whatever mode and pointer (D-20, XML-01).

        Raises:
            MessageFormatException: text with a character that XML cannot carry.
        """
        body = self._body
        return stream_to_xml(self._fields_to_read() if body is PENDING else body)

    @classmethod
    def from_xml(cls, text: str | bytes) -> Self:
        """A message, write-only, of the fields of such a document (D-20). Safe with documents from strangers.

        Raises:
            MessageFormatException: the document is not well formed or not of that form.
        """
        message = cls()
        message._body.extend(stream_from_xml(text))
        return message

    def _encode_body(self) -> bytes | None:
        body = self._body
        if body is PENDING:
            return self._fields[12]  # type: ignore[no-any-return]
        try:
            return encode_stream(body) if body else None
        except FormatError as error:
            raise MessageFormatException(str(error), error.code.name) from error

    def _completed(self) -> None:
        self.reset()  # CPL-15

    def _body_repr(self) -> str:
        body = self._body
        if body is PENDING:
            packed = self._fields[12]
            if packed is None:
                return ""
            if len(packed) > MAX_REPR_BYTES:
                return f"<{len(packed)} bytes not decoded>"
            try:
                body = decode_stream(packed)
            except FormatError:
                return f"<{len(packed)} bytes that cannot be decoded>"
        shown = [short(value) for value in body[:12]]
        if len(body) > 12:
            shown.append(f"… {len(body) - 12} more")
        return f"[{', '.join(shown)}]" if body else ""


def _at(where: str, error: FormatError) -> Exception:
    """The API's exception for an error of the core, with the place in its text."""
    text = f"{where}: {error}"
    if isinstance(error, NullValueError):
        return NullValueError(text)
    if isinstance(error, NumberFormatError):
        return NumberFormatError(text)
    return MessageFormatException(text, error.code.name)
