"""A store that is two dictionaries, and what of a broker must be there again after it was killed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sievemq_broker.domain import Broker, Queue
from sievemq_broker.domain.entry import DELAYED, Entry
from sievemq_broker.domain.journal import (
    BATCH_BYTES,
    GONE_STATE,
    HELD_FLAG,
    PLACE_BITS,
    STATE_BITS,
    Batch,
    Journal,
    Key,
    Write,
)
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import Saved, Store
from sievemq_broker.domain.topic import Topic
from sievemq_broker.store.blob import SavedEntry
from sievemq_core.message.envelope import MESSAGE_ID, BodyKind, Envelope, pack_properties

NOW = 1_700_000_000_000


def message(
    name: str, *, mode: int = 2, priority: int = 4, expires: int = 0, at: int = 0, body: bytes = b"", **properties: Any
) -> Envelope:
    """A message whose id is `name`, PERSISTENT unless `mode` says otherwise."""
    packed, letters = pack_properties(properties)
    kind = int(BodyKind.BYTES)
    return Envelope((name, NOW, priority, mode, expires, at, None, None, None, packed, letters, kind, body))


def name_of(packed: bytes) -> str:
    return str(Envelope.from_packed(packed).fields[MESSAGE_ID])


class DictStore:
    """The obvious store: what SqliteStore must agree with, and a picture of any moment at no cost."""

    def __init__(self, batch_bytes: int = BATCH_BYTES) -> None:
        self.batch_bytes = batch_bytes
        self.next_write = self.next_batch = 1
        self.messages: dict[int, SavedEntry] = {}
        self.ahead: dict[int, list[SavedEntry]] = {}
        self.defined: dict[tuple[str, Key], tuple[Any, ...]] = {}

    def copy(self) -> DictStore:
        """As it is now."""
        other = DictStore(self.batch_bytes)
        other.next_write, other.next_batch = self.next_write, self.next_batch
        other.messages = dict(self.messages)
        other.ahead = dict(self.ahead)
        other.defined = dict(self.defined)
        return other

    def write(self, write: Write, now: int) -> None:
        if not write or write.number < self.next_write:
            return
        assert write.number == self.next_write
        for part in write.parts:
            new = self.ahead.pop(part.id) if part.ahead else _saved(part, now)
            self.messages.update((entry.number, entry) for entry in new)
        for part in write.parts:
            self._apply(part)
        self.ahead.update((part.id, _saved(part, now)) for part in write.ahead)
        self.next_write, self.next_batch = write.number + 1, max(self.next_batch, write.next_batch)

    def _apply(self, batch: Batch) -> None:
        for number in batch.held:
            self._set(number, HELD_FLAG, 0)
        for number, state in batch.states.items():
            self._set(number, state, batch.failures.get(number, 0))
        for number in batch.gone:
            self._set(number, GONE_STATE, 0)
        for (kind, key), value in batch.definitions.items():
            if value is None:
                self.defined.pop((kind, key), None)
            else:
                self.defined[kind, key] = value

    def _set(self, number: int, state: int, failed: int) -> None:
        entry = self.messages.get(number)
        if entry is None:
            return
        if state == GONE_STATE:
            del self.messages[number]
        else:
            failed = (failed or entry.failed) if state >> STATE_BITS else 0
            self.messages[number] = SavedEntry(number, entry.owner, entry.packed, state, failed, entry.time)

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        return {key: value for (found, key), value in self.defined.items() if found == kind}

    def batches(self) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        return batches_of([self.messages[number] for number in sorted(self.messages)])


class Fates(NamedTuple):
    """What has become of the messages of a batch, by place."""

    states: list[int]
    failures: dict[int, int]
    attempts: dict[int, int]


def batches_of(entries: Iterable[SavedEntry]) -> Iterator[tuple[SavedBatch, Fates | None]]:
    """Messages, by ascending number, as a store has them."""
    for batch_id, found in itertools.groupby(entries, lambda entry: entry.number >> PLACE_BITS):
        group = list(found)
        places = [entry.number & (1 << PLACE_BITS) - 1 for entry in group]
        owners, packs = [entry.owner for entry in group], [entry.packed for entry in group]
        batch = SavedBatch(batch_id, group[0].time, owners, places, packs)
        fates = Fates([GONE_STATE] * (places[-1] + 1), {}, {})
        for place, entry in zip(places, group, strict=True):
            fates.states[place] = entry.state & (1 << STATE_BITS) - 1
            fates.failures[place], fates.attempts[place] = entry.failed, entry.state >> STATE_BITS
        yield batch, fates if any(entry.state for entry in group) else None


def saved_in(store: Saved) -> list[SavedEntry]:
    """All messages that are not gone, by ascending number."""
    found: list[SavedEntry] = []
    for batch, state in store.batches():
        for run in batch.runs:
            messages = list(run.kept(None))
            states, failures = ([0] * len(messages), [0] * len(messages))
            if state is not None:
                states, failures = run.states(state), run.failures(state)
            for (number, packed), value, failed in zip(messages, states, failures, strict=True):
                if value != GONE_STATE:
                    found.append(SavedEntry(number, run.owner, packed, value, failed, batch.time))
    return sorted(found)


def _saved(batch: Batch, now: int) -> list[SavedEntry]:
    return [
        SavedEntry(batch.base | place, owner, packed, 0, 0, now) for place, (owner, packed) in enumerate(batch.accepted)
    ]


def write_of(store: DictStore | Store, *parts: Batch) -> Write:
    """The store's next write, of these batches."""
    return Write(store.next_write, parts, max(part.id for part in parts) + 1)


