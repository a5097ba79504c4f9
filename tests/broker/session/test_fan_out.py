"""A message for very many subscriptions is delivered in slices, and nobody can tell, but by when."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.domain import DestinationPolicy, Topic, topic
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.fan_out import LARGE, LARGE_IN_ALL
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.policy import DomainSettings
from sievemq_broker.domain.work import TURN
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import BODY, Envelope
from sievemq_core.selector import compile_selector
from sievemq_core.wire.commands import Command

from .harness import AUTO, TRANSACTED, Client, Consumer, World, envelope, failing
from .test_pieces import often, played
from .test_resume import KEEP, reopen
from .test_rows import SEVERAL, STEPS

MANY = 1_200
ADDRESS = "topic:t"
SIZE = len(Envelope(envelope("m0")).packed)


def in_slices(world: World) -> World:
    """A connection has time for one piece of its work in each turn."""
    world.services.spent = lambda: True
    return world


def topic_of(world: World, address: str = ADDRESS) -> Topic:
    found = world.broker.namespace("").declare(address)
    assert isinstance(found, Topic)
    return found


def subscribe(client: Client, count: int = MANY, **more: Any) -> list[Consumer]:
    """So many subscriptions of one session."""
    session = more.get("session") or client.session(AUTO)
    consumers = []
    for _ in range(count):
        client._ids += 1
        consumers.append(Consumer(client, session, client._ids))
        client.consumers[client._ids] = consumers[-1]
    peer, space = client.broker.peer, client.world.broker.namespace("")
    selector = more.get("selector", lambda number: None)
    for number, consumer in enumerate(consumers):  # without the wire: it is not what is tested, and takes its time
        found = space.open_consumer(
            peer.out, consumer.id, more.get("to", ADDRESS), compile_selector(selector(number)),
            connection=peer.member.id, credit=more.get("credit", 10), no_local=more.get("no_local", False),
            now=client.world.now,
        )  # fmt: skip
        peer.deliveries.claim(consumer.id)
        peer.deliveries.add(peer.sessions[session], found)
    return consumers


def texts_of(consumers: list[Consumer]) -> list[list[str]]:
    return [[each.text for each in consumer.deliveries] for consumer in consumers]


def begin(client: Client, session: int, *names: str, to: str = ADDRESS, **more: Any) -> None:
    """Messages arrive at the broker; the first one is on its way, and a turn passes."""
    for name in names:
        client.queue_send(session, envelope(name, **more), to)
    hand_over(client)
    client.world.broker.work(client.world.now)


def hand_over(client: Client) -> None:
    client.broker.receive_data(client.wire.data_to_send(), client.world.now)


def read(client: Client) -> None:
    """The client reads what there is for it; nothing else happens."""
    data = client.broker.data_to_send()
    for command in client.wire.receive_data(data):
        client._hear(command)


def turns(world: World) -> None:
    while world.broker.work(world.now):
        world.settle()
    world.settle()
    assert world.broker.scheduler.overrun <= 1_000


@pytest.fixture
def large(world: World) -> tuple[World, list[Consumer], Client, Client]:
    """Subscriptions, and two producers."""
    consumers = subscribe(world.client())
    return in_slices(world), consumers, world.client(keep=KEEP), world.client()


Large = tuple[World, list[Consumer], Client, Client]


def reached(world: World) -> int:
    """How many subscriptions have been given something so far."""
    return sum(bool(subscription.queue.sequence) for subscription in topic_of(world).subscriptions)


def test_no_turn_delivers_to_more_than_a_slice(large: Large) -> None:
    world, consumers, sender, _ = large
    session = sender.session()
    begin(sender, session, "m1")
    seen = [0, reached(world)]
    while world.broker.work(world.now):
        seen.append(reached(world))
    assert max(after - before for before, after in pairwise(seen)) <= TURN
    assert world.broker.scheduler.overrun == 0
    turns(world)
    assert texts_of(consumers) == [["m1"]] * MANY
    assert sender.take(Command.CONFIRM) == [(Command.CONFIRM, session, 1)]


def test_a_send_is_confirmed_when_every_subscription_has_it(large: Large) -> None:
    world, consumers, sender, _ = large
    session = sender.session()
    sender.queue_send(session, envelope("q"), "queue:q")
    begin(sender, session, "m1")
    sender.broker.catch_up(world.now)
    world.broker.work(world.now)
    assert 0 < reached(world) < MANY
    read(sender)
    assert sender.take(Command.CONFIRM) == [(Command.CONFIRM, session, 1)], "of what was sent before"
    sender.broker.tick(world.now)
    read(sender)
    assert not sender.take(Command.CONFIRM)
    sender.queue(Command.PING, 77)
    turns(world)
    assert sender.take(Command.CONFIRM) == [(Command.CONFIRM, session, 2)]
    assert sender.answer_to(77) is not None
    assert texts_of(consumers) == [["m1"]] * MANY


def test_messages_of_two_producers_have_one_order_for_all_subscriptions(large: Large) -> None:
    world, consumers, first, second = large
    sessions = first.session(), second.session()
    begin(first, sessions[0], "a1", "a2")
    begin(second, sessions[1], "b1", "b2")
    assert 0 < reached(world) < MANY
    turns(world)
    orders = {tuple(texts) for texts in texts_of(consumers)}
    assert len(orders) == 1
    (order,) = orders
    assert [text for text in order if text[0] == "a"] == ["a1", "a2"]
    assert [text for text in order if text[0] == "b"] == ["b1", "b2"]
    assert order[0] == "a1"


def test_other_clients_are_served_during_a_fan_out(large: Large) -> None:
    world, _, sender, other = large
    reader = other.consumer(other.session())
    quick = other.session()
    begin(sender, sender.session(), "m1")
    other.queue_send(quick, envelope("q"))
    other.exchange()
    other.exchange()
    assert sender.broker.behind
    assert reader.all() == ["q"]
    turns(world)


def test_subscriptions_that_open_or_close_meanwhile(large: Large) -> None:
    world, consumers, sender, other = large
    session, last = sender.session(), other.session()
    begin(sender, session, "m1")
    client = consumers[0].client
    gone = list(topic_of(world).subscriptions)[-1].queue
    for consumer in (consumers[0], consumers[-1]):
        client.wire.send(Command.CLOSE_CONSUMER, 900 + consumer.id, consumer.id, 0)
    hand_over(client)
    client.broker.catch_up(world.now)
    (late,) = subscribe(other, 1, session=last)
    assert 0 < reached(world) < MANY
    while sender.broker.behind:
        sender.broker.catch_up(world.now)
        world.broker.work(world.now)
    begin(sender, session, "m2")
    turns(world)
    assert texts_of(consumers[1:-1]) == [["m1", "m2"]] * (MANY - 2)
    assert texts_of([consumers[-1], late]) == [[], ["m2"]]
    assert len(topic_of(world).subscriptions) == MANY - 1
    assert (gone.deleted, gone.sequence) == (True, 0)


def test_sends_during_mass_unsubscription_do_not_overtake(large: Large) -> None:
    """The topic is small by then; a message that is being delivered in slices goes first all the same."""
    world, consumers, sender, other = large
    session = other.session()
    begin(sender, sender.session(), "m1")
    space = topic_of(world)
    for subscription in list(space.subscriptions)[100 : MANY - 300]:
        world.broker.namespace("").subscriptions.drop(subscription)
    assert len(space.subscriptions) < LARGE
    assert not consumers[-1].deliveries
    begin(other, session, "m2")
    turns(world)
    assert texts_of(consumers[:100] + consumers[-300:]) == [["m1", "m2"]] * 400
    (more,) = subscribe(other, 1)
    assert not space.large
    other.send(other.session(), "m3", to=ADDRESS)
    assert texts_of([more]) == [["m3"]]


def test_no_local_is_decided_when_it_is_sent(world: World) -> None:
    sender = world.client()
    own, others = subscribe(sender, LARGE, no_local=True), subscribe(world.client(), LARGE + 1)
    in_slices(world)
    begin(sender, sender.session(), "m1")
    turns(world)
    assert texts_of(own) == [[]] * LARGE
    assert texts_of(others) == [["m1"]] * (LARGE + 1)


def test_selectors_that_differ_make_a_topic_large_only_in_greater_number(world: World) -> None:
    client, found = world.client(), topic_of(world)
    subscribe(client, LARGE_IN_ALL, selector=lambda number: f"n >= {number}")
    assert not found.large
    subscribe(client, LARGE, to="topic:other", selector=lambda number: "n = 1")
    assert not topic_of(world, "topic:other").large
    subscribe(client, 1, to="topic:other")
    assert topic_of(world, "topic:other").large
    subscribe(client, 1)
    assert found.large


@pytest.mark.parametrize("count", [LARGE_IN_ALL, LARGE_IN_ALL + 1])
def test_a_message_that_all_of_many_selectors_match_reaches_each_once(world: World, count: int) -> None:
    consumers, sender = subscribe(world.client(), count, selector=lambda number: f"n >= {number}"), world.client()
    session = sender.session(AUTO)
    sender.send(session, "m1", to=ADDRESS, properties={"n": count})
    sender.send(session, "m2", to=ADDRESS, properties={"n": count})
    turns(world)
    assert texts_of(consumers) == [["m1", "m2"]] * count


@pytest.mark.parametrize("by", ["topic", "namespace"])
def test_a_topic_that_is_deleted_meanwhile(large: Large, by: str) -> None:
    world, _, sender, other = large
    session = sender.session()
    begin(sender, session, "m1")
    assert 0 < reached(world) < MANY
    space = world.broker.namespace("")
    if by == "topic":
        space.delete(ADDRESS)
    else:
        world.broker.delete_namespace("")
    turns(world)
    begin(sender, session, "m2")
    turns(world)
    assert sender.take(Command.CONFIRM)[-1] == (Command.CONFIRM, session, 2)
    assert other.ask(Command.PING)
    assert not world.services.reports


def test_a_topic_that_is_paused_meanwhile_keeps_it(large: Large) -> None:
    world, consumers, sender, _ = large
    begin(sender, sender.session(), "m1")
    topic_of(world).pause()
    turns(world)
    got = sum(bool(texts) for texts in texts_of(consumers))
    assert 0 < got < MANY
    topic_of(world).unpause(world.now)
    turns(world)
    assert texts_of(consumers) == [["m1"]] * MANY


def test_a_message_that_expires_meanwhile_is_counted_once_for_each_subscription(large: Large) -> None:
    world, consumers, sender, _ = large
    begin(sender, sender.session(), "m1", expiration=world.now + 10)
    world.services.real += 20
    turns(world)
    got = sum(bool(texts) for texts in texts_of(consumers))
    assert 0 < got < MANY
    assert sum(subscription.queue.counts.expired for subscription in topic_of(world).subscriptions) == MANY - got


def test_a_tap_has_it_once_and_the_topic_counts_it_once(large: Large) -> None:
    world, _, sender, other = large
    tap = other.ask(Command.OPEN_TAP, "t", ADDRESS, "copy", None, None, {})
    begin(sender, sender.session(), "m1", "m2")
    turns(world)
    answer = other.ask(Command.FETCH_TAP, "t", ADDRESS, tap["id"], 0, 1_000, 1_000)
    assert [envelope[BODY] for envelope in answer[3]] == [b"m1", b"m2"]
    assert topic_of(world).published == 2


def test_a_sender_that_is_lost_meanwhile_has_sent_it_and_sends_it_once(large: Large) -> None:
    world, consumers, sender, _ = large
    session = sender.session()
    begin(sender, session, "m1", "m2")
    assert 0 < reached(world) < MANY
    sender.transport_open = False
    sender.broker.lost(world.now)
    assert 0 < reached(world) < MANY
    new = Client(world)
    new._ids = sender._ids
    new.wire.send(Command.HELLO, 1, "", None, None, None, 0, "harness", sender.broker.peer.member.id, {"keep": KEEP})
    new.exchange()
    assert new.take(Command.WELCOME)[0][7]["resumed"]["sessions"] == ((session, 1, 0),)
    reopen(new, session, 1)
    new.sends, new._sequences[session] = sender.sends, 2
    new.go_on(session, 2)
    turns(world)
    assert texts_of(consumers) == [["m1", "m2"]] * MANY


def test_a_sender_that_is_lost_before_its_turn_has_not_sent_it(large: Large) -> None:
    world, consumers, first, second = large
    sessions = first.session(), second.session()
    begin(first, sessions[0], "a")
    begin(second, sessions[1], "b")
    assert 0 < reached(world) < MANY
    second.broker.lost(world.now)
    turns(world)
    assert texts_of(consumers) == [["a"]] * MANY


def test_an_end_of_the_broker_carries_it_to_its_end(large: Large) -> None:
    world, consumers, sender, _ = large
    begin(sender, sender.session(), "m1")
    world.broker.finish(world.now)
    assert world.broker.fan_out is None
    assert reached(world) == MANY
    turns(world)
    assert texts_of(consumers) == [["m1"]] * MANY


def test_sends_before_the_end_of_a_stream_are_delivered_at_once(large: Large) -> None:
    """A link carries it out at once: nothing comes after it."""
    world, consumers, first, second = large
    world.broker.keep_in(Journal())
    sessions = first.session(), second.session()
    begin(first, sessions[0], "a")
    begin(second, sessions[1], "b1", "b2")
    for _ in range(100):
        if not second.broker.behind:
            break
        world.broker.finish(world.now)
        second.broker.catch_up(world.now)
    assert not second.broker.behind
    turns(world)
    assert texts_of(consumers) == [["a", "b1", "b2"]] * MANY


def test_immediate_sends_follow_a_running_fan_out(large: Large) -> None:
    """Such as a message that an administrator sends, or moves."""
    world, consumers, sender, _ = large
    begin(sender, sender.session(), "m1")
    space = world.broker.namespace("")
    space.transfer(ADDRESS, Envelope(envelope("m2")), world.now)
    space.transfer(ADDRESS, Envelope(envelope("m3")), world.now)
    turns(world)
    assert texts_of(consumers) == [["m1", "m2", "m3"]] * MANY


def test_a_transaction_to_two_topics_is_added_in_slices_behind_it(large: Large) -> None:
    world, consumers, sender, committer = large
    others = subscribe(consumers[0].client, MANY, to="topic:u")
    session = committer.session(TRANSACTED)
    begin(sender, sender.session(), "m1")
    for to in (ADDRESS, "topic:u"):
        committer.queue_send(session, envelope("c1"), to)
        committer.queue_send(session, envelope("c2"), to)
    committer.wire.send(Command.COMMIT, 99, session, ())
    hand_over(committer)
    queues = [each.queue for to in (ADDRESS, "topic:u") for each in topic_of(world, to).subscriptions]
    before = 0
    while True:
        more = world.broker.work(world.now)
        after = sum(queue.sequence for queue in queues)
        assert after - before <= 1_000
        before = after
        if not more and not sender.broker.behind and not committer.broker.behind:
            break
        for client in (sender, committer):
            if client.broker.behind:
                client.broker.catch_up(world.now)
        before = sum(queue.sequence for queue in queues)
    turns(world)
    assert committer.answer_to(99) == (Command.OK, 99, None)
    assert texts_of(consumers) == [["m1", "c1", "c2"]] * MANY
    assert texts_of(others) == [["c1", "c2"]] * MANY


def test_a_large_batch_on_its_way_lets_sends_stand_between_its_messages(large: Large) -> None:
    world, consumers, sender, committer = large
    session = committer.session(TRANSACTED)
    committer.queue_send(session, envelope("c1"), ADDRESS)
    committer.queue_send(session, envelope("c2"), ADDRESS)
    committer.wire.send(Command.COMMIT, 99, session, ())
    hand_over(committer)
    world.broker.work(world.now)
    begin(sender, sender.session(), "m1", "m2")
    turns(world)
    assert committer.answer_to(99) == (Command.OK, 99, None)
    for texts in texts_of(consumers):
        assert sorted(texts) == ["c1", "c2", "m1", "m2"]
        assert texts.index("c1") < texts.index("c2")
        assert texts.index("m1") < texts.index("m2")


def test_a_commit_that_waits_for_another_is_carried_out_though_a_message_is_on_its_way(large: Large) -> None:
    """Its client says nothing while it waits for the answer."""
    world, consumers, sender, first = large
    second = world.client()
    sessions = [client.session(TRANSACTED) for client in (first, second)]
    plain = sender.session()
    for client, session, name in zip((first, second), sessions, "ab", strict=True):
        client.queue_send(session, envelope(name), ADDRESS)
        client.wire.send(Command.COMMIT, 99, session, ())
        hand_over(client)
        while client.broker.behind:
            client.broker.catch_up(world.now)
    begin(sender, plain, "m1", "m2", "m3")
    while first.answer_to(99) is None:
        world.broker.work(world.now)
        if sender.broker.behind:
            sender.broker.catch_up(world.now)
        read(first)
    assert not second.broker.behind
    turns(world)
    assert second.answer_to(99) == (Command.OK, 99, None)
    for texts in texts_of(consumers):
        assert sorted(texts) == ["a", "b", "m1", "m2", "m3"]
        assert [text for text in texts if text[0] == "m"] == ["m1", "m2", "m3"]


@pytest.mark.parametrize("rule", ["fail", "block", "drop-oldest", "drop-newest"])
def test_limits_hold_for_each_subscription(rule: str) -> None:
    policy = DestinationPolicy(max_messages=2, at_limit=rule)
    world = World(broker=Broker(DomainSettings(policies=((ADDRESS, policy),))))
    consumers = subscribe(world.client(), LARGE + 500, credit=0)
    in_slices(world)
    first, second = world.client(), world.client()
    sessions = first.session(), second.session()
    begin(first, sessions[0], "a1", "a2", "a3")
    begin(second, sessions[1], "b1")
    for _ in range(200):
        world.broker.work(world.now)
        for client in (first, second):
            if client.broker.behind:
                client.broker.catch_up(world.now)
        assert all(each.queue.depth <= 3 for each in topic_of(world).subscriptions)
    world.settle()
    assert {each.queue.depth for each in topic_of(world).subscriptions} == {2}
    refused = [command for client in (first, second) for command in client.take(Command.SEND_FAILED)]
    assert len(refused) == (2 if rule == "fail" else 0)
    assert bool(first.take(Command.FLOW) + second.take(Command.FLOW)) is (rule == "block")
    if rule == "block":
        client = consumers[0].client
        for _ in range(3):
            for consumer in client.broker.peer.deliveries.consumers.values():
                consumer.grant(2, world.now)
            turns(world)
        orders = {tuple(texts) for texts in texts_of(consumers)}
        assert len(orders) == 1
        assert sorted(orders.pop()) == ["a1", "a2", "a3", "b1"]


@pytest.fixture
def waiting() -> tuple[World, list[Consumer], Client]:
    """Every subscription is full, and the third send of a session waits for room."""
    policy = DestinationPolicy(max_messages=2, at_limit="block")
    world = World(broker=Broker(DomainSettings(policies=((ADDRESS, policy),))))
    consumers = subscribe(world.client(), credit=0)
    in_slices(world)
    sender = world.client(keep=KEEP)
    session = sender.session()
    begin(sender, session, "m1", "m2", "m3")
    turns(world)
    assert sender.take(Command.CONFIRM)[-1] == (Command.CONFIRM, session, 2)
    assert len(sender.take(Command.FLOW)) == 1
    return world, consumers, sender, session


def make_room(world: World, consumers: list[Consumer], count: int = 2) -> None:
    """Every subscription has room for so many more; nothing else happens."""
    for consumer in consumers:
        queue = consumer.client.broker.peer.deliveries.consumers[consumer.id].source
        for _ in range(count):
            queue.drop_oldest()


def have(world: World, sequence: int = 3) -> int:
    """How many subscriptions have been given so many messages."""
    return sum(each.queue.sequence >= sequence for each in topic_of(world).subscriptions)


Waiting = tuple[World, list[Consumer], Client, int]


def test_a_send_that_waited_for_room_is_confirmed_when_every_subscription_has_it(waiting: Waiting) -> None:
    world, consumers, sender, session = waiting
    make_room(world, consumers)
    steps = 0
    while have(world) < MANY:
        world.broker.work(world.now)
        sender.broker.tick(world.now)
        read(sender)
        assert have(world) - steps <= 500
        steps = have(world)
        if steps < MANY:
            assert not sender.take(Command.CONFIRM)
            assert not sender.take(Command.FLOW)
    turns(world)
    assert sender.take(Command.CONFIRM) == [(Command.CONFIRM, session, 3)]
    assert sender.take(Command.FLOW) == [(Command.FLOW, False, "", session, 4, None)]
    assert not world.broker.rooms.waiting
    assert not world.broker.rooms.bytes
    begin(sender, session, "m4")
    turns(world)
    assert sender.take(Command.CONFIRM) == [(Command.CONFIRM, session, 4)]
    assert have(world, 4) == MANY


def test_a_client_that_is_lost_while_its_delayed_send_is_delivered_has_sent_it(waiting: Waiting) -> None:
    world, consumers, sender, session = waiting
    make_room(world, consumers)
    world.broker.work(world.now)
    assert 0 < have(world) < MANY
    sender.transport_open = False
    sender.broker.lost(world.now)
    new = Client(world)
    new._ids = sender._ids
    new.wire.send(Command.HELLO, 1, "", None, None, None, 0, "harness", sender.broker.peer.member.id, {"keep": KEEP})
    new.exchange()
    assert new.take(Command.WELCOME)[0][7]["resumed"]["sessions"] == ((session, 3, 0),)
    turns(world)
    assert have(world) == MANY
    assert have(world, 4) == 0
    assert not world.broker.rooms.waiting
    assert not world.broker.rooms.bytes


def test_a_send_that_is_being_delivered_is_not_withdrawn(waiting: Waiting) -> None:
    world, consumers, sender, session = waiting
    make_room(world, consumers)
    world.broker.work(world.now)
    assert 0 < have(world) < MANY
    sender.queue(Command.WITHDRAW, 99, session, 3)
    hand_over(sender)
    turns(world)
    assert sender.take(Command.CONFIRM) == [(Command.CONFIRM, session, 3)]
    assert sender.take(Command.FLOW) == [(Command.FLOW, False, "", session, 4, None)]
    assert sender.answer_to(99) == (Command.OK, 99, None)
    assert not sender.take(Command.SEND_FAILED)
    assert have(world) == MANY
    assert have(world, 4) == 0


@pytest.mark.parametrize("how", ["goodbye", "close", "withdraw"])
def test_the_end_of_a_session_waits_for_a_send_in_delivery(waiting: Waiting, how: str) -> None:
    """It was confirmed before every subscription had it; or all of them were given it in one turn."""
    world, consumers, sender, session = waiting
    make_room(world, consumers)
    while not 0 < have(world) < MANY:
        world.broker.work(world.now)
    before = have(world)
    match how:
        case "goodbye":
            sender.queue(Command.GOODBYE, 99, ())
        case "close":
            sender.queue(Command.CLOSE_SESSION, 99, session, ())
        case _:
            sender.queue(Command.WITHDRAW, 99, session, 3)
    hand_over(sender)
    assert have(world) - before <= 500
    most = 0
    while sender.broker.behind:
        read(sender)
        assert not sender.take(Command.CONFIRM)
        assert sender.answer_to(99) is None
        before = have(world)
        world.broker.work(world.now)
        sender.broker.catch_up(world.now)
        most = max(most, have(world) - before)
    assert most <= 1_000
    turns(world)
    told = [command[0] for command in sender.heard if command[0] in (Command.CONFIRM, Command.OK)]
    assert told == [Command.CONFIRM, Command.OK]
    assert have(world) == MANY
    assert sender.transport_open is (how != "goodbye")
    assert not world.services.reports


def test_two_sends_that_waited_are_delivered_one_after_the_other(waiting: Waiting) -> None:
    world, consumers, sender, session = waiting
    other = world.client()
    theirs = other.session()
    begin(other, theirs, "o1")
    turns(world)
    assert len(other.take(Command.FLOW)) == 1
    make_room(world, consumers)
    before = 0
    while have(world, 4) < MANY:
        world.broker.work(world.now)
        reached = have(world) + have(world, 4)
        assert reached - before <= 500
        before = reached
    turns(world)
    assert sender.take(Command.CONFIRM) == [(Command.CONFIRM, session, 3)]
    assert other.take(Command.CONFIRM) == [(Command.CONFIRM, theirs, 1)]


def test_a_fault_while_a_delayed_send_is_delivered_ends_its_connection_alone(waiting: Waiting) -> None:
    world, consumers, sender, _ = waiting
    make_room(world, consumers)
    queue = list(topic_of(world).subscriptions)[MANY - 10].queue
    with failing(queue):
        turns(world)
    assert sender.fatal is not None
    assert consumers[0].client.fatal is None


def test_each_message_is_in_one_write_when_all_have_it() -> None:
    world, journal = World(), Journal()
    world.broker.keep_in(journal)
    session_client = world.client()
    space = world.broker.namespace("")
    for number in range(6):  # those that are kept stand far from each other
        space.open_consumer(
            session_client.broker.outbox, 10_000 + number, ADDRESS, connection="x", subscription=f"s{number}",
            durable=True, shared=True, client_id="id", now=world.now,
        )  # fmt: skip
        subscribe(session_client, 200)
    in_slices(world)
    senders = [world.client() for _ in range(2)]
    sessions = [sender.session() for sender in senders]
    for number, sender in enumerate(senders):
        begin(sender, sessions[number], f"m{number}.1", f"m{number}.2", f"m{number}.3", delivery_mode=2)
    counts, more = [], True
    while more or any(sender.broker.behind for sender in senders):
        counts.append(sum(len(part.accepted) for part in journal.cut().parts))
        journal.written()
        for sender in senders:
            if sender.broker.behind:
                sender.broker.catch_up(world.now)
        more = world.broker.work(world.now)
    counts.append(sum(len(part.accepted) for part in journal.cut().parts))
    assert [count for count in counts if count] == [6] * 6
    assert len(counts) > 12
    assert not journal.shares


def test_a_fault_in_the_middle_ends_only_the_sender(large: Large) -> None:
    world, _, sender, other = large
    session, journal = other.session(), Journal()
    world.broker.keep_in(journal)
    begin(sender, sender.session(), "m1")
    queue = list(topic_of(world).subscriptions)[MANY - 1].queue
    with failing(queue):
        turns(world)
    assert sender.fatal is not None
    assert [type(error) for _, error in world.services.reports] == [ZeroDivisionError]
    world.services.reports.clear()
    assert not journal.shares
    begin(other, session, "m2")
    turns(world)
    assert other.take(Command.CONFIRM)[-1] == (Command.CONFIRM, session, 1)


def test_a_command_with_a_fault_behind_it_ends_the_connection_behind_it(large: Large) -> None:
    world, consumers, sender, _ = large
    session = sender.session()
    sender.queue_send(session, envelope("m1"), ADDRESS)
    sender.queue(Command.SEND, session, 77, "queue:q", envelope("far ahead"))
    hand_over(sender)
    assert sender.fatal is None
    turns(world)
    assert sender.fatal is not None
    assert sender.fatal[2] == ErrorCode.UNEXPECTED_COMMAND
    assert texts_of(consumers) == [["m1"]] * MANY


# -- whatever the order ---------------------------------------------------------------------------------------------


def without_turns(seen: list[Any]) -> list[Any]:
    """A queue counts turns of its consumers otherwise where messages wait for the end of a batch: nobody sees that."""

    def cut(part: Any) -> Any:
        if type(part) is not list:
            return part
        return [each[:8] if type(each) is tuple and len(each) == 10 else each for each in part]

    return [[cut(part) for part in step] for step in seen]


def of_one_priority(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A batch in slices is delivered when it is complete, and then a higher priority goes first."""
    return [
        ("send", True, [part for part in step[2] if "priority" not in part[1]]) if step[:2] == ("send", True) else step
        for step in steps
    ]


