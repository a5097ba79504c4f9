"""Makes a broker durable: opens the store that its settings name, and restores the broker from it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.restore import RestoreError, restore
from sievemq_broker.domain.store import Store, StoreError
from sievemq_broker.store import open_store


@dataclass(frozen=True, slots=True)
class Opened:
    """An open store, and what was restored from it.

    Attributes:
        store: open.
        messages: that were restored.
        seconds: that took.
    """

    store: Store
    messages: int
    seconds: float


def open_and_restore(
    data_dir: str, broker: Broker, incarnation: str, now: int, is_wanted: Callable[[], bool]
) -> Opened:
    """Open a store and fill an empty broker from it. In any thread: nothing else may use the broker meanwhile.

    Args:
        data_dir: names the store; see :func:`~sievemq_broker.store.open_store`.
        broker: without namespaces; it has a journal afterwards.
        incarnation: the broker's name, if the store is new.
        now: ms epoch.
        is_wanted: False once the caller has given up.

    Raises:
        AbandonedError: the caller has given up; the store is closed, and the broker cannot be used.
        StoreError: the store cannot be used, or does not fit the settings.
    """
    begin = time.perf_counter()
    store = open_store(data_dir, incarnation, is_wanted)
    collecting = gc.isenabled()
    gc.disable()  # a million messages are some millions of objects, none of them garbage
    try:
        messages = restore(broker, store, now, is_wanted)
        store.tidy()
    except BaseException as error:
        store.abandon()
        if isinstance(error, RestoreError):
            raise StoreError(f"the store in {data_dir}: {error}") from error
        raise
    finally:
        if collecting:
            gc.enable()
    return Opened(store, messages, time.perf_counter() - begin)
