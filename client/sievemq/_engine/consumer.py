"""A consumer: its prefetch buffer, its credit, what the application has seen of it.

What threads may do at the same time (an asyncio front need not care):

- :meth:`EngineConsumer.take` and :meth:`EngineConsumer.settle` belong to the one thread of control that receives in
  the session (THR-02) and need no lock, although the connection may append to the buffer meanwhile: they only pop from
  its left, and each number here is written by one side alone.
- Everything else happens under the front's engine lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from sievemq._engine.credit import Credit
from sievemq._engine.outbox import Completion, Outbox, Undo
from sievemq._engine.terms import Terms
from sievemq.destinations import Destination, Queue
from sievemq.messages import Message, received
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.message.envelope import EXPIRATION, MESSAGE_ID
from sievemq_core.wire.codec import CommandTuple, pack
from sievemq_core.wire.commands import Command

#: Seconds that a caller may wait at an empty buffer before the client sends WANT (D-23). Long against the way to a
#: broker that is near, short against anything that a person or a timeout would notice.
PATIENCE: Final = 0.002

_DELIVERED_TAG, _DELIVERED_COUNT, _DELIVERED_FIELDS = 2, 3, 4  # positions in a DELIVER
_received: Final = received


# Why nothing is handed over: bits of `stops`, independent of each other.
STOPPED: Final = 1  # the connection is not started
PAUSED: Final = 2  # the session waits for an answer before anything more is handed over
LOST: Final = 4  # the connection is lost, until it is restored
SHUT: Final = 8  # closing has begun, here or above, for good
CLOSED: Final = 16  # closed here or by the broker, for good


class Selection(NamedTuple):
    """The messages that a consumer is opened for.

    Attributes:
        destination: what they show as JMSDestination.
        address: the destination's address in text.
        selector: condition, or None.
        no_local, subscription, durable, shared: as OPEN_CONSUMER has them.
    """

    destination: Destination
    address: str
    selector: str | None
    no_local: bool
    subscription: str | None
    durable: bool
    shared: bool


class EngineConsumer:
    """One consumer of a session. Created by :meth:`EngineSession.open_consumer`.

    Args:
        outbox, terms: of its connection.
        session: id of the session where it belongs.
        acknowledges_itself: the session's mode is AUTO or DUPS_OK.
        acknowledge_hook: what ``acknowledge()`` of its messages calls.
        average_bytes: returns the size of a message of late.
        received_bytes: returns how many bytes have come from the broker.
        number: its id, unique in the connection.
        selection: the messages that it is opened for; kept to open it again on a new connection.

    Attributes:
        opened: settled when the broker has opened or refused it.
        buffer: DELIVER commands the application has not taken, oldest first.
        stops: the reasons why nothing is handed over: :data:`STOPPED` and others, added up. 0 while messages may be
            handed over. Written under the lock.
        waker: called once, and forgotten, when there may be something to do for a waiter at this consumer: a
            message arrived, it was closed, the connection started or was lost.
        credit: what the broker may send. When `taken` reaches its mark, :meth:`top_up` is due, under the lock.
        session: id of its session.
        of_queue: its destination is a queue.
        lone: no other consumer can hold a message that it waits for: it is alone on its subscription or its temporary
            queue.
        gone: the reason why the broker closed this consumer; None if it did not.
        arrived: tag of the last message that has arrived.
        base: tags of the present connection begin behind this one; those of lost connections are not above it.
        handed_then: what `handed` was when the last connection was lost.
        failed_behind: while the broker's answer to RECOVER or ROLLBACK is due, the application has failed what lies
            behind this tag, up to `handed`; None at other times.
        refused: the last message whose body was not of the requested type.
    """

    __slots__ = (
        "_acknowledge_hook", "_outbox", "_ran_dry", "_waited_at", "acknowledges_itself", "arrived", "base", "buffer",
        "credit", "done", "failed_behind", "gone", "handed", "handed_then", "id", "lone", "of_queue", "opened",
        "refused", "selection", "session", "stops", "taken", "terms", "unsettled", "waker",
    )  # fmt: skip
    opened: Completion[Any]

    def __init__(
        self,
        outbox: Outbox,
        terms: Terms,
        session: int,
        acknowledges_itself: bool,
        acknowledge_hook: Callable[[], Any],
        average_bytes: Callable[[], int],
        received_bytes: Callable[[], int],
        number: int,
        selection: Selection,
    ) -> None:
        self._outbox = outbox
        self.terms = terms
        self.session = session
        self._acknowledge_hook = acknowledge_hook
        self.id = number
        self.selection = selection
        self.of_queue = isinstance(selection.destination, Queue)
        self.lone = not self.of_queue and not selection.shared
        self.buffer: deque[CommandTuple] = deque()
        self.waker: Callable[[], None] | None = None
        self.stops = STOPPED
        self.gone: Exception | None = None
        self.acknowledges_itself = acknowledges_itself
        # Written by the receiving thread of control alone.
        self.handed = 0  # tag of the last message the application saw
        self.done = 0  # AUTO and DUPS_OK sessions acknowledge up to this tag
        self.taken = 0  # messages taken since the credit was last reset
        self.refused: object = None
        # Written under the lock.
        self.credit = Credit(terms.options.prefetch, received_bytes, average_bytes)
        self._waited_at = 0  # `taken` at the last wait for the empty buffer
        self._ran_dry = False  # half a window was taken between the last two waits
        self.base = self.handed_then = self.arrived = 0
        self.failed_behind: int | None = None
        # True while this consumer is in the connection's list of pending acknowledgements.
        self.unsettled = False

    @property
    def flowing(self) -> bool:
        """True if messages may be handed over. False as soon as `stop` or `close` begins."""
        return not self.stops

    @property
    def shut(self) -> bool:
        """True once closing has begun, here or above: waiting calls return None (CLO-06)."""
        return self.stops >= SHUT

    @property
    def closed(self) -> bool:
        """True once it is closed."""
        return self.stops >= CLOSED

    # -- taking messages; lock-free ----------------------------------------------------------------------------------

    def take(self, for_good: bool = False) -> Message | None:
        """The next message of the buffer for the application, or None if there is none.

        The caller has checked `stops`. What it took counts as seen; in a session that acknowledges itself it stays
        unacknowledged until :meth:`settle`.

        Args:
            for_good: settle it, if the session acknowledges itself.
        """
        try:
            command = self.buffer.popleft()
            fields = command[4]
            if fields[4]:  # it has an expiration
                while fields[4] and self.terms.is_expired(fields[4]):  # EXP-03
                    self._give_back((command[2],))
                    command = self.buffer.popleft()
                    fields = command[4]
        except IndexError:
            return None
        self.handed = command[2]
        self.taken += 1
        message = _received(fields, self.selection.destination, command[3], self._acknowledge_hook)
        if for_good and self.acknowledges_itself:
            self.done = self.handed  # first: see acknowledged()
            if not self.unsettled:
                self.settle()
        return message

    def settle(self) -> None:
        """Acknowledge everything taken so far with the next write (ACK-01, ACK-02, D-25)."""
        self.done = self.handed
        if not self.unsettled:
            self.unsettled = True
            self._outbox.unsettled.append(self)

    def unsettle(self) -> None:
        """The last message taken did not reach the application because of an interrupt: it counts as not taken."""
        if self.acknowledges_itself and self.done == self.handed:
            self.done -= 1

    def take_for_good(self) -> Message | None:
        """As :meth:`take`, for good."""
        return self.take(True)

    def _give_back(self, tags: tuple[int, ...]) -> None:
        # Counted as taken, not as released: `released` belongs to the other side.
        self.taken += len(tags)
        packed = pack((Command.RELEASE, self.id, tags, True))
        self._outbox.put(packed, len(packed))

    # -- the rest needs the engine lock --------------------------------------------------------------------------------

    def open(self, started: bool, undo: Undo) -> Completion[Any]:
        """Send OPEN_CONSUMER; answered by :attr:`opened`. Deliveries must be routed here from now on.

        Args:
            started: the connection is started: messages may arrive immediately.
            undo: closes it, if no caller waits for the answer any more.
        """
        credit = self.first_credit if started else 0
        self.credit.open(0, credit)
        self.opened = self._outbox.request(Command.OPEN_CONSUMER, *self.fields(credit), undo=undo)
        return self.opened

    def has_opened(self, started: bool, shut: bool) -> None:
        """The broker has opened it.

        Args:
            started: the connection lets messages flow.
            shut: its session is being closed.
        """
        if shut:
            self.shut_gate()
        self.set_flowing(started, top_up=not self.credit.granted)

    def fields(self, credit: int) -> tuple[object, ...]:
        """The fields of OPEN_CONSUMER behind its request."""
        _, address, selector, no_local, subscription, durable, shared = self.selection
        dialect = self.terms.options.dialect
        return (
            self.session, self.id, address, selector, dialect, no_local, subscription, durable, shared, credit,
            self.base, self.credit.bytes,
        )  # fmt: skip

    def peek(self) -> Message | None:
        """The message that :meth:`take` would return; it stays in the buffer (JCO-09)."""
        buffer = self.buffer
        while buffer:
            command = buffer[0]
            expiration = command[_DELIVERED_FIELDS][EXPIRATION]
            if expiration and self.terms.is_expired(expiration):
                buffer.popleft()
                self._give_back((command[_DELIVERED_TAG],))
                continue
            return _received(
                command[_DELIVERED_FIELDS],
                self.selection.destination,
                command[_DELIVERED_COUNT],
                self._acknowledge_hook,
            )
        return None

    def refuse(self) -> None:
        """The message that :meth:`peek` has given has another type than requested, in a session that acknowledges
        itself. The first time the message stays as it is (JCO-09). Each further time is a failed attempt:
        it counts as seen, and the front recovers the session."""
        name = _name(self.buffer[0])
        if name == self.refused:
            self.see()
        self.refused = name

    def see(self) -> None:
        """Take the message that :meth:`peek` has given: it counts as seen."""
        self.handed = self.buffer.popleft()[_DELIVERED_TAG]
        self.taken += 1

    @property
    def first_credit(self) -> int:
        """The credit to open a consumer with. One with a selector on a queue often wants a single message and is closed
        then: it gets that one with the answer, and holds no other that would have to go back."""
        credit = self.credit
        return 1 if self.of_queue and self.selection.selector is not None and credit.adaptive else credit.size

    @property
    def holds_nothing(self) -> bool:
        """True if neither the buffer nor the way from the broker can have a message, nor will."""
        return self.credit.granted - self.taken - self.credit.released <= 0 and not self.buffer

    def top_up(self) -> None:
        """Grant the credit that the window allows, with a due acknowledgement."""
        if self.stops:
            return
        room = self.credit.refill(self.taken, self._ran_dry)
        self._ran_dry = False
        if room <= 0:
            return
        if self.unsettled:
            self.unsettled = False  # its place in the list is skipped
            self._outbox.append((Command.ACKNOWLEDGE, self.id, self.done, room))
        else:
            self._outbox.append((Command.CREDIT, self.id, room))

    def expect(self) -> bool:
        """A caller begins to wait because the buffer is empty: grant credit.

        Returns:
            True if :meth:`want` should follow at once, for there is no credit, or not for a lone consumer. False if it
            may follow a little later, :data:`PATIENCE`, and only if nothing has come by then: most often what is waited
            for is on its way, and a WANT would cost both ends more than the message. A lone consumer needs none then.
        """
        credit, taken = self.credit, self.taken
        # Half a window was taken without waiting: messages arrive as fast as the window allows.
        self._ran_dry = self._ran_dry or taken - self._waited_at >= credit.half
        self._waited_at = taken
        expected = credit.granted - taken - credit.released
        # The first message arrives alone (first_credit); this caller waits for a second one.
        if credit.size - expected >= credit.half and (taken or expected <= 0):
            self.top_up()
            expected = credit.granted - taken - credit.released
        return expected <= 0 or (self.lone and credit.received() >= credit.used_up_at)

    def rests(self) -> bool:
        """A listener has taken all there was, or it had expired: grant the credit that is due.

        Returns:
            True if there is something to write.
        """
        credit, taken = self.credit, self.taken
        if taken - self._waited_at < credit.half and taken < credit.mark and taken < credit.granted - credit.released:
            self._waited_at = taken
            if not self.lone or credit.received() < credit.used_up_at:
                return False
        elif not self.expect():
            return True
        self.want()
        return True

    def want(self, answered: bool = False) -> Completion[Any] | None:
        """A caller waits, and the buffer is empty: let the broker search everywhere (D-23, MCO-14).

        Args:
            answered: ask for an answer; it comes when everything that could be delivered now has arrived (MCO-05).
        """
        outbox = self._outbox
        if self.stops:
            if answered and outbox.repairing and not self.stops & (STOPPED | SHUT):
                return outbox.request(Command.WANT, self.id)  # sent once there is a connection
            return None
        self.expect()
        credit = self.credit
        if credit.granted - self.taken - credit.released <= 0:
            credit.lend()
        elif self.lone and not answered and credit.received() < credit.used_up_at:
            return None  # it has all that could be sent to it, and no other consumer to recall from
        credit.count_bytes()
        if answered:
            return outbox.request(Command.WANT, self.id)
        outbox.append((Command.WANT, 0, self.id))
        return None

    def arrive(self, command: CommandTuple) -> None:
        """A message has arrived."""
        self.arrived = command[_DELIVERED_TAG]
        self.buffer.append(command)
        if self.waker is not None:
            self.wake()

    def arrive_several(self, commands: list[CommandTuple]) -> None:
        """The same for consecutive messages, at least one."""
        self.arrived = commands[-1][_DELIVERED_TAG]
        self.buffer.extend(commands)
        self.wake()

    def recall(self, tags: Iterable[int]) -> None:
        """The broker recalls these for another consumer: return those that no application has seen, unmarked.

        Popped from the right, the youngest first: a thread that takes from the left meanwhile still sees the oldest
        first, so that a cumulative acknowledgement never covers a message that was not taken.
        """
        wanted = frozenset(tags)
        lowest = min(wanted, default=0)
        kept: list[CommandTuple] = []
        found: list[int] = []
        buffer = self.buffer
        try:
            while True:
                command = buffer.pop()
                tag = command[_DELIVERED_TAG]
                if tag in wanted:
                    found.append(tag)
                else:
                    kept.append(command)
                if tag <= lowest:
                    break
        except IndexError:
            pass
        kept.reverse()
        buffer.extend(kept)
        found.reverse()
        self.credit.release(len(found))
        self._outbox.append((Command.RELEASE, self.id, tuple(found)))

    def acknowledged(self) -> int | None:
        """The tag up to which it must be acknowledged; None if that was sent already."""
        if not self.unsettled:
            return None
        # In this order: a thread that settles meanwhile either sees False and calls again, or is covered by `done`.
        self.unsettled = False
        return self.done

    def fail(self) -> None:
        """The application has failed what it has, and the broker is to take it back."""
        if self.failed_behind is None:
            self.failed_behind = self.done

    def all_done(self) -> None:
        """Everything that was handed over is acknowledged, or was taken back."""
        self.done = self.handed_then = self.handed

    def forget_returned(self) -> None:
        """The application was informed about the messages that it received before the last loss."""
        self.handed_then = self.handed

    def recreate(self, started: bool, number: int | None) -> Completion[Any]:
        """Open it again on a connection that is being restored.

        Args:
            started: the connection lets messages flow.
            number: of an OPEN_CONSUMER that waits for its answer; None if it was open.
        """
        credit = 0 if self.shut or not started else self.credit.size
        self.credit.open(self.taken, credit)
        self._waited_at = self.taken
        self._ran_dry = False
        return self._outbox.send_first(Command.OPEN_CONSUMER, *self.fields(credit), number=number)

    def one_at_a_time(self) -> None:
        """Without prefetch a listener gets one message at a time."""
        if self.credit.size == 0:
            self.credit.set(1)

    def set_lone(self, lone: bool) -> None:
        """Another consumer of its temporary queue has come or gone. If one has come, a caller that waits sends WANT."""
        self.lone = lone
        if not lone:
            self.wake()

    def waits(self, waker: Callable[[], None] | None) -> None:
        """Set a callback for the waiting caller, called once when there may be something to do; None removes it."""
        self.waker = waker

    def end(self) -> None:
        """The connection is lost beyond repair."""
        self.stops |= LOST
        self.wake()

    def reset_credit(self) -> None:
        """The broker took back all buffered messages, and all credit (RECOVER, ROLLBACK)."""
        self.buffer.clear()
        self.taken = self._waited_at = 0
        self.credit.reset()

    def taken_back(self) -> None:
        """The broker has answered RECOVER or ROLLBACK."""
        self.failed_behind = None

    # -- a lost connection --------------------------------------------------------------------------------------------

    def freeze(self) -> int:
        """The connection is lost: hand over nothing more, since the broker delivers buffered messages again. They are
        removed from the right, the youngest first: a thread that takes from the left meanwhile gets the older ones.

        Returns:
            Up to which tag the application may have seen messages. A message that has not arrived is not among them.
        """
        self.stops |= LOST
        buffer = self.buffer
        first, last = 0, max(self.base, self.handed, self.arrived)
        try:
            while True:
                first = buffer.pop()[_DELIVERED_TAG]
        except IndexError:
            pass
        # Above every tag that can have been in transit. A thread may still be between taking a message and noting it.
        self.base = last + 2 * MAX_CREDIT
        self.handed_then = self.handed
        return first - 1 if first else self.arrived

    @property
    def holds_returned(self) -> bool:
        """The connection was lost while a message was handed over: the message no longer belongs to the application."""
        return self.handed_then < self.handed <= self.base

    # -- gates --------------------------------------------------------------------------------------------------------

    def set_flowing(self, flowing: bool, top_up: bool = True) -> None:
        """Open or shut the gate; opening grants credit, unless that was done, and wakes waiting callers."""
        if not flowing:
            self.stops |= STOPPED
            return
        self.stops &= ~(STOPPED | LOST)
        if not self.stops:
            if top_up:
                self.top_up()
            self.wake()

    def pause(self) -> None:
        """Hand nothing over until :meth:`go_on`."""
        self.stops |= PAUSED

    def go_on(self) -> None:
        """Open the gate again, as far as the connection flows, and wake the waiting caller in any case."""
        self.stops &= ~PAUSED
        if not self._outbox.repairing:
            self.set_flowing(not self.stops & STOPPED, top_up=self.taken >= self.credit.mark)
        self.wake()

    def wake(self) -> None:
        """Call the callback of the waiting caller, if there is one. It is removed after the call, so that an interrupt
        does not lose it."""
        waker = self.waker
        if waker is not None:
            waker()
            self.waker = None

    def has_gone(self, error: Exception) -> None:
        """The broker has closed it."""
        self.gone = error
        self.buffer.clear()
        self.mark_closed()

    def shut_gate(self) -> None:
        """Closing begins: nothing is handed over from here on, and waiting callers return."""
        self.stops |= SHUT
        self.wake()

    def mark_closed(self) -> None:
        """Closed: only close may be called any more (MCO-11). A message that was refused and not taken since goes back
        as seen, so that a restarted program does not get it unmarked for ever."""
        if self.refused is not None and self.buffer and _name(self.buffer[0]) == self.refused:
            self.see()
        self.stops |= SHUT | CLOSED
        self.wake()


def _name(command: CommandTuple) -> object:
    """Identifies a message across deliveries; a message without an id is identified by this delivery."""
    return command[_DELIVERED_FIELDS][MESSAGE_ID] or command[_DELIVERED_TAG]
