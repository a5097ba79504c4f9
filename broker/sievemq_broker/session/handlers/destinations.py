"""The handlers of the verbs about destinations."""

from __future__ import annotations

import re
from difflib import get_close_matches
from fnmatch import translate
from functools import partial
from itertools import islice
from typing import Final

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget, Job, Task
from sievemq_broker.session.checks import check_unread, the_selector
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Verb
from sievemq_broker.session.verbs import (
    Browse,
    CreateTemporary,
    Declare,
    DeleteTemporary,
    FindDestinations,
    Unsubscribe,
)
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.destination import Kind, parse_address

_QUEUE: Final = f"{Kind.QUEUE.value}:"

#: Limits of the search for similar names: destinations whose length is compared, destinations whose name is compared,
#: and the difference in length that is allowed; some 2 ms.
_LOOKED_AT: Final = 5_000
_COMPARED: Final = 100
_LENGTHS: Final = 2

#: Destinations of one FIND_DESTINATIONS, and names that are compared for a unit of a task.
_MOST_FOUND: Final = 10_000
_PER_UNIT: Final = 4

#: Characters of a pattern times those of a name, for a unit more: a name is compared with a tail at each of its places.
_COMPARISONS: Final = 16_384


def on_declare(peer: Peer, command: Declare, now: int) -> None:
    """Check whether a destination can be sent to (SES-18)."""
    peer.namespace.declare(command.destination)
    peer.out.answer(command.request)


def on_create_temporary(peer: Peer, command: CreateTemporary, now: int) -> None:
    """Create a temporary destination of this connection (TMP-01, TMP-05)."""
    request, most = command.request, peer.settings.max_temporaries
    address = peer.namespace.temporaries.create(peer.member.id, command.topic, request, command.destination, most)
    peer.out.answer(request, str(address))


def on_delete_temporary(peer: Peer, command: DeleteTemporary, now: int) -> None:
    """Delete a temporary destination of this connection (TMP-07)."""
    deleted = peer.namespace.temporaries.delete(command.destination, peer.member.id)
    if isinstance(deleted, Queue):
        peer.answer_when_empty(deleted, command, now)
    else:
        peer.out.answer(command.request)


def on_unsubscribe(peer: Peer, command: Unsubscribe, now: int) -> None:
    """Delete a durable subscription (SES-27)."""
    client_id, name = peer.member.client_id, command.subscription
    if command.made_by:
        this = peer.member.id, command.made_by
        if not peer.namespace.subscriptions.made_by(this, client_id, name):
            peer.out.answer(command.request)
            return
    queue = peer.namespace.unsubscribe(client_id, name)
    peer.answer_when_empty(queue, command, now)


def on_browse(peer: Peer, command: Browse, now: int) -> None:
    """A page of a queue (BRW-03). With a limit of 0 only queue and selector are verified; the answer has the depth if
    the queue is to be browsed in parts."""
    request, destination, parts = command.request, command.destination, command.parts
    if peer.wait_for_publishing(command, on_browse):
        return
    check_unread(peer.out.unread, "browsing")
    compiled = the_selector(command.selector, command.dialect, peer.settings.dialect)
    limit = min(command.limit, peer.settings.page_messages)
    peer.owe_all()
    cursor, page = peer.namespace.browse(destination, compiled, command.cursor, limit, now, command.part, parts)
    if cursor is None and not limit:
        peer.out.answer(request, [None, *similar_queues(peer, destination)])
        return
    if parts and not limit:
        peer.out.answer(request, [cursor, peer.namespace.queue(destination).depth])
        return
    peer.out.answer_page(request, cursor, page)


def on_find_destinations(peer: Peer, command: FindDestinations, now: int) -> None:
    """The addresses that fit a pattern. A task: there may be many."""
    address = parse_address(command.pattern)
    if address.kind.is_temporary:
        text = f"{address} is a pattern of temporary destinations: these are not listed"
        raise RequestError(text, ErrorCode.INVALID_DESTINATION)
    pattern = str(address)
    job = peer.broker.scheduler.start(("find", peer.member.id), partial(_find, peer, pattern), now)
    answer = partial(_answer_found, peer, command.request, job)
    if job.over:
        answer(now)
    else:
        job.then(partial(peer.when_over, job, command, answer))


def _find(peer: Peer, pattern: str, now: int, budget: Budget) -> Task[tuple[str, ...]]:
    fits, identity, namespace = re.compile(translate(pattern)).match, peer.member.identity, peer.namespace
    found: list[str] = []
    for place, label in enumerate(tuple(namespace.destinations)):
        budget.spend((not place % _PER_UNIT) + len(pattern) * len(label) // _COMPARISONS)
        if budget.spent:
            yield
        if fits(label) is None:
            continue
        budget.spend(1)
        if identity.may(Verb.BROWSE, namespace.name, label) or identity.may(Verb.CONSUME, namespace.name, label):
            if len(found) == _MOST_FOUND:
                raise RequestError(
                    f"{pattern} fits more than {_MOST_FOUND} destinations; name fewer",
                    ErrorCode.RESOURCE_ALLOCATION,
                    {"limit": "found"},
                )
            found.append(label)
    return tuple(found)


def _answer_found(peer: Peer, request: int, job: Job[tuple[str, ...]], now: int) -> None:
    peer.out.answer(request, job.result)


def similar_queues(peer: Peer, address: str) -> list[str]:
    """Queues with names similar to one that does not exist, if this user may browse them. The search is bounded."""
    wanted = str(parse_address(address))
    namespace, identity = peer.namespace, peer.member.identity
    near = [
        label
        for label in islice(namespace.destinations, _LOOKED_AT)
        if abs(len(label) - len(wanted)) <= _LENGTHS and label.startswith(_QUEUE)
    ]
    allowed = [label for label in near[:_COMPARED] if identity.may(Verb.BROWSE, namespace.name, label)]
    names = get_close_matches(wanted.removeprefix(_QUEUE), [label.removeprefix(_QUEUE) for label in allowed], 3, 0.7)
    return [_QUEUE + name for name in names]
