"""What a MessageProducer sends with where a send says nothing else (§7)."""

from __future__ import annotations

from sievemq._engine.producer import EngineProducer
from sievemq.delivery_mode import DeliveryMode, DeliveryModeLike
from sievemq.destinations import Destination
from sievemq_core.durations import Milliseconds

__all__ = ["ProducerDefaults"]


class ProducerDefaults:
    """All of a MessageProducer but `send` and `close`; both fronts derive theirs from it."""

    __slots__ = ("_engine",)

    _engine: EngineProducer

    def __repr__(self) -> str:
        target = self._engine.destination
        return f"<MessageProducer {'unidentified' if target is None else target}{', closed' * self._engine.closed}>"

    def set_disable_message_id(self, value: bool) -> None:
        """Send without message ids (PRO-01)."""
        self._engine.check_open()
        self._engine.disable_message_id = bool(value)

    def get_disable_message_id(self) -> bool:
        """What was set; False by default (PRO-01)."""
        self._engine.check_open()
        return self._engine.disable_message_id

    def set_disable_message_timestamp(self, value: bool) -> None:
        """Send without timestamps (PRO-02)."""
        self._engine.check_open()
        self._engine.disable_timestamp = bool(value)

    def get_disable_message_timestamp(self) -> bool:
        """What was set; False by default (PRO-02)."""
        self._engine.check_open()
        return self._engine.disable_timestamp

    def set_delivery_mode(self, delivery_mode: DeliveryModeLike) -> None:
        """``DeliveryMode.PERSISTENT``, the default, or ``NON_PERSISTENT``; others: JMSException (PRO-03)."""
        self._engine.check_open()
        self._engine.set_delivery_mode(delivery_mode)

    def get_delivery_mode(self) -> DeliveryMode:
        """What was set (PRO-03)."""
        self._engine.check_open()
        return DeliveryMode(self._engine.delivery_mode)

    def set_priority(self, priority: int) -> None:
        """0 to 9, 4 by default; others: JMSException (PRO-04)."""
        self._engine.check_open()
        self._engine.set_priority(priority)

    def get_priority(self) -> int:
        """What was set (PRO-04)."""
        self._engine.check_open()
        return self._engine.priority

    def set_time_to_live(self, time_to_live: Milliseconds) -> None:
        """A timedelta or an int of milliseconds; 0 for ever, the default; negative: JMSException (PRO-05)."""
        self._engine.check_open()
        self._engine.set_time_to_live(time_to_live)

    def get_time_to_live(self) -> int:
        """What was set (PRO-05)."""
        self._engine.check_open()
        return self._engine.time_to_live

    def set_delivery_delay(self, delivery_delay: Milliseconds) -> None:
        """A timedelta or an int of milliseconds; 0 by default; negative: JMSException (PRO-06)."""
        self._engine.check_open()
        self._engine.set_delivery_delay(delivery_delay)

    def get_delivery_delay(self) -> int:
        """What was set (PRO-06)."""
        self._engine.check_open()
        return self._engine.delivery_delay

    def set_send_timeout(self, send_timeout: Milliseconds) -> None:
        """How long a send may wait for room, a timedelta or ms, 0 for ever; negative: JMSException. An extension."""
        self._engine.check_open()
        self._engine.set_send_timeout(send_timeout)

    def get_send_timeout(self) -> int:
        """What was set; that of the option ``send_timeout`` by default. An extension."""
        self._engine.check_open()
        return self._engine.send_timeout

    def get_destination(self) -> Destination | None:
        """Where it sends; None for an unidentified producer (PRO-07)."""
        self._engine.check_open()
        return self._engine.destination
