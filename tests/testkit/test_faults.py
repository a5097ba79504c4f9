"""Each fault on demand, and what the client under test sees of it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.broker.server.wire_client import WireClient

from sievemq import (
    ConnectionFactory,
    DeliveryMode,
    JMSContext,
    JMSException,
    JMSRuntimeException,
    JMSSecurityRuntimeException,
    Queue,
    ResourceAllocationRuntimeException,
    Topic,
    TransactionRolledBackRuntimeException,
)
from sievemq_broker.server.net import turn
from sievemq_core.wire.commands import Command
from sievemq_testing import Faults, TestBroker, TestNamespace

SOON = 60.0
ORDERS = Queue("orders")


@pytest.fixture
def faults(sievemq_faults: Faults) -> Faults:
    return sievemq_faults


@pytest.fixture
def factory(namespace: TestNamespace) -> ConnectionFactory:
    return ConnectionFactory(namespace.url)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_refuses_the_next_n_sends_and_no_more(faults: Faults, namespace: TestNamespace, context: JMSContext) -> None:
    rule = faults.refuse("send", times=2)
    producer = context.create_producer()
    for _ in range(2):
        with pytest.raises(ResourceAllocationRuntimeException, match="the test wants this send to be refused"):
            producer.send(ORDERS, "x")
    producer.send(ORDERS, "y")
    assert [m.get_body(str) for m in namespace.queue("orders").messages()] == ["y"]
    assert (rule.used, rule.left) == (2, 0)
    assert [event.kind for event in namespace.journal].count("refused") == 2


def test_refuses_one_destination_only(faults: Faults, context: JMSContext) -> None:
    faults.refuse("send", times=9, destination="queue:pay*", text="no")
    producer = context.create_producer()
    producer.send(ORDERS, "x")
    with pytest.raises(ResourceAllocationRuntimeException, match=r"^no"):
        producer.send(Queue("payments"), "x")
    producer.send(Topic("payments"), "x")


def test_refuses_after_some_have_passed(faults: Faults, namespace: TestNamespace, context: JMSContext) -> None:
    faults.refuse("send", skip=3)
    producer = context.create_producer()
    for _ in range(3):
        producer.send(ORDERS, "x")
    with pytest.raises(ResourceAllocationRuntimeException):
        producer.send(ORDERS, "x")
    assert namespace.queue("orders").depth == 3


def test_refuses_a_send_behind_one_that_waits_for_room_when_it_is_its_turn(
    sievemq_test_broker: TestBroker, faults: Faults, namespace: TestNamespace
) -> None:
    namespace.queue("orders").configure(max_messages=1, at_limit="block")
    rule = faults.refuse("send", skip=2)
    with WireClient(sievemq_test_broker.port, namespace=namespace.name) as client:
        client.open_session()
        for number in (1, 2, 3):
            envelope = (None, 1, 4, 1, 0, 0, None, None, None, None, None, 2, b"x")
            client.wire.send(Command.SEND, 1, number, "queue:orders", envelope)
        client.sock.sendall(client.wire.data_to_send())
        assert client.until(Command.FLOW)[3:5] == (1, 2)
        assert rule.used == 0  # the third one is skipped
        assert namespace.queue("orders").purge() == 1
        assert client.until(Command.FLOW)[3:5] == (1, 3)
        client.say(Command.SEND, 1, 3, "queue:orders", envelope)
        assert client.until(Command.SEND_FAILED)[1:3] == (1, 3)
    assert (rule.used, namespace.queue("orders").depth) == (1, 1)


def test_refuses_one_client_and_one_namespace_only(
    faults: Faults, sievemq_test_broker: TestBroker, factory: ConnectionFactory, context: JMSContext
) -> None:
    faults.refuse("send", times=9, client_id="chosen")
    context.create_producer().send(ORDERS, "of another client")
    with ConnectionFactory(sievemq_test_broker.url, client_id="chosen").create_context() as elsewhere:
        elsewhere.create_producer().send(ORDERS, "in another namespace")
    with factory.create_context() as chosen:
        chosen.set_client_id("chosen")
        with pytest.raises(ResourceAllocationRuntimeException):
            chosen.create_producer().send(ORDERS, "refused")


def test_refused_commit_is_a_rollback(faults: Faults, namespace: TestNamespace, factory: ConnectionFactory) -> None:
    with factory.create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        faults.refuse("commit")
        with pytest.raises(TransactionRolledBackRuntimeException):
            context.commit()
        assert namespace.queue("orders").depth == 0
        context.create_producer().send(ORDERS, "y")
        context.commit()
        assert [m.get_body(str) for m in namespace.queue("orders").messages()] == ["y"]


def test_refused_send_dooms_its_transaction(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory
) -> None:
    with factory.create_context(JMSContext.SESSION_TRANSACTED) as context:
        faults.refuse("send", skip=1)
        for _ in range(3):
            context.create_producer().send(ORDERS, "x")
        with pytest.raises(TransactionRolledBackRuntimeException):
            context.commit()
        namespace.queue("orders").assert_empty()


def test_refuses_connections(faults: Faults, factory: ConnectionFactory) -> None:
    with faults.refuse("hello", error="AUTHENTICATION"), pytest.raises(JMSSecurityRuntimeException):
        factory.create_context()
    factory.create_context().close()


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("open_session", lambda context: context.create_context(JMSContext.AUTO_ACKNOWLEDGE).close()),
        ("open_consumer", lambda context: context.create_consumer(ORDERS)),
        ("create_temporary", lambda context: context.create_temporary_queue()),
        ("browse", lambda context: list(context.create_browser(ORDERS))),
    ],
)
def test_refuses_other_requests(faults: Faults, context: JMSContext, kind: str, act) -> None:  # type: ignore[no-untyped-def]
    faults.refuse(kind)
    with pytest.raises(JMSRuntimeException, match="the test wants this"):
        act(context)
    act(context)


def test_chance_is_repeatable(namespace: TestNamespace, factory: ConnectionFactory) -> None:
    def story(seed: int) -> list[bool]:
        faults = namespace.faults
        faults.seed = seed
        went_well = []
        with factory.create_context() as context, faults.refuse("send", times=99, probability=0.3):
            producer = context.create_producer()
            for _ in range(40):
                try:
                    producer.send(ORDERS, "x")
                    went_well.append(True)
                except ResourceAllocationRuntimeException:
                    went_well.append(False)
        return went_well

    first = story(1)
    assert 3 < first.count(False) < 25
    assert story(1) == first
    assert story(2) != first


def test_mistakes_raise(faults: Faults) -> None:
    with pytest.raises(ValueError, match=r"'acknowledge' cannot be refused; one of .*commit.*send"):
        faults.refuse("acknowledge")
    with pytest.raises(ValueError, match=r"there is no error 'NOPE'; one of .*RESOURCE_ALLOCATION"):
        faults.refuse("send", error="NOPE")
    with pytest.raises(ValueError, match="no client says 'deliver'"):
        faults.drop_on("deliver")
    with pytest.raises(LookupError, match="'nobody'"):
        faults.drop_connections("nobody")
    assert repr(faults) == f"<Faults of {faults._namespace!r}: none>"
    assert "send: refuse: SECURITY" in repr(faults.refuse("send", error="SECURITY"))
    assert "send: refuse: SECURITY" in repr(faults)


def test_the_repr_says_how_many_connections_it_concerns(faults: Faults, context: JMSContext) -> None:
    with faults.hold() as held, faults.slow_consumers() as slow, faults.pause_connections() as paused:
        assert repr(context)
    assert list(map(repr, (held, slow, paused))) == [f"<{name}: 1 connection>" for name in ("Held", "Slow", "Paused")]


@pytest.mark.parametrize(
    "how", [{"times": 0}, {"times": -1}, {"skip": -1}, {"probability": 0.0}, {"probability": 50}, {"probability": -0.5}]
)
def test_a_fault_that_would_never_happen_is_refused(faults: Faults, context: JMSContext, how: dict[str, Any]) -> None:
    for fault in (faults.refuse, faults.drop_on):
        with pytest.raises(ValueError, match="times is at least 1, skip at least 0, probability above 0"):
            fault("send", **how)
    context.create_producer().send(ORDERS, "passes")


# -- connections ------------------------------------------------------------------------------------------------------


def test_dropped_connection_gives_its_messages_back_marked(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory, context: JMSContext
) -> None:
    context.create_producer().send(ORDERS, "x")
    lost = ConnectionFactory(namespace.url, client_id="lost").create_context(JMSContext.CLIENT_ACKNOWLEDGE)
    assert lost.create_consumer(ORDERS).receive(60_000) is not None
    assert faults.drop_connections("lost") == 1
    again = context.create_consumer(ORDERS).receive(60_000)
    assert again is not None
    assert again.get_jms_redelivered()
    lost.create_producer().send(ORDERS, "y")  # the client has come back
    lost.close()


def test_a_dropped_connection_that_is_not_repaired(faults: Faults, namespace: TestNamespace) -> None:
    lost = ConnectionFactory(namespace.url, reconnect=0).create_context()
    assert faults.drop_connections() == 1
    with pytest.raises(JMSRuntimeException):
        lost.create_producer().send(ORDERS, "y")
    lost.close()


def test_a_missed_heartbeat_without_waiting_for_one(faults: Faults, namespace: TestNamespace) -> None:
    heard: list[JMSException] = []
    told = threading.Event()
    context = ConnectionFactory(namespace.url, reconnect=0).create_context()
    context.set_exception_listener(lambda error: (heard.append(error), told.set()))
    assert faults.close_connections() == 1
    assert told.wait(SOON)
    assert "the test wants this connection to end" in str(heard[0])
    context.close()
    with pytest.raises(ValueError, match=r"a connection continues after SECURITY"):
        faults.close_connections("SECURITY")


def test_a_client_that_closes_ends_the_pause_of_its_connection(
    faults: Faults, factory: ConnectionFactory, namespace: TestNamespace
) -> None:
    stays = factory.create_context()
    with factory.create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        faults.pause_connections()
    # It is closed, and did not wait for its timeout of a minute: the broker has answered.
    (event,) = [event for event in namespace.journal if "the pause ends" in event.detail]
    assert event.detail == f"the pause ends, since the client closes its connection ({event.by})"
    assert len(namespace.connections) == 1
    faults.clear()  # the others go on
    stays.create_producer().send(ORDERS, "y")
    stays.close()


@pytest.mark.parametrize("closed", ["consumer", "session"])
def test_a_client_that_closes_a_part_of_its_connection_ends_the_pause(
    faults: Faults, factory: ConnectionFactory, namespace: TestNamespace, closed: str
) -> None:
    with factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
        part = context.create_consumer(ORDERS) if closed == "consumer" else context.create_context(1)
        with part:
            faults.pause_connections()
        (event,) = [event for event in namespace.journal if "the pause ends" in event.detail]
        assert event.detail == f"the pause ends, since the client closes a {closed} ({event.by})"
        context.create_producer().send(ORDERS, "y")


def test_drops_only_connections_of_its_namespace(sievemq_test_broker: TestBroker, faults: Faults) -> None:
    other = sievemq_test_broker.namespace("not-this-one")
    with ConnectionFactory(other.url).create_context() as context:
        assert faults.drop_connections() == 0
        context.create_producer().send(ORDERS, "x")
    other.drop()


def test_the_answer_to_a_commit_is_lost_and_the_commit_is_not(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory
) -> None:
    context = factory.create_context(JMSContext.SESSION_TRANSACTED)
    context.create_producer().send(ORDERS, "x")
    faults.drop_on("commit", after=True)
    context.commit()  # the client comes back and learns it
    assert namespace.queue("orders").depth == 1
    context.close()


def test_the_connection_fails_before_the_commit(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory
) -> None:
    context = factory.create_context(JMSContext.SESSION_TRANSACTED)
    context.create_producer().send(ORDERS, "x")
    faults.drop_on("commit")
    with pytest.raises(TransactionRolledBackRuntimeException):
        context.commit()
    assert namespace.queue("orders").depth == 0
    context.close()


@pytest.mark.parametrize("to_client", [True, False])
def test_a_frame_cut_in_half(faults: Faults, namespace: TestNamespace, to_client: bool) -> None:
    context = ConnectionFactory(namespace.url, reconnect=0).create_context()
    failed = threading.Event()
    context.set_exception_listener(lambda error: failed.set())
    assert faults.cut_frame(to_client=to_client) == 1
    with pytest.raises(JMSRuntimeException):
        context.create_producer().send(ORDERS, "x")
    assert failed.wait(SOON)
    # What was cut on its way to the broker was not sent; what was cut on its way back was.
    assert namespace.queue("orders").depth == (1 if to_client else 0)
    context.close()


@pytest.mark.parametrize("to_client", [True, False])
def test_a_frame_cut_in_half_is_repaired(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory, to_client: bool
) -> None:
    with factory.create_context() as context:
        assert faults.cut_frame(to_client=to_client) == 1
        context.create_producer().send(ORDERS, "x")
        assert namespace.queue("orders").depth == 1


def test_frames_before_the_cut_arrive(
    faults: Faults, namespace: TestNamespace, sievemq_test_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no time for all of it at once, too."""
    monkeypatch.setattr(turn, "PIECE_SECONDS", 0.0)
    with WireClient(sievemq_test_broker.port, namespace=namespace.name) as client:
        client.open_session()
        assert faults.cut_frame(to_client=False, skip=3) == 1
        frames = []
        for number in range(1, 5):  # a destination each: nothing of it is taken as a row
            envelope = (None, 1, 4, 1, 0, 0, None, None, None, None, None, 2, b"x")
            client.wire.send(Command.SEND, 1, number, f"queue:orders{number}", envelope)
            frames.append(client.wire.data_to_send())
        client.sock.sendall(b"".join(frames))
        assert client.at_end()
    assert [namespace.queue(f"orders{number}").depth for number in range(1, 5)] == [1, 1, 1, 0]


