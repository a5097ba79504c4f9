"""A queue that is deleted is gone at once; its messages are removed in slices, before the command is answered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.domain.test_observer import Notes

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.management import Choice, Handled, move
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import Command

from .harness import START, Client, World, envelope
from .test_fan_out import read
from .test_giving_back import say

MANY = 5 * TURN
COMMANDS = {
    "temporary": Command.DELETE_TEMPORARY,
    "durable": Command.UNSUBSCRIBE,
    "consumer": Command.CLOSE_CONSUMER,
    "session": Command.CLOSE_SESSION,
    "goodbye": Command.GOODBYE,
}
ways = pytest.mark.parametrize("how", [*COMMANDS, "lost", "administrator"])


class Ending:
    """A client with a queue or subscription of many messages, which no consumer takes."""

    def __init__(self, how: str, count: int = MANY, **more: Any) -> None:
        self.how = how
        self.notes: Any = Notes()
        self.world = World(
            broker=Broker(
                DomainSettings(policies=(("*", DestinationPolicy(dead_letter_expired=True)),)), observer=self.notes
            )
        )
        self.space = self.world.broker.namespace("")
        self.client = self.world.client(client_id="app")
        self.session = self.client.session()
        self.address = "topic:t"
        self.consumer = 0
        match how:
            case "temporary":
                self.address = self.client.ask(Command.CREATE_TEMPORARY, False)
            case "administrator":
                self.address = "queue:q"
            case "durable":
                self.client.consumer(self.session, self.address, credit=0, subscription="s", durable=True).close()
            case _:
                self.consumer = self.client.consumer(self.session, self.address, credit=0).id
        self.fill(count, **more)
        self.queue: Queue = self.space.declare(self.address).queues[0]
        assert self.queue.depth + len(self.queue.scheduled) == count

    def fill(self, count: int, **more: Any) -> None:
        for number in range(count):
            self.space.send(self.address, Envelope(envelope(mid=f"m{number}", **more)), self.world.now)

    @property
    def removed(self) -> list[str]:
        """The messages that are removed so far."""
        return [name for what, _, name in self.notes.events if what == "removed deleted"]

    def begin(self) -> None:
        match self.how:
            case "temporary":
                say(self.client, Command.DELETE_TEMPORARY, 99, self.address)
            case "durable":
                say(self.client, Command.UNSUBSCRIBE, 99, "s")
            case "consumer":
                say(self.client, Command.CLOSE_CONSUMER, 99, self.consumer, 0)
            case "session":
                say(self.client, Command.CLOSE_SESSION, 99, self.session, ())
            case "goodbye":
                say(self.client, Command.GOODBYE, 99, ())
            case "lost":
                self.client.transport_open = False
                self.client.broker.lost(self.world.now)
            case _:
                self.space.delete(self.address)

    def turn(self) -> bool:
        return self.world.broker.work(self.world.now, TURN)

    def answer(self) -> tuple[Any, ...] | None:
        read(self.client)
        return self.client.answer_to(99)


NAMES = [f"m{number}" for number in range(MANY)]


@ways
@pytest.mark.parametrize("later", [0, START + 1_000_000], ids=["waiting", "scheduled"])
def test_messages_of_a_deleted_queue_are_removed_in_slices_before_the_answer(how: str, later: int) -> None:
    one = Ending(how, delivery_time=later)
    one.begin()
    done, slices = 0, []
    while one.turn():
        assert how not in COMMANDS or len(one.removed) == MANY or one.answer() is None
        slices.append(len(one.removed) - done)
        done = len(one.removed)
    assert one.removed == NAMES
    assert max(slices) <= TURN
    assert len(slices) >= MANY / TURN
    assert one.world.broker.scheduler.overrun <= 2
    assert how not in COMMANDS or one.answer() == (Command.OK, 99, None)
    assert not one.world.services.reports


@ways
def test_few_messages_are_removed_at_once(how: str) -> None:
    one = Ending(how, TURN // 4)
    one.begin()
    assert len(one.removed) == TURN // 4
    assert how not in COMMANDS or one.answer() == (Command.OK, 99, None)


def test_a_deleted_subscription_is_gone_before_its_messages_are() -> None:
    one = Ending("durable")
    one.begin()
    assert not one.space.subscriptions.durable
    one.fill(1)
    assert one.queue.enqueued == MANY, "it gets nothing more"
    while one.turn():
        pass
    one.world.settle()
    again = one.client.consumer(one.session, one.address, subscription="s", durable=True)
    assert again.all() == []
    assert one.removed == NAMES


def test_later_commands_wait_until_the_messages_are_removed() -> None:
    one = Ending("temporary")
    one.begin()
    one.client.wire.send(Command.PING, 77)
    read(one.client)
    assert one.client.broker.behind
    one.world.settle()
    assert [command[1] for command in one.client.heard if command[0] == Command.OK] == [99, 77]
    assert one.removed == NAMES


@pytest.mark.parametrize("how", ["temporary", "durable", "consumer", "session"])
def test_a_connection_lost_amid_the_removal_does_not_stop_it(how: str) -> None:
    one = Ending(how)
    one.begin()
    one.turn()
    assert 0 < len(one.removed) < MANY
    one.client.drop()
    while one.turn():
        pass
    assert one.removed == NAMES
    assert one.queue.empty
    assert not one.world.services.reports


@ways
def test_a_broker_that_stops_amid_the_removal_completes_it(how: str) -> None:
    one = Ending(how)
    one.begin()
    one.turn()
    one.world.broker.finish(one.world.now)
    assert one.removed == NAMES


def test_messages_that_expire_amid_the_removal_are_no_dead_letters() -> None:
    one = Ending("administrator", expiration=START + 50)
    one.begin()
    one.turn()
    one.world.later(100)
    while one.turn():
        one.world.later(1)
    assert one.removed == NAMES
    assert one.space.find("queue:DLQ.q") is None


def test_messages_are_not_moved_out_of_a_deleted_queue() -> None:
    one = Ending("administrator")

    def moving(now: int, budget: Budget) -> Task[Handled]:
        return move(one.space, "queue:other", one.queue, Choice(), now, budget)

    job = one.world.broker.scheduler.start("move", moving, one.world.now)
    moved = one.space.queue("queue:other").depth
    one.begin()
    while one.turn():
        pass
    assert job.over
    assert 0 < moved == one.space.queue("queue:other").depth
    assert one.removed == NAMES[moved:]


def test_messages_that_are_held_when_their_queue_is_deleted_are_removed_as_they_return() -> None:
    one = Ending("administrator")
    other: Client = one.world.client()
    consumer = other.consumer(other.session(), credit=3)
    one.begin()
    other.drop()
    while one.turn():
        pass
    assert sorted(one.removed) == sorted(NAMES)
    assert len(consumer.deliveries) == 3


def test_messages_that_wait_for_the_owner_of_their_group_are_removed_as_well() -> None:
    one = Ending("administrator", 0)
    other = one.world.client()
    session = other.session()
    other.consumer(session, credit=1)
    second = other.consumer(session, credit=1)
    for number in range(MANY):
        properties = {"JMSXGroupID": "g"}
        one.space.send("queue:q", Envelope(envelope(mid=f"m{number}", properties=properties)), one.world.now)
    second.credit(1)
    while one.turn():
        pass
    waiting = one.queue.depth
    assert waiting >= MANY - 2
    assert one.queue.main.passed
    one.begin()
    while one.turn():
        pass
    assert len(one.removed) == waiting
    assert one.queue.empty


@pytest.mark.parametrize("kind", ["temporary", "subscription"])
def test_many_queues_of_some_messages_are_deleted_in_slices(kind: str) -> None:
    one = Ending("goodbye", 0)
    for _ in range(9):
        if kind == "temporary":
            one.address = one.client.ask(Command.CREATE_TEMPORARY, False)
            one.fill(TURN // 2)
        else:
            one.client.consumer(one.session, one.address, credit=0)
    if kind == "subscription":
        one.fill(TURN // 2)
    one.begin()
    slices, more = [len(one.removed)], True
    while more:
        more = one.turn()
        slices.append(len(one.removed) - sum(slices))
    assert sum(slices) >= 9 * TURN // 2
    assert max(slices) <= 3 * TURN // 2
