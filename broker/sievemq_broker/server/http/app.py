"""The routes of the management port. All read; what changes the broker will be routes of its own beside these."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sievemq_broker.server.http import overview
from sievemq_broker.server.http.access import Access
from sievemq_broker.server.http.console import console_routes
from sievemq_broker.server.http.health import liveness, readiness

if TYPE_CHECKING:
    from sievemq_broker.server.server import Server

__all__ = ["make_app"]

#: Rows of a list answered at once; more are a page further (`offset`).
MAX_ROWS = 1_000


def make_app(server: Server) -> Starlette:
    """The application of one server. Every endpoint runs on the broker's loop, so it reads a state that stands still.

    Args:
        server: the broker.
    """

    async def livez(_: Request) -> Response:
        return JSONResponse(liveness(server))

    async def readyz(_: Request) -> Response:
        ready, answer = readiness(server)
        return JSONResponse(answer, 200 if ready else 503)

    async def metrics(_: Request) -> Response:
        from sievemq_broker.metrics import CONTENT_TYPE, exposition  # at the first scrape: many brokers never see one

        return Response(exposition(server), media_type=CONTENT_TYPE)

    async def api_broker(_: Request) -> Response:
        return JSONResponse(overview.broker(server))

    async def api_namespaces(request: Request) -> Response:
        return _list(request, overview.namespaces(server))

    async def api_destinations(request: Request) -> Response:
        return _list(request, overview.destinations(server), ("namespace", "kind", "destination"))

    async def api_connections(request: Request) -> Response:
        return _list(request, overview.connections(server), ("namespace", "user", "client_id"))

    async def api_consumers(request: Request) -> Response:
        return _list(request, overview.consumers(server), ("namespace", "destination", "connection"))

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/healthz", readyz),
            Route("/metrics", metrics),
            *console_routes(),
            Route("/api/broker", api_broker),
            Route("/api/namespaces", api_namespaces),
            Route("/api/destinations", api_destinations),
            Route("/api/connections", api_connections),
            Route("/api/consumers", api_consumers),
        ],
        middleware=[Middleware(Access, server=server)],
        exception_handlers={HTTPException: _failure, 500: _failure},
    )


def _list(request: Request, rows: Iterable[overview.Row], filters: Iterable[str] = ()) -> Response:
    """A page of rows: exact filters by name, `offset`, `limit`; `total` counts what the filters let through."""
    query = request.query_params
    known = {*filters, "offset", "limit"}
    for name in query:
        if name not in known:
            raise HTTPException(400, f"{name!r} is not a parameter here; {', '.join(sorted(known))} are")
    wanted = {name: query[name] for name in filters if name in query}
    chosen = [row for row in rows if all(str(row[name]) == value for name, value in wanted.items())]
    offset, limit = _number(query.get("offset"), 0, "offset"), _number(query.get("limit"), MAX_ROWS, "limit")
    items = list(islice(chosen, offset, offset + min(limit, MAX_ROWS)))
    return JSONResponse({"items": items, "total": len(chosen), "offset": offset})


def _number(text: str | None, default: int, name: str) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise HTTPException(400, f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


async def _failure(_: Request, error: Exception) -> Response:
    """Errors are JSON of one form, without a traceback."""
    if isinstance(error, HTTPException):
        code = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "error")
        body = {"error": {"code": code, "text": error.detail}}
        return JSONResponse(body, error.status_code, error.headers)
    return JSONResponse({"error": {"code": "internal", "text": "a fault of the broker; its log says more"}}, 500)
