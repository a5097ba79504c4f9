"""DELIVER_SEVERAL: as many DELIVERs, whatever happens in the middle of them."""

from __future__ import annotations

from typing import cast

import pytest

from sievemq import Queue, TextMessage
from sievemq._engine import ClientConnection, EngineConsumer, EngineOptions, EngineProducer
from sievemq._engine.connection import HANDLERS
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

from .harness import NOW, FakeBroker, World, envelope
from .test_consumer import take


def several(broker: FakeBroker, consumer: EngineConsumer, *tags: int, expiration: int = 0) -> None:
    """Messages whose text is their tag, in one command."""
    broker.say(Command.DELIVER_SEVERAL, consumer.id, tags[0], tuple(envelope(str(tag), expiration) for tag in tags))


@pytest.fixture
def consumer(broker: FakeBroker) -> EngineConsumer:
    consumer = broker.consumer(broker.session(2))
    broker.heard()
    return consumer


def test_a_client_requests_batches() -> None:
    assert FakeBroker().welcome()[-1] == {"deliver_several": True}
    assert FakeBroker(EngineOptions(reconnect=1_000, heartbeat=0)).welcome()[-1] == {
        "keep": 1_000, "deliver_several": True,
    }  # fmt: skip


def test_they_are_taken_one_by_one_and_count_as_first_deliveries(broker: FakeBroker, consumer: EngineConsumer) -> None:
    several(broker, consumer, 1, 2, 3)
    broker.deliver(consumer, 4, count=2)
    several(broker, consumer, 5, 6)
    for tag in (1, 2, 3):
        message = consumer.take()
        assert isinstance(message, TextMessage)
        assert (message.get_text(), consumer.handed) == (str(tag), tag)
        assert (message.get_jms_redelivered(), message.get_int_property("JMSXDeliveryCount")) == (False, 1)
    message = consumer.take()
    assert message is not None
    assert message.get_jms_redelivered()
    assert [take(consumer), take(consumer), take(consumer)] == ["5", "6", None]
    assert consumer.handed == 6


def test_a_waiting_consumer_is_woken_once(broker: FakeBroker, consumer: EngineConsumer) -> None:
    woken: list[int] = []
    consumer.waker = lambda: woken.append(len(consumer.buffer))
    several(broker, consumer, 1, 2, 3)
    assert woken == [3], "when all of it is there"
    assert consumer.waker is None


def test_an_unseen_part_is_recalled(broker: FakeBroker, consumer: EngineConsumer) -> None:
    several(broker, consumer, 1, 2, 3, 4, 5)
    assert take(consumer) == "1"
    broker.say(Command.RECALL, consumer.id, (1, 3, 4))
    assert (Command.RELEASE, consumer.id, (3, 4), False) in broker.heard()
    assert [take(consumer), take(consumer), take(consumer)] == ["2", "5", None]


def test_exp_03_messages_expired_within_a_batch_are_returned(broker: FakeBroker, consumer: EngineConsumer) -> None:
    several(broker, consumer, 1)
    several(broker, consumer, 2, 3, expiration=NOW - 1)
    several(broker, consumer, 4)
    assert [take(consumer), take(consumer), take(consumer)] == ["1", "4", None]
    released = [command[2] for command in broker.heard() if command[0] == Command.RELEASE]
    assert [tag for tags in released for tag in tags] == [2, 3]


def test_no_message_arrives_between_recover_and_its_answer(broker: FakeBroker) -> None:
    session = broker.session(2)
    consumer = broker.consumer(session)
    several(broker, consumer, 1, 2)
    assert take(consumer) == "1"
    session.recover()
    several(broker, consumer, 3, 4)
    assert not consumer.buffer
    broker.grant()
    broker.say(Command.DELIVER, consumer.id, 5, 2, envelope("1"))
    several(broker, consumer, 6, 7)
    assert [take(consumer), take(consumer), take(consumer)] == ["1", "6", "7"]


def test_messages_for_a_closed_consumer_reach_no_other_consumer(broker: FakeBroker, consumer: EngineConsumer) -> None:
    broker.engine.sessions[1].close_consumer(consumer)
    several(broker, consumer, 1, 2)
    assert not consumer.buffer
    assert broker.engine.failure is None


def test_a_loss_in_the_middle_says_how_far_the_application_came(broker: FakeBroker, consumer: EngineConsumer) -> None:
    several(broker, consumer, 1, 2, 3)
    assert take(consumer) == "1"
    assert consumer.freeze() == 1
    assert not consumer.buffer


def test_the_average_size_is_that_of_a_message(broker: FakeBroker, consumer: EngineConsumer) -> None:
    text = "x" * 1_000
    for first in range(1, 1_000, 100):
        broker.say(Command.DELIVER_SEVERAL, consumer.id, first, tuple(envelope(text) for _ in range(100)))
    assert 900 < broker.engine.deliveries.average_bytes() < 1_100


def test_the_real_broker_says_it_to_the_real_client(world: World) -> None:
    sender, receiver = world.connect(), world.connect()
    consumer = world.consumer(world.session(receiver))
    producer = EngineProducer(world.session(sender), Queue("q"))
    heard: list[int] = []
    on_deliveries = HANDLERS[Command.DELIVER_SEVERAL]

    def listen(connection: ClientConnection, command: CommandTuple) -> None:
        heard.append(len(command[3]))
        on_deliveries(connection, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cast("dict[int, object]", HANDLERS), Command.DELIVER_SEVERAL, listen)
        for number in range(20):
            producer.send(TextMessage(str(number)), Queue("q"))
        world.settle()
    assert [take(consumer) for _ in range(21)] == [*map(str, range(20)), None]
    assert heard == [20]
