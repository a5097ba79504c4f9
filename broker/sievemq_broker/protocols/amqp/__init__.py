"""AMQP 1.0 with the JMS mapping (docs/protocols.md), the broker's end.

types          values to bytes and back
performatives  the composite types, as data
frames         bytes to frames and back
mapping        a message's sections to an envelope and back; addresses; filters
links          sessions and links: counters, deliveries that are not settled
connection     frames in, commands to the client's Peer
outbox         answers and deliveries, in frames; back-pressure
"""

from sievemq_broker.protocols.amqp.connection import AmqpConnection

__all__ = ["AmqpConnection"]
