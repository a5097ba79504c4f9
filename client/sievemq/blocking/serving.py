"""Running an application of listeners until a signal, in the main thread."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from sievemq.blocking.delivery import Delivery
from sievemq.listening.health import answering

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

#: Seconds between two looks at whether listeners have returned.
_LOOK: Final = 0.005

#: Seconds of one wait for the end. On Windows a signal does not end a wait: Python handles it after that.
_WAIT: Final = 0.5 if sys.platform == "win32" else None


class Application(Protocol):
    """What is run; :class:`~sievemq.Listeners` is one."""

    @property
    def healthy(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def _ended(self) -> None: ...

    def _told(self) -> None: ...

    @property
    def _failure(self) -> Exception | None: ...


class Ending:
    """That an application is to end, and then, that it is to end at once."""

    __slots__ = ("_queue", "_told")

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()  # the one that a signal handler may put something into
        self._told = 0

    def end(self) -> None:
        """The application cannot listen any more, or has been stopped. May be called again."""
        self._queue.put(None)

    def tell(self) -> None:
        """A signal has come: end; or, the second time, end at once."""
        self._told += 1
        self._queue.put(None)

    def wait(self) -> None:
        while True:
            with suppress(Empty):
                self._queue.get(timeout=_WAIT)
                return

    @property
    def hurried(self) -> bool:
        return self._told > 1


def finished(deliveries: Sequence[Delivery], seconds: float, ending: Ending) -> bool:
    """Wait until no listener runs but those that wait for a lost connection (D-43). False if the time is over, or if it
    is to end at once."""
    until = time.monotonic() + seconds
    while any(delivery.busy for delivery in deliveries):
        if ending.hurried or time.monotonic() >= until:
            return False
        time.sleep(_LOOK)
    return True


class _Stopped(BaseException):
    """A signal has come while the application was starting."""


def serve(application: Application, health: str | None) -> None:
    """Start, wait for a signal or for the end, stop.

    Args:
        health: ``host:port`` of the probes; None for none.
    """
    starting = told_early = False
    failure: Exception | None = None

    def told() -> None:
        nonlocal starting, told_early
        told_early = True
        if starting:
            starting = False  # once: a second signal must not break into the end
            raise _Stopped
        application._told()

    with signals(told), answering(health, lambda: application.healthy):
        try:
            starting = True
            if told_early:
                raise _Stopped
            application.start()
            starting = False
            application._ended()
            failure = application._failure
        except _Stopped:
            pass
        finally:
            starting = False
            application.stop()
    if failure is not None:
        raise failure


@contextmanager
def signals(told: Callable[[], None]) -> Iterator[None]:
    """Call a function at each signal to end; not outside of the main thread, where none comes."""

    def handle(number: int, frame: Any) -> None:
        told()

    before: dict[signal.Signals, Any] = {}
    try:
        for number in SIGNALS:
            before[number] = signal.signal(number, handle)
    except ValueError:
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
