"""An application that may be killed at any moment: ``player.py URL ROLE SEED JOURNAL [persistent]``.

Roles are ``produce``, ``aio-produce``, ``consume``, ``aio-consume``, and ``keep``, which is alone in reading the queue
``solo`` and the durable subscription ``ledger``. It plays one small program after another until SIGTERM, and writes to
the journal, before and after every step, what ``checker.py`` needs to know. A line is written with one system call, so
that it is there if the step after it was begun.

Connections may be cut as well: the client repairs them, and this notes the notifications. Where the broker itself is
killed, all messages are persistent, for others would be lost as promised.

    S key…          these are going to be sent             C key…       their send was confirmed
    T tx key…       these are staged in a transaction      TC tx        its commit is going to be asked for
    TK tx           the commit was confirmed               TR tx        it was rolled back, by whom ever
    F key code      its send failed
    W view consumer         is going to receive, and what it gets is acknowledged by itself
    D view consumer key count                              a message was handed out
    A view key…     they are acknowledged for certain      R view consumer   marked ones may come from here on
    G consumer      the consumer was closed and its session gave back what it held

A key says everything about a message: ``destination/stream/number/priority/transaction/group``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import sievemq.aio
from sievemq import (
    ConnectionFactory,
    DeliveryMode,
    InvalidClientIDRuntimeException,
    JMSContext,
    JMSException,
    JMSRuntimeException,
    Message,
    ResourceAllocationRuntimeException,
    TextMessage,
    TransactionRolledBackRuntimeException,
)

AUTO, CLIENT = JMSContext.AUTO_ACKNOWLEDGE, JMSContext.CLIENT_ACKNOWLEDGE
DUPS_OK, TRANSACTED = JMSContext.DUPS_OK_ACKNOWLEDGE, JMSContext.SESSION_TRANSACTED
SELECTORS = (
    None,
    None,
    "color = 'red'",
    "number > 20",
    "color IN ('green', 'blue') AND number < 40",
    "color LIKE 'r%'",
)


class Journal:
    """What this process did, in order."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, f"{time.monotonic_ns()} {' '.join(map(str, words))}\n".encode())


