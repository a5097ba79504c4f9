"""A thread for calls that may block, such as those of a store: one after the other, off the loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable


class Worker:
    """Carries out calls in their order, on a thread of its own. A call reports to the loop by itself.

    Args:
        loop: that the calls report to.
        name: of the thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ended: asyncio.Future[None] = loop.create_future()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, call: Callable[[], None]) -> None:
        """Carry out a call after those before it. It must not raise."""
        self._calls.put(call)

    def end(self) -> asyncio.Future[None]:
        """No more calls follow. Completed when the last one is over, which may be never if it hangs."""
        self._calls.put(None)
        return self._ended

    def _work(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                call()
            self._loop.call_soon_threadsafe(self._ended.set_result, None)
        except RuntimeError:
            if not self._loop.is_closed():  # the end did not wait for a call that hangs
                raise
