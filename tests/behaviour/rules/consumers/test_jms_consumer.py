"""JMSConsumer (section 14 of the API map, §8.5-8.6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.both import SOON, Api, outline

from sievemq import (
    BytesMessage,
    IllegalStateRuntimeException,
    MapMessage,
    Message,
    MessageEOFException,
    MessageFormatRuntimeException,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)

ITSELF = [Api.AUTO_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE]


async def test_jco_01_the_methods_of_a_consumer(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(api.queue(), "region = 'EU'")
    assert consumer.get_message_selector() == "region = 'EU'"
    assert consumer.get_message_listener() is None
    await api.fill("orders", "one", "two", region="EU")
    assert outline(await consumer.receive(SOON)) == ("one", False, 1)
    assert outline(await consumer.receive_no_wait()) == ("two", False, 1)
    assert await consumer.receive(1) is None
    listener = api.listener()
    consumer.set_message_listener(listener)
    assert consumer.get_message_listener() is listener
    await api.fill("orders", "three", region="EU")
    await listener.arrived(1)
    with pytest.raises(IllegalStateRuntimeException):
        await consumer.receive()
    await consumer.close()
    for receive in (consumer.receive, consumer.receive_no_wait, lambda: consumer.receive_body(str)):
        with pytest.raises(IllegalStateRuntimeException):
            await receive()


async def test_jco_02_receive_body_waits_and_ends_with_none_when_closed(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(api.queue())
    receiving = api.task(consumer.receive_body(str))
    await api.until_receiving(consumer)
    await api.fill("orders", "one")
    assert await receiving == "one"
    receiving = api.task(consumer.receive_body(str))
    await api.until_receiving(consumer)
    await consumer.close()
    assert await receiving is None


async def test_jco_03_a_timeout(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(api.queue())
    assert await consumer.receive_body(str, 1) is None
    receiving = api.task(consumer.receive_body(str, 0))
    await api.until_receiving(consumer)
    await api.fill("orders", "one")
    assert await receiving == "one"
    for timeout in (-1, 0.5, "5"):
        with pytest.raises(ValueError, match=r"an int of milliseconds|cannot be negative"):
            await consumer.receive_body(str, timeout)


async def test_jco_04_not_waiting(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(api.queue())
    assert await consumer.receive_body_no_wait(str) is None
    await api.fill("orders", "one")
    assert await consumer.receive_body_no_wait(str) == "one"
    assert await consumer.receive_body_no_wait(str) is None


@pytest.mark.parametrize(
    ("message", "kind", "body"),
    [
        (TextMessage("hi"), str, "hi"),
        (TextMessage("hi"), object, "hi"),
        (MapMessage({"a": 1}), dict, {"a": 1}),
        (MapMessage({"a": 1}), object, {"a": 1}),
        (BytesMessage(b"hi"), bytes, b"hi"),
        (BytesMessage(b"hi"), object, b"hi"),
        (ObjectMessage([1, 2]), list, [1, 2]),
        (ObjectMessage([1, 2]), object, [1, 2]),
    ],
)
async def test_jco_05_types(api: Api, message: Message, kind: type[Any], body: object) -> None:
    context = await api.context()
    producer = context.create_producer()
    consumer = await context.create_consumer(api.queue())
    await producer.send(api.queue(), message)
    assert await consumer.receive_body(kind, SOON) == body
    await producer.send(api.queue(), message)
    assert await consumer.receive_body(kind, SOON) == body
    assert await consumer.receive_no_wait() is None


@pytest.mark.parametrize(
    ("given", "kind", "body"),
    [
        ({}, dict, {}),
        (MapMessage(), dict, {}),
        (MapMessage(), object, {}),
        (b"", bytes, b""),
        (BytesMessage(), bytes, b""),
        (BytesMessage(), object, b""),
        ("", str, ""),
        ([], list, []),
        (ObjectMessage({}), dict, {}),
    ],
    ids=repr,
)
async def test_an_empty_body_arrives_as_it_was_sent(api: Api, given: Any, kind: type[Any], body: object) -> None:
    context = await api.context()
    producer, consumer = context.create_producer(), await context.create_consumer(api.queue())
    for _ in range(3):
        await producer.send(api.queue(), given)
    assert await consumer.receive_body(kind, SOON) == body
    assert await consumer.receive_body_no_wait(kind) == body
    assert (await consumer.receive(SOON)).get_body(kind) == body


async def test_an_empty_stream_arrives_empty(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(api.queue())
    await context.create_producer().send(api.queue(), StreamMessage())
    with pytest.raises(MessageEOFException):
        (await consumer.receive(SOON)).read_object()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        pytest.param(StreamMessage(), object, id="JCO-06 stream"),
        pytest.param(Message(), object, id="JCO-06 plain"),
        pytest.param(TextMessage(), str, id="JCO-07 text"),
        pytest.param(MapMessage(), str, id="JCO-07 map"),
        pytest.param(BytesMessage(), str, id="JCO-07 bytes"),
        pytest.param(ObjectMessage(), object, id="JCO-07 object"),
        pytest.param(TextMessage("hi"), bytes, id="JCO-08 text"),
        pytest.param(MapMessage({"a": 1}), str, id="JCO-08 map"),
        pytest.param(BytesMessage(b"hi"), dict, id="JCO-08 bytes"),
        pytest.param(ObjectMessage([1]), str, id="JCO-08 object"),
    ],
)
async def test_jco_06_jco_07_jco_08_no_such_body(api: Api, message: Message, kind: type[Any]) -> None:
    context = await api.context()
    consumer = await context.create_consumer(api.queue())
    await context.create_producer().send(api.queue(), message)
    with pytest.raises(MessageFormatRuntimeException):
        await consumer.receive_body(kind, SOON)
    with pytest.raises(MessageFormatRuntimeException):
        await consumer.receive_body_no_wait(kind)
    again = await consumer.receive(SOON)
    assert type(again) is type(message)


@pytest.mark.parametrize("mode", ITSELF)
@pytest.mark.parametrize("waits", [True, False])
async def test_jco_09_a_message_with_another_body_type_stays_in_the_queue(api: Api, mode: int, waits: bool) -> None:
    """The same message comes next, before later ones, not marked."""
    await api.fill("orders", "one", "two")
    context = await api.context(mode)
    consumer = await context.create_consumer(api.queue())
    with pytest.raises(MessageFormatRuntimeException):
        await (consumer.receive_body(dict, SOON) if waits else consumer.receive_body_no_wait(dict))
    assert await api.outlines(consumer, 2) == [("one", False, 1), ("two", False, 1)]


@pytest.mark.parametrize("mode", ITSELF)
async def test_jco_09_each_further_refusal_of_a_message_is_a_failed_attempt(api: Api, mode: int) -> None:
    """Against the letter of JCO-09: otherwise one message of another type would block its queue for ever."""
    await api.fill("orders", "one", "two")
    context = await api.context(mode)
    consumer = await context.create_consumer(api.queue())
    for _ in range(2):
        with pytest.raises(MessageFormatRuntimeException):
            await consumer.receive_body(dict, SOON)
    assert await api.outlines(consumer, 2) == [("one", True, 2), ("two", False, 1)]


@pytest.mark.parametrize("waits", [True, False])
async def test_jco_09_a_message_that_is_always_refused_becomes_a_dead_letter(api: Api, waits: bool) -> None:
    broker = api.start_broker()
    context = await api.context()
    consumer = await context.create_consumer(api.queue())
    await context.create_producer().send(api.queue(), {"not": "a text"})
    await context.create_producer().send(api.queue(), "two")
    bodies, refusals = [], 0
    while not bodies:
        try:
            body = await (consumer.receive_body(str, SOON) if waits else consumer.receive_body_no_wait(str))
        except MessageFormatRuntimeException:
            refusals += 1
        else:
            bodies += [body] if body is not None else []
    assert (bodies, refusals) == (["two"], 7)  # the first leaves the message as it was, then there are six attempts
    dead = await (await api.session()).create_consumer(api.queue("DLQ.orders"))
    letter = await dead.receive(SOON)
    assert letter.get_body(dict) == {"not": "a text"}
    assert letter.get_string_property("JMS_SieveMQ_DeadLetterReason") == "attempts"
    assert letter.get_int_property("JMS_SieveMQ_DeadLetterAttempts") == 6
    del broker


async def test_jco_09_closing_the_consumer_returns_a_refused_message_marked(api: Api) -> None:
    """A program that ends by the error and is started again comes to the dead letter, too."""
    await api.fill("orders", "one", "two")
    for close_consumer in (True, False):
        context = await api.context()
        consumer = await context.create_consumer(api.queue())
        with pytest.raises(MessageFormatRuntimeException):
            await consumer.receive_body(dict, SOON)
        if close_consumer:
            await consumer.close()
        await context.close()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 2) == [("one", True, 3), ("two", False, 1)]


async def test_jco_10_in_client_mode_it_counts_as_delivered(api: Api) -> None:
    await api.fill("orders", "one", "two")
    context = await api.context(api.CLIENT_ACKNOWLEDGE)
    consumer = await context.create_consumer(api.queue())
    with pytest.raises(MessageFormatRuntimeException):
        await consumer.receive_body(dict, SOON)
    assert await api.outlines(consumer, 1) == [("two", False, 1)]
    await context.recover()
    assert await api.outlines(consumer, 2) == [("one", True, 2), ("two", True, 2)]
    await context.acknowledge()
    await context.close()
    assert await api.left() == []


async def test_jco_11_in_a_transaction_it_counts_as_received(api: Api) -> None:
    await api.fill("orders", "one", "two", "three")
    context = await api.context(api.SESSION_TRANSACTED)
    consumer = await context.create_consumer(api.queue())
    with pytest.raises(MessageFormatRuntimeException):
        await consumer.receive_body(dict, SOON)
    assert await api.outlines(consumer, 1) == [("two", False, 1)]
    await context.rollback()
    assert await api.outlines(consumer, 2) == [("one", True, 2), ("two", True, 2)]
    await context.commit()
    with pytest.raises(MessageFormatRuntimeException):
        await consumer.receive_body(dict, SOON)
    await context.commit()
    await context.close()
    assert await api.left() == []
