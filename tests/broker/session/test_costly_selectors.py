"""Selectors that take long hold nobody up: work is counted, and no piece of it is long, whoever floods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.at_once import anywhere

from sievemq_broker.domain import management
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.taps import MAX_TAPS
from sievemq_broker.domain.work import TURN, Job, Task
from sievemq_broker.matching.condition import units_of
from sievemq_broker.matching.index import SelectorIndex
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.session import checks
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MAX_LIKE_SEARCHES, MAX_PROPERTY_CHARS
from sievemq_core.message.dead_letters import ORIGIN
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import CompiledSelector, compile_selector
from sievemq_core.wire.commands import Command

from . import harness
from .harness import CLIENT, START, TRANSACTED, Client, World, envelope
from .test_resume import KEEP, reopen

T = TypeVar("T")

pytestmark = pytest.mark.needs_python("replaces the compiler of selectors")

#: Units (condition.units, some 3 µs) after which the loop gives a connection no more time: 2 ms.
PIECE = 600

#: What one piece may take: what was begun in time, a costly evaluation more, and a slice of the domain's work.
LONGEST = 2_500


class Meter:
    """Counts the work of selectors, wherever they are evaluated."""

    def __init__(self) -> None:
        self.units = self.piece = self.longest = self.evaluations = 0

    def spent(self) -> bool:
        return self.units - self.piece >= PIECE

    def during(self, act: Callable[[], Any]) -> Any:
        """A piece of work."""
        self.piece = self.units
        try:
            return act()
        finally:
            self.longest = max(self.longest, self.units - self.piece)
            self.piece = self.units


METER = Meter()


@cache
def metered(text: str | None, dialect: Any = "jakarta") -> CompiledSelector | None:
    real = compile_selector(text, dialect)
    if real is None:
        return None

    def function(properties: Mapping[str, Any], headers: Any) -> bool:
        longest = max((len(each) for each in properties.values() if isinstance(each, str)), default=0)
        METER.units += units_of(real.effort, longest)
        METER.evaluations += 1
        return real.function(properties, headers)

    return CompiledSelector(
        real.text,
        real.dialect,
        real.facts,
        function,
        real.effort,
        canonical=real.canonical,
        ast=real.ast,
        plan=real.plan,
    )


class Metered(SieveConnection):
    """Each call from the rim is a piece."""

    def receive_data(self, data: bytes, now: int) -> None:
        METER.during(lambda: super(Metered, self).receive_data(data, now))

    def catch_up(self, now: int) -> None:
        METER.during(lambda: super(Metered, self).catch_up(now))


@pytest.fixture(autouse=True)
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meter]:
    global METER
    METER = Meter()
    monkeypatch.setattr(checks, "compile_selector", metered)
    monkeypatch.setattr(harness, "SieveConnection", Metered)
    yield METER
    assert METER.longest <= LONGEST


def world_of(broker: Broker | None = None) -> World:
    world = World(broker=broker)
    world.services.spent = METER.spent
    real = world.broker.work

    def settle() -> None:
        World.settle(world)
        while METER.during(lambda: real(world.now)):
            World.settle(world)
        World.settle(world)

    world.settle = settle  # type: ignore[method-assign]
    return world


HAYSTACK = "a" * MAX_PROPERTY_CHARS


#: Selectors whose work is counted and need not be done.
ALWAYS_TRUE: set[str] = set()


def hostile(number: int, searches: int = MAX_LIKE_SEARCHES) -> str:
    """TRUE of a text of many a, and as costly as may be."""
    needle = "a" * 40 + "b" + "a" * 40
    text = " AND ".join(f"p NOT LIKE '%{needle}{number}x{each}%'" for each in range(searches))
    ALWAYS_TRUE.add(text)
    return text


def heavy(text: str, **properties: Any) -> tuple[Any, ...]:
    return envelope(text, properties={"p": HAYSTACK, **properties})


@pytest.fixture
def world() -> World:
    return world_of()


def test_a_topic_message_is_matched_in_slices_without_delaying_others(world: World, meter: Meter) -> None:
    """A hundred such subscriptions once took 15 s for one message."""
    subscriber, sender, other = world.client(), world.client(), world.client()
    session = subscriber.session()
    consumers = [subscriber.consumer(session, "topic:t", selector=hostile(number)) for number in range(30)]
    plain = subscriber.consumer(session, "topic:t")
    client = sender.session()
    sender.queue_send(client, heavy("m1"), "topic:t")
    sender.queue_send(client, envelope("m2", properties={"p": "a"}), "topic:t")
    sender.broker.receive_data(sender.wire.data_to_send(), world.now)
    assert sender.broker.behind
    assert not plain.deliveries, "nothing has happened to it yet"
    other.ask(Command.PING)  # while the other's message is examined
    assert meter.evaluations > 0
    world.settle()
    assert meter.evaluations == 30 + 30  # the second message is small, and costs what it costs
    for consumer in (*consumers, plain):
        assert consumer.all() == ["m1", "m2"]
    assert sender.take(Command.CONFIRM)[-1] == (Command.CONFIRM, client, 2)


def test_a_sender_that_is_lost_while_its_message_is_examined_has_not_sent_it(world: World, meter: Meter) -> None:
    subscriber, sender = world.client(), world.client(keep=KEEP)
    consumers = [subscriber.consumer(subscriber.session(), "topic:t", selector=hostile(n)) for n in range(20)]
    session = sender.session()
    sender.queue_send(session, heavy("m1"), "topic:t")
    sender.broker.receive_data(sender.wire.data_to_send(), world.now)
    assert sender.broker.behind
    sender.drop()
    assert not sender.broker.behind
    assert world.broker.namespace("").declare("topic:t").published == 0  # type: ignore[union-attr]
    new = Client(world)
    new._ids = sender._ids
    new.wire.send(Command.HELLO, 1, "", None, None, None, 0, "harness", sender.broker.peer.member.id, {"keep": KEEP})
    new.exchange()
    assert new.take(Command.WELCOME)[0][7]["resumed"]["sessions"] == ((session, 0, 0),)
    reopen(new, session, 0)
    new.sends, new._sequences[session] = sender.sends, 1
    new.go_on(session, 1)
    world.settle()
    assert [consumer.all() for consumer in consumers] == [["m1"]] * 20


def test_a_subscriber_that_opens_or_closes_meanwhile(world: World, meter: Meter) -> None:
    """A message goes to those that are there when it is sent, and that is when all have been asked."""
    subscriber, sender = world.client(), world.client()
    session = subscriber.session()
    consumers = [subscriber.consumer(session, "topic:t", selector=hostile(number)) for number in range(20)]
    sender.queue_send(sender.session(), heavy("m1"), "topic:t")
    sender.broker.receive_data(sender.wire.data_to_send(), world.now)
    assert sender.broker.behind
    say = subscriber.wire.send
    say(Command.CLOSE_CONSUMER, 900, consumers[0].id, 0)
    say(Command.CLOSE_CONSUMER, 901, consumers[-1].id, 0)
    subscriber.broker.receive_data(subscriber.wire.data_to_send(), world.now)
    late = subscriber.consumer(session, "topic:t", selector=hostile(77))
    world.settle()
    assert [consumer.all() for consumer in consumers[1:-1]] == [["m1"]] * 18
    assert not consumers[0].deliveries
    assert not consumers[-1].deliveries
    assert late.all() in ([], ["m1"])


def test_a_transaction_is_examined_before_it_is_published(world: World, meter: Meter) -> None:
    subscriber, sender = world.client(), world.client()
    consumers = [subscriber.consumer(subscriber.session(), "topic:t", selector=hostile(n)) for n in range(10)]
    session = sender.session(TRANSACTED)
    for number in range(4):
        sender.queue_send(session, heavy(f"m{number}"), "topic:t")
    sender.queue(Command.COMMIT, 99, session, ())
    world.settle()
    assert sender.answer_to(99) is not None
    assert meter.evaluations == 40
    assert [consumer.all() for consumer in consumers] == [["m0", "m1", "m2", "m3"]] * 10


def test_a_transaction_larger_than_one_slice_completes(world: World, meter: Meter) -> None:
    """Its commit once was examined from the beginning again and again, and never answered."""
    subscriber, sender = world.client(), world.client()
    consumer = subscriber.consumer(subscriber.session(), "topic:t", selector=hostile(1), credit=1_000)
    session = sender.session(TRANSACTED)
    names = [f"m{number}" for number in range(TURN)]
    for name in names:
        sender.queue_send(session, envelope(name, properties={"p": "a"}), "topic:t")
    sender.queue(Command.COMMIT, 99, session, ())
    for _ in names:
        sender.exchange()
    world.settle()
    assert sender.answer_to(99) == (Command.OK, 99, None)
    assert consumer.all() == names


@pytest.mark.parametrize("to", ["queue:q", "topic:t"])
def test_selectors_that_are_listed_for_each_message_of_a_transaction_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """A slice once listed all selectors for each of 200 messages."""
    subscriber, sender = world.client(), world.client()
    session = subscriber.session()
    consumers = [subscriber.consumer(session, to, selector=f"p LIKE '%{n}%'", credit=500) for n in range(160)]
    listed, longest, real, names = 0, 0, SelectorIndex.asking, [f"m{number}" for number in range(200)]

    def asking(index: SelectorIndex[Any], message: Envelope) -> Any:
        nonlocal listed
        listed += index.most
        return real(index, message)

    monkeypatch.setattr(SelectorIndex, "asking", asking)
    transacted = sender.session(TRANSACTED)
    for name in names:
        sender.queue_send(transacted, envelope(name, properties={"p": "x7x"}), to)
    sender.queue(Command.COMMIT, 99, transacted, ())
    sender.exchange()
    while sender.broker.behind:
        longest, listed = max(longest, listed), 0
        sender.exchange()
        world.broker.work(world.now)
    world.settle()
    assert sender.answer_to(99) == (Command.OK, 99, None)
    assert consumers[7].all() == names
    assert 0 < longest <= 8 * TURN + len(consumers)
    assert world.broker.scheduler.overrun <= 1_000


def test_a_staged_batch_is_examined_before_it_is_published(world: World, meter: Meter) -> None:
    subscriber, sender = world.client(), world.client()
    consumers = [subscriber.consumer(subscriber.session(), "topic:t", selector=hostile(n)) for n in range(10)]
    session = sender.session(TRANSACTED)
    for number in range(4):
        sender.queue_send(session, heavy(f"m{number}"), "topic:t")
    stage = sender.ask(Command.STAGE, session, "k", 0, 60_000)
    published = sender.request(Command.PUBLISH, "k", 0, (stage,))
    world.settle()
    assert sender.answer_to(published) == (Command.OK, published, 4)
    assert meter.evaluations == 40
    assert [consumer.all() for consumer in consumers] == [["m0", "m1", "m2", "m3"]] * 10


def test_a_stage_that_ends_during_examination_is_not_published(world: World, meter: Meter) -> None:
    subscriber, sender, other = world.client(), world.client(), world.client()
    consumers = [subscriber.consumer(subscriber.session(), "topic:t", selector=hostile(n)) for n in range(30)]
    session = sender.session(TRANSACTED)
    sender.queue_send(session, heavy("m"), "topic:t")
    stage = sender.ask(Command.STAGE, session, "k", 0, 60_000)
    sender.queue(Command.PUBLISH, 99, "k", 0, (stage,))
    sender.broker.receive_data(sender.wire.data_to_send(), world.now)
    assert sender.broker.behind
    world.broker.namespace("").stages.discard("k", 0, owner=None)
    world.settle()
    answer = sender.answer_to(99)
    assert answer is not None
    assert answer[0] == Command.ERROR
    assert [consumer.all() for consumer in consumers] == [[]] * 30
    assert other.ask(Command.PING)


def begun(world: World, verb: Callable[..., Task[T]], *arguments: object) -> Job[T]:
    """A task that begins with the next turn."""
    return world.broker.scheduler.start("verb", partial(verb, *arguments), world.now, later=True)


def carried_out(job: Job[T], world: World) -> T:
    """What a verb answers, each turn a piece."""
    while not job.over:
        METER.during(lambda: world.broker.scheduler.run(world.now))
    return job.result


@pytest.mark.parametrize("verb", ["move", "copy", "retry"])
def test_a_transfer_is_examined_in_pieces(world: World, meter: Meter, verb: str) -> None:
    subscriber = world.client()
    space = world.broker.namespace("")
    consumers = [subscriber.consumer(subscriber.session(), "queue:to", selector=hostile(n)) for n in range(30)]
    source = "queue:DLQ.to" if verb == "retry" else "queue:from"
    for number in range(3):
        origin = {ORIGIN: "queue:to"} if verb == "retry" else {}
        space.transfer(source, Envelope(heavy(f"m{number}", **origin)), world.now)
    queue = space.queue(source)
    choice = management.Choice()
    how = anywhere if verb == "retry" else "queue:to"
    outcome = carried_out(begun(world, getattr(management, verb), space, how, queue, choice), world)
    assert (outcome.matched, outcome.touched, outcome.skipped) == (3, 3, 0)
    assert meter.evaluations == 90
    world.settle()
    assert sum(len(consumer.all()) for consumer in consumers) == 3


def test_a_message_that_is_consumed_while_it_is_examined_is_not_moved(world: World, meter: Meter) -> None:
    subscriber = world.client()
    space = world.broker.namespace("")
    consumers = [subscriber.consumer(subscriber.session(), "queue:to", selector=hostile(n)) for n in range(30)]
    space.transfer("queue:from", Envelope(heavy("m")), world.now)
    session = subscriber.session()
    job = begun(world, management.move, space, "queue:to", space.queue("queue:from"), management.Choice())
    while not meter.evaluations:
        METER.during(lambda: world.broker.scheduler.run(world.now))
    taker = subscriber.consumer(session, "queue:from")
    assert taker.all() == ["m"]
    outcome = carried_out(job, world)
    assert (outcome.matched, outcome.touched, outcome.skipped) == (1, 0, 1)
    assert [consumer.all() for consumer in consumers] == [[]] * 30


def test_blocked_messages_are_not_examined_again(meter: Meter) -> None:
    settings = DomainSettings(default_policy=DestinationPolicy(max_messages=1, at_limit="block"))
    world = world_of(Broker(settings))
    sender, receiver = world.client(), world.client()
    consumers = [receiver.consumer(receiver.session(), selector=hostile(n), credit=0) for n in range(10)]
    session = sender.session()
    sender.queue_send(session, heavy("m1"))
    sender.queue_send(session, heavy("m2"))
    world.settle()
    assert meter.evaluations == 20
    consumers[3].credit(1)
    assert consumers[3].all() == ["m1"]
    consumers[3].acknowledge(credit=1)
    assert consumers[3].all() == ["m2"]
    assert meter.evaluations == 20


@pytest.mark.parametrize("back", ["recover", "close", "drop", "delay"])
def test_a_returned_message_is_not_examined_again(world: World, meter: Meter, back: str) -> None:
    sender, receiver, other = world.client(), world.client(), world.client()
    waiting = [other.consumer(other.session(CLIENT), selector=hostile(n), credit=0) for n in range(10)]
    session = receiver.session(CLIENT)
    first = receiver.consumer(session, selector=hostile(99))
    late = {"delivery_time": START + 50} if back == "delay" else {}
    sender.queue_send(sender.session(), envelope("m1", properties={"p": HAYSTACK}, **late))
    world.settle()
    if back == "delay":
        world.later(100)
    assert first.all() == ["m1"]
    assert meter.evaluations == 11
    match back:
        case "recover":
            receiver.recover(session)
        case "close":
            receiver.ask(Command.CLOSE_SESSION, session, ())
        case _:
            receiver.drop()
    waiting[5].credit(1)
    if back == "recover":
        first.close()
    world.settle()
    assert waiting[5].all() == ["m1" if back == "close" else "m1#2"]
    assert meter.evaluations == 11


def test_a_message_in_the_buffer_of_another_consumer_is_not_examined_again(world: World, meter: Meter) -> None:
    client = world.client()
    session = client.session()
    busy = client.consumer(session, selector=hostile(1))
    idle = client.consumer(session, selector=hostile(2), credit=0)
    client.queue_send(session, heavy("m1"))
    client.queue_send(session, heavy("m2"))
    world.settle()
    assert [one.text for one in busy.deliveries] == ["m1", "m2"]
    assert meter.evaluations == 4
    client.say(Command.WANT, 900, idle.id, 1)
    world.later(1_000)
    assert idle.all()
    assert meter.evaluations == 4


@pytest.mark.parametrize("request_number", [0, 900])
def test_the_buffer_of_another_consumer_is_searched_in_pieces(world: World, meter: Meter, request_number: int) -> None:
    client = world.client()
    session = client.session()
    busy = client.consumer(session, credit=100)
    for number in range(60):
        client.queue_send(session, heavy(f"m{number}", n=number))
    world.settle()
    assert len(busy.deliveries) == 60
    idle = client.consumer(session, selector=f"{hostile(1)} AND n = 59", credit=0)
    client.say(Command.WANT, request_number, idle.id)
    world.settle()
    assert idle.all() == ["m59"]
    assert meter.evaluations == 61, "the last one came back, and was matched as what arrives"


def test_a_page_of_a_browser_is_as_long_as_there_is_time(world: World, meter: Meter) -> None:
    client = world.client()
    session = client.session()
    for number in range(12):
        client.queue_send(session, heavy(f"m{number}", n=number))
    world.settle()
    assert [text for _, text in client.browse(selector=hostile(1))] == [f"m{number}" for number in range(12)]
    assert [text for _, text in client.browse(selector=hostile(1) + " AND n = 7")] == ["m7"]


def test_a_backlog_is_scanned_in_slices(world: World, meter: Meter) -> None:
    client = world.client()
    session = client.session()
    for number in range(12):
        client.queue_send(session, heavy(f"m{number}"))
    world.settle()
    assert client.consumer(session, selector=hostile(1), credit=50).all() == [f"m{number}" for number in range(12)]
    assert meter.evaluations == 12


# -- what arrives without being sent ----------------------------------------------------------------------------------


def moments(world: World, ms: int) -> None:
    """Time passes; each call for what has become due is a piece."""
    world.services.real += ms
    while METER.during(lambda: world.broker.due(world.now)) == world.now:
        pass
    world.settle()


@pytest.mark.parametrize("reason", ["expired", "attempts"])
def test_dead_letters_are_examined_in_pieces(meter: Meter, reason: str) -> None:
    policy = DestinationPolicy(max_attempts=1, dead_letter_expired=True)
    world = world_of(Broker(DomainSettings(policies=(("queue:q", policy),))))
    receiver, sender, taker = world.client(), world.client(), world.client()
    consumers = [receiver.consumer(receiver.session(), "queue:DLQ.q", selector=hostile(n), credit=0) for n in range(30)]
    more = {"expiration": START + 50} if reason == "expired" else {}
    session, names = sender.session(), [f"m{number}" for number in range(6)]
    for name in names:
        sender.queue_send(session, envelope(name, properties={"p": HAYSTACK}, **more))
    world.settle()
    if reason == "expired":
        moments(world, 100)
    else:
        taking = taker.session(CLIENT)
        taken = taker.consumer(taking)
        assert taken.all() == names
        taker.recover(taking)
        world.settle()
    assert meter.evaluations == 6 * 30
    assert world.broker.namespace("").queue("queue:DLQ.q").depth == 6
    consumers[7].credit(10)
    assert consumers[7].all() == names


def test_a_dead_letter_does_not_overtake_an_examined_message(meter: Meter) -> None:
    policy = DestinationPolicy(dead_letter_expired=True)
    world = world_of(Broker(DomainSettings(policies=(("queue:q", policy),))))
    receiver, sender = world.client(), world.client()
    selector = "p IS NOT NULL OR " + hostile(1)
    consumer = receiver.consumer(receiver.session(), "queue:DLQ.q", selector=selector)
    others = [receiver.consumer(receiver.session(), "queue:DLQ.q", selector=hostile(n), credit=0) for n in range(20)]
    plain = receiver.consumer(receiver.session(), "queue:DLQ.q", credit=0)
    session = sender.session()
    sender.queue_send(session, envelope("long", properties={"p": HAYSTACK}, expiration=START + 50))
    sender.queue_send(session, envelope("short", properties={"p": "a"}, expiration=START + 60))
    world.settle()
    world.services.real += 100
    METER.during(lambda: world.broker.due(world.now))
    request = 900
    receiver.queue(Command.WANT, request, plain.id)
    receiver.exchange()
    assert receiver.answer_to(request) is None, "there will be a message"
    assert not consumer.deliveries
    world.settle()
    assert sorted(consumer.all() + plain.all()) == ["long", "short"]
    assert receiver.answer_to(request) == (Command.OK, request, None)
    assert not any(other.deliveries for other in others)


@pytest.mark.parametrize("back", ["recover", "close", "drop", "delay", "redelivery"])
def test_new_selectors_examine_returned_messages_in_slices(meter: Meter, back: str) -> None:
    """A hundred returned messages and a hundred such consumers once took some seconds in one turn."""
    policy = DestinationPolicy(redelivery_delay=50 if back == "redelivery" else 0)
    world = world_of(Broker(DomainSettings(policies=(("queue:q", policy),))))
    sender, receiver, other = world.client(), world.client(), world.client()
    session, names = receiver.session(CLIENT), [f"m{number}" for number in range(8)]
    late = {"delivery_time": START + 50} if back == "delay" else {}
    producing = sender.session()
    for name in names:
        sender.queue_send(producing, envelope(name, properties={"p": HAYSTACK}, **late))
    first = receiver.consumer(session, credit=0 if back == "delay" else 100)
    world.settle()
    if back != "delay":
        assert first.all() == names
    waiting = [other.consumer(other.session(CLIENT), selector=hostile(n), credit=0) for n in range(20)]
    match back:
        case "recover" | "redelivery":
            receiver.recover(session)
        case "close":
            receiver.ask(Command.CLOSE_SESSION, session, ())
        case "drop":
            METER.during(receiver.drop)
    if back in ("delay", "redelivery"):
        world.settle()
        moments(world, 100)
    world.settle()
    queue = world.broker.namespace("").queue("queue:q")
    assert (queue.depth, len(queue.scheduled), queue.standstill.held) == (8, 0, 0)
    assert meter.evaluations >= 8 * 20
    waiting[5].credit(10)
    assert waiting[5].all() == (names if back in ("close", "delay") else [f"{name}#2" for name in names])


def test_a_recalled_message_is_delivered_to_the_waiting_consumer_after_examination(world: World, meter: Meter) -> None:
    """Not back to the one that gave it up, which has credit too."""
    holder, other = world.client(), world.client()
    busy = holder.consumer(holder.session(CLIENT), credit=100)
    sending = other.session()
    for name in ("m1", "m2"):
        other.queue_send(sending, heavy(name))
    world.settle()
    for number in range(20):
        other.consumer(other.session(CLIENT), selector=hostile(number), credit=0)
    waiter = other.consumer(other.session(CLIENT), selector=hostile(77), credit=0)
    request = other.request(Command.WANT, waiter.id)
    world.later(1_000)
    assert waiter.all() == ["m1"]
    assert other.answer_to(request) == (Command.OK, request, None)
    assert [one.text for one in busy.deliveries] == ["m2"]


@pytest.mark.parametrize("act", ["purge", "expire", "delete"])
def test_a_message_removed_during_its_examination_is_not_delivered(meter: Meter, act: str) -> None:
    policy = DestinationPolicy(dead_letter_expired=True)
    world = world_of(Broker(DomainSettings(policies=(("queue:q", policy),))))
    receiver, sender = world.client(), world.client()
    consumers = [
        receiver.consumer(receiver.session(), "queue:DLQ.q", selector=hostile(n), credit=10) for n in range(20)
    ]
    session = sender.session()
    for number in range(3):
        sender.queue_send(session, envelope(f"m{number}", properties={"p": HAYSTACK}, expiration=START + 50))
    world.settle()
    world.services.real += 100
    for _ in range(3):
        METER.during(lambda: world.broker.due(world.now))
    space = world.broker.namespace("")
    queue = space.queue("queue:DLQ.q")
    assert len(queue.scheduled) == 3
    METER.during(lambda: world.broker.work(world.now, 500))
    if act == "purge":
        queue.clear()
    elif act == "delete":
        space.delete("queue:DLQ.q")
    else:
        queue.remove(next(iter(queue.scheduled.values())), "expired")
    world.settle()
    got = [text for consumer in consumers for text in consumer.all()]
    assert got == (["m1", "m2"] if act == "expire" else [])
    assert (queue.depth, len(queue.scheduled)) == (0, 0)
    assert act == "delete" or queue.standstill.held == 0


# -- taps -------------------------------------------------------------------------------------------------------------


def tapped(client: Client, to: str, mode: str = "copy", **options: Any) -> int:
    """As many taps as may be, each as costly as may be."""
    for number in range(MAX_TAPS):
        request = client.request(Command.OPEN_TAP, f"t{number}", to, mode, hostile(number), None, options)
        answer = client.answer_to(request)
        assert answer is not None
        if answer[0] == Command.ERROR:
            assert answer[2] == ErrorCode.RESOURCE_ALLOCATION
            assert answer[4] == {"limit": "tap_selectors"}
            return number
    raise AssertionError("there is no limit")


@pytest.mark.parametrize("to", ["queue:q", "topic:t"])
@pytest.mark.parametrize("how", ["send", "commit", "dead letters"])
def test_the_selectors_of_taps_are_bounded_and_evaluated_in_slices(meter: Meter, to: str, how: str) -> None:
    if how == "dead letters":
        to = "queue:DLQ.q"
    policy = DestinationPolicy(dead_letter_expired=True)
    world = world_of(Broker(DomainSettings(policies=(("queue:q", policy),))))
    client, sender = world.client(), world.client()
    taps = tapped(client, to)
    session = sender.session(TRANSACTED if how == "commit" else CLIENT)
    for number in range(12):
        late = {"expiration": START + 50} if how == "dead letters" else {}
        message = envelope(f"m{number}", properties={"p": HAYSTACK}, **late)
        sender.queue_send(session, message, "queue:q" if late else to)
    if how == "commit":
        sender.queue(Command.COMMIT, 99, session, ())
    world.settle()
    if how == "dead letters":
        moments(world, 100)
    assert [len(tap.log) for tap in world.broker.namespace("").taps] == [12] * taps
    assert meter.evaluations == 12 * taps


def test_taps_without_costly_selectors_are_as_many_as_may_be(client: Client) -> None:
    for number in range(MAX_TAPS):
        client.ask(Command.OPEN_TAP, f"t{number}", "queue:q", "copy", f"a = {number} AND b LIKE 'x%'", None, {})


@pytest.mark.parametrize("verb", ["move", "copy"])
def test_a_transfer_to_a_queue_with_costly_taps_is_made_in_pieces(world: World, meter: Meter, verb: str) -> None:
    taps = tapped(world.client(), "queue:to")
    space = world.broker.namespace("")
    for number in range(6):
        space.transfer("queue:from", Envelope(heavy(f"m{number}")), world.now)
    queue = space.queue("queue:from")
    outcome = carried_out(begun(world, getattr(management, verb), space, "queue:to", queue, management.Choice()), world)
    assert (outcome.matched, outcome.touched, outcome.skipped) == (6, 6, 0)
    assert meter.evaluations == 6 * taps


@pytest.mark.parametrize("durable", [False, True])
def test_outcomes_are_stored_in_slices_and_in_one_batch_with_their_messages(
    world: World, meter: Meter, durable: bool
) -> None:
    journal = Journal()
    if durable:
        world.broker.keep_in(journal)
    client, sender, receiver = world.client(), world.client(), world.client()
    taps = tapped(client, "queue:q", "outcomes")
    session = receiver.session(CLIENT)
    consumer = receiver.consumer(session, credit=100)
    sending = sender.session()
    for number in range(40):
        sender.queue_send(sending, envelope(f"m{number}", properties={"p": HAYSTACK}))
    world.settle()
    assert len(consumer.all()) == 40
    receiver.wire.send(Command.ACKNOWLEDGE, consumer.id, consumer.seen, 0)
    receiver.broker.receive_data(receiver.wire.data_to_send(), world.now)
    METER.during(lambda: world.broker.work(world.now, 500))
    assert journal.holds == durable
    assert world.broker.busy is not None
    world.settle()
    assert [len(tap.log) for tap in world.broker.namespace("").taps] == [40] * taps
    assert meter.evaluations == 40 * taps
    assert journal.holds == 0


@pytest.mark.parametrize("durable", [False, True])
def test_a_tap_takes_a_backlog_in_pieces(world: World, meter: Meter, durable: bool) -> None:
    journal = Journal()
    if durable:
        world.broker.keep_in(journal)
    client, sender = world.client(), world.client()
    sending = sender.session()
    for number in range(20):
        sender.queue_send(sending, envelope(f"m{number}", properties={"p": HAYSTACK}))
    world.settle()
    client.wire.send(Command.OPEN_TAP, 77, "t", "queue:q", "copy", hostile(1), None, {"start": "earliest"})
    client.broker.receive_data(client.wire.data_to_send(), world.now)
    METER.during(lambda: world.broker.work(world.now, 500))
    assert journal.holds == durable
    world.settle()
    (tap,) = world.broker.namespace("").taps
    for _ in range(20):
        METER.during(lambda: tap.look(0, 0, 0, world.now))
    assert len(tap.log) == meter.evaluations == 20
    assert journal.holds == 0


selectors = st.one_of(
    st.tuples(st.just("like"), st.integers(1, MAX_LIKE_SEARCHES)),
    st.tuples(st.just("sums"), st.integers(1, 30)),
    st.tuples(st.just("plain"), st.integers(1, 90)),
)


def written(shape: tuple[str, int], number: int) -> str:
    kind, size = shape
    if kind == "like":
        return hostile(number, size)
    if kind == "sums":
        return " AND ".join(f"n + m * {each} > m / {number + 7} - k" for each in range(size))
    return " OR ".join(f"m > {number + 1_000_000 + each}" for each in range(size)) + " OR n IS NOT NULL OR k IS NULL"


@settings(max_examples=20, deadline=None)
@given(
    shapes=st.lists(selectors, min_size=1, max_size=4),
    copies=st.integers(1, 25),
    to=st.sampled_from(["queue:q", "topic:t"]),
    length=st.sampled_from([10, 3_000, MAX_PROPERTY_CHARS]),
    many=st.integers(0, 200),
    transacted=st.booleans(),
    messages=st.integers(1, 4),
)
def test_no_piece_is_long_for_any_selector_message_and_number_of_subscribers(
    shapes: list[tuple[str, int]], copies: int, to: str, length: int, many: int, transacted: bool, messages: int
) -> None:
    """The worst that a search finds."""
    global METER
    METER = Meter()
    world = world_of()
    subscriber, sender = world.client(), world.client()
    session = subscriber.session()
    texts = [written(shape, number) for number in range(copies) for shape in shapes]
    consumers = [subscriber.consumer(session, to, selector=text, credit=100) for text in texts]
    properties = {"p": "a" * length, "n": 1, "m": 2, "k": 3} | {f"x{number}": number for number in range(many)}
    sending = sender.session(TRANSACTED if transacted else CLIENT)
    for number in range(messages):
        sender.queue_send(sending, envelope(f"m{number}", properties=properties), to)
    if transacted:
        sender.queue(Command.COMMIT, 99, sending, ())
    world.settle()
    expected = [f"m{number}" for number in range(messages)]
    got = [consumer.all() for consumer in consumers]
    if to == "topic:t":
        assert got == [expected] * len(consumers)
    else:
        assert sorted(text for texts in got for text in texts) == expected
    if to == "queue:q":
        subscriber.anew(session)
        subscriber.drop()
        reader = world.client()
        assert [text for _, text in reader.browse(selector=texts[0])] == expected
    assert METER.longest <= LONGEST
