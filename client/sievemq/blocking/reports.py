"""Calls an ExceptionListener, one call at a time (EXL-02), in a thread that exists only while calls are queued."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from sievemq._front import ExceptionReports, refuse_awaitable
from sievemq.blocking.transport import Transport

_log = logging.getLogger("sievemq")


class Reports(ExceptionReports):
    """The reports of one connection."""

    __slots__ = ("_running",)
    _awaits = False

    def __init__(self, transport: Transport) -> None:
        super().__init__(threading.Lock())
        self._running = False
        transport.serve(self)

    def forget_threads(self) -> None:
        """In a child made by fork: the reports are the parent's."""
        self._guard = threading.Lock()
        self._waiting.clear()
        self._running = False

    def _soon(self, call: Callable[[], Any]) -> None:
        with self._guard:
            self._waiting.append(call)
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._run, name="sievemq-exceptions", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._running = False
                    return
                call = self._waiting.popleft()
            try:
                refuse_awaitable(call())
            except BaseException:  # SystemExit too: the next report is to come
                _log.exception("an exception listener raised")

    def _report_flows(self) -> None:
        for call in self._flow_calls():
            refuse_awaitable(call())
