"""Sign-ins by protocol and port: how many had which outcome, and the latest failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from sievemq_broker import logs
from sievemq_broker.session.recent import Recent

#: Outcomes.
ACCEPTED: Final = "accepted"
WRONG: Final = "wrong"
THROTTLED: Final = "throttled"
NO_RIGHT: Final = "no_right"
#: The end of a session of the console: no outcome of a sign-in, and not counted.
SIGNED_OUT: Final = "signed_out"

log = logs.get("security")


class Door(NamedTuple):
    """Where a client signs in.

    Attributes:
        protocol: as in the setting `protocols`; ``http`` for a request with a password, ``console`` for the form.
        port: of the broker; 0 if that is not known.
        address: the client's, without its port.
    """

    protocol: str
    port: int
    address: str


class Failure(NamedTuple):
    """A failed sign-in.

    Attributes:
        door: where.
        user: the name, if there is such a user: people type passwords into the wrong field.
    """

    door: Door
    user: str | None

    @property
    def text(self) -> str:
        """In words."""
        return f"of {self.user or 'no known user'} from {self.door.address} ({self.door.protocol})"


def _wall_clock() -> int:
    return int(time.time() * 1000)


class SignIns:
    """Counts sign-ins since the broker has started.

    Args:
        now: ms since 1970.
        noted: called with outcome, door and user of each; also when a user signs out.

    Attributes:
        counts: by protocol, port and outcome. A request over HTTP with a password is a sign-in.
        failures: the latest, those that were throttled included.
        last: the latest whose credentials were not accepted; None if there was none.
    """

    def __init__(
        self,
        now: Callable[[], int] = _wall_clock,
        noted: Callable[[str, Door, str | None], None] = lambda outcome, door, user: None,
    ) -> None:
        self._now = now
        self._noted = noted
        self.counts: dict[tuple[str, int, str], int] = {}
        self.failures: Recent[Failure] = Recent()
        self.last: Failure | None = None

    def total(self, outcome: str) -> int:
        return sum([number for (_, _, of), number in self.counts.items() if of == outcome])

    @property
    def refused(self) -> int:
        """Those whose credentials were not accepted."""
        return self.total(WRONG) + self.total(THROTTLED)

    def note(self, outcome: str, door: Door, user: str | None) -> None:
        """One has ended.

        Args:
            user: the name, if there is such a user.
        """
        key = door.protocol, door.port, outcome
        self.counts[key] = self.counts.get(key, 0) + 1
        if outcome != ACCEPTED:
            failure = Failure(door, user)
            self.failures.note(failure, self._now())
            if outcome != NO_RIGHT:
                self.last = failure
        self._noted(outcome, door, user)
        if outcome == WRONG:
            log.warning("sign_in.failed", user=user, address=door.address, protocol=door.protocol, port=door.port)

    def signed_out(self, door: Door, user: str) -> None:
        """A user has ended a session."""
        self._noted(SIGNED_OUT, door, user)
