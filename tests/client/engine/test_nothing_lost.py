"""Random programs at the real broker, with bytes in flight in any order: nothing is lost, doubled or marked wrongly.

Each step is a call of an application, or lets the bytes of one direction of one connection arrive. At the end all that
is still to be had is received; then every message that was sent for good has been consumed for good or was still there,
and none of those that were consumed for good has come again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq import Message, Queue, TextMessage
from sievemq._engine import Completion, EngineConsumer, EngineProducer, EngineSession

from .harness import Memory, World

QUEUES = (Queue("a"), Queue("b"))


@dataclass
class Ledger:
    """What is known of each message, by its text."""

    sent: set[str] = field(default_factory=set)  # at the broker for good
    consumed: set[str] = field(default_factory=set)  # acknowledged at the broker for good
    in_doubt: set[str] = field(default_factory=set)  # acknowledged on a connection that broke off
    handed: dict[str, int] = field(default_factory=dict)  # how often an application has seen it
    broken: bool = False  # some connection broke off: then what was only buffered comes back marked, too


class App:
    """An application with one session of one connection, which keeps its books."""

    def __init__(self, world: World, ledger: Ledger, mode: int, prefetch: int | None) -> None:
        self.world, self.ledger, self.mode = world, ledger, mode
        self.memory: Memory = world.connect(prefetch=prefetch)
        self.session: EngineSession = world.session(self.memory, mode)
        self.consumers: list[EngineConsumer] = []
        self.holding: list[str] = []  # handed over, not acknowledged
        self.staged: list[str] = []  # sent in the open transaction
        self.leaving: list[tuple[set[str], str]] = []  # what takes effect when the bytes arrive
        self.pending: list[Completion[Any]] = []
        self.alive = True

    # -- the transport ------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """What was said arrives."""
        if self.alive:
            self.memory.broker.receive_data(self.memory.engine.data_to_send(), self.world.services.now())
            for into, text in self.leaving:
                into.add(text)
            self.leaving.clear()

    def down(self) -> None:
        """What the broker says arrives."""
        if self.alive and self.memory.broker.has_data:
            self.memory.engine.receive_data(self.memory.broker.data_to_send())

    def drop(self) -> None:
        """The connection breaks off."""
        if self.alive:
            self.alive = False
            self.ledger.broken = True
            self.ledger.in_doubt |= {text for into, text in self.leaving if into is self.ledger.consumed}
            self.leaving.clear()
            self.memory.drop(self.world.services.now())
            assert all(completion.done for completion in self.pending)

    @property
    def busy(self) -> bool:
        """A call waits for its answer: the application does nothing else."""
        self.pending = [completion for completion in self.pending if not completion.done]
        return bool(self.pending) or not self.alive

    # -- the application ----------------------------------------------------------------------------------------------

    def send(self, number: int, queue: Queue) -> None:
        text = str(number)
        EngineProducer(self.session, queue).send(TextMessage(text), queue, delivery_mode=1)
        if self.session.transacted:
            self.staged.append(text)
        else:
            self.leaving.append((self.ledger.sent, text))

    def open(self, queue: Queue) -> None:
        consumer = self.session.open_consumer(queue, str(queue))
        self.pending.append(consumer.opened)
        self.consumers.append(consumer)

    def take(self, consumer: EngineConsumer, settle: bool = True) -> None:
        """A receive that finds something in the buffer, or else asks for it."""
        message = consumer.take() if consumer.flowing else None
        if message is None:
            consumer.want()
            return
        text = self.check(message)
        self.holding.append(text)
        if consumer.acknowledges_itself and settle:
            consumer.settle()
            self.acknowledged()
        elif consumer.acknowledges_itself:  # a listener that raises (LIS-04)
            self.recover()
        if consumer.taken >= consumer.credit.mark:
            consumer.top_up()

    def check(self, message: Message) -> str:
        assert isinstance(message, TextMessage)
        text = message.get_text() or ""
        ledger = self.ledger
        assert text in ledger.sent, "it was never sent"
        assert text not in ledger.consumed, "it was consumed for good"
        before = ledger.handed.get(text, 0)
        if before or not ledger.broken:
            assert message.get_jms_redelivered() is (before > 0)
        if not ledger.broken:
            assert message.get_int_property("JMSXDeliveryCount") == before + 1
        ledger.handed[text] = before + 1
        return text

    def acknowledged(self) -> None:
        self.leaving += [(self.ledger.consumed, text) for text in self.holding]
        self.holding.clear()

    def acknowledge(self) -> None:
        if self.mode == 2:
            self.pending.append(self.session.acknowledge())
            self.acknowledged()

    def recover(self) -> None:
        if self.mode != 0:
            self.pending.append(self.session.recover())
            self.holding.clear()

    def commit(self) -> None:
        if self.mode == 0:
            self.pending.append(self.session.commit())
            self.acknowledged()
            self.leaving += [(self.ledger.sent, text) for text in self.staged]
            self.staged.clear()

    def rollback(self) -> None:
        if self.mode == 0:
            self.pending.append(self.session.rollback())
            self.holding.clear()
            self.staged.clear()

    def close_consumer(self, consumer: EngineConsumer) -> None:
        self.pending.append(self.session.close_consumer(consumer))
        self.consumers.remove(consumer)

    def close_session(self) -> None:
        self.pending.append(self.session.close())
        self.consumers.clear()
        self.holding.clear()
        self.staged.clear()
        self.session = self.memory.engine.open_session(self.mode)
        self.pending.append(self.session.opened)

    def close(self) -> None:
        if self.alive:
            self.pending.append(self.memory.engine.close())
            self.up()
            self.down()
            assert self.memory.engine.closed
            self.memory.drop(self.world.services.now())
            self.alive = False


#: Verbs with their weights: mostly traffic, rarely an end.
VERBS = (
    ["send"] * 12 + ["take"] * 24 + ["up"] * 14 + ["down"] * 14 + ["open"] * 3 + ["raise", "recover", "rollback"]
    + ["acknowledge", "commit"] * 2 + ["close_consumer", "close_session", "stop", "start", "start", "drop"]
)  # fmt: skip
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 2), st.integers(0, 3)), min_size=20, max_size=250)


@settings(max_examples=80)
@given(
    steps=STEPS,
    modes=st.tuples(*[st.integers(0, 3)] * 3),
    prefetch=st.sampled_from([None, 0, 1, 2, 5]),
)
def test_ack_06_txn_10_d_23_nothing_is_lost_doubled_or_marked_wrongly(
    steps: list[tuple[str, int, int]], modes: tuple[int, int, int], prefetch: int | None
) -> None:
    world, ledger = World(), Ledger()
    apps = [App(world, ledger, mode, prefetch) for mode in modes]
    for number, (verb, who, which) in enumerate(steps):
        app = apps[who]
        if verb in ("up", "down", "drop"):
            getattr(app, verb)()
        elif app.busy:  # nothing to do for it but to wait
            app.up() if number % 2 else app.down()
        elif verb == "send":
            app.send(number, QUEUES[which % 2])
        elif verb == "open":
            app.open(QUEUES[which % 2])
        elif verb in ("take", "raise", "close_consumer"):
            ready = [consumer for consumer in app.consumers if consumer.opened.done]
            if ready:
                consumer = ready[which % len(ready)]
                if verb == "close_consumer":
                    app.close_consumer(consumer)
                else:
                    app.take(consumer, settle=verb == "take")
        elif verb in ("stop", "start"):
            getattr(app.memory.engine, verb)()
        else:
            getattr(app, verb)()

    for app in apps:  # an orderly end, in which everything that was said arrives
        while app.busy and app.alive:
            app.up()
            app.down()
            for other in apps:  # a WANT is answered when others have answered
                other.up()
                other.down()
        app.up()
    for app in apps:
        app.close()

    last = App(world, ledger, 1, None)
    left: list[str] = []
    for queue in (*QUEUES, *(Queue(f"DLQ.{queue.name}") for queue in QUEUES)):
        consumer = world.consumer(last.session, queue)
        while (message := world.receive(consumer)) is not None:
            assert isinstance(message, TextMessage)
            left.append(message.get_text() or "")
    assert len(left) == len(set(left)), "twice"
    assert not ledger.consumed & set(left), "consumed for good, and still there"
    assert ledger.sent - ledger.consumed - ledger.in_doubt <= set(left), "lost"
    assert set(left) <= ledger.sent
