"""BytesMessage: raw bytes, written and read with a pointer (§3.11.1). They carry no types (BYT-18)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any, ClassVar, Final, TypeVar

from sievemq.exceptions import (
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
)
from sievemq.messages.base import NEW_FIELDS, PENDING, Message, check_type
from sievemq.messages.modes import BODY_READ_ONLY
from sievemq.messages.shown import short
from sievemq_core.errors import FormatError
from sievemq_core.message.envelope import BodyKind
from sievemq_core.message.values import FieldValue, PropertyValue, hold, letter_of, normalise_field

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

# All numbers are big-endian.
_BYTE: Final = Struct(">b")
_UNSIGNED_BYTE: Final = Struct(">B")
_SHORT: Final = Struct(">h")
_UNSIGNED_SHORT: Final = Struct(">H")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")

_MAX_UTF_BYTES: Final = 65_535


class BytesMessage(Message):
    """A message whose body is bytes.

    It is write-only while it is being made and read-only, from the start, after :meth:`reset` and on receipt.

    Args:
        data: bytes to begin with; more can be written behind them.
        properties: set one by one as ``set_object_property`` does.

    >>> message = BytesMessage()
    >>> message.write_int(7)
    >>> message.write_utf("seven")
    >>> message.reset()
    >>> message.read_int(), message.read_utf(), message.get_body_length()
    (7, 'seven', 11)
    """

    __slots__ = ("_position",)
    _body_kind: ClassVar[int] = int(BodyKind.BYTES)

    _position: int  # of the next read; set when the body becomes readable

    # _body: bytes, or while write-only a bytearray once something is written behind the given bytes

    def __init__(self, data: Buffer | None = None, *, properties: Mapping[str, PropertyValue] | None = None) -> None:
        # Message.__init__, written out: one call less for every message of an application that sends many.
        self._fields = NEW_FIELDS
        self._properties = {}
        self._modes = self._count = 0
        self._destination = self._acknowledge = None
        self._redelivered = False
        if data.__class__ is bytes:
            self._body = data
        else:
            self._body = b""
            if data is not None:
                self.write_bytes(data)
        if properties is not None:
            self._set_properties(properties)

    # -- modes (MOD-01 to MOD-05) -------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Make the body read-only and put the pointer at its start (BYT-19)."""
        if self._modes & BODY_READ_ONLY:
            self._readable()
        else:
            self._body = bytes(self._body)
            self._modes |= BODY_READ_ONLY
        self._position = 0

    def clear_body(self) -> None:
        """Make the body empty and write-only (MSG-04, MOD-02)."""
        self._body = b""
        self._position = 0
        self._modes &= ~BODY_READ_ONLY

    def get_body_length(self) -> int:
        """Bytes in the body, wherever the pointer is (BYT-01).

        Raises:
            MessageNotReadableException: the body is write-only (MOD-04).
        """
        return len(self._readable())

    def _readable(self) -> bytes:
        if not self._modes & BODY_READ_ONLY:
            raise MessageNotReadableException("the body is write-only; reset() makes it readable")
        body = self._body
        if body is PENDING:
            body = self._body = self._fields[12] or b""
            self._position = 0
        return body  # type: ignore[no-any-return]

    def _writable(self) -> bytearray:
        if self._modes & BODY_READ_ONLY:
            raise MessageNotWriteableException("the body is read-only; clear_body() makes it empty and writable")
        body = self._body
        if type(body) is not bytearray:
            body = self._body = bytearray(body)
        return body

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, form: Struct) -> Any:
        body = self._readable()
        position = self._position
        try:
            (value,) = form.unpack_from(body, position)
        except struct_error:
            raise self._end(form.size) from None
        self._position = position + form.size
        return value

    def _end(self, wanted: int) -> MessageEOFException:
        # the pointer stays, so that a smaller read still succeeds (BYT-20, BYT-21, D-35)
        left = len(self._body) - self._position
        return MessageEOFException(f"{wanted} bytes wanted at position {self._position}, {left} left")

    def read_boolean(self) -> bool:
        """Read 1 byte; any but 0 is true (BYT-02).

        Raises:
            MessageEOFException: too few bytes are left.
            MessageNotReadableException: the body is write-only.
        """
        return self._read(_BYTE) != 0  # type: ignore[no-any-return]

    def read_byte(self) -> int:
        """Read 1 byte as -128 to 127 (BYT-03); errors as :meth:`read_boolean`."""
        return self._read(_BYTE)  # type: ignore[no-any-return]

    def read_unsigned_byte(self) -> int:
        """Read 1 byte as 0 to 255 (BYT-04)."""
        return self._read(_UNSIGNED_BYTE)  # type: ignore[no-any-return]

    def read_short(self) -> int:
        """Read 2 bytes, signed (BYT-05)."""
        return self._read(_SHORT)  # type: ignore[no-any-return]

    def read_unsigned_short(self) -> int:
        """Read 2 bytes as 0 to 65535 (BYT-06)."""
        return self._read(_UNSIGNED_SHORT)  # type: ignore[no-any-return]

    def read_char(self) -> str:
        """Read 2 bytes as one UTF-16 code unit (BYT-07)."""
        return chr(self._read(_UNSIGNED_SHORT))

    def read_int(self) -> int:
        """Read 4 bytes, signed (BYT-08)."""
        return self._read(_INT)  # type: ignore[no-any-return]

    def read_long(self) -> int:
        """Read 8 bytes, signed (BYT-09)."""
        return self._read(_LONG)  # type: ignore[no-any-return]

    def read_float(self) -> float:
        """Read an IEEE single (BYT-10)."""
        return self._read(_FLOAT)  # type: ignore[no-any-return]

    def read_double(self) -> float:
        """Read an IEEE double (BYT-11)."""
        return self._read(_DOUBLE)  # type: ignore[no-any-return]

    def read_utf(self) -> str:
        """Read a 2-byte length and as many bytes of modified UTF-8 (BYT-12).

        Raises:
            MessageFormatException: the bytes are not modified UTF-8; the pointer stays (BYT-20).
        """
        body = self._readable()
        start = self._position + 2
        if start > len(body):
            raise self._end(2)
        end = start + int.from_bytes(body[start - 2 : start])
        if end > len(body):
            raise self._end(end - self._position)
        text = _decode_utf(body[start:end])
        self._position = end
        return text

    def read_bytes(self, buffer: bytearray | memoryview, length: int | None = None) -> int:
        """Fill a buffer as far as data lasts (BYT-13).

        Args:
            buffer: what to fill, from its start.
            length: fill at most this many bytes of it; the whole if not given.

        Returns:
            The number of bytes read; -1 if the body is used up.

        Raises:
            IndexError: the length is negative or larger than the buffer; nothing is read (BYT-14).
        """
        body = self._readable()
        view = writable_buffer(buffer)
        if length is None:
            length = len(view)
        elif not 0 <= length <= len(view):
            raise IndexError(f"a length of {length} for a buffer of {len(view)} bytes")
        chunk = body[self._position : self._position + length]
        if not chunk and self._position >= len(body):
            return -1
        view[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)

    # -- writing ------------------------------------------------------------------------------------------------------

    def write_boolean(self, value: bool) -> None:
        """Write 1 byte: 1 or 0 (BYT-02).

        Raises:
            MessageNotWriteableException: the body is read-only.
            MessageFormatException: the value is of another type or out of range.
            NullValueError: the value is None (BYT-17).
        """
        self._write("z", value)

    def write_byte(self, value: int) -> None:
        """Write 1 byte, -128 to 127 (BYT-03); errors as :meth:`write_boolean`."""
        self._write("b", value)

    def write_short(self, value: int) -> None:
        """Write 2 bytes (BYT-05)."""
        self._write("h", value)

    def write_char(self, value: str) -> None:
        """Write one UTF-16 code unit in 2 bytes (BYT-07)."""
        self._write("c", value)

    def write_int(self, value: int) -> None:
        """Write 4 bytes (BYT-08)."""
        self._write("i", value)

    def write_long(self, value: int) -> None:
        """Write 8 bytes (BYT-09)."""
        self._write("l", value)

    def write_float(self, value: float) -> None:
        """Write an IEEE single (BYT-10)."""
        self._write("f", value)

    def write_double(self, value: float) -> None:
        """Write an IEEE double (BYT-11)."""
        self._write("d", value)

    def write_utf(self, value: str) -> None:
        """Write a 2-byte length and modified UTF-8 (BYT-12).

        Raises:
            MessageFormatException: more than 65535 bytes when encoded; nothing is written.
        """
        self._write("s", value)

    def write_bytes(self, data: Buffer, offset: int = 0, length: int | None = None) -> None:
        """Write raw bytes without a length; two writes join (BYT-15).

        Args:
            data: copied.
            offset: first byte to write.
            length: how many; all from the offset on if not given.

        Raises:
            IndexError: offset and length do not lie within the data.
        """
        body = self._writable()
        body += slice_of(data, offset, length)

    def write_object(self, value: FieldValue) -> None:
        """Write a value by its type: bool, int, float, str (as :meth:`write_utf`), bytes or a wrapper (BYT-16)."""
        body = self._writable()
        if value is None:
            raise _null()
        try:
            held = normalise_field(value)
        except FormatError as error:
            raise MessageFormatException(str(error), error.code.name) from error
        body += _ENCODERS[letter_of(held)](held)

    def _write(self, letter: str, value: object) -> None:
        body = self._writable()
        if value is None:
            raise _null()
        try:
            held = hold(letter, value)
        except FormatError as error:
            raise MessageFormatException(str(error), error.code.name) from error
        body += _ENCODERS[letter](held)

    # -- body as a whole ----------------------------------------------------------------------------------------------

    def get_body(self, body_type: type[T]) -> T | None:
        """The bytes as ``bytes`` or ``object``; resets the message before and after (MSG-10, MOD-05).

        Returns:
            None for another type if there are no bytes (MSG-09).

        Raises:
            MessageFormatException: another type.
        """
        if body_type is bytes:  # most often of a message that was received
            whole = self._body
            if whole is PENDING:
                whole = self._body = self._fields[12] or b""
                self._position = 0
                return whole  # type: ignore[return-value]
        self.reset()
        body = self._readable()
        check_type(body_type)
        if issubclass(bytes, body_type):
            return body  # type: ignore[return-value]
        if not body:
            return None
        raise MessageFormatException(f"the body of a BytesMessage is bytes and not {body_type.__name__}")

    def is_body_assignable_to(self, body_type: type) -> bool:
        """True for ``bytes`` and its bases, and without a byte for every type (MSG-12)."""
        check_type(body_type)
        body = self._fields[12] if self._body is PENDING else self._body
        return not body or issubclass(bytes, body_type)

    def _encode_body(self) -> bytes | None:
        body = self._body
        if body is PENDING:
            return self._fields[12]  # type: ignore[no-any-return]
        return bytes(body) or None  # a copy only of bytes that were written piece by piece

    _completed = reset  # CPL-15

    def _body_repr(self) -> str:
        body = self._fields[12] if self._body is PENDING else self._body
        return short(bytes(body)) if body else ""


