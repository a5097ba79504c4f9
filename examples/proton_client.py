"""An AMQP 1.0 client: a selector, acknowledgement, and a dead letter.

Needs Qpid Proton (Debian's ``python3-qpid-proton``, or ``pip install python-qpid-proton``) and a broker: one on this
machine, or the one that AMQP_URL names.
"""

from __future__ import annotations

import os

from proton import Message  # type: ignore[import-not-found]
from proton.reactor import Selector  # type: ignore[import-not-found]
from proton.utils import BlockingConnection  # type: ignore[import-not-found]


def main(url: str) -> None:
    """Send orders, take those that the selector lets through, and refuse one."""
    connection = BlockingConnection(url)
    sender = connection.create_sender("proton.orders")
    for amount in (50, 120, 300):
        sender.send(Message(body=f"order over {amount}", properties={"amount": amount}))
    receiver = connection.create_receiver("proton.orders", credit=2, options=Selector("amount > 100"))
    print("processed:", receiver.receive(timeout=10).body)
    receiver.accept()
    receiver.receive(timeout=10)
    receiver.reject()
    dead = connection.create_receiver("DLQ.proton.orders", credit=1)
    print("rejected:", dead.receive(timeout=10).body)
    dead.accept()
    left = connection.create_receiver("proton.orders", name="left", credit=1)
    print("left:", left.receive(timeout=10).body)
    left.accept()
    connection.close()


if __name__ == "__main__":
    main(os.environ.get("AMQP_URL", "amqp://127.0.0.1:7672"))
