"""Namespaces: apart from each other, listed, reset, dropped; brokers apart from each other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Event, Thread

import pytest
from tests.broker.protocols.amqp import AmqpSocket
from tests.broker.protocols.stomp import StompSocket

from sievemq import ConnectionFactory, JMSContext, JMSException, JMSRuntimeException, Queue, Topic
from sievemq_broker.domain.work import Scheduler
from sievemq_broker.protocols.amqp.performatives import Close
from sievemq_broker.server.watch.counts import queues_in
from sievemq_broker.users.account import Users
from sievemq_broker.users.passwords import hash_password
from sievemq_testing import TestBroker, TestNamespace, watched
from sievemq_testing.views import ConnectionView

ORDERS = Queue("orders")


def test_made_at_first_use_listed_and_dropped(sievemq_test_broker: TestBroker) -> None:
    here = sievemq_test_broker.namespace("made-here")
    assert "made-here" not in sievemq_test_broker.namespaces
    with ConnectionFactory(here.url).create_context() as context:
        context.create_producer().send(ORDERS, "x")
        assert "made-here" in sievemq_test_broker.namespaces
    here.drop()
    assert "made-here" not in sievemq_test_broker.namespaces
    assert here.queue("orders").messages() == []
    assert here.journal == []


def test_apart_from_each_other(sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace) -> None:
    other = sievemq_test_broker.namespace("other")
    with ConnectionFactory(sievemq_namespace.url).create_context() as context:
        context.create_producer().send(ORDERS, "x")
    assert sievemq_namespace.queue("orders").depth == 1
    assert other.queue("orders").depth == 0
    assert all(event.kind != "sent" for event in other.journal)
    other.drop()


def test_dropping_cuts_its_connections_and_no_others(
    sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace
) -> None:
    doomed = sievemq_test_broker.namespace("doomed")
    with ConnectionFactory(sievemq_namespace.url).create_context() as stays:
        lost = ConnectionFactory(doomed.url, client_id="c", reconnect=0).create_context()
        doomed.drop()
        stays.create_producer().send(ORDERS, "x")
        # The client id is free at once in a new namespace of that name, although the old client may not know yet.
        doomed = sievemq_test_broker.namespace("doomed")
        ConnectionFactory(doomed.url, client_id="c").create_context().close()
        lost.close()
    doomed.drop()


def test_a_client_cannot_bring_a_dropped_namespace_back(sievemq_test_broker: TestBroker) -> None:
    doomed = sievemq_test_broker.namespace("gone-for-good")
    heard: list[str] = []
    ended = Event()

    def listen(error: JMSException) -> None:
        heard.append(str(error))
        ended.set()

    factory = ConnectionFactory(doomed.url, client_id="c", application="leaky", reconnect=60_000)
    left_open = factory.create_context()
    left_open.set_exception_listener(listen)
    left_open.create_consumer(ORDERS)
    (left,) = doomed.drop()
    assert (left.client_id, left.consumers) == ("c", ("queue:orders",))
    assert left.agent.endswith(" leaky")
    # The client comes back at once, is refused, and gives up although its minute has only begun.
    assert ended.wait(60)
    assert "the test kit has dropped namespace 'gone-for-good'" in heard[0]
    with pytest.raises(JMSRuntimeException, match="the test kit has dropped namespace 'gone-for-good'"):
        factory.create_context()
    assert "gone-for-good" not in sievemq_test_broker.namespaces
    left_open.close()
    factory = ConnectionFactory(sievemq_test_broker.namespace("gone-for-good").url)
    factory.create_context().close()  # the test has asked for it
    assert doomed.drop() == []


def test_a_namespace_can_wait_for_connections_that_are_being_closed(
    sievemq_test_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = sievemq_test_broker.namespace("closing")
    client = Thread(target=ConnectionFactory(closing.url).create_context().close)
    seen: list[int] = []
    look = TestNamespace._connections

    def look_twice_then_close(namespace: TestNamespace) -> list[ConnectionView]:
        views = look(namespace)
        seen.append(len(views))
        if len(seen) == 2:  # the first look finds that there is something to wait for
            client.start()
        return views

    monkeypatch.setattr(TestNamespace, "_connections", look_twice_then_close)
    assert closing.drop(60) == []
    assert seen[:2] == [1, 1]
    client.join(60)


def test_clients_of_other_protocols_cannot_bring_a_dropped_namespace_back(sievemq_test_broker: TestBroker) -> None:
    doomed = sievemq_test_broker.namespace("gone-for-all")
    port = sievemq_test_broker.port
    with StompSocket(port, {"host": "/gone-for-all"}) as stomp, AmqpSocket(port, host="/gone-for-all") as amqp:
        stomp.confirmed("SUBSCRIBE", id="1", destination="orders")
        amqp.receiver("orders")
        left = {view.protocol: view.consumers for view in doomed.drop()}
        assert left == {"stomp": ("queue:orders",), "amqp": ("queue:orders",)}
        amqp.ended()
    with StompSocket(port, None) as stomp, AmqpSocket(port, connect=False) as amqp:
        stomp.say("CONNECT", **{"accept-version": "1.2", "host": "/gone-for-all"})
        assert "the test kit has dropped namespace 'gone-for-all'" in stomp.frame("ERROR").headers["message"]
        amqp.connect(host="/gone-for-all")
        assert "the test kit has dropped namespace 'gone-for-all'" in str(amqp.one(Close).error)
    assert "gone-for-all" not in sievemq_test_broker.namespaces


def test_a_client_during_its_password_check_cannot_recreate_a_dropped_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checking, dropped = Event(), Event()
    check = Users.check

    def slow(users: Users, name: str, password: str) -> bool:
        checking.set()
        dropped.wait(0.2)  # the drop waits for this check, or would be over by then
        return check(users, name, password)

    monkeypatch.setattr(Users, "check", slow)
    with TestBroker(users={"me": hash_password("secret")}) as broker:
        doomed = broker.namespace("doomed")

        def connect() -> None:
            with suppress(JMSException):
                ConnectionFactory(doomed.url, reconnect=0).create_connection("me", "secret").close()

        client = Thread(target=connect)
        client.start()
        assert checking.wait(60)
        doomed.drop()
        dropped.set()
        client.join(60)
        broker.wait_until_idle()
        assert "doomed" not in broker.namespaces


def test_a_large_one_is_dropped_in_slices(sievemq_test_broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    large = sievemq_test_broker.namespace("large")
    with ConnectionFactory(large.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        producer = context.create_producer()
        for number in range(3_000):
            producer.send(ORDERS, "x")
            producer.set_delivery_delay(60_000 if number % 3 else 0)
        context.commit()
    left: list[int] = []
    space = sievemq_test_broker.call(lambda broker: broker.namespaces["large"])
    run = Scheduler.run

    def watched(scheduler: Scheduler, now: int, units: int | None = None) -> bool:
        more = run(scheduler, now, units)
        left.append(sum(queue.depth + len(queue.scheduled) for queue in queues_in(space)))
        return more

    monkeypatch.setattr(Scheduler, "run", watched)
    large.drop()
    assert left[-1] == 0
    assert len([count for count in left if 0 < count < 3_000]) >= 4
    assert sievemq_test_broker.call(lambda broker: broker.scheduler.overrun) <= 1_000
    assert "large" not in sievemq_test_broker.namespaces


def test_reset_forgets_messages_subscriptions_journal_and_faults_but_no_consumer(
    sievemq_namespace: TestNamespace,
) -> None:
    factory = ConnectionFactory(sievemq_namespace.url)
    with factory.create_context() as context:
        context.create_shared_durable_consumer(Topic("prices"), "audit").close()
        context.create_producer().send(ORDERS, "waits")
        context.create_producer().set_delivery_delay(60_000).send(ORDERS, "later")
        sievemq_namespace.faults.refuse("send")
        consumer = context.create_consumer(ORDERS, "n = 1")
        sievemq_namespace.reset()
        assert sievemq_namespace.journal == []
        assert sievemq_namespace.topic("prices").subscriptions == []
        sievemq_namespace.queue("orders").assert_empty()
        context.create_producer().set_property("n", 1).send(ORDERS, "new")
        assert consumer.receive_body(str, 60_000) == "new"


@pytest.mark.parametrize("settle", ["acknowledge", "recover", "close"])
def test_reset_drops_messages_held_by_a_consumer(sievemq_namespace: TestNamespace, settle: str) -> None:
    queue = sievemq_namespace.queue("orders")
    with ConnectionFactory(sievemq_namespace.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        for text in ("one", "two", "three"):
            context.create_producer().send(ORDERS, text)
        consumer = context.create_consumer(ORDERS)
        assert consumer.receive(60_000) is not None
        sievemq_namespace.reset()
        queue.assert_empty()
        context.create_producer().send(ORDERS, "new")
        if settle == "acknowledge":
            context.acknowledge()
        elif settle == "recover":
            context.recover()
    assert [m.get_body(str) for m in queue.messages()] == ["new"]


def test_state_of_two_brokers_never_mixes() -> None:
    with TestBroker() as one, TestBroker() as two:
        assert one.port != two.port
        with ConnectionFactory(one.url).create_context() as context:
            context.create_producer().send(ORDERS, "x")
        one.clock.advance(seconds=3600)
        assert (one.queue("orders").depth, two.queue("orders").depth) == (1, 0)
        assert one.journal
        assert not two.journal
        assert one.clock.now() > two.clock.now()
        two.faults.refuse("send")
        with ConnectionFactory(one.url).create_context() as context:
            context.create_producer().send(ORDERS, "y")


def test_broker_can_be_used_by_itself_and_again() -> None:
    broker = TestBroker()
    for _ in range(3):
        with broker:
            assert broker.namespaces == ["default"] or broker.namespaces == []
    with pytest.raises(RuntimeError, match="is not running"):
        broker.queue("orders").messages()


def test_wait_until_idle_returns_when_nothing_moves(
    sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace
) -> None:
    with ConnectionFactory(sievemq_namespace.url).create_context() as context:
        producer = context.create_producer()
        for number in range(3_000):
            producer.set_property("n", number).send(ORDERS, "x")
        consumer = context.create_consumer(ORDERS, "n >= 2999")  # looked for behind 2,999 others
        sievemq_namespace.wait_until_idle()
        assert sievemq_test_broker.call(lambda broker: not broker.work(0, 1))
        assert consumer.receive(60_000) is not None


def test_wait_until_idle_gives_up(sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace) -> None:
    with ConnectionFactory(sievemq_namespace.url).create_context() as context:
        context.create_producer().send(ORDERS, "x")
        with sievemq_namespace.faults.pause_connections():
            sievemq_namespace.queue("orders").configure(max_attempts=3)
            sievemq_test_broker.on_server(
                lambda server: [c.out.answer(0) for c in server.shard.services.connections.values()]
            )
            with pytest.raises(AssertionError, match="still busy"):
                sievemq_test_broker.wait_until_idle(0.05)


def test_a_wait_that_gave_up_looks_no_more(sievemq_test_broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def busy(server: object) -> bool:
        looks.append(server)
        return False

    monkeypatch.setattr(watched, "is_idle", busy)
    with pytest.raises(AssertionError, match="still busy"):
        sievemq_test_broker.wait_until_idle(0.01)

    def later(server: object) -> Event:
        passed = Event()
        asyncio.get_running_loop().call_later(0.01, passed.set)
        return passed

    assert sievemq_test_broker.on_server(later).wait(60)
    seen = len(looks)
    assert sievemq_test_broker.on_server(later).wait(60)
    assert len(looks) == seen
