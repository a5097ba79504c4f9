"""MessageProducer, JMSProducer, asynchronous sends, requestors (sections 10, 11, 12, 18 of the API map)."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.client.both import SOON, Api, text

import sievemq
from sievemq import (
    BytesMessage,
    Double,
    Float,
    IllegalStateException,
    IllegalStateRuntimeException,
    InvalidDestinationException,
    JMSException,
    JMSRuntimeException,
    MapMessage,
    Message,
    MessageFormatRuntimeException,
    NumberFormatError,
    ObjectMessage,
    TextMessage,
)
from sievemq.aio import QueueRequestor, TopicRequestor

# -- MessageProducer --------------------------------------------------------------------------------------------------


async def test_pro_04_priority(api: Api) -> None:
    producer = await (await api.session()).create_producer(api.queue())
    assert producer.get_priority() == 4
    for priority in (0, 9):
        producer.set_priority(priority)
        assert producer.get_priority() == priority
    for wrong in (-1, 10):
        with pytest.raises(JMSException):
            producer.set_priority(wrong)
    assert producer.get_priority() == 9
    await producer.send(TextMessage("high"))
    message = await (await (await api.session()).create_consumer(api.queue())).receive(SOON)
    assert message.get_jms_priority() == 9


async def test_pro_05_time_to_live(api: Api) -> None:
    producer = await (await api.session()).create_producer(api.queue())
    assert producer.get_time_to_live() == 0
    with pytest.raises(JMSException):
        producer.set_time_to_live(-1)
    producer.set_time_to_live(60_000)
    assert producer.get_time_to_live() == 60_000
    message = TextMessage("x")
    await producer.send(message)
    assert message.get_jms_expiration() == message.get_jms_timestamp() + 60_000


async def test_pro_13_all_forms_with_a_completion_listener(api: Api) -> None:
    session = await api.session()
    completions = api.completions()
    identified, unidentified = await session.create_producer(api.queue()), await session.create_producer()
    messages = [TextMessage(str(number)) for number in range(4)]
    options: dict[str, Any] = {"delivery_mode": 1, "priority": 7, "time_to_live": 60_000}
    await identified.send(messages[0], completion_listener=completions)
    await identified.send(messages[1], **options, completion_listener=completions)
    await unidentified.send(api.queue(), messages[2], completion_listener=completions)
    await unidentified.send(messages[3], destination=api.queue(), **options, completion_listener=completions)
    assert await completions.arrived(4) == [(message, None) for message in messages]
    assert [message.get_jms_priority() for message in messages] == [4, 7, 4, 7]
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 4) == ["1", "3", "0", "2"]


async def test_pro_20_no_delay_in_the_call(api: Api) -> None:
    producer = await (await api.session()).create_producer(api.queue())
    with pytest.raises(TypeError):
        await producer.send(TextMessage("x"), delivery_delay=1_000)
    assert await api.left() == []
    producer.set_delivery_delay(1_000)
    message = TextMessage("x")
    await producer.send(message)
    assert message.get_jms_delivery_time() == message.get_jms_timestamp() + 1_000


async def test_pro_25_one_session_keeps_its_order_over_its_producers(api: Api) -> None:
    session = await api.session()
    producers = [await session.create_producer(api.queue()) for _ in range(3)] + [await session.create_producer()]
    for number in range(40):
        producer = producers[number % 4]
        mode = 1 + number % 2  # also mixed: those that wait for the broker and those that do not
        where = () if producer.get_destination() else (api.queue(),)
        await producer.send(*where, TextMessage(str(number)), delivery_mode=mode)
    assert await api.texts(await session.create_consumer(api.queue()), 40) == [str(number) for number in range(40)]


async def test_cpl_13_changes_after_send_do_not_reach_the_consumer(api: Api) -> None:
    """The application must not touch the message before its callback; one that does spoils nothing."""
    session = await api.session()
    producer = await session.create_producer(api.queue())
    completions = api.completions()
    for number in range(20):
        message = TextMessage(str(number))
        message.set_int_property("n", number)
        await producer.send(message, completion_listener=completions)
        message.set_text("spoiled")
        message.set_int_property("n", -1)
    await completions.arrived(20)
    consumer = await session.create_consumer(api.queue())
    for number in range(20):
        received = await consumer.receive(SOON)
        assert (text(received), received.get_int_property("n")) == (str(number), number)


# -- JMSProducer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        pytest.param("text", TextMessage, "text", id="JPR-02"),
        pytest.param("", TextMessage, "", id="JPR-02 empty"),
        pytest.param({"a": 1, "b": "x"}, MapMessage, {"a": 1, "b": "x"}, id="JPR-03"),
        pytest.param({}, MapMessage, {}, id="JPR-03 empty"),
        pytest.param(b"\x00\xff", BytesMessage, b"\x00\xff", id="JPR-04"),
        pytest.param(bytearray(b"ab"), BytesMessage, b"ab", id="JPR-04 bytearray"),
        pytest.param([1, None, "x"], ObjectMessage, [1, None, "x"], id="JPR-05"),
        pytest.param(7, ObjectMessage, 7, id="JPR-05 int"),
        pytest.param({1: 2}, ObjectMessage, {1: 2}, id="JPR-07"),
    ],
)
async def test_jpr_02_jpr_03_jpr_04_jpr_05_bodies(api: Api, body: Any, kind: type[Message], expected: Any) -> None:
    context = await api.context()
    producer = context.create_producer()
    assert await producer.send(api.queue(), body) is producer
    message = await (await context.create_consumer(api.queue())).receive(SOON)
    assert type(message) is kind
    if isinstance(message, MapMessage):
        assert {name: message.get_object(name) for name in message.get_map_names()} == expected
    elif isinstance(message, ObjectMessage):
        assert message.get_object() == expected
    else:
        assert message.get_body(type(expected)) == expected


@pytest.mark.parametrize("body", [None, {"a": object()}, object(), [object()]], ids=["JPR-06", "map", "object", "list"])
async def test_jpr_03_jpr_05_jpr_06_other_bodies_are_refused(api: Api, body: object) -> None:
    context = await api.context()
    with pytest.raises(MessageFormatRuntimeException):
        await context.create_producer().send(api.queue(), body)
    assert await api.left() == []


async def test_jpr_15_jpr_16_reading_properties(api: Api) -> None:
    """The conversions are a message's, with the runtime class."""
    producer = (await api.context()).create_producer()
    producer.set_property("i", 300).set_property("s", "12").set_property("d", Double(1.5)).set_property("f", Float(0.5))
    producer.set_boolean_property("b", True)
    assert producer.property_exists("i")
    assert not producer.property_exists("I")
    assert (producer.get_int_property("i"), producer.get_long_property("i"), producer.get_string_property("i")) == (
        300, 300, "300",
    )  # fmt: skip
    assert (producer.get_byte_property("s"), producer.get_short_property("s")) == (12, 12)
    assert (producer.get_double_property("f"), producer.get_float_property("f")) == (0.5, 0.5)
    assert (producer.get_boolean_property("b"), producer.get_string_property("b")) == (True, "true")
    for get, name in (
        (producer.get_short_property, "i"),
        (producer.get_float_property, "d"),
        (producer.get_int_property, "b"),
        (producer.get_boolean_property, "i"),
    ):
        with pytest.raises(MessageFormatRuntimeException):
            get(name)
    # What is not set reads as None does (section 21).
    assert producer.get_string_property("absent") is None
    assert producer.get_object_property("absent") is None
    assert producer.get_boolean_property("absent") is False
    with pytest.raises(NumberFormatError):
        producer.get_int_property("absent")


