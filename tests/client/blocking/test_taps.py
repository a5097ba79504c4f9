"""Taps and staged sends through the SDK, against a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidSelectorException,
    JMSException,
    Message,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from sievemq.staging import discard, publish, stage
from sievemq.taps import delete_tap, find_tap, open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_core.message.envelope import BODY, PROPERTIES, unpack_properties
from sievemq_core.message.outcomes import OUTCOME, OUTCOME_ATTEMPTS, SELECTOR

QUEUE = Queue("q")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def connection(broker: EmbeddedBroker) -> Iterator[Connection]:
    with ConnectionFactory(broker.url).create_connection() as connection:
        yield connection


def send(connection: Connection, *texts: str, to: Queue | Topic = QUEUE) -> None:
    with connection.create_session() as session, session.create_producer(to) as producer:
        for number, text in enumerate(texts):
            producer.send(TextMessage(text, properties={"n": number}))


def waiting(connection: Connection) -> list[str | None]:
    with connection.create_session() as session:
        return [message.get_body(str) for message in session.create_browser(QUEUE)]


def held(broker: EmbeddedBroker) -> int:
    """Bytes of messages, as the broker counts them."""
    return broker.call(lambda _: broker.server.memory.measure())


def test_a_tap_is_read_in_pages_until_it_is_acknowledged(connection: Connection) -> None:
    send(connection, "old")
    tap, state = open_tap(connection, "t", QUEUE, start="earliest", selector="n >= 0", retain_messages=100)
    assert state.made
    send(connection, *"abcde")
    state = tap.look(0, messages=4)
    assert (state.upto, state.last) == (4, 6)
    pages = list(tap.pages(0, state.upto, limit=3))
    assert [len(page) for page in pages] == [3, 1]
    assert [body for page in pages for body in page.columns[BODY]] == [b"old", b"a", b"b", b"c"]
    assert (pages[1].first, list(pages[1].counts)) == (4, [1])
    assert list(tap.pages(6, 6)) == []
    assert tap.acknowledge(4).acknowledged == 4
    assert [page.first for page in tap.pages(0, 6)] == [5]
    found, state = find_tap(connection, "t", QUEUE)
    assert (found.id, state.first, state.last) == (tap.id, 5, 6)
    assert delete_tap(connection, "t", QUEUE)
    assert not delete_tap(connection, "t", QUEUE)
    with pytest.raises(JMSException, match="there is no tap 't'") as refused:
        tap.fetch(0, 1)
    assert refused.value.get_error_code() == "NOT_FOUND"


def test_a_drain_consumes_and_finding_it_does_not(connection: Connection) -> None:
    send(connection, *"abc")
    tap, _ = open_tap(connection, "t", QUEUE, "drain")
    find_tap(connection, "t", QUEUE)
    assert waiting(connection) == ["a", "b", "c"]
    assert tap.look(0, messages=2).upto == 2
    assert waiting(connection) == ["c"]
    delete_tap(connection, "t", QUEUE)
    assert waiting(connection) == ["a", "b", "c"]


def test_the_lease_of_a_drain(broker: EmbeddedBroker, connection: Connection) -> None:
    send(connection, "a")
    tap, _ = open_tap(connection, "t", QUEUE, "drain", lease=60_000)
    assert tap.look(0).upto == 1
    broker.clock.advance(seconds=61)
    state = tap.look(1)
    assert (state.lost, state.missed, state.upto) == (1, 1, 2)  # it is there again, as number 2
    assert list(tap.fetch(1, 2).counts) == [2]


def test_outcomes_of_messages(broker: EmbeddedBroker, connection: Connection) -> None:
    """In the order in which it became known, with the broker's time."""
    tap, state = open_tap(connection, "fate", QUEUE, "outcomes")
    assert state.mode == "outcomes"
    connection.start()
    with connection.create_session() as session, session.create_consumer(QUEUE, "n = 1") as consumer:
        send(connection, *"ab")
        assert consumer.receive(60_000) is not None
        producer = session.create_producer(QUEUE)
        producer.send(TextMessage("c"), time_to_live=1_000)
        broker.clock.advance(seconds=5)
        taken = tap.look(0)
        page = tap.fetch(0, taken.upto)
        said = [unpack_properties((*(None,) * PROPERTIES, *pair)) for pair in zip(*page.columns[9:11], strict=True)]
    assert [each[OUTCOME] for each in said] == ["acknowledged", "expired"]
    assert (said[0][SELECTOR], said[0][OUTCOME_ATTEMPTS]) == ("n = 1", 1)
    assert page.times[1] - page.times[0] >= 1_000
    assert [body for body in page.columns[BODY] if body] == []


