"""msgspec as the packer of envelopes: the same bytes, in memory of their own."""

from __future__ import annotations

import msgpack
import pytest
from msgspec import msgpack as msgspec_msgpack

from sievemq_broker.server.codec import exactly


@pytest.mark.parametrize("size", [0, 300, 100_000])
def test_what_is_packed_is_a_copy_that_shares_no_buffer(size: int) -> None:
    encode = msgspec_msgpack.Encoder().encode
    made: list[bytes] = []

    def note(value: object) -> bytes:
        made.append(encode(value))
        return made[-1]

    value = ("ID:1", 4, None, b"x" * size)
    packed = exactly(note)(value)
    assert packed == made[0] == msgpack.packb(value)
    assert packed is not made[0]
