"""What ends a delivery, and what that counts for: the one table for all protocols (D-40).

A message has two counts. *Deliveries* grow whenever it returns and an application may have seen it: they are
JMSXDeliveryCount, JMSRedelivered, the delivery-count of AMQP, ``redelivered`` of STOMP. *Attempts* grow when it was the
message in work: only they reach ``max_attempts`` and delay a redelivery.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

ALL: Final = sys.maxsize
"""Each message of a consumer."""


class Outcome(IntEnum):
    """What ended the delivery of a message. The numbers up to :attr:`LEFT` are those of SETTLE."""

    ACKNOWLEDGED = 0
    FAILED = 1
    """The client states it: a listener raised, rollback, recover, NACK, modified with delivery-failed; or the message
    was handed to the application, and its session was closed without an acknowledgement."""
    REJECTED = 2
    """The client states that the message becomes a dead letter, however few attempts there were."""
    LEFT = 3
    """The client ended in order without settling it, and does not say what its application had: UNSUBSCRIBE,
    DISCONNECT, detach, end, close. If the last message that it has settled had failed, it has said so."""
    LOST = 4
    """The connection is lost."""
    KILLED = 5
    """The broker ended while a consumer had the message."""
    UNSEEN = 6
    """No application has had the message, or the client has released it."""


class Counted(NamedTuple):
    """What an outcome counts for.

    Attributes:
        deliveries, attempts: of how many of a consumer's messages, the oldest first, one more is counted.
    """

    deliveries: int
    attempts: int


COUNTED: Final[Mapping[Outcome, Counted]] = {
    Outcome.FAILED: Counted(ALL, ALL),
    Outcome.REJECTED: Counted(ALL, ALL),
    Outcome.LEFT: Counted(ALL, 1),
    Outcome.LOST: Counted(ALL, 1),
    Outcome.KILLED: Counted(ALL, 0),
    Outcome.UNSEEN: Counted(0, 0),
}
"""The table. Of an acknowledged message nothing is counted: it is gone."""

REASONS: Final[Mapping[Outcome, str]] = {
    Outcome.LEFT: "its client left without settling it",
    Outcome.LOST: "the connection of its client was lost",
}
"""Why a message has failed, for its dead letter, where its client states nothing."""
