"""``sievemq healthcheck``: the probe of a container that has no curl."""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Annotated
from urllib.parse import urlsplit

import typer

from sievemq.cli.exits import FAILED, OK, USAGE

__all__ = ["healthcheck"]

_HTTP_PORT, _WIRE_PORT = "7680", "7672"
_OFF = frozenset({"0", "false", "no", "off"})


def healthcheck(
    url: Annotated[
        str | None,
        typer.Option("--url", help="What to ask; http://127.0.0.1:PORT/readyz, PORT from SIEVEMQ_HTTP_PORT or 7680."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")] = 3.0,
) -> None:
    """Ask the broker on this machine whether it is ready.

    Without HTTP (SIEVEMQ_HTTP=false) it asks whether the wire port accepts connections.
    Exit codes: 0 ready, 1 not ready or not there, 2 the URL is wrong.
    """
    if url is None and os.environ.get("SIEVEMQ_HTTP", "").lower() in _OFF:
        answer, ready = _ask_wire(_local_host("SIEVEMQ_HOST"), os.environ.get("SIEVEMQ_PORT", _WIRE_PORT), timeout)
    else:
        host = _local_host("SIEVEMQ_HTTP_HOST", "SIEVEMQ_HOST")
        answer, ready = _ask_http(
            url or f"http://{host}:{os.environ.get('SIEVEMQ_HTTP_PORT', _HTTP_PORT)}/readyz", timeout
        )
    typer.echo(answer, err=not ready)
    raise typer.Exit(OK if ready else FAILED)


def _local_host(*variables: str) -> str:
    """Where a broker that listens on what the variables say is reached from this machine."""
    host = next((value for value in map(os.environ.get, variables) if value), "127.0.0.1")
    if host in ("0.0.0.0", "::"):  # noqa: S104  what a broker listens on, not what we bind
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _ask_http(url: str, timeout: float) -> tuple[str, bool]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme != "http" or not parts.hostname or port == -1:
        typer.echo(f"sievemq: {url!r} is not of the form http://host:port/path", err=True)
        raise typer.Exit(USAGE)
    # http.client and not urllib: a proxy of the environment has no business between a broker and its probe.
    connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout)
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
