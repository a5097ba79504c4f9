"""A STOMP client in memory: its frames go to a real StompConnection, and come back as dicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sievemq_broker.protocols.stomp import StompConnection

from ..session.harness import World

__all__ = ["Received", "Stomp"]


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
            if not busy:
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
            head, _, rest = data.partition(b"\n\n")
            lines = head.decode().split("\n")
            headers: dict[str, str] = {}
            for line in lines[1:]:
                name, _, value = line.partition(":")
                headers.setdefault(_unescape(name), _unescape(value))
            length = headers.get("content-length")
            size = rest.index(b"\0") if length is None else int(length)
            self.frames.append(Received(lines[0], headers, rest[:size]))
            assert rest[size : size + 2] == b"\0\n"
            data = rest[size + 2 :]
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
