"""Metadata of a connection and its broker (§6.1.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sievemq_core.version import VERSION

#: What is accepted and carried (MET-06); JMSXDeliveryCount is set on every received message (JSX-01).
_JMSX: Final = ("JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq")


class ConnectionMetaData:
    """Versions and features.

    Args:
        broker: name and version, from WELCOME.
        features: the other fields of WELCOME.
    """

    __slots__ = ("_broker", "_features")

    def __init__(self, broker: str = "", features: dict[str, Any] | None = None) -> None:
        self._broker = broker
        self._features = dict(features or {})

    def __repr__(self) -> str:
        return f"<ConnectionMetaData Jakarta Messaging {self.get_jms_version()}, {self._broker}>"

    def get_jms_version(self) -> str:
        """The version of the specification (MET-01)."""
        return "3.1"

    def get_jms_major_version(self) -> int:
        """Its first number (MET-02)."""
        return 3

    def get_jms_minor_version(self) -> int:
        """Its second number (MET-02)."""
        return 1

    def get_jms_provider_name(self) -> str:
        """The product's name (MET-03)."""
        return "SieveMQ"

    def get_provider_version(self) -> str:
        """The product's version, of this library (MET-04)."""
        return VERSION

    def get_provider_major_version(self) -> int:
        """The first number of :meth:`get_provider_version` (MET-05)."""
        return _number(0)

    def get_provider_minor_version(self) -> int:
        """The second number of :meth:`get_provider_version` (MET-05)."""
        return _number(1)

    def get_jmsx_property_names(self) -> Iterator[str]:
        """The JMSX properties that are supported (MET-06)."""
        return iter(_JMSX)

    @property
    def broker(self) -> str:
        """Name and version of the broker at the other end."""
        return self._broker

    @property
    def durable(self) -> bool:
        """True if the broker keeps PERSISTENT messages over a restart (D-18)."""
        return self._features.get("durable") is True

    @property
    def shard(self) -> str:
        """Name of the group of namespaces that the broker serves: its setting ``shard``, ``main`` by default (D-45)."""
        return str(self._features.get("shard", "main"))


def _number(position: int) -> int:
    parts = VERSION.split("+")[0].split(".")
    digits = parts[position] if position < len(parts) else ""
    return int(digits) if digits.isdigit() else 0
