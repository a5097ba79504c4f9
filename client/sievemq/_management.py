"""The broker's management API, for the command line and the test kit."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

from sievemq_core.version import VERSION

DEFAULT_HTTP_PORT: Final = 7680
#: Seconds that an answer may take.
TIMEOUT: Final = 60.0
#: Rows of a page.
ROWS: Final = 500
#: Brokers in a row that may send a request on to another one.
REDIRECTS: Final = 4


class ManagementError(Exception):
    """The management port does not answer, or refuses. The cause is the exception of the standard library.

    Attributes:
        status: of the HTTP answer; 0 if there was none.
        details: of a refusal.
    """

    def __init__(self, text: str, status: int = 0, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.details = details or {}


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follow no redirect of a server in front of a broker: urllib would send the password to wherever it leads."""

    def redirect_request(self, *request: Any) -> None:
        """None: the answer is a refusal."""


class Management:
    """The management API of a broker, and of the others of its cluster: it follows where one says that a namespace is
    in another shard. Every request raises ManagementError if there is no answer, or a refusal.

    Args:
        user, password: credentials; None for a broker without users.
        timeout: seconds that an answer may take, unless a request says otherwise.
    """

    def __init__(
        self, url: str, user: str | None, password: str | None, tls: ssl.SSLContext | None, timeout: float = TIMEOUT
    ) -> None:
        self.url = url.rstrip("/")
        self._tls = tls
        self._opener = urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=tls))
        self._timeout = timeout
        self._headers = {"Accept": "application/json", "User-Agent": f"sievemq/{VERSION}"}
        if user is not None:
            secret = f"{user}:{password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret).decode()}"

    def at(self, url: str) -> Self:
        """The same for another broker of the cluster, with the same credentials.

        Raises:
            ManagementError: it has no TLS, and this one has.
        """
        other = copy(self)
        other._go_to(url)
        return other

    def _go_to(self, url: str) -> None:
        self.url = _checked(self.url, url)

    def get(self, path: str, **query: object) -> Any:
        """GET what is at a path below ``/api/v1``; parameters that are None are left out."""
        return self._ask("GET", path, None, query)

    def rows(self, path: str, key: str | tuple[str, ...], most: int = 0, **query: object) -> Iterator[dict[str, Any]]:
        """All rows of a list, page after page; or the first `most`. A page has them by one key, or by several."""
        keys = (key,) if isinstance(key, str) else key
        cursor: str | None = None
        seen = 0
        while True:
            page = self.get(path, cursor=cursor, limit=min(ROWS, most - seen) if most else ROWS, **query)
            for each in keys:
                yield from page[each]
                seen += len(page[each])
            cursor = page["next"]
            if cursor is None or (most and seen >= most):
                return

    def put(self, path: str, body: Mapping[str, object] | None = None, match: str | None = None) -> Any:
        """PUT; fields that are None are left out.

        Args:
            match: the ETag that must be there, or empty for nothing: otherwise it is refused (412).
        """
        condition = {} if match is None else {"If-Match": match} if match else {"If-None-Match": "*"}
        return self._ask("PUT", path, body, headers=condition)

    def post(self, path: str, body: Mapping[str, object], timeout: float | None = None) -> Any:
        """POST; fields that are None are left out. The response may take `timeout` seconds."""
        return self._ask("POST", path, body, timeout=timeout)

    def delete(self, path: str, *, dry_run: bool = False) -> Any:
        """DELETE, or only count."""
        return self._ask("DELETE", path, None, {"dry_run": "true" if dry_run else None})

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        query: Mapping[str, object] | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        chosen = urlencode(_given(query or {}))
        data = None if body is None else json.dumps(_given(body)).encode()
        headers = {**self._headers, **(headers or {})}
        if data is not None:
            headers["Content-Type"] = "application/json"
        seconds = self._timeout if timeout is None else timeout
        below = f"/api/v1{path}{f'?{chosen}' if chosen else ''}"
        url, left = self.url, REDIRECTS
        while True:
            request = urllib.request.Request(url + below, data, headers, method=method)  # noqa: S310  http and https only
            try:
                return self._answer(url, request, seconds)
            except ManagementError as error:
                if not left:
                    raise
                url, left = _owner(url, error), left - 1

    def _answer(self, url: str, request: urllib.request.Request, seconds: float) -> Any:
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ManagementError(f"no management port answers at {url}: {reason}") from error


def place(namespace: str, address: str = "", *rest: str) -> str:
    """The path of a namespace, of a destination in it, and of what is below that."""
    parts = ["/namespaces", quote(namespace, safe="")]
    if address:
        parts += ["destinations", quote(address, safe="")]
    return "/".join([*parts, *rest])


def _owner(asked: str, error: ManagementError) -> str:
    """Where a broker that refuses a request says that it must be sent; the error itself if it says nothing of it."""
    url = error.details.get("url")
    if error.status != 421 or not isinstance(url, str):
        raise error
    return _checked(asked, url)


def _checked(asked: str, url: str) -> str:
    """The URL of another broker, as one has named it. It has no user and no query. From TLS the way leads to TLS alone,
    since the password is sent again."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not ("@" in url or "?" in url)
    except ValueError:
        usable = False
    if not usable:
        raise ManagementError(f"{asked} leads to {url[:300]!r}, which is no URL of a management port", 421)
    if parts.scheme == "http" and asked.startswith("https:"):
        raise ManagementError(f"{asked} leads to {url}, which has no TLS: nothing is sent there", 421)
    return url.rstrip("/")


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _refusal(error: urllib.error.HTTPError) -> ManagementError:
    try:
        answer = json.loads(error.read())
        return ManagementError(str(answer["text"]), error.code, answer.get("details"))
    except (OSError, ValueError, TypeError, KeyError, http.client.HTTPException):  # none, or it ended in the middle
        return ManagementError(f"the management port answered {error.code}; is it one of SieveMQ's?", error.code)
