"""An operator's actions on messages: remove, move, copy, retry, cancel, find.

Each verb is a task (:mod:`.work`), so that a queue of a million messages blocks no client. It handles the messages that
were in the queue when it began. It skips later arrivals, so it ends even if a moved message comes back. Messages in
flight belong to their consumers and are never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sievemq_broker.domain import capacity
from sievemq_broker.domain.dead_letters import origin_of, restored
from sievemq_broker.domain.entry import DELAYED, GONE, HELD, STRAY, Entry, key_of
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_broker.matching.condition import Condition, body_units, units
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.dead_letters import CLIENT_ID, SUBSCRIPTION
from sievemq_core.message.destination import parse_address
from sievemq_core.message.envelope import PROPERTIES, Envelope

#: Units that handling a message costs: it is encoded, matched and perhaps delivered at its new place.
_TOUCHED = 5

#: Messages of a queue that are dropped with it in one go. More are removed before.
DROPPED_AT_ONCE: Final = TURN

#: Messages of a consumer that are listed for one unit.
_LISTED = 64

#: Bytes of properties after which a page ends.
PAGE_BYTES = 1024 * 1024

Act = Callable[[Entry, int, Budget], Task[bool]]
"""Handles one entry at a time; False if it cannot be handled and stays."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Selects messages.

    Attributes:
        condition: a selector; None for all.
        ids: only these, by sequence in the queue or by JMSMessageID; None for no such restriction.
        limit: at most so many; None for no limit.
        dry_run: only count them.
    """

    condition: Condition | None = None
    ids: frozenset[int | str] | None = None
    limit: int | None = None
    dry_run: bool = False


@dataclass(slots=True)
class Handled:
    """The result of a verb.

    Attributes:
        matched: messages that were chosen.
        touched: those of them that were handled.
        skipped: those that could not be and stay.
        more: there are others beyond the limit, or behind `stopped`.
        stopped: why it ended early; what was handled before stays handled.
    """

    matched: int = 0
    touched: int = 0
    skipped: int = 0
    more: bool = False
    stopped: SieveError | None = None

    def match(self) -> None:
        self.matched += 1

    def end(self) -> None:
        """Further messages match, beyond the limit."""
        self.more = True

    def note(self, done: bool) -> None:
        """The last selected message was handled; or it could not be, and stays."""
        self.touched += done
        self.skipped += not done

    def stop(self, error: SieveError) -> None:
        """The last selected message ends the verb early."""
        self.matched -= 1
        self.more = True
        self.stopped = error


def remove(queue: Queue, choice: Choice, now: int, budget: Budget) -> Task[Handled]:
    """Remove waiting messages, in order of delivery."""
    return _each(queue, choice, _remover(queue), now, budget, waits=True)


def purge(queue: Queue, choice: Choice, now: int, budget: Budget) -> Task[Handled]:
    return _each(queue, choice, _remover(queue), now, budget, waits=True, delayed=True)


def cancel(queue: Queue, choice: Choice, now: int, budget: Budget) -> Task[Handled]:
    return _each(queue, choice, _remover(queue), now, budget, delayed=True)


def emptied(queues: Iterable[Queue], dry_run: bool, now: int, budget: Budget) -> Task[int]:
    """How many messages the queues hold; they are removed down to what deleting them can drop in one go."""
    messages = 0
    for queue in queues:
        if budget.spent:
            yield
        budget.spend(1)
        held = queue.depth + len(queue.scheduled)
        messages += held + queue.in_flight
        if held > DROPPED_AT_ONCE and not dry_run:
            yield from purge(queue, Choice(), now, budget)
    return messages


def copy(namespace: Namespace, target: str, queue: Queue, choice: Choice, now: int, budget: Budget) -> Task[Handled]:
    """Send copies of waiting messages to another destination; they stay where they are.

    Raises:
        AddressError, RequestError: the target took none (Namespace.transfer).
    """

    def act(entry: Entry, now: int, budget: Budget) -> Task[bool]:
        return (yield from _transfer(namespace, target, queue, entry, entry.envelope, now, budget))

    _check_target(namespace, queue, target, choice)
    return _each(queue, choice, act, now, budget, waits=True)


def move(namespace: Namespace, target: str, queue: Queue, choice: Choice, now: int, budget: Budget) -> Task[Handled]:
    """Move waiting messages to another queue; each leaves only when it has arrived there.

    Raises:
        AddressError, RequestError: the target took none (Namespace.transfer), or is a topic, where it might be lost.
    """
    if isinstance(_check_target(namespace, queue, target, choice), Topic):
        raise RequestError(
            f"{target} is a topic: messages that no subscription selects would be lost; copy to it instead",
            ErrorCode.INVALID_DESTINATION,
        )

    def act(entry: Entry, now: int, budget: Budget) -> Task[bool]:
        moved = yield from _transfer(namespace, target, queue, entry, entry.envelope, now, budget)
        if moved:
            queue.remove(entry, "moved")
        return moved

    return _each(queue, choice, act, now, budget, waits=True)


def retry(
    namespace: Namespace, allow: Callable[[str], None], queue: Queue, choice: Choice, now: int, budget: Budget
) -> Task[Handled]:
    """Send dead letters back to their origin without the notes, their attempts counted from zero. A dead letter is
    skipped if it names no origin, or if it is of a topic and its subscription is gone or had no name: it would go to
    all others.

    Args:
        allow: called with the origin of each; raises if the administrator has no right to send to it.
        now: ms epoch.

    Raises:
        RequestError: its origin took none, or is not allowed.
    """

    def act(entry: Entry, now: int, budget: Budget) -> Task[bool]:
        origin, envelope = restored(entry.envelope)
        if origin is None:
            return False
        allow(origin)
        name = origin_of(entry.envelope, SUBSCRIPTION)
        if name is None:
            if parse_address(origin).kind.is_topic:
                return False
            if not (yield from _transfer(namespace, origin, queue, entry, envelope, now, budget)):
                return False
        else:
            subscription = namespace.subscriptions.durable.get((origin_of(entry.envelope, CLIENT_ID), name))
            if subscription is None or subscription.topic.label != origin:
                return False
            capacity.check_moved(subscription.queue, len(envelope.packed))
            capacity.admit(subscription.queue, envelope, now)
        queue.remove(entry, "retried")
        return True

    return _each(queue, choice, act, now, budget, waits=True)


def _remover(queue: Queue) -> Act:
    def act(entry: Entry, now: int, budget: Budget) -> Task[bool]:
        yield from ()
        queue.remove(entry)
        return True

    return act


def bring(
    find: Callable[[], Namespace], target: str, envelopes: Iterable[Envelope], skipped: int, now: int, budget: Budget
) -> Task[Handled]:
    """Send new messages, whose sender cannot wait, in order; one that is refused ends it.

    Args:
        find: the namespace, which may be deleted meanwhile; raises if it is not there.
        target: address of a queue or topic.
        envelopes: the messages.
        skipped: how many others were skipped before.
        now: ms epoch.
    """
    outcome = Handled(skipped=skipped)
    for envelope in envelopes:
        outcome.match()
        sends = Sends([(target, envelope)])
        try:
            now = yield from find().examine(sends, now, budget)
            [(_, ready)] = sends
            namespace = find()  # it may be another one by now
            namespace.check_room(parse_address(target), ready)
            namespace.transfer(target, ready, now)
        except SieveError as error:
            outcome.stop(error)
            break
        outcome.note(True)
        budget.spend(1 + _TOUCHED)
        if budget.spent:
            now = yield
    return outcome


def _transfer(
    namespace: Namespace, target: str, queue: Queue, entry: Entry, envelope: Envelope, now: int, budget: Budget
) -> Task[bool]:
    """Send a message elsewhere, once costly selectors there are evaluated. False if it is gone by then."""
    sends = Sends([(target, envelope)])
    now = yield from namespace.examine(sends, now, budget)
    destination = namespace.find(target)
    if isinstance(destination, Queue):
        budget.spend(destination.fan_out)
        if budget.spent:
            now = yield  # taps take long for each message
    if queue.deleted or entry.state in (HELD, GONE):
        return False
    [(_, envelope)] = sends
    namespace.transfer(target, envelope, now)
    return True


def _check_target(namespace: Namespace, queue: Queue, target: str, choice: Choice) -> Queue | Topic | None:
    """The target if it exists; otherwise it is created, unless this is a dry run."""
    found: Queue | Topic | None = namespace.find(target) if choice.dry_run else namespace.declare(target)
    if found is queue:
        raise RequestError(f"{target} is the source of the messages", ErrorCode.INVALID_DESTINATION)
    return found


# -- going through a queue ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """One verb at work: decides about each entry in turn."""

    queue: Queue
    choice: Choice
    act: Act
    latest: int
    budget: Budget
    outcome: Handled = field(default_factory=Handled)

    def handle(self, entry: Entry, now: int) -> Task[bool]:
        """Handle an entry. False if no other follows."""
        choice, outcome, budget = self.choice, self.outcome, self.budget
        budget.spend(1)
        if budget.spent:
            now = yield
            if entry.state in (HELD, GONE):
                return True
        if self.queue.deleted:
            return False  # what is left is being removed
        envelope = entry.envelope
        if entry.sequence > self.latest or (envelope.expiration and envelope.expiration <= now):
            return True
        if choice.condition is not None:
            budget.spend(units(choice.condition, envelope))
            if not self.queue.backlog.matching(choice.condition, entry):
                return True
        if choice.limit is not None and outcome.matched >= choice.limit:
            outcome.end()
            return False
        outcome.match()
        if choice.dry_run:
            return True
        try:
            done = yield from self.act(entry, now, budget)
            budget.spend(_TOUCHED)
        except SieveError as error:
            if not outcome.touched:
                raise
            outcome.stop(error)
            return False
        outcome.note(done)
        return True


def _each(
    queue: Queue, choice: Choice, act: Act, now: int, budget: Budget, *, waits: bool = False, delayed: bool = False
) -> Task[Handled]:
    run = _Run(queue, choice, act, queue.complete, budget)
    return _chosen(run, waits, delayed, now) if choice.ids is not None else _all(run, waits, delayed, now)


def _chosen(run: _Run, waits: bool, delayed: bool, now: int) -> Task[Handled]:
    """The entries with the given ids."""
    queue = run.queue
    assert run.choice.ids is not None
    entries = yield from queue.locate(run.choice.ids, False, now, run.budget)
    for entry in entries:
        if run.budget.spent:
            now = yield
        stands = (waits and entry.state <= STRAY) or (delayed and entry.state == DELAYED)
        if stands and not (yield from run.handle(entry, now)):
            break
    return run.outcome


def _all(run: _Run, waits: bool, delayed: bool, now: int) -> Task[Handled]:
    """All entries: those that wait, in order of delivery."""
    queue, outcome, budget = run.queue, run.outcome, run.budget
    if waits:
        walk = queue.backlog.walk(run.choice.condition)
        for _ in walk.gather(budget):
            now = yield
        while not walk.done:
            if budget.spent:
                now = yield
                continue
            before = outcome.touched
            budget.spend(1)
            for entry in walk.take(budget.left // _TOUCHED + 1 if outcome.touched else budget.left + 1):
                if entry.state <= STRAY and not (yield from run.handle(entry, now)):
                    return outcome
            if outcome.touched > before:
                queue.main.first()  # drops the tombstones at the front
    if delayed:
        for entry in list(queue.scheduled.values()):
            if budget.spent:
                now = yield
            budget.spend(1)
            if entry.state == DELAYED and not (yield from run.handle(entry, now)):
                return outcome
    return outcome


# -- looking ----------------------------------------------------------------------------------------------------------


def waiting(
    queue: Queue, condition: Condition | None, after: int, limit: int, now: int, budget: Budget
) -> Task[tuple[list[Entry], int | None]]:
    """A page of waiting messages, in order of delivery, and the cursor for the next page, None at the end.

    Args:
        condition: only what matches.
        after: cursor of the page before; -1 for the first.
        limit: entries of the page, which is full unless it is the last or holds PAGE_BYTES of properties.
        now: ms epoch.
    """
    found: list[Entry] = []
    last = after
    size = 0
    latest = queue.complete
    walk = queue.backlog.walk(condition, after)
    for _ in walk.gather(budget):
        now = yield
    while not walk.done:
        if budget.spent:
            now = yield
            continue
        budget.spend(1)
        room = budget.left + 1
        for entry in walk.take(min(room, limit - len(found) + 1) if condition is None else room):
            if entry.state > STRAY or entry.sequence > latest:
                continue
            envelope = entry.envelope
            if envelope.expiration and envelope.expiration <= now:
                continue
            budget.spend(1)
            if condition is not None:
                budget.spend(units(condition, envelope))
                matches = queue.backlog.matching(condition, entry)
                if budget.spent:
                    now = yield
                if not matches or entry.state > STRAY:
                    continue
            if len(found) == limit:
                return [entry for entry in found if entry.state <= STRAY], last
            last = key_of(entry)
            found.append(entry)
            size += _shown_bytes(entry)
            if size >= PAGE_BYTES:
                return [entry for entry in found if entry.state <= STRAY], last
            budget.spend(body_units(envelope))
            if budget.spent:
                now = yield
    return [entry for entry in found if entry.state <= STRAY], None


def _first(_: Entry) -> int:
    return 0


#: Orders of scheduled messages: by what they are sorted, before their queue and sequence.
_ORDERS: Final[Mapping[str, Callable[[Entry], int]]] = {
    "due": lambda entry: entry.due,
    "-due": lambda entry: -entry.due,
    "size": lambda entry: len(entry.envelope.packed),
    "-size": lambda entry: -len(entry.envelope.packed),
    "destination": _first,
}

Place = tuple[int, str, int]
"""The place of a message in a list: by what that is sorted, then its queue and its sequence there."""


def scheduled(
    queue: Queue,
    condition: Condition | None,
    after: tuple[int, int] | None,
    limit: int,
    now: int,
    budget: Budget,
    sort: str = "due",
) -> Task[tuple[list[Entry], tuple[int, int] | None]]:
    """A page of scheduled messages and the cursor for the next page, None at the end.

    Args:
        condition: only what matches.
        after: cursor of the page before: place and sequence of its last; None for the first.
        now: ms epoch.
        sort: `due` for the earliest first, `size` for the smallest; with `-` in front the other way round.
    """
    return _of_one(queue, _delayed([queue]), condition, DELAYED, _ORDERS[sort], after, limit, budget)


def scheduled_in(
    queues: Iterable[Queue], after: Place | None, limit: int, now: int, budget: Budget, sort: str = "due"
) -> Task[tuple[list[tuple[Queue, Entry]], Place | None]]:
    """The same of several queues.

    Args:
        queues: each has some: a step meets one message.
        sort: as of :func:`scheduled`; or `destination`, by the queue.
    """
    return _smallest(_delayed(queues), None, DELAYED, _ORDERS[sort], after, limit, budget)


def held(
    queue: Queue, condition: Condition | None, after: tuple[int, int] | None, limit: int, now: int, budget: Budget
) -> Task[tuple[list[Entry], tuple[int, int] | None]]:
    """A page of unacknowledged messages, as :func:`scheduled`, in order of arrival."""
    entries: list[Entry] = []
    for consumer in (*queue.consumers, *queue.holders):
        entries += filter(None, consumer.window)
        budget.spend(1 + len(consumer.window) // _LISTED)
        if budget.spent:
            yield
    latest = queue.sequence
    found = ((queue, entry) for entry in entries if entry.sequence <= latest)
    return (yield from _of_one(queue, found, condition, HELD, _first, after, limit, budget))


def _delayed(queues: Iterable[Queue]) -> Iterator[tuple[Queue, Entry]]:
    for queue in queues:
        latest = queue.complete
        yield from ((queue, entry) for entry in list(queue.scheduled.values()) if entry.sequence <= latest)


def _of_one(
    queue: Queue,
    found: Iterable[tuple[Queue, Entry]],
    condition: Condition | None,
    state: int,
    order: Callable[[Entry], int],
    after: tuple[int, int] | None,
    limit: int,
    budget: Budget,
) -> Task[tuple[list[Entry], tuple[int, int] | None]]:
    """The first of many messages of one queue: places without its name."""
    place = None if after is None else (after[0], queue.label, after[1])
    page, last = yield from _smallest(found, condition, state, order, place, limit, budget)
    return [entry for _, entry in page], None if last is None else (last[0], last[2])


def _smallest(
    found: Iterable[tuple[Queue, Entry]],
    condition: Condition | None,
    state: int,
    order: Callable[[Entry], int],
    after: Place | None,
    limit: int,
    budget: Budget,
) -> Task[tuple[list[tuple[Queue, Entry]], Place | None]]:
    """The first of many messages, in an order in which they are not stored."""
    best: list[tuple[Place, Queue, Entry]] = []
    chunk: list[tuple[Place, Queue, Entry]] = []
    for queue, entry in found:
        budget.spend(1)
        if budget.spent:
            yield
        if entry.state != state:
            continue
        place = (order(entry), queue.label, entry.sequence)
        if after is not None and place <= after:
            continue
        if condition is not None:
            budget.spend(units(condition, entry.envelope))
            if not queue.backlog.matching(condition, entry):
                continue
        chunk.append((place, queue, entry))
        if len(chunk) > TURN:
            best = sorted([*best, *chunk])[: limit + 1]
            chunk.clear()
    best = sorted([*best, *chunk])[: limit + 1]
    page: list[tuple[Queue, Entry]] = []
    last: Place | None = None
    size = 0
    for number, (place, queue, entry) in enumerate(best[:limit], 1):
        if entry.state == state:
            page.append((queue, entry))
            size += _shown_bytes(entry)
            budget.spend(body_units(entry.envelope))
            if budget.spent:
                yield
        if number < len(best) and (number == limit or size >= PAGE_BYTES):
            last = place
            break
    return [(queue, entry) for queue, entry in page if entry.state == state], last


def _shown_bytes(entry: Entry) -> int:
    """The cost of showing an entry, beside its headers."""
    envelope = entry.envelope
    size = len(envelope.fields[PROPERTIES] or b"")
    if body_units(envelope):
        envelope.compact()  # otherwise a page would hold a copy of each body
    return size
