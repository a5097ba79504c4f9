"""The broker's body: namespaces, time and pending work. Everything else is a verb of a namespace or a consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from sievemq_broker.domain.admission import Overfull, Rooms
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.fan_out import FanOut
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.outcome_tap import STAMPED
from sievemq_broker.domain.policy import FAIL, DomainSettings
from sievemq_broker.domain.ports import Observer
from sievemq_broker.domain.publishing import Publishing
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.steps import SLICE, Steps
from sievemq_broker.domain.topic import Topic
from sievemq_core.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from sievemq_broker.domain.admission import Gate, Limited
    from sievemq_broker.domain.tap import CopyTap


class Broker:
    """Namespaces by name, created at first use.

    Args:
        settings: policies and limits.
        observer: receives what becomes of messages; None costs nothing.
    """

    def __init__(self, settings: DomainSettings | None = None, *, observer: Observer | None = None) -> None:
        self.settings = settings or DomainSettings()
        self.observers: tuple[Observer, ...] = () if observer is None else (observer,)
        #: The journal; None if nothing has to survive the process.
        self.journal: Journal | None = None
        self.deadlines = Deadlines()
        #: Senders that wait at a limit.
        self.rooms = Rooms()
        #: The limit that all messages together have reached; None below it.
        self.over: Overfull | None = None
        #: Counts arrivals while the broker is near its limit.
        self.gate: Gate | None = None
        #: Creates the gate of a namespace; None if no namespace has limits.
        self.gate_of: Callable[[Namespace], Gate | None] | None = None
        self.namespaces: dict[str, Namespace] = {}
        #: Called with each queue and topic before it is deleted, so that its counters are not lost.
        self.on_deleted: Callable[[Queue | Topic], None] | None = None
        #: Taps whose records have no time yet, or that lack the messages that waited before them.
        self.stamping: deque[CopyTap] = deque()
        #: There while a journal waits for them.
        self._stamps: Overfull | None = None
        self._work: deque[Queue] = deque()
        #: Large batches that are being published, at most one of each namespace.
        self._publishings: deque[Publishing] = deque()
        #: The message that is being delivered in slices. There is one at a time, so that a journal batch ends between
        #: two.
        self.fan_out: FanOut | None = None
        #: Closed connections that have not returned all of their messages.
        self._leaving: dict[str, Steps[None]] = {}

    def namespace(self, name: str) -> Namespace:
        """The namespace with that name; an empty name means ``default``.

        Raises:
            RequestError: RESOURCE_ALLOCATION if there are too many.
        """
        name = name or "default"
        found = self.namespaces.get(name)
        if found is None:
            if len(self.namespaces) >= self.settings.max_namespaces:
                raise RequestError(
                    f"there are {len(self.namespaces)} namespaces, as many as are allowed; delete unused ones",
                    ErrorCode.RESOURCE_ALLOCATION,
                    {"limit": "max_namespaces"},
                )
            found = self.namespaces[name] = Namespace(name, self)
            if self.gate_of is not None:
                found.set_gate(self.gate_of(found))
            if self.journal is not None:
                self.journal.namespace_made(name)
        return found

    def limit_namespaces(self, gate_of: Callable[[Namespace], Gate | None]) -> None:
        """Count arrivals in namespaces with limits from now on.

        Args:
            gate_of: makes the gate of a namespace; None for one without limits.
        """
        self.gate_of = gate_of
        for space in self.namespaces.values():
            space.set_gate(gate_of(space))

    def notify_deleted(self, on_deleted: Callable[[Queue | Topic], None]) -> None:
        """Call back with each queue and topic before it is deleted, so that its counters are not lost."""
        self.on_deleted = on_deleted

    def delete_namespace(self, name: str) -> bool:
        """Delete a namespace with everything in it, and close its consumers. False if there was none."""
        found = self.namespaces.pop(name or "default", None)
        if found is None:
            return False
        for text in list(found.destinations):
            found.delete(text)
        found.stages.forget_published()
        if self.journal is not None:
            self.journal.namespace_deleted(found.name)
        return True

    def keep_in(self, journal: Journal) -> None:
        """Write to this journal from now on."""
        self.journal = journal

    def refuse_persistent(self, reason: str | None) -> None:
        """Accept no PERSISTENT messages, since they cannot be stored; None: accept them again. Senders are refused or
        wait, as :attr:`DomainSettings.on_full_disk` says."""
        journal = self.journal
        if journal is not None:
            journal.refuse(None if reason is None else Overfull(reason, self.settings.on_full_disk == FAIL))
            for namespace in self.namespaces.values():
                namespace.forget_routes()

    def measure_room(self, measure: Callable[[], int]) -> None:
        """Accept only PERSISTENT messages for which the store has room from now on.

        Args:
            measure: bytes of new messages that can be written.
        """
        if self.journal is not None:
            self.journal.measure_with(measure, fails=self.settings.on_full_disk == FAIL)

    def guard_persistent(self, scarce: bool) -> None:
        """Check for each PERSISTENT message from now on whether the disk has room for it, or for transactions alone."""
        journal = self.journal
        if journal is not None and journal.scarce != scarce:
            journal.watch(scarce)
            for namespace in self.namespaces.values():
                namespace.forget_routes()

    def set_over(self, text: str | None) -> None:
        """Let senders wait from now on, to any destination; None: let them go on.

        Args:
            text: which limit is reached, for people.
        """
        if text == (None if self.over is None else self.over.limit_text):
            return
        if self.over is not None:
            self.over.end()
        self.over = None if text is None else Overfull(text, refuses=False)
        for namespace in self.namespaces.values():
            namespace.forget_routes()

    def set_gate(self, gate: Gate | None) -> None:
        """Count arrivals from now on; None: stop counting."""
        self.gate = gate
        if gate is not None:
            for namespace in self.namespaces.values():
                namespace.forget_routes()

    def due(self, now: int) -> int | None:
        """Expire messages, and end delays.

        Args:
            now: ms epoch.

        Returns:
            When to call again at the latest (ms epoch, `now` for at once), None if nothing is known to become due.
        """
        deadline = self.deadlines.due(now)
        if self.stamping:
            self._stamp(now)
        return deadline

    def _stamp(self, now: int) -> None:
        """Let taps store records, or messages that waited when they were created, a slice of them in one batch of the
        journal."""
        stamping, budget = self.stamping, STAMPED
        while stamping and budget > 0:
            tap = stamping[0]
            budget -= tap.stamp(budget, now) + 1
            if not tap.behind:
                stamping.popleft()
        if stamping and self._stamps is None and self.journal is not None:
            self._stamps = Overfull("taps have not kept all that became of messages", refuses=False)
            self.journal.hold()
        elif not stamping and self._stamps is not None:
            self._stamps.end()
            self._stamps = None
            assert self.journal is not None
            self.journal.let_go()

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms. Expiry and delivery times follow the new time; redelivery delays
        and leases keep their length."""
        self.deadlines.jumped(by)
        for namespace in self.namespaces.values():
            for tap in namespace.taps:
                tap.clock_jumped(by)

    def add_work(self, queue: Queue) -> None:
        """A queue has pending work."""
        if queue not in self._work:
            self._work.append(queue)

    def add_publishing(self, publishing: Publishing) -> None:
        """A batch is to be published in slices."""
        self._publishings.append(publishing)

    def finish_publishings(self, now: int) -> None:
        """Complete all batches at once: the broker stops."""
        while self.stamping:
            self._stamp(now)
        if self.fan_out is not None:
            self.fan_out.finish(now)
            self._end_fan_out()
        while self._publishings:
            self._publishings.popleft().finish(now)

    @property
    def busy(self) -> Limited | None:
        """The work that must complete before another message is delivered in slices; None if one may begin."""
        if self.fan_out is not None or self._stamps is not None:
            return self.fan_out or self._stamps
        held = self.journal is not None and self.journal.holds > 0
        return next((one for one in self._publishings if one.holding or (held and not one.added)), None)

    def begin_fan_out(self, fan_out: FanOut) -> None:
        """Begin to deliver a message in slices. No other one is under way."""
        self.fan_out = fan_out

    def _end_fan_out(self) -> None:
        """A message has been delivered in slices: the next one may begin."""
        assert self.fan_out is not None
        error, self.fan_out = self.fan_out.error, None
        if error is not None:
            raise error

    def begin_leaving(self, connection_id: str, steps: Steps[None]) -> None:
        """A connection, or one of its sessions, returns its messages: the first slice at once, the others with
        :meth:`work`, after everything that the connection returned before."""
        before = self._leaving.get(connection_id)
        if before is not None:
            steps = _behind(before, steps)
        for _ in steps:
            self._leaving[connection_id] = steps
            break

    def is_leaving(self, connection_id: str) -> bool:
        """True while a connection returns its messages."""
        return connection_id in self._leaving

    def finish_leaving(self, now: int, connection_id: str | None = None) -> None:
        """Complete at once what a connection, or any connection, is returning."""
        for name in tuple(self._leaving) if connection_id is None else (connection_id,):
            steps = self._leaving.pop(name, None)
            if steps is not None:
                with suppress(StopIteration):
                    while True:
                        steps.send(now)

    def _go_on_leaving(self, now: int) -> None:
        connection_id = next(iter(self._leaving))
        steps = self._leaving.pop(connection_id)
        with suppress(StopIteration):
            steps.send(now)
            self._leaving[connection_id] = steps  # after the others

    def work(self, now: int, budget: int = 2_000) -> bool:
        """Do pending work, such as searching a backlog for a new selector, and let senders go on that have room.

        Args:
            now: ms epoch.
            budget: messages to examine; one costs one to three microseconds.

        Returns:
            True if there is more to do.
        """
        publishings, rooms = self._publishings, self.rooms
        if not (self._work or publishings or self._leaving or rooms.waiting or self.stamping) and self.fan_out is None:
            return False
        if rooms.waiting:
            rooms.look(now)
        notified = False
        if publishings:
            publishing = publishings.popleft()
            if publishing.added:
                publishing.notify(now)
                notified = bool(rooms.waiting)  # another batch may have waited for this one as well as for room
            else:
                publishings.append(publishing)
                budget -= publishing.work(min(budget, SLICE), now)
        fan_out = self.fan_out
        if fan_out is not None and budget > 0:
            if fan_out.work(min(budget, SLICE), now):
                self._end_fan_out()
                if rooms.waiting:
                    rooms.look(now)  # blocked senders come before those that begin now
            budget -= SLICE
        work = self._work
        while work and budget > 0:
            queue = work.popleft()
            budget -= queue.work(min(budget, 1_000), now)
            if queue.pending:
                work.append(queue)
        if self.stamping:
            self._stamp(now)
        if self._leaving:
            self._go_on_leaving(now)
        return bool(work or publishings or self._leaving or notified or self.fan_out is not None or self.stamping)


def _behind(before: Steps[None], steps: Steps[None]) -> Steps[None]:
    """Run two generators one after the other; the first has begun."""
    now = yield
    with suppress(StopIteration):
        while True:
            before.send(now)
            now = yield
    yield from steps
