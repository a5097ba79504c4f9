"""Sessions and links of one AMQP connection: their counters, and their unsettled deliveries.

Links are named from the broker's end, as the specification names windows: messages come in by an
:class:`IncomingLink`, of which the broker is the receiver, and go out by an :class:`OutgoingLink`, of which it is the
sender.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.protocols.amqp.frames import Frame, TransferWriter
from sievemq_broker.protocols.amqp.incoming import IncomingSends, transaction_of
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.limits import MAX_CREDIT

#: Transfers that a client may send before the session's window is renewed: the credit of its links limits it.
WINDOW: Final = 2**31 - 1


def ahead(number: int, other: int) -> int:
    """How far a serial number is ahead of another one; negative if it is behind (RFC 1982)."""
    return (number - other + 2**31) % 2**32 - 2**31


@dataclass(slots=True, eq=False)
class Link:
    """One end of a link; the kinds follow.

    Attributes:
        session: where it is attached.
        handle: its number, for both ends.
        name: the client's name for it.
        made: the temporary destination that was made for it and ends with it (a dynamic node); None for none.
    """

    session: AmqpSession
    handle: int
    name: str
    made: str | None = field(init=False, default=None)

    def own(self, made: str | None) -> None:
        """A temporary destination was made for it."""
        self.made = made


@dataclass(slots=True, eq=False)
class IncomingLink(Link):
    """A link on which the client sends.

    Attributes:
        address: where to; None for an anonymous relay: each message names its destination.
        delivery_count: the client's count of its deliveries, a serial number.
        credit: deliveries that may still come.
        came: payloads of the delivery whose last transfer has not come, and the first of its transfers.
        size: bytes of these.
        second: the client settles its deliveries first, once it has heard their outcome.
        rejects: the client knows the outcome rejected.
        most: bytes of the largest message that is accepted, all sections counted.
        incoming: its sends.
    """

    address: str | None = None
    delivery_count: int = 0
    credit: int = 0
    came: list[bytes] = field(default_factory=list)
    first: Any = None
    size: int = 0
    second: bool = False
    rejects: bool = True
    most: int = 0
    incoming: IncomingSends = field(default_factory=lambda: IncomingSends(0))

    def take(self, payload: bytes) -> None:
        self.came.append(payload)
        self.size += len(payload)

    def begin(self, transfer: Any) -> None:
        """The first transfer of a delivery has arrived, and more will follow."""
        self.first = transfer

    def join(self) -> bytes:
        """The parts of a delivery, once."""
        payload = b"".join(self.came)
        self.came, self.first, self.size = [], None, 0
        return payload

    def count(self) -> None:
        self.delivery_count = (self.delivery_count + 1) % 2**32
        self.credit -= 1

    def reach(self, delivery_count: int) -> None:
        """The client counts so many deliveries, as serial numbers; it uses up its credit by that."""
        self.credit -= ahead(delivery_count, self.delivery_count)
        self.delivery_count = delivery_count % 2**32

    def keeps_back(self, transaction: bytes) -> bool:
        """True if a transfer that waits here, or one whose end does, is part of a transaction of that name."""
        begun = None if self.first is None else transaction_of(self.first)
        return begun == transaction or self.incoming.holds(transaction)

    @property
    def attached(self) -> bool:
        """False once it was detached, or its session has ended."""
        return self.session.links.get(self.handle) is self

    def send_by(self, incoming: IncomingSends) -> None:
        self.incoming = incoming

    def lead(self, address: str) -> None:
        self.address = address

    def allow(self, credit: int) -> None:
        self.credit = credit


class Unfinished:
    """The deliveries of a client whose last transfer has not arrived.

    Attributes:
        bytes: of their parts.
    """

    __slots__ = ("_numbers", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        #: By link, in the order in which they began: the number of the frame with the first transfer.
        self._numbers: dict[IncomingLink, int] = {}

    @property
    def number(self) -> int:
        """The number of the oldest, another one for each; 0 if there is none."""
        return next(iter(self._numbers.values()), 0)

    @property
    def oldest_bytes(self) -> int:
        """Bytes of the oldest that have arrived."""
        return next(iter(self._numbers)).size if self._numbers else 0

    def take(self, link: IncomingLink, number: int, transfer: Any, payload: bytes) -> None:
        """A transfer has arrived that is not the last of its delivery."""
        if link not in self._numbers:
            self._numbers[link] = number
            link.begin(transfer)
        link.take(payload)
        self.bytes += len(payload)

    def end(self, link: Link) -> bytes:
        """The delivery of a link ends, if one has begun: its parts, joined."""
        if not isinstance(link, IncomingLink) or self._numbers.pop(link, None) is None:
            return b""
        self.bytes -= link.size
        return link.join()

    def end_all(self) -> None:
        """The connection ends."""
        for link in tuple(self._numbers):
            self.end(link)


@dataclass(slots=True, eq=False)
class Coordination(IncomingLink):
    """A link on which the client declares and discharges transactions."""


@dataclass(slots=True, eq=False)
class OutgoingLink(Link):
    """A link on which the client receives.

    Attributes:
        id: number of the broker's consumer; 0 for a link that only finds a subscription, to end it.
        address: of the destination.
        settled: deliveries need no settlement.
        outcome: of deliveries that the client settles without one; None if it named none.
        delivery_count: deliveries made.
        subscription: name of the subscription, None for none.
        durable: it outlives the link.
        written: tag of the last message that counts as acknowledged once it is written; 0 for none.
        unsettled: tags of its deliveries that its client has not settled, by number.
        waiting: messages that wait until the client's window has room: tag, delivery count, packed envelope. They are
            not converted before there is.
        owed: credit of the client above the most that a consumer of the broker's may have.
        used: deliveries since the broker's consumer got credit; counted while any is owed.
        draining: the count of deliveries at which the client's credit ends, if it drains the link; None if it does not.
        gone: it was detached: nothing more is written for it.
        most: bytes of the largest message that the client accepts, all sections counted; 0 for any.
        oversized: larger messages so far: they are not delivered.
        kept: tags of such dead letters, which stay with the link, since they have no dead-letter queue.
        writer: of its transfers.
    """

    id: int
    address: str
    settled: bool = False
    outcome: Any = None
    delivery_count: int = 0
    subscription: str | None = None
    durable: bool = False
    written: int = 0
    unsettled: dict[int, int] = field(default_factory=dict)
    waiting: deque[tuple[int, int, bytes]] = field(default_factory=deque)
    owed: int = 0
    used: int = 0
    draining: int | None = None
    gone: bool = False
    most: int = 0
    oversized: int = 0
    kept: list[int] = field(default_factory=list)
    writer: TransferWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = TransferWriter(self.session.channel, self.handle, self.settled)

    def begin_delivery(self, number: int, tag: int) -> None:
        self.delivery_count += 1
        if not self.settled:
            self.unsettled[number] = tag

    def end_delivery(self, tag: int) -> None:
        """A delivery that needs no settlement is written to its end."""
        self.written = tag

    @property
    def held(self) -> int:
        """The number of messages that wait until the client's window has room."""
        return len(self.waiting)

    def go(self) -> None:
        self.gone = True

    def pass_over(self) -> None:
        """A message is larger than the client accepts."""
        self.oversized += 1

    def keep(self, tags: list[int]) -> None:
        """These dead letters are larger than the client accepts."""
        self.kept += tags

    def take_kept(self) -> list[int]:
        """The :attr:`kept` dead letters; returned once."""
        kept, self.kept = self.kept, []
        return kept

    @property
    def met(self) -> int:
        """Messages that the broker has delivered to it so far, whatever has become of them."""
        return self.delivery_count + self.held + self.oversized

    def owe(self, credit: int) -> None:
        """The client has granted so much more than the broker's consumer gets at once."""
        self.owed, self.used = credit, 0

    def use(self) -> bool:
        """A message is delivered while credit is owed. True if half of the consumer's own credit is used."""
        self.used += 1
        return self.used >= MAX_CREDIT // 2

    def repay(self) -> int:
        """The credit that the broker's consumer gets now."""
        credit = min(self.owed, self.used)
        self.owed -= credit
        self.used = 0
        return credit

    def drain_to(self, limit: int | None) -> None:
        """The client drains the link up to this count of deliveries; None: it does not."""
        self.draining = limit

    def advance(self, limit: int) -> None:
        self.draining = None
        self.delivery_count = max(self.delivery_count, limit)

    def take_written(self) -> int:
        """The tag of the last written message, which counts as acknowledged; returned once."""
        tag, self.written = self.written, 0
        return tag


