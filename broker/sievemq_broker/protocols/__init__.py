"""Bytes to verbs and back, one package for each protocol. Sans-IO.

A protocol is a :class:`~sievemq_broker.protocols.base.BaseConnection`, which is all that `server/net/link.py` knows of
it. It turns its frames into commands (``session/verbs.py``) for the table that it is given, and writes deliveries and
answers out its own way, as an :class:`~sievemq_broker.protocols.base.Outlet`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["PROTOCOLS", "Spoken"]


class Spoken(NamedTuple):
    """A protocol that clients can speak.

    Attributes:
        scheme: of its URLs; over TLS with an ``s`` behind it.
        first_bytes: the four bytes with which a client begins; none for the protocol that is assumed otherwise.
    """

    scheme: str
    first_bytes: frozenset[bytes] = frozenset()


#: By their names in settings, SieveMQ's own first.
PROTOCOLS: Final[Mapping[str, Spoken]] = {
    "sieve": Spoken("sievemq"),
    "amqp": Spoken("amqp", frozenset({b"AMQP"})),
    "stomp": Spoken("stomp", frozenset({b"CONN", b"STOM"})),
}
