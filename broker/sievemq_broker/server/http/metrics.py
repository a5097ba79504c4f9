"""/metrics: the broker's plain counters in the form of Prometheus or OpenMetrics, read at each scrape.

Nothing is counted twice on the data path for this: a collector walks what the domain holds. Aggregated per namespace
and kind, so that a hundred thousand queues make a short page; labels are of low cardinality (never a message id, a
client id, a selector).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase, translate
from functools import partial
from itertools import accumulate, chain, islice

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from sievemq_broker.domain.dead_letters import dead_letter_address
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.policy import DROP_NEWEST, DROP_OLDEST
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.protocols import PROTOCOLS
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.server.http.access import require
from sievemq_broker.server.http.errors import bad_request
from sievemq_broker.server.http.router import Page
from sievemq_broker.server.http.tasks import blocked_producers, open_transactions, run
from sievemq_broker.server.server import Phase, Server
from sievemq_broker.server.watch.counts import Counts, Gauges, Totals, age_of, figures_of, fill_of, kind_of
from sievemq_broker.server.watch.findings import RANKED, Rule
from sievemq_broker.server.watch.resources import read_resources
from sievemq_broker.session.rights import EVERYTHING, Verb
from sievemq_core.message.dead_letters import EXPIRED, FAILED, REJECTED
from sievemq_core.version import VERSION

_LABELS = ("namespace", "kind")

#: Kinds that hold messages.
_KINDS = ("queue", "subscription")

DETAILED = "sievemq_detailed_"
"""Begins the names of series per destination."""

MAX_DETAILED = 200
"""Destinations of one detailed scrape: some 20 series each, made in one turn."""


def metrics_routes(server: Server) -> list[Page]:
    """The routes.

    Args:
        server: the broker.
    """

    async def metrics(request: Request) -> Response:
        require(request, Verb.VIEW, EVERYTHING, EVERYTHING)
        return _text(request, await collected(server))

    async def detailed(request: Request) -> Response:
        require(request, Verb.VIEW, EVERYTHING, EVERYTHING)
        query = request.query_params
        unknown = set(query) - {"namespace", "destination"}
        if unknown:
            raise bad_request(f"{min(unknown)[:100]!r} is no parameter here; there are namespace and destination")
        namespace, pattern = query.get("namespace", "*")[:1_000], query.get("destination", "*")[:1_000]
        found, number = await run(server, partial(_chosen, server, namespace, pattern))
        if number > MAX_DETAILED:
            what = f"{number} destinations fit and one scrape shows {MAX_DETAILED}"
            raise bad_request(f"{what}; narrow it, as in ?destination=queue:orders.*")
        figures = await run(server, partial(_figures, found))
        return _text(request, DetailedCollector(figures, server.shard.broker.namespaces, server.clock.now()))

    return [Page("GET", "/metrics", metrics), Page("GET", "/metrics/detailed", detailed)]


async def collected(server: Server) -> Collector:
    """All metrics of this moment but those of single destinations."""
    if server.phase in (Phase.FOLLOWING, Phase.STARTING):
        return FollowerCollector(server)
    services = server.shard.services
    connections = list(services.connections.values())
    begun = await open_transactions(server, connections)
    everybody = services.blocked is not None
    blocked = len(connections) if everybody else await blocked_producers(server, connections)
    totals = Totals(server.shard.broker, server.shard.ended)
    await run(server, totals.add_up)
    await run(server, server.memory.add_up)
    return BrokerCollector(server, totals, begun, blocked)


def _chosen(
    server: Server, namespace: str, pattern: str, now: int, budget: Budget
) -> Task[tuple[list[Queue | Topic], int]]:
    """The destinations of a detailed scrape, MAX_DETAILED at most, and how many there would be.

    Args:
        server: the broker.
        namespace: pattern over the names of namespaces; ``*`` matches any text.
        pattern: over addresses such as ``queue:orders``.
    """
    spaces = [space for name, space in server.shard.broker.namespaces.items() if fnmatchcase(name, namespace)]
    if pattern == "*":
        every: Iterable[Queue | Topic] = chain.from_iterable(space.destinations.values() for space in spaces)
        return list(islice(every, MAX_DETAILED)), sum(len(space.destinations) for space in spaces)
    fits = re.compile(translate(pattern)).match
    found: list[Queue | Topic] = []
    for space in spaces:
        for label, of in list(space.destinations.items()):
            if budget.spent:
                yield
            budget.spend(1)
            if fits(label):
                found.append(of)
    return found[:MAX_DETAILED], len(found)


def _figures(
    destinations: list[Queue | Topic], now: int, budget: Budget
) -> Task[list[tuple[Queue | Topic, Counts, Gauges]]]:
    found: list[tuple[Queue | Topic, Counts, Gauges]] = []
    for of in destinations:
        found.append((of, *(yield from figures_of(of, now, budget))))
    return found


def _text(request: Request, collector: Collector) -> Response:
    """The metrics in the form that the scraper accepts."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    if "application/openmetrics-text" in request.headers.get("accept", ""):
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return Response(text, media_type=openmetrics.CONTENT_TYPE_LATEST)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


