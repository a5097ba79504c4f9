"""The callbacks of a listener: its method, or the listener itself (PY-22). The interfaces are those of the two
fronts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from sievemq.exceptions import JMSException, Reject
from sievemq.messages import Message
from sievemq_core.message.dead_letters import MAX_ERROR_CHARS

#: Messages of one consumer before the next one, and other tasks, have a turn.
LISTENER_TURN: Final = 32

_log = logging.getLogger("sievemq.listeners")


def message_callback(listener: object, awaits: bool) -> Callable[[Message], Any]:
    """The function to call with a message.

    Args:
        awaits: the front awaits what a listener returns; here and below.

    Raises:
        TypeError: the listener is neither an object with `on_message` nor callable; or calling it would not run it.
    """
    return _callback(listener, "on_message", "a message listener has on_message(message)", awaits)


def exception_callback(listener: object, awaits: bool) -> Callable[[JMSException], Any]:
    """The function to call with an exception.

    Raises:
        TypeError: the listener is neither an object with `on_exception` nor callable; or calling it would not run it.
    """
    return _callback(listener, "on_exception", "an exception listener has on_exception(exception)", awaits)


def _callback(listener: object, name: str, what: str, awaits: bool) -> Callable[..., Any]:
    method = getattr(listener, name, None)
    if callable(method):
        return _checked(method, awaits)
    if callable(listener):
        return _checked(listener, awaits)
    raise TypeError(f"{what} or is callable, unlike {listener!r:.80}")


def _checked(callback: Callable[..., Any], awaits: bool) -> Callable[..., Any]:
    """The callback, if a call runs it.

    Raises:
        TypeError: a call would only make a coroutine that is never awaited, or a generator that is never run.
    """
    for function in (callback, getattr(callback, "__call__", None)):  # noqa: B004 - its method may be the coroutine
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{callback!r:.80} is a generator function: calling it would not run it")
        if inspect.iscoroutinefunction(function) and not awaits:
            raise TypeError(
                f"{callback!r:.80} is a coroutine function, which the blocking API cannot await; make it a plain "
                "function, or use sievemq.aio"
            )
    return callback


def refuse_awaitable(result: object) -> None:
    """Raise if a listener of the blocking API has returned an awaitable: its work was not done.

    Raises:
        TypeError: the result is awaitable.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that it was never awaited
        raise TypeError(
            f"the listener returned {result!r:.80}, which the blocking API cannot await; make it a plain function, or "
            "use sievemq.aio"
        )


def _optional(listener: object, name: str, awaits: bool) -> Callable[..., Any] | None:
    method = getattr(listener, name, None)
    return _checked(method, awaits) if callable(method) else None


def connection_callbacks(
    listener: object, awaits: bool
) -> tuple[Callable[[JMSException], Any] | None, Callable[[], Any] | None]:
    """The methods ``on_connection_lost`` and ``on_connection_restored`` of an exception listener."""
    return _optional(listener, "on_connection_lost", awaits), _optional(listener, "on_connection_restored", awaits)


def flow_callbacks(
    listener: object, awaits: bool
) -> tuple[Callable[[str | None, str], Any] | None, Callable[[str | None], Any] | None]:
    """The methods ``on_blocked`` and ``on_unblocked`` of an exception listener."""
    return _optional(listener, "on_blocked", awaits), _optional(listener, "on_unblocked", awaits)


def completion_callbacks(
    listener: object, awaits: bool
) -> tuple[Callable[[Message], Any], Callable[[Message, Exception], Any]]:
    """The functions to call when a send has succeeded, and when it has failed.

    Raises:
        ValueError: the listener is None (PRO-24).
        TypeError: it is neither an object with both methods nor a pair of callables; or calling one would not run it.
    """
    if listener is None:
        raise ValueError("a completion listener is needed, not None; leave the argument out for a synchronous send")
    if isinstance(listener, tuple):
        if len(listener) == 2 and all(map(callable, listener)):
            return _checked(listener[0], awaits), _checked(listener[1], awaits)
    else:
        completed, failed = getattr(listener, "on_completion", None), getattr(listener, "on_exception", None)
        if callable(completed) and callable(failed):
            return _checked(completed, awaits), _checked(failed, awaits)
    raise TypeError(
        "a completion listener has on_completion(message) and on_exception(message, exception), or is a pair of "
        f"callables, unlike {listener!r:.80}"
    )


def failure_of(error: BaseException, rule: Mapping[str, object]) -> dict[str, object]:
    """The failure that a session states when its listener has raised: the last line of the traceback, and the rule.

    Args:
        rule: as :attr:`EngineSession.retry_rule`.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = ""
    if isinstance(error, Reject):
        return {"reject": True, "text": said[:MAX_ERROR_CHARS] or name}
    return {**rule, "text": (f"{name}: {said}" if said else name)[:MAX_ERROR_CHARS]}


def log_raised(message: Message, error: BaseException) -> None:
    """A message listener raised (LIS-09). The log names the message, not its content: the reader of a log may be
    readers that must not see messages."""
    name, destination = message.get_jms_message_id(), message.get_jms_destination()
    text = "a message listener raised; message %.100r of %.100s, delivery %d"
    _log.error(text, name, destination, message._count, exc_info=error)
