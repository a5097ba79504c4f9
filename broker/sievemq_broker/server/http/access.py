"""Authentication and rights: what every handler of the management port uses, and the middleware behind it.

    from sievemq_broker.server.http.access import caller, require

    async def purge(request: Request) -> Response:
        require(request, "manage", namespace, "queue:orders")       # or a 403 with user, verb and destination
        ...
        rows = [row for row in rows if caller(request).may("view", row.namespace, row.address)]

- Verbs: ``send``, ``consume``, ``browse`` (see messages), ``manage`` (create, delete, move, purge, retry, pause, close
  consumers), ``view`` (see that it is there, figures, consumers; every other right on a destination includes it).
- ``"*"`` as address or namespace asks for all of them: ``require(request, "manage", namespace, "*")`` for what concerns
  a whole namespace (its connections, deleting it), ``require(request, "view", "*", "*")`` for the whole broker.
- ``caller(request).rights.enters(namespace)``: has any right there. Without one, a namespace does not exist
  for them: leave it out of lists.
- Where security is off the caller is anonymous and may do everything, so handlers never ask whether it is on.

`require` raises ``RequestError`` with code SECURITY. The middleware here answers whatever a request raises, on all
paths, in one form: ``{"error": "SECURITY", "text": …, "details": {user, verb, destination, namespace}}``.

What a request has to pass, in this order; the answer to one that does not is JSON of that form:

1. the Host header is a name that this port answers to (`hosts.py`), else 421;
2. health needs nothing more;
3. what changes something or begins a WebSocket does not come from another site (Origin, Sec-Fetch-Site), else 403,
   security on or off: a page in a user's browser must not reach the broker on that machine. A WebSocket may come
   from an origin of `http_origins`, without the cookie's session;
4. with users: HTTP Basic, for programs, or the cookie of a browser's session (`sign_in.py`), else 401, or the way to
   the sign-in page for a browser that wants a page; 429 after too many wrong passwords;
5. what changes something and came with the cookie carries the session's token in ``X-CSRF-Token``, else 403.

For scripts of the console: ``GET /session`` answers ``{"secured", "user", "csrf", "expires_in"}`` (null where nobody
has signed in), ``DELETE /session`` signs out, and after a 401 the way is ``/sign-in?next=<path and query>``.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sievemq_broker import logs
from sievemq_broker.config import Settings
from sievemq_broker.server.credentials.authenticator import Authenticator, TooManyAttemptsError
from sievemq_broker.server.credentials.sign_ins import Door
from sievemq_broker.server.http.errors import ApiError, GoneError, changed_meanwhile, failure
from sievemq_broker.server.http.hosts import Hosts, is_same_site, port_of
from sievemq_broker.server.http.pace import Pace
from sievemq_broker.server.http.sessions import Session, Sessions
from sievemq_broker.session.rights import Identity, Rights, Verb
from sievemq_broker.session.settings import AuthenticationError
from sievemq_core.errors import ErrorCode

#: Answered without credentials: probes have none, and the answers contain nothing worth hiding.
HEALTH = frozenset({"/livez", "/readyz", "/healthz", "/activez"})
#: What it takes to sign in.
OPEN = HEALTH | {"/sign-in", "/sign-in.css", "/session"}

#: Where WebSockets begin. A user and a password may also follow inside, in STOMP's CONNECT.
WEBSOCKET: Final = "/stomp"

#: Bytes of a request's body. A message of the largest size fits in base64, and text around it.
MAX_REQUEST_BYTES: Final = 96 * 1024 * 1024

log = logs.get("http")

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Nothing to other sites. With "no-referrer" a browser would send the sign-in form with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def caller(request: HTTPConnection) -> Identity:
    return cast("Identity", request.scope["state"]["identity"])


def require(request: HTTPConnection, verb: Verb | str, namespace: str, address: str) -> Identity:
    """The user that sent a request, if it has this right.

    Raises:
        RequestError: SECURITY, they must not.
    """
    identity = caller(request)
    identity.require(verb, namespace, address)
    return identity


def door_of(scope: Scope, protocol: str) -> Door:
    """Where a caller signs in."""
    return Door(protocol, (scope.get("server") or ("", 0))[1] or 0, (scope.get("client") or ("",))[0])


def cookie_name(request: HTTPConnection) -> str:
    """Name of the session's cookie: with the port that the browser knows, which sends all cookies of a host to each of
    its ports. Under TLS with the prefix that makes browsers insist on Secure and on this host."""
    scheme = request.scope["scheme"]
    name = f"sievemq-{port_of(request.headers.get('host', ''), scheme)}"
    return f"__Host-{name}" if scheme == "https" else name


class _SignInError(Exception):
    """A browser that wants a page has to sign in first."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.response = RedirectResponse(path, 303)


