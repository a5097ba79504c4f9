"""The broker's time: milliseconds since 1970, read once per loop turn and passed down as `now`.

Nothing below the server layer reads a clock, so this one object moves time. `Clock` follows the machine's wall clock,
because producers stamp messages with wall times (§3.4.9: expiration is an absolute time). `AdjustableClock` can be
moved, for tests.

A machine's wall clock is set now and then. Absolute times (expiry, delivery time) follow the new time. Durations (a
lease, a redelivery delay) must keep their length. So each reading compares the wall clock with the monotonic one, and
calls `on_jump` with the difference before the new time is used."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns

#: The smallest difference between the two clocks that counts as a jump. A clock that is corrected gradually reaches it
#: now and then.
JUMP_MS = 1_000

_JUMP_NS = JUMP_MS * 1_000_000


class Clock:
    """The machine's wall clock.

    Attributes:
        on_jump: called with the ms by which the clock was set, negative for back.
    """

    __slots__ = ("_apart", "on_jump")

    def __init__(self) -> None:
        self._apart = time_ns() - monotonic_ns()
        self.on_jump: Callable[[int], None] | None = None

    def follow(self, jumped: Callable[[int], None], drifted: Callable[[int], None]) -> None:
        """Set the callbacks.

        Args:
            jumped: by how many ms the clock was set.
            drifted: by how many ms clients' clocks ran on while this one is frozen.
        """
        self.on_jump = jumped

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        wall = time_ns()
        parted = wall - monotonic_ns() - self._apart
        if not -_JUMP_NS < parted < _JUMP_NS:
            self._jumped(parted)
        return wall // 1_000_000

    def _jumped(self, parted: int) -> None:
        by = round(parted / 1_000_000)
        self._apart += by * 1_000_000
        if self.on_jump is not None:
            self.on_jump(by)

    @property
    def offset(self) -> int:
        """Milliseconds that clients add to their own clock to agree with this one."""
        return 0

    @property
    def frozen_at(self) -> int | None:
        """The time at which the clock is frozen; None while it runs."""
        return None


class AdjustableClock(Clock):
    """A clock that a test can move, stop and set. Not safe for threads: only the broker's thread touches it."""

    __slots__ = ("_frozen_at", "_offset", "drifted")

    def __init__(self) -> None:
        super().__init__()
        self._offset = 0
        self._frozen_at: int | None = None
        #: While frozen, called at each reading with the change of the offset in ms: clients' clocks run on.
        self.drifted: Callable[[int], None] | None = None

    def follow(self, jumped: Callable[[int], None], drifted: Callable[[int], None]) -> None:
        super().follow(jumped, drifted)
        self.drifted = drifted

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as adjusted."""
        frozen_at = self._frozen_at
        if frozen_at is None:
            return super().now() + self._offset
        offset = frozen_at - time_ns() // 1_000_000
        if offset != self._offset:
            drift, self._offset = offset - self._offset, offset
            if self.drifted is not None:
                self.drifted(drift)
        return frozen_at

    @property
    def offset(self) -> int:
        """Milliseconds between the machine's clock and this one; while frozen, as of the last reading."""
        return self._offset

    @property
    def frozen_at(self) -> int | None:
        """The time at which the clock is frozen; None while it runs."""
        return self._frozen_at

    def advance(self, milliseconds: int) -> None:
        """Move forward.

        Raises:
            ValueError: `milliseconds` is negative: :meth:`set` goes back, on purpose.
        """
        if milliseconds < 0:
            raise ValueError(f"a clock advances by 0 or more, not by {milliseconds} ms; use set() to go back")
        self._offset += milliseconds
        if self._frozen_at is not None:
            self._frozen_at += milliseconds

    def set(self, to: int) -> None:
        """Show `to` (ms since 1970) from now on; a frozen clock stays frozen there."""
        self._offset = to - time_ns() // 1_000_000
        if self._frozen_at is not None:
            self._frozen_at = to

    def freeze(self) -> None:
        """Stand still."""
        self._frozen_at = self.now()

    def resume(self) -> None:
        """Run on from the time shown."""
        if self._frozen_at is not None:
            self._offset = self._frozen_at - time_ns() // 1_000_000
            self._frozen_at = None

    def reset(self) -> None:
        """Run, and show the machine's time, as a new one does."""
        self._offset = 0
        self._frozen_at = None
