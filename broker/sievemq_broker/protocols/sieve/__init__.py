"""SieveMQ's own protocol (docs/protocol.md), the broker's end of it.

connection   bytes in, commands to the client's Peer; answers and deliveries out, in frames
handshake    HELLO and WELCOME
"""

from sievemq_broker.protocols.sieve.connection import SieveConnection

__all__ = ["SieveConnection"]
