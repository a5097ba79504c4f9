"""A command whose messages costly selectors are asked about: it is carried out when they all have answered.

Until then nothing behind it on its connection is. It has not happened: a connection that is lost has not said it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sievemq_broker.domain.examining import Examining

__all__ = ["EXAMINED", "Pending"]

#: Units (condition.units) that selectors are asked for before somebody looks at the time: less than a millisecond, if
#: none of them takes longer.
EXAMINED = 200


class Pending:
    """The command that a connection goes on with.

    Args:
        examining: what is to be done before.
        command: the command.
        act: carries it out, with the time.
        size: bytes of the messages that are held by nobody else.
    """

    __slots__ = ("_examining", "act", "command", "size")

    def __init__(self, examining: Examining, command: tuple[Any, ...], act: Callable[[int], None], size: int) -> None:
        self._examining = examining
        self.act = act
        self.command = command
        self.size = size

    def go_on(self, spent: Callable[[], bool], now: int) -> bool:
        """Ask, as long as there is time.

        Args:
            spent: is there no more time?
            now: milliseconds since 1970.

        Returns:
            True if the command can be carried out.
        """
        while not self._examining.work(EXAMINED, now):
            if spent():
                return False
        return True
