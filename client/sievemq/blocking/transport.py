"""The socket of a connection, its I/O thread, and when bytes are written.

One lock guards the engine, reading, and the order of writes. The I/O thread reads, or a thread that waits for a message
(:class:`Lead`); the sending thread writes, unless more is likely to follow at once:

- a thread that waits for the broker writes before it waits;
- a send on an idle connection is written by its caller at once. While writes for each would take too much of the time,
  sends are gathered: for the time of a few writes, in a flood for a millisecond, to at most 64 KiB
  (:class:`~sievemq._engine.Pace`). So are those that other threads queue during a write;
- what then remains, the I/O thread writes within about a millisecond; acknowledgements and closed consumers within
  about five.

While something remains, and for a while after, the I/O thread looks every few milliseconds; otherwise it sleeps until
the socket or :meth:`Transport.nudge` wakes it. So a busy sender pays for a wake-up once in many messages.
"""

from __future__ import annotations

import atexit
import os
import random
import select
import selectors
import socket
import ssl
import sys
import threading
import time
from _thread import LockType, allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from math import ceil
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from sievemq._engine import ACKNOWLEDGE_DELAY, SEND_DELAY, ClientConnection, Completion, Pace, Race, Repair, Sends
from sievemq.blocking.repair import READ_BYTES, Attempt, Found, Greet, Reach
from sievemq.exceptions import JMSException
from sievemq_core.limits import GATHER_BYTES

T = TypeVar("T")

#: Rounds of the I/O thread without anything to write, after which it sleeps.
_QUIET_ROUNDS: Final = 10
#: Seconds: what a selector can wait for has a limit.
_LONGEST: Final = 3600.0


def wall_clock(_time: Callable[[], int] = time.time_ns) -> int:
    """Milliseconds since 1970-01-01 UTC, never one that has not begun: the broker counts them in the same way."""
    return _time() // 1_000_000


# -- a thread that waits reads (decisions 0020, 0021, 0022) ------------------------------------------------------------

#: The I/O thread waits in an epoll, which another thread may change while it does.
CAN_LEAD: Final = hasattr(select, "epoll") and hasattr(select, "poll")

if sys.platform == "win32":
    _Poll: TypeAlias = Any
else:
    _Poll: TypeAlias = select.poll

#: Yields the processor to other threads; a platform without it does not poll.
_give_way: Final = getattr(os, "sched_yield", None)

#: The thread that polls, 0 if none does: one of a process at a time, since two would take the interpreter's lock from
#: each other. A lock would stay held for ever if a signal handler raised an exception behind its acquire().
_polling_thread = 0

#: Seconds; a poll takes no more than this many milliseconds, as a C int.
_LONGEST_POLL: Final = 1e6

# -- which thread reads the socket: its states, and the state that follows each at an event --------------------------
#
#   state     the socket is read by                      at begin   leave   evict     close
#   FREE      the I/O thread                             LED        FREE    FREE      ENDED
#   LED       a waiting thread, the leader               LED        FREE    EVICTED   ENDING
#   EVICTED   no thread, until its leader leaves         EVICTED    FREE    EVICTED   ENDING
#   ENDING    no thread; the leader has not left yet     ENDING     ENDED   ENDING    ENDING
#   ENDED     no thread                                  ENDED      ENDED   ENDED     ENDED
#
# begin: a thread begins to wait, and the socket can be waited for; leave: the leader waits no more, or waits for
# something else; evict: the socket is of no use any more; close: the transport ends.

FREE: Final = 0
LED: Final = 1
EVICTED: Final = 2
ENDING: Final = 3
ENDED: Final = 4

AT_BEGIN: Final = (LED, LED, EVICTED, ENDING, ENDED)
AT_LEAVE: Final = (FREE, FREE, FREE, ENDED, ENDED)
AT_EVICT: Final = (FREE, EVICTED, EVICTED, ENDING, ENDED)
AT_CLOSE: Final = (ENDED, ENDING, ENDING, ENDING, ENDED)