def test_a_network_that_stalls_and_resumes(faults: Faults, namespace: TestNamespace, context: JMSContext) -> None:
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    with faults.pause_connections():
        producer.send(ORDERS, "x")  # does not wait for the broker
        assert namespace.queue("orders").depth == 0
    namespace.queue("orders").assert_received(count=1, within=SOON)


def test_a_reply_that_does_not_come(faults: Faults, namespace: TestNamespace, context: JMSContext) -> None:
    consumer = context.create_consumer(ORDERS)
    paused = faults.pause_connections()
    assert consumer.receive(10) is None
    paused.resume()
    context.create_producer().send(ORDERS, "x")
    assert consumer.receive_body(str, 60_000) == "x"


def test_held_commands_continue_in_another_order(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory
) -> None:
    with factory.create_context() as first, factory.create_context() as second:
        with faults.hold() as held:
            for context, texts in ((first, "ab"), (second, "cd")):
                producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
                for text in texts:
                    producer.send(ORDERS, text)
            faults._broker.wait_for(lambda _: sum(len(c.held or ()) for c in held._connections) == 4, SOON)
            assert held.commands == ["send"] * 4
            assert namespace.queue("orders").depth == 0
            assert held.release(reverse=True) == 4
        assert [m.get_body(str) for m in namespace.queue("orders").messages()] == ["c", "d", "a", "b"]


