"""A real broker inside this process, for tests and small programs.

    with EmbeddedBroker() as broker:
        factory = ConnectionFactory(broker.url)

It is the server that ``sievemq broker`` runs, on its own thread with its own loop, listening on the loopback at a free
port. It is ready when the constructor's `with` (or :meth:`EmbeddedBroker.start`) returns and gone when the block ends.
Nothing is shared between two of them: no registry, no logging set-up, no signals, no garbage collector settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar
from urllib.parse import quote

from sievemq_broker.clock import AdjustableClock
from sievemq_broker.config import Settings, load
from sievemq_broker.domain.broker import Broker
from sievemq_broker.extras import check_packages
from sievemq_broker.server.process import ManagementPort, bind, new_event_loop, new_server
from sievemq_broker.server.server import Phase, Server
from sievemq_core.durations import MILLISECOND

P = ParamSpec("P")
R = TypeVar("R")

#: Seconds to wait for a client to confirm that it has seen the clock move. One that is busy answers later; until then
#: the broker corrects the times it stamps, so nothing depends on the wait but what the client itself shows.
SEEN_SECONDS = 2.0

_START_SECONDS = 30.0


class EmbeddedOptions(TypedDict, total=False):
    """Keywords of an :class:`EmbeddedBroker`, which describes each."""

    host: str
    port: int
    amqp_port: int | None
    stomp_port: int | None
    http: bool
    http_port: int
    namespace: str
    users: Mapping[str, object] | None
    definitions: Mapping[str, object] | str | PathLike[str] | None
    data_dir: str | PathLike[str] | None
    store: str | None
    clock: AdjustableClock | None
    settings: Mapping[str, object] | Settings | None


class EmbeddedBroker:
    """A broker on its own thread.

    Args:
        host: loopback address to listen on.
        port: 0 for a free one.
        amqp_port: a further port for AMQP alone, 0 for a free one; None for none. AMQP clients may use `port`, too.
        stomp_port: a further port for STOMP alone, 0 for a free one; None for none. STOMP clients may use `port`, too.
        http: also serve health, metrics, API and console, see :attr:`http_url`.
        http_port: 0 for a free one.
        namespace: that :attr:`url` leads to.
        users: name -> password, or a table with ``password`` and ``rights`` as in a users file; nobody else gets in
            (D-38). None lets everybody in.
        definitions: what is to exist: a TOML file, or its table, such as
            ``{"namespaces": {"default": {"queues": ["orders"]}}}`` (docs/definitions.md).
        data_dir: directory to keep PERSISTENT messages in, so that they are there after a restart (D-18); in memory
            only if not given.
        store: URL of a database to keep PERSISTENT messages in, such as ``postgresql://…``. Several brokers may use it:
            one serves clients, the others follow it.
        clock: the broker's time; an adjustable clock if not given.
        settings: everything else by name (:class:`~sievemq_broker.config.Settings`), such as
            ``{"destinations": {"queue:orders": {"max_attempts": 3}}}``; the arguments above go before it. Settings that
            were loaded are taken as they are, without the arguments above.

    Raises:
        ConfigError: settings that cannot be used together.
        ImportError: a setting needs a package of the extra ``broker``: `http`, and users with hashed passwords.
        ListenError: at start, the port is taken.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        amqp_port: int | None = None,
        stomp_port: int | None = None,
        http: bool = False,
        http_port: int = 0,
        namespace: str = "",
        users: Mapping[str, object] | None = None,
        definitions: Mapping[str, object] | str | PathLike[str] | None = None,
        data_dir: str | PathLike[str] | None = None,
        store: str | None = None,
        clock: AdjustableClock | None = None,
        settings: Mapping[str, object] | Settings | None = None,
    ) -> None:
        if isinstance(settings, Settings):
            self._settings = settings
        else:
            given: dict[str, Any] = {"drain_seconds": 0.0, "max_memory_bytes": 0, **(settings or {})}
            given |= {"host": host, "port": port, "http": http, "http_port": http_port}
            if amqp_port is not None:
                given["amqp_port"] = amqp_port
            if stomp_port is not None:
                given["stomp_port"] = stomp_port
            if users is not None:
                given["users"] = dict(users)
            if definitions is not None:
                given["definitions"] = definitions
            if data_dir is not None:
                given["data_dir"] = fspath(data_dir)
            if store is not None:
                given["store"] = store
            self._settings = load(given, given_by="EmbeddedBroker").settings
        check_packages(self._settings)
        self._namespace = namespace
        self._adjustable = clock or AdjustableClock()
        self._server: Server | None = None
        self._http: ManagementPort | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._waiting: set[Future[Any]] = set()
        #: Done once clients can connect.
        self._serving: Future[None] = Future()
        self.clock = BrokerClock(self)

    def __repr__(self) -> str:
        where = "never started" if self._server is None else self._url_of("sieve")
        stopped = ", stopped" if self._server is not None and self._thread is None else ""
        return f"<{type(self).__name__} {where}{stopped}>"

    # -- start and stop -------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start; returns when clients can connect. With a `store` that another broker owns, returns when this one
        follows it; :meth:`wait_until_serving` waits for its turn.

        Raises:
            ListenError: the port is taken.
            RuntimeError: it runs already.
        """
        if self._thread is not None:
            raise RuntimeError("this broker runs already; create another EmbeddedBroker for a second one")
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="sievemq-broker", daemon=True)
        self._thread.start()
        try:
            started.result(_START_SECONDS)
        except BaseException:
            if started.cancel():  # not started in time, or interrupted
                self._thread.join()
            self._thread = None
            raise
        return self

    def stop(self) -> None:
        """Stop; returns when the port is closed and the thread has ended. Does nothing if it does not run."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        with contextlib.suppress(RuntimeError):  # its loop has ended: it has handed its shard over
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        self._leave()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()  # a few milliseconds: not worth a thread

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Connections that are still open may belong to this loop, which has to turn for them to end in order.
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def _run(self, started: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:
            if started.cancelled():
                return
            if started.done():
                raise
            started.set_exception(error)
        finally:
            self._give_no_answers()  # it may have ended by itself: it has handed its shard over

    def _make_server(self) -> Server:
        """The server of one run; the test kit's brokers make one that can be watched and disturbed."""
        return new_server(self._settings, self._adjustable)

    async def _serve(self, started: Future[None]) -> None:
        server = self._make_server()
        self._serving = Future()
        started.add_done_callback(lambda future: server.give_up() if future.cancelled() else None)
        self._http = http = bind(server)
        starting = asyncio.create_task(server.start())
        try:
            if http is not None and server.is_shared:
                await http.start(server)
            candidates = server.candidates
            follows = asyncio.create_task(asyncio.Event().wait() if candidates is None else candidates.follows.wait())
            await asyncio.wait({starting, follows}, return_when=asyncio.FIRST_COMPLETED)
            follows.cancel()
            if starting.done():
                starting.result()
            if http is not None and not server.is_shared:
                await http.start(server)
            self._attend(server)
            self._stopping = asyncio.Event()
            server.when_asked_for(self._stopping.set)
            starting.add_done_callback(self._started)
            started.set_result(None)
            await self._stopping.wait()
        finally:
            server.give_up()
            await asyncio.wait({starting})
            await server.stop(self._settings.drain_seconds)

    def _attend(self, server: Server) -> None:
        """Calls from other threads go to this server from now on, whose loop runs here."""
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()

    def _leave(self) -> None:
        """There are no calls any more."""
        self._loop = self._stopping = None
        self._give_no_answers()

    def _give_no_answers(self) -> None:
        """No call is carried out any more: those that wait would do so for ever."""
        for future in tuple(self._waiting):
            future.cancel()

    def _started(self, starting: asyncio.Task[None]) -> None:
        """The server serves, or cannot."""
        error = starting.exception()
        if error is None:
            self._serving.set_result(None)
        else:
            self._serving.set_exception(error)

    def wait_until_serving(self, seconds: float) -> None:
        """Return when clients can connect: this broker has started, and owns its shard where others share its store.

        Raises:
            TimeoutError: it still follows another broker.
            StoreError: the store cannot be used.
        """
        self._serving.result(seconds)

    # -- where it is ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """For a ConnectionFactory.

        Raises:
            RuntimeError: the broker was never started, or its store has failed: it serves no clients any more.
        """
        self._check()
        return self._url_of("sieve")

    @property
    def amqp_url(self) -> str:
        """For AMQP clients: host and port; with a namespace also the option ``amqp.vhost``, by which Qpid JMS names it.
        Other clients name it, with its ``/``, as the ``hostname`` of their open.

        Raises:
            RuntimeError: the settings turn AMQP off, or the store has failed.
        """
        self._check()
        url = self.server.url_of("amqp")
        return f"{url}?amqp.vhost={quote('/' + self._namespace, safe='')}" if self._namespace else url

    @property
    def stomp_url(self) -> str:
        """For STOMP clients: host, port, and as the path the ``host`` header of CONNECT that leads to the namespace.

        Raises:
            RuntimeError: the settings turn STOMP off, or the store has failed.
        """
        self._check()
        return self._url_of("stomp")

    def _check(self) -> None:
        """Raise RuntimeError if the store has failed: the broker serves no client any more."""
        if self._server is not None and self._server.failure is not None:
            failure = self._server.failure
            raise RuntimeError(f"this broker serves no clients any more: {failure}") from failure

    def _url_of(self, protocol: str) -> str:
        url = self.server.url_of(protocol)
        return f"{url}/{quote(self._namespace, safe='')}" if self._namespace else url

    @property
    def port(self) -> int:
        """The wire port."""
        return self.server.port

    @property
    def http_url(self) -> str:
        """Base URL of the management port.

        Raises:
            RuntimeError: it was started without ``http=True``.
        """
        if not self.server.settings.http or self._http is None:
            raise RuntimeError("this broker serves no HTTP; start it with EmbeddedBroker(http=True)")
        return self._http.url

    @property
    def server(self) -> Server:
        """The server behind. Only its constant attributes may be read from here; :meth:`call` reaches the rest.

        Raises:
            RuntimeError: the broker was never started.
        """
        if self._server is None:
            raise RuntimeError("this broker was not started: use `with EmbeddedBroker() as broker:` or start()")
        return self._server

    def namespace(self, name: str) -> EmbeddedNamespace:
        """One namespace of this broker: queues, topics and subscriptions of other namespaces do not exist there."""
        return EmbeddedNamespace(self, name)

    # -- from other threads ---------------------------------------------------------------------------------------

    def call(self, function: Callable[Concatenate[Broker, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function on the broker's thread, between two commands, and return its result.

        A test uses this to read or change the broker's state: ``broker.call(lambda b: b.namespace("t") …)``.

        Args:
            function: gets the broker's domain and the other arguments. It must not wait.

        Raises:
            RuntimeError: the broker does not run, its store has failed, or this is its own thread.
            Exception: what the function raised.
        """
        return self._submit(lambda server: function(server.shard.broker, *args, **kwargs)).result()

    def drop_connections(self) -> int:
        """Cut every connection without a word, as a failing network does.

        Returns:
            how many there were. Their clients may reconnect at once.
        """
        return self._submit(lambda server: server.links.abort_all()).result()

    def _submit(self, function: Callable[[Server], R]) -> Future[R]:
        """Run on the broker's thread; the turn ends afterwards, so that output is written and deadlines are met."""
        server, loop, thread = self._server, self._loop, self._thread
        self._check()
        if server is not None and server.phase in (Phase.FOLLOWING, Phase.STARTING):
            raise RuntimeError("this broker follows another one: it serves no clients now; see wait_until_serving()")
        if server is None or loop is None or thread is None or server.phase is Phase.STOPPED:
            raise RuntimeError("this broker is not running")
        if threading.current_thread() is thread:
            raise RuntimeError("called from the broker's own thread, which would wait for itself")
        done: Future[R] = self._new_result()

        def run() -> None:
            try:
                result = function(server)
                server.turn.worked()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        loop.call_soon_threadsafe(run)
        return done

    def _new_result(self) -> Future[Any]:
        """A future that the broker's thread completes, or :meth:`stop` cancels."""
        future: Future[Any] = Future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future


class EmbeddedNamespace:
    """A namespace of an embedded broker.

    Args:
        broker: whose.
        name: its name; made at the first use.
    """

    __slots__ = ("broker", "name")

    def __init__(self, broker: EmbeddedBroker, name: str) -> None:
        self.broker = broker
        self.name = name

    @property
    def url(self) -> str:
        """For a ConnectionFactory."""
        return f"{self.broker.server.url}/{quote(self.name, safe='')}"

    @property
    def amqp_url(self) -> str:
        """For AMQP clients: host, port, and the option ``amqp.vhost``, by which Qpid JMS names the namespace. Other
        clients name it, with its ``/``, as the ``hostname`` of their open.
        """
        return f"{self.broker.server.url_of('amqp')}?amqp.vhost={quote('/' + self.name, safe='')}"

    @property
    def stomp_url(self) -> str:
        """For STOMP clients: host, port, and as the path the ``host`` header of CONNECT that leads here."""
        return f"{self.broker.server.url_of('stomp')}/{quote(self.name, safe='')}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Moved:
    """The result of moving the clock: the broker has done everything that became due.

    Awaiting it also waits, for a bounded time, until the clients on the running loop have seen the new time; outside of
    a loop that wait is over when the call returns.
    """

    __slots__ = ("_seen", "now")

    def __init__(self, now: int, seen: Future[bool]) -> None:
        #: The broker's time after the move, ms since 1970.
        self.now = now
        self._seen = seen

    @property
    def seen(self) -> bool:
        """True if every connected client is known to have seen the new time."""
        return self._seen.done() and self._seen.result()

    def __await__(self) -> Generator[Any, None, Moved]:
        yield from asyncio.wrap_future(self._seen).__await__()
        return self


class BrokerClock:
    """Moves an embedded broker's clock.

    Every move processes what has become due (expiry, delivery delay, redelivery delay), informs the clients, and
    returns when they have the new time. So the next line of a test finds the result. On a running asyncio loop, whose
    clients could not answer while this blocks, await the result: ``await broker.clock.advance(seconds=60)``.

    Args:
        broker: whose.
    """

    __slots__ = ("_broker",)

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    def __repr__(self) -> str:
        clock = self._broker._adjustable  # read here, not in the broker's thread: the broker may have stopped
        if clock.frozen_at is not None:
            return f"<BrokerClock frozen at {(_EPOCH + timedelta(milliseconds=clock.frozen_at)).isoformat()}>"
        return f"<BrokerClock {clock.offset / 1000:+g} s from the machine's>"

    def now(self) -> datetime:
        """The broker's time, in UTC."""
        milliseconds = self._broker._submit(lambda server: server.clock.now()).result()
        return _EPOCH + timedelta(milliseconds=milliseconds)

    def advance(self, by: timedelta = timedelta(0), *, seconds: float = 0.0, milliseconds: int = 0) -> Moved:
        """Move forward, by all of these together.

        Raises:
            TypeError: `by` is a number: of what?
            ValueError: by less than nothing.
        """
        if not isinstance(by, timedelta):
            raise TypeError(f"advance({by!r:.60}): write advance(seconds=…), or give a timedelta")
        step = milliseconds + round(seconds * 1000) + round(by / MILLISECOND)
        return self._move(lambda clock: clock.advance(step))

    def set(self, to: datetime) -> Moved:
        """Show a time, in the past or in the future.

        Args:
            to: with a time zone.

        Raises:
            ValueError: without one: whose noon would it be?
        """
        if to.tzinfo is None:
            raise ValueError(f"the time {to.isoformat()} needs a time zone, such as datetime.timezone.utc")
        milliseconds = (to - _EPOCH) // timedelta(milliseconds=1)
        return self._move(lambda clock: clock.set(milliseconds))

    def freeze(self) -> Moved:
        """Stand still: nothing becomes due until the clock is moved or resumed."""
        return self._move(AdjustableClock.freeze)

    def resume(self) -> Moved:
        """Run on from the time shown."""
        return self._move(AdjustableClock.resume)

    def restore(self) -> Moved:
        """Run, and show the machine's time, as a new broker does."""
        return self._move(AdjustableClock.reset)

    @property
    def offset(self) -> timedelta:
        """By how much it is ahead of the machine's clock; negative if it is behind."""
        return timedelta(milliseconds=self._broker._submit(lambda server: server.clock.offset).result())

    @property
    def frozen(self) -> bool:
        """True if it stands still."""
        return self._broker._submit(lambda server: server.clock.frozen_at is not None).result()

    def _move(self, change: Callable[[AdjustableClock], None]) -> Moved:
        seen: Future[bool] = self._broker._new_result()

        def move(server: Server) -> int:
            clock = self._broker._adjustable
            if clock.frozen_at is not None:
                clock.now()
                server.clock_moved()  # clients' clocks ran on: the time that they skip now counts from the frozen time
            change(clock)
            server.clock_moved()
            server.when_clock_seen(SEEN_SECONDS).add_done_callback(lambda done: seen.set_result(done.result()))
            return server.clock.now()

        moved = Moved(self._broker._submit(move).result(), seen)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            seen.result()
        return moved


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