def test_a_topic_and_a_selector_that_is_wrong(connection: Connection) -> None:
    tap, _ = open_tap(connection, "t", Topic("news"))
    send(connection, "a", to=Topic("news"))
    assert tap.look(0).upto == 1
    with pytest.raises(InvalidSelectorException, match=r"\^"):
        open_tap(connection, "u", QUEUE, selector="a ANDD b")


def test_staged_sends_are_published_once(broker: EmbeddedBroker, connection: Connection) -> None:
    names = []
    for text in ("a", "b"):
        with (
            ConnectionFactory(broker.url, reconnect=0).create_connection() as other,
            other.create_session(Session.SESSION_TRANSACTED) as session,
        ):
            session.create_producer(QUEUE).send(TextMessage(text))
            names.append(stage(session, "k", 0))
    assert waiting(connection) == []
    assert publish(connection, "k", 0, names) == 2
    assert publish(connection, "k", 0, names) is None
    assert waiting(connection) == ["a", "b"]


def test_staged_sends_are_forgotten(broker: EmbeddedBroker, connection: Connection) -> None:
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        producer = session.create_producer(QUEUE)
        producer.send(Message())
        name = stage(session, "k", 0, lease=5_000)
        producer.send(Message())
        stage(session, "k", 1)
        assert discard(connection, "k", 1) == 1
        broker.clock.advance(seconds=6)
        with pytest.raises(JMSException, match="Its lease has ended") as refused:
            publish(connection, "k", 0, [name])
        assert refused.value.get_error_code() == "NOT_FOUND"
    with connection.create_session() as plain, pytest.raises(IllegalStateException):
        stage(plain, "k", 2)


def test_taps_and_stages_count_in_the_brokers_memory(broker: EmbeddedBroker, connection: Connection) -> None:
    before = held(broker)
    open_tap(connection, "t", Topic("news"))
    send(connection, "x" * 100_000, to=Topic("news"))  # nobody subscribes: only the tap holds it
    tapped = held(broker)
    assert 100_000 < tapped - before < 101_000
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        session.create_producer(QUEUE).send(TextMessage("x" * 100_000))
        stage(session, "k", 0)
    assert held(broker) - tapped > 100_000


@pytest.mark.parametrize("destination", [Queue("typo"), Topic("typo"), Queue("DLQ.typo")])
def test_a_tap_only_on_what_exists(connection: Connection, destination: Queue | Topic, broker: EmbeddedBroker) -> None:
    with pytest.raises(JMSException, match=rf"there is no {destination} in namespace") as caught:
        open_tap(connection, "t", destination, existing=True)
    assert (caught.value.get_error_code(), caught.value.details["destination"]) == ("NOT_FOUND", str(destination))
    assert broker.call(lambda inner: inner.namespace("").find(str(destination))) is None
    send(connection, "x")
    for there in (QUEUE, Queue("DLQ.q")):  # dead letters of the queue would go there
        assert open_tap(connection, "t", there, existing=True)[1].made
        assert not open_tap(connection, "t", there, existing=True)[1].made


def test_a_tap_has_one_reader_at_a_time(broker: EmbeddedBroker, connection: Connection) -> None:
    send(connection, "x")
    with ConnectionFactory(broker.url).create_connection() as other:
        open_tap(other, "t", QUEUE, reader="one")
        open_tap(connection, "t", QUEUE, reader="one")  # the same reader over another connection
        open_tap(connection, "t", QUEUE)  # a look
        with pytest.raises(JMSException, match="is being read by another query") as caught:
            open_tap(other, "t", QUEUE, reader="two")
        assert (caught.value.get_error_code(), caught.value.details["claimed"]) == ("ILLEGAL_STATE", True)
        open_tap(other, "u", QUEUE, reader="two")
    connection.close()
    with ConnectionFactory(broker.url).create_connection() as later:
        open_tap(later, "t", QUEUE, reader="two")
