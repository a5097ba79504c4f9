"""JMSContext.request: a request and its reply, over both APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import sievemq
import sievemq.aio
from sievemq import IllegalStateRuntimeException, Message, Queue, TextMessage

from .both import SOON, Api, text


async def replier(api: Api, reply: Callable[[Message], list[Message]]) -> Any:
    """Replies to what arrives at the queue `orders`."""
    context = await api.context()

    async def act(request: Message) -> None:
        to = request.get_jms_reply_to()
        assert to is not None
        for message in reply(request):
            await context.create_producer().send(to, message)

    listener = api.listener(act)
    (await context.create_consumer(api.queue())).set_message_listener(listener)
    return listener


def correlated(request: Message) -> list[Message]:
    """As the specification has it: a reply names the message id of its request."""
    reply = TextMessage(f"{request.get_body(str)}!")
    reply.set_jms_correlation_id(request.get_jms_message_id())
    return [reply]


@pytest.mark.parametrize("mode", [Api.AUTO_ACKNOWLEDGE, Api.CLIENT_ACKNOWLEDGE, Api.SESSION_TRANSACTED])
async def test_a_request_returns_its_reply(api: Api, mode: int) -> None:
    await replier(api, correlated)
    context = await api.context(mode)
    for body in ("one", "two"):
        assert text(await context.request(api.queue(), body, timedelta(milliseconds=SOON))) == f"{body}!"
    assert text(await context.request(api.queue(), TextMessage("three"), timeout=SOON)) == "three!"


async def test_replies_that_name_another_request_are_dropped(api: Api) -> None:
    def twice(request: Message) -> list[Message]:
        return [*correlated(request), *correlated(request)]

    await replier(api, twice)
    context = await api.context()
    for body in ("one", "two", "three"):
        assert text(await context.request(api.queue(), body, SOON)) == f"{body}!"
    assert text(await context.request(api.queue(), "without a timeout")) == "without a timeout!"


async def test_a_reply_may_copy_the_correlation_id_or_have_none(api: Api) -> None:
    def copied(request: Message) -> list[Message]:
        reply = TextMessage("yes")
        reply.set_jms_correlation_id(request.get_jms_correlation_id())
        return [reply]

    await replier(api, copied)
    context = await api.context()
    request = TextMessage("?")
    assert text(await context.request(api.queue(), request, SOON)) == "yes"
    request.set_jms_correlation_id("mine")
    assert text(await context.request(api.queue(), request, SOON)) == "yes"


async def test_without_a_reply_in_time_it_returns_none_and_a_late_reply_is_dropped(api: Api) -> None:
    context = await api.context()
    assert await context.request(api.queue(), "late", 1) is None
    late = await (await api.session()).create_consumer(api.queue())
    request = await late.receive(SOON)
    await (await (await api.session()).create_producer()).send(request.get_jms_reply_to(), TextMessage("late"))
    await late.close()
    await replier(api, lambda request: [TextMessage("in time")])
    assert text(await context.request(api.queue(), "again", SOON)) == "in time"


async def test_a_listener_of_the_context_may_request(api: Api) -> None:
    await replier(api, correlated)
    context = await api.context()
    replies = []

    async def ask(message: Message) -> None:
        replies.append(text(await context.request(api.queue(), "from a listener", SOON)))

    listener = api.listener(ask)
    (await context.create_consumer(Queue("questions"))).set_message_listener(listener)
    await api.fill("questions", "?")
    await api.fill("questions", "?")
    await listener.arrived(2)
    assert replies[0] == "from a listener!"


async def test_a_request_on_a_stopped_connection_raises(api: Api) -> None:
    context = await api.context()
    context.set_auto_start(False)
    with pytest.raises(IllegalStateRuntimeException, match=r"call start\(\) first"):
        await context.request(api.queue(), "?", SOON)
    for timeout in (-1, 0.5):
        with pytest.raises(ValueError, match="timeout"):
            await context.request(api.queue(), "?", timeout)


async def test_closing_the_context_ends_a_request(api: Api) -> None:
    context = await api.context()
    other = await context.create_context(Api.AUTO_ACKNOWLEDGE)
    arriving = await (await api.session()).create_consumer(api.queue())
    waiting = api.task(other.request(api.queue(), "?"))
    assert await arriving.receive(SOON) is not None
    await other.close()
    assert await waiting is None
    await context.close()


async def test_tasks_take_turns(api: Api) -> None:
    if api.world == "blocking":
        pytest.skip("a blocking context belongs to one thread")
    await replier(api, correlated)
    context = await api.context()
    replies = await asyncio.gather(*(context.request(api.queue(), str(number), SOON) for number in range(5)))
    assert list(map(text, replies)) == ["0!", "1!", "2!", "3!", "4!"]


@pytest.mark.parametrize("kind", ["QueueRequestor", "TopicRequestor"])
async def test_a_requestor_has_a_timeout_and_takes_a_session(api: Api, kind: str) -> None:
    topic = kind == "TopicRequestor"
    destination = sievemq.Topic("orders") if topic else api.queue()
    requestor = await api.requestor(getattr(sievemq.aio, kind), await api.session(), destination)
    assert await requestor.request(TextMessage("?"), 1) is None
    assert await requestor.request(TextMessage("?"), timeout=timedelta(milliseconds=1)) is None
    with pytest.raises(TypeError, match=r"needs a Session.*a JMSContext has the method request\(\)"):
        await api.requestor(getattr(sievemq.aio, kind), await api.context(), destination)
