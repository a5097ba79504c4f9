"""A lost connection is repaired before the exception listener is called (EXL-04, D-32)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.client.both import Api
from tests.client.relay import Relay

from sievemq import JMSException, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import ErrorCode

from .outage import Hooks, connect, lose


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


async def test_exl_04_a_plain_listener_is_not_called(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    heard: list[JMSException] = []
    connection.set_exception_listener(heard.append)
    relay.cut()
    await connection.create_session()
    assert heard == []


async def test_exl_04_d_32_the_exception_listener_is_called_once_after_the_deadline(api: Api, relay: Relay) -> None:
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
    with pytest.raises(JMSException, match=r"not repaired within.*Create a new connection.*reconnect=forever"):
        await connection.create_session()


async def test_d_32_a_service_tries_for_ever(api: Api, relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    """At the start, too."""
    relay.refuse()
    connecting = api.task(connect(api, relay, reconnect="forever"))
    with caplog.at_level(logging.WARNING, "sievemq"):
        while "trying again for ever" not in caplog.text:  # noqa: ASYNC110 - a thread may make it so
            await asyncio.sleep(0)
    relay.accept()
    connection = await connecting
    with caplog.at_level(logging.WARNING, "sievemq"):
        await lose(api, relay, connection)
    assert "trying to reconnect for ever" in caplog.text
    await connection.create_session()


async def test_exl_04_not_repaired_with_reconnect_off(api: Api, relay: Relay) -> None:
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
        for connection in tuple(server.shard.services.connections.values()):
            connection.close(code, "the test wants it", server.clock.now())

    broker.call(close)


async def test_exl_04_a_silent_network_ends_the_connection(api: Api, relay: Relay) -> None:
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
