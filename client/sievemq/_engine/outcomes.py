"""The outcomes of a session's requests that the application does not know yet (D-41)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sievemq._engine.outbox import Completion
from sievemq.exceptions import TransactionRolledBackException

__all__ = ["Outcome", "Outcomes"]

_ROLLED_BACK: Final = "TRANSACTION_ROLLED_BACK"


class Outcome(Completion[Any]):
    """The answer to a request about what a session has sent and received. Its caller knows it once :meth:`result` has
    given or raised it.

    Args:
        heard: called then.
        commits: how many calls of commit() the request carries out.
        instead: the error of a request that has succeeded; None for none.
    """

    __slots__ = ("_commits", "_heard", "_instead")

    def __init__(self, heard: Callable[[Outcome], None], commits: int, instead: Exception | None) -> None:
        super().__init__()
        self._heard = heard
        self._commits = commits
        self._instead = instead

    def succeed(self, value: Any) -> None:
        """As of a Completion."""
        if self._instead is None:
            super().succeed(value)
        else:
            self.fail(self._instead)

    def result(self) -> Any:
        """The value for the caller, who knows the outcome from here on.

        Raises:
            Exception: the error of the request.
        """
        self._heard(self)
        return super().result()

    def take_commits(self) -> int:
        """How many calls of commit() are decided by the answer; 0 if asked again."""
        commits, self._commits = self._commits, 0
        return commits


class Outcomes:
    """Of one session. A request is *in doubt* from when it is made until its caller knows the outcome. So a call that
    is cancelled, interrupted or timed out, wherever it is then, leaves its request in doubt: the next call of the
    session waits for it, and raises its error.

    The calls of commit() are counted, to report how many were rolled back. One that is broken off before COMMIT was
    sent leaves its work in the transaction: it is decided with that.

    Attributes:
        doubts: outcomes that no caller knows. Never another list: a front may keep it.
    """

    __slots__ = ("_lost", "_open", "doubts")

    def __init__(self) -> None:
        self.doubts: list[Outcome] = []
        self._open = 0  # calls of commit() that have begun and are not decided
        self._lost = 0  # those that were rolled back, and the application does not know it

    def begin_commit(self) -> None:
        """A call of commit() begins."""
        self._open += 1

    def expect(self, commits: bool = False, listed: bool = True, instead: Exception | None = None) -> Outcome:
        """The outcome of a request that is about to be made.

        Args:
            commits: it is a COMMIT.
            listed: it is in doubt at once; else from :meth:`add` on.
            instead: what its caller gets if it succeeds.
        """
        outcome = Outcome(self._hear, self._open if commits else 0, instead)
        if listed:
            self.doubts.append(outcome)
        return outcome

    def add(self, outcome: Completion[Any]) -> None:
        """From here on a caller waits for this one."""
        if isinstance(outcome, Outcome) and outcome not in self.doubts:
            self.doubts.append(outcome)

    def answered(self, outcome: Outcome) -> None:
        """A COMMIT has its answer."""
        commits = outcome.take_commits()
        self._open -= commits
        if outcome.error is not None:
            self._lost += commits

    def roll_back(self) -> None:
        """The transaction is being rolled back, with the work of all commits that are not decided."""
        self._lost, self._open = self._lost + self._open, 0

    def _hear(self, outcome: Outcome) -> None:
        try:
            self.doubts.remove(outcome)
        except ValueError:
            return  # no caller waited for it until now
        error = outcome.error
        if isinstance(error, TransactionRolledBackException):
            error.covers(self._take_lost() - 1)
        elif error is not None:
            self._lost = 0

    @property
    def failed(self) -> Exception | None:
        """The error of the first request in doubt that has failed; None if none has."""
        return next((outcome.error for outcome in self.doubts if outcome.error is not None), None)

    @property
    def known(self) -> bool:
        """True if every request in doubt has its answer."""
        return all(outcome.done for outcome in self.doubts)

    def tell(self, verb: str = "") -> None:
        """Every request in doubt has its answer: raise what the application must know.

        Args:
            verb: of the call that raises it.

        Raises:
            TransactionRolledBackException: what calls of commit() were to carry out was rolled back.
            JMSException: another request has failed.
        """
        error = self.failed
        self.doubts.clear()
        lost = self._take_lost() - (verb == "commit")
        if error is not None and not isinstance(error, TransactionRolledBackException):
            raise error
        if error is None and lost <= 0:
            return
        text = (
            "a commit() before this call was cancelled, interrupted or timed out, and was rolled back, with all that "
            f"the session has sent and received since{'' if error is None else f': {error}'}"
        )
        rolled_back = TransactionRolledBackException(text, _ROLLED_BACK, error)
        rolled_back.covers(lost)
        raise rolled_back

    def _take_lost(self) -> int:
        lost, self._lost = self._lost, 0
        return lost
