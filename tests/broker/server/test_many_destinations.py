"""A hundred thousand destinations: one more costs what the first did, lists come in pages, the end is orderly."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.broker.at_once import done

from sievemq_broker import EmbeddedBroker
from sievemq_core.wire.commands import Command

from ..domain.support import World, message
from .wire_client import WireClient

MANY = 100_000
#: Requests on their way at a time.
AT_ONCE = 2_000


def calls(act: Callable[[], object]) -> int:
    """How many functions that calls: a cost that no machine changes."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "act",
    [
        lambda world: world.namespace.declare("queue:new"),
        lambda world: world.namespace.declare("topic:new"),
        lambda world: world.namespace.send("queue:new", message("a"), world.now),
        lambda world: world.namespace.delete("queue:q7"),
        lambda world: world.namespace.temporaries.create("c1", False, 2),
        lambda world: world.namespace.temporaries.delete(world.mine, "c1"),
        lambda world: done(world.now, world.namespace.temporaries.delete_all, "c1"),
        lambda world: world.consumer("queue:new"),
        lambda world: world.advance(1_000),
        lambda world: world.work(),
    ],
    ids=[
        "a queue", "a topic", "a send to a new one", "a deletion", "a temporary one", "its deletion",
        "the end of its connection", "a consumer", "time", "work",
    ],
)  # fmt: skip
def test_each_further_destination_costs_the_same(act: Callable[[Any], object]) -> None:
    costs = []
    for there in (100, 3_000):
        world: Any = World()
        for number in range(there):
            world.namespace.declare(f"queue:q{number}")
            world.namespace.temporaries.create("c2", False, number)
        world.mine = world.namespace.temporaries.create("c1", False, 1)
        costs.append(calls(lambda world=world: act(world)))
    assert costs[1] < costs[0] + 50  # some names are remembered, others not


def pipelined(client: WireClient, count: int, ask: Callable[[int], tuple[object, ...]]) -> list[Any]:
    """Say that many requests, AT_ONCE at a time; their results."""
    results: list[Any] = []
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        for number in numbers:
            command, *fields = ask(number)
            client.requests += 1
            client.wire.send(command, client.requests, *fields)
        client.sock.sendall(client.wire.data_to_send())
        while len(results) < numbers.stop:
            client.read()
            for command in client.waiting:
                assert command[0] == Command.OK, command
                results.append(command[2])
            client.waiting.clear()
    return results


def get(broker: EmbeddedBroker, path: str, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(f"{broker.http_url}/api/v1/{path}", method=method)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return dict(json.loads(answer.read()))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_destinations_over_a_socket() -> None:
    with EmbeddedBroker(http=True) as broker:
        with WireClient(broker.port, namespace="many") as client:
            pipelined(client, MANY, lambda number: (Command.DECLARE, f"queue:q{number}"))
            client.open_session().send("queue:q99999", b"last").confirmed()
            assert client.open_consumer("queue:q99999", credit=1).until(Command.DELIVER)
        assert broker.call(lambda b: len(b.namespaces["many"].destinations)) == MANY
        seen: set[str] = set()
        cursor = ""
        for _ in range(4):
            page = get(broker, f"namespaces/many/destinations?limit=500{cursor}")
            names = {row["address"] for row in page["destinations"]}
            assert len(names) == 500
            assert not names & seen
            seen |= names
            cursor = f"&cursor={page['next']}"
        while broker.call(lambda _: len(broker.server.shard.services.connections)):
            pass
        get(broker, "namespaces/many", "DELETE")
        assert broker.call(lambda b: "many" in b.namespaces) is False


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_tens_of_thousands_of_temporary_queues_made_and_deleted_over_a_socket() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        for _ in range(MANY // AT_ONCE // 4):
            made = pipelined(client, AT_ONCE, lambda number: (Command.CREATE_TEMPORARY, False))
            assert len(set(made)) == AT_ONCE
            pipelined(client, AT_ONCE, lambda number, made=made: (Command.DELETE_TEMPORARY, made[number]))
        assert broker.call(lambda b: len(b.namespace("").destinations)) == 0
        for _ in range(5):
            pipelined(client, AT_ONCE, lambda number: (Command.CREATE_TEMPORARY, False))
        assert broker.call(lambda b: len(b.namespace("").destinations)) == 5 * AT_ONCE
        client.close()
        while broker.call(lambda b: len(b.namespace("").destinations)):
            pass