def test_held_sends_that_selectors_examine_slowly_all_arrive(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory
) -> None:
    selectors = [" AND ".join(f"text NOT LIKE '%{n}b{m}%'" for m in range(20)) for n in range(8)]
    with (
        contextlib.ExitStack() as consumers,
        factory.create_context() as context,
        context.create_context(JMSContext.AUTO_ACKNOWLEDGE) as other,
    ):
        for selector in selectors:
            browsing = consumers.enter_context(factory.create_context())
            browsing.create_consumer(ORDERS, f"{selector} AND never IS NOT NULL")
        with faults.hold() as held:
            for number, sender in enumerate((context, other, context, other)):
                producer = sender.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
                producer.set_property("text", "a" * 32_000).send(ORDERS, str(number))
            faults._broker.wait_for(lambda _: sum(len(c.held or ()) for c in held._connections) == 4, SOON)
        namespace.queue("orders").assert_received(count=4, within=SOON)
        assert [m.get_body(str) for m in namespace.queue("orders").messages()] == list("0123")
        context.create_producer().send(ORDERS, "4")
        other.create_producer().send(ORDERS, "5")
    assert namespace.queue("orders").depth == 6


def test_a_refusal_meets_a_command_that_was_held(faults: Faults, namespace: TestNamespace, context: JMSContext) -> None:
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    with faults.hold() as held:
        producer.send(ORDERS, "x")
        faults._broker.wait_for(lambda _: sum(len(c.held or ()) for c in held._connections) == 1, SOON)
        rule = faults.refuse("send")
    producer.send(ORDERS, "y")
    namespace.queue("orders").assert_received(count=1, within=SOON)
    assert rule.used == 1
    assert [m.get_body(str) for m in namespace.queue("orders").messages()] == ["y"]


