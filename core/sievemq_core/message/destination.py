"""Addresses: the names of queues and topics, as text and as value objects.

    queue:orders   topic:prices   temporary-queue:<connection>.<n>   temporary-topic:<connection>.<n>

A bare name is a queue. Two addresses are equal when kind and name are equal (DST-04).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from unicodedata import category

from sievemq_core.errors import AddressError
from sievemq_core.limits import MAX_DESTINATION_CHARS

#: Categories of Unicode: control, format, surrogate, separators of lines and paragraphs.
_REFUSED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"

#: How other brokers write patterns, several destinations at once, and options behind a name.
_WILDCARD = re.compile(r"\*|(?:^|[./])[#>+](?:$|[./])")
_SEVERAL = re.compile(r"[^\s,],[^\s,]")
_OPTIONS = re.compile(r"\?[A-Za-z][\w.-]*=")

#: What other brokers write before a queue's name, and what to write instead of that.
_PREFIXES = (
    ("/queue/", "queue:"),
    ("/queues/", "queue:"),
    ("/amq/queue/", "queue:"),
    ("//", "queue:"),
    ("/topic/", "topic:"),
)
_EXCHANGES = ("/exchange/", "/exchanges/")
_SUBSCRIPTIONS = "/dsub/"


class Kind(StrEnum):
    """The four kinds of destination; the value is the prefix in text."""

    QUEUE = "queue"
    TOPIC = "topic"
    TEMPORARY_QUEUE = "temporary-queue"
    TEMPORARY_TOPIC = "temporary-topic"

    @property
    def is_topic(self) -> bool:
        """True for a topic, temporary or not."""
        return self is Kind.TOPIC or self is Kind.TEMPORARY_TOPIC

    @property
    def is_temporary(self) -> bool:
        """True for a destination that lives as long as the connection that made it (TMP-05)."""
        return self is Kind.TEMPORARY_QUEUE or self is Kind.TEMPORARY_TOPIC


@dataclass(frozen=True, slots=True)
class Address:
    """The destination of a message: a kind and a name. ``str()`` returns the text that :func:`parse_address` parses."""

    kind: Kind
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    def __hash__(self) -> int:
        return hash(self.name)  # looked up for every message; the kind hardly ever decides

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"

    @property
    def owner(self) -> str | None:
        """Id of the connection that created a temporary destination; None for other destinations."""
        return self.name.rpartition(".")[0] if self.kind.is_temporary else None


def check_name(name: object) -> None:
    """Raise AddressError unless `name` can name a destination.

    Allowed is every non-empty text up to MAX_DESTINATION_CHARS without control and format characters and without white
    space at either end, so that a name survives a log line, a URL and a terminal, and reads as what it is. The two
    joiners are allowed: some scripts need them.
    """
    if not isinstance(name, str):
        raise AddressError(f"a destination's name must be text, not {type(name).__name__}")
    if not name:
        raise AddressError("a destination's name must not be empty")
    if len(name) > MAX_DESTINATION_CHARS:
        raise AddressError(
            f"a destination's name may have {MAX_DESTINATION_CHARS} characters, this one has {len(name)}"
        )
    if name != name.strip():
        raise AddressError(f"the destination name {name!r} begins or ends with white space")
    if not name.isprintable() and any(category(c) in _REFUSED and c not in _JOINERS for c in name):
        raise AddressError(f"the destination name {name!r} contains a control or format character")


@lru_cache(maxsize=4096)  # one lookup per message would otherwise parse the same few texts again and again
def parse_address(text: str) -> Address:
    """Read an address from text.

    Args:
        text: ``kind:name`` or a bare name, which is a queue.

    Raises:
        AddressError: the text is empty, too long, or has characters that a name must not have.
    """
    prefix, colon, name = text.partition(":")
    if colon:
        try:
            return Address(Kind(prefix), name)
        except ValueError:
            pass  # a colon inside a bare name: "urn:x" is a queue of that name
    return Address(Kind.QUEUE, text)


def misspelt_kind(text: str) -> str | None:
    """The error of a destination or pattern whose part before the colon is no kind; None if there is none.

    To the protocol such a text is a bare name, that of a queue. A person who writes ``tpoic:prices`` or
    ``qeue:orders`` hardly means that.

    Args:
        text: as it was written on a command line, in a setting or in a request.
    """
    kind, colon, name = text.partition(":")
    kinds = [of.value for of in Kind]
    if not colon or kind in kinds:
        return None
    near = get_close_matches(kind[:40].lower(), kinds, 1)
    meant = f"did you mean {near[0]}:{name}?" if near else f"there are {', '.join(kinds)}."
    return f"{kind!r} in {text!r} is no kind of destination; {meant} A queue of that name is queue:{text}"


def foreign_notation(address: Address) -> tuple[str, bool] | None:
    """What is wrong with a name that is written as other brokers write patterns, options and addresses, and what to
    write instead. It is a name like any other here, which is hardly meant.

    Returns:
        The text, and whether it is a pattern; None for other names, and for temporary destinations.
    """
    name = address.name
    if address.kind.is_temporary:
        return None
    if name.startswith("/"):
        for prefix, ours in _PREFIXES if address.kind is Kind.QUEUE else ():
            if name.startswith(prefix) and len(name) > len(prefix):
                return f"{address} is a name, prefix and all: write {ours}{name[len(prefix) :]}", False
        if name.startswith(_EXCHANGES):
            text = "there are no exchanges. Send to one topic, and let each consumer select by a property"
            return f"{address} is a name: {text}", False
        if name.startswith(_SUBSCRIPTIONS):
            text = "consume from the topic, as a durable subscription"
            return f"{address} is a name: {text} {name[len(_SUBSCRIPTIONS) :]!r}", False
    options = _OPTIONS.search(name)
    if options is not None:
        plain = name[: options.start()]
        text = f"write {address.kind.value}:{plain}" if plain else "leave them out"
        return f"{address} is a name, and its '?' begins no options: {text}, and set options of the consumer", False
    if _SEVERAL.search(name) is not None:
        return f"{address} is one name. Name each destination on its own, or use one topic", False
    if _WILDCARD.search(name) is not None:
        text = "consumers have no wildcards. Send to one topic, and let each consumer select by a property"
        return f"{address} is a name and no pattern: {text}, such as \"region = 'EU'\"", True
    return None
