"""A message at its last attempt whose connection is lost: it waits for its client (D-40)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.at_once import done

from sievemq_broker.domain import management
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import Queue
from sievemq_broker.session import lost
from sievemq_core.message.dead_letters import ATTEMPTS, ERROR, FAILED_BY, FAILED_BY_ADDRESS, FAILED_BY_CONSUMER

from .harness import CLIENT, TRANSACTED, Client, Consumer, World, envelope
from .test_resume import KEEP, back, consume_again, reopen

DEAD = "queue:DLQ.q"


def made(max_attempts: int = 1, **policy: Any) -> World:
    queue = DestinationPolicy(max_attempts=max_attempts, **policy)
    return World(broker=Broker(DomainSettings(policies=(("queue:q", queue),))))


@pytest.fixture
def world() -> World:
    return made()


@pytest.fixture(params=["half dead", "dead"])
def loss(request: pytest.FixtureRequest) -> Any:
    """How the broker learns of the loss: from the new connection, or before."""

    def lose(client: Client) -> None:
        if request.param == "dead":
            client.drop()
        else:
            client.reading = False

    return lose


def working(world: World, *texts: str, mode: int = CLIENT) -> tuple[Client, Consumer]:
    """A client whose application has the first of these messages."""
    client = world.client(keep=KEEP)
    consumer = client.consumer(client.session(mode))
    client.send(client.session(), *texts)
    assert consumer.receive() == [texts[0]]
    return client, consumer


def queue_of(world: World, address: str = "queue:q") -> Queue:
    return world.broker.namespace("default").queue(address)


def dead(world: World) -> list[tuple[int, str]]:
    return world.client().browse(DEAD)


def failed_by(world: World) -> dict[str, Any]:
    """What the first dead letter tells of its last failure."""
    properties = queue_of(world, DEAD).main.waits(-1, 9)[0].envelope.properties
    return {name: value for name, value in properties.items() if name.startswith((FAILED_BY, ERROR))}


def test_it_waits_while_the_others_go_to_other_consumers(world: World) -> None:
    client, _ = working(world, "a", "b")
    client.drop()
    other = world.client()
    assert other.consumer(other.session(CLIENT)).all() == ["b#2"]
    queue = queue_of(world)
    assert (queue.depth, len(queue.scheduled), dead(world)) == (0, 1, [])


def test_it_is_dead_lettered_when_its_client_does_not_come_back(world: World) -> None:
    client, consumer = working(world, "a")
    client.drop()
    world.later(KEEP - 1)
    assert dead(world) == []
    world.later(1)
    assert dead(world) == [(1, "a")]
    [letter] = queue_of(world, DEAD).main.waits(-1, 9)
    assert letter.envelope.properties[ATTEMPTS] == 1
    assert failed_by(world) == {
        FAILED_BY_ADDRESS: "memory",
        FAILED_BY_CONSUMER: f"{client.broker.peer.member.id}.{consumer.id}",
        ERROR: "the connection of its client was lost",
    }
    new, _ = back(world, client, failed=(1, 0, 1))
    assert new.browse(DEAD) == [(1, "a")]


def test_a_client_that_had_acknowledged_ends_well(world: World, loss: Any) -> None:
    client, consumer = working(world, "a", mode=1)
    loss(client)
    back(world, client, handed=(consumer.id, 1), done=(consumer.id, 1))
    world.later(2 * KEEP)
    assert (dead(world), queue_of(world).acknowledged, queue_of(world).depth) == ([], 1, 0)


def test_it_is_redelivered_to_a_client_that_comes_back_and_ends_well(world: World, loss: Any) -> None:
    client, consumer = working(world, "a")
    loss(client)
    new, _ = back(world, client, handed=(consumer.id, 1))
    reopen(new, consumer.session, sent=0, mode=CLIENT)
    again = consume_again(new, consumer)
    assert again.all() == ["a#2"]
    world.later(2 * KEEP)
    again.acknowledge()
    assert (dead(world), queue_of(world).acknowledged) == ([], 1)


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED, 1])
def test_it_is_dead_lettered_when_the_client_states_a_failure(world: World, loss: Any, mode: int) -> None:
    client, consumer = working(world, "a", "b", "c", mode=mode)
    assert consumer.receive() == ["b"]
    loss(client)
    back(world, client, handed=(consumer.id, 2), failed=(consumer.id, 0, 2))
    assert dead(world) == [(1, "a"), (1, "b")]
    assert failed_by(world)[FAILED_BY_CONSUMER] == f"{client.broker.peer.member.id}.{consumer.id}"
    assert world.client().browse() == [(1, "c")]


def test_a_stated_failure_counts_an_attempt_of_each_message_once(loss: Any) -> None:
    world = made(3)
    client, consumer = working(world, "a", "b", "c")
    assert consumer.receive() == ["b"]
    loss(client)
    back(world, client, handed=(consumer.id, 2), failed=(consumer.id, 0, 2))
    entries = queue_of(world).main.waits(-1, 9)
    assert [(entry.count, entry.attempts) for entry in entries] == [(1, 1), (1, 1), (0, 0)]


def test_what_was_acknowledged_before_the_failure_is_no_part_of_it(loss: Any) -> None:
    world = made(3)
    client, consumer = working(world, "a", "b", mode=1)
    assert consumer.receive() == ["b"]
    loss(client)
    back(world, client, handed=(consumer.id, 2), done=(consumer.id, 1), failed=(consumer.id, 1, 2))
    assert queue_of(world).acknowledged == 1
    [b] = queue_of(world).main.waits(-1, 9)
    assert (b.count, b.attempts) == (1, 1)


def test_a_failure_of_a_message_that_another_consumer_has_shows_when_it_returns() -> None:
    world = made(2)
    client, consumer = working(world, "a", "b")
    assert consumer.receive() == ["b"]
    client.drop()
    other = world.client()
    sibling = other.consumer(other.session(CLIENT))
    assert sibling.all() == ["a#2", "b#2"]
    back(world, client, handed=(consumer.id, 2), failed=(consumer.id, 0, 2))
    other.recover(sibling.session)
    assert dead(world) == [(1, "a"), (1, "b")]


def test_a_message_that_never_arrived_can_be_lost_any_number_of_times(loss: Any) -> None:
    world = made(2)
    client = world.client(keep=KEEP)
    consumer = client.consumer(client.session(CLIENT))
    client.send(client.session(), "a", "b")
    for _ in range(5):
        loss(client)
        client, _ = back(world, client, handed=(consumer.id, 0))
        reopen(client, consumer.session, sent=0, mode=CLIENT)
        consumer = consume_again(client, consumer, tag=0)
    assert (consumer.all(), dead(world)) == (["a", "b"], [])


def test_it_expires_while_it_waits(world: World) -> None:
    client = world.client(keep=KEEP)
    consumer = client.consumer(client.session(CLIENT))
    client.send(client.session(), "a", expiration=world.now + KEEP // 2)
    assert consumer.receive() == ["a"]
    client.drop()
    world.later(KEEP)
    queue = queue_of(world)
    assert (queue.counts.expired, queue.counts.dead_lettered, dead(world)) == (1, 0, [])


def test_an_operator_can_purge_it_while_it_waits(world: World) -> None:
    client, consumer = working(world, "a")
    client.drop()
    queue = queue_of(world)
    assert done(world.now, management.purge, queue, management.Choice()).touched == 1
    world.later(KEEP)
    back(world, client, handed=(consumer.id, 1), failed=(consumer.id, 0, 1))
    assert (queue.depth, dead(world)) == (0, [])


def test_its_queue_is_deleted_while_it_waits(world: World) -> None:
    client, consumer = working(world, "a")
    client.drop()
    world.broker.namespace("default").delete("queue:q")
    world.later(KEEP)
    back(world, client, handed=(consumer.id, 1), failed=(consumer.id, 0, 1))
    assert dead(world) == []


def test_a_higher_limit_lets_it_return_after_the_wait() -> None:
    world = made()
    client, _ = working(world, "a")
    client.drop()
    queue = queue_of(world)
    queue.configure(DestinationPolicy(max_attempts=2, redelivery_delay=1_000))
    world.later(KEEP)
    assert queue.depth == 0
    world.later(1_000)
    [a] = queue.main.waits(-1, 9)
    assert (a.count, a.attempts) == (1, 1)


def test_a_dead_letter_does_not_wait(world: World) -> None:
    client = world.client(keep=KEEP)
    consumer = client.consumer(client.session(CLIENT), DEAD)
    session = client.session()
    client.queue_send(session, envelope("a"), DEAD)
    client.exchange()
    for _ in range(7):
        assert len(consumer.all()) == 1
        client.recover(consumer.session)
        consumer.credit()
    client.drop()
    assert (queue_of(world, DEAD).depth, len(queue_of(world, DEAD).scheduled)) == (1, 0)


def test_it_waits_although_the_marks_of_too_many_others_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost, "MAX_RETURNED", 2)
    client, consumer = working(world, "a", "b", "c", mode=1)
    client.drop()
    other = world.client()
    assert other.browse() == [(2, "b"), (2, "c")]
    back(world, client, handed=(consumer.id, 1), done=(consumer.id, 1))
    world.later(KEEP)
    assert (queue_of(world).acknowledged, dead(world)) == (1, [])


def test_a_client_that_is_not_remembered_leaves_nothing_waiting(world: World) -> None:
    client = world.client()
    consumer = client.consumer(client.session(CLIENT))
    client.send(client.session(), "a", "b")
    assert consumer.receive() == ["a"]
    client.drop()
    assert dead(world) == [(1, "a")]
    assert world.client().browse() == [(2, "b")]
