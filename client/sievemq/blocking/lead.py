"""A thread that waits for the broker reads the socket itself, so that no other thread must wake it (decision 0020).

While one thread leads, the I/O thread does not watch for bytes to read; it does all else. Other waiting threads follow:
what the leader reads wakes them. The leader stops as soon as it has what it waits for, or on request of:

- another thread (:meth:`Lead.rouse`): its consumer was closed, the connection is lost;
- the I/O thread that takes the socket away (:meth:`Lead.evict`);
- a signal handler that waits for the broker in the leader's own thread (:meth:`Lead.give_up`). The leader's poll goes
  on when the handler returns: it finds a byte then, and checks whether the handler's wait has read what it waits for.

A thread that has sent something since it last waited expects an answer. While answers come at once it polls for a
moment before it sleeps (decision 0022).

A session's delivery thread that has nothing to deliver waits like any other. A thread that has waited usually waits
again soon. So the end of a lead wakes the I/O thread to watch again only if something needs it; otherwise it does so at
its next tick, within milliseconds (decision 0021).

Everything but :meth:`Lead.wait` and :meth:`Lead.rouse` needs the transport's lock.
"""

from __future__ import annotations

import os
import select
import socket
import time
from _thread import LockType, allocate_lock, get_ident
from itertools import chain
from math import ceil
from typing import Final, Protocol

from sievemq_core.wire.connection import BusyPoll

__all__ = ["CAN_LEAD", "Lead"]

#: The I/O thread waits in an epoll, which another thread may change while it does.
CAN_LEAD: Final = hasattr(select, "epoll") and hasattr(select, "poll")


#: Yields the processor; where that is impossible there is no polling.
_give_way: Final = getattr(os, "sched_yield", None)

#: For polling: one thread of a process at a time, since two would take the interpreter's lock from each other.
_looking: Final = allocate_lock()

#: Seconds; a poll takes no more than this many milliseconds, as a C int.
_LONGEST: Final = 1e6


class _Bell:
    """Has a leader look around, where it waits in a poll."""

    __slots__ = ("_ears", "_hand", "fd", "rung")

    def __init__(self) -> None:
        self._ears, self._hand = socket.socketpair()
        self._ears.setblocking(False)
        self._hand.setblocking(False)
        self.fd = self._ears.fileno()
        self.rung = False

    def ring(self) -> None:
        """Have whoever polls for :attr:`fd` find something there."""
        if not self.rung:
            self.rung = True
            try:
                self._hand.send(b"\0")
            except OSError:  # closed: nobody polls any more
                pass

    def hush(self) -> None:
        """Nothing is there any more."""
        try:
            self._ears.recv(64)
        except OSError:  # nothing was; or closed, while a signal handler kept this thread
            pass
        self.rung = False  # last: who rings before does not know that its byte is taken, but what it says is seen

    def close(self) -> None:
        self._ears.close()
        self._hand.close()

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """What it is made of."""
        return self._ears, self._hand


class _Transport(Protocol):
    """What the leader needs of the transport whose socket it reads."""

    @property
    def lock(self) -> LockType: ...

    @property
    def asleep(self) -> bool:
        """The I/O thread would not notice by itself that there is something to write."""

    @property
    def asked(self) -> int:
        """How often something was said to the broker that it may answer."""

    @property
    def heeded(self) -> bool:
        """What is read concerns others than the waiting thread: callbacks of sends."""

    @property
    def can_be_led(self) -> bool:
        """A waiting thread may read the socket."""

    def fileno(self) -> int:
        """The socket's file descriptor."""

    def watch(self) -> None:
        """Wake the I/O thread for what is left to it. The lock is held."""

    def read_for_leader(self) -> None:
        """Read the socket in the leader's thread. The lock is held."""


