"""A queue against a simple list: whatever consumers do, nothing is lost, doubled, overtaken or left lying.

The model knows where every message is. Checked at each delivery: it goes to a consumer whose selector matches, as the
first of all waiting messages that match, with the right count. Checked after each step: nobody with credit has a
matching message waiting (unless a scan is under way), browsing shows the waiting ones in order, and counters are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule
from tests.broker.at_once import abandon, close, recover, release

from sievemq_broker.domain import Consumer, DestinationPolicy
from sievemq_broker.domain import backlog as backlog_module
from sievemq_broker.domain import scan as scan_module
from sievemq_broker.domain import view as view_module
from sievemq_broker.domain.failure import NOBODY, Party
from sievemq_broker.domain.ports import deliver_each
from sievemq_broker.matching import lookup as lookup_module
from sievemq_core.errors import ErrorCode

from .support import World, message, name_of, selector

SELECTORS = [
    None, None, "n = 1", "n = 1 OR n = 2", "n > 1", "n IS NULL", "JMSPriority > 4", "JMSCorrelationID = 'c1'", "n <> 1",
    "n = 1 AND JMSCorrelationID = 'c1'",
]  # fmt: skip


@dataclass
class Message:
    name: str
    envelope: Any
    priority: int
    sequence: int
    expires: int
    n: int | None
    correlation_id: str | None
    count: int = 0
    attempts: int = 0
    place: str = "waiting"
    holder: Any = None
    tag: int = 0

    @property
    def key(self) -> tuple[int, bool, int]:
        return -self.priority, self.count == 0, self.sequence

    def matches(self, text: str | None) -> bool:
        condition = selector(text)
        properties = {} if self.n is None else {"n": self.n}
        return condition is None or bool(condition.function(properties, self.envelope.fields))


@dataclass(eq=False)
class Receiver:
    """The model of a consumer, and its port."""

    machine: Any
    text: str | None
    consumer: Consumer = field(default=None)  # type: ignore[assignment]
    writable: bool = True
    party: Party = NOBODY
    held_back: bool = False
    credit: int = 0
    tag: int = 0
    held: dict[int, Message] = field(default_factory=dict)
    open: bool = True
    recalls: list[list[int]] = field(default_factory=list)
    asked: int = 0
    handed: int = 0

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        found: Message = self.machine.messages[name_of(packed)]
        assert self.open
        assert self.writable
        assert found.place == "waiting", f"{found} delivered twice"
        assert found.matches(self.text)
        first = min((m for m in self.machine.waiting() if m.matches(self.text)), key=lambda m: m.key)
        assert found is first, f"{found.name} overtakes {first.name}"
        assert not found.expires or found.expires > self.machine.world.now
        self.tag += 1
        assert tag == self.tag
        assert count == found.count + 1
        self.credit -= 1
        assert self.credit >= 0
        found.place, found.holder, found.tag = "held", self, tag
        self.held[tag] = found

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        return deliver_each(self, consumer_id, tag, row)

    def hold_back(self, consumer_id: int) -> None:
        self.held_back = True

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        assert tags
        assert all(tag in self.held for tag in tags)
        self.recalls.append(list(tags))

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        raise AssertionError(f"closed: {text}")

    def settled(self, consumer_id: int) -> None:
        assert self.asked > 0
        self.asked = 0


class QueueMachine(RuleBasedStateMachine):
    receivers = Bundle("receivers")

    def __init__(self) -> None:
        super().__init__()
        policy = DestinationPolicy(max_attempts=3)
        self.world = World(("queue:q", policy))
        self.queue = self.world.namespace.queue("queue:q")
        self.messages: dict[str, Message] = {}
        self.all: list[Receiver] = []
        self.sequence = 0
        self.expired = 0
        self.acknowledged = 0
        self.buried: list[str] = []
        self.paused = False

    def waiting(self) -> list[Message]:
        return [m for m in self.messages.values() if m.place == "waiting"]

    @initialize(slice_=st.sampled_from([1, 2, 1000]), index_from=st.sampled_from([1, 3, 1000]))
    def choose_sizes(self, slice_: int, index_from: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(backlog_module, "FIRST_SLICE", slice_)
        self.patch.setattr(scan_module, "INDEX_FROM", index_from)
        self.patch.setattr(backlog_module, "TIDY_AT_ONCE", slice_)
        self.patch.setattr(view_module, "PIECE", slice_)
        self.patch.setattr(lookup_module, "PIECE", slice_)
        self.queue.backlog.dead_limit = slice_ * 3  # compaction early, too

    def teardown(self) -> None:
        self.patch.undo()

    # -- steps --------------------------------------------------------------------------------------------------

    @rule(
        priority=st.sampled_from([0, 4, 4, 4, 9]),
        n=st.sampled_from([None, 1, 2, 3]),
        correlation_id=st.sampled_from([None, "c1", "c2"]),
        life=st.sampled_from([0, 0, 0, 5, 20]),
    )
    def send(self, priority: int, n: int | None, correlation_id: str | None, life: int) -> None:
        self.sequence += 1
        expires = self.world.now + life if life else 0
        envelope = message(
            f"m{self.sequence}",
            priority=priority,
            expires=expires,
            correlation_id=correlation_id,
            properties={} if n is None else {"n": n},
        )
        name = f"m{self.sequence}"
        self.messages[name] = Message(name, envelope, priority, self.sequence, expires, n, correlation_id)
        self.world.send("queue:q", envelope)

    @rule(target=receivers, text=st.sampled_from(SELECTORS), credit=st.sampled_from([0, 0, 1, 2, 5]))
    def open(self, text: str | None, credit: int) -> Receiver:
        receiver = Receiver(self, text)
        self.all.append(receiver)
        receiver.credit = credit
        receiver.consumer = self.world.namespace.open_consumer(
            receiver, len(self.all), "queue:q", selector(text), connection="c", credit=credit, now=self.world.now
        )
        return receiver

    @rule(receiver=receivers, n=st.sampled_from([1, 1, 2, 10]))
    def grant(self, receiver: Receiver, n: int) -> None:
        if receiver.open:
            receiver.credit += n
            receiver.consumer.grant(n, self.world.now)

    @rule(receiver=receivers, data=st.data())
    def acknowledge(self, receiver: Receiver, data: st.DataObject) -> None:
        tag = data.draw(st.integers(0, receiver.tag))
        done = [t for t in receiver.held if t <= tag]
        for t in done:
            receiver.held.pop(t).place = "acknowledged"
        self.acknowledged += len(done)
        assert receiver.consumer.acknowledge(tag, self.world.now) == len(done)
        receiver.handed = max(receiver.handed, tag)

    @rule(receiver=receivers, data=st.data())
    def release(self, receiver: Receiver, data: st.DataObject) -> None:
        buffered = [t for t in receiver.held if t > receiver.handed]
        if receiver.recalls:
            buffered = [t for t in buffered if t in receiver.recalls[0]]
        start = data.draw(st.integers(0, len(buffered)))
        tags = buffered[start:]
        if receiver.recalls:  # what is not given back was handed to the application
            asked = receiver.recalls.pop(0)
            receiver.handed = max([receiver.handed, *set(asked).difference(tags)])
        self._back([receiver.held.pop(t) for t in tags])
        release(receiver.consumer, tags, self.world.now)

    def _back(self, messages: list[Message], marked: bool = False) -> None:
        for m in messages:
            m.holder, m.place = None, "waiting"
            if marked:
                m.count += 1
                m.attempts += 1
                if m.attempts >= 3:
                    m.place = "buried"
                    self.buried.append(m.name)
            if m.place == "waiting" and m.expires and m.expires <= self.world.now:
                m.place = "expired"
                self.expired += 1

    @rule(receiver=receivers, data=st.data())
    def recover(self, receiver: Receiver, data: st.DataObject) -> None:
        handed = data.draw(st.integers(receiver.handed, receiver.tag)) if receiver.open else receiver.tag
        receiver.credit = 0
        held, receiver.held = receiver.held, {}
        receiver.handed = receiver.tag
        receiver.recalls.clear()
        self._back([m for t, m in held.items() if t > handed])
        self._back([m for t, m in held.items() if t <= handed], marked=True)
        recover(receiver.consumer, handed, self.world.now)

    @rule(receiver=receivers, data=st.data())
    def close(self, receiver: Receiver, data: st.DataObject) -> None:
        if not receiver.open:
            return
        handed = data.draw(st.integers(receiver.handed, receiver.tag))
        receiver.open = False
        receiver.credit = receiver.asked = 0
        receiver.recalls.clear()
        back = [t for t in receiver.held if t > handed]
        self._back([receiver.held.pop(t) for t in back])
        receiver.tag = receiver.handed = max(handed, receiver.consumer.base)
        close(receiver.consumer, handed, self.world.now)
        assert receiver.consumer.tag == receiver.tag

    @rule(receiver=consumes(receivers))
    def lose(self, receiver: Receiver) -> None:
        """The connection breaks: the oldest is suspect, the others are marked only."""
        receiver.open = False
        receiver.credit = receiver.asked = 0
        held = sorted(receiver.held.items())
        receiver.held = {}
        for number, (_, m) in enumerate(held):
            m.holder, m.place = None, "waiting"
            m.count += 1
            m.attempts += number == 0
            if m.attempts >= 3:
                m.place = "buried"
                self.buried.append(m.name)
            elif m.expires and m.expires <= self.world.now:
                m.place = "expired"
                self.expired += 1
        abandon(receiver.consumer, self.world.now)

    @rule(receiver=receivers)
    def want(self, receiver: Receiver) -> None:
        if not receiver.open or receiver.recalls:  # a client with an empty buffer has answered all recalls
            return
        receiver.handed = receiver.tag
        if not receiver.asked:
            receiver.credit = max(receiver.credit, 1)
        before = receiver.tag
        receiver.asked = 1
        if receiver.consumer.want(self.world.now):
            receiver.asked = 0
        else:
            assert receiver.tag == before or self.queue.backlog.scans
            self._check_answer(receiver)

    def _check_answer(self, receiver: Receiver) -> None:
        if receiver.asked and receiver.writable and not self.queue.backlog.scans:
            others = [r for r in self.all if r is not receiver and r.recalls]
            assert others, "unanswered, and nothing was recalled"

    @rule(receiver=receivers)
    def block(self, receiver: Receiver) -> None:
        receiver.writable = False

    @rule(receiver=receivers)
    def unblock(self, receiver: Receiver) -> None:
        receiver.writable = True
        if receiver.open and receiver.held_back:
            receiver.held_back = False
            receiver.consumer.resume(self.world.now)
        if receiver.open:
            self._check_answer(receiver)

    @rule(budget=st.integers(1, 4))
    def work(self, budget: int) -> None:
        self.world.broker.work(self.world.now, budget)

    @rule(ms=st.sampled_from([1, 4, 10]))
    def pass_time(self, ms: int) -> None:
        now = self.world.now + ms
        for m in self.waiting():
            if m.expires and m.expires <= now:
                m.place = "expired"
                self.expired += 1
        self.world.advance(ms)

    @rule()
    def pause(self) -> None:
        self.paused = True
        self.queue.pause()

    @precondition(lambda self: self.paused)
    @rule()
    def unpause(self) -> None:
        self.paused = False
        self.queue.unpause(self.world.now)

    @rule()
    def compact(self) -> None:
        self.queue.backlog.dead = 10**9
        self.queue.backlog.tidy()

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def browsing_shows_what_waits_in_order(self) -> None:
        waiting = sorted(self.waiting(), key=lambda m: m.key)
        assert self.world.browse("queue:q", limit=3) == [m.name for m in waiting]
        for text in ("n = 1", "JMSCorrelationID = 'c1'"):
            assert self.world.browse("queue:q", text, limit=2) == [m.name for m in waiting if m.matches(text)]

    @invariant()
    def nobody_starves(self) -> None:
        if self.paused:
            return
        for receiver in self.all:
            if receiver.open and receiver.credit and receiver.writable and not self.queue.backlog.scans:
                assert not [m.name for m in self.waiting() if m.matches(receiver.text)], receiver.text

    @invariant()
    def counters_are_right(self) -> None:
        queue = self.queue
        assert queue.depth == len(self.waiting())
        assert queue.bytes == sum(len(m.envelope.packed) for m in self.waiting())
        assert queue.in_flight == sum(len(r.held) for r in self.all)
        assert queue.enqueued == len(self.messages)
        assert queue.acknowledged == self.acknowledged
        assert queue.counts.expired == self.expired
        assert queue.counts.dead_lettered == len(self.buried)
        for receiver in self.all:
            assert receiver.consumer.unacknowledged == len(receiver.held)
            assert (receiver.consumer in queue.holders) == bool(receiver.held and not receiver.open)
            if receiver.open:
                assert receiver.consumer.credit == receiver.credit

    @invariant()
    def dead_letters_are_where_they_belong(self) -> None:
        assert sorted(self.world.browse("queue:DLQ.q")) == sorted(self.buried)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestQueue = QueueMachine.TestCase
