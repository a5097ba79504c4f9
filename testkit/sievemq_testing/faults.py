"""Faults on demand: refusals, lost and cut connections, held commands, slow consumers, full limits.

A test describes a fault, and it happens at a known place in the order of commands, not at a moment in time. So it
happens the same way each time. Random faults (`probability`) are drawn from the seed."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Final, Self, cast

from sievemq.destinations import Destination
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.queue import Queue
from sievemq_broker.server.net.link import Link
from sievemq_broker.server.server import Server
from sievemq_broker.session.member import Member
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.sends import refuse
from sievemq_broker.session.verbs import Commit, Hello
from sievemq_core.counted import counted
from sievemq_core.durations import Seconds, seconds
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.destination import misspelt_kind
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_testing.journal import Recorder
from sievemq_testing.running import Running
from sievemq_testing.watched import WatchedConnection, WatchedLink, canonical, name_of

#: The commands that :meth:`Faults.refuse` can refuse: all that the broker itself could refuse.
REFUSABLE: Final = frozenset(
    {"hello", "send"}
    | {
        spec.name.lower()
        for spec in COMMANDS.values()
        if spec.sender == "client" and spec.fields and spec.fields[0].name == "request"
    }
) - {"goodbye", "want", "rollback", "close_session", "close_consumer"}

_SAID_BY_CLIENT: Final = frozenset(spec.name.lower() for spec in COMMANDS.values() if spec.sender != "broker")


class Rule:
    """One fault that waits for its command. A context manager: it ends with the block.

    Attributes:
        kind: of the command.
        left: how often it will still happen.
        used: how often it has happened.
    """

    def __init__(
        self,
        box: FaultBox,
        namespace: str | None,
        kind: str,
        times: int,
        error: RequestError | None,
        *,
        drop: str = "",
        delay: int | None = None,
        destination: str | None = None,
        client_id: str | None = None,
        skip: int = 0,
        probability: float = 1.0,
        seed: int = 0,
    ) -> None:
        if times < 1 or skip < 0 or not 0.0 < probability <= 1.0:
            raise ValueError(
                f"a fault that never happens: times is at least 1, skip at least 0, probability above 0 and at most 1; "
                f"not {times}, {skip} and {probability}"
            )
        misspelt = None if destination is None else misspelt_kind(destination)
        if misspelt is not None:
            raise ValueError(f"a fault that never happens: {misspelt}")
        self.kind = kind
        self.left = times
        self.used = 0
        self._box = box
        self._namespace = namespace
        self._error = error
        self._drop = drop
        self._delay = delay
        self._destination = None if destination is None else canonical(destination)
        self._client_id = client_id
        self._skip = skip
        self._probability = probability
        self._chance = random.Random(seed)  # noqa: S311  repeatable is the point

    def __repr__(self) -> str:
        return f"<Rule {self._what()} used={self.used} left={self.left}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Remove the rule. Commands that it delays continue."""
        self.left = 0
        self._box.forget(self)

    def _what(self) -> str:
        if self._error is not None:
            doing = f"refuse: {self._error.code.name}"
        elif self._delay is not None:
            doing = f"delay it by {self._delay} ms"
        else:
            doing = f"drop the connection {self._drop} it"
        return f"{self.kind}: {doing}"

    # -- on the broker's thread ---------------------------------------------------------------------------------------

    def meets(self, connection: WatchedConnection, command: tuple[Any, ...]) -> bool:
        """True if it happens to this command."""
        if self.left <= 0 or name_of(command) != self.kind:
            return False
        if self._delay is not None and command is connection.let:
            return False
        who = command if isinstance(command, Hello) else connection.peer.member
        if self._namespace is not None and _namespace_of(who) != self._namespace:
            return False
        if self._client_id is not None and who.client_id != self._client_id:
            return False
        if self._destination is not None:
            destination = _destination_of(command)
            if destination is None or not fnmatchcase(canonical(destination), self._destination):
                return False
        if self._skip > 0:
            self._skip -= 1
            return False
        return self._probability >= 1.0 or self._chance.random() < self._probability

    def act(self, connection: WatchedConnection, command: tuple[Any, ...], now: int) -> bool:
        """Apply the rule; True if the command is finished."""
        self.left -= 1
        self.used += 1
        name = _namespace_of(command if isinstance(command, Hello) else connection.peer.member)
        text = f"{self._what()} (of {connection.peer.member.id or connection.peer.address})"
        self._box.note(name, "", text)
        if self._delay is not None:
            connection.hold(command)
            self._box.delay(self, connection, now + self._delay)
            return True
        if self._error is None:
            if self._drop == "before":
                self._box.cut(connection)
                return True
            return False
        if isinstance(command, Commit):
            # A commit that fails is a rollback (TXN-09): the broker's own handler sees to that.
            session = connection.peer.sessions.get(command.session)
            if session is not None and session.transaction is not None:
                session.transaction.fail(self._error)
            return False
        if command[0] == Command.SEND:
            _, number, _, _, _ = command
            session = connection.peer.sessions.get(number)
            if session is None:
                return False
            refuse(connection.peer, session, self._error)
            return True
        raise self._error

    def after(self, connection: WatchedConnection) -> None:
        """Called after the command was carried out."""
        if self._drop == "after":
            self._box.cut(connection)


