"""What the tests of the blocking front share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sievemq import Message, MessageConsumer, TextMessage

#: Milliseconds for what is on its way; nothing takes that long unless it is broken.
SOON = 60_000


def text(message: Message | None) -> str | None:
    """The text of a message that must have arrived."""
    assert isinstance(message, TextMessage), message
    return message.get_text()


def receive_text(consumer: Any) -> str | None:
    return text(consumer.receive(SOON))


def texts(consumer: Any, count: int) -> list[str | None]:
    """The texts of the next messages."""
    return [receive_text(consumer) for _ in range(count)]


def nothing_left(consumer: Any) -> bool:
    """True if the broker has nothing more for it."""
    return consumer.receive_no_wait() is None


class Background:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.value: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error

    def result(self) -> Any:
        """What it returned; raises what it raised."""
        self._thread.join(SOON / 1000)
        assert not self._thread.is_alive(), "the call has not returned"
        if self.error is not None:
            raise self.error
        return self.value

    @property
    def running(self) -> bool:
        return self._thread.is_alive()


class Collector:
    """A listener that keeps what it gets. `act` is called with each message, and may raise."""

    def __init__(self, act: Callable[[Message], Any] | None = None) -> None:
        self.messages: list[Message] = []
        self._act = act
        self._arrived = threading.Condition()

    def on_message(self, message: Message) -> None:
        try:
            if self._act is not None:
                self._act(message)
        finally:
            with self._arrived:
                self.messages.append(message)
                self._arrived.notify_all()

    def wait(self, count: int) -> list[Message]:
        """The messages, once there are `count`; each call of the listener has nearly returned by then."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.messages) >= count, SOON / 1000), self.messages
            return list(self.messages)

    @property
    def texts(self) -> list[str | None]:
        return [text(message) for message in self.messages]


def wait_until_receiving(consumer: MessageConsumer) -> None:
    """Return once another thread is blocked in the consumer's receive."""
    limit = threading.Event()
    for _ in range(SOON):  # milliseconds
        if consumer._control._waiting:
            return
        limit.wait(0.001)
    raise AssertionError("no thread receives")
