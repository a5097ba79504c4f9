"""What a type checker must accept and refuse as a listener. Checked by mypy, never run."""

from __future__ import annotations

import functools

import sievemq.aio
from sievemq import JMSConsumer, JMSContext, JMSException, JMSProducer, Message, MessageConsumer


def plain(message: Message) -> None: ...


async def coroutine(message: Message) -> None: ...


async def failed(message: Message, error: Exception) -> None: ...


class Plain:
    def on_message(self, message: Message) -> None: ...


class Coroutine:
    async def on_message(self, message: Message) -> None: ...

    async def on_exception(self, error: JMSException) -> None: ...


class CoroutineCall:
    async def __call__(self, message: Message) -> None: ...


def blocking(consumer: MessageConsumer, of_context: JMSConsumer, context: JMSContext, producer: JMSProducer) -> None:
    messages: list[Message] = []
    of_context.set_message_listener(plain)
    of_context.set_message_listener(Plain())
    of_context.set_message_listener(lambda message: messages.append(message))
    of_context.set_message_listener(None)
    producer.set_async((plain, lambda message, error: print(error)))
    consumer.set_message_listener(coroutine)  # type: ignore[arg-type]
    of_context.set_message_listener(coroutine)  # type: ignore[arg-type]
    of_context.set_message_listener(Coroutine())  # type: ignore[arg-type]
    of_context.set_message_listener(CoroutineCall())  # type: ignore[arg-type]
    of_context.set_message_listener(functools.partial(coroutine))  # type: ignore[arg-type]
    of_context.set_message_listener(lambda message: coroutine(message))  # type: ignore[arg-type]
    context.set_exception_listener(Coroutine())  # type: ignore[arg-type]
    producer.set_async((coroutine, failed))  # type: ignore[arg-type]


def asyncio(consumer: sievemq.aio.JMSConsumer) -> None:
    consumer.set_message_listener(plain)
    consumer.set_message_listener(coroutine)
    consumer.set_message_listener(Coroutine())
    consumer.set_message_listener(functools.partial(coroutine))