_COUNTERS: tuple[tuple[str, str, Callable[[Counts], int]], ...] = (
    ("messages_published", "Messages sent to topics.", lambda of: of.published),
    ("messages_enqueued", "Messages that entered a queue or subscription.", lambda of: of.enqueued),
    ("messages_delivered", "Deliveries to consumers, repeated ones included.", lambda of: of.delivered),
    ("messages_acknowledged", "Messages acknowledged.", lambda of: of.acknowledged),
    ("messages_redelivered", "Messages that came back marked as redelivered.", lambda of: of.redelivered),
    ("messages_expired", "Messages that outlived their time.", lambda of: of.expired),
    (
        "dead_letters_refused",
        "Times that a dead-letter queue was full, or could not be made.",
        lambda of: of.dead_refused,
    ),
    ("messages_refused", "Messages that a limit of their destination refused.", lambda of: of.refused),
    ("messages_removed", "Messages that an administrator removed or moved.", lambda of: of.removed),
    ("messages_unreadable", "Messages whose properties no selector could read.", lambda of: of.unreadable),
    ("selector_evaluations", "Selectors asked about arriving messages.", lambda of: of.evaluations),
    ("selector_matches", "Times that a selector said yes to an arriving message.", lambda of: of.matches),
)
_BY_REASON: tuple[tuple[str, str, dict[str, Callable[[Counts], int]]], ...] = (
    (
        "messages_dead_lettered",
        "Messages moved to a dead-letter queue.",
        {
            FAILED: lambda of: of.dead_lettered - of.dead_expired - of.dead_rejected,
            EXPIRED: lambda of: of.dead_expired,
            REJECTED: lambda of: of.dead_rejected,
        },
    ),
    (
        "messages_dropped",
        "Messages dropped at a limit with the rule drop-oldest or drop-newest.",
        {
            DROP_OLDEST: lambda of: of.dropped_oldest,
            DROP_NEWEST: lambda of: of.dropped_newest,
        },
    ),
)
#: Figures of queues other than counts of messages: name, meaning, number.
_STATES: tuple[tuple[str, str, Callable[[Gauges], float]], ...] = (
    ("queue_bytes", "Packed bytes of messages that wait.", lambda held: held.bytes),
    ("consumers", "Open consumers.", lambda held: held.consumers),
    (
        "queues_at_limit",
        "Queues and subscriptions whose limit leaves no room for a message: senders wait or are refused.",
        lambda held: held.held_back,
    ),
    ("queue_fill_ratio", "The largest share of a limit that is in use.", lambda held: held.fill),
    ("queues_paused", "Queues and subscriptions whose deliveries are stopped.", lambda held: held.paused),
    ("blocked_senders", "Sessions whose next message waits for room.", lambda held: held.blocked),
)
_AGE = "How long the message that has waited longest has waited, since it was sent or was due."
_HELD_FOR = "How long a consumer has held the message that is in flight for the longest time."
_PUBLISHED = "messages_published"
#: Common reasons are there from the start: the first refusals would be no increase of a series that begins with them.
_NOT_REFUSED = dict.fromkeys(("max_messages", "max_bytes", "max_memory_bytes", "disk", "security"), 0)
_OF_TOPICS = frozenset({_PUBLISHED, "messages_unreadable", "selector_evaluations", "selector_matches"})


def _process() -> Iterator[Metric]:
    """What the process takes, under the names that other programs use as well."""
    taken = read_resources()
    yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory.", taken.memory_bytes)
    limit = "Memory that it may have: of its container, or the machine's."
    yield GaugeMetricFamily("sievemq_process_memory_limit_bytes", limit, taken.memory_limit)
    yield GaugeMetricFamily("process_open_fds", "Open file descriptors.", taken.files)
    yield GaugeMetricFamily("process_max_fds", "The most that it may have.", taken.files_limit)
    yield CounterMetricFamily("process_cpu_seconds", "Processor time.", value=taken.cpu_seconds)


