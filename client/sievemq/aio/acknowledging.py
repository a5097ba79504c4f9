"""What ``message.acknowledge()`` returns: the acknowledgement is on its way, awaiting it waits for the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

from sievemq._engine import Completion


class Acknowledgement:
    """An acknowledgement that the broker answers."""

    __slots__ = ("_completion", "_wait")

    def __init__(self, wait: Callable[[], Coroutine[Any, Any, None]], completion: Completion[Any]) -> None:
        self._wait = wait
        self._completion = completion

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()

    def __repr__(self) -> str:
        return f"<acknowledgement, {'answered' if self._completion.done else 'on its way'}>"


class _Nothing:
    """An awaitable for where there was nothing to do."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield

    def __repr__(self) -> str:
        return "<nothing to wait for>"


NOTHING: Final = _Nothing()


def nothing() -> Awaitable[None]:
    """Acknowledge a message that the session made: no effect (MSG-02)."""
    return NOTHING
