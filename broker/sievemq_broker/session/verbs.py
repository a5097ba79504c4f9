"""The commands that a door gives a client's Peer, with the names and types of their fields.

A command is a tuple: the number of its verb, then its fields, as in the table of SieveMQ's own protocol
(``sievemq_core/wire/commands.py``), which also says what each field means. A test compares the two. HELLO is the
exception: it has what every protocol knows of a client, and each protocol keeps the rest to itself.

Fields are given by keyword only, so that a type checker finds one that is missing, unknown or of a wrong type, and two
of the same type cannot change places unseen. SEND, ACKNOWLEDGE and CREDIT are plain tuples, since their handlers take
them apart in one step: see :func:`send`, :func:`acknowledge` and :func:`credit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import get_annotations
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, NewType, Self, TypeAlias, dataclass_transform

from sievemq_broker.session.lost import Memory, Report
from sievemq_core.message.envelope import EnvelopeFields
from sievemq_core.wire.commands import Command

PlainCommand = NewType("PlainCommand", tuple[Any, ...])
"""A command without names, as the functions below make them."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class NamedCommand(tuple[Any, ...]):
    """A tuple that is made by keyword, and whose fields are attributes: those that a subclass annotates, in order.

    Attributes:
        number: of the verb.
        names: of the fields.
    """

    number: ClassVar[int] = -1
    names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, *, number: int = -1) -> None:
        own = get_annotations(cls)
        cls.number = number
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}
        cls.names = (*cls.names, *own)
        for at, name in enumerate(cls.names, 1):
            setattr(cls, name, property(itemgetter(at)))

    def __new__(cls, **fields: Any) -> Self:
        given = {**cls._defaults, **fields}
        if len(given) != len(cls.names):
            raise TypeError(f"{cls.__name__} has the fields {', '.join(cls.names)}; given are {', '.join(fields)}")
        return tuple.__new__(cls, (cls.number, *[given[name] for name in cls.names]))


class Request(NamedCommand):
    """A command that is answered, unless its request is 0."""

    request: int


Carried: TypeAlias = NamedCommand | PlainCommand
"""A command that a door has made."""


# -- the connection ---------------------------------------------------------------------------------------------------


class Resume(NamedTuple):
    """The lost connection whose place a client takes.

    Attributes:
        connection: its id.
        report: what the client states of messages that were delivered there.
        session, consumer: the last ids that were used there.
        attempt: counts the client's attempts to continue it; 0 if it does not count them.
    """

    connection: str
    report: Report
    session: int
    consumer: int
    attempt: int


class Hello(NamedCommand, number=Command.HELLO):
    """What every protocol knows of a client that signs in.

    Attributes:
        host: that it wants to reach.
        keep: ms for which it wants to be remembered once the connection is lost.
    """

    namespace: str
    user: str | None
    password: str | None
    client_id: str | None
    agent: str
    host: str = ""
    keep: int = 0
    resume: Resume | None = None

    @property
    def wanted(self) -> str:
        """The namespace that the client asks for, by its name or by a host that begins with a slash; empty for none."""
        return self.namespace or (self.host.removeprefix("/") if self.host.startswith("/") else "")

    def without_password(self) -> Hello:
        return Hello(**{**dict(zip(self.names, self[1:], strict=True)), "password": None})


class Welcome(NamedTuple):
    """The answer to :class:`Hello`.

    Attributes:
        connection: id of the connection; the old one if it is resumed.
        now: the broker's time, ms since 1970, by a clock that may have been moved.
        clock_offset: by how much it was moved (test clocks only), ms.
        frozen_at: the time at which it stands still; None while it runs.
        moved_at: when it was moved, ms since 1970 without the offset.
        subscriptions: durable and shared subscriptions that a namespace may have.
        resumed: what the broker remembers of the lost connection; None if nothing.
    """

    connection: str
    now: int
    clock_offset: int
    frozen_at: int | None
    moved_at: int
    subscriptions: int
    resumed: Memory | None

    @property
    def real(self) -> int:
        """The time of the machine: ms since 1970."""
        return self.now - self.clock_offset


class Heartbeat(NamedCommand, number=Command.HEARTBEAT):
    pass


class SetClientId(Request, number=Command.SET_CLIENT_ID):
    client_id: str


class Goodbye(Request, number=Command.GOODBYE):
    handed: Sequence[int]


class Ping(Request, number=Command.PING):
    pass


class ClockSeen(NamedCommand, number=Command.CLOCK_SEEN):
    offset: Any


