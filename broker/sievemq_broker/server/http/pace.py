"""Requests that arrive together are handled in several turns of the loop, so that other clients are served between."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import Final

#: Seconds after which no further request is begun in a turn.
SECONDS: Final = 0.002


class Pace:
    """Admits requests: those of one turn have SECONDS together. The others wait in the order in which they came, urgent
    ones in a line of their own. The lines are served alternately, so that neither can block the other one."""

    def __init__(self) -> None:
        #: When the first request of this turn was begun; None before that.
        self._began: float | None = None
        self._waiting: tuple[deque[asyncio.Future[None]], deque[asyncio.Future[None]]] = deque(), deque()
        self._urgent = True

    async def admit(self, *, urgent: bool = False) -> None:
        """Wait until a request may begin.

        Args:
            urgent: it is a probe.
        """
        if any(self._waiting) or (self._began is not None and perf_counter() - self._began > SECONDS):
            turn = asyncio.get_running_loop().create_future()
            self._waiting[urgent].append(turn)
            await turn
        elif self._began is None:
            self._begin()

    def _begin(self) -> None:
        self._began = perf_counter()
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Another turn: it begins with the request that has waited longest."""
        self._began = None
        while any(self._waiting) and self._began is None:
            turn = (self._waiting[self._urgent] or self._waiting[not self._urgent]).popleft()
            self._urgent = not self._urgent
            if not turn.done():  # its request was cancelled
                turn.set_result(None)
                self._begin()
