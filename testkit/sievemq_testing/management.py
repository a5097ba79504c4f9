"""The management API of a broker elsewhere, as the views of :mod:`remote` ask it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from sievemq.exceptions import JMSException
from sievemq.tls import tls_context
from sievemq.url import BrokerURL

__all__ = ["DEFAULT_PORT", "Management", "ManagementError", "place"]

DEFAULT_PORT: Final = 7680
_TIMEOUT: Final = 60.0
_ROWS: Final = 500


class ManagementError(Exception):
    """The management port does not answer, or refuses.

    Attributes:
        status: of the HTTP answer; 0 if there was none.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Management:
    """The management API of one broker.

    Args:
        url: of the management port.
        broker: of the wire port: its user, password and TLS options apply here too.
    """

    def __init__(self, url: str, broker: BrokerURL) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ManagementError(
                f"{url!r} is no URL of a management port; write it as http://localhost:{DEFAULT_PORT}"
            )
        self._headers = {"Accept": "application/json"}
        if broker.user is not None:
            secret = f"{broker.user}:{broker.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret).decode()}"
        chosen = broker.options
        self._tls: ssl.SSLContext | None = None
        if self.url.startswith("https://"):
            try:
                self._tls = tls_context(
                    ca=chosen.tls_ca, cert=chosen.tls_cert, key=chosen.tls_key, verify=chosen.tls_verify
                )
            except JMSException as error:
                raise ManagementError(str(error)) from error

    def ask(
        self, path: str, method: str = "GET", body: object = None, query: Mapping[str, object] | None = None
    ) -> Any:
        """One request.

        Args:
            path: below ``/api/v1``.
            method: of HTTP.
            body: as JSON; None for none.
            query: parameters.

        Raises:
            ManagementError: no answer, or a refusal.
        """
        url = f"{self.url}/api/v1{path}{f'?{urlencode(query)}' if query else ''}"
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  http and https only
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT, context=self._tls) as answer:  # noqa: S310
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                raise ManagementError(f"{self.url} refuses {method} {path}: {_text_of(error)}", error.code) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ManagementError(f"no management port answers at {self.url}: {reason}") from error

    def rows(self, path: str, key: str, **query: object) -> Iterator[dict[str, Any]]:
        """All rows of a list, page after page."""
        cursor: dict[str, object] = {}
        while True:
            page = self.ask(path, query={"limit": _ROWS, **cursor, **query})
            yield from page[key]
            if page["next"] is None:
                return
            cursor = {"cursor": page["next"]}

    def find(self, path: str) -> dict[str, Any] | None:
        """What is there; None if there is nothing."""
        try:
            found: dict[str, Any] = self.ask(path)
        except ManagementError as error:
            if error.status == 404:
                return None
            raise
        return found


def place(namespace: str, address: str = "", *rest: str) -> str:
    """The path of a namespace, of a destination in it, and of what is below that."""
    parts = ["/namespaces", quote(namespace, safe="")]
    if address:
        parts += ["destinations", quote(address, safe="")]
    return "/".join([*parts, *rest])


def _text_of(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["text"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
