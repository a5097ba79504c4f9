"""Requests that arrive together, or whose tasks end together, are handled in several turns of the loop, so that other
clients are served between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Final

#: Seconds of a turn after which no further request begins or continues.
SECONDS: Final = 0.002

#: The index of each line of waiting requests: new ones, probes, and those that have begun.
_REQUESTS, _PROBES, _RESUMED = range(3)


async def _at_once() -> None:
    """Outside a request there is nothing to wait for."""


#: To be called once a task or a write is done on which the present request has waited, perhaps with many others. It
#: returns once the request may continue: encoding and sending a large answer are in no task.
resumed: ContextVar[Callable[[], Awaitable[None]]] = ContextVar("resumed", default=_at_once)


class Pace:
    """Shares SECONDS of each turn among requests. The others wait in order of arrival, in three lines: new requests,
    probes, and requests that have begun. The lines are served in turn, so that none can block another one."""

    def __init__(self) -> None:
        #: When the first request of this turn was begun; None before that.
        self._began: float | None = None
        self._lines: tuple[deque[asyncio.Future[None]], ...] = deque(), deque(), deque()
        #: The line that was served last.
        self._served = _REQUESTS

    async def admit(self, *, urgent: bool = False) -> None:
        """Wait until a request may begin.

        Args:
            urgent: the request is a probe, and its client has not sent many requests behind it.
        """
        resumed.set(self.resume)
        await self._wait(_PROBES if urgent else _REQUESTS, self._lines)

    async def resume(self) -> None:
        """Wait until a request that has begun may continue: behind others that have begun, while the turn has time."""
        await self._wait(_RESUMED, self._lines[_RESUMED:])

    async def _wait(self, line: int, before: tuple[deque[asyncio.Future[None]], ...]) -> None:
        if any(before) or (self._began is not None and perf_counter() - self._began > SECONDS):
            turn = asyncio.get_running_loop().create_future()
            self._lines[line].append(turn)
            await turn
        elif self._began is None:
            self._begin()

    def _begin(self) -> None:
        self._began = perf_counter()
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Another turn: it begins with the request that has waited longest."""
        self._began = None
        lines = self._lines
        while any(lines) and self._began is None:
            self._served = next(line for step in (1, 2, 3) if lines[line := (self._served + step) % 3])
            turn = lines[self._served].popleft()
            if not turn.done():  # its request was cancelled
                turn.set_result(None)
                self._begin()
