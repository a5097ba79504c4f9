"""Scrapes: sums that come in slices and do not fall, series of single destinations, histograms."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.metrics import MAX_DETAILED
from sievemq_broker.server import totals
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.server.totals import Totals

QUEUES = 20_000


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


def test_twenty_thousand_queues_come_in_slices(broker: EmbeddedBroker) -> None:
    def fill(_: Any) -> None:
        space = broker.server.broker.namespace("default")
        for number in range(QUEUES):
            space.create(f"queue:q{number}")

    broker.call(fill)
    sums = broker.call(lambda _: Totals(broker.server))
    slices: list[int] = []
    for _ in sums.steps():
        slices.append(sums.holdings["default", "queue"].queues - sum(slices))
    slices.append(sums.holdings["default", "queue"].queues - sum(slices))
    assert max(slices) <= totals.SLICE
    assert sum(slices) == QUEUES
    assert scrape(broker)["sievemq_destinations", labels()] == QUEUES


def test_what_is_deleted_during_a_scrape_is_counted_once(broker: EmbeddedBroker) -> None:
    send(broker, "a", 3)
    space = broker.server.broker.namespace("default")

    def look(_: Any) -> int:
        sums = Totals(broker.server)
        space.delete("queue:a")
        for _ in sums.steps():
            pass
        return sums.counts["default", "queue"].enqueued

    assert broker.call(look) == 3
    assert scrape(broker)["sievemq_messages_enqueued_total", labels()] == 3


def test_what_is_dropped_is_counted_by_reason(broker: EmbeddedBroker) -> None:
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
    assert found["sievemq_detailed_messages_dropped_oldest_total", small] == 1
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


@pytest.mark.parametrize(("query", "text"), [("", "narrow it"), ("?queue=a", "'queue' is no parameter")])
def test_too_many_destinations_and_unknown_parameters_are_refused(
    broker: EmbeddedBroker, query: str, text: str
) -> None:
    def fill(_: Any) -> None:
        for number in range(MAX_DETAILED + 1):
            broker.server.broker.namespace("default").create(f"queue:many{number}")

    broker.call(fill)
    with pytest.raises(urllib.error.HTTPError) as caught:
        scrape(broker, f"/metrics/detailed{query}")
    assert caught.value.code == 400
    assert text in json.loads(caught.value.read())["text"]
    caught.value.close()


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
