"""Packages of the extras ``broker``, ``postgres`` and ``otlp``. A broker without HTTP, password hashes, a shared store
and a collector needs none of them."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Final

from sievemq_broker.config import Settings
from sievemq_broker.users.passwords import is_hash, is_scram

_HTTP: Final = ("starlette", "uvicorn", "prometheus_client", "msgspec")
_HASHES: Final = ("argon2",)
_SCRAM: Final = ("scramp",)
ALL: Final = (*_HTTP, *_HASHES)
_POSTGRES: Final = ("psycopg",)
_OTLP: Final = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk", "prometheus_client")
_EXTRAS: Final = {_POSTGRES: "postgres", _OTLP: "otlp"}


@lru_cache
def has(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # one that it is in
        return False


def check_packages(settings: Settings) -> None:
    """Raise if something is missing that these settings need.

    Raises:
        ImportError: names it.
    """
    needs: dict[str, tuple[str, ...]] = {"HTTP": _HTTP} if settings.http else {}
    for user in settings.users.values():
        if is_scram(user.secret):
            needs["A user with keys of SCRAM"] = _SCRAM
        elif is_hash(user.secret):
            needs["A user with a hashed password"] = _HASHES
    if settings.store is not None:
        needs["A store in PostgreSQL"] = _POSTGRES
    if settings.otlp is not None:
        needs["Export to a collector"] = _OTLP
    for what, packages in needs.items():
        missing = [package for package in packages if not has(package)]
        if missing:
            extra = _EXTRAS.get(packages, "broker")
            raise ImportError(
                f"{what} needs {', '.join(missing)}, which the extra `{extra}` installs: pip install 'sievemq[{extra}]'"
            )
