"""How many messages of a queue had which outcome."""

from __future__ import annotations

from sievemq_core.message.dead_letters import EXPIRED, REJECTED


class QueueCounts:
    """Counts of one queue, since the broker has started.

    Attributes:
        expired, removed: messages that are gone.
        redelivered: how often one came back, marked.
        dead_lettered: moved to the dead-letter queue; of these
        dead_expired, dead_rejected: had expired; were rejected by a consumer.
        dead_refused: were not taken by their dead-letter queue, and stay.
        dropped_oldest, dropped_newest: were dropped at a limit; the latter never entered the queue.
        refused: did not enter the queue, since one of its limits refused them.
        unreadable: have properties that cannot be decoded.
        uncounted: sequences of messages that had arrived before: restored, or scheduled.
    """

    __slots__ = (
        "dead_expired", "dead_lettered", "dead_refused", "dead_rejected", "dropped_newest",
        "dropped_oldest", "expired", "redelivered", "refused", "removed", "uncounted", "unreadable",
    )  # fmt: skip

    def __init__(self) -> None:
        self.redelivered = 0
        self.expired = 0
        self.dead_lettered = 0
        self.dead_expired = 0
        self.dead_rejected = 0
        self.dead_refused = 0
        self.removed = 0
        self.dropped_oldest = 0
        self.dropped_newest = 0
        self.refused = 0
        self.unreadable = 0
        self.uncounted = 0

    def redeliver(self, messages: int) -> None:
        """Messages came back, marked; a negative number takes marks back."""
        self.redelivered += messages

    def expire(self) -> None:
        self.expired += 1

    def remove(self, messages: int) -> None:
        self.removed += messages

    def drop_oldest(self) -> None:
        self.dropped_oldest += 1

    def drop_newest(self) -> None:
        self.dropped_newest += 1

    def refuse(self, messages: int) -> None:
        self.refused += messages

    def skip(self, messages: int) -> None:
        """Messages get a sequence that have arrived before."""
        self.uncounted += messages

    def fail_to_read(self) -> None:
        self.unreadable += 1

    def dead_letter(self, reason: str) -> None:
        self.dead_lettered += 1
        self.dead_expired += reason == EXPIRED
        self.dead_rejected += reason == REJECTED

    def refuse_dead_letter(self) -> None:
        self.dead_refused += 1