# -- sessions, consumers, destinations --------------------------------------------------------------------------------


class OpenSession(Request, number=Command.OPEN_SESSION):
    session: int
    mode: int
    sent: int = 0


class CloseSession(Request, number=Command.CLOSE_SESSION):
    session: int
    handed: Sequence[int]


class OpenConsumer(Request, number=Command.OPEN_CONSUMER):
    session: int
    consumer: int
    destination: str
    selector: str | None
    dialect: str | None
    no_local: bool
    subscription: str | None
    durable: bool
    shared: bool
    credit: int
    tag: int = 0
    bytes: int = 0


class CloseConsumer(Request, number=Command.CLOSE_CONSUMER):
    consumer: int
    handed: int


class Declare(Request, number=Command.DECLARE):
    destination: str


class CreateTemporary(Request, number=Command.CREATE_TEMPORARY):
    topic: bool
    destination: str | None = None


class DeleteTemporary(Request, number=Command.DELETE_TEMPORARY):
    destination: str


class Unsubscribe(Request, number=Command.UNSUBSCRIBE):
    subscription: str
    made_by: int = 0


class Browse(Request, number=Command.BROWSE):
    destination: str
    selector: str | None
    dialect: str | None
    cursor: Any
    limit: int
    part: int = 0
    parts: int = 0


# -- messages ---------------------------------------------------------------------------------------------------------


def send(*, session: int, sequence: int, destination: str, envelope: EnvelopeFields) -> PlainCommand:
    return PlainCommand((Command.SEND, session, sequence, destination, envelope))


def acknowledge(*, consumer: int, tag: int, credit: int) -> PlainCommand:
    return PlainCommand((Command.ACKNOWLEDGE, consumer, tag, credit))


def credit(*, consumer: int, credit: int, instead: bool = False) -> PlainCommand:
    return PlainCommand((Command.CREDIT, consumer, credit, instead))


class AcknowledgeAll(Request, number=Command.ACKNOWLEDGE_ALL):
    session: int
    handed: Sequence[int]


class AcknowledgeSeveral(NamedCommand, number=Command.ACKNOWLEDGE_SEVERAL):
    acknowledged: Sequence[int]


class Want(Request, number=Command.WANT):
    consumer: int


class Release(NamedCommand, number=Command.RELEASE):
    consumer: int
    tags: Sequence[int]
    unasked: bool = False


class Settle(NamedCommand, number=Command.SETTLE):
    consumer: int
    tags: Sequence[int]
    outcome: int
    credit: int


class Recover(Request, number=Command.RECOVER):
    session: int
    handed: Sequence[int]
    failure: Mapping[str, Any] | None = None


class Commit(Request, number=Command.COMMIT):
    session: int
    handed: Sequence[int]
    failure: Mapping[str, Any] | None = None


class Rollback(Request, number=Command.ROLLBACK):
    session: int
    handed: Sequence[int]
    failure: Mapping[str, Any] | None = None


class Withdraw(Request, number=Command.WITHDRAW):
    session: int
    sequence: int


# -- taps, and sends that become visible together ---------------------------------------------------------------------


class OpenTap(Request, number=Command.OPEN_TAP):
    tap: str
    destination: str
    mode: str
    selector: str | None
    dialect: str | None
    options: dict[str, Any]


class LookTap(Request, number=Command.LOOK_TAP):
    tap: str
    destination: str
    after: int
    messages: int
    bytes: int


class FetchTap(Request, number=Command.FETCH_TAP):
    tap: str
    destination: str
    id: str
    after: int
    upto: int
    limit: int


class AcknowledgeTap(Request, number=Command.ACKNOWLEDGE_TAP):
    tap: str
    destination: str
    id: str
    upto: int


class DeleteTap(Request, number=Command.DELETE_TAP):
    tap: str
    destination: str
    made_by: int = 0


class Stage(Request, number=Command.STAGE):
    session: int
    key: str
    batch: int
    lease: int


class Publish(Request, number=Command.PUBLISH):
    key: str
    batch: int
    stages: Any


class Discard(Request, number=Command.DISCARD):
    key: str
    batch: int
    stage: str | None = None


class FindDestinations(Request, number=Command.FIND_DESTINATIONS):
    pattern: str


def named_commands() -> dict[int, type[NamedCommand]]:
    return {each.number: each for base in (NamedCommand, Request) for each in base.__subclasses__() if each.number >= 0}
