"""One consumer: its credit, and the window of messages delivered to it and not acknowledged."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import islice
from typing import Protocol, TypeAlias

from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.ports import DeliveryPort
from sievemq_broker.domain.steps import Meter, Steps, finish
from sievemq_broker.domain.view import View
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_CREDIT

__all__ = ["Consumer", "Held", "Outcome", "Source"]

Held: TypeAlias = tuple[int, Entry, int]
"""What a consumer held: tag, message, and its count once it has come back."""


class Outcome(IntEnum):
    """What becomes of a message that a client settles by itself."""

    ACKNOWLEDGED = 0
    FAILED = 1
    """The attempt failed: it comes again, marked, or becomes a dead letter after too many attempts."""
    REJECTED = 2
    """It becomes a dead letter, whatever the attempts."""


class Source(Protocol):
    """Where the messages of a consumer come from and go back to: a queue."""

    place: Place
    policy: DestinationPolicy
    paused: bool

    @property
    def depth(self) -> int:
        """Messages that wait."""

    def matched(self, view: View) -> tuple[int, int]:
        """How many messages the selector of a view has matched since it came into use, and of how many."""

    @property
    def enqueued(self) -> int:
        """Messages accepted so far."""

    def serve(self, consumer: Consumer, now: int) -> None:
        """Deliver what waits: the consumer may have credit."""

    def resume(self, consumer: Consumer, now: int) -> None:
        """The same where its port was not writable."""

    def want(self, consumer: Consumer, now: int, patient: bool, brief: bool) -> bool:
        """See :meth:`Consumer.want`."""

    def count_from(self, tag: int) -> None:
        """The deliveries up to this tag were not made here."""

    def settle(self, consumer: Consumer, entries: list[Entry], now: int, granted: bool) -> None:
        """The consumer has acknowledged these, and may have been granted credit with it."""

    def take_back(
        self, unmarked: list[Entry], now: int, marked: list[Entry], suspects: int | None, reject: bool = False
    ) -> None:
        """Messages come back: unseen, and perhaps seen."""

    def taken_back(self, consumer: Consumer, tags: Sequence[int] | None, now: int) -> None:
        """The consumer has given back these, or everything."""

    @property
    def effort(self) -> int:
        """What it takes to take a message back, in messages that no selector is asked about."""

    def burial(self, entry: Entry, reject: bool) -> int:
        """What it takes besides if the message comes back marked, since it becomes a dead letter then; 0 if not."""

    def hold(self) -> None:
        """Deliver nothing until :meth:`release`."""

    def release(self, now: int) -> None:
        """Deliver again."""

    def unmark(self, entries: list[tuple[Entry, int]], now: int) -> None:
        """Messages came back marked, and it turns out that no application has seen them (D-32)."""

    def settle_returned(self, entries: list[tuple[Entry, int]]) -> None:
        """Messages came back, and it turns out that they had been acknowledged."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """The consumer is served no more; what it holds stays with it."""

    def part_with(self, consumer: Consumer, now: int) -> None:
        """A removed consumer has given back what it had to."""


class Consumer:
    """Gets messages of one queue or subscription, through the view that its selector shares.

    Args:
        consumer_id: chosen by the client, passed to the port.
        port: where deliveries go.
        source: where messages come from.
        view: what it sees of them.

    Attributes:
        id, port, source, view: as above.
        credit: messages that may still be delivered to it.
        tag: tag of the last delivery; so also how many there were.
        base: everything up to this tag is settled; the window begins with the next.
        window: what is delivered and not acknowledged, by tag; None where a message was given back.
        handed: up to this tag the application is known to have the messages; not worth recalling.
        waiting: it asked for a message (WANT) and has got none since: it goes before those that only prefetch.
        open: False once closed; it may still hold messages for its session (MCO-09).
        newest: highest sequence of a message delivered to it.
        turn: deliveries of its queue up to its last one: the consumer served longest ago has the lowest.
        acknowledged: messages it acknowledged.
    """

    __slots__ = (
        "_holes",
        "acknowledged",
        "base",
        "credit",
        "handed",
        "id",
        "newest",
        "open",
        "port",
        "source",
        "tag",
        "turn",
        "view",
        "waiting",
        "window",
    )

    def __init__(self, consumer_id: int, port: DeliveryPort, source: Source, view: View) -> None:
        self.id = consumer_id
        self.port = port
        self.source = source
        self.view = view
        self.credit = 0
        self.tag = 0
        self.base = 0
        self.window: deque[Entry | None] = deque()
        self._holes = 0
        self.handed = 0
        self.waiting = False
        self.open = True
        self.newest = 0
        self.turn = 0
        self.acknowledged = 0

    def __repr__(self) -> str:
        return f"<Consumer {self.id} of {self.source.place.label} credit={self.credit} holds={self.unacknowledged}>"

    @property
    def selector(self) -> str | None:
        """Its selector as text, None for none."""
        condition = self.view.condition
        return None if condition is None else condition.text

    @property
    def unacknowledged(self) -> int:
        """Messages delivered and neither acknowledged nor given back."""
        return len(self.window) - self._holes

    def can_take(self) -> bool:
        """True if a message could be delivered now."""
        return self.credit > 0 and self.port.writable

    def go_on_behind(self, tag: int) -> None:
        """Number deliveries from `tag` + 1 on: the client has a past with this consumer, on a connection that is gone,
        and what it says of older tags means nothing any more. Before the first delivery."""
        self.tag = self.base = self.handed = tag
        self.source.count_from(tag)

    def note_handed(self, tag: int) -> None:
        """The application has what was delivered up to this tag."""
        if tag > self.handed:
            self.handed = tag

    # -- delivering -----------------------------------------------------------------------------------------------

    def deliver(self, entries: list[Entry], turn: int) -> int:
        """Deliver messages, as far as the port takes them. This is the only place where a delivery is written.

        Args:
            entries: one at least, as many as there is credit at most; several only if none was delivered before.
            turn: deliveries of the queue so far.

        Returns:
            How many that were: one at least.
        """
        tag, window = self.tag + 1, self.window
        if len(entries) == 1:
            taken = 1
            entry = entries[0]
            window.append(entry)
            self.tag = tag
            self.credit -= 1
            self.waiting = False
            self.turn = turn + 1
            if entry.sequence > self.newest:
                self.newest = entry.sequence
            self.port.deliver(self.id, tag, entry.count + 1, entry.envelope.packed)
            return taken
        taken = 0
        window += entries
        try:
            taken = self.port.deliver_row(self.id, tag, [entry.envelope.packed for entry in entries])
        finally:
            for _ in range(taken, len(entries)):
                window.pop()
        self.tag += taken
        self.credit -= taken
        self.waiting = False
        self.turn = turn + taken
        self.newest = max(self.newest, entries[taken - 1].sequence)
        return taken

    # -- credit ---------------------------------------------------------------------------------------------------

    def grant(self, n: int, now: int) -> None:
        """Allow `n` further deliveries; what waits is delivered at once."""
        if self.open:
            credit = self.credit + n
            self.credit = credit if credit < MAX_CREDIT else MAX_CREDIT
            self.source.serve(self, now)

    def resume(self, now: int) -> None:
        """The port is writable again (back-pressure has ended)."""
        if self.open:
            self.source.resume(self, now)

    def halt(self) -> None:
        """Take all credit away, without effect on what is delivered. To recover a session, halt all its consumers
        first: otherwise what one gives back is delivered to the next."""
        self.credit = 0
        self.waiting = False

    def want(self, now: int, patient: bool = False, brief: bool = False) -> bool:
        """The application waits here with an empty buffer (MCO-14, D-23).

        Args:
            now: ms epoch.
            patient: leave messages older than what it has got to consumers that are working on them (ORD-01).
            brief: if there is nothing, it does not go on waiting (MCO-05): it goes before no later one, and gets
                nothing that it has no credit for.

        Returns:
            True if everything that can be done is done. False if the answer follows through ``port.settled``: a scan
            of the backlog is not finished, or other consumers were asked for what they have buffered.
        """
        return not self.open or self.source.want(self, now, patient, brief)

    def begin_waiting(self) -> bool:
        """A WANT means one message at least. True if a credit had to be lent for it."""
        self.waiting = True
        if self.credit > 0:
            return False
        self.credit = 1
        return True

    def stop_waiting(self, lent: bool) -> None:
        """There is nothing; with the credit that was lent, if it was."""
        self.waiting = False
        if lent and self.credit:
            self.credit -= 1

    # -- settling -------------------------------------------------------------------------------------------------

    def acknowledge(self, tag: int, now: int, credit: int = 0) -> int:
        """Acknowledge everything delivered up to `tag`; never delivered again (ACK-06).

        Args:
            tag: of the last one.
            now: ms epoch.
            credit: further deliveries that are allowed with it, as :meth:`grant`.

        Returns:
            How many messages that were.

        Raises:
            RequestError: ILLEGAL_STATE, nothing with this tag was delivered.
        """
        if tag > self.tag:
            raise self._unknown(tag)
        count = tag - self.base
        if count <= 0:
            if credit:
                self.grant(credit, now)
            return 0
        self.base = tag
        if count == 1 and not self._holes:
            entry = self.window.popleft()
            entries = [] if entry is None else [entry]
        else:
            entries = self._pop(count)
        settled = len(entries)
        self.acknowledged += settled
        if credit and self.open:
            credit += self.credit
            self.credit = credit if credit < MAX_CREDIT else MAX_CREDIT
        self.source.settle(self, entries, now, credit > 0)
        return settled

    def release(self, tags: Sequence[int], now: int) -> None:
        """:meth:`releasing`, at once."""
        finish(self.releasing(tags, now, Meter(sys.maxsize)), now)

    def releasing(self, tags: Sequence[int], now: int, meter: Meter) -> Steps[int]:
        """Give back messages that the application has not seen: unmarked, to their old place. Credit is not changed.

        Raises:
            RequestError: ILLEGAL_STATE, nothing with such a tag was delivered.
        """
        self._check(tags)
        credit, self.credit = self.credit, 0  # others first: it is their asking that brought these back
        at = 0

        def give(count: int, now: int) -> None:
            nonlocal at
            self.source.take_back(self._take(tags[at : at + count]), now, [], None)
            at += count

        now = yield from self._in_slices(lambda: len(tags) - at, give, None, now, meter)
        self.source.taken_back(self, tags, now)
        self.grant(credit, now)
        return now

    def settle(self, tags: Sequence[int], outcome: Outcome, now: int) -> None:
        """:meth:`settling`, at once."""
        finish(self.settling(tags, outcome, now, Meter(sys.maxsize)), now)

    def settling(self, tags: Sequence[int], outcome: Outcome, now: int, meter: Meter) -> Steps[int]:
        """Settle single messages, in any order. A tag that is settled already is passed over.

        Args:
            tags: of the messages.
            outcome: what becomes of them.
            now: ms epoch.
            meter: says when a slice is full.

        Raises:
            RequestError: ILLEGAL_STATE, nothing with such a tag was delivered.
        """
        self._check(tags)
        if outcome is Outcome.ACKNOWLEDGED:
            entries = self._take(tags)
            self.acknowledged += len(entries)
            self.source.settle(self, entries, now, False)
            return now
        reject = outcome is Outcome.REJECTED
        at = 0

        def give(count: int, now: int) -> None:
            nonlocal at
            self.source.take_back([], now, self._take(tags[at : at + count]), None, reject)
            at += count

        def burial(number: int) -> int:
            index = tags[at + number] - self.base - 1
            entry = self.window[index] if index >= 0 else None
            return 0 if entry is None else self.source.burial(entry, reject)

        now = yield from self._in_slices(lambda: len(tags) - at, give, burial, now, meter)
        if not self.open and not self.window:
            self.source.taken_back(self, None, now)
        return now

    def give_back_oldest(self, count: int, now: int, suspects: int) -> None:
        """Give back, marked, what it has held longest, and go on with the rest; it has no credit.

        Args:
            count: of tags.
            now: ms epoch.
            suspects: how many of them may be dead-lettered now.
        """
        count = min(count, len(self.window))
        self.base += count
        self.source.take_back([], now, self._pop(count), suspects)

    def recover(self, handed: int, now: int) -> None:
        """:meth:`recovering`, at once."""
        finish(self.recovering(handed, now, Meter(sys.maxsize)), now)

    def recovering(self, handed: int, now: int, meter: Meter) -> Steps[int]:
        """Give back everything unacknowledged: up to tag `handed` marked as redelivered (ACK-08), behind it unmarked
        (ACK-14). The credit falls to zero. Right for a lone consumer and for closed ones; see :meth:`halt`.

        Args:
            handed: see above.
            now: ms epoch.
            meter: says when a slice is full.

        Returns:
            The time by now.
        """
        self.halt()
        now = yield from self._giving_back_all(handed, now, meter, None, None)
        if self.open:
            self.source.serve(self, now)
        return now

    def close(self, handed: int, now: int) -> None:
        """:meth:`closing`, at once."""
        finish(self.closing(handed, now, Meter(sys.maxsize)), now)

    def closing(self, handed: int, now: int, meter: Meter) -> Steps[int]:
        """Close: what was only buffered (behind tag `handed`) goes back unmarked (MCO-10); what the application was
        handed stays held until :meth:`acknowledge` or :meth:`recover` (MCO-09, ACK-19)."""
        if not self.open:
            return now
        self._end()

        def buffered() -> int:
            return len(self.window) - max(0, handed - self.base)

        def give(count: int, now: int) -> None:
            entries = [entry for _ in range(count) if (entry := self.window.pop()) is not None]
            self._holes -= count - len(entries)
            self.source.take_back(entries, now, [], None)

        now = yield from self._in_slices(buffered, give, None, now, meter)
        self.handed = self.tag = self.base + len(self.window)
        self.source.part_with(self, now)
        return now

    def abandon(self, now: int, handed: int | None = None) -> None:
        """:meth:`abandoning`, at once."""
        finish(self.abandoning(now, handed, Meter(sys.maxsize)), now)

    def abandoning(self, now: int, handed: int | None, meter: Meter, returned: list[Held] | None = None) -> Steps[int]:
        """The connection is lost: everything goes back, marked, since it may have been handed out (ACK-18); unmarked
        what is known not to have been, behind tag `handed` (D-32). Only the oldest message can run into the limit of
        attempts by this: the others are hardly what made the client fail.

        Args:
            now: ms epoch.
            handed: see above.
            meter: says when a slice is full.
            returned: gets what goes back; None if that is not of interest.

        Returns:
            The time by now.
        """
        was_open = self.open
        if was_open:
            self._end()
        now = yield from self._giving_back_all(self.tag if handed is None else handed, now, meter, 1, returned)
        if was_open:
            self.source.part_with(self, now)
        return now

    def stop(self, code: ErrorCode, text: str) -> None:
        """Close it, since its destination is deleted; its client is informed."""
        if self.open:
            self._end()
            self.port.closed(self.id, code, text)

    def expel(self, code: ErrorCode, text: str, now: int) -> None:
        """Close it, and only it: for an administrator, or since its user may not consume there any more. What it was
        delivered stays held, as its application may be working on it, until :meth:`acknowledge`, :meth:`recover` or the
        end of the session."""
        if self.open:
            self.stop(code, text)
            self.source.part_with(self, now)

    def forget(self) -> None:
        """What it holds is gone; the tags stay, so that they may still be acknowledged."""
        for index, entry in enumerate(self.window):
            if entry is not None:
                self.window[index] = None
                self._holes += 1
                entry.end()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self.open = False
        self.credit = 0
        self.source.remove_consumer(self)

    def _check(self, tags: Sequence[int]) -> None:
        """Raise unless these were delivered."""
        for tag in tags:
            if tag > self.tag or tag < 1:
                raise self._unknown(tag)

    def _take(self, tags: Sequence[int]) -> list[Entry]:
        """Take what was delivered with these tags, and is not settled, out of the window."""
        entries: list[Entry] = []
        window = self.window
        for tag in tags:
            index = tag - self.base - 1
            entry = window[index] if index >= 0 else None
            if entry is not None:
                window[index] = None
                self._holes += 1
                entries.append(entry)
        while window and window[0] is None:
            window.popleft()
            self._holes -= 1
            self.base += 1
        return entries

    def _pop(self, count: int) -> list[Entry]:
        """Take what was delivered first out of the window."""
        popleft = self.window.popleft
        entries = [entry for _ in range(count) if (entry := popleft()) is not None]
        self._holes -= count - len(entries)
        return entries

    def _giving_back_all(
        self, handed: int, now: int, meter: Meter, suspects: int | None, returned: list[Held] | None
    ) -> Steps[int]:
        self.handed = self.tag
        left = suspects

        def give(count: int, now: int) -> None:
            nonlocal left
            first = self.base + 1
            self.base += count
            seen = min(count, max(0, handed - first + 1))
            if returned is not None:
                tags = enumerate(islice(self.window, count), first)
                returned.extend([(tag, entry, entry.count + 1) for tag, entry in tags if entry is not None])
            marked = self._pop(seen)
            self.source.take_back(self._pop(count - seen), now, marked, left)
            if left is not None:
                left = max(0, left - len(marked))

        def burial(number: int) -> int:
            entry = self.window[number]
            return 0 if entry is None or self.base + number >= handed else self.source.burial(entry, False)

        now = yield from self._in_slices(
            lambda: len(self.window), give, burial if suspects is None else None, now, meter
        )
        self.source.taken_back(self, None, now)
        return now

    def _in_slices(
        self,
        left: Callable[[], int],
        give: Callable[[int, int], None],
        burial: Callable[[int], int] | None,
        now: int,
        meter: Meter,
    ) -> Steps[int]:
        """Give messages back. If it takes several slices, the source delivers nothing from the first to the last of
        them, so that their order is kept.

        Args:
            left: how many are still to be given back.
            give: gives back the next so many, at a time.
            burial: see :meth:`Source.burial`, of the message with this number among those; None if it is not asked.
            now: ms epoch.
            meter: says when a slice is full.

        Returns:
            The time by now.
        """
        source, held = self.source, False
        try:
            while (rest := left()) > 0:
                room, effort = meter.room(), source.effort
                if not room:
                    now = yield
                    continue
                if burial is None:
                    count = min(rest, room // effort or 1)
                    meter.spend(count * effort)
                else:
                    count = 0
                    while count < rest and room > 0:
                        cost = effort + burial(count)
                        meter.spend(cost)
                        room -= cost
                        count += 1
                if count < rest and not held:
                    held = True
                    source.hold()
                give(count, now)
        except Exception:
            if held:
                source.release(now)
            raise
        if held:
            source.release(now)
        return now

    def _unknown(self, tag: int) -> RequestError:
        return RequestError(
            f"consumer {self.id} was never delivered tag {tag}; its last one is {self.tag}", ErrorCode.ILLEGAL_STATE
        )
