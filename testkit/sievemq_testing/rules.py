"""One fault that waits for its command, and the broker's list of them."""

from __future__ import annotations

import random
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Final, Self

from sievemq_broker.server.server import Server
from sievemq_broker.session.session import Session
from sievemq_core.errors import RequestError
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_testing.watched import WatchedConnection, WatchedLink, canonical, name_of

__all__ = ["FaultBox", "Rule"]

_DESTINATION_AT: Final = {
    number: 1 + index
    for number, spec in COMMANDS.items()
    for index, field in enumerate(spec.fields)
    if field.name == "destination"
}


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
        self.kind = kind
        self.left = times
        self.used = 0
        self._box = box
        self._namespace = namespace
        self._error = error
        self._drop = drop
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
        """It will not happen any more."""
        self.left = 0
        self._box.forget(self)

    def _what(self) -> str:
        doing = f"drop the connection {self._drop} it" if self._error is None else f"refuse: {self._error.code.name}"
        return f"{self.kind}: {doing}"

    # -- on the broker's thread ---------------------------------------------------------------------------------------

    def meets(self, connection: WatchedConnection, command: tuple[Any, ...]) -> bool:
        """True if it happens to this command."""
        if self.left <= 0 or name_of(command) != self.kind:
            return False
        name = command[2] if command[0] == Command.HELLO else connection.namespace.name
        if self._namespace is not None and (name or "default") != self._namespace:
            return False
        client_id = command[5] if command[0] == Command.HELLO else connection.client_id
        if self._client_id is not None and client_id != self._client_id:
            return False
        if self._destination is not None:
            position = _DESTINATION_AT.get(command[0])
            if position is None or not fnmatchcase(canonical(command[position]), self._destination):
                return False
        if self._skip > 0:
            self._skip -= 1
            return False
        return self._probability >= 1.0 or self._chance.random() < self._probability

    def act(self, connection: WatchedConnection, command: tuple[Any, ...], now: int) -> bool:
        """Let it happen; True if the command is done with."""
        self.left -= 1
        self.used += 1
        name = command[2] if command[0] == Command.HELLO else connection.namespace.name
        text = f"{self._what()} (of {connection.id or connection.peer})"
        connection.watch.recorder.note(name, "fault", detail=text)
        if self._error is None:
            if self._drop == "before":
                _cut(connection)
                return True
            return False
        if command[0] == Command.COMMIT:
            # A commit that fails is a rollback (TXN-09): the broker's own handler sees to that.
            session = connection.sessions.get(command[2])
            if session is not None and session.transaction is not None:
                session.transaction.fail(self._error)
            return False
        if command[0] == Command.SEND:
            session = connection.sessions.get(command[1])
            if session is None:
                return False
            self._refuse_send(connection, session, command)
            return True
        raise self._error

    def _refuse_send(self, connection: WatchedConnection, session: Session, command: tuple[Any, ...]) -> None:
        assert self._error is not None
        session.sent = command[2]
        connection.refuse_send(session, command[2], self._error)

    def after(self, connection: WatchedConnection) -> None:
        """What comes after the command was carried out."""
        if self._drop == "after":
            _cut(connection)


def _cut(connection: WatchedConnection) -> None:
    """The network fails: what the client is owed is not written any more."""
    connection.closing = True
    link = connection.watch.faults.link_of(connection)
    if link is not None:
        link._closing = True
        link.abort()


class FaultBox:
    """The rules of one broker. Only the broker's thread touches it, except for :meth:`forget`."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.server: Server | None = None

    def meet(self, connection: WatchedConnection, command: tuple[Any, ...]) -> Rule | None:
        """The rule that happens to a command."""
        for rule in self.rules:
            if rule.meets(connection, command):
                return rule
        return None

    def forget(self, rule: Rule) -> None:
        """A rule ends."""
        if rule in self.rules:
            self.rules.remove(rule)

    def link_of(self, connection: WatchedConnection) -> WatchedLink | None:
        """The connection's transport; None once it is gone."""
        link = self.server.links.of(connection) if self.server is not None else None
        return link if isinstance(link, WatchedLink) else None
