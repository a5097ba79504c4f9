"""The source of the users: the settings, or the users file, which is watched.

The file is read when its time, size or inode has changed, each second, and on SIGHUP. A file that has become
unusable is reported once, and the users stay as they were: a typing error must neither lock all users out nor let
strangers in."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from sievemq_broker import logs
from sievemq_broker.config import Settings
from sievemq_broker.server.credentials.exposed import warn_if_exposed
from sievemq_broker.server.live_settings import Layer
from sievemq_broker.users.account import User, Users
from sievemq_broker.users.file import read_file

#: Name of the key's file in a data directory, and its bytes.
SIGN_IN_KEY = "sign-in-key"
_KEY_BYTES = 32

#: Seconds between two checks of the file's time.
LOOK_SECONDS = 1.0

log = logs.get("security")


class UserStore:
    """The users of one broker.

    Args:
        layer: gets the users of the file; what applies are those with the changes at run time.

    Raises:
        ValueError: the file cannot be used. Checked settings do not raise, unless it changed since.
    """

    def __init__(self, settings: Settings, layer: Layer[User]) -> None:
        self._layer = layer
        self._required = settings.secured
        self._path = Path(settings.users_file) if settings.users_file is not None else None
        self._stamp = self._look()
        self._timer: asyncio.TimerHandle | None = None
        self._change: Callable[[Users], None] | None = None
        self._read: Callable[[], None] = lambda: None
        self._key: bytes | None = None
        if self._path is not None:
            found, self._key = read_file(self._path)
            layer.rebase(found)
        #: The present users.
        self.users = Users(layer.present, required=self._required, key=self._key)

    def keep_key(self, directory: str) -> None:
        """Use the sign-in key of a data directory, where the users file has none, so that what an unknown name gets is
        the same after a restart. It is made if it does not exist."""
        if self._key is None and self.users.scram:
            key = _key_in(Path(directory) / SIGN_IN_KEY)
            if key is not None:
                self.users.use_key(key)

    def watch(
        self, loop: asyncio.AbstractEventLoop, change: Callable[[Users], None], read: Callable[[], None] = lambda: None
    ) -> None:
        """Watch the file from now on.

        Args:
            change: called with the new users.
            read: called when they were read from the file.
        """
        self._change, self._read = change, read
        if self._path is not None:
            self._again(loop)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def reload(self) -> None:
        """Read the file now, even if it has not changed."""
        if self._path is None:
            return
        self._stamp = self._look()
        try:
            found, self._key = read_file(self._path)
            Users(found)  # each can be used
        except ValueError as error:
            log.warning("users.not_read", reason=str(error), note="the users are unchanged")
            return
        self._layer.rebase(found)
        self.renew()
        warn_if_exposed("the users and their password hashes", self._path)
        log.info("users.read", users=len(self.users))
        self._read()

    def renew(self) -> None:
        """The users of the layer have changed."""
        self._required = self._required or bool(self._layer.present)  # the first user; the last one stays
        self.users = Users(self._layer.present, required=self._required, before=self.users, key=self._key)
        if self._change is not None:
            self._change(self.users)

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


def _key_in(path: Path) -> bytes | None:
    """The key in a file; made if there is none. None if that is impossible, as on a full disk."""
    try:
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
        key = path.read_bytes()
    except OSError as error:
        log.warning("sign_in_key.not_kept", path=str(path), reason=error.strerror or str(error))
        return None
    return key if len(key) == _KEY_BYTES else None
