"""What a request makes is undone if its caller no longer waits for the answer (D-42)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sievemq import (
    IllegalStateException,
    JMSException,
    Queue,
    TextMessage,
    Topic,
    TransactionRolledBackException,
)
from sievemq._engine import ClientConnection, Completion, EngineProducer, EngineSession
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import FakeBroker, Memory, World

REQUESTS: list[Any] = [
    pytest.param(lambda engine: engine.open_session(1).opened, Command.CLOSE_SESSION, None, id="session"),
    pytest.param(
        lambda engine: engine.create_temporary(False), Command.DELETE_TEMPORARY, "temporary-queue:c1.1", id="temporary"
    ),
]


@pytest.mark.parametrize(("make", "undone", "answer"), REQUESTS)
@pytest.mark.parametrize("late", [True, False])
def test_what_arrives_late_is_undone(
    broker: FakeBroker, make: Callable[[ClientConnection], Completion[Any]], undone: int, answer: object, late: bool
) -> None:
    completion = make(broker.engine)
    (request,) = broker.heard()
    if late:
        broker.engine.outbox.abandon(completion)
    waiting = broker.engine.outbox.undone()
    broker.say(Command.OK, request[1], answer)
    if not late:  # it was cancelled in the moment in which the answer came
        broker.engine.outbox.abandon(completion)
    assert waiting.done
    assert [command[0] for command in broker.heard()] == [undone]


def test_a_late_consumer_gives_back_what_it_got(broker: FakeBroker) -> None:
    session = broker.session()
    consumer = session.open_consumer(Queue("q"), "queue:q")
    (opening,) = broker.heard()
    broker.engine.outbox.abandon(consumer.opened)
    broker.deliver(consumer, 1)
    broker.say(Command.OK, opening[1], None)
    assert [command[:1] + command[2:] for command in broker.heard()] == [(Command.CLOSE_CONSUMER, consumer.id, 0)]
    assert session.consumers == {}


@pytest.mark.parametrize("made", [True, False])
def test_sub_11_a_late_durable_subscription_is_deleted_if_the_request_made_it(made: bool) -> None:
    world = World()
    memory = world.connect(client_id="me")
    session = world.session(memory)
    if not made:
        world.result(session.close_consumer(world.consumer(session, Topic("t"), subscription="s", durable=True)))
    consumer = session.open_consumer(Topic("t"), "topic:t", subscription="s", durable=True)
    memory.engine.outbox.abandon(consumer.opened)
    world.settle()
    names = [subscription.name for subscription in world.broker.namespace("default").subscriptions]
    assert names == ([] if made else ["s"])


def test_a_refusal_is_not_undone(broker: FakeBroker) -> None:
    session = broker.session()
    consumer = session.open_consumer(Queue("q"), "queue:q")
    broker.engine.outbox.abandon(consumer.opened)
    broker.refuse(ErrorCode.SECURITY)
    assert broker.heard() == []


@pytest.mark.parametrize("when", ["before the loss", "during the repair", "never sent"])
def test_a_consumer_and_a_session_that_nobody_waits_for_are_not_opened_again(when: str) -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    engine = memory.engine
    session = world.session(memory)
    if when == "never sent":
        memory.drop(world.clock.now)
    consumer, other = session.open_consumer(Queue("q"), "queue:q"), engine.open_session(1)
    if when == "before the loss":
        for completion in (consumer.opened, other.opened):
            engine.outbox.abandon(completion)
    memory.drop(world.clock.now)
    for completion in (consumer.opened, other.opened):
        engine.outbox.abandon(completion)
    assert engine.outbox.undone().done
    assert isinstance(consumer.opened.error, JMSException)
    memory.reopen()
    world.settle()
    assert engine.failure is None
    assert list(engine.sessions.values()) == [session]
    assert engine.deliveries.consumers == {}


def test_a_temporary_destination_that_nobody_waits_for_is_deleted_after_the_repair() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    memory.engine.outbox.abandon(memory.engine.create_temporary(False))
    memory.drop(world.clock.now)
    memory.reopen()
    world.settle()
    assert memory.engine.temporaries == {}
    assert world.broker.namespace("default").temporaries.count(memory.broker.peer.member.id) == 0


def durable(memory: Memory, session: EngineSession, shared: bool = False) -> Completion[Any]:
    return session.open_consumer(Topic("t"), "topic:t", subscription="s", durable=True, shared=shared).opened


def tap(memory: Memory, _: object = None) -> Completion[Any]:
    engine = memory.engine

    def undo(answer: Completion[Any]) -> None:
        engine.request(Command.DELETE_TAP, "s", "topic:t", answer.request)

    return engine.request(Command.OPEN_TAP, "s", "topic:t", "copy", None, None, {}, undo=undo)


def temporary(memory: Memory, _: object = None) -> Completion[Any]:
    return memory.engine.create_temporary(True)


LASTING = [durable, tap, temporary]


def there(world: World) -> int:
    """The durable subscriptions, taps and temporary destinations."""
    space = world.broker.namespace("default")
    temporaries = sum(label.startswith("temporary-") for label in space.destinations)
    return len(space.subscriptions.durable) + len(space.taps) + temporaries


@pytest.mark.parametrize("make", LASTING)
@pytest.mark.parametrize("when", ["before the loss", "during the repair", "after the repair"])
@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("losses", [1, 2])
def test_what_outlives_a_connection_is_undone_after_its_repair(
    make: Callable[..., Completion[Any]], when: str, arrives: bool, losses: int
) -> None:
    world = World()
    memory = world.connect(client_id="me", reconnect=5_000)
    opening = make(memory, world.session(memory))
    if when == "before the loss":
        memory.engine.outbox.abandon(opening)
    for _ in range(losses):
        if arrives:
            memory.lose_answers(world.clock.now)
        memory.drop(world.clock.now)
        if when == "during the repair":
            memory.engine.outbox.abandon(opening)
        memory.reopen()
        memory.greet(world.clock.now)
    if when == "after the repair":
        memory.engine.outbox.abandon(opening)
    world.settle()
    assert memory.engine.outbox.undone().done
    assert memory.engine.failure is None
    assert memory.reported == []
    assert memory.engine.deliveries.consumers == {}
    assert there(world) == 0


@pytest.mark.parametrize("make", [durable, tap])
@pytest.mark.parametrize("lost", [True, False])
def test_what_was_there_before_is_not_undone(make: Callable[..., Completion[Any]], lost: bool) -> None:
    world = World()
    memory = world.connect(client_id="me", reconnect=5_000)
    session = world.session(memory)
    world.result(make(memory, session))
    for consumer in tuple(session.consumers.values()):
        world.result(session.close_consumer(consumer))
    memory.engine.outbox.abandon(make(memory, session))
    if lost:
        memory.lose_answers(world.clock.now)
        memory.reopen()
    world.settle()
    assert there(world) == 1
    assert memory.reported == []


@pytest.mark.parametrize("make", [durable, tap])
def test_what_another_client_has_used_since_is_not_undone(make: Callable[..., Completion[Any]]) -> None:
    world = World()
    memory, other = world.connect(reconnect=5_000), world.connect()
    session, others = world.session(memory), world.session(other)
    kind = partial(make, shared=True) if make is durable else make
    memory.engine.outbox.abandon(kind(memory, session))
    memory.lose_answers(world.clock.now)
    world.result(kind(other, others))
    for consumer in tuple(others.consumers.values()):
        world.result(others.close_consumer(consumer))
    memory.reopen()
    world.settle()
    assert there(world) == 1


def test_a_repeated_call_keeps_the_tap_that_an_abandoned_one_made() -> None:
    world = World()
    memory = world.connect()
    memory.engine.outbox.abandon(tap(memory))
    again = tap(memory)
    world.settle()
    assert there(world) == 1
    assert not again.result()["made"]


@pytest.mark.parametrize("make", [tap, temporary])
def test_a_call_repeated_after_a_loss_is_answered_as_it_would_have_been(make: Callable[..., Completion[Any]]) -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    opening = make(memory)
    memory.lose_answers(world.clock.now)
    memory.reopen()
    answer = world.result(opening)
    assert there(world) == 1
    if make is tap:
        assert answer["made"]


def test_a_closed_session_does_not_keep_a_late_durable_subscription() -> None:
    world = World()
    memory = world.connect(client_id="me", reconnect=5_000)
    session = world.session(memory)
    memory.engine.outbox.abandon(durable(memory, session))
    memory.lose_answers(world.clock.now)
    session.close()
    memory.reopen()
    world.settle()
    assert there(world) == 0
    assert memory.engine.sessions == {}


def test_an_interrupted_call_abandons_its_requests(broker: FakeBroker) -> None:
    before = broker.engine.outbox.requests.last
    broker.engine.open_session(1)
    broker.engine.outbox.abandon_since(before)
    broker.engine.outbox.abandon_since(0)
    broker.grant()
    assert [command[0] for command in broker.heard()] == [Command.CLOSE_SESSION]


def test_the_end_of_the_connection_undoes_the_rest(broker: FakeBroker) -> None:
    completion = broker.engine.create_temporary(False)
    broker.engine.outbox.abandon(completion)
    broker.engine.close()
    request = broker.heard()[0]
    broker.say(Command.OK, request[1], "temporary-queue:c1.1")
    assert broker.heard() == []


@pytest.mark.parametrize("make", LASTING)
@pytest.mark.parametrize("lost", [True, False])
def test_what_outlives_a_connection_is_undone_before_it_is_closed(
    make: Callable[..., Completion[Any]], lost: bool
) -> None:
    world = World()
    memory = world.connect(client_id="me", reconnect=5_000)
    memory.engine.outbox.abandon(make(memory, world.session(memory)))
    if lost:
        memory.lose_answers(world.clock.now)
        memory.reopen()
        memory.greet(world.clock.now)
    closing = memory.engine.close()
    world.settle()
    assert closing.error is None
    assert memory.engine.closed
    assert there(world) == 0


@pytest.mark.parametrize("make", [durable, tap])
def test_closing_keeps_what_was_there_before(make: Callable[..., Completion[Any]]) -> None:
    world = World()
    memory = world.connect(client_id="me")
    session = world.session(memory)
    world.result(make(memory, session))
    for consumer in tuple(session.consumers.values()):
        world.result(session.close_consumer(consumer))
    memory.engine.outbox.abandon(make(memory, session))
    memory.engine.close()
    world.settle()
    assert there(world) == 1


def test_a_late_stage_is_discarded_and_the_next_commit_raises() -> None:
    world = World()
    memory = world.connect()
    session = world.session(memory, 0)
    producer = EngineProducer(session, Queue("q"))
    kept = session.stage("key", 1, 60_000)
    name = world.result(kept)
    session.outcomes.hear()
    producer.send(TextMessage("x"), Queue("q"))
    memory.engine.outbox.abandon(session.stage("key", 1, 60_000))
    world.settle()
    stages = world.broker.namespace("default").stages
    assert stages.discard("key", 1, owner=None, name="another") == 0
    assert [stage.id for stage in stages._stages.values()] == [name]
    session.begin("commit")
    committing = session.commit()
    world.settle()
    assert isinstance(committing.error, TransactionRolledBackException)


def test_a_stage_whose_answer_is_lost_with_its_connection_is_dropped_with_its_lease() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory, 0)
    EngineProducer(session, Queue("q")).send(TextMessage("x"), Queue("q"))
    staging = session.stage("key", 1, 60_000)
    memory.engine.outbox.abandon(staging)
    memory.lose_answers(world.clock.now)
    memory.reopen()
    world.settle()
    assert isinstance(staging.error, TransactionRolledBackException)
    stages = world.broker.namespace("default").stages
    assert len(stages._stages) == 1
    world.clock.now += 60_000
    world.settle()
    assert len(stages._stages) == 0


def test_con_07_a_client_id_that_was_claimed_late_may_be_set_once_more() -> None:
    world = World()
    memory = world.connect(start=False)
    memory.engine.outbox.abandon(memory.engine.set_client_id("me"))
    world.settle()
    world.result(memory.engine.set_client_id("me"))
    for name in ("me", "you"):
        with pytest.raises(IllegalStateException):
            memory.engine.set_client_id(name)
