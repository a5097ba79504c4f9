"""Reaching a broker: the first host of the URL that answers, TLS, the handshake."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Sequence
from functools import partial

from sievemq._engine import ClientConnection, EngineOptions, Repair, for_how_long, is_passing
from sievemq._front.metadata import version
from sievemq.aio.transport import Reach, Transport, wall_clock
from sievemq.exceptions import JMSException
from sievemq.tls import of_tls, tls_of
from sievemq.url import BrokerURL

__all__ = ["connect"]

_log = logging.getLogger("sievemq")


async def connect(url: BrokerURL, user: str | None, password: str | None) -> tuple[ClientConnection, Transport]:
    """Open a connection on the running loop; hosts that cannot be reached are tried again for as long as the option
    `reconnect` says. Cancelled, it leaves none behind.

    Args:
        url: hosts, tried in order, and options.
        user, password: credentials; those of the URL if both are None.

    Raises:
        JMSSecurityException: the credentials are refused (FAC-02).
        InvalidClientIDException: the administered client id is in use (SUB-32).
        JMSException: no host could be reached.
    """
    options, chosen = EngineOptions.from_url(url, user, password, f"sievemq-python/{version()} asyncio"), url.options
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("sievemq.aio needs a running event loop of asyncio; trio has none") from None
    reach = partial(_reach, url, tls_of(url))
    repair = Repair(options.reconnect, chosen.reconnect_delay, chosen.reconnect_max_delay)
    repair.begin(int(loop.time() * 1000.0))
    waits = False
    while True:
        pause = repair.pause(int(loop.time() * 1000.0), random.random())  # noqa: S311  not for secrets
        await asyncio.sleep(pause / 1000.0)
        try:
            return await _open(url, options, reach, repair)
        except JMSException as error:
            if not is_passing(error) or not repair.left(int(loop.time() * 1000.0)):
                raise
            if not waits:
                waits = True
                _log.warning("%s; trying again %s", error, for_how_long(options.reconnect))


async def _open(
    url: BrokerURL, options: EngineOptions, reach: Reach, repair: Repair
) -> tuple[ClientConnection, Transport]:
    """One attempt."""
    chosen = url.options
    engine = ClientConnection(options, wall_clock)
    transport = Transport(
        engine,
        asyncio.get_running_loop(),
        chosen.request_timeout,
        hosts=url.hosts,
        repair=repair,
        reach=reach,
        connect_timeout=chosen.connect_timeout,
    )
    await transport.connect(reach, repair)
    try:
        limit = chosen.connect_timeout
        await transport.wait_at_most(engine.open(), limit, f"{url} accepts connections but says nothing")
    except BaseException:
        engine.leave()  # no caller waits any more: if WELCOME came in this very turn, the loss is not to be repaired
        transport.abort()
        raise
    transport.keep_alive()
    return engine, transport


async def _reach(
    url: BrokerURL,
    context: ssl.SSLContext | None,
    transport: Transport,
    hosts: Sequence[tuple[int, tuple[str, int]]],
    seconds: float,
) -> int:
    """Connect to the first host that answers; its number."""
    failures: list[str] = []
    last: OSError | None = None
    for number, (host, port) in hosts:
        name = (url.options.tls_server_name or host) if context is not None else None
        try:
            async with asyncio.timeout(seconds):
                await transport.loop.create_connection(lambda: transport, host, port, ssl=context, server_hostname=name)
        except OSError as error:  # an SSLError is one, a TimeoutError too
            failures.append(f"{host}:{port}: {of_tls(error) if isinstance(error, ssl.SSLError) else _reason(error)}")
            last = error
        else:
            return number
    # A certificate that is not trusted now will not be trusted a moment later.
    code = "TLS" if isinstance(last, ssl.SSLCertVerificationError) else "CONNECTION_FAILED"
    raise JMSException(f"no broker could be reached: {'; '.join(failures)}", code, last)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error.strerror or error)
