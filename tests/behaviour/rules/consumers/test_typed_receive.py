"""Receives, iterations and browsers that ask for one class of messages: one of another class is refused, not lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.both import SOON, Api, text

from sievemq import MapMessage, MessageFormatException, MessageFormatRuntimeException, ObjectMessage, TextMessage

ITSELF = [1, 3]


async def open_consumer(api: Api, front: str, mode: int = 1) -> tuple[Any, Any]:
    """A consumer of the classic API or of a context, and what settles its messages."""
    owner = await (api.session(mode) if front == "classic" else api.context(mode))
    return await owner.create_consumer(api.queue()), owner


async def send(api: Api, *bodies: object) -> None:
    async with await api.factory().create_context() as context:
        for body in bodies:
            await context.create_producer().send(api.queue(), body)


@pytest.fixture(params=["classic", "context"])
def front(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_a_message_of_the_class_is_received(api: Api, front: str) -> None:
    consumer, _ = await open_consumer(api, front)
    await send(api, "one", {"two": 2}, "three", "four")
    assert (await consumer.receive(SOON, TextMessage)).get_text() == "one"
    assert (await consumer.receive_no_wait(MapMessage)).get_int("two") == 2
    assert (await consumer.receive(message_type=TextMessage)).get_text() == "three"
    async for message in consumer.messages(TextMessage):
        assert message.get_text() == "four"
        await consumer.close()
    assert await api.left() == []


async def test_none_when_the_time_is_over(api: Api, front: str) -> None:
    consumer, _ = await open_consumer(api, front)
    assert await consumer.receive(1, TextMessage) is None
    assert await consumer.receive_no_wait(TextMessage) is None


@pytest.mark.parametrize("wrong", [str, "TextMessage", None, (TextMessage,)])
async def test_other_classes_than_messages_are_refused(api: Api, front: str, wrong: object) -> None:
    consumer, _ = await open_consumer(api, front)
    with pytest.raises(TypeError, match="a class of messages such as TextMessage is needed"):
        await consumer.receive(SOON, wrong)
    with pytest.raises(TypeError, match="a class of messages"):
        await consumer.receive_no_wait(wrong)
    with pytest.raises(TypeError, match="a class of messages"):
        consumer.messages(wrong)


@pytest.mark.parametrize("mode", ITSELF)
@pytest.mark.parametrize("waits", [True, False])
async def test_a_message_of_another_class_stays_for_the_next_receive(
    api: Api, front: str, mode: int, waits: bool
) -> None:
    consumer, _ = await open_consumer(api, front, mode)
    await send(api, "one", "two")
    with pytest.raises(MessageFormatException, match="of class TextMessage and not MapMessage") as raised:
        await (consumer.receive(SOON, MapMessage) if waits else consumer.receive_no_wait(MapMessage))
    assert isinstance(raised.value, MessageFormatRuntimeException) is (front == "context")
    assert await api.outlines(consumer, 2) == [("one", False, 1), ("two", False, 1)]


@pytest.mark.parametrize("iterates", [True, False])
async def test_a_message_of_another_class_becomes_a_dead_letter_in_the_end(
    api: Api, front: str, iterates: bool
) -> None:
    api.start_broker()
    consumer, _ = await open_consumer(api, front)
    await send(api, {"not": "a text"}, "two")
    received, refusals = [], 0
    while not received:
        try:
            if iterates:
                async for message in consumer.messages(TextMessage):
                    received.append(message.get_text())
                    break
            else:
                received.append((await consumer.receive(SOON, TextMessage)).get_text())
        except MessageFormatException:
            refusals += 1
    assert (received, refusals) == (["two"], 7)  # the first refusal leaves the message as it was
    letters = await (await api.session()).create_consumer(api.queue("DLQ.orders"))
    letter = await letters.receive(SOON, MapMessage)
    assert letter.get_body(dict) == {"not": "a text"}
    assert letter.get_int_property("JMS_SieveMQ_DeadLetterAttempts") == 6


async def test_in_client_mode_it_counts_as_received(api: Api, front: str) -> None:
    consumer, owner = await open_consumer(api, front, api.CLIENT_ACKNOWLEDGE)
    await send(api, "one", {"two": 2})
    with pytest.raises(MessageFormatException):
        await consumer.receive(SOON, MapMessage)
    assert (await consumer.receive(SOON, MapMessage)).get_int("two") == 2
    await owner.recover()
    assert text(await consumer.receive(SOON, TextMessage)) == "one"


async def test_in_a_transaction_rollback_redelivers_it(api: Api, front: str) -> None:
    consumer, owner = await open_consumer(api, front, api.SESSION_TRANSACTED)
    await send(api, "one", {"two": 2})
    with pytest.raises(MessageFormatException):
        await consumer.receive(SOON, MapMessage)
    assert (await consumer.receive(SOON, MapMessage)).get_int("two") == 2
    await owner.rollback()
    assert text(await consumer.receive(SOON, TextMessage)) == "one"
    assert (await consumer.receive(SOON, MapMessage)).get_jms_redelivered()
    await owner.commit()
    assert await api.left() == []


async def test_an_iteration_ends_when_its_consumer_is_closed(api: Api, front: str) -> None:
    consumer, _ = await open_consumer(api, front)

    async def iterate() -> int:
        return len([message async for message in consumer.messages(TextMessage)])

    iterating = api.task(iterate())
    await api.until_receiving(consumer)
    await consumer.close()
    assert await iterating == 0
    assert [message async for message in consumer.messages(TextMessage)] == []


async def test_a_browser_shows_messages_of_one_class(api: Api, front: str) -> None:
    _, owner = await open_consumer(api, front)
    await owner.close()
    await send(api, "one", [2], "three")
    owner = await (api.session() if front == "classic" else api.context())
    browser = await owner.create_browser(api.queue())
    assert [type(message) async for message in browser.get_enumeration()] == [TextMessage, ObjectMessage, TextMessage]
    scan = browser.get_enumeration(TextMessage)
    with pytest.raises(TypeError):
        browser.get_enumeration(str)
    shown = []
    with pytest.raises(MessageFormatException, match="of class ObjectMessage and not TextMessage"):
        async for message in scan:
            shown.append(message.get_text())
    assert shown == ["one"]
    assert len([message async for message in browser]) == 3
