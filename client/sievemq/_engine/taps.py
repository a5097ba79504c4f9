"""The common part of both fronts of taps and staged sends: fields of commands, values of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sievemq._engine.connection import ClientConnection
from sievemq._engine.session import EngineSession
from sievemq.exceptions import IllegalStateException
from sievemq_core.limits import MAX_IDENTIFIER_CHARS

#: Messages of one page; the broker gives no more than this at once.
TAP_PAGE: Final = 2_000

#: Milliseconds that staged messages wait for their publisher by default.
LEASE: Final = 600_000

#: The largest number of a command.
_LARGEST: Final = 2**63 - 1

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
    first, times, counts, envelopes = answer[:4]
    return TapPage(first, times, counts, tuple(zip(*envelopes, strict=False)))  # fields of newer versions may differ


def fields_of(
    engine: ClientConnection, name: str, destination: str, mode: str, selector: str | None, options: Mapping[str, Any]
) -> tuple[object, ...]:
    """The fields of OPEN_TAP.

    Args:
        selector: verified here.
        options: None where the broker chooses.

    Raises:
        ValueError: a name, mode or option that cannot be.
        InvalidSelectorException: the selector, with the place of the mistake.
    """
    if mode not in ("copy", "outcomes", "drain"):
        raise ValueError(f"the mode of a tap is 'copy', 'outcomes' or 'drain', not {mode!r:.60}")
    if options["start"] not in ("earliest", "latest"):
        raise ValueError(f"a tap starts at 'earliest' or 'latest', not {options['start']!r:.60}")
    given = {key: value for key, value in options.items() if value is not None}
    for key in ("retain_messages", "retain_bytes", "retain_age", "lease"):
        if key in given:
            number_of(key, given[key])
    if "reader" in given:
        name_of("a reader's name", given["reader"])
    return (
        name_of("a tap's name", name),
        destination,
        mode,
        engine.terms.check_selector(selector),
        engine.options.dialect,
        given,
    )


def number_of(what: str, value: object, least: int = 0) -> int:
    """A number of a command.

    Raises:
        ValueError: it is no int, below `least`, or above 2**63 - 1.
    """
    if type(value) is not int or not least <= value <= _LARGEST:
        raise ValueError(f"{what} is an int of {least} or more, up to 2**63 - 1, not {value!r:.60}")
    return value


def name_of(what: str, value: object) -> str:
    """The name of a tap, a reader or a publisher.

    Raises:
        ValueError: it is no text of 1 to 255 printable characters.
    """
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDENTIFIER_CHARS or not value.isprintable():
        raise ValueError(f"{what} has 1 to {MAX_IDENTIFIER_CHARS} printable characters, unlike {value!r:.60}")
    return value


def names_of(names: Iterable[str]) -> tuple[str, ...]:
    """The names of stages.

    Raises:
        ValueError: it is no list of texts.
    """
    found = () if isinstance(names, str) else tuple(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"stages are named by a list of the texts that stage() returned, not by {names!r:.60}")
    return found


def check_transacted(session: EngineSession) -> None:
    """Raise unless the sends of a session can be staged.

    Raises:
        IllegalStateException: it is closed, or not transacted.
    """
    session.check_open()
    if not session.transacted:
        raise IllegalStateException("only a transacted session can stage its sends")
