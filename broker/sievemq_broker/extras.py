"""Packages of the extras ``broker`` and ``postgres``. A broker without HTTP, password hashes and a shared store needs
none of them."""

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
POSTGRES: Final = ("psycopg",)
A_STORE: Final = "A store in PostgreSQL"


@lru_cache
def has(package: str) -> bool:
    return find_spec(package) is not None


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
        needs[A_STORE] = POSTGRES
    for what, packages in needs.items():
        check(what, packages, "postgres" if packages is POSTGRES else "broker")


def check(what: str, packages: tuple[str, ...], extra: str) -> None:
    """Raise if one of the packages is missing.

    Args:
        what: needs them.
        packages: as they are imported.
        extra: installs them.

    Raises:
        ImportError: names it.
    """
    missing = [package for package in packages if not has(package)]
    if missing:
        raise ImportError(
            f"{what} needs {', '.join(missing)}, which the extra `{extra}` installs: pip install '.[{extra}]' in a "
            "clone of SieveMQ"
        )
