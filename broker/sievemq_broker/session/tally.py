"""How many sends were refused and how transactions ended: of one client, and of all."""

from __future__ import annotations

from typing import NamedTuple

from sievemq_broker.session.recent import Recent
from sievemq_core.errors import SieveError


class Tally:
    """Counts of one client, or of all together.

    Attributes:
        refused: messages of refused sends and commits, and other requests that a limit has refused.
        committed: transactions with at least one message.
        rolled_back: such transactions that were rolled back, also because their session has ended; of these
        refused_commits: by the broker, which refused the COMMIT.
    """

    __slots__ = ("committed", "refused", "refused_commits", "rolled_back")

    def __init__(self) -> None:
        self.refused = 0
        self.committed = 0
        self.rolled_back = 0
        self.refused_commits = 0

    def refuse(self, messages: int) -> None:
        self.refused += messages

    def commit(self) -> None:
        self.committed += 1

    def roll_back(self, refused: bool) -> None:
        self.rolled_back += 1
        self.refused_commits += refused


class Refusal(NamedTuple):
    """What was refused.

    Attributes:
        namespace: its name.
        destination: the address; empty where there is none.
        reason: the name of the limit, such as ``max_messages``; or of the error, such as ``security``.
        client: its client id, or its user, or the host where it is.
        opens: it was a consumer, a browser or something else to be opened; otherwise messages.
    """

    namespace: str
    destination: str
    reason: str
    client: str
    opens: bool = False


class RolledBack(NamedTuple):
    """A client that rolls back; as :class:`Refusal`."""

    namespace: str
    client: str


class Tallies:
    """Counts of all clients since the broker has started, and whose these were lately.

    Attributes:
        total: as of one client.
        reasons, opens: refused messages, and what was not opened, by reason.
        refusals, rollbacks: the latest.
    """

    __slots__ = ("opens", "reasons", "refusals", "rollbacks", "total")

    def __init__(self) -> None:
        self.total = Tally()
        self.reasons: dict[str, int] = {}
        self.opens: dict[str, int] = {}
        self.refusals: Recent[Refusal] = Recent()
        self.rollbacks: Recent[RolledBack] = Recent()

    def refuse(self, refusal: Refusal, now: int, connection: str = "", messages: int = 1) -> None:
        """Something was refused.

        Args:
            now: ms since 1970.
            connection: its id; empty for a caller of the management port.
        """
        self.total.refuse(messages)
        counts = self.opens if refusal.opens else self.reasons
        counts[refusal.reason] = counts.get(refusal.reason, 0) + messages
        self.refusals.note(refusal, now, connection, messages)

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms."""
        self.refusals.clock_jumped(by)
        self.rollbacks.clock_jumped(by)


def reason_of(error: SieveError) -> str:
    """The limit that an error names, or the name of its code."""
    limit = error.details.get("limit")
    return limit if isinstance(limit, str) else error.code.name.lower()


def destination_of(error: SieveError) -> str:
    """The address that an error names; empty if it names none."""
    return str(error.details.get("destination", ""))
