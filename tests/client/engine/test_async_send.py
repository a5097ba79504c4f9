"""The fate of an asynchronous send: known once, told once, in the order in which it became known."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import BytesMessage, MessageNotWriteableException, Queue, TextMessage
from sievemq._engine import EngineOptions, EngineProducer, EngineSession, call
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import FakeBroker

QUEUE = Queue("q")


class Sender:
    """Sends asynchronously, and calls back like a front."""

    def __init__(self, **options: Any) -> None:
        self.broker = FakeBroker(EngineOptions(heartbeat=0, **options))
        self.broker.welcome()
        self.session: EngineSession = self.broker.session()
        self.producer: EngineProducer = self.broker.producer(self.session)
        self.told: list[Any] = []
        self.rings = 0
        self.session.sends.call_back(self.ring)

    def ring(self) -> None:
        self.rings += 1

    def send(self, *messages: Any, delivery_mode: int = 2) -> None:
        callbacks = (self.told.append, lambda message, error: self.told.append((message, error)))
        for message in messages:
            waited_for = self.producer.send(message, QUEUE, callbacks, delivery_mode)
            assert waited_for is None
        self.broker.heard()

    def say(self, *command: Any) -> None:
        self.broker.say(command[0], self.session.id, *command[1:])

    def call(self) -> list[Any]:
        """Whom all calls so far have told of what."""
        while self.session.sends.calls:
            call(self.session.sends.calls.popleft())
        return [one[0] if isinstance(one, tuple) else one for one in self.told]

    @property
    def errors(self) -> list[str]:
        return [str(one[1]) if isinstance(one, tuple) else "" for one in self.told]


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.mark.parametrize("mode", [1, 2])
def test_cpl_01_each_result_is_reported_once(sender: Sender, mode: int) -> None:
    message = TextMessage("x")
    sender.send(message, delivery_mode=mode)
    assert sender.call() == []
    sender.say(Command.CONFIRM, 1)
    sender.say(Command.CONFIRM, 1)
    sender.broker.engine.lost(OSError("lost"))
    assert sender.call() == [message]
    assert sender.errors == [""]


def test_cpl_06_in_the_order_of_the_sends_whichever_way_they_went(sender: Sender) -> None:
    messages = [TextMessage(str(number)) for number in range(5)]
    sender.send(*messages)
    sender.say(Command.CONFIRM, 1)
    sender.say(Command.SEND_FAILED, 3, ErrorCode.INVALID_DESTINATION, "gone")
    sender.say(Command.CONFIRM, 4)
    sender.broker.engine.lost(OSError("the end"))
    assert sender.call() == messages
    assert sender.errors == ["", "", "gone", "", "the connection to the broker is lost: the end"]
    assert not sender.broker.reported[:-1]  # only the loss


def test_the_front_is_rung_once_for_a_confirm_of_many(sender: Sender) -> None:
    messages = [TextMessage(str(number)) for number in range(9)]
    sender.send(*messages)
    sender.say(Command.CONFIRM, 9)
    assert sender.rings == 1
    assert sender.call() == messages
    assert sender.producer.send(TextMessage(), QUEUE, delivery_mode=1) is None
    sender.say(Command.CONFIRM, 10)  # of one without a waiter
    assert sender.rings == 1


def test_cpl_08_a_send_that_waits_has_its_place_among_them(sender: Sender) -> None:
    before, behind = TextMessage("before"), TextMessage("behind")
    order: list[Any] = []
    sender.told = order
    sender.send(before)
    completion = sender.producer.send(TextMessage("waits"), QUEUE)
    assert completion is not None
    sender.send(behind)
    sender.say(Command.CONFIRM, 1)
    assert sender.call() == [before]
    assert not completion.done
    sender.say(Command.CONFIRM, 3)
    completion.result()
    assert sender.call() == [before, behind]


def test_timeouts_are_reported_in_order_of_their_deadlines(sender: Sender) -> None:
    messages = [TextMessage(str(number)) for number in range(3)]
    sender.send(*messages)
    sender.broker.say(Command.FLOW, True, "full", sender.session.id, 1, "queue:q")
    sender.broker.engine.expect(sender.session.sends, None, 0, 500, 2)
    sender.broker.engine.tick(500)
    ((_, request, *_),) = sender.broker.heard()
    assert sender.call() == []
    sender.broker.say(Command.OK, request, None)
    assert sender.call() == [messages[1]]
    sender.say(Command.SEND_FAILED, 2, ErrorCode.RESOURCE_ALLOCATION, "withdrawn")
    sender.say(Command.CONFIRM, 3)
    assert sender.call() == [messages[1], messages[0], messages[2]]
    assert [bool(error) for error in sender.errors] == [True, False, False]
    assert not sender.session.sends.asynchronous
    assert not sender.session.sends.withdrawn
    assert not sender.broker.reported


def test_a_confirmed_send_is_not_withdrawn(sender: Sender) -> None:
    message = TextMessage()
    sender.send(message)
    sender.broker.engine.expect(sender.session.sends, None, 0, 500, 1)
    sender.say(Command.CONFIRM, 1)
    sender.broker.engine.tick(500)
    assert sender.broker.heard() == []
    assert sender.call() == [message]
    assert sender.errors == [""]


def test_a_send_of_an_ended_session_is_not_withdrawn(sender: Sender) -> None:
    message = TextMessage()
    sender.send(message)
    sender.broker.engine.expect(sender.session.sends, None, 0, 500, 1)
    sender.session.close()
    sender.broker.grant()
    assert sender.call() == [message]
    assert sender.errors == ["lost: 1 message that the broker had not taken before the session was closed"]
    sender.broker.engine.tick(500)
    assert sender.broker.heard() == []


def test_txn_05_a_lost_transaction_fails_its_sends() -> None:
    sender = Sender(reconnect=5_000)
    sender.session = sender.broker.session(0)
    sender.producer = sender.broker.producer(sender.session)
    message = TextMessage()
    sender.send(message)
    sender.broker.engine.lost(OSError("cable"))
    assert sender.call() == [message]
    assert sender.errors == ["the connection was lost, and the transaction of this send was rolled back"]


def test_cpl_15_the_message_can_be_read_when_its_callback_is_called(sender: Sender) -> None:
    message = BytesMessage(b"body")
    sender.send(message)
    sender.say(Command.CONFIRM, 1)
    message.write_byte(1)  # not told yet
    sender.call()
    assert message.read_unsigned_byte() == ord("b")
    with pytest.raises(MessageNotWriteableException):
        message.write_byte(1)


class Foreign:
    """Another implementation's message."""

    def __init__(self) -> None:
        self.headers: dict[str, Any] = {}

    def get_text(self) -> str:
        return "foreign"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set_jms_"):
            return lambda value: self.headers.update({name[4:]: value})
        if name.startswith("get_jms_"):
            return lambda: None
        if name == "get_property_names":
            return lambda: ()
        if name == "get_object_property":
            return {}.get
        raise AttributeError(name)


