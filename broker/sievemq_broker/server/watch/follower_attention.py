"""What needs an operator's attention on a broker that follows another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from sievemq_broker.server.watch import findings as rules
from sievemq_broker.server.watch.attention import Key
from sievemq_broker.server.watch.findings import Finding, Rule

#: A shard without an owner is found once that lasts for so many leases: one is needed to take it.
_LEASES: Final = 2

#: Ms that a follower may take to read the owner's messages.
_BEHIND_MS: Final = 60_000


class Keeping(Protocol):
    """The lease of this process."""

    @property
    def warnings(self) -> list[str]:
        """What an operator should mend, one line each."""

    @property
    def still(self) -> float:
        """Seconds for which no beat of an owner was seen."""


class Building(Protocol):
    """The messages that it builds for a takeover."""

    caught_up: bool
    is_full: bool


class FollowerAttention:
    """Checks a follower on each request. It needs no rounds: there are few things to check.

    Args:
        lease_seconds: see the settings.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._since: dict[tuple[Rule, str], int] = {}

    def listed(self, keeper: Keeping | None, follower: Building | None, now: int) -> Mapping[Key, Finding]:
        """What is found.

        Args:
            keeper: None before the broker follows.
            follower: None if it builds nothing.
            now: ms since 1970.
        """
        found = {} if keeper is None else dict(self._find(keeper, follower, now))
        self._since = {key: self._since.get(key, now) for key in found}
        return {
            key: Finding(key[0], begun or self._since[key], detail=key[1])
            for key, (begun, least) in found.items()
            if now - self._since[key] >= least
        }

    def _find(
        self, keeper: Keeping, follower: Building | None, now: int
    ) -> Iterator[tuple[tuple[Rule, str], tuple[int, int]]]:
        """A rule and its detail; since when, if that is known, and for how long at least."""
        if keeper.still >= _LEASES * self._lease_seconds:
            yield (rules.NO_OWNER, ""), (now - int(keeper.still * 1_000), 0)
        if follower is not None and follower.is_full:
            yield (rules.FOLLOWER_BEHIND, "its memory for messages is full"), (0, 0)
        elif follower is not None and not follower.caught_up:
            yield (rules.FOLLOWER_BEHIND, "it has not read all messages yet"), (0, _BEHIND_MS)
        for text in keeper.warnings:
            yield (rules.SHARD, text), (0, 0)
