"""Collects what must survive the process: events in, batches out, no I/O.

    Queue, Namespace, … ── accepted, handed, acknowledged, … ──► Journal ── cut() ──► Write ──► Store.write
                                                                                        (one per group commit)

The domain's verbs are synchronous, and the journal is cut only between two of them. So everything that one verb does (a
commit, a move to the dead-letter queue) is on disk as a whole or not at all. A verb that takes several turns, such as
publishing a large batch, delays the cut; or it has a :class:`Share` of its own, and writes of others go on meanwhile.

A write has a number, and consists of batches. A batch is what was done without a break for the next write, or for one
share; it also ends when it is large. A share's batches are in the write that is cut after its verb is complete, so a
batch may be written after batches with higher ids. Ids ascend with time whatever the write, and a message's number is
its batch's id and its place there. So the order of numbers is the order in which messages were accepted.

The new messages of a large share are written ahead, some with each write, while its verb is at work. They are there
once the rest of the share is written, and the write that does that is small, since the verb waits before its end until
most are written: others do not wait long for theirs.

A topic's message is stored once, however many durable subscriptions got it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from sievemq_broker.domain.admission import UNLIMITED, NoRoomError, Overfull
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.ports import Observed, Stored, Taker
from sievemq_broker.matching.condition import Condition
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import DELIVERY_MODE, Envelope
from sievemq_core.message.headers import PERSISTENT

#: The number of a message is ``batch << PLACE_BITS | place``; 0 is no number.
PLACE_BITS: Final = 24

#: The state of a message is its count of deliveries, with a flag while a consumer has it, or GONE; and above these bits
#: its count of attempts.
HELD_FLAG: Final = 0x8000
GONE_STATE: Final = 0xFFFF
MAX_COUNT: Final = 0x7FFE
STATE_BITS: Final = 16

#: Kinds of definitions.
NAMESPACE: Final = "namespace"
DESTINATION: Final = "destination"
SUBSCRIPTION: Final = "subscription"
PAUSED: Final = "paused"
TAP: Final = "tap"
PUBLISHED: Final = "published"
TEMPORARY: Final = "temporary"
STAGE: Final = "stage"
CONNECTION: Final = "connection"
#: What was changed at run time of the settings.
CHANGED: Final = "changed"

#: The surcharge for each message in the size of a batch. A store says how large its batches may be; a place must fit
#: its bits at least.
ENTRY_BYTES: Final = 64
BATCH_BYTES: Final = ENTRY_BYTES << PLACE_BITS - 2

#: Bytes of new messages that a write has ahead of their share's end; a smaller share has none written ahead. Storing
#: them takes some ten milliseconds.
AHEAD_BYTES: Final = 1024 * 1024

#: Kinds of definitions that do not wait for a share: messages and definitions of others refer to them, or change them.
_APART: Final = frozenset((NAMESPACE, DESTINATION, SUBSCRIPTION, PAUSED, TAP))

#: Room in the store below which each PERSISTENT message is checked. Above it only transactions are, since other
#: messages that come while one batch is written are far less.
SCARCE_BYTES: Final = 1024 * 1024 * 1024

#: Bytes that are accepted before the room is measured again. The reserve of a store is larger.
MEASURED_BYTES: Final = 1024 * 1024

_T = TypeVar("_T")

Key: TypeAlias = tuple[str | int | None, ...]
"""Identifies a definition within its kind."""


def state_of(count: int, attempts: int) -> int:
    return min(attempts, MAX_COUNT) << STATE_BITS | min(count, MAX_COUNT)


class Batch:
    """Consecutive changes that are written together.

    Attributes:
        id: ascends with the time at which batches begin.
        accepted: new messages, by place: the queue's number, the message's packed envelope. The same bytes object
            several times in a row is one message of a topic.
        ahead: how many new messages were written ahead; then none are left here.
        held: numbers of messages that were delivered for the first time.
        states: the latest states of other messages, by number.
        recorded: how often a state was recorded, over an earlier one as well.
        gone: numbers of messages that are gone; a number may be there twice.
        failures: time of the first attempt (ms epoch), by number.
        definitions: by kind and key; None for a deleted one.
        size: bytes of the new messages and definitions.
    """

    __slots__ = (
        "accepted", "ahead", "base", "definitions", "failures", "gone", "held", "id", "recorded", "size", "states",
    )  # fmt: skip

    def __init__(self, batch_id: int, accepted: list[tuple[int, bytes]] | None = None, size: int = 0) -> None:
        self.id = batch_id
        self.base = batch_id << PLACE_BITS
        self.accepted: list[tuple[int, bytes]] = [] if accepted is None else accepted
        self.ahead = 0
        self.held: list[int] = []
        self.states: dict[int, int] = {}
        self.recorded = 0
        self.gone: list[int] = []
        self.failures: dict[int, int] = {}
        self.definitions: dict[tuple[str, Key], tuple[Any, ...] | None] = {}
        self.size = size

    def add(self, owner: int, packed: bytes) -> int:
        """Add a new message of the queue or tap with this number. Returns the message's own number."""
        accepted = self.accepted
        number = self.base | len(accepted)
        self.size += ENTRY_BYTES if accepted and accepted[-1][1] is packed else len(packed) + ENTRY_BYTES
        accepted.append((owner, packed))
        return number

    def record(self, number: int, state: int) -> None:
        """Record the state of a message, in place of an earlier one."""
        self.states[number] = state
        self.recorded += 1

    def __bool__(self) -> bool:
        return bool(self.accepted or self.ahead or self.held or self.gone or self.states or self.definitions)

    def take_ahead(self) -> Batch:
        """Take the new messages, which are written ahead."""
        taken = Batch(self.id, self.accepted, self.size)
        self.ahead = len(self.accepted)
        self.accepted, self.size = [], 0
        return taken

    def sort(self) -> None:
        """Sort the numbers of messages, and drop duplicates."""
        self.held = _ascending(self.held)
        self.gone = _ascending(self.gone)

    def split(self, ids: set[int], *, inside: bool) -> Batch:
        """Move outcomes of messages to another batch with this id.

        Args:
            inside: move the outcomes of their messages; otherwise the outcomes of all other messages, except that they
                are gone.
        """
        other = Batch(self.id)
        self.held, moved = _divided(self.held, ids, inside)
        other.held.extend(moved)
        for number in [number for number in self.states if (number >> PLACE_BITS in ids) is inside]:
            other.states[number] = self.states.pop(number)
            if number in self.failures:
                other.failures[number] = self.failures.pop(number)
        if inside:
            self.gone, moved = _divided(self.gone, ids, inside)
            other.gone.extend(moved)
        return other

    def __repr__(self) -> str:
        return f"<Batch {self.id} accepted={len(self.accepted)} gone={len(self.gone)}>"