@dataclass(slots=True, eq=False)
class Browser(OutgoingLink):
    """A link on which the client reads a queue without changing it.

    Attributes:
        selector: condition; None for none.
        dialect: that it is written in; None for the broker's.
        cursor: of the next page.
        page: messages that were read and are not written: count and envelope.
        ended: there is no further page.
        credit: messages that it may still be sent.
        drain: the client waits until there is nothing more.
        busy: the next message is about to be written, or a page to be read.
    """

    selector: str | None = None
    dialect: str | None = None
    cursor: Any = None
    page: deque[tuple[int, Any]] = field(default_factory=deque)
    ended: bool = False
    credit: int = 0
    drain: bool = False
    busy: bool = False

    def begin(self) -> None:
        """Begin to write messages."""
        self.busy = True

    def pause(self) -> None:
        """Write nothing more before there is credit, and room in the client's window."""
        self.busy = False

    def grant(self, credit: int, drain: bool) -> None:
        """Grant credit."""
        self.credit, self.drain = credit, drain

    def turn(self, cursor: Any, messages: list[tuple[int, Any]]) -> None:
        """A page was read."""
        self.cursor, self.ended = cursor, cursor is None
        self.page.extend(messages)

    def next(self) -> tuple[int, Any]:
        """Take a message for which there is credit."""
        self.credit -= 1
        return self.page.popleft()

    def rest(self) -> int:
        """Take the remaining credit away."""
        credit, self.credit, self.drain = self.credit, 0, False
        return credit


