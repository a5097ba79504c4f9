"""`sievemq bench`: it ends, counts what it did, and prints what it measured."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from sievemq.cli import measuring
from sievemq.cli.measuring import Load, Meter
from sievemq_broker import EmbeddedBroker

from .conftest import Sievemq


def measured(sievemq: Sievemq, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = sievemq("bench", *arguments, "--json")
    assert (done.code, done.err) == (code, ""), done.err
    result: dict[str, Any] = json.loads(done.out)
    assert set(result["latency_ms"]) == {"p50", "p90", "p99", "max"}
    return result


def depth(broker: EmbeddedBroker, name: str) -> int:
    return broker.call(lambda b: b.namespace("default").queue(name).depth)


def test_send(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    done = sievemq("bench", "send", "q", "-n", "20", "--size", "5", "-p", "region=EU", "-p", "region=US", "-p", "n=1")
    assert done.code == 0
    assert done.lines[0].startswith("20 sent in 0.")
    assert done.lines[1].startswith("a send: p50 ")
    records = [json.loads(line) for line in sievemq("browse", "q", "--json").lines]
    assert [record["properties"]["region"] for record in records] == ["EU", "US"] * 10
    assert {(record["body"], record["properties"]["n"]) for record in records} == {("AAAAAAA=", 1)}


def test_send_in_transactions_over_several_connections(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    result = measured(sievemq, "send", "q", "-n", "25", "--batch", "10", "-c", "2", "--non-persistent")
    assert (result["messages"], depth(broker, "q"), result["interrupted"]) == (25, 25, False)
    assert measured(sievemq, "send", "-n", "1", "-c", "3")["messages"] == 1
    assert broker.call(lambda b: len(b.namespace("default").destinations)) == 1


def test_receive_with_selectors(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    fill = ("--fill", "30", "-p", "n=1", "-p", "n=2", "-p", "n=3")
    result = measured(sievemq, "receive", "q", *fill, "-n", "20", "-c", "2", "-s", "n = 1", "-s", "n = 2")
    assert (result["messages"], depth(broker, "q")) == (20, 10)
    assert sievemq("bench", "receive", "q", "-s", "n =").code == 4


def test_request(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    assert measured(sievemq, "request", "-n", "10", "-c", "2")["messages"] == 10
    nobody = sievemq("bench", "request", "nobody", "--seconds", "1ms")
    assert (nobody.code, nobody.lines[0][:9]) == (3, "0 replies")
    assert len(nobody.lines) == 1


def test_topic(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    properties = ("-p", "n=1", "-p", "n=2")
    result = measured(sievemq, "topic", "-n", "10", "--subscribers", "3", "-s", "n = 1", "-s", "n = 2", *properties)
    assert (result["messages"], result["delivered"]) == (10, 15)
    assert measured(sievemq, "topic", "prices", "-n", "3", "--size", "0")["delivered"] == 12
    done = sievemq("bench", "topic", "topic:prices", "-n", "2", "--subscribers", "1")
    assert done.lines[1] == "delivered: 2"
    assert sievemq("bench", "topic", "queue:q").err == "sievemq: queue:q is no topic\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "--seconds", "0"),
        ("send", "--seconds", "soon"),
        ("receive",),
        ("send", "-p", "x"),
        ("topic", "tpoic:x"),
    ],
)
def test_mistakes_are_2(sievemq: Sievemq, broker: EmbeddedBroker, arguments: Sequence[str]) -> None:
    assert sievemq("bench", *arguments).code == 2


def test_an_interrupt_ends_with_what_was_measured(
    sievemq: Sievemq, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    join, calls = measuring._join, []

    def interrupted(threads: Sequence[threading.Thread], seconds: float) -> None:
        calls.append(seconds)
        if len(calls) > 1:
            join(threads, seconds)
        else:
            while not depth(broker, "queue:q"):
                join(threads, 0)
            raise KeyboardInterrupt

    broker.call(lambda b: b.namespace("default").create("queue:q"))
    monkeypatch.setattr(measuring, "_join", interrupted)
    monkeypatch.setattr("sievemq.cli.discard", lambda: None)  # it drops what pytest has captured
    result = measured(sievemq, "send", "q", "--seconds", "1h", code=130)
    assert result["interrupted"]
    assert result["messages"] > 0


def test_workers_that_wait_for_room_are_ended(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_PATIENCE", 0.05)
    settings = {"destinations": {"q": {"max_messages": 3, "at_limit": "block"}}}
    with EmbeddedBroker(settings=settings) as broker:
        monkeypatch.setenv("SIEVEMQ_URL", f"{broker.url}?close_timeout=10")
        assert sievemq("bench", "send", "q", "--seconds", "100ms").lines[0].startswith("3 sent")
        assert depth(broker, "q") == 3


def test_what_fails_ends_it(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(settings={"destinations": {"q": {"max_messages": 3}}}) as broker:
        monkeypatch.setenv("SIEVEMQ_URL", broker.url)
        done = sievemq("bench", "send", "q")
        assert (done.code, done.out) == (1, "")
        assert "queue:q holds 3 messages and may hold 3" in done.err


def test_a_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(measuring, "monotonic", lambda: now[0])
    load = Load(0, 100.0, 2.0, 1)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(round(seconds, 3))
        now[0] += seconds
        return False

    monkeypatch.setattr(load, "stopped", wait)
    monkeypatch.setattr(load, "goes_on", lambda: now[0] < 3)
    (meter,) = load.meters
    while meter.goes_on():
        meter.note(0.1, 1)
    assert waits == [0.5] * 6
    assert (meter.done, Meter(load, 3, 0).at_most(5)) == (7, 3)


def test_a_connection_that_is_lost_is_reported(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    thread = threading.Thread(target=lambda: [None for _ in iter(broker.drop_connections, 1)])
    thread.start()
    done = sievemq("bench", "send", "--seconds", "30s")
    thread.join(60)
    assert done.code == 1
    assert done.err.startswith("sievemq: ")
