"""What only memory holds outlives an orderly end of the owner of a shared store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from sievemq import ConnectionFactory, DeliveryMode, JMSContext
from sievemq.staging import publish, stage
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker, Queue, handover
from sievemq_broker.domain.handover import carry
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.restore import restore
from sievemq_broker.server.durability.probe import accepts
from sievemq_broker.server.net.listener import ClientPorts, ListenError

from .sharing import DEADLINE, LONG, SharingBroker, World, hosts
from .support import NOW, DictStore, message, name_of, saved_in

SOON = int(DEADLINE * 1_000)
QUICK = {"reconnect": SOON, "reconnect_max_delay": 20}


@pytest.fixture
def world() -> World:
    return World()


@contextmanager
def pair(world: World) -> Iterator[tuple[SharingBroker, SharingBroker]]:
    with SharingBroker(world, LONG) as owner, SharingBroker(world, LONG) as follower:
        yield owner, follower


def factory(*brokers: EmbeddedBroker) -> ConnectionFactory:
    options = "&".join(f"{name}={value}" for name, value in QUICK.items())
    return ConnectionFactory(f"{hosts(*brokers)}?{options}")


def depths(broker: EmbeddedBroker) -> dict[str, int]:
    def look(domain: Broker) -> dict[str, int]:
        found = domain.namespace("default").destinations
        return {label: queue.depth for label, queue in found.items() if isinstance(queue, Queue)}

    return broker.call(look)


def test_messages_that_are_not_persistent_are_handed_over(world: World) -> None:
    with pair(world) as (owner, follower):
        with factory(owner).create_context() as context:
            producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
            durable = context.create_shared_durable_consumer(context.create_topic("t"), "s")
            durable.close()
            for number in range(3):
                producer.send(context.create_queue("q"), f"m{number}")
            producer.send(context.create_topic("t"), "published")
            producer.set_delivery_delay(3_600_000).send(context.create_queue("q"), "later")
        owner.stop()
        follower.wait_until_serving(DEADLINE)
        queue = follower.call(lambda domain: domain.namespace("default").destinations["queue:q"])
        assert isinstance(queue, Queue)
        assert len(queue.scheduled) == 1
        with factory(follower).create_context() as context:
            consumer = context.create_consumer(context.create_queue("q"))
            received = [consumer.receive(SOON) for _ in range(3)]
            assert [each.get_text() for each in received] == ["m0", "m1", "m2"]
            assert not any(each.get_jms_redelivered() for each in received)
            assert received[0].get_jms_delivery_mode() == DeliveryMode.NON_PERSISTENT
            published = context.create_shared_durable_consumer(context.create_topic("t"), "s")
            assert published.receive_body(str, SOON) == "published"


def test_a_request_is_answered_over_a_handover(world: World) -> None:
    with (
        pair(world) as (owner, follower),
        factory(owner, follower).create_context() as client,
        factory(owner, follower).create_context() as server,
    ):
        requests, replies = client.create_queue("requests"), client.create_temporary_queue()
        consumer, worker = client.create_consumer(replies), server.create_consumer(requests)
        answers = server.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        client.create_producer().set_jms_reply_to(replies).send(requests, "1")
        request = worker.receive(SOON)
        client.stop()
        answers.send(request.get_jms_reply_to(), "early")
        owner.stop()
        answers.send(request.get_jms_reply_to(), "late")
        client.start()
        assert [consumer.receive_body(str, SOON) for _ in range(2)] == ["early", "late"]
        follower.wait_until_serving(DEADLINE)
        label = str(replies.get_queue_name())
        assert any(label in name for name in depths(follower))


def test_what_was_in_work_comes_back_marked_and_without_an_attempt(world: World) -> None:
    """As after a kill (D-40)."""
    with pair(world) as (owner, follower):
        context = factory(owner).create_context(JMSContext.CLIENT_ACKNOWLEDGE)
        queue = context.create_queue("q")
        for mode in (DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT):
            context.create_producer().set_delivery_mode(mode).send(queue, "m")
        consumer = context.create_consumer(queue)
        for _ in range(2):
            assert consumer.receive(SOON) is not None
        owner.stop()
        follower.wait_until_serving(DEADLINE)

        def counts(domain: Broker) -> list[tuple[int, int]]:
            found = domain.namespace("default").destinations["queue:q"]
            assert isinstance(found, Queue)
            return [(entry.count, entry.attempts) for entry in found.main.waits(-1, 10)]

        assert follower.call(counts) == [(1, 0), (1, 0)]
        context.close()


def test_staged_sends_are_handed_over_and_published_once(world: World) -> None:
    with (
        pair(world) as (owner, follower),
        factory(owner, follower).create_connection() as connection,
        connection.create_session(JMSContext.SESSION_TRANSACTED) as session,
    ):
        producer = session.create_producer(session.create_queue("q"))
        for name in "ab":
            producer.send(session.create_text_message(name))
        staged = stage(session, "query", 1)
        owner.stop()
        follower.wait_until_serving(DEADLINE)
        assert publish(connection, "query", 1, [staged]) == 2
        assert publish(connection, "query", 1, [staged]) is None
        assert depths(follower) == {"queue:q": 2}


def test_a_broker_that_gets_the_shard_and_cannot_serve_hands_over_what_it_got(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: ClientPorts) -> None:
        raise ListenError("the port is taken")

    with SharingBroker(world, LONG) as owner, factory(owner).create_connection() as connection:
        with connection.create_session(JMSContext.SESSION_TRANSACTED) as session:
            session.create_producer(session.create_queue("q")).send(session.create_text_message("m"))
            staged = stage(session, "query", 1)
        owner.stop()
    with monkeypatch.context() as patch, pytest.raises(ListenError):
        patch.setattr(ClientPorts, "listen", fails)
        SharingBroker(world, LONG).start()
    with SharingBroker(world, LONG) as next_owner, factory(next_owner).create_connection() as connection:
        assert publish(connection, "query", 1, [staged]) == 1
        assert depths(next_owner) == {"queue:q": 1}


def test_temporary_destinations_of_a_client_that_has_left_are_not_handed_over(world: World) -> None:
    with pair(world) as (owner, follower):
        with factory(owner).create_context() as context:
            context.create_producer().send(context.create_temporary_queue(), "m")
        owner.stop()
        follower.wait_until_serving(DEADLINE)
        assert depths(follower) == {}


def test_the_owner_lives_for_its_followers_until_it_has_written_the_rest(world: World) -> None:
    """They would take the shard if its management port refused them while a busy loop is late with beats."""
    heard: list[bool | None] = []
    with SharingBroker(world, LONG, http=True) as owner:
        with factory(owner).create_context() as context:
            producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
            producer.send(context.create_queue("q"), "m")
        address = urlsplit(owner.http_url).netloc
        owner.access.before_writing = lambda: heard.append(accepts(address, DEADLINE))
        owner.stop()
    assert len(world.data.messages) == 1
    assert heard
    assert all(heard)
    assert accepts(address, DEADLINE) is False


def test_a_broker_that_asks_gets_the_shard_and_the_owner_ends(world: World) -> None:
    """Before a follower that was there first."""
    with (
        SharingBroker(world, LONG) as owner,
        SharingBroker(world, LONG) as other,
        factory(owner).create_context() as context,
    ):
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        producer.send(context.create_queue("q"), "m")
        with SharingBroker(world, LONG, asks="main") as asking:
            asking.wait_until_serving(DEADLINE)
            assert depths(asking) == {"queue:q": 1}
            assert other.server.role == "follower"
            assert owner.access.closed[-1] == "lease"
            with pytest.raises(RuntimeError, match="not running"):
                depths(owner)


def test_a_call_that_waits_while_its_broker_hands_the_shard_over_ends(world: World) -> None:
    """Nobody stops the broker: it ends by itself."""
    with SharingBroker(world, LONG) as owner:
        waits = owner._new_result()
        with SharingBroker(world, LONG, asks="main") as asking:
            asking.wait_until_serving(DEADLINE)
            with pytest.raises(CancelledError):
                waits.result(DEADLINE)


def test_a_broker_that_asks_where_there_is_no_owner_takes_the_shard(world: World) -> None:
    with SharingBroker(world, LONG, asks="main") as broker:
        assert broker.server.role == "owner"
        assert not broker.server.is_asked_for


# -- the domain alone -------------------------------------------------------------------------------------------------


def broker_over(store: DictStore) -> Broker:
    broker = Broker()
    restore(broker, store, NOW)
    return broker


def written(broker: Broker, store: DictStore) -> None:
    assert broker.journal is not None
    store.write(broker.journal.cut(), NOW)
    broker.journal.written()


def test_temporary_destinations_are_in_memory_again() -> None:
    store = DictStore()
    broker = broker_over(store)
    space = broker.namespace("default")
    addresses = [space.temporaries.create("c", topic, 1 + topic) for topic in (False, True)]
    other = space.temporaries.create("gone", False, 1)
    for address in (addresses[0], other):
        space.send(address, message("m", mode=1), NOW)
    assert carry(broker, {"c"}.__contains__) == (1, 0)
    written(broker, store)
    again = broker_over(store)
    found = again.namespace("default")
    assert list(found.destinations) == [str(address) for address in addresses]
    assert found.temporaries.owners == ["c"]
    queue = found.destinations[str(addresses[0])]
    assert isinstance(queue, Queue)
    assert [name_of(entry.envelope.packed) for entry in queue.main.waits(-1, 9)] == ["m"]
    written(again, store)
    assert (store.messages, [kind for kind, _ in store.defined]) == ({}, ["namespace"])


def test_what_was_handed_over_once_is_handed_over_again() -> None:
    """As in an upgrade of two brokers, one after the other."""
    store = DictStore()
    broker = broker_over(store)
    space = broker.namespace("default")
    address = space.temporaries.create("c", False, 1)
    for where in (address, "q"):
        space.send(where, message("m", mode=1), NOW)
    for _ in range(3):
        carry(broker, {"c"}.__contains__)
        written(broker, store)
        broker = broker_over(store)
        written(broker, store)
    space = broker.namespace("default")
    for where in (str(address), "queue:q"):
        assert [name_of(entry.envelope.packed) for entry in space.queue(where).main.waits(-1, 9)] == ["m"]
    assert len(store.messages) == 1


def test_messages_that_a_tap_has_taken_are_handed_over() -> None:
    """They come back marked, as those that are PERSISTENT do."""
    store = DictStore()
    broker = broker_over(store)
    space = broker.namespace("default")
    for name in "ab":
        space.send("q", message(name, mode=1), NOW)
    tap = space.taps.open("maker", "t", "queue:q", "drain", None, {}, NOW)
    assert tap.look(0, 1, 0, NOW)[0] == 1
    assert carry(broker, set[str]().__contains__) == (2, 0)
    written(broker, store)
    queue = broker_over(store).namespace("default").queue("queue:q")
    assert [(name_of(each.envelope.packed), each.count) for each in queue.main.waits(-1, 9)] == [("a", 1), ("b", 0)]


def test_attempts_are_handed_over_with_the_time_of_the_first() -> None:
    store = DictStore()
    broker = broker_over(store)
    space = broker.namespace("default")
    space.send("q", message("m", mode=1), NOW)
    queue = space.queue("queue:q")
    (entry,) = queue.main.waits(-1, 9)
    entry.resume(0, 1, 1, NOW)
    carry(broker, set[str]().__contains__)
    written(broker, store)
    later = Broker()
    restore(later, store, NOW + 1_000)
    (entry,) = later.namespace("default").queue("queue:q").main.waits(-1, 9)
    assert (entry.count, entry.attempts, entry.failed) == (1, 1, NOW)


def test_stages_are_in_memory_again_in_their_order_and_with_their_user() -> None:
    store = DictStore()
    broker = broker_over(store)
    space = broker.namespace("default")
    places = ["queue:q", "topic:t", "queue:q", "queue:q"]
    sends = Sends([(place, message(str(number), mode=1 + number % 2)) for number, place in enumerate(places)])
    space.stages.stage("maker", "key", 3, sends, owner="ann", lease=60_000, now=NOW)
    assert carry(broker, set[str]().__contains__) == (4, 0)
    written(broker, store)
    again = broker_over(store)
    written(again, store)
    assert (store.messages, [kind for kind, _ in store.defined]) == ({}, ["namespace"])
    stages = again.namespace("default").stages
    (found,) = stages.all
    assert [(place, name_of(each.packed)) for place, each in found.sends] == list(zip(places, "0123", strict=True))
    assert (found.key, found.batch, found.owner, stages.bytes) == ("key", 3, "ann", space.stages.bytes)
    again.due(NOW + 60_001)
    assert not stages.all, "its lease begins again, and ends"


def test_several_stages_whose_leases_end_together_come_back() -> None:
    store = DictStore()
    broker = broker_over(store)
    for maker in "ab":
        sends = Sends([("queue:q", message(maker))])
        broker.namespace("default").stages.stage(maker, "key", 1, sends, owner=None, lease=60_000, now=NOW)
    carry(broker, set[str]().__contains__)
    written(broker, store)
    stages = broker_over(store).namespace("default").stages
    assert [each.id for each in stages.all] == ["a.1", "b.2"]
    assert stages.stage("c", "key", 1, Sends(), owner=None, lease=60_000, now=NOW) == "c.3"


def test_a_stage_that_is_too_large_is_left_behind_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "CARRIED_BYTES", len(message("0").packed))
    store = DictStore()
    broker = broker_over(store)
    stages = broker.namespace("default").stages
    for maker, count in ("large", 2), ("small", 1):
        sends = Sends([("queue:q", message("0"))] * count)
        stages.stage(maker, "key", 1, sends, owner=None, lease=60_000, now=NOW)
    assert carry(broker, set[str]().__contains__) == (1, 2)
    written(broker, store)
    assert [each.id for each in broker_over(store).namespace("default").stages.all] == ["small.2"]


def test_what_is_too_much_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = DictStore()
    broker = broker_over(store)
    size = len(message("0", mode=1).packed)
    monkeypatch.setattr(handover, "CARRIED_BYTES", 2 * size)
    for number in range(5):
        broker.namespace("default").send("q", message(str(number), mode=1), NOW)
    broker.namespace("default").send("q", message("kept"), NOW)
    assert carry(broker, set[str]().__contains__) == (2, 3)
    written(broker, store)
    assert sorted(name_of(entry.packed) for entry in saved_in(store)) == ["0", "1", "kept"]
