"""The outcome of a message, as a tap of outcomes records it: values, and names of the record's properties."""

from __future__ import annotations

from typing import Final

ACKNOWLEDGED: Final = "acknowledged"
EXPIRED: Final = "expired"
DEAD_LETTERED: Final = "dead-lettered"
DROPPED: Final = "dropped"
"""At a limit of its destination."""
REMOVED: Final = "removed"
"""By an administrator, or with its destination."""

OUTCOMES: Final = (ACKNOWLEDGED, EXPIRED, DEAD_LETTERED, DROPPED, REMOVED)

OUTCOME: Final = "JMS_SieveMQ_Outcome"
OUTCOME_REASON: Final = "JMS_SieveMQ_OutcomeReason"
"""``attempts`` or ``expired`` of a dead letter; ``oldest`` or ``newest`` of what was dropped; ``moved``, ``retried``,
``purged`` or ``deleted`` of what was removed."""
SELECTOR: Final = "JMS_SieveMQ_OutcomeSelector"
"""Of the consumer that acknowledged it, if it has one."""
OUTCOME_SUBSCRIPTION: Final = "JMS_SieveMQ_OutcomeSubscription"
"""For a topic: the name of the subscription, if it has one. Each subscription has its own outcome."""
OUTCOME_ATTEMPTS: Final = "JMS_SieveMQ_OutcomeAttempts"
"""Attempts, the acknowledged one included."""
