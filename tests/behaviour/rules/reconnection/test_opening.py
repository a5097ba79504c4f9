"""What is opened and closed during an outage, and the first connect (D-32)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.client.both import SOON, Api, text
from tests.client.relay import Relay, options

from sievemq import JMSException, TextMessage
from sievemq_broker import EmbeddedBroker

from .outage import begin_outage, connect


async def test_d_32_close_during_an_outage_fails_pending_sends_in_order(api: Api, relay: Relay) -> None:
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


async def test_the_first_connect_is_retried(api: Api, port: int) -> None:
    opening = api.task(api.factory(f"sievemq://127.0.0.1:{port}", **options()).create_connection())
    late = EmbeddedBroker(port=port).start()
    api._own.append(late)
    connection = await opening
    await connection.close()


async def test_wrong_credentials_are_not_retried(api: Api) -> None:
    api.start_broker(users={"ann": "secret"})
    with Relay(api.broker.port) as relay:
        with pytest.raises(JMSException):
            await api.factory(relay.url(api.url), **options()).create_connection("ann", "wrong")
        assert relay.accepted == 1


@pytest.fixture
def identity(certificates: Path) -> dict[str, str]:
    """Settings of a broker whose certificate no public authority has signed."""
    return {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}


async def test_an_untrusted_certificate_is_not_retried(api: Api, identity: dict[str, str]) -> None:
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
