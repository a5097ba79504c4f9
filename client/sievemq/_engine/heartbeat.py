"""The heartbeats of one transport: when one is due, and when the broker has been silent for too long."""

from __future__ import annotations

from collections.abc import Callable

from sievemq_core.wire.connection import WireConnection

#: The client requests the time of the broker again after this many intervals: a minute by default.
_TIME_AFTER = 4


class Heartbeat:
    """Counts intervals, on any clock that never goes back.

    Args:
        incoming: milliseconds after which this end expects a byte from the peer; 0 for never.
        outgoing: milliseconds after which the broker wants to.
    """

    __slots__ = ("_beat", "_check", "_checks", "_misses", "incoming", "outgoing")

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self._beat: int | None = None
        self._check: int | None = None
        self._checks = self._misses = 0

    def tick(self, wire: WireConnection, now: int, speaking: bool, ask_for_time: Callable[[], None]) -> int | None:
        """Send a heartbeat after half an interval without output; check whether something arrived.

        Args:
            now: milliseconds.
            ask_for_time: called every few intervals.

        Returns:
            Milliseconds until it should be called again, None if never; 0 if two intervals were silent.
        """
        waits: list[int] = []
        if self.outgoing:
            if self._beat is None or now >= self._beat:
                if self._beat is not None and not speaking:
                    wire.heartbeat_due()
                self._beat = now + max(1, self.outgoing // 2)
            waits.append(self._beat - now)
        if self.incoming:
            if self._check is None:
                self._check = now + self.incoming
            elif now >= self._check:
                self._misses = 0 if wire.received() else self._misses + 1
                self._check = now + self.incoming
                if self._misses >= 2:
                    return 0
                self._checks += 1
                if self._checks % _TIME_AFTER == 0:
                    ask_for_time()
            waits.append(self._check - now)
        return min(waits, default=None)
