"""What an operator sees of a data directory: room, a full disk, a disk that takes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sievemq import ConnectionFactory, ResourceAllocationRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.durability import commits
from sievemq_broker.server.http import gate
from sievemq_broker.server.http.api import series
from sievemq_broker.store import StoreFullError

from .conftest import Api, at
from .test_events import listening

PLENTY = 2**40


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Free bytes of the disk: the last one."""
    free = [PLENTY]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[-1], total=2 * PLENTY))
    monkeypatch.setattr(commits, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(series, "STEP_SECONDS", 0.02)
    return free


@pytest.fixture
def durable(free: list[int], tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, data_dir=tmp_path / "data") as broker:
        yield broker


def metrics(api: Api) -> dict[str, float]:
    lines = api("GET", "/metrics").content.decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("sievemq_store_")}


def test_a_full_disk_is_shown_everywhere_until_there_is_room(durable: EmbeddedBroker, free: list[int]) -> None:
    api = Api(durable)
    assert api("GET", "/readyz").json == {"status": "ready", "role": "owner", "reasons": []}
    before = api.get("/api/v1/broker")["storage"]
    assert before["full"] is before["stuck"] is None
    assert PLENTY > before["free_bytes"] / 2 > before["room_bytes"] / 2 > 0
    assert (before["total_bytes"], before["refused"]) == (2 * PLENTY, 0)
    assert metrics(api)["sievemq_store_reserve_bytes"] == before["reserve_bytes"] > 0
    with ConnectionFactory(durable.url).create_context() as context, listening(durable) as stream:
        stream.until("tick")
        free.append(0)
        producer, queue = context.create_producer(), context.create_queue("q")
        with pytest.raises(ResourceAllocationRuntimeException, match="is full"):
            for _ in range(100):
                producer.send(queue, "x" * 100_000)
        full = "the disk of the data directory is full"
        assert stream.until("disk.full")[-1][1] == {"reason": full}
        ready = api("GET", "/readyz")
        assert ready.status == 200
        assert ready.json["warnings"] == [f"PERSISTENT messages are refused or wait: {full}"]
        assert api.get("/api/v1/broker")["storage"]["full"] == full
        assert metrics(api)["sievemq_store_full"] == 1
        assert metrics(api)["sievemq_store_stuck"] == 0
        free.append(PLENTY)
        stream.until("disk.has_room")
        assert "warnings" not in api("GET", "/readyz").json
        assert metrics(api)["sievemq_store_full"] == 0
        producer.send(queue, "again")


def test_a_message_that_is_too_large_for_the_room_is_counted(durable: EmbeddedBroker, free: list[int]) -> None:
    api = Api(durable)
    free.append(2**20)
    with ConnectionFactory(durable.url).create_context() as context:
        queue = context.create_queue("q")
        context.create_producer().send(queue, "small")
        with pytest.raises(ResourceAllocationRuntimeException, match="no room for 10,"):
            context.create_producer().send(queue, "x" * 10_000_000)
        context.create_producer().send(queue, "small")
    assert metrics(api)["sievemq_store_refused_total"] == 1
    assert api("GET", "/readyz").json == {"status": "ready", "role": "owner", "reasons": []}


def test_a_change_that_cannot_be_written_is_answered(durable: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(gate, "LOOK_SECONDS", 0.02)
    api, stuck = Api(durable), threading.Event()
    api.ok("PUT", at("queue:q"))
    assert durable.server.shard.opened is not None
    store = durable.server.shard.opened.store
    write = store.write

    def fails(*arguments: Any) -> None:
        if stuck.is_set():
            raise StoreFullError("the disk is full")
        write(*arguments)

    monkeypatch.setattr(store, "write", fails)
    stuck.set()
    answer = api("POST", f"{at('queue:q')}/actions/pause", {})
    assert (answer.status, answer.error) == (503, "UNAVAILABLE")
    assert "once that can be written: the disk is full" in answer.json["text"]
    assert api("GET", "/readyz").json["reasons"] == ["the disk is full"]
    assert api.get("/api/v1/broker")["storage"]["stuck"] == "the disk is full"
    assert metrics(api)["sievemq_store_stuck"] == 1
    stuck.clear()
    while api("GET", "/readyz").status == 503:
        pass
    api.act("queue:q", "resume")
