"""`sievemq store` on a database: its tables are made, checked, exported; stores are copied into it and back."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.postgres import Database, Server

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.store import SqliteStore
from sievemq_broker.store.postgres_tables import ADDED

from .test_salvage import change, exported, fill, names, run

#: The tables, their columns and what roles may do with them.
TABLES = (
    "SELECT c.relname, c.relacl::text, array_agg(a.attname::text ORDER BY a.attname) FROM pg_class c "
    "JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'sievemq'::regnamespace AND c.relkind = 'r' "
    "AND a.attnum > 0 AND NOT a.attisdropped GROUP BY c.oid ORDER BY 1"
)


@pytest.fixture
def empty(postgres: Server) -> str:
    """The URL of a database without tables."""
    return postgres.new_database()


@pytest.fixture
def shard(database: Database, tmp_path: Path) -> str:
    """A shard with what :func:`fill` makes, copied from a directory."""
    name = database.shard()
    fill(tmp_path / "old")
    result = run("copy", tmp_path / "old", database.url, "--shard", name)
    assert result.exit_code == 0, result.output
    return name


class TestInit:
    def test_tables_are_made_once(self, empty: str) -> None:
        result = run("check", empty)
        assert (result.exit_code, "sievemq store init" in result.output) == (1, True)
        assert "The tables are made" in run("init", empty).output
        assert "there already" in run("init", empty).output
        assert "format 1, the latest one" in run("migrate", empty).output
        assert "brokers of older versions are refused" in run("finalize", empty).output
        result = run("check", empty)
        assert (result.exit_code, "contains no shard main" in result.output) == (1, True)

    def test_an_administrator_may_run_the_printed_sql(self, empty: str) -> None:
        import psycopg

        printed = run("init", empty, "--print", "--role", 'the "broker"').output
        assert run("check", empty).exit_code == 1, "nothing was done"
        with psycopg.connect(empty, autocommit=True) as connection:
            connection.execute('CREATE ROLE "the ""broker""" LOGIN')
            connection.execute(printed)
        url = empty.replace("sievemq@", quote('the "broker"') + "@")
        assert "contains no shard" in run("check", url).output
        assert "there already" in run("init", url).output
        with psycopg.connect(empty, autocommit=True) as connection:
            connection.execute('DROP OWNED BY "the ""broker"""')
            connection.execute('DROP ROLE "the ""broker"""')

    def test_an_older_database_gets_what_it_lacks(self, empty: str) -> None:
        import psycopg

        with psycopg.connect(empty, autocommit=True) as connection:
            connection.execute("CREATE ROLE older LOGIN")
            try:
                connection.execute(run("init", empty, "--print", "--role", "older").output)
                wanted = connection.execute(TABLES).fetchall()
                connection.execute("DROP TABLE sievemq.history, sievemq.namespace, sievemq.placement")
                connection.execute("ALTER TABLE sievemq.lease DROP COLUMN http_url, DROP COLUMN ports")
                lacking = ", ".join(ADDED)
                assert f"without {lacking}: `sievemq store migrate` adds that" in run("init", empty).output
                assert run("migrate", empty).output == (f"The tables have format 1, the latest one: added {lacking}.\n")
                assert connection.execute(TABLES).fetchall() == wanted
                assert "nothing was done" in run("migrate", empty).output
            finally:
                connection.execute("DROP OWNED BY older; DROP ROLE older")

    @pytest.mark.parametrize("command", ["init", "migrate", "finalize", "check", "export"])
    def test_a_database_that_is_away_is_named_without_its_password(self, command: str) -> None:
        result = run(command, "postgresql://me:secret@127.0.0.1:1/mq")
        assert (result.exit_code, "secret" in result.output) == (1, False)
        assert "postgresql://me:***@127.0.0.1:1/mq" in result.output


class TestCheckAndExport:
    def test_a_shard_that_is_fine(self, database: Database, shard: str, tmp_path: Path) -> None:
        result = run("check", database.url, "--shard", shard)
        assert (result.exit_code, "6 messages in 4 batches, 4 definitions" in result.output) == (0, True)
        assert exported(database.url, "--shard", shard) == exported(tmp_path / "old")

    def test_every_damage_is_named(self, database: Database, shard: str) -> None:
        for statement in (
            "UPDATE sievemq.batch SET data = '\\x00' WHERE shard = %s AND id = 2",
            "UPDATE sievemq.state SET data = substr(data, 1, 6) WHERE shard = %s AND id = 1",
            "DELETE FROM sievemq.batch WHERE shard = %s AND id = 3",
            "INSERT INTO sievemq.state VALUES (%s, 99, '')",
            "UPDATE sievemq.definition SET data = '\\x0011' WHERE shard = %s AND kind = 'subscription'",
        ):
            database.execute(statement, shard)
        result = run("check", database.url, "--shard", shard)
        assert result.exit_code == 4
        assert "damaged: batch 2 is cut off" in result.output
        assert "damaged: the checksum of the state of batch 1 is wrong; its 2 messages may have been" in result.output
        assert "damaged: batch 99 is missing, although its state exists" in result.output
        assert "damaged: the definition of 'subscription'" in result.output
        result = run("export", database.url, "--shard", shard)
        assert result.exit_code == 4
        assert [json.loads(line)["message_id"] for line in result.stdout.splitlines()] == ["m00", "m01", "published"]


