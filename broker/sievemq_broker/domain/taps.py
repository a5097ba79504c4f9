"""The taps of a namespace: created, found, counted, dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from sievemq_broker.domain.dead_letters import origins_of
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.origin import RequestId
from sievemq_broker.domain.outcome_tap import OutcomeTap
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.tap import CopyTap, DrainTap, Tap, TapTerms
from sievemq_broker.domain.tap_log import SHORTEST_LEASE
from sievemq_broker.domain.topic import Topic
from sievemq_broker.matching.condition import Condition, group_key, units_of
from sievemq_core.errors import ErrorCode, RequestError, shown
from sievemq_core.limits import MAX_IDENTIFIER_CHARS, MAX_PROPERTY_CHARS
from sievemq_core.message.destination import Address, parse_address

#: The most taps of one namespace: each message of a destination costs work for each of its taps.
MAX_TAPS: Final = 1_000

#: Units (condition.units) that the selectors of all taps of one destination may take for one message: some
#: milliseconds. All are evaluated when it arrives, or when it is acknowledged.
MAX_EFFORT: Final = 2_000

_MIB: Final = 1024 * 1024
_DAY: Final = 86_400_000

#: Name of an option -> default, lowest, highest. Counts, bytes, ms.
_TERMS: Final[dict[str, tuple[int, int, int]]] = {
    "retain_messages": (1_000_000, 1, 100_000_000),
    "retain_bytes": (256 * _MIB, 4_096, 64 * 1024 * _MIB),
    "retain_age": (0, 0, 3_650 * _DAY),
    "lease": (0, 0, 365 * _DAY),
}
_DRAIN_LEASE: Final = 600_000


def terms_of(mode: str, options: dict[str, Any]) -> TapTerms:
    """The limits of a tap, from the options of a request. Unknown options are ignored.

    Raises:
        RequestError: ILLEGAL_STATE, a value that cannot be.
    """
    values: dict[str, int] = {}
    for name, (default, lowest, highest) in _TERMS.items():
        value = options.get(name, _DRAIN_LEASE if name == "lease" and mode == "drain" else default)
        if type(value) is not int or not lowest <= value <= highest:
            raise RequestError(f"a tap's {name} is a number from {lowest} to {highest}", ErrorCode.ILLEGAL_STATE)
        values[name] = value
    if 0 < values["lease"] < SHORTEST_LEASE:
        raise RequestError(f"a tap's lease is {SHORTEST_LEASE} ms or more, or 0", ErrorCode.ILLEGAL_STATE)
    if mode == "drain" and not values["lease"]:
        raise RequestError("a tap that drains needs a lease: its reader may never return", ErrorCode.ILLEGAL_STATE)
    return TapTerms(*values.values())


class TapHome(Protocol):
    """A namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def journal(self) -> Journal | None:
        """The journal that keeps taps across restarts."""

    @property
    def deadlines(self) -> Deadlines:
        """The broker's deadlines."""

    def find(self, address: str | Address) -> Queue | Topic | None:
        """The destination with this address, or None."""

    def declare(self, address: str) -> Queue | Topic:
        """The destination with this address; created if there is none."""


