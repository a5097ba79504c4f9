"""The routes of the management port."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sievemq_broker.server.http.access import WEBSOCKET, Access, require
from sievemq_broker.server.http.api.assemble import ENDPOINTS
from sievemq_broker.server.http.api.openapi import document
from sievemq_broker.server.http.console import console_routes
from sievemq_broker.server.http.encoding import encode
from sievemq_broker.server.http.errors import bad_request
from sievemq_broker.server.http.metrics import CONTENT_TYPE, MAX_DETAILED, chosen, detailed, exposition
from sievemq_broker.server.http.router import Page, Route, Router
from sievemq_broker.server.http.sign_in import sign_in_routes
from sievemq_broker.server.server import Phase, Server
from sievemq_broker.session.rights import EVERYTHING, Verb

__all__ = ["make_app"]


@cache
def _document() -> bytes:
    """The OpenAPI document."""
    return encode(document(ENDPOINTS))


def make_app(server: Server, api: Iterable[Route]) -> Access:
    """The application of one server. Every route runs on the broker's loop, so the state does not change while it
    reads.

    Args:
        server: the broker.
        api: the routes below PREFIX.
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
            raise bad_request(f"{min(unknown)[:100]!r} is no parameter here; there are namespace and destination")
        query = request.query_params
        namespace, pattern = query.get("namespace", "*")[:1_000], query.get("destination", "*")[:1_000]
        found, number = chosen(server, namespace, pattern)
        if number > MAX_DETAILED:
            what = f"{number} destinations fit and one scrape shows {MAX_DETAILED}"
            raise bad_request(f"{what}; narrow it, as in ?destination=queue:orders.*")
        return Response(detailed(server, found), media_type=CONTENT_TYPE)

    async def openapi(_: Request) -> Response:
        return Response(_document(), media_type="application/json")

    async def websocket(request: Request) -> Response | None:
        from sievemq_broker.server.http.websocket import open_websocket  # few brokers have such clients

        return await open_websocket(request, server)

    pages = [
        Page("GET", "/livez", livez),
        Page("GET", "/readyz", readyz),
        Page("GET", "/healthz", readyz),
        Page("GET", "/metrics", metrics),
        Page("GET", "/metrics/detailed", metrics_detailed),
        Page("GET", "/openapi.json", openapi),
        Page("GET", WEBSOCKET, websocket),
    ]
    router = Router([*pages, *sign_in_routes(server.authenticator), *console_routes(), *api])
    return Access(router, server.authenticator, server.settings)


def liveness(server: Server) -> dict[str, object]:
    """Any answer shows that the loop runs; its recent lateness is a hint."""
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
