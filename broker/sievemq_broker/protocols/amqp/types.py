"""The type system of AMQP 1.0 (part 1 of the specification): values to bytes and back.

    AMQP                      Python
    null, boolean, string     None, bool, str
    byte, short               Byte, Short        (sievemq_core.message.values)
    int; long                 int in 32 bits, Int; Long, or any larger int
    ubyte … ulong             UByte, UShort, UInt, ULong
    float, double             Float, float
    binary, symbol, uuid      bytes, Symbol, uuid.UUID
    char, timestamp           Char, Timestamp    (milliseconds since 1970)
    decimal32 … decimal128    Decimal            (its bytes: nothing here computes with it)
    list, map, array          list, dict, Array
    described types           Described

What a peer sends is checked before anything is made of it: every size against the bytes that are left, every number of
items against the bytes that they need, and the depth.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from sievemq_broker.protocols.foreign import CONVERTED_VALUES
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError, shown
from sievemq_core.message.values import Byte, Double, Float, Int, Long, Short

#: Values in a performative, and in the sections of a message: each takes time, and all are read in one turn.
VALUES: Final = 2_000
MESSAGE_VALUES: Final = CONVERTED_VALUES

#: Items of an array that take no bytes: null, true, false, zero, the empty list.
MAX_EMPTY: Final = 256

#: How deep lists, maps and described types may be nested. A message of another client has two or three levels.
MAX_DEPTH: Final = 32


@mypyc_attr(native_class=False)
class UByte(int):
    """8 bits without sign."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class UShort(int):
    """16 bits without sign."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class UInt(int):
    """32 bits without sign."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class ULong(int):
    """64 bits without sign."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Symbol(str):
    """A name out of a specification; ASCII."""

    __slots__ = ()


@mypyc_attr(native_class=False)
class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Decimal(NamedTuple):
    """A decimal number as it travels.

    Attributes:
        code: 0x74, 0x84 or 0x94.
        data: 4, 8 or 16 bytes.
    """

    code: int
    data: bytes


class Described(NamedTuple):
    """A value with a descriptor, which says what it is.

    Attributes:
        descriptor: an ULong or a Symbol, as a rule.
        value: any value.
    """

    descriptor: Any
    value: Any


@mypyc_attr(native_class=False)
class Array(list[Any]):
    """Values of one type.

    Args:
        data: the array as it arrived; it is passed on so. None for one that is made here.
    """

    __slots__ = ("code", "data")

    def __init__(self, items: list[Any], code: int, data: bytes | None = None) -> None:
        super().__init__(items)
        self.code = code
        self.data = data


def malformed(text: str) -> ProtocolError:
    return ProtocolError(text, ErrorCode.MALFORMED_FRAME)


# -- to bytes ---------------------------------------------------------------------------------------------------------

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_F32: Final = struct.Struct(">f")
_F64: Final = struct.Struct(">d")


def encode(value: object, out: bytearray) -> None:
    """Append a value, in its shortest form.

    Raises:
        TypeError: of another type.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise TypeError(f"AMQP has no type for {type(value).__name__}")
    encoder(value, out)


def _encode_bool(value: Any, out: bytearray) -> None:
    out.append(0x41 if value else 0x42)


def _encode_uint(value: Any, out: bytearray) -> None:
    if value == 0:
        out.append(0x43)
    elif value < 256:
        out += bytes((0x52, value))
    else:
        out.append(0x70)
        out += _U32.pack(value)


def _encode_ulong(value: Any, out: bytearray) -> None:
    if value == 0:
        out.append(0x44)
    elif value < 256:
        out += bytes((0x53, value))
    else:
        out.append(0x80)
        out += _U64.pack(value)


def _encode_int(value: Any, out: bytearray) -> None:
    if -128 <= value < 128:
        out += bytes((0x54, value & 255))
    elif -(2**31) <= value < 2**31:
        out.append(0x71)
        out += _I32.pack(value)
    else:
        _encode_long(value, out)


def _encode_long(value: Any, out: bytearray) -> None:
    if -128 <= value < 128:
        out += bytes((0x55, value & 255))
    else:
        out.append(0x81)
        out += _I64.pack(value)


def _fixed(code: int, packed: Callable[[Any], bytes]) -> Callable[[Any, bytearray], None]:
    def encode_fixed(value: Any, out: bytearray) -> None:
        out.append(code)
        out += packed(value)

    return encode_fixed


def _variable(short: int, long: int, data: bytes, out: bytearray) -> None:
    if len(data) < 256:
        out += bytes((short, len(data)))
    else:
        out.append(long)
        out += _U32.pack(len(data))
    out += data


