"""msgspec in msgpack's place, for what a broker does with every message.

The same bytes and the same values in half the time. Importing it takes longer than all of the start, so a broker's
process does that when clients may come already; what it refuses, msgpack does (core/message/envelope.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sievemq_core.message.envelope import use_codec

__all__ = ["exactly", "hasten"]


def hasten() -> None:
    """Have this process pack envelopes and decode properties with msgspec from now on."""
    from msgspec import msgpack

    decoder = msgpack.Decoder(dict[str, str | int | float | bool | None])
    use_codec(exactly(msgpack.Encoder().encode), decoder.decode)


def exactly(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """As `encode`, in just as much memory as it takes. What msgspec returns was cut off from a larger buffer, whose end
    is hardly of use to anybody else: messages that wait would take half as much again."""
    join = b"".join
    return lambda value: join((encode(value), b""))  # of two, so that it is a copy
