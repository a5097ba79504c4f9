"""Under which names the management port answers: a guard against DNS rebinding and requests from other sites.

A page on the internet may let its own name lead to 127.0.0.1 and then, for the browser, talks to "itself" when it talks
to a broker on that machine. It cannot do so under a name that it does not control: an IP address, ``localhost``, a name
without a dot (another container's), or one that the operator named (``http_host``, ``http_hosts``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit


class Hosts:
    """The names that are answered to.

    Args:
        names: further ones; ``*`` for any, where something in front checks them.
    """

    __slots__ = ("_any", "_names")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._any = "*" in self._names

    def allow(self, host: str) -> bool:
        """True for a Host header that may be answered.

        Args:
            host: as it came: a name or an address, perhaps with a port.
        """
        name = _name(host)
        if name is None:
            return False
        if self._any or name in self._names or name.endswith(".localhost"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return "." not in name
        return True


def port_of(host: str, scheme: str) -> int:
    """The port of a Host header that is answered to; that of the scheme if it names none."""
    return urlsplit(f"//{host}").port or _PORTS.get(scheme, 0)


def is_same_site(host: str, origin: str | None, fetch_site: str | None) -> bool:
    """True unless a browser reports that a page of another site sent a request.

    Args:
        origin: the Origin header, which browsers send with everything that changes something.
    """
    if fetch_site is not None and fetch_site not in ("same-origin", "none"):
        return False
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
        there = (parts.hostname, parts.port or _PORTS.get(parts.scheme))
        here = urlsplit(f"{parts.scheme}://{host}")
        return parts.hostname is not None and there == (here.hostname, here.port or _PORTS.get(parts.scheme))
    except ValueError:
        return False


_NAME = re.compile(r"[a-z0-9._:%-]+")
_PORTS = {"http": 80, "https": 443}


def _name(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        parts.port  # noqa: B018  raises for a port that is none
    except ValueError:
        return None
    if not name or not _NAME.fullmatch(name) or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return name.rstrip(".")
