"""A tap: a named cursor on a destination, read in ranges that can be read again until they are acknowledged.

    copy      keeps a copy of each arrival; the queue or topic is not affected. At its limit the oldest copies are
              dropped, and the reader is informed of the loss.
    outcomes  keeps the outcomes of messages, see outcome_tap.py; otherwise as copy.
    drain     takes messages out of a queue; acknowledged messages are gone. At its limit it takes no more. If its
              reader is silent for the lease, its messages return to the queue, marked as redelivered.

Readers acknowledge by sequence and name the tap by its id. An id is never used again, so a recreated tap is
not mistaken for the old one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.entry import DELAYED
from sievemq_broker.domain.failure import Party
from sievemq_broker.domain.journal import TAP, Journal
from sievemq_broker.domain.origin import Origin, RequestId
from sievemq_broker.domain.ports import Stored, deliver_each
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.tap_log import OVERHEAD_BYTES, TapLog, Tapped
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.view import ALL_SCANNED
from sievemq_broker.domain.work import TURN, Budget, Task, finish
from sievemq_broker.matching.condition import Condition, is_true, units, units_of
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_PROPERTY_CHARS
from sievemq_core.message.envelope import Envelope

Mode: TypeAlias = Literal["copy", "outcomes", "drain"]

#: Messages that a drain tap takes for one request: two or three milliseconds of a turn.
STEP: Final = 2_000


#: Messages of its backlog that a copy tap examines whenever another one arrives.
_CATCH_UP: Final = 4


@dataclass(frozen=True, slots=True)
class TapTerms:
    """The limits of a tap.

    Attributes:
        messages: that it may hold.
        bytes: the same, with :data:`OVERHEAD_BYTES` for each message.
        age: ms that a copy tap keeps a message; 0 for no limit.
        lease: ms without a word from its reader, after which a drain tap gives back what it holds and a copy tap ends;
            0 for never (copy taps only).
    """

    messages: int
    bytes: int
    age: int
    lease: int


class Keeper(Protocol):
    """The part of its namespace that a tap needs."""

    @property
    def journal(self) -> Journal | None:
        """The journal that keeps taps across restarts."""

    @property
    def deadlines(self) -> Deadlines:
        """The broker's deadlines, for leases and for the age of messages."""

    def drop(self, tap: Tap, now: int) -> None:
        """The lease of a tap has ended: delete the tap."""

    def stamp_soon(self, tap: Tap) -> None:
        """A tap has unrecorded messages: call its `stamp` in a task, until it is no longer :attr:`behind`."""