async def test_jpr_20_send_on_a_closed_context(api: Api) -> None:
    context = await api.context()
    producer = context.create_producer()
    await context.close()
    with pytest.raises(IllegalStateRuntimeException):
        await producer.send(api.queue(), "x")
    assert await api.left() == []


async def test_jpr_09_bad_values_are_refused_by_the_setter(api: Api) -> None:
    producer = (await api.context()).create_producer()
    for setter, wrong in (
        (producer.set_delivery_mode, -1),
        (producer.set_priority, -1),
        (producer.set_priority, 10),
        (producer.set_time_to_live, -1),
        (producer.set_delivery_delay, -1),
    ):
        with pytest.raises(JMSRuntimeException):
            setter(wrong)
    assert (producer.get_priority(), producer.get_delivery_mode(), producer.get_time_to_live()) == (4, 2, 0)


# -- requestors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_req_02_req_03_req_05_req_06_a_requestor_takes_the_first_reply_and_closes_its_session(
    api: Api, kind: str
) -> None:
    server = await api.session()
    replies = await server.create_producer()
    service = api.queue("service") if kind == "queue" else api.topic("service")

    async def reply(message: Message) -> None:
        for number in range(2):
            await replies.send(message.get_jms_reply_to(), TextMessage(f"{text(message)}!{number}"))

    (await server.create_consumer(service)).set_message_listener(reply)
    session = await api.session()
    requestor = await api.requestor(QueueRequestor if kind == "queue" else TopicRequestor, session, service)
    assert text(await requestor.request(TextMessage("hello"))) == "hello!0"
    await requestor.close()
    with pytest.raises(IllegalStateException):
        session.create_message()
    with pytest.raises(JMSException):
        await requestor.request(TextMessage("late"))
    await requestor.close()


