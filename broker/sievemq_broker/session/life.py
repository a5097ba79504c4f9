"""The life of a connection, the same for every protocol: its states, and the state that follows each at an event."""

from __future__ import annotations

from typing import Final

# docs/protocol.md has this table, with what each state means. The states are in order: no event leads back.
CONNECTING: Final = 0
SIGNING_IN: Final = 1
OPEN: Final = 2
LEAVING: Final = 3
CLOSING: Final = 4
GONE: Final = 5

#: The states by name.
STATES: Final = ("CONNECTING", "SIGNING_IN", "OPEN", "LEAVING", "CLOSING", "GONE")

AT_SIGN_IN: Final = (SIGNING_IN, SIGNING_IN, OPEN, LEAVING, CLOSING, GONE)
AT_WELCOME: Final = (OPEN, OPEN, OPEN, LEAVING, CLOSING, GONE)
AT_GOODBYE: Final = (LEAVING, LEAVING, LEAVING, LEAVING, CLOSING, GONE)
AT_END: Final = (CLOSING, CLOSING, CLOSING, CLOSING, CLOSING, GONE)
AT_LOSS: Final = (GONE, GONE, GONE, GONE, GONE, GONE)

#: By event, the state that follows each.
EVENTS: Final = {
    "sign-in": AT_SIGN_IN,
    "welcome": AT_WELCOME,
    "goodbye": AT_GOODBYE,
    "end": AT_END,
    "loss": AT_LOSS,
}


class Life:
    """The state of one connection. The client's Peer changes it; its protocol and the I/O layer read it.

    Attributes:
        state: a number of :data:`STATES`.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: int = CONNECTING

    def sign_in(self) -> None:
        self.state = AT_SIGN_IN[self.state]

    def welcome(self) -> None:
        self.state = AT_WELCOME[self.state]

    def goodbye(self) -> bool:
        """The client ends the connection in order. True if its sessions must be closed now."""
        present = self.state < LEAVING
        self.state = AT_GOODBYE[self.state]
        return present

    def end(self) -> bool:
        """What is queued is the last output. True if the client's sessions must be closed now."""
        present = self.state < LEAVING
        self.state = AT_END[self.state]
        return present

    def lose(self) -> bool:
        """Nothing more is written or carried out. True if the client's sessions must be closed now."""
        present = self.state < LEAVING
        self.state = AT_LOSS[self.state]
        return present