class Tap:
    """The common part of all kinds.

    Args:
        keeper: its namespace.
        tap_id: never used again.
        name: the reader's name for it.
        destination: its queue or topic.
        condition: selects messages; None for all.
        terms: its limits.
        now: ms epoch.
        stored: the journal keeps it, and its messages, across restarts.

    Attributes:
        log: messages that the reader has not acknowledged.
        acknowledged: the reader has processed everything up to this sequence.
        lost: up to this sequence messages were dropped before the reader had processed them: no room, too old (copy),
            or returned to the queue (drain).
        missed: the number of these messages.
        owner: the user that created it; None for anonymous.
        number: the journal stores a copy tap's messages under it; 0 without one.
        heard: time of the reader's last request, ms epoch.
        reader: the connection of that request; None before the first.
        claim: the name of the only reader that may read, and its connection; None if any may.
        origin: the request that created it.
        ended: why it takes nothing more; None while it does.
        open: False once it is gone.
    """

    mode: Mode
    __slots__ = (
        "__weakref__", "_armed", "_keeper", "_stored", "acknowledged", "claim", "condition", "destination", "ended",
        "heard", "id", "log", "lost", "missed", "name", "number", "open", "origin", "owner", "reader", "terms",
    )  # fmt: skip

    #: What :class:`Deadlines` needs of an item, see :class:`sievemq_broker.domain.deadlines.Item`.
    state: Final = DELAYED
    sequence: Final = 0

    def __init__(
        self,
        keeper: Keeper,
        tap_id: str,
        name: str,
        destination: Queue | Topic,
        condition: Condition | None,
        terms: TapTerms,
        now: int,
        stored: bool = True,
    ) -> None:
        self._keeper = keeper
        self._stored = stored
        self.id = tap_id
        self.name = name
        self.destination = destination
        self.condition = condition
        self.terms = terms
        self.log = TapLog()
        self.acknowledged = 0
        self.lost = 0
        self.missed = 0
        self.number = 0
        self.owner: str | None = None
        self.origin = Origin()
        self.heard = now
        self.reader: str | None = None
        self.claim: tuple[str, str] | None = None
        self.ended: str | None = None
        self.open = True
        self._armed = False
        self._begin(now)

    def __lt__(self, other: object) -> bool:
        return False  # two deadlines in the same millisecond: any order will do

    def __repr__(self) -> str:
        return f"<Tap {self.name!r} on {self.destination.label} {self.mode} {self.log.first}…{self.log.last}>"

    @property
    def effort(self) -> int:
        """The most that evaluating its selector on a message can cost, in units (condition.units)."""
        return 0 if self.condition is None else units_of(self.condition.effort, MAX_PROPERTY_CHARS)

    @property
    def kept(self) -> bool:
        """True if the journal stores what it holds."""
        return self.number > 0

    @property
    def lag(self) -> int:
        """Messages that its reader has not acknowledged, as far as the tap has them."""
        return len(self.log)

    # -- the reader's verbs -------------------------------------------------------------------------------------

    def read_by(self, request: RequestId) -> None:
        """A request reads it, or is about to."""
        self.reader = request[0]
        self.origin.used_by(request)

    def take_claim(self, reader: str, connection: str, connected: Container[str]) -> None:
        """Make a reader the only one, while its connection is open.

        Args:
            reader: its name; under the same one it may come over another connection.
            connection: that it has now.
            connected: the connections that are there.

        Raises:
            RequestError: ILLEGAL_STATE, another one is.
        """
        if self.claim is not None and self.claim[0] != reader and self.claim[1] in connected:
            raise RequestError(
                f"tap {self.name!r} on {self.destination.label} is being read by another query, over connection "
                f"{self.claim[1]}; each query needs its own tap",
                ErrorCode.ILLEGAL_STATE,
                {"tap": self.id, "claimed": True},
            )
        self.claim = reader, connection

    def hear(self, now: int) -> None:
        """Renew the lease: the reader is active."""
        self.heard = now
        self._arm()

    def look(self, after: int, messages: int, size: int, now: int) -> tuple[int, bool]:
        """The sequence up to which a reader that has read up to `after` may read now. A drain tap takes what is needed
        from its queue.

        Args:
            after: the sequence that it has read up to.
            messages, size: that it wants at most; 0 for all.
            now: ms epoch.

        Returns:
            The sequence, and whether there is more work to do before that is the truth: ask again.
        """
        self.hear(now)
        more = self._fill(after, messages, now)
        return self.log.reach(after, messages, size), more

    def fetch(self, tap_id: str, after: int, upto: int, limit: int, size: int, now: int) -> list[Tapped]:
        """Messages behind `after` up to `upto`. If older ones are lost, the first is a later one.

        Raises:
            RequestError: NOT_FOUND, this is not the tap that the reader means.
        """
        self._check(tap_id)
        self.hear(now)
        return self.log.slice(after, upto, limit, size)

    def acknowledge(self, tap_id: str, upto: int, now: int) -> int:
        """The reader has processed everything up to a sequence. Repeating this is harmless.

        Returns:
            How many messages that was.

        Raises:
            RequestError: NOT_FOUND as :meth:`fetch`; ILLEGAL_STATE if there is no such sequence yet.
        """
        self._check(tap_id)
        self.hear(now)
        if upto > self.log.last:
            raise RequestError(
                f"tap {self.name!r} on {self.destination.label} has come to {self.log.last}; {upto} is beyond that",
                ErrorCode.ILLEGAL_STATE,
                {"last": self.log.last},
            )
        if upto <= self.acknowledged:
            return 0
        self.acknowledged = upto
        self._settle(upto, now)
        done = self.log.drop(upto, self._gone())
        self.record()
        return done

    def _check(self, tap_id: str) -> None:
        if tap_id != self.id:
            raise RequestError(
                f"tap {self.name!r} on {self.destination.label} is not {tap_id:.300} but {self.id}, which "
                "was created later",
                ErrorCode.NOT_FOUND,
                {"tap": self.id},
            )

    # -- what the kinds do differently --------------------------------------------------------------------------

    def _begin(self, now: int) -> None:
        """Begin its work, once the common part is initialised."""
        raise NotImplementedError

    def _fill(self, after: int, messages: int, now: int) -> bool:
        raise NotImplementedError

    def _settle(self, upto: int, now: int) -> None:
        """Messages were acknowledged: what the kind does besides dropping them."""

    def _lapse(self, now: int) -> None:
        """The lease has ended."""
        raise NotImplementedError

    def empty(self, now: int, budget: Budget) -> Task[int]:
        """Release what it holds, except what can be released at once when it closes. Returns the time."""
        raise NotImplementedError

    def close(self, now: int) -> None:
        """Close the tap; a drain tap returns what it holds."""
        raise NotImplementedError

    # -- time ---------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the next deadline."""
        if self._armed or not self.open:
            return
        moments = []
        if self.terms.lease and self._leased():
            moments.append(self.heard + self.terms.lease)
        if self.terms.age and (oldest := self.log.oldest) is not None:
            moments.append(oldest + self.terms.age)
        if moments:
            self._armed = True
            self._keeper.deadlines.push(min(moments), self, self)

    def _leased(self) -> bool:
        """True if the end of the lease would change anything."""
        return True

    def on_deadline(self, entry: object, when: int, now: int) -> None:
        """A deadline has passed; it may have been moved since."""
        self._armed = False
        if not self.open:
            return
        if self.terms.age:
            self._lose(self.log.before(now - self.terms.age + 1))
        if self.terms.lease and self._leased() and now >= self.heard + self.terms.lease:
            self._lapse(now)
        self._arm()

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms: the lease keeps its length."""
        self.heard += by
        self._armed = False  # for another time than the deadline's; a call too many does nothing
        self._arm()

    def on_jump(self, entry: object, by: int) -> None:
        """Nothing to do: :meth:`clock_jumped` sets its deadlines again, since one of them may be a time of the
        calendar."""

    def _lose(self, upto: int) -> None:
        """Drop messages that the reader has not acknowledged, and count them."""
        if upto >= self.log.first:
            self.missed += self.log.drop(upto, self._gone())
            self.lost = upto
            self.record()

    # -- the journal --------------------------------------------------------------------------------------------

    @property
    def _journal(self) -> Journal | None:
        return self._keeper.journal if self._stored else None

    def record(self) -> None:
        """Store the state of the tap in the journal, if there is one.

        After a restart a copy tap is restored with its messages: they are stored under its number. A drain tap is
        restored too, but its messages are on their queue again, marked: they count as lost, and get new sequences."""
        journal = self._journal
        if journal is None:
            return
        condition, terms = self.condition, self.terms
        text, dialect = (None, None) if condition is None else (condition.text, condition.dialect.name)
        behind = self.log.first - 1 if self.number else self.log.last
        limits = terms.messages, terms.bytes, terms.age, terms.lease
        state = (
            self.number, self.id, self.mode, text, dialect, limits, behind, self.acknowledged, self.lost, self.missed,
            self.owner,
        )  # fmt: skip
        journal.define(TAP, self._key, state)

    @property
    def _key(self) -> tuple[str, str, str]:
        place = self.destination.place
        return place.namespace, place.label, self.name

    def resume(self, number: int, behind: int, acknowledged: int, lost: int, missed: int, owner: str | None) -> None:
        """Restore the state that :meth:`record` has stored, without the messages.

        Args:
            number: under which the journal keeps its messages.
            behind: sequence before the first one to come.
            acknowledged, lost, missed, owner: its attributes.
        """
        self.number, self.log = number, TapLog(behind)
        self.acknowledged, self.lost, self.missed, self.owner = acknowledged, lost, missed, owner

    def begin_for(self, request: RequestId | None) -> None:
        """A request has created it."""
        self.origin = Origin(request)

    def take_over(self, owner: str | None, terms: TapTerms) -> None:
        """Give the tap to a user, with these terms from now on."""
        self.owner, self.terms = owner, terms
        self.record()

    def _gone(self) -> list[int] | None:
        """Removes messages from the journal by number, once the tap no longer holds them."""
        journal = self._journal
        return journal.apart.gone if journal is not None and self.number else None

    def forget(self) -> None:
        """Remove the tap and its messages from the journal."""
        journal = self._journal
        if journal is not None:
            self.log.drop(self.log.last, self._gone())
            journal.define(TAP, self._key, None)


class CopyTap(Tap):
    """Keeps copies of arrivals, for a destination that calls it."""

    __slots__ = ("_waiting",)
    mode: Mode = "copy"

    def _begin(self, now: int) -> None:
        #: Messages that waited in the queue when the tap was created, and arrivals since; their selector is not
        #: evaluated yet.
        self._waiting: deque[Envelope] = deque()
        journal = self._journal
        if journal is not None:
            self.number = journal.take_number()
        self._attach()
        self._arm()

    def _attach(self) -> None:
        self.destination.add_tap(self)

    def _detach(self) -> None:
        self.destination.remove_tap(self)

    def take_backlog(self, envelopes: list[Envelope], now: int) -> None:
        """Begin with the messages that wait already."""
        self._waiting.extend(envelopes)
        if self.number and envelopes:
            self._keeper.stamp_soon(self)  # in slices, but in one batch of the journal with the tap

    @property
    def lag(self) -> int:
        return len(self.log) + len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """Bytes that it holds, for the broker's memory limit."""
        return self.log.bytes + OVERHEAD_BYTES * len(self._waiting)

    def empty(self, now: int, budget: Budget) -> Task[int]:
        missed = self.missed
        while len(self.log) > TURN:
            if budget.spent:
                now = yield
            self._lose(self.log.first + TURN - 1)
            self.missed = missed  # no reader needs them any more
            budget.spend(TURN)
        return now

    def copy(self, envelope: Envelope, now: int) -> None:
        """A message has arrived. Cannot fail."""
        waiting = self._waiting
        if waiting:
            waiting.append(envelope)  # it comes after those that were there before
            for _ in range(min(_CATCH_UP, len(waiting))):  # so that they become fewer even without requests
                self._judge(waiting.popleft(), now)
        else:
            self._judge(envelope, now)

    def _wants(self, envelope: Envelope) -> bool:
        if self.condition is None:
            return True
        try:
            return is_true(self.condition, envelope)
        except Exception:
            return False  # D-14: counted as unreadable at its destination

    def _judge(self, envelope: Envelope, now: int) -> None:
        if self.condition is None or self._wants(envelope):
            self._append(envelope.packed, 1, now)

    def _append(self, packed: bytes, count: int, now: int) -> None:
        log, terms = self.log, self.terms
        stored = 0
        if self.number:  # NON_PERSISTENT ones too: sequences without holes are worth the room
            journal = self._journal
            assert journal is not None  # otherwise no number
            stored = journal.keep(self.number, packed)
        log.append(packed, count, now, stored)
        if len(log) > terms.messages or log.bytes > terms.bytes:
            self._lose(log.over(terms.messages, terms.bytes))
        if terms.age and not self._armed:
            self._arm()

    def _fill(self, after: int, messages: int, now: int) -> bool:
        self.stamp(TURN, now)
        return self.behind

    @property
    def behind(self) -> bool:
        """True if there are messages that it has not examined or recorded yet."""
        return bool(self._waiting)

    def stamp(self, budget: int, now: int) -> int:
        """Examine messages that waited when the tap was created.

        Args:
            budget: messages, and units (condition.units) of the selector.
            now: ms epoch.

        Returns:
            What was done of the budget; as much if some of it is left.
        """
        waiting, condition, done = self._waiting, self.condition, 0
        while waiting and done < budget:
            envelope = waiting.popleft()
            done += 1 if condition is None else 1 + 3 * units(condition, envelope)
            self._judge(envelope, now)
            if condition is not None:
                envelope.compact()
        return done

    def _lapse(self, now: int) -> None:
        self._keeper.drop(self, now)

    def close(self, now: int) -> None:
        if self.open:
            self.open = False
            self._waiting.clear()
            self._detach()


