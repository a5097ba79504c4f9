"""The broker's body: destinations, subscriptions, consumers, time. Synchronous; no I/O, no clock, no randomness.

    Broker ── Namespace ─┬─ Queue ─┬─ View      who sees what waits, in order; one per distinct selector
                         │         └─ Consumer  credit, and the window of what it was delivered
                         └─ Topic ─── Subscription ── Queue

Where things are:

- what there is: broker, namespace, queue, topic, subscription, subscriptions, client_ids, temporaries
- a message on a queue: entry, view, rows, fan_out, journal, deadlines, delays, dead_letters, returns, overrides
- who gets it: consumer, choice, groups, recall, scan
- limits: policy, capacity, room, gate
- reading without taking: pages, candidates, locate, walk, observers
- taps, and sends in two steps: tap, taps, tap_log, tap_records, outcome_tap, stages, publishing
- an administrator's verbs, and what takes long: management, steps, upkeep, examining
- the edges: ports, restore

Deliveries leave through :class:`DeliveryPort`; `now` is milliseconds since 1970 throughout.
"""

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.ports import DeliveryPort, Observer
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.subscription import Subscription
from sievemq_broker.domain.topic import Topic

__all__ = [
    "Broker",
    "Consumer",
    "DeliveryPort",
    "DestinationPolicy",
    "DomainSettings",
    "Namespace",
    "Observer",
    "Queue",
    "Subscription",
    "Topic",
]
