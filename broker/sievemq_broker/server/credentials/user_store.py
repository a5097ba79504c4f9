"""The source of the users: the settings, or the users file, which is watched.

The file is read when its time, size or inode has changed, each second, and on SIGHUP. A file that has become
unusable is reported once, and the users stay as they were: a typing error must neither lock all users out nor let
strangers in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sievemq_broker import logs
from sievemq_broker.server.credentials.exposed import warn_if_exposed
from sievemq_broker.users.account import Users
from sievemq_broker.users.file import read_users

if TYPE_CHECKING:
    from sievemq_broker.config import Settings

__all__ = ["UserStore"]

#: Seconds between two checks of the file's time.
LOOK_SECONDS = 1.0

log = logs.get("security")


class UserStore:
    """The users of one broker.

    Args:
        settings: name the users or their file.

    Raises:
        ValueError: the file cannot be used. Checked settings do not raise, unless it changed since.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = Path(settings.users_file) if settings.users_file is not None else None
        self._stamp = self._look()
        self._timer: asyncio.TimerHandle | None = None
        self._change: Callable[[Users], None] | None = None
        found = settings.users if self._path is None else read_users(self._path)
        #: The present users.
        self.users = Users(found, required=settings.secured)

    def watch(self, loop: asyncio.AbstractEventLoop, change: Callable[[Users], None]) -> None:
        """Watch the file from now on.

        Args:
            loop: the broker's.
            change: called with the new users.
        """
        self._change = change
        if self._path is not None:
            self._again(loop)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def reload(self) -> None:
        """Read the file now, even if it has not changed."""
        if self._path is None:
            return
        self._stamp = self._look()
        try:
            found = read_users(self._path)
            users = Users(found, required=True, before=self.users)
        except ValueError as error:
            log.warning("users.not_read", reason=str(error), note="the users are unchanged")
            return
        self.users = users
        warn_if_exposed("the users and their password hashes", self._path)
        log.info("users.read", users=len(users))
        if self._change is not None:
            self._change(users)

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_SECONDS, self._again, loop)
        if self._look() != self._stamp:
            self.reload()

    def _look(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat() if self._path is not None else None
        except OSError:
            stat = None
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat is not None else (0, 0, 0)
