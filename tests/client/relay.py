"""A network between a client and a broker that a test can cut: anywhere, at a byte, for a while."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import struct
import threading
from collections import deque
from types import TracebackType
from typing import Any, Self

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class _Pair:
    """One connection through the relay."""

    def __init__(self, client: socket.socket, broker: socket.socket, limits: tuple[int | None, int | None]) -> None:
        self.client, self.broker = client, broker
        self.passed = [0, 0]  # bytes from the client, from the broker
        self.limits = limits
        self.open = True
        self.waiting: tuple[bytearray, bytearray] = (bytearray(), bytearray())

    def ends(self, direction: int) -> tuple[socket.socket, socket.socket]:
        return (self.client, self.broker) if direction == 0 else (self.broker, self.client)


class Relay:
    """Forwards connections from a port of its own to a broker's.

    Args:
        host, port: the broker's.

    Attributes:
        accepted: connections so far.
        changed: notified when something is kept; see :meth:`keep`.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self.changed = threading.Condition(self._lock)
        self._kept = [False, False]
        self._pairs: list[_Pair] = []
        self._limits: deque[tuple[int | None, int | None]] = deque()
        self._holding = False
        self._held: list[_Pair] = []
        self._stopping = False
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._bell, self._clapper = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._refusing = False
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def url(self, url: str) -> str:
        """A broker's URL with the relay in between."""
        return url.replace(f":{self._target[1]}", f":{self.port}")

    def forward_to(self, port: int, host: str = "127.0.0.1") -> None:
        """Let connections that come from now on reach another broker."""
        self._target = (host, port)

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def cut_next(self, up: int | None = None, down: int | None = None) -> None:
        """Cut a connection that is still to come, when so many bytes have passed from the client, or from the broker;
        called again for the one after it."""
        self._limits.append((up, down))

    def cut(self, orderly: bool = False) -> int:
        """Cut what is open now: with a reset, or as if the broker had closed; how many connections."""
        with self._lock:
            pairs = [pair for pair in self._pairs if pair.open]
            for pair in pairs:
                self._end(pair, orderly)
            return len(pairs)

    def cut_one(self, chance: random.Random) -> bool:
        """Cut one connection, chosen and in a way chosen by chance: at once, or in the middle of what passes next."""
        with self._lock:
            pairs = [pair for pair in self._pairs if pair.open]
            if not pairs:
                return False
            pair, how = chance.choice(pairs), chance.random()
            if how < 0.5:
                self._end(pair, orderly=how < 0.2)
            else:
                direction = chance.randrange(2)
                limits = [None, None]
                limits[direction] = pair.passed[direction] + chance.randint(1, 2_000)  # type: ignore[call-overload]
                pair.limits = (limits[0], limits[1])
            self._pairs = [pair for pair in self._pairs if pair.open]
            return True

    def refuse(self) -> None:
        """Take connections and end them at once, until :meth:`accept`."""
        self._refusing = True

    def accept(self) -> None:
        """Forward connections again."""
        self._refusing = False

    def stand(self) -> None:
        """Let nothing pass, in either direction, and close nothing: the connections that are open now are dead for
        ever, new ones are not."""
        with self._lock:
            for pair in self._pairs:
                if pair.open:
                    for sock in (pair.client, pair.broker):
                        with contextlib.suppress(KeyError):
                            self._selector.unregister(sock)

    def hold(self) -> None:
        """Take connections and let nothing of them pass, until :meth:`go_on`."""
        self._holding = True

    def go_on(self) -> None:
        """Let pass what the held connections have sent since, although its sender may have gone."""
        self._holding = False
        with self._lock:
            held, self._held = self._held, []
            for pair in held:
                self._register(pair)

    @property
    def idle(self) -> bool:
        """No connection is open."""
        with self._lock:
            return not any(pair.open for pair in self._pairs)

    def keep(self, direction: int) -> None:
        """Keep what comes from the client (0) or from the broker (1), until :meth:`release`."""
        with self._lock:
            self._kept[direction] = True

    def release(self) -> None:
        """Forward what was kept, and what comes from now on."""
        with self._lock:
            self._kept = [False, False]
            for pair in self._pairs:
                for direction in (0, 1):
                    if pair.open and pair.waiting[direction]:
                        self._write(pair, direction, pair.ends(direction)[1])

    def keeps(self, direction: int) -> bool:
        """True if something from that side is kept. The lock of :attr:`changed` is held."""
        return any(pair.open and pair.waiting[direction] for pair in self._pairs)

    def until_kept_or(self, direction: int, over: threading.Event) -> None:
        """As :meth:`until_kept`, from either side if both are kept, or once that is set by :meth:`ring`."""

        def ready() -> bool:
            return over.is_set() or self.keeps(direction) or (self._kept[1 - direction] and self.keeps(1 - direction))

        with self.changed:
            assert self.changed.wait_for(ready, 100), "nothing came"

    def ring(self, over: threading.Event) -> None:
        """Set what :meth:`until_kept_or` waits for, too."""
        with self.changed:
            over.set()
            self.changed.notify_all()

    def until_kept(self, direction: int) -> None:
        """Return once something from that side is kept: a request has left, or its answer is on its way."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.keeps(direction), 60), "nothing came"

    def passed(self, number: int = -1) -> tuple[int, int]:
        """Bytes of one connection, from the client and from the broker."""
        return tuple(self._pairs[number].passed)  # type: ignore[return-value]

    def close(self) -> None:
        """End everything."""
        self._stopping = True
        self._clapper.send(b"\0")
        self._thread.join()
        for pair in self._pairs:
            pair.client.close()
            pair.broker.close()
        self._selector.close()
        for sock in (self._listener, self._bell, self._clapper):
            sock.close()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._take()
                elif key.fileobj is not self._bell:
                    with self._lock:
                        self._move(*key.data, events)

    def _take(self) -> None:
        client, _ = self._listener.accept()
        self.accepted += 1
        if self._refusing:
            client.close()
            return
        try:
            broker = self._reach()
        except OSError:
            client.close()
            return
        limits = self._limits.popleft() if self._limits else (None, None)
        pair = _Pair(client, broker, limits)
        with self._lock:
            self._pairs.append(pair)
            if self._holding:
                self._held.append(pair)
            else:
                self._register(pair)
            if 0 in limits:
                self._end(pair)

    def _reach(self) -> socket.socket:
        broker = socket.create_connection(self._target)
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return broker

    def _register(self, pair: _Pair) -> None:
        pair.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for direction in (0, 1):
            sock, _ = pair.ends(direction)
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, (pair, direction))

    def _move(self, pair: _Pair, direction: int, events: int) -> None:
        if not pair.open:
            return
        source, sink = pair.ends(direction)
        try:
            if events & selectors.EVENT_WRITE:
                self._write(pair, 1 - direction, source)
            if events & selectors.EVENT_READ:
                data = source.recv(65_536)
                if not data:
                    self._end(pair, orderly=True)
                    return
                limit = pair.limits[direction]
                last = limit is not None and pair.passed[direction] + len(data) >= limit
                if last:
                    data = data[: limit - pair.passed[direction]]  # type: ignore[operator]
                pair.passed[direction] += len(data)
                pair.waiting[direction].extend(data)
                self._write(pair, direction, sink)
                if last:
                    self._end(pair, orderly=True)  # what has passed arrives
        except BlockingIOError:
            pass
        except OSError:
            self._end(pair)

    def _write(self, pair: _Pair, direction: int, sink: socket.socket) -> None:
        waiting = pair.waiting[direction]
        if self._kept[direction]:
            self.changed.notify_all()
            return
        with contextlib.suppress(BlockingIOError):
            while waiting:
                del waiting[: sink.send(waiting)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waiting else 0)
        self._selector.modify(sink, events, (pair, 1 - direction))

    def _end(self, pair: _Pair, orderly: bool = False) -> None:
        pair.open = False
        for sock in (pair.client, pair.broker):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            with contextlib.suppress(OSError):
                if not orderly:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()


def options(**chosen: Any) -> dict[str, Any]:
    """Options of a client whose losses are repaired fast, for tests that cut often."""
    return {"reconnect": 60_000, "reconnect_delay": 1, "reconnect_max_delay": 20, **chosen}
