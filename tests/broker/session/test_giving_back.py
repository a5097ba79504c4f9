"""Messages that come back by the ten thousand come back in slices, and nobody can tell, but by when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import TURN
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import Command

from .harness import AUTO, CLIENT, TRANSACTED, Client, Consumer, World, envelope
from .test_fan_out import hand_over, read
from .test_pieces import often, played
from .test_resume import KEEP
from .test_rows import SEVERAL, STEPS

MANY = 5 * TURN
SEEN = 2 * TURN + 7


def queue_of(world: World, name: str = "queue:q") -> Queue:
    return world.broker.namespace("").queue(name)


def fill(world: World, count: int = MANY, **more: Any) -> None:
    for number in range(count):
        world.broker.namespace("").send("queue:q", Envelope(envelope(f"m{number}", **more)), world.now)


def holding(world: World, mode: int = CLIENT, **hello: Any) -> tuple[Client, Consumer]:
    """A client whose consumer holds very many messages, of which the application has seen some."""
    client = world.client(**hello)
    consumer = client.consumer(client.session(mode), credit=0)
    if not queue_of(world).sequence:
        fill(world)
    held = client.broker.peer.deliveries.consumers[consumer.id]
    while held.unacknowledged < MANY:
        held.grant(500, world.now)
        world.settle()
    consumer.seen = SEEN
    return client, consumer


def turns(world: World, act: Callable[[], object] | None = None) -> list[int]:
    """How many messages come back in each turn until nothing is left to do; `act` is called between two of them."""
    found, queue = [], queue_of(world)
    before = queue.in_flight
    more = True
    while more:
        more = world.broker.work(world.now, TURN)
        for client in world.clients:
            if client.transport_open and client.broker.behind:
                client.broker.catch_up(world.now)
        found.append(before - queue.in_flight)
        before = queue.in_flight
        if act is not None:
            act()
            act = None
            before = queue.in_flight
    world.settle()
    assert world.broker.scheduler.overrun <= 1_000
    return found


def say(client: Client, number: int, *fields: Any) -> None:
    """A command arrives at the broker, and is carried out as far as it is at once."""
    client.wire.send(number, *fields)
    hand_over(client)


def begin(client: Client, consumer: Consumer, how: str) -> None:
    """What a client holds begins to come back."""
    session, handed = consumer.session, (consumer.id, consumer.seen)
    match how:
        case "recover":
            say(client, Command.RECOVER, 99, session, handed)
        case "rollback":
            say(client, Command.ROLLBACK, 99, session, handed)
        case "commit":
            assert client.broker.peer.sessions[session].transaction is not None
            client.queue_send(session, envelope("refused"), "temporary-queue:x.y")
            say(client, Command.COMMIT, 99, session, handed)
        case "session":
            say(client, Command.CLOSE_SESSION, 99, session, handed)
        case "goodbye":
            say(client, Command.GOODBYE, 99, handed)
        case "consumer":
            say(client, Command.CLOSE_CONSUMER, 99, consumer.id, 0)
        case "release":
            say(client, Command.RELEASE, consumer.id, tuple(range(1, MANY + 1)))
        case "settle":
            say(client, Command.SETTLE, consumer.id, tuple(range(1, MANY + 1)), 1, 0)
        case _:
            client.transport_open = False
            client.broker.lost(client.world.now)


#: Ways in which messages come back, and the delivery counts of those that were seen, and of the others.
WAYS = {
    "recover": (CLIENT, 2, 1), "rollback": (TRANSACTED, 2, 1), "commit": (TRANSACTED, 2, 1), "session": (CLIENT, 2, 1),
    "goodbye": (AUTO, 2, 1), "consumer": (CLIENT, 1, 1), "release": (CLIENT, 1, 1), "settle": (CLIENT, 2, 2),
    "lost": (CLIENT, 2, 2),
}  # fmt: skip
ways = pytest.mark.parametrize("how", list(WAYS))
waiting = pytest.mark.parametrize("how", ["recover", "rollback", "commit", "consumer", "release", "settle"])


def expected(how: str) -> list[str]:
    _, seen, others = WAYS[how]
    counts = [seen if number < SEEN else others for number in range(MANY)]
    return [f"m{number}" if count == 1 else f"m{number}#{count}" for number, count in enumerate(counts)]


def drained(world: World) -> list[str]:
    """Everything that another client gets, with its delivery count."""
    reader = world.client()
    consumer = reader.consumer(reader.session(), credit=2 * MANY)
    turns(world)
    return consumer.all()


@ways
def test_no_turn_takes_back_more_than_a_slice(world: World, how: str) -> None:
    client, consumer = holding(world, WAYS[how][0])
    queue = queue_of(world)
    begin(client, consumer, how)
    assert MANY - TURN <= queue.in_flight < MANY
    found = turns(world)
    assert max(found) <= TURN
    assert queue.in_flight == 0
    assert queue.standstill.held == 0
    assert drained(world) == expected(how)
    assert not world.services.reports


@ways
def test_no_message_overtakes_returned_ones(world: World, how: str) -> None:
    """A consumer that could take all of it, and messages that arrive in the middle."""
    client, consumer = holding(world, WAYS[how][0])
    other = world.client()
    taker = other.consumer(other.session(), credit=4 * MANY)
    begin(client, consumer, how)
    sender = world.broker.namespace("")
    turns(world, lambda: sender.send("queue:q", Envelope(envelope("new")), world.now))
    assert taker.all() == [*expected(how), "new"]


def test_a_higher_priority_is_first_though_returned_last(world: World) -> None:
    fill(world, MANY - 2)
    client = world.client()
    consumer = client.consumer(client.session(CLIENT), credit=MANY)
    fill(world, 2, priority=9)
    world.settle()
    other = world.client()
    taker = other.consumer(other.session(), credit=4 * MANY)
    begin(client, consumer, "recover")
    turns(world)
    assert taker.all()[:3] == ["m0", "m1", "m0"]


@waiting
def test_later_commands_of_the_client_wait(world: World, how: str) -> None:
    client, consumer = holding(world, WAYS[how][0])
    session = client.session(AUTO)
    begin(client, consumer, how)
    assert client.broker.behind
    client.wire.send(Command.CREDIT, consumer.id, 10)
    client.wire.send(Command.SEND, session, 1, "queue:other", envelope("x"))
    client.wire.send(Command.PING, 77)
    for _ in range(3):
        world.broker.work(world.now, TURN)
        client.broker.catch_up(world.now)
        read(client)
        assert client.answer_to(77) is client.answer_to(99) is None
    assert client.broker.behind
    assert queue_of(world, "queue:other").depth == 0
    turns(world)
    answers = [command[1] for command in client.heard if command[0] in (Command.OK, Command.ERROR)]
    assert answers == ([77] if how in ("release", "settle") else [99, 77])
    assert queue_of(world, "queue:other").depth == 1


@ways
@pytest.mark.parametrize("keep", [0, KEEP])
def test_a_connection_that_is_lost_in_the_middle_loses_and_doubles_nothing(world: World, how: str, keep: int) -> None:
    client, consumer = holding(world, WAYS[how][0], keep=keep)
    begin(client, consumer, how)
    world.broker.work(world.now, TURN)
    if client.transport_open:
        client.transport_open = False
        client.broker.lost(world.now)
    assert max(turns(world)) <= TURN
    queue = queue_of(world)
    assert (queue.in_flight, queue.standstill.held, queue.depth) == (0, 0, MANY)
    assert drained(world) == expected(how)
    assert not world.services.reports


@ways
def test_a_broker_that_ends_in_the_middle_has_all_of_it_back(world: World, how: str) -> None:
    client, consumer = holding(world, WAYS[how][0])
    begin(client, consumer, how)
    client.broker.close(ErrorCode.SHUTTING_DOWN, "bye", world.now)
    world.broker.scheduler.finish(world.now)
    queue = queue_of(world)
    assert (queue.in_flight, queue.standstill.held, queue.depth) == (0, 0, MANY)
    assert not world.broker.work(world.now)
    assert drained(world) == expected(how)


@ways
@pytest.mark.parametrize("what", ["delete", "pause", "purge"])
def test_a_queue_that_is_managed_meanwhile(world: World, how: str, what: str) -> None:
    client, consumer = holding(world, WAYS[how][0])
    begin(client, consumer, how)
    space, queue = world.broker.namespace(""), queue_of(world)
    back = MANY - queue.in_flight
    match what:
        case "delete":
            space.delete("queue:q")
        case "pause":
            space.pause(queue)
        case _:
            assert queue.clear() == back
    turns(world)
    assert queue.in_flight == queue.standstill.held == 0
    if what == "delete":
        assert queue.depth == 0
        assert drained(world) == []
    elif what == "pause":
        assert drained(world) == []
        space.unpause(queue, world.now)
        turns(world)
        assert queue.depth == 0
    else:
        assert len(drained(world)) == MANY - back
    assert not world.services.reports


def test_messages_that_failed_too_often_are_dead_lettered_in_slices_and_in_order() -> None:
    world = World(broker=Broker(DomainSettings(policies=(("queue:q", DestinationPolicy(max_attempts=1)),))))
    client, consumer = holding(world)
    consumer.seen = 100
    begin(client, consumer, "recover")
    found = [MANY - queue_of(world).in_flight, *turns(world)]
    assert max(found[:5]) <= TURN // 30 + 1
    assert drained(world) == [f"m{number}" for number in range(100, MANY)]
    dead = [text for _, text in world.client().browse("queue:DLQ.q")]
    assert dead == [f"m{number}" for number in range(100)]


def test_a_lost_client_makes_one_dead_letter_at_most() -> None:
    world = World(broker=Broker(DomainSettings(policies=(("queue:q", DestinationPolicy(max_attempts=1)),))))
    client, consumer = holding(world)
    begin(client, consumer, "lost")
    turns(world)
    assert [text for _, text in world.client().browse("queue:DLQ.q")] == ["m0"]
    assert drained(world) == [f"m{number}#2" for number in range(1, MANY)]


def test_a_caller_that_waits_for_a_message_is_answered_when_all_is_back(world: World) -> None:
    client, consumer = holding(world)
    consumer.answers_recall = False
    other = world.client()
    taker = other.consumer(other.session(), credit=0)
    begin(client, consumer, "recover")
    say(other, Command.WANT, 55, taker.id)
    read(other)
    assert other.answer_to(55) is None
    turns(world)
    assert other.answer_to(55) == (Command.OK, 55, None)
    assert taker.all() == ["m0#2"]


@waiting
def test_a_client_that_returns_in_the_middle_finds_everything_given_back(world: World, how: str) -> None:
    client, consumer = holding(world, WAYS[how][0], keep=KEEP)
    begin(client, consumer, how)
    client.reading = False
    new = Client(world)
    new.hello(resume=client.broker.peer.member.id, keep=KEEP)
    turns(world)
    assert new.take(Command.WELCOME)[0][7]["resumed"]
    assert queue_of(world).in_flight == queue_of(world).standstill.held == 0
    assert drained(world) == expected(how)


@pytest.mark.needs_python("replaces a method")
@waiting
def test_a_fault_in_the_middle_ends_this_connection_alone(
    world: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = holding(world, WAYS[how][0])
    begin(client, consumer, how)
    with monkeypatch.context() as broken:
        broken.setattr(Queue, "effort", property(lambda _: broken.undo() or 1 / 0))
        world.broker.work(world.now, TURN)
    turns(world)
    assert not client.transport_open
    assert [type(error) for _, error in world.services.reports] == [ZeroDivisionError]
    world.services.reports.clear()
    assert queue_of(world).standstill.held == queue_of(world).in_flight == 0
    got = drained(world)
    assert sorted(text.split("#")[0] for text in got) == sorted(f"m{number}" for number in range(MANY))
    assert {text.partition("#")[2] for text in got} <= {"", "2"}


# -- as if it were at once --------------------------------------------------------------------------------------------


def without_rivals(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without different selectors, and without WANT, which recalls what other consumers have buffered: which of several
    consumers gets a message depends there on when it is given back."""
    opened = [(*s[:4], None, *s[5:]) if s[0] == "open" and s[3] == "queue:q" else s for s in steps]
    return [step for step in opened if step[0] != "want"]


