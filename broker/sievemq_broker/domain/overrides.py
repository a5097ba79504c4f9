"""Rules of an administrator that override what senders set (D-21)."""

from __future__ import annotations

from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_core.message.envelope import DELIVERY_MODE, DELIVERY_TIME, EXPIRATION, PRIORITY, TIMESTAMP, Envelope


def overridden(policy: DestinationPolicy, envelope: Envelope, now: int, *, moved: bool = False) -> Envelope:
    """The message as the administrator's rules change it (D-21); its headers show the new values.

    Args:
        now: ms epoch.
        moved: it was in the broker before; its time to live and its delay begin now, instead of when it was sent.
    """
    if not policy.overrides:
        return envelope
    fields = list(envelope.fields)
    if policy.delivery_mode is not None:
        fields[DELIVERY_MODE] = policy.delivery_mode
    if policy.priority is not None:
        fields[PRIORITY] = policy.priority
    sent = now if moved else fields[TIMESTAMP] or now
    if policy.time_to_live is not None:
        fields[EXPIRATION] = sent + policy.time_to_live if policy.time_to_live else 0
    if policy.delay is not None:
        fields[DELIVERY_TIME] = sent + policy.delay if policy.delay else 0
    changed = tuple(fields)
    return envelope if changed == envelope.fields else Envelope(changed)
