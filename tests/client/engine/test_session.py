"""EngineSession: acknowledge, recover, commit, rollback, close; browsing."""

from __future__ import annotations

import pytest

from sievemq import (
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Queue,
    TextMessage,
    Topic,
    TransactionRolledBackException,
)
from sievemq._engine import EngineBrowser, EngineConsumer, Scan
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import NOW, FakeBroker, envelope


def take(consumer: EngineConsumer) -> str | None:
    message = consumer.take()
    assert message is None or isinstance(message, TextMessage)
    return None if message is None else message.get_text()


# -- acknowledge ------------------------------------------------------------------------------------------------------


# -- recover, commit, rollback ----------------------------------------------------------------------------------------


def test_ack_08_ack_14_recover_drops_buffered_and_arriving_messages(broker: FakeBroker) -> None:
    session = broker.session(2)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2, 3)
    assert take(consumer) == "1"
    recovering = session.recover()
    ((number, request, which, handed, failure),) = broker.heard()
    assert (number, which, handed, failure) == (Command.RECOVER, session.id, (consumer.id, 1), None)
    broker.deliver(consumer, 4)  # sent before the broker knew
    assert take(consumer) is None
    broker.say(Command.OK, request, None)
    recovering.result()
    assert broker.heard() == [(Command.CREDIT, consumer.id, consumer.credit.size, False)]
    broker.deliver(consumer, 5, count=2)
    message = consumer.take()
    assert message is not None
    assert message.get_jms_redelivered()


def test_credit_after_recover_waits_for_start(broker: FakeBroker) -> None:
    session = broker.session(2)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1)
    take(consumer)
    broker.engine.stop()
    session.recover()
    broker.grant()
    assert broker.heard() == []
    broker.engine.start()
    assert [command[0] for command in broker.heard()] == [Command.CREDIT]


def test_txn_03_commit_reports_handed_messages_and_keeps_the_buffer(broker: FakeBroker) -> None:
    session = broker.session(0)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2)
    take(consumer)
    committing = session.commit()
    assert broker.grant()[2:] == (session.id, (consumer.id, 1), None)
    committing.result()
    assert take(consumer) == "2"
    session.rollback()
    assert broker.grant()[2:] == (session.id, (consumer.id, 2), None)
    assert take(consumer) is None


def test_a_commit_carries_the_rule_of_the_listener_and_a_rollback_its_failure(broker: FakeBroker) -> None:
    session = broker.session(0)
    session.retry_by({"attempts": 3})
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2)
    take(consumer)
    committing = session.commit()
    assert broker.grant()[4] == {"attempts": 3}
    committing.result()
    take(consumer)
    session.rollback({"attempts": 3, "text": "ValueError"})
    assert broker.grant()[4] == {"attempts": 3, "text": "ValueError"}


def test_txn_09_a_commit_that_ends_as_a_rollback(broker: FakeBroker) -> None:
    session = broker.session(0)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2)
    take(consumer)
    committing = session.commit()
    broker.deliver(consumer, 3)
    broker.refuse(ErrorCode.TRANSACTION_ROLLED_BACK)
    with pytest.raises(TransactionRolledBackException):
        committing.result()
    assert take(consumer) is None  # sent before the broker took it back
    assert [command[0] for command in broker.heard()] == [Command.CREDIT]
    broker.deliver(consumer, 4, count=2)
    assert take(consumer) == "4"


# -- closing ----------------------------------------------------------------------------------------------------------


def test_clo_03_close_session(broker: FakeBroker) -> None:
    session = broker.session(2)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2)
    take(consumer)
    closing = session.close()
    assert broker.grant()[2:] == (session.id, (consumer.id, 1))
    closing.result()
    assert consumer.closed
    assert broker.engine.sessions == {}
    for call in (session.check_open, session.recover, session.acknowledge):
        with pytest.raises(IllegalStateException):
            call()


def test_clo_08_the_gate_is_shut_before_the_session_closes(broker: FakeBroker) -> None:
    session = broker.session()
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1)
    session.shut_gate()
    assert not consumer.flowing
    session.check_open()  # a running listener keeps the full service
    broker.engine.stop()
    broker.engine.start()
    assert not consumer.flowing
    late = broker.consumer(session)
    assert late.shut
    assert not late.flowing


def test_mco_08_an_acknowledgement_for_a_closed_consumer(broker: FakeBroker) -> None:
    session = broker.session(1)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2)
    take(consumer)
    session.close_consumer(consumer)  # in its own listener
    broker.grant()
    consumer.settle()  # the listener returns
    assert broker.heard() == [(Command.ACKNOWLEDGE, consumer.id, 1, 0)]


def test_sub_10_sub_29_subscriptions(broker: FakeBroker) -> None:
    session = broker.session()
    topic = Topic("t")
    with pytest.raises(IllegalStateException):
        session.open_consumer(topic, str(topic), subscription="s", durable=True)
    for name in (None, "", 5, b"s"):
        with pytest.raises(JMSException):
            session.open_consumer(topic, str(topic), subscription=name, shared=True)
    assert broker.heard() == []


# -- browsing ---------------------------------------------------------------------------------------------------------


def test_brw_03_pages(broker: FakeBroker) -> None:
    session = broker.session()
    browser = EngineBrowser(session, Queue("q"), "a = 1")
    assert broker.grant((None,))[2:] == ("queue:q", "a = 1", None, None, 0, 0, 0)
    browser.opened.result()
    scan = Scan(browser)
    assert scan.take() is None
    assert not scan.finished
    page = scan.fetch()
    said = broker.grant((["cursor", 1], (1, envelope("a")), (2, envelope("b")), (1, envelope("c", NOW - 1))))
    page.result()
    assert said[5] is None
    texts = [m.get_text() for m in iter(scan.take, None) if isinstance(m, TextMessage)]
    assert texts == ["a", "b"]  # BRW-09: the third has expired since
    assert not scan.finished
    scan.fetch()
    assert broker.grant((None,))[5] == ("cursor", 1)
    assert scan.finished
    session.close()
    with pytest.raises(IllegalStateException):
        scan.fetch()


def test_ses_32_a_browser_that_is_refused(broker: FakeBroker) -> None:
    session = broker.session()
    with pytest.raises(InvalidSelectorException):
        EngineBrowser(session, Queue("q"), "a >")
    browser = EngineBrowser(session, Queue("q"), None)
    broker.refuse(ErrorCode.INVALID_DESTINATION)
    with pytest.raises(InvalidDestinationException):
        browser.opened.result()
    failing = Scan(browser)
    page = failing.fetch()
    broker.refuse(ErrorCode.INVALID_DESTINATION)
    with pytest.raises(InvalidDestinationException):
        page.result()
    assert not failing.finished


def test_txn_08_ack_12_wrong_kind_of_session(broker: FakeBroker) -> None:
    auto, transacted = broker.session(1), broker.session(0)
    for call in (auto.commit, auto.rollback, transacted.recover):
        with pytest.raises(IllegalStateException):
            call()


def test_ack_07_msg_01_acknowledge_without_effect(broker: FakeBroker) -> None:
    for mode in (0, 1, 3):
        session = broker.session(mode)
        consumer = broker.consumer(session)
        broker.deliver(consumer, 1)
        take(consumer)
        assert session.acknowledge().done
    client = broker.session(2)
    assert client.acknowledge().done  # nothing was received
    assert broker.heard() == []
    client.close()
    with pytest.raises(IllegalStateException):
        client.acknowledge()
