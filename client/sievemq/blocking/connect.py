"""Reaching a broker: the first host of the URL that answers, TLS, the handshake."""

from __future__ import annotations

import socket
import ssl

from sievemq._engine import ClientConnection, EngineOptions
from sievemq._engine.metadata import version
from sievemq.blocking.transport import Transport, wall_clock
from sievemq.exceptions import JMSException
from sievemq.url import BrokerURL

__all__ = ["connect"]


def connect(url: BrokerURL, user: str | None, password: str | None) -> tuple[ClientConnection, Transport]:
    """Open a connection.

    Args:
        url: hosts, tried in order, and options.
        user, password: credentials; those of the URL if both are None.

    Raises:
        JMSSecurityException: the credentials are refused (FAC-02).
        InvalidClientIDException: the administered client id is in use (SUB-32).
        JMSException: no host could be reached.
    """
    options = EngineOptions.from_url(url, user, password, f"sievemq-python/{version()}")
    sock = _reach(url)
    engine = ClientConnection(options, wall_clock)
    transport = Transport(engine, sock, url.options.request_timeout)
    opened = engine.open()
    transport.start()
    try:
        transport.wait_at_most(opened, url.options.connect_timeout, f"{url} accepts connections but says nothing")
    except BaseException:
        transport.close()
        raise
    return engine, transport


def _reach(url: BrokerURL) -> socket.socket:
    timeout = url.options.connect_timeout / 1000.0
    context = _tls(url) if url.secure else None
    failures: list[str] = []
    last: OSError | None = None
    for host, port in url.hosts:
        try:
            sock = socket.create_connection((host, port), timeout)
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
            last = error
            continue
        try:
            # Small frames must not wait for the answer to the one before.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                return context.wrap_socket(sock, server_hostname=url.options.tls_server_name or host)
        except OSError as error:  # an SSLError is one
            sock.close()
            failures.append(f"{host}:{port}: TLS: {error}")
            last = error
            continue
        return sock
    raise JMSException(f"no broker could be reached: {'; '.join(failures)}", "CONNECTION_FAILED", last)


def _tls(url: BrokerURL) -> ssl.SSLContext:
    chosen = url.options
    try:
        context = ssl.create_default_context(cafile=chosen.tls_ca)
        if not chosen.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if chosen.tls_cert is not None:
            context.load_cert_chain(chosen.tls_cert, chosen.tls_key)
    except OSError as error:
        files = ", ".join(name for name in (chosen.tls_ca, chosen.tls_cert, chosen.tls_key) if name)
        raise JMSException(f"TLS cannot be set up with {files or 'the system certificates'}: {error}") from error
    return context
