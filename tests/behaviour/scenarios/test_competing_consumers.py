"""Consumers of all kinds compete for a queue, fail, change their minds and go away: every message is done exactly once.

Each thread plays one application after another, chosen by a seeded generator. Whatever the timing, it must hold that
a message is done once, is seen unmarked once, and that its delivery count says how often it was seen.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from sievemq import ConnectionFactory, DeliveryMode, JMSConsumer, JMSContext, Message
from sievemq_broker import EmbeddedBroker

MESSAGES = 1_500
THREADS = 4
SELECTORS = (None, None, "color = 'red'", "number > 500", "color IN ('green','blue') AND number < 1000")


class Ledger:
    """Who saw which message how, and which are done. Shared by all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.done: list[int] = []
        self.over = threading.Event()

    def see(self, message: Message) -> int:
        """Note a delivery; the message's number."""
        number, count = message.get_int_property("number"), message.get_int_property("JMSXDeliveryCount")
        assert message.get_jms_redelivered() == (count > 1)
        with self.lock:
            self.seen[number].append(count)
        return number

    def finish(self, numbers: list[int]) -> None:
        """Note that the application is done with messages."""
        with self.lock:
            self.done += numbers
            if len(self.done) >= MESSAGES:
                self.over.set()


def play(url: str, seed: int, ledger: Ledger) -> None:
    """One application after another until all messages are done."""
    chance = random.Random(seed)
    factory = ConnectionFactory(url)
    while not ledger.over.is_set():
        if chance.random() < 0.3:
            listen(factory, chance, ledger)
            continue
        mode = chance.choice(
            [JMSContext.AUTO_ACKNOWLEDGE, JMSContext.CLIENT_ACKNOWLEDGE, JMSContext.SESSION_TRANSACTED]
        )
        with factory.create_context(mode) as context:
            consumer = context.create_consumer(context.create_queue("work"), chance.choice(SELECTORS))
            for _ in range(chance.randint(1, 4)):
                work(context, consumer, chance, ledger)


class Listener:
    """Handles messages, fails at some, and says when it has had enough."""

    def __init__(self, chance: random.Random, ledger: Ledger) -> None:
        self._chance, self._ledger = chance, ledger
        self._left = chance.randint(1, 80)
        self.enough = threading.Event()

    def on_message(self, message: Message) -> None:
        number = self._ledger.see(message)
        self._left -= 1
        if self._left <= 0:
            self.enough.set()
        if self._chance.random() < 0.05:
            raise ValueError("this one fails")
        self._ledger.finish([number])


def listen(factory: ConnectionFactory, chance: random.Random, ledger: Ledger) -> None:
    """An application with a message listener."""
    with factory.create_context() as context:
        listener = Listener(chance, ledger)
        consumer = context.create_consumer(context.create_queue("work"), chance.choice(SELECTORS))
        consumer.set_message_listener(listener)
        listener.enough.wait(0.05)


def work(context: JMSContext, consumer: JMSConsumer, chance: random.Random, ledger: Ledger) -> None:
    """Take a few messages and finish them, or give them back, or leave them in hand."""
    held: list[int] = []
    for _ in range(chance.randint(1, 60)):
        message = consumer.receive(20)
        if message is None:
            break
        number = ledger.see(message)
        if context.get_session_mode() == JMSContext.AUTO_ACKNOWLEDGE:
            ledger.finish([number])
        else:
            held.append(number)
    gives_back = chance.random() < 0.15
    if context.get_session_mode() == JMSContext.CLIENT_ACKNOWLEDGE:
        if gives_back:
            context.recover()
        else:
            context.acknowledge()
            ledger.finish(held)
    elif context.get_transacted():
        if gives_back:
            context.rollback()
        else:
            context.commit()
            ledger.finish(held)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Chance gives some message back again and again: none becomes a dead letter for that."""
    with EmbeddedBroker(settings={"destinations": {"work": {"max_attempts": 0}}}) as broker:
        yield broker


@pytest.mark.parametrize(
    "seed", [1, 2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_every_message_is_done_exactly_once(broker: EmbeddedBroker, context: JMSContext, seed: int) -> None:
    ledger = Ledger()
    threads = [
        threading.Thread(target=play, args=(broker.url, seed * 100 + number, ledger), daemon=True)
        for number in range(THREADS)
    ]
    for thread in threads[:2]:  # half of them are there before the messages
        thread.start()
    queue, chance = context.create_queue("work"), random.Random(seed)
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    for number in range(MESSAGES):
        producer.set_property("number", number).set_property("color", chance.choice(["red", "green", "blue"]))
        producer.send(queue, "")
    for thread in threads[2:]:
        thread.start()
    finished = ledger.over.wait(240)
    ledger.over.set()
    for thread in threads:
        thread.join(240)

    assert finished, f"{MESSAGES - len(ledger.done)} messages were not done"
    assert sorted(ledger.done) == list(range(MESSAGES))
    for number, counts in ledger.seen.items():
        # Threads note what they saw in their own time, so the order is not the broker's; the counts are.
        assert sorted(counts) == list(range(1, len(counts) + 1)), f"message {number} was seen with counts {counts}"
    assert context.create_consumer(queue).receive_no_wait() is None
    assert context.create_consumer(context.create_queue("DLQ.work")).receive_no_wait() is None
