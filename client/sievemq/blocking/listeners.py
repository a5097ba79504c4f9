# Generated from sievemq/aio/listeners.py by client/generate_blocking.py; change that file, then run `make format`.
"""The listener interfaces of the blocking API (PY-22): any object with the methods will do, or a plain callable where
there is one method."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sievemq.exceptions import JMSException
from sievemq.messages import Message


@runtime_checkable
class MessageListener(Protocol):
    """Gets the messages of a consumer (section 15)."""

    def on_message(self, message: Message, /) -> None:
        """Called with each message, one at a time over all consumers of a session (LIS-02)."""


@runtime_checkable
class ExceptionListener(Protocol):
    """Is notified about serious problems of a connection (section 7).

    It may have two methods more: ``on_connection_lost(exception)`` is called when a loss is going to be repaired,
    ``on_connection_restored()`` when it is repaired (docs/reconnection.md). And two for limits at which senders wait
    (docs/operating.md): ``on_blocked(destination, reason)`` when sends to a destination begin to wait for room, where a
    destination of None means the whole broker, ``on_unblocked(destination)`` when they do not any more.
    """

    def on_exception(self, exception: JMSException, /) -> None:
        """Called with errors that no call can raise (EXL-03)."""


@runtime_checkable
class CompletionListener(Protocol):
    """Receives the outcome of an asynchronous send (section 12)."""

    def on_completion(self, message: Message, /) -> None:
        """The send is as certain as one that returned (CPL-01)."""

    def on_exception(self, message: Message, exception: Exception, /) -> None:
        """The send has failed, or its fate is unknown (CPL-02).

        Args:
            message: the object that was passed to `send`.
            exception: why.
        """
