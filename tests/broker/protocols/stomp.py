"""STOMP clients of the tests, in memory and over a socket: what a real StompConnection says comes back as frames."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from sievemq_broker.protocols.stomp import StompConnection

from ..session.harness import World

#: Seconds that a socket waits for a frame.
SOON = 60


@dataclass
class Received:
    """A frame that the broker sent."""

    command: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def _unescape(text: str) -> str:
    return text.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\\c", ":").replace("\0", "\\")


class Stomp:
    """One client of a World.

    Args:
        world: with the broker.
        version: for accept-version.
        connect: say CONNECT, with these further headers.
    """

    def __init__(self, world: World, version: str = "1.2", connect: bool = True, **headers: str) -> None:
        self.world = world
        self.broker = StompConnection(world.broker, world.services)
        self.frames: list[Received] = []
        self.beats = 0
        self.closed = False
        self._input = b""
        if connect:
            self.say("CONNECT", **{"accept-version": version, "host": "localhost", **headers})

    def feed(self, data: bytes) -> None:
        """Bytes go to the broker, and its answers come back."""
        self.broker.receive_data(data, self.world.now)
        self.settle()

    def say(self, command: str, body: bytes = b"", **headers: str) -> None:
        """A frame; `_` in the name of a header stands for `-`, except in names that begin with a capital."""
        self.feed(frame(command, body, **headers))

    def settle(self) -> None:
        """Turns of a loop, until there is nothing to do."""
        for _ in range(10_000):
            busy = False
            if self.broker.behind:
                self.broker.catch_up(self.world.now)
                busy = True
            if self.broker.has_data:
                self._take(self.broker.data_to_send())
                busy = True
            while self.world.broker.work(self.world.now):
                busy = True
            if not busy and not self.broker.has_data:
                break
        else:
            raise AssertionError("it never comes to rest")
        if self.broker.closing and not self.closed:
            self.closed = True
            self.broker.lost(self.world.now)

    def _take(self, data: bytes) -> None:
        data = self._input + data
        while data:
            if data[:1] == b"\n":
                self.beats += 1
                data = data[1:]
                continue
            cut = _cut(data)
            assert cut is not None, data
            received, data = cut
            self.frames.append(received)
        self._input = data

    def take(self, command: str) -> list[Received]:
        """The frames of this command that came, once."""
        found = [each for each in self.frames if each.command == command]
        self.frames = [each for each in self.frames if each.command != command]
        return found

    def messages(self) -> list[str]:
        """Bodies of the messages that came, once."""
        return [each.body.decode() for each in self.take("MESSAGE")]

    def error(self) -> Received:
        """The ERROR that ended the connection."""
        [error] = self.take("ERROR")
        assert self.closed
        return error

    def lose(self) -> None:
        """The network fails."""
        self.closed = True
        self.broker.lost(self.world.now)


class StompSocket:
    """One client over TCP.

    Args:
        port: of the broker.
        connect: say CONNECT and read CONNECTED; None leaves that to the test.
    """

    def __init__(self, port: int, connect: Mapping[str, str] | None = {}) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SOON)
        self.beats = 0
        self._input = b""
        if connect is not None:
            self.say("CONNECT", **{"accept-version": "1.2", "host": "localhost", **connect})
            self.connected = self.frame("CONNECTED")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def say(self, command: str, body: bytes = b"", **headers: str) -> None:
        """A frame; see :meth:`Stomp.say`."""
        self.socket.sendall(frame(command, body, **headers))

    def confirmed(self, command: str, body: bytes = b"", **headers: str) -> None:
        """A frame that asks for a receipt, and the receipt."""
        self.say(command, body, receipt=f"of {command}", **headers)
        assert self.frame("RECEIPT").headers["receipt-id"] == f"of {command}"

    def frame(self, command: str) -> Received:
        """The next frame, which is of this command."""
        while True:
            if self._input[:1] == b"\n":
                self.beats += 1
                self._input = self._input[1:]
            elif (cut := _cut(self._input)) is not None:
                received, self._input = cut
                assert received.command == command, received
                return received
            else:
                self._receive()

    def beat(self) -> None:
        """Read until another heart-beat has come."""
        while self._input[:1] != b"\n":
            self._receive()
        self.beats += 1
        self._input = self._input[1:]

    def ended(self) -> None:
        """The broker says nothing more, and ends the connection."""
        try:
            while data := self.socket.recv(65_536):
                self._input += data
        except ConnectionError:
            pass
        assert self._input.strip(b"\n") == b"", self._input

    def message(self, **headers: str) -> str:
        """The body of the next MESSAGE, which has these headers."""
        received = self.frame("MESSAGE")
        assert {name: received.headers.get(name) for name in headers} == headers
        return received.body.decode()

    def _receive(self) -> None:
        data = self.socket.recv(65_536)
        assert data, "the broker has ended the connection"
        self._input += data


def _cut(data: bytes) -> tuple[Received, bytes] | None:
    """The first frame, and what is behind it; None while it is not complete."""
    head, end, rest = data.partition(b"\n\n")
    if not end:
        return None
    lines = head.decode().split("\n")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers.setdefault(_unescape(name), _unescape(value))
    length = headers.get("content-length")
    size = rest.find(b"\0") if length is None else int(length)
    if size < 0 or len(rest) < size + 2:
        return None
    assert rest[size : size + 2] == b"\0\n"
    return Received(lines[0], headers, rest[:size]), rest[size + 2 :]


def frame(command: str, body: bytes = b"", **headers: Any) -> bytes:
    """The bytes of a frame."""
    lines = [command]
    for name, value in headers.items():
        name = name if name[:1].isupper() else name.replace("_", "-")
        escaped = (
            str(value)
            if command == "CONNECT"
            else (str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace(":", "\\c"))
        )
        lines.append(f"{name}:{escaped}")
    return "\n".join(lines).encode() + b"\n\n" + body + b"\0"
