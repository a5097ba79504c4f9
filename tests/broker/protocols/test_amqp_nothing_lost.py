"""Random conversations of AMQP clients: each message is consumed once, or is still there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import HELD_BACK_MS
from sievemq_broker.domain.work import TURN
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Begin,
    Close,
    Detach,
    End,
    Modified,
    Released,
)
from sievemq_broker.session import SessionSettings

from ..session.harness import World
from .amqp import Amqp, Delivery, message

SENDER, COORDINATOR, RECEIVERS = 0, 9, (1, 2)


class Client(Amqp):
    """A client whose rest is that of all: the broker may wait for what another connection answers."""

    def __init__(self, world: World, all_of_them: list[Client]) -> None:
        super().__init__(world, connect=False)
        self.all_of_them = all_of_them
        all_of_them.append(self)

    def rest(self) -> None:
        """Turns of a loop, until nobody has anything to do."""
        for client in (self, *self.all_of_them, self):
            if not client.closed:
                Amqp.rest(client)


@dataclass
class Receiver:
    """A link by which a client receives."""

    settled: bool
    count: int = 0
    deliveries: dict[int, str] = field(default_factory=dict)


@dataclass
class Member:
    """A client, and what it knows.

    Attributes:
        numbers: deliveries that it has sent.
        came: transfers that it has received in its session.
        receivers: by handle.
        coordinated: it has a link that declares transactions.
        transactions: the messages that each of its transactions has accepted.
        sent: those that each has sent.
    """

    amqp: Amqp
    numbers: int = 0
    came: int = 0
    receivers: dict[int, Receiver] = field(default_factory=dict)
    coordinated: bool = False
    transactions: dict[bytes, list[str]] = field(default_factory=dict)
    sent: dict[bytes, list[str]] = field(default_factory=dict)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers - 1


class Model:
    """What must have become of each message.

    Args:
        turn: units that tasks may spend in a turn.
    """

    def __init__(self, turn: int) -> None:
        policy = DomainSettings(default_policy=DestinationPolicy(max_attempts=0))
        self.world = World(SessionSettings(outbox_high=1_500), broker=Broker(policy))
        self.world.broker.scheduler.turn = turn
        self.messages = 0
        self.clients: list[Client] = []
        self.live: set[str] = set()
        self.members = [self.join(), self.join()]
        for number in range(2):
            self.attach(number, RECEIVERS[0], False)
        self.send(0, 8, False)

    def join(self) -> Member:
        member = Member(Client(self.world, self.clients))
        member.amqp.connect()
        member.amqp.one(Begin)
        member.amqp.sender(handle=SENDER)
        return member

    def member(self, which: int) -> Member:
        return self.members[which % len(self.members)]

    # -- what clients do ----------------------------------------------------------------------------------------------

    def send(self, which: int, count: int, transacted: bool) -> None:
        member = self.member(which)
        name = self._transaction(member) if transacted else None
        for _ in range(count):
            self.messages += 1
            text = f"m{self.messages}"
            state = {} if name is None else {"state": member.amqp.within(name)}
            member.amqp.send(message(text + "x" * 100), member.number(), SENDER, **state)
            if name is None:
                self.live.add(text)
            else:
                member.sent[name].append(text)

    def attach(self, which: int, handle: int, settled: bool) -> None:
        member = self.member(which)
        if handle not in member.receivers:
            member.receivers[handle] = Receiver(settled)
            member.amqp.receiver(handle=handle, settle=int(settled))

    def grant(self, which: int, handle: int, credit: int, drain: bool, window: int) -> None:
        member = self.member(which)
        receiver = member.receivers.get(handle)
        if receiver is not None:
            member.amqp.grant(credit, handle, receiver.count, drain=drain, window=window, next_in=member.came)

    def settle(self, pick: int, outcome: Any, transacted: bool) -> None:
        holding = [
            (member, receiver, number)
            for member in self.members
            for receiver in member.receivers.values()
            for number in receiver.deliveries
        ]
        if not holding:
            return
        member, receiver, number = holding[pick % len(holding)]
        text = receiver.deliveries.pop(number)
        name = self._transaction(member) if transacted else None
        if name is None:
            if isinstance(outcome, Accepted):
                self.live.remove(text)
            member.amqp.settle(outcome, number)
        else:
            if isinstance(outcome, Accepted):
                member.transactions[name].append(text)
            member.amqp.settle(member.amqp.within(name, outcome), number)

    def _transaction(self, member: Member) -> bytes:
        if member.transactions:
            return next(iter(member.transactions))
        if not member.coordinated:
            member.coordinated = True
            member.amqp.coordinator(COORDINATOR)
        name = member.amqp.declare(member.number(), COORDINATOR)
        member.transactions[name], member.sent[name] = [], []
        return name

    def discharge(self, which: int, fail: bool) -> None:
        member = self.member(which)
        if member.transactions:
            name = next(iter(member.transactions))
            state = member.amqp.discharge(name, member.number(), COORDINATOR, fail=fail)
            assert isinstance(state, Accepted)
            settled, sent = member.transactions.pop(name), member.sent.pop(name)
            if not fail:
                self.live.difference_update(settled)
                self.live.update(sent)

    def detach(self, which: int, handle: int, closed: bool) -> None:
        member = self.member(which)
        if handle == COORDINATOR and member.coordinated:
            member.coordinated = False
            member.transactions.clear()
            member.sent.clear()
        elif member.receivers.pop(handle, None) is None:
            return
        member.amqp.say(Detach(handle=handle, closed=closed))

    def end(self, which: int) -> None:
        member = self.member(which)
        member.amqp.say(End())
        self._forget(member)
        member.amqp.begin()
        member.amqp.sender(handle=SENDER)

    def leave(self, which: int, lost: bool) -> None:
        member = self.member(which)
        if lost:
            member.amqp.lose()
        else:
            member.amqp.say(Close())
        self._hear(member)
        self._forget(member)
        self.members[self.members.index(member)] = self.join()

    def _forget(self, member: Member) -> None:
        member.receivers.clear()
        member.transactions.clear()
        member.sent.clear()
        member.coordinated, member.came = False, 0

    # -- what must be true --------------------------------------------------------------------------------------------

    def hear(self) -> None:
        for member in self.members:
            if not member.amqp.closed:
                member.amqp.rest()
            self._hear(member)

    def _hear(self, member: Member) -> None:
        assert not member.amqp.all(Close) or member.amqp.closed
        while any(type(frame.body).__name__ == "Transfer" for frame in member.amqp.frames):
            delivery: Delivery = member.amqp.receive()
            text = delivery.body.rstrip("x")
            member.came += 1
            assert text in self.live, f"{text} was consumed already"
            receiver = member.receivers.get(delivery.handle)
            if receiver is None:
                assert not delivery.settled  # its link was detached meanwhile
                continue
            receiver.count += 1
            if delivery.settled:
                self.live.remove(text)
            else:
                held = [one.deliveries.values() for each in self.members for one in each.receivers.values()]
                assert not any(text in texts for texts in held), f"{text} is held twice"
                receiver.deliveries[delivery.id] = text

    def finish(self) -> None:
        for member in self.members:
            member.amqp.lose()
        self.world.later(HELD_BACK_MS)  # for messages that one link has released again and again
        while self.world.broker.work(self.world.now):
            pass
        left = [text.rstrip("x") for _, text in self.world.client().browse("queue:q")]
        assert len(left) == len(set(left))
        assert set(left) == self.live
        assert self.world.services.reports == []


which = st.integers(0, 1)
handle = st.sampled_from(RECEIVERS)
outcome = st.sampled_from([Accepted(), Accepted(), Released(), Modified(delivery_failed=True)])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), which, st.integers(1, 12), st.booleans()),
        st.tuples(st.just("attach"), which, handle, st.booleans()),
        st.tuples(st.just("grant"), which, handle, st.integers(0, 30), st.booleans(), st.sampled_from([10_000, 0, 3])),
        *[st.tuples(st.just("settle"), st.integers(0, 50), outcome, st.booleans())] * 3,
        st.tuples(st.just("discharge"), which, st.booleans()),
        st.tuples(st.just("detach"), which, st.sampled_from([*RECEIVERS, COORDINATOR]), st.booleans()),
        st.tuples(st.just("end"), which),
        st.tuples(st.just("leave"), which, st.booleans()),
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=100)
@given(steps=steps, turn=st.sampled_from([1, 3, TURN]))
def test_random_conversations(steps: list[tuple[Any, ...]], turn: int) -> None:
    model = Model(turn)
    for name, *arguments in steps:
        getattr(model, name)(*arguments)
        model.hear()
    model.finish()
