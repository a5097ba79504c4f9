"""What an administrator does to messages that wait: look, remove, move, copy, retry, cancel.

Every verb works through a queue in bounded steps: it looks at no more than a few thousand messages, and says where to
go on. Whoever calls it (HTTP, a command) repeats with the cursor, and serves others in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sievemq_broker.domain.dead_letters import CLIENT_ID, SUBSCRIPTION, origin_of, risen
from sievemq_broker.domain.entry import Entry, key_of
from sievemq_broker.domain.pages import page
from sievemq_broker.domain.queue import Queue
from sievemq_broker.matching.condition import Condition, is_true
from sievemq_core.errors import ErrorCode, RequestError, SieveError

__all__ = ["Progress", "cancel", "copy", "move", "remove", "retry", "scheduled"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one step came.

    Attributes:
        messages: that were handled.
        cursor: where the next step goes on; None if this was the last.
        skipped: that matched and could not be handled; they stay.
    """

    messages: int
    cursor: int | None
    skipped: int = 0


def remove(
    queue: Queue, condition: Condition | None, limit: int, now: int, *, cursor: int | None = None, dry_run: bool = False
) -> Progress:
    """Remove up to `limit` waiting messages that match, in order of delivery; with `dry_run` only count them."""
    following, entries = _step(queue, condition, limit, now, cursor)
    if not dry_run:
        for entry in entries:
            queue.remove(entry)
    return Progress(len(entries), following)


def copy(
    queue: Queue, condition: Condition | None, target: str, limit: int, now: int, *, cursor: int | None = None
) -> Progress:
    """Send copies of up to `limit` waiting messages to another destination; they stay where they are.

    Raises:
        AddressError, RequestError: the target took none (Namespace.send).
    """
    return _send_each(queue, condition, limit, now, cursor, _to(queue, target, now), stay=True)


def move(
    queue: Queue, condition: Condition | None, target: str, limit: int, now: int, *, cursor: int | None = None
) -> Progress:
    """Move up to `limit` waiting messages to another destination; each leaves only when it has arrived there.

    Raises:
        AddressError, RequestError: the target took none (Namespace.send).
    """
    return _send_each(queue, condition, limit, now, cursor, _to(queue, target, now))


def retry(queue: Queue, condition: Condition | None, limit: int, now: int, *, cursor: int | None = None) -> Progress:
    """Send up to `limit` dead letters back where they came from, without what was noted on them, attempts counted anew.
    One that does not say where it came from, or whose subscription is gone, is skipped.

    Raises:
        RequestError: its origin took none.
    """
    namespace = queue.namespace

    def back(entry: Entry) -> bool:
        origin, envelope = risen(entry.envelope)
        if origin is None:
            return False
        name = origin_of(entry.envelope, SUBSCRIPTION)
        if name is None:
            namespace.send(origin, envelope, now)
            return True
        subscription = namespace.subscriptions.durable.get((origin_of(entry.envelope, CLIENT_ID), name))
        if subscription is None or subscription.topic.label != origin:
            return False
        subscription.queue.check(1, len(envelope.packed))
        subscription.queue.accept(envelope, now)
        return True

    return _send_each(queue, condition, limit, now, cursor, back)


def scheduled(queue: Queue, condition: Condition | None, after: int = 0, limit: int = 1_000) -> list[Entry]:
    """Messages that wait for their moment, by the sequence under which :func:`cancel` knows them."""
    found: list[Entry] = []
    for sequence in sorted(number for number in queue.scheduled if number > after):
        entry = queue.scheduled[sequence]
        try:
            fits = condition is None or is_true(condition, entry.envelope)
        except SieveError:
            fits = False
        entry.envelope.compact()
        if fits:
            found.append(entry)
            if len(found) == limit:
                break
    return found


def cancel(queue: Queue, sequences: Iterable[int]) -> int:
    """Remove scheduled messages; those that are not scheduled any more are passed over.

    Returns:
        How many were removed.
    """
    cancelled = 0
    for sequence in sequences:
        entry = queue.scheduled.get(sequence)
        if entry is not None:
            queue.remove(entry)
            cancelled += 1
    return cancelled


def _step(
    queue: Queue, condition: Condition | None, limit: int, now: int, cursor: int | None
) -> tuple[int | None, list[Entry]]:
    return page(queue, condition, -1 if cursor is None else cursor, limit, now)


def _to(queue: Queue, target: str, now: int) -> Callable[[Entry], bool]:
    namespace = queue.namespace
    if namespace.declare(target) is queue:
        raise RequestError(f"{target} is where the messages are", ErrorCode.INVALID_DESTINATION)

    def send(entry: Entry) -> bool:
        namespace.send(target, entry.envelope, now)
        return True

    return send


def _send_each(
    queue: Queue,
    condition: Condition | None,
    limit: int,
    now: int,
    cursor: int | None,
    send: Callable[[Entry], bool],
    *,
    stay: bool = False,
) -> Progress:
    following, entries = _step(queue, condition, limit, now, cursor)
    done = skipped = 0
    for entry in entries:
        key = key_of(entry)
        try:
            sent = send(entry)
        except RequestError:
            if not done:
                raise
            return Progress(done, cursor, skipped)  # the next step goes on with this one, and says what is wrong
        cursor = key
        if not sent:
            skipped += 1
            continue
        done += 1
        if not stay:
            queue.remove(entry)
    return Progress(done, following, skipped)
