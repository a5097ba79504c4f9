"""What a transacted session has sent since its last commit (section 25 of the API map)."""

from __future__ import annotations

from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.envelope import Envelope

__all__ = ["Transaction"]


class Transaction:
    """Staged sends of one session; invisible to everybody until they are published (TXN-02).

    A send that cannot be staged dooms the transaction: the next commit answers as a rollback (TXN-09). A rollback, or
    the failed commit itself, begins a fresh one (TXN-01).

    Args:
        limit: bytes of packed envelopes that may be staged.
    """

    __slots__ = ("_limit", "bytes", "doom", "staged")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.staged: list[tuple[str, Envelope]] = []
        self.bytes = 0
        #: Why the transaction cannot be committed any more.
        self.doom: SieveError | None = None

    def stage(self, address: str, envelope: Envelope) -> None:
        """Keep a send until commit.

        Raises:
            RequestError: RESOURCE_ALLOCATION, the staged messages would pass the limit.
        """
        size = self.bytes + len(envelope.packed)
        if size > self._limit:
            raise RequestError(
                f"a transaction may send {self._limit} bytes before its commit; commit more often",
                ErrorCode.RESOURCE_ALLOCATION,
            )
        self.bytes = size
        self.staged.append((address, envelope))

    def fail(self, error: SieveError) -> None:
        """A send of this transaction failed: it can only be rolled back now. Frees what was staged."""
        self.doom = self.doom or error
        self.staged.clear()

    def clear(self) -> None:
        """Forget everything: a new transaction begins."""
        self.staged = []
        self.bytes = 0
        self.doom = None