class Player:
    """Chooses what to do next.

    Args:
        url: the broker's.
        name: of this process; part of all streams and consumers it makes.
        seed: of what it does.
        journal: where it notes what it does.
        persistent: send no NON_PERSISTENT messages.
    """

    def __init__(self, url: str, name: str, seed: int, journal: Journal, persistent: bool) -> None:
        self.url, self.name, self.journal, self.persistent = url, name, journal, persistent
        self.chance = random.Random(seed)
        self.over = False
        #: Where senders wait for room, a transaction larger than that would wait for an empty queue.
        self._limited = "send_timeout" in url
        self._never = threading.Event()
        self._number = 0

    def next_name(self) -> str:
        self._number += 1
        return f"{self.name}.{self._number}"

    def end(self, *_: object) -> None:
        self.over = True

    def pause(self, seconds: float) -> None:
        self._never.wait(seconds)

    # -- messages -------------------------------------------------------------------------------------------------

    def batch(self, tx: str) -> list[tuple[str, TextMessage, int]]:
        """Messages of one session: key, message, priority."""
        stream, messages = self.next_name(), []
        # Now and then a transaction that the broker publishes in slices.
        large = tx != "-" and not self._limited and self.chance.random() < 0.05
        for number in range(self.chance.randint(1_001, 1_500) if large else self.chance.randint(1, 60)):
            destination = self.chance.choice(("work", "work", "solo", "grouped", "news"))
            priority = self.chance.choice((4, 4, 4, 0, 9))
            group = f"g{self.chance.randint(1, 5)}" if destination == "grouped" else "-"
            key = f"{destination}/{stream}/{number}/{priority}/{tx}/{group}"
            message = TextMessage(key)
            message.set_int_property("number", number)
            message.set_string_property("color", self.chance.choice(("red", "green", "blue")))
            if group != "-":
                message.set_string_property("JMSXGroupID", group)
            messages.append((key, message, priority))
        return messages

    def see(self, view: str, consumer: str, message: Message) -> str:
        key, count = message.get_body(str), message.get_int_property("JMSXDeliveryCount")
        self.journal.write("D", view, consumer, key, count)
        if message.get_jms_redelivered() != (count > 1):
            self.journal.write("BAD", key, "redelivered", message.get_jms_redelivered(), "count", count)
        return key

    # -- blocking -------------------------------------------------------------------------------------------------

    def produce(self) -> None:
        factory = ConnectionFactory(self.url)
        while not self.over:
            kind = self.chance.choice(("sync", "async", "loose", "transacted"))
            with (
                suppress(InDoubtError),
                factory.create_context(TRANSACTED if kind == "transacted" else AUTO) as context,
            ):
                context.set_exception_listener(expect_loss)
                for _ in range(self.chance.randint(1, 4)):
                    self.send(context, kind)
            self.pause(self.chance.random() * 0.05)

    def send(self, context: JMSContext, kind: str) -> None:
        tx = self.next_name() if kind == "transacted" else "-"
        batch = self.batch(tx)
        keys = [key for key, _, _ in batch]
        producer = context.create_producer()
        if kind == "async":
            producer.set_async(Completion(self.journal))
        if kind == "loose" and not self.persistent:
            producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        self.journal.write(*(("T", tx) if tx != "-" else "S"), *keys)
        for key, message, priority in batch:
            name = key.partition("/")[0]
            destination = context.create_topic(name) if name == "news" else context.create_queue(name)
            try:
                producer.set_priority(priority).send(destination, message)
            except ResourceAllocationRuntimeException as error:
                self.fail(key, error)
            except JMSRuntimeException as error:
                check_send(error)
            else:
                if kind == "sync":
                    self.journal.write("C", key)
        if kind == "transacted":
            if self.chance.random() < 0.3:
                context.rollback()
                self.journal.write("TR", tx)
            else:
                self.journal.write("TC", tx)
                try:
                    context.commit()
                except TransactionRolledBackRuntimeException:
                    self.journal.write("TR", tx)
                except JMSRuntimeException as error:
                    check_commit(error)
                else:
                    self.journal.write("TK", tx)

    def fail(self, key: str, error: JMSRuntimeException) -> None:
        """A send found no room in time: it is withdrawn, and must never come."""
        self.journal.write("F", key, error.get_error_code())

    def open(self, context: Any, view: str) -> Any:
        """A consumer of a view; to be awaited with asyncio."""
        if view == "crew":
            return context.create_shared_durable_consumer(context.create_topic("news"), "crew")
        if view == "ledger":
            return context.create_durable_consumer(context.create_topic("news"), "ledger")
        selector = self.chance.choice(SELECTORS) if view == "work" else None
        return context.create_consumer(context.create_queue(view), selector)

    def consume(self, views: tuple[str, ...] = ("work", "work", "grouped", "crew")) -> None:
        while not self.over:
            view = self.chance.choice(views)
            mode = self.chance.choice((AUTO, CLIENT, DUPS_OK, TRANSACTED))
            factory = ConnectionFactory(self.url)
            if view == "ledger":
                factory = ConnectionFactory(self.url, client_id="keeper")
            try:
                context = factory.create_context(mode)
                context.set_exception_listener(expect_loss)
            except InvalidClientIDRuntimeException:  # the broker has not seen yet that the last keeper was killed
                self.pause(0.01)
                continue
            consumer_name = self.next_name()
            taken: list[str] = []
            with suppress(InDoubtError), context:
                consumer = self.open(context, view)
                if mode in (AUTO, DUPS_OK) and self.chance.random() < 0.4:
                    taken = self.listen(consumer, view, consumer_name)
                else:
                    for _ in range(self.chance.randint(1, 4)):
                        taken += self.take(context, consumer, view, consumer_name)
                        if self.chance.random() < 0.1:
                            context.stop()
                            context.start()
                if self.chance.random() < 0.5:
                    consumer.close()
            self.journal.write("G", consumer_name)
            # An orderly end flushes the acknowledgements; what was on its way when the network failed may come again.
            if mode in (AUTO, DUPS_OK) and is_certain(context):
                self.journal.write("A", view, *taken)

    def listen(self, consumer: Any, view: str, name: str) -> list[str]:
        taken: list[str] = []

        def on_message(message: Message) -> None:
            taken.append(self.see(view, name, message))

        consumer.set_message_listener(on_message)
        self.pause(self.chance.random() * 0.2)
        consumer.set_message_listener(None)
        return taken

    def take(self, context: JMSContext, consumer: Any, view: str, name: str) -> list[str]:
        """Take a few and finish them, give them back, or leave them in hand. Those that are done by themselves."""
        keys: list[str] = []
        mode = context.get_session_mode()
        for _ in range(self.chance.randint(1, 50)):
            if mode in (AUTO, DUPS_OK):
                self.journal.write("W", view, name)
            message = consumer.receive_no_wait() if self.chance.random() < 0.2 else consumer.receive(20)
            if message is None:
                break
            keys.append(self.see(view, name, message))
        what = self.chance.random()
        if mode in (AUTO, DUPS_OK):
            return keys
        if what < 0.1:
            self.journal.write("R", view, name)
            context.recover() if mode == CLIENT else context.rollback()
        elif what < 0.9:
            try:
                context.acknowledge() if mode == CLIENT else context.commit()
            except JMSRuntimeException as error:
                check_loss(error)
            else:
                self.journal.write("A", view, *keys)
        return []

    # -- asyncio --------------------------------------------------------------------------------------------------

    async def aio_produce(self) -> None:
        factory = sievemq.aio.ConnectionFactory(self.url)
        while not self.over:
            transacted = self.chance.random() < 0.3
            async with over(factory.create_context(TRANSACTED if transacted else AUTO)) as context:
                context.set_exception_listener(expect_loss)
                for _ in range(self.chance.randint(1, 4)):
                    tx = self.next_name() if transacted else "-"
                    batch = self.batch(tx)
                    self.journal.write(*(("T", tx) if transacted else "S"), *(key for key, _, _ in batch))
                    producer = context.create_producer()
                    for key, message, priority in batch:
                        name = key.partition("/")[0]
                        destination = context.create_topic(name) if name == "news" else context.create_queue(name)
                        try:
                            await producer.set_priority(priority).send(destination, message)
                        except ResourceAllocationRuntimeException as error:
                            self.fail(key, error)
                        except JMSRuntimeException as error:
                            check_send(error)
                        else:
                            if not transacted:
                                self.journal.write("C", key)
                    if transacted and self.chance.random() < 0.3:
                        await context.rollback()
                        self.journal.write("TR", tx)
                    elif transacted:
                        self.journal.write("TC", tx)
                        try:
                            await context.commit()
                        except TransactionRolledBackRuntimeException:
                            self.journal.write("TR", tx)
                        except JMSRuntimeException as error:
                            check_commit(error)
                        else:
                            self.journal.write("TK", tx)
            await asyncio.sleep(self.chance.random() * 0.05)

    async def aio_consume(self) -> None:
        factory = sievemq.aio.ConnectionFactory(self.url)
        while not self.over:
            view = self.chance.choice(("work", "work", "grouped", "crew"))
            mode = self.chance.choice((AUTO, CLIENT, DUPS_OK, TRANSACTED))
            name, taken = self.next_name(), []
            async with over(factory.create_context(mode)) as context:
                context.set_exception_listener(expect_loss)
                consumer = await self.open(context, view)
                for _ in range(self.chance.randint(1, 4)):
                    taken += await self.aio_take(context, consumer, view, name)
                if self.chance.random() < 0.5:
                    await consumer.close()
            self.journal.write("G", name)
            if mode in (AUTO, DUPS_OK) and is_certain(context):
                self.journal.write("A", view, *taken)

    async def aio_take(self, context: Any, consumer: Any, view: str, name: str) -> list[str]:
        keys: list[str] = []
        for _ in range(self.chance.randint(1, 50)):
            message = await (consumer.receive_no_wait() if self.chance.random() < 0.2 else consumer.receive(20))
            if message is None:
                break
            keys.append(self.see(view, name, message))
        mode, what = context.get_session_mode(), self.chance.random()
        if mode in (AUTO, DUPS_OK):
            return keys
        if what < 0.1:
            self.journal.write("R", view, name)
            await (context.recover() if mode == CLIENT else context.rollback())
        elif what < 0.9:
            try:
                await (context.acknowledge() if mode == CLIENT else context.commit())
            except JMSRuntimeException as error:
                check_loss(error)
            else:
                self.journal.write("A", view, *keys)
        return []