class DrainTap(Tap):
    """Takes messages from a queue: it is the port of a consumer of its own.

    Attributes:
        writable: as a :class:`~sievemq_broker.domain.ports.DeliveryPort`: it has room.
    """

    __slots__ = ("_behind", "_consumer", "_giving", "_now", "needs", "writable")
    mode: Mode = "drain"
    destination: Queue

    def _begin(self, now: int) -> None:
        self._now = now
        self._behind = 0  # sequence before tag 1 of the consumer
        self._giving = False  # some of its messages have gone back, and the rest will
        self.writable = True
        self.needs: list[Stored] = []
        self._consumer: Consumer = self.destination.open_consumer(self, 0, self.condition, 0, now)

    @property
    def held_bytes(self) -> int:
        """Bytes that it holds, for the broker's memory limit."""
        return self.log.bytes

    def _fill(self, after: int, messages: int, now: int) -> bool:
        log, terms, consumer = self.log, self.terms, self._consumer
        ahead = log.last - max(after, self.acknowledged)
        room = min(STEP, terms.messages - len(log), messages - ahead if messages else STEP)
        if self.ended is not None:
            raise RequestError(
                f"tap {self.name!r} takes nothing more: {self.ended}. Delete it to return its messages to the queue",
                ErrorCode.ILLEGAL_STATE,
            )
        if room <= 0 or after > log.last or log.bytes >= terms.bytes:
            return False
        self._now = now
        self.writable = True
        self.needs.clear()  # its reader asks on a connection of its own, which waits for what the request changes
        before = log.last
        consumer.grant(room, now)
        # Between two requests it takes nothing: a slow reader must not keep messages from other consumers.
        consumer.halt()
        self._arm()
        if log.last > before:
            self.record()
        pending = self.destination.standstill.held > 0 or consumer.view.scanning != ALL_SCANNED
        return pending or log.last - before == STEP

    def _settle(self, upto: int, now: int) -> None:
        tag = upto - self._behind
        if tag > 0:  # otherwise it is in the queue again, and will be delivered again
            self._consumer.acknowledge(tag, now)

    def _leased(self) -> bool:
        return self._consumer.unacknowledged > 0

    def resume(self, number: int, behind: int, acknowledged: int, lost: int, missed: int, owner: str | None) -> None:
        """Begin behind `behind`: earlier messages were taken before the broker ended, and are on the queue again."""
        done = max(acknowledged, lost)
        if behind > done:
            lost, missed = behind, missed + behind - done
        super().resume(0, behind, acknowledged, lost, missed, owner)
        self._behind = behind

    def _lapse(self, now: int) -> None:
        if self._consumer.unacknowledged > TURN:
            self._give_back(now)
            self._armed = True
            self._keeper.deadlines.push(now + 1, self, self)  # a turn of the loop for each slice
            return
        self._lose(self.log.last)
        self._behind = self.log.last
        self._abandon(now)
        self._consumer = self.destination.open_consumer(self, 0, self.condition, 0, now)

    def empty(self, now: int, budget: Budget) -> Task[int]:
        self.ended = "it is being deleted"
        missed = self.missed
        while self._consumer.unacknowledged > TURN:
            if budget.spent:
                now = yield
            self._give_back(now)
            self.missed = missed  # no reader needs them any more
            budget.spend(TURN)
        return now

    def close(self, now: int) -> None:
        if self.open:
            self.open = False
            self._abandon(now)

    def _give_back(self, now: int) -> None:
        """Return a slice, the oldest first."""
        consumer = self._consumer
        # Its reader is lost (Outcome.LOST): an attempt of the oldest one alone.
        consumer.give_back_oldest(TURN, now, 0 if self._giving else 1)
        self._giving = True
        self._lose(self._behind + consumer.base)

    def _abandon(self, now: int) -> None:
        """Return all the rest."""
        if self._giving:
            self._giving = False
            self._consumer.give_back_oldest(len(self._consumer.window), now, 0)
        finish(partial(self._consumer.abandon, None), now)

    # -- what the queue says ------------------------------------------------------------------------------------

    @property
    def party(self) -> Party:
        """Its reader, as far as it is known."""
        return Party(self.reader or "", user=self.owner)

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Take a message for good: it is never recalled."""
        self.log.append(packed, count, self._now)
        self.writable = self.log.bytes < self.terms.bytes
        self._consumer.note_handed(tag)

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        """Take several messages."""
        return deliver_each(self, consumer_id, tag, row)

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        """Never called: it has handed out everything."""

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """Its queue was deleted, and the tap will be; or an administrator closed it."""
        self.ended = text

    def hold_back(self, consumer_id: int) -> None:
        """Its next reader lets it accept more, and the consumer take it."""

    def settled(self, consumer_id: int) -> None:
        """Never called: it never waits."""
