"""Ports: bind them, accept on them, TLS; which protocols clients may speak there."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any, Final

from sievemq_broker import logs
from sievemq_broker.config import Settings
from sievemq_broker.protocols import PROTOCOLS

#: Connections that may wait to be accepted. A fleet that reconnects at once should not be refused by the kernel.
BACKLOG = 1024

#: More are accepted in the next turn of the loop.
_ACCEPTED_IN_A_TURN: Final = 64
#: Seconds without accepting, after the process or the machine had no room for a socket.
_PAUSE_SECONDS: Final = 1.0

log = logs.get("server")


class ListenError(Exception):
    """A port or a certificate that cannot be used; the text names it and what to do."""


class Port:
    """A port that is taken.

    Args:
        what: for the error: "wire", "HTTP", "STOMP".
        host: a name or an address. "::" takes IPv4 too.
        number: 0 for a free one.
        listens: False: connections are refused until :meth:`listen`.

    Raises:
        ListenError: it cannot be bound.

    Attributes:
        socket: bound.
        number: as bound.
    """

    def __init__(self, what: str, host: str, number: int, listens: bool = True) -> None:
        self._what = what
        self._host = host
        self.socket = _bind(what, host, number)
        self.number: int = self.socket.getsockname()[1]
        if listens:
            self.listen()

    def listen(self) -> None:
        """Take connections; without effect if it does already.

        Raises:
            ListenError: another process took the port meanwhile.
        """
        try:
            self.socket.listen(BACKLOG)
        except OSError as error:
            self.socket.close()
            raise ListenError(_why(self._what, self._host, self.number, error)) from error

    def url(self, scheme: str) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.number}"

    def close(self) -> None:
        self.socket.close()


class ClientPorts:
    """The ports on which clients connect; either all are bound or none.

    Args:
        settings: the wire port and its protocols, and ports that one protocol has for itself.
        tls: what they speak TLS with; None for none.
        listens: False: connections are refused until :meth:`listen`, so that clients try another host.

    Raises:
        ListenError: one of them cannot be bound.

    Attributes:
        tls: as above.
        open: each port with its protocols. The first of these is assumed until a client's first bytes say otherwise.
    """

    def __init__(self, settings: Settings, tls: ssl.SSLContext | None = None, listens: bool = True) -> None:
        self.tls = tls
        self.open: list[tuple[Port, tuple[str, ...]]] = []
        # The protocol that is not recognised by its first bytes comes first.
        shared = tuple(sorted(settings.protocols, key=lambda name: PROTOCOLS[name].begins is not None))
        try:
            self.open.append((Port("wire", settings.host, settings.port, listens), shared))
            for name, number in settings.own_ports.items():
                self.open.append((Port(name.upper(), settings.host, number, listens), (name,)))
        except BaseException:
            self.close()
            raise

    def listen(self) -> None:
        """Take connections from now on.

        Raises:
            ListenError: another process took one of them meanwhile.
        """
        for port, _ in self.open:
            port.listen()

    def speaking(self, protocol: str) -> Port:
        """Where clients of a protocol connect: its own port, if it has one.

        Raises:
            RuntimeError: nowhere.
        """
        found = [port for port, protocols in self.open if protocol in protocols]
        if not found:
            raise RuntimeError(f"this broker does not speak {protocol}: see the settings protocols and {protocol}_port")
        return found[-1]

    def url(self, protocol: str) -> str:
        """What clients of a protocol connect to.

        Raises:
            RuntimeError: the broker does not speak it.
        """
        return self.speaking(protocol).url(PROTOCOLS[protocol].scheme + ("s" if self.tls else ""))

    def close(self) -> None:
        for port, _ in self.open:
            port.close()


def _bind(what: str, host: str, port: int) -> socket.socket:
    try:
        name = host.encode() if host.isascii() else host  # as text it would load the tables of IDNA, 0.4 MB
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"the {what} host {host!r} cannot be resolved: {error.strerror or error}") from error
    # One socket, so that port 0 is one port. Of a name with both families (localhost) the IPv4 address.
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    sock = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would share a port that is in use
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise ListenError(_why(what, host, port, error)) from error
    return sock


def _why(what: str, host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        setting = "port" if what == "wire" else f"{what.lower()}_port"
        return (
            f"the {what} port {port} on {host} is in use by another process; choose another (setting {setting}), or 0 "
            "for a free one"
        )
    if error.errno == errno.EACCES:
        return f"the {what} port {port} on {host} needs privileges that this process does not have; choose another"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"the {what} host {host} is not an address of this machine"
    return f"the {what} port {port} on {host} cannot be opened: {error.strerror or error}"


def make_tls_context(cert: str, key: str | None, client_ca: str | None, *, for_http: bool = False) -> ssl.SSLContext:
    """The TLS configuration of a port.

    Args:
        cert: PEM file of the certificate chain.
        key: PEM file of its key; None if it is in `cert`.
        client_ca: PEM file of the CA that client certificates must come from; None asks for none.
        for_http: a client may come without one; HTTP then answers it about health only, since probes have none.

    Raises:
        ListenError: a file cannot be read or does not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(f"the certificate {cert}{f' with the key {key}' if key else ''}: {error}") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ListenError(f"the CA of client certificates {client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_OPTIONAL if for_http else ssl.CERT_REQUIRED
    if for_http:
        context.set_alpn_protocols(["http/1.1"])
    return context


class Acceptor:
    """Accepts connections on a bound socket until it is closed.

    The loop's own servers do not know a connection that was accepted and has no protocol yet, because it is in its TLS
    handshake or came just before they were closed. Then it stays open when the broker has stopped.

    Args:
        sock: of a :class:`Port`; closed with this.
        tls: None for clear text.
    """

    __slots__ = ("_factory", "_loop", "_opening", "_pause", "_socket", "_tls")

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._factory = factory
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {"ssl": tls, "ssl_handshake_timeout": max(handshake_seconds, 0.1)}
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_IN_A_TURN):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # there is no room for a socket; the clients wait in the backlog
                log.warning("accept.failed", error=error.strerror)
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self._begin)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._open(accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted, **self._tls)
        except OSError:  # TLS failed, or took too long
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def close(self) -> None:
        """Accept no more, and give up TLS handshakes."""
        if self._pause is not None:
            self._pause.cancel()
        elif self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._tls:
            for task in self._opening:
                task.cancel()

    async def wait_closed(self) -> None:
        """Return once each connection that was accepted has its protocol, or is closed."""
        while self._opening:
            await asyncio.wait(self._opening)
