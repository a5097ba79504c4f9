"""Commands to bytes and back, over the msgpack package, whose errors become ProtocolErrors here."""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import msgpack

from sievemq_core.errors import ProtocolError
from sievemq_core.limits import GATHER_BYTES, MAX_ARRAY, MAX_CLIENT_VALUES, MAX_FRAME_COMMANDS, MAX_MAP
from sievemq_core.message.envelope import with_well_formed_text
from sievemq_core.wire.commands import Command
from sievemq_core.wire.form import CommandTuple, check_headers, examine

__all__ = [
    "DELIVERIES_HEAD",
    "DELIVERY_HEAD",
    "CommandTuple",
    "Decoder",
    "Payload",
    "check_headers",
    "check_values",
    "delivery_head",
    "pack",
    "pack_deliveries",
    "pack_fields",
    "pack_page",
    "pack_send",
    "pack_tapped",
    "send_start",
    "unpack_value",
]

Payload: TypeAlias = bytes | bytearray
"""The content of a frame; a bytearray if it arrived in pieces, so that it is not copied again when it is complete."""

_packer = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass")

pack: Final = _packer.pack
"""Pack a command tuple (or any value that msgpack carries) into bytes."""

_DELIVERY: Final = struct.Struct(">HBIBQBI")
delivery_head: Final = _DELIVERY.pack
"""Packs what precedes the envelope of a DELIVER: ``delivery_head(0x9550, 0xCE, consumer, 0xCF, tag, 0xCE, count)``.

The numbers are written at full width, so that one struct call makes it: the head is all that differs between the
deliveries of one message, the envelope's bytes are shared. 0x95 begins an array of five, 0x50 is DELIVER; 0xCE and 0xCF
begin integers of 32 and 64 bits.
"""

DELIVERY_HEAD: Final = _DELIVERY.size
"""Bytes of what it makes."""


def _bin_head(size: int) -> bytes:
    """The head that msgpack writes before so many bytes."""
    if size < 256:
        return b"\xc4%c" % size
    return b"\xc5" + size.to_bytes(2) if size < 65_536 else b"\xc6" + size.to_bytes(4)


_OK: Final = int(Command.OK)
#: Behind it stand the request and the result.
_OK_HEAD: Final = b"\x93" + pack(_OK)
_NIL: Final = b"\xc0"
#: By size, where that is small.
_BIN_HEADS: Final = tuple(_bin_head(size) for size in range(1_024))
#: Three headers that are not set; and no letters, then a body's kind.
_NO_HEADERS: Final = 3 * _NIL
_KINDS: Final = tuple(_NIL + pack(kind) for kind in range(128))


def pack_fields(fields: tuple[object, ...]) -> bytes:
    return b"".join(map(pack, fields))


def send_start(session: int, address: str, message_id: str | None, digits: int) -> tuple[bytes, bytes]:
    """The parts that many SENDs have in common, for :func:`pack_send`.

    0x95 begins an array of five, 0x18 is SEND; 0xCF begins a sequence of 64 bits, 0x9D an envelope of 13 fields.

    Args:
        session: id.
        address: of the destination.
        message_id: of one of them; the others have as many digits at its end. None: no message ids.
        digits: how many.

    Returns:
        What stands before the sequence, and between the sequence and the digits.
    """
    id_start = _NIL if message_id is None else pack(message_id)[:-digits]
    return b"\x95\x18" + pack(session) + b"\xcf", pack(address) + b"\x9d" + id_start


def pack_send(
    start: tuple[bytes, bytes],
    sequence: int,
    digits: str,
    decided: bytes,
    headers: tuple[object, object, object] | None,
    properties: bytes | None,
    letters: object,
    kind: int,
    body: bytes | None,
) -> bytes:
    """A SEND, assembled from pieces; parts that many SENDs have in common are packed once.

    Args:
        start: of :func:`send_start`.
        sequence: of the send, 64 bits.
        digits: the last ones of its message id; empty where ids are disabled.
        decided: timestamp to delivery time, of :func:`pack_fields`.
        headers: correlation id, reply-to and type; None for none of them.
        properties: packed; None for none.
        letters: types of properties that msgpack does not tell apart, text; None for none.
        kind: of the body.
        body: encoded; None for none.
    """
    command, address = start
    if properties is None:
        properties_head, properties = _NIL, b""
    else:
        size = len(properties)
        properties_head = _BIN_HEADS[size] if size < 1_024 else _bin_head(size)
    if body is None:
        body_head, body = _NIL, b""
    else:
        size = len(body)
        body_head = _BIN_HEADS[size] if size < 1_024 else _bin_head(size)
    return b"".join(
        (
            command,
            sequence.to_bytes(8),
            address,
            digits.encode(),
            decided,
            _NO_HEADERS if headers is None else pack_fields(headers),
            properties_head,
            properties,
            _KINDS[kind] if letters is None else pack(letters) + _KINDS[kind][1:],
            body_head,
            body,
        )
    )


_DELIVERIES: Final = struct.Struct(">HBIBQBH")
_deliveries_head: Final = _DELIVERIES.pack

