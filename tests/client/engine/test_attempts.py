"""What a client states of its messages when it comes back, and what that counts for (D-40)."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import Queue, TextMessage
from sievemq._engine import EngineConsumer, EngineProducer
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.queue import Queue as Kept

from .harness import Memory, World

TRANSACTED, AUTO, CLIENT = 0, 1, 2


def queue(world: World, name: str = "q") -> Kept:
    return world.broker.namespace("default").queue(f"queue:{name}")


def made(world: World, mode: int, *texts: str, most: int = 2) -> tuple[Memory, EngineConsumer]:
    """A client with a consumer, and the messages."""
    queue(world).configure(DestinationPolicy(max_attempts=most))
    memory = world.connect(reconnect=5_000)
    consumer = world.consumer(world.session(memory, mode))
    producer = EngineProducer(world.session(memory), Queue("q"))
    for text in texts:
        producer.send(TextMessage(text), Queue("q"))
    world.settle()
    return memory, consumer


def lose(world: World, memory: Memory, half_dead: bool) -> None:
    if half_dead:
        memory.leave_half_dead()
    else:
        memory.drop(world.clock.now)


def counts(world: World) -> list[tuple[int, int]]:
    """Deliveries and attempts of what waits or is held."""
    held = [entry for consumer in queue(world).consumers for entry in consumer.window if entry is not None]
    return [(entry.count, entry.attempts) for entry in (*held, *queue(world).main.waits(-1, 9))]


@pytest.mark.parametrize("half_dead", [True, False])
@pytest.mark.parametrize("mode", [TRANSACTED, AUTO, CLIENT])
def test_a_delivery_lost_on_the_wire_is_not_counted(mode: int, half_dead: bool) -> None:
    world = World()
    memory, consumer = made(world, mode)
    other = EngineProducer(world.session(world.connect()), Queue("q"))
    other.send(TextMessage("a"), Queue("q"))
    world.connections[-1].exchange(world.clock.now)  # the DELIVER is written, and does not arrive
    for _ in range(5):
        lose(world, memory, half_dead)
        memory.reopen()
        memory.greet(world.clock.now)
        memory.broker.receive_data(memory.engine.data_to_send(), world.clock.now)
    assert queue(world).in_flight == 1
    assert counts(world) == [(0, 0)]
    world.settle()
    message = world.receive(consumer)
    assert (message.get_text(), message.get_jms_redelivered()) == ("a", False)


@pytest.mark.parametrize("half_dead", [True, False])
def test_only_what_the_application_has_is_counted(half_dead: bool) -> None:
    world = World()
    memory, consumer = made(world, CLIENT, "a", "b", "c", most=6)
    assert world.receive(consumer).get_text() == "a"
    lose(world, memory, half_dead)
    memory.reopen()
    world.settle()
    assert counts(world) == [(1, 1), (0, 0), (0, 0)]


@pytest.mark.parametrize("during", [True, False])
@pytest.mark.parametrize("half_dead", [True, False])
@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("mode", [TRANSACTED, AUTO, CLIENT])
def test_a_failure_around_a_loss_is_one_attempt(mode: int, half_dead: bool, during: bool, arrives: bool) -> None:
    world = World()
    memory, consumer = made(world, mode, "a", "b", most=6)
    session = memory.engine.sessions[consumer.session]
    assert consumer.take() is not None  # a listener has it
    if during:
        lose(world, memory, half_dead)
    fail: Any = session.rollback if mode == TRANSACTED else session.recover
    answer = fail()
    if not during:
        if arrives:
            memory.broker.receive_data(memory.engine.data_to_send(), world.clock.now)
        lose(world, memory, half_dead)
    memory.reopen()
    world.settle()
    answer.result()
    assert queue(world).acknowledged == 0
    assert counts(world) == [(1, 1), (0, 0)]
    message = world.receive(consumer)
    assert (message.get_text(), message.get_int_property("JMSXDeliveryCount")) == ("a", 2)


@pytest.mark.parametrize("half_dead", [True, False])
@pytest.mark.parametrize("mode", [TRANSACTED, AUTO, CLIENT])
def test_a_failure_at_the_last_attempt_is_a_dead_letter_when_the_client_is_back(mode: int, half_dead: bool) -> None:
    world = World()
    memory, consumer = made(world, mode, "a", "b", most=1)
    session = memory.engine.sessions[consumer.session]
    assert consumer.take() is not None
    lose(world, memory, half_dead)
    answer = session.rollback() if mode == TRANSACTED else session.recover()
    assert queue(world, "DLQ.q").depth == 0
    memory.reopen()
    world.settle()
    answer.result()
    assert queue(world, "DLQ.q").depth == 1
    assert world.receive(consumer).get_text() == "b"


@pytest.mark.parametrize("half_dead", [True, False])
def test_what_was_acknowledged_before_a_failure_stays_acknowledged(half_dead: bool) -> None:
    world = World()
    memory, consumer = made(world, AUTO, "a", "b", "c", most=6)
    session = memory.engine.sessions[consumer.session]
    assert consumer.take(for_good=True) is not None
    assert consumer.take() is not None
    answer = session.recover()  # neither the ACKNOWLEDGE nor RECOVER arrives
    lose(world, memory, half_dead)
    memory.reopen()
    world.settle()
    answer.result()
    assert queue(world).acknowledged == 1
    assert counts(world) == [(1, 1), (0, 0)]


@pytest.mark.parametrize("half_dead", [True, False])
def test_an_answered_failure_is_not_stated_again(half_dead: bool) -> None:
    world = World()
    memory, consumer = made(world, AUTO, "a", most=6)
    session = memory.engine.sessions[consumer.session]
    assert consumer.take() is not None
    world.result(session.recover())
    assert consumer.take(for_good=True) is not None
    lose(world, memory, half_dead)
    memory.reopen()
    world.settle()
    assert (queue(world).acknowledged, counts(world)) == (1, [])


@pytest.mark.parametrize("half_dead", [True, False])
def test_an_acknowledged_message_at_its_last_attempt_ends_well(half_dead: bool) -> None:
    world = World()
    memory, consumer = made(world, AUTO, "a", most=1)
    assert consumer.take(for_good=True) is not None
    lose(world, memory, half_dead)  # the ACKNOWLEDGE is lost
    memory.reopen()
    world.settle()
    assert (queue(world).acknowledged, queue(world, "DLQ.q").depth) == (1, 0)


@pytest.mark.parametrize("mode", [TRANSACTED, AUTO, CLIENT])
@pytest.mark.parametrize("waits", [True, False])
def test_a_failure_stated_after_the_return_is_the_last_attempt(mode: int, waits: bool) -> None:
    world = World()
    memory, consumer = made(world, mode, "a", most=1)
    session = memory.engine.sessions[consumer.session]
    assert consumer.take() is not None
    lose(world, memory, True)
    if not waits:  # it is not delivered again before the failure is stated
        queue(world).pause()
    memory.reopen()
    world.settle()
    world.result(session.rollback() if mode == TRANSACTED else session.recover())
    queue(world).unpause(world.clock.now)
    world.settle()
    assert (queue(world).in_flight, queue(world, "DLQ.q").depth) == (0, 1) if not waits else (1, 0)
    if waits:
        assert counts(world) == [(1, 1)]


def test_a_failure_of_a_later_message_is_none_of_the_one_that_was_lost() -> None:
    world = World()
    memory, consumer = made(world, CLIENT, "a", "b", most=2)
    session = memory.engine.sessions[consumer.session]
    assert consumer.take() is not None
    lose(world, memory, True)
    memory.reopen()
    world.settle()
    assert counts(world) == [(1, 1), (0, 0)]
    assert world.receive(consumer).get_text() == "a"
    lose(world, memory, True)  # its last attempt
    memory.reopen()
    world.settle()
    assert [world.receive(consumer).get_text() for _ in range(2)] == ["a", "b"]
    world.result(session.recover())
    assert queue(world, "DLQ.q").depth == 1
    assert counts(world) == [(1, 1)]
