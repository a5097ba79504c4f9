"""/metrics: the broker's plain counters in Prometheus' form, read at each scrape.

Nothing is counted twice on the data path for this: a collector walks what the domain holds. Aggregated per namespace
and kind, so that a hundred thousand queues make a short page; labels are of low cardinality (never a message id, a
client id, a selector).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase, translate
from itertools import chain, islice
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sievemq_broker.domain.policy import DROP_NEWEST, DROP_OLDEST
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.counts import Counts, kind_of
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.server.totals import Holdings, Totals
from sievemq_broker.version import version

if TYPE_CHECKING:
    from sievemq_broker.server.server import Server

__all__ = ["CONTENT_TYPE", "MAX_DETAILED", "BrokerCollector", "DetailedCollector", "chosen", "detailed", "exposition"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

_LABELS = ("namespace", "kind")

DETAILED = "sievemq_detailed_"
"""Begins the names of series per destination."""

MAX_DETAILED = 200
"""Destinations of one detailed scrape: some 20 series each, made in one turn."""


async def exposition(server: Server) -> bytes:
    """One scrape. What it adds up over all queues comes in slices, one a turn."""
    totals = Totals(server)
    for _ in totals.steps():
        await asyncio.sleep(0)
    return _text(BrokerCollector(server, totals))


def chosen(server: Server, namespace: str, pattern: str) -> tuple[list[Queue | Topic], int]:
    """Destinations for :func:`detailed`, MAX_DETAILED at most, and how many there would be.

    Args:
        server: the broker.
        namespace: pattern over the names of namespaces; ``*`` stands for any text.
        pattern: over addresses such as ``queue:orders``.
    """
    spaces = [space for name, space in server.broker.namespaces.items() if fnmatchcase(name, namespace)]
    if pattern == "*":
        every: Iterable[Queue | Topic] = chain.from_iterable(space.destinations.values() for space in spaces)
        return list(islice(every, MAX_DETAILED)), sum(len(space.destinations) for space in spaces)
    fits = re.compile(translate(pattern)).match
    found = [of for space in spaces for label, of in space.destinations.items() if fits(label)]
    return found[:MAX_DETAILED], len(found)


def detailed(destinations: list[Queue | Topic]) -> bytes:
    """A scrape of single destinations."""
    return _text(DetailedCollector(destinations))


def _text(collector: Collector) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


_COUNTERS = (
    ("sievemq_messages_published", "Messages sent to topics.", "published"),
    ("sievemq_messages_enqueued", "Messages that entered a queue or subscription.", "enqueued"),
    ("sievemq_messages_delivered", "Deliveries to consumers, repeated ones included.", "delivered"),
    ("sievemq_messages_acknowledged", "Messages acknowledged.", "acknowledged"),
    ("sievemq_messages_redelivered", "Messages that came back marked as redelivered.", "redelivered"),
    ("sievemq_messages_expired", "Messages that outlived their time.", "expired"),
    ("sievemq_messages_dead_lettered", "Messages moved to a dead-letter queue.", "dead_lettered"),
    ("sievemq_messages_removed", "Messages that an administrator removed or moved.", "removed"),
    ("sievemq_messages_unreadable", "Messages whose properties no selector could read.", "unreadable"),
    ("sievemq_selector_evaluations", "Selectors asked about arriving messages.", "evaluations"),
    ("sievemq_selector_matches", "Times that a selector said yes to an arriving message.", "matches"),
)
_DROPPED = (
    ("sievemq_messages_dropped_oldest", "Messages that made room for others at a limit.", "dropped_oldest"),
    ("sievemq_messages_dropped_newest", "Messages for which there was no room.", "dropped_newest"),
)
_OF_TOPICS = frozenset({"published", "unreadable", "evaluations", "matches"})


class BrokerCollector(Collector):
    """Reads one server.

    Args:
        server: the broker.
        totals: of its queues and topics, complete.
    """

    def __init__(self, server: Server, totals: Totals) -> None:
        self._server = server
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        server = self._server
        yield InfoMetricFamily(
            "sievemq_build",
            "The broker.",
            value={"version": version(), "incarnation": server.services.settings.incarnation},
        )
        yield GaugeMetricFamily(
            "sievemq_uptime_seconds", "Seconds since the broker became ready.", value=time.time() - server.started_at
        )
        yield from self._connections()
        yield from self._queues()
        yield from self._histograms()

    def _connections(self) -> Iterator[Metric]:
        links, services = self._server.links, self._server.services
        yield GaugeMetricFamily("sievemq_connections", "Open connections.", value=len(links.open))
        yield GaugeMetricFamily("sievemq_connections_limit", "Connections allowed at a time.", value=links.limit)
        yield CounterMetricFamily("sievemq_connections_opened", "Connections accepted.", value=links.accepted)
        yield CounterMetricFamily("sievemq_connections_refused", "Connections beyond the limit.", value=links.refused)
        refused = CounterMetricFamily(
            "sievemq_sign_ins_refused", "Credentials not accepted, by reason.", labels=["reason"]
        )
        authenticator = self._server.authenticator
        refused.add_metric(["wrong"], authenticator.failed)
        refused.add_metric(["throttled"], authenticator.throttled)
        yield refused
        congested = sum(connection.outbox.paused for connection in services.connections.values())
        yield GaugeMetricFamily("sievemq_connections_congested", "Connections that read too slowly.", value=congested)
        slow = len(self._server.slow_consumers.slow)
        yield GaugeMetricFamily("sievemq_slow_consumers", "Consumers that hold messages and do nothing.", value=slow)
        yield CounterMetricFamily("sievemq_received_bytes", "Bytes from clients.", value=links.bytes_in)
        yield CounterMetricFamily("sievemq_sent_bytes", "Bytes to clients.", value=links.bytes_out)
        everybody = services.blocked is not None
        blocked = sum(everybody or bool(connection.stalls) for connection in services.connections.values())
        memory = self._server.memory
        yield GaugeMetricFamily("sievemq_memory_bytes", "Memory that messages take, estimated.", value=memory.measure())
        yield GaugeMetricFamily("sievemq_memory_limit_bytes", "Where producers wait; 0: nowhere.", value=memory.limit)
        yield GaugeMetricFamily("sievemq_blocked_producers", "Connections whose confirms are held back.", value=blocked)

    def _queues(self) -> Iterator[Metric]:
        counts = self._totals.counts
        for metric, meaning, attribute in _COUNTERS:
            counter = CounterMetricFamily(metric, meaning, labels=_LABELS)
            for labels, of in counts.items():
                if attribute in _OF_TOPICS if labels[1] == "topic" else attribute != "published":
                    counter.add_metric(labels, getattr(of, attribute))
            yield counter
        dropped = CounterMetricFamily(
            "sievemq_messages_dropped", "Messages dropped at a limit whose rule says so.", labels=(*_LABELS, "reason")
        )
        for labels, of in counts.items():
            if labels[1] != "topic":
                dropped.add_metric((*labels, DROP_OLDEST), of.dropped_oldest)
                dropped.add_metric((*labels, DROP_NEWEST), of.dropped_newest)
        yield dropped
        yield from self._gauges(self._totals.holdings, self._totals.topics)

    def _gauges(self, holdings: dict[tuple[str, str], Holdings], topics: dict[str, int]) -> Iterator[Metric]:
        messages = GaugeMetricFamily(
            "sievemq_queue_messages", "Messages held, by what they wait for.", labels=(*_LABELS, "state")
        )
        size = GaugeMetricFamily("sievemq_queue_bytes", "Packed bytes of messages that wait.", labels=_LABELS)
        consumers = GaugeMetricFamily("sievemq_consumers", "Open consumers.", labels=_LABELS)
        destinations = GaugeMetricFamily("sievemq_destinations", "Queues, subscriptions, topics.", labels=_LABELS)
        for labels, held in holdings.items():
            messages.add_metric((*labels, "ready"), held.ready)
            messages.add_metric((*labels, "inflight"), held.in_flight)
            messages.add_metric((*labels, "scheduled"), held.scheduled)
            size.add_metric(labels, held.bytes)
            consumers.add_metric(labels, held.consumers)
            destinations.add_metric(labels, held.queues)
        for name, number in topics.items():
            destinations.add_metric((name, "topic"), number)
        yield from (messages, size, consumers, destinations)

    def _histograms(self) -> Iterator[Metric]:
        server = self._server
        lag = "How late the broker's loop was."
        yield _histogram("sievemq_event_loop_lag_seconds", lag, server.timers.lag)
        latency = "From the first read of a turn of the loop to its last write; one turn in eight is timed."
        yield _histogram("sievemq_dispatch_latency_seconds", latency, server.turn.latency)
        if server.turn.commits is not None:
            commit = "What a write to the data directory took, its sync included."
            yield _histogram("sievemq_journal_commit_seconds", commit, server.turn.commits.latency)


def _histogram(name: str, meaning: str, histogram: Histogram) -> Metric:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.buckets, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(name, meaning, buckets=buckets, sum_value=histogram.sum)


class DetailedCollector(Collector):
    """Series per destination; those of subscriptions are added up per topic. Not with the names of the sums, so that
    nobody adds up both.

    Args:
        destinations: which.
    """

    def __init__(self, destinations: list[Queue | Topic]) -> None:
        self._destinations = destinations

    def collect(self) -> Iterator[Metric]:
        """The metrics of these destinations."""
        labels = ("namespace", "kind", "destination")
        rows = [
            ((of.namespace.name, kind_of(of), of.label.partition(":")[2]), *_figures(of)) for of in self._destinations
        ]
        for metric, meaning, attribute in (*_COUNTERS, *_DROPPED):
            counter = CounterMetricFamily(metric.replace("sievemq_", DETAILED, 1), meaning, labels=labels)
            for key, counts, _ in rows:
                counter.add_metric(key, getattr(counts, attribute))
            yield counter
        messages = GaugeMetricFamily(
            f"{DETAILED}queue_messages", "Messages held, by what they wait for.", labels=(*labels, "state")
        )
        size = GaugeMetricFamily(f"{DETAILED}queue_bytes", "Packed bytes of messages that wait.", labels=labels)
        consumers = GaugeMetricFamily(f"{DETAILED}consumers", "Open consumers.", labels=labels)
        for key, _, held in rows:
            messages.add_metric((*key, "ready"), held.ready)
            messages.add_metric((*key, "inflight"), held.in_flight)
            messages.add_metric((*key, "scheduled"), held.scheduled)
            size.add_metric(key, held.bytes)
            consumers.add_metric(key, held.consumers)
        yield from (messages, size, consumers)


def _figures(of: Queue | Topic) -> tuple[Counts, Holdings]:
    counts, held = Counts(), Holdings()
    counts.add(of)
    for queue in [subscription.queue for subscription in of.subscriptions] if isinstance(of, Topic) else [of]:
        held.add(queue)
        if queue is not of:
            counts.add(queue)
    return counts, held
