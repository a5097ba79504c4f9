"""Two workers share a queue; a piece of work that fails the first time comes again, marked as redelivered."""

from __future__ import annotations

import threading

from sievemq import ConnectionFactory, Message


class Worker:
    """Prints what it does; raising makes the broker deliver the message again."""

    def __init__(self, name: str, done: threading.Semaphore) -> None:
        self.name = name
        self.done = done

    def on_message(self, message: Message) -> None:
        number = message.get_body(str)
        if number == "3" and not message.get_jms_redelivered():
            raise ValueError("the third piece always fails at first")
        again = " (again)" if message.get_jms_redelivered() else ""
        # One write, the line's end included: print() alone writes it apart, and the two workers are two threads.
        print(f"piece {number} is done{again}\n", end="", flush=True)
        self.done.release()


def main() -> None:
    pieces = 6
    done = threading.Semaphore(0)
    factory = ConnectionFactory()
    with factory.create_context() as one, factory.create_context() as two, factory.create_context() as boss:
        queue = boss.create_queue("example.work")
        for context, name in ((one, "one"), (two, "two")):
            context.create_consumer(queue).set_message_listener(Worker(name, done))
        producer = boss.create_producer()
        for number in range(1, pieces + 1):
            producer.send(queue, str(number))
        for _ in range(pieces):
            if not done.acquire(timeout=60):
                raise SystemExit("the work was not done within a minute")


if __name__ == "__main__":
    main()
