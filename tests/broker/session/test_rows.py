"""What is sent in one go goes to each consumer in one go, and nobody can tell, but by the number of commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.domain.queue import ROW
from sievemq_broker.domain.view import View
from sievemq_broker.protocols.sieve.connection import with_names
from sievemq_broker.session import Identity, Peer, SessionSettings
from sievemq_broker.session.handlers.messages import on_send
from sievemq_broker.session.rights import Grant, Rights, Verb
from sievemq_broker.session.table import HANDLERS, make_table
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import GATHER_BYTES, MAX_HEADER_CHARS
from sievemq_core.wire.commands import Command

from . import harness
from .harness import AUTO, CLIENT, START, TRANSACTED, Client, Consumer, World, envelope, failing

SEVERAL = {"deliver_several": True}


def texts(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]


def burst(client: Client, session: int, *names: str, to: str = "queue:q", **more: Any) -> None:
    """Send all of them in one write."""
    client.send(session, *names, to=to, **more)


def send_one(peer: Peer, commands: list[tuple[Any, ...]], at: int, now: int) -> int:
    """Takes one message after the other."""
    return on_send(peer, commands[at : at + 1], 0, now)


@contextmanager
def no_rows() -> Iterator[None]:
    """A broker that takes one message after the other; the Python build gives them so as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "TABLE", with_names(make_table(send_one, HANDLERS)))
        patch.setattr(View, "row", lambda *_: [])
        yield


# -- the same as one by one -------------------------------------------------------------------------------------------

ADDRESSES = ["queue:q", "topic:t"]
SELECTORS = [None, None, None, "n = 0", "n > 0"]
FLAVOURS: list[dict[str, Any]] = [
    *[{}] * 12, {"priority": 9}, {"priority": 9}, {"expiration": START + 40}, {"delivery_time": START + 30},
    {"expiration": START - 5}, {"body": b"x" * (MAX_HEADER_CHARS + 1)}, {"delivery_time": START},
    {"timestamp": START + 50, "delivery_time": START + 50},
]  # fmt: skip

which, few = st.integers(0, 5), st.integers(0, 4)
sends = st.tuples(
    st.just("send"), st.sampled_from([False, False, False, True]),
    st.lists(
        st.tuples(st.sampled_from(ADDRESSES), st.sampled_from(FLAVOURS), st.integers(2, 9)), min_size=1, max_size=3
    ),
)  # fmt: skip
opens = st.tuples(
    st.just("open"), st.integers(0, 2), st.booleans(), st.sampled_from(ADDRESSES), st.sampled_from(SELECTORS),
    st.booleans(), st.sampled_from([0, 2, 5, 50, 50]),
)  # fmt: skip
others = st.one_of(
    st.tuples(st.just("receive"), which, few),
    st.tuples(st.just("credit"), which, st.sampled_from([1, 3, 40])),
    st.tuples(st.sampled_from(["acknowledge", "want", "close", "release", "recover", "commit"]), which, few),
    st.tuples(st.just("read"), st.integers(0, 2)),
    st.tuples(st.just("drop"), st.integers(1, 2)),
    st.tuples(st.just("later"), st.sampled_from([1, 20, 100])),
)
#: A consumer opens, a message is sent, something happens; and so on.
STEPS = st.tuples(
    st.lists(opens, min_size=1, max_size=4),
    st.lists(st.tuples(sends, st.lists(st.one_of(others, others, opens), max_size=3)), min_size=1, max_size=6),
).map(lambda drawn: [*drawn[0], *(step for send, more in drawn[1] for step in (send, *more))])


