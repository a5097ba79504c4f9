"""The form of an answer that says more than that something is done (docs/protocol.md, BROWSE and CREATE_TEMPORARY)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sievemq_core.errors import ProtocolError
from sievemq_core.wire.commands import Command
from sievemq_core.wire.form import check_envelope

__all__ = ["check_answer"]


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