def test_holding_twice_loses_nothing(faults: Faults, namespace: TestNamespace, context: JMSContext) -> None:
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    with faults.hold() as held:
        producer.send(ORDERS, "x")
        faults._broker.wait_for(lambda _: sum(len(c.held or ()) for c in held._connections) == 1, SOON)
        with faults.hold():
            producer.send(ORDERS, "y")
    namespace.queue("orders").assert_received(count=2, within=SOON)
    assert [m.get_body(str) for m in namespace.queue("orders").messages()] == ["x", "y"]


def test_a_seed_interleaves_the_same_way_each_time(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory
) -> None:
    def story(seed: int) -> list[str]:
        namespace.queue("orders").purge()
        with factory.create_context() as first, factory.create_context() as second, faults.hold() as held:
            for context, texts in ((first, "abcd"), (second, "wxyz")):
                producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
                for text in texts:
                    producer.send(ORDERS, text)
            faults._broker.wait_for(lambda _: sum(len(c.held or ()) for c in held._connections) == 8, SOON)
            held.release(seed=seed)
        return [m.get_body(str) for m in namespace.queue("orders").messages()]

    first = story(3)
    assert sorted(first) == list("abcdwxyz")
    assert [t for t in first if t in "abcd"] == list("abcd")
    assert first != list("abcdwxyz")
    assert story(3) == first