class Play:
    """Three clients; the first one sends as well."""

    def __init__(self, hello: dict[str, Any]) -> None:
        self.world = World()
        self.clients = [self.world.client(**hello) for _ in range(3)]
        self.sessions = [{False: client.session(CLIENT), True: client.session(TRANSACTED)} for client in self.clients]
        self.consumers: list[Consumer] = []
        self.logs: dict[Consumer, list[tuple[int, int, str]]] = {}
        self.number = 0

    def act(self, step: tuple[Any, ...]) -> None:
        match step:
            case "send", transacted, parts:
                client, session = self.clients[0], self.sessions[0][transacted]
                for address, flavour in [part[:2] for part in parts for _ in range(part[2])]:
                    self.number += 1
                    fields = envelope(f"m{self.number}", properties={"n": self.number % 3}, **flavour)
                    client.queue_send(session, fields, address)
                self.world.settle()
            case "open", at, transacted, address, selector, no_local, credit:
                client = self.clients[at]
                if client.transport_open and client.reading:
                    session = self.sessions[at][transacted]
                    self.consumers.append(
                        client.consumer(session, address, credit=credit, selector=selector, no_local=no_local)
                    )
            case "read", at:
                self.clients[at].reading = not self.clients[at].reading
                self.world.settle()
            case "drop", at:
                if self.clients[at].transport_open:
                    self.clients[at].drop()
            case "later", ms:
                self.world.later(ms)
            case verb, number, how if self.consumers:
                consumer = self.consumers[number % len(self.consumers)]
                if consumer.client.transport_open and consumer.client.reading:
                    self.do(consumer, verb, how)

    def do(self, consumer: Consumer, verb: str, how: int) -> None:
        client = consumer.client
        transacted = consumer.session == self.sessions[self.clients.index(client)][True]
        match verb:
            case "receive":
                consumer.receive(how)
            case "credit":
                consumer.credit(how)
            case "acknowledge" if not transacted:
                consumer.acknowledge(credit=how)
            case "want":
                client.request(Command.WANT, consumer.id)
            case "close":
                consumer.close()
            case "release":
                given, consumer.deliveries = consumer.deliveries[how:], consumer.deliveries[:how]
                client.say(Command.RELEASE, consumer.id, tuple(one.tag for one in given))
            case "recover":
                client.rollback(consumer.session) if transacted else client.recover(consumer.session)
            case "commit" if transacted:
                client.commit(consumer.session)

    def seen(self) -> list[object]:
        """What everybody has, and what a look into the broker says."""
        namespace = self.world.broker.namespace("default")
        queues = [namespace.queue("queue:q")]
        topic = namespace.declare("topic:t")
        queues += [subscription.queue for subscription in topic.subscriptions]  # type: ignore[union-attr]
        return [
            [
                (each.id, each.seen, [(one.tag, one.count, one.text[:9]) for one in each.deliveries])
                for each in self.consumers
            ],
            [
                (queue.depth, queue.bytes, queue.enqueued, queue.delivered, queue.in_flight, queue.acknowledged,
                 queue.counts.expired, queue.counts.redelivered, len(queue.scheduled))
                for queue in queues
            ],
            [
                [
                    (one.id, one.credit, one.tag, one.unacknowledged, one.newest)
                    for one in client.broker.peer.deliveries.consumers.values()
                ]
                for client in self.clients
            ],
            [[command for command in client.heard if command[0] != Command.OK] for client in self.clients],
            topic.published,  # type: ignore[union-attr]
            self.world.services.reports,
        ]  # fmt: skip


def play(steps: list[tuple[Any, ...]], hello: dict[str, Any]) -> tuple[list[object], list[int]]:
    one = Play(hello)
    seen: list[object] = []
    for step in steps:
        one.act(step)
        seen.append(one.seen())
    return seen, [length for client in one.clients for length in client.rows]


@pytest.fixture
def client(world: World) -> Client:
    return world.client(**SEVERAL)


@pytest.fixture
def other(client: Client) -> Client:
    return client.world.client(**SEVERAL)


@settings(max_examples=80)
@given(steps=STEPS)
def test_in_rows_and_one_by_one_everybody_sees_the_same(steps: list[tuple[Any, ...]]) -> None:
    with no_rows():
        expected, lengths = play(steps, {})
    assert not lengths
    assert play(steps, SEVERAL)[0] == expected
    seen, lengths = play(steps, {})  # a client of before
    assert seen == expected
    assert not lengths, "it has not asked for DELIVER_SEVERAL"


