"""What is done for each verb: `def on_verb(peer, command, now)`; the table is :mod:`sievemq_broker.session.table`."""
