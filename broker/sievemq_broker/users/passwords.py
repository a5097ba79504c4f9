"""Passwords as argon2id hashes: made, recognised, checked.

A hash is the usual text, ``$argon2id$v=19$m=…,t=…,p=…$salt$key``. The cost is what OWASP's password storage sheet gives
for argon2id with little memory: some 20 ms and 19 MiB for one check, which is why it never runs on the broker's loop
(`server/authenticator.py`). argon2-cffi is imported at the first hash: a broker without users never needs it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argon2 import PasswordHasher

__all__ = ["MAX_PASSWORD_CHARS", "check_hash", "hash_password", "is_hash", "verify"]

#: A password is text for people; more would only be work for the broker.
MAX_PASSWORD_CHARS = 1_024

_MEMORY_KIB, _ROUNDS, _LANES = 19 * 1024, 2, 1
_PREFIX = "$argon2"
_FORM = re.compile(r"\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,2})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}")
_MAX_MEMORY_KIB, _MAX_ROUNDS, _MAX_LANES = 256 * 1024, 16, 16  # what a hash in a file may ask of the broker


def is_hash(secret: str) -> bool:
    """True for a hash, or for what begins like one."""
    return secret.startswith((_PREFIX, "scrypt$"))


def check_hash(name: str, secret: str) -> None:
    """Check the form of a hash.

    Args:
        name: whose it is, for the error.
        secret: for which :func:`is_hash` is true.

    Raises:
        ValueError: it cannot be used; the text names what to do, and never shows it.
    """
    if secret.startswith("scrypt$"):
        raise ValueError(
            f"the password of user {name!r} is a scrypt hash, which this version does not read; make an argon2id hash "
            "of it with `sievemq user hash`, or set it anew with `sievemq user password`"
        )
    match = _FORM.fullmatch(secret)
    if match is None:
        raise ValueError(
            f"the password of user {name!r} begins like a hash but is no argon2id hash; `sievemq user hash` makes one"
        )
    memory, rounds, lanes = map(int, match.groups())
    if not (lanes * 8 <= memory <= _MAX_MEMORY_KIB and 1 <= rounds <= _MAX_ROUNDS and 1 <= lanes <= _MAX_LANES):
        raise ValueError(
            f"the hash of user {name!r} asks for {memory} KiB, {rounds} rounds and {lanes} lanes; at most "
            f"{_MAX_MEMORY_KIB} KiB, {_MAX_ROUNDS} rounds and {_MAX_LANES} lanes are worked through here"
        )


def hash_password(password: str) -> str:
    """A password as a users file or a configuration holds it.

    Raises:
        ValueError: it is empty or longer than MAX_PASSWORD_CHARS.
    """
    if not 1 <= len(password) <= MAX_PASSWORD_CHARS:
        raise ValueError(f"a password has 1 to {MAX_PASSWORD_CHARS} characters")
    return _hasher().hash(_encode(password))


def verify(secret: str, password: str) -> bool:
    """True if `password` is the one that was hashed. Takes tens of milliseconds, outside of the interpreter's lock.

    Args:
        secret: a hash that :func:`check_hash` let pass.
        password: the claimed password.
    """
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(secret, _encode(password))
    except (VerificationError, InvalidHashError):
        return False


def _encode(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")  # a lone surrogate is a wrong password, not a fault


def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # see the module's text

    return PasswordHasher(time_cost=_ROUNDS, memory_cost=_MEMORY_KIB, parallelism=_LANES)
