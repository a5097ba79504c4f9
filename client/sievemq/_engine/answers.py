"""The form of an answer that says more than that something is done (docs/protocol.md: BROWSE, CREATE_TEMPORARY, and
what WELCOME says of a connection that comes back)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sievemq_core.errors import ProtocolError
from sievemq_core.wire.commands import Command
from sievemq_core.wire.form import check_envelope

__all__ = ["check_answer", "check_resumed"]


def check_answer(kind: int, result: object) -> None:
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
    for row in result[1:]:
        if type(row) is not tuple or len(row) < 2 or type(row[0]) is not int or row[0] < 0:
            raise ProtocolError("the answer to BROWSE must have a count and an envelope for each message")
        check_envelope(row[1])


def _check_address(result: object) -> None:
    if type(result) is not str:
        raise ProtocolError("the answer to CREATE_TEMPORARY must be an address")


_FORMS: Final[Mapping[int, Callable[[object], None]]] = {
    Command.BROWSE: _check_page,
    Command.CREATE_TEMPORARY: _check_address,
}
