"""A shard with its ports, on one running loop: the common part of the process and the embedded broker.

Where brokers share a store, a process has candidates first: the shards that it follows. It serves the one it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.config import Settings
from sievemq_broker.domain.store import AbandonedError, AwayError, StoreError
from sievemq_broker.domain.work import Job
from sievemq_broker.protocols import PROTOCOLS, Spoken
from sievemq_broker.server.credentials.authenticator import Authenticator
from sievemq_broker.server.credentials.sign_ins import SignIns
from sievemq_broker.server.credentials.user_store import UserStore
from sievemq_broker.server.live_settings import LiveSettings, values_of
from sievemq_broker.server.net.large_frames import share_of
from sievemq_broker.server.net.link import Choose, Connect, Connection, Link, Links, ShardPort
from sievemq_broker.server.net.listener import Acceptor, ClientPorts, ListenError, make_tls_context
from sievemq_broker.server.net.ticks import Ticks
from sievemq_broker.server.net.turn import Timers, Turn
from sievemq_broker.server.shard import RELEASE_SECONDS, Shard
from sievemq_broker.server.watch.attention import Attention, Key, Whole
from sievemq_broker.server.watch.audit import Audit
from sievemq_broker.server.watch.findings import Finding
from sievemq_broker.server.watch.follower_attention import FollowerAttention
from sievemq_broker.server.watch.happenings import Happenings
from sievemq_broker.server.watch.history import History
from sievemq_broker.server.watch.memory import MemoryLimit, memory_limit
from sievemq_broker.server.watch.resources import raise_file_limit
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import SessionSettings
from sievemq_broker.users.account import Users
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.version import VERSION

if TYPE_CHECKING:  # in memory there is no database
    from sievemq_broker.server.durability.candidates import Candidate, Candidates
    from sievemq_broker.server.durability.durable import Source
    from sievemq_broker.server.durability.keeper import Keeper
    from sievemq_broker.server.durability.slot import Slot
    from sievemq_broker.server.placement import Placement
    from sievemq_broker.store.lease import Owner

#: Draining ends after this many seconds without a byte from any client, unless one of them has unsettled work.
QUIET_SECONDS = 0.1

#: Seconds that clients may take to read the farewell and close their side; fewer if no client was promised time.
FAREWELL_SECONDS = 1.0
SHORT_FAREWELL_SECONDS = 0.1

#: Settings that decide what becomes of a message.
_SHARED = ("auto_create", "destinations", "dialect", "max_body_bytes", "namespaces", "on_full_disk", "protocols")

log = logs.get("server")


class Phase(Enum):
    """The state of a server; `/readyz` answers 200 only while READY or FOLLOWING."""

    FOLLOWING = "following"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"


class StoppedError(Exception):
    """The broker has ended, and something that it had accepted and not confirmed is not on disk."""


class Server:
    """Listeners, connections, turns, users and memory of one broker process.

    Args:
        clock: the broker's time.
        shard: what to serve; an empty one if not given.
        on_failure: called when there is a :attr:`failure`.
        sources: of the shards of which this broker takes one, by name; those that the settings name if not given.

    Attributes:
        shard: what this broker serves, or will: the domain, its store, and what its connections share.
        candidates: the shards that it follows until it owns one; None where brokers share no store.
        links: the open connections' transports.
        history: what has happened: rows that survive a restart.
        audit: of that, what operators have done.
        happenings: the events among them.
        failure: what made the store unusable: nothing leaves this broker any more, and it must end.
        silence: why nothing is read or sent for now; None if it is.
        is_asked_for: a follower has asked for the shard, and this broker ends for it.
        attention: what an operator should see to; there once it serves.
        started_at: when it became ready, seconds since 1970; 0 before.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        shard: Shard | None = None,
        on_failure: Callable[[], None] = lambda: None,
        sources: Mapping[str, Source] | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or Clock()
        self.shard = shard or Shard(settings, self.clock)
        self.shard.report_to(self._store_failed, self._report_store, self._silenced, self._asked_for)
        self.candidates = _candidates(settings, sources)
        self.phase = Phase.FOLLOWING if self.is_shared else Phase.STARTING
        #: An address of this process for followers, the URL of its management port, and what is called when the address
        #: need not accept any more.
        self._pulse: tuple[str, str, Callable[[], None]] = "", "", lambda: None
        self.started_at = 0.0
        self.links = Links(settings.max_connections)
        self.history = History()
        self.audit = Audit(self.history, self.clock.now)
        self.happenings = Happenings(self.history, self.clock.now)
        self.live.report_to(partial(self.happenings.note, "setting.changed"))
        self.user_store = UserStore(settings, self.live.users)
        self.authenticator = Authenticator(
            self.user_store.users, sign_ins=SignIns(self.clock.now, self.audit.signed_in)
        )
        self._acceptors: list[Acceptor] = []
        self._hurry = asyncio.Event()
        self._when_serving: list[Callable[[], None]] = []
        self._announced = 0
        #: Awaited when the clients are gone and before the sockets close, in this order.
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        self.failure: Exception | None = None
        self.silence: str | None = None
        self._follower_attention = FollowerAttention(settings.lease_seconds)
        self.on_failure = on_failure
        self._hand_over: Callable[[], None] | None = None
        self.is_asked_for = False

    # -- addresses ------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self.port_of("sieve")

    @property
    def url(self) -> str:
        return self.url_of("sieve")

    def port_of(self, protocol: str) -> int:
        """The port for clients of a protocol, as bound.

        Raises:
            RuntimeError: the broker does not speak it.
        """
        return self._ports.speaking(protocol).number

    def url_of(self, protocol: str) -> str:
        """The URL for clients of a protocol.

        Raises:
            RuntimeError: the broker does not speak it.
        """
        return self._ports.url(protocol)

    # -- start ----------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind the ports for clients.

        Raises:
            ListenError: one cannot be bound, or the certificate cannot be used.
        """
        settings = self.settings
        tls: ssl.SSLContext | None = None
        if settings.tls_cert is not None:
            tls = make_tls_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._ports = ClientPorts(settings, tls, listens=not self.is_shared)

    def beats_at(self, address: str, http_url: str, end: Callable[[], None]) -> None:
        """Have followers know an address of this process that accepts connections in each phase, as long as it lives.

        Args:
            address: host:port.
            http_url: of the management port, for people and commands.
            end: called once the shard is released: it need not accept any more.
        """
        self._pulse = address, http_url, end

    async def start(self) -> None:
        """Serve the ports for clients. Where brokers share the store, this lasts until this one owns a shard.

        Raises:
            AbandonedError: :meth:`give_up` was called.
            ListenError: another process took a port while this one followed.
            StoreError: the store cannot be used.
        """
        try:
            await self._start()
        except AbandonedError:
            raise
        except (ListenError, StoreError) as error:
            self.failure = self.failure or error
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        settings, shard = self.settings, self.shard
        look = partial(shard.broker.scheduler.share_turn, self._look)
        self.timers = Timers(loop, self.clock, [shard.broker])
        self.ticks = Ticks(loop, self.clock, self.links, look)
        if self.candidates is not None:
            if settings.shards:
                (any_of_them, *_) = self.candidates.followed.values()
                ports = [port.number for port, _ in self._ports.open]
                shard.join(loop, any_of_them.source.places(), settings.shards, ports)
            await loop.run_in_executor(None, _import_what_serves)
            self._watch_users(loop)  # a follower answers requests
            taken = await self.candidates.take(partial(self._keep, loop, self._describe()))
            assert taken.keeper is not None
            shard.own(taken.name, taken.source, taken.keeper, taken.following)
            self.user_store.close()
            self.phase = Phase.STARTING
        await self._open_shard()
        self.history.open(shard.history())
        self.links.limit_connections(self.live.max_connections)
        if self.live.users.changes:
            self.user_store.renew()
        self.authenticator.use(self.user_store.users)
        if settings.data_dir is not None:
            self.user_store.keep_key(settings.data_dir)
        self.turn = Turn(loop, settings.busy_poll, self.timers, [] if shard.commits is None else [shard.commits])
        shard.serve(self._session_settings(), self.authenticator, self.turn.spent)
        if settings.definitions is not None:
            from sievemq_broker.server.definitions import apply_at_start, without_others  # most brokers have none

            try:
                ours, _ = await without_others(settings.definitions, self.placement, claims=True)
            except RequestError as error:
                raise AwayError(error.text) from None
            if made := apply_at_start(shard.broker, ours, settings, self.clock.now()):
                self.audit.record("apply_definitions", via="file", touched=made, source=ours.origin)
        self._announced = self.clock.offset
        memory = memory_limit(self.live.max_memory_bytes)
        self.memory = MemoryLimit(memory, shard.broker, self.links, shard.services.flow, loop.call_soon)
        self.attention = Attention(
            shard.broker,
            shard.services.connections,
            shard.slow_consumers,
            shard.services.tallies,
            self.clock,
            self.settings.attention,
            self._whole,
        )
        self.history.when_loaded(lambda: self.attention.keep(self.history.rows("attention", 1_000)))
        self._ports.listen()
        for port, protocols in self._ports.open:
            link = self._links_of(protocols)
            self._acceptors.append(Acceptor(port.socket, link, self._ports.tls, settings.handshake_seconds))
        self.timers.start(self.turn.worked)
        self.ticks.start(self.turn.mark, self.turn.worked)
        self.clock.follow(self._clock_jumped, shard.services.drifted)
        self._watch_users(loop)
        self.phase = Phase.READY
        self.started_at = time.time()
        self.happenings.begin(VERSION)
        shard.begin()
        for begin in self._when_serving:
            begin()

    def _session_settings(self) -> SessionSettings:
        """What connections are announced from now on."""
        settings, shard = self.settings, self.shard
        memory = memory_limit(self.live.max_memory_bytes)
        return SessionSettings(
            broker=f"SieveMQ/{VERSION}",
            incarnation=shard.incarnation,
            durable=shard.commits is not None,
            dialect=settings.dialect,
            body_bytes=settings.max_body_bytes,
            incomplete_bytes=share_of(memory) if memory else 0,
            max_connections=self.live.max_connections,
            heartbeat_ms=int(settings.heartbeat_seconds * 1000),
            handshake_ms=int(settings.handshake_seconds * 1000),
            frame_ms=int(settings.frame_seconds * 1000),
            shard=shard.name,
            peers=settings.peers,
        )

    def _watch_users(self, loop: asyncio.AbstractEventLoop) -> None:
        self.user_store.watch(loop, self.use_users, partial(self.audit.record, "read_users_file", via="file"))

    @property
    def placement(self) -> Placement | None:
        """Where the namespaces of several shards are; None where all are here."""
        return self.shard.placement

    def give_up(self) -> None:
        """Follow or restore no further: have :meth:`start` end soon, in any thread. Without effect once it serves."""
        if self.candidates is not None:
            self.candidates.give_up()
        self.shard.give_up()

    async def _open_shard(self) -> None:
        await self.shard.open()

    def _describe(self) -> Owner:
        """What followers read about this process while it is the owner."""
        from sievemq_broker.store.lease import Owner  # in memory there is no database

        url = self.settings.advertise or self.url
        name, settings = f"{socket.gethostname()}:{os.getpid()}", shared_rules(self.settings)
        address, http_url, _ = self._pulse
        own = {protocol: self._ports.speaking(protocol).number for protocol in self.settings.own_ports}
        return Owner(name, url, address, settings, http_url, json.dumps(own) if own else "")

    def _keep(self, loop: asyncio.AbstractEventLoop, owner: Owner, candidate: Candidate, slot: Slot) -> Keeper:
        """The keeper of a shard that this process follows."""
        from sievemq_broker.server.durability.keeper import Keeper
        from sievemq_broker.store.lease import Lease, Terms

        settings = self.settings
        lease_seconds = settings.lease_seconds
        terms = Terms(settings.beat_seconds, lease_seconds, lease_seconds / 5, settings.store_patience)
        lease, leases = Lease(terms, secrets.token_hex(16)), candidate.source.leases()
        return Keeper(loop, lease, leases, owner, candidate, self.shard, slot=slot, shard=candidate.name)

    def _look(self) -> None:
        if self.links.silent:
            self.links.beat(self.clock.now())
        self.memory.look()
        self.audit.look()
        self.shard.look()
        self.attention.look()
        self.ticks.look()

    def _whole(self) -> Whole:
        """What the rules of attention look at beside destinations and clients."""
        memory, links = self.memory, self.links
        commits, sign_ins = self.shard.commits, self.authenticator.sign_ins
        return Whole(
            phase="" if self.phase in (Phase.READY, Phase.DRAINING) else self.phase.value,
            stuck=self.trouble,
            full_disk=self.full_disk,
            blocked=self.shard.services.blocked,
            memory=memory.bytes / memory.limit if memory.limit else 0.0,
            connections=links.taken / links.limit,
            disk=0.0 if commits is None or not commits.store.total else 1 - commits.store.free / commits.store.total,
            refused_sign_ins=sign_ins.refused,
            last_sign_in="" if sign_ins.last is None else sign_ins.last.text,
            shard=self.shard_warnings,
        )

    @property
    def findings(self) -> Mapping[Key, Finding]:
        """What needs attention, the most important first; also while another broker serves."""
        if self.phase not in (Phase.FOLLOWING, Phase.STARTING):
            return self.attention.listed
        if self.candidates is None:
            return {}
        return self._follower_attention.listed(self.candidates, self.clock.now())

    def when_serving(self, begin: Callable[[], None]) -> None:
        """Call this once clients are served; now, if they are."""
        if self.started_at:
            begin()
        else:
            self._when_serving.append(begin)

    def when_asked_for(self, hand_over: Callable[[], None]) -> None:
        """Call this once a follower asks for the shard while clients are served: the broker should stop in order."""
        self._hand_over = hand_over

    def _asked_for(self) -> None:
        if self._hand_over is not None and not self.is_asked_for and self.phase is Phase.READY:
            self.is_asked_for = True
            log.info("store.hands_over", note="a follower has asked for the shard (--handover)")
            self._hand_over()

    def _store_failed(self, error: Exception) -> None:
        """Nothing can be stored any more: serve no client."""
        self.failure = error
        if self.phase is Phase.READY:
            self.phase = Phase.FAILED
        self.stop_accepting()
        self._ports.close()
        self.links.close()  # no client gets a confirm for something that is not on disk
        self.on_failure()

    def _silenced(self, reason: str | None) -> None:
        """Another broker may own the shard: read nothing, and send nothing but heartbeats. With None, go on."""
        self.silence = reason
        self.links.silence(reason is not None)
        self._report_store(reason or self.trouble)  # it may take no writes still
        self.turn.worked()

    @property
    def is_shared(self) -> bool:
        """Other brokers use the store as well."""
        return self.candidates is not None

    @property
    def keepers(self) -> Mapping[str, Keeper]:
        """Those of the leases on the shards that this broker follows, or on the one that it owns, by its name."""
        if self.shard.keeper is not None:
            return {self.shard.name: self.shard.keeper}
        followed = {} if self.candidates is None else self.candidates.followed
        return {name: each.keeper for name, each in followed.items() if each.keeper is not None}

    @property
    def shard_warnings(self) -> list[str]:
        """What an operator should mend about shared shards, one line each."""
        if self.shard.keeper is not None:
            return self.shard.keeper.warnings
        return [] if self.candidates is None else self.candidates.warnings

    def ask_for(self, shard: str) -> None:
        """Ask the owner of a shard to hand it over to this broker, which follows it.

        Raises:
            ValueError: it does not.
        """
        if self.candidates is None:
            raise ValueError("this broker shares no store with others")
        if self.shard.keeper is not None:
            raise ValueError(f"this broker owns the shard {self.shard.name}, and follows none beside it")
        self.candidates.ask_for(shard)

    @property
    def role(self) -> str:
        """What this process is for its shard: `owner`; `follower`, `taking`, `silent` or `gone` where brokers share a
        store."""
        keeper = self.shard.keeper
        if keeper is None:
            return "follower" if self.phase is Phase.FOLLOWING else "owner"
        return keeper.role

    @property
    def lease_holds(self) -> bool:
        """No other broker may own the shard now."""
        keeper = self.shard.keeper
        return keeper.speaks() if keeper is not None else not self.is_shared

    @property
    def is_active(self) -> bool:
        """Clients are served here, and nowhere else."""
        return self.phase is Phase.READY and self.lease_holds

    @property
    def trouble(self) -> str | None:
        """Why this broker is not ready although it was: its store. None if it is."""
        if self.failure is not None:
            return f"the store has failed: {self.failure}"
        if self.silence is not None:
            return f"another broker may own the shard: {self.silence}"
        commits = self.shard.commits
        return None if commits is None else commits.stuck

    @property
    def full_disk(self) -> str | None:
        """Why PERSISTENT messages are not accepted; None while they are."""
        commits = self.shard.commits
        return None if commits is None else commits.full

    def _report_store(self, reason: str | None) -> None:
        """The store cannot be written, and no output leaves; or it can be again."""
        if reason is not None:
            for link in self.links.open:
                link.send_blocked(reason)
            return
        for connection in tuple(self.shard.services.connections.values()):
            connection.flow_changed()

    def new_link(self, protocol: str) -> Link:
        """The link of a connection that was accepted by a port other than those for clients."""
        return self._link(self._connectors()[protocol], None)

    def _links_of(self, protocols: tuple[str, ...]) -> Callable[[], Link]:
        """A function that creates the link of each connection to a port.

        Args:
            protocols: that are spoken there, the one first that is assumed.
        """
        connectors = self._connectors()
        connect = connectors[protocols[0]]
        others = [(begins, connectors[name]) for name in protocols[1:] if (begins := PROTOCOLS[name].begins)]

        def choose(data: bytes) -> Connect | None:
            return next((other for begins, other in others if begins.match(data)), None)

        return lambda: self._link(connect, choose if others else None)

    def _link(self, connect: Connect, choose: Choose | None) -> Link:
        identify = self._identify if self.settings.tls_client_users else None
        return Link(self.links, self.turn, self.clock, self.shard, connect, self._refuse, choose, identify)

    def _identify(self, transport: asyncio.Transport) -> Identity | None:
        """The user whose name is the common name of a client's certificate."""
        subject = (transport.get_extra_info("peercert") or {}).get("subject", ())
        names = [value for part in subject for name, value in part if name == "commonName"]
        user = self.authenticator.users.find(names[-1]) if names else None
        return None if user is None else user.identity

    def _connectors(self) -> Mapping[str, Connect]:
        """Functions that create the broker's end of a connection, by protocol."""
        return {name: partial(_connect, spoken) for name, spoken in PROTOCOLS.items()}

    def _refuse(self, connection: Connection, now: int) -> None:
        limit = self.links.limit
        if self.phase is not Phase.READY:
            connection.close(ErrorCode.SHUTTING_DOWN, "the broker is shutting down", now)
        else:
            text = (
                f"the broker has {limit} connections, as many as are allowed (max_connections); close unused ones, or "
                "try again later"
            )
            connection.close(ErrorCode.TOO_MANY_CONNECTIONS, text, now)

    # -- what changes at run time -------------------------------------------------------------------------------------

    @property
    def live(self) -> LiveSettings:
        """Rules, limits, users and limits of the broker."""
        return self.shard.live

    def use_settings(self, settings: Settings) -> None:
        """Have other settings from now on: of those that need no restart (`server/reloading.py`)."""
        before, self.settings = self.settings, settings
        if settings.log_level != before.log_level:
            logs.configure(settings.log_level, as_json=settings.json_logs)
        self.shard.broker.set_auto_create(settings.auto_create)
        self.live.rules.rebase(settings.destinations)
        self.live.limits.rebase(settings.namespaces)
        self.use_rules()
        self.live.values.rebase(values_of(settings))
        self.use_values()
        if self.started_at and settings.attention != before.attention:
            self.attention.use(settings.attention)
        if settings.users is not before.users:
            self.live.users.rebase(settings.users)
            self.user_store.renew()

    def use_values(self) -> None:
        """Apply the present limits of connections and memory. What exceeds a lower one stays, and nothing is added."""
        connections = self.live.max_connections
        if connections != self.links.limit:
            self.links.limit_connections(connections)
            raise_file_limit(connections)
        if not self.started_at:
            return
        self.shard.services.use(self._session_settings())
        memory = memory_limit(self.live.max_memory_bytes)
        if memory != self.memory.limit:
            self.memory.use(memory)
            self.turn.worked()

    def use_rules(self) -> Job[int]:
        """The rules or limits have changed. Returns the task that gives them to what exists."""
        job = self.shard.use_rules()
        if self.phase is Phase.READY:
            self.turn.worked()
        return job

    def use_users(self, users: Users) -> None:
        """The users have changed. Users that were removed or have another password lose their connections; the others
        get their new rights."""
        before = self.authenticator.use(users)
        if not users.required or self.phase in (Phase.FOLLOWING, Phase.STARTING):
            return
        now, changed = self.clock.now(), "the user or its password has changed; sign in again"
        if not before.required:
            changed = "clients need a user name and a password from now on"
        for link in tuple(self.links.open):  # signed in, and not welcomed: one that waits for a client id, say
            member = link.connection.peer.member
            name = member.identity.user or ""
            if not member.id and (not before.required or before.find(name) != users.find(name)):
                link.connection.close(ErrorCode.AUTHENTICATION, changed, now)
        for connection in tuple(self.shard.services.connections.values()):
            name = connection.member.identity.user or ""
            old, new = before.find(name), users.find(name)
            if new is None or old is None or new.secret != old.secret:
                connection.close(ErrorCode.AUTHENTICATION, changed, now)
            elif not new.rights.enters(connection.namespace.name):
                connection.close(ErrorCode.AUTHENTICATION, "the user no longer has a right in this namespace", now)
            elif new.rights != old.rights:
                connection.entitle(new.identity)
        self.turn.worked()

    # -- the clock --------------------------------------------------------------------------------------------------

    def _clock_jumped(self, by: int) -> None:
        """The machine's clock was set: see :class:`~sievemq_broker.clock.Clock`. Between two verbs of the domain."""
        log.warning("clock.jumped", seconds=by / 1000, note="expiry and delivery times follow the new time")
        self.happenings.note("clock.jumped", seconds=by / 1000)
        self.shard.clock_jumped(by)
        self.attention.clock_jumped(by)
        self.authenticator.sign_ins.failures.clock_jumped(by)
        for link in self.links.open:
            link.connection.clock_jumped(by)
        self.started_at += by / 1000
        self.turn.worked()

    def clock_moved(self) -> None:
        """The clock was moved: do what is due now, and send it to the clients. In this order: a receive that times out
        by the new clock gets messages that were due by then."""
        self.timers.moved()
        now = self.clock.now()  # a frozen clock computes its offset when it is read
        self._announced = self.clock.offset
        self.shard.services.move_clock(self._announced, now)
        self.turn.end()

    def when_clock_seen(self, seconds: float) -> asyncio.Future[bool]:
        """Done when every client has sent CLOCK_SEEN, with True; or after `seconds`, with False."""
        loop = asyncio.get_running_loop()
        seen: asyncio.Future[bool] = loop.create_future()

        def done(result: bool) -> None:
            if not seen.done():
                seen.set_result(result)
                timeout.cancel()
                self.turn.watchers.remove(look)

        def look() -> None:
            if all(c.clock_seen == self._announced for c in self.shard.services.connections.values()):
                done(True)

        timeout = loop.call_later(seconds, done, False)
        self.turn.watchers.append(look)
        look()
        return seen

    # -- stop -----------------------------------------------------------------------------------------------------

    async def stop(self, drain_seconds: float = 0.0) -> None:
        """End in order: no new connections, notify clients, give them time, close, then :attr:`on_stop`.

        Args:
            drain_seconds: the longest that clients may take to finish.
        """
        if self.phase is Phase.STOPPED:
            return
        self.phase = Phase.DRAINING
        if self._acceptors:
            self.stop_accepting()
            for acceptor in self._acceptors:
                await acceptor.wait_closed()
            if drain_seconds > 0:
                await self._drain(drain_seconds)
            if self.is_shared:
                self.shard.services.end()
            await self._close_links(FAREWELL_SECONDS if drain_seconds > 0 else SHORT_FAREWELL_SECONDS)
            self.timers.stop()
            self.ticks.stop()
            self.shard.broker.finish(self.clock.now())
        for stop in self.on_stop:
            await stop()
        self._ports.close()
        if self.started_at and self.failure is None:
            self.happenings.end()
        self.audit.look(ends=True)
        await self.history.close()
        if self.candidates is not None:
            await self.candidates.close(RELEASE_SECONDS)
        if not await self.shard.close() and self.failure is None:
            self.failure = StoppedError("the disk took no more writes")
        self._pulse[2]()
        self.user_store.close()
        self.authenticator.close()
        self.phase = Phase.STOPPED
        await asyncio.sleep(0)  # transports that were closed notify their protocols in the next turn

    def stop_accepting(self) -> None:
        """Accept no further clients."""
        for acceptor in self._acceptors:
            acceptor.close()

    def hurry(self) -> None:
        """Stop waiting for clients."""
        self._hurry.set()

    async def _drain(self, seconds: float) -> None:
        """Notify the clients, and wait until none of them has unsettled work."""
        grace = int(seconds * 1000)
        for connection in tuple(self.shard.services.connections.values()):
            connection.out.shutdown(grace, "the broker is shutting down")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.links.open and loop.time() < deadline and not self._hurry.is_set():
            moved = self.links.bytes_in
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), min(QUIET_SECONDS, seconds))
            if moved != self.links.bytes_in or self.turn.late:
                continue
            if not any(peer.is_busy for peer in self.shard.services.connections.values()):
                break

    async def _close_links(self, seconds: float) -> None:
        """Send the reason, let the last bytes leave, then cut the remaining connections."""
        now = self.clock.now()
        for link in tuple(self.links.open):
            link.connection.close(ErrorCode.SHUTTING_DOWN, "the broker is shutting down", now)
            link.flush()
        if self.links.open:
            gone = self.links.when_empty()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone, seconds)
        self.links.close()


