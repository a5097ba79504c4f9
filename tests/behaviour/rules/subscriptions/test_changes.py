"""Durable and shared subscriptions that are reopened with other arguments; client ids (SUB-13, SUB-15)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.both import SOON, Api, text

from sievemq import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidSelectorException,
    JMSException,
    TextMessage,
    Topic,
)


async def publish(api: Api, *texts: str, topic: str = "prices", **properties: object) -> None:
    await api.fill(Topic(topic), *texts, **properties)


@pytest.mark.parametrize(
    "change",
    [("other", None, False), ("prices", "n = 1", False), ("prices", None, True)],
    ids=["topic", "selector", "no_local"],
)
async def test_sub_13_a_changed_durable_subscription_begins_empty(
    api: Api, change: tuple[str, str | None, bool]
) -> None:
    """As unsubscribe and create: what was collected is gone, also when it is changed back."""
    session = await (await api.connect(client_id="me")).create_session()
    await (await session.create_durable_consumer(api.topic(), "d")).close()
    await publish(api, "collected", n=1)
    topic, selector, no_local = change
    changed = await session.create_durable_consumer(Topic(topic), "d", selector, no_local)
    assert await changed.receive_no_wait() is None
    await publish(api, "new", topic=topic, n=1)
    assert text(await changed.receive(SOON)) == "new"
    await changed.close()
    await publish(api, "collected again", topic=topic, n=1)
    back = await session.create_durable_consumer(api.topic(), "d")
    assert await back.receive_no_wait() is None


@pytest.mark.parametrize("same", [None, ""])
async def test_sub_12_sub_19_the_same_arguments_continue_the_subscription(api: Api, same: str | None) -> None:
    session = await (await api.connect(client_id="me")).create_session()
    await (await session.create_durable_consumer(api.topic(), "d", None)).close()
    await publish(api, "collected")
    assert text(await (await session.create_durable_consumer(api.topic(), "d", same)).receive(SOON)) == "collected"


async def test_sel_02_a_refused_change_keeps_the_subscription(api: Api) -> None:
    """A subscription is not replaced by one whose selector is wrong."""
    session = await (await api.connect(client_id="me")).create_session()
    await (await session.create_durable_consumer(api.topic(), "d")).close()
    await publish(api, "collected")
    with pytest.raises(InvalidSelectorException):
        await session.create_durable_consumer(api.topic(), "d", "n =")
    assert text(await (await session.create_durable_consumer(api.topic(), "d")).receive(SOON)) == "collected"


@pytest.mark.parametrize("durable", [False, True])
async def test_sub_14_sub_15_a_shared_subscription_changes_only_while_unused(api: Api, durable: bool) -> None:
    session, other = await api.session(), await api.session()
    name = "create_shared_durable_consumer" if durable else "create_shared_consumer"
    active = await getattr(session, name)(api.topic(), "s")
    for topic, selector in ((Topic("other"), None), (api.topic(), "n = 1")):
        with pytest.raises(JMSException):
            await getattr(other, name)(topic, "s", selector)
    await publish(api, "kept")
    assert text(await active.receive(SOON)) == "kept"
    await publish(api, "dropped", n=1)
    await active.close()
    changed = await getattr(other, name)(api.topic(), "s", "n = 1")
    assert await changed.receive_no_wait() is None
    await publish(api, "no", n=0)
    await publish(api, "yes", n=1)
    assert text(await changed.receive(SOON)) == "yes"


async def test_sub_16_sub_17_sub_18_names_of_different_kinds_and_clients(api: Api) -> None:
    session = await (await api.connect(client_id="me")).create_session()
    anonymous = await api.session()
    unshared = await session.create_durable_consumer(api.topic(), "s")
    with pytest.raises(JMSException):
        await session.create_shared_durable_consumer(api.topic(), "s")
    await unshared.close()
    with pytest.raises(JMSException):  # inactive or not
        await session.create_shared_durable_consumer(api.topic(), "s")
    volatile = await session.create_shared_consumer(api.topic(), "s")
    without_id = await anonymous.create_shared_durable_consumer(api.topic(), "s")
    await publish(api, "copy")
    again = await session.create_durable_consumer(api.topic(), "s")
    for consumer in (volatile, without_id, again):
        assert text(await consumer.receive(SOON)) == "copy"
        assert await consumer.receive_no_wait() is None


async def test_sub_21_no_local_of_a_durable_subscription_outlives_the_connection(api: Api) -> None:
    connection = await api.connect(client_id="me")
    session = await connection.create_session()
    await (await session.create_durable_consumer(api.topic(), "d", None, True)).close()
    await (await session.create_producer(api.topic())).send(TextMessage("own"))
    await connection.close()
    session = await (await api.connect(client_id="me")).create_session()
    await (await session.create_producer(api.topic())).send(TextMessage("own again"))
    await publish(api, "foreign")
    consumer = await session.create_durable_consumer(api.topic(), "d", None, True)
    assert text(await consumer.receive(SOON)) == "foreign"
    assert await consumer.receive_no_wait() is None


# -- client ids -------------------------------------------------------------------------------------------------------


async def test_con_05_con_10_con_11_sub_31_one_live_connection_per_client_id(api: Api) -> None:
    first, second = await api.connect(start=False), await api.connect(start=False)
    await first.set_client_id("me")
    with pytest.raises(InvalidClientIDException):
        await second.set_client_id("me")
    assert (first.get_client_id(), second.get_client_id()) == ("me", None)
    await second.set_client_id("you")  # a failed try is no first action
    third = await api.connect(start=False)
    await first.close()
    await third.set_client_id("me")  # free again
    assert third.get_client_id() == "me"


@pytest.mark.parametrize("wrong", [None, ""])
async def test_con_05_no_client_id(api: Api, wrong: str | None) -> None:
    connection = await api.connect(start=False)
    with pytest.raises(InvalidClientIDException):
        await connection.set_client_id(wrong)
    assert connection.get_client_id() is None


async def test_con_06_con_07_fac_07_an_id_that_is_there_stays(api: Api) -> None:
    administered, own = await api.connect(start=False, client_id="me"), await api.connect(start=False)
    await own.set_client_id("own")
    for connection, kept in ((administered, "me"), (own, "own")):
        with pytest.raises(IllegalStateException):
            await connection.set_client_id("other")
        assert connection.get_client_id() == kept


@pytest.mark.parametrize("action", ["create_session", "start", "stop", "set_exception_listener"])
async def test_con_08_con_09_too_late_for_a_client_id(api: Api, action: str) -> None:
    connection = await api.connect(start=False)
    connection.get_meta_data()
    connection.get_client_id()
    if action == "set_exception_listener":
        connection.set_exception_listener(lambda error: None)
    else:
        await getattr(connection, action)()
    with pytest.raises(IllegalStateException):
        await connection.set_client_id("me")


async def test_sub_32_an_administered_id_is_taken_at_creation(api: Api) -> None:
    await api.connect(client_id="me")
    with pytest.raises(InvalidClientIDException):
        await api.connect(client_id="me")


async def test_con_11_a_client_id_is_free_when_its_connection_is_lost(api: Api) -> None:
    broker = api.start_broker()
    lost = await api.connect(client_id="me", reconnect=0)
    lost.set_exception_listener(lambda error: None)
    broker.drop_connections()
    broker.call(lambda domain: None)
    again: Any = await api.connect(client_id="me")
    assert again.get_client_id() == "me"
