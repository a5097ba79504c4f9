"""The state machine: every command, said by either role, in every state; handshake, the last word, heartbeats."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import case

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import GATHER_BYTES, HANDSHAKE_FRAME_BYTES
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import COMMANDS, Command, CommandSpec
from sievemq_core.wire.connection import State, WireConnection

ENVELOPE = ("ID:a:1", 1_700_000_000_000, 4, 2, 0, 0, None, None, None, None, None, 1, b"hi")
EXAMPLE: dict[str, Any] = {
    "uint": 1, "bool": True, "str": "x", "bytes": b"x", "map": {}, "ids": (), "any": None, "envelope": ENVELOPE,
    "envelopes": (ENVELOPE, ENVELOPE),
}  # fmt: skip
ROLES = ("client", "broker")


def example(spec: CommandSpec) -> tuple[Any, ...]:
    return (
        spec.number,
        *(EXAMPLE[f.kind.removesuffix("?")] for f in spec.fields),
    )


HELLO, WELCOME, GOODBYE = (example(COMMANDS[n]) for n in (Command.HELLO, Command.WELCOME, Command.GOODBYE))
FATAL = (Command.ERROR, 0, 1, "the end", {})


def frame(*commands: tuple[Any, ...]) -> bytes:
    payload = b"".join(map(pack, commands))
    return len(payload).to_bytes(4, "big") + payload


def at(state: State, role: Any) -> WireConnection:
    """A connection of this role that got into `state` by legal commands only."""
    wire = WireConnection(role)
    client = role == "client"
    for target, speaker, command in (
        (State.WELCOMING, "client", HELLO),
        (State.OPEN, "broker", WELCOME),
        (State.CLOSING, "client", GOODBYE),
        (State.CLOSED, "broker", FATAL),
    ):
        if wire.state is state:
            break
        if client == (speaker == "client"):
            wire.send(*command)
        else:
            assert wire.receive_data(frame(command)) == [command]
        assert wire.state is target
    wire.data_to_send()
    return wire


def expected(state: State, spec: CommandSpec, speaker: str, command: tuple[Any, ...]) -> State | None:
    """What the protocol says: the next state, None if illegal. Not read off the implementation's table."""
    if spec.sender not in (speaker, "both"):
        return None
    if spec.name == "ERROR" and command[1] == 0 and state in (State.HELLO, State.WELCOMING, State.OPEN, State.CLOSING):
        return State.CLOSED
    if state is State.HELLO:
        return State.WELCOMING if spec.name == "HELLO" else State.CLOSED if spec.name == "ERROR" else None
    if state is State.WELCOMING:
        return State.OPEN if spec.name == "WELCOME" else State.CLOSED if spec.name == "ERROR" else None
    if state is State.OPEN:
        if spec.name in ("HELLO", "WELCOME"):
            return None
        return State.CLOSING if spec.name == "GOODBYE" else State.OPEN
    if state is State.CLOSING:
        return State.CLOSING if spec.sender in ("broker", "both") and spec.name != "WELCOME" else None
    return None


EXAMPLES = [FATAL, *(example(spec) for spec in COMMANDS.values())]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("role", ROLES)
def test_hearing_every_command_in_every_state(state: State, role: str) -> None:
    for command in EXAMPLES:
        with case(command):
            hear(state, role, command)


def hear(state: State, role: str, command: tuple[Any, ...]) -> None:
    wire = at(state, role)
    speaker = "broker" if role == "client" else "client"
    after = expected(state, COMMANDS[command[0]], speaker, command)
    if after is None:
        with pytest.raises(ProtocolError) as caught:
            wire.receive_data(frame(command))
        assert caught.value.code is ErrorCode.UNEXPECTED_COMMAND
        assert wire.state is State.CLOSED
    else:
        assert wire.receive_data(frame(command)) == [command]
        assert wire.state is after


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("role", ROLES)
def test_saying_every_command_in_every_state(state: State, role: str) -> None:
    for command in EXAMPLES:
        with case(command):
            say(state, role, command)


