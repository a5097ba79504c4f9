"""Calls of an ExceptionListener: one at a time (EXL-02), in a task that exists only while there is something to say."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from sievemq._engine import Blocked, connection_callbacks, exception_callback, flow_callbacks
from sievemq.aio.listeners import ExceptionListener, ends_its_task
from sievemq.exceptions import JMSException

__all__ = ["Reports"]

_log = logging.getLogger("sievemq")


class Reports:
    """The reports of one connection."""

    __slots__ = (
        "_blocked", "_callback", "_flows", "_loop", "_lost", "_restored", "_task", "_told", "_unblocked", "_waiting"
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._callback: Callable[[JMSException], Any] | None = None
        self._lost: Callable[[JMSException], Any] | None = None
        self._restored: Callable[[], Any] | None = None
        self._blocked: Callable[[str | None, str], Any] | None = None
        self._unblocked: Callable[[str | None], Any] | None = None
        #: What is to be told of destinations, why they are blocked or None; and of which it was told that they are.
        self._flows: dict[str | None, str | None] = {}
        self._told: set[str | None] = set()
        self._loop = loop
        self._waiting: deque[Callable[[], Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    def listen(self, listener: ExceptionListener | Callable[[JMSException], Any] | None) -> None:
        """What to call from now on; None logs instead."""
        self._callback = None if listener is None else exception_callback(listener)
        self._lost, self._restored = connection_callbacks(listener)
        self._blocked, self._unblocked = flow_callbacks(listener)

    def add(self, error: Exception) -> None:
        """Report an error soon."""
        exception = error if isinstance(error, JMSException) else JMSException(str(error), None, error)
        self._soon(lambda: self._tell(exception))

    def lost(self, error: JMSException) -> None:
        """Tell soon that the connection is lost and is being repaired."""
        self._soon(lambda: self._lost and self._lost(error))

    def restored(self) -> None:
        """Tell soon that it is repaired."""
        self._soon(lambda: self._restored and self._restored())

    def blocked(self, blocked: Blocked) -> None:
        """Tell soon that sends wait for room."""
        self._flow(blocked.destination, blocked.reason)

    def unblocked(self, blocked: Blocked) -> None:
        """Tell soon that they do not any more. A listener that is slow is not told of what has come and gone."""
        self._flow(blocked.destination, None)

    def _flow(self, destination: str | None, reason: str | None) -> None:
        first = not self._flows
        self._flows[destination] = reason
        if first:
            self._soon(self._tell_flows)

    async def _tell_flows(self) -> None:
        flows, self._flows = self._flows, {}
        for destination, reason in flows.items():
            result: Any = None
            if reason is None and destination in self._told:
                self._told.discard(destination)
                if self._unblocked is not None:
                    result = self._unblocked(destination)
            elif reason is not None and destination not in self._told:
                self._told.add(destination)
                if self._blocked is not None:
                    result = self._blocked(destination, reason)
            if result is not None and inspect.isawaitable(result):
                await result

    def _tell(self, exception: JMSException) -> Any:
        if self._callback is None:
            _log.warning("%s (no exception listener is set)", exception)
            return None
        return self._callback(exception)

    def _soon(self, call: Callable[[], Any]) -> None:
        self._waiting.append(call)
        if self._task is None and not self._loop.is_closed():
            self._task = self._loop.create_task(self._run(), name="sievemq-exceptions")

    async def _run(self) -> None:
        try:
            while self._waiting:
                call = self._waiting.popleft()
                try:
                    result = call()
                    if result is not None and inspect.isawaitable(result):
                        await result
                except BaseException as error:
                    if ends_its_task(error):
                        raise
                    _log.exception("an exception listener raised")
        finally:
            self._task = None