def test_the_model_delivers_rows() -> None:
    steps: list[tuple[Any, ...]] = [
        ("open", 1, False, "topic:t", None, False, 5),
        ("open", 2, False, "topic:t", None, False, 50),
        ("send", False, [("topic:t", {}, 9)]),
        ("credit", 0, 40),
    ]
    assert play(steps, SEVERAL)[1] == [5, 4, 9]


# -- one at a time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ADDRESSES)
def test_a_burst_is_one_command_for_each_consumer_that_takes_that(world: World, to: str) -> None:
    sender, new, old = world.client(), world.client(**SEVERAL), world.client()
    one = new.consumer(new.session(), to, credit=100)
    session = sender.session()
    burst(sender, session, *texts(*range(40)), to=to)
    assert (one.all(), new.rows) == (texts(*range(40)), [40])
    one.close()
    two = old.consumer(old.session(), to, credit=100)
    burst(sender, session, *texts(*range(40)), to=to)
    assert (two.all(), old.rows) == (texts(*range(40)), [])


def test_a_single_message_is_sent_as_deliver(client: Client) -> None:
    session = client.session()
    consumer = client.consumer(session)
    client.send(session, "alone")
    assert (consumer.all(), client.rows) == (["alone"], [])


def test_redeliveries_are_sent_singly_with_their_count(client: Client) -> None:
    session = client.session(CLIENT)
    first = client.consumer(session, credit=100)
    burst(client, session, *texts(*range(6)))
    assert first.receive(2) == texts(0, 1)
    client.recover(session)
    first.credit(100)
    assert first.all() == ["m0#2", "m1#2", *texts(2, 3, 4, 5)]
    assert client.rows[0] == 6


@pytest.mark.parametrize("hello", [SEVERAL, {}], ids=["several", "each"])
def test_a_client_that_does_not_read_gets_a_full_outbox_and_the_rest_later(hello: dict[str, Any]) -> None:
    high, body = 4_000, b"x" * 300
    world = World(SessionSettings(outbox_high=high))
    sender, slow, quick = world.client(), world.client(**hello), world.client(**hello)
    consumers = [client.consumer(client.session(CLIENT), "topic:t", credit=1_000) for client in (slow, quick)]
    session = sender.session()
    slow.reading = False
    for number in range(100):
        sender.queue_send(session, envelope(body=b"%03d" % number + body), "topic:t")
    world.settle()
    assert high - 400 < slow.broker.wire.pending_bytes < high + 400
    queue = next(one.source for one in slow.broker.peer.deliveries.consumers.values())
    assert queue.depth + queue.in_flight == 100
    assert queue.depth > 80
    expected = [f"{number:03}" for number in range(100)]
    assert [text[:3] for text in consumers[1].all()] == expected
    slow.reading = True
    assert [one.tag for one in consumers[0].deliveries] == []
    world.settle()
    tags = [one.tag for one in consumers[0].deliveries]
    assert tags == list(range(1, 101))
    assert [text[:3] for text in consumers[0].all()] == expected
    consumers[0].acknowledge()
    assert (queue.depth, queue.bytes, queue.in_flight, queue.acknowledged) == (0, 0, 0, 100)


