"""``sievemq healthcheck``: the probe of a container that has no curl.

Where the broker listens comes from its settings, in the broker's own order: options of process 1 (in a container the
broker, or an init that started it), environment, configuration file.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from sievemq.cli.exits import FAILED, OK, USAGE
from sievemq_core.output import complain, report

#: The command line of a container's main process.
MAIN: Final = "/proc/1/cmdline"

_SETTINGS: Final = ("host", "port", "http", "http_host", "http_port", "tls_cert")
_HTTP_PORT, _WIRE_PORT = "7680", "7672"
_OFF = frozenset({"0", "false", "no", "off"})


def healthcheck(
    url: Annotated[
        str | None,
        typer.Option("--url", help="URL to request (default: /readyz at the port in the broker's settings)."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")] = 3.0,
) -> None:
    """Check whether the broker on this machine is ready.

    It reads the broker's settings: options of process 1, SIEVEMQ_… variables, the configuration file. Without HTTP
    (SIEVEMQ_HTTP=false) the check is whether the wire port accepts connections.
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
    settings = settings_of(os.environ, main)
    if settings.get("http", "").lower() in _OFF:
        return _ask_wire(_local_host(settings, "host"), settings.get("port") or _WIRE_PORT, timeout)
    host = _local_host(settings, "http_host", "host")
    port = settings.get("http_port") or _HTTP_PORT
    if not settings.get("tls_cert"):
        return _ask_http(f"http://{host}:{port}/readyz", timeout, None)
    # The broker on this machine, by its address: its certificate has another name, and nothing secret is sent.
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    return _ask_http(f"https://{host}:{port}/readyz", timeout, blind)


def settings_of(environ: Mapping[str, str], main: str = MAIN) -> dict[str, str]:
    """The host and ports of the broker on this machine, as far as they are set.

    Args:
        environ: the environment, which a container's processes share.
        main: file with the command line of the broker's process.
    """
    given = _options(main)
    found: dict[str, str] = {}
    config = given.get("config") or environ.get("SIEVEMQ_CONFIG")
    if config:
        try:
            table = tomllib.loads(Path(config).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            table = {}  # the broker did not start with it either
        found |= {name: str(table[name]) for name in _SETTINGS if name in table}
    found |= {name: value for name in _SETTINGS if (value := environ.get(f"SIEVEMQ_{name.upper()}"))}
    return found | given


def _options(main: str) -> dict[str, str]:
    """Options after ``broker`` on a command line; none if there is no broker on it."""
    try:
        words = Path(main).read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:  # no Linux, or another user's process
        return {}
    program = next((at for at, word in enumerate(words) if Path(word).name == "sievemq"), None)
    if program is None or words[program + 1 : program + 2] != ["broker"]:
        return {}
    found: dict[str, str] = {}
    rest = iter(words[program + 2 :])
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        if name in ("http", "no-http"):
            found["http"] = str(name == "http")
        elif word.startswith("--") and (setting := name.replace("-", "_")) in (*_SETTINGS, "config"):
            found[setting] = value if equals else next(rest, "")
    return found


def _local_host(settings: Mapping[str, str], *names: str) -> str:
    """The URL at which this machine reaches a broker with these settings."""
    host = next((value for value in map(settings.get, names) if value), "127.0.0.1")
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