DELIVERIES_HEAD: Final = _DELIVERIES.size
"""Bytes of what :func:`pack_deliveries` puts before the envelopes."""


def pack_deliveries(consumer: int, tag: int, envelopes: list[bytes]) -> bytes:
    """A DELIVER_SEVERAL command around envelopes that are packed already.

    0x94 begins an array of four, 0x58 is DELIVER_SEVERAL; 0xDC begins an array with 16 bits for its length.

    Args:
        consumer: id, 32 bits.
        tag: of the first, 64 bits.
        envelopes: packed; at least one, and no more than an array may have.
    """
    return _deliveries_head(0x9458, 0xCE, consumer, 0xCF, tag, 0xDC, len(envelopes)) + b"".join(envelopes)


def pack_page(request: int, cursor: object, messages: list[tuple[Any, ...]]) -> bytes:
    """An OK to a BROWSE around envelopes that are packed already: ``[OK, request, [cursor, [count, envelope], …]]``; in
    a page of a part ``[count, envelope, place]``.

    Args:
        request: of the BROWSE.
        cursor: where the next page begins; None at the end.
        messages: count of the next delivery and envelope, in delivery order; with the place there of a part's messages.
    """
    parts = [_OK_HEAD, pack(request), b"\xdd", (len(messages) + 1).to_bytes(4), pack(cursor)]
    for count, envelope, *place in messages:
        parts += (b"\x93" if place else b"\x92", pack(count), envelope.packed)
        if place:
            parts.append(pack(place[0]))
    return b"".join(parts)


def pack_tapped(request: int, first: int, times: list[int], counts: list[int], envelopes: list[bytes]) -> bytes:
    """An OK to a FETCH_TAP around envelopes that are packed already: ``[OK, request, [first, times, counts,
    [envelope, …]]]``.

    Args:
        request: of the FETCH_TAP.
        first: sequence of the first message.
        times, counts: of each message: when the tap saw it, and its delivery count.
        envelopes: packed.
    """
    head = b"".join((_OK_HEAD, pack(request), b"\x94", pack(first), pack(times), pack(counts), b"\xdd"))
    return b"".join((head, len(envelopes).to_bytes(4), *envelopes))


def unpack_value(data: bytes) -> Any:
    """One msgpack value, arrays as tuples.

    Raises:
        ProtocolError: `data` is not exactly one value.
    """
    try:
        return msgpack.unpackb(data, use_list=False, unicode_errors="surrogatepass", max_array_len=MAX_ARRAY)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a msgpack value: {error or type(error).__name__}") from error


# -- how many values --------------------------------------------------------------------------------------------------

# By a value's first byte: its size in bytes, if the first byte determines it, and how many values belong to it.
_SIZES: Final[list[int]] = [1] * 256
_CHILDREN: Final[list[int]] = [0] * 256
for _number in range(16):
    _CHILDREN[0x80 + _number] = 2 * _number
    _CHILDREN[0x90 + _number] = _number
for _number in range(32):
    _SIZES[0xA0 + _number] = 1 + _number
for _byte, _size in {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}.items():
    _SIZES[_byte] = _size
#: Otherwise: the size of the number that follows, and how many values each unit stands for; none for bytes and text.
_NUMBERED: Final = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
    0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2),
}  # fmt: skip
for _byte in (0xC1, 0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, *_NUMBERED):  # the others are never legal
    _SIZES[_byte] = 0


def check_values(payload: Payload, most: int) -> None:
    """Walk through a payload without making anything of it: takes some 0.2 µs for each value, and no memory.

    Args:
        payload: of a frame.
        most: values that it may have, nested ones included.

    Raises:
        ProtocolError: it has more; it has more than one command though it is larger than GATHER_BYTES; or it cannot be
            whole, since more values are announced than bytes are left.
    """
    position, end = 0, len(payload)
    large = end > GATHER_BYTES
    count = missing = 0  # values so far, and those announced that must still follow
    while position < end:
        count += 1
        if count > most:
            raise ProtocolError(f"a frame of {end} bytes has more than {most} values")
        if missing:
            missing -= 1
        elif large and position:
            raise _several(end)
        byte = payload[position]
        size = _SIZES[byte]
        if size:
            position += size
            missing += _CHILDREN[byte]
        else:
            numbered = _NUMBERED.get(byte)
            if numbered is None:
                raise ProtocolError(f"a frame that is not msgpack: a value must not begin with 0x{byte:02x}")
            width, values = numbered
            position += 1 + width
            number = int.from_bytes(payload[position - width : position], "big")
            if values:
                missing += number * values
            else:
                position += number
        if missing > end - position:
            raise _cut_off()
    if position > end:
        raise _cut_off()


def _several(size: int) -> ProtocolError:
    return ProtocolError(
        f"a frame of {size} bytes holds several commands; one of more than {GATHER_BYTES} bytes may hold one"
    )


def _cut_off() -> ProtocolError:
    return ProtocolError("a frame that ends inside a command")


# -- decoding ---------------------------------------------------------------------------------------------------------

#: Unpackers that are not in use, by the longest array they take. One has a stack of 40 KiB and a buffer, and is needed
#: for the time of one payload only: ten thousand connections must not have one each. A list's append and pop are
#: atomic, so threads share them without a lock.
_idle: Final[dict[int, list[Any]]] = {}

