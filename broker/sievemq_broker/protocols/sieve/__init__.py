"""SieveMQ's own protocol (docs/protocol.md), the broker's end of it.

connection   bytes in, commands to the client's Peer; bytes out
outbox       answers and deliveries, in frames; back-pressure
"""

from sievemq_broker.protocols.sieve.connection import SieveConnection

__all__ = ["SieveConnection"]
