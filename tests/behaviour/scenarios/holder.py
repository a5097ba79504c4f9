"""Receives messages, acknowledges none of them, says so, and waits to be killed: ``holder.py URL QUEUE COUNT``."""

from __future__ import annotations

import sys

from sievemq import ConnectionFactory, JMSContext


def main() -> None:
    url, queue, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = ConnectionFactory(url).create_context(JMSContext.CLIENT_ACKNOWLEDGE)
    consumer = context.create_consumer(context.create_queue(queue))
    for _ in range(count):
        if consumer.receive(10_000) is None:
            sys.exit("a message did not come")
    print(f"holding {count}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
