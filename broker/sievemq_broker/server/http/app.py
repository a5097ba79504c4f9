"""The routes of the management port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route

from sievemq_broker.server.http.access import Access, require
from sievemq_broker.server.http.api import PREFIX
from sievemq_broker.server.http.api.router import Api
from sievemq_broker.server.http.console import console_routes
from sievemq_broker.server.http.errors import ApiError, internal
from sievemq_broker.server.http.metrics import CONTENT_TYPE, MAX_DETAILED, chosen, detailed, exposition
from sievemq_broker.server.http.sign_in import sign_in_routes
from sievemq_broker.server.server import Phase, Server
from sievemq_broker.session.rights import EVERYTHING, Verb

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["make_app"]


def make_app(server: Server, api: Api) -> Starlette:
    """The application of one server. Every endpoint runs on the broker's loop, so it reads a state that stands still.

    Args:
        server: the broker.
        api: what is below PREFIX.
    """

    async def livez(_: Request) -> Response:
        return JSONResponse(liveness(server))

    async def readyz(_: Request) -> Response:
        ready, answer = readiness(server)
        return JSONResponse(answer, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        require(request, Verb.VIEW, EVERYTHING, EVERYTHING)
        return Response(await exposition(server), media_type=CONTENT_TYPE)

    async def metrics_detailed(request: Request) -> Response:
        require(request, Verb.VIEW, EVERYTHING, EVERYTHING)
        unknown = set(request.query_params) - {"namespace", "destination"}
        if unknown:
            raise HTTPException(
                400, f"{min(unknown)[:100]!r} is no parameter here; there are namespace and destination"
            )
        query = request.query_params
        namespace, pattern = query.get("namespace", "*")[:1_000], query.get("destination", "*")[:1_000]
        found, number = chosen(server, namespace, pattern)
        if number > MAX_DETAILED:
            what = f"{number} destinations fit and one scrape shows {MAX_DETAILED}"
            raise HTTPException(400, f"{what}; narrow it, as in ?destination=queue:orders.*")
        return Response(detailed(server, found), media_type=CONTENT_TYPE)

    async def openapi(_: Request) -> Response:
        return Response(api.document(), media_type="application/json")

    return Starlette(
        routes=[
            _Below(PREFIX, app=api),
            _Unprintable(),
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/healthz", readyz),
            Route("/metrics", metrics),
            Route("/metrics/detailed", metrics_detailed),
            *sign_in_routes(server),
            *console_routes(),
            Route("/openapi.json", openapi),
        ],
        middleware=[Middleware(Access, server=server)],
        exception_handlers={HTTPException: _failure, 500: _failure},
    )


def liveness(server: Server) -> dict[str, object]:
    """That this is computed at all says that the loop turns; how late it was lately is a hint."""
    return {"status": "ok", "loop_lag_seconds": round(server.timers.lag.last, 6)}


def readiness(server: Server) -> tuple[bool, dict[str, object]]:
    """True if clients may be sent here; and the answer, with the reasons if not."""
    reasons: list[str] = []
    if server.phase is not Phase.READY:
        reasons.append(server.phase.value)
    if len(server.services.connections) >= server.links.limit:  # those before WELCOME make room
        reasons.append(f"all {server.links.limit} connections are taken")
    ready = not reasons
    return ready, {"status": "ready" if ready else "not ready", "reasons": reasons}


class _Below(Mount):
    """Everything below a path; a name there may have any character in it. (A pattern would end at a line break.)"""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"]
        if path == self.path or path.startswith(f"{self.path}/"):
            return Match.FULL, {"endpoint": self.app}
        return Match.NONE, {}


class _Unprintable(BaseRoute):
    """Paths with line breaks and the like: nothing is there. (Patterns of routes fit with a line break behind, too.)"""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.NONE if scope["path"].isprintable() else Match.FULL), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(404)


async def _failure(request: Request, error: Exception) -> Response:
    """Errors are JSON of one form, without a traceback."""
    if not isinstance(error, HTTPException):
        return internal().response()
    name = {400: "BAD_REQUEST", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "ERROR")
    text = error.detail
    if error.status_code == 404:
        text = f"there is nothing at {request.scope['path'][:300]}; the console is at /, the API below {PREFIX}"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        text = f"{request.method[:20]} is not possible here, only {allowed}"
    return ApiError(error.status_code, name, text, headers=error.headers).response()
