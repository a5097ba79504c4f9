"""Running an application of listeners until a signal, in a loop of its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from sievemq.aio.delivery import Delivery
from sievemq.aio.waiting import LOOK_SECONDS
from sievemq.listening.health import answering

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Application(Protocol):
    """What is run; :class:`~sievemq.aio.Listeners` is one."""

    @property
    def healthy(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def _ended(self) -> None: ...

    def _told(self) -> None: ...

    @property
    def _failure(self) -> Exception | None: ...


class Ending:
    """That an application is to end, and then, that it is to end at once."""

    __slots__ = ("_ended", "_hurried", "_told")

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self._hurried = asyncio.Event()
        self._told = False

    def end(self) -> None:
        """The application cannot listen any more, or has been stopped. May be called again."""
        self._ended.set()

    def tell(self) -> None:
        """A signal has come: end; or, the second time, end at once."""
        (self._hurried if self._told else self._ended).set()
        self._told = True

    async def wait(self) -> None:
        await self._ended.wait()

    async def hurried(self) -> None:
        await self._hurried.wait()


async def finished(deliveries: Sequence[Delivery], seconds: float, ending: Ending) -> bool:
    """Wait until no listener runs but those that wait for a lost connection (D-43). False if the time is over, or if it
    is to end at once."""
    until = asyncio.get_running_loop().time() + seconds + LOOK_SECONDS  # :meth:`Delivery.left` warns after it

    async def leave() -> None:
        for delivery in deliveries:
            await delivery.left(None, until)

    left, hurried = asyncio.ensure_future(leave()), asyncio.ensure_future(ending.hurried())
    try:
        await asyncio.wait([left, hurried], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return left.done()
    finally:
        for each in (left, hurried):
            each.cancel()
        await asyncio.gather(left, hurried, return_exceptions=True)


def serve(application: Application, health: str | None) -> None:
    """Start, wait for a signal or for the end, stop.

    Args:
        health: ``host:port`` of the probes; None for none.
    """
    asyncio.run(_serve(application, health))


async def _serve(application: Application, health: str | None) -> None:
    starting = asyncio.ensure_future(application.start())

    def told() -> None:
        if not starting.done():
            starting.cancel()
        else:
            application._told()

    with signals(told), answering(health, lambda: application.healthy):
        try:
            await starting
        except asyncio.CancelledError:
            return
        try:
            await application._ended()
            failure = application._failure
        finally:
            await application.stop()
    if failure is not None:
        raise failure


@contextmanager
def signals(told: Callable[[], None]) -> Iterator[None]:
    """Call a function in the running loop at each signal to end; not outside of the main thread, where none comes."""
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(told)

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
