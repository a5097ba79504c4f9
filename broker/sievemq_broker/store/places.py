"""Which shard has a namespace: the port behind which the tables are kept that several shards share.

namespace  name ─► shard               the truth. A row is made before the first client enters, and stays
placement  pattern ─► shard, in order  chooses the shard of a namespace that has no row yet
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sievemq_broker.store.lease import ShardSight


class Places(Protocol):
    """The tables, in a database that the processes of all shards share. Called in one thread at a time; no call takes
    longer than its time-out. Each raises StoreError, and AwayError if the database does not answer: then it may have
    been carried out or not, and may be repeated.

    A claim that was given up may be carried out much later, and does no harm then. A move may not: one that was given
    up is carried out, if at all, before the next move of the same shard is answered, and before a takeover of it is."""

    def names(self, shard: str) -> list[str]:
        """The namespaces of a shard."""

    def all_names(self) -> dict[str, str]:
        """The namespaces that exist by name, and the shard of each. Others have a row, too: it stays when one is
        deleted, and may be there before one is made."""

    def count(self) -> int:
        """How many namespaces have a row."""

    def find(self, names: Sequence[str]) -> dict[str, str]:
        """Of these namespaces those that have a row, and the shard of each."""

    def stored(self, names: Sequence[str], shards: Sequence[str]) -> dict[str, str]:
        """Of these namespaces those that are in the store of one of these shards, and that shard: they are from before
        there were several."""

    def claim(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Make a row for each namespace that has none.

        Args:
            wanted: names, and the shard of each if it has none.

        Returns:
            The shard that each has now: another process may have been faster.
        """

    def move(self, name: str, shard: str, token: str, to: str) -> str:
        """Change the shard of a namespace, which nobody uses.

        Args:
            shard: that has it.
            token: of the owner of that shard, which asks for this.
            to: the other shard.

        Returns:
            The shard that has it now.

        Raises:
            FencedError: another process owns the shard. Nothing was changed.
        """

    def patterns(self) -> list[tuple[str, str]]:
        """The patterns in their order, and the shard of each."""

    def set_pattern(self, pattern: str, shard: str | None) -> None:
        """Have new namespaces that fit a pattern in a shard; a pattern that is not there becomes the last one. Without
        a shard the pattern is deleted."""

    def shards(self) -> list[ShardSight]:
        """The shards of the database by name, as their leases show them."""

    def close(self) -> None:
        """Close the connection."""
