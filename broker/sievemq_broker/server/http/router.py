"""From the path and method of a request to what answers it: pages, health, metrics and the API, in one table.

Paths are matched before they are decoded, so that a name with a slash in it (as `%2F`) stays one name.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sievemq_broker.server.http.errors import ApiError, bad_request, not_found
from sievemq_broker.server.http.tasks import gone


class Route(Protocol):
    """One method of one path."""

    @property
    def method(self) -> str:
        """GET (which answers HEAD too), POST, PUT or DELETE."""

    @property
    def path(self) -> str:
        """Template such as ``/livez`` or ``/api/v1/namespaces/{ns}``."""

    async def respond(self, path: Mapping[str, str], scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Carry out a request.

        Args:
            path: the parameters of the path, decoded.
            scope, receive, send: of ASGI.

        Returns:
            The response; None if it was sent.
        """


@dataclass(frozen=True, slots=True)
class Page:
    """A route without parameters, outside of the API."""

    method: str
    path: str
    handler: Callable[[Request], Awaitable[Response | None]]

    async def respond(self, path: Mapping[str, str], scope: Scope, receive: Receive, send: Send) -> Response | None:
        return await self.handler(Request(scope, receive))


class Router:
    """The routes of the management port, as an ASGI application. `access.py` answers exceptions of a route.

    Args:
        deferred: by the first part of the path, what makes the routes below it. It is called at the first request of
            one, in a thread: it imports modules that cost memory and take long to import.
        admit: called with each path; raises what is answered instead.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        deferred: Mapping[str, Callable[[], Iterable[Route]]],
        admit: Callable[[str], None] = lambda path: None,
    ) -> None:
        self._admit = admit
        self._deferred = dict(deferred)
        self._by_length: defaultdict[int, list[tuple[list[str], Route]]] = defaultdict(list)
        self._add(routes)

    @property
    def routes(self) -> list[Route]:
        """All of them; the deferred ones are made now."""
        for first in list(self._deferred):
            self._add(self._deferred.pop(first)())
        return [route for routes in self._by_length.values() for _, route in routes]

    def _add(self, routes: Iterable[Route]) -> None:
        for route in routes:
            parts = route.path.split("/")
            self._by_length[len(parts)].append((parts, route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request.

        Raises:
            ApiError: 404, 405, 503, or as the route.
        """
        self._admit(scope["path"])
        parts = _parts(scope)
        first = "".join(parts[1:2])
        make = self._deferred.get(first)
        if make is not None:
            made = await asyncio.get_running_loop().run_in_executor(None, make)
            if self._deferred.pop(first, None) is not None:  # no other request was faster
                self._add(made)
        route, path = self._find(scope, parts)
        gone.set(scope.get("state", {}).get("gone", _never))
        response = await route.respond(path, scope, receive, send)
        if response is not None:
            await response(scope, receive, send)

    def _find(self, scope: Scope, parts: list[str]) -> tuple[Route, dict[str, str]]:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        allowed: list[str] = []
        for wanted, route in self._by_length.get(len(parts), ()):
            if all(want == got or (want.startswith("{") and got) for want, got in zip(wanted, parts, strict=True)):
                if route.method == method:
                    return route, _parameters(wanted, parts)
                allowed.append(route.method)
        if not allowed:
            text = f"there is nothing at {scope['path'][:300]}; the console is at /, /openapi.json describes the API"
            raise not_found(text)
        names = ", ".join(sorted(allowed))
        text = f"{scope['method'][:20]} is not possible here; {names} is"
        raise ApiError(405, "METHOD_NOT_ALLOWED", text, headers={"Allow": names})


def _never() -> bool:
    return False


def _parts(scope: Scope) -> list[str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0].split("/")


def _parameters(wanted: list[str], parts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for want, got in zip(wanted, parts, strict=True):
        if want.startswith("{"):
            try:
                found[want[1:-1]] = unquote(got, errors="strict")
            except UnicodeDecodeError:
                raise bad_request(f"{want[1:-1]} in the path is not UTF-8", parameter=want[1:-1]) from None
    return found
