"""Staged sends: a transaction in two steps, so that what many connections sent becomes visible at once, and once.

    stage(key, batch, sends) -> id      any connection, any number of times; nobody sees the messages
    publish(key, batch, ids)            all of these and no others, all or nothing; once per batch
    discard(key, batch)                 forget them

A key names who publishes, such as a query; its batches are numbered upwards. The broker remembers the last batch that
each key has published: publishing it again does nothing and says so. That is what makes a publisher exact that cannot
know whether its last publish was carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.entry import DELAYED, GONE
from sievemq_broker.domain.journal import PUBLISHED, Journal
from sievemq_broker.domain.publishing import Publishing, Sends, Weighing
from sievemq_broker.domain.shares import Shares
from sievemq_broker.domain.tap_log import OVERHEAD_BYTES, SHORTEST_LEASE
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_IDENTIFIER_CHARS

#: Keys of one namespace whose last batch is remembered. Above that number, the user with the most keys loses the key
#: used longest ago.
MAX_KEYS: Final = 10_000

#: Bytes that all stages of one namespace may hold, with :data:`OVERHEAD_BYTES` for each message.
MAX_STAGED_BYTES: Final = 1024 * 1024 * 1024

_LONGEST_LEASE: Final = 86_400_000


class Stage:
    """Sends of one connection that wait for their publisher.

    Args:
        key, batch, owner, lease: as of :meth:`Stages.stage`.
    """

    __slots__ = ("batch", "bytes", "id", "key", "lease", "owner", "sends", "sequence", "state")

    def __init__(
        self,
        stage_id: str,
        key: str,
        batch: int,
        owner: str | None,
        lease: int,
        sends: Sends,
    ) -> None:
        self.id = stage_id
        self.key = key
        self.batch = batch
        self.owner = owner
        self.lease = lease
        self.sends = sends
        self.bytes = sends.bytes + OVERHEAD_BYTES * len(sends)
        # what :class:`Deadlines` needs of an item
        self.state = DELAYED
        self.sequence = 0

    def begin(self, sequence: int) -> None:
        """Its lease begins; a number orders leases that end in the same millisecond."""
        self.sequence = sequence

    def end(self) -> None:
        """Drop the deadline: the stage was published or discarded, or its lease has ended."""
        self.state = GONE


class Publisher(Protocol):
    """A namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def journal(self) -> Journal | None:
        """The journal that keeps published batches across restarts."""

    @property
    def deadlines(self) -> Deadlines:
        """The broker's deadlines."""

    def publish(
        self,
        sends: Sends,
        now: int,
        connection: str | None,
        weighed: Mapping[str, Weighing] | None = None,
    ) -> Publishing | None:
        """Send all of these messages, or none; a large batch, which is returned, in slices."""


