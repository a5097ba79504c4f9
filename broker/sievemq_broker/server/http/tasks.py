"""Work of the management port as tasks of the scheduler: requests share the turns of all other work.

A task whose client has disconnected ends at its next slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeVar

from sievemq_broker.domain.work import Budget, Make, Task, finish
from sievemq_broker.server.http.errors import GoneError
from sievemq_broker.server.http.pace import resumed
from sievemq_broker.server.server import Server
from sievemq_broker.session.peer import Peer

#: Units of a row of an answer: some fifty microseconds.
ROW: Final = 16

#: Sessions that a task checks for one unit of work.
SESSIONS: Final = 16

T = TypeVar("T")
R = TypeVar("R")

#: Has the caller disconnected? Of the request that is being answered (the router sets it).
gone: ContextVar[Callable[[], bool]] = ContextVar("gone", default=lambda: False)


async def run(broker: Server, make: Make[T]) -> T:
    """Carry a task to its end and return what it returns.

    Args:
        broker: whose scheduler.
        make: makes the task, see :mod:`sievemq_broker.domain.work`.

    Raises:
        GoneError: the caller has disconnected; what is done stays done.
    """
    if not broker.started_at:  # it has no clients yet, and runs no turns: the task delays nobody
        return finish(make, broker.clock.now())
    scheduler, done = broker.shard.broker.scheduler, asyncio.get_running_loop().create_future()
    job = scheduler.start(done, _while_wanted(make, gone.get()), broker.clock.now(), later=True)
    job.then(lambda now: None if done.done() else done.set_result(None))
    broker.turn.worked()
    await done
    await resumed.get()()
    return job.result


async def each(broker: Server, items: Iterable[T], do: Callable[[T], R], units: int = ROW) -> list[R]:
    """Do something with each of many things, as a task.

    Args:
        broker: whose scheduler.
        items: a snapshot: what it was made from may change meanwhile.
        do: called with each; its results are returned.
        units: what one takes.
    """
    return await run(broker, partial(_each, items, do, units))


def _each(items: Iterable[T], do: Callable[[T], R], units: int, now: int, budget: Budget) -> Task[list[R]]:
    results: list[R] = []
    for item in items:
        if budget.spent:
            yield
        budget.spend(units)
        results.append(do(item))
    return results


async def open_transactions(broker: Server, connections: list[Peer]) -> int:
    """How many transactions of these clients have sends that wait for their commit."""
    return await run(broker, partial(_sum, connections, lambda peer: peer.open_transactions))


async def blocked_producers(broker: Server, connections: list[Peer]) -> int:
    """How many of these clients have a send or COMMIT that waits for room."""
    return await run(broker, partial(_sum, connections, lambda peer: bool(peer.blocked_senders)))


def _sum(connections: list[Peer], count: Callable[[Peer], int], now: int, budget: Budget) -> Task[int]:
    """The sum of what each connection counts over its sessions."""
    number = 0
    for connection in connections:
        if budget.spent:
            yield
        budget.spend(1 + len(connection.sessions) // SESSIONS)
        number += count(connection)
    return number


def _while_wanted(make: Make[T], is_gone: Callable[[], bool]) -> Make[T]:
    """Carry out a task as long as its caller is there."""

    def going_on(now: int, budget: Budget) -> Task[T]:
        task = make(now, budget)
        try:
            awaited = next(task)
            while True:
                now = yield awaited
                if is_gone():
                    task.close()
                    raise GoneError
                awaited = task.send(now)
        except StopIteration as end:
            result: T = end.value
            return result

    return going_on
