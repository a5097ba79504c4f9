"""Bytes to verbs and back, one package for each protocol. Sans-IO.

A protocol is a class with the face of :class:`~sievemq_broker.protocols.sieve.connection.SieveConnection` towards
`server/net/link.py`. It turns its frames into commands of the table that it is given, and writes deliveries and answers
out its own way, as a :class:`~sievemq_broker.session.peer.ClientPort`.
"""
