"""Frames that a peer may say and that would cost the broker, or whoever receives what it said, much."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sievemq import ConnectionFactory
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import MAX_ERROR_CHARS, ErrorCode
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import COMMANDS, PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

from .support import DEADLINE, hello

FIELDS = (None, 0, 4, 1, 0, 0, None, None, None, None, None, 1, b"hi")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


class Peer:
    """A raw client."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port), DEADLINE)
        self.wire = WireConnection("client")
        self.wire.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None, {})
        self.wire.data_to_send()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def enter(self) -> Peer:
        self.sock.sendall(hello())
        assert self.read()[0][0] == Command.WELCOME
        self.say((Command.OPEN_SESSION, 1, 1, 1))
        assert self.read() == [(Command.OK, 1, None)]
        return self

    def say(self, *commands: tuple[object, ...]) -> None:
        self.frame(b"".join(map(pack, commands)))

    def frame(self, payload: bytes) -> None:
        try:
            self.sock.sendall(len(payload).to_bytes(4, "big") + payload)
        except ConnectionError:
            pass  # it was refused before its end

    def ping(self, number: int) -> list[tuple[Any, ...]]:
        """What the broker says before it answers a PING of this number: it has carried out everything before that."""
        self.say((Command.PING, number))
        heard: list[tuple[Any, ...]] = []
        while (Command.OK, number) not in [command[:2] for command in heard]:
            more = self.read()
            assert more, "the connection has ended"
            heard += more
        return [command for command in heard if command[:2] != (Command.OK, number)]

    def read(self) -> list[tuple[Any, ...]]:
        """What the broker says next; nothing once the stream has ended."""
        while data := self.sock.recv(1 << 16):
            if heard := self.wire.receive_data(data):
                return heard
        return []


def nested(levels: int) -> object:
    value: object = None
    for _ in range(levels):
        value = (value,)
    return value


