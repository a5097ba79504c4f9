"""Limits of a namespace: looked at a few times a second; senders wait or are refused, others do not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from sievemq import ConnectionFactory, ResourceAllocationException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import ConfigError, load
from sievemq_broker.domain import Broker, DomainSettings
from sievemq_broker.domain.policy import NamespacePolicy
from sievemq_broker.server.namespace_limits import NamespaceLimits
from sievemq_core.errors import ErrorCode, RequestError

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
        self.time += 1
        self.limits.look()


def test_fail_refuses_sends_until_a_tenth_is_gone() -> None:
    world = World(max_messages=10, at_limit="fail")
    for number in range(12):  # nobody has looked yet
        for space in (world.team, world.other):
            space.send(f"queue:q{number % 3}", message(), NOW)
    world.look()
    with pytest.raises(RequestError, match=r"'team-a' holds 12 and may hold 10 \(max_messages\)") as caught:
        world.team.send("queue:q1", message(), NOW)
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    with pytest.raises(RequestError):
        world.team.commit([("queue:q1", message())], NOW, patient=True)
    world.team.commit([], NOW)  # what only acknowledges goes on
    world.other.send("queue:q1", message(), NOW)
    world.team.open_consumer(Port(), 1, "queue:q0", connection="c", credit=3, now=NOW)
    world.look()
    with pytest.raises(RequestError):
        world.team.send("queue:q1", message(), NOW)  # 9 wait
    world.team.open_consumer(Port(), 2, "queue:q1", connection="c", credit=1, now=NOW)
    world.look()
    assert world.team.send("queue:q1", message(), NOW) is None


def test_block_lets_senders_wait() -> None:
    world = World(max_bytes=2_000)
    for _ in range(10):
        world.team.send("queue:q", message(), NOW)
    world.look()
    over = world.team.over
    assert over is not None
    assert world.team.send("queue:q", message(), NOW) == [over]
    assert world.team.commit([("queue:q", message())], NOW, patient=True) == [over]
    assert not over.has_room
    world.team.queue("queue:q").clear()
    world.look()
    assert over.has_room
    assert world.team.send("queue:q", message(), NOW) is None


def test_what_is_moved_inside_changes_nothing_and_goes_on() -> None:
    world = World(max_messages=1, at_limit="fail")
    world.team.send("queue:q", message(), NOW)
    world.look()
    world.team.transfer("queue:DLQ.q", message(), NOW)
    assert world.team.queue("queue:DLQ.q").depth == 1


def test_over_the_wire_one_namespace_is_refused_and_the_other_goes_on() -> None:
    rules = {"team-*": {"max_messages": 1, "at_limit": "fail"}}
    with EmbeddedBroker(settings={"namespaces": rules}) as broker:
        with ConnectionFactory(f"{broker.url}/team-a").create_context() as context:
            queue, producer = context.create_queue("q"), context.create_producer()
            producer.send(queue, "x")
            broker.call(lambda _: broker.server.namespace_limits.look())
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
        ("max_bytes = true", "must not be True"),
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
