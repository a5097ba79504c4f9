"""Brokers on one PostgreSQL database. What a takeover does in all cases is in test_takeover.py, over a fake of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker.server.wire_client import WireClient

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.store import StoreError
from sievemq_core.wire.commands import Command

from .sharing import DEADLINE, RARE, get, hosts, is_away, last_words, outwait_lease, pass_lease, send, until

pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")
from sievemq_broker.store import postgres_connection, postgres_tool

if TYPE_CHECKING:
    from tests.postgres import Database

SOON = int(DEADLINE * 1_000)

#: A lease that ends when a test says so.
LONG = {"beat_seconds": 0.05, "lease_seconds": 60.0}


@contextmanager
def broker(database: Database, shard: str, terms: dict[str, float], **options: Any) -> Iterator[EmbeddedBroker]:
    settings = {"shard": shard, **terms}
    with EmbeddedBroker(store=database.url, settings=settings, **options) as started:
        yield started


def names(broker: EmbeddedBroker, count: int) -> list[str]:
    """The texts of so many messages of the queue."""
    with ConnectionFactory(broker.url).create_context() as context:
        consumer = context.create_consumer(context.create_queue("q"))
        return [str(consumer.receive_body(str, SOON)) for _ in range(count)]


def cut(database: Database, shard: str) -> None:
    """End all connections of the shard's brokers, as a restart of the database does."""
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s", f"sievemq {shard}%"
    )


def test_a_follower_goes_on_with_the_record_of_actions(database: Database) -> None:
    shard = database.shard()
    with broker(database, shard, LONG) as owner, broker(database, shard, LONG) as follower:
        owner._submit(lambda server: server.audit.record("purge_messages", via="http", user="ops")).result()
        owner.stop()
        follower.wait_until_serving(DEADLINE)
        loaded = threading.Event()
        follower._submit(lambda server: server.history.when_loaded(loaded.set)).result()
        assert loaded.wait(DEADLINE)
        follower._submit(lambda server: server.audit.record("pause_destination", via="http")).result()
        rows = follower._submit(lambda server: list(server.audit.since(0))).result()
    assert [(row["action"], row.get("user")) for row in rows] == [
        ("purge_messages", "ops"),
        ("pause_destination", None),
    ]


def test_a_follower_goes_on_where_the_owner_stopped(database: Database) -> None:
    shard = database.shard()
    with (
        broker(database, shard, LONG, http=True) as owner,
        broker(database, shard, LONG, http=True) as follower,
        ConnectionFactory(f"{hosts(owner, follower)}?reconnect={SOON}").create_context(
            JMSContext.SESSION_TRANSACTED
        ) as context,
    ):
        queue = context.create_queue("q")
        producer, consumer = context.create_producer(), context.create_consumer(queue)
        for number in range(100):
            producer.send(queue, str(number))
        context.commit()
        assert [get(each, "/activez")[0] for each in (owner, follower)] == [200, 503]
        assert get(follower, "/api/v1/broker")[1]["details"]["owner"] == owner.url
        assert [consumer.receive_body(str, SOON) for _ in range(50)] == list(map(str, range(50)))
        context.commit()
        owner.stop()
        assert [consumer.receive_body(str, SOON) for _ in range(50)] == list(map(str, range(50, 100)))
        context.commit()
        assert get(follower, "/activez")[0] == 200
        follower.stop()
    with broker(database, shard, LONG) as last, ConnectionFactory(last.url).create_context() as context:
        assert context.create_consumer(context.create_queue("q")).receive_no_wait() is None


def test_a_spare_process_takes_the_shard_that_is_free(database: Database) -> None:
    """One whose name is as long as it may be."""
    names_of = [f"{database.shard():x<40}", database.shard()]
    settings = {"shards": names_of, **LONG}
    with (
        EmbeddedBroker(store=database.url, settings=settings) as first,
        EmbeddedBroker(store=database.url, settings=settings) as second,
        EmbeddedBroker(store=database.url, settings=settings) as spare,
    ):
        for owner, text in ((first, "one"), (second, "two")):
            owner.wait_until_serving(DEADLINE)
            with ConnectionFactory(owner.url).create_context() as context:
                context.create_producer().send(context.create_queue("q"), text)
        assert [owner.server.shard.name for owner in (first, second)] == names_of
        look = "SELECT count(DISTINCT application_name) FROM pg_stat_activity WHERE application_name = ANY(%s)"
        kinds = [f"sievemq {name}{kind}" for name in names_of for kind in ("", " lease", " follower")]
        assert database.execute(look, kinds) == [(6,)]
        first.stop()
        spare.wait_until_serving(DEADLINE)
        assert spare.server.shard.name == names_of[0]
        assert (names(spare, 1), names(second, 1)) == (["one"], ["two"])


