"""Rules that change while messages are there: what exists gets them, and nothing is lost by it."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.policy import DestinationPolicy, NamespacePolicy
from sievemq_broker.rules import parse_namespaces, parse_policies
from sievemq_core.errors import RequestError

from .support import World, message

Tables = dict[str, dict[str, object]]


def change(world: World, rules: Tables, limits: Tables | None = None) -> int:
    """Have other rules. Returns how many things have got others."""
    broker = world.namespace.broker
    job = broker.use_rules(tuple(parse_policies(rules).items()), tuple(parse_namespaces(limits or {}).items()))
    while not job.over:
        broker.work(world.now)
    return job.result


def test_what_exists_and_what_is_created_get_the_rules() -> None:
    world = World(("queue:a*", DestinationPolicy(max_attempts=2)))
    queues = [world.namespace.queue(f"queue:{name}") for name in ("ab", "ac", "b")]
    topic = world.namespace.create("topic:a")
    world.consumer("topic:a")
    assert change(world, {"ab": {"max_attempts": 5}, "a*": {"max_attempts": 3}, "topic:*": {"priority": 7}}) == 3
    assert [queue.policy.max_attempts for queue in queues] == [5, 3, 6]
    assert queues[0].policy.pattern == "queue:ab"
    assert [each.policy.priority for each in (topic, *topic.queues)] == [7, 7]
    assert world.namespace.queue("queue:ad").policy.max_attempts == 3
    assert change(world, {}) == 4
    assert queues[0].policy == DestinationPolicy()


def test_a_test_s_own_rules_stay_where_no_other_pattern_applies() -> None:
    world = World(("queue:a", DestinationPolicy(max_attempts=2)))
    queue = world.namespace.queue("queue:b")
    queue.configure(DestinationPolicy(max_attempts=9))
    assert change(world, {"a": {"max_attempts": 3}}) == 0
    assert queue.policy.max_attempts == 9


@pytest.mark.parametrize("at_limit", ["fail", "block", "drop-newest"])
def test_a_limit_below_what_is_there_deletes_nothing(at_limit: str) -> None:
    world = World()
    queue = world.namespace.queue("queue:q")
    for number in range(5):
        world.send("queue:q", f"{number}")
    change(world, {"q": {"max_messages": 2, "at_limit": at_limit}})
    if at_limit == "fail":
        with pytest.raises(RequestError, match=r"raise max_messages in the rules of queue:q") as caught:
            world.send("queue:q", "x")
        assert caught.value.details["rule"] == "queue:q"
    else:
        full = world.namespace.send("queue:q", message("x"), world.now)
        assert full == ([queue] if at_limit == "block" else None)
    assert queue.depth == 5
    consumer = world.consumer("queue:q")
    consumer.acknowledge(5, world.now)
    assert world.namespace.send("queue:q", message("y"), world.now) is None


def test_at_drop_oldest_each_message_still_replaces_one_alone() -> None:
    world = World()
    queue = world.namespace.queue("queue:q")
    for number in range(5):
        world.send("queue:q", f"{number}")
    change(world, {"q": {"max_messages": 2, "at_limit": "drop-oldest"}})
    world.send("queue:q", "new")
    assert (queue.depth, queue.counts.dropped_oldest) == (5, 1)
    size = queue.bytes
    change(world, {"q": {"max_bytes": size // 2, "at_limit": "drop-oldest"}})
    world.send("queue:q", "x")
    assert queue.bytes <= size
    assert queue.depth >= 4


def test_blocked_senders_go_on_once_the_rule_allows_it() -> None:
    world = World(("queue:q", DestinationPolicy(max_messages=1, at_limit="block")))
    queue = world.namespace.queue("queue:q")
    world.send("queue:q", "a")
    assert not queue.has_room
    change(world, {"q": {"max_messages": 100, "at_limit": "block"}})
    assert queue.has_room
    change(world, {"q": {"max_messages": 1, "at_limit": "fail"}})
    assert queue.has_room  # they try again, and are refused
    with pytest.raises(RequestError):
        world.send("queue:q", "b")


def test_a_namespace_gets_other_limits() -> None:
    world = World()
    space = world.namespace
    change(world, {}, {"*": {"max_messages": 5}})
    assert space.policy == NamespacePolicy(max_messages=5)
    assert space.policy is not None
    assert space.policy.pattern == "*"
    change(world, {}, {"other": {"max_messages": 5}})
    assert space.policy is None


def test_many_namespaces_with_many_limits_take_no_long_turn() -> None:
    world = World()
    broker = world.namespace.broker
    for number in range(800):
        broker.namespace(f"team-{number}")
    broker.scheduler.overrun = 0
    assert change(world, {}, {**{f"other-{number}": {} for number in range(20)}, "team-*": {"max_messages": 1}}) == 800
    assert broker.scheduler.overrun < 20
