"""Frames: a length and that many bytes; whole, byte by byte, and with more behind."""

from __future__ import annotations

import pytest

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import GATHER_BYTES
from sievemq_core.wire.connection import FrameReader, pack_frames


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


PAYLOADS = [b"a", b"bc", b"d" * 300, b"\x00" * 5]
STREAM = b"".join(map(frame, PAYLOADS))


def test_whole() -> None:
    reader = FrameReader(1000)
    assert reader.feed(STREAM) == PAYLOADS
    assert reader.unfinished == 0


def test_byte_by_byte() -> None:
    reader = FrameReader(1000)
    got = [payload for byte in STREAM for payload in reader.feed(bytes([byte]))]
    assert got == PAYLOADS
    assert reader.unfinished == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 64, 299, 300, 301, 303, 304])
def test_in_pieces(size: int) -> None:
    reader = FrameReader(1000)
    got = [p for at in range(0, len(STREAM), size) for p in reader.feed(STREAM[at : at + size])]
    assert got == PAYLOADS


@pytest.mark.parametrize("cut", range(1, 8))
def test_trailing_data_is_kept_for_the_next_feed(cut: int) -> None:
    reader = FrameReader(1000)
    last = frame(b"tail")
    assert reader.feed(STREAM + last[:cut]) == PAYLOADS
    assert reader.unfinished == cut
    assert reader.feed(last[cut:]) == [b"tail"]
    assert reader.unfinished == 0


def test_nothing_fed_yields_nothing() -> None:
    reader = FrameReader(10)
    assert reader.feed(b"") == []
    assert reader.feed(b"\x00\x00") == []
    assert reader.feed(b"") == []
    assert reader.feed(b"\x00\x01x") == [b"x"]


@pytest.mark.parametrize("before", [b"", frame(b"fine")])
def test_length_zero_is_malformed(before: bytes) -> None:
    with pytest.raises(ProtocolError, match="length zero") as caught:
        FrameReader(10).feed(before + b"\x00\x00\x00\x00")
    assert caught.value.code is ErrorCode.MALFORMED_FRAME


def test_length_at_the_limit_passes_and_beyond_is_refused_at_once() -> None:
    assert FrameReader(10).feed(frame(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(ProtocolError, match="11 bytes; at most 10") as caught:
        FrameReader(10).feed((11).to_bytes(4, "big"))  # no byte of the payload has come
    assert caught.value.code is ErrorCode.FRAME_TOO_LARGE


@pytest.mark.parametrize("size", [1, 3])
def test_length_beyond_the_limit_is_refused_when_it_comes_in_pieces(size: int) -> None:
    reader = FrameReader(10)
    data = b"\xff\xff\xff\xff"
    reader.feed(data[:size])
    with pytest.raises(ProtocolError):
        reader.feed(data[size:])


def test_large_frame_in_many_pieces_is_joined_once() -> None:
    payload = bytes(range(256)) * 4096
    data = frame(payload)
    reader = FrameReader(len(payload))
    got = [p for at in range(0, len(data), 1000) for p in reader.feed(data[at : at + 1000])]
    assert got == [payload]


def test_pack_frames_gathers_commands_into_one_frame() -> None:
    assert b"".join(pack_frames([b"ab", b"c", b"def"])) == frame(b"abcdef")
    assert pack_frames([]) == []


def test_pack_frames_closes_a_frame_at_the_gather_size() -> None:
    commands = [b"1234", b"5678", b"9", b"x" * 50, b"y"]
    data = b"".join(pack_frames(commands, gather=8))
    assert FrameReader(100).feed(data) == [b"12345678", b"9", b"x" * 50, b"y"]


def test_pack_frames_never_splits_a_command_and_never_leaves_an_empty_frame() -> None:
    commands = [b"z" * GATHER_BYTES, b"z" * (GATHER_BYTES + 1)]
    assert FrameReader(10**9).feed(b"".join(pack_frames(commands))) == commands
