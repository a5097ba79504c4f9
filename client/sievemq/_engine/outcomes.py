"""The outcomes of a session's requests that the application does not know yet (D-41)."""

from __future__ import annotations

from typing import Any, Final

from sievemq._engine.outbox import Completion, Undo
from sievemq.exceptions import TransactionRolledBackException

_ROLLED_BACK: Final = "TRANSACTION_ROLLED_BACK"


class Outcome(Completion[Any]):
    """The answer to a request about what a session has sent and received.

    Args:
        commits: how many calls of commit() the request carries out.
        instead: the error of a request that has succeeded; None for none.
        undo: as of a Completion.
    """

    __slots__ = ("_commits", "_instead")

    def __init__(self, commits: int, instead: Exception | None, undo: Undo | None) -> None:
        super().__init__(undo)
        self._commits = commits
        self._instead = instead

    def succeed(self, value: Any) -> None:
        if self._instead is None:
            super().succeed(value)
        else:
            self.fail(self._instead)

    def take_commits(self) -> int:
        """How many calls of commit() are decided by the answer; 0 if asked again."""
        commits, self._commits = self._commits, 0
        return commits


class Outcomes:
    """Of one session. A request is *in doubt* from when it is made until its call returns or raises the outcome
    (:meth:`hear`). So a call that is cancelled, interrupted or timed out, wherever it is then, leaves its request in
    doubt: the next call of the session waits for it, and raises its error (:meth:`tell`).

    The calls of commit() are counted, to report how many took effect. One that is broken off before COMMIT was sent
    leaves its work in the transaction: it is decided with that.

    Attributes:
        doubts: outcomes that no caller knows. Never another list: a front may keep it.
    """

    __slots__ = ("_committed", "_lost", "_open", "_told", "doubts")

    def __init__(self) -> None:
        self.doubts: list[Outcome] = []
        # Calls of commit() that have begun and whose outcome the application does not know, by what is known here:
        self._open = self._committed = self._lost = 0
        self._told: Exception | None = None

    @property
    def begun(self) -> int:
        """How many calls of commit() have begun whose outcome the application does not know."""
        return self._open + self._committed + self._lost

    def begin_commit(self) -> None:
        self._open += 1

    def expect(
        self,
        commits: bool = False,
        listed: bool = True,
        instead: Exception | None = None,
        undo: Undo | None = None,
    ) -> Outcome:
        """The outcome of a request that is about to be made.

        Args:
            listed: it is in doubt at once; else from :meth:`add` on.
            instead: what its caller gets if it succeeds.
            undo: as of a Completion.
        """
        outcome = Outcome(self._open if commits else 0, instead, undo)
        if listed:
            self.doubts.append(outcome)
        return outcome

    def add(self, outcome: Completion[Any]) -> None:
        if isinstance(outcome, Outcome) and outcome not in self.doubts:
            self.doubts.append(outcome)

    def answered(self, outcome: Outcome) -> None:
        commits = outcome.take_commits()
        self._open -= commits
        if outcome.error is None:
            self._committed += commits
        else:
            self._lost += commits

    def roll_back(self) -> None:
        """The transaction is being rolled back, with the work of all commits that are not decided."""
        self._lost, self._open = self._lost + self._open, 0

    def hear(self, error: Exception | None = None) -> None:
        """A call that waited for its outcome returns, or raises an error: the last thing that it does.

        Args:
            error: if it is none of an outcome, such as that of a time-out, everything stays in doubt.
        """
        if error is None or error is self._told or any(error is outcome.error for outcome in self.doubts):
            if isinstance(error, TransactionRolledBackException):
                error.report_committed(self._committed)
            self.doubts.clear()
            self._committed = self._lost = 0
            self._told = None

    @property
    def failed(self) -> Exception | None:
        """The error of the first request in doubt that has failed; None if none has."""
        return next((outcome.error for outcome in self.doubts if outcome.error is not None), None)

    @property
    def must_tell(self) -> bool:
        """Every request in doubt has its answer, and :meth:`tell` is going to raise."""
        return self._lost > 0 or self.failed is not None

    @property
    def known(self) -> bool:
        """True if every request in doubt has its answer."""
        return all(outcome.done for outcome in self.doubts)

    def tell(self) -> None:
        """Every request in doubt has its answer: raise what the application must know. :meth:`hear` follows.

        Raises:
            TransactionRolledBackException: what calls of commit() were to carry out was rolled back.
            JMSException: another request has failed.
        """
        error = self.failed
        if error is None and not self._lost:
            self.doubts.clear()
            return
        if error is None or isinstance(error, TransactionRolledBackException):
            text = (
                "a commit() before this call was cancelled, interrupted or timed out, and was rolled back, with all "
                f"that the session has sent and received since{'' if error is None else f': {error}'}"
            )
            error = TransactionRolledBackException(text, _ROLLED_BACK, error)
        self._told = error
        raise error
