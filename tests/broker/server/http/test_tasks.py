"""Long work leaves the loop to others."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_broker.server.http import metrics, tasks
from sievemq_broker.server.http.errors import GoneError
from sievemq_broker.server.watch.counts import Totals

from .conftest import DEADLINE, Api, at
from .deep import fill


class _Server:
    """As much of one as is needed."""

    started_at = 1.0

    class clock:  # noqa: N801
        now = staticmethod(lambda: 0)

    class turn:  # noqa: N801
        worked = staticmethod(lambda: None)

    class shard:  # noqa: N801
        broker = Broker()


async def test_a_broker_without_turns_carries_a_task_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that owns no shard answers a few requests."""
    monkeypatch.setattr(_Server, "started_at", 0.0)
    monkeypatch.delattr(_Server, "turn")
    assert await tasks.each(cast("Any", _Server), range(3), str) == ["0", "1", "2"]


async def test_many_requests_share_a_turn() -> None:
    """Long lists and verbs of the domain have the units of one turn together, and all come to an end."""
    turn, worked = 0, Counter[int]()
    running = True

    def steps(now: int, budget: Budget) -> Task[str]:
        for _ in range(5):
            worked[turn] += 1
            budget.spend(TURN)
            yield
        return "done"

    async def run() -> str:
        return await tasks.run(cast("Any", _Server), steps)

    def note(item: int) -> int:
        worked[turn] += 1
        return item

    async def look() -> list[int]:
        return await tasks.each(cast("Any", _Server), range(5), note, TURN)

    async def others() -> None:
        nonlocal turn
        while running:
            turn += 1
            _Server.shard.broker.work(0)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    ran = asyncio.gather(*(run() for _ in range(20)))
    looked = asyncio.gather(*(look() for _ in range(20)))
    assert await ran == ["done"] * 20
    assert await looked == [[0, 1, 2, 3, 4]] * 20
    running = False
    await task
    assert sum(worked.values()) == 200
    assert max(worked.values()) == 1


async def test_the_rows_of_few_share_a_turn() -> None:
    done: list[int] = []
    listing = asyncio.gather(
        *(tasks.each(cast("Any", _Server), range(5), done.append) for _ in range(TURN // tasks.ROW // 5))
    )
    await asyncio.sleep(0)
    assert done == []
    assert not _Server.shard.broker.work(0)
    assert len(done) == TURN // tasks.ROW // 5 * 5
    await listing


@pytest.mark.parametrize(("count", "total"), [(tasks.open_transactions, 10), (tasks.blocked_producers, 5)])
async def test_connections_with_many_sessions_have_turns_of_their_own(count: Any, total: int) -> None:
    sessions = range(TURN * tasks.SESSIONS)
    connection = SimpleNamespace(sessions=sessions, open_transactions=2, blocked_senders=["one", "two"])
    counting = asyncio.create_task(count(_Server, [connection] * 5))
    await asyncio.sleep(0)
    turns = 1
    while _Server.shard.broker.work(0):
        turns += 1
    assert turns == 5
    assert await counting == total


async def test_work_without_a_waiting_client_ends_at_its_next_slice() -> None:
    done: list[str] = []

    def steps(now: int, budget: Budget) -> Task[None]:
        try:
            for number in range(10):
                budget.spend(TURN)
                yield
                done.append(f"slice {number}")
        finally:
            done.append("closed")

    tasks.gone.set(lambda: len(done) >= 3)
    running = asyncio.create_task(tasks.run(cast("Any", _Server), steps))
    while not running.done():
        _Server.shard.broker.work(0)
        await asyncio.sleep(0)
    with pytest.raises(GoneError):
        await running
    assert done == ["slice 0", "slice 1", "slice 2", "closed"]


@pytest.mark.parametrize("path", ["/metrics/detailed", "/api/v1/namespaces", "dead-letters", "destinations"])
def test_all_rows_of_a_page_are_one_task(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task waits for the slices of all others."""
    made = 0
    while_wanted = tasks._while_wanted

    def note(*given: Any) -> Any:
        nonlocal made
        made += 1
        return while_wanted(*given)

    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        for number in range(100):
            broker.call(fill, f"n{number}", "queue:q", 1)
            broker.call(fill, api.namespace, f"queue:DLQ.{number}", 1)
        monkeypatch.setattr(tasks, "_while_wanted", note)
        assert api("GET", path).status == 200
        assert made < 10, "the sampler has some, too"


def test_a_purge_stops_when_its_client_disconnects(api: Api) -> None:
    queue, depth = "queue:q", 3_000
    api.broker.call(lambda b: fill(b, api.namespace, queue, depth))
    made: Any = api.broker._http.management  # type: ignore[union-attr]

    def in_turns_of(units: int) -> None:
        api.broker.call(lambda b: setattr(b.scheduler, "turn", units))

    def wait_until(at_work: bool) -> None:
        end = time.monotonic() + DEADLINE
        while bool(made.at_work) is not at_work and time.monotonic() < end:
            api.broker.call(lambda _: None)
        assert bool(made.at_work) is at_work

    in_turns_of(0)
    port = int(api.broker.http_url.rpartition(":")[2])
    path = f"/api/v1/namespaces/{quote(api.namespace, safe='')}/{at(queue)}/actions/purge"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        wait_until(at_work=True)
    for _ in range(3):  # the loop hears of it
        api.broker.call(lambda _: None)
    in_turns_of(TURN)
    wait_until(at_work=False)
    assert api.get(at(queue))["depth"] > 0


def test_a_scrape_stops_when_its_client_disconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def totals(scraped: Broker, *given: Any) -> Any:
        done.append("began")
        scraped.scheduler.turn = 0  # it goes no further until the client is gone
        return Totals(scraped, *given)

    monkeypatch.setattr(metrics, "Totals", totals)
    monkeypatch.setattr(metrics, "_text", lambda *_: done.append("ended"))
    with EmbeddedBroker(http=True) as broker:
        broker.call(lambda b: [b.namespace("n").create(f"queue:{number}") for number in range(3 * TURN)])
        with socket.create_connection(("127.0.0.1", int(broker.http_url.rpartition(":")[2]))) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            end = time.monotonic() + DEADLINE
            while not done and time.monotonic() < end:
                broker.call(lambda _: None)
        for _ in range(20):  # the loop hears of it
            broker.call(lambda _: None)
        broker.call(lambda b: setattr(b.scheduler, "turn", TURN))
        while broker.call(lambda b: bool(b.scheduler.ring)) and time.monotonic() < end:
            pass
        Api(broker)("GET", "/livez")
    assert done == ["began"]