def _import_what_serves() -> None:
    """Import what other brokers import when they need it. A follower may need it long after an upgrade has replaced its
    files, and a takeover should not wait for it."""
    from sievemq_broker.domain import handover  # noqa: F401
    from sievemq_broker.server.durability import commits, durable, progress  # noqa: F401

    for spoken in PROTOCOLS.values():
        spoken.classes()


def _candidates(settings: Settings, sources: Mapping[str, Source] | None) -> Candidates | None:
    """The shards that a broker follows."""
    if sources is None and settings.store is None:
        return None
    from sievemq_broker.server.durability.candidates import Candidates
    from sievemq_broker.server.durability.durable import shared_sources

    return Candidates(shared_sources(settings) if sources is None else sources, memory_limit(settings.max_memory_bytes))


def shared_rules(settings: Settings) -> str:
    """The settings in which the brokers of a shard should not differ, as canonical text."""
    rules: dict[str, Any] = {name: getattr(settings, name) for name in _SHARED}
    rules["users"] = sorted(settings.users)
    rules["shards"] = sorted(settings.shards)
    return json.dumps(rules, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else str(value)  # type: ignore[arg-type]


def _connect(spoken: Spoken, shard: ShardPort, address: str, wake: Callable[[], None]) -> Connection:
    make: Callable[..., Connection] = spoken.classes()[0]
    return make(shard.broker, shard.services, address=address, wake=wake)
