"""Bytes to verbs and back, one package for each protocol. Sans-IO.

A protocol is a :class:`~sievemq_broker.protocols.base.BaseConnection`, which is all that `server/net/link.py` knows of
it. It turns its frames into commands (``session/verbs.py``) for the table that it is given, and writes deliveries and
answers out its own way, as an :class:`~sievemq_broker.protocols.base.Outlet`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["PROTOCOLS", "Spoken"]


class Spoken(NamedTuple):
    """A protocol that clients can speak.

    Attributes:
        scheme: of its URLs; over TLS with an ``s`` behind it.
        connection: finds the class of its connections, which is imported with the first of them.
        first_bytes: the four bytes with which a client begins; none for the protocol that is assumed otherwise.
    """

    scheme: str
    connection: Callable[[], Callable[..., Any]]
    first_bytes: frozenset[bytes] = frozenset()


def _sieve() -> Callable[..., Any]:
    from sievemq_broker.protocols.sieve import SieveConnection

    return SieveConnection


def _amqp() -> Callable[..., Any]:
    from sievemq_broker.protocols.amqp import AmqpConnection

    return AmqpConnection


def _stomp() -> Callable[..., Any]:
    from sievemq_broker.protocols.stomp import StompConnection

    return StompConnection


#: By their names in settings, SieveMQ's own first.
PROTOCOLS: Final[Mapping[str, Spoken]] = {
    "sieve": Spoken("sievemq", _sieve),
    "amqp": Spoken("amqp", _amqp, frozenset({b"AMQP"})),
    "stomp": Spoken("stomp", _stomp, frozenset({b"CONN", b"STOM"})),
}
