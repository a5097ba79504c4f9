"""msgspec in msgpack's place, for what a broker does with every message.

The same bytes and the same values in half the time. Importing it takes longer than all of the start, so a broker's
process does that when clients may come already; what it refuses, msgpack does (core/message/envelope.py).
"""

from __future__ import annotations

from sievemq_core.message.envelope import use_codec

__all__ = ["hasten"]


def hasten() -> None:
    """Have this process pack envelopes and decode properties with msgspec from now on."""
    from msgspec import msgpack

    decoder = msgpack.Decoder(dict[str, str | int | float | bool | None])
    use_codec(msgpack.Encoder().encode, decoder.decode)