@pytest.mark.parametrize("hello", [SEVERAL, {}], ids=["several", "each"])
def test_an_outbox_that_fills_in_a_batch_leaves_the_rest_to_a_competing_consumer(hello: dict[str, Any]) -> None:
    high, body = 4_000, b"x" * 300
    world = World(SessionSettings(outbox_high=high))
    sender, slow, quick = world.client(), world.client(**hello), world.client(**hello)
    one = slow.consumer(slow.session(CLIENT), credit=1_000, selector="n < 9")
    two = quick.consumer(quick.session(CLIENT), credit=1_000, selector="n > 0")
    session = sender.session()
    sender.send(session, "first", properties={"n": 0})
    slow.reading = False
    for number in range(100):
        sender.queue_send(session, envelope(body=b"%03d" % number + body, properties={"n": 1}))
    world.settle()
    queue = world.broker.namespace("default").queue("queue:q")
    assert high - 400 < slow.broker.wire.pending_bytes < high + 400
    assert (queue.depth, queue.in_flight) == (0, 101)
    taken = [int(text[:3]) for text in two.all()]
    assert taken[:5] == [1, 3, 5, 7, 9] or taken[:5] == [0, 2, 4, 6, 8]
    assert taken[-70:] == list(range(30, 100))
    slow.reading = True
    world.settle()
    assert one.receive(1) == ["first"]
    assert sorted(taken + [int(text[:3]) for text in one.all()]) == list(range(100))
    assert bool(slow.rows) == bool(quick.rows) == bool(hello)


def test_credit_that_ends_in_a_batch_leaves_the_rest_waiting_in_order(world: World) -> None:
    sender, client = world.client(), world.client(**SEVERAL)
    one, two = (client.consumer(client.session(CLIENT), credit=credit, selector="n = 1") for credit in (2, 3))
    session = sender.session()
    sender.send(session, "elsewhere", properties={"n": 0})
    for number in range(10):
        sender.queue_send(session, envelope(f"m{number}", properties={"n": 1}, priority=9 if number == 8 else 4))
    world.settle()
    assert (one.all(), two.all()) == (texts(0, 2), texts(1, 3, 4))
    one.credit(2)
    assert one.all() == texts(8, 5)
    two.credit(40)
    assert two.all() == texts(6, 7, 9)


def test_a_connection_that_breaks_gives_all_of_a_row_back_marked(world: World) -> None:
    sender, first, second = world.client(), world.client(**SEVERAL), world.client(**SEVERAL)
    one = first.consumer(first.session(CLIENT), credit=100)
    burst(sender, sender.session(), *texts(*range(5)))
    assert one.receive(3) == texts(0, 1, 2)
    one.acknowledge(2)
    first.drop()
    two = second.consumer(second.session(), credit=100)
    assert two.all() == ["m2#2", "m3#2", "m4#2"]


def test_a_close_within_a_batch_keeps_seen_messages_and_returns_the_rest(client: Client) -> None:
    session = client.session(CLIENT)
    one = client.consumer(session, credit=100)
    burst(client, session, *texts(*range(6)))
    assert one.receive(2) == texts(0, 1)
    one.close()
    two = client.consumer(session, credit=100)
    assert two.all() == texts(2, 3, 4, 5)
    client.recover(session)
    two.credit(100)
    assert two.all() == ["m0#2", "m1#2", "m2#2", "m3#2", "m4#2", "m5#2"]


def test_a_part_of_a_row_is_recalled_for_a_waiting_consumer(client: Client, other: Client) -> None:
    session = client.session(CLIENT)
    one = client.consumer(session, credit=100)
    burst(client, session, *texts(*range(6)))
    assert one.receive(2) == texts(0, 1)
    two = other.consumer(other.session(), credit=2)
    other.ask(Command.WANT, two.id)
    assert two.all() == texts(2, 3)
    assert one.all() == texts(4, 5)
    one.acknowledge()
    assert one.client.broker.peer.deliveries.consumers[one.id].unacknowledged == 0


def test_a_transacted_burst_is_staged_and_a_rolled_back_row_is_redelivered(world: World) -> None:
    sender, client = world.client(), world.client(**SEVERAL)
    staging, session = sender.session(TRANSACTED), client.session(TRANSACTED)
    consumer = client.consumer(session, "topic:t", credit=100)
    burst(sender, staging, *texts(*range(4)), to="topic:t")
    assert consumer.all() == []
    sender.commit(staging)
    assert consumer.receive(3) == texts(0, 1, 2)
    client.rollback(session)
    consumer.credit(100)
    assert consumer.all() == ["m0#2", "m1#2", "m2#2", "m3"]
    client.commit(session)
    assert not client.broker.peer.deliveries.consumers[consumer.id].unacknowledged


