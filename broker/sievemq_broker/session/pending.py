"""A command that takes several turns, or has to wait for some. Until it is over nothing behind it on its connection is
carried out.

Before costly selectors have answered, or while another message is delivered in slices, the command has not happened: a
connection that is lost has not said it. A message that is being delivered in slices itself has been sent: the broker
goes on with it whatever becomes of the connection, and confirms it when every subscription has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sievemq_broker.domain.examining import EXAMINED, Examining
from sievemq_broker.domain.fan_out import FanOut

__all__ = ["Pending"]

Work: TypeAlias = Examining | FanOut


class Pending:
    """The command that a connection goes on with.

    Args:
        work: what is to be done before.
        command: the command.
        act: carries it out, with the time.
        size: bytes of the messages that are held by nobody else.
    """

    __slots__ = ("_work", "act", "command", "size")

    def __init__(self, work: Work, command: tuple[Any, ...], act: Callable[[int], None], size: int) -> None:
        self._work = work
        self.act = act
        self.command = command
        self.size = size

    def go_on(self, spent: Callable[[], bool], now: int) -> bool:
        """Go on, as long as there is time and the broker's pending work need not go on first.

        Args:
            spent: is there no more time?
            now: milliseconds since 1970.

        Returns:
            True if the command can be carried out.
        """
        work = self._work
        while not work.work(EXAMINED, now):
            if work.blocked or spent():
                return False
        return True
