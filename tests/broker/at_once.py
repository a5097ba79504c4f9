"""The verbs of consumers that are tasks, carried out at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import Budget, Task, finish

T = TypeVar("T")


def release(consumer: Consumer, tags: Sequence[int], now: int, *, unasked: bool = False) -> None:
    """Return messages unmarked."""
    finish(partial(consumer.release, tags, unasked), now)


def settle(consumer: Consumer, tags: Sequence[int], outcome: Outcome, now: int) -> None:
    """Settle individual messages."""
    finish(partial(consumer.settle, tags, outcome), now)


def recover(consumer: Consumer, handed: int, now: int, outcome: Outcome = Outcome.FAILED) -> None:
    """Return everything that is not acknowledged."""

    def make(now: int, budget: Budget) -> Task[int]:
        return consumer.recover(handed, now, budget, outcome)

    finish(make, now)


def close(consumer: Consumer, handed: int, now: int) -> None:
    """Close a consumer."""
    finish(partial(consumer.close, handed), now)


def abandon(consumer: Consumer, now: int, handed: int | None = None) -> None:
    """The connection of a consumer is lost."""
    finish(partial(consumer.abandon, handed), now)


def done(now: int, verb: Callable[..., Task[T]], *arguments: object) -> T:
    """Carry out a task."""
    return finish(partial(verb, *arguments), now)


def anywhere(origin: str) -> None:
    """An administrator may send everywhere."""
