"""Records each call of the management API that changes something, whatever has made it: console, command, script."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import Scope

from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Endpoint, Handler
from sievemq_broker.server.http.errors import ApiError, GoneError, failure
from sievemq_broker.server.watch.audit import DONE, Audit
from sievemq_broker.session.rights import Identity
from sievemq_core.errors import AddressError, SieveError
from sievemq_core.message.destination import parse_address

#: Fields of a body, or parameters, that the record repeats. A selector may hold what is confidential.
_REPEATED: Final = ("to", "subscription", "client_id", "limit", "prune", "mode")

#: How the user agent of our own commands begins.
COMMANDS: Final = "sievemq/"


class Recording:
    """Writes a row when a call ends, unless it has changed nothing.

    Args:
        audit: the record.
        endpoint: that is called.
        identity: the caller.
        scope: of ASGI.
        path: the parameters of the path, decoded.
    """

    __slots__ = ("_answer", "_audit", "_call", "_endpoint", "_identity", "_path", "_scope")

    def __init__(
        self, audit: Audit, endpoint: Endpoint, identity: Identity, scope: Scope, path: Mapping[str, str]
    ) -> None:
        self._audit = audit
        self._endpoint = endpoint
        self._identity = identity
        self._scope = scope
        self._path = path
        self._call: Call[Any, Any] | None = None
        self._answer: Any = None

    async def answered(self, handler: Handler, call: Call[Any, Any]) -> Any:
        """Carry the call out."""
        self._call = call
        self._answer = await handler(call)
        return self._answer

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if not self._endpoint.records or self._endpoint.method == "GET":
            return
        if error is None:
            self._done()
        elif self._call is not None and isinstance(error, (GoneError, asyncio.CancelledError)):
            self._record("ABANDONED", None)
        elif isinstance(error, Exception):
            self._failed(error)

    def _done(self) -> None:
        answer = self._answer
        stopped = getattr(answer, "stopped", None)
        touched = getattr(answer, "touched", getattr(answer, "applied", None))
        self._record(DONE if stopped is None else stopped.error, touched)

    def _failed(self, error: Exception) -> None:
        expected = isinstance(error, (ApiError, SieveError))
        refusal = failure(self._scope, error) if expected else None
        if refusal is None:
            if self._call is not None:
                self._record("INTERNAL", None)
        elif refusal.status == 403:
            self._audit.attempted(self._endpoint.name, outcome=refusal.error, **self._about())
        elif isinstance(applied := refusal.details.get("applied"), int) and applied:
            self._record(refusal.error, applied)

    def _record(self, outcome: str, touched: int | None) -> None:
        call = self._call
        if call is not None and any(getattr(given, "dry_run", False) for given in (call.query, call.body)):
            return
        self._audit.record(self._endpoint.name, outcome=outcome, **{"touched": touched, **self._about()})

    def _about(self) -> dict[str, Any]:
        scope, path = self._scope, dict(self._path)
        about: dict[str, Any] = {
            "via": _via(scope),
            "user": self._identity.user,
            "peer": (scope.get("client") or (None,))[0],
            "namespace": path.pop("ns", None),
            "address": _canonical(path.pop("address", None)),
            **path,
        }
        if self._call is not None:
            body = self._call.body
            about.update((name, value) for name in _REPEATED if (value := getattr(body, name, None)))
            if isinstance(to := about.get("to"), str):  # otherwise a time
                about["to"] = _canonical(to)
            if getattr(body, "selector", None) is not None:
                about["chosen"] = "by selector"
            elif (ids := getattr(body, "ids", None)) is not None:
                about["chosen"] = f"{len(ids)} by id"
            about.update(self._call.about)
        return about


def _canonical(address: str | None) -> str | None:
    try:
        return address and str(parse_address(address))
    except AddressError:
        return None


def _via(scope: Scope) -> str:
    headers = Headers(scope=scope)
    if scope["state"].get("session") is not None or "sec-fetch-mode" in headers:
        return "console"
    return "cli" if headers.get("user-agent", "").startswith(COMMANDS) else "http"
