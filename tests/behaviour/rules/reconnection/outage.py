"""A network between clients and broker that a test cuts, and what an exception listener receives of it."""

from __future__ import annotations

from typing import Any

from tests.client.both import Api
from tests.client.relay import Relay, options

from sievemq import JMSException


async def connect(api: Api, relay: Relay, **more: Any) -> Any:
    """A started connection through the relay."""
    connection = await api.factory(relay.url(api.url), **options(**more)).create_connection()
    api._closeables.append(connection)
    await connection.start()
    return connection


class Hooks:
    """An exception listener that receives everything."""

    def __init__(self, api: Api) -> None:
        self.heard: list[str] = []
        self.errors: list[Exception] = []
        self.lost, self.restored, self.failed = api.signal(), api.signal(), api.signal()

    def on_connection_lost(self, error: JMSException) -> None:
        self.heard.append("lost")
        self.errors.append(error)
        self.lost.set()

    def on_connection_restored(self) -> None:
        self.heard.append("restored")
        self.restored.set()

    def on_exception(self, error: JMSException) -> None:
        self.heard.append("exception")
        self.errors.append(error)
        self.failed.set()


async def lose(api: Api, relay: Relay, connection: Any) -> Hooks:
    """Lose the connection, and wait until it is repaired."""
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    relay.cut()
    await hooks.restored.wait()
    return hooks


async def begin_outage(api: Api, relay: Relay, connection: Any) -> Hooks:
    """Lose the connection; it is not repaired before the relay accepts again."""
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    relay.refuse()
    relay.cut()
    await hooks.lost.wait()
    return hooks
