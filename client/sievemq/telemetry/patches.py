"""Puts the recorder around the clients' methods, and takes it away again.

The methods are replaced on their classes, so that a process that is not instrumented has nothing in its way.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import sievemq.aio.consumer
import sievemq.aio.context
import sievemq.aio.control
import sievemq.aio.delivery
import sievemq.aio.jms_producer
import sievemq.aio.producer
import sievemq.aio.session
import sievemq.blocking.consumer
import sievemq.blocking.context
import sievemq.blocking.control
import sievemq.blocking.delivery
import sievemq.blocking.jms_producer
import sievemq.blocking.producer
import sievemq.blocking.session
from sievemq._engine import EngineConsumer, EngineProducer, Terms
from sievemq.messages import Message
from sievemq.telemetry.context import carried
from sievemq.telemetry.recorder import Recorder

__all__ = ["Patches"]

Method = Callable[..., Any]

#: The consumer at which a receive has begun, in its task or thread.
_receiving: ContextVar[object] = ContextVar("sievemq receiving", default=None)


class Patches:
    """The clients' methods with a recorder around them, until :meth:`undo`.

    Args:
        recorder: what records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._undo: list[tuple[type, str, Method]] = []
        self._wrap(EngineProducer, "send", self._hand_over)
        self._wrap(Message, "acknowledge", self._acknowledge)
        for blocking in (sievemq.blocking.producer.MessageProducer, sievemq.blocking.jms_producer.JMSProducer):
            self._wrap(blocking, "send", self._send)
        for aio in (sievemq.aio.producer.MessageProducer, sievemq.aio.jms_producer.JMSProducer):
            self._wrap(aio, "send", self._aio_send)
        for name in ("receive", "__next__"):
            self._wrap(sievemq.blocking.consumer.MessageConsumer, name, self._receive)
        for name in ("receive", "__anext__"):
            self._wrap(sievemq.aio.consumer.MessageConsumer, name, self._aio_receive)
        for name in ("receive", "receive_no_wait"):
            self._wrap(sievemq.blocking.control.Control, name, self._receive)
            self._wrap(sievemq.aio.control.Control, name, self._aio_receive)
        self._wrap(sievemq.blocking.delivery.Delivery, "_deliver", self._deliver)
        self._wrap(sievemq.aio.delivery.Delivery, "_turn", self._aio_turn)
        for name in ("commit", "rollback", "recover"):
            self._wrap(sievemq.blocking.session.Session, name, self._settle)
            self._wrap(sievemq.aio.session.Session, name, self._aio_settle)
        self._wrap(sievemq.blocking.context.JMSContext, "acknowledge", self._settle)
        self._wrap(sievemq.aio.context.JMSContext, "acknowledge", self._aio_settle)

    def undo(self) -> None:
        """Leave the methods as they were."""
        for owner, name, original in reversed(self._undo):
            setattr(owner, name, original)
        self._undo.clear()

    def _wrap(self, owner: type, name: str, wrap: Callable[[Method], Method]) -> None:
        original = owner.__dict__[name]
        self._undo.append((owner, name, original))
        setattr(owner, name, functools.wraps(original)(wrap(original)))

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, original: Method) -> Method:
        record = self.recorder.send

        def send(*arguments: Any, **options: Any) -> Any:
            with record():
                return original(*arguments, **options)

        return send

    def _aio_send(self, original: Method) -> Method:
        record = self.recorder.send

        async def send(*arguments: Any, **options: Any) -> Any:
            with record():
                return await original(*arguments, **options)

        return send

    def _hand_over(self, original: Method) -> Method:
        """Every send of both APIs passes here once it is known what is sent and where to."""
        recorder = self.recorder

        def send(engine: EngineProducer, message: Any, destination: Any, *rest: Any) -> Any:
            recorder.sending(destination, engine.session.terms)
            if not isinstance(message, Message):  # another implementation's: it comes again, adopted
                return original(engine, message, destination, *rest)
            with carried(message):
                result = original(engine, message, destination, *rest)
            recorder.sent(message)
            return result

        return send

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _receive(self, original: Method) -> Method:
        recorder = self.recorder

        def receive(owner: Any, *arguments: Any, **options: Any) -> Message | None:
            engine = owner._engine if isinstance(owner, sievemq.blocking.consumer.MessageConsumer) else arguments[0]
            if _receiving.get() is engine:  # the quick way of receiving has found nothing and takes the other one
                return original(owner, *arguments, **options)  # type: ignore[no-any-return]
            begun = time.perf_counter()
            token = _receiving.set(engine)
            try:
                message: Message | None = original(owner, *arguments, **options)
            except StopIteration:
                raise
            except Exception as error:
                recorder.receive_failed(error, engine.destination, engine.terms, begun)
                raise
            finally:
                _receiving.reset(token)
            if message is not None:
                recorder.received(message, *_whose(engine), begun)
            return message

        return receive

    def _aio_receive(self, original: Method) -> Method:
        recorder = self.recorder

        async def receive(owner: Any, *arguments: Any, **options: Any) -> Message | None:
            engine = owner._engine if isinstance(owner, sievemq.aio.consumer.MessageConsumer) else arguments[0]
            if _receiving.get() is engine:  # the quick way of receiving has found nothing and takes the other one
                return await original(owner, *arguments, **options)  # type: ignore[no-any-return]
            begun = time.perf_counter()
            token = _receiving.set(engine)
            try:
                message: Message | None = await original(owner, *arguments, **options)
            except StopAsyncIteration:
                raise
            except Exception as error:
                recorder.receive_failed(error, engine.destination, engine.terms, begun)
                raise
            finally:
                _receiving.reset(token)
            if message is not None:
                recorder.received(message, *_whose(engine), begun)
            return message

        return receive

    def _deliver(self, original: Method) -> Method:
        recorder = self.recorder

        def deliver(delivery: Any, consumer: EngineConsumer, listener: Method, message: Message) -> None:
            def traced(message: Message) -> None:
                with recorder.process(message, *_whose(consumer), listener=True):
                    listener(message)

            original(delivery, consumer, traced, message)

        return deliver

    def _aio_turn(self, original: Method) -> Method:
        """Of a session's delivery task: some messages of one consumer."""
        recorder = self.recorder

        def turn(delivery: Any, consumer: EngineConsumer, budget: int) -> int:
            listeners = delivery._listeners
            listener = listeners.get(consumer)
            if listener is None:
                return original(delivery, consumer, budget)  # type: ignore[no-any-return]

            async def traced(message: Message) -> None:
                with recorder.process(message, *_whose(consumer), listener=True):
                    result = listener(message)
                    if result is not None and inspect.isawaitable(result):
                        await result

            listeners[consumer] = traced
            try:
                return original(delivery, consumer, budget)  # type: ignore[no-any-return]
            finally:
                if listeners.get(consumer) is traced:  # else the application has set another one, or none
                    listeners[consumer] = listener

        return turn

    # -- settling -----------------------------------------------------------------------------------------------------

    def _settle(self, original: Method) -> Method:
        recorder, name = self.recorder, original.__name__

        def settle(owner: Any) -> None:
            with recorder.settle(name, _terms_of(owner)):
                original(owner)

        return settle

    def _aio_settle(self, original: Method) -> Method:
        recorder, name = self.recorder, original.__name__

        async def settle(owner: Any) -> None:
            with recorder.settle(name, _terms_of(owner)):
                await original(owner)

        return settle

    def _acknowledge(self, original: Method) -> Method:
        recorder = self.recorder

        def acknowledge(message: Message) -> Any:
            if message._acknowledge is None:  # nothing is settled by it
                return original(message)
            with recorder.settle("acknowledge", None):
                # The asyncio API has sent it by now; the result may be awaited or not, so the span ends here.
                return original(message)

        return acknowledge


def _whose(consumer: EngineConsumer) -> tuple[Any, Terms, str | None]:
    return consumer.destination, consumer.terms, consumer.subscription


def _terms_of(owner: Any) -> Terms:
    session = getattr(owner, "_session", owner)
    terms: Terms = session._engine.terms
    return terms
