"""A large batch is added up as it is gathered: the turn that decides about it does not go through its messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest
from tests.broker.domain.support import NOW, World, message

from sievemq_broker.domain import DestinationPolicy
from sievemq_broker.domain.admission import MESSAGE_BYTES, Gate
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.publishing import FREED, Publishing, Sends
from sievemq_broker.domain.work import finish
from sievemq_broker.session.transaction import StagedBytes, Transaction

LIMITED = DestinationPolicy(max_messages=1_000_000, max_bytes=1_000_000_000)


def lines(act: Callable[[], object]) -> int:
    """How many lines are executed by it."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def begun(count: int, *policies: tuple[str, DestinationPolicy]) -> int:
    """Begin to publish so many messages to two destinations. Returns how many lines that took."""
    world = World(*policies)
    world.broker.keep_in(Journal())
    space = world.namespace
    world.consumer("topic:t")
    sends = Sends()
    for address in ("queue:q", "topic:t"):
        sends.add(address, list(repeat(message(), count // 2)))

    def begin() -> None:
        weighed = space.weighing(sends, "c")
        assert space.examining(sends, weighed) is None
        assert space.is_large(sends)
        assert isinstance(space.begin(sends, NOW, "c", weighed=weighed), Publishing)

    return lines(begin)


@pytest.mark.parametrize("policies", [(), (("*", LIMITED),)], ids=["unlimited", "limited"])
def test_beginning_a_batch_takes_no_longer_with_more_messages(
    policies: tuple[tuple[str, DestinationPolicy], ...],
) -> None:
    assert begun(20_000, *policies) < begun(2_000, *policies) + 100


def test_a_batch_below_namespace_limits_is_counted_without_examining_its_messages() -> None:
    world = World()
    counted: list[tuple[int, int]] = []

    world.namespace.set_gate(Gate(lambda messages, size: counted.append((messages, size))))
    world.consumer("topic:t")
    world.consumer("topic:t")
    few = Sends([("queue:q", message()), ("topic:t", message())] * 2)
    world.namespace.commit(few, NOW)
    many = Sends([("queue:q", message()), ("topic:t", message())] * 600)
    took = lines(lambda: world.namespace.begin(many, NOW))
    assert counted[1] == tuple(each * 300 for each in counted[0])
    assert took < 400


@pytest.mark.parametrize("whose", ["namespace", "broker"])
def test_a_batch_whose_receivers_selectors_choose_is_counted_in_slices_below_limits_of_all(whose: str) -> None:
    world = World()
    counted: list[tuple[int, int]] = []
    getattr(world, whose).set_gate(Gate(lambda messages, size: counted.append((messages, size))))
    for least in range(20):
        world.consumer("topic:t", f"n > {least}")
    sends = Sends([("topic:t", message(properties={"n": number % 30})) for number in range(3_000)])
    weighed = world.namespace.weighing(sends, "c")
    examining = world.namespace.examining(sends, weighed)
    assert examining is not None
    finish(examining, NOW)
    world.consumer("topic:t", "n = 29")
    assert lines(lambda: weighed["topic:t"].result()) > 3_000, "the last subscription is counted as well"
    assert lines(lambda: world.namespace.begin(sends, NOW, "c", weighed=weighed, patient=True)) < 800
    while world.broker.work(NOW):
        pass
    arrived = [queue.enqueued for queue in world.namespace.declare("topic:t").queues]
    assert arrived == [*range(2_900, 900, -100), 100]
    [(messages, size)] = counted
    assert messages == sum(arrived)
    assert size == messages * (sends.bytes // len(sends) + MESSAGE_BYTES)


def test_overrides_of_a_large_batch_are_applied_in_slices_and_counted() -> None:
    shorter = DestinationPolicy(max_bytes=1_000_000, priority=0, time_to_live=0)
    world = World(("queue:q", shorter))
    sends = Sends([("queue:q", message(expires=NOW + 1_000_000, priority=9)) for _ in range(2_000)])
    before = sends.totals["queue:q"]
    world.namespace.declare("queue:q")
    examining = world.namespace.examining(sends, {})
    assert examining is not None
    finish(examining, NOW)
    messages, size, largest = sends.totals["queue:q"]
    assert messages == before[0] == 2_000
    assert (size, largest) == (sum(len(envelope.packed) for _, envelope in sends), len(sends.each[0][1].packed))
    assert size < before[1]


def test_joined_batches_add_up() -> None:
    whole = Sends([("queue:a", message("a"))])
    other = Sends([("queue:a", message("longer")), ("queue:b", message("b"))])
    whole.join(other)
    assert [address for address, _ in whole] == ["queue:a", "queue:a", "queue:b"]
    assert whole.bytes == sum(len(envelope.packed) for _, envelope in whole)
    assert whole.totals["queue:a"][0] == 2
    assert whole.totals["queue:a"][2] == len(other.each[0][1].packed)


def test_a_large_batch_that_is_not_sent_is_freed_in_slices() -> None:
    world = World()
    sends = Sends([("queue:q", message())] * 5_000)
    world.broker.drop(sends)
    before = len(sends)
    while world.broker.work(NOW, 50):
        assert before - len(sends) <= 51 * FREED
        before = len(sends)
    assert (before, len(sends)) != (5_000, 0)
    assert world.broker.scheduler.overrun == 0


def test_watchers_see_a_large_batch_in_order() -> None:
    world = World()
    sends = Sends([("queue:q", message(str(number))) for number in range(2_000)])
    assert isinstance(world.namespace.begin(sends, NOW), Publishing)
    assert [envelope.fields[0] for _, envelope in sends] == [str(number) for number in range(2_000)]


def test_a_transaction_that_ends_frees_its_messages_and_one_that_is_staged_hands_them_over() -> None:
    freed: list[Sends] = []
    memory = StagedBytes(10_000, freed.append)
    transaction = Transaction(memory)
    transaction.stage("queue:q", [message()])
    kept = transaction.staged
    transaction.hand_over()
    assert (len(kept), len(transaction.staged), memory.used) == (1, 0, 0)
    transaction.stage("queue:q", [message()])
    dropped = transaction.staged
    transaction.clear()
    assert freed[-1] is dropped
    assert kept not in freed
    assert (len(transaction.staged), memory.used) == (0, 0)