class Write(NamedTuple):
    """What is written at once, all or nothing. False if it is empty; then the next one has the same number.

    Attributes:
        number: 1, 2, 3, …; a store knows by it a write that it has already.
        parts: batches, by ascending id. They are applied in this order, except that outcomes of messages of earlier
            writes may come before new messages.
        next_batch: above the id of every batch so far, also of those that are not written yet.
        ahead: new messages that are there once a later write has a batch with the same id.
    """

    number: int
    parts: tuple[Batch, ...]
    next_batch: int
    ahead: tuple[Batch, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parts or self.ahead)

    @property
    def bytes(self) -> int:
        return sum([part.size for part in (*self.parts, *self.ahead)])


class Mark:
    """The next write, for those that wait for it.

    Attributes:
        stored: it is on disk.
    """

    __slots__ = ("stored",)

    def __init__(self) -> None:
        self.stored = False

    def reach(self) -> None:
        self.stored = True


class Share:
    """What one verb that takes several turns does. All of it is in one write, after the verb is complete.

    That goes for new messages, messages that are gone, and definitions. These do not wait for the rest of the share,
    but are in the next write: deliveries and returns of messages that the share has not added, since later ones may
    follow meanwhile; and what is done :attr:`~Journal.apart`. On the other hand, what others do with a new message of
    the share is written with it.

    A tap's sequences have no holes, so a tap whose copies are in a share must not be read beyond them before they are
    written. The stored progress of the verb's connection must not count the verb before it is complete.

    Attributes:
        unwritten: bytes of new messages that are not written ahead.
    """

    __slots__ = ("_ids", "_listeners", "_mark", "_unwritten", "parts", "unwritten")

    def __init__(self) -> None:
        self.parts: list[Batch] = []
        #: Those with new messages, but for those that are written ahead.
        self._unwritten: deque[Batch] = deque()
        self.unwritten = 0
        self._ids: set[int] = set()
        self._mark: Mark | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def stored(self) -> bool:
        return self._mark is not None and self._mark.stored

    def has(self, number: int) -> bool:
        return number >> PLACE_BITS in self._ids

    def when_complete(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def complete(self, mark: Mark) -> None:
        self._mark = mark
        for listener in self._listeners:
            listener()

    def add(self, batch: Batch) -> Batch:
        """Add what was done without a break. Returns what does not wait for the share's end."""
        if batch.accepted:
            self._ids.add(batch.id)
            self._unwritten.append(batch)
            self.unwritten += batch.size
        free = batch.split(self._ids, inside=False)
        if batch:
            self.parts.append(batch)
        return free

    def take_ahead(self, size: int) -> list[Batch]:
        """Take new messages of about so many bytes, which are written ahead."""
        taken: list[Batch] = []
        while self._unwritten and size > 0:
            batch = self._unwritten.popleft().take_ahead()
            size -= batch.size
            self.unwritten -= batch.size
            taken.append(batch)
        return taken

    def take_from(self, batch: Batch) -> None:
        outcomes = batch.split(self._ids, inside=True)
        if outcomes:
            self.parts.append(outcomes)


def _divided(numbers: list[int], ids: set[int], inside: bool) -> tuple[list[int], list[int]]:
    if inside and (not ids or not numbers or max(numbers) >> PLACE_BITS < min(ids)):
        return numbers, []
    moved = [number for number in numbers if (number >> PLACE_BITS in ids) is inside]
    if not moved:
        return numbers, moved
    return [number for number in numbers if (number >> PLACE_BITS in ids) is not inside], moved


def _ascending(numbers: list[int]) -> list[int]:
    distinct = set(numbers)
    if len(distinct) < len(numbers):
        return sorted(distinct)
    numbers.sort()
    return numbers


class Ledger:
    """Writes the events of one queue to the journal: an :class:`~sievemq_broker.domain.ports.Observer` that costs a few
    dictionary operations a message.
    """

    __slots__ = ("journal", "number")

    def __init__(self, journal: Journal, number: int) -> None:
        self.journal = journal
        self.number = number

    def accepted(self, queue: Observed, entry: Entry) -> None:
        envelope = entry.envelope
        if envelope.fields[DELIVERY_MODE] != PERSISTENT:
            entry.keep(0)
            return
        entry.keep(self.journal.keep(self.number, envelope.packed))

    def handed(self, queue: Observed, entry: Entry, consumer: Taker) -> None:
        """A message is being delivered to a consumer: from now on an application may have seen it."""
        stored = entry.stored
        if stored:
            journal = self.journal
            needs, need = consumer.port.needs, journal.need_of(stored) if journal.shares else journal.mark
            if not needs or needs[-1] is not need:
                needs.append(need)
            batch = journal.batch
            count = entry.count
            if count or (batch.states and stored in batch.states):
                batch.record(stored, state_of(count, entry.attempts) | HELD_FLAG)
            else:
                batch.held.append(stored)

    def released(self, queue: Observed, entry: Entry) -> None:
        if entry.stored:
            self.journal.batch.record(entry.stored, state_of(entry.count, entry.attempts))

    def returned(self, queue: Observed, entry: Entry) -> None:
        if entry.stored:
            batch = self.journal.batch
            batch.record(entry.stored, state_of(entry.count, entry.attempts))
            if failed := entry.failed:
                batch.failures[entry.stored] = failed

    def failed(self, queue: Observed, entry: Entry) -> None:
        if entry.stored:
            batch = self.journal.batch
            batch.record(entry.stored, state_of(entry.count, entry.attempts) | HELD_FLAG)
            batch.failures[entry.stored] = entry.failed

    def acknowledged(self, queue: Observed, entry: Entry, by: object = None) -> None:
        stored = entry.stored
        if stored:
            self.journal.batch.gone.append(stored)

    expired = removed = acknowledged

    def dead_lettered(self, queue: Observed, entry: Entry, reason: str) -> None:
        """A message left this queue; its new place was stored before."""
        self.acknowledged(queue, entry)

    def refused(self, queue: Observed, envelope: Envelope) -> None:
        """The message was never stored."""

    def unreadable(self, queue: Observed, entry: Entry, error: Exception) -> None:
        """The message stays."""


class Lacking:
    """Room that the disk lacks for a message or a transaction, as a limit at which its sender waits.

    Args:
        size: its bytes.
    """

    __slots__ = ("_journal", "_size", "refuses")

    def __init__(self, journal: Journal, size: int, refuses: bool) -> None:
        self._journal = journal
        self._size = size
        self.refuses = refuses

    @property
    def has_room(self) -> bool:
        return self._journal.refusing is None and self._journal.has_room(self._size)

    @property
    def limit_text(self) -> str:
        return f"the disk of the data directory is full: it has no room for {self._size:,} bytes"


class Journal:
    """Collects what is to be stored, write after write.

    Args:
        next_number: number of the first queue to come; none is ever given twice.
        batch_bytes: see :attr:`~sievemq_broker.domain.store.Saved.batch_bytes`.

    Attributes:
        ahead_bytes: of large shares that a write has ahead.
        batch: being gathered.
        mark: of the next write.
        shares: those of verbs that are not complete.
        holds: verbs that take more than a turn and have not come to their end: what they do is in one write.
        refusing: why PERSISTENT messages are not taken now (the disk is full); None while they are.
        scarce: the disk has so little room that each message is checked.
        lacks: how often a message or transaction was too large for what room the disk had.
    """

    __slots__ = (
        "_apart", "_batch_bytes", "_complete", "_defined", "_fails", "_hurries", "_measure", "_measured",
        "_next_batch", "_next_number", "_next_write", "_room", "_share", "_under_way", "_waiting", "_writing",
        "ahead_bytes", "batch", "holds", "lacks", "mark", "refusing", "scarce", "shares",
    )  # fmt: skip

    def __init__(
        self, next_batch: int = 1, next_number: int = 1, next_write: int = 1, batch_bytes: int = BATCH_BYTES
    ) -> None:
        self._next_batch = next_batch
        self._next_number = next_number
        self._next_write = next_write
        self._batch_bytes = min(batch_bytes, BATCH_BYTES)
        self.ahead_bytes = AHEAD_BYTES
        #: Other batches of the next write.
        self._complete: list[Batch] = []
        #: How often something was defined.
        self._defined = 0
        self.mark = Mark()
        #: That of the write under way.
        self._under_way: Mark | None = None
        #: Called once the next write is on disk; and whether nothing waits for that any more.
        self._waiting: list[Callable[[], None]] = []
        self._hurries = False
        self.shares: dict[Share, None] = {}
        #: The one for which the present batch is gathered.
        self._share: Share | None = None
        self.batch = self._new_batch()
        self._apart: Batch | None = None
        self.holds = 0
        self.refusing: Overfull | None = None
        self.scarce = False
        self.lacks = 0
        self._fails = True
        #: The room of the store when it was measured last, and what was unwritten then.
        self._measure: Callable[[], int] | None = None
        self._room = UNLIMITED
        self._measured = 0
        #: Bytes of the write that is under way.
        self._writing = 0

    def hold(self) -> None:
        """A verb begins that takes more than a turn."""
        self.holds += 1

    def let_go(self) -> None:
        self.holds -= 1

    @property
    def has_changes(self) -> bool:
        return bool(self._complete or self.batch)

    @property
    def has_ahead(self) -> bool:
        """A share has become so large that some of it should be written."""
        return any(share.unwritten >= self.ahead_bytes for share in self.shares)

    def cut(self) -> Write:
        """Return everything for the next write. Called only between two verbs of the domain, never while a verb holds
        it or works on its share."""
        assert self._share is None
        self._seal()
        parts, self._complete = self._complete, []
        for share in self.shares:
            for part in parts:
                share.take_from(part)
        parts = [part for part in parts if part]
        parts.sort(key=lambda part: part.id)
        write = Write(self._next_write, tuple(parts), self._next_batch, tuple(self._take_ahead()))
        if write:
            self._next_write += 1
        self._writing = write.bytes
        self._under_way, self.mark = self.mark, Mark()
        return write

    def _take_ahead(self) -> list[Batch]:
        taken: list[Batch] = []
        for share in self.shares:
            if share.unwritten >= self.ahead_bytes:
                taken += share.take_ahead(self.ahead_bytes - sum([batch.size for batch in taken]))
        return taken

    def written(self) -> None:
        self._writing = 0
        if self._under_way is not None:
            self._under_way.reach()
            self._under_way = None
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for listener in waiting:
            listener()

    def lags(self, share: Share) -> bool:
        """True if so much of a share is not written ahead that its verb must not end yet."""
        return share.unwritten >= 2 * self.ahead_bytes and not self._hurries

    def await_write(self, listener: Callable[[], None]) -> None:
        """Call this once a write is on disk: a verb waits for it before its end."""
        self._waiting.append(listener)

    @property
    def is_awaited(self) -> bool:
        """A verb waits for the next write."""
        return bool(self._waiting)

    def hurry(self) -> None:
        """The broker stops: no verb waits for a write any more."""
        self._hurries = True
        self._wake()

    @property
    def extent(self) -> tuple[int, ...]:
        """Differs after anything was recorded, over an earlier value as well."""
        batch = self.batch
        lengths = len(batch.accepted), len(batch.held), len(batch.gone)
        return (batch.id, self._defined, batch.recorded, *lengths)

    # -- which output waits for which write ---------------------------------------------------------------------

    def need_of(self, number: int) -> Stored:
        """What must be written before a client may see the message with this number."""
        if self._share is not None and number >> PLACE_BITS == self.batch.id:
            return self._share
        return next((share for share in self.shares if share.has(number)), self.mark)

    @property
    def unwritten(self) -> list[Stored]:
        writes = (self._under_way, self.mark if self.has_changes else None)
        return [write for write in writes if write is not None]

    def missing(self, needs: list[Stored]) -> list[Stored]:
        return [need for need in needs if not need.stored and (need is not self.mark or self.has_changes)]

    # -- batches and shares -------------------------------------------------------------------------------------

    def together(self, share: Share, act: Callable[[], _T]) -> _T:
        before = self.turn_to(share)
        try:
            return act()
        finally:
            self.turn_to(before)

    def turn_to(self, share: Share | None) -> Share | None:
        """What happens from now on belongs to a share, or (None) to the next write. Returns what it belonged to
        before."""
        before = self._share
        if share is not before:
            self._seal()
            self._share = share
            if share is not None:
                self.shares[share] = None
        return before

    def complete(self, share: Share) -> None:
        """A share's verb is complete: all of it is in the next write."""
        assert share is not self._share
        self.shares.pop(share, None)
        self._complete += share.parts
        mark = self.mark
        if not share.parts:
            mark = Mark()
            mark.reach()
        share.complete(mark)

    @property
    def share(self) -> Share | None:
        """The share that what happens now belongs to; None for none."""
        return self._share

    @property
    def apart(self) -> Batch:
        """The batch for what does not wait for a share that is at work: what a tap drops, and what others refer to."""
        if self._share is None:
            return self.batch
        if self._apart is None:
            self._apart = self._new_batch()
        return self._apart

    def _seal(self) -> None:
        """The present batch ends, and the next one begins."""
        batch = self.batch
        self.batch = self._new_batch()
        if self._apart is not None:
            self._complete.append(self._apart)
            self._apart = None
        if self._share is not None:
            batch = self._share.add(batch)
        if batch:
            self._complete.append(batch)

    def _new_batch(self) -> Batch:
        batch = Batch(self._next_batch)
        self._next_batch += 1
        return batch

    # -- the room of the store ----------------------------------------------------------------------------------

    def measure_with(self, measure: Callable[[], int], fails: bool) -> None:
        """Accept only messages for which the store has room.

        Args:
            measure: bytes of new messages that could be written now, not counting what is unwritten.
            fails: senders are refused; otherwise they wait.
        """
        self._measure = measure
        self._fails = fails
        self.measured()

    def measured(self) -> int:
        if self._measure is not None:
            self._room = self._measure()
            self._measured = self._unwritten
        return self._room

    def watch(self, scarce: bool) -> None:
        self.scarce = scarce

    @property
    def guards(self) -> bool:
        """True while single messages must be checked."""
        return self.scarce or self.refusing is not None

    @property
    def _unwritten(self) -> int:
        parts = [*self._complete, *[part for share in self.shares for part in share.parts]]
        return self._writing + self.batch.size + sum([part.size for part in parts])

    def has_room(self, size: int) -> bool:
        need = self._unwritten + size
        if need - self._measured > MEASURED_BYTES or need > self._room:
            self.measured()
        return need <= self._room

    def keep(self, owner: int, packed: bytes) -> int:
        """Store a new message.

        Returns:
            The message's number.
        """
        batch = self.batch
        number = batch.add(owner, packed)
        if batch.size > self._batch_bytes:
            self._seal()  # large enough: the next message goes to another batch
        return number

    def refuse(self, full: Overfull | None) -> None:
        """Accept no PERSISTENT messages while the disk is full; None: accept them again."""
        if self.refusing is not None:
            self.refusing.end()
        self.refusing = full

    def define(self, kind: str, key: Key, value: tuple[Any, ...] | None) -> None:
        """Store a small value under a name, to be restored after a restart.

        Args:
            kind: what it is; :meth:`~sievemq_broker.domain.store.Saved.definitions` gives all of a kind back.
            value: what msgpack can pack; None to forget it.
        """
        batch = self.apart if kind in _APART else self.batch
        batch.definitions[kind, key] = value
        self._defined += 1

    def check(self, size: int, where: str, what: str = "PERSISTENT messages") -> None:
        """Check that messages of so many bytes can be kept now.

        Args:
            size: bytes.
            what: of its messages must be kept.

        Raises:
            RequestError: RESOURCE_ALLOCATION, they cannot.
            NoRoomError: they cannot, but their sender may wait until they can.
        """
        full: Overfull | Lacking | None = self.refusing
        if full is None:
            if self.has_room(size):
                return
            self.lacks += 1
            full = Lacking(self, size, self._fails)
        text = f"{where} takes no {what} now: {full.limit_text}"
        details: dict[str, object] = {"destination": where, "limit": "disk"}
        if full.refuses:
            raise RequestError(text, ErrorCode.RESOURCE_ALLOCATION, details)
        raise NoRoomError(full, text, details)

    # -- what exists --------------------------------------------------------------------------------------------

    def ledger(self, number: int) -> Ledger:
        """The observer that stores the messages of a queue, under this number."""
        return Ledger(self, number)

    def namespace_made(self, name: str) -> None:
        self.define(NAMESPACE, (name,), ())

    def namespace_deleted(self, name: str) -> None:
        self.define(NAMESPACE, (name,), None)

    def destination_made(self, place: Place, number: int) -> None:
        """A destination was created that is not temporary.

        Args:
            number: of the queue; 0 for a topic, which keeps no messages: its subscriptions do.
        """
        self.define(DESTINATION, (place.namespace, place.label), (number,))

    def destination_deleted(self, place: Place) -> None:
        self.define(DESTINATION, (place.namespace, place.label), None)

    def destination_paused(self, place: Place, paused: bool) -> None:
        self.define(PAUSED, (place.namespace, place.label), () if paused else None)

    def subscription_made(
        self, place: Place, number: int, condition: Condition | None, *, no_local: bool, shared: bool
    ) -> None:
        """A durable subscription was created.

        Args:
            condition: its selector, None for none.
            no_local: not what connections with its client id publish.
        """
        text, dialect = (None, None) if condition is None else (condition.text, condition.dialect.name)
        key = place.namespace, place.client_id, place.subscription
        self.define(SUBSCRIPTION, key, (number, place.topic, text, dialect, no_local, shared))

    def subscription_ended(self, place: Place) -> None:
        self.define(SUBSCRIPTION, (place.namespace, place.client_id, place.subscription), None)

    def take_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def numbers_from(self, number: int) -> None:
        self._next_number = max(self._next_number, number)
