"""The handler of each verb: `def on_verb(peer, command, now)`. The table is :mod:`sievemq_broker.session.table`."""
