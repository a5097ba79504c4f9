"""Management while a batch is being published: what was there before is shown and touched, and no part of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sievemq import JMSContext
from sievemq_broker.domain import Queue

from .conftest import Api, at, send

Q = "queue:DLQ.q"


@contextmanager
def publishing(api: Api) -> Iterator[None]:
    """What is sent to the queue in here is a batch on its way."""

    def on_queue(act: Callable[[Queue], None]) -> None:
        api.broker.call(lambda broker: act(broker.namespace(api.namespace).queue(Q)))

    on_queue(Queue.hide)
    yield
    on_queue(lambda queue: queue.show(0))


def shown(api: Api) -> dict[str, Any]:
    """What each way to look at the queue says there is."""
    (queue,) = api.get("dead-letters")["queues"]
    return {
        "messages": api.ids(Q),
        "a selector": api.ids(Q, selector="n > 0"),
        "scheduled": len(api.get(f"{at(Q)}/scheduled")["messages"]),
        "dead letters": sum(group["messages"] for group in queue["groups"]),
        "purge": api.act(Q, "purge", dry_run=True)["matched"],
        "delete": api.act(Q, "delete", dry_run=True, ids=["1", "2", "3", "4"])["matched"],
        "cancel": api.act(Q, "cancel", dry_run=True)["matched"],
        "found": [api("GET", f"{at(Q)}/messages/{number}").status for number in (1, 3, 4)],
    }


@pytest.mark.parametrize("priority", [4, 9])
def test_no_part_of_it_is_shown_or_touched(api: Api, context: JMSContext, priority: int) -> None:
    send(context, Q, 1)
    send(context, Q, 2, delivery_delay=600_000)
    before = shown(api)
    assert before["messages"] == ["1"]
    assert before["found"] == [200, 404, 404]
    with publishing(api):
        send(context, Q, 3, priority=priority)
        send(context, Q, 4, delivery_delay=600_000)
        assert shown(api) == before
        assert api.act(Q, "move", to="queue:r")["touched"] == 1
        assert api.ids("queue:r") == ["1"]
    after = shown(api)
    assert (after["messages"], after["scheduled"], after["dead letters"]) == (["3"], 2, 1)
    assert (after["purge"], after["cancel"], after["found"]) == (3, 2, [404, 200, 200])