def test_a_publisher_with_no_local_does_not_get_its_own_row(client: Client, other: Client) -> None:
    session = client.session()
    own, deaf = client.consumer(session, "topic:t"), client.consumer(session, "topic:t", no_local=True)
    third = other.consumer(other.session(), "topic:t", no_local=True)
    burst(client, session, *texts(*range(5)), to="topic:t")
    assert (own.all(), deaf.all(), third.all()) == (texts(*range(5)), [], texts(*range(5)))


def test_a_row_ends_at_a_message_that_is_for_another_consumer_expired_or_delayed(world: World, client: Client) -> None:
    session = client.session()
    q, r = client.consumer(session, credit=100), client.consumer(session, "queue:r", credit=100)
    for number in range(4):
        client.queue_send(session, envelope(f"m{number}"))
    client.queue_send(session, envelope("elsewhere"), "queue:r")
    client.queue_send(session, envelope("m4"))
    client.queue_send(session, envelope("expired", expiration=START - 1))
    client.queue_send(session, envelope("later", delivery_time=START + 10))
    client.queue_send(session, envelope("m5"))
    world.settle()
    assert (q.all(), r.all(), client.rows) == (texts(*range(6)), ["elsewhere"], [4, 2])
    assert client.take(Command.CONFIRM)[-1][2] == 9
    world.later(10)
    assert q.all() == ["later"]
    assert world.broker.namespace("default").queue("queue:q").counts.expired == 1


def test_a_sender_whose_clock_is_ahead_sends_batches_too(client: Client) -> None:
    session = client.session()
    consumer = client.consumer(session, credit=100)
    ahead = START + 60_000
    burst(client, session, *texts(*range(5)), timestamp=ahead)
    assert (consumer.all(), client.rows) == (texts(*range(5)), [5])


def test_an_empty_batch_has_no_effect(client: Client) -> None:
    session = client.session()
    consumer = client.consumer(session, credit=100)
    burst(client, session, "first", "second", delivery_time=START + 10)
    burst(client, session, "third", "fourth", delivery_time=START + 10)
    inside = client.broker.peer.deliveries.consumers[consumer.id]
    assert (inside.newest, inside.tag, inside.source.sequence) == (0, 0, 4)


def test_a_gap_in_a_burst_ends_the_connection_after_the_sends_before_it(
    world: World, client: Client, other: Client
) -> None:
    consumer = other.consumer(other.session(), credit=100)
    session = client.session()
    for sequence in (1, 2, 3, 5, 6):
        client.queue(Command.SEND, session, sequence, "queue:q", envelope(f"m{sequence}"))
    world.settle()
    assert consumer.all() == texts(1, 2, 3)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_a_refused_message_in_the_middle_of_a_burst_is_the_only_one(world: World, client: Client) -> None:
    session = client.session()
    consumer = client.consumer(session, credit=100)
    for number in range(5):
        fields = envelope(f"m{number}")
        client.queue_send(session, (*fields[:11], 77, fields[12]) if number == 2 else fields)
    world.settle()
    assert consumer.all() == texts(0, 1, 3, 4)
    assert [failed[2] for failed in client.take(Command.SEND_FAILED)] == [3]
    assert client.take(Command.CONFIRM)[-1][2] == 5


def test_a_header_that_is_too_long_is_refused_alone(world: World, client: Client) -> None:
    session = client.session()
    consumer = client.consumer(session, credit=100)
    for number in range(4):
        fields = envelope(f"m{number}")
        long = (*fields[:8], "t" * (MAX_HEADER_CHARS + 1), *fields[9:])
        client.queue_send(session, long if number == 2 else fields)
    world.settle()
    assert consumer.all() == texts(0, 1, 3)
    assert [failed[2:4] for failed in client.take(Command.SEND_FAILED)] == [(3, ErrorCode.MESSAGE_FORMAT)]


