"""The lease as a row in PostgreSQL: one owner at a time, whatever is lost on the way to it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from tests.postgres import Database, Server

from sievemq_broker.domain.store import AwayError, FencedError, StoreError
from sievemq_broker.store.lease import Owner, ShardSight, Sight

from .test_both import add, names

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")

from sievemq_broker.store.postgres import PostgresStore  # noqa: E402
from sievemq_broker.store.postgres_leases import PostgresLeases, all_leases  # noqa: E402

ME = Owner("host 1", "sievemq://me:7672", "127.0.0.1:7680", '{"a": "é"}', "https://me:7680")
OTHER = Owner("host 2", "sievemq://other:7672", "", "")


class World(ExitStack):
    """A shard, and what is open of it."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.shard = database.shard()

    def leases(self, **more: Any) -> PostgresLeases:
        return self.enter_context(closing(PostgresLeases(self.database.url, self.shard, **more)))

    def store(self, token: str, **more: Any) -> PostgresStore:
        return self.enter_context(closing(PostgresStore(self.database.url, self.shard, token, "name", **more)))

    def execute(self, statement: str) -> list[Any]:
        return self.database.execute(statement, self.shard)


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with World(database) as world:
        yield world


def test_a_new_shard_has_no_owner_and_is_taken_at_once(world: World) -> None:
    leases = world.leases()
    seen = leases.look()
    assert seen._replace(offset=0, view=1) == Sight("", 0, True, 0, None, 0, 1, 0, followers=0)
    assert abs(seen.offset) < 1
    assert leases.take(seen, "mine", ME)
    seen = leases.look()
    assert seen._replace(offset=0, view=1) == Sight("mine", 1, False, 1, ME, 0, 1, 0, followers=0)


def test_a_shard_that_was_copied_has_no_owner(world: World) -> None:
    world.execute("INSERT INTO sievemq.head VALUES (%s, '', 3, 'copied')")
    leases = world.leases()
    seen = leases.look()
    assert (seen.token, seen.epoch, seen.owner) == ("", 3, None)
    assert leases.take(seen, "mine", ME)
    assert (world.store("mine").epoch, world.store("mine").incarnation) == (4, "copied")


def test_a_beat_is_seen_and_keeps_others_out(world: World) -> None:
    mine, others = world.leases(), world.leases()
    assert mine.take(mine.look(), "mine", ME)
    seen = others.look()
    assert mine.beat("mine") == ""
    assert others.look().beat == seen.beat + 1
    assert not others.take(seen, "other", OTHER)
    assert others.take(others.look(), "other", OTHER)
    assert mine.beat("mine") is None
    mine.release("mine")
    seen = mine.look()
    assert (seen.token, seen.released, seen.epoch, seen.owner) == ("other", False, 2, OTHER)


def test_a_released_shard_is_seen_as_such_and_beats_no_more(world: World) -> None:
    mine, others = world.leases(), world.leases()
    assert mine.take(mine.look(), "mine", ME)
    before = others.look()
    mine.release("mine")
    assert not others.take(before, "other", OTHER), "it is not as it was seen"
    assert others.look().released
    assert mine.beat("mine") is None
    assert others.take(others.look(), "other", OTHER)
    assert not others.look().released


def test_one_look_shows_all_shards(world: World) -> None:
    """Their names may be longer than what the server keeps of a connection's name."""

    def of(shard: str) -> ShardSight:
        with closing(psycopg.connect(world.database.url, autocommit=True)) as connection:
            return next(sight for sight in all_leases(connection, 60.0) if sight.shard == shard)

    shard = world.shard = f"{world.shard}-{'x' * (62 - len(world.shard))}"
    mine, others = world.leases(), world.leases()
    assert others.look().followers == 0
    assert of(shard) == ShardSight(shard, None, 0, 1), "it has a row, and no owner yet"
    assert mine.take(mine.look(), "mine", ME)
    assert of(shard) == ShardSight(shard, ME, 1, 1)
    assert mine.look().followers == 1
    others.close()
    deadline = time.monotonic() + 30
    while of(shard).followers and time.monotonic() < deadline:  # its backend ends a moment later
        assert of(shard).owner == ME
    mine.close()
    while of(shard).owner is not None and time.monotonic() < deadline:
        pass
    assert of(shard) == ShardSight(shard, None, 1, 0), "its process has ended without a word"
    mine.release("mine")
    assert of(shard).owner is None


def test_an_owner_learns_with_its_beat_which_follower_asks_for_the_shard(world: World) -> None:
    mine, others = world.leases(), world.leases()
    assert not others.ask(others.look(), "other"), "it has no owner"
    assert mine.take(mine.look(), "mine", ME)
    assert others.ask(others.look(), "other")
    assert mine.beat("mine") == "other"
    seen = others.look()
    mine.release("mine")
    assert not others.ask(seen, "third"), "it is released"
    seen = others.look()
    assert (seen.released, seen.heir) == (True, "other")
    assert others.take(seen, "other", OTHER)
    assert others.beat("other") == ""


def test_processes_that_follow_the_shard_are_counted(world: World) -> None:
    owner, follower = world.leases(), world.leases()
    assert owner.look().followers == 0
    follower.look()
    assert owner.look().followers == 1
    with closing(PostgresLeases(world.database.url, "another")) as another:
        another.look()
    assert owner.look().followers == 1
    assert follower._connection is not None
    backend = follower._connection.info.backend_pid
    follower.close()
    with world.database.connect() as connection:
        while connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (backend,)).fetchone():
            connection.execute("SELECT pg_sleep(0.01)")
    assert owner.look().followers == 0


