"""Sends COUNT bodies of SIZE bytes as fast as it may, and says how many were taken.

``flooder.py URL QUEUE COUNT SIZE MODE``.

Each carries its number. MODE is ``confirmed``, where every send waits for its confirm and one that is refused is
counted and left out, or ``unconfirmed``, where the window alone holds the producer back.
"""

from __future__ import annotations

import sys

from sievemq import ConnectionFactory, DeliveryMode, ResourceAllocationException


def main() -> None:
    url, queue, count, size, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    body = b"x" * size
    taken = 0
    with ConnectionFactory(url).create_context() as context:
        producer = context.create_producer()
        if mode == "unconfirmed":
            producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        destination = context.create_queue(queue)
        for number in range(count):
            message = context.create_bytes_message()
            message.write_bytes(body)
            message.set_int_property("number", number)
            try:
                producer.send(destination, message)
            except ResourceAllocationException:
                if taken == number:
                    print("refused", flush=True)
                continue
            taken += 1
    print(taken, flush=True)


if __name__ == "__main__":
    main()
