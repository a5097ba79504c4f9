"""The broker's body: namespaces, time and pending work. Everything else is a verb of a namespace or a consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Final

from sievemq_broker.domain.admission import Gate, Overfull, Rooms
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.journal import Journal, Share
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.policy import FAIL, DestinationPolicy, DomainSettings, NamespacePolicy
from sievemq_broker.domain.ports import Observer
from sievemq_broker.domain.publishing import AT_ONCE, Publishing, Sends
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.tap import CopyTap
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Job, Make, Scheduler, Task
from sievemq_core.errors import ErrorCode, RequestError

#: The key of deliveries to very many subscriptions.
_FAN_OUT: Final = ("fan-out",)
_STAMPS: Final = ("stamps",)
#: The key of changes of rules.
_RULES: Final = ("rules",)


class Broker:
    """Namespaces by name, created at first use.

    Args:
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
        #: Taps whose records have no time yet, or that lack the messages that waited before them. A journal waits for
        #: them, so other tasks do as well.
        self._stamping: deque[CopyTap] = deque()
        self._stamps: Job[None] | None = None
        self._stamper = Scheduler()
        #: Its tasks. What a connection gives back has the connection's id as its key; a batch that is published, its
        #: namespace; the pending work of a queue, the queue.
        self.scheduler = Scheduler()
        #: The message that is being delivered to very many subscriptions.
        self.fan_out: Job[None] | None = None
        #: The batch whose room is being reserved in very many subscriptions, if there is one.
        self._publishings: list[Publishing] = []

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

    def use_rules(
        self,
        policies: tuple[tuple[str, DestinationPolicy], ...],
        namespaces: tuple[tuple[str, NamespacePolicy], ...],
    ) -> Job[int]:
        """Have other rules of destinations and limits of namespaces from now on: at once for what is created from now
        on, and with the task that begins here for what exists. Nothing is deleted or closed by them.

        Args:
            policies, namespaces: as of :class:`DomainSettings`.

        Returns:
            The task. It returns how many destinations and namespaces have other rules.
        """
        before, self.settings = self.settings, replace(self.settings, policies=policies, namespaces=namespaces)
        return self.scheduler.start(_RULES, partial(self._configure, before, self.settings), 0, later=True)

    def set_auto_create(self, auto_create: bool) -> None:
        """See :class:`DomainSettings`."""
        self.settings = replace(self.settings, auto_create=auto_create)

    def _configure(self, before: DomainSettings, after: DomainSettings, now: int, budget: Budget) -> Task[int]:
        changed, cost = 0, 1 + (len(before.policies) + len(after.policies)) // 2
        cost_of_space = 1 + (len(before.namespaces) + len(after.namespaces)) // 2
        for space in list(self.namespaces.values()):
            if budget.spent:
                yield
            budget.spend(cost_of_space)
            limits = after.policy_for_namespace(space.name)
            if limits is not before.policy_for_namespace(space.name):
                space.configure(limits)
                space.set_gate(None if self.gate_of is None else self.gate_of(space))
                changed += 1
            for label, destination in list(space.destinations.items()):
                if budget.spent:
                    yield
                budget.spend(cost)
                policy = after.policy_for(label)
                if policy is before.policy_for(label):
                    continue
                changed += 1
                destination.configure(policy)
                for queue in list(destination.queues):
                    if budget.spent:
                        yield
                    budget.spend(1)
                    queue.configure(policy)
        return changed

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
        self.scheduler.store_in(journal)

    def refuse_persistent(self, reason: str | None) -> None:
        """Accept no PERSISTENT messages, since they cannot be stored; None: accept them again. Senders are refused or
        wait, as :attr:`DomainSettings.on_full_disk` says."""
        journal = self.journal
        if journal is not None:
            journal.refuse(None if reason is None else Overfull(reason, self.settings.on_full_disk == FAIL, "disk"))
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
        """Let senders wait from now on, to any destination; None: let them go on."""
        if text == (None if self.over is None else self.over.limit_text):
            return
        if self.over is not None:
            self.over.end()
        self.over = None if text is None else Overfull(text, refuses=False, limit="max_memory_bytes")
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
        return self.deadlines.due(now)

    def stamp_soon(self, tap: CopyTap) -> None:
        """Let a tap store records, or messages that waited when it was created: at the end of this turn and of later
        ones, but in one batch of the journal."""
        self._stamping.append(tap)
        if self._stamps is None:
            text = "taps have not kept all that became of messages"
            self._stamps = self._stamper.start(_STAMPS, self._stamp, 0, text, later=True)
            self._stamps.then(partial(self._end_stamps, self.journal))
            if self.journal is not None:
                self.journal.hold()

    def _stamp(self, now: int, budget: Budget) -> Task[None]:
        while self._stamping:
            if budget.spent:
                now = yield
                continue
            tap = self._stamping[0]
            budget.spend(1 + tap.stamp(budget.left, now))
            if not tap.behind:
                self._stamping.popleft()

    def _end_stamps(self, journal: Journal | None, now: int) -> None:
        self._stamps = None
        if journal is not None:
            journal.let_go()

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms. Expiry and delivery times follow the new time; redelivery delays
        and leases keep their length."""
        self.deadlines.jumped(by)
        for namespace in self.namespaces.values():
            for tap in namespace.taps:
                tap.clock_jumped(by)

    def add_work(self, queue: Queue) -> None:
        if not self.scheduler.is_busy(queue):
            self.scheduler.start(queue, queue.work, 0, later=True)

    def publish(self, publishing: Publishing, key: Hashable, now: int) -> None:
        """Publish a batch. No other one with this key is under way."""
        self._publishings.append(publishing)
        publishing.begin(self.scheduler, key, now)
        publishing.then(lambda now: self._publishings.remove(publishing))

    def drop(self, sends: Sends) -> None:
        """Free messages that were gathered for a batch, in slices if they are many."""
        if len(sends) > AT_ONCE:
            self.scheduler.start(sends, sends.drop, 0, later=True)

    def finish(self, now: int) -> None:
        """Complete all tasks at once: the broker stops."""
        if self.journal is not None:
            self.journal.hurry()
        while self.scheduler.ring or self._stamper.ring:
            self.scheduler.finish(now)
            self._stamper.finish(now)

    @property
    def busy(self) -> Job[None] | None:
        """The task that must be over before another message is delivered to very many subscriptions; None if that may
        begin."""
        if self.fan_out is not None:
            return self.fan_out
        if self._stamps is not None and self._stamps.began:
            return self._stamps
        return next((one.reserving for one in self._publishings if one.reserving is not None), None)

    def begin_fan_out(self, deliver: Make[None], take: Callable[[], None], *, moved: bool) -> None:
        """See :class:`Deliverer`."""
        journal = self.journal
        share = None if journal is None or moved else Share()
        if journal is None or share is None:
            take()
        else:
            journal.together(share, take)
        if journal is not None and moved:
            journal.hold()
        text = "another message is being delivered to very many subscriptions"
        self.fan_out = self.scheduler.start(_FAN_OUT, deliver, 0, text, share=share, later=True)
        self.fan_out.then(partial(self._end_fan_out, moved))

    def _end_fan_out(self, moved: bool, now: int) -> None:
        self.fan_out = None
        if self.journal is not None and moved:
            self.journal.let_go()
        self.rooms.look(now)  # blocked senders come before those that begin now

    def finish_fan_out(self, now: int) -> None:
        """See :class:`Deliverer`."""
        self.scheduler.finish(now, _FAN_OUT)

    def work(self, now: int, units: int | None = None) -> bool:
        """Do pending work, such as searching a backlog for a new selector, and let senders go on that have room.

        Args:
            now: ms epoch.
            units: of work to do; None for a turn.

        Returns:
            True if there is more to do.
        """
        rooms, scheduler, stamper = self.rooms, self.scheduler, self._stamper
        if rooms.waiting:
            rooms.look(now)
        if scheduler.ring and (self._stamps is None or not self._stamps.began):
            scheduler.run(now, units)
            if rooms.waiting:
                rooms.look(now)
        if stamper.ring:
            stamper.run(now, units)
        return bool(scheduler.ring or stamper.ring)
