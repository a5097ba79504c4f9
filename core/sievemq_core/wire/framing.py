"""Frames: a length and that many bytes of commands.

     0       4                              4 + length
     +-------+------------------------------+
     | u32   | command command … command    |     length: big-endian, 1 … max_frame
     +-------+------------------------------+

A frame holds one or more whole commands, each a msgpack array. Whoever has several commands to say in one loop turn
says them in one frame: the length is checked once, the decoder runs in C over all of them. A frame of more than
GATHER_BYTES holds one command.
"""

from __future__ import annotations

from typing import TypeAlias

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import GATHER_BYTES, MAX_FRAME_COMMANDS

__all__ = ["FrameReader", "Payload", "pack_frames"]

Payload: TypeAlias = bytes | bytearray
"""What a frame holds. A bytearray where the frame came in pieces: it is not copied once more when the last is there."""


class FrameReader:
    """Cuts a byte stream into frame payloads. O(n) in the bytes fed, however they are cut.

    Args:
        max_frame: bytes a payload may have; a longer one is refused as soon as its length is read, before anything
            is reserved for it.
    """

    __slots__ = ("_need", "_partial", "max_frame", "number")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        # An unfinished frame grows in place: one block of memory, which goes back to the system when it is freed.
        self._partial = bytearray()
        self._need = 4
        #: Counts the frames of which a read ended in the middle.
        self.number = 0

    def feed(self, data: bytes) -> list[Payload]:
        """Take bytes from the peer and return the payloads that are now complete, in order.

        Raises:
            ProtocolError: a length of zero (MALFORMED_FRAME) or above `max_frame` (FRAME_TOO_LARGE).
        """
        payloads: list[Payload] = []
        partial = self._partial
        if partial:
            partial += data
            need = self._need
            if len(partial) < need:
                return payloads
            self._partial = bytearray()
            if need > 4:
                data = bytes(partial[need:])
                del partial[need:], partial[:4]
                payloads.append(partial)
            else:
                data = bytes(partial)
        position, end = 0, len(data)
        self._need = 4
        while end - position >= 4:
            length = int.from_bytes(data[position : position + 4], "big")
            if not 0 < length <= self.max_frame:
                raise self._refuse(length)
            stop = position + 4 + length
            if stop > end:
                self._need = 4 + length
                break
            payloads.append(data[position + 4 : stop])
            position = stop
        if position < end:
            self._partial += data[position:]
            self.number += 1
        return payloads

    def _refuse(self, length: int) -> ProtocolError:
        if length == 0:
            return ProtocolError("a frame of length zero")
        return ProtocolError(
            f"a frame of {length} bytes; at most {self.max_frame} are accepted here", ErrorCode.FRAME_TOO_LARGE
        )

    @property
    def unfinished(self) -> int:
        """Bytes held of a frame that is not complete yet; not zero at the end of a stream means a truncated frame."""
        return len(self._partial)

    def drop(self) -> None:
        """Forget the frame that is not complete."""
        self._partial = bytearray()
        self._need = 4

    @property
    def expected(self) -> int:
        """Bytes of the frame that is not complete yet, its length included; 4 while that is not known, 0 between two
        frames."""
        return self._need if self._partial else 0


def pack_frames(commands: list[bytes], gather: int = GATHER_BYTES) -> list[bytes]:
    """Frames for packed commands, in order, of at most `gather` bytes and MAX_FRAME_COMMANDS commands.

    A single command larger than that gets a frame of its own.
    """
    frames: list[bytes] = []
    start = size = 0
    for index, command in enumerate(commands):
        length = len(command)
        if size and (size + length > gather or index - start == MAX_FRAME_COMMANDS):
            frames.append(size.to_bytes(4, "big"))
            frames.extend(commands[start:index])
            start = index
            size = 0
        size += length
    if size:
        frames.append(size.to_bytes(4, "big"))
        frames.extend(commands[start:] if start else commands)
    return frames
