"""``sievemq broker`` without the command-line library, which imports for longer than the broker does.

Plain command lines are read here, by the settings alone. Whatever else there is (help, completion, a mistake, a missing
extra) is left to :mod:`sievemq_broker.cli`, which knows how to say it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from importlib.util import find_spec

from sievemq_broker.config import ConfigError, Settings, load

__all__ = ["PACKAGES", "broker"]

#: What the extra `broker` installs and a broker cannot do without.
PACKAGES = ("structlog", "starlette", "uvicorn", "prometheus_client", "argon2", "msgspec")

_TABLES = ("users", "destinations", "namespaces")
_NAMES = {"--" + f.name.replace("_", "-"): f.name for f in fields(Settings) if f.name not in _TABLES}
_FLAGS = {
    **{f"--{name}": (name.replace("-", "_"), True) for name in ("http", "insecure", "json-logs", "auto-create")},
    "--no-http": ("http", False),
    "--console-logs": ("json_logs", False),
    "--no-auto-create": ("auto_create", False),
}


def broker(arguments: Sequence[str]) -> int | None:
    """Run a broker.

    Args:
        arguments: what stands behind ``sievemq broker``.

    Returns:
        the exit code; None if the arguments are not plain, and nothing was done.
    """
    given = read(arguments)
    if given is None or not all(map(find_spec, PACKAGES)):
        return None
    config = given.pop("config", None)
    try:
        settings = load(given, os.environ, str(config) if config else None).settings
    except ConfigError:
        return None
    from sievemq_broker.server.process import run

    return run(settings)


def read(arguments: Sequence[str]) -> dict[str, object] | None:
    """Settings from ``--name value`` and ``--name=value``; None if there is anything else."""
    given: dict[str, object] = {}
    users: list[str] = []
    rest = list(reversed(arguments))
    while rest:
        option, equals, value = rest.pop().partition("=")
        if option in _FLAGS and not equals:
            name, flag = _FLAGS[option]
            given[name] = flag
            continue
        if not equals:
            if not rest:
                return None
            value = rest.pop()
        if option == "--user":
            users.append(value)
        elif option == "--config":
            given["config"] = value
        elif option in _NAMES and option not in _FLAGS:
            given[_NAMES[option]] = value
        else:
            return None
    if users:
        given["users"] = ",".join(users)
    return given
