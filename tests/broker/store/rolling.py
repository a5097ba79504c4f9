"""A rolling upgrade under load: the four processes of a cluster end one by one (SIGTERM), and are started again with
the next version. Clients of the SDK in three namespaces send, receive, relay in transactions and answer requests. They
see no error, and each message arrives, and not twice without its mark.

    python -m tests.broker.store.rolling --rounds 3 --seed 7

The first round is the upgrade: the tables are migrated before it. The second is a step back, and so on. A version is a
number that a broker compares with that of the tables; what it stores is the same.

A transaction that is open when its connection is lost is rolled back, as docs/reconnection.md says: that is counted,
and is no error. Everything else that the SDK raises or reports is one.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.postgres import Database, Server

from sievemq import ConnectionFactory, DeliveryMode, JMSContext, JMSException, TransactionRolledBackRuntimeException

from .cluster import NAMESPACES, Cluster
from .kill import exit_at_sigterm, folder_for

#: Milliseconds: a client repairs its connection for so long; a receive waits for so long before it looks whether it is
#: over; a reply may take so long.
REPAIR, LOOK, REPLY = 120_000, 200, 60_000
#: Seconds within which everything that was sent arrives.
ARRIVAL = 60.0
OLD, NEW = 1, 2
LONG_LEASE = 10.0


class Watch:
    """What a client learns of its connection.

    Attributes:
        restored: how often it was repaired.
        errors: why it was given up.
    """

    def __init__(self) -> None:
        self.restored = 0
        self.errors: list[str] = []

    def on_exception(self, error: JMSException) -> None:
        self.errors.append(repr(error))

    def on_connection_lost(self, error: JMSException) -> None:
        pass

    def on_connection_restored(self) -> None:
        self.restored += 1


class Space:
    """The clients of a namespace, and their accounts.

    Attributes:
        sent, relayed: what was confirmed, in the queue of the consumer; in that of the relay.
        seen: how often each message has come unmarked.
        came: all that has come.
        replies, repeated: answers to requests, and to requests that had come again.
        rolled_back: transactions.
        waited: the longest time that a send has taken, in seconds.
        wrong: what must not be.
    """

    def __init__(self, name: str, url: str, over: threading.Event, drained: threading.Event) -> None:
        self.name = name
        self._factory = ConnectionFactory(f"{url}/{name}", reconnect=REPAIR)
        self._over, self._drained = over, drained
        self.sent: set[str] = set()
        self.relayed: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.came: set[str] = set()
        self.replies = self.repeated = self.rolled_back = 0
        self.waited = 0.0
        self.wrong: list[str] = []
        self.watches: list[Watch] = []
        parts = (self._send, self._send_to_relay, self._receive, self._relay, self._request, self._answer)
        self.threads = [threading.Thread(target=self._play, args=(part,), daemon=True) for part in parts]
        for thread in self.threads:
            thread.start()

    @property
    def arrived(self) -> bool:
        return self.sent <= self.came and {f"o~{name}" for name in self.relayed} <= self.came

    def _play(self, part: Callable[[JMSContext], None]) -> None:
        mode = JMSContext.SESSION_TRANSACTED if part == self._relay else JMSContext.AUTO_ACKNOWLEDGE
        watch = Watch()
        self.watches.append(watch)
        try:
            with self._factory.create_context(mode) as context:
                context.set_exception_listener(watch)
                part(context)
        except Exception as error:
            self.wrong.append(f"{self.name} {part.__name__}: {error!r}")
        self.wrong += [f"{self.name} {part.__name__}: {error}" for error in watch.errors]

    def _send_all(self, context: JMSContext, queue: str, names: set[str]) -> None:
        producer, number = context.create_producer(), 0
        while not self._over.is_set():
            number += 1
            name, begin = f"{self.name}.{queue}-{number}", time.monotonic()
            producer.send(context.create_queue(queue), name)
            self.waited = max(self.waited, time.monotonic() - begin)
            names.add(name)
            self._over.wait(0.01)

    def _send(self, context: JMSContext) -> None:
        self._send_all(context, "q", self.sent)

    def _send_to_relay(self, context: JMSContext) -> None:
        self._send_all(context, "in", self.relayed)

    def _receive(self, context: JMSContext) -> None:
        consumers = [context.create_consumer(context.create_queue(name)) for name in ("q", "out")]
        while not self._drained.is_set():
            for consumer in consumers:
                while (message := consumer.receive(LOOK)) is not None:
                    name = message.get_body(str)
                    self.came.add(name)
                    self.seen[name] += not message.get_jms_redelivered()

    def _relay(self, context: JMSContext) -> None:
        consumer, producer = context.create_consumer(context.create_queue("in")), context.create_producer()
        while not self._drained.is_set():
            message = consumer.receive(LOOK)
            if message is None:
                continue
            try:
                producer.send(context.create_queue("out"), f"o~{message.get_body(str)}")
                context.commit()
            except TransactionRolledBackRuntimeException:
                self.rolled_back += 1

    def _request(self, context: JMSContext) -> None:
        replies, requests = context.create_temporary_queue(), context.create_queue("requests")
        consumer = context.create_consumer(replies)
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT).set_jms_reply_to(replies)
        while not self._over.is_set():
            producer.send(requests, str(self.replies))
            while (reply := consumer.receive(REPLY)) is not None and int(reply.get_body(str)) < self.replies:
                self.repeated += 1  # a request that came again was answered again
            if reply is None:
                self.wrong.append(f"{self.name}: the request {self.replies} was not answered")
                return
            self.replies += 1
            self._over.wait(0.02)

    def _answer(self, context: JMSContext) -> None:
        consumer = context.create_consumer(context.create_queue("requests"))
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        while not self._drained.is_set():
            request = consumer.receive(LOOK)
            if request is not None:
                producer.send(request.get_jms_reply_to(), request.get_body(str))

    def check(self) -> list[str]:
        """What is wrong, once all has arrived."""
        found = list(self.wrong)
        found += [f"{name} was confirmed, and is lost" for name in sorted(self.sent - self.came)]
        lost = sorted(name for name in self.relayed if f"o~{name}" not in self.came)
        found += [f"{name} was confirmed, and was not relayed" for name in lost]
        found += [f"{name} came {number} times unmarked" for name, number in self.seen.items() if number > 1]
        return found


class Upgrade:
    """Rounds of restarts under load.

    Attributes:
        restarts: of processes.
        spaces: the clients.
    """

    def __init__(self, seed: int, database: Database, folder: Path) -> None:
        self.cluster = Cluster(seed, database, folder)
        for broker in self.cluster.brokers:  # one that has lost its lease hands nothing over
            broker.lease = LONG_LEASE
        self._database = database
        self._random = random.Random(seed)
        self.restarts = 0
        self.spaces: list[Space] = []

    def play(self, rounds: int) -> list[str]:
        """Returns what is wrong."""
        cluster, over, drained = self.cluster, threading.Event(), threading.Event()
        try:
            cluster.start()
            url = "sievemq://" + ",".join(f"{broker.host}:{broker.port}" for broker in cluster.brokers)
            self.spaces = [Space(name, url, over, drained) for name in NAMESPACES]
            for number in range(rounds):
                self._restart_all(NEW if number % 2 == 0 else OLD)
            over.set()
            cluster.until(lambda: all(space.arrived or space.wrong for space in self.spaces), "all arrives")
            drained.set()
            for space in self.spaces:
                for thread in space.threads:
                    thread.join(ARRIVAL)
                    if thread.is_alive():
                        space.wrong.append("a client hangs")
            cluster.stop()
            return cluster.accounts.faults + [fault for space in self.spaces for fault in space.check()]
        finally:
            over.set()
            drained.set()
            cluster.end()

    def _await_sends(self) -> None:
        """Return when each client that sends has been served."""
        before = [len(space.sent) for space in self.spaces]

        def are_served() -> bool:
            now = [len(space.sent) for space in self.spaces]
            return all(map(int.__lt__, before, now)) or any(space.wrong for space in self.spaces)

        self.cluster.until(are_served, "no client was served")

    def _restart_all(self, version: int) -> None:
        if version == NEW:
            self._database.execute("UPDATE sievemq.format SET version = %s", NEW)  # sievemq store migrate
        for broker in self._random.sample(self.cluster.brokers, len(self.cluster.brokers)):
            self._await_sends()
            broker.send(signal.SIGTERM)
            if code := broker.wait():
                self.cluster.accounts.faults.append(f"broker {broker.name} ended with {code} after SIGTERM")
            broker.version = version
            broker.start()
            self.cluster.until(broker.runs, f"{broker.name} did not start")
            self.cluster.settle()
            self.restarts += 1


def run(seed: int, folder: Path, rounds: int) -> tuple[list[str], Upgrade]:
    """A database, four processes, and rounds of restarts. Returns what is wrong."""
    with ExitStack() as stack:
        server = Server(max_connections="120")
        stack.callback(server.close)
        server.start()
        upgrade = Upgrade(seed, Database(server), folder)
        return upgrade.play(rounds), upgrade


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="each restarts all processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    exit_at_sigterm()
    with folder_for("rolling") as folder:
        wrong, upgrade = run(arguments.seed, folder, arguments.rounds)
        assert not wrong, f"seed {arguments.seed}: " + "\n".join(wrong[:50])
    spaces = upgrade.spaces
    sent = sum(len(space.sent) + len(space.relayed) for space in spaces)
    print(
        f"seed {arguments.seed}: {upgrade.restarts} restarts, {sent} messages sent and received, none twice unmarked, "
        f"{sum(space.replies for space in spaces)} requests answered, "
        f"{sum(watch.restored for space in spaces for watch in space.watches)} repaired connections, "
        f"{sum(space.rolled_back for space in spaces)} transactions rolled back by a loss, "
        f"longest send {max(space.waited for space in spaces):.2f} s, no error"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
