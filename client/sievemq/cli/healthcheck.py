"""``sievemq healthcheck``: the probe of a container that has no curl.

In a broker's container it asks that broker, whose settings say where it listens (local.py). Elsewhere SIEVEMQ_HTTP_URL
names one, as for the other commands.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from typing import Annotated
from urllib.parse import urlsplit

import typer

from sievemq.cli.exits import FAILED, OK, USAGE
from sievemq.cli.local import HTTP_PORT, MAIN, WIRE_PORT, host_of, is_main, settings_of
from sievemq_core.output import complain, report

_OFF = frozenset({"0", "false", "no", "off"})


def healthcheck(
    url: Annotated[
        str | None,
        typer.Option("--url", help="URL to request (default: /readyz at the port in the broker's settings)."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")] = 3.0,
) -> None:
    """Check whether the broker on this machine is ready.

    It reads the broker's settings: options of process 1, SIEVEMQ_… variables, the configuration file. If process 1 is
    no broker, SIEVEMQ_HTTP_URL goes before them. Without HTTP (SIEVEMQ_HTTP=false) the check is whether the wire port
    accepts connections.
    Exit codes: 0 ready, 1 not ready or not running, 2 the URL is wrong.
    """
    try:
        answer, ready = probe(url, timeout)
    except ValueError as error:
        complain(f"sievemq: {error}")
        raise typer.Exit(USAGE) from None
    if ready:
        report(answer)
    else:
        complain(answer)
    raise typer.Exit(OK if ready else FAILED)


def probe(url: str | None, timeout: float, main: str = MAIN) -> tuple[str, bool]:
    """Check once.

    Args:
        url: the health endpoint; None to find it in the broker's settings.
        timeout: seconds.
        main: file with the command line of the broker's process.

    Returns:
        the answer for people, and whether it is yes.

    Raises:
        ValueError: the URL is none.
    """
    if url is not None:
        return _ask_http(url, timeout, None)
    named = os.environ.get("SIEVEMQ_HTTP_URL")
    if named and not is_main(main):  # in a broker's container, that broker is meant
        from sievemq.cli.management_url import split_http, tls_of

        parts = split_http(named)
        return _ask_http(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/readyz", timeout, tls_of(parts))
    settings = settings_of(os.environ, main)
    if settings.get("http", "").lower() in _OFF:
        return _ask_wire(host_of(settings, "host"), settings.get("port") or WIRE_PORT, timeout)
    host = host_of(settings, "http_host", "host")
    port = settings.get("http_port") or HTTP_PORT
    if not settings.get("tls_cert"):
        return _ask_http(f"http://{host}:{port}/readyz", timeout, None)
    # The broker on this machine, by its address: its certificate has another name, and nothing secret is sent.
    from sievemq.tls import tls_context

    blind = tls_context(ca=None, cert=None, key=None, verify=False)
    return _ask_http(f"https://{host}:{port}/readyz", timeout, blind)


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
