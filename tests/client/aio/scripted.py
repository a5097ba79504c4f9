"""A broker of a few lines on the test's own loop: it answers requests, and the rest when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from tests.client.messages.envelope import fields_of

from sievemq import TextMessage
from sievemq.aio import Connection, ConnectionFactory
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

_REQUESTS = {
    Command.OPEN_SESSION, Command.CLOSE_SESSION, Command.OPEN_CONSUMER, Command.CLOSE_CONSUMER, Command.COMMIT,
    Command.ROLLBACK, Command.RECOVER, Command.ACKNOWLEDGE_ALL, Command.DECLARE, Command.PING, Command.GOODBYE,
    Command.DELETE_TEMPORARY, Command.SET_CLIENT_ID,
}  # fmt: skip


class ScriptedBroker(asyncio.Protocol):
    """One accepted connection at a time.

    Attributes:
        heard: every command, in order.
        chunks: how often bytes arrived.
        silent: requests of these numbers are not answered.
        confirms: sends are confirmed.
        window: unconfirmed messages it allows.
        heartbeat: what it wants to hear, ms.
    """

    def __init__(self, window: int = 1_000, heartbeat: int = 0, mute: bool = False) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.chunks = 0
        self.silent: set[int] = set()
        self.confirms = True
        self.window = window
        self.heartbeat = heartbeat
        self.mute = mute
        self.port = 0
        self.transport: asyncio.Transport
        self._changed = asyncio.Event()
        self._wire = WireConnection("broker")
        self._temporary = 0

    @property
    def url(self) -> str:
        return f"sievemq://127.0.0.1:{self.port}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._wire = WireConnection("broker")

    def data_received(self, data: bytes) -> None:
        self.chunks += 1
        if self.mute:
            return
        last = 0
        for command in self._wire.receive_data(data):
            self.heard.append(command)
            if command[0] == Command.HELLO:
                limits = {"window_messages": self.window, "window_bytes": 1 << 20}
                self._wire.send(Command.WELCOME, 1, "scripted", "1", "c1", self.heartbeat, limits, {})
            elif command[0] == Command.SEND:
                last = command[2]
            elif command[0] == Command.CREATE_TEMPORARY and command[0] not in self.silent:
                self._temporary += 1
                self._wire.send(Command.OK, command[1], f"temporary-queue:c1.{self._temporary}")
            elif command[0] in _REQUESTS and command[0] not in self.silent:
                self._wire.send(Command.OK, command[1], None)
        if last and self.confirms:
            self._wire.send(Command.CONFIRM, 1, last)
        self.flush()
        self._changed.set()

    def say(self, *command: object) -> Self:
        self._wire.send(*command)
        self.flush()
        return self

    def flush(self) -> None:
        data = self._wire.data_to_send()
        if data:
            self.transport.write(data)

    def deliver(self, *texts: str, consumer: int = 1, first: int = 1) -> None:
        """Deliver text messages, in one write."""
        for tag, text in enumerate(texts, first):
            fields = fields_of(TextMessage(text), f"ID:{tag}", 0, 4, 1, 0, 0)
            self._wire.send(Command.DELIVER, consumer, tag, 1, fields)
        self.flush()

    def count(self, number: int) -> int:
        return sum(command[0] == number for command in self.heard)

    async def until(self, number: int, count: int = 1) -> tuple[Any, ...]:
        """The latest command of this number, once there were so many."""
        async with asyncio.timeout(60):
            while self.count(number) < count:
                self._changed.clear()
                await self._changed.wait()
        return [command for command in self.heard if command[0] == number][-1]


@asynccontextmanager
async def scripted(**options: Any) -> AsyncIterator[ScriptedBroker]:
    """A listening scripted broker."""
    broker = ScriptedBroker(**options)
    server = await asyncio.get_running_loop().create_server(lambda: broker, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        if hasattr(broker, "transport"):
            broker.transport.abort()
        await server.wait_closed()


async def connected(broker: ScriptedBroker, **options: Any) -> Connection:
    """A started connection to it; a loss is not repaired unless the options say so."""
    connection = await ConnectionFactory(broker.url, **{"reconnect": 0, **options}).create_connection()
    await connection.start()
    return connection


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
