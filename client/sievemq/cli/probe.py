"""Is the broker on this machine ready? What ``sievemq healthcheck`` asks, without the command-line library: a container
is probed every few seconds."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from sievemq.cli.exits import FAILED, OK

__all__ = ["TIMEOUT", "probe", "quick"]

TIMEOUT = 3.0

_HTTP_PORT, _WIRE_PORT = "7680", "7672"
_OFF = frozenset({"0", "false", "no", "off"})


def quick(arguments: Sequence[str]) -> int | None:
    """``sievemq healthcheck`` without options; None, and nothing done, if there are any."""
    if arguments:
        return None
    answer, ready = probe(None, TIMEOUT)
    print(answer, file=sys.stdout if ready else sys.stderr)
    return OK if ready else FAILED


def probe(url: str | None, timeout: float) -> tuple[str, bool]:
    """Ask.

    Args:
        url: what to ask; None for what the environment says.
        timeout: seconds.

    Returns:
        the answer for people, and whether it is yes.

    Raises:
        ValueError: the URL is none.
    """
    if url is None and os.environ.get("SIEVEMQ_HTTP", "").lower() in _OFF:
        return _ask_wire(_local_host("SIEVEMQ_HOST"), os.environ.get("SIEVEMQ_PORT") or _WIRE_PORT, timeout)
    if url is not None:
        return _ask_http(url, timeout, None)
    host = _local_host("SIEVEMQ_HTTP_HOST", "SIEVEMQ_HOST")
    port = os.environ.get("SIEVEMQ_HTTP_PORT") or _HTTP_PORT
    if not os.environ.get("SIEVEMQ_TLS_CERT"):
        return _ask_http(f"http://{host}:{port}/readyz", timeout, None)
    # The broker on this machine, by its address: its certificate names it otherwise, and nothing secret is said.
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    return _ask_http(f"https://{host}:{port}/readyz", timeout, blind)


def _local_host(*variables: str) -> str:
    """Where a broker that listens on what the variables say is reached from this machine."""
    host = next((value for value in map(os.environ.get, variables) if value), "127.0.0.1")
    if host in ("0.0.0.0", "::"):  # noqa: S104  what a broker listens on, not what we bind
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _ask_http(url: str, timeout: float, tls: ssl.SSLContext | None) -> tuple[str, bool]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise ValueError(f"{url!r} is not of the form http://host:port/path")
    # http.client and not urllib: a proxy of the environment has no business between a broker and its probe.
    connection = (
        http.client.HTTPConnection(parts.hostname, port, timeout=timeout)
        if parts.scheme == "http"
        else http.client.HTTPSConnection(parts.hostname, port, timeout=timeout, context=tls)
    )
    try:
        connection.request("GET", parts.path or "/readyz")
        response = connection.getresponse()
        body = response.read(65_536)
    except (OSError, http.client.HTTPException) as error:
        return f"not ready: {url}: {str(error) or type(error).__name__}", False
    finally:
        connection.close()
    if response.status == 200:
        return "ready", True
    try:
        reasons = ", ".join(json.loads(body)["reasons"])
    except (ValueError, KeyError, TypeError):
        reasons = f"status {response.status}"
    return f"not ready: {reasons}", False


def _ask_wire(host: str, port: str, timeout: float) -> tuple[str, bool]:
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout):
            return "ready", True
    except (OSError, ValueError) as error:
        return f"not ready: {host}:{port}: {error}", False
