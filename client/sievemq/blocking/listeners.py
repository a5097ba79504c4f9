"""The listener interfaces of the blocking API (PY-22): any object with the methods will do, or a plain callable where
there is one method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from sievemq.exceptions import JMSException
from sievemq.messages import Message

__all__ = [
    "CompletionListener",
    "ExceptionListener",
    "MessageListener",
    "completion_callbacks",
    "connection_callbacks",
    "exception_callback",
    "message_callback",
]


@runtime_checkable
class MessageListener(Protocol):
    """Gets the messages of a consumer (section 15)."""

    def on_message(self, message: Message) -> None:
        """Called with each message, one at a time over all consumers of a session (LIS-02)."""


@runtime_checkable
class ExceptionListener(Protocol):
    """Hears of a connection's serious problems (section 7).

    It may have two methods more: ``on_connection_lost(exception)`` is called when a loss is going to be repaired,
    ``on_connection_restored()`` when it is repaired (docs/reconnection.md).
    """

    def on_exception(self, exception: JMSException) -> None:
        """Called with what has no other place to be reported (EXL-03)."""


@runtime_checkable
class CompletionListener(Protocol):
    """Hears what became of an asynchronous send (section 12)."""

    def on_completion(self, message: Message) -> None:
        """The send is as certain as one that returned (CPL-01)."""

    def on_exception(self, message: Message, exception: Exception) -> None:
        """The send has failed, or its fate is unknown (CPL-02).

        Args:
            message: as it was given to `send`.
            exception: why.
        """


MessageCallback: TypeAlias = Callable[[Message], Any]


def message_callback(listener: MessageListener | MessageCallback) -> MessageCallback:
    """What to call with a message.

    Raises:
        TypeError: the listener is neither an object with `on_message` nor callable.
    """
    method = getattr(listener, "on_message", None)
    if callable(method):
        return method  # type: ignore[no-any-return]
    if callable(listener):
        return listener
    raise TypeError(f"a message listener has on_message(message) or is callable, unlike {listener!r:.80}")


def exception_callback(
    listener: ExceptionListener | Callable[[JMSException], Any],
) -> Callable[[JMSException], Any]:
    """What to call with an exception.

    Raises:
        TypeError: the listener is neither an object with `on_exception` nor callable.
    """
    method = getattr(listener, "on_exception", None)
    if callable(method):
        return method  # type: ignore[no-any-return]
    if callable(listener):
        return listener
    raise TypeError(f"an exception listener has on_exception(exception) or is callable, unlike {listener!r:.80}")


def connection_callbacks(
    listener: object,
) -> tuple[Callable[[JMSException], Any] | None, Callable[[], Any] | None]:
    """What else an exception listener wants to hear: ``on_connection_lost`` and ``on_connection_restored``."""
    lost, restored = getattr(listener, "on_connection_lost", None), getattr(listener, "on_connection_restored", None)
    return lost if callable(lost) else None, restored if callable(restored) else None


def completion_callbacks(
    listener: CompletionListener | tuple[Callable[[Message], Any], Callable[[Message, Exception], Any]],
) -> tuple[Callable[[Message], Any], Callable[[Message, Exception], Any]]:
    """What to call when a send has succeeded, and when it has failed.

    Raises:
        ValueError: the listener is None (PRO-24).
        TypeError: it is neither an object with both methods nor a pair of callables.
    """
    if listener is None:
        raise ValueError("a completion listener is needed, not None; leave the argument out for a synchronous send")
    if isinstance(listener, tuple):
        if len(listener) == 2 and all(map(callable, listener)):
            return listener
    else:
        completed, failed = getattr(listener, "on_completion", None), getattr(listener, "on_exception", None)
        if callable(completed) and callable(failed):
            return completed, failed
    raise TypeError(
        "a completion listener has on_completion(message) and on_exception(message, exception), or is a pair of "
        f"callables, unlike {listener!r:.80}"
    )
