"""The network fails again and again under producers and consumers: what was accepted is not lost, and nothing that an
application may have seen comes again without the mark."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from sievemq import ConnectionFactory, JMSContext, JMSRuntimeException, Message
from sievemq_broker import EmbeddedBroker

MESSAGES = 600
CUT_EVERY = 60


class Ledger:
    """What became of each message, as far as the applications know. Shared by all threads."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.lock = threading.Lock()
        self.accepted: set[int] = set()  # send() returned
        self.done: dict[int, int] = {}  # acknowledge() returned, for the delivery of this count
        self.unsure: set[int] = set()  # acknowledge() failed: the broker may have heard of it or not
        self.unmarked: Counter[int] = Counter()
        self.latest: Counter[int] = Counter()  # the highest count with which a message was seen
        self.sightings = 0
        self.all_sent = threading.Event()

    def see(self, message: Message) -> tuple[int, int]:
        """Note a delivery, its number and count; now and then the network fails at this very moment."""
        number, count = message.get_int_property("number"), message.get_int_property("JMSXDeliveryCount")
        with self.lock:
            self.sightings += 1
            cut = self.sightings % CUT_EVERY == 0 and self.sightings < 20 * CUT_EVERY
            self.latest[number] = max(self.latest[number], count)
            if not message.get_jms_redelivered():
                self.unmarked[number] += 1
        if cut:
            self.broker.drop_connections()
        return number, count


def produce(factory: ConnectionFactory, ledger: Ledger) -> None:
    """Send every number once; one whose send fails may have arrived or not."""
    numbers = iter(range(MESSAGES))
    number: int | None = next(numbers)
    while number is not None:
        try:
            with factory.create_context() as context:
                queue, producer = context.create_queue("work"), context.create_producer()
                while number is not None:
                    sending, number = number, next(numbers, None)
                    producer.set_property("number", sending).send(queue, "")
                    with ledger.lock:
                        ledger.accepted.add(sending)
        except JMSRuntimeException:
            continue
    ledger.all_sent.set()


def consume(factory: ConnectionFactory, ledger: Ledger, chance: random.Random) -> None:
    """Receive and acknowledge in small groups until nothing is left."""
    while True:
        held: list[tuple[int, int]] = []
        over = ledger.all_sent.is_set()
        try:
            with factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
                consumer = context.create_consumer(context.create_queue("work"))
                while (message := consumer.receive(50) or consumer.receive_no_wait()) is not None:
                    held.append(ledger.see(message))
                    if len(held) >= chance.randint(1, 20):
                        acknowledge(context, held, ledger)
                acknowledge(context, held, ledger)
            if over:
                return
        except JMSRuntimeException:
            continue  # what was held comes again, marked


def acknowledge(context: JMSContext, held: list[tuple[int, int]], ledger: Ledger) -> None:
    """Acknowledge what is held, and note whether that is certain."""
    counts = dict(held)
    held.clear()
    try:
        context.acknowledge()
    except JMSRuntimeException:
        with ledger.lock:
            ledger.unsure.update(counts)
        raise
    with ledger.lock:
        ledger.done.update(counts)


@pytest.mark.parametrize("seed", [1, 2])
def test_accepted_messages_survive_a_failing_network(broker: EmbeddedBroker, seed: int) -> None:
    ledger = Ledger(broker)
    factory = ConnectionFactory(f"{broker.url}?reconnect=0")
    threads = [threading.Thread(target=produce, args=(factory, ledger), daemon=True)]
    threads += [
        threading.Thread(target=consume, args=(factory, ledger, random.Random(seed * 10 + n)), daemon=True)
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads)

    # What was cut off too often has become a dead letter: not lost either.
    dead: set[int] = set()
    with ConnectionFactory(broker.url).create_context() as context:
        assert context.create_consumer(context.create_queue("work")).receive_no_wait() is None
        letters = context.create_consumer(context.create_queue("DLQ.work"))
        while (message := letters.receive_no_wait()) is not None:
            dead.add(message.get_int_property("number"))
    assert ledger.sightings > CUT_EVERY
    assert not ledger.accepted - ledger.done.keys() - ledger.unsure - dead
    # A thread may look late at what its lost connection had brought; a delivery after the acknowledgement counts on.
    assert not [number for number, count in ledger.done.items() if ledger.latest[number] > count]
    assert max(ledger.unmarked.values()) == 1
