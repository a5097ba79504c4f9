"""Names of destinations for a shell that completes them, from the broker that the command line means.

A shell waits meanwhile and shows no error: a broker that does not answer soon has no names.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import typer

from sievemq.cli.contexts import context_in_effect, credentials
from sievemq.cli.local import HTTP_PORT, settings_of, urls_of

#: Seconds that the broker may take, and names that are offered.
_SECONDS: Final = 2.0
_NAMES: Final = 100


def names_of(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """What completes a destination.

    Args:
        kind: of a bare name, `queue` or `topic`. A user may have begun with `queue:` or `topic:`.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        begun, colon, name = incomplete.rpartition(":")
        if begun not in ("", "queue", "topic"):
            return []
        try:
            with redirect_stderr(io.StringIO()):  # commands end with an error, which would stand amid the prompt
                found = _names(ctx.params, begun or kind, name)
        except Exception:  # no broker, another server that answers, a URL that is not whole yet
            return []
        return [f"{begun}{colon}{each}" for each in found]

    return complete


def _names(given: Mapping[str, Any], kind: str, begun: str) -> list[str]:
    from sievemq._management import Management, place
    from sievemq.cli.management_url import split_http, tls_of

    url, namespace = _place_of(given)
    parts = split_http(url)
    user, password = credentials(given.get("user"), "http", url, may_ask=False)
    base = f"{parts.scheme}://{parts.netloc}{parts.path}"
    api = Management(base, user, password, tls_of(parts), timeout=_SECONDS)
    rows = api.rows(f"{place(namespace)}/destinations", "destinations", _NAMES, kind=kind, like=f"{begun}*")
    names = [str(row["name"]) for row in rows]
    return [name for name in names if name.startswith(begun) and shlex.quote(name) == name]


def _place_of(given: Mapping[str, Any]) -> tuple[str, str]:
    """The management port and the namespace that a command means; one that names the wire port has both in its URL, as
    far as they are known."""
    if (http := given.get("http")) is not None:
        return str(http), given.get("namespace") or "default"
    url = str(given.get("url") or "sievemq://127.0.0.1")
    parts = urlsplit(url)
    namespace = unquote(parts.path.strip("/")) or "default"
    saved, local = context_in_effect(), urls_of(settings_of(os.environ))
    known = os.environ.get("SIEVEMQ_HTTP_URL")
    if known is None and saved is not None and saved.url == url:
        known = saved.http
    if known is None and local.get("SIEVEMQ_URL") == url:
        known = local.get("SIEVEMQ_HTTP_URL")
    if known is None:
        host = parts.netloc.rpartition("@")[2].partition(",")[0]
        host = host if host.endswith("]") else host.rpartition(":")[0] or host
        known = f"http{'s' if parts.scheme == 'sievemqs' else ''}://{host}:{HTTP_PORT}"
    return known, namespace


queues, topics = names_of("queue"), names_of("topic")