def _encode_compound(short: int, items: list[Any], out: bytearray) -> None:
    """A list (0xc0) or map (0xc1)."""
    packed = bytearray()
    for item in items:
        encode(item, packed)
    encode_packed(short, packed, len(items), out)


def encode_packed(short: int, packed: bytes | bytearray, count: int, out: bytearray) -> None:
    """Append a list (0xc0) or map (0xc1) whose items are encoded already."""
    if len(packed) < 255 and count < 256:
        out += bytes((short, len(packed) + 1, count))
    else:
        out.append(short + 0x10)
        out += _U32.pack(len(packed) + 4)
        out += _U32.pack(count)
    out += packed


def encoder_of(kind: type) -> Callable[[Any, bytearray], None]:
    """As :func:`encode`, for values of one type."""
    return _ENCODERS[kind]


def _encode_list(value: Any, out: bytearray) -> None:
    if value:
        _encode_compound(0xC0, value, out)
    else:
        out.append(0x45)


def _encode_map(value: Any, out: bytearray) -> None:
    _encode_compound(0xC1, [part for pair in value.items() for part in pair], out)


def _encode_array(value: Any, out: bytearray) -> None:
    if value.data is not None:
        out += value.data
        return
    packed = bytearray()
    for item in value:
        _encode_item(value.code, item, packed)
    out.append(0xF0)
    out += _U32.pack(len(packed) + 5)
    out += _U32.pack(len(value))
    out.append(value.code)
    out += packed


def _encode_item(code: int, item: Any, out: bytearray) -> None:
    """An item of an array, which has one constructor for all."""
    if code in (0xA3, 0xB3, 0xA1, 0xB1, 0xA0, 0xB0):
        data = item if isinstance(item, bytes) else item.encode()
        out += bytes((len(data),)) if code < 0xB0 else _U32.pack(len(data))
        out += data
        return
    fixed = _ITEM.get(code)
    if fixed is None:
        raise TypeError(f"arrays of the constructor {code:#04x} are not written")
    out += fixed(item)


_ITEM: Final[dict[int, Callable[[Any], bytes]]] = {
    0x50: lambda item: bytes((item,)), 0x51: lambda item: bytes((item & 255,)), 0x56: lambda item: bytes((bool(item),)),
    0x60: _U16.pack, 0x61: _I16.pack, 0x70: _U32.pack, 0x71: _I32.pack, 0x72: _F32.pack, 0x80: _U64.pack,
    0x81: _I64.pack, 0x82: _F64.pack, 0x83: _I64.pack, 0x98: lambda item: item.bytes,
    0x73: lambda item: item.encode("utf-32-be"),
}  # fmt: skip


def _encode_described(value: Any, out: bytearray) -> None:
    out.append(0x00)
    encode(value.descriptor, out)
    encode(value.value, out)


_ENCODERS: Final[dict[type, Callable[[Any, bytearray], None]]] = {
    type(None): lambda value, out: out.append(0x40),
    bool: _encode_bool,
    UByte: _fixed(0x50, lambda value: bytes((value,))),
    UShort: _fixed(0x60, _U16.pack),
    UInt: _encode_uint,
    ULong: _encode_ulong,
    Byte: _fixed(0x51, lambda value: bytes((value & 255,))),
    Short: _fixed(0x61, _I16.pack),
    int: _encode_int,
    Int: _encode_int,
    Long: _encode_long,
    Float: _fixed(0x72, _F32.pack),
    float: _fixed(0x82, _F64.pack),
    Double: _fixed(0x82, _F64.pack),
    Char: _fixed(0x73, lambda value: value.encode("utf-32-be", "replace")),
    Timestamp: _fixed(0x83, _I64.pack),
    UUID: _fixed(0x98, lambda value: value.bytes),
    bytes: lambda value, out: _variable(0xA0, 0xB0, value, out),
    str: lambda value, out: _variable(0xA1, 0xB1, value.encode("utf-8", "replace"), out),
    Symbol: lambda value, out: _variable(0xA3, 0xB3, value.encode("ascii", "replace"), out),
    Decimal: lambda value, out: out.extend(bytes((value.code,)) + value.data),
    list: _encode_list,
    dict: _encode_map,
    Array: _encode_array,
    Described: _encode_described,
}


# -- from bytes -------------------------------------------------------------------------------------------------------


