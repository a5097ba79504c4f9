"""Reaching a broker while another thread waits: an attempt may hang in a name server, a connect, TLS, a silent peer.

Each host has a thread of its own, without a waiter: one that is abandoned closes what it has opened.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from sievemq._engine import LEAVE_SECONDS, Handshake, Host, Race
from sievemq.exceptions import JMSException
from sievemq.tls import failure_of, refuses_certificate

Reach: TypeAlias = Callable[[tuple[str, int], float], socket.socket]
"""Connects to a host within so many seconds, TLS included. Raises JMSException."""

Greet: TypeAlias = Callable[[tuple[str, int]], Handshake]
"""Makes a HELLO for a host."""


class Found(NamedTuple):
    """A host that has welcomed the client: its number, the socket, what was said there."""

    number: int
    sock: socket.socket
    handshake: Handshake


READ_BYTES: Final = 128 * 1024


class Attempt:
    """One round over the hosts.

    Args:
        race: decides which host is tried when.
        changed: called from a host's thread when :meth:`step` has something to do.

    Attributes:
        ready: :meth:`step` has something to do.
    """

    __slots__ = ("_abandoned", "_changed", "_ended", "_found", "_greet", "_lock", "_race", "_reach", "_socks", "ready")

    def __init__(self, race: Race, reach: Reach, greet: Greet, changed: Callable[[], None]) -> None:
        self._race = race
        self._reach, self._greet = reach, greet
        self._changed = changed
        self._lock = threading.Lock()
        self._abandoned = False
        self._socks: dict[int, socket.socket] = {}  # connected, and not welcomed yet
        self._found: Found | None = None
        self._ended: list[tuple[int, JMSException]] = []
        self.ready = False

    def step(self) -> float | None:
        """Begin with the hosts that are due. Returns seconds until it is to be called again; None if the round is over:
        then :meth:`take` has the result."""
        race = self._race
        with self._lock:
            self.ready = False
            for number, error in self._ended:
                race.failed(number, error)
            self._ended.clear()
            if self._found is not None:
                return None
            now = _milliseconds()
            if race.is_over(now):
                for number in self._socks:
                    race.failed(number, JMSException("it accepts connections but says nothing", "TIMEOUT"))
                return None
        while (host := race.next(now)) is not None:
            threading.Thread(target=self._run, args=(host,), name="sievemq-reconnect", daemon=True).start()
        return race.wait(now) / 1000.0

    def take(self) -> Found | None:
        """The host that has welcomed the client, if one has. The others are left."""
        with self._lock:
            self._abandoned = True
            found, self._found = self._found, None
            for sock in self._socks.values():  # their threads notice, and close them
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RD)  # of the socket below TLS
        return found

    # -- the thread of one host ---------------------------------------------------------------------------------------

    def _run(self, host: Host) -> None:
        number, address = host
        sock: socket.socket | None = None
        try:
            sock = self._reach(address, self._left)
            if self._enter(number, sock):
                handshake = self._greet(address)
                self._exchange(number, sock, handshake)
                return
            error = JMSException("another host was faster", "CONNECTION_FAILED")
        except JMSException as raised:
            error = raised
        except Exception as raised:  # a defect
            error = JMSException(f"no broker could be reached: {raised}", "CONNECTION_FAILED", raised)
        if sock is not None:
            sock.close()
        self._end(number, error)

    @property
    def _left(self) -> float:
        return max(0.001, (self._race.until - _milliseconds()) / 1000.0)

    def _enter(self, number: int, sock: socket.socket) -> bool:
        """The host is connected; False if that is of no use any more."""
        with self._lock:
            if not self._abandoned:
                self._socks[number] = sock
            return not self._abandoned

    def _exchange(self, number: int, sock: socket.socket, handshake: Handshake) -> None:
        """Send HELLO and wait for its answer."""
        error: JMSException | None = None
        try:
            sock.settimeout(self._left)
            sock.sendall(handshake.data_to_send())
            while not handshake.over and not self._abandoned:
                sock.settimeout(self._left)
                data = sock.recv(READ_BYTES)
                if data:
                    handshake.receive_data(data)
                elif not self._abandoned:
                    handshake.lost(None)
        except TimeoutError:
            error = JMSException("it accepts connections but says nothing", "TIMEOUT")
        except OSError as raised:
            if not self._abandoned:
                handshake.lost(failure_of(raised, "", False) if refuses_certificate(raised) else raised)
        error = error or handshake.error or JMSException("another host was faster", "CONNECTION_FAILED")
        with self._lock:
            del self._socks[number]
            won = handshake.welcome is not None and not self._abandoned and self._found is None
            if won:
                self._found = Found(number, sock, handshake)
            else:  # in the same step, so that each host always has a socket or a reason
                self._ended.append((number, error))
        self._notify()
        if not won:
            with suppress(OSError):
                sock.settimeout(LEAVE_SECONDS)
                sock.sendall(handshake.leave())
            sock.close()

    def _end(self, number: int, error: JMSException) -> None:
        with self._lock:
            self._ended.append((number, error))
        self._notify()

    def _notify(self) -> None:
        self.ready = True
        self._changed()


def _milliseconds() -> int:
    return int(time.monotonic() * 1000.0)
