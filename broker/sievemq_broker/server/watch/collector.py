"""Python's garbage collector in the broker's process: it must never visit all the messages that wait.

What messages leave behind is in no cycle and goes by its count; cycles come from what is rare, such as HTTP requests. A
collection costs some 0.1 to 0.3 µs for each object it visits, so one over a million messages would stand in the loop
for a second. Young collections stay: they visit what came since the last, and catch short-lived cycles. What survives a
few of them is frozen, that is, never visited again.
"""

from __future__ import annotations

import gc

__all__ = ["YOUNG", "calm"]

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
    """From now on collections are short. For a process that is a broker and nothing else; what its start left is frozen
    as well."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 100 * SURVIVED, 1_000)  # survivors are frozen long before the middle generation has a turn
    gc.callbacks.append(_Freezer())
