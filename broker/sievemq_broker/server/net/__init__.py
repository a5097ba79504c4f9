"""Connections: sockets, turns of the loop, timers, and what all connections share."""