async def test_req_03_an_unused_requestor_closes_its_session(api: Api) -> None:
    session = await api.session()
    await (await api.requestor(QueueRequestor, session, api.queue())).close()
    with pytest.raises(IllegalStateException):
        session.create_message()


async def test_req_01_invalid_arguments_of_a_requestor(api: Api) -> None:
    session = await api.session()
    for kind, destination, needed in ((QueueRequestor, None, "a queue"), (TopicRequestor, api.queue(), "a topic")):
        with pytest.raises(InvalidDestinationException, match=f"needs {needed}"):
            await api.requestor(kind, session, destination)
    with pytest.raises(TypeError, match=r"JMSContext has the method request\(\)"):
        await api.requestor(QueueRequestor, object(), api.queue())
    for mode in (api.SESSION_TRANSACTED, api.CLIENT_ACKNOWLEDGE):
        with pytest.raises(JMSException, match="AUTO_ACKNOWLEDGE or DUPS_OK_ACKNOWLEDGE"):
            await api.requestor(QueueRequestor, await api.session(mode), api.queue())
    with pytest.raises(ValueError, match="negative"):
        await (await api.requestor(QueueRequestor, await api.session(), api.queue())).request(TextMessage("x"), -1)
    await session.close()
    with pytest.raises(JMSException):
        await api.requestor(QueueRequestor, session, api.queue())


async def test_req_04_a_late_reply_does_not_answer_the_next_request(api: Api) -> None:
    server = await api.session()
    replies = await server.create_producer()
    requests = await server.create_consumer(api.queue("service"))
    requestor = await api.requestor(QueueRequestor, await api.session(), api.queue("service"))
    assert await requestor.request(TextMessage("first"), 1) is None
    first = await requests.receive(SOON)
    await replies.send(first.get_jms_reply_to(), TextMessage("late"))

    async def reply(message: Message) -> None:
        await replies.send(message.get_jms_reply_to(), TextMessage(f"{text(message)}!"))

    requests.set_message_listener(reply)
    assert text(await requestor.request(TextMessage("second"), SOON)) == "second!"
    assert text(await requestor.request(TextMessage("third"))) == "third!"
    await requestor.close()


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_req_04_a_late_reply_while_the_next_request_waits(api: Api, kind: str) -> None:
    service = api.queue("service") if kind == "queue" else api.topic("service")
    server = await api.session()
    replies = await server.create_producer()
    requests = await server.create_consumer(service)
    requestor = await api.requestor(QueueRequestor if kind == "queue" else TopicRequestor, await api.session(), service)
    assert await requestor.request(TextMessage("first"), 1) is None
    first = await requests.receive(SOON)

    async def reply(message: Message) -> None:
        for request in (first, message):
            answer = TextMessage(f"{text(request)}!")
            answer.set_jms_correlation_id(request.get_jms_message_id())
            await replies.send(message.get_jms_reply_to(), answer)

    requests.set_message_listener(reply)
    assert text(await requestor.request(TextMessage("second"), SOON)) == "second!"
    assert text(await requestor.request(TextMessage("third"))) == "third!"
    await requestor.close()


def test_req_06_the_constructors_take_any_session() -> None:
    for kind in (sievemq.QueueRequestor, sievemq.TopicRequestor, QueueRequestor, TopicRequestor):
        assert next(iter(inspect.signature(kind).parameters.values())).annotation == "Session"
