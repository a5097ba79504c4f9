"""Rows against one message at a time: the same random steps, and everybody sees the same.

What a row does at once (credit, depth, places, turns, deadlines) is what many single deliveries do one after the other;
so there is nothing that a consumer, a port, an observer, a tap or a browser could tell them apart by.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.at_once import abandon, close, recover, release

from sievemq_broker.domain import Consumer, DestinationPolicy
from sievemq_broker.domain import backlog as backlog_module
from sievemq_broker.domain import view as view_module
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.view import View
from sievemq_core.errors import RequestError
from sievemq_core.message.envelope import Envelope

from .support import Port, World, message, selector

SELECTORS = [None, None, "n = 0", "n > 0", "n = 1 OR n = 2", "JMSCorrelationID = 'x'"]

POLICIES = {
    "plain": DestinationPolicy(),
    "delay": DestinationPolicy(redelivery_delay=5, max_attempts=2, dead_letter_expired=True),
    "oldest": DestinationPolicy(max_messages=8, at_limit="drop-oldest"),
}


class Narrow(Port):
    """Takes some messages, then it is full."""

    room = 3

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        super().deliver(consumer_id, tag, count, packed)
        self.room -= 1
        self.writable = self.room > 0


class Ears:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def hear(queue: Any, entry: Any, *more: object) -> None:
            what = entry.sequence, entry.count if isinstance(entry, Entry) else None
            self.heard.append((name, queue.label, what, *(m for m in more if isinstance(m, str))))

        return hear


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.integers(1, 12),  # how many alike
            st.sampled_from([4, 4, 4, 9, 0]),
            st.sampled_from([0, 0, 0, 3, 6]),  # expires after so many ms
            st.sampled_from([0, 0, 0, 4]),  # delivered after so many ms
            st.sampled_from([None, None, "a", "b"]),  # its group
        ),
        st.tuples(st.just("open"), st.sampled_from(SELECTORS), st.sampled_from([0, 0, 2, 50]), st.booleans()),
        st.tuples(st.just("grant"), st.integers(0, 5), st.sampled_from([1, 2, 5, 20, 100])),
        st.tuples(
            st.sampled_from(["want", "acknowledge", "recover", "close", "abandon", "release", "resume"]),
            st.integers(0, 5),
            st.integers(0, 9),
        ),
        st.tuples(st.sampled_from(["pause", "hold", "purge", "tidy"])),
        st.tuples(st.just("advance"), st.integers(1, 6)),
        st.tuples(st.just("late"), st.integers(1, 6)),  # not noticed yet
    ),
    min_size=4,
    max_size=25,
)


@contextmanager
def rows(size: int) -> Iterator[list[int]]:
    """Rows of that size, 0 for none; and how long they were. Small pieces, so that some are reached."""
    lengths: list[int] = []
    row = View.row

    def row_of(view: View, limit: int, now: int) -> list[Entry]:
        found = row(view, min(limit, size), now) if size else []
        if found:
            lengths.append(len(found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(View, "row", row_of)
        patch.setattr(view_module, "PIECE", 4)
        patch.setattr(backlog_module, "TIDY_AT_ONCE", 2)
        patch.setattr(backlog_module, "FIRST_SLICE", 2)
        yield lengths


def play(
    steps: list[tuple[Any, ...]], policy: DestinationPolicy, observed: bool, together: bool = False
) -> list[object]:
    """What everybody sees, step by step. Messages that are sent alike arrive together, or one by one."""
    world = World(("queue:q", policy))
    world.namespace.declare("queue:q")
    queue = world.namespace.queue("queue:q")
    ears = Ears()
    if observed:
        queue.observe(ears)
    consumers: list[Consumer] = []
    seen: list[object] = []
    number = 0
    for step in steps:
        match step:
            case "send", count, priority, life, delay, group:
                row: list[Envelope] = []
                for _ in range(count):
                    number += 1
                    properties = {"n": number % 3} | ({"JMSXGroupID": group} if group else {})
                    one = message(
                        f"m{number}",
                        priority=priority,
                        expires=world.now + life if life else 0,
                        at=world.now + delay if delay else 0,
                        properties=properties,
                        correlation_id="xyz"[number % 3],
                    )
                    if together and not life and not delay and world.namespace.route("queue:q") is queue:
                        row.append(one)
                        continue
                    try:
                        world.send("queue:q", one)
                    except RequestError as error:
                        seen.append(error.text)
                if row:
                    world.namespace.send_row(queue, row, world.now, "c9")
            case "open", text, credit, narrow:
                identity = len(world.ports) + 1
                port = world.ports[identity] = Narrow() if narrow else Port()
                consumers.append(
                    world.namespace.open_consumer(
                        port, identity, "queue:q", selector(text), connection="c", credit=credit, now=world.now
                    )
                )
            case ("pause",):
                queue.unpause(world.now) if queue.paused else queue.pause()
            case ("hold",):
                queue.release(world.now) if queue.standstill.held else queue.hold()
            case ("purge",):
                queue.clear()
            case ("tidy",):
                queue.backlog.dead = 2_000  # as if there were so many tombstones
                queue.backlog.tidy()
            case "advance", ms:
                world.advance(ms)
            case "late", ms:
                world.now += ms
            case verb, which, how if consumers:
                act(world, consumers[which % len(consumers)], verb, how)
        world.work(budget=2)
        seen.append(
            (
                [(port.deliveries[:], port.recalls[:], port.settlements[:], port.events[:]) for port in ports(world)],
                [(one.open, one.unacknowledged, one.credit, one.tag, one.newest, one.served) for one in consumers],
                (
                    queue.depth,
                    queue.bytes,
                    queue.in_flight,
                    queue.delivered,
                    queue.counts.expired,
                    queue.counts.redelivered,
                ),
                (
                    queue.acknowledged,
                    queue.counts.dropped_oldest,
                    queue.counts.dead_lettered,
                    len(queue.scheduled),
                ),
                world.browse("queue:q"),
                world.browse("queue:q", "n = 1"),
                ears.heard[:],
            )
        )
    return seen


def ports(world: World) -> list[Port]:
    return list(world.ports.values())


def act(world: World, one: Consumer, verb: str, how: int) -> None:
    now = world.now
    match verb:
        case "grant":
            one.grant(how, now)
        case "want":
            one.want(now, patient=how % 2 == 0, brief=how % 3 == 0)
        case "acknowledge":
            one.acknowledge(max(one.base, one.tag - how), now)
        case "recover":
            recover(one, max(one.base, one.tag - how), now)
        case "close":
            close(one, max(one.base, one.tag - how), now)
        case "abandon":
            abandon(one, now)
        case "release":
            release(one, tuple(range(one.base + 1 + how // 2, one.tag + 1)), now)
        case "resume":
            port = world.port(one)
            if isinstance(port, Narrow):
                port.room, port.writable = how, how > 0
                if how > 0:
                    world.resume(one)


@pytest.mark.needs_python("replaces View.row")
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60)
@given(steps=STEPS, size=st.sampled_from([1, 2, 3, 512]), observed=st.booleans())
def test_with_and_without_rows_everybody_sees_the_same(
    policy: str, steps: list[tuple[Any, ...]], size: int, observed: bool
) -> None:
    with rows(size):
        one = play(steps, POLICIES[policy], observed)
    with rows(0):
        other = play(steps, POLICIES[policy], observed)
    assert one == other


@pytest.mark.needs_python("replaces View.row")
def test_the_model_delivers_rows() -> None:
    """The steps above make rows; here one that is known to, whatever the others were."""
    steps: list[tuple[Any, ...]] = [("send", 12, 4, 0, 0, None), ("open", None, 0, False), ("grant", 0, 9)]
    with rows(5) as lengths:
        play(steps, POLICIES["plain"], observed=False)
    assert lengths == [5, 4]


@pytest.mark.needs_python("replaces View.row")
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=120)
@given(steps=STEPS, observed=st.booleans())
def test_messages_that_arrive_together_go_where_they_would_go_one_by_one(
    policy: str, steps: list[tuple[Any, ...]], observed: bool
) -> None:
    """Priorities, groups, overlapping selectors, WANTs, ports that become full and credit that ends in the middle."""
    with rows(512):
        together = play(steps, POLICIES[policy], observed, together=True)
        assert by_message(together) == by_message(play(steps, POLICIES[policy], observed))


def by_message(seen: list[object]) -> list[object]:
    """Observers see the events of a message in order; all messages of a batch arrive before the first delivery."""
    return [
        (*each[:-1], sorted(each[-1], key=lambda heard: heard[2][0])) if isinstance(each, tuple) else each
        for each in seen
    ]


SELECTIVE = ["n = 0", "n > 0", "n = 1 OR n = 2", None]


@pytest.mark.parametrize(
    "after",
    [
        [],
        [("grant", 0, 1), ("grant", 1, 2), ("want", 2, 1)],
        [("want", 0, 0), ("want", 1, 0), ("resume", 0, 9), ("resume", 2, 9)],
        [("acknowledge", 1, 0), ("recover", 0, 2), ("resume", 3, 9), ("advance", 6)],
    ],
)
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("credit", [0, 2, 50])
@pytest.mark.parametrize("group", [None, "a"])
def test_a_batch_among_competing_consumers(
    group: str | None, credit: int, narrow: bool, after: list[tuple[Any, ...]]
) -> None:
    opened: list[tuple[Any, ...]] = [("open", text, credit, narrow) for text in (*SELECTIVE, *SELECTIVE[:2])]
    sends: list[tuple[Any, ...]] = [
        ("send", 12, 4, 0, 0, group), ("send", 3, 9, 6, 0, None), ("send", 3, 4, 0, 4, group),
        ("send", 12, 0, 0, 0, None),
    ]  # fmt: skip
    steps = [*opened, sends[0], *after, *sends[1:], *after, ("advance", 5), *after]
    for policy in POLICIES.values():
        together = play(steps, policy, observed=True, together=True)
        assert by_message(together) == by_message(play(steps, policy, observed=True))
