"""Taps and published batches over a restart with a data directory: the same tap, the same messages and numbers."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from sievemq import Connection, ConnectionFactory, DeliveryMode, JMSException, Queue, Session, TextMessage, Topic
from sievemq.staging import publish, stage
from sievemq.taps import delete_tap, find_tap, open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.restore import restore
from sievemq_broker.store import SqliteStore
from sievemq_broker.store.database import DATABASE
from sievemq_broker.store.salvage import check, export, repair
from sievemq_broker.store.sqlite_rows import DirectoryRows
from sievemq_core.message.envelope import BODY, MESSAGE_ID

from .support import NOW, DictStore, message, name_of, saved_in

QUEUE, TOPIC = Queue("q"), Topic("t")


def broker_in(folder: Path) -> EmbeddedBroker:
    return EmbeddedBroker(settings={"data_dir": str(folder)})


def connect(broker: EmbeddedBroker) -> Connection:
    return ConnectionFactory(broker.url).create_connection()


def send(connection: Connection, *texts: str, to: Queue | Topic = QUEUE, mode: int = DeliveryMode.PERSISTENT) -> None:
    with connection.create_session() as session, session.create_producer(to) as producer:
        for text in texts:
            producer.send(TextMessage(text, properties={"n": len(text)}), delivery_mode=mode)


def bodies(pages: Any) -> list[str]:
    return [body.decode() for page in pages for body in page.columns[BODY]]


def test_a_large_batch_outlives_a_broker_that_ends_while_it_is_published(tmp_path: Path) -> None:
    """Once PUBLISH is answered all of it is kept; else all of it or nothing."""
    batches = [[f"{batch}.{n}" for n in range(3_000)] for batch in range(2)]

    def stage_all(connection: Connection, batch: int) -> str:
        with connection.create_session(Session.SESSION_TRANSACTED) as session:
            producer = session.create_producer(QUEUE)
            for text in batches[batch]:
                producer.send(TextMessage(text))
            return stage(session, "query", batch)

    with ThreadPoolExecutor(1) as threads, broker_in(tmp_path) as broker:
        connection = ConnectionFactory(broker.url, reconnect=0).create_connection()
        assert publish(connection, "query", 0, [stage_all(connection, 0)]) == 3_000
        name = stage_all(connection, 1)
        second = threads.submit(publish, connection, "query", 1, [name])
        broker.stop()
        error = second.exception()
        connection.close()
    with broker_in(tmp_path) as broker, connect(broker) as connection, connection.create_session() as session:
        found = [message.get_body(str) for message in session.create_browser(QUEUE)]
        assert found[:3_000] == batches[0]
        assert found[3_000:] == batches[1] or (error is not None and found[3_000:] == [])
        assert publish(connection, "query", 0, []) is None


def test_outcomes_are_stored_with_their_messages(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker, connect(broker) as connection, connection.create_session() as session:
        tap, _ = open_tap(connection, "fate", QUEUE, "outcomes")
        connection.start()
        consumer = session.create_consumer(QUEUE)
        send(connection, "a", "b")
        assert consumer.receive(60_000) is not None
        consumer.close()
    with broker_in(tmp_path) as broker, connect(broker) as connection, connection.create_session() as session:
        found, state = find_tap(connection, "fate", QUEUE)
        assert (found.id, state.mode, state.last) == (tap.id, "outcomes", 1)
        connection.start()
        assert session.create_consumer(QUEUE).receive(60_000) is not None
        assert found.look(1).upto == 2
        ids = [str(each) for page in found.pages(0, 2) for each in page.columns[MESSAGE_ID]]
        assert len(set(ids)) == 2


def test_copy_taps_continue_after_a_restart(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker, connect(broker) as connection:
        send(connection, "old")
        queue, _ = open_tap(connection, "audit", QUEUE, start="earliest", retain_messages=4)
        topic, _ = open_tap(connection, "audit", TOPIC, selector="n > 1")
        delete_tap(connection, "gone", QUEUE)
        open_tap(connection, "gone", QUEUE)
        send(connection, "a", "b", "c", mode=DeliveryMode.NON_PERSISTENT)  # kept for the tap, not for the queue
        queue.acknowledge(1)
        send(connection, "d", "e")  # one too many: 'a' goes
        send(connection, "x", "yy", to=TOPIC)
        delete_tap(connection, "gone", QUEUE)
    with broker_in(tmp_path) as broker, connect(broker) as connection:
        found, state = find_tap(connection, "audit", QUEUE)
        assert (found.id, state.first, state.last) == (queue.id, 3, 6)
        assert (state.acknowledged, state.lost, state.missed) == (1, 2, 1)
        assert bodies(found.pages(2, 6)) == ["b", "c", "d", "e"]
        assert bodies(find_tap(connection, "audit", TOPIC)[0].pages(0, 1)) == ["yy"]
        with pytest.raises(JMSException, match="there is no tap 'gone'"):
            find_tap(connection, "gone", QUEUE)
        send(connection, "f")
        send(connection, "z", "zz", to=TOPIC)
        assert bodies(found.pages(6, found.look(6).upto)) == ["f"]
        found.acknowledge(7)
        assert open_tap(connection, "audit", TOPIC, selector="n > 1")[1].last == 2
    with broker_in(tmp_path) as broker, connect(broker) as connection:
        found, state = find_tap(connection, "audit", QUEUE)
        assert (state.first, state.last, state.acknowledged) == (8, 7, 7)
        assert found.id == queue.id
        assert find_tap(connection, "audit", TOPIC)[0].id == topic.id


def test_messages_of_a_drain_return_to_their_queue_after_a_restart(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker, connect(broker) as connection:
        send(connection, "a", "b", "c")
        tap, _ = open_tap(connection, "nightly", QUEUE, "drain")
        assert tap.look(0, messages=2).upto == 2
        tap.acknowledge(1)
    with broker_in(tmp_path) as broker, connect(broker) as connection:
        found, state = find_tap(connection, "nightly", QUEUE)
        assert (found.id, state.last, state.lost, state.missed) == (tap.id, 2, 2, 1)
        assert found.look(2).upto == 4
        page = found.fetch(2, 4)
        assert (bodies([page]), list(page.counts)) == (["b", "c"], [2, 1])


def test_a_batch_is_published_once_over_a_restart(tmp_path: Path) -> None:
    def staged(connection: Connection, batch: int) -> str:
        with connection.create_session(Session.SESSION_TRANSACTED) as session:
            session.create_producer(QUEUE).send(TextMessage(str(batch)))
            return stage(session, "query", batch)

    with broker_in(tmp_path) as broker, connect(broker) as connection:
        assert publish(connection, "query", 0, [staged(connection, 0)]) == 1
        lost = staged(connection, 1)
    with broker_in(tmp_path) as broker, connect(broker) as connection:
        assert publish(connection, "query", 0, [staged(connection, 0)]) is None
        with pytest.raises(JMSException, match="stage it again"):
            publish(connection, "query", 1, [lost])
        assert publish(connection, "query", 1, [staged(connection, 1)]) == 1
        with connection.create_session() as session:
            assert [each.get_body(str) for each in session.create_browser(QUEUE)] == ["0", "1"]


def test_every_prefix_is_a_tap(tmp_path: Path) -> None:
    """Cut between any two verbs, the tap is as it was then: what was lost or acknowledged stays so, what was not is
    there."""
    store = DictStore()
    broker = Broker()
    broker.keep_in(Journal())
    space = broker.namespace("n")
    tap = space.taps.open("id", "t", "queue:q", "copy", None, {"retain_messages": 3}, NOW)

    def same() -> None:
        store.write(broker.journal.cut(), NOW)  # type: ignore[union-attr]  # it has one
        again = Broker()
        restore(again, store.copy(), NOW)
        other = again.namespace("n").taps.find("t", "queue:q")
        for name in ("acknowledged", "lost", "missed", "id", "terms", "mode"):
            assert getattr(other, name) == getattr(tap, name), name
        assert (other.log.first, other.log.last, other.log.bytes) == (tap.log.first, tap.log.last, tap.log.bytes)
        kept = [[name_of(each.packed) for each in log.slice(0, 99, 99, 0)] for log in (tap.log, other.log)]
        assert kept[0] == kept[1]

    same()
    for number in range(8):
        space.send("queue:q", message(f"m{number}", mode=1 + number % 2), NOW)
        same()
        if number in (1, 5):
            tap.acknowledge(tap.id, tap.log.first, NOW)
            same()
    tap.acknowledge(tap.id, tap.log.last, NOW)
    same()
    space.taps.drop(tap, NOW)
    store.write(broker.journal.cut(), NOW)
    assert not store.definitions("tap")
    assert {entry.owner for entry in saved_in(store)} <= {1}  # the queue's own


def test_the_store_commands_know_taps_and_a_repaired_store_has_none(tmp_path: Path) -> None:
    """What was damaged may leave a hole in a tap's sequence, which has none: its readers must find another tap."""
    store = SqliteStore(tmp_path, "broker", reserve=0)
    broker = Broker()
    restore(broker, store, NOW)
    assert broker.journal is not None
    space = broker.namespace("n")
    space.taps.open("id", "t", "queue:q", "copy", None, {}, NOW)
    for number in range(3):
        space.send("queue:q", message(f"m{number}"), NOW)
        store.write(broker.journal.cut(), NOW)
    store.close()
    assert check(DirectoryRows(tmp_path)).messages == 6
    out = StringIO()
    export(DirectoryRows(tmp_path), out.write)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["message_id"] for line in lines if line.get("tap") == "t"] == ["m0", "m1", "m2"]
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
        database.execute("UPDATE batch SET data = x'00' WHERE id = 2")
    repair(tmp_path, lambda: "broker")
    store = SqliteStore(tmp_path, reserve=0)
    again = Broker()
    restore(again, store, NOW)
    store.close()
    assert len(again.namespace("n").taps) == 0
    assert again.namespace("n").queue("queue:q").depth == 2
