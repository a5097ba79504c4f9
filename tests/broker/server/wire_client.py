"""A client of a few lines that says commands over a socket: the server's tests need no SDK to break rules with."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Self

from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

DEADLINE = 60.0


class WireClient:
    """One connection. Every wait ends after DEADLINE seconds with an error."""

    def __init__(
        self,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int = 0,
        hello: bool = True,
        user: str | None = None,
        password: str | None = None,
        namespace: str = "",
    ) -> None:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(DEADLINE)
        sock.connect(("127.0.0.1", port))
        try:
            self.sock = tls.wrap_socket(sock, server_hostname="localhost") if tls else sock
        except BaseException:
            sock.close()
            raise
        self.wire = WireConnection("client")
        self.waiting: list[tuple[Any, ...]] = []
        self.requests = 0
        self.sent = 0
        if hello:
            try:
                self.say(Command.HELLO, PROTOCOL_VERSION, namespace, user, password, None, 0, "test", None, {})
                self.welcome = self.until(Command.WELCOME, Command.ERROR)
            except BaseException:
                self.close()
                raise

    def say(self, *command: object) -> None:
        self.wire.send(*command)
        self.sock.sendall(self.wire.data_to_send())

    def request(self, number: int, *fields: object) -> tuple[Any, ...]:
        """Say a request and wait for its OK or ERROR."""
        self.requests += 1
        request = self.requests
        self.say(number, request, *fields)
        return self.next(lambda command: command[0] in (Command.OK, Command.ERROR) and command[1] == request)

    def until(self, *numbers: int) -> tuple[Any, ...]:
        """The next command of one of these numbers; others are passed over."""
        return self.next(lambda command: command[0] in numbers)

    def next(self, wanted: Callable[[tuple[Any, ...]], bool]) -> tuple[Any, ...]:
        deadline = time.monotonic() + DEADLINE
        while True:
            while self.waiting:
                command = self.waiting.pop(0)
                if wanted(command):
                    return command
            assert time.monotonic() < deadline, "nothing of that kind came"
            self.read()

    def read(self) -> bool:
        """Read once; False at the end of the stream."""
        data = self.sock.recv(1 << 20)
        self.waiting += self.wire.receive_data(data) if data else ()
        assert data, f"the broker closed the connection; unread: {self.waiting}"
        return True

    def at_end(self) -> bool:
        """Wait for the end of the stream; what comes before it is dropped."""
        try:
            while self.sock.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        return True

    # -- what most tests say ------------------------------------------------------------------------------------------

    def open_session(self, session: int = 1, mode: int = 2) -> Self:
        assert self.request(Command.OPEN_SESSION, session, mode)[0] == Command.OK
        return self

    def open_consumer(self, destination: str, *, credit: int, consumer: int = 1, selector: str | None = None) -> Self:
        answer = self.request(
            Command.OPEN_CONSUMER, 1, consumer, destination, selector, None, False, None, False, False, credit
        )
        assert answer[0] == Command.OK, answer
        return self

    def send(self, destination: str, body: bytes = b"x", *, expiration: int = 0, timestamp: int = 1) -> Self:
        self.sent += 1
        envelope = (None, timestamp, 4, 1, expiration, 0, None, None, None, None, None, 2, body)
        self.say(Command.SEND, 1, self.sent, destination, envelope)
        return self

    def confirmed(self) -> Self:
        """Wait until everything sent is confirmed."""
        while self.until(Command.CONFIRM)[2] < self.sent:
            pass
        return self

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
