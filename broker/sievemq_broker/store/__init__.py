"""Messages on disk: the embedded store behind the journal of the domain (docs/decisions/0010)."""

from sievemq_broker.store.errors import DamagedError, FencedError, LockedError, StoreError, StoreFullError
from sievemq_broker.store.sqlite import SqliteStore

__all__ = ["DamagedError", "FencedError", "LockedError", "SqliteStore", "StoreError", "StoreFullError"]