class TestCopy:
    def test_a_copy_and_its_copy_are_the_same_store(self, database: Database, shard: str, tmp_path: Path) -> None:
        second = database.shard()
        for source, target in ((shard, second), (second, tmp_path / "new")):
            where = (target,) if isinstance(target, Path) else (database.url, "--shard", target)
            result = run("copy", database.url, *where, "--from-shard", source)
            assert result.exit_code == 0, result.output
        assert names(tmp_path / "new") == names(tmp_path / "old")
        stores = [SqliteStore(tmp_path / each, reserve=0) for each in ("old", "new")]
        for each in stores:
            each.close()
        one, other = stores
        assert (one.incarnation, one.epoch, one.next_write, one.next_batch) == (
            other.incarnation, other.epoch, other.next_write, other.next_batch,
        )  # fmt: skip

    def test_a_shard_that_exists_is_not_copied_over(self, database: Database, shard: str, tmp_path: Path) -> None:
        result = run("copy", tmp_path / "old", database.url, "--shard", shard)
        assert (result.exit_code, f"has a shard {shard} already" in result.output) == (1, True)

    def test_a_damaged_store_leaves_no_shard(self, database: Database, tmp_path: Path) -> None:
        fill(tmp_path / "bad")
        change(tmp_path / "bad", "UPDATE batch SET data = x'00' WHERE id = 2")
        name = database.shard()
        assert run("copy", tmp_path / "bad", database.url, "--shard", name).exit_code == 4
        assert "contains no shard" in run("check", database.url, "--shard", name).output

    def test_a_large_batch_is_copied_in_pieces(self, database: Database, tmp_path: Path) -> None:
        fill(tmp_path / "old", size=3_000_000)
        name = database.shard()
        assert run("copy", tmp_path / "old", database.url, "--shard", name).exit_code == 0
        pieces = database.execute(
            "SELECT count(*), max(length(data)) FROM sievemq.batch WHERE shard = %s AND id = 1", name
        )
        assert pieces == [(6, 1024 * 1024)]
        assert exported(database.url, "--shard", name) == exported(tmp_path / "old")

    def test_a_shard_whose_owner_lives_is_refused(
        self, database: Database, shard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def beats(_: float) -> None:
            database.execute("UPDATE sievemq.lease SET beat = beat + 1 WHERE shard = %s", shard)

        database.take(shard, "token")
        arguments = ("copy", database.url, tmp_path / "new", "--from-shard", shard)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sievemq_broker.store.postgres_tool.time.sleep", beats)
            result = run(*arguments)
            assert (result.exit_code, "is in use by" in result.output) == (1, True)
            assert run("check", database.url, "--shard", shard).exit_code == 0, "it may be read"
        monkeypatch.setattr("sievemq_broker.store.postgres_tool._WATCHED", 0.3)
        assert run(*arguments).exit_code == 0, "its owner is dead"


def test_a_database_is_not_repaired() -> None:
    result = run("repair", "postgresql://db/mq")
    assert (result.exit_code, "only data directories" in result.output) == (2, True)


def test_a_broker_needs_no_more_rights_than_init_grants(empty: str) -> None:
    import psycopg

    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("CREATE ROLE granted LOGIN")
        assert run("init", empty, "--role", "granted").exit_code == 0
        settings = {"store": empty.replace("sievemq@", "granted@"), "beat_seconds": 0.05}
        for numbers in (range(3), range(3, 6)):
            with (
                EmbeddedBroker(settings=settings) as broker,
                ConnectionFactory(broker.url).create_context() as context,
            ):
                queue = context.create_queue("q")
                for number in numbers:
                    context.create_producer().send(queue, f"m{number}")
                found = [message.get_text() for message in context.create_browser(queue)]
                assert found == [f"m{number}" for number in range(numbers.stop)]
                result = run("check", empty)
                assert (result.exit_code, f"{numbers.stop} messages" in result.output) == (0, True), "beside the broker"
                assert run("copy", empty, empty, "--shard", "b").exit_code == 1, "its owner lives"
        connection.execute("DROP OWNED BY granted")
        connection.execute("DROP ROLE granted")
