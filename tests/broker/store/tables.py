"""How large the tables of a shard get while messages pass through, beside the bytes of those that wait.

    python -m tests.broker.store.tables --minutes 10 --rate 10

PERSISTENT messages of 8 KiB are sent at a rate, and each is received once half a second's worth of them waits. The
tables must stay below twelve times the bytes that wait: the owner vacuums what was deleted.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.postgres import Database, Server

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker

from .kill import exit_at_sigterm

SIZE = 8 * 1024
#: Messages of a transaction.
TOGETHER = 32
MIB = 1024 * 1024
#: The most that the tables may be, in bytes that wait.
MOST = 12
#: Seconds between two looks.
STEP = 5.0
_BYTES = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'sievemq' AND c.relkind = 'r'"
)


@dataclass
class Figures:
    """What was measured: bytes that passed through, that wait, and of the tables at most; and for how long."""

    passed: int = 0
    waiting: int = 0
    tables: int = 0
    seconds: float = 0.0

    @property
    def ratio(self) -> float:
        return self.tables / self.waiting


def flow(
    database: Database, megabytes: float, rate: float, waiting: float, say: Callable[[str], None] = lambda text: None
) -> Figures:
    """Let messages pass through.

    Args:
        megabytes: in all, in MiB.
        rate: MiB a second, at most.
        waiting: MiB that wait at each time.
        say: called with the figures so far.
    """
    shard, figures, over = database.shard(), Figures(waiting=round(waiting * MIB)), threading.Event()
    with (
        EmbeddedBroker(store=database.url, settings={"shard": shard}) as broker,
        ConnectionFactory(broker.url).create_context(JMSContext.SESSION_TRANSACTED) as sending,
        ConnectionFactory(broker.url).create_context(JMSContext.SESSION_TRANSACTED) as receiving,
    ):
        queue = sending.create_queue("q")
        producer, consumer = sending.create_producer(), receiving.create_consumer(queue)
        body, sent, received = bytes(SIZE), 0, 0
        begin = looked = time.monotonic()
        while sent * SIZE < megabytes * MIB:
            for _ in range(TOGETHER):
                producer.send(queue, body)
            sending.commit()
            sent += TOGETHER
            if (sent - received) * SIZE > figures.waiting:
                for _ in range(TOGETHER):
                    assert consumer.receive(60_000) is not None
                receiving.commit()
                received += TOGETHER
            over.wait(max(0.0, begin + sent * SIZE / (rate * MIB) - time.monotonic()))
            now = time.monotonic()
            if now >= looked + STEP or sent * SIZE >= megabytes * MIB:
                looked = now
                figures.passed, figures.seconds = sent * SIZE, now - begin
                figures.tables = max(figures.tables, int(database.execute(_BYTES)[0][0]))
                say(
                    f"{figures.seconds:5.0f} s, {figures.passed / MIB:6.0f} MiB passed, at most "
                    f"{figures.tables / MIB:4.0f} MiB of tables, {figures.ratio:4.1f} times what waits"
                )
    return figures


def main() -> int:
    """Let messages pass through for so long; 1 if the tables get too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="at this rate; a slower machine takes longer")
    parser.add_argument("--rate", type=float, default=10.0, help="MiB a second, at most")
    arguments = parser.parse_args()
    exit_at_sigterm()
    server = Server()
    try:
        server.start()
        figures = flow(
            Database(server),
            arguments.minutes * 60 * arguments.rate,
            arguments.rate,
            arguments.rate / 2,
            lambda text: print(text, flush=True),
        )
    finally:
        server.close()
    rate = figures.passed / MIB / figures.seconds
    print(f"{rate:.1f} MiB/s; the tables took at most {figures.ratio:.1f} times the bytes that waited (limit {MOST})")
    return int(figures.ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
