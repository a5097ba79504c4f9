"""The store and the lease behind PgBouncer in transaction mode: the next transaction may be on another connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.postgres import Database, Pooler

from sievemq_broker.domain.store import FencedError

from .test_both import add, names, settle

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")

from sievemq_broker.store import postgres_rows  # noqa: E402
from sievemq_broker.store.lease import Owner  # noqa: E402
from sievemq_broker.store.postgres import PostgresStore  # noqa: E402
from sievemq_broker.store.postgres_leases import PostgresLeases  # noqa: E402

ME = Owner("me", "", "", "")


@pytest.fixture
def pooled(database: Database) -> Iterator[str]:
    """The URL of a pooler before the database."""
    try:
        pooler = Pooler(database.server)
    except RuntimeError:
        pytest.skip("needs PgBouncer: the package pgbouncer of the system")
    yield pooler.url
    pooler.close()


def test_a_shard_is_owned_and_written_through_a_pooler(
    database: Database, pooled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "_CALL_BYTES", 1_000)
    monkeypatch.setattr(postgres_rows, "PIECE_BYTES", 600)
    shard = database.shard()
    mine, others = PostgresLeases(pooled, shard), PostgresLeases(pooled, shard)
    assert mine.take(mine.look(), "mine", ME)
    store = PostgresStore(pooled, shard, "mine")
    (backend,) = database.execute("SELECT backend FROM sievemq.lease WHERE shard = %s", shard)[0]
    assert backend == 0, "no backend is this client's alone"
    view = others.look().view
    numbers = []
    for number in range(20):
        numbers += add(store, f"m{number}", "large", size=number % 5 * 500)
        assert mine.beat("mine") == ""
        assert others.look().view == view
    settle(store, *numbers[1::2])
    assert names(store) == [f"m{number}" for number in range(20)]
    assert others.take(others.look(), "other", ME)
    assert mine.beat("mine") is None
    with pytest.raises(FencedError):
        add(store, "late")
    owner = PostgresStore(pooled, shard, "other")
    assert names(owner) == [f"m{number}" for number in range(20)]
    for each in (store, owner, mine, others):
        each.close()
