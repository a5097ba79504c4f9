"""The same random steps on this build and on the Python one: every consumer, port, observer and browser sees the same.

One queue with all that may happen to its messages (:mod:`.test_rows_model` has the steps); and topics, commits and rows
of a namespace, with whatever is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.at_once import abandon, close, recover, release
from tests.twin import Twin

from sievemq_broker.domain import Consumer, DestinationPolicy
from sievemq_broker.domain.publishing import Sends
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import Envelope

from .support import World, message
from .test_rows_model import POLICIES, STEPS, play

ADDRESSES = ["queue:q", "queue:full", "topic:t", "topic:t", "topic:full", "temporary-queue:c1.1", "queue:", "", "t\n"]

TEXTS = [
    None, None, "n = 1", "n = 1 OR b", "b = TRUE", "n BETWEEN 0 AND 2", "n > 9007199254740993", "n < -1.5", "x IS NULL",
    "x LIKE 'a%'", "x IN ('a', 'b') AND n <> 2", "JMSPriority > 4", "JMSCorrelationID = 'a'", "n * 2 = 4.0",
    "JMSDeliveryMode = 'PERSISTENT'", "NOT (n = 1)",
]  # fmt: skip

VALUES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        2,
        1.0,
        2.5,
        -1.5,
        "a",
        "ab",
        "b",
        9007199254740993,
        9007199254740992,
        2**63 - 1,
        -(2**63),
    ]
)

SENDS = st.lists(
    st.tuples(
        st.sampled_from(ADDRESSES), st.sampled_from([4, 4, 0, 9]), st.sampled_from([0, 0, 0, 5]), VALUES, VALUES,
        VALUES.map(lambda value: value if isinstance(value, str) else None),
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip

TRAFFIC = st.lists(
    st.one_of(
        st.tuples(st.just("send"), SENDS, st.sampled_from([None, "c1", "c2"])),
        st.tuples(st.just("send"), SENDS, st.sampled_from([None, "c1", "c2"])),
        st.tuples(st.just("commit"), SENDS, st.booleans()),
        st.tuples(st.just("row"), st.sampled_from(ADDRESSES[:5]), st.integers(0, 5)),
        st.tuples(
            st.just("open"),
            st.sampled_from(ADDRESSES),
            st.sampled_from(TEXTS),
            st.sampled_from([0, 1, 3, 100]),
            st.sampled_from(["c1", "c2"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "durable": st.booleans(),
                    "shared": st.booleans(),
                    "no_local": st.booleans(),
                    "subscription": st.sampled_from([None, "s", "other", ""]),
                    "client_id": st.sampled_from([None, "me"]),
                },
            ),
        ),
        st.tuples(st.just("unsubscribe"), st.sampled_from([None, "me"]), st.sampled_from(["s", "other"])),
        st.tuples(st.just("delete"), st.sampled_from(ADDRESSES)),
        st.tuples(st.just("advance"), st.integers(1, 9)),
        st.tuples(
            st.sampled_from(["grant", "acknowledge", "recover", "close", "abandon", "release", "want"]),
            st.integers(0, 5),
            st.integers(0, 9),
        ),
    ),
    min_size=4,
    max_size=25,
)


def rows_model(steps: list[tuple[Any, ...]], policy: str, observed: bool) -> list[str]:
    """What everybody sees of a queue."""
    return [repr(each) for each in play(steps, POLICIES[policy], observed)]


def traffic(steps: list[tuple[Any, ...]]) -> list[str]:
    """What everybody sees of a namespace."""
    limited = DestinationPolicy(max_messages=3, max_bytes=500, priority=7)
    world = World(("*:full", limited), max_destinations=5, max_subscriptions=2)
    consumers: list[Consumer] = []
    seen: list[str] = []
    for step in steps:
        try:
            seen.append(repr(_take(world, step, consumers)))
        except SieveError as error:
            seen.append(f"{type(error).__name__} {error.code} {error} {error.details}")
        world.work(budget=2)
        seen += [repr((port.deliveries, port.rows, port.recalls, port.closures)) for port in world.ports.values()]
        seen += [
            repr((one.open, one.credit, one.tag, one.base, one.waiting, one.unacknowledged, one.source.depth))
            for one in consumers
        ]
        for destination in world.namespace.destinations.values():
            index = destination.index
            seen.append(repr((destination, index.evaluations, index.matches, index.error)))
    return seen


def _take(world: World, step: tuple[Any, ...], consumers: list[Consumer]) -> object:
    match step:
        case "send", sends, connection:
            for address, one in _messages(world, sends):
                world.namespace.send(address, one, world.now, connection)
        case "commit", sends, patient:
            return world.namespace.commit(Sends(_messages(world, sends)), world.now, "c1", patient=patient)
        case "row", address, count:
            destination = world.namespace.route(address)
            if destination is not None:
                row = [message(f"r{number}", properties={"n": number}) for number in range(count)]
                return world.namespace.send_row(destination, row, world.now, "c1")
        case "open", address, text, credit, connection, how:
            try:
                consumers.append(world.consumer(address, text, credit=credit, connection=connection, **how))
            except SieveError:
                del world.ports[len(world.ports)]
                raise
        case "unsubscribe", client_id, name:
            world.namespace.unsubscribe(client_id, name)
        case "delete", address:
            return world.namespace.delete(address)
        case "advance", ms:
            world.advance(ms)
        case verb, which, how if consumers:
            return _ask(consumers[which % len(consumers)], verb, how, world.now)
    return None


def _messages(world: World, sends: list[tuple[Any, ...]]) -> list[tuple[str, Envelope]]:
    made = []
    for number, (address, priority, life, n, x, correlation_id) in enumerate(sends):
        properties = {name: value for name, value in (("n", n), ("x", x), ("b", n == 1)) if value is not None}
        expires = world.now + life if life else 0
        name = f"m{number}"
        one = message(name, priority=priority, expires=expires, properties=properties, correlation_id=correlation_id)
        made.append((address, one))
    return made


def _ask(one: Consumer, verb: str, how: int, now: int) -> object:
    match verb:
        case "grant":
            return one.grant(how, now)
        case "acknowledge":
            return one.acknowledge(one.base + how, now)
        case "recover":
            return recover(one, one.base + how, now)
        case "close":
            return close(one, one.base + how, now)
        case "abandon":
            return abandon(one, now)
        case "release":
            return release(one, tuple(range(one.base + 1, one.base + how)), now)
    return one.want(now, patient=how % 2 == 0, brief=how % 3 == 0)


@pytest.fixture(scope="module")
def queue_twin() -> Iterator[Twin]:
    twin = Twin(rows_model)
    yield twin
    twin.close()


@pytest.fixture(scope="module")
def namespace_twin() -> Iterator[Twin]:
    twin = Twin(traffic)
    yield twin
    twin.close()


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=50)
@given(steps=STEPS, observed=st.booleans())
def test_a_queue_delivers_the_same(queue_twin: Twin, policy: str, steps: list[tuple[Any, ...]], observed: bool) -> None:
    queue_twin.check(steps, policy, observed)


@settings(max_examples=100)
@given(steps=TRAFFIC)
def test_a_namespace_delivers_the_same(namespace_twin: Twin, steps: list[tuple[Any, ...]]) -> None:
    namespace_twin.check(steps)


def test_differences_between_builds_are_detected(namespace_twin: Twin) -> None:
    steps = [("send", [("queue:q", 4, 0, 1, None, None)], None)]
    namespace_twin.check(steps)
    namespace_twin.play = lambda steps: [*traffic(steps)[:-1], "something else"]
    try:
        with pytest.raises(AssertionError, match="step 1"):
            namespace_twin.check(steps)
    finally:
        namespace_twin.play = traffic
