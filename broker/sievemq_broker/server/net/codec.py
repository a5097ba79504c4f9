"""msgspec in place of msgpack, for decoding properties: of each message on arrival, so that only what every reader
can read is accepted, and when a selector names one.

It yields the same values in a fifth of the time. It takes 1 MB and long to import, so a broker's process imports it for
the first properties that it decodes, and an embedded broker does without. What it refuses is decoded by msgpack
(core/message/envelope.py).
It does not pack: its result is cut from a larger buffer, so waiting messages would take half as much memory again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated

from sievemq_core.limits import MAX_PROPERTIES
from sievemq_core.message.envelope import use_decoder
from sievemq_core.message.values import LONG_MAX, PropertyValue


def hasten() -> None:
    """Let this process decode properties with msgspec from now on."""
    use_decoder(_decode_first)


def _decode_first(packed: bytes) -> dict[str, PropertyValue]:
    decode = _decoder()
    use_decoder(decode)
    return decode(packed)


@cache
def _decoder() -> Callable[[bytes], dict[str, PropertyValue]]:
    from msgspec import Meta, msgpack

    number = Annotated[int, Meta(le=LONG_MAX)]
    value = str | number | float | bool | None
    decode: Callable[[bytes], dict[str, PropertyValue]]
    decode = msgpack.Decoder(Annotated[dict[str, value], Meta(max_length=MAX_PROPERTIES)]).decode
    return decode