BOMBS = {
    "nested array headers": b"\xdc\x3f\xff" * 1_000,
    "empty maps": b"\x80" * 1_000_000,
    "maps in an unknown field": b"\x93\x04\x01\xdd\0\0\0\x40" + (b"\xdc\x3f\xff" + b"\x80" * 16_383) * 64,
    "heartbeats": b"\x91\0" * 500_000,
    "sends": pack((Command.SEND, 1, 1, "q", FIELDS)) * 50_000,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_bomb_ends_its_own_connection_only(broker: EmbeddedBroker, bomb: bytes) -> None:
    with Peer(broker).enter() as other, Peer(broker).enter() as peer:
        peer.frame(bomb)
        (last,) = peer.read()
        assert last[:3] == (Command.ERROR, 0, ErrorCode.MALFORMED_FRAME)
        assert other.ping(2) == []
    assert broker.call(lambda b: "queue:q" not in b.namespace("default").destinations)


def test_bombs_before_hello(broker: EmbeddedBroker) -> None:
    peers = [Peer(broker) for _ in range(30)]
    for peer in peers:
        peer.frame(BOMBS["nested array headers"])
    for peer in peers:
        with peer:
            (last,) = peer.read()
            assert last[:3] == (Command.ERROR, 0, ErrorCode.MALFORMED_FRAME)


@pytest.mark.parametrize("field", [(), {}, nested(9), nested(1_000)], ids=["array", "map", "nested", "deep"])
def test_envelope_that_could_not_be_delivered_is_not_accepted(broker: EmbeddedBroker, field: object) -> None:
    """Answers put an envelope some levels deeper than SEND did: a confirmed one must stay deliverable."""
    packed = pack(FIELDS)
    depth = 0
    while field and isinstance(field, tuple):
        field, depth = field[0], depth + 1
    unknown = b"\x91" * depth + (b"\xc0" if depth else pack(field))
    with Peer(broker).enter() as peer:
        peer.frame(b"\x95\x18\x01\x01\xa1q" + b"\x9e" + packed[1:] + unknown)
        (last,) = peer.read()
        assert last[:3] == (Command.ERROR, 0, ErrorCode.MALFORMED_FRAME)
        assert "must be scalars" in last[3]
    assert broker.call(lambda b: "queue:q" not in b.namespace("default").destinations)


def test_envelope_with_scalars_of_a_newer_version_is_delivered_browsed_and_fetched(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_connection() as connection, Peer(broker).enter() as peer:
        connection.start()
        session = connection.create_session()
        queue = session.create_queue("q")
        tap, _ = open_tap(connection, "audit", queue)
        peer.say((Command.SEND, 1, 1, "q", (*FIELDS, "new", b"packed", 1.5, None, True)))
        peer.ping(2)
        assert [m.get_body(str) for m in session.create_browser(queue)] == ["hi"]
        state = tap.look(0)
        assert len(tap.fetch(0, state.last).counts) == 1
        message = session.create_consumer(queue).receive(int(DEADLINE * 1000))
        assert message is not None
        assert message.get_body(str) == "hi"


@pytest.mark.parametrize(
    "command",
    [
        (Command.CLOCK_SEEN, nested(900)),
        (Command.BROWSE, 5, "q", None, None, nested(900), 1),
        (Command.PUBLISH, 5, "key", 1, nested(900)),
        (Command.PING, nested(900)),
        (Command.OPEN_TAP, 5, "t", "q", "copy", None, None, {"start": nested(900)}),
    ],
    ids=lambda command: COMMANDS[command[0]].name,
)
def test_field_that_is_nested_deep_is_refused_and_no_fault(broker: EmbeddedBroker, command: tuple[object, ...]) -> None:
    with Peer(broker).enter() as peer:
        deep = command[-1]["start"] if isinstance(command[-1], dict) else next(f for f in command if type(f) is tuple)
        depth = b"\x91" * 900 + b"\xc0"
        marked = pack(tuple("@" if f is deep else {"start": "@"} if type(f) is dict else f for f in command))
        peer.frame(marked.replace(b"\xa1@", depth))
        last = peer.read()[-1]
        assert last[0] in (Command.ERROR, Command.OK)
        if last[0] == Command.ERROR:
            assert last[2] != ErrorCode.INTERNAL
            assert len(last[3]) < 300


TEXTS = [
    (number, position)
    for number, spec in COMMANDS.items()
    if spec.sender == "client" and number != Command.HELLO
    for position, field in enumerate(spec.fields, 1)
    if field.kind.rstrip("?") in ("str", "any", "map")
]


@pytest.mark.parametrize(
    ("number", "position"), TEXTS, ids=lambda value: COMMANDS[value].name if value in COMMANDS else None
)
def test_errors_do_not_echo_refused_input(broker: EmbeddedBroker, number: int, position: int) -> None:
    fill: dict[str, object] = {"uint": 5, "bool": False, "str": "q", "ids": (), "map": {}, "any": None, "bytes": b""}
    command: list[Any] = [number, *(fill.get(f.kind.rstrip("?"), FIELDS) for f in COMMANDS[number].fields)]
    large = "x" * 60_000
    command[position] = {"start": large} if isinstance(command[position], dict) else large
    if number == Command.OPEN_TAP and position not in (4,):
        command[4] = "copy"
    if [field.name for field in COMMANDS[number].fields[:2]] == ["request", "session"]:
        command[2] = 1
    with Peer(broker).enter() as peer:
        peer.say(tuple(command), (Command.PING, 77))
        for heard in peer.read():
            texts = [value for value in heard if isinstance(value, str)]
            details = heard[-1] if isinstance(heard[-1], dict) else {}
            texts += [value for key, value in details.items() if isinstance(value, str) and key != "selector"]
            assert all(len(text) <= MAX_ERROR_CHARS for text in texts), (heard[0], max(map(len, texts)))
