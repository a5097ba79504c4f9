"""A lock, a clock and closing once, under the same names in both APIs, for code that is generated from one."""

from __future__ import annotations

import asyncio
from asyncio import Lock
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sievemq.aio.transport import Transport

__all__ = ["LOOK_SECONDS", "Lock", "Once", "ends_its_task", "now"]

#: Between two looks, after the time to wait is over, at a callback or listener that is still running.
LOOK_SECONDS: Final = 0.05


def now() -> float:
    """The running loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


class Once:
    """Closing: carried out once, in a task of its own, so that a cancelled caller leaves it running."""

    __slots__ = ("_task", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._task: asyncio.Task[None] | None = None

    @property
    def done(self) -> bool:
        return self._task is not None and self._task.done()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry it out, or wait for its end."""
        self._transport.check_loop()
        if self._task is None:
            self._task = self._transport.loop.create_task(work(), name="sievemq-close")
        await asyncio.shield(self._task)


def ends_its_task(error: BaseException) -> bool:
    """True if what a listener raised is to end the task that called it, and so what the loop is for; False if it is the
    listener's own failure, such as a CancelledError of something that it awaited, or pytest.fail().

    Asked in that task, about what is raised again then.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        task = asyncio.current_task()
        if task is not None:  # it goes through the loop to its runner: the task need not report it as well
            task.add_done_callback(_asked)
        return True
    return isinstance(error, GeneratorExit)


def _asked(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()
