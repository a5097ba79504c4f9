"""The users of a broker: names, secrets, rights, and which passwords were found right already.

A secret is an argon2id hash or holds keys of SCRAM (`passwords.py`) or, where a file holds nothing else, such as in
tests, the password itself. What was checked once is remembered as a keyed digest in memory, so that a client which
reconnects a thousand times costs one hash.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from sievemq_broker.session.rights import ALL_RIGHTS, Identity, Rights
from sievemq_broker.users.passwords import (
    LEAST_ROUNDS,
    SALT_BYTES,
    SCRAM,
    ScramKeys,
    check_hash,
    is_hash,
    is_scram,
    scram_keys,
    verify,
)


@dataclass(frozen=True, slots=True)
class User:
    """One user.

    Args:
        name: the name.
        secret: the password, as an argon2id hash, keys of SCRAM, or clear. Never shown.
        rights: what the user may do; everything by default.
    """

    name: str
    secret: str = field(repr=False)
    rights: Rights = ALL_RIGHTS

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.rights)


class Users:
    """All users of a broker, at one time: a change makes a new one.

    Args:
        users: by name.
        required: True requires a user even if there is none; None: if there are any.
        before: the users until now. What is remembered of those that did not change stays remembered.
        key: the salts of unknown names are made with it, and those of passwords in clear. To be the same after a
            restart, as salts that are stored with a user's keys are; a random one if not given.

    Raises:
        ValueError: a hash that cannot be used; the text names the user.
    """

    def __init__(
        self,
        users: Mapping[str, User],
        *,
        required: bool | None = None,
        before: Users | None = None,
        key: bytes | None = None,
    ) -> None:
        self._users = dict(users)
        #: True if a name and a password are required.
        self.required = bool(self._users) if required is None else required
        self._key: bytes = before._key if before is not None else secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}  # by name: the digest of the password that is known to be right
        hashes = []
        for name, user in self._users.items():
            if is_hash(user.secret):
                check_hash(name, user.secret)
                hashes.append(user.secret)
                old = before.find(name) if before is not None else None
                if before is not None and old is not None and old.secret == user.secret and name in before._right:
                    self._right[name] = before._right[name]
            else:
                self._right[name] = self.digest(name, user.secret)
        #: The hash against which a wrong name is checked, so that it takes as long as a wrong password; None if no user
        #: has a hash.
        self._decoy = hashes[0] if hashes else None
        self._salts: bytes = key or (before._salts if before is not None else self._key)
        #: Length of the salt and rounds of each user with keys: what clients see of any name is one of these.
        self._forms = sorted(
            {
                (len(keys.salt), keys.rounds)
                for keys in [scram_keys(user.secret) for user in self._users.values() if is_scram(user.secret)]
            }
        ) or [(SALT_BYTES, LEAST_ROUNDS)]
        self._keys: dict[str, ScramKeys | None] | None = None

    def __len__(self) -> int:
        return len(self._users)

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def knows(self, user: User) -> bool:
        """True if this user is still one, with the same secret; its rights may be others."""
        found = self._users.get(user.name)
        return found is not None and found.secret == user.secret

    def names(self) -> frozenset[str]:
        return frozenset(self._users)

    def digest(self, name: str, password: str) -> bytes:
        """A digest that replaces a password in memory. Its length and the time of a comparison reveal nothing."""
        return hmac.digest(self._key, f"{name}\0{password}".encode("utf-8", "surrogatepass"), "sha256")

    def remembered(self, name: str, digest: bytes) -> User | None:
        """The user, if this is the digest of the password that is known to be right."""
        return self._users.get(name) if hmac.compare_digest(digest, self._right.get(name, b"")) else None

    @property
    def hashed(self) -> bool:
        """True if a wrong password has to be hashed to be known as wrong."""
        return self._decoy is not None

    def check(self, name: str, password: str) -> bool:
        """Hash a password. Slow, and safe in any thread; the same work whether the name or the password is wrong."""
        user = self._users.get(name)
        if user is not None and is_hash(user.secret):
            return verify(user.secret, password)
        if self._decoy is not None:
            verify(self._decoy, password)  # ignore the result: there is no such user, or the clear password was wrong
        return False

    def remember(self, name: str, digest: bytes) -> User | None:
        """The password of this digest was right; returns whose it is."""
        if name in self._users:
            self._right[name] = digest
        return self._users.get(name)

    @property
    def scram(self) -> bool:
        """True if every user can sign in by SCRAM, so that it can be offered before the user is known."""
        return self.required and all(is_scram(user.secret) or not is_hash(user.secret) for user in self._users.values())

    def use_key(self, key: bytes) -> None:
        """Make the salts of unknown names, and those of passwords in clear, with this key from now on."""
        self._salts = key
        self._keys = None

    def scram_keys(self, name: str) -> ScramKeys:
        """The keys that check a SCRAM sign-in of this user; for an unknown name, keys that no password matches. Neither
        the salt nor the rounds, nor the time that it takes to find them, show whether there is such a user.

        Raises:
            ValueError: the password, which is stored clear, has characters that SCRAM does not allow.
        """
        if self._keys is None:  # of all users, so that none takes longer than another later on
            self._keys = {each: self._keys_of(user) for each, user in self._users.items()}
        salt, rounds = self._form(name)
        own = self.digest(name, "")
        keys = self._keys.get(name, ScramKeys(salt, own, own, rounds))
        if keys is None:
            raise ValueError(f"the password of user {name!r} cannot be used with {SCRAM}")
        return keys

    def _keys_of(self, user: User) -> ScramKeys | None:
        if is_hash(user.secret) and not is_scram(user.secret):
            return None  # SCRAM is not offered
        try:
            return scram_keys(user.secret, *self._form(user.name))
        except ValueError:
            return None

    def _form(self, name: str) -> tuple[bytes, int]:
        """The salt and the rounds of a name without keys."""
        made = hmac.digest(self._salts, name.encode("utf-8", "surrogatepass"), "sha512")
        size, rounds = self._forms[made[-1] % len(self._forms)]
        return made[:size], rounds
