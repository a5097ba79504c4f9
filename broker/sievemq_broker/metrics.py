"""/metrics: the broker's plain counters in Prometheus' form, read at each scrape.

Nothing is counted twice on the data path for this: a collector walks what the domain holds. Aggregated per namespace
and kind, so that a hundred thousand queues make a short page; labels are of low cardinality (never a message id, a
client id, a selector).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from sievemq_broker.server.timers import Lag
from sievemq_broker.version import version

if TYPE_CHECKING:
    from sievemq_broker.server.server import Server

__all__ = ["CONTENT_TYPE", "BrokerCollector", "exposition"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

_LABELS = ("namespace", "kind")


def exposition(server: Server) -> bytes:
    """One scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(server))
    return generate_latest(registry)


@dataclass(slots=True)
class _Holdings:
    """What queues of one kind hold now."""

    queues: int = 0
    ready: int = 0
    in_flight: int = 0
    scheduled: int = 0
    bytes: int = 0
    consumers: int = 0

    def add(self, queue: Queue) -> None:
        self.queues += 1
        self.ready += queue.depth
        self.in_flight += queue.in_flight
        self.scheduled += len(queue.scheduled)
        self.bytes += queue.bytes
        self.consumers += len(queue.consumers)


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
_OF_TOPICS = frozenset({"published", "unreadable", "evaluations", "matches"})


class BrokerCollector(Collector):
    """Reads one server.

    Args:
        server: the broker.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

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
        yield self._lag()

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
        yield CounterMetricFamily("sievemq_received_bytes", "Bytes from clients.", value=links.bytes_in)
        yield CounterMetricFamily("sievemq_sent_bytes", "Bytes to clients.", value=links.bytes_out)
        everybody = services.blocked is not None
        blocked = sum(everybody or bool(connection.stalls) for connection in services.connections.values())
        memory = self._server.memory
        yield GaugeMetricFamily("sievemq_memory_bytes", "Memory that messages take, estimated.", value=memory.measure())
        yield GaugeMetricFamily("sievemq_memory_limit_bytes", "Where producers wait; 0: nowhere.", value=memory.limit)
        yield GaugeMetricFamily("sievemq_blocked_producers", "Connections whose confirms are held back.", value=blocked)

    def _queues(self) -> Iterator[Metric]:
        counts = {key: replace(ended) for key, ended in self._server.ended.counts.items()}
        holdings: defaultdict[tuple[str, str], _Holdings] = defaultdict(_Holdings)
        topics: defaultdict[str, int] = defaultdict(int)
        for name, space in self._server.broker.namespaces.items():
            for destination in space.destinations.values():
                counts.setdefault((name, kind_of(destination)), Counts()).add(destination)
                if not isinstance(destination, Topic):
                    holdings[name, "queue"].add(destination)
                    continue
                topics[name] += 1
                for subscription in destination.subscriptions:
                    counts.setdefault((name, "subscription"), Counts()).add(subscription.queue)
                    holdings[name, "subscription"].add(subscription.queue)
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
        yield from self._gauges(holdings, topics)

    def _gauges(self, holdings: dict[tuple[str, str], _Holdings], topics: dict[str, int]) -> Iterator[Metric]:
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

    def _lag(self) -> Metric:
        lag = self._server.timers.lag
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, Lag.BOUNDS), "+Inf"), lag.buckets, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            "sievemq_event_loop_lag_seconds", "How late the broker's loop was.", buckets=buckets, sum_value=lag.sum
        )
