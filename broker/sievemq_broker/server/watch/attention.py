"""Finds what needs an operator's attention, by the rules of findings.py: one list for console, commands, API, metrics
and the log.

A round visits each connection, consumer and queue, as a task. Nothing is counted for it on the way of a message: what
takes time is found by comparing two rounds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.domain.admission import Limited
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.watch import findings as rules
from sievemq_broker.server.watch.bursts import Burst, Growth
from sievemq_broker.server.watch.counts import queues_at
from sievemq_broker.server.watch.findings import RANKED, Finding, Rule
from sievemq_broker.server.watch.history import Rows
from sievemq_broker.server.watch.resources import Resources, read_resources
from sievemq_broker.server.watch.rounds import Round
from sievemq_broker.server.watch.slow_consumers import SlowConsumers
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.recent import Happened
from sievemq_broker.session.tally import Refusal, Tallies
from sievemq_broker.thresholds import Thresholds
from sievemq_core.message.dead_letters import PREFIX

#: Findings of a rule that are listed. The others are counted, and their objects are marked.
MOST: Final = 100

#: Units of a queue that is not empty, paused, or has had dead letters; others take one.
_WATCHED: Final = 2

#: Ms after a start in which what is found may have begun before it.
_EARLIER_MS: Final = 600_000

#: Seconds between two readings of what the process takes.
_RESOURCES_SECONDS: Final = 10

#: Connections of blocked senders, and clients, that are named.
_NAMED: Final = 3

#: A share that was above its threshold is still high above this part of it; so is a queue that was full.
_CALM: Final = 0.9

Key: TypeAlias = tuple[Rule, object]
"""A rule, and the object that it has found."""

log = logs.get("server")


@dataclass(frozen=True, slots=True)
class Whole:
    """Figures of the broker as a whole.

    Attributes:
        phase: as text, if it serves no clients; empty if it does, or ends in order.
        stuck: why nothing can be written; None while it can.
        full_disk: why PERSISTENT messages are not accepted; None while they are.
        blocked: why all producers wait; None while they do not.
        memory, connections, disk: the share of the limit that is in use; 0 without one.
        refused_sign_ins: so far.
        last_sign_in: the latest of them, in words.
        shard: what is wrong with the shard of brokers that share a store.
    """

    phase: str = ""
    stuck: str | None = None
    full_disk: str | None = None
    blocked: str | None = None
    memory: float = 0.0
    connections: float = 0.0
    disk: float = 0.0
    refused_sign_ins: int = 0
    last_sign_in: str = ""
    shard: list[str] = field(default_factory=list)


class _Watched:
    """What is remembered of a queue from one round to the next. Times are ms since 1970; 0 where it is not so.

    Attributes:
        alone: since when messages wait and no consumer is open or has been there.
        delivered: so many messages, ever.
        full: since when it is at its limit.
        growth: of what waits.
        dead, refused: its dead letters; those that its dead-letter queue has refused.
    """

    __slots__ = ("alone", "dead", "delivered", "full", "growth", "refused")

    def __init__(self, delivered: int) -> None:
        self.alone = self.full = 0
        self.delivered = delivered
        self.growth = Growth()
        self.dead = Burst(3)
        self.refused = Burst(1)

    def see(self, is_alone: bool, delivered: int, is_full: bool, now: int) -> None:
        """Note its state. A consumer may have come and gone since the last look."""
        since = self.alone if delivered == self.delivered else now
        self.alone = (since or now) if is_alone else 0
        self.delivered = delivered
        self.full = (self.full or now) if is_full else 0

    def jump(self, by: int) -> None:
        """The clock was set by so many ms."""
        self.alone += by if self.alone else 0
        self.full += by if self.full else 0
        for each in (self.growth, self.dead, self.refused):
            each.jump(by)


class _Blocked:
    """Senders that wait at one limit."""

    __slots__ = ("connections", "senders", "since", "space")

    def __init__(self, space: str, since: int) -> None:
        self.space = space
        self.since = since
        self.senders = 0
        self.connections: dict[Peer, None] = {}

    def add(self, connection: Peer, since: int) -> None:
        self.senders += 1
        self.since = min(self.since, since)
        if len(self.connections) < _NAMED:
            self.connections[connection] = None


class Attention:
    """The rules, and what they have found.

    Args:
        connections: of clients, by id.
        slow: consumers that are slow by the rule of their destination.
        tallies: what was refused to clients, and what they rolled back.
        clock: the broker's time.
        thresholds: of the rules.
        whole: reads the figures of the broker as a whole.
        resources: reads what the process takes.
        seconds: when the next round may begin is a matter of this clock.

    Attributes:
        thresholds: as above; see :meth:`use`.
        listed: what was found in the last round, by what it is about; the most important first.
        totals: how many each rule has found, those not listed included.
    """

    def __init__(
        self,
        broker: Broker,
        connections: Mapping[str, Peer],
        slow: SlowConsumers,
        tallies: Tallies,
        clock: Clock,
        thresholds: Thresholds,
        whole: Callable[[], Whole],
        resources: Callable[[], Resources] = read_resources,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._slow = slow
        self._tallies = tallies
        self._clock = clock
        self.thresholds = thresholds
        self._whole = whole
        self._read_resources = resources
        self._resources = resources()
        self._seconds = seconds
        self._next_resources = seconds() + _RESOURCES_SECONDS
        self._round = Round(broker.scheduler, self._look, seconds)
        self._queues: dict[Queue, _Watched] = {}
        #: Since when a client reads too slowly.
        self._congested: dict[Peer, int] = {}
        self._sign_ins = Burst(1)
        self._rows: Rows | None = None
        #: Since when a restart has interrupted what lasts.
        self._earlier: dict[tuple[str, ...], int] = {}
        self._earlier_until = 0
        self._found = _Found({})
        self.listed: dict[Key, Finding] = {}
        self.totals = dict.fromkeys(RANKED, 0)

    def use(self, thresholds: Thresholds) -> None:
        """Replace the thresholds from the next round on."""
        self.thresholds = thresholds

    def keep(self, rows: Rows) -> None:
        """Note in rows what begins and ends; take from them since when what is found soon has lasted, before a restart
        too."""
        self._rows = rows
        self._earlier_until = self._clock.now() + _EARLIER_MS
        for row in rows:
            about = tuple(row["about"])
            if row["began"]:
                self._earlier[about] = row["since"]
            else:
                self._earlier.pop(about, None)

    def marks(self, about: object) -> list[str]:
        """Names of the rules that have found something about a queue, topic, connection or consumer."""
        return [rule.name for rule in self._found.marks.get(about, ())]

    def look(self) -> None:
        """Begin a round, unless one is under way or was over just now."""
        self._round.look()

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by this many ms: what has lasted for some time has still lasted so long."""
        for watched in self._queues.values():
            watched.jump(by)
        self._congested = {connection: since + by for connection, since in self._congested.items()}
        self._sign_ins.jump(by)
        self.listed = {key: replace(finding, since=finding.since + by) for key, finding in self.listed.items()}
        self._earlier = {about: since + by for about, since in self._earlier.items()}
        self._earlier_until += by

    # -- a round ----------------------------------------------------------------------------------------------------

    def _look(self, now: int, budget: Budget) -> Task[int]:
        """Find everything anew. Returns the units that it took."""
        now = self._clock.now()
        found = _Found(self.listed)
        self._look_at_whole(found, now)
        self._look_at_tallies(found, now)
        units = yield from self._look_at_connections(found, now, budget)
        for space in tuple(self._broker.namespaces.values()):
            for destination in tuple(space.destinations.values()):
                topic = destination if isinstance(destination, Topic) else None
                if topic is not None:  # it may have no subscriptions
                    if budget.spent:
                        yield
                    budget.spend(1)
                    units += 1
                waiting = 0
                for queue in queues_at(destination):
                    if budget.spent:
                        yield
                    spent = self._look_at_queue(found, queue, topic, now)
                    budget.spend(spent)
                    units += spent
                    waiting += queue.depth
                if topic is not None and topic.paused:
                    found.add(rules.PAUSED, topic, now, waiting, at=topic)
        for queue in [queue for queue in self._queues if queue.deleted]:
            del self._queues[queue]
        self._take(found, now)
        return units

    def _take(self, found: _Found, now: int) -> None:
        """A round is over: its findings take the place of the last one's."""
        before, self.listed = self.listed, found.listed()
        if self._earlier and now >= self._earlier_until:
            self._end_earlier()
        self._found = found
        self.totals = {rule: found.totals.get(rule, 0) for rule in RANKED}
        for key, finding in self.listed.items():
            if key not in before:
                if finding.rule in rules.LASTING:
                    since = self._earlier.get(finding.name, finding.since)
                    self.listed[key] = finding = replace(finding, since=min(since, finding.since))
                self._note(finding, began=True)
                write = log.info if finding.rule.severity == rules.NOTICE else log.warning
                write("attention.began", **_logged(finding), text=finding.text)
        for key, finding in before.items():
            if key not in self.listed:
                self._note(finding, began=False)
                log.info("attention.ended", **_logged(finding), seconds=max(0, now - finding.since) // 1000)

    def _end_earlier(self) -> None:
        """What had lasted before the start, and was not found since, has ended."""
        assert self._rows is not None
        lasting = {finding.name for finding in self.listed.values()}
        for about, since in self._earlier.items():
            if about not in lasting:
                self._rows.add({"began": False, "about": about, "since": since})
        self._earlier.clear()

    def _note(self, finding: Finding, *, began: bool) -> None:
        if self._rows is not None and finding.rule in rules.LASTING:
            self._rows.add({"began": began, "about": finding.name, "since": finding.since})

    def _look_at_whole(self, found: _Found, now: int) -> None:
        whole, thresholds = self._whole(), self.thresholds
        reasons = (
            (rules.STORE_STUCK, whole.stuck),
            (rules.NOT_READY, whole.phase),
            (rules.PRODUCERS_BLOCKED, whole.blocked),
            (rules.DISK_FULL, whole.full_disk),
        )
        for rule, reason in reasons:
            if reason:
                found.add(rule, None, now, detail=reason)
        if not whole.blocked:
            self._look_at_share(found, rules.MEMORY_HIGH, None, whole.memory, now)
        taken = self._look_at_resources()
        files = taken.files / taken.files_limit if taken.files_limit else 0.0
        memory = taken.memory_bytes / taken.memory_limit if taken.memory_limit else 0.0
        self._look_at_share(found, rules.PROCESS_MEMORY, None, memory, now)
        self._look_at_share(found, rules.FILES_HIGH, None, files, now)
        self._look_at_share(found, rules.CONNECTIONS_HIGH, None, whole.connections, now)
        self._look_at_share(found, rules.DISK_LOW, None, whole.disk, now, thresholds.disk_percent)
        refused = self._sign_ins.see((whole.refused_sign_ins,), now, thresholds.quiet_seconds)
        if thresholds.wrong_passwords and refused[0] >= thresholds.wrong_passwords:
            since, latest = self._sign_ins.since, whole.last_sign_in
            found.add(rules.WRONG_PASSWORDS, None, now, refused[0], since=since, detail=latest)
        for text in whole.shard:
            found.add(rules.SHARD, text.partition(":")[0], now, detail=text)

    def _look_at_resources(self) -> Resources:
        """What the process takes, as of some seconds ago at most: to read it takes a millisecond."""
        if self._seconds() >= self._next_resources:
            self._next_resources = self._seconds() + _RESOURCES_SECONDS
            self._resources = self._read_resources()
        return self._resources

    def _look_at_tallies(self, found: _Found, now: int) -> None:
        """Find what was refused to clients lately, and what they roll back."""
        thresholds, since = self.thresholds, now - self.thresholds.quiet_seconds * 1000
        refused: dict[tuple[Rule, str, str, str], list[tuple[Refusal, Happened]]] = {}
        for refusal, happened in self._tallies.refusals.since(since) if thresholds.refused_sends else ():
            space = self._broker.namespaces.get(refusal.namespace)
            exists = space is not None and refusal.destination in space.destinations
            rule = rules.OPENS_REFUSED if refusal.opens else rules.SENDS_REFUSED
            key = rule, refusal.namespace, refusal.destination if exists else "", refusal.reason
            refused.setdefault(key, []).append((refusal, happened))
        for (rule, namespace, address, reason), of in refused.items():
            total = sum(happened.count for _, happened in of)
            if total < thresholds.refused_sends:
                continue
            space = self._broker.namespaces.get(namespace)
            most = max(of, key=lambda item: item[1].count)[1]
            found.add(
                rule,
                (namespace, address, reason),
                now,
                total,
                since=min(happened.first for _, happened in of),
                detail=_refused(of, not address),
                at=None if space is None else space.destinations.get(address),
                connection=self._connections.get(most.connection),
                space=namespace,
            )
        for client, happened in self._tallies.rollbacks.since(since) if thresholds.rollbacks else ():
            if happened.rate >= thresholds.rollbacks:
                connection = self._connections.get(happened.connection)
                found.add(
                    rules.ROLLBACKS,
                    client,
                    now,
                    happened.rate,
                    since=happened.first,
                    detail=client.client,
                    connection=connection,
                    space=client.namespace,
                )

    def _look_at_share(
        self, found: _Found, rule: Rule, about: Queue | None, share: float, now: int, threshold: int | None = None
    ) -> None:
        """Find a limit that is used up to a threshold, limit_percent if none is given; once found, until it is clearly
        below."""
        percent = int(100 * share)
        if threshold is None:
            threshold = self.thresholds.limit_percent
        if threshold and percent >= threshold * (_CALM if (rule, about) in self.listed else 1):
            found.add(rule, about, now, min(percent, 100), at=about)

    def _look_at_connections(self, found: _Found, now: int, budget: Budget) -> Task[int]:
        units = 0
        blocked: dict[Limited, _Blocked] = {}
        congested: dict[Peer, int] = {}
        slow_ms = self.thresholds.slow_client_seconds * 1000
        for connection in tuple(self._connections.values()):
            if budget.spent:
                yield
            spent = 1 + len(connection.sessions)
            budget.spend(spent)
            units += spent
            for sender in connection.blocked_senders:
                for place in sender.places:
                    if place not in blocked:
                        blocked[place] = _Blocked(connection.namespace.name, now)
                    blocked[place].add(connection, sender.since)
            held = 0
            for consumer in tuple(connection.deliveries.consumers.values()):
                if budget.spent:
                    yield
                budget.spend(1)
                units += 1
                if consumer.unacknowledged:
                    held += consumer.unacknowledged
                    self._look_at_consumer(found, connection, consumer, now)
            if connection.out.congested:
                since = congested[connection] = self._congested.get(connection, now)
                if slow_ms and now - since >= slow_ms:
                    found.add(rules.CLIENT_SLOW, connection, now, held, since=since, connection=connection)
        self._congested = congested
        self._look_at_blocked(found, blocked, now)
        return units

    def _look_at_consumer(self, found: _Found, connection: Peer, consumer: Consumer, now: int) -> None:
        """It holds messages: find whether it has settled none of them for too long."""
        since, slow_since = consumer.idle_since, self._slow.slow.get(consumer)
        if slow_since is None and not _lasts(since, self.thresholds.stuck_seconds, now):
            return
        queue = consumer.source
        found.add(
            rules.CONSUMER_STUCK,
            consumer,
            now,
            consumer.unacknowledged,
            since=since if slow_since is None else min(since, slow_since),
            at=queue if isinstance(queue, Queue) else None,
            connection=connection,
            consumer=consumer,
        )

    def _look_at_blocked(self, found: _Found, blocked: dict[Limited, _Blocked], now: int) -> None:
        least = self.thresholds.blocked_seconds * 1000
        for place, waiting in blocked.items():
            if place is self._broker.over or not least:
                continue  # all producers wait at the broker's own limit, which has a rule of its own
            if now - waiting.since < least and (rules.SENDERS_BLOCKED, place) not in self.listed:
                continue
            found.add(
                rules.SENDERS_BLOCKED,
                place,
                now,
                waiting.senders,
                since=waiting.since,
                detail=place.limit_text,
                at=place if isinstance(place, Queue) else None,
                connection=next(iter(waiting.connections)),
                space=waiting.space,
            )
            for connection in waiting.connections:
                found.mark(rules.SENDERS_BLOCKED, connection)

    def _look_at_queue(self, found: _Found, queue: Queue, topic: Topic | None, now: int) -> int:
        """Returns the units that it took."""
        counts, depth, paused = queue.counts, queue.depth, queue.paused
        watched = self._queues.get(queue)
        if watched is None:
            if not (depth or paused or counts.dead_lettered or counts.dead_refused):
                return 1
            watched = self._queues[queue] = _Watched(queue.delivered)
        elif not (depth or paused or counts.dead_lettered or counts.dead_refused):
            del self._queues[queue]
            return 1
        thresholds = self.thresholds
        is_exempt = queue.place.label.startswith((f"queue:{PREFIX}", "temporary-"))
        is_alone = depth > 0 and not queue.consumers and not paused and not is_exempt
        holds_back = queue.policy.holds_back
        is_full = holds_back and (queue.at_limit or ((rules.QUEUE_FULL, queue) in self.listed and queue.fill >= _CALM))
        watched.see(is_alone, queue.delivered, is_full, now)
        before = found.number
        if paused:
            if topic is None or not topic.paused:
                found.add(rules.PAUSED, queue, now, depth, at=queue)
        elif _lasts(watched.alone, thresholds.no_consumer_seconds, now):
            found.add(rules.NO_CONSUMER, queue, now, depth, since=watched.alone, at=queue)
        elif depth:
            rise = watched.growth.see(queue, now)
            if thresholds.growing_messages and queue.consumers and rise >= thresholds.growing_messages:
                found.add(
                    rules.GROWING, queue, now, rise, since=watched.growth.since, detail=watched.growth.text, at=queue
                )
        if holds_back:
            self._look_at_limit(found, queue, watched, now)
        self._look_at_dead_letters(found, queue, watched, now)
        if topic is not None and found.number > before:
            found.mark_as(topic, queue)
        return _WATCHED

    def _look_at_limit(self, found: _Found, queue: Queue, watched: _Watched, now: int) -> None:
        if (rules.SENDERS_BLOCKED, queue) in found or (rules.SENDS_REFUSED, queue) in found:
            return
        if _lasts(watched.full, self.thresholds.full_seconds, now):
            detail = queue.limit_text.partition("; ")[2]
            found.add(rules.QUEUE_FULL, queue, now, queue.depth, since=watched.full, detail=detail, at=queue)
            return
        self._look_at_share(found, rules.NEARLY_FULL, queue, queue.fill, now)

    def _look_at_dead_letters(self, found: _Found, queue: Queue, watched: _Watched, now: int) -> None:
        counts, thresholds = queue.counts, self.thresholds
        if not counts.dead_lettered and not counts.dead_refused:
            return
        expired, rejected = counts.dead_expired, counts.dead_rejected
        reasons = (counts.dead_lettered - expired - rejected, expired, rejected)
        failed, expired, rejected = watched.dead.see(reasons, now, thresholds.quiet_seconds)
        total = failed + expired + rejected
        if thresholds.dead_letters and total >= thresholds.dead_letters:
            words = ((failed, "failed too often"), (expired, "expired"), (rejected, "rejected"))
            detail = ", ".join(f"{number:,} {word}" for number, word in words if number)
            found.add(rules.DEAD_LETTERS, queue, now, total, since=watched.dead.since, detail=detail, at=queue)
        refused = watched.refused.see((counts.dead_refused,), now, thresholds.quiet_seconds)[0]
        if refused:
            found.add(rules.DEAD_LETTERS_REFUSED, queue, now, refused, since=watched.refused.since, at=queue)


class _Found:
    """What one round finds.

    Args:
        before: what the last round has listed. What is still found keeps its place, and its beginning.

    Attributes:
        number: of findings.
        totals: by rule.
        marks: rules by what they have found something about.
    """

    __slots__ = ("_before", "_listed", "_new", "marks", "number", "totals")

    def __init__(self, before: dict[Key, Finding]) -> None:
        self._before = before
        self._listed: dict[Key, Finding] = {}
        self._new: dict[Key, Finding] = {}
        self.number = 0
        self.totals: dict[Rule, int] = {}
        self.marks: dict[object, tuple[Rule, ...]] = {}

    def __contains__(self, key: Key) -> bool:
        rule, about = key
        return rule in self.marks.get(about, ())

    def add(
        self,
        rule: Rule,
        about: object,
        now: int,
        amount: int = 0,
        *,
        since: int = 0,
        detail: str = "",
        at: Queue | Topic | None = None,
        connection: Peer | None = None,
        consumer: Consumer | None = None,
        space: str | None = None,
    ) -> None:
        """Add a finding.

        Args:
            about: the object that it is about.
            since: when it began, if that is known; when it was found first, if that was earlier.
            detail, at, connection, consumer, space: see :class:`Finding`.
        """
        self.number += 1
        total = self.totals[rule] = self.totals.get(rule, 0) + 1
        for marked in (about, at, connection):
            if marked is not None:
                self.mark(rule, marked)
        key = rule, about
        known = self._before.get(key)
        if known is None and total > MOST:
            return
        if space is None and connection is not None:
            space = connection.namespace.name
        begun = min(since or now, now if known is None else known.since)
        finding = Finding(rule, begun, amount, detail, at, connection, consumer, space)
        (self._new if known is None else self._listed)[key] = finding

    def mark(self, rule: Rule, about: object) -> None:
        """The rule has found something about this."""
        marks = self.marks.get(about, ())
        if rule not in marks:
            self.marks[about] = (*marks, rule)

    def mark_as(self, topic: Topic, queue: Queue) -> None:
        """What was found about a subscription's queue is so about its topic."""
        for rule in self.marks.get(queue, ()):
            self.mark(rule, topic)

    def listed(self) -> dict[Key, Finding]:
        """The findings to list: of each rule the first MOST, those of the last round before new ones."""
        left = dict.fromkeys(RANKED, MOST)
        chosen: list[tuple[Key, Finding]] = []
        for part in (self._listed, self._new):
            for key, finding in part.items():
                if left[key[0]]:
                    left[key[0]] -= 1
                    chosen.append((key, finding))
        order = {rule: place for place, rule in enumerate(RANKED)}
        chosen.sort(key=lambda item: (order[item[0][0]], item[1].since))
        return dict(chosen)


def _refused(of: list[tuple[Refusal, Happened]], is_missing: bool) -> str:
    """What was refused, all for one reason, and to whom.

    Args:
        is_missing: at destinations that do not exist; the latest is named.
    """
    text, clients = of[0][0].reason, Counter[str]()
    places = [place for place in dict.fromkeys(refusal.destination for refusal, _ in of) if place]
    if is_missing and places:
        text += f" at {places[0]}" + _more(len(places) - 1)
    for refusal, happened in of:
        clients[refusal.client] += happened.count
    names = ", ".join(f"{client} ({count:,})" for client, count in clients.most_common(_NAMED))
    return f"{text}, to {names}{_more(len(clients) - _NAMED)}"


def _more(number: int) -> str:
    return f" and {number:,} more" if number > 0 else ""


def _lasts(since: int, seconds: int, now: int) -> bool:
    """True if something has lasted for a threshold, which is not 0."""
    return bool(since and seconds and now - since >= seconds * 1000)


def _logged(finding: Finding) -> dict[str, object]:
    """A finding for the log: its rule, and what it is about."""
    about: dict[str, object] = {name: value for name, value in finding.about.items() if value is not None}
    return {"rule": finding.rule.name} | about
