"""A topic whose subscribers want one value each, as most of many do: found by a look-up, one by one or some together.

Whatever they do meanwhile, each gets what it asked for since it came, once and in order, until it gives something back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.at_once import abandon, close, recover

from sievemq_broker.domain import Consumer, Topic

from .support import World, message

ADDRESS = "topic:prices"
SYMBOLS = ["S0", "S1", "S2"]
SELECTORS = {
    "symbol = 'S0'": {"S0"},
    "symbol = 'S1'": {"S1"},
    "symbol IN ('S1', 'S2')": {"S1", "S2"},
    "symbol = 'S2' AND price >= 0": {"S2"},
}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.sampled_from(sorted(SELECTORS)), st.sampled_from([0, 1, 100]), st.booleans()),
        st.tuples(st.just("send"), st.sampled_from(SYMBOLS), st.booleans()),
        st.tuples(st.sampled_from(["grant", "acknowledge", "recover", "full", "drained", "close"]), st.integers(0, 7)),
    ),
    max_size=40,
)


class Subscriber(NamedTuple):
    consumer: Consumer
    wants: set[str]
    due: list[str]
    how: dict[str, Any]
    text: str


class Market:
    """The topic, and beside it what each subscriber is to get."""

    def __init__(self) -> None:
        self.world = World()
        self.there: list[Subscriber] = []
        self.sent = self.opened = 0

    def open(self, text: str, credit: int, durable: bool) -> None:
        self.opened += 1
        how = {"subscription": f"s{self.opened}", "durable": True, "client_id": "id"} if durable else {}
        consumer = self.world.consumer(ADDRESS, text, credit=credit, **how)
        self.there.append(Subscriber(consumer, SELECTORS[text], [], how, text))

    def send(self, symbol: str, expired: bool) -> None:
        self.sent += 1
        name, expires = f"m{self.sent}", self.world.now if expired else 0
        self.world.send(ADDRESS, message(name, properties={"symbol": symbol, "price": 1}, expires=expires))
        for each in self.there:
            if symbol in each.wants and not expired:
                each.due.append(name)

    def do(self, verb: str, which: int) -> None:
        if not self.there:
            return
        index = which % len(self.there)
        subscriber, now = self.there[index], self.world.now
        consumer = subscriber.consumer
        match verb:
            case "grant":
                consumer.grant(1, now)
            case "acknowledge":
                consumer.acknowledge(consumer.tag, now)
            case "recover":
                recover(consumer, consumer.tag, now)
            case "full":
                self.world.port(consumer).writable = False
            case "drained":
                self.world.resume(consumer)
            case _ if not subscriber.how:
                abandon(consumer, now)
                self.check(self.there.pop(index), complete=False)
            case _:  # a durable one waits for its next consumer, and what it gets again is marked
                got = self.got(subscriber)
                abandon(consumer, now)
                again = self.world.consumer(ADDRESS, subscriber.text, credit=0, **subscriber.how)
                del subscriber.due[: len(set(got))]
                held = [name for name in dict.fromkeys(got) if name not in self.settled(consumer, got)]
                self.there[index] = Subscriber(again, subscriber.wants, held + subscriber.due, *subscriber[3:])

    def settled(self, consumer: Consumer, got: list[str]) -> set[str]:
        """What it has acknowledged: what no recovery or end has brought back waits nowhere."""
        waiting = set(self.waiting(consumer))
        return {name for name in got if name not in waiting}

    def waiting(self, consumer: Consumer) -> list[str]:
        queue = consumer.source
        return [str(entry.envelope.fields[0]) for entry in queue.main.waits(-1, queue.depth)]

    def got(self, subscriber: Subscriber) -> list[str]:
        return self.world.got(subscriber.consumer)

    def check(self, subscriber: Subscriber, complete: bool = True) -> None:
        first_time = list(dict.fromkeys(self.got(subscriber)))
        assert first_time == (subscriber.due if complete else subscriber.due[: len(first_time)])


@given(steps)
@settings(max_examples=150, deadline=None)
def test_each_subscriber_receives_its_matches(steps: list[tuple[Any, ...]]) -> None:
    market = Market()
    for verb, *arguments in steps:
        if verb == "open":
            market.open(*arguments)
        elif verb == "send":
            market.send(*arguments)
        else:
            market.do(verb, *arguments)
        for subscriber in market.there:
            market.check(subscriber, complete=False)
    for subscriber in market.there:
        market.world.port(subscriber.consumer).writable = True
        subscriber.consumer.grant(1_000, market.world.now)
        market.check(subscriber)
        subscriber.consumer.acknowledge(subscriber.consumer.tag, market.world.now)
        close(subscriber.consumer, 0, market.world.now)
        if subscriber.how:
            market.world.namespace.unsubscribe("id", subscriber.how["subscription"])
    topic = market.world.namespace.declare(ADDRESS)
    assert isinstance(topic, Topic)
    assert (len(topic.index), topic.subscriptions) == (0, {})
