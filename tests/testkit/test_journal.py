"""The journal: everything that happened, why not, bounded, and as text."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from sievemq import (
    ConnectionFactory,
    InvalidSelectorRuntimeException,
    JMSContext,
    MapMessage,
    Queue,
    Topic,
    TransactionRolledBackRuntimeException,
)
from sievemq_broker.embedded import BrokerClock
from sievemq_testing import BrokerFactory, TestBroker, TestNamespace
from sievemq_testing.excerpt import excerpt
from sievemq_testing.journal import Journal

SOON = 60.0
ORDERS = Queue("orders")


def kinds(namespace: TestNamespace) -> list[str]:
    return [event.kind for event in namespace.journal]


def test_the_life_of_a_message(sievemq_namespace: TestNamespace) -> None:
    sievemq_namespace.queue("orders").configure(max_attempts=2)
    with ConnectionFactory(sievemq_namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        context.commit()
        consumer = context.create_consumer(ORDERS)
        for _ in range(2):
            assert consumer.receive(60_000) is not None
            context.rollback()
    assert kinds(sievemq_namespace) == [
        "connected", "sent", "accepted", "committed", "consumer opened",
        "delivered", "rolled back", "redelivered", "delivered", "rolled back", "redelivered",
        "accepted", "dead-lettered", "disconnected",
    ]  # fmt: skip
    dead = sievemq_namespace.journal[-2]
    assert (dead.where, dead.detail) == ("queue:orders", "reason: attempts, after 2 failed attempts")
    assert dead.message_id.startswith("ID:")
    sievemq_namespace.assert_nothing_lost()


def test_expired_and_removed_messages_are_lost(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock
) -> None:  # type: ignore[no-untyped-def]
    sievemq_context.create_producer().set_time_to_live(1_000).send(ORDERS, "short")
    sievemq_clock.advance(seconds=2)
    assert kinds(sievemq_namespace)[-1] == "expired"
    sievemq_namespace.assert_nothing_lost(allow_expired=True)
    with pytest.raises(AssertionError, match=r"1 message is lost .*\n  expired: queue:orders .* 'short'"):
        sievemq_namespace.assert_nothing_lost()
    sievemq_context.create_producer().send(ORDERS, "purged")
    sievemq_namespace.queue("orders").purge()
    with pytest.raises(AssertionError, match=r"removed: queue:orders .* 'purged'"):
        sievemq_namespace.assert_nothing_lost(allow_expired=True)


@pytest.mark.parametrize(
    ("at_limit", "kind", "detail"),
    [("drop-oldest", "removed", "reason: oldest"), ("drop-newest", "refused", "dropped: the queue is at its limit")],
)
def test_messages_dropped_at_a_limit_are_recorded(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, at_limit: str, kind: str, detail: str
) -> None:
    sievemq_namespace.queue("orders").configure(max_messages=1, at_limit=at_limit)
    sievemq_context.create_producer().send(ORDERS, "x").send(ORDERS, "y")
    (event,) = [event for event in sievemq_namespace.journal if event.kind == kind]
    assert (event.where, event.detail) == ("queue:orders", detail)


def test_nothing_lost_waits_for_acknowledgements(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    sievemq_context.create_producer().send(ORDERS, "x")
    assert sievemq_context.create_consumer(ORDERS).receive(60_000) is not None
    sievemq_namespace.assert_nothing_lost(within=SOON)
    assert kinds(sievemq_namespace)[-1] == "acknowledged"


def test_excerpt_explains_why_nothing_came(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    consumer = sievemq_context.create_consumer(ORDERS, "region = 'EU' AND amount > 100")
    producer = sievemq_context.create_producer()
    producer.set_property("region", "EU").set_property("amount", 90).send(ORDERS, "too small")
    producer.clear_properties().set_property("region", "US").send(ORDERS, "too far")
    assert consumer.receive_no_wait() is None
    text = sievemq_namespace.excerpt()
    assert "never delivered: 2" in text
    assert "amount > 100 is FALSE (amount is 90" in text
    assert "region = 'EU' is FALSE (region is 'US'); amount > 100 is UNKNOWN (amount is" in text
    assert "wants \"region = 'EU' AND amount > 100\"" in text


def test_excerpt_shows_properties_for_selectors(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    message = sievemq_context.create_bytes_message()
    message.write_bytes(b"four")
    message.set_jms_type("order")
    message.set_jms_correlation_id("c-1")
    for number in range(40):
        message.set_int_property(f"n{number}", number)
    sievemq_context.create_producer().set_priority(9).send(Queue("orders"), message)
    text = sievemq_namespace.excerpt()
    for part in ("JMSType='order'", "JMSCorrelationID='c-1'", "JMSPriority=9", "n0=0", "more properties", "4 bytes of"):
        assert part in text, text


def test_excerpt_explains_a_selector_that_came_later(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext
) -> None:
    sievemq_context.create_producer().set_property("n", 1).send(ORDERS, "x")
    sievemq_context.create_consumer(ORDERS, "n = 2").close()
    text = sievemq_namespace.excerpt()
    assert 'wants "n = 2": n = 2 is FALSE (n is 1' in text
    assert "consumer closed" in text


def test_excerpt_names_the_queue_that_was_probably_meant(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext
) -> None:
    sievemq_context.create_producer().send(ORDERS, "x")
    assert "\n      no consumer is open on queue:orders\n" in sievemq_namespace.excerpt() + "\n"
    sievemq_context.create_consumer(Queue("order"))
    assert "no consumer is open on queue:orders; there is queue:order" in sievemq_namespace.excerpt()


def test_excerpt_names_the_topic_that_was_probably_meant(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext
) -> None:
    sievemq_context.create_consumer(Topic("prices"))
    sievemq_context.create_producer().send(Topic("price"), "9").send(Topic("elsewhere"), "8").send(Topic("prices"), "7")
    lines = sievemq_namespace.excerpt().splitlines()
    (unheard,) = [number for number, line in enumerate(lines) if "not matched     topic:price " in line]
    assert lines[unheard].endswith("(no subscription)")
    assert lines[unheard + 1].strip() == "there is topic:prices"
    assert sum("there is" in line for line in lines) == 1


def test_excerpt_names_the_property_that_was_probably_meant(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext
) -> None:
    sievemq_context.create_consumer(ORDERS, "region = 'EU' AND amuont > 1 AND other = 1")
    sievemq_context.create_producer().set_property("Region", "EU").set_property("amount", 2).send(ORDERS, "x")
    text = sievemq_namespace.excerpt()
    assert "region = 'EU' is UNKNOWN (region is absent; there is Region)" in text
    assert "amuont > 1 is UNKNOWN (amuont is absent; there is amount)" in text
    assert "other = 1 is UNKNOWN (other is absent)" in text


def test_excerpt_says_that_the_connection_was_never_started(sievemq_namespace: TestNamespace) -> None:
    with ConnectionFactory(sievemq_namespace.url).create_connection() as connection:
        session = connection.create_session()
        session.create_consumer(ORDERS)
        session.create_producer(ORDERS).send(session.create_text_message("x"))
        name = f"consumer 1 of {sievemq_namespace.connections[0].id}"
        reason = "its connection was never started: call connection.start()"
        assert f"{name} is open, but {reason}" in sievemq_namespace.excerpt()
        with pytest.raises(AssertionError):
            sievemq_namespace.queue("orders").assert_consumed()
    assert f"{name} was open, but {reason}" in sievemq_namespace.excerpt()


def test_excerpt_says_that_a_consumer_holds_all_that_it_may(sievemq_namespace: TestNamespace) -> None:
    factory = ConnectionFactory(sievemq_namespace.url, prefetch=1)
    with factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        consumer = context.create_consumer(ORDERS)
        for text in ("one", "two", "three"):
            context.create_producer().send(ORDERS, text)
        assert consumer.receive(60_000) is not None
        sievemq_namespace.wait_until_idle()
        text = sievemq_namespace.excerpt()
    assert re.search(r"is open, but it holds \d messages? unacknowledged, as many as it may", text)


def test_excerpt_says_that_the_queue_is_paused(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    sievemq_namespace.queue("orders").pause()
    sievemq_context.create_producer().send(ORDERS, "x")
    assert "      the queue is paused" in sievemq_namespace.excerpt()


def test_delays_are_shown_in_seconds_until_they_are_over(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    sievemq_clock.freeze()
    sievemq_context.create_producer().set_delivery_delay(60_000).send(ORDERS, "later")
    (accepted,) = sievemq_namespace._journal().of("accepted")
    assert accepted.detail == "due in 60 s; advance the clock"
    sievemq_clock.advance(seconds=20)
    text = sievemq_namespace.excerpt()
    assert re.search(r"not due yet: 1\n  queue:orders ID:\S+ 'later'\n      due in 40 s; advance the clock", text)
    sievemq_clock.advance(seconds=40)
    assert "due in" not in sievemq_namespace.excerpt().partition("never delivered")[2]


def test_connections_are_named_when_they_come_and_go(sievemq_namespace: TestNamespace) -> None:
    with ConnectionFactory(sievemq_namespace.url, application="shop").create_context():
        (open_one,) = sievemq_namespace.connections
    connected, disconnected = sievemq_namespace.journal
    assert connected.detail.startswith(f"{open_one.id}: sievemq-python/")
    assert disconnected.detail == f"{open_one.id}: closed"


@pytest.mark.parametrize("end", ["close", "lose"])
def test_uncommitted_sends_are_reported(sievemq_namespace: TestNamespace, end: str) -> None:
    with ConnectionFactory(sievemq_namespace.url, reconnect=0).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        assert sievemq_namespace.broker.wait_for(lambda _: sievemq_namespace._journal().of("sent"), SOON)
        if end == "lose":
            sievemq_namespace.faults.drop_connections()
    (event,) = sievemq_namespace._journal().of("rolled back")
    assert event.detail == "1 send never committed"


@pytest.mark.parametrize("end", ["room", "timeout"])
def test_a_commit_that_waits_for_room_is_committed_when_it_ends(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, end: str
) -> None:
    orders = sievemq_namespace.queue("orders")
    orders.configure(max_messages=2, at_limit="block")
    sievemq_context.create_producer().send(ORDERS, "in the way")
    url = f"{sievemq_namespace.url}?send_timeout={60_000 if end == 'room' else 1_000}"
    failed: list[Exception] = []

    def commit(context: JMSContext) -> None:
        try:
            context.commit()
        except TransactionRolledBackRuntimeException as error:
            failed.append(error)

    with ConnectionFactory(url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        for text in ("first", "second"):
            context.create_producer().send(ORDERS, text)
        thread = threading.Thread(target=commit, args=(context,))
        thread.start()
        assert sievemq_namespace.broker.wait_for(lambda broker: broker.rooms.waiting, SOON)
        assert not sievemq_namespace._journal().of("committed")
        if end == "room":
            assert sievemq_context.create_consumer(ORDERS).receive_body(str, 60_000) == "in the way"
        thread.join(SOON)
    events = [event for event in sievemq_namespace.journal if event.kind in ("accepted", "committed", "rolled back")]
    ends = [(event.kind, event.detail) for event in events if event.kind != "accepted"]
    if end == "room":
        assert ends == [("committed", "2 sends")]
        assert [event.kind for event in events] == ["accepted"] * 3 + ["committed"]
        assert not failed
    else:
        ((kind, detail),) = ends
        assert kind == "rolled back"
        assert detail.startswith("commit refused: waited for room")
        assert len(failed) == 1


def test_excerpt_hints_at_another_namespace_that_was_used_meanwhile(
    sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace
) -> None:
    before = sievemq_test_broker.namespace("used-before")
    with ConnectionFactory(before.url).create_context() as context:
        context.create_producer().send(ORDERS, "x")
    namespace = sievemq_test_broker.namespace("of-this-test")
    assert "was used meanwhile" not in namespace.excerpt()
    with ConnectionFactory(sievemq_namespace.url).create_context() as context:
        context.create_producer().send(ORDERS, "x")
    text = namespace.excerpt()
    assert f"namespace {sievemq_namespace.name!r} was used meanwhile; its last event:\n" in text
    assert "the application connects with its URL (sievemq_url)" in text
    assert "used-before" not in text
    before.drop()
    namespace.drop()


def test_excerpt_hints_at_the_default_namespace(sievemq_broker_factory: BrokerFactory) -> None:
    broker = sievemq_broker_factory()
    namespace = broker.namespace("of-this-test")
    with ConnectionFactory(broker.url).create_context() as context:  # not namespace.url
        context.create_producer().send(ORDERS, "x")
    assert "namespace 'default' was used meanwhile; its last event:\n" in namespace.excerpt()


def test_assertions_name_the_consumer_that_holds_a_message(sievemq_namespace: TestNamespace) -> None:
    orders = sievemq_namespace.queue("orders")
    with ConnectionFactory(sievemq_namespace.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        context.create_producer().send(ORDERS, "x")
        assert context.create_consumer(ORDERS).receive(60_000) is not None
        (connection,) = sievemq_namespace.connections
        holder = rf"\n  consumer 1 of {connection.id} holds 1 message unacknowledged:\n    ID:\S+ 'x'"
        with pytest.raises(AssertionError, match=rf"should have been consumed; none were{holder}"):
            orders.assert_consumed()
        with pytest.raises(AssertionError, match=rf"is not empty: .*{holder}"):
            orders.assert_empty()
        assert f"'x'\n      consumer 1 of {connection.id} holds it" in sievemq_namespace.excerpt()


def test_excerpt_shows_unacknowledged_messages(sievemq_namespace: TestNamespace) -> None:
    with ConnectionFactory(sievemq_namespace.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        context.create_producer().send(ORDERS, MapMessage({"a": 1}))
        assert context.create_consumer(ORDERS).receive(60_000) is not None
        text = sievemq_namespace.excerpt()
    assert "delivered and never acknowledged: 1" in text
    assert "bytes of map" in text
    assert "with 1 message unacknowledged" not in text
    assert "disconnected" in sievemq_namespace.excerpt()


def test_messages_returned_unseen_are_neither_delivered_nor_in_flight(sievemq_namespace: TestNamespace) -> None:
    with ConnectionFactory(sievemq_namespace.url, prefetch=10).create_context() as context:
        context.create_producer().send(ORDERS, "x").send(ORDERS, "y")
        consumer = context.create_consumer(ORDERS)
        assert consumer.receive_body(str, 60_000) == "x"
        consumer.close()
    orders = sievemq_namespace.queue("orders")
    orders.assert_consumed(count=1, within=SOON)
    assert [message.get_body(str) for message in orders.messages()] == ["y"]
    text = sievemq_namespace.excerpt()
    assert "delivered and never acknowledged" not in text
    assert "never delivered: 1" in text
    broker = sievemq_namespace.broker
    journal = broker.call(lambda _: broker._watch.recorder.of(sievemq_namespace.name))
    assert {fate.last for fate in journal.fates.values()} == {"acknowledged", "accepted"}


def test_a_topic_view_names_subscriptions_that_did_not_match(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext
) -> None:
    sievemq_context.create_producer().send(Topic("prices"), "too early")
    sievemq_context.create_consumer(Topic("prices"), "symbol = 'ACME'")
    sievemq_context.create_consumer(Topic("prices"))
    sievemq_context.create_producer().set_property("symbol", "INIT").send(Topic("prices"), "9")
    first, second = sievemq_namespace._journal().of("not matched")
    assert first.detail == "no subscription"
    assert second.detail == "by 1 of 2 subscriptions"
    assert "no to \"symbol = 'ACME'\": symbol = 'ACME' is FALSE (symbol is 'INIT')" in sievemq_namespace.excerpt()


def test_not_of_something_true_is_explained(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    sievemq_context.create_consumer(ORDERS, "NOT (urgent = TRUE)")
    sievemq_context.create_producer().set_property("urgent", True).send(ORDERS, "x")
    assert "urgent = TRUE is TRUE (urgent is TRUE" in sievemq_namespace.excerpt()


def test_refused_consumer_is_in_the_journal(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    with pytest.raises(InvalidSelectorRuntimeException):
        sievemq_context.create_consumer(ORDERS, "a == 1")
    sievemq_namespace.faults.refuse("open_consumer", text="not now")
    with pytest.raises(Exception, match="not now"):
        sievemq_context.create_consumer(ORDERS)
    assert "fault" in kinds(sievemq_namespace)


def test_a_faulty_send_is_explained(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    with sievemq_namespace.faults.refuse("send", text="the disk is full"), pytest.raises(Exception, match="disk"):
        sievemq_context.create_producer().send(ORDERS, "x")
    assert "the disk is full (RESOURCE_ALLOCATION)" in sievemq_namespace.excerpt()


def test_the_journal_is_bounded() -> None:
    with TestBroker(journal_events=20) as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            for number in range(50):
                context.create_producer().send(ORDERS, str(number))
        assert len(broker.journal) == 20
        assert "older ones were forgotten" in broker.excerpt()
        with pytest.raises(AssertionError, match=r"\d+ more were received before, which the journal no longer has"):
            broker.queue("orders").assert_received(count=50)
        journal: Journal = broker.call(lambda _: broker._watch.recorder.of("default"))
        assert len(journal.fates) <= 20
        assert journal.open_dropped >= 30
        assert broker.queue("orders").depth == 50  # the messages themselves are all there


def test_no_exact_count_after_the_journal_dropped_events() -> None:
    with TestBroker(journal_events=20) as broker, ConnectionFactory(broker.url).create_context() as context:
        for number in range(50):
            context.create_producer().send(ORDERS, str(number))
        orders = broker.queue("orders")
        found = len(orders.assert_received())  # at least one: that much is known
        for count in (found, 0):
            with pytest.raises(AssertionError, match=r"TestBroker\(journal_events=…\) keeps more"):
                orders.assert_received("JMSPriority = 4" if count else "JMSPriority = 5", count=count)
        broker.queue("others").assert_received(count=0)  # nothing of these was forgotten


def test_nothing_lost_ignores_messages_dropped_from_the_journal(
    sievemq_broker_factory: Callable[..., TestBroker],
) -> None:
    broker = sievemq_broker_factory(journal_events=40)
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(ORDERS, "purged")
        broker.queue("orders").purge()
        consumer = context.create_consumer(Queue("work"))
        for number in range(100):
            context.create_producer().send(Queue("work"), str(number))
            assert consumer.receive(60_000) is not None
        with pytest.raises(AssertionError, match=r"removed: queue:orders .* 'purged'"):
            broker.assert_nothing_lost()  # what went well was forgotten in its stead
        for number in range(50):
            context.create_producer().send(ORDERS, str(number))
        broker.namespace("default").wait_until_idle()
        assert broker.queue("orders").depth == 50
        with pytest.raises(AssertionError, match="had to forget"):
            broker.assert_nothing_lost()


def test_a_full_journal_forgets_settled_messages_first() -> None:
    with TestBroker(journal_events=40) as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(ORDERS, "stays")
        consumer = context.create_consumer(Queue("work"))
        for number in range(100):
            context.create_producer().send(Queue("work"), str(number))
            assert consumer.receive(60_000) is not None
        journal: Journal = broker.call(lambda _: broker._watch.recorder.of("default"))
        assert any(fate.where == "queue:orders" for fate in journal.fates.values())
        assert "queue:orders" in broker.excerpt()
        assert len(journal.fates) <= 40


def test_excerpt_shows_the_end_only(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    for _ in range(30):
        sievemq_context.create_producer().send(ORDERS, "x")
    assert "61 events, the last 40 of them (--sievemq-trace shows all)" in sievemq_namespace.excerpt()
    assert sievemq_namespace.excerpt(None).count(" accepted ") == 30
    assert "and 20 more" in sievemq_namespace.excerpt()


def test_a_long_excerpt_is_written_in_pieces(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        sievemq_context.create_producer().send(ORDERS, "x")
    sievemq_namespace.broker.wait_until_idle()
    whole = sievemq_namespace.excerpt(None)
    monkeypatch.setattr("sievemq_testing.excerpt._PIECE", 7)
    pieces = list(excerpt(sievemq_namespace._journal(), 0, ["queue:orders"], None))
    assert len(pieces) >= 2 + 60 // 7
    assert max(piece.count("\n") for piece in pieces[1:-1]) == 6
    assert sievemq_namespace.excerpt(None) == whole


def test_a_plain_embedded_broker_has_no_journal_and_pays_nothing_for_it() -> None:
    from sievemq_broker import EmbeddedBroker

    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context():
        assert broker.call(lambda b: b.observers) == ()
        watchers = broker.call(lambda _: [peer.watcher for peer in broker.server.shard.services.connections.values()])
        assert watchers == [None]
