"""What ``message.acknowledge()`` returns: the acknowledgement is on its way, awaiting it waits for the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Final

from sievemq._engine import Completion
from sievemq.aio.transport import Transport

__all__ = ["NOTHING", "Acknowledgement", "nothing"]


class Acknowledgement:
    """An acknowledgement that the broker answers.

    Args:
        transport: of the connection.
        completion: the answer.
    """

    __slots__ = ("_completion", "_transport")

    def __init__(self, transport: Transport, completion: Completion[Any]) -> None:
        self._transport = transport
        self._completion = completion

    def __await__(self) -> Generator[Any, Any, None]:
        completion = self._completion
        return self._transport.ask(lambda: completion).__await__()

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
