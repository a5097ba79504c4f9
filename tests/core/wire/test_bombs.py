"""Frames that are small or legal and would cost their receiver much: what is refused before it is made."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import (
    GATHER_BYTES,
    HANDSHAKE_VALUES,
    MAX_ARRAY,
    MAX_BROKER_VALUES,
    MAX_CLIENT_VALUES,
    MAX_FRAME_COMMANDS,
    UNCOUNTED_BYTES,
)
from sievemq_core.wire.codec import Decoder, check_values, pack
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import State, WireConnection, pack_frames

MIB = 1024 * 1024
MAPS = b"\xdc\x3f\xff" + b"\x80" * 16_383  # an array of as many empty maps
TEXTS = b"\xdc\x3f\xff" + b"\xa2ab" * 16_383


def nested(unit: bytes, size: int) -> bytes:
    """An array of arrays: `size` bytes or a little more, in one value."""
    count = size // len(unit) + 1
    return b"\xdd" + count.to_bytes(4, "big") + unit * count


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def end(role: Any, state: State) -> WireConnection:
    wire = WireConnection("broker" if role == "broker" else "client")
    if state is State.OPEN:
        other = WireConnection("client" if role == "broker" else "broker")
        hello = (Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None, {})
        welcome = (Command.WELCOME, PROTOCOL_VERSION, "SieveMQ", "1", "c", 0, {}, {})
        client, broker = (other, wire) if role == "broker" else (wire, other)
        client.send(*hello)
        broker.receive_data(client.data_to_send())
        broker.send(*welcome)
        client.receive_data(broker.data_to_send())
    return wire


def refused(wire: WireConnection, data: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        for at in range(0, len(data), 1 << 18):
            wire.receive_data(data[at : at + (1 << 18)])
    assert wire.state is State.CLOSED
    return caught.value


LARGE = {
    "empty maps": b"\x80" * (2 * MIB),
    "heartbeats": b"\x91\x00" * MIB,
    "sends": pack((Command.SEND, 1, 1, "q", (None, 0, 4, 1, 0, 0, None, None, None, None, None, 0, None))) * 60_000,
    "maps in an unknown field": b"\x93\x04\x01" + nested(MAPS, UNCOUNTED_BYTES),
    "texts in an unknown field": b"\x93\x04\x01" + nested(TEXTS, UNCOUNTED_BYTES),
    "maps in a field of any kind": b"\x93\x41\x01" + nested(MAPS, UNCOUNTED_BYTES),
}


@pytest.mark.parametrize("role", ["broker", "client"])
@pytest.mark.parametrize("payload", LARGE.values(), ids=LARGE.keys())
def test_large_frame_of_many_values_takes_no_more_than_its_bytes(role: str, payload: bytes) -> None:
    wire = end(role, State.OPEN)
    data = frame(payload)
    tracemalloc.start()
    try:
        error = refused(wire, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.code is ErrorCode.MALFORMED_FRAME
    assert peak < 2.5 * len(data)  # what came, and room for it to grow: 60 to 80 times as much where it was decoded


def test_client_does_not_decode_a_bomb_in_the_place_of_welcome() -> None:
    wire = WireConnection("client")
    wire.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None, {})
    assert "several commands" in refused(wire, frame(b"\x80" * (8 * MIB))).text


SMALL = {
    "nested array headers": b"\xdc\x3f\xff" * 1_000,
    "nested array headers, 32 bits": b"\xdd\x00\x00\x3f\xff" * 1_000,
    "nested arrays of 15": b"\x9f" * 3_000,
    "nested maps": b"\x81\xa1a" * 1_000,
}


def best(wire_of: Any, data: bytes) -> float:
    """Processor seconds that a connection takes for these bytes, the least of several tries."""
    took = []
    for _ in range(7):
        wire = wire_of()
        begin = time.process_time()
        try:
            wire.receive_data(data)
        except ProtocolError:
            pass
        took.append(time.process_time() - begin)
    return min(took)


@pytest.mark.parametrize("state", [State.HELLO, State.OPEN])
@pytest.mark.parametrize("payload", SMALL.values(), ids=SMALL.keys())
def test_nested_headers_cost_a_broker_what_honest_commands_cost(state: State, payload: bytes) -> None:
    honest = best(lambda: end("broker", State.OPEN), frame(b"\x92\x04\x01" * 1_000))
    hostile = best(lambda: end("broker", state), frame(payload))
    assert hostile < 5 * honest  # 100 to 200 times as much where room is made for what a header announces


@pytest.mark.parametrize("state", [State.HELLO, State.OPEN])
def test_nested_headers_reserve_nothing(state: State) -> None:
    wire = end("broker", state)
    end("broker", State.OPEN).receive_data(frame(b"\x92\x04\x01"))  # now there is something to decode with
    tracemalloc.start()
    try:
        refused(wire, frame(SMALL["nested array headers"]))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


# -- the limits, and one beyond ---------------------------------------------------------------------------------------


def padded(size: int) -> bytes:
    """Two commands in so many bytes."""
    ping = pack((Command.PING, 1))
    rest = size - len(ping) - 5
    return ping + b"\x92\x00\xc5" + rest.to_bytes(2, "big") + b"x" * rest


def test_several_commands_in_a_frame_of_64_kib() -> None:
    assert len(padded(GATHER_BYTES)) == GATHER_BYTES
    assert len(end("broker", State.OPEN).receive_data(frame(padded(GATHER_BYTES)))) == 2


@pytest.mark.parametrize("role", ["broker", "client"])
def test_several_commands_in_a_larger_frame(role: str) -> None:
    payload = b"\x91\x00" + pack((Command.HEARTBEAT, b"x" * GATHER_BYTES))
    error = refused(end(role, State.OPEN), frame(payload))
    assert f"a frame of {len(payload)} bytes holds several commands" in error.text


def test_commands_of_one_frame() -> None:
    heartbeats = b"\x91\x00" * MAX_FRAME_COMMANDS
    assert len(end("broker", State.OPEN).receive_data(frame(heartbeats))) == MAX_FRAME_COMMANDS
    error = refused(end("broker", State.OPEN), frame(heartbeats + b"\x91\x00"))
    assert error.text == f"a frame of {MAX_FRAME_COMMANDS + 1} commands; one may hold {MAX_FRAME_COMMANDS}"


def test_sender_keeps_to_both_limits() -> None:
    client, broker = end("client", State.OPEN), end("broker", State.OPEN)
    for number in range(3 * MAX_FRAME_COMMANDS):
        client.send(Command.PING, number)
    for size in (10, GATHER_BYTES - 20, GATHER_BYTES, 3 * GATHER_BYTES, 10):
        client.send(Command.DECLARE, 1, "q" * size)
    assert len(broker.receive_data(client.data_to_send())) == 3 * MAX_FRAME_COMMANDS + 5


def test_values_of_a_large_frame() -> None:
    tags = tuple(range(2**40, 2**40 + MAX_ARRAY))  # 147 KiB
    assert end("broker", State.OPEN).receive_data(frame(pack((Command.RELEASE, 1, tags)))) == [
        (Command.RELEASE, 1, tags, False)
    ]
    assert len(end("broker", State.OPEN).receive_data(frame(pack((Command.RELEASE, 1, tags, False, tags))))) == 1
    error = refused(end("broker", State.OPEN), frame(pack((Command.RELEASE, 1, tags, False, tags, tags))))
    assert error.text.endswith(f"bytes has more than {MAX_CLIENT_VALUES} values")


def test_values_of_a_page_that_a_client_takes() -> None:
    row = (1, (None, 0, 4, 1, 0, 0, None, None, None, None, None, 0, b"x" * 115))
    page = pack((Command.OK, 1, (None, *[row] * 15_000)))
    assert len(page) < UNCOUNTED_BYTES < len(pack((Command.OK, 1, (None, *[row] * 16_383))))
    for rows in (15_000, 16_383):
        (ok,) = end("client", State.OPEN).receive_data(frame(pack((Command.OK, 1, (None, *[row] * rows)))))
        assert len(ok[2]) == rows + 1
    assert MAX_BROKER_VALUES > 16 * 16_383


def test_values_before_welcome() -> None:
    hello = (Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None)
    pairs = tuple(range(1, 2_001))
    fine = (*hello, {"handed": pairs, "done": pairs, "ids": (1, 2)})
    assert end("broker", State.HELLO).receive_data(frame(pack(fine))) == [fine]
    error = refused(end("broker", State.HELLO), frame(pack((*hello, {"handed": (0,) * HANDSHAKE_VALUES}))))
    assert error.text.endswith(f"bytes has more than {HANDSHAKE_VALUES} values")


# -- counting ---------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=300)
    | st.just("x" * 70_000)
    | st.just(b"x" * 70_000),
    lambda inner: st.lists(inner, max_size=20).map(tuple) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=40,
)


def count_of(value: object) -> int:
    if isinstance(value, tuple):
        return 1 + sum(map(count_of, value))
    if isinstance(value, dict):
        return 1 + sum(map(count_of, value)) + sum(map(count_of, value.values()))
    return 1


@given(values, st.data())
def test_values_are_counted_as_msgpack_makes_them(value: object, data: st.DataObject) -> None:
    packed, count = pack(value), count_of(value)
    check_values(packed, count)
    with pytest.raises(ProtocolError, match="more than"):
        check_values(packed, count - 1)
    if len(packed) > 1:
        with pytest.raises(ProtocolError):
            check_values(packed[: data.draw(st.integers(1, len(packed) - 1))], count)


@given(st.lists(values, max_size=4), st.booleans())
def test_decoders_agree(several: list[Any], trusting: bool) -> None:
    payload = b"".join(map(pack, several))
    if len(payload) <= GATHER_BYTES:
        assert repr(Decoder(trusting=trusting).unpack(payload)) == repr(several)


@pytest.mark.parametrize("byte", [0xC1, 0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8])
def test_illegal_first_bytes_are_refused(byte: int) -> None:
    with pytest.raises(ProtocolError, match=f"must not begin with 0x{byte:02x}"):
        check_values(bytes([byte]) + bytes(40), 100)


# -- frames that wait -------------------------------------------------------------------------------------------------


def test_only_the_requested_number_of_frames_is_decoded() -> None:
    client, wire = end("client", State.OPEN), end("broker", State.OPEN)
    data = b"".join(pack_frames([pack((Command.PING, n)) for n in range(1, 31)], gather=30))  # ten in each
    assert [n for _, n in wire.receive_data(data, 15)] == list(range(1, 21))
    assert wire.payloads
    assert wire.unfinished == len(data) // 3 - 4
    assert [n for _, n in wire.receive_more(15)] == list(range(21, 31))
    assert not wire.payloads
    assert wire.unfinished == 0
    assert client.state is State.OPEN


def test_frames_that_wait_are_dropped_with_the_connection() -> None:
    wire = end("broker", State.OPEN)
    wire.receive_data(frame(pack((Command.PING, 1))) * 3, 1)
    assert wire.payloads
    refused(wire, frame(b"\xc1"))
    assert not wire.payloads


def test_a_frame_whose_commands_are_examined_one_by_one_is_interrupted() -> None:
    wire = end("broker", State.OPEN)
    opened = [(Command.OPEN_SESSION, n, n, 1, 0) for n in range(1, 31)]
    data = frame(b"".join([pack(command[:4]) for command in opened]))  # without a field of later versions
    assert wire.receive_data(data, 10) == opened[:10]
    assert (len(wire.payloads), wire.unfinished) == (1, len(data) - 4)
    assert wire.receive_data(data, 15) == opened[10:25]
    assert (len(wire.payloads), wire.unfinished) == (2, 2 * len(data) - 8)
    assert wire.receive_more(15) == opened[25:] + opened[:10]
    assert (len(wire.payloads), wire.unfinished) == (1, len(data) - 4)
    assert wire.receive_more(100) == opened[10:]
    assert (wire.payloads, wire.unfinished) == ([], 0)


def test_a_faulty_command_behind_an_interruption_ends_the_connection() -> None:
    wire = end("broker", State.OPEN)
    opened = [(Command.OPEN_SESSION, n, n, 1, 0) for n in range(1, 6)]
    data = frame(b"".join([*map(pack, opened), pack((Command.OPEN_SESSION, "six", 6, 1)), *map(pack, opened)]))
    assert wire.receive_data(data, 4) == opened[:4]
    with pytest.raises(ProtocolError):
        wire.receive_more(4)
    assert wire.state is State.CLOSED
    assert wire.receive_more() == []
