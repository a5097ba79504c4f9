"""What the broker does for the commands about destinations; one function each, as in commands.py."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Final

from sievemq_broker.session.checks import check_unread, the_selector
from sievemq_broker.session.page import pack_page
from sievemq_broker.session.rights import Verb
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.destination import Kind, parse_address
from sievemq_core.wire.codec import CommandTuple

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["on_browse", "on_create_temporary", "on_declare", "on_delete_temporary", "on_unsubscribe"]

_QUEUE: Final = f"{Kind.QUEUE.value}:"

#: Of the destinations of a namespace, those whose length is looked at, those whose name is compared, and by how many
#: characters a name may be longer or shorter: some 2 ms.
_LOOKED_AT: Final = 5_000
_COMPARED: Final = 100
_LENGTHS: Final = 2


def on_declare(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Can this be sent to? (SES-18)"""
    _, request, destination = command
    connection.namespace.declare(destination)
    connection.answer(request)


def on_create_temporary(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Make a temporary destination of this connection (TMP-01, TMP-05)."""
    _, request, topic, again = command
    limit = connection.settings.max_temporaries
    if connection.temporaries >= limit:
        raise RequestError(
            f"a connection may have {limit} temporary destinations; delete those that are done",
            ErrorCode.RESOURCE_ALLOCATION,
        )
    address = connection.namespace.temporaries.create(connection.id, topic, again)
    connection.temporaries = connection.namespace.temporaries.count(connection.id)
    connection.answer(request, str(address))


def on_delete_temporary(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Delete a temporary destination of this connection (TMP-07)."""
    _, request, destination = command
    connection.namespace.temporaries.delete(destination, connection.id)
    connection.temporaries -= 1
    connection.answer(request)


def on_unsubscribe(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Delete a durable subscription (SES-27)."""
    _, request, name = command
    connection.namespace.unsubscribe(connection.client_id, name)
    connection.answer(request)


def on_browse(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """A page of a queue (BRW-03); with a limit of 0 only queue and selector are verified, and the depth is given if
    the queue is to be browsed in parts."""
    _, request, destination, selector, dialect, cursor, limit, part, parts = command
    if connection.wait_for_publishing(command):
        return
    check_unread(connection, "browsing")
    compiled = the_selector(connection, selector, dialect)
    limit = min(limit, connection.settings.page_messages)
    cursor, page = connection.namespace.browse(destination, compiled, cursor, limit, now, part, parts)
    if cursor is None and not limit:
        connection.answer(request, [None, *similar_queues(connection, destination)])
        return
    if parts and not limit:
        connection.answer(request, [cursor, connection.namespace.queue(destination).depth])
        return
    connection.send_packed(pack_page(request, cursor, page))


def similar_queues(connection: BrokerConnection, address: str) -> list[str]:
    """Queues whose names resemble that of one that is not there, and that this user may browse: a bounded search."""
    wanted = str(parse_address(address))
    namespace, identity = connection.namespace, connection.identity
    near = [
        label
        for label in islice(namespace.destinations, _LOOKED_AT)
        if abs(len(label) - len(wanted)) <= _LENGTHS and label.startswith(_QUEUE)
    ]
    allowed = [label for label in near[:_COMPARED] if identity.may(Verb.BROWSE, namespace.name, label)]
    names = get_close_matches(wanted.removeprefix(_QUEUE), [label.removeprefix(_QUEUE) for label in allowed], 3, 0.7)
    return [_QUEUE + name for name in names]
