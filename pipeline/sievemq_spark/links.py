"""One connection per broker and process, kept between tasks: Spark uses its Python workers again and again.

Requests over it may be repeated without harm (taps are read by sequence, a batch is published once), so
a connection that is lost is opened anew and the question repeated, for :data:`PATIENCE` seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

from sievemq import Connection, JMSException
from sievemq_spark.connect import connect

__all__ = ["PATIENCE", "Link"]

T = TypeVar("T")

#: Seconds for which a broker that was there may be away: long enough to be started again.
PATIENCE: Final = 5.0

_PAUSE: Final = 0.1  # seconds between two attempts

#: What a lost connection is called; everything else is an answer.
_LOST: Final = frozenset(
    {"CONNECTION_LOST", "CONNECTION_FAILED", "SHUTTING_DOWN", "HEARTBEAT_MISSED", "TOO_MANY_CONNECTIONS"}
)

_Key = tuple[int, str, str | None, str | None, str]
_open: dict[_Key, Connection] = {}


class Link:
    """A broker, from this process.

    Args:
        url: of the broker.
        user, password: credentials.
        dialect: of selectors.
        known: it was reached before; otherwise the first failure is raised at once.
    """

    def __init__(self, url: str, user: str | None, password: str | None, dialect: str, *, known: bool = False) -> None:
        self._where = (url, user, password, dialect)
        self._known = known

    def ask(self, question: Callable[[Connection], T]) -> T:
        """Ask the broker, again if the connection is lost.

        Raises:
            JMSException: what the broker answered; or it cannot be reached.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer = question(self._connection())
            except JMSException as error:
                if error.get_error_code() not in _LOST:
                    raise
                self.close()
                if not self._known or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                self._known = True
                return answer

    def _connection(self) -> Connection:
        found = _open.get(self._key)
        if found is None:
            found = _open[self._key] = connect(*self._where)
            found.set_exception_listener(lambda _: None)  # the next request raises
        return found

    @property
    def _key(self) -> _Key:
        return (os.getpid(), *self._where)  # a forked process must not use its parent's sockets

    def close(self) -> None:
        """Close the connection; the next question opens one."""
        connection = _open.pop(self._key, None)
        if connection is not None:
            connection.close()
