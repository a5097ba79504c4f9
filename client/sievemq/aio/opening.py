"""The result of calls that open something: awaitable, and an async context manager."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, Self, TypeVar


class _Closeable(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


P = ParamSpec("P")
C = TypeVar("C", bound=_Closeable)
C_co = TypeVar("C_co", bound=_Closeable, covariant=True)


class Opening(Coroutine[Any, Any, C_co]):
    """A call that has not begun yet: ``await`` it, or write ``async with`` in front of it.

    Args:
        coroutine: the call; returns the object to close.
    """

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, C_co]) -> None:
        self._coroutine = coroutine
        self._opened: _Closeable | None = None

    def __repr__(self) -> str:
        return f"<Opening of {self._coroutine!r}>"

    if not TYPE_CHECKING:  # type checkers report the forgotten await by themselves

        def __getattr__(self, name: str) -> NoReturn:
            """A forgotten await."""
            call = self._coroutine.__name__
            raise AttributeError(
                f"{call}(…) is not awaited: write (await {call}(…)).{name}, or async with {call}(…) as …"
            )

        def __enter__(self) -> NoReturn:
            raise TypeError(f"write `async with {self._coroutine.__name__}(…)`, not `with`")

        def __exit__(self, *raised: object) -> None:
            """Python looks for it before it enters."""

    def __await__(self) -> Generator[Any, None, C_co]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> C_co:
        self._opened = opened = await self._coroutine
        return await opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, traceback)


def opening(method: Callable[P, Coroutine[Any, Any, C]]) -> Callable[P, Opening[C]]:
    """A coroutine function whose result can also be entered by ``async with``."""

    @wraps(method)
    def call(*arguments: P.args, **keywords: P.kwargs) -> Opening[C]:
        return Opening(method(*arguments, **keywords))

    return call
