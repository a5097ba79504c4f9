# Generated from sievemq/aio/factory.py by client/generate_blocking.py; change that file, then run `make format`.
"""ConnectionFactory (§5.3)."""

from __future__ import annotations

from typing import TypeVar, overload

from sievemq._engine import AUTO_ACKNOWLEDGE
from sievemq._front import FactorySettings, refuse_lone_name
from sievemq.blocking.connect import connect
from sievemq.blocking.connection import Connection
from sievemq.blocking.context import JMSContext
from sievemq.exceptions import JMSException, runtime_twin
from sievemq.session_mode import SessionModeLike

C = TypeVar("C", bound=Connection)


class ConnectionFactory(FactorySettings):
    """Makes connections and contexts to one broker; safe to share (FAC-08).

    Args:
        url: ``sievemq://[user[:password]@]host[:port][,host2:port2][/namespace][?option=value]``; if not given,
            what the environment variable ``SIEVEMQ_URL`` holds, or ``sievemq://localhost``.
        user_name, password: credentials for calls that bring none; they win over the URL's.
        options: options of the URL as keywords (:class:`sievemq.url.ClientOptions`), such as ``client_id`` (FAC-07).

    Raises:
        ValueError: the URL or an option is wrong; says which part.

    >>> ConnectionFactory("sievemq://localhost?prefetch=10")
    ConnectionFactory('sievemq://localhost:7672?prefetch=10')
    """

    __slots__ = ()

    def create_connection(self, user_name: str | None = None, password: str | None = None) -> Connection:
        """A connection, stopped (FAC-01, FAC-02).

        Args:
            user_name, password: credentials; those of the factory, or of its URL, if neither is given.

        Raises:
            JMSSecurityException: the credentials are refused.
            InvalidClientIDException: the administered client id is in use.
            JMSException: the broker cannot be reached.
        """
        return self._connect(Connection, user_name, password)

    def _connect(self, kind: type[C], user_name: str | None, password: str | None) -> C:
        user_name, password = self._credentials(user_name, password)
        return kind(*connect(self._url, user_name, password))

    @overload
    def create_context(self, session_mode: SessionModeLike, /) -> JMSContext: ...

    @overload
    def create_context(self, *, session_mode: SessionModeLike | None = None) -> JMSContext: ...

    @overload
    def create_context(
        self, user_name: str | None, password: str | None, session_mode: SessionModeLike | None = None
    ) -> JMSContext: ...

    def create_context(
        self,
        user_name: str | SessionModeLike | None = None,
        password: str | None = None,
        session_mode: SessionModeLike | None = None,
    ) -> JMSContext:
        """A context: a connection and a session in one (FAC-03 … FAC-06).

        Args:
            user_name: credentials, with a password; a lone SessionMode or int is the session mode (D-28).
            password: credentials.
            session_mode: one of the four modes; AUTO_ACKNOWLEDGE by default.

        Raises:
            JMSSecurityRuntimeException: the credentials are refused.
            JMSRuntimeException: another mode, or a user name without a password; the broker cannot be reached.
        """
        if isinstance(user_name, int) and password is None and session_mode is None:
            user_name, session_mode = None, user_name
        try:
            if isinstance(user_name, str) and password is None:
                refuse_lone_name(user_name)
            connection = self.create_connection(user_name, password)  # type: ignore[arg-type]
            try:
                return JMSContext._open(connection, AUTO_ACKNOWLEDGE if session_mode is None else session_mode)
            except BaseException:
                connection.close()
                raise
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__