def _namespace_of(who: Hello | Member) -> str:
    return (who.wanted if isinstance(who, Hello) else who.namespace.name) or "default"


def _destination_of(command: tuple[Any, ...]) -> str | None:
    """The destination that a command names."""
    if command[0] == Command.SEND:
        destination: str
        _, _, _, destination, _ = command
        return destination
    return getattr(command, "destination", None)


class FaultBox:
    """The rules of one broker. Only the broker's thread touches it, except for :meth:`forget`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._rules: list[Rule] = []
        self._link_of: Callable[[Peer], Link | None] = _no_link
        self._server: Server | None = None
        #: Connections whose commands are delayed, with the time that ends it.
        self._delayed: list[tuple[int, Rule, WatchedConnection]] = []
        self._next: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self, server: Server) -> None:
        """The broker's connections are those of this server from now on."""
        self._link_of = server.links.of
        self._server = server
        self._delayed.clear()
        self._next = None

    def note(self, namespace: str, where: str, detail: str) -> None:
        """Write a fault into the journal of a namespace."""
        self._recorder.note(namespace, "fault", where, detail=detail)

    def add(self, rule: Rule) -> None:
        """A rule begins."""
        self._rules.append(rule)

    def cut(self, connection: WatchedConnection) -> None:
        """The network fails: queued output is no longer written."""
        link = self.link_of(connection)
        connection.lost(connection.peer.services.now())
        if link is not None:
            link.abort()

    def delay(self, rule: Rule, connection: WatchedConnection, until: int) -> None:
        """Hold the commands of a connection until then, or until the rule is cancelled."""
        self._loop = asyncio.get_running_loop()
        self._delayed.append((until, rule, connection))
        self._wake()

    def let_on(self, now: int) -> None:
        """Let commands continue whose delay is over by `now`."""
        self._end([delayed for delayed in self._delayed if delayed[0] <= now], now)

    def _cancelled(self, rule: Rule) -> None:
        """Let commands continue that this rule delays."""
        server = self._server
        if server is not None:
            self._end([delayed for delayed in self._delayed if delayed[1] is rule], server.clock.now())
            server.turn.worked()

    def _end(self, ended: list[tuple[int, Rule, WatchedConnection]], now: int) -> None:
        for delayed in ended:
            self._delayed.remove(delayed)
            connection = delayed[2]
            for command in connection.stop_holding():
                connection.let_on(command, now)
            link = self.link_of(connection)
            if link is not None:
                link.let_on()
        self._wake()

    def _wake(self) -> None:
        """See to it that the next delay ends in time. While the clock is frozen, whoever moves it does."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        server, loop = self._server, self._loop
        if self._delayed and loop is not None and server is not None and server.clock.frozen_at is None:
            wait = max(0, min(until for until, _, _ in self._delayed) - server.clock.now())
            self._next = loop.call_later(wait / 1000, self._woken, server)

    def _woken(self, server: Server) -> None:
        self.let_on(server.clock.now())
        server.turn.worked()

    @property
    def waiting(self) -> bool:
        """True if there are rules."""
        return bool(self._rules)

    def meet(self, connection: WatchedConnection, command: tuple[Any, ...]) -> Rule | None:
        """The rule that happens to a command."""
        for rule in self._rules:
            if rule.meets(connection, command):
                return rule
        return None

    def forget(self, rule: Rule) -> None:
        """A rule ends, in any thread."""
        if rule in self._rules:
            self._rules.remove(rule)
        if self._loop is not None and any(delayed[1] is rule for delayed in self._delayed):
            with suppress(RuntimeError):  # the broker has stopped meanwhile
                self._loop.call_soon_threadsafe(self._cancelled, rule)

    def link_of(self, connection: WatchedConnection) -> WatchedLink | None:
        """The connection's transport; None once it is closed."""
        link = self._link_of(connection.peer)
        return link if isinstance(link, WatchedLink) else None


