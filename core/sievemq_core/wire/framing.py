"""Frames: a length and that many bytes of commands.

     0       4                              4 + length
     +-------+------------------------------+
     | u32   | command command … command    |     length: big-endian, 1 … max_frame
     +-------+------------------------------+

A frame holds one or more whole commands, each a msgpack array. Whoever has several commands to say in one loop turn
says them in one frame: the length is checked once, the decoder runs in C over all of them.
"""

from __future__ import annotations

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import GATHER_BYTES

__all__ = ["FrameReader", "pack_frames"]


class FrameReader:
    """Cuts a byte stream into frame payloads. O(n) in the bytes fed, however they are cut.

    Args:
        max_frame: bytes a payload may have; a longer one is refused as soon as its length is read, before anything
            is reserved for it.
    """

    __slots__ = ("_chunks", "_have", "_need", "max_frame")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        # An unfinished frame is kept as the chunks it came in and joined once it is whole: a large frame in many
        # reads would otherwise be copied at each of them.
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 4

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes from the peer and return the payloads that are now complete, in order.

        Raises:
            ProtocolError: a length of zero (MALFORMED_FRAME) or above `max_frame` (FRAME_TOO_LARGE).
        """
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks = []
        position, end = 0, len(data)
        payloads: list[bytes] = []
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
            self._chunks = [data[position:]]
        self._have = end - position
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
        return self._have


def pack_frames(commands: list[bytes], gather: int = GATHER_BYTES) -> list[bytes]:
    """Frames for packed commands, in order; each frame is closed once it holds `gather` bytes.

    A single command larger than that gets a frame of its own.
    """
    frames: list[bytes] = []
    start = size = 0
    for index, command in enumerate(commands):
        size += len(command)
        if size >= gather:
            frames.append(size.to_bytes(4, "big"))
            frames.extend(commands[start : index + 1])
            start, size = index + 1, 0
    if size:
        frames.append(size.to_bytes(4, "big"))
        frames.extend(commands[start:] if start else commands)
    return frames