Settled: TypeAlias = dict[tuple[OutgoingLink, Outcome | None], list[int]]
"""Tags of deliveries by their link and what becomes of them; None: they go back as they were."""


class Transaction:
    """A transaction, from its declare on.

    Args:
        link: where it was declared: it ends with that.
        number: of the broker's session that stages its sends.

    Attributes:
        settled: what its discharge settles.
        doom: why it can only be rolled back; None if it can be committed.
    """

    __slots__ = ("_sessions", "doom", "link", "number", "sends", "settled")

    def __init__(self, link: Coordination, number: int) -> None:
        self.link = link
        self.number = number
        self.sends = 0
        self.settled: Settled = {}
        self._sessions: set[AmqpSession] = set()
        self.doom: SieveError | None = None

    def has_settled(self, session: AmqpSession) -> None:
        """It has settled deliveries of a session."""
        self._sessions.add(session)

    def last_tag(self, link: OutgoingLink) -> int:
        """The last delivery of a link that it has settled; 0 for none."""
        if link.session not in self._sessions:
            return 0
        return max([max(self.settled.get((link, outcome), _NO_TAGS)) for outcome in _OUTCOMES])

    def settles(self, session: AmqpSession) -> bool:
        return session in self._sessions

    def lose(self, session: AmqpSession) -> None:
        """A session has ended, and its deliveries have returned."""
        if self.settles(session):
            text = "a session has ended with deliveries of the transaction; it was rolled back"
            self.fail(RequestError(text, ErrorCode.TRANSACTION_ROLLED_BACK))

    def fail(self, error: SieveError) -> None:
        """It can only be rolled back, for this reason or an earlier one."""
        if self.doom is None:
            self.doom = error

    def count_send(self) -> int:
        self.sends += 1
        return self.sends


_OUTCOMES: Final = (None, *Outcome)
_NO_TAGS: Final = (0,)


class Unsettled:
    """The deliveries of a session that its client has not settled, by number. Each also stands in its link.

    Consecutive numbers are a run, so that finding those of a range costs what is in it, however wide it is.
    """

    __slots__ = ("_firsts", "_lasts", "_links")

    def __init__(self) -> None:
        self._links: dict[int, OutgoingLink] = {}
        #: Of each run, in order.
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return len(self._links)

    def add(self, number: int, link: OutgoingLink) -> None:
        """A delivery of a link begins; its number is above all others."""
        self._links[number] = link
        lasts = self._lasts
        if lasts and lasts[-1] == number - 1:
            lasts[-1] = number
        else:
            self._firsts.append(number)
            lasts.append(number)

    def take(self, first: int, last: int, most: int) -> list[tuple[OutgoingLink, int]]:
        """Remove the deliveries of a range from its beginning on: link and tag. Fewer than `most` if it has no more."""
        found: list[tuple[OutgoingLink, int]] = []
        firsts, lasts, links = self._firsts, self._lasts, self._links
        at = whole = bisect_left(lasts, first)
        while at < len(lasts) and len(found) < most:
            begin, run_end = max(firsts[at], first), lasts[at]
            end = min(run_end, last, begin + most - len(found) - 1)
            if end < begin:
                break
            for number in range(begin, end + 1):
                link = links.pop(number)
                found.append((link, link.unsettled.pop(number)))
            if begin > firsts[at]:
                lasts[at] = begin - 1
                whole = at = at + 1
                if end < run_end:
                    firsts.insert(at, end + 1)
                    lasts.insert(at, run_end)
                    break
            elif end < run_end:
                firsts[at] = end + 1
                break
            else:
                at += 1
        del firsts[whole:at], lasts[whole:at]
        return found

    def take_of(self, link: OutgoingLink, most: int) -> list[int]:
        """Remove the latest deliveries of a link: their tags, the last one first."""
        tags: list[int] = []
        firsts, lasts, unsettled = self._firsts, self._lasts, link.unsettled
        while unsettled and len(tags) < most:
            number, tag = unsettled.popitem()
            tags.append(tag)
            del self._links[number]
            at = bisect_right(firsts, number) - 1
            first, last = firsts[at], lasts[at]
            if first == last:
                del firsts[at], lasts[at]
            elif number == last:
                lasts[at] = number - 1
            elif number == first:
                firsts[at] = number + 1
            else:
                firsts.insert(at + 1, number + 1)
                lasts.insert(at, number - 1)
        return tags


