"""A destination with limits: whether a message is accepted, and which messages it replaces, by the rules of its
policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from sievemq_broker.domain.admission import UNLIMITED, Limited
from sievemq_broker.domain.policy import BLOCK, DROP_NEWEST, DROP_OLDEST, FAIL
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_core.counted import counted
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import Envelope

Load: TypeAlias = "tuple[list[Queue], int, int, int]"
"""Queues of one destination, with the number of messages and bytes for each, and the size of the largest."""

#: The most full subscriptions of a topic that a sender waits for; once these have room it tries again.
_FULL: Final = 16


def send_within(
    destination: Queue | Topic,
    envelope: Envelope,
    now: int,
    connection: str | None,
    waiting: Collection[Limited],
) -> list[Limited] | None:
    """Send a message to a queue with limits, or to a topic whose subscriptions have some: all of them, or none.

    Args:
        now: ms epoch.
        connection: id of the sender's connection, for no_local.
        waiting: the places where senders wait that come before it.

    Returns:
        None; or where it has to wait for room: it was not taken then, anywhere.

    Raises:
        RequestError: RESOURCE_ALLOCATION, a limit refuses it.
    """
    size = len(envelope.packed)
    queues = destination.matching(envelope, connection) if isinstance(destination, Topic) else [destination]
    if queues:
        full = lacking(((queues, 1, size, size),), True, waiting)
        if full:
            return full
    admit_to(destination, queues, envelope, now, moved=False)
    return None


def without_room(queues: list[Queue], messages: int, size: int) -> Iterator[Queue]:
    """The queues, all of one destination, where so many messages with so many bytes would exceed a limit. There may be
    very many: a subscription with room costs a fraction of a call."""
    policy = queues[0].policy
    if policy.max_messages:
        most = policy.max_messages - messages
        yield from [
            queue for queue in queues if queue.backlog.depth + len(queue.scheduled) + queue.reserved_messages > most
        ]
    if policy.max_bytes:
        most = policy.max_bytes - size
        yield from [
            queue for queue in queues if queue.backlog.bytes + queue.scheduled_bytes + queue.reserved_bytes > most
        ]


def scarce(topic: Topic, messages: int, size: int, largest: int) -> list[Queue]:
    """The subscriptions of a topic that may lack room for so many messages, including those that drop messages for
    them.

    Args:
        size: bytes of all.
        largest: bytes of the largest.
    """
    policy = topic.policy
    if policy.at_limit in (FAIL, BLOCK):
        return list(without_room(topic.queues, messages, size)) if topic.queues else []
    return topic.queues if policy.max_bytes and largest > policy.max_bytes else []


def move_within(destination: Queue | Topic, envelope: Envelope, now: int) -> None:
    """As :func:`send_within`, for a message that has been in the broker before, or whose sender cannot wait.

    Raises:
        RequestError: RESOURCE_ALLOCATION, as :func:`check_moved`.
    """
    size = len(envelope.packed)
    queues = destination.matching(envelope, None) if isinstance(destination, Topic) else [destination]
    if queues:
        check_moved(queues[0], size)
        if destination.policy.at_limit != DROP_OLDEST:
            for queue in without_room(queues, 1, size):
                check(queue, 1, size)
    admit_to(destination, queues, envelope, now, moved=True)


def check(queue: Queue, messages: int, size: int) -> None:
    """Raise unless so many messages with so many bytes may be added.

    Raises:
        RequestError: RESOURCE_ALLOCATION, the policy's limit would be passed.
    """
    policy = queue.policy
    held = queue.depth + len(queue.scheduled)
    if policy.max_messages and held + queue.reserved_messages + messages > policy.max_messages:
        added = f"; this would add {messages}" if messages > 1 else ""
        text = (
            f"{queue.label} holds {counted(held, 'message')} and may hold {policy.max_messages}{added}; "
            f"consume or purge some, or raise max_messages in {policy.where}"
        )
        raise _refusal(queue, messages, text, "max_messages")
    if policy.max_bytes and queue.bytes + queue.reserved_bytes + size > policy.max_bytes:
        text = (
            f"{queue.label} holds {queue.bytes} bytes and may hold {policy.max_bytes}; this would add {size}; "
            f"consume or purge some, or raise max_bytes in {policy.where}"
        )
        raise _refusal(queue, messages, text, "max_bytes")


def _refusal(queue: Queue, messages: int, text: str, limit: str) -> RequestError:
    queue.counts.refuse(messages)
    details: dict[str, object] = {"destination": queue.label, "limit": limit, "rule": queue.policy.pattern}
    return RequestError(text, ErrorCode.RESOURCE_ALLOCATION, details)


def _check_size(queue: Queue, messages: int, size: int) -> None:
    """Raise unless a message of so many bytes has room in the empty queue.

    Args:
        messages: that are refused with it.

    Raises:
        RequestError: RESOURCE_ALLOCATION, it is larger than the limit.
    """
    policy = queue.policy
    if policy.max_bytes and size > policy.max_bytes:
        text = (
            f"{queue.label} may hold {policy.max_bytes} bytes and this message has {size}; "
            f"make it smaller, or raise max_bytes in {policy.where}"
        )
        raise _refusal(queue, messages, text, "max_bytes")


def check_moved(queue: Queue, size: int) -> None:
    """Raise unless a message of so many bytes may be moved here. It may not be dropped, and its sender cannot wait.

    Raises:
        RequestError: RESOURCE_ALLOCATION, as :func:`check`.
    """
    if queue.policy.at_limit == DROP_OLDEST:
        _check_size(queue, 1, size)
    else:
        check(queue, 1, size)


def _must_wait(queues: list[Queue], messages: int, size: int, waiting: Collection[Limited]) -> list[Limited]:
    """The queues where so many messages with so many bytes must wait for room, by the rule BLOCK; the first few if they
    are very many. A transaction larger than the limit has room in an empty queue.

    Args:
        waiting: the places where senders wait that come before it.
    """
    full: list[Limited] = []
    if waiting:
        full += islice((queue for queue in queues if queue in waiting), _FULL)
    for queue in without_room(queues, messages, size):
        if len(full) >= _FULL:
            break
        if queue not in full and _has_some(queue):
            full.append(queue)
    return full


def _has_some(queue: Queue) -> bool:
    return bool(queue.depth or queue.scheduled or queue.reserved_messages)


def lacking(load: Iterable[Load], patient: bool, waiting: Collection[Limited]) -> list[Limited]:
    """The places where several messages, all or none, must wait for room.

    Args:
        patient: the sender can wait where that is the rule; otherwise it is refused there.
        waiting: the places where senders wait that come before it.

    Raises:
        RequestError: RESOURCE_ALLOCATION, where the rule is to refuse, or a message is larger than a limit.
    """
    full: list[Limited] = []
    for queues, messages, size, largest in load:
        at_limit = queues[0].policy.at_limit
        if at_limit != FAIL:
            _check_size(queues[0], messages, largest)
        if at_limit == FAIL or (at_limit == BLOCK and not patient):
            for queue in without_room(queues, messages, size):
                check(queue, messages, size)
        elif at_limit == BLOCK:
            full += _must_wait(queues, messages, size, waiting)
    return full


def admit_to(destination: Queue | Topic, queues: list[Queue], envelope: Envelope, now: int, *, moved: bool) -> None:
    """Add a message that has been checked to each of these queues of a destination."""
    if isinstance(destination, Topic):
        if destination.large:
            destination.spread(queues, envelope, now, admit, moved=moved)
            return
        destination.take(envelope, now)
    for queue in queues:
        admit(queue, envelope, now)


def admit(queue: Queue, envelope: Envelope, now: int) -> None:
    """Add a message that has been checked to a queue with limits, and apply the rule of its policy."""
    at_limit = queue.policy.at_limit
    if at_limit == DROP_NEWEST and not fits(queue, 1, len(envelope.packed)):
        queue.drop_new(envelope)
        return
    if at_limit != DROP_OLDEST:
        queue.accept([envelope], now)
        return
    # A limit that became smaller drops nothing: the queue holds what it held before at most, and drains.
    policy, backlog = queue.policy, queue.backlog
    messages = max(policy.max_messages, backlog.depth + len(queue.scheduled)) if policy.max_messages else UNLIMITED
    size = max(policy.max_bytes, backlog.bytes + queue.scheduled_bytes) if policy.max_bytes else UNLIMITED
    queue.accept([envelope], now)
    while queue.depth + len(queue.scheduled) > messages or queue.bytes > size:
        queue.drop_oldest()


def fits(queue: Queue, messages: int, size: int) -> bool:
    policy = queue.policy
    return not (
        (policy.max_messages and queue.depth + len(queue.scheduled) + messages > policy.max_messages)
        or (policy.max_bytes and queue.bytes + size > policy.max_bytes)
    )
