"""The API of a broker with a data directory: what it says is done is on disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.broker.store.disk import Disk

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker
from sievemq_broker.domain.journal import Share
from sievemq_broker.domain.store import DamagedError
from sievemq_broker.server.http import gate
from sievemq_broker.server.http.api import series

from .conftest import DEADLINE, Answer, Api, at
from .test_events import listening

Q, R = "queue:q", "queue:r"


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        for number in range(12):
            api.ok("POST", f"{at(Q)}/messages", {"body": "x", "properties": {"n": number}})
        for number in (98, 99):
            api.ok("POST", f"{at(Q)}/messages", {"properties": {"n": number}, "delivery_delay": 10**9})
        assert api.act(Q, "move", to=R, selector="n < 4")["touched"] == 4
        assert api.act(Q, "copy", to="queue:c", selector="n = 5")["touched"] == 1
        assert api.act(Q, "delete", selector="n = 4")["touched"] == 1
        assert api.act(Q, "cancel", selector="n = 98")["touched"] == 1
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        assert api.ids(Q) == [str(n) for n in range(5, 12)]
        assert (api.ids(R), api.ids("queue:c")) == (["0", "1", "2", "3"], ["5"])
        assert api.ids(Q, state="scheduled") == ["99"]
        api.ok("DELETE", at(Q))
        assert api.act(R, "purge")["touched"] == 4
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        assert sum(row["depth"] + row["scheduled"] for row in api.get("destinations")["destinations"]) == 1


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        Api(broker).ok("PUT", at(Q))
        yield broker


def send(broker: EmbeddedBroker, disk: Disk, pool: ThreadPoolExecutor) -> Future[Answer]:
    """The answer to a send that has been carried out, and is being written."""
    answer = pool.submit(Api(broker), "POST", f"{at(Q)}/messages", {"body": "x"})
    assert disk.writing.wait(DEADLINE)
    return answer


def test_answers_wait_for_the_disk(durable: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that tell of a change as well as the one that confirms it."""
    monkeypatch.setattr(gate, "LOOK_SECONDS", DEADLINE)
    disk = Disk(durable)
    with ThreadPoolExecutor(3) as pool:
        with disk.held():
            answers = [send(durable, disk, pool)]
            answers += [pool.submit(Api(durable), "GET", path) for path in (at(Q), f"{at(Q)}/messages")]
            assert Api(durable)("GET", "/livez").status == 200  # it tells of nothing that could be lost
            assert not any(answer.done() for answer in answers)
        assert [answer.result(DEADLINE).status for answer in answers] == [201, 200, 200]
        assert answers[1].result().json["depth"] == 1


def test_a_broker_whose_disk_hangs_can_be_looked_at(durable: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LOOK_SECONDS", 0.01)
    disk = Disk(durable)
    with ThreadPoolExecutor(1) as pool:
        with disk.held():
            change = send(durable, disk, pool)
            assert Api(durable).get(at(Q))["depth"] == 1
            assert not change.done()
        assert change.result(DEADLINE).status == 201


def test_only_answers_that_show_messages_or_confirm_wait_for_verbs_that_are_not_complete(
    durable: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LOOK_SECONDS", DEADLINE)
    share = Share()

    def begin(broker: Broker) -> None:
        assert broker.journal is not None
        broker.journal.together(share, lambda: broker.journal.define("kind", ("key",), ()))  # type: ignore[union-attr]

    def complete(broker: Broker) -> None:
        assert broker.journal is not None
        broker.journal.complete(share)

    durable.call(begin)
    with ThreadPoolExecutor(2) as pool:
        messages = pool.submit(Api(durable), "GET", f"{at(Q)}/messages")
        change = pool.submit(Api(durable), "POST", f"{at(Q)}/messages", {"body": "x"})
        while Api(durable).get(at(Q))["depth"] == 0:  # figures are answered
            pass
        assert not messages.done()
        assert not change.done()
        durable.call(complete)
        assert (messages.result(DEADLINE).status, change.result(DEADLINE).status) == (200, 201)


def test_a_change_is_refused_once_the_disk_has_failed(durable: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LOOK_SECONDS", 0.01)

    def fails(*arguments: Any) -> None:
        raise DamagedError("the disk lies")

    durable.call(lambda _: monkeypatch.setattr(durable.server.shard.opened.store, "write", fails))  # type: ignore[union-attr]
    answer = Api(durable)("POST", f"{at(Q)}/messages", {"body": "x"})
    assert (answer.status, answer.error) == (503, "UNAVAILABLE")
    assert "cannot be written; the broker ends" in answer.json["text"]
    assert Api(durable).get(at(Q))["depth"] == 1


def test_events_wait_for_the_disk(durable: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LOOK_SECONDS", DEADLINE)
    monkeypatch.setattr(series, "STEP_SECONDS", 0.02)
    disk, held_back, passed = Disk(durable), threading.Event(), gate.DiskGate.passed

    async def watched(self: gate.DiskGate, changes: bool, *rest: bool) -> None:
        if not changes and not disk.may_write.is_set():
            held_back.set()
        await passed(self, changes, *rest)

    monkeypatch.setattr(gate.DiskGate, "passed", watched)
    with listening(durable) as stream, ThreadPoolExecutor(2) as pool:
        stream.until("tick")
        with disk.held():
            change = pool.submit(Api(durable), "PUT", at("queue:new"))
            created = pool.submit(stream.until, "destination.created")
            assert disk.writing.wait(DEADLINE)
            assert held_back.wait(DEADLINE)
            assert not created.done()
        assert created.result(DEADLINE)[-1][1]["address"] == "queue:new"
        assert change.result(DEADLINE).status == 201
