"""KeyboardInterrupt at each place of a call at which CPython runs signal handlers: the session stays usable, the
broker has lost nothing, no lock stays held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import sievemq.blocking
from sievemq import ConnectionFactory, DeliveryMode, JMSException, Queue, Session, TextMessage
from sievemq_broker import EmbeddedBroker

from ..interrupts import Interrupts
from .helpers import SOON, Background

#: Files in which interrupts are raised.
FRONT = (str(Path(sievemq.blocking.__file__).parent),)


class Account:
    """A session with a producer and a consumer, and what passed through them."""

    def __init__(self, url: str, mode: int) -> None:
        options = {"reconnect_delay": 1, "reconnect_max_delay": 1}
        self.connection = ConnectionFactory(url, **options).create_connection()
        self.connection.start()
        self.session = self.connection.create_session(mode)
        self.queue = Queue("sweep")
        self.producer = self.session.create_producer(self.queue)
        self.consumer = self.session.create_consumer(self.queue)
        self.callbacks: list[str] = []
        self.sent: set[str] = set()
        self.received: set[str] = set()
        self._number = 0

    def send(self, mode: int = DeliveryMode.PERSISTENT) -> None:
        self._number += 1
        body = str(self._number)
        self.producer.send(TextMessage(body), delivery_mode=mode)
        if mode == DeliveryMode.PERSISTENT:
            self.sent.add(body)

    def send_async(self) -> None:
        self.producer.send(
            TextMessage("async"), completion_listener=(lambda _: self.callbacks.append("done"), lambda _, error: None)
        )

    def receive(self, timeout: int = SOON) -> None:
        message = self.consumer.receive(timeout)
        if message is not None:
            self.received.add(message.get_text())  # type: ignore[attr-defined]

    def finish(self) -> None:
        if self.session.get_transacted():
            try:
                self.session.commit()
            except JMSException:  # what was sent before the interrupt was lost with its connection
                self.session.rollback()

    def check(self) -> None:
        """Everything can be used as before, and nothing was lost."""
        self.finish()
        self.send()
        self.finish()
        last = str(self._number)
        while last not in self.received:
            self.receive()
        self.finish()
        control = self.session._control
        control.called_back()
        assert control.receiving is None
        with self.connection._transport.lock:  # the I/O thread may have it for a moment
            assert not control.guard.locked()
            assert not control.sending.locked()


def buffered(account: Account) -> None:
    account.send()
    account.receive()


def waiting(account: Account) -> None:
    account.receive(30)


def several(account: Account) -> None:
    account.consumer.receive_no_wait()


def committed(account: Account) -> None:
    account.producer.send(TextMessage("t"))
    account.consumer.receive(1)
    account.session.commit()


def another_consumer(account: Account) -> None:
    with account.session.create_consumer(Queue("another")) as consumer:
        consumer.receive(1)


CALLS: list[tuple[str, int, Callable[[Account], None]]] = [
    ("send and receive", Session.AUTO_ACKNOWLEDGE, buffered),
    ("receive with a timeout", Session.AUTO_ACKNOWLEDGE, waiting),
    ("receive_no_wait", Session.AUTO_ACKNOWLEDGE, several),
    ("send without a confirm", Session.AUTO_ACKNOWLEDGE, lambda account: account.send(DeliveryMode.NON_PERSISTENT)),
    ("asynchronous send", Session.AUTO_ACKNOWLEDGE, Account.send_async),
    ("recover", Session.CLIENT_ACKNOWLEDGE, lambda account: account.session.recover()),
    ("commit", Session.SESSION_TRANSACTED, committed),
    ("rollback", Session.SESSION_TRANSACTED, lambda account: account.session.rollback()),
    ("open and close a consumer", Session.AUTO_ACKNOWLEDGE, another_consumer),
]


@pytest.mark.parametrize(("mode", "call"), [pytest.param(mode, call, id=name) for name, mode, call in CALLS])
def test_a_session_survives_an_interrupt_at_any_place(mode: int, call: Callable[[Account], None]) -> None:
    with EmbeddedBroker() as broker:
        account = Account(broker.url, mode)
        call(account)
        account.check()
        number = 1
        while True:
            interrupts = Interrupts(number, FRONT)
            with suppress(KeyboardInterrupt), interrupts.armed():
                call(account)
            if not interrupts.place:
                break
            checking = Background(account.check)
            try:
                checking.result()
            except Exception as error:
                raise AssertionError(f"after an interrupt at place {number}, {interrupts.place}") from error
            number += 1
        assert number > 5
        account.connection.close()
        assert mode == Session.SESSION_TRANSACTED or account.sent <= account.received
