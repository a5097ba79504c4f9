"""Rows of a history in PostgreSQL: bounded, stored once, and there for the next owner."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.postgres import Database

from sievemq_broker.domain.store import AwayError, HistoryLine, HistoryPart, StoreError

pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")

from sievemq_broker.store.postgres_history import PostgresHistory


def part(*numbers: int, oldest: int = 0) -> HistoryPart:
    return HistoryPart("audit", [HistoryLine(n, b'{"id":%d,"n":"\\u0000\\ud800"}' % n) for n in numbers], oldest, 3)


def ids(store: PostgresHistory) -> list[int]:
    return [line.id for line in store.read().get("audit", ())]


def test_the_next_owner_reads_what_the_former_one_has_stored(database: Database) -> None:
    shard = database.shard()
    with closing(PostgresHistory(database.url, shard, timeout=60)) as former:
        assert former.read() == {}
        former.write([part(1, 2), HistoryPart("events", [HistoryLine(3, b'{"id":3,"n":1}')], 3, 3)])
        former.write([part(2, 4, 5, oldest=2)])
        with closing(PostgresHistory(database.url, shard, timeout=60)) as following:
            assert ids(following) == [2, 4, 5]
            assert following.read()["audit"][0] == part(2).lines[0]
            assert [line.id for line in following.read()["events"]] == [3]
        with closing(PostgresHistory(database.url, database.shard(), timeout=60)) as other:
            assert other.read() == {}


def test_it_connects_again_after_an_error(database: Database) -> None:
    store = PostgresHistory(database.url, database.shard(), timeout=60)
    store.write([part(1)])
    assert store._connection is not None
    database.execute("SELECT pg_terminate_backend(%s)", store._connection.info.backend_pid)
    with pytest.raises(AwayError):
        store.write([part(2)])
    with pytest.raises(StoreError, match="cannot be read for its history"):
        store._connected().close()
        store.read()
    store.write([part(2)])
    assert ids(store) == [1, 2]
    store.close()
    store.close()


def test_a_database_without_the_table_is_an_error_that_says_so(database: Database) -> None:
    store = PostgresHistory(database.url.replace("sievemq", "no_such"), "x", timeout=60)
    with pytest.raises(StoreError):
        store.read()
