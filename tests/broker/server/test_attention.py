"""What needs an operator's attention: what each rule finds, since when, and when it is over."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.at_once import close

from sievemq_broker.domain import Broker, Consumer, DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import TURN
from sievemq_broker.server.watch import attention as engine
from sievemq_broker.server.watch.attention import Attention, Whole
from sievemq_broker.server.watch.findings import RANKED, SENDS_REFUSED, Finding
from sievemq_broker.server.watch.follower_attention import FollowerAttention
from sievemq_broker.server.watch.history import History
from sievemq_broker.server.watch.resources import Resources
from sievemq_broker.server.watch.slow_consumers import SlowConsumers
from sievemq_broker.session.recent import FORGET_MS
from sievemq_broker.session.tally import Refusal, RolledBack, Tallies
from sievemq_broker.thresholds import Thresholds, changed_thresholds, parse_thresholds

from ..domain.support import NOW, Port, message
from .conftest import StandingClock


class World:
    """A broker with the namespace `test`, and what is found there."""

    def __init__(self, thresholds: Thresholds = Thresholds(), **policy: Any) -> None:  # noqa: B008  frozen
        self.broker = Broker(DomainSettings(default_policy=DestinationPolicy(**policy)))
        self.space = self.broker.namespace("test")
        self.clock = StandingClock(NOW)
        self.connections: dict[str, Any] = {}
        self.seconds = 0.0
        self.whole = Whole()
        self.slow = SlowConsumers(self.connections, self.broker.scheduler, self.clock, lambda: self.seconds)
        self.tallies = Tallies()
        self.resources = Resources(0, 0, 0, 0, 0.0)
        self.attention = Attention(
            self.broker,
            self.connections,
            self.slow,
            self.tallies,
            self.clock,
            thresholds,
            lambda: self.whole,
            lambda: self.resources,
            lambda: self.seconds,
        )

    def connection(self, *consumers: Consumer, name: str = "c") -> Any:
        made = SimpleNamespace(
            address="peer",
            member=SimpleNamespace(id=name, client_id=f"client-{name}"),
            namespace=self.space,
            sessions={},
            blocked_senders=[],
            out=SimpleNamespace(congested=False),
            deliveries=SimpleNamespace(consumers=dict(enumerate(consumers))),
        )
        made = Hashable(made)
        self.connections[name] = made
        return made

    def consumer(self, credit: int = 2, address: str = "queue:q", **more: Any) -> Consumer:
        return self.space.open_consumer(Port(), 1, address, None, connection="c", credit=credit, now=NOW, **more)

    def queue(self, address: str = "queue:q") -> Queue:
        return self.space.queue(address)

    def send(self, count: int, address: str = "queue:q") -> None:
        for _ in range(count):
            self.space.send(address, message(), self.clock.time)

    def after(self, seconds: int = 0) -> dict[str, Finding]:
        """What is found after a time, by rule; the first of each."""
        self.clock.time += seconds * 1000
        self.seconds += 100
        self.slow.look()
        self.attention.look()
        while self.broker.work(self.clock.time):
            pass
        found: dict[str, Finding] = {}
        for finding in self.attention.listed.values():
            found.setdefault(finding.rule.name, finding)
        return found


class Hashable(SimpleNamespace):
    """A namespace of attributes that is a key."""

    def __init__(self, of: SimpleNamespace) -> None:
        super().__init__(**vars(of))

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def test_nothing_is_found_where_all_is_well() -> None:
    world = World()
    consumer = world.consumer(credit=100)
    world.connection(consumer)
    world.send(5)
    consumer.acknowledge(5, NOW)
    assert world.after(1_000) == {}
    assert set(world.attention.totals.values()) == {0}


def test_messages_without_a_consumer_are_found_after_a_time() -> None:
    world = World()
    world.send(3)
    assert world.after() == {}
    assert world.after(59) == {}
    found = world.after(1)["no_consumer"]
    assert found.text == "no consumer is open; waiting: 3 messages"
    assert found.since == NOW
    assert found.about["address"] == "queue:q"
    assert world.attention.marks(world.queue()) == ["no_consumer"]
    assert world.after(100)["no_consumer"].since == NOW
    world.consumer(credit=0)
    assert world.after() == {}
    assert world.attention.marks(world.queue()) == []


@pytest.mark.parametrize("address", ["queue:DLQ.q", "temporary-queue:c/1"])
def test_where_no_consumer_is_expected_its_absence_is_no_finding(address: str) -> None:
    world = World()
    if address.startswith("temporary"):
        address = str(world.space.temporaries.create("c", False, 1))
    world.send(1, address)
    world.after()
    assert world.after(1_000) == {}


def test_the_time_without_a_consumer_begins_anew_with_each_absence() -> None:
    world = World()
    world.send(3)
    world.after()
    consumer = world.consumer(credit=0)
    world.after(59)
    close(consumer, 0, NOW)
    assert world.after(59) == {}
    assert world.after(60)["no_consumer"].since == NOW + 118_000


def test_consumers_that_come_and_go_between_two_rounds_are_consumers() -> None:
    """As those of a program that opens one for each message."""
    world = World()
    world.send(100)
    for _ in range(5):
        consumer = world.consumer(credit=1)
        consumer.acknowledge(consumer.tag, NOW)
        close(consumer, 0, NOW)
        assert world.after(59) == {}
    assert "no_consumer" in world.after(60)


def test_a_paused_queue_is_a_notice_and_needs_no_consumer() -> None:
    world = World()
    world.send(2)
    world.queue().pause()
    world.after()
    found = world.after(1_000)
    assert list(found) == ["paused"]
    assert found["paused"].rule.severity == "notice"
    assert found["paused"].text == "deliveries are paused; waiting: 2 messages"
    world.queue().unpause(NOW)
    assert "paused" not in world.after()


def test_a_paused_topic_is_found_once() -> None:
    world = World()
    topic = world.space.create("topic:t")
    assert isinstance(topic, Topic)
    for name in ("a", "b"):
        close(world.consumer(0, "topic:t", subscription=name, durable=True, shared=True), 0, NOW)
    world.send(2, "topic:t")
    topic.pause()
    (found,) = world.after().values()
    assert found.text == "deliveries are paused; waiting: 4 messages"
    assert found.about["address"] == "topic:t"
    assert found.about["subscription"] is None
    assert world.attention.marks(topic) == ["paused"]


def test_a_topic_has_the_marks_of_its_subscriptions() -> None:
    world = World()
    topic = world.space.create("topic:t")
    close(world.consumer(0, "topic:t", subscription="a", durable=True, shared=True), 0, NOW)
    world.send(1, "topic:t")
    world.after()
    found = world.after(60)["no_consumer"]
    assert (found.about["address"], found.about["subscription"]) == ("topic:t", "topic:t/a")
    assert world.attention.marks(topic) == ["no_consumer"]


def test_a_consumer_that_holds_everything_is_stuck_though_nothing_waits() -> None:
    world = World()
    consumer = world.consumer(credit=100)
    connection = world.connection(consumer)
    world.send(5)
    assert world.after() == {}
    assert world.after(299) == {}
    found = world.after(1)["consumer_stuck"]
    assert found.text == "a consumer does not acknowledge; it holds 5 messages"
    assert found.since == NOW
    assert found.about == {
        "namespace": "test",
        "address": "queue:q",
        "subscription": None,
        "connection": "c",
        "client_id": "client-c",
        "consumer": "c.1",
    }
    for about in (consumer, connection, world.queue()):
        assert world.attention.marks(about) == ["consumer_stuck"]
    consumer.acknowledge(1, NOW)
    assert world.after() == {}
    assert world.after(299) == {}
    assert world.after(1)["consumer_stuck"].amount == 4


def test_a_consumer_that_is_slow_by_its_rule_is_stuck() -> None:
    world = World(slow_consumer_seconds=10)
    consumer = world.consumer(credit=2)
    world.connection(consumer)
    world.send(5)
    world.after()
    assert world.after(9) == {}
    assert world.after(1)["consumer_stuck"].since == NOW
    consumer.acknowledge(2, NOW, credit=5)
    assert world.after() == {}


def test_a_client_that_reads_too_slowly_is_found() -> None:
    world = World()
    connection = world.connection(world.consumer(credit=10))
    world.send(3)
    connection.out.congested = True
    world.after()
    assert world.after(9) == {}
    found = world.after(1)["client_slow"]
    assert found.text == "a client reads too slowly; it holds 3 messages"
    assert found.about["connection"] == "c"
    assert found.about["address"] is None
    connection.out.congested = False
    assert world.after() == {}


def blocked(world: World, place: Any, seconds: int = 0, name: str = "c") -> Any:
    connection = world.connection(name=name)
    connection.blocked_senders.append(SimpleNamespace(places=(place,), since=world.clock.time - seconds * 1000))
    return connection


def test_blocked_senders_are_found_by_the_limit_at_which_they_wait() -> None:
    world = World(max_messages=1, at_limit="block")
    world.send(1)
    world.consumer(credit=0)
    first, second = blocked(world, world.queue(), 75), blocked(world, world.queue(), 5, "d")
    found = world.after()
    assert list(found) == ["senders_blocked"]
    assert found["senders_blocked"].text == ("waiting for room: 2 senders; queue:q is full; it may hold 1 message")
    assert found["senders_blocked"].since == NOW - 75_000
    assert world.attention.marks(first) == world.attention.marks(second) == ["senders_blocked"]
    assert world.attention.marks(world.queue()) == ["senders_blocked"]
    first.blocked_senders.clear()
    second.blocked_senders.clear()
    assert "senders_blocked" not in world.after()


def test_a_sender_that_waits_again_and_again_is_one_finding() -> None:
    """Room for one message at a time lets it go on for a moment: that must not end and begin a finding each time."""
    world = World(max_messages=1, at_limit="block")
    world.consumer(credit=0)
    connection = blocked(world, world.queue(), 3)
    since = world.after()["senders_blocked"].since
    connection.blocked_senders[0].since = world.clock.time
    assert world.after(1)["senders_blocked"].since == since
    connection.blocked_senders.clear()
    assert world.after(1) == {}


def test_a_full_queue_is_one_finding_while_a_few_messages_leave_it() -> None:
    world = World(max_messages=100, at_limit="fail")
    consumer = world.consumer(credit=0)
    world.send(100)
    world.after()
    assert list(world.after(10)) == ["queue_full"]
    consumer.grant(5, NOW)
    assert list(world.after(1)) == ["queue_full"]
    consumer.grant(10, NOW)
    assert list(world.after(1)) == ["nearly_full"]
    world.send(5)
    assert list(world.after(1)) == ["nearly_full"]


@pytest.mark.parametrize("at_limit", ["drop-oldest", "drop-newest"])
def test_a_queue_that_drops_messages_at_its_limit_is_full_on_purpose(at_limit: str) -> None:
    world = World(max_messages=1, at_limit=at_limit)
    world.consumer(credit=0)
    world.send(2)
    world.after()
    assert world.after(60) == {}


def test_senders_that_wait_for_a_moment_are_none_of_an_operators_business() -> None:
    world = World(max_messages=10, at_limit="block")
    world.consumer()
    blocked(world, world.queue(), 1)
    assert world.after() == {}


def test_senders_at_a_limit_of_a_namespace_have_no_destination() -> None:
    world = World()
    place = SimpleNamespace(limit_text="namespace 'test' is full")
    blocked(world, Hashable(place), 3)
    found = world.after()["senders_blocked"]
    assert (found.about["namespace"], found.about["address"]) == ("test", None)


def test_a_queue_that_stays_at_its_limit_is_found() -> None:
    world = World(max_messages=4)
    world.consumer(credit=0)
    world.send(4)
    assert list(world.after()) == ["nearly_full"]
    found = world.after(10)
    assert list(found) == ["queue_full"]
    assert found["queue_full"].text == "at its limit: it may hold 4 messages"
    world.queue().clear()
    assert world.after() == {}


def test_a_limit_that_is_nearly_used_up_is_found_until_it_is_clearly_below() -> None:
    world = World(max_bytes=100_000, max_messages=10)
    world.consumer(credit=0)
    world.send(8)
    found = world.after()
    assert found["nearly_full"].text == "80 % of its limit is in use"
    world.queue().remove(next(iter(world.queue().backlog.walk().take(1))))
    assert "nearly_full" not in world.after()  # 70 %
    world.whole = Whole(memory=0.8, connections=0.75)
    assert list(world.after()) == ["memory_high"]
    world.whole = Whole(memory=0.73, connections=1.0)
    assert list(world.after()) == ["memory_high", "connections_high"]
    world.whole = Whole(memory=0.71)
    assert world.after() == {}


def test_dead_letters_are_found_by_reason_until_no_more_come() -> None:
    world = World()
    world.consumer()
    world.send(1)
    counts = world.queue().counts
    for reason in ("attempts", "attempts", "expired", "rejected"):
        counts.dead_letter(reason)
    counts.refuse_dead_letter()
    found = world.after()
    assert found["dead_letters"].text == "new dead letters: 2 failed too often, 1 expired, 1 rejected"
    assert found["dead_letters"].since == NOW
    assert found["dead_letters_refused"].text.startswith("its dead-letter queue is full, or does not exist")
    assert found["dead_letters_refused"].text.endswith("are delivered again: 1 message")
    world.after(299)
    counts.dead_letter("attempts")
    found = world.after(1)
    assert list(found) == ["dead_letters"]
    assert found["dead_letters"].amount == 5
    assert world.after(300) == {}
    counts.dead_letter("attempts")
    found = world.after(1)
    assert (found["dead_letters"].amount, found["dead_letters"].since) == (1, NOW + 601_000)


def refuse(world: World, client: str, messages: int = 1, reason: str = "max_messages") -> None:
    world.tallies.refuse(Refusal("test", "queue:q", reason, client), world.clock.time, client, messages)


def test_refused_sends_are_found_with_the_clients_that_send_most() -> None:
    world = World(max_messages=4)
    flooder = world.connection(name="flooder")
    world.consumer(credit=0)
    world.send(4)
    for client, messages in (("a", 2), ("flooder", 70), ("b", 3), ("c", 1)):
        refuse(world, client, messages)
    found = world.after()["sends_refused"]
    assert found.text == "refused: 76 messages; max_messages, to flooder (70), b (3), a (2) and 1 more"
    assert (found.since, found.about["connection"]) == (NOW, "flooder")
    assert world.attention.marks(world.queue()) == world.attention.marks(flooder) == ["sends_refused"]
    assert "queue_full" not in world.after(20)  # it says less
    refuse(world, "d", reason="security")
    world.after(1)
    assert world.attention.totals[SENDS_REFUSED] == 2
    assert "sends_refused" not in world.after(301)
    refuse(world, "flooder")
    assert world.after()["sends_refused"].amount == 71
    refuse(world, "flooder")
    world.after(301)
    world.clock.time += FORGET_MS
    refuse(world, "flooder")
    assert world.after()["sends_refused"].amount == 1


def test_what_is_not_opened_is_found_apart() -> None:
    world = World()
    world.send(1)
    refuse(world, "a")
    world.tallies.refuse(Refusal("test", "queue:q", "security", "a", opens=True), world.clock.time, "a")
    found = world.after()
    assert found["opens_refused"].text == "refused: 1 open request; security, to a (1)"
    assert found["sends_refused"].text == "refused: 1 message; max_messages, to a (1)"


def test_sends_refused_at_a_destination_that_does_not_exist_are_found_with_its_name() -> None:
    world = World()
    world.tallies.refuse(Refusal("test", "queue:payments", "security", "a"), world.clock.time, "a", 3)
    found = world.after()["sends_refused"]
    assert found.text == "refused: 3 messages; security at queue:payments, to a (3)"
    assert (found.about["namespace"], found.about["address"]) == ("test", None)
    assert "grant the right" in found.rule.advice


def test_a_client_that_rolls_back_again_and_again_is_found() -> None:
    world = World()
    connection = world.connection(name="s")
    stormer = RolledBack("test", "stormer")
    world.tallies.rollbacks.note(RolledBack("test", "other"), NOW, "o")
    for _ in range(60):
        world.clock.time += 3_000
        world.tallies.rollbacks.note(stormer, world.clock.time, "s")
    found = world.after()
    assert found["rollbacks"].text == "stormer rolls back 20 transactions a minute"
    assert (found["rollbacks"].since, found["rollbacks"].about["connection"]) == (NOW + 3_000, "s")
    assert world.attention.marks(connection) == ["rollbacks"]
    assert world.after(301) == {}


def test_a_client_that_has_rolled_back_for_long_and_now_storms_is_found() -> None:
    world = World()
    client = RolledBack("test", "c")
    for _ in range(100):
        world.clock.time += 600_000
        world.tallies.rollbacks.note(client, world.clock.time, "c")
    assert world.after() == {}
    world.tallies.rollbacks.note(client, world.clock.time + 1, "c", 30)
    assert world.after(1)["rollbacks"].amount == 31
    world.clock.time += 60_000
    world.tallies.rollbacks.note(client, world.clock.time, "c")
    assert world.after()["rollbacks"].amount == 31
    world.clock.time += 60_000
    world.tallies.rollbacks.note(client, world.clock.time, "c")
    assert world.after() == {}


def test_made_up_names_make_one_finding() -> None:
    """Else a client without a right fills the log: one for each name."""
    world = World()
    for number in range(150):
        world.tallies.refuse(Refusal("test", f"queue:{number}", "security", "c"), NOW, "c")
    world.after()
    (found,) = world.attention.listed.values()
    assert found.text == "refused: 150 messages; security at queue:149 and 149 more, to c (150)"
    assert found.about["address"] is None


@pytest.mark.parametrize("by", [-3_600_000, 3_600_000])
def test_what_was_refused_lately_is_of_lately_after_a_clock_jump(by: int) -> None:
    world = World()
    refuse(world, "c")
    world.tallies.rollbacks.note(RolledBack("test", "c"), world.clock.time, "c", 20)
    before = list(world.after())
    assert before == ["sends_refused", "rollbacks"]
    world.clock.time += by
    world.tallies.clock_jumped(by)
    assert list(world.after(299)) == before
    assert world.after(2) == {}


def test_what_the_process_takes_is_read_now_and_then() -> None:
    world = World()
    world.resources = Resources(85, 100, 9, 10, 0.0)
    found = world.after()
    assert found["process_memory"].text.startswith("the process takes 85 % of the memory")
    assert found["files_high"].amount == 90
    world.resources = Resources(10, 0, 9, 0, 0.0)
    assert world.after() == {}


def test_a_disk_that_is_nearly_full_is_found() -> None:
    world = World()
    world.whole = Whole(disk=0.89)
    assert world.after() == {}
    world.whole = Whole(disk=0.9)
    assert world.after()["disk_low"].text == "90 % of the disk with the data directory is in use"


def test_a_queue_that_grows_beside_its_consumers_is_found() -> None:
    world = World()
    world.consumer(credit=0)
    found: dict[str, Finding] = {}
    for _ in range(3):
        assert found == {}
        world.send(400)
        found = world.after(20)
    assert found["growing"].text == "grows by 1,200 messages a minute: 20.0/s in, 0.0/s out"
    assert found["growing"].since == NOW + 20_000
    world.send(100)
    assert world.after(20) == {}


def test_the_broker_as_a_whole() -> None:
    world = World()
    world.whole = Whole(
        phase="draining", stuck="the disk is gone", full_disk="it is full", blocked="messages take all memory",
        refused_sign_ins=5, last_sign_in="of anna from 10.0.0.7 (amqp)",
        shard=["settings differ from the owner's: users", "the store does not answer: no route"],
    )  # fmt: skip
    found = world.after()
    assert list(found) == [
        "store_stuck", "not_ready", "producers_blocked", "disk_full", "wrong_passwords", "shard",
    ]  # fmt: skip
    assert found["store_stuck"].text == "nothing is confirmed or delivered: the disk is gone"
    assert found["wrong_passwords"].text == "refused sign-ins: 5; the latest of anna from 10.0.0.7 (amqp)"
    assert len(world.attention.listed) == 7
    assert found["shard"].about["namespace"] is None
    world.whole = replace(Whole(), refused_sign_ins=5)
    assert list(world.after(299)) == ["wrong_passwords"]
    assert world.after(1) == {}


def test_what_begins_and_ends_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sievemq_broker")
    world = World()
    world.queue().pause()
    world.send(1, "queue:r")
    for _ in range(3):
        world.after(60)
    world.queue().unpause(NOW)
    world.queue("queue:r").clear()
    world.after(5)
    world.after(5)
    found = [
        (record.event, record.levelname, record.fields)  # type: ignore[attr-defined]
        for record in caplog.records
        if getattr(record, "fields", {}).get("namespace") == "test"  # brokers of other tests find something, too
    ]
    assert found == [
        (
            "attention.began",
            "INFO",
            {
                "rule": "paused",
                "namespace": "test",
                "address": "queue:q",
                "text": "deliveries are paused; waiting: 0 messages",
            },
        ),
        (
            "attention.began",
            "WARNING",
            {
                "rule": "no_consumer",
                "namespace": "test",
                "address": "queue:r",
                "text": "no consumer is open; waiting: 1 message",
            },
        ),
        (
            "attention.ended",
            "INFO",
            {"rule": "no_consumer", "namespace": "test", "address": "queue:r", "seconds": 125},
        ),
        ("attention.ended", "INFO", {"rule": "paused", "namespace": "test", "address": "queue:q", "seconds": 125}),
    ]


def test_what_has_lasted_is_known_after_a_restart() -> None:
    history = History()
    first = World()
    first.attention.keep(history.rows("attention", 10))
    first.send(1)
    first.send(1, "queue:r")
    first.queue("queue:s").pause()
    first.after()
    first.after(60)
    first.queue("queue:r").clear()
    first.after(5)
    second = World()
    second.clock.time = first.clock.time
    second.attention.keep(history.rows("attention", 10))
    second.send(1)
    second.send(1, "queue:r")
    second.after(1)
    second.after(60)
    second.after(60)
    lasting = {finding.about["address"]: finding.since for finding in second.attention.listed.values()}
    assert lasting == {"queue:q": NOW, "queue:r": NOW + 66_000}
    second.queue("queue:s").pause()
    second.clock.time += 600_000
    assert second.after()["paused"].since == second.clock.time  # that may have ended meanwhile


def test_what_ended_over_a_restart_has_ended() -> None:
    history = History()
    world = World()
    world.attention.keep(history.rows("attention", 10))
    world.queue().pause()
    world.after()
    second = World()
    second.attention.keep(history.rows("attention", 10))
    second.after()
    second.after(601)
    third = World()
    third.clock.time = second.clock.time + 1_000_000
    third.attention.keep(history.rows("attention", 10))
    third.queue().pause()
    assert third.after()["paused"].since == third.clock.time


def test_a_rule_is_off_at_zero() -> None:
    names = [name for name in Thresholds.__slots__ if name != "quiet_seconds"]
    world = World(Thresholds(**dict.fromkeys(names, 0)), max_messages=4)
    consumer = world.consumer(credit=3)
    connection = world.connection(consumer)
    connection.out.congested = True
    world.send(7)
    world.queue().counts.dead_letter("attempts")
    blocked(world, world.queue(), 100, "d")
    world.send(1, "queue:r")
    world.whole = Whole(memory=1.0, disk=1.0, refused_sign_ins=100)
    refuse(world, "c")
    world.tallies.rollbacks.note(RolledBack("test", "c"), world.clock.time, "c", 1_000)
    for _ in range(4):
        assert world.after(1_000).keys() <= {"consumer_stuck"}  # by the destination's own rule
    world.attention.use(Thresholds())
    assert len(world.after()) > 1


def listed(world: World) -> list[Finding]:
    return list(world.attention.listed.values())


def test_very_many_are_counted_and_marked_and_a_few_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST", 3)
    world = World()
    for number in range(5):
        world.send(1, f"queue:{number}")
    world.after()
    world.after(60)
    assert [finding.about["address"] for finding in world.attention.listed.values()] == [
        "queue:0",
        "queue:1",
        "queue:2",
    ]
    assert world.attention.totals[next(rule for rule in RANKED if rule.name == "no_consumer")] == 5
    assert world.attention.marks(world.queue("queue:4")) == ["no_consumer"]
    world.space.delete("queue:1")
    world.send(1, "queue:a")
    world.after()
    world.after(60)
    assert [finding.about["address"] for finding in world.attention.listed.values()] == [
        "queue:0",
        "queue:2",
        "queue:3",
    ]


def test_a_round_over_very_many_takes_several_turns() -> None:
    world = World()
    for number in range(2 * TURN):
        world.send(1, f"queue:{number}")
        world.connection(name=str(number))
    world.clock.time += 1
    world.attention.look()
    turns = 0
    while world.broker.work(NOW):
        turns += 1
    assert turns > 2
    world.after(60)
    assert sum(world.attention.totals.values()) == 2 * TURN


def test_topics_without_subscriptions_are_looked_at_in_several_turns() -> None:
    world = World()
    for number in range(4 * TURN):
        world.space.declare(f"topic:{number}")
    world.attention.look()
    turns = 0
    while world.broker.work(NOW):
        turns += 1
    assert turns >= 2


def test_the_consumers_of_one_connection_are_looked_at_in_several_turns() -> None:
    world = World()
    world.connection(*[world.consumer(credit=0) for _ in range(5 * TURN)])
    world.attention.look()
    turns = 0
    while world.broker.work(NOW):
        turns += 1
    assert turns > 3


def test_what_is_deleted_is_forgotten() -> None:
    world = World()
    world.send(1)
    world.after()
    assert world.attention._queues
    world.space.delete("queue:q")
    world.after()
    assert not world.attention._queues


@pytest.mark.parametrize("by", [-3_600_000, 3_600_000])
def test_a_clock_jump_finds_nothing(by: int) -> None:
    world = World(max_messages=6)
    consumer = world.consumer(credit=2)
    connection = world.connection(consumer)
    connection.out.congested = True
    world.send(8)
    world.send(1, "queue:r")
    world.after()
    before = world.after(5)
    assert list(before) == ["nearly_full"]
    world.clock.time += by
    world.attention.clock_jumped(by)
    world.slow.clock_jumped(by)
    after = world.after()
    assert list(after) == ["nearly_full"]
    assert after["nearly_full"].since == before["nearly_full"].since + by
    assert list(world.after(5)) == ["client_slow", "queue_full"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"no_consumer_secs": 1}, "has no threshold 'no_consumer_secs'; did you mean no_consumer_seconds?"),
        ({"x": 1}, "has no threshold 'x'; there are blocked_seconds, "),
        ({"dead_letters": -1}, "threshold dead_letters must be a whole number that is not negative, not -1"),
        ({"dead_letters": True}, "must be a whole number"),
        ("[1]", "must be a table of thresholds"),
        ("x", "must be JSON"),
    ],
)
def test_thresholds_that_cannot_be_used_are_refused(given: object, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_thresholds(given)


def test_thresholds_are_a_table_or_the_same_as_json() -> None:
    wanted = Thresholds(stuck_seconds=30)
    for given in ({"stuck_seconds": 30}, '{"stuck_seconds": 30}', wanted):
        assert parse_thresholds(given) == wanted
    assert changed_thresholds(wanted) == {"stuck_seconds": 30}


def test_what_a_follower_finds() -> None:
    keeper = SimpleNamespace(still=9.0)
    following = SimpleNamespace(follower=SimpleNamespace(caught_up=False, is_full=False))
    other = SimpleNamespace(keeper=None, following=None)
    followed = {"a": SimpleNamespace(keeper=keeper, following=following), "b": other}
    shards = SimpleNamespace(followed=followed, warnings=["the store does not answer: no route"])
    attention = FollowerAttention(5.0)

    def found(seconds: int) -> dict[str, tuple[str, int]]:
        listed = attention.listed(shards, NOW + seconds * 1_000).values()
        return {each.rule.name: (each.text, each.since - NOW) for each in listed}

    assert found(0) == {"shard": ("the store does not answer: no route", 0)}
    keeper.still = 10.0
    assert found(1)["no_owner"] == ("no broker serves the shard a, and this one does not take it", -9_000)
    keeper.still = 0.0
    assert found(60) == {
        "follower_behind": ("a takeover would take long: not all messages of the shard a are read yet", 0),
        "shard": ("the store does not answer: no route", 0),
    }
    following.follower.is_full = True
    full = "the memory for messages is full, and those of the shard a are not all read"
    assert found(61)["follower_behind"] == (f"a takeover would take long: {full}", 61_000)
    shards.warnings = []
    followed["a"] = other
    assert found(62) == {}


def test_texts_need_nothing_but_what_a_finding_has() -> None:
    make: Callable[..., Finding] = Finding
    for rule in RANKED:
        assert make(rule, NOW, 3, "why").text
        assert rule.advice.endswith(".")
