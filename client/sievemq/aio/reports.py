"""Calls of an ExceptionListener: one at a time (EXL-02), in a task that exists only while there is something to say."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from sievemq.exceptions import JMSException

__all__ = ["Reports"]

_log = logging.getLogger("sievemq")


class Reports:
    """The reports of one connection.

    Attributes:
        callback: what to call; None logs instead.
    """

    __slots__ = ("_loop", "_task", "_waiting", "callback")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.callback: Callable[[JMSException], Any] | None = None
        self._loop = loop
        self._waiting: deque[JMSException] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, error: Exception) -> None:
        """Report an error soon."""
        self._waiting.append(error if isinstance(error, JMSException) else JMSException(str(error), None, error))
        if self._task is None and not self._loop.is_closed():
            self._task = self._loop.create_task(self._run(), name="sievemq-exceptions")

    async def _run(self) -> None:
        try:
            while self._waiting:
                exception = self._waiting.popleft()
                callback = self.callback
                if callback is None:
                    _log.warning("%s (no exception listener is set)", exception)
                    continue
                try:
                    result = callback(exception)
                    if result is not None and inspect.isawaitable(result):
                        await result
                except Exception:
                    _log.exception("an exception listener raised")
        finally:
            self._task = None
