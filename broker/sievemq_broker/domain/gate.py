"""Whether sends may come into a namespace with limits, or into a broker that is near its own: counted send by send.

A namespace's sum on each send would cost every send of every queue in it. So whoever can add up how much is there says
how much more may come, that is counted down here, and when it is used up it is added up anew. What goes meanwhile is
not counted, so what is left is never more than there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.room import Limited, Overfull
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.destination import Address
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.namespace import Destination, Namespace
    from sievemq_broker.domain.topic import Topic

__all__ = ["MESSAGE_BYTES", "UNLIMITED", "Gate", "check_over", "check_room", "count", "enter", "enter_several"]

#: What a message takes beside its packed bytes: an entry, an envelope, its places in a view. Measured: 160 to 380.
MESSAGE_BYTES: Final = 256

UNLIMITED: Final = 2**62


class Gate:
    """What may still come in before somebody has to look.

    Args:
        look: adds up what is there, as so many messages and bytes want to come in; if there is room sets both anew for
            what is left behind them, else answers what they are to wait for.

    Attributes:
        messages, bytes: that may come; bytes with :data:`MESSAGE_BYTES` for each message.
    """

    __slots__ = ("_look", "bytes", "messages")

    def __init__(self, look: Callable[[int, int], Overfull | None]) -> None:
        self._look = look
        self.messages = 0
        self.bytes = 0

    def allow(self, messages: int, size: int) -> None:
        """So much may come in from now on before somebody has to look."""
        self.messages = messages
        self.bytes = size

    def enter(self, messages: int, size: int) -> Overfull | None:
        """Count what is about to come in.

        Args:
            messages: how many, a topic's for each that gets them.
            size: of all of them, with :data:`MESSAGE_BYTES` for each.

        Returns:
            None; or what is at its limit: then nothing was counted.

        Raises:
            RequestError: RESOURCE_ALLOCATION, it could never come in.
        """
        if messages > self.messages or size > self.bytes:
            return self._look(messages, size)
        self.messages -= messages
        self.bytes -= size
        return None

    def count(self, messages: int, size: int) -> None:
        """Count what comes in whether there is room or not, or only moves."""
        self.messages -= messages
        self.bytes -= size


def enter(
    namespace: Namespace,
    sends: Iterable[tuple[Destination, Envelope]],
    connection: str | None,
    *,
    whether_full: bool = True,
) -> Overfull | None:
    """Count sends that are about to come in.

    Args:
        namespace: into which.
        sends: where to, and what.
        connection: id of the sender's connection, for no_local.
        whether_full: ask whether the broker has room; otherwise they come in though it has none.

    Returns:
        None; or what is at its limit, of the namespace and the broker: they must not come in then.

    Raises:
        RequestError: RESOURCE_ALLOCATION, they could never come in.
    """
    gate, broker_gate = namespace.gate, namespace.broker.gate
    if gate is None and broker_gate is None:
        return None
    load = _load_of(sends, connection)
    over = None if gate is None else gate.enter(*load)
    if over is None and broker_gate is not None:
        if whether_full:
            return broker_gate.enter(*load)
        broker_gate.count(*load)
    return over


def enter_several(
    namespace: Namespace,
    sends: Iterable[tuple[Destination, Envelope]],
    connection: str | None,
    patient: bool,
    acknowledges: bool,
) -> list[Limited]:
    """As :func:`enter`, for a batch. What acknowledges something makes room for others too, so it need not wait for
    the broker, and comes in whether that is full or not.

    Raises:
        RequestError: also if it would have to wait, and cannot.
    """
    waits = patient and not acknowledges
    over = (namespace.broker.over if waits else None) or namespace.over
    over = over or enter(namespace, sends, connection, whether_full=waits)
    if over is None:
        return []
    if over.refuses or not patient:
        check_over(namespace)
    return [over]


def count(namespace: Namespace, sends: Iterable[tuple[Destination, Envelope]]) -> None:
    """Count what comes in whether there is room or not."""
    for gate in (namespace.gate, namespace.broker.gate):
        if gate is not None:
            gate.count(*_load_of(sends, None))


def check_over(namespace: Namespace) -> None:
    """Raise RequestError RESOURCE_ALLOCATION if the namespace is at its limit: for who cannot wait."""
    if namespace.over is not None:
        raise RequestError(namespace.over.limit_text, ErrorCode.RESOURCE_ALLOCATION, {"namespace": namespace.name})


def check_room(namespace: Namespace, address: Address, envelope: Envelope) -> None:
    """Raise unless a message may come in, as far as the namespace and the broker go: for who cannot wait.

    Raises:
        AddressError, RequestError: as :meth:`Namespace.declare`; RESOURCE_ALLOCATION.
    """
    over = namespace.over or namespace.broker.over or enter(namespace, ((namespace.declare(address), envelope),), None)
    if over is not None:
        raise RequestError(over.limit_text, ErrorCode.RESOURCE_ALLOCATION, {"namespace": namespace.name})


def _load_of(sends: Iterable[tuple[Destination, Envelope]], connection: str | None) -> tuple[int, int]:
    """Messages and bytes of what is about to be sent, for each queue in which it would be.

    Args:
        sends: where to, and what.
        connection: id of the sender's connection, for no_local.
    """
    messages = size = 0
    for destination, envelope in sends:
        copies = 1 if isinstance(destination, Queue) else _copies(destination, envelope, connection)
        messages += copies
        size += copies * (len(envelope.packed) + MESSAGE_BYTES)
    return messages, size


def _copies(topic: Topic, envelope: Envelope, connection: str | None) -> int:
    """How many subscriptions get a message; that it was looked at is counted nowhere."""
    index = topic.index
    counted = topic.unreadable, index.evaluations, index.matches
    found = len(topic.matching(envelope, connection))
    topic.unreadable, index.evaluations, index.matches = counted
    return found