class _WakePipe:
    """Wakes a leader that waits in a poll."""

    __slots__ = ("_read_end", "_write_end", "fd", "signalled")

    def __init__(self) -> None:
        self._read_end, self._write_end = socket.socketpair()
        self._read_end.setblocking(False)
        self._write_end.setblocking(False)
        self.fd = self._read_end.fileno()
        self.signalled = False

    def signal(self) -> None:
        """Make :attr:`fd` readable for the thread that polls it."""
        if not self.signalled:
            self.signalled = True
            try:
                self._write_end.send(b"\0")
            except OSError:  # closed: no thread polls it any more
                pass

    def drain(self) -> None:
        try:
            self._read_end.recv(64)
        except OSError:  # empty; or closed while a signal handler kept this thread
            pass
        self.signalled = False  # last: a signal before this is lost, but its cause is seen

    def close(self) -> None:
        self._read_end.close()
        self._write_end.close()

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        return self._read_end, self._write_end


class _Socket(Protocol):
    """The part of a transport that the leader of its socket uses."""

    @property
    def lock(self) -> LockType | _LockAtExit: ...

    @property
    def asleep(self) -> bool:
        """The I/O thread sleeps, and must be woken to write."""

    @property
    def asked(self) -> int:
        """The number of writes that the broker may answer."""

    @property
    def has_callbacks(self) -> bool:
        """Input may concern other threads than the waiting one: callbacks of sends."""

    @property
    def can_be_led(self) -> bool:
        """A waiting thread may read the socket."""

    def fileno(self) -> int:
        """The socket's file descriptor."""

    def watch(self) -> None:
        """Wake the I/O thread for the rest of the work. The lock is held."""

    def read_for_leader(self) -> None:
        """Read the socket in the leader's thread. The lock is held."""


class _User(Protocol):
    """What has locks and threads beside those of its transport."""

    def forget_threads(self) -> None:
        """In a child made by fork: no other thread is there, and none will release a lock."""


