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
"""What the client stated of the last failure, if it did: the last line of the listener's traceback."""
MAX_ERROR_CHARS: Final = 1_000
"""Of that text."""
