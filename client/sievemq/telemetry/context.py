"""The context of a send, carried in the message's properties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter

from sievemq.exceptions import JMSException
from sievemq.messages import Message

__all__ = ["carried", "creation_context"]


class _Properties(Getter[Message], Setter[Message]):
    """Reads and writes a message's properties for a propagator."""

    def get(self, carrier: Message, key: str) -> list[str] | None:
        value = carrier.get_object_property(key) if key.isidentifier() else None
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Message) -> list[str]:
        return list(carrier.get_property_names())

    def set(self, carrier: Message, key: str, value: str) -> None:
        # Some propagators name their fields as no property can be named (b3's x-b3-traceid): those are not carried.
        if key.isidentifier() and not carrier.property_exists(key):
            carrier.set_string_property(key, value)


_properties = _Properties()


@contextmanager
def carried(message: Message) -> Iterator[None]:
    """While this lasts, the message carries the current context; afterwards it is again as the application made it.

    A context that the application has put there itself stays. A message whose properties are read-only was received
    and is sent on: it keeps the context of its first send.
    """
    held = message._properties
    before = None if held is None else frozenset(held)
    try:
        propagate.inject(message, setter=_properties)
    except JMSException:  # read-only
        pass
    try:
        yield
    finally:
        if before is not None and held is not None:
            for name in held.keys() - before:
                held.pop(name, None)  # another thread that sends the same message may have done it


def creation_context(message: Message) -> Context:
    """The context in which a message was sent; empty if it carries none.

    Args:
        message: a received message.
    """
    return propagate.extract(message, context=Context(), getter=_properties)
