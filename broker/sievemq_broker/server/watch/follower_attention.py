"""What needs an operator's attention on a broker that follows others."""

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
    """The lease of this process on a shard."""

    @property
    def still(self) -> float:
        """Seconds for which no beat of an owner was seen."""


class Built(Protocol):
    """Messages that are built for a takeover."""

    caught_up: bool
    is_full: bool


class Building(Protocol):
    """What builds them."""

    @property
    def follower(self) -> Built:
        """What it has built."""


class Followed(Protocol):
    """A shard."""

    @property
    def keeper(self) -> Keeping | None:
        """None before it is followed."""

    @property
    def following(self) -> Building | None:
        """None if nothing is built."""


class Following(Protocol):
    """The shards that this process follows."""

    @property
    def followed(self) -> Mapping[str, Followed]:
        """By name."""

    @property
    def warnings(self) -> list[str]:
        """What an operator should mend, one line each."""


class FollowerAttention:
    """Checks a follower on each request. It needs no rounds: there are few things to check.

    Args:
        lease_seconds: see the settings.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._since: dict[tuple[Rule, str], int] = {}

    def listed(self, shards: Following, now: int) -> Mapping[Key, Finding]:
        """What is found.

        Args:
            shards: that the broker follows.
            now: ms since 1970.
        """
        found = dict(self._find(shards, now))
        self._since = {key: self._since.get(key, now) for key in found}
        return {
            key: Finding(key[0], begun or self._since[key], detail=key[1])
            for key, (begun, least) in found.items()
            if now - self._since[key] >= least
        }

    def _find(self, shards: Following, now: int) -> Iterator[tuple[tuple[Rule, str], tuple[int, int]]]:
        """A rule and its detail; since when, if that is known, and for how long at least."""
        for name, each in shards.followed.items():
            if each.keeper is not None and each.keeper.still >= _LEASES * self._lease_seconds:
                yield (rules.NO_OWNER, name), (now - int(each.keeper.still * 1_000), 0)
            built = None if each.following is None else each.following.follower
            if built is not None and built.is_full:
                yield (
                    (
                        rules.FOLLOWER_BEHIND,
                        f"the memory for messages is full, and those of the shard {name} are not all read",
                    ),
                    (0, 0),
                )
            elif built is not None and not built.caught_up:
                yield (rules.FOLLOWER_BEHIND, f"not all messages of the shard {name} are read yet"), (0, _BEHIND_MS)
        for text in shards.warnings:
            yield (rules.SHARD, text), (0, 0)