def say(state: State, role: str, command: tuple[Any, ...]) -> None:
    wire = at(state, role)
    after = expected(state, COMMANDS[command[0]], role, command)
    if after is None:
        if state is State.OPEN and COMMANDS[command[0]].name not in ("HELLO", "WELCOME", "GOODBYE", "ERROR"):
            return  # on the data path the own side's commands are trusted
        with pytest.raises(ProtocolError) as caught:
            wire.send(*command)
        assert caught.value.code is ErrorCode.UNEXPECTED_COMMAND
        assert wire.state is state
        assert wire.data_to_send() == b""
    else:
        wire.send(*command)
        assert wire.state is after
        assert wire.data_to_send() == frame(command)


def test_a_turn_in_the_middle_of_a_frame() -> None:
    wire = WireConnection("broker")
    with pytest.raises(ProtocolError, match="PING from the client is not legal while welcoming"):
        wire.receive_data(frame(HELLO, (Command.PING, 1)))
    client = WireConnection("client")
    client.send(*HELLO)
    clock = (Command.CLOCK, -5, None)
    assert client.receive_data(frame(WELCOME, clock)) == [WELCOME, clock]
    broker = at(State.OPEN, "broker")
    with pytest.raises(ProtocolError, match="PING from the client is not legal while closing"):
        broker.receive_data(frame((Command.PING, 1), GOODBYE, (Command.PING, 2)))
    assert at(State.OPEN, "client").receive_data(frame((Command.OK, 1, None), FATAL)) == [(Command.OK, 1, None), FATAL]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_a_conversation_in_pieces_of_any_size(size: int) -> None:
    commands = [HELLO]
    data = frame(HELLO)
    wire = WireConnection("broker")
    got: list[tuple[Any, ...]] = []
    for start in range(0, len(data), size):
        got += wire.receive_data(data[start : start + size])
    wire.send(*WELCOME)
    more = [(Command.PING, 1), (Command.SEND, 1, 1, "queue:q", ENVELOPE), (Command.RELEASE, 1, (1, 2), False), GOODBYE]
    data = frame(*more[:2]) + frame(more[2]) + frame(more[3])
    for start in range(0, len(data), size):
        got += wire.receive_data(data[start : start + size])
    assert got == commands + more
    assert wire.state is State.CLOSING


def test_fields_of_a_newer_peer_do_not_disturb_a_frame() -> None:
    wire = at(State.OPEN, "broker")
    send = (Command.SEND, 1, 1, "queue:q", (*ENVELOPE, "newer"))
    assert wire.receive_data(frame((Command.PING, 1, "newer"), send)) == [(Command.PING, 1), send]


@pytest.mark.parametrize(("role", "number"), [("broker", Command.SEND), ("client", Command.DELIVER)])
def test_repeated_and_other_commands_may_share_a_frame(role: str, number: int) -> None:
    """The quick check of whole frames gives way wherever something else stands in one."""
    one = example(COMMANDS[number])
    others = [example(COMMANDS[n]) for n in (Command.HEARTBEAT, Command.CLOCK_SEEN if role == "broker" else Command.OK)]
    for commands in ([one], [one] * 300, [*others, one], [one, *others], [one, *others, one], others):
        assert at(State.OPEN, role).receive_data(frame(*commands)) == commands
    wire = at(State.OPEN, role)
    assert wire.receive_data(frame((*one, "newer"), one)) == [one, one]
    assert wire.receive_data(frame(one, (*one, "newer"))) == [one, one]
    with pytest.raises(ProtocolError):
        wire.receive_data(frame(one, one[:-1], one))
    for state in (State.HELLO, State.WELCOMING):
        with pytest.raises(ProtocolError, match="not legal"):
            at(state, role).receive_data(frame(one, one))
    if role == "broker":
        with pytest.raises(ProtocolError, match="not legal"):
            at(State.OPEN, role).receive_data(frame(one, GOODBYE, one))
    else:
        assert at(State.CLOSING, role).receive_data(frame(one, one)) == [one, one]


def test_a_wrong_command_drops_its_whole_frame() -> None:
    wire = at(State.OPEN, "broker")
    with pytest.raises(ProtocolError):
        wire.receive_data(frame((Command.PING, 1), (Command.CREDIT, 1, -1)))
    assert wire.state is State.CLOSED