class Lead:
    """A thread that waits for the broker reads the socket itself, the leader: no other thread has to wake it for that
    (decision 0020). The I/O thread does not watch for bytes meanwhile; it does all else. Other threads that wait, the
    followers, are woken by what the leader reads.

    The leader stops as soon as its wait ends, and in these cases:

    - another thread wakes it (:meth:`rouse`): its consumer was closed, or the connection is lost;
    - the I/O thread takes the socket away (:meth:`evict`);
    - a signal handler waits for the broker in the leader's own thread (:meth:`give_up`). The leader's poll continues
      when the handler returns: it finds a byte in the pipe, and checks whether the handler's wait has read its answer.

    A leader expects an answer if the client has written since the leader last waited. Where the option `busy_poll` says
    so, it polls for the answer before it blocks (decision 0022). When it leaves, it wakes the I/O thread to watch the
    socket only if another thread depends on that; otherwise the I/O thread watches in its next round, within
    milliseconds (0021).

    Everything but :meth:`wait` and :meth:`rouse` needs the transport's lock.

    Args:
        busy_poll: seconds for which a leader that expects an answer polls before it blocks; 0 for never.

    Attributes:
        state: one of the table above.
        thread: the leader's; None if there is none.
    """

    __slots__ = (
        "_asked", "_busy_poll", "_expects", "_followers", "_left", "_pipe", "_poll", "_transport", "_woken", "state",
        "thread",
    )  # fmt: skip

    def __init__(self, transport: _Socket, busy_poll: float) -> None:
        self._transport = transport
        self._busy_poll = busy_poll if _give_way is not None else 0.0
        self.thread: int | None = None
        self.state: int = FREE
        self._expects = False
        self._asked = 0
        self._followers: set[LockType] = set()
        self._poll: _Poll | None = None  # for the present socket; None while a thread is still in it
        self._woken: LockType | None = None  # of the leader
        self._left: dict[LockType, list[_WakePipe]] = {}  # polled by threads that gave up, by their locks
        self._pipe: _WakePipe | None = None

    def begin(self, woken: LockType) -> None:
        """This thread is going to wait; :meth:`end` follows. It becomes the leader if there is none and the socket is
        of use.

        Args:
            woken: released by the thread that wakes this one.
        """
        me, transport = get_ident(), self._transport
        if self.thread == me:
            self.give_up()
        if self.state != FREE or not transport.can_be_led:
            self._followers.add(woken)
            if self.thread is None:
                transport.watch()
            return
        self.state, self.thread = AT_BEGIN[self.state], me  # no interrupt comes in between
        asked = transport.asked
        self._expects, self._asked = asked != self._asked, asked
        self._woken = woken
        transport.watch()
        if self._poll is None:
            self._poll = self._make_poll()

    def _make_poll(self) -> _Poll:
        if self._pipe is None:
            self._pipe = _WakePipe()
        if sys.platform != "win32":
            poll = select.poll()
            poll.register(self._transport.fileno(), select.POLLIN)
            poll.register(self._pipe.fd, select.POLLIN)  # behind the socket: poll lists what is ready in this order
            return poll
        raise NotImplementedError("see CAN_LEAD")

    def wait(self, woken: LockType, seconds: float) -> bool:
        """Wait until woken, or until the time is over; a leader reads meanwhile. Without the transport's lock.

        Args:
            seconds: at most; negative for no limit.

        Returns:
            True if woken.
        """
        me = get_ident()
        end = None if seconds < 0 else time.monotonic() + seconds
        while not woken.acquire(False):
            left = -1.0 if end is None else end - time.monotonic()
            if end is not None and left <= 0.0:
                return False
            poll = self._poll
            if self.thread != me or self.state != LED or poll is None:  # the I/O thread has to read, or does
                with self._transport.lock:
                    self._followers.add(woken)
                    self._hand_over()
                return woken.acquire(timeout=left)
            ready = self._look(poll, left) if self._busy_poll and self._expects else None
            if not ready:
                ready = poll.poll(None if end is None else ceil(min(left, _LONGEST_POLL) * 1000.0))
            with self._transport.lock:
                if self.thread != me:  # gave up
                    continue
                pipe = self._pipe
                if pipe is not None and (pipe.signalled or (ready and ready[-1][0] == pipe.fd)):
                    pipe.drain()
                if self.state == LED:
                    self._transport.read_for_leader()
        return True

    def _look(self, poll: _Poll, seconds: float) -> list[tuple[int, int]] | None:
        """Poll: the ready descriptors, if some become ready; None if another thread polls.

        Args:
            poll: the poll object of socket and wake pipe.
            seconds: at most; negative for no limit.
        """
        global _polling_thread
        assert _give_way is not None
        me = get_ident()
        if _polling_thread:
            return None
        _polling_thread = me  # no call before the try: no interrupt comes between
        try:
            ready: list[tuple[int, int]]
            most = self._busy_poll
            end = time.monotonic() + (most if seconds < 0 else min(seconds, most))
            while not (ready := poll.poll(0)) and time.monotonic() < end:
                _give_way()
            return ready
        finally:
            if _polling_thread == me:  # else a thread that began in the same moment has it
                _polling_thread = 0

    def end(self, woken: LockType) -> None:
        """This thread does not wait any more."""
        self._followers.discard(woken)
        if self._left:
            for pipe in self._left.pop(woken, ()):
                pipe.close()
        self._hand_over()

    def _hand_over(self) -> None:
        """The I/O thread reads again, if this thread was the leader."""
        transport = self._transport
        if self.thread == get_ident():
            self.state, self.thread = AT_LEAVE[self.state], None
            if self._pipe is not None and self._pipe.signalled:
                self._pipe.drain()
            if self.state == ENDED:
                self.close()
        if self.thread is None and (self._followers or transport.has_callbacks or transport.asleep):
            transport.watch()

    def give_up(self) -> None:
        """This thread is going to wait for something else: a signal handler does, in the middle of a wait."""
        if self.thread == get_ident():
            self._poll = None  # it may be in it
            if self._woken is not None and self._pipe is not None:
                self._pipe.signal()
                self._left.setdefault(self._woken, []).append(self._pipe)
                self._pipe = None
            self._hand_over()

    def rouse(self) -> None:
        """Have the leader check whether it is woken; no effect in its own thread. The caller has changed the state that
        the leader will see: so the lock is not needed."""
        pipe = self._pipe
        if pipe is not None and self.thread is not None and self.thread != get_ident():
            pipe.signal()

    def evict(self) -> None:
        """The socket has failed or is being replaced."""
        self._poll = None
        self.state = AT_EVICT[self.state]
        self.rouse()

    def close(self) -> None:
        """Leading ends. A leader that has not left yet closes the pipe."""
        self.state = AT_CLOSE[self.state]
        self._poll = None
        if self.state == ENDED:
            if self._pipe is not None:
                self._pipe.close()
        else:
            self.rouse()

    def forget(self) -> list[socket.socket]:
        """In a child made by fork: there is no leader. Returns sockets that are the parent's."""
        self.state, self.thread, self._poll = ENDED, None, None
        pipes = [*chain.from_iterable(self._left.values()), *([self._pipe] if self._pipe else [])]
        return [end for pipe in pipes for end in pipe.sockets]


# -- the transport -----------------------------------------------------------------------------------------------------


