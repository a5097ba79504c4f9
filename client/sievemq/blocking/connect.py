"""Reaching a broker: the first host of the URL that welcomes the client, TLS, the handshake."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from functools import partial

from sievemq._engine import ClientConnection, EngineOptions, Race, Repair, for_how_long
from sievemq.blocking.repair import Attempt, Found, Greet, Reach
from sievemq.blocking.transport import Transport, wall_clock
from sievemq.tls import closed_early, failure_of, tls_of
from sievemq.url import BrokerURL
from sievemq_core.version import VERSION

_log = logging.getLogger("sievemq")


def connect(url: BrokerURL, user: str | None, password: str | None) -> tuple[ClientConnection, Transport]:
    """Open a connection; hosts that cannot be reached are tried again for as long as the option `reconnect` says.

    Args:
        url: hosts in order of preference, and options.
        user, password: credentials; those of the URL if both are None.

    Raises:
        JMSSecurityException: the credentials are refused (FAC-02).
        InvalidClientIDException: the administered client id is in use (SUB-32).
        InvalidURLException: no host has a name that can be one.
        JMSException: no host could be reached.
    """
    options, chosen = EngineOptions.from_url(url, user, password, f"sievemq-python/{VERSION}"), url.options
    engine = ClientConnection(options, wall_clock)
    repair = Repair(options.reconnect, chosen.reconnect_delay, chosen.reconnect_max_delay, len(url.hosts))
    repair.begin(_milliseconds())
    reach, waits = partial(_reach, url), False
    while True:
        time.sleep(repair.pause(_milliseconds(), random.random()) / 1000.0)  # noqa: S311  not for secrets
        now = _milliseconds()
        left = repair.left(now)
        race = Race(repair.order(url.hosts, 0), now, now + chosen.connect_timeout, left or None, secure=url.secure)
        found = _attempt(race, reach, lambda peer: engine.hello(peer, closed_early(url)))
        if found is not None:
            break
        error = race.error()
        if race.is_hopeless or not repair.left(_milliseconds()):
            raise error
        if not waits:
            waits = True
            _log.warning("%s; trying again %s", error, for_how_long(options.reconnect))
    transport = Transport(
        engine,
        found.sock,
        chosen.request_timeout,
        hosts=url.hosts,
        secure=url.secure,
        repair=repair,
        reach=reach,
        greet=lambda peer: engine.hello(peer, closed_early(url)),
        connect_timeout=chosen.connect_timeout,
    )
    try:
        engine.welcomed(found.handshake)
        transport.start()
    except BaseException:
        transport.discard()
        raise
    return engine, transport


def _attempt(race: Race, reach: Reach, greet: Greet) -> Found | None:
    changed = threading.Event()
    attempt = Attempt(race, reach, greet, changed.set)
    found = None
    try:
        while (seconds := attempt.step()) is not None:
            changed.wait(seconds)
            changed.clear()
        found = attempt.take()
    except BaseException:  # a signal handler
        found = found or attempt.take()
        if found is not None:
            found.sock.close()
        raise
    return found


def _milliseconds() -> int:
    return int(time.monotonic() * 1000.0)


def _reach(url: BrokerURL, address: tuple[str, int], seconds: float) -> socket.socket:
    """Connect to a host. The files of certificates are read each time: they may have been renewed.

    Raises:
        JMSException: it cannot be reached.
    """
    host, name, sock = address[0], url.options.tls_server_name or address[0], None
    try:
        context = tls_of(url)
        sock = socket.create_connection(address, seconds)
        # Small frames must not wait for the answer to the one before.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if context is None else context.wrap_socket(sock, server_hostname=name)
    except (OSError, ValueError, TypeError) as error:
        if sock is not None:
            sock.close()
        raise failure_of(error, host, sock is not None) from error