class InDoubtError(Exception):
    """A commit was given up in an outage: the application begins another session."""


@asynccontextmanager
async def over(opening: Any) -> AsyncIterator[Any]:
    """A context that ends at a commit in doubt."""
    with suppress(InDoubtError):
        async with opening as context:
            yield context


class Completion:
    """Notes confirmed sends."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def on_completion(self, message: Message) -> None:
        self._journal.write("C", message.get_body(str))

    def on_exception(self, message: Message, error: Exception) -> None:
        code = error.get_error_code() if isinstance(error, JMSException) else repr(error)
        self._journal.write("F", message.get_body(str), code)


def is_certain(context: Any) -> bool:
    """True if the context's connection has never been lost, not even while it was closed."""
    engine = context._connection._engine
    return engine.outages == 0 and engine.outbox.cause is None and engine.failure is None


def check_loss(error: JMSRuntimeException) -> None:
    """What may be refused after a loss: messages that went back, a transaction that was rolled back."""
    if error.get_error_code() == "TIMEOUT":
        raise InDoubtError from error
    if error.get_error_code() not in ("CONNECTION_LOST", "TRANSACTION_ROLLED_BACK"):
        raise error


def expect_loss(_: JMSException) -> None:
    """Connections are lost here, and unconfirmed messages with them: the journals account for both."""


def check_send(error: JMSRuntimeException) -> None:
    """What a send may end with whose outcome is not known: the broker was away for longer than send_timeout, or it has
    lost what it knew of the connection."""
    if error.get_error_code() not in ("CONNECTION_LOST", "TIMEOUT"):
        raise error


def check_commit(error: JMSRuntimeException) -> None:
    """The same of a commit. After a time-out the next call on the session would raise its outcome."""
    if error.get_error_code() == "TIMEOUT":
        raise InDoubtError from error
    if error.get_error_code() != "CONNECTION_LOST":
        raise error


def main() -> None:
    logging.getLogger("sievemq").setLevel(logging.ERROR)  # connections that are lost and restored are not
    url, role, seed, path = sys.argv[1:5]
    player = Player(url, f"p{seed}", int(seed), Journal(path), persistent=sys.argv[5:] == ["persistent"])
    signal.signal(signal.SIGTERM, player.end)
    if role == "aio-produce":
        asyncio.run(player.aio_produce())
    elif role == "aio-consume":
        asyncio.run(player.aio_consume())
    elif role == "produce":
        player.produce()
    else:
        player.consume(("solo", "ledger") if role == "keep" else ("work", "work", "grouped", "crew"))
    player.journal.write("END")


if __name__ == "__main__":
    main()
