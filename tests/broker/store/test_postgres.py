"""The store in PostgreSQL: whatever happens between it and the server, a write is there once or not at all."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest
from tests.cases import case
from tests.postgres import USER, Database

from sievemq_broker.domain.journal import Batch, Write
from sievemq_broker.domain.store import (
    AwayError,
    DamagedError,
    FencedError,
    LostWritesError,
    StoreError,
    StoreFullError,
)

from .support import NOW, message, saved_in, write, write_of
from .test_both import ODD, add, names, settle

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")

from sievemq_broker.store import postgres, postgres_rows, postgres_vacuum  # noqa: E402
from sievemq_broker.store.postgres import PostgresStore  # noqa: E402
from sievemq_broker.store.postgres_connection import connect, translated  # noqa: E402

#: Seconds for which a call waits in these tests, where it waits in vain.
SOON = 0.3


class World(ExitStack):
    """A shard and its owners."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.shard = database.shard()

    def open(self, token: str = "mine", **more: Any) -> PostgresStore:
        self.database.take(self.shard, token)
        store = PostgresStore(self.database.url, self.shard, token, "name", **more)
        self.callback(store.abandon)
        return store

    def count(self, table: str) -> int:
        return self.database.execute(f"SELECT count(*) FROM sievemq.{table} WHERE shard = %s", self.shard)[0][0]


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with World(database) as world:
        yield world


def pid(store: PostgresStore) -> int:
    assert store._connection is not None
    return store._connection.info.backend_pid


def large(store: PostgresStore, count: int = 20, size: int = 500) -> Write:
    """A write that takes several calls, where one carries little."""
    parts = [Batch(store.next_batch + number) for number in range(count)]
    for part in parts:
        part.accepted.append((1, message(f"m{part.id}", body=b"x" * size).packed))
    return write_of(store, *parts)


@pytest.fixture
def small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_rows, "_CALL_BYTES", 1_000)