def test_a_follower_that_looks_no_more_is_not_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine has lost power: the server has its connection still."""
    owner, follower = world.leases(), world.leases()
    follower.look()
    assert owner.look().followers == 1
    monkeypatch.setattr(owner, "_silent", 0.0)
    assert owner.look().followers == 0


def test_the_number_of_the_last_write_is_seen(world: World) -> None:
    leases = world.leases()
    assert leases.take(leases.look(), "mine", ME)
    store = world.store("mine")
    for number in (1, 2):
        add(store, "m")
        assert leases.look().writes == number


def test_an_attempt_whose_answer_was_lost_may_be_repeated_and_counts_once(world: World) -> None:
    leases = world.leases()
    seen = leases.look()
    for _ in range(2):
        assert leases.take(seen, "mine", ME)
    assert leases.look().epoch == 1


def test_a_view_ends_with_its_connection(world: World) -> None:
    mine, others = world.leases(), world.leases()
    assert mine.take(mine.look(), "mine", ME)
    seen = others.look()
    assert others.look().view == seen.view
    world.database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
        f"sievemq {world.shard} lease",
    )
    with pytest.raises(AwayError):
        others.look()
    assert not others.take(seen, "other", OTHER)
    assert others.look().view > seen.view
    assert not others.take(seen, "other", OTHER)
    with pytest.raises(AwayError):
        mine.beat("mine")
    assert mine.beat("mine") == ""


def test_another_start_or_time_line_of_the_server_is_another_view(world: World) -> None:
    """Behind a pooler the connection may stay."""
    leases = world.leases()
    seen = leases.look()
    leases._server = ("before", leases._server[1])
    assert not leases.take(seen, "mine", ME)
    assert leases.look().view > seen.view
    leases._line = "FFFFFFFF"
    with pytest.raises(AwayError, match="a primary of the past"):
        leases.look()


def test_the_lock_of_a_paused_owner_does_not_hold_up_a_takeover(world: World) -> None:
    """It was paused in the middle of a large write."""
    mine, others = world.leases(), world.leases()
    assert mine.take(mine.look(), "mine", ME)
    paused = world.store("mine")
    add(paused, "a")
    connection = paused._connected()
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sievemq.head WHERE shard = %s FOR UPDATE", (world.shard,))
    seen = others.look()
    begin = time.monotonic()
    assert others.take(seen, "other", OTHER)
    assert time.monotonic() - begin < 5
    with pytest.raises(psycopg.OperationalError):
        connection.execute("COMMIT")
    with pytest.raises(FencedError):
        add(paused, "late")
    owner = world.store("other")
    assert names(owner) == ["a"]


def test_a_lock_that_is_not_the_owners_is_left_alone(world: World) -> None:
    """The owner's number may have gone to another backend."""
    leases = world.leases(timeout=10)
    assert leases.take(leases.look(), "mine", ME)
    with world.database.connect() as stranger, stranger.transaction():
        stranger.execute("SELECT 1 FROM sievemq.head WHERE shard = %s FOR UPDATE", (world.shard,))
        with world.database.connect() as idle:
            world.database.execute(
                "UPDATE sievemq.lease SET backend = %s WHERE shard = %s", idle.info.backend_pid, world.shard
            )
            with pytest.raises(AwayError, match="does not end"):
                leases.take(leases.look(), "other", OTHER)
            idle.execute("SELECT 1")
    assert leases.look().token == "mine"


def test_one_of_many_takers_wins(world: World) -> None:
    takers = [world.leases() for _ in range(4)]
    for turn in range(3):
        seen = [taker.look() for taker in takers]
        barrier, won = threading.Barrier(len(takers)), queue.SimpleQueue[str]()

        def take(leases: PostgresLeases, seen: Sight, token: str, barrier: Any = barrier, won: Any = won) -> None:
            barrier.wait(30)
            if leases.take(seen, token, ME):
                won.put(token)

        threads = [threading.Thread(target=take, args=(takers[at], seen[at], f"token {turn} {at}")) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert won.qsize() == 1
        assert world.execute("SELECT token FROM sievemq.head WHERE shard = %s") == [(won.get(),)]


def test_a_database_that_goes_and_comes_back_is_another_view(world: World) -> None:
    server = Server()
    try:
        server.start()
        database = Database(server)
        leases = PostgresLeases(database.url, "main")
        assert leases.take(leases.look(), "mine", ME)
        store = PostgresStore(database.url, "main", "mine")
        add(store, "a")
        seen = leases.look()
        server.stop(crash=True)
        for act in (lambda: leases.beat("mine"), leases.look, lambda: add(store, "b"), store.reopen):
            with pytest.raises(AwayError):
                act()
        server.start()
        assert leases.beat("mine") == ""
        assert leases.look().view > seen.view
        store.reopen()
        add(store, "b")
        assert names(store) == ["a", "b"]
        store.close()
        leases.close()
    finally:
        server.close()


def test_another_database_than_before_is_refused(world: World) -> None:
    leases = world.leases()
    leases.look()
    leases._database = "other"
    leases.close()
    with pytest.raises(StoreError, match="another database than before"):
        leases.look()
