"""Calls an ExceptionListener, one call at a time (EXL-02), in a task that exists only while calls are queued."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from sievemq._front import ExceptionReports
from sievemq.aio.transport import Transport, own_task
from sievemq.aio.waiting import ends_its_task

_log = logging.getLogger("sievemq")


class Reports(ExceptionReports):
    """The reports of one connection."""

    __slots__ = ("_loop", "_task")
    _awaits = True

    def __init__(self, transport: Transport) -> None:
        super().__init__(nullcontext())
        self._loop = transport.loop
        self._task: asyncio.Task[None] | None = None

    def _soon(self, call: Callable[[], Any]) -> None:
        self._waiting.append(call)
        if self._task is None and not self._loop.is_closed():
            self._task = own_task(self._loop, self._run(), "sievemq-exceptions")

    async def _run(self) -> None:
        try:
            while self._waiting:
                call = self._waiting.popleft()
                try:
                    await _called(call)
                except BaseException as error:
                    if ends_its_task(error):
                        raise
                    _log.exception("an exception listener raised")
        finally:
            self._task = None

    async def _report_flows(self) -> None:
        for call in self._flow_calls():
            await _called(call)


async def _called(call: Callable[[], Any]) -> None:
    result = call()
    if result is not None and inspect.isawaitable(result):
        await result
