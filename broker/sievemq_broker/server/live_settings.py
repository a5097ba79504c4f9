"""Settings that change while the broker runs: rules of destinations, limits of namespaces, users, limits of the broker.

    settings: files, environment, command line ──► Layer.below ─┐
                                                                ├─► Layer.present ──► the broker
    API, command line, console ──► put, remove, reset ──────────┘
                                          └──► journal: kept in the data directory or the store

The latest change wins. A change at run time remembers what the settings said of its entry, and ends once they say
something else: at the next start, when the files are read again, at a takeover.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Generic, TypeVar

from sievemq_broker import logs
from sievemq_broker.config import ConfigError, Loaded, Settings, parse_setting
from sievemq_broker.definitions import parse_hashed_users, user_table
from sievemq_broker.domain.journal import CHANGED, Journal, Key
from sievemq_broker.domain.policy import DestinationPolicy, NamespacePolicy
from sievemq_broker.rules import parse_namespaces, parse_policies, rules_of
from sievemq_broker.users.account import User
from sievemq_broker.users.passwords import is_hash

#: The kind of a stored row with the order of patterns; its name is the kind of these.
_ORDER: Final = "order"

#: Changed patterns: each is compared with each other, and with the address of each new destination. Changed users.
MOST_PATTERNS: Final = 250
MOST_USERS: Final = 2_000

#: Settings with a single value that can be changed at run time.
VALUES: Final = ("max_connections", "max_memory_bytes")

#: Characters of the name of a changed entry: a longer pattern takes long to compile, and fits no address.
MOST_CHARACTERS: Final = 1_000

T = TypeVar("T")

log = logs.get("server")


class RefusedError(Exception):
    """A change that cannot be made at run time; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of such a setting.

    Attributes:
        value: as the settings have it; None for `auto`.
    """

    value: Any

    @property
    def shown(self) -> Any:
        """As it is written in a file."""
        return "auto" if self.value is None else self.value


def values_of(settings: Settings) -> dict[str, Value]:
    """The values of :data:`VALUES` in these settings."""
    return {name: Value(getattr(settings, name)) for name in VALUES}


def parse_values(tables: Mapping[str, Any]) -> dict[str, Value]:
    """Parse tables that have the member `value`, by name.

    Raises:
        ValueError: one cannot be used.
    """
    try:
        return {name: Value(parse_setting(name, table["value"], "run time")) for name, table in tables.items()}
    except ConfigError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """A change at run time of one entry.

    Attributes:
        value: of the entry; None if it was removed.
        below: digest of what the settings said of it; empty for nothing.
        number: ascends with the time at which entries were first changed.
        at: ms epoch of the change.
        by: name of the user; None for an anonymous one.
    """

    value: T | None
    below: str
    number: int
    at: int
    by: str | None


class Layer(Generic[T]):
    """Entries by name: what the settings say, with the changes at run time on top.

    Args:
        kind: of an entry: `rule`, `limit`, `user` or `setting`.
        below: what the settings say, in order.
        table: the table that makes an entry, as a file has it.
        parse: makes entries of such tables; raises ValueError.
        most: changes that may be there.

    Attributes:
        kind, below, table, parse: as above.
        changes: by name.
        order: of names, changed at run time; `below` has those of the settings then. None if it was not.
        present: what applies, in order.
    """

    def __init__(
        self,
        kind: str,
        below: Mapping[str, T],
        table: Callable[[T], dict[str, Any]],
        parse: Callable[[Any], Mapping[str, T]],
        most: int = MOST_PATTERNS,
    ) -> None:
        self.kind = kind
        self.below = below
        self.table = table
        self.parse = parse
        self._most = most
        self.changes: dict[str, Changed[T]] = {}
        self.order: Changed[tuple[str, ...]] | None = None
        self.present: Mapping[str, T] = below
        #: The greatest number of a change.
        self._last = 0
        self._journal: Journal | None = None
        self._report: Callable[..., object] = lambda **about: None
        self._key = secrets.token_bytes(16)
        #: Keys of changes that have ended, and are still stored.
        self._ended: list[tuple[str, str]] = []

    def etag(self, name: str) -> str:
        """Changes when the entry does; empty if there is none."""
        value = self.present.get(name)
        if value is None:
            return ""
        return f'"{hmac.new(self._key, self._text(value).encode("utf-8", "surrogatepass"), "sha256").hexdigest()[:16]}"'

    def check(self, name: str, others: int = 0) -> None:
        """Raise unless an entry may be changed.

        Args:
            others: so many others will be changed for the first time before it.

        Raises:
            RefusedError: there are too many changes; its name is too long; or the settings have the user's password in
                clear.
        """
        if len(name) > MOST_CHARACTERS:
            raise RefusedError(f"a pattern may have {MOST_CHARACTERS} characters, and this one has {len(name)}")
        if name not in self.changes and len(self.changes) + others >= self._most:
            raise RefusedError(
                f"no more than {self._most} {self.kind}s may be changed at run time; put some into the configuration, "
                "or reset them"
            )
        below = self.below.get(name)
        if isinstance(below, User) and not is_hash(below.secret):
            raise RefusedError(
                f"the password of user {name!r} is in clear in the configuration, so the user is changed there; "
                "`sievemq user hash` prints a hash"
            )

    def put(self, name: str, value: T | None, by: str | None, now: int) -> None:
        """Change an entry. Arguments as of :meth:`put_each`.

        Raises:
            RefusedError: as :meth:`check`.
        """
        for error in self.put_each({name: value}, by, now).values():
            raise error

    def put_each(self, values: Mapping[str, T | None], by: str | None, now: int) -> dict[str, RefusedError]:
        """Change several entries.

        Args:
            values: the new ones by name; None removes one.
            by: name of the user who does it.
            now: ms epoch.

        Returns:
            Those that are refused, and why, as :meth:`check`.
        """
        refused: dict[str, RefusedError] = {}
        for name, value in values.items():
            try:
                self.check(name)
            except RefusedError as error:
                refused[name] = error
                continue
            old, below = self.changes.get(name), self.below.get(name)
            if value is None and below is None:
                self._forget(name)
            else:
                number = self._last + 1 if old is None else old.number
                self._set(name, Changed(value, self._digest(below), number, now, by))
        self._merge()  # once: it compares each pattern with each other
        for name, value in values.items():
            if name not in refused:
                self._note(name, "removed" if value is None else "set", by)
        return refused

    def reset(self, name: str, by: str | None) -> None:
        """Take the change of an entry back: what the settings say applies again."""
        if name in self.changes:
            self._forget(name)
            self._merge()
            self._note(name, "reset", by)

    def arrange(self, names: Sequence[str], by: str | None, now: int) -> None:
        """Put all entries in an order.

        Args:
            names: of all of them; none: in the order of the settings again.
            by: name of the user who does it.
            now: ms epoch.

        Raises:
            RefusedError: these are not the names of all entries.
        """
        if names and sorted(names) != sorted(self.present):
            raise RefusedError(f"these are not all {self.kind}s that there are, each once; read them again")
        self._set_order(Changed(tuple(names), json.dumps([*self.below]), 0, now, by) if names else None)
        self._merge()
        self._note("their order", "set" if names else "reset", by)

    def rebase(self, below: Mapping[str, T]) -> None:
        """The settings say this now. What they have changed applies, whatever was changed at run time before."""
        self.below = below
        for name, change in tuple(self.changes.items()):
            if self._digest(below.get(name)) != change.below:
                self._forget(name)
                log.warning("setting.changed_below", kind=self.kind, name=name, note="the change at run time has ended")
        if self.order is not None:
            known = json.loads(self.order.below)
            if [name for name in below if name in known] != [name for name in known if name in below]:
                self._set_order(None)
                log.warning(
                    "setting.changed_below", kind=_ORDER, name=self.kind, note="the order at run time has ended"
                )
        self._merge()

    def report_to(self, report: Callable[..., object]) -> None:
        """Call this with the kind of each entry that is changed at run time, and with the pattern of a rule or limit:
        everybody who may see anything reads it."""
        self._report = report

    # -- what is kept ---------------------------------------------------------------------------------------------

    def restore(self, rows: Mapping[Key, tuple[Any, ...]]) -> None:
        """Take up the changes that were stored, as far as the settings say what they said then.

        Args:
            rows: of all layers, by kind and name.
        """
        for (kind, name), (number, at, by, below, text, *_) in rows.items():
            name = str(name)
            if (kind, name) == (_ORDER, self.kind):
                self.order = Changed(tuple(json.loads(text)), below, number, at, by)
            if kind != self.kind:
                continue
            try:
                value = None if text is None else self.parse({name: json.loads(text)})[name]
            except (ValueError, KeyError) as error:
                log.warning("setting.not_restored", kind=self.kind, name=name, reason=str(error))
                continue
            self.changes[name] = Changed(value, below, number, at, by)
            self._last = max(self._last, number)
        self.rebase(self.below)

    def keep_in(self, journal: Journal) -> None:
        """Store changes from now on."""
        self._journal = journal
        for key in self._ended:
            journal.define(CHANGED, key, None)
        self._ended.clear()

    @property
    def is_kept(self) -> bool:
        """Changes survive a restart."""
        return self._journal is not None

    def _set(self, name: str, change: Changed[T]) -> None:
        self.changes[name] = change
        self._last = max(self._last, change.number)
        self._keep((self.kind, name), change, None if change.value is None else self._text(change.value))

    def _forget(self, name: str) -> None:
        if self.changes.pop(name, None) is not None:
            self._keep((self.kind, name), None)

    def _set_order(self, order: Changed[tuple[str, ...]] | None) -> None:
        self.order = order
        self._keep((_ORDER, self.kind), order, None if order is None else json.dumps(order.value))

    def _keep(self, key: tuple[str, str], change: Changed[Any] | None, text: str | None = None) -> None:
        """Store a change, or that it has ended."""
        row = None if change is None else (change.number, change.at, change.by, change.below, text)
        if self._journal is not None:
            self._journal.define(CHANGED, key, row)
        elif row is None:
            self._ended.append(key)

    # -- together -------------------------------------------------------------------------------------------------

    def _merge(self) -> None:
        """What was put in order, or else what the settings have, keeps its place. Others stand before the first entry
        that covers them, which would hide them, else last."""
        added = sorted((change.number, name) for name, change in self.changes.items() if name not in self.below)
        values: dict[str, T | None] = {**self.below, **dict.fromkeys(name for _, name in added)}
        values.update({name: change.value for name, change in self.changes.items()})
        ordered = self.below if self.order is None else self.order.value or ()
        found = [(name, value) for name in ordered if (value := values.pop(name, None)) is not None]
        for name, new in values.items():
            if new is not None:
                # Which of two users comes first means nothing.
                hides = enumerate(found) if self.kind != "user" else ()
                place = next((place for place, (other, _) in hides if fnmatchcase(name, other)), len(found))
                found.insert(place, (name, new))
        self.present = dict(found)

    def _text(self, value: T) -> str:
        return json.dumps(self.table(value), sort_keys=True)

    def _digest(self, value: T | None) -> str:
        return "" if value is None else hashlib.sha256(self._text(value).encode("utf-8", "surrogatepass")).hexdigest()

    def _note(self, name: str, action: str, by: str | None) -> None:
        log.info("setting.changed", kind=self.kind, name=name, action=action, by=by, kept=self.is_kept)
        self._report(kind=self.kind, name=None if self.kind == "user" else name)


class LiveSettings:
    """The settings of one broker that change at run time.

    Attributes:
        rules: of destinations, by pattern.
        limits: of namespaces, by pattern.
        users: by name; what is below comes from the settings, or from the users file.
        values: of settings of one value, by name.
        reread: reads the settings again; None if a program gave them.
    """

    def __init__(self, settings: Settings) -> None:
        self.rules: Layer[DestinationPolicy] = Layer("rule", settings.destinations, rules_of, parse_policies)
        self.limits: Layer[NamespacePolicy] = Layer("limit", settings.namespaces, rules_of, parse_namespaces)
        self.users: Layer[User] = Layer("user", settings.users, user_table, parse_hashed_users, MOST_USERS)
        self.values: Layer[Value] = Layer(
            "setting", values_of(settings), lambda value: {"value": value.shown}, parse_values
        )
        self.reread: Callable[[], Loaded] | None = None

    def reread_with(self, reread: Callable[[], Loaded] | None) -> None:
        """Have :attr:`reread`: the settings come from files and the environment."""
        self.reread = reread

    @property
    def layers(self) -> tuple[Layer[Any], ...]:
        return self.rules, self.limits, self.users, self.values

    @property
    def max_connections(self) -> int:
        """Connections that the broker accepts at a time."""
        return int(self.values.present["max_connections"].value)

    @property
    def max_memory_bytes(self) -> int | None:
        """Bytes that all messages may take; None for a share of the machine's memory, 0 for no limit."""
        limit: int | None = self.values.present["max_memory_bytes"].value
        return limit

    def report_to(self, report: Callable[..., object]) -> None:
        """See :meth:`Layer.report_to`."""
        for layer in self.layers:
            layer.report_to(report)

    def restore(self, rows: Mapping[Key, tuple[Any, ...]]) -> None:
        """See :meth:`Layer.restore`."""
        for layer in self.layers:
            layer.restore(rows)

    def keep_in(self, journal: Journal) -> None:
        """See :meth:`Layer.keep_in`."""
        for layer in self.layers:
            layer.keep_in(journal)


def table_differences(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two tables of rules, limits or users; nothing for their order."""
    for name, value in wanted.items():
        if name not in there:
            yield f"{name} is new"
        elif text := difference(there[name], value):
            yield f"{name}: {text}"
    yield from (f"{name} is gone" for name in there if name not in wanted)


def difference(there: Any, wanted: Any) -> str:
    """What differs of a rule, a limit, a user or a setting; empty for nothing."""
    if isinstance(wanted, Value):
        return "" if there == wanted else f"{there.shown} becomes {wanted.shown}"
    if isinstance(wanted, User):
        parts = [what for what, name in (("password", "secret"), ("rights", "rights"))
                 if getattr(there, name) != getattr(wanted, name)]  # fmt: skip
        return ", ".join(parts)
    names = {**rules_of(there), **rules_of(wanted)}
    pairs = ((name, getattr(there, name), getattr(wanted, name)) for name in names)
    return ", ".join(f"{name} {old} becomes {new}" for name, old, new in pairs if old != new)
