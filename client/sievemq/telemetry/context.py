"""The context of a send, carried in the message's properties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter

from sievemq.exceptions import JMSException
from sievemq.messages import Message
from sievemq_core.errors import FormatError
from sievemq_core.limits import MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from sievemq_core.message.envelope import pack_properties
from sievemq_core.message.values import PropertyValue


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
    and is sent on: it keeps the context of its first send. One that has as many properties as a message may have, or as
    large ones, is sent without.
    """
    held = message._properties
    before = None if held is None else frozenset(held)
    try:
        propagate.inject(message, setter=_properties)
    except JMSException:  # read-only
        pass
    if held is not None and before is not None and not _fit(held):
        _remove(held, before)
    try:
        yield
    finally:
        if before is not None and held is not None:
            _remove(held, before)


def _remove(held: dict[str, PropertyValue], before: frozenset[str]) -> None:
    for name in held.keys() - before:
        held.pop(name, None)  # another thread that sends the same message may have done it


def _fit(properties: dict[str, PropertyValue]) -> bool:
    """A message may have these properties."""
    text = sum(len(name) + (len(value) if isinstance(value, str) else 0) for name, value in properties.items())
    if len(properties) <= MAX_PROPERTIES and 4 * text + 16 * len(properties) <= MAX_PROPERTIES_BYTES:
        return True  # however its text is encoded
    try:
        pack_properties(properties)
    except FormatError:
        return False
    return True


def creation_context(message: Message) -> Context:
    """The context in which a message was sent; empty if it carries none."""
    return propagate.extract(message, context=Context(), getter=_properties)
