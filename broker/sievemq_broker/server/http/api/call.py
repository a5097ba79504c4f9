"""One call of an endpoint: the caller and the request, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from sievemq_broker.domain.namespace import Destination, Namespace
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.errors import ApiError, changed_meanwhile, not_found
from sievemq_broker.server.http.gate import expect_here, unavailable
from sievemq_broker.server.server import Server
from sievemq_broker.session.rights import Identity
from sievemq_core.message.destination import Address, parse_address

Q = TypeVar("Q")
B = TypeVar("B")


@dataclass(slots=True)
class Call(Generic[Q, B]):
    """The argument of a handler: one call of the management API.

    Attributes:
        management: the broker, and what all calls share.
        identity: the caller.
        scope, receive, send: of ASGI; for streams.
        path: the parameters of the path, decoded.
        query: the parameters behind the question mark.
        body: the JSON.
        status: of the answer; the first that the endpoint declares, unless what it makes :meth:`existed`.
        about: what the record of actions says of it beside path and parameters (``audit.py``). Nothing secret.
        headers: of the answer.
    """

    management: Management
    identity: Identity
    scope: Scope
    receive: Receive
    send: Send
    path: Mapping[str, str]
    query: Q
    body: B
    status: int
    about: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def existed(self) -> None:
        """The object to be created exists already: 200, not 201."""
        self.status = 200

    def check_etag(self, etag: str) -> None:
        """Check the caller's If-Match and If-None-Match.

        Args:
            etag: of what would be changed; empty if there is none.

        Raises:
            ApiError: 412, it is not what the caller knows.
        """
        given = Headers(scope=self.scope)
        for name, wanted in (("if-match", True), ("if-none-match", False)):
            if name in given:
                known = {tag.strip().removeprefix("W/") for tag in given[name].split(",")}
                if (bool(etag) and bool(known & {etag, "*"})) is not wanted:
                    text = "it was changed meanwhile; read it again" if etag else "it does not exist"
                    text = "it exists already" if etag and not wanted else text
                    raise ApiError(412, "PRECONDITION_FAILED", text, {"etag": etag})

    def check_caller(self) -> None:
        """Check once more that the caller may still do this, after something was waited for.

        Raises:
            ApiError: 401, its user, password or rights have changed.
        """
        if not self.scope["state"]["lasts"]():
            raise changed_meanwhile()

    @property
    def server(self) -> Server:
        return self.management.server

    @property
    def now(self) -> int:
        """The broker's time, ms since 1970."""
        return self.management.server.clock.now()

    async def expect_here(self, namespace: str | None) -> None:
        """Return unless a list is limited to a namespace that another broker has, or this one has none.

        Args:
            namespace: its name; None for all.

        Raises:
            ApiError: 421, the caller has a right in it, and it is elsewhere; 503, this broker serves no clients.
        """
        if namespace is not None and self.identity.rights.enters(namespace):
            await expect_here(self.server, namespace)
        if (error := unavailable(self.server)) is not None:
            raise error

    def namespace(self) -> Namespace:
        """The namespace of the path.

        Raises:
            ApiError: 404, there is none.
        """
        name = self.path["ns"]
        found = self.server.shard.broker.namespaces.get(name)
        placement = self.server.placement
        if found is None and name == "default" and (placement is None or placement.here(name)):
            return self.server.shard.broker.namespace(name)  # it is always there, but not used yet
        if found is None:
            raise not_found(f"there is no namespace {name!r:.300}", namespace=name[:300])
        return found

    def address(self) -> Address:
        """The address of the path, which is one: operation.py has looked."""
        return parse_address(self.path["address"])

    def destination(self) -> Destination:
        """The destination of the path.

        Raises:
            ApiError: 404, there is none.
        """
        namespace, address = self.namespace(), self.address()
        found = namespace.find(address)
        if found is None:
            raise not_found(
                f"there is no {address} in namespace {namespace.name!r}",
                namespace=namespace.name,
                address=str(address),
            )
        return found

    def queue(self, subscription: str | None = None, client_id: str | None = None) -> Queue:
        """The queue of the path, or that of a subscription to the topic of the path.

        Raises:
            ApiError: 404, there is none; 409, a topic without the name of a subscription.
        """
        destination = self.destination()
        if not isinstance(destination, Topic):
            if subscription is not None:
                raise ApiError(409, "ILLEGAL_STATE", f"{destination.label} is a queue; it has no subscriptions")
            return destination
        if subscription is None:
            raise ApiError(
                409,
                "ILLEGAL_STATE",
                f"{destination.label} is a topic and holds no messages itself; name one of its subscriptions with "
                "`subscription` (and `client_id`)",
                {"address": destination.label},
            )
        for found in destination.subscriptions:
            if found.name == subscription and found.client_id == client_id:
                return found.queue
        raise not_found(
            f"{destination.label} has no subscription {subscription!r:.300} of client id {client_id!r:.300}",
            subscription=subscription,
            client_id=client_id,
        )
