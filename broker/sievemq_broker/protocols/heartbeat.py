"""Deadlines of one peer: for its HELLO, between its heartbeats, for a frame; and when to send it a heartbeat."""

from __future__ import annotations

from typing import Protocol

from sievemq_broker.session.settings import SessionSettings
from sievemq_core.errors import ErrorCode, ProtocolError


class Wire(Protocol):
    """A protocol's view of its end of the connection."""

    @property
    def awaited(self) -> str:
        """The part of the handshake that is awaited, for people; empty after the handshake."""

    @property
    def interval_in(self) -> int:
        """Milliseconds after which bytes must arrive; 0 for never."""

    @property
    def interval_out(self) -> int:
        """Milliseconds after which bytes must be sent; 0 for never."""

    @property
    def frame_number(self) -> int:
        """The number of the incomplete frame, another one for each; 0 between two frames."""

    @property
    def frame_text(self) -> str:
        """The name of that frame in error messages."""

    @property
    def unfinished(self) -> int:
        """Bytes of that frame that have arrived."""

    def received(self) -> bool:
        """True if any bytes arrived since the last call."""

    def excuse(self) -> None:
        """Count as if bytes had arrived."""

    def heartbeat_due(self) -> object:
        """Send a heartbeat, if nothing was sent for half an interval."""


class Heartbeat:
    """The deadlines of one connection, on a clock without the offset of test clocks: a test that moves the clock must
    not make every peer look dead.

    Args:
        settings: `handshake_ms` and `frame_ms`.
        now: milliseconds since 1970.
    """

    __slots__ = ("_beat_at", "_check_at", "_frame", "_frame_due", "_frame_ms", "_handshake_ms", "_misses", "_wire")

    def __init__(self, wire: Wire, settings: SessionSettings, now: int) -> None:
        self._wire = wire
        self._handshake_ms = settings.handshake_ms
        self._frame_ms = settings.frame_ms
        # The deadline of the handshake; then the time of the next check for silence, and when silence is an error.
        self._check_at = now + self._handshake_ms
        self._beat_at = 0
        self._misses = 0
        # The frame that was incomplete at the last check, and its deadline.
        self._frame = self._frame_due = 0

    @property
    def intervals(self) -> tuple[int, int]:
        """Milliseconds within which the client must send, and the broker has to; 0 for never."""
        return self._wire.interval_in, self._wire.interval_out

    def welcomed(self, now: int) -> None:
        self._check_at = now + self._wire.interval_in
        self._beat_at = now

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by this many ms: deadlines of the peer move with it."""
        self._check_at += by
        self._beat_at += by
        self._frame_due += by

    def excuse(self) -> None:
        """Restart the peer's deadlines: nothing was read from it, so silence and an incomplete frame do not count."""
        self._wire.excuse()
        self._misses = self._frame = 0

    def tick(self, now: int) -> int | None:
        """Check whether bytes arrived; send a heartbeat if nothing was sent for half an interval.

        Args:
            now: milliseconds since 1970.

        Returns:
            When to call again at the latest; None for never.

        Raises:
            ProtocolError: HEARTBEAT_MISSED, it has been silent for too long, or took too long for a frame.
        """
        wire = self._wire
        if awaited := wire.awaited:
            if now >= self._check_at:
                raise ProtocolError(f"no {awaited} within {self._handshake_ms} ms", ErrorCode.HEARTBEAT_MISSED)
            return self._check_at
        frame = wire.frame_number
        if frame != self._frame:
            self._frame, self._frame_due = frame, now + self._frame_ms
        elif frame and self._frame_ms and now >= self._frame_due:
            raise ProtocolError(
                f"{wire.frame_text} was not complete after {self._frame_ms} ms (frame_seconds); "
                f"{wire.unfinished} bytes of it arrived",
                ErrorCode.HEARTBEAT_MISSED,
            )
        deadlines: list[int] = []
        # Both are counted in intervals, not measured from a time: a machine's clock that is set, or a process that was
        # stopped for a minute, makes one interval look long and must not end every connection.
        interval = wire.interval_in
        if interval:
            if wire.received():
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
