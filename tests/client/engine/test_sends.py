"""The send path: what a SEND holds, which sends wait, the window, how each is settled."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageFormatException,
    Queue,
    ResourceAllocationException,
    TextMessage,
    Topic,
    UnsupportedOperationError,
)
from sievemq._engine import ABSENT, EngineOptions
from sievemq._front import destination_and_message
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import NOW, FakeBroker

QUEUE = Queue("q")


def test_d_26_hdr_03_hdr_04_ids_and_times_of_a_send(broker: FakeBroker) -> None:
    producer = broker.producer(broker.session(), QUEUE)
    producer.set_delivery_delay(50)
    producer.set_time_to_live(200)
    message = TextMessage("hi", properties={"a": 1})
    message.set_jms_type("t")
    producer.send(message, producer.target(ABSENT), priority=9)
    ((number, session, sequence, address, fields),) = broker.heard()
    assert (number, session, sequence, address) == (Command.SEND, 1, 1, "queue:q")
    assert fields[:6] == ("ID:c1:1", NOW, 9, 2, NOW + 200, NOW + 50)
    assert fields[8] == "t"
    assert fields[12] == b"hi"
    assert message.get_jms_message_id() == "ID:c1:1"
    assert message.get_jms_expiration() == NOW + 200
    assert message.get_jms_delivery_time() == NOW + 50
    assert message.get_jms_destination() == QUEUE


def test_the_offset_of_the_brokers_clock_is_in_the_times(broker: FakeBroker) -> None:
    producer = broker.producer(broker.session())
    broker.say(Command.CLOCK, 1_000)
    message = TextMessage()
    producer.send(message, QUEUE)
    assert message.get_jms_timestamp() == NOW + 1_000
    assert [command[0] for command in broker.heard()] == [Command.CLOCK_SEEN, Command.SEND]


def test_pro_01_pro_02_hints(broker: FakeBroker) -> None:
    producer = broker.producer(broker.session())
    producer.disable_message_id = producer.disable_timestamp = True
    producer.set_time_to_live(5)
    producer.send(Message(), QUEUE)
    ((*_, fields),) = broker.heard()
    assert fields[:6] == (None, 0, 4, 2, NOW + 5, NOW)


@pytest.mark.parametrize(
    ("policy", "mode", "persistent_waits", "other_waits"),
    [
        ("auto", 1, True, False),
        ("auto", 0, False, False),
        ("always", 1, True, True),
        ("always", 0, True, True),
        ("never", 1, False, False),
    ],
)
def test_d_24_which_sends_wait(policy: Any, mode: int, persistent_waits: bool, other_waits: bool) -> None:
    broker = FakeBroker(EngineOptions(heartbeat=0, send_confirm=policy))
    broker.welcome()
    producer = broker.producer(broker.session(mode))
    assert (producer.send(TextMessage(), QUEUE) is not None) is persistent_waits
    assert (producer.send(TextMessage(), QUEUE, delivery_mode=1) is not None) is other_waits


def test_confirms_are_cumulative_and_in_order(broker: FakeBroker) -> None:
    session = broker.session()
    producer = broker.producer(session)
    settled: list[int] = []
    for number in range(1, 6):
        fate = producer.send(TextMessage(), QUEUE)
        assert fate is not None
        fate.add_callback(lambda c, number=number: settled.append(-number if c.error else number))  # type: ignore[misc]
    broker.heard()
    broker.say(Command.CONFIRM, session.id, 2)
    assert settled == [1, 2]
    broker.say(Command.SEND_FAILED, session.id, 4, ErrorCode.INVALID_DESTINATION, "gone")
    assert settled == [1, 2, 3, -4]
    broker.say(Command.CONFIRM, session.id, 5)
    assert settled == [1, 2, 3, -4, 5]
    broker.say(Command.CONFIRM, session.id, 5)
    assert broker.reported == []  # each was raised in a waiting call


def test_d_24_a_failure_without_a_waiter(broker: FakeBroker) -> None:
    for mode, heard in ((1, [InvalidDestinationException]), (0, [])):
        broker.reported.clear()
        session = broker.session(mode)
        assert broker.producer(session).send(TextMessage(), QUEUE, delivery_mode=1) is None
        broker.say(Command.SEND_FAILED, session.id, 1, ErrorCode.INVALID_DESTINATION, "gone")
        assert [type(error) for error in broker.reported] == heard


def test_cpl_09_waiting_for_all_sends(broker: FakeBroker) -> None:
    session = broker.session()
    producer = broker.producer(session)
    assert session.sends.settled().done
    for _ in range(2):
        producer.send(TextMessage(), QUEUE, delivery_mode=1)
    barrier = session.sends.settled()
    producer.send(TextMessage(), QUEUE, delivery_mode=1)
    broker.say(Command.CONFIRM, session.id, 1)
    assert not barrier.done
    broker.say(Command.SEND_FAILED, session.id, 2, ErrorCode.INTERNAL, "x")
    barrier.result()  # settled, be it by failure
    later = session.sends.settled()
    broker.engine.lost(None)
    later.result()
    assert session.sends.settled().done


@pytest.mark.parametrize(("limits", "fits"), [({"window_messages": 3}, 3), ({"window_bytes": 150}, 2)])
def test_a_full_window(limits: dict[str, int], fits: int) -> None:
    broker = FakeBroker(None, **limits)
    broker.welcome()
    session = broker.session()
    producer = broker.producer(session)
    sent = 0
    while not session.sends.window_is_full:
        producer.send(TextMessage("x" * 50), QUEUE, delivery_mode=1)
        sent += 1
    assert sent == fits
    opens = session.sends.window_opens()
    assert not opens.done
    broker.heard()
    broker.say(Command.CONFIRM, session.id, 1)
    opens.result()
    assert session.sends.window_opens().done
    while not session.sends.window_is_full:
        producer.send(TextMessage("x" * 50), QUEUE, delivery_mode=1)
    opens = session.sends.window_opens()
    broker.engine.lost(None)
    with pytest.raises(JMSException):
        opens.result()
    with pytest.raises(JMSException):
        session.sends.window_opens().result()


def test_a_message_larger_than_the_window_is_sent_alone() -> None:
    broker = FakeBroker(None, window_bytes=100)
    broker.welcome()
    session = broker.session()
    assert not session.sends.window_is_full
    broker.producer(session).send(TextMessage("x" * 1_000), QUEUE)
    assert session.sends.window_is_full
    broker.say(Command.CONFIRM, session.id, 1)
    assert not session.sends.window_is_full


def test_pro_19_nothing_is_sent_after_an_error(broker: FakeBroker) -> None:
    session = broker.session()
    producer = broker.producer(session)
    for wrong in ({"delivery_mode": 0}, {"priority": -1}, {"time_to_live": -5}, {"time_to_live": 2**62 + 1}):
        with pytest.raises(JMSException):
            producer.send(TextMessage(), QUEUE, **wrong)
    with pytest.raises(MessageFormatException):
        producer.send(None, QUEUE)
    broker.engine.terms.max_body = 3
    with pytest.raises(ResourceAllocationException):
        producer.send(TextMessage("four"), QUEUE)
    assert broker.heard() == []
    producer.send(TextMessage("3"), QUEUE)
    assert broker.heard()[0][2] == 1  # no sequence number was lost


def test_pro_26_closed(broker: FakeBroker) -> None:
    session = broker.session()
    producer = broker.producer(session)
    producer.closed = True
    with pytest.raises(IllegalStateException, match="producer"):
        producer.send(TextMessage(), QUEUE)
    producer = broker.producer(session)
    session.close()
    with pytest.raises(IllegalStateException, match="session"):
        producer.send(TextMessage(), QUEUE)


def test_a_send_at_the_very_moment_of_the_loss(broker: FakeBroker) -> None:
    """The connection is lost between the send's first look and its last step: it fails, and no call waits for ever."""
    session = broker.session()

    class Slow(TextMessage):
        def _encode_body(self) -> bytes | None:
            broker.engine.lost(OSError("now"))
            return super()._encode_body()

    fate = broker.producer(session).send(Slow("x"), QUEUE)
    assert fate is not None
    with pytest.raises(JMSException, match="now"):
        fate.result()


def test_pro_14_pro_15_pro_16_target(broker: FakeBroker) -> None:
    session = broker.session()
    identified, anyone = broker.producer(session, QUEUE), broker.producer(session, None)
    assert identified.target(ABSENT) is QUEUE
    assert anyone.target(Topic("t")) == Topic("t")
    for producer, destination, error in (
        (identified, QUEUE, UnsupportedOperationError),
        (identified, None, UnsupportedOperationError),
        (anyone, ABSENT, UnsupportedOperationError),
        (anyone, None, InvalidDestinationException),
        (anyone, "q", InvalidDestinationException),
    ):
        with pytest.raises(error):
            producer.target(destination)  # type: ignore[arg-type]


def test_d_27_forms_of_a_call() -> None:
    assert destination_and_message((1,), ABSENT, ABSENT) == (ABSENT, 1)
    assert destination_and_message((1, 2), ABSENT, ABSENT) == (1, 2)
    assert destination_and_message((1,), 2, ABSENT) == (1, 2)
    assert destination_and_message((2,), ABSENT, None) == (None, 2)  # type: ignore[comparison-overlap]
    assert destination_and_message((), 2, ABSENT) == (ABSENT, 2)
    assert repr(ABSENT) == "<absent>"
