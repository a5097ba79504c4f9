"""Definitions: what is to exist on a broker, as one table.

    [namespaces.default]
    queues = ["orders", "invoices"]
    topics = ["prices"]

    [[namespaces.default.subscriptions]]
    name = "audit"
    topic = "prices"
    selector = "region = 'EU'"

    [rules."queue:orders.*"]
    max_attempts = 3

    [limits."team-*"]
    max_messages = 100000

    [users.orders]
    password = "$argon2id$…"
    rights = [{ may = ["send"], destination = "queue:orders" }]

`rules`, `limits` and `users` are the settings `destinations`, `namespaces` and `users`. This module reads and writes
the table; `server/definitions.py` compares it with a broker and makes what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sievemq_broker.domain.policy import DestinationPolicy, NamespacePolicy
from sievemq_broker.rules import guess, parse_namespaces, parse_policies, rules_of
from sievemq_broker.session.checks import check_identifier
from sievemq_broker.session.rights import ALL_RIGHTS, Verb
from sievemq_broker.users.account import User
from sievemq_broker.users.file import parse_users
from sievemq_broker.users.passwords import check_hash, is_hash
from sievemq_core.errors import SieveError
from sievemq_core.message.destination import Kind, misspelt_kind, parse_address
from sievemq_core.selector import CompiledSelector, compile_selector
from sievemq_core.selector.dialect import DIALECTS
from sievemq_core.toml import parse_toml

_TABLES: Final = ("namespaces", "rules", "limits", "users")
_OF_NAMESPACE: Final = ("queues", "topics", "subscriptions")
_OF_SUBSCRIPTION: Final = ("name", "topic", "client_id", "selector", "dialect", "shared", "no_local")


@dataclass(frozen=True, slots=True)
class SubscriptionDefinition:
    """A durable subscription that is to exist.

    Attributes:
        name: with the client id its identity.
        topic: address.
        client_id: None for none; then it is shared.
        selector: None for none.
        dialect: of the selector; None for the broker's.
        shared: several consumers may share it.
        no_local: it gets nothing that connections with its client id publish.
        place: where it is defined, for errors.
    """

    name: str
    topic: str
    client_id: str | None = None
    selector: str | None = None
    dialect: str | None = None
    shared: bool = True
    no_local: bool = False
    place: str = field(default="", compare=False)

    def compile(self, dialect: str) -> CompiledSelector | None:
        """Its selector.

        Args:
            dialect: of a selector that names none.

        Raises:
            ValueError: it is not valid.
        """
        if self.selector is None:
            return None
        try:
            return compile_selector(self.selector, self.dialect or dialect)
        except SieveError as error:
            raise ValueError(f"{self.place}: selector: {error.text}") from None

    def table(self) -> dict[str, Any]:
        """The table that makes it."""
        given: dict[str, Any] = {"name": self.name, "topic": _short(self.topic, Kind.TOPIC)}
        for name in ("client_id", "selector", "dialect"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        if self.client_id is not None and self.shared:
            given["shared"] = True
        if self.no_local:
            given["no_local"] = True
        return given


@dataclass(frozen=True, slots=True)
class NamespaceDefinition:
    """What is to exist in a namespace.

    Attributes:
        queues, topics: addresses; topics of the subscriptions included.
    """

    queues: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    subscriptions: tuple[SubscriptionDefinition, ...] = ()

    def table(self) -> dict[str, Any]:
        """The table that makes it, sorted."""
        subscriptions = sorted(self.subscriptions, key=lambda each: (each.client_id or "", each.name))
        given = {
            "queues": [_short(address, Kind.QUEUE) for address in sorted(self.queues)],
            "topics": [_short(address, Kind.TOPIC) for address in sorted(self.topics)],
            "subscriptions": [each.table() for each in subscriptions],
        }
        return {name: each for name, each in given.items() if each}


@dataclass(frozen=True, slots=True)
class Definitions:
    """Definitions that were read.

    Attributes:
        namespaces: by name.
        rules, limits, users: None if there is no such table.
        origin: where they were read, for errors.
    """

    namespaces: Mapping[str, NamespaceDefinition]
    rules: Mapping[str, DestinationPolicy] | None = None
    limits: Mapping[str, NamespacePolicy] | None = None
    users: Mapping[str, User] | None = None
    origin: str = "definitions"

    @property
    def settings(self) -> dict[str, Mapping[str, Any] | None]:
        """Tables that are settings, by the names of these."""
        return {"destinations": self.rules, "namespaces": self.limits, "users": self.users}

    def compile(self, dialect: str) -> None:
        """Check all selectors.

        Args:
            dialect: of those that name none.

        Raises:
            ValueError: one is not valid.
        """
        for namespace in self.namespaces.values():
            for subscription in namespace.subscriptions:
                subscription.compile(dialect)

    def table(self) -> dict[str, Any]:
        """The table that makes them; what is empty is left out."""
        tables: dict[str, Any] = {"namespaces": {name: each.table() for name, each in self.namespaces.items()}}
        for name, policies in (("rules", self.rules), ("limits", self.limits)):
            tables[name] = {pattern: rules_of(policy) for pattern, policy in (policies or {}).items()}
        tables["users"] = {name: user_table(user) for name, user in (self.users or {}).items()}
        return {name: each for name, each in tables.items() if each}


def definitions_of(value: object) -> Definitions | None:
    """Definitions from a setting.

    Args:
        value: the path of a TOML file, or the table.

    Raises:
        ValueError: it names the file, the table and the key, and what to write.
    """
    if isinstance(value, Mapping):
        return parse_definitions(value)
    if value is None or value == "":
        return None
    if not isinstance(value, str | PathLike):
        raise ValueError("must be the path of a TOML file")  # noqa: TRY004
    return read_definitions(Path(value))


def read_definitions(path: Path) -> Definitions:
    """Definitions from a TOML file.

    Raises:
        ValueError: as :func:`definitions_of`.
    """
    try:
        table = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: it cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: it is not TOML: {error}") from None
    return parse_definitions(table, str(path))


def parse_definitions(table: Mapping[str, Any], origin: str = "definitions") -> Definitions:
    """Definitions from a table.

    Raises:
        ValueError: as :func:`definitions_of`.
    """
    _check_keys(table, _TABLES, origin)
    rules, limits, users = map(table.get, ("rules", "limits", "users"))
    parsed: dict[str, Any] = {}
    for name, given, parse in (
        ("rules", rules, parse_policies),
        ("limits", limits, parse_namespaces),
        ("users", users, parse_hashed_users),
    ):
        try:
            parsed[name] = None if given is None else parse(_table(given))
        except ValueError as error:
            raise ValueError(f"{origin}: [{name}]: {error}") from None
    place = f"{origin}: [namespaces]"
    spaces = _table(table.get("namespaces", {}), place)
    namespaces = {str(name): _namespace(str(name), space, f"{origin}: ") for name, space in spaces.items()}
    return Definitions(namespaces, **parsed, origin=origin)


def _table(value: object, place: str = "") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{place}: must be a table" if place else "must be a table")  # noqa: TRY004
    return value


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for name in table:
        if name not in known:
            hint = guess(str(name), list(known)) or f"; there are {', '.join(known)}"
            raise ValueError(f"{place}: {str(name)!r:.60} is not known here{hint}")


def parse_hashed_users(table: Mapping[str, Any]) -> dict[str, User]:
    """Users whose passwords are hashes.

    Raises:
        ValueError: it names the user and what is wrong.
    """
    users = parse_users(table)
    for name, user in users.items():
        if not is_hash(user.secret):
            raise ValueError(f"the password of user {name!r} must be a hash; `sievemq user hash` prints one")
        check_hash(name, user.secret)
    return users


def user_table(user: User) -> dict[str, Any]:
    """The table that makes a user."""
    table: dict[str, Any] = {"password": user.secret}
    if user.rights != ALL_RIGHTS:
        table["rights"] = [
            {
                "may": [verb.value for verb in Verb if verb in grant.may],
                "destination": grant.destination,
                "namespace": grant.namespace,
            }
            for grant in user.rights.grants
        ]
    return table


def _namespace(name: str, table: object, origin: str) -> NamespaceDefinition:
    place = f"{origin}[namespaces.{name}]"
    _check_name("the name of a namespace", name, place)
    given = _table(table, place)
    _check_keys(given, _OF_NAMESPACE, place)
    queues, topics = (
        [_address(text, kind, f"{place}: {key}") for text in _list(given.get(key, []), f"{place}: {key}")]
        for key, kind in (("queues", Kind.QUEUE), ("topics", Kind.TOPIC))
    )
    found: dict[tuple[str | None, str], SubscriptionDefinition] = {}
    subscriptions = _list(given.get("subscriptions", []), f"{place}: subscriptions")
    for number, each in enumerate(subscriptions, 1):
        made = _subscription(each, f"{place}: subscriptions: {number}")
        if found.setdefault((made.client_id, made.name), made) is not made:
            whose = "" if made.client_id is None else f" of client id {made.client_id!r}"
            raise ValueError(f"{place}: subscriptions: {made.name!r}{whose} is defined twice")
        topics.append(made.topic)
    return NamespaceDefinition(tuple(dict.fromkeys(queues)), tuple(dict.fromkeys(topics)), tuple(found.values()))


def _list(value: object, place: str) -> Iterable[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{place}: must be a list")  # noqa: TRY004
    return value


def _check_name(what: str, text: object, place: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{place}: {what} must be text, not {text!r:.60}")  # noqa: TRY004
    try:
        check_identifier(what, text)
    except SieveError as error:
        raise ValueError(f"{place}: {error.text}") from None


def _address(text: object, kind: Kind, place: str) -> str:
    """The address of a destination of this kind, by that or by its name."""
    if not isinstance(text, str):
        raise ValueError(f"{place}: a name must be text, not {text!r:.60}")  # noqa: TRY004
    misspelt = misspelt_kind(text)
    if misspelt is not None:
        raise ValueError(f"{place}: {misspelt}")
    try:
        address = parse_address(text if ":" in text else f"{kind.value}:{text}")
    except SieveError as error:
        raise ValueError(f"{place}: {error.text}") from None
    if address.kind is not kind:
        raise ValueError(f"{place}: {text!r:.100} is no {kind.value}")
    return str(address)


def _short(address: str, kind: Kind) -> str:
    """An address as :func:`_address` reads it: the name alone, unless that has a colon."""
    name = address.removeprefix(f"{kind.value}:")
    return address if ":" in name else name


def _subscription(table: object, place: str) -> SubscriptionDefinition:
    given = _table(table, place)
    _check_keys(given, _OF_SUBSCRIPTION, place)
    for key in ("name", "topic"):
        if key not in given:
            raise ValueError(f"{place}: it needs {key}")
    name: Any = given["name"]
    client_id, selector, dialect = map(given.get, ("client_id", "selector", "dialect"))
    _check_name("the name of a subscription", name, place)
    place = f"{place} ({name})"
    topic = _address(given["topic"], Kind.TOPIC, f"{place}: topic")
    if client_id is not None:
        _check_name("client_id", client_id, place)
    if selector is not None and not isinstance(selector, str):
        raise ValueError(f"{place}: selector must be text, not {selector!r:.60}")
    if dialect is not None and (not isinstance(dialect, str) or dialect not in DIALECTS):
        raise ValueError(f"{place}: dialect must be one of {', '.join(DIALECTS)}, not {dialect!r:.60}")
    flags = {"shared": given.get("shared", client_id is None), "no_local": given.get("no_local", False)}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{place}: {key} must be true or false, not {value!r:.60}")  # noqa: TRY004
    if client_id is None and not flags["shared"]:
        raise ValueError(f"{place}: a subscription that is not shared needs client_id")
    if flags["shared"] and flags["no_local"]:
        raise ValueError(f"{place}: a shared subscription has no no_local")
    empty = selector is not None and not selector.strip()
    return SubscriptionDefinition(
        name, topic, client_id, None if empty else selector, dialect, flags["shared"], flags["no_local"], place
    )
