"""Calls of the CompletionListeners of one session: in order, one at a time, in a task of their own (CPL-05 … 07)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from typing import Final

from sievemq._engine import AsyncSend
from sievemq.aio.listeners import ends_its_task
from sievemq.aio.transport import Transport, release, turn

__all__ = ["CompletionCalls"]

_log = logging.getLogger("sievemq")

#: Calls after which others have a turn.
_TURN: Final = 64


class CompletionCalls:
    """The queue of calls of one session, and its task, which exists only while there is something to call."""

    __slots__ = ("_open", "_task", "_transport", "_waiters", "_waiting")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._waiting: deque[AsyncSend] = deque()
        self._open = 0  # sends whose callback has not returned
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[bool]] = []

    def begin(self) -> None:
        """An asynchronous send is made; :meth:`add` follows once its fate is known, or :meth:`cancel`."""
        self._open += 1

    def cancel(self) -> None:
        """The send call raised: no callback (CPL-03)."""
        self._left()

    def add(self, fate: AsyncSend) -> None:
        """Call a callback soon: not before the send that is running now has returned (CPL-05)."""
        self._waiting.append(fate)
        if self._task is None:
            self._start()

    def _start(self) -> None:
        if self._waiting and self._task is None:
            self._task = self._transport.loop.create_task(self._run(), name="sievemq-completions")

    @property
    def mine(self) -> bool:
        """True in a callback of this session (CPL-11)."""
        return self._task is not None and asyncio.current_task() is self._task

    async def wait(self) -> None:
        """Return once every callback of the sends made so far has returned (CPL-09, CPL-10)."""
        self._start()  # its task may have been cancelled with all others
        while self._open:
            await self._transport.park(self._waiters)

    def _left(self) -> None:
        self._open -= 1
        if not self._open:
            release(self._waiters)

    async def _run(self) -> None:
        waiting = self._waiting
        done = 0
        try:
            while waiting:
                try:
                    result = waiting.popleft().tell()
                    if result is not None and inspect.isawaitable(result):
                        await result
                except BaseException as error:
                    if ends_its_task(error):
                        raise
                    _log.exception("a completion listener raised")
                finally:
                    self._left()
                done += 1
                if not done % _TURN:
                    await turn()
        finally:
            self._task = None
            if self._waiters:  # the loop ends, and what closes meanwhile waits for the other calls
                self._start()