def opened(*consumers: tuple[int, bool, int]) -> list[tuple[Any, ...]]:
    return [("open", at, transacted, "queue:q", None, False, credit) for at, transacted, credit in consumers]


def sent(count: int) -> tuple[Any, ...]:
    return ("send", False, [("queue:q", {}, count)])


@settings(max_examples=150, deadline=None)
@example(
    steps=[*opened((1, False, 50), (0, False, 5), (1, True, 2)), sent(5), ("release", 1, 0), sent(1)],
    pattern=[False],
    several=False,
)
@example(
    steps=[*opened((0, True, 0), (1, False, 2), (1, False, 2), (2, False, 5)), sent(8), ("release", 3, 1), sent(1)],
    pattern=[False],
    several=False,
)
@given(steps=STEPS, pattern=st.lists(st.booleans(), min_size=1, max_size=6), several=st.booleans())
def test_at_once_and_in_slices_everybody_sees_the_same(
    steps: list[tuple[Any, ...]], pattern: list[bool], several: bool
) -> None:
    hello = SEVERAL if several else {}
    steps = without_rivals(steps)
    expected = played(steps, hello, None)
    assert played(steps, hello, often(pattern), turn=1) == expected, "a slice is one message"


def test_a_client_that_waits_in_a_namespace_that_is_deleted_enters_a_new_one(world: World) -> None:
    """It waits for the client id of another one, which still gives back its messages. Nobody else is connected."""
    client, _ = holding(world, client_id="me")
    client.broker.lost(world.now)
    new = Client(world)
    say(new, Command.HELLO, 1, "", None, None, "me", 0, "", None, {})
    before = new.broker.peer.namespace
    assert new.broker.peer.agenda.behind
    world.broker.delete_namespace("default")
    world.works = True
    world.settle()
    assert new.take(Command.WELCOME)
    assert new.broker.peer.namespace is world.broker.namespaces["default"]
    assert new.broker.peer.namespace is not before
