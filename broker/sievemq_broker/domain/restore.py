"""Restores what a store holds into an empty broker.

Messages come back in their order. A message that a consumer had when the process ended may have been seen, so it comes
back marked as redelivered (``Outcome.KILLED``). Only messages that were never delivered come back unmarked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.journal import (
    DESTINATION,
    GONE_STATE,
    HELD_FLAG,
    MAX_COUNT,
    NAMESPACE,
    PAUSED,
    PUBLISHED,
    STAGE,
    STATE_BITS,
    SUBSCRIPTION,
    TAP,
    TEMPORARY,
    Journal,
    state_of,
)
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.saved import AT_ONCE, SavedBatch, SavedRow, SavedRun, SavedState
from sievemq_broker.domain.settlement import COUNTED, Outcome
from sievemq_broker.domain.stages import Stage
from sievemq_broker.domain.store import AbandonedError, Saved
from sievemq_broker.domain.tap import CopyTap, TapTerms
from sievemq_broker.domain.topic import Topic
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import compile_selector

R = TypeVar("R")


class RestoreError(Exception):
    """Stored state does not fit this broker; the text says what and why."""


def restore(broker: Broker, saved: Saved, now: int, is_wanted: Callable[[], bool] = lambda: True) -> int:
    """Fill an empty broker with stored state, and give it a journal that continues it.

    Args:
        now: ms epoch.
        is_wanted: False once the caller has given up. Restoring ends soon then.

    Returns:
        How many messages there are.

    Raises:
        AbandonedError: the caller has given up; the broker cannot be used.
        RestoreError: something kept is refused by this broker's settings or rules.
    """
    journal = Journal(saved.next_batch, next_write=saved.next_write, batch_bytes=saved.batch_bytes)
    try:
        queues = _definitions(broker, saved, journal, is_wanted)
        carried = _temporaries(broker, saved, journal)
        taps = _taps(broker, saved, journal, now)
        staged = _Staged(saved, journal)
    except SieveError as error:
        raise RestoreError(f"the stored messages cannot be restored: {error}") from error
    queues |= carried
    waiting: dict[int, list[tuple[SavedBatch, SavedRun, SavedState | None]]] = {number: [] for number in queues}
    for batch, state in saved.batches():
        _check(is_wanted)
        for run in batch.runs:
            owner = run.owner
            if owner in waiting:
                waiting[owner].append((batch, run, state))
                if owner in carried:
                    journal.batch.gone.extend([number for number, _ in run.kept(state)])
            elif owner in taps:
                for number, packed in run.kept(state):
                    taps[owner].log.append(packed, 1, batch.time, number)
            elif owner in staged.messages:
                for number, packed in run.kept(state):
                    staged.messages[owner].append(packed)
                    journal.batch.gone.append(number)
            elif left := [number for number, _ in run.kept(state)]:  # its queue was deleted while a consumer held them
                journal.batch.gone.extend(left)
                journal.numbers_from(owner + 1)
    count = 0
    for number in list(waiting):
        try:
            count += _fill(queues[number], waiting.pop(number), journal, now, is_wanted, number in carried)
        except SieveError as error:
            raise RestoreError(f"a message of {queues[number].label} cannot be restored: {error}") from error
    staged.restore(broker, now)
    broker.keep_in(journal)
    return count


def _while(is_wanted: Callable[[], bool], items: Iterable[R]) -> Iterator[R]:
    for number, item in enumerate(items):
        if not number % AT_ONCE:
            _check(is_wanted)
        yield item


def _check(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise AbandonedError("the store was abandoned before all of it was restored")


def _definitions(broker: Broker, saved: Saved, journal: Journal, is_wanted: Callable[[], bool]) -> dict[int, Queue]:
    """Restore namespaces, destinations and durable subscriptions. Returns the queues by number."""
    queues: dict[int, Queue] = {}
    for (name,) in saved.definitions(NAMESPACE):
        broker.namespace(str(name))
    for (name, label), (number, *_) in _while(is_wanted, saved.definitions(DESTINATION).items()):
        destination = broker.namespace(str(name)).create(str(label))
        if isinstance(destination, Queue):
            queues[number] = destination
    for (name, client_id, title), value in _while(is_wanted, saved.definitions(SUBSCRIPTION).items()):
        number, label, text, dialect, no_local, shared = value[:6]
        namespace = broker.namespace(str(name))
        topic = namespace.create(label)
        assert isinstance(topic, Topic)
        subscription = namespace.subscriptions.make(
            topic,
            str(title),
            None if client_id is None else str(client_id),
            None if text is None else compile_selector(text, dialect),
            durable=True,
            shared=shared,
            no_local=no_local,
            connection=None,
        )
        namespace.subscriptions.keep(subscription)
        queues[number] = subscription.queue
    for name, label in saved.definitions(PAUSED):
        broker.namespace(str(name)).create(str(label)).pause()
    for number, queue in queues.items():
        queue.observe(journal.ledger(number))
        journal.numbers_from(number + 1)
    return queues


def _temporaries(broker: Broker, saved: Saved, journal: Journal) -> dict[int, Queue]:
    """Restore the temporary destinations that the last broker has handed over. Returns the queues by number."""
    queues: dict[int, Queue] = {}
    for (name, label), (number, owner, *_) in saved.definitions(TEMPORARY).items():
        destination = broker.namespace(str(name)).temporaries.restore(str(label), owner)
        if isinstance(destination, Queue):
            queues[number] = destination
        journal.numbers_from(number + 1)
        journal.define(TEMPORARY, (name, label), None)
    return queues


class _Staged:
    """The stages that the last broker has handed over. From now on they are in memory alone.

    Attributes:
        messages: of each, by number.
    """

    def __init__(self, saved: Saved, journal: Journal) -> None:
        self._definitions = saved.definitions(STAGE)
        self.messages: dict[int, list[bytes]] = {}
        for key, (number, *_) in self._definitions.items():
            self.messages[number] = []
            journal.numbers_from(number + 1)
            journal.define(STAGE, key, None)

    def restore(self, broker: Broker, now: int) -> None:
        for (name, stage_id), (number, key, batch, owner, lease, runs, *_) in self._definitions.items():
            addresses = [address for address, count in runs for _ in range(count)]
            messages = map(Envelope.from_packed, self.messages[number])
            stage = Stage(str(stage_id), key, batch, owner, lease, Sends(zip(addresses, messages, strict=True)))
            broker.namespace(str(name)).stages.add(stage, now)


def _taps(broker: Broker, saved: Saved, journal: Journal, now: int) -> dict[int, CopyTap]:
    """Restore taps and published batches, before the messages. Returns the copy taps by number, still empty."""
    for (name, owner, key), (batch, *_) in saved.definitions(PUBLISHED).items():
        broker.namespace(str(name)).stages.remember(None if owner is None else str(owner), str(key), batch)
    copies: dict[int, CopyTap] = {}
    for (name, label, title), value in saved.definitions(TAP).items():
        number, tap_id, mode, text, dialect, terms, *state = value[:11]
        namespace = broker.namespace(str(name))
        condition = None if text is None else compile_selector(text, dialect)
        tap = namespace.taps.make(
            mode, tap_id, str(title), namespace.create(str(label)), condition, TapTerms(*terms), now
        )
        tap.resume(number, *state)
        if isinstance(tap, CopyTap):
            copies[number] = tap
            journal.numbers_from(number + 1)
    return copies


def _fill(
    queue: Queue,
    runs: list[tuple[SavedBatch, SavedRun, SavedState | None]],
    journal: Journal,
    now: int,
    is_wanted: Callable[[], bool],
    is_carried: bool,
) -> int:
    """Restore the messages of a queue; those of one that was handed over are in memory alone. Returns how many there
    are."""
    check = partial(_check, is_wanted)
    rows = [(batch.time, _live(run, state, journal, now, check)) for batch, run, state in runs]
    if is_carried:
        for _, row in rows:
            for entry in row.entries:
                entry.keep(0)
    if any(row.scheduled for _, row in rows):
        entries = _by_arrival(rows)
        for at in range(0, len(entries), AT_ONCE):
            check()
            queue.restore_all(entries[at : at + AT_ONCE], now)
        return len(entries)
    for _, row in rows:
        check()
        if row.fresh:
            queue.restore_row(row.entries, row.by_priority, row.expiring, row.size)
        else:
            queue.restore_all(row.entries, now, scheduled=False)
    return sum([len(row.entries) for _, row in rows])


def _live(run: SavedRun, state: SavedState | None, journal: Journal, now: int, check: Callable[[], object]) -> SavedRow:
    """The messages that are not gone, with their state."""
    row = run.build(check)
    if state is None:
        return row
    states = run.states(state)
    if not any(states):
        return row
    entries: list[Entry] = []
    fresh = True
    for entry, found, failed in zip(row.entries, states, run.failures(state), strict=True):
        if found == GONE_STATE:
            continue
        if found:
            fresh = False
            count, attempts = found & (HELD_FLAG - 1), found >> STATE_BITS
            if found & HELD_FLAG:
                deliveries, failures = COUNTED[Outcome.KILLED]
                count = min(count + min(1, deliveries), MAX_COUNT)
                attempts += min(1, failures)
                journal.batch.states[entry.stored] = state_of(count, attempts)
            entry.resume(entry.stored, count, attempts, failed or now)
        entries.append(entry)
    return SavedRow(entries, scheduled=row.scheduled, fresh=fresh)


def _by_arrival(rows: list[tuple[int, SavedRow]]) -> list[Entry]:
    """Entries in the order of their arrival: scheduled messages whose time has passed take the place where they would
    have arrived (ORD-05).

    Args:
        rows: each with the time at which it was stored, ms epoch.
    """
    entries: list[Entry] = []
    arrivals: list[int] = []
    latest: int | None = None
    for time, row in reversed(rows):
        if not row.entries:
            continue
        latest = time if latest is None else min(latest, time)  # it came before those that follow, although it may be
        for entry in reversed(row.entries):  # written after them
            entries.append(entry)
            arrivals.append(max(latest, entry.envelope.delivery_time))
            entry.envelope.compact()
    entries.reverse()
    arrivals.reverse()
    return [entries[at] for at in sorted(range(len(entries)), key=arrivals.__getitem__)]
