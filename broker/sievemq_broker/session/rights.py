"""Rights: a verb on destinations that match a pattern, in namespaces that match a pattern.

    Grant(may={send, consume}, destination="queue:orders.*", namespace="default")

A user may do what one of its grants says, and nothing else; there is no "deny", so the order of grants means nothing.
A user with any right on a destination may also view it. In patterns ``*`` matches any text and nothing else is
special. Asking for ``"*"`` asks for every destination (or namespace): only a pattern that fits everything grants that.

Pure: no clock, no I/O. The session layer checks every command of a limited user (`session/table.py`), the management
API for every request (`server/http/access.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from sievemq_core.errors import AddressError, ErrorCode, RequestError
from sievemq_core.message.destination import Kind, misspelt_kind, parse_address

#: In the place of a destination or namespace: all of them.
EVERYTHING = "*"

_WITH = {"send": "send to", "consume": "consume from"}  # as people write it
_KINDS = tuple(f"{kind.value}:" for kind in Kind)
_TEMPORARY = tuple(f"{kind.value}:" for kind in Kind if kind.is_temporary)


class Verb(StrEnum):
    """An action on a destination."""

    SEND = "send"
    """Send to it, declare it."""
    CONSUME = "consume"
    """Receive from it; for a topic also subscribe and unsubscribe."""
    BROWSE = "browse"
    """See its messages without taking them."""
    MANAGE = "manage"
    """Create, delete, pause it; move, copy, purge, retry, cancel its messages; close its consumers."""
    VIEW = "view"
    """See that it exists, with its figures and consumers, but not its messages."""


@dataclass(frozen=True)
class Grant:
    """One line of a user's rights.

    Args:
        may: the verbs.
        destination: pattern over the destination's text. Without ``queue:`` or the like it is one of queues.
        namespace: pattern over the namespace's name.

    Raises:
        ValueError: no verb, or a pattern that is empty, not printable, or begins with a misspelt kind.
    """

    may: frozenset[Verb]
    destination: str = EVERYTHING
    namespace: str = "default"

    def __post_init__(self) -> None:
        if not self.may:
            raise ValueError(f"a grant names at least one of {', '.join(Verb)}")
        for what, pattern in (("destination", self.destination), ("namespace", self.namespace)):
            if not pattern or not pattern.isprintable():
                raise ValueError(f"the {what} of a grant is a pattern of printable characters, not {pattern!r}")
        misspelt = misspelt_kind(self.destination)
        if misspelt is not None:
            raise ValueError(misspelt)
        if self.destination.strip("*") and not self.destination.startswith(_KINDS):
            object.__setattr__(self, "destination", f"queue:{self.destination}")

    @cached_property
    def _destinations(self) -> re.Pattern[str]:
        return _compile(self.destination)

    @cached_property
    def _namespaces(self) -> re.Pattern[str]:
        return _compile(self.namespace)

    def covers_namespace(self, namespace: str) -> bool:
        """True if it applies to this namespace."""
        return self._namespaces.fullmatch(namespace) is not None

    def covers(self, namespace: str, address: str) -> bool:
        """True if it applies to this destination (canonical text)."""
        return self.covers_namespace(namespace) and self._destinations.fullmatch(address) is not None


class Rights:
    """All rights of one user.

    Args:
        grants: any of them is enough.
    """

    __slots__ = ("grants",)

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.grants: Collection[Grant] = tuple(grants)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rights) and set(self.grants) == set(other.grants)

    def __hash__(self) -> int:
        return hash(frozenset(self.grants))

    def __repr__(self) -> str:
        return f"Rights({list(self.grants)!r})"

    @property
    def unlimited(self) -> bool:
        """True if there are no limits to check."""
        return any(
            set(Verb) <= grant.may and grant.destination == EVERYTHING == grant.namespace for grant in self.grants
        )

    def may(self, verb: Verb, namespace: str, address: str) -> bool:
        """True if it is allowed.

        Args:
            verb: what.
            namespace: its name; empty for the default one; "*" for every one.
            address: a destination in any form that an address may have; "*" for every one.
        """
        namespace = namespace or "default"
        if address != EVERYTHING:
            try:
                address = str(parse_address(address))
            except AddressError:
                return False
            if verb is Verb.SEND and address.startswith(_TEMPORARY):
                return self.enters(namespace)  # a reply: its name came with the request (TMP-04)
        return any(
            (verb in grant.may or verb is Verb.VIEW) and grant.covers(namespace, address) for grant in self.grants
        )

    def enters(self, namespace: str) -> bool:
        """True if there is any right in this namespace."""
        return any(grant.covers_namespace(namespace or "default") for grant in self.grants)


#: The rights of every user if security is off, and of users without limits.
ALL_RIGHTS = Rights([Grant(frozenset(Verb), EVERYTHING, EVERYTHING)])


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of a connection, as found by :meth:`Services.authenticate`, and their rights.

    Args:
        user: the user name; None for anonymous.
        rights: everything, unless said otherwise. Two identities with the same user are equal.
    """

    user: str | None = None
    rights: Rights = field(default=ALL_RIGHTS, compare=False)

    def may(self, verb: Verb | str, namespace: str, address: str) -> bool:
        """True if this user may do it; see :meth:`Rights.may`."""
        return self.rights.may(Verb(verb), namespace, address)

    def verbs(self, namespace: str, address: str) -> list[Verb]:
        """What this user may do with a destination; with all of a namespace, for "*"."""
        return [verb for verb in Verb if self.may(verb, namespace, address)]

    def require(self, verb: Verb | str, namespace: str, address: str) -> None:
        """Raise unless this user may do it.

        Raises:
            RequestError: SECURITY, naming user, action and destination. The client raises JMSSecurityException.
        """
        verb = Verb(verb)
        if not self.rights.may(verb, namespace, address):
            raise forbidden(self, verb, namespace, address)


def forbidden(identity: Identity, verb: Verb, namespace: str, address: str) -> RequestError:
    """The error for a missing right."""
    namespace = namespace or "default"
    where = "all destinations" if address == EVERYTHING else address
    in_which = "in any namespace" if namespace == EVERYTHING else f"in namespace {namespace!r}"
    return RequestError(
        f"user {identity.user!r} must not {_WITH.get(verb, verb.value)} {where} {in_which}; "
        "an administrator can grant it",
        ErrorCode.SECURITY,
        {"user": identity.user, "verb": verb.value, "destination": address, "namespace": namespace},
    )


def _compile(pattern: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, re.split(r"\*+", pattern))
    if not rest:
        return re.compile(first)
    # Atomic groups: each part is searched once, from left to right. Without them a name that another user chose could
    # make a pattern with many stars backtrack for hours.
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)
