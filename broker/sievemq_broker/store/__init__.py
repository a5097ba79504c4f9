"""Messages on disk: the embedded store behind the journal of the domain (docs/decisions/0010)."""

from collections.abc import Callable
from pathlib import Path

from sievemq_broker.domain.store import DamagedError, FencedError, LockedError, Store, StoreError, StoreFullError
from sievemq_broker.store.sqlite import SqliteStore

__all__ = ["DamagedError", "FencedError", "LockedError", "SqliteStore", "StoreError", "StoreFullError", "open_store"]


def open_store(data_dir: str, incarnation: str, is_wanted: Callable[[], bool]) -> Store:
    """Open the store that a broker's settings name.

    Args:
        data_dir: the setting: a directory, made if it does not exist.
        incarnation: the broker's name, if the store is new.
        is_wanted: False once the caller has given up. Opening ends soon then.

    Raises:
        AbandonedError: the caller has given up.
        StoreError: the store cannot be used.
    """
    return SqliteStore(Path(data_dir), incarnation, is_wanted=is_wanted)