def _no_link(_: Peer) -> None:
    """No server has begun."""


class Held:
    """Commands of several connections that are held; see :meth:`Faults.hold`."""

    def __init__(self, broker: Running, box: FaultBox, connections: list[WatchedConnection]) -> None:
        self._broker = broker
        self._box = box
        self._connections = connections

    def __repr__(self) -> str:
        return f"<Held: {counted(len(self._connections), 'connection')}>"

    def begin(self) -> None:
        """Hold commands back from now on."""

        def begin(_: Broker) -> None:
            for connection in self._connections:
                connection.hold()

        self._broker.call(begin)

    @property
    def commands(self) -> list[str]:
        """The names of the held commands, such as ``send``, connection by connection."""
        return self._broker.call(
            lambda _: [name_of(command) for connection in self._connections for command in connection.held or ()]
        )

    def release(self, *, reverse: bool = False, seed: int | None = None) -> int:
        """Let all held commands continue. The order of each connection stays; only the order across connections
        changes.

        Args:
            reverse: the last connection goes first.
            seed: interleave the connections at random, the same way for the same seed.

        Returns:
            How many commands continued.
        """
        return self._broker.call(self._release, reverse, seed)

    def _release(self, _: Broker, reverse: bool, seed: int | None) -> int:
        queues = [(connection, connection.stop_holding()) for connection in self._connections]
        if reverse:
            queues.reverse()
        now = self._broker.server.clock.now()
        order: list[int] = [index for index, (_, commands) in enumerate(queues) for _ in commands]
        if seed is not None:
            random.Random(seed).shuffle(order)  # noqa: S311  repeatable is the point
        positions = [0] * len(queues)
        for index in order:
            connection, commands = queues[index]
            connection.let_on(commands[positions[index]], now)
            positions[index] += 1
        for connection in self._connections:
            link = self._box.link_of(connection)
            if link is not None:
                link.let_on()
        return len(order)


class _UntilResumed(ABC):
    """A context manager that resumes at the end of the block.

    Attributes:
        size: how many connections it concerns.
    """

    size: int

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.resume()

    @abstractmethod
    def resume(self) -> None:
        """Restore the state before the block."""


class Paused(_UntilResumed):
    """Connections that stand still."""

    def __init__(self, broker: Running, links: list[WatchedLink]) -> None:
        self._broker = broker
        self._links = links
        self.size = len(links)

    def __repr__(self) -> str:
        return f"<Paused: {counted(self.size, 'connection')}>"

    def resume(self) -> None:
        """Let queued deliveries pass, then all others."""

        def resume(_: Broker) -> None:
            for link in self._links:
                if link.frozen:
                    link.go_on()

        self._broker.call(resume)