class Reader:
    """Reads values one after the other.

    Args:
        data: bytes.
        at: where the first value begins.
        values: how many there may be, those in lists, maps and arrays counted.

    Attributes:
        at: where the next value begins.
    """

    __slots__ = ("_data", "_end", "_left", "_values", "at")

    def __init__(self, data: bytes, at: int, end: int, values: int = VALUES) -> None:
        self._data = data
        self._end = end
        self._values = self._left = values
        self.at = at

    def next(self) -> Any:
        """The next value.

        Raises:
            ProtocolError: there is no whole value, it is nested too deep, or there are too many.
        """
        return self._value(self._end, 0)

    def descriptor(self) -> Any:
        """The descriptor of the next value, which :meth:`described` returns then; None if it has none.

        Raises:
            ProtocolError: as of :meth:`next`.
        """
        at = self.at
        if at >= self._end or self._data[at]:
            return None
        self.at = at + 1
        self._count(2)
        return self._value(self._end, 1)

    def described(self) -> Any:
        """The value behind a descriptor.

        Raises:
            ProtocolError: as of :meth:`next`.
        """
        return self._value(self._end, 1)

    def _value(self, end: int, depth: int) -> Any:
        at = self.at
        if at >= end:
            raise malformed("a value is missing at the end of what was sent")
        self.at = at + 1
        return self._behind(self._data[at], end, depth)

    def _behind(self, code: int, end: int, depth: int) -> Any:
        """A value behind its constructor, whose upper half tells how long it is."""
        form = code >> 4
        if form == 0x5:
            return self._small(code, end)
        if form == 0xA or form == 0xB:
            begin = self._extent(1 if form == 0xA else 4, end)
            data = self._data[begin : self.at]
            kind = code & 15
            if kind == 1:
                return _string(data)
            if kind == 3:
                return _symbol(data) if form == 0xA else _long_symbol(data)
            if kind == 0:
                return data
        elif form == 0x4:
            if code <= 0x45:
                return [] if code == 0x45 else _CONSTANTS[code - 0x40]
        elif form == 0xC or form == 0xD:
            kind = code & 15
            if kind <= 1:
                items = self._items(1 if form == 0xC else 4, end, depth)
                return _map_of(items) if kind else items
        elif code == 0:
            if depth >= MAX_DEPTH:
                raise _deep()
            self._count(2)
            descriptor = self._value(end, depth + 1)
            return Described(descriptor, self._value(end, depth + 1))
        elif code in (0xE0, 0xF0):
            return self._array(1 if form == 0xE else 4, end, depth)
        else:
            make = _FIXED.get(code)
            if make is not None:
                at = self.at
                stop = at + _SIZES[form]
                if stop > end:
                    raise _short()
                self.at = stop
                return make(self._data[at:stop])
        raise _no_type(code)

    def _small(self, code: int, end: int) -> Any:
        """A value of one byte."""
        at = self.at
        if at >= end:
            raise _short()
        number = self._data[at]
        self.at = at + 1
        if code == 0x56:
            if number > 1:
                raise malformed(f"a boolean is 0 or 1, not {number}")
            return number == 1
        if code > 0x56:
            raise _no_type(code)
        return _SMALL[code - 0x50][number]

    def _extent(self, width: int, end: int) -> int:
        """Where a value begins behind its size; :attr:`at` is where it ends then."""
        at = self.at
        if end - at < width:
            raise _short()
        size = self._number(at, width)
        at += width
        if size > end - at:
            raise malformed(f"a value of {size} bytes is announced, {end - at} are left")
        self.at = at + size
        return at

    def _number(self, at: int, width: int) -> int:
        data = self._data
        if width == 1:
            return data[at]
        return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]

    def _counted(self, width: int, end: int, depth: int) -> tuple[int, int]:
        """The number of items of a list, map or array, and where they end; :attr:`at` is where they begin then."""
        if depth >= MAX_DEPTH:
            raise _deep()
        begin = self._extent(width, end)
        stop = self.at
        if stop - begin < width:
            raise _short()
        self.at = begin + width
        return self._number(begin, width), stop

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise malformed(f"there may be {self._values} values in a performative or message; these are more")

    def _items(self, width: int, end: int, depth: int) -> list[Any]:
        count, stop = self._counted(width, end, depth)
        if count > stop - self.at:
            raise malformed(f"{count} items are announced in {stop - self.at} bytes")
        self._count(count)
        data = self._data
        items: list[Any] = []
        for _ in range(count):
            at = self.at
            if at >= stop:
                raise _short()
            self.at = at + 1
            items.append(self._behind(data[at], stop, depth + 1))
        if self.at != stop:
            raise malformed(f"{stop - self.at} bytes are left behind the items of a list or map")
        return items

    def _array(self, width: int, end: int, depth: int) -> Array:
        begin = self.at - 1
        count, stop = self._counted(width, end, depth)
        code = self._constructor(stop)
        if not code:  # all items have one descriptor; nothing that is used here does
            self._value(stop, depth + 1)
            code = self._constructor(stop)
        # Items without bytes would be any number of values in a few bytes.
        if not code or (0x40 <= code <= 0x45 and count > MAX_EMPTY) or (code > 0x45 and count > stop - self.at):
            raise malformed(
                f"{count} items of an array with constructor {code:#04x} are announced in {stop - self.at} bytes"
            )
        self._count(count)
        items: list[Any] = []
        for _ in range(count):
            items.append(self._behind(code, stop, depth + 1))
        if self.at != stop:
            raise malformed(f"{stop - self.at} bytes are left behind the items of an array")
        return Array(items, code, self._data[begin:stop])

    def _constructor(self, end: int) -> int:
        at = self.at
        if at >= end:
            raise _short()
        self.at = at + 1
        return self._data[at]


