"""Bytes to protocol headers and frames, and back (part 2 of the specification, section 2.3)."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from sievemq_broker.protocols.amqp.composites import Composite, composite_of, write
from sievemq_broker.protocols.amqp.performatives import Transfer
from sievemq_broker.protocols.amqp.types import Reader, malformed
from sievemq_core.errors import ErrorCode, ProtocolError, shown

#: Kinds of frames.
AMQP: Final = 0
SASL: Final = 1

AMQP_HEADER: Final = bytes((*b"AMQP", 0, 1, 0, 0))
SASL_HEADER: Final = bytes((*b"AMQP", 3, 1, 0, 0))

#: Every peer accepts frames of this size.
MIN_FRAME: Final = 512

_HEAD: Final = struct.Struct(">IBBH")


class Frame:
    """A frame, or a protocol header.

    Args:
        kind: AMQP or SASL; -1 for a protocol header.
        body: the performative; None for a heartbeat; the bytes of a protocol header.
        payload: what stands behind it.
        size: bytes of the whole frame.
    """

    __slots__ = ("body", "channel", "kind", "payload", "size")

    def __init__(self, kind: int, channel: int, body: Any, payload: bytes, size: int) -> None:
        self.kind = kind
        self.channel = channel
        self.body = body
        self.payload = payload
        self.size = size


class FrameParser:
    """Cuts bytes into frames."""

    __slots__ = ("_at", "_frame_bytes", "_headers", "_input", "number")

    def __init__(self, frame_bytes: int) -> None:
        self._input = bytearray()
        self._at = 0
        self._frame_bytes = frame_bytes
        #: Protocol headers that may follow.
        self._headers = 2
        #: The number of complete frames so far.
        self.number = 0

    @property
    def pending(self) -> int:
        """Bytes that are incomplete, or not carried out yet."""
        return len(self._input) - self._at

    def accept(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes

    def drop(self) -> None:
        self._input.clear()
        self._at = 0

    def receive(self, data: bytes) -> None:
        """Take bytes, cut anywhere."""
        if self._at:
            del self._input[: self._at]
            self._at = 0
        self._input += data

    def next(self) -> Frame | None:
        """The next frame; None while it is not complete.

        Raises:
            ProtocolError: what came is no frame, or is larger than is allowed.
        """
        left = len(self._input) - self._at
        if left < 8:
            return None
        if self._headers:
            head = bytes(self._input[self._at : self._at + 8])
            if head[:4] == b"AMQP":
                self._headers -= 1
                self._at += 8
                self.number += 1
                return Frame(-1, 0, head, b"", 8)
            self._headers = min(self._headers, 1)  # one may follow SASL's frames
        size, offset, kind, channel = _HEAD.unpack_from(self._input, self._at)
        if size < 8 or offset < 2 or offset * 4 > size or kind > SASL:
            raise malformed(f"{shown(bytes(self._input[self._at : self._at + 8]))} is no head of a frame")
        if size > self._frame_bytes:
            raise ProtocolError(
                f"a frame of {size} bytes; at most {self._frame_bytes} are accepted (max-frame-size)",
                ErrorCode.FRAME_TOO_LARGE,
            )
        if left < size:
            return None
        data = bytes(self._input[self._at + offset * 4 : self._at + size])
        self._at += size
        self.number += 1
        if not data:
            return Frame(kind, channel, None, b"", size)
        reader = Reader(data, 0, len(data))
        descriptor = reader.descriptor()
        performative = None if descriptor is None else composite_of(descriptor, reader.described())
        if performative is None:
            raise malformed(f"a frame begins with {shown(data[:16])}, which is no performative")
        return Frame(kind, channel, performative, data[reader.at :], size)


def frame_of(performative: Composite | None, channel: int = 0, payload: bytes = b"", kind: int = AMQP) -> bytes:
    """A frame.

    Args:
        performative: None for a heartbeat.
        payload: what stands behind it.
    """
    out = bytearray(8)
    if performative is not None:
        write(performative, out)
    out += payload
    _HEAD.pack_into(out, 0, len(out), 2, kind, channel)
    return bytes(out)


class TransferWriter:
    """Writes the transfers of one link. They differ only in the delivery, and in what follows the performative.

    Args:
        settled: its deliveries need no settlement.
    """

    __slots__ = ("_channel", "_last", "_more")

    def __init__(self, channel: int, handle: int, settled: bool) -> None:
        self._channel = channel
        #: The bytes around a delivery's number: of its last transfer, and of those before it.
        self._last = _around(handle, settled, False)
        self._more = _around(handle, settled, True)

    def frame(self, delivery: int, payload: bytes, more: bool) -> bytes:
        """A transfer.

        Args:
            delivery: its number; the tag is the same in four bytes.
            more: another part follows.
        """
        before, between, behind = self._more if more else self._last
        number = delivery.to_bytes(4, "big")
        size = _AROUND + len(before) + len(between) + len(behind) + len(payload)
        head = _HEAD.pack(size, 2, AMQP, self._channel)
        return b"".join((head, before, number, between, number, behind, payload))


#: Bytes of a frame's head, and of a delivery's number and tag.
_AROUND: Final = 8 + 4 + 4

#: A number that has four bytes when it is written; so have all, in place of it.
_LARGE: Final = 2**32 - 1


@lru_cache(maxsize=256)
def _around(handle: int, settled: bool, more: bool) -> tuple[bytes, bytes, bytes]:
    """The bytes of a transfer in front of the delivery's number, between that and its tag, and behind it."""
    number = _LARGE.to_bytes(4, "big")
    out = bytearray()
    write(
        Transfer(
            handle=handle, delivery_id=_LARGE, delivery_tag=number, message_format=0, settled=settled, more=more
        ),
        out,
    )  # fmt: skip
    before, between, behind = bytes(out).rsplit(number, 2)  # the handle may be the same number
    return before, between, behind
