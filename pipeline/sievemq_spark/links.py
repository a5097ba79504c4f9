"""The pipeline's connections to a broker, and which destinations it has.

A :class:`Link` is one connection per broker and process, kept between tasks: Spark uses its Python workers again and
again.

Requests over it may be repeated without harm (taps are read by sequence, a batch is published once), so
a connection that is lost is opened again and the question repeated, for :data:`PATIENCE` seconds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from sievemq import Connection, ConnectionFactory, JMSException, Queue
from sievemq_core.message.dead_letters import PREFIX
from sievemq_spark.errors import NoDestinationError
from sievemq_spark.options import ReadOptions, place_name

T = TypeVar("T")

#: Seconds for which a broker may be unreachable after the first connection: enough for a restart.
PATIENCE: Final = 5.0

_PAUSE: Final = 0.1  # seconds between two attempts

#: What a lost connection is called.
_LOST: Final = frozenset(
    {"CONNECTION_LOST", "CONNECTION_FAILED", "SHUTTING_DOWN", "HEARTBEAT_MISSED", "TOO_MANY_CONNECTIONS", "UNAVAILABLE"}
)

_ONCE: Final = {"reconnect": 0, "connect_timeout": 5_000}

log = logging.getLogger("sievemq.spark")

_Key = tuple[int, str, str | None, str | None, str]
_open: dict[_Key, Connection] = {}


class Link:
    """A broker, from this process.

    Args:
        patience: seconds for which a lost connection is opened again.
    """

    def __init__(
        self, url: str, user: str | None, password: str | None, dialect: str, *, patience: float = PATIENCE
    ) -> None:
        self._where = (url, user, password, dialect)
        self._patience = patience

    def ask(self, question: Callable[[Connection], T]) -> T:
        """Send a request to the broker, and repeat it if the connection is lost.

        Raises:
            JMSException: what the broker answered; or it cannot be reached.
        """
        deadline, last = time.monotonic() + self._patience, ""
        while True:
            try:
                return question(self._connection())
            except JMSException as error:
                if not is_lost(error):
                    raise
                self.close()
                if time.monotonic() >= deadline:
                    raise
                if self._patience > PATIENCE and str(error) != last:
                    last = str(error)
                    log.warning("waiting for %s: %s", place_name(self._where[0]), error)
                time.sleep(_PAUSE)

    def _connection(self) -> Connection:
        found = _open.get(self._key)
        if found is None:
            found = _open[self._key] = connect(*self._where, once=not self._patience)
            found.set_exception_listener(lambda _: None)  # the next request raises
        return found

    @property
    def _key(self) -> _Key:
        return (os.getpid(), *self._where)  # a forked process must not use its parent's sockets

    def close(self) -> None:
        connection = _open.pop(self._key, None)
        if connection is not None:
            connection.close()


def is_lost(error: JMSException) -> bool:
    """True if the broker could not be reached; everything else is an answer."""
    return error.get_error_code() in _LOST


def connect(
    url: str, user: str | None, password: str | None, dialect: str | None = None, *, once: bool = False, **options: Any
) -> Connection:
    """A connection with a name.

    Args:
        once: each host is tried once, for five seconds, and a lost connection is not opened again.
        options: as those of the URL.
    """
    chosen = options if dialect is None else {"selector_dialect": dialect, **options}
    chosen |= _ONCE if once else {}
    return ConnectionFactory(url, application="sievemq-spark", **chosen).create_connection(user, password)


#: What to do where a destination is not there on purpose.
HINT: Final = "The option failOnMissing=false (on the command line: --allow-missing) continues without it"


def is_missing(error: JMSException) -> bool:
    """True if a tap was not made because its destination is not there."""
    return error.get_error_code() == "NOT_FOUND" and "destination" in error.details


def require_queues(connection: Connection, where: str, options: ReadOptions) -> None:
    """Raise if a queue cannot be browsed; or if it is not there, unless the options allow that.

    A dead-letter queue counts as there if its origin is.

    Args:
        where: names the broker.

    Raises:
        NoDestinationError: names it.
        JMSException: no right; the selector.
    """
    with connection.create_session() as session:

        def missing(queue: Queue) -> bool:
            with session.create_browser(queue, options.selector) as browser:
                return browser._engine.missing

        for queue in options.queues:
            if missing(queue) and options.fail_on_missing:
                name = queue.get_queue_name()
                if name.startswith(PREFIX) and not missing(Queue(name.removeprefix(PREFIX))):
                    continue
                raise NoDestinationError(
                    f"there is no {queue} in {where}: it was never used, or its name is misspelt "
                    f"(names are literal, without patterns). {HINT}"
                )
