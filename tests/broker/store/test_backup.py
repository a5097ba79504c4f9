"""`sievemq store backup` beside a running broker, and `restore`: one moment as a whole, and nothing of the broker's
later life is taken for it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.client.relay import Relay
from tests.postgres import Database, Server

from sievemq import ConnectionFactory, JMSContext, JMSException, Queue
from sievemq.staging import publish
from sievemq.taps import Tap, find_tap, open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.journal import CONNECTION, STAGE, TEMPORARY, Batch
from sievemq_broker.domain.store import StoreError
from sievemq_broker.store import SqliteStore, sqlite_rows
from sievemq_broker.store.blob import pack_value
from sievemq_broker.store.database import DATABASE, connect
from sievemq_broker.store.rows import Head
from sievemq_broker.store.salvage import check, copy
from sievemq_broker.store.sqlite_rows import DatabaseRows, NewDatabase, NewFile, RunningRows

from . import backups
from .sharing import until
from .support import message, saved_in, write
from .test_salvage import change, exported, fill, names, run

MIB = 1024 * 1024


def sent(store: SqliteStore, step: int, *texts: str, gone: tuple[int, ...] = (), size: int = 10) -> None:
    """One write of new messages, and of ones that are gone."""
    batch = Batch(step)
    batch.accepted = [(1, message(text, body=b"x" * size).packed) for text in texts]
    batch.gone = list(gone)
    if step == 1:
        batch.definitions["destination", ("ns", "queue:q")] = (1,)
    write(store, batch)


def ids(lines: list[str]) -> list[str]:
    return [json.loads(line)["message_id"] for line in lines]


def alone(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


class TestBackup:
    def test_a_running_broker_is_backed_up_and_goes_on(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "data", "name", reserve=0)
        sent(store, 1, "a", "b", "c")
        sent(store, 2, "d", gone=(1 << 24,))
        result = run("backup", tmp_path / "data", tmp_path / "backup")
        assert (result.exit_code, "3 messages in 2 batches, 1 definition" in result.output) == (0, True)
        sent(store, 3, "e", gone=(1 << 24 | 1,))
        assert run("check", tmp_path / "backup").exit_code == 0
        assert ids(exported(tmp_path / "backup")) == ["b", "c", "d"]
        assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600
        store.close()
        assert names(tmp_path / "data") == ["c", "d", "e"]

    def test_a_backup_is_of_one_moment_whatever_is_written_meanwhile(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path, "name", reserve=MIB)
        for step in range(1, 21):
            sent(store, step, f"m{step}", size=20_000)
        rows = RunningRows(tmp_path)
        for step in range(21, 61):  # the log is copied, and the first batches are deleted, rewritten, reused
            sent(store, step, f"m{step}", gone=(step - 20 << 24,), size=100_000)
            store.tidy()
        report = check(rows)
        assert (report.messages, report.findings) == (20, [])
        store.close()

    def test_the_log_is_free_before_a_slow_disk_has_the_backup(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "data", "name", reserve=0)
        sent(store, 1, "a")
        busy: list[int] = []

        class Slow(NewFile):
            def finish(self, head: Head) -> None:
                sent(store, 2, "b")
                busy.append(store._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
                super().finish(head)

        assert copy(RunningRows(tmp_path / "data"), Slow(tmp_path / "backup")).messages == 1
        assert busy == [0]
        store.close()
        assert ids(exported(tmp_path / "backup")) == ["a"]

    def test_the_reserve_stays_while_a_backup_reads(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path, "name", reserve=MIB)
        sent(store, 1, "m")
        store.tidy()
        taken = (tmp_path / "reserve").stat().st_ino
        rows = RunningRows(tmp_path)
        for step in range(2, 8):
            sent(store, step, "m", size=MIB // 2)
            store.tidy()
            assert (tmp_path / "reserve").stat().st_ino == taken
        before = store.room
        rows.close()
        store.relieve()
        store.tidy()
        assert store.room > before, "the log can be used again"
        store.close()

    def test_a_broker_may_start_and_end_beside_a_backup(self, tmp_path: Path) -> None:
        fill(tmp_path)
        rows = RunningRows(tmp_path)
        assert names(tmp_path) == ["m01", "m10", "m11", "m20", "m21", "published"]
        assert check(rows).messages == 6

    def test_a_backup_ends_before_the_disk_is_full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = SqliteStore(tmp_path / "data", "name", reserve=0)
        for step in range(1, 4):
            sent(store, step, f"m{step}")
        free = iter((100 * MIB, 80 * MIB, 63 * MIB))
        usage = shutil.disk_usage(tmp_path)

        def shrinking(path: Path) -> Any:  # brokers of other tests look at their disks meanwhile
            return usage._replace(free=next(free)) if path == tmp_path / "data" else usage

        monkeypatch.setattr(sqlite_rows.shutil, "disk_usage", shrinking)
        result = run("backup", tmp_path / "data", tmp_path / "backup")
        assert (result.exit_code, "63 MiB left" in result.output) == (1, True)
        assert alone(tmp_path) == ["data"]
        monkeypatch.undo()
        sent(store, 4, "m4")
        assert run("backup", tmp_path / "data", tmp_path / "backup").exit_code == 0
        store.close()

    def test_a_backup_of_a_full_disk_goes_elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(tmp_path / "data")
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(sqlite_rows.shutil, "disk_usage", lambda _: usage._replace(free=0))
        assert run("backup", tmp_path / "data", tmp_path / "backup").exit_code == 0

    @pytest.mark.parametrize("pages", [2, 8, 40])
    def test_a_target_that_is_full_leaves_nothing_behind(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
    ) -> None:
        def small(path: Path, *, read_only: bool = False) -> Any:
            database = connect(path, read_only=read_only)
            if not read_only:
                database.execute("PRAGMA page_size = 2048")
                database.execute(f"PRAGMA max_page_count = {pages}")
            return database

        store = SqliteStore(tmp_path / "data", "name", reserve=0)
        for step in range(1, 11):
            sent(store, step, f"m{step}", size=20_000)
        assert run("backup", tmp_path / "data", tmp_path / "whole").exit_code == 0
        monkeypatch.setattr(sqlite_rows, "connect", small)
        for arguments in (
            ("backup", tmp_path / "data", tmp_path / "file"),
            ("restore", tmp_path / "whole", tmp_path / "new"),
        ):
            result = run(*arguments)
            assert (result.exit_code, "the disk is full" in result.output) == (1, True)
        assert alone(tmp_path) == ["data", "new", "whole"]
        assert alone(tmp_path / "new") == ["lock"]
        sent(store, 11, "m11")
        store.close()

    def test_an_interrupted_backup_is_none_and_stands_in_no_ones_way(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        (tmp_path / "backup.part").write_bytes(b"half")
        (tmp_path / "backup.part-journal").write_bytes(b"half")
        assert run("check", tmp_path / "backup").exit_code == 1
        assert run("backup", tmp_path / "data", tmp_path / "backup").exit_code == 0
        assert alone(tmp_path) == ["backup", "data"]

    def test_two_backups_of_one_name_do_not_take_each_others_file(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        first = NewFile(tmp_path / "backup")
        for number in range(1, 2_001):  # more than the database keeps in memory
            first.add(number, bytes(2_000), None)
        result = run("backup", tmp_path / "data", tmp_path / "backup")
        assert (result.exit_code, "backup.part is being written by another process" in result.output) == (1, True)
        first.finish(Head(1, 1, 3_000, "first"))
        first.close()
        with closing(DatabaseRows(tmp_path / "backup")) as rows:
            assert len(list(rows.batches(lambda what, _: pytest.fail(what)))) == 2_000
        assert alone(tmp_path) == ["backup", "data"]

    def test_what_is_there_is_not_written_over(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        (tmp_path / "file").write_text("something else")
        for target in (tmp_path / "file", tmp_path / "data"):
            result = run("backup", tmp_path / "data", target)
            assert (result.exit_code, "exists already; name a new file" in result.output) == (1, True)
        assert (tmp_path / "file").read_text() == "something else"

    def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        assert "No such file or directory" in run("backup", tmp_path / "data", tmp_path / "no" / "file").output
        result = run("backup", tmp_path / "no", tmp_path / "file")
        assert (result.exit_code, "contains no store" in result.output) == (1, True)

    def test_a_directory_without_its_database_is_named(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        (tmp_path / "data" / DATABASE).unlink()
        for arguments in (("backup", tmp_path / "data", tmp_path / "file"), ("check", tmp_path / "data")) * 2:
            result = run(*arguments)
            assert (result.exit_code, "store.db cannot be opened" in result.output) == (1, True)

    def test_a_damaged_store_is_not_backed_up(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        change(tmp_path / "data", "UPDATE batch SET data = x'00' WHERE id = 2")
        result = run("backup", tmp_path / "data", tmp_path / "backup")
        assert (result.exit_code, "damaged: batch 2" in result.output, "nothing was written" in result.output) == (
            4, True, True,
        )  # fmt: skip
        assert alone(tmp_path) == ["data"]

    def test_a_newer_format_is_refused(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        change(tmp_path / "data", "PRAGMA user_version = 2")
        for arguments in (("backup", tmp_path / "data", tmp_path / "backup"), ("check", tmp_path / "data")):
            result = run(*arguments)
            assert (result.exit_code, "has format 2; this version of SieveMQ reads 1" in result.output) == (1, True)

    def test_a_file_that_is_no_database_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        for path in (tmp_path / "data" / DATABASE, tmp_path / "file"):
            path.write_bytes(b"not a database" * 100)
        result = run("backup", tmp_path / "data", tmp_path / "backup")
        assert (result.exit_code, "is damaged: file is not a database" in result.output) == (1, True)
        result = run("check", tmp_path / "file")
        assert (result.exit_code, "file is not a database" in result.output) == (4, True)

    def test_a_directory_in_use_is_read_through_a_backup(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path, "name", reserve=0)
        for verb in ("check", "export"):
            result = run(verb, tmp_path)
            assert (result.exit_code, "make a backup of it with `sievemq store backup`" in result.output) == (1, True)
        store.close()


class TestRestore:
    @pytest.fixture
    def backup(self, tmp_path: Path) -> Path:
        fill(tmp_path / "data")
        assert run("backup", tmp_path / "data", tmp_path / "backup").exit_code == 0
        return tmp_path / "backup"

    def test_a_restored_store_has_another_name_and_its_messages_are_marked(self, backup: Path, tmp_path: Path) -> None:
        result = run("restore", backup, tmp_path / "new")
        assert (result.exit_code, "Restored 6 messages in 4 batches, 4 definitions" in result.output) == (0, True)
        assert run("check", tmp_path / "new").exit_code == 0
        lines = list(map(json.loads, exported(tmp_path / "new")))
        before = list(map(json.loads, exported(backup)))
        assert [line["deliveries"] for line in before] == [1, 0, 0, 0, 0, 0]
        assert [line.pop("deliveries") for line in lines] == [1, 1, 1, 1, 1, 1]
        assert lines == [{name: line[name] for name in line if name != "deliveries"} for line in before]
        stores = [SqliteStore(tmp_path / each, reserve=0) for each in ("data", "new")]
        assert len({store.incarnation for store in stores}) == 2
        assert stores[0].next_batch == stores[1].next_batch
        for store in stores:
            store.close()

    def test_what_has_happened_is_in_it(self, tmp_path: Path) -> None:
        with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
            broker.call(lambda _: broker.server.audit.record("purge", via="http", user="anna", touched=7))
        assert run("backup", tmp_path / "data", tmp_path / "backup").exit_code == 0
        assert run("check", tmp_path / "backup").exit_code == 0
        assert run("restore", tmp_path / "backup", tmp_path / "new").exit_code == 0
        with EmbeddedBroker(data_dir=tmp_path / "new") as broker:
            until(broker, lambda server: len(list(server.audit.before())) == 1)
            (row,) = broker.call(lambda _: list(broker.server.audit.before()))
            assert (row["action"], row["user"], row["touched"]) == ("purge", "anna", 7)
        with closing(connect(tmp_path / "backup")) as database:
            database.execute("UPDATE definition SET data = x'00' WHERE kind = 'history' AND key = x'616374696f6e73'")
        result = run("restore", tmp_path / "backup", tmp_path / "third")
        assert (result.exit_code, "what has happened" in result.output) == (4, True)
        assert alone(tmp_path / "third") == ["lock"]

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (b"\xff", [(1, b"{}")]),
            (b"actions", 7),
            (b"actions", [(1,)]),
            (b"actions", [("1", b"{}")]),
            (b"actions", [(1, "{}")]),
        ],
    )
    def test_a_row_that_is_no_history_is_a_damage(self, backup: Path, key: bytes, value: object) -> None:
        with closing(connect(backup)) as database:
            row = "history", key, pack_value(key, value)
            database.execute("INSERT INTO definition VALUES (?, ?, ?)", row)
        result = run("check", backup)
        assert (result.exit_code, "what has happened" in result.output) == (4, True)

    @pytest.mark.parametrize("kind", ["../outside", "{folder}/outside", ""])
    def test_no_row_of_a_backup_leads_out_of_the_new_directory(self, backup: Path, tmp_path: Path, kind: str) -> None:
        key = kind.format(folder=tmp_path).encode()
        with closing(connect(backup)) as database:
            row = "history", key, pack_value(key, [(1, b'{"id":1,"action":"x"}')])
            database.execute("INSERT INTO definition VALUES (?, ?, ?)", row)
        before = alone(tmp_path)
        result = run("restore", backup, tmp_path / "new")
        assert (result.exit_code, "is no kind of it" in result.output) == (4, True)
        assert (alone(tmp_path / "new"), alone(tmp_path)) == (["lock"], sorted([*before, "new"]))

    def test_two_restored_stores_have_two_names(self, backup: Path, tmp_path: Path) -> None:
        assert [run("restore", backup, tmp_path / each).exit_code for each in "ab"] == [0, 0]
        stores = [SqliteStore(tmp_path / each, reserve=0) for each in "ab"]
        assert stores[0].incarnation != stores[1].incarnation
        for store in stores:
            store.close()

    @pytest.mark.parametrize("what", ["a store", "a file", "a folder"])
    def test_a_directory_that_is_not_empty_is_refused(self, backup: Path, tmp_path: Path, what: str) -> None:
        target = tmp_path / "new"
        if what == "a store":
            fill(target)
        else:
            target.mkdir()
            (target / "lost+found").mkdir()
            (target / "other").mkdir() if what == "a folder" else (target / "other").touch()
        before = alone(target)
        result = run("restore", backup, target)
        assert (result.exit_code, "name an empty directory" in result.output) == (1, True)
        assert sorted({*before, "lock"}) == alone(target)

    def test_a_store_in_use_is_not_restored_over_nor_from(self, backup: Path, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "used", "name", reserve=0)
        refused = run("restore", backup, tmp_path / "used").output
        assert "in use by another broker" in refused
        assert "name an empty directory" in refused, "to stop that one would be no help"
        assert "in use by another broker" in run("restore", tmp_path / "used", tmp_path / "new").output
        store.close()

    def test_a_damaged_backup_is_not_restored(self, backup: Path, tmp_path: Path) -> None:
        with sqlite3.connect(backup) as database:
            database.execute("UPDATE batch SET data = x'00' WHERE id = 2")
        database.close()
        result = run("restore", backup, tmp_path / "new")
        assert (result.exit_code, "nothing was restored" in result.output) == (4, True)
        assert alone(tmp_path / "new") == ["lock"]

    @pytest.mark.parametrize("step", ["witness", "rename"])
    def test_a_restore_that_fails_at_its_end_leaves_no_store(
        self, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        if step == "witness":
            monkeypatch.setattr(sqlite_rows, "write_witness", fail)
        else:
            monkeypatch.setattr(Path, "rename", fail)
        assert run("restore", backup, tmp_path / "new").exit_code == 1
        assert alone(tmp_path / "new") == ["lock"]

    def test_a_restore_that_was_killed_is_made_anew(self, backup: Path, tmp_path: Path) -> None:
        def kill(*_: object) -> None:
            raise KeyboardInterrupt

        for name, step in ((NewDatabase, "define"), (NewDatabase, "finish"), (Path, "rename")):
            target = tmp_path / f"new {step}"
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(name, step, kill)
                patched.setattr(Path, "unlink", lambda *_, **__: None)  # nobody tidies up
                run("restore", backup, target)
            assert DATABASE not in alone(target)
            assert run("restore", backup, target).exit_code == 0
            assert names(target) == ["m01", "m10", "m11", "m20", "m21", "published"]

    def test_a_store_that_has_lost_its_database_is_not_restored_over(self, backup: Path, tmp_path: Path) -> None:
        (tmp_path / "data" / DATABASE).unlink()
        assert "has a store already" in run("restore", backup, tmp_path / "data").output

    def test_what_belonged_to_connections_is_dropped(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "data", "name", reserve=0)
        batch = Batch(1)
        batch.accepted = [(1, message("kept").packed), (2, message("reply").packed), (3, message("staged").packed)]
        batch.definitions = {
            ("destination", ("ns", "queue:q")): (1,),
            (CONNECTION, ("c",)): ({},),
            (TEMPORARY, ("ns", "temporary-queue:c.1")): (2, "c"),
            (STAGE, ("ns", "s")): (3, "key", 1, None, 1, ()),
        }
        write(store, batch)
        store.close()
        assert run("restore", tmp_path / "data", tmp_path / "new").exit_code == 0
        store = SqliteStore(tmp_path / "new", reserve=0)
        assert [len(store.definitions(kind)) for kind in ("destination", CONNECTION, TEMPORARY, STAGE)] == [1, 0, 0, 0]
        store.close()
        with EmbeddedBroker(data_dir=tmp_path / "new") as broker:
            assert broker.call(lambda b: b.namespace("ns").queue("queue:q").depth) == 1


def test_clients_and_readers_of_a_restored_broker(tmp_path: Path) -> None:
    """What came after the backup is gone. What was consumed since comes again, marked; a tap is another one."""
    queue = Queue("q")
    first = EmbeddedBroker(data_dir=tmp_path / "data")
    with first, Relay(first.port) as relay:
        factory = ConnectionFactory(relay.url(first.url), reconnect=60_000)
        with factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
            with ConnectionFactory(first.url).create_connection() as reader:
                tap, _ = open_tap(reader, "audit", queue)
                assert publish(reader, "key", 1, []) == 0
                context.create_producer().send(queue, "before")
                assert run("backup", tmp_path / "data", tmp_path / "backup").exit_code == 0
                for number in range(3):
                    context.create_producer().send(queue, f"after {number}")
                tap.acknowledge(tap.look(0).upto)
                assert publish(reader, "key", 2, []) == 0
            consumer = context.create_consumer(queue)
            for _ in range(4):
                last = consumer.receive(60_000)
            last.acknowledge()
            relay.refuse()
            relay.cut()
            first.stop()
            assert run("restore", tmp_path / "backup", tmp_path / "new").exit_code == 0
            with EmbeddedBroker(data_dir=tmp_path / "new") as second:
                relay.forward_to(second.port)
                relay.accept()
                message = consumer.receive(60_000)
                assert (message.get_text(), message.get_jms_redelivered()) == ("before", True)
                message.acknowledge()
                context.create_producer().send(queue, "again")
                assert consumer.receive(60_000).get_text() == "again"
                with ConnectionFactory(second.url).create_connection() as reader:
                    found, state = find_tap(reader, "audit", queue)
                    assert found.id != tap.id
                    assert (state.acknowledged, state.last) == (0, 2)
                    with pytest.raises(JMSException, match="which was created later") as caught:
                        Tap(reader, tap.name, tap.destination, tap.id).fetch(4, 5)
                    assert caught.value.get_error_code() == "NOT_FOUND"
                    assert publish(reader, "key", 1, []) is None
                    assert publish(reader, "key", 2, []) == 0


class TestShards:
    @pytest.fixture
    def shard(self, database: Database, tmp_path: Path) -> str:
        name = database.shard()
        fill(tmp_path / "old", size=1_500_000)
        assert run("copy", tmp_path / "old", database.url, "--shard", name).exit_code == 0
        return name

    def test_a_shard_is_backed_up_beside_its_owner(self, database: Database, shard: str, tmp_path: Path) -> None:
        database.take(shard, "token")
        result = run("backup", database.url, tmp_path / "backup", "--shard", shard)
        assert (result.exit_code, "6 messages in 4 batches, 4 definitions" in result.output) == (0, True)
        assert exported(tmp_path / "backup") == exported(tmp_path / "old")

    def test_a_backup_becomes_a_directory_or_a_shard(self, database: Database, shard: str, tmp_path: Path) -> None:
        database.execute("INSERT INTO sievemq.history VALUES (%s, 'actions', 7, %s)", shard, '{"id":7,"action":"x"}')
        assert run("backup", database.url, tmp_path / "backup", "--shard", shard).exit_code == 0
        other = database.shard()
        assert run("restore", tmp_path / "backup", tmp_path / "new").exit_code == 0
        assert run("restore", tmp_path / "backup", database.url, "--shard", other).exit_code == 0
        assert exported(tmp_path / "new") == exported(database.url, "--shard", other)
        assert names(tmp_path / "new") == names(tmp_path / "old")
        assert (tmp_path / "new" / "history" / "actions").read_text() == '{"id":7,"action":"x"}\n'
        kept = database.execute("SELECT kind, id, data FROM sievemq.history WHERE shard = %s", other)
        assert kept == [("actions", 7, '{"id":7,"action":"x"}')]
        result = run("restore", tmp_path / "backup", database.url, "--shard", other)
        assert (result.exit_code, f"has a shard {other} already" in result.output) == (1, True)

    def test_a_shard_of_a_restored_database_gets_a_new_name(
        self, database: Database, shard: str, tmp_path: Path
    ) -> None:
        other = database.shard()
        assert run("restore", database.url, database.url, "--from-shard", shard, "--shard", other).exit_code == 0
        of = dict(database.execute("SELECT shard, incarnation FROM sievemq.head WHERE shard IN (%s, %s)", shard, other))
        assert of[shard] != of[other]


def test_a_backup_that_cannot_be_read_further_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "data")
    rows = RunningRows(tmp_path / "data")
    monkeypatch.setattr(RunningRows, "_expect_room", _fail)
    with pytest.raises(StoreError, match="given up"):
        check(rows)
    store = SqliteStore(tmp_path / "data", reserve=0)
    assert len(saved_in(store)) == 6
    store.close()


def _fail(_: object) -> None:
    raise StoreError("given up")


def test_backups_under_load_are_whole(tmp_path: Path) -> None:
    backups.play(tmp_path, backups=2, steps=20)


def test_backups_of_a_shard_under_load_are_whole(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new_database()
    assert run("init", url).exit_code == 0
    backups.play(tmp_path, url, backups=1, steps=20)
