# Generated from sievemq/aio/closing.py by client/generate_blocking.py; change that file, then run `make format`.
"""What is closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from sievemq._front import Unpicklable


class _Closeable(Protocol):
    def close(self) -> None: ...


class Closing(Unpicklable):
    """A context manager of itself, of a class with ``close()``."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: _Closeable,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
