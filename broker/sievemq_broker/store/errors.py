"""What SQLite and the system raise, as the errors of a store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from sievemq_broker.domain.store import AbandonedError, DamagedError, StoreError, StoreFullError

#: Appended to every report of damage.
HOW_TO_REPAIR: Final = (
    "Look with `sievemq store check`, save what can be read with `sievemq store export`, "
    "and set aside what is damaged with `sievemq store repair`"
)

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL_EXTENDED = (sqlite3.SQLITE_IOERR_SHMSIZE,)


def translated(error: Exception, path: Path, doing: str) -> Exception:
    """The text of an error for callers.

    Args:
        error: of SQLite, of the system or of this package; any other one is returned unchanged.
    """
    if isinstance(error, DamagedError) and HOW_TO_REPAIR not in str(error):
        return DamagedError(f"the store in {path.parent} is damaged: {error}. {HOW_TO_REPAIR}", error.findings)
    if isinstance(error, StoreError):
        return error
    if isinstance(error, UnicodeDecodeError):  # of a name, or a message about one
        return DamagedError(f"{path} is damaged: {error}. {HOW_TO_REPAIR}")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and not isinstance(error, (sqlite3.Error, OSError)):
        return error
    primary = (code or 0) & 0xFF
    if primary == sqlite3.SQLITE_FULL or code in _FULL_EXTENDED:
        return StoreFullError(f"{path} cannot {doing}: the disk is full")
    if primary in _DAMAGED:
        return DamagedError(f"{path} is damaged: {error}. {HOW_TO_REPAIR}")
    if primary == sqlite3.SQLITE_INTERRUPT:
        return AbandonedError(f"{path} was abandoned before it could {doing}")
    if primary == sqlite3.SQLITE_BUSY:
        return StoreError(f"{path} cannot {doing}: another process uses it")
    return StoreError(f"{path} cannot {doing}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})")