def with_one_holder(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without WANTs if a queue has three consumers: two may return messages then, on connections of their own, and
    which of them is first depends on the turns. Without selectors on a queue: a large batch is given to the consumers
    of one selector after those of another, so which of them gets a message depends on whether the batch is large."""
    steps = [(*s[:4], None, *s[5:]) if s[0] == "open" and s[3].startswith("queue:") else s for s in steps]
    consumers = Counter(step[3] for step in steps if step[0] == "open" and step[3].startswith("queue:"))
    return [step for step in steps if step[0] != "want" or max(consumers.values(), default=0) < 3]


@pytest.mark.needs_python("replaces a limit of topics")
@settings(max_examples=150, deadline=None)
@given(steps=STEPS, pattern=st.lists(st.booleans(), min_size=1, max_size=6), several=st.booleans())
def test_at_once_and_in_slices_everybody_sees_the_same(
    steps: list[tuple[Any, ...]], pattern: list[bool], several: bool
) -> None:
    """A slice is one unit; every topic with a subscription is large, or none is."""
    hello, steps = SEVERAL if several else {}, with_one_holder(of_one_priority(steps))
    expected = without_turns(played(steps, hello, None, turn=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic, "LARGE", 0)
        for spent in (often(pattern), lambda: True):
            assert without_turns(played(steps, hello, spent, turn=1)) == expected


# -- limits ---------------------------------------------------------------------------------------------------------


class Calls:
    """Counts the Python functions that one piece of work calls: the same on any machine."""

    def __init__(self) -> None:
        self.longest = self._count = 0

    def during(self, act: Callable[[], Any]) -> Any:
        before, self._count = sys.getprofile(), 0
        sys.setprofile(self._see)
        try:
            return act()
        finally:
            sys.setprofile(before)
            self.longest = max(self.longest, self._count)

    def _see(self, frame: object, event: str, argument: object) -> None:
        self._count += event == "call"


def limited(rule: str, **limits: int) -> World:
    policy = DestinationPolicy(at_limit=rule, **(limits or {"max_messages": 2}))
    return in_slices(World(broker=Broker(DomainSettings(policies=((ADDRESS, policy),)))))


def counted_turns(world: World, calls: Calls) -> None:
    """Turns of the loop until nothing is left to do."""
    for _ in range(200):
        more = calls.during(lambda: world.broker.work(world.now))
        for client in world.clients:
            if client.broker.behind:
                calls.during(lambda client=client: client.broker.catch_up(world.now))
                more = True
        if not more:
            break
    world.settle()


@pytest.mark.needs_python("counts calls of functions")
@pytest.mark.parametrize("how", ["send", "commit", "transfer"])
@pytest.mark.parametrize("rule", ["fail", "block", "drop-oldest", "drop-newest"])
@pytest.mark.parametrize("limit", ["max_messages", "max_bytes"])
def test_limits_of_very_many_subscriptions_are_checked_without_a_call_for_each(rule: str, how: str, limit: str) -> None:
    world = limited(rule, **{limit: 1_000_000})
    consumers = subscribe(world.client(), MANY)
    sender, calls = world.client(), Calls()
    if how == "transfer":
        message = Envelope(envelope("m1"))
        calls.during(lambda: world.broker.namespace("").transfer(ADDRESS, message, world.now))
    elif how == "send":
        sender.queue_send(sender.session(), envelope("m1"), ADDRESS)
        calls.during(lambda: hand_over(sender))
    else:
        session = sender.session(TRANSACTED)
        sender.queue_send(session, envelope("m1"), ADDRESS)
        sender.wire.send(Command.COMMIT, 99, session, ())
        calls.during(lambda: hand_over(sender))
    counted_turns(world, calls)
    assert texts_of(consumers) == [["m1"]] * MANY
    assert calls.longest < (9_600 if how == "commit" else 4_600)  # one slice; with a call for each MANY more


@pytest.mark.needs_python("counts calls of functions")
@pytest.mark.parametrize(("rule", "how"), [("", "send"), ("fail", "commit"), ("drop-oldest", "commit")])
def test_very_many_selectors_that_match_are_listed_in_slices(rule: str, how: str) -> None:
    """With and without limits: nothing is called for each of the subscriptions in one turn."""
    world = limited(rule, max_messages=1_000) if rule else in_slices(World())
    consumers = subscribe(world.client(), MANY, selector=lambda number: f"n = 1 AND m > {-1 - number}")
    others = subscribe(world.client(), 10, selector=lambda number: "n < 0")
    sender, calls = world.client(), Calls()
    session = sender.session(TRANSACTED if how == "commit" else AUTO)
    for number in range(2):
        sender.queue_send(session, envelope(f"m{number}", properties={"n": 1, "m": 1}), ADDRESS)
    if how == "commit":
        sender.wire.send(Command.COMMIT, 99, session, ())
    calls.during(lambda: hand_over(sender))
    counted_turns(world, calls)
    counted_turns(world, calls)
    assert texts_of(consumers) == [[f"m{number}" for number in range(2)]] * MANY
    assert texts_of(others) == [[]] * 10
    assert calls.longest < 30 * TURN, "a slice of deliveries"


@pytest.mark.parametrize("rule", ["fail", "block"])
def test_a_subscription_without_room_for_what_it_would_get_refuses_a_commit_to_very_many(rule: str) -> None:
    """What its selector keeps out needs no room."""
    world = limited(rule, max_messages=2)
    some = subscribe(world.client(), MANY, selector=lambda number: f"n = {number % 2}", credit=0)
    sender = world.client()
    session = sender.session(TRANSACTED)
    for number in range(4):
        sender.queue_send(session, envelope(f"m{number}", properties={"n": number % 2}), ADDRESS)
    sender.queue(Command.COMMIT, 99, session, ())
    hand_over(sender)
    for _ in range(3):
        turns(world)
    assert sender.answer_to(99) == (Command.OK, 99, None)
    assert {each.queue.depth for each in topic_of(world).subscriptions} == {2}
    sender.queue_send(session, envelope("m4", properties={"n": 1}), ADDRESS)
    sender.queue(Command.COMMIT, 98, session, ())
    hand_over(sender)
    for _ in range(3):
        turns(world)
    answer = sender.answer_to(98)
    assert (answer is None) is (rule == "block")
    assert {each.queue.depth for each in topic_of(world).subscriptions} == {2}
    assert all(each.queue.reserved_messages == 0 for each in topic_of(world).subscriptions)
    assert len(some) == MANY


WEIGHED = 60  # messages
ROOM = 100  # for messages


def weighing(rule: str, room: int = ROOM) -> tuple[World, list[Consumer], Client]:
    """A COMMIT to many subscriptions whose room is too small for all of it, and enough for what each gets."""
    world = limited(rule, max_messages=room)
    consumers = subscribe(world.client(), MANY, selector=lambda number: f"n IS NULL OR n = {number % 2}", credit=0)
    before, sender = world.client(), world.client()
    begin(before, before.session(), *[f"b{number}" for number in range(ROOM - WEIGHED // 2)])
    turns(world)
    session = sender.session(TRANSACTED)
    for number in range(WEIGHED):
        sender.queue_send(session, envelope(f"m{number}", properties={"n": number % 2}), ADDRESS)
    hand_over(sender)
    while sender.broker.behind:
        sender.broker.catch_up(world.now)
    sender.queue(Command.COMMIT, 99, session, ())
    return world, consumers, sender


def depths(world: World) -> set[int]:
    return {each.queue.depth for each in topic_of(world).subscriptions}


@pytest.mark.needs_python("counts calls of functions")
def test_messages_of_a_commit_to_many_subscriptions_are_counted_in_slices() -> None:
    """It once took all of its messages and all of their selectors in one turn."""
    world, _, sender = weighing("fail")
    calls = Calls()
    calls.during(lambda: hand_over(sender))
    counted_turns(world, calls)
    assert sender.answer_to(99) == (Command.OK, 99, None)
    assert depths(world) == {ROOM}
    assert calls.longest < 35 * MANY, "whether there is room, once for each subscription; not for each of 60 messages"


@pytest.mark.parametrize("more", [0, 1])
def test_subscriptions_that_open_and_close_while_a_commit_is_counted(more: int) -> None:
    """What comes gets its part of the commit, and has to have room for it; what goes does not matter."""
    world, consumers, sender = weighing("fail")
    client = consumers[0].client
    hand_over(sender)
    for _ in range(20):
        sender.broker.catch_up(world.now)
    assert sender.broker.behind
    space = world.broker.namespace("")
    for consumer in consumers[::500]:
        space.subscriptions.drop(
            topic_of(world).subscription_of(client.broker.peer.deliveries.consumers[consumer.id].source)
        )
    late = subscribe(
        client, 2, session=consumers[0].session, selector=lambda number: ("n = 1", "n = 2")[number], credit=0
    )
    filled = client.broker.peer.deliveries.consumers[late[0].id].source
    row = [Envelope(envelope(f"f{number}")) for number in range(ROOM - WEIGHED // 2 + more)]
    filled.accept(row, world.now)
    for _ in range(3):
        turns(world)
    refused = bool(more)
    assert (sender.answer_to(99)[0] == Command.ERROR) is refused  # type: ignore[index]
    assert filled.depth == len(row) + (0 if refused else WEIGHED // 2)
    assert depths(world) == {ROOM - WEIGHED // 2, 0, filled.depth} if refused else {ROOM, 0}
    assert all(each.queue.reserved_messages == 0 for each in topic_of(world).subscriptions)


def test_room_that_is_taken_while_a_commit_is_weighed_is_not_given_twice() -> None:
    """Not even if no selector is evaluated again when the commit has waited for it."""
    world, consumers, sender = weighing("block")
    hand_over(sender)
    for _ in range(20):
        sender.broker.catch_up(world.now)
    assert sender.broker.behind
    topic_of(world).publish([Envelope(envelope("taken"))], world.now, None)
    for _ in range(3):
        turns(world)
    assert sender.answer_to(99) is None
    assert depths(world) == {ROOM - WEIGHED // 2 + 1}
    assert sender.broker.peer.blocked_senders
    for consumer in consumers[0].client.broker.peer.deliveries.consumers.values():
        consumer.grant(1, world.now)
        consumer.acknowledge(1, world.now)
    for _ in range(2 * MANY):  # it looks at a few places at once
        if not sender.broker.peer.blocked_senders:
            break
        turns(world)
    turns(world)
    assert sender.answer_to(99) == (Command.OK, 99, None)
    assert depths(world) == {ROOM}


def test_subscriptions_that_open_and_close_while_receivers_are_collected() -> None:
    world = in_slices(World())
    client = world.client()
    session = client.session(AUTO)
    consumers = subscribe(client, selector=lambda number: f"n > {-1 - number}")
    sender = world.client()
    session_of_sender, slices = sender.session(), 0
    sender.queue_send(session_of_sender, envelope("m0", properties={"n": 1}), ADDRESS)
    hand_over(sender)
    while world.broker.fan_out is None:
        slices += 1
        world.broker.work(world.now, 1)
    turns(world)
    sender.queue_send(session_of_sender, envelope("m1", properties={"n": 1}), ADDRESS)
    hand_over(sender)
    for _ in range(slices - 1):  # the receivers are collected last
        world.broker.work(world.now, 1)
    assert world.broker.fan_out is None
    late = subscribe(client, 3, session=session, selector=lambda number: ("n = 1", "n = 2", "n IS NULL")[number])
    plain = subscribe(client, 1, session=session)
    space = world.broker.namespace("")
    for consumer in consumers[::500]:
        space.subscriptions.drop(
            topic_of(world).subscription_of(client.broker.peer.deliveries.consumers[consumer.id].source)
        )
    for _ in range(3):
        turns(world)
    assert texts_of([*late, *plain]) == [["m1"], [], [], ["m1"]]
    gone = set(consumers[::500])
    assert texts_of([each for each in consumers if each not in gone]) == [["m0", "m1"]] * (MANY - len(gone))
    assert texts_of(list(gone)) == [["m0"]] * len(gone)


def test_a_sender_waits_in_a_few_of_very_many_full_subscriptions() -> None:
    """Each attempt once compared every full subscription with every other."""
    world = limited("block")
    consumers = subscribe(world.client(), MANY, credit=0)
    sender = world.client()
    session = sender.session()
    begin(sender, session, "m1", "m2", "m3")
    turns(world)
    (stall,) = sender.broker.peer.blocked_senders
    assert len(stall.places) <= 16
    for consumer in consumers[0].client.broker.peer.deliveries.consumers.values():
        consumer.grant(3, world.now)
    turns(world)
    assert texts_of(consumers) == [["m1", "m2", "m3"]] * MANY


def test_senders_that_have_waited_for_room_deliver_in_slices_one_after_the_other() -> None:
    """The second one once had the first one's message delivered to the end in its turn."""
    world = limited("block", max_messages=1)
    consumers = subscribe(world.client(), MANY, credit=0)
    senders = [world.client() for _ in range(3)]
    for number, sender in enumerate(senders):
        session = sender.session()
        begin(sender, session, f"m{number}")
        turns(world)
    assert [len(sender.broker.peer.blocked_senders) for sender in senders] == [0, 1, 1]
    for consumer in list(consumers[0].client.broker.peer.deliveries.consumers.values()):
        consumer.grant(3, world.now)
    most, before = 0, sum(each.queue.sequence for each in topic_of(world).subscriptions)
    while world.broker.work(world.now) or world.broker.busy is not None:
        after = sum(each.queue.sequence for each in topic_of(world).subscriptions)
        most, before = max(most, after - before), after
    turns(world)
    assert texts_of(consumers) == [["m0", "m1", "m2"]] * MANY
    assert most <= 500


@pytest.mark.needs_python("counts calls of a method")
@pytest.mark.parametrize("rule", ["fail", "block", "drop-oldest"])
@pytest.mark.parametrize("full", [False, True])
def test_a_commit_with_room_evaluates_no_selector(rule: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lacks it asks once about each message, and is refused, or waits."""
    policy = DestinationPolicy(max_messages=2 if full else 100, at_limit=rule)
    world = World(broker=Broker(DomainSettings(default_policy=policy)))
    watcher, committer = world.client(), world.client()
    watching, session = watcher.session(), committer.session(TRANSACTED)
    for number in range(40):
        watcher.consumer(watching, ADDRESS, credit=0, selector=f"n IS NULL OR n = {number}")
    begin(committer, committer.session(), "before")
    turns(world)
    for number in range(50):
        committer.queue_send(session, envelope(f"m{number}"), ADDRESS)
    committer.wire.send(Command.COMMIT, 99, session, ())
    asked = []
    matching = Topic.matching
    monkeypatch.setattr(
        Topic, "matching", lambda *given, counted=True: asked.append(not counted) or matching(*given, counted=counted)
    )
    hand_over(committer)
    refused = full and rule != "drop-oldest"
    turns(world)
    assert sum(asked) == (50 if refused else 0)
    depths = {each.queue.depth for each in topic_of(world).subscriptions}
    assert depths == ({1} if refused else {2} if full else {51})


@pytest.mark.parametrize("rule", ["fail", "block"])
def test_room_is_kept_for_a_commit_to_very_many_subscriptions(rule: str) -> None:
    """A message of another sender does not take it, whenever it comes."""
    world = limited(rule)
    consumers = subscribe(world.client(), MANY, credit=0)
    committer, sender = world.client(), world.client()
    session, plain = committer.session(TRANSACTED), sender.session()
    for name in ("c1", "c2"):
        committer.queue_send(session, envelope(name), ADDRESS)
    committer.wire.send(Command.COMMIT, 99, session, ())
    hand_over(committer)
    while committer.broker.behind:
        committer.broker.catch_up(world.now)
    begin(sender, plain, "m1")
    for _ in range(100):
        world.broker.work(world.now)
        if sender.broker.behind:
            sender.broker.catch_up(world.now)
    turns(world)
    assert committer.answer_to(99) == (Command.OK, 99, None)
    assert {each.queue.depth for each in topic_of(world).subscriptions} == {2}
    assert all(each.queue.reserved_messages == 0 for each in topic_of(world).subscriptions)
    for consumer in consumers[0].client.broker.peer.deliveries.consumers.values():
        consumer.grant(3, world.now)
    turns(world)
    expected = ["c1", "c2", "m1"] if rule == "block" else ["c1", "c2"]
    assert texts_of(consumers) == [expected] * MANY
