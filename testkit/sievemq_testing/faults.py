"""What goes wrong on demand: refusals, lost and cut connections, held commands, slow consumers, full limits.

A fault is said in a test's own words and happens at a known place in the order of commands, not at a moment in time, so
it happens the same way each time. Where chance is wanted (`probability`), it comes from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.queue import Queue
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.wire.commands import COMMANDS
from sievemq_testing.disturbed import Held, Paused, Slow
from sievemq_testing.rules import Rule
from sievemq_testing.watched import WatchedConnection, WatchedLink

if TYPE_CHECKING:
    from sievemq import Destination
    from sievemq_testing.broker import TestBroker

__all__ = ["Faults"]

#: What :meth:`Faults.refuse` can refuse: whatever the broker could refuse by itself.
REFUSABLE: Final = frozenset(
    {"hello", "send"}
    | {
        spec.name.lower()
        for spec in COMMANDS.values()
        if spec.sender == "client" and spec.fields and spec.fields[0].name == "request"
    }
) - {"goodbye", "want", "rollback", "close_session", "close_consumer"}

_SAID_BY_CLIENT: Final = frozenset(spec.name.lower() for spec in COMMANDS.values() if spec.sender != "broker")


def _code(error: str | ErrorCode) -> ErrorCode:
    try:
        return ErrorCode[error] if isinstance(error, str) else error
    except KeyError:
        raise ValueError(f"there is no error {error!r}; one of {', '.join(ErrorCode.__members__)}") from None


class Faults:
    """Faults of the connections of one namespace, or of all.

    Args:
        broker: whose.
        namespace: only connections to it; None for all.
        seed: of everything that happens by chance.
    """

    def __init__(self, broker: TestBroker, namespace: str | None = None, seed: int = 0) -> None:
        self._broker = broker
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
            text: for people; says that it was asked for, if not given.
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
        """Cut the connection when such a command comes.

        Args:
            kind: as for :meth:`refuse`, and ``acknowledge``, ``release``, ….
            times: how often.
            after: the command is carried out, and its answer is lost; otherwise nothing is carried out.
            destination, client_id, skip, probability: as for :meth:`refuse`.

        Raises:
            ValueError: there is no such kind, or it would never happen.
        """
        if kind not in _SAID_BY_CLIENT:
            raise ValueError(f"no client says {kind!r}; one of {', '.join(sorted(_SAID_BY_CLIENT))}")
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

    def _add(self, kind: str, times: int, error: RequestError | None, **rest: Any) -> Rule:
        box = self._broker._watch.faults
        rule = Rule(box, self._namespace, kind, times, error, **rest)
        self._rules.append(rule)
        self._broker.call(lambda _: box.rules.append(rule))
        return rule

    @contextmanager
    def hold(self, client_id: str | None = None) -> Iterator[Held]:
        """Hold back what the clients say, until :meth:`Held.release` lets it on, at the latest at the block's end.

        A client that waits for an answer waits until then.
        """
        held = Held(self._broker, self._broker.call(lambda _: self._connections(client_id)))

        def begin(_: Broker) -> None:
            for connection in held._connections:
                connection.held = []

        self._broker.call(begin)
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
        """The broker ends connections and says why: a missed heartbeat without waiting for one, an administrator.

        Args:
            error: code or its name; one after which a connection ends, such as ``CLOSED_BY_ADMINISTRATOR``.
            client_id: only the one with this client id.

        Returns:
            How many were ended.

        Raises:
            ValueError: there is no such error, or a connection goes on after it.
        """
        code = _code(error)
        if not code.fatal:
            raise ValueError(f"a connection goes on after {code.name}; refuse() answers a command with it")

        def close(_: Broker) -> int:
            connections = self._connections(client_id)
            now = self._broker.server.clock.now()
            for connection in connections:
                connection.note("fault", detail=f"end the connection: {code.name} ({connection.id})")
                connection.close(code, "the test wants this connection to end", now)
            return len(connections)

        return self._broker.call(close)

    def pause_connections(self, client_id: str | None = None) -> Paused:
        """Let nothing pass, in either direction, and close nothing: a network that stands still. Use it as a context
        manager, or call ``resume()``. The pause of a connection also ends when its client closes it, which would wait
        for an answer otherwise.

        Args:
            client_id: only the one with this client id.
        """

        def pause(_: Broker) -> list[WatchedLink]:
            links = self._links(client_id)
            for link in links:
                self._note(link, "pause the connection")
                link.stand()
            return links

        paused = Paused(self._broker, self._broker.call(pause))
        self._going_on.append(paused)
        return paused

    def cut_frame(self, *, to_client: bool = True, client_id: str | None = None) -> int:
        """The next bytes end in the middle of a frame, and the connection with them.

        Args:
            to_client: of what the broker says; otherwise of what the client says.
            client_id: only the one with this client id.

        Returns:
            How many connections that concerns.
        """

        def cut(_: Broker) -> int:
            links = self._links(client_id)
            for link in links:
                self._note(link, f"cut the next frame {'to' if to_client else 'from'} the client in half")
                if to_client:
                    link.cut_out = True
                else:
                    link.cut_in = True
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
                connection.note("fault", detail=f"slow down {connection.id}")
                connection.pause()
            return connections

        slowed = Slow(self._broker, self._broker.call(slow))
        self._going_on.append(slowed)
        return slowed

    @contextmanager
    def memory_full(self, text: str = "memory limit (by the test)") -> Iterator[None]:
        """Block producers: nothing is taken, as at the broker's memory limit. All namespaces are concerned."""
        self._broker.on_server(lambda server: server.services.flow(text))
        try:
            yield
        finally:
            self._broker.on_server(lambda server: server.services.flow(None))

    def fill(self, destination: str | Destination) -> None:
        """A destination's limit is reached: from now on each send to it is refused with RESOURCE_ALLOCATION, until it
        is consumed from or :meth:`clear` is called."""
        namespace = self._namespace or ""

        def fill(broker: Broker) -> None:
            queue = broker.namespace(namespace).queue(str(destination))
            self._undo.append((queue, queue.policy))
            queue.policy = replace(queue.policy, max_bytes=max(1, queue.bytes))
            self._broker._watch.recorder.note(namespace, "fault", queue.label, detail="its limit is reached")

        self._broker.call(fill)

    def clear(self) -> None:
        """Nothing that was asked for here happens any more: rules and limits end, and what was paused or slowed down
        goes on. What they broke stays broken."""
        if not (self._rules or self._undo or self._going_on):
            return
        for one in self._going_on:
            one.resume()
        self._going_on.clear()

        def clear(_: Broker) -> None:
            for rule in self._rules:
                rule.cancel()
            for queue, policy in reversed(self._undo):
                queue.policy = policy
            self._rules.clear()
            self._undo.clear()

        self._broker.call(clear)

    # -- who is meant -------------------------------------------------------------------------------------------------

    def _connections(self, client_id: str | None) -> list[WatchedConnection]:
        found = [
            cast("WatchedConnection", connection)
            for connection in self._broker.server.services.connections.values()
            if (self._namespace is None or connection.namespace.name == self._namespace)
            and (client_id is None or connection.client_id == client_id)
        ]
        if not found and client_id is not None:
            raise LookupError(f"no connection here has the client id {client_id!r}")
        return found

    def _links(self, client_id: str | None) -> list[WatchedLink]:
        links = map(self._broker._watch.faults.link_of, self._connections(client_id))
        return [link for link in links if link is not None]

    def _note(self, link: WatchedLink, what: str) -> None:
        connection = link.connection
        assert isinstance(connection, WatchedConnection)
        connection.note("fault", detail=f"{what} ({connection.id})")
