"""Authentication, for the wire and for HTTP: throttled, in constant time, never on the loop for long.

begin(user, password, door) ──> Identity                      known at once: no users, or remembered, or clear
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

from sievemq_broker.extras import has
from sievemq_broker.server.credentials.sign_ins import ACCEPTED, THROTTLED, WRONG, Door, SignIns
from sievemq_broker.server.credentials.throttle import Throttle
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import AuthenticationError
from sievemq_broker.users.account import Users
from sievemq_broker.users.passwords import MAX_PASSWORD_CHARS, SCRAM

#: The most different passwords that may wait to be hashed, some 20 ms each: more would only exceed the handshake's
#: time.
MAX_WAITING = 64


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
        sign_ins: counts them.

    Attributes:
        sign_ins: as above.
    """

    def __init__(
        self, users: Users, clock: Callable[[], float] = time.monotonic, sign_ins: SignIns | None = None
    ) -> None:
        #: The users that may connect. Changed by :meth:`use`.
        self.users = users
        self.throttle = Throttle()
        self._clock = clock
        self._checking: dict[bytes, asyncio.Future[Identity]] = {}
        self._executor: ThreadPoolExecutor | None = None
        self.sign_ins = sign_ins or SignIns()

    @property
    def required(self) -> bool:
        return self.users.required

    def use(self, users: Users) -> Users:
        """Replace the users from now on. Returns those before."""
        before, self.users = self.users, users
        return before

    def begin(self, user: str | None, password: str | None, door: Door) -> Identity | asyncio.Future[Identity]:
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
        now = self._admit(user, door)
        password = password or ""
        digest = users.digest(user, password)
        found = users.remembered(user, digest)
        if found is not None:
            self.throttle.know(door.address, user)
            self.sign_ins.note(ACCEPTED, door, user)
            return found.identity
        running = self._checking.get(digest)
        if running is not None:
            running.add_done_callback(lambda done: self._count_shared(done, user, door))
            return running
        if users.hashed and len(self._checking) >= MAX_WAITING:
            self._note(THROTTLED, user, door)
            raise TooManyAttemptsError("too many passwords are being checked; try again in a moment", 1)
        self.throttle.charge(door.address, user, now)
        if not users.hashed or len(password) > MAX_PASSWORD_CHARS:
            raise self._wrong(user, door)
        checking = asyncio.get_running_loop().create_task(self._check(users, user, password, digest, door))
        self._checking[digest] = checking
        checking.add_done_callback(lambda done: self._done(digest, done))
        return checking

    def scram(self, door: Door) -> ScramSignIn | None:
        """A sign-in by SCRAM-SHA-256; None if a user's secret does not allow it, or a package is missing."""
        return ScramSignIn(self, door) if self.users.scram and has("scramp") else None

    def prove(self, user: str, door: Door, fits: Callable[[], bool]) -> Identity:
        """The result of a sign-in in which the client had to prove knowledge of a user's password.

        Args:
            fits: True if it has.

        Raises:
            AuthenticationError: it has not, or there is no such user.
            TooManyAttemptsError: that was not looked at.
        """
        self.throttle.charge(door.address, user, self._admit(user, door))
        found = self.users.find(user)
        if not fits() or found is None:
            raise self._wrong(user, door)
        self.throttle.refund(door.address, user)
        self.sign_ins.note(ACCEPTED, door, user)
        return found.identity

    def certified(self, user: str, door: Door) -> Identity | None:
        """The result of a sign-in by a certificate, which was found good; None if there is no such user any more."""
        found = self.users.find(user)
        if found is None:
            return None
        self.sign_ins.note(ACCEPTED, door, user)
        return found.identity

    def _admit(self, user: str, door: Door) -> float:
        """Returns the time, if an attempt for this user is allowed now."""
        now = self._clock()
        wait = self.throttle.wait(door.address, user, now)
        if wait:
            self._note(THROTTLED, user, door)
            seconds = ceil(wait)
            raise TooManyAttemptsError(f"too many wrong passwords; try again in {seconds} s", seconds)
        return now

    async def check(self, user: str | None, password: str | None, door: Door) -> Identity:
        found = self.begin(user, password, door)
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

    async def _check(self, users: Users, user: str, password: str, digest: bytes, door: Door) -> Identity:
        if self._executor is None:  # one thread: hashing must not take all processors from the loop
            self._executor = ThreadPoolExecutor(1, "sievemq-passwords")
        loop = asyncio.get_running_loop()
        right = await loop.run_in_executor(self._executor, users.check, user, password)
        found = users.remember(user, digest) if right else None
        if found is None or self.users.find(user) != found:  # the users may have changed meanwhile
            raise self._wrong(user, door)
        self.throttle.refund(door.address, user)
        self.sign_ins.note(ACCEPTED, door, user)
        return found.identity

    def _wrong(self, user: str, door: Door) -> AuthenticationError:
        self._note(WRONG, user, door)
        return AuthenticationError("user name or password is wrong")

    def _count_shared(self, done: asyncio.Future[Identity], user: str, door: Door) -> None:
        """A check has ended that another sign-in with the same password has begun."""
        if done.cancelled():
            return
        error = done.exception()
        if error is None or isinstance(error, AuthenticationError):
            self._note(ACCEPTED if error is None else WRONG, user, door)

    def _note(self, outcome: str, user: str, door: Door) -> None:
        # An unknown name is not kept: people type passwords into the wrong field.
        self.sign_ins.note(outcome, door, user if self.users.find(user) else None)

    def _done(self, digest: bytes, done: asyncio.Future[Identity]) -> None:
        del self._checking[digest]
        if not done.cancelled():
            done.exception()  # waiting callers have it; without any it is not worth a warning


class ScramSignIn:
    """The sign-in of one client by SCRAM-SHA-256, with two messages of the client.

    Args:
        authenticator: knows the users.
        door: where the client signs in.
    """

    def __init__(self, authenticator: Authenticator, door: Door) -> None:
        self._authenticator = authenticator
        self._door = door
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
        return self._authenticator.prove(self._user, self._door, lambda: self._fits(message)), self._answer()

    def _fits(self, message: bytes) -> bool:
        try:
            self._server.set_client_final(message.decode())
        except Exception:  # whatever a client can make a library raise
            return False
        return True

    def _answer(self) -> bytes:
        answer: str = self._server.get_server_final()
        return answer.encode()
