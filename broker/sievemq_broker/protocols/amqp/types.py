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
from typing import Any, Final, NamedTuple
from uuid import UUID

from sievemq_broker.protocols.foreign import CONVERTED_VALUES
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError, shown
from sievemq_core.message.values import Byte, Double, Float, Int, Long, Short

__all__ = [
    "MESSAGE_VALUES", "Array", "Budget", "Char", "Decimal", "Described", "Symbol", "Timestamp", "UByte", "UInt",
    "ULong", "UShort", "decode", "encode", "encode_packed", "encoder_of", "malformed",
]  # fmt: skip

#: Values in a performative, and in the sections of a message: each takes time, and all are read in one turn.
VALUES: Final = 2_000
MESSAGE_VALUES: Final = CONVERTED_VALUES

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
        items: the values.
        code: constructor of that type.
    """

    __slots__ = ("code",)

    def __init__(self, items: list[Any], code: int) -> None:
        super().__init__(items)
        self.code = code


def malformed(text: str) -> ProtocolError:
    """The input is not AMQP."""
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

    Args:
        value: one of the types above.
        out: where it goes.

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


class Budget:
    """Values that may still be read.

    Args:
        values: how many there may be.
    """

    __slots__ = ("left", "values")

    def __init__(self, values: int) -> None:
        self.values = self.left = values

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise malformed(f"there may be {self.values} values in a performative or message; these are more")


def decode(data: bytes, at: int, end: int, budget: Budget | None = None) -> tuple[Any, int]:
    """Read one value.

    Args:
        data: bytes.
        at: where the value begins.
        end: where what may be read ends.
        budget: values that there may be, those in lists, maps and arrays counted; VALUES without one.

    Returns:
        The value, and where it ends.

    Raises:
        ProtocolError: there is no whole value, it is nested too deep, or there are too many.
    """
    return _read(data, at, end, 0, budget or Budget(VALUES))


#: Reads a value behind its constructor: data, where it begins, where what may be read ends, depth, budget.
_Reader = Callable[[bytes, int, int, int, Budget], tuple[Any, int]]


def _read(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
    if at >= end:
        raise malformed("a value is missing at the end of what was sent")
    return _READERS[data[at]](data, at + 1, end, depth, budget)


def _described(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        raise _deep()
    budget.take(2)
    descriptor, at = _read(data, at, end, depth + 1, budget)
    value, at = _read(data, at, end, depth + 1, budget)
    return Described(descriptor, value), at


def _constant(value: Any) -> _Reader:
    return lambda data, at, end, depth, budget: (value, at)


def _of_size(size: int, make: Callable[[bytes], Any]) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
        stop = at + size
        if stop > end:
            raise _short()
        return make(data[at:stop]), stop

    return read


def _small(make: Callable[[int], Any]) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
        if at >= end:
            raise _short()
        return make(data[at]), at + 1

    return read


def _sized(width: int, make: Callable[[bytes], Any]) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
        at, stop = _extent(data, at, end, width)
        return make(data[at:stop]), stop

    return read


def _extent(data: bytes, at: int, end: int, width: int) -> tuple[int, int]:
    """Where a value begins behind its size, and where it ends."""
    if end - at < width:
        raise _short()
    size = data[at] if width == 1 else _U32.unpack_from(data, at)[0]
    at += width
    if size > end - at:
        raise malformed(f"a value of {size} bytes is announced, {end - at} are left")
    return at, at + size


def _string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"a string must be UTF-8: {error}") from None


def _symbol(data: bytes) -> Symbol:
    try:
        return Symbol(data.decode("ascii"))
    except UnicodeDecodeError:
        raise malformed("a symbol must be ASCII") from None


def _compound(width: int, make: Callable[[list[Any]], Any]) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
        at, stop, count = _counted(data, at, end, width, depth)
        if count > stop - at:
            raise malformed(f"{count} items are announced in {stop - at} bytes")
        budget.take(count)
        depth += 1
        items: list[Any] = []
        for _ in range(count):
            if at >= stop:
                raise _short()
            item, at = _READERS[data[at]](data, at + 1, stop, depth, budget)
            items.append(item)
        if at != stop:
            raise malformed(f"{stop - at} bytes are left behind the items of a list or map")
        return make(items), stop

    return read


def _counted(data: bytes, at: int, end: int, width: int, depth: int) -> tuple[int, int, int]:
    """Where the items of a list, map or array begin and end, and how many there are."""
    if depth >= MAX_DEPTH:
        raise _deep()
    at, stop = _extent(data, at, end, width)
    if stop - at < width:
        raise _short()
    count = data[at] if width == 1 else _U32.unpack_from(data, at)[0]
    return at + width, stop, count


def _list_of(items: list[Any]) -> list[Any]:
    return items


#: The usual type of a map's keys.
_NAMES: Final = frozenset({str, Symbol})


def _map_of(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise malformed("a map has a key without a value")
    found: dict[Any, Any] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) not in _NAMES and (not isinstance(key, Hashable) or isinstance(key, Described)):
            raise malformed(f"the key of a map is {shown(key)}")
        found[key] = value
    return found


def _array(width: int) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
        at, stop, count = _counted(data, at, end, width, depth)
        code, at = _constructor(data, at, stop)
        if not code:  # all items have one descriptor; nothing that is used here does
            _, at = _read(data, at, stop, depth + 1, budget)
            code, at = _constructor(data, at, stop)
        if not code or code in _CONSTANTS or count > stop - at:
            raise malformed(
                f"{count} items of an array with constructor {code:#04x} are announced in {stop - at} bytes"
            )
        budget.take(count)
        items: list[Any] = []
        for _ in range(count):
            item, at = _READERS[code](data, at, stop, depth + 1, budget)
            items.append(item)
        if at != stop:
            raise malformed(f"{stop - at} bytes are left behind the items of an array")
        return Array(items, code), stop

    return read


def _constructor(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise _short()
    return data[at], at + 1


def _unknown(code: int) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
        raise malformed(f"{code:#04x} is no type of AMQP")

    return read


def _boolean(number: int) -> bool:
    if number > 1:
        raise malformed(f"a boolean is 0 or 1, not {number}")
    return number == 1


def _char(data: bytes) -> Char:
    try:
        return Char(data.decode("utf-32-be"))
    except UnicodeDecodeError:
        raise malformed("a char is no character of Unicode") from None


def _short() -> ProtocolError:
    return malformed("a value ends before all of it came")


def _deep() -> ProtocolError:
    return malformed(f"values are nested deeper than {MAX_DEPTH} levels")


def _signed(number: int) -> int:
    return number - 256 if number > 127 else number


_CONSTANTS: Final[dict[int, _Reader]] = {
    0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False),
    0x43: _constant(UInt(0)), 0x44: _constant(ULong(0)),
}  # fmt: skip

#: A reader for each constructor.
_READERS: Final[list[_Reader]] = [_unknown(code) for code in range(256)]
for _code, _reader in {
    **_CONSTANTS,
    0x00: _described,
    0x45: lambda data, at, end, depth, budget: ([], at),
    0x50: _small(UByte),
    0x51: _small(lambda number: Byte(_signed(number))),
    0x52: _small(UInt),
    0x53: _small(ULong),
    0x54: _small(_signed),
    0x55: _small(lambda number: Long(_signed(number))),
    0x56: _small(_boolean),
    0x60: _of_size(2, lambda data: UShort(_U16.unpack(data)[0])),
    0x61: _of_size(2, lambda data: Short(_I16.unpack(data)[0])),
    0x70: _of_size(4, lambda data: UInt(_U32.unpack(data)[0])),
    0x71: _of_size(4, lambda data: _I32.unpack(data)[0]),
    0x72: _of_size(4, lambda data: Float(_F32.unpack(data)[0])),
    0x73: _of_size(4, _char),
    0x74: _of_size(4, lambda data: Decimal(0x74, data)),
    0x80: _of_size(8, lambda data: ULong(_U64.unpack(data)[0])),
    0x81: _of_size(8, lambda data: Long(_I64.unpack(data)[0])),
    0x82: _of_size(8, lambda data: _F64.unpack(data)[0]),
    0x83: _of_size(8, lambda data: Timestamp(_I64.unpack(data)[0])),
    0x84: _of_size(8, lambda data: Decimal(0x84, data)),
    0x94: _of_size(16, lambda data: Decimal(0x94, data)),
    0x98: _of_size(16, lambda data: UUID(bytes=data)),
    0xA0: _sized(1, bytes),
    0xA1: _sized(1, _string),
    0xA3: _sized(1, _symbol),
    0xB0: _sized(4, bytes),
    0xB1: _sized(4, _string),
    0xB3: _sized(4, _symbol),
    0xC0: _compound(1, _list_of),
    0xC1: _compound(1, _map_of),
    0xD0: _compound(4, _list_of),
    0xD1: _compound(4, _map_of),
    0xE0: _array(1),
    0xF0: _array(4),
}.items():
    _READERS[_code] = _reader
