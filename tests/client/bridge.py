"""The blocking API behind the face of the asyncio one: how :mod:`both` runs one text of a test over both."""

from __future__ import annotations

import asyncio
import inspect
import queue as queues
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import sievemq
import sievemq.aio
from sievemq import Message, TemporaryQueue, TemporaryTopic

from .heard import LIMIT

#: Arguments that are listeners, by method; everything else is passed on.
_LISTENERS = {"set_message_listener", "set_exception_listener", "set_async"}
_TWINS: dict[type[Any], type[Any]] = {
    getattr(sievemq, name): getattr(sievemq.aio, name)
    for name in sievemq.aio.__all__
    if getattr(sievemq, name, None) is not getattr(sievemq.aio, name) and inspect.isclass(getattr(sievemq, name, None))
}
_BLOCKING: dict[type[Any], type[Any]] = {twin: kind for kind, twin in _TWINS.items()}


class _Lane:
    """The worker thread of one task."""

    def __init__(self) -> None:
        self._work: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        threading.Thread(target=self._run, name="both-lane", daemon=True).start()

    def put(self, work: Callable[[], None] | None) -> None:
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class Bridge:
    """Runs blocking calls so that they can be awaited, and coroutine listeners on blocking threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._lanes: weakref.WeakKeyDictionary[asyncio.Task[Any], _Lane] = weakref.WeakKeyDictionary()

    def make(self, kind: type[Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self.wrap(_BLOCKING[kind](*map(_real, arguments), **keywords))

    async def call(self, work: Callable[[], Any], what: str) -> Any:
        """Run `work` on the thread of the running task; in a listener's thread right there."""
        if threading.get_ident() != self._thread:
            return work()
        task = asyncio.current_task()
        assert task is not None
        lane = self._lanes.get(task)
        if lane is None:
            lane = self._lanes[task] = _Lane()
            weakref.finalize(task, lane.put, None)
        future: asyncio.Future[Any] = self._loop.create_future()

        def run() -> None:
            try:
                result, error = work(), None
            except BaseException as raised:
                result, error = None, raised
            with suppress(RuntimeError):  # the loop is closed: no task waits any more
                self._loop.call_soon_threadsafe(settle, result, error)

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # a future cannot carry it
                future.set_result(_END)
            else:
                future.set_exception(error)

        lane.put(run)
        done, _ = await asyncio.wait((future,), timeout=LIMIT)
        assert done, f"{what} has not returned within {LIMIT} s"
        return future.result()

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.put(None)

    # -- results ------------------------------------------------------------------------------------------------------

    def wrap(self, result: Any) -> Any:
        """A result as the test sees it."""
        for kind in type(result).__mro__:
            if kind in _TWINS:
                return _Proxy(self, result, _TWINS[kind])
        if isinstance(result, _Foreign):
            return result.original
        if isinstance(result, Message):
            return self._awaitable(result)
        if isinstance(result, (TemporaryQueue, TemporaryTopic)):
            delete = result._delete
            if delete is not None:
                object.__setattr__(result, "_delete", lambda: self.call(delete, "delete"))
        return result

    def _awaitable(self, message: Message) -> Message:
        acknowledge = message._acknowledge
        if not isinstance(acknowledge, _Acknowledge):
            message._acknowledge = _Acknowledge(self, acknowledge)
        return message

    # -- listeners ----------------------------------------------------------------------------------------------------

    def listen(self, listener: Any) -> Any:
        """A listener as the blocking API gets it."""
        if listener is None:
            return None
        if isinstance(listener, tuple):
            return tuple(self._callback(callback) for callback in listener)
        return _Foreign(self, listener)

    def _callback(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> None:
            for argument in arguments:
                if isinstance(argument, Message) and argument._acknowledge is not None:
                    self._awaitable(argument)
            result = callback(*arguments)
            if inspect.isawaitable(result):
                _drive(result)

        return call


class _Acknowledge:
    """Stands in for what a message's acknowledge() calls."""

    def __init__(self, bridge: Bridge, real: Callable[[], Any] | None) -> None:
        self._bridge = bridge
        self._real = real

    def __call__(self) -> Any:
        return self._bridge.call(self._real or (lambda: None), "acknowledge")


_METHODS = (
    "on_message",
    "on_completion",
    "on_exception",
    "on_connection_lost",
    "on_connection_restored",
    "on_blocked",
    "on_unblocked",
)


class _Foreign:
    """A listener of the test behind one that the blocking API can call; has the methods that the original has."""

    def __init__(self, bridge: Bridge, original: Any) -> None:
        self.original = original
        methods = [name for name in _METHODS if hasattr(original, name)]
        for name in methods:
            setattr(self, name, bridge._callback(getattr(original, name)))
        if callable(original) and not methods:
            self._call = bridge._callback(original)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def _drive(awaitable: Awaitable[Any]) -> Any:
    """Run a coroutine listener on the thread that called it; nothing in it may really suspend."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a listener of the blocking world may await API calls and api.signal(), nothing else")


def engine_of(consumer: Any) -> Any:
    real = _real(consumer)
    return (real._consumer if hasattr(real, "_consumer") else real)._engine


def _real(argument: Any) -> Any:
    return argument._object if isinstance(argument, _Proxy) else argument


_END = object()


class _Proxy:
    """A blocking object with the face of its asyncio twin."""

    def __init__(self, bridge: Bridge, real: Any, twin: type[Any]) -> None:
        self._bridge = bridge
        self._object = real
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._object)

    def __eq__(self, other: object) -> bool:
        return self._object is _real(other)

    def __hash__(self) -> int:
        return hash(self._object)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._object, name)
        if not callable(value):
            return value
        if inspect.iscoroutinefunction(inspect.unwrap(getattr(self._twin, name))):
            return self._waiting(name, value)
        return self._plain(name, value)

    def _waiting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            real, named = self._arguments(name, arguments, keywords)
            what = f"{type(self._object).__name__}.{name}"
            return self._result(await self._bridge.call(lambda: method(*real, **named), what))

        return call

    def _plain(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            real, named = self._arguments(name, arguments, keywords)
            result = method(*real, **named)
            if name in ("get_enumeration", "messages"):
                return self._iterate(result)
            return self._result(result)

        return call

    def _arguments(
        self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        real = tuple(map(_real, arguments))
        named = {key: _real(value) for key, value in keywords.items()}
        if name in _LISTENERS:
            real = tuple(map(self._bridge.listen, real))
            named = {key: self._bridge.listen(value) for key, value in named.items()}
        elif "completion_listener" in named:
            named["completion_listener"] = self._bridge.listen(named["completion_listener"])
        return real, named

    def _result(self, result: Any) -> Any:
        return self if result is self._object else self._bridge.wrap(result)

    async def _iterate(self, iterator: Iterator[Any]) -> AsyncIterator[Any]:
        while True:
            item = await self._bridge.call(lambda: next(iterator, _END), "iteration")
            if item is _END:
                return
            yield self._bridge.wrap(item)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._iterate(iter(self._object))

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