def _leases(server: Server) -> Iterator[Metric]:
    """Where brokers share a store, by shard: what this one is for it, and how the store answers."""
    shard = ["shard"]
    roles = GaugeMetricFamily("sievemq_role", "1 for what this broker is.", labels=["role", "shard"])
    left = GaugeMetricFamily(
        "sievemq_lease_seconds", "Seconds until it is silent, should the store not answer.", labels=shard
    )
    still = GaugeMetricFamily(
        "sievemq_lease_still_seconds", "Seconds for which a follower has seen no beat of the owner.", labels=shard
    )
    silences = CounterMetricFamily("sievemq_lease_silences", "How often it was silent.", labels=shard)
    lost = CounterMetricFamily(
        "sievemq_store_lost_writes", "Writes that it has seen and that the database has lost.", labels=shard
    )
    beats = HistogramMetricFamily("sievemq_lease_beat_seconds", "What a beat took.", labels=shard)
    for name, keeper in server.keepers.items():
        for role in keeper.roles:
            roles.add_metric([role, name], keeper.role == role)
        left.add_metric([name], keeper.time_left)
        still.add_metric([name], keeper.still)
        silences.add_metric([name], keeper.silences)
        lost.add_metric([name], keeper.lost_writes)
        beats.add_metric([name], *_buckets(keeper.latency))
    if server.keepers:
        yield from (roles, left, still, silences, lost, beats)
        offset = max((keeper.offset for keeper in server.keepers.values()), key=abs)
        meaning = "Seconds by which the clock is ahead of the database's."
        yield GaugeMetricFamily("sievemq_clock_offset_seconds", meaning, offset)
    built = GaugeMetricFamily(
        "sievemq_follower_messages", "Messages that this follower has built for a takeover.", labels=shard
    )
    size = GaugeMetricFamily(
        "sievemq_follower_bytes", "Bytes that they take, counted as an owner's messages are.", labels=shard
    )
    followed = {} if server.candidates is None else server.candidates.followed
    for name, candidate in followed.items():
        if candidate.following is not None:
            built.add_metric([name], candidate.following.follower.messages)
            size.add_metric([name], candidate.following.follower.bytes)
    if followed:
        yield from (built, size)


def _redirects(server: Server) -> Iterator[Metric]:
    """What was sent to another broker, where brokers share a store."""
    if not server.is_shared and server.placement is None:
        return
    meaning = "Clients and requests that were sent to the broker that has their namespace."
    redirects = CounterMetricFamily("sievemq_redirects", meaning, labels=["protocol"])
    for protocol, number in {**dict.fromkeys((*PROTOCOLS, "web", "http"), 0), **server.shard.redirects}.items():
        redirects.add_metric([protocol], number)
    yield redirects


def _attention(totals: Mapping[Rule, int]) -> Metric:
    found = "What needs an operator's attention, see /api/v1/attention."
    attention = GaugeMetricFamily("sievemq_attention", found, labels=["rule", "severity"])
    for rule in RANKED:
        attention.add_metric([rule.name, rule.severity], totals.get(rule, 0))
    return attention


