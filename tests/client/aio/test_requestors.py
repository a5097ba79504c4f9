"""The requestors of the asyncio API: what they take, what they leave behind."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import IllegalStateException, InvalidDestinationException, JMSException, Message, Queue, TextMessage, Topic
from sievemq.aio import Connection, JMSContext, QueueRequestor, Session, TopicRequestor

from .conftest import Connect

SOON = 60_000


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_req_02_req_03_a_requestor_gets_replies_and_closes_its_session(
    connection: Connection, connect: Connect, kind: str
) -> None:
    destination: Any = Queue("service") if kind == "queue" else Topic("service")
    server = await (await connect()).create_session()
    replies = await server.create_producer()

    async def serve(request: Message) -> None:
        for number in range(2):
            await replies.send(request.get_jms_reply_to(), TextMessage(f"{request.get_body(str)}!{number}"))

    consumer = await server.create_consumer(destination)
    consumer.set_message_listener(serve)
    session = await connection.create_session()
    made: Any = QueueRequestor if kind == "queue" else TopicRequestor
    async with made(session, destination) as requestor:
        for body in "ab":
            reply = await requestor.request(TextMessage(body), SOON)
            assert reply is not None
            assert reply.get_body(str) == f"{body}!0"
            second = await requestor._consumer.receive(SOON)
            assert second.get_body(str) == f"{body}!1"
    with pytest.raises(IllegalStateException):
        session.create_message()
    with pytest.raises(JMSException):  # REQ-05
        await requestor.request(TextMessage("late"))


async def test_a_request_without_a_reply_ends_in_time(session: Session) -> None:
    async with QueueRequestor(session, Queue("nowhere")) as requestor:
        assert await requestor.request(TextMessage("x"), 1) is None
        with pytest.raises(ValueError, match="negative"):
            await requestor.request(TextMessage("x"), -1)


async def test_a_requestor_that_was_never_used_closes_its_session(session: Session) -> None:
    await QueueRequestor(session, Queue("q")).close()
    with pytest.raises(IllegalStateException):
        session.create_message()


async def test_req_01_invalid_arguments_of_a_requestor(connection: Connection, session: Session) -> None:
    with pytest.raises(InvalidDestinationException, match="needs a queue"):
        QueueRequestor(session, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationException, match="needs a topic"):
        TopicRequestor(session, Queue("q"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"JMSContext has the method request\(\)"):
        QueueRequestor(object(), Queue("q"))  # type: ignore[arg-type]
    for mode in (JMSContext.SESSION_TRANSACTED, JMSContext.CLIENT_ACKNOWLEDGE):
        other = await connection.create_session(mode)
        with pytest.raises(JMSException, match="AUTO_ACKNOWLEDGE or DUPS_OK_ACKNOWLEDGE"):
            QueueRequestor(other, Queue("q"))
    await session.close()
    with pytest.raises(JMSException):
        QueueRequestor(session, Queue("q"))
