"""QueueBrowser: section 16 of the API map."""

from __future__ import annotations

import pytest

from sievemq import ConnectionFactory, IllegalStateException, MessageProducer, Queue, Session, TextMessage
from sievemq_broker import EmbeddedBroker

from .conftest import Connect
from .helpers import receive_text, text, texts


def bodies(browser: object) -> list[str | None]:
    return [text(message) for message in browser]  # type: ignore[attr-defined]


def test_brw_01_to_brw_04_ord_08_a_scan_changes_nothing(
    session: Session, producer: MessageProducer, queue: Queue
) -> None:
    for number, priority in enumerate((4, 9, 4, 0)):
        producer.send(TextMessage(str(number)), priority=priority)
    with session.create_browser(queue) as browser:
        assert browser.get_queue() == queue
        assert browser.get_message_selector() is None
        for _ in range(2):  # each scan begins anew
            assert bodies(browser.get_enumeration()) == ["1", "0", "2", "3"]  # ORD-08
        first = next(browser.get_enumeration())
        assert not first.get_jms_redelivered()
        assert first.get_jms_destination() == queue
        assert first.get_jms_priority() == 9
    consumer = session.create_consumer(queue)
    assert texts(consumer, 4) == ["1", "0", "2", "3"]


def test_brw_02_selector(session: Session, producer: MessageProducer, queue: Queue) -> None:
    for number in range(10):
        producer.send(TextMessage(str(number), properties={"n": number}))
    with session.create_browser(queue, "n > 6") as browser:
        assert browser.get_message_selector() == "n > 6"
        assert bodies(browser) == ["7", "8", "9"]
    assert session.create_browser(queue, "").get_message_selector() is None


def test_many_pages(session: Session, producer: MessageProducer, queue: Queue) -> None:
    for number in range(350):
        producer.send(TextMessage(str(number)), delivery_mode=1)
    producer.send(TextMessage("350"))
    assert bodies(session.create_browser(queue)) == [str(number) for number in range(351)]


def test_brw_07_messages_in_flight_are_not_shown(connect: Connect, producer: MessageProducer, queue: Queue) -> None:
    session = connect().create_session(Session.CLIENT_ACKNOWLEDGE)
    for number in range(2):
        producer.send(TextMessage(str(number)))
    consumer = session.create_consumer(queue)
    assert receive_text(consumer) == "0"
    consumer.close()  # gives back what was only buffered
    assert bodies(session.create_browser(queue)) == ["1"]
    session.close()
    assert bodies(connect().create_session().create_browser(queue)) == ["0", "1"]


def test_brw_06_brw_09_exp_03_exp_07_delay_and_expiry(queue: Queue) -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(TextMessage("short"), time_to_live=600_000)
        producer.set_delivery_delay(300_000)
        producer.send(TextMessage("late"))
        browser = session.create_browser(queue)
        assert bodies(browser) == ["short"]
        broker.clock.advance(seconds=300)
        assert bodies(browser) == ["short", "late"]
        broker.clock.advance(seconds=300)
        assert bodies(browser) == ["late"]


def test_brw_10_d_36_on_a_stopped_connection(connect: Connect, queue: Queue) -> None:
    session = connect(start=False).create_session()
    session.create_producer(queue).send(TextMessage("x"))
    assert bodies(session.create_browser(queue)) == ["x"]


def test_brw_11_closed(session: Session, queue: Queue) -> None:
    browser = session.create_browser(queue)
    browser.close()
    browser.close()
    for call in (browser.get_enumeration, browser.get_queue, browser.get_message_selector):
        with pytest.raises(IllegalStateException):
            call()
