"""Requests of a connected client, independent of the protocol, and the cleanup after its end.

    peer         the state of one connected client, its answers       session      mode, consumers, order of sends
    ports        its output; what it needs from the I/O layer         transaction  what waits for COMMIT
    table        verb -> handler, and the right it takes              sends        what becomes of a send
    verbs        commands, with names of their fields                 waiting      a send or COMMIT that waits for room
    handlers/    handshake, consumers, destinations, messages, taps   deliveries   the consumers of all sessions
    rights       who may do what                                      lost         what is kept of a lost connection
    settings     limits and names that the broker announces           checks       ids, pairs, limits, selectors, times
    life         the states of a connection                           member       who it is; what it resumes

Three rules hold it together. A refused request changes nothing. A broken connection harms no other. However a
connection ends, everything it held goes back, once.
"""

from sievemq_broker.session.peer import Peer
from sievemq_broker.session.ports import Services
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import AuthenticationError, SessionSettings

__all__ = ["AuthenticationError", "Identity", "Peer", "Services", "SessionSettings"]
