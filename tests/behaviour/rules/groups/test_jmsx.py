"""JMSX properties (section 22 of the API map): what is provided, and message groups from end to end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from tests.client.both import SOON, Api, outline, text

from sievemq import Message, TextMessage

#: Optional ones that SieveMQ does not set. They belong to the provider: a value that an application sets is dropped.
NOT_PROVIDED = ("JMSXUserID", "JMSXAppID", "JMSXProducerTXID", "JMSXConsumerTXID", "JMSXRcvTimestamp", "JMSXState")


@pytest.mark.parametrize("mode", [0, 1])
async def test_jsx_04_jsx_05_jsx_06_jsx_07_jsx_08_jsx_09_not_provided_means_not_listed_and_not_set(
    api: Api, mode: int
) -> None:
    connection = await api.connect()
    listed = set(connection.get_meta_data().get_jmsx_property_names())
    assert listed.isdisjoint(NOT_PROVIDED)
    session = await connection.create_session(mode)
    sent = TextMessage("x")
    await (await session.create_producer(api.queue())).send(sent)
    assert not any(sent.property_exists(name) for name in NOT_PROVIDED)
    if mode == 0:
        await session.commit()
    received = await (await session.create_consumer(api.queue())).receive(SOON)
    assert not any(received.property_exists(name) for name in NOT_PROVIDED)


async def test_jsx_04_jsx_05_jsx_06_properties_set_on_send_cannot_be_forged(api: Api) -> None:
    session = await api.session()
    forged = TextMessage("x")
    for name in ("JMSXUserID", "JMSXAppID", "JMSXProducerTXID"):
        forged.set_string_property(name, "admin")
    forged.set_string_property("JMSXGroupID", "g")
    await (await session.create_producer(api.queue())).send(forged)
    received = await (await session.create_consumer(api.queue())).receive(SOON)
    assert dict(received.properties) == {"JMSXGroupID": "g", "JMSXDeliveryCount": 1}


async def test_jsx_11_properties_set_on_receive_cannot_be_forged(api: Api) -> None:
    session = await api.session()
    forged = TextMessage("x")
    for name, value in (("JMSXDeliveryCount", 99), ("JMSXRcvTimestamp", 1), ("JMSXConsumerTXID", "tx")):
        with suppress(ValueError):  # refused at once: as good
            forged.set_object_property(name, value)
    await (await session.create_producer(api.queue())).send(forged)
    received = await (await session.create_consumer(api.queue())).receive(SOON)
    assert received.get_int_property("JMSXDeliveryCount") == 1
    assert not received.property_exists("JMSXRcvTimestamp")
    assert not received.property_exists("JMSXConsumerTXID")


async def send_grouped(api: Api, *names: str) -> None:
    """Each name is group and number: a1, a2, b1 …; without a group if there is no letter."""
    session = await api.session()
    producer = await session.create_producer(api.queue())
    for name in names:
        message = TextMessage(name)
        if name[0].isalpha():
            message.set_string_property("JMSXGroupID", name[0])
            message.set_int_property("JMSXGroupSeq", int(name[1:]))
        await producer.send(message)
    await session.close()


async def take(consumer: Any) -> list[Message]:
    """Everything that a consumer can get now."""
    messages = []
    while (message := await consumer.receive_no_wait()) is not None:
        messages.append(message)
    return messages


async def test_jsx_02_jsx_03_one_consumer_receives_a_group_in_order(api: Api) -> None:
    sessions = [await api.session(api.CLIENT_ACKNOWLEDGE) for _ in range(2)]
    consumers = [await session.create_consumer(api.queue()) for session in sessions]
    await send_grouped(api, *(f"{group}{number}" for number in range(1, 6) for group in "abcd"))
    received = [[text(message) or "" for message in await take(consumer)] for consumer in consumers]
    groups = [{name[0] for name in names} for names in received]
    assert groups[0] | groups[1] == set("abcd")
    assert not groups[0] & groups[1], "a group was split"
    for names in received:
        for group in {name[0] for name in names}:
            assert [name for name in names if name[0] == group] == [f"{group}{number}" for number in range(1, 6)]


async def test_jsx_02_a_group_may_be_a_number(api: Api) -> None:
    sessions = [await api.session(api.CLIENT_ACKNOWLEDGE) for _ in range(2)]
    consumers = [await session.create_consumer(api.queue()) for session in sessions]
    producer = await (await api.session()).create_producer(api.queue())
    for number in range(12):
        message = TextMessage(str(number % 3))
        message.set_object_property("JMSXGroupID", number % 3)  # 0 is a group as well
        await producer.send(message)
    received = [[text(message) or "" for message in await take(consumer)] for consumer in consumers]
    assert sorted(received[0] + received[1]) == sorted("012" * 4)
    assert not set(received[0]) & set(received[1]), "a group was split"


async def test_jsx_02_a_group_moves_when_its_consumer_leaves(api: Api) -> None:
    """What its consumer had and did not acknowledge comes first, marked; nothing is lost or overtaken."""
    first = await api.session(api.CLIENT_ACKNOWLEDGE)
    owner = await first.create_consumer(api.queue())
    await send_grouped(api, "a1", "a2", "a3")
    assert text(await owner.receive(SOON)) == "a1"
    other = await (await api.session()).create_consumer(api.queue())
    await send_grouped(api, "a4")
    assert await other.receive_no_wait() is None  # the group is taken
    await first.close()
    assert [outline(message) for message in await take(other)] == [
        ("a1", True, 2),
        ("a2", False, 1),
        ("a3", False, 1),
        ("a4", False, 1),
    ]


async def test_jsx_02_messages_without_a_group_overtake_an_owned_group(api: Api) -> None:
    first = await api.session(api.CLIENT_ACKNOWLEDGE)
    owner = await first.create_consumer(api.queue())
    await send_grouped(api, "a1")
    assert text(await owner.receive(SOON)) == "a1"
    other = await (await api.session()).create_consumer(api.queue())
    await send_grouped(api, "a2", "1", "b1")
    received = {text(message) for message in await take(other)}
    assert "a2" not in received
    assert received <= {"1", "b1"}
    assert received, "the messages of nobody's group were held up behind a taken one"
