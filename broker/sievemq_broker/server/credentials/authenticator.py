"""Authentication, for the wire and for HTTP: throttled, in constant time, never on the loop for long.

begin(user, password, address) ──> Identity                      known at once: no users, or remembered, or clear
                               ──> Future[Identity]              the hash is computed on a thread of its own
                               ──> AuthenticationError           wrong, or too many wrong ones before
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any

from sievemq_broker import logs
from sievemq_broker.extras import has
from sievemq_broker.server.credentials.throttle import Throttle
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import AuthenticationError
from sievemq_broker.users.account import Users
from sievemq_broker.users.passwords import MAX_PASSWORD_CHARS, SCRAM

#: The most different passwords that may wait to be hashed, some 20 ms each: more would only exceed the handshake's
#: time.
MAX_WAITING = 64

log = logs.get("security")


class TooManyAttemptsError(AuthenticationError):
    """The password was not checked: there were too many wrong ones, or too many are being checked.

    Args:
        text: for people.
        retry_after: seconds until it is worth trying again.
    """

    def __init__(self, text: str, retry_after: int) -> None:
        super().__init__(text, details={"retry_after": retry_after})
        self.retry_after = retry_after


class Authenticator:
    """Checks credentials. Belongs to the loop's thread.

    Args:
        users: those that may connect.
        clock: seconds, never set.
    """

    def __init__(self, users: Users, clock: Callable[[], float] = time.monotonic) -> None:
        #: The users that may connect. Changed by :meth:`use`.
        self.users = users
        self.throttle = Throttle()
        self._clock = clock
        self._checking: dict[bytes, asyncio.Future[Identity]] = {}
        self._executor: ThreadPoolExecutor | None = None
        #: Sign-ins that were refused, or not checked; for metrics.
        self.failed = self.throttled = 0

    @property
    def required(self) -> bool:
        return self.users.required

    def use(self, users: Users) -> Users:
        """Replace the users from now on. Returns those before."""
        before, self.users = self.users, users
        return before

    def begin(self, user: str | None, password: str | None, address: str) -> Identity | asyncio.Future[Identity]:
        """Check credentials.

        Returns:
            who it is, or a future of that. Several callers may be given the same one: do not cancel it.

        Raises:
            AuthenticationError: the same text whether the name or the password is wrong. The future raises it too.
            TooManyAttemptsError: it was not checked.
        """
        users = self.users
        if not users.required:
            return Identity(user or None)
        if not user:
            raise AuthenticationError("this broker requires a user name and a password")
        now = self._admit(user, address)
        password = password or ""
        digest = users.digest(user, password)
        found = users.remembered(user, digest)
        if found is not None:
            self.throttle.know(address, user)
            return found.identity
        running = self._checking.get(digest)
        if running is not None:
            return running
        if users.hashed and len(self._checking) >= MAX_WAITING:
            self.throttled += 1
            raise TooManyAttemptsError("too many passwords are being checked; try again in a moment", 1)
        self.throttle.charge(address, user, now)
        if not users.hashed or len(password) > MAX_PASSWORD_CHARS:
            raise self._wrong(user, address)
        checking = asyncio.get_running_loop().create_task(self._check(users, user, password, digest, address))
        self._checking[digest] = checking
        checking.add_done_callback(lambda done: self._done(digest, done))
        return checking

    def scram(self, address: str) -> ScramSignIn | None:
        """A sign-in by SCRAM-SHA-256; None if a user's secret does not allow it, or a package is missing."""
        return ScramSignIn(self, address) if self.users.scram and has("scramp") else None

    def prove(self, user: str, address: str, fits: Callable[[], bool]) -> Identity:
        """The result of a sign-in in which the client had to prove knowledge of a user's password.

        Args:
            fits: True if it has.

        Raises:
            AuthenticationError: it has not, or there is no such user.
            TooManyAttemptsError: that was not looked at.
        """
        self.throttle.charge(address, user, self._admit(user, address))
        found = self.users.find(user)
        if not fits() or found is None:
            raise self._wrong(user, address)
        self.throttle.refund(address, user)
        return found.identity

    def _admit(self, user: str, address: str) -> float:
        """Returns the time, if an attempt for this user is allowed now."""
        now = self._clock()
        wait = self.throttle.wait(address, user, now)
        if wait:
            self.throttled += 1
            seconds = ceil(wait)
            raise TooManyAttemptsError(f"too many wrong passwords; try again in {seconds} s", seconds)
        return now

    async def check(self, user: str | None, password: str | None, address: str) -> Identity:
        found = self.begin(user, password, address)
        return found if isinstance(found, Identity) else await asyncio.shield(found)

    def when_checked(self, call: Callable[[], object]) -> None:
        """Call a function when all checks under way are done and their results delivered."""
        running = [asyncio.shield(checking) for checking in self._checking.values()]
        if not running:
            call()
            return
        asyncio.gather(*running, return_exceptions=True).add_done_callback(lambda _: call())

    def close(self) -> None:
        """Check no more passwords. A hash under way is not interrupted: it takes milliseconds."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
        for checking in tuple(self._checking.values()):
            checking.cancel()

    async def _check(self, users: Users, user: str, password: str, digest: bytes, address: str) -> Identity:
        if self._executor is None:  # one thread: hashing must not take all processors from the loop
            self._executor = ThreadPoolExecutor(1, "sievemq-passwords")
        loop = asyncio.get_running_loop()
        right = await loop.run_in_executor(self._executor, users.check, user, password)
        found = users.remember(user, digest) if right else None
        if found is None or self.users.find(user) != found:  # the users may have changed meanwhile
            raise self._wrong(user, address)
        self.throttle.refund(address, user)
        return found.identity

    def _wrong(self, user: str, address: str) -> AuthenticationError:
        self.failed += 1
        # An unknown name is not logged: people type passwords into the wrong field.
        log.warning("sign_in.failed", user=user if self.users.find(user) else None, address=address)
        return AuthenticationError("user name or password is wrong")

    def _done(self, digest: bytes, done: asyncio.Future[Identity]) -> None:
        del self._checking[digest]
        if not done.cancelled():
            done.exception()  # waiting callers have it; without any it is not worth a warning


class ScramSignIn:
    """The sign-in of one client by SCRAM-SHA-256, with two messages of the client.

    Args:
        authenticator: knows the users.
        address: where the client is.
    """

    def __init__(self, authenticator: Authenticator, address: str) -> None:
        self._authenticator = authenticator
        self._address = address
        self._server: Any = None
        self._user = ""

    def first(self, message: bytes, user_of: Callable[[str], str]) -> bytes:
        """Answer the client's first message.

        Raises:
            AuthenticationError: it is no such message.
        """
        from scramp import ScramMechanism  # only brokers with such users need it

        def keys(name: str) -> tuple[bytes, bytes, bytes, int]:
            self._user = user_of(name)
            return self._authenticator.users.scram_keys(self._user)

        self._server = ScramMechanism(SCRAM).make_server(keys)
        try:
            self._server.set_client_first(message.decode())
            answer: str = self._server.get_server_first()
        except Exception as error:  # whatever a client can make a library raise
            raise AuthenticationError(f"this is not a first message of {SCRAM}") from error
        return answer.encode()

    def last(self, message: bytes) -> tuple[Identity, bytes]:
        """The user, and the answer to the client's last message.

        Raises:
            AuthenticationError: the client does not know the password, or there were too many attempts.
        """
        return self._authenticator.prove(self._user, self._address, lambda: self._fits(message)), self._answer()

    def _fits(self, message: bytes) -> bool:
        try:
            self._server.set_client_final(message.decode())
        except Exception:  # whatever a client can make a library raise
            return False
        return True

    def _answer(self) -> bytes:
        answer: str = self._server.get_server_final()
        return answer.encode()