class Lead:
    """The thread that reads the socket of a transport in place of its I/O thread.

    Args:
        transport: whose.
        busy_poll: whether who expects an answer looks for it before it sleeps.

    Attributes:
        thread: the leader's; None if the I/O thread reads.
    """

    __slots__ = (
        "_asked",
        "_bell",
        "_busy_poll",
        "_evicted",
        "_expects",
        "_followers",
        "_left",
        "_over",
        "_poll",
        "_transport",
        "_woken",
        "thread",
    )

    def __init__(self, transport: _Transport, busy_poll: BusyPoll) -> None:
        self._transport = transport
        self._busy_poll = busy_poll if _give_way is not None else BusyPoll(0)
        self.thread: int | None = None
        self._evicted = self._over = self._expects = False
        self._asked = 0
        self._followers: set[LockType] = set()
        self._poll: select.poll | None = None  # for the present socket, unless a thread is still in it
        self._woken: LockType | None = None  # of the leader
        self._left: dict[LockType, list[_Bell]] = {}  # by what wakes those who gave up: they poll for these still
        self._bell: _Bell | None = None

    def begin(self, woken: LockType) -> None:
        """This thread is going to wait; :meth:`end` follows. It leads, if no other does and the socket is of use.

        Args:
            woken: released by whoever wakes this thread.
        """
        self.give_up()
        transport = self._transport
        if self.thread is not None or self._over or not transport.can_be_led:
            self._followers.add(woken)
            if self.thread is None:
                transport.watch()
            return
        self._evicted = False
        asked = transport.asked
        self._expects, self._asked = asked != self._asked, asked
        self._woken = woken
        self.thread = get_ident()
        transport.watch()
        if self._poll is None:
            self._poll = self._make_poll()

    def _make_poll(self) -> select.poll:
        if self._bell is None:
            self._bell = _Bell()
        poll = select.poll()
        poll.register(self._transport.fileno(), select.POLLIN)
        poll.register(self._bell.fd, select.POLLIN)  # behind the socket: ready ones are returned in this order
        return poll

    def wait(self, woken: LockType, seconds: float) -> bool:
        """Wait until woken, or until the time is over; a leader reads meanwhile. Without the transport's lock.

        Args:
            woken: as :meth:`begin` was given.
            seconds: at most; negative for no limit.

        Returns:
            True if woken.
        """
        me = get_ident()
        begun = time.monotonic()
        end = None if seconds < 0 else begun + seconds
        while not woken.acquire(False):
            left = -1.0 if end is None else end - time.monotonic()
            if end is not None and left <= 0.0:
                return False
            poll = self._poll
            if self.thread != me or self._evicted or poll is None:  # the I/O thread has to read, or does
                with self._transport.lock:
                    self._followers.add(woken)
                    self._hand_over()
                return woken.acquire(timeout=left)
            ready = self._look(poll, left) if self._expects else None
            if not ready:
                ready = poll.poll(None if end is None else ceil(min(left, _LONGEST) * 1000.0))
            with self._transport.lock:
                if self.thread != me:  # gave up
                    continue
                bell = self._bell
                if bell is not None and (bell.rung or (ready and ready[-1][0] == bell.fd)):
                    bell.hush()
                if not self._evicted:
                    self._transport.read_for_leader()
        if self._expects and self.thread == me:
            self._busy_poll.waited(time.monotonic() - begun)
        return True

    def _look(self, poll: select.poll, seconds: float) -> list[tuple[int, int]] | None:
        """What is ready, if that comes at once and looking for it is worth while.

        Args:
            poll: what to ask.
            seconds: at most; negative for no limit.
        """
        if not self._busy_poll.worth or not _looking.acquire(False):
            return None
        assert _give_way is not None
        try:
            most = self._busy_poll.seconds
            end = time.monotonic() + (most if seconds < 0 else min(seconds, most))
            while not (ready := poll.poll(0)) and time.monotonic() < end:
                _give_way()
            return ready
        finally:
            _looking.release()

    def end(self, woken: LockType) -> None:
        """Somebody does not wait any more.

        Args:
            woken: as :meth:`begin` was given.
        """
        self._followers.discard(woken)
        if self._left:
            for bell in self._left.pop(woken, ()):
                bell.close()
        self._hand_over()

    def _hand_over(self) -> None:
        """The I/O thread reads again, if this thread was the leader."""
        transport = self._transport
        if self.thread == get_ident():
            self.thread = None
            if self._bell is not None and self._bell.rung:
                self._bell.hush()
            if self._over:
                self.close()
        if self.thread is None and (self._followers or transport.heeded or transport.asleep):
            transport.watch()

    def give_up(self) -> None:
        """This thread is going to wait for something else: a signal handler does, in the middle of a wait."""
        if self.thread == get_ident():
            self._evicted = True
            self._poll = None  # it may be in it
            if self._woken is not None and self._bell is not None:
                self._bell.ring()
                self._left.setdefault(self._woken, []).append(self._bell)
                self._bell = None
            self._hand_over()

    def rouse(self) -> None:
        """Have the leader look whether it is woken; nothing to do in its own thread. What it is to see is there before:
        then the lock is not needed."""
        bell = self._bell
        if bell is not None and self.thread is not None and self.thread != get_ident():
            bell.ring()

    def evict(self) -> None:
        """The socket is of no use any more."""
        self._poll = None
        if self.thread is not None:
            self._evicted = True
            self.rouse()

    def close(self) -> None:
        """Nobody leads any more; who still does ends it."""
        self._over = True
        if self.thread is not None:
            self.evict()
            return
        if self._bell is not None:
            self._bell.close()

    def forget(self) -> list[socket.socket]:
        """In a child made by fork: there is no leader. Returns sockets that are the parent's."""
        self.thread, self._poll, self._over = None, None, True
        bells = [*chain.from_iterable(self._left.values()), *([self._bell] if self._bell else [])]
        return [end for bell in bells for end in bell.sockets]