def test_before_the_welcome_only_small_frames() -> None:
    wire = WireConnection("broker")
    with pytest.raises(ProtocolError) as caught:
        wire.receive_data((HANDSHAKE_FRAME_BYTES + 1).to_bytes(4, "big"))
    assert caught.value.code is ErrorCode.FRAME_TOO_LARGE
    wire = at(State.OPEN, "broker")
    large = (Command.SEND, 1, 1, "queue:q", (*ENVELOPE[:12], b"x" * HANDSHAKE_FRAME_BYTES))
    assert wire.receive_data(frame(large)) == [large]


def test_end_of_stream_between_and_inside_frames() -> None:
    wire = at(State.OPEN, "broker")
    wire.receive_eof()
    assert wire.state is State.CLOSED
    wire = at(State.OPEN, "broker")
    wire.receive_data(frame((Command.PING, 1))[:6])
    with pytest.raises(ProtocolError, match="inside a frame, 6 bytes after its start"):
        wire.receive_eof()
    assert wire.state is State.CLOSED


@pytest.mark.parametrize("state", list(State))
def test_the_final_error_is_sent_in_any_state(state: State) -> None:
    wire = at(state, "broker")
    wire.fail(ProtocolError("because", ErrorCode.HEARTBEAT_MISSED, {"a": 1}))
    assert wire.state is State.CLOSED
    assert wire.data_to_send() == frame((Command.ERROR, 0, 37, "because", {"a": 1}))


# -- output -----------------------------------------------------------------------------------------------------------


def test_output_is_gathered_and_counted() -> None:
    wire = at(State.OPEN, "client")
    wire.send(Command.PING, 1)
    wire.send_packed(pack((Command.PING, 2)))
    assert wire.pending_bytes == len(pack((Command.PING, 1))) * 2
    assert wire.data_to_send() == frame((Command.PING, 1), (Command.PING, 2))
    assert wire.pending_bytes == 0
    assert wire.data_to_send() == b""


