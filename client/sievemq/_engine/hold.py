"""Sends that the broker does not take, since a limit is reached: what waits, and how it is said again.

FLOW names the first send of a session that waits. The broker keeps that one and passes over what was said behind it;
the session's window is shut. When there is room, FLOW names the send from which to go on. The room may be small: so a
few are said at first, and with each that is taken one more may be on its way, until all have been said and the window
opens. A sender that runs meanwhile may say one out of turn, or twice: it is passed over (docs/protocol.md, section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sievemq._engine.sends import Sends

__all__ = ["Hold"]

#: Sends that are said at first when there is room again.
_FIRST: Final = 8


class Hold:
    """The sends of a session from which on the broker has not taken them.

    Args:
        sends: whose window is shut as long as this is their :attr:`~Sends.hold`.
    """

    __slots__ = ("_allowance", "_said", "_sends", "_since", "waiting")

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        self._said = 0
        self._since = 0
        self._allowance = _FIRST
        #: Until the broker says where to go on.
        self.waiting = True
        sends.sequence_limit = 0

    def wait(self) -> None:
        """There is no room for the next one either: as many fit of late as were taken since the last time."""
        self.waiting = True
        self._allowance = max(_FIRST, self._sends.confirmed - self._since)

    def go_on(self, sequence: int) -> None:
        """Say what was not taken again.

        Args:
            sequence: of the first one.
        """
        self.waiting = False
        self._said = self._since = sequence - 1
        self.advance(0)

    def advance(self, taken: int) -> None:
        """Say more, or open the window when all has been said.

        Args:
            taken: how many have been settled since the last call.
        """
        sends = self._sends
        sends.sequence_limit = 0
        if self.waiting:
            return
        self._allowance += taken
        unconfirmed, outbox, confirmed = sends.unconfirmed, sends.connection.outbox, sends.confirmed
        # A sender that has passed the window before it was shut adds to `unconfirmed` first, then to the outbox.
        said = max(self._said, confirmed)
        while said < (last := confirmed + len(unconfirmed)):
            until = min(last, confirmed + self._allowance)
            if until <= said:
                self._said = said
                return
            outbox.extend([unconfirmed[index] for index in range(said - confirmed, until - confirmed)])
            said = until
        sends.hold = None
        sends.open_window()