# -- slow and full ----------------------------------------------------------------------------------------------------


def test_a_slow_consumer_receives_as_many_as_allowed(
    faults: Faults, namespace: TestNamespace, context: JMSContext
) -> None:
    consumer = context.create_consumer(ORDERS)
    with faults.slow_consumers() as slow:
        for number in range(5):
            context.create_producer().send(ORDERS, str(number))
        assert namespace.queue("orders").depth == 5
        slow.let(2)
        assert [consumer.receive_body(str, 60_000) for _ in range(2)] == ["0", "1"]
        assert namespace.queue("orders").depth == 3
    assert [consumer.receive_body(str, 60_000) for _ in range(3)] == ["2", "3", "4"]


def test_a_full_queue_refuses_until_it_is_consumed_from(
    faults: Faults, namespace: TestNamespace, context: JMSContext
) -> None:
    producer = context.create_producer()
    producer.send(ORDERS, "x")
    faults.fill("orders")
    with pytest.raises(ResourceAllocationRuntimeException, match="max_bytes"):
        producer.send(ORDERS, "y")
    assert context.create_consumer(ORDERS).receive_body(str, 60_000) == "x"
    faults.clear()
    producer.send(ORDERS, "z")


def test_a_full_queue_refuses_a_send_that_selectors_examine_slowly(
    faults: Faults, namespace: TestNamespace, factory: ConnectionFactory
) -> None:
    with factory.create_context() as consuming, factory.create_context() as context:
        for n in range(8):
            slow = " AND ".join(f"text NOT LIKE '%{n}b{m}%'" for m in range(20))
            consuming.create_consumer(ORDERS, f"{slow} AND never IS NOT NULL")
        producer = context.create_producer().set_property("text", "a" * 32_000)
        producer.send(ORDERS, "x")
        faults.fill("orders")
        with pytest.raises(ResourceAllocationRuntimeException, match="max_bytes"):
            producer.send(ORDERS, "y")
        faults.clear()
        producer.send(ORDERS, "z")
        assert [m.get_body(str) for m in namespace.queue("orders").messages()] == ["x", "z"]


