"""How long one peer may be silent: until its HELLO, then between its heartbeats; and when to say something to it."""

from __future__ import annotations

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.wire.connection import State, WireConnection

__all__ = ["Heartbeat"]


class Heartbeat:
    """The deadlines of one connection, on a clock without the offset that tests give it: a test that moves the clock
    must not make every peer look dead.

    Args:
        wire: the connection; it knows the intervals.
        handshake_ms: the peer may take for its HELLO, and whoever asks who it is for the answer.
        now: milliseconds since 1970.
    """

    __slots__ = ("_beat_at", "_check_at", "_handshake_ms", "_misses", "_wire")

    def __init__(self, wire: WireConnection, handshake_ms: int, now: int) -> None:
        self._wire = wire
        self._handshake_ms = handshake_ms
        # When HELLO is due, then when silence is looked at and broken.
        self._check_at = now + handshake_ms
        self._beat_at = 0
        self._misses = 0

    def welcomed(self, now: int) -> None:
        """The handshake is done."""
        self._check_at = now + self._wire.interval_in
        self._beat_at = now

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set, by so many ms: deadlines of the peer are where they would have been."""
        self._check_at += by
        self._beat_at += by

    def tick(self, now: int) -> int | None:
        """Look whether something was heard; say something when nothing was said for half an interval.

        Args:
            now: milliseconds since 1970.

        Returns:
            When to call again at the latest; None for never.

        Raises:
            ProtocolError: HEARTBEAT_MISSED, it has been silent for too long.
        """
        wire = self._wire
        if wire.state is State.HELLO or wire.state is State.WELCOMING:
            if now >= self._check_at:
                what = "no HELLO" if wire.state is State.HELLO else "no handshake"
                raise ProtocolError(f"{what} within {self._handshake_ms} ms", ErrorCode.HEARTBEAT_MISSED)
            return self._check_at
        deadlines: list[int] = []
        # Both are counted in intervals, not measured from a time: a machine's clock that is set, or a process that was
        # stopped for a minute, makes one interval look long and must not end every connection.
        interval = wire.interval_in
        if interval:
            if wire.heard():
                self._misses = 0
                self._check_at = now + interval
            elif now >= self._check_at:
                self._misses += 1
                late = now - self._check_at >= interval
                self._check_at = (now if late else self._check_at) + interval
                if self._misses >= 2:
                    raise ProtocolError(f"nothing was heard for {2 * interval} ms", ErrorCode.HEARTBEAT_MISSED)
            else:
                self._check_at = min(self._check_at, now + interval)
            deadlines.append(self._check_at)
        interval = wire.interval_out // 2
        if interval:
            if now >= self._beat_at or self._beat_at - now > interval:
                self._beat_at = now + interval
                wire.heartbeat_due()
            deadlines.append(self._beat_at)
        return min(deadlines, default=None)
