"""Whether a queue delivers."""

from __future__ import annotations


class Standstill:
    """Why a queue delivers nothing now, if it does not.

    Attributes:
        paused: an administrator stopped it; sending goes on.
        held: tasks that must be over before: they change what waits.
        hidden: how many of these are batches that are being published.
        before: the sequence of the last message before the first of these batches.
        unserved: there was no time for all that consumers can take: the rest is pending work.
        shut: it is paused or held.
    """

    __slots__ = ("before", "held", "hidden", "paused", "shut", "unserved")

    def __init__(self) -> None:
        self.paused = False
        self.held = 0
        self.hidden = 0
        self.before = 0
        self.unserved = False
        self.shut = False

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.shut = paused or self.held > 0

    def hold(self) -> None:
        """A task begins."""
        self.held += 1
        self.shut = True

    def release(self) -> None:
        """A task is over."""
        self.held -= 1
        self.shut = self.paused or self.held > 0

    def hide(self, sequence: int) -> None:
        """A batch begins to be published.

        Args:
            sequence: of the last message so far.
        """
        if not self.hidden:
            self.before = sequence
        self.hidden += 1
        self.hold()

    def show(self) -> None:
        """A batch is published."""
        self.hidden -= 1
        self.release()

    def put_off(self) -> None:
        """The rest of what consumers can take is delivered later."""
        self.unserved = True
        self.hold()

    def take_up(self) -> bool:
        """True if something was put off: it is delivered now."""
        unserved, self.unserved = self.unserved, False
        return unserved
