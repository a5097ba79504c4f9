"""STOMP frames: a command, headers, a body, and a NUL octet. Versions 1.0, 1.1 and 1.2."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sievemq_core.errors import ErrorCode, ProtocolError, shown

#: Commands of a client.
COMMANDS: Final = frozenset({
    "CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT",
})  # fmt: skip

#: Header lines of a frame, and bytes of all of them with the command line.
MAX_FRAME_HEADERS: Final = 1_100
MAX_HEADER_BYTES: Final = 512 * 1024

#: Frames whose headers are not escaped (STOMP 1.2, "Value Encoding").
_UNESCAPED: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})

_BEAT: Final = ord("\n")
_BEATS: Final = re.compile(rb"[\r\n]++")
_LENGTH: Final = b"content-length:"

#: A NUL octet would end the frame, and has no escape sequence.
_ESCAPES: Final = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c", "\0": "\ufffd"}
_BLANKS: Final = str.maketrans({"\r": " ", "\n": " ", "\0": "\ufffd"})
_PLAIN: Final = {"\\\\": "\\", "\\r": "\r", "\\n": "\n", "\\c": ":"}


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a client.

    Attributes:
        command: one of COMMANDS.
        headers: by name; of several with one name the first (STOMP 1.2, "Repeated Header Entries").
        body: bytes.
        size: bytes of the whole frame.
    """

    command: str
    headers: dict[str, str]
    body: bytes
    size: int


