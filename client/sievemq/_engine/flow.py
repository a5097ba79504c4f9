"""What the sends of a connection wait for: who is told of it, once per destination."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sievemq._engine.connection import ClientConnection

__all__ = ["Blocked", "Flow"]

_log = logging.getLogger("sievemq")

#: Milliseconds between two lines of the log that say that sends wait.
_LOG_AGAIN: Final = 10_000


class Blocked(NamedTuple):
    """Sends to a destination wait for room.

    Attributes:
        destination: its address, such as ``queue:orders``; None where it is the broker itself that is at its limit, or
            a commit waits that sends to several.
        reason: which limit of what is reached, for people.
    """

    destination: str | None
    reason: str


class Flow:
    """Of one connection.

    Args:
        connection: whose sessions' sends may have to wait.

    Attributes:
        on_blocked, on_unblocked: called with what sends wait for, and when they do not any more; as `on_exception` of
            the connection.
        broker_blocked: which limit keeps the broker from taking any sends; None if it takes them.
    """

    __slots__ = ("_connection", "_logged_at", "_told", "broker_blocked", "on_blocked", "on_unblocked")

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.on_blocked: Callable[[Blocked], None] | None = None
        self.on_unblocked: Callable[[Blocked], None] | None = None
        self.broker_blocked: str | None = None
        self._told: dict[str | None, Blocked] = {}
        self._logged_at = 0

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """What sends wait for now, each destination once."""
        return tuple(self._told.values())

    def changed(self) -> None:
        """Tell what sends wait for, as far as it is not known yet."""
        found: dict[str | None, Blocked] = {}
        if self.broker_blocked is not None:
            found[None] = Blocked(None, self.broker_blocked)
        for session in tuple(self._connection.sessions.values()):
            if (blocked := session.sends.blocked) is not None:
                found.setdefault(blocked.destination, blocked)
        told, self._told = self._told, found
        for destination, blocked in told.items():
            if destination not in found and self.on_unblocked is not None:
                self.on_unblocked(blocked)
        for destination, blocked in found.items():
            if destination not in told:
                now = self._connection.clock()
                if abs(now - self._logged_at) >= _LOG_AGAIN:  # it may come and go many times a second
                    self._logged_at = now
                    _log.warning("sends wait: %s", blocked.reason)
                if self.on_blocked is not None:
                    self.on_blocked(blocked)
