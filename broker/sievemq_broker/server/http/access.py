"""Who may look: HTTP Basic with the broker's users, and headers that keep a browser from doing more than showing.

Health and metrics stay open, as probes and scrapers expect; they name destinations at most.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse

from sievemq_broker.session.services import AuthenticationError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sievemq_broker.server.users import Users

__all__ = ["OPEN_PATHS", "Access"]

OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Access:
    """ASGI middleware.

    Args:
        app: what it guards.
        users: who may look; none: everybody who reaches the port.
    """

    def __init__(self, app: ASGIApp, users: Users) -> None:
        self._app = app
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if self._users.required and scope["path"] not in OPEN_PATHS and not self._may(scope):
            error = {"error": {"code": "unauthorized", "text": "a user name and a password are needed"}}
            challenge = {"WWW-Authenticate": 'Basic realm="SieveMQ", charset="UTF-8"'}
            await JSONResponse(error, 401, challenge)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _may(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                return self._knows(value)
        return False

    def _knows(self, header: bytes) -> bool:
        scheme, _, encoded = header.partition(b" ")
        if scheme.lower() != b"basic":
            return False
        try:
            user, _, password = b64decode(encoded, validate=True).decode("utf-8").partition(":")
            self._users.authenticate(user, password)
        except (ValueError, AuthenticationError):
            return False
        return True
