"""Who may come in: names and passwords, clear or hashed with scrypt.

A hash is text, ``scrypt$n$r$p$salt$key`` with salt and key in base64. The cost is chosen so that one check takes some
15 ms: it runs on the broker's loop. What was checked once is remembered as a keyed digest in memory, so that a client
that reconnects a thousand times costs it once.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping

from sievemq_broker.session.services import AuthenticationError, Identity

__all__ = ["Users", "hash_password"]

_N, _R, _P = 2**13, 8, 1
_MAX_COST = 2**17  # what a hash in a configuration may ask for: 128 · n · r bytes of memory
_PREFIX = "scrypt$"


def hash_password(password: str) -> str:
    """A password as a configuration may hold it."""
    salt = secrets.token_bytes(16)
    key = _scrypt(password, salt, _N, _R, _P)
    return f"{_PREFIX}{_N}${_R}${_P}${b64encode(salt).decode()}${b64encode(key).decode()}"


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    encoded = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(encoded, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=32)


class Users:
    """The users of a broker.

    Args:
        users: secret by name; empty lets everybody in, whatever they say.

    Raises:
        ValueError: a hash that is not of the form above; the text names the user.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._secrets = dict(users)
        self._key = secrets.token_bytes(32)
        self._checked: dict[str, bytes] = {}
        for name, secret in self._secrets.items():
            if secret.startswith(_PREFIX):
                _read_hash(name, secret)

    @property
    def required(self) -> bool:
        """True if a name and a password are asked for."""
        return bool(self._secrets)

    def authenticate(self, user: str | None, password: str | None) -> Identity:
        """Check credentials.

        Raises:
            AuthenticationError: the same text whether the name or the password is wrong.
        """
        if not self._secrets:
            return Identity(user or None)
        secret = self._secrets.get(user or "")
        if secret is None or not self._matches(user or "", password or "", secret):
            text = "user name or password is wrong" if user else "this broker asks for a user name and a password"
            raise AuthenticationError(text)
        return Identity(user)

    def _matches(self, name: str, password: str, secret: str) -> bool:
        # Digests of equal length are compared, so neither length nor content shows in the time it takes.
        said = self._digest(password)
        if not secret.startswith(_PREFIX):
            return hmac.compare_digest(said, self._digest(secret))
        if hmac.compare_digest(said, self._checked.get(name, b"")):
            return True
        n, r, p, salt, key = _read_hash(name, secret)
        if not hmac.compare_digest(_scrypt(password, salt, n, r, p), key):
            return False
        self._checked[name] = said
        return True

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")


def _read_hash(name: str, text: str) -> tuple[int, int, int, bytes, bytes]:
    try:
        n, r, p, salt, key = text.removeprefix(_PREFIX).split("$")
        parts = int(n), int(r), int(p), b64decode(salt, validate=True), b64decode(key, validate=True)
        if not (2 <= parts[0] <= _MAX_COST and 1 <= parts[1] <= 32 and 1 <= parts[2] <= 16 and len(parts[4]) == 32):
            raise ValueError
        if parts[0] & (parts[0] - 1):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"the password of user {name!r} begins like a hash but is none; `sievemq config hash-password` makes one"
        ) from None
    return parts
