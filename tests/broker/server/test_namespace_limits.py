"""Limits of a namespace hold send by send; senders wait or are refused, others do not notice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, ResourceAllocationException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import ConfigError, load
from sievemq_broker.domain import Broker, DomainSettings, Queue
from sievemq_broker.domain.admission import MESSAGE_BYTES
from sievemq_broker.domain.policy import NamespacePolicy
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import TURN
from sievemq_broker.server.watch.namespace_limits import NamespaceLimits
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.selector import compile_selector

from ..domain.support import NOW, Port, message


class World:
    """A broker with limits for `team-*`."""

    def __init__(self, **rules: object) -> None:
        policy = NamespacePolicy(**rules)  # type: ignore[arg-type]
        self.broker = Broker(DomainSettings(namespaces=(("team-*", policy),)))
        self.time = 0.0
        self.limits = NamespaceLimits(self.broker, lambda: self.time)
        self.team, self.other = self.broker.namespace("team-a"), self.broker.namespace("other")

    def look(self) -> None:
        self.time += 10
        self.limits.look()


def test_fail_refuses_sends_until_a_tenth_is_free() -> None:
    world = World(max_messages=10, at_limit="fail")
    for number in range(10):
        for space in (world.team, world.other):
            space.send(f"queue:q{number % 3}", message(), NOW)
    with pytest.raises(
        RequestError, match=r"'team-a' holds 10 and may hold 10 \(max_messages in its limits\)"
    ) as caught:
        world.team.send("queue:q1", message(), NOW)
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    with pytest.raises(RequestError):
        world.team.commit(Sends([("queue:q1", message())]), NOW, patient=True)
    world.team.commit(Sends([]), NOW)  # what only acknowledges goes on
    world.other.send("queue:q1", message(), NOW)
    world.team.open_consumer(Port(), 1, "queue:q0", connection="c", credit=1, now=NOW)
    world.look()
    with pytest.raises(RequestError):
        world.team.send("queue:q1", message(), NOW)  # 9 wait
    world.team.open_consumer(Port(), 2, "queue:q1", connection="c", credit=1, now=NOW)
    world.look()
    assert world.team.send("queue:q1", message(), NOW) is None


def test_block_lets_senders_wait() -> None:
    each = len(message().packed) + MESSAGE_BYTES
    world = World(max_bytes=10 * each + each // 2)
    answers = [world.team.send("queue:q", message(), NOW) for _ in range(11)]
    over = world.team.over
    assert over is not None
    assert answers == [None] * 10 + [[over]]
    assert world.team.send("queue:q", message(), NOW) == [over]
    assert world.team.commit(Sends([("queue:q", message())]), NOW, patient=True) == [over]
    assert not over.has_room
    world.team.queue("queue:q").clear()
    world.look()
    assert over.has_room
    assert world.team.send("queue:q", message(), NOW) is None


def test_removed_messages_make_room_at_once() -> None:
    world = World(max_messages=2, at_limit="fail")
    world.team.open_consumer(Port(), 1, "queue:q", connection="c", credit=100, now=NOW)
    for _ in range(100):
        assert world.team.send("queue:q", message(), NOW) is None
    assert world.team.over is None


def test_a_topic_counts_for_each_subscription_and_without_any_not_at_all() -> None:
    world = World(max_messages=5, at_limit="fail")
    for _ in range(10):
        world.team.send("topic:t", message(), NOW)
    for number in range(2):
        selector = compile_selector("a = 1") if number else None
        world.team.open_consumer(Port(), number, "topic:t", selector, connection="c", credit=0, now=NOW)
    topic = world.team.find("topic:t")
    assert isinstance(topic, Topic)
    for _ in range(2):
        world.team.send("topic:t", message(properties={"a": 1}), NOW)
    assert topic.index.matches == 2  # counting beforehand shows nowhere
    world.team.send("topic:t", message(properties={"a": 2}), NOW)
    with pytest.raises(RequestError, match="holds 5 and may hold 5"):
        world.team.send("topic:t", message(properties={"a": 2}), NOW)


def test_a_transaction_is_admitted_whole_or_refused_if_too_large() -> None:
    world = World(max_messages=10)
    sends = [("queue:q", message()) for _ in range(6)]
    assert world.team.commit(Sends(sends), NOW, patient=True) is None
    waits = world.team.commit(Sends(sends), NOW, patient=True)
    assert waits == [world.team.over]
    assert world.team.queue("queue:q").depth == 6
    with pytest.raises(RequestError, match=r"'team-a' may hold 10 \(max_messages\) and this alone has 11"):
        World(max_messages=10).team.commit(Sends([("queue:q", message())] * 11), NOW, patient=True)


def test_a_recreated_namespace_is_not_full() -> None:
    world = World(max_messages=1)
    world.team.send("queue:q", message(), NOW)
    assert world.team.send("queue:q", message(), NOW) == [world.team.over]
    world.broker.delete_namespace("team-a")
    world.look()
    assert world.broker.namespace("team-a").send("queue:q", message(), NOW) is None
    assert world.limits._full == {}


def test_moves_within_a_namespace_do_not_change_its_sum() -> None:
    world = World(max_messages=1, at_limit="fail")
    world.team.send("queue:q", message(), NOW)
    world.look()
    world.team.transfer("queue:DLQ.q", message(), NOW)
    assert world.team.queue("queue:DLQ.q").depth == 1


def test_a_full_namespace_refuses_sends_and_another_accepts_them() -> None:
    rules = {"team-*": {"max_messages": 1, "at_limit": "fail"}}
    with EmbeddedBroker(settings={"namespaces": rules}) as broker:
        with ConnectionFactory(f"{broker.url}/team-a").create_context() as context:
            queue, producer = context.create_queue("q"), context.create_producer()
            producer.send(queue, "x")
            with pytest.raises(ResourceAllocationException, match="team-a"):
                producer.send(queue, "y")
        with ConnectionFactory(f"{broker.url}/team").create_context() as context:
            for _ in range(3):
                context.create_producer().send(context.create_queue("q"), "x")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("max_byte = 1", "no rule 'max_byte'.*did you mean max_bytes"),
        ('at_limit = "drop-oldest"', "at_limit must be block or fail"),
        ("max_bytes = -1", "must not be negative"),
        ("max_bytes = true", "must be a whole number, not True"),
    ],
)
def test_rules_that_cannot_be(tmp_path: Path, line: str, text: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(f'[namespaces."team-*"]\n{line}\n')
    with pytest.raises(ConfigError, match=text):
        load(config=file)


def test_rules_from_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[namespaces."team-*"]\nmax_bytes = 1000\n')
    domain = load(config=file).settings.domain()
    assert domain.policy_for_namespace("team-a") == NamespacePolicy(max_bytes=1000)
    assert domain.policy_for_namespace("default") is None
    domain = load(environ={"SIEVEMQ_NAMESPACES": '{"a": {"max_messages": 5}}'}).settings.domain()
    assert domain.policy_for_namespace("a") == NamespacePolicy(max_messages=5)


@pytest.mark.needs_python("replaces a property")
@pytest.mark.parametrize("at_limit", ["fail", "block"])
def test_very_many_queues_of_a_namespace_are_added_up_in_several_ticks(
    at_limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(max_messages=5 * TURN, at_limit=at_limit)
    for number in range(2 * TURN):
        world.team.open_consumer(Port(), number, "topic:t", connection="c", credit=0, now=NOW)
    added: list[int] = []
    depth = Queue.depth.fget  # type: ignore[attr-defined]

    me = threading.get_ident()

    def counted(queue: Queue) -> int:
        added[-1] += threading.get_ident() == me  # brokers of other tests look at their queues
        return int(depth(queue))

    monkeypatch.setattr(Queue, "depth", property(counted))

    def during(act: Callable[[], Any]) -> Any:
        added.append(0)
        return act()

    def looked() -> None:
        during(world.look)
        while world.broker.scheduler.ring:
            during(lambda: world.broker.work(NOW))

    def sent() -> bool:
        while world.broker.busy is not None:
            world.broker.work(NOW)
        over = world.team.over
        if over is None or not over.refuses:
            return during(lambda: world.team.send("topic:t", message(), NOW)) is None
        assert at_limit == "fail"
        with pytest.raises(RequestError, match="may hold"):
            during(lambda: world.team.send("topic:t", message(), NOW))
        return False

    taken = 0
    for _ in range(12):
        taken += sent()
        looked()
    assert max(added) <= TURN
    while world.broker.busy is not None:
        world.broker.work(NOW)
    assert taken == 2
    assert not sent()
    assert world.team.over is not None
    topic = world.team.declare("topic:t")
    assert isinstance(topic, Topic)
    for subscription in topic.subscriptions:
        subscription.queue.clear()
    looked()
    assert world.team.over is None
    assert sent()


def test_topics_without_subscriptions_are_added_up_in_several_turns() -> None:
    world = World(max_messages=10)
    for number in range(4 * TURN):
        world.team.declare(f"topic:{number}")
    assert world.team.send("queue:q", message(), NOW) == [world.team.over]
    world.look()
    turns = 0
    while world.broker.work(NOW):
        turns += 1
    assert turns >= 2
    assert world.team.send("queue:q", message(), NOW) is None
