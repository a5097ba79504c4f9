"""The broker of a test: the embedded broker with a journal, faults, assertions, a clock and restarts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from time import monotonic
from typing import Any, Final, Literal, Self, TypeVar, Unpack

from sievemq.destinations import Destination
from sievemq_broker.clock import AdjustableClock
from sievemq_broker.config import Settings
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.entry import GONE
from sievemq_broker.domain.management import DROPPED_AT_ONCE, Choice, purge
from sievemq_broker.domain.policy import DestinationPolicy, PolicyRules
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Job
from sievemq_broker.embedded import EmbeddedBroker, EmbeddedNamespace, EmbeddedOptions
from sievemq_broker.server.server import Server
from sievemq_broker.server.shard import Shard
from sievemq_broker.server.watch.counts import queues_in
from sievemq_broker.session.lost import LostConnections
from sievemq_core.counted import counted
from sievemq_core.durations import Seconds, seconds
from sievemq_core.message.envelope import DELIVERY_MODE
from sievemq_testing.excerpt import LINES, excerpt, show_message
from sievemq_testing.faults import FaultBox, Faults
from sievemq_testing.journal import EVENTS, SETTLED, Event, Journal, Recorder
from sievemq_testing.listeners import ListenerErrors
from sievemq_testing.recording import Tape
from sievemq_testing.snapshot import Snapshot, put, take
from sievemq_testing.views import ConnectionView, QueueView, TopicView, address_of
from sievemq_testing.watched import Watch, WatchedServer, entries_of, is_idle, when_idle

R = TypeVar("R")

_NON_PERSISTENT: Final = 1


class BrokerOptions(EmbeddedOptions, total=False):
    """Keywords of a :class:`TestBroker`."""

    policies: Mapping[str, DestinationPolicy | PolicyRules] | None
    seed: int
    journal_events: int


class TestBroker(EmbeddedBroker):
    """An embedded broker that a test can inspect, disturb and restart.

    Args:
        policies: pattern over a destination's text (``queue:orders.*``) -> its policy, or a table of its fields, such
            as ``{"max_attempts": 3}``; the first that fits is taken.
        seed: of faults that happen by chance.
        journal_events: events that each namespace's journal keeps.
        options: as of :class:`~sievemq_broker.EmbeddedBroker`.

    Raises:
        TypeError: there is no such option; the text names the nearest.

    Attributes:
        faults: faults of all connections; a namespace has its own.
        seed: as given.
    """

    __test__ = False  # pytest must not collect it as a test class

    def __init__(
        self,
        *,
        policies: Mapping[str, DestinationPolicy | PolicyRules] | None = None,
        seed: int = 0,
        journal_events: int = EVENTS,
        **options: Unpack[EmbeddedOptions],
    ) -> None:
        _check_names(options)
        clock = options.pop("clock", None) or AdjustableClock()
        if policies:
            given = options.get("settings") or {}
            if isinstance(given, Settings):
                raise TypeError("policies and settings that were loaded exclude each other")
            options["settings"] = {**given, "destinations": policies}
        options["clock"] = clock
        super().__init__(**options)
        self.seed = seed
        recorder = Recorder(clock.now, journal_events, self._changed)
        self._fault_box = FaultBox(recorder)
        self._watch = Watch(recorder, self._fault_box)
        self._domain = self._new_domain()
        self._lost: LostConnections | None = None
        #: The server that has run last.
        self._last: Server | None = None
        self._listener_errors = ListenerErrors()
        #: The port at which the broker continues after the next failover; 0 until a test asks for it. And the socket
        #: that keeps the port free, and closed for clients, until then.
        self._other_port = 0
        self._closed_port: socket.socket | None = None
        self.faults = Faults(self, self._fault_box, None, seed)

    def _new_domain(self) -> Broker:
        return Broker(self._settings.domain(), observer=self._watch.recorder)

    def _make_server(self, on_failure: Callable[[], None] = lambda: None) -> WatchedServer:
        if self._settings.data_dir is not None or self._settings.store is not None:  # the store keeps them
            self._domain, self._lost = self._new_domain(), None
        shard = Shard(self._settings, self._adjustable, self._domain, self._lost)
        server = WatchedServer(self._settings, self._adjustable, shard, self._watch, self, on_failure)
        server.on_stop.append(server.end_desk)
        self._fault_box.serve(server)
        self._last = server
        return server

    def reset_clock(self) -> None:
        """Let the clock run again, at the machine's time."""

        def reset(server: Server) -> None:
            if self._adjustable.offset or self._adjustable.frozen_at is not None:
                self._adjustable.reset()
                server.clock_moved()

        self.on_server(reset)

    def _changed(self) -> None:
        """The journal has a new event: waiting assertions check it at the end of this turn."""
        server = self._server
        if server is not None and server.turn.watchers:
            server.turn.worked()

    # -- start, kill, restart -----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """See :meth:`EmbeddedBroker.start`."""
        super().start()
        self._listener_errors.listen()
        if self._other_port:
            self._keep_closed(self._other_port)
        return self

    def stop(self) -> None:
        """See :meth:`EmbeddedBroker.stop`."""
        self._listener_errors.stop()
        super().stop()
        self._release_port()

    def kill(self) -> None:
        """End as a crash does: connections are cut, and clients get no notice. :meth:`restart` starts the broker again.

        A data directory is still closed in order, with every confirmed message in it, because the broker runs in this
        process, which continues. So this does not test recovery from a broker that was killed while it wrote."""

        def crash(server: Server) -> None:
            server.stop_accepting()
            server.shard.carry_nothing()
            server.links.abort_all()

        self.on_server(crash)
        self.stop()

    def restart(self, keep: Literal["persistent", "all", "nothing"] = "persistent") -> Self:
        """Start again on the same port, after :meth:`kill` or :meth:`stop`, or while the broker runs.

        Args:
            keep: which messages are kept. ``persistent``: messages that a broker with a data directory keeps, that is
                PERSISTENT messages and durable subscriptions; ``nothing``: a broker without one; ``all``: as if the
                machine had only lost its network. With a data directory or a store, ``persistent`` is what is found in
                it. ``nothing`` empties a data directory.

        Raises:
            ValueError: another value; or ``all`` although a data directory or a store keeps PERSISTENT messages only;
                or ``nothing`` although there is a store.
        """
        return self._begin_again(keep, self.port)

    @property
    def failover_url(self) -> str:
        """For a ConnectionFactory: the addresses before and after :meth:`fail_over`, as of two brokers that share a
        store. The second one refuses connections, as a broker does that only follows."""
        scheme, _, rest = self.url.partition("://")
        address, slash, path = rest.partition("/")
        if not self._other_port:
            self._other_port = self._keep_closed(0)
        host = address.rpartition(":")[0]
        return f"{scheme}://{address},{host}:{self._other_port}{slash}{path}"

    def fail_over(self, keep: Literal["persistent", "all", "nothing"] = "persistent") -> Self:
        """Let another broker take over: this one is gone without a word, and what it has kept is at the other address
        of :attr:`failover_url`. The next call leads back. Ports for AMQP or STOMP alone stay the same.

        Args:
            keep: as for :meth:`restart`. Brokers that share a store keep PERSISTENT messages and durable subscriptions.

        Raises:
            ValueError: as :meth:`restart`.
        """
        return self._begin_again(keep, self._other_port or self._keep_closed(0))

    def _keep_closed(self, port: int) -> int:
        """Keep a port that refuses connections. Returns its number."""
        host = self._settings.host
        self._closed_port = kept = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((host, port))
        return int(kept.getsockname()[1])

    def _release_port(self) -> None:
        if self._closed_port is not None:
            self._closed_port.close()
            self._closed_port = None

    def _begin_again(self, keep: str, port: int) -> Self:
        self._check_keep(keep)
        if port != self.port:
            self._other_port = self.port
        bound: dict[str, Any] = {f"{name}_port": self.server.port_of(name) for name in self._settings.own_ports}
        self._settings = replace(self._settings, port=port, **bound)
        if self._thread is not None:
            self.kill()
        self._release_port()
        directory = self._settings.data_dir
        # A broker that has kept its messages also knows its clients: repeated sends are not doubled.
        last = self._last
        self._lost = None if keep == "nothing" or directory or last is None else last.shard.lost
        if keep == "nothing":
            self._lose_everything()
        elif directory:
            self._domain = self._new_domain()
        elif keep == "persistent":
            for namespace in self._domain.namespaces.values():
                for queue in queues_in(namespace):
                    for entry in entries_of(queue):
                        if entry.envelope.fields[DELIVERY_MODE] == _NON_PERSISTENT:
                            queue.remove(entry)
        return self.start()

    def _check_keep(self, keep: str) -> None:
        if keep not in ("persistent", "all", "nothing"):
            raise ValueError(f"what is kept is 'persistent', 'all' or 'nothing', not {keep!r}")
        if self._settings.data_dir and keep == "all":
            raise ValueError("with a data directory, what is not PERSISTENT cannot be kept: use persistent or nothing")
        if self._settings.store is not None and keep != "persistent":
            raise ValueError(f"a store that brokers share keeps what is PERSISTENT, and nothing else: not {keep!r}")

    def _lose_everything(self) -> None:
        for journal in self._watch.recorder.journals.values():
            for entry, fate in list(journal.fates.items()):
                if entry.state != GONE:
                    self._watch.recorder.lost(journal.namespace, fate, "the broker was killed")
        self._domain = self._new_domain()
        if self._settings.data_dir:
            shutil.rmtree(self._settings.data_dir)

    # -- what is there ------------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> TestNamespace:
        """One namespace; see :class:`~sievemq_testing.TestNamespace`. Clients may connect to it, even if an earlier one
        of this name was dropped."""
        self._watch.dropped.discard(name or "default")
        return TestNamespace(self, name)

    @property
    def namespaces(self) -> list[str]:
        """Names of the namespaces that exist."""
        return self.call(lambda broker: sorted(broker.namespaces))

    def queue(self, name: str | Destination) -> QueueView:
        """A queue of the broker's own namespace."""
        return self.namespace(self._namespace).queue(name)

    def topic(self, name: str | Destination) -> TopicView:
        """A topic of the broker's own namespace."""
        return self.namespace(self._namespace).topic(name)

    @property
    def journal(self) -> list[Event]:
        """The events of the broker's default namespace."""
        return self.namespace(self._namespace).journal

    def excerpt(self, lines: int | None = LINES) -> str:
        """The end of that journal as text; see :meth:`TestNamespace.excerpt`."""
        return self.namespace(self._namespace).excerpt(lines)

    def assert_nothing_lost(self, *, allow_expired: bool = False, within: Seconds = 0.0) -> None:
        """As :meth:`TestNamespace.assert_nothing_lost`, for every namespace."""
        __tracebackhide__ = True
        for name in self.call(lambda _: list(self._watch.recorder.journals)):
            self.namespace(name).assert_nothing_lost(allow_expired=allow_expired, within=within)

    def record(self, path: Any, namespace: str | None = None) -> Tape:
        """Record the messages that are sent from now on; see :mod:`sievemq_testing.recording`.

        Args:
            path: the file to write, JSON lines.
            namespace: only messages sent in this namespace; None for all.
        """
        return Tape(self, self._watch, path, namespace)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def on_server(self, function: Callable[[Server], R]) -> R:
        """As :meth:`call`, but the function gets the server."""
        return self._submit(function).result()

    def wait_for(self, look: Callable[[Broker], R], within: Seconds) -> R:
        """Wait until a condition is true. It does not poll: the condition is checked whenever the broker has done
        something.

        Args:
            look: the condition, called on the broker's thread; the wait ends when it returns a true value.
            within: seconds, or a timedelta, to wait at most; 0 checks once.

        Returns:
            The last result of `look`.

        Raises:
            RuntimeError: called on a running event loop, whose clients could not continue during the wait.
        """
        limit = seconds("within", within)
        found = self.call(look)
        if found or not limit:
            return found
        refuse_on_a_loop()
        done: Future[R] = self._new_result()

        def again() -> None:
            if done.done():
                return
            try:
                result = look(self._domain)
            except BaseException as error:
                done.set_exception(error)
            else:
                if result:
                    done.set_result(result)

        self.on_server(lambda server: server.turn.watchers.append(again))
        self.call(lambda _: again())
        try:
            return done.result(limit)
        except concurrent.futures.TimeoutError:
            return self.call(look)
        except concurrent.futures.CancelledError:
            raise RuntimeError("the broker was stopped meanwhile") from None
        finally:
            done.cancel()  # a later call of `again` finds nothing to do
            with contextlib.suppress(RuntimeError, ValueError):  # the broker was stopped, or is another one by now
                self.on_server(lambda server: server.turn.watchers.remove(again))

    def wait_until_idle(self, within: Seconds = 60.0) -> None:
        """Return when no message can move without time or a client: no selector searches a backlog, all input is read,
        all output is written, and no client has buffered messages to return.

        What the application does with a received message is not included: :meth:`QueueView.assert_empty` waits for
        that.

        Args:
            within: seconds, or a timedelta, to wait at most; 0 checks once.

        Raises:
            AssertionError: it was not idle by then.
        """
        __tracebackhide__ = True
        limit = seconds("within", within)
        if not limit:
            if not self.on_server(is_idle):
                raise AssertionError("the broker is busy")
            return
        done: Future[None] = self._new_result()
        self.on_server(lambda server: when_idle(server, done))
        try:
            done.result(limit)
        except concurrent.futures.TimeoutError:
            done.cancel()
            raise AssertionError(f"the broker was still busy after {limit:g} s") from None
        except concurrent.futures.CancelledError:
            raise RuntimeError("the broker was stopped meanwhile") from None


