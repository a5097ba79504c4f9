"""The process of ``sievemq broker``: loop, signals, garbage collection, ordered start and end.

A broker is put together here and in :mod:`sievemq_broker.embedded`: ports, the server, then the management port on top.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sievemq_broker import logs
from sievemq_broker.clock import AdjustableClock, Clock
from sievemq_broker.config import Loaded, Settings, is_loopback
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.store import AbandonedError, AwayError, FencedError, StoreError
from sievemq_broker.server import test_control
from sievemq_broker.server.credentials.exposed import warn_if_exposed
from sievemq_broker.server.net.codec import hasten
from sievemq_broker.server.net.listener import ListenError, Port, make_tls_context
from sievemq_broker.server.reloading import reload_on_signal
from sievemq_broker.server.server import Server
from sievemq_broker.server.shard import Shard
from sievemq_broker.server.watch.collector import calm
from sievemq_broker.server.watch.resources import raise_file_limit
from sievemq_core.compiled import COMPILED
from sievemq_core.version import VERSION

if TYPE_CHECKING:
    from sievemq_broker.server.http.api.management import Management
    from sievemq_broker.server.http.serve import HttpServer

#: Seconds that the interpreter runs one thread while another one waits. The writer to the disk waits some ten times in
#: each write; with Python's 5 ms a busy loop of 48 large transactions kept a durable send waiting for 237 ms, now 64.
#: Only where the process is the broker's own.
_SWITCH_SECONDS = 0.0005

#: The exit code of a broker whose shard another one owns, or may own (EX_TEMPFAIL): start it again, as a follower.
GONE_CODE = 75

log = logs.get("server")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where there is one for this platform, else asyncio's."""
    try:
        import uvloop  # not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def new_server(
    settings: Settings, clock: AdjustableClock | None = None, on_failure: Callable[[], None] = lambda: None
) -> Server:
    """The server of a broker; with test control that of the test kit, which can be watched and disturbed.

    Args:
        clock: the broker's time; the machine's if not given, or one that test control moves.
        on_failure: as of :class:`Server`.

    Raises:
        ImportError: test control is wanted, and there is no test kit.
    """
    if settings.test_control:
        return test_control.load().make_server(settings, clock or AdjustableClock(), on_failure)
    if settings.otlp_traces:
        return _traced_server(settings, clock or Clock(), on_failure)
    return Server(settings, clock, on_failure=on_failure)


def _traced_server(settings: Settings, clock: Clock, on_failure: Callable[[], None]) -> Server:
    from sievemq_broker.server.otlp import Tracing  # few brokers have a collector

    tracing = Tracing(settings, clock.now)
    shard = Shard(settings, clock, Broker(settings.domain(), observer=tracing))
    server = Server(settings, clock, shard, on_failure)
    server.on_stop.append(tracing.stop)
    return server


