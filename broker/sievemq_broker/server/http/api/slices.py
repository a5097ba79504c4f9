"""Long work in pieces: between two of them the loop serves other clients.

The domain's long verbs are generators: each ``yield`` ends a slice of a millisecond or two, and is sent the time.
However many requests are at work, they have one slice a turn between them: two hundred that each took its own would
keep every client waiting for half a second. Work without a waiting client ends at its next slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

from sievemq_broker.domain.work import Budget, Make, Task
from sievemq_broker.server.http.errors import GoneError
from sievemq_broker.server.server import Server

#: How long the loop may be kept before others have their turn.
SLICE_SECONDS = 0.002

T = TypeVar("T")

#: Has the caller disconnected? Of the request that is being answered (the router sets it).
gone: ContextVar[Callable[[], bool]] = ContextVar("gone", default=lambda: False)


#: Work that waits for its next slice, by loop; first come, first served.
_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def run(broker: Server, make: Make[T]) -> T:
    """Carry a task of the domain to its end and return what it returns.

    Args:
        broker: whose scheduler.
        make: makes the task, see :mod:`sievemq_broker.domain.work`.

    Raises:
        GoneError: the caller has disconnected; what is done stays done.
    """
    scheduler, done = broker.shard.broker.scheduler, asyncio.get_running_loop().create_future()
    job = scheduler.start(done, _while_wanted(make, gone.get()), broker.clock.now(), later=True)
    job.then(lambda now: None if done.done() else done.set_result(None))
    broker.turn.worked()
    await done
    return job.result


def _while_wanted(make: Make[T], is_gone: Callable[[], bool]) -> Make[T]:
    """Carry out a task as long as its caller is there."""

    def going_on(now: int, budget: Budget) -> Task[T]:
        task = make(now, budget)
        try:
            next(task)
            while True:
                now = yield
                if is_gone():
                    task.close()
                    raise GoneError
                task.send(now)
        except StopIteration as end:
            result: T = end.value
            return result

    return going_on


async def in_slices(items: Iterable[T], every: int = 64) -> AsyncIterator[T]:
    """Go through many things, letting others have their turn in between.

    Args:
        items: a snapshot: what it was made from may change meanwhile.
        every: how many items are handled between two readings of the time.
    """
    begin = perf_counter()
    for number, item in enumerate(items):
        if number % every == 0 and perf_counter() - begin > SLICE_SECONDS:
            await _others()
            begin = perf_counter()
        yield item


async def _others() -> None:
    """All other work has a turn, then the slices that have waited longer."""
    async with _line():
        await asyncio.sleep(0)
    if gone.get()():
        raise GoneError


def _line() -> asyncio.Lock:
    return _lines.setdefault(asyncio.get_running_loop(), asyncio.Lock())
