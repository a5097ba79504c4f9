"""What is followed in PostgreSQL, and a takeover with it."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from tests.postgres import Database, Pooler

from sievemq_broker.domain import Broker
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.store import AwayError, FencedError, StoreError

from .following import anatomy, difference
from .support import NOW, message
from .test_crash_consistency import Port

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")

from sievemq_broker.store import batches, follower, postgres, postgres_rows  # noqa: E402
from sievemq_broker.store.follower import Follower  # noqa: E402
from sievemq_broker.store.postgres import PostgresStore  # noqa: E402
from sievemq_broker.store.postgres_follower import PostgresListing  # noqa: E402


@pytest.fixture(params=["direct", "pooled"])
def url(request: pytest.FixtureRequest, database: Database) -> Iterator[str]:
    if request.param == "direct":
        yield database.url
        return
    try:
        pooler = Pooler(database.server)
    except RuntimeError:
        pytest.skip("needs PgBouncer: the package pgbouncer of the system")
    yield pooler.url
    pooler.close()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_SPARSE_BYTES", 500)
    monkeypatch.setattr(follower, "PAGE", 7)
    monkeypatch.setattr(postgres, "_REWRITE_SECONDS", 0)
    for name, value in {"_LISTED": 5, "_READ_BYTES": 2_000, "_CALL_BYTES": 2_000, "PIECE_BYTES": 700}.items():
        monkeypatch.setattr(postgres_rows, name, value)


class Owner:
    """A broker over PostgreSQL, without a server."""

    def __init__(self, database: Database, url: str, shard: str, token: str, **more: Any) -> None:
        database.take(shard, token)
        self.store = PostgresStore(url, shard, token, "name", **more)
        self.broker = Broker()
        self.count = restore(self.broker, self.store, NOW)

    def write(self) -> None:
        assert self.broker.journal is not None
        self.store.write(self.broker.journal.cut(), NOW)
        self.store.tidy()


@pytest.mark.parametrize("seed", [1])
def test_i_11_a_takeover_restores_what_one_without_a_follower_would(database: Database, url: str, seed: int) -> None:
    chance, shard = random.Random(seed), database.shard()
    owner = Owner(database, url, shard, "first")
    space = owner.broker.namespace("")
    found = Follower(PostgresListing(url, shard))
    consumers = [
        space.open_consumer(Port(), number, f"q{number}", connection="c", credit=0, now=NOW) for number in range(3)
    ]
    for number in range(30):
        for place in range(chance.randint(1, 12)):
            body = bytes(chance.choice((0, 50, 900)))
            expires = chance.choice((0, 0, NOW + 9_999))
            space.send(f"q{chance.randrange(4)}", message(f"{number}.{place}", body=body, expires=expires), NOW)
        consumer = chance.choice(consumers)
        consumer.grant(chance.randint(0, 9), NOW)
        consumer.acknowledge(max(consumer.tag - chance.randint(0, 2), 0), NOW)
        owner.write()
        found.step(float(number // 4))
    found.close()
    assert found.messages > 50
    owner.store.close()
    cold = Owner(database, url, shard, "second")
    cold.store.close()
    warm = Owner(database, url, shard, "third", follower=found)
    assert warm.count == cold.count > 50
    assert difference(anatomy(warm.broker), anatomy(cold.broker)) is None
    assert found.batches < 20, "most were taken"
    warm.store.close()


def test_a_connection_that_breaks_is_made_again(database: Database) -> None:
    shard = database.shard()
    owner = Owner(database, database.url, shard, "first")
    owner.broker.namespace("").send("q", message("m"), NOW)
    owner.write()
    listing = PostgresListing(database.url, shard)
    found = Follower(listing)
    while found.step(0.0):
        pass
    name = f"sievemq {shard} follower"
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", name)
    with pytest.raises(AwayError, match="cannot be followed"):
        found.step(1.0)
    found.step(2.0)
    assert found.messages == 1
    found.close()
    found.close()
    owner.store.close()


def test_what_a_takeover_has_not_taken_is_not_kept(database: Database) -> None:
    """It is gone, or was rewritten."""
    shard = database.shard()
    owner = Owner(database, database.url, shard, "first")
    owner.broker.namespace("").send("q", message("m"), NOW)
    owner.write()
    owner.store.close()
    found = Follower(PostgresListing(database.url, shard))
    while found.step(0.0):
        pass
    found.close()
    assert found.messages == 1
    database.execute("DELETE FROM sievemq.batch WHERE shard = %s", shard)
    warm, kept = Owner(database, database.url, shard, "second", follower=found), weakref.ref(found)
    del found
    gc.collect()
    assert kept() is None
    warm.store.close()


def test_a_database_without_tables_is_not_followed(database: Database) -> None:
    bare = database.server.new_database()
    with pytest.raises(StoreError, match="no tables of SieveMQ"):
        Follower(PostgresListing(bare, "s")).step(0.0)


def test_a_batch_that_is_deleted_amid_a_restore_shows_another_owner(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = database.shard()
    owner = Owner(database, database.url, shard, "first")
    owner.broker.namespace("").send("q", message("m"), NOW)
    owner.write()
    rows = postgres_rows.PostgresRows.rows

    def deleted(self: Any, ids: Any) -> Any:
        database.execute("DELETE FROM sievemq.batch WHERE shard = %s", shard)
        return rows(self, ids)

    monkeypatch.setattr(postgres_rows.PostgresRows, "rows", deleted)
    with pytest.raises(FencedError, match="another broker writes to the shard"):
        list(owner.store.batches())
    owner.store.close()
