"""``sievemq demo``: SieveMQ on real input, checked against an independent referee."""