def test_an_empty_queue_can_be_full(faults: Faults, context: JMSContext) -> None:
    faults.fill("orders")
    with pytest.raises(ResourceAllocationRuntimeException):
        context.create_producer().send(ORDERS, "y")


def test_full_memory_blocks_producers_until_there_is_room(
    faults: Faults, namespace: TestNamespace, context: JMSContext
) -> None:
    sent = threading.Event()

    def produce() -> None:
        context.create_producer().send(ORDERS, "x")
        sent.set()

    class Listener:
        def on_exception(self, exception: JMSException) -> None:
            raise exception

        def on_blocked(self, destination: str | None, reason: str) -> None:
            if destination == "queue:orders":
                blocked.set()

    blocked = threading.Event()
    context.set_exception_listener(Listener())
    thread = threading.Thread(target=produce)
    with faults.memory_full():
        thread.start()
        assert blocked.wait(SOON)
        assert not sent.is_set()
        assert namespace.queue("orders").messages() == []
    assert sent.wait(SOON)
    thread.join()
    namespace.queue("orders").assert_received(count=1, within=SOON)


# -- the broker's death -----------------------------------------------------------------------------------------------


def test_kill_and_restart_on_the_same_port_with_persistent_messages() -> None:
    with TestBroker() as broker:
        port = broker.port
        context = ConnectionFactory(broker.url, reconnect=0).create_context()
        context.create_shared_durable_consumer(Topic("prices"), "audit")
        context.create_producer().send(ORDERS, "kept")
        context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT).send(ORDERS, "gone")
        broker.queue("orders").assert_received(count=2, within=SOON)
        context.create_producer().send(Topic("prices"), "kept too")
        broker.kill()
        with pytest.raises(JMSRuntimeException):
            context.create_producer().send(ORDERS, "nobody receives this")
        context.close()
        broker.restart()
        assert broker.port == port
        assert [m.get_body(str) for m in broker.queue("orders").messages()] == ["kept"]
        with ConnectionFactory(broker.url).create_context() as context:
            consumer = context.create_shared_durable_consumer(Topic("prices"), "audit")
            assert consumer.receive_body(str, 60_000) == "kept too"
        with pytest.raises(AssertionError, match=r"removed: queue:orders .* 'gone'"):
            broker.assert_nothing_lost()


def test_restart_redelivers_messages_in_flight() -> None:
    with TestBroker() as broker:
        context = ConnectionFactory(broker.url, reconnect=0).create_context(JMSContext.CLIENT_ACKNOWLEDGE)
        context.create_producer().send(ORDERS, "x")
        assert context.create_consumer(ORDERS).receive(60_000) is not None
        broker.restart("all")
        with ConnectionFactory(broker.url).create_context() as other:
            message = other.create_consumer(ORDERS).receive(60_000)
            assert message is not None
            assert message.get_jms_redelivered()
        broker.assert_nothing_lost(within=SOON)
        context.close()


@pytest.mark.parametrize("keep", ["persistent", "all"])
def test_a_client_survives_a_restart_without_doubled_sends(keep: Literal["persistent", "all"]) -> None:
    sent = threading.Event()
    listener = (lambda message: sent.set(), lambda message, error: None)
    with TestBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        broker.faults.drop_on("send", after=True)  # the send arrives, its confirm does not
        context.create_producer().set_async(listener).send(ORDERS, "once")
        broker.queue("orders").assert_received(count=1, within=SOON)
        broker.restart(keep)
        assert sent.wait(SOON)
        context.create_producer().send(ORDERS, "twice")
        consumer = context.create_consumer(ORDERS)
        assert [consumer.receive_body(str, 60_000) for _ in range(2)] == ["once", "twice"]
        assert consumer.receive_no_wait() is None


