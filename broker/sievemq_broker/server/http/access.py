"""Who asks, and may they? What every handler of the management port uses, and the middleware behind it.

    from sievemq_broker.server.http.access import caller, require

    async def purge(request: Request) -> Response:
        require(request, "manage", namespace, "queue:orders")       # or a 403 that says who must not do what where
        ...
        rows = [row for row in rows if caller(request).may("view", row.namespace, row.address)]

- Verbs: ``send``, ``consume``, ``browse`` (see messages), ``manage`` (create, delete, move, purge, retry, pause, close
  consumers), ``view`` (see that it is there, figures, consumers; every other right on a destination includes it).
- ``"*"`` as address or namespace asks for all of them: ``require(request, "manage", namespace, "*")`` for what concerns
  a whole namespace (its connections, deleting it), ``require(request, "view", "*", "*")`` for the whole broker.
- ``caller(request).rights.enters(namespace)``: has any right there. A namespace somebody has no right in does not exist
  for them: leave it out of lists.
- Where security is off the caller is anonymous and may do everything, so handlers never ask whether it is on.

`require` raises ``RequestError`` with code SECURITY; whatever handles errors may turn it into its 403, and if nothing
does, the middleware here does: ``{"error": "SECURITY", "text": …, "details": {user, verb, destination, namespace}}``.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, cast

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse

from sievemq_broker.session.rights import Identity, Verb
from sievemq_broker.session.services import AuthenticationError
from sievemq_core.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sievemq_broker.server.server import Server

__all__ = ["OPEN_PATHS", "Access", "caller", "require"]

OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def caller(request: HTTPConnection) -> Identity:
    """Who sent a request."""
    return cast("Identity", request.scope["state"]["identity"])


def require(request: HTTPConnection, verb: Verb | str, namespace: str, address: str) -> Identity:
    """Who sent a request, if they may do this.

    Args:
        request: the request.
        verb: what is to be done.
        namespace: where; "*" for all.
        address: the destination in text; "*" for all.

    Raises:
        RequestError: SECURITY, they must not.
    """
    identity = caller(request)
    identity.require(verb, namespace, address)
    return identity


class Access:
    """ASGI middleware.

    Args:
        app: what it guards.
        server: the broker.
    """

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        identity = await self._identify(scope)
        if identity is None:
            error = {"error": {"code": "unauthorized", "text": "a user name and a password are needed"}}
            challenge = {"WWW-Authenticate": 'Basic realm="SieveMQ", charset="UTF-8"'}
            await JSONResponse(error, 401, challenge)(scope, receive, send_with_headers)
            return
        scope.setdefault("state", {})["identity"] = identity
        try:
            await self._app(scope, receive, send_with_headers)
        except RequestError as error:
            if started or error.code is not ErrorCode.SECURITY:
                raise
            body = {"error": error.code.name, "text": error.text, "details": error.details}
            await JSONResponse(body, 403)(scope, receive, send_with_headers)

    async def _identify(self, scope: Scope) -> Identity | None:
        if not self._server.authenticator.required or scope["path"] in OPEN_PATHS:
            return Identity()
        for name, value in scope["headers"]:
            if name == b"authorization":
                return await self._known(value, (scope.get("client") or ("",))[0])
        return None

    async def _known(self, header: bytes, address: str) -> Identity | None:
        scheme, _, encoded = header.partition(b" ")
        if scheme.lower() != b"basic":
            return None
        try:
            user, _, password = b64decode(encoded, validate=True).decode("utf-8").partition(":")
            return await self._server.authenticator.check(user, password, address)
        except (ValueError, AuthenticationError):
            return None