class Slow(_UntilResumed):
    """Connections that nothing is delivered to."""

    def __init__(self, broker: Running, connections: list[WatchedConnection]) -> None:
        self._broker = broker
        self._connections = connections
        self.size = len(connections)

    def __repr__(self) -> str:
        return f"<Slow: {counted(self.size, 'connection')}>"

    def let(self, deliveries: int) -> None:
        """Let this many deliveries pass to each connection, now or when there are deliveries."""
        self._set(deliveries)

    def resume(self) -> None:
        """Deliver as usual."""
        self._set(None)

    def _set(self, deliveries: int | None) -> None:
        def allow(_: Broker) -> None:
            now = self._broker.server.clock.now()
            for connection in self._connections:
                connection.allow(deliveries, now)

        self._broker.call(allow)


def _code(error: str | ErrorCode) -> ErrorCode:
    try:
        return ErrorCode[error] if isinstance(error, str) else error
    except KeyError:
        raise ValueError(f"there is no error {error!r}; one of {', '.join(ErrorCode.__members__)}") from None


def _check_said(kind: str) -> None:
    if kind not in _SAID_BY_CLIENT:
        raise ValueError(f"no client says {kind!r}; one of {', '.join(sorted(_SAID_BY_CLIENT))}")


class Faults:
    """Faults of the connections of one namespace, or of all.

    Args:
        broker: whose.
        box: the broker's rules.
        namespace: only connections to it; None for all.
        seed: of everything that happens by chance.
    """

    def __init__(self, broker: Running, box: FaultBox, namespace: str | None = None, seed: int = 0) -> None:
        self._broker = broker
        self._box = box
        self._namespace = namespace
        self.seed = seed
        self._rules: list[Rule] = []
        self._undo: list[tuple[Queue, Any]] = []
        self._going_on: list[Paused | Slow] = []

    def __repr__(self) -> str:
        where = "all namespaces" if self._namespace is None else repr(self._namespace)
        return f"<Faults of {where}: {', '.join(map(repr, self._rules)) or 'none'}>"

    # -- commands -----------------------------------------------------------------------------------------------------

    def refuse(
        self,
        kind: str,
        times: int = 1,
        error: str | ErrorCode = ErrorCode.RESOURCE_ALLOCATION,
        text: str = "",
        *,
        destination: str | Destination | None = None,
        client_id: str | None = None,
        skip: int = 0,
        probability: float = 1.0,
    ) -> Rule:
        """Refuse the next commands of a kind, as the broker refuses them by itself.

        Args:
            kind: ``send``, ``commit``, ``hello``, ``open_consumer``, ``browse``, …
            times: how many.
            error: code or its name.
            text: of the error; by default that the test requested it.
            destination: only commands that name it; ``queue:orders.*`` is a pattern.
            client_id: only of the connection with this client id.
            skip: commands that pass first.
            probability: that it happens to a command, by the seed.

        Raises:
            ValueError: the broker never refuses that kind, there is no such error, or it would never happen.
        """
        if kind not in REFUSABLE:
            raise ValueError(f"{kind!r} cannot be refused; one of {', '.join(sorted(REFUSABLE))}")
        code = _code(error)
        refusal = RequestError(text or f"the test wants this {kind} to be refused", code)
        return self._add(
            kind,
            times,
            refusal,
            destination=None if destination is None else str(destination),
            client_id=client_id,
            skip=skip,
            probability=probability,
            seed=self.seed,
        )

    def drop_on(
        self,
        kind: str,
        times: int = 1,
        *,
        after: bool = False,
        destination: str | Destination | None = None,
        client_id: str | None = None,
        skip: int = 0,
        probability: float = 1.0,
    ) -> Rule:
        """Cut the connection when a command of this kind arrives.

        Args:
            kind: as for :meth:`refuse`, and ``acknowledge``, ``release``, ….
            times: how often.
            after: the command is carried out, and its answer is lost; otherwise nothing is carried out.
            destination, client_id, skip, probability: as for :meth:`refuse`.

        Raises:
            ValueError: there is no such kind, or it would never happen.
        """
        _check_said(kind)
        return self._add(
            kind,
            times,
            None,
            drop="after" if after else "before",
            destination=None if destination is None else str(destination),
            client_id=client_id,
            skip=skip,
            probability=probability,
            seed=self.seed,
        )

    def delay_on(
        self,
        kind: str,
        by: Seconds,
        times: int = 1,
        *,
        destination: str | Destination | None = None,
        client_id: str | None = None,
        skip: int = 0,
        probability: float = 1.0,
    ) -> Rule:
        """Hold a command of this kind back, and all that follow it on its connection, as a slow network does. They
        continue once the broker's clock has moved so far, or when the rule is cancelled.

        Args:
            kind: as for :meth:`drop_on`.
            by: seconds, or a timedelta, by the broker's clock.
            times: how many.
            destination, client_id, skip, probability: as for :meth:`refuse`.

        Raises:
            ValueError: there is no such kind, or it would never happen.
        """
        _check_said(kind)
        return self._add(
            kind,
            times,
            None,
            delay=round(seconds("by", by) * 1000),
            destination=None if destination is None else str(destination),
            client_id=client_id,
            skip=skip,
            probability=probability,
            seed=self.seed,
        )

    def _add(self, kind: str, times: int, error: RequestError | None, **rest: Any) -> Rule:
        rule = Rule(self._box, self._namespace, kind, times, error, **rest)
        self._rules.append(rule)
        self._broker.call(lambda _: self._box.add(rule))
        return rule

    @contextmanager
    def hold(self, client_id: str | None = None) -> Iterator[Held]:
        """Hold the commands of clients until :meth:`Held.release`, at the latest until the block ends.

        A client that waits for an answer waits until then.
        """
        held = Held(self._broker, self._box, self._broker.call(lambda _: self._connections(client_id)))
        held.begin()
        try:
            yield held
        finally:
            held.release()

    # -- connections --------------------------------------------------------------------------------------------------

    def drop_connections(self, client_id: str | None = None) -> int:
        """Cut connections without a word.

        Args:
            client_id: only the one with this client id.

        Returns:
            How many were cut.
        """

        def drop(_: Broker) -> int:
            links = self._links(client_id)
            for link in links:
                self._note(link, "drop the connection")
                link.abort()
            return len(links)

        return self._broker.call(drop)

    def close_connections(
        self, error: str | ErrorCode = ErrorCode.HEARTBEAT_MISSED, client_id: str | None = None
    ) -> int:
        """The broker ends connections and sends the reason: a missed heartbeat (without waiting), an administrator.

        Args:
            error: code or its name; one after which a connection ends, such as ``CLOSED_BY_ADMINISTRATOR``.
            client_id: only the one with this client id.

        Returns:
            How many were ended.

        Raises:
            ValueError: there is no such error, or a connection continues after it.
        """
        code = _code(error)
        if not code.fatal:
            raise ValueError(f"a connection continues after {code.name}; refuse() answers a command with it")

        def close(_: Broker) -> int:
            connections = self._connections(client_id)
            now = self._broker.server.clock.now()
            for connection in connections:
                connection.note("fault", detail=f"end the connection: {code.name} ({connection.peer.member.id})")
                connection.close(code, "the test wants this connection to end", now)
            return len(connections)

        return self._broker.call(close)

    def pause_connections(self, client_id: str | None = None) -> Paused:
        """Let nothing pass in either direction, and close nothing, as in a network outage. Use it as a context manager,
        or call ``resume()``. The pause of a connection also ends when its client closes it, or a session or consumer on
        it, since the client would wait for an answer otherwise.

        Args:
            client_id: only the one with this client id.
        """

        def pause(_: Broker) -> list[WatchedLink]:
            links = self._links(client_id)
            for link in links:
                self._note(link, "pause the connection")
                link.freeze()
            return links

        paused = Paused(self._broker, self._broker.call(pause))
        self._going_on.append(paused)
        return paused

    def cut_frame(
        self, *, to_client: bool = True, skip: int = 0, between: bool = False, client_id: str | None = None
    ) -> int:
        """The next bytes end in the middle of a frame, and the connection with them.

        Args:
            to_client: of what the broker sends; otherwise of what the client sends.
            skip: frames of the client's protocol that pass first.
            between: end behind the frames that pass, and not in the middle of the next one.
            client_id: only the one with this client id.

        Returns:
            How many connections that concerns.
        """

        if skip < 0:
            raise ValueError(f"skip cannot be negative, as {skip} is")

        def cut(_: Broker) -> int:
            links = self._links(client_id)
            for link in links:
                way = "to" if to_client else "from"
                behind = f"behind {counted(skip, 'frame')}"
                where = f"{behind} {way} the client" if between else f"the next frame {way} the client in half"
                self._note(link, f"cut {where}{f', {behind}' if skip and not between else ''}")
                link.cut_next(to_client=to_client, skip=skip, between=between)
            return len(links)

        return self._broker.call(cut)

    # -- slow and full ------------------------------------------------------------------------------------------------

    def slow_consumers(self, client_id: str | None = None) -> Slow:
        """Deliver nothing, as to a client that does not read; :meth:`Slow.let` passes a few. Use it as a context
        manager, or call ``resume()``.

        Args:
            client_id: only the one with this client id.
        """

        def slow(_: Broker) -> list[WatchedConnection]:
            connections = self._connections(client_id)
            for connection in connections:
                connection.note("fault", detail=f"slow down {connection.peer.member.id}")
                connection.pause()
            return connections

        slowed = Slow(self._broker, self._broker.call(slow))
        self._going_on.append(slowed)
        return slowed

    @contextmanager
    def memory_full(self, text: str = "memory limit (by the test)") -> Iterator[None]:
        """Block producers: nothing is taken, as at the broker's memory limit. All namespaces are concerned."""
        self._broker.on_server(lambda server: server.shard.services.flow(text))
        try:
            yield
        finally:
            self._broker.on_server(lambda server: server.shard.services.flow(None))

    def fill(self, destination: str | Destination) -> None:
        """A destination's limit is reached: from now on each send to it is refused with RESOURCE_ALLOCATION, until it
        is consumed from or :meth:`clear` is called."""
        namespace = self._namespace or ""

        def fill(broker: Broker) -> None:
            queue = broker.namespace(namespace).queue(str(destination))
            self._undo.append((queue, queue.policy))
            queue.configure(replace(queue.policy, max_bytes=max(1, queue.bytes)))
            self._box.note(namespace, queue.label, "its limit is reached")

        self._broker.call(fill)

    def clear(self) -> None:
        """No fault that was requested here happens any more: rules and limits end, and what was paused or slowed down
        continues. What they broke stays broken."""
        if not (self._rules or self._undo or self._going_on):
            return
        for one in self._going_on:
            one.resume()
        self._going_on.clear()

        def clear(_: Broker) -> None:
            for rule in self._rules:
                rule.cancel()
            for queue, policy in reversed(self._undo):
                queue.configure(policy)
            self._rules.clear()
            self._undo.clear()

        self._broker.call(clear)

    # -- matching a rule ----------------------------------------------------------------------------------------------

    def _connections(self, client_id: str | None) -> list[WatchedConnection]:
        links = self._broker.server.links
        found = [
            cast("WatchedConnection", link.connection)
            for peer in self._broker.server.shard.services.connections.values()
            if (self._namespace is None or peer.namespace.name == self._namespace)
            and (client_id is None or peer.member.client_id == client_id)
            and (link := links.of(peer)) is not None
        ]
        if not found and client_id is not None:
            raise LookupError(f"no connection here has the client id {client_id!r}")
        return found

    def _links(self, client_id: str | None) -> list[WatchedLink]:
        links = map(self._box.link_of, self._connections(client_id))
        return [link for link in links if link is not None]

    def _note(self, link: WatchedLink, what: str) -> None:
        connection = link.connection
        assert isinstance(connection, WatchedConnection)
        connection.note("fault", detail=f"{what} ({connection.peer.member.id})")
