"""Messages that a transacted session has sent since its last commit (section 25 of the API map)."""

from __future__ import annotations

from collections.abc import Callable, Set

from sievemq_broker.domain.publishing import Sends, Weighing
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.envelope import Envelope


class StagedBytes:
    """Packed bytes of all open transactions of one connection, and their limit.

    Args:
        drop: frees the messages of a transaction that has ended.
    """

    __slots__ = ("_drop", "limit", "used")

    def __init__(self, limit: int, drop: Callable[[Sends], None] = lambda sends: None) -> None:
        self.limit = limit
        self.used = 0
        self._drop = drop

    @property
    def left(self) -> int:
        """Bytes that may still be staged."""
        return self.limit - self.used

    def take(self, size: int) -> None:
        """Reserve memory.

        Raises:
            RequestError: RESOURCE_ALLOCATION, the limit would be passed.
        """
        if self.used + size > self.limit:
            raise RequestError(
                f"the transactions of a connection may hold {self.limit} bytes of sends; commit more often",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "staged_bytes"},
            )
        self.used += size

    def give_back(self, size: int) -> None:
        """Release memory."""
        self.used -= size

    def free(self, sends: Sends) -> None:
        """Release all of a transaction's memory."""
        self.used -= sends.bytes
        self._drop(sends)


class Transaction:
    """The staged sends of one session, invisible to all consumers until they are published (TXN-02).

    A send that cannot be staged dooms the transaction: the next commit is answered as a rollback (TXN-09). A rollback,
    or the failed commit itself, begins a new one (TXN-01).

    Args:
        memory: what the connection's transactions share.
    """

    __slots__ = ("_memory", "doom", "staged", "weighed")

    def __init__(self, memory: StagedBytes) -> None:
        self._memory = memory
        self.staged = Sends()
        #: Why the transaction cannot be committed any more.
        self.doom: SieveError | None = None
        #: How much of it the subscriptions of topics get, by address, once its COMMIT has counted that.
        self.weighed: dict[str, Weighing] = {}

    def room(self, envelopes: list[Envelope]) -> int:
        """How many of these have room below the limit, from the first on; 1 if none has: :meth:`stage` refuses it."""
        left = self._memory.left
        for place, envelope in enumerate(envelopes):
            left -= len(envelope.packed)
            if left < 0:
                return max(1, place)
        return len(envelopes)

    def stage(self, address: str, envelopes: list[Envelope]) -> None:
        """Stage sends until the commit: all or none.

        Raises:
            RequestError: RESOURCE_ALLOCATION, the staged messages would pass the limit.
        """
        self._memory.take(sum([len(envelope.packed) for envelope in envelopes]))
        self.staged.add(address, envelopes)

    def drop(self, addresses: Set[str]) -> None:
        """Drop the staged messages to these addresses, each of which has some."""
        before = self.staged.bytes
        self.staged.withdraw(addresses)
        self._memory.give_back(before - self.staged.bytes)

    def weigh(self, weighed: dict[str, Weighing]) -> None:
        """Its COMMIT has begun to count how much of it subscriptions get."""
        self.weighed = weighed

    def fail(self, error: SieveError) -> None:
        """A send of this transaction failed: it can only be rolled back now. Staged messages are freed."""
        self.clear()
        self.doom = error

    def hand_over(self) -> None:
        """Its messages are another's now."""
        self._memory.give_back(self.staged.bytes)
        self.staged = Sends()
        self.clear()

    def clear(self) -> None:
        self._memory.free(self.staged)
        self.staged = Sends()
        self.weighed = {}
        self.doom = None
