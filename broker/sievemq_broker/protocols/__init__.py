"""Bytes to verbs and back, one package for each protocol. Sans-IO.

A protocol is a :class:`~sievemq_broker.protocols.base.BaseConnection`, which is all that `server/net/link.py` knows of
it. It turns its frames into commands (``session/verbs.py``) for the table that it is given, and writes deliveries and
answers out its own way, as an :class:`~sievemq_broker.protocols.base.Outlet`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["PROTOCOLS", "Spoken"]

Classes: TypeAlias = tuple[type[Any], type[Any]]


class Spoken(NamedTuple):
    """A protocol that clients can speak.

    Attributes:
        scheme: of its URLs; over TLS with an ``s`` behind it.
        classes: finds the classes of its connections and of their outboxes, imported with the first connection.
        begins: matches the first four bytes of a client; None for the protocol that is assumed otherwise.
    """

    scheme: str
    classes: Callable[[], Classes]
    begins: re.Pattern[bytes] | None = None


def _sieve() -> Classes:
    from sievemq_broker.protocols.sieve.connection import SieveConnection, SieveOutbox

    return SieveConnection, SieveOutbox


def _amqp() -> Classes:
    from sievemq_broker.protocols.amqp.connection import AmqpConnection
    from sievemq_broker.protocols.amqp.outbox import AmqpOutbox

    return AmqpConnection, AmqpOutbox


def _stomp() -> Classes:
    from sievemq_broker.protocols.stomp.connection import StompConnection
    from sievemq_broker.protocols.stomp.outbox import StompOutbox

    return StompConnection, StompOutbox


#: By their names in settings, SieveMQ's own first.
PROTOCOLS: Final[Mapping[str, Spoken]] = {
    "sieve": Spoken("sievemq", _sieve),
    "amqp": Spoken("amqp", _amqp, re.compile(rb"AMQP")),
    "stomp": Spoken("stomp", _stomp, re.compile(rb"CONN|STOM")),
}
