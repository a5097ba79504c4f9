"""The memory that all messages take, and what happens at the limit: producers wait, nothing is dropped.

Queues know what they hold, and for what consumers hold an estimate will do. This adds it up a few times a second. At
the limit the broker holds back confirms, so that every producer stops once its window of unconfirmed sends is used;
below RESUME of it they go on. Between two looks the limit may be passed by what all windows allow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sievemq_broker import logs
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.queue import Queue

__all__ = ["OVERHEAD_BYTES", "RESUME", "SHARE", "Memory", "machine_limit"]

#: What a message takes beside its packed bytes: an entry, an envelope, its places in a view. Measured: 160 to 380.
OVERHEAD_BYTES = 256

#: Producers go on when this share of the limit is reached from above.
RESUME = 0.9

#: Share of the machine's (or container's) memory that messages may take unless a limit is set. The rest is for
#: connections, for what the allocator cannot give back, and for everybody else.
SHARE = 0.6

#: The longest share of the time that adding up may take; with very many queues it is done less often.
_COST = 0.02

log = logs.get("server")


class Memory:
    """Adds up and holds back.

    Args:
        limit: bytes; 0 for none.
        queues: gives every queue of the broker.
        flow: makes the broker hold back confirms for a reason, or with None go on.
        held: bytes that are held for others than consumers: by taps, and staged for a publisher.
        clock: seconds, for how long adding up takes.
    """

    __slots__ = ("_clock", "_flow", "_held", "_next", "_queues", "blocked", "bytes", "limit")

    def __init__(
        self,
        limit: int,
        queues: Callable[[], Iterable[Queue]],
        flow: Callable[[str | None], None],
        held: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.limit = limit
        self.bytes = 0
        self.blocked = False
        self._queues = queues
        self._flow = flow
        self._held = held
        self._clock = clock
        self._next = 0.0

    def measure(self) -> int:
        """Bytes that all messages take now."""
        total = self._held()
        for queue in self._queues():
            total += queue.bytes + OVERHEAD_BYTES * (queue.depth + len(queue.scheduled))
            for consumer in queue.consumers:
                if consumer.window:
                    total += _held_bytes(consumer)
            for consumer in queue.holders:
                total += _held_bytes(consumer)
        self.bytes = total
        return total

    def look(self) -> None:
        """Measure, unless that was done lately enough, and hold back or go on."""
        if not self.limit:
            return
        begin = self._clock()
        if begin < self._next:
            return
        total = self.measure()
        self._next = begin + (self._clock() - begin) / _COST
        if not self.blocked and total >= self.limit:
            self.blocked = True
            log.warning("memory.limit_reached", bytes=total, limit=self.limit, note="producers wait")
            self._flow(f"messages take {total} bytes; the broker's limit is {self.limit} (max_memory_bytes)")
        elif self.blocked and total < self.limit * RESUME:
            self.blocked = False
            log.info("memory.below_limit", bytes=total, limit=self.limit)
            self._flow(None)


def _held_bytes(consumer: Consumer) -> int:
    """What a consumer has been given and not acknowledged, by the size of a few of them: nobody adds that up."""
    window = consumer.window
    last = len(window) - 1
    sizes = [
        len(entry.envelope.packed)
        for index in {0, last // 3, 2 * last // 3, last}
        if index >= 0 and (entry := window[index]) is not None
    ]
    if not sizes:
        return OVERHEAD_BYTES * consumer.unacknowledged
    return consumer.unacknowledged * (sum(sizes) // len(sizes) + OVERHEAD_BYTES)


def machine_limit(root: Path = Path("/")) -> int:
    """Bytes that this process may use: the container's limit or the machine's memory; 0 if neither can be told."""
    found: list[int] = []
    for file in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = (root / file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():  # "max" where there is none
            found.append(int(text))
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        pass
    return min(found, default=0)
