"""State that all endpoints of the management API share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sievemq_broker.server.http.api.hub import Hub
from sievemq_broker.server.http.api.series import Sampler
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.gate import DiskGate
from sievemq_broker.server.server import Server


class Slots:
    """Places for requests that last. One user has at most half of them: others find some.

    Args:
        limit: how many may be at work.
        what: they are, for an error.
    """

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        #: By user.
        self._taken: Counter[str | None] = Counter()

    @contextmanager
    def one(self, user: str | None) -> Iterator[None]:
        """Take a place; raises ApiError 429 if there is none.

        Args:
            user: the name of the user that makes the request; None where the broker has no users.
        """
        limit = self._limit if user is None else max(1, self._limit // 2)
        for taken, most, of in ((self._taken.total(), self._limit, ""), (self._taken[user], limit, f" of {user!r}")):
            if taken >= most:
                text = f"{most} {self._what}{of} are at work, as many as may be; wait for one to end"
                raise ApiError(429, "TOO_MANY_REQUESTS", text, {"limit": most}, {"Retry-After": "5"})
        self._taken[user] += 1
        try:
            yield
        finally:
            self._taken[user] -= 1
            self._taken += Counter()  # drops those without one


class Management:
    """The broker behind the management API, and what the API counts of it.

    Args:
        server: the broker.
        url: of the management port.

    Attributes:
        sampler: rates and histories of destinations.
        hub: events for the listeners of `/events`.
        gate: what answers and events wait at.
        at_work: actions on messages that are running.
        changed: calls at work that may change a namespace, by its name.
        exports, tails: places for those.
        stopping: the port is closing; tails end.
    """

    __slots__ = (
        "_sender", "_sent", "at_work", "changed", "exports", "gate", "hub", "sampler", "server", "stopping", "tails",
        "url",
    )  # fmt: skip

    def __init__(self, server: Server, url: str = "") -> None:
        self.server = server
        self.url = url
        self.sampler = Sampler(server)
        self.hub = Hub(server, self.sampler)
        self.gate = DiskGate(server)
        self.at_work = 0
        self.changed: Counter[str] = Counter()
        self.exports = Slots(8, "exports")
        self.tails = Slots(16, "live tails")
        self.stopping = False
        self._sent = 0
        self._sender: str | None = None

    def start(self) -> None:
        self.sampler.start(self.hub.look)

    async def stop(self) -> None:
        self.stopping = True
        self.hub.end()
        await self.sampler.stop()

    def message_id(self) -> str:
        if self._sender is None:
            self._sender = self.server.shard.services.connection_id()
        self._sent += 1
        return f"ID:{self._sender}:{self._sent}"

    def begin_action(self, limit: int) -> bool:
        """Count an action that begins; False, and not counted, if `limit` are running already."""
        if self.at_work >= limit:
            return False
        self.at_work += 1
        return True

    @contextmanager
    def changing(self, namespaces: Iterable[str]) -> Iterator[None]:
        """Count a call that may change namespaces: meanwhile none of them goes to another shard."""
        once = Counter(dict.fromkeys(namespaces, 1))
        self.changed += once
        try:
            yield
        finally:
            self.changed -= once

    def end_action(self) -> None:
        self.at_work -= 1
