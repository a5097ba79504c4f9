"""A broker elsewhere, for ``--sievemq-url``: the same tests against a container, as far as a client can look.

What a client cannot see or do (the journal, the clock, faults) skips the test, and says why.
"""

from __future__ import annotations

from typing import Any, NoReturn
from urllib.parse import quote

import pytest

from sievemq import ConnectionFactory, Message
from sievemq.destinations import Destination, Queue
from sievemq_core.message.destination import parse_address
from sievemq_testing.views import ConnectionView

__all__ = ["RemoteBroker", "RemoteNamespace", "RemoteQueue"]


def needs_inside(what: str) -> NoReturn:
    """Skip the running test."""
    pytest.skip(f"{what} needs a broker in the test's process; --sievemq-url names one elsewhere")


class RemoteBroker:
    """A broker that a URL leads to.

    Args:
        url: as for a ConnectionFactory, without a namespace.
    """

    def __init__(self, url: str) -> None:
        self._base = url.partition("?")
        self.url = url

    def namespace(self, name: str) -> RemoteNamespace:
        """A namespace; it cannot be dropped from here, so give it a name that nobody else uses."""
        base, mark, options = self._base
        return RemoteNamespace(name, f"{base.rstrip('/')}/{quote(name, safe='')}{mark}{options}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        needs_inside(f"broker.{name}")


class RemoteNamespace:
    """A namespace of a broker elsewhere.

    Args:
        name: its name.
        url: that leads to it.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    def queue(self, name: str | Destination) -> RemoteQueue:
        """A queue, as ``orders``, ``queue:orders`` or ``Queue("orders")``."""
        return RemoteQueue(self.url, parse_address(str(name)).name)

    def drop(self) -> list[ConnectionView]:
        """Nothing: a client cannot."""
        return []

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        needs_inside(f"namespace.{name}")


class RemoteQueue:
    """A queue of a broker elsewhere, looked at by browsing.

    Args:
        url: of the namespace.
        name: of the queue.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name

    def messages(self, selector: str | None = None) -> list[Message]:
        """What waits, in the order of delivery."""
        with ConnectionFactory(self._url).create_context() as context:
            browser: Any = context.create_browser(Queue(self._name), selector)
            return list(browser)

    @property
    def depth(self) -> int:
        """Messages that wait."""
        return len(self.messages())

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        needs_inside(f"queue.{name}")
