"""Common mistakes: the error says what to write instead."""

from __future__ import annotations

import copy
import pickle
import warnings
from decimal import Decimal
from typing import Any

import pytest

import sievemq.aio
from sievemq import ConnectionFactory, InvalidURLException, JMSContext, Json, MessageFormatException, Queue
from sievemq.url import BrokerURL, ClientOptions


async def test_a_forgotten_await_is_named(sievemq_url: str) -> None:
    async with sievemq.aio.ConnectionFactory(sievemq_url).create_context() as context:
        opening: Any = context.create_consumer(Queue("orders"))
        with pytest.raises(AttributeError, match=r"create_consumer\(…\) is not awaited: write \(await create_consumer"):
            opening.receive()
        with pytest.raises(TypeError, match=r"write `async with create_consumer\(…\)`, not `with`"), opening:
            pass
        assert not hasattr(opening, "receive")
        await opening


def test_what_uses_a_connection_cannot_be_pickled(sievemq_url: str) -> None:
    factory = ConnectionFactory(sievemq_url)
    queue = Queue("orders")
    with factory.create_context() as context, factory.create_connection() as connection:
        session = connection.create_session()
        for held in (
            context, connection, session, context.create_producer(), session.create_producer(queue),
            context.create_consumer(queue), session.create_consumer(queue), session.create_browser(queue),
        ):  # fmt: skip
            for act in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=f"a {type(held).__name__} uses .* open a connection there"):
                    act(held)
    again = pickle.loads(pickle.dumps(factory))
    with again.create_context() as other:
        assert isinstance(other, JMSContext)


async def test_what_uses_a_connection_of_asyncio_cannot_be_pickled(sievemq_url: str) -> None:
    async with sievemq.aio.ConnectionFactory(sievemq_url).create_context() as context:
        for held in (context, context.create_producer(), await context.create_consumer(Queue("orders"))):
            with pytest.raises(TypeError, match="can be neither pickled nor copied"):
                pickle.dumps(held)


def test_json_takes_what_default_converts() -> None:
    assert Json({"price": Decimal("9.90")}, default=str).text == '{"price":"9.90"}'
    with pytest.raises(MessageFormatException, match=r"Decimal is not JSON serializable; Json\(value, default=…\)"):
        Json(Decimal(1))
    with pytest.raises(MessageFormatException) as caught:
        Json(float("nan"))
    assert "default" not in str(caught.value)


@pytest.mark.parametrize("option", ["tls_ca", "tls_cert", "tls_key", "tls_server_name"])
def test_options_of_tls_need_a_url_of_tls(option: str) -> None:
    """A forgotten `s` would send the password in clear."""
    for make in (
        lambda: ConnectionFactory(f"sievemq://localhost?{option}=x"),
        lambda: ConnectionFactory("sievemq://localhost", **{option: "x"}),
        lambda: BrokerURL((("localhost", 7672),), options=ClientOptions(**{option: "x"})),
    ):
        with pytest.raises(InvalidURLException, match=f"{option} is an option of sievemqs://"):
            make()
    ConnectionFactory(f"sievemqs://localhost?{option}=x")


def test_verifying_is_an_option_of_tls() -> None:
    with pytest.raises(InvalidURLException, match="tls_verify is an option of sievemqs://"):
        ConnectionFactory("sievemq://localhost?tls_verify=false")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConnectionFactory("sievemqs://localhost?tls_verify=false")
