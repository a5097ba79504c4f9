"""Browsing with a selector looks at what may match, not at the whole queue (D-17)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.at_once import close, done, recover

from sievemq_broker.domain import management, scan
from sievemq_broker.domain.backlog import EXAMINED
from sievemq_broker.domain.entry import STRAY
from sievemq_broker.domain.scan import FEW, INDEX_FROM
from sievemq_broker.domain.view import Few
from sievemq_broker.domain.work import Budget

from .support import World, message, selector


def filled(depth: int) -> World:
    world = World()
    world.send(
        "queue:q",
        *(message(f"m{n}", correlation_id=f"c{n}", properties={"n": n, "even": not n % 2}) for n in range(depth)),
    )
    return world


def examined(world: World, text: str) -> tuple[list[str], int]:
    """What a browser is shown, and how many messages were looked at for it."""
    backlog = world.namespace.queue("queue:q").backlog
    before = backlog.examined
    shown = world.browse("queue:q", text)
    return shown, backlog.examined - before


@pytest.mark.parametrize("depth", [INDEX_FROM, 20_000])
def test_d_17_browsing_by_an_id_costs_the_same_at_any_depth(depth: int) -> None:
    """The first looks through the queue and leaves a lookup behind; the next look at one message."""
    world = filled(depth)
    assert examined(world, "JMSCorrelationID = 'c7'") == (["m7"], depth)
    world.work()
    assert examined(world, f"JMSCorrelationID = 'c{depth - 1}'") == ([f"m{depth - 1}"], 1)
    assert examined(world, "JMSCorrelationID IN ('c1', 'c5', 'none') AND even = FALSE") == (["m1", "m5"], 2)
    assert examined(world, "JMSCorrelationID = 'none'") == ([], 0)
    world.browse("queue:q", "JMSMessageID = 'm1'")
    world.work()
    assert examined(world, "JMSMessageID = 'm9'") == (["m9"], 1)


def test_a_kept_lookup_serves_the_next_consumer() -> None:
    world = filled(INDEX_FROM)
    assert examined(world, "n = 7") == (["m7"], INDEX_FROM)
    world.work()
    assert examined(world, "n = 7") == (["m7"], INDEX_FROM)  # a browser alone builds none by properties
    world.consumer("queue:q", "n = 3", credit=0)
    world.work()
    assert examined(world, "n = 7") == (["m7"], 1)


def test_the_view_of_a_consumer_serves_browsers_with_the_same_selector() -> None:
    """Whatever it is: it has nothing but matches. In other words, too."""
    world = filled(INDEX_FROM)
    consumer = world.consumer("queue:q", "n * 2 < 6 AND even", credit=0)
    world.work()
    assert examined(world, "even  AND (n*2 < 6)") == (["m0", "m2"], 2)
    consumer.grant(1, world.now)
    assert examined(world, "n * 2 < 6 AND even") == (["m2"], 1)
    close(consumer, 0, world.now)
    assert examined(world, "n * 2 < 6 AND even") == (["m0", "m2"], INDEX_FROM // 2)  # by the lookup that it left


def test_a_view_or_lookup_that_is_not_complete_is_not_used() -> None:
    world = filled(INDEX_FROM + 5)
    world.consumer("queue:q", "n >= 1000", credit=0)
    world.consumer("queue:q", "JMSCorrelationID = 'x'", credit=0)
    queue = world.namespace.queue("queue:q")
    assert world.browse("queue:q", "n >= 1000")[0] == "m1000"
    assert queue.backlog.few(None) is None
    assert queue.backlog.view_of(None) is queue.main


def test_a_lookup_that_leads_to_many_is_not_used(world: World) -> None:
    """Putting them in order would cost more than a turn should."""
    world.send("queue:q", *(message(f"m{n}", correlation_id=f"c{n % 2}") for n in range(2 * FEW + 2)))
    world.browse("queue:q", "JMSCorrelationID = 'c1'")
    world.work()
    shown, looked = examined(world, "JMSCorrelationID = 'c1'")
    assert len(shown) == FEW + 1
    assert looked == 2 * FEW + 2


def test_a_page_examines_a_bounded_number() -> None:
    world = filled(2 * EXAMINED + 1)
    backlog = world.namespace.queue("queue:q").backlog
    cursor, seen = None, []
    for _ in range(3):
        before = backlog.examined
        cursor, page = world.namespace.browse("queue:q", selector(f"n = {2 * EXAMINED}"), cursor, 10, world.now)
        seen += page
        assert backlog.examined - before <= EXAMINED
    assert cursor is None
    assert len(seen) == 1


def test_few_is_a_walk() -> None:
    world = filled(INDEX_FROM)
    world.browse("queue:q", "JMSCorrelationID = 'x'")
    world.work()
    queue = world.namespace.queue("queue:q")
    entries = queue.backlog.few(selector("JMSCorrelationID IN ('c5', 'c2', 'c9')"))
    assert entries is not None
    walk = Few(list(entries))
    queue.remove(entries[1])
    assert list(walk.gather(Budget())) == []
    taken = []
    while not walk.done:
        taken += walk.take(1)
    assert taken == [entries[0], entries[2]]
    assert queue.backlog.few(selector("JMSCorrelationID = 'c2'"), walk.after) == []


@pytest.mark.parametrize("depth", [INDEX_FROM + 1, 20_000])
def test_d_17_management_by_an_id_costs_the_same_at_any_depth(depth: int) -> None:
    """The first to ask looks through the queue; moving, counting and showing messages look at those alone."""
    world = filled(depth)
    queue = world.namespace.queue("queue:q")
    ids = management.Choice(ids=frozenset({"m3"}))
    assert done(world.now, management.remove, queue, ids).touched == 1
    world.browse("queue:q", "JMSCorrelationID = 'x'")
    world.work()
    before = queue.backlog.examined
    one = management.Choice(selector(f"JMSCorrelationID = 'c{depth - 1}'"), dry_run=True)
    assert done(world.now, management.remove, queue, one).matched == 1
    some = management.Choice(selector("JMSCorrelationID IN ('c5', 'c6', 'c7') AND NOT even"))
    assert done(world.now, management.move, world.namespace, "queue:r", queue, some).touched == 2
    assert len(done(world.now, management.waiting, queue, selector("JMSMessageID = 'm9'"), -1, 10)[0]) == 1
    assert queue.backlog.examined - before == 5
    named = queue.backlog._with_ids({"m9", "m3", "none"})
    assert named is not None
    assert [entry.envelope.fields[0] for entry in named if entry.state <= STRAY] == ["m9"]
    found = done(world.now, queue.locate, ["m9", "m8"], False)
    assert [entry.envelope.fields[0] for entry in found] == ["m8", "m9"]


TEXTS = [
    "JMSCorrelationID = 'c1'",
    "JMSCorrelationID IN ('c1', 'c2') OR k = 3",
    "k = 2",
    "k > 1",
    "k + 1 > 2",
    "k <> 1",
]


@settings(max_examples=60)
@given(st.data())
def test_a_browser_shows_the_same_beside_any_consumers(data: st.DataObject) -> None:
    """Views and lookups come and go; what matches among all that waits is shown, in order."""
    with patch.object(scan, "INDEX_FROM", 1):
        check_random_history(data)


def check_random_history(data: st.DataObject) -> None:
    world = World()
    number = 0

    def send(count: int) -> None:
        nonlocal number
        for _ in range(count):
            k = data.draw(st.integers(0, 3))
            priority = data.draw(st.sampled_from([4, 4, 9]))
            given: dict[str, Any] = {"correlation_id": f"c{k}", "properties": {"k": k}, "priority": priority}
            world.send("queue:q", message(f"m{number}", **given))
            number += 1

    def shown(text: str) -> list[str]:
        limit = data.draw(st.sampled_from([1, 3, 1000]))
        return world.browse("queue:q", text, limit)

    send(8)
    queue = world.namespace.queue("queue:q")
    for text in data.draw(st.lists(st.sampled_from(TEXTS), max_size=3)):
        world.consumer("queue:q", text, credit=data.draw(st.integers(0, 2)))
    condition = selector(TEXTS[0])
    assert condition is not None
    if data.draw(st.booleans()):
        queue.backlog.prepare_lookup(condition, frozenset({"JMSCorrelationID"}))
    for _ in range(data.draw(st.integers(0, 5))):
        action = data.draw(st.sampled_from(["send", "recover", "close", "work"]))
        consumers = queue.consumers
        if action == "send":
            send(3)
        elif action == "work":
            world.work()
        elif consumers:
            consumer = data.draw(st.sampled_from(consumers))
            if action == "close":
                close(consumer, 0, world.now)
            else:
                recover(consumer, consumer.tag, world.now)
                consumer.grant(1, world.now)
    world.work()
    everything = queue.main.waits(-1, 1_000)
    for text in TEXTS:
        condition = selector(text)
        assert condition is not None
        expected = [
            e.envelope.fields[0] for e in everything if condition.function(e.envelope.properties, e.envelope.fields)
        ]
        assert shown(text) == expected
