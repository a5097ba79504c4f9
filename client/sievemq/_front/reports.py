"""Queues the calls of an ExceptionListener, and drops those that are outdated.

Each front makes the calls, one at a time (EXL-02): in a thread or in a task."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

from sievemq._engine.sends import Blocked
from sievemq._front.listeners import connection_callbacks, exception_callback, flow_callbacks
from sievemq.exceptions import JMSException

_log = logging.getLogger("sievemq")


class ExceptionReports:
    """The reports of one connection; base of both fronts' own.

    Args:
        guard: held while one side puts something down for the other.
    """

    __slots__ = (
        "__weakref__", "_blocked", "_callback", "_flows", "_guard", "_lost", "_restored", "_told", "_unblocked",
        "_waiting",
    )  # fmt: skip

    _awaits: ClassVar[bool]  # the front awaits what a listener returns

    def __init__(self, guard: AbstractContextManager[Any]) -> None:
        self._guard = guard
        self._callback: Callable[[JMSException], Any] | None = None
        self._lost: Callable[[JMSException], Any] | None = None
        self._restored: Callable[[], Any] | None = None
        self._blocked: Callable[[str | None, str], Any] | None = None
        self._unblocked: Callable[[str | None], Any] | None = None
        #: What is to be reported of destinations, why they are blocked or None; and those reported as blocked.
        self._flows: dict[str | None, str | None] = {}
        self._told: set[str | None] = set()
        self._waiting: deque[Callable[[], Any]] = deque()

    def listen(self, listener: object) -> None:
        """Set the listener; None logs instead.

        Raises:
            TypeError: it is no exception listener; or calling it would not run it.
        """
        callback = None if listener is None else exception_callback(listener, self._awaits)
        connection, flow = connection_callbacks(listener, self._awaits), flow_callbacks(listener, self._awaits)
        self._callback = callback
        self._lost, self._restored = connection
        self._blocked, self._unblocked = flow

    def add(self, error: Exception) -> None:
        """Report an error soon. Never waits."""
        exception = error if isinstance(error, JMSException) else JMSException(str(error), None, error)
        self._soon(lambda: self._call_listener(exception))

    def lost(self, error: JMSException) -> None:
        self._soon(lambda: self._lost and self._lost(error))

    def restored(self) -> None:
        self._soon(lambda: self._restored and self._restored())

    def blocked(self, blocked: Blocked) -> None:
        """Report soon that sends wait for room."""
        self._flow(blocked.destination, blocked.reason)

    def unblocked(self, blocked: Blocked) -> None:
        """Report soon that they are unblocked. A slow listener gets no report of a wait that has ended already."""
        self._flow(blocked.destination, None)

    def _flow(self, destination: str | None, reason: str | None) -> None:
        with self._guard:
            first = not self._flows
            self._flows[destination] = reason
        if first:
            self._soon(self._report_flows)

    def _flow_calls(self) -> Iterator[Callable[[], Any]]:
        """The calls for everything that has changed since the last time."""
        with self._guard:
            flows, self._flows = self._flows, {}
        for destination, reason in flows.items():
            if reason is None and destination in self._told:
                self._told.discard(destination)
                if self._unblocked is not None:
                    yield partial(self._unblocked, destination)
            elif reason is not None and destination not in self._told:
                self._told.add(destination)
                if self._blocked is not None:
                    yield partial(self._blocked, destination, reason)

    def _call_listener(self, exception: JMSException) -> Any:
        if self._callback is None:
            _log.error("%s (no exception listener is set)", exception)
            return None
        return self._callback(exception)

    def _soon(self, call: Callable[[], Any]) -> None:
        raise NotImplementedError

    def _report_flows(self) -> Any:
        raise NotImplementedError
