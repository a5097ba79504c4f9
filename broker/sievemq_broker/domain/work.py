"""The scheduler: a verb that may meet more than a constant number of things is a task, and has its slice of a turn.

    verb ── start(key, task) ──► Scheduler ◄── run(now), once in each turn
                                     │ a slice of each task, until the budget of the turn is spent
            Job.then(listener) ◄─────┘ the task has returned

A task is a generator. It tells its budget what it does, yields once that is spent, and is sent the time at which it
goes on. State may have changed in between: a task keeps entries and examines their state again, and never keeps
positions in a list. A task that has to wait for another one yields its :class:`Job`, and goes on after the other's
listeners before it; nothing looks at it meanwhile.

The journal is cut between two slices. What a task with a share does is written when it is over, in one piece with what
was complete before.

Tasks with the same key run one after the other, as they were started; others take turns. A task that has begun is
completed, even if the client that asked for it is lost meanwhile, unless it is cancelled.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Hashable
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from sievemq_broker.domain.journal import Journal, Share

T = TypeVar("T")

Task: TypeAlias = Generator[Any, int, T]
"""Yields between slices: None, or the :class:`Job` that it waits for. Is sent `now` (ms epoch), returns its result."""

#: Units that the tasks of one turn may spend. A unit is what it takes to examine a message: two to four microseconds.
TURN: Final = 500


class Budget:
    """What may be spent before others have their turn, in units (:data:`TURN`).

    Attributes:
        left: what is left; 0 or less when it is spent.
    """

    __slots__ = ("left",)

    def __init__(self, units: int = TURN) -> None:
        self.left = units

    @property
    def spent(self) -> bool:
        """True if a task must yield."""
        return self.left <= 0

    def spend(self, units: int) -> None:
        """Count work that was done."""
        self.left -= units

    def renew(self, units: int) -> None:
        """The next turn begins."""
        self.left = units


Make: TypeAlias = Callable[[int, Budget], Task[T]]
"""Makes a task when its turn comes, at a time (ms epoch)."""

Listener: TypeAlias = Callable[[int], None]
"""Called when a task is over, with the time (ms epoch). It must not raise."""


class Job(Generic[T]):
    """A task under way.

    Attributes:
        limit_text: what others wait for, as text for people.
        over: it has returned, or raised.
        error: what it has raised; None for nothing.
        running: a slice is being done.
        awaited: what it waits for before its next slice; None if it can go on.
        share: what it does is stored together, or not at all; None if it need not be.
    """

    __slots__ = (
        "_listeners", "_make", "_result", "_task", "awaited", "error", "limit_text", "over", "running", "share",
    )  # fmt: skip

    def __init__(self, make: Make[T], limit_text: str, share: Share | None) -> None:
        self._make = make
        self._task: Task[T] | None = None
        self._result: T | None = None
        self._listeners: list[Listener] = []
        self.limit_text = limit_text
        self.share = share
        self.over = False
        self.running = False
        self.awaited: Job[Any] | None = None
        self.error: Exception | None = None

    @property
    def has_room(self) -> bool:
        """True if senders may go on that wait for it, as at a limit."""
        return self.over

    @property
    def result(self) -> T:
        """What it has returned. Raises what it has raised."""
        assert self.over
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]

    @property
    def began(self) -> bool:
        """True if its first slice is done, or being done."""
        return self._task is not None

    def then(self, listener: Listener) -> None:
        """Call this when it is over, after the listeners before. It is not over yet."""
        self._listeners.append(listener)

    def advance(self, now: int, budget: Budget) -> None:
        """Do the next slice."""
        self.running = True
        try:
            if self._task is None:
                self._task = self._make(now, budget)
                self.awaited = next(self._task)
            else:
                self.awaited = self._task.send(now)
        except StopIteration as end:
            self._result = end.value
            self.over = True
        except Exception as error:
            self.error = error
            self.over = True
        self.running = False

    def end(self, now: int) -> None:
        """An :func:`event` has come."""
        self.over = True
        self.tell(now)

    def tell(self, now: int) -> bool:
        """Call the listeners: it is over. False if there is none."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(now)
        return bool(listeners)

    def wait_no_more(self) -> bool:
        """What it waited for is over. False if it did not wait any more."""
        waited, self.awaited = self.awaited is not None, None
        return waited

    def close(self) -> None:
        """It goes on no more."""
        self.over = True
        self.awaited = None
        if self._task is not None:
            self._task.close()


def _no_task(now: int, budget: Budget) -> Task[None]:
    raise AssertionError("it is not carried out")


def event() -> Job[None]:
    """What tasks can wait for that is not done by a task: :meth:`Job.end` is called when it has come."""
    return Job(_no_task, "", None)


