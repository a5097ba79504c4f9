"""What is closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from sievemq._front import Unpicklable


class _Closeable(Protocol):
    async def close(self) -> None: ...


class Closing(Unpicklable):
    """A context manager of itself, of a class with ``close()``."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self: _Closeable,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
