"""Calls of the CompletionListeners of one session: in order, one at a time, on a thread of their own (CPL-05 … 07)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from sievemq.messages import Message

__all__ = ["CompletionCalls"]

_log = logging.getLogger("sievemq")

_Call = tuple[Callable[..., Any], tuple[Any, ...]]


class CompletionCalls:
    """The queue of calls of one session, and its thread, which ends when it is idle for a while."""

    __slots__ = ("_changed", "_ident", "_waiting", "pending")

    #: Seconds an idle thread waits for more.
    IDLE = 5.0

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self.pending = 0  # sends whose callback has not returned
        self._ident: int | None = None

    def begin(self) -> None:
        """An asynchronous send was made; :meth:`add` follows once its fate is known, or :meth:`cancel`."""
        with self._changed:
            self.pending += 1

    def cancel(self) -> None:
        """The send call raised: no callback (CPL-03)."""
        with self._changed:
            self.pending -= 1
            self._changed.notify_all()

    def add(self, callback: Callable[..., Any], message: Message, *more: Any) -> None:
        """Call a callback soon."""
        with self._changed:
            self._waiting.append((callback, (message, *more)))
            if self._ident is None:
                self._ident = -1
                threading.Thread(target=self._run, name="sievemq-completions", daemon=True).start()
            self._changed.notify_all()

    @property
    def mine(self) -> bool:
        """True in a callback of this session (CPL-11)."""
        return self._ident == threading.get_ident()

    def wait(self) -> None:
        """Return once every callback of the sends made so far has returned (CPL-09, CPL-10)."""
        with self._changed:
            while self.pending:
                self._changed.wait()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        while True:
            with self._changed:
                if not self._waiting and not self._changed.wait_for(lambda: bool(self._waiting), self.IDLE):
                    self._ident = None
                    return
                callback, arguments = self._waiting.popleft()
            try:
                message = arguments[0]
                if isinstance(message, Message):
                    message._completed()  # CPL-15
                callback(*arguments)
            except Exception:
                _log.exception("a completion listener raised")
            finally:
                with self._changed:
                    self.pending -= 1
                    self._changed.notify_all()
