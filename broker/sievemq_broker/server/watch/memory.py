"""The memory that all messages take, and the limit: at it producers wait, and nothing is dropped.

Queues have exact sums; for the messages that consumers hold an estimate is enough. This module adds them up a few times
a second. A sum at each send would cost every message. So far from the limit only the bytes read from sockets are
counted: no message takes more than AMPLIFIED times its bytes, for each of its receivers. Before that could pass the
limit the sum is computed again, and near the limit each send is counted (`domain/admission.py`). Below RESUME of the
limit producers continue."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sievemq_broker import logs
from sievemq_broker.domain.admission import MESSAGE_BYTES, UNLIMITED, Gate, Overfull
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.net.large_frames import share_of
from sievemq_broker.server.net.link import Links
from sievemq_broker.server.watch.counts import held_bytes, queues_of
from sievemq_core.errors import ErrorCode, RequestError

#: Producers continue when this share of the limit is reached from above.
RESUME = 0.9

#: The share of the machine's (or container's) memory that messages may take unless a limit is set. The rest is for
#: connections, for memory that the allocator cannot return, and for other programs.
SHARE = 0.6

#: The longest share of the time that sums of queues, or of full namespaces, may take; with many it is done less often.
COST = 0.02

#: Seconds. If summing up takes longer, it is not repeated for the last bit of room, a LAST_PARTth of the limit.
COSTLY: Final = 0.0001
LAST_PART: Final = 64

#: The smallest SEND has 30 bytes, and its message takes 24 and MESSAGE_BYTES.
AMPLIFIED: Final = 10

#: Queues and consumers summed up in one tick: two or three milliseconds.
SUMMED_AT_ONCE: Final = 1_500

#: Copies of a message that are allowed for. A topic with more subscriptions may exceed the limit by what is read at
#: once.
_MOST_COPIES: Final = 1_000

#: The most that is read from a socket at once.
_READ: Final = 256 * 1024

#: Bytes that may be read before the next sum; if that were fewer, each send is counted.
_NEAR: Final = 512 * 1024

log = logs.get("server")


class Memory:
    """Sums up the memory of all messages, and blocks senders at the limit.

    Args:
        limit: bytes; 0 for none.
        flow: informs all clients that senders wait, for a reason, or with None that they continue.
        soon: calls something when what is at work is done.
        clock: seconds, for how long adding up takes.

    Attributes:
        bytes: what there was at the last look: messages, and the input and output of connections.
        input: of these what connections have received that is no message yet.
        blocked: senders wait.
    """

    __slots__ = (
        "_broker", "_clock", "_copies", "_flow", "_gate", "_going_on", "_in_slices", "_links", "_next", "_round",
        "_round_began", "_round_took", "_soon", "_staged", "_unsure", "blocked", "bytes", "input", "limit",
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
        self._next = 0.0
        #: Computes the sum over several ticks; the bytes read before it began, the gate, and what that would have let
        #: in; seconds that it took so far.
        self._round: Iterator[None] | None = None
        self._round_began: tuple[int, Gate | None, int] = 0, None, 0
        self._round_took = 0.0
        self._copies = 1
        #: Summing up took several ticks the last time.
        self._in_slices = False
        #: The next slice is due in the next turn.
        self._going_on = False
        #: Senders wait until it is known whether there is room.
        self._unsure = False
        self._gate = Gate(self._enter)
        self.input = 0
        #: The part of that in open transactions.
        self._staged = 0
        if limit:
            links.limit_memory(share_of(limit), self._used_up)
            self._measure_room()

    def measure(self) -> int:
        """Bytes that all messages take now, with what was received of incomplete ones."""
        for _ in self.add_up():
            pass
        return self.bytes

    def add_up(self) -> Iterator[None]:
        """Sum up :attr:`bytes`; yields when a tick has done enough."""
        in_slices = False
        broker, links = self._broker, self._links.open
        total, left = 0, SUMMED_AT_ONCE
        for queue in tuple(queues_of(broker)):  # queues may be created or deleted between two ticks
            total += queue.bytes + MESSAGE_BYTES * (queue.depth + len(queue.scheduled))
            left -= 1
            for consumer in queue.consumers:
                if consumer.window:
                    total += _held_bytes(consumer)
                    left -= 1
            for consumer in queue.holders:
                total += _held_bytes(consumer)
                left -= 1
            if left <= 0:
                in_slices = True
                yield
                left = SUMMED_AT_ONCE
        input_bytes = output = staged = 0
        for link in tuple(links):
            input_bytes += link.input_bytes
            output += link.output_bytes
            staged += link.connection.peer.staged.used
            left -= 1
            if left <= 0:
                in_slices = True
                yield
                left = SUMMED_AT_ONCE
        self.input, self._staged = input_bytes, staged
        self.bytes = total + held_bytes(broker) + input_bytes + output
        self._in_slices = in_slices

    def look(self) -> None:
        """Sum up, unless that was done recently, and block or release senders. With very many queues it takes several
        calls."""
        if not self.limit:
            return
        begin = self._clock()
        if self._round is None:
            if begin < self._next:
                return
            self._round, self._round_took = self.add_up(), 0.0
            self._round_began = self._links.bytes_in, self._broker.gate, self._gate.bytes
        for _ in self._round:
            self._round_took += self._clock() - begin
            if self._unsure or self._broker.gate is not None:
                self._look_soon()  # senders wait for the sum, or each send is counted: a slice in each turn
            return
        self._round = None
        bytes_in, gate, left = self._round_began
        if gate is self._broker.gate:
            room = self._room_since(bytes_in, 0 if gate is None else left - gate.bytes)
        elif self._in_slices:  # sends are counted only since the middle of the sum
            self._next = 0.0
            self._look_soon()
            return
        else:
            room = self._measure_room()
        self._look(room)
        self._next = begin + (self._round_took + self._clock() - begin) / COST

    def _look_soon(self) -> None:
        if not self._going_on:
            self._going_on = True
            self._soon(self._go_on)

    def _go_on(self) -> None:
        self._going_on = False
        self.look()

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
        self._round = None
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
        self._copies = min(_most_copies(self._broker), _MOST_COPIES)
        may_come = room // (AMPLIFIED * self._copies) - self.input - _READ
        if may_come >= (_NEAR if self._broker.gate is None else 2 * _NEAR):
            links.allow(began + may_come)
            self._broker.set_gate(None)
        else:
            self._count(room)
        return room

    def _count(self, room: int) -> None:
        """Count each send from now on."""
        self._gate.allow(UNLIMITED, room)
        self._links.allow()
        if self._broker.gate is None:
            self._broker.set_gate(self._gate)

    def _used_up(self) -> None:
        """The bytes that could be read before the next sum have been read."""
        if (
            self._in_slices or self._clock() < self._next
        ):  # until the sum is known; the last one's room would do for this
            self._count(AMPLIFIED * self._copies * _READ)
        self.look()
        if self._round is not None and self._broker.gate is None:
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
            self._next, self._unsure = 0.0, True
            self._block()
            over = self._broker.over
            self._look_soon()
            return over
        begin = self._clock()
        room = self._measure_room()
        if size > room or (self._clock() - begin > COSTLY and room < self.limit // LAST_PART):
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


def _most_copies(broker: Broker) -> int:
    """The most places in which a message is kept."""
    most = 1
    for space in broker.namespaces.values():
        taps = len(space.taps)
        most = max(most, 1 + taps)
        for destination in space.destinations.values():
            if isinstance(destination, Topic):
                most = max(most, len(destination.subscriptions) + taps)
    return most


def _held_bytes(consumer: Consumer) -> int:
    """The size of a consumer's unacknowledged messages, estimated from a few of them: there is no sum."""
    window = consumer.window
    last = len(window) - 1
    sizes = [
        len(entry.envelope.packed)
        for index in {0, last // 3, 2 * last // 3, last}
        if index >= 0 and (entry := window[index]) is not None
    ]
    if not sizes:
        return MESSAGE_BYTES * consumer.unacknowledged
    return consumer.unacknowledged * (sum(sizes) // len(sizes) + MESSAGE_BYTES)


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
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        pass
    return min(found, default=0)
