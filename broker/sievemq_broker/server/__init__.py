"""The broker's rim: sockets, the loop, the clock, the disk's thread and HTTP, around the sessions.

- process: `sievemq broker` from start to end; puts server and management port together
- server: a broker on a running loop
- net: listener, links, turns of the loop, timers, ticks
- durability: nothing is confirmed before it is on disk
- credentials: passwords, throttling, the users file (accounts themselves: sievemq_broker.users)
- watch: memory, limits, slow consumers, counts
- http: the management port, metrics included
- otlp: metrics and spans to a collector
- histogram: counts by bounds, for net, durability and watch
"""