class FrameParser:
    """Cuts what arrives into frames."""

    __slots__ = ("_body_bytes", "_head", "_header_bytes", "_input", "_scanned", "number", "version")

    def __init__(self, body_bytes: int, header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._input = bytearray()
        self._body_bytes = body_bytes
        self._header_bytes = header_bytes
        #: How far the frame that is not complete was searched for its end.
        self._scanned = 0
        #: The head of that frame: command, headers, where the body begins, its length if that is known.
        self._head: tuple[str, dict[str, str], int, int | None] | None = None
        #: Protocol version, which decides how headers are escaped. Before the handshake is over nothing is.
        self.version = "1.2"
        #: The number of complete frames so far.
        self.number = 0

    @property
    def pending(self) -> int:
        """Bytes of the frame that is not complete."""
        return len(self._input)

    def speak(self, version: str, body_bytes: int) -> None:
        """The handshake has found this version; from now on bodies may be so large."""
        self.version = version
        self._body_bytes, self._header_bytes = body_bytes, MAX_HEADER_BYTES

    def drop(self) -> None:
        self._input.clear()

    def receive(self, data: bytes) -> None:
        """Take bytes, cut anywhere."""
        self._input += data

    def next(self) -> Frame | None:
        """The next frame; None while it is not complete. Heart-beats between frames are dropped.

        Raises:
            ProtocolError: what came is no frame, or is larger than is allowed.
        """
        received = self._input
        if self._head is None:
            beats = _BEATS.match(received)
            begin = 0 if beats is None else beats.end()
            if begin:
                del received[:begin]
                self._scanned = 0
            if not received or not self._read_head():
                return None
        assert self._head is not None
        command, headers, start, length = self._head
        if length is None:
            end = received.find(b"\0", max(start, self._scanned))
            if end < 0:
                self._scanned = len(received)
                if len(received) - start > self._body_bytes:
                    raise _too_large(len(received) - start, self._body_bytes)
                return None
        else:
            end = start + length
            if end >= len(received):
                return None
            if received[end]:
                raise _malformed(f"content-length is {length}, but no NUL octet follows that many bytes")
        if end - start > self._body_bytes:
            raise _too_large(end - start, self._body_bytes)
        body = bytes(received[start:end])
        del received[: end + 1]
        self._head = None
        self._scanned = 0
        self.number += 1
        return Frame(command, headers, body, end + 1)

    def _read_head(self) -> bool:
        """Read command and headers; False while they are not complete."""
        received = self._input
        position = max(self._scanned - 3, 0)
        at, size = received.find(b"\n\n", position), 2
        earlier = received.find(b"\n\r\n", position, len(received) if at < 0 else at)
        if earlier >= 0:
            at, size = earlier, 3
        if received.find(b"\0", position, len(received) if at < 0 else at) >= 0:
            raise _malformed("a NUL octet stands among the headers; an empty line ends them")
        if at < 0:
            self._scanned = len(received)
            if len(received) <= self._header_bytes:
                return False
        if at < 0 or at > self._header_bytes:
            raise ProtocolError(
                f"the headers of a frame may have {self._header_bytes} bytes in all", ErrorCode.FRAME_TOO_LARGE
            )
        try:
            lines = received[:at].decode().split("\n")
        except UnicodeDecodeError as error:
            raise _malformed(f"command and headers must be UTF-8: {error}") from None
        command = lines[0].removesuffix("\r")
        if command not in COMMANDS:
            raise ProtocolError(f"{shown(command)} is no command of a STOMP client", ErrorCode.UNKNOWN_COMMAND)
        if len(lines) - 1 > MAX_FRAME_HEADERS:
            raise ProtocolError(
                f"a frame may have {MAX_FRAME_HEADERS} headers, this one has {len(lines) - 1}",
                ErrorCode.FRAME_TOO_LARGE,
            )
        escaped = self.version != "1.0" and command not in _UNESCAPED
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.removesuffix("\r").partition(":")
            if not colon or not name:
                raise _malformed(f"the header line {shown(line)} has no name and value with a colon between them")
            if escaped:
                name, value = self._unescape(name), self._unescape(value)
            elif self.version == "1.0":
                name, value = name.strip(), value.strip()
            headers.setdefault(name, value)
        length = headers.get("content-length")
        if length is not None and not (length.isascii() and length.isdigit() and len(length) < 19):
            raise _malformed(f"content-length must be a number of bytes, not {shown(length)}")
        count = None if length is None else int(length)
        if count is not None and count > self._body_bytes:
            raise _too_large(count, self._body_bytes)
        self._head = command, headers, at + size, count
        return True

    def _unescape(self, text: str) -> str:
        if "\\" not in text:
            return text
        parts: list[str] = []
        at = 0
        while (slash := text.find("\\", at)) >= 0:
            pair = text[slash : slash + 2]
            if pair not in _PLAIN or (pair == "\\r" and self.version == "1.1"):
                raise _malformed(f"{shown(pair)} in a header is no escape sequence of STOMP {self.version}")
            parts += text[at:slash], _PLAIN[pair]
            at = slash + 2
        return "".join((*parts, text[at:]))


def header_lines(command: str, headers: Iterable[tuple[str, str]], version: str) -> list[str]:
    if version == "1.0":
        return [f"{name}:{value}".translate(_BLANKS) for name, value in headers]
    if command in _UNESCAPED:
        return [f"{name}:{value}" for name, value in headers]
    return [f"{_escape(name, version)}:{_escape(value, version)}" for name, value in headers]


def encode(
    command: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
    version: str = "1.2",
    lines_behind: Iterable[str] = (),
) -> bytes:
    """A frame of the broker, with its content-length if it has a body. A line feed follows its NUL octet: php-stomp
    takes no further frame without.

    Args:
        body: bytes.
        version: protocol version, which decides how headers are escaped.
        lines_behind: further headers, of :func:`header_lines`.
    """
    lines = [command, *header_lines(command, headers, version), *lines_behind]
    if body:
        lines.append(f"content-length:{len(body)}")
    return b"".join((("\n".join(lines)).encode("utf-8", "replace"), b"\n\n", body, b"\0\n"))


def split(data: bytes) -> list[bytes]:
    """Split the output of :func:`encode` into its frames, with heart-beats on their own.

    Args:
        data: several frames. An incomplete one is left unchanged.
    """
    frames: list[bytes] = []
    start = 0
    while start < len(data):
        if data[start] == _BEAT:
            end = start + 1
        elif (head := data.find(b"\n\n", start)) < 0:
            end = len(data)
        else:
            last = data[max(data.rfind(b"\n", start, head) + 1, start) : head]
            end = head + 4 + (int(last[len(_LENGTH) :]) if last.startswith(_LENGTH) else 0)
        frames.append(data[start:end])
        start = end
    return frames


def _escape(text: str, version: str) -> str:
    if text.isalnum():  # most of them
        return text
    if "\\" in text or "\n" in text or ":" in text or "\r" in text or "\0" in text:
        if version == "1.1":
            text = text.replace("\r", "")  # it has no sequence for it
        return "".join([_ESCAPES.get(c, c) for c in text])
    return text


def _malformed(text: str) -> ProtocolError:
    return ProtocolError(text, ErrorCode.MALFORMED_FRAME)


def _too_large(size: int, limit: int) -> ProtocolError:
    return ProtocolError(
        f"a body of {size} bytes or more; at most {limit} are accepted (max_body_bytes)", ErrorCode.FRAME_TOO_LARGE
    )
