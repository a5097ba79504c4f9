"""STOMP 1.0, 1.1 and 1.2 (docs/protocols.md), the broker's end.

frames       bytes to frames and back
mapping      SEND to an envelope, an envelope to MESSAGE
connection   frames in, commands to the client's Peer
outbox       answers and deliveries, in frames; back-pressure
"""

from sievemq_broker.protocols.stomp.connection import StompConnection

__all__ = ["StompConnection"]
