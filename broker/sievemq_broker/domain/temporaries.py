"""The temporary destinations of a namespace: each belongs to a connection and ends with it (TMP-06)."""

from __future__ import annotations

from typing import Protocol

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_core.counted import counted
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.destination import Address, Kind, parse_address

#: Units that deleting one costs (:mod:`.work`): 10 to 20 microseconds.
_DELETED = 5


class GoneError(RequestError):
    """A temporary destination is gone, such as the reply queue of a client that has given up (TMP-08)."""

    def __init__(self, address: Address) -> None:
        text = f"{address} does not exist; a temporary destination ends with the connection that made it"
        super().__init__(text, ErrorCode.INVALID_DESTINATION, {"destination": str(address)})


class Destinations(Protocol):
    """The destinations of a namespace."""

    def create(self, address: Address) -> Queue | Topic:
        """Find or create a destination."""

    def find(self, address: Address | str) -> Queue | Topic | None:
        """The destination with this address, or None."""

    def delete(self, address: Address | str, reason: str) -> bool:
        """Delete a destination with its messages and subscriptions."""


class Temporaries:
    """The owners of temporary destinations. The destinations themselves are in the namespace."""

    __slots__ = ("_namespace", "_owned", "_owners")

    def __init__(self, namespace: Destinations) -> None:
        self._namespace = namespace
        self._owners: dict[str, str] = {}  # address -> connection id
        self._owned: dict[str, dict[str, None]] = {}  # the reverse

    def create(
        self, connection_id: str, topic: bool, number: int, again: str | None = None, most: int | None = None
    ) -> Address:
        """Create one (TMP-01, TMP-05). One that is there stays as it is.

        Args:
            number: of the request, which makes its address unique: repeated after its answer was lost, it finds the one
                that it has made.
            again: the address that it had before this broker forgot it; one of this connection.
            most: how many the connection may have; None for any number.

        Raises:
            RequestError: RESOURCE_ALLOCATION if the connection has so many, or there are too many destinations;
                INVALID_DESTINATION if `again` is none that could have been this connection's.
        """
        kind = Kind.TEMPORARY_TOPIC if topic else Kind.TEMPORARY_QUEUE
        if again is None:
            address = Address(kind, f"{connection_id}.{number}")
        else:
            address = parse_address(again)
            owner, _, digits = address.name.rpartition(".")
            if address.kind is not kind or owner != connection_id or not digits.isdecimal() or len(digits) > 18:
                raise RequestError(
                    f"{again} was never a temporary {'topic' if topic else 'queue'} of this connection",
                    ErrorCode.INVALID_DESTINATION,
                    {"destination": again},
                )
        text = str(address)
        if most is not None and self.count(connection_id) >= most and text not in self._owners:
            raise RequestError(
                f"a connection may have {most} temporary destinations; delete unused ones",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "temporary_destinations"},
            )
        self._namespace.create(address)
        self._owners[text] = connection_id
        self._owned.setdefault(connection_id, {})[text] = None
        return address

    def restore(self, label: str, connection_id: str) -> Queue | Topic:
        """Create one that an earlier broker had for a connection that may come back."""
        destination = self._namespace.create(parse_address(label))
        self._owners[label] = connection_id
        self._owned.setdefault(connection_id, {})[label] = None
        return destination

    @property
    def owners(self) -> list[str]:
        """The connections that have some."""
        return list(self._owned)

    def delete(self, address: Address | str, connection_id: str) -> Queue | Topic:
        """Delete one, and return it: very many messages are removed as pending work (:attr:`Queue.empty`).

        Raises:
            RequestError: INVALID_DESTINATION if it is not one, or not of this connection, or gone already;
                ILLEGAL_STATE if it still has consumers (TMP-07).
        """
        destination = self._namespace.find(address)
        if destination is None or self._owners.get(destination.label) != connection_id:
            raise RequestError(
                f"{address} is not a temporary destination of this connection",
                ErrorCode.INVALID_DESTINATION,
                {"destination": str(address)},
            )
        consumers = (
            sum(len(subscription.queue.consumers) for subscription in destination.subscriptions)
            if isinstance(destination, Topic)
            else len(destination.consumers)
        )
        if consumers:
            raise RequestError(
                f"{destination.label} still has {counted(consumers, 'consumer')}; close them first",
                ErrorCode.ILLEGAL_STATE,
                {"destination": destination.label, "consumers": consumers},
            )
        self._namespace.delete(address, "deleted")
        return destination

    def delete_all(self, connection_id: str, now: int, budget: Budget) -> Task[None]:
        """Delete the temporary destinations of a connection that ends (TMP-06)."""
        for text in tuple(self._owned.get(connection_id, ())):
            if budget.spent:
                yield
            found = self._namespace.find(text)
            budget.spend(_DELETED + (found.depth if isinstance(found, Queue) else 0))
            self._namespace.delete(text, "deleted with the connection that made it")
        self._owned.pop(connection_id, None)

    def count(self, connection_id: str) -> int:
        return len(self._owned.get(connection_id, ()))

    def owner_of(self, label: str) -> str | None:
        """The connection that owns a destination; None if it is not a temporary one."""
        return self._owners.get(label)

    def forget(self, label: str) -> None:
        """A destination is gone."""
        owner = self._owners.pop(label, None)
        if owner is not None:
            del self._owned[owner][label]
