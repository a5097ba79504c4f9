"""One consumer: its credit, and the window of messages delivered to it and not acknowledged."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import NamedTuple, Protocol

from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.failure import FOR_GOOD, PLAIN, Failure
from sievemq_broker.domain.looks import Looks
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.ports import DeliveryPort
from sievemq_broker.domain.settlement import ALL, COUNTED, REASONS, Outcome
from sievemq_broker.domain.view import View
from sievemq_broker.domain.work import Budget, Task
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_CREDIT


class Held(NamedTuple):
    """A message that a consumer held when its connection was lost.

    Attributes:
        tag: of its delivery.
        entry: the message.
        deliveries: its count after its return.
        attempted: its return was an attempt, or will be one when the connection is forgotten.
    """

    tag: int
    entry: Entry
    deliveries: int
    attempted: bool


class Source(Protocol):
    """The queue where a consumer's messages come from and return to."""

    __slots__ = ()

    place: Place
    policy: DestinationPolicy

    @property
    def paused(self) -> bool:
        """True while an administrator has stopped deliveries."""

    @property
    def depth(self) -> int:
        """Messages that wait."""

    def matched(self, view: View) -> tuple[int, int]:
        """How many messages a view's selector has matched since the view was opened, and out of how many."""

    @property
    def enqueued(self) -> int:
        """Messages accepted so far."""

    def serve(self, consumer: Consumer, now: int) -> None:
        """Deliver what waits: the consumer may have credit."""

    def resume(self, consumer: Consumer, now: int) -> None:
        """As :meth:`serve`, for a consumer whose port was not writable."""

    def want(self, consumer: Consumer, now: int, patient: bool, brief: bool) -> bool:
        """See :meth:`Consumer.want`."""

    def settle(self, consumer: Consumer, entries: list[Entry], now: int, granted: bool) -> None:
        """Remove messages that the consumer has acknowledged; it may have been granted credit in the same command."""

    def take_back(
        self,
        unmarked: list[Entry],
        now: int,
        marked: list[Entry],
        attempts: int,
        failure: Failure = PLAIN,
        until: int = 0,
    ) -> None:
        """Take messages back: some that no application has seen, and some that one may have seen."""

    def hold_back(self, entries: list[Entry], now: int) -> None:
        """Take messages back that no application has seen, and deliver them, to any consumer, after a moment."""

    def taken_back(self, consumer: Consumer, tags: Sequence[int] | None, now: int) -> None:
        """The consumer has returned these messages, or everything."""

    @property
    def effort(self) -> int:
        """The cost of taking back a message, relative to a message on which no selector is evaluated."""

    def dead_letter_cost(self, entry: Entry, failure: Failure) -> int:
        """The extra cost if the message comes back as an attempt and becomes a dead letter by that; 0 if it does
        not."""

    def hold(self) -> None:
        """Deliver nothing until :meth:`release`."""

    def release(self, now: int) -> int:
        """Deliver again. Returns what that took, in messages."""

    def unmark(self, held: list[Held], now: int) -> None:
        """Undo the counts of messages that came back although no application had seen them (D-32)."""

    def settle_returned(self, held: list[Held]) -> None:
        """Remove messages that came back although they had been acknowledged."""

    def fail_returned(self, held: list[Held], now: int, failure: Failure = PLAIN) -> None:
        """Count an attempt for messages that came back and, as their client states, had failed."""

    def awaits(self, entry: Entry) -> bool:
        """True if a message waits for its client, since the loss would be its last attempt."""

    def end_wait(self, held: list[Held], now: int) -> list[Held]:
        """Let messages return that waited for their client, which is back. Returns these."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Stop serving the consumer. It keeps the messages that it holds."""

    def part_with(self, consumer: Consumer, now: int) -> None:
        """A removed consumer has returned everything it had to return."""

    def emptying(self, now: int, budget: Budget) -> Task[int]:
        """Remove what is left if the last consumer's end has ended the source. Returns the time."""