def slice_of(data: object, offset: int, length: int | None) -> bytes:
    """The `length` bytes from `offset` on, which later changes of `data` do not affect.

    Raises:
        NullValueError: `data` is None.
        MessageFormatException: it is not bytes.
        IndexError: the slice does not lie within the data.
    """
    if type(data) is bytes and length is None and offset == 0:
        return data
    if not isinstance(data, (bytes, bytearray, memoryview)):
        if data is None:
            raise _null()
        raise MessageFormatException(f"bytes, bytearray or memoryview are needed, not {type(data).__name__}")
    data = bytes(data)
    if length is None:
        length = len(data) - offset
    if offset < 0 or length < 0 or offset + length > len(data):
        raise IndexError(f"offset {offset} and length {length} do not lie within {len(data)} bytes")
    return data[offset : offset + length]


def writable_buffer(buffer: object) -> memoryview:
    """A buffer that a read can fill, as bytes.

    Raises:
        NullValueError: it is None.
        TypeError: it is not a writable buffer.
    """
    if buffer is None:
        raise NullValueError("None where a buffer to fill is needed")
    view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
    if view.readonly:
        raise TypeError(f"a buffer that can be filled is needed, such as a bytearray, not {type(buffer).__name__}")
    return view


def _null() -> NullValueError:
    return NullValueError("a BytesMessage has no null: None cannot be written")


