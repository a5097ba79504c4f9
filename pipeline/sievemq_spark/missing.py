"""Destinations that are not there: a misspelt name is an error, not an empty table."""

from __future__ import annotations

from typing import Final

from sievemq import Connection, JMSException, Queue
from sievemq.url import parse_url
from sievemq_spark.errors import NoDestinationError
from sievemq_spark.options import ReadOptions, broker_name

__all__ = ["HINT", "is_missing", "require_queues"]

#: What to do where a destination is not there on purpose.
HINT: Final = "The option failOnMissing=false (on the command line: --allow-missing) goes on without it"

#: How the name of a dead-letter queue begins (D-22).
_DEAD: Final = "DLQ."


def is_missing(error: JMSException) -> bool:
    """True if a tap was not made because its destination is not there."""
    return error.get_error_code() == "NOT_FOUND" and "destination" in error.details


def require_queues(connection: Connection, url: str, options: ReadOptions) -> None:
    """Raise if a queue cannot be browsed; or if it is not there, unless the options allow that.

    A dead-letter queue counts as there if its origin is.

    Args:
        connection: to the broker.
        url: the broker's.
        options: of a read with mode ``browse``.

    Raises:
        NoDestinationError: says which.
        JMSException: no right; the selector.
    """
    with connection.create_session() as session:

        def missing(queue: Queue) -> bool:
            with session.create_browser(queue, options.selector) as browser:
                return browser._engine.missing

        for queue in options.queues:
            if missing(queue) and options.fail_on_missing:
                name = queue.get_queue_name()
                if name.startswith(_DEAD) and not missing(Queue(name.removeprefix(_DEAD))):
                    continue
                raise NoDestinationError(
                    f"there is no {queue} at {broker_name(parse_url(url))}: it was never used, or is not spelt so "
                    f"(names are taken literally, there are no patterns). {HINT}"
                )
