"""What hostile bytes can reach: each target takes any bytes and lets nothing out but AssertionErrors and faults.

A target is a module with ``run(data)``, which raises only if something is wrong, ``seeds()``, good input to start from,
and ``close()`` if it leaves something behind. The same targets are run by libFuzzer (``make fuzz``) and, over their
seeds and a few mutations, by pytest.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, cast

__all__ = ["TARGETS", "Target", "load", "opened", "pieces", "together"]

#: name -> what it is about.
TARGETS = {
    "wire": "framing, codec and legality at both ends of a connection",
    "session": "a broker's session layer, behind a handshake",
    "stomp": "STOMP frames to a broker, cut anywhere, before and after CONNECT",
    "amqp": "AMQP frames to a broker, cut anywhere, before and after open",
    "engine": "a client's engine that listens to a hostile broker",
    "message": "properties and bodies of received messages, XML forms",
    "selector": "parsing, compiling, explaining, portability, in three dialects",
    "store": "opening, checking, exporting and repairing a damaged data directory",
    "http": "requests to the management port, in this process",
    "text": "URLs, addresses, configuration",
}


class Target(Protocol):
    """What a module of this package has."""

    def run(self, data: bytes) -> None:
        """Take any bytes; raise only if something is wrong."""

    def seeds(self) -> Iterable[bytes]:
        """Input that gets far."""


def load(name: str) -> Target:
    """The target of that name."""
    return cast("Target", importlib.import_module(f"{__name__}.{name}"))


@contextmanager
def opened(name: str) -> Iterator[Target]:
    """The target of that name, closed in the end."""
    target = load(name)
    try:
        yield target
    finally:
        getattr(target, "close", lambda: None)()


def pieces(data: bytes) -> list[bytes]:
    """Bytes cut into pieces, each behind its length in two bytes: so that mutations stay within a piece."""
    found = []
    at = 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def together(parts: Iterable[bytes]) -> bytes:
    """The inverse of :func:`pieces`, for pieces below 64 KB."""
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)
