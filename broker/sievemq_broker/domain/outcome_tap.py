"""A tap that keeps what becomes of messages instead of the messages: acknowledged, expired, dead-lettered, dropped,
removed.

Each outcome is a record that looks like the message without its properties and body: the same id and headers, and in
their place properties that say what became of it (:mod:`sievemq_core.message.outcomes`). So it is numbered, kept,
fetched and acknowledged as what a copy tap holds. When that was is the time at which the tap saw it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain.ports import Observed, Taker
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.tap import CopyTap, Keeper, Mode, TapTerms
from sievemq_broker.matching.condition import Condition
from sievemq_core.message import outcomes
from sievemq_core.message.envelope import BODY_KIND, PROPERTIES, BodyKind, Envelope, pack_properties

if TYPE_CHECKING:
    from sievemq_broker.domain.entry import Entry
    from sievemq_broker.domain.topic import Topic

__all__ = ["OutcomeTap"]

#: Sets of properties that are kept packed: most records share a few.
_PACKED = 256

#: The outcome of a message that was removed to make room for another one.
OLDEST = "oldest"


class OutcomeTap(CopyTap):
    """Observes its queue, or the queues of all subscriptions of its topic.

    What is observed is stamped with the time at the end of the turn: an observer is not told it.
    """

    __slots__ = ("_noted", "_packed", "_watch")
    mode: Mode = "outcomes"

    def __init__(
        self,
        keeper: Keeper,
        tap_id: str,
        name: str,
        destination: Queue | Topic,
        condition: Condition | None,
        terms: TapTerms,
        now: int,
    ) -> None:
        #: What was observed since the last stamp: the message and its outcome.
        self._noted: list[tuple[Envelope, tuple[str, str | None, str | None, str | None, int]]] = []
        self._packed: dict[object, tuple[bytes | None, str | None]] = {}
        self._watch = _Watch(self)
        super().__init__(keeper, tap_id, name, destination, condition, terms, now)

    def _attach(self) -> None:
        self.destination.observe(self._watch)

    def _detach(self) -> None:
        self.destination.unobserve(self._watch)

    def hear(self, now: int) -> None:
        """Its reader is there, and shall see all that has happened."""
        self.stamp(now)
        super().hear(now)

    def stamp(self, now: int) -> None:
        """What was observed was now."""
        noted, self._noted = self._noted, []
        for envelope, said in noted:
            self._append(self._record(envelope, said), max(1, said[4]), now)

    def note(
        self, queue: Observed, envelope: Envelope, outcome: str, reason: str | None, selector: str | None, attempts: int
    ) -> None:
        """Something became of a message."""
        if not self._wants(envelope):
            return
        if not self._noted:
            self._keeper.stamp_soon(self)
        if outcome == outcomes.DEAD_LETTERED and self._noted and self._noted[-1][0] is envelope:
            self._noted.pop()  # that it has expired is not the last word
        self._noted.append((envelope, (outcome, reason, selector, queue.place.subscription, attempts)))

    def _record(self, envelope: Envelope, said: tuple[str, str | None, str | None, str | None, int]) -> bytes:
        packed = self._packed.get(said)
        if packed is None:
            names = outcomes.OUTCOME, outcomes.REASON, outcomes.SELECTOR, outcomes.SUBSCRIPTION, outcomes.ATTEMPTS
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
        """Nothing became of it yet; nor with the next three."""

    def handed(self, queue: Observed, entry: Entry) -> None: ...

    def released(self, queue: Observed, entry: Entry) -> None: ...

    def returned(self, queue: Observed, entry: Entry) -> None: ...

    def unreadable(self, queue: Observed, entry: Entry, error: Exception) -> None: ...

    def acknowledged(self, queue: Observed, entry: Entry, consumer: Taker | None) -> None:
        """Consumed."""
        selector = None if consumer is None else consumer.selector
        attempts = entry.count + (consumer is not None)  # when it came back the last one was counted
        self._tap.note(queue, entry.envelope, outcomes.ACKNOWLEDGED, None, selector, attempts)

    def expired(self, queue: Observed, entry: Entry) -> None:
        """Gone, unless a dead letter is made of it."""
        self._tap.note(queue, entry.envelope, outcomes.EXPIRED, None, None, entry.count)

    def dead_lettered(self, queue: Observed, entry: Entry, reason: str) -> None:
        """The last word about one that has expired, too."""
        self._tap.note(queue, entry.envelope, outcomes.DEAD_LETTERED, reason, None, entry.count)

    def removed(self, queue: Observed, entry: Entry, reason: str) -> None:
        """An administrator, or a limit."""
        outcome = outcomes.DROPPED if reason == OLDEST else outcomes.REMOVED
        self._tap.note(queue, entry.envelope, outcome, reason, None, entry.count)

    def refused(self, queue: Observed, envelope: Envelope) -> None:
        """It never entered the queue."""
        self._tap.note(queue, envelope, outcomes.DROPPED, "newest", None, 0)


assert BODY_KIND == PROPERTIES + 2, "a record is made of the fields before the properties, and of four more"
