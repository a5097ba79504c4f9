"""Commands to bytes and back, over the msgpack package, whose errors become ProtocolErrors here."""

from __future__ import annotations

import struct
from typing import Any, Final

import msgpack

from sievemq_core.errors import ProtocolError
from sievemq_core.limits import MAX_ARRAY, MAX_MAP
from sievemq_core.wire.commands import CommandSpec
from sievemq_core.wire.form import CommandTuple, check_headers, examine

__all__ = [
    "BIN_HEADS",
    "DELIVERIES_HEAD",
    "NIL",
    "CommandTuple",
    "Decoder",
    "bin_head",
    "check_headers",
    "delivery_head",
    "describe",
    "pack",
    "pack_deliveries",
    "pack_delivery",
    "unpack_value",
]

_packer = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass")

pack: Final = _packer.pack
"""Pack a command tuple (or any value that msgpack carries) into bytes."""

delivery_head: Final = struct.Struct(">HBIBQBI").pack
"""See :func:`pack_delivery`, which is this call; for the one place where a function call more is felt."""


def bin_head(size: int) -> bytes:
    """What msgpack writes before so many bytes; :data:`BIN_HEADS` has it where they are few."""
    if size < 256:
        return b"\xc4%c" % size
    return b"\xc5" + size.to_bytes(2) if size < 65_536 else b"\xc6" + size.to_bytes(4)


NIL: Final = b"\xc0"
"""None, packed."""

BIN_HEADS: Final = tuple(bin_head(size) for size in range(1_024))
"""By size."""


def pack_delivery(consumer: int, tag: int, count: int, envelope: bytes) -> bytes:
    """A DELIVER command around an envelope that is packed already.

    The numbers are written at full width, so that one struct call makes the head: the head is all that differs
    between the deliveries of one message, the envelope's bytes are shared. 0x95 begins an array of five, 0x50 is
    DELIVER; 0xCE and 0xCF begin integers of 32 and 64 bits.

    Args:
        consumer: id, 32 bits.
        tag: of this delivery, 64 bits.
        count: delivery count, 32 bits.
        envelope: packed.
    """
    return delivery_head(0x9550, 0xCE, consumer, 0xCF, tag, 0xCE, count) + envelope


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


def unpack_value(data: bytes) -> Any:
    """One msgpack value, arrays as tuples.

    Raises:
        ProtocolError: `data` is not exactly one value.
    """
    try:
        return msgpack.unpackb(data, use_list=False, unicode_errors="surrogatepass", max_array_len=MAX_ARRAY)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a msgpack value: {error or type(error).__name__}") from error


#: Unpackers that nobody uses, by the largest payload they take. One has a stack of 40 KiB and a buffer of a MiB, and
#: is needed for the time of one payload only: ten thousand connections must not have one each. A list's append and pop
#: are atomic, so threads share them without a lock.
_idle: dict[int, list[Any]] = {}

_KEPT: Final = 1 << 20  # bytes of a payload after which the buffer has grown, and is not kept


def _new_unpacker(max_frame: int) -> Any:
    return msgpack.Unpacker(
        use_list=False,
        strict_map_key=True,
        unicode_errors="surrogatepass",
        max_buffer_size=max_frame,
        max_array_len=MAX_ARRAY,
        max_map_len=MAX_MAP,
        max_ext_len=0,
    )


class Decoder:
    """Takes frame payloads apart. Holds nothing between two payloads.

    Args:
        max_frame: bytes of the largest payload that will be fed.
    """

    __slots__ = ("_idle", "_max_frame")

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._idle = _idle.setdefault(max_frame, [])

    def unpack(self, payload: bytes) -> list[Any]:
        """The values in one frame's payload, in order; whether they are commands is not looked at.

        Raises:
            ProtocolError: the payload is not a sequence of whole msgpack values.
        """
        idle = self._idle
        try:
            unpacker = idle.pop()
        except IndexError:
            unpacker = _new_unpacker(self._max_frame)
        # On errors the unpacker is dropped: it is inside a value, and holds what a hostile header made it reserve.
        try:
            unpacker.feed(payload)
            values: list[Any] = list(unpacker)
            # Was that all? A value that is not complete would swallow the nil that is fed now, or be completed by it.
            unpacker.feed(b"\xc0")
            whole = list(unpacker) == [None]
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ProtocolError(f"a frame that is not msgpack: {error or type(error).__name__}") from error
        if not whole:
            raise ProtocolError("a frame that ends inside a command")
        if len(payload) < _KEPT:
            idle.append(unpacker)
        return values

    def decode(self, payload: bytes) -> list[CommandTuple]:
        """The commands of one frame's payload, in order, each of the form that COMMANDS gives it.

        Raises:
            ProtocolError: as :meth:`unpack`; or a command is unknown (UNKNOWN_COMMAND), or a field has a form that it
                must not have.
        """
        return [examine(value) for value in self.unpack(payload)]


def describe(spec: CommandSpec) -> str:
    """The form of a command in one line, as the protocol's document shows it."""
    names = [
        f"{field.name}={'nil' if field.default is None else field.default}" if field.optional else field.name
        for field in spec.fields
    ]
    return f"[{', '.join([str(spec.number), *names])}]"
