"""Random programs over both APIs, against a simple model of JMS: exactly the right messages, counts and order.

Two connections, their sessions in all modes, consumers of queues and of every kind of subscription, with and without
selectors; everything over TCP to an embedded broker whose clock the program moves. With ``prefetch=0`` the model tells
exactly which message comes next; with prefetch, which ones may, and that none is missing, doubled or marked wrongly.

Times are multiples of a minute plus half a minute, and the clock moves by minutes: the real time that a program takes
does not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from sievemq import Connection, JMSException, Message, MessageConsumer, Queue, Session, TextMessage, Topic
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import DestinationPolicy

from .stores import Model, ModelSession, Sent, Store, Waiting
from .worlds import AioWorld, BlockingWorld

_numbers = itertools.count(1)
_TOPIC = "t"
_SELECTORS = st.sampled_from([None, None, "n = 1"])


@dataclass(eq=False)
class Opened:
    """A session and what the model knows of it."""

    connection: int
    mode: int
    real: Session
    model: ModelSession
    last: Message | None = None
    open: bool = True


@dataclass(eq=False)
class Receiver:
    """A consumer, and the store it takes from."""

    session: Opened
    store: Store
    selector: str | None
    real: MessageConsumer
    open: bool = True


class Program(RuleBasedStateMachine):
    """One random program."""

    # Set by the tests.
    broker: EmbeddedBroker
    make_world: Callable[[], BlockingWorld | AioWorld]

    sessions: Bundle[Opened] = Bundle("sessions")
    receivers: Bundle[Receiver] = Bundle("receivers")

    @initialize(prefetch=st.sampled_from(["0", "1", "auto"]))
    def begin(self, prefetch: str) -> None:
        self.exact = prefetch == "0"
        self.url = f"{self.broker.namespace(f'model{next(_numbers)}').url}?prefetch={prefetch}&reconnect=0"
        self.world = type(self).make_world()
        self.model = Model()
        self.names = itertools.count(1)
        self.connections: list[Connection | None] = [None, None]
        self.opened: list[Opened] = []
        self.consumers: list[Receiver] = []
        self.all_connections: list[Connection] = []

    def connection(self, number: int) -> Connection:
        """The first has a client id, the second has none."""
        connection = self.connections[number]
        if connection is None:
            options = {"client_id": "me"} if number == 0 else {}
            connection = self.connections[number] = self.world.connect(self.url, **options)
            self.all_connections.append(connection)
            connection.set_exception_listener(lambda error: None)  # losses are part of the program
            connection.start()
        return connection

    # -- sessions -----------------------------------------------------------------------------------------------------

    @rule(target=sessions, number=st.integers(0, 1), mode=st.sampled_from([0, 1, 2, 2, 3]))
    def open_session(self, number: int, mode: int) -> Any:
        session = Opened(number, mode, self.connection(number).create_session(mode), ModelSession())
        self.opened.append(session)
        return session

    @rule(session=consumes(sessions))
    def close_session(self, session: Opened) -> None:
        if session.open:
            session.real.close()
            self.end(session)

    def end(self, session: Opened) -> None:
        """CLO-03: its consumers end, its transaction is rolled back, what it held comes again."""
        session.open = False
        for receiver in self.consumers:
            if receiver.session is session and receiver.open:
                receiver.open = False
                self.model.left(receiver.store)
        self.model.rollback(session.model)

    # -- sending ------------------------------------------------------------------------------------------------------

    @rule(
        session=sessions,
        destination=st.sampled_from(["q1", "q1", "q2", _TOPIC, _TOPIC]),
        priority=st.sampled_from([4, 4, 4, 9, 0]),
        n=st.integers(0, 1),
        ttl=st.sampled_from([0, 0, 90, 210]),
        delay=st.sampled_from([0, 0, 0, 0, 90, 150]),
        repeat=st.integers(1, 4),
        mode=st.sampled_from([2, 2, 1]),
    )
    def send(
        self, session: Opened, destination: str, priority: int, n: int, ttl: int, delay: int, repeat: int, mode: int
    ) -> None:
        if not session.open:
            return
        if session.mode == 0:
            delay = 0  # the order of what becomes due together would be that of the sends, or of the commits
        where = Topic(destination) if destination == _TOPIC else Queue(destination)
        producer = session.real.create_producer(where)
        producer.set_delivery_delay(delay * 1000)
        for _ in range(repeat):
            name = f"m{next(self.names)}"
            message = TextMessage(name)
            message.set_int_property("n", n)
            producer.send(message, delivery_mode=mode, priority=priority, time_to_live=ttl * 1000)
            now = self.model.now
            sent = Sent(name, priority, n, now + ttl if ttl else 0, now + delay)
            if session.mode == 0:
                session.model.staged.append((destination, sent))
            else:
                self.model.send(destination, sent)
        if mode == 1:
            self.flush(session)

    # -- consumers and subscriptions ----------------------------------------------------------------------------------

    def opens(self, session: Opened, store: Store, selector: str | None, real: MessageConsumer) -> Any:
        store.opened()
        receiver = Receiver(session, store, selector, real)
        self.consumers.append(receiver)
        return receiver

    @rule(target=receivers, session=sessions, queue=st.sampled_from(["q1", "q1", "q2"]), selector=_SELECTORS)
    def consume_queue(self, session: Opened, queue: str, selector: str | None) -> Any:
        if not session.open:
            return multiple()
        real = session.real.create_consumer(Queue(queue), selector)
        return self.opens(session, self.model.queue(queue), selector, real)

    @rule(target=receivers, session=sessions, selector=_SELECTORS)
    def consume_topic(self, session: Opened, selector: str | None) -> Any:
        if not session.open:
            return multiple()
        real = session.real.create_consumer(Topic(_TOPIC), selector)
        return self.opens(session, self.model.subscribe(f"#{next(self.names)}", _TOPIC, selector, False), None, real)

    @rule(
        target=receivers,
        session=sessions,
        kind=st.sampled_from(["durable", "shared", "shared durable"]),
        selector=_SELECTORS,
    )
    def subscribe(self, session: Opened, kind: str, selector: str | None) -> Any:
        if not session.open or (kind == "durable" and session.connection != 0):
            return multiple()
        name = f"{kind} of {session.connection}"
        create = {
            "durable": session.real.create_durable_consumer,
            "shared": session.real.create_shared_consumer,
            "shared durable": session.real.create_shared_durable_consumer,
        }[kind]
        store = self.model.stores.get(name)
        if store is not None and (
            store.consumers and (kind == "durable" or store.selector != selector)  # SUB-11, SUB-14
        ):
            with pytest.raises(JMSException):
                create(Topic(_TOPIC), kind.replace(" ", "-"), selector)
            return multiple()
        if store is not None and store.selector != selector and self.holders(store):
            return multiple()  # OPEN: replacing a subscription of which messages are held
        real = create(Topic(_TOPIC), kind.replace(" ", "-"), selector)
        return self.opens(session, self.model.subscribe(name, _TOPIC, selector, "durable" in kind), None, real)

    @rule(session=sessions, kind=st.sampled_from(["durable", "shared durable"]))
    def unsubscribe(self, session: Opened, kind: str) -> None:
        if not session.open:
            return
        name = f"{kind} of {session.connection}"
        store = self.model.stores.get(name)
        if store is None or store.consumers or self.holders(store):  # SUB-24, SUB-25, SUB-26
            with pytest.raises(JMSException):
                session.real.unsubscribe(kind.replace(" ", "-"))
        else:
            session.real.unsubscribe(kind.replace(" ", "-"))
            self.model.drop(name)

    def holders(self, store: Store) -> list[Opened]:
        return [s for s in self.opened if any(held.store is store for held in s.model.held)]

    @rule(receiver=consumes(receivers))
    def close_consumer(self, receiver: Receiver) -> None:
        if receiver.open:
            receiver.open = False
            receiver.real.close()
            self.model.left(receiver.store)

    # -- receiving, settling ------------------------------------------------------------------------------------------

    @rule(receiver=receivers, most=st.integers(1, 4))
    def receive(self, receiver: Receiver, most: int) -> None:
        if not receiver.open:
            return
        session = receiver.session
        for _ in range(most):
            message = receiver.real.receive_no_wait()
            known = self.check(receiver.store, receiver.selector, message, exact=self.exact)
            if known is None or message is None:
                return
            session.last = message
            self.model.take(session.model, receiver.store, known)
            if session.mode in (1, 3):
                self.model.acknowledge(session.model)

    def check(self, store: Store, selector: str | None, message: Message | None, exact: bool) -> Waiting | None:
        """Compare what came with what the model says may come."""
        eligible = self.model.eligible(store, selector)
        if message is None:
            assert not eligible, f"{store.name}: nothing came, but there is {[m.sent.name for m in eligible]}"
            return None
        assert isinstance(message, TextMessage)
        name = message.get_text()
        found = [m for m in eligible if m.sent.name == name]
        assert found, f"{store.name}: {name} came; it could have been one of {[m.sent.name for m in eligible]}"
        known = found[0]
        count = message.get_int_property("JMSXDeliveryCount") - 1
        assert known.count <= count <= known.count + known.doubt, (name, count, known)
        assert message.get_jms_redelivered() is (count > 0)  # JSX-12
        assert message.get_jms_priority() == known.sent.priority
        if exact:
            assert known is eligible[0], (name, [m.sent.name for m in eligible])
        elif not store.competed:
            equals = [m for m in eligible if m.sent.priority == known.sent.priority]
            if not any(m.doubt for m in equals):
                assert known is equals[0], (name, [m.sent.name for m in equals])
        known.count, known.doubt = count, 0
        return known

    @rule(session=sessions)
    def acknowledge(self, session: Opened) -> None:
        if session.open and session.last is not None:
            self.world.acknowledge(session.last)
            if session.mode == 2:
                self.model.acknowledge(session.model)

    @rule(session=sessions)
    def recover(self, session: Opened) -> None:
        if session.open and session.mode != 0:
            session.real.recover()
            self.model.give_back(session.model)

    @rule(session=sessions)
    def commit(self, session: Opened) -> None:
        if session.open and session.mode == 0:
            session.real.commit()
            self.model.commit(session.model)

    @rule(session=sessions)
    def rollback(self, session: Opened) -> None:
        if session.open and session.mode == 0:
            session.real.rollback()
            self.model.rollback(session.model)

    # -- looking ------------------------------------------------------------------------------------------------------

    @rule(session=sessions, queue=st.sampled_from(["q1", "q2"]), selector=_SELECTORS)
    def browse(self, session: Opened, queue: str, selector: str | None) -> None:
        if not session.open:
            return
        with session.real.create_browser(Queue(queue), selector) as browser:
            seen = [message.get_text() for message in browser if isinstance(message, TextMessage)]
        waiting = [m.sent.name for m in self.model.eligible(self.model.queue(queue), selector)]
        if self.exact:
            assert seen == waiting  # ORD-08, BRW-06, BRW-07, BRW-09
        else:
            assert set(seen) <= set(waiting)
            assert len(seen) == len(set(seen))

    # -- time and accidents -------------------------------------------------------------------------------------------

    @rule(minutes=st.integers(1, 3))
    def advance(self, minutes: int) -> None:
        self.world.advance(self.broker, 60 * minutes)
        self.model.advance(60 * minutes)

    @rule()
    def lose_all_connections(self) -> None:
        """ACK-18, D-32: what was received and not acknowledged comes again, marked; what was staged is gone."""
        for session in self.opened:
            if session.open:
                self.flush(session)
        if not self.exact:
            self.doubt_what_is_buffered()
        self.broker.drop_connections()
        self.broker.call(lambda broker: None)  # one turn later it has noticed
        self.connections = [None, None]
        for session in self.opened:
            if session.open:
                self.end(session)

    def doubt_what_is_buffered(self) -> None:
        """Any message may be in the buffer of any consumer of its store. One connection is found dead after the other:
        what comes back from the first may go to the second, and come back from there once more."""
        connections = {store: self.connections_of(store) for store in self.model.stores.values()}
        for store, numbers in connections.items():
            for message in store.waiting:
                message.doubt += len(numbers)
        for session in self.opened:
            for held in session.model.held:
                held.message.doubt += len(connections.get(held.store, set()) - {session.connection})

    def connections_of(self, store: Store) -> set[int]:
        return {r.session.connection for r in self.consumers if r.open and r.store is store}

    def flush(self, session: Opened) -> None:
        """The broker has heard everything that the session's connection said (D-24, D-25)."""
        session.real.create_browser(Queue("q1")).close()

    # -- the end ------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        try:
            for session in self.opened:
                if session.open:
                    session.real.close()
                    self.end(session)
            with suppress(JMSException):
                if self.connections[0] is not None:
                    self.connections[0].close()
                if self.connections[1] is not None:
                    self.connections[1].close()
            self.connections = [None, None]
            self.url = self.url.replace("prefetch=auto", "prefetch=0").replace("prefetch=1", "prefetch=0")
            for store in list(self.model.stores.values()):
                self.drain(store)
        finally:
            for connection in self.all_connections:
                with suppress(JMSException):
                    connection.close()
            self.world.close()

    def drain(self, store: Store) -> None:
        """Everything is still there, in order, and no more."""
        number = 1 if store.topic is None else int(store.name[-1])
        session = self.connection(number).create_session()
        if store.topic is None:
            consumer = session.create_consumer(Queue(store.name))
        elif store.name.startswith("durable"):
            consumer = session.create_durable_consumer(Topic(_TOPIC), "durable", store.selector)
        else:
            consumer = session.create_shared_durable_consumer(Topic(_TOPIC), "shared-durable", store.selector)
        exact = not any(m.doubt for m in store.waiting)
        while True:
            message = consumer.receive_no_wait()
            known = self.check(store, None, message, exact)
            if known is None:
                break
            store.waiting.remove(known)
        session.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Without dead letters: a program may have a message fail as often as it likes."""
    with EmbeddedBroker(settings={"destinations": {"*": DestinationPolicy(max_attempts=0)}}) as broker:
        yield broker


WORLDS = {"blocking": BlockingWorld, "aio": AioWorld}


def run(world: str, broker: EmbeddedBroker, examples: int, steps: int) -> None:
    kind = type("Program", (Program,), {"broker": broker, "make_world": WORLDS[world]})
    run_state_machine_as_test(kind, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", WORLDS)
def test_random_programs_agree_with_the_model(world: str, broker: EmbeddedBroker) -> None:
    """The slow test below has more and longer ones."""
    run(world, broker, 30, 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("world", WORLDS)
def test_long_random_programs_agree_with_the_model(world: str, broker: EmbeddedBroker) -> None:
    run(world, broker, 300, 80)
