"""A simple model of JMS: destinations and subscriptions hold messages, sessions hold what they received.

It knows nothing of prefetch, wire or broker. Time is in seconds, moved by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

SELECTORS: dict[str | None, Callable[[int], bool]] = {None: lambda n: True, "n = 1": lambda n: n == 1}


@dataclass(frozen=True)
class Sent:
    """What was sent, and when it expires and may be delivered (seconds, 0 for never and at once)."""

    name: str
    priority: int
    n: int
    expires: int
    available: int


@dataclass(eq=False)
class Waiting:
    """A message in a store: waits, or is held by a session.

    Attributes:
        arrival: place among equals.
        count: deliveries that count.
        doubt: how many more there may have been: a lost connection marks what its client had only buffered too.
    """

    sent: Sent
    arrival: int
    count: int = 0
    doubt: int = 0
    delayed: bool = False

    @property
    def order(self) -> tuple[int, bool, int]:
        """ORD-03, ORD-07: priority, redelivered before new, arrival."""
        return 9 - self.sent.priority, not self.count, self.arrival


@dataclass(eq=False)
class Store:
    """A queue or a subscription.

    Attributes:
        topic: which publications it gets; None for a queue.
        selector: filter at publication, of a subscription.
        consumers: open ones.
        competed: two consumers were open at once: then order is between each of them and nobody.
    """

    name: str
    topic: str | None = None
    selector: str | None = None
    durable: bool = False
    waiting: list[Waiting] = field(default_factory=list)
    consumers: int = 0
    competed: bool = False
    gone: bool = False

    def opened(self) -> None:
        """One more consumer."""
        self.consumers += 1
        self.competed = self.competed or self.consumers > 1


@dataclass(eq=False)
class Held:
    """A message that a session received and has not settled."""

    store: Store
    message: Waiting


@dataclass(eq=False)
class ModelSession:
    """What a session owes."""

    held: list[Held] = field(default_factory=list)
    staged: list[tuple[str, Sent]] = field(default_factory=list)


class Model:
    """All stores of a namespace, and the time."""

    def __init__(self) -> None:
        self.now = 0
        self.stores: dict[str, Store] = {}
        self.arrivals = 0

    # -- sending ------------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Store:
        """The queue of that name."""
        return self.stores.setdefault(name, Store(name))

    def send(self, destination: str, sent: Sent) -> None:
        """To a queue, or as a copy to each subscription that exists and wants it (SUB-05, EXP-08)."""
        if destination.startswith("q"):
            stores: Iterable[Store] = (self.queue(destination),)
        else:
            stores = [s for s in self.stores.values() if s.topic == destination and SELECTORS[s.selector](sent.n)]
        for store in stores:
            self.arrivals += 1
            store.waiting.append(Waiting(sent, self.arrivals, delayed=sent.available > self.now))

    def advance(self, seconds: int) -> None:
        """What was delayed arrives when its time has come, behind what came before (ORD-05)."""
        self.now += seconds
        for store in self.stores.values():
            due = [m for m in store.waiting if m.delayed and m.sent.available <= self.now]
            for message in sorted(due, key=lambda m: (m.sent.available, m.arrival)):
                self.arrivals += 1
                message.arrival = self.arrivals
                message.delayed = False

    # -- receiving ----------------------------------------------------------------------------------------------------

    def eligible(self, store: Store, selector: str | None) -> list[Waiting]:
        """What a consumer may get now, in order."""
        return sorted(
            (m for m in store.waiting if not m.delayed and not self.expired(m.sent) and SELECTORS[selector](m.sent.n)),
            key=lambda m: m.order,
        )

    def expired(self, sent: Sent) -> bool:
        """EXP-02, EXP-10."""
        return bool(sent.expires) and sent.expires <= self.now

    def take(self, session: ModelSession, store: Store, message: Waiting) -> None:
        """A session received it."""
        store.waiting.remove(message)
        session.held.append(Held(store, message))

    # -- settling -----------------------------------------------------------------------------------------------------

    def acknowledge(self, session: ModelSession) -> None:
        """Everything the session received is done with (ACK-05, ACK-06)."""
        session.held.clear()

    def give_back(self, session: ModelSession) -> None:
        """Everything the session received comes again, marked (ACK-08, TXN-04, ACK-15, ACK-18)."""
        for held in session.held:
            held.message.count += 1
            if not held.store.gone:
                held.store.waiting.append(held.message)
        session.held.clear()

    def commit(self, session: ModelSession) -> None:
        """TXN-10."""
        for destination, sent in session.staged:
            self.send(destination, sent)
        session.staged.clear()
        session.held.clear()

    def rollback(self, session: ModelSession) -> None:
        """TXN-04."""
        session.staged.clear()
        self.give_back(session)

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def subscribe(self, name: str, topic: str, selector: str | None, durable: bool) -> Store:
        """The subscription of that name; one with another selector is replaced, if inactive (SUB-13, SUB-15)."""
        store = self.stores.get(name)
        if store is not None and store.selector != selector:
            self.drop(name)
            store = None
        if store is None:
            store = self.stores[name] = Store(name, topic, selector, durable)
        return store

    def drop(self, name: str) -> None:
        """A subscription ends, with its messages (ACK-17)."""
        self.stores.pop(name).gone = True

    def left(self, store: Store) -> None:
        """A consumer was closed; a subscription that is not durable ends with its last (SUB-01, SUB-02)."""
        store.consumers -= 1
        if store.topic is not None and not store.durable and not store.consumers:
            self.drop(store.name)

    def everything(self) -> dict[str, list[Any]]:
        """Names by store, for error messages."""
        return {name: [m.sent.name for m in store.waiting] for name, store in self.stores.items()}
