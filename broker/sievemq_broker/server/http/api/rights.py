"""Whether the caller may do something: the one place where the API checks that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection

from sievemq_broker.server.http import access
from sievemq_broker.server.http.errors import ApiError, not_found
from sievemq_broker.session.rights import EVERYTHING, Identity, Verb
from sievemq_core.errors import AddressError
from sievemq_core.message.destination import parse_address

if TYPE_CHECKING:
    from starlette.types import Scope

    from sievemq_broker.server.http.api.call import Call
    from sievemq_broker.server.http.api.declare import Endpoint

__all__ = ["caller", "check", "may", "require", "verbs"]


def caller(scope: Scope) -> Identity:
    """The caller, as the middleware found."""
    return access.caller(HTTPConnection(scope))


def check(scope: Scope, endpoint: Endpoint, path: Mapping[str, str]) -> None:
    """Check that the caller has the right that an endpoint declares, for the destination in its path.

    Raises:
        RequestError: SECURITY, the caller must not.
        ApiError: 404, a namespace in which the caller has no right at all: for them it does not exist; 422, an address
            that is none.
    """
    identity = caller(scope)
    namespace = path.get("ns")
    if endpoint.verb is None:
        if namespace is not None and not identity.rights.enters(namespace):
            raise not_found(f"there is no namespace {namespace!r:.300}", namespace=namespace[:300])
        return
    address = path.get("address", EVERYTHING)
    if "address" in path:
        try:
            address = str(parse_address(address))
        except AddressError as error:
            raise ApiError(422, error.code.name, error.text, {"address": address[:600]}) from None
    identity.require(endpoint.verb, EVERYTHING if namespace is None else namespace, address)


def require(call: Call[Any, Any], verb: Verb, namespace: str, address: str) -> None:
    """Raise unless the caller may do this.

    Raises:
        RequestError: SECURITY.
    """
    caller(call.scope).require(verb, namespace, address)


def verbs(call: Call[Any, Any], namespace: str, address: str) -> list[Verb]:
    """What the caller may do with a destination; with all of a namespace, for "*"."""
    identity = caller(call.scope)
    return [verb for verb in Verb if identity.may(verb, namespace, address)]


def may(call: Call[Any, Any], verb: Verb, namespace: str, address: str) -> bool:
    """True if the caller may do this; for what is left out of lists."""
    return caller(call.scope).may(verb, namespace, address)
