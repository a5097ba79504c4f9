"""Destinations: queues and topics (§4.1.4, §4.2.6, §5.2). Value objects, safe to share between threads (THR-01)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NoReturn

from sievemq.advice import DestinationNameWarning, WildcardWarning, warn
from sievemq.exceptions import IllegalStateException, InvalidDestinationException
from sievemq_core.errors import AddressError
from sievemq_core.message.destination import Address, Kind, foreign_notation, parse_address

#: Kinds that begin the text of a destination, and the class that is meant if a name begins with one.
_PREFIXES: Final = {Kind.QUEUE.value: "Queue", Kind.TOPIC.value: "Topic"}


class Destination:
    """A queue or a topic; make one as :class:`Queue` or :class:`Topic`, or through a session.

    Two destinations are equal if kind and name are (DST-04). ``str()`` gives the text that the command line, options
    and configuration use, and that :func:`parse_destination` reads.

    >>> Queue("orders") == Queue("orders"), Queue("orders") == Topic("orders")
    (True, False)
    >>> str(Topic("prices"))
    'topic:prices'
    """

    __slots__ = ("_address", "_text")

    _address: Address
    _text: str
    _kind: Kind

    def __init__(self, name: str) -> None:
        kind = getattr(self, "_kind", None)
        if kind is None:
            raise TypeError("make a Queue or a Topic; Destination is what they have in common")
        try:
            address = Address(kind, name)
        except AddressError as error:  # DST-07
            raise InvalidDestinationException(str(error), error.code.name) from error
        object.__setattr__(self, "_address", address)
        object.__setattr__(self, "_text", str(address))
        prefix, colon, rest = name.partition(":")
        if colon and rest and prefix in _PREFIXES:
            warn(
                f"the name {name!r:.600} begins with a kind of destination, and this is {self._text}. "
                f"Write {_PREFIXES[prefix]}({rest!r:.600})",
                DestinationNameWarning,
            )

    @property
    def name(self) -> str:
        """The name without the kind."""
        return self._address.name

    @property
    def address(self) -> Address:
        """Kind and name as on the wire."""
        return self._address

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._address.name!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Destination) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a destination is a value and cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a destination is a value and cannot be changed: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._address.name,)


class Queue(Destination):
    """A queue: each message goes to one of its consumers.

    Args:
        name: 1 to 512 characters without control characters and without blanks at the ends.

    Raises:
        InvalidDestinationException: the name is None, empty or not allowed (DST-07).
    """

    __slots__ = ()
    _kind = Kind.QUEUE

    def get_queue_name(self) -> str:
        """The queue's name (DST-02)."""
        return self._address.name


class Topic(Destination):
    """A topic: each message goes to all its subscriptions.

    Args:
        name: as for :class:`Queue`.

    Raises:
        InvalidDestinationException: the name is None, empty or not allowed (DST-07).
    """

    __slots__ = ()
    _kind = Kind.TOPIC

    def get_topic_name(self) -> str:
        """The topic's name (DST-02)."""
        return self._address.name


class TemporaryQueue(Queue):
    """A queue that lives as long as the connection that made it (§6.2.2). Sessions and contexts make them.

    Args:
        name: ``<connection id>.<number>``, as the broker gave it.
        delete: what :meth:`delete` calls; a received ``JMSReplyTo`` has none.
    """

    __slots__ = ("_delete",)
    _kind = Kind.TEMPORARY_QUEUE
    _delete: Callable[[], Any] | None

    def __init__(self, name: str, delete: Callable[[], Any] | None = None) -> None:
        super().__init__(name)
        object.__setattr__(self, "_delete", delete)

    def delete(self) -> Any:
        """Delete the queue now rather than with its connection (DST-05).

        Returns:
            None; from a queue made by the asyncio API, something to await.

        Raises:
            IllegalStateException: this object came out of a message; only the connection that made the queue can
                delete it.
            JMSException: it has consumers (TMP-07).
        """
        return _delete(self, self._delete)


class TemporaryTopic(Topic):
    """A topic that lives as long as the connection that made it (§6.2.2). Sessions and contexts make them.

    Args:
        name: ``<connection id>.<number>``, as the broker gave it.
        delete: what :meth:`delete` calls; a received ``JMSReplyTo`` has none.
    """

    __slots__ = ("_delete",)
    _kind = Kind.TEMPORARY_TOPIC
    _delete: Callable[[], Any] | None

    def __init__(self, name: str, delete: Callable[[], Any] | None = None) -> None:
        super().__init__(name)
        object.__setattr__(self, "_delete", delete)

    def delete(self) -> Any:
        """Delete the topic now rather than with its connection; as :meth:`TemporaryQueue.delete`."""
        return _delete(self, self._delete)


def _delete(destination: Destination, delete: Callable[[], Any] | None) -> Any:
    if delete is None:
        raise IllegalStateException(f"{destination} can only be deleted by the connection that made it")
    return delete()


_CLASSES: Final[dict[Kind, type[Destination]]] = {
    Kind.QUEUE: Queue,
    Kind.TOPIC: Topic,
    Kind.TEMPORARY_QUEUE: TemporaryQueue,
    Kind.TEMPORARY_TOPIC: TemporaryTopic,
}


@lru_cache(maxsize=4096)  # received messages name the same few destinations again and again
def parse_destination(text: str) -> Destination:
    """The destination that a text names: ``queue:orders``, ``topic:prices``; a bare name is a queue.

    Raises:
        InvalidDestinationException: the text is empty or has characters that a name must not have.

    >>> parse_destination("topic:prices"), parse_destination("orders")
    (Topic('prices'), Queue('orders'))
    """
    try:
        address = parse_address(text)
    except AddressError as error:
        raise InvalidDestinationException(str(error), error.code.name) from error
    return _of(address)


def _of(address: Address) -> Destination:
    """The destination of an address that was written with its kind: there is nothing to warn of."""
    self = object.__new__(_CLASSES[address.kind])
    object.__setattr__(self, "_address", address)
    object.__setattr__(self, "_text", str(address))
    if address.kind.is_temporary:
        object.__setattr__(self, "_delete", None)
    return self


def destination_for(value: object) -> Destination:
    """`value` as a destination of ours: itself, or the twin of another provider's object (MSG-21).

    Raises:
        InvalidDestinationException: it is neither.
    """
    if isinstance(value, Destination):
        return value
    for method, kind in (("get_queue_name", Queue), ("get_topic_name", Topic)):
        name = getattr(value, method, None)
        if callable(name):
            return kind(name())
    hint = " (write Queue(…) or Topic(…))" if isinstance(value, str) else ""
    raise InvalidDestinationException(f"a destination is needed, not {value!r:.80}{hint}")


def warn_of_notation(destination: Destination) -> None:
    """Warn, at the application's line, of a consumer whose destination is written as for another broker."""
    found = foreign_notation(destination.address)
    if found is not None:
        text, is_pattern = found
        warn(text, WildcardWarning if is_pattern else DestinationNameWarning)
