"""The place for the one shard that a process may own."""

from __future__ import annotations


class Slot:
    """A keeper occupies it before it takes its row, and leaves it once the row cannot become this process's. So a
    process takes one shard at a time, and owns one at most, also where the answer to a take is lost."""

    __slots__ = ("_keeper",)

    def __init__(self) -> None:
        self._keeper: object | None = None

    def occupy(self, keeper: object) -> bool:
        """False if another keeper has it."""
        if self._keeper is None:
            self._keeper = keeper
        return self._keeper is keeper

    def is_held_by(self, keeper: object) -> bool:
        """Its row is this process's, or may become so."""
        return self._keeper is keeper

    def leave(self, keeper: object) -> None:
        """Its row is another process's."""
        if self._keeper is keeper:
            self._keeper = None