class TestNamespace(EmbeddedNamespace):
    """One namespace of a test broker: a test's own world, made at first use and dropped in well under a millisecond.

    Args:
        broker: whose.
        name: its name; empty for ``default``.

    Attributes:
        faults: faults of its connections alone.
    """

    __test__ = False  # pytest must not collect it as a test class
    __slots__ = ("_since", "faults")
    broker: TestBroker

    def __init__(self, broker: TestBroker, name: str) -> None:
        super().__init__(broker, name or "default")
        self.faults = Faults(broker, broker._fault_box, self.name, broker.seed)
        self._since = monotonic()

    def queue(self, name: str | Destination) -> QueueView:
        """A queue, as ``orders``, ``queue:orders`` or ``Queue("orders")``; it need not exist yet."""
        return QueueView(self, address_of(name, topic=False), self._journal, self.broker._listener_errors)

    def topic(self, name: str | Destination) -> TopicView:
        """A topic, as ``prices``, ``topic:prices`` or ``Topic("prices")``; it need not exist yet."""
        return TopicView(self, address_of(name, topic=True), self._journal, self.broker._listener_errors)

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
                connection.member.id,
                connection.member.client_id,
                connection.member.agent,
                tuple(each.source.place.destination for each in connection.deliveries.consumers.values() if each.open),
                connection.out.protocol,
            )
            for connection in self.broker.server.shard.services.connections.values()
            if connection.namespace.name == self.name
        ]

    # -- the journal --------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> list[Event]:
        """Everything that has happened here, oldest first."""
        return self.broker.call(lambda _: list(self._journal()))

    def _journal(self) -> Journal:
        return self.broker._watch.recorder.of(self.name)

    def excerpt(self, lines: int | None = LINES, *, elsewhere: bool = True) -> str:
        """The journal's end as text, with the reasons why messages were not delivered.

        Args:
            lines: events to show; None for all.
            elsewhere: show also the last event of other namespaces that were used meanwhile.
        """

        def text(broker: Broker) -> Iterator[str]:
            space = broker.namespaces.get(self.name)
            destinations = () if space is None else tuple(space.destinations)
            journals = self.broker._watch.recorder.journals.values() if elsewhere else ()
            others = [j for j in journals if j.namespace != self.name and j.touched > self._since]
            return excerpt(self._journal(), self.broker._adjustable.now(), destinations, lines, others)

        try:
            pieces = self.broker.call(text)
            return "\n".join(iter(lambda: self.broker.call(lambda _: next(pieces, "")), ""))
        except RuntimeError:  # it was stopped, or follows another one: its thread carries out nothing
            return "\n".join(text(self.broker._domain))

    # -- assertions ---------------------------------------------------------------------------------------------------

    def wait_until_idle(self, within: Seconds = 60.0) -> None:
        """As :meth:`TestBroker.wait_until_idle`."""
        self.broker.wait_until_idle(within)

    def assert_nothing_lost(self, *, allow_expired: bool = False, within: Seconds = 0.0) -> None:
        """Every message that a queue or subscription of this namespace accepted was acknowledged or is still there:
        waiting, scheduled, in flight, or as a dead letter.

        Args:
            allow_expired: messages may have expired.
            within: seconds, or a timedelta, to wait for messages in flight to be settled.

        Raises:
            AssertionError: names the missing ones: expired, removed, or lost when the broker was killed; or states
                that the journal had no room for all messages.
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
                "that was settled, so its outcome is unknown; TestBroker(journal_events=…) keeps more"
            )

    # -- its life -----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Reset to a new namespace: no messages, no subscriptions without consumers, no faults, an empty journal.
        Connections and consumers stay open. Messages that they hold are forgotten, and acknowledging those has no
        effect."""
        self.faults.clear()

        def empty(broker: Broker) -> None:
            namespace = broker.namespaces.get(self.name)
            if namespace is not None:
                for queue in queues_in(namespace):
                    queue.clear()
                    for consumer in (*queue.consumers, *queue.holders):
                        consumer.forget()
                for subscription in list(namespace.subscriptions.durable.values()):
                    if not subscription.active:
                        namespace.subscriptions.drop(subscription)
            self._journal().clear()

        self.broker.call(empty)

    def snapshot(self) -> Snapshot:
        """What is here now: destinations with their rules, durable subscriptions, and all messages, for
        :meth:`restore`. Messages in flight are kept as waiting ones. Temporary destinations are not kept."""

        def look(broker: Broker) -> Snapshot:
            return take(broker.namespaces.get(self.name), self.broker.server.clock.now())

        return self.broker.call(look)

    def restore(self, snapshot: Snapshot) -> None:
        """Reset, and have again what a snapshot holds; it may be that of another namespace or broker. The messages
        arrive as new ones, with no failed attempts, and their times are moved by the time that has passed. Consumers
        that are open get them. Destinations that the snapshot does not have stay, and are empty.

        Args:
            snapshot: of :meth:`snapshot`.
        """
        self.reset()
        self.broker.on_server(
            lambda server: put(server.shard.broker.namespace(self.name), snapshot, server.clock.now())
        )

    def drop(self, within: Seconds = 0.0) -> list[ConnectionView]:
        """Delete it with everything in it, and cut its connections. Their clients cannot connect again until the test
        calls ``broker.namespace(name)``. A large queue is emptied in slices, so that the broker continues to serve
        others.

        Args:
            within: seconds, or a timedelta, to wait at most for the connections to end by themselves: the broker may
                not have read yet what a client that has closed sent last.

        Returns:
            The connections that were still open.

        Raises:
            RuntimeError: it would have to wait on a running event loop.
        """
        self.faults.clear()
        self.broker.wait_for(lambda _: not self._connections(), within)
        self.broker._watch.dropped.add(self.name)
        # A client whose password is being checked has passed the refusal, and is cut when it is in.
        checked = self.broker._new_result()
        self.broker.on_server(lambda server: server.authenticator.when_checked(lambda: checked.set_result(None)))
        checked.result()

        def cut(broker: Broker) -> tuple[list[ConnectionView], list[Queue]]:
            server = self.broker.server
            left = self._connections()
            for connection in tuple(server.shard.services.connections.values()):
                if connection.namespace.name == self.name and (link := server.links.of(connection)) is not None:
                    link.abort()
                    connection.lost(server.clock.now())
            namespace = broker.namespaces.get(self.name)
            large = [] if namespace is None else [q for q in queues_in(namespace) if _waiting(q) > DROPPED_AT_ONCE]
            return left, large

        def begin(broker: Broker, queue: Queue) -> Job[object]:
            return broker.scheduler.start(queue.label, partial(purge, queue, Choice()), self.broker.server.clock.now())

        def go_on(broker: Broker, job: Job[object]) -> bool:
            broker.work(self.broker.server.clock.now())
            return not job.over

        def delete(broker: Broker) -> None:
            broker.delete_namespace(self.name)
            self.broker._watch.recorder.journals.pop(self.name, None)

        left, large = self.broker.call(cut)
        for queue in large:
            job = self.broker.call(begin, queue)
            while self.broker.call(go_on, job):
                pass
        self.broker.call(delete)
        return left


#: Seconds that a test's connections have to end, once its fixtures are closed, before they are reported as left open.
CLOSING = 1.0


def left_open(test: str, connections: list[ConnectionView]) -> str:
    listed = "\n".join(f"  {connection}" for connection in connections)
    return (
        f"{test} has left {counted(len(connections), 'SieveMQ connection')} open; close each context, by `with` or "
        f"close():\n{listed}"
    )


def _waiting(queue: Queue) -> int:
    return queue.depth + len(queue.scheduled)


def refuse_on_a_loop() -> None:
    """Refuse to block a running event loop.

    Raises:
        RuntimeError: one runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "this would block the running event loop, and its clients with it; wait in a thread: "
        "await asyncio.to_thread(queue.assert_received, count=3, within=1)"
    )


def _check_names(options: Mapping[str, object]) -> None:
    known = list(BrokerOptions.__annotations__)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            if name in Settings.__annotations__:
                hint = f"it is a setting: TestBroker(settings={{{name!r}: …}})"
            raise TypeError(f"TestBroker has no option {name!r:.60}; {hint}")