class ManagementPort:
    """The HTTP port: taken before the broker starts, served once clients can connect.

    Args:
        settings: checked settings.

    Raises:
        ListenError: it cannot be bound, or the certificate cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._tls: ssl.SSLContext | None = None
        if settings.tls_cert is not None:
            self._tls = make_tls_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca, for_http=True)
        self._host = settings.http_address
        self._port = Port("HTTP", settings.http_address, settings.http_port)
        self._http: HttpServer | None = None
        self._is_given_up = False
        self._kept: socket.socket | None = None

    @property
    def url(self) -> str:
        """For people and scrapers."""
        return self._port.url(self.scheme)

    @property
    def scheme(self) -> str:
        return "https" if self._tls else "http"

    def pulse(self, host: str | None) -> str:
        """The address as others reach it; "" if that is not known.

        Args:
            host: of this machine; the setting's if not given.
        """
        host = host or self._host
        try:
            unspecified = ip_address(host).is_unspecified
        except ValueError:  # a name
            unspecified = False
        return "" if unspecified else f"{host}:{self._port.number}"

    @property
    def management(self) -> Management:
        """The object behind the management API."""
        assert self._http is not None
        return self._http.management

    async def start(self, server: Server) -> None:
        """Serve a broker that has started. Importing the HTTP stack takes longer than the rest of the start, so this
        comes last and imports in a thread. Without effect if the port is given up meanwhile."""
        made = await asyncio.get_running_loop().run_in_executor(None, _import_http)
        if not self._is_given_up:
            self._http = made(server, self.url)  # on the loop, whose state it joins
            await self._http.start(self._port.socket, self._tls)

    def keep(self) -> None:
        """Accept connections until :meth:`close`, although nobody answers after :meth:`stop`: followers take a port
        that refuses them for the end of its process."""
        self._kept = self._port.socket.dup()

    async def stop(self) -> None:
        """Finish open requests, and give the port up unless it is kept."""
        self._is_given_up = True
        if self._http is not None:
            await self._http.stop()
        self._port.close()

    def close(self) -> None:
        """Give the port up."""
        self._is_given_up = True
        self._port.close()
        if self._kept is not None:
            self._kept.close()


def _import_http() -> type[HttpServer]:
    from sievemq_broker.server.http.serve import HttpServer

    return HttpServer


def bind(server: Server) -> ManagementPort | None:
    """Take all ports of a broker, or none.

    Returns:
        The management port, which ends with the server; None where the settings have none.

    Raises:
        ListenError: one of them cannot be bound.
    """
    http = ManagementPort(server.settings) if server.settings.http else None
    try:
        server.bind()
    except BaseException:
        if http is not None:
            http.close()
        raise
    if http is not None:
        server.on_stop.append(http.stop)
        if server.is_shared:
            http.keep()
            address = http.pulse(urlsplit(server.settings.advertise or "").hostname)
            http_url = server.settings.advertise_http or (address and f"{http.scheme}://{address}")
            server.beats_at(address, http_url, http.close)
    if server.settings.otlp is not None:
        from sievemq_broker.server.otlp import MetricExport  # few brokers have a collector

        export = MetricExport(server)
        server.when_serving(export.start)
        server.on_stop.append(export.stop)
    return http


def run(settings: Settings, *, handover: bool = False, reread: Callable[[], Loaded] | None = None) -> int:
    """Run a broker until a signal ends it, or another broker takes its shard over.

    Args:
        settings: checked settings.
        handover: ask the owner of the shard to hand it over to this broker.
        reread: reads the settings again, from the same sources.

    Returns:
        the process's exit code: 0 after an ordered end, also while it was starting; 1 if it could not start; 75 if
        another broker has asked for its shard, or has, or may have, taken it over.
    """
    # Until the broker is ready, its log has what goes wrong.
    logs.configure("error" if settings.log_level == "error" else "warning", as_json=settings.json_logs)
    if settings.data_dir is not None or settings.store is not None:
        sys.setswitchinterval(_SWITCH_SECONDS)
    stopping = asyncio.Event()
    try:
        server = new_server(settings, on_failure=stopping.set)
        server.when_asked_for(stopping.set)
        server.live.reread_with(reread)
        if handover:
            server.ask_for(settings.shard)
        http = bind(server)
    except ListenError as error:
        return _not_started(str(error))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(server, http, stopping))


def _not_started(reason: str) -> int:
    log.error("broker.not_started", reason=reason)
    return 1


async def _serve(server: Server, port: ManagementPort | None, stopping: asyncio.Event) -> int:
    settings = server.settings
    _on_signals(stopping, server)
    http: asyncio.Task[None] | None = None
    if server.candidates is not None:  # it may follow for long, and is watched meanwhile
        logs.configure(settings.log_level, as_json=settings.json_logs)
        shards = ",".join(server.candidates.followed)
        log.info("broker.following", shards=shards, store=settings.shown_store, http_url=port and port.url)
        http = _begin_http(port, server, stopping)
    try:
        await server.start()
    except AbandonedError:
        await server.stop()
        logs.configure(settings.log_level, as_json=settings.json_logs)
        log.info("broker.stopped", note="it had not restored its store, which is as it was")
        return _failed(http)
    except (StoreError, ListenError) as error:
        await server.stop()
        code = _not_started(str(error))
        return GONE_CODE if _is_gone(server, error) else code
    # Clients may come from here on; what imports for longer than all before it follows now.
    logs.configure(settings.log_level, as_json=settings.json_logs)
    raise_file_limit(server.links.limit)
    (log.debug if _for_people(settings) else log.info)(
        "broker.ready",
        url=server.url,
        http_url=None if port is None else port.url,
        **{f"{protocol}_url": server.url_of(protocol) for protocol in settings.own_ports},
        version=VERSION,
        python=sys.version.split()[0],
        compiled=COMPILED,
    )
    _say_what_is_kept(server)
    for holds, path in (
        ("the users and their password hashes", settings.users_file),
        ("the key of the certificate", settings.tls_key or settings.tls_cert),
        ("the data directory", settings.data_dir),
    ):
        if path is not None:
            warn_if_exposed(holds, path)
    if not is_loopback(settings.host):
        if not server.user_store.users.required:
            log.warning(
                "broker.insecure",
                note="every client that reaches the port may do everything; configure users to change that",
            )
        elif settings.tls_cert is None:
            log.warning("broker.clear_text", note="passwords and messages cross the network in clear; set tls_cert")
    if settings.test_control:
        log.warning("broker.test_control", note="whoever reaches the HTTP port moves the clock and makes faults")
    if _for_people(settings):
        _greet(server, port)
    hasten()
    http = http or _begin_http(port, server, stopping)
    await stopping.wait()
    failed = _failed(http)
    log.info("broker.stopping", connections=len(server.links.open), drain_seconds=settings.drain_seconds)
    await server.stop(0.0 if server.failure is not None else settings.drain_seconds)
    log.info("broker.stopped")
    if server.failure is not None:
        return GONE_CODE if _is_gone(server, server.failure) else 1
    return failed or (GONE_CODE if server.is_asked_for else 0)


def _is_gone(server: Server, failure: Exception) -> bool:
    """Another broker owns the shard, or may own it."""
    return server.is_shared and isinstance(failure, (AwayError, FencedError))


def _begin_http(port: ManagementPort | None, server: Server, stopping: asyncio.Event) -> asyncio.Task[None]:
    """Serve the management port. The broker ends if that fails."""

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            stopping.set()
            server.give_up()
        calm()

    http = asyncio.create_task(_start_http(port, server))
    http.add_done_callback(done)
    return http


def _failed(http: asyncio.Task[None] | None) -> int:
    """1 if the management port could not be served."""
    if http is None or http.cancelled():
        return 0
    if not http.done():
        http.cancel()
    elif http.exception() is not None:
        log.fault("http.failed", http.exception())
        return 1
    return 0


async def _start_http(port: ManagementPort | None, server: Server) -> None:
    if port is not None:
        await port.start(server)


def _for_people(settings: Settings) -> bool:
    """The log is shown on a terminal, not read by a program."""
    return not settings.json_logs and sys.stdout.isatty()


def _greet(server: Server, port: ManagementPort | None) -> None:
    """Print the URLs of the broker and the console, as the last lines of the start."""
    sys.stdout.write(f"\nClients  {server.url}\n")
    for protocol in server.settings.own_ports:
        sys.stdout.write(f"{protocol.upper():<7}  {server.url_of(protocol)}\n")
    if port is not None:
        sys.stdout.write(f"Console  {port.url}\n")
    sys.stdout.flush()


def _say_what_is_kept(server: Server) -> None:
    opened = server.shard.opened
    if opened is None:
        log.info("broker.in_memory", note="PERSISTENT messages do not survive a restart of this broker")
    else:
        log.info(
            "broker.durable",
            directory=server.settings.data_dir,
            store=server.settings.shown_store,
            shard=server.shard.name if server.is_shared else None,
            messages=opened.messages,
            built=opened.built,
            seconds=round(opened.seconds, 3),
            epoch=opened.store.epoch,
        )
        if server.full_disk is not None:
            from sievemq_broker.server.durability.commits import log_full  # in memory there is no disk

            log_full(server.full_disk)


def _on_signals(stopping: asyncio.Event, server: Server) -> None:
    loop = asyncio.get_running_loop()

    def received(name: str) -> None:
        log.info("signal.received", signal=name)
        if stopping.is_set():
            server.hurry()  # a second signal: no more waiting for clients
        stopping.set()
        server.give_up()

    def handler(name: str) -> Callable[..., object]:
        return lambda *_: loop.call_soon_threadsafe(received, name)

    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGHUP, reload_on_signal, server)
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, received, number.name)
        except NotImplementedError:  # loops on Windows
            signal.signal(number, handler(number.name))