def test_connections_outlive_those_to_the_database(database: Database) -> None:
    shard = database.shard()
    with broker(database, shard, LONG) as owner, WireClient(owner.port) as client:
        client.open_session()
        for sequence in range(1, 6):
            cut(database, shard)
            send(client, sequence)
            assert client.until(Command.CONFIRM)[1:] == (1, sequence)
        assert owner.server.is_active
    assert database.execute("SELECT released FROM sievemq.lease WHERE shard = %s", shard) == [(True,)]


def test_a_superseded_owner_writes_nothing_more(database: Database) -> None:
    shard = database.shard()
    with broker(database, shard, RARE) as owner, WireClient(owner.port) as client:
        client.open_session()
        send(client, 1)
        client.until(Command.CONFIRM)
        database.take(shard, "another")
        send(client, 2)
        assert Command.CONFIRM not in last_words(client)
        with pytest.raises(RuntimeError, match="another broker has taken the shard over"):
            _ = owner.url
    database.execute("UPDATE sievemq.lease SET released = true WHERE shard = %s", shard)
    with broker(database, shard, LONG) as last:
        assert last.call(lambda domain: domain.namespace("default").queue("queue:q").depth) == 1


def test_an_owner_that_is_still_is_superseded_after_the_lease(database: Database) -> None:
    """Its process has stopped in the middle of everything, and goes on when another one serves."""
    shard = database.shard()
    with broker(database, shard, LONG) as owner, broker(database, shard, LONG) as follower:
        with ConnectionFactory(owner.url).create_context() as context:
            context.create_producer().send(context.create_queue("q"), "kept")
        with WireClient(owner.port) as client:
            client.open_session()
            keeper = owner.server.shard.keeper
            assert keeper is not None
            owner.call(lambda _: keeper._stop())
            pass_lease(owner)
            outwait_lease(follower)
            follower.wait_until_serving(DEADLINE)
            assert not owner.server.is_active
            send(client, 1)
            assert Command.CONFIRM not in last_words(client)
        assert names(follower, 1) == ["kept"]
        assert follower.server.is_active


def test_brokers_of_two_versions_take_over_from_each_other(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade, a step back, and its end."""

    def version(number: int) -> None:
        """Of the brokers that start from now on."""
        monkeypatch.setattr(postgres_connection, "FORMAT", number)

    shard = database.shard()
    with broker(database, shard, LONG) as old, ConnectionFactory(old.url).create_context() as context:
        context.create_producer().send(context.create_queue("q"), "old")
        database.execute("UPDATE sievemq.format SET version = 2")  # as `sievemq store migrate` of a new version will
        try:
            version(2)
            with broker(database, shard, LONG) as new:
                old.stop()
                new.wait_until_serving(DEADLINE)
                assert names(new, 1) == ["old"]
                version(1)
                with broker(database, shard, LONG) as back:
                    new.stop()
                    back.wait_until_serving(DEADLINE)
            version(2)
            monkeypatch.setattr(postgres_tool, "FORMAT", 2)
            assert postgres_tool.finalize(database.url) == 2
            version(1)
            with pytest.raises(StoreError, match="has format 2; this version of SieveMQ reads 1 and older"):
                EmbeddedBroker(store=database.url, settings={"shard": shard, **LONG}).start()
        finally:
            database.execute("UPDATE sievemq.format SET version = 1, oldest = 1")


def test_clients_wait_while_the_database_is_away(database: Database) -> None:
    shard = database.shard()
    with broker(database, shard, LONG) as owner, WireClient(owner.port) as client:
        client.open_session()
        database.server.stop()
        try:
            until(owner, is_away)
            pass_lease(owner)
            until(owner, lambda server: server.role == "silent")
            send(client, 1)
        finally:
            database.server.start()
        assert client.until(Command.CONFIRM)[1:] == (1, 1)
        assert owner.server.is_active