class Rest:
    """A message that is not written to its end, since the client's window has no room, or the transport.

    Args:
        tag: of the broker's delivery; 0 if it has none.

    Attributes:
        at: where what is not written begins.
    """

    __slots__ = ("at", "link", "number", "payload", "tag")

    def __init__(self, link: OutgoingLink, tag: int, number: int, payload: bytes) -> None:
        self.link = link
        self.tag = tag
        self.number = number
        self.payload = payload
        self.at = 0

    def next(self, room: int) -> bytes:
        begin, self.at = self.at, self.at + room
        return self.link.writer.frame(self.number, self.payload[begin : self.at], not self.ended)

    @property
    def ended(self) -> bool:
        return self.at >= len(self.payload)


class AmqpSession:
    """One session of a connection.

    Args:
        window: transfers that the client takes.

    Attributes:
        links: by handle. Changed by :meth:`attach`, :meth:`detach` and :meth:`take_detached`.
        waiting: the links of messages for which the client's window has no room, one for each message.
        parked: links that go on when the client's window has room: browsers, and those that were drained before all
            that their clients had credit for was written.
        rest: of a message that is being written; None for none.
        next_out: number of the next transfer to the client.
        next_in: number of the next transfer of the client.
        room: transfers that the client takes now.
        ended: it has ended.
        behind: frames that wait until none of its links does: end, and what follows on the channel.
    """

    __slots__ = (
        "_deliveries", "_detached", "_last_in", "_stale", "_unsettled", "behind", "channel", "ended", "links",
        "next_in", "next_out", "number", "parked", "rest", "room", "waiting",
    )  # fmt: skip

    def __init__(self, channel: int, number: int, window: int, next_in: int) -> None:
        self.channel = channel
        self.number = number
        self.links: dict[int, Link] = {}
        #: Handles of links that were detached from here, and whose client has not answered that.
        self._detached: set[int] = set()
        #: The id of the client's last delivery.
        self._last_in: int | None = None
        self._unsettled = Unsettled()
        self.waiting: deque[OutgoingLink] = deque()
        #: How many of these are gone.
        self._stale = 0
        self.parked: dict[OutgoingLink, None] = {}
        self.rest: Rest | None = None
        self._deliveries = 0
        self.next_out = 0
        self.next_in = next_in
        self.room = window
        self.ended = False
        self.behind: deque[Frame] = deque()

    @property
    def handles(self) -> int:
        return len(self.links) + len(self._detached)

    def attach(self, link: Link) -> None:
        self._detached.discard(link.handle)
        self.links[link.handle] = link

    def detach(self, link: Link) -> bool:
        """A link is detached from here: what the client has sent for it meanwhile is ignored, up to its answer. False
        if it is not attached."""
        if self.links.get(link.handle) is not link:
            return False
        del self.links[link.handle]
        self._detached.add(link.handle)
        return True

    def refuse(self, handle: int) -> None:
        """As :meth:`detach`, of a link that is not attached in the first place."""
        self._detached.add(handle)

    def was_detached(self, handle: int) -> bool:
        """True if a link was detached from here, and the client may not know that yet."""
        return handle in self._detached

    def take_detached(self, handle: int) -> Link | None:
        """The client detaches a link; None if it was detached from here at the same time, or if there is none."""
        self._detached.discard(handle)
        return self.links.pop(handle, None)

    def begin_delivery(self, number: int) -> bool:
        """A delivery of the client begins. False if its id is not behind those of all earlier ones: each is used once,
        as a serial number."""
        last = self._last_in
        if last is not None and not 0 < (number - last) % 2**32 < 2**31:
            return False
        self._last_in = number
        return True

    def count_in(self) -> None:
        self.next_in = (self.next_in + 1) % 2**32

    def deliver(self, link: OutgoingLink, tag: int) -> int:
        """The id of a delivery that begins."""
        number = self._deliveries
        self._deliveries = number + 1
        link.begin_delivery(number, tag)
        if not link.settled:
            self._unsettled.add(number, link)
        return number % 2**32

    @property
    def shut(self) -> bool:
        """True while the client's window has no room, or something waits for it."""
        return self.room <= 0 or self.rest is not None or bool(self.waiting)

    def hold(self, link: OutgoingLink, tag: int, count: int, packed: bytes) -> None:
        """Keep a message until the client's window has room."""
        link.waiting.append((tag, count, packed))
        self.waiting.append(link)

    def take_waiting(self) -> tuple[OutgoingLink, int, int, bytes] | None:
        """Remove and return the first message that waits; None if its link is gone."""
        link = self.waiting.popleft()
        if link.gone:
            self._stale -= 1
            return None
        return (link, *link.waiting.popleft())

    def begin_rest(self, rest: Rest) -> None:
        """A message is written in several turns."""
        self.rest = rest

    def end_rest(self) -> None:
        self.rest = None

    def count_out(self) -> None:
        self.room -= 1
        self.next_out = (self.next_out + 1) % 2**32

    def park(self, link: OutgoingLink) -> None:
        """Let a link go on when the client's window has room."""
        self.parked[link] = None

    def take_parked(self) -> deque[OutgoingLink]:
        """Remove and return them all, those first that have waited longest."""
        parked, self.parked = self.parked, {}
        return deque(parked)

    def open_window(self, next_incoming: int | None, window: int) -> None:
        """The client accepts more transfers."""
        first = 0 if next_incoming is None else next_incoming
        self.room = max(0, window - ahead(self.next_out, first))

    def numbers_of(self, first: int, last: int) -> tuple[int, int]:
        """A range of ids as numbers that only grow. It is empty if the second id is not behind the first."""
        begin = self._deliveries + ahead(first, self._deliveries % 2**32)
        return begin, begin + ahead(last, first)

    def settle(self, first: int, last: int, most: int) -> list[tuple[OutgoingLink, int]]:
        """Remove deliveries that the client settles, at most `most`, from the first one on: link and tag. If fewer are
        returned, there are no more."""
        return self._unsettled.take(first, last, most)

    @property
    def withheld(self) -> dict[int, int]:
        """The consumers with deliveries that are not written, or not to their end, since the client's window has no
        room for them: by number, the last tag before these."""
        found: dict[int, int] = {}
        rest = self.rest
        if rest is not None and rest.tag:
            found[rest.link.id] = rest.tag - 1
        if self.waiting:
            for link in self.links.values():
                if isinstance(link, OutgoingLink) and link.waiting:
                    found.setdefault(link.id, link.waiting[0][0] - 1)
        return found

    def leave(self, link: OutgoingLink) -> None:
        """A link was detached: nothing more is written for it."""
        link.go()
        self._stale += link.held
        self.parked.pop(link, None)

    def forget(self, link: OutgoingLink, now: int, budget: Budget) -> Task[tuple[list[int], list[int]]]:
        """Forget the deliveries of a link that is gone.

        Args:
            now: ms epoch.

        Returns:
            The tags of its messages that are not settled: those that the client has, and those that it cannot have.
        """
        withheld, left = [], []
        rest = self.rest
        if rest is not None and rest.link is link:
            self.rest = None
            if rest.tag:
                withheld.append(rest.tag)
        waiting = link.waiting
        while waiting or link.unsettled:
            if budget.spent:
                yield
            elif waiting:
                count = min(budget.left, len(waiting))
                budget.spend(count)
                withheld += [waiting.popleft()[0] for _ in range(count)]
            else:
                tags = self._unsettled.take_of(link, budget.left)
                budget.spend(len(tags))
                left += tags
        left.reverse()
        if withheld and left and left[-1] == withheld[0]:  # its message is not written to the end
            left.pop()
        if self._stale * 2 > len(self.waiting):
            self.waiting = deque([each for each in self.waiting if not each.gone])
            self._stale = 0
        return left, withheld

    def drop(self) -> None:
        """The session has ended: nothing more is written for it."""
        self.ended = True
        self.waiting.clear()
        self.parked.clear()
        self.rest = None