class _EndedError(Exception):
    """The right to continue reading an answer has ended."""


class Access:
    """ASGI middleware.

    Args:
        redirects: counts the requests that are sent to another broker, as `http`.
        clock: seconds, for the sessions.

    Attributes:
        app: what it guards.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        settings: Settings,
        redirects: Counter[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self._redirects = redirects
        self._authenticator = authenticator
        self._hosts = Hosts({settings.http_address, *settings.http_hosts})
        self._sessions = Sessions(settings.session_seconds, clock)
        self._origins = frozenset(settings.http_origins)
        self._certificates = settings.tls_client_ca is not None
        self._pace = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        floods = scope.get("state", {}).get("floods", _never)
        await self._pace.admit(urgent=scope["path"] in HEALTH and not floods())
        started = events = False
        lasts: Callable[[], bool] = _always

        async def send_on(message: Message) -> None:
            nonlocal started, events
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                events = headers.get("content-type", "").startswith("text/event-stream")
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            elif not lasts() and not state.get("own_change"):  # a stream outlives its session, or the user
                if events or not message.get("body"):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                else:  # cut, not ended: half an export would be taken for all of it
                    state["hand_over"]()[0].abort()
                raise _EndedError
            await send(message)

        state = scope.setdefault("state", {})
        received = 0

        async def receive_on() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_REQUEST_BYTES:
                raise _too_large()
            if message["type"] == "http.request" and not lasts():  # a body may take long to arrive
                raise changed_meanwhile()
            return message

        state["sessions"] = self._sessions
        try:
            identity, lasts = await self._admit(scope, Headers(scope=scope))
            state["identity"], state["lasts"] = identity, lasts
            await self.app(scope, receive_on, send_on)
        except _EndedError:
            pass
        except (GoneError, ClientDisconnect):
            log.info("http.abandoned", path=scope["path"], method=scope["method"])
        except Exception as error:
            if started:
                raise
            lasts = _always
            await self._response_to(error, scope)(scope, receive, send_on)

    def _response_to(self, error: Exception, scope: Scope) -> Response:
        if isinstance(error, _SignInError):
            return error.response
        answer = failure(scope, error)
        if answer.error == ErrorCode.REDIRECT.name:
            self._redirects["http"] += 1
        return answer.response()

    async def _admit(self, scope: Scope, headers: Headers) -> tuple[Identity, Callable[[], bool]]:
        """The caller, and whether that still holds later on; the steps of the module's text."""
        path, changing = scope["path"], scope["method"] not in _SAFE
        self._check_host(headers)
        if path in HEALTH:
            return _NOBODY, _always
        same = self._check_site(scope, headers, changing)
        authenticator = self._authenticator
        if not authenticator.required:
            return Identity(), lambda: not authenticator.required  # until there is a first user
        if path in OPEN and not (path == "/session" and scope["method"] != "POST"):
            return _NOBODY, _always
        authorization = headers.get("authorization")
        if authorization is not None:
            if not same:  # a browser that remembers the password for one of these pages
                raise ApiError(403, "CROSS_SITE", "a page of another site must not ask with a password")
            identity = await self._basic(scope, authorization)
            user = authenticator.users.find(identity.user or "")
            scope["state"]["signed_in"] = lambda: user is not None and authenticator.users.knows(user)
            return identity, lambda: authenticator.users.find(identity.user or "") == user
        session = self._session(scope) if same else None
        if session is None:
            if path == "/session":  # the signed-in user: none
                return _NOBODY, _always
            if path == WEBSOCKET and headers.get("upgrade", "").lower() == "websocket":
                return _NOBODY, _always
            raise _challenge(scope, headers)
        if changing and headers.get("x-csrf-token") != session.csrf:
            text = "the header X-CSRF-Token must carry what GET /session answers as `csrf`"
            raise ApiError(403, "CSRF", text)
        scope["state"]["session"] = session
        scope["state"]["signed_in"] = lambda: self._sessions.alive(session, authenticator.users)
        user = session.user
        return (
            user.identity,
            lambda: self._sessions.alive(session, authenticator.users) and authenticator.users.find(user.name) == user,
        )

    def _check_host(self, headers: Headers) -> None:
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy in front may use the other length, and take the rest of this request for another request.
            text = "Content-Length and Transfer-Encoding exclude each other"
            raise ApiError(400, "BAD_REQUEST", text, headers={"Connection": "close"})
        host = headers.get("host", "")
        if host and not self._hosts.allow(host):
            text = f"this broker does not answer to the name {host[:200]!r}; if it is yours, add it to http_hosts"
            raise ApiError(421, "MISDIRECTED", text)

    def _check_site(self, scope: Scope, headers: Headers, changing: bool) -> bool:
        """Refuse what another site, or a client without a certificate, must not do. True if the request comes from
        this site, or from no page."""
        if self._certificates and not scope["state"].get("client_certificate"):
            text = "a client certificate is needed here (tls_client_ca)"
            raise ApiError(403, "CERTIFICATE", text)
        if (
            headers.get("content-length", "0").isdecimal()
            and int(headers.get("content-length", "0")) > MAX_REQUEST_BYTES
        ):
            raise _too_large()
        same = is_same_site(headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site"))
        if changing and not same:
            text = "a page of another site must not change anything here (Origin, Sec-Fetch-Site)"
            raise ApiError(403, "CROSS_SITE", text)
        if scope["path"] == WEBSOCKET and not same and not self._invites(headers.get("origin")):
            text = "a page of another site must not connect here (Origin); http_origins lists the allowed ones"
            raise ApiError(403, "CROSS_SITE", text)
        return same

    def _invites(self, origin: str | None) -> bool:
        """True for the origin of a site whose pages may open WebSockets."""
        return "*" in self._origins or (origin is not None and origin.lower() in self._origins)

    async def _basic(self, scope: Scope, header: str) -> Identity:
        scheme, _, encoded = header.partition(" ")
        try:
            if scheme.lower() != "basic":
                raise AuthenticationError("HTTP Basic is what is understood here")
            user, _, password = b64decode(encoded, validate=True).decode("utf-8").partition(":")
            return await self._authenticator.check(user, password, door_of(scope, "http"))
        except TooManyAttemptsError as error:
            raise _throttled(error) from None
        except (ValueError, AuthenticationError) as error:
            text = str(error) if isinstance(error, AuthenticationError) else "the header Authorization is malformed"
            raise ApiError(401, "AUTHENTICATION", text, headers=_CHALLENGE) from None

    def _session(self, scope: Scope) -> Session | None:
        request = HTTPConnection(scope)
        token = request.cookies.get(cookie_name(request))
        return None if token is None else self._sessions.find(token, self._authenticator.users)


_NOBODY = Identity(None, Rights([]))
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="SieveMQ", charset="UTF-8"'}


def _always() -> bool:
    return True


def _never() -> bool:
    return False


def _too_large() -> ApiError:
    return ApiError(413, "REQUEST_TOO_LARGE", f"a request may have {MAX_REQUEST_BYTES} bytes")


def _throttled(error: TooManyAttemptsError) -> ApiError:
    headers = {"Retry-After": str(error.retry_after)}
    return ApiError(429, "TOO_MANY_ATTEMPTS", error.text, error.details, headers)


def _challenge(scope: Scope, headers: Headers) -> Exception:
    """No user has signed in. A browser never gets a Basic challenge: it would remember the password and send it with
    the requests of any page to this port."""
    if scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        there = scope["path"] + (f"?{query}" if query else "")
        return _SignInError(f"/sign-in?next={quote(there, safe='/')}")
    asked = None if "sec-fetch-mode" in headers else _CHALLENGE
    asked = asked or {"WWW-Authenticate": 'Session realm="SieveMQ"'}
    return ApiError(401, "AUTHENTICATION", "a user name and a password are needed", headers=asked)