@pytest.mark.parametrize("error", ["", "gone"])
def test_msg_21_a_foreign_message_is_reported_unchanged(sender: Sender, error: str) -> None:
    foreign = Foreign()
    sender.send(foreign)
    assert foreign.headers["jms_message_id"].startswith("ID:")
    if error:
        sender.say(Command.SEND_FAILED, 1, ErrorCode.INVALID_DESTINATION, error)
    else:
        sender.say(Command.CONFIRM, 1)
    assert sender.call() == [foreign]
    assert sender.errors == [error]


def test_an_interrupt_while_results_are_reported_loses_no_confirm(sender: Sender) -> None:
    """A signal handler's exception in a thread that leads: the connection is given up, and every send has its fate."""
    messages = [TextMessage(f"m{n}") for n in range(6)]
    sender.send(*messages[:2])
    waited_for = sender.producer.send(messages[2], QUEUE)
    assert waited_for is not None

    interrupts = [KeyboardInterrupt()]

    def interrupt(_: object) -> None:
        if interrupts:
            raise interrupts.pop()

    waited_for.add_callback(interrupt)
    sender.send(*messages[3:])
    with pytest.raises(KeyboardInterrupt):
        sender.say(Command.CONFIRM, 6)
    assert waited_for.done
    sender.broker.engine.interrupted(KeyboardInterrupt())
    assert sender.call() == [*messages[:2], *messages[3:]]
    assert not any(sender.errors)
    assert sender.broker.engine.failure is not None
