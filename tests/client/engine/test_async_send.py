"""The fate of an asynchronous send: known once, told once, in the order in which it became known."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import BytesMessage, MessageNotWriteableException, Queue, TextMessage
from sievemq._engine import AsyncSend
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import FakeBroker

ERROR = OSError("lost")


class Calls:
    """Keeps what is to be called."""

    def __init__(self) -> None:
        self.waiting: list[AsyncSend] = []
        self.told: list[Any] = []

    def add(self, fate: AsyncSend) -> None:
        self.waiting.append(fate)

    def fate(self, message: Any) -> AsyncSend:
        callbacks = (lambda sent: self.told.append(sent), lambda sent, error: self.told.append((sent, error)))
        return AsyncSend(self, callbacks, message)

    def call(self) -> list[Any]:
        for fate in self.waiting:
            fate.tell()
        return self.told


@pytest.mark.parametrize("again", [lambda fate: fate.succeed(None), lambda fate: fate.fail(ERROR)])
@pytest.mark.parametrize(
    ("first", "error"), [(lambda fate: fate.succeed(None), None), (lambda fate: fate.fail(ERROR), ERROR)]
)
def test_cpl_05_a_fate_is_told_once(first: Any, error: Exception | None, again: Any) -> None:
    calls = Calls()
    message = TextMessage("x")
    fate = calls.fate(message)
    first(fate)
    again(fate)
    assert fate.done
    assert fate.error is error
    assert calls.call() == [message if error is None else (message, error)]


def test_cpl_06_in_the_order_of_the_sends_whichever_way_they_went() -> None:
    broker = FakeBroker()
    broker.welcome()
    session = broker.session()
    producer, calls = broker.producer(session), Calls()
    messages = [TextMessage(str(number)) for number in range(4)]
    for message in messages:
        producer.send(message, Queue("q"), completion=calls.fate(message))
    broker.heard()
    broker.say(Command.CONFIRM, session.id, 1)
    broker.say(Command.SEND_FAILED, session.id, 3, ErrorCode.INVALID_DESTINATION, "gone")
    broker.engine.lost(OSError("the end"))
    told = calls.call()
    assert [one[0] if isinstance(one, tuple) else one for one in told] == messages
    assert [isinstance(one, tuple) for one in told] == [False, False, True, True]


def test_cpl_15_the_message_can_be_read_when_its_callback_is_called() -> None:
    calls = Calls()
    message = BytesMessage(b"body")
    fate = calls.fate(message)
    fate.succeed(None)
    message.write_byte(1)  # not told yet
    calls.call()
    assert message.read_unsigned_byte() == ord("b")
    with pytest.raises(MessageNotWriteableException):
        message.write_byte(1)


def test_msg_21_another_implementations_message_is_told_as_it_is() -> None:
    calls, foreign = Calls(), object()
    calls.fate(foreign).succeed(None)
    assert calls.call() == [foreign]
