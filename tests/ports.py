"""Free ports for brokers that tests start in other processes and in containers."""

from __future__ import annotations

import random
import socket

#: Below those that Linux, macOS and Windows give to a connection as its own.
PORTS = (10_000, 32_000)


def free_port() -> int:
    """A port that a broker finds free each time it is started."""
    while True:
        port = random.randrange(*PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue  # another process listens there