def test_much_output_goes_out_in_several_frames() -> None:
    client, broker = at(State.OPEN, "client"), at(State.OPEN, "broker")
    sent = [(Command.SEND, 1, n, "queue:q", (*ENVELOPE[:12], bytes(GATHER_BYTES // 3))) for n in range(1, 11)]
    for command in sent:
        client.send(*command)
    assert broker.receive_data(client.data_to_send()) == sent


def gathering() -> WireConnection:
    wire = at(State.OPEN, "broker")
    wire.gather_deliveries()
    return wire


def several(consumer: int, tag: int, *envelopes: tuple[object, ...]) -> tuple[object, ...]:
    return (Command.DELIVER_SEVERAL, consumer, tag, envelopes)


def deliver_all(wire: WireConnection, *deliveries: tuple[int, int, int]) -> None:
    for consumer, tag, count in deliveries:
        before = wire.pending_bytes
        assert before < wire.deliver(consumer, tag, count, pack(ENVELOPE)) == wire.pending_bytes


def read(wire: WireConnection) -> list[object]:
    """What a client reads; as many bytes as were counted."""
    pending, data = wire.pending_bytes, wire.data_to_send()
    assert pending == len(data) - 4
    assert wire.pending_bytes == 0
    return list(at(State.OPEN, "client").receive_data(data))


def test_first_deliveries_to_one_consumer_that_follow_each_other_are_one_command() -> None:
    wire = gathering()
    deliver_all(wire, (7, 1, 1), (7, 2, 1), (7, 3, 1), (8, 1, 1), (7, 4, 1), (0, 1, 1), (0, 2, 1))
    assert read(wire) == [
        several(7, 1, ENVELOPE, ENVELOPE, ENVELOPE),
        (Command.DELIVER, 8, 1, 1, ENVELOPE),
        (Command.DELIVER, 7, 4, 1, ENVELOPE),
        several(0, 1, ENVELOPE, ENVELOPE),
    ]
    deliver_all(wire, (0, 3, 1))
    assert read(wire) == [(Command.DELIVER, 0, 3, 1, ENVELOPE)], "nothing joins what was written"


def test_a_redelivery_neither_joins_a_delivery_nor_is_joined() -> None:
    wire = gathering()
    deliver_all(wire, (7, 1, 1), (7, 2, 2), (7, 3, 1), (7, 4, 1), (7, 5, 3))
    assert read(wire) == [
        (Command.DELIVER, 7, 1, 1, ENVELOPE),
        (Command.DELIVER, 7, 2, 2, ENVELOPE),
        several(7, 3, ENVELOPE, ENVELOPE),
        (Command.DELIVER, 7, 5, 3, ENVELOPE),
    ]


def test_a_delivery_does_not_join_one_before_another_command() -> None:
    others = [pack((Command.OK, number, None)) for number in range(3)]
    for between in (
        lambda wire: wire.send(Command.OK, 0, None),
        lambda wire: wire.send_packed(others[0]),
        lambda wire: wire.send_all(others[:1]),
    ):
        wire = gathering()
        deliver_all(wire, (7, 1, 1), (7, 2, 1))
        between(wire)
        deliver_all(wire, (7, 3, 1), (7, 4, 1))
        expected = [several(7, 1, ENVELOPE, ENVELOPE), (Command.OK, 0, None), several(7, 3, ENVELOPE, ENVELOPE)]
        assert read(wire) == expected
    wire = gathering()
    deliver_all(wire, (7, 1, 1), (7, 2, 1))
    wire.deliver_several(7, 3, [pack(ENVELOPE)] * 2)
    deliver_all(wire, (7, 5, 1))
    assert read(wire) == [
        several(7, 1, ENVELOPE, ENVELOPE), several(7, 3, ENVELOPE, ENVELOPE), (Command.DELIVER, 7, 5, 1, ENVELOPE)
    ]  # fmt: skip


def test_a_peer_that_does_not_take_several_gets_each_delivery() -> None:
    wire = at(State.OPEN, "broker")
    deliver_all(wire, (7, 1, 1), (7, 2, 1))
    assert read(wire) == [(Command.DELIVER, 7, tag, 1, ENVELOPE) for tag in (1, 2)]


@pytest.mark.parametrize("size", [GATHER_BYTES // 3, GATHER_BYTES - 200, GATHER_BYTES, 100])
def test_gathered_deliveries_fill_no_more_than_a_frame(size: int) -> None:
    wire = gathering()
    fields = (*ENVELOPE[:12], bytes(size))
    for tag in range(1, 1_001 if size < 1_000 else 11):
        wire.deliver(7, tag, 1, pack(fields))
    pending, data = wire.pending_bytes, wire.data_to_send()
    tag, lengths = 1, []
    for command in at(State.OPEN, "client").receive_data(data):
        if command[0] == Command.DELIVER_SEVERAL:
            assert command[2] == tag
            lengths.append(len(command[3]))
        else:
            assert command[2] == tag
            lengths.append(1)
        tag += lengths[-1]
    assert sum(lengths) == tag - 1 == (1_000 if size < 1_000 else 10)
    assert max(lengths) * size <= GATHER_BYTES or max(lengths) == 1
    assert lengths[0] == {GATHER_BYTES // 3: 2}.get(size, lengths[0])
    frames = 0
    while data:
        length = int.from_bytes(data[:4], "big")
        frames, pending, data = frames + 1, pending - length, data[4 + length :]
    assert pending == 0
    assert frames


# -- heartbeats -------------------------------------------------------------------------------------------------------


def test_heartbeat_only_without_other_output() -> None:
    wire = at(State.OPEN, "broker")
    wire.set_heartbeat(1000, 400)
    assert (wire.interval_in, wire.interval_out) == (1000, 400)
    wire.heartbeat_due()  # the welcome was said before this interval
    assert wire.heartbeat_due()
    assert wire.data_to_send() == frame((Command.HEARTBEAT,))
    assert not wire.heartbeat_due()  # the one before counts as said
    assert wire.heartbeat_due()
    wire.data_to_send()
    wire.send(Command.OK, 1, None)
    assert not wire.heartbeat_due()


def test_no_heartbeat_without_a_request_or_before_the_connection_is_open() -> None:
    wire = at(State.OPEN, "broker")
    wire.heartbeat_due()
    assert not wire.heartbeat_due()
    early = WireConnection("client")
    early.set_heartbeat(100, 100)
    assert not early.heartbeat_due()


def test_received_means_any_byte_since_the_last_check() -> None:
    wire = at(State.OPEN, "client")
    wire.received()
    assert not wire.received()
    wire.receive_data(b"\x00")
    assert wire.received()
    assert not wire.received()
