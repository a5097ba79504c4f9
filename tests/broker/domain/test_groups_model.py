"""Message groups under random programs (JSX-02): a group is with one consumer, in order, and never stuck."""

from __future__ import annotations

import random

import pytest
from tests.broker.at_once import abandon, close, recover, release

from sievemq_broker.domain import Consumer, DestinationPolicy, queue
from sievemq_broker.domain.queue import Queue
from sievemq_core.errors import ErrorCode

from .support import World, message

GROUPS = [None, "a", "b", "c", "d"]
STEPS = [*["send"] * 6, *["grant"] * 2, *["acknowledge"] * 2, *["answer"] * 2]
STEPS += ["open", "release", "recover", "close", "abandon", "expel", "want", "time", "work"]
STEPS += ["pause", "unpause", "block"]


class Program:
    """One random program, and what must be true of its deliveries.

    Attributes:
        group: of each message, by its name.
        count: how often a message came back marked.
        fresh: messages that no consumer has returned: their first deliveries keep the order of the group.
        held: per consumer what it was delivered and has not settled, by tag.
        gone: acknowledged.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        delay = self.chance.choice([0, 50])
        self.world = World(("queue:q", DestinationPolicy(max_attempts=0, redelivery_delay=delay)))
        self.queue = self.world.namespace.queue("queue:q")
        self.consumers: list[Consumer] = []
        self.group: dict[str, str | None] = {}
        self.count: dict[str, int] = {}
        self.fresh: set[str] = set()
        self.held: dict[Consumer, dict[int, str]] = {}
        self.seen: dict[Consumer, int] = {}
        self.first: dict[str, list[int]] = {}
        self.gone: set[str] = set()
        self.recalls: list[tuple[Consumer, list[int]]] = []

    @property
    def open(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.open]

    # -- what must be true ------------------------------------------------------------------------------------------

    def check(self) -> None:
        for consumer in self.consumers:
            port = self.world.port(consumer)
            for _, tag, count, name in port.deliveries[self.seen[consumer] :]:
                self.delivered(consumer, tag, count, name)
            self.seen[consumer] = len(port.deliveries)
            self.recalls += [(consumer, tags) for _, tags in port.recalls]
            port.recalls.clear()

    def delivered(self, consumer: Consumer, tag: int, count: int, name: str) -> None:
        assert name not in self.gone
        assert not any(name in held.values() for held in self.held.values()), "held twice"
        assert count == self.count[name] + 1
        self.held[consumer][tag] = name
        group = self.group[name]
        if group is None:
            return
        for other in self.open:
            if other is not consumer:
                assert group not in map(self.group.get, self.held[other].values()), "a group was split"
        if name in self.fresh:
            self.first.setdefault(group, []).append(int(name))
            assert self.first[group] == sorted(self.first[group]), "a group was overtaken"

    # -- what happens -----------------------------------------------------------------------------------------------

    def add(self) -> Consumer:
        consumer = self.world.consumer("queue:q", credit=0)
        self.consumers.append(consumer)
        self.held[consumer], self.seen[consumer] = {}, 0
        return consumer

    def back(self, consumer: Consumer, tags: list[int], marked_to: int) -> None:
        for tag in tags:
            name = self.held[consumer].pop(tag)
            self.fresh.discard(name)
            self.count[name] += tag <= marked_to

    def settle(self, consumer: Consumer, tag: int) -> None:
        for known in [known for known in self.held[consumer] if known <= tag]:
            self.gone.add(self.held[consumer].pop(known))
        consumer.acknowledge(tag, self.world.now)

    def send(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            name, group = str(len(self.group) + 1), self.chance.choice(GROUPS)
            self.group[name], self.count[name] = group, 0
            self.fresh.add(name)
            self.world.send("queue:q", message(name, properties={} if group is None else {"JMSXGroupID": group}))
            self.check()

    def step(self) -> None:
        chance, now = self.chance, self.world.now
        act = chance.choice(STEPS)
        if act == "send":
            self.send()
        elif act == "open" and len(self.open) < 4:
            self.add().grant(chance.choice([0, 1, 2, 5]), now)
        elif self.open:
            self.do(act, chance.choice(self.open), now)
        self.check()

    def do(self, act: str, consumer: Consumer, now: int) -> None:
        chance, held = self.chance, self.held[consumer]
        match act:
            case "grant":
                consumer.grant(chance.choice([1, 2, 10]), now)
            case "acknowledge" if held:
                self.settle(consumer, chance.choice(sorted(held)))
            case "release":
                tags = [tag for tag in held if chance.random() < 0.5]
                self.back(consumer, tags, 0)
                release(consumer, tags, now)
            case "recover":
                handed = chance.randint(0, consumer.tag)
                self.back(consumer, list(held), handed)
                recover(consumer, handed, now)
            case "close":
                handed = chance.choice([consumer.base, consumer.tag])
                self.back(consumer, [tag for tag in held if tag > handed], 0)
                close(consumer, handed, now)
            case "abandon":
                self.back(consumer, list(held), consumer.tag)
                abandon(consumer, now)
            case "expel":
                consumer.expel(ErrorCode.CLOSED_BY_ADMINISTRATOR, "by the test", now)
            case "want":
                consumer.want(now, patient=chance.random() < 0.3, brief=chance.random() < 0.5)
            case "answer" if self.recalls:
                asked, tags = self.recalls.pop(0)
                if asked.open:
                    tags = [tag for tag in tags if tag in self.held[asked] and chance.random() < 0.8]
                    self.back(asked, tags, 0)
                    release(asked, tags, now)
            case "block":
                port = self.world.port(consumer)
                if port.writable:
                    port.writable = False
                else:
                    self.world.resume(consumer)
            case "time":
                self.world.advance(chance.choice([1, 30, 100]))
            case "work":
                self.world.broker.work(now, chance.randint(1, 3))
            case "pause":
                self.queue.pause()
            case "unpause":
                self.queue.unpause(now)

    def drain(self) -> None:
        """A consumer that left returns what it held; of the others, one goes on and takes everything."""
        self.queue.unpause(self.world.now)
        for port in self.world.ports.values():
            port.writable = True
        for consumer in self.consumers:
            if not consumer.open:
                self.back(consumer, list(self.held[consumer]), consumer.tag)
                recover(consumer, consumer.tag, self.world.now)
                self.check()
        if not self.open:
            self.add()
        last = self.chance.choice(self.open)
        for _ in range(60):
            for consumer in self.open:
                consumer.resume(self.world.now)
                consumer.grant(50 if consumer is last else 0, self.world.now)
                self.world.work()
                self.check()
                if self.held[consumer]:
                    self.settle(consumer, max(self.held[consumer]))
                    self.check()
            self.world.advance(100)
            self.check()
        assert self.group.keys() == self.gone, "left lying"


@pytest.mark.parametrize("hundred", range(5))
def test_jsx_02_groups_under_random_programs(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        program = Program(seed)
        for _ in range(80):
            program.step()
        program.drain()


@pytest.mark.needs_python("replaces the default of Queue._serve")
@pytest.mark.parametrize("most", [1, 2, 3])
def test_jsx_02_groups_that_are_served_in_slices(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(queue, "SERVED", most)
    monkeypatch.setattr(Queue._serve, "__defaults__", (most,))
    test_jsx_02_groups_under_random_programs(most)