def test_two_sessions_in_one_write_are_kept_apart(world: World, client: Client) -> None:
    one, two = client.session(), client.session()
    consumer = client.consumer(client.session(), credit=100)
    client.send(two, "m0")
    for session, text in ((one, "m1"), (two, "m2"), (two, "m3"), (one, "m4")):  # 1, 2, 3 and 2 of their sessions
        client.queue_send(session, envelope(text))
    world.settle()
    assert (consumer.all(), client.fatal) == (texts(*range(5)), None)
    last = {confirm[1]: confirm[2] for confirm in client.take(Command.CONFIRM)}
    assert last == {one: 2, two: 3}


def test_times_of_a_burst_are_shifted_while_the_client_has_not_seen_the_clock_move(
    world: World, client: Client, other: Client
) -> None:
    session = client.session()
    consumer = other.consumer(other.session(), credit=100)
    client.send(session, "m0")
    world.services.move_clock(60_000, world.services.real + 60_000)
    for number in (1, 2):
        client.queue_send(session, envelope(f"m{number}", timestamp=START + 1))
    world.settle()
    assert [one.fields[1] for one in consumer.deliveries] == [START, START + 60_001, START + 60_001]


def test_a_limited_user_sends_in_rows_only_where_that_is_allowed(client: Client, other: Client) -> None:
    consumer = other.consumer(other.session(), credit=100)
    session = client.session()
    client.broker.peer.entitle(Identity("ann", Rights([Grant(frozenset({Verb.SEND}), "queue:q")])))
    burst(client, session, *texts(0, 1, 2))
    burst(client, session, *texts(3, 4))
    burst(client, session, *texts(5, 6), to="queue:other")
    assert (consumer.all(), other.rows) == (texts(*range(5)), [3, 2])
    assert [refusal[2:4] for refusal in client.take(Command.SEND_FAILED)] == [(n, ErrorCode.SECURITY) for n in (6, 7)]


def test_a_fault_among_sends_confirms_the_earlier_ones_and_ends_only_its_connection(
    world: World, client: Client, other: Client
) -> None:
    session = client.session()
    other.consumer(other.session(), selector="n = 1")
    burst(client, session, "m0", "m1")
    queue = world.broker.namespace("").queue("queue:q")
    with failing(queue, after=2):
        burst(client, session, "m2", "m3", "m4", "m5")
    assert not client.transport_open
    assert [type(error) for _, error in world.services.reports] == [ZeroDivisionError]
    world.services.reports.clear()
    assert client.take(Command.CONFIRM)[-1][2] == 2
    assert queue.depth == 2, "none of the batch has arrived"
    burst(other, other.session(), "m6", "m7", to="queue:other")
    assert other.consumer(other.session(), "queue:other", credit=100).all() == texts(6, 7)


def test_a_command_has_no_more_than_fills_a_frame(world: World, client: Client) -> None:
    session = client.session()
    count = 2 * ROW
    for number in range(count):
        client.queue_send(session, envelope(body=b"%05d" % number + b"x" * 600))
    world.settle()
    consumer = client.consumer(session, credit=10_000)
    assert [text[:5] for text in consumer.all()] == [f"{number:05}" for number in range(count)]
    assert sum(client.rows) == count
    assert max(client.rows) * 600 < GATHER_BYTES
    assert len(client.rows) < 20


def test_taps_and_observers_see_every_message_of_a_batch(client: Client) -> None:
    session = client.session(AUTO)
    for address in ADDRESSES:
        terms = client.ask(Command.OPEN_TAP, "audit-" + address[:5], address, "copy", None, None, {"start": "latest"})
        burst(client, session, *texts(*range(7)), to=address)
        after = client.ask(Command.LOOK_TAP, "audit-" + address[:5], address, 0, 0, 0)
        assert after["upto"] - terms["last"] == 7
