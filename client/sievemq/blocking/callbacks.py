"""Calls of the CompletionListeners of one session: in order, one at a time, on a thread of their own (CPL-05 … 07).

There is one call a message: so the thread takes all that wait in one go, and is woken only when it rests. A sender
appends before it wakes the thread; the thread checks the queue after it set `_resting`: one of them sees the other.
"""

from __future__ import annotations

import logging
import threading
from _thread import LockType, allocate_lock

from sievemq._engine import Sends, call
from sievemq._front import refuse_awaitable

_log = logging.getLogger("sievemq")


class CompletionCalls:
    """The thread that makes the calls of one session, which ends when it is idle for a while.

    Attributes:
        begun: asynchronous sends made; written by the sending thread, under the session's lock of sends.
        done: those whose callback has returned; written by the thread alone.
    """

    __slots__ = ("_calls", "_ident", "_lock", "_resting", "_wake_up", "_watchers", "begun", "done")

    #: Seconds an idle thread waits for more.
    IDLE = 5.0

    def __init__(self, sends: Sends) -> None:
        self._calls = sends.calls
        sends.call_back(self._wake)
        self._lock = allocate_lock()  # guards whether the thread exists and rests, and the watchers
        self._wake_up = allocate_lock()
        self._wake_up.acquire()
        self._resting = True
        self._watchers: list[LockType] = []
        self._ident: int | None = None
        self.begun = self.done = 0

    def forget_threads(self) -> None:
        """In a child made by fork: the calls are the parent's."""
        self._lock, self._wake_up = allocate_lock(), allocate_lock()
        self._wake_up.acquire()
        self._resting, self._ident = True, None
        self._watchers = []
        self.done = self.begun

    def begin(self) -> None:
        """An asynchronous send is being made; its call follows once its fate is known, or :meth:`cancel`."""
        self.begun += 1

    def cancel(self, begun: int) -> None:
        """The send call raised: no callback (CPL-03)."""
        self.begun = begun
        self._notify_watchers()

    def _wake(self) -> None:
        """There is something to call."""
        if self._resting:
            with self._lock:
                if not self._resting:
                    return
                thread: threading.Thread | None = None
                self._resting = False
                try:
                    if self._ident is None:
                        thread = threading.Thread(target=self._run, name="sievemq-completions", daemon=True)
                        self._ident = -1
                        thread.start()
                    elif self._wake_up.locked():
                        self._wake_up.release()
                except BaseException:  # interrupted: it is called once more
                    if thread is None:
                        self._resting = self._wake_up.locked()
                    elif thread.ident is None:
                        self._ident, self._resting = None, True
                    raise

    @property
    def pending(self) -> int:
        """Sends whose callback has not returned."""
        return self.begun - self.done

    @property
    def mine(self) -> bool:
        """True in a callback of this session (CPL-11)."""
        return self._ident == threading.get_ident()

    def wait(self, seconds: float = -1.0) -> bool:
        """Return once every callback of the sends made so far has returned (CPL-09, CPL-10).

        Args:
            seconds: at most; negative for no limit.

        Returns:
            False if the time is over.
        """
        watcher = allocate_lock()
        watcher.acquire()
        with self._lock:
            self._watchers.append(watcher)
        self._notify_watchers()  # nothing may be pending any more
        if watcher.acquire(timeout=seconds):
            return True
        with self._lock:
            self._watchers = [other for other in self._watchers if other is not watcher]
        return False

    @property
    def calling(self) -> bool:
        return bool(self._calls) or not self._resting

    def _notify_watchers(self) -> None:
        if self._watchers and self.begun <= self.done:
            with self._lock:
                watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                watcher.release()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        calls = self._calls
        while True:
            while calls:
                try:
                    result = call(calls.popleft())
                    if result is not None:
                        refuse_awaitable(result)
                except BaseException:  # SystemExit and pytest.fail() too: the next callback is to come
                    _log.exception("a completion listener raised")
                finally:
                    self.done += 1
            self._notify_watchers()
            self._resting = True
            if calls and self._rises():
                continue
            if not self._wake_up.acquire(timeout=self.IDLE) and self._ends():
                return
            # Woken, or about to be; or an interrupt has prevented it.

    def _rises(self) -> bool:
        """True if the thread ends its rest itself; False if a sender has seen it rest, and wakes it."""
        with self._lock:
            rested, self._resting = self._resting, False
            return rested

    def _ends(self) -> bool:
        """True if the thread may end; False if a sender has just seen it rest."""
        with self._lock:
            if self._resting:
                self._ident = None
            return self._resting
