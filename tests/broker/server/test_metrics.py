"""Scrapes: sums that come in slices and do not fall, series of single destinations, histograms."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.protocols.stomp import StompSocket

from sievemq import ConnectionFactory, JMSContext, Queue
from sievemq.taps import delete_tap, open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.queue import Queue as DomainQueue
from sievemq_broker.domain.topic import Group
from sievemq_broker.domain.work import TURN, Budget, finish
from sievemq_broker.matching.index import SelectorIndex
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.server.http.metrics import DETAILED, MAX_DETAILED
from sievemq_broker.server.watch.counts import Totals, figures_of, waits_since
from sievemq_broker.server.watch.selector_times import SelectorTimes
from sievemq_core.message.envelope import Envelope, pack_properties
from sievemq_core.selector import compile_selector

from ..domain.support import Port

NOW = 1_700_000_000_000
QUEUES = 4_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    rules = {"small": {"max_messages": 2, "at_limit": "drop-oldest"}}
    with EmbeddedBroker(http=True, settings={"destinations": rules}) as broker:
        yield broker


def scrape(broker: EmbeddedBroker, path: str = "/metrics") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    with urllib.request.urlopen(f"{broker.http_url}{path}") as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(({"namespace": "default", "kind": "queue"} | given).items())


def send(broker: EmbeddedBroker, address: str, count: int = 1) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        for _ in range(count):
            context.create_producer().send(context.create_queue(address), "x")


def test_very_many_queues_come_in_slices(broker: EmbeddedBroker) -> None:
    def fill(_: Any) -> None:
        space = broker.server.shard.broker.namespace("default")
        for number in range(QUEUES):
            space.create(f"queue:q{number}")

    broker.call(fill)
    sums = broker.call(lambda _: Totals(broker.server.shard.broker, broker.server.shard.ended))
    slices: list[int] = []
    budget = Budget()
    for _ in sums.add_up(0, budget):
        slices.append(sums.holdings["default", "queue"].queues - sum(slices))
        budget.renew(TURN)
    slices.append(sums.holdings["default", "queue"].queues - sum(slices))
    assert max(slices) <= TURN
    assert sum(slices) == QUEUES
    assert scrape(broker)["sievemq_destinations", labels()] == QUEUES


def test_the_subscriptions_of_one_topic_come_in_slices() -> None:
    domain = Broker()
    space = domain.namespace("default")
    for number in range(2 * TURN):
        space.open_consumer(Port(), number, "topic:t", connection="c", credit=0, now=NOW)
    space.send("topic:t", Envelope(("ID:1", NOW, 4, 2, 0, 0, None, None, None, None, None, 0, None)), NOW)
    domain.finish(NOW)
    topic, budget = space.declare("topic:t"), Budget()
    task, slices = figures_of(topic, NOW, budget), 1
    while True:
        try:
            next(task)
        except StopIteration as end:
            counted, held = end.value
            break
        assert budget.left >= -2
        budget.renew(TURN)
        slices += 1
    assert slices > 2
    assert (counted.published, counted.enqueued, held.ready, held.queues) == (1, 2 * TURN, 2 * TURN, 2 * TURN)


def test_a_destination_deleted_during_a_scrape_is_counted_once(broker: EmbeddedBroker) -> None:
    send(broker, "a", 3)
    space = broker.server.shard.broker.namespace("default")

    def look(_: Any) -> int:
        sums = Totals(broker.server.shard.broker, broker.server.shard.ended)
        space.delete("queue:a")
        finish(sums.add_up, 0)
        return sums.counts["default", "queue"].enqueued

    assert broker.call(look) == 3
    assert scrape(broker)["sievemq_messages_enqueued_total", labels()] == 3


def test_dropped_messages_are_counted_by_reason(broker: EmbeddedBroker) -> None:
    send(broker, "small", 5)
    found = scrape(broker)
    assert found["sievemq_messages_dropped_total", labels(reason="drop-oldest")] == 3
    assert found["sievemq_messages_dropped_total", labels(reason="drop-newest")] == 0


def test_single_destinations_that_fit_a_pattern(broker: EmbeddedBroker) -> None:
    send(broker, "small", 3)
    send(broker, "other", 1)
    found = scrape(broker, "/metrics/detailed?destination=queue:s*")
    small = labels(destination="small")
    assert found["sievemq_detailed_messages_enqueued_total", small] == 3
    assert found["sievemq_detailed_messages_dropped_total", small | {("reason", "drop-oldest")}] == 1
    assert found["sievemq_detailed_queue_messages", small | {("state", "ready")}] == 2
    assert not any("other" in dict(key[1]).values() for key in found)
    assert scrape(broker, "/metrics/detailed?namespace=nowhere") == {}
    everything = scrape(broker, "/metrics/detailed")
    assert ("sievemq_detailed_consumers", labels(destination="other")) in everything


def test_a_topic_shows_the_sum_of_its_subscriptions(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        topic = context.create_topic("prices")
        with context.create_consumer(topic), context.create_consumer(topic):
            context.create_producer().send(topic, "x")
            found = scrape(broker, "/metrics/detailed?destination=topic:*")
    key = labels(kind="topic", destination="prices")
    assert found["sievemq_detailed_messages_published_total", key] == 1
    assert found["sievemq_detailed_messages_enqueued_total", key] == 2
    assert found["sievemq_detailed_consumers", key] == 2


def test_queues_publish_nothing_and_messages_of_topics_are_those_of_subscriptions(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        topic = context.create_topic("prices")
        with context.create_consumer(topic):
            context.create_producer().send(topic, "x").send(context.create_queue("q"), "x")
            found = scrape(broker)
    counted = {
        kind: {name.removeprefix("sievemq_").removesuffix("_total") for name, key in found if ("kind", kind) in key}
        for kind in ("topic", "queue", "subscription")
    }
    of_topics = {"messages_published", "messages_unreadable", "selector_evaluations", "selector_matches"}
    assert counted["topic"] == {*of_topics, "destinations"}
    assert "messages_published" not in counted["queue"] | counted["subscription"]
    assert counted["queue"] == counted["subscription"] > of_topics - {"messages_published"}


@pytest.mark.parametrize(("query", "text"), [("", "narrow it"), ("?queue=a", "'queue' is no parameter")])
def test_too_many_destinations_and_unknown_parameters_are_refused(
    broker: EmbeddedBroker, query: str, text: str
) -> None:
    def fill(_: Any) -> None:
        for number in range(MAX_DETAILED + 1):
            broker.server.shard.broker.namespace("default").create(f"queue:many{number}")

    broker.call(fill)
    with pytest.raises(urllib.error.HTTPError) as caught:
        scrape(broker, f"/metrics/detailed{query}")
    assert caught.value.code == 400
    assert text in json.loads(caught.value.read())["text"]
    caught.value.close()


def test_dead_letters_are_counted_by_reason() -> None:
    rules = {"q": {"max_attempts": 1, "dead_letter_expired": True}}
    with EmbeddedBroker(http=True, settings={"destinations": rules}) as broker:
        with ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
            queue = context.create_queue("q")
            producer = context.create_producer()
            for _ in range(2):
                producer.send(queue, "fails")
            with context.create_consumer(queue) as consumer:
                for _ in range(2):
                    assert consumer.receive(60_000) is not None
                context.recover()
            for _ in range(3):
                producer.set_time_to_live(60_000).send(queue, "too old")
            producer.set_time_to_live(0).send(context.create_queue("other"), "poison")
        with StompSocket(broker.port) as client:
            client.say("SUBSCRIBE", id="1", destination="/queue/other", ack="client-individual")
            client.confirmed("NACK", id=client.frame("MESSAGE").headers["ack"], requeue="false")
        broker.clock.advance(seconds=61)
        found, single = scrape(broker), scrape(broker, "/metrics/detailed?destination=queue:q")
    assert found["sievemq_messages_dead_lettered_total", labels(reason="rejected")] == 1
    for reason, number in (("attempts", 2), ("expired", 3)):
        assert found["sievemq_messages_dead_lettered_total", labels(reason=reason)] == number
        key = labels(destination="q", reason=reason)
        assert single["sievemq_detailed_messages_dead_lettered_total", key] == number
    assert found["sievemq_messages_expired_total", labels()] == 3


def test_the_age_of_the_oldest_message() -> None:
    age = "sievemq_queue_oldest_message_age_seconds"
    with EmbeddedBroker(http=True) as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            producer = context.create_producer()
            for name, priority in (("a", 4), ("b", 4), ("a", 9)):
                producer.set_priority(priority).send(context.create_queue(name), "x")
                broker.clock.advance(seconds=1_000)
            producer.set_delivery_delay(500_000).send(context.create_queue("later"), "x")
        found = scrape(broker)
        assert 3_000 <= found[age, labels()] < 3_600
        single = scrape(broker, "/metrics/detailed")
        assert 3_000 <= single[f"{DETAILED}queue_oldest_message_age_seconds", labels(destination="a")] < 3_600
        assert 2_000 <= single[f"{DETAILED}queue_oldest_message_age_seconds", labels(destination="b")] < 2_600
        assert single[f"{DETAILED}queue_oldest_message_age_seconds", labels(destination="later")] == 0
        broker.clock.advance(seconds=600)  # now it waits, since it was due
        single = scrape(broker, "/metrics/detailed")
        assert 100 <= single[f"{DETAILED}queue_oldest_message_age_seconds", labels(destination="later")] < 700
        with ConnectionFactory(broker.url).create_context() as context:
            for name, count in (("a", 2), ("b", 1), ("later", 1)):
                with context.create_consumer(context.create_queue(name)) as consumer:
                    for _ in range(count):
                        assert consumer.receive(60_000) is not None
        assert scrape(broker)[age, labels()] == 0


def test_the_age_of_returned_messages_and_of_those_without_a_timestamp() -> None:
    with EmbeddedBroker(http=True) as broker:
        space = broker.call(lambda b: b.namespace("default"))

        def put(time: int, due: int) -> None:
            space.send("queue:q", Envelope((None, time, 4, 1, 0, due, None, None, None, None, None, 1, b"x")), NOW)

        for time, due in ((0, 0), (NOW - 5_000, 0), (NOW - 2_000, NOW - 2_000)):
            broker.call(lambda _, time=time, due=due: put(time, due))
        queue = space.queue("queue:q")
        # The first says nothing, and is the one that waits longest.
        assert broker.call(lambda _: waits_since(queue)) == 0
        with (
            ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context,
            context.create_consumer(context.create_queue("q")) as consumer,
        ):
            assert consumer.receive(60_000) is not None
            context.acknowledge()
            assert consumer.receive(60_000) is not None
            context.recover()
        assert broker.call(lambda _: waits_since(queue)) == NOW - 5_000


def test_figures_of_taps() -> None:
    with EmbeddedBroker(http=True) as broker, ConnectionFactory(broker.url).create_connection() as connection:
        open_tap(connection, "audit", Queue("q"), retain_messages=2)
        open_tap(connection, "away", Queue("q"), "drain")[0]
        send(broker, "q", 5)
        broker.clock.advance(seconds=1_000)
        found = scrape(broker)
        copies = frozenset({"namespace": "default", "mode": "copy"}.items())
        assert found["sievemq_taps", copies] == 1
        assert found["sievemq_tap_messages", copies] == 2
        assert found["sievemq_tap_bytes", copies] > 2 * 160
        assert 1_000 <= found["sievemq_tap_oldest_message_age_seconds", copies] < 1_600
        assert found["sievemq_tap_messages", frozenset({"namespace": "default", "mode": "drain"}.items())] == 0
        missed = "sievemq_tap_messages_missed_total", frozenset({("namespace", "default")})
        assert found[missed] == 3
        single = scrape(broker, "/metrics/detailed")
        assert single[f"{DETAILED}tap_messages", labels(destination="q", tap="audit")] == 2
        assert single[f"{DETAILED}tap_messages_missed_total", labels(destination="q", tap="audit")] == 3
        delete_tap(connection, "audit", Queue("q"))
        found = scrape(broker)
        assert found[missed] == 3  # a counter does not fall
        assert ("sievemq_taps", copies) not in found


def test_rules_to_join_with(broker: EmbeddedBroker) -> None:
    send(broker, "small")
    rules = labels(destination="small", at_limit="drop-oldest", max_attempts="6", dead_letters="queue:DLQ.small",
                   paused="false")  # fmt: skip
    assert scrape(broker, "/metrics/detailed")["sievemq_destination_info", rules] == 1


def test_queues_at_their_limit_and_senders_that_wait() -> None:
    rules = {"full": {"max_messages": 1, "at_limit": "block"}}
    with (
        EmbeddedBroker(http=True, settings={"destinations": rules}) as broker,
        ConnectionFactory(broker.url).create_context() as context,
    ):
        producer = context.create_producer().set_delivery_mode(1)
        for _ in range(2):
            producer.send(context.create_queue("full"), "x")
        while not broker.call(lambda domain: bool(domain.rooms.waiting)):
            pass
        broker.call(lambda domain: domain.namespace("default").queue("queue:still").pause())
        all_queues, one = scrape(broker), scrape(broker, "/metrics/detailed")
        broker.call(lambda domain: domain.namespace("default").queue("queue:full").clear())  # the sender goes on
        of = labels(namespace="default", kind="queue")
        names = ("queues_at_limit", "blocked_senders", "queues_paused")
        assert [all_queues[f"sievemq_{name}", of] for name in names] == [1, 1, 1]
        for name, value in (("full", [1, 1, 0]), ("still", [0, 0, 1])):
            found = [one[f"{DETAILED}{metric}", labels(destination=name)] for metric in names]
            assert found == value


def test_a_queue_that_drops_messages_holds_nobody_back_at_its_limit(broker: EmbeddedBroker) -> None:
    for _ in range(3):
        send(broker, "small")
    found = scrape(broker, "/metrics/detailed")
    of = labels(destination="small")
    assert (found[f"{DETAILED}queue_fill_ratio", of], found[f"{DETAILED}queues_at_limit", of]) == (1, 0)


def test_every_name_that_the_conventions_require(tmp_path: Path) -> None:
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        send(broker, "q")
        names = {name for name, _ in scrape(broker)} | {name for name, _ in scrape(broker, "/metrics/detailed")}
    messages = ("enqueued", "delivered", "acknowledged", "redelivered", "expired", "dead_lettered", "dropped")
    gauges = ("queue_messages", "queue_bytes", "queue_oldest_message_age_seconds", "consumers", "connections",
              "memory_bytes", "memory_limit_bytes", "blocked_producers", "build_info", "destination_info",
              "selector_evaluations_total", "selector_matches_total")  # fmt: skip
    histograms = ("selector_eval", "dispatch_latency", "journal_commit", "event_loop_lag")
    wanted = {f"sievemq_messages_{name}_total" for name in messages} | {f"sievemq_{name}" for name in gauges}
    wanted |= {f"sievemq_{name}_seconds_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    assert wanted <= names


def test_matching_is_timed_now_and_then() -> None:
    ticks = itertools.count()
    index: SelectorIndex[str] = SelectorIndex()
    broker = Broker()
    queue = broker.namespace("").create("queue:q")
    assert isinstance(queue, DomainQueue)
    condition = compile_selector("n > 1")
    assert condition is not None
    times = SelectorTimes(broker, clock=lambda: float(next(ticks)))
    envelope = Envelope((None, 1, 4, 1, 0, 0, None, None, None, *pack_properties({"n": 2}), 1, None))
    times.look()
    assert queue.index.watch is None  # there is nothing to be timed
    queue.index = index  # type: ignore[assignment]
    index.add(condition, "view")
    index.match(envelope)
    assert times.times.count == 0
    times.look()
    for _ in range(3):
        assert index.match(envelope) == ["view"]
        assert index.watch is None
    assert (times.times.count, times.times.sum) == (1, 1.0)
    assert (index.evaluations, index.matches) == (4, 4)


def test_destinations_take_turns_at_being_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.server.watch.selector_times.DESTINATIONS", 2)
    broker = Broker()
    condition = compile_selector("n > 1")
    assert condition is not None
    topics = [broker.namespace("").create(f"topic:t{number}") for number in range(5)]
    for topic in topics:
        topic.index.add(condition, Group())  # type: ignore[arg-type]
    times = SelectorTimes(broker)
    for prepared in (2, 4, 5):
        times.look()
        assert sum(topic.index.watch is not None for topic in topics) == prepared


def test_a_scrape_shows_how_long_selectors_take() -> None:
    with EmbeddedBroker(http=True) as broker, ConnectionFactory(broker.url).create_context() as context:
        queue = context.create_queue("q")
        producer = context.create_producer().set_property("n", 1)
        with context.create_consumer(queue, "n + 1 = 2") as consumer:
            for _ in range(2):  # with the first one it is open
                producer.send(queue, "x")
                assert consumer.receive(60_000) is not None
                broker.call(lambda _: broker.server.shard.selector_times.look())
            producer.send(queue, "x")
            assert consumer.receive(60_000) is not None
            count = scrape(broker)["sievemq_selector_eval_seconds_count", frozenset()]
    assert count >= 1


def test_turns_are_timed(broker: EmbeddedBroker) -> None:
    send(broker, "a", 40)
    found = scrape(broker)
    count = found["sievemq_dispatch_latency_seconds_count", frozenset()]
    assert count >= 5
    assert found["sievemq_dispatch_latency_seconds_bucket", frozenset({("le", "+Inf")})] == count


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.1, 0), (0.11, 1), (0.5, 1), (0.6, 2)])
def test_a_duration_falls_into_the_first_bucket_that_holds_it(seconds: float, bucket: int) -> None:
    histogram = Histogram((0.1, 0.5))
    histogram.observe(seconds)
    assert histogram.buckets[bucket] == histogram.count == 1
    assert histogram.sum == histogram.last == seconds
