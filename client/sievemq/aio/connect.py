"""Reaching a broker: the first host of the URL that welcomes the client, TLS, the handshake."""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial

from sievemq._engine import ClientConnection, EngineOptions, Handshake, Race, Repair, for_how_long
from sievemq.aio.repair import Candidate, attempt
from sievemq.aio.transport import Transport, wall_clock
from sievemq.tls import closed_early, failure_of, tls_of
from sievemq.url import BrokerURL
from sievemq_core.version import VERSION

_log = logging.getLogger("sievemq")


async def connect(url: BrokerURL, user: str | None, password: str | None) -> tuple[ClientConnection, Transport]:
    """Open a connection on the running loop; hosts that cannot be reached are tried again for as long as the option
    `reconnect` says. Cancelled, it leaves none behind.

    Args:
        url: hosts in order of preference, and options.
        user, password: credentials; those of the URL if both are None.

    Raises:
        JMSSecurityException: the credentials are refused (FAC-02).
        InvalidClientIDException: the administered client id is in use (SUB-32).
        InvalidURLException: no host has a name that can be one.
        JMSException: no host could be reached.
    """
    options, chosen = EngineOptions.from_url(url, user, password, f"sievemq-python/{VERSION} asyncio"), url.options
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("sievemq.aio needs a running event loop of asyncio; trio has none") from None
    engine = ClientConnection(options, wall_clock)
    repair = Repair(options.reconnect, chosen.reconnect_delay, chosen.reconnect_max_delay, len(url.hosts))
    repair.begin(int(loop.time() * 1000.0))
    reach, waits = partial(_reach, url), False

    def greet(peer: tuple[str, int]) -> Handshake:
        return engine.hello(peer, closed_early(url))

    while True:
        pause = repair.pause(int(loop.time() * 1000.0), random.random())  # noqa: S311  not for secrets
        await asyncio.sleep(pause / 1000.0)
        now = int(loop.time() * 1000.0)
        left = repair.left(now) or None
        race = Race(repair.order(url.hosts, 0), now, now + chosen.connect_timeout, left, secure=url.secure)
        found = await attempt(race, reach, greet)
        if found is not None:
            break
        error = race.error()
        if race.is_hopeless or not repair.left(int(loop.time() * 1000.0)):
            raise error
        if not waits:
            waits = True
            _log.warning("%s; trying again %s", error, for_how_long(options.reconnect))
    transport = Transport(
        engine,
        loop,
        chosen.request_timeout,
        hosts=url.hosts,
        secure=url.secure,
        repair=repair,
        reach=reach,
        greet=greet,
        connect_timeout=chosen.connect_timeout,
    )
    transport.take(found)
    transport.keep_alive()
    return engine, transport


async def _reach(url: BrokerURL, candidate: Candidate) -> None:
    """Connect to a host. The files of certificates are read each time: they may have been renewed.

    Raises:
        JMSException: it cannot be reached.
    """
    (host, port), context = candidate.address, None
    try:
        if url.secure:  # in a thread: the system's certificates take a while to read
            context = await asyncio.to_thread(tls_of, url)
        name = (url.options.tls_server_name or host) if context is not None else None
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: candidate, host, port, ssl=context, server_hostname=name)
    except (OSError, ValueError, TypeError) as error:
        raise failure_of(error, host, context is not None) from error