class Transport:
    """Moves bytes between an engine and a connected socket; opens another one when that is lost.

    Args:
        engine: the engine; from here on only used with :attr:`lock` held, as :mod:`sievemq._engine` says.
        sock: connected; TLS is set up already. Belongs to the transport.
        request_timeout: milliseconds that the answer to a request may take; 0 for no limit.
        hosts: the hosts to reconnect to; none to not reconnect.
        secure: over TLS.
        greet: makes a HELLO for a host; called with :attr:`lock` held.
        connect_timeout: milliseconds for one round over the hosts.

    Attributes:
        lock: guards the engine, reading, and the order of writes.
        lead: a waiting thread that reads in place of the I/O thread.
        asleep: True while the I/O thread sleeps, and must be woken to write.
        rests: the same for sends: it would write them too late otherwise.
        asked: the number of writes that the broker may answer.
        has_callbacks: input may concern other threads: callbacks of sends. Set without the lock; stays.
    """

    __slots__ = (
        "__weakref__", "_abandoned", "_backlog", "_close_by", "_connect_timeout", "_engine", "_greet", "_hosts",
        "_more", "_opened", "_outages", "_pace", "_patience", "_reach", "_repair", "_secure", "_selector", "_socket",
        "_stopping", "_thread", "_users", "_wake_in", "_wake_out", "_watched", "asked", "asleep", "has_callbacks",
        "lead", "lock", "rests",
    )  # fmt: skip

    def __init__(
        self,
        engine: ClientConnection,
        sock: socket.socket,
        request_timeout: int = 0,
        *,
        hosts: Sequence[tuple[str, int]] = (),
        secure: bool = False,
        repair: Repair | None = None,
        reach: Reach | None = None,
        greet: Greet | None = None,
        connect_timeout: int = 10_000,
    ) -> None:
        self._engine = engine
        self._hosts, self._secure = hosts, secure
        self._repair, self._reach, self._greet = repair, reach, greet
        self._connect_timeout = connect_timeout
        self._outages = 0  # those that the repair has counted
        self._opened = _milliseconds()
        self._close_by = 0.0  # by when it closes, once it was abandoned
        self._users: WeakSet[_User] = WeakSet()
        self._patience = request_timeout / 1000.0 if request_timeout else -1.0
        self._socket = sock
        sock.setblocking(False)
        self.lock: LockType | _LockAtExit = allocate_lock()
        self.asleep = self.rests = self.has_callbacks = False
        self.asked = 0
        self._pace = Pace()
        self._backlog: deque[memoryview] = deque()  # written by the engine, not yet taken by the socket
        self._more = self._tls  # TLS has decrypted more than was read; the selector does not see that
        self._stopping = self._abandoned = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self.lead = Lead(self, engine.options.busy_poll / 1e6)
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._watched = selectors.EVENT_READ
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="sievemq-io", daemon=True)

    def serve(self, user: _User) -> None:
        """Have something that uses the transport informed in a child made by fork."""
        self._users.add(user)

    def start(self) -> None:
        _running.add(self)
        self._thread.start()

    def wait(self, completion: Completion[T]) -> T:
        """Write, wait until the completion is settled, return its value or raise its error; without a limit, since a
        broker at its limits holds back confirms.

        Never called with the lock held, nor by the I/O thread.
        """
        return self._wait(completion, -1.0, "")

    def wait_for_room(self, opened: Completion[T]) -> None:
        """As :meth:`wait`, for a sender that waits until it may send more."""
        self._wait(opened, -1.0, "")
        self._pace.waited(time.monotonic())

    def wait_until(self, completion: Completion[T], until: float) -> bool:
        """Write, and wait for a completion, at most until that time by the monotonic clock; True if it is settled."""
        try:
            self._wait(completion, max(0.0, until - time.monotonic()), "")
        except JMSException:
            return completion.done
        return True

    def _wait(self, completion: Completion[T], seconds: float, failure: str) -> T:
        if not completion.done:
            lead = self.lead
            settled = allocate_lock()
            settled.acquire()

            def settle(_: object) -> None:
                if settled.locked():
                    settled.release()
                lead.rouse()

            try:
                with self.lock:
                    completion.add_callback(settle)
                    self.write()
                    lead.begin(settled)
                check_alive()
                in_time = lead.wait(settled, seconds)
                with self.lock:
                    lead.end(settled)
            except BaseException:  # an interrupt perhaps, wherever it was: in `end` too
                with self.lock:
                    lead.end(settled)
                raise
            if not in_time:
                raise JMSException(f"{failure} ({seconds:g} s)", "TIMEOUT")
        return completion.result()

    def expect(self, sends: Sends, completion: Completion[Any] | None, timeout: int, sequence: int = 0) -> None:
        """Something may wait for room so long and no longer: arguments as of :meth:`ClientConnection.expect`."""
        with self.lock:
            self._engine.expect(sends, completion, _milliseconds(), timeout, sequence)
        if self.asleep or self._engine.repairing:
            self.wake()

    def expect_commit(self, sends: Sends, answer: Completion[Any], timeout: int) -> Completion[None]:
        """A commit may take only so long: arguments and value as of :meth:`ClientConnection.expect_commit`."""
        with self.lock:
            wait = self._engine.expect_commit(sends, answer, _milliseconds(), timeout)
        self.wake()
        return wait

    def ask(self, request: Callable[[], Completion[T]]) -> T:
        """Send a request and wait for its answer. If a signal handler interrupts the wait or its time is over, what the
        request makes is undone when it is answered (:meth:`Outbox.abandon`).

        Raises:
            JMSException: no answer within the option `request_timeout`; what the broker answered; the connection is
                lost.
        """
        made: list[Completion[T]] = []  # at once, under the lock: an interrupt behind it does not lose it
        try:
            self.call(lambda: made.append(request()))
            return self._wait(made[0], self._patience, "the broker has not answered within the option request_timeout")
        except BaseException:
            if made:
                with self.lock:
                    self._engine.outbox.abandon(made[0])
                    self.write_urgent()
            raise

    def close_by(self, share: float = 1.0) -> float:
        """By the monotonic clock: until when what closes now may wait for the broker (D-43)."""
        return time.monotonic() + share * self._engine.options.close_timeout / 1000.0

    def until_lost(self, completion: Completion[Any]) -> Completion[None]:
        """As :meth:`ClientConnection.until_lost`."""
        return self.call(lambda: self._engine.until_lost(completion))

    def end(self, request: Callable[[], Completion[Any]], until: float) -> bool:
        """Send a request that closes something, and wait for its answer if it has one: until then, and no longer than
        there is a connection.

        Args:
            until: by the monotonic clock.

        Returns:
            False if there was no answer.

        Raises:
            JMSException: what the broker answered.
        """
        completion = self.call(request)
        if completion.done:
            self.flush_later()
        else:
            self.wait_until(self.until_lost(completion), until)
        if completion.done:
            completion.result()
        return completion.done

    def undone(self) -> None:
        """Wait until abandoned requests are undone.

        Raises:
            JMSException: they are not within the option `request_timeout`.
        """
        if self._engine.outbox.requests.abandoned:
            self.ask(self._engine.outbox.undone)

    def call(self, work: Callable[[], T]) -> T:
        """Call the engine under the lock; a request that it makes is not waited for."""
        outbox = self._engine.outbox
        with self.lock:
            last = outbox.requests.last
            try:
                return work()
            except Exception:
                raise
            except BaseException as error:  # KeyboardInterrupt, for example
                outbox.abandon_since(last)
                self._broken(error)
                raise

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self) -> bool:
        """Write the engine's output; False if there was none. The lock is held."""
        outbox = self._engine.outbox
        try:
            begun, queued = time.monotonic(), len(outbox.queue)
            if queued:
                self.asked += 1
            data = outbox.data_to_send()
            if data:
                self._pace.begin(begun, queued)
                # The window of unconfirmed sends bounds what can gather here.
                self._backlog.append(memoryview(data))
                if len(self._backlog) == 1:
                    self._push()
            return bool(data)
        except BaseException as error:
            self._broken(error)
            raise

    def broken(self, error: BaseException, sends: Sends | None = None) -> None:
        """An exception from outside, of a signal handler most likely, broke into the engine. Its work is half done, so
        the connection is lost, and repaired according to its options. No confirmed message is lost.
        """
        with self.lock:
            if sends is not None:
                sends.mend()
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        self._backlog.clear()
        self._engine.interrupted(error)
        self.wake()

    def write_urgent(self) -> None:
        """Write unless there are only acknowledgements, which the I/O thread sees to. The lock is held."""
        if self._engine.outbox.urgent:
            self.write()

    def flush_soon(self) -> None:
        """Write the engine's output. The lock is held."""
        self.write()

    def flush_later(self) -> None:
        """A command was queued that no call waits for: see that it is written within a few milliseconds. Not at once,
        since most often a request follows, to be written with it. The lock is not held."""
        if self.asleep:
            self.nudge()

    def flush(self) -> None:
        """Take the lock and write."""
        with self.lock:
            self.write()

    def queued(self, has_callbacks: bool = False) -> None:
        """A send was queued that is not waited for: write it now, or see that it is written with others soon."""
        if has_callbacks:
            self.has_callbacks = True
        pace, outbox = self._pace, self._engine.outbox
        if time.monotonic() >= pace.due or outbox.queued_bytes >= GATHER_BYTES:
            with self.lock:
                # Once more for what other threads have queued meanwhile: they leave it to this one.
                while self.write() and outbox.queue and time.monotonic() >= pace.due:
                    pass
        elif self.rests:
            self.wake()

    def nudge(self) -> None:
        """Something is to be acknowledged while the I/O thread is asleep: see that it is written within a few
        milliseconds. Not at once, since a reply would be: most often that follows."""
        if time.monotonic() - self._pace.written > 2 * SEND_DELAY:
            self.flush()
        elif self.asleep:
            self.wake()

    def wake(self) -> None:
        self.asleep = self.rests = False
        try:
            self._wake_out.send(b"\0")
        except (BlockingIOError, OSError):  # full: it is about to wake; closed: it has ended
            pass

    def _push(self) -> None:
        """Hand the backlog to the socket, as far as it takes it. The lock is held."""
        backlog = self._backlog
        try:
            while backlog:
                data = backlog[0]
                sent = self._socket.send(data)
                if sent < len(data):
                    backlog[0] = data[sent:]
                else:
                    del backlog[0]
            self._pace.end(time.monotonic())
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if threading.current_thread() is not self._thread:
                self.wake()  # to watch for room
        except OSError as error:
            self._engine.lost(error)
            backlog.clear()
            self.wake()

    # -- the I/O thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        engine = self._engine
        try:
            while True:
                self._serve()
                if self._stopping or not engine.usable or not self._find_another():
                    break
        except Exception as error:  # a defect: no thread may wait for an I/O thread that has ended
            with self.lock:
                engine.leave()
                engine.lost(error)
        finally:
            self._close()

    def _serve(self) -> None:
        """Read and write until the socket has failed."""
        engine = self._engine
        quiet = 0
        while True:
            quiet = 0 if engine.has_output else quiet + 1
            for key, _ in self._selector.select(self._pause(quiet)):
                if key.fileobj is self._wake_in:
                    quiet = 0
                    self._drain_wakes()
            self.asleep = self.rests = False
            if self._stopping or engine.down:
                return
            if self._abandoned and not engine.closing:
                with self.lock:
                    engine.close()
                    self._close_by = self.close_by()
                    self.write()
            self._receive()
            self._write_what_waited()
            if not engine.reads:  # else it would find the end of the stream again and again
                return

    def _pause(self, quiet: int) -> float | None:
        """Seconds to wait for the socket at most."""
        engine = self._engine
        with self.lock:
            beat = engine.tick(int(time.monotonic() * 1000.0))
            self.watch()
            if self._stopping or self._more or engine.down:
                return 0.0
            if self._abandoned and engine.closing:
                if time.monotonic() > self._close_by:
                    engine.lost(TimeoutError("the broker has not answered within the option close_timeout"))
                return max(0.0, self._close_by - time.monotonic())
            if engine.outbox.queue:
                return SEND_DELAY
            # In this order: a thread that queues output from here on sees that it must wake this one, or is seen below.
            self.rests = True
            pause: float | None = ACKNOWLEDGE_DELAY
            if quiet >= _QUIET_ROUNDS and not engine.outbox.unsettled:
                self.asleep = True
                pause = None if beat is None else beat / 1000.0
        if engine.outbox.queue or (self.asleep and engine.has_output):
            self.asleep = self.rests = False
            return SEND_DELAY
        return pause

    def _receive(self) -> None:
        self._more = False
        for _ in range(8):  # then others have a turn: heartbeats, writes
            with self.lock:
                if self.lead.thread is not None or not self._read():
                    return
        self._more = self._tls

    def _read(self) -> bool:
        """Read once, and carry out what that says; False if there is nothing more. The lock is held: so that bytes are
        carried out in the order in which they were read, and OpenSSL does not read and write one connection at once."""
        engine = self._engine
        if not engine.reads:  # what the old socket still has is not for the connection to come
            return False
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            engine.lost(error)
            return False
        if data:
            engine.receive_data(data)
        else:
            engine.receive_eof()
        if engine.outbox.urgent:
            self.write()
        return (len(data) == READ_BYTES or self._tls) and engine.reads

    def _write_what_waited(self) -> None:
        engine = self._engine
        if self._backlog:
            with self.lock:
                self._push()
        if engine.has_output:
            # By a clock that neither an administrator nor a test sets back or stops.
            now = time.monotonic()
            if now >= self._pace.written + ACKNOWLEDGE_DELAY or (engine.outbox.queue and now >= self._pace.due):
                self.flush()

    def _drain_wakes(self) -> None:
        try:
            self._wake_in.recv(4096)
        except BlockingIOError:
            pass

    # -- for a leader -------------------------------------------------------------------------------------------

    @property
    def _tls(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket)

    @property
    def can_be_led(self) -> bool:
        """A waiting thread may read. Not with TLS: what is decrypted already cannot be waited for."""
        outbox = self._engine.outbox
        lost = outbox.repairing or outbox.failure is not None
        return CAN_LEAD and not (self._tls or self._stopping or lost or outbox.closed)

    def fileno(self) -> int:
        return self._socket.fileno()

    def watch(self) -> None:
        """Have the I/O thread woken for what it has to do. The lock is held."""
        reads = 0 if self.lead.thread is not None else selectors.EVENT_READ
        events = reads | (selectors.EVENT_WRITE if self._backlog else 0)
        if events != self._watched and self._socket.fileno() >= 0:
            try:
                self._selector.modify(self._socket, events)  # none at all only where it is an epoll, which takes that
            except KeyError:
                # An exception of a signal handler inside modify() has unregistered the socket: it can only be replaced.
                self._engine.lost(OSError("a signal handler interrupted the wait for the broker"))
                self.wake()
                return
            self._watched = events  # last: an interrupt before has it done again

    def read_for_leader(self) -> None:
        """Read in the leader's thread. The lock is held."""
        engine = self._engine
        try:
            self._read()
        except BaseException as error:
            self.lead.evict()
            self.wake()
            if threading.current_thread() is not threading.main_thread() and isinstance(error, Exception):
                # A defect, for signal handlers run in the main thread: as where the I/O thread has one.
                engine.leave()
                engine.lost(error)
                return
            self._broken(error)
            raise
        if not engine.reads:
            self.lead.evict()
            self.wake()  # to see to that

    # -- another socket -----------------------------------------------------------------------------------------------

    def _find_another(self) -> bool:
        """The socket is lost: connect another one and have the engine send HELLO on it. False if there is none."""
        engine, repair, reach, greet = self._engine, self._repair, self._reach, self._greet
        self._drop_socket()
        if repair is None or reach is None or greet is None:
            with self.lock:
                engine.give_up()
            return False
        if self._outages != engine.outages:
            self._outages = engine.outages
            repair.begin(_milliseconds(), self._opened)
        while self._rest(repair.pause(_milliseconds(), random.random()) / 1000.0):  # noqa: S311  not for secrets
            now = _milliseconds()
            left = repair.left(now)
            if left <= 0:
                with self.lock:
                    engine.give_up()
                return False
            race = Race(
                repair.order(*engine.terms.hosts(self._hosts)),
                now,
                now + min(left, self._connect_timeout),
                secure=self._secure,
            )
            attempt = Attempt(race, reach, lambda peer: self.call(lambda: greet(peer)), self.wake)
            going_on = True
            while going_on and (seconds := attempt.step()) is not None:
                going_on = self._rest(seconds, lambda attempt=attempt: attempt.ready)  # type: ignore[misc]
            found = attempt.take()
            if not going_on:
                if found is not None:
                    found.sock.close()
                return False
            if found is not None:
                return self._take(found)
            with self.lock:
                if race.refusal is not None:
                    engine.give_up(race.refusal)
                    return False
                engine.attempt_failed(race.error())
        return False

    def _drop_socket(self) -> None:
        with self.lock:
            self.lead.evict()
            with suppress(KeyError):  # an interrupt has unregistered it: see watch()
                self._selector.unregister(self._socket)
            self._socket.close()
            self._backlog.clear()
            self._pace = Pace()
            self._more = False

    def _take(self, found: Found) -> bool:
        """Continue on another socket. False if the connection was closed meanwhile."""
        engine, sock = self._engine, found.sock
        sock.setblocking(False)
        with self.lock:
            if not engine.repairing:
                sock.close()
                return False
            self._socket = sock
            self._more = self._tls
            self._selector.register(sock, selectors.EVENT_READ)
            self._watched = selectors.EVENT_READ
            self._opened = _milliseconds()
            engine.welcomed(found.handshake)
            self.watch()
            self.write()
        return True

    def _rest(self, seconds: float, over: Callable[[], bool] = lambda: False) -> bool:
        """Wait for a time, or until it is over; False if the transport is being closed meanwhile."""
        until = time.monotonic() + seconds
        while not over():
            if self._over or not self._engine.repairing:
                return False
            left = until - time.monotonic()
            if left <= 0.0:
                break
            with self.lock:  # calls whose timeout is over end in an outage, too
                beat = self._engine.tick(_milliseconds())
            if beat is not None:
                left = min(left, beat / 1000.0)
            if self._selector.select(min(left, _LONGEST)):
                self._drain_wakes()
        return not self._over and self._engine.repairing

    @property
    def _over(self) -> bool:
        return self._stopping or self._abandoned

    # -- the end ------------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Have the I/O thread close the connection, which nothing refers to any more. The garbage collector calls it,
        in any thread at any moment: so it waits for nothing and takes no lock."""
        self._abandoned = True
        self.wake()

    def close(self, _: float = 0.0) -> None:
        """Close the socket and end the I/O thread. Idempotent; returns when the thread has ended, which waits for no
        peer."""
        with self.lock:
            self._stopping = True
        self.wake()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join()

    def discard(self) -> None:
        """Close the sockets. The I/O thread has not started, or ends by that."""
        if self._thread.is_alive():
            self.close()
        else:
            self._close()

    def _close(self) -> None:
        with self.lock:
            self._engine.leave()
            self._engine.lost(None)  # nothing is heard any more; no effect after an orderly close
            self.lead.close()
            self._selector.close()
            for sock in (self._socket, self._wake_in, self._wake_out):
                sock.close()

    def exit(self) -> None:
        """The process ends: write what the I/O thread would have written a moment later, within a second. From then on,
        nothing waits for a thread that the interpreter has stopped."""
        lock = self.lock
        if isinstance(lock, _LockAtExit):
            return
        self.lock = _LockAtExit(lock)
        if lock.acquire(timeout=1.0):
            try:
                if self._thread.is_alive():
                    self.write()
            finally:
                lock.release()

    def leave_to_the_parent(self) -> None:
        """It belongs to the process that this one was forked from."""
        self.lock = allocate_lock()  # an I/O thread may have held it, which is not here to release it
        for sock in (self._socket, self._wake_in, self._wake_out, *self.lead.forget()):
            if sock.fileno() >= 0:
                os.close(sock.detach())
        self._selector.close()
        for user in tuple(self._users):
            user.forget_threads()
        self._engine.disown()


def _milliseconds() -> int:
    """Of a clock that is never set."""
    return int(time.monotonic() * 1000.0)


def check_alive(_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    """Raise if nothing can be waited for any more: the interpreter ends, and the I/O threads have stopped.

    Raises:
        JMSException: the interpreter is shutting down; the caller probably is a ``__del__``.
    """
    if _finalizing():
        raise JMSException("the interpreter is shutting down: nothing can be sent or received")


class _LockAtExit:
    """The lock of a transport while the process ends. A daemon thread, and each I/O thread is one, stops wherever it is
    when the interpreter shuts down, and does not release what it holds: waiting for the lock would never end.

    Args:
        lock: the transport's own, which still keeps threads apart until then.
    """

    __slots__ = ("_check", "_lock")

    def __init__(self, lock: LockType) -> None:
        self._lock, self._check = lock, check_alive

    def __enter__(self) -> None:
        self._check()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


#: Transports that were started; those of connections that were not closed are still here when the process ends.
_running: WeakSet[Transport] = WeakSet()


@atexit.register
def _write_what_is_left() -> None:
    """The I/O threads end with the process."""
    for transport in tuple(_running):
        transport.exit()


def _leave_to_the_parent() -> None:
    """In a child made by fork: its connections are the parent's, and no I/O thread has come along. Neither a byte may
    be written here nor the parent's socket be shut down; every use raises instead of waiting for ever."""
    for transport in tuple(_running):
        transport.leave_to_the_parent()
    _running.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_to_the_parent)