class Consumer:
    """Gets messages of one queue or subscription, through the view of its selector.

    Args:
        consumer_id: chosen by the client, passed to the port.
        source: where messages come from.

    Attributes:
        id, port, source, view: as above.
        credit: messages that may still be delivered to it.
        tag: tag of the last delivery, which is also the number of deliveries.
        base: everything up to this tag is settled; the window begins behind it.
        window: messages that are delivered and not acknowledged, by tag; None for those that were returned.
        handed: the application is known to have the messages up to this tag, so they are not recalled.
        waiting: it has sent WANT and got no message since. It is served before consumers that only prefetch.
        open: False once closed; it may still hold messages for its session (MCO-09).
        newest: highest sequence of a message delivered to it.
        served: deliveries that its queue had made after its last one: the consumer served longest ago has the lowest.
        acknowledged: messages it acknowledged.
        withheld: credit that counts from the next grant or WANT on, since enough bytes were delivered.
        stated: the last message that its client has settled had failed. A client that leaves in order then has said
            what its application had.
    """

    __slots__ = (
        "_bytes", "_bytes_left", "_given_back", "_holes", "_looks", "acknowledged", "base", "credit", "handed", "id",
        "newest", "open", "port", "served", "source", "stated", "tag", "view", "waiting", "window", "withheld",
    )  # fmt: skip

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
        self._bytes = self._bytes_left = sys.maxsize  # that a grant is good for; that are left of the last one
        self.withheld = 0
        self._given_back: set[int] = set()  # sequences of messages that it has given back unasked
        self.handed = 0
        self.waiting = False
        self.open = True
        self.newest = 0
        self.served = 0
        self.acknowledged = 0
        self.stated = False
        self._looks: Looks | None = None

    def __repr__(self) -> str:
        return f"<Consumer {self.id} of {self.source.place.label} credit={self.credit} holds={self.unacknowledged}>"

    @property
    def selector(self) -> str | None:
        condition = self.view.condition
        return None if condition is None else condition.text

    @property
    def unacknowledged(self) -> int:
        """Messages that were delivered, and neither acknowledged nor returned."""
        return len(self.window) - self._holes

    # -- how long it holds them -----------------------------------------------------------------------------------

    def look(self, now: int) -> None:
        """Note what it holds at this time (ms epoch). To be called often; not on the way of a message."""
        if not self.unacknowledged:
            self._looks = None
            return
        if self._looks is None:
            self._looks = Looks()
        self._looks.note(self.base, self.tag, self.base + self.acknowledged, now)

    @property
    def held_since(self) -> int:
        """Since when it holds its oldest message, at the latest; ms epoch, 0 if that is not known or it holds none."""
        return self._looks.held_since(self.base) if self._looks is not None and self.unacknowledged else 0

    @property
    def idle_since(self) -> int:
        """Since when it holds messages and settles none; ms epoch, 0 as of :attr:`held_since`."""
        return self._looks.idle_since if self._looks is not None and self.unacknowledged else 0

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms."""
        if self._looks is not None:
            self._looks.shift(by)

    # -- credit and tags ------------------------------------------------------------------------------------------

    def can_take(self) -> bool:
        """True if a message could be delivered now. If only the port is in the way, it resumes this consumer."""
        if self.credit <= 0 or self.port.writable:
            return self.credit > 0
        self.port.hold_back(self.id)
        return False

    def go_on_behind(self, tag: int) -> None:
        """Number deliveries from `tag` + 1 on, before the first one. The client has used this consumer on a connection
        that was lost, and older tags mean nothing any more."""
        self.tag = self.base = self.handed = tag

    def note_handed(self, tag: int) -> None:
        """The application has everything that was delivered up to this tag."""
        if tag > self.handed:
            self.handed = tag

    def limit_bytes(self, size: int) -> None:
        """After so many bytes of messages the rest of its credit counts only from the next grant or WANT on. So what a
        client fetches ahead does not fill its memory, however large messages are."""
        self._bytes = self._bytes_left = size

    # -- delivering -----------------------------------------------------------------------------------------------

    def hand(self, entry: Entry, delivered: int) -> None:
        """Deliver a message. There is credit, and the port is writable."""
        self.tag = tag = self.tag + 1
        self.credit -= 1
        self.waiting = False
        self.served = delivered + 1
        if entry.sequence > self.newest:
            self.newest = entry.sequence
        self.window.append(entry)
        packed = entry.envelope.packed
        self._bytes_left -= len(packed)
        if self._bytes_left <= 0:
            self._withhold()
        self.port.deliver(self.id, tag, entry.count + 1, packed)

    def hand_row(self, entries: list[Entry], delivered: int) -> int:
        """Deliver messages that were never delivered before, as far as there is credit and the port takes them.

        Args:
            entries: one at least; there is credit for it, and the port is writable.
            delivered: deliveries that the queue has made so far.

        Returns:
            How many that were: one at least.
        """
        count, credit = len(entries), self.credit
        if count == 1:
            self.hand(entries[0], delivered)
            return 1
        if count > credit:
            entries, count = entries[:credit], credit
        taken, tag, window = 0, self.tag + 1, self.window
        window += entries
        row = [entry.envelope.packed for entry in entries]
        size = sum(map(len, row))
        if size > self._bytes_left:
            row = self._good_for(row)
        try:
            taken = self.port.deliver_row(self.id, tag, row)
        finally:
            for _ in range(taken, count):
                window.pop()
        self.tag += taken
        self.credit -= taken
        self._bytes_left -= size if taken == count else sum(map(len, row[:taken]))
        if self._bytes_left <= 0:
            self._withhold()
        self.waiting = False
        self.served = delivered + taken
        self.newest = max(self.newest, entries[taken - 1].sequence)
        return taken

    # -- credit ---------------------------------------------------------------------------------------------------

    def grant(self, n: int, now: int) -> None:
        """Allow `n` further deliveries, and deliver what waits at once."""
        if self.open:
            if n:
                self._renew()
            credit = self.credit + n
            self.credit = credit if credit < MAX_CREDIT else MAX_CREDIT
            self.source.serve(self, now)

    def resume(self, now: int) -> None:
        """The port is writable again: back-pressure has ended."""
        if self.open:
            self.source.resume(self, now)

    def halt(self) -> None:
        """Take all credit away; delivered messages stay. Before a session is recovered, all its consumers are halted:
        otherwise a message that one returns would be delivered to another."""
        self.credit = self.withheld = 0
        self._bytes_left = self._bytes
        self.waiting = False

    def want(self, now: int, patient: bool = False, brief: bool = False) -> bool:
        """The application waits here with an empty buffer (MCO-14, D-23).

        Args:
            now: ms epoch.
            patient: do not recall messages that are older than its last one from consumers that work on them (ORD-01).
            brief: it does not wait if there is no message (MCO-05): it keeps no place before later consumers, and gets
                nothing without credit.

        Returns:
            True if the answer is final. False if it follows through ``port.settled``: a scan of the backlog is not
            finished, or other consumers were asked to return buffered messages.
        """
        if self.withheld:
            tag = self.tag
            self._renew()
            self.source.serve(self, now)
            if self.tag > tag:
                return True
        return not self.open or self.source.want(self, now, patient, brief)

    def begin_waiting(self) -> bool:
        """Begin to wait for at least one message. True if a credit had to be lent for that."""
        self.waiting = True
        if self.credit > 0:
            return False
        self.credit = 1
        return True

    def stop_waiting(self, lent: bool) -> None:
        """Stop waiting, since there is no message, and take back the credit if one was lent."""
        self.waiting = False
        if lent and self.credit:
            self.credit -= 1

    # -- settling -------------------------------------------------------------------------------------------------

    def acknowledge(self, tag: int, now: int, credit: int = 0) -> int:
        """Acknowledge everything delivered up to `tag`; it is never delivered again (ACK-06).

        Args:
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
            self._renew()
            credit += self.credit
            self.credit = credit if credit < MAX_CREDIT else MAX_CREDIT
        self.source.settle(self, entries, now, credit > 0)
        return settled

    def release(self, tags: Sequence[int], unasked: bool, now: int, budget: Budget) -> Task[int]:
        """Return messages that the application has not seen to their old places, unmarked. Credit does not change.

        Args:
            now: ms epoch.
            unasked: no recall asked for them. The first time that may be for any reason. A message that comes back a
                second time would be delivered here, and come back, for ever: it waits a moment first.

        Raises:
            RequestError: ILLEGAL_STATE, nothing with such a tag was delivered.
        """
        self._check(tags)
        credit, self.credit = self.credit, 0  # others first: these messages came back because others asked
        at = 0

        def give(count: int, now: int) -> None:
            nonlocal at
            entries = self._take(tags[at : at + count])
            if unasked:
                again = [entry for entry in entries if entry.sequence in self._given_back]
                entries = [entry for entry in entries if entry.sequence not in self._given_back]
                self._note_given_back(entries)
                if again:
                    self.source.hold_back(again, now)
            self.source.take_back(entries, now, [], 0)
            at += count

        now = yield from self._in_slices(lambda: len(tags) - at, give, None, now, budget)
        self.source.taken_back(self, tags, now)
        self.grant(credit, now)
        return now

    def settle(self, tags: Sequence[int], outcome: Outcome, now: int, budget: Budget) -> Task[int]:
        """Settle individual messages, in any order. Tags that are settled already are skipped.

        Args:
            now: ms epoch.

        Raises:
            RequestError: ILLEGAL_STATE, nothing with such a tag was delivered.
        """
        self._check(tags)
        if outcome is Outcome.ACKNOWLEDGED:
            self.stated = False
            at = 0
            while at < len(tags):
                if budget.spent:
                    now = yield
                    continue
                count = min(len(tags) - at, budget.left)
                entries = self._take(tags[at : at + count])
                at += count
                budget.spend(count)
                self.acknowledged += len(entries)
                self.source.settle(self, entries, now, False)
            return now
        failure = self._failure(outcome, FOR_GOOD if outcome is Outcome.REJECTED else PLAIN)
        attempts = self._attempts(outcome)
        if outcome is Outcome.LEFT:
            tags = sorted(tags)
        else:
            self.stated = True
        at = 0

        def give(count: int, now: int) -> None:
            nonlocal at, attempts
            entries = self._take(tags[at : at + count])
            self.source.take_back([], now, entries, attempts, failure)
            attempts = max(0, attempts - len(entries))
            at += count

        def cost_of(number: int) -> int:
            index = tags[at + number] - self.base - 1
            entry = self.window[index] if index >= 0 else None
            return 0 if entry is None else self.source.dead_letter_cost(entry, failure)

        now = yield from self._in_slices(lambda: len(tags) - at, give, cost_of, now, budget)
        if not self.open and not self.window:
            self.source.taken_back(self, None, now)
        return now

    def give_back_oldest(self, count: int, now: int, attempts: int) -> None:
        """Return the oldest messages, marked, and keep the rest. The consumer has no credit.

        Args:
            now: ms epoch.
        """
        count = min(count, len(self.window))
        self.base += count
        self.source.take_back([], now, self._pop(count), attempts, self._failure(Outcome.LOST, PLAIN))

    def recover(
        self, handed: int, now: int, budget: Budget, outcome: Outcome = Outcome.FAILED, failure: Failure = PLAIN
    ) -> Task[int]:
        """Return everything unacknowledged: messages up to tag `handed` marked as redelivered (ACK-08), later ones
        unmarked (ACK-14). The credit falls to zero. For a session with several consumers see :meth:`halt`.

        Args:
            now: ms epoch.
            failure: what the client states of it.

        Returns:
            The time by now.
        """
        self.halt()
        now = yield from self._giving_back_all(handed, outcome, now, budget, None, 0, failure)
        if self.open:
            self.source.serve(self, now)
        return now

    def close(self, handed: int, now: int, budget: Budget) -> Task[int]:
        """Close. Messages behind tag `handed` were only buffered, and go back unmarked (MCO-10). Those that the
        application has stay here until :meth:`acknowledge` or :meth:`recover` (MCO-09, ACK-19)."""
        if not self.open:
            return now
        self._end()

        def buffered() -> int:
            return len(self.window) - max(0, handed - self.base)

        def give(count: int, now: int) -> None:
            entries = [entry for _ in range(count) if (entry := self.window.pop()) is not None]
            self._holes -= count - len(entries)
            self.source.take_back(entries, now, [], 0)

        now = yield from self._in_slices(buffered, give, None, now, budget)
        self.handed = self.tag = self.base + len(self.window)
        waiting = self.source.depth
        self.source.part_with(self, now)
        budget.spend(max(0, waiting - self.source.depth))
        return (yield from self.source.emptying(now, budget))

    def abandon(
        self,
        handed: int | None,
        now: int,
        budget: Budget,
        returned: list[Held] | None = None,
        until: int = 0,
        outcome: Outcome = Outcome.LOST,
    ) -> Task[int]:
        """The connection is lost: return everything, marked, since the application may have it (ACK-18). Messages that
        it is known not to have, behind tag `handed`, go back unmarked (D-32).

        Args:
            now: ms epoch.
            returned: a list to which the returned messages are added, or None.
            until: ms epoch until which a message waits for the client if this would be its last attempt; 0 for not.
            outcome: LOST, or KILLED if the broker ends.

        Returns:
            The time by now.
        """
        was_open = self.open
        if was_open:
            self._end()
        seen = self.tag if handed is None else handed
        now = yield from self._giving_back_all(seen, outcome, now, budget, returned, until)
        if was_open:
            self.source.part_with(self, now)
        return now

    def stop(self, code: ErrorCode, text: str) -> None:
        """Close, since the destination is deleted, and inform the client."""
        if self.open:
            self._end()
            self.port.closed(self.id, code, text)

    def expel(self, code: ErrorCode, text: str, now: int) -> None:
        """Close only this consumer: an administrator did it, or its user may not consume there any more. Delivered
        messages stay here, since the application may be working on them, until :meth:`acknowledge`, :meth:`recover` or
        the end of the session."""
        if self.open:
            self.stop(code, text)
            self.source.part_with(self, now)

    def forget(self) -> None:
        """Drop the messages that it holds. Their tags stay valid, so that a later acknowledgement is accepted."""
        for index, entry in enumerate(self.window):
            if entry is not None:
                self.window[index] = None
                self._holes += 1
                entry.end()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _good_for(self, row: list[bytes]) -> list[bytes]:
        """The messages that the last grant is good for, up to the one that uses up its bytes."""
        for count, size in enumerate(accumulate(map(len, row)), 1):
            if size >= self._bytes_left:
                return row[:count]
        return row

    def _withhold(self) -> None:
        """Enough bytes were delivered for one grant."""
        self.withheld += self.credit
        self.credit = 0

    def _renew(self) -> None:
        """The client has taken what it was sent, or most of it."""
        self._bytes_left = self._bytes
        if self.withheld:
            self.credit += self.withheld
            self.withheld = 0

    def _end(self) -> None:
        self.open = False
        self.credit = self.withheld = 0
        self.source.remove_consumer(self)

    def _attempts(self, outcome: Outcome) -> int:
        """For how many of its messages, the oldest first, this outcome is an attempt."""
        return 0 if self.stated and outcome is Outcome.LEFT else COUNTED[outcome].attempts

    def _failure(self, outcome: Outcome, stated: Failure) -> Failure:
        """What is known of a failure by which deliveries to it end so."""
        return stated.by(self.port.party, self.id, REASONS.get(outcome, ""))

    def _note_given_back(self, entries: list[Entry]) -> None:
        if len(self._given_back) > MAX_CREDIT:
            self._given_back.clear()
        self._given_back.update([entry.sequence for entry in entries])

    def _check(self, tags: Sequence[int]) -> None:
        """Raise unless messages with these tags were delivered."""
        if tags and (max(tags) > self.tag or min(tags) < 1):
            raise self._unknown(next(tag for tag in tags if not 1 <= tag <= self.tag))

    def _take(self, tags: Sequence[int]) -> list[Entry]:
        """Remove the messages with these tags from the window, except those that are settled."""
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
        """Remove the oldest messages from the window."""
        popleft = self.window.popleft
        entries = [entry for _ in range(count) if (entry := popleft()) is not None]
        self._holes -= count - len(entries)
        return entries

    def _giving_back_all(
        self,
        handed: int,
        outcome: Outcome,
        now: int,
        budget: Budget,
        returned: list[Held] | None,
        until: int,
        failure: Failure = PLAIN,
    ) -> Task[int]:
        self.handed = self.tag
        attempts = self._attempts(outcome)
        costly = attempts == ALL
        if attempts and self.window:
            failure = self._failure(outcome, failure)

        def give(count: int, now: int) -> None:
            nonlocal attempts
            first = self.base + 1
            self.base += count
            seen = min(count, max(0, handed - first + 1))
            if returned is not None:
                tags = enumerate(islice(self.window, count), first)
                held = [(tag, entry) for tag, entry in tags if entry is not None]
                for at, (tag, entry) in enumerate(held):
                    returned.append(Held(tag, entry, entry.count + 1, at < attempts and tag <= handed))
            marked = self._pop(seen)
            self.source.take_back(self._pop(count - seen), now, marked, attempts, failure, until)
            attempts = max(0, attempts - len(marked))

        def cost_of(number: int) -> int:
            entry = self.window[number]
            return 0 if entry is None or self.base + number >= handed else self.source.dead_letter_cost(entry, failure)

        now = yield from self._in_slices(lambda: len(self.window), give, cost_of if costly else None, now, budget)
        self.source.taken_back(self, None, now)
        return now

    def _in_slices(
        self,
        left: Callable[[], int],
        give: Callable[[int, int], None],
        cost_of: Callable[[int], int] | None,
        now: int,
        budget: Budget,
    ) -> Task[int]:
        """Return messages. If that takes several slices, the source delivers nothing until the last one is done, so
        that the order is kept.

        Args:
            give: returns the given number of messages, at a time in ms.
            cost_of: :meth:`Source.dead_letter_cost` of the message with this number among those left; None for 0.
            now: ms epoch.

        Returns:
            The time by now.
        """
        source, held = self.source, False
        try:
            while (rest := left()) > 0:
                room, effort = budget.left, source.effort
                if room <= 0:
                    now = yield
                    continue
                if cost_of is None:
                    count = min(rest, room // effort or 1)
                    budget.spend(count * effort)
                else:
                    count = 0
                    while count < rest and room > 0:
                        cost = effort + cost_of(count)
                        budget.spend(cost)
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
