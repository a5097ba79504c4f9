"""The broker's rim: sockets, the loop, the clock, the disk's thread and HTTP, around the sessions.

Where things are:

- the process, and a broker on a loop: run, server, services, codec
- connections: listener, link, turn, timers, slow_consumers
- what is on disk before anybody hears of it: durable, commits, shortcut, progress
- limits: memory, namespace_limits, collector
- who comes in: authenticator, passwords, throttle, users, users_file, user_store
- figures: counts, totals, histogram, selector_times
- the management port: http
"""
