"""A JMSProducer remembers what it has looked at for the last send; nobody notices but by the time it takes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sievemq import (
    DeliveryMode,
    IllegalStateRuntimeException,
    InvalidDestinationRuntimeException,
    Message,
    MessageFormatRuntimeException,
    Queue,
    TextMessage,
)

from .both import Api


class Foreign:
    """Another provider's queue."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_queue_name(self) -> str:
        return self.name


async def test_jpr_01_to_where_each_send_says(api: Api) -> None:
    async with await api.context() as context:
        producer = context.create_producer()
        foreign = Foreign("three")
        one, two = Queue("one"), Queue("two")
        for number, destination in enumerate((one, two, one, one, Queue("one"), foreign, foreign, two, foreign)):
            await producer.send(destination, str(number))
        foreign.name = "four"
        await producer.send(foreign, "9")
    assert await api.left("one") == ["0", "2", "3", "4"]
    assert await api.left("two") == ["1", "7"]
    assert await api.left("three") == ["5", "6", "8"]
    assert await api.left("four") == ["9"]


@pytest.mark.parametrize("bad", [None, "orders", 7])
async def test_jpr_08_no_destination_first_and_later(api: Api, bad: Any) -> None:
    async with await api.context() as context:
        producer = context.create_producer()
        for _ in range(2):
            with pytest.raises(InvalidDestinationRuntimeException):
                await producer.send(bad, "x")
            await producer.send(api.queue(), "there")
    assert await api.left() == ["there", "there"]


@pytest.mark.parametrize("what", ["text", TextMessage("x"), None, object()])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_clo_17_closed_before_anything_else_is_wrong(api: Api, what: Any, asynchronous: bool) -> None:
    context = await api.context()
    queue, producer = api.queue(), context.create_producer()
    if asynchronous:
        producer.set_async(api.completions())
    await producer.send(queue, "one")
    await context.close()
    for destination in (queue, None, Queue("other")):
        with pytest.raises(IllegalStateRuntimeException):
            await producer.send(destination, what)


async def test_jpr_12_jpr_14_jpr_18_headers_are_set_and_cleared(api: Api) -> None:
    async with await api.context() as context:
        queue, producer = api.queue(), context.create_producer()
        sent: list[Message] = []

        async def send() -> Message:
            sent.append(TextMessage("x"))
            await producer.send(queue, sent[-1])
            return sent[-1]

        assert not dict((await send()).properties)
        producer.set_property("a", 1)
        assert dict((await send()).properties) == {"a": 1}
        producer.clear_properties()
        assert not dict((await send()).properties)
        producer.set_jms_type("t")
        producer.set_property("b", 2)
        producer.clear_properties()
        message = await send()
        assert (message.get_jms_type(), dict(message.properties)) == ("t", {})
        producer.set_jms_type(None)
        assert (await send()).get_jms_type() is None
        producer.set_jms_correlation_id("c")
        assert (await send()).get_jms_correlation_id() == "c"
        with pytest.raises(MessageFormatRuntimeException):
            producer.set_property("bad", object())
        assert not dict((await send()).properties)


async def test_the_repr_shows_the_settings(api: Api) -> None:
    context = await api.context()
    producer = context.create_producer()
    assert re.fullmatch(r"<JMSProducer on \S+>", repr(producer))
    producer.set_priority(9).set_delivery_mode(DeliveryMode.NON_PERSISTENT).set_property("region", "EU")
    assert re.fullmatch(
        r"<JMSProducer on \S+, priority=9, NON_PERSISTENT, properties=\{'region': 'EU'\}>", repr(producer)
    )
    await context.close()
    assert repr(producer).endswith(", closed>")
