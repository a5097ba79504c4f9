"""The form of the broker's answers that carry a result (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sievemq_core.errors import ProtocolError
from sievemq_core.wire.commands import Command
from sievemq_core.wire.form import check_envelope


def check_answer(kind: int, result: object) -> None:
    """See that a broker's answer has the form that its readers take for granted.

    Raises:
        ProtocolError: it has not.
    """
    check = _FORMS.get(kind)
    if check is not None:
        check(result)


def check_resumed(memory: Mapping[str, object]) -> None:
    """Check that the memory of a lost connection has the form that its readers expect.

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
        return  # there is no such queue; these have similar names
    if result[0] is not None and len(result) == 2 and type(result[1]) is int and result[1] >= 0:
        return  # how many messages wait
    for row in result[1:]:
        if type(row) is not tuple or len(row) < 2 or type(row[0]) is not int or row[0] < 0:
            raise ProtocolError("the answer to BROWSE must have a count and an envelope for each message")
        check_envelope(row[1])


#: Fields of every answer with the state of a tap, and further fields of the answers to some commands.
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


def _check_tapped(result: object) -> None:
    if type(result) is not tuple or len(result) < 4:
        raise ProtocolError("the answer to FETCH_TAP must be a sequence, times, counts and envelopes")
    first, times, counts, envelopes = result[:4]
    for numbers in ((first,), times, counts):
        if type(numbers) is not tuple or not _NUMBERS.issuperset(map(type, numbers)):
            raise ProtocolError("the answer to FETCH_TAP must have numbers as sequence, times and counts")
    if type(envelopes) is not tuple or not len(times) == len(counts) == len(envelopes):
        raise ProtocolError(f"the answer to FETCH_TAP has {len(times)} times, and not as many counts and envelopes")
    for envelope in envelopes:
        check_envelope(envelope)


_NUMBERS: Final = frozenset({int})
_TEXTS: Final = frozenset({str})


def _check_kind(command: str, what: str, *kinds: type) -> Callable[[object], None]:
    def check(result: object) -> None:
        if type(result) not in kinds:
            raise ProtocolError(f"the answer to {command} must be {what}")

    return check


def _check_names(result: object) -> None:
    if type(result) is not tuple or not _TEXTS.issuperset(map(type, result)):
        raise ProtocolError("the answer to FIND_DESTINATIONS must be addresses")


_FORMS: Final[Mapping[int, Callable[[object], None]]] = {
    Command.BROWSE: _check_page,
    Command.CREATE_TEMPORARY: _check_kind("CREATE_TEMPORARY", "an address", str),
    Command.OPEN_TAP: _check_state("OPEN_TAP", _OPENED),
    Command.LOOK_TAP: _check_state("LOOK_TAP", _LOOKED),
    Command.FETCH_TAP: _check_tapped,
    Command.ACKNOWLEDGE_TAP: _check_state("ACKNOWLEDGE_TAP", _STATE),
    Command.DELETE_TAP: _check_kind("DELETE_TAP", "whether there was one", bool),
    Command.STAGE: _check_kind("STAGE", "a name", str),
    Command.PUBLISH: _check_kind("PUBLISH", "a number of messages or nothing", int, type(None)),
    Command.DISCARD: _check_kind("DISCARD", "a number of messages", int),
    Command.FIND_DESTINATIONS: _check_names,
}
