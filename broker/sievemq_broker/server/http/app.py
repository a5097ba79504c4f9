"""The routes of the management port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cache, partial
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sievemq_broker.server import test_control
from sievemq_broker.server.http.access import WEBSOCKET, Access
from sievemq_broker.server.http.api import PREFIX
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.console import console_routes
from sievemq_broker.server.http.encoding import encode
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.gate import admit
from sievemq_broker.server.http.router import Page, Route, Router
from sievemq_broker.server.http.sign_in import sign_in_routes
from sievemq_broker.server.server import Phase, Server

_TEST_CONTROL: Final = PREFIX + test_control.PATH


@cache
def _document(with_test_control: bool) -> bytes:
    from sievemq_broker.server.http.api.assemble import endpoints  # as in api() below
    from sievemq_broker.server.http.api.openapi import document

    return encode(document(endpoints(with_test_control)))


def make_app(server: Server, management: Management) -> Access:
    """The application of one server. Every route runs on the broker's loop, so the state does not change while it
    reads.
    """

    async def livez(_: Request) -> Response:
        return JSONResponse(liveness(server))

    async def readyz(_: Request) -> Response:
        ready, answer = readiness(server)
        return JSONResponse(answer, 200 if ready else 503)

    async def activez(request: Request) -> Response:
        wanted, answer = request.query_params.get("shard"), role_of(server)
        active = server.is_active and wanted in (None, answer.get("shard"))
        return JSONResponse(answer, 200 if active else 503)

    async def openapi(_: Request) -> Response:
        text = await asyncio.get_running_loop().run_in_executor(None, _document, server.settings.test_control)
        return Response(text, media_type="application/json")

    async def websocket(request: Request) -> Response | None:
        from sievemq_broker.server.http.websocket import open_websocket  # few brokers have such clients

        return await open_websocket(request, server)

    def metrics() -> Iterable[Route]:
        from sievemq_broker.server.http.metrics import metrics_routes  # 2 MB, not needed before the first scrape

        return metrics_routes(server)

    def api() -> Iterable[Route]:
        from sievemq_broker.server.http.api.assemble import make_api  # 1 MB, not needed before the first call

        return make_api(management)

    pages = [
        Page("GET", "/livez", livez),
        Page("GET", "/readyz", readyz),
        Page("GET", "/healthz", readyz),
        Page("GET", "/activez", activez),
        Page("GET", "/openapi.json", openapi),
        Page("GET", WEBSOCKET, websocket),
        *sign_in_routes(server.authenticator),
        *console_routes(),
    ]
    router = Router(pages, {"metrics": metrics, "api": api}, partial(_admit, server))
    return Access(router, server.authenticator, server.settings, server.shard.redirects)


def _admit(server: Server, path: str) -> None:
    """Let a request in.

    Raises:
        ApiError: 503; or 404, test control is off.
    """
    if path.startswith(_TEST_CONTROL) and not server.settings.test_control:
        text = (
            "test control is off: start the broker with --test-control (SIEVEMQ_TEST_CONTROL=1), or "
            'EmbeddedBroker(http=True, settings={"test_control": True})'
        )
        raise ApiError(404, "TEST_CONTROL_OFF", text)
    admit(server, path)


def liveness(server: Server) -> dict[str, object]:
    """Any answer shows that the loop runs; its recent lateness is a hint."""
    return {"status": "ok", "loop_lag_seconds": round(server.ticks.lag.last, 6)}


def role_of(server: Server) -> dict[str, object]:
    """What this broker is, and where brokers share a store: the shard that it owns, or those that it follows."""
    if not server.is_shared:
        return {"role": server.role}
    if server.shard.keeper is not None:
        return {"role": server.role, "shard": server.shard.name}
    return {"role": server.role, "follows": list(server.keepers)}


def readiness(server: Server) -> tuple[bool, dict[str, object]]:
    """True if it serves clients, or follows and would take over; and the answer, with the reasons if not."""
    reasons: list[str] = []
    warnings: list[str] = []
    if server.trouble is not None:
        reasons.append(server.trouble)
    elif server.phase not in (Phase.READY, Phase.FOLLOWING):
        reasons.append(server.phase.value)
    # Connections before WELCOME make room.
    if server.phase is Phase.READY and len(server.shard.services.connections) >= server.links.limit:
        reasons.append(f"all {server.links.limit} connections are taken")
    if server.full_disk is not None:  # consumers must still find the broker: they make room
        warnings.append(f"PERSISTENT messages are refused or wait: {server.full_disk}")
    warnings += server.shard_warnings
    ready = not reasons
    answer: dict[str, object] = {"status": "ready" if ready else "not ready", **role_of(server), "reasons": reasons}
    if warnings:
        answer["warnings"] = warnings
    return ready, answer
