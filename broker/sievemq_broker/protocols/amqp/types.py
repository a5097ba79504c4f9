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
from sievemq_core.errors import ErrorCode, ProtocolError, shown
from sievemq_core.message.values import Byte, Double, Float, Int, Long, Short

__all__ = [
    "MESSAGE_VALUES", "Array", "Budget", "Char", "Decimal", "Described", "Symbol", "Timestamp", "UByte", "UInt",
    "ULong", "UShort", "decode", "encode", "malformed",
]  # fmt: skip

#: Values in a performative, and in the sections of a message: each takes time, and all are read in one turn.
VALUES: Final = 2_000
MESSAGE_VALUES: Final = CONVERTED_VALUES

#: How deep lists, maps and described types may be nested. A message of another client has two or three levels.
MAX_DEPTH: Final = 32


class UByte(int):
    """8 bits without sign."""

    __slots__ = ()


class UShort(int):
    """16 bits without sign."""

    __slots__ = ()


class UInt(int):
    """32 bits without sign."""

    __slots__ = ()


class ULong(int):
    """64 bits without sign."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC."""

    __slots__ = ()


class Symbol(str):
    """A name out of a specification; ASCII."""

    __slots__ = ()


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
    """What came is no AMQP."""
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
    if len(packed) < 255 and len(items) < 256:
        out += bytes((short, len(packed) + 1, len(items)))
    else:
        out.append(short + 0x10)
        out += _U32.pack(len(packed) + 4)
        out += _U32.pack(len(items))
    out += packed


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
    return _decode(data, at, end, 0, budget or Budget(VALUES))


def _decode(data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
    if at >= end:
        raise malformed("a value is missing at the end of what was sent")
    code = data[at]
    if code:
        return _decode_as(code, data, at + 1, end, depth, budget)
    if depth >= MAX_DEPTH:
        raise malformed(f"values are nested deeper than {MAX_DEPTH} levels")
    budget.take(2)
    descriptor, at = _decode(data, at + 1, end, depth + 1, budget)
    value, at = _decode(data, at, end, depth + 1, budget)
    return Described(descriptor, value), at


def _decode_as(code: int, data: bytes, at: int, end: int, depth: int, budget: Budget) -> tuple[Any, int]:
    constant = _CONSTANTS.get(code)
    if constant is not None:
        return constant[0], at
    fixed = _FIXED.get(code)
    if fixed is not None:
        size, make = fixed
        if end - at < size:
            raise _short()
        return make(data[at : at + size]), at + size
    width = 4 if code & 0x10 else 1
    if code >> 4 not in (0xA, 0xB, 0xC, 0xD, 0xE, 0xF):
        raise malformed(f"{code:#04x} is no type of AMQP")
    if end - at < width:
        raise _short()
    size = data[at] if width == 1 else _U32.unpack_from(data, at)[0]
    at += width
    if size > end - at:
        raise malformed(f"a value of {size} bytes is announced, {end - at} are left")
    kind = code & 0xEF
    stop = at + size
    if kind == 0xA0:
        return data[at:stop], stop
    if kind == 0xA1:
        try:
            return data[at:stop].decode(), stop
        except UnicodeDecodeError as error:
            raise malformed(f"a string must be UTF-8: {error}") from None
    if kind == 0xA3:
        try:
            return Symbol(data[at:stop].decode("ascii")), stop
        except UnicodeDecodeError:
            raise malformed("a symbol must be ASCII") from None
    if depth >= MAX_DEPTH:
        raise malformed(f"values are nested deeper than {MAX_DEPTH} levels")
    if size < width:
        raise _short()
    count = data[at] if width == 1 else _U32.unpack_from(data, at)[0]
    at += width
    if kind == 0xE0:
        return _decode_array(data, at, stop, count, depth + 1, budget), stop
    if kind not in (0xC0, 0xC1):
        raise malformed(f"{code:#04x} is no type of AMQP")
    if count > stop - at:
        raise malformed(f"{count} items are announced in {stop - at} bytes")
    budget.take(count)
    items: list[Any] = []
    for _ in range(count):
        item, at = _decode(data, at, stop, depth + 1, budget)
        items.append(item)
    if at != stop:
        raise malformed(f"{stop - at} bytes are left behind the items of a list or map")
    return (items if kind == 0xC0 else _map_of(items)), stop


def _map_of(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise malformed("a map has a key without a value")
    found: dict[Any, Any] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, Hashable) or isinstance(key, Described):
            raise malformed(f"the key of a map is {shown(key)}")
        found[key] = value
    return found


def _decode_array(data: bytes, at: int, end: int, count: int, depth: int, budget: Budget) -> Array:
    if at >= end:
        raise _short()
    code = data[at]
    at += 1
    if not code:  # all items have one descriptor; nothing that is used here does
        _, at = _decode(data, at, end, depth, budget)
        if at >= end:
            raise _short()
        code = data[at]
        at += 1
    if code in _CONSTANTS or count > end - at:
        raise malformed(f"{count} items of an array are announced in {end - at} bytes")
    budget.take(count)
    items: list[Any] = []
    for _ in range(count):
        item, at = _decode_as(code, data, at, end, depth, budget)
        items.append(item)
    if at != end:
        raise malformed(f"{end - at} bytes are left behind the items of an array")
    return Array(items, code)


def _boolean(data: bytes) -> bool:
    if data[0] > 1:
        raise malformed(f"a boolean is 0 or 1, not {data[0]}")
    return data[0] == 1


def _char(data: bytes) -> Char:
    try:
        return Char(data.decode("utf-32-be"))
    except UnicodeDecodeError:
        raise malformed("a char is no character of Unicode") from None


def _short() -> ProtocolError:
    return malformed("a value ends before all of it came")


_CONSTANTS: Final[dict[int, tuple[Any]]] = {
    0x40: (None,), 0x41: (True,), 0x42: (False,), 0x43: (UInt(0),), 0x44: (ULong(0),),
}  # fmt: skip


def _empty(_: bytes) -> list[Any]:
    return []


_FIXED: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0x45: (0, _empty),
    0x50: (1, lambda data: UByte(data[0])),
    0x51: (1, lambda data: Byte(data[0] - 256 if data[0] > 127 else data[0])),
    0x52: (1, lambda data: UInt(data[0])),
    0x53: (1, lambda data: ULong(data[0])),
    0x54: (1, lambda data: data[0] - 256 if data[0] > 127 else data[0]),
    0x55: (1, lambda data: Long(data[0] - 256 if data[0] > 127 else data[0])),
    0x56: (1, _boolean),
    0x60: (2, lambda data: UShort(_U16.unpack(data)[0])),
    0x61: (2, lambda data: Short(_I16.unpack(data)[0])),
    0x70: (4, lambda data: UInt(_U32.unpack(data)[0])),
    0x71: (4, lambda data: _I32.unpack(data)[0]),
    0x72: (4, lambda data: Float(_F32.unpack(data)[0])),
    0x73: (4, _char),
    0x74: (4, lambda data: Decimal(0x74, data)),
    0x80: (8, lambda data: ULong(_U64.unpack(data)[0])),
    0x81: (8, lambda data: Long(_I64.unpack(data)[0])),
    0x82: (8, lambda data: _F64.unpack(data)[0]),
    0x83: (8, lambda data: Timestamp(_I64.unpack(data)[0])),
    0x84: (8, lambda data: Decimal(0x84, data)),
    0x94: (16, lambda data: Decimal(0x94, data)),
    0x98: (16, lambda data: UUID(bytes=data)),
}
