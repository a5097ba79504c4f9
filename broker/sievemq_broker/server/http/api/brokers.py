"""The broker as a whole."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sievemq_broker.domain.admission import Limited
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.tasks import SESSIONS, each, open_transactions, run
from sievemq_broker.server.server import Server
from sievemq_broker.server.watch.counts import Counts, Holdings, add_figures
from sievemq_broker.server.watch.resources import read_resources
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Verb
from sievemq_core.version import VERSION

routes = Routes("Broker")

#: Limits at which senders wait that are shown, and connections of each.
_BLOCKED_PLACES, _BLOCKED_CONNECTIONS = 20, 10


@routes.add("GET", "/broker", None, answers.BrokerInfo)
async def get_broker(call: Call[Any, Any]) -> answers.BrokerInfo:
    """The broker and its totals.

    Totals cover the destinations that the caller may view; memory is for users who may view everything."""
    server = call.server
    identity = call.identity
    everything = identity.may(Verb.VIEW, "*", "*")
    spaces = [space for space in server.shard.broker.namespaces.values() if identity.rights.enters(space.name)]
    viewed = await run(server, partial(_view_with_ended if everything else view, call, spaces))
    held, in_rate, out_rate = viewed.held, viewed.in_rate, viewed.out_rate
    if everything:
        latest = call.management.sampler.latest
        in_rate, out_rate = latest.in_rate, latest.out_rate
    connections, waiting = await run(server, partial(_connections, call))
    blocked_at = await _blocked_at(server, waiting)
    if everything:
        await run(server, server.memory.add_up)
    return answers.BrokerInfo(
        version=VERSION,
        incarnation=server.shard.services.settings.incarnation,
        phase=server.phase.value,
        role=server.role,
        shard=server.shard.name if server.is_shared else None,
        url=server.url,
        http_url=call.management.url,
        durable=server.shard.services.settings.durable,
        now=call.now,
        uptime_seconds=round(time.time() - server.started_at, 3) if server.started_at else 0.0,
        clock_offset_ms=server.clock.offset,
        blocked=server.shard.services.blocked,
        blocked_connections=len(waiting),
        blocked_since=min((place.since for place in blocked_at), default=None),
        blocked_at=blocked_at[:_BLOCKED_PLACES],
        memory=answers.Memory(bytes=server.memory.bytes, limit=server.memory.limit) if everything else None,
        storage=_storage(server) if everything else None,
        process=_process() if everything else None,
        namespaces=len(spaces),
        destinations=viewed.destinations,
        connections=len(connections),
        connections_limit=server.links.limit,
        consumers=held.consumers,
        slow_consumers=len(server.shard.slow_consumers.slow) if everything else None,
        messages=answers.Holdings(
            ready=held.ready, in_flight=held.in_flight, scheduled=held.scheduled, bytes=held.bytes
        ),
        totals=counters_of(viewed.counts),
        rates=answers.Rates(in_rate=round(in_rate, 1), out_rate=round(out_rate, 1)),
        refused=server.shard.services.tallies.total.refused if everything else None,
        transactions=await _transactions(server, connections) if everything else None,
        user=identity.user,
    )


async def _transactions(server: Server, connections: list[Peer]) -> answers.Transactions:
    total = server.shard.services.tallies.total
    return answers.Transactions(
        open=await open_transactions(server, connections),
        committed=total.committed,
        rolled_back=total.rolled_back - total.refused_commits,
        refused=total.refused_commits,
    )


def _process() -> answers.Process:
    taken = read_resources()
    return answers.Process(
        memory_bytes=taken.memory_bytes,
        memory_limit=taken.memory_limit,
        files=taken.files,
        files_limit=taken.files_limit,
        cpu_seconds=round(taken.cpu_seconds, 3),
    )


def _storage(server: Server) -> answers.Storage | None:
    commits = server.shard.commits
    if commits is None:
        return None
    return answers.Storage(
        bytes=commits.store.size(),
        free_bytes=commits.store.free,
        total_bytes=commits.store.total,
        reserve_bytes=commits.store.reserve,
        refused=commits.refused,
        room_bytes=commits.store.room,
        full=commits.full,
        stuck=commits.stuck,
    )


def _connections(call: Call[Any, Any], now: int, budget: Budget) -> Task[tuple[list[Peer], list[Peer]]]:
    """The connections that the caller may view, and those whose sends are blocked."""
    viewed: list[Peer] = []
    blocked: list[Peer] = []
    for connection in list(call.server.shard.services.connections.values()):
        if budget.spent:
            yield
        budget.spend(1 + len(connection.sessions) // SESSIONS)
        if call.identity.may(Verb.VIEW, connection.namespace.name, "*"):
            viewed.append(connection)
            if connection.blocked_senders:
                blocked.append(connection)
    return viewed, blocked


async def _blocked_at(server: Server, connections: list[Peer]) -> list[answers.BlockedPlace]:
    """The limits at which senders of these connections wait, longest wait first."""
    found: dict[tuple[str, str | None, str], list[tuple[Peer, int]]] = {}

    def add(connection: Peer) -> None:
        for sender in connection.blocked_senders:
            for place in sender.places:
                address = address_at(place)
                key = (connection.namespace.name, address, place.limit_text)
                found.setdefault(key, []).append((connection, sender.since))

    await each(server, connections, add)
    rows = [
        answers.BlockedPlace(
            namespace=namespace,
            address=address,
            text=text,
            senders=len(senders),
            since=min(since for _, since in senders),
            connections=list(dict.fromkeys(connection.member.id for connection, _ in senders))[:_BLOCKED_CONNECTIONS],
        )
        for (namespace, address, text), senders in found.items()
    ]
    return sorted(rows, key=lambda row: row.since)


def address_at(place: Limited) -> str | None:
    """The address of the queue or topic where senders wait; None for a limit of more than one."""
    if not isinstance(place, Queue):
        return None
    return place.place.destination


def counters_of(counts: Counts) -> answers.Counters:
    """Counts as they are shown."""
    return answers.Counters(
        enqueued=counts.enqueued,
        delivered=counts.delivered,
        acknowledged=counts.acknowledged,
        redelivered=counts.redelivered,
        expired=counts.expired,
        dead_lettered=counts.dead_lettered,
        removed=counts.removed,
        refused=counts.refused,
        published=counts.published,
    )


@dataclass(slots=True)
class Viewed:
    """What the caller may view of namespaces, added up; rates are per second."""

    destinations: int = 0
    counts: Counts = field(default_factory=Counts)
    held: Holdings = field(default_factory=Holdings)
    in_rate: float = 0.0
    out_rate: float = 0.0

    def add(self, destination: Queue | Topic, rates: tuple[float, float], budget: Budget) -> Task[None]:
        """Add a destination."""
        self.destinations += 1
        self.in_rate += rates[0]
        self.out_rate += rates[1]
        yield from add_figures(destination, self.counts, self.held, budget)


def _view_with_ended(call: Call[Any, Any], spaces: list[Namespace], now: int, budget: Budget) -> Task[Viewed]:
    """:func:`view`, with what destinations had counted that are gone. One that is deleted amid it counts once."""
    ended = [replace(counts) for counts in call.server.shard.ended.counts.values()]
    viewed = yield from view(call, spaces, now, budget)
    for counts in ended:
        viewed.counts.include(counts)
    return viewed


def view(call: Call[Any, Any], spaces: list[Namespace], now: int, budget: Budget) -> Task[Viewed]:
    """Add up the destinations of namespaces that the caller may view, those of this moment."""
    viewed = Viewed()
    for space, destinations in [(space, list(space.destinations.values())) for space in spaces]:
        everything = call.identity.may(Verb.VIEW, space.name, "*")
        for destination in destinations:
            if budget.spent:
                yield
            budget.spend(1)
            if everything or call.identity.may(Verb.VIEW, space.name, destination.label):
                yield from viewed.add(destination, call.management.sampler.rates(destination), budget)
    return viewed
