"""`sievemq store` on data directories that are fine, damaged, or in use."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.broker.at_once import close
from typer.testing import CliRunner, Result

from sievemq_broker.domain import Broker
from sievemq_broker.domain.failure import NOBODY
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.restore import restore
from sievemq_broker.store import DamagedError, SqliteStore
from sievemq_broker.store.cli import store as command
from sievemq_broker.store.database import DATABASE

from .support import NOW, message, name_of, saved_in


class Port:
    def __init__(self) -> None:
        self.writable = True
        self.needs: list[Stored] = []
        self.party = NOBODY

    def deliver(self, *_: object) -> None: ...
    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        return len(row)

    def closed(self, *_: object) -> None: ...


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments])


def fill(folder: Path, size: int = 1) -> None:
    """A queue of three batches, one message held and one acknowledged, and a durable subscription.

    Args:
        size: bytes of each body.
    """
    store = SqliteStore(folder, "broker", reserve=0)
    broker = Broker()
    restore(broker, store, NOW)
    assert broker.journal is not None
    space = broker.namespace("ns")
    for batch in range(3):
        for number in range(2):
            space.send("queue:q", message(f"m{batch}{number}", body=b"\xff" * size, n=number), NOW)
        store.write(broker.journal.cut(), NOW)
    consumer = space.open_consumer(Port(), 1, "queue:q", connection="c", credit=2, now=NOW)
    consumer.acknowledge(1, NOW)
    durable = {"client_id": "id", "subscription": "s", "durable": True}
    close(space.open_consumer(Port(), 2, "topic:t", connection="c", now=NOW, **durable), 0, NOW)
    space.send("topic:t", message("published"), NOW)
    store.write(broker.journal.cut(), NOW)
    store.close()


def names(folder: Path) -> list[str]:
    store = SqliteStore(folder, reserve=0)
    try:
        return [name_of(entry.packed) for entry in saved_in(store)]
    finally:
        store.close()


def exported(where: object, *options: object) -> list[str]:
    result = run("export", where, *options)
    assert result.exit_code == 0, result.output
    return list(result.stdout.splitlines())


def change(folder: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(folder / DATABASE) as database:
        database.execute(statement, values)
    database.close()


class TestCheck:
    def test_a_store_that_is_fine(self, tmp_path: Path) -> None:
        fill(tmp_path)
        before = (tmp_path / DATABASE).read_bytes()
        result = run("check", tmp_path)
        assert result.exit_code == 0
        assert "6 messages in 4 batches, 4 definitions" in result.output
        assert (tmp_path / DATABASE).read_bytes() == before

    def test_every_damage_is_named(self, tmp_path: Path) -> None:
        fill(tmp_path)
        change(tmp_path, "UPDATE batch SET data = x'00' WHERE id = 2")
        change(tmp_path, "UPDATE state SET data = substr(data, 1, 6) WHERE id = 1")
        (tmp_path / "witness").unlink()
        result = run("check", tmp_path)
        assert result.exit_code == 4
        assert "damaged: batch 2 is cut off" in result.output
        assert "damaged: the checksum of the state of batch 1 is wrong; its 2 messages may have been" in result.output
        assert "damaged: witness: missing" in result.output

    def test_check_fails_without_a_store_and_while_it_is_in_use(self, tmp_path: Path) -> None:
        result = run("check", tmp_path)
        assert result.exit_code == 1
        assert "contains no store" in result.output
        store = SqliteStore(tmp_path, reserve=0)
        result = run("check", tmp_path)
        assert result.exit_code == 1
        assert "in use by another broker" in result.output
        store.close()


class TestExport:
    def test_messages_as_lines_of_json(self, tmp_path: Path) -> None:
        fill(tmp_path)
        result = run("export", tmp_path, "--out", tmp_path / "out.jsonl")
        assert result.exit_code == 0
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [line["message_id"] for line in lines] == ["m01", "m10", "m11", "m20", "m21", "published"]
        assert lines[0] == {
            "namespace": "ns", "destination": "queue:q", "message_id": "m01", "timestamp": NOW, "priority": 4,
            "delivery_mode": "PERSISTENT", "expiration": 0, "delivery_time": NOW, "correlation_id": None,
            "reply_to": None, "type": None, "properties": {"n": 1}, "property_types": {"n": "int"}, "deliveries": 1,
            "kind": "bytes", "body": "/w==", "body_encoding": "base64",
        }  # fmt: skip
        assert lines[5] | {"client_id": "id", "subscription": "s", "destination": "topic:t"} == lines[5]

    def test_damage_is_reported_and_the_rest_exported(self, tmp_path: Path) -> None:
        fill(tmp_path)
        change(tmp_path, "UPDATE batch SET data = x'0011223344' WHERE id = 2")
        result = run("export", tmp_path)
        assert result.exit_code == 4
        ids = [json.loads(line)["message_id"] for line in result.stdout.splitlines()]
        assert ids == ["m01", "m20", "m21", "published"]


class TestInit:
    def test_a_directory_is_made_once_and_keeps_its_name(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        assert run("init", directory).exit_code == 0
        store = SqliteStore(directory, "other", reserve=0)
        store.close()
        assert store.incarnation not in ("", "other")
        assert run("init", directory).exit_code == 0
        assert run("check", directory).exit_code == 0

    def test_a_directory_needs_no_migration(self, tmp_path: Path) -> None:
        for name in ("migrate", "finalize"):
            assert "brought up to date by its broker" in run(name, tmp_path).output


class TestCopy:
    def test_a_copy_is_the_same_store(self, tmp_path: Path) -> None:
        old, new = tmp_path / "old", tmp_path / "new"
        fill(old)
        result = run("copy", old, new)
        assert result.exit_code == 0, result.output
        assert "Copied 6 messages in 4 batches, 4 definitions" in result.output
        assert run("check", new).exit_code == 0
        assert exported(old) == exported(new)
        stores = [SqliteStore(each, reserve=0) for each in (old, new)]
        for each in stores:
            each.close()
        one, other = stores
        assert (one.incarnation, one.epoch, one.next_write, one.next_batch) == (
            other.incarnation, other.epoch, other.next_write, other.next_batch,
        )  # fmt: skip

    def test_a_store_is_not_copied_over_another_one(self, tmp_path: Path) -> None:
        fill(tmp_path / "a")
        fill(tmp_path / "b")
        result = run("copy", tmp_path / "a", tmp_path / "b")
        assert (result.exit_code, "has a store already" in result.output) == (1, True)
        assert run("copy", tmp_path / "a", tmp_path / "c").exit_code == 0, "it was released"

    def test_a_damaged_store_is_not_copied(self, tmp_path: Path) -> None:
        old, new = tmp_path / "old", tmp_path / "new"
        fill(old)
        change(old, "UPDATE batch SET data = x'00' WHERE id = 2")
        result = run("copy", old, new)
        assert (result.exit_code, "nothing was copied" in result.output) == (4, True)
        assert run("check", new).exit_code == 1, "there is no store"
        assert run("copy", old, new).exit_code == 4, "it can be tried again"


class TestRepair:
    def test_a_store_that_is_fine_is_left_alone(self, tmp_path: Path) -> None:
        fill(tmp_path)
        before = (tmp_path / DATABASE).read_bytes()
        assert "nothing was done" in run("repair", tmp_path).output
        assert (tmp_path / DATABASE).read_bytes() == before

    def test_damaged_rows_are_set_aside_and_the_rest_served(self, tmp_path: Path) -> None:
        fill(tmp_path)
        change(tmp_path, "UPDATE batch SET data = x'0011223344' WHERE id = 2")
        change(tmp_path, "UPDATE state SET data = x'0011223344' WHERE id = 1")
        with pytest.raises(DamagedError):
            names(tmp_path)
        old = (tmp_path / DATABASE).read_bytes()
        result = run("repair", tmp_path)
        assert result.exit_code == 0
        assert (tmp_path / "damaged-1" / DATABASE).read_bytes() == old
        left_out = [json.loads(line) for line in (tmp_path / "damaged-1" / "left-out.jsonl").read_text().splitlines()]
        assert any(line.get("bytes") == "ABEiM0Q=" for line in left_out)
        # m00 was acknowledged, but that is forgotten: it is redelivered.
        assert names(tmp_path) == ["m00", "m01", "m20", "m21", "published"]
        broker = Broker()
        store = SqliteStore(tmp_path, reserve=0)
        restore(broker, store, NOW)
        store.close()
        assert store.incarnation == "broker"
        _, page = broker.namespace("ns").browse("queue:q", None, None, 10, NOW)
        assert [(envelope.fields[0], count) for count, envelope in page] == [
            ("m00", 2), ("m01", 2), ("m20", 1), ("m21", 1),
        ]  # fmt: skip
        assert run("check", tmp_path).exit_code == 0

    def test_states_that_cannot_be_found_are_guessed(self, tmp_path: Path) -> None:
        fill(tmp_path)
        change(tmp_path, "DROP TABLE state")
        result = run("repair", tmp_path)
        assert "damaged: the state of batch 1: no such table: state; its 2 messages may have been" in result.output
        assert names(tmp_path)[:2] == ["m00", "m01"]
        broker = Broker()
        store = SqliteStore(tmp_path, reserve=0)
        restore(broker, store, NOW)
        store.close()
        _, page = broker.namespace("ns").browse("queue:q", None, None, 10, NOW)
        assert {count for count, _ in page} == {2}

    def test_messages_of_a_queue_whose_definition_is_damaged_are_listed(self, tmp_path: Path) -> None:
        fill(tmp_path)
        change(tmp_path, "UPDATE definition SET data = x'0011' WHERE kind = 'destination'")
        result = run("repair", tmp_path)
        assert "The repaired store has 1 message" in result.output
        left_out = [json.loads(line) for line in (tmp_path / "damaged-1" / "left-out.jsonl").read_text().splitlines()]
        assert [line["message_id"] for line in left_out if "message_id" in line] == ["m01", "m10", "m11", "m20", "m21"]

    def test_a_log_that_lost_writes(self, tmp_path: Path) -> None:
        fill(tmp_path)
        (tmp_path / "witness").unlink()
        with pytest.raises(DamagedError):
            names(tmp_path)
        assert run("repair", tmp_path).exit_code == 0
        assert names(tmp_path) == ["m01", "m10", "m11", "m20", "m21", "published"]