class Scheduler:
    """All tasks of one broker.

    Attributes:
        budget: of the present turn.
        journal: stores what tasks do; None if nothing does.
        overrun: the most units by which a slice has exceeded what it had.
        ring: the keys of all tasks that can go on, the next one first.
        turn: units that the tasks of one turn may spend.
    """

    __slots__ = ("_beginning", "_lines", "_report", "_running", "budget", "journal", "overrun", "ring", "turn")

    def __init__(self) -> None:
        self._report: Callable[[Exception], None] = _raise
        self.turn = TURN
        self.budget = Budget()
        self.journal: Journal | None = None
        self.overrun = 0
        #: Tasks by key, the one under way first.
        self._lines: dict[Hashable, deque[Job[Any]]] = {}
        self.ring: deque[Hashable] = deque()
        self._running = False
        #: The keys of tasks whose first slices are being done.
        self._beginning: set[Hashable] = set()

    def store_in(self, journal: Journal) -> None:
        """Store what tasks do that have a share."""
        self.journal = journal

    def report_to(self, report: Callable[[Exception], None]) -> None:
        """Call this with what a task without a listener raises, so that other tasks go on. By default it is raised."""
        self._report = report

    def start(
        self,
        key: Hashable,
        make: Make[T],
        now: int,
        limit_text: str = "",
        *,
        share: Share | None = None,
        later: bool = False,
    ) -> Job[T]:
        """Start a task: its first slice is done before this returns, unless others with its key come before.

        Args:
            key: what must not be worked on by two tasks at a time.
            make: makes the task.
            now: ms epoch.
            limit_text: what others wait for, for people.
            share: what it does is in it, and is stored once the task is over.
            later: its first slice is done in :meth:`run`.

        Returns:
            The task under way, or over.
        """
        job = Job(make, limit_text, share)
        if not later and key not in self._lines and key not in self._beginning:
            outer = self._running
            if not outer:
                self.budget.renew(self.turn)
            if self.budget.left > 0:
                self._beginning.add(key)
                self._running = True
                self._advance(job, now)
                self._running = outer
                self._beginning.discard(key)
                if job.over:
                    return job
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
            self.ring.append(key)
        if job.began:
            line.appendleft(job)  # others may have come meanwhile
            self._park(key, job)
        else:
            line.append(job)
        return job

    def share_turn(self, do: Callable[[], object]) -> None:
        """Call a function that starts tasks. Their first slices share the budget of one turn."""
        outer = self._running
        if not outer:
            self.budget.renew(self.turn)
        self._running = True
        try:
            do()
        finally:
            self._running = outer

    def is_busy(self, key: Hashable) -> bool:
        """True while there is a task with this key."""
        return key in self._lines

    def last(self, key: Hashable) -> Job[Any] | None:
        """The last task with this key; None if there is none."""
        line = self._lines.get(key)
        return None if line is None else line[-1]

    def run(self, now: int, units: int | None = None) -> bool:
        """Do a turn of work.

        Args:
            now: ms epoch.
            units: to spend; None for :attr:`turn`.

        Returns:
            True if there is more to do.
        """
        ring, budget, running = self.ring, self.budget, 0
        before, outer = budget.left, self._running
        budget.renew(self.turn if units is None else units)
        self._running = True
        try:
            while running < len(ring) and not budget.spent:
                key = ring.popleft()
                ring.append(key)
                job, left = self._lines[key][0], budget.left
                if job.running:  # this is called by a task
                    running += 1
                    continue
                running = 0
                self._advance(job, now)
                if job.over:
                    self._end(key, job, now)
                    continue
                self._park(key, job)
                if budget.left == left:
                    budget.spend(1)  # to look whether there is something to do takes time as well
        finally:
            self._running = outer
            if outer:
                budget.renew(before)
        return bool(ring)

    def finish(self, now: int, key: Hashable = None) -> None:
        """Carry out tasks to their end at once.

        Args:
            now: ms epoch.
            key: of those; None for all.
        """
        while self.ring if key is None else key in self._lines:
            tasks, left = self._tasks, self.budget.left
            if key is not None and (job := self._lines[key][0]).awaited is None and not job.running:
                self.budget.renew(sys.maxsize)
                self._advance(job, now)
                self.budget.renew(left)
                if job.over:
                    self._end(key, job, now)
                    continue
                self._park(key, job)
            self.run(now, sys.maxsize)
            if self._tasks == tasks and self.budget.left in (left, sys.maxsize):
                return  # what is left waits for what does not go on here

    @property
    def _tasks(self) -> int:
        return sum([len(line) for line in self._lines.values()])

    def cancel(self, key: Hashable, job: Job[Any]) -> None:
        """Drop a task with this key that has had no effect, and is not over. Its listeners are not called."""
        line = self._lines[key]
        waited = job.awaited is not None
        line.remove(job)
        job.close()
        if waited:
            self.ring.append(key)  # another one may be next
        if not line:
            self._forget(key)

    def _park(self, key: Hashable, job: Job[Any]) -> None:
        """Take a task, the first with its key, out of the ring while it waits for another one."""
        if job.awaited is not None:
            self._leave(key)
            job.awaited.then(partial(self._wake, key, job))

    def _wake(self, key: Hashable, job: Job[Any], now: int) -> None:
        if job.wait_no_more():
            self.ring.append(key)

    def _advance(self, job: Job[Any], now: int) -> None:
        journal, share = self.journal, job.share
        if journal is None:
            job.advance(now, self.budget)
        else:
            before = journal.turn_to(share)
            job.advance(now, self.budget)
            journal.turn_to(before)
            if share is not None and job.over:
                journal.complete(share)
        left = self.budget.left
        if left < 0:
            self.overrun = max(self.overrun, -left)

    def _end(self, key: Hashable, job: Job[Any], now: int) -> None:
        """A task is over: the next one with its key may begin."""
        line = self._lines[key]
        line.popleft()
        if not line:
            self._forget(key)
        if not job.tell(now) and job.error is not None:
            self._report(job.error)

    def _forget(self, key: Hashable) -> None:
        del self._lines[key]
        self._leave(key)

    def _leave(self, key: Hashable) -> None:
        if self.ring[-1] is key:
            self.ring.pop()
        else:
            self.ring.remove(key)


def _raise(error: Exception) -> None:
    raise error


def finish(make: Make[T], now: int) -> T:
    """Carry out a task at once, for few things and for tests.

    Args:
        make: makes it.
        now: ms epoch.
    """
    job = Job(make, "", None)
    budget = Budget(sys.maxsize)
    while not job.over:
        job.advance(now, budget)
    return job.result