def test_restart_refuses_unknown_modes() -> None:
    refusal = "'persistent', 'all' or 'nothing', not 'persistant'"
    with TestBroker() as broker, pytest.raises(ValueError, match=refusal):
        broker.restart("persistant")  # type: ignore[arg-type]


def test_restart_without_its_data() -> None:
    with TestBroker() as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().send(ORDERS, "x")
        broker.restart("nothing")
        assert broker.queue("orders").messages() == []
        with pytest.raises(AssertionError, match="lost: queue:orders"):
            broker.assert_nothing_lost()


def test_a_restart_from_the_data_directory_accounts_for_each_message(tmp_path: Path) -> None:
    with TestBroker(data_dir=tmp_path / "data") as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            producer = context.create_producer()
            for text in ("consumed", "kept"):
                producer.send(ORDERS, text)
            producer.set_disable_message_id(True).send(ORDERS, "kept, too")
            producer.send(ORDERS, "kept, too")
            consumer = context.create_consumer(ORDERS)
            assert consumer.receive_body(str, 60_000) == "consumed"
            consumer.close()
        broker.restart()
        assert [m.get_body(str) for m in broker.queue("orders").messages()] == ["kept", "kept, too", "kept, too"]
        broker.assert_nothing_lost()
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT).send(ORDERS, "in memory only")
        broker.kill()
        broker.restart()
        with pytest.raises(AssertionError, match=r"1 message is lost .*\n  lost: queue:orders .* 'in memory only'"):
            broker.assert_nothing_lost()
        with ConnectionFactory(broker.url).create_context() as context:
            consumer = context.create_consumer(ORDERS)
            assert [consumer.receive_body(str, 60_000) for _ in range(3)] == ["kept", "kept, too", "kept, too"]
        broker.queue("orders").assert_consumed(count=4, within=SOON)


def test_a_restart_without_the_data_directory(tmp_path: Path) -> None:
    with TestBroker(data_dir=tmp_path / "data") as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().send(ORDERS, "x")
        with pytest.raises(ValueError, match="with a data directory"):
            broker.restart("all")
        broker.restart("nothing")
        assert broker.queue("orders").depth == 0
        with pytest.raises(AssertionError, match="lost: queue:orders"):
            broker.assert_nothing_lost()


def test_nothing_is_lost_or_doubled_over_lost_connections(faults: Faults, namespace: TestNamespace) -> None:
    faults.seed = 7
    factory = ConnectionFactory(namespace.url, reconnect_delay=1, reconnect_max_delay=5)
    with factory.create_context() as sender, factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as receiver:
        producer = sender.create_producer()
        for after in (False, True):
            faults.drop_on("send", times=5, probability=0.3, after=after)
        for number in range(40):
            producer.send(ORDERS, str(number))
        faults.clear()
        assert namespace.queue("orders").depth == 40
        faults.drop_connections()  # nothing is handed over yet: what was would come again, marked
        consumer = receiver.create_consumer(ORDERS)
        assert sorted(int(consumer.receive_body(str, 60_000) or -1) for _ in range(40)) == list(range(40))
        receiver.acknowledge()
        with sender.create_browser(ORDERS) as browser:  # waits for its repair, which close() would end
            assert list(browser) == []
    namespace.queue("orders").assert_empty(within=SOON)
    namespace.assert_nothing_lost()
    assert [event.kind for event in namespace.journal].count("fault") >= 10


def test_the_clock_outlives_a_restart() -> None:
    with TestBroker() as broker:
        broker.clock.advance(seconds=3600)
        before = broker.clock.now()
        broker.restart()
        assert broker.clock.now() >= before
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().set_time_to_live(60_000).send(ORDERS, "x")
            assert broker.queue("orders").depth == 1
            broker.clock.advance(seconds=61)
            assert broker.queue("orders").depth == 0


def test_a_port_that_is_killed_refuses() -> None:
    with TestBroker() as broker:
        url = broker.url
        broker.kill()
        with pytest.raises(JMSException):
            ConnectionFactory(url, reconnect=0).create_connection()
        broker.restart()
        ConnectionFactory(url).create_connection().close()
