"""Signing in with a browser: a form that works without scripts, a cookie that scripts cannot read.

    GET /sign-in?next=/…     the form              GET /session       the signed-in user, and the token for changes
    POST /session            from the form         DELETE /session    sign out

The cookie is HttpOnly and SameSite=Strict, and Secure under TLS. `access.py` decides what it is good for.
"""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from sievemq_broker.server.credentials.authenticator import Authenticator, TooManyAttemptsError
from sievemq_broker.server.http.access import caller, cookie_name, door_of
from sievemq_broker.server.http.router import Page
from sievemq_broker.server.http.sessions import Session, Sessions
from sievemq_broker.session.settings import AuthenticationError

#: Bytes of the form that are read before the user is authenticated.
_MAX_FORM = 8 * 1024

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · SieveMQ</title>
<link rel="stylesheet" href="/sign-in.css">
</head>
<body>
<main>
<h1>SieveMQ</h1>
{wrong}<form method="post" action="/session">
<input type="hidden" name="next" value="{following}">
<label for="user">User name</label>
<input id="user" name="user" value="{user}" autocomplete="username" autocapitalize="none" required autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button type="submit">Sign in</button>
</form>
</main>
</body>
</html>
"""

#: The console's colours (console/console.css), which only signed-in users may read.
_STYLE = """\
:root { color-scheme: light dark; font: 14px/1.5 Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  --ink: #14202b; --soft: #51606f; --line: #dde3e9; --ground: #f5f7f9; --card: #fff; --accent: #0b7268; --on: #fff;
  --bad: #b42318; --bad-soft: #fdeceb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --soft: #a3b0bd; --line: #2a343e; --ground: #0f1419;
  --card: #171e25; --accent: #3ecfbd; --on: #06231f; --bad: #ff8f85; --bad-soft: #43201d; } }
body { display: grid; min-height: 100vh; margin: 0; place-items: center; color: var(--ink); background: var(--ground); }
main { width: min(21rem, 90vw); box-sizing: border-box; padding: 1.75rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 14px; box-shadow: 0 1px 8px rgb(16 32 43 / 6%); }
h1 { margin: 0 0 1.25rem; font-size: 1.4rem; letter-spacing: -.01em; }
label, input, button { display: block; box-sizing: border-box; width: 100%; font: inherit; }
label { margin-bottom: .25rem; color: var(--soft); font-weight: 550; }
input { margin: 0 0 1rem; padding: .5rem .7rem; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; }
button { padding: .5rem; color: var(--on); background: var(--accent); border: 0; border-radius: 8px; font-weight: 600;
  cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
[role=alert] { margin: 0 0 1rem; padding: .5rem .75rem; border-left: .25rem solid; border-radius: 6px;
  color: var(--bad); background: var(--bad-soft); }
"""


def sign_in_routes(authenticator: Authenticator) -> list[Page]:
    """The routes."""

    async def form(request: Request) -> Response:
        if not authenticator.required:
            return RedirectResponse("/", 303)
        return _form(request.query_params.get("next"))

    async def style(_: Request) -> Response:
        return Response(_STYLE, media_type="text/css")

    async def sign_in(request: Request) -> Response:
        fields = await _fields(request)
        if fields is None:
            return _form(None, "The form could not be read.", status=400)
        user, password, following = fields
        if not authenticator.required:
            return RedirectResponse(_local(following), 303)
        try:
            await authenticator.check(user, password, door_of(request.scope, "console"))
        except TooManyAttemptsError as error:
            headers = {"Retry-After": str(error.retry_after)}
            return _form(following, f"{error.text[:1].upper()}{error.text[1:]}.", user, 429, headers)
        except AuthenticationError:
            return _form(following, "User name or password is wrong.", user, 401)
        found = authenticator.users.find(user)
        if found is None:  # removed in this moment
            return _form(following, "User name or password is wrong.", user, 401)
        _end(request)
        token, _ = _sessions(request).open(found)
        response = RedirectResponse(_local(following), 303)
        secure = request.url.scheme == "https"
        response.set_cookie(cookie_name(request), token, path="/", secure=secure, httponly=True, samesite="strict")
        return response

    async def who(request: Request) -> Response:
        session: Session | None = getattr(request.state, "session", None)
        return JSONResponse(
            {
                "secured": authenticator.required,
                "user": caller(request).user,
                "csrf": None if session is None else session.csrf,
                "expires_in": None if session is None else round(_sessions(request).expires_in(session)),
            }
        )

    async def sign_out(request: Request) -> Response:
        if (user := caller(request).user) is not None:
            authenticator.sign_ins.signed_out(door_of(request.scope, "console"), user)
        _end(request)
        response = Response(status_code=204)
        secure = request.url.scheme == "https"
        response.delete_cookie(cookie_name(request), path="/", secure=secure, httponly=True, samesite="strict")
        return response

    return [
        Page("GET", "/sign-in", form),
        Page("GET", "/sign-in.css", style),
        Page("GET", "/session", who),
        Page("POST", "/session", sign_in),
        Page("DELETE", "/session", sign_out),
    ]


def _sessions(request: Request) -> Sessions:
    return cast("Sessions", request.state.sessions)


def _end(request: Request) -> None:
    """End the session that the browser has, if any: signing in always makes a new one."""
    token = request.cookies.get(cookie_name(request))
    if token is not None:
        _sessions(request).close(token)


async def _fields(request: Request) -> tuple[str, str, str | None] | None:
    """User, password and the page to show next; None if that is not the form of the sign-in page."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return None
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM:
            return None
    try:
        found = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=10, errors="strict")
        return found["user"][0], found["password"][0], found.get("next", [None])[0]
    except (ValueError, KeyError):
        return None


def _form(
    following: str | None,
    wrong: str = "",
    user: str = "",
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    from html import escape  # 0.3 MB, for its table of entities

    alert = f'<p role="alert">{escape(wrong)}</p>\n' if wrong else ""
    page = _PAGE.format(wrong=alert, following=escape(_local(following)), user=escape(user))
    return HTMLResponse(page, status, headers)


def _local(path: str | None) -> str:
    """A path of this port, or the console: never the way to another site."""
    if path is None or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    try:
        parts = urlsplit(path)
    except ValueError:
        return "/"
    return path if not parts.scheme and not parts.netloc and "\\" not in path else "/"