class TestFence:
    @pytest.mark.usefixtures("small_calls")
    @pytest.mark.parametrize("count", [1, 20])
    def test_nothing_of_a_former_owner_is_stored(self, world: World, count: int) -> None:
        former = world.open()
        late = large(former, count)
        world.database.take(world.shard, "other")
        with pytest.raises(FencedError, match="another broker has taken the shard over"):
            former.write(late, NOW)
        assert (world.count("batch"), world.count("written")) == (0, 0)
        with pytest.raises(FencedError):
            PostgresStore(world.database.url, world.shard, "mine")

    def test_a_write_that_waits_for_the_head_is_refused_after_a_takeover(self, world: World) -> None:
        former = world.open()
        failed: list[Exception] = []

        def write_late() -> None:
            try:
                former.write(large(former, 1), NOW)
            except Exception as error:
                failed.append(error)

        with world.database.connect() as taker, taker.transaction():
            taker.execute("UPDATE sievemq.head SET token = 'other' WHERE shard = %s", (world.shard,))
            thread = threading.Thread(target=write_late)
            thread.start()
            wait_until(world, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", pid(former))
        thread.join(30)
        assert [type(error) for error in failed] == [FencedError]
        assert world.count("batch") == 0

    def test_a_fence_fails_in_the_server_whatever_was_sent_with_it(self, world: World) -> None:
        """In a pipeline the client hears of it after COMMIT was sent."""
        former = world.open()
        world.database.take(world.shard, "other")
        connection = former._connected()
        (call,) = postgres_rows.calls_of(postgres.Change(batches=[(1, b"stale")]), {})
        with pytest.raises(psycopg.Error), connection.pipeline():
            connection.execute("BEGIN")
            former._call(connection, call, postgres_rows.Step(0), is_last=True)
            connection.execute("COMMIT")
        assert world.count("batch") == 0


def wait_until(world: World, statement: str, *values: object) -> None:
    """Wait until a statement's value is true."""
    with world.database.connect() as connection:
        for _ in range(3_000):
            row = connection.execute(statement, values).fetchone()
            if row is not None and row[0]:
                return
            connection.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(statement)


class TestUnknownOutcomes:
    @pytest.mark.usefixtures("small_calls")
    @pytest.mark.parametrize("reopens", [True, False])
    @pytest.mark.parametrize("count", [1, 20])
    @pytest.mark.parametrize("arrived", [True, False])
    def test_a_write_whose_answer_was_lost_is_there_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch, count: int, arrived: bool, reopens: bool
    ) -> None:
        store = world.open()
        add(store, "before")
        twice = large(store, count)
        send = store._send

        def lost(connection: Any, *arguments: Any) -> bool:
            if arrived:
                send(connection, *arguments)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

        with monkeypatch.context() as patch:
            patch.setattr(store, "_send", lost)
            with pytest.raises(AwayError, match="cannot be written: the connection is lost"):
                store.write(twice, NOW)
        if reopens:
            store.reopen()
        store.write(twice, NOW)
        store.write(twice, NOW)
        add(store, "after")
        assert names(store) == ["before", *[f"m{2 + number}" for number in range(count)], "after"]
        assert world.count("written") == 1

    @pytest.mark.parametrize("late", [False, True])
    def test_a_copy_that_the_server_carries_out_late_is_made_once(self, world: World, late: bool) -> None:
        store = world.open(timeout=SOON)
        add(store, "a")
        twice = large(store, 1)
        backend = pid(store)
        with stopped(backend):
            with pytest.raises(AwayError, match=r"no answer within 0\.3 s"):
                store.write(twice, NOW)
            assert store._connection is None
            if late:
                store.write(twice, NOW)
        wait_until(world, "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = %s)", backend)
        store.write(twice, NOW)
        add(store, "b")
        assert names(store) == ["a", "m2", "b"]

    def test_a_write_that_arrived_behind_its_back_is_not_made_again(self, world: World) -> None:
        store = world.open()
        numbers = add(store, "a", "b", "c")
        twin = PostgresStore(world.database.url, world.shard, "mine")
        batch = Batch(2)
        batch.accepted.append((1, message("d").packed))
        batch.gone += numbers[:2]
        twice = write_of(store, batch)
        twin.write(twice, NOW)
        twin.close()
        store.write(twice, NOW)
        assert names(store) == ["c", "d"]
        settle(store, numbers[2])
        assert names(store) == ["d"]

    def test_upkeep_that_the_server_carries_out_late_does_nothing(self, world: World) -> None:
        """Otherwise messages that were acknowledged since would come back."""
        store = world.open()
        first, second, third = add(store, "a", "b", "c", size=20_000)
        settle(store, first, second)
        upkeep = postgres_rows.calls_of(store._batches.rewrite(10**9), {})
        assert upkeep[0].batch_ids == [1]
        step = postgres_rows.Step(store._sequence)
        settle(store, third)
        assert not store._send(store._connected(), upkeep, step)
        assert (names(store), world.count("batch"), world.count("state")) == ([], 0, 0)

    def test_a_write_of_its_own_that_hangs_is_ended(self, world: World) -> None:
        store = world.open(timeout=SOON * 3)
        add(store, "a")
        backend = pid(store)
        connection = store._connected()
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sievemq.head WHERE shard = %s FOR UPDATE", (world.shard,))
        hung, store._connection = connection, None
        with pytest.raises(AwayError, match="lock timeout"):
            store.reopen()
        wait_until(world, "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = %s)", backend)
        store.reopen()
        add(store, "b")
        assert names(store) == ["a", "b"]
        hung.close()

    def test_a_commit_whose_wait_for_a_standby_is_ended_is_not_confirmed(self, world: World) -> None:
        store = world.open(timeout=30)
        add(store, "a")
        twice = large(store, 1)
        failed: list[Exception] = []

        def commit() -> None:
            try:
                store.write(twice, NOW)
            except Exception as error:
                failed.append(error)

        backend = pid(store)
        with standby_wanted(world):
            thread = threading.Thread(target=commit)
            thread.start()
            wait_until(world, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s", backend)
            world.database.execute("SELECT pg_cancel_backend(%s)", backend)
            thread.join(30)
        assert [type(error) for error in failed] == [AwayError]
        assert "canceling wait for synchronous replication" in str(failed[0])
        store.reopen()
        store.write(twice, NOW)
        assert names(store) == ["a", "m2"]

    @pytest.mark.usefixtures("small_calls")
    def test_a_large_write_that_fails_leaves_nothing_behind(self, world: World) -> None:
        store = world.open()
        (number,) = add(store, "a")
        broken = large(store, 20)
        broken.parts[-1].gone.append(number)
        world.database.execute("INSERT INTO sievemq.batch VALUES (%s, %s, 0, 'x')", world.shard, broken.parts[-1].id)
        with pytest.raises(StoreError, match="duplicate key"):
            store.write(broken, NOW)
        assert world.count("batch") == 2
        world.database.execute("DELETE FROM sievemq.batch WHERE shard = %s AND data = 'x'", world.shard)
        store.write(broken, NOW)
        assert names(store) == [f"m{part.id}" for part in broken.parts]

    def test_a_write_after_one_that_is_missing_is_refused(self, world: World) -> None:
        store = world.open()
        add(store, "a")
        add(store, "b")
        world.database.execute("UPDATE sievemq.written SET n = 1 WHERE shard = %s", world.shard)
        for act in (lambda: add(store, "c"), store.reopen):
            with pytest.raises(LostWritesError, match="has lost its last 1 writes") as caught:
                act()
            assert caught.value.lost == 1


@contextmanager
def stopped(backend: int) -> Iterator[None]:
    """A backend that does nothing."""
    os.kill(backend, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(backend, signal.SIGCONT)


@contextmanager
def standby_wanted(world: World) -> Iterator[None]:
    """Each COMMIT waits for a standby that is not there."""
    show = "SELECT current_setting('synchronous_standby_names') = %s"
    world.database.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    world.database.execute("SELECT pg_reload_conf()")
    try:
        wait_until(world, show, "nobody")
        while not commit_waits(world):  # the checkpointer says so to all, after it has read the setting itself
            pass
        yield
    finally:
        world.database.execute("ALTER SYSTEM RESET synchronous_standby_names")
        world.database.execute("SELECT pg_reload_conf()")
        wait_until(world, show, "")


def commit_waits(world: World) -> bool:
    """Try it: False if a COMMIT is answered."""

    def commit() -> None:
        with suppress(psycopg.OperationalError):
            probe.execute("SELECT pg_logical_emit_message(true, 'probe', '')")

    with closing(world.database.connect()) as probe:
        backend = probe.info.backend_pid
        thread = threading.Thread(target=commit)
        thread.start()
        waits = False
        while thread.is_alive() and not waits:
            row = world.database.execute("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s", backend)
            waits = row == [(True,)]
        if waits:
            world.database.execute("SELECT pg_terminate_backend(%s)", backend)
        thread.join()
    return waits


class TestRows:
    def test_a_large_message_is_kept_in_pieces(self, world: World) -> None:
        store = world.open()
        body = os.urandom(1024) * 3_500
        batch = Batch(1)
        batch.accepted += [(1, message("a").packed), (2, message("large", body=body).packed), (3, message("b").packed)]
        write(store, batch)
        sizes = world.database.execute(
            "SELECT length(data) FROM sievemq.batch WHERE shard = %s ORDER BY piece", world.shard
        )
        assert [size for (size,) in sizes[:-1]] == [postgres_rows.PIECE_BYTES] * 3
        again = world.open("other")
        entries = saved_in(again)
        assert [entry.owner for entry in entries] == [1, 2, 3]
        assert entries[1].packed == batch.accepted[1][1]
        settle(again, *[entry.number for entry in entries])
        assert world.count("batch") == 0

    def test_a_piece_that_is_missing_is_missed(self, world: World) -> None:
        store = world.open()
        batch = Batch(1)
        batch.accepted.append((1, message("large", body=bytes(3_000_000)).packed))
        write(store, batch)
        world.database.execute("DELETE FROM sievemq.batch WHERE shard = %s AND piece = 1", world.shard)
        with pytest.raises(DamagedError, match="checksum of batch 1"):
            names(store)

    def test_a_definition_that_is_damaged_is_noticed(self, world: World) -> None:
        store = world.open()
        batch = Batch(1)
        batch.definitions["kind", ("k",)] = (1,)
        write(store, batch)
        world.database.execute("UPDATE sievemq.definition SET data = 'no value' WHERE shard = %s", world.shard)
        with pytest.raises(DamagedError, match="checksum of the definition of kind"):
            store.definitions("kind")

    def test_a_batch_that_is_missing_is_missed(self, world: World) -> None:
        store = world.open()
        first, _ = add(store, "a", "b")
        settle(store, first)
        world.database.execute("DELETE FROM sievemq.batch WHERE shard = %s", world.shard)
        with pytest.raises(DamagedError, match="batch 1 is missing"):
            names(store)

    def test_shards_do_not_see_each_other(self, world: World) -> None:
        one, other = world.open(), World(world.database).open()
        add(one, "a")
        add(other, "b")
        (number,) = add(one, "c")
        settle(one, number)
        assert (names(one), names(other)) == (["a"], ["b"])
        other.close()

    def test_the_time_of_the_last_write_is_known(self, world: World) -> None:
        store = world.open()
        assert store.time == 0
        add(store, "a")
        assert (store.time, world.open("other").time) == (NOW, NOW)

    def test_deleted_rows_are_vacuumed(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postgres_vacuum, "VACUUM_BYTES", 10_000)
        monkeypatch.setattr(postgres_vacuum, "_VACUUM_PART", 10**12)
        store = world.open()
        store.tidy()
        assert store._vacuum._thread is None
        numbers = add(store, "a", "b", size=20_000)
        settle(store, *numbers)
        store.tidy()
        thread = store._vacuum._thread
        assert thread is not None
        thread.join(30)
        assert store.size() > 0
        vacuumed = "SELECT vacuum_count > 0 FROM pg_stat_user_tables WHERE schemaname = 'sievemq' AND relname = 'batch'"
        wait_until(world, vacuumed)

    def test_a_role_that_may_only_change_rows_is_enough(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It cannot vacuum, and says so once."""
        monkeypatch.setattr(postgres_vacuum, "VACUUM_BYTES", 0)
        monkeypatch.setattr(postgres_vacuum, "_VACUUM_PART", 10**12)
        for statement in (
            "CREATE ROLE plain LOGIN",
            "GRANT USAGE ON SCHEMA sievemq TO plain",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sievemq TO plain",
        ):
            world.database.execute(statement)
        world.database.take(world.shard, "mine")
        store = PostgresStore(world.database.url.replace(f"//{USER}@", "//plain@"), world.shard, "mine")
        numbers = add(store, "a", "b")
        settle(store, numbers[0])
        for _ in range(2):
            store.tidy()
            assert store._vacuum._thread is not None
            store._vacuum._thread.join(30)
        store.reopen()
        assert names(store) == ["b"]
        store.close()
        reports = [record.getMessage() for record in caplog.records if "store.vacuum_failed" in record.getMessage()]
        assert len(reports) == 1
        assert "permission denied to vacuum" in reports[0]

    def test_a_vacuum_ends_with_its_store(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postgres_vacuum, "VACUUM_BYTES", 0)
        monkeypatch.setattr(postgres_vacuum, "_VACUUM_PART", 10**12)
        store = world.open()
        with world.database.connect() as connection, connection.transaction():
            connection.execute("LOCK TABLE sievemq.batch IN SHARE UPDATE EXCLUSIVE MODE")
            store.tidy()
            wait_until(world, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
            store.close()
            thread = store._vacuum._thread
            assert thread is not None
            thread.join(30)
            assert not thread.is_alive()


class TestRefusals:
    def test_a_database_without_tables_is_refused(self, database: Database) -> None:
        database.execute("CREATE DATABASE empty")
        url = database.url.replace("/postgres?", "/empty?")
        with pytest.raises(StoreError, match="make them with `sievemq store init`"):
            PostgresStore(url, "main", "token")

    def test_a_newer_format_is_refused(self, world: World) -> None:
        world.open()
        for version, said in ((2, "reads 1 and older"), (0, "sievemq store migrate")):
            world.database.execute("UPDATE sievemq.format SET version = %s, oldest = %s", version, version)
            try:
                with pytest.raises(StoreError, match=said):
                    world.open("other")
            finally:
                world.database.execute("UPDATE sievemq.format SET version = 1, oldest = 1")

    def test_a_database_that_confirms_what_it_has_not_stored_is_refused(self, world: World) -> None:
        url = world.database.url + "&options=-c%20synchronous_commit%3Doff"
        with pytest.raises(StoreError, match="synchronous_commit is off"):
            PostgresStore(url, world.shard, "token")

    def test_another_database_than_before_is_refused(self, world: World) -> None:
        store = world.open()
        (was,) = world.database.execute("SELECT id FROM sievemq.format")[0]
        world.database.execute("UPDATE sievemq.format SET id = 'other'")
        try:
            with pytest.raises(StoreError, match="another database than before"):
                store.reopen()
        finally:
            world.database.execute("UPDATE sievemq.format SET id = %s", was)

    def test_a_server_that_is_not_there_is_away(self, tmp_path: Any) -> None:
        for url in (f"postgresql://u@/d?host={tmp_path}", "postgresql://u:secret@127.0.0.1:1/d"):
            with pytest.raises(AwayError, match="cannot be reached") as caught:
                connect(url, timeout=1)
            assert "secret" not in str(caught.value)

    def test_what_is_refused_for_good_is_not_tried_again(self, database: Database) -> None:
        cases = (
            (database.url.replace("/postgres?", "/missing?"), "does not exist"),
            ("postgresql://u@h?nonsense=1", "nonsense"),
            ("postgresql://u:se%zzcret@h/d", "cannot be reached"),
        )
        for url, said in cases:
            with case(url), pytest.raises(StoreError, match=said) as caught:
                connect(url, timeout=1)
            assert not isinstance(caught.value, AwayError)
            assert "cret" not in str(caught.value)
        with pytest.raises(AwayError) as caught:
            connect("postgresql://u:se@cret@h:port/d", timeout=1)
        assert "cret" not in str(caught.value)

    def test_errors_are_sorted_by_what_can_be_done(self) -> None:
        sorts = {
            AwayError: ("08006", "57P01", "57P03", "57014", "25006", "25P03", "40001", "40P01", "53300", "55P03"),
            StoreFullError: ("53100", "53200", "58030"),
            DamagedError: ("XX001", "XX002"),
            StoreError: ("42501", "42P01", "28000", "28P01", "3D000", "22012", "23505"),
        }
        for kind, codes in sorts.items():
            for code in codes:
                with case(code):
                    error = psycopg.errors.lookup(code)("it said no")
                    found = translated(error, "postgresql://u:secret@h/d", "be written")
                    assert type(found) is kind
                    assert "postgresql://u:***@h/d" in str(found)
                    assert "it said no" in str(found)
        error = OSError("not ours")
        assert translated(error, "", "be written") is error
        assert type(translated(psycopg.OperationalError("gone"), "", "be written")) is AwayError

    def test_a_database_that_is_full_takes_the_write_later(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        store = world.open()
        add(store, "a")
        later = large(store, 1)
        with monkeypatch.context() as patch:
            patch.setattr(store, "_call", lambda *_, **__: raises(psycopg.errors.DiskFull("no space left")))
            with pytest.raises(StoreFullError, match="there is no room"):
                store.write(later, NOW)
        store.relieve()
        store.write(later, NOW)
        assert names(store) == ["a", "m2"]
        assert (store.room, store.free, store.total) == (postgres.UNLIMITED, postgres.UNLIMITED, 0)
        assert (store.full_below, store.reserve) == (0, 0)

    def test_upkeep_that_fails_is_left_to_the_next_write(self, world: World) -> None:
        store = world.open()
        first, second, _ = add(store, "a", "b", "c", size=20_000)
        settle(store, first, second)
        world.database.take(world.shard, "other")
        store._rewritten -= 10
        assert store._batches.sparse
        assert store.tidy() == store.room
        assert not store._batches.sparse
        with pytest.raises(FencedError):
            add(store, "c")


def raises(error: Exception) -> None:
    raise error


def test_names_that_are_no_text_in_postgresql_are_kept(world: World) -> None:
    store = world.open()
    batch = Batch(1)
    batch.definitions[ODD, (ODD,)] = (ODD,)
    write(store, batch)
    assert world.open("other").definitions(ODD) == {(ODD,): (ODD,)}
