"""A broker that delivers what is no envelope: JMSException, whatever is read of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.cases import case

from sievemq import JMSException, JMSRuntimeException, Message, MessageFormatException
from sievemq_core.wire.commands import Command

from .harness import FakeBroker

FIELDS = ("ID:a:1", 1_700_000_000_000, 4, 2, 0, 0, None, None, None, None, None, 1, b"hi")
WRONG: list[Any] = ["text", b"bytes", 5, -1, 2.5, True, None, (), (1,), {}, {"a": 1}]

READERS = [name for name in dir(Message) if name.startswith("get_jms")]


@pytest.mark.parametrize("position", range(13))
@pytest.mark.parametrize("kind", range(6))
def test_field_of_a_wrong_type(broker: FakeBroker, kind: int, position: int) -> None:
    for value, several in itertools.product(WRONG, (False, True)):
        with case(ascii(value), several):
            receive(broker, kind, position, value, several)


def receive(broker: FakeBroker, kind: int, position: int, value: Any, several: bool) -> None:
    """Let the broker deliver an envelope with a wrong value at a position, and read all of it."""
    fields = [*FIELDS[:11], kind, None if kind == 0 else b"hi"]
    fields[position] = value
    consumer = broker.consumer(broker.session())
    if several:
        broker.say(Command.DELIVER_SEVERAL, consumer.id, 1, (tuple(fields), FIELDS))
    else:
        broker.say(Command.DELIVER, consumer.id, 1, 1, tuple(fields))
    try:
        consumer.peek()
    except JMSException:
        pass
    try:
        message = consumer.take()
    except MessageFormatException:
        return
    if message is None:
        return  # expired
    for read in (lambda: message.get_body(object), lambda: message.get_body(str), lambda: message.properties):
        try:
            read()
        except (JMSException, JMSRuntimeException):
            pass


def test_later_messages_are_received(broker: FakeBroker) -> None:
    consumer = broker.consumer(broker.session())
    broker.say(Command.DELIVER, consumer.id, 1, 1, (*FIELDS[:12], "no bytes"))
    broker.say(Command.DELIVER, consumer.id, 2, 1, FIELDS)
    with pytest.raises(MessageFormatException, match="body are not bytes"):
        consumer.take()
    message = consumer.take()
    assert message is not None
    assert message.get_body(str) == "hi"