class FollowerCollector(Collector):
    """Reads a server that serves no clients yet.

    Args:
        server: the one.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        yield InfoMetricFamily("sievemq_build", "The broker.", value={"version": VERSION})
        yield _attention(Counter(finding.rule for finding in self._server.findings.values()))
        yield from _leases(self._server)
        yield from _redirects(self._server)
        yield from _process()


class BrokerCollector(Collector):
    """Reads one server.

    Args:
        totals: of its queues and topics, complete.
        begun: transactions with sends that are open.
        blocked: connections that wait to send.
    """

    def __init__(self, server: Server, totals: Totals, begun: int, blocked: int) -> None:
        self._server = server
        self._totals = totals
        self._begun = begun
        self._blocked = blocked

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        server = self._server
        yield InfoMetricFamily(
            "sievemq_build",
            "The broker.",
            value={"version": VERSION, "incarnation": server.shard.services.settings.incarnation},
        )
        yield GaugeMetricFamily(
            "sievemq_uptime_seconds", "Seconds since the broker became ready.", value=time.time() - server.started_at
        )
        yield _attention(server.attention.totals)
        yield from self._connections()
        yield from self._queues()
        yield from self._histograms()
        yield from _leases(server)
        yield from _redirects(server)
        yield from _process()

    def _connections(self) -> Iterator[Metric]:
        links, services = self._server.links, self._server.shard.services
        yield GaugeMetricFamily("sievemq_connections", "Open connections.", value=len(links.open))
        clients = GaugeMetricFamily("sievemq_clients", "Connections past their handshake.", labels=["protocol"])
        speaking = Counter(connection.out.protocol for connection in services.connections.values())
        for protocol in dict.fromkeys((*PROTOCOLS, *speaking)):
            clients.add_metric([protocol], speaking[protocol])
        yield clients
        yield GaugeMetricFamily("sievemq_connections_limit", "Connections allowed at a time.", value=links.limit)
        yield CounterMetricFamily("sievemq_connections_opened", "Connections accepted.", value=links.accepted)
        yield CounterMetricFamily("sievemq_connections_refused", "Connections beyond the limit.", value=links.refused)
        sign_ins = CounterMetricFamily(
            "sievemq_sign_ins", "Credentials that were checked, or not.", labels=["protocol", "port", "outcome"]
        )
        for (protocol, port, outcome), number in self._server.authenticator.sign_ins.counts.items():
            sign_ins.add_metric([protocol, str(port), outcome], number)
        yield sign_ins
        congested = sum(connection.out.congested for connection in services.connections.values())
        yield GaugeMetricFamily("sievemq_connections_congested", "Connections that read too slowly.", value=congested)
        slow = len(self._server.shard.slow_consumers.slow)
        yield GaugeMetricFamily("sievemq_slow_consumers", "Consumers that hold messages and do nothing.", value=slow)
        yield CounterMetricFamily("sievemq_received_bytes", "Bytes from clients.", value=links.bytes_in)
        yield CounterMetricFamily("sievemq_sent_bytes", "Bytes to clients.", value=links.bytes_out)
        replies = "Messages of STOMP clients to temporary destinations that were gone."
        yield CounterMetricFamily("sievemq_replies_dropped", replies, value=services.replies_dropped)
        yield from self._tallies()
        memory = self._server.memory
        yield GaugeMetricFamily(
            "sievemq_memory_bytes",
            "Memory of messages and unfinished frames, estimated.",
            value=memory.bytes,
        )
        yield GaugeMetricFamily("sievemq_memory_limit_bytes", "Where producers wait; 0: nowhere.", value=memory.limit)
        yield GaugeMetricFamily("sievemq_blocked_producers", "Connections that wait to send.", value=self._blocked)
        yield from self._storage()

    def _tallies(self) -> Iterator[Metric]:
        tallies = self._server.shard.services.tallies
        what = "Messages of refused sends and commits, by limit or error."
        refused = CounterMetricFamily("sievemq_refused", what, labels=["reason"])
        for reason, number in {**_NOT_REFUSED, **tallies.reasons}.items():
            refused.add_metric([reason], number)
        yield refused
        opens = CounterMetricFamily(
            "sievemq_opens_refused", "Consumers, browsers and others that were not opened.", labels=["reason"]
        )
        for reason, number in {"security": 0, **tallies.opens}.items():
            opens.add_metric([reason], number)
        yield opens
        total = tallies.total
        ended = CounterMetricFamily(
            "sievemq_transactions", "Transactions with a message that ended.", labels=["outcome"]
        )
        ended.add_metric(["committed"], total.committed)
        ended.add_metric(["rolled_back"], total.rolled_back - total.refused_commits)
        ended.add_metric(["refused"], total.refused_commits)
        yield ended
        yield GaugeMetricFamily("sievemq_transactions_open", "Transactions with sends.", value=self._begun)

    def _storage(self) -> Iterator[Metric]:
        commits = self._server.shard.commits
        if commits is None:
            return
        store = commits.store
        for name, meaning, value in (
            ("store_bytes", "Size of the stored messages and their log.", store.size()),
            ("store_total_bytes", "Size of the disk of the data directory; 0 if that is not known.", store.total),
            ("store_reserve_bytes", "What is kept on it for when it is full.", store.reserve),
            ("store_free_bytes", "Free bytes on the disk of the data directory.", store.free),
            ("store_room_bytes", "The largest PERSISTENT message or transaction that is accepted now.", store.room),
            ("store_full", "1 while PERSISTENT messages are refused or wait.", commits.full is not None),
            ("store_stuck", "1 while nothing can be written, confirmed or delivered.", commits.stuck is not None),
        ):
            yield GaugeMetricFamily(f"sievemq_{name}", meaning, value=value)
        refused = "Messages and transactions that were too large for the room on the disk."
        yield CounterMetricFamily("sievemq_store_refused", refused, value=commits.refused)

    def _queues(self) -> Iterator[Metric]:
        totals = self._totals
        now = self._server.clock.now()
        yield from _series("sievemq_", _LABELS, totals.counts.items(), totals.holdings.items(), now, _is_counted)
        destinations = GaugeMetricFamily("sievemq_destinations", "Queues, subscriptions, topics.", labels=_LABELS)
        for labels, held in totals.holdings.items():
            destinations.add_metric(labels, held.queues)
        for name, number in totals.topics.items():
            destinations.add_metric((name, "topic"), number)
        yield destinations
        fill = GaugeMetricFamily(
            "sievemq_namespace_fill_ratio", "The share of a namespace's limit that is in use.", labels=["namespace"]
        )
        for name, space in self._server.shard.broker.namespaces.items():
            if space.policy is not None:
                found = [of for kind in _KINDS if (of := totals.holdings.get((name, kind))) is not None]
                fill.add_metric([name], fill_of(space.policy, found))
        yield fill
        yield from self._taps()

    def _taps(self) -> Iterator[Metric]:
        labels, now = ("namespace", "mode"), self._server.clock.now()
        number = GaugeMetricFamily("sievemq_taps", "Taps.", labels=labels)
        lag = GaugeMetricFamily("sievemq_tap_messages", "Messages whose readers are not done with them.", labels=labels)
        size = GaugeMetricFamily("sievemq_tap_bytes", "What taps hold.", labels=labels)
        age = GaugeMetricFamily(
            "sievemq_tap_oldest_message_age_seconds", "How far the reader that is furthest behind is.", labels=labels
        )
        for key, held in self._totals.taps.items():
            number.add_metric(key, held.taps)
            lag.add_metric(key, held.messages)
            size.add_metric(key, held.bytes)
            age.add_metric(key, age_of(held.since, now) / 1000)
        missed = CounterMetricFamily(
            "sievemq_tap_messages_missed", "Messages that went before their reader was done.", labels=("namespace",)
        )
        for name, messages in self._totals.missed.items():
            missed.add_metric((name,), messages)
        yield from (number, lag, size, age, missed)

    def _histograms(self) -> Iterator[Metric]:
        server = self._server
        lag = "How late the broker's loop was."
        yield _histogram("sievemq_event_loop_lag_seconds", lag, server.ticks.lag)
        selectors = (
            "What it took to find all selectors that match a message; some messages of each destination are timed."
        )
        yield _histogram("sievemq_selector_eval_seconds", selectors, server.shard.selector_times.times)
        latency = "From the first read of a turn of the loop to its last write."
        yield _histogram("sievemq_dispatch_latency_seconds", latency, server.turn.latency)
        if server.shard.commits is not None:
            commit = "What a write to the data directory took, its sync included."
            yield _histogram("sievemq_journal_commit_seconds", commit, server.shard.commits.latency)


def _is_counted(labels: tuple[str, ...], metric: str) -> bool:
    """True if destinations of this kind count that; the messages of a topic are those of its subscriptions."""
    return metric in _OF_TOPICS if labels[1] == "topic" else metric != _PUBLISHED


def _series(
    prefix: str,
    labels: tuple[str, ...],
    counts: Collection[tuple[tuple[str, ...], Counts]],
    holdings: Collection[tuple[tuple[str, ...], Gauges]],
    now: int,
    is_counted: Callable[[tuple[str, ...], str], bool],
) -> Iterator[Metric]:
    """The series of destinations, added up or single.

    Args:
        prefix: of their names.
        labels: names of the labels.
        counts, holdings: what was counted and is held, by the values of the labels.
        now: the broker's time, ms since 1970.
        is_counted: whether there is a series of a metric with these labels.
    """
    for metric, meaning, number in _COUNTERS:
        counter = CounterMetricFamily(f"{prefix}{metric}", meaning, labels=labels)
        for key, of in counts:
            if is_counted(key, metric):
                counter.add_metric(key, number(of))
        yield counter
    for metric, meaning, reasons in _BY_REASON:
        counter = CounterMetricFamily(f"{prefix}{metric}", meaning, labels=(*labels, "reason"))
        for key, of in counts:
            if is_counted(key, metric):
                for reason, number in reasons.items():
                    counter.add_metric((*key, reason), number(of))
        yield counter
    messages = GaugeMetricFamily(
        f"{prefix}queue_messages", "Messages held, by what they wait for.", labels=(*labels, "state")
    )
    for key, held in holdings:
        messages.add_metric((*key, "ready"), held.ready)
        messages.add_metric((*key, "inflight"), held.in_flight)
        messages.add_metric((*key, "scheduled"), held.scheduled)
    yield messages
    age = GaugeMetricFamily(f"{prefix}queue_oldest_message_age_seconds", _AGE, labels=labels)
    for key, held in holdings:
        age.add_metric(key, age_of(held.since, now) / 1000)
    yield age
    held_for = GaugeMetricFamily(f"{prefix}queue_oldest_in_flight_age_seconds", _HELD_FOR, labels=labels)
    for key, held in holdings:
        held_for.add_metric(key, age_of(held.held_since, now) / 1000)
    yield held_for
    for name, meaning, state in _STATES:
        gauge = GaugeMetricFamily(f"{prefix}{name}", meaning, labels=labels)
        for key, held in holdings:
            gauge.add_metric(key, state(held))
        yield gauge


def _histogram(name: str, meaning: str, histogram: Histogram) -> Metric:
    buckets, total = _buckets(histogram)
    return HistogramMetricFamily(name, meaning, buckets=buckets, sum_value=total)


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """What was observed up to each bound, and the sum."""
    bounds = (*map(str, histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.buckets), strict=True)), histogram.sum


class DetailedCollector(Collector):
    """Series per destination; those of subscriptions are added up per topic. The names differ from those of the sums,
    so that a query does not add up both.

    Args:
        figures: destinations, what they have counted and what they hold.
        now: the broker's time, ms since 1970.
    """

    def __init__(
        self, figures: list[tuple[Queue | Topic, Counts, Gauges]], namespaces: Mapping[str, Namespace], now: int
    ) -> None:
        self._figures = figures
        self._destinations = [of for of, _, _ in figures]
        self._namespaces = namespaces
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """The metrics of these destinations."""
        labels = ("namespace", "kind", "destination")
        counts = [(_labels_of(of), counts) for of, counts, _ in self._figures]
        holdings = [(_labels_of(of), held) for of, _, held in self._figures]
        yield from _series(DETAILED, labels, counts, holdings, self._now, lambda *_: True)
        yield from self._taps(labels)
        yield from self._rules(labels)

    def _taps(self, labels: tuple[str, ...]) -> Iterator[Metric]:
        with_tap = (*labels, "tap")
        lag = GaugeMetricFamily(
            f"{DETAILED}tap_messages", "Messages whose reader is not done with them.", labels=with_tap
        )
        age = GaugeMetricFamily(f"{DETAILED}tap_oldest_message_age_seconds", "How far it is behind.", labels=with_tap)
        missed = CounterMetricFamily(
            f"{DETAILED}tap_messages_missed", "Messages that went before its reader was done.", labels=with_tap
        )
        chosen = set(self._destinations)
        names = dict.fromkeys(of.place.namespace for of in self._destinations)
        for space in [space for name in names if (space := self._namespaces.get(name)) is not None]:
            for tap in space.taps:
                if tap.destination in chosen:
                    key = (*_labels_of(tap.destination), tap.name)
                    lag.add_metric(key, tap.lag)
                    age.add_metric(key, age_of(tap.log.oldest or 0, self._now) / 1000)
                    missed.add_metric(key, tap.missed)
        yield from (lag, age, missed)

    def _rules(self, labels: tuple[str, ...]) -> Iterator[Metric]:
        rules = InfoMetricFamily("sievemq_destination", "Rules of a destination, to join with.", labels=labels)
        for of in self._destinations:
            policy = of.policy
            rules.add_metric(
                _labels_of(of),
                {
                    "at_limit": policy.at_limit,
                    "max_attempts": str(policy.max_attempts),
                    "dead_letters": dead_letter_address(of.label) or "",
                    "paused": str(of.paused).lower(),
                },
            )
        yield rules


def _labels_of(of: Queue | Topic) -> tuple[str, str, str]:
    return of.place.namespace, kind_of(of), of.label.partition(":")[2]
