"""Calls of an ExceptionListener: one at a time (EXL-02), on a thread that lives while there is something to say."""

from __future__ import annotations

import logging
import threading
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

    __slots__ = ("_lock", "_running", "_waiting", "callback")

    def __init__(self) -> None:
        self.callback: Callable[[JMSException], Any] | None = None
        self._lock = threading.Lock()
        self._waiting: deque[JMSException] = deque()
        self._running = False

    def add(self, error: Exception) -> None:
        """Report an error soon, from another thread. Never waits."""
        exception = error if isinstance(error, JMSException) else JMSException(str(error), None, error)
        with self._lock:
            self._waiting.append(exception)
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._run, name="sievemq-exceptions", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                exception = self._waiting.popleft()
            callback = self.callback
            if callback is None:
                _log.warning("%s (no exception listener is set)", exception)
                continue
            try:
                callback(exception)
            except Exception:
                _log.exception("an exception listener raised")
