"""Sends that become visible together, and once: :mod:`sievemq.staging` with asyncio.

    name = await stage(session, "query 5f2c", batch=7)      # instead of session.commit(); on each connection
    await publish(connection, "query 5f2c", 7, [name, …])   # once: the broker remembers that batch 7 was published

A stage that is not published within its lease is dropped. See docs/protocol.md, section 13.
"""

from __future__ import annotations

from collections.abc import Iterable

from sievemq._engine.taps import LEASE, check_transacted, name_of, names_of, number_of
from sievemq.aio.connection import Connection
from sievemq.aio.session import Session
from sievemq_core.durations import Milliseconds, milliseconds
from sievemq_core.wire.commands import Command

__all__ = ["LEASE", "discard", "publish", "stage"]


async def stage(session: Session, key: str, batch: int, lease: Milliseconds = LEASE) -> str:
    """Move the sends of a transacted session since its last commit to a stage, kept until it is published.

    Args:
        session: transacted.
        key: name of the publisher.
        batch: of the key; ascending.
        lease: how long it is kept unpublished; a timedelta, or an int of milliseconds.

    Returns:
        Its name, for :func:`publish`.

    Raises:
        ValueError: a key, batch or lease that cannot be.
        IllegalStateException: the session is not transacted.
        TransactionRolledBackException: a send had failed, or the connection was lost since the last commit; nothing is
            staged.
        ResourceAllocationException: no room.
    """
    check_transacted(session._engine)
    lasting = number_of("a lease", milliseconds("a lease", lease))
    return await session._stage(name_of("a publisher's key", key), number_of("a batch", batch), lasting)


async def publish(connection: Connection, key: str, batch: int, names: Iterable[str]) -> int | None:
    """Send the stages with these names, in their order, all or nothing; drop the batch's other stages. A name that is
    given twice counts once.

    Returns:
        How many messages were sent; None if this batch or a later one of the key was published before.

    Raises:
        ValueError: a key, batch or name that cannot be.
        JMSException: one of the names is not there: its lease has ended, or the broker was restarted (error code
            NOT_FOUND). Nothing was sent.
        ResourceAllocationException: a destination has no room. Nothing was sent.
    """
    engine = connection._engine
    engine.check_open()
    fields = name_of("a publisher's key", key), number_of("a batch", batch), names_of(names)
    answer: int | None = await connection._transport.ask(lambda: engine.request(Command.PUBLISH, *fields))
    return answer


async def discard(connection: Connection, key: str, batch: int) -> int:
    """Discard the messages that are staged for a batch and not published.

    Returns:
        How many messages that was.
    """
    engine = connection._engine
    engine.check_open()
    fields = name_of("a publisher's key", key), number_of("a batch", batch)
    answer: int = await connection._transport.ask(lambda: engine.request(Command.DISCARD, *fields))
    return answer
