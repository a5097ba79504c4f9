"""Calls of the CompletionListeners of one session: in order, one at a time, in a task of their own (CPL-05 … 07)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Final

from sievemq._engine import Completion, Sends, call
from sievemq.aio.transport import Transport, own_task, release, turn
from sievemq.aio.waiting import LOOK_SECONDS, ends_its_task

_log = logging.getLogger("sievemq")

#: Calls after which others have a turn: no fewer than the sends that a turn may add, of which the smallest takes more
#: than 32 bytes, or confirmed sends would gather without a limit.
_TURN: Final = 2_048


class CompletionCalls:
    """The task that makes the calls of one session, which exists only while there is something to call."""

    __slots__ = ("_calls", "_sends", "_task", "_transport", "_waiters")

    def __init__(self, transport: Transport, sends: Sends) -> None:
        self._transport = transport
        self._sends = sends
        self._calls = sends.calls
        sends.call_back(self._start)
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[bool]] = []

    def _start(self) -> None:
        """Call soon: not before the send that is running now has returned (CPL-05)."""
        if self._calls and (self._task is None or self._task.done()):  # done: cancelled before it began
            self._task = own_task(self._transport.loop, self._run(), "sievemq-completions")

    @property
    def mine(self) -> bool:
        """True in a callback of this session (CPL-11)."""
        return self._task is not None and asyncio.current_task() is self._task

    async def wait(self, until: float | None = None) -> None:
        """Return once every callback of the sends made so far has returned (CPL-09, CPL-10).

        Args:
            until: by the loop's clock, until when the broker's confirms are awaited, and that only while there is a
                connection; None for no limit.
        """
        self._start()  # its task may have been cancelled with all others
        lost: Completion[None] = self._transport.engine.until_lost(Completion())
        if until is not None:
            lost.add_callback(lambda _: release(self._waiters))
        loop = self._transport.loop
        try:
            while self._calls or self._task is not None or self._sends.calls_back:
                end = None
                if until is not None:
                    calling = bool(self._calls) or self._task is not None
                    if (lost.done or loop.time() >= until) and (not calling or self._sends.awaits_broker):
                        return
                    end = max(until, loop.time() + LOOK_SECONDS)
                await self._transport.park(self._waiters, end)
        finally:
            lost.succeed(None)

    async def _run(self) -> None:
        calls = self._calls
        left = _TURN
        try:
            while calls:
                try:
                    result = call(calls.popleft())
                    if result is not None and inspect.isawaitable(result):
                        await result
                except BaseException as error:
                    if ends_its_task(error):
                        raise
                    _log.exception("a completion listener raised")
                left -= 1
                if not left:
                    left = _TURN
                    await turn()
        finally:
            self._task = None
            if not calls and not self._sends.calls_back:
                release(self._waiters)
            elif self._waiters:  # the loop ends, and what closes meanwhile waits for the other calls
                self._start()
