"""Where a stream of each protocol is cut, however its bytes arrive."""

from __future__ import annotations

import struct

import pytest

from sievemq_testing.frames import Cut

SIEVE = [struct.pack(">I", 3) + b"abc", struct.pack(">I", 40) + b"x" * 40]
AMQP = [b"AMQP\0\1\0\0", struct.pack(">IBBH", 12, 2, 0, 0) + b"open", struct.pack(">IBBH", 8, 2, 0, 0)]
STOMP = [b"SEND\ncontent-length:3\n\na\0b\0", b"\n\nSEND\r\nid:1\r\n\r\nbody\0", b"ACK\nid:1\n\n\0"]
STREAMS = {"sieve": SIEVE, "amqp": AMQP, "stomp": STOMP}


def passed(protocol: str, skip: int, between: bool, chunk: int) -> bytes:
    """What passes of a stream that arrives in chunks."""
    stream = b"".join(STREAMS[protocol])
    cut, found = Cut(protocol, skip, between), b""
    for start in range(0, len(stream), chunk):
        data = stream[start : start + chunk]
        end = cut.at(data)
        if end is not None:
            return found + data[:end]
        found += data
    return found


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize("protocol", STREAMS)
def test_a_stream_ends_behind_whole_frames(protocol: str, chunk: int) -> None:
    frames = STREAMS[protocol]
    for skip in range(len(frames) + 1):
        assert passed(protocol, skip, True, chunk) == b"".join(frames[:skip])


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_stream_ends_in_the_middle_of_a_frame(protocol: str) -> None:
    frames = STREAMS[protocol]
    for chunk in (1, 1_000):
        for skip, frame in enumerate(frames):
            got, before = passed(protocol, skip, False, chunk), b"".join(frames[:skip])
            assert got.startswith(before)
            assert 0 < len(got) - len(before) < len(frame)


def test_the_end_of_line_behind_a_frame_of_stomp_begins_no_other() -> None:
    cut = Cut("stomp", 1, False)
    assert cut.at(b"RECEIPT\nreceipt-id:1\n\n\0\n") is None
    assert cut.at(b"\n") is None
    assert cut.at(b"MESSAGE\n\nbody\0") == 6
