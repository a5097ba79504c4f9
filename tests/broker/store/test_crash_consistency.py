"""Every prefix of what was written opens to the broker as it was at that moment.

Random programs run on a broker with a journal. Between any two verbs the journal may be cut, as a group commit does;
the batch goes into the obvious store and into the real one. For each prefix of the batches a new broker is filled from
the store and must be what the first one was then: the state that the verbs up to there, one after the other, explain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.broker.at_once import abandon, close, recover, release

from sievemq_broker.domain import Broker, Consumer, DestinationPolicy, DomainSettings
from sievemq_broker.domain.consumer import Held, Source
from sievemq_broker.domain.failure import NOBODY
from sievemq_broker.domain.journal import BATCH_BYTES
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.work import TURN, finish
from sievemq_broker.store import SqliteStore
from sievemq_core.errors import RequestError
from sievemq_core.selector import compile_selector

from .support import NOW, DictStore, message, picture, saved_in

QUEUES = ("queue:a", "queue:b", "topic:t")
POLICIES = (
    ("queue:b", DestinationPolicy(max_attempts=2, dead_letter_expired=True)),
    ("topic:*", DestinationPolicy(redelivery_delay=50)),
)

#: How often each is sent.
VERBS = {
    "send": 4, "consume": 2, "acknowledge": 2, "release": 1, "recover": 2, "close": 1, "abandon": 1, "commit": 1,
    "lose": 2, "come_back": 2, "purge": 1, "delete": 1, "pause": 1, "subscribe": 2, "unsubscribe": 1, "wait": 2,
    "temporary": 1, "cut": 3,
}  # fmt: skip

small = st.integers(0, 3)
PROGRAMS = st.lists(
    st.tuples(
        st.sampled_from([verb for verb, times in VERBS.items() for _ in range(times)]),
        small,
        small,
        st.integers(0, 9),
    ),
    min_size=40,
    max_size=120,
)


class Port:
    """Takes everything."""

    def __init__(self) -> None:
        self.writable = True
        self.needs: list[Stored] = []
        self.party = NOBODY

    def deliver(self, *_: object) -> None: ...
    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        return len(row)

    def recall(self, *_: object) -> None: ...
    def closed(self, *_: object) -> None: ...
    def settled(self, *_: object) -> None: ...


@dataclass
class Program:
    """Runs verbs on a broker and remembers what it looked like at each cut."""

    real: SqliteStore | None
    broker: Broker = field(init=False)
    now: int = NOW
    store: DictStore = field(default_factory=DictStore)
    consumers: list[Consumer] = field(default_factory=list)
    lost: list[tuple[Source, list[Held]]] = field(default_factory=list)
    moments: list[tuple[DictStore, dict[str, Any], int]] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.broker = self.begin()

    def begin(self) -> Broker:
        broker = Broker(DomainSettings(policies=POLICIES))
        restore(broker, self.store, self.now)
        broker.namespace("n")
        return broker

    def run(self, program: list[tuple[str, int, int, int]]) -> None:
        for verb, *numbers in program:
            act: Callable[..., None] = getattr(self, verb)
            try:
                act(*numbers)
            except RequestError:
                pass  # refused: nothing has changed
        self.cut()

    def name(self) -> str:
        self.number += 1
        return f"m{self.number}"

    @property
    def space(self) -> Any:
        return self.broker.namespace("n")

    def consumer(self, which: int) -> Consumer | None:
        return self.consumers[which % len(self.consumers)] if self.consumers else None

    # -- verbs --------------------------------------------------------------------------------------------------

    def send(self, where: int, how: int, priority: int) -> None:
        at = self.now + 100 if how == 1 else 0
        expires = self.now + 150 if how == 2 else 0
        envelope = message(
            self.name(), mode=1 if how == 3 else 2, priority=priority, at=at, expires=expires, n=priority
        )
        self.space.send(QUEUES[where % 3], envelope, self.now, "c")

    def consume(self, where: int, credit: int, subscription: int) -> None:
        durable = where % 3 == 2
        consumer = self.space.open_consumer(
            Port(), len(self.consumers) + 1, QUEUES[where % 3], None if durable else self.selector(subscription),
            connection="c", client_id="id", credit=credit + 1, now=self.now, durable=durable,
            subscription=f"s{subscription % 2}" if durable else None, shared=durable,
        )  # fmt: skip
        self.consumers.append(consumer)

    def selector(self, number: int) -> Any:
        return compile_selector("n > 4") if number > 6 else None

    def acknowledge(self, which: int, behind: int, _: int) -> None:
        if consumer := self.consumer(which):
            consumer.acknowledge(max(consumer.tag - behind, 0), self.now)

    def release(self, which: int, count: int, _: int) -> None:
        if consumer := self.consumer(which):
            release(consumer, list(range(consumer.base + 1, consumer.tag + 1))[-count or 1 :], self.now)

    def recover(self, which: int, behind: int, _: int) -> None:
        if consumer := self.consumer(which):
            recover(consumer, max(consumer.tag - behind, 0), self.now)
            consumer.grant(behind, self.now)

    def close(self, which: int, behind: int, _: int) -> None:
        if consumer := self.consumer(which):
            close(consumer, max(consumer.tag - behind, 0), self.now)

    def abandon(self, which: int, _: int, __: int) -> None:
        if consumer := self.consumer(which):
            abandon(consumer, self.now)

    def lose(self, which: int, _: int, tenths: int) -> None:
        """A connection that is remembered: a message at its last attempt waits."""
        if consumer := self.consumer(which):
            held: list[Held] = []
            until = self.now + tenths * 10 + 1
            finish(lambda now, budget: consumer.abandon(None, now, budget, held, until), self.now)
            self.lost.append((consumer.source, held))

    def come_back(self, done: int, failed: int, seen: int) -> None:
        if self.lost:
            source, held = self.lost.pop()
            source.settle_returned(held[:done])
            source.fail_returned(held[done : done + failed], self.now)
            source.unmark(held[max(done + failed, seen) :], self.now)
            source.end_wait(held, self.now)

    def commit(self, which: int, behind: int, priority: int) -> None:
        sends = [(address, message(self.name(), priority=priority)) for address in (QUEUES[0], QUEUES[2], QUEUES[1])]
        self.space.commit(Sends(sends), self.now, "c")
        self.acknowledge(which, behind, 0)

    def purge(self, where: int, _: int, __: int) -> None:
        self.space.queue(QUEUES[where % 2]).clear()

    def pause(self, where: int, resume: int, _: int) -> None:
        if destination := self.space.find(QUEUES[where % 3]):
            if resume % 2:
                self.space.unpause(destination, self.now)
            else:
                self.space.pause(destination)

    def delete(self, where: int, _: int, really: int) -> None:
        if really < 3:
            self.space.delete(QUEUES[where % 3])

    def subscribe(self, number: int, shared: int, text: int) -> None:
        consumer = self.space.open_consumer(
            Port(), 99, "topic:t", self.selector(text), connection="c", client_id="id", subscription=f"s{number}",
            durable=True, shared=bool(shared % 2), credit=0, now=self.now,
        )  # fmt: skip
        close(consumer, 0, self.now)

    def unsubscribe(self, number: int, _: int, __: int) -> None:
        self.space.unsubscribe("id", f"s{number}")

    def temporary(self, topic: int, _: int, __: int) -> None:
        address = self.space.temporaries.create("c", topic == 1, self.number)
        self.space.send(str(address), message(self.name()), self.now, "c")

    def wait(self, _: int, __: int, tenths: int) -> None:
        self.now += tenths * 10
        self.broker.due(self.now)

    def cut(self, *_: int) -> None:
        assert self.broker.journal is not None
        write = self.broker.journal.cut()
        if not write:
            return
        self.store.write(write, self.now)
        self.moments.append((self.store.copy(), picture(self.broker), self.now))
        if self.real is not None:
            self.real.write(write._replace(number=self.real.next_write), self.now)
            assert saved_in(self.real) == saved_in(self.store)
            for kind in ("namespace", "destination", "subscription", "paused"):
                assert self.real.definitions(kind) == self.store.definitions(kind)

    # -- afterwards ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        for number, (store, expected, now) in enumerate(self.moments):
            broker = Broker(DomainSettings(policies=POLICIES))
            restore(broker, store, now)
            assert picture(broker) == expected, f"after batch {number + 1} of {len(self.moments)}"


@settings(max_examples=100)
@given(program=PROGRAMS)
def test_every_prefix_opens_to_the_broker_as_it_was(program: list[tuple[str, int, int, int]]) -> None:
    run = Program(None)
    run.run(program)
    run.check()


@settings(max_examples=40)
@given(program=PROGRAMS, size=st.sampled_from([1, 300, 1_000]))
def test_crashes_between_several_batches_of_one_write_are_consistent(
    program: list[tuple[str, int, int, int]], size: int
) -> None:
    run = Program(None, store=DictStore(size))
    run.run(program)
    run.check()


#: The attempts of messages that came back are taken back, in one write.
UNDONE = [*[("send", 0, 0, 0)] * 37, ("consume", 0, 0, 0), ("lose", 0, 0, 0), ("come_back", 0, 0, 0)]


@settings(max_examples=25)
@example(program=UNDONE, size=300)
@given(program=PROGRAMS, size=st.sampled_from([300, BATCH_BYTES]))
def test_the_store_on_disk_agrees_with_the_model(program: list[tuple[str, int, int, int]], size: int) -> None:
    with TemporaryDirectory() as folder:
        store = SqliteStore(folder, reserve=0)
        run = Program(store, store=DictStore(size))
        run.run(program)
        store.close()
        again = SqliteStore(folder, reserve=0)
        assert saved_in(again) == saved_in(run.store)
        assert again.next_batch == run.store.next_batch
        again.close()


@pytest.mark.slow
@settings(max_examples=300)
@given(program=PROGRAMS, again=PROGRAMS)
def test_lives_that_end_in_crashes(program: list[tuple[str, int, int, int]], again: Any) -> None:
    """As above, twice: the second life begins with what the first left behind, and ends the same way."""
    run = Program(None)
    run.run(program)
    run.check()
    run.moments.clear()
    run.consumers.clear()
    run.lost.clear()
    run.broker = run.begin()
    run.run(again)
    run.check()


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    """A queue that was deleted while a consumer held a message leaves a row behind: no later queue may get it."""
    store = DictStore()
    broker = Broker()
    restore(broker, store, NOW)
    assert broker.journal is not None
    space = broker.namespace("n")
    space.send("queue:a", message("lost"), NOW)
    consumer = space.open_consumer(Port(), 1, "queue:a", connection="c", credit=1, now=NOW)
    assert consumer.unacknowledged == 1
    space.delete("queue:a")
    store.write(broker.journal.cut(), NOW)
    assert store.messages
    second = Broker()
    assert restore(second, store, NOW) == 0
    assert second.journal is not None
    second.namespace("n").create("queue:new")
    store.write(second.journal.cut(), NOW)
    assert not store.messages
    third = Broker()
    assert restore(third, store, NOW) == 0


def test_a_crash_while_a_deleted_queue_is_emptied_brings_nothing_back() -> None:
    store = DictStore()
    broker = Broker()
    restore(broker, store, NOW)
    journal = broker.journal
    assert journal is not None
    space = broker.namespace("n")
    for number in range(3 * TURN):
        space.send("queue:a", message(f"m{number}"), NOW)
    store.write(journal.cut(), NOW)
    space.delete("queue:a")
    left = []
    while broker.work(NOW):
        store.write(journal.cut(), NOW)
        left.append(len(store.messages))
        second = Broker()
        assert restore(second, store.copy(), NOW) == 0
        assert not second.namespace("n").destinations
    assert 0 < left[0] < 3 * TURN
    store.write(journal.cut(), NOW)
    assert not store.messages
