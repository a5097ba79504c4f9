"""Where the broker on this machine listens, from its own settings: in a container commands find it without options.

In the broker's order: options of process 1 (in a container the broker, or an init that started it), environment,
configuration file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

#: The command line of a container's main process.
MAIN: Final = "/proc/1/cmdline"

_SETTINGS: Final = ("host", "port", "http", "http_host", "http_port", "tls_cert")
HTTP_PORT, WIRE_PORT = "7680", "7672"


def settings_of(environ: Mapping[str, str], main: str = MAIN) -> dict[str, str]:
    """The host and ports of the broker on this machine, as far as they are set.

    Args:
        environ: the environment, which a container's processes share.
        main: file with the command line of the broker's process.
    """
    given = _options(main) or {}
    found: dict[str, str] = {}
    config = given.get("config") or environ.get("SIEVEMQ_CONFIG")
    if config:
        from sievemq_core.toml import parse_toml  # most have no file

        try:
            table = parse_toml(Path(config).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            table = {}  # the broker did not start with it either
        found |= {name: str(table[name]) for name in _SETTINGS if name in table}
    found |= {name: value for name in _SETTINGS if (value := environ.get(f"SIEVEMQ_{name.upper()}"))}
    return found | given


def is_main(main: str = MAIN) -> bool:
    """True if the broker is the main process of this container."""
    return _options(main) is not None


def urls_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The URLs of a broker with these settings, by the variables of the environment that name the same. What is not set
    is left out: commands have the same defaults as the broker."""
    tls = settings.get("tls_cert", "")
    secure, options = ("s", f"?tls_ca={quote(tls)}") if tls else ("", "")
    found: dict[str, str] = {}
    for variable, scheme, hosts, port, default in (
        ("SIEVEMQ_URL", "sievemq", ("host",), "port", WIRE_PORT),
        ("SIEVEMQ_HTTP_URL", "http", ("http_host", "host"), "http_port", HTTP_PORT),
    ):
        number = settings.get(port, default)
        if number.isdecimal() and number != "0" and any(map(settings.get, (*hosts, port, "tls_cert"))):
            found[variable] = f"{scheme}{secure}://{host_of(settings, *hosts)}:{number}{options}"
    return found


def host_of(settings: Mapping[str, str], *names: str) -> str:
    """The host at which this machine reaches a broker with these settings, as a URL has it."""
    host = next((value for value in map(settings.get, names) if value), "127.0.0.1")
    if host in ("0.0.0.0", "::"):  # noqa: S104  what a broker listens on, not what we bind
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _options(main: str) -> dict[str, str] | None:
    """Options after ``broker`` on a command line; None if there is no broker on it."""
    try:
        words = Path(main).read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:  # no Linux, or another user's process
        return None
    program = next((at for at, word in enumerate(words) if Path(word).name == "sievemq"), None)
    if program is None or words[program + 1 : program + 2] != ["broker"]:
        return None
    found: dict[str, str] = {}
    rest = iter(words[program + 2 :])
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        if name in ("http", "no-http"):
            found["http"] = str(name == "http")
        elif word.startswith("--") and (setting := name.replace("-", "_")) in (*_SETTINGS, "config"):
            found[setting] = value if equals else next(rest, "")
    return found