#: Elements of an array that a broker reserves on the word of its header.
_SHORT: Final = 128

_FORM: Final[dict[str, Any]] = {"use_list": False, "strict_map_key": True, "max_map_len": MAX_MAP, "max_ext_len": 0}

#: How lone surrogates are decoded, where there are any: refusing them takes a third of the time less.
_HALVES: Final = "surrogatepass"


def _new_unpacker(longest: int, errors: str = "strict") -> Any:
    return msgpack.Unpacker(max_buffer_size=2 * GATHER_BYTES, max_array_len=longest, unicode_errors=errors, **_FORM)


def _unpack_one(payload: Payload, errors: str = "strict") -> Any:
    """The value of a payload that must be one."""
    try:
        return msgpack.unpackb(payload, max_array_len=MAX_ARRAY, unicode_errors=errors, **_FORM)
    except UnicodeDecodeError as error:
        if errors == _HALVES:
            raise _malformed(error) from error
        return _repaired(_unpack_one(payload, _HALVES))
    except msgpack.ExtraData:
        raise _several(len(payload)) from None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _malformed(error) from error


def _unpack_long(payload: Payload) -> list[Any]:
    """The values of a payload with a long array or a lone surrogate, or of one that is not msgpack."""
    unpacker = _new_unpacker(MAX_ARRAY, _HALVES)
    try:
        unpacker.feed(payload)
        while unpacker.tell() < len(payload):
            unpacker.skip()
        unpacker.feed(payload)
        return list(map(_repaired, unpacker))
    except msgpack.OutOfData:
        raise _cut_off() from None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _malformed(error) from error


def _repaired(value: Any) -> Any:
    """The command; a message that is sent has no lone surrogates in its headers then. Everywhere else the handler
    that reads the text as a name refuses them."""
    if type(value) is tuple and len(value) > _ENVELOPE_OF_SEND and value[0] == _SEND:
        envelope = value[_ENVELOPE_OF_SEND]
        if type(envelope) is tuple:
            repaired = with_well_formed_text(envelope)
            return (*value[:_ENVELOPE_OF_SEND], repaired, *value[_ENVELOPE_OF_SEND + 1 :])
    return value


_SEND: Final = int(Command.SEND)
_ENVELOPE_OF_SEND: Final = 4


def _malformed(error: Exception) -> ProtocolError:
    return ProtocolError(f"a frame that is not msgpack: {str(error) or type(error).__name__}")


class Decoder:
    """Takes frame payloads apart. Holds nothing between two payloads.

    msgpack reserves an array when it reads its header, whether the elements are there or not, and arrays may begin in
    arrays; only its stack bounds that, to 1,024 arrays of MAX_ARRAY, which is 128 MiB and 60 ms. A client can bear it.
    A broker decodes with short arrays only, as nearly all payloads have them. Where there is a longer one msgpack first
    skips through the values, which reserves nothing.

    Args:
        counted_above: bytes of a payload above which its values are counted before they are made.
        most_values: how many there may be then.
        trusting: reserve arrays of any length.
    """

    __slots__ = ("_counted_above", "_idle", "_longest", "_most_values")

    def __init__(
        self, counted_above: int = GATHER_BYTES, most_values: int = MAX_CLIENT_VALUES, trusting: bool = False
    ) -> None:
        self._counted_above = counted_above
        self._most_values = most_values
        self._longest = MAX_ARRAY if trusting else _SHORT
        self._idle = _idle.setdefault(self._longest, [])

    def unpack(self, payload: Payload) -> list[Any]:
        """The values in one frame's payload, in order; whether they are commands is not checked.

        Raises:
            ProtocolError: the payload is not a sequence of whole msgpack values, or there are too many.
        """
        if len(payload) > self._counted_above:
            check_values(payload, self._most_values)
        if len(payload) > GATHER_BYTES:
            return [_unpack_one(payload)]
        idle = self._idle
        try:
            unpacker = idle.pop()
        except IndexError:
            unpacker = _new_unpacker(self._longest)
        # On errors the unpacker is dropped: it is inside a value.
        try:
            unpacker.feed(payload)
            # Is the last value whole? One that is not swallows the nil behind it, or is completed by it.
            unpacker.feed(b"\xc0")
            values: list[Any] = list(unpacker)
        except (ValueError, TypeError, msgpack.UnpackException):
            values = _unpack_long(payload)
        else:
            if not values or values.pop() is not None:
                raise _cut_off()
            idle.append(unpacker)
        if len(values) > MAX_FRAME_COMMANDS:
            raise ProtocolError(f"a frame of {len(values)} commands; one may hold {MAX_FRAME_COMMANDS}")
        return values

    def decode(self, payload: Payload) -> list[CommandTuple]:
        """The commands of one frame's payload, in order, each of the form that COMMANDS gives it.

        Raises:
            ProtocolError: as :meth:`unpack`; or a command is unknown (UNKNOWN_COMMAND), or a field has a form that it
                must not have.
        """
        return [examine(value) for value in self.unpack(payload)]
