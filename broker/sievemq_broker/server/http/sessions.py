"""Browsers that have signed in. A session is in memory only: a restart of the broker signs everybody out."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final

from sievemq_broker.domain.shares import Shares
from sievemq_broker.users.account import User, Users

#: Sessions at a time; of the user with the most of them the least lately used ends first. A handful of people, with
#: some browsers each.
MAX_SESSIONS: Final = 1_000
#: Seconds after which one ends however much it is used.
MAX_SESSION_SECONDS: Final = 12 * 3600.0


class Session:
    """One browser that has signed in.

    Args:
        now: seconds.

    Attributes:
        csrf: what requests that change something carry, which other sites cannot know.
        ended: signed out, or gone for another reason.
    """

    __slots__ = ("began", "csrf", "ended", "seen", "user")

    def __init__(self, user: User, now: float) -> None:
        self.user = user
        self.csrf = secrets.token_urlsafe(24)
        self.began = self.seen = now
        self.ended = False

    def use(self, user: User, now: float) -> None:
        """A request has arrived; the user's rights may have changed."""
        self.user = user
        self.seen = now

    def end(self) -> None:
        """Mark it as ended."""
        self.ended = True


class Sessions:
    """All of them.

    Args:
        idle_seconds: without a request after which one ends.
        clock: seconds, never set.
    """

    def __init__(self, idle_seconds: float, clock: Callable[[], float]) -> None:
        self._idle = idle_seconds
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}  # by digest of the token
        self._shares: Shares[bytes] = Shares()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, user: User) -> tuple[str, Session]:
        """A new session: its token, for the cookie, and itself. The token is kept nowhere."""
        now = self._clock()
        for digest in [digest for digest, session in self._sessions.items() if not self._lasts(session, now)]:
            self._end(digest)
        token = secrets.token_urlsafe(32)
        digest = _digest(token)
        session = self._sessions[digest] = Session(user, now)
        self._shares.add(user.name, digest)
        while self._shares.total > MAX_SESSIONS:
            self._end(self._shares.first_to_go()[1])
        return token, session

    def find(self, token: str, users: Users) -> Session | None:
        """The session of a token, used now.

        Args:
            token: from a cookie.
            users: as they are now: a session ends with its user, and with its user's password.
        """
        digest = _digest(token)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if not self.alive(session, users):
            self._end(digest)
            return None
        session.use(users.find(session.user.name) or session.user, self._clock())
        self._shares.add(session.user.name, digest)
        return session

    def alive(self, session: Session, users: Users) -> bool:
        """True while it has not ended; looking does not count as use."""
        return users.knows(session.user) and self._lasts(session, self._clock())

    def expires_in(self, session: Session) -> float:
        """Seconds until it ends, if it is not used."""
        return min(session.seen + self._idle, session.began + MAX_SESSION_SECONDS) - self._clock()

    def close(self, token: str) -> None:
        """End one."""
        self._end(_digest(token))

    def _end(self, digest: bytes) -> None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            session.end()
            self._shares.discard(session.user.name, digest)

    def _lasts(self, session: Session, now: float) -> bool:
        return not session.ended and now < min(session.seen + self._idle, session.began + MAX_SESSION_SECONDS)


def _digest(token: str) -> bytes:
    # The key is a digest, so that the time of a look-up reveals nothing about a token.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
