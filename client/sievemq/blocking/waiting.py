"""A lock, a clock and closing once, under the same names in both APIs, for code that is generated from one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic as now

from sievemq.blocking.transport import Transport

__all__ = ["Lock", "Once", "now"]


class Once:
    """Closing: carried out once, by the first thread that calls; others wait. One that was interrupted is carried out
    again by the next call.

    Attributes:
        done: it has ended, or failed.
    """

    __slots__ = ("__weakref__", "_lock", "done")

    def __init__(self, transport: Transport) -> None:
        self._lock = Lock()
        self.done = False
        transport.serve(self)

    def forget_threads(self) -> None:
        """In a child made by fork: no other thread closes."""
        self._lock = Lock()

    def run(self, work: Callable[[], None]) -> None:
        """Carry it out, or wait for its end."""
        with self._lock:
            if not self.done:
                try:
                    work()
                except Exception:
                    self.done = True
                    raise
                self.done = True
