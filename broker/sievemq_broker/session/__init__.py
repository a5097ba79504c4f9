"""Between the wire and the domain: what a client's commands mean, and what becomes of its things when it goes.

    connection   one accepted connection; what the rim calls          services     what the rim provides
    handshake    HELLO                                                outbox       deliveries out; back-pressure
    commands     a function per command, one table; its rows are      session      mode, consumers, order of sends
                 here and in consumers, destinations, sends,          transaction  what waits for COMMIT
                 settlement, taps                                     stall        sends that wait for room
    dispatch     one command after the other, while there is time     pending      a send that is examined
    checks       ids, pairs, limits, selectors, times                 resume       what is kept of a lost connection
    rights       who may do what; guard asks                          leaving      closing, a slice at a time
    page         the answer to BROWSE                                 heartbeat    how long a peer may be silent

Three rules hold it together. A refused request changes nothing. A broken connection harms no other. However a
connection ends, everything it held goes back, once.
"""

from sievemq_broker.session.connection import BrokerConnection
from sievemq_broker.session.services import AuthenticationError, Identity, Services, SessionSettings

__all__ = ["AuthenticationError", "BrokerConnection", "Identity", "Services", "SessionSettings"]
