"""A lost connection is repaired before anybody is told (EXL-04, D-32)."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    JMSException,
    TextMessage,
    TransactionRolledBackException,
    TransactionRolledBackRuntimeException,
)
from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import ErrorCode

from ...client.both import SOON, Api, outline, text
from ...client.relay import Relay, options


@pytest.fixture
def relay(api: Api) -> Iterator[Relay]:
    """A network between this test's clients and its broker."""
    with Relay(api.broker.port) as relay:
        yield relay


async def connect(api: Api, relay: Relay, **more: Any) -> Any:
    """A started connection through the relay."""
    connection = await api.factory(relay.url(api.url), **options(**more)).create_connection()
    api._closeables.append(connection)
    await connection.start()
    return connection


class Hooks:
    """An exception listener that hears everything."""

    def __init__(self, api: Api) -> None:
        self.heard: list[str] = []
        self.errors: list[Exception] = []
        self.lost, self.restored, self.failed = api.signal(), api.signal(), api.signal()

    def on_connection_lost(self, error: JMSException) -> None:
        self.heard.append("lost")
        self.errors.append(error)
        self.lost.set()

    def on_connection_restored(self) -> None:
        self.heard.append("restored")
        self.restored.set()

    def on_exception(self, error: JMSException) -> None:
        self.heard.append("exception")
        self.errors.append(error)
        self.failed.set()


async def lose(api: Api, relay: Relay, connection: Any) -> Hooks:
    """Lose the connection, and wait until it is repaired."""
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    relay.cut()
    await hooks.restored.wait()
    return hooks


async def begin_outage(api: Api, relay: Relay, connection: Any) -> Hooks:
    """Lose the connection; it is not repaired before the relay accepts again."""
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    relay.refuse()
    relay.cut()
    await hooks.lost.wait()
    return hooks


# -- who is told ------------------------------------------------------------------------------------------------------


