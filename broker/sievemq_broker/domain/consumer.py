"""One consumer: its credit, and the window of messages delivered to it and not acknowledged."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from sievemq_broker.domain import recall
from sievemq_broker.domain.entry import GONE, Entry
from sievemq_broker.domain.ports import DeliveryPort
from sievemq_broker.domain.returns import give_back
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_CREDIT

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue
    from sievemq_broker.domain.subscription import Subscription
    from sievemq_broker.domain.view import View

__all__ = ["Consumer"]

#: A range of one, for many a consumer of a topic acknowledges one message at a time: making one takes 60 ns.
_ONCE: Final = (0,)


class Consumer:
    """Gets messages of one queue or subscription, through the view that its selector shares.

    Attributes:
        id: chosen by the client; the port is told it.
        credit: messages that may still be delivered to it.
        tag: tag of the last delivery; so also how many there were.
        base: everything up to this tag is settled; the window begins with the next.
        window: what is delivered and not acknowledged, by tag; None where a message was given back.
        handed: up to this tag the application is known to have the messages; not worth recalling.
        waiting: it asked for a message (WANT) and has got none since: it goes before those that only prefetch.
        asked: the WANT is not answered yet.
        open: False once closed; it may still hold messages for its session (MCO-09).
        brief: who sent its WANT waits for the answer only.
        lent: the WANT was worth a credit that was not granted.
        patient: its WANT leaves older messages to consumers that work on them, see :mod:`recall`.
        newest: highest sequence of a message delivered to it.
        acknowledged: messages it acknowledged.
    """

    __slots__ = (
        "acknowledged",
        "asked",
        "base",
        "brief",
        "credit",
        "glanced",
        "handed",
        "holes",
        "id",
        "lent",
        "listed",
        "looked",
        "looking",
        "newest",
        "open",
        "patient",
        "pending",
        "port",
        "queue",
        "recalled",
        "subscription",
        "tag",
        "turn",
        "view",
        "waiting",
        "watched",
        "watchers",
        "window",
    )

    def __init__(
        self, consumer_id: int, port: DeliveryPort, queue: Queue, view: View, subscription: Subscription | None = None
    ) -> None:
        self.id = consumer_id
        self.port = port
        self.queue = queue
        self.view = view
        self.subscription = subscription
        self.credit = 0
        self.tag = 0
        self.base = 0
        self.window: deque[Entry | None] = deque()
        self.holes = 0
        self.handed = 0
        self.waiting = False
        self.asked = False
        self.open = True
        self.listed = False
        self.turn = 0
        self.acknowledged = 0
        #: recalls on their way: tags, and who waits for them; answered in this order.
        self.recalled: deque[tuple[list[int], Consumer]] = deque()
        #: recalls sent to others on its behalf and not answered yet.
        self.pending = 0
        #: per other view, up to which tag the window was searched in vain.
        self.looked: dict[View, int] = {}
        #: the same from the young end, as far as messages were younger than what the other had got.
        self.glanced: dict[View, int] = {}
        self.brief = self.lent = self.patient = False
        self.newest = 0
        #: a deadline to look again at what others hold is on its way.
        self.looking = False
        #: per other consumer: since when (ms epoch) it has been seen at this point of its work.
        self.watched: dict[Consumer, tuple[int, tuple[int, int]]] = {}
        #: the other way round; None while nobody has.
        self.watchers: set[Consumer] | None = None

    def __repr__(self) -> str:
        return f"<Consumer {self.id} of {self.queue.label} credit={self.credit} holds={self.unacknowledged}>"

    @property
    def unacknowledged(self) -> int:
        """Messages delivered and neither acknowledged nor given back."""
        return len(self.window) - self.holes

    def can_take(self) -> bool:
        """True if a message could be delivered now."""
        return self.credit > 0 and self.port.writable

    def go_on_behind(self, tag: int) -> None:
        """Number deliveries from `tag` + 1 on: the client has a past with this consumer, on a connection that is gone,
        and what it says of older tags means nothing any more. Before the first delivery."""
        self.tag = self.base = self.handed = tag
        self.queue.count_from(tag)

    # -- credit -------------------------------------------------------------------------------------------------

    def grant(self, n: int, now: int) -> None:
        """Allow `n` further deliveries; what waits is delivered at once."""
        if not self.open:
            return
        credit = self.credit + n
        self.credit = credit if credit < MAX_CREDIT else MAX_CREDIT
        if not self.listed:
            self.listed = True
            self.view.ready.append(self)
        if self.queue.depth:
            self.queue.serve(self.view, now)

    def resume(self, now: int) -> None:
        """The port is writable again (back-pressure has ended)."""
        if self.open:
            if self.waiting and self not in self.view.waiting:
                self.view.waiting.append(self)
            self.grant(0, now)

    def halt(self) -> None:
        """Take all credit away, without effect on what is delivered. To recover a session, halt all its consumers
        first: otherwise what one gives back is delivered to the next."""
        self.credit = 0
        self.waiting = False

    def want(self, now: int, patient: bool = False, brief: bool = False) -> bool:
        """Somebody waits here with an empty buffer (MCO-14, D-23).

        Args:
            now: ms epoch.
            patient: leave messages older than what it has got to consumers that are working on them (ORD-01).
            brief: if there is nothing, nobody goes on waiting (MCO-05): it goes before nobody later, and gets nothing
                that it has no credit for.

        Returns:
            True if everything that can be done is done. False if the answer follows through ``port.settled``: a scan
            of the backlog is not finished, or other consumers were asked for what they have buffered.
        """
        return recall.want(self, now, patient, brief)

    # -- settling -----------------------------------------------------------------------------------------------

    def acknowledge(self, tag: int, now: int) -> int:
        """Acknowledge everything delivered up to `tag`; never delivered again (ACK-06).

        Returns:
            How many messages that were.

        Raises:
            RequestError: ILLEGAL_STATE, nothing with this tag was delivered.
        """
        if tag > self.tag:
            raise self._unknown(tag)
        base = self.base
        if tag <= base:
            return 0
        self.base = tag
        popleft = self.window.popleft
        queue = self.queue
        acknowledged = tag - base
        observer = queue.observer
        for _ in _ONCE if acknowledged == 1 else range(acknowledged):
            entry = popleft()
            if entry is None:
                acknowledged -= 1
                self.holes -= 1
            else:
                if observer is not None:
                    observer.acknowledged(queue, entry, self)
                entry.state = GONE
                del entry.envelope
        self.acknowledged += acknowledged
        queue.acknowledged += acknowledged
        if not self.open:
            queue.forget_if_done(self)
        elif self.view.groups is not None and queue.depth:
            queue.serve(self.view, now)  # it may have done with a message group that others can go on with
        return acknowledged

    def release(self, tags: list[int] | tuple[int, ...], now: int) -> None:
        """Give back messages that the application has not seen: unmarked, to their old place. Credit is not changed.

        Raises:
            RequestError: ILLEGAL_STATE, nothing with such a tag was delivered.
        """
        entries: list[Entry] = []
        for tag in tags:
            if tag > self.tag or tag < 1:
                raise self._unknown(tag)
        for tag in tags:
            index = tag - self.base - 1
            entry = self.window[index] if index >= 0 else None
            if entry is not None:
                self.window[index] = None
                self.holes += 1
                entries.append(entry)
        window = self.window
        while window and window[0] is None:
            window.popleft()
            self.holes -= 1
            self.base += 1
        if not self.open:
            self.queue.forget_if_done(self)
        credit, self.credit = self.credit, 0  # others first: it is their asking that brought these back
        give_back(self.queue, entries, now)
        recall.answered(self, tags, now)
        self.grant(credit, now)

    def recover(self, handed: int, now: int) -> None:
        """Give back everything unacknowledged: up to tag `handed` marked as redelivered (ACK-08), behind it unmarked
        (ACK-14). The credit falls to zero. Right for a lone consumer and for closed ones; see :meth:`halt`."""
        self.halt()
        self._give_back_all(handed, now, suspects=None)
        if self.open and self.view.groups is not None:
            self.queue.serve(self.view, now)

    def close(self, handed: int, now: int) -> None:
        """Close: what was only buffered (behind tag `handed`) goes back unmarked (MCO-10); what the application was
        handed stays held until :meth:`acknowledge` or :meth:`recover` (MCO-09, ACK-19)."""
        if not self.open:
            return
        self.queue.remove_consumer(self)
        buffered: list[Entry] = []
        while self.window and self.base + len(self.window) > handed:
            entry = self.window.pop()
            if entry is None:
                self.holes -= 1
            else:
                buffered.append(entry)
        self.handed = self.tag = self.base + len(self.window)
        self.queue.forget_if_done(self)
        if buffered:
            give_back(self.queue, buffered, now)
        if self.view.groups is not None:
            self.view.groups.leave(self.queue, self, now)
        recall.left(self, now)
        self._left()

    def abandon(self, now: int, handed: int | None = None) -> None:
        """The connection is lost: everything goes back, marked, since it may have been handed out (ACK-18); unmarked
        what is known not to have been, behind tag `handed` (D-32). Only the oldest message can run into the limit of
        attempts by this: the others are hardly what made the client fail."""
        was_open = self.open
        if was_open:
            self.queue.remove_consumer(self)
        self._give_back_all(self.tag if handed is None else handed, now, suspects=1)
        if was_open:
            if self.view.groups is not None:
                self.view.groups.leave(self.queue, self, now)
            recall.left(self, now)
            self._left()

    def stop(self, code: ErrorCode, text: str) -> None:
        """Closed from the broker's side: its destination is gone, or an administrator said so. The port is told."""
        if self.open:
            self.queue.remove_consumer(self)
            self.port.closed(self.id, code, text)

    def expel(self, code: ErrorCode, text: str, now: int) -> None:
        """An administrator closes it, and only it. What it was delivered stays held, as its application may be working
        on it, until :meth:`acknowledge`, :meth:`recover` or the end of the session."""
        if self.open:
            self.stop(code, text)
            if self.view.groups is not None:
                self.view.groups.leave(self.queue, self, now)
            recall.left(self, now)
            self._left()

    # -- inside -------------------------------------------------------------------------------------------------

    def _give_back_all(self, handed: int, now: int, suspects: int | None) -> None:
        window, base = self.window, self.base
        self.window = deque()
        self.holes = 0
        self.base = self.handed = self.tag
        self.looked.clear()
        self.glanced.clear()
        marked: list[Entry] = []
        unmarked: list[Entry] = []
        for tag, entry in enumerate(window, base + 1):
            if entry is not None:
                (marked if tag <= handed else unmarked).append(entry)
        if not self.open:
            self.queue.forget_if_done(self)
        give_back(self.queue, unmarked, now, marked, suspects)
        if self.open:
            recall.answered(self, None, now)

    def _left(self) -> None:
        if self.subscription is not None:
            self.subscription.consumer_left()

    def _unknown(self, tag: int) -> RequestError:
        return RequestError(
            f"consumer {self.id} was never delivered tag {tag}; its last one is {self.tag}", ErrorCode.ILLEGAL_STATE
        )
