"""The memory that all messages take, and the limit: at it producers wait, and nothing is dropped.

Queues have exact sums; for the messages that consumers hold an estimate is enough. This module adds them up a few times
a second. A sum at each send would cost every message. So far from the limit only the bytes read from sockets are
counted: no message takes more than AMPLIFIED times its bytes, for each of its receivers. Before that could pass the
limit the sum is computed again, and near the limit each send is counted (`domain/admission.py`). Below RESUME of the
limit producers continue."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sievemq_broker import logs
from sievemq_broker.domain.admission import MESSAGE_BYTES, UNLIMITED, Gate, Overfull
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import TURN, Budget, Task, finish
from sievemq_broker.server.net.large_frames import share_of
from sievemq_broker.server.net.link import Links
from sievemq_broker.server.watch.counts import held_bytes, queues_at
from sievemq_broker.server.watch.rounds import Round
from sievemq_core.errors import ErrorCode, RequestError

#: Producers continue when this share of the limit is reached from above.
RESUME = 0.9

#: The share of the machine's (or container's) memory that messages may take unless a limit is set. The rest is for
#: connections, for memory that the allocator cannot return, and for other programs.
SHARE = 0.6

#: Units. If summing up takes more, it is not repeated for the last bit of room, a LAST_PARTth of the limit.
COSTLY: Final = 50
LAST_PART: Final = 64

#: The smallest SEND has 30 bytes, and its message takes 24 and MESSAGE_BYTES.
AMPLIFIED: Final = 10

#: Copies of a message that are allowed for. A topic with more subscriptions may exceed the limit by what is read at
#: once.
_MOST_COPIES: Final = 1_000

#: The most that is read from a socket at once.
_READ: Final = 256 * 1024

#: Bytes that may be read before the next sum; if that were fewer, each send is counted.
_NEAR: Final = 512 * 1024

log = logs.get("server")


class MemoryLimit:
    """Sums up the memory of all messages, and blocks senders at the limit.

    Args:
        limit: bytes; 0 for none.
        flow: informs all clients that senders wait, for a reason, or with None that they continue.
        soon: calls something when what is at work is done.
        clock: seconds.

    Attributes:
        bytes: what there was at the last look: messages, and the input and output of connections.
        input: of these what connections have received that is no message yet.
        blocked: senders wait.
    """

    __slots__ = (
        "_broker", "_clock", "_copies", "_flow", "_gate", "_links", "_measured", "_round", "_soon", "_staged", "_units",
        "_unsure", "blocked", "bytes", "input", "limit",
    )  # fmt: skip

    def __init__(
        self,
        limit: int,
        broker: Broker,
        links: Links,
        flow: Callable[[str | None], None],
        soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.limit = limit
        self.bytes = 0
        self.blocked = False
        self._broker = broker
        self._links = links
        self._flow = flow
        self._soon = soon
        self._clock = clock
        self._round = Round(broker.scheduler, self._sum_up, clock)
        #: The most places in which a message is kept.
        self._copies = 1
        #: Units that the last sum took, and how many were computed in one go.
        self._units = self._measured = 0
        #: Senders wait until it is known whether there is room.
        self._unsure = False
        self._gate = Gate(self._enter)
        self.input = 0
        #: The part of that in open transactions.
        self._staged = 0
        if limit:
            links.limit_memory(share_of(limit), self._used_up)
            self._measure_room()

    def use(self, limit: int) -> None:
        """Have another limit from now on: bytes; 0 for none. Senders that wait ask again."""
        self.limit = limit
        self._measured += 1  # a sum under way was begun for the limit before
        self._links.limit_memory(share_of(limit) if limit else 0, self._used_up)
        if limit:
            self._count(0)
        else:
            self._release()
        if self.blocked:
            self.blocked = False
            self._announce(None)
        self._round.soon()

    def measure(self) -> int:
        """Bytes that all messages take now, with what was received of incomplete ones."""
        finish(self.add_up, 0)
        return self.bytes

    def add_up(self, now: int, budget: Budget) -> Task[None]:
        """Sum up :attr:`bytes`."""
        total = units = 0
        copies = 1
        for space in tuple(self._broker.namespaces.values()):
            taps = len(space.taps)
            for destination in tuple(space.destinations.values()):
                if isinstance(destination, Topic):  # it may have no subscriptions
                    if budget.spent:
                        yield
                    budget.spend(1)
                    units += 1
                queues = queues_at(destination)
                copies = max(copies, len(queues) + taps)
                for queue in queues:
                    if budget.spent:
                        yield
                    budget.spend(1)
                    total += queue.bytes + MESSAGE_BYTES * (queue.depth + len(queue.scheduled))
                    holders = [consumer for consumer in queue.consumers if consumer.window]
                    holders += queue.holders
                    units += 1 + len(holders)
                    for consumer in holders:
                        if budget.spent:
                            yield
                        budget.spend(1)
                        total += _held_bytes(consumer)
        input_bytes = output = staged = 0
        for link in tuple(self._links.open):
            if budget.spent:
                yield
            budget.spend(1)
            units += 1
            input_bytes += link.input_bytes
            output += link.output_bytes
            staged += link.connection.peer.staged.used
        self.input, self._staged = input_bytes, staged
        self.bytes = total + held_bytes(self._broker) + input_bytes + output
        self._copies = min(copies, _MOST_COPIES)
        self._units = units

    @property
    def _in_slices(self) -> bool:
        """True if summing up takes several turns."""
        return self._units > TURN

    def look(self) -> None:
        """Sum up, unless that was done recently, and block or release senders. With very many queues it takes several
        turns."""
        if self.limit:
            self._round.look()

    def _sum_up(self, now: int, budget: Budget) -> Task[int]:
        """Sum up, and block or release senders. Returns the units that it took."""
        units = 0
        while True:
            bytes_in, gate, left, measured = self._links.bytes_in, self._broker.gate, self._gate.bytes, self._measured
            yield from self.add_up(now, budget)
            units += self._units
            if gate is self._broker.gate and measured == self._measured:
                room = self._room_since(bytes_in, 0 if gate is None else left - gate.bytes)
                break
            if not self._in_slices:
                room = self._measure_room()
                break
            # Otherwise sends are counted only since the middle of the sum.
        self._look(room)
        return units

    def _look(self, room: int) -> None:
        if not self.blocked:
            if room <= 0 and (self._in_slices or self._measure_room() <= 0):
                self._block()
            return
        over = self._broker.over
        wanted = 0 if over is None else self._broker.rooms.load_of_first(over)[1]
        unsure, self._unsure = self._unsure, False
        enough = room >= self.limit // LAST_PART if unsure else self.limit - room < self.limit * RESUME
        if enough and room >= wanted:
            self.blocked = False
            log.info("memory.below_limit", bytes=self.bytes, limit=self.limit)
            self._announce(None)

    def _measure_room(self) -> int:
        """Compute the room that is left, and how it is watched."""
        self.measure()
        self._measured += 1
        return self._room_since(self._links.bytes_in, 0)

    def _room_since(self, began: int, counted: int) -> int:
        """The same, once it is added up.

        Sends that wait for this limit are not part of what there is: they would keep themselves waiting. Nor is what
        transactions hold: their limit is another, and a COMMIT asks for room for it.

        Args:
            began: bytes that had been read when adding up began.
            counted: what the gate has let in since.
        """
        over = self._broker.over
        waiting = 0 if over is None else self._broker.rooms.kept_at(over)
        room = self.limit - self.bytes + waiting + self._staged - counted
        links = self._links
        if not self.limit:
            self._release()
            return UNLIMITED
        may_come = room // (AMPLIFIED * self._copies) - self.input - _READ
        if may_come >= (_NEAR if self._broker.gate is None else 2 * _NEAR):
            links.allow(began + may_come)
            self._broker.set_gate(None)
        else:
            self._count(room)
        return room

    def _release(self) -> None:
        """Count nothing any more."""
        self._links.allow()
        self._broker.set_gate(None)

    def _count(self, room: int) -> None:
        """Count each send from now on."""
        self._gate.allow(UNLIMITED, room)
        self._links.allow()
        if self._broker.gate is None:
            self._broker.set_gate(self._gate)

    def _used_up(self) -> None:
        """The bytes that could be read before the next sum have been read."""
        if self._in_slices or self._clock() < self._round.next:
            # Until the sum is known. The last one's room would do for this.
            self._count(AMPLIFIED * self._copies * _READ)
        self.look()
        if self._round.under_way and self._broker.gate is None:
            self._count(AMPLIFIED * self._copies * _READ)

    def _enter(self, messages: int, size: int) -> Overfull | None:
        """See :class:`~sievemq_broker.domain.admission.Gate`."""
        if size > self.limit:
            raise RequestError(
                f"all messages may take {self.limit} bytes here (max_memory_bytes) and this alone would take {size}; "
                "send less at a time, or raise max_memory_bytes of the broker",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "max_memory_bytes"},
            )
        if self._in_slices:  # too much to sum up now: senders wait until that is done
            self._unsure = True
            self._block()
            over = self._broker.over
            self._round.soon()
            return over
        room = self._measure_room()
        if size > room or (self._units > COSTLY and room < self.limit // LAST_PART):
            self._block()
            return self._broker.over
        self._gate.count(messages, size)
        return None

    def _block(self) -> None:
        self.blocked = True
        log.warning("memory.limit_reached", bytes=self.bytes, limit=self.limit, note="producers wait")
        self._announce(f"messages take {self.bytes} bytes; the broker's limit is {self.limit} (max_memory_bytes)")

    def _announce(self, text: str | None) -> None:
        # A send may be in progress: no FLOW to its connection in the middle of that.
        self._broker.set_over(text)
        self._soon(self._send_flow)

    def _send_flow(self) -> None:
        over = self._broker.over
        self._flow(None if over is None else over.limit_text)


def _held_bytes(consumer: Consumer) -> int:
    """The size of a consumer's unacknowledged messages, estimated from a few of them: there is no sum."""
    window = consumer.window  # it may be empty by now
    last = len(window) - 1
    places = {0, last // 3, 2 * last // 3, last} if window else ()
    sizes = [len(entry.envelope.packed) for place in places if (entry := window[place]) is not None]
    if not sizes:
        return MESSAGE_BYTES * consumer.unacknowledged
    return consumer.unacknowledged * (sum(sizes) // len(sizes) + MESSAGE_BYTES)


def memory_limit(limit: int | None) -> int:
    """Bytes that all messages may take; 0 for no limit.

    Args:
        limit: as set; None for a share of the machine's or container's memory.
    """
    return int(machine_limit() * SHARE) if limit is None else limit


def machine_limit(root: Path = Path("/")) -> int:
    """Bytes that this process may use: the container's limit or the machine's memory; 0 if neither is known."""
    found: list[int] = []
    for file in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = (root / file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():  # "max" if there is none
            found.append(int(text))
    if sys.platform != "win32":
        with contextlib.suppress(ValueError, OSError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=0)
