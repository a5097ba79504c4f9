"""What is agreed about dead letters (D-22): the name of their queue, and the properties that the broker sets."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "DLQ."
"""Begins the name of a dead-letter queue."""
NOTES: Final = "JMS_SieveMQ_DeadLetter"
"""Begins the names of the properties."""

REASON: Final = f"{NOTES}Reason"
"""``attempts`` (too many failed deliveries), ``expired``, or ``rejected`` (its consumer can never process it)."""
FAILED, EXPIRED, REJECTED = REASONS = "attempts", "expired", "rejected"
ORIGIN: Final = f"{NOTES}Origin"
"""Address of the destination."""
SUBSCRIPTION: Final = f"{NOTES}Subscription"
CLIENT_ID: Final = f"{NOTES}ClientID"
"""For a topic: the subscription's name and client id, if it has them."""
ATTEMPTS: Final = f"{NOTES}Attempts"
"""The number of deliveries."""
FIRST_FAILURE: Final = f"{NOTES}FirstFailure"
LAST_FAILURE: Final = f"{NOTES}LastFailure"
"""Ms epoch."""
ERROR: Final = f"{NOTES}Error"
"""Of the last failure: what the client stated, such as the last line of the listener's traceback; or that its
connection was lost. Absent if the client gave no reason."""
MAX_ERROR_CHARS: Final = 1_000
"""Of that text."""
FAILED_BY: Final = f"{NOTES}FailedBy"
"""Begins the names of the properties that tell which client had the message at the last failure. Each is absent if the
client has no such name; a message that expired has none of them."""
FAILED_BY_CLIENT_ID: Final = f"{FAILED_BY}ClientID"
FAILED_BY_USER: Final = f"{FAILED_BY}User"
FAILED_BY_ADDRESS: Final = f"{FAILED_BY}Address"
"""Of the client's end of the connection."""
FAILED_BY_CONSUMER: Final = f"{FAILED_BY}Consumer"
"""The connection's id, a full stop, and the number of the consumer in it: as the management API names consumers."""
