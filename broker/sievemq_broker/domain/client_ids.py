"""The client ids of a namespace: each belongs to one live connection at most (SUB-31)."""

from __future__ import annotations

from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_IDENTIFIER_CHARS


class ClientIds:
    """Client ids in use, and their connections."""

    __slots__ = ("_connections", "_ids")

    def __init__(self) -> None:
        self._connections: dict[str, str] = {}  # client id -> connection id
        self._ids: dict[str, str] = {}  # connection id -> client id

    def claim(self, client_id: str, connection_id: str) -> None:
        """Give a connection a client id (SUB-30).

        Raises:
            RequestError: INVALID_CLIENT_ID if it is empty or too long, or a live connection holds it (SUB-31).
        """
        if not client_id or len(client_id) > MAX_IDENTIFIER_CHARS:
            raise RequestError(
                f"a client id has 1 to {MAX_IDENTIFIER_CHARS} characters, this one has {len(client_id)}",
                ErrorCode.INVALID_CLIENT_ID,
            )
        holder = self._connections.get(client_id)
        if holder is not None and holder != connection_id:
            raise RequestError(
                f"client id {client_id!r} is in use by connection {holder}; close that one, or choose another id",
                ErrorCode.INVALID_CLIENT_ID,
                {"client_id": client_id},
            )
        self._connections[client_id] = connection_id
        self._ids[connection_id] = client_id

    def free(self, client_id: str, connection_id: str) -> None:
        """Free the client id of a connection that ends or gives it back (CON-11). No effect if another connection has
        it."""
        if self._connections.get(client_id) == connection_id:
            del self._connections[client_id]
            del self._ids[connection_id]

    def holder(self, client_id: str) -> str | None:
        """The connection that has a client id, or None."""
        return self._connections.get(client_id)

    def of(self, connection_id: str) -> str | None:
        """The client id of a connection, or None."""
        return self._ids.get(connection_id)
