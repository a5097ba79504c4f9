"""A wait of an asyncio program that ends on time.

The timers of a loop count whole milliseconds: asyncio rounds a wait up, uvloop to the nearest. So a producer with a
thousand messages a second would send half of them late. One with more would not wait at all: its processor would never
sleep, and the system might take it away for some milliseconds. Both would be measured as the broker's latency.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from typing import Any, Final

_LIBC: Final[Any] = ctypes.CDLL(None) if os.name == "posix" else None


class Alarm:
    """Lets one task of the running loop wait, by a timer of the system's (timerfd); without that, by the loop's. It is
    for a process that ends with the task: nothing closes the timer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = -1
        self._rings: asyncio.Future[None] | None = None
        if hasattr(_LIBC, "timerfd_create"):
            self._timer = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            self._loop.add_reader(self._timer, self._ring)

    def _ring(self) -> None:
        os.read(self._timer, 8)
        if self._rings is not None and not self._rings.done():
            self._rings.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait so long; 0 for a turn of the loop."""
        if self._timer < 0 or seconds <= 0.0:
            await asyncio.sleep(seconds)
            return
        self._rings = self._loop.create_future()
        whole, nanoseconds = divmod(max(1, int(seconds * 1e9)), 1_000_000_000)
        _LIBC.timerfd_settime(self._timer, 0, (ctypes.c_long * 4)(0, 0, whole, nanoseconds), None)
        await self._rings
