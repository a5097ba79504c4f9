"""STOMP frames, cut anywhere, escaped as each version has it, and every wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_broker.protocols.stomp.frames import MAX_FRAME_HEADERS, MAX_HEADER_BYTES, Frame, FrameParser, encode, split
from sievemq_core.errors import ErrorCode, ProtocolError


def parsed(data: bytes, version: str = "1.2", limit: int = 1000) -> list[Frame]:
    parser = FrameParser(limit)
    parser.version = version
    parser.receive(data)
    frames = []
    while (frame := parser.next()) is not None:
        frames.append(frame)
    return frames


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)


@given(
    st.lists(st.tuples(st.dictionaries(TEXT, TEXT, max_size=4), st.binary(max_size=20)), min_size=1, max_size=4),
    st.data(),
)
def test_frames_cut_anywhere_are_reassembled(sent: list[tuple[dict[str, str], bytes]], data: st.DataObject) -> None:
    whole = b""
    expected = []
    for headers, body in sent:
        headers = {name: value for name, value in headers.items() if name != "content-length"}
        whole += encode("SEND", headers.items(), body) + data.draw(st.sampled_from([b"", b"\n", b"\r\n\n"]))
        expected.append((headers, body))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    parser = FrameParser(1000)
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        parser.receive(whole[begin:end])
        while (frame := parser.next()) is not None:
            found.append((frame.headers, frame.body))
    for headers, body in found:
        if body:
            assert headers.pop("content-length") == str(len(body))
    assert found == expected
    assert parser.pending == 0


def test_lines_may_end_in_carriage_return_and_line_feed() -> None:
    [frame] = parsed(b"SEND\r\ndestination:/queue/a\r\n\r\nbody\0\r\n")
    assert (frame.command, frame.headers, frame.body) == ("SEND", {"destination": "/queue/a"}, b"body")


def test_the_first_of_repeated_headers_counts() -> None:
    [frame] = parsed(b"SEND\nfoo:World\nfoo:Hello\n\n\0")
    assert frame.headers == {"foo": "World"}


def test_a_body_with_nul_octets_needs_its_length() -> None:
    [frame] = parsed(b"SEND\ncontent-length:3\n\na\0b\0")
    assert frame.body == b"a\0b"


@pytest.mark.parametrize(
    ("version", "line", "headers"),
    [
        ("1.2", rb"a\c:b\n\r\\", {"a:": "b\n\r\\"}),
        ("1.1", rb"a\c:b\n\\", {"a:": "b\n\\"}),
        ("1.0", rb" a : b\n ", {"a": r"b\n"}),
    ],
)
def test_each_version_has_its_escapes(version: str, line: bytes, headers: dict[str, str]) -> None:
    assert parsed(b"SEND\n" + line + b"\n\n\0", version)[0].headers == headers


@pytest.mark.parametrize(
    "data", [b"SEND\nlo\0gin:x\n\n\0", b"SEND\na:b\0\n\n", b"SE\0ND\r\n\r\n\0", b"SEND\0\nx:y\n\n\0"]
)
def test_a_nul_octet_among_the_headers_is_refused_however_they_are_cut(data: bytes) -> None:
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        parser = FrameParser(1000)
        with pytest.raises(ProtocolError, match="NUL octet stands among the headers"):
            for piece in pieces:
                parser.receive(piece)
                parser.next()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_nul_in_a_header_of_another_client_does_not_end_the_frame(version: str) -> None:
    assert encode("MESSAGE", [("a\0", "b\0:\n")], b"x", version).count(b"\0") == 1


def test_connect_is_not_escaped() -> None:
    assert parsed(b"CONNECT\npasscode:a\\nb:c\n\n\0")[0].headers == {"passcode": "a\\nb:c"}
    assert encode("CONNECTED", [("session", "a:b")]) == b"CONNECTED\nsession:a:b\n\n\0\n"


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"HELLO\n\n\0", ErrorCode.UNKNOWN_COMMAND, "no command"),
        (b"SEND\nx\n\n\0", ErrorCode.MALFORMED_FRAME, "colon"),
        (b"SEND\n:x\n\n\0", ErrorCode.MALFORMED_FRAME, "colon"),
        (b"SEND\na:b\0", ErrorCode.MALFORMED_FRAME, "empty line"),
        (b"SEND\na:\\t\n\n\0", ErrorCode.MALFORMED_FRAME, "escape"),
        (b"SEND\na:\xff\n\n\0", ErrorCode.MALFORMED_FRAME, "UTF-8"),
        (b"SEND\ncontent-length:x\n\n\0", ErrorCode.MALFORMED_FRAME, "content-length"),
        (b"SEND\ncontent-length:-1\n\n\0", ErrorCode.MALFORMED_FRAME, "content-length"),
        (b"SEND\ncontent-length:2\n\nabc\0", ErrorCode.MALFORMED_FRAME, "NUL"),
        (b"SEND\ncontent-length:1001\n\n", ErrorCode.FRAME_TOO_LARGE, "1001"),
        (b"SEND\n\n" + b"x" * 1001, ErrorCode.FRAME_TOO_LARGE, "max_body_bytes"),
        (b"SEND\na:" + b"x" * MAX_HEADER_BYTES, ErrorCode.FRAME_TOO_LARGE, "headers"),
        (b"SEND\n" + b"a:b\n" * (MAX_FRAME_HEADERS + 1) + b"\n\0", ErrorCode.FRAME_TOO_LARGE, "headers"),
    ],
)
def test_malformed_frames_are_refused_at_once(data: bytes, code: ErrorCode, text: str) -> None:
    with pytest.raises(ProtocolError, match=text) as caught:
        parsed(data)
    assert caught.value.code is code


def test_a_carriage_return_is_no_escape_in_version_1_1() -> None:
    with pytest.raises(ProtocolError, match="escape"):
        parsed(b"SEND\na:\\r\n\n\0", "1.1")


def test_a_large_frame_in_small_pieces() -> None:
    parser = FrameParser(200_000)
    data = b"SEND\n\n" + b"x" * 100_000 + b"\0"
    for at in range(0, len(data), 10):
        assert parser.next() is None
        parser.receive(data[at : at + 10])
    frame = parser.next()
    assert frame is not None
    assert len(frame.body) == 100_000


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_output_is_cut_into_its_frames_again(version: str) -> None:
    frames = [
        encode("RECEIPT", [("receipt-id", "a: content-length:9")], version=version),
        b"\n",
        encode("MESSAGE", [("x", "y")], b"\n\n\0content-length:3\n\n\0", version),
        encode("CONNECTED", [], version=version),
        encode("MESSAGE", [], b"\0" * 1_000, version),
        b"\n",
        b"\n",
    ]
    assert split(b"".join(frames)) == frames


def test_output_that_is_cut_off_stays_as_it_is() -> None:
    frame = encode("MESSAGE", [("a", "b")], b"body")
    for end in range(1, len(frame)):
        assert b"".join(split(frame[:end])) == frame[:end]
