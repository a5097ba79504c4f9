"""The web console: one page and its modules, sent as they are; what they show they read from the management API.

There is no build step: ``index.html`` loads ``main.js``, which names the others. Nothing is fetched from anywhere else,
nothing in it parses HTML, and its Content-Security-Policy would not let it.
"""

from __future__ import annotations

from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sievemq_broker.server.http.router import Page

__all__ = ["CONTENT_SECURITY_POLICY", "console_routes"]

#: Scripts and styles come from files only, never from the page's text; and no script may turn text into elements
#: (trusted types), so that the content of messages, names and selectors stays text.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


def console_routes() -> list[Page]:
    """The routes of the console: `/`, and each file below `/console/` that the page there loads."""
    folder = Path(__file__).parent
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.suffix in _KINDS}
    return [
        Page("GET", "/", partial(_send, found["index.html"])),
        *(Page("GET", f"/console/{name}", partial(_send, path)) for name, path in found.items()),
    ]


async def _send(path: Path, request: Request) -> Response:
    """The file, or 304 if the browser has it: it checks each time, so that a new version shows at once."""
    file = _read(path)
    headers = {
        "ETag": file.tag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    }
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.kind)


@cache
def _read(path: Path) -> _File:
    """A file; read once, when it is first requested."""
    content = path.read_bytes()
    return _File(content, _KINDS[path.suffix], f'"{sha256(content).hexdigest()[:20]}"')
