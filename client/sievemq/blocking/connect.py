"""Reaching a broker: the first host of the URL that answers, TLS, the handshake."""

from __future__ import annotations

import logging
import random
import socket
import ssl
import time
from collections.abc import Sequence
from functools import partial

from sievemq._engine import ClientConnection, EngineOptions, Repair, for_how_long, is_passing
from sievemq._front.metadata import version
from sievemq.blocking.repair import Reach
from sievemq.blocking.transport import Transport, wall_clock
from sievemq.exceptions import JMSException
from sievemq.tls import of_tls, tls_of
from sievemq.url import BrokerURL

__all__ = ["connect"]

_log = logging.getLogger("sievemq")


def connect(url: BrokerURL, user: str | None, password: str | None) -> tuple[ClientConnection, Transport]:
    """Open a connection; hosts that cannot be reached are tried again for as long as the option `reconnect` says.

    Args:
        url: hosts, tried in order, and options.
        user, password: credentials; those of the URL if both are None.

    Raises:
        JMSSecurityException: the credentials are refused (FAC-02).
        InvalidClientIDException: the administered client id is in use (SUB-32).
        JMSException: no host could be reached.
    """
    options, chosen = EngineOptions.from_url(url, user, password, f"sievemq-python/{version()}"), url.options
    reach = partial(_reach, url, tls_of(url))
    repair = Repair(options.reconnect, chosen.reconnect_delay, chosen.reconnect_max_delay)
    repair.begin(_milliseconds())
    waits = False
    while True:
        time.sleep(repair.pause(_milliseconds(), random.random()) / 1000.0)  # noqa: S311  not for secrets
        try:
            return _open(url, options, reach, repair)
        except JMSException as error:
            if not is_passing(error) or not repair.left(_milliseconds()):
                raise
            if not waits:
                waits = True
                _log.warning("%s; trying again %s", error, for_how_long(options.reconnect))


def _open(url: BrokerURL, options: EngineOptions, reach: Reach, repair: Repair) -> tuple[ClientConnection, Transport]:
    """One attempt."""
    at, sock = reach(repair.order(url.hosts, 0), url.options.connect_timeout / 1000.0)
    engine = ClientConnection(options, wall_clock)
    limit = url.options.connect_timeout
    transport = Transport(
        engine,
        sock,
        url.options.request_timeout,
        hosts=url.hosts,
        at=at,
        repair=repair,
        reach=reach,
        connect_timeout=limit,
    )
    opened = engine.open()
    transport.start()
    try:
        transport.wait_at_most(opened, limit, f"{url} accepts connections but says nothing")
    except BaseException:
        transport.close()
        raise
    return engine, transport


def _milliseconds() -> int:
    return int(time.monotonic() * 1000.0)


def _reach(
    url: BrokerURL, context: ssl.SSLContext | None, hosts: Sequence[tuple[int, tuple[str, int]]], seconds: float
) -> tuple[int, socket.socket]:
    """Connect to the first host that answers: its number and the socket."""
    failures: list[str] = []
    last: OSError | None = None
    for number, (host, port) in hosts:
        try:
            sock = socket.create_connection((host, port), seconds)
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
            last = error
            continue
        try:
            # Small frames must not wait for the answer to the one before.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname=url.options.tls_server_name or host)
        except OSError as error:  # an SSLError is one
            sock.close()
            failures.append(f"{host}:{port}: {of_tls(error)}")
            last = error
            continue
        return number, sock
    # A certificate that is not trusted now will not be trusted a moment later.
    code = "TLS" if isinstance(last, ssl.SSLCertVerificationError) else "CONNECTION_FAILED"
    raise JMSException(f"no broker could be reached: {'; '.join(failures)}", code, last)
