"""What a client has asked for and is not done yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.work import TURN, Budget, Job, Make, Scheduler, Task
from sievemq_broker.session.life import CLOSING, Life
from sievemq_core.wire.codec import CommandTuple

Act: TypeAlias = Callable[[int], None]
"""What is left of a command, called with the time (ms epoch)."""

#: Units of work for a command that has waited for a batch: a page of a queue or a tap, for instance.
_WAITED: Final = TURN // 2


class Begun(NamedTuple):
    """A command that takes several turns, or waits for some.

    Attributes:
        job: must be over before.
        size: bytes of the messages that only this command holds.
        drops: the command has no effect before that: if the connection is lost, it is not carried out. What has begun
            to come back, or to be delivered, is completed even so.
    """

    job: Job[Any]
    size: int
    drops: bool


Conclude: TypeAlias = Callable[[Exception | None, CommandTuple, Act, int], None]
"""Called when the task of a command is over: with what that has raised, the command, what is left of it, and the time
(ms epoch). Never raises."""


class Agenda:
    """The commands of one client that are not done.

        arrives ─► carried out ─► done
            │           └─► begun: a task of it is under way ─► concluded
            └─► late: there was no time, or one before it has begun ─► taken up again, in order

    A command that waits for a batch holds up no later ones, except those that may not be carried out before it: a task
    carries them out in order.

    Args:
        scheduler: of the broker.
        life: of the client.
        conclude: called when the task of a command is over.

    Attributes:
        begun: later commands wait until these end.
        behind: not all commands are done.
    """

    __slots__ = (
        "_conclude", "_late", "_late_bytes", "_life", "_scheduler", "_taking_up", "_waiting", "begun", "behind",
    )  # fmt: skip

    def __init__(self, scheduler: Scheduler, life: Life, conclude: Conclude) -> None:
        self._scheduler = scheduler
        self._life = life
        self._conclude = conclude
        self._late: list[CommandTuple] = []
        self._late_bytes = 0
        #: What is left of commands that wait for a batch, and the session that each concerns, if it does one.
        self._waiting: deque[tuple[object, Act]] = deque()
        #: One of them is being carried out, and has not had to wait again.
        self._taking_up = False
        self.begun: list[Begun] = []
        self.behind = False

    @property
    def bytes(self) -> int:
        """Of messages and commands that are nowhere else."""
        return self._late_bytes + sum([command.size for command in self.begun])

    def put_off(self, commands: list[CommandTuple], size: int = 0) -> None:
        """Keep commands for later, behind those that wait.

        Args:
            commands: the commands.
            size: their bytes.
        """
        self._late += commands
        self._late_bytes += size
        self._changed()

    def take_up(self) -> tuple[list[CommandTuple], int]:
        """Remove and return the commands that wait, and their bytes."""
        late, size = self._late, self._late_bytes
        self._late, self._late_bytes = [], 0
        self._changed()
        return late, size

    def clear(self) -> None:
        """The client is gone: nothing more is carried out. Tasks that have no effect yet end."""
        for command in self.begun:
            if command.drops:
                self._scheduler.cancel(self, command.job)
        self.begun = []
        self._waiting.clear()
        self.take_up()
        self._conclude = _drop  # without a reference cycle the client is freed at once

    def go_on_after(
        self, job: Job[Any], command: CommandTuple, act: Act, now: int, size: int = 0, *, drops: bool = False
    ) -> None:
        """Go on with a command when a task is over. Later commands wait.

        Args:
            job: the task.
            command: the command.
            act: called then, unless the connection is lost.
            now: ms since 1970.
            size: bytes of the messages that only this command holds.
            drops: nothing is to be done if the connection is lost before; the task was started by :meth:`examine`.
        """
        if job.over:
            if job.error is not None:
                raise job.error
            act(now)
            return
        self._begin(Begun(job, size, drops))
        job.then(partial(self._go_on, self._conclude, job, command, act))

    def examine(self, examine: Make[int], command: CommandTuple, act: Act, now: int, size: int = 0) -> None:
        """Evaluate what takes long before a command has any effect. Later commands wait.

        Args:
            examine: makes the task.
            command, act, now, size: as :meth:`go_on_after`.
        """
        self.go_on_after(self._scheduler.start(self, examine, now), command, act, now, size, drops=True)

    def wait_for_return(self, connection: str | None, command: CommandTuple, act: Act) -> bool:
        """True if another connection is still returning its messages: then the command goes on when it has. Later
        commands wait.

        Args:
            connection: id of the other one; None if there is none. Several clients may wait for it.
            command, act: as :meth:`go_on_after`.
        """
        leaving = None if connection is None else self._scheduler.last(connection)
        if leaving is None:
            return False
        self._begin(Begun(leaving, 0, drops=False))
        leaving.then(partial(self._returned, self._conclude, leaving, command, act))
        return True

    def waits_in(self, session: object) -> bool:
        """True if commands of this session wait for a batch that come before the present one."""
        return not self._taking_up and any(of is session for of, _ in self._waiting)

    def wait_for_publishing(
        self, namespace: Namespace, act: Act, session: object = None, *, first: bool = False
    ) -> bool:
        """True if a large batch is being published, which no client may see in part, or if commands before this one
        still wait for one: `act` is called after that, unless the connection is lost. Very many commands may wait for
        one batch: they are carried out by tasks, those of a client in order.

        Args:
            session: that the command concerns; None for none.
            first: it has begun, so it comes before those that wait.
        """
        publishing = namespace.publishing
        if self._waiting and not (first or self._taking_up):
            self._waiting.append((session, act))
            return True
        if publishing is None:
            return False
        self._waiting.appendleft((session, act))
        self._taking_up = False
        publishing.then(partial(self._start, namespace))
        return True

    def _start(self, namespace: Namespace, now: int) -> None:
        if self._life.state < CLOSING:
            self._scheduler.start(("published", self), partial(self._published, namespace), now, later=True)

    def _published(self, namespace: Namespace, now: int, budget: Budget) -> Task[None]:
        """Carry out what has waited for a batch, until one command takes several turns, or must wait for another
        batch."""
        while self._waiting and self._life.state < CLOSING:
            if budget.spent:
                now = yield
                continue
            if self.begun:
                self.begun[-1].job.then(partial(self._start, namespace))
                return
            # If another batch is being published by now, most commands only wait for that one.
            budget.spend(_WAITED if namespace.publishing is None else 1)
            _, act = self._waiting.popleft()
            self._taking_up = True
            act(now)
            if not self._taking_up:
                return
            self._taking_up = False

    def _go_on(self, conclude: Conclude, job: Job[Any], command: CommandTuple, act: Act, now: int) -> None:
        self._end(job)
        conclude(job.error, command, act, now)

    def _returned(self, conclude: Conclude, leaving: Job[Any], command: CommandTuple, act: Act, now: int) -> None:
        self._end(leaving)
        conclude(None, command, act, now)  # what it has raised is no fault of this client's

    def _begin(self, command: Begun) -> None:
        self.begun.append(command)
        self._changed()

    def _end(self, job: Job[Any]) -> None:
        self.begun = [command for command in self.begun if command.job is not job]
        self._changed()

    def _changed(self) -> None:
        self.behind = bool(self._late or self.begun)


def _drop(error: Exception | None, command: CommandTuple, act: Act, now: int) -> None:
    """The client was gone before the command began."""
