"""Reaching a broker: one round over the hosts, of which the first that welcomes the client is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from sievemq._engine import LEAVE_SECONDS, Handshake, Host, Race
from sievemq.exceptions import JMSException
from sievemq.tls import failure_of, refuses_certificate

Greet: TypeAlias = Callable[[tuple[str, int]], Handshake]
"""Makes a HELLO for a host."""


class Candidate(asyncio.Protocol):
    """The socket of one host until it has welcomed the client.

    Args:
        number: of the host.
        greet: makes the HELLO.

    Attributes:
        transport: None until it is connected, and once it is closed.
        handshake: None until it is connected.
        over: done when the handshake is.
    """

    def __init__(self, number: int, address: tuple[str, int], greet: Greet) -> None:
        self.number = number
        self.address = address
        self._greet = greet
        self.transport: asyncio.Transport | None = None
        self.handshake: Handshake | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, TLS is set up: send HELLO."""
        self.transport = cast("asyncio.Transport", transport)
        self.handshake = self._greet(self.address)
        self.transport.write(self.handshake.data_to_send())

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        if self.handshake is not None:
            self.handshake.receive_data(data)
            self._check()

    def eof_received(self) -> bool:
        """The peer has closed the connection."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self.transport = None
        if self.handshake is not None:
            self.handshake.lost(failure_of(exc, "", False) if exc is not None and refuses_certificate(exc) else exc)
            self._check()

    def _check(self) -> None:
        if self.handshake is not None and self.handshake.over and not self.over.done():
            self.over.set_result(None)

    def leave(self) -> None:
        """Close the socket: another host was faster, or the time is over."""
        transport, self.transport = self.transport, None
        if transport is not None and self.handshake is not None:
            transport.write(self.handshake.leave())
            transport.close()
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, transport.abort)


Reach: TypeAlias = Callable[[Candidate], Awaitable[None]]
"""Connects a candidate to its host, TLS included. Raises JMSException."""


async def attempt(race: Race, reach: Reach, greet: Greet) -> Candidate | None:
    """The host that has welcomed the client; None if none has. The others are left, also if this is cancelled.

    Args:
        race: decides which host is tried when; what came of each is reported there.
    """
    loop = asyncio.get_running_loop()
    tasks: dict[asyncio.Task[None], Candidate] = {}
    found: Candidate | None = None

    async def run(candidate: Candidate) -> None:
        await reach(candidate)
        await candidate.over

    def begin(host: Host) -> None:
        candidate = Candidate(*host, greet)
        tasks[loop.create_task(run(candidate), name="sievemq-connect")] = candidate

    try:
        while not race.is_over(now := int(loop.time() * 1000.0)):
            while (host := race.next(now)) is not None:
                begin(host)
            ended, _ = await asyncio.wait(tasks, timeout=race.wait(now) / 1000.0, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                candidate = tasks[task]
                error = _error_of(task, candidate)
                if error is None:
                    found = found or candidate
                else:
                    del tasks[task]
                    candidate.leave()
                    race.failed(candidate.number, error)
            if found is not None:
                return found
        for candidate in tasks.values():
            if candidate.handshake is not None:
                race.failed(candidate.number, JMSException("it accepts connections but says nothing", "TIMEOUT"))
        return None
    finally:
        for task, candidate in tasks.items():
            if candidate is not found:
                task.cancel()
                candidate.leave()


def _error_of(task: asyncio.Task[None], candidate: Candidate) -> JMSException | None:
    """Why a host has not welcomed the client; None if it has."""
    error = task.exception()
    if isinstance(error, JMSException):
        return error
    if error is not None:  # a defect
        return JMSException(f"no broker could be reached: {error}", "CONNECTION_FAILED", error)
    assert candidate.handshake is not None
    return candidate.handshake.error
