"""Commits on their own: links that write down what leaves, over a store that does as the test says."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from sievemq_broker.domain.journal import Journal, Write
from sievemq_broker.domain.ports import Stored
from sievemq_broker.server.durability.commits import Commits


class Clock:
    def now(self) -> int:
        return 1


class Link:
    """Writes down what leaves."""

    def __init__(self) -> None:
        self.held = 0
        self.left: list[bytes] = []
        self.something = asyncio.Event()

    def release(self, data: bytes) -> None:
        self.held -= len(data)
        self.left.append(data)
        self.something.set()


class Obedient:
    """What a store does but for writing, and what was asked of it."""

    def __init__(self) -> None:
        self.room, self.full_below = 2**40, 1_000
        self.closed = False
        self.calls: list[str] = []

    def write(self, write: Write, now: int) -> None:
        raise NotImplementedError

    def relieve(self) -> None:
        self.calls.append("relieve")

    def tidy(self) -> int:
        return self.room

    def reopen(self) -> None:
        self.calls.append("reopen")

    def close(self) -> None:
        self.closed = True


StoreT = TypeVar("StoreT", bound=Obedient)


class Rig(Generic[StoreT]):
    """Commits over such a store.

    Args:
        store: the one.
    """

    def __init__(self, store: StoreT) -> None:
        self.journal = Journal()
        self.journal.measure_with(lambda: store.room, fails=True)
        self.store = store
        self.failures: list[Exception] = []
        self.refusals: asyncio.Queue[str | None] = asyncio.Queue()
        self.stands: list[str | None] = []
        self.commits = Commits(
            asyncio.get_running_loop(),
            Clock(),  # type: ignore[arg-type]
            self.journal,
            store,
            self.refuse,
            self.journal.watch,
            self.failures.append,
            self.stands.append,
        )
        self.links = [Link(), Link()]

    def refuse(self, reason: str | None) -> None:
        self.journal.refusing = reason  # type: ignore[assignment]
        self.refusals.put_nowait(reason)

    def record(self, name: str = "d") -> None:
        self.journal.define("kind", (name,), ())

    def say(self, link: int, data: bytes, *needs: Stored, free: bool = False) -> None:
        """What Link.flush does.

        Args:
            link: whose output it is.
            data: the output.
            needs: of verbs that are not complete.
            free: it has nothing to do with what was recorded.
        """
        needed = [*needs] if free else [*self.journal.unwritten, *needs]
        if self.commits.hold(self.links[link], data, needed):
            self.links[link].held += len(data)
        else:
            self.links[link].left.append(data)

    @property
    def left(self) -> list[list[bytes]]:
        return [link.left for link in self.links]
