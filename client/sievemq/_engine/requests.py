"""Requests that wait for an answer, and which of them have been said more than once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from sievemq._engine.answers import check_answer
from sievemq._engine.completion import Completion
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.codec import CommandTuple, pack
from sievemq_core.wire.commands import Command

__all__ = ["DOUBTFUL", "Requests"]

#: Requests of which it matters whether they were carried out.
DOUBTFUL: Final = frozenset({Command.COMMIT, Command.ACKNOWLEDGE_ALL, Command.STAGE})
_DELETING: Final = frozenset({Command.DELETE_TEMPORARY, Command.UNSUBSCRIBE})


class Requests:
    """The requests of one connection.

    Attributes:
        pending: by number: who waits for the answer, and what was said.
        doubtful: those pending when a connection was lost of which it matters whether they were carried out.
        next_number: gives the next request its number.
    """

    __slots__ = ("_repeated", "doubtful", "next_number", "pending")

    def __init__(self) -> None:
        self.pending: dict[int, tuple[Completion[Any], CommandTuple]] = {}
        self.doubtful: list[int] = []
        self.next_number: Callable[[], int] = itertools.count(1).__next__
        self._repeated: set[int] = set()  # said once more; the first time may have been heard

    def make(self, kind: int, fields: tuple[object, ...]) -> tuple[Completion[Any], bytes]:
        """A new one.

        Args:
            kind: of the command.
            fields: behind its request number.

        Returns:
            What its answer settles, and the command, packed.
        """
        completion: Completion[Any] = Completion()
        number = self.next_number()
        command = (kind, number, *fields)
        packed = pack(command)  # may fail: then there is no request
        self.pending[number] = completion, command
        return completion, packed

    def expect(self, completion: Completion[Any], kind: int, *fields: object) -> int:
        """The answer to a command that is said at once settles this; its number."""
        number = self.next_number()
        self.pending[number] = completion, (kind, number, *fields)
        return number

    def repeat(self, number: int, kind: int, fields: tuple[object, ...]) -> tuple[Completion[Any], bytes]:
        """One that waits already, and may have been said before; arguments and value as :meth:`make`."""
        completion, _ = self.pending[number]
        command = (kind, number, *fields)
        self.pending[number] = completion, command
        self._repeated.add(number)
        return completion, pack(command)

    def succeed(self, number: int, result: object) -> None:
        """OK has come.

        Raises:
            ProtocolError: with what is no answer to what was asked; it still waits for one.
        """
        entry = self.pending.get(number)
        if entry is not None:
            completion, said = entry
            check_answer(said[0], result)
            del self.pending[number]
            self._repeated.discard(number)
            completion.succeed(result)

    def fail(self, number: int, code: int, error: Exception) -> None:
        """ERROR has come."""
        entry = self.pending.pop(number, None)
        if entry is None:
            return
        completion, said = entry
        if number in self._repeated:
            self._repeated.discard(number)
            if said[0] in _DELETING and code == ErrorCode.INVALID_DESTINATION:
                completion.succeed(None)  # it was carried out before the connection was lost
                return
        completion.fail(error)

    def doubt(self) -> None:
        """The connection is lost: what was said may have been carried out."""
        self.doubtful += [number for number, (_, command) in self.pending.items() if command[0] in DOUBTFUL]

    def take_doubtful(self) -> Iterator[tuple[int, tuple[Completion[Any], CommandTuple]]]:
        """Those of :attr:`doubtful` that still wait, each with its number; they wait no more."""
        doubtful, self.doubtful = self.doubtful, []
        for number in doubtful:
            entry = self.pending.pop(number, None)
            if entry is not None:
                yield number, entry

    def end(self, error: Exception, goodbye: int = 0) -> None:
        """No answer will come any more: all fail, in the order in which they were made.

        Args:
            error: why.
            goodbye: number of the one that has what it wanted: an end.
        """
        pending, self.pending = self.pending, {}
        for number, (completion, _) in pending.items():
            if number == goodbye:
                completion.succeed(None)
            else:
                completion.fail(error)
