"""`sievemq broker --data-dir`: what the process says, and how it ends when its store cannot be used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sievemq import ConnectionFactory
from sievemq_broker.cli import broker
from sievemq_broker.domain.journal import CHANGED, Batch
from sievemq_broker.domain.store import AbandonedError
from sievemq_broker.store import SqliteStore
from sievemq_broker.store.blob import SavedEntry
from sievemq_broker.store.database import DATABASE

from .kill import COMMAND, Life
from .support import message, saved_in, write

#: A broker whose store is read again and again.
SLOW = """
from sievemq.cli import main
from sievemq_broker.store import SqliteStore

batches = SqliteStore.batches

def again(store):
    print("restoring", flush=True)
    while True:
        yield from batches(store)

SqliteStore.batches = again
main()
"""


def start(directory: Path) -> tuple[int, list[dict[str, object]]]:
    """Run a broker that cannot start; its exit code and log."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
    done = subprocess.run(
        [*COMMAND, "broker", "--port", "0", "--no-http", "--data-dir", str(directory)],
        capture_output=True, text=True, env=environ, timeout=180, check=False,
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in (done.stdout + done.stderr).splitlines() if line[:1] == "{"]


def test_a_directory_in_use_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    code, log = start(tmp_path)
    store.close()
    assert code == 1
    assert [record["event"] for record in log] == ["broker.not_started"]
    assert f"in use by another broker (process {os.getpid()})" in str(log[0]["reason"])


def test_a_damaged_store_is_not_served(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    store.close()
    content = bytearray((tmp_path / DATABASE).read_bytes())
    content[200:4096] = bytes(3896)
    (tmp_path / DATABASE).write_bytes(content)
    code, log = start(tmp_path)
    assert code == 1
    assert str(tmp_path) in str(log[0]["reason"])
    assert "sievemq store check" in str(log[0]["reason"])
    assert (tmp_path / DATABASE).read_bytes() == content


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_broker_that_restores(tmp_path: Path, number: int) -> None:
    kept = filled(tmp_path)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
    process = subprocess.Popen(
        [*COMMAND[:2], SLOW, "broker", "--port", "0", "--http-port", "0", "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "restoring\n"
        process.send_signal(number)
        log, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, log
    assert [json.loads(line)["event"] for line in log.splitlines()] == ["broker.stopped"]
    again = SqliteStore(tmp_path, reserve=0)
    assert (saved_in(again), again.epoch) == (kept, 3)
    again.close()


def test_sqlite_stops_reading_when_a_store_is_no_longer_wanted(tmp_path: Path) -> None:
    kept = filled(tmp_path)
    with pytest.raises(AbandonedError, match="abandoned"):
        SqliteStore(tmp_path, reserve=0, is_wanted=lambda: False)
    again = SqliteStore(tmp_path, reserve=0, is_wanted=lambda: True)
    assert saved_in(again) == kept
    again.close()


def filled(directory: Path) -> list[SavedEntry]:
    """Make a store with many queues, and messages of one. Returns these."""
    store = SqliteStore(directory, reserve=0)
    for number in range(1, 4):
        batch = Batch(number)
        batch.accepted += [(1, message(f"m{number}", body=bytes(200)).packed)] * 1_000
        if number == 1:
            batch.definitions["namespace", ("default",)] = ()
            for owner in range(1, 500):
                batch.definitions["destination", ("default", f"queue:q{owner}")] = (owner,)
        write(store, batch)
    kept = saved_in(store)
    store.close()
    return kept


def test_the_log_names_the_data_directory_and_its_contents(tmp_path: Path) -> None:
    life = Life(1, tmp_path)
    life.start()
    with ConnectionFactory(f"sievemq://127.0.0.1:{life.port}").create_context() as context:
        for number in range(3):
            context.create_producer().send(context.create_queue("q"), f"m{number}")
    life.kill()
    life.start()
    assert life.process is not None
    assert life.process.stdout is not None
    record = json.loads(life.process.stdout.readline())
    assert record["event"] == "broker.durable"
    assert (record["directory"], record["messages"], record["epoch"]) == (str(tmp_path), 3, 2)
    life.stop()
    assert life.accounts.faults == []
    assert not (tmp_path / f"{DATABASE}-wal").exists(), "an ordered end leaves no log"


def test_a_store_with_an_invalid_message_is_refused(tmp_path: Path) -> None:
    """The checksum is right, the content is not: it was written so, by something else."""
    store = SqliteStore(tmp_path, reserve=0)
    batch = Batch(1)
    batch.accepted += [(1, message("good").packed), (1, b"\xc1 no envelope")]
    batch.definitions["destination", ("default", "queue:q")] = (1,)
    batch.definitions["namespace", ("default",)] = ()
    write(store, batch)
    store.close()
    code, log = start(tmp_path)
    assert code == 1
    assert "cannot be decoded" in str(log[0]["reason"])


def test_what_goes_wrong_while_a_broker_starts_is_in_its_log(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    batch = Batch(1)
    batch.accepted += [(1, b"\xc1 no envelope")]
    batch.definitions["destination", ("default", "queue:q")] = (1,)
    batch.definitions["namespace", ("default",)] = ()
    batch.definitions[CHANGED, ("rule", "queue:q")] = (1, 0, None, "", '{"max_love": 1}')
    write(store, batch)
    store.close()
    code, log = start(tmp_path)
    assert code == 1
    assert [record["event"] for record in log] == ["setting.not_restored", "broker.not_started"]


def test_only_a_shared_store_has_another_broker_to_ask(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(broker)
    done = CliRunner().invoke(app, ["--handover", "--data-dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "--handover needs --store" in done.output
