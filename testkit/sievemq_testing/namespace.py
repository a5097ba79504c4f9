"""One namespace of a test broker: a test's own world, made at first use and dropped in well under a millisecond."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.entry import GONE
from sievemq_broker.domain.management import Choice, purge
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.steps import Steps
from sievemq_broker.embedded import EmbeddedNamespace
from sievemq_broker.server.watch.counts import queues_in
from sievemq_core.counted import counted
from sievemq_core.durations import Seconds
from sievemq_testing.excerpt import LINES, excerpt, show_message
from sievemq_testing.faults import Faults
from sievemq_testing.journal import SETTLED, Event, Journal
from sievemq_testing.views import ConnectionView, QueueView, TopicView, address_of

if TYPE_CHECKING:
    from sievemq import Destination
    from sievemq_testing.broker import TestBroker

__all__ = ["TestNamespace", "left_open"]

#: Messages of a queue that are dropped with it in one go: two or three milliseconds.
_AT_ONCE: Final = 1_000


class TestNamespace(EmbeddedNamespace):
    """A namespace of a :class:`~sievemq_testing.broker.TestBroker`.

    Args:
        broker: whose.
        name: its name; empty for ``default``.

    Attributes:
        faults: faults of its connections alone.
    """

    __test__ = False  # not a class of tests, whatever its name says
    __slots__ = ("_since", "faults")
    broker: TestBroker

    def __init__(self, broker: TestBroker, name: str) -> None:
        super().__init__(broker, name or "default")
        self.faults = Faults(broker, self.name, broker.seed)
        self._since = monotonic()

    def queue(self, name: str | Destination) -> QueueView:
        """A queue, as ``orders``, ``queue:orders`` or ``Queue("orders")``; it need not exist yet."""
        return QueueView(self, address_of(name, topic=False))

    def topic(self, name: str | Destination) -> TopicView:
        """A topic, as ``prices``, ``topic:prices`` or ``Topic("prices")``; it need not exist yet."""
        return TopicView(self, address_of(name, topic=True))

    @property
    def destinations(self) -> list[str]:
        """Addresses of what exists here, such as ``queue:orders``."""

        def look(broker: Broker) -> list[str]:
            namespace = broker.namespaces.get(self.name)
            return [] if namespace is None else sorted(namespace.destinations)

        return self.broker.call(look)

    @property
    def connections(self) -> list[ConnectionView]:
        """The connections that are open."""
        return self.broker.call(lambda _: self._connections())

    def _connections(self) -> list[ConnectionView]:
        return [
            ConnectionView(
                connection.id,
                connection.client_id,
                connection.agent,
                tuple(
                    consumer.queue.label if consumer.subscription is None else consumer.subscription.topic.label
                    for consumer in connection.consumers.values()
                    if consumer.open
                ),
            )
            for connection in self.broker.server.services.connections.values()
            if connection.namespace.name == self.name
        ]

    # -- the journal --------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> list[Event]:
        """Everything that has happened here, oldest first."""
        return self.broker.call(lambda _: list(self._journal()))

    def _journal(self) -> Journal:
        return self.broker._watch.recorder.of(self.name)

    def excerpt(self, lines: int | None = LINES) -> str:
        """The journal's end as text, with the reasons why messages were not delivered.

        Args:
            lines: events to show; None for all.
        """

        def show(_: Broker) -> str:
            journals = self.broker._watch.recorder.journals
            others = [j for j in journals.values() if j.namespace != self.name and j.touched > self._since]
            return excerpt(self._journal(), self.broker.server.clock.now(), lines, others)

        return self.broker.call(show)

    # -- assertions ---------------------------------------------------------------------------------------------------

    def wait_until_idle(self, within: Seconds = 60.0) -> None:
        """As :meth:`TestBroker.wait_until_idle`."""
        self.broker.wait_until_idle(within)

    def assert_nothing_lost(self, *, allow_expired: bool = False, within: Seconds = 0.0) -> None:
        """Every message that a queue or subscription here has accepted was acknowledged, or is still there: waiting,
        scheduled, in flight, or as a dead letter.

        Args:
            allow_expired: messages may have expired.
            within: seconds, or a timedelta, to wait for messages in flight to be settled.

        Raises:
            AssertionError: names those that are gone: expired, removed, or lost when the broker was killed; or says
                that the journal had no room for all of them.
        """
        __tracebackhide__ = True
        if within:
            self.broker.wait_for(lambda _: all(f.last != "delivered" for f in self._journal().fates.values()), within)
        fine = SETTLED | ({"expired"} if allow_expired else set())

        def look(_: Broker) -> list[str]:
            return [
                f"  {fate.last}: {fate.where} {show_message(fate.envelope)}"
                for entry, fate in self._journal().fates.items()
                if (entry.state == GONE or fate.last == "lost") and fate.last not in fine
            ]

        gone = self.broker.call(look)
        if gone:
            lost = f"{counted(len(gone), 'message')} {'is' if len(gone) == 1 else 'are'} lost"
            raise AssertionError("\n".join([f"{lost} in namespace {self.name!r}:", *gone[:20]]))
        if forgotten := self.broker.call(lambda _: self._journal().open_dropped):
            raise AssertionError(
                f"the journal of namespace {self.name!r} had to forget {counted(forgotten, 'message')} before "
                "that was settled, so nobody can say what became of it; TestBroker(journal_events=…) makes it longer"
            )

    # -- its life -----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """As if new: no messages, no subscriptions without consumers, no faults, an empty journal. Connections and
        consumers stay; what they hold is forgotten, and acknowledging it has no effect."""
        self.faults.clear()

        def empty(broker: Broker) -> None:
            namespace = broker.namespaces.get(self.name)
            if namespace is not None:
                for queue in queues_in(namespace):
                    queue.clear()
                    for consumer in (*queue.consumers, *queue.holders):
                        _forget(consumer)
                for subscription in list(namespace.subscriptions.durable.values()):
                    if not subscription.active:
                        namespace.subscriptions.drop(subscription)
            self._journal().clear()

        self.broker.call(empty)

    def drop(self) -> list[ConnectionView]:
        """Delete it with everything in it, and cut its connections. Their clients cannot come back: the broker refuses
        them until the test asks for ``broker.namespace(name)`` again. A large queue is emptied in slices, so that the
        broker goes on serving others meanwhile.

        Returns:
            The connections that were still open.
        """
        self.faults.clear()
        self.broker._watch.dropped.add(self.name)

        def cut(broker: Broker) -> tuple[list[ConnectionView], list[Queue]]:
            server = self.broker.server
            left = self._connections()
            for connection in tuple(server.services.connections.values()):
                if connection.namespace.name == self.name and (link := server.links.of(connection)) is not None:
                    link.abort()
                    connection.lost(server.clock.now())
            namespace = broker.namespaces.get(self.name)
            large = [] if namespace is None else [q for q in queues_in(namespace) if _waiting(q) > _AT_ONCE]
            return left, large

        def begin(_: Broker, steps: Steps[object]) -> None:
            next(steps)

        def go_on(_: Broker, steps: Steps[object]) -> bool:
            try:
                steps.send(self.broker.server.clock.now())
            except StopIteration:
                return False
            return True

        def delete(broker: Broker) -> None:
            broker.delete_namespace(self.name)
            self.broker._watch.recorder.journals.pop(self.name, None)

        left, large = self.broker.call(cut)
        for queue in large:
            steps = purge(queue, Choice())
            self.broker.call(begin, steps)
            while self.broker.call(go_on, steps):
                pass
        self.broker.call(delete)
        return left


def left_open(test: str, connections: list[ConnectionView]) -> str:
    """The warning for a test that did not close its connections."""
    listed = "\n".join(f"  {connection}" for connection in connections)
    return (
        f"{test} has left {counted(len(connections), 'SieveMQ connection')} open; close each context, by `with` or "
        f"close():\n{listed}"
    )


def _waiting(queue: Queue) -> int:
    return queue.depth + len(queue.scheduled)


def _forget(consumer: Consumer) -> None:
    """What a consumer holds is gone; the tags stay, so that it may still acknowledge them."""
    window = consumer.window
    for index, entry in enumerate(window):
        if entry is not None:
            window[index] = None
            consumer.holes += 1
            entry.state = GONE
            del entry.envelope