def decode(data: bytes, at: int, end: int, values: int = VALUES) -> tuple[Any, int]:
    """Read one value.

    Returns:
        The value, and where it ends.

    Raises:
        ProtocolError: there is no whole value, it is nested too deep, or there are too many.
    """
    reader = Reader(data, at, end, values)
    return reader.next(), reader.at


def _string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"a string must be UTF-8: {error}") from None


def _long_symbol(data: bytes) -> Symbol:
    try:
        return Symbol(data.decode("ascii"))
    except UnicodeDecodeError:
        raise malformed("a symbol must be ASCII") from None


#: Clients use the same few symbols in all messages.
_symbol: Final[Callable[[bytes], Symbol]] = lru_cache(maxsize=512)(_long_symbol)


#: The usual type of a map's keys.
_NAMES: Final = frozenset({str, Symbol})


def _map_of(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise malformed("a map has a key without a value")
    found: dict[Any, Any] = {}
    for at in range(0, len(items), 2):
        key = items[at]
        if type(key) not in _NAMES and (not isinstance(key, Hashable) or isinstance(key, Described)):
            raise malformed(f"the key of a map is {shown(key)}")
        found[key] = items[at + 1]
    return found


def _char(data: bytes) -> Char:
    try:
        return Char(data.decode("utf-32-be"))
    except UnicodeDecodeError:
        raise malformed("a char is no character of Unicode") from None


def _no_type(code: int) -> ProtocolError:
    return malformed(f"{code:#04x} is no type of AMQP")


def _short() -> ProtocolError:
    return malformed("a value ends before all of it arrived")


def _deep() -> ProtocolError:
    return malformed(f"values are nested deeper than {MAX_DEPTH} levels")


def _signed(number: int) -> int:
    return number - 256 if number > 127 else number


#: From 0x40.
_CONSTANTS: Final[list[Any]] = [None, True, False, UInt(0), ULong(0)]

#: All values of one byte, from 0x50.
_SMALL: Final[list[list[Any]]] = [
    [UByte(number) for number in range(256)],
    [Byte(_signed(number)) for number in range(256)],
    [UInt(number) for number in range(256)],
    [ULong(number) for number in range(256)],
    [_signed(number) for number in range(256)],
    [Long(_signed(number)) for number in range(256)],
]

#: Bytes of values of a fixed size, by the upper half of the constructor.
_SIZES: Final[list[int]] = [0, 0, 0, 0, 0, 1, 2, 4, 8, 16]

_FIXED: Final[dict[int, Callable[[bytes], Any]]] = {
    0x60: lambda data: UShort(_U16.unpack(data)[0]),
    0x61: lambda data: Short(_I16.unpack(data)[0]),
    0x70: lambda data: UInt(_U32.unpack(data)[0]),
    0x71: lambda data: _I32.unpack(data)[0],
    0x72: lambda data: Float(_F32.unpack(data)[0]),
    0x73: _char,
    0x74: lambda data: Decimal(0x74, data),
    0x80: lambda data: ULong(_U64.unpack(data)[0]),
    0x81: lambda data: Long(_I64.unpack(data)[0]),
    0x82: lambda data: _F64.unpack(data)[0],
    0x83: lambda data: Timestamp(_I64.unpack(data)[0]),
    0x84: lambda data: Decimal(0x84, data),
    0x94: lambda data: Decimal(0x94, data),
    0x98: lambda data: UUID(bytes=data),
}