# -- modified UTF-8: U+0000 as C0 80, characters above U+FFFF as two surrogates of three bytes each (BYT-12) ----------

_ABOVE: Final = re.compile("[\U00010000-\U0010ffff]")


def _encode_utf(text: str) -> bytes:
    data = _ABOVE.sub(_surrogates, text).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(data) > _MAX_UTF_BYTES:
        raise MessageFormatException(
            f"write_utf takes text of at most {_MAX_UTF_BYTES} bytes when encoded, this one has {len(data)}; "
            "write_bytes(text.encode()) has no such limit"
        )
    return len(data).to_bytes(2) + data


def _surrogates(match: re.Match[str]) -> str:
    point = ord(match[0]) - 0x10000
    return chr(0xD800 + (point >> 10)) + chr(0xDC00 + (point & 0x3FF))


def _decode_utf(data: bytes) -> str:
    try:
        if data.isascii():
            return data.decode("ascii")
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise MessageFormatException(f"not modified UTF-8: {error}") from error
    if _ABOVE.search(text):
        raise MessageFormatException("not modified UTF-8: it has a character of four bytes")
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")  # joins surrogates


def _encode_bytes(value: Any) -> bytes:
    return bytes(value)


def _encode_char(value: str) -> bytes:
    return ord(value).to_bytes(2)


_ENCODERS: Final[dict[str, Any]] = {
    "z": _BYTE.pack,
    "b": _BYTE.pack,
    "h": _SHORT.pack,
    "i": _INT.pack,
    "l": _LONG.pack,
    "f": _FLOAT.pack,
    "d": _DOUBLE.pack,
    "c": _encode_char,
    "s": _encode_utf,
    "x": _encode_bytes,
}
