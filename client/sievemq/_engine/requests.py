"""Requests that wait for an answer, which of them have been said more than once, and the form of their answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sievemq._engine.completion import Completion
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.wire.codec import CommandTuple, pack
from sievemq_core.wire.commands import Command
from sievemq_core.wire.form import check_columns, check_envelope

__all__ = ["Requests", "check_resumed"]

#: Requests of which it matters whether they were carried out.
_DOUBTFUL: Final = frozenset({Command.COMMIT, Command.ACKNOWLEDGE_ALL, Command.STAGE})
_DELETING: Final = frozenset({Command.DELETE_TEMPORARY, Command.UNSUBSCRIBE})


class Requests:
    """The requests of one connection.

    Attributes:
        pending: by number: the waiter for the answer, and the command.
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
        """The answer to a command that is sent at once settles this; its number."""
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
            _check_answer(said[0], result)
            completion.succeed(result)
            self._forget(number)

    def fail(self, number: int, code: int, error: Exception) -> None:
        """ERROR has come."""
        entry = self.pending.get(number)
        if entry is None:
            return
        completion, said = entry
        if number in self._repeated and said[0] in _DELETING and code == ErrorCode.INVALID_DESTINATION:
            completion.succeed(None)  # it was carried out before the connection was lost
        else:
            completion.fail(error)
        self._forget(number)

    def _forget(self, number: int) -> None:
        """The answer is known. Only after it was told: :meth:`finish` finds what an interrupt left."""
        self.pending.pop(number, None)
        self._repeated.discard(number)

    def finish(self) -> None:
        """An interrupt may have broken into a call here: tell the rest of each answer that is known."""
        for number, (completion, _) in tuple(self.pending.items()):
            if completion.done:
                completion.tell()
                self._forget(number)

    def doubt(self) -> None:
        """The connection is lost: what was said may have been carried out."""
        self.doubtful += [number for number, (_, command) in self.pending.items() if command[0] in _DOUBTFUL]

    def take_doubtful(self) -> Iterator[tuple[int, tuple[Completion[Any], CommandTuple]]]:
        """Those of :attr:`doubtful` that still wait, each with its number; settle each before the next is taken."""
        for number in self.doubtful:
            entry = self.pending.get(number)
            if entry is not None:
                yield number, entry
                self._forget(number)
        self.doubtful = []

    def end(self, error: Exception, goodbye: int = 0) -> None:
        """No answer will come any more: all fail, in the order in which they were made.

        Args:
            error: why.
            goodbye: number of the one that has what it wanted: an end.
        """
        for number, (completion, _) in tuple(self.pending.items()):
            if number == goodbye:
                completion.succeed(None)
            else:
                completion.fail(error)
            self._forget(number)


# -- the form of an answer that says more than that something is done (docs/protocol.md) -------------------------------


def _check_answer(kind: int, result: object) -> None:
    """See that a broker's answer has the form that its readers take for granted.

    Args:
        kind: of the command that was said.
        result: of its OK.

    Raises:
        ProtocolError: it has not.
    """
    check = _FORMS.get(kind)
    if check is not None:
        check(result)


def check_resumed(memory: Mapping[str, object]) -> None:
    """See that what a broker remembers of a lost connection has the form that its readers take for granted.

    Args:
        memory: `features.resumed` of its WELCOME.

    Raises:
        ProtocolError: it has not.
    """
    for key, kinds in _REMEMBERED.items():
        rows = memory.get(key, ())
        if type(rows) is not tuple or not all(
            type(row) is tuple and len(row) >= len(kinds) and all(map(isinstance, row, kinds)) for row in rows
        ):
            raise ProtocolError(f"WELCOME says of the lost connection's {key} what is not in form")


#: What `resumed` holds: arrays, and the kinds of their members.
_REMEMBERED: Final[Mapping[str, tuple[type, ...]]] = {"sessions": (int, int, int), "refused": (int, int, int, str)}


def _check_page(result: object) -> None:
    if type(result) is not tuple or not result:
        raise ProtocolError("the answer to BROWSE must be a cursor and messages")
    if result[0] is None and all(type(row) is str for row in result[1:]):
        return  # there is no such queue; these are similar ones
    if result[0] is not None and len(result) == 2 and type(result[1]) is int and result[1] >= 0:
        return  # how many messages wait
    for row in result[1:]:
        if type(row) is not tuple or len(row) < 2 or type(row[0]) is not int or row[0] < 0:
            raise ProtocolError("the answer to BROWSE must have a count and an envelope for each message")
        check_envelope(row[1])


#: What every answer says that tells how a tap stands; and what those to some commands say besides.
_STATE: Final[Mapping[str, type]] = {
    "id": str,
    "mode": str,
    "first": int,
    "last": int,
    "acknowledged": int,
    "lost": int,
    "missed": int,
    "bytes": int,
}
_OPENED: Final[Mapping[str, type]] = {**_STATE, "made": bool}
_LOOKED: Final[Mapping[str, type]] = {**_STATE, "upto": int, "more": bool}


def _check_state(command: str, members: Mapping[str, type]) -> Callable[[object], None]:
    def check(result: object) -> None:
        if type(result) is not dict:
            raise ProtocolError(f"the answer to {command} must say how the tap stands")
        for name, kind in members.items():
            if type(result.get(name)) is not kind:
                raise ProtocolError(f"the answer to {command} must have {kind.__name__} as {name!r}")

    return check


def _check_columns(result: object) -> None:
    if type(result) is not tuple or len(result) < 3:
        raise ProtocolError("the answer to FETCH_TAP must be a sequence, times, counts and columns")
    first, times, counts, *columns = result
    for numbers in ((first,), times, counts):
        if type(numbers) is not tuple or not _NUMBERS.issuperset(map(type, numbers)):
            raise ProtocolError("the answer to FETCH_TAP must have numbers as sequence, times and counts")
    if len(times) != len(counts):
        raise ProtocolError(f"the answer to FETCH_TAP has {len(times)} times and {len(counts)} counts")
    check_columns(tuple(columns), len(times))


_NUMBERS: Final = frozenset({int})


def _check_kind(command: str, what: str, *kinds: type) -> Callable[[object], None]:
    def check(result: object) -> None:
        if type(result) not in kinds:
            raise ProtocolError(f"the answer to {command} must be {what}")

    return check


_FORMS: Final[Mapping[int, Callable[[object], None]]] = {
    Command.BROWSE: _check_page,
    Command.CREATE_TEMPORARY: _check_kind("CREATE_TEMPORARY", "an address", str),
    Command.OPEN_TAP: _check_state("OPEN_TAP", _OPENED),
    Command.LOOK_TAP: _check_state("LOOK_TAP", _LOOKED),
    Command.FETCH_TAP: _check_columns,
    Command.ACKNOWLEDGE_TAP: _check_state("ACKNOWLEDGE_TAP", _STATE),
    Command.DELETE_TAP: _check_kind("DELETE_TAP", "whether there was one", bool),
    Command.STAGE: _check_kind("STAGE", "a name", str),
    Command.PUBLISH: _check_kind("PUBLISH", "a number of messages or nothing", int, type(None)),
    Command.DISCARD: _check_kind("DISCARD", "a number of messages", int),
}
