"""The common part of both fronts of taps and staged sends: fields of commands, values of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sievemq._engine.connection import ClientConnection
from sievemq._engine.session import EngineSession
from sievemq.exceptions import IllegalStateException

__all__ = ["LEASE", "NOTHING", "PAGE", "TapPage", "TapState", "check_transacted", "fields_of", "page_of", "state_of"]

#: Messages of one page; the broker gives no more than this at once.
PAGE: Final = 2_000

#: Milliseconds that staged messages wait for their publisher by default.
LEASE: Final = 600_000

#: The position that LOOK_TAP sends to query the state of a tap: a reader beyond the end takes nothing.
NOTHING: Final = (2**62, 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TapState:
    """The state of a tap.

    Attributes:
        id: of the tap; one that was recreated under the same name has another.
        mode: ``copy``, ``outcomes`` or ``drain``.
        first: sequence of the oldest message that it holds; one more than `last` if it holds none.
        last: sequence of the latest message that there ever was.
        acknowledged: up to this sequence its readers are done.
        lost: the last sequence that went before it was acknowledged: no room, too old, or given back to the queue.
        missed: how many did.
        bytes: size of the messages that it holds at the broker.
        made: the request made it.
        upto: how far a reader may read now.
        more: the broker has more messages now: fetch again.
    """

    id: str
    mode: str
    first: int
    last: int
    acknowledged: int
    lost: int
    missed: int
    bytes: int
    made: bool = False
    upto: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class TapPage:
    """Some messages of a tap, column by column.

    Attributes:
        first: sequence of the first one; the others follow without holes.
        times: ms since 1970 at which the tap saw each.
        counts: JMSXDeliveryCount of each.
        columns: for each field of the envelope (docs/protocol.md, section 5) the values of all; empty if there are no
            messages.
    """

    first: int
    times: Sequence[int]
    counts: Sequence[int]
    columns: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.times)


def state_of(answer: Mapping[str, Any]) -> TapState:
    """The state in an answer, as far as this version knows its fields."""
    return TapState(**{name: answer[name] for name in TapState.__slots__ if name in answer})


def page_of(answer: Sequence[Any]) -> TapPage:
    """An answer to FETCH_TAP."""
    first, times, counts, *columns = answer
    return TapPage(first, times, counts, columns)


def fields_of(
    engine: ClientConnection, name: str, destination: str, mode: str, selector: str | None, options: Mapping[str, Any]
) -> tuple[object, ...]:
    """The fields of OPEN_TAP.

    Args:
        engine: of the connection; knows the dialect.
        name, destination, mode: of the tap.
        selector: verified here.
        options: None where the broker chooses.

    Raises:
        InvalidSelectorException: the selector, with the place of the mistake.
    """
    given = {key: value for key, value in options.items() if value is not None}
    return name, destination, mode, engine.terms.check_selector(selector), engine.options.dialect, given


def check_transacted(session: EngineSession) -> None:
    """Raise unless the sends of a session can be staged.

    Raises:
        IllegalStateException: it is closed, or not transacted.
    """
    session.check_open()
    if not session.transacted:
        raise IllegalStateException("only a transacted session can stage its sends")