class Stages:
    """The stages of one namespace.

    Attributes:
        bytes: the size of all staged messages.
        published: the last batch by user and key.
    """

    __slots__ = ("_keys", "_made", "_namespace", "_stages", "bytes", "published")

    def __init__(self, namespace: Publisher) -> None:
        self._namespace = namespace
        self._stages: dict[str, Stage] = {}
        self._made = 0
        self.bytes = 0
        self.published: dict[tuple[str | None, str], int] = {}
        self._keys: Shares[str] = Shares()

    def __len__(self) -> int:
        return len(self._stages)

    def __lt__(self, other: object) -> bool:
        return False  # two deadlines in the same millisecond: any order will do

    def stage(
        self,
        maker: str,
        key: str,
        batch: int,
        sends: Sends,
        *,
        owner: str | None,
        lease: int,
        now: int,
    ) -> str:
        """Keep messages for :meth:`publish`.

        Args:
            maker: the beginning of the stage's name; a number is appended.
            key: identifies the publisher, 1 to 255 characters.
            owner: the user; no other may publish them.
            lease: ms after which they are discarded.
            now: ms epoch.

        Returns:
            The name of the stage. It is never used again.

        Raises:
            RequestError: ILLEGAL_STATE for a key or lease that cannot be; RESOURCE_ALLOCATION, no room.
        """
        _check_key(key)
        if not SHORTEST_LEASE <= lease <= _LONGEST_LEASE:
            raise RequestError(
                f"the lease of staged messages is {SHORTEST_LEASE} to {_LONGEST_LEASE} ms, not {lease}",
                ErrorCode.ILLEGAL_STATE,
            )
        stage_id = f"{maker}.{self._made + 1}"
        stage = Stage(stage_id, key, batch, owner, lease, sends)
        if self.bytes + stage.bytes > MAX_STAGED_BYTES:
            raise RequestError(
                f"staged messages take {self.bytes} bytes and may take {MAX_STAGED_BYTES}; these are {stage.bytes}. "
                "Publish or discard some, or send smaller batches",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "staged_bytes"},
            )
        self.add(stage, now)
        return stage_id

    def add(self, stage: Stage, now: int) -> None:
        """Keep a stage for the whole of its lease."""
        self._made += 1
        stage.begin(self._made)
        self._stages[stage.id] = stage
        self.bytes += stage.bytes
        self._namespace.deadlines.push_span(now + stage.lease, self, stage)

    @property
    def all(self) -> Collection[Stage]:
        """Those that wait."""
        return self._stages.values()

    def publish(
        self,
        key: str,
        batch: int,
        ids: Sequence[str],
        *,
        owner: str | None,
        now: int,
        connection: str | None = None,
        allow: Callable[[str], None] | None = None,
        sends: Sends | None = None,
        weighed: Mapping[str, Weighing] | None = None,
    ) -> int | None:
        """Send what is staged, in the order of `ids`, and discard other stages of the same batch.

        Args:
            now: ms epoch.
            connection: id of the publisher's connection, for no_local.
            allow: called with each address, and raises if the user may not send there (any more).
            sends: the result of :meth:`staged`, examined since; None if that was not called.
            weighed: the loads that the namespace has counted for them.

        Returns:
            How many messages were sent; None if this batch, or a later one, was published before: then nothing is sent.
            A large batch is visible when the namespace's ``publishing`` has completed. Nothing else may be published
            until then.

        Raises:
            RequestError: ILLEGAL_STATE for a key that cannot be; NOT_FOUND, one of the stages is not there (any more);
                otherwise as :meth:`Namespace.commit`
                and `allow`. Nothing was sent, nothing is forgotten.
        """
        _check_key(key)
        if batch <= self.published.get((owner, key), -1):
            self._keys.add(owner, key)
            self.discard(key, batch, owner=owner)
            return None
        stages = self._chosen(key, batch, ids, owner)
        sends = _sends_of(stages) if sends is None else sends
        if allow is not None:
            for address in sends.totals:
                allow(address)
        count = len(sends)
        publishing = self._namespace.publish(sends, now, connection, weighed)
        note = partial(self._define, (owner, key), batch)  # stored together with the messages, or not at all
        if publishing is None:
            note()
        else:
            publishing.together(note)
        self.remember(owner, key, batch)
        self.discard(key, batch, owner=owner)
        return count

    def staged(self, key: str, batch: int, ids: Sequence[str], *, owner: str | None) -> Sends:
        """The messages that :meth:`publish` would send; empty if the batch was published before.

        Raises:
            RequestError: NOT_FOUND, one of the stages is not there (any more).
        """
        if batch <= self.published.get((owner, key), -1):
            return Sends()
        return _sends_of(self._chosen(key, batch, ids, owner))

    def _chosen(self, key: str, batch: int, ids: Sequence[str], owner: str | None) -> list[Stage]:
        chosen = []
        for stage_id in dict.fromkeys(ids):  # what is named twice is sent once
            stage = self._stages.get(stage_id)
            if stage is None or (stage.key, stage.batch, stage.owner) != (key, batch, owner):
                raise RequestError(
                    f"batch {batch} of {key!r} cannot be published: the stage {stage_id:.300} does not exist. "
                    "Its lease has ended, or the broker was restarted. Nothing was sent; stage it again",
                    ErrorCode.NOT_FOUND,
                    {"stage": stage_id},
                )
            chosen.append(stage)
        return chosen

    def remember(self, owner: str | None, key: str, batch: int) -> None:
        """Remember the last batch that a user has published under a key."""
        self.published[owner, key] = batch
        self._keys.add(owner, key)
        if self._keys.total > MAX_KEYS:
            oldest = self._keys.first_to_go()
            self._keys.discard(*oldest)
            del self.published[oldest]
            self._define(oldest, None)

    def forget_published(self) -> None:
        """Forget all published batches: the namespace is deleted."""
        for key in self.published:
            self._define(key, None)
            self._keys.discard(*key)
        self.published.clear()

    def _define(self, key: tuple[str | None, str], batch: int | None) -> None:
        """Store the last batch that a user has published under a key; None removes the key."""
        journal = self._namespace.journal
        if journal is not None:
            journal.define(PUBLISHED, (self._namespace.name, *key), None if batch is None else (batch,))

    def discard(self, key: str, batch: int, *, owner: str | None, name: str | None = None) -> int:
        """Discard the stages of a batch that were not published, or the one with that name.

        Returns:
            How many messages that was.
        """
        found = [
            stage
            for stage in self._stages.values()
            if (stage.key, stage.batch, stage.owner) == (key, batch, owner) and name in (None, stage.id)
        ]
        for stage in found:
            self._forget(stage)
            self._namespace.deadlines.void()
        return sum(len(stage.sends) for stage in found)

    def on_jump(self, entry: Stage, by: int) -> None:
        """Do nothing: a stage stores no time of the calendar."""

    def on_deadline(self, entry: Stage, when: int, now: int) -> None:
        self._forget(entry)

    def _forget(self, stage: Stage) -> None:
        del self._stages[stage.id]
        self.bytes -= stage.bytes
        stage.end()


def _check_key(key: str) -> None:
    if not key or len(key) > MAX_IDENTIFIER_CHARS or not key.isprintable():
        raise RequestError(
            f"a publisher's key has 1 to {MAX_IDENTIFIER_CHARS} printable characters, unlike {key[:40]!r}",
            ErrorCode.ILLEGAL_STATE,
        )


def _sends_of(stages: list[Stage]) -> Sends:
    sends = Sends()
    for stage in stages:
        sends.join(stage.sends)
    return sends