def write(store: DictStore | Store, *parts: Batch) -> None:
    """Write batches as the next write."""
    store.write(write_of(store, *parts), NOW)


def parts_with(batch: Batch, late: list[Batch], chance: random.Random) -> list[Batch]:
    """The batches of the next write, of which this may be one; none if it is of a verb that takes several turns.

    Args:
        late: those of such verbs, which are written after batches with higher ids.
    """
    if chance.random() < 0.2:
        late.append(batch)
        return []
    if chance.random() < 0.3:
        parts = sorted([*late, batch], key=lambda part: part.id)
        late.clear()
        return parts
    return [batch]


def random_writes(chance: random.Random) -> Iterator[list[Batch]]:
    """The batches of fifty writes: new messages, what becomes of those that are there, and definitions. Some belong to
    verbs that take several turns: they are written after batches with higher ids."""
    numbers: list[int] = []
    late: list[Batch] = []
    for step in range(1, 51):
        batch = Batch(step)
        for place in range(20 if chance.random() < 0.1 else chance.randrange(3)):
            batch.accepted.append((1, message(f"m{step}.{place}", body=b"x" * 50).packed))
        parts = parts_with(batch, late, chance)
        if not parts:
            continue
        fresh = [part.base | place for part in parts for place in range(len(part.accepted))]
        for number in chance.sample(numbers + fresh, min(len(numbers + fresh), chance.randrange(4))):
            if chance.random() < 0.6:
                batch.gone.append(number)
                numbers = [each for each in numbers if each != number]
                fresh = [each for each in fresh if each != number]
            else:
                batch.states[number] = chance.choice((1, 2, HELD_FLAG))
        numbers += fresh
        batch.definitions["kind", (chance.randrange(3),)] = None if chance.random() < 0.2 else (step,)
        yield parts


def durable_queues(broker: Broker) -> Iterator[tuple[str, Queue]]:
    """All queues whose messages are kept, by a name that is theirs alone."""
    for namespace in broker.namespaces.values():
        for destination in namespace.destinations.values():
            if isinstance(destination, Queue) and not destination.label.startswith("temporary"):
                yield f"{namespace.name} {destination.label}", destination
        for (client_id, name), subscription in namespace.subscriptions.durable.items():
            yield f"{namespace.name} {client_id} {name}", subscription.queue


def entries_of(queue: Queue) -> list[tuple[Entry, bool]]:
    """Every message of a queue, and whether a consumer has it."""
    found = [(entry, False) for entry in queue.main.waits(-1, queue.depth)]
    found += [(entry, False) for entry in queue.scheduled.values()]
    for consumer in (*queue.consumers, *queue.holders):
        found += [(entry, True) for entry in consumer.window if entry is not None]
    return found


def picture(broker: Broker) -> dict[str, Any]:
    """What must be there again if the process ended now: what exists, and per queue each message with its deliveries
    and attempts, in the order of delivery, those that are scheduled apart. A message with a consumer counts as
    delivered once more."""
    picture: dict[str, Any] = {}
    for namespace in broker.namespaces.values():
        kept = [label for label in namespace.destinations if not label.startswith("temporary")]
        picture[f"namespace {namespace.name}"] = sorted(kept)
        if paused := sorted(label for label in kept if namespace.destinations[label].paused):
            picture[f"paused {namespace.name}"] = paused
        for (client_id, name), found in namespace.subscriptions.durable.items():
            condition = found.condition
            text = None if condition is None else condition.text
            picture[f"subscription {namespace.name} {client_id} {name}"] = (
                found.topic.label, text, found.no_local, found.shared,
            )  # fmt: skip
    for where, queue in durable_queues(broker):
        waiting: list[tuple[tuple[int, bool, int], str, int, int]] = []
        scheduled: list[tuple[str, int]] = []
        for entry, held in entries_of(queue):
            if not entry.stored:
                continue
            count = entry.count + held
            name = str(entry.envelope.fields[MESSAGE_ID])
            if entry.state == DELAYED and not count:
                scheduled.append((name, entry.envelope.delivery_time))
            else:
                # By its number, which a restart keeps; a message that was scheduled gets another sequence.
                waiting.append(((-entry.envelope.priority, not count, entry.stored), name, count, entry.attempts))
        picture[f"waiting {where}"] = [row[1:] for row in sorted(waiting)]
        picture[f"scheduled {where}"] = sorted(scheduled)
    return picture


def is_topic(destination: object) -> bool:
    return isinstance(destination, Topic)


def journalled(broker: Broker | None = None) -> Broker:
    """A broker that writes a journal, and keeps nothing."""
    broker = broker or Broker()
    broker.keep_in(Journal())
    return broker