class Taps:
    """The taps by destination and name.

    Args:
        namespace: whose.
        stamp_soon: lets a tap record what it has observed, or what waited before it.

    Attributes:
        made: how many there ever were.
        missed: messages that taps lost which are gone.
    """

    __slots__ = ("_namespace", "_stamp_soon", "_taps", "made", "missed")

    def __init__(self, namespace: TapHome, stamp_soon: Callable[[CopyTap], None]) -> None:
        self._namespace = namespace
        self._stamp_soon = stamp_soon
        self.made = 0
        self.missed = 0
        self._taps: dict[tuple[str, str], CopyTap | DrainTap] = {}

    def __iter__(self) -> Iterator[CopyTap | DrainTap]:
        return iter(tuple(self._taps.values()))

    def __len__(self) -> int:
        return len(self._taps)

    @property
    def held_bytes(self) -> int:
        """Bytes that all taps hold. Messages that also wait in a queue are counted twice: the bytes are shared, but
        each holder alone would keep them."""
        return sum(tap.held_bytes for tap in self._taps.values())

    @property
    def journal(self) -> Journal | None:
        """As a :class:`~sievemq_broker.domain.tap.Keeper`."""
        return self._namespace.journal

    @property
    def deadlines(self) -> Deadlines:
        """As a :class:`~sievemq_broker.domain.tap.Keeper`."""
        return self._namespace.deadlines

    def stamp_soon(self, tap: Tap) -> None:
        """As a :class:`~sievemq_broker.domain.tap.Keeper`."""
        assert isinstance(tap, CopyTap)
        self._stamp_soon(tap)

    def get(self, name: str, address: str) -> CopyTap | DrainTap | None:
        """The tap with this name on this destination, or None.

        Raises:
            AddressError: the text is no address.
        """
        destination = self._namespace.find(address)
        return None if destination is None else self._taps.get((destination.label, name))

    def find(self, name: str, address: str) -> CopyTap | DrainTap:
        """The tap with this name on this destination.

        Raises:
            AddressError: the text is no address.
            RequestError: NOT_FOUND, there is none.
        """
        found = self.get(name, address)
        if found is None:
            raise RequestError(
                f"there is no tap {name!r:.300} on {address}: it was never created, its lease ended, or the broker was "
                "restarted without its data",
                ErrorCode.NOT_FOUND,
                {"tap": None},
            )
        return found

    def open(
        self,
        maker: str,
        name: str,
        address: str,
        mode: str,
        condition: Condition | None,
        options: dict[str, Any],
        now: int,
        owner: str | None = None,
        request: RequestId | None = None,
    ) -> CopyTap | DrainTap:
        """The tap with this name on this destination, with these terms from now on; created if there is none.

        Args:
            maker: begins the id of a new tap; with a number behind it nothing else ever has it.
            name: 1 to 255 characters.
            address: of a queue or topic; made if it does not exist.
            mode: ``copy``, ``outcomes`` or ``drain``.
            condition: only what matches.
            options: retain_messages, retain_bytes, retain_age, lease (ms); ``start``: ``earliest`` begins with what
                waits in the queue, ``latest`` (the default) with what comes next. A drain always takes everything,
                outcomes are always those to come. ``existing``: true makes a new tap only on a destination that is
                there, or on the dead-letter queue of one. ``stored``: false makes a copy that ends with the broker.
            now: ms epoch.
            owner: the user, of a new one.
            request: that asks for it.

        Raises:
            AddressError, RequestError: as :meth:`Namespace.declare`; ILLEGAL_STATE if it exists with another mode or
                selector, or for an option that cannot be; INVALID_DESTINATION for a drain of a topic, or a temporary
                destination; RESOURCE_ALLOCATION if there are too many; NOT_FOUND if the destination has to exist and
                does not.
        """
        if mode not in ("copy", "outcomes", "drain"):
            raise RequestError(
                f"a tap's mode is 'copy', 'outcomes' or 'drain', not {shown(mode)}", ErrorCode.ILLEGAL_STATE
            )
        start = options.get("start", "latest")
        if start not in ("earliest", "latest"):
            raise RequestError(f"a tap starts 'earliest' or 'latest', not {shown(start)}", ErrorCode.ILLEGAL_STATE)
        terms = terms_of(mode, options)
        if options.get("existing") is True:
            self._require_there(address)
        destination = self._namespace.declare(address)
        found = self._taps.get((destination.label, name))
        if found is not None:
            if found.mode != mode or group_key(found.condition) != group_key(condition):
                raise RequestError(
                    f"tap {name!r} on {destination.label} exists with mode {found.mode!r} and "
                    f"{_shown(found.condition)}; delete it, or take another name",
                    ErrorCode.ILLEGAL_STATE,
                    {"tap": found.id, "mode": found.mode},
                )
            if found.terms != terms:
                found.take_over(found.owner, terms)
            found.origin.used_by(request)
            found.hear(now)
            return found
        if not name or len(name) > MAX_IDENTIFIER_CHARS or not name.isprintable():
            raise RequestError(
                f"a tap's name has 1 to {MAX_IDENTIFIER_CHARS} printable characters, unlike {name[:40]!r}",
                ErrorCode.ILLEGAL_STATE,
            )
        if destination.label.startswith("temporary-"):
            raise RequestError(
                f"{destination.label} is temporary; a tap would outlive it",
                ErrorCode.INVALID_DESTINATION,
                {"destination": destination.label},
            )
        if len(self._taps) >= MAX_TAPS:
            raise RequestError(
                f"namespace {self._namespace.name!r} has {MAX_TAPS} taps, as many as there may be; delete some",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "taps"},
            )
        if condition is not None and mode != "drain":
            self._check_effort(destination, condition)
        tap_id = f"{maker}.{self.made + 1}"
        if mode == "drain" and not isinstance(destination, Queue):
            raise RequestError(
                f"{destination.label} is a topic: it holds no messages to drain; use mode 'copy'",
                ErrorCode.INVALID_DESTINATION,
                {"destination": destination.label},
            )
        stored = mode != "copy" or options.get("stored") is not False
        made = self.make(mode, tap_id, name, destination, condition, terms, now, stored)
        if mode == "copy" and start == "earliest" and isinstance(destination, Queue):
            assert isinstance(made, CopyTap)
            waiting = destination.main.waits(-1, destination.depth)
            made.take_backlog([entry.envelope for entry in waiting], now)
        made.begin_for(request)
        made.take_over(owner, terms)
        return made

    def _check_effort(self, destination: Queue | Topic, condition: Condition) -> None:
        """Raise unless one more selector may be evaluated on each message of a destination."""
        effort = sum([tap.effort for tap in self._taps.values() if tap.destination is destination])
        if effort + units_of(condition.effort, MAX_PROPERTY_CHARS) > MAX_EFFORT:
            raise RequestError(
                f"the selectors of all taps on {destination.label} would take too long for one message; search texts "
                "in fewer of them (LIKE '%x%'), or read without a selector and filter then",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "tap_selectors"},
            )

    def _require_there(self, text: str) -> None:
        address = parse_address(text)
        if not any(self._namespace.find(each) for each in (address, *origins_of(address))):
            raise RequestError(
                f"there is no {address} in namespace {self._namespace.name!r}: it was never used, or its name is "
                "misspelt (names are literal, without patterns)",
                ErrorCode.NOT_FOUND,
                {"destination": str(address)},
            )

    def make(
        self,
        mode: str,
        tap_id: str,
        name: str,
        destination: Queue | Topic,
        condition: Condition | None,
        terms: TapTerms,
        now: int,
        stored: bool = True,
    ) -> CopyTap | DrainTap:
        """Create a tap, or restore a stored one."""
        made: CopyTap | DrainTap
        if mode == "drain":
            assert isinstance(destination, Queue)
            made = DrainTap(self, tap_id, name, destination, condition, terms, now)
        else:
            kind = OutcomeTap if mode == "outcomes" else CopyTap
            made = kind(self, tap_id, name, destination, condition, terms, now, stored)
        self.made += 1
        self._taps[destination.label, name] = made
        return made

    def drop(self, tap: Tap, now: int) -> None:
        """End a tap."""
        if self._taps.get((tap.destination.label, tap.name)) is tap:
            del self._taps[tap.destination.label, tap.name]
            self.missed += tap.missed
            tap.forget()
        tap.close(now)

    def drop_all_on(self, label: str) -> None:
        """A destination is deleted, with its messages."""
        for key in [key for key in self._taps if key[0] == label]:
            tap = self._taps.pop(key)
            self.missed += tap.missed
            tap.forget()
            tap.close(0)


def _shown(condition: Condition | None) -> str:
    return "no selector" if condition is None else f"the selector {condition.text!r:.500}"
