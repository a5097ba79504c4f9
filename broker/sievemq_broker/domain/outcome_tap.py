"""A tap that records outcomes of messages: acknowledged, expired, dead-lettered, dropped, removed.

A record looks like the message without its properties and body: it has the same id and headers, and properties that
describe the outcome (:mod:`sievemq_core.message.outcomes`). So it is numbered, stored, fetched and acknowledged like a
record of a copy tap. Its time is the time at which the tap observed the outcome."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TypeAlias

from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.journal import Share
from sievemq_broker.domain.ports import Observed, Taker
from sievemq_broker.domain.tap import CopyTap, Mode
from sievemq_broker.domain.tap_log import OVERHEAD_BYTES
from sievemq_broker.domain.work import TURN
from sievemq_broker.matching.condition import units
from sievemq_core.message import outcomes
from sievemq_core.message.envelope import BODY_KIND, PROPERTIES, BodyKind, Envelope, pack_properties

#: Packed sets of properties that are cached: most records share a few.
_PACKED = 256

#: The outcome of a message that was removed to make room for another one.
OLDEST = "oldest"

_Noted: TypeAlias = tuple[Envelope, tuple[str, str | None, str | None, str | None, int]]
"""A message, and its outcome: the properties of the record."""


class OutcomeTap(CopyTap):
    """Observes its queue, or the queues of all subscriptions of its topic. Observers are not given the time, so records
    are stamped at the end of the turn. An outcome that belongs to a share of the journal is recorded when that is
    complete: until then a crash undoes it."""

    __slots__ = ("_late", "_noted", "_packed", "_watch")
    mode: Mode = "outcomes"

    def _begin(self, now: int) -> None:
        #: Outcomes observed since the last stamp.
        self._noted: deque[_Noted] = deque()
        #: Those of shares that are not complete.
        self._late: dict[Share, deque[_Noted]] = {}
        self._packed: dict[object, tuple[bytes | None, str | None]] = {}
        self._watch = _Watch(self)
        super()._begin(now)

    def _attach(self) -> None:
        self.destination.observe(self._watch)

    def _detach(self) -> None:
        self.destination.unobserve(self._watch)

    def hear(self, now: int) -> None:
        """Its reader is there."""
        self.stamp(TURN, now)
        super().hear(now)

    def stamp(self, budget: int, now: int) -> int:
        """Record the observed outcomes, with the time.

        Args:
            budget: units (condition.units) of its selector.
            now: ms epoch.

        Returns:
            What was done of the budget; as much if some of it is left.
        """
        noted, condition, done = self._noted, self.condition, 0
        if not self.open:
            noted.clear()
        while noted and done < budget:
            envelope, said = noted.popleft()
            done += 2 if condition is None else 2 + units(condition, envelope)
            if self._wants(envelope):
                self._append(self._record(envelope, said), max(1, said[4]), now)
            envelope.compact()
        return done

    @property
    def behind(self) -> bool:
        """True if outcomes were observed and are not recorded yet."""
        return bool(self._noted)

    @property
    def held_bytes(self) -> int:
        """Bytes that it holds, for the broker's memory limit."""
        noted = len(self._noted) + sum([len(late) for late in self._late.values()])
        return self.log.bytes + OVERHEAD_BYTES * noted

    def _fill(self, after: int, messages: int, now: int) -> bool:
        return self.behind

    def note(
        self, queue: Observed, envelope: Envelope, outcome: str, reason: str | None, selector: str | None, attempts: int
    ) -> None:
        """A message has this outcome."""
        journal = self._keeper.journal
        share = None if journal is None else journal.share
        noted = self._noted if share is None else self._late_of(share)
        if not noted and share is None:
            self._keeper.stamp_soon(self)
        if outcome == outcomes.DEAD_LETTERED and noted and noted[-1][0] is envelope:
            noted.pop()  # its expiry is not the last outcome
        noted.append((envelope, (outcome, reason, selector, queue.place.subscription, attempts)))

    def _late_of(self, share: Share) -> deque[_Noted]:
        late = self._late.get(share)
        if late is None:
            late = self._late[share] = deque()
            share.when_complete(partial(self._end_share, share))
        return late

    def _end_share(self, share: Share) -> None:
        late = self._late.pop(share)
        if late and not self._noted:
            self._keeper.stamp_soon(self)
        self._noted.extend(late)

    def _record(self, envelope: Envelope, said: tuple[str, str | None, str | None, str | None, int]) -> bytes:
        packed = self._packed.get(said)
        if packed is None:
            names = (
                outcomes.OUTCOME,
                outcomes.OUTCOME_REASON,
                outcomes.SELECTOR,
                outcomes.OUTCOME_SUBSCRIPTION,
                outcomes.OUTCOME_ATTEMPTS,
            )
            properties = {name: value for name, value in zip(names, said, strict=True) if value is not None}
            if len(self._packed) >= _PACKED:
                self._packed.clear()
            packed = self._packed[said] = pack_properties(properties)
        return Envelope((*envelope.fields[:PROPERTIES], *packed, int(BodyKind.NONE), None)).packed


class _Watch:
    """The observer of an :class:`OutcomeTap`."""

    __slots__ = ("_tap",)

    def __init__(self, tap: OutcomeTap) -> None:
        self._tap = tap

    def accepted(self, queue: Observed, entry: Entry) -> None:
        """No outcome yet; likewise the next four."""

    def handed(self, queue: Observed, entry: Entry, consumer: Taker) -> None: ...

    def released(self, queue: Observed, entry: Entry) -> None: ...

    def returned(self, queue: Observed, entry: Entry) -> None: ...

    def failed(self, queue: Observed, entry: Entry) -> None: ...

    def unreadable(self, queue: Observed, entry: Entry, error: Exception) -> None: ...

    def acknowledged(self, queue: Observed, entry: Entry, consumer: Taker | None) -> None:
        selector = None if consumer is None else consumer.selector
        # The last one is counted already if the message had come back, as a rule.
        attempts = max(1, entry.attempts) if consumer is None else entry.attempts + 1
        self._tap.note(queue, entry.envelope, outcomes.ACKNOWLEDGED, None, selector, attempts)

    def expired(self, queue: Observed, entry: Entry) -> None:
        """Gone, unless it becomes a dead letter."""
        self._tap.note(queue, entry.envelope, outcomes.EXPIRED, None, None, entry.attempts)

    def dead_lettered(self, queue: Observed, entry: Entry, reason: str) -> None:
        """The final outcome, also of an expired message."""
        self._tap.note(queue, entry.envelope, outcomes.DEAD_LETTERED, reason, None, entry.attempts)

    def removed(self, queue: Observed, entry: Entry, reason: str) -> None:
        """By an administrator, or a limit."""
        outcome = outcomes.DROPPED if reason == OLDEST else outcomes.REMOVED
        self._tap.note(queue, entry.envelope, outcome, reason, None, entry.attempts)

    def refused(self, queue: Observed, envelope: Envelope) -> None:
        """The message never entered the queue."""
        self._tap.note(queue, envelope, outcomes.DROPPED, "newest", None, 0)


assert BODY_KIND == PROPERTIES + 2, "a record is made of the fields before the properties, and of four more"
