"""Python's garbage collector in the broker's process: it must never visit all waiting messages.

Messages are not part of cycles, so their reference counts free them. Cycles come from rare events, such as HTTP
requests. A collection costs some 0.1 to 0.3 µs for each object it visits, so one over a million messages would stop the
loop for a second. Young collections stay: they visit new objects, and free short-lived cycles. Objects that survive a
few of them are frozen, that is, never visited again."""

from __future__ import annotations

import gc

#: Objects that are created, and not freed, between two collections: at most a few milliseconds.
YOUNG = 10_000
#: Collections after which their survivors are frozen.
SURVIVED = 8


class _Freezer:
    """Counts young collections, and freezes their survivors."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            self._count += 1
            if self._count >= SURVIVED:
                self._count = 0
                gc.freeze()


def calm() -> None:
    """From now on collections are short. For a process that only runs a broker; objects of its start are frozen as
    well."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 100 * SURVIVED, 1_000)  # survivors are frozen long before the middle generation has a turn
    gc.callbacks.append(_Freezer())
