"""A STOMP client beside one of SieveMQ's own: a selector, acknowledgement, and a dead letter.

Needs stomp.py (``pip install stomp.py``) and a broker: one on this machine, or the one that SIEVEMQ_URL names.
"""

from __future__ import annotations

import os
import queue
from urllib.parse import urlsplit

import stomp  # type: ignore[import-untyped]
from stomp.utils import Frame  # type: ignore[import-untyped]

from sievemq import ConnectionFactory, Queue


class Inbox:
    """Keeps the frames that arrive."""

    def __init__(self) -> None:
        self.frames: queue.Queue[Frame] = queue.Queue()

    def on_message(self, frame: Frame) -> None:
        """A MESSAGE has come."""
        self.frames.put(frame)

    def on_error(self, frame: Frame) -> None:
        """An ERROR has come: the connection ends."""
        print("error:", frame.headers["message"])


def main(url: str) -> None:
    """Send with one client, receive with the other."""
    address = urlsplit(url)
    inbox = Inbox()
    # With a vhost that begins with "/" the connection is in that namespace.
    connection = stomp.Connection12([(address.hostname, address.port)], vhost=address.path or "localhost")
    connection.set_listener("", inbox)
    connection.connect(wait=True)
    connection.subscribe("/queue/stomp.orders", id="1", ack="client-individual", selector="amount > 100")
    with ConnectionFactory(url).create_context() as context:
        producer = context.create_producer()
        for amount in (50, 120, 300):
            producer.set_property("amount", amount).send(Queue("stomp.orders"), f"order over {amount}")
        first, second = inbox.frames.get(timeout=10), inbox.frames.get(timeout=10)
        connection.ack(first.headers["ack"])
        connection.nack(second.headers["ack"], requeue="false")
        print("processed:", first.body)
        dead = context.create_consumer(Queue("DLQ.stomp.orders")).receive_body(str, timeout=10_000)
        print("rejected:", dead)
        left = context.create_consumer(Queue("stomp.orders")).receive_body(str, timeout=10_000)
        print("left:", left)
    connection.disconnect()


if __name__ == "__main__":
    main(os.environ.get("SIEVEMQ_URL", "sievemq://127.0.0.1:7672"))
