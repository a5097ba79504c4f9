"""One broken connection harms nobody else; every connection gives everything back however it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.session import SessionSettings
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

from .harness import CLIENT, START, Client, World, envelope, open_consumer


def frame(*commands: Any) -> bytes:
    payload = b"".join(map(pack, commands))
    return len(payload).to_bytes(4, "big") + payload


BROKEN = [
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x01\xc1",
    b"\x00\x00\x00\x02\x92\x04",
    frame((Command.OK, 1, None)),  # not a client's command
    frame((200,)),
    frame((Command.PING,)),
    frame((Command.PING, -1)),
    frame(5),
]


@pytest.mark.parametrize("data", BROKEN)
def test_a_broken_frame_ends_only_its_connection(world: World, data: bytes) -> None:
    bad, good = world.client(), world.client()
    consumer = bad.consumer(bad.session())
    good.send(good.session(), "a", "b")
    assert consumer.receive() == ["a"]
    bad.raw(data)
    assert bad.fatal is not None
    assert ErrorCode(bad.fatal[2]).fatal
    assert not bad.transport_open
    assert good.consumer(good.session()).all() == ["a#2", "b#2"]
    assert world.services.connections.keys() == {good.broker.peer.member.id}


def test_nothing_is_carried_out_after_the_end(world: World, client: Client) -> None:
    session = client.session()
    client.broker.receive_data(frame((Command.PING, -1)), world.now)
    client.broker.receive_data(frame((Command.SEND, session, 1, "queue:q", envelope("late"))), world.now)
    assert world.client().browse() == []


class Fault(Exception):  # noqa: N818
    pass


class Faulty:
    """A namespace with a fault in one of its verbs, or in one of a part of it: ``client_ids.claim``."""

    def __init__(self, real: Any, verb: str, error: Exception) -> None:
        self._real, self._verb, self._error = real, verb, error

    def __getattr__(self, name: str) -> Any:
        part, _, verb = self._verb.partition(".")
        if name == part:
            return Faulty(getattr(self._real, part), verb, self._error) if verb else self._fail
        return getattr(self._real, name)

    def _fail(self, *arguments: Any, **named: Any) -> None:
        raise self._error


SEND = (Command.SEND, 1, 1, "queue:q", envelope("x"))


def check_that_only_one_ends(break_it: Callable[[Client, Fault], None], command: tuple[Any, ...]) -> None:
    world = World()
    bad, good = world.client(), world.client()
    session = bad.session(CLIENT)
    assert session == 1
    consumer = bad.consumer(session)
    good.send(good.session(), "a")
    assert consumer.all() == ["a"]
    fault = Fault("boom")
    break_it(bad, fault)
    bad.raw(frame(command))
    assert [error for _, error in world.services.reports] == [fault]
    assert bad.fatal is not None
    assert bad.fatal[2] == ErrorCode.INTERNAL
    assert "boom" not in bad.fatal[3]  # what is inside stays inside
    assert not bad.transport_open
    assert good.consumer(good.session()).all() == ["a#2"]


@pytest.mark.needs_python("a namespace that is not one")
@pytest.mark.parametrize(
    ("verb", "command"),
    [
        ("send_row", SEND),
        ("send", (Command.SEND, 1, 1, "queue:new", envelope("x"))),
        ("open_consumer", open_consumer(1, 90, request=7)),
        ("declare", (Command.DECLARE, 7, "queue:q")),
        ("browse", (Command.BROWSE, 7, "queue:q", None, None, None, 1)),
        ("unsubscribe", (Command.UNSUBSCRIBE, 7, "s")),
        ("client_ids.claim", (Command.SET_CLIENT_ID, 7, "me")),
    ],
)
def test_a_fault_of_the_broker_ends_only_the_connection_that_met_it(verb: str, command: tuple[Any, ...]) -> None:
    def break_it(bad: Client, fault: Fault) -> None:
        peer = bad.broker.peer
        peer.namespace = peer.member.namespace = Faulty(peer.namespace, verb, fault)  # type: ignore[assignment]

    check_that_only_one_ends(break_it, command)


@pytest.mark.parametrize("command", [SEND, (Command.DECLARE, 7, "queue:q"), (Command.CREDIT, 1, 1)])
def test_a_fault_of_a_handler_ends_only_the_connection_that_met_it(command: tuple[Any, ...]) -> None:
    def break_it(bad: Client, fault: Fault) -> None:
        replace_handler(bad, command[0], fault)

    check_that_only_one_ends(break_it, command)


def replace_handler(client: Client, number: int, error: Exception) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    peer = client.broker.peer
    if number == Command.SEND:
        peer._send = fail
    else:
        peer._handlers = {**peer._handlers, number: fail}


def test_a_fault_while_ending_does_not_stop_the_rest() -> None:
    world = World()
    bad, good = world.client(client_id="me"), world.client()
    consumer = bad.consumer(bad.session())
    bad.send(consumer.session, "a")
    namespace = bad.broker.peer.namespace
    namespace.temporaries = Faulty(namespace.temporaries, "delete_all", Fault("boom"))  # type: ignore[assignment]
    bad.drop()
    assert [doing for doing, _ in world.services.reports] == ["deleting temporary destinations"]
    assert good.browse() == [(2, "a")]
    world.client(client_id="me")


def test_a_refusal_of_a_command_that_is_not_answered_is_fatal(client: Client) -> None:
    consumer = client.consumer(client.session())
    replace_handler(client, Command.CREDIT, RequestError("not now", ErrorCode.ILLEGAL_STATE))
    client.say(Command.CREDIT, consumer.id, 1)
    assert client.fatal is not None
    assert client.fatal[2:4] == (ErrorCode.ILLEGAL_STATE, "not now")


def test_properties_that_cannot_be_decoded_harm_only_their_message(world: World) -> None:
    """The broker accepts none (D-46); a store of an earlier version may hold some."""
    bad, good = world.client(), world.client()
    consumer = good.consumer(good.session(), selector="region = 'EU'")
    fields = list(envelope("poison"))
    fields[9] = b"\xc1\xc1"
    session = bad.session()
    bad.queue_send(session, tuple(fields))
    world.settle()
    assert [command[3] for command in bad.take(Command.SEND_FAILED)] == [ErrorCode.MESSAGE_FORMAT]
    assert world.broker.namespace("").send("queue:q", Envelope(tuple(fields)), world.now) is None
    bad.send(session, "fine", properties={"region": "EU"})
    assert consumer.all() == ["fine"]
    assert bad.fatal is good.fatal is None
    assert good.consumer(good.session()).all() == ["poison"]


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True])
def test_end_of_stream(world: World, client: Client, other: Client, inside: bool) -> None:
    client.consumer(client.session())
    other.send(other.session(), "a")
    if inside:
        client.broker.receive_data(frame((Command.PING, 1))[:5], world.now)
    client.broker.receive_eof(world.now)
    assert client.broker.closing
    assert other.browse() == [(2, "a")]


def test_every_end_may_be_reported_twice(world: World) -> None:
    client, other = world.client(client_id="me"), world.client()
    client.consumer(client.session())
    other.send(other.session(), "a")
    client.drop()
    again = world.client(client_id="me")
    for _ in range(2):
        client.broker.lost(world.now)
        client.broker.receive_eof(world.now)
        client.broker.close(ErrorCode.SHUTTING_DOWN, "again", world.now)
        client.broker.receive_data(b"\x00\x00\x00\x00", world.now)
        client.broker.pause()
        client.broker.resume(world.now)
        client.broker.tick(world.now)
    assert not client.broker.has_data
    assert other.browse() == [(2, "a")]
    assert again.ask(Command.PING)


def test_closed_by_an_administrator(world: World, client: Client, other: Client) -> None:
    consumer = client.consumer(client.session())
    client.send(consumer.session, "a")
    client.broker.close(ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed by ann", world.now)
    assert client.broker in world.services.woken
    world.settle()
    assert client.fatal == (Command.ERROR, 0, ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed by ann", {})
    assert other.browse() == [(2, "a")]


def test_refused_before_its_hello(world: World) -> None:
    client = Client(world)
    client.broker.close(ErrorCode.TOO_MANY_CONNECTIONS, "too many", world.now)
    assert client.broker.closing
    assert b"too many" in client.broker.data_to_send()


def test_shutdown_is_announced(world: World, client: Client) -> None:
    client.broker.outbox.shutdown(5000, "restart")
    world.settle()
    assert client.take(Command.SHUTDOWN) == [(Command.SHUTDOWN, 5000, "restart")]
    assert client.ask(Command.PING)


# -- back-pressure ----------------------------------------------------------------------------------------------------


def test_a_full_outbox_stops_deliveries_until_it_is_flushed() -> None:
    world = World(SessionSettings(outbox_high=10_000))
    client, sender = world.client(), world.client()
    consumer = client.consumer(client.session(), credit=1000)
    client.reading = False
    session = sender.session()
    for n in range(100):
        sender.queue_send(session, envelope(str(n), body=b"%03d" % n + b"x" * 1000))
    world.settle()
    assert client.broker.wire.pending_bytes < 12_000
    assert sender.browse()  # nothing is dropped, it waits
    client.reading = True
    texts = consumer.all()
    assert [text[:3] for text in texts] == [f"{n:03d}" for n in range(100)]


def test_a_paused_transport_gets_nothing_and_others_get_it(world: World, client: Client, other: Client) -> None:
    slow = client.consumer(client.session())
    client.broker.pause()
    sender = other.session()
    other.send(sender, "a", "b")
    assert slow.deliveries == []
    assert client.ask(Command.PING)  # answers still go out
    quick = other.consumer(sender, credit=1)
    assert quick.all() == ["a"]
    client.broker.resume(world.now)
    assert slow.all() == ["b"]


def test_every_consumer_gets_its_turn_when_a_small_outbox_drains() -> None:
    world = World(SessionSettings(outbox_high=2_000))
    client, other = world.client(), world.client()
    session = client.session()
    consumers = [client.consumer(session, f"queue:{n}", credit=1000) for n in range(3)]
    client.broker.pause()
    sender = other.session()
    for n in range(3):
        other.send(sender, *["x" * 1000] * 20, to=f"queue:{n}")
    client.broker.resume(world.now)
    for _ in range(6):
        client.exchange()
    assert all(consumer.deliveries for consumer in consumers)
    assert [len(consumer.all()) for consumer in consumers] == [20, 20, 20]


def test_a_connection_is_woken_once_per_turn_for_the_doings_of_others(world: World) -> None:
    client, sender = world.client(), world.client()
    consumer = client.consumer(client.session(), credit=100)
    world.services.woken.clear()
    session = sender.session()
    for n in range(5):
        sender.queue_send(session, envelope(str(n)))
    sender.broker.receive_data(sender.wire.data_to_send(), world.now)
    assert world.services.woken == [client.broker]
    world.settle()
    assert len(consumer.all()) == 5
    sender.send(session, "again")
    assert world.services.woken == [client.broker] * 2


# -- random bytes -----------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(max_examples=150)
def test_random_bytes_raise_nothing_and_change_nothing(pieces: list[bytes]) -> None:
    world = World()
    good = world.client()
    good.send(good.session(), "a")
    for shaken_hands in (False, True):
        bad = world.client() if shaken_hands else Client(world)
        for piece in pieces:
            bad.broker.receive_data(piece, START)
            bad.broker.receive_data(len(piece).to_bytes(4, "big") + piece, START)
        bad.broker.lost(START)
    assert good.browse() == [(1, "a")]
    assert world.services.reports == []
