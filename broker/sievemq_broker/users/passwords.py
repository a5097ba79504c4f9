"""Passwords as argon2id hashes, or as keys of SCRAM-SHA-256: made, recognised, checked.

A hash is the usual text, ``$argon2id$v=19$m=…,t=…,p=…$salt$key``. The cost is what OWASP's password storage sheet gives
for argon2id with little memory: some 20 ms and 19 MiB for one check, which is why it never runs on the broker's loop
(`server/authenticator.py`). argon2-cffi is imported at the first hash: a broker without users never needs it.

SCRAM (RFC 5802, RFC 7677) proves that a client knows the password without sending it, which an argon2id hash cannot
check. Its keys are written as PostgreSQL does, ``SCRAM-SHA-256$rounds:salt$stored key:server key``, in base64.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from argon2 import PasswordHasher

#: A password is text for people; more would only be work for the broker.
MAX_PASSWORD_CHARS = 1_024

_MEMORY_KIB, _ROUNDS, _LANES = 19 * 1024, 2, 1
_PREFIX = "$argon2"
_FORM = re.compile(r"\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,2})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}")
SCRAM = "SCRAM-SHA-256"
_SCRAM_FORM = re.compile(
    r"SCRAM-SHA-256\$(\d{1,7}):([A-Za-z0-9+/]{16,86}={0,2})\$([A-Za-z0-9+/]{43}=):([A-Za-z0-9+/]{43}=)"
)
#: Rounds of PBKDF2: with fewer, keys that leak are guessed sooner; the client works through them at each sign-in.
_SCRAM_ROUNDS, LEAST_ROUNDS, _MAX_SCRAM_ROUNDS = 100_000, 4_096, 1_000_000
#: Bytes of a salt that is made here.
SALT_BYTES = 32
_MAX_MEMORY_KIB, _MAX_ROUNDS, _MAX_LANES = 256 * 1024, 16, 16  # what a hash in a file may ask of the broker


class ScramKeys(NamedTuple):
    """The keys that check a SCRAM-SHA-256 sign-in.

    Attributes:
        salt: random bytes.
        stored_key: the client proves that it knows what this is the hash of.
        server_key: with it the broker proves that it knows the user.
        rounds: of PBKDF2.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    rounds: int


def is_hash(secret: str) -> bool:
    """True for a hash or keys of SCRAM, or for what begins like these."""
    return secret.startswith((_PREFIX, "scrypt$", f"{SCRAM}$"))


def is_scram(secret: str) -> bool:
    """True for keys of SCRAM, or for what begins like these."""
    return secret.startswith(f"{SCRAM}$")


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
            "of it with `sievemq user hash`, or set it again with `sievemq user password`"
        )
    if is_scram(secret):
        keys = _SCRAM_FORM.fullmatch(secret)
        if keys is None or not LEAST_ROUNDS <= int(keys[1]) <= _MAX_SCRAM_ROUNDS:
            raise ValueError(
                f"the password of user {name!r} begins like keys of SCRAM, but is not valid: they have "
                f"{LEAST_ROUNDS:,} to {_MAX_SCRAM_ROUNDS:,} rounds; `sievemq user hash --scram` makes them"
            )
        return
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


def hash_password(password: str, *, scram: bool = False) -> str:
    """A password as a users file or a configuration holds it.

    Args:
        password: in clear.
        scram: as keys of SCRAM-SHA-256.

    Raises:
        ValueError: it is empty or longer than MAX_PASSWORD_CHARS.
    """
    if not 1 <= len(password) <= MAX_PASSWORD_CHARS:
        raise ValueError(f"a password has 1 to {MAX_PASSWORD_CHARS} characters")
    if scram:
        keys = _keys_of(password, None, _SCRAM_ROUNDS)
        salt, stored, server = (b64encode(part).decode() for part in keys[:3])
        return f"{SCRAM}${keys.rounds}:{salt}${stored}:{server}"
    return _hasher().hash(_encode(password))


def scram_keys(secret: str, own_salt: bytes = b"", own_rounds: int = LEAST_ROUNDS) -> ScramKeys:
    """The keys in a secret, or of a password in clear.

    Args:
        secret: keys that :func:`check_hash` let pass, or a password.
        own_salt: for a password.
        own_rounds: for a password.

    Raises:
        ValueError: the password has characters that SCRAM does not allow.
    """
    if not is_scram(secret):
        return _keys_of(secret, own_salt, own_rounds)
    rounds, salt, stored, server = _SCRAM_FORM.fullmatch(secret).groups()  # type: ignore[union-attr]  # it was checked
    return ScramKeys(b64decode(salt), b64decode(stored), b64decode(server), int(rounds))


def _keys_of(password: str, salt: bytes | None, rounds: int) -> ScramKeys:
    from scramp import ScramException, ScramMechanism  # only brokers with such users need it

    try:
        return ScramKeys(*ScramMechanism(SCRAM).make_auth_info(password, iteration_count=rounds, salt=salt))
    except ScramException as error:
        raise ValueError(f"the password cannot be used with SCRAM: {error}") from None


def verify(secret: str, password: str) -> bool:
    """True if `password` is the one that was hashed. Takes tens of milliseconds, outside of the interpreter's lock.

    Args:
        secret: a hash that :func:`check_hash` let pass.
        password: the claimed password.
    """
    if is_scram(secret):
        keys = scram_keys(secret)
        try:
            return hmac.compare_digest(_keys_of(password, keys.salt, keys.rounds).stored_key, keys.stored_key)
        except ValueError:
            return False
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
