"""Bytes to commands and back; what is not msgpack; what a few hostile bytes can make the receiver reserve."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import MAX_ARRAY, MAX_MAP
from sievemq_core.wire.codec import Decoder, pack, unpack_value
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

ENVELOPE = ("ID:a:1", 1_700_000_000_000, 4, 2, 0, 0, None, None, None, None, None, 1, b"hi")
DELIVER = (Command.DELIVER, 3, 77, 2, ENVELOPE)


def test_several_commands_in_one_payload_come_out_in_order() -> None:
    commands = [(Command.PING, n) for n in range(1, 5)] + [DELIVER, (Command.HEARTBEAT,)]
    assert Decoder(1000).decode(b"".join(map(pack, commands))) == commands


@pytest.mark.parametrize(("consumer", "tag", "count"), [(0, 0, 0), (3, 77, 2), (2**32 - 1, 2**64 - 1, 2**32 - 1)])
def test_a_delivery_is_a_deliver_command_at_the_ends_of_its_numbers_too(consumer: int, tag: int, count: int) -> None:
    wire = WireConnection("broker")
    wire.deliver(consumer, tag, count, pack(ENVELOPE))
    assert Decoder(1000).decode(wire.out[0]) == [(Command.DELIVER, consumer, tag, count, ENVELOPE)]


def test_an_empty_payload_holds_no_command() -> None:
    assert Decoder(1000).decode(b"") == []


@pytest.mark.parametrize("cut", range(1, len(pack(DELIVER))))
def test_a_payload_that_ends_inside_a_command(cut: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        Decoder(1000).decode(pack(DELIVER)[:cut])
    assert caught.value.code is ErrorCode.MALFORMED_FRAME


@pytest.mark.parametrize("cut", [1, 5])
def test_trailing_bytes_of_another_command(cut: int) -> None:
    with pytest.raises(ProtocolError, match="ends inside a command"):
        Decoder(1000).decode(pack((Command.PING, 1)) + pack(DELIVER)[:cut])


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",  # a byte that msgpack never uses
        b"\x92\x04\xd4\x01\x00",  # extension types, in whatever form
        b"\x92\x04\xc7\x01\x05\x00",
        b"\x92\x04\xd6\xff\x00\x00\x00\x00",
        b"\x92\x02\xa2\xff\xfe",  # text that is not UTF-8
        b"\x92\x04\x81\x01\x02",  # a map with keys that are not text
        b"\x92\x04\x81\x90\x02",
        b"\xdd\xff\xff\xff\xff",  # arrays and maps beyond any limit
        b"\xdf\xff\xff\xff\xff",
        b"\x92\x04\xdb\xff\xff\xff\xff",
        b"\x92\x04\xc6\xff\xff\xff\xff",
    ],
)
def test_msgpack_that_is_no_command_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        Decoder(10_000).decode(payload)
    assert caught.value.code is ErrorCode.MALFORMED_FRAME


@pytest.mark.parametrize("payload", [b"\x05", b"\xc0", b"\xa3abc", b"\xc4\x04\x19\x01\x02\x03", b"\x80", b"\x90"])
def test_msgpack_that_is_not_a_command(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="array that begins with its number"):
        Decoder(1000).decode(payload)


def test_lone_surrogates_travel() -> None:
    command = (Command.DECLARE, 1, "a\ud800b")
    assert Decoder(1000).decode(pack(command)) == [command]
    assert unpack_value(pack("\udfff")) == "\udfff"


@pytest.mark.parametrize(("count", "fine"), [(MAX_ARRAY, True), (MAX_ARRAY + 1, False)])
def test_array_limit(count: int, fine: bool) -> None:
    payload = pack((Command.RELEASE, 1, tuple(range(count))))
    decoder = Decoder(10**6)
    if fine:
        assert len(decoder.decode(payload)[0][2]) == count
    else:
        with pytest.raises(ProtocolError):
            decoder.decode(payload)


def test_map_limit() -> None:
    details = {str(n): n for n in range(MAX_MAP + 1)}
    with pytest.raises(ProtocolError):
        Decoder(10**6).decode(pack((Command.ERROR, 1, 1, "", details)))


@pytest.mark.parametrize(
    "payload",
    [b"\xdd\x7f\xff\xff\xff", b"\xdc\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xdc\x40\x00"],
)
def test_hostile_headers_reserve_next_to_nothing(payload: bytes) -> None:
    decoder = Decoder(64 * 1024 * 1024)
    decoder.decode(pack((Command.HEARTBEAT,)))  # now there is something to decode with, which is not the payload's
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decoder.decode(b"\x92\x04" + payload)
        assert tracemalloc.get_traced_memory()[1] < 400_000
    finally:
        tracemalloc.stop()


def test_decoders_hold_next_to_nothing() -> None:
    first = Decoder(10**6)
    first.decode(pack(DELIVER))
    tracemalloc.start()
    try:
        decoders = [Decoder(10**6) for _ in range(1_000)]
        assert all(decoder.decode(pack(DELIVER)) == [DELIVER] for decoder in decoders)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("broken", [b"\x92\x04", b"\xc1", b"\xdc\xff\xff", b"\x91" * 5_000])
def test_a_truncated_command_of_one_peer_does_not_affect_another(broken: bytes) -> None:
    with pytest.raises(ProtocolError):
        Decoder(1_001).decode(broken[:1_000])
    assert Decoder(1_001).decode(pack(DELIVER)) == [DELIVER]


def test_a_buffer_that_grew_is_let_go() -> None:
    decoder = Decoder(10**8)
    decoder.decode(pack((Command.HEARTBEAT,)))
    large = pack((Command.HEARTBEAT, b"x" * 20_000_000))
    tracemalloc.start()
    try:
        decoder.decode(large)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


def test_nested_hostile_headers_are_bounded_and_let_go() -> None:
    decoder = Decoder(64 * 1024)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decoder.decode(b"\xdc\x40\x00" * 20_000)  # each says: 16384 elements follow
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 160_000_000  # the decoder's own depth bounds it
    assert now < 1_000_000


def test_deep_nesting_is_refused_not_a_crash() -> None:
    with pytest.raises(ProtocolError):
        Decoder(10**6).decode(b"\x91" * 100_000 + b"\x00")
    with pytest.raises(ProtocolError):
        unpack_value(b"\x91" * 100_000 + b"\x00")


@pytest.mark.parametrize("data", [b"", b"\x01\x02", b"\x92\x01", b"\xc1", b"\xa1\xff"])
def test_unpack_value_takes_exactly_one(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a msgpack value"):
        unpack_value(data)


def test_unpack_value_gives_tuples() -> None:
    assert unpack_value(msgpack.packb([1, [2, {"a": [3]}]])) == (1, (2, {"a": (3,)}))
