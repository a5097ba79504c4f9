"""The URL of a broker's management port, with its certificates."""

from __future__ import annotations

import ssl
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from sievemq._management import DEFAULT_HTTP_PORT
from sievemq.cli.contexts import end
from sievemq.cli.exits import USAGE
from sievemq.exceptions import JMSException
from sievemq.tls import tls_context

DEFAULT_HTTP: Final = f"http://127.0.0.1:{DEFAULT_HTTP_PORT}"
_EXAMPLE: Final = "https://mq.example.com:7680?tls_ca=server.pem"


def split_http(url: str) -> SplitResult:
    """The parts of the URL of a management port; one that is none ends the command."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets, a port that is none
        usable = False
    if not usable:
        end(f"{url!r} is no URL of a management port; write it as {DEFAULT_HTTP}", USAGE)
    if "@" in parts.netloc:  # not repeated: there may be a password in it
        end("the URL of a management port names no user; say --user, and the password in SIEVEMQ_PASSWORD", USAGE)
    return parts


def tls_of(url: SplitResult) -> ssl.SSLContext | None:
    """The TLS context with the certificates that a URL names; None for a URL without TLS."""
    try:
        given = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=True)) if url.query else {}
    except ValueError:
        end(f"{url.query!r} in the URL of the management port are no options; write {_EXAMPLE}", USAGE)
    unknown = given.keys() - {"tls_ca", "tls_cert", "tls_key", "tls_verify"}
    if unknown or given.get("tls_verify", "true") not in ("true", "false"):
        what = min(unknown) if unknown else f"tls_verify={given['tls_verify']}"
        end(f"{what!r} is no option here; there are tls_ca, tls_cert, tls_key and tls_verify=false", USAGE)
    if url.scheme == "http":
        if given:
            end(f"{min(given)} is for https; write {_EXAMPLE}", USAGE)
        return None
    verify = given.pop("tls_verify", "true") == "true"
    ca, cert, key = map(given.get, ("tls_ca", "tls_cert", "tls_key"))
    try:
        return tls_context(ca=ca, cert=cert, key=key, verify=verify)
    except JMSException as error:
        end(str(error), USAGE)