async def test_exl_04_a_loss_that_is_repaired_is_not_reported(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    before = connection.get_client_id(), repr(connection)
    hooks = await lose(api, relay, connection)
    assert hooks.heard == ["lost", "restored"]
    assert hooks.errors[0].get_error_code() == "CONNECTION_LOST"
    assert (connection.get_client_id(), repr(connection)) == before  # it even has its id
    session = await connection.create_session()
    await (await session.create_producer(api.queue())).send(TextMessage("on"))
    assert await api.left() == ["on"]


async def test_exl_04_a_plain_listener_hears_nothing_of_it(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    heard: list[JMSException] = []
    connection.set_exception_listener(heard.append)
    relay.cut()
    await connection.create_session()
    assert heard == []


async def test_exl_04_d_32_it_is_told_once_the_time_is_over(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, reconnect=50)
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    waiting = api.task(consumer.receive())
    await api.until_receiving(consumer)
    relay.refuse()
    relay.cut()
    await hooks.failed.wait()
    assert hooks.heard == ["lost", "exception"]
    assert "not repaired within 50 ms" in str(hooks.errors[-1])
    with pytest.raises(JMSException, match="not repaired"):
        await waiting
    with pytest.raises(JMSException):
        await connection.create_session()


async def test_exl_04_not_repaired_where_nobody_wants_it(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, reconnect=0)
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    relay.cut()
    await hooks.failed.wait()
    assert hooks.heard == ["exception"]
    assert relay.accepted == 1


async def test_exl_04_not_repaired_after_an_administrator_ended_it(api: Api) -> None:
    broker = api.start_broker()
    connection = await api.connect()
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    _close_all(broker, ErrorCode.CLOSED_BY_ADMINISTRATOR)
    await hooks.failed.wait()
    assert hooks.heard == ["exception"]


async def test_exl_04_repaired_after_the_broker_missed_heartbeats(api: Api) -> None:
    broker = api.start_broker()
    connection = await api.connect()
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    _close_all(broker, ErrorCode.HEARTBEAT_MISSED)
    await hooks.restored.wait()
    assert hooks.heard == ["lost", "restored"]


def _close_all(broker: EmbeddedBroker, code: ErrorCode) -> None:
    def close(_: object) -> None:
        server = broker.server
        for connection in tuple(server.services.connections.values()):
            connection.close(code, "the test wants it", server.clock.now())

    broker.call(close)


async def test_exl_04_a_network_that_is_silent_is_noticed_and_left(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, heartbeat=500)
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    relay.stand()
    await hooks.restored.wait()
    assert "silent" in str(hooks.errors[0])
    await connection.create_session()


async def test_heartbeats_do_not_depend_on_listeners(api: Api) -> None:
    """A listener that takes its time: both ends go on hearing each other all the while."""
    running, go = api.signal(), api.signal()

    async def on_message(message: Any) -> None:
        running.set()
        await go.wait()

    api.start_broker(settings={"heartbeat_seconds": 1})
    with Relay(api.broker.port) as relay:
        connection = await connect(api, relay, heartbeat=1_000)
        hooks = Hooks(api)
        connection.set_exception_listener(hooks)
        session = await connection.create_session()
        consumer = await session.create_consumer(api.queue())
        consumer.set_message_listener(on_message)
        await api.fill("orders", "x")
        await running.wait()
        up, down = relay.passed()
        await api._until(lambda: relay.passed()[0] > up + 6 and relay.passed()[1] > down + 6)  # one has six bytes
        assert hooks.heard == []
        go.set()


# -- sends ------------------------------------------------------------------------------------------------------------


async def test_d_32_a_send_whose_confirm_is_lost_returns_and_is_not_doubled(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("first"))
    sending = [api.task(producer.send(TextMessage("second")))]
    relay.cut()
    for task in sending:
        await task
    await producer.send(TextMessage("third"))
    assert await api.left() == ["first", "second", "third"]


async def test_d_32_sends_during_an_outage_arrive_in_order(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    fates = api.completions()
    await begin_outage(api, relay, connection)
    for number in range(5):
        await producer.send(TextMessage(f"async {number}"), completion_listener=fates)
        await producer.send(TextMessage(f"loose {number}"), delivery_mode=1)
    relay.accept()
    await producer.send(TextMessage("last"))
    outcomes = await fates.arrived(5)
    assert [error for _, error in outcomes] == [None] * 5
    expected = [f"{kind} {number}" for number in range(5) for kind in ("async", "loose")]
    assert await api.left() == [*expected, "last"]


async def test_d_32_message_ids_stay_unique(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    ids = []
    for _ in range(4):
        message = TextMessage("x")
        await producer.send(message)
        ids.append(message.get_jms_message_id())
        relay.cut()
    assert len(set(ids)) == 4
    assert len({message_id.rpartition(":")[0] for message_id in ids}) == 1


# -- deliveries -------------------------------------------------------------------------------------------------------


async def test_ack_18_d_32_what_was_seen_comes_again_marked_and_the_rest_unmarked(api: Api, relay: Relay) -> None:
    await api.fill("orders", "a", "b", "c")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    assert outline(await consumer.receive(SOON)) == ("a", False, 1)
    await lose(api, relay, connection)
    assert await api.outlines(consumer, 3) == [("a", True, 2), ("b", False, 1), ("c", False, 1)]


async def test_ack_18_messages_of_a_lost_connection_cannot_be_acknowledged(api: Api, relay: Relay) -> None:
    await api.fill("orders", "a", "b")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    first = await consumer.receive(SOON)
    await lose(api, relay, connection)
    again = await consumer.receive(SOON)
    with pytest.raises(JMSException, match="come again") as caught:
        await first.acknowledge()
    assert caught.value.get_error_code() == "CONNECTION_LOST"
    assert outline(again) == ("a", True, 2)
    await again.acknowledge()  # from here on it counts
    assert text(await consumer.receive(SOON)) == "b"
    await connection.close()
    assert await api.left() == ["b"]


async def test_ack_24_auto_acknowledged_messages_do_not_come_again_unmarked(api: Api, relay: Relay) -> None:
    await api.fill("orders", *(f"{n}" for n in range(20)))
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    seen = []
    while (message := await consumer.receive_no_wait()) is not None:
        seen.append(outline(message))
        if len(seen) in (5, 11):
            relay.cut()
    unmarked = [body for body, redelivered, _ in seen if not redelivered]
    assert len(unmarked) == len(set(unmarked))
    assert {body for body, _, _ in seen} == {f"{n}" for n in range(20)}
    assert await api.left() == []


async def test_listeners_go_on(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    listener = api.listener()
    consumer = await session.create_consumer(api.queue(), "color = 'red'")
    consumer.set_message_listener(listener)
    for number in range(4):
        relay.cut()
        await api.fill("orders", f"{number}", color="red")
        await api.fill("orders", "no", color="blue")
        await listener.arrived(number + 1)
    assert set(listener.texts) == {"0", "1", "2", "3"}


async def test_a_receive_waits_over_an_outage_and_its_timeout_counts(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive(SOON))
    await api.until_receiving(consumer)
    hooks = await begin_outage(api, relay, connection)
    await api.fill("orders", "x")
    relay.accept()
    assert text(await receiving) == "x"
    hooks.lost, hooks.restored = api.signal(), api.signal()
    relay.refuse()
    relay.cut()
    await hooks.lost.wait()
    assert await consumer.receive(1) is None
    relay.accept()


async def test_receive_no_wait_asks_the_broker_that_comes_back(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    await begin_outage(api, relay, connection)
    await api.fill("orders", "x")
    asking = api.task(consumer.receive_no_wait())
    relay.accept()
    assert text(await asking) == "x"


async def test_recover_over_an_outage(api: Api, relay: Relay) -> None:
    await api.fill("orders", "a", "b")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 1) == ["a"]
    relay.cut()
    await session.recover()
    assert [outline(await consumer.receive(SOON))[:2] for _ in range(2)] == [("a", True), ("b", False)]
    await session._acknowledge()
    await connection.close()
    assert await api.left() == []


async def test_stopped_stays_stopped(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    await connection.stop()
    await lose(api, relay, connection)
    await api.fill("orders", "x")
    assert await consumer.receive_no_wait() is None
    assert await api.left() == ["x"]
    await connection.start()
    assert text(await consumer.receive(SOON)) == "x"


async def test_prefetch_of_none_over_an_outage(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, prefetch=0)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive(SOON))
    await api.until_receiving(consumer)
    relay.cut()
    await api.fill("orders", "x")
    assert text(await receiving) == "x"


async def test_a_browser_goes_on(api: Api, relay: Relay) -> None:
    await api.fill("orders", *(f"{n}" for n in range(250)))
    connection = await connect(api, relay)
    session = await connection.create_session()
    browser = await session.create_browser(api.queue())
    shown = []
    async for message in browser:
        shown.append(text(message))
        if len(shown) in (50, 150):
            relay.cut()
    assert shown == [f"{n}" for n in range(250)]


# -- subscriptions, client ids, temporary destinations ----------------------------------------------------------------


async def test_durable_shared_and_selective_subscriptions_are_opened_again(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, client_id="me")
    session = await connection.create_session()
    consumers = [
        await session.create_durable_consumer(api.topic(), "durable", "n > 1"),
        await session.create_shared_durable_consumer(api.topic(), "shared"),
        await session.create_shared_consumer(api.topic(), "brief"),
        await session.create_consumer(api.topic()),
    ]
    await lose(api, relay, connection)
    assert connection.get_client_id() == "me"
    await connection.create_session()  # everything before it is open again
    await api.fill(api.topic(), "x", n=2)
    assert [text(await consumer.receive(SOON)) for consumer in consumers] == ["x"] * 4


async def test_ses_21_no_local_holds_over_an_outage(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.topic(), None, True)
    producer = await session.create_producer(api.topic())
    relay.cut()
    await producer.send(TextMessage("own"))
    await api.fill(api.topic(), "foreign")
    assert text(await consumer.receive(SOON)) == "foreign"


async def test_con_05_a_client_id_that_somebody_else_took_meanwhile(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, client_id="me")
    hooks = await begin_outage(api, relay, connection)
    await _claim(api, "me")
    relay.accept()
    await hooks.failed.wait()
    assert isinstance(hooks.errors[-1], InvalidClientIDException)


async def _claim(api: Api, client_id: str) -> None:
    """Take a client id as soon as the broker has seen that its holder is gone."""
    for _ in range(1_000):
        try:
            await api.connect(client_id=client_id)
        except InvalidClientIDException:
            continue
        return
    raise AssertionError("the id was never free")


async def test_tmp_05_temporary_destinations_stay_and_keep_their_messages(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    reply = await session.create_temporary_queue()
    consumer = await session.create_consumer(reply)
    await begin_outage(api, relay, connection)
    await api.fill(reply, "answer")
    relay.accept()
    assert text(await consumer.receive(SOON)) == "answer"
    await consumer.close()
    await reply.delete()
    with pytest.raises(InvalidDestinationException):
        await api.fill(reply, "too late")


async def test_a_consumer_whose_queue_was_deleted_meanwhile(api: Api, relay: Relay) -> None:
    """A temporary topic, so that nothing makes it anew."""
    connection = await connect(api, relay)
    session = await connection.create_session()
    gone = await session.create_temporary_topic()
    consumer = await session.create_consumer(gone)
    hooks = await begin_outage(api, relay, connection)
    api.broker.call(lambda domain: domain.namespace(api.namespace).delete(str(gone)))
    relay.accept()
    await hooks.failed.wait()
    assert isinstance(hooks.errors[-1], InvalidDestinationException)
    with pytest.raises(IllegalStateException):
        await consumer.receive(SOON)
    await connection.create_session()  # the connection lives


# -- transactions -----------------------------------------------------------------------------------------------------


async def test_txn_09_a_transaction_that_was_open_is_rolled_back(api: Api, relay: Relay) -> None:
    await api.fill("in", "a")
    connection = await connect(api, relay)
    session = await connection.create_session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue("in"))
    producer = await session.create_producer(api.queue("out"))
    assert await api.texts(consumer, 1) == ["a"]
    await producer.send(TextMessage("before"))
    await lose(api, relay, connection)
    await producer.send(TextMessage("after"))
    with pytest.raises(TransactionRolledBackException):
        await session.commit()
    assert await api.left("out") == []
    assert outline(await consumer.receive(SOON))[:2] == ("a", True)
    await producer.send(TextMessage("again"))
    await session.commit()
    assert await api.left("out") == ["again"]
    await connection.close()
    assert await api.left("in") == []


async def test_txn_09_in_a_context_it_is_the_runtime_twin(api: Api, relay: Relay) -> None:
    context = await api.factory(relay.url(api.url), **options()).create_context(session_mode=api.SESSION_TRANSACTED)
    api._closeables.append(context)
    await context.create_producer().send(api.queue(), "x")
    relay.cut()
    with pytest.raises(TransactionRolledBackRuntimeException):
        await context.commit()
    await context.create_producer().send(api.queue(), "y")
    await context.commit()
    assert await api.left() == ["y"]


async def test_txn_04_rollback_over_an_outage_ends_it_without_a_word(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("x"))
    relay.cut()
    await session.rollback()
    await producer.send(TextMessage("y"))
    await session.commit()
    assert await api.left() == ["y"]


async def test_txn_01_a_session_between_two_transactions_is_not_concerned(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("x"))
    await session.commit()
    relay.cut()
    await producer.send(TextMessage("y"))
    try:
        await session.commit()
    except TransactionRolledBackException:  # the loss was noticed only after the send
        await producer.send(TextMessage("y"))
        await session.commit()
    assert await api.left() == ["x", "y"]


# -- closing, opening -------------------------------------------------------------------------------------------------


async def test_d_32_close_during_an_outage_fails_what_is_pending_at_once_in_order(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, reconnect=86_400_000)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    fates = api.completions()
    hooks = await begin_outage(api, relay, connection)
    for number in range(3):
        await producer.send(TextMessage(str(number)), completion_listener=fates)
    await connection.close()
    assert [(text(m), e.get_error_code()) for m, e in fates.outcomes] == [  # type: ignore[union-attr]
        (str(n), "CONNECTION_LOST") for n in range(3)
    ]
    assert "exception" not in hooks.heard
    await connection.close()


async def test_sessions_consumers_and_producers_can_be_made_and_closed_during_an_outage(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    old = await session.create_consumer(api.queue())
    await begin_outage(api, relay, connection)

    async def work() -> Any:
        fresh = await connection.create_session()
        consumer = await fresh.create_consumer(api.queue("fresh"))
        await (await fresh.create_producer(api.queue("fresh"))).send(TextMessage("x"))
        return text(await consumer.receive(SOON))

    working, closing = api.task(work()), api.task(old.close())
    relay.accept()
    assert await working == "x"
    await closing
    await session.close()


async def test_the_first_connect_is_tried_again_too(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    opening = api.task(api.factory(f"sievemq://127.0.0.1:{port}", **options()).create_connection())
    late = EmbeddedBroker(port=port).start()
    api._own.append(late)
    connection = await opening
    await connection.close()


async def test_wrong_credentials_are_not_tried_again(api: Api) -> None:
    api.start_broker(users={"ann": "secret"})
    with Relay(api.broker.port) as relay:
        with pytest.raises(JMSException):
            await api.factory(relay.url(api.url), **options()).create_connection("ann", "wrong")
        assert relay.accepted == 1


async def test_the_next_host_of_the_url_takes_over(api: Api) -> None:
    """Two brokers that know nothing of each other: the second begins empty."""
    first, second = api.broker, EmbeddedBroker().start()
    api._own.append(second)
    with Relay(first.port) as relay:
        url = f"sievemq://127.0.0.1:{relay.port},127.0.0.1:{second.port}/{api.namespace}"
        connection = await api.factory(url, **options()).create_connection()
        api._closeables.append(connection)
        await connection.start()
        session = await connection.create_session()
        temporary = await session.create_temporary_queue()
        consumer = await session.create_consumer(temporary)
        relay.refuse()
        relay.cut()
        await (await session.create_producer(temporary)).send(TextMessage("there"))
        assert text(await consumer.receive(SOON)) == "there"
        assert second.call(lambda domain: domain.namespace(api.namespace).find(str(temporary))) is not None


async def test_a_broker_that_was_started_anew_without_its_memory(api: Api) -> None:
    first = EmbeddedBroker().start()
    port = first.port
    connection = await api.factory(first.url, **options()).create_connection()
    api._closeables.append(connection)
    await connection.start()
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    session = await connection.create_session()
    transacted = await connection.create_session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.topic())
    reply = await session.create_temporary_queue()
    at_reply = await session.create_consumer(reply)
    producer = await session.create_producer()
    for _ in range(3):
        await producer.send(api.queue("lost"), TextMessage("x"))
    await (await transacted.create_producer(api.queue())).send(TextMessage("in a transaction"))
    first.stop()
    await hooks.lost.wait()
    second = EmbeddedBroker(port=port).start()
    api._own.append(second)
    await hooks.restored.wait()
    await producer.send(api.topic(), TextMessage("news"))
    await producer.send(reply, TextMessage("reply"))
    assert text(await consumer.receive(SOON)) == "news"
    assert text(await at_reply.receive(SOON)) == "reply"
    with pytest.raises(TransactionRolledBackException):
        await transacted.commit()
    assert "exception" not in hooks.heard


async def test_ack_15_what_was_received_since_the_loss_comes_again_marked_if_it_is_not_acknowledged(
    api: Api, relay: Relay
) -> None:
    await api.fill("orders", "a", "b")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 1) == ["a"]
    await lose(api, relay, connection)
    assert await api.outlines(consumer, 2) == [("a", True, 2), ("b", False, 1)]
    with pytest.raises(JMSException, match="come again"):
        await session._acknowledge()
    await consumer.close()
    await connection.close()
    other = await (await api.connect()).create_session()
    again = await other.create_consumer(api.queue())
    assert await api.outlines(again, 2) == [("a", True, 3), ("b", True, 2)]


@pytest.fixture
def identity(tmp_path: Path) -> dict[str, str]:
    """Settings of a broker with a certificate of its own."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate]
    subprocess.run(["openssl", "req", "-x509", *new, "-subj", "/CN=localhost"], check=True, capture_output=True)
    return {"tls_cert": certificate, "tls_key": key}


async def test_a_certificate_that_is_not_trusted_is_not_tried_again(api: Api, identity: dict[str, str]) -> None:
    api.start_broker(settings=identity)
    with Relay(api.broker.port) as relay:
        with pytest.raises(JMSException, match="TLS"):
            await connect(api, relay)
        assert relay.accepted == 1


async def test_a_connection_over_tls_is_repaired_too(api: Api, identity: dict[str, str]) -> None:
    api.start_broker(settings=identity)
    with Relay(api.broker.port) as relay:
        connection = await connect(api, relay, tls_verify=False)
        session = await connection.create_session()
        producer = await session.create_producer(api.queue())
        consumer = await session.create_consumer(api.queue())
        for number in range(3):
            relay.cut(orderly=number == 1)
            await producer.send(TextMessage(str(number)))
            assert text(await consumer.receive(SOON)) == str(number)
        await connection.close()
