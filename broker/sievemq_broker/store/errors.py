"""What a store says when it cannot do what it was asked."""

from __future__ import annotations

__all__ = ["DamagedError", "FencedError", "LockedError", "StoreError", "StoreFullError"]


class StoreError(Exception):
    """The store cannot be used; the text names the file, what is wrong and what to do."""


class StoreFullError(StoreError):
    """There is no room. Nothing was written; the same may be tried again later."""


class LockedError(StoreError):
    """Another process uses the data directory."""


class FencedError(StoreError):
    """Another owner has opened the store since: this one must not write any more, nor believe what it holds."""


class DamagedError(StoreError):
    """What was read is not what was written.

    Attributes:
        findings: everything that was found wrong, one line each.
    """

    def __init__(self, text: str, findings: list[str] | None = None) -> None:
        super().__init__(text)
        self.findings = findings or [text]
