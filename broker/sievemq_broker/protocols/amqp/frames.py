"""Bytes to protocol headers and frames, and back (part 2 of the specification, section 2.3)."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from sievemq_broker.protocols.amqp.composites import Composite, read, write
from sievemq_broker.protocols.amqp.types import decode, malformed
from sievemq_core.errors import ErrorCode, ProtocolError, shown

__all__ = ["AMQP", "AMQP_HEADER", "MIN_FRAME", "SASL", "SASL_HEADER", "Frame", "FrameParser", "frame_of"]

#: Kinds of frames.
AMQP: Final = 0
SASL: Final = 1

AMQP_HEADER: Final = bytes((*b"AMQP", 0, 1, 0, 0))
SASL_HEADER: Final = bytes((*b"AMQP", 3, 1, 0, 0))

#: Every peer accepts frames of this size.
MIN_FRAME: Final = 512

_HEAD: Final = struct.Struct(">IBBH")


class Frame(NamedTuple):
    """A frame, or a protocol header.

    Attributes:
        kind: AMQP or SASL; -1 for a protocol header.
        channel: of the session.
        body: the performative; None for a heartbeat; the bytes of a protocol header.
        payload: what stands behind it.
        size: bytes of the whole frame.
    """

    kind: int
    channel: int
    body: Any
    payload: bytes
    size: int


class FrameParser:
    """Cuts bytes into frames.

    Args:
        frame_bytes: largest frame that is accepted.
    """

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
        """Accept frames of this size from now on."""
        self._frame_bytes = frame_bytes

    def drop(self) -> None:
        """Drop the bytes of the incomplete frame."""
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
        head = bytes(self._input[self._at : self._at + 8])
        if head[:4] == b"AMQP" and self._headers:
            self._headers -= 1
            self._at += 8
            self.number += 1
            return Frame(-1, 0, head, b"", 8)
        self._headers = min(self._headers, 1)  # one may follow SASL's frames
        size, offset, kind, channel = _HEAD.unpack(head)
        if size < 8 or offset < 2 or offset * 4 > size or kind > SASL:
            raise malformed(f"{shown(head)} is no head of a frame")
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
        body, end = decode(data, 0, len(data))
        performative = read(body)
        if not isinstance(performative, Composite):
            raise malformed(f"a frame begins with {shown(body)}, which is no performative")
        return Frame(kind, channel, performative, data[end:], size)


def frame_of(performative: Composite | None, channel: int = 0, payload: bytes = b"", kind: int = AMQP) -> bytes:
    """A frame.

    Args:
        performative: None for a heartbeat.
        channel: of the session.
        payload: what stands behind it.
        kind: AMQP or SASL.
    """
    out = bytearray(8)
    if performative is not None:
        write(performative, out)
    out += payload
    _HEAD.pack_into(out, 0, len(out), 2, kind, channel)
    return bytes(out)
