"""The broker's body: destinations, subscriptions, consumers, time. Synchronous; no I/O, no clock, no randomness.

    Broker ── Namespace ─┬─ Queue ─┬─ Backlog   what waits, in order, with a view per distinct selector
                         │         ├─ Turns     whose turn it is among the consumers of a view
                         │         └─ Consumer  credit, and the window of what it was delivered
                         └─ Topic ─── Subscription ── Queue

Where things are:

- what there is: broker, namespace, queue, topic, subscriptions, client_ids, temporaries
- a message on a queue: entry, place, counts, standstill, journal, deadlines, dead_letters, overrides
- what waits, and looking at it: backlog, view, scan
- receivers: consumer, turns, recall, settlement, failure
- limits: policy, capacity, admission
- taps, and sends in two steps: tap, taps, tap_log, outcome_tap, stages
- what takes long, and its scheduler: work, examining, fan_out, publishing
- an administrator's verbs: management
- the edges: ports, store, restore

Deliveries leave through :class:`DeliveryPort`; `now` is milliseconds since 1970 throughout.
"""

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.ports import DeliveryPort, Observer
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Subscription, Topic

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
